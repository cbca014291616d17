// SPDX-License-Identifier: MIT
/*  test_profile.c - traces, tables of kernels, and pictures of memory */
#define IGNIS_TRACE_CALLS
#include "tensor.h"

#include "ignis_collective.h"

#include <ctype.h>
#include <locale.h>
#include <unistd.h>

/* --- files -------------------------------------------------------------------------------------------------------- */

/*  A file of this process; each call forgets the one before. */
static const char *scratch_path(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "/tmp/ignis-profile-%ld-%s", (long)getpid(), name);
    return path;
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long size = 0;
    CHECK(file != NULL);
    if (!file)
        return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 &&
        (text = (char *)calloc(1, (size_t)size + 1)) != NULL) {
        rewind(file);
        CHECK_INT(fread(text, 1, (size_t)size, file), size);
    }
    fclose(file);
    remove(path);
    return text;
}

/*  A parser of JSON: what stands behind one value; null where it is none. */
static const char *json_skip(const char *at)
{
    while (at && isspace((unsigned char)*at))
        at++;
    return at;
}

static const char *json_value(const char *at, int depth)
{
    char *end;
    if (!at || depth > 20)
        return NULL;
    if (*at == '{' || *at == '[') {
        char close = *at == '{' ? '}' : ']';
        at = json_skip(at + 1);
        if (*at == close)
            return at + 1;
        for (;;) {
            if (close == '}') {
                if (*at != '"')
                    return NULL;
                at = json_skip(json_value(at, depth + 1));
                if (!at || *at != ':')
                    return NULL;
                at = json_skip(at + 1);
            }
            at = json_skip(json_value(at, depth + 1));
            if (!at || (*at != ',' && *at != close))
                return NULL;
            if (*at == close)
                return at + 1;
            at = json_skip(at + 1);
        }
    }
    if (*at == '"') {
        for (at++; *at != '"'; at++) {
            if ((unsigned char)*at < 0x20)
                return NULL;
            if (*at == '\\' && *++at == 0)
                return NULL;
        }
        return at + 1;
    }
    if (strncmp(at, "true", 4) == 0)
        return at + 4;
    if (strncmp(at, "false", 5) == 0)
        return at + 5;
    (void)strtod(at, &end);
    return end == at ? NULL : end;
}

static bool is_json(const char *text)
{
    const char *end = json_skip(json_value(json_skip(text), 0));
    return end && *end == 0;
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (; text && (text = strstr(text, part)) != NULL; text++)
        count++;
    return count;
}

/* --- profiles ----------------------------------------------------------------------------------------------------- */

