// SPDX-License-Identifier: MIT
/*  softmax.cuh - the loop over rows that the kernels of softmax, log_softmax and cross-entropy have in common

    The maximum and the sum of exp(x - maximum) come out of one loop over the row (Milakov, Gimelshein: Online
    normalizer calculation for softmax, 2018).

    Compiled with -DIGNIS_T=<1 to 4>, the element type. Rows are shorter than 2^30.
    See ignis_row in ignis.cuh for how a row is shared out; kernels named _warp are for rows that a warp has
    in registers, and packed; _block takes any, in blocks of 32 to 512 threads, with kept rounds in dynamic
    shared memory; _long is for packed rows of several rounds. Any grid will do.
    packed: the rows of all arrays begin at the same addresses modulo 16. */
#ifndef IGNIS_SOFTMAX_CUH
#define IGNIS_SOFTMAX_CUH

#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define PACK (16 / (int)sizeof(T)) /* elements */

/*  Registers for this many blocks on an SM; wider types need more. */
#define WARP_BLOCKS (sizeof(T) == 2 ? 8 : 4)
#define VOCABULARY_BLOCKS \
    (sizeof(T) == 2 && __CUDA_ARCH__ >= 800 && __CUDA_ARCH__ < 1000 ? 2 : 1) /* for rows that need all threads */

/* >>sums -------------------------------------------------------------------------------------------------------- */

/*  Returns the shift of elements before exp: their maximum; but -infinity less itself would be NaN. */
__device__ inline Wide shift_of(Wide max) { return max == -ignis_infinity<Wide>() ? Wide(0) : max; }

struct exponentials {
    Wide shift; /* the maximum of the row, mostly */
    Wide sum;   /* of exp(x - shift) */
};

/*  Combines the results of all lanes. A lane without elements has the shift -infinity, and the sum 0. */
__device__ inline exponentials of_warp(exponentials mine)
{
    exponentials all;
    all.shift = ignis_warp_max(mine.shift);
    all.sum = ignis_warp_sum(mine.sum * ignis_exp_less<T>(shift_of(all.shift))(mine.shift));
    return all;
}

/*  A thread that has rows to itself, and so nobody to ask. */
struct thread_team {
    static constexpr bool is_block = false, one_round = true;
    static __device__ int size() { return 1; }
    static __device__ int thread() { return 0; }
    static __device__ long long first() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
    static __device__ long long count() { return gridDim.x * (long long)blockDim.x; }
};

/*  Of a row, for all threads of its team. The batch has the row's round 0, and is left with its round last. */
template <typename Team, int N, bool exact, int packs>
__device__ inline exponentials sum_up(const ignis_row<T, Team, N, exact, packs> &row, ignis_batch<T, N, packs> &xs,
                                      const T *from, int &last)
{
    Wide max = -ignis_infinity<Wide>(), sum = 0;
    last = 0;
    for (int round = 0; row.has(round); round++) {
        if (round)
            row.load(xs, from, round);
        row.keep(xs, round);
        Wide now = max;
        row.each(
            round, [&](int, auto &x) { now = ignis_max::combine(now, ignis_pack_max(x)); }, xs);
        const ignis_exp_less<T> exp_of(shift_of(now));
        sum *= exp_of(max);
        row.each(
            round,
            [&](int, auto &x) {
#pragma unroll
                for (int i = 0; i < x.count; i++)
                    sum += exp_of(ignis_wide_at(x, i));
            },
            xs);
        max = now;
        last = round;
    }
    exponentials all = {max, sum};
    if constexpr (!ignis_is_same<Team, thread_team>)
        all = of_warp(all);
    if constexpr (Team::is_block) {
        __shared__ exponentials of_warps[32];
        __syncthreads(); /* the block may still be reading the results of its row before */
        if (threadIdx.x % 32 == 0)
            of_warps[threadIdx.x / 32] = all;
        __syncthreads();
        all = of_warp(threadIdx.x % 32 < blockDim.x / 32 ? of_warps[threadIdx.x % 32]
                                                         : exponentials{-ignis_infinity<Wide>(), 0});
    }
    all.shift = shift_of(all.shift);
    return all;
}

/* >>rows of results ---------------------------------------------------------------------------------------------- */

/*  Writes y = results_of(r, exponentials of row r)(x) for all elements x. */
template <typename Team, int N, typename F>
__device__ inline void each_forward(T *y, const T *x, long long rows, long long n, int kept, F results_of)
{
    for (long long r = Team::first(); r < rows; r += Team::count()) {
        const T *from = x + r * n;
        T *to = y + r * n;
        const ignis_row<T, Team, N> row(from, n, kept);
        ignis_batch<T, N> xs;
        int last;
        row.load(xs, from, 0);
        const auto result_of = results_of(r, sum_up(row, xs, from, last));
        for (int round = last; round >= 0; round--) {
            if (round != last)
                row.recall(xs, from, round);
            row.each(
                round,
                [&](int column, auto &x) {
                    Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                    for (int i = 0; i < x.count; i++)
                        values[i] = result_of(ignis_wide_at(x, i));
                    ignis_store(to + column, ignis_pack_round<T>(values));
                },
                xs);
        }
    }
}

/*  Writes dx = gradients_of(r, sum of term(v, g))(v, g) for all elements v of `values` and g of dy. */
template <typename Team, int N, typename Term, typename F>
__device__ inline void each_backward(T *dx, const T *dy, const T *values, long long rows, long long n, int kept,
                                     Term term, F gradients_of)
{
    for (long long r = Team::first(); r < rows; r += Team::count()) {
        const T *from = values + r * n, *from_dy = dy + r * n;
        T *to = dx + r * n;
        const ignis_row<T, Team, N> row(from, n, kept);
        ignis_batch<T, N> batch, grads;
        Wide sum = 0;
        int last = 0;
        for (int round = 0; row.has(round); round++) {
            row.load(batch, from, round);
            row.load(grads, from_dy, round);
            row.keep(batch, round, 0, 2);
            row.keep(grads, round, 1, 2);
            row.each(
                round,
                [&](int, auto &v, auto &grad) {
#pragma unroll
                    for (int i = 0; i < grad.count; i++)
                        sum += term(ignis_wide_at(v, i), ignis_wide_at(grad, i));
                },
                batch, grads);
            last = round;
        }
        const auto gradient_of = gradients_of(r, Team::template reduce<ignis_sum>(sum));
        for (int round = last; round >= 0; round--) {
            if (round != last) {
                row.recall(batch, from, round, 0, 2);
                row.recall(grads, from_dy, round, 1, 2);
            }
            row.each(
                round,
                [&](int column, auto &v, auto &grad) {
                    Wide results[ignis_pack_count<decltype(v)>];
#pragma unroll
                    for (int i = 0; i < v.count; i++)
                        results[i] = gradient_of(ignis_wide_at(v, i), ignis_wide_at(grad, i));
                    ignis_store(to + column, ignis_pack_round<T>(results));
                },
                batch, grads);
        }
    }
}

#endif // IGNIS_SOFTMAX_CUH
