/*  The name of a kernel's part. */
static const char *ignis__builtin_part(ignis__builtin builtin)
{
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__parts); i++)
        if (builtin >= ignis__parts[i].first && builtin <= ignis__parts[i].last)
            return ignis__builtins[ignis__parts[i].first].entry;
    return ignis__builtins[builtin].entry;
}

/*  Records a kernel of Ignis' own, which this device or another asks for; `define`: options behind that of the dtype, separated by spaces. */
IGNIS__COLD static void ignis__request_own(ignis__builtin builtin, ignis_dtype dtype, const char *define, int first, int last)
{
    ignis__program program = IGNIS__ZERO;
    char option[256];
    const char *options[] = {option};
    snprintf(option, sizeof option, "-DIGNIS_T=%d%s%s", (int)dtype, *define ? " " : "", define);
    program.name = ignis__sources[ignis__builtins[builtin].source].name;
    program.part = ignis__builtin_part(builtin);
    program.options = options;
    program.option_count = 1;
    ignis__request_add(&program, first, last);
}

/*  Records a kernel for all devices that have it. */
static void ignis__request_builtin(ignis__builtin builtin, ignis_dtype dtype)
{
    ignis__program program = IGNIS__ZERO;
    int first, last;
    if (!ignis__requests.path[0])
        return;
    program.name = ignis__sources[ignis__builtins[builtin].source].name;
    ignis__program_range(&program, &first, &last);
    ignis__request_own(builtin, dtype, "", first, last);
}

/*  Whether the bundle has a kernel with these options, for devices of a compute capability; 0: for any. */
static bool ignis__bundle_has(const ignis__bundle *bundle, ignis__builtin builtin, ignis_dtype dtype, const char *define, int capability)
{
    char name[256];
    uint32_t i;
    if (!bundle->data)
        return false;
    snprintf(name, sizeof name, "%s %s -DIGNIS_T=%d%s%s", ignis__sources[ignis__builtins[builtin].source].name,
             ignis__builtin_part(builtin), (int)dtype, *define ? " " : "", define);
    for (i = 0; i < bundle->header.count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        if (strcmp(ignis__bundle_text(bundle, &entry), name) == 0 && (!capability || ignis__bundle_serves(&entry, capability)))
            return true;
    }
    return false;
}

/*  Whether a kernel may be launched before what is ahead of it has ended: its threads begin by ignis_grid_dependency_wait. */
static bool ignis__builtin_waits(ignis__builtin builtin)
{
    switch (ignis__builtins[builtin].source) {
    case IGNIS__SOURCE_ACTIVATION_CU:
    case IGNIS__SOURCE_ATTENTION_HOPPER_CU:
    case IGNIS__SOURCE_ATTENTION_HOPPER_BACKWARD_CU:
    case IGNIS__SOURCE_ELEMENTWISE_CU:
    case IGNIS__SOURCE_EMBEDDING_CU:
    case IGNIS__SOURCE_GEMM_CU:
    case IGNIS__SOURCE_GEMM_HOPPER_CU:
    case IGNIS__SOURCE_GEMM_MMA_CU:
    case IGNIS__SOURCE_LOG_SOFTMAX_CU:
    case IGNIS__SOURCE_NORM_CU:
    case IGNIS__SOURCE_NORM_ADD_CU:
    case IGNIS__SOURCE_NORM_GRAD_CU:
    case IGNIS__SOURCE_NORM_UNALIGNED_CU:
    case IGNIS__SOURCE_OPTIM_CU:
    case IGNIS__SOURCE_POINTWISE_CU:
    case IGNIS__SOURCE_QUANTIZE_CU:
    case IGNIS__SOURCE_REDUCE_CU:
    case IGNIS__SOURCE_ROPE_CU:
    case IGNIS__SOURCE_SOFTMAX_CU:
    case IGNIS__SOURCE_SORT_CU: return true;
#ifdef IGNIS_MODELS
    case IGNIS__SOURCE_GEMV_MMA_CU:
    case IGNIS__SOURCE_GEMV_CLUSTER_CU:
    case IGNIS__SOURCE_GEMV_CLUSTER_BLOCKS_CU:
    case IGNIS__SOURCE_GEMV_BLOCKS_CU:
    case IGNIS__SOURCE_ATTENTION_PAGED_CU:
    case IGNIS__SOURCE_ATTENTION_PAGED_MMA_CU:
    case IGNIS__SOURCE_ATTENTION_PAGED_MANY_CU:
    case IGNIS__SOURCE_GENERATE_DRAW_CU:
    case IGNIS__SOURCE_GENERATE_STEP_CU: return true;
    case IGNIS__SOURCE_GENERATE_CU: return builtin >= IGNIS__BUILTIN_GENERATE_EMBED && builtin <= IGNIS__BUILTIN_GENERATE_GATHER;
#endif
    default: return false;
    }
}