static const ignis_profile_row *row_named(const ignis_profile_row *rows, int count, const char *name)
{
    int i;
    for (i = 0; i < count; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

TEST(kernels_are_counted_with_their_bytes_and_flops)
{
    static const char source[] = "extern \"C\" __global__ void profiled(float *x) { x[threadIdx.x] += 1; }";
    ignis_desc desc;
    ignis_profile_row rows[64];
    const ignis_profile_row *row;
    ignis_launch launch = test_launch(1, 15);
    ignis_kernel kernel;
    ignis_array array;
    ignis_tensor a, b, c;
    ignis_arg arg;
    float host[15];
    int count, i;
    memset(&desc, 0, sizeof desc);
    desc.matmul = IGNIS_MATMUL_OWN;
    SETUP(&desc);
    array = test_array(3, 5);
    a = tensor_noise(IGNIS_SHAPE(33, 17), IGNIS_F32, 1, false);
    b = tensor_noise(IGNIS_SHAPE(17, 29), IGNIS_F32, 2, false);
    kernel = test_compile(source, "profiled", NULL);
    arg = ignis_arg_array(array);
    CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1)); /* before: not counted */
    CHECK_OK(ignis_profile_begin());
    for (i = 0; i < 3; i++)
        CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
    c = ignis_matmul(a, b);
    CHECK_OK(ignis_array_fill(array, 2));
    CHECK_OK(ignis_array_zero(array));
    CHECK_OK(ignis_array_to_host(array, host, IGNIS_F32, 15));
    CHECK_OK(ignis_profile_end(NULL, NULL));
    CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1)); /* after, too */

    count = ignis_profile_rows(rows, 64);
    CHECK(count >= 5 && count <= 64);
    row = row_named(rows, count, "profiled");
    CHECK(row != NULL);
    if (row) {
        CHECK_INT(row->count, 3);
        CHECK_INT(row->bytes, 3 * 60);
        CHECK(row->flops == 0 && row->arithmetic_share == 0);
        CHECK(row->ms >= 0);
    }
    row = row_named(rows, count, "ignis_fill");
    CHECK(row && row->count == 1 && row->bytes == 60);
    row = row_named(rows, count, "zeros");
    CHECK(row && row->count == 1 && row->bytes == 60);
    row = row_named(rows, count, "copy to the host");
    CHECK(row && row->count == 1 && row->bytes == 60);
    for (i = 0, row = NULL; i < count; i++)
        if (rows[i].flops > 0)
            row = &rows[i];
    CHECK(row && row->flops == 2.0 * 33 * 17 * 29 && row->dtype == IGNIS_F32);
    CHECK(row && row->bytes >= 4.0 * (33 * 17 + 17 * 29 + 33 * 29));
    for (i = 1; i < count; i++)
        CHECK(rows[i].ms <= rows[i - 1].ms);

    CHECK_OK(ignis_tensor_release(a));
    CHECK_OK(ignis_tensor_release(b));
    CHECK_OK(ignis_tensor_release(c));
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_OK(ignis_array_free(array));
}

/*  A step reads and writes the parameter and its state, and reads the gradient, of ten numbers each. */
static void check_step_bytes(ignis_optimizer optimizer, const char *kernel, int arrays)
{
    ignis_profile_row rows[64];
    const ignis_profile_row *row;
    ignis_tensor x = tensor_counting(IGNIS_SHAPE(10), IGNIS_F32, 1, true), loss = ignis_sum(x);
    CHECK_OK(ignis_optimizer_add(optimizer, x, false));
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    CHECK_OK(ignis_optimizer_step(optimizer)); /* this makes the state */
    CHECK_OK(ignis_profile_begin());
    CHECK_OK(ignis_optimizer_step(optimizer));
    CHECK_OK(ignis_profile_end(NULL, NULL));
    row = row_named(rows, ignis_profile_rows(rows, 64), kernel);
    CHECK(row != NULL);
    if (row)
        CHECK_INT(row->bytes, 40 * arrays);
    CHECK_OK(ignis_optimizer_free(optimizer));
    CHECK_OK(ignis_tensor_release(loss));
    CHECK_OK(ignis_tensor_release(x));
}

TEST(optimizer_steps_have_their_bytes)
{
    ignis_adamw_desc adam;
    ignis_sgd_desc momentum;
    memset(&adam, 0, sizeof adam);
    memset(&momentum, 0, sizeof momentum);
    adam.coupled = true;
    momentum.momentum = 0.9;
    SETUP(NULL);
    check_step_bytes(ignis_adamw(NULL), "ignis_adamw", 7);
    check_step_bytes(ignis_adamw(&adam), "ignis_adam", 7);
    check_step_bytes(ignis_sgd(NULL), "ignis_sgd", 3);
    check_step_bytes(ignis_sgd(&momentum), "ignis_sgd", 5);
    check_step_bytes(ignis_rmsprop(NULL), "ignis_rmsprop", 5);
    check_step_bytes(ignis_lion(NULL), "ignis_lion", 5);
}

