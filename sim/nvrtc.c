// SPDX-License-Identifier: MIT
/*  nvrtc.c - stands in for NVIDIA's run-time compiler

    A program is compiled in four steps, in a private folder that is removed afterwards:

        1. the host's C++ compiler expands macros and the in-memory headers (-E)
        2. rewrite.c turns CUDA C++ into C++
        3. the compiler makes a shared object of that, after the text of shim.h, which this library contains. GCC reads
           that text precompiled, from a folder beside this library if that is writable: half the time of a small kernel
        4. its messages are converted to NVRTC's form

    The shared object is the "cubin". A kernel can never include a system header, as with NVRTC itself. Shared objects
    stay in the folder images beside this library, too, if that is writable: what a test, an example or another rank has
    compiled before is not compiled again. Of processes that need the same one at a time, one compiles it.

    Environment:
        IGNIS_SIM_CXX       the compiler (default g++)
        IGNIS_SIM_CXXFLAGS  further flags for it, separated by blanks
        IGNIS_SIM_SANITIZE  address: bounds, alignment and undefined behaviour are checked in kernels
                            thread: data races between CUDA threads are reported
                            The host program must be built with the same -fsanitize.
        IGNIS_SIM_KEEP      1: keep the folders of compilations, to read what the compiler was given; everything is
                            compiled again
*/
#define _GNU_SOURCE
#include "rewrite.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* A fingerprint of the simulator's own sources, given by the Makefile. */
#ifndef SIM_SOURCE_HASH
#define SIM_SOURCE_HASH 0
#endif

enum {
    NVRTC_SUCCESS = 0,
    NVRTC_OUT_OF_MEMORY = 1,
    NVRTC_PROGRAM_CREATION_FAILURE = 2,
    NVRTC_INVALID_INPUT = 3,
    NVRTC_INVALID_PROGRAM = 4,
    NVRTC_INVALID_OPTION = 5,
    NVRTC_COMPILATION = 6,
    NVRTC_NO_NAME_EXPRESSIONS_AFTER_COMPILATION = 8,
    NVRTC_NO_LOWERED_NAMES_BEFORE_COMPILATION = 9,
    NVRTC_NAME_EXPRESSION_NOT_VALID = 10,
    NVRTC_INTERNAL_ERROR = 11
};

/* ------------------------------------------------------------------------------------------- embedded text */

#define EMBED(symbol, file)                                                                                    \
    __asm__(".section .rodata\n.local " #symbol "\n" #symbol ":\n.incbin \"" file "\"\n.byte 0\n.previous\n"); \
    extern const char symbol[] __attribute__((visibility("hidden")))

EMBED(sim_text_abi, "shim_abi.h");
EMBED(sim_text_shim, "shim.h");
EMBED(sim_text_math, "shim_math.h");
EMBED(sim_text_ptx, "shim_ptx.h");
EMBED(sim_text_hopper, "shim_hopper.h");

static const struct {
    const char *name, *text;
} embedded[] = {
    {"shim_abi.h", sim_text_abi}, {"shim.h", sim_text_shim},          {"shim_math.h", sim_text_math},
    {"shim_ptx.h", sim_text_ptx}, {"shim_hopper.h", sim_text_hopper},
};

/* ------------------------------------------------------------------------------------------- argument lists */

typedef struct list {
    char **items;
    int count, capacity;
} list;

static void list_add(list *l, const char *text)
{
    if (l->count + 2 > l->capacity) {
        l->capacity = 2 * l->capacity + 16;
        l->items = realloc(l->items, (size_t)l->capacity * sizeof *l->items);
        if (!l->items)
            abort();
    }
    char *copy = strdup(text);
    if (!copy)
        abort();
    l->items[l->count++] = copy;
    l->items[l->count] = NULL;
}

static void list_add_words(list *l, const char *words)
{
    char *copy = strdup(words), *rest = copy;
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        if (*word)
            list_add(l, word);
    free(copy);
}

static void list_free(list *l)
{
    for (int i = 0; i < l->count; i++)
        free(l->items[i]);
    free(l->items);
}

/* ------------------------------------------------------------------------------------------------ toolchain */

/* The compiler and its flags, found once per process. */
static struct {
    char *compiler;
    list flags; /* of the second pass */
    const char *bad_lane;
    int is_clang;
    const char *tracking; /* flags for programs whose stores are tracked */
    int version;
} toolchain;

static const char *environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

/* Returns the environment without LD_PRELOAD: a preloaded sanitizer is for the host program, not for its
   compiler. */
static char **compiler_environment(void)
{
    extern char **environ;
    int count = 0, kept = 0;
    while (environ[count])
        count++;
    char **copy = malloc((size_t)(count + 2) * sizeof *copy);
    if (!copy)
        abort();
    for (int i = 0; i < count; i++)
        if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0 && strncmp(environ[i], "LC_", 3) != 0 &&
            strncmp(environ[i], "LANG", 4) != 0)
            copy[kept++] = environ[i];
    copy[kept++] = "LC_ALL=C";
    copy[kept] = NULL;
    return copy;
}

