// SPDX-License-Identifier: MIT
/*  attention_paged.cuh - what the kernels of attention over a cache of pages share

    Each row is a token at a place of its sequence, and sees the keys up to that place. Keys are shared out in splits, of which there are SPLITS at
    most; blocks take them in turn, and what splits have found is combined in their order by the block that ends last. Splits follow from the place
    alone, so a row has the same bits whatever other rows there are, however many blocks, and however large the cache is. Positions and pages lie in
    device memory: a captured launch goes on with the sequences.
*/
#ifndef IGNIS_ATTENTION_PAGED_CUH
#define IGNIS_ATTENTION_PAGED_CUH

#include "ignis.cuh"
#include "generate.cuh"
#include "attention.cuh"

#ifndef IGNIS_HEAD_DIM
#define IGNIS_HEAD_DIM 64
#endif

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> W;
template <typename> struct pair_of {
    typedef float2 type;
};
template <> struct pair_of<double> {
    typedef double2 type;
};
typedef pair_of<W>::type W2;

constexpr int SPLIT = 64, SPLITS = 32; /* keys of a split are a multiple of that, and there are at most so many; the host has the same */
constexpr double LOG2_E = 1.44269504088896340736;

/*  ignis.h has the same struct. */
struct paged_params {
    const T *q; /* [rows, heads, head_dim], rows of q_row elements */
    T *out;     /* [rows, heads * head_dim] */
    const T *k, *v;
    const generate_row *rows;
    W *scratch; /* [rows, heads, splits, 2 + head_dim]: the greatest score, the sum of 2^(score - greatest), that of 2^(score - greatest) v */
    uint32_t *ended; /* [rows, heads]: blocks that have ended, of each group of heads; zeros before and behind the launch */
    long long q_row;
    double scale;
    int heads, kv_heads, head_dim, splits;
    int settled; /* kernels ahead write no keys and values of the row's sequence but those of the row itself */
    int count;   /* rows */
};

/*  The splits of a row's keys. */
struct paged_splits {
    int end, keys, count; /* of all keys; keys of a split; splits that have some */

    __device__ explicit paged_splits(int end) : end(end)
    {
        const int tiles = (end + SPLIT - 1) / SPLIT;
        keys = SPLIT * ((tiles + SPLITS - 1) / SPLITS);
        count = end > 0 ? (end + keys - 1) / keys : 0;
    }
};

/*  The query heads of a block, which share a key head: up to `most` of them. */
struct paged_heads {
    int kv, first, count, row;

    __device__ paged_heads(int kv, int first, int count, int row) : kv(kv), first(first), count(count), row(row) {}
    /*  p: what has their numbers; number: of such heads. Of the block's row, unless `row` is set. */
    template <typename Numbers> __device__ paged_heads(const Numbers &p, int most, int number)
    {
        const int group = p.heads / p.kv_heads, passes = (group + most - 1) / most;
        kv = number / passes;
        first = kv * group + number % passes * most;
        count = min(most, (kv + 1) * group - first);
        row = blockIdx.z;
    }
    /*  Where what a split has found of one of them is, and their result. */
    __device__ W *found(const paged_params &p, int h, int split) const
    {
        return p.scratch + (((long long)row * p.heads + first + h) * p.splits + split) * (2 + p.head_dim);
    }
    __device__ T *out(const paged_params &p) const { return p.out + ((long long)row * p.heads + first) * p.head_dim; }
};

constexpr int SPLITS_AT_A_TIME = sizeof(W) == 8 ? 8 : 12; /* loaded side by side: each round waits for memory */

/*  What all splits have found of two elements of a head, together. load(split, tops, two): the greatest score and the sum, and the two elements. */
template <typename Load> __device__ inline W2 combine_two(int splits, Load load)
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
        const W factor = power_of_2(top - higher); /* of what there was before; each split has a key, so that `higher` is a number */
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
    W2 two;
    two.x = splits > 0 ? x / sum : W(0);
    two.y = splits > 0 ? y / sum : W(0);
    return two;
}

/*  What all splits have found of these heads becomes their results. */
__device__ inline void combine_heads(const paged_params &p, const paged_heads &heads, int splits, int thread, int threads)
{
    for (int at = 2 * thread; at < heads.count * p.head_dim; at += 2 * threads) {
        const int d = at % p.head_dim;
        const W *found = heads.found(p, at / p.head_dim, 0);
        const W2 two = combine_two(splits, [&](int split, W2 &tops, W2 &two) { /* not by L1: other blocks have written it */
            const W *part = found + split * (2 + p.head_dim);
            tops = __ldcg((const W2 *)part);
            two = __ldcg((const W2 *)(part + 2 + d));
        });
        heads.out(p)[at] = T(two.x);
        heads.out(p)[at + 1] = T(two.y);
    }
}

/*  The end of a block: the last one of those with the same heads puts together what the splits have found. By all threads. */
__device__ inline void combine_by_the_last(const paged_params &p, const paged_heads &heads, int splits)
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
