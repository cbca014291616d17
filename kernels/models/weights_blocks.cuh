// SPDX-License-Identifier: MIT
/*  models/weights_blocks.cuh - quantised weights and rows of x as operands of tensor cores, in whole numbers

    A block of 32 weights is whole numbers, of 8 bits at most, times a scale (see blocks.cuh). A block of x becomes
    whole numbers of 15 bits times a power of two, chosen such that the greatest one is exact and the others are off
    by at most 2^-14 of it. They become operands as two bytes, 128 high + low with low from 0 to 127. So the product
    of two blocks is exact in any order of addition, and is rounded once, by its scale. A row of x has the same bits
    alone, by add_alone, and in a batch, by add. If x is not finite, neither are the results that it contributes to.

    A warp multiplies 16 rows of weights, the A of mma.m16n8k32 (see mma.cuh), by units of four blocks, lane % 4 = t.
    There are two ways:

        alone   Lane t has block t, 16 bytes of each row at once. Its i-th MMA is of elements 8 i to 8 i + 7 of each of
                the four blocks. Column 2 t of B has the high bytes of block t, the next column its low bytes, and zeros
                for other blocks. So each lane ends with the product of its own block, and scales no other one.
        batch   Lane t has elements 8 t to 8 t + 7 of each block. Columns of B are rows of x: their high bytes first,
                then the low ones.

    The four blocks of a unit are added as a tree, units in their order.
*/
#ifndef IGNIS_WEIGHTS_BLOCKS_CUH
#define IGNIS_WEIGHTS_BLOCKS_CUH

#include "mma.cuh"
#include "blocks.cuh"

constexpr int UNIT = 4; /* blocks per unit */

/* >>x ----------------------------------------------------------------------------------------------------------- */

/*  N elements of a block as whole numbers, with the block's scale and sum. 32 / N neighbouring lanes share a block.
    summed: the sum is needed. */
template <int N, bool summed> struct whole_numbers {
    uint32_t high[N / 4], low[N / 4]; /* bytes, in the order of the elements */
    float scale, sum;                 /* of the numbers times the scale */
    float rounded[N];                 /* the numbers times the scale: T has them, as it has x */

    template <typename T> __device__ explicit whole_numbers(const ignis_pack<T, N> &x)
    {
        uint32_t two = 0; /* maxima of even and of odd elements, without signs; as integers, NaN is above infinity */
        int total = 0;
#pragma unroll
        for (int i = 0; i < N; i += 2)
            two = ignis_ptx_max_u16x2(two, ignis_word(ignis_pack<T, 2>{{x[i], x[i + 1]}}) & 0x7fff7fffu);
#pragma unroll
        for (int apart = 1; apart < 32 / N; apart *= 2)
            two = ignis_ptx_max_u16x2(two, __shfl_xor_sync(0xffffffff, two, apart));
        const uint32_t most = __float_as_uint(float(T::from_bits((uint16_t)max(two & 0xffffu, two >> 16))));
        const int exponent = most >> 23, scaled = max(exponent - 13, 1);
        const float inverse = __uint_as_float((uint32_t)(254 - scaled) << 23);
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            /* in the low bits of floats: adding 1.5 2^23 rounds as a conversion does, and is faster */
            uint32_t whole[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                whole[j] = __float_as_uint(fmaf(float(x[i + j]), inverse, 12582912.0f));
                rounded[i + j] = __uint_as_float(whole[j]) - 12582912.0f;
                if (summed)
                    total += (int)(whole[j] - 0x4b400000u);
            }
            /* halves */
            const uint32_t second = __byte_perm(whole[0], whole[1], 0x5410),
                           fourth = __byte_perm(whole[2], whole[3], 0x5410);
            low[i / 4] = __byte_perm(second, fourth, 0x6420) & 0x7f7f7f7fu;
            high[i / 4] = __byte_perm(second << 1, fourth << 1, 0x7531);
        }
#pragma unroll
        for (int apart = 1; apart < 32 / N && summed; apart *= 2)
            total += __shfl_xor_sync(0xffffffff, total, apart);
        scale = __uint_as_float(exponent < 255 ? (uint32_t)scaled << 23 : 0x7fffffffu);
#pragma unroll
        for (int i = 0; i < N; i++)
            rounded[i] *= scale;
        sum = (float)total * scale;
    }
};

