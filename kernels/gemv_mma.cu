// SPDX-License-Identifier: MIT
/*  gemv_mma.cu - products of up to 64 rows with all of a matrix of weights, on tensor cores, with what is before and behind them

    Bound by memory: weights are read once, however many rows there are. A block has 16 rows of weights at a time, each of its warps a slice of K;
    what they have found is added up as a tree. Slices follow from K alone, so a row has the same bits alone and among others: with one row
    seven columns of eight are empty, which costs nothing, as tensor cores wait for the memory.
    Before the product comes, where there is one row, its norm; behind it what the kind says. Nothing but weights is read before the kernels ahead
    have ended, so that the first ones are there when they have (see ignis_grid_dependency_wait).

    For f16 and bf16, sm_80 and up; K a multiple of 8. One program per type: compiled with -DIGNIS_T=<1 or 2>; for more than 8 rows with
    -DIGNIS_GROUPS=<2, 4 or 8>, too.
*/
#include "gemv.cuh"
#include "weights.cuh"

typedef dense_weights<T> weights;

#ifndef IGNIS_GROUPS
/*  grid = rows; for quantised weights, too */
extern "C" __global__ void __launch_bounds__(THREADS) ignis_gemv_mma_norm(const __grid_constant__ gemv_mma_params p)
{
    T *y = p.out + blockIdx.x * p.k;
    ignis_grid_dependents_launch();
    const row_norm norm(p);
    ignis_grid_dependency_wait();
    norm.run(p.norm_of + blockIdx.x * p.k, [&](int i, const ignis_pack<T, 4> &four) { ignis_store(y + i, four); });
}
#endif

/*  Up to 8 N rows; single: one, which lies in shared memory. */
template <int N, bool single> __device__ inline void product(const gemv_mma_params &p)
{
    extern __shared__ uint4 memory[];
    constexpr int PIECE = 4; /* blocks of 32 elements that a warp loads at a time */
    constexpr int columns = single ? 1 : 8 * N, found_size = SLICES * columns * COLUMN;
    float *found = (float *)memory; /* [2][SLICES][columns][COLUMN] */
    T *row = (T *)(found + 2 * found_size);
    const int lane = threadIdx.x % 32, slice = threadIdx.x / 32, k = (int)p.k;
    const int blocks = (k + 31) / 32, per_slice = (blocks + SLICES - 1) / SLICES, pieces = (per_slice + PIECE - 1) / PIECE;
    const int first = slice * per_slice, last = min(first + per_slice, blocks);
    const int tiles = (int)((p.n + (p.gated ? 7 : 15)) / (p.gated ? 8 : 16));
    const int behind = (int)(p.gated ? 2 * p.n : p.n) - 1;
    typename weights::block now[PIECE], next[PIECE];

    const auto load = [&](typename weights::block(&to)[PIECE], int tile, int piece) {
        int low, high;
        tile_rows(p, 0, tile, low, high);
        const weights w(p.weights, p.k, min(low + lane / 4, behind), min(high + lane / 4, behind));
#pragma unroll
        for (int i = 0; i < PIECE; i++) {
            const int at = first + piece * PIECE + i;
            to[i] = w.load(32LL * at, at < last && 32 * at + lane % 4 * 8 < k);
        }
    };
    const auto x_of = [&](int c, int at) {
        const int i = 32 * at + lane % 4 * 8;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (at >= last || i >= k)
            return x;
        if (single)
            return lane < 4 && c == 0 ? *(const uint4 *)(row + i) : x;
        return c + lane / 4 < p.rows ? *(const uint4 *)(p.x + (long long)(c + lane / 4) * p.k + i) : x;
    };

    const int g = threadIdx.x % 8, own = threadIdx.x / 8; /* row and column that this thread finishes */
    int low, high;
    finish_line line;

    ignis_grid_dependents_launch();
    load(now, blockIdx.x, 0);
    tile_rows(p, 0, blockIdx.x, low, high);
    if (own < p.rows && own < columns)
        line.load(p, low + g, high + g, own);
    if (single) {
        if (p.norm_of) {
            const row_norm norm(p);
            ignis_grid_dependency_wait();
            norm.run(p.norm_of, [&](int i, const ignis_pack<T, 4> &four) { ignis_store_shared(row + i, four); });
        } else {
            constexpr int at_a_time = 4;
            ignis_grid_dependency_wait();
            for (int from = threadIdx.x * 8; from < k; from += at_a_time * THREADS * 8) {
                ignis_pack<T, 8> part[at_a_time];
#pragma unroll
                for (int i = 0; i < at_a_time; i++)
                    if (from + i * THREADS * 8 < k)
                        part[i] = ignis_load(p.x + from + i * THREADS * 8);
#pragma unroll
                for (int i = 0; i < at_a_time; i++)
                    if (from + i * THREADS * 8 < k)
                        ignis_store_shared(row + from + i * THREADS * 8, part[i]);
            }
        }
        __syncthreads();
    } else {
        ignis_grid_dependency_wait();
    }

    for (int tile = blockIdx.x, turn = 0; tile < tiles; tile += gridDim.x, turn ^= 1) {
        float sum[N][4];
        if (tile != blockIdx.x) {
            tile_rows(p, 0, tile, low, high);
            if (own < p.rows && own < columns)
                line.load(p, low + g, high + g, own);
        }
        if (own < p.rows && own < columns)
            line.load_sum(p, low + g, high + g, own);
#pragma unroll
        for (int n = 0; n < N; n++)
            sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
        for (int piece = 0; piece < pieces; piece++) {
            const int next_tile = piece + 1 < pieces ? tile : tile + gridDim.x;
            if (next_tile < tiles)
                load(next, next_tile, piece + 1 < pieces ? piece + 1 : 0);
#pragma unroll
            for (int i = 0; i < PIECE; i++) {
                uint4 x[N];
#pragma unroll
                for (int n = 0; n < N; n++)
                    x[n] = x_of(8 * n, first + piece * PIECE + i);
                weights::template add<N>(sum, now[i], x);
            }
#pragma unroll
            for (int i = 0; i < PIECE; i++)
                now[i] = next[i];
        }

        float *slices = found + turn * found_size;
        put_slice<columns>(slices + slice * columns * COLUMN, sum);
        __syncthreads(); /* and the one of the next tile comes before this half is written again */
        finish_tile<columns, true>(p, slices, low, high, line);
    }
}

