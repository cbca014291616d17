// SPDX-License-Identifier: MIT
/*  models/generate.cu - a decode step besides products and attention: uploads, embeddings, norms, the KV cache

    The residual sum of the layers is kept in the wide type. Nothing here depends on the number of rows, so a row
    has the same bits alone and in a batch. One program per element type: compiled with -DIGNIS_T=<1 to 4>.
*/
#include "ignis.cuh"
#include "activation.cuh"
#include "rope.cuh"
#include "generate.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> W, Wide;
#include "shared/models/kv_cache.h"
#include "cache_types.cuh"

/* --- uploads: parameters of launches, so no host memory needs to stay ----------------------------------------- */

extern "C" __global__ void ignis_generate_words(int32_t *to, const __grid_constant__ ignis__upload_words from,
                                                int count)
{
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        to[i] = from.at[i];
}

extern "C" __global__ void ignis_generate_rows(ignis__generate_row *to,
                                               const __grid_constant__ ignis__upload_rows_of from, int count)
{
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        to[i] = from.at[i];
}

/*  Writes the rows of one sequence from a position on. */
extern "C" __global__ void ignis_generate_chunk(ignis__generate_row *to,
                                                const __grid_constant__ ignis__generate_row first, int count)
{
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        ignis__generate_row row = first;
        row.position += i;
        to[i] = row;
    }
}

/* --- embeddings and norms: a block per row -------------------------------------------------------------------- */

/*  Embeds the rows' tokens. positions: learned ones that are added, or null; scale: of the embeddings. The kernel
    before, which writes the rows, lets this one begin only after all earlier work has ended, because later kernels
    may load weights before they wait. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_generate_embed(W *sum, const T *embedding, const T *positions, const ignis__generate_row *rows, int hidden,
                         double scale)
{
    const ignis__generate_row &row = rows[blockIdx.x];
    const long long to = (long long)blockIdx.x * hidden;
    ignis_grid_dependency();
    for (int i = threadIdx.x; i < hidden; i += 256) {
        W x = 0;
        if (row.position >= 0) {
            x = W(embedding[(long long)row.ids[row.position] * hidden + i]) * W(scale);
            if (positions)
                x += W(positions[(long long)row.position * hidden + i]);
        }
        sum[to + i] = x;
    }
}

/*  A norm: of squares, or around the mean. offset: is added to the weights. */
struct norm_kind {
    W eps, offset;
    bool rms;
};

/*  Adds, and normalises, a row in packs of N. */
template <int N>
__device__ inline void add_and_norm(T *y, W *sum, const T *other, const T *weight, const T *bias, int hidden,
                                    const norm_kind &kind)
{
    const bool rms = kind.rms;
    typedef ignis_row<W, ignis_block_team, N, true> Row;
    const Row row(sum, hidden);
    typename Row::Batch xs;
    W total = 0, mean = 0;
    int last = 0;
    for (int round = 0; row.has(round); round++) {
        ignis_batch<T, N> others;
        row.load(xs, sum, round);
        if (other) {
            row.each(
                round,
                [&](int column, auto &more) { more = ignis_load<ignis_pack_count<decltype(more)>>(other + column); },
                others);
            row.each(
                round,
                [&](int column, auto &x, auto &more) {
#pragma unroll
                    for (int i = 0; i < x.count; i++)
                        x[i] += W(more[i]);
                    ignis_store(sum + column, x);
                },
                xs, others);
        }
        row.each(
            round,
            [&](int, auto &x) {
#pragma unroll
                for (int i = 0; i < x.count; i++)
                    total += rms ? x[i] * x[i] : x[i];
            },
            xs);
        last = round;
    }
    if (!y)
        return;
    total = ignis_block_sum(total) / W(hidden);
    if (!rms) { /* squares are summed around the mean: see norm.cuh */
        mean = total;
        total = 0;
        for (int round = last; round >= 0; round--) {
            if (round != last)
                row.load(xs, sum, round);
            row.each(
                round,
                [&](int, auto &x) {
#pragma unroll
                    for (int i = 0; i < x.count; i++)
                        total += (x[i] - mean) * (x[i] - mean);
                },
                xs);
        }
        total = ignis_block_sum(total) / W(hidden);
    }
    const W factor = weight ? W(1) / sqrt(total + kind.eps) : W(1);
    /* in the reverse order of the pass before, whose last round is in registers */
    for (int walked = 0; walked <= last; walked++) {
        const int round = rms ? last - walked : walked;
        if (walked > 0)
            row.load(xs, sum, round);
        row.each(
            round,
            [&](int column, auto &x) {
                constexpr int count = ignis_pack_count<decltype(x)>;
                ignis_pack<T, count> by;
                W values[count];
                if (weight)
                    by = ignis_load<count>(weight + column);
#pragma unroll
                for (int i = 0; i < count; i++)
                    values[i] = weight ? (x[i] - mean) * factor * (W(by[i]) + kind.offset) : x[i];
                if (bias) {
                    const auto add = ignis_load<count>(bias + column);
#pragma unroll
                    for (int i = 0; i < count; i++)
                        values[i] += W(add[i]);
                }
                ignis_store(y + column, ignis_pack_round<T>(values));
            },
            xs);
    }
}

