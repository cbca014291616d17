// SPDX-License-Identifier: MIT
/*  norm_add.cu - layer_norm and rms_norm at the end of a residual branch, over packed rows: see norm.cuh

    One program per element type: compiled with -DIGNIS_T=<1 to 4>.

        add_layer_norm, add_rms_norm
                            sum = x + other, rounded, and y = its norm. Launched as the forward kernels of
                            norm.cu */
#include "norm.cuh"

#define ADD_WARP_BLOCKS \
    (sizeof(T) == 2 ? 5 : 4) /* on an SM; a row in flight takes twice the registers of one without an addend */
#define ADD_ROW_BLOCKS (sizeof(T) == 2 && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200 ? 2 : 1)

#define KERNELS(name, rms)                                                                                         \
    extern "C" __global__ void __launch_bounds__(128, ADD_WARP_BLOCKS)                                             \
        ignis_add_##name##_warp(T *y, Wide *mean, Wide *rstd, const T *x, const W *w, const W *b, long long rows,  \
                                long long n, double eps, T *sum, const T *other)                                   \
    {                                                                                                              \
        ignis_grid_dependency();                                                                                   \
        forward<rms, true, ignis_warp_team, PACK>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, 0, sum, other);      \
    }                                                                                                              \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                           \
        ignis_add_##name##_block(T *y, Wide *mean, Wide *rstd, const T *x, const W *w, const W *b, long long rows, \
                                 long long n, double eps, T *sum, const T *other, int kept)                        \
    {                                                                                                              \
        ignis_grid_dependency();                                                                                   \
        forward<rms, true, ignis_block_team, PACK>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, kept, sum, other);  \
    }
KERNELS(layer_norm, false)
KERNELS(rms_norm, true) /* mean and b are not used */

#define ADD_ROW(name, rms, blocks, packs)                                                                           \
    extern "C" __global__ void __launch_bounds__(512, blocks)                                                       \
        ignis_##name(T *y, Wide *mean, Wide *rstd, const T *x, const W *w, const W *b, long long rows, long long n, \
                     double eps, T *sum, const T *other)                                                            \
    {                                                                                                               \
        ignis_grid_dependency();                                                                                    \
        forward_row<rms, true, packs>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, sum, other);                      \
    }
ADD_ROW(add_layer_norm_row, false, ADD_ROW_BLOCKS, IGNIS_ROW_PACKS)
ADD_ROW(add_layer_norm_long, false, 1, IGNIS__NORM_LONG_PACKS)
ADD_ROW(add_rms_norm_row, true, ADD_ROW_BLOCKS, IGNIS_ROW_PACKS)
ADD_ROW(add_rms_norm_long, true, 1, IGNIS__NORM_LONG_PACKS)
