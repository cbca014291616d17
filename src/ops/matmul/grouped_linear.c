/*  >>ops.matmul.grouped_linear - ignis_grouped_linear: rows sorted by group, each times the matrix of its group

    Its gradients are two other products of groups, and the gradients of these are such products again: one table has
    all three. The kernels read offsets on the device, so nothing waits for the host, and a graph may be launched again
    with other offsets.
    Uses: gemm_params, product, vjp; kernels/gemm_grouped.cu, kernels/gemm_grouped_mma.cu. */

#include "room.h"

/*  Products of groups: rows of a times b [groups, n, k] transposed; rows of a times b [groups, k, n]; and of each group
    the rows of a, transposed, times those of b. */
typedef enum ignis__grouped_kind {
    IGNIS__GROUPED_TRANSPOSED,
    IGNIS__GROUPED_PLAIN,
    IGNIS__GROUPED_OUTER
} ignis__grouped_kind;

/*  Operands of a gradient: that of the result, and the operands of the product. */
enum { IGNIS__GROUPED_GRAD, IGNIS__GROUPED_A, IGNIS__GROUPED_B };

/*  The gradient of an operand. */
static const struct {
    ignis__grouped_kind kind;
    int left, right;
} ignis__grouped_gradients[3][2] = {
    {{IGNIS__GROUPED_PLAIN, IGNIS__GROUPED_GRAD, IGNIS__GROUPED_B},
     {IGNIS__GROUPED_OUTER, IGNIS__GROUPED_GRAD, IGNIS__GROUPED_A}},
    {{IGNIS__GROUPED_TRANSPOSED, IGNIS__GROUPED_GRAD, IGNIS__GROUPED_B},
     {IGNIS__GROUPED_OUTER, IGNIS__GROUPED_A, IGNIS__GROUPED_GRAD}},
    {{IGNIS__GROUPED_TRANSPOSED, IGNIS__GROUPED_B, IGNIS__GROUPED_GRAD},
     {IGNIS__GROUPED_PLAIN, IGNIS__GROUPED_A, IGNIS__GROUPED_GRAD}},
};

/*  Returns the product; of IGNIS__GROUPED_OUTER its batches are the groups. */
static ignis__product ignis__grouped_product(ignis__grouped_kind kind, const ignis__array *a, const ignis__array *b,
                                             int64_t groups)
{
    const int64_t *of_a = a->shape.dim, *of_b = b->shape.dim;
    ignis__product product;
    if (kind == IGNIS__GROUPED_OUTER) {
        product = ignis__product_of(a->dtype, of_a[1], of_b[1], of_a[0], 0);
        product.transpose_a = 1;
        product.batch = groups;
        product.batch_a = product.batch_b = 0;
        return product;
    }
    return kind == IGNIS__GROUPED_PLAIN ? ignis__product_of(a->dtype, of_a[0], of_b[2], of_b[1], 0)
                                        : ignis__product_of(a->dtype, of_a[0], of_b[1], of_b[2], 1);
}

static ignis_shape ignis__grouped_shape(const ignis__product *product)
{
    const ignis_shape rows = IGNIS_SHAPE(product->m, product->n),
                      groups = IGNIS_SHAPE(product->batch, product->m, product->n);
    return product->transpose_a ? groups : rows;
}

