/* ===============================================================================================================
   >>generate - sequences over a KV cache, sampling, text output

   A sequence is the ids of a text. An engine, one per model, has the KV cache, the buffers and the graphs that all
   sequences of the model share. This part: uploads of ids and rows, embeddings.
   Uploads are parameters of launches, so no host memory needs to stay until a launch runs.
   May use: >>weights, >>grammar, >>chat, >>tokenizer and the rooms below. Locks: engine->lock, then those of arrays
   and devices.
   =============================================================================================================== */

#include "room.h"

typedef struct ignis__upload_rows_params {
    ignis__generate_row at[IGNIS__UPLOAD_ROWS];
} ignis__upload_rows_params;

typedef struct ignis__upload_i32_params {
    int32_t at[IGNIS__UPLOAD_I32S];
} ignis__upload_i32_params;

/*  Begins an operation without inputs, for launches on the thread's current stream. False, and reported, if the
    device cannot be entered. */
IGNIS__PRIVATE bool ignis__op_begin_on_device(ignis__op *op, const char *call, ignis__device *device)
{
    memset(op, 0, offsetof(ignis__op, tape_state));
    op->work.call = call;
    op->steady = true;
    return op->ok = ignis__work_begin(call, device, &op->work);
}

/*  Writes `count` values to an i32 array, from element `first` on. */
IGNIS__PRIVATE void ignis__upload_i32(ignis__op *op, ignis_dtype dtype, ignis__array *to, int64_t first,
                                      const int32_t *from, int64_t count)
{
    ignis__address at = ignis__op_write(op, to) + (ignis__address)(4 * first);
    ignis__upload_i32_params values;
    int batch;
    void *params[] = {&at, &values, &batch};
    for (; op->ok && count > 0; count -= batch, from += batch, at += 4 * (ignis__address)batch) {
        batch = (int)ignis__clamp(count, 0, IGNIS__UPLOAD_I32S);
        memcpy(values.at, from, 4 * (size_t)batch);
        ignis__op_launch_row(op, IGNIS__BUILTIN(GENERATE_WORDS), dtype, 1, 256, params);
    }
}

/*  Writes the rows of a decode step. */
IGNIS__PRIVATE void ignis__upload_rows(ignis__op *op, ignis_dtype dtype, ignis__array *to,
                                       const ignis__generate_row *from, int count)
{
    ignis__address at = ignis__op_write(op, to);
    ignis__upload_rows_params rows;
    int batch;
    void *params[] = {&at, &rows, &batch};
    for (; op->ok && count > 0; count -= batch, from += batch, at += sizeof *from * (ignis__address)batch) {
        batch = (int)ignis__clamp(count, 0, IGNIS__UPLOAD_ROWS);
        memcpy(rows.at, from, sizeof *from * (size_t)batch);
        ignis__op_launch_row(op, IGNIS__BUILTIN(GENERATE_ROWS), dtype, 1, 32, params);
    }
}

/*  Writes `count` rows of one sequence. The first one is given; each next one has the next position. */
IGNIS__PRIVATE void ignis__upload_rows_from(ignis__op *op, ignis_dtype dtype, ignis__array *to,
                                            ignis__generate_row *first, int count)
{
    ignis__address at = ignis__op_write(op, to);
    void *params[] = {&at, first, &count};
    ignis__op_launch_row(op, IGNIS__BUILTIN(GENERATE_CHUNK), dtype, 1, 256, params);
}

IGNIS__PRIVATE int64_t ignis__weight_rows(const ignis__array *weights)
{
    return weights->blocks.count ? ignis__blocks_rows(&weights->blocks) : weights->shape.dim[0];
}

IGNIS__PRIVATE int64_t ignis__weight_columns(const ignis__array *weights)
{
    return weights->blocks.count ? weights->blocks.columns : weights->shape.dim[1];
}

/*  Embeds the uploaded rows. */
IGNIS__PRIVATE void ignis__embed_rows(ignis__op *op, int count, const ignis__engine *engine)
{
    ignis__array *embedding = engine->embedding;
    ignis__address to = ignis__op_write(op, engine->sum), from = ignis__op_read(op, embedding),
                   learned = engine->positions ? ignis__op_read(op, engine->positions) : 0,
                   places = ignis__op_read(op, engine->rows);
    double scale = engine->model->embedding_scale > 0 ? engine->model->embedding_scale : 1;
    int hidden = (int)ignis__weight_columns(embedding);
    const ignis_dtype dtype = engine->model->dtype;
    ignis__quantised_weight q;
    void *params[] = {&to, &from, &learned, &places, &hidden, &scale},
         *of_blocks[] = {&to, &q, &learned, &places, &scale};
    if (!embedding->blocks.count) {
        ignis__op_launch_row(op, IGNIS__BUILTIN(GENERATE_EMBED), dtype, count, 256, params);
        return;
    }
    q = ignis__quantised_part(&embedding->blocks, 0, from);
    ignis__op_launch_row(op, IGNIS__BUILTIN(BLOCKS_EMBED), dtype, count, 256, of_blocks);
}
