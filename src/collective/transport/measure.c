/*  >>transport.measure - measuring bandwidth and latency

    Times sends and receives of two sizes; for kinds without copies, copies from the imported array.
    Uses: the public functions of transports.
    Locks: none of its own. */

#include "room.h"

/*  Returns the nanoseconds of `count` copies; -1 on failure. */
static int64_t ignis__measure_copies(const char *call, ignis__transport *transport, ignis__array *src,
                                     ignis__array *seen, ignis__array *dst, int count)
{
    int64_t started = ignis__monotonic_ns();
    ignis_transport_handle handle;
    ignis__record_of_array record;
    bool ok = true;
    for (; ok && count > 0; count--) {
        if (seen) {
            ok = ignis__array_convert(call, dst, seen);
        } else if ((ok = ignis__transport_export(call, transport, src, false, &handle)) != false) {
            ok = ignis__record_read(call, transport, &handle, &record) &&
                 ignis__handle_copy(call, transport, &record, &handle, dst);
            ignis__handle_close(&handle);
        }
    }
    return ok && ignis__array_wait(call, dst) ? ignis__monotonic_ns() - started : -1;
}

/*  Returns the nanoseconds of one copy of `bytes`; -1 on failure. */
static int64_t ignis__measure_size(const char *call, ignis__transport *transport, int64_t bytes, int count)
{
    bool zero_copy = ignis__transport_ops_of(transport)->zero_copy, ok;
    ignis__array *arrays[3] = {NULL, NULL, NULL};
    ignis_transport_handle handle;
    ignis__record_of_array record;
    ignis_array handles[3];
    int64_t ns = -1;
    int i;
    memset(handles, 0, sizeof handles);
    handles[0] =
        ignis__array_zeroed(call, transport->src, IGNIS_U8, bytes, NULL, transport->kind == IGNIS_TRANSPORT_VMM);
    handles[1] = ignis__array_zeroed(call, transport->dst, IGNIS_U8, bytes, NULL, false);
    ok = handles[0].id && handles[1].id && ignis__array_hold_all(call, 2, handles, arrays);
    if (ok && zero_copy && (ok = ignis__transport_export(call, transport, arrays[0], true, &handle)) != false) {
        if (ignis__record_read(call, transport, &handle, &record))
            handles[2] = ignis__import_array(call, transport, &record, &handle);
        ok = handles[2].id && (arrays[2] = ignis__array_hold(call, handles[2])) != NULL;
        ignis__handle_close(&handle);
    }
    ok = ok && ignis__array_wait(call, arrays[0]) && ignis__array_wait(call, arrays[1]) &&
         ignis__measure_copies(call, transport, arrays[0], arrays[2], arrays[1], 2) >= 0; /* warm up */
    if (ok)
        ns = ignis__measure_copies(call, transport, arrays[0], arrays[2], arrays[1], count);
    for (i = 2; i >= 0; i--) {
        if (arrays[i])
            ignis__array_drop(call, arrays[i]);
        if (handles[i].id)
            ignis__array_free_as(call, handles[i], IGNIS_OWNER_IGNIS);
    }
    return ns < 0 ? -1 : ns / count;
}

IGNIS_API IGNIS__COLD ignis_status ignis_transport_measure(ignis_transport handle, int64_t bytes)
{
    static const char call[] = "ignis_transport_measure";
    /* a copy of the transport, without a channel */
    ignis__transport *transport = ignis__transport_hold_ready(call, handle), alone;
    int64_t large_ns = -1, small_ns = -1;
    if (!transport)
        return ignis__failed();
    memset(&alone, 0, sizeof alone);
    /* within one process both are the same */
    alone.kind = transport->kind == IGNIS_TRANSPORT_IPC ? IGNIS_TRANSPORT_PEER : transport->kind;
    alone.src = transport->src;
    alone.dst = transport->dst;
    alone.exchange = IGNIS__EXCHANGE_SYSTEM;
    alone.serial = ignis__atomic_add(&ignis__shares.transports, 1);
    bytes = bytes ? bytes : (int64_t)64 << 20;
    if (bytes < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "bytes is %lld; expected 0 or more", (long long)bytes);
    else if (!ignis__capture_refuses(call))
        large_ns = ignis__measure_size(call, &alone, bytes, 8);
    if (large_ns >= 0)
        small_ns = ignis__measure_size(call, &alone, 4, 20);
    if (small_ns >= 0) {
        ignis__mutex_lock(&transport->slot.lock);
        transport->bandwidth_gbs = (double)bytes / (double)(large_ns ? large_ns : 1);
        transport->latency_us = (double)small_ns * 1e-3;
        ignis__mutex_unlock(&transport->slot.lock);
    }
    return ignis__transport_end_call(transport, small_ns >= 0);
}
