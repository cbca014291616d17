// SPDX-License-Identifier: MIT
/*  depthwise.cu - convolutions of which each channel is one of its own, in plain CUDA C

    One program per floating element type: compiled with -DIGNIS_T=<ignis_dtype>. The parameters are those of
    a product with patches whose batches are the channels. Blocks of THREADS threads: `across` of them have packs
    of channels next to each other, the others pixels. Sums in float, of f64 in double, in a fixed order.

    With -DIGNIS_TAPS=<columns of taps> -DIGNIS_STRIDE=<along columns>, where there is one pixel from a tap to
    the next, and packs: a thread has STRIP pixels of a row, and reads what they share once. strips is how
    many there are in a row. Images alone have strips, no volumes. */
#define IGNIS_PATCHES 1
#ifndef IGNIS_TAPS
#define IGNIS_TAPS 0
#define IGNIS_STRIDE 1
#endif
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
#include "gemm.cuh"

constexpr int PACK = 16 / sizeof(T), MOST_ACROSS = IGNIS__DEPTHWISE_ACROSS, THREADS = IGNIS__DEPTHWISE_THREADS;

/*  Where a thread of a block works: the channels of its slab, N of them from `channel` on. */
template <int N> struct Slab {
    int across, width, down, line, first, channel, rest; /* rest: the block's number without the slab */
    bool exists;

    __device__ Slab(const Product &p, int across)
        : across(across), width(across * N), down(THREADS / across), line(threadIdx.x / across)
    {
        const int slabs = ((int)p.batch + width - 1) / width;
        first = blockIdx.x % slabs * width;
        rest = blockIdx.x / slabs;
        channel = first + threadIdx.x % across * N;
        exists = channel < p.batch;
    }
};

/* >>pixels ------------------------------------------------------------------------------------------------------ */

/*  Computes out = the patches of a times b, and bias. A thread has several pixels; the weights of some taps
    are in shared memory. */
