/*  elementwise.cu - arithmetic and conversion, element by element

    One program per element type: compiled with -DIGNIS_T=<ignis_dtype>.
    Launched with blocks of 256 threads, of which each does 4096 elements: grid = ceil(n / 4096).
    dst may be a source. Pointers are aligned to their elements; where they are aligned to packs too, packs are used.
*/
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;

/* What a benchmark may vary; powers of two. */
#ifndef IGNIS_TILE
#define IGNIS_TILE 4096 /* elements of a block; the host computes the grid from it */
#endif
#ifndef IGNIS_PACK_BYTES
#define IGNIS_PACK_BYTES 16 /* bytes that a thread moves at a time, of the widest type at hand */
#endif
#ifndef IGNIS_PACKS_IN_FLIGHT
#define IGNIS_PACKS_IN_FLIGHT 4 /* packs of each source that a thread loads before it stores the first result */
#endif
#ifndef IGNIS_LOAD
#define IGNIS_LOAD ignis_load_streaming
#endif
#ifndef IGNIS_STORE
#define IGNIS_STORE ignis_store_streaming
#endif

#define THREADS 256

template <typename... Types> constexpr int largest_size()
{
    int size = 1;
    ((size = sizeof(Types) > size ? sizeof(Types) : size), ...);
    return size;
}

template <typename D, int N, typename Op, typename... S>
__device__ inline ignis_pack<D, N> map_pack(Op op, const ignis_pack<S, N> &...src)
{
    ignis_pack<D, N> result;
#pragma unroll
    for (int i = 0; i < N; i++)
        result[i] = op(src[i]...);
    return result;
}

/*  This thread's share of a tile, in packs of N elements. Pointers are at the thread's first pack; the packs of its neighbours
    come before its next one, so that a warp's accesses lie together. Unless the tile is whole, only the first left elements
    from the pointers on exist. */
template <int N, bool whole, typename Op, typename D, typename... S>
__device__ inline void map_share(int left, Op op, D *dst, const S *...src)
{
    constexpr int step = THREADS * N;
    constexpr int packs = IGNIS_TILE / step;
    constexpr int in_flight = packs < IGNIS_PACKS_IN_FLIGHT ? packs : IGNIS_PACKS_IN_FLIGHT;

#pragma unroll 1
    for (int round = 0; round < packs / in_flight; round++) {
        ignis_pack<D, N> result[in_flight];
#pragma unroll
        for (int i = 0; i < in_flight; i++)
            if (whole || i * step < left)
                result[i] = map_pack<D, N>(op, IGNIS_LOAD<N>(src + i * step)...);
#pragma unroll
        for (int i = 0; i < in_flight; i++)
            if (whole || i * step < left)
                IGNIS_STORE(dst + i * step, result[i]);

        left -= in_flight * step;
        dst += in_flight * step;
        ((src += in_flight * step), ...);
    }
}

/*  dst[i] = op(src[i]...) for the elements of this block. */
template <typename Op, typename D, typename... S> __device__ inline void map(long long n, Op op, D *dst, const S *...src)
{
    constexpr int N = IGNIS_PACK_BYTES / largest_size<D, S...>();
    const long long first = (long long)blockIdx.x * IGNIS_TILE;
    const bool whole = first + IGNIS_TILE <= n;
    const bool aligned = ignis_is_aligned(dst, N * sizeof(D)) && (ignis_is_aligned(src, N * sizeof(S)) && ...);

    if (whole && aligned) {
        const long long at = first + threadIdx.x * N;
        map_share<N, true>(IGNIS_TILE, op, dst + at, (src + at)...);
    } else {
        const long long at = first + threadIdx.x;
        const int left = (int)min(n - at, (long long)IGNIS_TILE);
        map_share<1, false>(left, op, dst + at, (src + at)...);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) ignis_fill(T *dst, T value, long long n)
{
    map(n, [=] { return value; }, dst);
}

extern "C" __global__ void __launch_bounds__(THREADS) ignis_add(T *dst, const T *a, const T *b, long long n)
{
    typedef ignis_wide<T> Wide;
    map(n, [](T x, T y) { return T(Wide(x) + Wide(y)); }, dst, a, b);
}

extern "C" __global__ void __launch_bounds__(THREADS) ignis_mul(T *dst, const T *a, const T *b, long long n)
{
    typedef ignis_wide<T> Wide;
    map(n, [](T x, T y) { return T(Wide(x) * Wide(y)); }, dst, a, b);
}

extern "C" __global__ void __launch_bounds__(THREADS) ignis_scale(T *dst, const T *src, double factor, long long n)
{
    typedef ignis_wide<ignis_type<ignis_is_integer<T> ? IGNIS_F64 : IGNIS_T>> Wide; /* a double holds every int32_t */
    const Wide wide_factor = (Wide)factor;
    map(n, [=](T x) { return ignis_convert<T>(Wide(x) * wide_factor); }, dst, src);
}

#define IGNIS_CAST(name, dtype, D)                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS) ignis_cast_##name(D *dst, const T *src, long long n) \
    {                                                                                                          \
        map(n, [](T x) { return ignis_convert<D>(x); }, dst, src);                                             \
    }
IGNIS_DTYPES(IGNIS_CAST)
