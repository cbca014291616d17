// SPDX-License-Identifier: MIT
/*  channel_norm.cu - batch_norm and group_norm of x [outer, rows, channels], forward and backward

        y = (x - mean) * rstd * w + b    rstd = 1 / sqrt(variance + eps)

    Mean and variance are those of a group: of the neighbouring channels of one of `groups` groups, over the
    rows of one of `outer` images. So batch_norm has outer = 1 and a group for each channel (Ioffe, Szegedy:
    Batch Normalization, 2015), group_norm an outer for each image (Wu, He: Group Normalization, 2018). With h
    = (x - mean) * rstd, g = dy * w, and avg over the group,

        dx = rstd * (g - avg(g) - h * avg(g * h))    without the averages where mean and rstd were given
        dw = sum of dy * h over outer and rows, db = sum of dy

    Blocks of x * y threads: a thread has a pack of channels, and each y-th row of a part of part_length rows.
    Parts leave what they have summed in two arrays [outer, parts, channels]; those are summed in a fixed
    order. Rows are written from the last one on, as the last ones read before are still in the cache.

    One program per element type: compiled with -DIGNIS_T=<1 to 4>. Statistics are ignis_wide<T>. packed:
    channels are a multiple of a pack, and all arrays of rows begin at multiples of 16 bytes. The grid may have
    any number of blocks. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

/*  Weights: w and b. Programs of channel_norm_wide.cu have f32 weights beside x of 16 bits. */
#ifdef IGNIS_WIDE_WEIGHTS
typedef Wide W;
#else
typedef T W;
#endif

#include "shared/channel_norm.h"

#define PACK (16 / (int)sizeof(T)) /* elements */
#define THREADS IGNIS__CHANNEL_THREADS
#define IN_FLIGHT 4 /* rows that a thread loads before it uses the first */
#define WARPS IGNIS__CHANNEL_WARPS

/*  The work of a block at a time: a part of the rows of an image, and a tile of channels. This thread has the
    channels from channel on, if there are any. */
struct ignis_item {
    long long image, part, begin, end, channel;
};

template <int N> __device__ inline long long items(const ignis__channel_sizes &s)
{
    const long long width = (long long)blockDim.x * N;
    return s.outer * s.parts * ((s.channels + width - 1) / width);
}

template <int N> __device__ inline ignis_item item_of(const ignis__channel_sizes &s, long long i)
{
    const long long width = (long long)blockDim.x * N, tiles = (s.channels + width - 1) / width;
    ignis_item item;
    item.channel = i % tiles * width + threadIdx.x * N;
    item.part = i / tiles % s.parts;
    item.image = i / tiles / s.parts;
    item.begin = item.part * s.part_length;
    item.end = min(item.begin + s.part_length, s.rows);
    return item;
}

/*  Loads the groups' values for each of N channels. */
template <int N>
__device__ inline void load_groups(Wide (&values)[N], const Wide *from, const ignis__channel_sizes &s,
                                   const ignis_item &item)
{
    const uint32_t width = (uint32_t)(s.channels / s.groups); /* channels are fewer than 2^31 */
#pragma unroll
    for (int e = 0; e < N; e++)
        values[e] = from[item.image * s.groups + (uint32_t)(item.channel + e) / width];
}

/*  Sums the values of the threads of equal x into the first of them. */
template <int N> __device__ inline void add_rows(Wide (&sum)[N], Wide *shared)
{
    const int threads = blockDim.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x;
    for (int rows = blockDim.y / 2; rows > 0; rows /= 2) {
        if (threadIdx.y >= rows && threadIdx.y < 2 * rows)
#pragma unroll
            for (int e = 0; e < N; e++)
                shared[e * threads + thread] = sum[e];
        __syncthreads();
        if (threadIdx.y < rows)
#pragma unroll
            for (int e = 0; e < N; e++)
                sum[e] += shared[e * threads + thread + rows * blockDim.x];
    } /* the next round writes to memory that no thread reads any more: below this round's */
    __syncthreads();
}

/* >>forward ----------------------------------------------------------------------------------------------------- */

/*  Computes the mean of a part, and the sum of squares around it. The sums are around the part's first row.
    However far that is from the others, the variance includes it, and so loses at most as many roundings as
    there are rows. */
