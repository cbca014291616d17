// SPDX-License-Identifier: MIT
/*  norm_unaligned.cu - layer_norm and rms_norm over rows that begin anywhere or are long, and over even ones
    of a middle length: see norm.cuh and norm_unaligned.cuh

    One program per element type: compiled with -DIGNIS_T=<1 to 4>. other: what is normalized is x + other,
    rounded, which goes to sum; or null. */
#include "norm_unaligned.cuh"

template <bool rms, typename Team, int packs>
__device__ void forward_rows(T *y, Wide *means, Wide *rstds, const T *x, const W *w, const W *b, long long rows,
                             long long n, Wide eps, T *sum, const T *other)
{
    constexpr int count = FLIGHT / packs, of_b = packs * placed<packs, W>::slots, of_x = 2 * of_b,
                  of_other = of_x + FLIGHT; /* slots */
    share_of<Team, packs> share(x, rows, n);
    const Wide over_n = Wide(1) / Wide(n);
    placed<packs, W> ws(0), bs(of_b);
    ignis_batch<T, PACK, packs> xs[count];
    ignis_pack<T, 1> next_xs[count], next_others[count];
    int turn = 0;
    unfit_rows<Team> unfit;
    const auto fetch_rows = [&](int ahead) {
#pragma unroll
        for (int j = 0; j < count; j++)
            if (ahead + j < share.left) {
                const long long at = share.at + (ahead + j) * share.stride;
                share.fetch(x + at, of_x + j * packs);
                if (share.extras)
                    next_xs[j] = share.extra_of(x + at);
                if (other) {
                    share.fetch(other + at, of_other + j * packs);
                    if (share.extras)
                        next_others[j] = share.extra_of(other + at);
                }
            }
        fetched();
    };

    fetch_rows(0);
    share.columns(ws, w);
    if constexpr (!rms)
        share.columns(bs, b);
#pragma unroll
    for (int j = 0; j < count; j++) {
        share.clear(of_x + j * packs);
        if (other)
            share.clear(of_other + j * packs);
    }
    for (; share.left > 0; share.advance(count)) {
        Wide sums[count] = {}, mean[count] = {};
        arrive<0>();
#pragma unroll
        for (int j = 0; j < count; j++) {
            take(xs[j], of_x + j * packs);
            xs[j].extra = next_xs[j];
            if (other && share.has(j)) {
                placed<packs> others(of_other + j * packs);
                others.extra.pack = next_others[j];
                share.template each<false>([&](auto part, int column, bool has) {
                    auto &x = part.of(xs[j]);
                    const auto other = part.of(others).get();
                    Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                    for (int i = 0; i < x.count; i++)
                        values[i] = ignis_wide_at(x, i) + ignis_wide_at(other, i);
                    x = ignis_pack_round<T>(values);
                    if (has)
                        ignis_store(sum + share.at + j * share.stride + column, x);
                });
            }
        }
        fetch_rows(count); /* for rows that do not exist anything is computed, and nothing stored */
        share.template each<false>([&](auto part, int, bool) {
#pragma unroll
            for (int j = 0; j < count; j++) {
                auto &x = part.of(xs[j]);
#pragma unroll
                for (int i = 0; i < x.count; i++)
                    sums[j] += rms ? ignis_wide_at(x, i) * ignis_wide_at(x, i) : ignis_wide_at(x, i);
            }
        });
        sum_all<Team>(sums, turn);
        if constexpr (!rms) {
#pragma unroll
            for (int j = 0; j < count; j++) {
                mean[j] = sums[j] * over_n;
                sums[j] = 0;
            }
            share.template each<false>([&](auto part, int, bool has) {
#pragma unroll
                for (int j = 0; j < count; j++) {
                    auto &x = part.of(xs[j]);
                    const Wide from = has ? mean[j] : Wide(0); /* 0 less 0 for columns that the thread does not have */
#pragma unroll
                    for (int i = 0; i < x.count; i++)
                        sums[j] += (ignis_wide_at(x, i) - from) * (ignis_wide_at(x, i) - from);
                }
            });
            sum_all<Team>(sums, turn);
        }
#pragma unroll
        for (int j = 0; j < count; j++) {
            sums[j] = rsqrt(sums[j] * over_n + eps);
            if (Team::thread() == 0 && share.has(j)) {
                rstds[share.r + j * share.step] = sums[j];
                unfit.look(sums[j]);
                if (!rms)
                    means[share.r + j * share.step] = mean[j];
            }
        }
        share.template each<false>([&](auto part, int column, bool has) {
            const auto w = part.of(ws).get();
            const auto b = part.of(rms ? ws : bs).get();
#pragma unroll
            for (int j = 0; j < count; j++) {
                auto &x = part.of(xs[j]);
                Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                for (int i = 0; i < x.count; i++) {
                    values[i] = (ignis_wide_at(x, i) - mean[j]) * sums[j] * ignis_wide_at(w, i);
                    if (!rms)
                        values[i] += ignis_wide_at(b, i);
                }
                if (has && share.has(j))
                    ignis_store(y + share.at + j * share.stride + column, ignis_pack_round<T>(values));
            }
        });
    }
    if (unfit.found(rstds, rows))
        forward_again<rms, Team>(y, means, rstds, other ? sum : x, w, b, rows, n, eps);
}

