// SPDX-License-Identifier: MIT
/*  models/gemv_mma.cu - GEMV of up to 64 rows with dense weights, on tensor cores, with its norm and epilogue

    Bound by memory: weights are read once, for any number of rows. A block has 16 rows of weights at a time, each
    of its warps a slice of K; the slices are added as a tree. Slices depend on K alone, so a row has the same bits
    alone and in a batch. With one row, seven of eight columns are empty. That is free, because tensor cores wait
    for the memory. With one row, its norm precedes the product. The epilogue depends on the kind. Only weights are
    read before the earlier kernels have ended, so that the first ones are there by then (see
    ignis_grid_dependency_wait). On sm_90 and up TMA brings the weights of one row to shared memory, which leaves
    registers to other kernels. More rows read x through the L1 cache, and need its memory.

    For f16 and bf16, sm_80 and up; K a multiple of 8. One program per type: compiled with -DIGNIS_T=<1 or 2>; for
    more than 8 rows with -DIGNIS_GROUPS=<2, 4 or 8>, too.
*/
#include "gemv.cuh"
#include "weights.cuh"
#include "hopper.cuh"

typedef dense_weights<T> weights;

#ifndef IGNIS_GROUPS
/*  Computes norms before a GEMV, dense or quantised. grid = rows. */
extern "C" __global__ void __launch_bounds__(THREADS) ignis_gemv_mma_norm(const __grid_constant__ ignis__gemv_mma p)
{
    T *y = p.out + blockIdx.x * p.k;
    ignis_grid_dependents_launch();
    const row_norm norm(p);
    ignis_grid_dependency_wait();
    norm.run(p.norm_of + blockIdx.x * p.k, [&](int i, const ignis_pack<T, 4> &four) {
        ignis_store(y + i, four);
        if (p.ordered) {
            const uint2 words = *(const uint2 *)&four;
            uint32_t *const to = (uint32_t *)(p.ordered + blockIdx.x * p.k) + ordered_place(i) / 2;
            to[0] = words.x, to[4] = words.y;
        }
    });
}

/*  Puts the elements of rows of x into the order of operands. grid = 2048 elements of a row, rows. k: a multiple of 32.
 */
extern "C" __global__ void __launch_bounds__(THREADS) ignis_gemv_mma_order(const __grid_constant__ ignis__gemv_mma p)
{
    const int i = (blockIdx.x * THREADS + threadIdx.x) * 8;
    const long long row = blockIdx.y * p.k;
    ignis_grid_dependents_launch();
    ignis_grid_dependency_wait();
    if (i < p.k) {
        const uint4 words = *(const uint4 *)(p.x + row + i);
        uint32_t *const to = (uint32_t *)(p.ordered + row) + ordered_place(i) / 2;
        to[0] = words.x, to[4] = words.y, to[8] = words.z, to[12] = words.w;
    }
}

/*  A warp's slice of K, in blocks of 32 elements. Its weights come in chunks, which are blocks of the 16 rows of a
    tile. */
constexpr int PIECE = 4; /* blocks of a chunk, at most */

struct slice_of_k {
    int first, last, pieces, size; /* size: blocks of each chunk */

    __device__ explicit slice_of_k(int k)
    {
        const int blocks = (k + 31) / 32, per_slice = (blocks + SLICES - 1) / SLICES;
        pieces = (per_slice + PIECE - 1) / PIECE;
        size = (per_slice + pieces - 1) / pieces;
        first = threadIdx.x / 32 * per_slice;
        last = min(first + per_slice, blocks);
    }
};

/*  Enumerates the chunks of a block's tiles, in their order. */
struct piece_order {
    const ignis__gemv_mma &p;
    const slice_of_k &slice;
    const int tiles;
    int tile, piece; /* of the next chunk; no tile after the last one */

    __device__ piece_order(const ignis__gemv_mma &p, const slice_of_k &slice, int tiles)
        : p(p), slice(slice), tiles(tiles), tile(blockIdx.x), piece(0)
    {
    }
    __device__ void go_on()
    {
        if (++piece == slice.pieces)
            piece = 0, tile += gridDim.x;
    }
};

/*  A source of chunks that loads into registers, one chunk ahead. Sources continue with the block's next tile, so
    that copies are always in flight. A source has: type(params, map, memory, slice, tiles), which starts the first
    copies; next(to), which gives a lane its part of the next chunk, and starts one more copy; row_of(g): the row, of
    a tile's first eight, that lanes 4 g to 4 g + 3 have, together with the one eight rows later. */
