// SPDX-License-Identifier: MIT
/*  models/gemv_hopper_blocks.cu - GEMV of 2 to 64 rows with quantised weights, by warpgroups of sm_90a

    Weights become numbers of T in registers, the A of wgmma, and x is numbers of T already: gemv_blocks.cu rounds it
    to whole multiples of a block's power of two. Such numbers have as many digits as those of T. So tensor cores find
    the product of two blocks of 32 as a float, without rounding: it has the bits that weights_blocks.cuh finds by whole
    numbers, and all sums after it have the same order. Weights and x of F8 are numbers of T, whose sums are rounded in
    the order of weights_f8.cuh. This part is the source of operands; all else: gemv_cluster.cuh. For f16 and bf16.
    Compiled with -DIGNIS_COLUMNS=<8, 16, 32 or 64> -DIGNIS_CLUSTER=<1, 2 or 4> -DIGNIS_BLOCKS=<a blocks_type with exact
    products, or F8>.
*/
#define IGNIS_GEMV_HOPPER
#include "gemv_cluster.cuh"
#include "weights_f8.cuh"

typedef rows_of_blocks<IGNIS_BLOCKS, T>::kind weights;
static_assert(weights::exact || is_f8(IGNIS_BLOCKS), "else sums are rounded");

constexpr int RECORD_BYTES = record_bytes(IGNIS_BLOCKS), EIGHT_BYTES = 8 * RECORD_BYTES;
/*  of two blocks of all rows of x, and of a record */
constexpr int BOX_BYTES = COLUMNS * 128, X_BYTES = 4 * BOX_BYTES;
constexpr int SUMS_BYTES = weights::minima ? RECORD * COLUMNS * 4 : 0, WEIGHT_BYTES = 2 * TILES * EIGHT_BYTES;
static_assert(RECORD_BYTES / 16 % 2 == 1, "so rows that lanes read at a time have different banks");

/*  A warp multiplies GROUP blocks at once with each CHUNK eights of columns, as registers allow. */
constexpr int GROUP = COLUMNS < 32 ? 2 : UNIT, CHUNK = N < 4 ? N : 4;
static_assert(GROUP == UNIT || CHUNK == N, "sums of two blocks are kept for one chunk");

/*  The source of quantised weights. A k step is a record of each row. A warp has a tile; its warpgroup four of them. */
struct blocks_source {
    /* the host has the same */
    static constexpr int STAGE_BYTES = (X_BYTES + SUMS_BYTES + WEIGHT_BYTES + 1023) / 1024 * 1024;
    const ignis__gemv_blocks &all;
    const ignis__gemv_mma &p;
    const ignis__tensor_map *of_x;
    int length, per_slice, advance, rows;

