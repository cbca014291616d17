/*  >>ops.transpose - ignis_transpose: exchanges two dimensions

    Tiles through shared memory; a view if the order of elements stays.
    Uses: operation; kernels/shape.cu. */

#include "room.h"

IGNIS__PRIVATE ignis__array *ignis__op_exchange(ignis__op *op, ignis__array *from, const ignis_shape *shape,
                                                const ignis__exchange *given)
{
    ignis__exchange exchange = *given;
    ignis__array *out = ignis__op_new(op, shape, from->dtype);
    ignis__address source, target;
    bool tiles = exchange.c == 1 && exchange.m >= 16 && exchange.n >= 16;
    int64_t edge = ignis__dtypes[from->dtype].size <= 4 ? 64 : 32, pack = ignis__pack_elements(from->dtype), blocks;
    void *params[] = {&target, &source, &exchange.a, &exchange.m, &exchange.b, &exchange.n, &exchange.c};
    ignis__record_builtin_for_all(IGNIS__BUILTIN(TRANSPOSE_RUNS), from->dtype);
    if (out && (exchange.m == 1 || exchange.n == 1) &&
        (exchange.b == 1 || exchange.m == exchange.n)) { /* the order stays */
        ignis__op_copy(op, out, from);
        return out;
    }
    source = ignis__op_read(op, from);
    target = ignis__op_write(op, out);
    blocks = tiles ? exchange.a * exchange.b * ignis__ceil_div(exchange.m, edge) * ignis__ceil_div(exchange.n, edge)
                   : ignis__ceil_div(from->numel, 1024 * (exchange.c % pack == 0 ? pack : 1));
    if (from->numel > 0)
        ignis__op_launch_row(op, tiles ? IGNIS__BUILTIN(TRANSPOSE_TILES) : IGNIS__BUILTIN(TRANSPOSE_RUNS), from->dtype,
                             ignis__clamp(blocks, 1, INT32_MAX), 256, params);
    return out;
}

typedef struct ignis__transpose_params {
    ignis__exchange back;
    ignis_shape shape; /* of the input */
} ignis__transpose_params;

static ignis_status ignis__transpose_backward(const ignis_backward_args *args)
{
    const ignis__transpose_params *p = (const ignis__transpose_params *)args->params;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_transpose", args))
        return ignis__failed();
    return ignis__op_finish_backward_one(&op, args, ignis__op_exchange(&op, op.in[0], &p->shape, &p->back));
}

IGNIS__PRIVATE void ignis__vjp_of_transpose(const ignis_vjp_args *args)
{
    static const int dims[] = {0, 3, 2, 1, 4};
    const ignis__exchange *back = &((const ignis__transpose_params *)args->params)->back;
    args->grad_inputs[0] = ignis_permute(
        ignis_reshape(args->grad_output, IGNIS_SHAPE(back->a, back->m, back->b, back->n, back->c)), dims, 5);
}

IGNIS_API ignis_tensor ignis_transpose(ignis_tensor tensor, int dim0, int dim1)
{
    ignis__transpose_params transpose = IGNIS__ZERO;
    ignis__exchange exchange;
    ignis__op op;
    ignis__array *out = NULL;
    ignis_shape shape;
    int low, high;
    if (!ignis__op_begin(&op, "ignis_transpose", 1, &tensor))
        return ignis__no_tensor();
    if (ignis__op_dim(&op, &dim0, "dim0") && ignis__op_dim(&op, &dim1, "dim1")) {
        low = dim0 < dim1 ? dim0 : dim1;
        high = dim0 < dim1 ? dim1 : dim0;
        transpose.shape = shape = op.in[0]->shape;
        shape.dim[low] = transpose.shape.dim[high];
        shape.dim[high] = transpose.shape.dim[low];
        exchange.a = ignis__shape_product(&transpose.shape, 0, low);
        exchange.m = transpose.shape.dim[low];
        exchange.b = low < high ? ignis__shape_product(&transpose.shape, low + 1, high) : 1;
        exchange.n = low < high ? transpose.shape.dim[high] : 1;
        exchange.c = ignis__shape_product(&transpose.shape, high + 1, transpose.shape.ndim);
        transpose.back = exchange;
        transpose.back.m = exchange.n;
        transpose.back.n = exchange.m;
        out = ignis__op_exchange(&op, op.in[0], &shape, &exchange);
    }
    return ignis__op_end_recorded(&op, out, "transpose", ignis__transpose_backward, &transpose, sizeof transpose);
}
