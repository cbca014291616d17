// SPDX-License-Identifier: MIT
/*  graphs.h - what tests of CUDA graphs share: a vector, and kernels that are compiled ahead */
#ifndef GRAPHS_H
#define GRAPHS_H

#include "tensor.h"

static inline ignis_tensor vector4(double first, bool requires_grad)
{
    double values[4];
    int i;
    for (i = 0; i < 4; i++)
        values[i] = first + i;
    return tensor_of(values, IGNIS_SHAPE(4), IGNIS_F32, requires_grad);
}

/*  Kernels are compiled before a capture. */
static inline void warm_up(void)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = vector4(1, true);
    CHECK_OK(ignis_backward(ignis_sum(ignis_mul(ignis_scale(x, 2), ignis_add(x, x))), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
}

#endif
