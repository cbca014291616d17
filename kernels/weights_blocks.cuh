// SPDX-License-Identifier: MIT
/*  weights_blocks.cuh - rows of quantised weights as operands of tensor cores, 32 elements along K at a time: a block

    A warp multiplies 16 rows of weights, the A of mma.m16n8k16 (see mma.cuh), with rows of x, its columns. What an operand calls k may be any
    element, if it is the same one in both: of a block of 32, lane % 4 = t has elements 8 t to 8 t + 7, the first four in one product and the last
    four in a second one. So a lane reads 16 bytes of a row of 16-bit elements at once, with nothing in between.

    A type of weights has
        elements, ring                              a unit of so many elements along K is loaded at once, and so many units are on their way
        parts                                       scales of a block, each with as many elements
        halves                                      whether a lane has elements 4 t and on, 16 + 4 t and on instead, four each
        block                                       what a lane loads of a unit for its two rows: registers, as they come from memory
        type(weights, planes, k, first, second)     its rows lane / 4 and lane / 4 + 8 of the 16: numbers of rows of weights [.., k]
        block load(unit)                            zeros behind k
        static void add(sum, block, x_of, ones_of)  sum[n] += weights times x; single: column 0 alone is wanted; x_of(b, n) is this lane's eight
                                                    elements, of block b of the unit, of row 8 n + lane / 4 of x, ones_of(b, part, n, x, ones) the sums
                                                    of a part of the block, of columns lane % 4 * 2 and the next
    and loads nothing but weights: kernels load ahead of all that came before them. Sums have one order of their own, whatever N is.

    Quantised weights (see blocks.cuh) are multiplied as small whole numbers, which both types of 16 bits have exactly: 16 + q of four bits, 64 + q
    of six, made by putting q's bits into those of 16 or 64. What the 16, the minimum and such add, a number times the sum of the block's x, is taken
    off each block's product again, which is multiplied by the scale in f32. That sum is a product with rows of ones.
*/
#ifndef IGNIS_WEIGHTS_BLOCKS_CUH
#define IGNIS_WEIGHTS_BLOCKS_CUH

#include "mma.cuh"
#include "blocks.cuh"

/*  (word & mask) | bits, as one instruction, which the compiler makes two of. */
__device__ inline uint32_t and_or(uint32_t word, uint32_t mask, uint32_t bits)
{
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
    return result;
}

/*  Two numbers of T: 16 + nibbles j and j + 4 of a word. */
template <typename T> __device__ inline uint32_t nibbles(uint32_t word, int j)
{
    constexpr bool f16 = ignis_is_same<T, ignis_f16>;
    constexpr int lowest = f16 ? 6 : 3; /* bit of q in 16 + q */
    const int right = 4 * j - lowest;
    return and_or(right < 0 ? word << -right : word >> right, 0x000f000fu << lowest, f16 ? 0x4c004c00u : 0x41804180u);
}

/*  64 + six bits: such nibbles, and above them pair j of the two bits of a word. */
template <typename T> __device__ inline uint32_t sixes(uint32_t word, uint32_t more, int j)
{
    constexpr bool f16 = ignis_is_same<T, ignis_f16>;
    constexpr int lowest = f16 ? 4 : 1;
    const int right = 4 * j - lowest, left = lowest + 4 - 2 * j;
    const uint32_t low = and_or(right < 0 ? word << -right : word >> right, 0x000f000fu << lowest, f16 ? 0x54005400u : 0x42804280u);
    return and_or(left < 0 ? more >> -left : more << left, 0x00030003u << (lowest + 4), low);
}

