/*  kernel/random.c - random numbers: Philox counters of threads and of graphs

    An operation takes a range of counters of its thread, so that its gradient can draw the same numbers again. In a
    graph the count of launches is added.
    May use: >>capture, elementwise.c. Locks: none; the state is the thread's. */

#include "room.h"

static void ignis__array_unclaim_held(const char *call, void *item)
{
    ignis__array_unclaim(call, (ignis__array *)item);
}

/*  Adds a counter of launches to a capture, beginning at 1. It is incremented beside the captured work, before its
    first reader. */
IGNIS__COLD static bool ignis__capture_count(const ignis__work *work, ignis__capture *capture, ignis_dtype dtype)
{
    unsigned one[3] = {1, 1, 1};
    void *function = ignis__builtin_get(work->call, work->device, IGNIS__BUILTIN(RANDOM_ADVANCE), dtype);
    ignis__address address;
    void *params[] = {&address};
    ignis__array *array;
    ignis_array_desc desc = IGNIS__ZERO;
    ignis_array made;
    bool ok;
    if (!function)
        return false;
    desc.shape = IGNIS_SHAPE(1);
    desc.dtype = IGNIS_I64;
    desc.device = ignis__device_in_desc(work->device);
    desc.tag = "launches";
    made = ignis__array_create(work->call, &desc);
    if (!made.id)
        return false;
    (void)ignis__capture_pause();
    ok = ignis__array_set_zero(work->call, made) == IGNIS_OK;
    ok = ignis__capture_resume(work->call, capture) && ok;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
    ok = ok && ignis__work_write(work, array, &address) &&
         ignis__launch_as(work, function, one, one, 0, params, false, false);
    if (ok) {
        ignis__array_claim(array);
        ok = ignis__capture_hold(work->call, capture, array, NULL, ignis__array_unclaim_held);
        if (ok)
            capture->launches = array;
        else
            ignis__array_unclaim(work->call, array);
    } else {
        ignis__array_discard(work->call, &made);
    }
    ignis__array_drop(work->call, array);
    return ok;
}

/*  Returns the counter of launches for random numbers of the calling thread, or no handle. */
IGNIS__PRIVATE ignis_array ignis__random_launches(void)
{
    const ignis__random_state *state = &ignis__thread_state()->random;
    const ignis__capture *capture = ignis__capturing();
    ignis_array launches = IGNIS__ZERO;
    if (state->again)
        launches.id = state->launches;
    else if (capture && capture->launches)
        launches.id = capture->launches->slot.handle;
    return launches;
}

/*  Reserves random numbers for `count` elements of a tensor on the device of the work. */
IGNIS__PRIVATE bool ignis__random_take(const ignis__work *work, ignis_dtype dtype, int64_t numel, ignis__random *random)
{
    ignis__random_state *state = &ignis__thread_state()->random;
    ignis__capture *capture = ignis__capture_on(work->device);
    if (capture && !capture->launches && !state->again && !ignis__capture_count(work, capture, dtype))
        return false;
    random->seed = state->seed;
    random->first = state->used;
    random->launches.id = 0;
    if (capture || state->again)
        random->launches = ignis__random_launches();
    state->used += ((uint64_t)numel + 3) / 4;
    return true;
}

/*  Returns the address of a counter of launches for a kernel; 0 for no handle. */
IGNIS__PRIVATE bool ignis__random_step(const ignis__work *work, ignis_array launches, ignis__address *step)
{
    ignis__array *array;
    bool ok;
    *step = 0;
    if (!launches.id)
        return true;
    array = ignis__array_hold(work->call, launches);
    ok = array && (array->storage->device != work->device || ignis__work_read(work, array, step));
    if (array)
        ignis__array_drop(work->call, array);
    return ok;
}

IGNIS_API ignis_status ignis_seed(uint64_t seed)
{
    if (!ignis__enter("ignis_seed"))
        return IGNIS_ERROR_NOT_SETUP;
    ignis__thread_state()->random.seed = seed;
    ignis__thread_state()->random.used = 0;
    return IGNIS_OK;
}

IGNIS_API ignis_random_state ignis_random_save(void)
{
    ignis_random_state state = IGNIS__ZERO;
    if (!ignis__enter("ignis_random_save"))
        return state;
    state.seed = ignis__thread_state()->random.seed;
    state.position = ignis__thread_state()->random.used;
    return state;
}

IGNIS_API ignis_status ignis_random_restore(ignis_random_state state)
{
    if (!ignis__enter("ignis_random_restore"))
        return IGNIS_ERROR_NOT_SETUP;
    ignis__thread_state()->random.seed = state.seed;
    ignis__thread_state()->random.used = state.position;
    return IGNIS_OK;
}
