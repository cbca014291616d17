// SPDX-License-Identifier: MIT
/*  norm_grad.cu - the gradients of layer_norm and rms_norm, of rows of any address and length: see norm.cuh
    and norm_unaligned.cuh

    One program per element type: compiled with -DIGNIS_T=<1 to 4>. Each block leaves one row of partial sums
    of dw, and of db. before: dx is that and what x has as its gradient already, from elsewhere; or null.
    Kernels named _even also leave partial sums of the columns of dx where partial_dx is not null: the
    gradient of the bias of a layer whose result is x, or went into x by a sum. */
#include "norm_unaligned.cuh"

/*  The gradients of a row's elements. rstd comes last, for its square may be no number; except for f16, where
    it is one, and registers are saved. */
template <bool rms> struct gradient_of {
    static constexpr bool first = ignis_is_same<T, ignis_f16>;
    const Wide rstd, slope, from, rest;

    /*  Computes x less mean, once more: if elements have few bits, nothing is lost when mean moves to the
        other summand. */
    __device__ gradient_of(Wide mean, Wide rstd, Wide average_g, Wide average_gh)
        : rstd(rstd), slope(-average_gh * rstd * (first ? rstd : Wide(1))), from(ignis_is_half<T> ? Wide(0) : mean),
          rest((from - mean) * slope - (rms ? Wide(0) : average_g * (first ? rstd : Wide(1))))
    {
    }
    __device__ Wide of(Wide x, Wide g) const
    {
        const Wide less = (x - from) * slope + rest;
        return first ? rstd * g + less : rstd * (g + less);
    }
};

/*  (x - mean) * rstd; offset: -mean * rstd. Of 16-bit types in one instruction, as exact as mean is. */
__device__ inline Wide normal_of(Wide x, Wide mean, Wide rstd, Wide offset)
{
    if constexpr (ignis_is_half<T>)
        return fmaf(x, rstd, offset);
    else
        return (x - mean) * rstd;
}

/*  Stores sums of successive columns, with more added to them where it is not null. even: 16 bytes at a time,
    as both begin at multiples of that. */
template <int N>
__device__ inline void store_sums(Wide *to, const ignis_pack<Wide, N> &sums, const Wide *more, bool even)
{
    constexpr int count = 16 / (int)sizeof(Wide);
    if constexpr (N % count == 0)
        if (even) {
#pragma unroll
            for (int i = 0; i < N; i += count) {
                ignis_pack<Wide> pack = {};
                if (more)
                    pack = ignis_load(more + i);
#pragma unroll
                for (int e = 0; e < count; e++)
                    pack[e] += sums[i + e];
                *(uint4 *)(to + i) = ignis_word(pack);
            }
            return;
        }
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = sums[i] + (more ? more[i] : Wide(0));
}

/*  A thread sums dw and db of its columns over all rows of its team; the warps of a block meet in the shared
    block_w and block_b. */
