/*  models/weights/load.c - loads weights: threads read and convert chunks, the caller copies them

    Chunks go through slots of pinned memory in turn. A slot is filled by a thread, copied by the caller, and
    released when the event after the copy is done. A reader takes the next chunk, then waits for its slot.
    May use: quantize.c, weight_map.c, >>stream. Locks: loading->lock guards next, chunk_of, full, stop and
    fault; it is not held while files are read. */

#include "room.h"

#define IGNIS__MODEL_CHUNK ((int64_t)1 << 20)
#define IGNIS__MODEL_SLOTS 32
#define IGNIS__MODEL_THREADS 16    /* below the number of slots: the chunk that is due always finds its slot free */
#define IGNIS__MODEL_TRANSPOSED 64 /* columns of a file that are transposed at a time: a cache line or more of each */

typedef struct ignis__model_chunk {
    int part;
    int64_t first, rows; /* of the part */
} ignis__model_chunk;

typedef struct ignis__model_loading {
    const char *call;
    const ignis__model_files *files;
    const ignis__model *model;
    ignis__model_part *parts;
    ignis__model_chunk *chunks;
    int64_t count;
    int64_t staging_bytes, source_bytes, value_bytes,
        transposed_bytes;   /* of the largest chunk: on the device, in the file, as floats to be
                               quantised; and of some columns to be transposed */
    int64_t unpacked_bytes; /* of the largest chunk of a packed weight, as rows */
    char *staging;          /* pinned: one slot after the other */
    ignis__mutex lock;
    ignis__condition changed;
    int64_t next;                         /* the next chunk to be read */
    int64_t chunk_of[IGNIS__MODEL_SLOTS]; /* the chunk that a slot is for */
    bool full[IGNIS__MODEL_SLOTS];
    bool stop;
    ignis_diagnostic fault;
    char why[400];
} ignis__model_loading;

/*  The state of a reading thread. Each has its own descriptors, as a file's position must not be shared. */
typedef struct ignis__model_reader {
    int file, descriptor; /* -1 if there is none */
    unsigned char *bytes, *row;
    unsigned char *unpacked; /* rows of a packed weight */
    char *transposed;        /* columns before they are transposed to rows */
    float *values;           /* a chunk as floats, before it is quantised */
} ignis__model_reader;

static bool ignis__model_read_fail(ignis__model_loading *loading, ignis_diagnostic diagnostic, int file,
                                   const char *what, const char *reason)
{
    ignis__mutex_lock(&loading->lock);
    if (!loading->fault)
        snprintf(loading->why, sizeof loading->why, "'%.150s' cannot be %s: %s", loading->files->paths[file], what,
                 reason);
    if (!loading->fault)
        loading->fault = diagnostic;
    ignis__mutex_unlock(&loading->lock);
    return false;
}

static bool ignis__model_read_at(ignis__model_loading *loading, ignis__model_reader *reader, int file, int64_t at,
                                 void *out, int64_t size)
{
    int64_t length, got;
    char reason[160] = "";
    if (reader->file != file) {
        if (reader->descriptor >= 0)
            ignis__file_close(reader->descriptor);
        reader->file = file;
        reader->descriptor = ignis__file_open(loading->files->paths[file], &length);
        if (reader->descriptor < 0)
            ignis__system_error(reason, sizeof reason);
    }
    if (reader->descriptor < 0)
        return ignis__model_read_fail(loading, IGNIS_DIAG_STORAGE_IO, file, "opened", reason);
    got = ignis__file_read_at(reader->descriptor, at, out, size);
    if (got == size)
        return true;
    if (got < 0)
        ignis__system_error(reason, sizeof reason);
    return ignis__model_read_fail(loading, IGNIS_DIAG_STORAGE_IO, file, "read",
                                  got < 0 ? reason : "it has become shorter");
}

/*  Tells whether a GGUF file has other values than a folder: weights of norms are 1 larger, and logarithms of decays
    are minus their exponentials. */
static bool ignis__model_changes_values(const ignis__model_files *files, const ignis__model *model, int how)
{
    return files->is_gguf && (how & IGNIS__MODEL_LOG ||
                              (how & IGNIS__MODEL_NORM && ignis__family_of(model->family)->features & IGNIS__ONE_PLUS));
}

