/*  >>ops.index - ignis_scatter and ignis_index_put: elements and slices put in place of others by index

    Of elements for one place the last one is written: each claims its place by the largest number, which a second
    kernel reads. So equal inputs give equal bits. Uses: operation, index; kernels/gather.cu. */

#include "room.h"

/*  The parameters of the backward function. indexing.shape is that of values. */
typedef struct ignis__scatter {
    ignis__indexing indexing;
    bool adds;
} ignis__scatter;

/*  Returns the claims of `places` places by elements that are indexed; 0 after a failure. */
static ignis__address ignis__op_claim(ignis__op *op, ignis__array *ids, const ignis__indexing *indexing, int64_t places)
{
    ignis__array *claims;
    ignis__address indices = ignis__op_read(op, ids), target;
    ignis__strided strided;
    int64_t size = indexing->size, dim_stride = indexing->dim_stride;
    int id_bytes = (int)ignis__dtypes[ids->dtype].size;
    void *params[] = {&target, &indices, &id_bytes, &strided, &size, &dim_stride};
    if (!op->ok || !ignis__strides_merge(&indexing->strides, &strided, false))
        return 0;
    ignis__strided_finish(&strided);
    if (strided.count > INT32_MAX) {
        ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "%lld elements are put in place; 2^31 are too many",
                       (long long)strided.count);
        return 0;
    }
    claims = ignis__op_new_row(op, places, IGNIS_I32);
    if (!claims)
        return 0;
    ignis__op_zero(op, claims);
    target = ignis__op_write(op, claims);
    ignis__op_launch_row(op, IGNIS__BUILTIN(SCATTER_CLAIM), op->in[0]->dtype, ignis__ceil_div(strided.count, 256), 256,
                         params);
    return target;
}

/*  Runs ignis_scatter_last, with `from` NULL where it reads nothing. */
static void ignis__op_scatter_last(ignis__op *op, ignis__array *to, ignis__array *from, ignis__address claims,
                                   ignis__array *ids, const ignis__indexing *indexing, int what)
{
    ignis__address source = from ? ignis__op_read(op, from) : 0, indices = ignis__op_read(op, ids),
                   target = ignis__op_write(op, to);
    ignis__strided strided;
    int64_t size = indexing->size, dim_stride = indexing->dim_stride;
    int id_bytes = (int)ignis__dtypes[ids->dtype].size;
    void *params[] = {&target, &source, &claims, &indices, &id_bytes, &strided, &size, &dim_stride, &what};
    if (!op->ok || !ignis__strides_merge(&indexing->strides, &strided, false))
        return;
    ignis__strided_finish(&strided);
    ignis__op_launch_row(op, IGNIS__BUILTIN(SCATTER_LAST), to->dtype, ignis__ceil_div(strided.count, 256), 256, params);
}

/*  The gradient of the tensor is the incoming one, with zeros where elements were put; that of values is taken where
    they were put. */
static ignis_status ignis__scatter_backward(const ignis_backward_args *args)
{
    const ignis__scatter *scatter = (const ignis__scatter *)args->params;
    const ignis__indexing *x = &scatter->indexing;
    int values = args->input_count - 1;
    ignis__array *gradients[IGNIS_MAX_DIMS + 2] = {NULL};
    ignis__address claims = 0;
    ignis__op op;
    if (args->needed[0] && scatter->adds)
        args->grad_inputs[0] = args->grad_output;
    if (scatter->adds && !args->needed[values])
        return IGNIS_OK;
    if (!ignis__op_begin_backward(&op, x->call, args))
        return ignis__failed();
    if (!scatter->adds)
        claims = ignis__op_claim(&op, op.in[1], x, op.in[0]->numel);
    if (args->needed[0] && !scatter->adds && (gradients[0] = ignis__op_new_like(&op, op.in[0])) != NULL) {
        ignis__op_copy(&op, gradients[0], op.in[0]);
        ignis__op_scatter_last(&op, gradients[0], NULL, claims, op.in[1], x, IGNIS__SCATTER_CLEAR);
    }
    if (args->needed[values] && (gradients[values] = ignis__op_new(&op, &x->shape, op.in[0]->dtype)) != NULL) {
        if (scatter->adds)
            ignis__op_indexed(&op, IGNIS__BUILTIN(GATHER), gradients[values], op.in[0], op.in[1], x, 0);
        else
            ignis__op_scatter_last(&op, gradients[values], op.in[0], claims, op.in[1], x, IGNIS__SCATTER_TAKE);
    }
    return ignis__op_finish_backward(&op, args, values + 1, gradients);
}

