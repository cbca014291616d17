/*  >>ops.matmul.matmul - ignis_matmul and ignis_matmul_t: checks, broadcasting of leading dimensions,

    gradients A b of two dimensions serves all leading dimensions of a, folded into m; other operands are
    expanded first.
    Uses: dispatch, product, expand. */

#include "room.h"

/*  Returns the product that computes da. y = a b: da = g b^T; y = a b^T: da = g b. */
IGNIS__PRIVATE ignis__product ignis__matmul_product_a(const ignis__product *p)
{
    ignis__product q = *p;
    q.n = p->k;
    q.k = p->n;
    q.transpose_b = !p->transpose_b;
    q.batch_a = p->m * p->n;
    return q;
}

/*  Returns the product that computes db. y = a b: db [k, n] = a^T g; y = a b^T: db [n, k] = g^T a. */
IGNIS__PRIVATE ignis__product ignis__matmul_product_b(const ignis__product *p)
{
    ignis__product q = *p;
    q.transpose_a = 1;
    q.transpose_b = 0;
    q.m = p->transpose_b ? p->n : p->k;
    q.n = p->transpose_b ? p->k : p->n;
    q.k = p->m;
    q.batch_a = p->transpose_b ? p->m * p->n : p->batch_a;
    q.batch_b = p->transpose_b ? p->batch_a : p->m * p->n;
    return q;
}

static ignis_status ignis__matmul_backward(const ignis_backward_args *args)
{
    const ignis__product *product = (const ignis__product *)args->params;
    ignis__array *gradients[2] = {NULL, NULL};
    ignis__product of_a = ignis__matmul_product_a(product), of_b = ignis__matmul_product_b(product);
    ignis__gemm_pending pending;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, product->transpose_b ? "ignis_matmul_t" : "ignis_matmul", args))
        return ignis__failed();
    ignis__gemm_join(&op, &pending);
    if (args->needed[0]) {
        gradients[0] = ignis__op_new_like(&op, op.in[1]);
        ignis__matmul_run(&op, &of_a, gradients[0], op.in[0], op.in[2], NULL);
    }
    if (args->needed[1]) {
        gradients[1] = ignis__op_new_like(&op, op.in[2]);
        ignis__matmul_run(&op, &of_b, gradients[1], product->transpose_b ? op.in[0] : op.in[1],
                          product->transpose_b ? op.in[1] : op.in[0], NULL);
    }
    ignis__gemm_join_end(&op);
    return ignis__op_finish_backward(&op, args, 2, gradients);
}

/*  Checks the shapes of a product, and describes it. A 2-D b serves all rows of a, whose leading dimensions
    are folded into m. */
IGNIS__PRIVATE bool ignis__matmul_shapes(ignis__op *op, int transpose_b, ignis__product *product, ignis_shape *out)
{
    const ignis_shape *a = &op->in[0]->shape, *b = &op->in[1]->shape;
    int64_t inner_b, leading_a;
    int i;
    if (a->ndim < 2 || b->ndim < 2 || (b->ndim > 2 && b->ndim != a->ndim))
        return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE,
                              "a is %s, b is %s; expected 2 dimensions or more, and leading ones that broadcast",
                              ignis__shape_write(a).text, ignis__shape_write(b).text);
    inner_b = b->dim[b->ndim - (transpose_b ? 1 : 2)];
    if (a->dim[a->ndim - 1] != inner_b)
        return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "inner dimensions differ: a is %s, b is %s%s",
                              ignis__shape_write(a).text, ignis__shape_write(b).text,
                              transpose_b ? ", transposed" : "");
    for (i = 0; b->ndim > 2 && i < b->ndim - 2; i++)
        if (a->dim[i] != b->dim[i])
            return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "leading dimensions differ: a is %s, b is %s",
                                  ignis__shape_write(a).text, ignis__shape_write(b).text);
    leading_a = ignis__shape_product(a, 0, a->ndim - 2);
    *product = ignis__product_of(op->in[0]->dtype, a->dim[a->ndim - 2] * (b->ndim == 2 ? leading_a : 1),
                                 b->dim[b->ndim - (transpose_b ? 2 : 1)], inner_b, transpose_b);
    product->batch = b->ndim == 2 ? 1 : leading_a;
    *out = *a;
    out->dim[a->ndim - 1] = product->n;
    return true;
}

/*  Broadcasts the leading dimensions of a and b. False if they cannot be, need not be, or if the inner
    dimensions do not fit. */
static bool ignis__matmul_broadcast(const ignis_shape *a, const ignis_shape *b, int transpose_b, ignis_shape *broadcast)
{
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim, i, leading;
    bool differ = a->ndim < ndim;
    if (a->ndim < 2 || b->ndim < 2 || a->dim[a->ndim - 1] != b->dim[b->ndim - (transpose_b ? 1 : 2)])
        return false;
    for (leading = ndim - 2, i = 0; i < leading; i++) {
        int in_a = i - ndim + a->ndim, in_b = i - ndim + b->ndim;
        int64_t of_a = in_a < 0 ? 1 : a->dim[in_a], of_b = in_b < 0 ? 1 : b->dim[in_b];
        if (of_a != of_b && of_a != 1 && of_b != 1)
            return false;
        differ = differ || (b->ndim > 2 && (in_b < 0 || of_a != of_b)); /* a b of two dimensions serves all of a */
        broadcast[0].dim[i] = broadcast[1].dim[i] = of_a == 1 ? of_b : of_a;
    }
    broadcast[0].ndim = broadcast[1].ndim = ndim;
    memcpy(broadcast[0].dim + leading, a->dim + a->ndim - 2, 2 * sizeof a->dim[0]);
    memcpy(broadcast[1].dim + leading, b->dim + b->ndim - 2, 2 * sizeof b->dim[0]);
    return differ;
}

static ignis_tensor ignis__matmul_op(const char *call, ignis_tensor a, ignis_tensor b, int transpose_b)
{
    ignis_tensor inputs[] = {a, b};
    ignis__product product;
    ignis__array *out = NULL;
    ignis_shape shape, broadcast[2];
    ignis_tensor result;
    ignis__op op;
    int i;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    if (ignis__matmul_broadcast(&op.in[0]->shape, &op.in[1]->shape, transpose_b,
                                broadcast)) { /* again, with expanded operands */
        ignis__op_leave(&op);
        inputs[0] = ignis_expand(a, broadcast[0]);
        inputs[1] = ignis_expand(b, broadcast[1]);
        result = ignis__matmul_op(call, inputs[0], inputs[1], transpose_b);
        for (i = 0; i < 2; i++)
            if (inputs[i].id)
                (void)ignis_tensor_release(inputs[i]);
        return result;
    }
    if (ignis__op_is_float(&op, 0, "a") && ignis__op_same_dtype(&op, 1, "b") &&
        ignis__matmul_shapes(&op, transpose_b, &product, &shape)) {
        out = ignis__op_new_product(&op, &shape, op.in[0]->dtype);
        ignis__matmul_run(&op, &product, out, op.in[0], op.in[1], NULL);
    }
    ignis__op_save_inputs(&op, 0, 2);
    return ignis__op_end_recorded(&op, out, transpose_b ? "matmul_t" : "matmul", ignis__matmul_backward, &product,
                                  sizeof product);
}

IGNIS_API ignis_tensor ignis_matmul(ignis_tensor a, ignis_tensor b)
{
    return ignis__matmul_op("ignis_matmul", a, b, 0);
}

IGNIS_API ignis_tensor ignis_matmul_t(ignis_tensor a, ignis_tensor b)
{
    return ignis__matmul_op("ignis_matmul_t", a, b, 1);
}
