/*  builtin.c - loads and launches built-in kernels

    A source is one program a dtype, loaded at the first use of one of its kernels; variants with other options are
    programs of their own. Loaded code is kept for each device and table. Locks: ignis__builtin_lock and
    ignis__variants.lock, neither while anything is compiled or loaded. */

#include "room.h"

/*  Finds the name of a kernel's part. */
IGNIS__PRIVATE const char *ignis__builtin_part(ignis__builtin builtin)
{
    const ignis__kernel_table *table = ignis__table_of_builtin(builtin);
    int i;
    for (i = 0; i < table->part_count; i++)
        if (builtin->number >= table->parts[i].first && builtin->number <= table->parts[i].last)
            return table->parts[i].name;
    return builtin->entry;
}

/*  Makes the program of a source, without its text. */
static ignis__program ignis__program_of(const ignis__source *source, const char *part)
{
    ignis__program program = IGNIS__ZERO;
    program.own = source;
    program.name = source->name;
    program.part = part;
    return program;
}

/*  Records a built-in kernel that this or another device would choose; `define`: options after that of the dtype,
    separated by spaces. */
IGNIS__COLD IGNIS__PRIVATE void ignis__record_builtin(ignis__builtin builtin, ignis_dtype dtype, const char *define,
                                                      int first, int last)
{
    ignis__program program = ignis__program_of(builtin->source, ignis__builtin_part(builtin));
    char option[256];
    const char *options[] = {option};
    snprintf(option, sizeof option, "-DIGNIS_T=%d%s%s", (int)dtype, *define ? " " : "", define);
    program.options = options;
    program.option_count = 1;
    ignis__request_add(&program, first, last);
}

/*  Records a built-in kernel for all devices that have it. */
IGNIS__PRIVATE void ignis__record_builtin_for_all(ignis__builtin builtin, ignis_dtype dtype)
{
    ignis__program program;
    int first, last;
    if (!ignis__requests.path[0])
        return;
    program = ignis__program_of(builtin->source, NULL);
    ignis__program_range(&program, &first, &last);
    ignis__record_builtin(builtin, dtype, "", first, last);
}

/*  Checks whether the bundle has a kernel with these options, for devices of a compute capability; 0: for any. */
IGNIS__PRIVATE bool ignis__bundle_has(const ignis__bundle *bundle, ignis__builtin builtin, ignis_dtype dtype,
                                      const char *define, int capability)
{
    char name[256];
    uint32_t i;
    if (!bundle->data)
        return false;
    snprintf(name, sizeof name, "%s %s -DIGNIS_T=%d%s%s", builtin->source->name, ignis__builtin_part(builtin),
             (int)dtype, *define ? " " : "", define);
    for (i = 0; i < bundle->header.count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        if (strcmp(ignis__bundle_text(bundle, &entry), name) == 0 &&
            (!capability || ignis__bundle_serves(&entry, capability)))
            return true;
    }
    return false;
}

static ignis__mutex ignis__builtin_lock = IGNIS__MUTEX_INIT; /* guards everything that is made once per device */

/*  Returns the loaded code of a table on a device, and allocates it at the first use. NULL on failure. */
static ignis__builtin_code *ignis__builtin_code_get(const char *call, const ignis__device *device,
                                                    ignis__kernel_table *table)
{
    uint64_t *place = &table->code[device - ignis__devices];
    ignis__builtin_code *code = (ignis__builtin_code *)(uintptr_t)ignis__atomic_load(place);
    size_t modules = (size_t)table->source_count * IGNIS_DTYPE_COUNT,
           functions = (size_t)table->builtin_count * IGNIS_DTYPE_COUNT;
    if (code)
        return code;
    ignis__mutex_lock(&ignis__builtin_lock);
    code = (ignis__builtin_code *)(uintptr_t)ignis__atomic_load(place);
    if (!code) {
        code = (ignis__builtin_code *)ignis__alloc_for(call, sizeof *code + modules * sizeof(ignis__module) +
                                                                 functions * sizeof(uint64_t));
        if (code) {
            code->modules = (ignis__module *)(void *)(code + 1);
            code->functions = (uint64_t *)(void *)(code->modules + modules);
        }
        ignis__atomic_store(place, (uint64_t)(uintptr_t)code);
    }
    ignis__mutex_unlock(&ignis__builtin_lock);
    return code;
}

