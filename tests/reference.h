// SPDX-License-Identifier: MIT
/*  reference.h - what conversions and element-wise operations have to give, worked out a second way

    A value of any dtype is decoded to sign * m * 2^e with a 64-bit integer m, which holds all dtypes exactly, and
    encoded again with integer arithmetic alone. Nothing here depends on the host's floating-point unit or on Ignis' own
    conversions. A "bits" is an element's bit pattern in the low bits of a uint64_t. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct ref_format {
    const char *name;
    int bytes;
    int exponent, mantissa; /* bits of a floating type, 0 for an integer */
    int64_t low;            /* range of an integer type */
    uint64_t high;          /* of a floating type of 8 bits: the bits of the largest number, where it saturates */
} ref_format;

static const ref_format ref_formats[IGNIS_DTYPE_COUNT] = {
    {"default", 0, 0, 0, 0, 0},
    {"f16", 2, 5, 10, 0, 0},
    {"bf16", 2, 8, 7, 0, 0},
    {"f32", 4, 8, 23, 0, 0},
    {"f64", 8, 11, 52, 0, 0},
    {"i32", 4, 0, 0, INT32_MIN, INT32_MAX},
    {"i64", 8, 0, 0, INT64_MIN, INT64_MAX},
    {"u8", 1, 0, 0, 0, UINT8_MAX},
    {"f8_e4m3", 1, 4, 3, 0, 0x7E}, /* one NaN, and no infinity */
    {"f8_e5m2", 1, 5, 2, 0, 0x7B},
};

static const ignis_dtype ref_dtypes[9] = {IGNIS_F16, IGNIS_BF16, IGNIS_F32,     IGNIS_F64,    IGNIS_I32,
                                          IGNIS_I64, IGNIS_U8,   IGNIS_F8_E4M3, IGNIS_F8_E5M2};

#define REF_EACH_DTYPE(d) for (d = IGNIS_F16; d <= IGNIS_F8_E5M2; d = (ignis_dtype)(d + 1))

static inline size_t ref_size(ignis_dtype dtype) { return (size_t)ref_formats[dtype].bytes; }
static inline bool ref_is_float(ignis_dtype dtype) { return ref_formats[dtype].exponent != 0; }
static inline uint64_t ref_mask(int bits) { return bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1; }

static inline uint64_t ref_load(const void *data, ignis_dtype dtype, size_t index)
{
    uint64_t bits = 0;
    memcpy(&bits, (const char *)data + index * ref_size(dtype), ref_size(dtype));
    return bits;
}

static inline void ref_store(void *data, ignis_dtype dtype, size_t index, uint64_t bits)
{
    memcpy((char *)data + index * ref_size(dtype), &bits, ref_size(dtype));
}

typedef enum ref_kind { REF_FINITE, REF_INFINITE, REF_NAN } ref_kind;

typedef struct ref_value {
    ref_kind kind;
    bool negative;
    uint64_t m;
    int e;
} ref_value;

static inline ref_value ref_decode(ignis_dtype dtype, uint64_t bits)
{
    const ref_format *f = &ref_formats[dtype];
    ref_value v = {REF_FINITE, (bits >> (8 * f->bytes - 1) & 1) != 0, 0, 0};
    if (ref_is_float(dtype)) {
        int field = (int)(bits >> f->mantissa & ref_mask(f->exponent)), bias = (1 << (f->exponent - 1)) - 1;
        v.m = bits & ref_mask(f->mantissa);
        if (dtype == IGNIS_F8_E4M3 ? (bits & 0x7F) == 0x7F : field == (1 << f->exponent) - 1)
            v.kind = v.m ? REF_NAN : REF_INFINITE;
        if (field)
            v.m |= UINT64_C(1) << f->mantissa;
        v.e = (field ? field : 1) - bias - f->mantissa;
    } else {
        v.negative = v.negative && f->low < 0;
        v.m = v.negative ? (~bits + 1) & ref_mask(8 * f->bytes) : bits;
    }
    return v;
}

/*  m * 2^-shift, rounded to nearest, ties to even */
static inline uint64_t ref_round(uint64_t m, int shift)
{
    uint64_t whole, rest, half;
    if (shift <= 0)
        return m << -shift;
    if (shift > 64)
        return 0;
    whole = shift == 64 ? 0 : m >> shift;
    rest = m & ref_mask(shift);
    half = UINT64_C(1) << (shift - 1);
    return whole + (rest > half || (rest == half && (whole & 1)));
}

static inline uint64_t ref_encode_float(const ref_format *f, ref_value v)
{
    int bias = (1 << (f->exponent - 1)) - 1, top = 63, exponent;
    uint64_t bits, infinity = ref_mask(f->exponent) << f->mantissa, sign = (uint64_t)v.negative << (8 * f->bytes - 1);
    if (v.kind == REF_NAN)
        return f->high ? 0x7F : infinity | UINT64_C(1) << (f->mantissa - 1);
    if (f->high)
        infinity = f->high;
    if (v.kind == REF_INFINITE)
        return sign | infinity;
    if (v.m == 0)
        return sign;
    while (!(v.m >> top & 1))
        top--;
    exponent = v.e + top; /* 2^exponent <= |v| < 2^(exponent + 1) */
    if (exponent > bias + (f->exponent == 4))
        return sign | infinity;
    if (exponent < 1 - bias)
        exponent = 1 - bias; /* subnormal: the smallest normal's step */
    bits = ref_round(v.m, exponent - f->mantissa - v.e);
    bits += (uint64_t)(exponent + bias - 1)
            << f->mantissa; /* the implicit 1, or a carry, adds the missing exponent step */
    return sign | (bits < infinity ? bits : infinity);
}

