// SPDX-License-Identifier: MIT
/*  character.c - a character of a game speaks at 60 frames a second, and no frame waits for its words

    The renderer is a kernel that keeps the GPU busy for a part of each frame, on a stream that the device prefers. The
    text has a stream of its own: ignis_generate_poll passes on the tokens that are done, queues steps for the next
    ones, and returns. The model is a folder as Hugging Face has it.

        cc -I. examples/character.c -o character -lm -ldl -lpthread
        ./character SmolLM2-135M-Instruct "Guard, what have you seen?"

    IGNIS_FRAMES=600 in the environment: at most as many frames (120). IGNIS_LOAD_MS=8: of rendering in each (4).
    At the end: tokens, and the worst frame; of these frames the longest time in ignis_generate_poll, and of the
    rendering with the text and without.
*/
#define _GNU_SOURCE
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKENS_OF_A_FRAME = 2, CALIBRATION = 20000 };

static const char renderer[] = "extern \"C\" __global__ void render(float *pixels, int rounds)\n"
                               "{\n"
                               "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                               "    float x = pixels[i];\n"
                               "    for (int k = 0; k < rounds; k++)\n"
                               "        x = x * 0.999f + 0.001f;\n"
                               "    pixels[i] = x;\n"
                               "}\n";

typedef struct scene {
    ignis_kernel kernel;
    ignis_array pixels;
    void *stream;
    ignis_event begun, done;
    int blocks, rounds;
} scene;

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static void sleep_until(double ms)
{
    double left = ms - now_ms();
    struct timespec time = {0, (long)(left * 1e6)};
    if (left > 0 && left < 1000)
        nanosleep(&time, NULL);
}

static bool show(const char *text, size_t size, void *user_data)
{
    (void)user_data;
    return fwrite(text, 1, size, stdout) == size && fflush(stdout) == 0;
}

static void render(const scene *s)
{
    ignis_launch launch = {{(unsigned)s->blocks, 1, 1}, {256, 1, 1}, 0, false, false};
    ignis_arg args[] = {ignis_arg_array(s->pixels), ignis_arg_i32(s->rounds)};
    ignis_event_record(s->begun, NULL);
    ignis_kernel_launch(s->kernel, &launch, args, 2);
    ignis_event_record(s->done, NULL);
}

/*  A renderer whose frame takes about `ms` of the whole device. */
static scene scene_of(double ms)
{
    ignis_kernel_desc desc = {.source = renderer, .name = "render.cu", .entry = "render"};
    ignis_stream_desc preferred = {.priority = 1};
    ignis_array_desc of = {0};
    ignis_device_info device = {0};
    scene s = {0};
    double took = 0;
    int i;
    ignis_device_query(0, &device);
    s.blocks = device.multiprocessors * (ms > 0.1 ? 8 : 1);
    of.shape = IGNIS_SHAPE(256 * s.blocks);
    s.pixels = ignis_array_create(&of);
    s.kernel = ignis_kernel_compile(&desc);
    s.stream = ignis_stream_create(&preferred);
    s.begun = ignis_event_create();
    s.done = ignis_event_create();
    s.rounds = ms > 0.1 ? CALIBRATION : 1;
    ignis_stream_use(s.stream);
    for (i = 0; i < 2; i++) {
        render(&s);
        ignis_synchronize();
        ignis_event_elapsed_ms(s.begun, s.done, &took);
    }
    if (took > 0 && ms > 0.1)
        s.rounds = (int)(s.rounds * ms / took);
    ignis_stream_use(NULL);
    return s;
}

static double number_of(const char *name, double other)
{
    const char *text = getenv(name);
    return text ? atof(text) : other;
}

/*  Runs frames until the text has ended, and prints the worst one. */
static void play(const scene *s, ignis_sequence sequence, void *words, const ignis_generate_info *info, int frames)
{
    double next = now_ms(), worst_frame = 0, worst_poll = 0, worst_alone = 0, worst_beside = 0;
    int frame, late = 0;
    for (frame = 0; frame < frames && !info->ending && ignis_status_last() == IGNIS_OK; frame++) {
        const bool speaks = frame >= frames / 4; /* the renderer is alone before */
        double begin = now_ms(), polled = begin, took = 0;
        bool done = false;
        ignis_stream_use(s->stream);
        render(s);
        if (speaks) {
            ignis_stream_use(words);
            polled = now_ms();
            ignis_generate_poll(sequence, TOKENS_OF_A_FRAME);
            polled = now_ms() - polled;
            worst_poll = polled > worst_poll ? polled : worst_poll;
        }
        while (!done && ignis_event_query(s->done, &done) == IGNIS_OK && !done)
            sleep_until(now_ms() + 0.1);
        took = now_ms() - begin;
        worst_frame = speaks && took > worst_frame ? took : worst_frame;
        late += took > 1000.0 / 60;
        ignis_event_elapsed_ms(s->begun, s->done, &took);
        if (speaks)
            worst_beside = took > worst_beside ? took : worst_beside;
        else if (frame > 0)
            worst_alone = took > worst_alone ? took : worst_alone;
        next += 1000.0 / 60;
        next = next < now_ms() ? now_ms() : next;
        sleep_until(next);
    }
    ignis_stream_use(NULL);
    printf("\n%d frames, %d tokens, %d frames late; worst frame with text %.2f ms\n", frame, info->tokens, late,
           worst_frame);
    printf("worst of these: %.3f ms in ignis_generate_poll; rendering %.2f ms beside the text, %.2f ms alone\n",
           worst_poll, worst_beside, worst_alone);
}

int main(int argc, char **argv)
{
    ignis_model_desc from = {.path = argc > 1 ? argv[1] : NULL};
    const char *words = argc > 2 ? argv[2] : "Guard, what have you seen?";
    ignis_message talk[] = {{"user", words}};
    ignis_generate_info info = {0};
    ignis_generate_desc how = {.max_tokens = 200, .sampling = {.temperature = 0.7, .seed = 1}, .text_fn = show};
    ignis_tokenizer_info tokenizer = {0};
    int failed;
    void *stream;
    scene s;
    if (!from.path) {
        printf("give a folder with a model, and a question: %s SmolLM2-135M-Instruct \"%s\"\n", argv[0], words);
        return 2;
    }
    how.info = &info;
    ignis_setup(NULL);
    ignis_model model = ignis_model_open(&from);
    ignis_model_warmup_desc one = {.sequences = 1, .tokens = 64};
    ignis_model_warmup(model, &one); /* compiles all, and captures the steps: the loop would wait for it */
    ignis_sequence sequence = ignis_sequence_begin(model);
    ignis_tokenizer_query(ignis_model_tokenizer(model), &tokenizer);
    if (tokenizer.has_template)
        ignis_sequence_chat(sequence, talk, 1);
    else
        ignis_sequence_text(sequence, words, (int64_t)strlen(words));
    s = scene_of(number_of("IGNIS_LOAD_MS", 4));
    stream = ignis_stream_create(NULL);
    ignis_generate_begin(sequence, &how);
    play(&s, sequence, stream, &info, (int)number_of("IGNIS_FRAMES", 120));
    ignis_generate_end(sequence);
    failed = ignis_status_last() != IGNIS_OK; /* Ignis has written the reason to stderr */
    ignis_sequence_free(sequence);
    ignis_model_free(model);
    ignis_event_free(s.begun);
    ignis_event_free(s.done);
    ignis_kernel_free(s.kernel);
    ignis_array_free(s.pixels);
    ignis_stream_free(s.stream);
    ignis_stream_free(stream);
    return ignis_shutdown() != IGNIS_OK || failed;
}
