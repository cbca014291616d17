// SPDX-License-Identifier: MIT
/*  activation.cuh - functions of single elements, for kernels that apply them to an element in passing

    Computed in float or double; forms for two numbers at once serve results of 16 bits.
    A gradient is g * f'(x), with g the gradient of the output.
*/
#ifndef IGNIS_ACTIVATION_CUH
#define IGNIS_ACTIVATION_CUH

/*  1 / (1 + exp(-x)). Exact to 2 or 3 units in the last place; large and small x come out as 1 and 0. */
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }
__device__ inline double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

/*  NaN passes through. */
template <typename Wide> __device__ inline Wide relu(Wide x) { return x < 0 ? Wide(0) : x; }
template <typename Wide> __device__ inline Wide relu_gradient(Wide g, Wide x) { return x <= 0 ? Wide(0) : g; }

/*  The tanh form (Hendrycks and Gimpel 2016): x/2 (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3); and
    as (1 + tanh(u)) / 2 = sigmoid(2u), no tanh is needed. */
static constexpr double gelu_slope = 1.5957691216057307118; /* 2 sqrt(2/pi) */
static constexpr double gelu_cubic = 0.044715 * gelu_slope;

template <typename Wide> __device__ inline Wide gelu_2u(Wide x)
{
    return x * (Wide(gelu_slope) + Wide(gelu_cubic) * (x * x));
}

template <typename Wide> __device__ inline Wide gelu(Wide x) { return x * sigmoid(gelu_2u(x)); }
/*  Computes x / (1 + exp(-2u)) of two numbers at once, for results of 16 bits, with one reciprocal, as
    special functions take longest. Below -7.5 the result stays at -4e-18, which keeps the product of the
    divisors finite. */
__device__ inline void gelu_two(float &x, float &y)
{
    constexpr float slope = -1.4426950408889634 * gelu_slope, cubic = -1.4426950408889634 * gelu_cubic, least = -7.5f;
    x = x < least ? least : x; /* NaN passes through */
    y = y < least ? least : y;
    const float a = 1.0f + ignis_ptx_ex2_ftz(x * (slope + cubic * (x * x)));
    const float b = 1.0f + ignis_ptx_ex2_ftz(y * (slope + cubic * (y * y)));
    const float both = ignis_ptx_rcp_ftz(a * b);
    x *= b * both;
    y *= a * both;
}

/*  As gelu_two, for its gradient: of g at x, and h at y. */
__device__ inline void gelu_gradient_two(float &g, float &h, float x, float y)
{
    constexpr float slope = gelu_slope, cubic = gelu_cubic, log2e = -1.4426950408889634, least = -7.5f, most = 30;
    x = x < least ? least : x > most ? most : x;
    y = y < least ? least : y > most ? most : y;
    const float a = 1.0f + ignis_ptx_ex2_ftz(x * (log2e * slope + log2e * cubic * (x * x)));
    const float b = 1.0f + ignis_ptx_ex2_ftz(y * (log2e * slope + log2e * cubic * (y * y)));
    const float both = ignis_ptx_rcp_ftz(a * b), s = b * both, t = a * both;
    g *= s + x * (slope + 3 * cubic * (x * x)) * (s - s * s);
    h *= t + y * (slope + 3 * cubic * (y * y)) * (t - t * t);
}

template <typename Wide> __device__ inline Wide gelu_gradient(Wide g, Wide x)
{
    const Wide far = 30; /* farther out s is 0 or 1, but the slope might overflow */
    x = x > far ? far : x < -far ? -far : x;
    const Wide s = sigmoid(gelu_2u(x));
    const Wide slope = Wide(gelu_slope) + Wide(3 * gelu_cubic) * (x * x); /* of 2u */
    return g * (s + x * slope * (s * (1 - s)));
}

/*  x sigmoid(x) (Hendrycks and Gimpel 2016; Elfwing, Uchibe, Doya 2018) */
template <typename Wide> __device__ inline Wide silu(Wide x) { return x * sigmoid(x); }
template <typename Wide> __device__ inline Wide silu_slope(Wide x, Wide s) /* s: sigmoid(x) */
{
    return s * (1 + x * (1 - s));
}

/*  The gradients of silu(gate) * up, with s as sigmoid(gate). */
template <typename Wide>
__device__ inline void gated_gradients(Wide &dgate, Wide &dup, Wide g, Wide gate, Wide up, Wide s)
{
    dgate = g * up * silu_slope(gate, s);
    dup = g * (gate * s);
}

/*  Computes sigmoid of two numbers at once, for results of 16 bits, as in gelu_two. Below -40 it stays at
    4e-18. */
__device__ inline void sigmoid_two(float (&s)[2], const float (&x)[2])
{
    constexpr float log2e = -1.4426950408889634, least = -40;
    const float a = 1.0f + ignis_ptx_ex2_ftz(log2e * (x[0] < least ? least : x[0]));
    const float b = 1.0f + ignis_ptx_ex2_ftz(log2e * (x[1] < least ? least : x[1]));
    const float both = ignis_ptx_rcp_ftz(a * b);
    s[0] = b * both;
    s[1] = a * both;
}

#endif /* IGNIS_ACTIVATION_CUH */