    __device__ blocks_source(const ignis__gemv_blocks &all, const ignis__tensor_map *of_x)
        : all(all), p(all.product), of_x(of_x), length(((int)p.k + 32 * RECORD - 1) / (32 * RECORD)),
          per_slice((length + SLICES - 1) / SLICES), advance(1), rows((p.rows + 7) / 8 * 8)
    {
    }
    __device__ int bytes_of_sums() const { return weights::minima ? RECORD * rows * 4 : 0; }
    __device__ uint32_t bytes() const { return X_BYTES + bytes_of_sums() + WEIGHT_BYTES; }
    __device__ void ask_weights(uint32_t to, uint32_t barrier, int group, int at) const
    {
        const int lane = threadIdx.x % 32, behind = (int)(p.gated ? 2 * p.n : p.n) - all.first;
        int low, high, row;
        if (lane >= 2 * TILES)
            return;
        group_rows(p, all.first, group, lane % TILES, low, high);
        row = (lane < TILES ? low : high) - all.first;
        ignis_ptx_bulk_load(to + X_BYTES + SUMS_BYTES + lane * EIGHT_BYTES,
                            (const uint8_t *)p.weights + (first_record(row < behind ? row : 0, length) +
                                                          (long long)min(at, length - 1) * TOGETHER) *
                                                             RECORD_BYTES,
                            EIGHT_BYTES, barrier);
    }
    __device__ void ask_x(uint32_t to, uint32_t barrier, int at) const
    {
        const int lane = threadIdx.x % 32;
        if (lane < 4)
            ignis_ptx_tensor_load<2>(to + lane * BOX_BYTES, of_x, barrier, at * 4 * 64 + lane * 64, 0);
        else if (weights::minima && lane == 4) /* after the scales of all blocks */
            ignis_ptx_bulk_load(to + X_BYTES, all.scales + (length + min(at, length - 1)) * RECORD * rows,
                                bytes_of_sums(), barrier);
    }
    __device__ void multiply(float (&sum)[M][N][4], const char *stage, int, int at, int end) const
    {
        const int lane = threadIdx.x % 32;
        const uint8_t *const records = (const uint8_t *)stage + X_BYTES + SUMS_BYTES + threadIdx.x / 32 * EIGHT_BYTES +
                                       row_of_lanes(lane / 4) * RECORD_BYTES;
        /* from one lane: the compiler keeps descriptors in uniform registers */
        const uint64_t x =
            ignis_wgmma_descriptor(__shfl_sync(0xffffffff, (uint32_t)__cvta_generic_to_shared(stage), 0), 0, 1024);
        if (at >= end)
            return;
        if constexpr (weights::is_float)
            multiply_units<weights>(sum[0], records, x);
        else
            multiply_blocks<weights>(sum[0], stage, records, x);
    }
    /*  Multiplies a record of each row, block by block. records: of this lane's row; x: the descriptor of the tiles. */
    template <typename Weights>
    __device__ void multiply_blocks(float (&sum)[N][4], const char *stage, const uint8_t *records, uint64_t x) const
    {
        const int t = threadIdx.x % 4, quad = threadIdx.x % 32 - t;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            typename Weights::unit w;
            float pair[CHUNK][4];
#pragma unroll
            for (int r = 0; r < 2; r++)
                Weights::template read<false>(w, r, records + r * TILES * EIGHT_BYTES, half,
                                              [](const uint8_t *from) { return *(const uint4 *)from; });
            const typename Weights::scales own = Weights::scales_of(w, half);
#pragma unroll
            for (int first = 0; first < UNIT; first += GROUP) {
                uint32_t a[GROUP][2][4];
                float of[GROUP][2], least[GROUP][2];
#pragma unroll
                for (int b = 0; b < GROUP; b++) {
                    uint32_t one[2] = {};
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        of[b][r] = __shfl_sync(0xffffffff, own.of[r][0], quad + first + b);
                        if (Weights::minima)
                            least[b][r] = __shfl_sync(0xffffffff, own.least[r][0], quad + first + b);
                        if (Weights::ones)
                            one[r] = __shfl_sync(0xffffffff, w.one[r], quad + first + b);
                    }
                    Weights::template operand_pairs<T>(a[b], w, first + b, one, t);
                }
#pragma unroll
                for (int chunk = 0; chunk < N; chunk += CHUNK) {
                    float found[GROUP][CHUNK][4];
                    ignis_ptx_wgmma_fence();
#pragma unroll
                    for (int b = 0; b < GROUP; b++) {
                        const int block = half * UNIT + first + b;
                        const uint64_t of_block =
                            ignis_wgmma_ahead(x, block / 2 * BOX_BYTES + block % 2 * 64 + chunk * 1024);
                        ignis_ptx_wgmma<0, 0>(found[b], a[b][0], of_block);
                        ignis_ptx_wgmma<1, 0>(found[b], a[b][1], ignis_wgmma_ahead(of_block, 32));
                        if (b % 2 == 1)
                            ignis_ptx_wgmma_commit();
                    }
#pragma unroll
                    for (int b = 0; b < GROUP; b += 2) {
                        if (b + 2 < GROUP)
                            ignis_ptx_wgmma_wait<1>();
                        else
                            ignis_ptx_wgmma_wait<0>();
                        ignis_wgmma_hold(found[b]);
                        ignis_wgmma_hold(found[b + 1]);
                        /* until here wgmma reads the registers of these weights */
                        ignis_wgmma_hold(a[b]);
                        ignis_wgmma_hold(a[b + 1]);
#pragma unroll
                        for (int n = 0; n < CHUNK; n++) {
                            float2 of_x[2] = {};
#pragma unroll
                            for (int i = 0; i < 2 && Weights::minima; i++)
                                of_x[i] =
                                    *(const float2 *)((const float *)(stage + X_BYTES) +
                                                      (half * UNIT + first + b + i) * rows + 8 * (chunk + n) + 2 * t);
#pragma unroll
                            for (int c = 0; c < 4; c++) {
                                float y[2];
#pragma unroll
                                for (int i = 0; i < 2; i++) {
                                    y[i] = __fmul_rn(found[b + i][n][c], of[b + i][c / 2]);
                                    if (Weights::minima)
                                        y[i] = fmaf(-least[b + i][c / 2], c % 2 ? of_x[i].y : of_x[i].x, y[i]);
                                }
                                if (first + b == 0)
                                    pair[n][c] = y[0] + y[1];
                                else
                                    sum[chunk + n][c] += pair[n][c] + (y[0] + y[1]);
                            }
                        }
                    }
                }
            }
        }
    }
    /*  As multiply_blocks, for F8: unit by unit. */
    template <typename Weights>
    __device__ void multiply_units(float (&sum)[N][4], const uint8_t *records, uint64_t x) const
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            typename Weights::unit w;
            uint32_t a[UNIT][2][4];
            float found[N][4];
#pragma unroll
            for (int r = 0; r < 2; r++)
                Weights::template read<false>(w, r, records + r * TILES * EIGHT_BYTES, half,
                                              [](const uint8_t *from) { return *(const uint4 *)from; });
#pragma unroll
            for (int b = 0; b < UNIT; b++)
                Weights::operand(a[b], w, b);
            ignis_ptx_wgmma_fence();
#pragma unroll
            for (int b = 0; b < UNIT; b++) {
                const int block = half * UNIT + b;
                const uint64_t of_block = ignis_wgmma_ahead(x, block / 2 * BOX_BYTES + block % 2 * 64);
                if (b == 0)
                    ignis_ptx_wgmma<0, 0>(found, a[b][0], of_block);
                else
                    ignis_ptx_wgmma<1, 0>(found, a[b][0], of_block);
                ignis_ptx_wgmma<1, 0>(found, a[b][1], ignis_wgmma_ahead(of_block, 32));
            }
            ignis_ptx_wgmma_commit();
            ignis_ptx_wgmma_wait<0>();
            ignis_wgmma_hold(found);
#pragma unroll
            for (int b = 0; b < UNIT; b++)
                ignis_wgmma_hold(a[b]); /* until here wgmma reads the registers of these weights */
            Weights::add_scaled(sum, found, w);
        }
    }
};

/*  Params: a TMA map of x, whose tiles are COLUMNS rows of 64. */
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(ALL_THREADS, COLUMNS < 32 ? 2 : 1)
    ignis_gemv_hopper_blocks(const __grid_constant__ ignis__gemv_blocks all,
                             const __grid_constant__ ignis__tensor_map of_x)
{
    blocks_source source(all, &of_x);
    cluster_product(all.product, all.first, source);
}