/*  Adds the results of products to the sum, unless `other` is null. Then out is the rms_norm or layer_norm of the
    sum, unless it is null; without weights (null) it is the rounded sum, and rms is set. bias: or null. packed: rows
    consist of aligned packs of 16 bytes of the sum. */
extern "C" __global__ void __launch_bounds__(256, sizeof(T) == 2 ? 4 : 1)
    ignis_generate_norm(T *out, W *sum, const T *other, const T *weight, const T *bias, int hidden, double eps, int rms,
                        int packed, double offset)
{
    const long long at = (long long)blockIdx.x * hidden;
    T *const y = out ? out + at : nullptr;
    const T *const more = other ? other + at : nullptr;
    const norm_kind kind = {W(eps), W(offset), rms != 0};
    ignis_grid_dependency();
    if (packed)
        add_and_norm<16 / sizeof(W)>(y, sum + at, more, weight, bias, hidden, kind);
    else
        add_and_norm<1>(y, sum + at, more, weight, bias, hidden, kind);
}

/*  Returns 1 / sqrt(mean of the squares of a row + eps), or 1 without a norm. All threads of the block get it. */
__device__ inline W row_factor(const T *row, int n, double eps, bool norm, W mean = W(0))
{
    W squares = 0;
    for (int i = threadIdx.x; norm && i < n; i += blockDim.x)
        squares += (W(row[i]) - mean) * (W(row[i]) - mean);
    return norm ? W(1) / sqrt(ignis_block_sum(squares) / W(n) + W(eps)) : W(1);
}

/*  Adds scale times the rows of `other` to the sum; of their rms_norm, if there are weights. grid = rows. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_generate_residual(W *sum, const T *other, const T *weight, int hidden, double eps, double offset,
                            double scale)
{
    const T *const row = other + (long long)blockIdx.x * hidden;
    W *const to = sum + (long long)blockIdx.x * hidden;
    ignis_grid_dependency();
    const W factor = row_factor(row, hidden, eps, weight) * W(scale);
    for (int i = threadIdx.x; i < hidden; i += 256)
        to[i] += W(row[i]) * factor * (weight ? W(weight[i]) + W(offset) : W(1));
}

/*  Replaces n elements of each row by their rms_norm, or if `centred` by their layer_norm without bias, and the next n
    likewise, with weights of their own. stride: of the rows. grid = rows, groups of n elements of a row. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_generate_norm_width(T *x, const T *weight, long long stride, int n, double eps, double offset, int centred)
{
    T *const row = x + blockIdx.x * stride + (long long)blockIdx.y * n;
    weight += (long long)blockIdx.y * n;
    ignis_grid_dependency();
    W sum = 0;
    for (int i = threadIdx.x; centred && i < n; i += 256)
        sum += W(row[i]);
    const W mean = centred ? ignis_block_sum(sum) / W(n) : W(0);
    const W factor = row_factor(row, n, eps, true, mean);
    for (int i = threadIdx.x; i < n; i += 256)
        row[i] = T((W(row[i]) - mean) * factor * (W(weight[i]) + W(offset)));
}

/*  Replaces elements by their gelu (Hendrycks and Gimpel 2016), by erf if `exact`, else by tanh. grid = any number of
    blocks. */
extern "C" __global__ void __launch_bounds__(256) ignis_generate_gelu(T *x, long long count, int exact)
{
    ignis_grid_dependency();
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < count; i += gridDim.x * 256LL)
        x[i] = exact ? T(W(0.5) * W(x[i]) * (W(1) + W(erf(W(x[i]) * W(0.70710678118654752))))) : T(gelu(W(x[i])));
}

