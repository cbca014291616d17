// SPDX-License-Identifier: MIT
/*  norm_unaligned_wide.cu - layer_norm and rms_norm of rows of any address, with f32 weights beside x of 16 bits

    The kernels of norm_unaligned.cu, by the same names, in programs of their own: others keep their code.
    One program per element type: compiled with -DIGNIS_T=<1 or 2>. */
#define IGNIS_WIDE_WEIGHTS
#include "norm_unaligned.cu"
