// SPDX-License-Identifier: MIT
/*  gemm_hopper_ahead.cuh - the multiplying warpgroups of gemm_hopper.cu with tiles of 192 columns

    Two sets of 64 x 192 sums fit into the registers of a warpgroup: while it multiplies a tile, it finishes
    the one before, 16 columns at each of the first 12 steps of k, which is what k must have at least. So the
    tensor cores never wait for what comes after a product. */
#ifndef IGNIS_GEMM_HOPPER_AHEAD_CUH
#define IGNIS_GEMM_HOPPER_AHEAD_CUH

constexpr int STRIP = 128 / (int)sizeof(T), STRIPS = BN / STRIP,
              PIECES = STRIP / 16; /* columns; of a tile, and of 16 columns of a strip */

/*  The epilogue of a warpgroup. A strip of results passes through a slab of its own to TMA, and the
    activation's input through another one. So a strip takes the slabs of the second strip before it, or of
    the third. Gated ones have two slabs: the gate comes in the first one, and leaves as the result or its
    gradient. The multiplicand leaves or comes in the second one, which is the second matrix of `other`; its
    gradient is that of `out`. */
struct Finish {
    static constexpr bool IS_GATED = IGNIS_ACTIVATION == IGNIS__ACTIVATION_GATED, IS_GRADIENT = IGNIS_OTHER == GRADIENT;
    static constexpr bool KEEPS = IGNIS_ACTIVATION != IGNIS__ACTIVATION_NONE && IGNIS_OTHER == NO_OTHER;
    static constexpr bool LOOKS_AHEAD = IS_GRADIENT && !IS_GATED; /* others gain nothing */
    static constexpr int SLABS = KEEPS || IS_GATED ? 2 : 1,
                         RING = SLABS == 2 ? 2 : 3; /* of a strip; strips that have slabs at a time */
    const Product &p;
    const ignis__tensor_map *out, *other;
    uint32_t room, barriers; /* of the slabs; of the slabs of the other matrix */
    int group, turn, odd;    /* the strip's slabs; odd: 1 in each second round of them */
    Chunks chunks;
    uint32_t next_other[4]; /* of the next part, with LOOKS_AHEAD */

    __device__ void advance()
    {
        if (++turn == RING) {
            turn = 0;
            odd ^= 1;
        }
    }

    __device__ uint32_t slab(int turn) const { return room + turn * SLABS * SLAB; }

    /*  Requests a strip of the other matrix for a turn. */
    __device__ void load_other(const Spot &place, int strip, int turn) const
    {
        constexpr int count = IS_GATED && IS_GRADIENT ? 2 : 1;
        ignis_ptx_mbarrier_arrive_expect(barriers + 8 * turn, count * SLAB);
#pragma unroll
        for (int i = 0; i < count; i++)
            ignis_ptx_tensor_load<3>(slab(turn) + i * SLAB, other, barriers + 8 * turn, place.column + STRIP * strip,
                                     place.row, place.batch + i);
    }

    /*  Asks for the first two, as each strip asks for the one that comes two later. Each that has two slabs
        asks for the next one. */
    __device__ void begin(const Spot &place) const
    {
        if (IGNIS_OTHER && threadIdx.x % 128 == 0) {
            load_other(place, 0, 0);
            if (!IS_GATED)
                load_other(place, 1, 1);
        }
    }

