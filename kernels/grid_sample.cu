// SPDX-License-Identifier: MIT
/*  grid_sample.cu - images at the positions of a grid, and the gradients of both

    Position g of a grid, -1 to 1 across the image, is pixel ((g + 1) n - 1) / 2, or (g + 1) (n - 1) / 2 if corners are
    aligned. A result is the sum of the 4 (volumes: 8) pixels around it by their distances, or the nearest pixel.
    Positions outside are zero, or at the border, or reflected at the borders first.

    The gradient of the grid is a sum over channels. That of the image is one over the positions of each pixel:
    ignis_sample_keys writes the pixels around each position as ids, with their weights; kernels/embedding.cu sorts and
    sums. So equal inputs give equal bits.

    One program per floating element type: compiled with -DIGNIS_T=<ignis_dtype>. Blocks have THREADS threads, grids any
    number of blocks. */
#include "divisor.cuh"
#include "shared/image.h"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define THREADS 256
#define PACK (16 / (int)sizeof(T))

/*  A position along a side: between pixel low, and the next one, which has `weight`. slope: of the position by that of
    the grid. */
struct Side {
    int low;
    Wide weight, slope;
};

/*  Reflects x at low and low + span, as often as needed; turns the sign of slope each time. */
__device__ inline Wide reflect(Wide x, Wide low, Wide span, Wide &slope)
{
    if (span <= 0) {
        slope = 0;
        return 0;
    }
    x -= low;
    if (x < 0) {
        x = -x;
        slope = -slope;
    }
    const Wide turns = floor(x / span), rest = x - turns * span;
    if (turns - 2 * floor(turns / 2) == 0)
        return rest + low;
    slope = -slope;
    return span - rest + low;
}

__device__ inline Side side_of(const ignis__sampling &p, int side, Wide g)
{
    const int n = p.size[side];
    Side at;
    at.slope = (Wide)(p.align_corners ? n - 1 : n) / 2;
    Wide x = p.align_corners ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
    if (p.padding == IGNIS__SAMPLE_REFLECTION)
        x = p.align_corners ? reflect(x, 0, n - 1, at.slope) : reflect(x, Wide(-0.5), n, at.slope);
    if (p.padding != IGNIS__SAMPLE_ZEROS) {
        if (!(x > 0)) { /* NaN is at the border as well */
            x = 0;
            at.slope = 0;
        } else if (x >= n - 1) {
            x = n - 1;
            at.slope = 0;
        }
    }
    if (!(x > -2 && x < (Wide)n + 1)) { /* NaN, too: outside of all pixels */
        at.low = -2;
        at.weight = at.slope = 0;
        return at;
    }
    const Wide low = p.is_nearest ? rint(x) : floor(x);
    at.low = (int)low;
    at.weight = p.is_nearest ? 0 : x - low;
    return at;
}

__device__ inline Wide grid_at(const void *grid, long long i, int wide)
{
    return wide ? ((const Wide *)grid)[i] : Wide(((const T *)grid)[i]);
}

/*  The pixels around a point of the grid: corner c is the next pixel along side s if bit s of c is set. */
template <int SIDES> struct Point {
    Side side[SIDES];
    int corners;
    long long image; /* the pixels before this image */

    __device__ Point(const ignis__sampling &p, const void *grid, long long point)
        : corners(p.is_nearest ? 1 : 1 << SIDES)
    {
        int rest;
        image = ignis_divide_any(p.points, point, rest);
#pragma unroll
        for (int s = 0; s < SIDES; s++) {
            image *= p.size[s];
            side[s] = side_of(p, s, grid_at(grid, point * SIDES + s, p.wide_grid));
        }
    }
    /*  Returns the pixel of a corner; below 0 outside. */
    __device__ long long pixel(const ignis__sampling &p, int corner) const
    {
        long long at = 0;
        bool inside = true;
#pragma unroll
        for (int s = SIDES - 1; s >= 0; s--) {
            const int x = side[s].low + (corner >> s & 1);
            inside = inside && (unsigned)x < (unsigned)p.size[s];
            at = at * p.size[s] + x;
        }
        return inside ? image + at : -1;
    }
    /*  Returns the weight of a corner; without that along one side. */
    __device__ Wide weight(int corner, int without = -1) const
    {
        Wide product = 1;
#pragma unroll
        for (int s = 0; s < SIDES; s++)
            if (s != without)
                product *= corner >> s & 1 ? side[s].weight : 1 - side[s].weight;
        return product;
    }
};

/*  A thread has SHARE packs of a point, with those of its neighbours between. Pixels without weight are not read: they
    might be infinite. */
