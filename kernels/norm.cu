/*  norm.cu - layer_norm and rms_norm over the rows of [rows, n], forward and backward

        layer_norm  y = (x - mean) * rstd * w + b    rstd = 1 / sqrt(variance + eps)
                    (Ba, Kiros, Hinton: Layer Normalization, 2016)
        rms_norm    y = x * rstd * w                 rstd = 1 / sqrt(mean of x^2 + eps)
                    (Zhang, Sennrich: Root Mean Square Layer Normalization, 2019)

    With h = (x - mean) * rstd (mean 0 for rms_norm), g = dy * w, and avg over the row,
        dx = rstd * (g - avg(g) - h * avg(g * h))    without avg(g) for rms_norm
        dw = sum of dy * h over the rows, db = sum of dy

    One program per element type: compiled with -DIGNIS_T=<1 to 4>. Statistics are ignis_wide<T>, [rows]. Rows are shorter than 2^30.
    See ignis_row in ignis.cuh for how a row is shared out; kernels named _warp are for rows that a warp has in registers.
    packed: rows of all arrays, and w and b, begin at multiples of 16 bytes, and hold whole packs.

        forward             any grid; _warp: packed only; _block: blocks of 32 to 512 threads, kept rounds in dynamic shared memory
        backward            rows that a team has in registers. Few blocks, of 128 threads (_warp, packed only) or at most 256
                            (_block): each walks over many rows and leaves one row of partial sums of dw, and of db
        backward_averages, backward_columns
                            together the same for longer rows
        backward_sum        adds up the partial sums
*/
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define PACK (16 / (int)sizeof(T)) /* elements */
#define BACKWARD_THREADS 256       /* the most that a block may have */
#define BACKWARD_WARPS 4           /* in a block of backward_warp */

/*  Registers for so many blocks on a multiprocessor: a row waits for memory, then for its sums, and meanwhile others have to be at
    work. Wider types need more registers. */
#define FORWARD_WARP_BLOCKS (sizeof(T) == 2 ? 8 : 4)
#define FORWARD_BLOCKS (sizeof(T) == 2 && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200 ? 2 : 1) /* of 512 threads, or 8 of 128 */

/* >>forward ----------------------------------------------------------------------------------------------------- */

/*  The squares are summed around the mean that is known by then: one walk with sums of x and x^2 would cancel. */
template <bool rms, typename Team, int N>
__device__ void forward(T *y, Wide *means, Wide *rstds, const T *x, const T *w, const T *b, long long rows, long long n, Wide eps, int kept)
{
    for (long long r = Team::first(); r < rows; r += Team::count()) {
        const T *from = x + r * n;
        T *to = y + r * n;
        const ignis_row<T, Team, N> row(from, n, kept);
        ignis_batch<T, N> xs;
        Wide sum = 0, mean = 0, square = 0;
        int last = 0;

        for (int round = 0; row.has(round); round++) {
            row.load(xs, from, round);
            row.keep(xs, round);
            row.each(
                round,
                [&](int, auto &pack) {
#pragma unroll
                    for (int i = 0; i < pack.count; i++)
                        sum += rms ? Wide(pack[i]) * Wide(pack[i]) : Wide(pack[i]);
                },
                xs);
            last = round;
        }
        sum = Team::template reduce<ignis_sum>(sum);
        if constexpr (rms) {
            square = sum / Wide(n);
        } else {
            mean = sum / Wide(n);
            for (int round = last; round >= 0; round--) {
                if (round != last)
                    row.recall(xs, from, round);
                row.each(
                    round,
                    [&](int, auto &pack) {
#pragma unroll
                        for (int i = 0; i < pack.count; i++)
                            square += (Wide(pack[i]) - mean) * (Wide(pack[i]) - mean);
                    },
                    xs);
            }
            square = Team::template reduce<ignis_sum>(square) / Wide(n);
        }
        const Wide rstd = Wide(1) / sqrt(square + eps);
        if (Team::thread() == 0) {
            rstds[r] = rstd;
            if (!rms)
                means[r] = mean;
        }

        for (int step = 0; step <= last; step++) {
            const int round = rms ? last - step : step; /* xs holds the round that the walk before ended with */
            if (step > 0)
                row.recall(xs, from, round);
            row.each(
                round,
                [&](int column, auto &pack) {
                    constexpr int count = ignis_pack_count<decltype(pack)>;
                    const ignis_pack<T, count> ws = ignis_load<count>(w + column);
                    Wide values[count];
#pragma unroll
                    for (int i = 0; i < count; i++)
                        values[i] = (Wide(pack[i]) - mean) * rstd * Wide(ws[i]);
                    if constexpr (!rms) {
                        const ignis_pack<T, count> bs = ignis_load<count>(b + column);
#pragma unroll
                        for (int i = 0; i < count; i++)
                            values[i] += Wide(bs[i]);
                    }
                    ignis_store(to + column, ignis_pack_round<T>(values));
                },
                xs);
        }
    }
}

