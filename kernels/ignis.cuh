/*  ignis.cuh - what every kernel of Ignis starts with, and any other kernel may: #include "ignis.cuh"

    NVRTC gets this text from memory, so a machine that runs Ignis needs no CUDA headers, and nothing else can be
    included here. All names start with ignis_ or IGNIS_, but for the usual names of fixed-width integers.

        types        int8_t ... uint64_t, ignis_f16, ignis_bf16, ignis_type<IGNIS_BF16>, ignis_wide<T>
        limits       ignis_infinity<T>(), ignis_max_value<T>(), ignis_min_value<T>()
        conversion   ignis_convert<To>(x)
        packs        ignis_pack<T>, ignis_load, ignis_load_streaming, ignis_load_once, ignis_store, ignis_store_streaming
        reductions   ignis_warp_sum, ignis_warp_max, ignis_block_sum, ignis_block_max
*/
#ifndef IGNIS_CUH
#define IGNIS_CUH

/* >>types ------------------------------------------------------------------------------------------------------- */

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
#ifdef __LP64__ /* the same types as in the system's stdint.h, which another header may have brought along */
typedef long int64_t;
typedef unsigned long uint64_t;
#else
typedef long long int64_t;
typedef unsigned long long uint64_t;
#endif

/*  PTX that has no intrinsic without CUDA's headers: one instruction each. */