/*  More rows: IGNIS_GROUPS tiles of weights share what they need of x. So many warps have the same slices of K one after the other, and pass
    through x in shared memory together; as many groups of them as make 8 warps share out the slices. */
#ifdef IGNIS_GROUPS
constexpr int TILES = IGNIS_GROUPS, OWN_SLICES = IGNIS_GROUPS, TEAMS = SLICES / TILES;
constexpr int STEP = 2, STAGES = 4; /* blocks of 32 elements of a step; steps of x that are there or on their way */
constexpr int X_ROW = 64 * STEP + 64;          /* bytes from a row of x to the next: lanes read without conflicts */

template <int N> __device__ inline void product_of_many(const gemv_mma_params &p)
{
    extern __shared__ uint4 memory[];
    constexpr int columns = 8 * N, team_bytes = columns * X_ROW, stage_bytes = TEAMS * team_bytes;
    constexpr int AHEAD = N == 8 && __CUDA_ARCH__ >= 1000 ? 3 : 4; /* steps of weights: newer devices need more registers */
    float *found = (float *)memory; /* [warps][columns][COLUMN], when x is no longer needed */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, team = warp / TILES, k = (int)p.k;
    const int blocks = (k + 31) / 32, per_slice = (blocks + SLICES - 1) / SLICES, steps = (per_slice + STEP - 1) / STEP, all = OWN_SLICES * steps;
    const int tiles = (int)((p.n + (p.gated ? 7 : 15)) / (p.gated ? 8 : 16)), behind = (int)(p.gated ? 2 * p.n : p.n) - 1;
    const uint32_t x_at = (uint32_t)__cvta_generic_to_shared(memory) + team * team_bytes;
    typename weights::block w[AHEAD][STEP];

    /* The first block of a step, and the one behind its slice. */
    const auto place = [&](int n, int &first, int &last) {
        const int slice = team * OWN_SLICES + n / steps;
        first = slice * per_slice + n % steps * STEP;
        last = min((slice + 1) * per_slice, blocks);
    };
    const auto load = [&](typename weights::block (&to)[STEP], int tile, int n) {
        int low, high, first, last;
        tile_rows(p, 0, min(tile, tiles - 1), low, high);
        place(n, first, last);
        const weights own(p.weights, p.k, min(low + lane / 4, behind), min(high + lane / 4, behind));
#pragma unroll
        for (int i = 0; i < STEP; i++)
            to[i] = own.load(32LL * (first + i), n < all && first + i < last && 32 * (first + i) + lane % 4 * 8 < k);
    };
    const auto copy_x = [&](int n) {
        int first, last;
        place(n, first, last);
        if (n < all)
            for (int i = threadIdx.x % (32 * TILES); i < columns * STEP * 4; i += 32 * TILES) {
                const int c = i / (STEP * 4), part = i % (STEP * 4), at = first + part / 4, element = 32 * at + part % 4 * 8;
                const bool there = c < p.rows && at < last && element < k;
                ignis_ptx_cp_async(x_at + n % STAGES * stage_bytes + c * X_ROW + part * 16, p.x + (there ? (uint32_t)(c * k + element) : 0), there ? 16 : 0);
            }
        ignis_ptx_cp_async_commit();
    };

    ignis_grid_dependents_launch();
    for (int first_tile = blockIdx.x * TILES; first_tile < tiles; first_tile += gridDim.x * TILES) {
        const int tile = first_tile + warp % TILES;
        float sum[N][4], one[N][4], two[N][4], four[N][4];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            load(w[i], tile, i);
        ignis_grid_dependency_wait();
        for (int i = 0; i < STAGES - 1; i++)
            copy_x(i);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum[n][j] = one[n][j] = two[n][j] = four[n][j] = 0;
        for (int n = 0; n < all; n++) {
            ignis_ptx_cp_async_wait<STAGES - 2>();
            __syncthreads(); /* x is there, and all are done with what the next copy writes over */
            copy_x(n + STAGES - 1);
#pragma unroll
            for (int i = 0; i < STEP; i++) {
                uint4 x[N];
#pragma unroll
                for (int c = 0; c < N; c++)
                    x[c] = *(const uint4 *)((const char *)memory + n % STAGES * stage_bytes + team * team_bytes + (8 * c + lane / 4) * X_ROW +
                                            64 * i + lane % 4 * 16);
                weights::template add<N>(sum, w[0][i], x);
            }
#pragma unroll
            for (int i = 0; i + 1 < AHEAD; i++)
#pragma unroll
                for (int j = 0; j < STEP; j++)
                    w[i][j] = w[i + 1][j];
            load(w[AHEAD - 1], tile, n + AHEAD);
            if ((n + 1) % steps != 0)
                continue;
            const int slice = n / steps; /* in the order in which product() adds them up */
#pragma unroll
            for (int c = 0; c < N; c++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    if (slice % 2 == 0) {
                        one[c][j] = sum[c][j];
                    } else {
                        const float pair = one[c][j] + sum[c][j];
                        if (slice % 4 == 1)
                            two[c][j] = pair;
                        else if (slice == 3)
                            four[c][j] = two[c][j] + pair;
                        else
                            four[c][j] += two[c][j] + pair;
                    }
                    sum[c][j] = 0;
                }
        }
        ignis_ptx_cp_async_wait<0>();
        __syncthreads();
#pragma unroll
        for (int c = 0; c < N; c++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                found[(warp * columns + 8 * c + lane % 4 * 2 + j % 2) * COLUMN + lane / 4 + j / 2 * 8] =
                    OWN_SLICES == 8 || OWN_SLICES == 4 ? four[c][j] : two[c][j];
        __syncthreads();
        for (int i = threadIdx.x; i < TILES * 8 * columns; i += THREADS) {
            const int g = i % 8, c = i / 8 % columns, own = i / 8 / columns;
            int low, high;
            finish_line line;
            float y[2];
            if (c >= p.rows || first_tile + own >= tiles)
                continue;
            tile_rows(p, 0, first_tile + own, low, high);
            line.load(p, low + g, high + g, c);
            line.load_sum(p, low + g, high + g, c);
#pragma unroll
            for (int part = 0; part < 2; part++) {
                float s[TEAMS];
#pragma unroll
                for (int t = 0; t < TEAMS; t++)
                    s[t] = found[((t * TILES + own) * columns + c) * COLUMN + g + 8 * part];
                if constexpr (TEAMS == 4)
                    y[part] = (s[0] + s[1]) + (s[2] + s[3]);
                else if constexpr (TEAMS == 2)
                    y[part] = s[0] + s[1];
                else
                    y[part] = s[0];
            }
            line.put(p, low + g, high + g, c, y[0], y[1]);
        }
        __syncthreads();
    }
}

/*  grid = any number of blocks up to that of groups of tiles; shared memory for STAGES stages, which is more than what is found takes. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) ignis_gemv_mma_16(const __grid_constant__ gemv_mma_params p) { product_of_many<2>(p); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) ignis_gemv_mma_32(const __grid_constant__ gemv_mma_params p) { product_of_many<4>(p); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) ignis_gemv_mma_64(const __grid_constant__ gemv_mma_params p) { product_of_many<8>(p); }
#else
/*  grid = any number of blocks up to that of tiles; shared memory for 2 SLICES COLUMN columns floats, and if single for the row. */
extern "C" __global__ void __launch_bounds__(THREADS, 2) ignis_gemv_mma_1(const __grid_constant__ gemv_mma_params p) { product<1, true>(p); }
extern "C" __global__ void __launch_bounds__(THREADS, 2) ignis_gemv_mma_8(const __grid_constant__ gemv_mma_params p) { product<1, false>(p); }
#endif