template <int N> __device__ inline void convolve(const Product &p, int across)
{
    constexpr int TAPS = 32, PIXELS = IGNIS__DEPTHWISE_PIXELS;
    __shared__ Wide weights[TAPS][MOST_ACROSS * N];
    const ignis__patches &q = p.patches;
    const Slab<N> slab(p, across);
    const long long row = (long long)slab.rest * slab.down * PIXELS + slab.line;
    const T *from[PIXELS];
    int y[PIXELS], x[PIXELS], z[PIXELS];
    Wide sum[PIXELS][N];
#pragma unroll
    for (int i = 0; i < PIXELS; i++) {
        const bool exists = slab.exists && row + i * slab.down < p.m;
        const Pixel at = grid_pixel(q, exists ? (int)(row + i * slab.down) : 0);
        y[i] = exists ? q.first[0] + at.row * q.stride[0] : -(1 << 30) - (1 << 29); /* never inside */
        x[i] = q.first[1] + at.column * q.stride[1];
        from[i] = p.a + first_plane(q, at, z[i]) * q.height * q.width * q.pixel + slab.channel;
#pragma unroll
        for (int n = 0; n < N; n++)
            sum[i][n] = 0;
    }
    for (int first = 0; first < p.k; first += TAPS) {
        const int taps = min(TAPS, (int)p.k - first);
        __syncthreads();
        for (int i = threadIdx.x; i < taps * slab.width; i += THREADS) {
            const int channel = i / taps, tap = i % taps;
            weights[tap][channel] =
                slab.first + channel < p.batch
                    ? Wide(p.b[(slab.first + channel) * p.batch_b + weight_tap(q, patch_tap(q, first + tap))])
                    : Wide(0);
        }
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < taps; i++) {
            const Tap tap = patch_tap(q, first + i);
            const int down = tap.row * q.step[0], right = tap.column * q.step[1],
                      deep = IGNIS_VOLUMES ? tap.plane * q.step[2] : 0;
            Wide w[N];
#pragma unroll
            for (int n = 0; n < N; n++)
                w[n] = weights[i][threadIdx.x % across * N + n];
#pragma unroll
            for (int k = 0; k < PIXELS; k++) {
                if ((unsigned)(y[k] + down) >= (unsigned)q.height || (unsigned)(x[k] + right) >= (unsigned)q.width ||
                    (IGNIS_VOLUMES && (unsigned)(z[k] + deep) >= (unsigned)q.depth))
                    continue;
                const auto pack = ignis_load<N>(
                    from[k] + (((long long)deep * q.height + y[k] + down) * q.width + x[k] + right) * q.pixel);
#pragma unroll
                for (int n = 0; n < N; n++)
                    sum[k][n] += Wide(pack[n]) * w[n];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < PIXELS; i++) {
        if (!slab.exists || row + i * slab.down >= p.m)
            continue;
        if (p.bias) {
            const auto bias = ignis_load<N>(p.bias + slab.channel);
#pragma unroll
            for (int n = 0; n < N; n++)
                sum[i][n] += Wide(bias[n]);
        }
        ignis_store(p.out + p.out_at(slab.channel, row + i * slab.down), ignis_pack_round<T, N>(sum[i]));
    }
}

/*  Computes partial [split, channel, tap] = the sums over a part of the pixels of a, which are those of the
    result, times the patches of b. A block has some taps. */
template <int N> __device__ inline void weights(const Product &p, int across)
{
    constexpr int TAPS = IGNIS__DEPTHWISE_TAPS;
    __shared__ Wide room[THREADS * N];
    const ignis__patches &q = p.patches;
    const Slab<N> slab(p, across);
    const int taps = (int)p.n, chunks = (taps + TAPS - 1) / TAPS, first = slab.rest % chunks * TAPS,
              split = slab.rest / chunks;
    const int count = min(TAPS, taps - first);
    const long long end = min(p.k, (split + 1) * p.split_k);
    int down[TAPS], right[TAPS], deep[TAPS];
    Wide sum[TAPS][N];
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
        const Tap tap = patch_tap(q, first + t);
        down[t] = tap.row * q.step[0];
        right[t] = tap.column * q.step[1];
        deep[t] = IGNIS_VOLUMES ? tap.plane * q.step[2] : 0;
#pragma unroll
        for (int n = 0; n < N; n++)
            sum[t][n] = 0;
    }
    if (slab.exists)
#pragma unroll 1
        for (long long pixel = split * p.split_k + slab.line; pixel < end; pixel += slab.down) {
            const auto g = ignis_load<N>(p.a + pixel * p.row_a + slab.channel);
            const Pixel at = grid_pixel(q, (int)pixel);
            const int y = q.first[0] + at.row * q.stride[0], x = q.first[1] + at.column * q.stride[1];
            int z;
            const T *from = p.b + first_plane(q, at, z) * q.height * q.width * q.pixel + slab.channel;
#pragma unroll
            for (int t = 0; t < TAPS; t++) {
                if (t >= count || (unsigned)(y + down[t]) >= (unsigned)q.height ||
                    (unsigned)(x + right[t]) >= (unsigned)q.width ||
                    (IGNIS_VOLUMES && (unsigned)(z + deep[t]) >= (unsigned)q.depth))
                    continue;
                const auto pack = ignis_load<N>(
                    from + (((long long)deep[t] * q.height + y + down[t]) * q.width + x + right[t]) * q.pixel);
#pragma unroll
                for (int n = 0; n < N; n++)
                    sum[t][n] += Wide(g[n]) * Wide(pack[n]);
            }
        }
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
        if (t >= count)
            break;
        __syncthreads();
#pragma unroll
        for (int n = 0; n < N; n++)
            room[slab.line * slab.width + threadIdx.x % across * N + n] = sum[t][n];
        __syncthreads();
        if (threadIdx.x < slab.width && slab.first + threadIdx.x < p.batch) {
            Wide all = 0;
            for (int line = 0; line < slab.down; line++)
                all += room[line * slab.width + threadIdx.x];
            ((Wide *)p.partial)[(split * p.batch + slab.first + threadIdx.x) * taps + first + t] = all;
        }
    }
}

/* >>strips ------------------------------------------------------------------------------------------------------ */

constexpr int STRIP = IGNIS__DEPTHWISE_STRIP, COLUMNS = IGNIS_TAPS ? IGNIS_TAPS : 1,
              READ = (STRIP - 1) * IGNIS_STRIDE + COLUMNS; /* pixels */

