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

template <typename Team, int packs> using row_of = ignis_row<T, Team, PACK, false, packs>;

/* >>flight ------------------------------------------------------------------------------------------------------ */

/*  This thread's place number i. */
__device__ inline uint4 *place(int i)
{
    extern __shared__ uint4 memory[];
    return memory + i * (int)blockDim.x + threadIdx.x;
}

/*  Starts to bring this thread's packs of a row, which begins at from, to its places first, first + 1, ... */
template <typename Row> __device__ inline void fetch(const Row &row, const T *from, int first)
{
#pragma unroll
    for (int p = 0; p < Row::packs; p++)
        if (row.column(0, p) < row.end) {
#if __CUDA_ARCH__ >= 800
            ignis_ptx_cp_async((uint32_t)__cvta_generic_to_shared(place(first + p)), from + row.column(0, p), 16);
#else
            *place(first + p) = *(const uint4 *)(from + row.column(0, p));
#endif
        }
}

template <typename Row> __device__ inline void take(const Row &row, typename Row::Batch &batch, int first)
{
#pragma unroll
    for (int p = 0; p < Row::packs; p++)
        if (row.column(0, p) < row.end)
            batch.at[p] = ignis_pack_of<ignis_pack<T, PACK>>(*place(first + p));
}

/*  A batch that stays in its places until get is called for a pack, so that it takes no registers. */
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

/*  This thread's columns of w or b, wherever that begins. */
template <typename Row> __device__ inline void place_columns(const Row &row, placed<Row::packs> &batch, const T *from)
{
#pragma unroll
    for (int p = 0; p < Row::packs; p++)
        if (row.column(0, p) < row.end) {
            ignis_pack<T, PACK> pack;
#pragma unroll
            for (int i = 0; i < PACK; i++)
                pack[i] = from[row.column(0, p) + i];
            *place(batch.at[p].at) = ignis_word(pack);
        }
    if (row.extra >= 0)
        batch.extra.pack[0] = from[row.extra];
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
    const long long first = Team::first(), step = Team::count();
    const row_of<Team, packs> row(x + first * n, n);
    const Wide share = Wide(1) / Wide(n);
    placed<packs> ws(0), bs(packs);
    ignis_batch<T, PACK, packs> xs[count];
    ignis_pack<T, 1> next_extras[count], next_others[count];
    int turn = 0;
    const auto fetch_rows = [&](long long r) {
#pragma unroll
        for (int j = 0; j < count; j++) {
            const long long at = (r + j * step) * n;
            if (r + j * step >= rows)
                continue;
            fetch(row, x + at, of_x + j * packs);
            if (row.extra >= 0)
                next_extras[j][0] = x[at + row.extra];
            if (other) {
                fetch(row, other + at, of_other + j * packs);
                if (row.extra >= 0)
                    next_others[j][0] = other[at + row.extra];
            }
        }
        fetched();
    };

    fetch_rows(first);
    place_columns(row, ws, w);
    if constexpr (!rms)
        place_columns(row, bs, b);
    for (long long r = first; r < rows; r += count * step) {
        Wide sums[count] = {}, mean[count] = {}, rstd[count];
        arrive<0>();
#pragma unroll
        for (int j = 0; j < count; j++) {
            take(row, xs[j], of_x + j * packs);
            xs[j].extra = next_extras[j];
            if (other && r + j * step < rows) {
                placed<packs> others(of_other + j * packs);
                others.extra.pack = next_others[j];
                row.each(
                    0,
                    [&](int column, auto &x, auto &other_x) {
                        const auto other = other_x.get();
                        Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                        for (int i = 0; i < x.count; i++)
                            values[i] = Wide(x[i]) + Wide(other[i]);
                        x = ignis_pack_round<T>(values);
                        ignis_store(sum + (r + j * step) * n + column, x);
                    },
                    xs[j], others);
            }
        }
        fetch_rows(r + count * step);
#pragma unroll
        for (int j = 0; j < count; j++)
            if (r + j * step < rows)
                row.each(
                    0,
                    [&](int, auto &x) {
#pragma unroll
                        for (int i = 0; i < x.count; i++)
                            sums[j] += rms ? ignis_wide_at(x, i) * ignis_wide_at(x, i) : ignis_wide_at(x, i);
                    },
                    xs[j]);
        sum_all<Team>(sums, turn);
        if constexpr (!rms) {
#pragma unroll
            for (int j = 0; j < count; j++) {
                mean[j] = sums[j] * share;
                sums[j] = 0;
                if (r + j * step < rows)
                    row.each(
                        0,
                        [&](int, auto &x) {
#pragma unroll
                            for (int i = 0; i < x.count; i++)
                                sums[j] += (ignis_wide_at(x, i) - mean[j]) * (ignis_wide_at(x, i) - mean[j]);
                        },
                        xs[j]);
            }
            sum_all<Team>(sums, turn);
        }
#pragma unroll
        for (int j = 0; j < count; j++) {
            const long long at = r + j * step;
            if (at >= rows)
                continue;
            rstd[j] = rsqrt(sums[j] * share + eps);
            if (Team::thread() == 0) {
                rstds[at] = rstd[j];
                if (!rms)
                    means[at] = mean[j];
            }
            row.each(
                0,
                [&](int column, auto &x, auto &its_w, auto &its_b) {
                    const auto w = its_w.get();
                    Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                    for (int i = 0; i < x.count; i++) {
                        values[i] = (ignis_wide_at(x, i) - mean[j]) * rstd[j] * ignis_wide_at(w, i);
                        if constexpr (!rms)
                            values[i] += ignis_wide_at(its_b.get(), i);
                    }
                    ignis_store(y + at * n + column, ignis_pack_round<T>(values));
                },
                xs[j], ws, bs);
        }
    }
}