/*  Converts such values to those of a folder. False, and reported, if one has no logarithm. */
static bool ignis__model_restore_values(ignis__model_loading *loading, const ignis__model_part *part,
                                        const unsigned char *from, int64_t count, char *to, ignis_dtype dtype)
{
    const ignis__model_source *source = part->from;
    const bool logs = part->row->how & IGNIS__MODEL_LOG;
    int64_t i;
    for (i = 0; i < count; i++) {
        double value;
        char why[160];
        ignis__convert(&value, IGNIS_F64, from + i * source->bytes, source->dtype, 1);
        if (logs && !(value < 0 && value > -1e300)) {
            snprintf(why, sizeof why, "tensor %s has %g; expected numbers below 0",
                     ignis__name_write(source->name).text, value);
            return ignis__model_read_fail(loading, IGNIS_DIAG_MODEL_CONFIG, source->file, "read", why);
        }
        value = logs ? ignis__ln(-value) : value - 1;
        ignis__convert(to + i * ignis__dtypes[dtype].size, dtype, &value, IGNIS_F64, 1);
    }
    return true;
}

/*  Packs rows as blocks: blocks of the file, or floats to be quantised. */
static void ignis__model_pack_rows(const ignis__model_part *part, const unsigned char *bytes, const float *values,
                                   ignis__model_reader *reader, int64_t row, int64_t rows, char *out)
{
    unsigned char *records = (unsigned char *)out,
                  *scales = records + ignis__blocks_bytes_of(part->blocks, rows, part->columns, false);
    if (values)
        ignis__quantise(part->blocks, values, part->columns, reader->row);
    ignis__blocks_pack((uint32_t)part->blocks, values ? reader->row : bytes, part->columns,
                       records + ignis__blocks_row(part->blocks, row, part->columns),
                       scales +
                           row * ignis__blocks_types[ignis__blocks_type(part->blocks)].scale * (part->columns / 256));
}

/*  Transposes elements of `size` bytes, [columns, rows], to [rows, columns] of a matrix whose rows are
    `stride` elements apart. */
static void ignis__model_transpose(char *to, int64_t stride, const char *from, int64_t rows, int64_t columns,
                                   int64_t size)
{
#define IGNIS__TRANSPOSE_AS(type)     \
    for (row = 0; row < rows; row++)  \
        for (k = 0; k < columns; k++) \
    ((type *)(void *)to)[row * stride + k] = ((const type *)(const void *)from)[k * rows + row]
    int64_t row, k;
    if (size == 2)
        IGNIS__TRANSPOSE_AS(uint16_t);
    else if (size == 4)
        IGNIS__TRANSPOSE_AS(uint32_t);
    else
        IGNIS__TRANSPOSE_AS(uint64_t);
#undef IGNIS__TRANSPOSE_AS
}

/*  Reads and converts a chunk of a tensor that the file has transposed. */
static bool ignis__model_fill_transposed(ignis__model_loading *loading, ignis__model_reader *reader,
                                         const ignis__model_chunk *chunk, char *to, ignis_dtype dtype)
{
    const ignis__model_part *part = &loading->parts[chunk->part];
    const ignis__model_source *source = part->from;
    int64_t size = ignis__dtypes[dtype].size, first = ignis__model_file_row(part, chunk->first), k, i, some;
    for (k = 0; k < part->columns; k += some) {
        some = ignis__clamp(part->columns - k, 0, IGNIS__MODEL_TRANSPOSED);
        for (i = 0; i < some; i++) {
            if (!ignis__model_read_at(loading, reader, source->file,
                                      source->begin +
                                          ((part->skip_columns + k + i) * part->file_rows + first) * source->bytes,
                                      reader->bytes, chunk->rows * source->bytes))
                return false;
            ignis__model_source_row(source, reader->bytes, chunk->rows, reader->transposed + i * chunk->rows * size,
                                    dtype);
        }
        ignis__model_transpose(to + k * size, part->columns, reader->transposed, chunk->rows, some, size);
    }
    return true;
}