struct pieces_in_registers : piece_order {
    weights::block ahead[PIECE];

    __device__ pieces_in_registers(const ignis__gemv_mma &p, const ignis__tensor_map *, const void *,
                                   const slice_of_k &slice, int tiles)
        : piece_order(p, slice, tiles)
    {
        ask();
    }
    __device__ void ask()
    {
        const int lane = threadIdx.x % 32, behind = (int)(p.gated ? 2 * p.n : p.n) - 1;
        int low, high;
        if (tile >= tiles)
            return;
        tile_rows(p, 0, tile, low, high);
        const weights w(p.weights, p.k, min(low + lane / 4, behind), min(high + lane / 4, behind));
#pragma unroll
        for (int i = 0; i < PIECE; i++) {
            const int at = slice.first + piece * slice.size + i;
            ahead[i] = w.load(32LL * at, i < slice.size && at < slice.last && 32 * at + lane % 4 * 8 < (int)p.k);
        }
        go_on();
    }
    __device__ void next(weights::block (&to)[PIECE])
    {
#pragma unroll
        for (int i = 0; i < PIECE; i++)
            to[i] = ahead[i];
        ask();
    }
    static __device__ int row_of(int g) { return g; }
};

#if __CUDA_ARCH__ >= 900
/*  A source by TMA, to a ring in shared memory for each warp, so that no warp waits for others. Several copies are in
    flight without taking registers, and with few instructions. */
struct pieces_in_shared : piece_order {
    /* elements of a row of the TMA map's tiles; the host has the same */
    static constexpr int BOX = 64, BOX_BYTES = 8 * 2 * BOX;
    static constexpr int PIECE_BYTES = 2 * PIECE * 32 / BOX * BOX_BYTES;
    const ignis__tensor_map *map;
    int low, high; /* rows of the next copy */
    int place;     /* of the next chunk in the ring */
    uint32_t phase, ring, barriers;

