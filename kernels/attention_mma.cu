// SPDX-License-Identifier: MIT
/*  attention_mma.cu - scaled dot-product attention on tensor cores, forward and backward

    After FlashAttention-2 (Dao 2023): scores exist tile by tile, in registers only. For sm_80 and up; one
    program per type and size of heads: compiled with -DIGNIS_T=<IGNIS_F16 or IGNIS_BF16>
    -DIGNIS_HEAD_DIM=<32, 64, 96, 128, 192 or 256>, which serves smaller heads of a multiple of 8 elements
    too, and the variants of attention.cuh. All rows are aligned to 16 bytes.

    Forward: a block has queries, and loops over the keys that they see. Backward: ignis_sdpa_backward_delta
    first; then one kernel whose blocks have keys and loop over queries, of all query heads that share them,
    and one whose blocks have queries and loop over keys. That computes the scores twice, but no gradient is
    summed by more than one block: there are no atomics, no order to wait for, and equal inputs give equal
    bits.
    Blocks with the longest way come first, so that none of them is left over at the end. */
#include "ignis.cuh"
#include "mma.cuh"
#include "attention.cuh"
#include "attention_tiles.cuh"

/*  Parameters that a benchmark may vary. All sizes of heads leave one block 99 KB of shared memory at most,
    which every sm_8x has; the host has the resulting rows and bytes in its table of variants. */
#ifndef IGNIS_FORWARD_WARPS
#define IGNIS_FORWARD_WARPS 4
#endif
#ifndef IGNIS_FORWARD_TILES /* of 16 queries, a warp has */
#define IGNIS_FORWARD_TILES (IGNIS_HEAD_DIM <= 128 ? 2 : 1)
#endif
#ifndef IGNIS_FORWARD_KEYS /* walked at a time */
#define IGNIS_FORWARD_KEYS (IGNIS_HEAD_DIM <= 64 ? 64 : 32)
#endif
#ifndef IGNIS_FORWARD_KEEP /* whether q stays in registers */
#define IGNIS_FORWARD_KEEP (IGNIS_HEAD_DIM <= 64 && !SCORED)
#endif
#ifndef IGNIS_KV_WARPS
#define IGNIS_KV_WARPS (IGNIS_HEAD_DIM == 192 ? 6 : 4)
#endif
#ifndef IGNIS_KV_TILES /* of 16 keys, a warp has */
#define IGNIS_KV_TILES (IGNIS_HEAD_DIM <= 64 ? 2 : 1)
#endif
#ifndef IGNIS_KV_SPLIT /* warps that share keys, and have a part of the columns each: registers hold no more */
#define IGNIS_KV_SPLIT (IGNIS_HEAD_DIM <= 128 ? 1 : IGNIS_HEAD_DIM == 192 ? 3 : 2)
#endif
#ifndef IGNIS_KV_QUERIES /* walked at a time */
#define IGNIS_KV_QUERIES (IGNIS_HEAD_DIM <= 128 ? 64 : 32)
#endif
#ifndef IGNIS_KV_STRIP /* of them, in registers at a time; variants and newer devices need more registers */
#define IGNIS_KV_STRIP (SCORED || (IGNIS_HEAD_DIM == 64 && (RANGE || __CUDA_ARCH__ >= 1000)) ? 16 : 32)
#endif
#ifndef IGNIS_Q_WARPS
#define IGNIS_Q_WARPS 4
#endif
#ifndef IGNIS_Q_TILES /* of 16 queries, a warp has */
#define IGNIS_Q_TILES (IGNIS_HEAD_DIM <= 128 ? 2 : 1)
#endif
#ifndef IGNIS_Q_KEYS /* walked at a time */
#define IGNIS_Q_KEYS (IGNIS_HEAD_DIM <= 64 ? 64 : IGNIS_HEAD_DIM <= 128 ? 32 : 16)
#endif
#ifndef IGNIS_Q_STRIP /* of them, in registers at a time */
#define IGNIS_Q_STRIP \
    (SCORED || IGNIS_HEAD_DIM > 128 || (IGNIS_HEAD_DIM == 128 && (RANGE || __CUDA_ARCH__ >= 1000)) ? 16 : 32)
#endif
#ifndef IGNIS_FORWARD_BLOCKS /* on an SM: bounds the registers of a thread */
#define IGNIS_FORWARD_BLOCKS 1
#endif
#ifndef IGNIS_KV_BLOCKS
#define IGNIS_KV_BLOCKS 1
#endif
#ifndef IGNIS_Q_BLOCKS
#define IGNIS_Q_BLOCKS 1
#endif