/*  Reads and converts a chunk of matrices of heads that the file has transposed, one head after the other. */
static bool ignis__model_fill_heads(ignis__model_loading *loading, ignis__model_reader *reader,
                                    const ignis__model_chunk *chunk, char *to, ignis_dtype dtype)
{
    const ignis__model_part *part = &loading->parts[chunk->part];
    const ignis__model_source *source = part->from;
    const int64_t size = ignis__dtypes[dtype].size, rows = part->rows / loading->model->heads, columns = part->columns;
    const int64_t line = rows / source->elements * source->bytes;
    int64_t first, k;
    for (first = 0; first < chunk->rows; first += rows) {
        if (!ignis__model_read_at(loading, reader, source->file,
                                  source->begin + (chunk->first + first) / rows * columns * line, reader->bytes,
                                  columns * line))
            return false;
        for (k = 0; k < columns; k++)
            ignis__model_source_row(source, reader->bytes + k * line, rows, reader->transposed + k * rows * size,
                                    dtype);
        ignis__model_transpose(to + first * columns * size, columns, reader->transposed, rows, columns, size);
    }
    return true;
}

/*  Reads a region's parts, one after the other. */
static bool ignis__model_read_region(ignis__model_loading *loading, ignis__model_reader *reader,
                                     const ignis__packed_region *region, unsigned char *to)
{
    const int64_t span = ignis__packed_span(region), size = region->size;
    int64_t k;
    if (region->count > 1 && span == (region->count - 1) * region->step + size) {
        if (!ignis__model_read_at(loading, reader, region->file, region->begin, to, span))
            return false;
        for (k = 1; region->step != size && k < region->count; k++)
            memmove(to + k * size, to + k * region->step, (size_t)size);
        return true;
    }
    for (k = 0; k < region->count; k++)
        if (!ignis__model_read_at(loading, reader, region->file, region->begin + k * region->step, to + k * size, size))
            return false;
    return true;
}

/*  Reads the tensors of a packed weight, and makes rows of them. */
static bool ignis__model_fill_packed(ignis__model_loading *loading, ignis__model_reader *reader,
                                     const ignis__model_chunk *chunk)
{
    const ignis__model_part *part = &loading->parts[chunk->part];
    const ignis__packed *packed = &loading->files->packed[part->from->packed - 1];
    ignis__packed_range range;
    ignis__packed_region region[4];
    unsigned char *to = reader->bytes;
    char why[200];
    int i;
    range.first = ignis__model_file_row(part, chunk->first);
    range.rows = chunk->rows;
    range.skip = part->skip_columns;
    range.columns = part->columns;
    range.every = part->every;
    (void)ignis__packed_regions(packed, &range, region);
    for (i = 0; i < 4; to += region[i].size * region[i].count, i++)
        if (!ignis__model_read_region(loading, reader, &region[i], to))
            return false;
    return ignis__packed_rows(packed, reader->bytes, region, &range, reader->unpacked, why) ||
           ignis__model_read_fail(loading, IGNIS_DIAG_MODEL_CONFIG, part->from->file, "read", why);
}

