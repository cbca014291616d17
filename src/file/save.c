/*  file/save.c - ignis_save

    Writes beside the target, flushes, and renames: the target has the old content or the new, never a part.
    May use: borrow.c, safetensors.c, base/file_io.c. Locks: none held while it writes. */

#include "room.h"

IGNIS__COLD IGNIS__PRIVATE bool ignis__file_fail(const char *call, const char *path, const char *what)
{
    return ignis__fail_file(IGNIS_DIAG_STORAGE_IO, call, path, what) == IGNIS_OK;
}

/*  Returns the items for the tensors of a save, sorted by their place in the file. */
static bool ignis__save_items(const char *call, const char *const *names, ignis__file_tensor *items,
                              const ignis__borrowed_tensor *lent, int count)
{
    const char *twice;
    int i;
    for (i = 0; i < count; i++) {
        if (!ignis__utf8_valid(names[i]) || strcmp(names[i], "__metadata__") == 0)
            return ignis__fail_false(
                IGNIS_DIAG_STORAGE_NAME, call, "names[%d], %s, is %s", i, ignis__name_write(names[i]).text,
                *names[i] == '_' ? "no name for a tensor: it is the file's own" : "not well-formed UTF-8");
        items[i].name = names[i];
        items[i].index = i;
        items[i].shape = lent[i].array->shape;
        while (ignis__file_dtypes[items[i].type].dtype != lent[i].array->dtype)
            items[i].type++;
    }
    ignis__file_tensor_sort(items, count, ignis__file_tensor_by_name);
    twice = ignis__file_tensor_duplicate(items, count);
    if (twice)
        ignis__fail(IGNIS_DIAG_STORAGE_NAME, call, "two tensors have the name %s", ignis__name_write(twice).text);
    else if (!ignis__safetensors_arrange(items, count))
        ignis__fail(IGNIS_DIAG_SHAPE_OVERFLOW, call, "the %d tensors have more bytes than 63 bits can count", count);
    else
        return true;
    return false;
}

IGNIS__PRIVATE bool ignis__save_write(const char *call, const char *path, FILE *file, const void *data, int64_t size)
{
    return fwrite(data, 1, (size_t)size, file) == (size_t)size || ignis__file_fail(call, path, "written");
}

static bool ignis__save_header(const char *call, const char *path, FILE *file, const ignis__file_tensor *items,
                               int count, const char *metadata)
{
    size_t size = ignis__safetensors_write(items, count, metadata, NULL, 0);
    unsigned char length[8];
    char *header;
    bool ok;
    int i;
    if (size > IGNIS__HEADER_LIMIT)
        return ignis__fail_false(IGNIS_DIAG_STORAGE_NAME, call,
                                 "%d names and shapes take %lld bytes, above the %d of a header", count,
                                 (long long)size, IGNIS__HEADER_LIMIT);
    header = (char *)ignis__alloc_for(call, size + 1);
    if (!header)
        return false;
    for (i = 0; i < 8; i++)
        length[i] = (unsigned char)(size >> 8 * i);
    ignis__safetensors_write(items, count, metadata, header, size + 1);
    ok = ignis__save_write(call, path, file, length, 8) && ignis__save_write(call, path, file, header, (int64_t)size);
    ignis__free(header);
    return ok;
}

/*  Writes an array, through IGNIS__CONVERT_CHUNK bytes of host memory. */
static bool ignis__save_array(const char *call, const char *path, FILE *file, ignis__array *array, void *chunk)
{
    ignis__work work;
    ignis__address address;
    int64_t size = ignis__array_bytes(array), done, part;
    bool ok;
    if (!ignis__work_begin(call, array->storage->device, &work))
        return false;
    ok = ignis__work_read(&work, array, &address);
    for (done = 0; ok && done < size; done += part) {
        part = size - done < IGNIS__CONVERT_CHUNK ? size - done : IGNIS__CONVERT_CHUNK;
        ok = ignis__copy_to_host(&work, chunk, address + (uint64_t)done, part) &&
             ignis__save_write(call, path, file, chunk, part);
    }
    ignis__work_end(&work);
    return ok;
}