__device__ inline float ignis_ptx_cvt_f32_f16(uint16_t bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ inline uint16_t ignis_ptx_cvt_rn_f16_f32(float value)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

#if __CUDA_ARCH__ >= 800
__device__ inline uint16_t ignis_ptx_cvt_rn_bf16_f32(float value)
{
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#endif

__device__ inline uint4 ignis_ptx_ld_no_allocate(const uint4 *from)
{
    uint4 value;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(from)
                 : "memory");
    return value;
}

template <typename To, typename From> __device__ inline To ignis_convert(From x);

/*  Half precision. Used as a number it is a float; ignis_f16(x) rounds any number, once. */
struct ignis_f16 {
    uint16_t bits;

    ignis_f16() = default; /* trivial, so that it can be __shared__ */
    template <typename From> __device__ explicit ignis_f16(From x) { *this = ignis_convert<ignis_f16>(x); }
    __device__ operator float() const { return ignis_ptx_cvt_f32_f16(bits); }

    static __device__ ignis_f16 from_bits(uint16_t bits)
    {
        ignis_f16 half;
        half.bits = bits;
        return half;
    }
    static __device__ ignis_f16 round(float x) { return from_bits(ignis_ptx_cvt_rn_f16_f32(x)); }
};

/*  The upper half of a float: its range, with 8 bits of precision. Used like ignis_f16. */
struct ignis_bf16 {
    uint16_t bits;

    ignis_bf16() = default;
    template <typename From> __device__ explicit ignis_bf16(From x) { *this = ignis_convert<ignis_bf16>(x); }
    __device__ operator float() const { return __uint_as_float((uint32_t)bits << 16); }

    static __device__ ignis_bf16 from_bits(uint16_t bits)
    {
        ignis_bf16 half;
        half.bits = bits;
        return half;
    }
    static __device__ ignis_bf16 round(float x)
    {
#if __CUDA_ARCH__ >= 800
        return from_bits(ignis_ptx_cvt_rn_bf16_f32(x));
#else
        if (x != x)
            return from_bits(0x7fff);
        const uint32_t word = __float_as_uint(x);
        const uint32_t half_less_tie = 0x7fff + (word >> 16 & 1); /* a tie goes up only from an odd number */
        return from_bits((uint16_t)((word + half_less_tie) >> 16));
#endif
    }
};

/*  IGNIS_DTYPES - every element type as X(name, enumerator, type), with the enumerators of ignis_dtype in ignis.h. */
#define IGNIS_DTYPES(X)             \
    X(f16, IGNIS_F16, ignis_f16)    \
    X(bf16, IGNIS_BF16, ignis_bf16) \
    X(f32, IGNIS_F32, float)        \
    X(f64, IGNIS_F64, double)       \
    X(i32, IGNIS_I32, int32_t)      \
    X(i64, IGNIS_I64, int64_t)      \
    X(u8, IGNIS_U8, uint8_t)

enum ignis_dtype { IGNIS_F16 = 1, IGNIS_BF16, IGNIS_F32, IGNIS_F64, IGNIS_I32, IGNIS_I64, IGNIS_U8 };

/*  ignis_type<IGNIS_BF16> is ignis_bf16, and so on. */
template <int dtype> struct ignis_type_of;
#define IGNIS_TYPE_OF(name, dtype, T) \
    template <> struct ignis_type_of<dtype> { typedef T type; };
IGNIS_DTYPES(IGNIS_TYPE_OF)
#undef IGNIS_TYPE_OF
template <int dtype> using ignis_type = typename ignis_type_of<dtype>::type;

/*  ignis_wide<T> is what Ignis computes with: float for all short floating types, double for double, and unsigned 64 bits
    for integers, which wrap around there without undefined behaviour and keep doing so when cut back to T. */
template <typename T> struct ignis_wide_of { typedef uint64_t type; };
template <> struct ignis_wide_of<ignis_f16> { typedef float type; };
template <> struct ignis_wide_of<ignis_bf16> { typedef float type; };
template <> struct ignis_wide_of<float> { typedef float type; };
template <> struct ignis_wide_of<double> { typedef double type; };
template <typename T> using ignis_wide = typename ignis_wide_of<T>::type;

template <typename A, typename B> static constexpr bool ignis_is_same = false;
template <typename A> static constexpr bool ignis_is_same<A, A> = true;
template <typename T> static constexpr bool ignis_is_half = ignis_is_same<T, ignis_f16> || ignis_is_same<T, ignis_bf16>;
template <typename T> static constexpr bool ignis_is_float = ignis_is_half<T> || ignis_is_same<T, float> || ignis_is_same<T, double>;
template <typename T> static constexpr bool ignis_is_integer = /* of the element types; int64_t is one of the last two */
    ignis_is_same<T, uint8_t> || ignis_is_same<T, int> || ignis_is_same<T, long> || ignis_is_same<T, long long>;

/* >>limits ------------------------------------------------------------------------------------------------------ */

/*  The largest and the smallest finite number of a type. */
template <typename T> __device__ constexpr T ignis_max_value()
{
    if constexpr (ignis_is_same<T, ignis_f16>)
        return ignis_f16::from_bits(0x7bff);
    else if constexpr (ignis_is_same<T, ignis_bf16>)
        return ignis_bf16::from_bits(0x7f7f);
    else if constexpr (ignis_is_same<T, float>)
        return __int_as_float(0x7f7fffff);
    else if constexpr (ignis_is_same<T, double>)
        return __longlong_as_double(0x7fefffffffffffffLL);
    else if constexpr (T(-1) > T(0))
        return T(-1);
    else
        return T(~0ULL >> (65 - 8 * sizeof(T)));
}

template <typename T> __device__ constexpr T ignis_min_value()
{
    if constexpr (ignis_is_float<T>)
        return T(-ignis_max_value<T>());
    else
        return T(-ignis_max_value<T>() - 1); /* 0 for unsigned types */
}

/*  For floating types. */
template <typename T> __device__ inline T ignis_infinity()
{
    static_assert(ignis_is_float<T>, "only floating types have an infinity");
    return T(__int_as_float(0x7f800000));
}

/* >>conversion -------------------------------------------------------------------------------------------------- */

/*  Round to odd: cut x to a float, and set the last bit if that lost anything. A float rounded so rounds on to 16 bits as if
    x itself had been rounded; rounding to nearest twice would not. */
template <typename From> __device__ inline float ignis_round_to_odd(From x)
{
    float cut;
    bool exact;
    if constexpr (ignis_is_same<From, double>) {
        cut = __double2float_rz(x);
        exact = (double)cut == x;
    } else if constexpr (ignis_is_same<From, int>) {
        cut = __int2float_rz(x);
        exact = (int)cut == x; /* in range, as cut is not beyond x */
    } else {
        cut = __ll2float_rz(x);
        exact = (long long)cut == (long long)x;
    }
    return exact ? cut : __uint_as_float(__float_as_uint(cut) | 1);
}

/*  ignis_convert<To>(x) - a number of one element type as another, by the rules of ignis_array_from_host:
    To a floating type: rounds once, to nearest even; keeps NaN, infinities and signed zeros; overflows to infinity.
    To an integer type: rounds toward zero and saturates; NaN becomes 0. */
template <typename To, typename From> __device__ inline To ignis_convert(From x)
{
    static_assert(ignis_is_float<To> || ignis_is_integer<To>, "ignis_convert gives element types");
    static_assert(ignis_is_float<From> || sizeof(From) < 8 || From(-1) < From(0), "ignis_convert takes no unsigned 64 bits");
    if constexpr (ignis_is_same<To, From>) {
        return x;
    } else if constexpr (ignis_is_half<From>) {
        return ignis_convert<To>(float(x)); /* exact */
    } else if constexpr (ignis_is_half<To>) {
        constexpr bool fits_float = ignis_is_same<From, float> || sizeof(From) <= 2;
        if constexpr (fits_float)
            return To::round(x);
        else
            return To::round(ignis_round_to_odd(x));
    } else if constexpr (ignis_is_float<To>) {
        return To(x);
    } else if constexpr (ignis_is_float<From>) {
        constexpr bool narrow = ignis_is_same<From, float>;
        if (x != x)
            return 0;
        if constexpr (ignis_is_same<To, uint8_t>) /* the intrinsics saturate */
            return uint8_t(min(narrow ? __float2uint_rz(x) : __double2uint_rz(x), 255u));
        else if constexpr (sizeof(To) == 4)
            return narrow ? __float2int_rz(x) : __double2int_rz(x);
        else
            return narrow ? __float2ll_rz(x) : __double2ll_rz(x);
    } else {
        constexpr int64_t low = ignis_min_value<To>(), high = ignis_max_value<To>();
        const int64_t wide = x;
        return To(wide < low ? low : wide > high ? high : wide);
    }
}

/* >>packs ------------------------------------------------------------------------------------------------------- */

/*  A few elements that are loaded and stored by one instruction: 1, 2, 4, 8 or 16 bytes, and aligned to that. */
template <typename T, int N = 16 / sizeof(T)> struct alignas(N * sizeof(T)) ignis_pack {
    T at[N];

    __device__ T &operator[](int i) { return at[i]; }
    __device__ const T &operator[](int i) const { return at[i]; }
};

/*  The word that carries so many bytes. */
template <int bytes> struct ignis_word_of;
template <> struct ignis_word_of<1> { typedef uint8_t type; };
template <> struct ignis_word_of<2> { typedef uint16_t type; };
template <> struct ignis_word_of<4> { typedef uint32_t type; };
template <> struct ignis_word_of<8> { typedef uint2 type; };
template <> struct ignis_word_of<16> { typedef uint4 type; };

template <typename Pack> __device__ inline Pack ignis_pack_of(typename ignis_word_of<sizeof(Pack)>::type word)
{
    Pack pack;
    memcpy(&pack, &word, sizeof(Pack));
    return pack;
}

template <typename Pack> __device__ inline typename ignis_word_of<sizeof(Pack)>::type ignis_word(Pack pack)
{
    typename ignis_word_of<sizeof(Pack)>::type word;
    memcpy(&word, &pack, sizeof(Pack));
    return word;
}

/*  ignis_load<N>(p) - N elements from p, which is aligned to their size; without N the elements of 16 bytes.
    ignis_load_streaming - the same for data that nobody reads again soon: first to leave the caches.
    ignis_load_once - the same, and kept out of L1 altogether (where the pack has 16 bytes). */
template <int N = 0, typename T> __device__ inline auto ignis_load(const T *from)
{
    typedef ignis_pack<T, N ? N : 16 / sizeof(T)> Pack;
    return ignis_pack_of<Pack>(*(const typename ignis_word_of<sizeof(Pack)>::type *)from);
}

template <int N = 0, typename T> __device__ inline auto ignis_load_streaming(const T *from)
{
    typedef ignis_pack<T, N ? N : 16 / sizeof(T)> Pack;
    return ignis_pack_of<Pack>(__ldcs((const typename ignis_word_of<sizeof(Pack)>::type *)from));
}

template <int N = 0, typename T> __device__ inline auto ignis_load_once(const T *from)
{
    typedef ignis_pack<T, N ? N : 16 / sizeof(T)> Pack;
    if constexpr (sizeof(Pack) == 16)
        return ignis_pack_of<Pack>(ignis_ptx_ld_no_allocate((const uint4 *)from));
    else
        return ignis_load_streaming<N>(from);
}

/*  ignis_store(p, pack) - the pack to p, which is aligned to its size.
    ignis_store_streaming - the same for data that nobody reads again soon. */
template <int N, typename T> __device__ inline void ignis_store(T *to, const ignis_pack<T, N> &pack)
{
    *(typename ignis_word_of<sizeof(pack)>::type *)to = ignis_word(pack);
}

template <int N, typename T> __device__ inline void ignis_store_streaming(T *to, const ignis_pack<T, N> &pack)
{
    __stcs((typename ignis_word_of<sizeof(pack)>::type *)to, ignis_word(pack));
}

/*  Whether p may be accessed in packs of so many bytes. */
__device__ inline bool ignis_is_aligned(const void *p, int bytes) { return (size_t)p % bytes == 0; }

/* >>reductions -------------------------------------------------------------------------------------------------- */

/*  What a reduction combines, and what it starts from. */
struct ignis_sum {
    template <typename T> static __device__ T start() { return T(0); }
    template <typename T> static __device__ T combine(T a, T b) { return a + b; }
};

struct ignis_max { /* NaN loses against every number */
    template <typename T> static __device__ T start()
    {
        if constexpr (ignis_is_float<T>)
            return T(-ignis_infinity<T>());
        else
            return ignis_min_value<T>();
    }
    template <typename T> static __device__ T combine(T a, T b) { return max(a, b); }
};

/*  Over the 32 threads of a warp, all of which call; every one gets the result. For float, double, int32_t and int64_t.
    The order of the additions is fixed, so equal inputs give equal bits. */
template <typename Op, typename T> __device__ inline T ignis_warp_reduce(T x)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        x = Op::combine(x, __shfl_xor_sync(0xffffffff, x, distance));
    return x;
}

/*  Over all threads of a block, which is a multiple of 32 threads, all of which call; every one gets the result. */
template <typename Op, typename T> __device__ inline T ignis_block_reduce(T x)
{
    __shared__ T partial[32]; /* one per warp */
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int warps = blockDim.x * blockDim.y * blockDim.z / 32;
    const int lane = thread % 32;

    x = ignis_warp_reduce<Op>(x);
    __syncthreads(); /* the block may still be reading partial for the previous reduction */
    if (lane == 0)
        partial[thread / 32] = x;
    __syncthreads();
    return ignis_warp_reduce<Op>(lane < warps ? partial[lane] : Op::template start<T>());
}

template <typename T> __device__ inline T ignis_warp_sum(T x) { return ignis_warp_reduce<ignis_sum>(x); }
template <typename T> __device__ inline T ignis_warp_max(T x) { return ignis_warp_reduce<ignis_max>(x); }
template <typename T> __device__ inline T ignis_block_sum(T x) { return ignis_block_reduce<ignis_sum>(x); }
template <typename T> __device__ inline T ignis_block_max(T x) { return ignis_block_reduce<ignis_max>(x); }

#endif /* IGNIS_CUH */
