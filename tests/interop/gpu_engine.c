// SPDX-License-Identifier: MIT
/*  gpu_engine.c - an engine in two shared libraries, with Vulkan as its renderer: `make check-graphics`

    libengine.so (engine/core.c, game.cpp) has an Ignis for itself and the game; libeffects.so (engine/effects.cpp), a
    plugin, has one of its own, which is static; this program, which plays the renderer, has a third, as tests have. All
    three work in one process on one device. First both libraries write down the kernels that they ask for; then they
    run frames from bundles of those, and nothing is compiled any more: actors step on the workers and are read back,
    the plugin paints into Vulkan's memory, Vulkan copies what was painted, and they take turns by a timeline. What
    Vulkan needs:
    vulkan.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "vulkan.h"

#include "engine/effects.h"
#include "engine/engine.h"

#define main embed_main
#include "tools/ignis_embed.c"
#undef main

/* clang-format off */
#define ENGINE_FUNCTIONS(X) \
    X(engine_options) X(engine_start) X(engine_stop) X(engine_run) X(game_start) X(game_stop) X(game_step) \
    X(game_steps) X(game_seen) X(game_seen_at) X(game_torn)
#define EFFECTS_FUNCTIONS(X) X(effects_start) X(effects_attach) X(effects_paint) X(effects_stop)
/* clang-format on */

static struct {
#define FUNCTION(name) __typeof__(&name) name;
    ENGINE_FUNCTIONS(FUNCTION)
    EFFECTS_FUNCTIONS(FUNCTION)
} lib;

static const char *program;                    /* argv[0]: the libraries are in the folder engine beside it */
static char kernel_path[1024], files[4][1100]; /* records and bundles of both */
enum { ENGINE_RECORD, EFFECTS_RECORD, ENGINE_BUNDLE, EFFECTS_BUNDLE };

static void *open_library(const char *name)
{
    const char *slash = strrchr(program, '/');
    char path[1024];
    void *library;
    snprintf(path, sizeof path, "%.*sengine/%s", slash ? (int)(slash + 1 - program) : 0, program, name);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        printf("%s\n", dlerror());
    return library;
}

static void find_function(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    REQUIRE(found);
    memcpy(function, &found, sizeof found);
}

static void open_libraries(void)
{
    void *engine = open_library("libengine.so"), *effects = open_library("libeffects.so");
    REQUIRE(engine && effects);
#define FIND_ENGINE(name) find_function(engine, #name, &lib.name);
    ENGINE_FUNCTIONS(FIND_ENGINE)
#define FIND_EFFECTS(name) find_function(effects, #name, &lib.name);
    EFFECTS_FUNCTIONS(FIND_EFFECTS)
    CHECK(dlsym(engine, "ignis_setup") != NULL &&
          dlsym(effects, "ignis_setup") == NULL); /* the plugin's own stays inside */
}

static void write_files(void)
{
    static const char *const endings[] = {"engine.record", "effects.record", "engine.ignis", "effects.ignis"};
    FILE *file;
    int i;
    for (i = 0; i < COUNT_OF(endings); i++)
        snprintf(files[i], sizeof files[i], "%s.%s", program, endings[i]);
    snprintf(kernel_path, sizeof kernel_path, "%s.step.cu", program);
    file = fopen(kernel_path, "wb");
    REQUIRE(file);
    fprintf(file, "extern \"C\" __global__ void step(int *x, int n)\n"
                  "{\n"
                  "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                  "    if (i < n) x[i] += 1;\n"
                  "}\n");
    fclose(file);
}

static void remove_files(void)
{
    int i;
    for (i = 0; i < COUNT_OF(files); i++)
        remove(files[i]);
    remove(kernel_path);
}

/*  Both libraries start: to write down what they ask for, or from bundles alone. */
static void start(bool recording)
{
    static char nowhere[] = "/nowhere/library.so";
    ignis_desc desc = test_desc(NULL);
    if (!recording) {
        desc.compile = IGNIS_COMPILE_NEVER;
        desc.cache_dir = "off";
        desc.nvrtc_library = desc.cublas_library = nowhere;
    }
    desc.record = recording ? files[EFFECTS_RECORD] : NULL;
    desc.bundle_path = recording ? NULL : files[EFFECTS_BUNDLE];
    CHECK(lib.effects_start(&desc));
    desc.record = recording ? files[ENGINE_RECORD] : NULL;
    desc.bundle_path = recording ? NULL : files[ENGINE_BUNDLE];
    *lib.engine_options() = desc;
    CHECK(lib.engine_start());
    CHECK(lib.game_start(kernel_path));
}

