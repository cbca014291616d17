/*  >>array.number - numbers and shapes that rooms above arrays compute with

    Doubles by their bits, powers of 2, divisors for kernels, products and strides of a shape.
    Uses: the declarations of arrays, base/atomic. Included only with tensors: arrays alone do not need it.
    Locks: none. */

#include "room.h"

/*  Returns the double with these bits. */
IGNIS__PRIVATE double ignis__double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

IGNIS__PRIVATE double ignis__nan(void) { return ignis__double_of(0x7FF8000000000000u); }

/*  Returns the least power of 2 that is not below x, at least 1. */
IGNIS__PRIVATE int64_t ignis__power_of_2_up(int64_t x)
{
    return x <= 1 ? 1 : (int64_t)2 << ignis__log2((uint64_t)x - 1);
}

IGNIS__PRIVATE bool ignis__is_power_of_2(int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

/*  Returns the divisor of a size. */
IGNIS__PRIVATE ignis__divisor ignis__divisor_of(int64_t size)
{
    ignis__divisor d = IGNIS__ZERO;
    if (size >> 31)
        return d;
    d.size = (uint32_t)size;
    while ((uint64_t)1 << d.shift < (uint64_t)size)
        d.shift++;
    if (size > 0)
        d.multiplier = (uint32_t)(((((uint64_t)1 << d.shift) - (uint64_t)size) << 32) / (uint64_t)size + 1);
    return d;
}

/*  Returns the number of elements of dimensions `from` to `to` - 1. */
IGNIS__ONE_COPY IGNIS__PRIVATE int64_t ignis__shape_product(const ignis_shape *shape, int from, int to)
{
    int64_t product = 1;
    for (; from < to; from++)
        product *= shape->dim[from];
    return product;
}

/*  Sets the strides of a contiguous array of a shape, in elements. */
IGNIS__PRIVATE void ignis__shape_strides(const ignis_shape *shape, int64_t *strides)
{
    int i;
    int64_t stride = 1;
    for (i = shape->ndim - 1; i >= 0; stride *= shape->dim[i--])
        strides[i] = stride;
}
