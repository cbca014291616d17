/*  >>ops.matmul.gemm_params - the parameters of the GEMM kernels: TMA maps, scratch, sums, epilogues

    Fills the struct of kernels/gemm.cuh, and requests kernels while programs are recorded. Uses: product,
    gemm_select. */

#include "room.h"

/*  Returns the matrices of an operand without patches. */
IGNIS__PRIVATE ignis__gemm_matrix ignis__gemm_operand(const ignis__gemm *gemm, bool is_b)
{
    const ignis__gemm_params *p = &gemm->params;
    ignis__gemm_matrix a = {
        p->a, p->batch, p->transpose_a ? p->k : p->m, p->transpose_a ? p->m : p->k, p->row_a, p->batch_a, p->packed_a};
    ignis__gemm_matrix b = {
        p->b, p->batch, p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n, p->row_b, p->batch_b, p->packed_b};
    return is_b ? b : a;
}

/*  Sets an operand to a copy of its matrices. */
IGNIS__PRIVATE void ignis__gemm_set_operand(ignis__gemm *gemm, bool is_b, const ignis__gemm_matrix *matrix)
{
    ignis__gemm_params *p = &gemm->params;
    *(is_b ? &p->b : &p->a) = matrix->at;
    *(is_b ? &p->row_b : &p->row_a) = matrix->row;
    *(is_b ? &p->batch_b : &p->batch_a) = matrix->batch;
    *(is_b ? &p->packed_b : &p->packed_a) = matrix->packed;
}

/*  Returns the matrices of the result, or of an array like it; pairs: there are two of them, of a gated product. */
IGNIS__PRIVATE ignis__gemm_matrix ignis__gemm_result(const ignis__gemm *gemm, ignis__address at, int64_t columns,
                                                     bool pairs)
{
    const ignis__gemm_params *p = &gemm->params;
    ignis__gemm_matrix matrix = {at, pairs ? 2 : p->batch, p->m, columns, columns, p->m * p->n, p->packed_out};
    return matrix;
}

/*  Makes a TMA map of matrices, in tiles of 128 bytes of some rows. rounds: f32 is rounded to tf32 when loaded. */
IGNIS__PRIVATE void ignis__gemm_tma_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype, bool rounds,
                                        const ignis__gemm_matrix *matrix, int box_rows)
{
    int64_t size = ignis__dtypes[dtype].size;
    int64_t dims[] = {matrix->columns, matrix->rows, matrix->batch ? matrix->count : 1},
            strides[] = {size * matrix->row, size * (matrix->batch ? matrix->batch : matrix->row * matrix->rows)};
    int box[] = {(int)(128 / size), box_rows, 1};
    ignis__tensor_map_desc desc = {dtype, rounds, matrix->at, 3, dims, strides, box, NULL};
    op->ok = op->ok && ignis__tensor_map_make(&op->work, map, &desc);
}

/*  Makes a TMA map of the array with patches: `count` pixels of the grid for a tap. */
IGNIS__PRIVATE void ignis__patches_tma_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype,
                                           const ignis__gemm *p, int count)
{
    const ignis__patches *q = &p->params.patches;
    static const int side[] = {IGNIS__COLUMNS, IGNIS__ROWS, IGNIS__PLANES};
    int sides = p->volumes ? 3 : 2;
    int64_t dims[] = {q->pixel, q->width, q->height, q->depth, p->images}, strides[4];
    ignis__tensor_pixels pixels;
    int box = 64, grid[] = {(int)q->columns.size, (int)q->rows.size, (int)q->planes.size}, i;
    ignis__tensor_map_desc desc = {dtype,     false,  p->patches_of == IGNIS__OPERAND_A ? p->params.a : p->params.b,
                                   sides + 2, dims,   strides,
                                   &box,      &pixels};
    pixels.count = count;
    for (i = 0; i < sides; i++) {
        pixels.lower[i] = q->first[side[i]];
        pixels.step[i] = q->stride[side[i]];
        pixels.upper[i] = pixels.lower[i] + pixels.step[i] * (grid[i] - 1) - (int)(dims[1 + i] - 1);
    }
    dims[sides + 1] = p->images;
    for (i = 0; i <= sides; i++)
        strides[i] = i ? strides[i - 1] * dims[i] : 2 * q->pixel;
    op->ok = op->ok && ignis__tensor_map_make(&op->work, map, &desc);
}

/*  Makes a TMA map of the pixels of out that belong to the grid. */
IGNIS__PRIVATE void ignis__patches_out_tma_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype,
                                               const ignis__gemm *p)
{
    const ignis__patches *q = &p->params.patches;
    int64_t dims[] = {p->params.n, q->columns.size, q->rows.size, q->planes.size, p->images};
    int64_t strides[] = {2 * q->out_column, 2 * q->out_row, 2 * q->out_plane, 2 * q->out_image};
    ignis__tensor_pixels pixels = IGNIS__ZERO;
    int box = 64, sides = p->volumes ? 3 : 2;
    ignis__tensor_map_desc desc = {dtype, false, p->params.out, sides + 2, dims, strides, &box, &pixels};
    dims[sides + 1] = p->images;
    strides[sides] = 2 * q->out_image;
    pixels.step[0] = pixels.step[1] = pixels.step[2] = 1;
    pixels.count = 64;
    op->ok = op->ok && ignis__tensor_map_make(&op->work, map, &desc);
}