/*  Words 0 to 3 of a pack. */
__device__ inline uint32_t word_of(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

/*  sum += scale (product - offset ones), for rows lane / 4 and lane / 4 + 8; single: of the even columns alone. */
template <bool single> __device__ inline void add_scaled(float (&sum)[4], const float (&product)[4], const float (&ones)[2], const float (&scale)[2], float offset)
{
#pragma unroll
    for (int i = 0; i < 4; i += single ? 2 : 1)
        sum[i] = fmaf(scale[i / 2], fmaf(-offset, ones[i % 2], product[i]), sum[i]);
}

/*  Sums of x over elements of a block, by products with rows of ones: ones[i] is that of column lane % 4 * 2 + i. */
template <typename T> __device__ inline void add_ones(float (&ones)[2], uint32_t low, uint32_t high)
{
    constexpr uint32_t one = ignis_is_same<T, ignis_f16> ? 0x3c003c00u : 0x3f803f80u;
    const uint32_t all_one[4] = {one, one, one, one};
    float sum[4] = {ones[0], ones[1], 0, 0};
    ignis_mma<T>(sum, all_one, low, high);
    ones[0] = sum[0];
    ones[1] = sum[1];
}

/*  Keeps the compiler from loading the x of all blocks first, for which there are not enough registers. */
template <bool wanted> __device__ inline void at_a_time()
{
    if (wanted)
        __syncwarp();
}

/*  16 bytes of a row's unit that is whole. */
__device__ inline uint4 load_unit(const uint8_t *row, int unit)
{
    return ignis_ptx_ld_no_allocate((const uint4 *)(row + unit * 64 + threadIdx.x % 4 * 16));
}

/*  At the end of a row, where not all blocks may be there: `words` words of each. */
__device__ inline uint4 load_rest(const uint8_t *row, int unit, int words, int left)
{
    uint4 v = make_uint4(0, 0, 0, 0);
    const int t = threadIdx.x % 4;
    const uint8_t *from = row + unit * 64;
    if (left * words >= 4)
        return load_unit(row, unit);
    if (words == 2) {
        const uint2 two = *(const uint2 *)(from + t * 8);
        v.x = two.x;
        v.y = two.y;
    } else {
        v.x = *(const uint32_t *)(from + t * 4);
        v.y = left > 1 ? *(const uint32_t *)(from + 16 + t * 4) : 0;
        v.z = left > 2 ? *(const uint32_t *)(from + 32 + t * 4) : 0;
    }
    return v;
}

/*  Q4_0 and Q8_0. A unit is 16 bytes a lane: four blocks, or two. ends: rows end within a unit. */
template <typename T, bool eight, bool ends> struct simple_weights {
    static constexpr int blocks = eight ? 2 : 4, elements = 32 * blocks, ring = 4, parts = 1;
    static constexpr bool halves = false;
    struct block {
        uint4 q[2];
        uint2 d[2]; /* halves, as many as there are blocks */
    };
    const uint8_t *q[2], *d[2];
    int all;

    __device__ simple_weights(const void *weights, const uint8_t *const *planes, long long k, long long first, long long second) : all((int)k / 32)
    {
        q[0] = (const uint8_t *)weights + first * (eight ? k : k / 2);
        q[1] = (const uint8_t *)weights + second * (eight ? k : k / 2);
        d[0] = planes[0] + first * (k / 16);
        d[1] = planes[0] + second * (k / 16);
    }
    __device__ block load(int unit) const
    {
        const int left = all - unit * blocks;
        block b;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint16_t *scales = (const uint16_t *)d[i] + unit * blocks;
            if (!ends) {
                b.q[i] = load_unit(q[i], unit);
                b.d[i] = eight ? make_uint2(*(const uint32_t *)scales, 0) : *(const uint2 *)scales;
                continue;
            }
            b.q[i] = load_rest(q[i], unit, eight ? 2 : 1, left);
            b.d[i].x = scales[0] | (left > 1 ? (uint32_t)scales[1] << 16 : 0);
            b.d[i].y = eight ? 0 : (left > 2 ? scales[2] : 0) | (left > 3 ? (uint32_t)scales[3] << 16 : 0);
        }
        return b;
    }
    template <int N, bool single, typename Of, typename Ones>
    static __device__ void add(float (&sum)[N][4], const block &w, const Of &x_of, const Ones &ones_of)
    {
#pragma unroll
        for (int b = 0; b < blocks; b++) {
            at_a_time<(N > 1)>();
            uint32_t a[eight ? 2 : 1][2][4]; /* low nibbles, and high ones; both halves of the eight */
            float scale[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint32_t halves = b < 2 ? w.d[r].x : w.d[r].y;
                scale[r] = ignis_ptx_cvt_f32_f16((uint16_t)(b % 2 ? halves >> 16 : halves & 0xffff));
#pragma unroll
                for (int part = 0; part < (eight ? 2 : 1); part++) {
                    const uint32_t word = word_of(w.q[r], eight ? 2 * b + part : b);
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        a[part][j / 2][j % 2 * 2 + r] = nibbles<T>(word, j);
                }
            }
#pragma unroll
            for (int n = 0; n < N; n++) {
                const uint4 x = x_of(b, n);
                float product[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0}, ones[2] = {0, 0};
                ignis_mma<T>(product, a[0][0], x.x, x.y);
                ignis_mma<T>(product, a[0][1], x.z, x.w);
                ones_of(b, 0, n, x, ones);
                if (eight) {
                    ignis_mma<T>(high, a[eight][0], x.x, x.y);
                    ignis_mma<T>(high, a[eight][1], x.z, x.w);
#pragma unroll
                    for (int i = 0; i < 4; i += single ? 2 : 1)
                        product[i] = fmaf(16.0f, high[i], product[i]);
                }
                add_scaled<single>(sum[n], product, ones, scale, eight ? 16.0f + 16 * 16 + 128 : 16.0f + 8);
            }
        }
    }
};

