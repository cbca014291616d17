/*  kernel/user_kernel.c - kernels of the caller: compiled, queried, reloaded, freed

    A kernel has code per device, loaded at the first use there. Handles of ignis_kernel_entry share one program. A
    reload adds a newer program and keeps the older ones, so that launches need no lock.
    May use: module.c, function.c. Locks: the slot's lock guards code and replacements. */

#include "room.h"

IGNIS__PRIVATE ignis__pool ignis__kernels = IGNIS__POOL_NAMED(
    ignis__kernel, IGNIS__KIND_KERNEL, "kernel", IGNIS_DIAG_KERNEL_FREED, offsetof(ignis__kernel, tombstone));

IGNIS__PRIVATE ignis__kernel *ignis__kernel_hold(const char *call, ignis_kernel handle)
{
    return (ignis__kernel *)ignis__handle_hold(call, &ignis__kernels, handle.id);
}

/*  Returns the program that launches of a held kernel run. */
IGNIS__INLINE IGNIS__PRIVATE ignis__kernel *ignis__kernel_current(ignis__kernel *kernel)
{
    ignis__kernel *owner = kernel->shares ? kernel->shares : kernel;
    ignis__kernel *newest = (ignis__kernel *)(uintptr_t)ignis__atomic_load(&owner->newest);
    return newest ? newest : owner;
}

IGNIS__COLD static void ignis__kernel_code_free(ignis__kernel_code *code)
{
    while (code) {
        ignis__kernel_code *next = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&code->entries);
        ignis__free(code->entry);
        ignis__free(code);
        code = next;
    }
}

IGNIS__COLD IGNIS__PRIVATE void ignis__kernel_unload(const char *call, ignis__kernel *kernel)
{
    int i;
    for (i = 0; i < ignis__device_total; i++) {
        ignis__kernel_code *code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&kernel->code[i]);
        if (code)
            ignis__module_unload_when_idle(call, &ignis__devices[i], &code->module);
        ignis__kernel_code_free(code);
    }
    ignis__free(kernel->memory);
    ignis__free(kernel->entry);
}

IGNIS__COLD static void ignis__kernel_destroy(const char *call, ignis__kernel *kernel)
{
    ignis__kernel *version = (ignis__kernel *)(uintptr_t)ignis__atomic_load(&kernel->newest), *older,
                  *shares = kernel->shares;
    for (; version; version = older) {
        older = version->older;
        ignis__kernel_unload(call, version);
        ignis__free(version);
    }
    ignis__kernel_unload(call, kernel);
    ignis__pool_recycle(&ignis__kernels, kernel);
    if (shares && ignis__pool_drop(shares))
        ignis__kernel_destroy(call, shares); /* which shares nobody's */
}

IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__kernel_drop(const char *call, ignis__kernel *kernel)
{
    if (ignis__pool_drop(kernel))
        ignis__kernel_destroy(call, kernel);
}

IGNIS__PRIVATE void ignis__kernel_drop_held(const char *call, void *item)
{
    ignis__kernel_drop(call, (ignis__kernel *)item);
}

IGNIS__COLD static bool ignis__kernel_read(const char *call, ignis__device *device, const ignis__module *unit,
                                           const char *name, ignis__kernel_code *code)
{
    size_t offset;
    int error = 0;
    if (!ignis__function_get(call, device, unit, name, &code->function) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute,
                           (&code->max_threads, IGNIS__CU_FUNC_MAX_THREADS, code->function)) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute,
                           (&code->static_shared, IGNIS__CU_FUNC_SHARED, code->function)) ||
        !ignis__function_waits(call, device, code->function, &code->waits))
        return false;
    code->params = -1;
    if (ignis__cuda.cuFuncGetParamInfo) {
        code->params = 0;
        while (code->params < IGNIS__MAX_PARAMS &&
               (error = IGNIS__CUDA(cuFuncGetParamInfo, (code->function, (size_t)code->params, &offset,
                                                         &code->param_size[code->params]))) == 0)
            code->params++;
    }
    return error == IGNIS__CU_INVALID_VALUE /* the number after the last parameter */ ||
           ignis__cuda_check(call, device, "cuFuncGetParamInfo", error) == IGNIS_OK;
}

