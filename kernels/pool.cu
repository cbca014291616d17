// SPDX-License-Identifier: MIT
/*  pool.cu - the largest or the average element of windows of images, forward and backward

    Window o of a dimension begins at element o * stride - padding, and is cut where the image ends. Each
    gradient is gathered from the windows that its element is in, so that nothing is added atomically.

    See image.cuh. max_pool leaves in each result's index where in its window, counted from the window's first
    element, the largest one is: uint8_t, or int32_t where windows are larger than 256, and nothing is packed. */
#include "image.cuh"

/*  Elements begin to end of the dimension of a window, which begins at first. */
struct ignis_span {
    int first, begin, end;
};

__device__ inline ignis_span window_of(const ignis__pooling &p, int dim, int o, int size)
{
    const int first = o * (int)p.stride[dim].size - p.padding[dim];
    return {first, max(first, 0), min(first + p.window[dim], size)};
}

/*  The windows, of size of them, that an element is in. */
__device__ inline ignis_span windows_with(const ignis__pooling &p, int dim, int element, int size)
{
    const int last = element + p.padding[dim], before = last - p.window[dim];
    const int begin = before < 0 ? 0 : (int)ignis_quotient(p.stride[dim], before) + 1;
    return {begin, begin, min((int)ignis_quotient(p.stride[dim], last) + 1, size)};
}

/*  f(pack, where it is in its window) for the packs of a window, by rows; from: in row 0 and column 0. W > 0:
    the window is W x W, and all of it is loaded before the first is used. */
template <int N, int W, typename F>
__device__ inline void each_of_window(const ignis__pooling &p, const ignis_span &rows, const ignis_span &columns,
                                      const T *from, F f)
{
    const long long channels = p.images.channels, line = p.images.src_width * channels;
    if constexpr (W > 0) {
        ignis_pack<T, N> pack[W * W];
        const auto inside = [&](int i) {
            const int r = rows.first + i / W, c = columns.first + i % W;
            return r >= rows.begin && r < rows.end && c >= columns.begin && c < columns.end;
        };
        from += rows.first * line + columns.first * channels;
#pragma unroll
        for (int i = 0; i < W * W; i++)
            if (inside(i))
                pack[i] = ignis_load<N>(from + i / W * line + i % W * channels);
#pragma unroll
        for (int i = 0; i < W * W; i++)
            if (inside(i))
                f(pack[i], i);
    } else {
        for (int r = rows.begin; r < rows.end; r++)
#pragma unroll 3
            for (int c = columns.begin; c < columns.end; c++)
                f(ignis_load<N>(from + r * line + c * channels), (r - rows.first) * p.window[1] + c - columns.first);
    }
}

/*  Which W a window is for. */
__device__ inline int square(const ignis__pooling &p) { return p.window[0] == p.window[1] ? p.window[0] : 0; }

/* >>max --------------------------------------------------------------------------------------------------------- */

#if __CUDA_ARCH__ >= 800
/*  The larger one of both halves; NaN is larger than all others. */
__device__ inline uint32_t larger(uint32_t a, uint32_t b)
{
    uint32_t max;
    if constexpr (ignis_is_same<T, ignis_bf16>)
        asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(max) : "r"(a), "r"(b));
    else
        asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(max) : "r"(a), "r"(b));
    return max;
}
#endif

/*  The largest elements of some packs, two at a time if there is an instruction for that; NaN is larger than
    all others. */
