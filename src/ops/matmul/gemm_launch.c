/*  >>ops.matmul.gemm_launch - runs a product by a built-in kernel

    Copies or transposes operands that a kernel cannot read, launches the chosen kernel, sums splits, joins
    two tiny products.
    Uses: gemm_select, gemm_params. Scratch lives until the operation ends. */

#include "../room.h"

IGNIS__PRIVATE double ignis__gemm_flops(const ignis__gemm *p)
{
    return 2.0 * (double)p->m * (double)p->n * (double)p->k * (double)p->batch;
}

/*  Launches a tiny product. ends: nothing is launched after this product, so it may wait for another one. */
static void ignis__gemm_launch_tiny(ignis__op *op, ignis_dtype dtype, const char *define, const ignis__gemm *gemm,
                                    int64_t blocks, bool ends)
{
    ignis__gemm_pending *pending = gemm->patches_of ? NULL : op->pending;
    ignis__gemm both[2] = IGNIS__ZERO;
    double flops = ignis__gemm_flops(gemm);
    unsigned first_blocks = (unsigned)blocks;
    void *params[] = {both, &first_blocks};
    if (pending && !pending->blocks && ends) {
        pending->p = *gemm;
        pending->dtype = dtype;
        pending->blocks = blocks;
        return;
    }
    both[0] = *gemm;
    if (pending && pending->blocks) { /* kernels read a plain product's parameters up to the patches */
        memcpy((char *)both + offsetof(ignis__gemm, patches), &pending->p, offsetof(ignis__gemm, patches));
        blocks += pending->blocks;
        flops += ignis__gemm_flops(&pending->p);
        op->pending = NULL;
    }
    ignis__cost(-1, flops, (int)dtype);
    ignis__op_launch(op, IGNIS__BUILTIN_GEMM_TINY, dtype, define, blocks, 1, 1, 256, 1, 0, params);
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
    bool whole = !ignis__gemm_skips(p, rows, columns), few = p->m < 128 && !p->column_sums,
         shares_a = p->pairs == IGNIS__SHARE_A;
    p->box_a = p->transpose_a      ? 64
               : whole             ? rows
               : few && p->m <= 64 ? (int)p->m
               : few && shares_a   ? (int)ignis__ceil_div(p->m, 16) * 8
               : shares_a          ? 64
               : rows == 192       ? p->m % 192 == 0 || p->m % 192 > 128 ? 192 : 64
                                   : ignis__gemm_box(p->m);
    p->box_b = !p->transpose_b                                              ? 64
               : whole || rows == 192                                       ? columns
               : columns == 64 || p->activation == IGNIS__ACTIVATION_PAIRED ? 64
                                                                            : ignis__gemm_box(p->n);
}

