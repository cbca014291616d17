/*  >>training.load - reads a training that any number of ranks has saved

    The headers of all files are read first. Each element of each tensor is in exactly one file, or nothing is loaded.
    Then each rank reads the elements that it has. Files are open one at a time.
    Uses: entries, index, the room file. The files are untrusted. */

#include "room.h"

/*  A piece of a tensor in a file. */
typedef struct ignis__training_piece {
    int entry, part;
    const ignis__file_tensor *item;
    int64_t start, count; /* elements of the whole tensor */
} ignis__training_piece;

/*  A load that is under way. Part r is the model's file of rank r, and part ranks + r its training's file. */
typedef struct ignis__training_reader {
    const char *call, *folder;
    ignis__training_index index;
    ignis__training_entries entries; /* sorted by name */
    ignis__load *parts;              /* headers; descriptors are closed */
    char **paths;
    int part_count;
    ignis__training_piece *pieces; /* sorted by entry and start */
    int piece_count, piece_capacity;
} ignis__training_reader;

static void ignis__training_reader_close(ignis__training_reader *reader)
{
    int i;
    for (i = 0; i < reader->part_count; i++) {
        ignis__safetensors_close(&reader->parts[i].file);
        ignis__free(reader->paths[i]);
    }
    ignis__free(reader->parts);
    ignis__free(reader->paths);
    ignis__free(reader->pieces);
    ignis__training_entries_free(reader->call, &reader->entries);
    ignis__training_index_close(&reader->index);
}

/* --- headers --- */

static bool ignis__training_read_index(ignis__training_reader *reader)
{
    char *path = ignis__training_path(reader->call, reader->folder, IGNIS__TRAINING_INDEX), *text = NULL;
    ignis_diagnostic result = IGNIS_DIAG_STORAGE_IO;
    ignis__load load;
    if (path && ignis__load_open_file(reader->call, path, &load)) {
        if (load.size > IGNIS__HEADER_LIMIT)
            ignis__fail(IGNIS_DIAG_STORAGE_FORMAT, reader->call, "'%s' has %lld bytes, above %d", path,
                        (long long)load.size, IGNIS__HEADER_LIMIT);
        else if ((text = (char *)ignis__alloc_for(reader->call, (size_t)load.size + 1)) != NULL &&
                 ignis__load_read(reader->call, &load, 0, text, load.size))
            result = ignis__training_index_parse(&reader->index, text, (size_t)load.size);
        ignis__file_close(load.descriptor);
    }
    if (result == IGNIS_DIAG_HOST_MEMORY)
        ignis__fail(result, reader->call, "out of host memory for '%s'", path);
    else if (result == IGNIS_DIAG_STORAGE_FORMAT)
        ignis__fail(result, reader->call, "'%s' is not a sound index: %s", path, reader->index.fault);
    ignis__free(text);
    ignis__free(path);
    return result == IGNIS_DIAG_NONE;
}

/*  Reads the header of a file, and checks that it is of the save that the index names. */
static bool ignis__training_read_header(ignis__training_reader *reader, int part)
{
    const int ranks = reader->index.ranks, kind = part < ranks ? IGNIS__TRAINING_MODEL : IGNIS__TRAINING_STATE;
    const ignis__training_name name = ignis__training_file_name(kind, reader->index.id, part % ranks, ranks);
    ignis__load *load = &reader->parts[part];
    const char *save = "none";
    char id[20];
    int i;
    reader->paths[part] = ignis__training_path(reader->call, reader->folder, name.text);
    if (!reader->paths[part] || !ignis__load_open(reader->call, reader->paths[part], load))
        return false;
    ignis__file_close(load->descriptor);
    load->descriptor = -1;
    snprintf(id, sizeof id, "%016llx", (unsigned long long)reader->index.id);
    for (i = 0; i < load->file.metadata_count; i++)
        if (strcmp(load->file.metadata[i].key, "ignis_save") == 0)
            save = load->file.metadata[i].value;
    return strcmp(save, id) == 0 ||
           ignis__fail_false(IGNIS_DIAG_STORAGE_FORMAT, reader->call,
                             "'%s' is of the save %s; expected %s, as the index of the folder says", load->path,
                             ignis__name_write(save).text, id);
}