template <bool rms, typename Team, int packs>
__device__ void backward_rows(T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const W *w,
                              const Wide *means, const Wide *rstds, long long rows, long long n, const T *before,
                              Wide *block_w, Wide *block_b)
{
    constexpr int count = FLIGHT / packs, of_x = packs * placed<packs, W>::slots, of_dy = of_x + FLIGHT,
                  of_before = of_dy + FLIGHT; /* slots */
    /* where the compiler is one register short: packs are taken one after the other, and a row's start is
       computed again */
    constexpr bool tight = !rms && packs > 1 && ignis_is_same<T, ignis_f16> && __CUDA_ARCH__ < 900;
    share_of<Team, packs> share(x, rows, n);
    const auto find_row = [&] {
        if constexpr (tight)
            share.at = share.r * n;
    };
    const Wide over_n = Wide(1) / Wide(n);
    const int mine = threadIdx.x % count; /* the row whose statistics this lane has */
    placed<packs, W> ws(0);
    ignis_batch<T, PACK, packs> xs[count], gs[count];
    ignis_batch<Wide, PACK, packs> dws, dbs;
    ignis_pack<T, 1> next_xs[count], next_gs[count], next_befores[count];
    Wide next_mean = 0, next_rstd = 0;
    int turn = 0;
    const auto fetch_rows = [&](int ahead) {
        find_row();
#pragma unroll
        for (int j = 0; j < count; j++)
            if (ahead + j < share.left) {
                const long long at = share.at + (ahead + j) * share.stride;
                share.fetch(x + at, of_x + j * packs);
                share.fetch(dy + at, of_dy + j * packs);
                if (share.extras) {
                    next_xs[j] = share.extra_of(x + at);
                    next_gs[j] = share.extra_of(dy + at);
                }
            }
        if (ahead + mine < share.left) {
            next_rstd = rstds[share.r + (ahead + mine) * share.step];
            if (!rms)
                next_mean = means[share.r + (ahead + mine) * share.step];
        }
        fetched();
    };
    const auto fetch_before = [&](int ahead) {
        find_row();
        if (before)
#pragma unroll
            for (int j = 0; j < count; j++)
                if (ahead + j < share.left) {
                    const T *const from = before + share.at + (ahead + j) * share.stride;
                    share.fetch(from, of_before + j * packs);
                    if (share.extras)
                        next_befores[j] = share.extra_of(from);
                }
        fetched();
    };

    fetch_rows(0);
    fetch_before(0);
    share.columns(ws, w);
#pragma unroll
    for (int j = 0; j < count; j++) {
        share.clear(of_x + j * packs);
        share.clear(of_dy + j * packs);
    }
    share.row.each(
        0,
        [&](int, auto &dw, auto &db) {
#pragma unroll
            for (int i = 0; i < dw.count; i++)
                dw[i] = db[i] = 0;
        },
        dws, dbs);
    for (; share.left > 0; share.advance(count)) {
        Wide sums[rms ? count : 2 * count] = {}, mean[count] = {}, rstd[count];
        arrive<1>();
#pragma unroll
        for (int j = 0; j < count; j++) {
            take(xs[j], of_x + j * packs);
            take(gs[j], of_dy + j * packs);
            xs[j].extra = next_xs[j];
            gs[j].extra = next_gs[j];
            rstd[j] = __shfl_sync(0xffffffff, next_rstd, j);
            if constexpr (!rms)
                mean[j] = __shfl_sync(0xffffffff, next_mean, j);
        }
        fetch_rows(count);
        share.template each<Team::is_block || tight>([&](auto part, int, bool) {
            const auto w = part.of(ws).get();
            auto &dw = part.of(dws), &db = part.of(dbs);
#pragma unroll
            for (int j = 0; j < count; j++)
                if (j < share.left) {
                    auto &x = part.of(xs[j]), &grad = part.of(gs[j]);
#pragma unroll
                    for (int i = 0; i < x.count; i++) {
                        const Wide dy = ignis_wide_at(grad, i), h = (ignis_wide_at(x, i) - mean[j]) * rstd[j],
                                   g = dy * ignis_wide_at(w, i);
                        sums[j] += g * h;
                        dw[i] += dy * h;
                        if constexpr (!rms) {
                            sums[count + j] += g;
                            db[i] += dy;
                        }
                    }
                }
        });
        sum_all<Team>(sums, turn);
        arrive<1>();
        find_row();
        share.template each<Team::is_block || tight>([&](auto part, int column, bool has) {
            const auto w = part.of(ws).get();
#pragma unroll
            for (int j = 0; j < count; j++)
                if (j < share.left) {
                    auto &x = part.of(xs[j]), &grad = part.of(gs[j]);
                    const gradient_of<rms> gradient(mean[j], rstd[j], sums[rms ? j : count + j] * over_n,
                                                    sums[j] * over_n);
                    Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                    for (int i = 0; i < x.count; i++)
                        values[i] = gradient.of(ignis_wide_at(x, i), ignis_wide_at(grad, i) * ignis_wide_at(w, i));
                    if (before) {
                        placed<packs> befores(of_before + j * packs);
                        befores.extra.pack = next_befores[j];
                        const auto before_x = part.of(befores).get();
#pragma unroll
                        for (int i = 0; i < x.count; i++)
                            values[i] += ignis_wide_at(before_x, i);
                    }
                    if (has)
                        ignis_store(dx + share.at + j * share.stride + column, ignis_pack_round<T>(values));
                }
        });
        fetch_before(count);
    }

    partial_w += blockIdx.x * n;
    partial_b += blockIdx.x * n;
    for (int warp = 0; warp < (Team::is_block ? 1 : WARPS); warp++) { /* the warps add theirs one after the other */
        const bool is_last = Team::is_block || warp == WARPS - 1;
        Wide *const to_w = is_last ? partial_w : block_w, *const to_b = is_last ? partial_b : block_b;
        if (Team::is_block || warp == threadIdx.x / 32)
            share.row.each(
                0,
                [&](int column, auto &dw, auto &db) {
                    store_sums(to_w + column, dw, warp ? block_w + column : nullptr, !share.extras);
                    if (!rms)
                        store_sums(to_b + column, db, warp ? block_b + column : nullptr, !share.extras);
                },
                dws, dbs);
        if (!is_last)
            __syncthreads();
    }
}

