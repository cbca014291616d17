/*  >>train.pieces - parameters that the ranks of data-parallel training share: each rank has a piece of each

    The state is that of the piece, and a step updates the piece; then the ranks send each other their pieces. All
    parameters of an optimizer belong to one training, or none is shared.
    Uses: optimizer, groups of the room tensor. The optimizer is locked. Invariant: all ranks send the same pieces in
    the same order, which is that of the parameters. */

#include "room.h"

/*  Holds the group of a shared tensor, if it has one whose training still goes on; *sharer is that. NULL: none. */
IGNIS__PRIVATE ignis__grad_group *ignis__pieces_hold(ignis__tensor *tensor, uint64_t *sharer)
{
    ignis__grad_group *group;
    ignis__mutex_lock(&tensor->slot.lock);
    group = tensor->group && tensor->group->sharing ? tensor->group : NULL;
    if (group && !ignis__pool_hold_more(group->owner))
        group = NULL; /* it is just ending */
    *sharer = group ? group->owner->handle : 0;
    ignis__mutex_unlock(&tensor->slot.lock);
    return group;
}

/*  Checks that a tensor may be the next parameter: it is shared as the others are. */
IGNIS__PRIVATE bool ignis__pieces_check(const char *call, const ignis__optimizer *optimizer, ignis__tensor *tensor)
{
    uint64_t sharer;
    ignis__grad_group *group = ignis__pieces_hold(tensor, &sharer);
    if (group)
        (void)group->sharing->drop_fn(group, call);
    if (group && optimizer->lbfgs)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "the tensor is shared by the ranks of ignis_parallel_desc.shard, which L-BFGS does "
                                 "not support");
    if (optimizer->count == 0 || sharer == optimizer->sharer)
        return true;
    return ignis__fail_false(IGNIS_DIAG_PARAMETER_KIND, call,
                             "the tensor, %s, %s; expected all parameters of an optimizer from one ignis_parallel with "
                             "shards, or none",
                             ignis__shape_write(&tensor->shape).text,
                             sharer ? "is shared by ranks, but parameters before it are not of the same ignis_parallel"
                                    : "is not shared by ranks, but parameters before it are");
}

/*  Claims the array that the optimizer updates: that of the tensor, or this rank's piece of it, with its gradient. */
IGNIS__PRIVATE bool ignis__piece_take(const char *call, ignis__optimizer *optimizer, ignis__parameter *parameter)
{
    uint64_t sharer;
    ignis__grad_group *group = ignis__pieces_hold(parameter->tensor, &sharer);
    ignis__piece piece;
    ignis__array *data;
    bool ok;
    int i;
    optimizer->sharer = sharer; /* it was that of the others, or there are none */
    if (!group) {
        data = ignis__tensor_array(call, parameter->tensor);
        if (!data)
            return false;
        ignis__array_claim(data);
        parameter->data = data;
        ignis__array_drop(call, data);
        return true;
    }
    memset(&piece, 0, sizeof piece);
    ok = group->sharing->piece_fn(group, call, parameter->tensor, &piece);
    parameter->data = ignis__array_adopt(call, piece.data);
    parameter->grad = ignis__array_adopt(call, piece.grad);
    parameter->group_of = group;
    ok = ok && parameter->data && (parameter->grad || group->sharing->grad_fn);
    parameter->start = piece.start;
    parameter->at = piece.at;
    parameter->copy = piece.copy;
    parameter->copies = piece.copies;
    parameter->leads_group = true;
    for (i = 0; i < optimizer->count; i++)
        parameter->leads_group &= optimizer->parameters[i].group_of != group;
    return group->sharing->drop_fn(group, call) && ok;
}

/*  Holds the training whose ranks share the parameters, for a call. writes: it changes them. False, and reported, if it
    was freed. */
IGNIS__PRIVATE bool ignis__pieces_begin(const char *call, ignis__optimizer *optimizer, bool writes)
{
    uint64_t sharer;
    ignis__grad_group *group;
    if (!optimizer->sharer)
        return true;
    group = ignis__pieces_hold(optimizer->parameters[0].tensor, &sharer);
    if (group && sharer == optimizer->sharer) {
        if (!group->sharing->begin_fn || group->sharing->begin_fn(group, call, writes)) {
            optimizer->sharing = group;
            return true;
        }
        (void)group->sharing->drop_fn(group, call);
        return false;
    }
    if (group)
        (void)group->sharing->drop_fn(group, call);
    return ignis__fail_false(IGNIS_DIAG_OPTIMIZER_STATE, call,
                             "the ignis_parallel whose ranks share the parameters was freed; free the optimizer, too");
}

