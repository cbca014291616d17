/* ===============================================================================================================
   >>device - contexts, device facts, the current device of a thread

   A device is opened at its first use and closed at ignis_shutdown. Every call that works on it enters it (makes
   its context current) and leaves it again.
   May use: >>loader, >>pool, >>status. Invariant: after a fault of CUDA no driver call is made, except to free.
   Locks: device->lock guards opening; facts are constant once read. No lock is taken under it.
   =============================================================================================================== */

#include "room.h"

/*  Returns a device's compute capability as one number: 89 for 8.9. */
IGNIS__PRIVATE int ignis__capability(const ignis_device_info *info)
{
    return 10 * info->compute_major + info->compute_minor;
}

IGNIS__PRIVATE ignis__device ignis__devices[IGNIS_MAX_DEVICES];
IGNIS__PRIVATE int ignis__device_ordinal(const ignis__device *device) { return (int)(device - ignis__devices); }
IGNIS__PRIVATE uint64_t ignis__devices_fault; /* the driver error that ended all work of the process, or 0 */
IGNIS__PRIVATE bool ignis__allow_tf32;
IGNIS__PRIVATE int ignis__matmul_backend, ignis__attention_backend; /* as in ignis_desc, or in the environment */
IGNIS__PRIVATE int ignis__device_total;
static int ignis__device_first;
IGNIS__PRIVATE uint64_t ignis__stream_serials; /* the last serial number */
IGNIS__PRIVATE uint64_t ignis__stream_forgets; /* ignis_stream_forget calls so far */

/*  Checks for errors after which the driver answers every call of the process with the same error, on any device. */
IGNIS__PRIVATE bool ignis__cuda_is_fatal(int error)
{
    static const short fatal[] = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721};
    int i;
    for (i = 0; i < IGNIS__COUNT(fatal); i++)
        if (fatal[i] == error)
            return true;
    return false;
}

/*  Checks whether a kernel or copy has faulted on any device: CUDA then refuses all calls on all devices. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__devices_lost(void) { return ignis__atomic_load(&ignis__devices_fault) != 0; }

IGNIS__PRIVATE const char *ignis__cuda_name(int error)
{
    const char *name = NULL;
    return ignis__cuda.cuGetErrorName && ignis__cuda.cuGetErrorName(error, &name) == 0 && name ? name : "unknown error";
}

/*  Reports a driver error as a failure of `call`. device may be NULL. */
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__cuda_fail(const char *call, ignis__device *device, const char *function,
                                                         int error)
{
    const char *name = ignis__cuda_name(error), *text = NULL;
    int ordinal = device ? ignis__device_ordinal(device) : -1;
    if (device && ignis__cuda_is_fatal(error)) {
        uint64_t none = 0;
        ignis__atomic_swap_if(&ignis__devices_fault, &none, (uint64_t)error);
        return ignis__fail_because(
            IGNIS_DIAG_CUDA_CALL, call, error, name, NULL,
            "an earlier kernel or copy has faulted: %s (%d), seen by %s on device %d. All arrays are lost, and CUDA "
            "keeps every device from this process until it ends",
            name, error, function, ordinal);
    }
    if (ignis__cuda.cuGetErrorString && ignis__cuda.cuGetErrorString(error, &text) != 0)
        text = NULL;
    return ignis__fail_because(error == IGNIS__CU_OUT_OF_MEMORY ? IGNIS_DIAG_DEVICE_MEMORY : IGNIS_DIAG_CUDA_CALL, call,
                               error, name, NULL, "%s failed with %s (%d)%s%s", function, name, error, text ? ": " : "",
                               text ? text : "");
}

IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__cuda_check(const char *call, ignis__device *device,
                                                              const char *function, int error)
{
    return error == 0 ? IGNIS_OK : ignis__cuda_fail(call, device, function, error);
}

IGNIS__ONE_COPY IGNIS__PRIVATE ignis__device *ignis__device_get(const char *call, int ordinal)
{
    if (ordinal >= 0 && ordinal < ignis__device_total)
        return &ignis__devices[ordinal];
    if (ignis__device_total == 0)
        ignis__fail(IGNIS_DIAG_DEVICE_NONE, call, "there is no CUDA device");
    else
        ignis__fail(IGNIS_DIAG_DEVICE_RANGE, call, "there is no device %d; there are %d, from 0", ordinal,
                    ignis__device_total);
    return NULL;
}