/* >>common ------------------------------------------------------------------------------------------------------- */

constexpr int STATS = BIASED ? 3 : 2; /* of a query: lse, delta, and the sum that belongs to a bound */

/*  Starts to copy the STATS of queries first ... of a head, one after the other, of which count exist. The
    others are zero. */
template <int rows, int threads>
__device__ inline void copy_stats(uint32_t stats, const Attention &p, long long head, int first, int count)
{
    const float *lse = p.lse + head, *delta = p.delta + head;
#pragma unroll
    for (int i = threadIdx.x; i < rows; i += threads) {
        const bool exists = first + i < count;
        ignis_ptx_cp_async_4(stats + i * 4, exists ? lse + first + i : lse, exists ? 4 : 0);
        ignis_ptx_cp_async_4(stats + (rows + i) * 4, exists ? delta + first + i : delta, exists ? 4 : 0);
        if (BIASED)
            ignis_ptx_cp_async_4(stats + (2 * rows + i) * 4, exists ? lse + p.stat(p.batches, 0) + first + i : lse,
                                 exists ? 4 : 0);
    }
}

/*  The probability of a score with a bias; sum: the one that belongs to its bound. */
__device__ inline float biased_probability(float x, float bound, float sum)
{
    return ignis_ptx_ex2_ftz(fmaf(x - bound, LOG2_E, -sum));
}

/*  Returns the number of this thread, which the compiler does not use before a loop: addresses of copies that
    are used once in a tile would occupy registers all the way. */
__device__ inline unsigned thread_in_loop()
{
    unsigned thread = threadIdx.x;
    asm volatile("" : "+r"(thread));
    return thread;
}

/*  As thread_in_loop, for any number, where a bias takes the remaining registers, or limits of documents do. */
template <bool forward = false> __device__ inline int late(int x)
{
    if ((__CUDA_ARCH__ < 900 ? BIASED && D <= 96 : DOCUMENTS && D == 96) || (forward && DOCUMENTS && BIASED))
        asm volatile("" : "+r"(x));
    return x;
}

/*  Stores the results of a warp, times a factor for each row, to rows first ... of a head. They pass through
    rows of a tile that no other warp uses, so that full sectors are written. */
template <int tiles, int columns>
__device__ inline void store_results(const float (&c)[tiles][columns / 8][4], const float (&factor)[tiles][2],
                                     uint32_t tile, int column, char *shared, T *head, long long stride, int first,
                                     int count, int head_dim)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < tiles; m++)
#pragma unroll
        for (int n = 0; n < columns; n += 8)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t at = chunk_at(tile, 16 * m + 8 * half + lane / 4, (column + n) / 8) + lane % 4 * 4;
                *(uint32_t *)(shared + at) = ignis_round_two<T>(c[m][n / 8][2 * half] * factor[m][half],
                                                                c[m][n / 8][2 * half + 1] * factor[m][half]);
            }
    __syncwarp();
    constexpr int chunks = columns / 8, copies = tiles * 16 * chunks;
#pragma unroll
    for (int i = 0; i < copies / 32; i++) {
        const int index = i * 32 + lane, row = index / chunks, chunk = column / 8 + index % chunks;
        if (first + row < count && chunk * 8 < head_dim)
            *(uint4 *)(head + (first + row) * stride + chunk * 8) =
                *(const uint4 *)(shared + chunk_at(tile, row, chunk));
    }
}

/* >>forward ----------------------------------------------------------------------------------------------------- */

constexpr int F_WARPS = IGNIS_FORWARD_WARPS, F_TILES = IGNIS_FORWARD_TILES, F_KEYS = IGNIS_FORWARD_KEYS;
constexpr int F_QUERIES = 16 * F_TILES * F_WARPS;
constexpr bool F_KEEP = IGNIS_FORWARD_KEEP;

/*  The keys of a tile that a lane's rows see; key is the tile's first. */
struct tile_view {
    const Attention &p;
    const attention_scores<true> &scored;
    int b, query, key, keys;

    __device__ int first(int r) const { return p.first_key(b, query + r) - key; }
    __device__ int limit(int r) const { return p.visible(b, query + r, keys) - key; }
    __device__ float score(float product, int r, int column) const { return scored(product, query + r, key + column); }
    __device__ bool sees(int r, int column) const
    {
        return key + column < p.visible(b, query + r, keys) && (!RANGE || key + column >= p.first_key(b, query + r));
    }
};

/*  grid = ceil(sq / queries) * heads * batches, blocks of 32 * warps, shared memory for queries + 4 * keys
    rows. */