/*  What is loaded of them on each device: modules by source and dtype, functions (0 until their first use) by kernel and dtype. */
static struct ignis__builtin_code {
    ignis__module modules[IGNIS__SOURCE_COUNT][IGNIS_DTYPE_COUNT];
    uint64_t functions[IGNIS__BUILTIN_COUNT][IGNIS_DTYPE_COUNT];
} ignis__builtin_codes[IGNIS_MAX_DEVICES];

#define IGNIS__DEFINES 200 /* characters of options that make a variant, with the end */

/*  Compiles a source for a dtype, with more options (null: none), and loads it on an entered device; of a bundle a part (null: all). */
IGNIS__COLD static bool ignis__builtin_make(const char *call, ignis__device *device, int source, const char *part, ignis_dtype dtype,
                                            const char *defines, ignis__module *unit)
{
    ignis__program program = IGNIS__ZERO;
    char dtype_define[32], copy[IGNIS__DEFINES];
    const char *options[10];
    char *text = ignis__source_join(&ignis__sources[source]), *at;
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
    program.name = ignis__sources[source].name;
    program.part = part;
    program.options = options;
    made = ignis__module_make(call, device, &program, unit);
    ignis__free(text);
    return made;
}

/*  Loads the module of a kernel's source for a dtype on a device that is entered. Null on failure. */
IGNIS__COLD static ignis__module *ignis__builtin_module(const char *call, ignis__device *device, ignis__builtin builtin, ignis_dtype dtype)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    int source = ignis__builtins[builtin].source;
    ignis__module *place = &ignis__builtin_codes[device - ignis__devices].modules[source][dtype];
    ignis__module made;
    bool loaded;
    ignis__mutex_lock(&lock);
    loaded = place->module != NULL;
    ignis__mutex_unlock(&lock);
    if (loaded)
        return place;
    if (!ignis__builtin_make(call, device, source, ignis__builtin_part(builtin), dtype, NULL, &made))
        return NULL;
    ignis__mutex_lock(&lock); /* another thread may have been as fast, and its functions be in use */
    loaded = place->module != NULL;
    if (!loaded)
        *place = made;
    ignis__mutex_unlock(&lock);
    if (loaded)
        ignis__module_unload(&made);
    return place;
}

/*  The function of a kernel in a variant that more than the dtype decides. */
typedef struct ignis__variant {
    ignis__builtin builtin;
    ignis_dtype dtype;
    char define[IGNIS__DEFINES]; /* options, separated by spaces */
    ignis__module module;
    void *function;
    struct ignis__variant *next;
} ignis__variant;

static struct {
    ignis__mutex lock;
    ignis__variant *first[IGNIS_MAX_DEVICES];
} ignis__variants = {IGNIS__MUTEX_INIT, {0}};