/*  As above for even rows; a block leaves its own sums. */
template <bool rms>
__device__ void backward_even(T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const W *w,
                              const Wide *means, const Wide *rstds, long long rows, long long n, const T *before,
                              Wide *partial_dx)
{
    constexpr int of_dy = FLIGHT, of_before = 2 * FLIGHT; /* slots; those of x come first */
    const int column = (int)threadIdx.x * PACK, step = (int)gridDim.x * FLIGHT;
    const bool has = column < n;
    const Wide over_n = Wide(1) / Wide(n);
    const int lane = threadIdx.x % 32, mine = lane % FLIGHT; /* the row of which this lane has a statistic */
    const Wide *const statistic = !rms && (lane & FLIGHT) ? means : rstds;
    Wide ws[PACK], next = 0;
    ignis_pack<Wide, PACK> dw = {}, db = {}, sums_dx = {};
    ignis_pack<T, PACK> xs[FLIGHT], gs[FLIGHT];
    long long r = (long long)blockIdx.x * FLIGHT;
    int turn = 0;
    const auto fetch_rows = [&](long long r) {
        const int left = rows_left(r, rows);
        fetch_even(x, 0, r, left, n);
        fetch_even(dy, of_dy, r, left, n);
        next = mine < left ? statistic[r + mine] : Wide(0);
        fetched();
    };
    const auto fetch_before = [&](long long r) {
        if (before)
            fetch_even(before, of_before, r, rows_left(r, rows), n);
        fetched();
    };

    fetch_rows(r);
    fetch_before(r);
    columns_even(ws, w, n);
    for (; r < rows; r += step) {
        Wide sums[rms ? FLIGHT : 2 * FLIGHT] = {}, mean[FLIGHT], rstd[FLIGHT];
        const int left = (int)min(rows - r, (long long)FLIGHT);
        arrive<1>();
        take_even(xs, 0);
        take_even(gs, of_dy);
#pragma unroll
        for (int j = 0; j < FLIGHT; j++) {
            rstd[j] = __shfl_sync(0xffffffff, next, j);
            mean[j] = rms ? Wide(0) : __shfl_sync(0xffffffff, next, FLIGHT + j);
        }
        fetch_rows(r + step);
#pragma unroll
        for (int j = 0; j < FLIGHT; j++) {
            const Wide offset = -mean[j] * rstd[j];
#pragma unroll
            for (int i = 0; i < PACK; i++) {
                const Wide grad = ignis_wide_at(gs[j], i), g = grad * ws[i];
                const Wide h = normal_of(ignis_wide_at(xs[j], i), mean[j], rstd[j], offset);
                sums[j] += g * h;
                dw[i] += grad * h;
                if constexpr (!rms) {
                    sums[FLIGHT + j] += g;
                    db[i] += grad;
                }
            }
        }
        sum_even(sums, turn);
        arrive<1>();
#pragma unroll
        for (int j = 0; j < FLIGHT; j++) {
            const gradient_of<rms> gradient(mean[j], rstd[j], sums[rms ? j : FLIGHT + j] * over_n, sums[j] * over_n);
            Wide values[PACK];
#pragma unroll
            for (int i = 0; i < PACK; i++)
                values[i] = gradient.of(ignis_wide_at(xs[j], i), ignis_wide_at(gs[j], i) * ws[i]);
            if (before) {
                const auto more = ignis_pack_of<ignis_pack<T, PACK>>(*place(of_before + j));
#pragma unroll
                for (int i = 0; i < PACK; i++)
                    values[i] += ignis_wide_at(more, i);
            }
            if (has && j < left) {
                const auto rounded = ignis_pack_round<T>(values);
                if (partial_dx)
#pragma unroll
                    for (int i = 0; i < PACK; i++)
                        sums_dx[i] += ignis_wide_at(rounded, i);
                ignis_store(dx + (r + j) * n + column, rounded);
            }
        }
        fetch_before(r + step);
    }
    if (has) {
        store_sums(partial_w + blockIdx.x * n + column, dw, nullptr, true);
        if (!rms)
            store_sums(partial_b + blockIdx.x * n + column, db, nullptr, true);
        if (partial_dx)
            store_sums(partial_dx + blockIdx.x * n + column, sums_dx, nullptr, true);
    }
}

#define KERNEL(name, rms, suffix, Team, packs, threads, blocks)                                                   \
    extern "C" __global__ void __launch_bounds__(threads, blocks) ignis_##name##_rows_backward_##suffix(          \
        T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const W *w, const Wide *mean,           \
        const Wide *rstd, long long rows, long long n, const T *before)                                           \
    {                                                                                                             \
        ignis_grid_dependency();                                                                                  \
        constexpr int width = Team::is_block ? 1 : (32 * packs + 1) * PACK;                                       \
        __shared__ __align__(16) Wide block_w[width];                                                             \
        __shared__ __align__(16) Wide block_b[rms ? 1 : width];                                                   \
        backward_rows<rms, Team, packs>(dx, partial_w, partial_b, dy, x, w, mean, rstd, rows, n, before, block_w, \
                                        block_b);                                                                 \
    }
#define EVEN(name, rms)                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) ignis_##name##_rows_backward_even(    \
        T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const W *w, const Wide *mean,  \
        const Wide *rstd, long long rows, long long n, const T *before, Wide *partial_dx)                \
    {                                                                                                    \
        ignis_grid_dependency();                                                                         \
        backward_even<rms>(dx, partial_w, partial_b, dy, x, w, mean, rstd, rows, n, before, partial_dx); \
    }
/*  Blocks on an SM, as many as leave enough registers for all sums. */
#define NORM(name, rms)                                                              \
    KERNEL(name, rms, few, ignis_warp_team, 1, 32 * WARPS, (sizeof(T) == 8 ? 2 : 4)) \
    KERNEL(name, rms, warp, ignis_warp_team, 4, 32 * WARPS, 3)                       \
    KERNEL(name, rms, block, ignis_block_team, 4, BLOCK_THREADS, 1)                  \
    EVEN(name, rms)
NORM(layer_norm, false)
NORM(rms_norm, true) /* mean and partial_b are not used */
