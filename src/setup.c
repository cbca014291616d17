/* ===============================================================================================================
   >>setup - ignis_setup and ignis_shutdown: opens and closes all layers

   The last part: it may use everything. Layers open bottom first, and close in the opposite order: what holds
   handles of lower layers closes before them.
   Invariant: after ignis_shutdown nothing of Ignis runs in any thread, and all memory but slots and messages is
   freed.
   Locks: ignis__setup_lock, taken before all others.
   =============================================================================================================== */

#include "base/room.h"
#include "device/room.h"
#include "array/room.h"
#include "kernel/room.h"
#include "formula/room.h"
#include "tensor/room.h"
#include "ops/room.h"
#include "ops/matmul/room.h"
#include "train/room.h"
#include "interop/room.h"
#include "report/room.h"

static void ignis__forked(void)
{
    ignis__atomic_store(&ignis__global.forked, 1);
    ignis__atomic_store(&ignis__global.refused, 0);
}

/*  Checks the facts of a dry run's device: none is below 0. */
IGNIS__COLD static bool ignis__dry_device_check(const char *call, const ignis_device_info *info)
{
    const struct {
        const char *name;
        int64_t value;
    } facts[] = {{"compute_major", info->compute_major},
                 {"compute_minor", info->compute_minor},
                 {"multiprocessors", info->multiprocessors},
                 {"warp_size", info->warp_size},
                 {"max_threads_per_block", info->max_threads_per_block},
                 {"shared_per_block", info->shared_per_block},
                 {"l2_bytes", info->l2_bytes},
                 {"memory_total", info->memory_total},
                 {"driver_version", info->driver_version}};
    int i;
    for (i = 0; i < IGNIS__COUNT(facts) && facts[i].value >= 0; i++)
        ;
    return i == IGNIS__COUNT(facts) || ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.dry_device->%s is %lld, below 0",
                                                   facts[i].name, (long long)facts[i].value) == IGNIS_OK;
}

static bool ignis__desc_check(const char *call, const ignis_desc *desc)
{
    if (!desc->allocator.alloc_fn != !desc->allocator.free_fn)
        ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call,
                    "desc.allocator has only one of alloc_fn and free_fn; set both or none");
    else if (desc->memory_limit < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.memory_limit is %lld, below 0", (long long)desc->memory_limit);
    else if (desc->cache_limit < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.cache_limit is %lld, below 0", (long long)desc->cache_limit);
    else
        return true;
    return false;
}

static bool ignis__env_flag(const char *name)
{
    const char *value = ignis__env(name);
    return value && *value && strcmp(value, "0") != 0;
}

/*  Chooses one of several options. *choice is the program's choice; if that is "auto", the environment's. */
IGNIS__COLD static bool ignis__choose(const char *call, const char *field, const char *variable,
                                      const char *const *names, int count, int *choice)
{
    const char *value = ignis__env(variable);
    char list[64];
    ignis__string_writer text;
    int i;
    if (*choice < 0 || *choice >= count)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "desc.%s is %d; 0 to %d are known", field, *choice,
                                 count - 1);
    if (*choice != 0 || !value || !*value)
        return true;
    ignis__string_begin(&text, list, sizeof list);
    for (i = 0; i < count && strcmp(value, names[i]) != 0; i++)
        ignis__string_add(&text, "%s%s", i == 0 ? "" : i == count - 1 ? " or " : ", ", names[i]);
    *choice = i;
    if (i == count)
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "%s is \"%s\"; it is %s", variable, value, list);
    return i < count;
}

IGNIS__COLD static bool ignis__library_want(const char *call, ignis_library library, const char *path)
{
    struct ignis__loaded *loaded = &ignis__libraries[library];
    memset(loaded, 0, sizeof *loaded);
    if (path && strlen(path) >= sizeof loaded->wanted)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "the path of %s is longer than %d bytes",
                                 ignis__library_specs[library].title, (int)sizeof loaded->wanted - 1);
    snprintf(loaded->wanted, sizeof loaded->wanted, "%s", path ? path : "");
    return true;
}

#ifndef IGNIS_NO_TENSORS
/*  Names the holders of references to an array, for the message of one that cannot be freed. */
IGNIS__COLD static int ignis__claims_name(ignis__string_writer *text, const ignis__array *array)
{
    return ignis__tensors_list_claims(text, array) + ignis__tape_list_claims(text, array) +
           ignis__optimizers_list_claims(text, array);
}
#endif