extern "C" __global__ void __launch_bounds__(32 * F_WARPS, IGNIS_FORWARD_BLOCKS) ignis_sdpa(Attention p)
{
    constexpr int threads = 32 * F_WARPS, tile_bytes = F_KEYS * ROW_BYTES;
    const int pairs = p.heads * p.batches, b = blockIdx.x % pairs / p.heads;
    const int h = blockIdx.x % p.heads, kv_h = h / (p.heads / p.kv_heads);
    const int first = (int)(gridDim.x / pairs - 1 - blockIdx.x / pairs) * F_QUERIES;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t q_tile = shared_address() + warp * 16 * F_TILES * ROW_BYTES;
    const uint32_t kv_tiles = shared_address() + F_QUERIES * ROW_BYTES; /* k, v, k, v */
    const float scale = (float)p.scale * LOG2_E;
    const attention_scores<true> scored(p, b, h);

    /* Only keys from the first visible one to the last are read, as 0 times NaN is NaN. Tiles of keys begin at
       multiples of their size, so that a row has the same bits whatever rows are beside it. With documents they begin
       with the first visible key. */
    const int last = min(first + F_QUERIES, p.sq) - 1, keys = p.keys(b), least = p.first_key(b, first),
              begin = DOCUMENTS ? least : least / F_KEYS * F_KEYS, end = p.visible(b, last, keys);
    const int whole = (p.visible(b, first, keys) - begin) / F_KEYS,
              whole_from = p.first_key(b, last) - begin; /* tiles that all rows see completely */
    const int count = (end - begin + F_KEYS - 1) / F_KEYS;

    copy_tile<F_QUERIES, threads>(shared_address(), attention_head(p.q, b, h), p.q.row, first, p.sq, p.head_dim,
                                  threadIdx.x);
    ignis_ptx_cp_async_commit();
    const auto copy_keys = [&](int n) {
        const uint32_t to = kv_tiles + n % 2 * 2 * tile_bytes;
        const unsigned thread = late(threadIdx.x);
        copy_tile<F_KEYS, threads, RANGE>(to, attention_head(p.k, b, late(kv_h)), p.k.row, begin + n * F_KEYS, end,
                                          p.head_dim, thread, least);
        copy_tile<F_KEYS, threads, RANGE>(to + tile_bytes, attention_head(p.v, b, late(kv_h)), p.v.row,
                                          begin + n * F_KEYS, end, p.head_dim, thread, least);
    };
    if (count > 0)
        copy_keys(0);
    ignis_ptx_cp_async_commit();

    const int query = first + warp * 16 * F_TILES + lane / 4;
    softmax<F_TILES> state;
    uint32_t q[D / 16][F_TILES][4];
    uint32_t q_lane = lane_of_a(q_tile);
    if constexpr (F_KEEP) {
        ignis_ptx_cp_async_wait<1>();
        __syncthreads();
#pragma unroll
        for (int k = 0; k < D; k += 16)
#pragma unroll
            for (int m = 0; m < F_TILES; m++)
                ignis_ptx_ldmatrix(q[k / 16][m], moved(q_lane, 16 * m, k));
    }

#pragma unroll 1
    for (int n = 0; n < count; n++) {
        ignis_ptx_cp_async_wait<0>();
        __syncthreads(); /* the tiles are there, and nobody uses the other ones any more */
        if (n + 1 < count)
            copy_keys(n + 1);
        ignis_ptx_cp_async_commit();
        q_lane = late(q_lane);
        const uint32_t here = kv_tiles + n % 2 * 2 * tile_bytes;

        const tile_view view = {p, scored, b, late<true>(query), begin + n * F_KEYS, keys};
        if (n < whole && (!RANGE || n * F_KEYS >= whole_from))
            softmax_step<false, F_KEEP, F_TILES, F_KEYS>(state, q, q_lane, here, scale, view);
        else
            softmax_step<true, F_KEEP, F_TILES, F_KEYS>(state, q, q_lane, here, scale, view);
    }

    ignis_ptx_cp_async_wait<0>();
    __syncthreads(); /* q is there even if no key was */
    float factor[F_TILES][2];
#pragma unroll
    for (int m = 0; m < F_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = state.sum[m][half];
            sum += __shfl_xor_sync(0xffffffff, sum, 1);
            sum += __shfl_xor_sync(0xffffffff, sum, 2);
            const int row = query + 16 * m + 8 * half;
            factor[m][half] = p.add_sink(h, state.top[m][half], sum);
            factor[m][half] = sum == 0 ? 0 : factor[m][half] / sum;
            if (p.lse && lane % 4 == 0 && row < p.sq)
                p.put_stat(p.stat(b, h) + row, state.top[m][half], sum);
        }
    store_results<F_TILES, D>(state.out, factor, q_tile - shared_address(), 0, shared_memory(),
                              attention_head(p.out, b, h), p.out.row, first + warp * 16 * F_TILES, p.sq, p.head_dim);
}