static bool ignis__training_read_headers(ignis__training_reader *reader)
{
    const int ranks = reader->index.ranks;
    bool ok;
    int i;
    reader->parts = (ignis__load *)ignis__alloc_for(reader->call, 2 * (size_t)ranks * sizeof *reader->parts);
    reader->paths = (char **)ignis__alloc_for(reader->call, 2 * (size_t)ranks * sizeof *reader->paths);
    ok = reader->parts && reader->paths;
    if (!ok)
        return false;
    memset(reader->parts, 0, 2 * (size_t)ranks * sizeof *reader->parts);
    memset(reader->paths, 0, 2 * (size_t)ranks * sizeof *reader->paths);
    reader->part_count = 2 * ranks;
    for (i = 0; ok && i < ranks; i++)
        ok = ignis__training_read_header(reader, ranks + i);
    for (i = 0; ok && i < reader->index.count; i++) /* a rank without tensors of the model has no such file */
        if (!reader->paths[reader->index.places[i].part])
            ok = ignis__training_read_header(reader, reader->index.places[i].part);
    return ok;
}

/* --- pieces --- */

/*  Finds the entry of "name", or of "name@start" if files have pieces of it. NULL if there is none. */
static const ignis__training_entry *ignis__training_entry_of(const ignis__training_reader *reader, const char *name,
                                                             int64_t *start)
{
    const char *at = strrchr(name, '@'), *digit;
    const ignis__training_entry *entry = ignis__training_entries_find(&reader->entries, name, strlen(name));
    *start = 0;
    if (entry && !entry->is_piece)
        return entry;
    if (!at || !at[1])
        return NULL;
    for (digit = at + 1; *digit >= '0' && *digit <= '9' && *start < INT64_MAX / 10 - 9; digit++)
        *start = *start * 10 + (*digit - '0');
    entry = *digit ? NULL : ignis__training_entries_find(&reader->entries, name, (size_t)(at - name));
    return entry && entry->is_piece ? entry : NULL;
}

/*  Checks a tensor of a file against the training's. */
static bool ignis__training_piece_check(const ignis__training_reader *reader, const ignis__training_entry *entry,
                                        int part, const ignis__file_tensor *item, int64_t start)
{
    const struct ignis__file_dtypes_type *type = &ignis__file_dtypes[item->type];
    const char *name = item->name, *path = reader->paths[part];
    const ignis__training_place *place;
    if (!entry || entry->is_model != (part < reader->index.ranks))
        return ignis__fail_false(IGNIS_DIAG_STORAGE_MISSING, reader->call,
                                 "'%s' has tensor %s, which the training does not have there", path,
                                 ignis__name_write(name).text);
    place = entry->is_model ? ignis__training_index_find(&reader->index, name) : NULL;
    if (entry->is_model && (!place || place->part != part))
        return ignis__fail_false(IGNIS_DIAG_STORAGE_FORMAT, reader->call,
                                 "'%s' has tensor %s; expected it in '%s' alone, as the index says", path,
                                 ignis__name_write(name).text, place ? place->file : "no file");
    if (type->dtype != entry->dtype)
        return ignis__fail_false(IGNIS_DIAG_DTYPE_DIFFERS, reader->call, "'%s' has tensor %s as %s; expected %s", path,
                                 ignis__name_write(name).text, type->name, ignis__dtypes[entry->dtype].name);
    if (entry->is_piece ? item->shape.ndim == 1 && item->shape.dim[0] <= entry->numel - start && start <= entry->numel
                        : ignis__shape_same(&item->shape, &entry->shape))
        return true;
    return ignis__fail_false(IGNIS_DIAG_SHAPE_DIFFERS, reader->call, "'%s' has tensor %s as %s; expected %s%s", path,
                             ignis__name_write(name).text, ignis__shape_write(&item->shape).text,
                             entry->is_piece ? "a piece of " : "", ignis__shape_write(&entry->shape).text);
}

static bool ignis__training_piece_add(ignis__training_reader *reader, int part, const ignis__file_tensor *item)
{
    int64_t start;
    const ignis__training_entry *entry = ignis__training_entry_of(reader, item->name, &start);
    ignis__training_piece *piece;
    if (!ignis__training_piece_check(reader, entry, part, item, start))
        return false;
    piece = &reader->pieces[reader->piece_count++];
    piece->entry = (int)(entry - reader->entries.list);
    piece->part = part;
    piece->item = item;
    piece->start = start;
    piece->count = entry->is_piece ? item->shape.dim[0] : entry->numel;
    return true;
}

