/*  report/profile.c - profiles: tables and traces of what device/trace.c recorded

    Reads event times when the devices are idle, sums by kernel, compares with the device's rates (a roofline).
    May use: device/trace.c, report_file.c. Locks: ignis__profile_session_lock while a profile begins or ends, then
    ignis__profile_lock. */

#include "room.h"

/*  Dense FLOPs of an SM per clock, from NVIDIA's tables of throughput (CUDA C++ Programming Guide) and white papers:
    of 16-bit products with sums in f32, of f32 and of f64, the higher of tensor cores and plain units. The last row
    that is not newer than the device counts. */
static const struct {
    int capability, half, single, wide;
} ignis__rates[] = {{50, 256, 256, 8},    {60, 128, 128, 64},    {61, 256, 256, 8},   {70, 1024, 128, 64},
                    {75, 1024, 128, 4},   {80, 2048, 128, 128},  {86, 512, 256, 4},   {89, 512, 256, 4},
                    {90, 4096, 256, 256}, {100, 8192, 256, 128}, {103, 8192, 256, 4}, {120, 512, 256, 4}};

/*  Return the rates of a device per millisecond: bytes, and flops of a dtype. 0 if unknown. */
IGNIS__COLD static double ignis__rate_memory(const ignis__device *device)
{
    int clock = 0, bits = 0;
    (void)IGNIS__CUDA(cuDeviceGetAttribute, (&clock, IGNIS__CU_ATTRIBUTE_MEMORY_CLOCK, device->handle));
    (void)IGNIS__CUDA(cuDeviceGetAttribute, (&bits, IGNIS__CU_ATTRIBUTE_MEMORY_BITS, device->handle));
    return 2.0 * clock * bits / 8; /* twice a clock */
}

IGNIS__COLD static double ignis__rate_flops(const ignis__device *device, int dtype)
{
    int clock = 0, capability = ignis__capability(&device->info), i = IGNIS__COUNT(ignis__rates) - 1;
    (void)IGNIS__CUDA(cuDeviceGetAttribute, (&clock, IGNIS__CU_ATTRIBUTE_CLOCK, device->handle));
    while (i > 0 && ignis__rates[i].capability > capability)
        i--;
    return (double)clock * device->info.multiprocessors *
           (dtype == IGNIS_F64                          ? ignis__rates[i].wide
            : dtype == IGNIS_F16 || dtype == IGNIS_BF16 ? ignis__rates[i].half
            : ignis__allow_tf32                         ? ignis__rates[i].half / 2
                                                        : ignis__rates[i].single);
}

/*  Frees the items and the clocks. */
IGNIS__COLD static void ignis__profile_drop(ignis__trace_item *items, size_t count)
{
    size_t k;
    int i;
    for (k = 0; k < count; k++)
        ignis__trace_events_free(&items[k]);
    ignis__free(items);
    ignis__mutex_lock(&ignis__profile_lock);
    for (i = 0; i < IGNIS_MAX_DEVICES; i++) {
        if (ignis__profile.base[i].event)
            (void)IGNIS__CUDA(cuEventDestroy_v2, (ignis__profile.base[i].event));
        ignis__profile.base[i].event = NULL;
    }
    ignis__mutex_unlock(&ignis__profile_lock);
}

/*  Reads the times of a device's items, once it is idle. Items lost to a fault have no time. The driver gives times
    between two events as floats, which are exact for seconds, not for hours: so each is measured from an event at
    most a second earlier. */
IGNIS__COLD static void ignis__profile_read_times(int device, ignis__trace_item *items, size_t count)
{
    void *base;
    int64_t base_ns;
    float at, ms;
    size_t k;
    ignis__mutex_lock(&ignis__profile_lock);
    base = ignis__profile.base[device].event;
    base_ns = ignis__profile.base[device].ns;
    ignis__mutex_unlock(&ignis__profile_lock);
    for (k = 0; k < count; k++) {
        ignis__trace_item *traced = &items[k];
        if (traced->device == device && base && traced->first &&
            IGNIS__CUDA(cuEventElapsedTime, (&at, base, traced->first)) == 0 &&
            IGNIS__CUDA(cuEventElapsedTime, (&ms, traced->first, traced->last)) == 0) {
            traced->at_ns = base_ns + (int64_t)((double)at * 1e6);
            traced->ms = (double)ms;
            if (at > 1000) {
                base = traced->first;
                base_ns = traced->at_ns;
            }
        }
    }
}