/*  Multiplies logits by `scale`, and applies a softcap unless it is 0. grid = blocks per row, rows. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_generate_logits(float *logits, long long stride, int vocab, double scale, double softcap)
{
    float *const row = logits + blockIdx.y * stride;
    ignis_grid_dependency();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < vocab; i += gridDim.x * 256) {
        const float x = row[i] * float(scale);
        row[i] = softcap > 0 ? float(softcap) * tanhf(x / float(softcap)) : x;
    }
}

/* --- after the products of prompts ---------------------------------------------------------------------------- */

/*  Writes silu, or gelu, of the first half of each row, times the second half. grid = blocks per row, rows. */
extern "C" __global__ void __launch_bounds__(256) ignis_generate_gate(T *y, const T *x, int half, int is_gelu)
{
    constexpr int pack = 16 / sizeof(T);
    const T *gates = x + blockIdx.y * 2LL * half, *others = gates + half;
    T *to = y + (long long)blockIdx.y * half;
    /* else one by one */
    const int first = blockIdx.x * 256 + threadIdx.x, step = gridDim.x * 256,
              packs = pack > 2 && half % pack == 0 ? half / pack : 0;
    const auto gated = [is_gelu](W gate, W x) { return T((is_gelu ? gelu(gate) : gate * sigmoid(gate)) * x); };
    ignis_grid_dependency();
    for (int i = first; i < packs; i += step) {
        auto gate = ignis_load(gates + i * pack);
        const auto other = ignis_load(others + i * pack);
#pragma unroll
        for (int j = 0; j < pack; j++)
            gate[j] = gated(W(gate[j]), W(other[j]));
        ignis_store(to + i * pack, gate);
    }
    for (int i = packs * pack + first; i < half; i += step)
        to[i] = gated(W(gates[i]), W(others[i]));
}

/* --- the KV cache --------------------------------------------------------------------------------------------- */

/*  Rotates heads of q in place, and heads of k on their way to the KV cache; writes heads of v there. Into a cache of
    another type than numbers a warp writes each head, when all of it has been rotated in place. grid = rows, blocks
    that divide a row's heads. head_dim is a multiple of 8, up to 256. With norms there is shared memory for the factor
    of each head of a block. Rows and pages were written long before. */