/*  A strip of the grid: its first pixel, and the number that exist. */
struct Strip {
    Pixel at;
    int count;

    __device__ Strip(const ignis__patches &q, const ignis__divisor &strips, int index)
    {
        int column;
        const int line = ignis_divide(strips, index, column);
        at.column = column * STRIP;
        at.image = ignis_divide(q.rows, line, at.row);
        count = min(STRIP, (int)q.columns.size - at.column);
    }
};

/*  Loads the elements of an image row that a strip reads; zeros outside. */
__device__ inline void load_row(ignis_pack<T, PACK> (&x)[READ], const ignis__patches &q, const T *image, int y,
                                int first)
{
    const bool inside = (unsigned)y < (unsigned)q.height;
    const T *const row = image + ((long long)y * q.width + first) * q.pixel;
#pragma unroll
    for (int u = 0; u < READ; u++) {
        x[u] = ignis_pack_of<ignis_pack<T, PACK>>(typename ignis_word_of<16>::type{0, 0, 0, 0});
        if (inside && (unsigned)(first + u) < (unsigned)q.width)
            x[u] = ignis_load<PACK>(row + u * q.pixel);
    }
}

__device__ inline void convolve_strips(const Product &p, int across, const ignis__divisor &strips)
{
    constexpr int TAPS = 64;
    __shared__ __align__(16) Wide weights[TAPS][MOST_ACROSS * PACK];
    const ignis__patches &q = p.patches;
    const Slab<PACK> slab(p, across);
    const int slabs = ((int)p.batch + slab.width - 1) / slab.width, taps = (int)p.k, rows = taps / COLUMNS;
    const int end = (int)(p.m / q.columns.size) * (int)strips.size, step = (int)gridDim.x / slabs * slab.down;
    for (int i = threadIdx.x; i < taps * slab.width; i += THREADS) {
        const int channel = i / taps, tap = i % taps;
        weights[tap][channel] = slab.first + channel < p.batch
                                    ? Wide(p.b[(slab.first + channel) * p.batch_b + weight_tap(q, patch_tap(q, tap))])
                                    : Wide(0);
    }
    __syncthreads();
    if (!slab.exists)
        return;
    const Wide *const own = &weights[0][threadIdx.x % across * PACK];
#pragma unroll 1
    for (int index = slab.rest * slab.down + slab.line; index < end; index += step) {
        const Strip strip(q, strips, index);
        const int y = q.first[0] + strip.at.row * q.stride[0], first = q.first[1] + strip.at.column * IGNIS_STRIDE;
        const T *const image = p.a + (long long)strip.at.image * q.height * q.width * q.pixel + slab.channel;
        Wide sum[STRIP][PACK] = {};
#pragma unroll 1
        for (int i = 0; i < rows; i++) {
            ignis_pack<T, PACK> x[READ];
            Wide w[COLUMNS][PACK];
            load_row(x, q, image, y + i * q.step[0], first);
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
#pragma unroll
                for (int n = 0; n < PACK; n++)
                    w[j][n] = own[(i * COLUMNS + j) * MOST_ACROSS * PACK + n];
#pragma unroll
            for (int u = 0; u < READ; u++)
#pragma unroll
                for (int n = 0; n < PACK; n++) {
                    const Wide value = ignis_wide_at(x[u], n);
#pragma unroll
                    for (int k = 0; k < STRIP; k++)
                        if (u - k * IGNIS_STRIDE >= 0 && u - k * IGNIS_STRIDE < COLUMNS)
                            sum[k][n] += value * w[u - k * IGNIS_STRIDE][n];
                }
        }
        T *const to = p.out + strip.at.image * q.out_image + strip.at.row * q.out_row + strip.at.column * q.out_column +
                      slab.channel;
#pragma unroll
        for (int k = 0; k < STRIP; k++) {
            if (k >= strip.count)
                break;
            if (p.bias) {
                const auto bias = ignis_load<PACK>(p.bias + slab.channel);
#pragma unroll
                for (int n = 0; n < PACK; n++)
                    sum[k][n] += ignis_wide_at(bias, n);
            }
            ignis_store(to + k * q.out_column, ignis_pack_round<T, PACK>(sum[k]));
        }
    }
}

