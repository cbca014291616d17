// SPDX-License-Identifier: MIT
/*  models/gemv_cluster.cu - GEMV of 9 to 64 rows with dense weights, by clusters of blocks

    For f16 and bf16, sm_90 and up; K is a multiple of 8. This part is the source of operands: TMA copies boxes of
    weights and of x, which are swizzled. All else: gemv_cluster.cuh.
*/
#include "gemv_cluster.cuh"
#include "weights.cuh"

typedef dense_weights<T> weights;

constexpr int STEP = 2; /* blocks of 32 elements */
/*  elements of a row of the TMA maps' tiles; bytes of eight rows */
constexpr int BOX = 32 * STEP, EIGHT_BYTES = 8 * 2 * BOX;
constexpr int HALF_BYTES = TILES * EIGHT_BYTES, WEIGHT_BYTES = 2 * HALF_BYTES;
static_assert(EIGHT_BYTES == 1024, "that of a swizzle");

struct dense_source {
    static constexpr int STAGE_BYTES = WEIGHT_BYTES + COLUMNS / 8 * EIGHT_BYTES; /* the host has the same */
    const ignis__gemv_mma &p;
    const ignis__tensor_map *of_weights, *of_x;
    int length, per_slice, advance;
    int region, eight; /* where this lane's box of weights goes to */

    __device__ dense_source(const ignis__gemv_mma &p, const ignis__tensor_map *of_weights,
                            const ignis__tensor_map *of_x)
        : p(p), of_weights(of_weights), of_x(of_x), length(((int)p.k + 31) / 32),
          per_slice((length + SLICES - 1) / SLICES), advance(STEP)
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
        ignis_ptx_tensor_load<2>(to + region * HALF_BYTES + eight * EIGHT_BYTES, of_weights, barrier, 32 * at,
                                 region ? high : low);
    }
    __device__ void ask_x(uint32_t to, uint32_t barrier, int at) const
    {
        if (threadIdx.x % 32 == 0)
            ignis_ptx_tensor_load<2>(to + WEIGHT_BYTES, of_x, barrier, 32 * at, 0);
    }
    __device__ void multiply(float (&sum)[M][N][4], const char *stage, int, int at, int end) const
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane % 4, row = row_of_lanes(lane / 4);
        const char *const from = stage + row * 2 * BOX;
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            uint4 x[N];
            if (at + i >= end)
                break;
#pragma unroll
            for (int n = 0; n < N; n++)
                x[n] = *(const uint4 *)(from + WEIGHT_BYTES + (warp / DOWN * N + n) * EIGHT_BYTES +
                                        ((4 * i + t) ^ row) * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                weights::block w;
#pragma unroll
                for (int j = 0; j < 2; j++)
                    w.rows[j] = *(const uint4 *)(from + j * HALF_BYTES + (warp % DOWN * M + m) * EIGHT_BYTES +
                                                 ((4 * i + t) ^ row) * 16);
                weights::add<N>(sum[m], w, x);
            }
        }
    }
};

/*  Params: TMA maps of the weights, whose tiles have as many rows as are adjacent, and of x, whose tiles have COLUMNS
    rows. Rows of tiles have BOX elements. */
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1)
    __launch_bounds__(THREADS + 32, COLUMNS == 64 || (COLUMNS == 32 && __CUDA_ARCH__ >= 1000) ? 1 : 2)
        ignis_gemv_cluster(const __grid_constant__ ignis__gemv_mma p,
                           const __grid_constant__ ignis__tensor_map of_weights,
                           const __grid_constant__ ignis__tensor_map of_x)
{
    dense_source source(p, &of_weights, &of_x);
    cluster_product(p, 0, source);
}
