// SPDX-License-Identifier: MIT
/*  norm_odd.cu - layer_norm and rms_norm over rows that begin anywhere, or that are long: see norm.cuh

    A team takes rows that begin at the same address modulo 16, so that its threads have the same columns of all of them: packs
    where addresses are multiples of 16 bytes, and a few elements before and behind them. What belongs to columns is read once, and
    sums over rows stay in registers. Rows come into shared memory while those before them are worked on, each thread's packs to
    places of its own: nobody waits for them but this thread.

    One program per element type: compiled with -DIGNIS_T=<1 to 4>. A thread has FLIGHT packs of x at a time.

        forward             _few: a warp has FLIGHT rows, a pack of each; _warp: a warp has a row; _block: a block has it, of at most
                            512 threads. other: what is normalized is x + other, rounded, which goes to sum; or null
        backward            the same. Each block leaves one row of partial sums of dw, and of db. before: dx is that and what x has
                            as its gradient already, from elsewhere; or null

    Dynamic shared memory: FLIGHT packs a thread of every array of rows that is read, and a row's of w and, in forward, b.
    Any grid whose teams are a multiple of the rows after which one begins at the same address modulo 16 again: few blocks, which
    take turns. All arrays of rows begin at the same address modulo 16.
*/
#include "norm.cuh"
#if __CUDA_ARCH__ >= 800
#include "mma.cuh"
#endif

#define FLIGHT 4          /* the host computes with it, too */
#define BLOCK_THREADS 512 /* the most that a block of _block may have */
#define WARPS 4           /* in one of _few or _warp */

/* >>flight ------------------------------------------------------------------------------------------------------ */

/*  This thread's place number i. */
__device__ inline uint4 *place(int i)
{
    extern __shared__ uint4 memory[];
    return memory + i * (int)blockDim.x + threadIdx.x;
}

/*  What was started before this call is a group; all but the youngest so many groups are there afterwards. */
__device__ inline void fetched()
{
#if __CUDA_ARCH__ >= 800
    ignis_ptx_cp_async_commit();
#endif
}
template <int pending> __device__ inline void arrive()
{
#if __CUDA_ARCH__ >= 800
    ignis_ptx_cp_async_wait<pending>();
#endif
}

/* >>share ------------------------------------------------------------------------------------------------------- */

/*  A batch in places, out of which get takes a pack when it is used, so that it needs no registers. */
template <int packs> struct placed {
    struct {
        int at;
        __device__ auto get() const { return ignis_pack_of<ignis_pack<T, PACK>>(*place(at)); }
    } at[packs];
    struct {
        ignis_pack<T, 1> pack;
        __device__ auto get() const { return pack; }
    } extra;

    __device__ explicit placed(int first)
    {
#pragma unroll
        for (int p = 0; p < packs; p++)
            at[p].at = first + p;
    }
};

/*  A pack of a batch, or its extra element. */
struct in_pack {
    int p;
    template <typename Batch> __device__ auto &of(Batch &batch) const { return batch.at[p]; }
};
struct in_extra {
    template <typename Batch> __device__ auto &of(Batch &batch) const { return batch.extra; }
};

