// SPDX-License-Identifier: MIT
/*  generate_step.cuh - what generate_step.cu and the two kinds of weights it takes share: products, and the ring that weights come to

    A kind of weights, generate_step_dense.cuh or generate_step_blocks.cuh, has
        .._REGISTERS                of a thread that multiplies, and of another one
        GRAIN, PIECE, STAGE_BYTES   elements of K that stay together; grains of a piece of a warp's slice of K, at most; bytes of a stage of the ring
        step_weights                where those of a product are, as ignis.h tells it
        step_source                 asks for its part of a half of a stage, as one of BRINGERS. on_way: so many of these are on their way at a time
        step_row(at, room)          a row of x in shared memory. A warp puts its slice there, elements `begin` to `end` with zeros behind the first k: by
                                    fill(begin, end, k, get) with get(i), the EACH elements from i on; or by settle(begin, end, k) if they are
                                    there as numbers. NUMBERS: they stay as they are
        multiply<with_keys>         the tiles of a block; with_keys: registers have keys for attention, too
*/
#ifndef IGNIS_GENERATE_STEP_CUH
#define IGNIS_GENERATE_STEP_CUH

#include "gemv.cuh"
#include "hopper.cuh"

constexpr int BRINGERS = 2;      /* warps that ask for weights */
constexpr int HALF = SLICES / 2; /* warps that have a half of each stage, which may be there before the other one */
constexpr int TURNS = 4;         /* tiles whose slices wait to be added up */

/*  ignis.h has the same struct. */
struct step_shape {
    int n, k, kind, gated, head_dim, tiles;
};

/*  A product, as a block sees it. A warp has a slice of K, in grains, and its pieces: see gemv_mma.cu and gemv_blocks.cu. */
struct step_product : step_shape {
    int first; /* tile of this block; those behind are gridDim.x apart */
    int grains, per_slice, pieces, size;

    /*  Grains of a warp's piece, which begins so many behind its slice's first one; below 1: it has none there. */
    __device__ int grains_of(int warp, int begin) const { return min(min(size, per_slice - begin), grains - warp * per_slice - begin); }
};

/*  A ring, or tiles in turn. */
struct step_turn {
    int at;
    uint32_t phase;

    __device__ void go_on(int all)
    {
        if (++at == all)
            at = 0, phase ^= 1;
    }
};

/*  Of a block, in shared memory. Addresses of barriers: of halves of stages, which all bringers fill, of stages, and of turns. */
struct step_ring {
    uint32_t stages, full, empty, found_full, found_free;
    int count;          /* of stages */
    float *const found; /* [TURNS][SLICES][COLUMN] */

    /*  Halves are numbered over all stages. */
    __device__ uint32_t full_of(int half) const { return full + 8 * half; }
    /*  Waits for a half of a stage. */
    __device__ void wait(const step_turn &stage, int half) const { ignis_mbarrier_wait(full_of(2 * stage.at + half), stage.phase); }

    /*  This warp has read a stage, or has found its part of a tile. */
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