/*  Returns whether all rows of `row` elements from these addresses on are full packs. */
IGNIS__PRIVATE bool ignis__gemm_packed(ignis_dtype dtype, ignis__address addresses, int64_t row, int64_t batch)
{
    int64_t pack = ignis__pack_elements(dtype);
    return addresses % 16 == 0 && row % pack == 0 && batch % pack == 0;
}

/*  Sums [count, n] in the order of the rows. */
IGNIS__PRIVATE void ignis__gemm_add_sums(ignis__op *op, ignis__array *out, ignis__address from, int64_t count)
{
    ignis__address to = ignis__op_write(op, out);
    void *params[] = {&to, &from, &count, &out->numel};
    if (from == to) /* there was one row */
        return;
    ignis__op_launch_row(op, IGNIS__BUILTIN(GEMM_SUMS), out->dtype,
                         ignis__ceil_div(out->numel, IGNIS__GEMM_SUMS_COLUMNS), IGNIS__GEMM_THREADS, params);
}

IGNIS__PRIVATE ignis__address ignis__gemm_scratch(ignis__op *op, int64_t count, ignis_dtype dtype)
{
    return ignis__op_write(op, ignis__op_new_row(op, count, ignis__wide_dtype(dtype)));
}

/*  Returns where a kernel writes `count` rows of sums for ignis__gemm_add_sums: a single row of the result's
    dtype is the result. */
IGNIS__PRIVATE ignis__address ignis__gemm_sums_scratch(ignis__op *op, ignis__array *out, int64_t count,
                                                       ignis_dtype dtype)
{
    return count == 1 && dtype == ignis__wide_dtype(dtype) ? ignis__op_write(op, out)
                                                           : ignis__gemm_scratch(op, count * out->numel, dtype);
}

/*  Returns the parameters, except for partial sums. out and its epilogue's arrays have elements. */
IGNIS__PRIVATE ignis__gemm ignis__gemm_describe(ignis__op *op, const ignis__product *product, ignis__array *out,
                                                const ignis__epilogue *epilogue)
{
    ignis__gemm gemm = IGNIS__ZERO;
    gemm.dtype = (ignis_dtype)product->dtype;
    gemm.operands = product->operands ? (ignis_dtype)product->operands : gemm.dtype;
    gemm.params.m = product->m;
    gemm.params.n = product->n;
    gemm.params.k = product->k;
    gemm.params.batch = product->batch;
    gemm.params.batch_a = product->batch_a;
    gemm.params.batch_b = product->batch_b;
    gemm.params.transpose_a = product->transpose_a;
    gemm.params.transpose_b = product->transpose_b;
    gemm.params.row_a = gemm.params.transpose_a ? gemm.params.m : gemm.params.k;
    gemm.params.row_b = gemm.params.transpose_b ? gemm.params.k : gemm.params.n;
    gemm.params.factor = epilogue->factor != 0 ? epilogue->factor : 1;
    gemm.params.splits = 1;
    gemm.params.split_k = gemm.params.k;
    gemm.params.activation = epilogue->activation;
    gemm.params.gradient = epilogue->gradient;
    gemm.params.accumulate = epilogue->accumulate;
    gemm.params.keeps = epilogue->keeps;
    if (epilogue->bias)
        gemm.params.bias = ignis__op_read(op, epilogue->bias);
    if (epilogue->scale_a) {
        gemm.params.scale_a = ignis__op_read(op, epilogue->scale_a);
        gemm.params.scales_a = epilogue->scale_a->numel > 1;
    }
    if (epilogue->scale_b) {
        gemm.params.scale_b = ignis__op_read(op, epilogue->scale_b);
        gemm.params.scales_b = epilogue->scale_b->numel > 1;
    }
    if (epilogue->pre && (epilogue->gradient || ignis__gemm_gates(&gemm)))
        gemm.params.pre = ignis__op_read(op, epilogue->pre);
    if (epilogue->pre && (epilogue->keeps || !gemm.params.pre))
        gemm.params.pre = ignis__op_write(op, epilogue->pre);
    if (epilogue->residual)
        gemm.params.residual = ignis__op_read(op, epilogue->residual);
    gemm.params.out = ignis__op_write(op, out);
    gemm.params.packed_out = ignis__gemm_packed(
        (ignis_dtype)product->dtype, gemm.params.out | gemm.params.bias | gemm.params.pre | gemm.params.residual,
        ignis__gemm_out_columns(&gemm), 0);
    return gemm;
}

