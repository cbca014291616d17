// SPDX-License-Identifier: MIT
/*  attention.cu - scaled dot-product attention in plain CUDA C, forward and backward

    After FlashAttention-2 (Dao 2023): scores exist tile by tile, in registers only. For every floating type
    and every device; one program per type and size of heads: compiled with -DIGNIS_T=<ignis_dtype>
    -DIGNIS_HEAD_DIM=<32, 64, 128 or 256>, which serves smaller heads too, and the variants of attention.cuh.
    attention_mma.cu is the faster one where it can be used, and has the same kernels with the same
    parameters.

    A block owns rows: the forward pass and the gradient of q own queries and loop over the keys that they
    see; the gradients of k and v own keys and loop over the queries that see them, of all query heads that
    share the keys. So no result is summed by more than one block: there are no atomics, and equal inputs give
    equal bits.

    8 lanes do a few rows together: of a tile of scores a lane has every eighth column, of a row of results
    some packs of 16 bytes. The scores change hands through shared memory within a warp. */
#include "ignis.cuh"
#include "attention.cuh"

#ifndef IGNIS_HEAD_DIM
#define IGNIS_HEAD_DIM 64
#endif

typedef ignis_wide<T> W;

constexpr int D = IGNIS_HEAD_DIM;
constexpr int PACK = 16 / sizeof(W);
constexpr int ROW_BYTES = D * sizeof(W);
constexpr int STRIDE = D + PACK; /* of rows in shared memory: rows that lanes read at a time are in different banks */
constexpr int THREADS = ROW_BYTES > 1024 ? 64 : 128;
constexpr int LINES = THREADS / 8;   /* groups of 8 lanes */
constexpr int CHUNKS = D / 8 / PACK; /* packs that a lane has of a row of results */
static_assert(D % 32 == 0 && D <= 256, "sizes of heads are multiples of 32");

/*  Rows of a line, bounded by registers and shared memory, and rows per step. The host computes the same. */
constexpr int at_most(int a, int b) { return a < b ? a : b; }
constexpr int FORWARD_ROWS = at_most(PACK, 2048 / ROW_BYTES);
constexpr int BACKWARD_ROWS = ROW_BYTES > 1024 ? 1 : at_most(PACK, 1024 / ROW_BYTES);
constexpr int WALK = at_most(8 * PACK, 16384 / ROW_BYTES);
constexpr int COLUMNS = WALK / 8; /* of a tile of scores, a lane has */
constexpr int SCORE_STRIDE = WALK + PACK;
constexpr int LOADS = /* of a thread at a time: with all variants there are no registers for more */
    ROW_BYTES > 1024 && RANGE &&SOFTCAP &&BIASED &&__CUDA_ARCH__ == 800 ? 2 : 4;

/*  Loads rows first ... of a head into shared memory, of which those from `least` on and before count exist. The others
    are zero. */
template <int rows, bool from_least = false>
__device__ inline void load_tile(W *tile, const T *head, long long stride, int first, int count, int head_dim,
                                 int least = 0)
{
#pragma unroll LOADS
    for (int i = threadIdx.x; i < rows * D; i += THREADS) {
        const int row = i / D, d = i % D;
        const bool exists = (!from_least || first + row >= least) && first + row < count && d < head_dim;
        tile[row * STRIDE + d] = exists ? W(head[(first + row) * stride + d]) : W(0);
    }
}

/*  The scores of a lane: of its rows of one tile with its columns, which are rows of the other. */
template <int R> __device__ inline void score(W (&s)[R][COLUMNS], const W *rows, const W *walked)
{
    const int lane = threadIdx.x % 8;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            s[r][c] = 0;
#pragma unroll 2
    for (int d = 0; d < D; d += PACK) {
        ignis_pack<W> a[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            a[r] = ignis_load(rows + r * STRIDE + d);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const auto b = ignis_load(walked + (lane + 8 * c) * STRIDE + d);
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int i = 0; i < PACK; i++)
                    s[r][c] += a[r][i] * b[i];
        }
    }
}

/*  Adds sums += scores * tile, for the scores that the 8 lanes have written to shared memory. masked: some
    are 0, as a row does not see a key; then it adds nothing, even if the key has infinities or NaN. */
