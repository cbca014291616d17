/*  >>training.save - copies a rank's part of a training to pinned memory, from where a thread writes it

    Steps of a rank: the model's file, the training's file; each is written beside its name, flushed and renamed. The
    rank that then finds the files of all ranks writes the index. Names of a save are new, so until the index is
    replaced, the folder has the training before, untouched.
    Uses: entries, index, the room file, tickets. Locks: none beside that of the call; the thread reads the save, which
    nothing changes until the thread has ended. */

#include "room.h"

/*  Frees what a save has on the host, once its thread has ended. */
static void ignis__training_save_free(const char *call, ignis__training *training)
{
    ignis__training_save *save = &training->save;
    int kind;
    if (save->copied)
        ignis__event_recycle(training->device, save->copied);
    for (kind = 0; kind < IGNIS__TRAINING_FILES; kind++)
        ignis__free(save->items[kind]);
    ignis__training_entries_free(call, &save->entries);
    ignis__free(save->folder);
    memset(save, 0, sizeof *save);
}

/* --- in the thread --- */

/*  Writes one of the two files of this rank. */
static bool ignis__training_write_file(const char *call, const ignis__training *training, int kind)
{
    const ignis__training_save *save = &training->save;
    const ignis__training_name name =
        ignis__training_file_name(kind, save->id, training->ranks.rank, training->ranks.size);
    char *path = ignis__training_path(call, save->folder, name.text), metadata[80];
    ignis__replacement to;
    bool ok = path && ignis__replace_begin(&to, call, path);
    int i;
    if (ok) {
        snprintf(metadata, sizeof metadata, "{\"format\":\"pt\",\"ignis_save\":\"%016llx\"}",
                 (unsigned long long)save->id);
        ok = ignis__save_header(call, path, to.file, save->items[kind], save->item_count[kind], metadata);
        for (i = 0; ok && i < save->item_count[kind]; i++) {
            const ignis__file_tensor *item = &save->items[kind][i];
            const char *data = (const char *)training->pinned->memory + save->entries.list[item->index].offset;
            ok = ignis__save_write(call, path, to.file, data, item->end - item->begin);
        }
        ok = ignis__replace_end(&to, ok);
    }
    ignis__free(path);
    return ok;
}

/*  Checks whether all ranks have written their files. The training's file of a rank is its last. */
static bool ignis__training_is_complete(const char *call, const ignis__training *training)
{
    bool complete = true;
    int64_t size, time;
    int rank;
    for (rank = 0; complete && rank < training->ranks.size; rank++) {
        const ignis__training_name name =
            ignis__training_file_name(IGNIS__TRAINING_STATE, training->save.id, rank, training->ranks.size);
        char *path = ignis__training_path(call, training->save.folder, name.text);
        complete = path && ignis__file_info(path, &size, &time);
        ignis__free(path);
    }
    return complete;
}

static void ignis__training_write(void *context)
{
    static const char call[] = "ignis_training_save";
    ignis__training *training = (ignis__training *)context;
    ignis__binding binding;
    bool ok = ignis__device_enter(call, training->device, &binding);
    if (ok) {
        ok = !IGNIS__CUDA_FAILED(call, training->device, cuEventSynchronize, (training->save.copied->event));
        ignis__device_leave(&binding);
    }
    ok = ok && (!training->save.item_count[IGNIS__TRAINING_MODEL] ||
                ignis__training_write_file(call, training, IGNIS__TRAINING_MODEL));
    ok = ok && ignis__training_write_file(call, training, IGNIS__TRAINING_STATE);
    if (ok && ignis__training_is_complete(call, training) && ignis__training_index_write(call, training))
        ignis__atomic_store(&training->save.committed, 1);
}

/* --- in the call --- */

/*  Lists the tensors that this rank writes, with their places in files and in pinned memory. Returns the bytes of
    memory; -1, and reported, on failure. */
