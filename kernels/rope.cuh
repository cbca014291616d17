// SPDX-License-Identifier: MIT
/*  rope.cuh - what the kernels share that turn heads: a table of frequencies, sines and cosines of large angles */
#ifndef IGNIS_ROPE_CUH
#define IGNIS_ROPE_CUH

#define MAX_HALF 256 /* of the table that comes with the launch; the host's has as many */

/*  As a parameter the table needs no memory that would have to live as long as a graph which captured the launch. Numbers are those that angles are
    computed in. */
template <typename Wide> struct frequency_table {
    Wide at[MAX_HALF];
};

/*  Sine and cosine of position * frequency, as if computed exactly and rounded at the end, to a few units in the last place, for
    angles up to 4 million. Both steps that would lose digits are done with an error term: the product, and the subtraction of
    multiples of pi / 2 (Cody, Waite: Software Manual for the Elementary Functions, 1980). The polynomials are those of Moshier's
    Cephes library. It needs no slow path for large angles, which sincosf has. */
__device__ inline void sine_cosine(float position, float frequency, float &sine, float &cosine)
{
    const float angle = position * frequency, angle_error = fmaf(position, frequency, -angle);
    const float quarters = rintf(angle * 0.636619772f);
    float x = fmaf(-quarters, 1.57079637f, angle); /* exact */
    x += fmaf(-quarters, -4.37113883e-8f, angle_error);
    const float z = x * x;
    const float s = fmaf(x * z, fmaf(z, fmaf(z, -1.9515295891e-4f, 8.3321608736e-3f), -1.6666654611e-1f), x);
    const float c = fmaf(z * z, fmaf(z, fmaf(z, 2.443315711809948e-5f, -1.388731625493765e-3f), 4.166664568298827e-2f), fmaf(z, -0.5f, 1.0f));
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

/*  The sines and cosines by which N pairs of heads turn, from pair first on. own: frequencies in memory; null: those of the table. direction: 1 or,
    for gradients, -1. */
template <int N, typename Wide, typename Own>
__device__ inline void angles(Wide (&sine)[N], Wide (&cosine)[N], long long position, const Own *own, const frequency_table<Wide> &frequencies,
                              int first, Wide direction)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        const Wide frequency = own ? Wide(own[first + i]) : frequencies.at[first + i];
        sine_cosine(Wide(position), frequency, sine[i], cosine[i]);
        sine[i] *= direction;
    }
}

/*  An element of a pair, turned: the first one with the second and -sine, the second one with the first and sine. Written as it is rounded, so that
    it has the same bits wherever it stands. */
__device__ inline float turned(float x, float other, float sine, float cosine) { return fmaf(x, cosine, other * sine); }
__device__ inline double turned(double x, double other, double sine, double cosine) { return fma(x, cosine, other * sine); }

/*  Turns the pairs of which a has the first elements and b the second ones. */
template <typename T, int N>
__device__ inline void turn_pairs(ignis_pack<T, N> &a, ignis_pack<T, N> &b, const ignis_wide<T> (&sine)[N], const ignis_wide<T> (&cosine)[N])
{
    typedef ignis_wide<T> Wide;
    Wide turned_a[N], turned_b[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        turned_a[i] = turned(Wide(a[i]), Wide(b[i]), -sine[i], cosine[i]);
        turned_b[i] = turned(Wide(b[i]), Wide(a[i]), sine[i], cosine[i]);
    }
    a = ignis_pack_round<T>(turned_a);
    b = ignis_pack_round<T>(turned_b);
}

/*  By a warp: what the norm of a head multiplies with beside the weight. AT_A_TIME: elements of a lane. From then on elements may be written. */
template <int AT_A_TIME, typename T> __device__ inline ignis_wide<T> head_factor(const T *from, int head_dim, double eps)
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
