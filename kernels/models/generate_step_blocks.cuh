// SPDX-License-Identifier: MIT
/*  models/generate_step_blocks.cuh - quantised weights, for generate_step.cu

    Records of 8 adjacent rows come as one run of bytes, for each warp, or for all warps if slices of K are one chunk.
    Warps multiply them with x as whole numbers: weights_blocks.cuh. Types may differ between layers, and between the
    parts of a product: each stage of the ring has its type. Compiled with
    -DIGNIS_BLOCKS_TYPES=<the sum of 2^type of the types that occur>.
*/
#ifndef IGNIS_GENERATE_STEP_BLOCKS_CUH
#define IGNIS_GENERATE_STEP_BLOCKS_CUH

#include "generate_step.cuh"
#include "weights_blocks.cuh"

constexpr int MULTIPLYING_REGISTERS = 208, OTHER_REGISTERS = 88, WAY_BYTES = 40 << 10;
/*  bytes that a block prefetches to the L2 cache, and bytes per cycle */
constexpr int AHEAD_BYTES = 300 << 10, AHEAD_RATE = 15;

constexpr long long TYPES = IGNIS_BLOCKS_TYPES;
constexpr bool SEVERAL = (TYPES & (TYPES - 1)) != 0;
__device__ constexpr bool has_type(int type) { return TYPES >> type & 1; }
__device__ constexpr int first_type()
{
    int type = 0;
    while (!has_type(type))
        type++;
    return type;
}
constexpr int ONLY_TYPE = first_type(); /* if TYPES has one type */

/*  The host has the same numbers. */
constexpr int GRAIN = 32 * RECORD, PARTS = 3, UNITS = RECORD / UNIT;                          /* UNITS: per record */
constexpr int RECORD_BYTES = has_type(BLOCKS_Q8_0) ? 272 : has_type(BLOCKS_Q6_K) ? 208 : 144; /* at most */
constexpr int PIECE = RECORD_BYTES > 144 ? 1 : 2, PIECE_BYTES = 2 * TOGETHER * PIECE * RECORD_BYTES;
constexpr int SCALES_BYTES = has_type(BLOCKS_Q6_K) ? 4096 : 0; /* of all records of a tile; K is small enough */
constexpr int SCALES_AT = SLICES * PIECE_BYTES, TYPE_AT = SCALES_AT + SCALES_BYTES, STAGE_BYTES = TYPE_AT + 16;

struct step_source {
    const int own;
    ignis__decode_step_part parts[PARTS], next[PARTS];
    const uint8_t *from, *scales;   /* of the tile's first eight rows */
    long long between;              /* bytes from there to the second eight */
    int rows, type, bytes, further; /* bytes: of eight records; further: rows from the first eight to the second */
    /* ahead: stages after the ring that are prefetched; pause: cycles between two halves */
    int on_way, ahead, pause;

