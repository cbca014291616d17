/*  file/load.c - ignis_load and ignis_file_list

    All checks come first; then chunks are read into pinned memory and copied, the next while one is on its way.
    May use: borrow.c, safetensors.c, device/memory_pinned.c. Locks: none held while it reads. */

#include "room.h"

IGNIS__PRIVATE void ignis__load_close(ignis__load *load)
{
    ignis__safetensors_close(&load->file);
    ignis__file_close(load->descriptor);
}

IGNIS__PRIVATE bool ignis__load_read(const char *call, const ignis__load *load, int64_t at, void *out, int64_t size)
{
    int64_t got = ignis__file_read_at(load->descriptor, at, out, size);
    if (got < 0)
        return ignis__file_fail(call, load->path, "read");
    if (got < size)
        ignis__fail(IGNIS_DIAG_STORAGE_IO, call,
                    "'%s' had %lld bytes when it was opened, and now ends before byte %lld", load->path,
                    (long long)load->size, (long long)(at + size));
    return got == size;
}

/*  Opens a file of any format. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__load_open_file(const char *call, const char *path, ignis__load *load)
{
    memset(load, 0, sizeof *load);
    load->path = path;
    load->descriptor = ignis__file_open(path, &load->size);
    if (load->descriptor >= 0)
        return true;
    if (!ignis__path_is_special(path))
        return ignis__file_fail(call, path, "opened");
    return ignis__fail_false(IGNIS_DIAG_STORAGE_IO, call, "'%s' is not a regular file", path);
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__load_open(const char *call, const char *path, ignis__load *load)
{
    unsigned char first[8], *head;
    int64_t size;
    uint64_t length;
    ignis_diagnostic result = IGNIS_DIAG_STORAGE_IO;
    if (!ignis__load_open_file(call, path, load))
        return false;
    size = load->size < 8 ? load->size : 8;
    if (ignis__load_read(call, load, 0, first, size)) {
        length = ignis__safetensors_length(first, size);
        if (length <= IGNIS__HEADER_LIMIT && (int64_t)length <= load->size - size)
            size += (int64_t)length;
        head = (unsigned char *)ignis__alloc((size_t)size + 1);
        if (!head)
            result = IGNIS_DIAG_HOST_MEMORY;
        else if (ignis__load_read(call, load, 0, head, size))
            result = ignis__safetensors_parse(&load->file, head, load->size);
        ignis__free(head);
    }
    if (result == IGNIS_DIAG_NONE)
        return true;
    if (result == IGNIS_DIAG_HOST_MEMORY)
        ignis__fail(result, call, "out of host memory for the header of '%s', a file of %lld bytes", path,
                    (long long)load->size);
    else if (result == IGNIS_DIAG_STORAGE_FORMAT)
        ignis__fail(result, call, "'%s' is not a sound safetensors file: %s", path, load->file.fault);
    ignis__load_close(load);
    return false;
}

/*  Finds the item of a name. NULL if there is none. The items are sorted by name. */
IGNIS__PRIVATE ignis__file_tensor *ignis__file_tensor_find(const ignis__safetensors *file, const char *name)
{
    ignis__file_tensor key = IGNIS__ZERO;
    key.name = name;
    return file->count ? (ignis__file_tensor *)bsearch(&key, file->items, (size_t)file->count, sizeof key,
                                                       ignis__file_tensor_by_name)
                       : NULL;
}

/*  As ignis__file_tensor_find. NULL is reported, with names that exist. */
static const ignis__file_tensor *ignis__load_find(const char *call, const char *path, const ignis__safetensors *file,
                                                  const char *name)
{
    const ignis__file_tensor *item = ignis__file_tensor_find(file, name);
    char known[512];
    ignis__string_writer text;
    int i;
    if (item)
        return item;
    ignis__string_begin(&text, known, sizeof known);
    for (i = 0; i < file->count && i < 5; i++)
        ignis__string_add(&text, "%s%s", i ? ", " : ": ", ignis__name_write(file->items[i].name).text);
    ignis__fail(IGNIS_DIAG_STORAGE_MISSING, call, "'%s' has no tensor %s; it has %d%s%s", path,
                ignis__name_write(name).text, file->count, known, file->count > 5 ? ", ..." : "");
    return NULL;
}

