// SPDX-License-Identifier: MIT
/*  models/gemv.cuh - what the GEMV kernels on tensor cores share: the norm before them, and the epilogue

    Warps have slices of K. The slices of a result are added as one tree, so a row has the same bits in any batch.
    Compiled with -DIGNIS_T=<1 or 2>.
*/
#ifndef IGNIS_GEMV_CUH
#define IGNIS_GEMV_CUH

#include "ignis.cuh"
#include "activation.cuh"
#include "rope.cuh"
#include "generate.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;
#include "shared/models/gemv.h"

constexpr int SLICES = 8, THREADS = 32 * SLICES;
/*  floats from a column of 16 to the next in shared memory: warps write without conflicts */
constexpr int COLUMN = 20;

/*  The barrier of THREADS threads: of the whole block, or of one with more threads. */
struct all_of_block {
    static __device__ void sync() { __syncthreads(); }
};
struct part_of_block {
    static __device__ void sync() { ignis_ptx_bar_sync(1, THREADS); }
};

/*  Adds x over the threads. Each sum has memory of its own, so the next one need not wait until all have read this
    one. */
template <typename Threads> __device__ inline float sum_of_threads(float x, float (&of_warps)[SLICES])
{
    x = ignis_warp_sum(x);
    if (threadIdx.x % 32 == 0)
        of_warps[threadIdx.x / 32] = x;
    Threads::sync();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < SLICES; i++)
        sum += of_warps[i];
    return sum;
}

/*  The norm of a row. One block computes it. A thread's weights are loaded before the row. */
struct row_norm {
    /* packs of a thread that stay in registers; elements of one pack of each thread */
    static constexpr int kept = 4, step = THREADS * 4;
    const ignis__gemv_mma &p;
    ignis_pack<T, 4> weight[kept];

    __device__ explicit row_norm(const ignis__gemv_mma &p) : p(p)
    {
#pragma unroll
        for (int round = 0; round < kept; round++)
            if (threadIdx.x * 4 + round * step < p.k)
                weight[round] = ignis_load<4>(p.norm_weight + threadIdx.x * 4 + round * step);
    }
    __device__ ignis_pack<T, 4> bias_at(int i) const
    {
        return p.norm_bias ? ignis_load<4>(p.norm_bias + i) : ignis_pack<T, 4>{};
    }

    /*  Calls put(i, four) with four elements from i on. All callers get the same bits. */
    template <typename Put> __device__ void run(const float *x, Put put) const
    {
        run_times(x, [&](const auto &all) { all(put); });
    }
    /*  Calls use(all): all(put) does as run, any number of times. */
    template <typename Use> __device__ void run_times(const float *x, Use use) const
    {
        __shared__ float sums[2][SLICES];
        const int hidden = (int)p.k, first = threadIdx.x * 4;
        ignis_pack<float, 4> own[kept];
        ignis_pack<T, 4> bias; /* of the first pack; more would take too many registers */
        const auto each = [&](auto run) {
#pragma unroll
            for (int round = 0; round < kept; round++)
                if (first + round * step < hidden)
                    run(first + round * step, own[round], weight[round],
                        round == 0 ? bias : bias_at(first + round * step));
            for (int i = first + kept * step; i < hidden; i += step)
                run(i, ignis_load(x + i), ignis_load<4>(p.norm_weight + i), bias_at(i));
        };
        float mean = 0, squares = 0;
#pragma unroll
        for (int round = 0; round < kept; round++)
            if (first + round * step < hidden) {
                own[round] = ignis_load(x + first + round * step);
                if (round == 0)
                    bias = bias_at(first);
            }
        if (!p.rms) {
            each([&](int, const ignis_pack<float, 4> &v, const ignis_pack<T, 4> &, const ignis_pack<T, 4> &) {
                mean += (v[0] + v[1]) + (v[2] + v[3]);
            });
            mean = sum_of_threads<all_of_block>(mean, sums[0]) / hidden;
        }
        each([&](int, const ignis_pack<float, 4> &v, const ignis_pack<T, 4> &, const ignis_pack<T, 4> &) {
            for (int j = 0; j < 4; j++)
                squares = fmaf(v[j] - mean, v[j] - mean, squares);
        });
        const float factor = rsqrtf(sum_of_threads<all_of_block>(squares, sums[1]) / hidden + (float)p.eps);
        use([&](auto put) {
            each([&](int i, const ignis_pack<float, 4> &v, const ignis_pack<T, 4> &w, const ignis_pack<T, 4> &b) {
                ignis_pack<T, 4> y;
                for (int j = 0; j < 4; j++)
                    y[j] = T((v[j] - mean) * factor * float(w[j]) + float(b[j]));
                put(i, y);
            });
        });
    }
};

