// SPDX-License-Identifier: MIT
/*  ignis.cuh - what every kernel of Ignis starts with, and any other kernel may: #include "ignis.cuh"

    NVRTC gets this text from memory, so a machine that runs Ignis needs no CUDA headers, and nothing else can
    be included here, but f8.cuh. All names start with ignis_ or IGNIS_, except for the usual names of
    fixed-width integers.

        types        int8_t ... uint64_t, ignis_f16, ignis_bf16, ignis_f8_e4m3, ignis_f8_e5m2, ignis_type<IGNIS_BF16>,
        ignis_wide<T>
        limits       ignis_infinity<T>(), ignis_max_value<T>(), ignis_min_value<T>()
        conversion   ignis_convert<To>(x)
        packs        ignis_pack<T>, ignis_load, ignis_load_streaming, ignis_load_once, ignis_store,
        ignis_store_streaming, ignis_store_shared
        reductions   ignis_warp_sum, ignis_warp_max, ignis_block_sum, ignis_block_max
        random       ignis_philox
        map          ignis_map, ignis_broadcast, ignis_random_words
        rows         ignis_row, ignis_warp_team, ignis_block_team, ignis_one_round_team, ignis_exp, ignis_index */
#ifndef IGNIS_CUH
#define IGNIS_CUH

/* >>types ------------------------------------------------------------------------------------------------------- */

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
#ifdef __LP64__ /* the types of the system's stdint.h, which another header may include */
typedef long int64_t;
typedef unsigned long uint64_t;
#else
typedef long long int64_t;
typedef unsigned long long uint64_t;
#endif

/*  For the texts of src/shared, which the host reads, too. */
template <typename E> using ignis__pointer = E *;
#define IGNIS__POINTER(type) ignis__pointer<type>
#define IGNIS__TEMPLATE(E) template <typename E>
#define IGNIS__OF(type, E) type<E>
#define IGNIS__ALIGNED(bytes) alignas(bytes)
#define IGNIS__ASSERT_SIZE(type, bytes) static_assert(sizeof(type) == bytes, "the host's size")

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

__device__ inline uint32_t ignis_ptx_cvt_rn_bf16x2_f32(float high, float low)
{
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

__device__ inline uint32_t ignis_ptx_cvt_rn_f16x2_f32(float high, float low)
{
    uint32_t bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

/*  The larger one of both halves; NaN loses. */
__device__ inline uint32_t ignis_ptx_max_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t max;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(max) : "r"(a), "r"(b));
    return max;
}

__device__ inline uint32_t ignis_ptx_max_f16x2(uint32_t a, uint32_t b)
{
    uint32_t max;
    asm("max.f16x2 %0, %1, %2;" : "=r"(max) : "r"(a), "r"(b));
    return max;
}
#endif

/*  The larger one of both halves, as numbers without a sign. */
__device__ inline uint32_t ignis_ptx_max_u16x2(uint32_t a, uint32_t b)
{
#if __CUDA_ARCH__ >= 900
    uint32_t max;
    asm("max.u16x2 %0, %1, %2;" : "=r"(max) : "r"(a), "r"(b));
    return max;
#else
    return max(a & 0xffffu, b & 0xffffu) | max(a >> 16, b >> 16) << 16;
#endif
}

/*  2 to the power of x, with a relative error below 2^-22; subnormal results are 0, and that of minus
    infinity. */
__device__ inline float ignis_ptx_ex2_ftz(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

/*  1 / x, with a relative error below 2^-23; subnormal numbers are 0. */
__device__ inline float ignis_ptx_rcp_ftz(float x)
{
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
    return reciprocal;
}

__device__ inline uint4 ignis_ptx_ld_no_allocate(const uint4 *from)
{
    uint4 value;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(from)
                 : "memory");
    return value;
}

/*  Adds atomically. This thread's earlier writes are visible to the others, and what they wrote before they
    added is visible to this one. */
__device__ inline uint32_t ignis_ptx_atom_add_acq_rel(uint32_t *to, uint32_t x)
{
    uint32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(x) : "memory");
    return before;
}

