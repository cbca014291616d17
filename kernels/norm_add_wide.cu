// SPDX-License-Identifier: MIT
/*  norm_add_wide.cu - sums and their norms, with f32 weights beside x of 16 bits

    The kernels of norm_add.cu, by the same names, in programs of their own: others keep their code.
    One program per element type: compiled with -DIGNIS_T=<1 or 2>. */
#define IGNIS_WIDE_WEIGHTS
#include "norm_add.cu"
