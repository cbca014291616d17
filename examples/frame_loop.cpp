// SPDX-License-Identifier: MIT
/*  frame_loop.cpp - Ignis in the loop of an engine: 60 frames a second, and none of them waits for the GPU

    Worker threads step particles, each on a stream of its own, and read them back a frame or two later: a ticket is
    asked, and waited for only when it is done. The engine's allocator and logger serve Ignis, too. Half way the kernel
    is reloaded twice while it runs: first with a mistake, which the logger shows and the loop survives, then with
    gravity. At the end: the median and the worst frame, and the longest that a frame was in calls of Ignis.
    IGNIS_FRAMES=3600 in the environment: a minute instead of 120 frames.

        c++ -I. examples/frame_loop.cpp -o frame_loop -lm -ldl -lpthread && ./frame_loop
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

typedef std::chrono::steady_clock Clock;

enum { WORKERS = 2, PARTICLES = 4096, WARM_UP = 10 };

/* The engine's own heap and log. Both are used by several threads. */
static std::atomic<long> blocks(0);

static void *engine_alloc(size_t size, void *) { return blocks++, malloc(size); }
static void engine_free(void *memory, void *) { blocks--, free(memory); }
static void engine_log(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *)
{
    printf("engine log: %s %s: %s\n", level == IGNIS_LOG_ERROR ? "error" : "note", ignis_diagnostic_name(diagnostic),
           message);
}

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    printf("giving up: %s: %s\n", what, ignis_status_message());
    exit(1);
}

static const char source[] = "extern \"C\" __global__ void step(float2 *p, float2 *v, int n, float dt)\n"
                             "{\n"
                             "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                             "    if (i >= n) return;\n"
                             "    v[i].y -= GRAVITY * dt;\n"
                             "    p[i].x += v[i].x * dt;\n"
                             "    p[i].y += v[i].y * dt;\n"
                             "    if (p[i].x < 0 || p[i].x > 1) v[i].x = -v[i].x;\n"
                             "    if (p[i].y < 0) p[i].y = 0, v[i].y = -0.5f * v[i].y;\n"
                             "}\n";

static ignis_kernel_desc program(const char *const *option)
{
    ignis_kernel_desc desc = ignis_kernel_desc();
    desc.source = source;
    desc.name = "step.cu";
    desc.entry = "step";
    desc.options = option;
    desc.option_count = 1;
    return desc;
}

/* What all threads see. The main thread opens a frame and waits until each worker has put its work into its stream. */
static struct Engine {
    std::mutex lock;
    std::condition_variable changed;
    int frame, at_work; /* the frame that is open, -1 at the end; workers that have not submitted theirs */
    ignis_kernel step;
    std::atomic<int> stepped;    /* batches that the GPU is done with */
    std::atomic<int> seen, late; /* readbacks that were used, and frames without one */
    float height[WORKERS];
    double in_ignis; /* ms of the present frame: the longest of its threads */
} engine;

