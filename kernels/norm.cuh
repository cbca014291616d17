// SPDX-License-Identifier: MIT
/*  norm.cuh - the loops over rows that the kernels of layer_norm and rms_norm have in common

        layer_norm  y = (x - mean) * rstd * w + b    rstd = 1 / sqrt(variance + eps)
                    (Ba, Kiros, Hinton: Layer Normalization, 2016)
        rms_norm    y = x * rstd * w                 rstd = 1 / sqrt(mean of x^2 + eps)
                    (Zhang, Sennrich: Root Mean Square Layer Normalization, 2019)

    With h = (x - mean) * rstd (mean 0 for rms_norm), g = dy * w, and avg over the row,
        dx = rstd * (g - avg(g) - h * avg(g * h))    without avg(g) for rms_norm
        dw = sum of dy * h over the rows, db = sum of dy

    Compiled with -DIGNIS_T=<1 to 4>, the element type. Statistics are ignis_wide<T>, [rows]. Rows are shorter
    than 2^30. See ignis_row in ignis.cuh for how a row is shared out; kernels named _warp are for rows that a
    warp has in registers, _row for those that a block has there.
    packed: rows of all arrays, and w and b, begin at multiples of 16 bytes, and hold full packs (1); or all
    rows begin at the same addresses modulo 16, in all arrays (IGNIS__NORM_UNALIGNED). */
#ifndef IGNIS_NORM_CUH
#define IGNIS_NORM_CUH

#include "ignis.cuh"
#include "shared/norm.h"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

/*  Weights: w and b. Programs of norm_wide.cu and others have f32 weights beside x of 16 bits. */
#ifdef IGNIS_WIDE_WEIGHTS
typedef Wide W;
#else
typedef T W;
#endif

#define PACK (16 / (int)sizeof(T)) /* elements */

/*  Registers for this many blocks on an SM: a row waits for memory, then for its sums, and meanwhile other
    rows have to be processed. Wider types need more registers. */
#define FORWARD_WARP_BLOCKS (sizeof(T) == 2 ? 8 : 4)
#define FORWARD_BLOCKS \
    (sizeof(T) == 2 && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200 ? 2 : 1) /* of 512 threads, or 8 of 128 */
#define FORWARD_ROW_BLOCKS (sizeof(T) == 2 && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200 ? 3 : 1)

/*  N elements of w or b, which begin at a multiple of 16 bytes, or of their size. */
template <int N> __device__ inline ignis_pack<W, N> load_weights(const W *from)
{
    constexpr int share = N * sizeof(W) <= 16 ? N : 16 / sizeof(W);
    if constexpr (share == N) {
        return ignis_load<N>(from);
    } else {
        ignis_pack<W, N> pack;
#pragma unroll
        for (int i = 0; i < N; i += share) {
            const auto part = ignis_load<share>(from + i);
#pragma unroll
            for (int k = 0; k < share; k++)
                pack[i + k] = part[k];
        }
        return pack;
    }
}

/*  N elements of w or b, which has n, from this column on. A pack that does not begin at a multiple of 16
    bytes is put together from the two that have its elements. */
