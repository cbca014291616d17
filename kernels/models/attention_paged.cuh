// SPDX-License-Identifier: MIT
/*  models/attention_paged.cuh - params, splits and the combination of splits of paged attention

    Each row is a token at a position of its sequence, and sees the keys up to that position. Keys are divided into
    at most SPLITS splits. Blocks take splits in turn; the block that ends last combines their results, in their
    order. Splits depend on the position alone. So a row has the same bits in any batch, with any number of blocks,
    and with a cache of any size. Positions and pages are in device memory: a captured launch follows the sequences.
*/
#ifndef IGNIS_ATTENTION_PAGED_CUH
#define IGNIS_ATTENTION_PAGED_CUH

#include "ignis.cuh"
#include "generate.cuh"
#include "attention.cuh"

#ifndef IGNIS_HEAD_DIM
#define IGNIS_HEAD_DIM 64
#endif
/*  1: rows may see a window of keys, scores may have a softcap, and heads sinks */
#ifndef IGNIS_WINDOW
#define IGNIS_WINDOW 0
#endif
/*  the type of keys and values: see cache_types.cuh */
#ifndef IGNIS_CACHE_TYPE
#define IGNIS_CACHE_TYPE 0
#endif

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> W, Wide;
#include "shared/models/kv_cache.h"
#include "cache_types.cuh"
template <typename> struct pair_of {
    typedef float2 type;
};
template <> struct pair_of<double> {
    typedef double2 type;
};
typedef pair_of<W>::type W2;

constexpr int SPLIT = IGNIS__SPLIT, SPLITS = IGNIS__SPLITS;
constexpr double LOG2_E = 1.44269504088896340736;
constexpr bool WINDOW = IGNIS_WINDOW;
constexpr int TYPE = IGNIS_CACHE_TYPE;

/*  The splits of the keys that a row sees. The first split begins with the tile of the first key. */
struct paged_splits {
    /* begin, end: of the keys; base: the first key of the first split; keys: of a split; count: splits that have keys
     */
    int begin, base, end, keys, count;

    __device__ explicit paged_splits(int end, int window = 0)
        : begin(WINDOW && window > 0 ? max(end - window, 0) : 0), base(begin / SPLIT * SPLIT), end(end)
    {
        const int tiles = (end - base + SPLIT - 1) / SPLIT;
        keys = SPLIT * ((tiles + SPLITS - 1) / SPLITS);
        count = end > 0 ? (end - base + keys - 1) / keys : 0;
    }
    __device__ int from(int split) const { return base + split * keys; }
};

/*  Applies the softcap to a score in units of log 2. */
template <typename F> __device__ inline F with_softcap(F score, double softcap)
{
    const F cap = F(softcap * LOG2_E);
    return softcap > 0 ? cap * F(tanh(score / cap)) : score;
}

/*  Adds the sink of a head (Xiao et al. 2024) to the sum of weights 2^(score - top): it takes a share of the softmax,
    and has no value. */
__device__ inline W with_sink(const ignis__paged &p, int head, W sum, W top)
{
    return WINDOW && p.sinks ? sum + power_of_2(W(p.sinks[head]) * W(LOG2_E) - top) : sum;
}

/*  The query heads of a block, at most `most`, which share a key head. */
struct paged_heads {
    int kv, first, count, row;

    __device__ paged_heads(int kv, int first, int count, int row) : kv(kv), first(first), count(count), row(row) {}
    /*  p: has the head counts; number: of such a group of heads. Row: the block's, unless `row` is set. */
    template <typename Numbers> __device__ paged_heads(const Numbers &p, int most, int number)
    {
        const int group = p.heads / p.kv_heads, passes = (group + most - 1) / most;
        kv = number / passes;
        first = kv * group + number % passes * most;
        count = min(most, (kv + 1) * group - first);
        row = blockIdx.z;
    }
    /*  Returns where the result of a split for a head is; then where the heads' output is. */
    __device__ W *found(const ignis__paged &p, int h, int split) const
    {
        return p.scratch + (((long long)row * p.heads + first + h) * p.splits + split) * (2 + p.head_dim);
    }
    __device__ T *out(const ignis__paged &p) const { return p.out + ((long long)row * p.heads + first) * p.head_dim; }
};

/*  loaded side by side, because each round waits for memory */
constexpr int SPLITS_AT_A_TIME = sizeof(W) == 8 ? 8 : 12;

/*  Combines the results of all splits for two elements of a head. load(split, tops, two): reads the greatest score
    and the sum, and the two elements. */
template <typename Load> __device__ inline W2 combine_two(const ignis__paged &p, int head, int splits, Load load)
{
    W top = -ignis_infinity<W>(), sum = 0, x = 0, y = 0;
    for (int from = 0; from < splits; from += SPLITS_AT_A_TIME) {
        W2 tops[SPLITS_AT_A_TIME], found[SPLITS_AT_A_TIME];
        W higher = top;
#pragma unroll
        for (int i = 0; i < SPLITS_AT_A_TIME; i++)
            if (from + i < splits)
                load(from + i, tops[i], found[i]);
#pragma unroll
        for (int i = 0; i < SPLITS_AT_A_TIME; i++)
            if (from + i < splits)
                higher = max(higher, tops[i].x);
        /* of the splits before; each split has a key, so that `higher` is finite */
        const W factor = power_of_2(top - higher);
        sum *= factor;
        x *= factor;
        y *= factor;
        top = higher;
#pragma unroll
        for (int i = 0; i < SPLITS_AT_A_TIME; i++)
            if (from + i < splits) {
                const W weight = power_of_2(tops[i].x - top);
                sum += weight * tops[i].y;
                x += weight * found[i].x;
                y += weight * found[i].y;
            }
    }
    sum = with_sink(p, head, sum, top);
    W2 two;
    two.x = splits > 0 ? x / sum : W(0);
    two.y = splits > 0 ? y / sum : W(0);
    return two;
}

/*  Combines the results of all splits for these heads, and writes their output. */
__device__ inline void combine_heads(const ignis__paged &p, const paged_heads &heads, int splits, int thread,
                                     int threads)
{
    for (int at = 2 * thread; at < heads.count * p.head_dim; at += 2 * threads) {
        const int d = at % p.head_dim;
        const W *found = heads.found(p, at / p.head_dim, 0);
        /* not by L1: other blocks have written it */
        const W2 two = combine_two(p, heads.first + at / p.head_dim, splits, [&](int split, W2 &tops, W2 &two) {
            const W *part = found + split * (2 + p.head_dim);
            tops = __ldcg((const W2 *)part);
            two = __ldcg((const W2 *)(part + 2 + d));
        });
        heads.out(p)[at] = T(two.x);
        heads.out(p)[at + 1] = T(two.y);
    }
}

/*  Ends a block that had a split, or block 0 if there are none: the last block of these heads combines the results of
    the splits. All threads call it. A block without a split must not, as it would be counted. */
__device__ inline void combine_by_the_last(const ignis__paged &p, const paged_heads &heads, int splits)
{
    __shared__ bool is_last;
    const int blocks = min(splits, (int)gridDim.x);
    __syncthreads();
    if (blocks > 1) {
        uint32_t *ended = p.ended + (long long)blockIdx.z * p.heads + heads.first;
        if (threadIdx.x == 0) {
            is_last = ignis_ptx_atom_add_acq_rel(ended, 1) == blocks - 1;
            if (is_last)
                *ended = 0;
        }
        __syncthreads();
        if (!is_last)
            return;
    }
    combine_heads(p, heads, splits, threadIdx.x, blockDim.x);
}

#endif /* IGNIS_ATTENTION_PAGED_CUH */
