// SPDX-License-Identifier: MIT
/*  gemm_grouped_mma.cu - products of rows that are sorted by group, on tensor cores by mma.sync, for sm_80 and up

    Compiled with the options of gemm_mma.cu for plain products; f32 is rounded to tf32. gemm_grouped.cuh has the order
    of tiles. */
#include "ignis.cuh"
#include "mma.cuh"

typedef ignis_type<IGNIS_T> T;
#include "gemm.cuh"
#include "gemm_mma.cuh"
#include "gemm_grouped.cuh"

/*  8 warps, tiles of 128 x 128; 4 warps, 64 x 64. Shared memory: 4 steps of both operands. */
extern "C" __global__ void __launch_bounds__(256, 1) ignis_gemm_grouped_mma(const Product p, const Groups groups)
{
    Product own = p;
    Place place;
    ignis_grid_dependency();
    if (find_tile<128, 128>(own, place, groups))
        multiply<2, 4, 64, 32>(own, place);
}

extern "C" __global__ void __launch_bounds__(128, 1) ignis_gemm_grouped_mma_small(const Product p, const Groups groups)
{
    Product own = p;
    Place place;
    ignis_grid_dependency();
    if (find_tile<64, 64>(own, place, groups))
        multiply<2, 2, 32, 32>(own, place);
}
