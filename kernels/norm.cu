// SPDX-License-Identifier: MIT
/*  norm.cu - layer_norm and rms_norm over the rows of [rows, n], forward and backward: see norm.cuh

    One program per element type: compiled with -DIGNIS_T=<1 to 4>.

        forward             any grid; _warp, _row and _long: packed only; _row: 4 packs a thread at most, _long: 8;
        _block: blocks of 32 to
                            512 threads, kept rounds in dynamic shared memory
        backward_averages, backward_columns
                            backward for rows that are too long for those of norm_grad.cu, or that begin at
                            other addresses modulo 16 in one array than in another. columns: few blocks of
                            rows, each of which leaves one row of partial sums of dw, and of db. packed may be
                            IGNIS__NORM_UNALIGNED; then they are a multiple of the rows after which one begins
                            at the same address modulo 16 again
        backward_sum        sums the partial sums, of those kernels, too */
#include "norm.cuh"

#define FORWARD(name, rms)                                                                                         \
    extern "C" __global__ void __launch_bounds__(128, FORWARD_WARP_BLOCKS) ignis_##name##_warp(                    \
        T *y, Wide *mean, Wide *rstd, const T *x, const W *w, const W *b, long long rows, long long n, double eps) \
    {                                                                                                              \
        ignis_grid_dependency();                                                                                   \
        forward<rms, false, ignis_warp_team, PACK>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, 0);                 \
    }                                                                                                              \
    extern "C" __global__ void __launch_bounds__(512, FORWARD_BLOCKS)                                              \
        ignis_##name##_block(T *y, Wide *mean, Wide *rstd, const T *x, const W *w, const W *b, long long rows,     \
                             long long n, double eps, int packed, int kept)                                        \
    {                                                                                                              \
        ignis_grid_dependency();                                                                                   \
        if (packed)                                                                                                \
            forward<rms, false, ignis_block_team, PACK>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, kept);         \
        else                                                                                                       \
            forward<rms, false, ignis_block_team, 1>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, 0);               \
    }
FORWARD(layer_norm, false)
FORWARD(rms_norm, true) /* mean and b are not used */

#define FORWARD_ROW(name, rms, blocks, packs)                                                                      \
    extern "C" __global__ void __launch_bounds__(512, blocks) ignis_##name(                                        \
        T *y, Wide *mean, Wide *rstd, const T *x, const W *w, const W *b, long long rows, long long n, double eps) \
    {                                                                                                              \
        ignis_grid_dependency();                                                                                   \
        forward_row<rms, false, packs>(y, mean, rstd, x, w, b, rows, n, (Wide)eps);                                \
    }
FORWARD_ROW(layer_norm_row, false, FORWARD_ROW_BLOCKS, IGNIS_ROW_PACKS)
FORWARD_ROW(layer_norm_long, false, FORWARD_BLOCKS, IGNIS__NORM_LONG_PACKS)
FORWARD_ROW(rms_norm_row, true, FORWARD_ROW_BLOCKS, IGNIS_ROW_PACKS)
FORWARD_ROW(rms_norm_long, true, FORWARD_BLOCKS, IGNIS__NORM_LONG_PACKS)

/*  The gradient of an element, from its h and g and their averages. */
template <bool rms> __device__ inline Wide gradient(Wide h, Wide g, Wide rstd, Wide average_g, Wide average_gh)
{
    return rstd * (rms ? g - h * average_gh : g - average_g - h * average_gh);
}

/*  Two sums for the price of one wait. */
__device__ inline void reduce_two(Wide &a, Wide &b)
{
    a = ignis_warp_sum(a);
    b = ignis_warp_sum(b);
    __shared__ Wide partial[2][16]; /* one per warp */
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads(); /* the block may still be reading partial for the previous row */
    if (lane == 0) {
        partial[0][warp] = a;
        partial[1][warp] = b;
    }
    __syncthreads();
    a = b = 0;
    for (int i = 0; i < warps; i++) {
        a += partial[0][i];
        b += partial[1][i];
    }
}

/*  The averages of g and g * h of every row, for backward_columns. */
template <bool rms, int N>
__device__ void averages(Wide *averages_g, Wide *averages_gh, const T *dy, const T *x, const W *w, const Wide *means,
                         const Wide *rstds, long long rows, long long n)
{
    ignis_batch<T, N> xs, gs;

    for (long long r = blockIdx.x; r < rows; r += gridDim.x) {
        const ignis_row<T, ignis_block_team, N> row(x + r * n, n);
        const Wide mean = rms ? Wide(0) : means[r], rstd = rstds[r];
        Wide sum_g = 0, sum_gh = 0;
        for (int round = 0; row.has(round); round++) {
            row.load(xs, x + r * n, round);
            row.load(gs, dy + r * n, round);
            row.each(
                round,
                [&](int column, auto &x, auto &grad) {
                    const auto ws = load_columns<ignis_pack_count<decltype(x)>>(w, column, n);
#pragma unroll
                    for (int i = 0; i < x.count; i++) {
                        const Wide h = (Wide(x[i]) - mean) * rstd, g = Wide(grad[i]) * Wide(ws[i]);
                        sum_g += g;
                        sum_gh += g * h;
                    }
                },
                xs, gs);
        }
        reduce_two(sum_g, sum_gh);
        if (threadIdx.x == 0) {
            averages_g[r] = sum_g / Wide(n);
            averages_gh[r] = sum_gh / Wide(n);
        }
    }
}

