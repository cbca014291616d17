// SPDX-License-Identifier: MIT
/*  test_status.c - failures: names, the record of a thread, the logger, and what every function answers to misuse */
#define _XOPEN_SOURCE 700
#include <stdlib.h>

/*  All blocks of Ignis that come from malloc are counted; with `no_memory` there are none. */
static void *counted_malloc(size_t size);
static void counted_free(void *block);
#define malloc(size) counted_malloc(size)
#define free(block) counted_free(block)

#include "test.h"

#undef malloc
#undef free
#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

static long block_count;
static bool no_memory;

static void *counted_malloc(size_t size)
{
    void *block = no_memory ? NULL : malloc(size);
    __atomic_add_fetch(&block_count, block != NULL, __ATOMIC_RELAXED);
    return block;
}

static void counted_free(void *block)
{
    __atomic_sub_fetch(&block_count, block != NULL, __ATOMIC_RELAXED);
    free(block);
}

#define FAILS(call, value, status, diagnostic) \
    (CHECK_INT((call), (value)), test__check_failure(__FILE__, __LINE__, #call, (status), (diagnostic)))

static const char *const scale_source = "extern \"C\" __global__ void scale(float *x, float f, int n)\n"
                                        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= f; }\n";

static ignis_kernel compile(const char *source, const char *entry)
{
    ignis_kernel_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.source = source;
    desc.entry = entry;
    desc.name = "scale.cu";
    return ignis_kernel_compile(&desc);
}

/* --- names ---------------------------------------------------------------------------------------------------- */

TEST(every_status_has_a_name)
{
    int i, k;
    CHECK_TEXT(ignis_status_name(IGNIS_OK), "IGNIS_OK");
    CHECK_TEXT(ignis_status_name(IGNIS_ERROR_NOT_SETUP), "IGNIS_ERROR_NOT_SETUP");
    CHECK_TEXT(ignis_status_name(IGNIS_ERROR_MISMATCH), "IGNIS_ERROR_MISMATCH");
    for (i = 1; i < IGNIS_STATUS_COUNT; i++) {
        CHECK(strncmp(ignis_status_name((ignis_status)i), "IGNIS_ERROR_", 12) == 0);
        for (k = 0; k < i; k++)
            CHECK(strcmp(ignis_status_name((ignis_status)i), ignis_status_name((ignis_status)k)) != 0);
    }
    CHECK_TEXT(ignis_status_name(IGNIS_STATUS_COUNT), "unknown status");
    CHECK_TEXT(ignis_status_name((ignis_status)-1), "unknown status");
    CHECK_TEXT(ignis_status_name((ignis_status)INT_MAX), "unknown status");
}

TEST(every_diagnostic_has_a_name_and_a_rule)
{
    int i, k;
    CHECK_TEXT(ignis_diagnostic_name(IGNIS_DIAG_SLICE_STRIDED), "SLICE_STRIDED");
    CHECK_TEXT(ignis_diagnostic_rule(IGNIS_DIAG_SLICE_STRIDED), "only contiguous slices can be views");
    for (i = 1; i < IGNIS_DIAG_COUNT; i++) {
        CHECK(ignis_diagnostic_name((ignis_diagnostic)i)[0] != '\0');
        CHECK(strlen(ignis_diagnostic_rule((ignis_diagnostic)i)) > 10);
        for (k = 1; k < i; k++) {
            CHECK(strcmp(ignis_diagnostic_name((ignis_diagnostic)i), ignis_diagnostic_name((ignis_diagnostic)k)) != 0);
            CHECK(strcmp(ignis_diagnostic_rule((ignis_diagnostic)i), ignis_diagnostic_rule((ignis_diagnostic)k)) != 0);
        }
    }
    CHECK_TEXT(ignis_diagnostic_name(IGNIS_DIAG_COUNT), "unknown diagnostic");
    CHECK_TEXT(ignis_diagnostic_name((ignis_diagnostic)INT_MIN), "unknown diagnostic");
    CHECK_TEXT(ignis_diagnostic_rule((ignis_diagnostic)INT_MAX), "");
}

/*  Diagnostics are compared by number in other programs: new ones are added at the end, none is moved or removed. */
TEST(diagnostic_numbers_stay)
{
    static const char *const names[] = {
        "NOT_SETUP",       "FORKED",          "ALREADY_SETUP",      "NULL_ARGUMENT",
        "BAD_ENUM",        "BAD_NUMBER",      "COUNT_MISMATCH",     "SHAPE_RANK",
        "SHAPE_DIM",       "SHAPE_OVERFLOW",  "SHAPE_DIFFERS",      "SLICE_RANGE",
        "SLICE_STRIDED",   "ROWS_OVERFLOW",   "DTYPE_DIFFERS",      "ARRAY_FREED",
        "KERNEL_FREED",    "ARRAY_UNWRITTEN", "WRONG_KIND",         "FREE_BY_OTHER",
        "FREE_REFERENCED", "DOUBLE_ACQUIRE",  "RELEASE_BY_OTHER",   "TRANSFER_REFERENCED",
        "OWNER_DIFFERS",   "REF_COUNT_ZERO",  "REF_COUNT_OVERFLOW", "PIN_TWICE",
        "PIN_MISSING",     "ARRAY_LEAKED",    "HOST_MEMORY",        "DEVICE_MEMORY",
        "PINNED_MEMORY",   "LIBRARY_MISSING", "LIBRARY_SYMBOL",     "DEVICE_NONE",
        "DEVICE_RANGE",    "DEVICE_DIFFERS",  "DEVICE_LOST",        "COMPILE_FAILED",
        "ENTRY_MISSING",   "ARG_COUNT",       "ARG_SIZE",           "LAUNCH_SIZE",
        "CUDA_CALL",       "STREAM_INVALID",  "UNSUPPORTED",        "CACHE_IO"};
    int i, count = (int)(sizeof names / sizeof names[0]);
    CHECK(count < IGNIS_DIAG_COUNT);
    for (i = 0; i < count; i++)
        CHECK_TEXT(ignis_diagnostic_name((ignis_diagnostic)(i + 1)), names[i]);
    CHECK_INT(IGNIS_ERROR_NOT_SETUP, 1);
    CHECK_INT(IGNIS_ERROR_MISMATCH, 17);
}

TEST(version_string_is_that_of_the_header)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", IGNIS_VERSION_MAJOR, IGNIS_VERSION_MINOR, IGNIS_VERSION_PATCH);
    CHECK_TEXT(ignis_version_string(), text);
}

