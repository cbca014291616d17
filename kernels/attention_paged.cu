// SPDX-License-Identifier: MIT
/*  attention_paged.cu - attention of new tokens over a cache of pages

    Each row is a token at a place of its sequence, and sees the keys up to that place. Keys are shared out in splits of SPLIT places, counted from
    the start of the sequence, and what splits have found is combined in their order. So a row has the same bits whatever other rows there are, and
    however large the cache is. Positions and pages lie in device memory: a captured launch goes on with the sequences.

    One program per type and size of heads: compiled with -DIGNIS_T=<ignis_dtype> -DIGNIS_HEAD_DIM=<64, 128 or 256>, which serves smaller heads,
    too. head_dim is a multiple of 8.
*/
#include "ignis.cuh"
#include "attention.cuh"
#include "generate.cuh"

#ifndef IGNIS_HEAD_DIM
#define IGNIS_HEAD_DIM 64
#endif

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> W;

constexpr int SPLIT = 256; /* the host has the same */
constexpr int WARPS = 4;
constexpr int PACK = 16 / sizeof(T);
constexpr int LANES = IGNIS_HEAD_DIM / PACK < 32 ? IGNIS_HEAD_DIM / PACK : 32; /* that have a key */
constexpr int CHUNKS = IGNIS_HEAD_DIM / LANES / PACK;                          /* packs that a lane has of it */
constexpr int KEYS = WARPS * (32 / LANES);                                     /* of a block at a time */

/*  ignis.h has the same struct. */
struct paged_params {
    const T *q; /* [rows, heads, head_dim], rows of q_row elements */
    T *out;     /* [rows, heads * head_dim] */
    const T *k, *v;
    const generate_row *rows;
    W *scratch; /* [rows, heads, splits, 2 + head_dim]: the greatest score, the sum of 2^(score - greatest), that of 2^(score - greatest) v */
    long long q_row;
    double scale;
    int heads, kv_heads, head_dim, splits;
};

/*  A lane's part of a row; zeros behind its end. */
__device__ inline void load_row(ignis_pack<T> (&part)[CHUNKS], const T *row, int head_dim)
{
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const int d = (threadIdx.x % LANES + LANES * c) * PACK;
        if (d < head_dim)
            part[c] = ignis_load(row + d);
        else
            part[c] = ignis_pack<T>{};
    }
}

template <int G> struct findings {
    W top[WARPS][G], sum[WARPS][G], out[WARPS][G][IGNIS_HEAD_DIM];
};

/*  G query heads of a group, over a split's keys. */
template <int G> __device__ inline void walk(const paged_params &p, findings<G> &found)
{
    const generate_row &row = p.rows[blockIdx.z];
    const int group = p.heads / p.kv_heads, passes = (group + G - 1) / G;
    const int kv_h = blockIdx.y / passes, first_h = kv_h * group + blockIdx.y % passes * G;
    const int heads = min(G, (kv_h + 1) * group - first_h); /* the last ones may be fewer; then the first is done again */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int end = row.position + 1, from = blockIdx.x * SPLIT, to = min(end, from + SPLIT);
    const generate_cache<const T> k = {p.k, p.kv_heads, p.head_dim}, v = {p.v, p.kv_heads, p.head_dim};
    const W scale = W(p.scale * 1.44269504088896340736);
    if (from >= end)
        return;

    W q[G][CHUNKS][PACK], out[G][CHUNKS][PACK], top[G], sum[G];
#pragma unroll
    for (int g = 0; g < G; g++) {
        ignis_pack<T> part[CHUNKS];
        load_row(part, p.q + blockIdx.z * p.q_row + (first_h + (g < heads ? g : 0)) * p.head_dim, p.head_dim);
        top[g] = -ignis_infinity<W>();
        sum[g] = 0;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int i = 0; i < PACK; i++) {
                q[g][c][i] = W(part[c][i]) * scale;
                out[g][c][i] = 0;
            }
    }

