// SPDX-License-Identifier: MIT
/*  gemv_cluster.cu - products of 9 to 64 rows with all of a matrix of weights, by clusters of blocks

    As gemv_mma.cu does it, with the same sums in the same order, for sm_90 and up. The blocks of a cluster share out the slices of K of 128 rows of weights;
    weights and x come to a ring in shared memory by the copy engine, where all warps find them: so the device reads x half as often as weights, or less.
    What the blocks have found they send each other, and each finishes a share of the results.

    For f16 and bf16; K a multiple of 8. One program per type, rows of x at most, and blocks of a cluster: compiled with -DIGNIS_T=<1 or 2>
    -DIGNIS_COLUMNS=<16, 32 or 64> -DIGNIS_CLUSTER=<1, 2, 4 or 8>.
*/
#include "gemv.cuh"
#include "weights.cuh"
#include "hopper.cuh"

typedef dense_weights<T> weights;

constexpr int COLUMNS = IGNIS_COLUMNS, CLUSTER = IGNIS_CLUSTER;
constexpr int TILES = 8, STEP = 2;                      /* of 16 rows of weights; blocks of 32 elements, of a step */
constexpr int BOX = 32 * STEP, EIGHT_BYTES = 8 * 2 * BOX; /* elements of a row of the maps' tiles; bytes of eight rows */
constexpr int HALF_BYTES = TILES * EIGHT_BYTES, WEIGHT_BYTES = 2 * HALF_BYTES, STAGE_BYTES = WEIGHT_BYTES + COLUMNS / 8 * EIGHT_BYTES; /* ignis.h has the same */
constexpr int ACROSS = COLUMNS / 32 > 0 ? COLUMNS / 32 : 1, DOWN = SLICES / ACROSS; /* warps beside and below each other */
constexpr int M = TILES / DOWN, N = COLUMNS / 8 / ACROSS; /* tiles of a warp, and eights of columns */
constexpr int OWN = SLICES / CLUSTER;                     /* slices of a block */
constexpr int SHARE = TILES * COLUMNS / 8 / CLUSTER;      /* what a block finishes: parts of a tile and eight columns, 16 bytes of each lane */
/*  Sums of up to NEAR slices wait for each other in registers. Those of NEAR, and of twice as many, in memory. */
constexpr int MOST_NEAR = COLUMNS == 64 ? 2 : COLUMNS == 32 ? 4 : 8, NEAR = OWN < MOST_NEAR ? OWN : MOST_NEAR, FAR = OWN / NEAR / 2;
constexpr int PART_BYTES = 32 * 16, PARTS_BYTES = TILES * COLUMNS / 8 * PART_BYTES;
constexpr int ARRIVES_BYTES = CLUSTER > 1 ? PARTS_BYTES : 0, FOUND_BYTES = ARRIVES_BYTES + FAR * PARTS_BYTES; /* ignis.h has the same */
static_assert(EIGHT_BYTES == 1024, "that of a swizzle");

/*  A step of a block: of a group of tiles, of a slice. */
struct step_order {
    int group, slice, step;

    __device__ void go_on(int steps, int groups)
    {
        if (++step < steps)
            return;
        step = 0;
        if (++slice < OWN)
            return;
        slice = 0;
        group += groups;
    }
};

/*  Which rows of the weights tile i of a group has: eight from low on, and from high on. Those of the tiles are next to each other. */
__device__ inline void group_rows(const gemv_mma_params &p, int group, int i, int &low, int &high)
{
    low = group * 16 * TILES + 8 * i;
    high = low + 8 * TILES;
    if (p.gated || p.kind == TO_CACHE)
        tile_rows(p, 0, group * TILES + i, low, high);
}

/*  What a lane has of a part, two rows of weights by two of x, goes where it belongs. Operands have rows of x in the order of lanes, too. */
__device__ inline void finish(const gemv_mma_params &p, int group, int part, const float (&y)[4])
{
    const int t = threadIdx.x % 4, row = row_of_lanes(threadIdx.x % 32 / 4);
    int low, high;
    group_rows(p, group, part / (COLUMNS / 8), low, high);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int c = part % (COLUMNS / 8) * 8 + t + 4 * j;
        finish_line line;
        if (c >= p.rows)
            break;
        line.load(p, low + row, high + row, c);
        line.load_sum(p, low + row, high + row, c);
        line.put(p, low + row, high + row, c, y[j], y[2 + j]);
    }
}

