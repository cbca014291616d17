/*  >>ops.matmul.gemm_launch - runs a product by a built-in kernel

    Copies or transposes operands that a kernel cannot read, launches the chosen kernel, sums splits, joins
    two tiny products.
    Uses: gemm_select, gemm_params. Scratch lives until the operation ends. */

#include "room.h"

IGNIS__PRIVATE double ignis__gemm_flops(const ignis__gemm *p)
{
    return 2.0 * (double)p->params.m * (double)p->params.n * (double)p->params.k * (double)p->params.batch;
}

/*  Launches a tiny product. ends: nothing is launched after this product, so it may wait for another one. */
static void ignis__gemm_launch_tiny(ignis__op *op, ignis_dtype dtype, const char *define, const ignis__gemm *gemm,
                                    int64_t blocks, bool ends)
{
    ignis__gemm_pending *pending = gemm->patches_of ? NULL : op->pending;
    ignis__gemm_params both[2] = IGNIS__ZERO;
    double flops = ignis__gemm_flops(gemm);
    unsigned first_blocks = (unsigned)blocks;
    void *params[] = {both, &first_blocks};
    if (pending && !pending->blocks && ends) {
        pending->p = *gemm;
        pending->dtype = dtype;
        pending->blocks = blocks;
        return;
    }
    both[0] = gemm->params;
    if (pending && pending->blocks) { /* kernels read the params of plain products up to the patches */
        const size_t size = offsetof(ignis__gemm_params, patches);
        memcpy((char *)both + size, &pending->p.params, size);
        blocks += pending->blocks;
        flops += ignis__gemm_flops(&pending->p);
        op->pending = NULL;
    }
    ignis__cost(-1, flops, (int)dtype);
    ignis__op_launch(op, IGNIS__BUILTIN(GEMM_TINY), dtype, define, ignis__launch_row(blocks, IGNIS__GEMM_THREADS, 0),
                     params);
}

/*  Begins a pair of products, up to ignis__gemm_join_end. They do not depend on each other, and the second
    one may run by other means. If both are tiny they are one launch. Products that are measured run many
    times, and are not joined. */
IGNIS__PRIVATE void ignis__gemm_join(ignis__op *op, ignis__gemm_pending *pending)
{
    pending->blocks = 0;
    op->pending = ignis__matmul_backend == IGNIS_MATMUL_MEASURE ? NULL : pending;
}

IGNIS__PRIVATE void ignis__gemm_join_end(ignis__op *op)
{
    const ignis__gemm_pending *pending = op->pending;
    op->pending = NULL;
    if (pending && pending->blocks) /* there was no second one */
        ignis__gemm_launch_tiny(op, pending->dtype, NULL, &pending->p, pending->blocks, false);
}

/*  Returns the rows of an operand that TMA loads at a time: the 128 of a tile at once, if the last tile has
    more than 64. So little is loaded that does not exist. */
static int ignis__gemm_box(int64_t rows) { return rows % 128 == 0 || rows % 128 > 64 ? 128 : 64; }

/*  Sets the rows that are loaded at once for a known variant. Tiles of more than 128 columns, and of patches,
    are loaded whole. A single tile loads only existing rows of a, in two halves if pairs share it; with
    column sums the rest is zero-filled. */
static void ignis__gemm_boxes(ignis__gemm *p, int rows, int columns)
{
    bool whole = !ignis__gemm_skips(p, rows, columns), few = p->params.m < 128 && !p->params.column_sums,
         shares_a = p->pairs == IGNIS__SHARE_A;
    p->params.box_a = p->params.transpose_a      ? 64
                      : whole                    ? rows
                      : few && p->params.m <= 64 ? (int)p->params.m
                      : few && shares_a          ? (int)ignis__ceil_div(p->params.m, 16) * 8
                      : shares_a                 ? 64
                      : rows == 192              ? p->params.m % 192 == 0 || p->params.m % 192 > 128 ? 192 : 64
                                                 : ignis__gemm_box(p->params.m);
    p->params.box_b = !p->params.transpose_b ? 64
                      : whole || rows == 192 ? columns
                      : columns == 64 || p->params.activation == IGNIS__ACTIVATION_PAIRED
                          ? 64
                          : ignis__gemm_box(p->params.n);
}