/*  What a thread has of the rows of its team, and the rows that are left, of which the next one begins at element at. */
template <typename Team, int packs> struct share_of {
    const ignis_row<T, Team, PACK, false, packs> row;
    const bool extras;            /* whether any thread has an extra element */
    const long long step, stride; /* from row to row, and from its elements to those */
    long long r, at;
    int left;

    __device__ share_of(const T *x, long long rows, long long n)
        : row(x + Team::first() * n, n), extras(row.begin > 0 || row.end < n), step(Team::count()), stride(step * n), r(Team::first()),
          at(r * n), left(r < rows ? (int)((rows - r + step - 1) / step) : 0)
    {
    }
    __device__ void advance(int count)
    {
        r += count * step;
        at += count * stride;
        left -= count;
    }

    /*  Whether there is row j of those that come at a time; where one comes, there is. */
    __device__ bool has(int j) const { return packs == FLIGHT || j < left; }

    /*  f(in_pack or in_extra, column, whether this thread has it) for all that any thread of the team has; of a block each has nearly all.
        fenced: one after the other, where there are no registers for more at a time. */
    template <bool fenced, typename F> __device__ void each(F f) const
    {
#pragma unroll
        for (int p = 0; p < packs; p++)
            if ((Team::is_block && !fenced) || row.begin + p * Team::size() * PACK < row.end) {
                f(in_pack{p}, row.column(0, p), row.column(0, p) < row.end);
                if (fenced)
                    __syncwarp();
            }
        if (extras)
            f(in_extra{}, row.extra, row.extra >= 0);
    }

    /*  Starts to bring the packs of a row of this array to places first, first + 1, ... */
    __device__ void fetch(const T *from, int first) const
    {
#pragma unroll
        for (int p = 0; p < packs; p++)
            if (row.column(0, p) < row.end) {
#if __CUDA_ARCH__ >= 800
                ignis_ptx_cp_async((uint32_t)__cvta_generic_to_shared(place(first + p)), from + row.column(0, p), 16);
#else
                *place(first + p) = *(const uint4 *)(from + row.column(0, p));
#endif
            }
    }

    /*  What a thread does not have is 0 in its places, for good. */
    __device__ void clear(int first) const
    {
#pragma unroll
        for (int p = 0; p < packs; p++)
            if (row.column(0, p) >= row.end)
                *place(first + p) = make_uint4(0, 0, 0, 0);
    }
    __device__ ignis_pack<T, 1> extra_of(const T *from) const
    {
        ignis_pack<T, 1> pack;
        pack[0] = row.extra >= 0 ? from[row.extra] : T(0.0f);
        return pack;
    }

    /*  This thread's columns of w or b, wherever that begins. */
    __device__ void columns(placed<packs> &batch, const T *from) const
    {
        clear(batch.at[0].at);
#pragma unroll
        for (int p = 0; p < packs; p++)
            if (row.column(0, p) < row.end) {
                ignis_pack<T, PACK> pack;
#pragma unroll
                for (int i = 0; i < PACK; i++)
                    pack[i] = from[row.column(0, p) + i];
                *place(batch.at[p].at) = ignis_word(pack);
            }
        batch.extra.pack = extra_of(from);
    }
};

template <int packs> __device__ inline void take(ignis_batch<T, PACK, packs> &batch, int first)
{
#pragma unroll
    for (int p = 0; p < packs; p++)
        batch.at[p] = ignis_pack_of<ignis_pack<T, PACK>>(*place(first + p));
}

/*  Several sums at the price of one wait. turn: 0 or 1, the other one at each call. */
template <typename Team, int count> __device__ inline void sum_all(Wide (&sums)[count], int &turn)
{
#pragma unroll
    for (int i = 0; i < count; i++)
        sums[i] = ignis_warp_sum(sums[i]);
    if constexpr (Team::is_block) {
        __shared__ Wide partial[2][count][16]; /* a warp may still be reading those of the call before */
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (lane == 0)
#pragma unroll
            for (int i = 0; i < count; i++)
                partial[turn][i][warp] = sums[i];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < count; i++) {
            sums[i] = lane % 16 < blockDim.x / 32 ? partial[turn][i][lane % 16] : Wide(0);
#pragma unroll
            for (int distance = 8; distance > 0; distance /= 2)
                sums[i] += __shfl_xor_sync(0xffffffff, sums[i], distance);
        }
        turn = 1 - turn;
    }
}

/* >>forward ----------------------------------------------------------------------------------------------------- */

template <bool rms, typename Team, int packs>
__device__ void forward_rows(T *y, Wide *means, Wide *rstds, const T *x, const T *w, const T *b, long long rows, long long n, Wide eps,
                             T *sum, const T *other)
{
    constexpr int count = FLIGHT / packs, of_x = 2 * packs, of_other = of_x + FLIGHT; /* places */
    share_of<Team, packs> share(x, rows, n);
    const Wide over_n = Wide(1) / Wide(n);
    placed<packs> ws(0), bs(packs);
    ignis_batch<T, PACK, packs> xs[count];
    ignis_pack<T, 1> next_xs[count], next_others[count];
    int turn = 0;
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
        fetch_rows(count); /* of rows that there are not, anything is computed, and nothing stored */
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
                    const Wide from = has ? mean[j] : Wide(0); /* 0 less 0 is what the thread does not have */
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
}

/* >>backward ---------------------------------------------------------------------------------------------------- */

