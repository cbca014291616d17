// SPDX-License-Identifier: MIT
/*  main.cpp - an engine that starts, runs frames, reloads a kernel, runs out of memory, ends, and starts again */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <fcntl.h>
#include <io.h>
#endif

#include "engine.h"

static int passed, failed, failures;
#define CHECK(condition) \
    ((condition) ? (void)0 : (void)(failures++, printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition)))

static char kernel_path[1024];

static void write_kernel(const char *speed)
{
    FILE *file = fopen(kernel_path, "wb");
    CHECK(file);
    if (!file)
        return;
    fprintf(file,
            "extern \"C\" __global__ void step(int *x, int n)\n"
            "{\n"
            "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
            "    if (i < n) x[i] += %s;\n"
            "}\n",
            speed);
    fclose(file);
}

/*  One after the other; what does not fit into a frame is done in the next one. */
static int next_job;
static int run_frame(double budget_s)
{
    int done = engine_run(game_step, next_job, GAME_ACTORS, budget_s);
    next_job += done;
    return done;
}

static ignis_array stale;

static void begin()
{
    write_kernel("1");
    next_job = 0;
    CHECK(engine_start());
    CHECK(game_start(kernel_path));
}

static void end()
{
    stale = game_array(0);
    CHECK(game_stop());
    CHECK(engine_stop() == 0);
}

static void all_work_is_done_and_seen()
{
    begin();
    for (int frame = 0; frame < 30; frame++)
        CHECK(run_frame(1e9) == GAME_ACTORS);
    CHECK(ignis_synchronize() == IGNIS_OK);
    CHECK(run_frame(1e9) == GAME_ACTORS); /* takes what has come */
    for (int i = 0; i < GAME_ACTORS; i++) {
        CHECK(game_steps(i) == 31);
        CHECK(game_seen_at(i) > 0 && game_seen(i) == game_seen_at(i));
    }
    CHECK(!game_torn());
    end();
}

static void a_frame_keeps_its_budget()
{
    int frames = 0, jobs = 0, done;
    begin();
    for (; jobs < 10 * GAME_ACTORS; jobs += done, frames++) {
        done = run_frame(frames % 2 ? 1e9 : 0); /* no time at all: one job, or as many as there are workers */
        CHECK(done >= 1 && (frames % 2 == 0 || done == GAME_ACTORS));
        CHECK(frames % 2 || done < GAME_ACTORS);
    }
    int least = game_steps(0), most = least;
    for (int i = 1; i < GAME_ACTORS; i++) {
        least = game_steps(i) < least ? game_steps(i) : least;
        most = game_steps(i) > most ? game_steps(i) : most;
    }
    CHECK(most - least <= 1); /* nobody was left out */
    end();
}

static void a_mistake_in_a_file_stops_nothing()
{
    begin();
    run_frame(1e9);
    write_kernel("oops");
    CHECK(game_reload(kernel_path) == IGNIS_ERROR_COMPILE);
    CHECK(engine_log_count(IGNIS_DIAG_COMPILE_FAILED) == 1 &&
          strstr(engine_log_text(IGNIS_DIAG_COMPILE_FAILED), "oops"));
    CHECK(strstr(ignis_status_message(), "step.cu(4)")); /* one record of this thread, whichever library failed */
    ignis_status_clear();
    for (int frame = 0; frame < 9; frame++)
        run_frame(1e9);
    write_kernel("100");
    CHECK(game_reload(kernel_path) == IGNIS_OK);
    for (int frame = 0; frame < 5; frame++) {
        CHECK(ignis_synchronize() == IGNIS_OK);
        run_frame(1e9);
    }
    for (int i = 0; i < GAME_ACTORS; i++)
        CHECK(game_seen_at(i) > 10 && game_seen(i) == 10 + 100 * (game_seen_at(i) - 10));
    end();
}

static void an_engine_without_memory_goes_on()
{
    begin();
    engine_heap_limit(1);
    int made = 0;
    ignis_array_desc desc = ignis_array_desc();
    ignis_array arrays[64];
    desc.shape = IGNIS_SHAPE(10);
    while (made < 64 && (arrays[made] = ignis_array_create(desc)).id)
        made++;
    CHECK(made < 64 && ignis_status_last() == IGNIS_ERROR_MEMORY);
    ignis_status_clear();
    engine_heap_limit(0);
    while (made > 0)
        CHECK(ignis_array_free(arrays[--made]) == IGNIS_OK);
    CHECK(run_frame(1e9) == GAME_ACTORS);
    end();
}

static void what_is_of_a_former_start_is_stale()
{
    begin();
    CHECK(ignis_array_free(stale) == IGNIS_ERROR_FREED);
    CHECK(engine_log_count(IGNIS_DIAG_ARRAY_FREED) == 1);
    ignis_status_clear();
    end();
}

static void run(const char *name, void (*test)())
{
    failures = 0;
    test();
    if (failures)
        printf("FAIL: %s: %s\n", name, ignis_status_message());
    failures ? failed++ : passed++;
    ignis_status_clear();
}

int main(int, char **argv)
{
#ifdef _WIN32
    _setmode(1, _O_BINARY); /* lines end as elsewhere */
#endif
    snprintf(kernel_path, sizeof kernel_path, "%s.step.cu", argv[0]);
    run("all_work_is_done_and_seen", all_work_is_done_and_seen);
    run("a_frame_keeps_its_budget", a_frame_keeps_its_budget);
    run("a_mistake_in_a_file_stops_nothing", a_mistake_in_a_file_stops_nothing);
    run("an_engine_without_memory_goes_on", an_engine_without_memory_goes_on);
    run("what_is_of_a_former_start_is_stale", what_is_of_a_former_start_is_stale);
    remove(kernel_path);
    printf("engine: %d passed, %d failed, 0 skipped\n", passed, failed);
    return failed != 0;
}
