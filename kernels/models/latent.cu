// SPDX-License-Identifier: MIT
/*  models/latent.cu - latent attention besides attention itself: rows of the cache, queries, values

    Latent attention (DeepSeek-V2, 2024, section 2.1) keeps a row for a token: a latent that all heads share, and the
    elements of keys that rotate. A head's keys and values are products of the latent. So a query is multiplied with the
    weights of keys, and what attention gives with those of values, instead of each key and value.
    A sum has one order in any batch, so a row has the same bits alone and in a batch. One program per element type:
    compiled with -DIGNIS_T=<1 to 4>.
*/
#include "ignis.cuh"
#include "generate.cuh"
#include "rope.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> W, Wide;
#include "shared/models/latent.h"

constexpr int THREADS = 256, TOGETHER = 8; /* TOGETHER: rows that share what a block reads of weights */

/*  Writes the RMS norm of n elements. */
__device__ inline void norm_row(T *to, const T *from, const T *weight, int n, W eps)
{
    W sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS)
        sum += W(from[i]) * W(from[i]);
    const W factor = W(1) / sqrt(ignis_block_sum(sum) / W(n) + eps);
    for (int i = threadIdx.x; i < n; i += THREADS)
        to[i] = T(W(from[i]) * factor * W(weight[i]));
}

/*  Rotates a pair of elements, `half` apart, and multiplies them by a factor. */
__device__ inline void rotate_pair(T *to, const T *from, int half, W sine, W cosine, W factor)
{
    const W x = W(from[0]), y = W(from[half]);
    to[0] = T(factor * rotated(x, y, -sine, cosine));
    to[half] = T(factor * rotated(y, x, sine, cosine));
}

/*  Normalises q of a low rank, and writes a row of the cache. grid = rows. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_latent_rows(ignis__latent p, const __grid_constant__ frequency_table<W> frequencies)
{
    const ignis__generate_row &row = p.rows[blockIdx.x];
    const T *const from = p.qkv + blockIdx.x * p.qkv_row, *const latent = from + p.latent_at;
    ignis_grid_dependency();
    if (p.q_rank)
        norm_row(p.q_normed + (long long)blockIdx.x * p.q_rank, from, p.q_weight, p.q_rank, W(p.eps));
    if (row.position < 0)
        return;
    const generate_cache<T> cache = {p.cache, 1, p.latent + p.rotary};
    T *const to = cache.at(row.pages + p.table, row.position, 0);
    norm_row(to, latent, p.latent_weight, p.latent, W(p.eps));
    for (int i = threadIdx.x; i < p.rotary / 2; i += THREADS) {
        W sine, cosine;
        sine_cosine(W(row.position), frequencies.at[i], sine, cosine);
        rotate_pair(to + p.latent + i, latent + p.latent + i, p.rotary / 2, sine, cosine, W(p.factor));
    }
}

/*  Multiplies the elements of queries that do not rotate with the weights of keys, and rotates the others. A thread has
    two columns. grid = blocks of columns, heads, blocks of TOGETHER rows. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_latent_query(ignis__latent p, const __grid_constant__ frequency_table<W> frequencies)
{
    constexpr int PLAIN = 256;
    __shared__ W q[TOGETHER][PLAIN];
    const int head = blockIdx.y, first = blockIdx.z * TOGETHER, live = min(TOGETHER, p.count - first),
              head_dim = p.plain + p.rotary, width = p.latent + p.rotary,
              column = 2 * (blockIdx.x * THREADS + threadIdx.x);
    const T *const from = p.q + first * p.q_row + head * head_dim;
    T *const to = p.query + ((long long)first * p.heads + head) * width;
    const long long step = (long long)p.heads * width;
    ignis_grid_dependency();
    for (int i = threadIdx.x; i < TOGETHER * p.plain; i += THREADS)
        q[i / p.plain][i % p.plain] = i / p.plain < live ? W(from[i / p.plain * p.q_row + i % p.plain]) : W(0);
    for (int i = threadIdx.x; blockIdx.x == 0 && i < live * (p.rotary / 2); i += THREADS) {
        const int r = i / (p.rotary / 2), pair = i % (p.rotary / 2);
        W sine, cosine;
        sine_cosine(W(max(p.rows[first + r].position, 0)), frequencies.at[pair], sine, cosine);
        rotate_pair(to + r * step + p.latent + pair, from + r * p.q_row + p.plain + pair, p.rotary / 2, sine, cosine,
                    W(p.factor));
    }
    __syncthreads();
    if (column >= p.latent)
        return;
    const T *const weights = p.kv_b + (long long)head * p.plain * p.latent + column;
    W sum[TOGETHER][2] = {};
#pragma unroll 8
    for (int d = 0; d < p.plain; d++) {
        const ignis_pack<T, 2> w = ignis_load<2>(weights + (long long)d * p.latent);
#pragma unroll
        for (int r = 0; r < TOGETHER; r++) {
            sum[r][0] += q[r][d] * W(w[0]);
            sum[r][1] += q[r][d] * W(w[1]);
        }
    }
#pragma unroll
    for (int r = 0; r < TOGETHER; r++)
        if (r < live)
            ignis_store(to + r * step + column, ignis_pack_round<T>(sum[r]));
}

/*  Multiplies the latents that attention gives with the weights of values. A warp has a column of the result.
    grid = blocks of columns of a head, heads, blocks of TOGETHER rows. */
extern "C" __global__ void __launch_bounds__(THREADS) ignis_latent_values(ignis__latent p)
{
    constexpr int N = 16 / sizeof(T);
    const int head = blockIdx.y, first = blockIdx.z * TOGETHER, live = min(TOGETHER, p.count - first),
              column = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long step = (long long)p.heads * p.latent;
    const T *const from = p.attended + first * step + (long long)head * p.latent;
    ignis_grid_dependency();
    if (column >= p.value_dim)
        return;
    const T *const weights =
        p.kv_b + ((long long)p.heads * p.plain + (long long)head * p.value_dim + column) * p.latent;
    W sum[TOGETHER] = {};
    for (int at = lane * N; at < p.latent; at += 32 * N) {
        const auto w = ignis_load<N>(weights + at);
#pragma unroll
        for (int r = 0; r < TOGETHER; r++) {
            const auto x = ignis_load<N>(from + min(r, live - 1) * step + at);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[r] += W(w[i]) * W(x[i]);
        }
    }
#pragma unroll
    for (int r = 0; r < TOGETHER; r++) {
        sum[r] = ignis_warp_sum(sum[r]);
        if (r < live && lane == 0)
            p.out[(long long)(first + r) * p.heads * p.value_dim + head * p.value_dim + column] = T(sum[r]);
    }
}
