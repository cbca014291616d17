// SPDX-License-Identifier: MIT
/*  distribution.cu - random numbers of distributions that take a varying number of random words

    Element i reads words of Philox at the counter first + i; the upper half of the counter has the count of launches of
    the graph (see random.cu) and, above 48 bits, the number of the block of four words, so that rejection never runs
    out of words. All is computed in double. Integers are the same on every device; the others use log, exp and lgamma
    of CUDA, so on another version of it a number may differ.

        randint      a number of 64 bits, times the range, without the lower 64 bits of the product
        exponential  -log(u)
        poisson      below a rate of 10 products of u until they are below exp(-rate) (Knuth 1969), else PTRS
                     (Hoermann: The transformed rejection method for generating Poisson random variables, 1993)
        gamma        Marsaglia and Tsang: A Simple Method for Generating Gamma Variables, 2000; of a below 1 that of
                     a + 1 times u^(1/a)
        beta         x/(x + y) of two gammas, by their logarithms
        categorical  a search of u times the sum of a row in its sums up to each element

    One program per element type: compiled with -DIGNIS_T=<ignis_dtype>. Blocks of THREADS threads, for an element each,
    in a loop. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;

#define THREADS 256
#define EACH(i, n) \
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < n; i += (long long)gridDim.x * THREADS)
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

/*  The random words of an element. */
struct Words {
    uint64_t seed, counter, stream;
    uint4 four;
    int block, used;

    __device__ Words(uint64_t seed, uint64_t first, const unsigned long long *step, long long i)
        : seed(seed), counter(first + i), stream(step ? *step : 0), block(0), used(2)
    {
    }
    __device__ uint64_t next()
    {
        if (used == 2) {
            const uint64_t upper = stream + ((uint64_t)block++ << 48);
            four = ignis_philox(
                make_uint4((uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)upper, (uint32_t)(upper >> 32)),
                make_uint2((uint32_t)seed, (uint32_t)(seed >> 32)));
            used = 0;
        }
        return used++ ? (uint64_t)four.z << 32 | four.w : (uint64_t)four.x << 32 | four.y;
    }
    __device__ double uniform() { return (double)((next() >> 11) + 1) * 0x1p-53; } /* in (0, 1] */
    __device__ double normal()                                                     /* Box and Muller 1958 */
    {
        const double r = sqrt(-2 * log(uniform()));
        return r * cos(6.28318530717958647692 * uniform());
    }
};

#define RANDOM unsigned long long seed, unsigned long long first, const unsigned long long *step, long long n

/*  low + a number from 0 to range - 1; range 0 is 2^64 */
KERNEL ignis_randint(T *dst, long long low, unsigned long long range, RANDOM)
{
    EACH(i, n)
    {
        Words words(seed, first, step, i);
        const uint64_t x = words.next();
        dst[i] = T((long long)((uint64_t)low + (range ? __umul64hi(x, range) : x)));
    }
}

KERNEL ignis_exponential(T *dst, double rate, RANDOM)
{
    EACH(i, n)
    {
        Words words(seed, first, step, i);
        dst[i] = T(-log(words.uniform()) / rate);
    }
}

/* >>poisson ----------------------------------------------------------------------------------------------------- */

__device__ inline double poisson(Words &words, double rate)
{
    if (!(rate >= 0) || rate > 0x1p62)
        return rate < 0 ? (double)__int_as_float(0x7fffffff) : rate;
    if (rate < 10) {
        const double limit = exp(-rate);
        double product = words.uniform();
        int k = 0;
        for (; product > limit && k < 1000; k++)
            product *= words.uniform();
        return k;
    }
    const double root = sqrt(rate), log_rate = log(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
    const double log_alpha = log(1.1239 + 1.1328 / (b - 3.4)), limit = 0.9277 - 3.6224 / (b - 2);
    double k = floor(rate);
    for (int tries = 0; tries < 10000; tries++) {
        const double u = words.uniform() - 0.5, v = words.uniform(), distance = 0.5 - fabs(u);
        k = floor((2 * a / distance + b) * u + rate + 0.43);
        if (distance >= 0.07 && v <= limit)
            return k;
        if (k < 0 || (distance < 0.013 && v > distance))
            continue;
        if (log(v) + log_alpha - log(a / (distance * distance) + b) <= k * log_rate - rate - lgamma(k + 1))
            return k;
    }
    return k;
}

KERNEL ignis_poisson(T *dst, const T *rates, RANDOM)
{
    EACH(i, n)
    {
        Words words(seed, first, step, i);
        dst[i] = T(poisson(words, (double)rates[i]));
    }
}

/* >>gamma ------------------------------------------------------------------------------------------------------- */

/*  Returns the logarithm of a gamma variate with the scale 1. */
__device__ inline double log_gamma_variate(Words &words, double shape)
{
    const double a = shape < 1 ? shape + 1 : shape, d = a - 1.0 / 3, c = 1 / sqrt(9 * d);
    double v = 1;
    if (!(shape > 0))
        return __int_as_float(0x7fffffff);
    for (int tries = 0; tries < 10000; tries++) {
        const double x = words.normal(), root = 1 + c * x, u = words.uniform();
        v = root * root * root;
        if (root > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v))
            break;
    }
    return log(d) + log(v) + (shape < 1 ? log(words.uniform()) / shape : 0);
}

KERNEL ignis_gamma(T *dst, const T *shapes, RANDOM)
{
    EACH(i, n)
    {
        Words words(seed, first, step, i);
        dst[i] = T(exp(log_gamma_variate(words, (double)shapes[i])));
    }
}

KERNEL ignis_beta(T *dst, const T *as, const T *bs, RANDOM)
{
    EACH(i, n)
    {
        Words words(seed, first, step, i);
        const double x = log_gamma_variate(words, (double)as[i]), y = log_gamma_variate(words, (double)bs[i]);
        dst[i] = T(1 / (1 + exp(y - x)));
    }
}

/* >>categorical ------------------------------------------------------------------------------------------------- */

/*  out[row, i] = a category of the row; weights [rows, categories] with the sums up to each of them. `draws` for each
    row. -1 where the sum is not a number above 0. */
KERNEL ignis_categorical(int64_t *out, const T *weights, const T *sums, long long categories, long long draws, RANDOM)
{
    EACH(i, n)
    {
        const long long row = i / draws * categories;
        const double total = (double)sums[row + categories - 1];
        Words words(seed, first, step, i);
        const double x = (1 - words.uniform()) * total; /* in [0, total) */
        long long low = 0, high = categories - 1;
        if (!(total > 0) || total > 0x1.fffffffffffffp1023) {
            out[i] = -1;
            continue;
        }
        while (low < high) {
            const long long middle = low + (high - low) / 2;
            if ((double)sums[row + middle] <= x)
                low = middle + 1;
            else
                high = middle;
        }
        while (low > 0 && !((double)weights[row + low] > 0)) /* sums are rounded: they may miss a category by a bit */
            low--;
        while (low < categories - 1 && !((double)weights[row + low] > 0))
            low++;
        out[i] = low;
    }
}