/*  Reads and converts a chunk. */
static bool ignis__model_fill_chunk(ignis__model_loading *loading, ignis__model_reader *reader,
                                    const ignis__model_chunk *chunk, char *out)
{
    const ignis__model_part *part = &loading->parts[chunk->part];
    const ignis__model_source *source = part->from;
    ignis_dtype dtype = part->blocks ? IGNIS_F32 : ignis__model_part_dtype(loading->model, part);
    char *to = part->blocks ? (char *)reader->values : out;
    int64_t size = ignis__dtypes[dtype].size, row, row_bytes = part->columns / source->elements * source->bytes;
    int64_t file_row = part->file_columns / source->elements * source->bytes,
            first = ignis__model_file_row(part, chunk->first);
    int64_t begin = source->begin + first * file_row + part->skip_columns / source->elements * source->bytes;
    unsigned char *read;
    bool direct;
    bool pairs = ignis__model_moves_rows(loading->files, loading->model, part->row);
    bool changed = ignis__model_changes_values(loading->files, loading->model, part->row->how);
    if (!loading->files->is_gguf && part->row->how & IGNIS__MODEL_IN_OUT) {
        if (!ignis__model_fill_transposed(loading, reader, chunk, to, dtype))
            return false;
        for (row = 0; part->blocks && row < chunk->rows; row++)
            ignis__model_pack_rows(part, NULL, reader->values + row * part->columns, reader, row, chunk->rows, out);
        return true;
    }
    if (ignis__part_is_transposed(part))
        return ignis__model_fill_heads(loading, reader, chunk, out, dtype);
    direct = !part->blocks && !source->quant && source->dtype == dtype && !pairs && !changed && !source->packed &&
             part->every == 1;
    read = direct ? (unsigned char *)out : source->packed ? reader->unpacked : reader->bytes;
    if (source->packed) {
        if (!ignis__model_fill_packed(loading, reader, chunk))
            return false;
    } else if (file_row == row_bytes) {
        if (!ignis__model_read_at(loading, reader, source->file, begin, read,
                                  ((chunk->rows - 1) * part->every + 1) * row_bytes))
            return false;
        for (row = 1; part->every > 1 && row < chunk->rows; row++)
            memmove(read + row * row_bytes, read + row * part->every * row_bytes, (size_t)row_bytes);
    } else {
        for (row = 0; row < chunk->rows; row++)
            if (!ignis__model_read_at(loading, reader, source->file, begin + row * file_row, read + row * row_bytes,
                                      row_bytes))
                return false;
    }
    if (direct)
        return true;
    if (changed && !pairs)
        return ignis__model_restore_values(loading, part, read, chunk->rows, out, dtype);
    if (!part->blocks && !pairs && !source->quant) {
        ignis__convert(out, dtype, read, source->dtype, chunk->rows * part->columns);
        return true;
    }
    for (row = 0; row < chunk->rows; row++) {
        const unsigned char *from =
            read + (pairs
                        ? ignis__model_head_row(loading->files, loading->model, part, chunk->first + row) - chunk->first
                        : row) *
                       row_bytes;
        bool kept = part->blocks && source->quant == (uint32_t)part->blocks;
        if (changed && !ignis__model_restore_values(loading, part, from, 1, to + row * size, dtype))
            return false;
        if (!kept && !changed)
            ignis__model_source_row(source, from, part->columns, part->blocks ? to : to + row * part->columns * size,
                                    dtype);
        if (part->blocks)
            ignis__model_pack_rows(part, from, kept ? NULL : reader->values, reader, row, chunk->rows, out);
    }
    return true;
}

static bool ignis__model_reader_open(ignis__model_loading *loading, ignis__model_reader *reader)
{
    reader->file = reader->descriptor = -1;
    reader->bytes = (unsigned char *)ignis__alloc((size_t)loading->source_bytes);
    reader->values = (float *)ignis__alloc((size_t)loading->value_bytes + 4);
    reader->row = (unsigned char *)ignis__alloc((size_t)loading->value_bytes + 4); /* blocks of a row are smaller */
    reader->transposed = (char *)ignis__alloc((size_t)loading->transposed_bytes + 8);
    reader->unpacked = (unsigned char *)ignis__alloc((size_t)loading->unpacked_bytes + 8);
    return (reader->bytes && reader->values && reader->row && reader->transposed && reader->unpacked) ||
           ignis__model_read_fail(loading, IGNIS_DIAG_HOST_MEMORY, 0, "read", "out of host memory");
}

static void ignis__model_reader_close(ignis__model_reader *reader)
{
    if (reader->descriptor >= 0)
        ignis__file_close(reader->descriptor);
    ignis__free(reader->bytes);
    ignis__free(reader->values);
    ignis__free(reader->row);
    ignis__free(reader->transposed);
    ignis__free(reader->unpacked);
}

