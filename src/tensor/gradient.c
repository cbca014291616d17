/*  >>tensor.gradient - adds gradients up, and writes those of leaves

    Sums are private arrays of a pass; the gradient of a leaf is shared by all threads.
    Uses: node; the rooms array and kernel. Invariant: a leaf's gradient keeps its memory, as graphs have its
    address.
    Locks: ignis__leaves.lock guards who is inside a leaf; it is not held while memory is taken or work is
    queued. */

#include "room.h"

/*  Changes the shape of a private array. Audits and memory pictures may read it meanwhile. */
IGNIS__PRIVATE void ignis__array_set_shape(ignis__array *array, const ignis_shape *shape)
{
    ignis__mutex_lock(&array->slot.lock);
    ignis__shape_copy(&array->shape, shape);
    ignis__array_unlock(array);
}

/*  Returns whether only the caller, by one claim, can see the array or its memory. */
IGNIS__PRIVATE bool ignis__array_is_private(ignis__array *array)
{
    bool is_private;
    ignis__mutex_lock(&array->slot.lock);
    is_private = (ignis__atomic_load(&array->slot.state) & 0xFFFFFFFFu) == 2 /* its handle and the claim */ &&
                 array->ref_count == 1 && !array->view && ignis__atomic_load(&array->storage->users) == 1 &&
                 !array->storage->wrapped;
    ignis__array_unlock(array);
    return is_private;
}

/*  *sum += gradient. *sum is claimed (NULL: none yet), the gradient's claim is taken over. The first gradient
    is only kept: a backward function may have given the array elsewhere too. So a sum has memory of its own
    unless *sum is private. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__gradient_add(const char *call, ignis__array **sum, ignis__array *gradient)
{
    ignis_array handles[3], made = IGNIS__ZERO;
    ignis_status status;
    if (!*sum) {
        *sum = gradient;
        return true;
    }
    handles[1].id = (*sum)->slot.handle;
    handles[2].id = gradient->slot.handle;
    if (ignis__array_is_private(*sum)) {
        handles[0] = handles[1];
    } else if (ignis__array_is_private(gradient)) {
        handles[0] = handles[2];
    } else {
        made = ignis__array_create_like(call, *sum, (*sum)->dtype);
        if (!made.id) {
            ignis__array_unclaim(call, gradient);
            return false;
        }
        handles[0] = made;
    }
    status = ignis__array_binary(call, IGNIS__BUILTIN(ADD), handles[0], handles[1], handles[2]);
    if (made.id) {
        ignis__array_unclaim(call, gradient);
        ignis__array_unclaim(call, *sum);
        *sum = ignis__array_adopt(call, made);
    } else if (handles[0].id == handles[2].id) {
        ignis__array_unclaim(call, *sum);
        *sum = gradient;
    } else {
        ignis__array_unclaim(call, gradient);
    }
    return status == IGNIS_OK;
}

/*  Replaces a claimed sum by a copy, unless its memory is private already. */
IGNIS__PRIVATE bool ignis__gradient_separate(const char *call, ignis__array **sum)
{
    ignis__array *copy;
    if (ignis__array_is_private(*sum))
        return true;
    copy = ignis__array_adopt(call, ignis__array_create_like(call, *sum, (*sum)->dtype));
    if (copy && !ignis__array_copy_bytes(call, copy, 0, *sum)) {
        ignis__array_unclaim(call, copy);
        copy = NULL;
    }
    if (!copy)
        return false;
    ignis__array_unclaim(call, *sum);
    *sum = copy;
    return true;
}

/* --- gradients of leaves, to which any number of threads may add ----------------------------------------------- */

/*  One thread at a time changes the gradient of a leaf, from ignis__leaves_enter to ignis__leaves_leave. A
    list is entered as a whole: a waiting thread has entered nothing, so no two threads wait for each other.
    No mutex is held in between, as taking memory and queueing work may take long. */
static struct {
    ignis__mutex lock;
    ignis__condition left;
} ignis__leaves = {IGNIS__MUTEX_INIT, IGNIS__CONDITION_INIT};

static void ignis__leaves_enter(ignis__leaf_state *list)
{
    ignis__leaf_state *at = list;
    ignis__mutex_lock(&ignis__leaves.lock);
    while (at) {
        if (at->leaf->entered) {
            ignis__condition_wait(&ignis__leaves.left, &ignis__leaves.lock);
            at = list;
        } else {
            at = at->next;
        }
    }
    for (at = list; at; at = at->next)
        at->leaf->entered = true;
    ignis__mutex_unlock(&ignis__leaves.lock);
}

static void ignis__leaves_leave(ignis__leaf_state *list)
{
    ignis__mutex_lock(&ignis__leaves.lock);
    for (; list; list = list->next)
        list->leaf->entered = false;
    ignis__condition_wake(&ignis__leaves.left);
    ignis__mutex_unlock(&ignis__leaves.lock);
}