/*  A thread adds up dw and db of its columns over all rows of its team; the warps of a block meet in the shared block_w and block_b. */
template <bool rms, typename Team, int packs>
__device__ void backward_rows(T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const T *w, const Wide *means,
                              const Wide *rstds, long long rows, long long n, const T *before, Wide *block_w, Wide *block_b)
{
    constexpr int count = FLIGHT / packs, of_x = packs, of_dy = of_x + FLIGHT, of_before = of_dy + FLIGHT; /* places */
    share_of<Team, packs> share(x, rows, n);
    const Wide over_n = Wide(1) / Wide(n);
    const int mine = threadIdx.x % count; /* of the rows, the one whose statistics this lane has */
    placed<packs> ws(0);
    ignis_batch<T, PACK, packs> xs[count], gs[count];
    ignis_batch<Wide, PACK, packs> dws, dbs;
    ignis_pack<T, 1> next_xs[count], next_gs[count], next_befores[count];
    Wide next_mean = 0, next_rstd = 0;
    int turn = 0;
    const auto fetch_rows = [&](int ahead) {
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
        share.template each<Team::is_block>([&](auto part, int, bool) {
            const auto w = part.of(ws).get();
            auto &dw = part.of(dws), &db = part.of(dbs);
#pragma unroll
            for (int j = 0; j < count; j++)
                if (j < share.left) {
                    auto &x = part.of(xs[j]), &grad = part.of(gs[j]);
#pragma unroll
                    for (int i = 0; i < x.count; i++) {
                        const Wide dy = ignis_wide_at(grad, i), h = (ignis_wide_at(x, i) - mean[j]) * rstd[j], g = dy * ignis_wide_at(w, i);
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
        share.template each<Team::is_block>([&](auto part, int column, bool has) {
            const auto w = part.of(ws).get();
#pragma unroll
            for (int j = 0; j < count; j++)
                if (j < share.left) {
                    auto &x = part.of(xs[j]), &grad = part.of(gs[j]);
                    /* x less mean, once more: where elements have few bits nothing is lost when mean goes to the other summand */
                    const Wide slope = -sums[j] * over_n * rstd[j] * rstd[j], from = ignis_is_half<T> ? Wide(0) : mean[j];
                    const Wide rest = (from - mean[j]) * slope - (rms ? Wide(0) : sums[rms ? j : count + j] * over_n * rstd[j]);
                    Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                    for (int i = 0; i < x.count; i++)
                        values[i] =
                            rstd[j] * (ignis_wide_at(grad, i) * ignis_wide_at(w, i)) + ((ignis_wide_at(x, i) - from) * slope + rest);
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
#pragma unroll
                    for (int i = 0; i < dw.count; i++) {
                        to_w[column + i] = dw[i] + (warp ? block_w[column + i] : Wide(0));
                        if (!rms)
                            to_b[column + i] = db[i] + (warp ? block_b[column + i] : Wide(0));
                    }
                },
                dws, dbs);
        if (!is_last)
            __syncthreads();
    }
}

#define KERNELS(name, rms, suffix, Team, packs, bounds, backward_bounds)                                                                   \
    extern "C" __global__ void __launch_bounds__ bounds ignis_##name##_rows_##suffix(                                                      \
        T *y, Wide *mean, Wide *rstd, const T *x, const T *w, const T *b, long long rows, long long n, double eps, T *sum, const T *other) \
    {                                                                                                                                      \
        forward_rows<rms, Team, packs>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, sum, other);                                            \
    }                                                                                                                                      \
    extern "C" __global__ void __launch_bounds__ backward_bounds ignis_##name##_rows_backward_##suffix(                                    \
        T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const T *w, const Wide *mean, const Wide *rstd, long long rows,  \
        long long n, const T *before)                                                                                                      \
    {                                                                                                                                      \
        constexpr int width = Team::is_block ? 1 : (32 * packs + 1) * PACK;                                                                \
        __shared__ Wide block_w[width], block_b[rms ? 1 : width];                                                                          \
        backward_rows<rms, Team, packs>(dx, partial_w, partial_b, dy, x, w, mean, rstd, rows, n, before, block_w, block_b);                \
    }
/* Blocks on a multiprocessor, at most as many as leave registers enough: wider types and more sums need more. */
#define NORM(name, rms)                                                                                \
    KERNELS(name, rms, few, ignis_warp_team, 1, (32 * WARPS, 5), (32 * WARPS, sizeof(T) == 8 ? 2 : 4)) \
    KERNELS(name, rms, warp, ignis_warp_team, 4, (32 * WARPS, 6), (32 * WARPS, 3))                     \
    KERNELS(name, rms, block, ignis_block_team, 4, (BLOCK_THREADS, 2), (BLOCK_THREADS, 1))
NORM(layer_norm, false)
NORM(rms_norm, true) /* mean, b and partial_b are not used */
