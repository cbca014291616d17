/*  >>ops.matmul.product - what a matrix product is: operands, epilogue, patches, and tiles of the kernels

    The structs are those of kernels/gemm.cuh. The parts: product, gemm_select (choice), gemm_params,
    gemm_launch, cublaslt, autotune, dispatch; matmul, linear, mlp are the operations. Matrices are row-major. */

#include "room.h"

/*  Returns a [m, k] times b, which is [k, n], or [n, k] if transposed. */
IGNIS__PRIVATE ignis__product ignis__product_of(ignis_dtype dtype, int64_t m, int64_t n, int64_t k, int transpose_b)
{
    ignis__product p = IGNIS__ZERO;
    p.m = m;
    p.n = n;
    p.k = k;
    p.batch = 1;
    p.batch_a = m * k;
    p.batch_b = k * n;
    p.transpose_b = transpose_b;
    p.dtype = (int)dtype;
    return p;
}

/* clang-format off */
IGNIS__PRIVATE const ignis__gemm_tile ignis__gemm_tile_sizes[] = {
    {IGNIS__BUILTIN(GEMM_HOPPER), 128, 256, 384, 1, 690, 690, 1000, 800},
    {IGNIS__BUILTIN(GEMM_HOPPER), 128, 192, 384, 1, 525, 525, 100, 1800},
    {IGNIS__BUILTIN(GEMM_HOPPER), 192, 192, 512, 1, 800, 800, 1500, 800}, /* or fewer: ignis__gemm_fit_columns */
    {IGNIS__BUILTIN(GEMM_HOPPER), 128, 128, 384, 1, 380, 300, 600, 800},
    {IGNIS__BUILTIN(GEMM_HOPPER), 128, 64, 384, 1, 220, 165, 600, 700}, /* in pairs */
    {IGNIS__BUILTIN(GEMM_HOPPER), 128, 64, 384, 2, 230, 250, 600, 800},
    {IGNIS__BUILTIN(GEMM_HOPPER), 64, 128, 384, 2, 240, 400, 600, 800},
    {IGNIS__BUILTIN(GEMM_MMA), 128, 128, 256, 1, 1000, 1000, 1000, 1500},
    {IGNIS__BUILTIN(GEMM_MMA_SMALL), 64, 64, 128, 3, 280, 490, 1000, 1600},
    {IGNIS__BUILTIN(GEMM), 128, 128, IGNIS__GEMM_THREADS, 1, 7000, 7000, 1000, 2000},
    {IGNIS__BUILTIN(GEMM_SMALL), 64, 64, IGNIS__GEMM_THREADS, 2, 2400, 2900, 1000, 1000},
    {IGNIS__BUILTIN(GEMM_TINY), 16, 32, IGNIS__GEMM_THREADS, 1, 220, 580, 1700, 0},
};
/* clang-format on */
