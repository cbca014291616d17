// SPDX-License-Identifier: MIT
/*  models/gemv_cluster.cuh - GEMV of 2 to 64 rows by clusters of blocks, for sm_90 and up

    Sums have the order of products of fewer rows. The blocks of a cluster divide the slices of K of 128 rows of
    weights. TMA brings weights and x to a ring in shared memory, which all warps read. So the device reads at most
    half as many bytes of x as of 16-bit weights. The blocks exchange their results, and each does the epilogue of a
    slice of them.

    Compiled with -DIGNIS_T=<1 or 2>, rows of x at most -DIGNIS_COLUMNS=<8, 16, 32 or 64>, and blocks of a cluster
    -DIGNIS_CLUSTER=<1, 2, 4 or 8>.

    A source of operands, of dense or of quantised weights, has
        static STAGE_BYTES                            of a stage of the ring, a multiple of 1024
        length, per_slice, advance                    of K, of a slice and of a k step, in its unit
        bytes()                                       copied to a stage
        ask_weights(to, barrier, group, at)           starts copies of a group's weights from `at` on, by a warp
        ask_x(to, barrier, at)                        starts copies of x
        multiply(sum, stage, group, at, end)          multiplies a stage, by a warp; from `end` on it is another slice's
    That of wgmma has multiply(sum, stage).
*/
#ifndef IGNIS_GEMV_CLUSTER_CUH
#define IGNIS_GEMV_CLUSTER_CUH

#include "gemv.cuh"
#include "hopper.cuh"

constexpr int COLUMNS = IGNIS_COLUMNS, CLUSTER = IGNIS_CLUSTER;
constexpr int TILES = GROUP_TILES; /* of 16 rows of weights */
#ifdef IGNIS_GEMV_HOPPER           /* gemv_hopper_blocks.cu */
constexpr bool WGMMA = true;
#else
constexpr bool WGMMA = false;
#endif
/*  warps beside each other, and below each other */
constexpr int ACROSS = !WGMMA && COLUMNS / 32 > 0 ? COLUMNS / 32 : 1, DOWN = SLICES / ACROSS;
/*  Warps that multiply get more registers from a warpgroup of others, of which the first one starts copies. */
constexpr bool SHIFTS_REGISTERS = WGMMA && COLUMNS >= 32;
constexpr int ALL_THREADS = THREADS + (SHIFTS_REGISTERS ? 128 : 32); /* the host has the same */
/*  tiles of a warp, and eights of columns */
constexpr int M = TILES / DOWN, N = COLUMNS / 8 / ACROSS;
constexpr int OWN = SLICES / CLUSTER; /* slices of a block */
/*  parts of which a block does the epilogue: a part is a tile and eight columns, 16 bytes of each lane */
constexpr int SHARE = TILES * COLUMNS / 8 / CLUSTER;
/*  Sums of up to NEAR slices wait for each other in registers. Sums of NEAR slices, of twice as many and so on wait
    in memory, FAR times. Quantised weights need all registers. */
#ifdef IGNIS_BLOCKS
constexpr int MOST_NEAR = !WGMMA ? 1 : COLUMNS == 8 ? 8 : COLUMNS == 32 ? 4 : 2;
#else
constexpr int MOST_NEAR = WGMMA ? 4 : COLUMNS == 64 ? 2 : COLUMNS == 32 ? 4 : 8;
#endif
constexpr int NEAR = OWN < MOST_NEAR ? OWN : MOST_NEAR, FAR = OWN / NEAR == 8 ? 3 : OWN / NEAR / 2;
constexpr int PART_BYTES = 32 * 16, PARTS_BYTES = TILES * COLUMNS / 8 * PART_BYTES;
/*  the host has the same */
constexpr int ARRIVES_BYTES = CLUSTER > 1 ? PARTS_BYTES : 0, FOUND_BYTES = ARRIVES_BYTES + FAR * PARTS_BYTES;

/*  Does the epilogue of a part: two rows of weights by two of x for each lane. The operands have rows of x in the order
    of the lanes, too, unless wgmma multiplies them. */