template <bool masked, int R>
__device__ inline void add_weighted(W (&sums)[R][CHUNKS][PACK], const W *scores, const W *walked)
{
    const int lane = threadIdx.x % 8;
#pragma unroll 1
    for (int k = 0; k < WALK; k += PACK) {
        ignis_pack<W> weights[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            weights[r] = ignis_load(scores + r * SCORE_STRIDE + k);
#pragma unroll
        for (int i = 0; i < PACK; i++)
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++) {
                const auto b = ignis_load(walked + (k + i) * STRIDE + (lane + 8 * chunk) * PACK);
#pragma unroll
                for (int r = 0; r < R; r++)
                    if (!masked || weights[r][i] != 0)
#pragma unroll
                        for (int j = 0; j < PACK; j++)
                            sums[r][chunk][j] += weights[r][i] * b[j];
            }
    }
}

template <int R>
__device__ inline void add_weighted(bool masked, W (&sums)[R][CHUNKS][PACK], const W *scores, const W *walked)
{
    if (masked)
        add_weighted<true>(sums, scores, walked);
    else
        add_weighted<false>(sums, scores, walked);
}

template <int R> __device__ inline void put_scores(W *scores, const W (&s)[R][COLUMNS])
{
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            scores[r * SCORE_STRIDE + threadIdx.x % 8 + 8 * c] = s[r][c];
    __syncwarp();
}

template <int R> __device__ inline void clear(W (&sums)[R][CHUNKS][PACK])
{
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
            for (int j = 0; j < PACK; j++)
                sums[r][chunk][j] = 0;
}

/*  A row of results, times a factor. */
__device__ inline void store_row(T *row, const W (&sums)[CHUNKS][PACK], W factor, int head_dim)
{
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
        for (int j = 0; j < PACK; j++) {
            const int d = (threadIdx.x % 8 + 8 * chunk) * PACK + j;
            if (d < head_dim)
                row[d] = T(sums[chunk][j] * factor);
        }
}

template <typename Op> __device__ inline W reduce_8_lanes(W x)
{
#pragma unroll
    for (int distance = 4; distance > 0; distance /= 2)
        x = Op::combine(x, __shfl_xor_sync(0xffffffff, x, distance));
    return x;
}

__device__ inline W *shared_memory()
{
    extern __shared__ __align__(16) char bytes[];
    return (W *)bytes;
}

/* >>forward ----------------------------------------------------------------------------------------------------- */

/*  Like that of attention_mma.cu, which explains top and SLACK.
    grid = ceil(sq / rows) * heads * batches, where a block has LINES * FORWARD_ROWS rows. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) ignis_sdpa(Attention p)
{
    constexpr int R = FORWARD_ROWS, rows = LINES * R;
    constexpr W SLACK = 8;
    const int pairs = p.heads * p.batches, b = blockIdx.x % pairs / p.heads;
    const int h = blockIdx.x % p.heads, kv_h = h / (p.heads / p.kv_heads);
    const int first = (int)(gridDim.x / pairs - 1 - blockIdx.x / pairs) * rows; /* the longest way first */
    const int lane = threadIdx.x % 8, own = threadIdx.x / 8 * R;
    W *q = shared_memory(), *walked = q + rows * STRIDE, *scores = walked + WALK * STRIDE + own * SCORE_STRIDE;
    const T *k = attention_head(p.k, b, kv_h), *v = attention_head(p.v, b, kv_h);
    const attention_scores<false> scored(p, b, h);
    const int last = min(first + rows, p.sq) - 1, keys = p.keys(b), visible = p.visible(b, last, keys);
    const int whole = p.visible(b, first, keys), whole_from = p.first_key(b, last); /* keys that all rows see */
    const int least = p.first_key(b, first);

    W out[R][CHUNKS][PACK], top[R], sum[R];
    clear(out);