/* >>backward ---------------------------------------------------------------------------------------------------- */

/*  With P = 2^(x - lse), of scores x that include the scale, and dP = grad_out v^T:
        dS = P (dP - delta)     grad_v = P^T grad_out     grad_k = scale dS^T q     grad_q = scale dS k
    Of queries that see nothing lse is infinity, so their P and dS are zero. After the last query everything
    is zero, and adds nothing although P is 1; but with a bias P may be anything, and is masked there. */

extern "C" __global__ void __launch_bounds__(256) ignis_sdpa_backward_delta(Attention p) { attention_delta(p); }

constexpr int K_WARPS = IGNIS_KV_WARPS, K_TILES = IGNIS_KV_TILES, K_SPLIT = IGNIS_KV_SPLIT;
constexpr int K_KEYS = 16 * K_TILES * K_WARPS / K_SPLIT, K_QUERIES = IGNIS_KV_QUERIES, K_STRIP = IGNIS_KV_STRIP;
constexpr int K_COLUMNS = D / K_SPLIT;
static_assert(K_QUERIES % K_STRIP == 0, "strips make up a tile");
static_assert(K_SPLIT == 1 || K_COLUMNS / 8 % SWIZZLED == 0, "chunks change places within the columns of a warp");

/*  Processes a strip of the queries of a tile, of which query is the first, for the keys of a warp; key is
    the first row of this lane. All is transposed: rows are keys, columns are queries. */
template <bool masked>
__device__ inline void backward_kv_step(float (&grad_k)[K_TILES][K_COLUMNS / 8][4],
                                        float (&grad_v)[K_TILES][K_COLUMNS / 8][4], uint32_t kv_lane, uint32_t q_lane,
                                        uint32_t q_columns_lane, const float *lse, const float *delta, float scale,
                                        const attention_scores<true> &scored, const Attention &p, int b, int keys,
                                        int key, int query)
{
    const int lane = threadIdx.x % 32;
    float s[K_TILES][K_STRIP / 8][4], ds[K_TILES][K_STRIP / 8][4];
    clear(s);
    product_of_rows<K_TILES, K_STRIP>(s, kv_lane, 0, q_lane, 0);
    clear(ds);
    product_of_rows<K_TILES, K_STRIP>(ds, kv_lane, K_KEYS, q_lane, K_QUERIES);
#pragma unroll
    for (int n = 0; n < K_STRIP / 8; n++) {
        const int column = n * 8 + lane % 4 * 2;
        const auto lses = ignis_load<2>(lse + column), deltas = ignis_load<2>(delta + column);
        const auto sums = ignis_load<2>((BIASED ? delta + K_QUERIES : delta) + column);
#pragma unroll
        for (int m = 0; m < K_TILES; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int its_query = query + column + i % 2, its_key = key + 16 * m + 8 * (i / 2);
                float slope = 1;
                if constexpr (BIASED)
                    s[m][n][i] =
                        biased_probability(scored(s[m][n][i], its_query, its_key, slope), lses[i % 2], sums[i % 2]);
                else if constexpr (SCORED)
                    s[m][n][i] =
                        ignis_ptx_ex2_ftz(fmaf(lses[i % 2], -LOG2_E, scored(s[m][n][i], its_query, its_key, slope)));
                else
                    s[m][n][i] = ignis_ptx_ex2_ftz(fmaf(s[m][n][i], scale, lses[i % 2] * -LOG2_E));
                ds[m][n][i] = s[m][n][i] * (ds[m][n][i] - deltas[i % 2]);
                if constexpr (SOFTCAP)
                    ds[m][n][i] *= slope;
                if (masked &&
                    (its_query < p.first_query(b, its_key) ||
                     ((RANGE || BIASED) && its_query >= p.end_query(b, its_key)) || (RANGE && its_key >= keys)))
                    s[m][n][i] = ds[m][n][i] = 0;
            }
    }
    product_of_results<K_TILES, K_STRIP, K_COLUMNS>(grad_v, s, q_columns_lane, K_QUERIES);
    product_of_results<K_TILES, K_STRIP, K_COLUMNS>(grad_k, ds, q_columns_lane, 0);
}

/*  grid = ceil(sk / keys) * kv_heads * batches, blocks of 32 * warps, shared memory for 2 * keys + 4 *
    queries rows and 2 * STATS * queries floats. */
