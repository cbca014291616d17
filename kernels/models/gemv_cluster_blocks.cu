// SPDX-License-Identifier: MIT
/*  models/gemv_cluster_blocks.cu - GEMV of 9 to 32 rows with quantised weights, by clusters of blocks

    For f16 and bf16, sm_90 and up. Rows of x are whole numbers already, or those of F8 filled up with zeros, by
    gemv_blocks.cu. This part is the source of operands; all else: gemv_cluster.cuh. Compiled with -DIGNIS_COLUMNS=<16
    or 32> -DIGNIS_BLOCKS=<a blocks_type>.
*/
#include "gemv_cluster.cuh"
#include "weights_f8.cuh"

typedef rows_of_blocks<IGNIS_BLOCKS, T>::kind weights;

constexpr int RECORD_BYTES = record_bytes(IGNIS_BLOCKS), EIGHT_BYTES = 8 * RECORD_BYTES;
/*  of two blocks of all rows of x, and of a record */
constexpr int BOX_BYTES = COLUMNS * 128, X_BYTES = 4 * BOX_BYTES;
constexpr int SCALES_BYTES = RECORD * COLUMNS * 4 * (weights::minima ? 2 : 1), WEIGHT_BYTES = 2 * TILES * EIGHT_BYTES;
static_assert(RECORD_BYTES / 16 % 2 == 1, "so rows that lanes read at a time have different banks");

/*  The source of quantised weights. A k step is a record of each row. */
struct blocks_source {
    /* the host has the same */
    static constexpr int STAGE_BYTES = (X_BYTES + SCALES_BYTES + WEIGHT_BYTES + 1023) / 1024 * 1024;
    const ignis__gemv_blocks &all;
    const ignis__gemv_mma &p;
    const ignis__tensor_map *of_x;
    int length, per_slice, advance, rows;

    __device__ blocks_source(const ignis__gemv_blocks &all, const ignis__tensor_map *of_x)
        : all(all), p(all.product), of_x(of_x), length(((int)p.k + 32 * RECORD - 1) / (32 * RECORD)),
          per_slice((length + SLICES - 1) / SLICES), advance(1), rows((p.rows + 7) / 8 * 8)
    {
    }
    __device__ int scale_bytes() const { return RECORD * rows * 4; }
    __device__ uint32_t bytes() const { return X_BYTES + (weights::minima ? 2 : 1) * scale_bytes() + WEIGHT_BYTES; }
    __device__ int row_of_weights(int row) const /* of eight results; the first row if they do not exist */
    {
        const int behind = (int)(p.gated ? 2 * p.n : p.n) - all.first;
        row -= all.first;
        return row < behind ? row : 0;
    }
    __device__ void ask_weights(uint32_t to, uint32_t barrier, int group, int at) const
    {
        const int lane = threadIdx.x % 32;
        int low, high;
        if (lane >= 2 * TILES)
            return;
        group_rows(p, all.first, group, lane % TILES, low, high);
        const long long record =
            first_record(row_of_weights(lane < TILES ? low : high), length) + (long long)min(at, length - 1) * TOGETHER;
        ignis_ptx_bulk_load(to + X_BYTES + SCALES_BYTES + lane * EIGHT_BYTES,
                            (const uint8_t *)p.weights + record * RECORD_BYTES, EIGHT_BYTES, barrier);
    }
    __device__ void ask_x(uint32_t to, uint32_t barrier, int at) const
    {
        const int lane = threadIdx.x % 32;
        if (lane < 4)
            ignis_ptx_tensor_load<2>(to + lane * BOX_BYTES, of_x, barrier, at * 4 * 64 + lane * 64, 0);
        else if (lane < (weights::minima ? 6 : 5)) /* scales, and sums after the scales of all blocks */
            ignis_ptx_bulk_load(to + X_BYTES + (lane - 4) * RECORD * COLUMNS * 4,
                                all.scales + ((lane - 4) * length + min(at, length - 1)) * RECORD * rows, scale_bytes(),
                                barrier);
    }
    __device__ void multiply(float (&sum)[M][N][4], const char *stage, int group, int at, int end) const
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane % 4, row = row_of_lanes(lane / 4);
        const float *const scales = (const float *)(stage + X_BYTES);
        if (at >= end)
            return;
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int tile = warp % DOWN * M + m;
            const uint8_t *const records =
                (const uint8_t *)stage + X_BYTES + SCALES_BYTES + tile * EIGHT_BYTES + row * RECORD_BYTES;
            weights::unit d;
            if (weights::halves) {
                int low, high;
                group_rows(p, all.first, group, tile, low, high);
                weights((const uint8_t *)p.weights, all.scales_of, (int)p.k, row_of_weights(low) + row,
                        row_of_weights(high) + row)
                    .load_d(d, at);
            }
#pragma unroll 1
            for (int half = 0; half < 2; half++) {
                weights::unit w = d;
#pragma unroll
                for (int r = 0; r < 2; r++)
                    weights::read<false>(w, r, records + r * TILES * EIGHT_BYTES, half,
                                         [](const uint8_t *from) { return *(const uint4 *)from; });
                weights::add<N>(
                    sum[m], rows - warp / DOWN * 8 * N, w, half,
                    [&](int b, int n) {
                        const char *const box =
                            stage + (2 * half + b / 2) * BOX_BYTES + (8 * (warp / DOWN * N + n) + row) * 128;
                        return *(const uint4 *)(box + ((b % 2 * 4 + t) ^ row) * 16);
                    },
                    [&](int b, int n, float(&of)[2]) {
                        const float *const from = scales + (half * UNIT + b) * rows + 8 * (warp / DOWN * N + n) + t;
                        if (weights::minima) {
                            of[0] = from[RECORD * COLUMNS];
                            of[1] = from[RECORD * COLUMNS + 4];
                        }
                        return make_float2(from[0], from[4]);
                    });
            }
        }
    }
};

/*  Params: a TMA map of x, as 16-bit numbers, whose tiles are COLUMNS rows of 64. */
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS + 32, 1)
    ignis_gemv_cluster_blocks(const __grid_constant__ ignis__gemv_blocks all,
                              const __grid_constant__ ignis__tensor_map of_x)
{
    blocks_source source(all, &of_x);
    cluster_product(all.product, all.first, source);
}
