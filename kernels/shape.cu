// SPDX-License-Identifier: MIT
/*  shape.cu - the same elements in another order: transposition, strided copies, and rows between arrays of
    different widths

    One program per element type: compiled with -DIGNIS_T=<ignis_dtype>. The grid may have any number of
    blocks. */
#include "strided.cuh"

/* Only the bits of an element matter here. */
template <int bytes> struct bits_of;
template <> struct bits_of<1> {
    typedef uint8_t type;
};
template <> struct bits_of<2> {
    typedef uint16_t type;
};
template <> struct bits_of<4> {
    typedef uint32_t type;
};
template <> struct bits_of<8> {
    typedef uint64_t type;
};
typedef bits_of<sizeof(ignis_type<IGNIS_T>)>::type T;

#define THREADS 256
#define PACK (16 / (int)sizeof(T))

/*  Returns whether all of this can be done in 32 bits, in which divisions are several times as fast. */
__device__ inline bool is_short(long long elements) { return elements + (long long)gridDim.x * THREADS < 1LL << 31; }

/* >>runs -------------------------------------------------------------------------------------------------------- */

template <int N, typename Index>
__device__ inline void transpose_runs(T *dst, const T *src, Index a, Index m, Index b, Index n, Index c)
{
    const Index c_packs = c / N, count = a * m * b * n * c_packs, step = (Index)gridDim.x * THREADS;
    for (Index at = (Index)blockIdx.x * THREADS + threadIdx.x; at < count; at += step) {
        Index rest = at / c_packs;
        const Index at_c = at - rest * c_packs;
        const Index at_m = rest % m;
        rest /= m;
        const Index at_b = rest % b;
        rest /= b;
        const Index at_n = rest % n, at_a = rest / n;
        const Index from = (((at_a * m + at_m) * b + at_b) * n + at_n) * c_packs + at_c;
        ignis_store_streaming(dst + (long long)at * N, ignis_load<N>(src + (long long)from * N));
    }
}

/*  dst [a, n, b, m, c] = src [a, m, b, n, c]. Good where c is long, or m or n is short. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_transpose_runs(T *dst, const T *src, long long a, long long m, long long b, long long n, long long c)
{
    const bool packs = c % PACK == 0 && ignis_is_aligned(dst, 16) && ignis_is_aligned(src, 16);
    if (packs && is_short(a * m * b * n * (c / PACK)))
        transpose_runs<PACK, int>(dst, src, a, m, b, n, c);
    else if (packs)
        transpose_runs<PACK, long long>(dst, src, a, m, b, n, c);
    else if (is_short(a * m * b * n * c))
        transpose_runs<1, int>(dst, src, a, m, b, n, c);
    else
        transpose_runs<1, long long>(dst, src, a, m, b, n, c);
}

/* >>tiles ------------------------------------------------------------------------------------------------------- */

/*  A tile is EDGE x EDGE elements, 128 bytes wide or more (64 for one-byte types). A row of it is one word
    longer in shared memory, so that neither rows nor columns of a tile are in few banks. */
#define EDGE (sizeof(T) <= 4 ? 64 : 32)
#define TILE_ROW (EDGE + (sizeof(T) < 4 ? 4 / (int)sizeof(T) : 1))

