// SPDX-License-Identifier: MIT
/*  test_build.h - shared by the tests below the driver: kernels compiled by libnvrtc.so and run through
    sim_module_load and sim_execute */
#ifndef SIM_TEST_BUILD_H
#define SIM_TEST_BUILD_H

#include "test.h"

#include "sim.h"

int nvrtcVersion(int *major, int *minor);
int nvrtcCreateProgram(void **program, const char *source, const char *name, int headers, const char *const *texts,
                       const char *const *names);
int nvrtcDestroyProgram(void **program);
int nvrtcCompileProgram(void *program, int count, const char *const *options);
int nvrtcGetProgramLogSize(void *program, size_t *size);
int nvrtcGetProgramLog(void *program, char *log);
int nvrtcGetCUBINSize(void *program, size_t *size);
int nvrtcGetCUBIN(void *program, char *image);
int nvrtcAddNameExpression(void *program, const char *expression);
int nvrtcGetLoweredName(void *program, const char *expression, const char **lowered);

/* The driver's part of the interface. */
int sim_address_describe(const void *address, char *what, size_t what_size)
{
    (void)address;
    snprintf(what, what_size, "no memory of this test");
    return 0;
}

int sim_fault(void) { return 0; }

#define CHECK_HAS(text, part)                                 \
    do {                                                      \
        CHECK(strstr(text, part) != NULL);                    \
        if (!strstr(text, part))                              \
            printf("    wanted \"%s\" in: %s\n", part, text); \
    } while (0)

/* ------------------------------------------------------------------------------------------------- helpers */

typedef struct build {
    void *program;
    int result;
    char *log;
    sim_module *module;
} build;

typedef struct source {
    const char *name, *text;
    const char *header_name, *header; /* NULL if there is none */
    const char *expression;
} source;

static inline build compile_with(const source *s, int count, const char *const *options)
{
    build b = {0};
    size_t size = 0;
    nvrtcCreateProgram(&b.program, s->text, s->name, s->header != NULL, &s->header, &s->header_name);
    if (s->expression)
        nvrtcAddNameExpression(b.program, s->expression);
    b.result = nvrtcCompileProgram(b.program, count, options);
    nvrtcGetProgramLogSize(b.program, &size);
    b.log = malloc(size);
    nvrtcGetProgramLog(b.program, b.log);
    if (b.result == 0) {
        nvrtcGetCUBINSize(b.program, &size);
        char *image = malloc(size);
        nvrtcGetCUBIN(b.program, image);
        CHECK(sim_module_load(image, &b.module) == SIM_OK);
        free(image);
    }
    return b;
}

static const char *const usual_options[] = {"-arch=sm_80", "-std=c++17", "-default-device"};

static inline build compile(const char *name, const char *text)
{
    source s = {name, text, NULL, NULL, NULL};
    build b = compile_with(&s, 3, usual_options);
    if (b.result)
        printf("%s", b.log);
    CHECK(b.result == 0);
    return b;
}

static inline void discard(build *b)
{
    if (b->module)
        sim_module_unload(b->module);
    free(b->log);
    nvrtcDestroyProgram(&b->program);
}

static char failure[1024];

static inline int run_grid(build *b, const char *kernel, sim_launch l, void **args)
{
    failure[0] = 0;
    const sim_kernel *k = b->module ? sim_module_kernel(b->module, kernel) : NULL;
    return k ? sim_execute(k, &l, args, failure, sizeof failure) : SIM_NOT_FOUND;
}

static inline int run(build *b, const char *kernel, unsigned grid, unsigned block, size_t shared, void **args)
{
    sim_launch l = {{grid, 1, 1}, {block, 1, 1}, shared, 32, 0, 0};
    return run_grid(b, kernel, l, args);
}

static inline int in_lane(const char *lane)
{
    const char *now = getenv("IGNIS_SIM_SANITIZE");
    return now && strcmp(now, lane) == 0;
}

/* >>lanes: the program again, in processes of its own */

/* Runs this program's variant for a lane and returns what it printed. */
static inline char *run_child(const char *self, const char *lane, const char *setting, const char *what, int *status)
{
    char command[1024];
    size_t size = 0, used = 0;
    char *text = NULL;
    snprintf(command, sizeof command, "%s%s%s %s%s%s %s 2>&1", lane ? "IGNIS_SIM_SANITIZE=" : "", lane ? lane : "",
             setting, self, lane ? "_" : "", lane ? lane : "", what);
    FILE *pipe = popen(command, "r");
    do {
        size = used + 65536;
        text = realloc(text, size + 1);
        used += fread(text + used, 1, size - used, pipe);
    } while (used == size);
    text[used] = 0;
    *status = pclose(pipe);
    return text;
}

static inline void report_as(const char *name)
{
    printf("%s: %d passed, %d failed, %d skipped\n", name, passed, failed, skipped);
}

/* Runs the whole suite again, in another order or lane, and adds up its counts. */
static inline void run_lane(const char *name, const char *self, const char *lane, const char *setting)
{
    int status, p = 0, f = 0, s = 0;
    double start = seconds();
    char *text = run_child(self, lane, setting, "all", &status), *line = text, start_of_line[64];
    snprintf(start_of_line, sizeof start_of_line, "%s: ", name);
    for (char *at = text; (at = strstr(at, start_of_line)) != NULL; at++)
        line = at;
    int complete = sscanf(line + strcspn(line, ":"), ": %d passed, %d failed, %d skipped", &p, &f, &s) == 3;
    passed += p;
    failed += complete ? f : 1;
    skipped += s;
    if (!complete || f || status || strstr(text, "WARNING: ThreadSanitizer") || strstr(text, "runtime error")) {
        failed += f == 0;
        printf("%s\n", text);
    }
    printf("lane %s %s: %d passed, %d failed, %.1f s\n", lane ? lane : "plain", setting, p, f, seconds() - start);
    free(text);
}

#endif /* SIM_TEST_BUILD_H */