#pragma unroll
    for (int r = 0; r < R; r++) {
        top[r] = -ignis_infinity<W>();
        sum[r] = 0;
    }
    load_tile<rows>(q, attention_head(p.q, b, h), p.q.row, first, p.sq, p.head_dim);

    for (int key = DOCUMENTS ? least : least / WALK * WALK; key < visible; key += WALK) {
        const bool masked = key + WALK > whole || key < whole_from;
        load_tile<WALK, RANGE>(walked, k, p.k.row, key, visible, p.head_dim, least);
        __syncthreads();
        W s[R][COLUMNS];
        score(s, q + own * STRIDE, walked);

        W most[R];
        bool raise = false;
#pragma unroll
        for (int r = 0; r < R; r++) {
            const int query = first + own + r, limit = p.visible(b, query, keys) - key,
                      start = p.first_key(b, query) - key;
            most[r] = -ignis_infinity<W>();
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const int column = lane + 8 * c;
                s[r][c] = column < limit && (!RANGE || column >= start) ? scored(s[r][c], query, key + column)
                                                                        : -ignis_infinity<W>();
                most[r] = max(most[r], s[r][c]);
            }
            raise |= most[r] > top[r] + SLACK;
        }
        if (__any_sync(0xffffffff, raise)) {
#pragma unroll
            for (int r = 0; r < R; r++) {
                const W highest = reduce_8_lanes<ignis_max>(most[r]),
                        higher = highest > top[r] + SLACK ? highest : top[r];
                const W factor = higher > top[r] ? power_of_2(exponent(top[r], higher)) : 1;
                top[r] = higher; /* a row has the same bits whatever rows are beside it */
                sum[r] *= factor;
#pragma unroll
                for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
                    for (int j = 0; j < PACK; j++)
                        out[r][chunk][j] *= factor;
            }
        }
#pragma unroll
        for (int r = 0; r < R; r++) {
            const W base = top[r] == -ignis_infinity<W>() ? 0 : top[r]; /* nothing seen so far */
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                s[r][c] = power_of_2(exponent(s[r][c], base));
                sum[r] += s[r][c];
            }
        }
        put_scores(scores, s);
        __syncthreads();
        load_tile<WALK, RANGE>(walked, v, p.v.row, key, visible, p.head_dim, least);
        __syncthreads();
        add_weighted(masked, out, scores, walked);
        __syncthreads();
    }

    T *to = attention_head(p.out, b, h);
#pragma unroll
    for (int r = 0; r < R; r++) {
        W total = reduce_8_lanes<ignis_sum>(sum[r]);
        const long long row = first + own + r;
        if (row >= p.sq)
            continue;
        const W factor = p.add_sink(h, top[r], total);
        store_row(to + row * p.out.row, out[r], total == 0 ? 0 : factor / total, p.head_dim);
        if (p.lse && lane == 0)
            p.put_stat(p.stat(b, h) + row, top[r], total);
    }
}

/* >>backward ---------------------------------------------------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(256) ignis_sdpa_backward_delta(Attention p) { attention_delta(p); }

/*  P = 2^(x - lse) of a score x that includes the scale; rows without a visible key, and rows after the last
    query, have an lse of infinity. dS = P (dP - delta). */
struct row_stats {
    W lse, log_sum, delta;

    __device__ row_stats() : lse(0), log_sum(0), delta(0) {}
    __device__ row_stats(const Attention &p, long long at)
        : lse(p.lse[at]), log_sum(BIASED ? p.lse[p.stat(p.batches, 0) + at] : 0), delta(p.delta[at])
    {
    }
    __device__ W probability(W x) const { return power_of_2(BIASED ? exponent(x, lse) - log_sum : x - lse * W(LOG2)); }
};