/* Runs a command in `folder` with its output in `output`. Returns its exit status, or -1 if it cannot be run. */
static int run_command(char *const *arguments, const char *folder, const char *output)
{
    posix_spawn_file_actions_t actions;
    char **env = compiler_environment();
    pid_t child;
    int status = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (posix_spawnp(&child, arguments[0], &actions, NULL, arguments, env) == 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    posix_spawn_file_actions_destroy(&actions);
    free(env);
    return status == -1 ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static char *read_file(const char *folder, const char *name, size_t *size)
{
    char path[512];
    sim_buffer b = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rbe");
    if (!f)
        return NULL;
    sim_append(&b, "", 0);
    char block[16384];
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;)
        sim_append(&b, block, n);
    fclose(f);
    if (size)
        *size = b.length;
    return b.text;
}

static int write_file(const char *folder, const char *name, const char *text, size_t size)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wbe");
    if (!f)
        return 0;
    int written = fwrite(text, 1, size, f) == size;
    return fclose(f) == 0 && written;
}

static int make_folder(char *path, size_t size)
{
    snprintf(path, size, "%s/ignis_sim_XXXXXX", environment("TMPDIR", "/tmp"));
    return mkdtemp(path) != NULL;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

static void remove_folder(const char *path) { nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

static uint64_t hash(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return (h ^ 0xff) * 0x100000001b3u;
}

static char *compiler_version(void)
{
    char folder[256];
    char *arguments[] = {toolchain.compiler, "--version", NULL}, *text = NULL;
    if (make_folder(folder, sizeof folder)) {
        if (run_command(arguments, folder, "version") == 0)
            text = read_file(folder, "version", NULL);
        remove_folder(folder);
    }
    return text ? text : strdup("");
}

static void choose_machine(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
        list_add(&toolchain.flags, "-march=x86-64-v3");
    if (!toolchain.is_clang)
        list_add(&toolchain.flags, "-mtls-dialect=gnu2"); /* shared memory is thread-local: twice as fast */
#else
    if (!toolchain.is_clang)
        list_add(&toolchain.flags,
                 "-mno-outline-atomics"); /* otherwise kernels need functions of a C library that they do not have */
#endif
}

/* Sets the flags. Strict aliasing is off because kernels pun types. GNU unique symbols are off because they
   would make modules share the variables of templates. */
static void choose_flags(void)
{
    list *f = &toolchain.flags;
    const char *lane = environment("IGNIS_SIM_SANITIZE", "");
    list_add_words(
        f, "-w -Wno-psabi -shared -fPIC -fno-strict-aliasing -fno-semantic-interposition -fno-exceptions -fno-rtti "
           "-fno-math-errno -fno-trapping-math -fstack-clash-protection -Wl,-Bsymbolic -fdiagnostics-color=never");
    if (strcmp(lane, "thread") != 0) /* else a guard of __shared__ variables would be a race of CUDA threads */
        list_add_words(f, "-fno-threadsafe-statics");
    if (!toolchain.is_clang)
        list_add_words(f, "-fno-gnu-unique -fno-diagnostics-show-caret");
    else
        list_add_words(f, "-fno-caret-diagnostics -fno-spell-checking");
    choose_machine();
    if (strcmp(lane, "address") == 0)
        list_add_words(f, "-O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined "
                          "-fno-sanitize=vptr -fno-sanitize-recover=undefined -DSIM_ADDRESS_SANITIZER");
    else if (strcmp(lane, "thread") == 0)
        list_add_words(f, "-O1 -g1 -fno-omit-frame-pointer -fsanitize=thread -DSIM_THREAD_SANITIZER");
    else {
        list_add_words(f, "-O1 -fno-asynchronous-unwind-tables -nostdlib -Wl,-z,defs");
        toolchain.bad_lane = *lane ? lane : NULL;
    }
    /* The host program has the sanitizer's library, which takes GCC long to link, but perhaps not that of
       undefined behaviour. */
    if (*lane && toolchain.is_clang)
        list_add(f, "-nostartfiles");
    else if (*lane)
        list_add_words(f, strcmp(lane, "address") == 0 ? "-nostdlib -Wl,--no-as-needed,-lubsan" : "-nostdlib");
    /* Calls before each store, and nothing else of a sanitizer: see shim_hopper.h. */
    toolchain.tracking =
        *lane ? ""
        : toolchain.is_clang
            ? "-DSIM_TRACKS_STORES -fsanitize=kernel-address -mllvm -asan-instrumentation-with-call-threshold=0 -mllvm "
              "-asan-stack=0 -mllvm -asan-globals=0 -mllvm -asan-instrument-reads=0"
            : "-DSIM_TRACKS_STORES -fsanitize=kernel-address --param asan-instrumentation-with-call-threshold=0 "
              "--param "
              "asan-stack=0 --param asan-globals=0 --param asan-instrument-reads=0";
    list_add_words(f, environment("IGNIS_SIM_CXXFLAGS", ""));
}

static void toolchain_setup(void)
{
    toolchain.compiler = strdup(environment("IGNIS_SIM_CXX", "g++"));
    char *version = compiler_version();
    toolchain.is_clang = strstr(version, "clang") != NULL;
    choose_flags();
    uint64_t h = hash(0xcbf29ce484222325u + SIM_SOURCE_HASH, version);
    h = hash(h, toolchain.compiler);
    for (size_t i = 0; i < sizeof embedded / sizeof embedded[0]; i++)
        h = hash(h, embedded[i].text);
    for (int i = 0; i < toolchain.flags.count; i++)
        h = hash(h, toolchain.flags.items[i]);
    toolchain.version = (int)((h ^ h >> 30) & 0x3fffffff) | 1;
    free(version);
}

static void setup(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, toolchain_setup);
}

/* ------------------------------------------------------------------------------------------------- programs */

typedef struct program {
    char *name, *source;
    list header_names, headers;
    list expressions;
    char **lowered; /* of the expressions, after compilation */
    char *image;
    size_t image_size;
    sim_buffer log;
    int compiled;
} program;

typedef struct options {
    list macros;  /* -DX=1 -UY */
    list folders; /* of -I, as absolute paths: the compiler runs in a folder of its own */
    char standard[24];
    char architecture[16]; /* the digits, and perhaps a letter */
    char preinclude[256];
    int fmad;
} options;

/* Tells whether an option is accepted with any value and without effect. */
static int is_harmless(const char *option)
{
    static const char *const names[] = {"use_fast_math",
                                        "lineinfo",
                                        "generate-line-info",
                                        "G",
                                        "device-debug",
                                        "default-device",
                                        "device-as-default-execution-space",
                                        "w",
                                        "disable-warnings",
                                        "minimal",
                                        "no-cache",
                                        "dopt",
                                        "restrict",
                                        "extra-device-vectorization",
                                        "extensible-whole-program",
                                        "Xptxas",
                                        "ptxas-options",
                                        "maxrregcount",
                                        "rdc",
                                        "relocatable-device-code",
                                        "ftz",
                                        "prec-sqrt",
                                        "prec-div",
                                        "split-compile",
                                        "diag-suppress",
                                        "diag-warn",
                                        "diag-error",
                                        "display-error-number",
                                        "no-display-error-number",
                                        "Ofast-compile",
                                        "builtin-initializer-list",
                                        "err-no",
                                        "brief-diagnostics",
                                        "no-source-include"};
    size_t length = strcspn(option, "=");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == length && memcmp(names[i], option, length) == 0)
            return 1;
    return 0;
}

