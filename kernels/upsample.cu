// SPDX-License-Identifier: MIT
/*  upsample.cu - images at another size, by the nearest pixel or linear in between, forward and backward

    Position o of a dimension of the result is at (o * step + start) / den of the image. That is exact, in
    whole numbers: the nearest pixel is that rounded down, and the weights of linear interpolation are the
    remainder over den, and what is left of 1. The gradient of a pixel is gathered from the positions that it
    has weight in.

    See image.cuh. */
#include "image.cuh"

/*  Two neighbours, and the weight of the second. */
struct ignis_between {
    int low, high;
    Wide weight;
};

__device__ inline ignis_between between(const ignis__scaling &s, int o)
{
    const long long den = s.den.size,
                    at = max(0LL, min((long long)o * s.step + s.start, (s.in - 1) * den + (s.is_linear ? 0 : den - 1)));
    int rest;
    const int low = (int)ignis_divide_any(s.den, at, rest);
    return {low, min(low + 1, s.in - 1), s.is_linear ? (Wide)rest / (Wide)den : Wide(0)};
}

template <int N> __device__ inline void add_pack(Wide (&sum)[N], const T *from, Wide weight)
{
    const ignis_pack<T, N> pack = ignis_load<N>(from);
#pragma unroll
    for (int e = 0; e < N; e++)
        sum[e] += ignis_wide_at(pack, e) * weight;
}

/*  Pixels without weight are not read: they might be infinite. */
template <int N, int share> __device__ inline void upsample(T *y, const T *x, const ignis__resampling &p)
{
    each_pixel<N>(p.images, [&](long long to, const ignis_pixel &at) {
        const ignis_between rows = between(p.dim[0], at.y), columns = between(p.dim[1], at.x);
        const long long width = p.images.src_width, channels = p.images.channels,
                        next = (long long)p.images.packs.size * N;
        const T *const low = x + src_of(p.images, at) + (rows.low * width + columns.low) * channels;
        if (rows.weight == 0 && columns.weight == 0) {
            ignis_pack<T, N> pack[share];
#pragma unroll
            for (int i = 0; i < share; i++)
                pack[i] = ignis_load<N>(low + i * next);
#pragma unroll
            for (int i = 0; i < share; i++)
                ignis_store(y + to + i * next, pack[i]);
            return;
        }
        const Wide weight[4] = {(1 - rows.weight) * (1 - columns.weight), (1 - rows.weight) * columns.weight,
                                rows.weight * (1 - columns.weight), rows.weight * columns.weight};
        const long long right = (columns.high - columns.low) * channels,
                        down = (rows.high - rows.low) * width * channels;
#pragma unroll 1
        for (int i = 0; i < share; i++) {
            const T *const from = low + i * next;
            ignis_pack<T, N> corner[4];
            corner[0] = ignis_load<N>(from);
            if (columns.weight != 0)
                corner[1] = ignis_load<N>(from + right);
            if (rows.weight != 0)
                corner[2] = ignis_load<N>(from + down);
            if (rows.weight != 0 && columns.weight != 0)
                corner[3] = ignis_load<N>(from + down + right);
            Wide sum[N];
#pragma unroll
            for (int e = 0; e < N; e++)
                sum[e] = ignis_wide_at(corner[0], e) * weight[0];
#pragma unroll
            for (int c = 1; c < 4; c++)
                if (weight[c] != 0)
#pragma unroll
                    for (int e = 0; e < N; e++)
                        sum[e] += ignis_wide_at(corner[c], e) * weight[c];
            ignis_store(y + to + i * next, ignis_pack_round<T, N>(sum));
        }
    });
}

extern "C" __global__ void __launch_bounds__(IGNIS__IMAGE_THREADS, 4)
    ignis_upsample(T *y, const T *x, const ignis__resampling p)
{
    if (p.images.packed && p.images.share == IGNIS__IMAGE_SHARE)
        upsample<PACK, IGNIS__IMAGE_SHARE>(y, x, p);
    else if (p.images.packed)
        upsample<PACK, 1>(y, x, p);
    else
        upsample<1, 1>(y, x, p);
}

/*  A pixel has weight in positions begin to end; at is the distance of the first one from it, in units of 1 /
    den. */
struct ignis_reach {
    int begin, end;
    long long at;
};

__device__ inline ignis_reach reach_of(const ignis__scaling &s, int pixel)
{
    const long long den = s.den.size, before = (pixel - s.is_linear) * den - s.start - (s.is_linear ? 0 : 1);
    const long long last = (pixel + 1) * den - 1 - s.start;
    ignis_reach reach;
    reach.begin = before < 0 ? 0 : (int)ignis_quotient(s.by_step, before) + 1;
    reach.end = last < 0 ? 0 : (int)min(ignis_quotient(s.by_step, last) + 1, (long long)s.out);
    reach.at = (long long)reach.begin * s.step + s.start - pixel * den;
    return reach;
}

/*  Returns the weight of a pixel in a position at this distance, as between has it; positions before the
    first pixel, and after the last one, are those pixels. */
__device__ inline Wide weight_of(const ignis__scaling &s, int pixel, long long at, Wide den)
{
    if (!s.is_linear || (pixel == 0 && at < 0) || (pixel == s.in - 1 && at > 0))
        return Wide(1);
    return at >= 0 ? 1 - (Wide)at / den : (Wide)(s.den.size + at) / den;
}

template <int N> __device__ inline void upsample_backward(T *dx, const T *dy, const ignis__resampling &p)
{
    const Wide row_den = (Wide)p.dim[0].den.size, column_den = (Wide)p.dim[1].den.size;
    each_pixel<N>(p.images, [&](long long to, const ignis_pixel &pixel) {
        const ignis_reach rows = reach_of(p.dim[0], pixel.y), columns = reach_of(p.dim[1], pixel.x);
        const T *const image = dy + src_of(p.images, pixel);
        Wide sum[N] = {};
        long long row_at = rows.at;
        for (int r = rows.begin; r < rows.end; r++, row_at += p.dim[0].step) {
            const Wide row_weight = weight_of(p.dim[0], pixel.y, row_at, row_den);
            const T *from = image + ((long long)r * p.images.src_width + columns.begin) * p.images.channels;
            long long at = columns.at;
#pragma unroll 2
            for (int c = columns.begin; c < columns.end; c++, at += p.dim[1].step, from += p.images.channels)
                add_pack(sum, from, row_weight * weight_of(p.dim[1], pixel.x, at, column_den));
        }
        ignis_store(dx + to, ignis_pack_round<T>(sum));
    });
}

extern "C" __global__ void __launch_bounds__(IGNIS__IMAGE_THREADS)
    ignis_upsample_backward(T *dx, const T *dy, const ignis__resampling p)
{
    if (p.images.packed)
        upsample_backward<PACK>(dx, dy, p);
    else
        upsample_backward<1>(dx, dy, p);
}