/*  As above for even rows. */
template <bool rms>
__device__ void forward_even(T *y, Wide *means, Wide *rstds, const T *x, const W *w, const W *b, long long rows,
                             long long n, Wide eps, T *sum, const T *other)
{
    const int column = (int)threadIdx.x * PACK, step = (int)gridDim.x * FLIGHT;
    const bool has = column < n;
    const Wide over_n = Wide(1) / Wide(n);
    Wide ws[PACK], bs[PACK];
    ignis_pack<T, PACK> xs[FLIGHT];
    long long r = (long long)blockIdx.x * FLIGHT;
    int turn = 0;
    unfit_rows<ignis_block_team> unfit;
    const auto fetch_rows = [&](long long r) {
        const int left = rows_left(r, rows);
        fetch_even(x, 0, r, left, n);
        if (other)
            fetch_even(other, FLIGHT, r, left, n);
        fetched();
    };

    fetch_rows(r);
    columns_even(ws, w, n);
    if constexpr (!rms)
        columns_even(bs, b, n);
    for (; r < rows; r += step) {
        const int left = (int)min(rows - r, (long long)FLIGHT);
        Wide sums[FLIGHT] = {}, mean[FLIGHT] = {};
        arrive<0>();
        take_even(xs, 0);
        if (other)
#pragma unroll
            for (int j = 0; j < FLIGHT; j++) {
                const auto more = ignis_pack_of<ignis_pack<T, PACK>>(*place(FLIGHT + j));
                Wide values[PACK];
#pragma unroll
                for (int i = 0; i < PACK; i++)
                    values[i] = ignis_wide_at(xs[j], i) + ignis_wide_at(more, i);
                xs[j] = ignis_pack_round<T>(values);
                if (has && j < left)
                    ignis_store(sum + (r + j) * n + column, xs[j]);
            }
        fetch_rows(r + step);
#pragma unroll
        for (int j = 0; j < FLIGHT; j++)
#pragma unroll
            for (int i = 0; i < PACK; i++)
                sums[j] += rms ? ignis_wide_at(xs[j], i) * ignis_wide_at(xs[j], i) : ignis_wide_at(xs[j], i);
        sum_even(sums, turn);
        if constexpr (!rms) {
#pragma unroll
            for (int j = 0; j < FLIGHT; j++) {
                mean[j] = sums[j] * over_n;
                sums[j] = 0;
                const Wide from = has ? mean[j] : Wide(0); /* 0 less 0 for columns that the thread does not have */
#pragma unroll
                for (int i = 0; i < PACK; i++)
                    sums[j] += (ignis_wide_at(xs[j], i) - from) * (ignis_wide_at(xs[j], i) - from);
            }
            sum_even(sums, turn);
        }
#pragma unroll
        for (int j = 0; j < FLIGHT; j++) {
            const Wide rstd = rsqrt(sums[j] * over_n + eps);
            if (threadIdx.x == 0 && j < left) {
                rstds[r + j] = rstd;
                unfit.look(rstd);
                if (!rms)
                    means[r + j] = mean[j];
            }
            Wide values[PACK];
#pragma unroll
            for (int i = 0; i < PACK; i++) {
                values[i] = (ignis_wide_at(xs[j], i) - mean[j]) * rstd * ws[i];
                if (!rms)
                    values[i] += bs[i];
            }
            if (has && j < left)
                ignis_store(y + (r + j) * n + column, ignis_pack_round<T>(values));
        }
    }
    if (unfit.found(rstds, rows))
        forward_again<rms, ignis_block_team>(y, means, rstds, other ? sum : x, w, b, rows, n, eps, FLIGHT);
}

#define KERNEL(name, rms, suffix, Team, packs, threads, blocks)                                                        \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        ignis_##name##_rows_##suffix(T *y, Wide *mean, Wide *rstd, const T *x, const W *w, const W *b, long long rows, \
                                     long long n, double eps, T *sum, const T *other)                                  \
    {                                                                                                                  \
        ignis_grid_dependency();                                                                                       \
        forward_rows<rms, Team, packs>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, sum, other);                        \
    }
#define EVEN(name, rms)                                                                                            \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, FORWARD_BLOCKS)                                    \
        ignis_##name##_rows_even(T *y, Wide *mean, Wide *rstd, const T *x, const W *w, const W *b, long long rows, \
                                 long long n, double eps, T *sum, const T *other)                                  \
    {                                                                                                              \
        ignis_grid_dependency();                                                                                   \
        forward_even<rms>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, sum, other);                                 \
    }
#define NORM(name, rms)                                             \
    KERNEL(name, rms, few, ignis_warp_team, 1, 32 * WARPS, 5)       \
    KERNEL(name, rms, warp, ignis_warp_team, 4, 32 * WARPS, 6)      \
    KERNEL(name, rms, block, ignis_block_team, 4, BLOCK_THREADS, 2) \
    EVEN(name, rms)
NORM(layer_norm, false)
NORM(rms_norm, true) /* mean and b are not used */