/*  grid = ceil(sk / rows) * kv_heads * batches, where a block has LINES * BACKWARD_ROWS rows, which are keys. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) ignis_sdpa_backward_kv(Attention p)
{
    constexpr int R = BACKWARD_ROWS, rows = LINES * R;
    const int pairs = p.kv_heads * p.batches, b = blockIdx.x % pairs / p.kv_heads;
    const int group = p.heads / p.kv_heads, kv_h = blockIdx.x % p.kv_heads;
    const int first = (int)(blockIdx.x / pairs) * rows, keys = p.keys(b);
    const int lane = threadIdx.x % 8, own = threadIdx.x / 8 * R;
    W *k = shared_memory(), *v = k + rows * STRIDE, *walked = v + rows * STRIDE;
    W *scores = walked + WALK * STRIDE + own * SCORE_STRIDE, *score_gradients = scores + rows * SCORE_STRIDE;
    const int end = RANGE ? first < keys ? p.end_query(b, min(first + rows, keys) - 1) : 0 : p.sq;
    const int whole = first + rows <= keys ? p.end_query(b, first) : 0,
              whole_from = p.first_query(b, first + rows - 1); /* queries that see all rows */

    W grad_k[R][CHUNKS][PACK], grad_v[R][CHUNKS][PACK];
    clear(grad_k);
    clear(grad_v);
    load_tile<rows>(k, attention_head(p.k, b, kv_h), p.k.row, first, p.sk, p.head_dim);
    load_tile<rows>(v, attention_head(p.v, b, kv_h), p.v.row, first, p.sk, p.head_dim);

    for (int h = kv_h * group; h < (kv_h + 1) * group; h++) {
        const T *q = attention_head(p.q, b, h), *grad = attention_head(p.grad_out, b, h);
        const attention_scores<false> scored(p, b, h);
        for (int query = p.first_query(b, first); query < end; query += WALK) {
            const bool masked = query + WALK > whole || query < whole_from;
            W s[R][COLUMNS], ds[R][COLUMNS];
            load_tile<WALK>(walked, grad, p.grad_out.row, query, end, p.head_dim);
            __syncthreads();
            score(ds, v + own * STRIDE, walked);
            __syncthreads();
            load_tile<WALK>(walked, q, p.q.row, query, end, p.head_dim);
            __syncthreads();
            score(s, k + own * STRIDE, walked);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const int i = query + lane + 8 * c;
                const bool exists = i < p.sq;
                const row_stats its = exists ? row_stats(p, p.stat(b, h) + i) : row_stats();
#pragma unroll
                for (int r = 0; r < R; r++) {
                    const int key = first + own + r;
                    const bool seen =
                        exists && i >= p.first_query(b, key) && (!RANGE || (i < p.end_query(b, key) && key < keys));
                    W slope;
                    const W x = scored(s[r][c], i, key, slope);
                    s[r][c] = seen ? its.probability(x) : 0;
                    ds[r][c] = seen ? s[r][c] * (ds[r][c] - its.delta) * slope : 0;
                }
            }
            put_scores(score_gradients, ds);
            put_scores(scores, s);
            add_weighted(masked, grad_k, score_gradients, walked);
            __syncthreads();
            load_tile<WALK>(walked, grad, p.grad_out.row, query, end, p.head_dim);
            __syncthreads();
            add_weighted(masked, grad_v, scores, walked);
            __syncthreads();
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        const long long row = first + own + r;
        if (row >= p.sk)
            continue;
        store_row(attention_head(p.grad_k, b, kv_h) + row * p.grad_k.row, grad_k[r], W(p.scale), p.head_dim);
        store_row(attention_head(p.grad_v, b, kv_h) + row * p.grad_v.row, grad_v[r], 1, p.head_dim);
    }
}

/*  grid = ceil(sq / rows) * heads * batches, where a block has LINES * BACKWARD_ROWS rows, which are queries. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) ignis_sdpa_backward_q(Attention p)
{
    constexpr int R = BACKWARD_ROWS, rows = LINES * R;
    const int pairs = p.heads * p.batches, b = blockIdx.x % pairs / p.heads;
    const int h = blockIdx.x % p.heads, kv_h = h / (p.heads / p.kv_heads);
    const int first = (int)(gridDim.x / pairs - 1 - blockIdx.x / pairs) * rows;
    const int lane = threadIdx.x % 8, own = threadIdx.x / 8 * R;
    W *q = shared_memory(), *grad = q + rows * STRIDE, *walked = grad + rows * STRIDE;
    W *score_gradients = walked + WALK * STRIDE + own * SCORE_STRIDE;
    const T *k = attention_head(p.k, b, kv_h), *v = attention_head(p.v, b, kv_h);
    const attention_scores<false> scored(p, b, h);
    const int last = min(first + rows, p.sq) - 1, keys = p.keys(b), visible = p.visible(b, last, keys);
    const int whole = p.visible(b, first, keys), whole_from = p.first_key(b, last); /* as in forward */

    W grad_q[R][CHUNKS][PACK];
    row_stats stats[R];
    clear(grad_q);
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int row = first + own + r;
        if (row < p.sq)
            stats[r] = row_stats(p, p.stat(b, h) + row);
    }
    load_tile<rows>(q, attention_head(p.q, b, h), p.q.row, first, p.sq, p.head_dim);
    load_tile<rows>(grad, attention_head(p.grad_out, b, h), p.grad_out.row, first, p.sq, p.head_dim);

    for (int key = p.first_key(b, first); key < visible; key += WALK) {
        W s[R][COLUMNS], ds[R][COLUMNS];
        load_tile<WALK>(walked, v, p.v.row, key, visible, p.head_dim);
        __syncthreads();
        score(ds, grad + own * STRIDE, walked);
        __syncthreads();
        load_tile<WALK>(walked, k, p.k.row, key, visible, p.head_dim);
        __syncthreads();
        score(s, q + own * STRIDE, walked);
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const int query = first + own + r, its_key = key + lane + 8 * c;
                W slope;
                const W x = scored(s[r][c], query, its_key, slope);
                const bool seen = its_key < p.visible(b, query, keys) && (!RANGE || its_key >= p.first_key(b, query));
                ds[r][c] = seen ? stats[r].probability(x) * (ds[r][c] - stats[r].delta) * slope : 0;
            }
        put_scores(score_gradients, ds);
        add_weighted(key + WALK > whole || key < whole_from, grad_q, score_gradients, walked);
        __syncthreads();
    }
    T *to = attention_head(p.grad_q, b, h);