    /*  Gates two results, or computes their gradients: of the gate's two numbers and of the multiplicands, in
        place. */
    __device__ static void gate(float *x, uint32_t &first, uint32_t &second)
    {
        const auto of_gate = ignis_pack_of<ignis_pack<Half, 2>>(first);
        const float gate[2] = {ignis_wide_at(of_gate, 0), ignis_wide_at(of_gate, 1)};
        float s[2], dgate[2], dup[2];
        sigmoid_two(s, gate);
        if (!IS_GRADIENT)
            second = ignis_round_two<Half>(x[0], x[1]);
        const auto of_up = ignis_pack_of<ignis_pack<Half, 2>>(second);
        const float up[2] = {ignis_wide_at(of_up, 0), ignis_wide_at(of_up, 1)};
        if (IS_GRADIENT) {
#pragma unroll
            for (int i = 0; i < 2; i++)
                gated_gradients(dgate[i], dup[i], x[i], gate[i], up[i], s[i]);
            first = ignis_round_two<Half>(dgate[0], dgate[1]);
            second = ignis_round_two<Half>(dup[0], dup[1]);
        } else {
            first = ignis_round_two<Half>(gate[0] * s[0] * up[0], gate[1] * s[1] * up[1]);
        }
    }

    __device__ void load_bias(uint32_t (&bias)[2], const Spot &place, int strip, int piece) const
    {
        if (BIASED && p.bias)
            ::load_bias(p, bias, place.column + STRIP * strip + 16 * piece);
    }

