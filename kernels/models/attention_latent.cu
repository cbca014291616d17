// SPDX-License-Identifier: MIT
/*  models/attention_latent.cu - attention of new tokens over a paged cache of latents

    All heads share the rows of the cache, whose first elements are the values, too. A block has a tile of rows in
    shared memory, so a step reads the cache once for the heads of a block; the blocks of other heads find it in the L2
    cache.
    How keys are divided into splits: see attention_paged.cuh. One program per type and size of rows: compiled with
    -DIGNIS_T=<ignis_dtype> -DIGNIS_LATENT=<elements of latents> -DIGNIS_ROTARY=<elements after them>, multiples of 8.
*/
#include "attention_paged.cuh"

#ifndef IGNIS_LATENT
#define IGNIS_LATENT 512
#define IGNIS_ROTARY 64
#endif

constexpr int WARPS = 8, HEADS = sizeof(W) == 8 ? 1 : 2; /* HEADS: of a warp */
constexpr int BATCH = sizeof(W) == 8 ? 2 : 4;            /* keys whose scores are in registers */
constexpr int LATENT = IGNIS_LATENT, WIDTH = LATENT + IGNIS_ROTARY;
constexpr int PAIRS = (WIDTH + 63) / 64, VALUES = (LATENT + 63) / 64; /* pairs of elements that a lane has */
constexpr int PACK = 16 / sizeof(T);
constexpr int BYTES = 36 << 10; /* of a tile, at most */
constexpr int FIT = BYTES / (WIDTH * (int)sizeof(W)), TILE = (FIT < 16 ? FIT : 16) / BATCH * BATCH;

/*  grid = blocks that divide the splits, ceil(heads / (WARPS * HEADS)), rows. p.head_dim is that of values, LATENT. */
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1) ignis_attention_latent(ignis__paged p)
{
    __shared__ __align__(16) W tile[TILE][WIDTH];
    const ignis__generate_row &row = p.rows[blockIdx.z];
    const paged_heads heads(p, WARPS * HEADS, blockIdx.y);
    const generate_cache<const T> cache = {p.k, 1, WIDTH};
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const W scale = W(p.scale * LOG2_E);
    ignis_grid_dependency();
    const paged_splits splits(row.position + 1);
    W q[HEADS][PAIRS][2];
    if (splits.end <= 0 && blockIdx.x == 0) /* a row that does not exist gets zeros */
        combine_by_the_last(p, heads, 0);
    if ((int)blockIdx.x >= splits.count)
        return;
#pragma unroll
    for (int g = 0; g < HEADS; g++) {
        const int head = heads.first + min(warp * HEADS + g, heads.count - 1);
        const T *const from = p.q + blockIdx.z * p.q_row + (long long)head * WIDTH;
#pragma unroll
        for (int c = 0; c < PAIRS; c++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                q[g][c][i] = 2 * lane + 64 * c < WIDTH ? W(from[2 * lane + 64 * c + i]) * scale : W(0);
    }
    for (int split = blockIdx.x; split < splits.count; split += gridDim.x) {
        const int from = splits.from(split), to = min(splits.end, from + splits.keys);
        W top[HEADS], sum[HEADS], out[HEADS][VALUES][2];
#pragma unroll
        for (int g = 0; g < HEADS; g++) {
            top[g] = -ignis_infinity<W>();
            sum[g] = 0;
#pragma unroll
            for (int c = 0; c < VALUES; c++)
                out[g][c][0] = out[g][c][1] = 0;
        }
        for (int at = from; at < to; at += TILE) {
            __syncthreads(); /* all have read the tile before */
            for (int i = threadIdx.x; i < TILE * WIDTH / PACK; i += 32 * WARPS) {
                const int key = i / (WIDTH / PACK), d = i % (WIDTH / PACK) * PACK;
                ignis_pack<T> part{};
                if (at + key < to) /* not by L1: see attention_paged.cu */
                    part = ignis_pack_of<ignis_pack<T>>(
                        __ldcg((const uint4 *)(p.k + cache.offset(row.pages + p.table, at + key, 0) + d)));
#pragma unroll
                for (int j = 0; j < PACK; j++)
                    tile[key][d + j] = W(part[j]);
            }
            __syncthreads();
#pragma unroll 1
            for (int first = 0; first < TILE && at + first < to; first += BATCH) {
                W score[HEADS][BATCH];
#pragma unroll
                for (int j = 0; j < BATCH; j++) {
                    W x[HEADS] = {};
#pragma unroll
                    for (int c = 0; c < PAIRS; c++) {
                        if (2 * lane + 64 * c >= WIDTH)
                            continue;
                        const W2 k = *(const W2 *)&tile[first + j][2 * lane + 64 * c];
#pragma unroll
                        for (int g = 0; g < HEADS; g++)
                            x[g] += q[g][c][0] * k.x + q[g][c][1] * k.y;
                    }
#pragma unroll
                    for (int g = 0; g < HEADS; g++) {
                        x[g] = ignis_warp_sum(x[g]);
                        score[g][j] = at + first + j < to ? x[g] : -ignis_infinity<W>();
                    }
                }
#pragma unroll
                for (int g = 0; g < HEADS; g++) {
                    W higher = top[g];
#pragma unroll
                    for (int j = 0; j < BATCH; j++)
                        higher = max(higher, score[g][j]);
                    const W base = higher == -ignis_infinity<W>() ? W(0) : higher, factor = power_of_2(top[g] - base);
                    top[g] = higher;
                    sum[g] *= factor;
#pragma unroll
                    for (int c = 0; c < VALUES; c++)
                        out[g][c][0] *= factor, out[g][c][1] *= factor;
#pragma unroll
                    for (int j = 0; j < BATCH; j++)
                        sum[g] += score[g][j] = power_of_2(score[g][j] - base);
                }
#pragma unroll
                for (int j = 0; j < BATCH; j++)
#pragma unroll
                    for (int c = 0; c < VALUES; c++) {
                        if (2 * lane + 64 * c >= LATENT)
                            continue;
                        const W2 v = *(const W2 *)&tile[first + j][2 * lane + 64 * c];
#pragma unroll
                        for (int g = 0; g < HEADS; g++) {
                            out[g][c][0] += score[g][j] * v.x;
                            out[g][c][1] += score[g][j] * v.y;
                        }
                    }
            }
        }
#pragma unroll
        for (int g = 0; g < HEADS; g++) {
            const int h = warp * HEADS + g;
            if (h >= heads.count)
                continue;
            W *const result = heads.found(p, h, split);
            T *const final = heads.out(p) + (long long)h * LATENT;
#pragma unroll
            for (int c = 0; c < VALUES; c++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int d = 2 * lane + 64 * c + i;
                    if (d >= LATENT)
                        continue;
                    if (splits.count == 1) /* no other split contributes */
                        final[d] = T(out[g][c][i] / sum[g]);
                    else
                        result[2 + d] = out[g][c][i];
                }
            if (splits.count > 1 && lane == 0) {
                result[0] = top[g];
                result[1] = sum[g];
            }
        }
    }
    if (splits.count > 1)
        combine_by_the_last(p, heads, splits.count);
}