static double ms_since(Clock::time_point begin)
{
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

static void count_batch(void *) { engine.stepped++; } /* on a thread of the driver: no Ignis, no waiting */

static void worker(int index)
{
    std::vector<float> start(2 * PARTICLES), speed(2 * PARTICLES);
    ignis_array_desc shape = ignis_array_desc();
    ignis_ticket tickets[2] = {};
    float *seen[2];
    void *stream = ignis_stream_create(nullptr);
    shape.shape = IGNIS_SHAPE(PARTICLES, 2);
    require(ignis_stream_use(stream) == IGNIS_OK, "a stream");
    ignis_array position = ignis_array_create(shape), velocity = ignis_array_create(shape);
    for (size_t i = 0; i < 2 * PARTICLES; i++) {
        start[i] = (float)((i * 7919 + (size_t)index) % 1000) / 1000.0f;
        speed[i] = (float)(i * 104729 % 201) / 1000.0f - 0.1f;
    }
    ignis_array_from_host(position, start.data(), IGNIS_F32, 2 * PARTICLES);
    ignis_array_from_host(velocity, speed.data(), IGNIS_F32, 2 * PARTICLES);
    for (float *&memory : seen)
        memory = (float *)ignis_host_alloc(2 * PARTICLES * sizeof(float));
    require(ignis_status_last() == IGNIS_OK, "particles");

    ignis_arg args[] = {ignis_arg_array(position), ignis_arg_array(velocity), ignis_arg_i32(PARTICLES),
                        ignis_arg_f32(1 / 60.0f)};
    ignis_launch launch = {{(PARTICLES + 255) / 256, 0, 0}, {256, 0, 0}, 0, false, false};
    for (int frame = 0;; frame++) {
        std::unique_lock<std::mutex> guard(engine.lock);
        engine.changed.wait(guard, [&] { return engine.frame < 0 || engine.frame > frame; });
        if (engine.frame < 0)
            break;
        guard.unlock();
        ignis_ticket &ticket = tickets[frame % 2]; /* of two frames ago */
        Clock::time_point begin = Clock::now();
        bool done = false;
        if (ticket.id && ignis_ticket_query(ticket, &done) == IGNIS_OK && done) {
            require(ignis_ticket_wait(ticket) == IGNIS_OK, "a readback");
            float sum = 0;
            for (int i = 0; i < PARTICLES; i++)
                sum += seen[frame % 2][2 * i + 1];
            engine.height[index] = sum / PARTICLES;
            engine.seen++;
            ticket.id = 0;
        }
        require(ignis_kernel_launch(engine.step, launch, args, 4) == IGNIS_OK, "a step");
        require(ignis_stream_call(nullptr, count_batch, nullptr) == IGNIS_OK, "a callback");
        if (!ticket.id)
            ticket = ignis_array_to_host_async(position, seen[frame % 2], IGNIS_F32, 2 * PARTICLES);
        else
            engine.late++; /* it is still on its way: this frame has no readback, and does not wait */
        double ms = ms_since(begin);
        guard.lock();
        engine.in_ignis = std::max(engine.in_ignis, ms);
        engine.at_work--;
        engine.changed.notify_all();
    }
    for (int i = 0; i < 2; i++) {
        if (tickets[i].id)
            ignis_ticket_wait(tickets[i]);
        ignis_host_free(seen[i]);
    }
    ignis_array_free(position);
    ignis_array_free(velocity);
    require(ignis_stream_free(stream) == IGNIS_OK, "the end of a worker");
}

int main()
{
    static const char *const none = "-DGRAVITY=0.0f", *const mistake = "-DGRAVITY=oops",
                             *const earth = "-DGRAVITY=9.81f";
    const char *wanted = getenv("IGNIS_FRAMES");
    int frames = std::max(wanted ? atoi(wanted) : 120, 2 * WARM_UP), reloads = 0;
    std::vector<double> times, in_ignis;
    std::vector<std::thread> workers;
    ignis_ticket reload = {};
    ignis_desc desc = ignis_desc();
    desc.allocator = {engine_alloc, engine_free, nullptr};
    desc.logger = {engine_log, nullptr};
    require(ignis_setup(desc) == IGNIS_OK, "setup");
    engine.step = ignis_kernel_compile(program(&none));
    require(engine.step.id != 0, "the kernel");
    for (int i = 0; i < WORKERS; i++)
        workers.emplace_back(worker, i);

    Clock::time_point next = Clock::now();
    for (int frame = 0; frame < frames; frame++) {
        Clock::time_point begin = Clock::now();
        std::unique_lock<std::mutex> guard(engine.lock);
        engine.frame = frame + 1;
        engine.at_work = WORKERS;
        engine.in_ignis = 0;
        engine.changed.notify_all();
        engine.changed.wait(guard, [] { return engine.at_work == 0; });
        guard.unlock();
        Clock::time_point asked = Clock::now();
        bool done = false;
        if (!reload.id && reloads < 2 && frame >= (reloads ? frames / 2 : frames / 4)) /* as if a file had changed */
            reload = ignis_kernel_reload(engine.step, program(reloads++ ? &earth : &mistake));
        if (reload.id && ignis_ticket_query(reload, &done) == IGNIS_OK && done) {
            printf("frame %d: reloaded the kernel: %s\n", frame, ignis_status_name(ignis_ticket_wait(reload)));
            ignis_status_clear();
            reload.id = 0;
        }
        if (frame >= WARM_UP) {
            times.push_back(ms_since(begin));
            in_ignis.push_back(engine.in_ignis + ms_since(asked));
        }
        next = std::max(next + std::chrono::microseconds(1000000 / 60), Clock::now());
        std::this_thread::sleep_until(next);
    }
    engine.lock.lock();
    engine.frame = -1;
    engine.changed.notify_all();
    engine.lock.unlock();
    for (std::thread &thread : workers)
        thread.join();
    if (reload.id)
        ignis_ticket_wait(reload);
    require(ignis_kernel_free(engine.step) == IGNIS_OK && ignis_shutdown() == IGNIS_OK, "shutdown");
    std::sort(times.begin(), times.end());
    printf("%d batches, %d readbacks used, %d too late, mean height %.3f, %ld blocks left\n", engine.stepped.load(),
           engine.seen.load(), engine.late.load(), engine.height[0], blocks.load());
    std::sort(in_ignis.begin(), in_ignis.end());
    printf("%d frames: median %.3f ms, worst %.3f ms; of these in Ignis: median %.3f ms, worst %.3f ms\n", frames,
           times[times.size() / 2], times.back(), in_ignis[in_ignis.size() / 2], in_ignis.back());
    return blocks != 0;
}
