// SPDX-License-Identifier: MIT
/*  gemm.cu - matrix products in plain CUDA C, for every floating type and every device, and epilogues after a
    product

    One program per floating element type: compiled with -DIGNIS_T=<ignis_dtype>, and with -DIGNIS_PATCHES for
    convolutions. Sums in float, of f64 in double, in an order that is fixed: equal inputs give equal bits.
    Grid: tiles of a matrix * batch * splits; blocks of 256 threads. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
#include "gemm.cuh"
#include "gemm_tile.cuh"

/*  blocks: on an SM, which bounds registers. */
#define KERNEL(blocks) extern "C" __global__ void __launch_bounds__(IGNIS__GEMM_THREADS, blocks)

/*  Tiles of 128 x 128, and of 64 x 64. */
KERNEL(1) ignis_gemm(const Product p)
{
    ignis_grid_dependency();
    multiply<8, 8>(p, Place(p, blockIdx.x, 128, 128));
}

KERNEL(sizeof(Wide) == 8 ? 1 : 2) ignis_gemm_small(const Product p)
{
    ignis_grid_dependency();
    multiply<4, 4>(p, Place(p, blockIdx.x, 64, 64));
}

/*  Up to two plain products that do not depend on each other, in one launch. */
struct Products {
    Product of[IGNIS_PATCHES ? 1 : 2];
};

/*  Tiles of 16 x 32, for products that have few larger ones. A warp computes all of it for an eighth of each
    k step, a thread 4 x 4, so that the next operands come once in 128 elements of k. The results of the warps
    are added in their order. The first product has `blocks` blocks. */
KERNEL(1) ignis_gemm_tiny(const __grid_constant__ Products products, unsigned first_blocks)
{
    constexpr int BM = 16, BN = 32, BK = 512 / sizeof(Wide), WARPS = 8, share = BK / WARPS;
    union alignas(16) Shared {
        struct {
            Wide a[BK][BM + 4], b[BK][BN + 4];
        };
        struct {
            Wide results[WARPS][BM][BN + 4], rows[WARPS][BM];
        };
        Wide sums[IGNIS__GEMM_THREADS / (BN / (16 / sizeof(T)))][BN];
    };
    __shared__ Shared shared;
    ignis_grid_dependents_launch();
    const bool second = !IGNIS_PATCHES && blockIdx.x >= first_blocks;
    const Product &p = products.of[second];
    const Place place(p, blockIdx.x - (second ? first_blocks : 0), BM, BN);
    const Loader<IGNIS__OPERAND_A, BM, BK> a(p, p.a + place.batch * p.batch_a, place.row, p.m, !p.transpose_a, p.row_a);
    const Loader<IGNIS__OPERAND_B, BN, BK> b(p, p.b + place.batch * p.batch_b, place.column, p.n, p.transpose_b,
                                             p.row_b);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, down = lane / 8 * 4, across = lane % 8 * 4;
    const bool sums_rows = p.row_sums && place.column == 0 && lane < BM;
    Wide next_a[a.count], next_b[b.count], sum[4][4], row_sum = 0;

#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            sum[r][c] = 0;
    ignis_grid_dependency_wait(a.prepared() | b.prepared());
    a.load(next_a, place.first_k, place.end_k);
    b.load(next_b, place.first_k, place.end_k);
    static_assert(BM * BN * sizeof(T) <= IGNIS__GEMM_THREADS * 16, "a thread has a single row");
    Epilogue<IGNIS__GEMM_THREADS, BN, true> epilogue(p, place, threadIdx.x);
#pragma unroll 1
    for (long long k = place.first_k; k < place.end_k; k += BK) {
        __syncthreads(); /* everybody has done with the step before */
        a.store(shared.a, next_a);
        b.store(shared.b, next_b);
        __syncthreads();
        if (k + BK < place.end_k) {
            a.load(next_a, k + BK, place.end_k);
            b.load(next_b, k + BK, place.end_k);
        }
#pragma unroll
        for (int i = 0; i < share; i++) {
            Wide x[4], y[4];
#pragma unroll
            for (int r = 0; r < 4; r++)
                x[r] = shared.a[warp * share + i][down + r];
#pragma unroll
            for (int c = 0; c < 4; c++)
                y[c] = shared.b[warp * share + i][across + c];
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    sum[r][c] += x[r] * y[c];
        }
        if (sums_rows)
#pragma unroll
            for (int i = 0; i < share; i++)
                row_sum += shared.a[warp * share + i][lane];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            shared.results[warp][down + r][across + c] = sum[r][c];
    if (lane < BM)
        shared.rows[warp][lane] = row_sum;
    __syncthreads();
    const auto add_up = [&](const auto &of_warp) {
        Wide total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            total += of_warp(w);
        return total;
    };
    const auto result = [&](int r, int c) { return add_up([&](int w) { return shared.results[w][r][c]; }); };
    if (p.row_sums && place.column == 0 && threadIdx.x < BM && place.row + threadIdx.x < p.m)
        p.row_sums[place.split * p.m + place.row + threadIdx.x] =
            add_up([&](int w) { return shared.rows[w][threadIdx.x]; });
    if (p.partial) {
        store_partial<IGNIS__GEMM_THREADS, BN>(p, place, threadIdx.x, 0, BM, result);
        return;
    }
    epilogue.strip(0, BM, result);
    epilogue.end(BM, shared.sums[0], [] { __syncthreads(); });
}

__device__ inline long long packs_of(const ignis__gemm_copy &p)
{
    return (p.rows * p.stride * (long long)sizeof(T) + 15) / 16;
}

/*  Makes a pack of it. */
__device__ inline void copy_pack(const ignis__gemm_copy &p, long long at)
{
    constexpr int N = 16 / sizeof(T);
    const long long across = p.stride / N;
    if (at >= packs_of(p))
        return;
    if (across == 0) { /* a pack has several rows */
        const int stride = (int)p.stride;
        const long long first = at * (N / stride);
        ignis_pack<T, N> pack;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const long long r = first + i / stride, column = i % stride;
            pack[i] = r < p.rows && column < p.row ? p.from[r * p.row + column] : T(0);
        }
        ignis_store(p.to + at * N, pack);
        return;
    }
    const long long r = at >> 32 ? at / across : (unsigned)at / (unsigned)across, column = (at - r * across) * N;
    const T *from = p.from + r * p.row + column;
    ignis_pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; i++)
        pack[i] = column + i < p.row ? from[i] : T(0);
    ignis_store(p.to + r * p.stride + column, pack);
}

