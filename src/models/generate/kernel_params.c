/* ===============================================================================================================
   >>generate - sequences over a cache of keys and values, sampling, text out.
   =============================================================================================================== */

#include "room.h"

typedef struct ignis__generate_rows {
    ignis__generate_row at[IGNIS__ROWS_SENT];
} ignis__generate_rows;

typedef struct ignis__generate_words {
    int32_t at[IGNIS__WORDS];
} ignis__generate_words;

/*  An operation without inputs, for launches on the thread's current stream. False, and reported: the device cannot be entered. */
IGNIS__PRIVATE bool ignis__next_begin(ignis__op *op, const char *call, ignis__device *device)
{
    memset(op, 0, offsetof(ignis__op, tape_state));
    op->work.call = call;
    op->steady = true;
    return op->ok = ignis__work_begin(call, device, &op->work);
}

/*  Writes numbers to an i32 array, from an element on. */
IGNIS__PRIVATE void ignis__step_words(ignis__op *op, ignis_dtype dtype, ignis__array *to, int64_t first,
                                      const int32_t *from, int64_t count)
{
    ignis__address at = ignis__op_write(op, to) + (ignis__address)(4 * first);
    ignis__generate_words words;
    int some;
    void *params[] = {&at, &words, &some};
    for (; op->ok && count > 0; count -= some, from += some, at += 4 * (ignis__address)some) {
        some = (int)ignis__clamp(count, 0, IGNIS__WORDS);
        memcpy(words.at, from, 4 * (size_t)some);
        ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_WORDS, dtype, 1, 256, params);
    }
}

/*  Writes the rows of a step. */
IGNIS__PRIVATE void ignis__step_rows(ignis__op *op, ignis_dtype dtype, ignis__array *to,
                                     const ignis__generate_row *from, int count)
{
    ignis__address at = ignis__op_write(op, to);
    ignis__generate_rows rows;
    int some;
    void *params[] = {&at, &rows, &some};
    for (; op->ok && count > 0; count -= some, from += some, at += sizeof *from * (ignis__address)some) {
        some = (int)ignis__clamp(count, 0, IGNIS__ROWS_SENT);
        memcpy(rows.at, from, sizeof *from * (size_t)some);
        ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_ROWS, dtype, 1, 32, params);
    }
}

/*  Writes rows of one sequence, from a position on. */
IGNIS__PRIVATE void ignis__step_chunk(ignis__op *op, ignis_dtype dtype, ignis__array *to, ignis__generate_row *first,
                                      int count)
{
    ignis__address at = ignis__op_write(op, to);
    void *params[] = {&at, first, &count};
    ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_CHUNK, dtype, 1, 256, params);
}

IGNIS__PRIVATE int64_t ignis__weight_rows(const ignis__array *weights)
{
    return weights->blocks.count ? ignis__blocks_rows(&weights->blocks) : weights->shape.dim[0];
}

IGNIS__PRIVATE int64_t ignis__weight_columns(const ignis__array *weights)
{
    return weights->blocks.count ? weights->blocks.columns : weights->shape.dim[1];
}

IGNIS__PRIVATE void ignis__step_embed(ignis__op *op, int count, ignis_dtype dtype, ignis__array *sum,
                                      ignis__array *embedding, ignis__array *positions, ignis__array *rows)
{
    ignis__address to = ignis__op_write(op, sum), from = ignis__op_read(op, embedding),
                   learned = positions ? ignis__op_read(op, positions) : 0, places = ignis__op_read(op, rows);
    int hidden = (int)ignis__weight_columns(embedding);
    ignis__quantised q;
    void *params[] = {&to, &from, &learned, &places, &hidden}, *of_blocks[] = {&to, &q, &learned, &places};
    if (!embedding->blocks.count) {
        ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_EMBED, dtype, count, 256, params);
        return;
    }
    q = ignis__quantised_part(&embedding->blocks, 0, from);
    ignis__op_launch_row(op, IGNIS__BUILTIN_BLOCKS_EMBED, dtype, count, 256, of_blocks);
}