    __device__ pieces_in_shared(const ignis__gemv_mma &p, const ignis__tensor_map *map, void *memory,
                                const slice_of_k &slice, int tiles)
        : piece_order(p, slice, tiles), map(map), place(0), phase(0)
    {
        const uint32_t at = (uint32_t)__cvta_generic_to_shared(memory), warp = threadIdx.x / 32;
        ring = at + warp * p.ring * PIECE_BYTES;
        barriers = at + (SLICES * PIECE_BYTES + warp * 8) * p.ring;
        if (threadIdx.x % 32 == 0) {
            for (int i = 0; i < p.ring; i++)
                ignis_ptx_mbarrier_init(barriers + 8 * i, 1);
            ignis_ptx_fence_mbarrier_init();
            for (int i = 0; i < p.ring; i++)
                ask(i);
        }
        __syncwarp();
    }
    /*  Starts the copy of a chunk, by one lane. Beyond the matrix there are zeros. */
    __device__ void ask(int to)
    {
        const int at = slice.first + piece * slice.size,
                  boxes = at < slice.last ? (32 * slice.size + BOX - 1) / BOX : 0;
        if (tile >= tiles)
            return;
        if (piece == 0)
            tile_rows(p, 0, tile, low, high);
        ignis_ptx_mbarrier_arrive_expect(barriers + 8 * to, 2 * boxes * BOX_BYTES);
        for (int i = 0; i < boxes; i++) {
            ignis_ptx_tensor_load<2>(ring + to * PIECE_BYTES + 2 * i * BOX_BYTES, map, barriers + 8 * to,
                                     32 * at + i * BOX, low);
            ignis_ptx_tensor_load<2>(ring + to * PIECE_BYTES + (2 * i + 1) * BOX_BYTES, map, barriers + 8 * to,
                                     32 * at + i * BOX, high);
        }
        go_on();
    }
    __device__ void next(weights::block (&to)[PIECE])
    {
        const int lane = threadIdx.x % 32, row = row_of(lane / 4);
        const char *from = (const char *)__cvta_shared_to_generic(ring + place * PIECE_BYTES + row * 2 * BOX);
        ignis_mbarrier_wait(barriers + 8 * place, phase);
#pragma unroll
        for (int i = 0; i < PIECE; i++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                to[i].rows[j] = *(const uint4 *)(from + (2 * (32 * i / BOX) + j) * BOX_BYTES +
                                                 ((32 * i % BOX / 8 + lane % 4) ^ row) * 16);
        __syncwarp();
        if (lane == 0)
            ask(place);
        if (++place == p.ring)
            place = 0, phase ^= 1;
    }
    static __device__ int row_of(int g) { return row_of_lanes(g); } /* chunks of a row are swizzled */
};
typedef pieces_in_shared pieces_of_one;
#else
typedef pieces_in_registers pieces_of_one;
#endif

/*  Multiplies up to 8 N rows; single: one, which is in shared memory. */
template <int N, bool single, typename Pieces>
__device__ inline void product(const ignis__gemv_mma &p, const ignis__tensor_map *map)
{
    extern __shared__ __align__(1024) uint4 memory[];
    constexpr int columns = single ? 1 : 8 * N, found_size = SLICES * columns * COLUMN;
    float *found = (float *)((char *)memory + p.found_at); /* [2][SLICES][columns][COLUMN] */
    T *row = (T *)(found + 2 * found_size);
    const int lane = threadIdx.x % 32, k = (int)p.k, tiles = (int)((p.n + (p.gated ? 7 : 15)) / (p.gated ? 8 : 16));
    const slice_of_k slice(k);
    const auto x_of = [&](int c, int at, bool there) {
        const int i = 32 * at + lane % 4 * 8;
        if (single) /* other columns may have any content */
            return *(const uint4 *)(row + i);
        return there && i < k && c + lane / 4 < p.rows ? *(const uint4 *)(p.x + (long long)(c + lane / 4) * p.k + i)
                                                       : make_uint4(0, 0, 0, 0);
    };

    const int g = threadIdx.x % 8, own = threadIdx.x / 8; /* row and column of this thread's epilogue */
    int low, high;
    finish_line line;

    ignis_grid_dependents_launch();
    Pieces coming(p, map, memory, slice, tiles);
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
        if (threadIdx.x < 32 && k + threadIdx.x < (k + 31) / 32 * 32)
            row[k + threadIdx.x] = T(0.0f);
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
        for (int piece = 0; piece < slice.pieces; piece++) {
            weights::block now[PIECE];
            coming.next(now);
#pragma unroll
            for (int i = 0; i < PIECE; i++) {
                const int at = slice.first + piece * slice.size + i;
                const bool there = i < slice.size && at < slice.last; /* else the block is another slice's */
                uint4 x[N];
                if (single && !there)
                    break;
#pragma unroll
                for (int n = 0; n < N; n++)
                    x[n] = x_of(8 * n, at, there);
                weights::template add<N>(sum, now[i], x);
            }
        }

        float *slices = found + turn * found_size;
        put_slice<columns>(slices + threadIdx.x / 32 * columns * COLUMN, sum, Pieces::row_of(lane / 4));
        __syncthreads(); /* that of the next tile comes before this half is written again */
        finish_tile<columns, true>(p, slices, low, high, line);
    }
}
#endif

/*  More than 8 rows, where gemv_cluster.cu is not used: IGNIS_GROUPS tiles of weights share their x. IGNIS_GROUPS
    warps have the same slices of K one after the other, and step through x in shared memory together. The teams of
    such warps, 8 warps in all, divide the slices. */
#ifdef IGNIS_GROUPS
constexpr int TILES = IGNIS_GROUPS, OWN_SLICES = IGNIS_GROUPS, TEAMS = SLICES / TILES;
constexpr int STEP = 2, STAGES = 4;   /* blocks of 32 elements of a k step; k steps of x that are there or in flight */
constexpr int X_ROW = 64 * STEP + 64; /* bytes from a row of x to the next: lanes read without conflicts */

