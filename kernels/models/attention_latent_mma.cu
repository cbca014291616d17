// SPDX-License-Identifier: MIT
/*  models/attention_latent_mma.cu - attention of new tokens over a paged cache of latents, on tensor cores

    For f16 and bf16, sm_80 and up; see attention_latent.cu. All heads share the rows of the cache, so heads are the
    rows of two products, with a tile of keys in shared memory:
        scores = Q K^T        a warp has some keys of the tile
        out += P V            a warp has some elements; values are the first elements of keys
    Blocks of a decode step have heads of one token, and divide the keys into splits: see attention_paged.cuh. Blocks of
    a chunk of a prompt have heads of several tokens of one sequence, and all of their keys. Tiles of keys begin at
    multiples of 64 in both, and a row of a product depends on no other row. So a token has the same bits in any batch,
    and wherever its chunk begins.

    Compiled with -DIGNIS_T=<1 or 2> -DIGNIS_LATENT=<elements of latents> -DIGNIS_ROTARY=<elements after them>,
    multiples of 8; -DIGNIS_ROWS=<16 or 64>: heads of a block; -DIGNIS_STAGES=<1 or 2>: tiles in shared memory;
    -DIGNIS_CHUNK=<1: of a chunk of a prompt>.
*/
#include "attention_paged.cuh"
#include "mma.cuh"

#ifndef IGNIS_LATENT
#define IGNIS_LATENT 512
#define IGNIS_ROTARY 64
#endif
#ifndef IGNIS_ROWS
#define IGNIS_ROWS 64
#define IGNIS_STAGES 2
#define IGNIS_CHUNK 0
#endif

constexpr int LATENT = IGNIS_LATENT, WIDTH = LATENT + IGNIS_ROTARY;
constexpr int ROWS = IGNIS_ROWS, STAGES = IGNIS_STAGES, KEYS = SPLIT;
constexpr bool CHUNK = IGNIS_CHUNK;
constexpr int WARPS = 8, THREADS = 32 * WARPS;
/*  The warps are a grid: DOWN of them divide the rows, ACROSS the keys of scores and the elements of the output.
    TILES: tiles of 16 rows that a warp has */
constexpr int TILES = ROWS == 16 ? 1 : 2, DOWN = ROWS / (16 * TILES), ACROSS = WARPS / DOWN;
constexpr int OWN = KEYS / ACROSS;                                          /* keys of a warp: 8 or 16 */
constexpr int COLUMNS = ((LATENT + 7) / 8 + 2 * ACROSS - 1) / (2 * ACROSS); /* pairs of tiles of 8 elements of a warp */
constexpr int CHUNKS = (WIDTH + 63) / 64 * 8; /* of 8 elements, of a row in shared memory */
static_assert(SPLIT == 64 && SPLIT % PAGE == 0 && WIDTH % 8 == 0 && LATENT % 8 == 0, "");

/*  Rows are swizzled: 8 rows at one chunk have no bank conflicts. */
struct latent_memory {
    uint4 q[ROWS][CHUNKS], keys[STAGES][KEYS][CHUNKS];
    uint4 weights[ROWS][KEYS / 8];
    float tops[ACROSS][ROWS]; /* the greatest scores of a tile, by warps; at the end the sums */
};

__device__ inline uint32_t place(uint32_t from, int chunks, int row, int chunk)
{
    return from + (row * chunks + (chunk ^ row % 8)) * 16;
}

/*  Returns the splits of keys, of at least two tiles: of 16 heads, the results of a split take as much memory as 29
    keys, and are written and read. */
__device__ inline paged_splits splits_of(int end)
{
    constexpr int LEAST = 2 * KEYS;
    paged_splits splits(end);
    splits.keys = LEAST * (((end + LEAST - 1) / LEAST + SPLITS - 1) / SPLITS);
    splits.count = end > 0 ? (end + splits.keys - 1) / splits.keys : 0;
    return splits;
}

/*  A tile of keys: the split, its first key, where its split ends. */
struct latent_tile {
    int split, at, to;
};

