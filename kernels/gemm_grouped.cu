// SPDX-License-Identifier: MIT
/*  gemm_grouped.cu - products of rows that are sorted by group, in plain CUDA C, for every floating type and device

    One program per floating element type: compiled with -DIGNIS_T=<ignis_dtype>. gemm_grouped.cuh has the order of
    tiles. Blocks of 256 threads. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
#include "gemm.cuh"
#include "gemm_tile.cuh"
#include "gemm_grouped.cuh"

/*  Tiles of 128 x 128, and of 64 x 64. */
extern "C" __global__ void __launch_bounds__(256, 1) ignis_gemm_grouped(const Product p, const Groups groups)
{
    Product own = p;
    Place place;
    ignis_grid_dependency();
    if (find_tile<128, 128>(own, place, groups))
        multiply<8, 8>(own, place);
}

extern "C" __global__ void __launch_bounds__(256, sizeof(Wide) == 8 ? 1 : 2)
    ignis_gemm_grouped_small(const Product p, const Groups groups)
{
    Product own = p;
    Place place;
    ignis_grid_dependency();
    if (find_tile<64, 64>(own, place, groups))
        multiply<4, 4>(own, place);
}
