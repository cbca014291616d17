// SPDX-License-Identifier: MIT
/*  models/attention_paged.cu - attention of new tokens over a paged KV cache, on plain cores

    For f32 and f64, and for f16 and bf16 below sm_80. How keys are divided into splits: see attention_paged.cuh.
    One program per type and size of heads: compiled with -DIGNIS_T=<ignis_dtype> -DIGNIS_HEAD_DIM=<64, 128 or 256>,
    which serves smaller heads, too; with -DIGNIS_CACHE_TYPE=<1 to 3>, too, of f32, f16 and bf16. head_dim is a multiple
    of 8.
*/
#include "attention_paged.cuh"

constexpr int WARPS = 4;
constexpr int PACK = 16 / sizeof(T);
constexpr int LANES = IGNIS_HEAD_DIM / PACK < 32 ? IGNIS_HEAD_DIM / PACK : 32; /* lanes that share a key */
constexpr int CHUNKS = IGNIS_HEAD_DIM / LANES / PACK;                          /* packs of a key that a lane has */
/*  keys that the warps of a block have side by side */
constexpr int KEYS = WARPS * (32 / LANES);
/*  keys of a lane that are loaded at a time */
constexpr int BATCH = sizeof(T) == 8 ? 1 : 4;

/*  Loads a lane's packs of a row; zeros after its end. */
__device__ inline void load_row(ignis_pack<T> (&part)[CHUNKS], const T *row, int head_dim)
{
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const int d = (threadIdx.x % LANES + LANES * c) * PACK;
        if (d < head_dim) /* not by L1, which may have what was there before earlier kernels ran */
            part[c] = ignis_pack_of<ignis_pack<T>>(__ldcg((const uint4 *)(row + d)));
        else
            part[c] = ignis_pack<T>{};
    }
}

/*  Loads a lane's packs of row r of a cell. */
__device__ inline void load_of_cell(ignis_pack<T> (&part)[CHUNKS], const uint8_t *cell, int r, int head_dim)
{
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const int d = (threadIdx.x % LANES + LANES * c) * PACK;
        if constexpr (TYPE)
            part[c] = d < head_dim ? cache_read<T, TYPE, PACK>(cell, head_dim, r, d) : ignis_pack<T>{};
    }
}

/*  Makes the compiler take the packs for new values. The next head converts them again, because all of them as floats
    would take too many registers. */
__device__ inline void convert_again(ignis_pack<T> (&parts)[BATCH][CHUNKS])
{
    if constexpr (ignis_is_half<T>)
#pragma unroll
        for (int j = 0; j < BATCH; j++)
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                uint4 &words = *(uint4 *)&parts[j][c];
                asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
            }
}

template <int G> struct findings {
    W top[WARPS][G], sum[WARPS][G], out[WARPS][G][IGNIS_HEAD_DIM];
};