/*  Charges an operation's bytes to the longest of its kernels without bytes of their own; without memory for that, to
    the first. */
IGNIS__COLD static void ignis__profile_charge_bytes(ignis__trace_item *items, size_t count, int threads)
{
    ignis__trace_item **longest =
        (ignis__trace_item **)ignis__alloc((size_t)(threads + 1) * sizeof *longest); /* by thread */
    size_t k;
    for (k = 0; longest && k < count; k++) {
        ignis__trace_item *traced = &items[k], **so_far = &longest[traced->thread];
        if (traced->kind != IGNIS__TRACED_KERNEL || traced->exact_bytes)
            continue;
        if (*so_far && (*so_far)->operation == traced->operation) {
            double bytes = (*so_far)->bytes + traced->bytes;
            (*so_far)->bytes = traced->bytes = 0;
            *so_far = traced->ms > (*so_far)->ms ? traced : *so_far;
            (*so_far)->bytes = bytes;
        } else {
            *so_far = traced;
        }
    }
    ignis__free(longest);
}

IGNIS__COLD static int ignis__profile_order(const void *a, const void *b)
{
    const ignis_profile_row *x = (const ignis_profile_row *)a, *y = (const ignis_profile_row *)b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

/*  Sums the items by kernel. NULL if out of host memory. */
IGNIS__COLD static ignis_profile_row *ignis__profile_sum(const ignis__trace_item *items, size_t count, int *row_count)
{
    ignis_profile_row *rows = (ignis_profile_row *)ignis__alloc((count + 1) * sizeof *rows), *row;
    size_t k;
    int i, used = 0;
    for (k = 0; rows && k < count; k++) {
        const ignis__trace_item *traced = &items[k];
        int dtype = traced->flops > 0 ? traced->rate : 0;
        if (!traced->first || traced->ms < 0)
            continue;
        for (i = 0; i < used; i++)
            if (rows[i].device == traced->device && (int)rows[i].dtype == dtype &&
                strcmp(rows[i].name, traced->name) == 0)
                break;
        row = &rows[i];
        used += i == used;
        row->device = traced->device;
        row->dtype = (ignis_dtype)dtype;
        memcpy(row->name, traced->name, sizeof row->name);
        row->count++;
        row->ms += traced->ms;
        row->bytes += traced->bytes;
        row->flops += traced->flops;
    }
    for (i = 0; i < used; i++) {
        const ignis__device *device = &ignis__devices[rows[i].device];
        double memory = ignis__rate_memory(device) * rows[i].ms,
               flops = ignis__rate_flops(device, (int)rows[i].dtype) * rows[i].ms;
        rows[i].memory_share = memory > 0 ? rows[i].bytes / memory : 0;
        rows[i].arithmetic_share = flops > 0 ? rows[i].flops / flops : 0;
    }
    if (rows)
        qsort(rows, (size_t)used, sizeof *rows, ignis__profile_order);
    *row_count = used;
    return rows;
}

/*  Writes a number of the table, or that it is unknown. */
IGNIS__COLD static void ignis__table_number(FILE *file, double value, const char *unit)
{
    if (value > 0)
        fprintf(file, " %9.3f%s", value, unit);
    else
        fprintf(file, " %9s%*s", "-", (int)strlen(unit), "");
}

IGNIS__COLD static bool ignis__table_write(const char *call, const char *path, const ignis_profile_row *rows, int count,
                                           size_t lost)
{
    FILE *file = ignis__report_open(call, path);
    double all = 0;
    int i;
    if (!file)
        return false;
    for (i = 0; i < count; i++)
        all += rows[i].ms;
    for (i = 0; i < ignis__device_total; i++)
        if (ignis__atomic_load(&ignis__devices[i].opened))
            fprintf(file,
                    "device %d: %s; by its clocks and units %.2f TB/s, %.1f TFLOP/s of 16-bit types, %.1f of f32\n", i,
                    ignis__devices[i].info.name, ignis__rate_memory(&ignis__devices[i]) * 1e-9,
                    ignis__rate_flops(&ignis__devices[i], IGNIS_BF16) * 1e-9,
                    ignis__rate_flops(&ignis__devices[i], IGNIS_F32) * 1e-9);
    fprintf(file, "%llu items were too many, or had no events\n%-72s %6s %7s %10s %6s %9s %9s %7s %9s %9s %7s %6s\n",
            (unsigned long long)lost, "kernel", "device", "count", "ms", "share", "GB", "TB/s", "of it", "GFLOP",
            "TFLOP/s", "of it", "bound");
    for (i = 0; i < count; i++) {
        const ignis_profile_row *row = &rows[i];
        double memory = 100 * row->memory_share, flops = 100 * row->arithmetic_share;
        fprintf(file, "%-72s %6d %7lld %10.3f %5.1f%%", row->name, row->device, (long long)row->count, row->ms,
                all > 0 ? 100 * row->ms / all : 0);
        ignis__table_number(file, row->bytes * 1e-9, "");
        ignis__table_number(file, row->ms > 0 ? row->bytes / row->ms * 1e-9 : 0, "");
        fprintf(file, memory > 0 ? " %6.1f%%" : "       -", memory);
        ignis__table_number(file, row->flops * 1e-9, "");
        ignis__table_number(file, row->ms > 0 ? row->flops / row->ms * 1e-9 : 0, "");
        fprintf(file, flops > 0 ? " %6.1f%%" : "       -", flops);
        fprintf(file, " %6s\n", memory <= 0 && flops <= 0 ? "-" : flops > memory ? "flops" : "memory");
    }
    return ignis__report_close(call, path, file);
}

/*  Writes one span of a host thread (process 0), or of a stream of a device (process 1 and up). Times in
    microseconds. */
IGNIS__COLD static void ignis__trace_span(FILE *file, const ignis__trace_item *traced, const char *name,
                                          const char *kind, int process, int thread, double at, double took)
{
    fprintf(file, ",\n{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %s, \"dur\": %s, \"cat\": \"%s\", \"name\": ",
            process, thread, ignis__point_write(at).text, ignis__point_write(took).text, kind);
    ignis__json_text(file, name);
    fprintf(file, ", \"args\": {\"call\": \"%s\"", traced->call);
    if (traced->bytes > 0)
        fprintf(file, ", \"bytes\": %.0f", traced->bytes);
    if (traced->flops > 0)
        fprintf(file, ", \"flops\": %.0f", traced->flops);
    if (traced->file) {
        fprintf(file, ", \"line\": %d, \"file\": ", traced->line);
        ignis__json_text(file, traced->file);
    }
    fprintf(file, "}}");
}

IGNIS__COLD static bool ignis__trace_write(const char *call, const char *path, const ignis__trace_item *items,
                                           size_t count, int64_t begin_ns)
{
    FILE *file = ignis__report_open(call, path);
    void *streams[64];
    int i, used = 0, threads = 0;
    size_t k;
    if (!file)
        return false;
    fprintf(file, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n{\"ph\": \"M\", \"pid\": 0, \"name\": "
                  "\"process_name\", \"args\": {\"name\": "
                  "\"host\"}}");
    for (i = 0; i < ignis__device_total; i++) {
        if (!ignis__atomic_load(&ignis__devices[i].opened))
            continue;
        fprintf(file, ",\n{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_name\", \"args\": {\"name\": ", i + 1);
        ignis__json_text(file, ignis__devices[i].info.name);
        fprintf(file, "}}");
    }
    for (k = 0; k < count; k++) {
        const ignis__trace_item *traced = &items[k];
        double at = (double)(traced->begin_ns - begin_ns) * 1e-3,
               took = (double)(traced->end_ns - traced->begin_ns) * 1e-3;
        threads = traced->thread > threads ? traced->thread : threads;
        if (traced->kind == IGNIS__TRACED_MEMORY) {
            fprintf(file,
                    ",\n{\"ph\": \"C\", \"pid\": %d, \"ts\": %s, \"name\": \"memory\", \"args\": {\"in use\": %.0f, "
                    "\"reserved\": %.0f}}",
                    traced->device + 1, ignis__point_write(at).text, traced->bytes, traced->flops);
        } else if (traced->kind == IGNIS__TRACED_CALL) {
            ignis__trace_span(file, traced, traced->call, "call", 0, traced->thread, at, took);
        } else if (traced->ms >= 0) {
            static const char *const kinds[] = {"call", "kernel", "copy", "graph", "collective", "memory"};
            double on_device = (double)(traced->at_ns - begin_ns) * 1e-3;
            bool collective =
                strncmp(traced->call, "ignis_comm", 10) == 0 || strncmp(traced->call, "ignis_parallel", 14) == 0;
            for (i = 0; i < used && streams[i] != traced->stream; i++)
                ;
            if (i == used && used < IGNIS__COUNT(streams))
                streams[used++] = traced->stream;
            ignis__trace_span(file, traced, traced->name, "queue", 0, traced->thread, at, took);
            ignis__trace_span(file, traced, traced->name, collective ? "collective" : kinds[traced->kind],
                              traced->device + 1, i + 1, on_device, traced->ms * 1e3);
            fprintf(file,
                    ",\n{\"ph\": \"s\", \"id\": %llu, \"pid\": 0, \"tid\": %d, \"ts\": %s, \"cat\": \"queue\", "
                    "\"name\": \"queue\"}"
                    ",\n{\"ph\": \"f\", \"bp\": \"e\", \"id\": %llu, \"pid\": %d, \"tid\": %d, \"ts\": %s, \"cat\": "
                    "\"queue\", \"name\": "
                    "\"queue\"}",
                    (unsigned long long)k, traced->thread, ignis__point_write(at).text, (unsigned long long)k,
                    traced->device + 1, i + 1, ignis__point_write(on_device).text);
        }
    }
    for (i = 1; i <= threads; i++)
        fprintf(file,
                ",\n{\"ph\": \"M\", \"pid\": 0, \"tid\": %d, \"name\": \"thread_name\", \"args\": {\"name\": \"thread "
                "%d\"}}",
                i, i);
    fprintf(file, "]}\n");
    return ignis__report_close(call, path, file);
}

/*  Waits for the open devices, and calls `each` with each of them, entered. */
IGNIS__COLD static bool ignis__profile_devices(const char *call, ignis__trace_item *items, size_t count, bool begins)
{
    ignis__binding binding;
    bool ok = true;
    int i;
    for (i = 0; i < ignis__device_total; i++) {
        if (!ignis__atomic_load(&ignis__devices[i].opened))
            continue;
        if (!ignis__device_enter(call, &ignis__devices[i], &binding)) {
            ok = false;
            continue;
        }
        ok = ignis__device_wait(call, &ignis__devices[i]) && ok;
        if (begins)
            ignis__profile_base(&ignis__devices[i]);
        else
            ignis__profile_read_times(i, items, count);
        ignis__device_leave(&binding);
    }
    return ok;
}

static ignis__mutex ignis__profile_session_lock = IGNIS__MUTEX_INIT; /* held while a profile begins or ends */

IGNIS__COLD IGNIS_API ignis_status ignis_profile_begin(void)
{
    static const char call[] = "ignis_profile_begin";
    bool ok = false;
    if (!ignis__enter(call) || ignis__capture_refuses(call))
        return ignis__failed();
    if (ignis__global.dry_run)
        return ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "this is a dry run: nothing runs, and nothing takes time");
    ignis__mutex_lock(&ignis__profile_session_lock);
    if (ignis__profiling()) {
        ignis__fail(IGNIS_DIAG_PROFILE_STATE, call, "a profile is begun already; call ignis_profile_end first");
    } else {
        ignis__profile_drop(NULL, 0);
        ok = ignis__profile_devices(call, NULL, 0, true);
        ignis__mutex_lock(&ignis__profile_lock);
        ignis__profile.begin_ns = ignis__monotonic_ns();
        ignis__mutex_unlock(&ignis__profile_lock);
        ignis__atomic_store(&ignis__profile.on, ok);
    }
    ignis__mutex_unlock(&ignis__profile_session_lock);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_profile_end(const char *trace, const char *table)
{
    static const char call[] = "ignis_profile_end";
    ignis_profile_row *rows;
    ignis__trace_item *items;
    size_t count, lost;
    int64_t begin_ns;
    int row_count = 0, threads;
    bool ok;
    if (!ignis__enter(call) || ignis__capture_refuses(call))
        return ignis__failed();
    ignis__mutex_lock(&ignis__profile_session_lock);
    if (!ignis__profiling()) {
        ignis__mutex_unlock(&ignis__profile_session_lock);
        return ignis__fail(IGNIS_DIAG_PROFILE_STATE, call, "no profile is begun; call ignis_profile_begin first");
    }
    ignis__mutex_lock(&ignis__profile_lock);
    ignis__atomic_store(&ignis__profile.on, 0);
    items = ignis__profile.items;
    count = ignis__profile.count;
    lost = ignis__profile.lost;
    begin_ns = ignis__profile.begin_ns;
    threads = ignis__profile.threads;
    ignis__profile.items = NULL;
    ignis__profile.count = ignis__profile.capacity = ignis__profile.lost = 0;
    ignis__mutex_unlock(&ignis__profile_lock);
    ok = ignis__profile_devices(call, items, count, false);
    ignis__profile_charge_bytes(items, count, threads);
    rows = ignis__profile_sum(items, count, &row_count);
    if (!rows) {
        ignis__fail_host_memory(call, (count + 1) * sizeof *rows);
        ok = false;
    }
    if (trace)
        ok = ignis__trace_write(call, trace, items, count, begin_ns) && ok;
    if (table && rows)
        ok = ignis__table_write(call, table, rows, row_count, lost) && ok;
    ignis__profile_drop(items, count);
    if (rows) {
        ignis__free(ignis__profile.rows);
        ignis__profile.rows = rows;
        ignis__profile.row_count = row_count;
    }
    ignis__mutex_unlock(&ignis__profile_session_lock);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API int ignis_profile_rows(ignis_profile_row *rows, int capacity)
{
    static const char call[] = "ignis_profile_rows";
    int count;
    if (!ignis__enter(call) || !ignis__check_capacity(call, "rows", rows, capacity))
        return -1;
    ignis__mutex_lock(&ignis__profile_session_lock);
    count = ignis__profile.row_count;
    if (count > 0 && capacity > 0)
        memcpy(rows, ignis__profile.rows, (size_t)(count < capacity ? count : capacity) * sizeof *rows);
    ignis__mutex_unlock(&ignis__profile_session_lock);
    return count;
}

/*  Drops an open profile, and the rows of earlier ones. */
IGNIS__COLD IGNIS__PRIVATE void ignis__profile_close(void)
{
    int i, threads = ignis__profile.threads;
    ignis__atomic_store(&ignis__profile.on, 0);
    ignis__profile_drop(ignis__profile.items, ignis__profile.count);
    ignis__free(ignis__profile.rows);
    for (i = 0; i < IGNIS__COUNT(ignis__profile.named); i++) {
        while (ignis__profile.named[i]) {
            ignis__named_function *next = ignis__profile.named[i]->next;
            ignis__free(ignis__profile.named[i]);
            ignis__profile.named[i] = next;
        }
    }
    memset(&ignis__profile, 0, sizeof ignis__profile);
    ignis__profile.threads = threads; /* which have their numbers */
}