static void stop(void)
{
    CHECK(lib.game_stop());
    CHECK_INT(lib.engine_stop(), 0);
    CHECK(lib.effects_stop());
}

/*  A bundle of a record, for the device's architecture. */
static void embed(char *record_file, char *bundle_file)
{
    char name[] = "ignis_embed", archs[] = "--archs", o[] = "-o", arch[16];
    char *argv[] = {name, record_file, archs, arch, o, bundle_file, NULL};
    ignis_device_info info;
    CHECK_OK(ignis_setup(NULL));
    CHECK_OK(ignis_device_query(0, &info));
    snprintf(arch, sizeof arch, "%d%d%s", info.compute_major, info.compute_minor, info.compute_major >= 9 ? "a" : "");
    CHECK_OK(ignis_shutdown());
    request_count = 0;
    CHECK_INT(embed_main(6, argv), 0);
}

static int by_time(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

TEST(an_engine_and_its_plugin_draw_for_vulkan)
{
    enum { COUNT = 40000, FRAMES = 60 };
    double times[FRAMES];
    buffer from, to, host;
    ignis_external_desc pixels;
    ignis_external_fence_desc shared;
    VkCommandBuffer commands;
    timeline line;
    int64_t i, wrong;
    int frame;

    open_libraries();
    write_files();
    start(true);
    CHECK_INT(lib.engine_run(lib.game_step, 0, GAME_ACTORS, 1e9), GAME_ACTORS);
    stop();
    embed(files[EFFECTS_RECORD], files[EFFECTS_BUNDLE]);
    embed(files[ENGINE_RECORD], files[ENGINE_BUNDLE]);

    VULKAN_SETUP();
    from = make_buffer(COUNT * 4, true, false, 0), to = make_buffer(COUNT * 4, true, false, 0);
    host = make_buffer(COUNT * 4, false, false, 0);
    commands = record(&from, &to, &host, COUNT * 4);
    start(false);
    pixels = describe_buffer(&from, COUNT);
    shared = begin_timeline(&line, 2 * FRAMES);
    CHECK(lib.effects_attach(&pixels, &shared));
    for (frame = 0; frame < FRAMES; frame++) {
        uint64_t shown = 2 * (uint64_t)frame + 2;
        VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                    .semaphoreCount = 1,
                                    .pSemaphores = &line.semaphore,
                                    .pValues = &shown};
        double began = test_seconds();
        CHECK_INT(lib.engine_run(lib.game_step, 0, GAME_ACTORS, 1e9), GAME_ACTORS);
        CHECK(lib.effects_paint(frame));
        times[frame] = test_seconds() - began;
        submit(&commands, &line, shown - 1, shown);
        OK(vk.vkWaitSemaphores(vk.device, &wait, UINT64_C(20000000000)));
        for (i = wrong = 0; i < COUNT; i++)
            wrong += ((const int32_t *)host.host)[i] != 1000 * frame + (int32_t)i;
        CHECK_INT(wrong, 0);
    }
    for (i = 0; i < GAME_ACTORS; i++)
        CHECK(lib.game_steps((int)i) == FRAMES && lib.game_seen_at((int)i) > 0 &&
              lib.game_seen((int)i) == lib.game_seen_at((int)i));
    CHECK(!lib.game_torn());
    end_timeline(&line);
    stop();
    end_buffer(&from), end_buffer(&to), end_buffer(&host);
    vulkan_end();
    remove_files();
    qsort(times, FRAMES, sizeof times[0], by_time);
    printf("%d frames, each %d steps on workers and a painting: median %.3f ms, worst %.3f ms of a frame in Ignis\n",
           FRAMES, GAME_ACTORS, times[FRAMES / 2] * 1e3, times[FRAMES - 1] * 1e3);
}

int main(int argc, char **argv)
{
    program = argv[0];
    return test_run(argc, argv);
}