/*  As ignis__leaves_enter, for one tensor. */
IGNIS__PRIVATE void ignis__leaf_enter(ignis__tensor *leaf)
{
    ignis__leaf_state one = IGNIS__ZERO;
    one.leaf = leaf;
    ignis__leaves_enter(&one);
}

IGNIS__PRIVATE void ignis__leaf_leave(ignis__tensor *leaf)
{
    ignis__leaf_state one = IGNIS__ZERO;
    one.leaf = leaf;
    ignis__leaves_leave(&one);
}

/*  Makes the current stream wait for changes of a gradient that other threads have queued on their streams.
    Not in a capture: it began when all streams were idle, and whoever launches its graph orders the launch. */
IGNIS__PRIVATE bool ignis__gradient_wait(const char *call, ignis__array *grad)
{
    ignis__device *device = grad->storage->device;
    return ignis__capture_on(device) || ignis__storage_sum_on(call, grad->storage, ignis__stream_current(device));
}

/*  Makes a claimed and private array the gradient of an entered leaf that has none yet. */
IGNIS__PRIVATE void ignis__gradient_install(const char *call, ignis__tensor *leaf, ignis__array *grad)
{
    ignis__array_set_shape(grad, &leaf->shape);
    (void)ignis__gradient_wait(call, grad); /* nothing comes before the first change */
    ignis__mutex_lock(&leaf->slot.lock);
    leaf->grad = grad;
    ignis__mutex_unlock(&leaf->slot.lock);
}

/*  Adds the sum of a leaf to its gradient, in one launch with the following leaves of its kind. The
    gradients' memory stays: a graph may have its address. */
static bool ignis__gradients_add(const char *call, ignis__leaf_state *first)
{
    unsigned grid[3] = {0, 1, 1}, block[3] = {256, 1, 1};
    ignis__array *added[IGNIS__ADDENDS];
    ignis__leaf_state *at;
    ignis__addends addends;
    ignis__work work;
    int64_t blocks = 0;
    int count = 0, i;
    void *params[] = {&addends, &count}, *function;
    bool ok = ignis__work_begin(call, first->leaf->device, &work);
    if (!ok)
        return false;
    for (at = first; ok && at && count < IGNIS__ADDENDS; at = at->next) {
        ignis__tensor *leaf = at->leaf;
        if (!at->sum || !leaf->grad || leaf->dtype != first->leaf->dtype || leaf->device != first->leaf->device)
            continue;
        ok = ignis__gradient_wait(call, leaf->grad) && ignis__work_read(&work, at->sum, &addends.at[count].src) &&
             ignis__work_write(&work, leaf->grad, &addends.at[count].dst);
        addends.at[count].n = at->sum->numel;
        addends.at[count].first_block = blocks;
        blocks += (at->sum->numel + 4095) / 4096;
        added[count++] = at->sum;
        at->sum = NULL;
    }
    if (ok && blocks) {
        grid[0] = (unsigned)blocks;
        function = ignis__builtin_get(call, work.device, IGNIS__BUILTIN(ADD_EACH), first->leaf->dtype);
        ok = function && ignis__builtin_launch(&work, IGNIS__BUILTIN(ADD_EACH), function, grid, block, 0, params);
    }
    ignis__work_end(&work);
    for (i = 0; i < count; i++)
        ignis__array_unclaim(call, added[i]);
    return ok;
}

/*  Checks that the kernel that adds to a leaf's gradient exists. It may be compiled and loaded for that. */
static bool ignis__gradient_prepare_add(const char *call, const ignis__tensor *leaf)
{
    ignis__work work;
    bool ok = ignis__work_begin(call, leaf->device, &work);
    if (ok) {
        ok = ignis__builtin_get(call, work.device, IGNIS__BUILTIN(ADD_EACH), leaf->dtype) != NULL;
        ignis__work_end(&work);
    }
    return ok;
}

/*  Writes the sums of a list to the gradients of its leaves. Whatever can fail comes first: after a failure
    nothing has changed. */
IGNIS__PRIVATE bool ignis__leaves_write(const char *call, ignis__leaf_state *list)
{
    const ignis__tensor *added = NULL; /* the last leaf with a sum to add: most are of one kind */
    ignis__leaf_state *at;
    bool ok = true;
    ignis__leaves_enter(list);
    for (at = list; ok && at; at = at->next) {
        const ignis__tensor *leaf = at->leaf;
        if (at->sum && !leaf->grad) {
            ok = ignis__gradient_separate(call, &at->sum);
            continue;
        }
        ok = !at->sum || ignis__array_readable(call, leaf->grad);
        if (ok && at->sum && (!added || added->dtype != leaf->dtype || added->device != leaf->device)) {
            ok = ignis__gradient_prepare_add(call, leaf);
            added = leaf;
        }
    }
    for (at = list; ok && at; at = at->next)
        ok = !at->sum || !at->leaf->grad || ignis__gradients_add(call, at);
    for (at = list; ok && at; at = at->next) {
        if (at->sum)
            ignis__gradient_install(call, at->leaf, at->sum);
        at->sum = NULL;
    }
    ignis__leaves_leave(list);
    return ok;
}