/*  Puts the last input, or adds it, at ids in a copy of the first one, and ends the operation. */
static ignis_tensor ignis__scatter_end(ignis__op *op, const char *name, ignis__array *ids, ignis__scatter *scatter)
{
    ignis__array *out = op->ok ? ignis__op_new_like(op, op->in[0]) : NULL, *values = op->in[op->count - 1];
    if (out) {
        ignis__op_copy(op, out, op->in[0]);
        if (scatter->adds) {
            ignis__op_scatter_add(op, out, values, ids, &scatter->indexing);
        } else {
            ignis__address claims = ignis__op_claim(op, ids, &scatter->indexing, out->numel);
            ignis__op_scatter_last(op, out, values, claims, ids, &scatter->indexing, IGNIS__SCATTER_ASSIGN);
        }
        scatter->indexing.shape = values->shape;
        ignis__op_save(op, ids);
    }
    return ignis__op_end_recorded(op, out, name, ignis__scatter_backward, scatter, sizeof *scatter);
}

IGNIS_API ignis_tensor ignis_scatter(ignis_tensor tensor, int dim, ignis_tensor index, ignis_tensor src)
{
    static const char call[] = "ignis_scatter";
    ignis_tensor inputs[] = {tensor, index, src};
    ignis__scatter scatter = IGNIS__ZERO;
    ignis__op op;
    if (!ignis__op_begin(&op, call, 3, inputs))
        return ignis__no_tensor();
    if (ignis__index_fits(&op, &dim, false) && ignis__index_src_fits(&op)) {
        ignis__indexing_make(&scatter.indexing, call, &op.in[0]->shape, dim, &op.in[1]->shape);
        ignis__shape_strides(&op.in[1]->shape, scatter.indexing.strides.to);
    }
    return ignis__scatter_end(&op, "scatter", op.in[1], &scatter);
}

/*  Returns one index of the tensor's first `count` dimensions together, made of inputs 1 to count. NULL after a
    failure. */
static ignis__array *ignis__op_join_indices(ignis__op *op, int count)
{
    ignis__index_list list = IGNIS__ZERO;
    ignis__array *joined = ignis__op_new(op, &op->in[1]->shape, IGNIS_I64);
    ignis__address target = ignis__op_write(op, joined);
    void *params[] = {&target, &list, NULL};
    int d;
    if (!joined)
        return NULL;
    params[2] = &joined->numel;
    list.count = count;
    for (d = 0; d < count; d++) {
        list.ids[d] = ignis__op_read(op, op->in[1 + d]);
        list.size[d] = op->in[0]->shape.dim[d];
        list.id_bytes[d] = (int)ignis__dtypes[op->in[1 + d]->dtype].size;
    }
    ignis__op_launch_row(op, IGNIS__BUILTIN(INDEX_JOIN), IGNIS_I64, ignis__ceil_div(joined->numel, 256), 256, params);
    return joined;
}

/*  Checks indices and values of index_put. */
static void ignis__index_put_check(ignis__op *op, int count)
{
    const ignis_shape *tensor = &op->in[0]->shape, *index = &op->in[1]->shape, *values = &op->in[count + 1]->shape;
    int d;
    bool fits = values->ndim == index->ndim + tensor->ndim - count;
    for (d = 0; d < count && ignis__op_is_index(op, 1 + d, "an index"); d++)
        if (!ignis__shape_same(index, &op->in[1 + d]->shape))
            ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "indices[%d] is %s, indices[0] is %s", d,
                           ignis__shape_write(&op->in[1 + d]->shape).text, ignis__shape_write(index).text);
    for (d = 0; fits && d < values->ndim; d++)
        fits = values->dim[d] == (d < index->ndim ? index->dim[d] : tensor->dim[d - index->ndim + count]);
    if (ignis__op_same_dtype(op, count + 1, "values") && !fits)
        ignis__op_fail(
            op, IGNIS_DIAG_SHAPE_DIFFERS,
            "values is %s; expected the shape of an index, %s, and of a slice, the dimensions of %s from %d on",
            ignis__shape_write(values).text, ignis__shape_write(index).text, ignis__shape_write(tensor).text, count);
}

