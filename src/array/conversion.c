/*  array/conversion.c - conversion of elements on the host

    One rounding for every pair of dtypes, equal to the bits that kernels/ignis.cuh computes on the device. Safe
    under -ffast-math where it tests bits.
    May use: dtype.c. Locks: none. */

#include "room.h"

/*  Elements are converted through int64_t (integers) or double (floats), which hold every value of their types, and
    rounded once, at the end. kernels/ignis.cuh computes the same bits on the device. */

/*  Rounds to a binary float of `fraction` bits and `exponent` bits, to nearest even (IEEE 754-2008, 4.3.1). */
static uint32_t ignis__round_double(double value, int fraction, int exponent)
{
    uint64_t bits, significand, rounded, remainder, middle;
    uint32_t sign, infinity = ((1u << exponent) - 1) << fraction;
    int power, shift;
    memcpy(&bits, &value, sizeof bits);
    sign = (uint32_t)(bits >> 63) << (fraction + exponent);
    power = (int)(bits >> 52 & 0x7FF);
    significand = bits & 0xFFFFFFFFFFFFFu;
    if (power == 0x7FF)
        return sign | infinity | (significand ? 1u << (fraction - 1) : 0);
    if (power == 0)
        return sign; /* far below every subnormal of a smaller type */
    significand |= (uint64_t)1 << 52;
    power += ((1 << (exponent - 1)) - 1) - 1023; /* the exponent field in the small type */
    shift = 52 - fraction;
    if (power < 1) { /* a subnormal: its exponent is that of field 1, with fewer bits */
        shift += 1 - power;
        power = 1;
        if (shift > 63)
            return sign;
    }
    rounded = significand >> shift;
    remainder = significand & (((uint64_t)1 << shift) - 1);
    middle = (uint64_t)1 << (shift - 1);
    if (remainder > middle || (remainder == middle && (rounded & 1)))
        rounded++;
    /* The hidden bit adds 1 to the field where it is set, and a carry of the rounding goes on into it. */
    rounded += (uint64_t)(power - 1) << fraction;
    return sign | (rounded >= infinity ? infinity : (uint32_t)rounded);
}

IGNIS__PRIVATE double ignis__widen_float(uint32_t bits, int fraction, int exponent)
{
    uint64_t sign = (uint64_t)(bits >> (fraction + exponent)) << 63, wide;
    int power = (int)(bits >> fraction) & ((1 << exponent) - 1);
    uint64_t low = bits & ((1u << fraction) - 1);
    double value;
    if (power == (1 << exponent) - 1) {
        wide = (uint64_t)0x7FF << 52 | low << (52 - fraction);
    } else if (power == 0 && low == 0) {
        wide = 0;
    } else {
        if (power == 0) { /* a subnormal: shift its highest bit into the hidden place */
            int up = fraction - ignis__log2(low);
            low = low << up & ((1u << fraction) - 1);
            power = 1 - up;
        }
        wide = (uint64_t)(power + 1023 - ((1 << (exponent - 1)) - 1)) << 52 | low << (52 - fraction);
    }
    wide |= sign;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/*  Rounds to f8_e5m2: as to f16, but infinity becomes the largest number. */
static uint32_t ignis__round_e5m2(double value)
{
    uint32_t bits = ignis__round_double(value, 2, 5);
    return (bits & 0x7F) == 0x7C ? bits - 1 : bits;
}

/*  Rounds to f8_e4m3: with 5 bits of exponent, a number 256 times smaller. Its last pattern is a NaN instead of a
    number. */
static uint32_t ignis__round_e4m3(double value)
{
    uint32_t wide = ignis__round_double(value / 256, 3, 5), size = wide & 0xFF, sign = wide >> 1 & 0x80;
    return value != value ? 0x7F : sign | (size < 0x7E ? size : 0x7E);
}

static double ignis__widen_e4m3(uint32_t bits)
{
    uint32_t size = bits & 0x7F;
    return ignis__widen_float((bits & 0x80) << 1 | (size == 0x7F ? 0xFF : size), 3, 5) * 256;
}

/*  Converts to a double that rounds to every shorter type as the integer would: bits that a double cannot hold set
    its last bit. */
static double ignis__widen_int(int64_t value)
{
    const int64_t low = 0x7FF;
    if (value > -((int64_t)1 << 53) && value < (int64_t)1 << 53)
        return (double)value;
    return (double)((value & ~low) | (value & low ? low + 1 : 0));
}

/*  Checks by its bits that a number is neither NaN nor infinite: so the result is right even if the compiler assumes
    that there are none. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__is_finite(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits >> 52 & 0x7FF) != 0x7FF;
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__is_nan(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits << 1 > (uint64_t)0x7FF << 53;
}

static int64_t ignis__double_to_int(double value, int64_t lowest, int64_t highest)
{
    if (value != value)
        return 0;
    if (value >= (double)highest) /* for 2^63 - 1 that is 2^63, which is as well the first that does not fit */
        return highest;
    return value <= (double)lowest ? lowest : (int64_t)value;
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE int64_t ignis__ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }

IGNIS__ONE_COPY IGNIS__PRIVATE int64_t ignis__clamp(int64_t value, int64_t lowest, int64_t highest)
{
    return value < lowest ? lowest : value > highest ? highest : value;
}

IGNIS__PRIVATE bool ignis__dtype_is_int(ignis_dtype dtype) { return dtype >= IGNIS_I32 && dtype <= IGNIS_U8; }

IGNIS__PRIVATE bool ignis__dtype_is_f8(ignis_dtype dtype) { return dtype == IGNIS_F8_E4M3 || dtype == IGNIS_F8_E5M2; }

/*  An element during conversion. */
typedef union ignis__wide {
    double f;
    int64_t i;
} ignis__wide;

#define IGNIS__FOR_EACH(type, statement)                    \
    for (i = 0; i < count; i++) {                           \
        type x;                                             \
        memcpy(&x, from + i * (int64_t)sizeof x, sizeof x); \
        statement;                                          \
    }                                                       \
    break;

static void ignis__load_wide(ignis__wide *to, const char *from, ignis_dtype dtype, int64_t count)
{
    int64_t i;
    switch (dtype) {
    case IGNIS_F16: IGNIS__FOR_EACH(uint16_t, to[i].f = ignis__widen_float(x, 10, 5))
    case IGNIS_BF16: IGNIS__FOR_EACH(uint16_t, to[i].f = ignis__widen_float(x, 7, 8))
    case IGNIS_F32: IGNIS__FOR_EACH(float, to[i].f = (double)x)
    case IGNIS_F64: IGNIS__FOR_EACH(double, to[i].f = x)
    case IGNIS_I32: IGNIS__FOR_EACH(int32_t, to[i].i = x)
    case IGNIS_I64: IGNIS__FOR_EACH(int64_t, to[i].i = x)
    case IGNIS_F8_E4M3: IGNIS__FOR_EACH(uint8_t, to[i].f = ignis__widen_e4m3(x))
    case IGNIS_F8_E5M2: IGNIS__FOR_EACH(uint8_t, to[i].f = ignis__widen_float(x, 2, 5))
    default: IGNIS__FOR_EACH(uint8_t, to[i].i = x)
    }
}
#undef IGNIS__FOR_EACH

#define IGNIS__FOR_EACH(type, expression)                 \
    for (i = 0; i < count; i++) {                         \
        type x = (type)(expression);                      \
        memcpy(to + i * (int64_t)sizeof x, &x, sizeof x); \
    }                                                     \
    break;