template <int N> __device__ inline ignis_pack<W, N> load_columns(const W *array, int column, long long n)
{
    if constexpr (N == PACK && sizeof(W) != sizeof(T)) {
        if (ignis_is_aligned(array + column, 16))
            return load_weights<N>(array + column);
    } else if constexpr (N == PACK) {
        const W *const from = array + column;
        const int bytes = (int)((size_t)from % 16); /* the same for all packs of a row */
        const W *const low = from - bytes / (int)sizeof(T);
        if (bytes == 0)
            return ignis_load<N>(from);
        if (low >= array && low + 2 * N <= array + n) {
            const uint4 first = *(const uint4 *)low, second = *(const uint4 *)(low + N);
            uint32_t words[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
            if (bytes & 8)
#pragma unroll
                for (int i = 0; i < 6; i++)
                    words[i] = words[i + 2];
            if (bytes & 4)
#pragma unroll
                for (int i = 0; i < 5; i++)
                    words[i] = words[i + 1];
            if (bytes & 2)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    words[i] = words[i] >> 16 | words[i + 1] << 16;
            return ignis_pack_of<ignis_pack<W, N>>(make_uint4(words[0], words[1], words[2], words[3]));
        }
    }
    ignis_pack<W, N> pack;
#pragma unroll
    for (int i = 0; i < N; i++)
        pack[i] = array[column + i];
    return pack;
}

/* >>forward ----------------------------------------------------------------------------------------------------- */

/*  Whether a team has had rows whose squares do not fit; those of f16 always do. A block keeps it in shared
    memory, as the loop over rows has no register to spare. A warp reads what it has written after the loop:
    with a flag in it, sm_90 had an instruction more for each access of memory. */
template <typename Team> struct unfit_rows {
    static constexpr bool always_fit = ignis_is_same<T, ignis_f16>;

    static __device__ int &of_block()
    {
        __shared__ int found;
        return found;
    }
    __device__ unfit_rows()
    {
        if (!always_fit && Team::is_block && Team::thread() == 0)
            of_block() = 0;
    }
    /*  For the first thread of the team. */
    __device__ void look(Wide rstd) const
    {
        if (!always_fit && Team::is_block && !ignis_rstd_fits(rstd))
            of_block() = 1;
    }
    /*  Called by all threads, after the last row: what they have written is visible. */
    __device__ bool found(const Wide *rstds, long long rows) const
    {
        if (always_fit)
            return false;
        Team::wait();
        if (Team::is_block)
            return of_block() != 0;
        bool some = false;
#pragma unroll 1
        for (long long r = Team::first() + Team::thread() * Team::count(); r < rows; r += Team::size() * Team::count())
            some = some || !ignis_rstd_fits(rstds[r]);
        return __any_sync(0xffffffff, some) != 0;
    }
};

/*  Computes the rows whose squares did not fit once more: their norms may be ordinary. They come after all
    others, whose loop has no register to spare. x is the normalized array in memory; a team has taken `group`
    neighbouring rows at a time. */
template <bool rms, typename Team>
static __device__ __noinline__ void forward_again(T *y, Wide *means, Wide *rstds, const T *x, const W *w, const W *b,
                                                  long long rows, long long n, Wide eps, int group = 1)
{
#pragma unroll 1
    for (long long i = 0, r; (r = (Team::first() + i / group * Team::count()) * group + i % group) < rows; i++) {
        if (ignis_rstd_fits(rstds[r]))
            continue;
        const T *const from = x + r * n;
        T *const to = y + r * n;
        const int end = (int)n;
        Wide scale = 1, mean = 0, sum = 0;
#pragma unroll 1
        for (int walk = 0; walk < 3; walk++) { /* the largest, the mean, the squares */
            sum = 0;
#pragma unroll 1
            for (int i = Team::thread(); i < end; i += Team::size()) {
                const Wide x = Wide(from[i]) * scale;
                sum = walk == 0 ? max(sum, fabs(x)) : walk == 1 ? sum + x : sum + (x - mean) * (x - mean);
            }
            if (walk == 0)
                scale = ignis_square_scale(Team::template reduce<ignis_max>(sum));
            else
                sum = Team::template reduce<ignis_sum>(sum) / Wide(n);
            if (walk == 1 && !rms)
                mean = sum;
        }
        const Wide rstd = Wide(1) / sqrt(sum + eps * scale * scale);
#pragma unroll 1
        for (int i = Team::thread(); i < end; i += Team::size())
            to[i] = T((Wide(from[i]) * scale - mean) * rstd * Wide(w[i]) + (rms ? Wide(0) : Wide(b[i])));
        Team::wait(); /* all have read rstds[r] */
        if (Team::thread() == 0) {
            rstds[r] = rstd * scale;
            if (!rms)
                means[r] = mean / scale;
        }
    }
}

/*  The squares are summed around the mean that is known by then: one walk with sums of x and x^2 would
    cancel.

    add: what is normalized is not x but x + other, rounded, which goes to sum. */
template <bool rms, bool add, typename Team, int N>
__device__ void forward(T *y, Wide *means, Wide *rstds, const T *x, const W *w, const W *b, long long rows, long long n,
                        Wide eps, int kept, T *sum_out = nullptr, const T *other = nullptr)
{
    unfit_rows<Team> unfit;
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
            unfit.look(rstd);
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
                    const auto load = [&](const W *from) { /* rows of a warp begin at multiples of 16 bytes */
                                                           if constexpr (Team::is_block)
                                                               return load_columns<count>(from, column, n);
                                                           else
                                                               return load_weights<count>(from + column);
                    };
                    const ignis_pack<W, count> ws = load(w);
                    Wide values[count];
#pragma unroll
                    for (int i = 0; i < count; i++)
                        values[i] = (Wide(pack[i]) - mean) * rstd * Wide(ws[i]);
                    if constexpr (!rms) {
                        const ignis_pack<W, count> bs = load(b);
#pragma unroll
                        for (int i = 0; i < count; i++)
                            values[i] += Wide(bs[i]);
                    }
                    ignis_store(to + column, ignis_pack_round<T>(values));
                },
                xs);
        }
    }
    if (unfit.found(rstds, rows))
        forward_again<rms, Team>(y, means, rstds, add ? sum_out : x, w, b, rows, n, eps);
}