static ignis__variant *ignis__variant_find(const ignis__device *device, ignis__builtin builtin, ignis_dtype dtype, const char *define)
{
    ignis__variant *variant;
    ignis__mutex_lock(&ignis__variants.lock);
    for (variant = ignis__variants.first[device - ignis__devices]; variant; variant = variant->next)
        if (variant->builtin == builtin && variant->dtype == dtype && strcmp(variant->define, define) == 0)
            break;
    ignis__mutex_unlock(&ignis__variants.lock);
    return variant;
}

/*  Whether a variant can be had: compiled, or as somebody recorded it for this kind of device. */
IGNIS__MAYBE_UNUSED static bool ignis__variant_exists(const ignis__device *device, ignis__builtin builtin, ignis_dtype dtype,
                                                      const char *define)
{
    return !ignis__compile_never || ignis__variant_find(device, builtin, dtype, define) ||
           ignis__bundle_has(&ignis__the_bundle, builtin, dtype, define, ignis__capability(&device->info));
}

/*  The function of a kernel in its module. Where one that should wait cannot, none is launched early. */
IGNIS__COLD static bool ignis__builtin_function(const char *call, ignis__device *device, ignis__builtin builtin, const ignis__module *unit,
                                                void **function)
{
    bool waits = true;
    if (!ignis__function_get(call, device, unit, ignis__builtins[builtin].entry, function) ||
        (ignis__builtin_waits(builtin) && !ignis__function_waits(call, device, *function, &waits)))
        return false;
    if (!waits)
        ignis__atomic_store(&device->no_dependents, 1);
    return true;
}

/*  Launches one of Ignis' own kernels, early where it waits by itself. */
static bool ignis__builtin_launch(const ignis__work *work, ignis__builtin builtin, void *function, const unsigned grid[3],
                                  const unsigned block[3], unsigned shared, void **params)
{
    return ignis__launch_as(work, function, grid, block, shared, params,
                            ignis__builtin_waits(builtin) && !ignis__atomic_load(&work->device->no_dependents),
                            ignis__builtins[builtin].source == IGNIS__SOURCE_GENERATE_STEP_CU);
}

static void *ignis__builtin_get_variant(const char *call, ignis__device *device, ignis__builtin builtin, ignis_dtype dtype,
                                        const char *define)
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
    if (!ignis__builtin_make(call, device, ignis__builtins[builtin].source, ignis__builtin_part(builtin), dtype, define,
                             &variant->module) ||
        !ignis__builtin_function(call, device, builtin, &variant->module, &variant->function)) {
        ignis__module_unload(&variant->module);
        ignis__free(variant);
        return NULL;
    }
    ignis__mutex_lock(&ignis__variants.lock); /* two threads may make the same one; both stay, the newer is found */
    variant->next = ignis__variants.first[device - ignis__devices];
    ignis__variants.first[device - ignis__devices] = variant;
    ignis__mutex_unlock(&ignis__variants.lock);
    return variant->function;
}

/*  The function of one of Ignis' own kernels on a device that is entered; null on failure. */
static void *ignis__builtin_get(const char *call, ignis__device *device, ignis__builtin builtin, ignis_dtype dtype)
{
    uint64_t *place = &ignis__builtin_codes[device - ignis__devices].functions[builtin][dtype];
    void *function = (void *)(uintptr_t)ignis__atomic_load(place);
    ignis__module *unit;
    if (function)
        return function;
    ignis__request_builtin(builtin, dtype);
    if (ignis__bundle_has(&ignis__the_bundle, builtin, dtype, "", 0)) { /* where it has a module of its own */
        function = ignis__builtin_get_variant(call, device, builtin, dtype, "");
        ignis__atomic_store(place, (uint64_t)(uintptr_t)function);
        return function;
    }
    unit = ignis__builtin_module(call, device, builtin, dtype);
    if (!unit || !ignis__builtin_function(call, device, builtin, unit, &function))
        return NULL;
    ignis__atomic_store(place, (uint64_t)(uintptr_t)function);
    return function;
}
