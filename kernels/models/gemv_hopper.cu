// SPDX-License-Identifier: MIT
/*  models/gemv_hopper.cu - GEMV of 33 to 512 rows with dense weights, by wgmma

    For f16 and bf16, sm_90; K is a multiple of 512. Sums have the order of products of fewer rows. A block multiplies
    128 rows of weights with COLUMNS rows of x: two warpgroups have 64 rows of weights each, and a warp of a third one
    brings both to a ring in shared memory. Weights come through registers, as operands of mma.sync do, so that the
    same elements are in one MMA: wgmma adds them as mma.sync does. Rows of x are in the order of operands (see
    ordered_place).

    Two blocks of a cluster may divide the slices of K: see gemv_tile.cuh.

    The bandwidth of shared memory limits the speed: 80 KB of a stage go in or out in 640 cycles, where wgmma takes 512.

    Compiled with -DIGNIS_COLUMNS=<64 or 128> -DIGNIS_SPLIT=<1 or 2>.
*/
#define IGNIS_TILES GROUP_TILES
#include "gemv_tile.cuh"

constexpr int ALL_THREADS = THREADS + 128;
constexpr int OWN = SLICES / SPLIT; /* slices of a block */
/*  Levels of the tree of slices. Sums of the first one wait in registers, those of others in memory. */
constexpr int LEVELS = OWN == 8 ? 3 : OWN / 2, FAR = LEVELS > 1 ? LEVELS - 1 : 0;

constexpr int ELEMENTS = 64; /* of K, of a stage: rows of 128 bytes, which are those of a swizzle */
constexpr int EIGHT_BYTES = 8 * 128, HALF_BYTES = GROUP_TILES * EIGHT_BYTES, WEIGHT_BYTES = 2 * HALF_BYTES;
/*  The host has these, too. SUMS: of a tile. FOUND: what waits, or arrives, and then results of T. */
constexpr int STAGE_BYTES = WEIGHT_BYTES + N * EIGHT_BYTES, SUMS_BYTES = THREADS * N * 16,
              WAITING_BYTES = (FAR > 1 ? FAR : 1) * SUMS_BYTES,
              FOUND_BYTES = WAITING_BYTES + (FAR > 1 ? 0 : SHARE * 8 * STAGED_BYTES);

/*  Of a block. Addresses are those of shared memory. */
struct gemv_memory {
    char *ring;
    uint32_t stages, found, full, empty, arrived, ready;
    char *found_at;
    cache_row *rows; /* of the block's columns */

    __device__ gemv_memory(const ignis__gemv_mma &p, char *memory)
        : ring(memory), stages((uint32_t)__cvta_generic_to_shared(memory)), found(stages + p.found_at),
          full(found + FOUND_BYTES), empty(full + 8 * p.ring), arrived(empty + 8 * p.ring), ready(arrived + 8),
          found_at(memory + p.found_at), rows((cache_row *)(found_at + FOUND_BYTES + 16 * p.ring + 16))
    {
    }
};

/*  Returns the steps of a slice. */
__device__ inline int steps_of(const ignis__gemv_mma &p) { return (int)p.k / SLICES / ELEMENTS; }

/*  A thread that multiplies. */
struct gemv_thread {
    static constexpr bool in_staged = FAR > 1;
    const ignis__gemv_mma &p;
    const gemv_memory &m;
    const block_place &place;
    const int lane, warp, row, steps; /* row: of eight */
    ring_place at;
    uint32_t exchanges; /* of sums */

    __device__ gemv_thread(const ignis__gemv_mma &p, const gemv_memory &m, const block_place &place)
        : p(p), m(m), place(place), lane(threadIdx.x % 32), warp(threadIdx.x / 32), row(row_of_lanes(lane / 4)),
          steps(steps_of(p)), at{0, 0}, exchanges(0)
    {
    }
    __device__ float4 *own_sums() const { return (float4 *)m.found_at + threadIdx.x; }

