// SPDX-License-Identifier: MIT
/*  shim_ptx.h - the inline PTX that the simulator knows

    The rewriter turns  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(d) : "f"(s))  into  sim_ptx_cvt_rn_f16_f32(d, s):
    the arguments are in the order in which the PTX text names them. The name loses modifiers without effect here
    (.ftz, .approx, .aligned, cache hints, .global, scopes). In loads, stores and moves .b32 replaces .u32, .s32 and
    .f32; see rewrite.c. An instruction that is missing here is a compile error that names it.
*/
#ifndef SIM_SHIM_PTX_H
#define SIM_SHIM_PTX_H

/* The operand in brackets: a generic or a shared-memory address. */
struct sim_address {
    unsigned long long value;
};
template <class T> SIM_DEVICE sim_address sim_address_of(T *p, long long offset)
{
    return sim_address{(unsigned long long)p + (unsigned long long)offset};
}
SIM_DEVICE sim_address sim_address_of(unsigned long long a, long long offset)
{
    return sim_address{a + (unsigned long long)offset};
}
/* Returns an output operand as the register type of its constraint. */
template <class Register, class T> SIM_DEVICE Register &sim_out(T &variable)
{
    static_assert(sizeof(Register) == sizeof(T), "the variable of an asm output operand has the wrong size");
    return (Register &)variable;
}

SIM_DEVICE char *sim_generic(sim_address a) { return (char *)a.value; }
SIM_DEVICE char *sim_shared(sim_address a) { return (char *)__cvta_shared_to_generic((size_t)a.value); }
SIM_QUIET void sim_wrote_shared(const void *p, unsigned bytes)
{
    if (sim_this_block.tracked)
        sim_rt->wrote_shared(p, bytes);
}
SIM_DEVICE void sim_wrote_generic(const void *, unsigned) {}

/* ------------------------------------------------------------------------------------- half and bfloat16 bits */