/*  Launches the product itself. ends: as in ignis__gemm_launch_tiny. */
static void ignis__gemm_launch(ignis__op *op, ignis__gemm_kernel *kernel, ignis_dtype dtype, ignis__gemm *gemm,
                               bool ends)
{
    ignis__gemm_params *p = &gemm->params;
    int64_t blocks = ignis__gemm_tiles(gemm, kernel->rows, kernel->columns) * p->splits,
            processors = op->work.device->info.multiprocessors;
    ignis__tensor_map a, b, out, other;
    ignis__gemm_matrix matrix;
    ignis__address another = ignis__gemm_extra_matrix(gemm);
    bool direct = ignis__gemm_finishes_in_registers(gemm, kernel->columns), gated = ignis__gemm_gates(gemm);
    void *mapped[] = {&a, &b, &out, &other, &gemm->params}, *plain[] = {&gemm->params};
    if (kernel->builtin == IGNIS__BUILTIN(GEMM_TINY)) {
        ignis__gemm_launch_tiny(op, dtype, kernel->define[0] ? kernel->define : NULL, gemm, blocks, ends);
        return;
    }
    if (kernel->stays) { /* kernels/gemm_hopper.cu */
        gemm->rows = kernel->rows;
        gemm->pairs = ignis__gemm_shares_a(kernel->rows, kernel->columns, kernel->blocks)        ? IGNIS__SHARE_A
                      : ignis__gemm_has_pairs(op) && ignis__gemm_shares_b(gemm, kernel->columns) ? IGNIS__SHARE_B
                                                                                                 : 0;
        ignis__gemm_hopper_define(kernel->define, sizeof kernel->define, gemm, kernel->columns, direct);
        if (gemm->pairs == IGNIS__SHARE_B &&
            !ignis__variant_exists(op->work.device, kernel->builtin, dtype, kernel->define)) {
            gemm->pairs = 0;
            ignis__gemm_hopper_define(kernel->define, sizeof kernel->define, gemm, kernel->columns, direct);
        }
        if (direct && !p->patches.apart &&
            !ignis__variant_exists(op->work.device, kernel->builtin, dtype, kernel->define)) {
            direct = false; /* nobody recorded just this one */
            ignis__gemm_hopper_define(kernel->define, sizeof kernel->define, gemm, kernel->columns, direct);
        }
        if (gemm->pairs) {
            blocks = 2 * p->splits *
                     (gemm->pairs == IGNIS__SHARE_A ? ignis__gemm_tiles(gemm, kernel->rows, 2 * kernel->columns)
                                                    : ignis__gemm_tiles(gemm, 2 * kernel->rows, kernel->columns));
            processors &= ~(int64_t)1;
        }
        blocks = ignis__clamp(blocks, 1, kernel->blocks * processors);
        ignis__gemm_boxes(gemm, kernel->rows, kernel->columns);
        if (!kernel->packs && !kernel->transposes && p->splits == 1)
            p->patches.beside = gemm->beside;
        if (gemm->patches_of == IGNIS__OPERAND_A)
            ignis__patches_tma_map(op, &a, dtype, gemm, kernel->rows);
        else {
            matrix = ignis__gemm_operand(gemm, false);
            ignis__gemm_tma_map(op, &a, gemm->operands, true, &matrix, p->box_a);
        }
        if (gemm->patches_of == IGNIS__OPERAND_B)
            ignis__patches_tma_map(op, &b, dtype, gemm, 64);
        else {
            matrix = ignis__gemm_operand(gemm, true);
            if (gemm->patches_of == IGNIS__OPERAND_A) { /* weights: a tap is a matrix */
                const ignis__patches *q = &p->patches;
                matrix.count = q->weight_row / gemm->weights;
                matrix.rows = p->transpose_b ? p->n : q->weight_channels;
                matrix.columns = matrix.batch = gemm->weights;
                matrix.row = q->weight_row;
            }
            ignis__gemm_tma_map(op, &b, gemm->patches_of ? dtype : gemm->operands, true, &matrix,
                                gemm->pairs == IGNIS__SHARE_B && !gemm->patches_of ? p->box_b / 2 : p->box_b);
        }
        other = out = a; /* for maps that are not used */
        if (direct && p->patches.apart)
            ignis__patches_out_tma_map(op, &out, dtype, gemm);
        else if (direct) {
            matrix = ignis__gemm_result(gemm, p->out, ignis__gemm_out_columns(gemm), gated && p->gradient);
            ignis__gemm_tma_map(op, &out, dtype, false, &matrix, 64);
        }
        if (direct && another) {
            matrix = ignis__gemm_result(gemm, another, p->n, gated && (p->gradient || p->keeps));
            ignis__gemm_tma_map(op, &other, dtype, false, &matrix, 64);
        }
    }
    ignis__cost(-1, ignis__gemm_flops(gemm), (int)dtype);
    ignis__op_launch(op, kernel->builtin, dtype, kernel->define[0] ? kernel->define : NULL,
                     ignis__launch_row(blocks, kernel->threads, kernel->shared), kernel->stays ? mapped : plain);
}

