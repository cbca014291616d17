// SPDX-License-Identifier: MIT
/*  test.h - the test framework

    TEST(name) { ... }               a test; it starts without a setup, and what it sets up is shut down after it
    SETUP(NULL), SETUP(&desc)        ignis_setup with a logger that remembers instead of printing; a failure ends the
    test
    CHECK(cond), CHECK_INT(a, b), CHECK_TEXT(a, b), CHECK_HAS(text, part)      a failure is counted, and the test goes
    on
    REQUIRE(cond), SKIP("why")       these end the test; they work in the TEST function itself only
    CHECK_OK(call)                   the call returns IGNIS_OK (or 0)
    CHECK_STATUS(call, status, diagnostic)  the ignis_status call fails just so, with a message "name of the call: ..."
    CHECK_FAILS(call, status, diagnostic)   the same for a call that returns something else; compare its value yourself
    CHECK_MESSAGE_HAS("part")        the message of the last CHECK_STATUS or CHECK_FAILS has this part
    test_log_count(diagnostic), test_log_text(diagnostic)   what the logger got in this test, with the last text
    test_array(rows, columns)               a written f32 array
    NEEDS_DEVICES(2), NEEDS_NO_MEMCHECK(), NEEDS_POSIX("fork")   skip the test where it cannot run

    IGNIS_TEST_TIMES=1 prints the seconds of each test, its CPU time, and that of its children, which compile kernels.

    A test fails, too, when it leaves a failure that it did not check, or anything alive that has a handle (unless it
    sets test_leaks_expected).
    CHECK may be used on any thread. Arguments choose the tests whose name has one of them as a part. */
#ifndef TEST_H
#define TEST_H

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifndef _WIN32
#include <sys/resource.h>
#endif

/*  Most tests have been given it by apart.h, as declarations of all that is in it. */
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

/*  Tests are compiled without optimizing, in a third of the time; a reference that computes for long asks for it. */
#if defined(__GNUC__) && !defined(__clang__)
#define OPTIMIZED __attribute__((optimize("O2")))
#else
#define OPTIMIZED
#endif

enum { TEST_MAX = 256 };

static struct {
    struct test__one {
        const char *name;
        void (*run)(void);
    } table[TEST_MAX];
    int count, failures, running;
    const char *skip;
    int log_count[IGNIS_DIAG_COUNT];
    char log_text[IGNIS_DIAG_COUNT][4096];
} test__state;
static pthread_mutex_t test__lock = PTHREAD_MUTEX_INITIALIZER;
static __thread char test__message[16384]; /* of this thread's last failure that was checked */
static bool test_leaks_expected;

#define TEST(name)                                                                                     \
    static void test_##name(void);                                                                     \
    __attribute__((constructor)) static void test__add_##name(void) { test__add(#name, test_##name); } \
    static void test_##name(void)