/*  Finds the function of code->entry: an entry named at compilation, or a function of the module with this very
    name. */
IGNIS__COLD static bool ignis__kernel_read_entry(const char *call, ignis__device *device, const ignis__kernel *program,
                                                 const ignis__module *unit, ignis__kernel_code *code)
{
    int index = unit->lowered ? ignis__entry_index(program->program.entry, code->entry) : -1, error = 0;
    char *name = index >= 0 ? ignis__entry_copy(call, unit->lowered, index) : code->entry;
    bool ok = name != NULL;
    bool missing = false;
    void *function;
    if (ok) {
        error = IGNIS__CUDA(cuModuleGetFunction, (&function, unit->module, name));
        missing = error == IGNIS__CU_NOT_FOUND || error == IGNIS__CU_INVALID_VALUE; /* of an empty name it says that */
    }
    if (missing && index >= 0)
        ok = ignis__fail_false(IGNIS_DIAG_ENTRY_MISSING, call,
                               "%s has no __global__ function (or not exactly one) that is called '%s'",
                               program->program.image ? "desc.image" : program->program.name, code->entry);
    else if (missing)
        ok = ignis__fail_false(IGNIS_DIAG_ENTRY_MISSING, call,
                               "the program of kernel %s has no entry '%s': give desc.entry all names, \"%s; %s\", or "
                               "make it extern \"C\"",
                               program->entry, code->entry, program->entry, code->entry);
    ok = ok && ignis__kernel_read(call, device, unit, name, code);
    if (ok)
        ignis__function_name(code->function, code->entry); /* as the caller has written it */
    if (name != code->entry)
        ignis__free(name);
    return ok;
}

/*  Returns the kernel's code on an entered device, and loads it at the first use there. NULL on failure. */
IGNIS__COLD IGNIS__PRIVATE ignis__kernel_code *ignis__kernel_code_get(const char *call, ignis__device *device,
                                                                      ignis__kernel *kernel)
{
    uint64_t *place = &kernel->code[device - ignis__devices];
    ignis__kernel_code *code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(place), *made;
    if (code)
        return code;
    made = (ignis__kernel_code *)ignis__alloc_for(call, sizeof *made);
    if (!made)
        return NULL;
    made->entry = ignis__copy_string(kernel->entry);
    if (!made->entry)
        ignis__fail_host_memory(call, strlen(kernel->entry) + 1);
    else if (ignis__module_make(call, device, &kernel->program, &made->module) &&
             ignis__kernel_read_entry(call, device, kernel, &made->module, made)) {
        ignis__mutex_lock(&kernel->slot.lock); /* another thread may have been as fast, and its code be in use */
        code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(place);
        if (!code) {
            ignis__atomic_store(place, (uint64_t)(uintptr_t)made);
            code = made;
        }
        ignis__mutex_unlock(&kernel->slot.lock);
    }
    if (code != made) {
        ignis__module_unload(&made->module);
        ignis__kernel_code_free(made);
    }
    return code;
}

/*  Adds another entry of a loaded program. NULL on failure. */
IGNIS__COLD static ignis__kernel_code *ignis__kernel_code_make_entry(const char *call, ignis__device *device,
                                                                     ignis__kernel *program, ignis__kernel_code *code,
                                                                     const char *entry)
{
    ignis__kernel_code *made = (ignis__kernel_code *)ignis__alloc_for(call, sizeof *made);
    if (!made)
        return NULL;
    made->entry = ignis__copy_string(entry);
    if (!made->entry)
        ignis__fail_host_memory(call, strlen(entry) + 1);
    if (!made->entry || !ignis__kernel_read_entry(call, device, program, &code->module, made)) {
        ignis__kernel_code_free(made);
        return NULL;
    }
    ignis__mutex_lock(&program->slot.lock); /* two threads may both add it: both stay */
    made->entries = ignis__atomic_load(&code->entries);
    ignis__atomic_store(&code->entries, (uint64_t)(uintptr_t)made);
    ignis__mutex_unlock(&program->slot.lock);
    return made;
}

