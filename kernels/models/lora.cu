// SPDX-License-Identifier: MIT
/*  models/lora.cu - what adapters (LoRA) add to a product, for rows with adapters of their own: scale (x A^T) B^T

    Hu et al. 2021, arXiv 2106.09685; for rows with different adapters Chen et al. 2023, arXiv 2310.18547. Two kernels:
    one shrinks x to `rank` numbers, one expands them to the columns of the result. A row names the table of its
    adapters, so a captured step is replayed with others. Sums have one order, whatever the other rows are, so a row
    has the same bits alone and in any batch. Eight rows in a row with the same adapters read A and B once.
    One program per element type: compiled with -DIGNIS_T=<1 to 4>.
*/
#include "ignis.cuh"
#include "generate.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> W, Wide;
#include "shared/models/lora.h"

constexpr int TILE = 8; /* rows that read A and B once */
constexpr int SHRINK_THREADS = IGNIS__LORA_SHRINK_THREADS, EXPAND_THREADS = IGNIS__LORA_EXPAND_THREADS,
              PAIRS = IGNIS__LORA_PAIRS;

__device__ inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return fma(a, b, c); }

/*  Returns a pair of a row's product; null if the row has none. */
__device__ inline const ignis__lora_pair *pair_of(const ignis__lora_step &p, int row, int number)
{
    const ignis__lora_pair *const table = p.rows[row].adapters, *const pair = table + p.product * PAIRS + number;
    return table && pair->rank ? pair : nullptr;
}

/*  Returns whether all rows of a tile exist and have the same adapters. */
__device__ inline bool shares_adapters(const ignis__lora_step &p, int first)
{
    bool same = first + TILE <= p.count;
    for (int i = 1; same && i < TILE; i++)
        same = p.rows[first + i].adapters == p.rows[first].adapters;
    return same;
}

/*  Calls run with a pointer to elements of a dtype. */
template <typename Run> __device__ inline void with_dtype(int dtype, const void *at, Run run)
{
    if (dtype == IGNIS_F16)
        run((const ignis_f16 *)at);
    else if (dtype == IGNIS_BF16)
        run((const ignis_bf16 *)at);
    else if (dtype == IGNIS_F32)
        run((const float *)at);
    else
        run((const double *)at);
}

/*  Adds the products of N rows of x with a row of A, in packs. */
template <int N, int pack, typename A> __device__ inline void dot(W (&sum)[N], const T *x, const A *a, long long k)
{
#pragma unroll(N == 1 ? 4 : 1)
    for (long long at = threadIdx.x * pack; at < k; at += SHRINK_THREADS * pack) {
        const ignis_pack<A, pack> own = ignis_load<pack>(a + at);
#pragma unroll
        for (int c = 0; c < N; c++) {
            const ignis_pack<T, pack> of_row = ignis_load<pack>(x + c * k + at);
#pragma unroll
            for (int i = 0; i < pack; i++)
                sum[c] = multiply_add(W(ignis_wide_at(of_row, i)), W(ignis_wide_at(own, i)), sum[c]);
        }
    }
}

/*  Computes number j of N rows. a: row j of A; number: of the pair. */
template <int N, typename A>
__device__ inline void shrink(const ignis__lora_step &p, const A *a, int row, int number, int j, double scale)
{
    constexpr int size = sizeof(A) > sizeof(T) ? sizeof(A) : sizeof(T), WARPS = SHRINK_THREADS / 32;
    __shared__ W found[N][WARPS];
    const T *const x = p.x + row * p.k;
    W sum[N] = {};
    if (p.k % (16 / size) == 0)
        dot<N, 16 / size>(sum, x, a, p.k);
    else
        dot<N, 1>(sum, x, a, p.k);
    __syncthreads(); /* the sums of the number before have been read */
#pragma unroll
    for (int c = 0; c < N; c++) {
        sum[c] = ignis_warp_sum(sum[c]);
        if (threadIdx.x % 32 == 0)
            found[c][threadIdx.x / 32] = sum[c];
    }
    __syncthreads();
    if (threadIdx.x >= N)
        return;
    const W *const of = found[threadIdx.x];
    p.shrunk[((row + (int)threadIdx.x) * PAIRS + number) * IGNIS__LORA_SEQUENCE_RANK + j] =
        ((of[0] + of[1]) + (of[2] + of[3])) * W(scale);
}

