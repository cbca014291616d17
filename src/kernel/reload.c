/*  kernel/reload.c - ignis_kernel_reload: another program while the old one is in use

    Compiles on the thread of a ticket for each device that uses the kernel, then installs the program under the
    slot's lock.
    May use: user_kernel.c, array/ticket.c. Locks: the slot's lock, not held while compiling. */

#include "room.h"

typedef struct ignis__reload {
    ignis__kernel *kernel; /* of the handle, held */
    ignis__kernel *version;
    bool device[IGNIS_MAX_DEVICES];
} ignis__reload;

static const char ignis__reload_call[] = "ignis_kernel_reload";

IGNIS__COLD static void ignis__reload_drop(ignis__reload *reload)
{
    if (reload->version) {
        ignis__kernel_unload(ignis__reload_call, reload->version);
        ignis__free(reload->version);
    }
    ignis__kernel_drop(ignis__reload_call, reload->kernel);
    ignis__free(reload);
}

/*  Checks that the new program has all entries that handles launch. */
IGNIS__COLD static bool ignis__reload_entries(ignis__device *device, ignis__kernel *before, ignis__kernel *version)
{
    ignis__kernel_code *code = ignis__kernel_code_get(ignis__reload_call, device, version), *old;
    old = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&before->code[device - ignis__devices]);
    while (code && old && (old = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&old->entries)) != NULL)
        if (!ignis__kernel_code_entry(ignis__reload_call, device, version, code, old->entry))
            return false;
    return code != NULL;
}

/*  Compiles for all devices, and installs the result, unless a later reload has finished. */
IGNIS__COLD static void ignis__reload_run(void *context)
{
    ignis__reload *reload = (ignis__reload *)context;
    ignis__kernel *kernel = reload->kernel, *version = reload->version, *newest;
    ignis__binding binding;
    bool ok = true;
    int i;
    for (i = 0; ok && i < ignis__device_total; i++) {
        if (reload->device[i] && (ok = ignis__device_enter(ignis__reload_call, &ignis__devices[i], &binding)) == true) {
            ok = ignis__reload_entries(&ignis__devices[i], ignis__kernel_current(kernel), version);
            ignis__device_leave(&binding);
        }
    }
    if (ok) {
        ignis__mutex_lock(&kernel->slot.lock);
        newest = (ignis__kernel *)(uintptr_t)ignis__atomic_load(&kernel->newest);
        if (newest && newest->reload > version->reload) {
            version->older = newest->older;
            newest->older = version;
        } else {
            version->older = newest;
            ignis__atomic_store(&kernel->newest, (uint64_t)(uintptr_t)version);
        }
        ignis__mutex_unlock(&kernel->slot.lock);
        reload->version = NULL;
    }
    ignis__reload_drop(reload);
}

IGNIS__COLD IGNIS_API ignis_ticket ignis_kernel_reload(ignis_kernel handle, const ignis_kernel_desc *desc)
{
    ignis_ticket result = IGNIS__ZERO;
    ignis__kernel *held = ignis__kernel_hold(ignis__reload_call, handle),
                  *kernel = held && held->shares ? held->shares : held;
    ignis__device *device = kernel ? ignis__device_get(ignis__reload_call, ignis__thread_state()->device) : NULL;
    ignis__ticket *ticket = NULL;
    ignis__reload *reload;
    int i;
    if (!kernel)
        return result;
    if (kernel != held) {
        (void)ignis__pool_hold_more(kernel);
        ignis__kernel_drop(ignis__reload_call, held);
    }
    if (!device || !ignis__kernel_desc_check(ignis__reload_call, desc)) {
        ignis__kernel_drop(ignis__reload_call, kernel);
        return result;
    }
    reload = (ignis__reload *)ignis__alloc(sizeof *reload);
    if (reload)
        reload->version = (ignis__kernel *)ignis__alloc(sizeof *reload->version);
    if (!reload || !reload->version) {
        ignis__free(reload);
        ignis__kernel_drop(ignis__reload_call, kernel);
        ignis__fail_host_memory(ignis__reload_call, sizeof *reload + sizeof *kernel);
        return result;
    }
    reload->kernel = kernel;
    ignis__mutex_init(&reload->version->slot.lock);
    for (i = 0; i < ignis__device_total; i++)
        reload->device[i] =
            &ignis__devices[i] == device || ignis__atomic_load(&ignis__kernel_current(kernel)->code[i]) != 0;
    ignis__mutex_lock(&kernel->slot.lock);
    reload->version->reload = ++kernel->reloads;
    ignis__mutex_unlock(&kernel->slot.lock);
    if (ignis__kernel_keep(ignis__reload_call, reload->version, ignis__program_from(desc)))
        ticket = ignis__ticket_start(ignis__reload_call, device, ignis__reload_run, reload);
    if (ticket)
        result.id = ignis__pool_publish(&ignis__tickets, ticket);
    else
        ignis__reload_drop(reload);
    return result;
}