    /*  As above, for f32, from a column of out on: a lane has two columns of both chunks of 8. */
    template <int piece> __device__ __forceinline__ void put_words(const float (*sum)[4], int column)
    {
        const int lane = threadIdx.x % 32, row = lane / 4;
        const uint32_t line = slab(turn) + (threadIdx.x / 32 % 4 * 16 + row) * 128 + lane % 2 * 8;
        column += lane % 4 * 2;
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const uint32_t at = line + ((4 * piece + 2 * c + lane % 4 / 2) ^ row) * 16;
            const bool biased = p.bias && column + 8 * c < (int)p.n;
            const auto bias = biased ? ignis_load<2>(p.bias + column + 8 * c) : ignis_pack<T, 2>();
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const auto put = [&](uint32_t to, const Wide(&x)[2]) {
                    ignis_store_shared((T *)__cvta_shared_to_generic(to + 1024 * i), ignis_pack_round<T, 2>(x));
                };
                Wide x[2];
#pragma unroll
                for (int e = 0; e < 2; e++)
                    x[e] = sum[c][2 * i + e] + (biased ? Wide(bias[e]) : 0);
                if (KEEPS && p.pre)
                    put(at + SLAB, x);
#pragma unroll
                for (int e = 0; e < 2; e++)
                    x[e] = activated(x[e]);
                put(at, x);
            }
        }
    }

    /*  Finishes a part of a strip, whose sums are the first ones; next is the place of the tile after this
        one, if there is one. */
    template <int piece>
    __device__ __forceinline__ void run(float (*sum)[4], const uint32_t (&bias)[2], const Spot &place, int strip,
                                        const Spot &next, bool has_next)
    {
        const bool first = threadIdx.x % 128 == 0;
        const auto sync = [&] { ignis_ptx_bar_sync(1 + group, 128); };
        const uint32_t at = chunks.at(2 * piece) + turn * SLABS * SLAB;
        if (piece == 0) {
            if (IGNIS_OTHER) {
                ignis_mbarrier_wait(barriers + 8 * turn, odd);
            } else {
                if (first)
                    ignis_ptx_bulk_wait_read<RING - 1>();
                sync();
            }
        }
        if (IS_GATED && piece == 1 && first &&
            (strip < STRIPS - 1 || has_next)) { /* what the strip before stored has been read by now */
            ignis_ptx_bulk_wait_read<0>();
            load_other(strip < STRIPS - 1 ? place : next, (strip + 1) % STRIPS, turn ^ 1);
        }
        if (!HALVES) {
            put_words<piece>(sum + 2 * piece, place.column + STRIP * strip + 16 * piece);
            if (piece == PIECES - 1)
                end(place, strip, next, has_next);
            return;
        }
        uint32_t words[4], second[4];
        if (LOOKS_AHEAD && piece > 0) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                words[i] = next_other[i];
        } else if (IGNIS_OTHER) {
            ignis_ptx_ldmatrix(words, at);
        }
        if (LOOKS_AHEAD && piece < PIECES - 1)
            ignis_ptx_ldmatrix(next_other, chunks.at(2 * piece + 2) + turn * SLABS * SLAB);
        if (IS_GATED && IS_GRADIENT)
            ignis_ptx_ldmatrix(second, at + SLAB);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float *const x = &sum[2 * piece + i / 2][i % 2 * 2];
            if (BIASED && p.bias) {
                const auto two = ignis_pack_of<ignis_pack<Half, 2>>(bias[i / 2]);
                x[0] += ignis_wide_at(two, 0), x[1] += ignis_wide_at(two, 1);
            }
            if (IS_GATED) {
                gate(x, words[i], second[i]);
                continue;
            }
            if (IGNIS_OTHER)
                combine(x, words[i]);
            words[i] = ignis_round_two<Half>(x[0], x[1]);
        }
        if (IS_GATED && (IS_GRADIENT || p.keeps))
            ignis_ptx_stmatrix(at + SLAB, second[0], second[1], second[2], second[3]);
        if (KEEPS) {
            if (p.pre)
                ignis_ptx_stmatrix(at + SLAB, words[0], words[1], words[2], words[3]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                words[i] = activate(words[i]);
        }
        ignis_ptx_stmatrix(at, words[0], words[1], words[2], words[3]);
        if (piece == PIECES - 1)
            end(place, strip, next, has_next);
    }

    /*  Sums the 64 rows of a strip, 16 columns a warp, from the memory that it is stored from: a product with
        ones. */
    __device__ void sum_columns(const Spot &place, int strip) const
    {
        const uint32_t ones[4] = {ONES, ONES, ONES, ONES};
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4,
                  column = place.column + STRIP * strip + 16 * warp + 2 * lane;
        float two[2][4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t words[4];
            const int row = 16 * i + lane % 16, chunk = 2 * warp + lane / 16;
            ignis_ptx_ldmatrix_transposed(words, slab(turn) + row * 128 + (chunk ^ row % 8) * 16);
            ignis_mma<Half>(two[0], ones, words[0], words[1]);
            ignis_mma<Half>(two[1], ones, words[2], words[3]);
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (lane < 4 && column + 8 * i < (int)p.n && place.row < (int)p.m)
                *(float2 *)(p.column_sums + (long long)(place.row / 64) * p.n + column + 8 * i) =
                    make_float2(two[i][0], two[i][1]);
    }

    __device__ void end(const Spot &place, int strip, const Spot &next, bool has_next)
    {
        const int column = place.column + STRIP * strip;
        const bool first = threadIdx.x % 128 == 0;
        const uint32_t slab = this->slab(turn);
        ignis_ptx_fence_proxy_async();
        ignis_ptx_bar_sync(1 + group, 128);
        const bool exists = place.row < (int)p.m;
        if (first) {
            if (column < (int)p.n && exists) {
                if ((KEEPS && p.pre) || (IS_GATED && (IS_GRADIENT || p.keeps)))
                    ignis_ptx_tensor_store<3>(IS_GRADIENT ? out : other, slab + SLAB, column, place.row,
                                              place.batch + IS_GATED);
                ignis_ptx_tensor_store<3>(out, slab, column, place.row, place.batch);
            }
            ignis_ptx_bulk_commit();
            if (IGNIS_OTHER && !IS_GATED && (strip == 0 || has_next)) {
                ignis_ptx_bulk_wait_read<1>();
                load_other(strip == 0 ? place : next, (strip + 2) % STRIPS, (turn + 2) % RING);
            }
        }
        if (IS_GRADIENT && !IS_GATED && p.column_sums)
            sum_columns(place, strip);
        advance();
    }
};

/*  Makes the strip after the first one the first one. */
__device__ inline void shift(float (&sum)[BN / 8][4])
{
#pragma unroll
    for (int c = STRIP / 8; c < BN / 8; c++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[c - STRIP / 8][i] = sum[c][i];
}

#endif /* IGNIS_GEMM_HOPPER_AHEAD_CUH */