    __device__ explicit step_source(int own) : own(own) {}
    /*  Loads the parts of the next product: early, because the load takes as long as a copy of weights. */
    __device__ void load(const ignis__decode_step_weights &weights)
    {
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            next[i] = weights.parts[i];
    }
    __device__ void begin(const step_product &x)
    {
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            parts[i] = next[i];
        rows = x.gated ? 2 * x.n : x.n;
        const int of_half = BRINGERS * HALF * x.size * TOGETHER * RECORD_BYTES; /* bytes, at most */
        on_way = max(2, WAY_BYTES / of_half);
        ahead = AHEAD_BYTES / (2 * of_half);
        pause = of_half / AHEAD_RATE;
    }
    __device__ void tile(const step_product &x, int low, int high)
    {
        const uint8_t *records = parts[0].records;
        int first = 0, end = parts[1].first;
        type = parts[0].type;
#pragma unroll
        for (int i = 1; i < PARTS; i++)
            if (low >= parts[i].first) {
                records = parts[i].records;
                type = parts[i].type;
                first = parts[i].first;
                end = i + 1 < PARTS ? parts[(i + 1) % PARTS].first : rows;
            }
        bytes = TOGETHER * record_bytes(SEVERAL ? type : ONLY_TYPE);
        further = high < rows ? high - low : 0; /* the second eight may not exist */
        from = records + (long long)((low - first) / TOGETHER) * (x.grains * bytes);
        between = (long long)(further / TOGETHER) * (x.grains * bytes);
        if (has_type(BLOCKS_Q6_K))
            scales = records + (long long)((end - first + TOGETHER - 1) / TOGETHER) * (x.grains * bytes) +
                     (long long)(low - first) * 2 * x.grains;
    }
    /*  Calls each(to, from, bytes) for the bytes of eight rows in a chunk of each warp of a half, `begin` grains
        after the start of its slice. There is one run if slices are one chunk. It takes few instructions, because all
        weights wait for this thread. */
    template <typename Each> __device__ void runs(int half, const step_product &x, int begin, Each each) const
    {
        if (x.pieces == 1) {
            const int middle = min(HALF * x.size, x.grains), at = half * middle * bytes;
            each(at, at, (half ? x.grains - middle : middle) * bytes);
            return;
        }
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            const int warp = half * HALF + i;
            each(warp * x.size * bytes, (warp * x.per_slice + begin) * bytes, max(x.grains_of(warp, begin), 0) * bytes);
        }
    }
    /*  Returns the bytes of the scales of eight rows, for all warps. They come with the first half. */
    __device__ int bytes_of_scales(int half, const step_product &x) const
    {
        return has_type(BLOCKS_Q6_K) && type == BLOCKS_Q6_K && half == 0 ? 2 * TOGETHER * x.grains : 0;
    }
    __device__ const uint8_t *scales_of(int eight, const step_product &x) const
    {
        return scales + (long long)eight * further * 2 * x.grains;
    }
    /*  Starts the copies of the first or the second eight rows, with their scales. */
    __device__ void ask(const step_ring &ring, int stage, int half, const step_product &x, int begin) const
    {
        const uint32_t stage_at = ring.stages + stage * STAGE_BYTES, barrier = ring.full_of(2 * stage + half);
        const int of_scales = bytes_of_scales(half, x);
        int all = of_scales;
        if (SEVERAL && own == 0 && half == 0)
            *(int *)__cvta_shared_to_generic(stage_at + TYPE_AT) = type;
        runs(half, x, begin, [&](int, int, int some) { all += some; });
        ignis_ptx_mbarrier_arrive_expect(barrier, all);
        runs(half, x, begin, [&](int to, int at, int some) {
            if (some > 0)
                ignis_ptx_bulk_load(stage_at + own * (SLICES * x.size * bytes) + to, from + own * between + at, some,
                                    barrier);
        });
        if (of_scales)
            ignis_ptx_bulk_load(stage_at + SCALES_AT + own * of_scales, scales_of(own, x), of_scales, barrier);
    }
    /*  Prefetches both eights. */
    __device__ void prefetch(int half, const step_product &x, int begin) const
    {
        const int of_scales = bytes_of_scales(half, x);
#pragma unroll 1
        for (int r = 0; r < 2; r++) {
            runs(half, x, begin, [&](int, int at, int some) {
                if (some > 0)
                    ignis_ptx_bulk_prefetch(from + r * between + at, some);
            });
            if (of_scales)
                ignis_ptx_bulk_prefetch(scales_of(r, x), of_scales);
        }
    }
};

/*  A row of x as whole numbers: of a block of 32 elements, high bytes, then low ones. */
struct step_row {
    static constexpr bool NUMBERS = false;
    static constexpr int EACH = 16; /* elements of a lane */
    T *const at;
    uint4 *const zeros;               /* four words, before the scales */
    float *const scales, *const sums; /* of blocks; sums for minima, in the second half of `room` */