extern "C" __global__ void __launch_bounds__(32 * K_WARPS, IGNIS_KV_BLOCKS) ignis_sdpa_backward_kv(Attention p)
{
    constexpr int threads = 32 * K_WARPS, tile_bytes = K_QUERIES * ROW_BYTES;
    const int pairs = p.kv_heads * p.batches, b = blockIdx.x % pairs / p.kv_heads;
    const int group = p.heads / p.kv_heads, kv_h = blockIdx.x % p.kv_heads;
    const int first = (int)(blockIdx.x / pairs) * K_KEYS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / K_SPLIT * 16 * K_TILES, column = warp % K_SPLIT * K_COLUMNS;
    const uint32_t k_tile = shared_address(), v_tile = k_tile + K_KEYS * ROW_BYTES;
    const uint32_t q_tiles = v_tile + K_KEYS * ROW_BYTES; /* q, grad_out, q, grad_out */
    const uint32_t kv_lane = lane_of_a(k_tile + row * ROW_BYTES);
    constexpr int stats_at = (2 * K_KEYS + 4 * K_QUERIES) * ROW_BYTES,
                  stats_bytes = STATS * K_QUERIES * 4; /* two times */
    const float scale = (float)p.scale * LOG2_E;

    const int keys = p.keys(b), end = RANGE ? first < keys ? p.end_query(b, min(first + K_KEYS, keys) - 1) : 0 : p.sq;
    const int begin =
        p.first_query(b, first); /* tiles of queries begin and end with queries that see some of the keys */
    const int whole = p.first_query(b, min(first + K_KEYS, p.sk) - 1); /* all keys are seen from here on */
    const int whole_end =
        RANGE && first + K_KEYS > keys ? 0 : p.end_query(b, first); /* and before, if some queries do not matter */
    const int tiles = max(0, (end - begin + K_QUERIES - 1) / K_QUERIES);
    const int count = tiles * group;

    float grad_k[K_TILES][K_COLUMNS / 8][4], grad_v[K_TILES][K_COLUMNS / 8][4];
    clear(grad_k);
    clear(grad_v);

    copy_tile<K_KEYS, threads>(k_tile, attention_head(p.k, b, kv_h), p.k.row, first, p.sk, p.head_dim, threadIdx.x);
    copy_tile<K_KEYS, threads>(v_tile, attention_head(p.v, b, kv_h), p.v.row, first, p.sk, p.head_dim, threadIdx.x);

    /* Loops over the tiles of the first query head, then over those of the next. */
    const auto copy_queries = [&](int n) {
        const int h = kv_h * group + n / tiles, from = begin + n % tiles * K_QUERIES;
        const uint32_t to = q_tiles + n % 2 * 2 * tile_bytes;
        const unsigned thread = D == 64 && !SCORED ? thread_in_loop() : threadIdx.x;
        copy_tile<K_QUERIES, threads>(to, attention_head(p.q, b, h), p.q.row, from, end, p.head_dim, thread);
        copy_tile<K_QUERIES, threads>(to + tile_bytes, attention_head(p.grad_out, b, h), p.grad_out.row, from, end,
                                      p.head_dim, thread);
        copy_stats<K_QUERIES, threads>(shared_address() + stats_at + n % 2 * stats_bytes, p, p.stat(b, h), from, end);
    };
    if (count > 0)
        copy_queries(0);
    ignis_ptx_cp_async_commit();

#pragma unroll 1
    for (int n = 0; n < count; n++) {
        ignis_ptx_cp_async_wait<0>();
        __syncthreads();
        if (n + 1 < count)
            copy_queries(n + 1);
        ignis_ptx_cp_async_commit();

        const int stage = n % 2, from = begin + n % tiles * K_QUERIES;
        const bool masked = from < whole || ((RANGE || BIASED) && from + K_QUERIES > whole_end);
        const attention_scores<true> scored(p, b, kv_h * group + n / tiles);
#pragma unroll 1
        for (int strip = 0; strip < K_QUERIES; strip += K_STRIP) {
            const uint32_t strip_tile = q_tiles + stage * 2 * tile_bytes + strip * ROW_BYTES;
            const uint32_t q_lane = lane_of_b(strip_tile), q_columns_lane = moved(lane_of_a(strip_tile), 0, column);
            const float *stat = (const float *)(shared_memory() + stats_at + stage * stats_bytes) + strip;
            const int key = late(first + row + lane / 4), query = from + strip;
            if (masked)
                backward_kv_step<true>(grad_k, grad_v, kv_lane, q_lane, q_columns_lane, stat, stat + K_QUERIES, scale,
                                       scored, p, b, keys, key, query);
            else
                backward_kv_step<false>(grad_k, grad_v, kv_lane, q_lane, q_columns_lane, stat, stat + K_QUERIES, scale,
                                        scored, p, b, keys, key, query);
        }
    }

    ignis_ptx_cp_async_wait<0>();
    __syncthreads();
    float scales[K_TILES][2], ones[K_TILES][2];
#pragma unroll
    for (int m = 0; m < K_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            scales[m][half] = (float)p.scale;
            ones[m][half] = 1;
        }
    store_results<K_TILES, K_COLUMNS>(grad_k, scales, row * ROW_BYTES, column, shared_memory(),
                                      attention_head(p.grad_k, b, kv_h), p.grad_k.row, first + row, p.sk, p.head_dim);
    store_results<K_TILES, K_COLUMNS>(grad_v, ones, (K_KEYS + row) * ROW_BYTES, column, shared_memory(),
                                      attention_head(p.grad_v, b, kv_h), p.grad_v.row, first + row, p.sk, p.head_dim);
}