template <int N> struct Largest {
#if __CUDA_ARCH__ >= 800
    static constexpr bool by_two = ignis_is_half<T> && N % 2 == 0;
#else
    static constexpr bool by_two = false;
#endif
    uint32_t words[by_two ? N / 2 : 1];
    Wide best[by_two ? 1 : N];

    __device__ Largest()
    {
#pragma unroll
        for (int i = 0; i < (by_two ? N / 2 : N); i++)
            if constexpr (by_two)
                words[i] = ignis_is_same<T, ignis_bf16> ? 0xff80ff80 : 0xfc00fc00; /* minus infinity */
            else
                best[i] = -ignis_infinity<Wide>();
    }
    __device__ void add(const ignis_pack<T, N> &pack)
    {
#pragma unroll
        for (int i = 0; i < (by_two ? N / 2 : N); i++)
            if constexpr (by_two) {
#if __CUDA_ARCH__ >= 800
                uint32_t word;
                memcpy(&word, &pack.at[2 * i], sizeof(word));
                words[i] = larger(words[i], word);
#endif
            } else {
                const Wide value = ignis_wide_at(pack, i);
                best[i] = value > best[i] || value != value ? value : best[i];
            }
    }
    __device__ ignis_pack<T, N> result() const
    {
        if constexpr (by_two) {
            ignis_pack<T, N> pack;
            memcpy(&pack, words, sizeof(pack));
            return pack;
        } else {
            return ignis_pack_round<T>(best);
        }
    }
};

/*  The first of the largest elements; NaN is larger than all others, and the last one counts. */
template <int N, int W, typename Index>
__device__ inline void max_pool(T *y, Index *index, const T *x, const ignis__pooling &p)
{
    if (!index) {
        each_pixel<N>(p.images, [&](long long to, const ignis_pixel &at) {
            Largest<N> largest;
            each_of_window<N, W>(p, window_of(p, 0, at.y, p.images.src_height),
                                 window_of(p, 1, at.x, p.images.src_width), x + src_of(p.images, at),
                                 [&](const ignis_pack<T, N> &pack, int) { largest.add(pack); });
            ignis_store(y + to, largest.result());
        });
        return;
    }
    each_pixel<N>(p.images, [&](long long to, const ignis_pixel &at) {
        const ignis_span rows = window_of(p, 0, at.y, p.images.src_height),
                         columns = window_of(p, 1, at.x, p.images.src_width);
        Wide best[N];
        int where[N];
#pragma unroll
        for (int e = 0; e < N; e++) {
            best[e] = -ignis_infinity<Wide>();
            where[e] = (rows.begin - rows.first) * p.window[1] + columns.begin - columns.first;
        }
        each_of_window<N, W>(p, rows, columns, x + src_of(p.images, at), [&](const ignis_pack<T, N> &pack, int place) {
#pragma unroll
            for (int e = 0; e < N; e++) {
                const Wide value = ignis_wide_at(pack, e);
                const bool larger = value > best[e] || value != value;
                best[e] = larger ? value : best[e];
                where[e] = larger ? place : where[e];
            }
        });
        ignis_store(y + to, ignis_pack_round<T>(best));
        ignis_pack<Index, N> places;
#pragma unroll
        for (int e = 0; e < N; e++)
            places[e] = (Index)where[e];
        ignis_store(index + to, places);
    });
}

extern "C" __global__ void __launch_bounds__(IGNIS__IMAGE_THREADS)
    ignis_max_pool(T *y, void *index, const T *x, const ignis__pooling p)
{
    if (p.images.packed && square(p) == 3)
        max_pool<PACK, 3>(y, (uint8_t *)index, x, p);
    else if (p.images.packed && square(p) == 2)
        max_pool<PACK, 2>(y, (uint8_t *)index, x, p);
    else if (p.images.packed)
        max_pool<PACK, 0>(y, (uint8_t *)index, x, p);
    else if (p.index_bytes < 4)
        max_pool<1, 0>(y, (uint8_t *)index, x, p);
    else
        max_pool<1, 0>(y, (int32_t *)index, x, p);
}