/* Returns the value of `--name=value` or of `--name value`, or NULL for another option. */
static const char *option_value(const char *option, const char *name, const char *const *all, int count, int *i)
{
    size_t length = strlen(name);
    if (strncmp(option, name, length) != 0)
        return NULL;
    if (option[length] == '=')
        return option + length + 1;
    if (option[length] == 0 && *i + 1 < count)
        return all[++*i];
    return NULL;
}

static int set_architecture(options *o, const char *value)
{
    const char *digits = strncmp(value, "sm_", 3) == 0        ? value + 3
                         : strncmp(value, "compute_", 8) == 0 ? value + 8
                                                              : "";
    int number = atoi(digits);
    snprintf(o->architecture, sizeof o->architecture, "%s", digits);
    return number >= 50 && number < 200;
}

static void add_macro(options *o, const char *flag, const char *value)
{
    char text[1024];
    snprintf(text, sizeof text, "%s%s", flag, value);
    list_add(&o->macros, text);
}

/* Adds a folder of headers. A folder that does not exist counts as empty. */
static void add_folder(options *o, const char *path)
{
    char *absolute = realpath(path, NULL);
    if (absolute)
        list_add(&o->folders, absolute);
    free(absolute);
}

/* Reads one option, and its value if that is a separate string. */
static int read_option(options *o, const char *const *all, int count, int *i)
{
    const char *option = all[*i], *value;
    if (option[0] != '-')
        return 0;
    option += option[1] == '-' ? 2 : 1;
    if ((value = option_value(option, "gpu-architecture", all, count, i)) ||
        (value = option_value(option, "arch", all, count, i)))
        return set_architecture(o, value);
    if ((value = option_value(option, "std", all, count, i))) {
        snprintf(o->standard, sizeof o->standard, "-std=gnu++%s", strncmp(value, "c++", 3) == 0 ? value + 3 : "?");
        return strcmp(value, "c++17") == 0 || strcmp(value, "c++20") == 0 || strcmp(value, "c++14") == 0 ||
               strcmp(value, "c++11") == 0 || strcmp(value, "c++03") == 0;
    }
    if ((value = option_value(option, "fmad", all, count, i))) {
        o->fmad = strcmp(value, "true") == 0;
        return o->fmad || strcmp(value, "false") == 0;
    }
    if ((value = option_value(option, "define-macro", all, count, i)) ||
        (value = option_value(option, "D", all, count, i)))
        add_macro(o, "-D", value);
    else if ((value = option_value(option, "undefine-macro", all, count, i)) ||
             (value = option_value(option, "U", all, count, i)))
        add_macro(o, "-U", value);
    else if ((option[0] == 'D' || option[0] == 'U') && option[1])
        add_macro(o, option[0] == 'D' ? "-D" : "-U", option + 1);
    else if ((value = option_value(option, "pre-include", all, count, i)) ||
             (value = option_value(option, "include", all, count, i)))
        snprintf(o->preinclude, sizeof o->preinclude, "%s", value);
    else if ((value = option_value(option, "include-path", all, count, i)) ||
             (value = option_value(option, "I", all, count, i)))
        add_folder(o, value);
    else if (option[0] == 'I' && option[1])
        add_folder(o, option + 1 + strspn(option + 1, " "));
    else if (strcmp(option, "Xptxas") == 0)
        (*i)++;
    else
        return is_harmless(option);
    return 1;
}