/*  Launches the product itself. ends: as in ignis__gemm_launch_tiny. */
static void ignis__gemm_launch(ignis__op *op, ignis__gemm_kernel *kernel, ignis_dtype dtype, ignis__gemm *gemm,
                               bool ends)
{
    int64_t blocks = ignis__gemm_tiles(gemm, kernel->rows, kernel->columns) * gemm->splits,
            processors = op->work.device->info.multiprocessors;
    ignis__tensor_map a, b, out, other;
    ignis__address another = ignis__gemm_extra_matrix(gemm);
    bool direct = ignis__gemm_finishes_in_registers(gemm, kernel->columns), gated = ignis__gemm_gates(gemm);
    void *mapped[] = {&a, &b, &out, &other, gemm}, *plain[] = {gemm};
    if (kernel->builtin == IGNIS__BUILTIN_GEMM_TINY) {
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
        if (direct && !gemm->patches.apart &&
            !ignis__variant_exists(op->work.device, kernel->builtin, dtype, kernel->define)) {
            direct = false; /* nobody recorded just this one */
            ignis__gemm_hopper_define(kernel->define, sizeof kernel->define, gemm, kernel->columns, direct);
        }
        if (gemm->pairs) {
            blocks = 2 * gemm->splits *
                     (gemm->pairs == IGNIS__SHARE_A ? ignis__gemm_tiles(gemm, kernel->rows, 2 * kernel->columns)
                                                    : ignis__gemm_tiles(gemm, 2 * kernel->rows, kernel->columns));
            processors &= ~(int64_t)1;
        }
        blocks = ignis__clamp(blocks, 1, kernel->blocks * processors);
        ignis__gemm_boxes(gemm, kernel->rows, kernel->columns);
        if (gemm->patches_of == 1)
            ignis__patches_tma_map(op, &a, dtype, gemm, kernel->rows);
        else
            ignis__gemm_tma_map(op, &a, gemm->operands, true, gemm->a, gemm->transpose_a ? gemm->m : gemm->k,
                                gemm->row_a, gemm->transpose_a ? gemm->k : gemm->m, gemm->batch, gemm->batch_a,
                                gemm->box_a);
        if (gemm->patches_of == 1) /* weights: a tap is a matrix */
            ignis__gemm_tma_map(op, &b, dtype, true, gemm->b, gemm->weights, gemm->patches.weight_row,
                                gemm->transpose_b ? gemm->n : gemm->patches.weight_channels,
                                gemm->patches.weight_row / gemm->weights, gemm->weights, gemm->box_b);
        else if (gemm->patches_of == 2)
            ignis__patches_tma_map(op, &b, dtype, gemm, 64);
        else
            ignis__gemm_tma_map(op, &b, gemm->operands, true, gemm->b, gemm->transpose_b ? gemm->k : gemm->n,
                                gemm->row_b, gemm->transpose_b ? gemm->n : gemm->k, gemm->batch, gemm->batch_b,
                                gemm->pairs == IGNIS__SHARE_B ? gemm->box_b / 2 : gemm->box_b);
        other = out = a; /* for maps that are not used */
        if (direct && gemm->patches.apart)
            ignis__patches_out_tma_map(op, &out, dtype, gemm);
        else if (direct)
            ignis__gemm_tma_map(op, &out, dtype, false, gemm->out, ignis__gemm_out_columns(gemm),
                                ignis__gemm_out_columns(gemm), gemm->m, gated && gemm->gradient ? 2 : gemm->batch,
                                gemm->m * gemm->n, 64);
        if (direct && another)
            ignis__gemm_tma_map(op, &other, dtype, false, another, gemm->n, gemm->n, gemm->m,
                                gated && (gemm->gradient || gemm->keeps) ? 2 : gemm->batch, gemm->m * gemm->n, 64);
    }
    ignis__cost(-1, ignis__gemm_flops(gemm), (int)dtype);
    ignis__op_launch(op, kernel->builtin, dtype, kernel->define[0] ? kernel->define : NULL, blocks, 1, 1,
                     kernel->threads, 1, kernel->shared, kernel->stays ? mapped : plain);
}

/*  Plans scratch for an operand, `rows` rows a matrix, in which its rows are full packs of `pack` elements:
    of 16 bytes or fewer. */
IGNIS__PRIVATE void ignis__gemm_plan_copy(ignis__op *op, ignis_dtype dtype, ignis__gemm_copy *copy, ignis__address *at,
                                          int64_t *row, int64_t rows, int64_t count, int64_t *batch, int *packed,
                                          int64_t pack)
{
    int64_t whole = ignis__pack_elements(dtype);
    memset(copy, 0, sizeof *copy);
    if (*packed)
        return;
    copy->from = *at;
    copy->row = *row;
    copy->stride = ignis__ceil_div(*row, pack) * pack;
    copy->rows = *batch ? rows * count : rows;
    copy->to =
        ignis__op_write(op, ignis__op_new_row(op, ignis__ceil_div(copy->rows * copy->stride, whole) * whole, dtype));
    *at = copy->to;
    *row = copy->stride;
    *batch = *batch ? rows * copy->stride : 0;
    *packed = (int)(whole / pack);
}

/*  Makes one or two copies. */
IGNIS__PRIVATE void ignis__gemm_copies(ignis__op *op, ignis_dtype dtype, ignis__gemm_copy *a, ignis__gemm_copy *b)
{
    void *params[] = {a, b};
    int64_t pack = ignis__pack_elements(dtype),
            packs = ignis__ceil_div(a->rows * a->stride, pack) + ignis__ceil_div(b->rows * b->stride, pack);
    ignis__op_launch_row(op, IGNIS__BUILTIN_GEMM_PACK, dtype, ignis__ceil_div(packs, 256), 256, params);
}

/*  Copies operands whose rows are no full packs to scratch where they are. */
static void ignis__gemm_pack(ignis__op *op, ignis_dtype dtype, ignis__gemm *p)
{
    ignis__gemm_copy a, b;
    ignis__gemm_plan_copy(op, dtype, &a, &p->a, &p->row_a, p->transpose_a ? p->k : p->m, p->batch, &p->batch_a,
                          &p->packed_a, ignis__pack_elements(dtype));
    ignis__gemm_plan_copy(op, dtype, &b, &p->b, &p->row_b, p->transpose_b ? p->n : p->k, p->batch, &p->batch_b,
                          &p->packed_b, ignis__pack_elements(dtype));
    ignis__gemm_copies(op, dtype, &a, &b);
}