/*  Returns where a block of x has elements 8 t + 2 i and the next one for products whose A is that of operand_pairs: a
    word of the block's 16. */
__device__ inline int paired_place(int t, int i) { return 4 * i + t; }

/* >>weights ----------------------------------------------------------------------------------------------------- */

template <int type> struct blocks_rows {
    static constexpr blocks_layout layout = layout_of(type);
    static constexpr int bits = layout.bits, outside = IGNIS__BLOCKS_OUTSIDE(layout.scales);
    static constexpr bool is_float = false, is_signed = layout.numbers == IGNIS__NUMBERS_SIGNED,
                          is_table = layout.numbers >= IGNIS__NUMBERS_IQ4;
    static constexpr bool bytes = bits == 8, nibbles = bits >= 4 && bits <= 6, twos = bits == 6 || bits <= 3,
                          ones = bits == 5 || bits == 3;
    /* halves: a scale for 16 elements; minima: they need sums of x; own_minima: of 16 elements, whose sums of x are
       products with ones */
    static constexpr bool halves = outside != 0, own_minima = layout.scales == IGNIS__SCALES_16_MIN,
                          minima = layout.scales == IGNIS__SCALES_K || layout.scales == IGNIS__SCALES_ADDED;
    /* words of eight elements; scales of a block */
    static constexpr int words = bytes ? 2 : 1, parts = halves ? 2 : 1;
    /* operands whose sum is the numbers: two halves of a table */
    static constexpr int terms = is_table && bits == 4 ? 2 : 1;
    /* bit of an operand's byte at which a number begins: signed ones are the upper bits */
    static constexpr int begin = is_signed ? 8 - bits : 0,
                         twos_begin = begin + (bits == 6   ? 4
                                               : bits == 3 ? 1
                                                           : 0),
                         ones_begin = begin + (bits == 5 ? 4 : 0);
    static constexpr float factor = 1.0f / (float)((1 << begin) * layout.divisor);
    static constexpr int at_twos = nibbles ? 128 : 0, at_ones = at_twos + (twos ? 64 : 0), at_scales = 32 * bits;

    /*  A lane's part of a unit for rows lane / 4 and lane / 4 + 8 of the 16, as loaded: bits of its four times eight
        elements, and the scales and minima of block t. */
    struct unit {
        uint32_t q[2][4 * words];
        uint2 more[2];
        uint32_t one[2];
        uint4 k[2];
        /* as loaded: an instruction on them would wait for them here. both: d and e that are outside */
        uint16_t s[2], d[2];
        uint32_t both[2];
    };
    /*  The scales of a block in both rows. */
    struct scales {
        float of[2][parts], least[2][parts];
    };

    const uint8_t *records[2], *halves_at[2];

    __device__ blocks_rows(const uint8_t *weights, const uint8_t *scales, int k, long long first, long long second)
    {
        const int all = (k + 32 * RECORD - 1) / (32 * RECORD);
        records[0] = weights + first_record(first, all) * record_bytes(type);
        records[1] = weights + first_record(second, all) * record_bytes(type);
        halves_at[0] = scales + first * all * outside;
        halves_at[1] = scales + second * all * outside;
    }

    /*  Loads a unit from global memory. */
    template <bool alone> __device__ unit load(int number) const
    {
        unit w;
        load_d(w, number / 2);
#pragma unroll
        for (int r = 0; r < 2; r++)
            read<alone>(w, r, records[r] + number / 2 * TOGETHER * record_bytes(type), number % 2,
                        [](const uint8_t *from) { return ignis_ptx_ld_no_allocate((const uint4 *)from); });
        return w;
    }
    /*  Loads the scales that are outside of the records. */
    __device__ void load_d(unit &w, int record) const
    {
#pragma unroll
        for (int r = 0; r < 2 && halves; r++)
            if (own_minima)
                w.both[r] = ((const uint32_t *)halves_at[r])[record];
            else
                w.d[r] = ((const uint16_t *)halves_at[r])[record];
    }
    /*  Loads a row's blocks of the first or second half of a record. four: loads 16 bytes for a lane. */
    template <bool alone, typename Four>
    static __device__ void read(unit &w, int r, const uint8_t *record, int half, const Four &four)
    {
        const int t = threadIdx.x % 4, own = half * UNIT + t;
        if (alone)
#pragma unroll
            for (int i = 0; i < words && bits >= 4; i++) {
                const uint4 of = four(record + i * 128 + own * 16);
                w.q[r][4 * i] = of.x;
                w.q[r][4 * i + 1] = of.y;
                w.q[r][4 * i + 2] = of.z;
                w.q[r][4 * i + 3] = of.w;
            }
        else
#pragma unroll
            for (int b = 0; b < UNIT; b++) {
                const uint8_t *of = record + (half * UNIT + b) * 16;
                if (bytes) {
                    const uint2 two = *(const uint2 *)(of + t / 2 * 128 + t % 2 * 8);
                    w.q[r][2 * b % (4 * words)] = two.x;
                    w.q[r][(2 * b + 1) % (4 * words)] = two.y;
                } else if (nibbles) {
                    w.q[r][b] = *(const uint32_t *)(of + t * 4);
                }
            }
        if (twos)
            w.more[r] = ((const uint2 *)(record + at_twos))[own];
        if (ones)
            w.one[r] = ((const uint32_t *)(record + at_ones))[own];
        record += at_scales;
        if (layout.scales == IGNIS__SCALES_K) {
            w.k[r] = *(const uint4 *)record;
        } else if (layout.scales == IGNIS__SCALES_32) {
            w.d[r] = *(const uint16_t *)record;
            w.s[r] = record[8 + own];
        } else if (halves) {
            w.s[r] = ((const uint16_t *)record)[own];
        } else {
            w.d[r] = ((const uint16_t *)record)[own];
            if (minima)
                w.s[r] = ((const uint16_t *)(record + 16))[own];
        }
    }

    /*  Returns the scales of block t of a unit. */
    static __device__ scales scales_of(const unit &w, int number)
    {
        scales s;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint16_t d = layout.scales == IGNIS__SCALES_K ? (uint16_t)(w.k[r].x & 0xffff)
                               : own_minima                     ? (uint16_t)(w.both[r] & 0xffff)
                                                                : w.d[r];
            s.of[r][0] =
                layout.scales == IGNIS__SCALES_POWER ? __uint_as_float((uint32_t)d << 16) : ignis_ptx_cvt_f32_f16(d);
            s.least[r][0] = 0;
            if (own_minima) {
                const float e = ignis_ptx_cvt_f32_f16((uint16_t)(w.both[r] >> 16));
                s.of[r][parts - 1] = s.of[r][0] * (float)(w.s[r] >> 8 & 15);
                s.of[r][0] *= (float)(w.s[r] & 15);
                s.least[r][0] = e * (float)(w.s[r] >> 4 & 15);
                s.least[r][parts - 1] = e * (float)(w.s[r] >> 12);
            } else if (halves) {
                s.of[r][parts - 1] = s.of[r][0] * (float)(int8_t)(w.s[r] >> 8);
                s.of[r][0] *= (float)(int8_t)(w.s[r] & 255);
            } else if (layout.scales == IGNIS__SCALES_32) {
                s.of[r][0] *= (float)(int8_t)w.s[r];
            } else if (layout.scales == IGNIS__SCALES_ADDED) {
                s.least[r][0] = -ignis_ptx_cvt_f32_f16(w.s[r]);
            } else if (minima) {
                const int right = threadIdx.x % 4 * 8;
                const uint32_t y = w.k[r].y >> right, z = w.k[r].z >> right, both = w.k[r].w >> right;
                const bool upper = number % 2 != 0; /* the last four of eight blocks */
                const uint32_t scale = upper ? (both & 15) | (y >> 6 & 3) << 4 : y & 63,
                               least = upper ? (both >> 4 & 15) | (z >> 6 & 3) << 4 : z & 63;
                s.of[r][0] *= (float)scale;
                s.least[r][0] = ignis_ptx_cvt_f32_f16((uint16_t)(w.k[r].x >> 16)) * (float)least;
            }
        }
        return s;
    }

    /*  Looks up eight items of a table of 16, for the nibbles of q: four in `low`, four in `high`. */
    static __device__ void look_up(uint32_t q, uint32_t &low, uint32_t &high)
    {
        constexpr int numbers = is_table ? layout.numbers : IGNIS__NUMBERS_IQ4;
        const auto four = [](uint32_t of_eight, uint32_t which) {
            return __byte_perm(__byte_perm(table<numbers, 0>::bytes, table<numbers, 1>::bytes, of_eight),
                               __byte_perm(table<numbers, 2>::bytes, table<numbers, 3>::bytes, of_eight), which);
        };
        const uint32_t of_eight = q & 0x77777777u, which = and_or(q >> 1, 0x44444444u, 0x32103210u);
        low = four(of_eight, which);
        high = four(of_eight >> 16, which >> 16);
    }
    /*  As look_up, in one half of the table: numbers whose sum over both halves is the item. Shifts and inversions are
        products, which other units compute than prmt. zero: the compiler does not know it; else it would load tables
        again for each use, and make a subtraction of the product. */
    template <bool last> static __device__ void look_up_half(uint32_t q, uint32_t &low, uint32_t &high)
    {
        constexpr int numbers = is_table ? layout.numbers : IGNIS__NUMBERS_IQ4;
        typedef half_table<numbers, last> half;
        static_assert(bits != 4 || half::fits(), "sums of both halves are exact");
        const uint32_t zero = gridDim.z - 1, inverse = zero - 1, first = half::low ^ zero, second = half::high ^ zero,
                       upper = ignis_ptx_mul_hi(q, 1 << 16);
        low = ignis_ptx_prmt(first, second, last ? ignis_ptx_mad(q, inverse, inverse) : q);
        high = ignis_ptx_prmt(first, second, last ? ignis_ptx_mad(upper, inverse, inverse) : upper);
    }
    /*  Returns four items of a table of eight, for the low nibbles of `four`. */
    static __device__ uint32_t look_up_of_eight(uint32_t four)
    {
        constexpr int numbers = is_table ? layout.numbers : IGNIS__NUMBERS_IQ4;
        return __byte_perm(table<numbers, 0>::bytes, table<numbers, 1>::bytes, four);
    }

    /*  Returns four numbers whose bits 2 i and 2 i + 1, and i, of bytes are in `two` and `one`. */
    static __device__ uint32_t upper_bits(uint32_t two, uint32_t one, int i)
    {
        uint32_t q = 0;
        if (twos)
            q = twos_begin == 6 ? two << (6 - 2 * i) & 0xc0c0c0c0u : (two >> 2 * i & 0x03030303u) << twos_begin;
        if (ones)
            q |= (one >> i & 0x01010101u) << ones_begin;
        return q;
    }

    /*  Whether numbers are small enough that a tensor core adds their products with a block of x as floats, without
        rounding: numbers of 5 bits, of x of 14 bits, 32 of them. */
    static constexpr bool exact = !is_table && !halves && (bits == 4 || bits == 5);

    /*  Converts four bytes, which are not negative and below 128, to two pairs of T, less `base`. */
    template <typename T> static __device__ void pairs(uint32_t (&two)[2], uint32_t four, int base)
    {
        constexpr bool is_bf16 = ignis_is_same<T, ignis_bf16>;
        constexpr uint32_t above = is_bf16 ? 0x43434343 : 0x64646464, one = is_bf16 ? 0x3f803f80 : 0x3c003c00;
        const uint32_t less = (is_bf16 ? 0xc300c300u : 0xe400e400u) | (uint32_t)base * 0x10001u;
        /* 128 + byte, or 1024 + byte */
        two[0] = fma_two<T>(__byte_perm(four, above, 0x4140), one, less);
        two[1] = fma_two<T>(__byte_perm(four, above, 0x4342), one, less);
    }

    /*  Builds a lane's A of two products of m16n8k16, or of a warpgroup, for a block: elements 8 t to 8 t + 3 of both
        rows, then the next four. one: bits of both rows. Rows of x have the order of paired_place. */
    template <typename T>
    static __device__ void operand_pairs(uint32_t (&a)[2][4], const unit &w, int b, const uint32_t (&one)[2], int i)
    {
        static_assert(exact, "numbers of 4 and 5 bits");
        constexpr int base = is_signed ? 1 << (bits - 1) : 0;
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int part = 0; part < 2; part++) {
                uint32_t four = w.q[r][b] >> 4 * part & 0x0f0f0f0fu, two[2];
                if (ones)
                    four |= (one[r] >> (i + 4 * part) & 0x01010101u) << 4;
                pairs<T>(two, four ^ (uint32_t)base * 0x01010101u, base);
                a[part][r] = two[0];
                a[part][2 + r] = two[1];
            }
    }

    /*  Builds a lane's part of A: eight elements of both rows, from word `word` on. more, one: of both rows; i: which
        eight elements of the block. term: -1, or that which is needed. */
    template <int term>
    static __device__ void operand(uint32_t (&a)[4], const unit &w, int word, const uint2 (&more)[2],
                                   const uint32_t (&one)[2], int i)
    {
        constexpr uint32_t mask = 0x0f0f0f0fu << begin;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t q = w.q[r][word * words];
            if (bytes) {
                a[r] = q;
                a[2 + r] = w.q[r][(word * words + 1) % (4 * words)];
            } else if (is_table && bits == 4) {
                if (term >= 0)
                    look_up_half<term == 1>(q, a[r], a[2 + r]);
                else
                    look_up(q, a[r], a[2 + r]);
            } else {
                const uint32_t low = upper_bits(more[r].x, one[r], i), high = upper_bits(more[r].y, one[r] >> 4, i);
                if (nibbles) {
                    a[r] = and_or(q << begin, mask, low);
                    a[2 + r] = and_or(begin <= 4 ? q >> (4 - begin) : q << (begin - 4), mask, high);
                } else if (is_table) { /* bytes to nibbles */
                    a[r] = look_up_of_eight(__byte_perm(low | low >> 4, 0, 0x4420));
                    a[2 + r] = look_up_of_eight(__byte_perm(high | high >> 4, 0, 0x4420));
                } else {
                    a[r] = low;
                    a[2 + r] = high;
                }
            }
        }
    }

    /*  Returns the scaled product of a block in one row. whole: sums of x as whole numbers, for minima of 16 elements;
        x: scale of x, with the factor; sum: of x. */
    static __device__ float scaled(const int (&product)[parts], const int (&whole)[parts], const float (&of)[parts],
                                   const float (&least)[parts], float x, float sum)
    {
        float y = __fmul_rn((float)product[0], __fmul_rn(of[0], x));
        if (halves)
            y = fmaf((float)product[parts - 1], __fmul_rn(of[parts - 1], x), y);
        if (own_minima) {
            y = fmaf(-(float)whole[0], __fmul_rn(least[0], x), y);
            y = fmaf(-(float)whole[parts - 1], __fmul_rn(least[parts - 1], x), y);
        }
        return minima ? fmaf(-least[0], sum, y) : y;
    }

    /*  Adds weights times one row of x to sum: of row lane / 4 in lanes of even t, of row lane / 4 + 8 in the others.
        x: the 32 bytes of block t for column lane / 4, or zeros. */
    static __device__ void add_alone(float &sum, const unit &w, int number, const uint4 (&x)[2], float x_scale,
                                     float x_sum)
    {
        const uint32_t b[8] = {x[0].x, x[0].y, x[0].z, x[0].w, x[1].x, x[1].y, x[1].z, x[1].w};
        const bool odd = threadIdx.x % 2 != 0;
        const uint32_t one[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
        int found[parts][4] = {}, whole[parts][4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t a[4];
            operand<0>(a, w, i, w.more, w.one, i);
            ignis_ptx_mma_s8(found[i * parts / 4], a, b[2 * i], b[2 * i + 1]);
            if (terms > 1) {
                operand<1>(a, w, i, w.more, w.one, i);
                ignis_ptx_mma_s8(found[i * parts / 4], a, b[2 * i], b[2 * i + 1]);
            }
            if (own_minima)
                ignis_ptx_mma_s8(whole[i * parts / 4], one, b[2 * i], b[2 * i + 1]);
        }
        const scales s = scales_of(w, number);
        float y[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int product[parts], all[parts];
#pragma unroll
            for (int i = 0; i < parts; i++) {
                product[i] = 128 * found[i][2 * r] + found[i][2 * r + 1];
                all[i] = 128 * whole[i][2 * r] + whole[i][2 * r + 1];
            }
            y[r] = scaled(product, all, s.of[r], s.least[r], x_scale, x_sum);
        }
        float pair = odd ? y[1] : y[0];
        pair += __shfl_xor_sync(0xffffffff, odd ? y[0] : y[1], 1);
        sum += pair + __shfl_xor_sync(0xffffffff, pair, 2);
    }

    /*  Multiplies A with a row of x: its high bytes, then its low ones. */
    static __device__ void multiply(int (&found)[4], const uint32_t (&a)[4], const uint4 &x)
    {
        ignis_ptx_mma_s8(found, a, x.x, x.y);
#pragma unroll
        for (int &c : found)
            c *= 128;
        ignis_ptx_mma_s8(found, a, x.z, x.w);
    }

    /*  Adds weights times rows 8 n and on of x to sum[n], in the layout of an MMA's C. rows: of x, a multiple of 8.
        x_of(b, n): high and low bytes, two words each, of elements 8 t to 8 t + 7 of block b of row 8 n + lane / 4.
        scales_of_x(b, n, sums): scales of rows 8 n + 2 t and the next, and their sums. ahead: the next 8 rows of x are
        loaded before these are multiplied. */
    template <int N, bool ahead = true, typename Of, typename Scales>
    static __device__ void add(float (&sum)[N][4], int rows, const unit &w, int number, const Of &x_of,
                               const Scales &scales_of_x)
    {
        const int t = threadIdx.x % 4, quad = threadIdx.x % 32 - t;
        const scales own = scales_of(w, number);
        scales s[UNIT];
        uint32_t a[UNIT][4];
#pragma unroll
        for (int b = 0; b < UNIT; b++) {
            uint2 more[2] = {};
            uint32_t one[2] = {};
#pragma unroll
            for (int r = 0; r < 2; r++) {
#pragma unroll
                for (int i = 0; i < parts; i++) {
                    s[b].of[r][i] = __shfl_sync(0xffffffff, own.of[r][i], quad + b);
                    if (minima || own_minima)
                        s[b].least[r][i] = __shfl_sync(0xffffffff, own.least[r][i], quad + b);
                }
                if (twos) {
                    more[r].x = __shfl_sync(0xffffffff, w.more[r].x, quad + b);
                    more[r].y = __shfl_sync(0xffffffff, w.more[r].y, quad + b);
                }
                if (ones)
                    one[r] = __shfl_sync(0xffffffff, w.one[r], quad + b);
            }
            operand<-1>(a[b], w, b, more, one, t);
        }
        /* a branch each: else the compiler delays sums until registers spill */
        constexpr bool apart = N >= 4 && __CUDA_ARCH__ != 900;
        constexpr int buffers = ahead ? 2 : 1;
        uint4 x[buffers][UNIT];
        float2 of[buffers][UNIT];
        float sums[buffers][UNIT][2];
        const auto fetch = [&](int n) {
#pragma unroll
            for (int b = 0; b < UNIT; b++) {
                x[n % buffers][b] = x_of(b, n);
                of[n % buffers][b] = scales_of_x(b, n, sums[n % buffers][b]);
            }
        };
        if (ahead)
            fetch(0);
#pragma unroll
        for (int n = 0; n < N; n++) {
            float pair[4], y[4];
            if (apart && 8 * n >= rows)
                break;
            if (!ahead)
                fetch(n);
            else if (n + 1 < N)
                fetch(n + 1);
            if (N > 1)
                __syncwarp(); /* else the compiler loads operands one by one, to save registers that are free */
#pragma unroll
            for (int b = 0; b < UNIT; b++) {
                const uint4 now = x[n % buffers][b];
                const uint32_t all[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
                int found[parts][4] = {}, whole[parts][4] = {};
#pragma unroll
                for (int i = 0; i < parts; i++) {
                    const bool has = !halves || t / 2 == i;
                    const uint4 part = has ? now : make_uint4(0, 0, 0, 0);
                    multiply(found[i], a[b], part);
                    if (own_minima)
                        multiply(whole[i], all, part);
                }
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    int product[parts], sum_of_x[parts];
#pragma unroll
                    for (int i = 0; i < parts; i++) {
                        product[i] = found[i][c];
                        sum_of_x[i] = whole[i][c];
                    }
                    const float one =
                        scaled(product, sum_of_x, s[b].of[c / 2], s[b].least[c / 2],
                               c % 2 ? of[n % buffers][b].y : of[n % buffers][b].x, sums[n % buffers][b][c % 2]);
                    if (b % 2 == 0)
                        y[c] = one;
                    else if (b == 1)
                        pair[c] = y[c] + one;
                    else
                        sum[n][c] += pair[c] + (y[c] + one);
                }
            }
        }
    }
};

#endif /* IGNIS_WEIGHTS_BLOCKS_CUH */
