/*  >>ops.pool - ignis_max_pool and ignis_avg_pool: windows of images and signals

    The gradient gathers from windows in a fixed order.
    Uses: image; kernels/pool.cu. */

#include "room.h"

/*  Values that the gradient of a pool, or of upsampling, needs; sizes of the input and of the result. */
typedef struct ignis__pool_params {
    const char *call;
    bool is_max;
    ignis_shape shape;
    int64_t n, channels, in[2], out[2];
    ignis__pooling pooling;
} ignis__pool_params;

/*  Returns the bitwise or of a pool's addresses. Indices of 4 bytes have no packs, so they count as
    unaligned. */
static ignis__address ignis__pool_addresses(const ignis__pooling *pooling, ignis__address addresses)
{
    return addresses | (ignis__address)(pooling->index_bytes == 4);
}

static ignis_status ignis__pool_backward(const ignis_backward_args *args)
{
    const ignis__pool_params *p = (const ignis__pool_params *)args->params;
    ignis__pooling pooling = p->pooling;
    ignis__address dx, dy, index = 0;
    ignis__array *gradient;
    ignis__op op;
    void *max[] = {&dx, &dy, &index, &pooling}, *average[] = {&dx, &dy, &pooling};
    if (!ignis__op_begin_backward(&op, p->call, args))
        return ignis__failed();
    gradient = ignis__op_new(&op, &p->shape, op.in[0]->dtype);
    dx = ignis__op_write(&op, gradient);
    dy = ignis__op_read(&op, op.in[0]);
    if (p->is_max)
        index = ignis__op_read(&op, op.in[1]);
    ignis__images_set(&pooling.images, op.in[0]->dtype, p->n, p->channels, p->in, p->out,
                      ignis__pool_addresses(&pooling, dx | dy | index), false);
    ignis__images_launch(&op, p->is_max ? IGNIS__BUILTIN(MAX_POOL_BACKWARD) : IGNIS__BUILTIN(AVG_POOL_BACKWARD),
                         op.in[0]->dtype, &pooling.images, p->is_max ? max : average);
    return ignis__op_finish_backward(&op, args, 1, &gradient);
}

/*  Sets the windows along a dimension, and their number. Reports what does not fit. */
static bool ignis__pool_windows(ignis__op *op, const ignis_pool_desc *desc, int given, int dim,
                                ignis__pool_params *pool)
{
    int64_t window = desc->window[given], stride = desc->stride[given] ? desc->stride[given] : window,
            padding = desc->padding[given], room;
    if (window < 1 || window >= IGNIS__IMAGE_LIMIT)
        return ignis__op_fail(op, window < 1 ? IGNIS_DIAG_BAD_NUMBER : IGNIS_DIAG_UNSUPPORTED,
                              "desc->window[%d] is %lld, %s", given, (long long)window,
                              window < 1 ? "below 1" : "2^28 or more");
    if (stride < 0)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->stride[%d] is %lld, below 0", given, (long long)stride);
    if (padding < 0 || padding > window / 2)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER,
                              "desc->padding[%d] is %lld, outside of 0 to %lld, half of the window", given,
                              (long long)padding, (long long)(window / 2));
    room = pool->in[dim] + 2 * padding - window;
    if (room < 0 || pool->in[dim] == 0)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS,
                              "x is %s, too small for a window of %lld and a padding of %lld",
                              ignis__shape_write(&op->in[0]->shape).text, (long long)window, (long long)padding);
    stride = stride < 4 * IGNIS__IMAGE_LIMIT ? stride : 4 * IGNIS__IMAGE_LIMIT; /* larger than any image */
    pool->out[dim] = room / stride + 1;
    if (desc->ceil_mode && room % stride && pool->out[dim] * stride < pool->in[dim] + padding)
        pool->out[dim]++;
    pool->pooling.window[dim] = (int)window;
    pool->pooling.padding[dim] = (int)padding;
    pool->pooling.stride[dim] = ignis__divisor_of(stride);
    return true;
}