/*  Launches a kernel that finishes a product: 128 columns of `rows` rows for a block. */
IGNIS__PRIVATE void ignis__gemm_launch_finish(ignis__op *op, ignis__builtin builtin, int rows, ignis_dtype dtype,
                                              ignis__gemm *p, const ignis__epilogue *epilogue)
{
    void *params[] = {p};
    int64_t sums = ignis__ceil_div(p->params.m, rows);
    if (epilogue->column_sums)
        p->params.column_sums = ignis__gemm_sums_scratch(op, epilogue->column_sums, sums, dtype);
    ignis__op_launch(op, builtin, dtype, p->patches_of == IGNIS__OPERAND_A ? ignis__gemm_patches_define(p) : NULL,
                     ignis__launch_row(ignis__gemm_tiles(p, rows, IGNIS__GEMM_COLUMNS), IGNIS__GEMM_THREADS, 0),
                     params);
    if (epilogue->column_sums)
        ignis__gemm_add_sums(op, epilogue->column_sums, p->params.column_sums, sums);
}

/*  While programs are recorded: requests the kernels that devices choose for such products, of these sizes
    and others. */
IGNIS__COLD IGNIS__PRIVATE void ignis__gemm_request(ignis_dtype dtype, const ignis__gemm *product,
                                                    const ignis__epilogue *epilogue)
{
    bool eights = ignis__dtype_is_f8(product->operands), rounds = ignis__gemm_allows_tensor_cores(product->operands),
         by_k = ignis__dtypes[product->operands].size != 2;
    static const int widths[] = {64, 128, 192, 256};
    ignis__gemm gemm = *product;
    char define[IGNIS__DEFINES];
    int i, direct;
    if (!ignis__requests.path[0] ||
        gemm.params.activation == IGNIS__ACTIVATION_PAIRED) /* by ignis__gemm_supports_paired */
        return;
    gemm.params.row_sums = epilogue->row_sums != NULL;
    gemm.params.column_sums = epilogue->column_sums != NULL;
    ignis__record_builtin_for_all(IGNIS__BUILTIN(GEMM_FINISH), dtype);
    define[0] = 0;
    if (gemm.patches_of)
        snprintf(define, sizeof define, "%s", ignis__gemm_patches_define(&gemm));
    if (!eights) {
        ignis__record_builtin(IGNIS__BUILTIN(GEMM_TINY), dtype, define, 0, IGNIS__EVERY_ARCH);
        ignis__record_builtin(IGNIS__BUILTIN(GEMM), dtype, define, 0, rounds ? 79 : IGNIS__EVERY_ARCH);
    }
    ignis__gemm_mma_define(define, sizeof define, &gemm);
    if (rounds)
        ignis__record_builtin(IGNIS__BUILTIN(GEMM_MMA), dtype, define, eights ? 89 : 80, IGNIS__EVERY_ARCH);
    if (rounds && by_k && !eights && !gemm.patches_of) {
        ignis__record_builtin_for_all(IGNIS__BUILTIN(TRANSPOSE_TILES), dtype);
        gemm = ignis__gemm_by_wgmma(&gemm);
    }
    for (i = 0; rounds && (!gemm.patches_of || (!by_k && gemm.wgmma_k)) && i < (eights ? 2 : IGNIS__COUNT(widths)); i++)
        for (gemm.pairs = IGNIS__SHARE_NOTHING; gemm.pairs <= IGNIS__SHARE_B; gemm.pairs++) {
            gemm.params.n = widths[i] > 64 || gemm.pairs || eights ? (product->params.n > 64 ? product->params.n : 256)
                                                                   : 64; /* as many columns as such a tile has */
            if (gemm.pairs == IGNIS__SHARE_A ? widths[i] != 64 || !ignis__gemm_may_share_a(&gemm)
                                             : ignis__gemm_columns(&gemm, widths[i]) != widths[i] ||
                                                   (widths[i] == 192 && !ignis__gemm_takes_ahead(product, epilogue)) ||
                                                   (gemm.pairs && !ignis__gemm_shares_b(&gemm, widths[i])))
                continue;
            for (direct = widths[i] == 192; direct <= ignis__gemm_finishes_in_registers(&gemm, widths[i]); direct++) {
                ignis__gemm_hopper_define(define, sizeof define, &gemm, widths[i], direct);
                ignis__record_builtin(IGNIS__BUILTIN(GEMM_HOPPER), dtype, define, 90, 90);
            }
        }
    gemm.params.n = product->params.n;
    gemm.rows = 192; /* with some of the columns that such tiles may have */
    for (i = 0; rounds && ignis__gemm_takes_192_rows(product, epilogue) && i < 3; i++)
        for (gemm.pairs = 0; gemm.pairs <= (ignis__gemm_shares_b(&gemm, widths[i]) ? IGNIS__SHARE_B : 0);
             gemm.pairs += IGNIS__SHARE_B) {
            ignis__gemm_hopper_define(define, sizeof define, &gemm, widths[i], true);
            ignis__record_builtin(IGNIS__BUILTIN(GEMM_HOPPER), dtype, define, 90, 90);
        }
}