static ignis_status ignis__setup(const char *call, const ignis_desc *desc)
{
    static const char *const products[] = {"auto", "cublaslt", "own", "measure"},
                             *const attention[] = {"auto", "mma", "wgmma"}, *const compile[] = {"auto", "never"};
    int compile_when = (int)desc->compile;
    static bool fork_watched;
    ignis__global.logger = desc->logger;
    ignis__global.verbose = desc->verbose || ignis__env_flag("IGNIS_VERBOSE");
    ignis__matmul_backend = (int)desc->matmul, ignis__attention_backend = (int)desc->attention;
    if (!ignis__desc_check(call, desc) || (desc->dry_device && !ignis__dry_device_check(call, desc->dry_device)) ||
        !ignis__choose(call, "matmul", "IGNIS_MATMUL", products, IGNIS_MATMUL_COUNT, &ignis__matmul_backend) ||
        !ignis__choose(call, "attention", "IGNIS_ATTENTION", attention, IGNIS_ATTENTION_COUNT,
                       &ignis__attention_backend) ||
        !ignis__choose(call, "compile", "IGNIS_COMPILE", compile, IGNIS_COMPILE_COUNT, &compile_when))
        return ignis__failed();
    ignis__allocator = desc->allocator;
    if (!ignis__library_want(call, IGNIS_LIBRARY_CUDA, desc->cuda_library) ||
        !ignis__library_want(call, IGNIS_LIBRARY_NVRTC, desc->nvrtc_library) ||
        !ignis__library_want(call, IGNIS_LIBRARY_CUBLASLT, desc->cublas_library) ||
        !ignis__library_want(call, IGNIS_LIBRARY_NCCL, desc->nccl_library))
        return ignis__failed();
    ignis__global.dry_run = desc->dry_run || ignis__env_flag("IGNIS_DRY_RUN");
    if (ignis__global.dry_run)
        ignis__dry_setup(desc->dry_device);
    if (ignis__global.dry_run && ignis__matmul_backend == IGNIS_MATMUL_MEASURE) /* a dry run cannot measure time */
        ignis__matmul_backend = IGNIS_MATMUL_AUTO;
    if (!ignis__library_load(call, IGNIS_LIBRARY_CUDA) ||
        ignis__devices_setup(call, desc->device == IGNIS_DEVICE_0 ? 0 : desc->device) != IGNIS_OK)
        return ignis__failed();
    ignis__allow_tf32 = desc->allow_tf32;
    ignis__memory_setup(desc->memory_limit, desc->memory_bypass || ignis__env_flag("IGNIS_MEMORY_BYPASS"),
                        desc->trace_memory || ignis__global.dry_run || ignis__env_flag("IGNIS_TRACE_MEMORY"));
    ignis__kernels_setup(call, desc);
    ignis__compile_never = compile_when == IGNIS_COMPILE_NEVER;
    if (!ignis__requests_setup(call, desc) || !ignis__bundle_setup(call, desc)) {
        ignis__bundle_close();
        return ignis__failed();
    }
    if ((ignis__compile_never || ignis__requests.path[0]) && ignis__matmul_backend == IGNIS_MATMUL_AUTO)
        ignis__matmul_backend = IGNIS_MATMUL_OWN; /* record the built-in kernels, with or without cuBLASLt */
#ifndef IGNIS_NO_TENSORS
    ignis__claim_holders = ignis__claims_name;
#endif
    if (!fork_watched)
        ignis__at_fork(ignis__forked);
    fork_watched = true;
    ignis__at_unload(ignis__unload);
    ignis__global.setups++;
    return IGNIS_OK;
}

/*  Forgets the caller's allocator and logger, which are used from ignis_setup to ignis_shutdown. */
static void ignis__user_functions_forget(void)
{
    memset(&ignis__allocator, 0, sizeof ignis__allocator);
    memset(&ignis__global.logger, 0, sizeof ignis__global.logger);
}

IGNIS__COLD IGNIS_API ignis_status ignis_setup(const ignis_desc *desc)
{
    static const char call[] = "ignis_setup";
    ignis_desc defaults = IGNIS__ZERO;
    ignis_status status;
    if (ignis__atomic_load(&ignis__global.forked) || ignis__this_thread.called_back) {
        (void)ignis__enter(call);
        return ignis__failed();
    }
    ignis__mutex_lock(&ignis__setup_lock);
    if (ignis__atomic_load(&ignis__global.ready)) {
        status = ignis__fail(IGNIS_DIAG_ALREADY_SETUP, call, "Ignis is set up already; call ignis_shutdown first");
    } else {
        status = ignis__setup(call, desc ? desc : &defaults);
        ignis__atomic_store(&ignis__global.refused, 0);
        if (status == IGNIS_OK)
            ignis__atomic_store(&ignis__global.ready, 1);
        else
            ignis__user_functions_forget();
    }
    ignis__mutex_unlock(&ignis__setup_lock);
    return status;
}

/*  Reports and frees every live array. Views count, too: their handles were not freed. */
static void ignis__arrays_close(const char *call)
{
    ignis__array *array;
    uint64_t index = 0;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        ignis__array_leaked(call, array, "");
        ignis__mutex_lock(&array->slot.lock);
        ignis__array_kill(array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
    }
}