template <int N>
__device__ inline void transpose_tile(T *dst, const T *src, long long rows, long long columns, long long src_row,
                                      long long dst_row, T (*tile)[TILE_ROW])
{
    constexpr int per_row = EDGE / N, count = EDGE * per_row;
#pragma unroll
    for (int i = threadIdx.x; i < count; i += THREADS) {
        const int row = i / per_row, column = i % per_row * N;
        if (row < rows && column < columns) {
            const auto pack = ignis_load_streaming<N>(src + row * src_row + column);
#pragma unroll
            for (int k = 0; k < N; k++)
                tile[row][column + k] = pack[k];
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = threadIdx.x; i < count; i += THREADS) {
        const int row = i % per_row * N, column = i / per_row;
        if (row < rows && column < columns) {
            ignis_pack<T, N> pack;
#pragma unroll
            for (int k = 0; k < N; k++)
                pack[k] = tile[row + k][column];
            ignis_store_streaming(dst + column * dst_row + row, pack);
        }
    }
    __syncthreads(); /* before the next tile */
}

/*  dst [a, n, b, m] = src [a, m, b, n], tile by tile. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_transpose_tiles(T *dst, const T *src, long long a, long long m, long long b, long long n)
{
    __shared__ T tile[EDGE][TILE_ROW];
    const bool packs = m % PACK == 0 && n % PACK == 0 && ignis_is_aligned(dst, 16) && ignis_is_aligned(src, 16);
    const long long m_tiles = (m + EDGE - 1) / EDGE, n_tiles = (n + EDGE - 1) / EDGE;
    for (long long item = blockIdx.x; item < a * b * m_tiles * n_tiles; item += gridDim.x) {
        const long long at_n = item % n_tiles * EDGE, at_m = item / n_tiles % m_tiles * EDGE;
        const long long rest = item / n_tiles / m_tiles, at_b = rest % b, at_a = rest / b;
        const T *from = src + ((at_a * m + at_m) * b + at_b) * n + at_n;
        T *to = dst + ((at_a * n + at_n) * b + at_b) * m + at_m;
        if (packs)
            transpose_tile<PACK>(to, from, m - at_m, n - at_n, b * n, b * m, tile);
        else
            transpose_tile<1>(to, from, m - at_m, n - at_n, b * n, b * m, tile);
    }
}

/* >>strided ----------------------------------------------------------------------------------------------------- */

/*  dst[sum of i[d] * to[d]] = src[sum of i[d] * from[d]] for every i below size: permutations, strided
    slices, flips, expansions and the inside of a padding; and, with from and to exchanged, their gradients.
    See ignis__strided. */
#define STRIDED_IN_FLIGHT 4 /* packs of a thread */

template <int N, bool gathers> __device__ inline void strided(T *dst, const T *src, const ignis__strided &s)
{
    const long long first = (long long)blockIdx.x * (THREADS * STRIDED_IN_FLIGHT) + threadIdx.x;
    ignis_pack<T, N> pack[STRIDED_IN_FLIGHT];
    long long to[STRIDED_IN_FLIGHT];
#pragma unroll
    for (int k = 0; k < STRIDED_IN_FLIGHT; k++) {
        const long long i = first + k * THREADS;
        long long from = 0;
        to[k] = 0;
        if (i >= s.count)
            continue;
        locate(s, i, from, to[k]);
        if constexpr (gathers)
#pragma unroll
            for (int e = 0; e < N; e++)
                pack[k][e] = src[from + e * s.step];
        else
            pack[k] = ignis_load<N>(src + from);
    }
#pragma unroll
    for (int k = 0; k < STRIDED_IN_FLIGHT; k++)
        if (first + k * THREADS < s.count)
            ignis_store_streaming(dst + to[k], pack[k]);
}

/*  Blocks of THREADS threads, each for STRIDED_IN_FLIGHT packs a thread. A pack is PACK elements, stored at
    once; with gathers they are loaded one by one. Without packs it is one element. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_strided_copy(T *dst, const T *src, ignis__strided s, int packs, int gathers)
{
    if (!packs)
        strided<1, false>(dst, src, s);
    else if (!gathers)
        strided<PACK, false>(dst, src, s);
    else
        strided<PACK, true>(dst, src, s);
}

/*  As above if src is contiguous along another dimension than dst. The two dimensions are not in s: dst along
    the rows, which are src_row apart in src, and src along the columns, which are dst_row apart in dst. One
    tile a block and round; s.count of these pairs of dimensions. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_strided_tiles(T *dst, const T *src, ignis__strided s, long long rows, long long columns, long long src_row,
                        long long dst_row, int packs)
{
    __shared__ T tile[EDGE][TILE_ROW];
    const long long row_tiles = (rows + EDGE - 1) / EDGE, column_tiles = (columns + EDGE - 1) / EDGE;
    for (long long item = blockIdx.x; item < s.count * row_tiles * column_tiles; item += gridDim.x) {
        const long long column = item % column_tiles * EDGE, row = item / column_tiles % row_tiles * EDGE;
        long long from = row * src_row + column, to = column * dst_row + row;
        locate(s, item / column_tiles / row_tiles, from, to);
        if (packs)
            transpose_tile<PACK>(dst + to, src + from, rows - row, columns - column, src_row, dst_row, tile);
        else
            transpose_tile<1>(dst + to, src + from, rows - row, columns - column, src_row, dst_row, tile);
    }
}

/* >>blocks ------------------------------------------------------------------------------------------------------ */

template <int N, typename Index>
__device__ inline void copy_rows(T *dst, const T *src, long long dst_row, long long src_row, Index packs, Index count)
{
    const Index step = (Index)gridDim.x * THREADS;
    for (Index at = (Index)blockIdx.x * THREADS + threadIdx.x; at < count; at += step) {
        const Index row = at / packs, column = (at - row * packs) * N;
        ignis_store_streaming(dst + row * dst_row + column, ignis_load_streaming<N>(src + row * src_row + column));
    }
}

/*  Copies rows of length elements, whose starts are dst_row and src_row elements apart. concat and split use
    it. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_copy_rows(T *dst, const T *src, long long dst_row, long long src_row, long long length, long long rows)
{
    const bool packs = length % PACK == 0 && dst_row % PACK == 0 && src_row % PACK == 0 && ignis_is_aligned(dst, 16) &&
                       ignis_is_aligned(src, 16);
    const long long count = length * rows;
    if (packs && is_short(count))
        copy_rows<PACK, int>(dst, src, dst_row, src_row, length / PACK, count / PACK);
    else if (packs)
        copy_rows<PACK, long long>(dst, src, dst_row, src_row, length / PACK, count / PACK);
    else if (is_short(count))
        copy_rows<1, int>(dst, src, dst_row, src_row, length, count);
    else
        copy_rows<1, long long>(dst, src, dst_row, src_row, length, count);
}
