// SPDX-License-Identifier: MIT
/*  optim_extra.cu - optimizers whose gradients have sums in f32, or whose parameters have averages

    The kernels of optim.cu, by the same names, and ignis_grad_accumulate, in a program of their own.
    One program per floating element type: compiled with -DIGNIS_T=<ignis_dtype>. */
#define IGNIS_OPTIM_EXTRA
#include "optim.cu"
