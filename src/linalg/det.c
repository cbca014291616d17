/*  >>linalg.det - ignis_det and ignis_logdet

    The product of the pivots of LU factors, or the sum of their logarithms.
    Uses: matrix, lu, solve, gradient; kernels/linalg.cu. */

#include "room.h"

/*  Returns [..., 1, 1] of numbers [...] of matrices like `like`. */
static ignis_tensor ignis__tensor_scalars(ignis_tensor numbers, ignis_tensor like)
{
    ignis_shape shape = ignis_tensor_shape(like);
    return shape.ndim < 2 ? ignis__no_tensor() : ignis_reshape(numbers, ignis__linalg_shape(&shape, 1, 1));
}

/*  Returns a^-T times numbers [...] of the matrices; of singular ones infinities and NaN. */
static ignis_tensor ignis__det_scaled_inverse(ignis_tensor a, ignis_tensor numbers)
{
    ignis_tensor info, inverse = ignis_inverse(a, &info);
    return ignis__tensor_formula("a*b", ignis__tensor_transposed(inverse), ignis__tensor_scalars(numbers, a));
}

/*  The gradient of det(a) is det(a) a^-T, that of log |det(a)| is a^-T (Giles 2008, 2.2.4). */
static void ignis__det_gradient(ignis__gradient_args *args)
{
    args->result[0] =
        ignis__det_scaled_inverse(args->saved[0], ignis__tensor_formula("a*b", args->gradient, args->saved[1]));
}

static const ignis__composed_gradient ignis__det_rule = {
    "ignis_det", ignis__det_gradient, {0, IGNIS__SAVED_OUTPUT}, NULL};

static void ignis__logdet_gradient(ignis__gradient_args *args)
{
    args->result[0] = ignis__det_scaled_inverse(args->saved[0], args->gradient);
}

static const ignis__composed_gradient ignis__logdet_rule = {"ignis_logdet", ignis__logdet_gradient, {0}, NULL};

/*  Computes the determinants of the input; with sign the logarithms of their absolute values. */
static ignis__array *ignis__op_det(ignis__op *op, ignis__array **sign)
{
    ignis__array *a = op->in[0], *factors, *out;
    ignis_shape leading = ignis__linalg_leading(&a->shape);
    ignis__lu lu;
    ignis__address to, to_sign = 0;
    int n;
    void *params[] = {&to, &to_sign, &lu.matrix, &lu.pivots, &n, &lu.matrix.count};
    if (!ignis__linalg_check(op, 0, "a", true))
        return NULL;
    out = ignis__op_new(op, &leading, a->dtype);
    if (sign)
        *sign = ignis__op_new(op, &leading, a->dtype);
    factors = ignis__op_new_like(op, a);
    ignis__op_copy(op, factors, a);
    lu = ignis__lu_begin(op, factors, ignis__lu_pivots(op, &a->shape), ignis__linalg_info(op, &a->shape));
    ignis__matrix_lu(op, &lu);
    to = ignis__op_write(op, out);
    if (sign)
        to_sign = ignis__op_write(op, *sign);
    n = (int)lu.matrix.rows;
    lu.matrix.count = out ? out->numel : 0; /* also of matrices without elements */
    ignis__op_launch_row(op, IGNIS__BUILTIN(LINALG_DET), a->dtype,
                         ignis__clamp(ignis__ceil_div(lu.matrix.count, IGNIS__LINALG_THREADS / 32), 0, 65535),
                         IGNIS__LINALG_THREADS, params);
    return out;
}

IGNIS_API ignis_tensor ignis_det(ignis_tensor a)
{
    ignis__op op;
    ignis__array *out;
    ignis_rule rule;
    if (!ignis__op_begin(&op, "ignis_det", 1, &a))
        return ignis__no_tensor();
    out = ignis__op_det(&op, NULL);
    ignis__op_save(&op, op.in[0]);
    ignis__op_save(&op, out);
    rule = ignis__composed_rule(&op, "det", &ignis__det_rule, NULL, 0);
    return ignis__op_end(&op, out, &rule);
}

IGNIS_API ignis_tensor ignis_logdet(ignis_tensor a, ignis_tensor *sign)
{
    ignis__op op;
    ignis__array *out, *signs = NULL;
    ignis_tensor result;
    ignis_rule rule;
    if (sign)
        *sign = ignis__no_tensor();
    if (!ignis__op_begin(&op, "ignis_logdet", 1, &a))
        return ignis__no_tensor();
    out = ignis__op_det(&op, &signs);
    ignis__op_save(&op, op.in[0]);
    if (sign)
        *sign = ignis__op_result(&op, signs, 0, NULL, NULL, NULL);
    rule = ignis__composed_rule(&op, "logdet", &ignis__logdet_rule, NULL, 0);
    result = ignis__op_result(&op, out, op.count, op.tensors, op.tape_state, op.records ? &rule : NULL);
    ignis__op_leave_two(&op, sign);
    return result;
}