/*  Compiles a source for a dtype, with more options (NULL: none), and loads it on an entered device; a part of it
    from a bundle (NULL: all). */
IGNIS__COLD IGNIS__PRIVATE bool ignis__builtin_make(const char *call, ignis__device *device,
                                                    const ignis__source *source, const char *part, ignis_dtype dtype,
                                                    const char *defines, ignis__module *unit)
{
    ignis__program program = ignis__program_of(source, part);
    char dtype_define[32], copy[IGNIS__DEFINES];
    const char *options[12];
    char *text = ignis__source_join(source), *at;
    bool made;
    if (!text) {
        ignis__fail_host_memory(call, 1);
        return false;
    }
    snprintf(dtype_define, sizeof dtype_define, "-DIGNIS_T=%d", (int)dtype);
    options[program.option_count++] = dtype_define;
    snprintf(copy, sizeof copy, "%s", defines ? defines : "");
    for (at = copy; *at && program.option_count < IGNIS__COUNT(options); at += strcspn(at, " ")) {
        if (*at == ' ')
            *at++ = 0;
        options[program.option_count++] = at;
    }
    program.source = text;
    program.options = options;
    made = ignis__module_make(call, device, &program, unit);
    ignis__free(text);
    return made;
}

/*  Loads the module of a kernel's source for a dtype on an entered device. NULL on failure. */
IGNIS__COLD static ignis__module *ignis__builtin_module(const char *call, ignis__device *device,
                                                        ignis__builtin_code *code, ignis__builtin builtin,
                                                        ignis_dtype dtype)
{
    const ignis__source *source = builtin->source;
    ignis__module *place = &code->modules[source->number * IGNIS_DTYPE_COUNT + (int)dtype];
    ignis__module made;
    bool loaded;
    ignis__mutex_lock(&ignis__builtin_lock);
    loaded = place->module != NULL;
    ignis__mutex_unlock(&ignis__builtin_lock);
    if (loaded)
        return place;
    if (!ignis__builtin_make(call, device, source, ignis__builtin_part(builtin), dtype, NULL, &made))
        return NULL;
    ignis__mutex_lock(&ignis__builtin_lock); /* another thread may have been as fast, and its functions be in use */
    loaded = place->module != NULL;
    if (!loaded)
        *place = made;
    ignis__mutex_unlock(&ignis__builtin_lock);
    if (loaded)
        ignis__module_unload(&made);
    return place;
}

IGNIS__PRIVATE struct ignis__variants_type ignis__variants = {IGNIS__MUTEX_INIT, {0}};

static ignis__variant *ignis__variant_find(const ignis__device *device, ignis__builtin builtin, ignis_dtype dtype,
                                           const char *define)
{
    ignis__variant *variant;
    ignis__mutex_lock(&ignis__variants.lock);
    for (variant = ignis__variants.first[device - ignis__devices]; variant; variant = variant->next)
        if (variant->builtin == builtin && variant->dtype == dtype && strcmp(variant->define, define) == 0)
            break;
    ignis__mutex_unlock(&ignis__variants.lock);
    return variant;
}

/*  Checks whether a variant can be compiled, or was recorded for this kind of device. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__variant_exists(const ignis__device *device, ignis__builtin builtin,
                                                              ignis_dtype dtype, const char *define)
{
    return !ignis__compile_never || ignis__variant_find(device, builtin, dtype, define) ||
           ignis__bundle_has(&ignis__the_bundle, builtin, dtype, define, ignis__capability(&device->info));
}

/*  Returns the function of a kernel in its module. If the kernel should wait by itself and cannot, it is not launched
    early. */