/*  Makes one or two copies; a thread makes a pack. */
KERNEL(2) ignis_gemm_pack(const ignis__gemm_copy first, const ignis__gemm_copy second)
{
    ignis_grid_dependency();
    const long long at = blockIdx.x * (long long)IGNIS__GEMM_THREADS + threadIdx.x, of_first = packs_of(first);
    if (at < of_first)
        copy_pack(first, at);
    else
        copy_pack(second, at - of_first);
}

/*  Adds the splits of a product in their order, and stores the sums. A block has 16 rows of 128 columns.
    There are few splits, or the product has few elements: so a thread has 8 loads under way. */
KERNEL(2) ignis_gemm_finish(const Product p)
{
    ignis_grid_dependency();
    constexpr int rows = IGNIS__GEMM_FINISH_ROWS, ahead = 8, N = 16 / sizeof(T), wide = 16 / sizeof(Wide);
    const Place place(p, blockIdx.x, rows, IGNIS__GEMM_COLUMNS);
    __shared__ Wide room[16 / sizeof(T) * 2 * 128];
    Epilogue<IGNIS__GEMM_THREADS, IGNIS__GEMM_COLUMNS> epilogue(p, place, threadIdx.x);
    const Wide *const first = (const Wide *)p.partial + (place.batch * p.m + place.row) * p.n + place.column;
    const long long part = p.batch * p.m * p.n;
    const auto sum_up =
        [&](int r, int c, auto &x) { /* of as many columns as x has */
                                     constexpr int count = sizeof(x) / sizeof(Wide), size = count < wide ? count : wide;
                                     const Wide *from = first + r * p.n + c;
                                     for (int i = 0; i < count; i++)
                                         x[i] = 0;
#pragma unroll 1
                                     for (int split = 0; split < p.splits; split += ahead) {
                                         ignis_pack<Wide, size> packs[ahead][count / size];
#pragma unroll
                                         for (int i = 0; i < ahead; i++)
#pragma unroll
                                             for (int j = 0; j < count / size; j++)
                                                 packs[i][j] = ignis_load<size>(
                                                     from + min(split + i, p.splits - 1) * part + j * size);
#pragma unroll
                                         for (int i = 0; i < ahead; i++)
#pragma unroll
                                             for (int j = 0; j < count; j++)
                                                 x[j] += split + i < p.splits ? packs[i][j / size][j % size] : Wide(0);
                                     }
        };
    epilogue.strip(
        0, rows,
        [&](int r, int c) {
            Wide x[1];
            sum_up(r, c, x);
            return x[0];
        },
        [&](int r, int c, Wide(&x)[N]) { sum_up(r, c, x); });
    epilogue.end(rows, room, [] { __syncthreads(); });
}

/*  As ignis_gemm_finish, for a product that exists: of T, in partial, which may be out. A block has 32 rows. */
KERNEL(2) ignis_gemm_apply(const Product p)
{
    ignis_grid_dependency();
    constexpr int rows = IGNIS__GEMM_APPLY_ROWS, N = 16 / sizeof(T);
    const Place place(p, blockIdx.x, rows, IGNIS__GEMM_COLUMNS);
    __shared__ Wide room[16 / sizeof(T) * 2 * 128];
    Epilogue<IGNIS__GEMM_THREADS, IGNIS__GEMM_COLUMNS> epilogue(p, place, threadIdx.x);
    const T *const first = (const T *)p.partial + (place.batch * p.m + place.row) * p.n + place.column;
    epilogue.strip(
        0, rows, [&](int r, int c) { return Wide(first[r * p.n + c]); },
        [&](int r, int c, Wide(&x)[N]) {
            const auto pack = ignis_load<N>(first + r * p.n + c);
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] = pack[i];
        });
    epilogue.end(rows, room, [] { __syncthreads(); });
}

/*  dst [n] = the sums over the columns of src [count, n]. Blocks of 32 x 8 threads have 32 columns; each
    thread sums every eighth row. */
KERNEL(2) ignis_gemm_sums(T *dst, const Wide *src, long long count, long long n)
{
    ignis_grid_dependency();
    __shared__ Wide part[8][IGNIS__GEMM_SUMS_COLUMNS];
    const long long column = blockIdx.x * 32LL + threadIdx.x % 32;
    const int first = threadIdx.x / 32;
    Wide sum = 0;
    if (column < n)
#pragma unroll 8
        for (long long row = first; row < count; row += 8)
            sum += src[row * n + column];
    part[first][threadIdx.x % 32] = sum;
    __syncthreads();
    if (first == 0 && column < n) {
        for (int i = 1; i < 8; i++)
            sum += part[i][threadIdx.x];
        dst[column] = T(sum);
    }
}