/*  Checks whether a tensor of a file fits into an array, or into a new one if `array` is NULL. */
static bool ignis__load_check_fit(const char *call, const ignis__file_tensor *item, const ignis__array *array)
{
    ignis_dtype dtype = ignis__file_dtypes[item->type].loaded;
    if (!dtype)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "tensor %s is %s in the file, a dtype Ignis does not support",
                    ignis__name_write(item->name).text, ignis__file_dtypes[item->type].name);
    else if (array && array->dtype != dtype)
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "tensor %s is %s in the file, but the tensor to load it into is %s",
                    ignis__name_write(item->name).text, ignis__dtypes[dtype].name, ignis__dtypes[array->dtype].name);
    else if (array && !ignis__shape_same(&array->shape, &item->shape))
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "tensor %s is %s in the file, but the tensor to load it into is %s",
                    ignis__name_write(item->name).text, ignis__shape_write(&item->shape).text,
                    ignis__shape_write(&array->shape).text);
    else
        return true;
    return false;
}

/*  Makes a new tensor like that of the file, and its array. False on failure. */
static bool ignis__load_make(const char *call, ignis__borrowed_tensor *lent, bool trainable)
{
    ignis_array_desc desc = IGNIS__ZERO;
    desc.shape = lent->item->shape;
    desc.dtype = ignis__file_dtypes[lent->item->type].loaded;
    desc.tag = lent->item->name;
    lent->made =
        ignis__tensor_adopt(call, ignis__array_create(call, &desc), trainable && ignis__dtype_is_float(desc.dtype));
    return lent->made.id && (lent->array = ignis__borrow_array(call, lent->made)) != NULL;
}