/* --- the record ----------------------------------------------------------------------------------------------- */

TEST(no_failure_is_empty)
{
    ignis_status_info info;
    CHECK_INT(ignis_status_query(&info), IGNIS_OK);
    CHECK_INT(ignis_status_query(NULL), IGNIS_OK);
    CHECK_INT(info.diagnostic, IGNIS_DIAG_NONE);
    CHECK_TEXT(info.call, "");
    CHECK_TEXT(info.message, "");
    CHECK_TEXT(info.driver_name, "");
    CHECK_TEXT(info.log, "");
    CHECK_INT(info.driver_error, 0);
    CHECK_TEXT(ignis_status_message(), "");
    ignis_status_clear();
    ignis_status_clear();
}

TEST(first_failure_is_kept_and_later_ones_are_logged)
{
    ignis_array a;
    SETUP(NULL);
    a = test_array(2, 3);
    CHECK_INT(ignis_array_slice(a, 1, 0, 2).id, 0);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_SHAPE);
    CHECK_INT(ignis_array_decrement_ref(a), -1);
    CHECK_INT(ignis_device_use(9999), IGNIS_ERROR_DEVICE);
    CHECK_OK(ignis_array_zero(a)); /* a success leaves the record alone */
    test__check_failure(__FILE__, __LINE__, "ignis_array_slice(", IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_STRIDED);
    CHECK_INT(test_log_count(IGNIS_DIAG_SLICE_STRIDED), 1);
    CHECK_INT(test_log_count(IGNIS_DIAG_REF_COUNT_ZERO), 1);
    CHECK_INT(test_log_count(IGNIS_DIAG_DEVICE_RANGE), 1);
    CHECK_INT(ignis_status_last(), IGNIS_OK);
    CHECK_INT(ignis_array_decrement_ref(a), -1);
    test__check_failure(__FILE__, __LINE__, "ignis_array_decrement_ref(", IGNIS_ERROR_CONTRACT,
                        IGNIS_DIAG_REF_COUNT_ZERO);
    CHECK_OK(ignis_array_free(a));
}

TEST(the_latest_message_is_known_beside_the_first)
{
    ignis_array a;
    SETUP(NULL);
    CHECK_TEXT(ignis_status_latest_message(), "");
    a = test_array(2, 3);
    CHECK_INT(ignis_device_use(9999), IGNIS_ERROR_DEVICE);
    CHECK_TEXT(ignis_status_latest_message(), ignis_status_message());
    CHECK_INT(ignis_array_decrement_ref(a), -1);
    CHECK_HAS(ignis_status_message(), "ignis_device_use: ");
    CHECK_HAS(ignis_status_latest_message(), "ignis_array_decrement_ref: ");
    CHECK_INT(ignis_array_slice(a, 1, 0, 2).id, 0);
    CHECK_HAS(ignis_status_latest_message(), "ignis_array_slice: ");
    CHECK_OK(ignis_array_zero(a)); /* a success leaves it alone, and so does a call without a handle */
    CHECK_INT(ignis_array_zero(IGNIS_NO_ARRAY), IGNIS_ERROR_FREED);
    CHECK_HAS(ignis_status_latest_message(), "ignis_array_slice: ");
    test__check_failure(__FILE__, __LINE__, "ignis_device_use(", IGNIS_ERROR_DEVICE,
                        IGNIS_DIAG_DEVICE_RANGE); /* and clears */
    CHECK_TEXT(ignis_status_latest_message(), "");
    CHECK_OK(ignis_array_free(a));
}

