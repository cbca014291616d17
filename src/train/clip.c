/*  >>train.clip - ignis_clip_grad_norm and ignis_clip_grad_norms: norms of gradients, and what the next step scales

    The norm stays on the device, in the state of each optimizer. Optimizers are locked in the order of their handles.
    Uses: table. */

#include "room.h"

/*  An optimizer that a call has begun, and its work. */
typedef struct ignis__clipped {
    ignis__optimizer *optimizer;
    ignis__work work;
    int before; /* place of the one that was begun before it; -1: none */
} ignis__clipped;

/*  Returns how many sums of squares the gradients of an optimizer have, on all ranks that share them. */
static int64_t ignis__clipped_squares(const ignis__optimizer *optimizer)
{
    int64_t squares = 0;
    int dtype;
    for (dtype = 0; dtype < IGNIS_DTYPE_COUNT; dtype++)
        squares += optimizer->squares_of[dtype];
    return squares;
}

/*  Adds the squares of ranks that have parts of matrices, block by block. Gradients that all ranks have count once. */
static bool ignis__clip_sum_ranks(const ignis__clipped *all, int count, const ignis__clip_ranks *ranks,
                                  const ignis__array *squares)
{
    const char *call = all[0].work.call;
    int64_t at = 0;
    ignis_array handle, equal = IGNIS__ZERO;
    ignis_shape shape;
    bool ok = true;
    int i;
    for (i = 0; i < count && i < ranks->divided; i++)
        at += ignis__clipped_squares(all[i].optimizer);
    handle.id = squares->slot.handle;
    shape = IGNIS_SHAPE(squares->numel - at);
    if (ranks->of.rank > 0 && shape.dim[0] > 0) {
        equal = ignis__array_view(call, squares, &shape, shape.dim[0], at * ignis__dtypes[squares->dtype].size);
        ok = equal.id && ignis__array_set_zero(call, equal) == IGNIS_OK;
        if (equal.id)
            ignis__array_discard(call, &equal);
    }
    return ok && ranks->of.sum_fn(ranks->of.group, handle) == IGNIS_OK;
}

/*  Launches the sum of squares of each block's gradients, then what computes the norm from it, for each optimizer
    that has gradients. Ranks that share the gradients add their sums, each of which one rank has: that is exact, so
    the norm has the bits of unshared gradients. ranks: see ignis__clip_grad_norms. */
static bool ignis__grad_norm_launch(const ignis__clipped *all, int count, ignis__array *squares, double max_norm,
                                    const ignis__clip_ranks *ranks)
{
    unsigned one[3] = {1, 1, 1}, block[3] = {256, 1, 1};
    ignis__grad_group *sharing = all[0].optimizer->sharing;
    ignis__address state, lead, first, at, checked = 0;
    int64_t blocks = squares->numel;
    void *sums[] = {&at, NULL, NULL, &checked}, *clip[] = {&state, &lead, &first, &blocks, &max_norm}, *function;
    ignis_array handle;
    bool ok = ignis__work_write(&all[0].work, all[0].optimizer->state, &lead) &&
              ignis__work_write(&all[0].work, squares, &first);
    int i;
    handle.id = squares->slot.handle;
    at = first;
    checked = max_norm == 0 ? lead : 0;
    ok = ok && (!sharing || ignis__array_set_zero(all[0].work.call, handle) == IGNIS_OK);
    for (i = 0; ok && i < count; i++)
        ok = ignis__optimizer_launch(&all[i].work, all[i].optimizer, IGNIS__BUILTIN(GRAD_SQUARES), 1, sums, &at);
    ok = ok && (!sharing || sharing->sharing->sum_fn(sharing, handle));
    ok = ok && (!ranks || ignis__clip_sum_ranks(all, count, ranks, squares));
    for (i = 0; ok && i < count; i++) {
        if (ignis__clipped_squares(all[i].optimizer) == 0)
            continue;
        function = ignis__builtin_get(all[i].work.call, all[i].work.device, IGNIS__BUILTIN(GRAD_CLIP),
                                      ignis__optimizer_dtype(all[i].optimizer));
        ok = function && ignis__work_write(&all[i].work, all[i].optimizer->state, &state) &&
             ignis__builtin_launch(&all[i].work, IGNIS__BUILTIN(GRAD_CLIP), function, one, block, 0, clip);
    }
    return ok;
}

/*  Computes the norm of all gradients for the next steps. max_norm 0: only if it is not known, and nothing is
    clipped. */
static bool ignis__grad_norm(const ignis__clipped *all, int count, double max_norm, const ignis__clip_ranks *ranks)
{
    const char *call = all[0].work.call;
    ignis__array *squares;
    int64_t blocks = 0;
    int i;
    bool ok;
    for (i = 0; i < count; i++)
        blocks += ignis__clipped_squares(all[i].optimizer);
    if (blocks == 0)
        return true;
    squares = ignis__optimizer_numbers(call, all[0].optimizer, blocks);
    ok = squares && ignis__grad_norm_launch(all, count, squares, max_norm, ranks);
    ignis__optimizer_unclaim(call, &squares);
    return ok;
}

/*  Computes the norm that a loss scale needs, if it is not known. */
IGNIS__PRIVATE bool ignis__optimizer_norm(const ignis__work *work, ignis__optimizer *optimizer)
{
    ignis__clipped one;
    one.optimizer = optimizer;
    one.work = *work;
    return ignis__grad_norm(&one, 1, 0, NULL);
}