/*  Runs a reading thread: takes the next chunk, waits for its slot, fills it. */
static IGNIS__THREAD_RESULT ignis__model_reader_run(void *pointer)
{
    ignis__model_loading *loading = (ignis__model_loading *)pointer;
    ignis__model_reader reader;
    bool ok = ignis__model_reader_open(loading, &reader), stop = !ok;
    while (!stop) {
        int64_t chunk, slot;
        ignis__mutex_lock(&loading->lock);
        chunk = loading->next++;
        slot = chunk % IGNIS__MODEL_SLOTS;
        while (!loading->stop && chunk < loading->count && loading->chunk_of[slot] != chunk)
            ignis__condition_wait(&loading->changed, &loading->lock);
        stop = loading->stop || chunk >= loading->count;
        ignis__mutex_unlock(&loading->lock);
        if (stop)
            break;
        ok = ignis__model_fill_chunk(loading, &reader, &loading->chunks[chunk],
                                     loading->staging + slot * loading->staging_bytes);
        ignis__mutex_lock(&loading->lock);
        loading->full[slot] = ok;
        loading->stop = stop = loading->stop || !ok;
        ignis__condition_wake(&loading->changed);
        ignis__mutex_unlock(&loading->lock);
    }
    if (!ok) {
        ignis__mutex_lock(&loading->lock);
        loading->stop = true;
        ignis__condition_wake(&loading->changed);
        ignis__mutex_unlock(&loading->lock);
    }
    ignis__model_reader_close(&reader);
    return 0;
}

/*  Writes the list of chunks, or returns their number if it is NULL. A chunk has whole rows, or whole heads
    if the order of rows changes. */
static int64_t ignis__model_list_chunks(ignis__model_loading *loading, int count, ignis__model_chunk *chunks)
{
    int64_t made = 0;
    int i;
    for (i = 0; i < count; i++) {
        const ignis__model_part *part = &loading->parts[i];
        bool transposed = !loading->files->is_gguf && part->row->how & IGNIS__MODEL_IN_OUT;
        int64_t size = ignis__dtypes[ignis__model_part_dtype(loading->model, part)].size;
        int64_t row = part->columns * size, rows = IGNIS__MODEL_CHUNK / row,
                unit = ignis__part_is_transposed(part) ? part->rows / loading->model->heads
                                                       : ignis__model_move_unit(loading->model, part);
        int64_t first, bytes, packed, values, columns, here;
        unit *= part->blocks || part->from->packed ? 8 : 1; /* rows of one record, or of one word */
        /* a packed weight is read in pieces of one row of words each: fewer pieces if they are long */
        rows = part->from->packed && rows < 256 ? 256 : rows;
        rows = rows < unit ? unit : rows / unit * unit;
        for (first = 0; first < part->rows; first += here, made++) {
            int64_t left = part->run - first % part->run;
            here = left < rows ? left : rows;
            bytes = transposed ? here * part->from->bytes
                               : here * (part->columns / part->from->elements) * part->from->bytes;
            bytes *= part->every;
            if (part->from->packed) {
                ignis__packed_region region[4];
                loading->unpacked_bytes = bytes > loading->unpacked_bytes ? bytes : loading->unpacked_bytes;
                ignis__packed_range range;
                range.first = ignis__model_file_row(part, first), range.every = part->every, range.rows = here;
                range.skip = part->skip_columns, range.columns = part->columns;
                bytes = ignis__packed_regions(&loading->files->packed[part->from->packed - 1], &range, region);
            }
            packed = part->blocks ? ignis__blocks_bytes_of(part->blocks, here, part->columns, true) : here * row;
            values = part->blocks ? (transposed ? here : 1) * part->columns * 4 : 0;
            loading->source_bytes = bytes > loading->source_bytes ? bytes : loading->source_bytes;
            loading->staging_bytes = packed > loading->staging_bytes ? packed : loading->staging_bytes;
            loading->value_bytes = values > loading->value_bytes ? values : loading->value_bytes;
            columns = transposed                        ? IGNIS__MODEL_TRANSPOSED * here * (part->blocks ? 4 : size)
                      : ignis__part_is_transposed(part) ? unit * row
                                                        : 0;
            loading->transposed_bytes = columns > loading->transposed_bytes ? columns : loading->transposed_bytes;
            if (!chunks)
                continue;
            chunks[made].part = i;
            chunks[made].first = first;
            chunks[made].rows = here;
        }
    }
    return made;
}

