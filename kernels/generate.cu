// SPDX-License-Identifier: MIT
/*  generate.cu - what a step of generation does beside products and attention: rows, embeddings, norms, the cache

    The sum of what layers add (the residual) is kept in the wide type. Nothing here depends on how many rows there are.
    One program per element type: compiled with -DIGNIS_T=<1 to 4>.
*/
#include "ignis.cuh"
#include "activation.cuh"
#include "rope.cuh"
#include "generate.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> W;

/* --- what the host sends, as parameters of launches: nothing of its memory needs to stay ------------------------------------- */

struct words {
    int32_t at[960];
};

extern "C" __global__ void ignis_generate_words(int32_t *to, const __grid_constant__ words from, int count)
{
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        to[i] = from.at[i];
}

struct some_rows {
    generate_row at[32];
};

extern "C" __global__ void ignis_generate_rows(generate_row *to, const __grid_constant__ some_rows from, int count)
{
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        to[i] = from.at[i];
}

/*  The rows of one sequence from a position on. */
extern "C" __global__ void ignis_generate_chunk(generate_row *to, const __grid_constant__ generate_row first, int count)
{
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        generate_row row = first;
        row.position += i;
        to[i] = row;
    }
}

/* --- embeddings and norms: a block a row ---------------------------------------------------------------------------------------- */