static int read_options(options *o, program *p, const char *const *all, int count)
{
    snprintf(o->standard, sizeof o->standard, "-std=gnu++17");
    snprintf(o->architecture, sizeof o->architecture, "75");
    o->fmad = 1;
    for (int i = 0; i < count; i++) {
        int at = i;
        if (!read_option(o, all, count, &i)) {
            sim_print(&p->log, "nvrtc: error: invalid value or unrecognized option: %s\n", all[at]);
            return 0;
        }
    }
    /* The shim needs C++17; older standards only allow less. */
    if (strcmp(o->standard, "-std=gnu++20") != 0)
        snprintf(o->standard, sizeof o->standard, "-std=gnu++17");
    return 1;
}

/* ----------------------------------------------------------------------------------- the compiler's messages */

/* Finds the PTX instruction of a name like sim_ptx_cvt_rn in a message. NULL if there is none. */
static char *find_instruction(const char *message, const char *asm_names)
{
    const char *name = strstr(message, "sim_ptx_");
    if (!name)
        return NULL;
    size_t length = 0;
    while (isalnum((unsigned char)name[length]) || name[length] == '_')
        length++;
    for (const char *p = asm_names; *p; p += strcspn(p, "\n") + 1)
        if (strncmp(p, name, length) == 0 && p[length] == ' ')
            return strndup(p + length + 1, strcspn(p + length + 1, "\n"));
    return NULL;
}

static void print_message(sim_buffer *log, const char *message, const char *asm_names)
{
    char *instruction = find_instruction(message, asm_names), file[256];
    if (sscanf(message, "error: %255[^:]: No such file", file) == 1 && strstr(message, "No such file"))
        sim_print(log, "error: could not open source file \"%s\"\n", file);
    else if (sscanf(message, "error: '%255[^']' file not found", file) == 1 && strstr(message, "file not found"))
        sim_print(log, "error: could not open source file \"%s\"\n", file);
    else if (instruction && (strstr(message, "not declared") || strstr(message, "undeclared identifier")))
        sim_print(log, "error: the simulator knows no PTX instruction \"%s\"\n", instruction);
    else if (instruction)
        sim_print(log, "%s (PTX instruction \"%s\")\n", message, instruction);
    else
        sim_print(log, "%s\n", message);
    free(instruction);
}

/* The messages of g++ that were printed so far. */
typedef struct diagnosis {
    sim_buffer *log;
    const char *asm_names;
    int errors;
    char last[512]; /* the last name expression, or "kernel table", with a printed error: one is enough */
    /* "file:line" of a function with a parameter of an unknown type: g++ calls the function a variable then */
    char signature[300];
    int signature_told;
} diagnosis;

/* Tells whether a message only repeats another one of the same line in g++'s way, or is about the simulator's
   own text. */
static int is_echo(diagnosis *d, const char *file, int number, const char *message)
{
    char place[300];
    snprintf(place, sizeof place, "%.200s:%d", file, number);
    if (strncmp(message, "error: variable or field '", 26) == 0 && strstr(message, "' declared void")) {
        snprintf(d->signature, sizeof d->signature, "%s", place);
        d->signature_told = 0;
        return 1;
    }
    if (strcmp(place, d->signature) == 0 && strncmp(message, "error: ", 7) == 0)
        return d->signature_told++ > 0;
    return strncmp(file, "shim", 4) == 0 || (strncmp(message, "note: in ", 9) == 0 && strstr(message, "'SIM_"));
}

/* Prints why a kernel cannot be an entry: an unknown name, or a function that no launch can call. Once for
   each, and not if the kernel itself has errors. */
static int print_entry_error(diagnosis *d, const char *file, const char *message)
{
    const char *expression = strncmp(file, "name expression", 15) == 0 ? file + 15 : NULL;
    if (strncmp(message, "error:", 6) != 0 || strcmp(d->last, file) == 0 || (d->errors && !d->last[0]))
        return 0;
    snprintf(d->last, sizeof d->last, "%s", file);
    if (expression)
        sim_print(d->log, "__nv_name_map(1): error: name expression%s: %s\n", expression, message + 7);
    else
        sim_print(d->log, "%s: %s\n", file, message);
    return 1;
}

/* Prints a message about sim_kernel_of<...>, which exists only for functions that return nothing. 0 if it is
   another message. */
static int print_kernel_kind(diagnosis *d, const char *message)
{
    char name[200];
    const char *at = strstr(message, "sim_kernel_of<");
    if (!at || strncmp(message, "error:", 6) != 0 || sscanf(at, "sim_kernel_of<%199[^>(]", name) != 1)
        return 0;
    if (strcmp(d->last, name) == 0)
        return 0;
    snprintf(d->last, sizeof d->last, "%s", name);
    sim_print(d->log, "error: a \"__global__\" function must have a void return type: %s\n", name);
    return 1;
}

/* Converts g++'s "x.cu:3:7: error: ..." to "x.cu(3): error: ...". */
static void print_diagnostic(diagnosis *d, char *line)
{
    char *undefined = strstr(line, "undefined reference to `");
    if (undefined) {
        undefined += strlen("undefined reference to `");
        sim_print(d->log, "error: unresolved extern function '%.*s'\n", (int)strcspn(undefined, "'"), undefined);
        d->errors++;
        return;
    }
    for (char *colon = strchr(line, ':'); colon; colon = strchr(colon + 1, ':')) {
        int number, column, used = 0;
        if (sscanf(colon, ":%d:%d: %n", &number, &column, &used) != 2 || !used)
            continue;
        char *message = colon + used;
        *colon = 0;
        if (strncmp(line, "h/", 2) == 0) /* the folder of the in-memory headers */
            line += 2;
        message += strncmp(message, "fatal ", 6) == 0 ? 6 : 0;
        message += strspn(message, " ");
        if (is_echo(d, line, number, message)) {
            d->errors += d->errors == 0 && print_kernel_kind(d, message);
        } else if (strncmp(line, "name expression", 15) == 0 || strcmp(line, "kernel table") == 0) {
            d->errors += print_entry_error(d, line, message);
        } else {
            sim_print(d->log, "%s(%d): ", line, number);
            print_message(d->log, message, d->asm_names);
            d->errors += strncmp(message, "error:", 6) == 0;
        }
        return;
    }
}

