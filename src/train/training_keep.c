/*  >>training.keep - trainings whose ranks share their state: the pieces of this rank, and the state of the last step

    Ranks that share state communicate in a step, so the death of one can spoil the step of another. The first step of
    an optimizer after ignis_training_mark copies what it is about to change: ignis_training_regroup undoes steps that
    not all living ranks have completed. A rank begins a step when all have marked the one before, because it has
    gradients of all: so ranks are one step apart at most.
    Uses: entries, pieces of optimizers. Locks: that of the training, then those of optimizers. */

#include "room.h"

enum { IGNIS__KEPT_ALIGNMENT = 256 };

static void ignis__training_piece_free(const char *call, ignis__piece *piece)
{
    if (piece->data.id)
        ignis__array_discard(call, &piece->data);
    if (piece->grad.id)
        ignis__array_discard(call, &piece->grad);
}

/*  Finds how ranks share the parameters of a training, and holds the owner. All have one owner, or none has. */
IGNIS__PRIVATE bool ignis__training_shares_find(const char *call, const ignis__training *training,
                                                ignis__training_shares *shares)
{
    ignis__piece piece;
    bool ok = true;
    int i;
    memset(shares, 0, sizeof *shares);
    for (i = 0; ok && i < training->count; i++) {
        uint64_t sharer;
        ignis__grad_group *group = ignis__pieces_hold(training->tensors[i], &sharer);
        if (!group)
            continue;
        if (!shares->group) {
            memset(&piece, 0, sizeof piece);
            shares->sharer = sharer;
            shares->group = group;
            ok = group->sharing->piece_fn(group, call, training->tensors[i], &piece);
            shares->rank = piece.rank;
            shares->copy = piece.copy;
            shares->copies = piece.copies;
            ignis__training_piece_free(call, &piece);
            continue;
        }
        ok = sharer == shares->sharer ||
             ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                               "ranks share tensor %s by another ignis_parallel than those before; expected one",
                               ignis__name_write(training->names[i]).text);
        (void)group->sharing->drop_fn(group, call);
    }
    for (i = 0; ok && i < training->optimizer_count; i++)
        ok = !training->optimizers[i]->sharer || training->optimizers[i]->sharer == shares->sharer ||
             ignis__fail_false(IGNIS_DIAG_OPTIMIZER_STATE, call,
                               "the ignis_parallel whose ranks share the parameters of optimizers[%d] was freed", i);
    return ok;
}

IGNIS__PRIVATE void ignis__training_shares_drop(const char *call, const ignis__training_shares *shares)
{
    if (shares->group)
        (void)shares->group->sharing->drop_fn(shares->group, call);
}

/*  Replaces the array of a tensor that ranks share by this rank's piece of it. */
static bool ignis__training_piece_find(const char *call, ignis__tensor *tensor, ignis__training_entry *entry)
{
    uint64_t sharer;
    ignis__grad_group *group = ignis__pieces_hold(tensor, &sharer);
    ignis__piece piece;
    bool ok;
    if (!group)
        return true;
    memset(&piece, 0, sizeof piece);
    ok = group->sharing->piece_fn(group, call, tensor, &piece);
    if (ok) {
        ignis__array_drop(call, entry->array);
        entry->array = (ignis__array *)ignis__pool_hold(&ignis__arrays, piece.data.id);
        entry->is_shared = true;
    }
    ignis__training_piece_free(call, &piece);
    return group->sharing->drop_fn(group, call) && ok;
}

/*  As ignis__training_entries_make, with this rank's piece of each tensor that ranks share. */
IGNIS__PRIVATE bool ignis__training_pieces_make(const char *call, const ignis__training *training,
                                                ignis__training_entries *entries)
{
    bool ok = ignis__training_entries_make(call, training, entries);
    int i;
    for (i = 0; ok && i < training->count; i++) /* the first entries are those of the tensors */
        ok = ignis__training_piece_find(call, training->tensors[i], &entries->list[i]);
    return ok;
}

/* --- the state of the last step --- */

/*  Returns the bytes of the entries in the memory. */
static int64_t ignis__training_kept_bytes(const ignis__training_entries *entries)
{
    int64_t bytes = 0;
    int i;
    for (i = 0; i < entries->count; i++)
        if (entries->list[i].array)
            bytes += ignis__ceil_div(ignis__array_bytes(entries->list[i].array), IGNIS__KEPT_ALIGNMENT) *
                     IGNIS__KEPT_ALIGNMENT;
    return bytes;
}