TEST(attention_and_formulas_have_their_names_and_flops)
{
    ignis_profile_row rows[64];
    const ignis_profile_row *row = NULL;
    ignis_sdpa_desc attention;
    ignis_scope scope;
    ignis_tensor q, y;
    double flops = 0;
    int count, i;
    memset(&attention, 0, sizeof attention);
    attention.num_heads = 2;
    SETUP(NULL);
    q = tensor_noise(IGNIS_SHAPE(3, 7, 32), IGNIS_F32, 1, true);
    CHECK_OK(ignis_profile_begin());
    scope = ignis_scope_begin();
    y = ignis_sdpa(q, q, q, &attention); /* causal: a query sees 4 keys of 7 */
    CHECK_OK(ignis_backward(ignis_sum(ignis_map("y*y + 1", IGNIS_INPUTS(y))), IGNIS_NO_ARRAY));
    ignis_scope_end(scope);
    CHECK_OK(ignis_profile_end(NULL, NULL));
    count = ignis_profile_rows(rows, 64);
    CHECK(row_named(rows, count, "y*y + 1") != NULL);
    row = row_named(rows, count, "ignis_sdpa");
    CHECK(row && row->flops == 2.0 * 2 * 3 * 2 * 7 * 4 * 16);
    for (i = 0; i < count; i++)
        flops += rows[i].flops;
    CHECK(row && flops >= row->flops * (2 + 5) / 2); /* backward: five products at least */
    CHECK_OK(ignis_tensor_release(q));
}

TEST(a_trace_is_json_with_calls_kernels_and_memory)
{
    char path[256];
    ignis_array array;
    ignis_tensor x, y;
    char *text;
    SETUP(NULL);
    snprintf(path, sizeof path, "%s", scratch_path("trace.json"));
    array = test_array(100, 7);
    CHECK_OK(ignis_profile_begin());
    CHECK_OK(ignis_array_fill(array, 3));
    x = tensor_counting(IGNIS_SHAPE(5, 5), IGNIS_F64, 1, false);
    y = ignis_matmul(x, x);
    CHECK_OK(ignis_profile_end(path, scratch_path("table.txt")));
    text = read_text(path);
    CHECK(text && is_json(text));
    CHECK_HAS(text, "\"cat\": \"call\", \"name\": \"ignis_array_fill\"");
    CHECK_HAS(text, "\"cat\": \"kernel\", \"name\": \"ignis_fill\"");
    CHECK_HAS(text, "\"cat\": \"copy\", \"name\": \"copy to the device\"");
    CHECK_HAS(text, "\"ph\": \"C\"");
    CHECK_HAS(text, "\"flops\": 250");
    CHECK_HAS(text, "tensor.h"); /* the line that made x */
    CHECK_INT(count_of(text, "\"ph\": \"s\""), count_of(text, "\"ph\": \"f\""));
    free(text);
    text = read_text(scratch_path("table.txt"));
    CHECK_HAS(text, "0 items were too many");
    CHECK_HAS(text, "ignis_fill");
    CHECK_HAS(text, "TB/s");
    free(text);
    CHECK_OK(ignis_tensor_release(x));
    CHECK_OK(ignis_tensor_release(y));
    CHECK_OK(ignis_array_free(array));
}

TEST(a_capture_is_not_written_down_and_a_graph_is_one_item)
{
    ignis_profile_row rows[16];
    const ignis_profile_row *row;
    ignis_array array;
    ignis_graph graph;
    int count;
    SETUP(NULL);
    array = test_array(2, 3);
    CHECK_OK(ignis_array_fill(array, 1));
    CHECK_OK(ignis_profile_begin());
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_array_fill(array, 2));
    CHECK_STATUS(ignis_profile_end(NULL, NULL), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    graph = ignis_graph_end();
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_profile_end(NULL, NULL));
    count = ignis_profile_rows(rows, 16);
    CHECK(row_named(rows, count, "ignis_fill") == NULL);
    row = row_named(rows, count, "graph");
    CHECK(row && row->count == 2);
    test_check_series(array, 6, 2.0F, 0.0F);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_array_free(array));
}