/*  Computes attention of G query heads of a group, over the keys of a block's splits. */
template <int G> __device__ inline void walk(const ignis__paged &p, findings<G> &found)
{
    const ignis__generate_row &row = p.rows[blockIdx.z];
    const paged_heads heads(p, G, blockIdx.y); /* the last group may be smaller; then its first head is repeated */
    const paged_splits splits(row.position + 1, p.window);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, end = splits.end;
    int from = splits.from(blockIdx.x), to = min(end, from + splits.keys);
    const generate_cache<const T> cache = {p.k, p.kv_heads, p.head_dim}; /* values have the layout of keys */
    const W scale = W(p.scale * LOG2_E);
    ignis_pack<T> k_part[BATCH][CHUNKS], v_part[BATCH][CHUNKS];
    long long place[BATCH];

    /* Keys and values from `at` on: their places, then those from before the earlier kernels, and those that these
       may write. */
    const auto key_of = [&](int at, int j) { return min(at + (int)threadIdx.x / LANES + j * KEYS, to - 1); };
    const auto find = [&](int at) {
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            place[j] = TYPE ? ((long long)row.pages[p.table + key_of(at, j) / PAGE] * p.kv_heads + heads.kv) *
                                  cache_cell(TYPE, p.head_dim)
                            : cache.offset(row.pages + p.table, key_of(at, j), heads.kv);
    };
    const auto fetch = [&](int at, bool old, bool fresh) {
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            if (!(p.settled && key_of(at, j) < end - 1 ? old : fresh)) {
                continue;
            } else if (TYPE) { /* places are those of cells */
                load_of_cell(k_part[j], (const uint8_t *)p.k + place[j], key_of(at, j) % PAGE, p.head_dim);
                load_of_cell(v_part[j], (const uint8_t *)p.v + place[j], key_of(at, j) % PAGE, p.head_dim);
            } else {
                load_row(k_part[j], p.k + place[j], p.head_dim);
                load_row(v_part[j], p.v + place[j], p.head_dim);
            }
    };
    ignis_grid_dependents_launch();
    if (from < end) {
        find(from);
        fetch(from, true, false);
    }
    ignis_grid_dependency_wait();
    if (end <= 0 && blockIdx.x == 0) /* a row that does not exist gets zeros */
        combine_by_the_last(p, heads, 0);
    if (from >= end)
        return;

    W q[G][CHUNKS][PACK];
    fetch(from, false, true);
#pragma unroll
    for (int g = 0; g < G; g++) {
        ignis_pack<T> part[CHUNKS];
        load_row(part, p.q + blockIdx.z * p.q_row + (heads.first + (g < heads.count ? g : 0)) * p.head_dim, p.head_dim);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int i = 0; i < PACK; i++)
                q[g][c][i] = W(part[c][i]) * scale;
    }

    for (int split = blockIdx.x; split < splits.count; split += gridDim.x) {
        W out[G][CHUNKS][PACK], top[G], sum[G];
#pragma unroll
        for (int g = 0; g < G; g++) {
            top[g] = -ignis_infinity<W>();
            sum[g] = 0;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int i = 0; i < PACK; i++)
                    out[g][c][i] = 0;
        }
        if (split > blockIdx.x)
            __syncthreads(); /* all have read the results of the last split */
        for (int at = from; at < to; at += KEYS * BATCH) {
            const int place = at + threadIdx.x / LANES;
            if (at > from) {
                find(at);
                fetch(at, true, true);
            }
#pragma unroll
            for (int g = 0; g < G; g++) {
                W score[BATCH], higher = top[g];
                if (g > 0) {
                    convert_again(k_part);
                    convert_again(v_part);
                }
#pragma unroll
                for (int j = 0; j < BATCH; j++) {
                    W x = 0;
#pragma unroll
                    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                        for (int i = 0; i < PACK; i++)
                            x += q[g][c][i] * W(k_part[j][c][i]);
                    x = reduce_lanes<1, LANES, ignis_sum>(x);
                    if (WINDOW)
                        x = with_softcap(x, p.softcap);
                    score[j] = place + j * KEYS < to && place + j * KEYS >= splits.begin ? x : -ignis_infinity<W>();
                    higher = max(higher, score[j]);
                }
                const W base = higher == -ignis_infinity<W>() ? W(0) : higher; /* these lanes had no key yet */
                const W factor = power_of_2(top[g] - base);
                top[g] = higher;
                sum[g] *= factor;
#pragma unroll
                for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                    for (int i = 0; i < PACK; i++)
                        out[g][c][i] *= factor;
#pragma unroll
                for (int j = 0; j < BATCH; j++) {
                    const W weight = power_of_2(score[j] - base);
                    sum[g] += weight;
#pragma unroll
                    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                        for (int i = 0; i < PACK; i++)
                            out[g][c][i] += weight * W(v_part[j][c][i]);
                }
            }
        }

        /* Combines the keys of a warp, then the warps. Keys of the next split are in flight meanwhile. */
        if (split + (int)gridDim.x < splits.count) {
            from = splits.from(split + gridDim.x);
            to = min(end, from + splits.keys);
            find(from);
            fetch(from, true, true);
        }
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
        for (int at = threadIdx.x; at < heads.count * p.head_dim; at += 32 * WARPS) {
            const int g = at / p.head_dim, d = at % p.head_dim;
            W block_top = found.top[0][g], block_sum = 0, x = 0;
            for (int w = 1; w < WARPS; w++)
                block_top = max(block_top, found.top[w][g]);
            for (int w = 0; w < WARPS; w++) {
                const W factor = power_of_2(found.top[w][g] - block_top);
                block_sum += found.sum[w][g] * factor;
                x += found.out[w][g][d] * factor;
            }
            W *result = heads.found(p, g, split);
            if (splits.count == 1) { /* no other split contributes */
                heads.out(p)[at] = T(x / with_sink(p, heads.first + g, block_sum, block_top));
                continue;
            }
            result[2 + d] = x;
            if (d == 0) {
                result[0] = block_top;
                result[1] = block_sum;
            }
        }
    }
    if (splits.count > 1)
        combine_by_the_last(p, heads, splits.count);
}

/*  grid = blocks that divide the splits, kv_heads * ceil(heads / kv_heads / G), rows. */
#define PAGED(G)                                                                                          \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 1) ignis_attention_paged_##G(ignis__paged p) \
    {                                                                                                     \
        __shared__ findings<G> found;                                                                     \
        walk<G>(p, found);                                                                                \
    }
PAGED(1)
PAGED(2)