/*  Transposes an operand, matrices [k, rows], to scratch as [rows, k]. */
static void ignis__gemm_transpose_operand(ignis__op *op, ignis_dtype dtype, ignis__address *at, int64_t k, int64_t rows,
                                          int64_t count, int64_t *batch)
{
    int64_t matrices = *batch ? count : 1, one = 1;
    ignis__address from = *at;
    void *params[] = {at, &from, &matrices, &k, &one, &rows, &one};
    *at = ignis__op_write(op, ignis__op_new_row(op, matrices * k * rows, dtype));
    *batch = *batch ? k * rows : 0;
    ignis__op_launch_row(op, IGNIS__BUILTIN_TRANSPOSE_TILES, dtype,
                         ignis__clamp(matrices * ignis__ceil_div(k, 64) * ignis__ceil_div(rows, 64), 1, INT32_MAX), 256,
                         params);
}

/*  Chooses a kernel for the parameters, and runs it. False: the caller computes row sums. */
IGNIS__PRIVATE bool ignis__gemm_compute(ignis__op *op, ignis_dtype dtype, ignis__gemm *gemm,
                                        const ignis__epilogue *epilogue)
{
    ignis__gemm_kernel kernel = ignis__gemm_choose(op, dtype, gemm, epilogue);
    bool row_sums = epilogue->row_sums && kernel.sums_rows;
    int64_t shares = kernel.stays ? ignis__ceil_div(gemm->n, kernel.columns) : 1; /* of the tiles of a row in its sum */
    ignis__gemm_request(dtype, gemm, epilogue);
    if (kernel.packs)
        ignis__gemm_pack(op, gemm->operands, gemm);
    if (kernel.transposes && gemm->transpose_a)
        ignis__gemm_transpose_operand(op, dtype, &gemm->a, gemm->k, gemm->m, gemm->batch, &gemm->batch_a);
    if (kernel.transposes && !gemm->transpose_b)
        ignis__gemm_transpose_operand(op, dtype, &gemm->b, gemm->k, gemm->n, gemm->batch, &gemm->batch_b);
    if (kernel.transposes)
        *gemm = ignis__gemm_by_wgmma(gemm);
    if (kernel.stays && gemm->patches_of && gemm->k != gemm->wgmma_k) { /* each tap of a patch has full k steps */
        gemm->patches.channels = ignis__divisor_of((int64_t)gemm->patches.channels.size * gemm->wgmma_k / gemm->k);
        gemm->k = gemm->split_k = gemm->wgmma_k;
    }
    if (kernel.splits > 1) {
        int64_t whole = ignis__dtype_is_f8(gemm->operands) ? 128 : 64;
        gemm->split_k = ignis__ceil_div(ignis__ceil_div(gemm->k, kernel.splits), whole) * whole;
        gemm->splits = (int)ignis__ceil_div(gemm->k, gemm->split_k);
    }
    if (gemm->splits > 1)
        gemm->partial = ignis__gemm_scratch(op, gemm->splits * gemm->batch * gemm->m * gemm->n, dtype);
    else if (epilogue->column_sums)
        gemm->column_sums =
            ignis__gemm_sums_scratch(op, epilogue->column_sums, ignis__ceil_div(gemm->m, kernel.summed_rows), dtype);
    if (row_sums)
        gemm->row_sums = ignis__gemm_sums_scratch(op, epilogue->row_sums, gemm->splits * shares, dtype);
    ignis__gemm_launch(op, &kernel, dtype, gemm,
                       gemm->splits == 1 && !epilogue->column_sums && !(row_sums && dtype != ignis__wide_dtype(dtype)));
    if (gemm->splits > 1)
        ignis__gemm_launch_finish(op, IGNIS__BUILTIN_GEMM_FINISH, 16, dtype, gemm, epilogue);
    else if (epilogue->column_sums)
        ignis__gemm_add_sums(op, epilogue->column_sums, gemm->column_sums,
                             ignis__ceil_div(gemm->m, kernel.summed_rows));
    if (row_sums)
        ignis__gemm_add_sums(op, epilogue->row_sums, gemm->row_sums, gemm->splits * shares);
    return row_sums;
}

/*  Runs a product by built-in kernels; out has elements. False: the caller computes its row sums. */
IGNIS__PRIVATE bool ignis__gemm_run(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a,
                                    ignis__array *b, const ignis__epilogue *epilogue)
{
    ignis_dtype dtype = (ignis_dtype)product->dtype;
    ignis__gemm p = ignis__gemm_params(op, product, out, epilogue);
    if (p.k > 0) {
        p.a = ignis__op_read(op, a);
        p.b = ignis__op_read(op, b);
    }
    if (!op->ok)
        return false;
    p.packed_a = p.k == 0 || ignis__gemm_packed(p.operands, p.a, p.row_a, p.batch_a);
    p.packed_b = p.k == 0 || ignis__gemm_packed(p.operands, p.b, p.row_b, p.batch_b);
    return ignis__gemm_compute(op, dtype, &p, epilogue);
}