/*  Returns that entry, and adds it if necessary. */
IGNIS__PRIVATE ignis__kernel_code *ignis__kernel_code_entry(const char *call, ignis__device *device,
                                                            ignis__kernel *program, ignis__kernel_code *code,
                                                            const char *entry)
{
    ignis__kernel_code *found = code;
    while (found && strcmp(found->entry, entry) != 0)
        found = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&found->entries);
    return found ? found : ignis__kernel_code_make_entry(call, device, program, code, entry);
}

/*  Returns the code that launches of a held kernel run on an entered device, and its program. NULL on failure. */
IGNIS__INLINE IGNIS__PRIVATE ignis__kernel_code *ignis__kernel_code_of(const char *call, ignis__device *device,
                                                                       ignis__kernel *kernel)
{
    ignis__kernel *program = ignis__kernel_current(kernel);
    ignis__kernel_code *code = ignis__kernel_code_get(call, device, program);
    return code && kernel->shares ? ignis__kernel_code_entry(call, device, program, code, kernel->entry) : code;
}

IGNIS__PRIVATE ignis__program ignis__program_from(const ignis_kernel_desc *desc)
{
    ignis__program program = IGNIS__ZERO;
    program.source = desc->source;
    program.name = desc->name ? desc->name : "kernel.cu";
    program.entry = desc->entry;
    program.options = desc->options;
    program.option_count = desc->option_count;
    program.headers = desc->headers;
    program.header_count = desc->header_count;
    program.image = desc->image;
    program.image_size = desc->image_size;
    return program;
}

/*  Checks that entries have names, each once. */
IGNIS__COLD static bool ignis__kernel_entries_check(const char *call, const ignis_kernel_desc *desc)
{
    const char *list = desc->entry, *name;
    size_t length = 0;
    int i, same;
    if (!ignis__check_not_null(call, "desc.entry", desc->entry))
        return false;
    for (i = 0; (name = ignis__entry_next(&list, &length)) != NULL && length > 0; i++) {
        char *copy = ignis__entry_copy(call, desc->entry, i);
        if (!copy)
            return false;
        same = ignis__entry_index(desc->entry, copy);
        ignis__free(copy);
        if (same != i)
            return ignis__fail_false(IGNIS_DIAG_ENTRY_MISSING, call, "desc.entry is \"%s\", with one name twice",
                                     desc->entry);
    }
    if (i == 0 || name)
        return ignis__fail_false(IGNIS_DIAG_ENTRY_MISSING, call, "desc.entry is \"%s\", where a name is missing",
                                 desc->entry);
    return true;
}

/*  Checks a kernel with an image, in a copy that a 0 follows. */
IGNIS__COLD static bool ignis__kernel_image_check(const char *call, const ignis_kernel_desc *desc)
{
    const char *wrong;
    char *copy;
    if (desc->source || desc->option_count || desc->header_count)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.image is set, and desc.source, options or headers are; it is one or the other");
    if (!ignis__kernel_entries_check(call, desc))
        return false;
    copy = desc->image_size < IGNIS__BUNDLE_IMAGE ? (char *)ignis__alloc(desc->image_size + 1) : NULL;
    if (!copy)
        return ignis__fail_host_memory(call, desc->image_size) == IGNIS_OK;
    memcpy(copy, desc->image, desc->image_size);
    wrong = ignis__kernel_binary_fault(copy, desc->image_size);
    if (wrong)
        ignis__fail(IGNIS_DIAG_KERNEL_IMAGE, call, "desc.image of kernel %s, %llu bytes with the hash %016llx: %s",
                    desc->entry, (unsigned long long)desc->image_size,
                    (unsigned long long)ignis__hash(IGNIS__HASH_START, copy, desc->image_size), wrong);
    ignis__free(copy);
    return !wrong;
}

