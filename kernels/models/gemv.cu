// SPDX-License-Identifier: MIT
/*  models/gemv.cu - GEMV on plain cores: a few rows times all weights, and the epilogue

    Bound by memory: a warp reads a row of the weights once, and multiplies it with up to 8 rows of x. A sum has one
    order in any batch: lane l adds the products of packs l, l + 32, ... one after the other, then the lanes are
    added as a tree. So a row has the same bits alone and in a batch.

    One program per element type: compiled with -DIGNIS_T=<1 to 4>.
*/
#include "ignis.cuh"
#include "activation.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> W, Wide;
#include "shared/models/gemv.h"

constexpr int WARPS = 4;

__device__ inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return fma(a, b, c); }

/*  Adds up the products of `parts` rows of weights with N rows of x. Only the first `live` rows exist; the last one
    is repeated. */
template <int N, int parts, int pack>
__device__ inline void dot(W (&sum)[parts][N], const T *const (&weights)[parts], const T *x, long long k, int live)
{
    const int lane = threadIdx.x % 32;
#pragma unroll 4
    for (long long at = lane * pack; at < k; at += 32 * pack) {
        ignis_pack<T, pack> w[parts];
#pragma unroll
        for (int part = 0; part < parts; part++)
            w[part] = ignis_load_once<pack>(weights[part] + at);
#pragma unroll
        for (int c = 0; c < N; c++) {
            const ignis_pack<T, pack> column = ignis_load<pack>(x + min(c, live - 1) * k + at);
#pragma unroll
            for (int part = 0; part < parts; part++)
#pragma unroll
                for (int i = 0; i < pack; i++)
                    sum[part][c] = multiply_add(ignis_wide_at(w[part], i), ignis_wide_at(column, i), sum[part][c]);
        }
    }
#pragma unroll
    for (int part = 0; part < parts; part++)
#pragma unroll
        for (int c = 0; c < N; c++)
            sum[part][c] = ignis_warp_sum(sum[part][c]);
}

template <int N, bool gated> __device__ inline void product(const ignis__gemv &p)
{
    constexpr int parts = gated ? 2 : 1;
    const long long column = (long long)blockIdx.x * WARPS + threadIdx.x / 32;
    const int first = blockIdx.y * N, live = min(N, p.rows - first), lane = threadIdx.x % 32;
    const T *weights[parts];
    W sum[parts][N];
    if (column >= p.n)
        return;
#pragma unroll
    for (int part = 0; part < parts; part++) {
        weights[part] = p.weights + (column + part * p.n) * p.k;
#pragma unroll
        for (int c = 0; c < N; c++)
            sum[part][c] = 0;
    }
    if (p.packed)
        dot<N, parts, 16 / sizeof(T)>(sum, weights, p.x + first * p.k, p.k, live);
    else
        dot<N, parts, 1>(sum, weights, p.x + first * p.k, p.k, live);

#pragma unroll
    for (int c = 0; c < N; c++) {
        if (lane != c || c >= live)
            continue;
        const long long at = (first + c) * p.result_row + column;
        const W *const delta = p.delta ? p.delta + (first + c) * parts * p.result_row + column : nullptr;
        W y = sum[0][c] + (p.bias ? W(p.bias[column]) : W(0));
        y = delta ? y + delta[0] : y;
        if constexpr (gated) {
            W other = sum[1][c] + (p.bias ? W(p.bias[p.n + column]) : W(0));
            other = delta ? other + delta[p.n] : other;
            y = (p.kind == IGNIS__GEMV_GELU ? gelu(y) : y * sigmoid(y)) * other;
        }
        if (gated || p.kind == IGNIS__GEMV_OUT)
            p.out[at] = T(y);
        else if (p.kind == IGNIS__GEMV_GELU)
            p.out[at] = T(gelu(y));
        else if (p.kind == IGNIS__GEMV_ADD)
            p.sum[at] += y;
        else
            p.logits[at] = float(y);
    }
}

/*  grid = ceil(n / WARPS), ceil(rows / N). */
#define GEMV(N)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(32 * WARPS) ignis_gemv_##N(ignis__gemv p) { product<N, false>(p); } \
    extern "C" __global__ void __launch_bounds__(32 * WARPS) ignis_gemv_gated_##N(ignis__gemv p)                     \
    {                                                                                                                \
        product<N, true>(p);                                                                                         \
    }
GEMV(1)
GEMV(2)
GEMV(4)
GEMV(8)