struct latent_block {
    const ignis__paged &p;
    const int32_t *const pages;
    latent_memory &m;
    const uint32_t q, keys, weights;
    const int lane, across, first; /* across: number of the warp across; first: its first row */
    float out[TILES][2 * COLUMNS][4], top[TILES][2], sum[TILES][2];

    __device__ latent_block(const ignis__paged &p, const int32_t *pages, latent_memory &m)
        : p(p), pages(pages), m(m), q((uint32_t)__cvta_generic_to_shared(m.q)),
          keys((uint32_t)__cvta_generic_to_shared(m.keys)), weights((uint32_t)__cvta_generic_to_shared(m.weights)),
          lane(threadIdx.x % 32), across(threadIdx.x / 32 % ACROSS), first(threadIdx.x / 32 / ACROSS * 16 * TILES)
    {
    }

    /*  Starts to copy queries of the block; zeros in place of those that do not exist. */
    __device__ void load_queries(const T *from, int count) const
    {
        for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
            const int row = i / CHUNKS, chunk = i % CHUNKS;
            const bool exists = row < count && chunk < WIDTH / 8;
            ignis_ptx_cp_async(place(q, CHUNKS, row, chunk), from + (exists ? (long long)row * WIDTH + chunk * 8 : 0),
                               exists ? 16 : 0);
        }
    }
    /*  Starts to copy a tile; zeros in place of keys that do not exist. */
    __device__ void load_keys(const latent_tile &tile, int stage) const
    {
        constexpr int LANES = 8; /* that copy a key */
#pragma unroll
        for (int j = 0; j < KEYS * LANES / THREADS; j++) {
            const int key = (threadIdx.x + THREADS * j) / LANES;
            const bool exists = tile.at + key < tile.to;
            const T *const from =
                p.k + ((long long)pages[min(tile.at + key, tile.to - 1) / PAGE] * PAGE + key % PAGE) * WIDTH;
#pragma unroll
            for (int i = 0; i < CHUNKS / LANES; i++) {
                const int chunk = threadIdx.x % LANES + LANES * i;
                const bool has = exists && chunk < WIDTH / 8;
                ignis_ptx_cp_async(place(keys, CHUNKS, stage * KEYS + key, chunk), has ? from + chunk * 8 : p.k,
                                   has ? 16 : 0);
            }
        }
        ignis_ptx_cp_async_commit();
    }
    __device__ void clear()
    {
#pragma unroll
        for (int m = 0; m < TILES; m++) {
            top[m][0] = top[m][1] = -ignis_infinity<float>();
            sum[m][0] = sum[m][1] = 0;
#pragma unroll
            for (int c = 0; c < 2 * COLUMNS; c++)
                out[m][c][0] = out[m][c][1] = out[m][c][2] = out[m][c][3] = 0;
        }
    }
    /*  Computes the scores of the warp's rows with its keys. */
    __device__ void multiply_keys(float (&s)[TILES][OWN / 8][4], int stage) const
    {
        const int own = stage * KEYS + across * OWN;
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int n = 0; n < OWN / 8; n++)
                s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
#pragma unroll 2
        for (int at = 0; at < CHUNKS; at += 4) {
            uint32_t b[2][4]; /* two steps of 16 elements */
            if (OWN == 8)     /* 4 chunks of 8 keys */
                ignis_ptx_ldmatrix(b[0], place(keys, CHUNKS, own + lane % 8, at + lane / 8));
            else
#pragma unroll
                for (int i = 0; i < 2; i++) /* 2 chunks of 8 keys, then those of the next 8 */
                    ignis_ptx_ldmatrix(b[i],
                                       place(keys, CHUNKS, own + lane / 16 * 8 + lane % 8, at + 2 * i + lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < TILES; m++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    uint32_t a[4];
                    ignis_ptx_ldmatrix(a, place(q, CHUNKS, first + 16 * m + lane % 16, at + 2 * i + lane / 16));
                    if (OWN == 8)
                        ignis_mma<T>(s[m][0], a, b[0][2 * i], b[0][2 * i + 1]);
                    else
#pragma unroll
                        for (int n = 0; n < OWN / 8; n++)
                            ignis_mma<T>(s[m][n], a, b[i][2 * n], b[i][2 * n + 1]);
                }
        }
    }
    /*  Adds a tile of keys that is in shared memory. limits: for each of the lane's rows, where its keys end. */
    __device__ void add(int at, int stage, const int (&limits)[TILES][2])
    {
        const float scale = (float)p.scale * (float)LOG2_E;
        const int g = lane / 4, t = lane % 4, own = across * OWN;
        float s[TILES][OWN / 8][4];
        multiply_keys(s, stage);
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float most = -ignis_infinity<float>();
#pragma unroll
                for (int n = 0; n < OWN / 8; n++)
#pragma unroll
                    for (int i = 2 * h; i < 2 * h + 2; i++) {
                        s[m][n][i] =
                            at + own + 8 * n + 2 * t + i % 2 < limits[m][h] ? s[m][n][i] : -ignis_infinity<float>();
                        most = max(most, s[m][n][i]);
                    }
                most = reduce_lanes<1, 4, ignis_max>(most);
                if (t == 0)
                    this->m.tops[across][first + 16 * m + 8 * h + g] = most;
            }
        __syncthreads();
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int row = first + 16 * m + 8 * h + g;
                float most = this->m.tops[0][row];