static void ignis__kernels_close(const char *call)
{
    ignis__kernel *kernel;
    uint64_t index = 0;
    while ((kernel = (ignis__kernel *)ignis__pool_next(&ignis__kernels, &index)) != NULL) {
        if (kernel->file)
            ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "%s, made at %s:%d",
                               ignis__label_write("kernel", 0, kernel->entry).text, kernel->file, kernel->line);
        else
            ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "%s of '%s'",
                               ignis__label_write("kernel", 0, kernel->entry).text,
                               (kernel->shares ? kernel->shares : kernel)->program.name);
        ignis__kernel_kill(kernel);
        ignis__kernel_drop(call, kernel);
    }
}

IGNIS__COLD IGNIS_API ignis_status ignis_shutdown(void)
{
    static const char call[] = "ignis_shutdown";
    ignis__record before = ignis__this_thread.record;
    const char *dry = ignis__env("IGNIS_DRY_RUN") ? ignis__env("IGNIS_DRY_RUN") : "";
    ignis_status status;
    int i;
    if (ignis__atomic_load(&ignis__global.forked) || ignis__this_thread.called_back) {
        (void)ignis__enter(call);
        return ignis__failed();
    }
#ifndef IGNIS_NO_TENSORS
    if (ignis__atomic_load(&ignis__global.ready) && (ignis__tensor_thread_now()->pass || ignis__this_thread.inside))
        return ignis__fail(IGNIS_DIAG_TAPE_WALKED, call,
                           "called inside ignis_backward or ignis_checkpoint, which still uses its tensors");
#endif
    ignis__mutex_lock(&ignis__setup_lock);
    if (!ignis__atomic_load(&ignis__global.ready)) {
        ignis__mutex_unlock(&ignis__setup_lock);
        return IGNIS_OK;
    }
    memset(&ignis__this_thread.record, 0, sizeof before); /* to see the first failure of this call */
    if (ignis__global.dry_run && strpbrk(dry, "./\\"))    /* a path, and not 1 or yes */
        (void)ignis_memory_snapshot(dry);
    for (i = 0; i < IGNIS__CLOSE_COUNT; i++) {
        if (ignis__closers[i])
            ignis__closers[i](call);
#ifndef IGNIS_NO_TENSORS
        if (i == IGNIS__CLOSE_SEQUENCES)
            ignis__graphs_close(call);
#endif
    }
#ifndef IGNIS_NO_TENSORS
    ignis__trainings_close(call);
    ignis__optimizers_close(call);
    ignis__tensors_close(call);
#endif
    ignis__tracking_reset(call);
    ignis__arrays_close(call);
    ignis__tickets_close(call);
    ignis__kernels_close(call);
    ignis__fences_close(call);
    ignis__gl_buffers_close(call);
    ignis__events_close(call);
    ignis__streams_leaked(call);
    ignis__pinned_leaked(call);
    if (ignis__leaks > IGNIS__LEAKS_SHOWN)
        ignis__log(IGNIS_LOG_WARNING, IGNIS_DIAG_ARRAY_LEAKED, "%s: and %d more", call,
                   ignis__leaks - IGNIS__LEAKS_SHOWN);
    ignis__leaks = 0;
    ignis__profile_close();
    for (i = 0; i < ignis__device_total; i++) {
        ignis__device *device = &ignis__devices[i];
        if (!ignis__atomic_load(&device->opened))
            continue;
        if (!IGNIS__CUDA_FAILED(call, device, cuCtxSetCurrent, (device->context)) && !ignis__devices_lost())
            (void)ignis__device_wait(call, device);
        ignis__builtins_close(device);
#ifndef IGNIS_NO_TENSORS
        ignis__formulas_close(device);
        ignis__matmul_close(device);
#endif
        ignis__memory_close(call, device);
        ignis__device_close(call, device);
    }
#ifndef IGNIS_NO_TENSORS
    ignis__formulas_close(NULL);
#endif
    ignis__kernel_binaries_close();
    ignis__bundle_close();
    ignis__callbacks_close();
#ifndef IGNIS_NO_TENSORS
    ignis__autotune_close();
#endif
    ignis__threads_close();
    ignis__atomic_store(&ignis__global.ready, 0);
    ignis__atomic_store(&ignis__global.refused, 0);
    ignis__user_functions_forget();
    status = ignis__this_thread.record.status;
    if (before.status != IGNIS_OK) { /* an earlier failure of the thread stays the first */
        if (status != IGNIS_OK && !ignis__this_thread.latest_message)
            ignis__latest_keep(&ignis__this_thread, ignis_status_message());
        ignis__record_drop(&ignis__this_thread);
        ignis__this_thread.record = before;
    }
    ignis__mutex_unlock(&ignis__setup_lock);
    return status;
}