TEST(collective_operations_are_told_from_other_kernels)
{
    ignis_comm comms[2];
    ignis_array_desc desc;
    ignis_array arrays[2];
    char *text;
    int i;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(100);
    CHECK_OK(ignis_comm_init_all(comms, NULL, 2, NULL));
    for (i = 0; i < 2; i++) {
        desc.device = i ? i : IGNIS_DEVICE_0;
        arrays[i] = ignis_array_create(&desc);
        CHECK_OK(ignis_array_fill(arrays[i], i + 1));
    }
    CHECK_OK(ignis_profile_begin());
    for (i = 0; i < 2; i++)
        CHECK_OK(ignis_comm_all_reduce(comms[i], arrays[i], arrays[i], IGNIS_OP_SUM));
    CHECK_OK(ignis_profile_end(scratch_path("comm.json"), NULL));
    text = read_text(scratch_path("comm.json"));
    CHECK(text && is_json(text));
    CHECK(count_of(text, "\"cat\": \"collective\"") >= 2);
    CHECK_HAS(text, "\"call\": \"ignis_comm_all_reduce\"");
    free(text);
    for (i = 0; i < 2; i++) {
        test_check_series(arrays[i], 100, 3.0F, 0.0F);
        CHECK_OK(ignis_array_free(arrays[i]));
        CHECK_OK(ignis_comm_destroy(comms[i]));
    }
}

static void *fill_often(void *context)
{
    ignis_array array = test_array(11, 13);
    int i;
    (void)context;
    for (i = 0; i < 40; i++)
        CHECK_OK(ignis_array_fill(array, i));
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_array_free(array));
    return NULL;
}