#pragma unroll
    for (int r = 0; r < R; r++) {
        const long long row = first + own + r;
        if (row < p.sq)
            store_row(to + row * p.grad_q.row, grad_q[r], W(p.scale), p.head_dim);
    }
}

#if IGNIS_BIAS

/*  The gradient of the bias: a block has a tile of it, and sums, in their order, all batches, heads and
    queries that share it. grid = ceil(sk / WALK) * ceil(sq / rows) * heads * batches, each 1 where it is
    shared, except for the first. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) ignis_sdpa_backward_bias(Attention p)
{
    constexpr int R = BACKWARD_ROWS, rows = LINES * R;
    const attention_share share(p, rows, WALK);
    const int lane = threadIdx.x % 8, own = threadIdx.x / 8 * R, key = share.key;
    W *q = shared_memory(), *grad = q + rows * STRIDE, *walked = grad + rows * STRIDE;

    W sums[R][COLUMNS];
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            sums[r][c] = 0;

    for (int b = share.b; b < share.end_b; b++)
        for (int h = share.h; h < share.end_h; h++) {
            const int kv_h = h / (p.heads / p.kv_heads), keys = p.keys(b);
            const attention_scores<false> scored(p, b, h);
            for (int first = share.query; first < share.end_query; first += rows) {
                if (share.unseen(p, b, first, rows, WALK, keys))
                    continue;
                W s[R][COLUMNS], ds[R][COLUMNS];
                load_tile<rows>(q, attention_head(p.q, b, h), p.q.row, first, p.sq, p.head_dim);
                load_tile<rows>(grad, attention_head(p.grad_out, b, h), p.grad_out.row, first, p.sq, p.head_dim);
                load_tile<WALK>(walked, attention_head(p.v, b, kv_h), p.v.row, key, p.sk, p.head_dim);
                __syncthreads();
                score(ds, grad + own * STRIDE, walked);
                __syncthreads();
                load_tile<WALK>(walked, attention_head(p.k, b, kv_h), p.k.row, key, p.sk, p.head_dim);
                __syncthreads();
                score(s, q + own * STRIDE, walked);
#pragma unroll
                for (int r = 0; r < R; r++) {
                    const int query = first + own + r;
                    const bool exists = query < p.sq;
                    const row_stats its = exists ? row_stats(p, p.stat(b, h) + query) : row_stats();
#pragma unroll
                    for (int c = 0; c < COLUMNS; c++) {
                        const int its_key = key + lane + 8 * c;
                        const bool seen =
                            exists && its_key < p.visible(b, query, keys) && its_key >= p.first_key(b, query);
                        if (seen)
                            sums[r][c] += its.probability(scored(s[r][c], query, its_key)) * (ds[r][c] - its.delta);
                    }
                }
                __syncthreads();
            }
        }

    Bias *to = share.to(p);
    if (p.bias.row) {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                if (share.query + own + r < p.sq && key + lane + 8 * c < p.sk)
                    to[(share.query + own + r) * p.grad_bias.row + key + lane + 8 * c] = Bias(sums[r][c]);
        return;
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        W sum = 0;
#pragma unroll
        for (int r = 0; r < R; r++)
            sum += sums[r][c];
        q[threadIdx.x / 8 * WALK + lane + 8 * c] = sum;
    }
    __syncthreads();
    if (threadIdx.x < WALK && key + threadIdx.x < p.sk) {
        W sum = 0;
        for (int line = 0; line < LINES; line++)
            sum += q[line * WALK + threadIdx.x];
        to[key + threadIdx.x] = Bias(sum);
    }
}

#endif
