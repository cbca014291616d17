// SPDX-License-Identifier: MIT
/*  models/generate_step_dense.cuh - dense weights, of T, for generate_step.cu

    TMA copies them as boxes of 16 rows. If the rows of a tile are not adjacent, a box has two planes of 8 rows.
    Chunks of a row are swizzled, so lanes read without conflicts.
*/
#ifndef IGNIS_GENERATE_STEP_DENSE_CUH
#define IGNIS_GENERATE_STEP_DENSE_CUH

#include "generate_step.cuh"
#include "weights.cuh"

constexpr int MULTIPLYING_REGISTERS = IGNIS_HEAD_DIM < 256 ? 216 : 224,
              OTHER_REGISTERS = IGNIS_HEAD_DIM < 256 ? 72 : 56;
constexpr int WAY_BYTES = 64 << 10;
constexpr int GRAIN = 32, PIECE = 4;
/*  elements of a row of the TMA maps' tiles, which have 16 rows; the host has the same */
constexpr int BOX = 64, BOX_BYTES = 16 * 2 * BOX;
constexpr int PIECE_BYTES = PIECE * GRAIN / BOX * BOX_BYTES, STAGE_BYTES = SLICES * PIECE_BYTES;

struct step_source {
    const int own;
    const ignis__tensor_map *map, *next;
    int period, boxes, plane, row, on_way; /* period: rows of the map's second dimension */

    __device__ explicit step_source(int own) : own(own) {}
    __device__ void load(const ignis__decode_step_weights &weights) { next = &weights.map; }
    __device__ void begin(const step_product &x)
    {
        map = next;
        period = x.kind == IGNIS__GEMV_CACHE ? x.head_dim / 2 : x.n;
        boxes = (GRAIN * x.size + BOX - 1) / BOX;
        on_way = WAY_BYTES / (boxes * HALF * BOX_BYTES);
    }
    __device__ void tile(const step_product &, int low, int)
    {
        plane = low / period;
        row = low - plane * period;
    }
    /*  Starts the copies of one box of a chunk of each warp of a half, `begin` grains after the start of its slice.
        Elements outside of the matrix arrive as zeros. */
    __device__ void ask(const step_ring &ring, int stage, int half, const step_product &x, int begin) const
    {
        const uint32_t barrier = ring.full_of(2 * stage + half),
                       to = ring.stages + stage * STAGE_BYTES + own * BOX_BYTES;
        /* warps that have a part of this chunk */
        const int first = half * HALF, all = (x.grains - begin + x.per_slice - 1) / x.per_slice;
        const int count = own < boxes ? min(max(all - first, 0), HALF) : 0;
        ignis_ptx_mbarrier_arrive_expect(barrier, count * BOX_BYTES);
#pragma unroll
        for (int i = 0; i < HALF; i++)
            if (i < count)
                ignis_ptx_tensor_load<3>(to + (first + i) * PIECE_BYTES, map, barrier,
                                         GRAIN * ((first + i) * x.per_slice + begin) + own * BOX, row, plane);
    }
};
static_assert(PIECE_BYTES == BRINGERS * BOX_BYTES, "each has a box of a piece");

struct step_row {
    static constexpr bool NUMBERS = true; /* elements are used as they are */
    static constexpr int EACH = 4;
    T *const at;

    __device__ step_row(T *at, float *) : at(at) {}
    __device__ void settle(int begin, int end, int k) const
    {
        for (int i = max(begin, k) + threadIdx.x % 32 * 4; i < end; i += 128)
            ignis_store_shared(at + i, ignis_pack<T, 4>{});
    }
    template <typename Get> __device__ void fill(int begin, int end, int k, Get get) const
    {
#pragma unroll 1
        for (int i = begin + threadIdx.x % 32 * 4; i < min(end, k); i += 128)
            ignis_store_shared(at + i, get(i));
        settle(begin, end, k);
    }
};

/*  Multiplies the tiles of a block. A chunk is in flight to registers while the previous one is multiplied. */
template <bool with_keys>
__device__ inline void multiply(const step_ring &ring, const step_product &x, const step_row &row, step_turn &stage,
                                step_turn &turn)
{
    typedef dense_weights<T> weights;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = row_of_lanes(lane / 4);
    const int begin = warp * x.per_slice, end = min(begin + x.per_slice, x.grains), pieces = x.pieces, size = x.size;
    const T *const of_x = row.at + lane % 4 * 8;
    const char *const of_ring =
        (const char *)__cvta_shared_to_generic(ring.stages) + warp * PIECE_BYTES + own * 2 * BOX;
    int left = ((x.tiles - 1 - x.first) / gridDim.x + 1) * pieces, piece = 0;
    float sum[1][4] = {{0, 0, 0, 0}};
    weights::block first[PIECE], second[PIECE];
    const auto take = [&](weights::block(&to)[PIECE]) {
        const char *from = of_ring + stage.at * STAGE_BYTES;
        ring.wait(stage, warp / HALF);
#pragma unroll
        for (int i = 0; i < PIECE; i++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                to[i].rows[j] = *(const uint4 *)(from + 32 * i / BOX * BOX_BYTES + j * BOX_BYTES / 2 +
                                                 ((32 * i % BOX / 8 + lane % 4) ^ own) * 16);
    };
    const auto step = [&](const weights::block(&now)[PIECE], weights::block(&next)[PIECE]) {
        const int from = begin + piece * size, some = min(size, end - from); /* the rest is another slice's */
        uint4 part[PIECE][1];
#pragma unroll
        for (int i = 0; i < PIECE; i++)
            /* elements of other slices, or after the row, are loaded and not used */
            part[i][0] = *(const uint4 *)(of_x + 32 * (from + i));
        if (some > 0)
            weights::add<1>(sum, now[0], part[0]);
        if (--left > 0) /* after the first operands: loads below would delay them */
            take(next);
#pragma unroll
        for (int i = 1; i < PIECE; i++)
            if (i < some)
                weights::add<1>(sum, now[i], part[i]);
        if (left > 0)
            ring.took(stage);
        if (++piece < pieces)
            return;
        piece = 0;
        ignis_mbarrier_wait(ring.found_free + 8 * turn.at, turn.phase);
        put_slice<1>(ring.found_of(turn.at, warp), sum, own);
        sum[0][0] = sum[0][1] = sum[0][2] = sum[0][3] = 0;
        ring.has_found(turn);
    };
    take(first);
    ring.took(stage);
#pragma unroll 1
    do {
        step(first, second);
        if (left > 0)
            step(second, first);
    } while (left > 0);
}

#endif /* IGNIS_GENERATE_STEP_DENSE_CUH */