/*  As above for packed rows, of which each thread of a block has at most `packs` packs: as words of memory,
    which are taken apart in each pass. So they need few registers, and an SM has many rows in flight. */
template <bool rms, bool add, int packs>
__device__ void forward_row(T *y, Wide *means, Wide *rstds, const T *x, const W *w, const W *b, long long rows,
                            long long n, Wide eps, T *sum_out = nullptr, const T *other = nullptr)
{
    const auto column_of = [](int p) { return (p * (int)blockDim.x + (int)threadIdx.x) * PACK; };
    unfit_rows<ignis_block_team> unfit;
    for (long long r = blockIdx.x; r < rows; r += gridDim.x) {
        uint4 words[packs];
        Wide mean = 0;
        /* f(p, column) for `count` of the packs that this thread has, from number first on */
        const auto each = [&](int first, int count, auto f) {
#pragma unroll
            for (int p = first; p < first + count; p++)
                if (column_of(p) < (int)n)
                    f(p, column_of(p));
        };
        each(0, packs, [&](int p, int column) { words[p] = *(const uint4 *)(x + r * n + column); });
        const auto add_up = [&](auto f) { /* f(x) over the row */
                                          Wide sum = 0;
                                          each(0, packs, [&](int p, int) {
                                              const auto pack = ignis_pack_of<ignis_pack<T, PACK>>(words[p]);
#pragma unroll
                                              for (int i = 0; i < PACK; i++)
                                                  sum += f(ignis_wide_at(pack, i));
                                          });
                                          return ignis_block_sum(sum);
        };
#pragma unroll
        for (int first = 0; add && first < packs; first += IGNIS_ROW_PACKS) {
            uint4 others[IGNIS_ROW_PACKS];
            each(first, IGNIS_ROW_PACKS,
                 [&](int p, int column) { others[p - first] = *(const uint4 *)(other + r * n + column); });
            each(first, IGNIS_ROW_PACKS, [&](int p, int column) {
                const auto one = ignis_pack_of<ignis_pack<T, PACK>>(words[p]),
                           two = ignis_pack_of<ignis_pack<T, PACK>>(others[p - first]);
                Wide values[PACK];
#pragma unroll
                for (int i = 0; i < PACK; i++)
                    values[i] = ignis_wide_at(one, i) + ignis_wide_at(two, i);
                const auto both = ignis_pack_round<T>(values);
                ignis_store(sum_out + r * n + column, both);
                words[p] = ignis_word(both);
            });
        }
        if constexpr (!rms)
            mean = add_up([](Wide x) { return x; }) / Wide(n);
        const Wide square = add_up([&](Wide x) { return (x - mean) * (x - mean); }) / Wide(n),
                   rstd = Wide(1) / sqrt(square + eps);
        if (threadIdx.x == 0) {
            rstds[r] = rstd;
            unfit.look(rstd);
            if (!rms)
                means[r] = mean;
        }
        each(0, packs, [&](int p, int column) {
            const auto pack = ignis_pack_of<ignis_pack<T, PACK>>(words[p]);
            const auto ws = load_weights<PACK>(w + column);
            Wide values[PACK];
#pragma unroll
            for (int i = 0; i < PACK; i++)
                values[i] = (ignis_wide_at(pack, i) - mean) * rstd * ignis_wide_at(ws, i);
            if constexpr (!rms) {
                const auto bs = load_weights<PACK>(b + column);
#pragma unroll
                for (int i = 0; i < PACK; i++)
                    values[i] += ignis_wide_at(bs, i);
            }
            ignis_store(y + r * n + column, ignis_pack_round<T>(values));
        });
    }
    if (unfit.found(rstds, rows))
        forward_again<rms, ignis_block_team>(y, means, rstds, add ? sum_out : x, w, b, rows, n, eps);
}

#endif /* IGNIS_NORM_CUH */
