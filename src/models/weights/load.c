/*  models/weights/load.c - loads weights: threads read and convert pieces, the caller's thread copies them to the device

    Pieces go through slots of pinned memory in turn. A slot is filled by a thread, copied by the caller, and
    released when the event after the copy is done. A reader takes the next piece, then waits for its slot.
    May use: quantize.c, weight_map.c, >>stream. Locks: loading->lock guards next, piece_of, full, stop and
    fault; it is not held while files are read. */

#include "room.h"

#define IGNIS__MODEL_SLOTS 8
#define IGNIS__MODEL_THREADS 4     /* below the number of slots: the piece that is due always finds its slot free */
#define IGNIS__MODEL_TRANSPOSED 64 /* columns of a file that are transposed at a time: a cache line or more of each */

typedef struct ignis__model_piece {
    int part;
    int64_t first, rows; /* of the part */
} ignis__model_piece;

typedef struct ignis__model_loading {
    const char *call;
    const ignis__model_files *files;
    const ignis__model *model;
    ignis__model_part *parts;
    ignis__model_piece *pieces;
    int64_t count;
    int64_t staging_bytes, source_bytes, number_bytes,
        transposed_bytes; /* of the largest piece: on the device, in the file, as floats to be
                             quantised; and of some columns to be transposed */
    char *staging;        /* pinned: one slot after the other */
    ignis__mutex lock;
    ignis__condition changed;
    int64_t next;                         /* the next piece to be read */
    int64_t piece_of[IGNIS__MODEL_SLOTS]; /* the piece that a slot is for */
    bool full[IGNIS__MODEL_SLOTS];
    bool stop;
    ignis_diagnostic fault;
    char why[400];
} ignis__model_loading;

