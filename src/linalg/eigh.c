/*  >>linalg.eigh - ignis_eigh: eigenvalues and eigenvectors of symmetric matrices

    The lower triangle is copied to both, and rotated to a diagonal. Gradients are those of Giles 2008.
    Uses: matrix, jacobi, gradient. */

#include "room.h"

/*  Returns the symmetric part of v x v^T. */
static ignis_tensor ignis__eigh_back(ignis_tensor v, ignis_tensor x)
{
    ignis_tensor product = ignis_matmul_t(ignis_matmul(v, x), v);
    return ignis__tensor_formula("(a + b)/2", product, ignis__tensor_transposed(product));
}

/*  Returns numbers [..., n] of matrices as rows [..., 1, n]; columns: [..., n, 1]. */
IGNIS__PRIVATE ignis_tensor ignis__tensor_as_row(ignis_tensor numbers, ignis_tensor like, bool columns)
{
    ignis_shape shape = ignis_tensor_shape(like), values = ignis_tensor_shape(numbers);
    int64_t n = values.ndim ? values.dim[values.ndim - 1] : 0;
    if (shape.ndim < 2)
        return ignis__no_tensor();
    return ignis_reshape(numbers, ignis__linalg_shape(&shape, columns ? n : 1, columns ? 1 : n));
}

/*  Returns a formula of values a of rows and b of columns, with 1 added on the diagonal, where the formula is 0: what
    gradients are divided by is never 0 there. */
IGNIS__PRIVATE ignis_tensor ignis__tensor_gaps(const char *formula, ignis_tensor values, ignis_tensor like)
{
    ignis_tensor_desc desc = IGNIS__ZERO;
    ignis_tensor_info info;
    ignis_shape shape;
    if (!values.id || ignis_tensor_query(values, &info) != IGNIS_OK)
        return ignis__no_tensor();
    desc.dtype = info.dtype;
    desc.device = info.device ? info.device : IGNIS_DEVICE_0;
    shape = info.shape;
    return ignis__tensor_formula("a + b",
                                 ignis__tensor_formula(formula, ignis__tensor_as_row(values, like, true),
                                                       ignis__tensor_as_row(values, like, false)),
                                 ignis_tensor_eye(shape.dim[shape.ndim - 1], shape.dim[shape.ndim - 1], &desc));
}

/*  Of values with gradient g: V diag(g) V^T (Giles 2008, 3.1). */
static void ignis__eigh_gradient_values(ignis__gradient_args *args)
{
    ignis_tensor v = args->saved[1],
                 scaled = ignis__tensor_formula("a*b", v, ignis__tensor_as_row(args->gradient, v, false));
    scaled = ignis_matmul_t(scaled, v);
    args->result[0] = ignis__tensor_formula("(a + b)/2", scaled, ignis__tensor_transposed(scaled));
}

/*  Of vectors with gradient g: V (V^T g / (l_j - l_i)) V^T, without the diagonal. */
static void ignis__eigh_gradient_vectors(ignis__gradient_args *args)
{
    ignis_tensor v = args->saved[1], gaps, inner;
    gaps = ignis__tensor_gaps("b - a", args->saved[0], v);
    inner = ignis__tensor_formula("a/b", ignis_matmul(ignis__tensor_transposed(v), args->gradient), gaps);
    inner = ignis__tensor_formula("a + b", ignis_tril(inner, -1), ignis_triu(inner, 1));
    args->result[0] = ignis__eigh_back(v, inner);
}

/*  Computes values and vectors again, recorded. */
static void ignis__eigh_again(ignis_tensor input, ignis_tensor *saved) { saved[0] = ignis_eigh(input, &saved[1]); }

static const ignis__composed_gradient ignis__eigh_rule_values = {
    "ignis_eigh", ignis__eigh_gradient_values, {IGNIS__SAVED_AGAIN, IGNIS__SAVED_AGAIN, 0}, ignis__eigh_again};

static const ignis__composed_gradient ignis__eigh_rule_vectors = {
    "ignis_eigh", ignis__eigh_gradient_vectors, {IGNIS__SAVED_AGAIN, IGNIS__SAVED_AGAIN, 0}, ignis__eigh_again};

IGNIS_API ignis_tensor ignis_eigh(ignis_tensor a, ignis_tensor *vectors)
{
    ignis__array *values = NULL, *v = NULL;
    ignis_tensor result;
    ignis_rule rule;
    ignis__op op;
    if (vectors)
        *vectors = ignis__no_tensor();
    if (!ignis__op_begin(&op, "ignis_eigh", 1, &a))
        return ignis__no_tensor();
    if (ignis__linalg_check(&op, 0, "a", true)) {
        ignis_shape shape = op.in[0]->shape;
        ignis__matrix from = ignis__matrix_read(&op, op.in[0]);
        shape.ndim--;
        values = ignis__op_new(&op, &shape, op.in[0]->dtype);
        v = ignis__op_new_like(&op, op.in[0]);
        if (op.ok && op.in[0]->numel) {
            ignis__jacobi run = ignis__jacobi_begin(&op, from, true);
            ignis__jacobi_eigh(&op, &run);
            ignis__jacobi_values(&op, &run, values, 0);
            ignis__jacobi_rows(&op, &run, ignis__matrix_transpose(ignis__matrix_write(&op, v)),
                               ignis__matrix_transpose(run.j), run.n);
        }
    }
    ignis__op_save(&op, values);
    ignis__op_save(&op, v);
    ignis__op_save(&op, op.in[0]);
    rule = ignis__composed_rule(&op, "eigh", &ignis__eigh_rule_values, NULL, 0);
    result = ignis__op_result(&op, values, op.count, op.tensors, op.tape_state, op.records ? &rule : NULL);
    rule = ignis__composed_rule(&op, "eigh", &ignis__eigh_rule_vectors, NULL, 0);
    if (vectors)
        *vectors = ignis__op_result(&op, v, op.count, op.tensors, op.tape_state, op.records ? &rule : NULL);
    if (ignis__op_leave(&op) == IGNIS_OK)
        return result;
    if (result.id)
        (void)ignis_tensor_release(result);
    return ignis__no_tensor();
}