TEST(a_chain_with_no_handle_keeps_its_first_failure)
{
    ignis_array a, none;
    SETUP(NULL);
    a = test_array(2, 3);
    none = ignis_array_reshape(a, IGNIS_SHAPE(4, 4));
    CHECK_INT(ignis_array_clone(ignis_array_cast(none, IGNIS_F64)).id, 0);
    CHECK(ignis_array_fill(none, 1.0) != IGNIS_OK);
    test__check_failure(__FILE__, __LINE__, "ignis_array_reshape(", IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_OK(ignis_array_free(a));
}

static void *other_thread(void *arg)
{
    CHECK_INT(ignis_status_last(), IGNIS_OK);
    CHECK_STATUS(ignis_array_free(*(ignis_array *)arg), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    return NULL;
}

TEST(each_thread_has_its_own_record)
{
    ignis_array stale;
    pthread_t thread;
    SETUP(NULL);
    stale = test_array(1, 1);
    CHECK_OK(ignis_array_free(stale));
    CHECK_INT(ignis_device_use(-7), IGNIS_ERROR_DEVICE);
    REQUIRE(pthread_create(&thread, NULL, other_thread, &stale) == 0);
    pthread_join(thread, NULL);
    test__check_failure(__FILE__, __LINE__, "ignis_device_use(", IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
}

static void *fails_and_hands_over(void *out)
{
    CHECK(ignis__fail(IGNIS_DIAG_ARRAY_FREED, "ignis_array_free", "%0300d", 0) !=
          IGNIS_OK); /* longer than what needs no memory */
    *(ignis__record *)out = ignis__this_thread.record;
    memset(&ignis__this_thread.record, 0, sizeof ignis__this_thread.record);
    return NULL;
}

static void *adopts(void *record)
{
    CHECK_INT(ignis__record_adopt((ignis__record *)record), IGNIS_ERROR_FREED);
    CHECK_HAS(ignis_status_message(), "ignis_array_free: ");
    return NULL;
}

/*  What a thread leaves goes with it, also a failure that it has from another thread; also one for which there was no
    memory. */
TEST(a_thread_takes_its_messages_along)
{
    ignis__record record;
    pthread_t thread;
    long before;
    int round;
    SETUP(NULL);
    before = block_count;
    for (round = 0; round < 2; round++) {
        no_memory = round == 1;
        REQUIRE(pthread_create(&thread, NULL, fails_and_hands_over, &record) == 0);
        pthread_join(thread, NULL);
        no_memory = false;
        CHECK_INT(block_count, before + 1 - round);
        REQUIRE(pthread_create(&thread, NULL, adopts, &record) == 0);
        pthread_join(thread, NULL);
        CHECK_INT(block_count, before);
    }
    no_memory = true;
    CHECK_INT(ignis_device_use(-7), IGNIS_ERROR_DEVICE);
    no_memory = false;
    test__check_failure(__FILE__, __LINE__, "ignis_device_use(", IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    CHECK_INT(block_count, before);
}

/*  A job in a thread that has failed before sees its own failure, and neither is lost, however deep jobs are nested. */
TEST(a_job_asks_for_its_own_failures)
{
    static const ignis_diagnostic fails[] = {IGNIS_DIAG_DEVICE_RANGE, IGNIS_DIAG_NONE, IGNIS_DIAG_NULL_ARGUMENT,
                                             IGNIS_DIAG_BAD_ENUM};
    static const ignis_status statuses[] = {IGNIS_ERROR_DEVICE, IGNIS_OK, IGNIS_ERROR_ARGUMENT, IGNIS_ERROR_ARGUMENT};
    char longest[400], outer[512], latest[512];
    ignis_status_info info;
    ignis_array a;
    long before;
    int outside, inside, i;
    SETUP(NULL);
    a = test_array(1, 1);
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    before = block_count;
    for (outside = 0; outside < 2;
         outside++) { /* nothing has failed before; something has, with messages that need memory */
        if (outside) {
            ignis__fail(IGNIS_DIAG_SHAPE_DIM, "outer", "%s", longest);
            ignis__fail(IGNIS_DIAG_SHAPE_RANK, "later", "%s", longest);
        }
        snprintf(outer, sizeof outer, "%s", ignis_status_message());
        snprintf(latest, sizeof latest, "%s", ignis_status_latest_message());
        for (inside = 0; inside < 4; inside++) {
            ignis_status_begin();
            CHECK_INT(ignis_status_last(), IGNIS_OK);
            CHECK_TEXT(ignis_status_message(), "");
            CHECK_TEXT(ignis_status_latest_message(), "");
            if (inside)
                ignis__fail(fails[inside], "inner", "%s", longest);
            for (i = 0; i < 3; i++) { /* deeper: two that do not fail, and one that does */
                ignis_status_begin();
                CHECK_INT(ignis_status_last(), IGNIS_OK);
                if (i == 1)
                    CHECK_INT(ignis_device_use(-7), IGNIS_ERROR_DEVICE);
                CHECK_OK(ignis_array_zero(a));
                CHECK_INT(ignis_status_end(), i == 1 ? IGNIS_ERROR_DEVICE : IGNIS_OK);
            }
            CHECK_INT(ignis_status_query(&info), inside ? statuses[inside] : IGNIS_OK);
            CHECK_TEXT(info.message, inside ? ignis_status_latest_message() : "");
            CHECK_INT(ignis_status_end(), inside ? statuses[inside] : IGNIS_OK);
            CHECK_INT(ignis_status_last(), outside ? IGNIS_ERROR_SHAPE : IGNIS_OK);
            CHECK_TEXT(ignis_status_message(), outer);
            CHECK_TEXT(ignis_status_latest_message(), latest);
        }
        if (outside) { /* where there is no memory the failure stays where it is */
            no_memory = true;
            ignis_status_begin();
            ignis_status_begin();
            CHECK_INT(ignis_device_use(-7), IGNIS_ERROR_DEVICE);
            CHECK_INT(ignis_status_end(), IGNIS_ERROR_SHAPE);
            no_memory = false;
            ignis_status_begin();
            CHECK_INT(ignis_status_last(), IGNIS_OK);
            CHECK_INT(ignis_device_use(-7), IGNIS_ERROR_DEVICE);
            CHECK_INT(ignis_status_end(), IGNIS_ERROR_DEVICE);
            CHECK_INT(ignis_status_end(), IGNIS_ERROR_SHAPE);
            CHECK_TEXT(ignis_status_message(), outer);
        }
        ignis_status_clear();
    }
    CHECK_INT(block_count, before);
    CHECK_STATUS(ignis_status_end(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER);
    CHECK_OK(ignis_array_free(a));
}

static void *leaves_a_job(void *unused)
{
    ignis__fail(IGNIS_DIAG_SHAPE_DIM, "outer", "%0300d", 0);
    ignis_status_begin();
    ignis__fail(IGNIS_DIAG_SHAPE_DIM, "inner", "%0300d", 0);
    ignis_status_begin();
    return unused;
}

TEST(a_thread_that_ends_inside_of_a_job_leaves_nothing)
{
    long before;
    pthread_t thread;
    SETUP(NULL);
    before = block_count;
    REQUIRE(pthread_create(&thread, NULL, leaves_a_job, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_INT(block_count, before);
}

TEST(messages_name_the_values_at_fault)
{
    ignis_array a;
    SETUP(NULL);
    a = test_array(2, 3);
    CHECK_FAILS(ignis_array_slice(a, 3, 0, 1), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
    CHECK_MESSAGE_HAS("3");
    CHECK_MESSAGE_HAS("[2, 3]");
    CHECK_FAILS(ignis_array_reshape(a, IGNIS_SHAPE(5)), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("[5]");
    CHECK_MESSAGE_HAS("[2, 3]");
    CHECK_STATUS(ignis_device_use(4321), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    CHECK_MESSAGE_HAS("4321");
    CHECK_OK(ignis_array_free(a));
}

TEST(compile_log_is_part_of_the_record)
{
    ignis_status_info info;
    SETUP(NULL);
    CHECK_INT(compile("__global__ void broken() { not_declared = 1; }\n", "broken").id, 0);
    CHECK_INT(ignis_status_query(&info), IGNIS_ERROR_COMPILE);
    CHECK_HAS(info.log, "not_declared");
    CHECK_HAS(info.message, "scale.cu");
    CHECK(info.driver_error != 0);
    CHECK_HAS(info.driver_name, "NVRTC_ERROR_");
    test__check_failure(__FILE__, __LINE__, "ignis_kernel_compile(", IGNIS_ERROR_COMPILE, IGNIS_DIAG_COMPILE_FAILED);
}

TEST(a_very_long_message_is_kept_whole_or_cut_cleanly)
{
    enum { LENGTH = 100000 };
    char *entry = (char *)malloc(LENGTH + 1);
    REQUIRE(entry);
    memset(entry, 'x', LENGTH);
    entry[LENGTH] = '\0';
    SETUP(NULL);
    CHECK_INT(compile(scale_source, entry).id, 0);
    CHECK(ignis_status_last() == IGNIS_ERROR_COMPILE || ignis_status_last() == IGNIS_ERROR_ARGUMENT);
    CHECK_HAS(ignis_status_message(), "ignis_kernel_compile: ");
    ignis_status_clear();
    free(entry);
}

/*  Texts from outside, and how messages show them. */
static const struct {
    const char *text, *shown;
} outside[] = {
    {"plain", "plain"},
    {"gr\xC3\xBC\xC3\x9F \xE6\xBC\xA2 \xF0\x9F\x98\x80", "gr\xC3\xBC\xC3\x9F \xE6\xBC\xA2 \xF0\x9F\x98\x80"},
    {"C:\\new", "C:\\new"},
    {"a\nignis: error: b", "a\\nignis: error: b"},
    {"a\r\t\a\b\v\f", "a\\r\\t\\a\\b\\v\\f"},
    {"\033[31mred", "\\x1b[31mred"},
    {"\001\177", "\\x01\\x7f"},
    {"\xC2\x9B\x33\x31m", "\\xc2\\x9b31m"},                  /* the CSI of eight bits */
    {"\x9B\x33\x31m \xC3(", "\\x9b31m \\xc3("},              /* no UTF-8 */
    {"\xC0\x80 \xED\xA0\x80", "\\xc0\\x80 \\xed\\xa0\\x80"}, /* too long; a surrogate */
    {"\xE2\x80\xAEgnp", "\\xe2\\x80\\xaegnp"},               /* from right to left */
    {"\xE2\x81\xA6 \xE2\x80\xA8", "\\xe2\\x81\\xa6 \\xe2\\x80\\xa8"},
};

TEST(texts_from_outside_are_shown_and_never_obeyed)
{
    ignis_array_desc desc;
    ignis_array array;
    int i;
    SETUP(NULL);
    for (i = 0; i < (int)(sizeof outside / sizeof *outside); i++) {
        char wanted[200];
        snprintf(wanted, sizeof wanted, "'%s'", outside[i].shown);
        CHECK_STATUS(ignis_load(outside[i].text, NULL, NULL, 0), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
        CHECK_MESSAGE_HAS(wanted);
        memset(&desc, 0, sizeof desc);
        desc.shape = IGNIS_SHAPE(2);
        desc.tag = outside[i].text;
        array = ignis_array_create(&desc);
        CHECK(array.id != 0);
        test_leaks_expected = true;
        CHECK_OK(ignis_shutdown()); /* in a warning */
        CHECK_HAS(test_log_text(IGNIS_DIAG_ARRAY_LEAKED), wanted);
        SETUP(NULL);
    }
}

TEST(a_message_that_is_too_long_loses_its_middle)
{
    static const int sizes[] = {100, 3800, 5000, 100000};
    int i;
    SETUP(NULL);
    for (i = 0; i < 4; i++) {
        char *entry = (char *)malloc((size_t)sizes[i] + 1), *at;
        REQUIRE(entry);
        memset(entry, 'x', (size_t)sizes[i]);
        for (at = entry; i == 3 && at + 2 < entry + sizes[i]; at += 2)
            memcpy(at, "\xC3\xBC", 2); /* cut between characters */
        entry[sizes[i]] = '\0';
        CHECK_STATUS(ignis_load(entry, NULL, NULL, 0), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
        CHECK(strlen(test__message) < 4100);
        CHECK_INT(strstr(test__message, " bytes ... ") != NULL, sizes[i] > 4000);
        CHECK(strstr(test__message, "\\x") == NULL);
        free(entry);
    }
}

/* --- the logger ----------------------------------------------------------------------------------------------- */

static struct {
    int calls, infos, user;
    ignis_log_level level;
    ignis_diagnostic diagnostic;
    char text[4096];
} seen;

static void see(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    CHECK(user_data == &seen.user);
    if (level == IGNIS_LOG_INFO) {
        seen.infos++;
        return;
    }
    seen.calls++;
    seen.level = level;
    seen.diagnostic = diagnostic;
    snprintf(seen.text, sizeof seen.text, "%s", message);
}

TEST(logger_gets_level_diagnostic_and_text)
{
    ignis_desc desc;
    ignis_array a;
    memset(&desc, 0, sizeof desc);
    memset(&seen, 0, sizeof seen);
    desc.logger.log_fn = see;
    desc.logger.user_data = &seen.user;
    SETUP(&desc);
    a = test_array(2, 3);
    CHECK_INT(seen.calls, 0);
    CHECK_INT(ignis_array_decrement_ref(a), -1);
    CHECK_INT(seen.calls, 1);
    CHECK_INT(seen.level, IGNIS_LOG_ERROR);
    CHECK_INT(seen.diagnostic, IGNIS_DIAG_REF_COUNT_ZERO);
    CHECK_TEXT(seen.text, ignis_status_message());
    ignis_status_clear();
    CHECK_OK(ignis_shutdown()); /* the array is still alive: a warning names it */
    CHECK_INT(seen.calls, 2);
    CHECK_INT(seen.level, IGNIS_LOG_WARNING);
    CHECK_INT(seen.diagnostic, IGNIS_DIAG_ARRAY_LEAKED);
    CHECK_HAS(seen.text, "[2, 3]");
    CHECK_INT(ignis_status_last(), IGNIS_OK);
}

TEST(verbose_adds_information)
{
    ignis_desc desc;
    int quiet;
    if (test_env("IGNIS_VERBOSE"))
        SKIP("IGNIS_VERBOSE=1 is set");
    memset(&desc, 0, sizeof desc);
    memset(&seen, 0, sizeof seen);
    desc.logger.log_fn = see;
    desc.logger.user_data = &seen.user;
    desc.cache_dir = "off";
    SETUP(&desc);
    CHECK_OK(ignis_kernel_free(compile(scale_source, "scale")));
    CHECK_OK(ignis_shutdown());
    quiet = seen.infos;
    desc.verbose = true;
    SETUP(&desc);
    CHECK_OK(ignis_kernel_free(compile(scale_source, "scale")));
    CHECK_OK(ignis_shutdown());
    CHECK_INT(quiet, 0);
    CHECK(seen.infos > 0);
    seen.infos = 0;
    desc.verbose = false;
    setenv("IGNIS_VERBOSE", "1", 1);
    SETUP(&desc);
    unsetenv("IGNIS_VERBOSE");
    CHECK_OK(ignis_kernel_free(compile(scale_source, "scale")));
    CHECK_OK(ignis_shutdown());
    CHECK(seen.infos > 0);
}

/*  What fn writes to file descriptor 2 */
static void capture_stderr(void (*fn)(void), char *out, size_t capacity)
{
    FILE *file = tmpfile();
    int saved = dup(2);
    size_t length = 0;
    fflush(stderr);
    if (file && saved >= 0) {
        dup2(fileno(file), 2);
        fn();
        fflush(stderr);
        dup2(saved, 2);
        rewind(file);
        length = fread(out, 1, capacity - 1, file);
        close(saved);
        fclose(file);
    }
    out[length] = '\0';
}

static void fail_without_logger(void)
{
    CHECK_OK(ignis_setup(NULL));
    CHECK_STATUS(ignis_device_use(9999), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    CHECK_OK(ignis_shutdown());
}

static void fail_before_setup(void) { CHECK_STATUS(ignis_synchronize(), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP); }

/*  What a program does that asks for errors once, at its end. */
static void go_on_after_a_failed_setup(void)
{
    ignis_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.device = -2;
    CHECK_INT(ignis_setup(&desc), IGNIS_ERROR_DEVICE);
    CHECK_INT(ignis_device_use(0), IGNIS_ERROR_NOT_SETUP);
    CHECK_INT(ignis_synchronize(), IGNIS_ERROR_NOT_SETUP);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_DEVICE);
    ignis_status_clear();
    CHECK_STATUS(ignis_synchronize(), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
}

TEST(a_failed_setup_is_reported_once)
{
    char text[8192];
    capture_stderr(go_on_after_a_failed_setup, text, sizeof text);
    CHECK_HAS(text, "ignis_setup: ");
    CHECK(!strstr(text, "ignis_device_use: "));
    CHECK_HAS(text, "ignis_synchronize: ");
}

TEST(without_a_logger_failures_go_to_stderr)
{
    char text[8192];
    capture_stderr(fail_without_logger, text, sizeof text);
    CHECK_HAS(text, "ignis_device_use: ");
    capture_stderr(fail_before_setup, text, sizeof text);
    CHECK_HAS(text, "ignis_synchronize: ");
}

/* --- before and after a setup --------------------------------------------------------------------------------- */

/*  Every function that needs a setup, as X(call, what it returns on failure). */
#define EVERY_CALL(X)                                               \
    X(ignis_library_query(IGNIS_LIBRARY_CUDA, &library), status)    \
    X(ignis_device_count(), 0)                                      \
    X(ignis_device_query(0, &device), status)                       \
    X(ignis_device_use(0), status)                                  \
    X(ignis_device_current(), -1)                                   \
    X(ignis_stream_use(NULL), status)                               \
    X(ignis_stream_current() != NULL, false)                        \
    X(ignis_stream_forget(&library), status)                        \
    X(ignis_synchronize(), status)                                  \
    X(ignis_memory_query(0, &memory), status)                       \
    X(ignis_memory_trim(0), -1)                                     \
    X(ignis_array_create(&array_desc).id, 0)                        \
    X(ignis_array_free(a), status)                                  \
    X(ignis_array_free_as(a, IGNIS_OWNER_IGNIS), status)            \
    X(ignis_array_query(a, &array), status)                         \
    X(ignis_array_numel(a), -1)                                     \
    X(ignis_array_size_bytes(a), -1)                                \
    X(ignis_array_to_device(a), status)                             \
    X(ignis_array_device_ptr(a) != NULL, false)                     \
    X(ignis_array_zero(a), status)                                  \
    X(ignis_array_from_host(a, data, IGNIS_F32, 6), status)         \
    X(ignis_array_from_host_raw(a, data, 24), status)               \
    X(ignis_array_to_host(a, data, IGNIS_F32, 6), status)           \
    X(ignis_array_to_host_raw(a, data, 24), status)                 \
    X(ignis_array_clone(a).id, 0)                                   \
    X(ignis_array_slice(a, 0, 0, 1).id, 0)                          \
    X(ignis_array_reshape(a, IGNIS_SHAPE(6)).id, 0)                 \
    X(ignis_array_write_rows(a, b, 0), status)                      \
    X(ignis_array_pin(a) != NULL, false)                            \
    X(ignis_array_unpin(a), status)                                 \
    X(ignis_array_increment_ref(a), -1)                             \
    X(ignis_array_decrement_ref(a), -1)                             \
    X(ignis_array_transfer_ownership(a, IGNIS_OWNER_NVCCL), status) \
    X(ignis_array_fill(a, 1.0), status)                             \
    X(ignis_array_copy(a, b), status)                               \
    X(ignis_array_cast(a, IGNIS_F64).id, 0)                         \
    X(ignis_array_add(a, b, b), status)                             \
    X(ignis_array_mul(a, b, b), status)                             \
    X(ignis_array_scale(a, b, 2.0), status)                         \
    X(ignis_contract_acquire(a, IGNIS_OWNER_NVCCL), status)         \
    X(ignis_contract_release(a, IGNIS_OWNER_NVCCL), status)         \
    X(ignis_contract_assert_owner(a, IGNIS_OWNER_IGNIS), status)    \
    X(ignis_contract_track(a), status)                              \
    X(ignis_contract_untrack(a), status)                            \
    X(ignis_contract_audit(&entry, 1, -1), -1)                      \
    X(ignis_contract_tracked_count(), -1)                           \
    X(ignis_contract_reset(), status)                               \
    X(ignis_kernel_compile(&kernel_desc).id, 0)                     \
    X(ignis_kernel_launch(k, &launch, args, 3), status)             \
    X(ignis_kernel_query(k, &kernel), status)                       \
    X(ignis_kernel_free(k), status)                                 \
    X(ignis_warmup(NULL, 0), status)                                \
    X(ignis_warmup_record("").id, 0)

static void check_every_call_fails(ignis_array a, ignis_array b, ignis_kernel k, ignis_diagnostic diagnostic)
{
    const ignis_status status = IGNIS_ERROR_NOT_SETUP;
    float data[6] = {0, 0, 0, 0, 0, 0};
    ignis_library_info library;
    ignis_device_info device;
    ignis_memory_info memory;
    ignis_array_desc array_desc;
    ignis_array_info array;
    ignis_contract_entry entry;
    ignis_kernel_desc kernel_desc;
    ignis_kernel_info kernel;
    ignis_launch launch = test_launch(1, 1);
    ignis_arg args[3];
    memset(&array_desc, 0, sizeof array_desc);
    memset(&kernel_desc, 0, sizeof kernel_desc);
    array_desc.shape = IGNIS_SHAPE(2, 3);
    kernel_desc.source = scale_source;
    kernel_desc.entry = "scale";
    args[0] = ignis_arg_array(a);
    args[1] = ignis_arg_f32(2.0F);
    args[2] = ignis_arg_i32(6);
#define X(call, value) FAILS(call, value, status, diagnostic);
    EVERY_CALL(X)
#undef X
    CHECK(!ignis_array_is_live(a));
    CHECK_INT(ignis_status_last(), IGNIS_OK);
}

static ignis_array stale_array = {1};
static ignis_kernel stale_kernel = {1};

static void call_everything(void)
{
    check_every_call_fails(stale_array, stale_array, stale_kernel, IGNIS_DIAG_NOT_SETUP);
}

TEST(every_call_needs_a_setup)
{
    char text[65536];
    capture_stderr(call_everything, text, sizeof text); /* there is no logger yet */
    SETUP(NULL);
    stale_array = test_array(2, 3);
    stale_kernel = compile(scale_source, "scale");
    CHECK_OK(ignis_kernel_free(stale_kernel));
    CHECK_OK(ignis_array_free(stale_array));
    CHECK_OK(ignis_shutdown());
    capture_stderr(call_everything, text, sizeof text);
    CHECK_HAS(text, "ignis_library_query: ");
}

static void calls_without_setup(void)
{
    ignis_desc nowhere;
    int round, i;
    memset(&nowhere, 0, sizeof nowhere);
    nowhere.cuda_library = "/nowhere/libcuda.so";
    for (round = 0; round < 2; round++) {
        for (i = 0; i < 5; i++) {
            CHECK_STATUS(ignis_synchronize(), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
            CHECK_MESSAGE_HAS("ignis_synchronize: ignis_setup has not been called");
        }
        CHECK(ignis_setup(&nowhere) == IGNIS_ERROR_LIBRARY);
        ignis_status_clear();
    }
}

/*  A program that goes on after a setup that failed has that said once, and each call's own status all the same. */
TEST(what_is_not_set_up_is_said_once)
{
    char text[65536], *at;
    int count = 0;
    ignis_shutdown();
    SETUP(NULL);
    CHECK_OK(ignis_shutdown());
    capture_stderr(calls_without_setup, text, sizeof text);
    for (at = text; (at = strstr(at, "has not been called")) != NULL; at++)
        count++;
    CHECK_INT(count, 2); /* after the shutdown, and after the setup that failed */
}

TEST(second_setup_is_refused_and_harmless)
{
    ignis_array a;
    ignis_desc desc = test_desc(NULL);
    SETUP(NULL);
    a = test_array(2, 3);
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ALREADY_SETUP);
    CHECK_STATUS(ignis_setup(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ALREADY_SETUP);
    CHECK_OK(ignis_array_zero(a));
    CHECK_OK(ignis_array_free(a));
}

TEST(shutdown_twice_and_without_setup_does_nothing)
{
    CHECK_OK(ignis_shutdown());
    SETUP(NULL);
    CHECK_OK(ignis_shutdown());
    CHECK_OK(ignis_shutdown());
    CHECK_INT(ignis_status_last(), IGNIS_OK);
}

TEST(setup_checks_its_desc)
{
    ignis_desc desc = test_desc(NULL);
    desc.allocator.free_fn = (void (*)(void *, void *))abort; /* one function without the other */
    CHECK_INT(ignis_setup(&desc), IGNIS_ERROR_ARGUMENT);
    ignis_status_clear();
    desc = test_desc(NULL);
    desc.device = 9999;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    desc.device = -2;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    desc = test_desc(NULL);
    desc.memory_limit = -1;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc = test_desc(NULL);
    desc.cache_limit = -1;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
}

TEST(a_forked_child_gets_errors)
{
    ignis_array a;
    ignis_kernel k;
    ignis_desc desc = test_desc(NULL);
    int status = -1;
    pid_t child;
    NEEDS_POSIX("fork");
    SETUP(NULL);
    a = test_array(2, 3);
    k = compile(scale_source, "scale");
    fflush(stdout);
    child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        test__state.failures = 0;
        check_every_call_fails(a, a, k, IGNIS_DIAG_FORKED);
        CHECK(ignis_setup(&desc) == IGNIS_ERROR_NOT_SETUP);
        ignis_shutdown();
        fflush(stdout);
        _exit(test__state.failures ? 1 : 0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_OK(ignis_array_zero(a));
    CHECK_OK(ignis_kernel_free(k));
    CHECK_OK(ignis_array_free(a));
}

/* --- handles -------------------------------------------------------------------------------------------------- */

/*  Every function that takes an array, as X(call with the handle x, what it returns on failure). */
#define EVERY_ARRAY_CALL(X)                                         \
    X(ignis_array_query(x, &info), status)                          \
    X(ignis_array_numel(x), -1)                                     \
    X(ignis_array_size_bytes(x), -1)                                \
    X(ignis_array_to_device(x), status)                             \
    X(ignis_array_device_ptr(x) != NULL, false)                     \
    X(ignis_array_mark_written(x), status)                          \
    X(ignis_array_zero(x), status)                                  \
    X(ignis_array_from_host(x, data, IGNIS_F32, 6), status)         \
    X(ignis_array_from_host_raw(x, data, 24), status)               \
    X(ignis_array_to_host(x, data, IGNIS_F32, 6), status)           \
    X(ignis_array_to_host_raw(x, data, 24), status)                 \
    X(ignis_array_clone(x).id, 0)                                   \
    X(ignis_array_slice(x, 0, 0, 1).id, 0)                          \
    X(ignis_array_reshape(x, IGNIS_SHAPE(6)).id, 0)                 \
    X(ignis_array_write_rows(x, live, 0), status)                   \
    X(ignis_array_write_rows(live, x, 0), status)                   \
    X(ignis_array_pin(x) != NULL, false)                            \
    X(ignis_array_unpin(x), status)                                 \
    X(ignis_array_increment_ref(x), -1)                             \
    X(ignis_array_decrement_ref(x), -1)                             \
    X(ignis_array_transfer_ownership(x, IGNIS_OWNER_NVCCL), status) \
    X(ignis_array_fill(x, 1.0), status)                             \
    X(ignis_array_copy(x, live), status)                            \
    X(ignis_array_copy(live, x), status)                            \
    X(ignis_array_cast(x, IGNIS_F64).id, 0)                         \
    X(ignis_array_add(x, live, live), status)                       \
    X(ignis_array_add(live, x, live), status)                       \
    X(ignis_array_add(live, live, x), status)                       \
    X(ignis_array_mul(x, live, live), status)                       \
    X(ignis_array_mul(live, x, live), status)                       \
    X(ignis_array_mul(live, live, x), status)                       \
    X(ignis_array_scale(x, live, 2.0), status)                      \
    X(ignis_array_scale(live, x, 2.0), status)                      \
    X(ignis_contract_acquire(x, IGNIS_OWNER_NVCCL), status)         \
    X(ignis_contract_assert_owner(x, IGNIS_OWNER_IGNIS), status)    \
    X(ignis_contract_track(x), status)                              \
    X(ignis_kernel_launch(kernel, &launch, args, 3), status)

static void check_every_array_call_fails(uint64_t id, ignis_array live, ignis_kernel kernel,
                                         ignis_diagnostic diagnostic)
{
    const ignis_status status = IGNIS_ERROR_FREED;
    ignis_array x;
    ignis_array_info info;
    ignis_launch launch = test_launch(1, 1);
    ignis_arg args[3];
    float data[6] = {0, 0, 0, 0, 0, 0};
    char text[128];
    x.id = id;
    args[0] = ignis_arg_array(x);
    args[1] = ignis_arg_f32(2.0F);
    args[2] = ignis_arg_i32(6);
#define X(call, value) FAILS(call, value, status, diagnostic);
    EVERY_ARRAY_CALL(X)
    if (id) {
        X(ignis_array_free(x), status)
        X(ignis_array_free_as(x, IGNIS_OWNER_NVCCL), status)
        X(ignis_contract_release(x, IGNIS_OWNER_NVCCL), status)
    }
#undef X
    CHECK(!ignis_array_is_live(x));
    CHECK_OK(ignis_contract_untrack(x));
    CHECK(ignis_array_to_string(x, text, sizeof text) > 0);
    CHECK_HAS(text, "freed");
}

TEST(bad_array_handles_are_answered_everywhere)
{
    ignis_array live, stale;
    ignis_kernel kernel;
    uint64_t bad[6];
    size_t i;
    SETUP(NULL);
    live = test_array(2, 3);
    stale = test_array(2, 3);
    kernel = compile(scale_source, "scale");
    REQUIRE(kernel.id);
    CHECK_OK(ignis_array_free(stale));
    bad[0] = 0;
    bad[1] = stale.id;
    bad[2] = UINT64_MAX;
    bad[3] = live.id + (UINT64_C(1) << 32); /* one half is the slot, the other the generation: */
    bad[4] = live.id + 1000000;             /* both of these are off in one of them */
    bad[5] = live.id ^ (UINT64_C(1) << 63);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_every_array_call_fails(bad[i], live, kernel, IGNIS_DIAG_ARRAY_FREED);
    check_every_array_call_fails(kernel.id, live, kernel, IGNIS_DIAG_WRONG_KIND);
    CHECK(ignis_array_is_live(live));
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_OK(ignis_array_free(live));
}

static void check_every_kernel_call_fails(uint64_t id, ignis_diagnostic diagnostic)
{
    ignis_kernel k;
    ignis_kernel_info info;
    ignis_launch launch = test_launch(1, 1);
    k.id = id;
    CHECK_STATUS(ignis_kernel_query(k, &info), IGNIS_ERROR_FREED, diagnostic);
    CHECK_STATUS(ignis_kernel_launch(k, &launch, NULL, 0), IGNIS_ERROR_FREED, diagnostic);
    if (id) /* freeing no handle is tested with models */
        CHECK_STATUS(ignis_kernel_free(k), IGNIS_ERROR_FREED, diagnostic);
}

TEST(bad_kernel_handles_are_answered_everywhere)
{
    ignis_array live;
    ignis_kernel kernel;
    SETUP(NULL);
    live = test_array(2, 3);
    kernel = compile(scale_source, "scale");
    REQUIRE(kernel.id);
    CHECK_OK(ignis_kernel_free(kernel));
    check_every_kernel_call_fails(0, IGNIS_DIAG_KERNEL_FREED);
    check_every_kernel_call_fails(kernel.id, IGNIS_DIAG_KERNEL_FREED);
    check_every_kernel_call_fails(UINT64_MAX, IGNIS_DIAG_KERNEL_FREED);
    check_every_kernel_call_fails(live.id, IGNIS_DIAG_WRONG_KIND);
    CHECK_OK(ignis_array_free(live));
}

/* --- null pointers and numbers from nowhere ------------------------------------------------------------------- */

TEST(null_pointers_are_answered_everywhere)
{
    const ignis_status status = IGNIS_ERROR_ARGUMENT;
    const char *no_option = NULL;
    ignis_kernel_desc desc;
    ignis_launch launch = test_launch(1, 1);
    ignis_kernel kernel;
    ignis_array a;
    SETUP(NULL);
    a = test_array(2, 3);
    kernel = compile(scale_source, "scale");
#define X(call, value) FAILS(call, value, status, IGNIS_DIAG_NULL_ARGUMENT)
    X(ignis_library_query(IGNIS_LIBRARY_CUDA, NULL), status);
    X(ignis_device_query(0, NULL), status);
    X(ignis_memory_query(0, NULL), status);
    X(ignis_array_create(NULL).id, 0);
    X(ignis_array_query(a, NULL), status);
    X(ignis_array_from_host(a, NULL, IGNIS_F32, 6), status);
    X(ignis_array_from_host_raw(a, NULL, 24), status);
    X(ignis_array_to_host(a, NULL, IGNIS_F32, 6), status);
    X(ignis_array_to_host_raw(a, NULL, 24), status);
    X(ignis_array_to_string(a, NULL, 8), -1);
    X(ignis_contract_audit(NULL, 3, -1), -1);
    X(ignis_kernel_query(kernel, NULL), status);
    X(ignis_kernel_launch(kernel, NULL, NULL, 0), status);
    X(ignis_kernel_launch(kernel, &launch, NULL, 3), status);
    X(ignis_warmup(NULL, 1), status);
    X(ignis_warmup_record(NULL).id, 0);
    X(ignis_kernel_compile(NULL).id, 0);
    memset(&desc, 0, sizeof desc);
    desc.entry = "scale";
    X(ignis_kernel_compile(&desc).id, 0);
    desc.source = scale_source;
    desc.entry = NULL;
    X(ignis_kernel_compile(&desc).id, 0);
    desc.entry = "scale";
    desc.option_count = 1;
    X(ignis_kernel_compile(&desc).id, 0);
    desc.options = &no_option;
    X(ignis_kernel_compile(&desc).id, 0);
#undef X
    CHECK(ignis_array_to_string(a, NULL, 0) > 0);
    CHECK_INT(ignis_contract_audit(NULL, 0, -1), 0);
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_OK(ignis_array_free(a));
}

TEST(garbage_enumerators_are_answered_everywhere)
{
    static const int garbage[] = {99, -1, INT_MAX, INT_MIN};
    const ignis_status status = IGNIS_ERROR_ARGUMENT;
    ignis_library_info library;
    ignis_array_desc desc;
    ignis_launch launch = test_launch(1, 1);
    ignis_arg args[3];
    ignis_kernel kernel;
    ignis_array a;
    float data[6] = {0, 0, 0, 0, 0, 0};
    size_t i;
    SETUP(NULL);
    a = test_array(2, 3);
    kernel = compile(scale_source, "scale");
    args[1] = ignis_arg_f32(2.0F);
    args[2] = ignis_arg_i32(6);
#define X(call, value) FAILS(call, value, status, IGNIS_DIAG_BAD_ENUM)
    for (i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        int bad = garbage[i];
        X(ignis_library_query((ignis_library)bad, &library), status);
        memset(&desc, 0, sizeof desc);
        desc.shape = IGNIS_SHAPE(2);
        desc.dtype = (ignis_dtype)bad;
        X(ignis_array_create(&desc).id, 0);
        desc.dtype = IGNIS_F32;
        desc.owner = (ignis_owner)bad;
        X(ignis_array_create(&desc).id, 0);
        X(ignis_array_from_host(a, data, (ignis_dtype)bad, 6), status);
        X(ignis_array_to_host(a, data, (ignis_dtype)bad, 6), status);
        X(ignis_array_cast(a, (ignis_dtype)bad).id, 0);
        X(ignis_array_transfer_ownership(a, (ignis_owner)bad), status);
        X(ignis_contract_acquire(a, (ignis_owner)bad), status);
        X(ignis_contract_release(a, (ignis_owner)bad), status);
        X(ignis_contract_assert_owner(a, (ignis_owner)bad), status);
        args[0] = ignis_arg_array(a);
        args[0].type = (ignis_arg_type)bad;
        X(ignis_kernel_launch(kernel, &launch, args, 3), status);
        CHECK(ignis_array_free_as(a, (ignis_owner)bad) != IGNIS_OK);
        CHECK(ignis_array_is_live(a));
        ignis_status_clear();
    }
    X(ignis_library_query((ignis_library)0, &library), status);
#undef X
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_OK(ignis_array_free(a));
}

TEST(garbage_numbers_are_answered_everywhere)
{
    static const int garbage[] = {9999, -2, INT_MAX, INT_MIN};
    ignis_device_info device;
    ignis_memory_info memory;
    ignis_array_desc desc;
    ignis_array a;
    size_t i;
    SETUP(NULL);
    a = test_array(2, 3);
    for (i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        int bad = garbage[i];
        CHECK_STATUS(ignis_device_query(bad, &device), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
        CHECK_STATUS(ignis_device_use(bad), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
        CHECK_STATUS(ignis_memory_query(bad, &memory), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
        FAILS(ignis_memory_trim(bad), -1, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
        memset(&desc, 0, sizeof desc);
        desc.shape = IGNIS_SHAPE(2);
        desc.device = bad;
        FAILS(ignis_array_create(&desc).id, 0, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
        CHECK_FAILS(ignis_array_slice(a, bad, 0, 1), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
        CHECK_FAILS(ignis_array_slice(a, 0, bad, 1), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
        CHECK_FAILS(ignis_array_slice(a, 0, 0, bad), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
    }
    FAILS(ignis_contract_audit(NULL, -1, -1), -1, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_warmup(NULL, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_OK(ignis_array_free(a));
}

int main(int argc, char **argv) { return test_run(argc, argv); }