/*  Copies the records of a chunk to those of its part, and the scales to their place. */
static bool ignis__model_copy_blocks(ignis__work *work, const ignis__array *array, ignis__address address,
                                     const ignis__model_part *part, const ignis__model_chunk *chunk, const char *from)
{
    int64_t first = part->first + chunk->first, records, columns = part->columns;
    int in = 0, type = part->blocks, scale = ignis__blocks_types[ignis__blocks_type(type)].scale * (int)(columns / 256);
    for (; first >= array->blocks.part[in].rows; in++)
        first -= array->blocks.part[in].rows;
    address += (ignis__address)ignis__blocks_bytes(&array->blocks, in);
    records = ignis__blocks_bytes_of(type, chunk->rows, columns, false);
    if (!ignis__copy_up(work, address + (ignis__address)ignis__blocks_bytes_of(type, first, columns, false), from,
                        records))
        return false;
    address +=
        (ignis__address)(ignis__blocks_bytes_of(type, array->blocks.part[in].rows, columns, false) + first * scale);
    return scale == 0 || ignis__copy_up(work, address, from + records, chunk->rows * scale);
}

/*  Queues the copy of a filled chunk. Returns an event recorded after it. */
static ignis__pooled_event *ignis__model_copy_chunk(ignis__model_loading *loading, const ignis__model_chunk *chunk,
                                                    const char *from)
{
    const ignis__model_part *part = &loading->parts[chunk->part];
    ignis__array *array = ignis__borrow_array(loading->call, *part->to);
    int64_t row = part->columns * ignis__dtypes[ignis__model_part_dtype(loading->model, part)].size;
    ignis__pooled_event *event = NULL;
    ignis__address address;
    ignis__work work;
    if (!array)
        return NULL;
    if (ignis__work_begin(loading->call, array->storage->device, &work)) {
        if (ignis__work_write(&work, array, &address) &&
            (part->blocks ? ignis__model_copy_blocks(&work, array, address, part, chunk, from)
                          : ignis__copy_up(&work, address + (uint64_t)((part->first + chunk->first) * row), from,
                                           chunk->rows * row)))
            event = ignis__event_record(loading->call, work.device, work.stream);
        ignis__work_end(&work);
    }
    ignis__array_drop(loading->call, array);
    return event;
}

/*  Waits for a copy, and assigns its slot to the next chunk. */
static bool ignis__model_release_slot(ignis__model_loading *loading, ignis__device *device, int64_t chunk,
                                      ignis__pooled_event **copied)
{
    int64_t slot = chunk % IGNIS__MODEL_SLOTS;
    bool ok = true;
    if (chunk < 0 || !copied[slot])
        return true;
    ok = !IGNIS__CUDA_FAILED(loading->call, device, cuEventSynchronize, (copied[slot]->event));
    ignis__event_recycle(device, copied[slot]);
    copied[slot] = NULL;
    ignis__mutex_lock(&loading->lock);
    loading->full[slot] = false;
    loading->chunk_of[slot] = chunk + IGNIS__MODEL_SLOTS;
    ignis__condition_wake(&loading->changed);
    ignis__mutex_unlock(&loading->lock);
    return ok;
}

