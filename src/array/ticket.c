/*  array/ticket.c - tickets: work that a call has begun and not waited for

    Asynchronous copies go through pinned chunks unless all host memory is pinned. Other sections run threads with
    tickets.
    May use: copy.c, >>memory's pinned chunks, device/callback.c. Invariant: a ticket ends once, in
    ignis_ticket_wait or at ignis_shutdown.
    Locks: a ticket's slot, while its work is waited for by one thread. */

#include "room.h"

IGNIS__PRIVATE ignis__pool ignis__tickets =
    IGNIS__POOL(ignis__ticket, IGNIS__KIND_TICKET, "ticket", IGNIS_DIAG_TICKET_FREED);

/*  Makes an empty ticket, invisible to other threads. NULL on failure. */
static ignis__ticket *ignis__ticket_make(const char *call, ignis__device *device)
{
    ignis__ticket *ticket = (ignis__ticket *)ignis__pool_take_zeroed(call, &ignis__tickets);
    if (ticket)
        ticket->device = device;
    return ticket;
}

static IGNIS__THREAD_RESULT ignis__ticket_thread(void *pointer)
{
    ignis__ticket *ticket = (ignis__ticket *)pointer;
    ticket->run(ticket->context);
    ticket->record = ignis__this_thread.record;
    memset(&ignis__this_thread.record, 0, sizeof ticket->record);
    ignis__atomic_store(&ticket->through, 1);
    return 0;
}

/*  Makes a ticket for the work of a new thread. NULL on failure. */
IGNIS__PRIVATE ignis__ticket *ignis__ticket_start(const char *call, ignis__device *device, void (*run)(void *context),
                                                  void *context)
{
    ignis__ticket *ticket = ignis__ticket_make(call, device);
    if (!ticket)
        return NULL;
    ticket->run = run;
    ticket->context = context;
    if (ignis__thread_start(&ticket->thread, ignis__ticket_thread, ticket))
        return ticket;
    ignis__pool_recycle(&ignis__tickets, ticket);
    ignis__fail(IGNIS_DIAG_HOST_MEMORY, call, "the system has no thread");
    return NULL;
}

/*  Destroys a ticket whose work is done. */
static void ignis__ticket_destroy(ignis__ticket *ticket)
{
    if (ticket->done)
        ignis__event_recycle(ticket->device, ticket->done);
    if (ticket->piece)
        ignis__pinned_chunk_keep(ticket->device, ticket->piece);
    ignis__free(ticket->parts);
    free(ticket->record.message);
    ignis__pool_recycle(&ignis__tickets, ticket);
}

static void ignis__ticket_drop(ignis__ticket *ticket)
{
    if (ignis__pool_drop(ticket))
        ignis__ticket_destroy(ticket);
}

static void ignis__transfer_part_run(void *context)
{
    const ignis__transfer_part *part = (const ignis__transfer_part *)context;
    if (part->to_dtype == part->from_dtype)
        memcpy(part->to, part->from, (size_t)(part->count * ignis__dtypes[part->to_dtype].size));
    else
        ignis__convert(part->to, part->to_dtype, part->from, part->from_dtype, part->count);
}

/*  Checks whether a transfer needs no chunk: all of the host memory is pinned if its ends are. */
static bool ignis__transfer_direct(const ignis__work *work, const void *host, int64_t size, bool *direct)
{
    int first, last = 0, ordinal;
    bool ok = ignis__address_query(work->call, work->device, host, &first, &ordinal) &&
              ignis__address_query(work->call, work->device, (const char *)host + size - 1, &last, &ordinal);
    *direct = ok && first != 0 && last != 0;
    return ok;
}

/*  Queues a transfer of a non-empty array; out or data is NULL. */
static bool ignis__transfer_queue(const ignis__work *work, ignis__ticket *ticket, ignis__address address,
                                  ignis_dtype array_dtype, void *out, const void *data, ignis_dtype dtype,
                                  int64_t count)
{
    int64_t size = ignis__dtypes[array_dtype].size, step = IGNIS__PIECE / size, done;
    ignis__transfer_part *part;
    bool direct = false, ok = true;
    if (dtype == array_dtype && !ignis__transfer_direct(work, out ? out : data, count * size, &direct))
        return false;
    if (direct && out)
        return ignis__copy_down(work, out, address, count * size);
    if (direct)
        return ignis__copy_up(work, address, data, count * size);
    ticket->parts =
        (ignis__transfer_part *)ignis__alloc_for(work->call, (size_t)((count + step - 1) / step) * sizeof *part);
    if (!ticket->parts)
        return false;
    ticket->piece = ignis__pinned_chunk_take(work->call, work->device, IGNIS__PIECE);
    ok = ticket->piece != NULL;
    for (done = 0, part = ticket->parts; ok && done < count; done += part->count, part++) {
        ignis__address at = address + (uint64_t)(done * size);
        void *piece = ticket->piece->memory;
        part->count = count - done < step ? count - done : step;
        part->to = out ? (char *)out + done * ignis__dtypes[dtype].size : (char *)piece;
        part->from = out ? (const char *)piece : (const char *)data + done * ignis__dtypes[dtype].size;
        part->to_dtype = out ? dtype : array_dtype;
        part->from_dtype = out ? array_dtype : dtype;
        ok = (!out || ignis__copy_down(work, piece, at, part->count * size)) &&
             !IGNIS__CUDA_FAILED(work->call, work->device, cuLaunchHostFunc,
                                 (work->stream, ignis__transfer_part_run, part)) &&
             (out || ignis__copy_up(work, at, piece, part->count * size));
    }
    return ok;
}