SIM_DEVICE unsigned short sim_float_to_bf16(float x)
{
    unsigned u = sim_bits<unsigned>(x);
    if (x != x)
        return 0x7fff;
    return (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
SIM_DEVICE float sim_bf16_to_float(unsigned short h) { return sim_bits<float>((unsigned)h << 16); }

#if defined(__F16C__)
typedef float sim_four_floats __attribute__((vector_size(16)));
typedef short sim_eight_shorts __attribute__((vector_size(16)));
SIM_DEVICE unsigned short sim_float_to_half(float x)
{
    if (x != x)
        return 0x7fff;
    return (unsigned short)((sim_eight_shorts)__builtin_ia32_vcvtps2ph((sim_four_floats){x, 0, 0, 0}, 0))[0];
}
SIM_DEVICE float sim_half_to_float(unsigned short h)
{
    return __builtin_ia32_vcvtph2ps((sim_eight_shorts){(short)h, 0, 0, 0, 0, 0, 0, 0})[0];
}
#else
SIM_DEVICE unsigned short sim_float_to_half(float x)
{
    unsigned u = sim_bits<unsigned>(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return 0x7fff;
    if (magnitude >= 0x477ff000)
        return (unsigned short)(sign | 0x7c00); /* rounds to infinity */
    if (magnitude < 0x38800000)                 /* subnormal: the sum's last bit is 2^-24 */
        return (unsigned short)(sign | (sim_bits<unsigned>(sim_bits<float>(magnitude) + 0.5f) - 0x3f000000));
    return (unsigned short)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}
SIM_DEVICE float sim_half_to_float(unsigned short h)
{
    unsigned sign = (unsigned)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    if (magnitude >= 0x7c00)
        return sim_bits<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude < 0x400)
        return (sign ? -1.0f : 1.0f) * (float)magnitude * 0x1p-24f;
    return sim_bits<float>(sign | ((magnitude << 13) + 0x38000000));
}
#endif

/* Rounds to odd. Rounding a double by way of a float would round twice; rounding to odd first makes that
   harmless. */
SIM_DEVICE float sim_round_to_odd(double x)
{
    float r = __double2float_rz(x);
    return (double)r == x || x != x ? r : sim_bits<float>(sim_bits<unsigned>(r) | 1);
}

/* ------------------------------------------------------------------------------------------------ conversions */

#define SIM_CVT(name, D, S, expression) \
    SIM_DEVICE void sim_ptx_cvt_##name(D &d, S s) { d = expression; }
SIM_CVT(rn_f16_f32, unsigned short, float, sim_float_to_half(s))
SIM_CVT(f32_f16, float, unsigned short, sim_half_to_float(s))
SIM_CVT(rn_bf16_f32, unsigned short, float, sim_float_to_bf16(s))
SIM_CVT(f32_bf16, float, unsigned short, sim_bf16_to_float(s))
SIM_CVT(rn_f16_f64, unsigned short, double, sim_float_to_half(sim_round_to_odd(s)))
SIM_CVT(rn_bf16_f64, unsigned short, double, sim_float_to_bf16(sim_round_to_odd(s)))
SIM_CVT(f64_f16, double, unsigned short, (double)sim_half_to_float(s))
SIM_CVT(f64_bf16, double, unsigned short, (double)sim_bf16_to_float(s))
SIM_CVT(f64_f32, double, float, (double)s)
SIM_CVT(rn_f32_f64, float, double, (float)s)
SIM_CVT(rz_f32_f64, float, double, __double2float_rz(s))
SIM_CVT(rna_tf32_f32, unsigned, float, s != s ? 0x7fffffffu : (sim_bits<unsigned>(s) + 0x1000u) & 0xffffe000u)

#define SIM_CVT_FROM_FLOAT(d_name, D, s_name, S)                              \
    SIM_CVT(rni_##d_name##_##s_name, D, S, sim_saturate<D>(rint((double)s)))  \
    SIM_CVT(rzi_##d_name##_##s_name, D, S, sim_saturate<D>((double)s))        \
    SIM_CVT(rmi_##d_name##_##s_name, D, S, sim_saturate<D>(floor((double)s))) \
    SIM_CVT(rpi_##d_name##_##s_name, D, S, sim_saturate<D>(ceil((double)s)))  \
    SIM_CVT(rn_##s_name##_##d_name, S, D, (S)s)
#define SIM_CVT_INTEGERS(s_name, S)               \
    SIM_CVT_FROM_FLOAT(s32, int, s_name, S)       \
    SIM_CVT_FROM_FLOAT(u32, unsigned, s_name, S)  \
    SIM_CVT_FROM_FLOAT(s64, long long, s_name, S) \
    SIM_CVT_FROM_FLOAT(u64, unsigned long long, s_name, S)
SIM_CVT_INTEGERS(f32, float)
SIM_CVT_INTEGERS(f64, double)
SIM_CVT(rni_f32_f32, float, float, rintf(s))
SIM_CVT(rzi_f32_f32, float, float, truncf(s))
SIM_CVT(rmi_f32_f32, float, float, floorf(s))
SIM_CVT(rpi_f32_f32, float, float, ceilf(s))
SIM_CVT(sat_f32_f32, float, float, __saturatef(s))
/* The constraint "=r" of a signed result arrives as unsigned. */
#define SIM_CVT_SIGNED(name, S)                          \
    SIM_DEVICE void sim_ptx_cvt_##name(unsigned &d, S s) \
    {                                                    \
        int v;                                           \
        sim_ptx_cvt_##name(v, s);                        \
        d = (unsigned)v;                                 \
    }
SIM_CVT_SIGNED(rni_s32_f32, float)
SIM_CVT_SIGNED(rzi_s32_f32, float)
SIM_CVT_SIGNED(rmi_s32_f32, float)
SIM_CVT_SIGNED(rpi_s32_f32, float)
SIM_CVT_SIGNED(rni_s32_f64, double)
SIM_CVT_SIGNED(rzi_s32_f64, double)

/* Two values in one register; the first source goes to the upper half. */
#define SIM_CVT_PAIR(name, convert)                                        \
    SIM_DEVICE void sim_ptx_cvt_##name(unsigned &d, float high, float low) \
    {                                                                      \
        d = (unsigned)convert(high) << 16 | convert(low);                  \
    }
SIM_CVT_PAIR(rn_bf16x2_f32, sim_float_to_bf16)
SIM_CVT_PAIR(rn_f16x2_f32, sim_float_to_half)
SIM_DEVICE float sim_relu(float x) { return x > 0 ? x : 0.0f; }
SIM_DEVICE void sim_ptx_cvt_rn_relu_bf16x2_f32(unsigned &d, float high, float low)
{
    sim_ptx_cvt_rn_bf16x2_f32(d, sim_relu(high), sim_relu(low));
}
SIM_DEVICE void sim_ptx_cvt_rn_relu_f16x2_f32(unsigned &d, float high, float low)
{
    sim_ptx_cvt_rn_f16x2_f32(d, sim_relu(high), sim_relu(low));
}

/* Converts to floats of 8 bits, two in 16 bits. Larger values become the largest; NaN remains. */
SIM_DEVICE unsigned sim_float_to_f8(float x, int fraction, float largest)
{
    int bias = (1 << (6 - fraction)) - 1, e = 0;
    double size = x != x ? 0 : fabs((double)x) > largest ? largest : fabs((double)x), steps;
    unsigned sign = sim_bits<unsigned>(x) >> 24 & 0x80;
    if (x != x)
        return 0x7f;
    frexp(size, &e);
    e = size == 0 || e - 1 < 1 - bias ? 1 - bias : e - 1;
    steps = rint(ldexp(size, fraction - e)); /* a hidden bit, or a carry, counts as an exponent */
    return sign | (((unsigned)(e + bias - 1) << fraction) + (unsigned)steps);
}
#define SIM_CVT_F8(name, fraction, largest)                                                                            \
    SIM_DEVICE void sim_ptx_cvt_rn_satfinite_##name##x2_f32(unsigned short &d, float high, float low)                  \
    {                                                                                                                  \
        d = (unsigned short)(sim_float_to_f8(high, fraction, largest) << 8 | sim_float_to_f8(low, fraction, largest)); \
    }
SIM_CVT_F8(e4m3, 3, 448.0f)
SIM_CVT_F8(e5m2, 2, 57344.0f)

/* ------------------------------------------------------------------------------------------------- arithmetic */

#define SIM_PTX1(name, T, expression) \
    SIM_DEVICE void sim_ptx_##name(T &d, T a) { d = expression; }
#define SIM_PTX2(name, T, expression) \
    SIM_DEVICE void sim_ptx_##name(T &d, T a, T b) { d = expression; }
#define SIM_PTX3(name, T, expression) \
    SIM_DEVICE void sim_ptx_##name(T &d, T a, T b, T c) { d = expression; }

SIM_PTX1(ex2_f32, float, exp2f(a))
SIM_PTX1(lg2_f32, float, log2f(a))
SIM_PTX1(tanh_f32, float, tanhf(a))
SIM_PTX1(rcp_f32, float, 1.0f / a)
SIM_PTX1(rcp_rn_f32, float, 1.0f / a)
SIM_PTX1(rcp_rn_f64, double, 1.0 / a)
SIM_PTX1(rsqrt_f32, float, rsqrtf(a))
SIM_PTX1(rsqrt_f64, double, rsqrt(a))
SIM_PTX1(sqrt_f32, float, sqrtf(a))
SIM_PTX1(sqrt_rn_f32, float, sqrtf(a))
SIM_PTX1(sqrt_rn_f64, double, sqrt(a))
SIM_PTX1(sin_f32, float, sinf(a))
SIM_PTX1(cos_f32, float, cosf(a))

/* The rounding of add, sub, mul and fma is to nearest when unnamed. */
#define SIM_PTX_FLOAT(rounding, type, T)       \
    SIM_PTX2(add##rounding##_##type, T, a + b) \
    SIM_PTX2(sub##rounding##_##type, T, a - b) \
    SIM_PTX2(mul##rounding##_##type, T, (a * b))
SIM_PTX_FLOAT(, f32, float)
SIM_PTX_FLOAT(_rn, f32, float)
SIM_PTX_FLOAT(, f64, double)
SIM_PTX_FLOAT(_rn, f64, double)
SIM_PTX2(div_f32, float, a / b)
SIM_PTX2(div_rn_f32, float, a / b)
SIM_PTX2(div_rn_f64, double, a / b)
SIM_PTX3(fma_rn_f32, float, fmaf(a, b, c))
SIM_PTX3(fma_rn_f64, double, fma(a, b, c))
#define SIM_PTX_SIGNS(type, T)         \
    SIM_PTX2(max_##type, T, max(a, b)) \
    SIM_PTX2(min_##type, T, min(a, b)) \
    SIM_PTX1(abs_##type, T, abs(a))    \
    SIM_PTX1(neg_##type, T, -a)
SIM_PTX_SIGNS(f32, float)
SIM_PTX_SIGNS(f64, double)
SIM_PTX2(max_NaN_f32, float, a != a || b != b ? sim_bits<float>(0x7fffffffu) : fmaxf(a, b))
SIM_PTX2(min_NaN_f32, float, a != a || b != b ? sim_bits<float>(0x7fffffffu) : fminf(a, b))

#define SIM_PTX_INTEGER(U, T, name_u, name_s)     \
    SIM_PTX2(add_##name_u, U, a + b)              \
    SIM_PTX2(add_##name_s, U, a + b)              \
    SIM_PTX2(sub_##name_u, U, a - b)              \
    SIM_PTX2(sub_##name_s, U, a - b)              \
    SIM_PTX2(mul_lo_##name_u, U, (a * b))         \
    SIM_PTX2(mul_lo_##name_s, U, (a * b))         \
    SIM_PTX3(mad_lo_##name_u, U, (a * b) + c)     \
    SIM_PTX3(mad_lo_##name_s, U, (a * b) + c)     \
    SIM_PTX2(min_##name_u, U, min(a, b))          \
    SIM_PTX2(min_##name_s, U, (U)min((T)a, (T)b)) \
    SIM_PTX2(max_##name_u, U, max(a, b))          \
    SIM_PTX2(max_##name_s, U, (U)max((T)a, (T)b))
SIM_PTX_INTEGER(unsigned, int, u32, s32)
SIM_PTX_INTEGER(unsigned long long, long long, u64, s64)
SIM_PTX2(mul_hi_u32, unsigned, __umulhi(a, b))
SIM_PTX2(max_u16x2, unsigned, max(a & 0xffffu, b & 0xffffu) | max(a >> 16, b >> 16) << 16)
SIM_PTX2(and_b32, unsigned, (a & b))
SIM_PTX2(or_b32, unsigned, a | b)
SIM_PTX2(xor_b32, unsigned, a ^ b)
SIM_PTX2(shl_b32, unsigned, b > 31 ? 0 : a << b)
SIM_PTX2(shr_u32, unsigned, b > 31 ? 0 : a >> b)
SIM_PTX1(not_b32, unsigned, ~a)
SIM_PTX1(brev_b32, unsigned, __brev(a))
SIM_PTX1(popc_b32, unsigned, (unsigned)__popc(a))
SIM_PTX1(clz_b32, unsigned, (unsigned)__clz((int)a))
SIM_PTX3(prmt_b32, unsigned, __byte_perm(a, b, c))
SIM_PTX3(shf_l_wrap_b32, unsigned, __funnelshift_l(a, b, c))
SIM_PTX3(shf_r_wrap_b32, unsigned, __funnelshift_r(a, b, c))
SIM_PTX3(bfe_u32, unsigned, c == 0 || b > 31 ? 0 : a >> b & (c > 31 ? ~0u : (1u << c) - 1))
SIM_DEVICE void sim_ptx_lop3_b32(unsigned &d, unsigned a, unsigned b, unsigned c, int table)
{
    d = 0;
    for (int i = 0; i < 8; i++)
        if (table >> i & 1)
            d |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
}

/* 16-bit floating point, alone (.f16, .bf16) and in pairs (.f16x2, .bf16x2): computed in float, rounded once. */
#define SIM_PTX_HALF2(name, type, to, from, expression)                                              \
    SIM_DEVICE void sim_ptx_##name##_##type(unsigned short &d, unsigned short a_, unsigned short b_) \
    {                                                                                                \
        float a = from(a_), b = from(b_);                                                            \
        d = to(expression);                                                                          \
    }                                                                                                \
    SIM_DEVICE void sim_ptx_##name##_##type##x2(unsigned &d, unsigned a, unsigned b)                 \
    {                                                                                                \
        unsigned short low, high;                                                                    \
        sim_ptx_##name##_##type(low, (unsigned short)a, (unsigned short)b);                          \
        sim_ptx_##name##_##type(high, (unsigned short)(a >> 16), (unsigned short)(b >> 16));         \
        d = (unsigned)high << 16 | low;                                                              \
    }
#define SIM_PTX_HALF(type, to, from)                                                                                  \
    SIM_PTX_HALF2(add, type, to, from, a + b)                                                                         \
    SIM_PTX_HALF2(add_rn, type, to, from, a + b)                                                                      \
    SIM_PTX_HALF2(sub, type, to, from, a - b)                                                                         \
    SIM_PTX_HALF2(sub_rn, type, to, from, a - b)                                                                      \
    SIM_PTX_HALF2(mul, type, to, from, (a * b))                                                                       \
    SIM_PTX_HALF2(mul_rn, type, to, from, (a * b))                                                                    \
    SIM_PTX_HALF2(max, type, to, from, fmaxf(a, b))                                                                   \
    SIM_PTX_HALF2(max_NaN, type, to, from, a != a || b != b ? sim_bits<float>(0x7fffffffu) : fmaxf(a, b))             \
    SIM_PTX_HALF2(min, type, to, from, fminf(a, b))                                                                   \
    SIM_DEVICE void sim_ptx_fma_rn_##type(unsigned short &d, unsigned short a, unsigned short b, unsigned short c)    \
    {                                                                                                                 \
        d = to(sim_round_to_odd((double)from(a) * from(b) + (double)from(c)));                                        \
    }                                                                                                                 \
    SIM_DEVICE void sim_ptx_fma_rn_##type##x2(unsigned &d, unsigned a, unsigned b, unsigned c)                        \
    {                                                                                                                 \
        unsigned short low, high;                                                                                     \
        sim_ptx_fma_rn_##type(low, (unsigned short)a, (unsigned short)b, (unsigned short)c);                          \
        sim_ptx_fma_rn_##type(high, (unsigned short)(a >> 16), (unsigned short)(b >> 16), (unsigned short)(c >> 16)); \
        d = (unsigned)high << 16 | low;                                                                               \
    }
SIM_PTX_HALF(f16, sim_float_to_half, sim_half_to_float)
SIM_PTX_HALF(bf16, sim_float_to_bf16, sim_bf16_to_float)

/* ------------------------------------------------------------------------------------------------------ moves */

template <class D, class S> SIM_DEVICE void sim_ptx_mov_b32(D &d, S s) { d = sim_bits<D>(s); }
template <class D, class S> SIM_DEVICE void sim_ptx_mov_b64(D &d, S s) { d = sim_bits<D>(s); }
template <class D, class S> SIM_DEVICE void sim_ptx_mov_b16(D &d, S s) { d = sim_bits<D>(s); }
SIM_DEVICE void sim_ptx_mov_b32(unsigned &d, int s) { d = (unsigned)s; }
SIM_DEVICE void sim_ptx_mov_b64(unsigned long long &d, int s) { d = (unsigned long long)(long long)s; }
SIM_DEVICE void sim_ptx_mov_b32(unsigned &d, unsigned short low, unsigned short high)
{
    d = (unsigned)high << 16 | low;
}
SIM_DEVICE void sim_ptx_mov_b32(unsigned short &low, unsigned short &high, unsigned s)
{
    low = (unsigned short)s;
    high = (unsigned short)(s >> 16);
}
SIM_DEVICE void sim_ptx_mov_b64(unsigned long long &d, unsigned low, unsigned high)
{
    d = (unsigned long long)high << 32 | low;
}
SIM_DEVICE void sim_ptx_mov_b64(unsigned &low, unsigned &high, unsigned long long s)
{
    low = (unsigned)s;
    high = (unsigned)(s >> 32);
}
SIM_DEVICE void sim_ptx_cvta_to_shared_u64(unsigned long long &d, unsigned long long s)
{
    d = __cvta_generic_to_shared((const void *)s);
}
SIM_DEVICE void sim_ptx_cvta_to_u64(unsigned long long &d, unsigned long long s) { d = s; }
SIM_DEVICE void sim_ptx_cvta_shared_u64(unsigned long long &d, unsigned long long s)
{
    d = (unsigned long long)__cvta_shared_to_generic((size_t)s);
}

SIM_DEVICE unsigned sim_register_laneid() { return sim_lane(); }
SIM_DEVICE unsigned sim_register_warpid() { return sim_linear_thread() / SIM_WARP; }
SIM_DEVICE unsigned sim_register_smid() { return sim_processor(); }
SIM_DEVICE unsigned sim_register_clock() { return (unsigned)clock64(); }
SIM_DEVICE unsigned long long sim_register_clock64() { return (unsigned long long)clock64(); }
SIM_DEVICE unsigned long long sim_register_globaltimer() { return __globaltimer(); }
SIM_DEVICE unsigned sim_register_lanemask_lt() { return (1u << sim_lane()) - 1; }
SIM_DEVICE unsigned sim_register_lanemask_le() { return (2u << sim_lane()) - 1; }
#define SIM_REGISTER_3(name, value)                                   \
    SIM_DEVICE unsigned sim_register_##name##_x() { return value.x; } \
    SIM_DEVICE unsigned sim_register_##name##_y() { return value.y; } \
    SIM_DEVICE unsigned sim_register_##name##_z() { return value.z; }
SIM_REGISTER_3(tid, threadIdx)
SIM_REGISTER_3(ntid, blockDim)
SIM_REGISTER_3(ctaid, blockIdx)
SIM_REGISTER_3(nctaid, gridDim)

/* ------------------------------------------------------------------------------------------- loads and stores */

/* Checks the alignment of a vector access. A GPU faults if it is not aligned to its size; x86 often does not. */
template <class Register, int N> struct alignas(sizeof(Register) * N) sim_pack {
    Register v[N];
};
template <class Register, int N> SIM_DEVICE sim_pack<Register, N> *sim_pack_at(char *p, sim_place at)
{
    if ((size_t)p % (sizeof(Register) * N))
        sim_fail(716, "misaligned address in inline PTX", at);
    return (sim_pack<Register, N> *)p;
}

#define SIM_PTX_MEMORY(space, where, wrote, type, Register)                                                         \
    template <class R> SIM_DEVICE void sim_ptx_ld##space##_##type(R &d, sim_address a, SIM_AT)                      \
    {                                                                                                               \
        d = sim_bits<R>(sim_pack_at<Register, 1>(where(a), SIM_HERE)->v[0]);                                        \
    }                                                                                                               \
    template <class R> SIM_DEVICE void sim_ptx_ld##space##_v2_##type(R &d0, R &d1, sim_address a, SIM_AT)           \
    {                                                                                                               \
        sim_pack<Register, 2> p = *sim_pack_at<Register, 2>(where(a), SIM_HERE);                                    \
        d0 = sim_bits<R>(p.v[0]);                                                                                   \
        d1 = sim_bits<R>(p.v[1]);                                                                                   \
    }                                                                                                               \
    template <class R>                                                                                              \
    SIM_DEVICE void sim_ptx_ld##space##_v4_##type(R &d0, R &d1, R &d2, R &d3, sim_address a, SIM_AT)                \
    {                                                                                                               \
        sim_pack<Register, 4> p = *sim_pack_at<Register, 4>(where(a), SIM_HERE);                                    \
        d0 = sim_bits<R>(p.v[0]);                                                                                   \
        d1 = sim_bits<R>(p.v[1]);                                                                                   \
        d2 = sim_bits<R>(p.v[2]);                                                                                   \
        d3 = sim_bits<R>(p.v[3]);                                                                                   \
    }                                                                                                               \
    template <class R> SIM_DEVICE void sim_ptx_st##space##_##type(sim_address a, R s, SIM_AT)                       \
    {                                                                                                               \
        sim_pack_at<Register, 1>(where(a), SIM_HERE)->v[0] = sim_bits<Register>(s);                                 \
        wrote(where(a), sizeof(Register));                                                                          \
    }                                                                                                               \
    template <class R> SIM_DEVICE void sim_ptx_st##space##_v2_##type(sim_address a, R s0, R s1, SIM_AT)             \
    {                                                                                                               \
        *sim_pack_at<Register, 2>(where(a), SIM_HERE) =                                                             \
            sim_pack<Register, 2>{{sim_bits<Register>(s0), sim_bits<Register>(s1)}};                                \
        wrote(where(a), 2 * sizeof(Register));                                                                      \
    }                                                                                                               \
    template <class R> SIM_DEVICE void sim_ptx_st##space##_v4_##type(sim_address a, R s0, R s1, R s2, R s3, SIM_AT) \
    {                                                                                                               \
        *sim_pack_at<Register, 4>(where(a), SIM_HERE) = sim_pack<Register, 4>{                                      \
            {sim_bits<Register>(s0), sim_bits<Register>(s1), sim_bits<Register>(s2), sim_bits<Register>(s3)}};      \
        wrote(where(a), 4 * sizeof(Register));                                                                      \
    }
#define SIM_PTX_SPACE(space, where, wrote)                                                                            \
    SIM_PTX_MEMORY(space, where, wrote, b16, unsigned short)                                                          \
    SIM_PTX_MEMORY(space, where, wrote, b32, unsigned)                                                                \
    SIM_PTX_MEMORY(space, where, wrote, b64, unsigned long long)                                                      \
    template <class R> SIM_DEVICE void sim_ptx_ld##space##_u8(R &d, sim_address a)                                    \
    {                                                                                                                 \
        d = (R)(unsigned char)*where(a);                                                                              \
    }                                                                                                                 \
    template <class R> SIM_DEVICE void sim_ptx_ld##space##_s8(R &d, sim_address a) { d = (R)(signed char)*where(a); } \
    template <class R> SIM_DEVICE void sim_ptx_st##space##_u8(sim_address a, R s)                                     \
    {                                                                                                                 \
        *where(a) = (char)s;                                                                                          \
        wrote(where(a), 1);                                                                                           \
    }
SIM_PTX_SPACE(, sim_generic, sim_wrote_generic)
SIM_PTX_SPACE(_shared, sim_shared, sim_wrote_shared)

/* Loads and stores that other devices and processes may see. A load in a loop that waits for a peer's store lets the
   peer run. Up to 8 bytes are one atomic access, 16 are two; a GPU guarantees no more. */
template <class Word> SIM_DEVICE Word sim_load_ordered(sim_address a, sim_place at)
{
    Word *p = (Word *)sim_pack_at<Word, 1>(sim_generic(a), at);
    Word value = __atomic_load_n(p, __ATOMIC_ACQUIRE);
    sim_poll(p, value);
    return value;
}
template <class Word> SIM_DEVICE void sim_store_ordered(sim_address a, Word value, sim_place at)
{
    __atomic_store_n((Word *)sim_pack_at<Word, 1>(sim_generic(a), at), value, __ATOMIC_RELEASE);
}
SIM_DEVICE unsigned long long sim_pair(unsigned low, unsigned high) { return (unsigned long long)high << 32 | low; }

#define SIM_PTX_ORDERED_LOAD(name, type, Register)                                             \
    template <class R> SIM_DEVICE void sim_ptx_ld_##name##_##type(R &d, sim_address a, SIM_AT) \
    {                                                                                          \
        d = sim_bits<R>(sim_load_ordered<Register>(a, SIM_HERE));                              \
    }
#define SIM_PTX_ORDERED_STORE(name, type, Register)                                           \
    template <class R> SIM_DEVICE void sim_ptx_st_##name##_##type(sim_address a, R s, SIM_AT) \
    {                                                                                         \
        sim_store_ordered<Register>(a, sim_bits<Register>(s), SIM_HERE);                      \
    }
/* The vector forms; they have no acquire or release. */
#define SIM_PTX_ORDERED_VECTORS(name)                                                                                 \
    template <class R> SIM_DEVICE void sim_ptx_ld_##name##_v2_b32(R &d0, R &d1, sim_address a, SIM_AT)                \
    {                                                                                                                 \
        unsigned long long v = sim_load_ordered<unsigned long long>(a, SIM_HERE);                                     \
        d0 = sim_bits<R>((unsigned)v);                                                                                \
        d1 = sim_bits<R>((unsigned)(v >> 32));                                                                        \
    }                                                                                                                 \
    template <class R> SIM_DEVICE void sim_ptx_ld_##name##_v2_b64(R &d0, R &d1, sim_address a, SIM_AT)                \
    {                                                                                                                 \
        sim_pack_at<unsigned long long, 2>(sim_generic(a), SIM_HERE);                                                 \
        d0 = sim_bits<R>(sim_load_ordered<unsigned long long>(a, SIM_HERE));                                          \
        d1 = sim_bits<R>(sim_load_ordered<unsigned long long>(sim_address{a.value + 8}, SIM_HERE));                   \
    }                                                                                                                 \
    template <class R> SIM_DEVICE void sim_ptx_ld_##name##_v4_b32(R &d0, R &d1, R &d2, R &d3, sim_address a, SIM_AT)  \
    {                                                                                                                 \
        unsigned long long v, w;                                                                                      \
        sim_ptx_ld_##name##_v2_b64(v, w, a, sim_file, sim_line);                                                      \
        d0 = sim_bits<R>((unsigned)v);                                                                                \
        d1 = sim_bits<R>((unsigned)(v >> 32));                                                                        \
        d2 = sim_bits<R>((unsigned)w);                                                                                \
        d3 = sim_bits<R>((unsigned)(w >> 32));                                                                        \
    }                                                                                                                 \
    template <class R> SIM_DEVICE void sim_ptx_st_##name##_v2_b32(sim_address a, R s0, R s1, SIM_AT)                  \
    {                                                                                                                 \
        sim_store_ordered<unsigned long long>(a, sim_pair(sim_bits<unsigned>(s0), sim_bits<unsigned>(s1)), SIM_HERE); \
    }                                                                                                                 \
    template <class R> SIM_DEVICE void sim_ptx_st_##name##_v2_b64(sim_address a, R s0, R s1, SIM_AT)                  \
    {                                                                                                                 \
        sim_pack_at<unsigned long long, 2>(sim_generic(a), SIM_HERE);                                                 \
        sim_store_ordered<unsigned long long>(a, sim_bits<unsigned long long>(s0), SIM_HERE);                         \
        sim_store_ordered<unsigned long long>(sim_address{a.value + 8}, sim_bits<unsigned long long>(s1), SIM_HERE);  \
    }                                                                                                                 \
    template <class R> SIM_DEVICE void sim_ptx_st_##name##_v4_b32(sim_address a, R s0, R s1, R s2, R s3, SIM_AT)      \
    {                                                                                                                 \
        sim_ptx_st_##name##_v2_b64(a, sim_pair(sim_bits<unsigned>(s0), sim_bits<unsigned>(s1)),                       \
                                   sim_pair(sim_bits<unsigned>(s2), sim_bits<unsigned>(s3)), sim_file, sim_line);     \
    }
#define SIM_PTX_ORDERED(type, Register)             \
    SIM_PTX_ORDERED_LOAD(acquire, type, Register)   \
    SIM_PTX_ORDERED_LOAD(volatile, type, Register)  \
    SIM_PTX_ORDERED_LOAD(relaxed, type, Register)   \
    SIM_PTX_ORDERED_STORE(release, type, Register)  \
    SIM_PTX_ORDERED_STORE(volatile, type, Register) \
    SIM_PTX_ORDERED_STORE(relaxed, type, Register)
SIM_PTX_ORDERED(b32, unsigned)
SIM_PTX_ORDERED(b64, unsigned long long)
SIM_PTX_ORDERED_VECTORS(volatile)
SIM_PTX_ORDERED_VECTORS(relaxed)

#define SIM_PTX_ATOMIC(name, type, T, function)                                                           \
    SIM_DEVICE void sim_ptx_red_##name##_##type(sim_address a, T v) { function((T *)sim_generic(a), v); } \
    SIM_DEVICE void sim_ptx_atom_##name##_##type(T &d, sim_address a, T v) { d = function((T *)sim_generic(a), v); }
SIM_PTX_ATOMIC(add, u32, unsigned, atomicAdd)
SIM_PTX_ATOMIC(add, s32, unsigned, atomicAdd)
SIM_PTX_ATOMIC(add, u64, unsigned long long, atomicAdd)
SIM_PTX_ATOMIC(add, f32, float, atomicAdd)
SIM_PTX_ATOMIC(add, f64, double, atomicAdd)
SIM_PTX_ATOMIC(min, u32, unsigned, atomicMin)
SIM_PTX_ATOMIC(max, u32, unsigned, atomicMax)
SIM_PTX_ATOMIC(and, b32, unsigned, atomicAnd)
SIM_PTX_ATOMIC(or, b32, unsigned, atomicOr)
SIM_PTX_ATOMIC(xor, b32, unsigned, atomicXor)
SIM_PTX_ATOMIC(exch, b32, unsigned, atomicExch)
SIM_PTX_ATOMIC(exch, b64, unsigned long long, atomicExch)
SIM_DEVICE void sim_ptx_atom_cas_b32(unsigned &d, sim_address a, unsigned expected, unsigned v)
{
    d = atomicCAS((unsigned *)sim_generic(a), expected, v);
}
SIM_DEVICE void sim_ptx_atom_cas_b64(unsigned long long &d, sim_address a, unsigned long long expected,
                                     unsigned long long v)
{
    d = atomicCAS((unsigned long long *)sim_generic(a), expected, v);
}
SIM_DEVICE void sim_ptx_red_add_v2_f32(sim_address a, float x, float y)
{
    atomicAdd((float2 *)sim_generic(a), make_float2(x, y));
}
SIM_DEVICE void sim_ptx_red_add_v4_f32(sim_address a, float x, float y, float z, float w)
{
    atomicAdd((float4 *)sim_generic(a), make_float4(x, y, z, w));
}

/* ------------------------------------------------------------------------- fences, barriers, hints, control */

SIM_DEVICE void sim_ptx_fence_acq_rel() { __threadfence(); }
SIM_DEVICE void sim_ptx_fence_sc() { __threadfence_system(); }
SIM_DEVICE void sim_ptx_membar_gl() { __threadfence(); }
SIM_DEVICE void sim_ptx_membar() { __threadfence_system(); } /* .sys, .cta */
SIM_DEVICE void sim_ptx_prefetch(sim_address) {}
SIM_DEVICE void sim_ptx_prefetchu(sim_address) {}
SIM_DEVICE void sim_ptx_griddepcontrol_wait() { sim_rt->waited(); }
SIM_DEVICE void sim_ptx_griddepcontrol_launch_dependents() {}
SIM_DEVICE void sim_ptx_nanosleep_u32(unsigned ns) { __nanosleep(ns); }
SIM_DEVICE void sim_ptx_trap(SIM_AT) { sim_fail(719, "trap", SIM_HERE); }

SIM_DEVICE void sim_ptx_bar_sync(unsigned id, SIM_AT) { sim_barrier(id, 0, SIM_BARRIER_SYNC, 0, SIM_HERE); }
SIM_DEVICE void sim_ptx_bar_sync(unsigned id, unsigned threads, SIM_AT)
{
    sim_barrier(id, threads, SIM_BARRIER_SYNC, 0, SIM_HERE);
}
SIM_DEVICE void sim_ptx_bar_arrive(unsigned id, unsigned threads, SIM_AT) { sim_rt->arrive(id, threads, SIM_HERE); }
SIM_DEVICE void sim_ptx_bar_warp_sync(unsigned mask, SIM_AT) { __syncwarp(mask, sim_file, sim_line); }
SIM_DEVICE void sim_ptx_activemask_b32(unsigned &d) { d = __activemask(); }
SIM_DEVICE void sim_ptx_redux_sync_add_u32(unsigned &d, unsigned v, unsigned mask, SIM_AT)
{
    d = __reduce_add_sync(mask, v, sim_file, sim_line);
}

/* --------------------------------------------------------------------------------------------------- cp.async */

/* Issues a copy. The source is read now, where a sanitizer can name the line. The destination is written by
   the wait of the kernel, so a missing wait shows. Bytes after `valid` are zero. */
SIM_DEVICE void sim_ptx_cp_async_shared(sim_address to, sim_address from, unsigned bytes, unsigned valid, SIM_AT)
{
    if (to.value % bytes || from.value % bytes)
        sim_fail(716, "misaligned address in cp.async", SIM_HERE);
    sim_copies *c = sim_rt->copies(1);
    sim_copy *copy = &c->items[c->count++];
    copy->to = sim_shared(to);
    copy->bytes = bytes;
    copy->group = c->group;
    for (unsigned i = 0; i < bytes; i++)
        copy->data[i] = 0;
    if (valid == 16)
        *(uint4 *)copy->data = *(const uint4 *)sim_generic(from);
    else
        for (unsigned i = 0; i < valid; i++)
            copy->data[i] = (unsigned char)sim_generic(from)[i];
}
SIM_DEVICE void sim_ptx_cp_async_shared(sim_address to, sim_address from, unsigned bytes, SIM_AT)
{
    sim_ptx_cp_async_shared(to, from, bytes, bytes, sim_file, sim_line);
}
SIM_DEVICE void sim_ptx_cp_async_commit_group() { sim_rt->copies(0)->group++; }

/* Finishes every group but the `pending` youngest. */
SIM_DEVICE void sim_finish_copies(unsigned first_pending)
{
    sim_copies *c = sim_rt->copies(0);
    unsigned kept = 0;
    for (unsigned i = 0; i < c->count; i++) {
        sim_copy *copy = &c->items[i];
        if (copy->group >= first_pending) {
            c->items[kept++] = *copy;
            continue;
        }
        if (copy->bytes == 16)
            *(uint4 *)copy->to = *(uint4 *)copy->data;
        else
            for (unsigned k = 0; k < copy->bytes; k++)
                ((unsigned char *)copy->to)[k] = copy->data[k];
        sim_wrote_shared(copy->to, copy->bytes);
    }
    c->count = kept;
}
SIM_DEVICE void sim_ptx_cp_async_wait_group(unsigned pending)
{
    unsigned group = sim_rt->copies(0)->group;
    sim_finish_copies(group > pending ? group - pending : 0);
}
SIM_DEVICE void sim_ptx_cp_async_wait_all() { sim_finish_copies(~0u); }

/* --------------------------------------------------------------------------------------------------- ldmatrix */

/* Loads matrices. Each lane reads the row at its own address itself: so the sanitizers see which thread
   reads. */
struct sim_matrix_record {
    uint4 row;
    unsigned out[4];
    int count, transposed;
};

SIM_QUIET unsigned sim_row_word(void *const *records, int row, int word)
{
    const unsigned *words = &((sim_matrix_record *)records[row])->row.x;
    return words[word];
}

SIM_QUIET void sim_matrix_combine(void *const *records, unsigned lanes)
{
    for (unsigned left = lanes; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        sim_matrix_record *r = (sim_matrix_record *)records[lane];
        for (int m = 0; m < r->count; m++)
            if (r->transposed) {
                int row = 8 * m + 2 * (lane % 4), column = lane / 4, shift = 16 * (column % 2);
                unsigned low = sim_row_word(records, row, column / 2) >> shift & 0xffff;
                unsigned high = sim_row_word(records, row + 1, column / 2) >> shift & 0xffff;
                r->out[m] = high << 16 | low;
            } else
                r->out[m] = sim_row_word(records, 8 * m + lane / 4, lane % 4);
    }
}

SIM_QUIET void sim_matrix_exchange(uint4 row, int count, int transposed, unsigned *out, sim_place at)
{
    sim_matrix_record r = {row, {0, 0, 0, 0}, count, transposed};
    if (sim_rt->live_lanes() != 0xffffffffu)
        sim_fail(719, "ldmatrix in a warp that is not complete", at);
    sim_warp(0xffffffffu, sim_matrix_combine, &r, 0, "ldmatrix", at);
    for (int i = 0; i < count; i++)
        out[i] = r.out[i];
}

SIM_DEVICE void sim_load_matrix(int count, int transposed, unsigned *out, sim_address a, sim_place at)
{
    uint4 row = {0, 0, 0, 0};
    if (sim_lane() < 8 * (unsigned)count) {
        if (a.value % 16)
            sim_fail(716, "misaligned address in ldmatrix", at);
        row = *(const uint4 *)sim_shared(a);
    }
    sim_matrix_exchange(row, count, transposed, out, at);
}

#define SIM_LDMATRIX(suffix, transposed)                                                                        \
    SIM_DEVICE void sim_ptx_ldmatrix_sync_m8n8_x1##suffix##_shared_b16(unsigned &a, sim_address p, SIM_AT)      \
    {                                                                                                           \
        unsigned out[4];                                                                                        \
        sim_load_matrix(1, transposed, out, p, SIM_HERE);                                                       \
        a = out[0];                                                                                             \
    }                                                                                                           \
    SIM_DEVICE void sim_ptx_ldmatrix_sync_m8n8_x2##suffix##_shared_b16(unsigned &a, unsigned &b, sim_address p, \
                                                                       SIM_AT)                                  \
    {                                                                                                           \
        unsigned out[4];                                                                                        \
        sim_load_matrix(2, transposed, out, p, SIM_HERE);                                                       \
        a = out[0];                                                                                             \
        b = out[1];                                                                                             \
    }                                                                                                           \
    SIM_DEVICE void sim_ptx_ldmatrix_sync_m8n8_x4##suffix##_shared_b16(unsigned &a, unsigned &b, unsigned &c,   \
                                                                       unsigned &d, sim_address p, SIM_AT)      \
    {                                                                                                           \
        unsigned out[4];                                                                                        \
        sim_load_matrix(4, transposed, out, p, SIM_HERE);                                                       \
        a = out[0];                                                                                             \
        b = out[1];                                                                                             \
        c = out[2];                                                                                             \
        d = out[3];                                                                                             \
    }
SIM_LDMATRIX(, 0)
SIM_LDMATRIX(_trans, 1)

/* -------------------------------------------------------------------------------------------------------- mma */

enum sim_element { SIM_BF16, SIM_F16, SIM_TF32, SIM_E4M3, SIM_E5M2 };

struct sim_mma_record {
    unsigned a[4], b[2];
    float c[4];
    sim_element element;
    int k;
};

/* Returns element i of a register. Elements of 16 and 8 bits are two and four in one, the lower index in the
   lower bits. */
SIM_DEVICE float sim_mma_element(unsigned word, int i, sim_element element)
{
    if (element == SIM_TF32)
        return sim_bits<float>(word & 0xffffe000u);
    if (element == SIM_E4M3) {
        unsigned b = word >> 8 * i & 255, e = b >> 3 & 15, m = b & 7;
        float x = (b & 127) == 127 ? sim_bits<float>(0x7fffffffu)
                  : e              ? sim_bits<float>((e + 120) << 23 | m << 20)
                                   : (float)m / 512;
        return b & 128 ? -x : x;
    }
    if (element == SIM_E5M2) /* the upper half of 16 bits */
        return sim_half_to_float((unsigned short)((word >> 8 * i & 255) << 8));
    unsigned short h = (unsigned short)(word >> 16 * i);
    return element == SIM_BF16 ? sim_bf16_to_float(h) : sim_half_to_float(h);
}

/* Computes D = A B + C for A 16 x k, B k x 8. A lane has, with row g = lane / 4 and column block t = lane %
   4: of A rows g and g + 8, of B column g, of C and D rows g and g + 8, columns 2t and 2t + 1. */
SIM_QUIET void sim_mma_combine(void *const *records, unsigned)
{
    float a[16][32], b[32][8], c[16][8];
    const sim_mma_record *first = (const sim_mma_record *)records[0];
    int k = first->k, per_word = first->element == SIM_TF32 ? 1 : first->element >= SIM_E4M3 ? 4 : 2;
    int step = 4 * per_word; /* columns of A that one register of all lanes spans */
    for (int lane = 0; lane < 32; lane++) {
        const sim_mma_record *r = (const sim_mma_record *)records[lane];
        int g = lane / 4, t = lane % 4;
        for (int block = 0; block * step < k; block++)
            for (int e = 0; e < per_word; e++) {
                int column = block * step + t * per_word + e;
                a[g][column] = sim_mma_element(r->a[2 * block], e, r->element);
                a[g + 8][column] = sim_mma_element(r->a[2 * block + 1], e, r->element);
                b[column][g] = sim_mma_element(r->b[block], e, r->element);
            }
        for (int e = 0; e < 4; e++)
            c[g + 8 * (e / 2)][2 * t + e % 2] = r->c[e];
    }
    for (int row = 0; row < 16; row++)
        for (int i = 0; i < k; i++)
            for (int column = 0; column < 8; column++)
                c[row][column] += a[row][i] * b[i][column];
    for (int lane = 0; lane < 32; lane++)
        for (int e = 0; e < 4; e++)
            ((sim_mma_record *)records[lane])->c[e] = c[lane / 4 + 8 * (e / 2)][2 * (lane % 4) + e % 2];
}

SIM_QUIET void sim_mma(sim_mma_record r, float *d, sim_place at)
{
    if (sim_rt->live_lanes() != 0xffffffffu)
        sim_fail(719, "mma in a warp that is not complete", at);
    sim_warp(0xffffffffu, sim_mma_combine, &r, 0, "mma", at);
    for (int i = 0; i < 4; i++)
        d[i] = r.c[i];
}

#define SIM_D4 float &d0, float &d1, float &d2, float &d3
#define SIM_C4 float c0, float c1, float c2, float c3, SIM_AT
#define SIM_MMA(a, b, element, k)                                             \
    float d[4];                                                               \
    sim_mma(sim_mma_record{a, b, {c0, c1, c2, c3}, element, k}, d, SIM_HERE); \
    d0 = d[0];                                                                \
    d1 = d[1];                                                                \
    d2 = d[2];                                                                \
    d3 = d[3]
#define SIM_LIST(...) \
    {                 \
        __VA_ARGS__   \
    }

/* Four registers of A, two of B; and two of A, one of B. */
#define SIM_MMA_LARGE(name, element, k)                                                                              \
    SIM_DEVICE void sim_ptx_mma_sync_##name(SIM_D4, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, \
                                            unsigned b1, SIM_C4)                                                     \
    {                                                                                                                \
        SIM_MMA(SIM_LIST(a0, a1, a2, a3), SIM_LIST(b0, b1), element, k);                                             \
    }
#define SIM_MMA_SMALL(name, element, k)                                                            \
    SIM_DEVICE void sim_ptx_mma_sync_##name(SIM_D4, unsigned a0, unsigned a1, unsigned b0, SIM_C4) \
    {                                                                                              \
        SIM_MMA(SIM_LIST(a0, a1, 0, 0), SIM_LIST(b0, 0), element, k);                              \
    }
SIM_MMA_LARGE(m16n8k16_row_col_f32_bf16_bf16_f32, SIM_BF16, 16)
SIM_MMA_LARGE(m16n8k16_row_col_f32_f16_f16_f32, SIM_F16, 16)
SIM_MMA_SMALL(m16n8k8_row_col_f32_bf16_bf16_f32, SIM_BF16, 8)
SIM_MMA_SMALL(m16n8k8_row_col_f32_f16_f16_f32, SIM_F16, 8)
SIM_MMA_LARGE(m16n8k8_row_col_f32_tf32_tf32_f32, SIM_TF32, 8)
SIM_MMA_LARGE(m16n8k32_row_col_f32_e4m3_e4m3_f32, SIM_E4M3, 32)
SIM_MMA_LARGE(m16n8k32_row_col_f32_e5m2_e5m2_f32, SIM_E5M2, 32)
SIM_MMA_SMALL(m16n8k4_row_col_f32_tf32_tf32_f32, SIM_TF32, 4)

/* As sim_mma_record, for signed bytes, four in a register, with 32-bit sums. */
struct sim_mma_bytes_record {
    unsigned a[4], b[2], c[4]; /* sums wrap */
};

SIM_QUIET void sim_mma_bytes_combine(void *const *records, unsigned)
{
    int a[16][32], b[32][8];
    unsigned c[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const sim_mma_bytes_record *r = (const sim_mma_bytes_record *)records[lane];
        int g = lane / 4, t = lane % 4;
        for (int e = 0; e < 8; e++) {
            int column = 16 * (e / 4) + 4 * t + e % 4;
            a[g][column] = (signed char)(r->a[e / 4 * 2] >> 8 * (e % 4));
            a[g + 8][column] = (signed char)(r->a[e / 4 * 2 + 1] >> 8 * (e % 4));
            b[column][g] = (signed char)(r->b[e / 4] >> 8 * (e % 4));
        }
        for (int e = 0; e < 4; e++)
            c[g + 8 * (e / 2)][2 * t + e % 2] = r->c[e];
    }
    for (int row = 0; row < 16; row++)
        for (int i = 0; i < 32; i++)
            for (int column = 0; column < 8; column++)
                c[row][column] += (unsigned)(a[row][i] * b[i][column]);
    for (int lane = 0; lane < 32; lane++)
        for (int e = 0; e < 4; e++)
            ((sim_mma_bytes_record *)records[lane])->c[e] = c[lane / 4 + 8 * (e / 2)][2 * (lane % 4) + e % 2];
}

SIM_DEVICE void sim_ptx_mma_sync_m16n8k32_row_col_s32_s8_s8_s32(unsigned &d0, unsigned &d1, unsigned &d2, unsigned &d3,
                                                                unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                                unsigned b0, unsigned b1, unsigned c0, unsigned c1,
                                                                unsigned c2, unsigned c3, SIM_AT)
{
    sim_mma_bytes_record r = {{a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}};
    if (sim_rt->live_lanes() != 0xffffffffu)
        sim_fail(719, "mma in a warp that is not complete", SIM_HERE);
    sim_warp(0xffffffffu, sim_mma_bytes_combine, &r, 0, "mma", SIM_HERE);
    d0 = r.c[0];
    d1 = r.c[1];
    d2 = r.c[2];
    d3 = r.c[3];
}

#endif