IGNIS__PRIVATE bool ignis__replace_begin(ignis__replacement *r, const char *call, const char *path)
{
    bool loop, replaces;
    int64_t size, time;
    memset(r, 0, sizeof *r);
    r->call = call;
    r->path = path;
    if (ignis__path_is_special(path))
        return ignis__fail_false(IGNIS_DIAG_STORAGE_IO, call,
                                 "'%s' exists, and is not a regular file: it is not replaced", path);
    r->target = ignis__file_target(path, &loop);
    r->part = r->target ? ignis__file_part_path(r->target) : NULL;
    replaces = r->target && ignis__file_info(r->target, &size, &time); /* which may be less open than a new one */
    if (!r->part && !loop)
        ignis__fail_host_memory(call, strlen(path) + 80);
    else if (!r->part ||
             (r->file = ignis__file_create(r->part, replaces ? IGNIS__FILE_PRIVATE : IGNIS__FILE_NEW)) == NULL)
        (void)ignis__file_fail(call, path, "created");
    else
        ignis__file_inherit(r->file, r->target);
    if (r->file)
        return true;
    ignis__free(r->target);
    ignis__free(r->part);
    return false;
}

/*  Moves the file to its place and flushes it to the disk, or removes it; `ok`: it is complete. */
IGNIS__PRIVATE bool ignis__replace_end(ignis__replacement *r, bool ok)
{
    ok = ok && (ignis__file_flush(r->file) || ignis__file_fail(r->call, r->path, "written to the disk"));
    if (fclose(r->file) != 0 && ok)
        ok = ignis__file_fail(r->call, r->path, "closed");
    ok = ok && (ignis__file_rename(r->part, r->target) || ignis__file_fail(r->call, r->path, "replaced"));
    if (ok)
        ignis__folder_flush(r->target);
    else
        (void)ignis__file_remove(r->part);
    ignis__free(r->target);
    ignis__free(r->part);
    return ok;
}

static bool ignis__save_file(const char *call, const char *path, const ignis__file_tensor *items,
                             const ignis__borrowed_tensor *lent, int count, const char *metadata)
{
    ignis__replacement to;
    void *chunk;
    bool ok;
    int i;
    if (!ignis__replace_begin(&to, call, path))
        return false;
    chunk = ignis__alloc_for(call, (size_t)IGNIS__CONVERT_CHUNK);
    ok = chunk && ignis__save_header(call, path, to.file, items, count, metadata);
    for (i = 0; ok && i < count; i++)
        ok = ignis__save_array(call, path, to.file, lent[items[i].index].array, chunk);
    ignis__free(chunk);
    return ignis__replace_end(&to, ok);
}

/*  Saves tensors. metadata: a JSON object for the header, or NULL. */
IGNIS__PRIVATE ignis_status ignis__save(const char *call, const char *path, const char *const *names,
                                        const ignis_tensor *tensors, int count, const char *metadata)
{
    ignis__borrowed_tensor *lent;
    ignis__file_tensor *items;
    bool ok;
    int i;
    if (!ignis__check_named_tensors(call, path, names, tensors, count))
        return ignis__failed();
    lent = (ignis__borrowed_tensor *)ignis__alloc(((size_t)count + 1) * sizeof *lent);
    items = (ignis__file_tensor *)ignis__alloc(((size_t)count + 1) * sizeof *items);
    ok = lent && items;
    if (!ok)
        ignis__fail_host_memory(call, ((size_t)count + 1) * (sizeof *lent + sizeof *items));
    for (i = 0; ok && i < count; i++)
        ok = (lent[i].array = ignis__borrow_array(call, tensors[i])) != NULL;
    ok = ok && ignis__save_items(call, names, items, lent, count) && ignis__borrow_acquire(call, lent, count) &&
         ignis__save_file(call, path, items, lent, count, metadata);
    if (lent)
        ignis__borrow_release(call, lent, count, ok);
    ignis__free(lent);
    ignis__free(items);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_save(const char *path, const char *const *names, const ignis_tensor *tensors,
                                              int count)
{
    return ignis__save("ignis_save", path, names, tensors, count, NULL);
}
