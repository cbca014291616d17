// SPDX-License-Identifier: MIT
/*  pool.cu - the largest or the average element of windows of images, forward and backward

    Window o of a dimension begins at element o * stride - padding, and is cut where the image ends. Each gradient is gathered from the windows
    that its element is in, so that nothing is added atomically.

    See image.cuh. max_pool leaves in each result's index where in its window, counted from the window's first element, the largest one is:
    uint8_t, or int32_t where windows are larger than 256, and nothing is packed.
*/
#include "image.cuh"

/*  The host has the same struct. Of two numbers the first is of rows. */
struct ignis_pooling {
    ignis_images images;
    int window[2], padding[2];
    ignis_divisor stride[2];
    int exclude_padding; /* averages are of the elements inside of the image */
    int index_bytes;     /* 1, 4, or 0 for none */
};

/*  Elements begin to end of the dimension of a window, which begins at first. */
struct ignis_span {
    int first, begin, end;
};

__device__ inline ignis_span window_of(const ignis_pooling &p, int dim, int o, int size)
{
    const int first = o * (int)p.stride[dim].size - p.padding[dim];
    return {first, max(first, 0), min(first + p.window[dim], size)};
}

/*  The windows, of size of them, that an element is in. */
__device__ inline ignis_span windows_with(const ignis_pooling &p, int dim, int element, int size)
{
    const int last = element + p.padding[dim], before = last - p.window[dim];
    const int begin = before < 0 ? 0 : (int)quotient(before, p.stride[dim]) + 1;
    return {begin, begin, min((int)quotient(last, p.stride[dim]) + 1, size)};
}

/* >>max --------------------------------------------------------------------------------------------------------- */

/*  The first of the largest elements; NaN is larger than all others, and the last one counts. */
template <int N, typename Index>
__device__ inline void max_pool(T *y, Index *index, const T *x, const ignis_pooling &p)
{
    each_pixel<N>(p.images, [&](long long to, const ignis_pixel &at) {
        const ignis_span rows = window_of(p, 0, at.y, p.images.src_height), columns = window_of(p, 1, at.x, p.images.src_width);
        const T *const image = x + src_of(p.images, at);
        ignis_pack<T, N> best;
        Index where[N];
        Index place = (Index)((rows.begin - rows.first) * p.window[1] + columns.begin - columns.first);
#pragma unroll
        for (int e = 0; e < N; e++) {
            best[e] = T(-ignis_infinity<T>());
            where[e] = place;
        }
        for (int r = rows.begin; r < rows.end; r++) {
            const T *from = image + ((long long)r * p.images.src_width + columns.begin) * p.images.channels;
            place = (Index)((r - rows.first) * p.window[1] + columns.begin - columns.first);
#pragma unroll 3
            for (int c = columns.begin; c < columns.end; c++, from += p.images.channels, place++) {
                const ignis_pack<T, N> pack = ignis_load<N>(from);
#pragma unroll
                for (int e = 0; e < N; e++) {
                    const Wide value = ignis_wide_at(pack, e);
                    if (value > ignis_wide_at(best, e) || value != value) {
                        best[e] = pack[e];
                        where[e] = place;
                    }
                }
            }
        }
        ignis_store(y + to, best);
        if (index) {
            ignis_pack<Index, N> places;
#pragma unroll
            for (int e = 0; e < N; e++)
                places[e] = where[e];
            ignis_store(index + to, places);
        }
    });
}

extern "C" __global__ void __launch_bounds__(IGNIS_IMAGE_THREADS) ignis_max_pool(T *y, void *index, const T *x, const ignis_pooling p)
{
    if (p.images.packed)
        max_pool<PACK>(y, (uint8_t *)index, x, p);
    else if (p.index_bytes < 4)
        max_pool<1>(y, (uint8_t *)index, x, p);
    else
        max_pool<1>(y, (int32_t *)index, x, p);
}

template <int N, typename Index>
__device__ inline void max_pool_backward(T *dx, const T *dy, const Index *index, const ignis_pooling &p)
{
    each_pixel<N>(p.images, [&](long long to, const ignis_pixel &at) {
        const ignis_span rows = windows_with(p, 0, at.y, p.images.src_height), columns = windows_with(p, 1, at.x, p.images.src_width);
        const long long image = src_of(p.images, at);
        Wide sum[N] = {};
        for (int r = rows.begin; r < rows.end; r++) {
            const int row = (at.y - (r * (int)p.stride[0].size - p.padding[0])) * p.window[1];
            for (int c = columns.begin; c < columns.end; c++) {
                const long long from = image + ((long long)r * p.images.src_width + c) * p.images.channels;
                const Index place = (Index)(row + at.x - (c * (int)p.stride[1].size - p.padding[1]));
                const ignis_pack<Index, N> places = ignis_load<N>(index + from);
                const ignis_pack<T, N> grads = ignis_load<N>(dy + from);
#pragma unroll
                for (int e = 0; e < N; e++)
                    sum[e] += places[e] == place ? ignis_wide_at(grads, e) : Wide(0);
            }
        }
        ignis_store(dx + to, ignis_pack_round<T>(sum));
    });
}