/*  Plans scratch for an operand in which its rows are full packs of `pack` elements: of 16 bytes or fewer. The matrix
    becomes the one in scratch, unless it is packed already. */
IGNIS__PRIVATE void ignis__gemm_plan_copy(ignis__op *op, ignis_dtype dtype, ignis__gemm_copy *copy,
                                          ignis__gemm_matrix *matrix, int64_t pack)
{
    int64_t whole = ignis__pack_elements(dtype);
    memset(copy, 0, sizeof *copy);
    if (matrix->packed)
        return;
    copy->from = matrix->at;
    copy->row = matrix->row;
    copy->stride = ignis__ceil_div(matrix->row, pack) * pack;
    copy->rows = matrix->batch ? matrix->rows * matrix->count : matrix->rows;
    copy->to =
        ignis__op_write(op, ignis__op_new_row(op, ignis__ceil_div(copy->rows * copy->stride, whole) * whole, dtype));
    matrix->at = copy->to;
    matrix->row = copy->stride;
    matrix->batch = matrix->batch ? matrix->rows * copy->stride : 0;
    matrix->packed = (int)(whole / pack);
}

/*  Makes one or two copies. */
IGNIS__PRIVATE void ignis__gemm_copies(ignis__op *op, ignis_dtype dtype, ignis__gemm_copy *a, ignis__gemm_copy *b)
{
    void *params[] = {a, b};
    int64_t pack = ignis__pack_elements(dtype),
            packs = ignis__ceil_div(a->rows * a->stride, pack) + ignis__ceil_div(b->rows * b->stride, pack);
    ignis__op_launch_row(op, IGNIS__BUILTIN(GEMM_PACK), dtype, ignis__ceil_div(packs, IGNIS__GEMM_THREADS),
                         IGNIS__GEMM_THREADS, params);
}

/*  Copies operands whose rows are no full packs to scratch where they are. */
static void ignis__gemm_pack(ignis__op *op, ignis_dtype dtype, ignis__gemm *p)
{
    ignis__gemm_matrix a = ignis__gemm_operand(p, false), b = ignis__gemm_operand(p, true);
    ignis__gemm_copy copies[2];
    ignis__gemm_plan_copy(op, dtype, &copies[0], &a, ignis__pack_elements(dtype));
    ignis__gemm_plan_copy(op, dtype, &copies[1], &b, ignis__pack_elements(dtype));
    ignis__gemm_copies(op, dtype, &copies[0], &copies[1]);
    ignis__gemm_set_operand(p, false, &a);
    ignis__gemm_set_operand(p, true, &b);
}

/*  Transposes an operand, matrices [k, rows], to scratch as [rows, k]. */
static void ignis__gemm_transpose_operand(ignis__op *op, ignis_dtype dtype, ignis__gemm *p, bool is_b)
{
    ignis__gemm_matrix x = ignis__gemm_operand(p, is_b);
    int64_t matrices = x.batch ? x.count : 1, one = 1;
    ignis__address from = x.at;
    void *params[] = {&x.at, &from, &matrices, &x.rows, &one, &x.columns, &one};
    x.at = ignis__op_write(op, ignis__op_new_row(op, matrices * x.rows * x.columns, dtype));
    x.batch = x.batch ? x.rows * x.columns : 0;
    ignis__op_launch_row(
        op, IGNIS__BUILTIN(TRANSPOSE_TILES), dtype,
        ignis__clamp(matrices * ignis__ceil_div(x.rows, 64) * ignis__ceil_div(x.columns, 64), 1, INT32_MAX), 256,
        params);
    ignis__gemm_set_operand(p, is_b, &x);
}

