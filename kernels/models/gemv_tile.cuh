// SPDX-License-Identifier: MIT
/*  models/gemv_tile.cuh - tiles of products of many rows, by wgmma: their order, a ring, and the epilogue

    Of gemv_hopper.cu and gemv_f8.cu. A block multiplies TILES pairs of eight rows of weights with COLUMNS rows of x:
    a warp has a pair. The SPLIT blocks of a cluster divide K, exchange their sums, and each finishes its share of the
    columns. Clusters stay, and take one tile after the other. Adjacent ones have the same weights and other rows of x:
    they read the weights at a time, from the L2 cache.

    Compiled with -DIGNIS_COLUMNS=<a multiple of 16> -DIGNIS_SPLIT=<1 or 2>. Its includer defines IGNIS_TILES.
*/
#ifndef IGNIS_GEMV_TILE_CUH
#define IGNIS_GEMV_TILE_CUH

#include "gemv.cuh"
#include "hopper.cuh"

constexpr int COLUMNS = IGNIS_COLUMNS, SPLIT = IGNIS_SPLIT, TILES = IGNIS_TILES;
constexpr int TILE_THREADS = 32 * TILES;          /* those that multiply */
constexpr int N = COLUMNS / 8, SHARE = N / SPLIT; /* eights of columns of a block, and of those that it finishes */
constexpr int AT_ONCE = SHARE < 4 ? SHARE : 4;    /* of them, whose inputs are on their way at a time */
/*  of results of T for a column: aligned, and lanes write without conflicts */
constexpr int STAGED_BYTES = 2 * 16 * TILES + 16;

/*  Where the keys and values of a row of x go. */
struct cache_row {
    long long offset; /* of the first head's */
    int position;
};

/*  Finds the cache's places of a block's rows of x, one by each of its first COLUMNS threads. */
__device__ inline void find_cache_rows(const ignis__gemv_mma &p, int column, cache_row *rows)
{
    if (p.kind != IGNIS__GEMV_CACHE || threadIdx.x >= COLUMNS)
        return;
    cache_row row = {0, -1};
    if (column + (int)threadIdx.x < p.rows) {
        const ignis__generate_row &of = p.places[column + threadIdx.x];
        const generate_cache<T> cache = {nullptr, p.kv_heads, p.head_dim};
        row.position = of.position;
        if (of.position >= 0)
            row.offset = cache.offset(of.pages + p.table, of.position, 0);
    }
    rows[threadIdx.x] = row;
}

/*  The tiles of a block: groups of 16 TILES rows of weights from `group` on, every stride-th, by rows of x from
    `column` on; and its part of K. */
struct block_place {
    int part, column, group, groups, stride;

    __device__ explicit block_place(const ignis__gemv_mma &p)
    {
        constexpr int results = 16 * TILES;
        const int number = (int)blockIdx.x / SPLIT;
        part = (int)blockIdx.x % SPLIT;
        column = number % p.across * COLUMNS;
        group = number / p.across;
        groups = p.gated ? ((int)p.n + results / 2 - 1) / (results / 2) : ((int)p.n + results - 1) / results;
        stride = (int)gridDim.x / SPLIT / p.across;
    }
};

/*  The ring, as a thread goes round it. */
struct ring_place {
    int stage;
    uint32_t phase;

    __device__ void go_on(int stages)
    {
        if (++stage == stages)
            stage = 0, phase ^= 1;
    }
};

/*  The epilogue of a block's share of a tile. Results of T go by shared memory, so that stores are of adjacent ones.
    staged: STAGED_BYTES for each column of the share, which the sums may take until they are taken; rows: of the
    block's columns. */
struct tile_finish {
    const ignis__gemv_mma &p;
    const block_place &place;
    const cache_row *rows;
    char *staged;

    static __device__ void sync() { ignis_ptx_bar_sync(1, TILE_THREADS); }