#pragma unroll 2
    for (int at = from; at < to; at += KEYS) {
        const int place = at + threadIdx.x / LANES, key = min(place, to - 1);
        ignis_pack<T> k_part[CHUNKS], v_part[CHUNKS];
        load_row(k_part, k.at(row.pages, key, kv_h), p.head_dim);
        load_row(v_part, v.at(row.pages, key, kv_h), p.head_dim);
#pragma unroll
        for (int g = 0; g < G; g++) {
            W score = 0;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int i = 0; i < PACK; i++)
                    score += q[g][c][i] * W(k_part[c][i]);
            score = reduce_lanes<1, LANES, ignis_sum>(score);
            score = place < to ? score : -ignis_infinity<W>();
            const W higher = max(top[g], score);
            const W base = higher == -ignis_infinity<W>() ? W(0) : higher; /* these lanes had no key yet */
            const W factor = power_of_2(top[g] - base), weight = power_of_2(score - base);
            top[g] = higher;
            sum[g] = sum[g] * factor + weight;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int i = 0; i < PACK; i++)
                    out[g][c][i] = out[g][c][i] * factor + weight * W(v_part[c][i]);
        }
    }

    /* The keys of a warp, then the warps. */
#pragma unroll
    for (int g = 0; g < G; g++) {
        const W higher = reduce_lanes<LANES, 32, ignis_max>(top[g]);
        const W factor = higher == -ignis_infinity<W>() ? W(0) : power_of_2(top[g] - higher);
        const W total = reduce_lanes<LANES, 32, ignis_sum>(sum[g] * factor);
        if (lane == 0) {
            found.top[warp][g] = higher;
            found.sum[warp][g] = total;
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int i = 0; i < PACK; i++) {
                const W x = reduce_lanes<LANES, 32, ignis_sum>(out[g][c][i] * factor);
                if (lane < LANES)
                    found.out[warp][g][(lane + LANES * c) * PACK + i] = x;
            }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < heads * p.head_dim; at += 32 * WARPS) {
        const int g = at / p.head_dim, d = at % p.head_dim;
        W block_top = found.top[0][g], block_sum = 0, x = 0;
        for (int w = 1; w < WARPS; w++)
            block_top = max(block_top, found.top[w][g]);
        for (int w = 0; w < WARPS; w++) {
            const W factor = power_of_2(found.top[w][g] - block_top);
            block_sum += found.sum[w][g] * factor;
            x += found.out[w][g][d] * factor;
        }
        W *result = p.scratch + (((long long)blockIdx.z * p.heads + first_h + g) * p.splits + blockIdx.x) * (2 + p.head_dim);
        result[2 + d] = x;
        if (d == 0) {
            result[0] = block_top;
            result[1] = block_sum;
        }
    }
}

/*  grid = splits, kv_heads * ceil(heads / kv_heads / G), rows. */
#define PAGED(G)                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(32 * WARPS) ignis_attention_paged_##G(paged_params p)                                      \
    {                                                                                                                                      \
        __shared__ findings<G> found;                                                                                                      \
        walk<G>(p, found);                                                                                                                 \
    }
PAGED(1)
PAGED(2)
PAGED(4)

/*  grid = heads, rows; 128 threads. A row that is not there gives zeros. */
extern "C" __global__ void __launch_bounds__(128) ignis_attention_paged_combine(paged_params p)
{
    const int end = p.rows[blockIdx.y].position + 1, splits = (end + SPLIT - 1) / SPLIT;
    const long long head = (long long)blockIdx.y * p.heads + blockIdx.x, size = 2 + p.head_dim;
    const W *parts = p.scratch + head * p.splits * size;
    W top = -ignis_infinity<W>();
    for (int i = 0; i < splits; i++)
        top = max(top, parts[i * size]);
    for (int d = threadIdx.x; d < p.head_dim; d += 128) {
        W sum = 0, x = 0;
        for (int i = 0; i < splits; i++) {
            const W weight = power_of_2(parts[i * size] - top);
            sum += weight * parts[i * size + 1];
            x += weight * parts[i * size + 2 + d];
        }
        p.out[head * p.head_dim + d] = T(splits > 0 ? x / sum : W(0));
    }
}
