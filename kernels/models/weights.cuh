// SPDX-License-Identifier: MIT
/*  models/weights.cuh - rows of weights as operands of tensor cores, 32 elements along K at a time

    A warp multiplies 16 rows of weights, the A of mma.m16n8k16 (see mma.cuh), with rows of x, its columns. Any
    element may be an operand's k, if it is the same one in both. Of a block of 32, lane % 4 = t has elements 8 t to
    8 t + 7: the first four in one MMA, the last four in a second one. So a lane reads 16 adjacent bytes of a row of
    16-bit elements.

    A type of weights has
        block                              a lane's part of two rows of 32 elements: registers, as loaded from memory
        type(weights, k, first, second)    its rows lane / 4 and lane / 4 + 8 of the 16: row numbers of weights [.., k]
        block load(at, there)              loads from element `at` on, a multiple of 32; zeros if not `there`
        static void add(sum, block, x)     sum[n] += weights times x[n]; x[n]: elements 8 t to 8 t + 7 of row
                                           8 n + lane / 4 of x
    and loads only weights, because kernels load before all earlier work has ended. Sums have one order for every N.
*/
#ifndef IGNIS_WEIGHTS_CUH
#define IGNIS_WEIGHTS_CUH

#include "mma.cuh"

/*  Dense weights, of T. */
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
