// SPDX-License-Identifier: MIT
/*  norm_wide.cu - layer_norm and rms_norm, with f32 weights beside x of 16 bits

    The kernels of norm.cu, by the same names, in programs of their own: others keep their code.
    One program per element type: compiled with -DIGNIS_T=<1 or 2>. */
#define IGNIS_WIDE_WEIGHTS
#include "norm.cu"