template <int N, int SHARE, int SIDES>
__device__ inline void sample(T *y, const T *x, const void *grid, const ignis__sampling &p)
{
    const int next = (int)p.packs.size * N;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < p.count;
         i += (long long)gridDim.x * THREADS) {
        int channel;
        const long long point = ignis_divide_any(p.packs, i, channel);
        const Point<SIDES> at(p, grid, point);
        Wide sum[SHARE][N] = {};
        for (int c = 0; c < at.corners; c++) {
            const long long pixel = at.pixel(p, c);
            const Wide weight = at.weight(c);
            if (pixel < 0 || weight == 0)
                continue;
            const T *const from = x + pixel * p.channels + channel * N;
#pragma unroll
            for (int k = 0; k < SHARE; k++) {
                const auto pack = ignis_load<N>(from + k * next);
#pragma unroll
                for (int e = 0; e < N; e++)
                    sum[k][e] += ignis_wide_at(pack, e) * weight;
            }
        }
#pragma unroll
        for (int k = 0; k < SHARE; k++)
            ignis_store(y + point * p.channels + channel * N + k * next, ignis_pack_round<T, N>(sum[k]));
    }
}

template <int SIDES> __device__ inline void sample(T *y, const T *x, const void *grid, const ignis__sampling &p)
{
    if (p.packed && p.share == IGNIS__IMAGE_SHARE)
        sample<PACK, IGNIS__IMAGE_SHARE, SIDES>(y, x, grid, p);
    else if (p.packed)
        sample<PACK, 1, SIDES>(y, x, grid, p);
    else
        sample<1, 1, SIDES>(y, x, grid, p);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ignis_grid_sample(T *y, const T *x, const void *grid, const ignis__sampling p)
{
    if (p.sides == 2)
        sample<2>(y, x, grid, p);
    else
        sample<3>(y, x, grid, p);
}

/*  The gradient of each position. p.lanes threads, a power of 2, share the channels of a point. */
template <int N, int SIDES>
__device__ inline void grid_gradient(void *dgrid, const T *dy, const T *x, const void *grid, const ignis__sampling &p)
{
    const int lane = threadIdx.x % p.lanes, points = THREADS / p.lanes;
    const long long count = p.count / p.packs.size, first = (long long)blockIdx.x * points;
    for (long long begin = first; begin < count; begin += (long long)gridDim.x * points) {
        const long long point = min(begin + threadIdx.x / p.lanes, count - 1);
        const Point<SIDES> at(p, grid, point);
        Wide sum[SIDES] = {};
        for (int c = 0; c < at.corners; c++) {
            const long long pixel = at.pixel(p, c);
            if (pixel < 0)
                continue;
            Wide dot = 0;
            for (int k = lane; k < (int)p.packs.size; k += p.lanes) {
                const auto g = ignis_load<N>(dy + point * p.channels + k * N);
                const auto pack = ignis_load<N>(x + pixel * p.channels + k * N);
#pragma unroll
                for (int e = 0; e < N; e++)
                    dot += ignis_wide_at(g, e) * ignis_wide_at(pack, e);
            }
#pragma unroll
            for (int s = 0; s < SIDES; s++)
                sum[s] += (c >> s & 1 ? dot : -dot) * at.weight(c, s);
        }
#pragma unroll
        for (int s = 0; s < SIDES; s++) {
            for (int distance = p.lanes / 2; distance > 0; distance /= 2)
                sum[s] += __shfl_xor_sync(0xffffffff, sum[s], distance);
            if (lane == 0 && begin + threadIdx.x / p.lanes < count) {
                const Wide slope = at.side[s].slope, gradient = slope == 0 ? Wide(0) : sum[s] * slope;
                if (p.wide_grid)
                    ((Wide *)dgrid)[point * SIDES + s] = gradient;
                else
                    ((T *)dgrid)[point * SIDES + s] = T(gradient);
            }
        }
    }
}

template <int SIDES>
__device__ inline void grid_gradient(void *dgrid, const T *dy, const T *x, const void *grid, const ignis__sampling &p)
{
    if (p.packed)
        grid_gradient<PACK, SIDES>(dgrid, dy, x, grid, p);
    else
        grid_gradient<1, SIDES>(dgrid, dy, x, grid, p);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ignis_grid_sample_grid(void *dgrid, const T *dy, const T *x, const void *grid, const ignis__sampling p)
{
    if (p.sides == 2)
        grid_gradient<2>(dgrid, dy, x, grid, p);
    else
        grid_gradient<3>(dgrid, dy, x, grid, p);
}

template <int SIDES>
__device__ inline void keys(int32_t *ids, Wide *weights, const void *grid, const ignis__sampling &p, long long points)
{
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < points; i += (long long)gridDim.x * THREADS) {
        const Point<SIDES> at(p, grid, i);
        for (int c = 0; c < at.corners; c++) {
            const Wide weight = at.weight(c);
            ids[i * at.corners + c] = weight == 0 ? -1 : (int32_t)at.pixel(p, c);
            weights[i * at.corners + c] = weight;
        }
    }
}

/*  ids [points, corners]: the pixels around each point, -1 outside or without weight; and their weights. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_sample_keys(int32_t *ids, Wide *weights, const void *grid, const ignis__sampling p, long long points)
{
    if (p.sides == 2)
        keys<2>(ids, weights, grid, p, points);
    else
        keys<3>(ids, weights, grid, p, points);
}