__device__ inline void finish(const ignis__gemv_mma &p, int first, int group, int part, const float (&y)[4])
{
    const int t = threadIdx.x % 4, row = row_of_lanes(threadIdx.x % 32 / 4);
    int low, high;
    group_rows(p, first, group, part / (COLUMNS / 8), low, high);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int c = part % (COLUMNS / 8) * 8 + (WGMMA ? 2 * t + j : t + 4 * j);
        finish_line line;
        if (c >= p.rows)
            break;
        line.load(p, low + row, high + row, c);
        line.load_sum(p, low + row, high + row, c);
        line.put(p, low + row, high + row, c, y[j], y[2 + j]);
    }
}

/*  more: takes registers that others gave; else gives them. The launch has 168 for each of 384 threads. */
template <bool more> __device__ inline void shift_registers()
{
#if __CUDA_ARCH__ == 900
    if (more)
        ignis_ptx_setmaxnreg_inc<232>();
    else
        ignis_ptx_setmaxnreg_dec<40>();
#endif
}

/*  The position of a block: group of tiles, slice, k step. */
struct step_order {
    int group, slice, step;

    __device__ void go_on(int steps, int stride)
    {
        if (++step < steps)
            return;
        step = 0;
        if (++slice < OWN)
            return;
        slice = 0;
        group += stride;
    }
};

/*  Multiplies by ALL_THREADS threads, of which the ninth warp starts the copies. grid = any number of blocks, at most
    one per group of tiles; or one cluster per group. Shared memory for p.ring stages, FOUND_BYTES from p.found_at on,
    and barriers. first: see group_rows. */
