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

/*  Of values with gradient g: V diag(g) V^T (Giles 2008, 3.1). */
static void ignis__eigh_gradient_values(const ignis_backward_args *args, ignis_tensor gradient,
                                        const ignis_tensor *saved, ignis_tensor *gradients)
{
    ignis_tensor v = saved[1], scaled = ignis__tensor_formula("a*b", v, ignis__tensor_as_row(gradient, v, false));
    (void)args;
    scaled = ignis_matmul_t(scaled, v);
    gradients[0] = ignis__tensor_formula("(a + b)/2", scaled, ignis__tensor_transposed(scaled));
}

/*  Of vectors with gradient g: V (V^T g / (l_j - l_i)) V^T, without the diagonal. */
static void ignis__eigh_gradient_vectors(const ignis_backward_args *args, ignis_tensor gradient,
                                         const ignis_tensor *saved, ignis_tensor *gradients)
{
    ignis_tensor v = saved[1], gaps, inner;
    (void)args;
    gaps = ignis__tensor_formula("b - a", ignis__tensor_as_row(saved[0], v, true),
                                 ignis__tensor_as_row(saved[0], v, false));
    inner = ignis__tensor_formula("a/b", ignis_matmul(ignis__tensor_transposed(v), gradient), gaps);
    inner = ignis__tensor_formula("a + b", ignis_tril(inner, -1), ignis_triu(inner, 1));
    gradients[0] = ignis__eigh_back(v, inner);
}

static ignis_status ignis__eigh_backward_values(const ignis_backward_args *args)
{
    return ignis__linalg_backward("ignis_eigh", args, ignis__eigh_gradient_values);
}

static ignis_status ignis__eigh_backward_vectors(const ignis_backward_args *args)
{
    return ignis__linalg_backward("ignis_eigh", args, ignis__eigh_gradient_vectors);
}

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
    rule = ignis__op_rule(&op, "eigh", ignis__eigh_backward_values, NULL, 0);
    result = ignis__op_result(&op, values, op.count, op.tensors, op.tape_state, op.records ? &rule : NULL);
    rule.backward_fn = ignis__eigh_backward_vectors;
    if (vectors)
        *vectors = ignis__op_result(&op, v, op.count, op.tensors, op.tape_state, op.records ? &rule : NULL);
    if (ignis__op_leave(&op) == IGNIS_OK)
        return result;
    if (result.id)
        (void)ignis_tensor_release(result);
    return ignis__no_tensor();
}
