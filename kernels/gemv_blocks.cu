// SPDX-License-Identifier: MIT
/*  gemv_blocks.cu - products of up to 64 rows with all of a matrix of quantised weights, on tensor cores

    As gemv_mma.cu does it, where weights are numbers: slices of K follow from K alone, so a row has the same bits alone and among others; the norm of
    one row comes with the product, and behind it what the kind says. Nothing but weights is read before the kernels ahead have ended.

    For f16 and bf16, sm_80 and up. One program per type of x and of blocks: compiled with -DIGNIS_T=<1 or 2> -DIGNIS_BLOCKS=<a blocks_type>, and where
    rows of Q4_0 or Q8_0 end within what is loaded at once, 128 or 64 elements, -DIGNIS_ENDS.
*/
#include "gemv.cuh"
#include "weights_blocks.cuh"

#ifdef IGNIS_ENDS
typedef weights_of<T, IGNIS_BLOCKS, true> weights;
#else
typedef weights_of<T, IGNIS_BLOCKS, false> weights;
#endif

constexpr int BLOCKS = weights::elements / 32; /* of 32 elements, of a unit */

/*  Sums of x over the parts of a unit's blocks. */
struct __align__(16) unit_sums {
    float of[BLOCKS][weights::parts];
};

/*  ignis.h has the same struct. */
struct gemv_blocks_params {
    gemv_mma_params product;
    const uint8_t *plane[3]; /* behind the one at weights: see blocks.cuh */
    int first;               /* result of the first row of the weights, n that behind the last one */
};

