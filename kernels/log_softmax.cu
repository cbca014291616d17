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
    each_forward<Team, N>(y, x, rows, n, kept, [=](long long r, const exponentials &all) {
        const Wide shift = all.shift, log_sum = ignis_log<T>(all.sum), less = all.sum == 0 ? Wide(0) : log_sum;
        if (Team::thread() == 0) {
            log_sums[r] = shift;
            log_sums[rows + r] = log_sum;
        }
        return [=](Wide x) { return x - shift - less; };
    });
}

template <typename Team, int N>
__device__ void backward(T *dx, const T *dy, const T *x, const Wide *log_sums, long long rows, long long n, int kept)
{
    each_backward<Team, N>(
        dx, dy, x, rows, n, kept, [](Wide, Wide grad) { return grad; },
        [=](long long r, Wide sum) {
            const Wide log_sum = log_sums[rows + r];
            const bool nothing = log_sum == -ignis_infinity<Wide>(); /* has any probability */
            const ignis_exp_less<T> exp_of(log_sums[r], exp(-log_sum));
            return [=](Wide x, Wide grad) { return nothing ? Wide(0) : grad - exp_of(x) * sum; };
        });
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