/*  Checks that a header has a text and a unique name: NVRTC refuses two of one name. */
IGNIS__COLD static bool ignis__kernel_header_check(const char *call, const ignis_kernel_desc *desc, int index)
{
    const ignis_kernel_header *header = &desc->headers[index];
    ignis__program before = ignis__program_from(desc);
    before.header_count = index;
    if (!header->name || !header->text)
        ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "desc.headers[%d].%s is null", index,
                    header->name ? "text" : "name");
    else if (ignis__header_is_known(&before, header->name, strlen(header->name)))
        ignis__fail(IGNIS_DIAG_KERNEL_HEADER, call,
                    "desc.headers[%d].name is \"%s\": a header before it, or one of Ignis, has that name", index,
                    header->name);
    else
        return true;
    return false;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__kernel_desc_check(const char *call, const ignis_kernel_desc *desc)
{
    int i;
    if (!ignis__check_not_null(call, "desc", desc))
        return false;
    if (desc->image)
        return ignis__kernel_image_check(call, desc);
    if (!ignis__check_not_null(call, "desc.source", desc->source) || !ignis__kernel_entries_check(call, desc))
        return false;
    if (desc->option_count < 0 || desc->option_count > IGNIS__MAX_OPTIONS)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "desc.option_count is %d, outside 0 to %d",
                                 desc->option_count, IGNIS__MAX_OPTIONS);
    if (desc->option_count > 0 && !ignis__check_not_null(call, "desc.options", desc->options))
        return false;
    if (desc->header_count < 0)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "desc.header_count is %d, below 0", desc->header_count);
    if (desc->header_count > 0 && !ignis__check_not_null(call, "desc.headers", desc->headers))
        return false;
    for (i = 0; i < desc->option_count; i++)
        if (!desc->options[i])
            return ignis__fail_false(IGNIS_DIAG_NULL_ARGUMENT, call, "desc.options[%d] is null", i);
    for (i = 0; i < desc->header_count; i++)
        if (!ignis__kernel_header_check(call, desc, i))
            return false;
    return true;
}

IGNIS__COLD static char *ignis__program_keep(char *at, const char **text)
{
    size_t size = strlen(*text) + 1;
    memcpy(at, *text, size);
    *text = at;
    return at + size;
}

/*  Copies a program, with all its strings, into memory of the kernel. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__kernel_keep(const char *call, ignis__kernel *kernel, ignis__program program)
{
    size_t option_bytes = (size_t)program.option_count * sizeof *program.options;
    size_t header_bytes = (size_t)program.header_count * sizeof *program.headers;
    size_t size = option_bytes + header_bytes + strlen(program.name) + strlen(program.entry) + 2;
    ignis_kernel_header *headers;
    const char **options;
    char *at;
    int i;
    size += program.image ? program.image_size + 1 : strlen(program.source) + 1;
    for (i = 0; i < program.option_count; i++)
        size += strlen(program.options[i]) + 1;
    for (i = 0; i < program.header_count; i++)
        size += strlen(program.headers[i].name) + strlen(program.headers[i].text) + 2;
    kernel->entry = ignis__entry_copy(call, program.entry, 0);
    kernel->memory = at = kernel->entry ? (char *)ignis__alloc_for(call, size) : NULL;
    if (!at) {
        ignis__free(kernel->entry);
        kernel->entry = NULL;
        return false;
    }
    options = (const char **)(void *)at;
    headers = (ignis_kernel_header *)(void *)(at + option_bytes);
    at += option_bytes + header_bytes;
    if (program.image) { /* at the beginning, as the driver may want it aligned */
        memcpy(at, program.image, program.image_size);
        program.image = at;
        at += program.image_size + 1;
    } else {
        at = ignis__program_keep(at, &program.source);
    }
    at = ignis__program_keep(at, &program.name);
    at = ignis__program_keep(at, &program.entry);
    for (i = 0; i < program.option_count; i++) {
        options[i] = program.options[i];
        at = ignis__program_keep(at, &options[i]);
    }
    for (i = 0; i < program.header_count; i++) {
        headers[i] = program.headers[i];
        at = ignis__program_keep(at, &headers[i].name);
        at = ignis__program_keep(at, &headers[i].text);
    }
    program.options = options;
    program.headers = headers;
    kernel->program = program;
    return true;
}