static int ignis__training_piece_order(const void *a, const void *b)
{
    const ignis__training_piece *one = (const ignis__training_piece *)a, *other = (const ignis__training_piece *)b;
    if (one->entry != other->entry)
        return one->entry < other->entry ? -1 : 1;
    if (one->start != other->start)
        return one->start < other->start ? -1 : 1;
    return one->count != other->count ? (one->count < other->count ? -1 : 1) : one->part - other->part;
}

/*  Checks that each element of each tensor is in exactly one piece. */
static bool ignis__training_check_covered(const ignis__training_reader *reader)
{
    int i, p = 0;
    for (i = 0; i < reader->entries.count; i++) {
        const ignis__training_entry *entry = &reader->entries.list[i];
        const ignis__training_place *place =
            entry->is_model ? ignis__training_index_find(&reader->index, entry->name) : NULL;
        const bool is_missing = p == reader->piece_count || reader->pieces[p].entry != i;
        int64_t end = 0;
        for (; p < reader->piece_count && reader->pieces[p].entry == i && reader->pieces[p].start <= end; p++) {
            if (reader->pieces[p].start < end || (p && !entry->is_piece && reader->pieces[p - 1].entry == i))
                return ignis__fail_false(IGNIS_DIAG_STORAGE_FORMAT, reader->call,
                                         "'%s' and '%s' both have elements of tensor %s from %lld on",
                                         reader->paths[reader->pieces[p - 1].part],
                                         reader->paths[reader->pieces[p].part], ignis__name_write(entry->name).text,
                                         (long long)reader->pieces[p].start);
            end += reader->pieces[p].count;
        }
        if (end < entry->numel || (is_missing && !entry->is_piece))
            return ignis__fail_false(IGNIS_DIAG_STORAGE_MISSING, reader->call,
                                     "'%s' lacks elements %lld to %lld of tensor %s; expected them in %s%s%s",
                                     reader->folder, (long long)end,
                                     (long long)(p < reader->piece_count && reader->pieces[p].entry == i
                                                     ? reader->pieces[p].start
                                                     : entry->numel),
                                     ignis__name_write(entry->name).text, place ? "'" : "one of its files",
                                     place ? place->file : "", place ? "'" : "");
    }
    return true;
}

/*  Reads and checks all headers. */
static bool ignis__training_check_files(ignis__training_reader *reader, ignis__training *training)
{
    ignis__training_entry *random;
    int64_t items = 0;
    bool ok;
    int i, k;
    if (!ignis__training_read_index(reader) || !ignis__training_read_headers(reader) ||
        !ignis__training_entries_make(reader->call, training, &reader->entries) ||
        !ignis__training_entries_sort(reader->call, &reader->entries))
        return false;
    random = ignis__training_entries_find(&reader->entries, "random", 6); /* of the ranks that saved */
    ignis__free(random->host);
    random->numel = random->count = 2 * (int64_t)reader->index.ranks;
    random->start = 0;
    random->shape = IGNIS_SHAPE(random->numel);
    random->host = (int64_t *)ignis__alloc_for(reader->call, (size_t)random->numel * sizeof *random->host);
    for (i = 0; i < reader->part_count; i++)
        items += reader->parts[i].file.count;
    reader->pieces =
        (ignis__training_piece *)ignis__alloc_for(reader->call, ((size_t)items + 1) * sizeof *reader->pieces);
    ok = random->host && reader->pieces;
    for (i = 0; ok && i < reader->part_count; i++)
        for (k = 0; ok && k < reader->parts[i].file.count; k++)
            ok = ignis__training_piece_add(reader, i, &reader->parts[i].file.items[k]);
    for (i = 0; ok && i < reader->index.count; i++) {
        const ignis__training_place *place = &reader->index.places[i];
        int64_t start;
        const ignis__training_entry *entry = ignis__training_entry_of(reader, place->name, &start);
        if (!entry || !entry->is_model)
            ok = ignis__fail_false(IGNIS_DIAG_STORAGE_MISSING, reader->call,
                                   "the index of '%s' has tensor %s in '%s', which the training does not have",
                                   reader->folder, ignis__name_write(place->name).text, place->file);
    }
    if (ok && reader->piece_count > 1)
        qsort(reader->pieces, (size_t)reader->piece_count, sizeof *reader->pieces, ignis__training_piece_order);
    return ok && ignis__training_check_covered(reader);
}

/* --- data --- */