/*  grid = blocks, any number up to that of groups of tiles; or a cluster for each group. Shared memory for p.ring stages, and from p.found_at on for what is found, if
    there are clusters, or as much again for sums (see far), and barriers. Maps of the weights, whose tiles have as many rows as are next to each other, and of
    x, of COLUMNS rows; of BOX elements. */
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS + 32, COLUMNS == 64 || (COLUMNS == 32 && __CUDA_ARCH__ >= 1000) ? 1 : 2)
    ignis_gemv_cluster(const __grid_constant__ gemv_mma_params p, const __grid_constant__ ignis_tensor_map of_weights,
                       const __grid_constant__ ignis_tensor_map of_x)
{
    extern __shared__ __align__(1024) char memory[];
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(memory), found = at + p.found_at, arrived = found + FOUND_BYTES, full = arrived + 8,
                   empty = full + 8 * p.ring;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane % 4, row = row_of_lanes(lane / 4);
    const int rank = CLUSTER > 1 ? blockIdx.x % CLUSTER : 0, first = (int)blockIdx.x / CLUSTER, stride = CLUSTER > 1 ? 0x1000000 : gridDim.x;
    const int blocks = ((int)p.k + 31) / 32, per_slice = (blocks + SLICES - 1) / SLICES, steps = (per_slice + STEP - 1) / STEP;
    const int tiles = (int)((p.n + (p.gated ? 7 : 15)) / (p.gated ? 8 : 16)), groups = (tiles + TILES - 1) / TILES;
    const auto first_of = [&](int slice) { return (rank * OWN + slice) * per_slice; };

    if (threadIdx.x == 0) {
        for (int i = 0; i < p.ring; i++) {
            ignis_ptx_mbarrier_init(full + 8 * i, 1);
            ignis_ptx_mbarrier_init(empty + 8 * i, SLICES);
        }
        ignis_ptx_mbarrier_init(arrived, 1);
        ignis_ptx_fence_mbarrier_init();
        if (CLUSTER > 1)
            ignis_ptx_mbarrier_arrive_expect(arrived, ARRIVES_BYTES);
    }
    if (CLUSTER > 1)
        ignis_ptx_cluster_arrive(); /* who has begun: nothing is sent to others before */
    ignis_grid_dependents_launch();
    __syncthreads();

    if (warp == SLICES) { /* asks for what comes to shared memory */
        const int half = p.kind == TO_CACHE ? p.head_dim / 2 : 64, box = min(64, half & -half); /* rows of a box: ignis.h has the same */
        const int region = lane * box / 64, eight = lane * box % 64 / 8;
        const auto ask_weights = [&](int stage, const step_order &of) { /* the bytes of x are announced with theirs */
            if (lane == 0)
                ignis_ptx_mbarrier_arrive_expect(full + 8 * stage, STAGE_BYTES);
            __syncwarp();
            if (region < 2) {
                int low, high;
                group_rows(p, of.group, eight, low, high);
                ignis_ptx_tensor_load<2>(at + stage * STAGE_BYTES + region * HALF_BYTES + eight * EIGHT_BYTES, &of_weights, full + 8 * stage,
                                         32 * (first_of(of.slice) + of.step * STEP), region ? high : low);
            }
        };
        const auto ask_x = [&](int stage, const step_order &of) {
            if (lane == 0)
                ignis_ptx_tensor_load<2>(at + stage * STAGE_BYTES + WEIGHT_BYTES, &of_x, full + 8 * stage,
                                         32 * (first_of(of.slice) + of.step * STEP), 0);
        };
        step_order ahead = {first, 0, 0}, of = ahead;
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

    ignis_grid_dependency_wait();
    int stage = 0;
    uint32_t phase = 0;
    for (int group = first; group < groups; group += stride) {
        float sum[M][N][4];
        slice_tree<NEAR, M, N> tree;
        float4 *const far = (float4 *)__cvta_shared_to_generic(found + ARRIVES_BYTES) + threadIdx.x;
        for (int slice = 0; slice < OWN; slice++) {
            const int begin = first_of(slice), end = min(begin + per_slice, blocks);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < N; n++)
                    sum[m][n][0] = sum[m][n][1] = sum[m][n][2] = sum[m][n][3] = 0;
            for (int step = 0; step < steps; step++) {
                const char *const from = memory + stage * STAGE_BYTES + row * 2 * BOX;
                ignis_mbarrier_wait(full + 8 * stage, phase);
#pragma unroll
                for (int i = 0; i < STEP; i++) {
                    uint4 x[N];
                    if (begin + step * STEP + i >= end) /* another slice's, or nothing */
                        break;
#pragma unroll
                    for (int n = 0; n < N; n++)
                        x[n] = *(const uint4 *)(from + WEIGHT_BYTES + (warp / DOWN * N + n) * EIGHT_BYTES + ((4 * i + t) ^ row) * 16);
#pragma unroll
                    for (int m = 0; m < M; m++) {
                        weights::block w;
#pragma unroll
                        for (int j = 0; j < 2; j++)
                            w.rows[j] = *(const uint4 *)(from + j * HALF_BYTES + (warp % DOWN * M + m) * EIGHT_BYTES + ((4 * i + t) ^ row) * 16);
                        weights::add<N>(sum[m], w, x);
                    }
                }
                __syncwarp();
                if (lane == 0)
                    ignis_ptx_mbarrier_arrive(empty + 8 * stage);
                if (++stage == p.ring)
                    stage = 0, phase ^= 1;
            }
            tree.add(slice % NEAR, sum);
            for (int level = 0; FAR && slice % NEAR == NEAR - 1 && level < FAR; level++) { /* as slice_tree does it */
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
                        ignis_ptx_st_async(there + 256 * j, make_float2(sum[m][n][2 * j], sum[m][n][2 * j + 1]), ignis_ptx_mapa(arrived, part % CLUSTER));
                } else {
                    finish(p, group, part, sum[m][n]);
                }
            }
    }
    if (CLUSTER > 1) {
        ignis_mbarrier_wait(arrived, 0);
        for (int i = warp; i < SHARE; i += SLICES) {
            float2 of[CLUSTER][2];
#pragma unroll
            for (int c = 0; c < CLUSTER; c++)
#pragma unroll
                for (int j = 0; j < 2; j++)
                    of[c][j] = *(const float2 *)__cvta_shared_to_generic(found + (c * SHARE + i) * PART_BYTES + (32 * j + lane) * 8);
#pragma unroll
            for (int apart = 1; apart < CLUSTER; apart *= 2)
#pragma unroll
                for (int c = 0; c + apart < CLUSTER; c += 2 * apart)
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        of[c][j].x += of[c + apart][j].x;
                        of[c][j].y += of[c + apart][j].y;
                    }
            const float y[4] = {of[0][0].x, of[0][0].y, of[0][1].x, of[0][1].y};
            finish(p, first, i * CLUSTER + rank, y);
        }
    }
}
