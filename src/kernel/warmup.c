/*  kernel/warmup.c - ignis_warmup and ignis_warmup_record

    Compiles programs on all cores before their first use. A failure is kept per job; the first one is reported.
    May use: builtin.c, module.c, record_read.c, base/thread_pool.c, array/ticket.c. Locks: those of the programs,
    one at a time. */

#include "room.h"

/*  Jobs are the built-in programs (`own` of them), then the caller's or those of a record. Each keeps its failure for
    the caller. */
typedef struct ignis__warmup {
    const char *call;
    ignis__device *device;
    int own, count;
    const ignis_kernel_desc *descs;
    ignis__record *records;
    ignis__request *requests; /* instead of descs */
    char *text, *path;        /* of the record, in memory of Ignis */
    ignis__request_reader *read_formula;
} ignis__warmup;

IGNIS__COLD static void ignis__warmup_builtin(const ignis__warmup *warmup, const ignis__source *source,
                                              ignis_dtype dtype)
{
    ignis__builtin builtin;
    int i;
    if ((int)dtype > ignis__source_dtypes(source))
        return;
    for (i = 0; (builtin = ignis__builtin_of_source(source, i)) != NULL; i++)
        if (!ignis__compile_never || ignis__bundle_has(&ignis__the_bundle, builtin, dtype, "", 0))
            ignis__builtin_get(warmup->call, warmup->device, builtin, dtype);
}

IGNIS__COLD static void ignis__warmup_program(const ignis__warmup *warmup, int index)
{
    ignis__request *request = warmup->requests ? &warmup->requests[index] : NULL;
    ignis__program program = request ? request->program : ignis__program_from(&warmup->descs[index]);
    ignis__module module;
    ignis__outer_call outer;
    char where[300], *source = NULL;
    if (request) {
        snprintf(where, sizeof where, "line %d of %s", request->line, warmup->path);
        ignis__outer_call_begin(&outer, where, NULL);
        program.options = request->options;
    }
    if (program.own) {
        program.source = source = ignis__source_join(program.own);
        if (!source)
            ignis__fail_host_memory(warmup->call, 1);
    }
    if ((program.source || program.image) && ignis__module_make(warmup->call, warmup->device, &program, &module))
        ignis__module_unload(&module); /* its image stays in the caches */
    ignis__free(source);
    if (request)
        ignis__outer_call_end(&outer);
}

IGNIS__COLD static void ignis__warmup_job(void *context, int index)
{
    ignis__warmup *warmup = (ignis__warmup *)context;
    ignis__thread *thread = &ignis__this_thread;
    ignis__record before = thread->record;
    ignis__binding binding;
    memset(&thread->record, 0, sizeof thread->record);
    if (ignis__device_enter(warmup->call, warmup->device, &binding)) {
        if (index < warmup->own)
            ignis__warmup_builtin(warmup, ignis__source_at(index / (IGNIS_DTYPE_COUNT - 1)),
                                  (ignis_dtype)(index % (IGNIS_DTYPE_COUNT - 1) + 1));
        else
            ignis__warmup_program(warmup, index - warmup->own);
        ignis__device_leave(&binding);
    }
    warmup->records[index] = thread->record;
    thread->record = before;
}

/*  Runs all jobs. The first failure becomes the thread's. */
IGNIS__COLD static ignis_status ignis__warmup_run(ignis__warmup *warmup)
{
    int count = warmup->own + warmup->count, i;
    ignis_status status = IGNIS_OK;
    warmup->records = (ignis__record *)ignis__alloc(sizeof(ignis__record) * (size_t)(count + 1));
    if (!warmup->records)
        return ignis__fail_host_memory(warmup->call, sizeof(ignis__record) * (size_t)(count + 1));
    ignis__parallel(count, ignis__warmup_job, warmup);
    for (i = 0; i < count; i++) {
        ignis__record *record = &warmup->records[i];
        if (record->status != IGNIS_OK && status == IGNIS_OK)
            status = record->status;
        if (record->status != IGNIS_OK)
            ignis__record_adopt(record);
    }
    ignis__free(warmup->records);
    return status;
}

IGNIS__COLD IGNIS_API ignis_status ignis_warmup(const ignis_kernel_desc *descs, int count)
{
    static const char call[] = "ignis_warmup";
    ignis__warmup warmup = IGNIS__ZERO;
    ignis__binding binding;
    int i;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    if (count > 0 && !ignis__check_not_null(call, "descs", descs))
        return ignis__failed();
    for (i = 0; i < count; i++)
        if (!ignis__kernel_desc_check(call, &descs[i]))
            return ignis__failed();
    warmup.device = ignis__device_current_enter(call, &binding);
    if (!warmup.device)
        return ignis__failed();
    ignis__device_leave(&binding);
    warmup.call = call;
    while (ignis__source_at(warmup.own / (IGNIS_DTYPE_COUNT - 1)))
        warmup.own += IGNIS_DTYPE_COUNT - 1;
    warmup.count = count;
    warmup.descs = descs;
    return ignis__warmup_run(&warmup);
}

