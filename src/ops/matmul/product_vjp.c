/*  >>ops.matmul.product_vjp - gradients of products by products: matmul, matmul_t, linear

    op(a) op(b) with either operand transposed is an operation of its own here: the gradients of such a product are such
    products. Both are never transposed: no gradient needs that.
    Uses: dispatch, product, matmul, vjp. */

#include "room.h"

/*  Returns the product of a and b, whose leading dimensions are equal, or which have two dimensions. */
static ignis__product ignis__product_of_shapes(const ignis_shape *a, const ignis_shape *b, ignis_dtype dtype,
                                               int transpose_a, int transpose_b)
{
    const int64_t *of_a = a->dim + a->ndim - 2, *of_b = b->dim + b->ndim - 2;
    ignis__product product = ignis__product_of(dtype, of_a[transpose_a ? 1 : 0], of_b[transpose_b ? 0 : 1],
                                               of_a[transpose_a ? 0 : 1], transpose_b);
    product.transpose_a = transpose_a;
    product.batch = ignis__shape_product(a, 0, a->ndim - 2);
    return product;
}

/*  Computes the gradient of one operand. of: 0 for a, 1 for b. g is the gradient of op(a) op(b). */
static ignis__array *ignis__product_gradient(ignis__op *op, const ignis__product *p, int of, ignis__array *g,
                                             ignis__array *a, ignis__array *b)
{
    ignis__array *out = ignis__op_new_like(op, of ? b : a), *left, *right;
    int transpose_left, transpose_right;
    ignis__product product;
    if (of == 0 && !p->transpose_a) /* g op(b)^T */
        left = g, right = b, transpose_left = 0, transpose_right = !p->transpose_b;
    else if (of == 0) /* op(b) g^T */
        left = b, right = g, transpose_left = p->transpose_b, transpose_right = 1;
    else if (!p->transpose_b) /* op(a)^T g */
        left = a, right = g, transpose_left = !p->transpose_a, transpose_right = 0;
    else /* g^T op(a) */
        left = g, right = a, transpose_left = 1, transpose_right = p->transpose_a;
    if (!out)
        return NULL;
    product = ignis__product_of_shapes(&left->shape, &right->shape, g->dtype, transpose_left, transpose_right);
    ignis__matmul_run(op, &product, out, left, right, NULL);
    return out;
}

static ignis_status ignis__product_backward(const ignis_backward_args *args)
{
    const ignis__product *product = (const ignis__product *)args->params;
    ignis__array *gradients[2] = {NULL, NULL}, *g;
    ignis_shape shape;
    ignis__op op;
    int i;
    if (!ignis__op_begin_backward(&op, "ignis_matmul", args))
        return ignis__failed();
    shape = op.in[1]->shape;
    shape.dim[shape.ndim - 2] = product->m;
    shape.dim[shape.ndim - 1] = product->n;
    g = ignis__op_view(&op, op.in[0], &shape, op.in[0]->numel, 0);
    for (i = 0; i < 2; i++)
        if (args->needed[i] && op.ok)
            gradients[i] = ignis__product_gradient(&op, product, i, g, op.in[1], op.in[2]);
    return ignis__op_finish_backward(&op, args, 2, gradients);
}

/*  Returns op(a) op(b). */
static ignis_tensor ignis__product_op(ignis_tensor a, ignis_tensor b, int transpose_a, int transpose_b)
{
    ignis_tensor inputs[2];
    ignis__product product = IGNIS__ZERO;
    ignis__array *out = NULL;
    ignis_shape shape;
    ignis__op op;
    inputs[0] = a;
    inputs[1] = b;
    if (!ignis__op_begin(&op, "ignis_matmul", 2, inputs))
        return ignis__no_tensor();
    product = ignis__product_of_shapes(&op.in[0]->shape, &op.in[1]->shape, op.in[0]->dtype, transpose_a, transpose_b);
    shape = op.in[0]->shape;
    shape.dim[shape.ndim - 2] = product.m;
    shape.dim[shape.ndim - 1] = product.n;
    out = ignis__op_new(&op, &shape, op.in[0]->dtype);
    if (out)
        ignis__matmul_run(&op, &product, out, op.in[0], op.in[1], NULL);
    ignis__op_save_inputs(&op, 0, 2);
    return ignis__op_end_recorded(&op, out, "product", ignis__product_backward, &product, sizeof product);
}

/*  Fills the gradients of op(a) op(b). */
static void ignis__product_vjp(const ignis_vjp_args *args, ignis_tensor g, ignis_tensor a, ignis_tensor b,
                               int transpose_a, int transpose_b)
{
    if (args->needed[0])
        args->grad_inputs[0] =
            transpose_a ? ignis__product_op(b, g, transpose_b, 1) : ignis__product_op(g, b, 0, !transpose_b);
    if (args->needed[1])
        args->grad_inputs[1] =
            transpose_b ? ignis__product_op(g, a, 1, transpose_a) : ignis__product_op(a, g, !transpose_a, 0);
}

IGNIS__PRIVATE void ignis__vjp_of_product(const ignis_vjp_args *args)
{
    const ignis__product *p = (const ignis__product *)args->params;
    ignis__product_vjp(args, args->grad_output, ignis__vjp_input(args, 0, 0), ignis__vjp_input(args, 1, 1),
                       p->transpose_a, p->transpose_b);
}

/*  As a product of matrices, or of batches of them: a b of two dimensions serves all leading dimensions of a. */
IGNIS__PRIVATE void ignis__vjp_of_matmul(const ignis_vjp_args *args)
{
    const ignis__product *p = (const ignis__product *)args->params;
    const ignis_shape shape = IGNIS_SHAPE(p->batch, p->m, p->n);
    ignis_tensor a = ignis_reshape(ignis__vjp_input(args, 0, 0), IGNIS_SHAPE(p->batch, p->m, p->k)),
                 b = ignis_reshape(ignis__vjp_input(args, 1, 1), p->transpose_b ? IGNIS_SHAPE(p->batch, p->n, p->k)
                                                                                : IGNIS_SHAPE(p->batch, p->k, p->n));
    ignis__product_vjp(args, ignis_reshape(args->grad_output, shape), a, b, 0, p->transpose_b);
}

IGNIS__PRIVATE void ignis__vjp_of_linear(const ignis_vjp_args *args)
{
    const ignis__product *p = (const ignis__product *)args->params;
    const ignis_tensor g = ignis_reshape(args->grad_output, IGNIS_SHAPE(p->m, p->n));
    ignis__product_vjp(args, g, ignis_reshape(ignis__vjp_input(args, 0, 0), IGNIS_SHAPE(p->m, p->k)),
                       ignis__vjp_input(args, 1, 1), 0, 1);
    if (args->input_count > 2 && args->needed[2])
        args->grad_inputs[2] = ignis_sum_dim(g, 0);
}
