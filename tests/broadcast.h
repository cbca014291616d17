// SPDX-License-Identifier: MIT
/*  broadcast.h - a broadcast input of a formula: where its elements are */
#ifndef BROADCAST_H
#define BROADCAST_H

enum { MAX_NUMEL = 4096 };

/*  The offset of an element of a shape in an array that spreads over it. */
static inline int64_t offset_of(ignis_shape shape, ignis_shape array, int64_t element)
{
    int64_t offset = 0, step = 1;
    int d;
    for (d = shape.ndim - 1; d >= 0; d--) {
        int of_array = d - (shape.ndim - array.ndim);
        int64_t at = element % shape.dim[d];
        element /= shape.dim[d];
        if (of_array < 0)
            continue;
        offset += array.dim[of_array] == 1 ? 0 : at * step;
        step *= array.dim[of_array];
    }
    return offset;
}

static const char *const reducer_names[] = {"",    "sum", "mean",   "prod",   "max",       "min",
                                            "any", "all", "argmax", "argmin", "logsumexp", "norm"};

#endif