#define CHECK(cond) ((cond) ? (void)0 : test__fail(__FILE__, __LINE__, #cond))
#define CHECK_INT(a, b) test__check_int(__FILE__, __LINE__, #a " == " #b, (long long)(a), (long long)(b))
#define CHECK_TEXT(a, b) test__check_text(__FILE__, __LINE__, #a, (a), (b), true)
#define CHECK_HAS(text, part) test__check_text(__FILE__, __LINE__, #text, (text), (part), false)
#define CHECK_OK(call) test__check_ok(__FILE__, __LINE__, #call, (int)(call))
#define CHECK_STATUS(call, status, diagnostic) \
    (CHECK_INT((call), status), test__check_failure(__FILE__, __LINE__, #call, (status), (diagnostic)))
#define CHECK_FAILS(call, status, diagnostic) \
    ((void)(call), test__check_failure(__FILE__, __LINE__, #call, (status), (diagnostic)))
#define CHECK_MESSAGE_HAS(part) CHECK_HAS(test__message, part)
#define REQUIRE(cond)                              \
    do {                                           \
        if (!(cond)) {                             \
            test__fail(__FILE__, __LINE__, #cond); \
            return;                                \
        }                                          \
    } while (0)
#define SKIP(why)                 \
    do {                          \
        test__state.skip = (why); \
        return;                   \
    } while (0)
#define NEEDS_DEVICES(count)                          \
    do {                                              \
        if (ignis_device_count() < (count))           \
            SKIP("there are not " #count " devices"); \
    } while (0)
/*  What failing calls leave behind would be reported as leaks. */
#define NEEDS_NO_MEMCHECK()                                                                    \
    do {                                                                                       \
        if (test_is_memcheck())                                                                \
            SKIP("what failing calls leave behind is meant, and the checker would report it"); \
    } while (0)
/*  What Windows has nothing of. */
#ifdef _WIN32
#define NEEDS_POSIX(what) SKIP("Windows has no " what)
#else
#define NEEDS_POSIX(what) ((void)0)
#endif
#define SETUP(desc)                                   \
    do {                                              \
        if (!test__setup(__FILE__, __LINE__, (desc))) \
            return;                                   \
    } while (0)

static inline void test__add(const char *name, void (*run)(void))
{
    if (test__state.count == TEST_MAX)
        abort();
    test__state.table[test__state.count].name = name;
    test__state.table[test__state.count++].run = run;
}

static inline void test__fail(const char *file, int line, const char *what)
{
    pthread_mutex_lock(&test__lock);
    test__state.failures++;
    printf("%s:%d: %s: failed: %s\n", file, line, test__state.table[test__state.running].name, what);
    fflush(stdout);
    pthread_mutex_unlock(&test__lock);
}

static inline void test__check_int(const char *file, int line, const char *what, long long a, long long b)
{
    char text[1024];
    if (a == b)
        return;
    snprintf(text, sizeof text, "%.800s: %lld, expected %lld", what, a, b);
    test__fail(file, line, text);
}

static inline void test__check_text(const char *file, int line, const char *what, const char *text, const char *part,
                                    bool whole)
{
    char report[8192];
    if (text && (whole ? strcmp(text, part) == 0 : strstr(text, part) != NULL))
        return;
    snprintf(report, sizeof report, "%.200s is \"%.6000s\", expected \"%.1500s\"", what, text ? text : "(null)", part);
    test__fail(file, line, report);
}

static inline void test__check_ok(const char *file, int line, const char *what, int status)
{
    char text[4096];
    if (status == 0)
        return;
    snprintf(text, sizeof text, "%.500s: %d: %.3000s", what, status, ignis_status_message());
    test__fail(file, line, text);
    ignis_status_clear();
}

/*  Compares this thread's failure with what is expected, keeps its message for CHECK_MESSAGE_HAS, and clears it. */
static inline void test__check_failure(const char *file, int line, const char *call, ignis_status status,
                                       ignis_diagnostic diagnostic)
{
    ignis_status_info info;
    char text[4096];
    size_t length = strcspn(call, "( ");
    ignis_status_query(&info);
    snprintf(test__message, sizeof test__message, "%s", info.message);
    if (info.status != status || info.diagnostic != diagnostic || strlen(info.call) != length ||
        strncmp(info.call, call, length) != 0 || strncmp(info.message, call, length) != 0 ||
        strncmp(info.message + length, ": ", 2) != 0) {
        snprintf(text, sizeof text, "%.500s\n    expected %s %s\n    got      %s %s by %s: %.2500s", call,
                 ignis_status_name(status), ignis_diagnostic_name(diagnostic), ignis_status_name(info.status),
                 ignis_diagnostic_name(info.diagnostic), info.call, info.message);
        test__fail(file, line, text);
    }
    ignis_status_clear();
}

static inline void test_log(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    (void)level, (void)user_data;
    pthread_mutex_lock(&test__lock);
    test__state.log_count[diagnostic]++;
    snprintf(test__state.log_text[diagnostic], sizeof test__state.log_text[diagnostic], "%s", message);
    pthread_mutex_unlock(&test__lock);
}

static inline int test_log_count(ignis_diagnostic diagnostic) { return test__state.log_count[diagnostic]; }
static inline const char *test_log_text(ignis_diagnostic diagnostic) { return test__state.log_text[diagnostic]; }

/*  desc (or all defaults) with the framework's logger, unless it has one of its own */
static inline ignis_desc test_desc(const ignis_desc *desc)
{
    ignis_desc result;
    memset(&result, 0, sizeof result);
    if (desc)
        result = *desc;
    if (!result.logger.log_fn)
        result.logger.log_fn = test_log;
    return result;
}

static inline bool test__setup(const char *file, int line, const ignis_desc *desc)
{
    ignis_desc with_logger = test_desc(desc);
    ignis_status status = ignis_setup(&with_logger);
    test__check_ok(file, line, "ignis_setup", (int)status);
    return status == IGNIS_OK;
}

/*  test_env: whether a variable is set to 1. test_is_bypass: each block is one driver allocation, so nothing is cached.
    test_is_memcheck: deliberate faults of the device would be reported as faults of the test. */
static inline bool test_env(const char *name)
{
    const char *value = getenv(name);
    return value && strcmp(value, "1") == 0;
}
static inline bool test_is_bypass(void) { return test_env("IGNIS_MEMORY_BYPASS"); }
static inline bool test_is_memcheck(void)
{
    const char *wrapper = getenv("WRAPPER");
    return wrapper && strstr(wrapper, "compute-sanitizer");
}
static inline bool test_is_simulator(void)
{
    ignis_device_info info;
    return ignis_device_query(0, &info) == IGNIS_OK && strncmp(info.name, "Ignis Simulator", 15) == 0;
}
/*  Whether a test takes all its cases: on a GPU, and in `make soak`. The simulator takes some minutes for those that
    are left out elsewhere. */
static inline bool test_takes_all(void) { return !test_is_simulator() || test_env("IGNIS_SOAK"); }

static inline double test_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/*  Seconds of CPU: of this process, or of its children that have ended, such as compilers of kernels. */
static inline double test_cpu_seconds(bool of_children)
{
#ifdef _WIN32
    return of_children ? 0 : (double)clock() / CLOCKS_PER_SEC;
#else
    struct rusage use;
    getrusage(of_children ? RUSAGE_CHILDREN : RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
#endif
}

static inline void test_sleep_ms(int ms)
{
    struct timespec time;
    time.tv_sec = ms / 1000, time.tv_nsec = ms % 1000 * 1000000L;
    nanosleep(&time, NULL);
}

static inline ignis_memory_info memory_of(int device)
{
    ignis_memory_info info;
    memset(&info, 0, sizeof info);
    CHECK_OK(ignis_memory_query(device, &info));
    return info;
}
static inline ignis_memory_info memory(void) { return memory_of(0); }

/*  option: of the compiler; null: none */
static inline ignis_kernel test_compile(const char *source, const char *entry, const char *option)
{
    ignis_kernel_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.source = source;
    desc.entry = entry;
    desc.options = &option;
    desc.option_count = option != NULL;
    return ignis_kernel_compile(&desc);
}

static inline ignis_launch test_launch(int64_t blocks, int threads)
{
    ignis_launch launch;
    memset(&launch, 0, sizeof launch);
    launch.grid[0] = blocks;
    launch.block[0] = threads;
    return launch;
}

static inline void test_write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    if (!file)
        return;
    CHECK(fwrite(data, 1, size, file) == size);
    CHECK_INT(fclose(file), 0);
}

/*  How many files and folders there are in a folder. */
static inline int test_files_in(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    int count = 0;
    while (folder && (entry = readdir(folder)) != NULL)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

static inline void test_remove_folder(const char *path);
static inline void test__remove(void *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%.500s/%.500s", (const char *)folder, name);
    if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
        !ignis__file_remove(path)) /* what is no file, or no empty folder */
        test_remove_folder(path);
}

/*  A folder, with what is in it. */
static inline void test_remove_folder(const char *path)
{
    (void)ignis__folder_list(path, test__remove, (void *)(uintptr_t)path);
#ifdef _WIN32
    {
        WCHAR wide[IGNIS__WIDE];
        int left = 3; /* a list of what is being removed may leave some out */
        while (!RemoveDirectoryW(ignis__utf16(path, wide)) && GetLastError() != ERROR_FILE_NOT_FOUND && --left > 0)
            (void)ignis__folder_list(path, test__remove, (void *)(uintptr_t)path);
        CHECK(left > 0);
    }
#else
    CHECK(rmdir(path) == 0 || errno == ENOENT);
#endif
}

#ifdef FAULT_H
/*  A host allocator that counts, and fails when it is told. */
static inline ignis_desc test_counting_desc(host_counter *counter)
{
    ignis_desc desc = test_desc(NULL);
    host_counter_init(counter);
    desc.allocator.alloc_fn = host_alloc;
    desc.allocator.free_fn = host_free;
    desc.allocator.user_data = counter;
    return desc;
}
#endif

/*  A written f32 array of rows x columns that holds 0, 1, 2, ... */
static inline ignis_array test_array(int64_t rows, int64_t columns)
{
    ignis_array_desc desc;
    ignis_array array;
    int64_t i, count = rows * columns;
    float *data = (float *)malloc(sizeof(float) * (size_t)(count + 1));
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(rows, columns);
    array = ignis_array_create(&desc);
    for (i = 0; data && i < count; i++)
        data[i] = (float)i;
    CHECK_OK(ignis_array_from_host(array, data, IGNIS_F32, count));
    free(data);
    return array;
}

/*  Are the array's values first, first + step, first + 2 * step, ...? */
static inline void test_check_series(ignis_array a, int64_t count, float first, float step)
{
    float *data = (float *)malloc(sizeof(float) * (size_t)count);
    int64_t i, wrong = 0;
    REQUIRE(data);
    CHECK_OK(ignis_array_to_host(a, data, IGNIS_F32, count));
    for (i = 0; i < count; i++)
        wrong += data[i] != first + step * (float)i;
    CHECK_INT(wrong, 0);
    free(data);
}

static inline void test__run(int index)
{
    test__state.running = index;
    test__state.skip = NULL;
    test_leaks_expected = false;
    memset(test__state.log_count, 0, sizeof test__state.log_count);
    test__state.table[index].run();
    if (ignis_status_last() != IGNIS_OK)
        test__fail(__FILE__, __LINE__, ignis_status_message());
    CHECK_OK(ignis_shutdown());
    if (!test_leaks_expected && test_log_count(IGNIS_DIAG_ARRAY_LEAKED))
        test__fail(__FILE__, __LINE__, test_log_text(IGNIS_DIAG_ARRAY_LEAKED));
    if (!test_leaks_expected && test_log_count(IGNIS_DIAG_HANDLE_LEAKED))
        test__fail(__FILE__, __LINE__, test_log_text(IGNIS_DIAG_HANDLE_LEAKED));
    ignis_status_clear();
}

/*  The folder that test_run makes and removes, and a path in it, in one of eight buffers of the thread. */
static char test_folder[64] = "/tmp/ignis-test-XXXXXX";
static inline const char *test_path(const char *name)
{
    static __thread char paths[8][192];
    static __thread int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", test_folder, name);
    return path;
}

/*  Called by main: runs the tests that the arguments choose, and returns the exit code. */
static inline int test_run(int argc, char **argv)
{
    const char *program = argv[0] + strlen(argv[0]);
    int passed = 0, failed = 0, skipped = 0, chosen, i, k;
    double begin, cpu[2];
    while (program > argv[0] && !strchr("/\\", program[-1]))
        program--;
#ifdef _WIN32
    (void)_setmode(1, _O_BINARY); /* lines end as elsewhere */
#endif
#ifdef __MINGW32__ /* where the constructors come in reverse order */
    for (i = 0; 2 * i < test__state.count - 1; i++) {
        struct test__one one = test__state.table[i], *other = &test__state.table[test__state.count - 1 - i];
        test__state.table[i] = *other;
        *other = one;
    }
#endif
    if (!mkdtemp(test_folder)) {
        printf("FAIL: %s: %s\n", test_folder, strerror(errno));
        return 2;
    }
    for (i = 0; i < test__state.count; i++) {
        for (chosen = argc < 2, k = 1; k < argc; k++)
            chosen |= strstr(test__state.table[i].name, argv[k]) != NULL;
        if (!chosen)
            continue;
        test__state.failures = 0;
        begin = test_seconds();
        for (k = 0; k < 2; k++)
            cpu[k] = test_cpu_seconds(k == 1);
        test__run(i);
        if (test_env("IGNIS_TEST_TIMES"))
            printf("%7.2f s, CPU %7.2f s and %7.2f s of children  %s\n", test_seconds() - begin,
                   test_cpu_seconds(false) - cpu[0], test_cpu_seconds(true) - cpu[1], test__state.table[i].name);
        if (test__state.failures)
            failed++;
        else if (test__state.skip)
            skipped++, printf("skip: %s: %s\n", test__state.table[i].name, test__state.skip);
        else
            passed++;
        fflush(stdout);
    }
    test_remove_folder(test_folder);
    printf("%.*s: %d passed, %d failed, %d skipped\n", (int)strcspn(program, "."), program, passed, failed, skipped);
    return failed != 0;
}

#endif /* TEST_H */