/*  Q4_K. A unit is eight blocks. */
template <typename T> struct k4_weights {
    static constexpr int elements = 256, ring = 2, parts = 1;
    static constexpr bool halves = false;
    struct block {
        uint4 q[2][2], s[2];
    };
    const uint8_t *q[2], *s[2];

    __device__ k4_weights(const void *weights, const uint8_t *const *planes, long long k, long long first, long long second)
    {
        q[0] = (const uint8_t *)weights + first * (k / 2);
        q[1] = (const uint8_t *)weights + second * (k / 2);
        s[0] = planes[0] + first * (k / 16);
        s[1] = planes[0] + second * (k / 16);
    }
    __device__ block load(int unit) const
    {
        block b;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            b.q[i][0] = load_unit(q[i], 2 * unit);
            b.q[i][1] = load_unit(q[i], 2 * unit + 1);
            b.s[i] = *(const uint4 *)(s[i] + unit * 16);
        }
        return b;
    }
    template <int N, bool single, typename Of, typename Ones>
    static __device__ void add(float (&sum)[N][4], const block &w, const Of &x_of, const Ones &ones_of)
    {
        float d[2], e[2];
        uint32_t scales[2][2], minima[2][2]; /* a byte each */
#pragma unroll
        for (int r = 0; r < 2; r++) {
            d[r] = ignis_ptx_cvt_f32_f16((uint16_t)(w.s[r].x & 0xffff));
            e[r] = ignis_ptx_cvt_f32_f16((uint16_t)(w.s[r].x >> 16));
            scales[r][0] = w.s[r].y & 0x3f3f3f3fu;
            minima[r][0] = w.s[r].z & 0x3f3f3f3fu;
            scales[r][1] = (w.s[r].w & 0x0f0f0f0fu) | (w.s[r].y >> 2 & 0x30303030u);
            minima[r][1] = (w.s[r].w >> 4 & 0x0f0f0f0fu) | (w.s[r].z >> 2 & 0x30303030u);
        }
#pragma unroll
        for (int b = 0; b < 8; b++) {
            at_a_time<(N > 1)>();
            uint32_t a[2][4];
            float scale[2], least[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint32_t word = word_of(w.q[r][b / 4], b % 4);
                scale[r] = d[r] * (float)(scales[r][b / 4] >> b % 4 * 8 & 255);
                least[r] = e[r] * (float)(minima[r][b / 4] >> b % 4 * 8 & 255);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    a[j / 2][j % 2 * 2 + r] = nibbles<T>(word, j);
            }
#pragma unroll
            for (int n = 0; n < N; n++) {
                const uint4 x = x_of(b, n);
                float product[4] = {0, 0, 0, 0}, ones[2] = {0, 0};
                ignis_mma<T>(product, a[0], x.x, x.y);
                ignis_mma<T>(product, a[1], x.z, x.w);
                ones_of(b, 0, n, x, ones);
                add_scaled<single>(sum[n], product, ones, scale, 16.0f);
#pragma unroll
                for (int i = 0; i < 4; i += single ? 2 : 1)
                    sum[n][i] = fmaf(-least[i / 2], ones[i % 2], sum[n][i]);
            }
        }
    }
};