static bool ignis__clip_check(const char *call, double max_norm)
{
    if (!ignis__enter(call))
        return false;
    if (ignis__is_nan(max_norm) || !(max_norm > 0))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "max_norm is %g, which is not above 0", max_norm);
    return true;
}

IGNIS_API ignis_status ignis_clip_grad_norm(ignis_optimizer handle, double max_norm)
{
    static const char call[] = "ignis_clip_grad_norm";
    ignis__clipped one;
    if (!ignis__clip_check(call, max_norm))
        return ignis__failed();
    one.optimizer = ignis__optimizer_begin(call, handle, IGNIS__WRITES_GRADS, &one.work);
    if (!one.optimizer)
        return ignis__failed();
    return ignis__optimizer_end(one.optimizer, &one.work, ignis__grad_norm(&one, 1, max_norm, NULL));
}

/*  Returns an optimizer's place in the one order in which all threads lock several: that of the slots, which hold the
    locks. Handles would be another order each time a new optimizer takes the slot of a freed one. */
static uint64_t ignis__clip_order(ignis_optimizer optimizer) { return optimizer.id << 32 | optimizer.id >> 32; }

/*  Finds the index of the next handle after `last` in that order (0: the first one); -1, and reported, if a handle is
    twice among them. */
static int ignis__clip_next(const char *call, const ignis_optimizer *optimizers, int count, uint64_t last)
{
    uint64_t order, lowest = 0;
    int i, least = -1, same = -1;
    for (i = 0; i < count; i++) {
        order = ignis__clip_order(optimizers[i]);
        if (order <= last && last)
            continue;
        if (least >= 0 && order == lowest)
            same = i;
        else if (least < 0 || order < lowest)
            least = i, lowest = order, same = -1;
    }
    if (same >= 0) {
        ignis__fail(IGNIS_DIAG_PARAMETER_KIND, call, "optimizers[%d] and optimizers[%d] are the same", least, same);
        return -1;
    }
    return least;
}

/*  Checks that an optimizer can share norm and scale with the first one. */
static bool ignis__clip_fits(const char *call, const ignis__clipped *all, int at)
{
    const ignis__optimizer *first = all[0].optimizer, *other = all[at].optimizer;
    const ignis_loss_scale_desc *a = &first->scale, *b = &other->scale;
    if (first->device != other->device)
        return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call,
                                 "optimizers[%d] is on device %d, optimizers[0] is on device %d", at,
                                 ignis__device_ordinal(other->device), ignis__device_ordinal(first->device));
    if (first->sharer != other->sharer)
        return ignis__fail_false(IGNIS_DIAG_PARAMETER_KIND, call,
                                 "the parameters of optimizers[%d] and optimizers[0] are not shared by the same ranks; "
                                 "expected one ignis_parallel with shards, or none",
                                 at);
    if ((a->interval == 0) != (b->interval == 0))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "optimizers[%d] has %s loss scale; expected one for all or none", at,
                                 b->interval ? "a" : "no");
    if (a->interval != b->interval || a->growth != b->growth || a->backoff != b->backoff || a->lowest != b->lowest)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "the loss scales of optimizers[%d] and optimizers[0] differ; expected one loss_scale",
                                 at);
    return true;
}

/*  Clips gradients of optimizers, whose norm is that of all. ranks: have parts of the gradients of the first
    optimizers; NULL: there are none. */
IGNIS__PRIVATE ignis_status ignis__clip_grad_norms(const char *call, const ignis_optimizer *optimizers, int count,
                                                   double max_norm, const ignis__clip_ranks *ranks)
{
    ignis__clipped *all;
    uint64_t last = 0;
    int i, next, begun = -1;
    bool ok = true;
    if (!ignis__clip_check(call, max_norm))
        return ignis__failed();
    if (!optimizers)
        return ignis__fail_null(call, "optimizers");
    if (count < 1)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d; expected a number above 0", count);
    all = (ignis__clipped *)ignis__alloc(sizeof *all * (size_t)count);
    if (!all)
        return ignis__fail_host_memory(call, sizeof *all * (size_t)count);
    memset(all, 0, sizeof *all * (size_t)count);
    for (i = 0; ok && i < count; i++) { /* each stays locked */
        next = ignis__clip_next(call, optimizers, count, last);
        if (next >= 0) {
            last = ignis__clip_order(optimizers[next]);
            all[next].optimizer = ignis__optimizer_begin(call, optimizers[next], IGNIS__WRITES_GRADS, &all[next].work);
        }
        ok = next >= 0 && all[next].optimizer;
        if (ok) {
            all[next].before = begun;
            begun = next;
        }
    }
    for (i = 1; ok && i < count; i++)
        ok = ignis__clip_fits(call, all, i);
    ok = ok && ignis__grad_norm(all, count, max_norm, ranks);
    for (i = begun; i >= 0; i = all[i].before)
        (void)ignis__optimizer_end(all[i].optimizer, &all[i].work, ok);
    ignis__free(all);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_clip_grad_norms(const ignis_optimizer *optimizers, int count, double max_norm)
{
    return ignis__clip_grad_norms("ignis_clip_grad_norms", optimizers, count, max_norm, NULL);
}
