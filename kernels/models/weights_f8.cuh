// SPDX-License-Identifier: MIT
/*  models/weights_f8.cuh - weights of F8 as operands of tensor cores, multiplied with x as it is

    F8 has floats of e4m3, and an f32 scale for each unit of 128 elements. T has all values of e4m3, so a weight becomes
    an operand of m16n8k16 without rounding, and x stays as it is. A unit is eight MMAs, one after the other, on a sum
    that begins with zero. That sum is rounded once more by its scale, and added. All kernels take the elements of a
    unit in this order, and wgmma adds as mma.sync does: a row of x has the same bits alone and in a batch.

    Of each block of 32 elements lane % 4 = t has elements 8 t to 8 t + 7: the first four in one MMA, the last four in
    the next one. x is in the order of its elements, or in that of paired_place. f8_rows has what blocks_rows of
    weights_blocks.cuh has, as far as F8 needs it. Half: f16 or bf16.
*/
#ifndef IGNIS_WEIGHTS_F8_CUH
#define IGNIS_WEIGHTS_F8_CUH

#include "weights_blocks.cuh"

__device__ constexpr bool is_f8(int type) { return layout_of(type).numbers == IGNIS__NUMBERS_E4M3; }

template <typename Half> struct f8_rows {
    static constexpr bool bytes = true, halves = false, minima = false, exact = false, is_float = true;
    static constexpr bool is_bf16 = ignis_is_same<Half, ignis_bf16>;
    static constexpr int type = BLOCKS_F8;
    /* operands of f16 are 2^8 times too small: shifted bits */
    static constexpr float factor = is_bf16 ? 1 : 256;

    /*  A lane's part of a unit for rows lane / 4 and lane / 4 + 8 of the 16: of blocks 0 and 1, then of 2 and 3. */
    struct unit {
        uint4 q[2][2];
        float d[2];
    };

    const uint8_t *records[2];

    __device__ f8_rows(const uint8_t *weights, const uint8_t *, int k, long long first, long long second)
    {
        const int all = (k + 32 * RECORD - 1) / (32 * RECORD);
        records[0] = weights + first_record(first, all) * record_bytes(type);
        records[1] = weights + first_record(second, all) * record_bytes(type);
    }

    /*  Loads a unit from global memory. */
    template <bool alone> __device__ unit load(int number) const
    {
        unit w;
#pragma unroll
        for (int r = 0; r < 2; r++)
            read<alone>(w, r, records[r] + number / 2 * TOGETHER * record_bytes(type), number % 2,
                        [](const uint8_t *from) { return ignis_ptx_ld_no_allocate((const uint4 *)from); });
        return w;
    }
    __device__ void load_d(unit &, int) const {}
    /*  Loads a row's part of the first or second half of a record. four: loads 16 bytes for a lane. */
    template <bool alone, typename Four>
    static __device__ void read(unit &w, int r, const uint8_t *record, int half, const Four &four)
    {
        const uint8_t *const own = record + half * 32 * UNIT + threadIdx.x % 4 * 16;
        w.q[r][0] = four(own);
        w.q[r][1] = four(own + 64);
        w.d[r] = ((const float *)(record + 32 * RECORD))[half];
    }

    /*  Returns the scale of row r's products. */
    static __device__ float scale_of(const unit &w, int r) { return __fmul_rn(w.d[r], factor); }

#if __CUDA_ARCH__ >= 800
    /*  Converts elements 0 and 1, then 2 and 3, of four whose bytes are in the order 0, 2, 1, 3. Bits of e4m3 are those
        of a number of Half that is 2^120, or 2^8, times too small, also below the normal numbers. */
    static __device__ void pairs(uint32_t &low, uint32_t &high, uint32_t four)
    {
        constexpr uint32_t signs = 0x80008000; /* as a number -0, which changes no sum */
        uint32_t two[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t upper = i ? four : four << 8;
            two[i] = and_or(upper >> (is_bf16 ? 4 : 1), is_bf16 ? 0x07f007f0 : 0x3f803f80, upper & signs);
            if (is_bf16)
                two[i] = fma_two<Half>(two[i], 0x7b807b80, signs);
        }
        low = two[0], high = two[1];
    }

    /*  Builds a lane's A of the two MMAs of a block. */
    static __device__ void operand(uint32_t (&a)[2][4], const unit &w, int block)
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint4 q = w.q[r][block / 2];
            pairs(a[0][r], a[0][2 + r], block % 2 ? q.z : q.x);
            pairs(a[1][r], a[1][2 + r], block % 2 ? q.w : q.y);
        }
    }

    /*  Adds weights times rows 8 n and on of x to sum[n], in the layout of an MMA's C. x_of(b, n): elements 8 t to
        8 t + 7 of block b of row 8 n + lane / 4. */
    template <int N, bool ahead = true, typename Of, typename Scales>
    static __device__ void add(float (&sum)[N][4], int, const unit &w, int, const Of &x_of, const Scales &)
    {
        float found[N][4] = {};
#pragma unroll
        for (int b = 0; b < UNIT; b++) {
            uint32_t a[2][4];
            operand(a, w, b);
#pragma unroll
            for (int n = 0; n < N; n++) {
                const uint4 x = x_of(b, n);
                ignis_mma<Half>(found[n], a[0], x.x, x.y);
                ignis_mma<Half>(found[n], a[1], x.z, x.w);
            }
        }
        add_scaled(sum, found, w);
    }

    /*  Adds weights times one row of x to sum: of row lane / 4 in lanes of even t, of row lane / 4 + 8 in the others.
        x: the elements of the unit. All columns have them. */
    static __device__ void add_alone(float &sum, const unit &w, const uint4 *x)
    {
        const int t = threadIdx.x % 4;
        float one[1][4] = {};
        add<1>(
            one, 8, w, 0, [&](int b, int) { return x[4 * b + t]; }, 0);
        sum += t % 2 ? one[0][2] : one[0][0];
    }
#endif

    /*  Adds the products of a unit, times their scales. */
    template <int N> static __device__ void add_scaled(float (&sum)[N][4], const float (&found)[N][4], const unit &w)
    {
        const float scales[2] = {scale_of(w, 0), scale_of(w, 1)};
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                sum[n][c] += __fmul_rn(found[n][c], scales[c / 2]);
    }
};

/*  The rows of a type of blocks, whose x is of Half. */
template <int type, typename Half, bool f8 = is_f8(type)> struct rows_of_blocks {
    typedef blocks_rows<type> kind;
};
template <int type, typename Half> struct rows_of_blocks<type, Half, true> {
    typedef f8_rows<Half> kind;
};

#endif /* IGNIS_WEIGHTS_F8_CUH */