template <int N> __device__ inline void product_of_many(const ignis__gemv_mma &p)
{
    extern __shared__ uint4 memory[];
    constexpr int columns = 8 * N, team_bytes = columns * X_ROW, stage_bytes = TEAMS * team_bytes;
    /* k steps of weights in flight: newer devices need more registers */
    constexpr int AHEAD = N == 8 && __CUDA_ARCH__ >= 1000 ? 3 : 4;
    float *found = (float *)memory; /* [warps][columns][COLUMN], in the memory of x */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, team = warp / TILES, k = (int)p.k;
    const int blocks = (k + 31) / 32, per_slice = (blocks + SLICES - 1) / SLICES, steps = (per_slice + STEP - 1) / STEP,
              all = OWN_SLICES * steps;
    const int tiles = (int)((p.n + (p.gated ? 7 : 15)) / (p.gated ? 8 : 16)),
              behind = (int)(p.gated ? 2 * p.n : p.n) - 1;
    const uint32_t x_at = (uint32_t)__cvta_generic_to_shared(memory) + team * team_bytes;
    typename weights::block w[AHEAD][STEP];

    /* The first block of a k step, and the end of its slice. */
    const auto place = [&](int n, int &first, int &last) {
        const int slice = team * OWN_SLICES + n / steps;
        first = slice * per_slice + n % steps * STEP;
        last = min((slice + 1) * per_slice, blocks);
    };
    const auto load = [&](typename weights::block(&to)[STEP], int tile, int n) {
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
                const int c = i / (STEP * 4), part = i % (STEP * 4), at = first + part / 4,
                          element = 32 * at + part % 4 * 8;
                const bool there = c < p.rows && at < last && element < k;
                ignis_ptx_cp_async(x_at + n % STAGES * stage_bytes + c * X_ROW + part * 16,
                                   p.x + (there ? (uint32_t)(c * k + element) : 0), there ? 16 : 0);
            }
        ignis_ptx_cp_async_commit();
    };

    ignis_grid_dependents_launch();
    for (int first_tile = blockIdx.x * TILES; first_tile < tiles; first_tile += gridDim.x * TILES) {
        const int tile = first_tile + warp % TILES;
        float sum[1][N][4] = {};
        slice_tree<OWN_SLICES, 1, N> tree;
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            load(w[i], tile, i);
        ignis_grid_dependency_wait();
        for (int i = 0; i < STAGES - 1; i++)
            copy_x(i);
        for (int from = 0; from < all; from += AHEAD) {
#pragma unroll
            /* unrolled: weights in flight stay in the registers where they arrive */
            for (int s = 0; s < AHEAD; s++) {
                const int n = from + s;
                if (n >= all)
                    break;
                ignis_ptx_cp_async_wait<STAGES - 2>();
                __syncthreads(); /* x is there, and all have read what the next copy overwrites */
                copy_x(n + STAGES - 1);
#pragma unroll
                for (int i = 0; i < STEP; i++) {
                    uint4 x[N];
#pragma unroll
                    for (int c = 0; c < N; c++)
                        x[c] = *(const uint4 *)((const char *)memory + n % STAGES * stage_bytes + team * team_bytes +
                                                (8 * c + lane / 4) * X_ROW + 64 * i + lane % 4 * 16);
                    weights::template add<N>(sum[0], w[s][i], x);
                }
                load(w[s], tile, n + AHEAD);
                if ((n + 1) % steps != 0)
                    continue;
                tree.add(n / steps, sum);
                if (n + 1 == all)
                    break;
#pragma unroll
                for (int c = 0; c < N; c++)
                    sum[0][c][0] = sum[0][c][1] = sum[0][c][2] = sum[0][c][3] = 0;
            }
        }
        ignis_ptx_cp_async_wait<0>();
        __syncthreads();
#pragma unroll
        for (int c = 0; c < N; c++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                found[(warp * columns + 8 * c + lane % 4 * 2 + j % 2) * COLUMN + lane / 4 + j / 2 * 8] = sum[0][c][j];
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

/*  grid = any number of blocks, at most one per group of tiles; shared memory for STAGES stages, which is enough for
    the results. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) ignis_gemv_mma_16(const __grid_constant__ ignis__gemv_mma p)
{
    product_of_many<2>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) ignis_gemv_mma_32(const __grid_constant__ ignis__gemv_mma p)
{
    product_of_many<4>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) ignis_gemv_mma_64(const __grid_constant__ ignis__gemv_mma p)
{
    product_of_many<8>(p);
}
#else
/*  grid = any number of blocks, at most one per tile; shared memory for the ring, 2 SLICES COLUMN columns floats,
    and, if single, for the row, with zeros up to a multiple of 32. */
extern "C" __global__ void __launch_bounds__(THREADS, __CUDA_ARCH__ == 900 ? 3 : 2)
    ignis_gemv_mma_1(const __grid_constant__ ignis__gemv_mma p, const __grid_constant__ ignis__tensor_map map)
{
    product<1, true, pieces_of_one>(p, &map);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) ignis_gemv_mma_8(const __grid_constant__ ignis__gemv_mma p)
{
    product<1, false, pieces_in_registers>(p, nullptr);
}
#endif
