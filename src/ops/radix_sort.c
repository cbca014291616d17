/*  >>ops.radix_sort - sorts rows with their positions, a byte a pass

    The order of equal elements is kept, so results have the same bits every time. Uses: operation;
    kernels/sort.cu. */

#include "room.h"

/*  Makes `lists` of the lists. */
IGNIS__PRIVATE void ignis__radix_begin(ignis__op *op, ignis__radix *sort, ignis_dtype dtype, int64_t rows, int64_t n,
                                       int lists)
{
    int i;
    memset(sort, 0, sizeof *sort);
    sort->dtype = dtype;
    sort->rows = rows;
    sort->n = n;
    for (i = 0; i < lists; i++) {
        sort->keys[i] = ignis__op_write(op, ignis__op_new_row(op, rows * n, dtype));
        sort->positions[i] = ignis__op_write(op, ignis__op_new_row(op, rows * n, IGNIS_I32));
    }
}

/*  Sorts the elements at `from` by their lowest bytes, in `passes` passes. The first k of each row go to
    values and positions. Without these, and with from == keys[0], all go to keys[0] and positions[0]. */
IGNIS__PRIVATE void ignis__radix_run(ignis__op *op, ignis__radix *sort, ignis__address from, int passes, int descending,
                                     ignis__address values, ignis__address positions, int64_t k)
{
    int size = (int)ignis__dtypes[sort->dtype].size,
        tile = IGNIS__SORT_TILE_THREADS * (size == 8 ? IGNIS__SORT_ROUNDS_OF_8 : IGNIS__SORT_ROUNDS),
        stride = IGNIS__SORT_DIGITS * passes, pass, shift, tiles, parts;
    int64_t blocks = sort->rows * ignis__ceil_div(sort->n, tile), digits = sort->rows * IGNIS__SORT_DIGITS;
    ignis__array *zeros = ignis__op_new_row(op, passes * (digits + IGNIS__SORT_DIGITS * blocks + 1), IGNIS_I32);
    ignis__address counts, said, next, none = 0, *in = &from, *in_positions = &none;
    void *count[] = {&counts, &from, &sort->n, &parts, &passes, &descending};
    if (!zeros || blocks == 0)
        return;
    ignis__op_zero(op, zeros);
    counts = ignis__op_write(op, zeros);
    said = counts + 4 * (uint64_t)(passes * digits);
    next = said + 4 * (uint64_t)(passes * IGNIS__SORT_DIGITS * blocks);
    tiles = (int)ignis__ceil_div(sort->n, tile);
    parts = (int)ignis__ceil_div(sort->n, IGNIS__SORT_COUNTED * tile);
    ignis__op_launch_row(op, IGNIS__BUILTIN(SORT_COUNT), sort->dtype, sort->rows * parts, IGNIS__SORT_TILE_THREADS,
                         count);
    for (pass = 0; pass < passes;
         pass++, counts += 4 * IGNIS__SORT_DIGITS, said += 4 * IGNIS__SORT_DIGITS * (uint64_t)blocks, next += 4) {
        bool is_last = pass == passes - 1 && values;
        int out = from == sort->keys[0] ? 1 - pass % 2 : pass % 2;
        void *params[] = {is_last ? &values : &sort->keys[out],
                          &sort->positions[out],
                          is_last ? &positions : &none,
                          in,
                          in_positions,
                          &counts,
                          &stride,
                          &said,
                          &next,
                          &sort->n,
                          &k,
                          &tiles,
                          &shift,
                          &descending};
        shift = 8 * pass;
        ignis__op_launch(op, IGNIS__BUILTIN(SORT_PASS), sort->dtype, NULL,
                         ignis__launch_row(blocks, IGNIS__SORT_TILE_THREADS, (size_t)tile * (size_t)(size + 4)),
                         params);
        in = &sort->keys[out];
        in_positions = &sort->positions[out];
    }
    if (!values && passes % 2) {
        sort->keys[0] = sort->keys[1];
        sort->positions[0] = sort->positions[1];
    }
}

/*  Returns how many bytes numbers up to this have, at least 1. */
IGNIS__PRIVATE int ignis__radix_passes(uint64_t highest)
{
    int passes = 1;
    while (passes < 8 && highest >> (8 * passes))
        passes++;
    return passes;
}