/*  Makes memory of `bytes` bytes, or keeps that which is there. */
static bool ignis__training_kept_take(const char *call, ignis__training *training, int64_t bytes)
{
    ignis_array_desc desc = IGNIS__ZERO;
    if (training->kept.memory && training->kept.memory->numel == bytes)
        return true;
    ignis__training_keep_close(call, training);
    desc.shape = IGNIS_SHAPE(bytes);
    desc.dtype = IGNIS_U8;
    desc.device = ignis__device_in_desc(training->device);
    desc.tag = "training";
    training->kept.memory = ignis__array_adopt(call, ignis__array_create(call, &desc));
    training->kept.step = -1;
    return training->kept.memory != NULL;
}

/*  Copies an entry to the memory `at` bytes from its start, or from there. */
static bool ignis__training_kept_copy(const char *call, const ignis__training *training, ignis__array *array,
                                      int64_t at, bool restores)
{
    const int64_t bytes = ignis__array_bytes(array);
    const ignis_shape shape = IGNIS_SHAPE(bytes);
    ignis__array *view;
    bool ok;
    if (!restores || bytes == 0)
        return bytes == 0 || ignis__array_copy_bytes(call, training->kept.memory, at, array);
    view = ignis__array_adopt(call, ignis__array_view(call, training->kept.memory, &shape, bytes, at));
    ok = view && ignis__array_copy_bytes(call, array, 0, view);
    ignis__optimizer_unclaim(call, &view);
    return ok;
}

/*  Copies all entries to the memory, which is made if it is missing, or from there. */
static bool ignis__training_kept_copies(const char *call, ignis__training *training, bool restores)
{
    ignis__training_entries entries;
    int64_t at = 0;
    bool ok;
    int i;
    memset(&entries, 0, sizeof entries);
    ok = ignis__training_pieces_make(call, training, &entries) &&
         ignis__training_kept_take(call, training, ignis__training_kept_bytes(&entries));
    for (i = 0; ok && i < entries.count; i++) {
        ignis__array *array = entries.list[i].array;
        if (!array)
            continue;
        ok = ignis__training_kept_copy(call, training, array, at, restores);
        at += ignis__ceil_div(ignis__array_bytes(array), IGNIS__KEPT_ALIGNMENT) * IGNIS__KEPT_ALIGNMENT;
    }
    ignis__training_entries_free(call, &entries);
    return ok;
}

/*  Makes the memory, and lets the steps of all optimizers keep the state before. */
IGNIS__PRIVATE bool ignis__training_keep_open(const char *call, ignis__training *training)
{
    ignis__training_entries entries;
    bool ok;
    int i;
    memset(&entries, 0, sizeof entries);
    ok = ignis__training_pieces_make(call, training, &entries) &&
         ignis__training_kept_take(call, training, ignis__training_kept_bytes(&entries));
    ignis__training_entries_free(call, &entries);
    for (i = 0; ok && i < training->optimizer_count; i++)
        ignis__atomic_store(&training->optimizers[i]->keeper, training->slot.handle);
    return ok;
}

IGNIS__PRIVATE void ignis__training_keep_close(const char *call, ignis__training *training)
{
    ignis__optimizer_unclaim(call, &training->kept.memory);
}

/*  Keeps the state before a step of an optimizer, unless it is kept since the last mark. */
IGNIS__PRIVATE bool ignis__training_keep(const char *call, ignis_optimizer handle)
{
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    ignis__training *training;
    uint64_t keeper;
    bool ok = true;
    if (!optimizer)
        return false;
    keeper = ignis__atomic_load(&optimizer->keeper);
    ignis__optimizer_drop(call, optimizer);
    if (!keeper)
        return true;
    if (ignis__capture_refuses(call))
        return false;
    training = ignis__training_seize(keeper);
    if (!training) /* it was freed */
        return true;
    if (training->kept.memory && training->step >= 0 && !training->kept.has_begun) {
        training->kept.step = -1;
        ok = ignis__training_kept_copies(call, training, false);
        if (ok) {
            training->kept.step = training->step;
            training->kept.random = training->random;
            training->kept.has_begun = true;
        }
    }
    return ignis__training_leave(call, training, ok) == IGNIS_OK;
}

/*  Makes the state that after `step` complete steps. */
IGNIS__PRIVATE bool ignis__training_undo(const char *call, ignis__training *training, int64_t step)
{
    ignis__training_kept *kept = &training->kept;
    if (training->step == step && !kept->has_begun)
        return true;
    if (!kept->memory || kept->step != step)
        return ignis__fail_false(IGNIS_DIAG_TRAINING_RANK, call,
                                 "this rank has completed %lld steps, and keeps the state of step %lld; expected that "
                                 "of step %lld, which all have completed",
                                 (long long)training->step, (long long)kept->step, (long long)step);
    if (!ignis__training_kept_copies(call, training, true))
        return false;
    training->step = step;
    training->random = kept->random;
    kept->has_begun = false;
    return true;
}