extern "C" __global__ void __launch_bounds__(256, sizeof(T) == 2 ? 4 : 1)
    ignis_generate_cache(ignis__generate_cache p, const __grid_constant__ frequency_table<W> frequencies)
{
    /* elements of a pack; packs of both halves that a thread has at a time */
    constexpr int N = sizeof(T) < 8 ? 4 : 2, HALF = 128, TOGETHER = 3;
    extern __shared__ double memory[];
    W *const factors = (W *)memory;
    __shared__ W sines[HALF], cosines[HALF];
    const ignis__generate_row &row = p.rows[blockIdx.x];
    const int position = row.position, half = p.head_dim / 2, turning = p.heads + p.kv_heads,
              all = turning + p.kv_heads, packs = half / N;
    const int share = (all + gridDim.y - 1) / gridDim.y, first_head = blockIdx.y * share,
              end_head = min(all, first_head + share);
    T *const qkv = p.qkv + (long long)blockIdx.x * all * p.head_dim;
    const bool normed = p.q_weight || p.k_weight;
    if (position >= 0 && threadIdx.x < half) {
        sines[threadIdx.x] = 0;
        cosines[threadIdx.x] = 1;
        if (p.turns)
            sine_cosine(W(position), frequencies.at[threadIdx.x], sines[threadIdx.x], cosines[threadIdx.x]);
        if (p.turns && p.rest_scale > 0 && threadIdx.x >= p.turning)
            cosines[threadIdx.x] = W(p.rest_scale);
    }
    const int page = position < 0 ? 0 : row.pages[p.table + position / PAGE];
    ignis_grid_dependency();
    if (position < 0)
        return;
    for (int head = first_head + threadIdx.x / 32; normed && head < min(turning, end_head); head += 256 / 32) {
        const W factor = head_factor<4>((const T *)qkv + head * p.head_dim, p.head_dim, p.eps);
        if (threadIdx.x % 32 == 0)
            factors[head - first_head] = factor;
    }
    __syncthreads();
    const int end = end_head * packs;
    for (int first = first_head * packs + threadIdx.x; first < end; first += 256 * TOGETHER) {
        ignis_pack<T, N> a[TOGETHER], b[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const int at = first + 256 * k, head = at / packs, i = at % packs * N;
            if (at < end) {
                a[k] = ignis_load<N>(qkv + head * p.head_dim + i);
                b[k] = ignis_load<N>(qkv + head * p.head_dim + half + i);
            }
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const int at = first + 256 * k, head = at / packs, i = at % packs * N, kv = (head - p.heads) % p.kv_heads;
            if (at >= end)
                break;
            T *to = qkv + head * p.head_dim, *too = nullptr;
            const T *const weight = head < p.heads ? p.q_weight : p.k_weight;
            if (head >= p.heads && !p.type) {
                const generate_cache<T> cache = {head < turning ? p.k : p.v, p.kv_heads, p.head_dim};
                to = cache.data + cache.in_page(page, position, kv);
                too = head < turning ? p.k_too : p.v_too;
                too += too ? ((long long)position * p.kv_heads + kv) * p.head_dim : 0;
            }
            if (head < turning) {
                W x[N], y[N];
#pragma unroll
                for (int j = 0; j < N; j++) {
                    W one = W(a[k][j]), other = W(b[k][j]);
                    if (weight) {
                        one *= factors[head - first_head] * (W(weight[i + j]) + W(p.weight_offset));
                        other *= factors[head - first_head] * (W(weight[half + i + j]) + W(p.weight_offset));
                    }
                    x[j] = rotated(one, other, -sines[i + j], cosines[i + j]);
                    y[j] = rotated(other, one, sines[i + j], cosines[i + j]);
                }
                a[k] = ignis_pack_round<T>(x);
                b[k] = ignis_pack_round<T>(y);
            }
            const auto put = [&](T *to) {
                ignis_store(to + i, a[k]);
                ignis_store(to + half + i, b[k]);
            };
            put(to);
            if (too)
                put(too);
        }
    }
    if constexpr (sizeof(T) <= 4) {
        if (!p.type)
            return;
        __syncthreads(); /* the block has written the heads that its warps read now */
        for (int head = max(first_head, p.heads) + threadIdx.x / 32; head < end_head; head += 256 / 32) {
            const int kv = (head - p.heads) % p.kv_heads;
            T *const too = head < turning ? p.k_too : p.v_too;
            const long long place = ((long long)position * p.kv_heads + kv) * p.head_dim,
                            cell = ((long long)page * p.kv_heads + kv) * cache_cell(p.type, p.head_dim);
            cache_write_any<T>(p.type, (uint8_t *)(head < turning ? p.k : p.v) + cell, p.head_dim, position % PAGE,
                               qkv + head * p.head_dim, too ? too + place : nullptr);
        }
    }
}

/*  Gathers keys and values of a sequence's tokens [first, end) from its pages: [tokens, kv_heads, head_dim]. head_dim
    is a multiple of 8. table: see ignis__generate_row; type: of the cache. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_generate_gather(T *k_to, T *v_to, const T *k, const T *v, const ignis__generate_row *row, int table,
                          int first, int end, int kv_heads, int head_dim, int type)
{
    constexpr int pack = 16 / sizeof(T);
    const int width = kv_heads * head_dim / pack, at = blockIdx.x * 256 + threadIdx.x, token = first + at / width,
              i = at % width * pack;
    const long long to = (long long)token * width * pack + i;
    ignis_grid_dependency();
    if (token >= end)
        return;
    if constexpr (sizeof(T) <= 4)
        if (type) {
            const int head = i / head_dim, d = i % head_dim, row_of_page = token % PAGE;
            const long long cell =
                ((long long)row->pages[table + token / PAGE] * kv_heads + head) * cache_cell(type, head_dim);
            ignis_store(k_to + to, cache_read_any<T, pack>(type, (const uint8_t *)k + cell, head_dim, row_of_page, d));
            ignis_store(v_to + to, cache_read_any<T, pack>(type, (const uint8_t *)v + cell, head_dim, row_of_page, d));
            return;
        }
    const generate_cache<const T> keys = {k, kv_heads, head_dim}, values = {v, kv_heads, head_dim};
    ignis_store(k_to + to, ignis_load(keys.at(row->pages + table, token, i / head_dim) + i % head_dim));
    ignis_store(v_to + to, ignis_load(values.at(row->pages + table, token, i / head_dim) + i % head_dim));
}

/*  Copies a page in all layers, keys and values, for a sequence that is about to write to a page that others share.
    slab: elements of the keys, or of the values, of a layer; page: elements of a page. grid = slabs. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_generate_copy(T *cache, long long slab, long long page, int to, int from)
{
    T *base = cache + blockIdx.x * slab;
    for (long long i = threadIdx.x; i < page; i += 256)
        base[to * page + i] = base[from * page + i];
}