    /*  Multiplies a stage. Weights are not loaded while wgmma multiplies: the compiler would load them to the registers
        that it reads. */
    __device__ void multiply(float (&sum)[N][4]) const
    {
        const char *const stage = m.ring + at.stage * STAGE_BYTES, *const from = stage + warp * EIGHT_BYTES + row * 128;
        const uint64_t x = ignis_wgmma_descriptor(m.stages + at.stage * STAGE_BYTES + WEIGHT_BYTES, 0, 1024);
        const int t = lane % 4;
        uint32_t words[4][4]; /* of four MMAs */
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 low = *(const uint4 *)(from + ((4 * i + t) ^ row) * 16),
                        high = *(const uint4 *)(from + HALF_BYTES + ((4 * i + t) ^ row) * 16);
            words[2 * i][0] = low.x, words[2 * i][1] = high.x;
            words[2 * i][2] = low.y, words[2 * i][3] = high.y;
            words[2 * i + 1][0] = low.z, words[2 * i + 1][1] = high.z;
            words[2 * i + 1][2] = low.w, words[2 * i + 1][3] = high.w;
        }
        ignis_wgmma_hold(sum);
        ignis_wgmma_hold(words);
        ignis_ptx_wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; i++)
            ignis_ptx_wgmma<1, 0>(sum, words[i], ignis_wgmma_ahead(x, 32 * i));
        ignis_ptx_wgmma_commit();
        ignis_ptx_wgmma_wait<0>();
        ignis_wgmma_hold(sum);
        ignis_wgmma_hold(words);
    }
    /*  Multiplies the block's slices, and adds them as a tree: a sum of 2^level slices waits for that of the next ones.
        One loop: short code is fetched sooner. */
    __device__ void slices(float (&sum)[N][4])
    {
        float first[N][4];
#pragma unroll 1
        for (int slice = 0; slice < OWN; slice++) {
#pragma unroll
            for (int n = 0; n < N; n++)
                sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
#pragma unroll 1
            for (int step = 0; step < steps; step++) {
                ignis_mbarrier_wait(m.full + 8 * at.stage, at.phase);
                multiply(sum);
                ignis_warp_arrive(m.empty + 8 * at.stage);
                at.go_on(p.ring);
            }
            if (LEVELS > 0 && slice % 2 == 0) {
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        first[n][i] = sum[n][i];
                continue;
            }
            if (LEVELS > 0)
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        sum[n][i] += first[n][i];
            bool waits = false;
#pragma unroll 1
            for (int level = 0; level < FAR && !waits; level++) {
                float4 *const kept = own_sums() + level * N * THREADS;
                waits = !(slice >> level & 2);
#pragma unroll
                for (int n = 0; n < N; n++)
                    if (waits) {
                        kept[n * THREADS] = make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]);
                    } else {
                        const float4 x = kept[n * THREADS];
                        sum[n][0] += x.x, sum[n][1] += x.y;
                        sum[n][2] += x.z, sum[n][3] += x.w;
                    }
            }
        }
    }

    /*  Gives the sums to those that finish them: to memory, from which a short loop takes them. */
    __device__ void send(const float (&sum)[N][4])
    {
        if constexpr (SPLIT == 1) {
#pragma unroll
            for (int n = 0; n < N; n++)
                own_sums()[n * THREADS] = make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]);
        } else {
            tile_finish::sync(); /* nobody needs what is there */
            if (warp == 0) {
                if (lane == 0)
                    ignis_ptx_mbarrier_arrive_expect(m.arrived, SUMS_BYTES);
                __syncwarp();
                if (lane < SPLIT)
                    ignis_ptx_mbarrier_arrive_cluster(ignis_ptx_mapa(m.ready, lane));
            }
            ignis_mbarrier_wait(m.ready, exchanges & 1);
#pragma unroll
            for (int part = 0; part < SPLIT; part++) {
                const uint32_t to =
                                   ignis_ptx_mapa(m.found + (place.part * SHARE * 2 * THREADS + threadIdx.x) * 8, part),
                               barrier = ignis_ptx_mapa(m.arrived, part);
#pragma unroll
                for (int n = 0; n < SHARE; n++)
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        ignis_ptx_st_async(to + (2 * n + i) * THREADS * 8,
                                           make_float2(sum[part * SHARE + n][2 * i], sum[part * SHARE + n][2 * i + 1]),
                                           barrier);
            }
            ignis_mbarrier_wait(m.arrived, exchanges & 1);
            exchanges++;
        }
    }
    /*  Returns a sum of all slices. */
    __device__ float4 take(int first, int i) const
    {
        const int n = first + i;
        if constexpr (SPLIT == 1) {
            return own_sums()[n * THREADS];
        } else {
            const float2 *const from = (const float2 *)m.found_at + threadIdx.x;
            float4 of[SPLIT];
#pragma unroll
            for (int i = 0; i < SPLIT; i++) {
                const float2 low = from[(i * SHARE + n) * 2 * THREADS],
                             high = from[((i * SHARE + n) * 2 + 1) * THREADS];
                of[i] = make_float4(low.x, low.y, high.x, high.y);
            }
#pragma unroll
            for (int apart = 1; apart < SPLIT; apart *= 2)
#pragma unroll
                for (int i = 0; i + apart < SPLIT; i += 2 * apart) {
                    of[i].x += of[i + apart].x, of[i].y += of[i + apart].y;
                    of[i].z += of[i + apart].z, of[i].w += of[i + apart].w;
                }
            return of[0];
        }
    }
    __device__ void go_on() const {}
};