/*  Copies chunk by chunk as they become ready. The device is entered. */
static bool ignis__model_copy_chunks(ignis__model_loading *loading, ignis__device *device, const ignis_model_desc *desc)
{
    ignis__thread_handle threads[IGNIS__MODEL_THREADS];
    ignis__pooled_event *copied[IGNIS__MODEL_SLOTS] = {NULL};
    ignis__model_reader reader = {-1, -1, NULL, NULL, NULL, NULL, NULL};
    int started = 0, wanted = ignis__core_count();
    int64_t chunk, done = 0;
    bool ok = true, alone;
    wanted = wanted > IGNIS__MODEL_THREADS ? IGNIS__MODEL_THREADS : wanted;
    while (started < wanted && started < loading->count &&
           ignis__thread_start(&threads[started], ignis__model_reader_run, loading))
        started++;
    alone = started == 0;
    if (alone)
        ok = ignis__model_reader_open(loading, &reader);
    for (chunk = 0; ok && chunk < loading->count; chunk++) {
        int64_t slot = chunk % IGNIS__MODEL_SLOTS;
        const ignis__model_chunk *now = &loading->chunks[chunk];
        char *staging = loading->staging + slot * loading->staging_bytes;
        ok = ignis__model_release_slot(loading, device, chunk - IGNIS__MODEL_SLOTS / 2, copied);
        if (ok && alone) {
            ok = ignis__model_fill_chunk(loading, &reader, now, staging);
        } else if (ok) {
            ignis__mutex_lock(&loading->lock);
            while (!loading->stop && !loading->full[slot])
                ignis__condition_wait(&loading->changed, &loading->lock);
            ok = loading->full[slot] && !loading->fault;
            ignis__mutex_unlock(&loading->lock);
        }
        ok = ok && (copied[slot] = ignis__model_copy_chunk(loading, now, staging)) != NULL;
        if (ok) {
            const ignis__model_source *source = loading->parts[now->part].from;
            done += ignis__model_source_bytes(loading->files, source, now->rows * loading->parts[now->part].columns);
        }
        if (ok && desc->progress_fn && !desc->progress_fn(done, loading->model->file_bytes, desc->user_data)) {
            ignis__fail(IGNIS_DIAG_MODEL_CANCELLED, loading->call,
                        "desc.progress_fn has returned false, at %lld of %lld bytes", (long long)done,
                        (long long)loading->model->file_bytes);
            ok = false;
        }
    }
    ignis__mutex_lock(&loading->lock);
    loading->stop = true;
    ignis__condition_wake(&loading->changed);
    ignis__mutex_unlock(&loading->lock);
    while (started > 0)
        ignis__thread_join(threads[--started]);
    if (alone)
        ignis__model_reader_close(&reader);
    for (chunk = 0; chunk < IGNIS__MODEL_SLOTS; chunk++)
        ok = ignis__model_release_slot(loading, device, chunk, copied) && ok;
    if (loading->fault)
        ignis__fail(loading->fault, loading->call, "%s", loading->why);
    return ok && !loading->fault;
}

/*  Loads all weights into the tensors made for them. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__model_load(const ignis__model_files *files, const ignis__model *model,
                                                  ignis__model_part *parts, int count, const ignis_model_desc *desc)
{
    ignis__model_loading loading;
    ignis__binding binding;
    ignis__pinned *chunk = NULL;
    bool ok = true;
    int i;
    if (ignis__global.dry_run) { /* the data goes nowhere */
        for (i = 0; ok && i < count; i++)
            ok = !parts[i].total || ignis__array_set_zero(files->call, ignis_tensor_data(*parts[i].to)) == IGNIS_OK;
        return ok;
    }
    memset(&loading, 0, sizeof loading);
    loading.call = files->call;
    loading.files = files;
    loading.model = model;
    loading.parts = parts;
    loading.count = ignis__model_list_chunks(&loading, count, NULL);
    loading.chunks = (ignis__model_chunk *)ignis__alloc((size_t)(loading.count + 1) * sizeof *loading.chunks);
    if (!loading.chunks) {
        ignis__fail_host_memory(files->call, (size_t)(loading.count + 1) * sizeof *loading.chunks);
        return false;
    }
    (void)ignis__model_list_chunks(&loading, count, loading.chunks);
    ignis__mutex_init(&loading.lock);
    {
        static const ignis__condition none = IGNIS__CONDITION_INIT;
        memcpy(&loading.changed, &none, sizeof none);
    }
    for (i = 0; i < IGNIS__MODEL_SLOTS; i++)
        loading.chunk_of[i] = i;
    ok = ignis__device_enter(files->call, model->device, &binding);
    if (ok) {
        chunk = ignis__pinned_chunk_take(files->call, model->device, IGNIS__MODEL_SLOTS * loading.staging_bytes);
        loading.staging = chunk ? (char *)chunk->memory : NULL;
        ok = chunk && ignis__model_copy_chunks(&loading, model->device, desc);
        ignis__device_leave(&binding);
    }
    if (chunk && ignis__pinned_chunk_recycle(files->call, model->device, chunk) != IGNIS_OK)
        ok = false;
    ignis__free(loading.chunks);
    return ok;
}