IGNIS__COLD static ignis_ticket ignis__transfer_begin(const char *call, ignis_array handle, void *out, const void *data,
                                                      ignis_dtype dtype, int64_t count, bool to_host)
{
    ignis_ticket result = IGNIS__ZERO;
    ignis__work work;
    ignis__array *array = ignis__array_work(call, handle, &work);
    ignis__ticket *ticket = NULL;
    ignis__address address = 0;
    bool ok = array != NULL;
    if (ok && dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    ok = ok && ignis__dtype_valid(call, dtype) &&
         ignis__transfer_check(call, array, to_host ? out : data, to_host ? "out" : "data", count, array->numel,
                               "elements") &&
         !ignis__capture_refuses(call) &&
         (to_host ? ignis__work_read(&work, array, &address) : ignis__work_write(&work, array, &address)) &&
         (ticket = ignis__ticket_make(call, work.device)) != NULL;
    if (ok && count > 0) {
        ok = ignis__transfer_queue(&work, ticket, address, array->dtype, out, data, dtype, count) &&
             (ticket->done = ignis__event_record(call, work.device, work.stream)) != NULL;
        if (!ok)
            (void)ignis__device_finish(work.device); /* work queued already uses the host memory and the chunk */
    }
    if (ok)
        result.id = ignis__pool_publish(&ignis__tickets, ticket);
    else if (ticket)
        ignis__ticket_destroy(ticket);
    ignis__array_work_end(&work, array, ok);
    return result;
}

IGNIS_API ignis_ticket ignis_array_to_host_async(ignis_array array, void *out, ignis_dtype dtype, int64_t count)
{
    return ignis__transfer_begin("ignis_array_to_host_async", array, out, NULL, dtype, count, true);
}

IGNIS_API ignis_ticket ignis_array_from_host_async(ignis_array array, const void *data, ignis_dtype dtype,
                                                   int64_t count)
{
    return ignis__transfer_begin("ignis_array_from_host_async", array, NULL, data, dtype, count, false);
}

IGNIS_API ignis_status ignis_ticket_query(ignis_ticket handle, bool *done)
{
    static const char call[] = "ignis_ticket_query";
    ignis__ticket *ticket = (ignis__ticket *)ignis__handle_hold(call, &ignis__tickets, handle.id);
    ignis__binding binding;
    bool ok;
    if (!ticket)
        return ignis__failed();
    ok = ignis__check_not_null(call, "done", done);
    if (ok) {
        *done = !ticket->run || ignis__atomic_load(&ticket->through);
        if (ticket->done && !ignis__devices_lost() &&
            (ok = ignis__device_enter(call, ticket->device, &binding)) == true) {
            *done = IGNIS__CUDA(cuEventQuery, (ticket->done->event)) != IGNIS__CU_NOT_READY;
            ignis__device_leave(&binding);
        }
    }
    ignis__ticket_drop(ticket);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Waits for the work of a held ticket, and ends the ticket and the hold. */
static ignis_status ignis__ticket_finish(const char *call, ignis__ticket *ticket)
{
    ignis__binding binding;
    bool ok = true, entered = ticket->done && ignis__device_enter(call, ticket->device, &binding);
    if (ticket->done) {
        ok = entered;
        if (!ignis__devices_lost() &&
            IGNIS__CUDA_FAILED(call, ticket->device, cuEventSynchronize, (ticket->done->event))) {
            ok = false;
            (void)ignis__device_finish(ticket->device); /* memory of the work is the caller's again from here on */
        }
    }
    if (entered)
        ignis__device_leave(&binding);
    if (ticket->run) {
        ignis__mutex_lock(&ticket->slot.lock);
        if (!ticket->joined)
            ignis__thread_join(ticket->thread);
        ticket->joined = true;
        ignis__mutex_unlock(&ticket->slot.lock);
        ok = ticket->record.status == IGNIS_OK || ignis__record_repeat(&ticket->record) == IGNIS_OK;
    }
    ignis__handle_kill(ticket);
    ignis__ticket_drop(ticket);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_ticket_wait(ignis_ticket handle)
{
    static const char call[] = "ignis_ticket_wait";
    ignis__ticket *ticket = (ignis__ticket *)ignis__handle_hold(call, &ignis__tickets, handle.id);
    return ticket ? ignis__ticket_finish(call, ticket) : ignis__failed();
}

/*  Reports and ends the remaining tickets. */
IGNIS__COLD IGNIS__PRIVATE void ignis__tickets_close(const char *call)
{
    ignis__ticket *ticket;
    uint64_t index = 0;
    while ((ticket = (ignis__ticket *)ignis__pool_next(&ignis__tickets, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "ticket of device %d, not waited for",
                           ignis__device_ordinal(ticket->device));
        (void)ignis__ticket_finish(call, ticket);
    }
}