IGNIS__COLD static bool ignis__builtin_function(const char *call, ignis__device *device, ignis__builtin builtin,
                                                const ignis__module *unit, void **function)
{
    bool waits = true;
    if (!ignis__function_get(call, device, unit, builtin->entry, function) ||
        (builtin->how != IGNIS__KERNEL_PLAIN && !ignis__function_waits(call, device, *function, &waits)))
        return false;
    if (!waits)
        ignis__atomic_store(&device->no_dependents, 1);
    return true;
}

/*  Launches a built-in kernel, early if it waits by itself. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__builtin_launch(const ignis__work *work, ignis__builtin builtin, void *function,
                                                        const unsigned grid[3], const unsigned block[3],
                                                        unsigned shared, void **params)
{
    int how = builtin->how;
    return ignis__launch_as(work, function, grid, block, shared, params,
                            how != IGNIS__KERNEL_PLAIN && !ignis__atomic_load(&work->device->no_dependents),
                            how == IGNIS__KERNEL_TOGETHER);
}

IGNIS__PRIVATE void *ignis__builtin_get_variant(const char *call, ignis__device *device, ignis__builtin builtin,
                                                ignis_dtype dtype, const char *define)
{
    ignis__variant *variant = ignis__variant_find(device, builtin, dtype, define);
    IGNIS_ASSERT(strlen(define) < IGNIS__DEFINES);
    if (variant)
        return variant->function;
    variant = (ignis__variant *)ignis__alloc_for(call, sizeof *variant);
    if (!variant)
        return NULL;
    variant->builtin = builtin;
    variant->dtype = dtype;
    snprintf(variant->define, sizeof variant->define, "%s", define);
    if (!ignis__builtin_make(call, device, builtin->source, ignis__builtin_part(builtin), dtype, define,
                             &variant->module) ||
        !ignis__builtin_function(call, device, builtin, &variant->module, &variant->function)) {
        ignis__module_unload(&variant->module);
        ignis__free(variant);
        return NULL;
    }
    ignis__mutex_lock(&ignis__variants.lock); /* two threads may make the same one; both stay, and the newer is found */
    variant->next = ignis__variants.first[device - ignis__devices];
    ignis__variants.first[device - ignis__devices] = variant;
    ignis__mutex_unlock(&ignis__variants.lock);
    return variant->function;
}

/*  Returns the function of a built-in kernel on an entered device. NULL on failure. */
IGNIS__PRIVATE void *ignis__builtin_get(const char *call, ignis__device *device, ignis__builtin builtin,
                                        ignis_dtype dtype)
{
    ignis__kernel_table *table = ignis__table_of_builtin(builtin);
    ignis__builtin_code *code = ignis__builtin_code_get(call, device, table);
    uint64_t *place;
    void *function;
    ignis__module *unit;
    if (!code)
        return NULL;
    place = &code->functions[(builtin->number - table->first) * IGNIS_DTYPE_COUNT + (int)dtype];
    function = (void *)(uintptr_t)ignis__atomic_load(place);
    if (function)
        return function;
    ignis__record_builtin_for_all(builtin, dtype);
    if (ignis__bundle_has(&ignis__the_bundle, builtin, dtype, "", 0)) { /* if the kernel has a module of its own */
        function = ignis__builtin_get_variant(call, device, builtin, dtype, "");
        ignis__atomic_store(place, (uint64_t)(uintptr_t)function);
        return function;
    }
    unit = ignis__builtin_module(call, device, code, builtin, dtype);
    if (!unit || !ignis__builtin_function(call, device, builtin, unit, &function))
        return NULL;
    ignis__atomic_store(place, (uint64_t)(uintptr_t)function);
    return function;
}