/*  Finds the gradients of pieces that have no memory for good, for a call; ignis__pieces_end gives them up. */
IGNIS__PRIVATE bool ignis__pieces_gradients(const char *call, ignis__optimizer *optimizer)
{
    bool ok = true;
    int i;
    for (i = 0; ok && optimizer->sharing && optimizer->sharing->sharing->grad_fn && i < optimizer->count; i++) {
        ignis__parameter *parameter = &optimizer->parameters[i];
        ignis__grad_group *group = parameter->group_of;
        parameter->grad = ignis__array_adopt(
            call, group->sharing->grad_fn(group, call, parameter->at, parameter->start, parameter->data->numel));
        ok = parameter->grad != NULL;
    }
    return ok;
}

IGNIS__PRIVATE void ignis__pieces_end(const char *call, ignis__optimizer *optimizer)
{
    ignis__grad_group *group = optimizer->sharing;
    int i;
    for (i = 0; group && group->sharing->grad_fn && i < optimizer->count; i++)
        ignis__optimizer_unclaim(call, &optimizer->parameters[i].grad);
    optimizer->sharing = NULL;
    if (group)
        (void)group->sharing->drop_fn(group, call);
}

/*  Tells if a step may drop the gradients of all pieces: it has all leaves of each of their groups. */
IGNIS__PRIVATE bool ignis__pieces_may_drop(const ignis__optimizer *optimizer)
{
    int i, k, missing;
    if (!optimizer->sharing || !optimizer->sharing->sharing->grad_fn)
        return false;
    for (i = 0; i < optimizer->count; i++) {
        const ignis__grad_group *group = optimizer->parameters[i].group_of;
        if (!optimizer->parameters[i].leads_group)
            continue;
        missing = group->leaf_count;
        for (k = i; missing > 0 && k < optimizer->count; k++)
            missing -= optimizer->parameters[k].group_of == group;
        if (missing > 0)
            return false;
    }
    return true;
}

/*  Drops the gradients of all pieces, if ignis__pieces_may_drop. */
IGNIS__PRIVATE bool ignis__pieces_drop(const char *call, const ignis__optimizer *optimizer)
{
    bool ok = true;
    int i;
    for (i = 0; i < optimizer->count; i++) {
        ignis__grad_group *group = optimizer->parameters[i].group_of;
        if (optimizer->parameters[i].leads_group)
            ok = group->sharing->forget_fn(group, call) && ok;
    }
    return ok;
}

/*  Sets gradients to zero where this rank has no piece of them: averages of the next pass begin with all of them. */
IGNIS__PRIVATE bool ignis__pieces_zero(const char *call, const ignis__optimizer *optimizer)
{
    bool ok = true, has;
    int i;
    for (i = 0; ok && optimizer->sharing && i < optimizer->count; i++) {
        ignis__tensor *tensor = optimizer->parameters[i].tensor;
        const ignis__array *piece = optimizer->parameters[i].grad;
        ignis__mutex_lock(&tensor->slot.lock);
        has = tensor->grad && (piece->numel < tensor->grad->numel || piece->storage != tensor->grad->storage);
        ignis__mutex_unlock(&tensor->slot.lock);
        if (has)
            ok = ignis__zero_grad(call, tensor) == IGNIS_OK;
    }
    return ok;
}

/*  Sends the pieces that this rank has updated to the other ranks, and receives theirs. */
IGNIS__PRIVATE bool ignis__pieces_spread(const char *call, const ignis__optimizer *optimizer)
{
    bool ok = true;
    int i;
    for (i = 0; ok && optimizer->sharing && i < optimizer->count; i++) {
        ignis__grad_group *group = optimizer->parameters[i].group_of;
        ok = !optimizer->parameters[i].leads_group || group->sharing->spread_fn(group, call);
    }
    return ok;
}

/*  Makes an array of the tensor's shape from the pieces of all ranks; the caller frees it. No handle on failure. */
IGNIS__PRIVATE ignis_array ignis__piece_fill(const char *call, const ignis__parameter *parameter,
                                             const ignis__array *piece)
{
    ignis_array_desc desc = IGNIS__ZERO;
    ignis__array *array;
    ignis_array whole;
    bool ok;
    desc.shape = parameter->tensor->shape;
    desc.dtype = piece->dtype;
    desc.device = ignis__device_in_desc(piece->storage->device);
    desc.tag = "optimizer";
    whole = ignis__array_create(call, &desc);
    if (!whole.id)
        return whole;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, whole.id);
    ok = (piece->numel == 0 || ignis__array_copy_bytes(call, array, parameter->start * ignis__dtypes[piece->dtype].size,
                                                       (ignis__array *)piece)) &&
         parameter->group_of->sharing->fill_fn(parameter->group_of, call, parameter->at, whole);
    ignis__array_drop(call, array);
    if (!ok)
        ignis__array_discard(call, &whole);
    return whole;
}