static inline uint64_t ref_encode_integer(const ref_format *f, ref_value v)
{
    uint64_t limit = v.negative ? ~(uint64_t)f->low + 1 : f->high, m;
    if (v.kind == REF_NAN)
        return 0;
    if (v.kind == REF_INFINITE || (v.e > 0 && v.m && (v.e > 63 || v.m > limit >> v.e)))
        m = limit;
    else if (v.e > 0)
        m = v.m ? v.m << v.e : 0;
    else
        m = v.e > -64 ? v.m >> -v.e : 0;
    if (m > limit)
        m = limit;
    return (v.negative ? ~m + 1 : m) & ref_mask(8 * f->bytes);
}

/*  The bits of type `to` that a value of type `from` is converted to; a NaN gives some NaN. */
static inline uint64_t ref_convert(ignis_dtype to, ignis_dtype from, uint64_t bits)
{
    ref_value v = ref_decode(from, bits);
    if (to == from)
        return bits;
    return ref_is_float(to) ? ref_encode_float(&ref_formats[to], v) : ref_encode_integer(&ref_formats[to], v);
}

/*  Equal bits, or both NaN. */
static inline bool ref_same(ignis_dtype dtype, uint64_t a, uint64_t b)
{
    return a == b || (ref_decode(dtype, a).kind == REF_NAN && ref_decode(dtype, b).kind == REF_NAN);
}

static inline uint64_t ref_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}
static inline uint64_t ref_from_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

static inline float ref_to_float(ignis_dtype dtype, uint64_t bits)
{
    uint32_t word = (uint32_t)ref_convert(IGNIS_F32, dtype, bits);
    float value;
    memcpy(&value, &word, 4);
    return value;
}

static inline double ref_to_double(ignis_dtype dtype, uint64_t bits)
{
    uint64_t word = ref_convert(IGNIS_F64, dtype, bits);
    double value;
    memcpy(&value, &word, 8);
    return value;
}

static inline uint64_t ref_random(uint64_t *state) /* xorshift64 */
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/*  Values of a dtype that may be hard to convert: all of them for 8 and 16 bits; else, for each power of two, that plus
    a one or a three at every lower bit, and the neighbours of those, so that ties, near ties and the limits of every
    other dtype are among them; then the extremes, and random ones. The caller frees the array. */
static inline void *ref_hard_values(ignis_dtype dtype, size_t *count)
{
    enum { RANDOM = 5000 };
    const ref_format *f = &ref_formats[dtype];
    int width = 8 * f->bytes, low_bits, k, three, delta;
    uint64_t negative = ref_is_float(dtype) ? UINT64_C(1) << (width - 1) : 0, infinity = ref_mask(f->exponent)
                                                                                         << f->mantissa;
    uint64_t power, powers = ref_is_float(dtype) ? ref_mask(f->exponent) + 1 : (uint64_t)width - 1, base, x,
                    state = 88172645463325252u;
    size_t n = 0;
    char *values = (char *)malloc((size_t)1 << 23);
    if (!values)
        abort();
    if (width <= 16) {
        for (; n < (size_t)1 << width; n++)
            ref_store(values, dtype, n, n);
        *count = n;
        return values;
    }
    for (power = 0; power < powers; power++) {
        if (dtype == IGNIS_F64 && power > 1 && power < 2046 && (power < 1023 - 152 || power > 1023 + 130))
            continue; /* far from all limits */
        base = ref_is_float(dtype) ? power << f->mantissa : UINT64_C(1) << power;
        low_bits = ref_is_float(dtype) ? f->mantissa : (int)power + 1;
        for (k = 0; k < low_bits; k++)
            for (three = 0; three < 2; three++)
                for (delta = -1; delta <= 1; delta++) {
                    x = base + (UINT64_C(1) << k) + ((uint64_t)three << (k + 1)) + (uint64_t)(int64_t)delta;
                    ref_store(values, dtype, n++, x);
                    ref_store(values, dtype, n++, negative ? x | negative : ~x + 1);
                }
    }
    for (delta = -1; delta <= 1; delta++) {
        x = (uint64_t)(int64_t)delta;
        ref_store(values, dtype, n++, x); /* zero */
        ref_store(values, dtype, n++,
                  x + (UINT64_C(1) << (width - 1))); /* minus zero, or the smallest and the largest integer */
        ref_store(values, dtype, n++, x + infinity);
        ref_store(values, dtype, n++, x + (infinity | negative));
    }
    for (k = 0; k < RANDOM; k++)
        ref_store(values, dtype, n++, ref_random(&state));
    *count = n;
    return values;
}

#endif /* REFERENCE_H */
