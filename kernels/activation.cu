// SPDX-License-Identifier: MIT
/*  activation.cu - functions of single elements and their gradients

    One program per floating element type: compiled with -DIGNIS_T=<ignis_dtype>. Computes in float (double
    for double) and rounds once. Launched as ignis_map asks for: blocks of 256 threads, of which each does
    4096 elements: grid = ceil(n / 4096).
    Gradients: dx = g * f'(x), with g the gradient of the output. The destination may be a source. */
#include "ignis.cuh"
#include "activation.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define KERNEL extern "C" __global__ void __launch_bounds__(IGNIS_MAP_THREADS)

/*  NaN passes through, as in relu_backward, where x may be the input or the output. */
KERNEL ignis_relu(T *dst, const T *src, long long n)
{
    ignis_map(
        n, [](T x) { return Wide(x) < 0 ? T(0) : x; }, dst, src);
}

KERNEL ignis_relu_backward(T *dx, const T *g, const T *x, long long n)
{
    ignis_map(
        n, [](T g, T x) { return Wide(x) <= 0 ? T(0) : g; }, dx, g, x);
}

KERNEL ignis_gelu(T *dst, const T *src, long long n)
{
    ignis_map(
        n, [](T x) { return T(gelu(Wide(x))); }, dst, src);
}

/*  Of bf16 on sm_80 the compiler would hold to 32 registers, and spill. */
constexpr int gelu_backward_blocks = __CUDA_ARCH__ == 800 && ignis_is_same<T, ignis_bf16> ? 6 : 0;
extern "C" __global__ void __launch_bounds__(IGNIS_MAP_THREADS, gelu_backward_blocks)
    ignis_gelu_backward(T *dx, const T *g, const T *x, long long n)
{
    ignis_map(
        n, [](T g, T x) { return T(gelu_gradient(Wide(g), Wide(x))); }, dx, g, x);
}

/*  The exact form: x P(X <= x) for a standard normal X. */
static constexpr double sqrt_half = 0.70710678118654752440;
static constexpr double normal_density_at_0 = 0.39894228040143267794; /* 1 / sqrt(2 pi) */

__device__ inline Wide normal_cdf(Wide x)
{
    return Wide(0.5) * erfc(x * Wide(-sqrt_half));
} /* 1 + erf(x) would cancel where x < 0 */

KERNEL ignis_gelu_exact(T *dst, const T *src, long long n)
{
    ignis_map(
        n, [](T x) { return T(Wide(x) * normal_cdf(x)); }, dst, src);
}

KERNEL ignis_gelu_exact_backward(T *dx, const T *g, const T *x, long long n)
{
    ignis_map(
        n,
        [](T g, T element) {
            const Wide x = element;
            return T(Wide(g) * (normal_cdf(x) + x * (Wide(normal_density_at_0) * exp(Wide(-0.5) * x * x))));
        },
        dx, g, x);
}

KERNEL ignis_silu(T *dst, const T *src, long long n)
{
    ignis_map(
        n, [](T x) { return T(silu(Wide(x))); }, dst, src);
}

KERNEL ignis_silu_backward(T *dx, const T *g, const T *x, long long n)
{
    ignis_map(
        n, [](T g, T x) { return T(Wide(g) * silu_slope(Wide(x), sigmoid(Wide(x)))); }, dx, g, x);
}

/*  dst = silu(gate) * up, in which silu(gate) is not rounded. */
KERNEL ignis_silu_mul(T *dst, const T *gate, const T *up, long long n)
{
    ignis_map(
        n, [](T gate, T up) { return T(silu(Wide(gate)) * Wide(up)); }, dst, gate, up);
}

/*  Its gradients, in one walk. N elements from this one on. */
template <int N>
__device__ inline void silu_mul_gradients(T *dgate, T *dup, const T *g, const T *gate, const T *up, long long at)
{
    const auto gs = ignis_load_streaming<N>(g + at), gates = ignis_load_streaming<N>(gate + at),
               ups = ignis_load_streaming<N>(up + at);
    Wide of_gate[N], of_up[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const Wide x = ignis_wide_at(gates, i);
        gated_gradients<Wide>(of_gate[i], of_up[i], ignis_wide_at(gs, i), x, ignis_wide_at(ups, i), sigmoid(x));
    }
    ignis_store_streaming(dgate + at, ignis_pack_round<T>(of_gate));
    ignis_store_streaming(dup + at, ignis_pack_round<T>(of_up));
}

KERNEL ignis_silu_mul_backward(T *dgate, T *dup, const T *g, const T *gate, const T *up, long long n)
{
    constexpr int N = 16 / sizeof(T), step = IGNIS_MAP_THREADS * N;
    const long long first = (long long)blockIdx.x * IGNIS_TILE, end = min(n, first + IGNIS_TILE);
    const bool packs = ignis_is_aligned(dgate, 16) && ignis_is_aligned(dup, 16) && ignis_is_aligned(g, 16) &&
                       ignis_is_aligned(gate, 16) && ignis_is_aligned(up, 16);
    ignis_grid_dependency();
    if (packs && end - first == IGNIS_TILE) {
#pragma unroll 2
        for (int i = 0; i < IGNIS_TILE / step; i++)
            silu_mul_gradients<N>(dgate, dup, g, gate, up, first + i * step + threadIdx.x * N);
    } else {
        for (long long at = first + threadIdx.x; at < end; at += IGNIS_MAP_THREADS)
            silu_mul_gradients<1>(dgate, dup, g, gate, up, at);
    }
}