extern "C" __global__ void __launch_bounds__(IGNIS_IMAGE_THREADS)
    ignis_max_pool_backward(T *dx, const T *dy, const void *index, const ignis_pooling p)
{
    if (p.images.packed)
        max_pool_backward<PACK>(dx, dy, (const uint8_t *)index, p);
    else if (p.index_bytes == 1)
        max_pool_backward<1>(dx, dy, (const uint8_t *)index, p);
    else
        max_pool_backward<1>(dx, dy, (const int32_t *)index, p);
}

/* >>average ----------------------------------------------------------------------------------------------------- */

/*  What the sum of a window is divided by. With the padding, that is as far as it reaches: a last window may end beyond it. */
__device__ inline Wide divisor(const ignis_pooling &p, const ignis_span &rows, const ignis_span &columns, int height, int width)
{
    if (p.exclude_padding)
        return (Wide)(rows.end - rows.begin) * (Wide)(columns.end - columns.begin);
    return (Wide)(min(p.window[0], height + p.padding[0] - rows.first)) * (Wide)(min(p.window[1], width + p.padding[1] - columns.first));
}

template <int N> __device__ inline void avg_pool(T *y, const T *x, const ignis_pooling &p)
{
    each_pixel<N>(p.images, [&](long long to, const ignis_pixel &at) {
        const ignis_span rows = window_of(p, 0, at.y, p.images.src_height), columns = window_of(p, 1, at.x, p.images.src_width);
        const T *const image = x + src_of(p.images, at);
        const Wide count = divisor(p, rows, columns, p.images.src_height, p.images.src_width);
        Wide sum[N] = {};
        for (int r = rows.begin; r < rows.end; r++) {
            const T *from = image + ((long long)r * p.images.src_width + columns.begin) * p.images.channels;
#pragma unroll 3
            for (int c = columns.begin; c < columns.end; c++, from += p.images.channels) {
                const ignis_pack<T, N> pack = ignis_load<N>(from);
#pragma unroll
                for (int e = 0; e < N; e++)
                    sum[e] += ignis_wide_at(pack, e);
            }
        }
#pragma unroll
        for (int e = 0; e < N; e++)
            sum[e] /= count;
        ignis_store(y + to, ignis_pack_round<T>(sum));
    });
}

extern "C" __global__ void __launch_bounds__(IGNIS_IMAGE_THREADS) ignis_avg_pool(T *y, const T *x, const ignis_pooling p)
{
    if (p.images.packed)
        avg_pool<PACK>(y, x, p);
    else
        avg_pool<1>(y, x, p);
}

template <int N> __device__ inline void avg_pool_backward(T *dx, const T *dy, const ignis_pooling &p)
{
    const int height = p.images.height.size, width = p.images.width.size;
    each_pixel<N>(p.images, [&](long long to, const ignis_pixel &at) {
        const ignis_span rows = windows_with(p, 0, at.y, p.images.src_height), columns = windows_with(p, 1, at.x, p.images.src_width);
        const T *const image = dy + src_of(p.images, at);
        Wide sum[N] = {};
        for (int r = rows.begin; r < rows.end; r++) {
            const ignis_span its_rows = window_of(p, 0, r, height);
            for (int c = columns.begin; c < columns.end; c++) {
                const Wide share = Wide(1) / divisor(p, its_rows, window_of(p, 1, c, width), height, width);
                const ignis_pack<T, N> grads = ignis_load<N>(image + ((long long)r * p.images.src_width + c) * p.images.channels);
#pragma unroll
                for (int e = 0; e < N; e++)
                    sum[e] += ignis_wide_at(grads, e) * share;
            }
        }
        ignis_store(dx + to, ignis_pack_round<T>(sum));
    });
}

extern "C" __global__ void __launch_bounds__(IGNIS_IMAGE_THREADS) ignis_avg_pool_backward(T *dx, const T *dy, const ignis_pooling p)
{
    if (p.images.packed)
        avg_pool_backward<PACK>(dx, dy, p);
    else
        avg_pool_backward<1>(dx, dy, p);
}
