// SPDX-License-Identifier: MIT
/*  weights.cuh - rows of weights as operands of tensor cores, 32 elements along K at a time

    A warp multiplies 16 rows of weights, the A of mma.m16n8k16 (see mma.cuh), with rows of x, its columns. What an operand calls k may be any
    element, if it is the same one in both: of a block of 32, lane % 4 = t has elements 8 t to 8 t + 7, the first four in one product and the last
    four in a second one. So a lane reads 16 bytes of a row of 16-bit elements at once, with nothing in between.

    A type of weights has
        block                                       what a lane loads for its two rows of 32 elements: registers, as they come from memory
        type(weights, k, first, second)             its rows lane / 4 and lane / 4 + 8 of the 16: numbers of rows of weights [.., k]
        block load(at, there)                       from element `at` on, a multiple of 32; zeros where this lane's eight are not there
        static void add(sum, block, x)              sum[n] += weights times x[n]; x[n]: elements 8 t to 8 t + 7 of row 8 n + lane / 4 of x
    and loads nothing but weights: kernels load ahead of all that came before them. Sums have one order of their own, whatever N is.
*/
#ifndef IGNIS_WEIGHTS_CUH
#define IGNIS_WEIGHTS_CUH

#include "mma.cuh"

/*  Weights of T. */
template <typename T> struct dense_weights {
    struct block {
        uint4 rows[2];
    };
    const T *rows[2];

    __device__ dense_weights(const void *weights, long long k, long long first, long long second)
    {
        const int own = threadIdx.x % 4 * 8;
        rows[0] = (const T *)weights + first * k + own;
        rows[1] = (const T *)weights + second * k + own;
    }
    __device__ block load(long long at, bool there) const
    {
        const uint4 zero = make_uint4(0, 0, 0, 0);
        block b = {{zero, zero}};
        if (there) {
            b.rows[0] = ignis_ptx_ld_no_allocate((const uint4 *)(rows[0] + at));
            b.rows[1] = ignis_ptx_ld_no_allocate((const uint4 *)(rows[1] + at));
        }
        return b;
    }
    template <int N> static __device__ void add(float (&sum)[N][4], const block &w, const uint4 (&x)[N])
    {
        const uint32_t a[4] = {w.rows[0].x, w.rows[1].x, w.rows[0].y, w.rows[1].y};
        const uint32_t b[4] = {w.rows[0].z, w.rows[1].z, w.rows[0].w, w.rows[1].w};
#pragma unroll
        for (int n = 0; n < N; n++) {
            ignis_mma<T>(sum[n], a, x[n].x, x[n].y);
            ignis_mma<T>(sum[n], b, x[n].z, x[n].w);
        }
    }
};

#endif /* IGNIS_WEIGHTS_CUH */