/*  The state of a reading thread. Each has its own descriptors, as a file's position must not be shared. */
typedef struct ignis__model_reader {
    int file, descriptor; /* -1 if there is none */
    unsigned char *bytes, *row;
    char *transposed; /* columns before they are transposed to rows */
    float *numbers;   /* a piece as floats, before it is quantised */
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

/*  Returns the row of a llama GGUF file that has row `row` of a part. */
static int64_t ignis__model_pair_row(const ignis__model *model, int64_t row)
{
    int64_t half = model->head_dim / 2, inside = row % model->head_dim;
    return row - inside + 2 * (inside % half) + inside / half;
}

/*  Packs rows as blocks: blocks of the file, or floats to be quantised. */
static void ignis__model_pack_rows(const ignis__model_part *part, const unsigned char *bytes, const float *numbers,
                                   ignis__model_reader *reader, int64_t row, int64_t rows, char *out)
{
    unsigned char *records = (unsigned char *)out,
                  *scales = records + ignis__blocks_bytes_of(part->blocks, rows, part->columns, false);
    if (numbers)
        ignis__quantise(part->blocks, numbers, part->columns, reader->row);
    ignis__blocks_pack((uint32_t)part->blocks, numbers ? reader->row : bytes, part->columns,
                       records + ignis__blocks_row(part->blocks, row, part->columns),
                       scales + 2 * row * (part->columns / 256));
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

/*  Reads and converts a piece of a tensor that the file has transposed. */
static bool ignis__model_fill_transposed(ignis__model_loading *loading, ignis__model_reader *reader,
                                         const ignis__model_piece *piece, char *to, ignis_dtype dtype)
{
    const ignis__model_part *part = &loading->parts[piece->part];
    const ignis__model_source *source = part->from;
    int64_t size = ignis__dtypes[dtype].size, first = ignis__model_file_row(part, piece->first), k, i, some;
    for (k = 0; k < part->columns; k += some) {
        some = ignis__clamp(part->columns - k, 0, IGNIS__MODEL_TRANSPOSED);
        for (i = 0; i < some; i++) {
            if (!ignis__model_read_at(loading, reader, source->file,
                                      source->begin +
                                          ((part->skip_columns + k + i) * part->file_rows + first) * source->bytes,
                                      reader->bytes, piece->rows * source->bytes))
                return false;
            ignis__model_source_row(source, reader->bytes, piece->rows, reader->transposed + i * piece->rows * size,
                                    dtype);
        }
        ignis__model_transpose(to + k * size, part->columns, reader->transposed, piece->rows, some, size);
    }
    return true;
}

/*  Reads and converts a piece. */
static bool ignis__model_fill_piece(ignis__model_loading *loading, ignis__model_reader *reader,
                                    const ignis__model_piece *piece, char *out)
{
    const ignis__model_part *part = &loading->parts[piece->part];
    const ignis__model_source *source = part->from;
    ignis_dtype dtype = part->blocks ? IGNIS_F32 : loading->model->dtype;
    char *to = part->blocks ? (char *)reader->numbers : out;
    int64_t size = ignis__dtypes[dtype].size, row, row_bytes = part->columns / source->elements * source->bytes;
    int64_t file_row = part->file_columns / source->elements * source->bytes,
            first = ignis__model_file_row(part, piece->first);
    int64_t begin = source->begin + first * file_row + part->skip_columns / source->elements * source->bytes;
    unsigned char *read;
    bool direct;
    bool pairs =
        loading->files->is_gguf && loading->model->family == IGNIS_MODEL_LLAMA && part->row->how & IGNIS__MODEL_PAIRS;
    if (!loading->files->is_gguf && part->row->how & IGNIS__MODEL_IN_OUT) {
        if (!ignis__model_fill_transposed(loading, reader, piece, to, dtype))
            return false;
        for (row = 0; part->blocks && row < piece->rows; row++)
            ignis__model_pack_rows(part, NULL, reader->numbers + row * part->columns, reader, row, piece->rows, out);
        return true;
    }
    direct = !part->blocks && !source->quant && source->dtype == dtype && !pairs;
    read = direct ? (unsigned char *)out : reader->bytes;
    if (file_row == row_bytes) {
        if (!ignis__model_read_at(loading, reader, source->file, begin, read, piece->rows * row_bytes))
            return false;
    } else {
        for (row = 0; row < piece->rows; row++)
            if (!ignis__model_read_at(loading, reader, source->file, begin + row * file_row, read + row * row_bytes,
                                      row_bytes))
                return false;
    }
    if (direct)
        return true;
    if (!part->blocks && !pairs && !source->quant) {
        ignis__convert(out, dtype, reader->bytes, source->dtype, piece->rows * part->columns);
        return true;
    }
    for (row = 0; row < piece->rows; row++) {
        const unsigned char *from =
            reader->bytes + (pairs ? ignis__model_pair_row(loading->model, row) : row) * row_bytes;
        bool kept = part->blocks && source->quant == (uint32_t)part->blocks;
        if (!kept)
            ignis__model_source_row(source, from, part->columns, part->blocks ? to : to + row * part->columns * size,
                                    dtype);
        if (part->blocks)
            ignis__model_pack_rows(part, from, kept ? NULL : reader->numbers, reader, row, piece->rows, out);
    }
    return true;
}

static bool ignis__model_reader_open(ignis__model_loading *loading, ignis__model_reader *reader)
{
    reader->file = reader->descriptor = -1;
    reader->bytes = (unsigned char *)ignis__alloc((size_t)loading->source_bytes);
    reader->numbers = (float *)ignis__alloc((size_t)loading->number_bytes + 4);
    reader->row = (unsigned char *)ignis__alloc((size_t)loading->number_bytes + 4); /* blocks of a row are smaller */
    reader->transposed = (char *)ignis__alloc((size_t)loading->transposed_bytes + 8);
    return (reader->bytes && reader->numbers && reader->row && reader->transposed) ||
           ignis__model_read_fail(loading, IGNIS_DIAG_HOST_MEMORY, 0, "read", "out of host memory");
}

static void ignis__model_reader_close(ignis__model_reader *reader)
{
    if (reader->descriptor >= 0)
        ignis__file_close(reader->descriptor);
    ignis__free(reader->bytes);
    ignis__free(reader->numbers);
    ignis__free(reader->row);
    ignis__free(reader->transposed);
}

/*  Runs a reading thread: takes the next piece, waits for its slot, fills it. */
static IGNIS__THREAD_RESULT ignis__model_reader_run(void *pointer)
{
    ignis__model_loading *loading = (ignis__model_loading *)pointer;
    ignis__model_reader reader;
    bool ok = ignis__model_reader_open(loading, &reader), stop = !ok;
    while (!stop) {
        int64_t piece, slot;
        ignis__mutex_lock(&loading->lock);
        piece = loading->next++;
        slot = piece % IGNIS__MODEL_SLOTS;
        while (!loading->stop && piece < loading->count && loading->piece_of[slot] != piece)
            ignis__condition_wait(&loading->changed, &loading->lock);
        stop = loading->stop || piece >= loading->count;
        ignis__mutex_unlock(&loading->lock);
        if (stop)
            break;
        ok = ignis__model_fill_piece(loading, &reader, &loading->pieces[piece],
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

/*  Writes the list of pieces, or returns their number if it is NULL. A piece has whole rows, or whole heads
    if the order of rows changes. */
static int64_t ignis__model_list_pieces(ignis__model_loading *loading, int count, ignis__model_piece *pieces)
{
    int64_t made = 0, size = ignis__dtypes[loading->model->dtype].size;
    int i;
    for (i = 0; i < count; i++) {
        const ignis__model_part *part = &loading->parts[i];
        bool transposed = !loading->files->is_gguf && part->row->how & IGNIS__MODEL_IN_OUT;
        int64_t row = part->columns * size, rows = IGNIS__CONVERT_CHUNK / row,
                unit = part->row->how & IGNIS__MODEL_PAIRS ? loading->model->head_dim : 1;
        int64_t first, bytes, packed, numbers, columns, here;
        unit *= part->blocks ? 8 : 1; /* rows of one record */
        rows = rows < unit ? unit : rows / unit * unit;
        for (first = 0; first < part->rows; first += here, made++) {
            int64_t left = part->run - first % part->run;
            here = left < rows ? left : rows;
            bytes = transposed ? here * part->from->bytes
                               : here * (part->columns / part->from->elements) * part->from->bytes;
            packed = part->blocks ? ignis__blocks_bytes_of(part->blocks, here, part->columns, true) : here * row;
            numbers = part->blocks ? (transposed ? here : 1) * part->columns * 4 : 0;
            loading->source_bytes = bytes > loading->source_bytes ? bytes : loading->source_bytes;
            loading->staging_bytes = packed > loading->staging_bytes ? packed : loading->staging_bytes;
            loading->number_bytes = numbers > loading->number_bytes ? numbers : loading->number_bytes;
            columns = transposed ? IGNIS__MODEL_TRANSPOSED * here * (part->blocks ? 4 : size) : 0;
            loading->transposed_bytes = columns > loading->transposed_bytes ? columns : loading->transposed_bytes;
            if (!pieces)
                continue;
            pieces[made].part = i;
            pieces[made].first = first;
            pieces[made].rows = here;
        }
    }
    return made;
}

/*  Copies the records of a piece to those of its part, and the scales to their place. */
static bool ignis__model_copy_blocks(ignis__work *work, const ignis__array *array, ignis__address address,
                                     const ignis__model_part *part, const ignis__model_piece *piece, const char *from)
{
    int64_t first = part->first + piece->first, records, columns = part->columns;
    int in = 0, type = part->blocks, scale = ignis__blocks_types[ignis__blocks_type(type)].scale * (int)(columns / 256);
    for (; first >= array->blocks.part[in].rows; in++)
        first -= array->blocks.part[in].rows;
    address += (ignis__address)ignis__blocks_bytes(&array->blocks, in);
    records = ignis__blocks_bytes_of(type, piece->rows, columns, false);
    if (!ignis__copy_up(work, address + (ignis__address)ignis__blocks_bytes_of(type, first, columns, false), from,
                        records))
        return false;
    address +=
        (ignis__address)(ignis__blocks_bytes_of(type, array->blocks.part[in].rows, columns, false) + first * scale);
    return scale == 0 || ignis__copy_up(work, address, from + records, piece->rows * scale);
}

/*  Queues the copy of a filled piece. Returns an event recorded after it. */
static ignis__pooled_event *ignis__model_copy_piece(ignis__model_loading *loading, const ignis__model_piece *piece,
                                                    const char *from)
{
    const ignis__model_part *part = &loading->parts[piece->part];
    ignis__array *array = ignis__borrow_array(loading->call, *part->to);
    int64_t row = part->columns * ignis__dtypes[loading->model->dtype].size;
    ignis__pooled_event *event = NULL;
    ignis__address address;
    ignis__work work;
    if (!array)
        return NULL;
    if (ignis__work_begin(loading->call, array->storage->device, &work)) {
        if (ignis__work_write(&work, array, &address) &&
            (part->blocks ? ignis__model_copy_blocks(&work, array, address, part, piece, from)
                          : ignis__copy_up(&work, address + (uint64_t)((part->first + piece->first) * row), from,
                                           piece->rows * row)))
            event = ignis__event_record(loading->call, work.device, work.stream);
        ignis__work_end(&work);
    }
    ignis__array_drop(loading->call, array);
    return event;
}

/*  Waits for a copy, and assigns its slot to the next piece. */
static bool ignis__model_release_slot(ignis__model_loading *loading, ignis__device *device, int64_t piece,
                                      ignis__pooled_event **copied)
{
    int64_t slot = piece % IGNIS__MODEL_SLOTS;
    bool ok = true;
    if (piece < 0 || !copied[slot])
        return true;
    ok = !IGNIS__CUDA_FAILED(loading->call, device, cuEventSynchronize, (copied[slot]->event));
    ignis__event_recycle(device, copied[slot]);
    copied[slot] = NULL;
    ignis__mutex_lock(&loading->lock);
    loading->full[slot] = false;
    loading->piece_of[slot] = piece + IGNIS__MODEL_SLOTS;
    ignis__condition_wake(&loading->changed);
    ignis__mutex_unlock(&loading->lock);
    return ok;
}

/*  Copies piece by piece as they become ready. The device is entered. */
static bool ignis__model_copy_pieces(ignis__model_loading *loading, ignis__device *device, const ignis_model_desc *desc)
{
    ignis__thread_handle threads[IGNIS__MODEL_THREADS];
    ignis__pooled_event *copied[IGNIS__MODEL_SLOTS] = {NULL};
    ignis__model_reader reader = {-1, -1, NULL, NULL, NULL, NULL};
    int started = 0, wanted = ignis__core_count();
    int64_t piece, done = 0;
    bool ok = true, alone;
    wanted = wanted > IGNIS__MODEL_THREADS ? IGNIS__MODEL_THREADS : wanted;
    while (started < wanted && started < loading->count &&
           ignis__thread_start(&threads[started], ignis__model_reader_run, loading))
        started++;
    alone = started == 0;
    if (alone)
        ok = ignis__model_reader_open(loading, &reader);
    for (piece = 0; ok && piece < loading->count; piece++) {
        int64_t slot = piece % IGNIS__MODEL_SLOTS;
        const ignis__model_piece *now = &loading->pieces[piece];
        char *staging = loading->staging + slot * loading->staging_bytes;
        ok = ignis__model_release_slot(loading, device, piece - IGNIS__MODEL_SLOTS / 2, copied);
        if (ok && alone) {
            ok = ignis__model_fill_piece(loading, &reader, now, staging);
        } else if (ok) {
            ignis__mutex_lock(&loading->lock);
            while (!loading->stop && !loading->full[slot])
                ignis__condition_wait(&loading->changed, &loading->lock);
            ok = loading->full[slot] && !loading->fault;
            ignis__mutex_unlock(&loading->lock);
        }
        ok = ok && (copied[slot] = ignis__model_copy_piece(loading, now, staging)) != NULL;
        if (ok) {
            const ignis__model_source *source = loading->parts[now->part].from;
            done += now->rows * (loading->parts[now->part].columns / source->elements * source->bytes);
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
    for (piece = 0; piece < IGNIS__MODEL_SLOTS; piece++)
        ok = ignis__model_release_slot(loading, device, piece, copied) && ok;
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
    ignis__pinned *piece = NULL;
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
    loading.count = ignis__model_list_pieces(&loading, count, NULL);
    loading.pieces = (ignis__model_piece *)ignis__alloc((size_t)(loading.count + 1) * sizeof *loading.pieces);
    if (!loading.pieces) {
        ignis__fail_host_memory(files->call, (size_t)(loading.count + 1) * sizeof *loading.pieces);
        return false;
    }
    (void)ignis__model_list_pieces(&loading, count, loading.pieces);
    ignis__mutex_init(&loading.lock);
    {
        static const ignis__condition none = IGNIS__CONDITION_INIT;
        memcpy(&loading.changed, &none, sizeof none);
    }
    for (i = 0; i < IGNIS__MODEL_SLOTS; i++)
        loading.piece_of[i] = i;
    ok = ignis__device_enter(files->call, model->device, &binding);
    if (ok) {
        piece = ignis__pinned_chunk_take(files->call, model->device, IGNIS__MODEL_SLOTS * loading.staging_bytes);
        loading.staging = piece ? (char *)piece->memory : NULL;
        ok = piece && ignis__model_copy_pieces(&loading, model->device, desc);
        ignis__device_leave(&binding);
    }
    if (piece && ignis__pinned_chunk_recycle(files->call, model->device, piece) != IGNIS_OK)
        ok = false;
    ignis__free(loading.pieces);
    return ok;
}