/* >>backward ---------------------------------------------------------------------------------------------------- */

/*  A thread adds up dw and db of its columns over all rows of its team; the warps of a block meet in the shared block_w and block_b. */
template <bool rms, typename Team, int packs>
__device__ void backward_rows(T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const T *w, const Wide *means,
                              const Wide *rstds, long long rows, long long n, const T *before, Wide *block_w, Wide *block_b)
{
    constexpr int count = FLIGHT / packs, of_x = packs, of_dy = of_x + FLIGHT, of_before = of_dy + FLIGHT; /* places */
    const long long first = Team::first(), step = Team::count();
    const row_of<Team, packs> row(x + first * n, n);
    const Wide share = Wide(1) / Wide(n);
    const int mine = threadIdx.x % count; /* of the rows, the one whose statistics this lane has */
    placed<packs> ws(0);
    ignis_batch<T, PACK, packs> xs[count], gs[count];
    ignis_batch<Wide, PACK, packs> dws, dbs;
    ignis_pack<T, 1> next_xs[count], next_gs[count], next_befores[count];
    Wide next_mean = 0, next_rstd = 0;
    int turn = 0;
    const auto fetch_rows = [&](long long r) {
#pragma unroll
        for (int j = 0; j < count; j++) {
            const long long at = (r + j * step) * n;
            if (r + j * step >= rows)
                continue;
            fetch(row, x + at, of_x + j * packs);
            fetch(row, dy + at, of_dy + j * packs);
            if (row.extra >= 0) {
                next_xs[j][0] = x[at + row.extra];
                next_gs[j][0] = dy[at + row.extra];
            }
        }
        if (r + mine * step < rows) {
            next_rstd = rstds[r + mine * step];
            if (!rms)
                next_mean = means[r + mine * step];
        }
        fetched();
    };
    const auto fetch_before = [&](long long r) {
        if (before)
#pragma unroll
            for (int j = 0; j < count; j++) {
                const long long at = (r + j * step) * n;
                if (r + j * step >= rows)
                    continue;
                fetch(row, before + at, of_before + j * packs);
                if (row.extra >= 0)
                    next_befores[j][0] = before[at + row.extra];
            }
        fetched();
    };

    fetch_rows(first);
    fetch_before(first);
    place_columns(row, ws, w);
    row.each(
        0,
        [&](int, auto &dw, auto &db) {
#pragma unroll
            for (int i = 0; i < dw.count; i++)
                dw[i] = db[i] = 0;
        },
        dws, dbs);
    for (long long r = first; r < rows; r += count * step) {
        Wide sums[rms ? count : 2 * count] = {}, mean[count] = {}, rstd[count];
        arrive<1>();
#pragma unroll
        for (int j = 0; j < count; j++) {
            take(row, xs[j], of_x + j * packs);
            take(row, gs[j], of_dy + j * packs);
            xs[j].extra = next_xs[j];
            gs[j].extra = next_gs[j];
            rstd[j] = __shfl_sync(0xffffffff, next_rstd, j);
            if constexpr (!rms)
                mean[j] = __shfl_sync(0xffffffff, next_mean, j);
        }
        fetch_rows(r + count * step);
#pragma unroll
        for (int j = 0; j < count; j++)
            if (r + j * step < rows)
                row.each(
                    0,
                    [&](int, auto &x, auto &grad, auto &its_w, auto &dw, auto &db) {
                        const auto w = its_w.get();
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
                    },
                    xs[j], gs[j], ws, dws, dbs);
        sum_all<Team>(sums, turn);
        arrive<1>();
#pragma unroll
        for (int j = 0; j < count; j++) {
            const long long at = r + j * step;
            if (at >= rows)
                continue;
            const Wide slope = -sums[j] * share * rstd[j] * rstd[j], shift = rms ? Wide(0) : -sums[rms ? j : count + j] * share * rstd[j];
            placed<packs> befores(of_before + j * packs);
            befores.extra.pack = next_befores[j];
            row.each(
                0,
                [&](int column, auto &x, auto &grad, auto &its_w, auto &its_before) {
                    const auto w = its_w.get();
                    Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                    for (int i = 0; i < x.count; i++) {
                        values[i] =
                            rstd[j] * (ignis_wide_at(grad, i) * ignis_wide_at(w, i)) + (slope * (ignis_wide_at(x, i) - mean[j]) + shift);
                    }
                    if (before) {
                        const auto before_x = its_before.get();
#pragma unroll
                        for (int i = 0; i < x.count; i++)
                            values[i] += ignis_wide_at(before_x, i);
                    }
                    ignis_store(dx + at * n + column, ignis_pack_round<T>(values));
                },
                xs[j], gs[j], ws, befores);
        }
        fetch_before(r + count * step);
    }

    partial_w += blockIdx.x * n;
    partial_b += blockIdx.x * n;
    for (int warp = 0; warp < (Team::is_block ? 1 : WARPS); warp++) { /* the warps add theirs one after the other */
        const bool is_last = Team::is_block || warp == WARPS - 1;
        Wide *const to_w = is_last ? partial_w : block_w, *const to_b = is_last ? partial_b : block_b;
        if (Team::is_block || warp == threadIdx.x / 32)
            row.each(
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
#define NORM(name, rms)                                                                                       \
    KERNELS(name, rms, few, ignis_warp_team, 1, (32 * WARPS, 5), (32 * WARPS, sizeof(T) == 8 ? 2 : 4))        \
    KERNELS(name, rms, warp, ignis_warp_team, 4, (32 * WARPS, 6), (32 * WARPS, rms && sizeof(T) < 8 ? 4 : 3)) \
    KERNELS(name, rms, block, ignis_block_team, 4, (BLOCK_THREADS, 2), (BLOCK_THREADS, 1))
NORM(layer_norm, false)
NORM(rms_norm, true) /* mean, b and partial_b are not used */