/*  As weights, where split_k counts strips. A block has some rows of taps. */
__device__ inline void weights_of_strips(const Product &p, int across, const ignis__divisor &strips)
{
    constexpr int ROWS = COLUMNS == 3 ? 3 : 1;
    __shared__ Wide room[THREADS * PACK];
    const ignis__patches &q = p.patches;
    const Slab<PACK> slab(p, across);
    const int taps = (int)p.n, rows = taps / COLUMNS, chunks = (rows + ROWS - 1) / ROWS,
              first_row = slab.rest % chunks * ROWS;
    const int split = slab.rest / chunks, all = (int)(p.k / q.columns.size) * (int)strips.size;
    const int end = (int)min((long long)all, (split + 1) * p.split_k);
    Wide sum[ROWS][COLUMNS][PACK] = {};
    if (slab.exists)
#pragma unroll 1
        for (int index = split * (int)p.split_k + slab.line; index < end; index += slab.down) {
            const Strip strip(q, strips, index);
            const int y = q.first[0] + strip.at.row * q.stride[0], first = q.first[1] + strip.at.column * IGNIS_STRIDE;
            const T *const image = p.b + (long long)strip.at.image * q.height * q.width * q.pixel + slab.channel;
            const T *const from =
                p.a +
                (((long long)strip.at.image * q.rows.size + strip.at.row) * q.columns.size + strip.at.column) *
                    p.row_a +
                slab.channel;
            ignis_pack<T, PACK> g[STRIP];
#pragma unroll
            for (int k = 0; k < STRIP; k++) {
                g[k] = ignis_pack_of<ignis_pack<T, PACK>>(typename ignis_word_of<16>::type{0, 0, 0, 0});
                if (k < strip.count)
                    g[k] = ignis_load<PACK>(from + k * p.row_a);
            }
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                ignis_pack<T, PACK> x[READ];
                if (ROWS > 1 && first_row + i >= rows)
                    break;
                load_row(x, q, image, y + (first_row + i) * q.step[0], first);
#pragma unroll
                for (int u = 0; u < READ; u++)
#pragma unroll
                    for (int n = 0; n < PACK; n++) {
                        const Wide value = ignis_wide_at(x[u], n);
#pragma unroll
                        for (int k = 0; k < STRIP; k++)
                            if (u - k * IGNIS_STRIDE >= 0 && u - k * IGNIS_STRIDE < COLUMNS)
                                sum[i][u - k * IGNIS_STRIDE][n] += value * ignis_wide_at(g[k], n);
                    }
            }
        }
#pragma unroll
    for (int t = 0; t < ROWS * COLUMNS; t++) {
        const int tap = first_row * COLUMNS + t;
        if (tap >= taps)
            break;
        __syncthreads();
#pragma unroll
        for (int n = 0; n < PACK; n++)
            room[slab.line * slab.width + threadIdx.x % across * PACK + n] = sum[t / COLUMNS][t % COLUMNS][n];
        __syncthreads();
        if (threadIdx.x < slab.width && slab.first + threadIdx.x < p.batch) {
            Wide whole = 0;
            for (int line = 0; line < slab.down; line++)
                whole += room[line * slab.width + threadIdx.x];
            ((Wide *)p.partial)[(split * p.batch + slab.first + threadIdx.x) * taps + tap] = whole;
        }
    }
}

#if IGNIS_TAPS
extern "C" __global__ void __launch_bounds__(THREADS, IGNIS_TAPS == 3 ? 2 : 1)
    ignis_depthwise(const Product p, int across, ignis__divisor strips)
{
    convolve_strips(p, across, strips);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    ignis_depthwise_weights(const Product p, int across, ignis__divisor strips)
{
    weights_of_strips(p, across, strips);
}
#else
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 2)
KERNEL ignis_depthwise(const Product p, int across) { convolve<PACK>(p, across); }
KERNEL ignis_depthwise_unpacked(const Product p, int across)
{
    convolve<1>(p, across);
} /* channels are no full packs */
KERNEL ignis_depthwise_weights(const Product p, int across) { weights<PACK>(p, across); }
KERNEL ignis_depthwise_weights_unpacked(const Product p, int across) { weights<1>(p, across); }
#endif