/*  Waits for `threads` threads, full warps, at a barrier of the block: 0, which is __syncthreads(), to 15. */
__device__ inline void ignis_ptx_bar_sync(uint32_t id, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/*  Programmatic dependent launch: a kernel that was launched as `dependent` (ignis_launch) may begin before
    earlier work on the stream has ended. ignis_grid_dependency_wait waits for all of it. Before the wait a
    thread neither reads what other work writes, nor writes what other work reads or writes.
    ignis_grid_dependents_launch allows the next kernel to begin, if it is dependent, once all blocks have
    called it or ended. That costs the next kernel's room on the device, and saves the time of a launch.
    Without such a launch both do nothing. Compilers move the wait before work that needs no memory; with a
    number, which is not below 0, it comes when that is known. ignis_grid_dependency - both, the latter if the
    grid is small: beside a kernel that fills the device nothing can begin. */
__device__ inline void ignis_grid_dependency_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

__device__ inline void ignis_grid_dependency_wait(long long known)
{
    if (known >= 0)
        ignis_grid_dependency_wait();
}

__device__ inline void ignis_grid_dependents_launch()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ inline void ignis_grid_dependency()
{
    if (gridDim.x <= 128)
        ignis_grid_dependents_launch();
    ignis_grid_dependency_wait();
}

template <typename To, typename From> __device__ inline To ignis_convert(From x);

#include "f8.cuh"

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
        const uint32_t half_less_tie = 0x7fff + (word >> 16 & 1); /* a tie rounds up only from an odd number */
        return from_bits((uint16_t)((word + half_less_tie) >> 16));
#endif
    }
};

/*  8 bits, with a number of bits of exponent and of fraction: see f8.cuh. Used like ignis_f16. */
template <int exponent, int fraction> struct ignis_f8 {
    uint8_t bits;

    ignis_f8() = default;
    template <typename From> __device__ explicit ignis_f8(From x) { *this = ignis_convert<ignis_f8>(x); }
    __device__ operator float() const { return fraction == 3 ? ignis_e4m3_value(bits) : ignis_e5m2_value(bits); }

    static __device__ ignis_f8 from_bits(uint8_t bits)
    {
        ignis_f8 eighth;
        eighth.bits = bits;
        return eighth;
    }
    static __device__ ignis_f8 round(float x)
    {
        return from_bits((uint8_t)(fraction == 3 ? ignis_e4m3_bits(x) : ignis_e5m2_bits(x)));
    }
};
typedef ignis_f8<4, 3> ignis_f8_e4m3;
typedef ignis_f8<5, 2> ignis_f8_e5m2;

/*  IGNIS_DTYPES - every element type as X(name, enumerator, type), with the enumerators of ignis_dtype in
    ignis.h. */
#define IGNIS_DTYPES(X)                      \
    X(f16, IGNIS_F16, ignis_f16)             \
    X(bf16, IGNIS_BF16, ignis_bf16)          \
    X(f32, IGNIS_F32, float)                 \
    X(f64, IGNIS_F64, double)                \
    X(i32, IGNIS_I32, int32_t)               \
    X(i64, IGNIS_I64, int64_t)               \
    X(u8, IGNIS_U8, uint8_t)                 \
    X(f8_e4m3, IGNIS_F8_E4M3, ignis_f8_e4m3) \
    X(f8_e5m2, IGNIS_F8_E5M2, ignis_f8_e5m2)

enum ignis_dtype {
    IGNIS_F16 = 1,
    IGNIS_BF16,
    IGNIS_F32,
    IGNIS_F64,
    IGNIS_I32,
    IGNIS_I64,
    IGNIS_U8,
    IGNIS_F8_E4M3,
    IGNIS_F8_E5M2
};

/*  ignis_type<IGNIS_BF16> is ignis_bf16, and so on. */
template <int dtype> struct ignis_type_of;
#define IGNIS_TYPE_OF(name, dtype, T)         \
    template <> struct ignis_type_of<dtype> { \
        typedef T type;                       \
    };
IGNIS_DTYPES(IGNIS_TYPE_OF)
#undef IGNIS_TYPE_OF
template <int dtype> using ignis_type = typename ignis_type_of<dtype>::type;

/*  ignis_wide<T> is the type that Ignis computes in: float for all short floating types, double for double,
    and unsigned 64 bits for integers. Integers wrap around without undefined behaviour, also when cut back to
    T. */
template <typename T> struct ignis_wide_of {
    typedef uint64_t type;
};
template <> struct ignis_wide_of<ignis_f16> {
    typedef float type;
};
template <> struct ignis_wide_of<ignis_bf16> {
    typedef float type;
};
template <int exponent, int fraction> struct ignis_wide_of<ignis_f8<exponent, fraction>> {
    typedef float type;
};
template <> struct ignis_wide_of<float> {
    typedef float type;
};
template <> struct ignis_wide_of<double> {
    typedef double type;
};
template <typename T> using ignis_wide = typename ignis_wide_of<T>::type;

template <typename A, typename B> static constexpr bool ignis_is_same = false;
template <typename A> static constexpr bool ignis_is_same<A, A> = true;
template <typename T> static constexpr bool ignis_is_half = ignis_is_same<T, ignis_f16> || ignis_is_same<T, ignis_bf16>;
template <typename T>
static constexpr bool ignis_is_f8 = ignis_is_same<T, ignis_f8_e4m3> || ignis_is_same<T, ignis_f8_e5m2>;
template <typename T>
static constexpr bool ignis_is_float =
    ignis_is_half<T> || ignis_is_f8<T> || ignis_is_same<T, float> || ignis_is_same<T, double>;