static ignis_tensor ignis__pool_images(const char *call, bool is_max, ignis_tensor tensor, const ignis_pool_desc *desc)
{
    ignis__pool_params pool = IGNIS__ZERO;
    ignis__pooling *pooling = &pool.pooling;
    ignis__address x, y = 0, index = 0;
    ignis__array *out = NULL, *places;
    ignis_shape shape;
    ignis_dtype dtype;
    int64_t second[3];
    bool is_signal;
    ignis__op op;
    void *max[] = {&y, &index, &x, pooling}, *average[] = {&y, &x, pooling};
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    dtype = op.in[0]->dtype;
    pool.call = call;
    pool.is_max = is_max;
    pool.shape = op.in[0]->shape;
    is_signal = pool.shape.ndim == 3;
    if (!desc)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "desc is null");
    if (op.ok) {
        second[0] = desc->window[1];
        second[1] = desc->stride[1];
        second[2] = desc->padding[1];
        pooling->window[0] = 1; /* of a signal's single row */
        pooling->stride[0] = ignis__divisor_of(1);
        pool.out[0] = 1;
    }
    if (op.ok && ignis__image_check(&op, second, 3, &pool.n, pool.in, &pool.channels) &&
        ignis__pool_windows(&op, desc, is_signal ? 0 : 1, 1, &pool) &&
        (is_signal || ignis__pool_windows(&op, desc, 0, 0, &pool))) {
        pooling->exclude_padding = desc->exclude_padding;
        shape = ignis__image_shape(&pool.shape, pool.out);
        out = ignis__op_new(&op, &shape, dtype);
        x = ignis__op_read(&op, op.in[0]);
        y = ignis__op_write(&op, out);
        if (is_max && op.records && out) {
            pooling->index_bytes = (int64_t)pooling->window[0] * pooling->window[1] <= 256 ? 1 : 4;
            places = ignis__op_new_row(&op, out->numel, pooling->index_bytes == 1 ? IGNIS_U8 : IGNIS_I32);
            index = ignis__op_write(&op, places);
            ignis__op_save(&op, places);
        }
        ignis__images_set(&pooling->images, dtype, pool.n, pool.channels, pool.out, pool.in,
                          ignis__pool_addresses(pooling, x | y | index),
                          !is_max && pooling->window[0] == 2 && pooling->window[1] == 2);
        ignis__images_launch(&op, is_max ? IGNIS__BUILTIN(MAX_POOL) : IGNIS__BUILTIN(AVG_POOL), dtype, &pooling->images,
                             is_max ? max : average);
    }
    return ignis__op_end_recorded(&op, out, is_max ? "max_pool" : "avg_pool", ignis__pool_backward, &pool, sizeof pool);
}

IGNIS_API ignis_tensor ignis_max_pool(ignis_tensor x, const ignis_pool_desc *desc)
{
    return ignis__pool_images("ignis_max_pool", true, x, desc);
}
IGNIS_API ignis_tensor ignis_avg_pool(ignis_tensor x, const ignis_pool_desc *desc)
{
    return ignis__pool_images("ignis_avg_pool", false, x, desc);
}

/*  The mean of windows, or with `back` its gradient. */
static ignis__array *ignis__avg_pool_linear(ignis__op *op, const void *params, bool back)
{
    const ignis__pool_params *p = (const ignis__pool_params *)params;
    ignis__pooling pooling = p->pooling;
    ignis_shape shape = back ? p->shape : ignis__image_shape(&p->shape, p->out);
    ignis__array *to = ignis__op_new(op, &shape, op->in[0]->dtype);
    ignis__address source = ignis__op_read(op, op->in[0]), target = ignis__op_write(op, to);
    void *kernel[] = {&target, &source, &pooling};
    if (!op->ok)
        return NULL;
    ignis__images_set(&pooling.images, to->dtype, p->n, p->channels, back ? p->in : p->out, back ? p->out : p->in,
                      source | target, !back && pooling.window[0] == 2 && pooling.window[1] == 2);
    ignis__images_launch(op, back ? IGNIS__BUILTIN(AVG_POOL_BACKWARD) : IGNIS__BUILTIN(AVG_POOL), to->dtype,
                         &pooling.images, kernel);
    return to;
}

IGNIS__PRIVATE void ignis__vjp_of_avg_pool(const ignis_vjp_args *args)
{
    ignis__vjp_linear(args, ignis__avg_pool_linear, args->params, sizeof(ignis__pool_params), true);
}

/*  The gradient at the places of the largest elements, which are counted in their windows. */
IGNIS__PRIVATE void ignis__vjp_of_max_pool(const ignis_vjp_args *args)
{
    const ignis__pool_params *p = (const ignis__pool_params *)args->params;
    const ignis__pooling *pooling = &p->pooling;
    const ignis_shape out = IGNIS_SHAPE(p->n, p->out[0], p->out[1], p->channels);
    ignis_tensor places = ignis_reshape(ignis__vjp_constant(args, 0), out);
    char text[300];
    snprintf(
        text, sizeof text,
        "((index(0)*%lld + index(1)*%lld - %d + floor(places/%d))*%lld + index(2)*%lld - %d + places %% %d)*%lld + "
        "index(3)",
        (long long)p->in[0], (long long)pooling->stride[0].size, pooling->padding[0], pooling->window[1],
        (long long)p->in[1], (long long)pooling->stride[1].size, pooling->padding[1], pooling->window[1],
        (long long)p->channels);
    places = ignis_reshape(ignis_map(text, IGNIS_INPUTS(places)), IGNIS_SHAPE(-1));
    args->grad_inputs[0] =
        ignis_scatter_add(ignis__vjp_zeros(args, 0, IGNIS_SHAPE(ignis__shape_product(&p->shape, 0, p->shape.ndim))), 0,
                          places, ignis_reshape(args->grad_output, IGNIS_SHAPE(-1)));
}