template <int N, typename Index>
__device__ inline void max_pool_backward(T *dx, const T *dy, const Index *index, const ignis__pooling &p)
{
    each_pixel<N>(p.images, [&](long long to, const ignis_pixel &at) {
        const ignis_span rows = windows_with(p, 0, at.y, p.images.src_height),
                         columns = windows_with(p, 1, at.x, p.images.src_width);
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

extern "C" __global__ void __launch_bounds__(IGNIS__IMAGE_THREADS)
    ignis_max_pool_backward(T *dx, const T *dy, const void *index, const ignis__pooling p)
{
    if (p.images.packed)
        max_pool_backward<PACK>(dx, dy, (const uint8_t *)index, p);
    else if (p.index_bytes == 1)
        max_pool_backward<1>(dx, dy, (const uint8_t *)index, p);
    else
        max_pool_backward<1>(dx, dy, (const int32_t *)index, p);
}

/* >>average ----------------------------------------------------------------------------------------------------- */

/*  Returns the divisor of a window's sum. With the padding, that is as far as it reaches: a last window may
    end beyond it. */
__device__ inline Wide divisor(const ignis__pooling &p, const ignis_span &rows, const ignis_span &columns, int height,
                               int width)
{
    if (p.exclude_padding)
        return (Wide)(rows.end - rows.begin) * (Wide)(columns.end - columns.begin);
    return (Wide)(min(p.window[0], height + p.padding[0] - rows.first)) *
           (Wide)(min(p.window[1], width + p.padding[1] - columns.first));
}

template <int N, int W, int share> __device__ inline void avg_pool(T *y, const T *x, const ignis__pooling &p)
{
    each_pixel<N>(p.images, [&](long long to, const ignis_pixel &at) {
        const ignis_span rows = window_of(p, 0, at.y, p.images.src_height),
                         columns = window_of(p, 1, at.x, p.images.src_width);
        const T *const image = x + src_of(p.images, at);
        const Wide part = Wide(1) / divisor(p, rows, columns, p.images.src_height, p.images.src_width);
#pragma unroll
        for (int i = 0; i < share; i++) {
            const long long pack = (long long)i * p.images.packs.size * N;
            Wide sum[N] = {};
            each_of_window<N, W>(p, rows, columns, image + pack, [&](const ignis_pack<T, N> &pack, int) {
#pragma unroll
                for (int e = 0; e < N; e++)
                    sum[e] += ignis_wide_at(pack, e);
            });
#pragma unroll
            for (int e = 0; e < N; e++)
                sum[e] *= part;
            ignis_store(y + to + pack, ignis_pack_round<T>(sum));
        }
    });
}

extern "C" __global__ void __launch_bounds__(IGNIS__IMAGE_THREADS)
    ignis_avg_pool(T *y, const T *x, const ignis__pooling p)
{
    if (p.images.share == IGNIS__IMAGE_SHARE) /* packed, and windows of 2 x 2 */
        avg_pool<PACK, 2, IGNIS__IMAGE_SHARE>(y, x, p);
    else if (p.images.packed)
        avg_pool<PACK, 0, 1>(y, x, p);
    else
        avg_pool<1, 0, 1>(y, x, p);
}

template <int N> __device__ inline void avg_pool_backward(T *dx, const T *dy, const ignis__pooling &p)
{
    const int height = p.images.height.size, width = p.images.width.size;
    each_pixel<N>(p.images, [&](long long to, const ignis_pixel &at) {
        const ignis_span rows = windows_with(p, 0, at.y, p.images.src_height),
                         columns = windows_with(p, 1, at.x, p.images.src_width);
        const T *const image = dy + src_of(p.images, at);
        Wide sum[N] = {};
        for (int r = rows.begin; r < rows.end; r++) {
            const ignis_span its_rows = window_of(p, 0, r, height);
            for (int c = columns.begin; c < columns.end; c++) {
                const Wide share = Wide(1) / divisor(p, its_rows, window_of(p, 1, c, width), height, width);
                const ignis_pack<T, N> grads =
                    ignis_load<N>(image + ((long long)r * p.images.src_width + c) * p.images.channels);
#pragma unroll
                for (int e = 0; e < N; e++)
                    sum[e] += ignis_wide_at(grads, e) * share;
            }
        }
        ignis_store(dx + to, ignis_pack_round<T>(sum));
    });
}

extern "C" __global__ void __launch_bounds__(IGNIS__IMAGE_THREADS)
    ignis_avg_pool_backward(T *dx, const T *dy, const ignis__pooling p)
{
    if (p.images.packed)
        avg_pool_backward<PACK>(dx, dy, p);
    else
        avg_pool_backward<1>(dx, dy, p);
}