    /*  sums.take(from, i): sums of eight columns of this share, number from + i: of the low row and two columns, then
        of the high row; sums.go_on(): called after AT_ONCE of them; Sums::in_staged: some sums were in `staged`. */
    template <typename Sums> __device__ void run(int group, Sums &sums) const
    {
        if (p.gated)
            run_as<IGNIS__GEMV_OUT, true>(group, sums);
        else if (p.kind == IGNIS__GEMV_OUT)
            run_as<IGNIS__GEMV_OUT, false>(group, sums);
        else if (p.kind == IGNIS__GEMV_GELU)
            run_as<IGNIS__GEMV_GELU, false>(group, sums);
        else if (p.kind == IGNIS__GEMV_ADD)
            run_as<IGNIS__GEMV_ADD, false>(group, sums);
        else if (p.kind == IGNIS__GEMV_LOGITS)
            run_as<IGNIS__GEMV_LOGITS, false>(group, sums);
        else
            run_as<IGNIS__GEMV_CACHE, false>(group, sums);
    }
    template <ignis__gemv_kind kind, bool gated, typename Sums> __device__ void run_as(int group, Sums &sums_of) const
    {
        constexpr bool adds = kind == IGNIS__GEMV_ADD, is_float = adds || kind == IGNIS__GEMV_LOGITS;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = row_of_lanes(lane / 4);
        const int first = place.part * SHARE * 8; /* of the share's columns */
        const int inner = 8 * warp + row, low_at = p.orders ? ordered_place(inner) : inner;
        int low, high;
        group_rows<TILES>(p, 0, group, warp, low, high);
        low += row, high += row;
        const bool has_low = low < p.n, has_high = gated ? has_low : high < p.n;
        const int own = first + 2 * (lane % 4), column = place.column + own; /* of this thread */
        T *const to = (T *)(staged + 2 * (lane % 4) * STAGED_BYTES) + low_at;
        float *const sums = (adds ? p.sum : p.logits) + column * p.result_row;
        const long long added_row = (gated ? 2 : 1) * p.result_row;
        const float *const added = adds ? p.sum + column * added_row : p.delta ? p.delta + column * added_row : nullptr;
        finish_line line;
        float frequency = 0;
        bool rotates = false;
        line.bias[0] = p.bias && has_low ? float(p.bias[low]) : 0.0f;
        line.bias[1] = p.bias && has_high ? float(p.bias[high]) : 0.0f;
        line.sine = 0, line.cosine = 1;
        if (kind == IGNIS__GEMV_CACHE && p.frequencies && has_low && low / p.head_dim < p.heads + p.kv_heads) {
            rotates = true;
            frequency = p.frequencies[low % p.head_dim];
        }
        if (Sums::in_staged && !is_float)
            sync(); /* nobody needs the sums that waited there */
#pragma unroll 1
        for (int from = 0; from < SHARE; from += AT_ONCE) {
            float found[AT_ONCE][2][2] = {};
            if (adds || added)
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        const int c = 8 * (from + i) + j;
                        const bool exists = column + c < p.rows;
                        found[i][j][0] = exists && has_low ? added[c * added_row + low] : 0.0f;
                        found[i][j][1] = exists && has_high ? added[c * added_row + high] : 0.0f;
                    }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const float4 y = sums_of.take(from, i);
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const int c = 8 * (from + i) + j;
                    const bool exists = column + c < p.rows;
                    float a = j ? y.y : y.x, b = j ? y.w : y.z;
                    line.sum[0] = found[i][j][0], line.sum[1] = found[i][j][1];
                    if (kind == IGNIS__GEMV_CACHE)
                        line.turn((float)rows[own + c].position, frequency, rotates);
                    line.template finish<kind, gated>(p, a, b);
                    if (is_float) {
                        if (exists && has_low)
                            sums[c * p.result_row + low] = a;
                        if (exists && has_high)
                            sums[c * p.result_row + high] = b;
                    } else {
                        to[c * (STAGED_BYTES / 2)] = T(a);
                        if (!gated)
                            to[c * (STAGED_BYTES / 2) + 8 * TILES] = T(b);
                    }
                }
            }
            sums_of.go_on();
        }
        if (is_float)
            return;
        sync();
        store(group, first);
    }
    /*  Stores what was staged, eight adjacent results at a time. */
    __device__ void store(int group, int first) const
    {
        const int chunks = p.gated ? TILES : 2 * TILES, chunk = threadIdx.x % chunks;
        int low, high;
        group_rows<TILES>(p, 0, group, chunk % TILES, low, high);
        const int result = chunk < TILES ? low : high;
        if (result >= p.n)
            return;
        /* elements of a row after its results are not the product's */
        const bool is_cached = p.kind == IGNIS__GEMV_CACHE, whole = p.result_row % 8 == 0 && result + 8 <= p.n;
        T *cell = nullptr; /* of a key or value, at offset 0 */
        if (is_cached) {
            const int head = result / p.head_dim - p.heads;
            if (head >= 0)
                cell = (head >= p.kv_heads ? p.values : p.keys) + head % p.kv_heads * PAGE * p.head_dim +
                       result % p.head_dim;
        }
#pragma unroll 1
        for (int i = threadIdx.x / chunks; i < 8 * SHARE; i += TILE_THREADS / chunks) {
            const int c = place.column + first + i;
            const cache_row *const row = rows + first + i;
            if (c >= p.rows)
                return;
            if (is_cached && row->position < 0)
                continue;
            T *const to = cell ? cell + row->offset : p.out + c * p.result_row + result;
            const uint4 eight = *(const uint4 *)(staged + i * STAGED_BYTES + 16 * chunk);
            if (whole) {
                *(uint4 *)to = eight;
            } else {
                const ignis_pack<T, 8> results = ignis_pack_of<ignis_pack<T, 8>>(eight);
#pragma unroll
                for (int j = 0; j < 8; j++)
                    if (result + j < p.n)
                        to[j] = results[j];
            }
        }
    }
};

#endif /* IGNIS_GEMV_TILE_CUH */