static const char ignis__warmup_record_call[] = "ignis_warmup_record";

IGNIS__COLD static void ignis__warmup_free(ignis__warmup *warmup)
{
    while (warmup->count > 0)
        ignis__request_free(&warmup->requests[--warmup->count]);
    ignis__free(warmup->requests);
    ignis__free(warmup->text);
    ignis__free(warmup->path);
    ignis__free(warmup);
}

IGNIS__COLD static void ignis__warmup_background(void *context)
{
    (void)ignis__warmup_run((ignis__warmup *)context);
    ignis__warmup_free((ignis__warmup *)context);
}

/*  Checks that a request is for a device, and that no earlier request compiles the same: for built-in sources that is
    the whole source. */
IGNIS__COLD static bool ignis__warmup_takes(const ignis__warmup *warmup, const ignis__request *request)
{
    const ignis_device_info *info = &warmup->device->info;
    int capability = ignis__capability(info), i;
    uint64_t key[2], other[2];
    ignis__program whole = request->program;
    if (!whole.name || capability < request->first || capability > request->last)
        return false;
    if (request->program.own && strstr(whole.name, "hopper") && !ignis__wgmma_compiles(warmup->call))
        return false;
    if (!ignis__the_bundle.data)
        whole.part = NULL;
    ignis__program_key(&whole, key);
    for (i = 0; i < warmup->count; i++) {
        whole = warmup->requests[i].program;
        if (!ignis__the_bundle.data)
            whole.part = NULL;
        ignis__program_key(&whole, other);
        if (key[0] == other[0] && key[1] == other[1])
            return false;
    }
    return true;
}

/*  Reads the requests of a record for the device. */
IGNIS__COLD static bool ignis__warmup_read(ignis__warmup *warmup)
{
    char *line, *end, reason[300];
    int lines = 1;
    ignis__string_writer why;
    for (line = warmup->text; (line = strchr(line, '\n')) != NULL; line++)
        lines++;
    warmup->requests = (ignis__request *)ignis__alloc_for(warmup->call, (size_t)lines * sizeof *warmup->requests);
    if (!warmup->requests)
        return false;
    lines = 0;
    for (line = warmup->text; line; line = end) {
        ignis__request *request = &warmup->requests[warmup->count];
        end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        lines++;
        ignis__string_begin(&why, reason, sizeof reason);
        if (!ignis__request_read(line, warmup->read_formula, request, &why))
            return ignis__fail_false(IGNIS_DIAG_BUNDLE_FORMAT, warmup->call, "line %d of %s is not a record line: %s",
                                     lines, warmup->path, reason);
        request->line = lines;
        if (ignis__warmup_takes(warmup, request))
            warmup->count++;
        else
            ignis__request_free(request);
    }
    return true;
}

/*  Does what ignis_warmup_record says; read_formula as in ignis__request_read. */
IGNIS__COLD IGNIS__PRIVATE ignis_ticket ignis__warmup_record(const char *path, ignis__request_reader *read_formula)
{
    static const char *const call = ignis__warmup_record_call;
    ignis_ticket result = IGNIS__ZERO;
    ignis__ticket *ticket = NULL;
    ignis__warmup *warmup;
    ignis__device *device;
    ignis__binding binding;
    size_t size;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "path", path))
        return result;
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return result;
    ignis__device_leave(&binding);
    warmup = (ignis__warmup *)ignis__alloc_for(call, sizeof *warmup);
    if (!warmup)
        return result;
    memset(warmup, 0, sizeof *warmup);
    warmup->call = call;
    warmup->device = device;
    warmup->read_formula = read_formula;
    warmup->path = ignis__copy_string(path);
    warmup->text = (char *)ignis__file_read(path, &size);
    if (warmup->text)
        warmup->text[size] = 0;
    if (!warmup->path)
        ignis__fail_host_memory(call, strlen(path) + 1);
    else if (!warmup->text)
        ignis__fail_file(IGNIS_DIAG_BUNDLE_IO, call, path, "read");
    else if (memchr(warmup->text, 0, size))
        ignis__fail(IGNIS_DIAG_BUNDLE_FORMAT, call, "%s is not a record: it has bytes that are 0", path);
    else if (ignis__warmup_read(warmup))
        ticket = ignis__ticket_start(call, device, ignis__warmup_background, warmup);
    if (ticket)
        result.id = ignis__pool_publish(&ignis__tickets, ticket);
    else
        ignis__warmup_free(warmup);
    return result;
}

#ifdef IGNIS_NO_TENSORS /* else formula/kernel.c has it */
IGNIS__COLD IGNIS_API ignis_ticket ignis_warmup_record(const char *path) { return ignis__warmup_record(path, NULL); }
#endif
