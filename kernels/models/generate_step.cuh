// SPDX-License-Identifier: MIT
/*  models/generate_step.cuh - products of generate_step.cu, and the ring that weights come to

    A kind of weights, generate_step_dense.cuh or generate_step_blocks.cuh, has
        .._REGISTERS                of a thread that multiplies, and of another one
        GRAIN, PIECE, STAGE_BYTES   elements of K that stay together; grains of a chunk of a warp's slice of K, at most;
                                    bytes of a stage of the ring
        ignis__decode_step_weights                the place of a product's weights, as the host writes it
        step_source                 copies its part of half a stage, as one of BRINGERS. on_way: halves in flight
        step_row(at, room)          a row of x in shared memory. A warp writes its slice, elements `begin` to `end`,
                                    with zeros after the first k: by fill(begin, end, k, get), where get(i) returns
                                    the EACH elements from i on; or by settle(begin, end, k) if they are there as
                                    numbers. NUMBERS: they stay as they are
        multiply<with_keys>         multiplies the tiles of a block; with_keys: registers have keys for attention, too
*/
#ifndef IGNIS_GENERATE_STEP_CUH
#define IGNIS_GENERATE_STEP_CUH

#include "gemv.cuh"
#include "hopper.cuh"
#include "shared/models/weights.h"
#include "shared/models/fused_step.h"

constexpr int BRINGERS = 2;      /* warps that start copies of weights */
constexpr int HALF = SLICES / 2; /* warps that share half a stage, which may arrive before the other half */
constexpr int TURNS = 4;         /* tiles whose slices wait to be added */

/*  A product, as a block sees it. A warp has a slice of K, in grains, and its chunks: see gemv_mma.cu and
    gemv_blocks.cu. */
struct step_product : ignis__decode_step_shape {
    int first; /* the first tile of this block; the next ones are gridDim.x apart */
    int grains, per_slice, pieces, size;

    /*  Returns the grains of a warp's chunk that begins `begin` grains after the start of its slice; below 1 if it
        has none. */
    __device__ int grains_of(int warp, int begin) const
    {
        return min(min(size, per_slice - begin), grains - warp * per_slice - begin);
    }
};

/*  A position in a ring, with its phase. */
struct step_turn {
    int at;
    uint32_t phase;

    __device__ void go_on(int all)
    {
        if (++at == all)
            at = 0, phase ^= 1;
    }
};

/*  The ring of a block, in shared memory. Addresses of barriers: of half stages, which all bringers fill, of stages,
    and of tiles. */
struct step_ring {
    uint32_t stages, full, empty, found_full, found_free;
    int count;          /* stages */
    float *const found; /* [TURNS][SLICES][COLUMN] */

    /*  Returns the barrier of a half stage. Halves are numbered over all stages. */
    __device__ uint32_t full_of(int half) const { return full + 8 * half; }
    /*  Waits for a half of a stage. */
    __device__ void wait(const step_turn &stage, int half) const
    {
        ignis_mbarrier_wait(full_of(2 * stage.at + half), stage.phase);
    }

    /*  Releases a stage that this warp has read; the next function announces this warp's result of a tile. */
    __device__ void took(step_turn &stage) const
    {
        ignis_warp_arrive(empty + 8 * stage.at);
        stage.go_on(count);
    }
    __device__ void has_found(step_turn &turn) const
    {
        ignis_warp_arrive(found_full + 8 * turn.at);
        turn.go_on(TURNS);
    }
    __device__ float *found_of(int turn, int warp) const { return found + (turn * SLICES + warp) * COLUMN; }
};

#endif /* IGNIS_GENERATE_STEP_CUH */