/*  Launches the kernel. Tiles of 128 x 128 are for groups that fill them on average. */
static void ignis__grouped_launch(ignis__op *op, const ignis__gemm *gemm, ignis__gemm_groups *groups)
{
    const ignis__gemm_params *p = &gemm->params;
    const bool allows = ignis__gemm_allows_tensor_cores(gemm->dtype),
               mma = allows && ignis__capability(&op->work.device->info) >= 80, outer = p->transpose_a != 0;
    const int64_t height = outer ? p->m : p->m / ignis__clamp(groups->count, 1, INT64_MAX);
    const bool large = height >= 128 && p->n >= 128;
    const int64_t side = large ? 128 : 64,
                  blocks = outer ? ignis__gemm_tiles(gemm, (int)side, (int)side)
                                 : (p->m / side + groups->count + 2) * ignis__ceil_div(p->n, side);
    ignis__builtin builtin = large ? IGNIS__BUILTIN(GEMM_GROUPED) : IGNIS__BUILTIN(GEMM_GROUPED_SMALL);
    static const char plain[] = "-DIGNIS_PATCHES=0";
    char define[IGNIS__DEFINES];
    void *params[] = {(void *)(uintptr_t)p, groups};
    ignis__gemm_mma_define(define, sizeof define, gemm);
    if (ignis__requests.path[0]) {
        ignis__record_builtin(IGNIS__BUILTIN(GEMM_GROUPED), gemm->dtype, plain, 0, allows ? 79 : IGNIS__EVERY_ARCH);
        if (allows)
            ignis__record_builtin(IGNIS__BUILTIN(GEMM_GROUPED_MMA), gemm->dtype, define, 80, IGNIS__EVERY_ARCH);
    }
    if (mma)
        builtin = large ? IGNIS__BUILTIN(GEMM_GROUPED_MMA) : IGNIS__BUILTIN(GEMM_GROUPED_MMA_SMALL);
    ignis__cost(-1, 2.0 * (double)p->m * (double)p->n * (double)p->k, (int)gemm->dtype);
    ignis__op_launch(op, builtin, gemm->dtype, mma ? define : plain,
                     ignis__launch_row(blocks, mma && !large ? 128 : 256, mma ? (size_t)(4 * 64 * 2 * side) : 0),
                     params);
}

/*  Computes a product of groups of rows of a, product->m in number, into `out`; of IGNIS__GROUPED_OUTER into the
    groups' matrices. */
IGNIS__PRIVATE void ignis__groups_multiply(ignis__op *op, const ignis__product *product, ignis__array *out,
                                           ignis__array *a, ignis__array *b, ignis__gemm_groups *groups)
{
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__gemm gemm = ignis__gemm_describe(op, product, out, &epilogue);
    gemm.params.a = ignis__op_read(op, a);
    gemm.params.b = ignis__op_read(op, b);
    gemm.params.packed_a = ignis__gemm_packed(gemm.dtype, gemm.params.a, gemm.params.row_a, 0);
    gemm.params.packed_b = ignis__gemm_packed(gemm.dtype, gemm.params.b, gemm.params.row_b, 0);
    if (op->ok)
        ignis__grouped_launch(op, &gemm, groups);
}

/*  Computes a product of groups, which is the operation's result or a gradient. NULL after a failure. */
static ignis__array *ignis__grouped_multiply(ignis__op *op, ignis__grouped_kind kind, ignis__array *a, ignis__array *b,
                                             ignis__array *offsets, bool is_result)
{
    const ignis__product product = ignis__grouped_product(kind, a, b, offsets->numel - 1);
    const ignis_shape shape = ignis__grouped_shape(&product);
    ignis__array *out = is_result ? ignis__op_new_product(op, &shape, a->dtype) : ignis__op_new(op, &shape, a->dtype);
    ignis__gemm_groups groups = IGNIS__ZERO;
    if (!out || op->replays || out->numel == 0)
        return out;
    if (product.k == 0) {
        ignis__op_zero(op, out);
        return out;
    }
    groups.offsets = ignis__op_read(op, offsets);
    groups.count = offsets->numel - 1;
    groups.rows = a->shape.dim[0];
    groups.offset_bytes = (int)ignis__dtypes[offsets->dtype].size;
    ignis__groups_multiply(op, &product, out, a, b, &groups);
    return out;
}