template <int N>
__device__ inline void statistics(Wide *means, Wide *squares, const T *x, const ignis__channel_sizes &s, Wide *shared)
{
    for (long long i = blockIdx.x; i < items<N>(s); i += gridDim.x) {
        const ignis_item item = item_of<N>(s, i);
        const bool has = item.channel < s.channels;
        const T *const from = x + item.image * s.rows * s.channels + item.channel;
        Wide sum[N] = {}, square[N] = {}, pivot[N] = {};
        if (has) {
            const ignis_pack<T, N> first = ignis_load<N>(from + item.begin * s.channels);
#pragma unroll
            for (int e = 0; e < N; e++)
                pivot[e] = ignis_wide_at(first, e);
        }
        for (long long row = item.begin + threadIdx.y; has && row < item.end; row += IN_FLIGHT * blockDim.y) {
            ignis_pack<T, N> xs[IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (row + k * blockDim.y < item.end)
                    xs[k] = ignis_load<N>(from + (row + k * blockDim.y) * s.channels);
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (row + k * blockDim.y < item.end)
#pragma unroll
                    for (int e = 0; e < N; e++) {
                        const Wide d = ignis_wide_at(xs[k], e) - pivot[e];
                        sum[e] += d;
                        square[e] += d * d;
                    }
        }
        add_rows(sum, shared);
        add_rows(square, shared);
        if (threadIdx.y == 0 && has) {
            const Wide n = (Wide)(item.end - item.begin);
            const long long to = (item.image * s.parts + item.part) * s.channels + item.channel;
#pragma unroll
            for (int e = 0; e < N; e++) {
                const Wide mean = sum[e] / n;
                means[to + e] = pivot[e] + mean;
                squares[to + e] = square[e] - sum[e] * mean;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ignis_channel_statistics(Wide *means, Wide *squares, const T *x, const ignis__channel_sizes s)
{
    __shared__ Wide shared[PACK * THREADS];
    if (s.packed)
        statistics<PACK>(means, squares, x, s, shared);
    else
        statistics<1>(means, squares, x, s, shared);
}

/*  f(where in the arrays of partial sums, channel, rows in that part) for this lane's parts and channels of a
    group. */
template <typename F> __device__ inline void each_partial(const ignis__channel_sizes &s, long long group, F f)
{
    const long long image = group / s.groups;
    const int width = (int)s.channels / (int)s.groups, first = (int)(group - image * s.groups) * width;
    int part = threadIdx.x % 32 / width, at = threadIdx.x % 32 % width;
    while (part < s.parts) {
        f((image * s.parts + part) * s.channels + first + at, first + at,
          (Wide)min(s.part_length, s.rows - part * s.part_length));
        part += 32 / width;
        at += 32 % width;
        if (at >= width) {
            at -= width;
            part++;
        }
    }
}

/*  That of the first part's and channel's. */
__device__ inline Wide first_partial(const Wide *from, const ignis__channel_sizes &s, long long group)
{
    const long long image = group / s.groups;
    return from[image * s.parts * s.channels + (group - image * s.groups) * ((int)s.channels / (int)s.groups)];
}

/*  The statistics of a group once more if its squares do not fit: mean and variance of its numbers times
    scale. */
struct scaled {
    Wide scale, mean, variance;
};
__device__ inline scaled statistics_again(const T *x, const ignis__channel_sizes &s, long long group)
{
    const long long image = group / s.groups;
    const int width = (int)s.channels / (int)s.groups;
    x += image * s.rows * s.channels + (group - image * s.groups) * width;
    scaled again = {1, 0, 0};
#pragma unroll 1
    for (int walk = 0; walk < 3; walk++) { /* the largest, the mean, the squares */
        Wide sum = 0;
#pragma unroll 1
        for (long long i = threadIdx.x % 32; i < s.rows * width; i += 32) {
            const Wide v = Wide(x[i / width * s.channels + i % width]) * again.scale;
            sum = walk == 0 ? max(sum, fabs(v)) : walk == 1 ? sum + v : sum + (v - again.mean) * (v - again.mean);
        }
        if (walk == 0)
            again.scale = ignis_square_scale(ignis_warp_max(sum));
        else
            (walk == 1 ? again.mean : again.variance) = ignis_warp_sum(sum) / (Wide)(s.rows * width);
    }
    return again;
}

/*  Computes mean and rstd [outer, groups], a warp for each, from the parts or, without them, from the running
    ones. Given running averages move by the momentum towards the new ones, the variance to the unbiased one. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    ignis_channel_finish(Wide *mean_out, Wide *rstd_out, const Wide *means, const Wide *squares, Wide *running_mean,
                         Wide *running_var, double momentum, double eps, const ignis__channel_sizes s, const T *x)
{
    const long long step = (long long)gridDim.x * WARPS;
    for (long long group = (long long)blockIdx.x * WARPS + threadIdx.x / 32; group < s.outer * s.groups;
         group += step) {
        const Wide n = (Wide)(s.rows * ((int)s.channels / (int)s.groups));
        Wide mean = 0, variance = 0, scale = 1;
        if (means) {
            const Wide base = first_partial(means, s, group);
            each_partial(s, group, [&](long long at, long long, Wide rows) { mean += rows * (means[at] - base); });
            mean = base + ignis_warp_sum(mean) / n; /* numbers far from zero lose nothing in this sum */
            each_partial(s, group, [&](long long at, long long, Wide rows) {
                const Wide d = means[at] - mean;
                variance += squares[at] + rows * d * d;
            });
            variance = ignis_warp_sum(variance) / n;
            if (!ignis_is_same<T, ignis_f16> && !ignis_squares_fit(variance + Wide(eps))) {
                const scaled again = statistics_again(x, s, group);
                scale = again.scale;
                mean = again.mean / scale;
                variance = again.variance;
            }
        } else {
            mean = running_mean[group];
            variance = running_var[group];
        }
        if (threadIdx.x % 32 == 0) {
            mean_out[group] = mean;
            rstd_out[group] = Wide(1) / sqrt(variance + Wide(eps) * scale * scale) * scale;
            variance = variance / scale / scale;
            if (means && running_mean) {
                const Wide m = Wide(momentum);
                running_mean[group] = (1 - m) * running_mean[group] + m * mean;
                running_var[group] = (1 - m) * running_var[group] + m * variance * (n / (n - 1));
            }
        }
    }
}

template <int N>
__device__ inline void apply(T *y, const T *x, const W *w, const W *b, const Wide *means, const Wide *rstds,
                             const ignis__channel_sizes &s)
{
    for (long long i = blockIdx.x; i < items<N>(s); i += gridDim.x) {
        const ignis_item item = item_of<N>(s, i);
        if (item.channel >= s.channels)
            continue;
        const long long image = item.image * s.rows * s.channels + item.channel;
        Wide mean[N], scale[N], shift[N];
        load_groups(mean, means, s, item);
        load_groups(scale, rstds, s, item);
#pragma unroll
        for (int e = 0; e < N; e++) {
            scale[e] *= Wide(w[item.channel + e]);
            shift[e] = Wide(b[item.channel + e]);
        }
        for (long long row = item.end - 1 - threadIdx.y; row >= item.begin; row -= IN_FLIGHT * blockDim.y) {
            ignis_pack<T, N> xs[IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (row - k * (int)blockDim.y >= item.begin)
                    xs[k] = ignis_load<N>(x + image + (row - k * (int)blockDim.y) * s.channels);
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (row - k * (int)blockDim.y >= item.begin) {
                    Wide values[N];
#pragma unroll
                    for (int e = 0; e < N; e++)
                        values[e] = (ignis_wide_at(xs[k], e) - mean[e]) * scale[e] + shift[e];
                    ignis_store(y + image + (row - k * (int)blockDim.y) * s.channels, ignis_pack_round<T>(values));
                }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    ignis_channel_apply(T *y, const T *x, const W *w, const W *b, const Wide *means, const Wide *rstds,
                        const ignis__channel_sizes s)
{
    if (s.packed)
        apply<PACK>(y, x, w, b, means, rstds, s);
    else
        apply<1>(y, x, w, b, means, rstds, s);
}

/* >>backward ---------------------------------------------------------------------------------------------------- */

/*  Of a part, the sums of dy and of dy * h. */
template <int N>
__device__ inline void sums(Wide *grads, Wide *products, const T *dy, const T *x, const Wide *means, const Wide *rstds,
                            const ignis__channel_sizes &s, Wide *shared)
{
    for (long long i = blockIdx.x; i < items<N>(s); i += gridDim.x) {
        const ignis_item item = item_of<N>(s, i);
        const bool has = item.channel < s.channels;
        const long long image = item.image * s.rows * s.channels + item.channel;
        Wide grad[N] = {}, product[N] = {}, mean[N] = {}, rstd[N] = {};
        if (has) {
            load_groups(mean, means, s, item);
            load_groups(rstd, rstds, s, item);
        }
        for (long long row = item.begin + threadIdx.y; has && row < item.end; row += IN_FLIGHT * blockDim.y) {
            ignis_pack<T, N> gs[IN_FLIGHT], xs[IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (row + k * blockDim.y < item.end) {
                    gs[k] = ignis_load<N>(dy + image + (row + k * blockDim.y) * s.channels);
                    xs[k] = ignis_load<N>(x + image + (row + k * blockDim.y) * s.channels);
                }
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (row + k * blockDim.y < item.end)
#pragma unroll
                    for (int e = 0; e < N; e++) {
                        grad[e] += ignis_wide_at(gs[k], e);
                        product[e] += ignis_wide_at(gs[k], e) * ((ignis_wide_at(xs[k], e) - mean[e]) * rstd[e]);
                    }
        }
        add_rows(grad, shared);
        add_rows(product, shared);
        if (threadIdx.y == 0 && has) {
            const long long to = (item.image * s.parts + item.part) * s.channels + item.channel;
#pragma unroll
            for (int e = 0; e < N; e++) {
                grads[to + e] = grad[e];
                products[to + e] = product[e];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ignis_channel_sums(Wide *grads, Wide *products, const T *dy, const T *x, const Wide *means, const Wide *rstds,
                       const ignis__channel_sizes s)
{
    __shared__ Wide shared[PACK * THREADS];
    if (s.packed)
        sums<PACK>(grads, products, dy, x, means, rstds, s, shared);
    else
        sums<1>(grads, products, dy, x, means, rstds, s, shared);
}

/*  dw and db (null: not that one) out of the parts' sums: a lane has a channel, a warp every WARPS-th part of
    all images. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    ignis_channel_weights(T *dw, T *db, const Wide *grads, const Wide *products, const ignis__channel_sizes s)
{
    __shared__ Wide shared[2][WARPS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (long long tile = blockIdx.x; tile * 32 < s.channels; tile += gridDim.x) {
        const long long channel = tile * 32 + lane;
        Wide grad = 0, product = 0;
        if (channel < s.channels)
#pragma unroll 4
            for (long long part = warp; part < s.outer * s.parts; part += WARPS) {
                grad += grads[part * s.channels + channel];
                product += products[part * s.channels + channel];
            }
        shared[0][warp][lane] = grad;
        shared[1][warp][lane] = product;
        __syncthreads();
        if (warp == 0 && channel < s.channels) {
#pragma unroll
            for (int i = 1; i < WARPS; i++) {
                grad += shared[0][i][lane];
                product += shared[1][i][lane];
            }
            if (dw)
                dw[channel] = T(product);
            if (db)
                db[channel] = T(grad);
        }
        __syncthreads();
    }
}

/*  The averages of g and g * h [outer, groups], a warp for each. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    ignis_channel_averages(Wide *average_g, Wide *average_gh, const Wide *grads, const Wide *products, const W *w,
                           const ignis__channel_sizes s)
{
    const long long step = (long long)gridDim.x * WARPS;
    for (long long group = (long long)blockIdx.x * WARPS + threadIdx.x / 32; group < s.outer * s.groups;
         group += step) {
        const Wide n = (Wide)(s.rows * ((int)s.channels / (int)s.groups));
        Wide g = 0, gh = 0;
        each_partial(s, group, [&](long long at, long long channel, Wide) {
            g += grads[at] * Wide(w[channel]);
            gh += products[at] * Wide(w[channel]);
        });
        g = ignis_warp_sum(g);
        gh = ignis_warp_sum(gh);
        if (threadIdx.x % 32 == 0) {
            average_g[group] = g / n;
            average_gh[group] = gh / n;
        }
    }
}

constexpr Wide smallest_rstd = sizeof(Wide) == 8 ? Wide(0x1p-480) : Wide(0x1p-50f);

/*  dx of the n channels of an item, where the square of rstd is no number. */
static __device__ __noinline__ void backward_again(int n, const ignis__channel_gradient p, const ignis_item &item)
{
    const ignis__channel_sizes &s = p.sizes;
    for (long long channel = item.channel; channel < item.channel + n; channel++) {
        const long long group = item.image * s.groups + channel / (s.channels / s.groups);
        const Wide mean = p.mean[group], rstd = p.rstd[group], g = p.average_g[group], gh = p.average_gh[group],
                   weight = Wide(p.w[channel]);
#pragma unroll 1
        for (long long row = item.begin + threadIdx.y; row < item.end; row += blockDim.y) {
            const long long at = (item.image * s.rows + row) * s.channels + channel;
            p.dx[at] = T(rstd * (Wide(p.dy[at]) * weight - g - (Wide(p.x[at]) - mean) * rstd * gh));
        }
    }
}

/*  Computes dx; without averages if mean and rstd were given. */
template <int N, bool given> __device__ inline void apply_backward(const ignis__channel_gradient p)
{
    const ignis__channel_sizes &s = p.sizes;
    for (long long i = blockIdx.x; i < items<N>(s); i += gridDim.x) {
        const ignis_item item = item_of<N>(s, i);
        if (item.channel >= s.channels)
            continue;
        const long long image = item.image * s.rows * s.channels + item.channel;
        Wide mean[N] = {}, scale[N], less[N] = {}, slope[N] = {}; /* dx = dy * scale - less - (x - mean) * slope */
        load_groups(scale, p.rstd, s, item);
        if (!given && !ignis_is_same<T, ignis_f16>) { /* if scale^2 overflows, the same in another order */
            bool fit = true;
#pragma unroll
            for (int e = 0; e < N; e++)
                fit = fit && scale[e] >= smallest_rstd && ignis_rstd_fits(scale[e]);
            if (!fit) {
                backward_again(N, p, item);
                continue;
            }
        }
        if (!given) {
            load_groups(mean, p.mean, s, item);
            load_groups(less, p.average_g, s, item);
            load_groups(slope, p.average_gh, s, item);
        }
#pragma unroll
        for (int e = 0; e < N; e++) {
            less[e] *= scale[e];
            slope[e] *= scale[e] * scale[e];
            scale[e] *= Wide(p.w[item.channel + e]);
        }
        for (long long row = item.end - 1 - threadIdx.y; row >= item.begin; row -= IN_FLIGHT * blockDim.y) {
            ignis_pack<T, N> gs[IN_FLIGHT], xs[IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (row - k * (int)blockDim.y >= item.begin) {
                    gs[k] = ignis_load<N>(p.dy + image + (row - k * (int)blockDim.y) * s.channels);
                    if (!given)
                        xs[k] = ignis_load<N>(p.x + image + (row - k * (int)blockDim.y) * s.channels);
                }
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (row - k * (int)blockDim.y >= item.begin) {
                    Wide values[N];
#pragma unroll
                    for (int e = 0; e < N; e++) {
                        values[e] = ignis_wide_at(gs[k], e) * scale[e];
                        if (!given)
                            values[e] -= less[e] + (ignis_wide_at(xs[k], e) - mean[e]) * slope[e];
                    }
                    ignis_store(p.dx + image + (row - k * (int)blockDim.y) * s.channels, ignis_pack_round<T>(values));
                }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) ignis_channel_backward(const ignis__channel_gradient p)
{
    if (p.sizes.packed && p.average_g)
        apply_backward<PACK, false>(p);
    else if (p.sizes.packed)
        apply_backward<PACK, true>(p);
    else if (p.average_g)
        apply_backward<1, false>(p);
    else
        apply_backward<1, true>(p);
}