IGNIS_API ignis_tensor ignis_index_put(ignis_tensor tensor, const ignis_tensor *indices, int count, ignis_tensor values,
                                       bool accumulate)
{
    static const char call[] = "ignis_index_put";
    ignis_tensor inputs[IGNIS_MAX_DIMS + 2];
    ignis__scatter scatter = IGNIS__ZERO;
    ignis__array *ids = NULL;
    ignis__op op;
    int d;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "indices", indices))
        return ignis__no_tensor();
    if (count < 1 || count > IGNIS_MAX_DIMS) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d; expected 1 to %d", count, IGNIS_MAX_DIMS);
        return ignis__no_tensor();
    }
    inputs[0] = tensor;
    for (d = 0; d < count; d++)
        inputs[1 + d] = indices[d];
    inputs[count + 1] = values;
    if (!ignis__op_begin(&op, call, count + 2, inputs))
        return ignis__no_tensor();
    if (count > op.in[0]->shape.ndim)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_RANK, "count is %d; the tensor is %s", count,
                       ignis__shape_write(&op.in[0]->shape).text);
    if (op.ok)
        ignis__index_put_check(&op, count);
    if (op.ok)
        ids = ignis__op_join_indices(&op, count);
    if (ids) {
        const ignis_shape *shape = &op.in[0]->shape;
        int64_t inner = ignis__shape_product(shape, count, shape->ndim);
        ignis_shape rows = IGNIS_SHAPE(ignis__shape_product(shape, 0, count), inner),
                    put = IGNIS_SHAPE(ids->numel, inner);
        ignis__indexing_make(&scatter.indexing, call, &rows, 0, &put);
        scatter.indexing.strides.to[0] = 1;
        scatter.adds = accumulate;
    }
    return ignis__scatter_end(&op, "index_put", ids, &scatter);
}

/*  Returns the elements of g at the places that index has along dim; 0 for places outside, and with `last` for elements
    whose place a later one has. That one is found by putting the elements' numbers in their places. */
static ignis_tensor ignis__scatter_take(const ignis_vjp_args *args, ignis_tensor g, int dim, ignis_tensor index,
                                        bool last)
{
    const ignis_tensor taken = ignis_gather(g, dim, index);
    const int64_t numel = index.id ? ignis_tensor_numel(index) : 0;
    ignis_tensor_desc desc = IGNIS__ZERO;
    ignis_tensor number, found;
    desc.dtype = IGNIS_I64;
    desc.device = ignis__device_in_desc(args->node->output->device);
    if (last)
        number = ignis_reshape(ignis_tensor_arange(1, (double)(numel + 1), 1, &desc), ignis_tensor_shape(index));
    else
        number = ignis_tensor_ones(ignis_tensor_shape(index), &desc);
    found = ignis_scatter(ignis_tensor_zeros(ignis_tensor_shape(g), &desc), dim, index, number);
    found = ignis_gather(found, dim, index); /* 0 for places outside */
    return ignis_map("found == number ? g : 0", IGNIS_INPUTS(IGNIS_NAMED(g, taken), found, number));
}

/*  Of scatter, index_put and scatter_add. Where elements were put the gradient of the tensor is 0: zeros put there. */
IGNIS__PRIVATE void ignis__vjp_of_scatter(const ignis_vjp_args *args)
{
    const char *name = args->node->name;
    const ignis__indexing *x = (const ignis__indexing *)args->params; /* also as the first member of ignis__scatter */
    const bool adds = strcmp(name, "scatter_add") == 0 || ((const ignis__scatter *)(const void *)args->params)->adds;
    const ignis_shape *shape = &args->node->output->shape;
    const int values = args->input_count - 1;
    ignis_tensor index = ignis__vjp_constant(args, 0), g = args->grad_output;
    if (strcmp(name, "index_put") == 0) { /* of rows, by one index */
        const int64_t inner = ignis__shape_product(shape, args->input_count - 2, shape->ndim);
        index = ignis_reshape(index, IGNIS_SHAPE(-1, 1));
        index = ignis_expand(index, IGNIS_SHAPE(ignis__tensor_numel(args->node->inputs[1]), inner));
        g = ignis_reshape(g, IGNIS_SHAPE(x->size, inner));
    }
    args->grad_inputs[0] = args->grad_output;
    if (args->needed[0] && !adds)
        args->grad_inputs[0] = ignis_scatter(g, x->dim, index, ignis__vjp_zeros(args, 0, ignis_tensor_shape(index)));
    if (args->needed[values])
        args->grad_inputs[values] = ignis__scatter_take(args, g, x->dim, index, !adds);
}