constexpr int Q_WARPS = IGNIS_Q_WARPS, Q_TILES = IGNIS_Q_TILES, Q_KEYS = IGNIS_Q_KEYS, Q_STRIP = IGNIS_Q_STRIP;
constexpr int Q_QUERIES = 16 * Q_TILES * Q_WARPS;
static_assert(Q_KEYS % Q_STRIP == 0, "strips make up a tile");

/*  A strip of the keys of a tile for the queries of a warp. */
template <bool masked>
__device__ inline void backward_q_step(float (&grad_q)[Q_TILES][D / 8][4], uint32_t q_lane, uint32_t kv_tile,
                                       const float *lse, const float *delta, float scale, const tile_view &view)
{
    const int lane = threadIdx.x % 32;
    const uint32_t kv_lane = lane_of_b(kv_tile);
    float s[Q_TILES][Q_STRIP / 8][4], ds[Q_TILES][Q_STRIP / 8][4];
    clear(s);
    product_of_rows<Q_TILES, Q_STRIP>(s, q_lane, 0, kv_lane, 0);
    clear(ds);
    product_of_rows<Q_TILES, Q_STRIP>(ds, q_lane, Q_QUERIES, kv_lane, Q_KEYS);
#pragma unroll
    for (int m = 0; m < Q_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = 16 * m + 8 * half;
            const float base = BIASED ? lse[row] : lse[row] * -LOG2_E, its_delta = delta[row],
                        sum = BIASED ? delta[Q_QUERIES + row] : 0;
#pragma unroll
            for (int n = 0; n < Q_STRIP / 8; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    const int column = n * 8 + lane % 4 * 2 + i % 2;
                    float probability, slope = 1;
                    if constexpr (BIASED)
                        probability = biased_probability(
                            view.scored(s[m][n][i], view.query + row, view.key + column, slope), base, sum);
                    else if constexpr (SCORED)
                        probability = ignis_ptx_ex2_ftz(
                            base + view.scored(s[m][n][i], view.query + row, view.key + column, slope));
                    else
                        probability = ignis_ptx_ex2_ftz(fmaf(s[m][n][i], scale, base));
                    ds[m][n][i] = probability * (ds[m][n][i] - its_delta);
                    if constexpr (SOFTCAP)
                        ds[m][n][i] *= slope;
                    if (masked && !view.sees(row, column))
                        ds[m][n][i] = 0;
                }
        }
    product_of_results<Q_TILES, Q_STRIP, D>(grad_q, ds, lane_of_a(kv_tile), 0);
}

/*  grid = ceil(sq / queries) * heads * batches, blocks of 32 * warps, shared memory for 2 * queries + 4 *
    keys rows and STATS * queries floats. */
