/*  >>ops.image - what pooling and upsampling share: checks, shapes and the launch of images

    Images are channels-last; a signal is an image of one row. Uses: operation. Sizes are below 2^28, so
    products of two fit. */

#include "room.h"

/*  Reads the image that an operation works on: its dimensions; a signal has no rows. Reports an invalid one. */
IGNIS__PRIVATE bool ignis__image_check(ignis__op *op, const int64_t *second_numbers, int count, int64_t *n,
                                       int64_t *size, int64_t *channels)
{
    const ignis_shape *shape = &op->in[0]->shape;
    int i;
    if (!ignis__op_is_float(op, 0, "x"))
        return false;
    if (shape->ndim != 3 && shape->ndim != 4)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS,
                              "x is %s; [n, height, width, channels] or [n, length, channels] is needed",
                              ignis__shape_write(shape).text);
    *n = shape->dim[0];
    size[0] = shape->ndim == 4 ? shape->dim[1] : 1;
    size[1] = shape->dim[shape->ndim - 2];
    *channels = shape->dim[shape->ndim - 1];
    for (i = 1; i < shape->ndim; i++)
        if (shape->dim[i] >= IGNIS__IMAGE_LIMIT)
            return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "x is %s, where a size is 2^28 or more",
                                  ignis__shape_write(shape).text);
    for (i = 0; shape->ndim == 3 && i < count; i++)
        if (second_numbers[i])
            return ignis__op_fail(
                op, IGNIS_DIAG_BAD_NUMBER,
                "x is %s, a signal; the second number of each dimension in desc has to be 0, not %lld",
                ignis__shape_write(shape).text, (long long)second_numbers[i]);
    return true;
}

/*  Returns the shape of a result with other rows and columns. */
IGNIS__PRIVATE ignis_shape ignis__image_shape(const ignis_shape *like, const int64_t *size)
{
    ignis_shape shape = *like;
    if (shape.ndim == 4)
        shape.dim[1] = size[0];
    shape.dim[shape.ndim - 2] = size[1];
    return shape;
}

/*  Plans dst from src. addresses: the bitwise or of all arrays' addresses. shares: a thread may have more
    packs, if 128 bytes stay side by side. */
IGNIS__PRIVATE void ignis__images_set(ignis__images *images, ignis_dtype dtype, int64_t n, int64_t channels,
                                      const int64_t *dst, const int64_t *src, ignis__address addresses, bool shares)
{
    int64_t pack = ignis__pack_elements(dtype), packs;
    images->packed = channels % pack == 0 && addresses % 16 == 0;
    images->share = shares && images->packed && channels % (4 * 8 * pack) == 0 ? IGNIS__IMAGE_SHARE : 1;
    packs = images->packed ? channels / pack / images->share : channels;
    images->packs = ignis__divisor_of(packs);
    images->width = ignis__divisor_of(dst[1]);
    images->height = ignis__divisor_of(dst[0]);
    images->src_height = (int)src[0];
    images->src_width = (int)src[1];
    images->channels = channels;
    images->count = n * dst[0] * dst[1] * packs;
}

IGNIS__PRIVATE void ignis__images_launch(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype,
                                         const ignis__images *images, void **params)
{
    ignis__op_launch_row(op, builtin, dtype,
                         ignis__clamp(ignis__ceil_div(images->count, IGNIS__IMAGE_THREADS), 0, INT32_MAX),
                         IGNIS__IMAGE_THREADS, params);
}