    __device__ step_row(T *at, float *room)
        : at(at), zeros((uint4 *)room), scales(room + 16), sums(scales + ((float *)at - scales) / 2)
    {
        if (threadIdx.x < 4)
            zeros[threadIdx.x] = make_uint4(0, 0, 0, 0);
    }
    __device__ void settle(int begin, int end, int k) const
    {
        fill(begin, end, k, [&](int i) {
            const uint4 *from = (const uint4 *)(at + i), words[EACH / 8] = {from[0], from[1]};
            ignis_pack<T, EACH> x;
            memcpy(&x, words, sizeof x);
            return x;
        });
    }
    /*  Converts elements to whole numbers. They may be in place: a block is converted by two lanes at once. All
        blocks are whole. */
    template <typename Get> __device__ void fill(int begin, int end, int k, Get get) const
    {
#pragma unroll 1
        /* of whole grains: all lanes of a warp, or half of them */
        for (int first = begin; first < end; first += 32 * EACH) {
            const int own = first + threadIdx.x % 32 * EACH, block = own / 32;
            ignis_pack<T, EACH> x = {};
            if (own < min(end, k))
                x = get(own);
            const whole_numbers<EACH, has_type(BLOCKS_Q4_K)> whole(x);
            if (own >= end)
                continue;
            uint4 *to = (uint4 *)at + block * 4 + own / EACH % 2;
            to[0] = make_uint4(whole.high[0], whole.high[1], whole.high[2], whole.high[3]);
            to[2] = make_uint4(whole.low[0], whole.low[1], whole.low[2], whole.low[3]);
            if (own % 32 != 0)
                continue;
            scales[block] = whole.scale;
            if (has_type(BLOCKS_Q4_K))
                sums[block] = whole.sum;
        }
    }
};

/*  A lane's operands of a unit of x: the 32 bytes of its column, which are zeros except for lanes of four rows; scale
    and sum of block t. */
struct unit_of_x {
    uint4 of[2];
    float scale, sum;

    __device__ unit_of_x() {}
    __device__ unit_of_x(const step_row &row, int unit)
    {
        const int lane = threadIdx.x % 32, block = unit * UNIT + lane % 4;
        const bool own = lane / 8 == lane % 4;
        const uint4 *there = (const uint4 *)row.at + block * 4 + lane / 4 % 2 * 2;
        /* in other banks than `there`: rows and zeros begin at multiples of 128 bytes */
        of[0] = *(own ? there : row.zeros + 3);
        of[1] = *(own ? there + 1 : row.zeros + 2);
        scale = row.scales[block];
        sum = has_type(BLOCKS_Q4_K) ? row.sums[block] : 0;
    }
};

/*  Adds `count` records of this lane's rows, times x, to sum. The lane has rows `own` and own + 8 of the tile; the
    first record has number `record` in its row. There are no branches, so the loads of all units are in flight
    together. */
template <int type, int count, typename Of>
__device__ inline void add_records(float &sum, const uint8_t *stage, const step_product &x, int record, int own,
                                   const Of &of_x)
{
    typedef blocks_rows<type> weights;
    constexpr int bytes = record_bytes(type);
    const uint8_t *from = stage + threadIdx.x / 32 * (x.size * TOGETHER * bytes) + own * bytes;
    const int apart = SLICES * x.size * TOGETHER * bytes;
#pragma unroll
    for (int i = 0; i < count * UNITS; i++) {
        typename weights::unit w;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            weights::template read<true>(w, r, from + r * apart + i / UNITS * TOGETHER * bytes, i % UNITS,
                                         [](const uint8_t *at) { return *(const uint4 *)at; });
            if (weights::halves)
                w.d[r] = ((const uint16_t *)(stage + SCALES_AT))[(r * TOGETHER + own) * x.grains + record + i / UNITS];
        }
        const unit_of_x unit = of_x(i);
        weights::add_alone(sum, w, record * UNITS + i, unit.of, unit.scale * weights::factor, unit.sum);
    }
}