/*  Reads the elements of a piece that this rank has, or lends the array that they go to. */
static bool ignis__training_piece_lend(ignis__training_reader *reader, const ignis__training_piece *piece,
                                       ignis__file_tensor *item, ignis__borrowed_tensor *lent)
{
    const ignis__training_entry *entry = &reader->entries.list[piece->entry];
    const int64_t size = ignis__dtypes[entry->dtype].size,
                  first = piece->start > entry->start ? piece->start : entry->start,
                  its_end = piece->start + piece->count, own_end = entry->start + entry->count,
                  count = (its_end < own_end ? its_end : own_end) - first;
    const ignis_shape shape = IGNIS_SHAPE(count);
    ignis_array view;
    if (count <= 0)
        return true;
    *item = *piece->item;
    item->begin += (first - piece->start) * size;
    if (entry->host)
        return ignis__load_read(reader->call, &reader->parts[piece->part],
                                reader->parts[piece->part].file.data + item->begin,
                                (char *)entry->host + (first - entry->start) * size, count * size);
    view = ignis__array_view(reader->call, entry->array, &shape, count, (first - entry->start) * size);
    if (!view.id)
        return false;
    lent->item = item;
    lent->array = ignis__array_adopt(reader->call, view);
    return lent->array != NULL;
}

/*  Reads what this rank has of a file. */
static bool ignis__training_read_part(ignis__training_reader *reader, int part, ignis__borrowed_tensor *lent,
                                      ignis__file_tensor *items)
{
    ignis__load *load = &reader->parts[part];
    int64_t size = 0;
    bool ok = true;
    int i, count = 0;
    load->descriptor = ignis__file_open(load->path, &size);
    if (load->descriptor < 0)
        return ignis__file_fail(reader->call, load->path, "opened");
    for (i = 0; ok && i < reader->piece_count; i++) {
        if (reader->pieces[i].part != part)
            continue;
        memset(&lent[count], 0, sizeof lent[count]);
        ok = ignis__training_piece_lend(reader, &reader->pieces[i], &items[count], &lent[count]);
        count += lent[count].array != NULL;
    }
    ok = ok && ignis__load_arrays(reader->call, load, lent, count);
    for (i = 0; i < count; i++)
        ignis__array_unclaim(reader->call, lent[i].array);
    ignis__file_close(load->descriptor);
    load->descriptor = -1;
    return ok;
}

static bool ignis__training_read(ignis__training_reader *reader)
{
    const size_t count = (size_t)reader->piece_count + 1;
    ignis__borrowed_tensor *lent = (ignis__borrowed_tensor *)ignis__alloc_for(reader->call, count * sizeof *lent);
    ignis__file_tensor *items = (ignis__file_tensor *)ignis__alloc_for(reader->call, count * sizeof *items);
    bool ok = lent && items;
    int i;
    for (i = 0; ok && i < reader->part_count; i++)
        ok = !reader->paths[i] || ignis__training_read_part(reader, i, lent, items);
    ignis__free(lent);
    ignis__free(items);
    return ok;
}

/*  Continues the random numbers of this rank. Ranks beyond those that saved get seeds of their own. */
static bool ignis__training_load_random(const ignis__training_reader *reader, const ignis__training *training)
{
    const ignis__training_entry *entry = ignis__training_entries_find(&reader->entries, "random", 6);
    const int rank = training->ranks.rank, from = rank < reader->index.ranks ? rank : 0;
    ignis_random_state state;
    state.seed = (uint64_t)entry->host[2 * from];
    state.position = (uint64_t)entry->host[2 * from + 1];
    if (rank != from)
        state.seed = ignis__hash(state.seed ^ IGNIS__HASH_START, &rank, sizeof rank);
    return ignis_random_restore(state) == IGNIS_OK;
}

IGNIS__COLD IGNIS_API ignis_status ignis_training_load(ignis_training handle, const char *folder)
{
    static const char call[] = "ignis_training_load";
    ignis__training *training = ignis__training_enter(call, handle);
    ignis__training_reader reader;
    bool ok;
    if (!training)
        return ignis__failed();
    ok = ignis__check_not_null(call, "folder", folder) && ignis__training_finish(call, training);
    if (ok) {
        memset(&reader, 0, sizeof reader);
        reader.call = call;
        reader.folder = folder;
        ok = ignis__training_agree(call, training, ignis__training_check_files(&reader, training)) &&
             ignis__training_agree(call, training, ignis__training_read(&reader)) &&
             ignis__training_load_random(&reader, training);
        ignis__training_reader_close(&reader);
    }
    return ignis__training_leave(call, training, ok);
}