#pragma unroll
                for (int w = 1; w < ACROSS; w++)
                    most = max(most, this->m.tops[w][row]);
                const float higher = max(top[m][h], most * scale),
                            base = higher == -ignis_infinity<float>() ? 0.0f : higher, /* the row has no key yet */
                    factor = ignis_ptx_ex2_ftz(top[m][h] - base);
                top[m][h] = higher;
                sum[m][h] *= factor;
#pragma unroll
                for (int c = 0; c < 2 * COLUMNS; c++) {
                    out[m][c][2 * h] *= factor;
                    out[m][c][2 * h + 1] *= factor;
                }
#pragma unroll
                for (int n = 0; n < OWN / 8; n++) {
                    const float x = ignis_ptx_ex2_ftz(fmaf(s[m][n][2 * h], scale, -base)),
                                y = ignis_ptx_ex2_ftz(fmaf(s[m][n][2 * h + 1], scale, -base));
                    sum[m][h] += x + y;
                    ((uint32_t *)&this->m.weights[row][(own / 8 + n) ^ row % 8])[t] = ignis_round_two<T>(x, y);
                }
            }
        __syncthreads();
#pragma unroll 1 /* for the sake of registers, as above */
        for (int k = 0; k < KEYS / 16; k++) {
            uint32_t a[TILES][4];
#pragma unroll
            for (int m = 0; m < TILES; m++)
                ignis_ptx_ldmatrix(a[m], place(weights, KEYS / 8, first + 16 * m + lane % 16, 2 * k + lane / 16));
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const int chunk = 2 * (across * COLUMNS + c);
                if (chunk * 8 >= LATENT)
                    break;
                uint32_t b[4]; /* 16 keys at a chunk, then at the next */
                ignis_ptx_ldmatrix_transposed(
                    b, place(keys, CHUNKS, stage * KEYS + 16 * k + lane % 16, chunk + lane / 16));
#pragma unroll
                for (int m = 0; m < TILES; m++) {
                    ignis_mma<T>(out[m][2 * c], a[m], b[0], b[1]);
                    ignis_mma<T>(out[m][2 * c + 1], a[m], b[2], b[3]);
                }
            }
        }
    }
    /*  Sums the weights over the warps, after the last tile of a split. alone: leaves 1 / sum. */
    __device__ void add_sums(bool alone)
    {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                sum[m][h] = reduce_lanes<1, 4, ignis_sum>(sum[m][h]);
                if (t == 0)
                    this->m.tops[across][first + 16 * m + 8 * h + g] = sum[m][h];
            }
        __syncthreads();
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int row = first + 16 * m + 8 * h + g;
                sum[m][h] = this->m.tops[0][row];