template <typename Source> __device__ inline void cluster_product(const ignis__gemv_mma &p, int first, Source &source)
{
    extern __shared__ __align__(1024) char memory[];
    constexpr int STAGE_BYTES = Source::STAGE_BYTES;
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(memory), found = at + p.found_at,
                   arrived = found + FOUND_BYTES, full = arrived + 8, empty = full + 8 * p.ring;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own_group = (int)blockIdx.x / CLUSTER;
    /* of groups; a cluster has one */
    const int rank = CLUSTER > 1 ? blockIdx.x % CLUSTER : 0, stride = CLUSTER > 1 ? 1 << 24 : gridDim.x;
    const int steps = (source.per_slice + source.advance - 1) / source.advance;
    const int tiles = (int)((p.n - first + (p.gated ? 7 : 15)) / (p.gated ? 8 : 16)),
              groups = (tiles + TILES - 1) / TILES;
    const auto first_of = [&](int slice) { return (rank * OWN + slice) * source.per_slice; };

    if (threadIdx.x == 0) {
        for (int i = 0; i < p.ring; i++) {
            ignis_ptx_mbarrier_init(full + 8 * i, 1);
            ignis_ptx_mbarrier_init(empty + 8 * i, SLICES * IGNIS_WARP_ARRIVALS);
        }
        ignis_ptx_mbarrier_init(arrived, 1);
        ignis_ptx_fence_mbarrier_init();
        if (CLUSTER > 1)
            ignis_ptx_mbarrier_arrive_expect(arrived, ARRIVES_BYTES);
    }
    if (CLUSTER > 1)
        ignis_ptx_cluster_arrive(); /* nothing is sent to a block that has not begun */
    ignis_grid_dependents_launch();
    __syncthreads();

    if (warp >= SLICES) {
        if (SHIFTS_REGISTERS)
            shift_registers<false>();
        if (warp > SLICES) { /* the rest of its warpgroup */
            ignis_grid_dependency_wait();
            if (CLUSTER > 1)
                ignis_ptx_cluster_wait();
            return;
        }
        const auto begin = [&](const step_order &of) { return first_of(of.slice) + of.step * source.advance; };
        const auto ask_weights = [&](int stage,
                                     const step_order &of) { /* the barrier expects the bytes of x, too */
                                                             if (lane == 0)
                                                                 ignis_ptx_mbarrier_arrive_expect(full + 8 * stage,
                                                                                                  source.bytes());
                                                             __syncwarp();
                                                             source.ask_weights(at + stage * STAGE_BYTES,
                                                                                full + 8 * stage, of.group, begin(of));
        };
        const auto ask_x = [&](int stage, const step_order &of) {
            source.ask_x(at + stage * STAGE_BYTES, full + 8 * stage, begin(of));
        };
        step_order ahead = {own_group, 0, 0}, of = ahead;
        int asked = 0;
        for (; asked < p.ring && ahead.group < groups; ahead.go_on(steps, stride))
            ask_weights(asked++, ahead);
        ignis_grid_dependency_wait();
        for (int i = 0; i < asked; i++, of.go_on(steps, stride))
            ask_x(i, of);
        for (uint32_t stage = 0, phase = 0; ahead.group < groups; ahead.go_on(steps, stride)) {
            ignis_mbarrier_wait(empty + 8 * stage, phase);
            ask_weights(stage, ahead);
            ask_x(stage, ahead);
            if (++stage == p.ring)
                stage = 0, phase ^= 1;
        }
        if (CLUSTER > 1)
            ignis_ptx_cluster_wait();
        return;
    }

    if (SHIFTS_REGISTERS)
        shift_registers<true>();
    ignis_grid_dependency_wait();
    int stage = 0;
    uint32_t phase = 0;
    for (int group = own_group; group < groups; group += stride) {
        float sum[M][N][4];
        slice_tree<NEAR, M, N> tree;
        float4 *const far = (float4 *)__cvta_shared_to_generic(found + ARRIVES_BYTES) + threadIdx.x;
        for (int slice = 0; slice < OWN; slice++) {
            const int begin = first_of(slice), end = min(begin + source.per_slice, source.length);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < N; n++)
                    sum[m][n][0] = sum[m][n][1] = sum[m][n][2] = sum[m][n][3] = 0;
            for (int step = 0; step < steps; step++) {
                ignis_mbarrier_wait(full + 8 * stage, phase);
                source.multiply(sum, memory + stage * STAGE_BYTES, group, begin + step * source.advance, end);
                ignis_warp_arrive(empty + 8 * stage);
                if (++stage == p.ring)
                    stage = 0, phase ^= 1;
            }
            tree.add(slice % NEAR, sum);
            for (int level = 0; FAR && slice % NEAR == NEAR - 1 && level < FAR; level++) { /* as in slice_tree */
                const bool waits = !(slice / NEAR >> level & 1);
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int n = 0; n < N; n++) {
                        float4 &kept = far[((level * M + m) * N + n) * THREADS];
                        float(&x)[4] = sum[m][n];
                        if (waits)
                            kept = make_float4(x[0], x[1], x[2], x[3]);
                        else
                            x[0] += kept.x, x[1] += kept.y, x[2] += kept.z, x[3] += kept.w;
                    }
                if (waits)
                    break;
            }
        }

        if (CLUSTER > 1)
            ignis_ptx_cluster_wait();
        const uint32_t to = found + rank * SHARE * PART_BYTES + lane * 8;
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                const int part = (warp % DOWN * M + m) * (COLUMNS / 8) + warp / DOWN * N + n;
                if (CLUSTER > 1) {
                    const uint32_t there = ignis_ptx_mapa(to + part / CLUSTER * PART_BYTES, part % CLUSTER);
#pragma unroll
                    for (int j = 0; j < 2; j++)
                        ignis_ptx_st_async(there + 256 * j, make_float2(sum[m][n][2 * j], sum[m][n][2 * j + 1]),
                                           ignis_ptx_mapa(arrived, part % CLUSTER));
                } else {
                    finish(p, first, group, part, sum[m][n]);
                }
            }
    }
    const auto sum_of_part = [&](int i, float(&y)[4]) {
        float2 of[CLUSTER][2];
#pragma unroll
        for (int c = 0; c < CLUSTER; c++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                of[c][j] = *(const float2 *)__cvta_shared_to_generic(found + (c * SHARE + i) * PART_BYTES +
                                                                     (32 * j + lane) * 8);
#pragma unroll
        for (int apart = 1; apart < CLUSTER; apart *= 2)
#pragma unroll
            for (int c = 0; c + apart < CLUSTER; c += 2 * apart)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    of[c][j].x += of[c + apart][j].x;
                    of[c][j].y += of[c + apart][j].y;
                }
        y[0] = of[0][0].x, y[1] = of[0][0].y, y[2] = of[0][1].x, y[3] = of[0][1].y;
    };
    if (CLUSTER > 1) {
        ignis_mbarrier_wait(arrived, 0);
        for (int i = warp; i < SHARE; i += SLICES) {
            float y[4];
            sum_of_part(i, y);
            finish(p, first, own_group, i * CLUSTER + rank, y);
        }
    }
}

#endif /* IGNIS_GEMV_CLUSTER_CUH */