static int64_t ignis__training_plan(const char *call, ignis__training *training)
{
    ignis__training_save *save = &training->save;
    int64_t end = 0;
    int i, kind;
    for (kind = 0; kind < IGNIS__TRAINING_FILES; kind++) {
        save->items[kind] =
            (ignis__file_tensor *)ignis__alloc_for(call, ((size_t)save->entries.count + 1) * sizeof *save->items[kind]);
        if (!save->items[kind])
            return -1;
    }
    for (i = 0; i < save->entries.count; i++) {
        ignis__training_entry *entry = &save->entries.list[i];
        const size_t size = strlen(entry->name) + 24;
        ignis__file_tensor *item;
        kind = entry->is_model ? IGNIS__TRAINING_MODEL : IGNIS__TRAINING_STATE;
        if (entry->is_piece ? entry->elements == 0 : entry->owner != training->ranks.rank)
            continue;
        entry->written = (char *)ignis__alloc_for(call, size);
        if (!entry->written)
            return -1;
        snprintf(entry->written, size, entry->is_piece ? "%s@%lld" : "%s", entry->name, (long long)entry->from);
        item = &save->items[kind][save->item_count[kind]++];
        memset(item, 0, sizeof *item);
        item->name = entry->written;
        item->index = i;
        item->shape = entry->is_piece ? IGNIS_SHAPE(entry->elements) : entry->shape;
        if (!ignis__file_dtype_choose(call, NULL, entry->dtype, &item->type))
            return -1;
        entry->offset = end;
        end += entry->elements * ignis__dtypes[entry->dtype].size;
        end += -end & 255;
    }
    for (kind = 0; kind < IGNIS__TRAINING_FILES; kind++) {
        if (!ignis__safetensors_arrange(save->items[kind], save->item_count[kind])) {
            ignis__fail(IGNIS_DIAG_SHAPE_OVERFLOW, call, "the tensors have more bytes than 63 bits can count");
            return -1;
        }
    }
    return end;
}

/*  Takes pinned memory of `size` bytes, or keeps that of the save before. */
static bool ignis__training_pin(const char *call, ignis__training *training, int64_t size)
{
    ignis__binding binding;
    bool ok = true;
    if (training->pinned && training->pinned->size >= size)
        return true;
    if (training->pinned)
        ok = ignis__pinned_chunk_recycle(call, training->device, training->pinned) == IGNIS_OK;
    training->pinned = NULL;
    if (!ok || !ignis__device_enter(call, training->device, &binding))
        return false;
    training->pinned = ignis__pinned_chunk_take(call, training->device, size ? size : 1);
    ignis__device_leave(&binding);
    return training->pinned != NULL;
}

/*  Queues the copy of what this rank writes of an entry. A parameter that ranks share is read by all of them, because
    together they gather it; the work of each entry gives it up again. */
static bool ignis__training_copy_entry(const char *call, const ignis__training *training,
                                       const ignis__training_entry *entry)
{
    const int64_t size = ignis__dtypes[entry->dtype].size, bytes = entry->elements * size;
    const bool writes = entry->written && bytes > 0, gathers = entry->array && entry->array->storage->find_fn;
    char *to = (char *)training->pinned->memory + entry->offset;
    ignis__work work;
    ignis__address address;
    bool ok;
    if (writes && entry->host)
        memcpy(to, entry->host, (size_t)bytes);
    if (entry->host || !(writes || gathers))
        return true;
    if (!ignis__work_begin(call, training->device, &work))
        return false;
    ok = ignis__work_read(&work, entry->array, &address) &&
         (!writes || ignis__copy_down(&work, to, address + (uint64_t)((entry->from - entry->start) * size), bytes));
    ignis__work_end(&work);
    return ok;
}

/*  Queues the copies of what this rank writes, and records their end. */
static bool ignis__training_copy(const char *call, ignis__training *training)
{
    ignis__training_save *save = &training->save;
    ignis__work work;
    bool ok = ignis__work_begin(call, training->device, &work);
    int i;
    if (!ok)
        return false;
    for (i = 0; ok && i < save->entries.count; i++)
        ok = ignis__training_copy_entry(call, training, &save->entries.list[i]);
    save->copied = ignis__event_record(call, training->device, work.stream);
    if (!save->copied)
        (void)ignis__device_finish(training->device); /* queued copies use the pinned memory */
    ignis__work_end(&work);
    return ok && save->copied;
}