extern "C" __global__ void __launch_bounds__(32 * Q_WARPS, IGNIS_Q_BLOCKS) ignis_sdpa_backward_q(Attention p)
{
    constexpr int threads = 32 * Q_WARPS, tile_bytes = Q_KEYS * ROW_BYTES,
                  stats_at = (2 * Q_QUERIES + 4 * Q_KEYS) * ROW_BYTES;
    const int pairs = p.heads * p.batches, b = blockIdx.x % pairs / p.heads;
    const int h = blockIdx.x % p.heads, kv_h = h / (p.heads / p.kv_heads);
    const int first = (int)(gridDim.x / pairs - 1 - blockIdx.x / pairs) * Q_QUERIES;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t q_tile = shared_address(), grad_tile = q_tile + Q_QUERIES * ROW_BYTES;
    const uint32_t kv_tiles = grad_tile + Q_QUERIES * ROW_BYTES; /* k, v, k, v */
    const float scale = (float)p.scale * LOG2_E;
    const attention_scores<true> scored(p, b, h);

    const int last = min(first + Q_QUERIES, p.sq) - 1, keys = p.keys(b), begin = p.first_key(b, first),
              end = p.visible(b, last, keys); /* as in forward */
    const int whole = (p.visible(b, first, keys) - begin) / Q_KEYS, whole_from = p.first_key(b, last) - begin;
    const int count = (end - begin + Q_KEYS - 1) / Q_KEYS;

    copy_tile<Q_QUERIES, threads>(q_tile, attention_head(p.q, b, h), p.q.row, first, p.sq, p.head_dim, threadIdx.x);
    copy_stats<Q_QUERIES, threads>(q_tile + stats_at, p, p.stat(b, h), first, p.sq);
    copy_tile<Q_QUERIES, threads>(grad_tile, attention_head(p.grad_out, b, h), p.grad_out.row, first, p.sq, p.head_dim,
                                  threadIdx.x);
    const auto copy_keys = [&](int n) {
        const uint32_t to = kv_tiles + n % 2 * 2 * tile_bytes;
        copy_tile<Q_KEYS, threads>(to, attention_head(p.k, b, kv_h), p.k.row, begin + n * Q_KEYS, end, p.head_dim,
                                   threadIdx.x);
        copy_tile<Q_KEYS, threads>(to + tile_bytes, attention_head(p.v, b, kv_h), p.v.row, begin + n * Q_KEYS, end,
                                   p.head_dim, threadIdx.x);
    };
    if (count > 0)
        copy_keys(0);
    ignis_ptx_cp_async_commit();

    const int query = first + warp * 16 * Q_TILES + lane / 4;
    float grad_q[Q_TILES][D / 8][4];
    clear(grad_q);
    const float *lse = (const float *)(shared_memory() + stats_at) + warp * 16 * Q_TILES + lane / 4,
                *delta = lse + Q_QUERIES;
    const uint32_t rows = warp * 16 * Q_TILES * ROW_BYTES, q_lane = lane_of_a(q_tile + rows);
#pragma unroll 1
    for (int n = 0; n < count; n++) {
        ignis_ptx_cp_async_wait<0>();
        __syncthreads();
        if (n + 1 < count)
            copy_keys(n + 1);
        ignis_ptx_cp_async_commit();

#pragma unroll 1
        for (int strip = 0; strip < Q_KEYS; strip += Q_STRIP) {
            const uint32_t strip_tile = kv_tiles + n % 2 * 2 * tile_bytes + strip * ROW_BYTES;
            const tile_view view = {p, scored, b, late(query), begin + n * Q_KEYS + strip, keys};
            if (n < whole && (!RANGE || n * Q_KEYS >= whole_from))
                backward_q_step<false>(grad_q, q_lane, strip_tile, lse, delta, scale, view);
            else
                backward_q_step<true>(grad_q, q_lane, strip_tile, lse, delta, scale, view);
        }
    }

    ignis_ptx_cp_async_wait<0>();
    __syncthreads();
    float scales[Q_TILES][2];
#pragma unroll
    for (int m = 0; m < Q_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            scales[m][half] = (float)p.scale;
    store_results<Q_TILES, D>(grad_q, scales, rows, 0, shared_memory(), attention_head(p.grad_q, b, h), p.grad_q.row,
                              first + warp * 16 * Q_TILES, p.sq, p.head_dim);
}

#if IGNIS_BIAS

/*  The gradient of the bias: a block has a tile of it, and sums, in their order, all batches, heads and
    queries that share it. grid = ceil(sk / keys) * ceil(sq / queries) * heads * batches, each 1 where it is
    shared, except for the first; blocks of 32 * warps, shared memory for 2 * queries + 2 * keys rows and
    STATS * queries floats. */
extern "C" __global__ void __launch_bounds__(32 * Q_WARPS) ignis_sdpa_backward_bias(const __grid_constant__ Attention p)
{
    constexpr int threads = 32 * Q_WARPS, stats_at = (2 * Q_QUERIES + 2 * Q_KEYS) * ROW_BYTES;
    const attention_share share(p, Q_QUERIES, Q_KEYS);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp * 16 * Q_TILES + lane / 4,
              key = share.key + lane % 4 * 2;
    const uint32_t q_tile = shared_address(), grad_tile = q_tile + Q_QUERIES * ROW_BYTES,
                   kv_tile = grad_tile + Q_QUERIES * ROW_BYTES;
    const uint32_t q_lane = lane_of_a(q_tile + warp * 16 * Q_TILES * ROW_BYTES);
    const float *lse = (const float *)(shared_memory() + stats_at) + row, *delta = lse + Q_QUERIES;
    float sums[Q_TILES][Q_KEYS / 8][4];
    clear(sums);

    for (int b = share.b; b < share.end_b; b++)
        for (int h = share.h; h < share.end_h; h++) {
            const int kv_h = h / (p.heads / p.kv_heads), keys = p.keys(b);
            const attention_scores<true> scored(p, b, h);
            for (int first = share.query; first < share.end_query; first += Q_QUERIES) {
                if (share.unseen(p, b, first, Q_QUERIES, Q_KEYS, keys))
                    continue;
                const unsigned thread = thread_in_loop();
                __syncthreads(); /* nobody reads the tiles any more */
                copy_tile<Q_QUERIES, threads>(q_tile, attention_head(p.q, b, h), p.q.row, first, p.sq, p.head_dim,
                                              thread);
                copy_tile<Q_QUERIES, threads>(grad_tile, attention_head(p.grad_out, b, h), p.grad_out.row, first, p.sq,
                                              p.head_dim, thread);
                copy_tile<Q_KEYS, threads>(kv_tile, attention_head(p.k, b, kv_h), p.k.row, share.key, p.sk, p.head_dim,
                                           thread);
                copy_tile<Q_KEYS, threads>(kv_tile + Q_KEYS * ROW_BYTES, attention_head(p.v, b, kv_h), p.v.row,
                                           share.key, p.sk, p.head_dim, thread);
                copy_stats<Q_QUERIES, threads>(q_tile + stats_at, p, p.stat(b, h), first, p.sq);
                ignis_ptx_cp_async_commit();
                ignis_ptx_cp_async_wait<0>();
                __syncthreads();
#pragma unroll
                for (int strip = 0; strip < Q_KEYS; strip += Q_STRIP) {
                    const uint32_t kv_lane = lane_of_b(kv_tile + strip * ROW_BYTES);
                    float s[Q_TILES][Q_STRIP / 8][4], ds[Q_TILES][Q_STRIP / 8][4];
                    clear(s);
                    product_of_rows<Q_TILES, Q_STRIP>(s, q_lane, 0, kv_lane, 0);
                    clear(ds);
                    product_of_rows<Q_TILES, Q_STRIP>(ds, q_lane, Q_QUERIES, kv_lane, Q_KEYS);
#pragma unroll
                    for (int m = 0; m < Q_TILES; m++)
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            const int r = 16 * m + i / 2 * 8, query = first + row + r;
                            const float bound = lse[r], its_delta = delta[r], sum = delta[Q_QUERIES + r];
#pragma unroll
                            for (int n = 0; n < Q_STRIP / 8; n++) {
                                const int its_key = key + strip + n * 8 + i % 2;
                                const float probability =
                                    biased_probability(scored(s[m][n][i], query, its_key), bound, sum);
                                if (query < p.sq && its_key >= p.first_key(b, query) &&
                                    its_key < p.visible(b, query, keys))
                                    sums[m][strip / 8 + n][i] += probability * (ds[m][n][i] - its_delta);
                            }
                        }
                }
            }
        }

    Bias *to = share.to(p);
    if (p.bias.row) {
#pragma unroll
        for (int m = 0; m < Q_TILES; m++)
#pragma unroll
            for (int n = 0; n < Q_KEYS / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int query = share.query + row + 16 * m + i / 2 * 8, its_key = key + n * 8 + i % 2;
                    if (query < p.sq && its_key < p.sk)
                        to[query * p.grad_bias.row + its_key] = Bias(sums[m][n][i]);
                }
        return;
    }
    __syncthreads();
    float *columns = (float *)shared_memory(); /* [Q_WARPS][Q_KEYS] */
#pragma unroll
    for (int n = 0; n < Q_KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float sum = 0;
#pragma unroll
            for (int m = 0; m < Q_TILES; m++)
                sum += sums[m][n][i] + sums[m][n][i + 2];
#pragma unroll
            for (int distance = 4; distance < 32; distance *= 2)
                sum += __shfl_xor_sync(0xffffffff, sum, distance);
            if (lane < 4)
                columns[warp * Q_KEYS + n * 8 + lane * 2 + i] = sum;
        }
    __syncthreads();
    if (threadIdx.x < Q_KEYS && share.key + threadIdx.x < p.sk) {
        float sum = 0;
        for (int w = 0; w < Q_WARPS; w++)
            sum += columns[w * Q_KEYS + threadIdx.x];
        to[share.key + threadIdx.x] = Bias(sum);
    }
}

#endif