/*  Widens integers in place, from the end of the chunk. */
static void ignis__load_widen(char *part, int64_t size, int from, int to, bool is_signed)
{
    const unsigned char *in = (const unsigned char *)part + size - size / to * from;
    int64_t count = size / to, i, wide;
    for (i = 0; i < count; i++, in += from) {
        int32_t narrow;
        wide = from == 1 ? in[0]
               : from == 2
                   ? in[0] | in[1] << 8
                   : (int64_t)((uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24);
        if (is_signed && wide >> (8 * from - 1))
            wide -= (int64_t)1 << 8 * from;
        narrow = (int32_t)wide;
        memcpy(part + i * to, to == 4 ? (const void *)&narrow : (const void *)&wide, (size_t)to);
    }
}

/*  Turns big-endian elements of `size` bytes round. */
static void ignis__load_swap(char *bytes, int64_t count, int size)
{
    int64_t i;
    int k;
    for (i = 0; i < count; i++, bytes += size)
        for (k = 0; k < size / 2; k++) {
            char byte = bytes[k];
            bytes[k] = bytes[size - 1 - k];
            bytes[size - 1 - k] = byte;
        }
}

/*  Copies one tensor from the file, and waits. The next chunk is read while one is copied to the device. */
static bool ignis__load_array(const char *call, const ignis__load *load, ignis__array *array,
                              const ignis__file_tensor *item)
{
    ignis__pooled_event *copied[2] = {NULL, NULL}; /* after the copies from both halves of the staging memory */
    ignis__work work;
    ignis__address address;
    int64_t size = ignis__array_bytes(array), begin = load->file.data + item->begin, done, part;
    int piece = 0, to = ignis__dtypes[array->dtype].size, from = ignis__file_dtypes[item->type].bits / 8;
    bool ok;
    if (!ignis__work_begin(call, array->storage->device, &work))
        return false;
    ok = ignis__work_write(&work, array, &address);
    for (done = 0; ok && done < size; done += part, piece = !piece) {
        char *staging = load->staging + piece * load->part;
        part = size - done < load->part ? size - done : load->part;
        if (copied[piece]) {
            ok = !IGNIS__CUDA_FAILED(call, work.device, cuEventSynchronize, (copied[piece]->event));
            ignis__event_recycle(work.device, copied[piece]);
        }
        copied[piece] = NULL;
        ok = ok && ignis__load_read(call, load, begin + done / to * from, staging + part - part / to * from,
                                    part / to * from);
        if (ok && load->swaps)
            ignis__load_swap(staging + part - part / to * from, part / to, from);
        if (ok && from < to)
            ignis__load_widen(staging, part, from, to, ignis__file_dtypes[item->type].name[0] == 'I');
        ok = ok && ignis__copy_up(&work, address + (uint64_t)done, staging, part) &&
             (copied[piece] = ignis__event_record(call, work.device, work.stream)) != NULL;
    }
    for (piece = 0; piece < 2; piece++)
        if (copied[piece])
            ignis__event_recycle(work.device, copied[piece]);
    ok = !IGNIS__CUDA_FAILED(call, work.device, cuStreamSynchronize, (work.stream)) && ok;
    ignis__work_end(&work);
    return ok;
}

/*  Copies all tensors, through pinned memory of the current device, which serves every device. */
IGNIS__PRIVATE bool ignis__load_arrays(const char *call, ignis__load *load, const ignis__borrowed_tensor *lent,
                                       int count)
{
    ignis__binding binding;
    ignis__device *device;
    ignis__pinned *piece;
    int64_t largest = 0;
    bool ok = true;
    int i;
    for (i = 0; i < count; i++)
        if (largest < ignis__array_bytes(lent[i].array))
            largest = ignis__array_bytes(lent[i].array);
    if (largest == 0)
        return true;
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return false;
    load->part = largest < IGNIS__CONVERT_CHUNK ? largest : IGNIS__CONVERT_CHUNK;
    piece = ignis__pinned_chunk_take(call, device, 2 * load->part);
    ignis__device_leave(&binding);
    if (!piece)
        return false;
    load->staging = (char *)piece->memory;
    for (i = 0; ok && i < count; i++)
        ok = ignis__load_array(call, load, lent[i].array, lent[i].item);
    if (ignis__pinned_chunk_recycle(call, device, piece) != IGNIS_OK)
        ok = false;
    return ok;
}

/*  Loads tensors. All checks are made before the first array is written to. */
static bool ignis__load_tensors(const char *call, const char *path, ignis__load *load, const char *const *names,
                                const ignis_tensor *tensors, ignis__borrowed_tensor *lent, int count, bool trainable)
{
    int i;
    ignis__file_tensor_sort(load->file.items, load->file.count, ignis__file_tensor_by_name);
    for (i = 0; i < count; i++) {
        lent[i].item = ignis__load_find(call, path, &load->file, names[i]);
        if (!lent[i].item || (tensors[i].id && (lent[i].array = ignis__borrow_array(call, tensors[i])) == NULL) ||
            !ignis__load_check_fit(call, lent[i].item, lent[i].array))
            return false;
    }
    for (i = 0; i < count; i++)
        if (!lent[i].array && !ignis__load_make(call, &lent[i], trainable))
            return false;
    return ignis__borrow_acquire(call, lent, count) && ignis__load_arrays(call, load, lent, count);
}

IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__load_named(const char *call, const char *path, const char *const *names,
                                                          ignis_tensor *tensors, int count, bool trainable)
{
    ignis__load load;
    ignis__borrowed_tensor *lent;
    bool ok = false;
    int i;
    if (!ignis__check_named_tensors(call, path, names, tensors, count) || !ignis__load_open(call, path, &load))
        return ignis__failed();
    lent = (ignis__borrowed_tensor *)ignis__alloc_for(call, ((size_t)count + 1) * sizeof *lent);
    if (lent) {
        ok = ignis__load_tensors(call, path, &load, names, tensors, lent, count, trainable);
        for (i = 0; ok && i < count; i++)
            if (lent[i].made.id)
                tensors[i] = lent[i].made;
        ignis__borrow_release(call, lent, count, ok);
        ignis__free(lent);
    }
    ignis__load_close(&load);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_load(const char *path, const char *const *names, ignis_tensor *tensors,
                                              int count)
{
    return ignis__load_named("ignis_load", path, names, tensors, count, false);
}

IGNIS__COLD IGNIS_API ignis_status ignis_load_trainable(const char *path, const char *const *names,
                                                        ignis_tensor *tensors, int count)
{
    return ignis__load_named("ignis_load_trainable", path, names, tensors, count, true);
}

IGNIS__COLD IGNIS_API int ignis_file_list(const char *path, ignis_storage_entry *entries, int capacity)
{
    static const char call[] = "ignis_file_list";
    ignis__load load;
    int i, count;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "path", path) ||
        !ignis__check_capacity(call, "entries", entries, capacity) || !ignis__load_open(call, path, &load))
        return -1;
    count = load.file.count;
    for (i = 0; i < count && i < capacity; i++) {
        const ignis__file_tensor *item = &load.file.items[i];
        memset(&entries[i], 0, sizeof entries[i]);
        memcpy(entries[i].name, item->name, ignis__utf8_cut(item->name, sizeof entries[i].name - 1));
        entries[i].dtype = ignis__file_dtypes[item->type].loaded;
        entries[i].shape = item->shape;
        entries[i].bytes = item->end - item->begin;
    }
    ignis__load_close(&load);
    return count;
}
