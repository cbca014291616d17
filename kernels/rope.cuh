// SPDX-License-Identifier: MIT
/*  rope.cuh - what kernels that rotate heads share: a table of frequencies, sines and cosines of large angles

    The forms with explicit rounding give the same bits in every kernel.
    Compiled with -DIGNIS_T=<1 to 4>; angles are in float, for double in double.
*/
#ifndef IGNIS_ROPE_CUH
#define IGNIS_ROPE_CUH

#include "shared/rope.h"

/*  As a parameter, the table needs no memory that outlives a graph which captured the launch. Its numbers
    have the type that angles are computed in. */
template <typename Wide> struct frequency_table {
    Wide at[IGNIS__ROPE_HALF];
};

/*  Computes sine and cosine of position * frequency, as if exactly and rounded at the end, to a few units in
    the last place, for angles up to 4 million. Both steps that would lose digits have an error term: the
    product, and the subtraction of multiples of pi / 2 (Cody, Waite: Software Manual for the Elementary
    Functions, 1980). The polynomials are those of Moshier's Cephes library. It needs no slow path for large
    angles, which sincosf has. */
__device__ inline void sine_cosine(float position, float frequency, float &sine, float &cosine)
{
    const float angle = position * frequency, angle_error = fmaf(position, frequency, -angle);
    const float quarters = rintf(angle * 0.636619772f);
    float x = fmaf(-quarters, 1.57079637f, angle); /* exact */
    x += fmaf(-quarters, -4.37113883e-8f, angle_error);
    const float z = x * x;
    const float s = fmaf(x * z, fmaf(z, fmaf(z, -1.9515295891e-4f, 8.3321608736e-3f), -1.6666654611e-1f), x);
    const float c = fmaf(z * z, fmaf(z, fmaf(z, 2.443315711809948e-5f, -1.388731625493765e-3f), 4.166664568298827e-2f),
                         fmaf(z, -0.5f, 1.0f));
    const int quarter = (int)quarters & 3;
    sine = quarter & 1 ? c : s;
    cosine = quarter & 1 ? s : c;
    sine = quarter & 2 ? -sine : sine;
    cosine = (quarter + 1) & 2 ? -cosine : cosine;
}

__device__ inline void sine_cosine(double position, double frequency, double &sine, double &cosine)
{
    sincos(position * frequency, &sine, &cosine);
}

/*  Computes the sines and cosines of N pairs of heads, from pair first on. own: frequencies in memory; null:
    those of the table. direction: 1 or, for gradients, -1. */
template <int N, typename Wide, typename Own>
__device__ inline void angles(Wide (&sine)[N], Wide (&cosine)[N], long long position, const Own *own,
                              const Wide (&frequencies)[IGNIS__ROPE_HALF], int first, Wide direction)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        const Wide frequency = own ? Wide(own[first + i]) : frequencies[first + i];
        sine_cosine(Wide(position), frequency, sine[i], cosine[i]);
        sine[i] *= direction;
    }
}

/*  Rotates an element of a pair: the first one with the second and -sine, the second one with the first and
    sine. Each rounding is explicit, so that it has the same bits everywhere. */
__device__ inline float rotated(float x, float other, float sine, float cosine)
{
    return fmaf(x, cosine, other * sine);
}
__device__ inline double rotated(double x, double other, double sine, double cosine)
{
    return fma(x, cosine, other * sine);
}

/*  Rotates the pairs; a has the first elements and b the second ones. */
template <typename T, int N>
__device__ inline void turn_pairs(ignis_pack<T, N> &a, ignis_pack<T, N> &b, const ignis_wide<T> (&sine)[N],
                                  const ignis_wide<T> (&cosine)[N])
{
    typedef ignis_wide<T> Wide;
    Wide rotated_a[N], rotated_b[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        rotated_a[i] = rotated(Wide(a[i]), Wide(b[i]), -sine[i], cosine[i]);
        rotated_b[i] = rotated(Wide(b[i]), Wide(a[i]), sine[i], cosine[i]);
    }
    a = ignis_pack_round<T>(rotated_a);
    b = ignis_pack_round<T>(rotated_b);
}

/*  By a warp: the factor of a head's norm, beside the weight. AT_A_TIME: elements of a lane. After it
    elements may be written. */
template <int AT_A_TIME, typename T>
__device__ inline ignis_wide<T> head_factor(const T *from, int head_dim, double eps)
{
    typedef ignis_wide<T> Wide;
    Wide squares = 0;
#pragma unroll AT_A_TIME
    for (int i = threadIdx.x % 32; i < head_dim; i += 32)
        squares += Wide(from[i]) * Wide(from[i]);
    const Wide factor = Wide(1) / sqrt(ignis_warp_sum(squares) / Wide(head_dim) + Wide(eps));
    __syncwarp(); /* nothing is written where others still read */
    return factor;
}

#endif /* IGNIS_ROPE_CUH */