/*  positions: of learned ones, or null. The kernel ahead, which writes the rows, does not let this one begin before all has ended that came before:
    kernels behind may load weights before they wait. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_generate_embed(W *sum, const T *embedding, const T *positions, const generate_row *rows, int hidden)
{
    const generate_row &row = rows[blockIdx.x];
    const long long to = (long long)blockIdx.x * hidden;
    ignis_grid_dependency();
    for (int i = threadIdx.x; i < hidden; i += 256) {
        W x = 0;
        if (row.position >= 0) {
            x = W(embedding[(long long)row.ids[row.position] * hidden + i]);
            if (positions)
                x += W(positions[(long long)row.position * hidden + i]);
        }
        sum[to + i] = x;
    }
}

/*  rms_norm, or layer_norm; bias may be null. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_generate_norm(T *out, const W *sum, const T *weight, const T *bias, int hidden, double eps, int rms)
{
    const W *x = sum + (long long)blockIdx.x * hidden;
    T *y = out + (long long)blockIdx.x * hidden;
    W mean = 0, squares = 0;
    ignis_grid_dependency();
    if (!rms) {
        for (int i = threadIdx.x; i < hidden; i += 256)
            mean += x[i];
        mean = ignis_block_sum(mean) / W(hidden);
    }
    for (int i = threadIdx.x; i < hidden; i += 256)
        squares += (x[i] - mean) * (x[i] - mean);
    const W factor = W(1) / sqrt(ignis_block_sum(squares) / W(hidden) + W(eps));
    for (int i = threadIdx.x; i < hidden; i += 256)
        y[i] = T((x[i] - mean) * factor * W(weight[i]) + (bias ? W(bias[i]) : W(0)));
}

/* --- behind the products of prompts: elements ------------------------------------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(256) ignis_generate_add(W *sum, const T *x, long long n)
{
    constexpr int pack = 16 / sizeof(W);
    const long long first = blockIdx.x * 256LL + threadIdx.x, step = gridDim.x * 256LL;
    ignis_grid_dependency();
    for (long long i = first; i < n / pack; i += step) {
        auto all = ignis_load(sum + i * pack);
        const auto some = ignis_load<pack>(x + i * pack);
#pragma unroll
        for (int j = 0; j < pack; j++)
            all[j] += W(some[j]);
        ignis_store(sum + i * pack, all);
    }
    for (long long i = n / pack * pack + first; i < n; i += step)
        sum[i] += W(x[i]);
}

/*  silu of the first half of each row, times the second. A row of blocks has a row. */
extern "C" __global__ void __launch_bounds__(256) ignis_generate_gate(T *y, const T *x, int half)
{
    constexpr int pack = 16 / sizeof(T);
    const T *gates = x + blockIdx.y * 2LL * half, *others = gates + half;
    T *to = y + (long long)blockIdx.y * half;
    const int first = blockIdx.x * 256 + threadIdx.x, step = gridDim.x * 256, packs = pack > 2 && half % pack == 0 ? half / pack : 0; /* else one by one */
    const auto gated = [](W gate, W x) { return T(gate * sigmoid(gate) * x); };
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

/* --- the cache --------------------------------------------------------------------------------------------------------------------- */

/*  ignis.h has the same struct. */
struct cache_params {
    T *qkv;                      /* [rows, heads + 2 kv_heads, head_dim] */
    T *k, *v;                    /* of the cache */
    const T *q_weight, *k_weight; /* of an rms_norm of each head before it turns; null: none */
    const generate_row *rows;
    double eps;
    int heads, kv_heads, head_dim, turns;
};

/*  Heads of q turn where they are, those of k turn on their way to the cache, those of v go there. A warp has a head.
    grid = (heads + 2 kv_heads) / 4, rows; 128 threads. */
extern "C" __global__ void __launch_bounds__(128) ignis_generate_cache(cache_params p, const __grid_constant__ frequency_table frequencies)
{
    const generate_row &row = p.rows[blockIdx.y];
    const int head = blockIdx.x * 4 + threadIdx.x / 32;
    T *from = p.qkv + ((long long)blockIdx.y * (p.heads + 2 * p.kv_heads) + head) * p.head_dim, *to = from;
    ignis_grid_dependency();
    if (row.position < 0 || head >= p.heads + 2 * p.kv_heads)
        return;
    const bool is_q = head < p.heads, is_v = head >= p.heads + p.kv_heads;
    if (!is_q) {
        const generate_cache<T> cache = {is_v ? p.v : p.k, p.kv_heads, p.head_dim};
        to = cache.at(row.pages, row.position, (head - p.heads) % p.kv_heads);
    }
    const T *weight = is_q ? p.q_weight : is_v ? nullptr : p.k_weight;
    const auto angle = [&](int i, W &sine, W &cosine) {
        if (p.turns && !is_v)
            sine_cosine(W(row.position), W(frequencies.at[i]), sine, cosine);
    };
    norm_and_turn<4>((const T *)from, weight, p.head_dim, p.eps, angle, [&](int i, T x) { to[i] = x; });
}

/*  Keys and values of a sequence's first tokens, out of its pages: [tokens, kv_heads, head_dim]. head_dim is a multiple of 8. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_generate_gather(T *k_to, T *v_to, const T *k, const T *v, const generate_row *row, int tokens, int kv_heads, int head_dim)
{
    constexpr int pack = 16 / sizeof(T);
    const int width = kv_heads * head_dim / pack, at = blockIdx.x * 256 + threadIdx.x, token = at / width, i = at % width * pack;
    ignis_grid_dependency();
    if (token >= tokens)
        return;
    const generate_cache<const T> keys = {k, kv_heads, head_dim}, values = {v, kv_heads, head_dim};
    ignis_store(k_to + (long long)at * pack, ignis_load(keys.at(row->pages, token, i / head_dim) + i % head_dim));
    ignis_store(v_to + (long long)at * pack, ignis_load(values.at(row->pages, token, i / head_dim) + i % head_dim));
}

/*  A page of all layers, keys and values: slabs of so many elements, one for each, of which a page has `page`. A sequence that is to write to a
    page which others have too gets its own. grid = slabs. */
extern "C" __global__ void __launch_bounds__(256) ignis_generate_copy(T *cache, long long slab, long long page, int to, int from)
{
    T *base = cache + blockIdx.x * slab;
    for (long long i = threadIdx.x; i < page; i += 256)
        base[to * page + i] = base[from * page + i];
}