/*  Brings the stages of all tiles of a block, by a warp. It starts before earlier work has ended, which does not write
    weights. */
__device__ inline void bring(const ignis__gemv_mma &p, const gemv_memory &m, const block_place &place,
                             const ignis__tensor_map &of_weights, const ignis__tensor_map &of_x)
{
    /* rows of a box: the host has the same. region, eight: where this lane's box of weights goes to */
    const int lane = threadIdx.x % 32, half = p.kind == IGNIS__GEMV_CACHE ? p.head_dim / 2 : 64,
              box = min(64, half & -half), region = lane * box / 64, eight = lane * box % 64 / 8;
    const int steps = OWN * steps_of(p), from = place.part * steps * ELEMENTS;
    const uint32_t own = m.stages + region * HALF_BYTES + eight * EIGHT_BYTES;
    int row = 0, ahead = place.group < place.groups ? min(p.ring, steps) : 0;
    const auto find_row = [&](int group) { /* of the box */
                                           int low, high;
                                           group_rows(p, 0, group, eight, low, high);
                                           row = region ? high : low;
    };
    const auto ask_weights =
        [&](int stage, int step) { /* the barrier expects x, too */
                                   const uint32_t barrier = m.full + 8 * stage, to = own + stage * STAGE_BYTES;
                                   if (lane == 0)
                                       ignis_ptx_mbarrier_arrive_expect(barrier, STAGE_BYTES);
                                   __syncwarp();
                                   if (region < 2)
                                       ignis_ptx_tensor_load<2>(to, &of_weights, barrier, from + step * ELEMENTS, row);
        };
    const auto ask_x = [&](int stage, int step) {
        if (lane == 0)
            ignis_ptx_tensor_load<2>(m.stages + stage * STAGE_BYTES + WEIGHT_BYTES, &of_x, m.full + 8 * stage,
                                     from + step * ELEMENTS, place.column);
    };
    find_row(place.group);
#pragma unroll 1
    for (int i = 0; i < ahead; i++)
        ask_weights(i, i);
    ignis_grid_dependency_wait();
    ring_place at = {0, 1}; /* the first round waits for nobody */
    for (int group = place.group; group < place.groups; group += place.stride) {
        find_row(group);
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            ignis_mbarrier_wait(m.empty + 8 * at.stage, at.phase);
            if (ahead > 0)
                ahead--;
            else
                ask_weights(at.stage, step);
            ask_x(at.stage, step);
            at.go_on(p.ring);
        }
    }
}

/*  Params: TMA maps of the weights, whose tiles have as many rows as are adjacent, and of x, whose tiles have COLUMNS
    rows. Rows of tiles have ELEMENTS elements. grid: clusters, a multiple of p.across. */
extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(ALL_THREADS, 1)
    ignis_gemv_hopper(const __grid_constant__ ignis__gemv_mma p, const __grid_constant__ ignis__tensor_map of_weights,
                      const __grid_constant__ ignis__tensor_map of_x)
{
    extern __shared__ __align__(1024) char memory[];
    const gemv_memory m(p, memory);
    const block_place place(p);
    const int warp = threadIdx.x / 32;

    if (threadIdx.x == 0) {
        for (int i = 0; i < p.ring; i++) {
            ignis_ptx_mbarrier_init(m.full + 8 * i, 1);
            ignis_ptx_mbarrier_init(m.empty + 8 * i, SLICES * IGNIS_WARP_ARRIVALS);
        }
        ignis_ptx_mbarrier_init(m.arrived, 1);
        ignis_ptx_mbarrier_init(m.ready, SPLIT);
        ignis_ptx_fence_mbarrier_init();
    }
    if (SPLIT > 1)
        ignis_ptx_cluster_arrive(); /* nothing is sent to a block that has not begun */
    ignis_grid_dependents_launch();
    __syncthreads();

    if (warp >= SLICES) {
        ignis_ptx_setmaxnreg_dec<40>();
        if (SPLIT > 1)
            ignis_ptx_cluster_wait();
        if (warp == SLICES)
            bring(p, m, place, of_weights, of_x);
        else
            ignis_grid_dependency_wait();
    } else {
        ignis_ptx_setmaxnreg_inc<232>();
        if (SPLIT > 1)
            ignis_ptx_cluster_wait();
        ignis_grid_dependency_wait();
        find_cache_rows(p, place.column, m.rows);
        gemv_thread thread(p, m, place);
        const tile_finish finish = {p, place, m.rows, m.found_at + (FAR > 1 ? SUMS_BYTES : WAITING_BYTES)};
        for (int group = place.group; group < place.groups; group += place.stride) {
            float sum[N][4];
            tile_finish::sync(); /* results of the tile before, and places of rows */
            thread.slices(sum);
            thread.send(sum);
            finish.run(group, thread);
        }
    }
}
