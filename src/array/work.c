/*  array/work.c - work on arrays: enter the device, get addresses on the current stream, leave

    Every operation goes through ignis__work_begin and _end: they enter the device, count reads and writes, and open
    and close the profile's item.
    May use: storage.c, array.c. Locks: none held between begin and end. */

#include "room.h"

IGNIS__INLINE IGNIS__PRIVATE bool ignis__work_begin(const char *call, ignis__device *device, ignis__work *work)
{
    work->call = call;
    work->device = device;
    if (!ignis__device_enter(call, device, &work->binding))
        return false;
    work->stream = ignis__stream_current(device);
    work->found = ignis__this_thread.found_count;
    work->begin_ns = ignis__profiling() ? ignis__monotonic_ns() : 0;
    if (work->begin_ns) {
        ignis__this_thread.operation++;
        ignis__this_thread.exact_bytes = false;
        ignis__this_thread.bytes = ignis__this_thread.flops = 0;
    }
    return true;
}

IGNIS__INLINE IGNIS__PRIVATE void ignis__work_end(const ignis__work *work)
{
    if (work->begin_ns)
        ignis__trace_call(work->call, work->device, work->begin_ns);
    if (ignis__this_thread.found_count > work->found)
        ignis__storages_drop_found(work->call, work->found);
    ignis__device_leave(&work->binding);
}

/*  Returns the address of an array's first element, and allocates its memory if necessary. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__work_address(const ignis__work *work, ignis__array *array,
                                                      ignis__address *address)
{
    uint64_t base;
    if (!ignis__storage_use(work->call, array->storage, work->device, work->stream, &base))
        return false;
    *address = base && array->numel ? base + (uint64_t)array->offset : 0;
    if (ignis__profiling())
        ignis__this_thread.bytes += (double)ignis__array_bytes(array);
    return true;
}

/*  Counts a write to an array; one without elements is not written, even if it is a view. */
IGNIS__PRIVATE void ignis__array_written(ignis__array *array)
{
    if (array->numel > 0)
        ignis__storage_written(array->storage);
}

/*  Returns the address for work that writes the array. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__work_write(const ignis__work *work, ignis__array *array,
                                                    ignis__address *address)
{
    if (!ignis__work_address(work, array, address))
        return false;
    ignis__array_written(array);
    return true;
}

/*  Checks that an array was written. False, and reported, if it was not. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__array_readable(const char *call, const ignis__array *array)
{
    bool readable = array->numel == 0 || ignis__storage_readable(array->storage);
    if (!readable && ignis__atomic_load(&array->storage->address) && array->storage->replays)
        ignis__fail(IGNIS_DIAG_ARRAY_UNWRITTEN, call, "%s is written by a graph, which was never launched",
                    ignis__array_label(array).text);
    else if (!readable)
        ignis__fail(IGNIS_DIAG_ARRAY_UNWRITTEN, call,
                    "%s was never written to; if your own code wrote to it, call ignis_array_mark_written",
                    ignis__array_label(array).text);
    return readable;
}

/*  Returns the address for work that reads the array, which must have been written. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__work_read(const ignis__work *work, ignis__array *array,
                                                   ignis__address *address)
{
    return ignis__array_readable(work->call, array) && ignis__work_address(work, array, address);
}

/*  Holds the array of a handle and enters its device for work on it. NULL, and reported, on failure. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__array_work(const char *call, ignis_array handle, ignis__work *work)
{
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array || ignis__work_begin(call, array->storage->device, work))
        return array;
    ignis__array_drop(call, array);
    return NULL;
}

/*  Ends ignis__array_work, also if it failed. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__array_work_end(const ignis__work *work, ignis__array *array, bool ok)
{
    if (!array)
        return ignis__failed();
    ignis__work_end(work);
    return ignis__array_end(work->call, array, ok);
}

/*  Fails the call, and returns true, if the address of an array is valid for one operation only. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__array_refuses_address(const char *call, const ignis__array *array)
{
    if (!array->storage->find_fn)
        return false;
    ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                "%s is a parameter that ranks share (IGNIS_SHARD_PARAMETERS), whose memory is freed after each use; "
                "copy it to an array of its own",
                ignis__array_label(array).text);
    return true;
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_to_device(ignis_array handle)
{
    ignis__work work;
    ignis__array *array = ignis__array_work("ignis_array_to_device", handle, &work);
    ignis__address address;
    return ignis__array_work_end(&work, array, array && ignis__work_address(&work, array, &address));
}

IGNIS_API void *ignis_array_device_ptr(ignis_array handle)
{
    ignis__work work;
    ignis__array *array = ignis__array_work("ignis_array_device_ptr", handle, &work);
    ignis__address address = 0;
    bool ok = array && !ignis__array_refuses_address(work.call, array) && ignis__work_address(&work, array, &address);
    if (ok)
        ignis__atomic_store(&array->storage->exposed, 1);
    return ignis__array_work_end(&work, array, ok) == IGNIS_OK ? (void *)(uintptr_t)address : NULL;
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_mark_written(ignis_array handle)
{
    static const char call[] = "ignis_array_mark_written";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis__work work;
    ignis__address address;
    bool ok = array != NULL;
    if (ok &&
        ignis__capture_on(array->storage->device)) { /* each launch writes there, so the graph has to know the memory */
        ok = ignis__work_begin(call, array->storage->device, &work);
        if (ok) {
            ok = ignis__work_write(&work, array, &address);
            ignis__work_end(&work);
        }
    } else if (ok) {
        ignis__array_written(array);
    }
    return ignis__array_end(call, array, ok);
}
