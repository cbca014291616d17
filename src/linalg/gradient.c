/*  >>linalg.gradient - tensors that the gradients of the room are computed from: columns, transposes, formulas

    The functions of the operations' gradients (see ops/composed.c) call these.
    Uses: the room ops. */

#include "room.h"

/*  Returns a right side [..., n, k] for matrices of `ndim` dimensions: one of vectors becomes one of one column. */
IGNIS__PRIVATE ignis_tensor ignis__tensor_columns(ignis_tensor tensor, int ndim)
{
    ignis_shape shape = ignis_tensor_shape(tensor);
    if (shape.ndim == 0 || shape.ndim >= ndim)
        return tensor;
    shape.dim[shape.ndim++] = 1;
    return ignis_reshape(tensor, shape);
}

IGNIS__PRIVATE ignis_tensor ignis__tensor_transposed(ignis_tensor tensor) { return ignis_transpose(tensor, -2, -1); }

/*  Returns a formula of a and b (no handle: of a alone). */
IGNIS__PRIVATE ignis_tensor ignis__tensor_formula(const char *formula, ignis_tensor a, ignis_tensor b)
{
    ignis_inputs inputs = IGNIS__ZERO;
    inputs.names = b.id ? "a, b" : "a";
    inputs.count = b.id ? 2 : 1;
    inputs.tensor[0] = a;
    inputs.tensor[1] = b;
    return ignis_map(formula, inputs);
}
