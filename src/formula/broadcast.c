/*  >>formula.broadcast - shapes that broadcast, strides of inputs, and packs

    Finds how elements of the result map to elements of each input, and joins dimensions so that kernels have
    few.
    Uses: the room array. Invariant: a shape has at most IGNIS_MAX_DIMS dimensions; strides count elements, 0
    repeats. */

#include "room.h"

/*  Sets the strides of an array's elements in the dimensions of a shape that it broadcasts to. Returns
    whether it has that shape. */
IGNIS__PRIVATE bool ignis__formula_strides(const ignis_shape *shape, const ignis_shape *array, int64_t *stride)
{
    int d, lacking = shape->ndim - array->ndim;
    int64_t step = 1;
    bool same = true;
    for (d = shape->ndim - 1; d >= 0; d--) {
        int64_t dim = d < lacking ? 1 : array->dim[d - lacking];
        stride[d] = dim == 1 ? 0 : step;
        step *= dim;
        same = same && (dim == shape->dim[d]);
    }
    return same;
}

/*  Drops dimensions of 1, and joins neighbours that all `count` inputs step through alike. Returns the number
    of dimensions. */
IGNIS__PRIVATE int ignis__formula_collapse_dims(const ignis_shape *shape, int count,
                                                int64_t stride[][IGNIS__FORMULA_ANY_RANK], int64_t *dim)
{
    int d, i, rank = 0;
    for (d = 0; d < shape->ndim; d++) {
        bool merge = rank > 0;
        if (shape->dim[d] == 1)
            continue;
        for (i = 0; i < count && merge; i++)
            merge = stride[i][rank - 1] == stride[i][d] * shape->dim[d];
        rank += !merge;
        dim[rank - 1] = merge ? dim[rank - 1] * shape->dim[d] : shape->dim[d];
        for (i = 0; i < count; i++)
            stride[i][rank - 1] = stride[i][d];
    }
    return rank;
}

/*  Returns the axis of dimension `dim`. */
IGNIS__PRIVATE ignis__axis ignis__axis_of_dim(const ignis_shape *shape, int dim)
{
    ignis__axis axis = {ignis__shape_product(shape, 0, dim), shape->dim[dim],
                        ignis__shape_product(shape, dim + 1, shape->ndim)};
    return axis;
}

/*  Finds the axis along which b broadcasts to a: from the last dimension on, b may lack leading dimensions,
    or have 1 for neighbouring ones. False if there is no single axis. */
IGNIS__PRIVATE bool ignis__axis_of_broadcast(const ignis_shape *a, const ignis_shape *b, ignis__axis *axis)
{
    int i, lacking = a->ndim - b->ndim, phase = 0;
    axis->outer = axis->n = axis->inner = 1;
    if (lacking < 0)
        return false;
    for (i = 0; i < a->ndim; i++) {
        int64_t of_a = a->dim[i], of_b = i < lacking ? 1 : b->dim[i - lacking];
        if (of_a == 1 && of_b == 1)
            continue;
        if (of_a != of_b && of_b != 1)
            return false;
        if (of_a != of_b && phase == 2) /* a second axis, apart from the first */
            return false;
        phase = of_a != of_b ? 1 : phase == 1 ? 2 : phase;
        *(phase == 0 ? &axis->outer : phase == 1 ? &axis->n : &axis->inner) *= of_a;
    }
    return true;
}

/*  Returns the pack size of a kernel: the most elements that all addresses are aligned for, and that divide
    `multiple`. */
IGNIS__PRIVATE int ignis__formula_choose_pack(const ignis__formula_run *run, const ignis__formula_spec *spec,
                                              int widest, int64_t multiple)
{
    int pack, i, count = run->formula->count;
    for (pack = 16 / widest; pack > 1; pack /= 2) {
        ignis__address bits = (ignis__address)(multiple % pack);
        for (i = 0; i < run->outs; i++)
            if (!(run->reduced >> i & 1))
                bits |= run->to[i] & (ignis__address)(pack * ignis__dtypes[run->out[i]].size - 1);
        for (i = 0; i <= count + 1; i++)
            if (spec->kind[i] == IGNIS__FORMULA_LINEAR || spec->kind[i] == IGNIS__FORMULA_ROW)
                bits |= run->address[i] & (ignis__address)(pack * ignis__dtypes[run->dtype[i]].size - 1);
        if (!bits)
            break;
    }
    return pack;
}

/*  Writes a divisor as two words of a formula's kernel: multiplier and shift. */
IGNIS__PRIVATE void ignis__formula_divisor(int64_t divisor, uint64_t *magic)
{
    ignis__divisor d = ignis__divisor_of(divisor);
    magic[0] = d.multiplier;
    magic[1] = d.shift;
}

/*  Writes the divisors that find an element's coordinate in a dimension of n with `inner` elements after it. */
IGNIS__PRIVATE void ignis__formula_coordinate_divisor(int64_t inner, int64_t n, uint64_t *magic)
{
    ignis__formula_divisor(inner, magic);
    ignis__formula_divisor(n, magic + 2);
    magic[4] = (uint64_t)n;
}