/*  dx, and partial sums of dw and db: a thread has the N columns from this one on, its block the rows
    blockIdx.y, blockIdx.y + gridDim.y, ... */
template <bool rms, int N>
__device__ void columns(long long column, T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const W *w,
                        const Wide *means, const Wide *rstds, const Wide *averages_g, const Wide *averages_gh,
                        long long rows, long long n)
{
    Wide dw[N] = {}, db[N] = {};
    const ignis_pack<W, N> ws = load_columns<N>(w, (int)column, n);
#pragma unroll 2
    for (long long r = blockIdx.y; r < rows; r += gridDim.y) {
        const ignis_pack<T, N> xs = ignis_load<N>(x + r * n + column), gs = ignis_load<N>(dy + r * n + column);
        const Wide mean = rms ? Wide(0) : means[r], rstd = rstds[r];
        Wide values[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            const Wide h = (Wide(xs[i]) - mean) * rstd, grad = gs[i];
            dw[i] += grad * h;
            db[i] += grad;
            values[i] = gradient<rms>(h, grad * Wide(ws[i]), rstd, averages_g[r], averages_gh[r]);
        }
        ignis_store(dx + r * n + column, ignis_pack_round<T>(values));
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        partial_w[blockIdx.y * n + column + i] = dw[i];
        if (!rms)
            partial_b[blockIdx.y * n + column + i] = db[i];
    }
}

/*  A thread has a pack of columns, or for unaligned rows one of the elements around the packs; rows of a
    block begin at the same address modulo 16. */
template <bool rms>
__device__ void columns_of_thread(T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const W *w,
                                  const Wide *means, const Wide *rstds, const Wide *averages_g, const Wide *averages_gh,
                                  long long rows, long long n, int packed)
{
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const ignis_row<T, ignis_block_team> row(x + blockIdx.y * n, n);
    const long long begin = packed ? row.begin : 0, packs = packed ? (row.end - row.begin) / PACK : 0,
                    single = thread - packs;
    const long long column = thread < packs ? begin + thread * PACK : single < begin ? single : single + packs * PACK;
    if (thread < packs)
        columns<rms, PACK>(column, dx, partial_w, partial_b, dy, x, w, means, rstds, averages_g, averages_gh, rows, n);
    else if (column < n)
        columns<rms, 1>(column, dx, partial_w, partial_b, dy, x, w, means, rstds, averages_g, averages_gh, rows, n);
}

#define BACKWARD_THREADS IGNIS__NORM_AVERAGES_THREADS
#define BACKWARD(name, rms)                                                                                           \
    extern "C" __global__ void __launch_bounds__(BACKWARD_THREADS, 1)                                                 \
        ignis_##name##_backward_averages(Wide *average_g, Wide *average_gh, const T *dy, const T *x, const W *w,      \
                                         const Wide *mean, const Wide *rstd, long long rows, long long n, int packed) \
    {                                                                                                                 \
        ignis_grid_dependency();                                                                                      \
        if (packed)                                                                                                   \
            averages<rms, PACK>(average_g, average_gh, dy, x, w, mean, rstd, rows, n);                                \
        else                                                                                                          \
            averages<rms, 1>(average_g, average_gh, dy, x, w, mean, rstd, rows, n);                                   \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(BACKWARD_THREADS, 1) ignis_##name##_backward_columns(                \
        T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const W *w, const Wide *mean,               \
        const Wide *rstd, const Wide *average_g, const Wide *average_gh, long long rows, long long n, int packed)     \
    {                                                                                                                 \
        ignis_grid_dependency();                                                                                      \
        columns_of_thread<rms>(dx, partial_w, partial_b, dy, x, w, mean, rstd, average_g, average_gh, rows, n,        \
                               packed);                                                                               \
    }
BACKWARD(layer_norm, false)
BACKWARD(rms_norm, true) /* mean and partial_b are not used */

/*  out[n] = the sum of partial[count, n] over count, in a fixed order: a lane has a column, a warp every
    SUM_WARPS-th row. Blocks with blockIdx.y = 1 and 2 sum a second and a third matrix, whose partial sums are
    after those of the first. */
#define SUM_WARPS 16
#define SUM_AHEAD 16 /* rows that a warp waits for at a time */
extern "C" __global__ void __launch_bounds__(32 * SUM_WARPS)
    ignis_norm_backward_sum(T *out, T *second_out, T *third_out, const Wide *partial, int count, long long n)
{
    ignis_grid_dependency();
    __shared__ Wide sums[SUM_WARPS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long column = (long long)blockIdx.x * 32 + lane;
    Wide sum = 0;
    out = blockIdx.y == 0 ? out : blockIdx.y == 1 ? second_out : third_out;
    partial += blockIdx.y * count * n;
    if (column < n)
        for (int i = warp; i < count; i += SUM_WARPS * SUM_AHEAD) {
            Wide parts[SUM_AHEAD];
#pragma unroll
            for (int j = 0; j < SUM_AHEAD; j++)
                parts[j] = i + j * SUM_WARPS < count ? partial[(i + j * SUM_WARPS) * n + column] : Wide(0);
#pragma unroll
            for (int j = 0; j < SUM_AHEAD; j++)
                sum += parts[j];
        }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && column < n) {
#pragma unroll
        for (int i = 1; i < SUM_WARPS; i++)
            sum += sums[i][lane];
        out[column] = T(sum);
    }
}
