// SPDX-License-Identifier: MIT
/*  gemm_mma.cu - matrix products on tensor cores by mma.sync, for sm_80 and up

    One program per type and pair of transpositions: compiled with -DIGNIS_T=<IGNIS_F16, IGNIS_BF16 or
    IGNIS_F32> -DIGNIS_TRANSPOSE_A=<0 or 1> -DIGNIS_TRANSPOSE_B=<0 or 1>, and with -DIGNIS_PATCHES for
    convolutions. f32 is rounded to tf32, and its rows are not summed. Sums in float, in the order of k. Grid:
    tiles of a matrix * batch * splits. With -DIGNIS_OPERANDS=<IGNIS_F8_E4M3 or IGNIS_F8_E5M2>, for sm_89 and
    up, operands are by k; of such sums tensor cores keep some 13 bits, so those of a few steps are summed in
    float. */
#include "ignis.cuh"
#include "mma.cuh"

typedef ignis_type<IGNIS_T> T;
#include "gemm.cuh"
#include "gemm_mma.cuh"

/*  8 warps, tiles of 128 x 128; 4 warps, 64 x 64. Shared memory: 4 steps of both operands. */
extern "C" __global__ void __launch_bounds__(256, 1) ignis_gemm_mma(const Product p)
{
    ignis_grid_dependency();
    multiply<2, 4, 64, 32>(p, Place(p, blockIdx.x, 128, 128));
}

extern "C" __global__ void __launch_bounds__(128, 1) ignis_gemm_mma_small(const Product p)
{
    ignis_grid_dependency();
    multiply<2, 2, 32, 32>(p, Place(p, blockIdx.x, 64, 64));
}