/*  Finds the rows of weights of a tile: eight from `low` on, and eight from `high` on, numbered as results are.
    first: the result that tile 0 begins with. p: has kind, gated, n and head_dim of a product. */
template <typename Product> __device__ inline void tile_rows(const Product &p, int first, int tile, int &low, int &high)
{
    const int at = first + 16 * tile;
    low = at;
    high = low + 8;
    if (p.gated) {
        low = 8 * tile;
        high = low + (int)p.n;
    } else if (p.kind == IGNIS__GEMV_CACHE) { /* elements that rotate together */
        const int half = p.head_dim / 2, head = at / p.head_dim;
        low = head * p.head_dim + (at - head * p.head_dim) / 2;
        high = low + half;
    }
}

/*  Finds the rows of tile i of a group of adjacent tiles: eight from `low` on, and eight from `high` on. Rows are
    numbered as results are, and all tiles begin at `first`. */
constexpr int GROUP_TILES = 8;
template <int tiles = GROUP_TILES, typename Product>
__device__ inline void group_rows(const Product &p, int first, int group, int i, int &low, int &high)
{
    low = first + group * 16 * tiles + 8 * i;
    high = low + 8 * tiles;
    if (p.gated || p.kind == IGNIS__GEMV_CACHE)
        tile_rows(p, first, group * tiles + i, low, high);
}

/*  Returns which of a tile's first eight rows in shared memory lanes 4 g to 4 g + 3 have. Adjacent rows would be in
    the same banks for lanes that read at a time. */
__device__ inline int row_of_lanes(int g) { return g / 2 + g % 2 * 4; }

/*  Returns the place of an element of a row of x in the order in which MMAs take elements (see weights.cuh): of a block
    of 32, those of the first one come before those of the second. Neighbours from an even one on stay together. */
__device__ inline int ordered_place(int i)
{
    return i / 32 * 32 + i % 8 / 4 * 16 + i % 4 / 2 * 8 + i % 32 / 8 * 2 + i % 2;
}

/*  The epilogue's inputs of a thread, for rows `low` and `high` of the weights and one column. They are loaded while
    the product runs. */
struct finish_line {
    float bias[2], sum[2], sine, cosine; /* sum: what the product is added to, or what adapters add to it */
    T *to;                               /* IGNIS__GEMV_CACHE: where both results go, half a head apart; or null */

    /*  Loads what earlier kernels do not write. */
    __device__ void load(const ignis__gemv_mma &p, int low, int high, int c)
    {
        bias[0] = bias[1] = sine = 0;
        cosine = 1;
        to = nullptr;
        if (low >= p.n)
            return;
        if (p.bias) {
            bias[0] = float(p.bias[low]);
            bias[1] = p.gated || high < p.n ? float(p.bias[high]) : 0.0f;
        }
        if (p.kind != IGNIS__GEMV_CACHE)
            return;
        const ignis__generate_row &place = p.places[c];
        const int head = low / p.head_dim, i = low - head * p.head_dim;
        if (place.position < 0)
            return;
        if (p.frequencies && head < p.heads + p.kv_heads)
            sine_cosine((float)place.position, p.frequencies[i], sine, cosine);
        to = p.out + c * p.result_row + low;
        if (head >= p.heads) {
            const generate_cache<T> cache = {head >= p.heads + p.kv_heads ? p.values : p.keys, p.kv_heads, p.head_dim};
            to = cache.at(place.pages + p.table, place.position, (head - p.heads) % p.kv_heads) + i;
        }
    }
    /*  Loads what earlier kernels write. */
    __device__ void load_sum(const ignis__gemv_mma &p, int low, int high, int c)
    {
        const float *const from = p.kind == IGNIS__GEMV_ADD ? p.sum : p.delta;
        if (!from)
            return;
        const long long row = c * (p.gated ? 2 : 1) * p.result_row;
        sum[0] = low < p.n ? from[row + low] : 0.0f;
        sum[1] = low < p.n && (p.gated || high < p.n) ? from[row + high] : 0.0f;
    }

