// SPDX-License-Identifier: MIT
/*  attention_decode_mma.cu - attention of one query to all keys of a cache, on tensor cores

    As attention_decode.cu, which says why the keys are shared among blocks. The query heads that share a key
    head are the rows of one tile, up to 16 of them: with tensor cores they cost no more than one, and memory
    is all that counts. Each warp loops over keys of its own, and needs none of the others until the end.
    For sm_80 and up, and rows that are aligned to 16 bytes; compiled as attention_tiles.cuh says. */
#include "ignis.cuh"
#include "mma.cuh"
#include "attention.cuh"
#include "attention_tiles.cuh"

/*  Parameters that a benchmark may vary. The host has the resulting keys and bytes in its table of variants. */
#ifndef IGNIS_DECODE_WARPS
#define IGNIS_DECODE_WARPS (IGNIS_HEAD_DIM <= 128 ? 4 : 2)
#endif
#ifndef IGNIS_DECODE_KEYS /* a warp loops over at a time */
#define IGNIS_DECODE_KEYS 16
#endif
#ifndef IGNIS_DECODE_STAGES /* tiles of keys that a warp has or waits for */
#define IGNIS_DECODE_STAGES 3
#endif

constexpr int WARPS = IGNIS_DECODE_WARPS, KEYS = IGNIS_DECODE_KEYS, STAGES = IGNIS_DECODE_STAGES;
constexpr int HEADS = 16; /* query heads of a block */

/*  Loads the rows of q that a lane has as an A: heads first ... of which count exist. */
__device__ inline void load_heads(uint32_t (&q)[D / 16][1][4], const T *first, int count, int head_dim)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int h = lane / 4 + i % 2 * 8, d = k * 16 + i / 2 * 8 + lane % 4 * 2;
            q[k][0][i] = h < count && d < head_dim ? *(const uint32_t *)(first + h * head_dim + d) : 0;
        }
}

/*  The keys of a tile that a lane's rows, which are heads, see. */
struct decode_view {
    const Attention &p;
    int b, h, last_h, key, left;

    __device__ int first(int) const { return 0; }
    __device__ int limit(int) const { return left; }
    __device__ float score(float product, int r, int column) const
    {
        return attention_scores<true>(p, b, min(h + r, last_h))(product, 0, key + column);
    }
};

/*  grid = splits, kv_heads * ceil(heads / kv_heads / 16), batches; blocks of 32 * warps, shared memory for 2
    * keys * stages * warps rows. Every split has a key, except in shorter sequences. scratch has the layout
    of attention_combine. */
extern "C" __global__ void __launch_bounds__(32 * WARPS) ignis_sdpa_decode(Attention p, float *scratch, int per_split)
{
    constexpr int tile_bytes = KEYS * ROW_BYTES, stage_bytes = 2 * tile_bytes;
    const int group = p.heads / p.kv_heads, passes = (group + HEADS - 1) / HEADS;
    const int b = blockIdx.z, kv_h = blockIdx.y / passes, first_h = kv_h * group + blockIdx.y % passes * HEADS;
    const int heads = min(HEADS, (kv_h + 1) * group - first_h);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int end = p.keys(b),
              start = RANGE ? max(0, end - p.window) : 0; /* of the keys that the query sees; the query is last */
    const int from = start + blockIdx.x * per_split + warp * KEYS,
              to = min(end, start + (int)(blockIdx.x + 1) * per_split);
    const int count = max(0, (to - from + WARPS * KEYS - 1) / (WARPS * KEYS));
    const uint32_t stages = shared_address() + warp * STAGES * stage_bytes;
    const T *k = attention_head(p.k, b, kv_h), *v = attention_head(p.v, b, kv_h);
    const float scale = (float)p.scale * LOG2_E;

    const auto copy_keys = [&](int n) {
        if (n < count) {
            const uint32_t stage = stages + n % STAGES * stage_bytes;
            copy_tile<KEYS, 32>(stage, k, p.k.row, from + n * WARPS * KEYS, to, p.head_dim, lane);
            copy_tile<KEYS, 32>(stage + tile_bytes, v, p.v.row, from + n * WARPS * KEYS, to, p.head_dim, lane);
        }
        ignis_ptx_cp_async_commit();
    };
    for (int n = 0; n < STAGES - 1; n++)
        copy_keys(n);

    uint32_t q[D / 16][1][4];
    load_heads(q, attention_head(p.q, b, first_h), heads, p.head_dim);
    softmax<1> state;
#pragma unroll 1
    for (int n = 0; n < count; n++) {
        ignis_ptx_cp_async_wait<STAGES - 2>();
        __syncwarp(); /* the tile is there, and all lanes are done with the one before */
        copy_keys(n + STAGES - 1);
        const int left = to - from - n * WARPS * KEYS;
        const decode_view view = {p, b, first_h + lane / 4, first_h + heads - 1, from + n * WARPS * KEYS, left};
        softmax_step<true, true, 1, KEYS>(state, q, 0, stages + n % STAGES * stage_bytes, scale, view);
    }

    /* The warps combine their results in shared memory. */
    typedef float rows[HEADS];
    float *results = (float *)shared_memory(); /* [WARPS][HEADS][D], and then for each warp and head: */
    rows *tops = (rows *)(results + WARPS * HEADS * D), *sums = tops + WARPS;
    static_assert(WARPS * HEADS * (D + 2) * 4 <= WARPS * STAGES * stage_bytes, "the results fit where the tiles were");
    ignis_ptx_cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int h = lane / 4 + 8 * half;
        float sum = state.sum[0][half];
        sum += __shfl_xor_sync(0xffffffff, sum, 1);
        sum += __shfl_xor_sync(0xffffffff, sum, 2);
        if (lane % 4 == 0) {
            tops[warp][h] = state.top[0][half];
            sums[warp][h] = sum;
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            float *at = results + (warp * HEADS + h) * D + n * 8 + lane % 4 * 2;
            at[0] = state.out[0][n][2 * half];
            at[1] = state.out[0][n][2 * half + 1];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < heads * D; i += 32 * WARPS) {
        const int h = i / D, d = i % D;
        float top = tops[0][h], sum = 0, x = 0;
        for (int w = 1; w < WARPS; w++)
            top = fmaxf(top, tops[w][h]);
        for (int w = 0; w < WARPS; w++) {
            const float weight = (RANGE || BIASED) && sums[w][h] == 0 ? 0 : power_of_2(exponent(tops[w][h], top));
            sum += sums[w][h] * weight;
            x += results[(w * HEADS + h) * D + d] * weight;
        }
        float *result = scratch + (((long long)b * p.heads + first_h + h) * gridDim.x + blockIdx.x) * (p.head_dim + 2);
        if (d < p.head_dim)
            result[2 + d] = x;
        if (d == 0) {
            result[0] = top;
            result[1] = sum;
        }
    }
}

extern "C" __global__ void __launch_bounds__(128)
    ignis_sdpa_decode_combine(Attention p, const float *scratch, int splits)
{
    attention_combine(p, scratch, splits);
}