static void print_diagnostics(program *p, char *text, const char *asm_names)
{
    diagnosis d = {.log = &p->log, .asm_names = asm_names};
    char *all = strdup(text), *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        print_diagnostic(&d, line);
    if (!d.errors) { /* something else failed: the output is shown as it is */
        sim_print(&p->log, "%s\n", all);
        d.errors = 1;
    }
    sim_print(&p->log, "\n%d error%s detected in the compilation of \"%s\".\n", d.errors, d.errors == 1 ? "" : "s",
              p->name);
    free(all);
}

/* ------------------------------------------------------------------------------------------------ the passes */

static int header_name_allowed(const char *name) { return name[0] != '/' && !strstr(name, ".."); }

/* Writes the in-memory headers into h/. */
static int write_headers(const program *p, const char *folder)
{
    char path[768];
    snprintf(path, sizeof path, "%s/h", folder);
    if (mkdir(path, 0700))
        return 0;
    for (int i = 0; i < p->headers.count; i++) {
        if (!header_name_allowed(p->header_names.items[i]))
            return 0;
        snprintf(path, sizeof path, "h/%s", p->header_names.items[i]);
        for (char *slash = strchr(path + 2, '/'); slash; slash = strchr(slash + 1, '/')) {
            char part[1100];
            snprintf(part, sizeof part, "%s/%.*s", folder, (int)(slash - path), path);
            mkdir(part, 0700);
        }
        if (!write_file(folder, path, p->headers.items[i], strlen(p->headers.items[i])))
            return 0;
    }
    return 1;
}