/*  Chooses a kernel for the parameters, and runs it. False: the caller computes row sums. */
IGNIS__PRIVATE bool ignis__gemm_compute(ignis__op *op, ignis_dtype dtype, ignis__gemm *gemm,
                                        const ignis__epilogue *epilogue)
{
    ignis__gemm_params *p = &gemm->params;
    ignis__gemm_kernel kernel = ignis__gemm_choose(op, dtype, gemm, epilogue);
    bool row_sums = epilogue->row_sums && kernel.sums_rows;
    int64_t shares = kernel.stays ? ignis__ceil_div(p->n, kernel.columns) : 1; /* of the tiles of a row in its sum */
    ignis__gemm_request(dtype, gemm, epilogue);
    if (kernel.packs)
        ignis__gemm_pack(op, gemm->operands, gemm);
    if (kernel.transposes && p->transpose_a)
        ignis__gemm_transpose_operand(op, dtype, gemm, false);
    if (kernel.transposes && !p->transpose_b)
        ignis__gemm_transpose_operand(op, dtype, gemm, true);
    if (kernel.transposes)
        *gemm = ignis__gemm_by_wgmma(gemm);
    if (kernel.stays && gemm->patches_of && p->k != gemm->wgmma_k) { /* each tap of a patch has full k steps */
        p->patches.channels = ignis__divisor_of((int64_t)p->patches.channels.size * gemm->wgmma_k / p->k);
        p->k = p->split_k = gemm->wgmma_k;
    }
    if (kernel.splits > 1) {
        int64_t whole = ignis__dtype_is_f8(gemm->operands) ? 128 : 64;
        p->split_k = ignis__ceil_div(ignis__ceil_div(p->k, kernel.splits), whole) * whole;
        p->splits = (int)ignis__ceil_div(p->k, p->split_k);
    }
    if (p->splits > 1)
        p->partial = ignis__gemm_scratch(op, p->splits * p->batch * p->m * p->n, dtype);
    else if (epilogue->column_sums)
        p->column_sums =
            ignis__gemm_sums_scratch(op, epilogue->column_sums, ignis__ceil_div(p->m, kernel.summed_rows), dtype);
    if (row_sums)
        p->row_sums = ignis__gemm_sums_scratch(op, epilogue->row_sums, p->splits * shares, dtype);
    ignis__gemm_launch(op, &kernel, dtype, gemm,
                       p->splits == 1 && !epilogue->column_sums && !(row_sums && dtype != ignis__wide_dtype(dtype)));
    if (p->splits > 1)
        ignis__gemm_launch_finish(op, IGNIS__BUILTIN(GEMM_FINISH), IGNIS__GEMM_FINISH_ROWS, dtype, gemm, epilogue);
    else if (epilogue->column_sums)
        ignis__gemm_add_sums(op, epilogue->column_sums, p->column_sums, ignis__ceil_div(p->m, kernel.summed_rows));
    if (row_sums)
        ignis__gemm_add_sums(op, epilogue->row_sums, p->row_sums, p->splits * shares);
    return row_sums;
}

/*  Runs a product by built-in kernels; out has elements. False: the caller computes its row sums. */
IGNIS__PRIVATE bool ignis__gemm_run(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a,
                                    ignis__array *b, const ignis__epilogue *epilogue)
{
    ignis_dtype dtype = (ignis_dtype)product->dtype;
    ignis__gemm p = ignis__gemm_describe(op, product, out, epilogue);
    if (p.params.k > 0) {
        p.params.a = ignis__op_read(op, a);
        p.params.b = ignis__op_read(op, b);
    }
    if (!op->ok)
        return false;
    p.params.packed_a = p.params.k == 0 || ignis__gemm_packed(p.operands, p.params.a, p.params.row_a, p.params.batch_a);
    p.params.packed_b = p.params.k == 0 || ignis__gemm_packed(p.operands, p.params.b, p.params.row_b, p.params.batch_b);
    return ignis__gemm_compute(op, dtype, &p, epilogue);
}
