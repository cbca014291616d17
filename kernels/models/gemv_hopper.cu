// SPDX-License-Identifier: MIT
/*  models/gemv_hopper.cu - GEMV of 65 to 512 rows with dense weights, by clusters of blocks and wgmma

    For f16 and bf16, sm_90; K is a multiple of 512. As gemv_cluster.cu, but a warpgroup multiplies 64 rows of weights
    with all rows of x of a block, which come from shared memory. The weights come through registers, as operands of
    mma.sync do, so that the same elements are in one MMA: wgmma adds them as mma.sync does. Rows of x are in the order
    of operands (see ordered_place). More than 64 rows of x are divided between clusters, which read the same weights
    at a time, from the L2 cache.

    Compiled with -DIGNIS_COLUMNS=64.
*/
#define IGNIS_GEMV_HOPPER 1
#include "gemv_cluster.cuh"

constexpr int BLOCK_BYTES = 8 * 128; /* of eight rows of 64 elements, which is that of a swizzle */
constexpr int HALF_BYTES = TILES * BLOCK_BYTES, WEIGHT_BYTES = 2 * HALF_BYTES;

struct wgmma_source {
    static constexpr int STAGE_BYTES = WEIGHT_BYTES + COLUMNS / 8 * BLOCK_BYTES; /* the host has the same */
    const ignis__gemv_mma &p;
    const ignis__tensor_map *of_weights, *of_x;
    int length, per_slice, advance;
    int region, eight; /* where this lane's box of weights goes to */

    __device__ wgmma_source(const ignis__gemv_mma &p, const ignis__tensor_map *of_weights,
                            const ignis__tensor_map *of_x)
        : p(p), of_weights(of_weights), of_x(of_x), length((int)p.k / 32), per_slice(length / SLICES), advance(2)
    {
        /* rows of a box: the host has the same */
        const int half = p.kind == IGNIS__GEMV_CACHE ? p.head_dim / 2 : 64, box = min(64, half & -half);
        region = threadIdx.x % 32 * box / 64;
        eight = threadIdx.x % 32 * box % 64 / 8;
    }
    __device__ uint32_t bytes() const { return STAGE_BYTES; }
    __device__ void ask_weights(uint32_t to, uint32_t barrier, int group, int at) const
    {
        int low, high;
        if (region >= 2)
            return;
        group_rows(p, 0, group, eight, low, high);
        ignis_ptx_tensor_load<2>(to + region * HALF_BYTES + eight * BLOCK_BYTES, of_weights, barrier, 32 * at,
                                 region ? high : low);
    }
    __device__ void ask_x(uint32_t to, uint32_t barrier, int at) const
    {
        if (threadIdx.x % 32 == 0)
            ignis_ptx_tensor_load<2>(to + WEIGHT_BYTES, of_x, barrier, 32 * at,
                                     (int)blockIdx.x / CLUSTER % p.across * COLUMNS);
    }
    /*  Weights are not loaded while wgmma multiplies: the compiler would load them to the registers that it reads. */
    __device__ void multiply(float (&sums)[M][N][4], const char *stage, int, int, int) const
    {
        float(&sum)[N][4] = sums[0];
        const int lane = threadIdx.x % 32, t = lane % 4, row = row_of_lanes(lane / 4);
        const char *const from = stage + threadIdx.x / 32 * BLOCK_BYTES + row * 128;
        const uint64_t x = ignis_wgmma_descriptor((uint32_t)__cvta_generic_to_shared(stage) + WEIGHT_BYTES, 0, 1024);
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
};

/*  Params: TMA maps of the weights, whose tiles have as many rows as are adjacent, and of x, whose tiles have COLUMNS
    rows. Rows of tiles have 64 elements. */
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(ALL_THREADS, 1)
    ignis_gemv_hopper(const __grid_constant__ ignis__gemv_mma p, const __grid_constant__ ignis__tensor_map of_weights,
                      const __grid_constant__ ignis__tensor_map of_x)
{
    wgmma_source source(p, &of_weights, &of_x);
    cluster_product(p, 0, source);
}