static void ignis__store_wide(char *to, const ignis__wide *from, ignis_dtype dtype, int64_t count)
{
    int64_t i;
    switch (dtype) {
    case IGNIS_F16: IGNIS__FOR_EACH(uint16_t, ignis__round_double(from[i].f, 10, 5))
    case IGNIS_BF16: IGNIS__FOR_EACH(uint16_t, ignis__round_double(from[i].f, 7, 8))
    case IGNIS_F32: IGNIS__FOR_EACH(float, from[i].f)
    case IGNIS_F64: IGNIS__FOR_EACH(double, from[i].f)
    case IGNIS_I32: IGNIS__FOR_EACH(int32_t, ignis__clamp(from[i].i, INT32_MIN, INT32_MAX))
    case IGNIS_I64: IGNIS__FOR_EACH(int64_t, from[i].i)
    case IGNIS_F8_E4M3: IGNIS__FOR_EACH(uint8_t, ignis__round_e4m3(from[i].f))
    case IGNIS_F8_E5M2: IGNIS__FOR_EACH(uint8_t, ignis__round_e5m2(from[i].f))
    default: IGNIS__FOR_EACH(uint8_t, ignis__clamp(from[i].i, 0, UINT8_MAX))
    }
}
#undef IGNIS__FOR_EACH

/*  Converts f32 to bf16 as the general way does, in a sixth of the time: opening a model converts billions. */
static void ignis__convert_f32_to_bf16(char *to, const char *from, int64_t count)
{
    int64_t i;
    for (i = 0; i < count; i++) {
        uint32_t bits;
        uint16_t narrow;
        memcpy(&bits, from + 4 * i, sizeof bits);
        if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
            narrow = (uint16_t)((bits >> 16 & 0x8000u) | 0x7FC0u); /* NaN */
        else
            narrow = (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16); /* to the nearest, ties to even */
        memcpy(to + 2 * i, &narrow, sizeof narrow);
    }
}

static void ignis__convert_bf16_to_f32(char *to, const char *from, int64_t count)
{
    int64_t i;
    for (i = 0; i < count; i++) {
        uint16_t narrow;
        uint32_t bits;
        memcpy(&narrow, from + 2 * i, sizeof narrow);
        bits = (uint32_t)narrow << 16;
        bits |= (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x400000u : 0; /* NaN becomes quiet */
        memcpy(to + 4 * i, &bits, sizeof bits);
    }
}

IGNIS__PRIVATE void ignis__convert(void *to, ignis_dtype to_dtype, const void *from, ignis_dtype from_dtype,
                                   int64_t count)
{
    ignis__wide wide[256];
    int64_t done, part, i;
    bool from_int = ignis__dtype_is_int(from_dtype), to_int = ignis__dtype_is_int(to_dtype);
    if (from_dtype == IGNIS_F32 && to_dtype == IGNIS_BF16) {
        ignis__convert_f32_to_bf16((char *)to, (const char *)from, count);
        return;
    }
    if (from_dtype == IGNIS_BF16 && to_dtype == IGNIS_F32) {
        ignis__convert_bf16_to_f32((char *)to, (const char *)from, count);
        return;
    }
    for (done = 0; done < count; done += part) {
        part = count - done < IGNIS__COUNT(wide) ? count - done : IGNIS__COUNT(wide);
        ignis__load_wide(wide, (const char *)from + done * ignis__dtypes[from_dtype].size, from_dtype, part);
        if (from_int && to_dtype == IGNIS_F64)
            for (i = 0; i < part; i++)
                wide[i].f = (double)wide[i].i;
        else if (from_int && !to_int)
            for (i = 0; i < part; i++)
                wide[i].f = ignis__widen_int(wide[i].i);
        else if (!from_int && to_int)
            for (i = 0; i < part; i++)
                wide[i].i = ignis__double_to_int(wide[i].f, INT64_MIN, INT64_MAX);
        ignis__store_wide((char *)to + done * ignis__dtypes[to_dtype].size, wide, to_dtype, part);
    }
}

IGNIS__ONE_COPY IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__shape_same(const ignis_shape *a, const ignis_shape *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, sizeof a->dim[0] * (size_t)a->ndim) == 0;
}

IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__shape_copy(ignis_shape *to, const ignis_shape *from)
{
    memset(to, 0, sizeof *to); /* dimensions that do not count are 0, whatever the caller left there */
    to->ndim = from->ndim;
    memcpy(to->dim, from->dim, sizeof from->dim[0] * (size_t)from->ndim);
}
