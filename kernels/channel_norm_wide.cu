// SPDX-License-Identifier: MIT
/*  channel_norm_wide.cu - batch_norm and group_norm, with f32 weights beside x of 16 bits

    The kernels of channel_norm.cu, by the same names, in programs of their own: others keep their code.
    One program per element type: compiled with -DIGNIS_T=<1 or 2>. */
#define IGNIS_WIDE_WEIGHTS
#include "channel_norm.cu"
