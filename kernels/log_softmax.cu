// SPDX-License-Identifier: MIT
/*  log_softmax.cu - the logarithm of softmax over the rows of [rows, n], forward and backward

        y = x - max - log(sum of exp(x - max))    dx = dy - exp(y) * sum of dy

    log_sums [2, rows], ignis_wide<T>, has the maximum of each row, and after them the logarithms, from which
    backward makes exp(y) as exactly as forward would: y itself is rounded. They are never added up: a large
    maximum would cost the logarithm its digits. A row of nothing but -infinity has no probability anywhere:
    it stays -infinity, and its gradient is 0. NaN and +infinity make the whole row NaN.

    One program per element type: compiled with -DIGNIS_T=<1 to 4>. Names of kernels as in softmax.cuh. */
#include "softmax.cuh"

template <typename Team, int N>
__device__ void forward(T *y, Wide *log_sums, const T *x, long long rows, long long n, int kept)
{
    for (long long r = Team::first(); r < rows; r += Team::count()) {
        const T *from = x + r * n;
        T *to = y + r * n;
        const ignis_row<T, Team, N> row(from, n, kept);
        ignis_batch<T, N> xs;
        int last;
        row.load(xs, from, 0);
        const exponentials all = sum_up(row, xs, from, last);
        const Wide log_sum = ignis_log<T>(all.sum), less = all.sum == 0 ? Wide(0) : log_sum;
        if (Team::thread() == 0) {
            log_sums[r] = all.shift;
            log_sums[rows + r] = log_sum;
        }
        for (int round = last; round >= 0; round--) {
            if (round != last)
                row.recall(xs, from, round);
            row.each(
                round,
                [&](int column, auto &x) {
                    Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                    for (int i = 0; i < x.count; i++)
                        values[i] = ignis_wide_at(x, i) - all.shift - less;
                    ignis_store(to + column, ignis_pack_round<T>(values));
                },
                xs);
        }
    }
}

template <typename Team, int N>
__device__ void backward(T *dx, const T *dy, const T *x, const Wide *log_sums, long long rows, long long n, int kept)
{
    for (long long r = Team::first(); r < rows; r += Team::count()) {
        const T *from_x = x + r * n, *from_dy = dy + r * n;
        T *to = dx + r * n;
        const ignis_row<T, Team, N> row(from_x, n, kept);
        ignis_batch<T, N> xs, grads;
        Wide sum = 0;
        int last = 0;
        for (int round = 0; row.has(round); round++) {
            row.load(xs, from_x, round);
            row.load(grads, from_dy, round);
            row.keep(xs, round, 0, 2);
            row.keep(grads, round, 1, 2);
            row.each(
                round,
                [&](int, auto &grad) {
#pragma unroll
                    for (int i = 0; i < grad.count; i++)
                        sum += ignis_wide_at(grad, i);
                },
                grads);
            last = round;
        }
        sum = Team::template reduce<ignis_sum>(sum);
        const Wide log_sum = log_sums[rows + r];
        const bool nothing = log_sum == -ignis_infinity<Wide>(); /* has any probability */
        const ignis_exp_less<T> exp_of(log_sums[r], exp(-log_sum));
        for (int round = last; round >= 0; round--) {
            if (round != last) {
                row.recall(xs, from_x, round, 0, 2);
                row.recall(grads, from_dy, round, 1, 2);
            }
            row.each(
                round,
                [&](int column, auto &x, auto &grad) {
                    Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                    for (int i = 0; i < x.count; i++)
                        values[i] = nothing ? Wide(0) : ignis_wide_at(grad, i) - exp_of(ignis_wide_at(x, i)) * sum;
                    ignis_store(to + column, ignis_pack_round<T>(values));
                },
                xs, grads);
        }
    }
}

extern "C" __global__ void __launch_bounds__(128, WARP_BLOCKS)
    ignis_log_softmax_warp(T *y, Wide *log_sums, const T *x, long long rows, long long n)
{
    ignis_grid_dependency();
    forward<ignis_warp_team, PACK>(y, log_sums, x, rows, n, 0);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    ignis_log_softmax_block(T *y, Wide *log_sums, const T *x, long long rows, long long n, int packed, int kept)
{
    ignis_grid_dependency();
    if (packed)
        forward<ignis_block_team, PACK>(y, log_sums, x, rows, n, kept);
    else
        forward<ignis_block_team, 1>(y, log_sums, x, rows, n, 0);
}

/*  Packed rows of several rounds, as ignis_softmax_long. */
extern "C" __global__ void __launch_bounds__(512, VOCABULARY_BLOCKS)
    ignis_log_softmax_long(T *y, Wide *log_sums, const T *x, long long rows, long long n, int, int kept)
{
    ignis_grid_dependency();
    forward<ignis_block_team, PACK>(y, log_sums, x, rows, n, kept);
}

extern "C" __global__ void __launch_bounds__(128, 4)
    ignis_log_softmax_backward_warp(T *dx, const T *dy, const T *x, const Wide *log_sums, long long rows, long long n)
{
    ignis_grid_dependency();
    backward<ignis_warp_team, PACK>(dx, dy, x, log_sums, rows, n, 0);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    ignis_log_softmax_backward_block(T *dx, const T *dy, const T *x, const Wide *log_sums, long long rows, long long n,
                                     int packed, int kept)
{
    ignis_grid_dependency();
    if (packed)
        backward<ignis_block_team, PACK>(dx, dy, x, log_sums, rows, n, kept);
    else
        backward<ignis_block_team, 1>(dx, dy, x, log_sums, rows, n, 0);
}