/*  Makes the folder. False, and reported, if readers would take another model in it for this one. */
static bool ignis__training_folder(const char *call, const char *folder)
{
    static const char single[] = "model.safetensors";
    char *path = ignis__training_path(call, folder, single);
    int64_t size, time;
    bool ok = path && (ignis__folder_make_all(folder) || ignis__file_fail(call, folder, "made"));
    if (ok && ignis__file_info(path, &size, &time))
        ok =
            ignis__fail_false(IGNIS_DIAG_STORAGE_IO, call,
                              "'%s' exists, which readers of the folder take instead of the index; move it away", path);
    ignis__free(path);
    return ok;
}

static bool ignis__training_begin(const char *call, ignis__training *training, const char *folder)
{
    ignis__training_save *save = &training->save;
    ignis__ticket *ticket;
    int64_t size = -1;
    bool ok;
    save->id = ignis__hash(ignis__hash(IGNIS__HASH_START, &training->id, sizeof training->id), &training->saves,
                           sizeof training->saves);
    save->folder = ignis__copy_string(folder);
    if (!save->folder)
        return ignis__fail_host_memory(call, strlen(folder) + 1) == IGNIS_OK;
    ok = ignis__training_folder(call, folder);
    if (ok && training->ranks.rank == 0) /* its file is missing still, so no rank writes an index */
        ignis__training_sweep_folder(folder, 0);
    if (ok && ignis__training_entries_make(call, training, &save->entries))
        size = ignis__training_plan(call, training);
    if (size < 0 || !ignis__training_pin(call, training, size) || !ignis__training_copy(call, training)) {
        ignis__training_entries_release(call, &save->entries);
        return false;
    }
    ignis__training_entries_release(call, &save->entries);
    ticket = ignis__ticket_start(call, training->device, ignis__training_write, training);
    if (ticket)
        save->ticket.id = ignis__pool_publish(&ignis__tickets, ticket);
    return ticket != NULL;
}

/*  Waits for the thread of a save, and frees the save; not for other ranks. False, and reported, if it has failed. */
IGNIS__PRIVATE bool ignis__training_save_end(const char *call, ignis__training *training)
{
    bool ok = !training->save.ticket.id || ignis_ticket_wait(training->save.ticket) == IGNIS_OK;
    if (training->save.copied && !training->save.ticket.id)
        (void)ignis__device_finish(training->device);
    ignis__training_save_free(call, training);
    return ok;
}

/*  Ends the save that has begun, if there is one: all ranks have written their files, and the index names them. */
IGNIS__PRIVATE bool ignis__training_finish(const char *call, ignis__training *training)
{
    ignis__training_save *save = &training->save;
    bool ok;
    if (!save->has_begun)
        return true;
    ok = !save->ticket.id || ignis_ticket_wait(save->ticket) == IGNIS_OK;
    save->ticket.id = 0;
    if (save->failed)
        ok = ignis__fail_false(IGNIS_DIAG_TRAINING_RANK, call, "this rank has failed to begin the save");
    ok = ignis__training_agree(call, training, ok);
    /* Where names of new files are seen late, as on network file systems, no thread may have found all of them. */
    if (ok && training->ranks.rank == 0 && !ignis__atomic_load(&save->committed))
        ok = ignis__training_index_write(call, training);
    if (training->ranks.size > 1)
        ok = ignis__training_agree(call, training, ok) && ok;
    return ignis__training_save_end(call, training) && ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_training_save(ignis_training handle, const char *folder)
{
    static const char call[] = "ignis_training_save";
    ignis__training *training = ignis__training_enter(call, handle);
    bool ok;
    if (!training)
        return ignis__failed();
    ok = ignis__check_not_null(call, "folder", folder) && ignis__training_finish(call, training);
    if (ok) {
        training->saves++;
        training->save.has_begun = true;
        ok = ignis__training_begin(call, training, folder);
        training->save.failed = !ok;
    }
    return ignis__training_leave(call, training, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_training_wait(ignis_training handle)
{
    static const char call[] = "ignis_training_wait";
    ignis__training *training = ignis__training_enter(call, handle);
    return training ? ignis__training_leave(call, training, ignis__training_finish(call, training)) : ignis__failed();
}