#pragma unroll
                for (int w = 1; w < ACROSS; w++)
                    sum[m][h] += this->m.tops[w][row];
                sum[m][h] = alone ? 1 / sum[m][h] : sum[m][h];
            }
    }
    /*  Calls store(row, element, x, y, top, sum) for pairs of adjacent elements of rows below `count`. */
    template <typename Store> __device__ void each_pair(int count, Store store) const
    {
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int row = first + 16 * m + 8 * h + lane / 4;
                if (row >= count)
                    continue;
#pragma unroll
                for (int c = 0; c < 2 * COLUMNS; c++) {
                    const int d = (2 * across * COLUMNS + c) * 8 + lane % 4 * 2;
                    if (d < LATENT)
                        store(row, d, out[m][c][2 * h], out[m][c][2 * h + 1], top[m][h], sum[m][h]);
                }
            }
    }
};

/*  grid = blocks that divide the splits, ceil(heads / ROWS), rows; of a chunk 1, 1, ceil(rows * heads / ROWS). Dynamic
    shared memory for latent_memory. p.head_dim is that of values, LATENT; p.q_row is heads * WIDTH. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    ignis_attention_latent_mma(const __grid_constant__ ignis__paged p)
{
    extern __shared__ __align__(16) char memory[];
    latent_memory &m = *(latent_memory *)memory;
    /* of a chunk, the last blocks have the most keys */
    const int number = CHUNK ? gridDim.z - 1 - blockIdx.z : blockIdx.z;
    const paged_heads heads(p, ROWS, CHUNK ? 0 : blockIdx.y);
    /* rows of the products, among all heads of all tokens */
    const long long begin = CHUNK ? (long long)number * ROWS : (long long)number * p.heads + heads.first;
    const int count = CHUNK ? (int)min((long long)ROWS, (long long)p.count * p.heads - begin) : heads.count;
    const int token = (int)(begin / p.heads), last = (int)((begin + count - 1) / p.heads);
    ignis_grid_dependency();
    const paged_splits splits = splits_of(p.rows[last].position + 1);
    if (!CHUNK && splits.end <= 0 && blockIdx.x == 0) /* a row that does not exist gets zeros */
        combine_by_the_last(p, heads, 0);
    if (!CHUNK && (int)blockIdx.x >= splits.count)
        return;
    latent_block block(p, p.rows[token].pages + p.table, m);
    int limits[TILES][2];
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) {
        const int row = min(block.first + 8 * i + block.lane / 4, count - 1);
        limits[i / 2][i % 2] = CHUNK ? p.rows[(begin + row) / p.heads].position + 1 : splits.end;
    }
    const auto enter = [&](int split) {
        const int from = CHUNK ? 0 : splits.from(split);
        return latent_tile{split, from, CHUNK ? splits.end : min(splits.end, from + splits.keys)};
    };
    const auto after = [&](const latent_tile &tile) {
        const latent_tile next = {tile.split, tile.at + KEYS, tile.to};
        return next.at < tile.to ? next : enter(tile.split + gridDim.x);
    };
    const int count_of_splits = CHUNK ? 1 : splits.count;
    latent_tile tile = enter(blockIdx.x);
    block.load_queries(p.q + begin * WIDTH, count);
    block.load_keys(tile, 0);
    block.clear();
    for (int stage = 0; tile.split < count_of_splits; stage = (stage + 1) % STAGES) {
        ignis_ptx_cp_async_wait<0>();
        __syncthreads(); /* the tile is there, and all are done with the one before */
        if (STAGES > 1 && after(tile).split < count_of_splits)
            block.load_keys(after(tile), (stage + 1) % STAGES);
        block.add(tile.at, stage, limits);
        if (tile.at + KEYS >= tile.to) {
            block.add_sums(count_of_splits == 1);
            block.each_pair(count, [&](int row, int d, float x, float y, float top, float sum) {
                if (count_of_splits == 1) { /* no other split contributes */
                    *(uint32_t *)(p.out + (begin + row) * LATENT + d) = ignis_round_two<T>(x * sum, y * sum);
                    return;
                }
                float *const found = heads.found(p, row, tile.split);
                *(float2 *)(found + 2 + d) = make_float2(x, y);
                if (d == 0)
                    *(float2 *)found = make_float2(top, sum);
            });
            block.clear();
        }
        tile = after(tile);
        if (STAGES == 1 && tile.split < count_of_splits) {
            __syncthreads();
            block.load_keys(tile, 0);
        }
    }
    if (count_of_splits > 1)
        combine_by_the_last(p, heads, splits.count);
}