#define FORWARD(name, rms)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(128, FORWARD_WARP_BLOCKS) ignis_##name##_warp(                                \
        T *y, Wide *mean, Wide *rstd, const T *x, const T *w, const T *b, long long rows, long long n, double eps)             \
    {                                                                                                                          \
        forward<rms, ignis_warp_team, PACK>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, 0);                                    \
    }                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(512, FORWARD_BLOCKS) ignis_##name##_block(                                    \
        T *y, Wide *mean, Wide *rstd, const T *x, const T *w, const T *b, long long rows, long long n, double eps, int packed, \
        int kept)                                                                                                              \
    {                                                                                                                          \
        if (packed && n <= (long long)blockDim.x * PACK * IGNIS_ROW_PACKS)                                                     \
            forward<rms, ignis_one_round_team, PACK>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, 0);                           \
        else if (packed)                                                                                                       \
            forward<rms, ignis_block_team, PACK>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, kept);                            \
        else                                                                                                                   \
            forward<rms, ignis_block_team, 1>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, 0);                                  \
    }
FORWARD(layer_norm, false)
FORWARD(rms_norm, true) /* mean and b are not used */

/* >>backward ---------------------------------------------------------------------------------------------------- */

/*  The gradient of an element, from its h and g and their averages. */
template <bool rms> __device__ inline Wide gradient(Wide h, Wide g, Wide rstd, Wide average_g, Wide average_gh)
{
    return rstd * (rms ? g - h * average_gh : g - average_g - h * average_gh);
}