TEST(threads_are_written_down_while_profiles_begin_and_end)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    ignis_profile_row rows[16];
    const ignis_profile_row *row;
    char *text;
    int i, count;
    SETUP(NULL);
    CHECK_OK(ignis_profile_begin());
    for (i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, fill_often, NULL), 0);
    for (i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK_OK(ignis_profile_end(scratch_path("threads.json"), NULL));
    count = ignis_profile_rows(rows, 16);
    row = row_named(rows, count, "ignis_fill");
    CHECK(row && row->count == THREADS * 40);
    text = read_text(scratch_path("threads.json"));
    CHECK(text && is_json(text));
    CHECK(count_of(text, "\"thread_name\"") >= THREADS);
    free(text);
    for (i = 0; i < THREADS; i++) /* and while others begin and end */
        CHECK_INT(pthread_create(&threads[i], NULL, fill_often, NULL), 0);
    for (i = 0; i < 5; i++) {
        CHECK_OK(ignis_profile_begin());
        CHECK_OK(ignis_profile_end(NULL, NULL));
    }
    for (i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
}

static int (*record_event)(void *event, void *stream);
static int (*finish_event)(void *event);
static void *recorded, *recorded_on, *launches_on;
static int waits;

static int note_record(void *event, void *stream)
{
    recorded = event;
    recorded_on = stream;
    return record_event(event, stream);
}
static int note_finish(void *event)
{
    waits += event == recorded && recorded_on == launches_on;
    return finish_event(event);
}

/*  What is on the stream may wait for what this thread does next: for the value of a fence, say. */
TEST(the_first_launch_on_a_device_does_not_wait_for_its_stream)
{
    ignis_array array;
    SETUP(NULL);
    CHECK_OK(ignis_profile_begin()); /* no device is open */
    launches_on = ignis_stream_current();
    record_event = ignis__cuda.cuEventRecord;
    finish_event = ignis__cuda.cuEventSynchronize;
    ignis__cuda.cuEventRecord = note_record;
    ignis__cuda.cuEventSynchronize = note_finish;
    waits = 0;
    array = test_array(4, 4);
    CHECK_OK(ignis_array_fill(array, 1));
    ignis__cuda.cuEventRecord = record_event;
    ignis__cuda.cuEventSynchronize = finish_event;
    CHECK_INT(waits, 0);
    CHECK_OK(ignis_profile_end(NULL, NULL));
    CHECK(ignis_profile_rows(NULL, 0) > 0);
    CHECK_OK(ignis_array_free(array));
}

/*  An hour into a profile: the first event that is recorded is of the beginning, the others are 10 us apart. */
static struct {
    void *event;
    double ms;
} hour[64];
static int hour_count;

static int record_in_an_hour(void *event, void *stream)
{
    int i = hour_count++ % 64;
    hour[i].event = event;
    hour[i].ms = i ? 3600000 + 0.01 * i : 0;
    return record_event(event, stream);
}
static int elapsed_in_an_hour(float *ms, void *first, void *last)
{
    double at[2] = {-1, -1};
    int i;
    for (i = 0; i < 64; i++) { /* as it was recorded last */
        at[0] = hour[i].event == first ? hour[i].ms : at[0];
        at[1] = hour[i].event == last ? hour[i].ms : at[1];
    }
    CHECK(at[0] >= 0 && at[1] >= 0);
    *ms = (float)(at[1] - at[0]);
    return 0;
}

/*  The driver gives times as floats, of which an hour has steps of 0.25 ms. */
TEST(long_profiles_are_as_exact_as_short_ones)
{
    static int (*elapsed)(float *ms, void *first, void *last);
    ignis_array array;
    double at[3], ts;
    char *text, *span;
    int i;
    SETUP(NULL);
    array = test_array(4, 4);
    CHECK_OK(ignis_array_fill(array, 1));
    record_event = ignis__cuda.cuEventRecord;
    elapsed = ignis__cuda.cuEventElapsedTime;
    memset(hour, 0, sizeof hour);
    hour_count = 0;
    ignis__cuda.cuEventRecord = record_in_an_hour;
    ignis__cuda.cuEventElapsedTime = elapsed_in_an_hour;
    CHECK_OK(ignis_profile_begin());
    for (i = 0; i < 3; i++)
        CHECK_OK(ignis_array_fill(array, i));
    CHECK_OK(ignis_profile_end(scratch_path("hour.json"), NULL));
    ignis__cuda.cuEventRecord = record_event;
    ignis__cuda.cuEventElapsedTime = elapsed;
    CHECK_OK(ignis_array_free(array));
    text = read_text(scratch_path("hour.json"));
    CHECK(text && is_json(text));
    for (i = 0, span = text; span && i < 3 && (span = strstr(span, "\"cat\": \"kernel\"")) != NULL; i++, span++) {
        char *begin = span;
        while (begin > text && strncmp(begin, "\"ts\": ", 6) != 0)
            begin--;
        CHECK_INT(sscanf(begin, "\"ts\": %lf", &ts), 1);
        at[i] = ts;
    }
    CHECK_INT(i, 3);
    if (i == 3) {
        CHECK(at[1] - at[0] > 19 && at[1] - at[0] < 21); /* us, as each kernel has two events */
        CHECK(at[2] - at[1] > 19 && at[2] - at[1] < 21);
    }
    free(text);
}

/*  A program with a window goes by the user's locale, which may write 1,5. */
TEST(reports_have_points_in_any_locale)
{
    ignis_array array;
    char folder[] = "/tmp/ignis-locale-XXXXXX", command[300];
    char *text;
    bool made;
    NEEDS_POSIX("localedef");
    SETUP(NULL);
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
    made = system(command) >= 0 && setenv("LOCPATH", folder, 1) == 0 && setlocale(LC_NUMERIC, "de_DE.UTF-8") != NULL;
    if (made) {
        CHECK_OK(ignis_profile_begin());
        array = test_array(64, 64);
        CHECK_OK(ignis_array_fill(array, 1));
        CHECK_OK(ignis_memory_snapshot(scratch_path("locale.svg")));
        CHECK_OK(ignis_profile_end(scratch_path("locale.json"), NULL));
        CHECK_OK(ignis_array_free(array));
        setlocale(LC_NUMERIC, "C");
        text = read_text(scratch_path("locale.json"));
        CHECK(text && is_json(text));
        CHECK_HAS(text, "\"ts\": ");
        free(text);
        text = read_text(scratch_path("locale.svg"));
        CHECK_INT(count_of(text, "width=\"480.000\""), 1);
        free(text);
    }
    CHECK_INT(unsetenv("LOCPATH"), 0);
    test_remove_folder(folder);
    if (!made)
        SKIP("there is no localedef, or no de_DE");
}

TEST(profiles_have_errors)
{
    ignis_desc desc;
    ignis_profile_row row;
    SETUP(NULL);
    CHECK_INT(ignis_profile_rows(NULL, 0), 0);
    CHECK_FAILS(ignis_profile_rows(&row, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_profile_rows(NULL, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_profile_end(NULL, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PROFILE_STATE);
    CHECK_OK(ignis_profile_begin());
    CHECK_STATUS(ignis_profile_begin(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PROFILE_STATE);
    CHECK_STATUS(ignis_profile_end("/nowhere/trace.json", NULL), IGNIS_ERROR_IO, IGNIS_DIAG_REPORT_IO);
    CHECK_STATUS(ignis_profile_end(NULL, NULL), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_PROFILE_STATE); /* it is over all the same */
    CHECK_OK(ignis_profile_begin());
    CHECK_OK(ignis_array_free(test_array(2, 2)));
    CHECK_OK(ignis_shutdown()); /* drops it */
    memset(&desc, 0, sizeof desc);
    desc.dry_run = true;
    SETUP(&desc);
    CHECK_STATUS(ignis_profile_begin(), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

TEST(snapshots_are_json_or_a_picture)
{
    ignis_desc desc;
    ignis_array_desc array_desc;
    ignis_array array, view;
    char line[32];
    char *text;
    memset(&desc, 0, sizeof desc);
    desc.trace_memory = true;
    SETUP(&desc);
    memset(&array_desc, 0, sizeof array_desc);
    array_desc.shape = IGNIS_SHAPE(3, 1000);
    array_desc.tag =
        "<a \"b\" \\ \xC3\xA9\xED\xA0\x80\xC3"; /* a character, half of one in UTF-16, and one that is cut */
    array = ignis_array_create(&array_desc), snprintf(line, sizeof line, "\"line\": %d", __LINE__);
    CHECK_OK(ignis_array_zero(array));
    view = ignis_array_slice(array, 0, 1, 1);
    CHECK_OK(ignis_memory_snapshot(scratch_path("memory.json")));
    text = read_text(scratch_path("memory.json"));
    CHECK(text && is_json(text));
    CHECK_HAS(text, "\"tag\": \"<a \\\"b\\\" \\\\ \xC3\xA9????\"");
    CHECK_HAS(text, "\"shape\": [3, 1000]");
    CHECK_HAS(text, "\"shape\": [1, 1000]");
    CHECK_HAS(text, "test_profile.c");
    CHECK_HAS(text, line);
    free(text);
    CHECK_OK(ignis_memory_snapshot(scratch_path("memory.svg")));
    CHECK_OK(ignis_memory_snapshot(scratch_path("memory.svg"))); /* it takes the place of the one before */
    text = read_text(scratch_path("memory.svg"));
    CHECK_HAS(text, "<svg xmlns=");
    CHECK_HAS(text, "&#60;a &#34;b&#34;");
    CHECK_INT(count_of(text, "<text"), count_of(text, "</text>"));
    CHECK_HAS(text, "</svg>");
    free(text);
    CHECK_STATUS(ignis_memory_snapshot(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_memory_snapshot("/nowhere/memory.json"), IGNIS_ERROR_IO, IGNIS_DIAG_REPORT_IO);
    CHECK_MESSAGE_HAS("'/nowhere/memory.json' cannot be opened to write a report: ");
    CHECK_OK(ignis_array_free(view));
    CHECK_OK(ignis_array_free(array));
}

TEST(a_dry_run_writes_what_the_environment_names)
{
    static const char *const names[] = {"dry.json", "dry"};
    char path[256];
    char *text;
    int i;
    for (i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s", scratch_path(names[i]));
        CHECK_INT(setenv("IGNIS_DRY_RUN", path, 1), 0);
        SETUP(NULL);
        CHECK_OK(ignis_array_free(test_array(3, 5)));
        CHECK_OK(ignis_shutdown());
        CHECK_INT(unsetenv("IGNIS_DRY_RUN"), 0);
        text = read_text(path);
        CHECK(text && is_json(text));
        CHECK_HAS(text, test_is_bypass() ? "\"peak_bytes\": 60" : "\"peak_bytes\": 512");
        free(text);
    }
}

int main(int argc, char **argv) { return test_run(argc, argv); }