/*  As add_records, for a warp's chunk, if it has this type. */
template <int type, typename Of>
__device__ inline void add_piece(float &sum, int type_there, const uint8_t *stage, const step_product &x, int record,
                                 int some, int own, const Of &of_x)
{
    if (!has_type(type) || type_there != type)
        return;
    if (some == PIECE)
        add_records<type, PIECE>(sum, stage, x, record, own, of_x);
    else if (some > 0)
        add_records<type, 1>(sum, stage, x, record, own, of_x);
}

/*  Multiplies the tiles of a block. KEPT: slices of K are one chunk, and a warp keeps its part of x in registers. */
template <bool KEPT>
__device__ inline void multiply_tiles(const step_ring &ring, const step_product &x, const step_row &row,
                                      step_turn &stage, step_turn &turn)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = row_of_lanes(lane / 4),
              slice = warp * x.per_slice;
    const uint8_t *const stages = (const uint8_t *)__cvta_shared_to_generic(ring.stages);
    float *const found = ring.found_of(0, warp) + own + lane % 4 * 8;
    unit_of_x kept[PIECE * UNITS];
#pragma unroll
    for (int i = 0; i < PIECE * UNITS && KEPT; i++)
        if (i < x.size * UNITS)
            /* clamped: units that do not exist are not used */
            kept[i] = unit_of_x(row, min(slice * UNITS + i, x.grains * UNITS - 1));
#pragma unroll 1
    for (int tile = x.first; tile < x.tiles; tile += gridDim.x) {
        float sum = 0;
        const auto add = [&](int piece, const auto &of_x) {
            const uint8_t *from = stages + stage.at * STAGE_BYTES;
            const int begin = piece * x.size, some = x.grains_of(warp, begin);
            ring.wait(stage, warp / HALF);
            if (has_type(BLOCKS_Q6_K)) /* the scales of all warps come with the first half */
                ring.wait(stage, 0);
            const int type = SEVERAL ? *(const int *)(from + TYPE_AT) : ONLY_TYPE;
            add_piece<BLOCKS_Q4_0>(sum, type, from, x, slice + begin, some, own, of_x);
            add_piece<BLOCKS_Q4_K>(sum, type, from, x, slice + begin, some, own, of_x);
            add_piece<BLOCKS_Q8_0>(sum, type, from, x, slice + begin, some, own, of_x);
            add_piece<BLOCKS_Q6_K>(sum, type, from, x, slice + begin, some, own, of_x);
            add_piece<BLOCKS_IQ4_NL>(sum, type, from, x, slice + begin, some, own, of_x);
            add_piece<BLOCKS_IQ4_XS>(sum, type, from, x, slice + begin, some, own, of_x);
            add_piece<BLOCKS_MXFP4>(sum, type, from, x, slice + begin, some, own, of_x);
            ring.took(stage);
        };
        if (KEPT)
            add(0, [&](int i) { return kept[i]; });
        else
#pragma unroll 1
            for (int piece = 0; piece < x.pieces; piece++)
                add(piece, [&](int i) { return unit_of_x(row, (slice + piece * x.size) * UNITS + i); });
        ignis_mbarrier_wait(ring.found_free + 8 * turn.at, turn.phase);
        if (lane % 4 < 2)
            found[turn.at * SLICES * COLUMN] = sum;
        ring.has_found(turn);
    }
}

template <bool with_keys>
__device__ inline void multiply(const step_ring &ring, const step_product &x, const step_row &row, step_turn &stage,
                                step_turn &turn)
{
    /* with keys, or with larger heads, registers do not suffice */
    if (!with_keys && IGNIS_HEAD_DIM < 256 && x.pieces == 1)
        multiply_tiles<true>(ring, x, row, stage, turn);
    else
        multiply_tiles<false>(ring, x, row, stage, turn);
}

#endif /* IGNIS_GENERATE_STEP_BLOCKS_CUH */