/*  Two sums for the price of one wait. */
template <typename Team> __device__ inline void reduce_two(Wide &a, Wide &b)
{
    a = ignis_warp_sum(a);
    b = ignis_warp_sum(b);
    if constexpr (Team::is_block) {
        __shared__ Wide partial[2][BACKWARD_THREADS / 32];
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
}

/*  Rows of one round: x and dy are read once. Every thread adds up dw and db of its columns over all rows of its team. The warps
    of a block meet in the shared block_w and block_b.

    In layer_norm both sums take so many registers that a multiprocessor holds but two blocks or so. What hides the wait for memory
    there is that a block loads its next row while it works on this one. */
template <bool rms, typename Team, int N>
__device__ void backward(T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const T *w, const Wide *means, const Wide *rstds,
                         long long rows, long long n, Wide *block_w, Wide *block_b)
{
    const ignis_row<T, Team, N> row(w, n);
    constexpr bool ahead = !rms && Team::is_block && N > 1;
    ignis_batch<T, N> ws, xs, gs;
    ignis_batch<Wide, N> dws, dbs;
    ignis_words<T, N> next_xs, next_gs;
    Wide next_mean = 0, next_rstd = 0;
    auto load_next = [&](long long r) {
        if (r < rows) {
            row.load(next_xs, x + r * n);
            row.load(next_gs, dy + r * n);
            next_mean = means[r];
            next_rstd = rstds[r];
        }
    };

    row.load(ws, w, 0);
    row.each(
        0,
        [&](int, auto &dw, auto &db) {
#pragma unroll
            for (int i = 0; i < dw.count; i++)
                dw[i] = db[i] = 0;
        },
        dws, dbs);
    if constexpr (ahead)
        load_next(Team::first());
    for (long long r = Team::first(); r < rows; r += Team::count()) {
        Wide mean = 0, rstd, sum_g = 0, sum_gh = 0;
        if constexpr (ahead) {
            row.open(xs, next_xs);
            row.open(gs, next_gs);
            mean = next_mean;
            rstd = next_rstd;
            load_next(r + Team::count());
        } else {
            row.load(xs, x + r * n, 0);
            row.load(gs, dy + r * n, 0);
            if (!rms)
                mean = means[r];
            rstd = rstds[r];
        }
        row.each(
            0,
            [&](int, auto &x, auto &grad, auto &w, auto &dw, auto &db) {
#pragma unroll
                for (int i = 0; i < x.count; i++) {
                    const Wide h = (Wide(x[i]) - mean) * rstd, g = Wide(grad[i]) * Wide(w[i]);
                    sum_g += g;
                    sum_gh += g * h;
                    dw[i] += Wide(grad[i]) * h;
                    db[i] += Wide(grad[i]);
                }
            },
            xs, gs, ws, dws, dbs);
        reduce_two<Team>(sum_g, sum_gh);
        const Wide average_g = sum_g / Wide(n), average_gh = sum_gh / Wide(n);
        row.each(
            0,
            [&](int column, auto &x, auto &grad, auto &w) {
                Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                for (int i = 0; i < x.count; i++)
                    values[i] = gradient<rms>((Wide(x[i]) - mean) * rstd, Wide(grad[i]) * Wide(w[i]), rstd, average_g, average_gh);
                ignis_store(dx + r * n + column, ignis_pack_round<T>(values));
            },
            xs, gs, ws);
    }

    partial_w += blockIdx.x * n;
    partial_b += blockIdx.x * n;
    if constexpr (Team::is_block) {
        row.each(
            0,
            [&](int column, auto &dw, auto &db) {
#pragma unroll
                for (int i = 0; i < dw.count; i++) {
                    partial_w[column + i] = dw[i];
                    if (!rms)
                        partial_b[column + i] = db[i];
                }
            },
            dws, dbs);
    } else { /* the warps add theirs one after the other */
        for (int warp = 0; warp < BACKWARD_WARPS; warp++) {
            if (warp == threadIdx.x / 32)
                row.each(
                    0,
                    [&](int column, auto &dw, auto &db) {
#pragma unroll
                        for (int i = 0; i < dw.count; i++) {
                            block_w[column + i] = dw[i] + (warp ? block_w[column + i] : Wide(0));
                            if (!rms)
                                block_b[column + i] = db[i] + (warp ? block_b[column + i] : Wide(0));
                        }
                    },
                    dws, dbs);
            __syncthreads();
        }
        for (int column = threadIdx.x; column < n; column += blockDim.x) {
            partial_w[column] = block_w[column];
            if (!rms)
                partial_b[column] = block_b[column];
        }
    }
}

/*  The averages of g and g * h of every row, for backward_columns. */
template <bool rms, int N>
__device__ void averages(Wide *averages_g, Wide *averages_gh, const T *dy, const T *x, const T *w, const Wide *means, const Wide *rstds,
                         long long rows, long long n)
{
    const ignis_row<T, ignis_block_team, N> row(w, n);
    ignis_batch<T, N> xs, gs;

    for (long long r = blockIdx.x; r < rows; r += gridDim.x) {
        const Wide mean = rms ? Wide(0) : means[r], rstd = rstds[r];
        Wide sum_g = 0, sum_gh = 0;
        for (int round = 0; row.has(round); round++) {
            row.load(xs, x + r * n, round);
            row.load(gs, dy + r * n, round);
            row.each(
                round,
                [&](int column, auto &x, auto &grad) {
                    const auto ws = ignis_load<ignis_pack_count<decltype(x)>>(w + column);
#pragma unroll
                    for (int i = 0; i < x.count; i++) {
                        const Wide h = (Wide(x[i]) - mean) * rstd, g = Wide(grad[i]) * Wide(ws[i]);
                        sum_g += g;
                        sum_gh += g * h;
                    }
                },
                xs, gs);
        }
        reduce_two<ignis_block_team>(sum_g, sum_gh);
        if (threadIdx.x == 0) {
            averages_g[r] = sum_g / Wide(n);
            averages_gh[r] = sum_gh / Wide(n);
        }
    }
}

/*  dx, and partial sums of dw and db: a thread has N columns, its block the rows blockIdx.y, blockIdx.y + gridDim.y, ... */
template <bool rms, int N>
__device__ void columns(T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const T *w, const Wide *means, const Wide *rstds,
                        const Wide *averages_g, const Wide *averages_gh, long long rows, long long n)
{
    const long long column = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * N;
    Wide dw[N] = {}, db[N] = {};
    if (column >= n)
        return;
    const ignis_pack<T, N> ws = ignis_load<N>(w + column);
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

#define BACKWARD(name, rms)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(32 * BACKWARD_WARPS, 1) ignis_##name##_backward_warp(                            \
        T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const T *w, const Wide *mean, const Wide *rstd,      \
        long long rows, long long n)                                                                                           \
    {                                                                                                                          \
        constexpr int width = 32 * PACK * IGNIS_ROW_PACKS;                                                                     \
        __shared__ Wide block_w[width], block_b[rms ? 1 : width];                                                              \
        backward<rms, ignis_warp_team, PACK>(dx, partial_w, partial_b, dy, x, w, mean, rstd, rows, n, block_w, block_b);       \
    }                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(BACKWARD_THREADS, 1) ignis_##name##_backward_block(                              \
        T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const T *w, const Wide *mean, const Wide *rstd,      \
        long long rows, long long n, int packed)                                                                               \
    {                                                                                                                          \
        if (packed)                                                                                                            \
            backward<rms, ignis_block_team, PACK>(dx, partial_w, partial_b, dy, x, w, mean, rstd, rows, n, nullptr, nullptr);  \
        else                                                                                                                   \
            backward<rms, ignis_block_team, 1>(dx, partial_w, partial_b, dy, x, w, mean, rstd, rows, n, nullptr, nullptr);     \
    }                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(BACKWARD_THREADS, 1) ignis_##name##_backward_averages(                           \
        Wide *average_g, Wide *average_gh, const T *dy, const T *x, const T *w, const Wide *mean, const Wide *rstd,            \
        long long rows, long long n, int packed)                                                                               \
    {                                                                                                                          \
        if (packed)                                                                                                            \
            averages<rms, PACK>(average_g, average_gh, dy, x, w, mean, rstd, rows, n);                                         \
        else                                                                                                                   \
            averages<rms, 1>(average_g, average_gh, dy, x, w, mean, rstd, rows, n);                                            \
    }                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(BACKWARD_THREADS, 1) ignis_##name##_backward_columns(                            \
        T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const T *w, const Wide *mean, const Wide *rstd,      \
        const Wide *average_g, const Wide *average_gh, long long rows, long long n, int packed)                                \
    {                                                                                                                          \
        if (packed)                                                                                                            \
            columns<rms, PACK>(dx, partial_w, partial_b, dy, x, w, mean, rstd, average_g, average_gh, rows, n);                \
        else                                                                                                                   \
            columns<rms, 1>(dx, partial_w, partial_b, dy, x, w, mean, rstd, average_g, average_gh, rows, n);                   \
    }
BACKWARD(layer_norm, false)
BACKWARD(rms_norm, true) /* mean and partial_b are not used */

/*  out[n] = the sum of partial[count, n] over count, in a fixed order: a lane has a column, a warp every SUM_WARPS-th row. Blocks
    with blockIdx.y = 1 do the same for a second pair. */
#define SUM_WARPS 16
extern "C" __global__ void __launch_bounds__(32 * SUM_WARPS) ignis_norm_backward_sum(T *out, T *second_out, const Wide *partial,
                                                                                     const Wide *second_partial, int count, long long n)
{
    __shared__ Wide sums[SUM_WARPS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long column = (long long)blockIdx.x * 32 + lane;
    Wide sum = 0;
    if (blockIdx.y == 1) {
        out = second_out;
        partial = second_partial;
    }
    if (column < n)
#pragma unroll 4
        for (int i = warp; i < count; i += SUM_WARPS)
            sum += partial[i * n + column];
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && column < n) {
#pragma unroll
        for (int i = 1; i < SUM_WARPS; i++)
            sum += sums[i][lane];
        out[column] = T(sum);
    }
}