    /*  Finds the sine and cosine of a rotation. */
    __device__ void turn(float position, float frequency, bool rotates)
    {
        sine = 0;
        cosine = 1;
        if (rotates)
            sine_cosine(position, frequency, sine, cosine);
    }
    /*  Makes results of two sums: one, in a, if gated. */
    template <ignis__gemv_kind kind, bool gated>
    __device__ void finish(const ignis__gemv_mma &p, float &a, float &b) const
    {
        a += bias[0];
        b += bias[1];
        if (kind != IGNIS__GEMV_ADD && p.delta) {
            a += sum[0];
            b += sum[1];
        }
        if (gated) {
            a = (p.kind == IGNIS__GEMV_GELU ? gelu(a) : a * sigmoid(a)) * b;
        } else if (kind == IGNIS__GEMV_CACHE) {
            const float x = a;
            a = rotated(x, b, -sine, cosine);
            b = rotated(b, x, sine, cosine);
        } else if (kind == IGNIS__GEMV_GELU) {
            a = gelu(a);
            b = gelu(b);
        } else if (kind == IGNIS__GEMV_ADD) {
            a += sum[0];
            b += sum[1];
        }
    }
    __device__ void put(const ignis__gemv_mma &p, int low, int high, int c, float a, float b) const
    {
        const long long row = c * p.result_row;
        if (low >= p.n)
            return;
        if (p.gated) {
            finish<IGNIS__GEMV_OUT, true>(p, a, b);
            p.out[row + low] = T(a);
        } else if (p.kind == IGNIS__GEMV_CACHE) {
            finish<IGNIS__GEMV_CACHE, false>(p, a, b);
            if (to) {
                to[0] = T(a);
                to[p.head_dim / 2] = T(b);
            }
        } else if (p.kind == IGNIS__GEMV_OUT || p.kind == IGNIS__GEMV_GELU) {
            if (p.kind == IGNIS__GEMV_OUT)
                finish<IGNIS__GEMV_OUT, false>(p, a, b);
            else
                finish<IGNIS__GEMV_GELU, false>(p, a, b);
            p.out[row + low] = T(a);
            if (high < p.n)
                p.out[row + high] = T(b);
        } else {
            const bool adds = p.kind == IGNIS__GEMV_ADD;
            float *const to_row = (adds ? p.sum : p.logits) + row;
            if (adds)
                finish<IGNIS__GEMV_ADD, false>(p, a, b);
            else
                finish<IGNIS__GEMV_LOGITS, false>(p, a, b);
            to_row[low] = a;
            if (high < p.n)
                to_row[high] = b;
        }
    }
};

/*  Writes the results of a warp's slice for the other warps: columns of COLUMN floats. This lane has `row` and row +
    8. */
template <int columns, int N> __device__ inline void put_slice(float *to, const float (&sum)[N][4], int row)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int c = 8 * n + lane % 4 * 2 + j % 2;
            if (c < columns)
                to[c * COLUMN + row + j / 2 * 8] = sum[n][j];
        }
}

/*  Adds the slices' results for a row, as a tree. apart: floats between two slices. */
__device__ inline float sum_of_slices(const float *found, int apart)
{
    float s[SLICES];
#pragma unroll
    for (int i = 0; i < SLICES; i++)
        s[i] = found[i * apart];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/*  As sum_of_slices, for slices that arrive one after the other, of M tiles and N eights of columns: after the last
    one x is the sum. */
template <int slices, int M, int N> struct slice_tree {
    static constexpr int levels = slices >= 8 ? 3 : slices >= 4 ? 2 : 1;
    float kept[levels][M][N][4]; /* sums of 1, 2 and 4 slices that wait for as many others */

    __device__ void add(int slice, float (&x)[M][N][4])
    {
#pragma unroll
        for (int level = 0; 1 << level < slices; level++) {
            const bool waits = !(slice >> level & 1);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        if (waits)
                            kept[level][m][n][j] = x[m][n][j];
                        else
                            x[m][n][j] += kept[level][m][n][j];
            if (waits)
                break;
        }
    }
};

/*  Adds the slices of a tile, and does the epilogue of its rows. line: has the sums of this thread's first column; if
    `loaded`, all else, too. */
template <int columns, bool loaded>
__device__ inline void finish_tile(const ignis__gemv_mma &p, const float *slices, int low, int high, finish_line &line)
{
    const int g = threadIdx.x % 8, own = threadIdx.x / 8; /* row and first column of this thread */
#pragma unroll
    for (int c = own; c < columns; c += THREADS / 8) {
        if (c >= p.rows)
            break;
        float y[2];
#pragma unroll
        for (int part = 0; part < 2; part++)
            y[part] = sum_of_slices(slices + c * COLUMN + g + 8 * part, columns * COLUMN);
        if (c != own || !loaded)
            line.load(p, low + g, high + g, c);
        if (c != own)
            line.load_sum(p, low + g, high + g, c);
        line.put(p, low + g, high + g, c, y[0], y[1]);
    }
}

#endif /* IGNIS_GEMV_CUH */