/*  Q6_K. A unit is eight blocks, of two scales each. */
template <typename T> struct k6_weights {
    static constexpr int elements = 256, ring = 2, parts = 2;
    static constexpr bool halves = true;
    struct block {
        uint4 q[2][2], more[2], s[2];
        uint32_t d; /* a half of each row */
    };
    const uint8_t *q[2], *more[2], *s[2], *d[2];

    __device__ k6_weights(const void *weights, const uint8_t *const *planes, long long k, long long first, long long second)
    {
        const long long rows[2] = {first, second};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            q[i] = (const uint8_t *)weights + rows[i] * (k / 2);
            more[i] = planes[0] + rows[i] * (k / 4);
            s[i] = planes[1] + rows[i] * (k / 16);
            d[i] = planes[2] + rows[i] * (k / 128);
        }
    }
    __device__ block load(int unit) const
    {
        block b;
        b.d = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            b.q[i][0] = load_unit(q[i], 2 * unit);
            b.q[i][1] = load_unit(q[i], 2 * unit + 1);
            b.more[i] = load_unit(more[i], unit);
            b.s[i] = *(const uint4 *)(s[i] + unit * 16);
            b.d |= (uint32_t)((const uint16_t *)d[i])[unit] << 16 * i;
        }
        return b;
    }
    template <int N, bool single, typename Of, typename Ones>
    static __device__ void add(float (&sum)[N][4], const block &w, const Of &x_of, const Ones &ones_of)
    {
        const float d[2] = {ignis_ptx_cvt_f32_f16((uint16_t)(w.d & 0xffff)), ignis_ptx_cvt_f32_f16((uint16_t)(w.d >> 16))};
#pragma unroll
        for (int b = 0; b < 8; b++) {
            at_a_time<true>();
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t a[4];
                float scale[2];
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const uint32_t word = word_of(w.q[r][b / 4], b % 4), more = word_of(w.more[r], b / 2) >> b % 2 * 8;
                    const uint32_t bytes = word_of(w.s[r], b / 2);
                    scale[r] = d[r] * (float)(int8_t)(bytes >> (b % 2 * 16 + half * 8) & 255);
                    a[r] = sixes<T>(word, more, 2 * half);
                    a[2 + r] = sixes<T>(word, more, 2 * half + 1);
                }
#pragma unroll
                for (int n = 0; n < N; n++) {
                    const uint4 x = x_of(b, n);
                    float product[4] = {0, 0, 0, 0}, ones[2] = {0, 0};
                    ignis_mma<T>(product, a, half ? x.z : x.x, half ? x.w : x.y);
                    ones_of(b, half, n, x, ones);
                    add_scaled<single>(sum[n], product, ones, scale, 64.0f + 32);
                }
            }
        }
    }
};

/*  Those of a blocks_type. */
template <typename T, int type, bool ends> struct weights_by_type;
template <typename T, bool ends> struct weights_by_type<T, BLOCKS_Q4_0, ends> { typedef simple_weights<T, false, ends> is; };
template <typename T, bool ends> struct weights_by_type<T, BLOCKS_Q8_0, ends> { typedef simple_weights<T, true, ends> is; };
template <typename T> struct weights_by_type<T, BLOCKS_Q4_K, false> { typedef k4_weights<T> is; };
template <typename T> struct weights_by_type<T, BLOCKS_Q6_K, false> { typedef k6_weights<T> is; };
template <typename T, int type, bool ends> using weights_of = typename weights_by_type<T, type, ends>::is;

#endif /* IGNIS_WEIGHTS_BLOCKS_CUH */