/*  Up to 8 N rows; single: one, which lies in shared memory. */
template <int N, bool single> __device__ inline void product(const gemv_blocks_params &all)
{
    const gemv_mma_params &p = all.product;
    extern __shared__ uint4 memory[];
    constexpr int columns = single ? 1 : 8 * N, found_size = SLICES * columns * COLUMN;
    float *found = (float *)memory; /* [2][SLICES][columns][COLUMN] */
    const int lane = threadIdx.x % 32, slice = threadIdx.x / 32, k = (int)p.k;
    const int units = (k + weights::elements - 1) / weights::elements, per_slice = (units + SLICES - 1) / SLICES;
    const int first = slice * per_slice, last = min(first + per_slice, units);
    const int tiles = (int)((p.n - all.first + (p.gated ? 7 : 15)) / (p.gated ? 8 : 16));
    const int behind = (int)(p.gated ? 2 * p.n : p.n) - 1;
    constexpr int ring = N < 4 ? weights::ring : weights::ring / 2; /* for more there are too few registers */
    const int steps = (per_slice + ring - 1) / ring;
    unit_sums *sums = (unit_sums *)(found + 2 * found_size); /* single: of x, [units]; the row is behind them */
    T *row = (T *)(sums + units);
    typename weights::block loaded[ring];

    const auto weights_of_tile = [&](int tile) {
        int low, high;
        tile_rows(p, all.first, tile, low, high);
        return weights(p.weights, all.plane, p.k, min(low + lane / 4, behind) - all.first, min(high + lane / 4, behind) - all.first);
    };
    const auto x_of = [&](int c, int at) {
        int lane = threadIdx.x % 32;
        if (N == 8 && (IGNIS_BLOCKS == BLOCKS_Q8_0 || IGNIS_BLOCKS == BLOCKS_Q6_K) && __CUDA_ARCH__ < 900)
            asm volatile("" : "+r"(lane)); /* or else the compiler computes addresses ahead, for which older devices have no registers */
        const int i = 32 * at + lane % 4 * (weights::halves ? 4 : 8);
        if (!single && (i >= k || c + lane / 4 >= p.rows)) /* else there are zeros behind k, and other columns may be anything */
            return make_uint4(0, 0, 0, 0);
        const T *x = single ? row + i : p.x + (uint32_t)((c + lane / 4) * k + i); /* 32 bits are enough, and half the registers */
        if (!weights::halves)
            return *(const uint4 *)x;
        const uint2 low = *(const uint2 *)x, high = *(const uint2 *)(x + 16);
        return make_uint4(low.x, low.y, high.x, high.y);
    };
    const auto add_part = [](float (&ones)[2], int part, const uint4 &x) {
        if (part == 0)
            add_ones<T>(ones, x.x, x.y);
        if (part == weights::parts - 1)
            add_ones<T>(ones, x.z, x.w);
    };

    ignis_grid_dependents_launch();
    weights from = weights_of_tile(blockIdx.x);
#pragma unroll
    for (int i = 0; i < ring; i++)
        if (first + i < last)
            loaded[i] = from.load(first + i);
    if (single) {
        if (p.norm_of) {
            const row_norm norm(p);
            ignis_grid_dependency_wait();
            norm.run(p.norm_of, [&](int i, const ignis_pack<T, 4> &four) { ignis_store_shared(row + i, four); });
        } else {
            ignis_grid_dependency_wait();
            for (int i = threadIdx.x * 8; i < k; i += THREADS * 8)
                *(uint4 *)(row + i) = *(const uint4 *)(p.x + i);
        }
        for (int i = k + threadIdx.x; i < units * weights::elements; i += THREADS)
            row[i] = T(0.0f);
        __syncthreads();
        for (int at = first * BLOCKS; at < last * BLOCKS; at++) /* each warp those that it needs */
#pragma unroll
            for (int part = 0; part < weights::parts; part++) {
                float ones[2] = {0, 0};
                add_part(ones, part, x_of(0, at));
                if (lane == 0)
                    sums[at / BLOCKS].of[at % BLOCKS][part] = ones[0];
            }
        __syncwarp();
    } else {
        ignis_grid_dependency_wait();
    }

    for (int tile = blockIdx.x, turn = 0; tile < tiles; tile += gridDim.x, turn ^= 1) {
        const int g = threadIdx.x % 8, own = threadIdx.x / 8; /* row and column that this thread finishes */
        float sum[N][4];
        int low, high;
        finish_line line;
        tile_rows(p, all.first, tile, low, high);
        if (own < p.rows)
            line.load_sum(p, low + g, high + g, own);
#pragma unroll
        for (int n = 0; n < N; n++)
            sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
        for (int step = 0; step < steps; step++) {
            const bool is_last = step + 1 == steps, more = !is_last || tile + gridDim.x < tiles;
            const int next = is_last ? first : first + (step + 1) * ring;
            if (is_last && more)
                from = weights_of_tile(tile + gridDim.x);
#pragma unroll
            for (int i = 0; i < ring; i++) {
                const int unit = first + step * ring + i;
                if (unit < last) {
                    weights::template add<N, single>(
                        sum, loaded[i], [&](int block, int n) { return x_of(8 * n, unit * BLOCKS + block); },
                        [&](int block, int part, int n, const uint4 &x, float (&ones)[2]) {
                            if (single)
                                ones[0] = sums[unit].of[block][part];
                            else
                                add_part(ones, part, x);
                        });
                }
                if (more && next + i < last)
                    loaded[i] = from.load(next + i);
            }
        }

        float *slices = found + turn * found_size;
        put_slice<columns>(slices + slice * columns * COLUMN, sum, lane / 4);
        __syncthreads(); /* and the one of the next tile comes before this half is written again */
        finish_tile<columns, false>(p, slices, low, high, line);
    }
}

/*  grid = any number of blocks up to that of tiles; shared memory for 2 SLICES COLUMN columns floats, and if single for the sums of x and its row. */
extern "C" __global__ void __launch_bounds__(THREADS, 2) ignis_gemv_blocks_1(const __grid_constant__ gemv_blocks_params p)
{
    product<1, true>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) ignis_gemv_blocks_8(const __grid_constant__ gemv_blocks_params p)
{
    product<1, false>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) ignis_gemv_blocks_16(const __grid_constant__ gemv_blocks_params p)
{
    product<2, false>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) ignis_gemv_blocks_32(const __grid_constant__ gemv_blocks_params p)
{
    product<4, false>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) ignis_gemv_blocks_64(const __grid_constant__ gemv_blocks_params p)
{
    product<8, false>(p);
}