IGNIS__COLD IGNIS_API ignis_kernel ignis_kernel_compile(const ignis_kernel_desc *desc)
{
    static const char call[] = "ignis_kernel_compile";
    ignis_kernel handle = IGNIS__ZERO;
    ignis__kernel *kernel;
    ignis__binding binding;
    ignis__device *device;
    if (!ignis__enter(call) || !ignis__kernel_desc_check(call, desc) ||
        (device = ignis__device_current_enter(call, &binding)) == NULL)
        return handle;
    kernel = (ignis__kernel *)ignis__pool_take_zeroed(call, &ignis__kernels);
    if (kernel && !ignis__kernel_keep(call, kernel, ignis__program_from(desc))) {
        ignis__pool_recycle(&ignis__kernels, kernel);
    } else if (kernel) {
        kernel->file = ignis__this_thread.file;
        kernel->line = ignis__this_thread.line;
        if (ignis__kernel_code_get(call, device, kernel))
            handle.id = ignis__pool_publish(&ignis__kernels, kernel);
        else
            ignis__kernel_destroy(call, kernel);
    }
    ignis__device_leave(&binding);
    return handle;
}

/*  Makes a handle for an entry of a held kernel's program, not yet published. */
IGNIS__COLD static ignis__kernel *ignis__kernel_make_entry(const char *call, ignis__kernel *kernel, const char *entry)
{
    ignis__kernel *made = (ignis__kernel *)ignis__pool_take_zeroed(call, &ignis__kernels);
    if (!made)
        return NULL;
    made->shares = kernel->shares ? kernel->shares : kernel;
    (void)ignis__pool_hold_more(made->shares);
    made->file = ignis__this_thread.file;
    made->line = ignis__this_thread.line;
    made->entry = ignis__copy_string(entry);
    if (made->entry)
        return made;
    ignis__fail_host_memory(call, strlen(entry) + 1);
    ignis__kernel_destroy(call, made);
    return NULL;
}

IGNIS__COLD IGNIS_API ignis_kernel ignis_kernel_entry(ignis_kernel handle, const char *entry)
{
    static const char call[] = "ignis_kernel_entry";
    ignis_kernel result = IGNIS__ZERO;
    ignis__kernel *kernel = ignis__kernel_hold(call, handle), *made;
    ignis__binding binding;
    ignis__device *device;
    if (!kernel)
        return result;
    if (ignis__check_not_null(call, "entry", entry) && (device = ignis__device_current_enter(call, &binding)) != NULL) {
        made = ignis__kernel_make_entry(call, kernel, entry);
        if (made && ignis__kernel_code_of(call, device, made))
            result.id = ignis__pool_publish(&ignis__kernels, made);
        else if (made)
            ignis__kernel_destroy(call, made);
        ignis__device_leave(&binding);
    }
    ignis__kernel_drop(call, kernel);
    return result;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__kernel_kill(ignis__kernel *kernel)
{
    ignis__mutex_lock(&kernel->slot.lock);
    ignis__tombstone_write(&kernel->tombstone, &kernel->slot, 0, kernel->entry);
    ignis__mutex_unlock(&kernel->slot.lock);
    return ignis__handle_kill(kernel);
}

IGNIS__COLD IGNIS_API ignis_status ignis_kernel_free(ignis_kernel handle)
{
    static const char call[] = "ignis_kernel_free";
    const uint64_t failures = ignis__failures();
    ignis__kernel *kernel;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    kernel = ignis__kernel_hold(call, handle);
    if (!kernel)
        return ignis__failed();
    if (ignis__capture_refuses(call)) {
        ignis__kernel_drop(call, kernel);
        return ignis__failed();
    }
    live = ignis__kernel_kill(kernel);
    if (!live)
        ignis__fail_stale(call, &ignis__kernels, handle.id);
    ignis__kernel_drop(call, kernel);
    return ignis__ended(failures, live);
}