template <typename T>
static constexpr bool ignis_is_integer = /* of the element types; int64_t is one of the last two */
    ignis_is_same<T, uint8_t> || ignis_is_same<T, int> || ignis_is_same<T, long> || ignis_is_same<T, long long>;

/* >>limits ------------------------------------------------------------------------------------------------------ */

/*  The largest and the smallest finite number of a type. */
template <typename T> __device__ constexpr T ignis_max_value()
{
    if constexpr (ignis_is_same<T, ignis_f16>)
        return ignis_f16::from_bits(0x7bff);
    else if constexpr (ignis_is_same<T, ignis_bf16>)
        return ignis_bf16::from_bits(0x7f7f);
    else if constexpr (ignis_is_f8<T>)
        return T::from_bits(ignis_is_same<T, ignis_f8_e4m3> ? 0x7e : 0x7b);
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

/*  Round to odd: cut x to a float, and set the last bit if that lost anything. A float rounded so rounds on
    to 16 bits as if x itself had been rounded; rounding to nearest twice would not. */
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
    To a floating type: rounds once, to nearest even; keeps NaN, infinities and signed zeros; overflows to
    infinity. Types of 8 bits saturate. To an integer type: rounds toward zero and saturates; NaN becomes 0. */
template <typename To, typename From> __device__ inline To ignis_convert(From x)
{
    static_assert(ignis_is_float<To> || ignis_is_integer<To>, "ignis_convert gives element types");
    static_assert(ignis_is_float<From> || sizeof(From) < 8 || From(-1) < From(0),
                  "ignis_convert takes no unsigned 64 bits");
    if constexpr (ignis_is_same<To, From>) {
        return x;
    } else if constexpr (ignis_is_half<From> || ignis_is_f8<From>) {
        return ignis_convert<To>(float(x)); /* exact */
    } else if constexpr (ignis_is_half<To> || ignis_is_f8<To>) {
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
    static constexpr int count = N;
    T at[N];

    __device__ T &operator[](int i) { return at[i]; }
    __device__ const T &operator[](int i) const { return at[i]; }
};

/*  The elements of a type of packs, or of a reference to one. */
template <typename Pack> static constexpr int ignis_pack_count = Pack::count;
template <typename Pack> static constexpr int ignis_pack_count<Pack &> = Pack::count;

/*  The word with this number of bytes. */
template <int bytes> struct ignis_word_of;
template <> struct ignis_word_of<1> {
    typedef uint8_t type;
};
template <> struct ignis_word_of<2> {
    typedef uint16_t type;
};
template <> struct ignis_word_of<4> {
    typedef uint32_t type;
};
template <> struct ignis_word_of<8> {
    typedef uint2 type;
};
template <> struct ignis_word_of<16> {
    typedef uint4 type;
};

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
    ignis_load_streaming - for data that is not read again soon: first to leave the caches. ignis_load_once -
    as that, and kept out of L1 (if the pack has 16 bytes). */
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

/*  ignis_store(p, pack) - the pack to p in global memory, which is aligned to its size. The compiler may
    split a plain assignment into words. ignis_store_streaming - for data that is not read again soon.
    ignis_store_shared - to shared memory. */
template <int N, typename T> __device__ inline void ignis_store(T *to, const ignis_pack<T, N> &pack)
{
    __stwb((typename ignis_word_of<sizeof(pack)>::type *)to, ignis_word(pack));
}

template <int N, typename T> __device__ inline void ignis_store_shared(T *to, const ignis_pack<T, N> &pack)
{
    *(typename ignis_word_of<sizeof(pack)>::type *)to = ignis_word(pack);
}

template <int N, typename T> __device__ inline void ignis_store_streaming(T *to, const ignis_pack<T, N> &pack)
{
    __stcs((typename ignis_word_of<sizeof(pack)>::type *)to, ignis_word(pack));
}

/*  Two numbers as two 16-bit ones, the first in the lower half. */
template <typename T> __device__ inline uint32_t ignis_round_two(float first, float second)
{
    static_assert(ignis_is_half<T>, "two numbers in a word are f16 or bf16");
#if __CUDA_ARCH__ >= 800
    if constexpr (ignis_is_same<T, ignis_bf16>)
        return ignis_ptx_cvt_rn_bf16x2_f32(second, first);
    else
        return ignis_ptx_cvt_rn_f16x2_f32(second, first);
#else
    return T(first).bits | (uint32_t)T(second).bits << 16;
#endif
}

/*  Rounds numbers to a pack, each once; types of 16 and 8 bits two at a time if there is an instruction for
    that. */
template <typename T, int N, typename From> __device__ inline ignis_pack<T, N> ignis_pack_round(const From (&x)[N])
{
    ignis_pack<T, N> pack;
    if constexpr (ignis_is_half<T> && ignis_is_same<From, float> && N % 2 == 0) {
        uint32_t words[N / 2];
#pragma unroll
        for (int i = 0; i < N; i += 2)
            words[i / 2] = ignis_round_two<T>(x[i], x[i + 1]);
        memcpy(&pack, words, sizeof(pack));
    } else if constexpr (ignis_is_f8<T> && ignis_is_same<From, float> && N % 2 == 0) {
        uint16_t twos[N / 2];
#pragma unroll
        for (int i = 0; i < N; i += 2)
            twos[i / 2] = (uint16_t)(ignis_is_same<T, ignis_f8_e4m3> ? ignis_e4m3_two(x[i], x[i + 1])
                                                                     : ignis_e5m2_two(x[i], x[i + 1]));
        memcpy(&pack, twos, sizeof(pack));
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            pack[i] = T(x[i]);
    }
    return pack;
}

/*  Element i of a pack as what Ignis computes with. Of two bf16 in a word, the second one is there when the
    first is cut off. */
template <typename T, int N> __device__ inline ignis_wide<T> ignis_wide_at(const ignis_pack<T, N> &pack, int i)
{
    if constexpr (ignis_is_same<T, ignis_bf16> && N % 2 == 0) {
        if (i % 2) {
            uint32_t two;
            memcpy(&two, &pack.at[i - 1], sizeof(two));
            return __uint_as_float(two & 0xffff0000);
        }
    }
    return ignis_wide<T>(pack[i]);
}

/*  Returns whether p may be accessed in packs of `bytes` bytes. */
__device__ inline bool ignis_is_aligned(const void *p, int bytes) { return (size_t)p % bytes == 0; }

/* >>reductions -------------------------------------------------------------------------------------------------- */

/*  The operation of a reduction, and its initial value. */
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

/*  Reduces over the 32 threads of a warp, all of which call; every one gets the result. For float, double,
    int32_t and int64_t. The order of the additions is fixed, so equal inputs give equal bits. */
template <typename Op, typename T> __device__ inline T ignis_warp_reduce(T x)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        x = Op::combine(x, __shfl_xor_sync(0xffffffff, x, distance));
    return x;
}

/*  Reduces over all threads of a block, a multiple of 32, all of which call; every one gets the result. */
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

/*  Squares of ordinary numbers may overflow: of 1e20 in float. If a sum of squares, or its reciprocal root,
    is outside of these limits, it is computed once more, with each number times a power of two that brings
    the largest one near 1. Below the lower limit squares of subnormals have counted. */
__device__ inline bool ignis_squares_fit(float sum) { return sum >= 0x1p-120f && sum <= 0x1.fffffep127f; }
__device__ inline bool ignis_squares_fit(double sum) { return sum >= 0x1p-1016 && sum <= 0x1.fffffffffffffp1023; }
__device__ inline bool ignis_rstd_fits(float rstd) { return rstd > 0 && rstd <= 0x1p60f; }
__device__ inline bool ignis_rstd_fits(double rstd) { return rstd > 0 && rstd <= 0x1p508; }

/*  Returns that power of two, for numbers of which `most` is the largest; between 2^-126 and 2^100, 2^-1022
    and 2^1000. */
__device__ inline float ignis_square_scale(float most)
{
    return __uint_as_float((uint32_t)min(max(254 - (int)(__float_as_uint(most) >> 23), 1), 227) << 23);
}
__device__ inline double ignis_square_scale(double most)
{
    return __longlong_as_double((long long)min(max(2046 - (int)(__double_as_longlong(most) >> 52), 1), 2023) << 52);
}

template <typename T> __device__ inline T ignis_warp_sum(T x) { return ignis_warp_reduce<ignis_sum>(x); }
template <typename T> __device__ inline T ignis_warp_max(T x) { return ignis_warp_reduce<ignis_max>(x); }
template <typename T> __device__ inline T ignis_block_sum(T x) { return ignis_block_reduce<ignis_sum>(x); }
template <typename T> __device__ inline T ignis_block_max(T x) { return ignis_block_reduce<ignis_max>(x); }

/* >>random ------------------------------------------------------------------------------------------------------ */

/*  Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011): four
    random words that are a function of a 128-bit counter and a 64-bit key alone, so any thread can make the
    numbers of any element. */
__device__ inline uint4 ignis_philox(uint4 counter, uint2 key)
{
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint32_t high_x = __umulhi(0xD2511F53u, counter.x), low_x = 0xD2511F53u * counter.x;
        const uint32_t high_z = __umulhi(0xCD9E8D57u, counter.z), low_z = 0xCD9E8D57u * counter.z;
        counter = make_uint4(high_z ^ counter.y ^ key.x, low_z, high_x ^ counter.w ^ key.y, low_x);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

/* >>map --------------------------------------------------------------------------------------------------------- */

/*  ignis_map(n, op, dst, src...) - dst[i] = op(src[i]...) for the n elements of a grid's arrays, of any
    element types. Blocks have IGNIS_MAP_THREADS threads, each of which computes IGNIS_TILE elements: grid =
    ceil(n / IGNIS_TILE). A source is an array, or one of the readers below, which make up the element. dst
    may be a source. Pointers are aligned to their elements; if they are aligned to packs too, packs are used. */

#define IGNIS_MAP_THREADS 256

/*  Parameters that a benchmark may vary; powers of two. */
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

/*  A reader has the bytes of an element in memory; packs<N>(), whether it can be read in packs of N;
    start<step>(at), which goes to an element; and next<N, step>(), which gives N elements from there and goes
    step elements on. at is a multiple of N. */

/*  Reader of an array. */
template <typename T> struct ignis_each {
    static constexpr int element_bytes = sizeof(T);
    const T *from;

    template <int N> __device__ bool packs() const { return ignis_is_aligned(from, N * sizeof(T)); }
    template <int step> __device__ void start(long long at) { from += at; }
    template <int N, int step> __device__ ignis_pack<T, N> next()
    {
        const ignis_pack<T, N> pack = IGNIS_LOAD<N>(from);
        from += step;
        return pack;
    }
};

/*  Reader that broadcasts an array [outer, inner] to [outer, n, inner], with span = n * inner: element i is
    from[i / span * inner + i % inner]. A row [cols] broadcast to [rows, cols] is span = rows * cols, inner =
    cols; a scalar is inner = 1. */
template <typename T> struct ignis_broadcast {
    static constexpr int element_bytes = sizeof(T);
    const T *from; /* later: the row at hand */
    long long span, inner;
    long long at_span, at_inner;                /* position in the span and in the row */
    long long step_from, step_span, step_inner; /* what a step adds to them */

    __device__ ignis_broadcast(const T *from, long long span, long long inner) : from(from), span(span), inner(inner) {}
    template <int N> __device__ bool packs() const { return true; }
    template <int step> __device__ void start(long long at)
    {
        from += at / span * inner;
        at_span = at % span;
        at_inner = at % inner;
        step_from = step / span * inner;
        step_span = step % span;
        step_inner = step % inner;
    }
    template <int N, int step> __device__ ignis_pack<T, N> next()
    {
        ignis_pack<T, N> pack;
        if (inner % N == 0 && ignis_is_aligned(from, N * sizeof(T)))
            pack = ignis_load<N>(from + at_inner);
        else if (inner == 1 && at_span + N <= span)
            pack = splat<N>(from[0]);
        else
            pack = gather<N>();
        from += step_from;
        at_span += step_span;
        at_inner += step_inner;
        if (at_span >= span) {
            at_span -= span;
            from += inner;
        }
        if (at_inner >= inner)
            at_inner -= inner;
        return pack;
    }

  private:
    template <int N> static __device__ ignis_pack<T, N> splat(T value)
    {
        ignis_pack<T, N> pack;
#pragma unroll
        for (int i = 0; i < N; i++)
            pack[i] = value;
        return pack;
    }
    template <int N> __device__ ignis_pack<T, N> gather() const
    {
        ignis_pack<T, N> pack;
        const T *row = from;
        long long column = at_inner, left = span - at_span;
#pragma unroll
        for (int i = 0; i < N; i++) {
            pack[i] = row[column];
            if (++column == inner)
                column = 0;
            if (--left == 0) {
                left = span;
                row += inner;
            }
        }
        return pack;
    }
};

/*  Reader of random words: that of element i is word i % 4 of Philox with the key seed at the counter whose
    lower half is first + i / 4, and whose upper half is stream. */
struct ignis_random_words {
    static constexpr int element_bytes = 0;
    uint64_t seed, first, stream;
    uint64_t at;

    __device__ ignis_random_words(uint64_t seed, uint64_t first, uint64_t stream)
        : seed(seed), first(first), stream(stream)
    {
    }
    template <int N> __device__ bool packs() const { return true; }
    template <int step> __device__ void start(long long element) { at = element; }
    __device__ uint4 four(int i = 0) const /* the words of the four elements that at + i is one of */
    {
        const uint64_t counter = first + (at + i) / 4;
        return ignis_philox(
            make_uint4((uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)),
            make_uint2((uint32_t)seed, (uint32_t)(seed >> 32)));
    }
    template <int N, int step> __device__ ignis_pack<uint32_t, N> next()
    {
        ignis_pack<uint32_t, N> pack;
        if constexpr (N < 4) {
            const uint4 words = four();
            const uint32_t rest = at % 4;
            if constexpr (N == 1)
                pack[0] = rest == 0 ? words.x : rest == 1 ? words.y : rest == 2 ? words.z : words.w;
            else
                pack[0] = rest == 0 ? words.x : words.z, pack[1] = rest == 0 ? words.y : words.w;
        } else {
#pragma unroll
            for (int i = 0; i < N; i += 4) {
                const uint4 words = four(i);
                pack[i] = words.x, pack[i + 1] = words.y, pack[i + 2] = words.z, pack[i + 3] = words.w;
            }
        }
        at += step;
        return pack;
    }
};

template <typename T> __device__ inline ignis_each<T> ignis_reader(const T *array) { return {array}; }
template <typename T> __device__ inline ignis_each<T> ignis_reader(T *array) { return {array}; }
template <typename Reader> __device__ inline Reader ignis_reader(Reader reader) { return reader; }

template <int... sizes> constexpr int ignis_largest()
{
    int largest = 1;
    ((largest = sizes > largest ? sizes : largest), ...);
    return largest;
}

template <typename D, int N, typename Op, typename... S>
__device__ inline ignis_pack<D, N> ignis_map_pack(Op op, const ignis_pack<S, N> &...src)
{
    ignis_pack<D, N> result;
#pragma unroll
    for (int i = 0; i < N; i++)
        result[i] = op(src[i]...);
    return result;
}

/*  Processes this thread's share of a tile, in packs of N elements, from the element at on. The packs of its
    neighbours come before its next one, so that a warp's accesses are contiguous. Unless the tile is whole,
    only the first left elements from there exist. */
template <int N, bool whole, typename Op, typename D, typename... Readers>
__device__ inline void ignis_map_share(long long at, int left, Op op, D *dst, Readers... src)
{
    constexpr int step = IGNIS_MAP_THREADS * N;
    constexpr int packs = IGNIS_TILE / step;
    constexpr int in_flight = packs < IGNIS_PACKS_IN_FLIGHT ? packs : IGNIS_PACKS_IN_FLIGHT;

    dst += at;
    (src.template start<step>(at), ...);
#pragma unroll 1
    for (int round = 0; round < packs / in_flight; round++) {
        ignis_pack<D, N> result[in_flight];
#pragma unroll
        for (int i = 0; i < in_flight; i++)
            if (whole || i * step < left)
                result[i] = ignis_map_pack<D, N>(op, src.template next<N, step>()...);
#pragma unroll
        for (int i = 0; i < in_flight; i++)
            if (whole || i * step < left)
                IGNIS_STORE(dst + i * step, result[i]);

        left -= in_flight * step;
        dst += in_flight * step;
    }
}

template <typename Op, typename D, typename... Readers>
__device__ inline void ignis_map_tile(long long tile, long long n, Op op, D *dst, Readers... src)
{
    constexpr int N = IGNIS_PACK_BYTES / ignis_largest<sizeof(D), Readers::element_bytes...>();
    const long long first = tile * IGNIS_TILE;
    const bool whole = first + IGNIS_TILE <= n;
    const bool aligned = ignis_is_aligned(dst, N * sizeof(D)) && (src.template packs<N>() && ...);

    if (whole && aligned)
        ignis_map_share<N, true>(first + threadIdx.x * N, IGNIS_TILE, op, dst, src...);
    else
        ignis_map_share<1, false>(first + threadIdx.x, (int)min(n - first - threadIdx.x, (long long)IGNIS_TILE), op,
                                  dst, src...);
}

template <typename Op, typename D, typename... S> __device__ inline void ignis_map(long long n, Op op, D *dst, S... src)
{
    ignis_grid_dependency();
    ignis_map_tile(blockIdx.x, n, op, dst, ignis_reader(src)...);
}

/* >>rows -------------------------------------------------------------------------------------------------------- */

/*  A row of a matrix is the work of a team: of a warp if it is short, else of a block. The grid's teams loop:
    for (long long r = Team::first(); r < rows; r += Team::count()) Blocks have one dimension. reduce gives
    every thread of the team the same, in a fixed order. */
struct ignis_warp_team {
    static constexpr bool is_block = false, one_round = true;
    static __device__ int size() { return 32; }
    static __device__ int thread() { return threadIdx.x % 32; }
    static __device__ long long first() { return (long long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; }
    static __device__ long long count() { return (long long)gridDim.x * (blockDim.x / 32); }
    template <typename Op, typename T> static __device__ T reduce(T x) { return ignis_warp_reduce<Op>(x); }
    static __device__ void wait() { __syncwarp(); }
};

struct ignis_block_team {
    static constexpr bool is_block = true, one_round = false;
    static __device__ int size() { return blockDim.x; }
    static __device__ int thread() { return threadIdx.x; }
    static __device__ long long first() { return blockIdx.x; }
    static __device__ long long count() { return gridDim.x; }
    template <typename Op, typename T> static __device__ T reduce(T x) { return ignis_block_reduce<Op>(x); }
    static __device__ void wait() { __syncthreads(); }
};

/*  A block with rows that need one round of ignis_row only, as a warp's do: for the compiler to leave out the
    code for more, which costs registers, and so rows that an SM has in flight. */
struct ignis_one_round_team : ignis_block_team {
    static constexpr bool one_round = true;
};

#define IGNIS_ROW_PACKS 4 /* that a thread has of a row at a time; the host computes with it, too */

/*  The elements of a row that a thread has at a time. */
template <typename T, int N, int count = (N > 1 ? IGNIS_ROW_PACKS : 2 * IGNIS_ROW_PACKS)> struct ignis_batch {
    ignis_pack<T, N> at[count];
    ignis_pack<T, 1> extra;
};

/*  The packs of a batch as words. */
template <typename T, int N> struct ignis_words {
    typename ignis_word_of<N * sizeof(T)>::type at[sizeof(ignis_batch<T, N>::at) / (N * sizeof(T))];
};

/*  ignis_row<T, Team, N> - how a team shares out a row of fewer than 2^30 elements: in rounds, in each of
    which a thread has a few packs of N elements. So what it has in one round is in registers, all loaded
    before the first is used. A row that needs more rounds is walked to and fro, as the last round of one walk
    is the first of the next; the others come out of the block's dynamic shared memory, as far as that goes,
    else from global memory again.

    Packs are where addresses are multiples of 16 bytes. The elements before the first and after the last
    pack, fewer than 2 * N, are given out as an extra element each, in round 0; rows that are exact have none,
    which saves instructions. Arrays whose rows begin at other addresses modulo 16 need N = 1. */
template <typename T, typename Team, int N = 16 / sizeof(T), bool exact = false,
          int count = (N > 1 ? IGNIS_ROW_PACKS : 2 * IGNIS_ROW_PACKS)>
struct ignis_row {
    typedef ignis_batch<T, N, count> Batch;
    static constexpr int packs = count;

    int begin, end; /* columns that packs cover */
    int extra;      /* column of this thread's extra element, or -1 */
    int kept;       /* rounds that the dynamic shared memory holds */

    /*  The row of n elements that starts at from. */
    __device__ ignis_row(const T *from, long long n, int kept = 0) : begin(0), end((int)n), extra(-1), kept(kept)
    {
        if constexpr (N > 1 && !exact) {
            begin = min((int)((16 - (size_t)from % 16) % 16 / sizeof(T)), (int)n);
            end = begin + ((int)n - begin) / N * N;
            const int column = Team::thread() < begin ? Team::thread() : end + Team::thread() - begin;
            extra = column < n ? column : -1;
        }
    }

    /*  Returns whether there is such a round; the same for the whole team. */
    __device__ bool has(int round) const
    {
        return round == 0 || (!Team::one_round && begin + round * packs * N * Team::size() < end);
    }

    /*  The column of this thread's pack p, which exists if that is below end. */
    __device__ int column(int round, int p) const
    {
        return begin + ((round * packs + p) * Team::size() + Team::thread()) * N;
    }

    /*  f(column, pack of each batch) for everything that this thread has in a round: packs of N elements, and
        the extra one. */
    template <typename F, typename... Batches> __device__ void each(int round, F f, Batches &...batch) const
    {
#pragma unroll
        for (int p = 0; p < packs; p++)
            if (column(round, p) < end)
                f(column(round, p), batch.at[p]...);
        if (N > 1 && !exact && round == 0 && extra >= 0)
            f(extra, batch.extra...);
    }

    /*  Of an array's row that starts at from. */
    __device__ void load(Batch &batch, const T *from, int round) const
    {
        each(
            round, [&](int column, auto &pack) { pack = ignis_load<ignis_pack_count<decltype(pack)>>(from + column); },
            batch);
    }

    /*  As above in two steps, for a row that is used long after it is loaded. load leaves the words of memory
        as they are; open takes them apart, which waits for them. In round 0 of packed rows. */
    __device__ void load(ignis_words<T, N> &words, const T *from) const
    {
#pragma unroll
        for (int p = 0; p < packs; p++)
            if (column(0, p) < end)
                words.at[p] = ignis_word(ignis_load<N>(from + column(0, p)));
    }
    __device__ void open(Batch &batch, const ignis_words<T, N> &words) const
    {
#pragma unroll
        for (int p = 0; p < packs; p++)
            batch.at[p] = ignis_pack_of<ignis_pack<T, N>>(words.at[p]);
    }

    /*  keep stores the packs of a round, recall gets them back, or loads them again. Every thread has its own
        memory, so no thread waits. Of several arrays, one has the number array of arrays. */
    __device__ void keep(const Batch &batch, int round, int array = 0, int arrays = 1) const
    {
        if constexpr (!Team::one_round && N > 1)
            if (round < kept)
#pragma unroll
                for (int p = 0; p < packs; p++)
                    place(round * arrays + array, p) = batch.at[p];
    }
    __device__ void recall(Batch &batch, const T *from, int round, int array = 0, int arrays = 1) const
    {
        if constexpr (!Team::one_round && N > 1)
            if (round < kept) {
#pragma unroll
                for (int p = 0; p < packs; p++)
                    batch.at[p] = place(round * arrays + array, p);
                return;
            }
        load(batch, from, round);
    }

  private:
    static __device__ ignis_pack<T, N> &place(int slot, int p)
    {
        extern __shared__ uint4 ignis_row_memory[];
        return ((ignis_pack<T, N> *)ignis_row_memory)[(slot * packs + p) * Team::size() + Team::thread()];
    }
};

/*  log(x) for use with a T; for 16-bit types exact to a few bits more than they have. */
template <typename T> __device__ inline ignis_wide<T> ignis_log(ignis_wide<T> x)
{
    if constexpr (ignis_is_half<T>)
        return __logf(x);
    else
        return log(x);
}

/*  exp(x - less) * scale for the use in a T, as exact, with a scale of 0 or more: one difference, one
    multiply-add and one power of 2. The difference comes first: less * log2(e) is rounded, where less is 1e9
    by more than 32. */
template <typename T> struct ignis_exp_less {
    ignis_wide<T> less, scale; /* for 16-bit types log2(scale) */

    __device__ explicit ignis_exp_less(ignis_wide<T> less) : less(less), scale(ignis_is_half<T> ? 0 : 1) {}
    __device__ ignis_exp_less(ignis_wide<T> less, ignis_wide<T> scale) : less(less), scale(scale)
    {
        if constexpr (ignis_is_half<T>)
            this->scale = ignis_log<T>(scale) * 1.44269504f;
    }
    __device__ ignis_wide<T> operator()(ignis_wide<T> x) const
    {
        if constexpr (ignis_is_half<T>)
            return ignis_ptx_ex2_ftz(fmaf(x - less, 1.44269504f, scale));
        else
            return exp(x - less) * scale;
    }
};

#if __CUDA_ARCH__ >= 800
template <typename T> __device__ inline uint32_t ignis_max_two(uint32_t a, uint32_t b)
{
    if constexpr (ignis_is_same<T, ignis_bf16>)
        return ignis_ptx_max_bf16x2(a, b);
    else
        return ignis_ptx_max_f16x2(a, b);
}
#endif

/*  The largest element of some packs; NaN loses. */
template <typename T, int N, int M> __device__ inline ignis_wide<T> ignis_pack_max(const ignis_pack<T, N> (&packs)[M])
{
#if __CUDA_ARCH__ >= 800
    if constexpr (ignis_is_half<T> && N == 8) { /* two at a time */
        uint4 most = ignis_word(packs[0]);
#pragma unroll
        for (int p = 1; p < M; p++) {
            const uint4 word = ignis_word(packs[p]);
            most = make_uint4(ignis_max_two<T>(most.x, word.x), ignis_max_two<T>(most.y, word.y),
                              ignis_max_two<T>(most.z, word.z), ignis_max_two<T>(most.w, word.w));
        }
        const uint32_t two = ignis_max_two<T>(ignis_max_two<T>(most.x, most.y), ignis_max_two<T>(most.z, most.w));
        const auto both = ignis_pack_of<ignis_pack<T, 2>>(two);
        return ignis_max::combine(ignis_wide_at(both, 0), ignis_wide_at(both, 1));
    }
#endif
    ignis_wide<T> max = ignis_wide_at(packs[0], 0);
#pragma unroll
    for (int i = 1; i < M * N; i++)
        max = ignis_max::combine(max, ignis_wide_at(packs[i / N], i % N));
    return max;
}
template <typename T, int N> __device__ inline ignis_wide<T> ignis_pack_max(const ignis_pack<T, N> &pack)
{
    const ignis_pack<T, N> packs[1] = {pack};
    return ignis_pack_max(packs);
}

/*  Element i of an array of indices, which are int64_t or int32_t. */
__device__ inline long long ignis_index(const void *indices, int index_bytes, long long i)
{
    return index_bytes == 8 ? ((const int64_t *)indices)[i] : ((const int32_t *)indices)[i];
}

#endif /* IGNIS_CUH */