/* Writes the source, after what NVRTC predefines. */
static void write_first_input(const program *p, const options *o, sim_buffer *b)
{
    size_t digits = strspn(o->architecture, "0123456789");
    sim_print(b,
              "#define __CUDACC__ 1\n#define __CUDACC_RTC__ 1\n#define __NVCC__ 1\n"
              "#define __CUDACC_VER_MAJOR__ 13\n#define __CUDACC_VER_MINOR__ 0\n"
              "#define __CUDA_ARCH__ %.*s0\n#define __IGNIS_SIM__ 1\n",
              (int)digits, o->architecture);
    if (o->architecture[digits] == 'a')
        sim_print(b, "#define __CUDA_ARCH_FEAT_SM%.*s_ALL 1\n", (int)digits, o->architecture);
    sim_print(b, "#ifdef NDEBUG\n#define assert(e) ((void)0)\n#else\n"
                 "#define assert(e) ((e) ? (void)0 : sim_assert_fail(\"assertion failed: \" #e, __FILE__, __LINE__))\n"
                 "#endif\n#define NULL 0\n");
    if (o->preinclude[0])
        sim_print(b, "#include \"%s\"\n", o->preinclude);
    const char *source = p->source + (strncmp(p->source, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0); /* a byte order mark */
    sim_print(b, "#line 1 \"%s\"\n%s\n", p->name, source);
}

/* Adds the search path. Headers are searched in memory, in the folder of the source, and in those of -I.
   NVRTC searches memory before the folder of an including header, too; the compiler here always searches that
   folder first. */
static void add_search_path(list *command, const program *p, const options *o)
{
    const char *slash = strrchr(p->name, '/');
    char *named = strndup(p->name, slash ? (size_t)(slash + 1 - p->name) : 0),
         *source_folder = realpath(*named ? named : ".", NULL);
    list_add_words(command, "-iquote h -I h");
    if (source_folder) {
        list_add(command, "-iquote");
        list_add(command, source_folder);
    }
    for (int i = 0; i < o->folders.count; i++) {
        list_add(command, "-I");
        list_add(command, o->folders.items[i]);
    }
    free(source_folder);
    free(named);
}

static int preprocess(program *p, const options *o, const char *folder)
{
    sim_buffer input = {0};
    list command = {0};
    write_first_input(p, o, &input);
    int written = write_file(folder, "input.cpp", input.text, input.length);
    free(input.text);
    list_add(&command, toolchain.compiler);
    list_add(&command, o->standard);
    list_add_words(&command, "-E -w -nostdinc -Ulinux -Uunix -fdiagnostics-color=never -o output.ii");
    for (int i = 0; i < o->macros.count; i++)
        list_add(&command, o->macros.items[i]);
    add_search_path(&command, p, o);
    list_add(&command, "input.cpp");
    int status = written ? run_command(command.items, folder, "messages") : -1;
    list_free(&command);
    return status;
}

/* Returns the command of the second pass, up to its input. Debug information does not name `folder`. */
static list second_pass(const options *o, const char *folder, int is_async)
{
    list command = {0};
    char map[512];
    snprintf(map, sizeof map, "-fdebug-prefix-map=%s=.", folder); /* equal sources give equal images */
    list_add(&command, toolchain.compiler);
    list_add(&command, o->standard);
    list_add(&command, map);
    for (int i = 0; i < toolchain.flags.count; i++)
        list_add(&command, toolchain.flags.items[i]);
    list_add(&command, o->fmad ? "-ffp-contract=fast" : "-ffp-contract=off");
    if (is_async)
        list_add_words(&command, toolchain.tracking);
    list_add_words(&command, "-Ulinux -Uunix");
    return command;
}

static int write_embedded(const char *folder)
{
    int written = 1;
    for (size_t i = 0; i < sizeof embedded / sizeof embedded[0]; i++)
        written &= write_file(folder, embedded[i].name, embedded[i].text, strlen(embedded[i].text));
    return written;
}

enum { PRECOMPILED_PATH = 400 };

/* Makes a folder with shim.h, precompiled for these flags, and renames it to `path` unless another process
   was first. */
static void precompile(const options *o, int is_async, const char *path)
{
    char folder[PRECOMPILED_PATH + 8];
    snprintf(folder, sizeof folder, "%s-XXXXXX", path);
    if (!mkdtemp(folder))
        return;
    list command = second_pass(o, folder, is_async);
    list_add_words(&command, "-c -x c++-header shim.h -o shim.h.gch");
    if (!write_embedded(folder) || run_command(command.items, folder, "messages") != 0 || rename(folder, path) != 0)
        remove_folder(folder);
    list_free(&command);
}

/* Writes the path of the folder that has this library. Returns 0 if it is not known, or too long. */
static int library_folder(char *path, size_t size)
{
    Dl_info self;
    char *library = dladdr(&toolchain, &self) ? realpath(self.dli_fname, NULL) : NULL,
         *slash = library ? strrchr(library, '/') : NULL;
    if (slash)
        *slash = 0;
    int fits = slash && snprintf(path, size, "%s", library) < (int)size;
    free(library);
    return fits;
}

/* Writes the path of the folder with the precompiled shim.h. Returns 0 if shim.h has to be beside the kernel. */
static int precompiled_folder(const options *o, int is_async, char *path, size_t size)
{
    static int none;
    if (toolchain.is_clang || __atomic_load_n(&none, __ATOMIC_RELAXED) || !library_folder(path, size))
        return 0;
    size_t length = strlen(path);
    int fits = snprintf(path + length, size - length, "/shim-%08x-%s-%d%d", (unsigned)toolchain.version,
                        o->standard + 5, o->fmad, is_async) < (int)(size - length);
    if (fits && access(path, R_OK | X_OK) != 0)
        precompile(o, is_async, path);
    int there = fits && access(path, R_OK | X_OK) == 0;
    __atomic_store_n(&none, !there, __ATOMIC_RELAXED);
    return there;
}

static int compile(const options *o, const char *folder, int is_async)
{
    list command = second_pass(o, folder, is_async);
    char precompiled[PRECOMPILED_PATH];
    int written = 1;
    if (precompiled_folder(o, is_async, precompiled, sizeof precompiled)) {
        list_add(&command, "-iquote");
        list_add(&command, precompiled);
    } else {
        written = write_embedded(folder);
    }
    list_add_words(&command, "-o image.so kernel.cpp -lm -lc -lgcc");
    int status = written ? run_command(command.items, folder, "messages") : -1;
    list_free(&command);
    return status;
}

/* A shared object in the folder of those that are kept. */
typedef struct kept_image {
    char folder[PRECOMPILED_PATH], name[64];
    uint64_t key;
    int lock; /* a file, whose byte at `key` is locked while this process compiles, or -1 */
} kept_image;

static struct flock image_lock(const kept_image *image, int type)
{
    return (struct flock){
        .l_type = (short)type, .l_whence = SEEK_SET, .l_start = (off_t)(image->key & 0x3fffffff), .l_len = 1};
}

/* Finds where the shared object of this text and these flags is kept, and waits while another process or thread
   compiles it: not for ever, as it may have been stopped. The name is empty if none are kept. */
static void kept_image_begin(kept_image *image, const options *o, const char *text, int is_async)
{
    enum { WAIT_US = 2000, WAITS_MAX = 15000 };
    list command = second_pass(o, ".", is_async);
    uint64_t key = hash(0xcbf29ce484222325u + (unsigned)toolchain.version, text);
    for (int i = 0; i < command.count; i++)
        key = hash(key, command.items[i]);
    list_free(&command);
    *image = (kept_image){.key = key, .lock = -1};
    if (getenv("IGNIS_SIM_KEEP") || !library_folder(image->folder, sizeof image->folder - 16))
        return;
    strcat(image->folder, "/images");
    if (mkdir(image->folder, 0777) != 0 && errno != EEXIST)
        return;
    char path[PRECOMPILED_PATH + 8];
    snprintf(path, sizeof path, "%s/lock", image->folder);
    image->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (image->lock < 0)
        return;
    snprintf(image->name, sizeof image->name, "%016llx-%zx.so", (unsigned long long)key, strlen(text));
    struct flock lock = image_lock(image, F_WRLCK);
    for (int waits = 0; waits < WAITS_MAX && fcntl(image->lock, F_OFD_SETLK, &lock) != 0; waits++)
        usleep(WAIT_US);
}

/* Unlocks it by name: a process that was forked meanwhile has the same open file. */
static void kept_image_end(kept_image *image)
{
    struct flock lock = image_lock(image, F_UNLCK);
    if (image->lock < 0)
        return;
    fcntl(image->lock, F_OFD_SETLK, &lock);
    close(image->lock);
}

static void kept_image_write(const kept_image *image, const char *content, size_t size)
{
    char path[PRECOMPILED_PATH + 64], *name, written[PRECOMPILED_PATH + 64];
    snprintf(written, sizeof written, "%s/new-XXXXXX", image->folder);
    snprintf(path, sizeof path, "%s/%s", image->folder, image->name);
    int file = mkstemp(written);
    if (file < 0)
        return;
    close(file);
    name = strrchr(written, '/') + 1;
    if (!write_file(image->folder, name, content, size) || rename(written, path) != 0)
        remove(written);
}

/* Removes the folder h/ of in-memory headers from line markers, so that __FILE__ and messages show their own
   names. */
static void strip_header_folder(char *text)
{
    for (char *p = text; (p = strstr(p, "\n# ")) != NULL; p += 3) {
        char *quote = strchr(p, '"'), *end = strchr(p + 1, '\n');
        if (quote && end && quote < end && strncmp(quote + 1, "h/", 2) == 0)
            memmove(quote + 1, quote + 3, strlen(quote + 3) + 1);
    }
}

/* Returns the text of kernel.cpp, or NULL. */
static char *write_kernel_file(program *p, const char *folder, sim_buffer *asm_names, int *is_async)
{
    sim_buffer out = {0}, errors = {0};
    char *source = read_file(folder, "output.ii", NULL);
    if (!source)
        return NULL;
    strip_header_folder(source);
    sim_print(&out, "#include \"shim.h\"\n");
    p->lowered = calloc((size_t)p->expressions.count + 1, sizeof *p->lowered);
    int rewritten = sim_rewrite(source, (const char *const *)p->expressions.items, p->expressions.count, p->lowered,
                                &out, asm_names, &errors, is_async);
    int written = write_file(folder, "kernel.cpp", out.text, out.length);
    if (!rewritten)
        sim_append(&p->log, errors.text, errors.length);
    free(errors.text);
    free(source);
    if (written && rewritten)
        return out.text;
    free(out.text);
    return NULL;
}

static int compile_in_folder(program *p, const options *o, const char *folder)
{
    sim_buffer asm_names = {0};
    kept_image kept;
    char *text = NULL;
    sim_append(&asm_names, "", 0);
    int is_async = 0, status = write_headers(p, folder) ? preprocess(p, o, folder) : -1;
    if (status == 0 && !(text = write_kernel_file(p, folder, &asm_names, &is_async))) {
        free(asm_names.text);
        return NVRTC_COMPILATION;
    }
    if (status == 0) {
        kept_image_begin(&kept, o, text, is_async);
        p->image = kept.name[0] ? read_file(kept.folder, kept.name, &p->image_size) : NULL;
        if (!p->image) {
            status = compile(o, folder, is_async);
            p->image = status == 0 ? read_file(folder, "image.so", &p->image_size) : NULL;
            if (p->image && kept.name[0])
                kept_image_write(&kept, p->image, p->image_size);
        }
        kept_image_end(&kept);
    }
    char *messages = status == 0 ? NULL : read_file(folder, "messages", NULL);
    if (status == -1 || (status != 0 && !messages))
        sim_print(&p->log, "error: the simulator cannot run the C++ compiler \"%s\" (IGNIS_SIM_CXX)\n",
                  toolchain.compiler);
    else if (status != 0)
        print_diagnostics(p, messages, asm_names.text);
    free(messages);
    free(asm_names.text);
    free(text);
    return p->image ? NVRTC_SUCCESS : NVRTC_COMPILATION;
}

/* ------------------------------------------------------------------------------------------- the public calls */

EXPORT const char *nvrtcGetErrorString(int result)
{
    static const char *const names[] = {"NVRTC_SUCCESS",
                                        "NVRTC_ERROR_OUT_OF_MEMORY",
                                        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                        "NVRTC_ERROR_INVALID_INPUT",
                                        "NVRTC_ERROR_INVALID_PROGRAM",
                                        "NVRTC_ERROR_INVALID_OPTION",
                                        "NVRTC_ERROR_COMPILATION",
                                        "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
                                        "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
                                        "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
                                        "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
                                        "NVRTC_ERROR_INTERNAL_ERROR"};
    return result >= 0 && result < (int)(sizeof names / sizeof names[0]) ? names[result] : "NVRTC_ERROR unknown";
}

/* No NVRTC has the major version 99. The minor version changes with everything that changes an image. */
EXPORT int nvrtcVersion(int *major, int *minor)
{
    if (!major || !minor)
        return NVRTC_INVALID_INPUT;
    setup();
    *major = 99;
    *minor = toolchain.version;
    return NVRTC_SUCCESS;
}

static const int architectures[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

EXPORT int nvrtcGetNumSupportedArchs(int *count)
{
    if (!count)
        return NVRTC_INVALID_INPUT;
    *count = (int)(sizeof architectures / sizeof architectures[0]);
    return NVRTC_SUCCESS;
}

EXPORT int nvrtcGetSupportedArchs(int *out)
{
    if (!out)
        return NVRTC_INVALID_INPUT;
    memcpy(out, architectures, sizeof architectures);
    return NVRTC_SUCCESS;
}

EXPORT int nvrtcCreateProgram(program **out, const char *source, const char *name, int header_count,
                              const char *const *headers, const char *const *header_names)
{
    if (!out || !source || header_count < 0 || (header_count && (!headers || !header_names)))
        return NVRTC_INVALID_INPUT;
    for (int i = 0; i < header_count; i++)
        for (int other = 0; other < i; other++)
            if (strcmp(header_names[i], header_names[other]) == 0)
                return NVRTC_INVALID_INPUT;
    program *p = calloc(1, sizeof *p);
    if (!p)
        return NVRTC_OUT_OF_MEMORY;
    p->name = strdup(name && *name ? name : "default_program");
    p->source = strdup(source);
    for (int i = 0; i < header_count; i++) {
        list_add(&p->headers, headers[i]);
        list_add(&p->header_names, header_names[i]);
    }
    sim_append(&p->log, "", 0);
    *out = p;
    return NVRTC_SUCCESS;
}

static void forget_result(program *p)
{
    for (int i = 0; p->lowered && i < p->expressions.count; i++)
        free(p->lowered[i]);
    free(p->lowered);
    free(p->image);
    p->lowered = NULL;
    p->image = NULL;
    p->image_size = 0;
    p->log.length = 0;
    sim_append(&p->log, "", 0);
}

EXPORT int nvrtcDestroyProgram(program **program_pointer)
{
    if (!program_pointer || !*program_pointer)
        return NVRTC_INVALID_PROGRAM;
    program *p = *program_pointer;
    forget_result(p);
    list_free(&p->headers);
    list_free(&p->header_names);
    list_free(&p->expressions);
    free(p->log.text);
    free(p->name);
    free(p->source);
    free(p);
    *program_pointer = NULL;
    return NVRTC_SUCCESS;
}

EXPORT int nvrtcCompileProgram(program *p, int option_count, const char *const *option_texts)
{
    options o;
    char folder[256];
    if (!p)
        return NVRTC_INVALID_PROGRAM;
    setup();
    forget_result(p);
    memset(&o, 0, sizeof o);
    if (toolchain.bad_lane) {
        sim_print(&p->log, "error: IGNIS_SIM_SANITIZE is address or thread, not \"%s\"\n", toolchain.bad_lane);
        return NVRTC_COMPILATION;
    }
    if (!read_options(&o, p, option_texts, option_count)) {
        list_free(&o.macros);
        list_free(&o.folders);
        return NVRTC_INVALID_OPTION;
    }
    int result = NVRTC_INTERNAL_ERROR;
    if (make_folder(folder, sizeof folder)) {
        result = compile_in_folder(p, &o, folder);
        if (!getenv("IGNIS_SIM_KEEP"))
            remove_folder(folder);
    } else
        sim_print(&p->log, "error: the simulator cannot make a folder in %s\n", environment("TMPDIR", "/tmp"));
    list_free(&o.macros);
    list_free(&o.folders);
    p->compiled = 1;
    return result;
}

EXPORT int nvrtcGetProgramLogSize(program *p, size_t *size)
{
    if (!p || !size)
        return p ? NVRTC_INVALID_INPUT : NVRTC_INVALID_PROGRAM;
    *size = p->log.length + 1;
    return NVRTC_SUCCESS;
}

EXPORT int nvrtcGetProgramLog(program *p, char *log)
{
    if (!p || !log)
        return p ? NVRTC_INVALID_INPUT : NVRTC_INVALID_PROGRAM;
    memcpy(log, p->log.text, p->log.length + 1);
    return NVRTC_SUCCESS;
}

EXPORT int nvrtcGetCUBINSize(program *p, size_t *size)
{
    if (!p || !size)
        return p ? NVRTC_INVALID_INPUT : NVRTC_INVALID_PROGRAM;
    *size = p->image_size;
    return p->image ? NVRTC_SUCCESS : NVRTC_INVALID_PROGRAM;
}

EXPORT int nvrtcGetCUBIN(program *p, char *image)
{
    if (!p || !image)
        return p ? NVRTC_INVALID_INPUT : NVRTC_INVALID_PROGRAM;
    if (!p->image)
        return NVRTC_INVALID_PROGRAM;
    memcpy(image, p->image, p->image_size);
    return NVRTC_SUCCESS;
}

EXPORT int nvrtcGetPTXSize(program *p, size_t *size) { return nvrtcGetCUBINSize(p, size); }

EXPORT int nvrtcGetPTX(program *p, char *image) { return nvrtcGetCUBIN(p, image); }

EXPORT int nvrtcAddNameExpression(program *p, const char *expression)
{
    if (!p || !expression)
        return p ? NVRTC_INVALID_INPUT : NVRTC_INVALID_PROGRAM;
    if (p->compiled)
        return NVRTC_NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
    list_add(&p->expressions, expression);
    return NVRTC_SUCCESS;
}

EXPORT int nvrtcGetLoweredName(program *p, const char *expression, const char **lowered)
{
    if (!p || !expression || !lowered)
        return p ? NVRTC_INVALID_INPUT : NVRTC_INVALID_PROGRAM;
    if (!p->compiled)
        return NVRTC_NO_LOWERED_NAMES_BEFORE_COMPILATION;
    for (int i = 0; p->lowered && i < p->expressions.count; i++)
        if (strcmp(p->expressions.items[i], expression) == 0 && p->lowered[i]) {
            *lowered = p->lowered[i];
            return NVRTC_SUCCESS;
        }
    return NVRTC_NAME_EXPRESSION_NOT_VALID;
}
