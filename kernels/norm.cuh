// SPDX-License-Identifier: MIT
/*  norm.cuh - the walks over rows that the kernels of layer_norm and rms_norm have in common

        layer_norm  y = (x - mean) * rstd * w + b    rstd = 1 / sqrt(variance + eps)
                    (Ba, Kiros, Hinton: Layer Normalization, 2016)
        rms_norm    y = x * rstd * w                 rstd = 1 / sqrt(mean of x^2 + eps)
                    (Zhang, Sennrich: Root Mean Square Layer Normalization, 2019)

    With h = (x - mean) * rstd (mean 0 for rms_norm), g = dy * w, and avg over the row,
        dx = rstd * (g - avg(g) - h * avg(g * h))    without avg(g) for rms_norm
        dw = sum of dy * h over the rows, db = sum of dy

    Compiled with -DIGNIS_T=<1 to 4>, the element type. Statistics are ignis_wide<T>, [rows]. Rows are shorter than 2^30.
    See ignis_row in ignis.cuh for how a row is shared out; kernels named _warp are for rows that a warp has in registers.
    packed: rows of all arrays, and w and b, begin at multiples of 16 bytes, and hold whole packs.
*/
#ifndef IGNIS_NORM_CUH
#define IGNIS_NORM_CUH

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

/*  The squares are summed around the mean that is known by then: one walk with sums of x and x^2 would cancel.

    add: what is normalized is not x but x + other, rounded, which goes to sum. */
template <bool rms, bool add, typename Team, int N>
__device__ void forward(T *y, Wide *means, Wide *rstds, const T *x, const T *w, const T *b, long long rows, long long n, Wide eps, int kept,
                        T *sum_out = nullptr, const T *other = nullptr)
{
    for (long long r = Team::first(); r < rows; r += Team::count()) {
        const T *from = (add ? sum_out : x) + r * n;
        T *to = y + r * n;
        const ignis_row<T, Team, N> row(from, n, kept);
        ignis_batch<T, N> xs;
        Wide sum = 0, mean = 0, square = 0;
        int last = 0;

        for (int round = 0; row.has(round); round++) {
            row.load(xs, x + r * n, round);
            if constexpr (add) {
                ignis_batch<T, N> others;
                row.load(others, other + r * n, round);
                row.each(
                    round,
                    [&](int column, auto &x, auto &other) {
                        Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                        for (int i = 0; i < x.count; i++)
                            values[i] = Wide(x[i]) + Wide(other[i]);
                        x = ignis_pack_round<T>(values);
                        ignis_store(sum_out + r * n + column, x);
                    },
                    xs, others);
            }
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
}

/*  Rows of one round: x and dy are read once. Every thread adds up dw and db of its columns over all rows of its team. The warps
    of a block meet in the shared block_w and block_b.

    In layer_norm both sums take so many registers that a multiprocessor holds but two blocks or so. What hides the wait for memory
    there is that a block loads its next row while it works on this one.

    onto: dx is that and what x has as its gradient already, from elsewhere. */
template <bool rms, bool onto, typename Team, int N>
__device__ void backward(T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const T *w, const Wide *means, const Wide *rstds,
                         long long rows, long long n, Wide *block_w, Wide *block_b, const T *before = nullptr)
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
        ignis_batch<T, N> befores;
        if constexpr (onto)
            row.load(befores, before + r * n, 0); /* arrives while the sums are put together */
        reduce_two<Team>(sum_g, sum_gh);
        const Wide average_g = sum_g / Wide(n), average_gh = sum_gh / Wide(n);
        row.each(
            0,
            [&](int column, auto &x, auto &grad, auto &w, auto &before) {
                Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                for (int i = 0; i < x.count; i++) {
                    values[i] = gradient<rms>((Wide(x[i]) - mean) * rstd, Wide(grad[i]) * Wide(w[i]), rstd, average_g, average_gh);
                    if constexpr (onto)
                        values[i] += Wide(before[i]);
                }
                ignis_store(dx + r * n + column, ignis_pack_round<T>(values));
            },
            xs, gs, ws, befores);
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

#endif /* IGNIS_NORM_CUH */
