// SPDX-License-Identifier: MIT
/*  fft_rows.cu - what Fourier transforms of several passes need beside them

    One program per element type: compiled with -DIGNIS_T=IGNIS_F32 or IGNIS_F64. Blocks have 256 threads, grids any
    number of blocks. */
#include "fft.cuh"

#define KERNEL extern "C" __global__ void __launch_bounds__(256)

/*  Writes chirp[j] = c(j) = exp(-pi i j^2 / n), and filter[m]: conj(c(j)) at j and at m - j, else 0. With it a
    transform of n numbers is a cyclic convolution of m >= 2 n - 1 (Bluestein 1970):
    X(k) = c(k) * the sum over j of (x(j) c(j)) conj(c(k - j)). */
KERNEL ignis_fft_chirp(Complex *chirp, Complex *filter, long long n, long long m)
{
    ignis_grid_dependency_wait();
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < m; i += gridDim.x * 256ll) {
        const long long j = i < n ? i : m - i;
        Complex c = {0, 0};
        if (j < n)
            c = root((unsigned)((unsigned long long)j * (unsigned long long)j % (2 * (unsigned long long)n)),
                     2 * (unsigned)n);
        if (i < n)
            chirp[i] = c;
        filter[i] = conjugate(c);
    }
}

/*  Writes half spectra of real signals from the transforms [rows, n] of their pairs, for MERGED results of a
    transform that no block can hold. */
KERNEL ignis_fft_merge(const fft_params p, const Complex *from, long long rows, long long n)
{
    ignis_grid_dependency_wait();
    const long long pairs = n / 2 + 1, count = rows * pairs;
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < count; i += gridDim.x * 256ll) {
        const long long row = i / pairs, k = i % pairs;
        fft_store_merged<false>(p, row * p.to.a, (int)n, (int)k, from[row * n + k], from[row * n + (k ? n - k : 0)]);
    }
}