/*  grid = any number of blocks, pairs, rows. */
extern "C" __global__ void __launch_bounds__(SHRINK_THREADS)
    ignis_lora_shrink(const __grid_constant__ ignis__lora_step p)
{
    const int row = blockIdx.z, first = row / TILE * TILE, number = blockIdx.y;
    ignis_grid_dependency();
    const ignis__lora_pair *const pair = pair_of(p, row, number);
    const bool shared = shares_adapters(p, first);
    if (!pair || (shared && row != first))
        return;
    with_dtype(pair->dtype, pair->a, [&](auto *a) {
        for (int j = blockIdx.x; j < pair->rank; j += gridDim.x)
            if (shared)
                shrink<TILE>(p, a + j * p.k, row, number, j, pair->scale);
            else
                shrink<1>(p, a + j * p.k, row, number, j, pair->scale);
    });
}

__device__ inline void put(const ignis__lora_step &p, int row, long long column, W y)
{
    const long long at = row * p.n + column;
    if (p.delta)
        p.delta[at] = y;
    else if (p.sum)
        p.sum[at] += y;
    else
        p.out[at] = T(W(p.out[at]) + y);
}

/*  Multiplies N rows of numbers with a row of B, in packs. */
template <int N, int pack, typename B>
__device__ inline void combine(W (&sum)[N], const W *numbers, const B *b, int rank)
{
#pragma unroll(N == 1 ? 4 : 1)
    for (int j = 0; j < rank; j += pack) {
        const ignis_pack<B, pack> own = ignis_load<pack>(b + j);
#pragma unroll
        for (int c = 0; c < N; c++) {
            const ignis_pack<W, pack> of_row = ignis_load<pack>(numbers + c * PAIRS * IGNIS__LORA_SEQUENCE_RANK + j);
#pragma unroll
            for (int i = 0; i < pack; i++)
                sum[c] = multiply_add(of_row[i], W(ignis_wide_at(own, i)), sum[c]);
        }
    }
}

/*  Computes a column of the results of N rows. b: its row of B; number: of the pair. */
template <int N, typename B>
__device__ inline void expand(const ignis__lora_step &p, const B *b, int row, int number, long long column, int rank)
{
    constexpr int size = sizeof(B) > sizeof(W) ? sizeof(B) : sizeof(W);
    const W *const numbers = p.shrunk + (row * PAIRS + number) * IGNIS__LORA_SEQUENCE_RANK;
    W sum[N] = {};
    if (rank % (16 / size) == 0)
        combine<N, 16 / size>(sum, numbers, b, rank);
    else
        combine<N, 1>(sum, numbers, b, rank);
#pragma unroll
    for (int c = 0; c < N; c++)
        put(p, row + c, column, sum[c]);
}

/*  grid = blocks for all columns, rows. */
extern "C" __global__ void __launch_bounds__(EXPAND_THREADS)
    ignis_lora_expand(const __grid_constant__ ignis__lora_step p)
{
    const int row = blockIdx.y, first = row / TILE * TILE;
    const long long column = (long long)blockIdx.x * EXPAND_THREADS + threadIdx.x;
    const ignis__lora_pair *pair = nullptr;
    int number = 0;
    ignis_grid_dependency();
    const bool shared = shares_adapters(p, first);
    if (column >= p.n || (shared && row != first))
        return;
    for (int i = 0; !pair && i < PAIRS; i++) {
        pair = pair_of(p, row, number = i);
        if (pair && (column < pair->first || column - pair->first >= pair->columns))
            pair = nullptr;
    }
    if (!pair) {
        for (int c = 0; p.delta && c < (shared ? TILE : 1); c++)
            put(p, row + c, column, W(-0.0));
        return;
    }
    with_dtype(pair->dtype, pair->b, [&](auto *b) {
        b += (column - pair->first) * pair->rank;
        if (shared)
            expand<TILE>(p, b, row, number, column, pair->rank);
        else
            expand<1>(p, b, row, number, column, pair->rank);
    });
}