static ignis_status ignis__grouped_backward(const ignis_backward_args *args)
{
    const ignis__grouped_kind kind = *(const ignis__grouped_kind *)args->params;
    ignis__array *gradients[2] = {NULL, NULL}, *operands[3];
    ignis__product product;
    ignis_shape shape;
    ignis__op op;
    int i;
    if (!ignis__op_begin_backward(&op, "ignis_grouped_linear", args))
        return ignis__failed();
    product = ignis__grouped_product(kind, op.in[1], op.in[2], op.in[3]->numel - 1);
    shape = ignis__grouped_shape(&product);
    operands[IGNIS__GROUPED_GRAD] = ignis__op_view(&op, op.in[0], &shape, op.in[0]->numel, 0);
    operands[IGNIS__GROUPED_A] = op.in[1];
    operands[IGNIS__GROUPED_B] = op.in[2];
    for (i = 0; i < 2; i++)
        if (args->needed[i] && op.ok)
            gradients[i] = ignis__grouped_multiply(&op, ignis__grouped_gradients[kind][i].kind,
                                                   operands[ignis__grouped_gradients[kind][i].left],
                                                   operands[ignis__grouped_gradients[kind][i].right], op.in[3], false);
    return ignis__op_finish_backward(&op, args, 2, gradients);
}

/*  Checks the inputs of ignis_grouped_linear. */
static bool ignis__grouped_check(ignis__op *op)
{
    const ignis_shape *x = &op->in[0]->shape, *w = &op->in[1]->shape, *offsets = &op->in[2]->shape;
    if (!ignis__op_is_float(op, 0, "x") || !ignis__op_same_dtype(op, 1, "w") || !ignis__op_is_index(op, 2, "offsets"))
        return false;
    if (x->ndim != 2 || w->ndim != 3 || x->dim[1] != w->dim[2])
        return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE,
                              "x is %s, w %s; expected x [rows, in] and w [groups, out, in]",
                              ignis__shape_write(x).text, ignis__shape_write(w).text);
    if (offsets->ndim != 1 || offsets->dim[0] != w->dim[0] + 1)
        return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "offsets is %s; w %s needs [%lld]",
                              ignis__shape_write(offsets).text, ignis__shape_write(w).text, (long long)(w->dim[0] + 1));
    return true;
}

/*  Makes the tensor of a product of groups. checks: the inputs are a caller's. */
static ignis_tensor ignis__grouped_op(ignis__grouped_kind kind, ignis_tensor a, ignis_tensor b, ignis_tensor offsets,
                                      bool checks)
{
    ignis_tensor inputs[3];
    ignis__array *out = NULL;
    ignis__op op;
    inputs[0] = a;
    inputs[1] = b;
    inputs[2] = offsets;
    if (!ignis__op_begin(&op, "ignis_grouped_linear", 3, inputs))
        return ignis__no_tensor();
    if (!checks || ignis__grouped_check(&op))
        out = ignis__grouped_multiply(&op, kind, op.in[0], op.in[1], op.in[2], true);
    ignis__op_save_inputs(&op, 0, 3);
    return ignis__op_end_recorded(&op, out, "grouped_linear", ignis__grouped_backward, &kind, sizeof kind);
}

IGNIS_API ignis_tensor ignis_grouped_linear(ignis_tensor x, ignis_tensor w, ignis_tensor offsets)
{
    return ignis__grouped_op(IGNIS__GROUPED_TRANSPOSED, x, w, offsets, true);
}

IGNIS__PRIVATE void ignis__vjp_of_grouped_linear(const ignis_vjp_args *args)
{
    const ignis__grouped_kind kind = *(const ignis__grouped_kind *)args->params;
    const ignis_tensor offsets = ignis__vjp_constant(args, 2);
    ignis_tensor operands[3];
    int i;
    operands[IGNIS__GROUPED_GRAD] = args->grad_output;
    operands[IGNIS__GROUPED_A] = ignis__vjp_input(args, 0, 0);
    operands[IGNIS__GROUPED_B] = ignis__vjp_input(args, 1, 1);
    for (i = 0; i < 2; i++)
        if (args->needed[i])
            args->grad_inputs[i] = ignis__grouped_op(ignis__grouped_gradients[kind][i].kind,
                                                     operands[ignis__grouped_gradients[kind][i].left],
                                                     operands[ignis__grouped_gradients[kind][i].right], offsets, false);
}