/*  Reads the facts about a locked device once. Other threads read them without the lock. */
IGNIS__COLD static bool ignis__device_read(const char *call, ignis__device *device)
{
    ignis_device_info read = IGNIS__ZERO, *info = &read;
    const struct {
        int attribute;
        int *into;
    } facts[] = {
        {IGNIS__CU_ATTRIBUTE_MAJOR, &info->compute_major},
        {IGNIS__CU_ATTRIBUTE_MINOR, &info->compute_minor},
        {IGNIS__CU_ATTRIBUTE_MULTIPROCESSORS, &info->multiprocessors},
        {IGNIS__CU_ATTRIBUTE_WARP_SIZE, &info->warp_size},
        {IGNIS__CU_ATTRIBUTE_MAX_THREADS, &info->max_threads_per_block},
        {IGNIS__CU_ATTRIBUTE_SHARED_OPTIN, &info->shared_per_block},
    };
    int i, l2 = 0;
    size_t total = 0;

    if (device->info.warp_size)
        return true;
    info->device = ignis__device_ordinal(device);
    info->driver_version = ignis__libraries[IGNIS_LIBRARY_CUDA].version;
    if (IGNIS__CUDA_FAILED(call, NULL, cuDeviceGet, (&device->handle, info->device)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetName, (info->name, (int)sizeof info->name, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetUuid_v2, (info->uuid, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetPCIBusId,
                           (info->pci_bus_id, (int)sizeof info->pci_bus_id, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceTotalMem_v2, (&total, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetAttribute, (&l2, IGNIS__CU_ATTRIBUTE_L2_BYTES, device->handle)))
        return false;
    for (i = 0; i < IGNIS__COUNT(facts); i++)
        if (IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetAttribute, (facts[i].into, facts[i].attribute, device->handle)))
            return false;
    if (IGNIS__CUDA(cuDeviceGetAttribute, (&device->clusters, IGNIS__CU_ATTRIBUTE_CLUSTERS, device->handle)) != 0)
        device->clusters = 0; /* the driver is older than they are */
    info->l2_bytes = l2;
    info->memory_total = (int64_t)total;
    if (!ignis__cuda.cuDeviceGetLuid ||
        IGNIS__CUDA(cuDeviceGetLuid, ((char *)info->luid, &info->node_mask, device->handle)) != 0) {
        memset(info->luid, 0, sizeof info->luid);
        info->node_mask = 0;
    }
    device->info = read;
    return true;
}

/*  Makes the device's context current. Returns the driver's error, and the failed driver call in *what. */
IGNIS__INLINE static int ignis__context_try(ignis__device *device, ignis__binding *binding, const char **what)
{
    void *current = NULL;
    int error;
    binding->pushed = false;
    *what = "cuCtxGetCurrent";
    if ((error = IGNIS__CUDA(cuCtxGetCurrent, (&current))) != 0 || current == device->context)
        return error;
    *what = current ? "cuCtxPushCurrent_v2" : "cuCtxSetCurrent";
    error =
        current ? IGNIS__CUDA(cuCtxPushCurrent_v2, (device->context)) : IGNIS__CUDA(cuCtxSetCurrent, (device->context));
    binding->pushed = current && error == 0;
    return error;
}

/*  Makes the device's context current for a call. A thread without a context keeps it, as with cudart; another thread
    gets its own context back. */
IGNIS__INLINE static bool ignis__context_enter(const char *call, ignis__device *device, ignis__binding *binding)
{
    const char *what;
    int error = ignis__context_try(device, binding, &what);
    return error == 0 || ignis__cuda_fail(call, device, what, error) == IGNIS_OK;
}

IGNIS__ONE_COPY static void ignis__context_leave(const ignis__binding *binding)
{
    void *context;
    if (binding->pushed)
        (void)IGNIS__CUDA(cuCtxPopCurrent_v2, (&context)); /* a pushed context can be popped */
}

IGNIS__COLD static bool ignis__device_open_locked(const char *call, ignis__device *device)
{
    ignis__binding binding;
    bool made;
    if (!ignis__device_read(call, device) ||
        IGNIS__CUDA_FAILED(call, device, cuDevicePrimaryCtxRetain, (&device->context, device->handle)))
        return false;
    if (ignis__context_enter(call, device, &binding)) {
        made = !IGNIS__CUDA_FAILED(call, device, cuStreamCreate, (&device->stream, IGNIS__CU_STREAM_DEFAULT));
        ignis__context_leave(&binding);
        if (made)
            return true;
    }
    (void)IGNIS__CUDA(cuDevicePrimaryCtxRelease_v2, (device->handle)); /* the first failure is the one reported */
    device->context = NULL;
    return false;
}

/*  Opens the device if necessary and makes its context current. Every success is paired with ignis__device_leave. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__device_enter(const char *call, ignis__device *device, ignis__binding *binding)
{
    int error = (int)ignis__atomic_load(&ignis__devices_fault);
    if (error) {
        ignis__fail_because(
            IGNIS_DIAG_DEVICE_LOST, call, error, ignis__cuda_name(error), NULL,
            "an earlier kernel or copy has faulted: %s (%d); CUDA keeps every device from this process until it ends",
            ignis__cuda_name(error), error);
        return false;
    }
    if (!ignis__atomic_load(&device->opened)) {
        ignis__mutex_lock(&device->lock);
        if (!ignis__atomic_load(&device->opened) && ignis__device_open_locked(call, device))
            ignis__atomic_store(&device->opened, 1);
        ignis__mutex_unlock(&device->lock);
        if (!ignis__atomic_load(&device->opened))
            return false;
    }
    return ignis__context_enter(call, device, binding);
}

/*  Enters an opened device to free something. This must not fail for one failed driver call, so it is tried again.
    False, and not reported, after a fault. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__device_enter_to_give(const char *call, ignis__device *device,
                                                              ignis__binding *binding)
{
    const char *what;
    if (ignis__devices_lost())
        return false;
    return ignis__context_try(device, binding, &what) == 0 || ignis__context_enter(call, device, binding);
}

IGNIS__PRIVATE void ignis__device_leave(const ignis__binding *binding) { ignis__context_leave(binding); }

/*  Forgets the thread's state of an older setup, and its streams that another thread has forgotten. */
IGNIS__COLD static void ignis__thread_renew(ignis__thread *thread, uint64_t forgets)
{
    int i;
    if (thread->setup != ignis__global.setups) {
        thread->setup = ignis__global.setups;
        thread->device = ignis__device_first;
        thread->capture = NULL;
        thread->forgets = forgets;
        memset(&thread->random, 0, sizeof thread->random);
        memset(thread->stream, 0, sizeof thread->stream);
    }
    if (thread->forgets != forgets) {
        thread->forgets = forgets;
        for (i = 0; i < ignis__device_total; i++) {
            ignis__user_stream *user_stream;
            if (!thread->stream[i])
                continue;
            ignis__mutex_lock(&ignis__devices[i].lock);
            for (user_stream = ignis__devices[i].user_streams;
                 user_stream && user_stream->serial != thread->stream_serial[i]; user_stream = user_stream->next)
                ;
            ignis__mutex_unlock(&ignis__devices[i].lock);
            if (!user_stream)
                thread->stream[i] = NULL;
        }
    }
}

/*  Returns the calling thread's state, updated after an ignis_setup or an ignis_stream_forget. */
IGNIS__INLINE IGNIS__PRIVATE ignis__thread *ignis__thread_state(void)
{
    ignis__thread *thread = &ignis__this_thread;
    uint64_t forgets = ignis__atomic_load(&ignis__stream_forgets);
    if (thread->setup != ignis__global.setups || thread->forgets != forgets)
        ignis__thread_renew(thread, forgets);
    return thread;
}

/*  Returns the device of a desc, and the desc's value for a device. */
IGNIS__INLINE IGNIS__PRIVATE int ignis__desc_device(int device)
{
    return device == 0 ? ignis__thread_state()->device : device == IGNIS_DEVICE_0 ? 0 : device;
}
IGNIS__PRIVATE int ignis__device_in_desc(const ignis__device *device)
{
    return device == ignis__devices ? IGNIS_DEVICE_0 : ignis__device_ordinal(device);
}

IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__devices_setup(const char *call, int first)
{
    int error, i;
    error = IGNIS__CUDA(cuInit, (0));
    if (error == IGNIS__CU_NO_DEVICE)
        return ignis__fail_because(IGNIS_DIAG_DEVICE_NONE, call, error, ignis__cuda_name(error), NULL,
                                   "the driver finds no CUDA device");
    if (error != 0)
        return ignis__cuda_fail(call, NULL, "cuInit", error);
    error = IGNIS__CUDA(cuDeviceGetCount, (&ignis__device_total));
    if (error != 0)
        return ignis__cuda_fail(call, NULL, "cuDeviceGetCount", error);
    if (ignis__device_total > IGNIS_MAX_DEVICES)
        ignis__device_total = IGNIS_MAX_DEVICES;
    for (i = 0; i < ignis__device_total; i++) {
        memset(&ignis__devices[i], 0, sizeof ignis__devices[i]);
        ignis__rwlock_init(&ignis__devices[i].waiting);
        ignis__mutex_init(&ignis__devices[i].lock);
        ignis__mutex_init(&ignis__devices[i].planning);
    }
    ignis__atomic_store(&ignis__devices_fault, 0); /* the driver is asked again */
    ignis__device_first = first;
    return ignis__device_get(call, first) ? IGNIS_OK : IGNIS_ERROR_DEVICE;
}

/*  Waits for the device and releases it. Continues after an error, and reports the first. */
IGNIS__COLD IGNIS__PRIVATE void ignis__device_close(const char *call, ignis__device *device)
{
    void *current = NULL;
    bool lost = ignis__devices_lost();
    (void)IGNIS__CUDA(cuCtxSetCurrent, (device->context));
    while (device->events) {
        ignis__pooled_event *spare = device->events;
        device->events = spare->next;
        (void)IGNIS__CUDA(cuEventDestroy_v2, (spare->event));
        ignis__free(spare);
    }
    while (device->user_streams) {
        ignis__user_stream *user_stream = device->user_streams;
        device->user_streams = user_stream->next;
        if (user_stream->created)
            (void)IGNIS__CUDA(cuStreamDestroy_v2, (user_stream->stream));
        ignis__free(user_stream);
    }
    if (lost)
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (device->stream));
    else
        (void)IGNIS__CUDA_FAILED(call, device, cuStreamDestroy_v2, (device->stream));
    if (IGNIS__CUDA(cuCtxGetCurrent, (&current)) == 0 && current == device->context)
        (void)IGNIS__CUDA(cuCtxSetCurrent, (NULL)); /* the context ends with its last user */
    (void)IGNIS__CUDA_FAILED(call, NULL, cuDevicePrimaryCtxRelease_v2, (device->handle));
    ignis__atomic_store(&device->opened, 0);
}

IGNIS_API int ignis_device_count(void) { return ignis__enter("ignis_device_count") ? ignis__device_total : 0; }

/*  Reads the facts about a device, which need not be open. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__device_read_facts(const char *call, ignis__device *device)
{
    bool ok;
    ignis__mutex_lock(&device->lock);
    ok = ignis__device_read(call, device);
    ignis__mutex_unlock(&device->lock);
    return ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_device_query(int ordinal, ignis_device_info *info)
{
    static const char call[] = "ignis_device_query";
    ignis__device *device;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "info", info))
        return ignis__failed();
    device = ignis__device_get(call, ordinal);
    if (!device)
        return IGNIS_ERROR_DEVICE;
    if (!ignis__device_read_facts(call, device))
        return ignis__failed();
    *info = device->info;
    return IGNIS_OK;
}

IGNIS__COLD IGNIS_API int ignis_device_find(const void *uuid, const void *luid)
{
    static const char call[] = "ignis_device_find";
    char wanted[2 * 16 + 1] = "";
    int i;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "uuid and luid", uuid ? uuid : luid))
        return -1;
    for (i = 0; i < ignis__device_total; i++) {
        const ignis_device_info *info = &ignis__devices[i].info;
        if (!ignis__device_read_facts(call, &ignis__devices[i]))
            return -1;
        if ((!uuid || memcmp(uuid, info->uuid, sizeof info->uuid) == 0) &&
            (!luid || (info->node_mask && memcmp(luid, info->luid, sizeof info->luid) == 0)))
            return i;
    }
    for (i = 0; i < (uuid ? 16 : 8); i++)
        snprintf(wanted + 2 * i, 3, "%02x", ((const unsigned char *)(uuid ? uuid : luid))[i]);
    ignis__fail(IGNIS_DIAG_DEVICE_RANGE, call, "none of the %d devices that this process sees has the %s %s%s",
                ignis__device_total, uuid ? "UUID" : "LUID", wanted, uuid && luid ? " and that LUID" : "");
    return -1;
}

IGNIS__COLD IGNIS_API ignis_status ignis_device_use(int ordinal)
{
    static const char call[] = "ignis_device_use";
    ignis__device *device;
    ignis__binding binding;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    device = ignis__device_get(call, ordinal);
    if (!device || !ignis__device_enter(call, device, &binding))
        return ignis__failed();
    ignis__device_leave(&binding);
    if (IGNIS__CUDA_FAILED(call, device, cuCtxSetCurrent, (device->context)))
        return ignis__failed();
    ignis__thread_state()->device = ordinal;
    return IGNIS_OK;
}

IGNIS_API int ignis_device_current(void)
{
    return ignis__enter("ignis_device_current") ? ignis__thread_state()->device : -1;
}

/*  Returns the calling thread's current device, opened and entered. NULL on failure. */
IGNIS__PRIVATE ignis__device *ignis__device_current_enter(const char *call, ignis__binding *binding)
{
    ignis__device *device;
    if (!ignis__enter(call))
        return NULL;
    device = ignis__device_get(call, ignis__thread_state()->device);
    return device && ignis__device_enter(call, device, binding) ? device : NULL;
}
