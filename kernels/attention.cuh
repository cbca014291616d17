// SPDX-License-Identifier: MIT
/*  attention.cuh - what all attention kernels share: their parameters, the keys that a query sees, the row
    sums of the backward pass

    Options are variants of the programs, each a compile option, so that other programs do not pay for them:
        -DIGNIS_RANGE=1        a window, lengths of sequences, or both
        -DIGNIS_RANGE=2        documents, maybe with a window
        -DIGNIS_SOFTCAP=1      scores pass through cap * tanh(score / cap)
        -DIGNIS_BIAS=<dtype>   a bias of this dtype is added to the scores, after the cap */
#ifndef IGNIS_ATTENTION_CUH
#define IGNIS_ATTENTION_CUH

#ifndef IGNIS_RANGE
#define IGNIS_RANGE 0
#endif
#ifndef IGNIS_SOFTCAP
#define IGNIS_SOFTCAP 0
#endif
#ifndef IGNIS_BIAS
#define IGNIS_BIAS 0
#endif
constexpr bool RANGE = IGNIS_RANGE != 0, DOCUMENTS = IGNIS_RANGE == 2, SOFTCAP = IGNIS_SOFTCAP,
               BIASED = IGNIS_BIAS != 0;
constexpr bool SCORED = SOFTCAP || BIASED; /* a score is more than the scaled product */
typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;
typedef ignis_type<IGNIS_BIAS ? IGNIS_BIAS : IGNIS_T> Bias;

/*  Scores are in units of log 2, so that weights are 2^(score - bound). With a bias they are as they are: the
    lowest number of a type is a bias that masks, and has no room for a factor. Then e^(score - bound) has the
    factor. */
constexpr double LOG2 = 1.44269504088896340736, SCORE_UNIT = BIASED ? 1 : LOG2, EXPONENT_UNIT = BIASED ? LOG2 : 1;

#include "shared/attention.h"

template <typename E>
__device__ inline E *attention_head(const ignis__attention_rows<E> &rows, long long b, long long h)
{
    return rows.data + b * rows.batch + h * rows.head;
}
/*  The parameters of every kernel. */
struct Attention : ignis__attention_params {
    /*  The document of a row, as in bounds; after the last row, that of the last row. Row sk: all documents.
        There are fewer than 2^31 of them, as 64 bits would take registers that Hopper's kernels do not have. */
    __device__ int2 bounds_of(int b, int row) const
    {
        return __ldg((const int2 *)bounds + ((unsigned)b * (unsigned)(sk + 1) + (unsigned)row));
    }
    __device__ int2 document(int b, int row) const { return bounds_of(b, max(0, min(row, sk - 1))); }

    /*  The keys of a sequence: the first ones, or those before the end of the last document. */
    __device__ int keys(int b) const
    {
        if constexpr (DOCUMENTS)
            return bounds_of(b, sk).y;
        return RANGE && lengths ? max(0, min(sk, lengths[b])) : sk;
    }

    /*  The first key that some query sees, if there is one. */
    __device__ int first_seen_key(int b) const
    {
        if constexpr (DOCUMENTS)
            return bounds_of(b, sk).x;
        return first_key(b, 0);
    }

    /*  Returns how many keys a query sees from key query + sk - sq on, its own. */
    __device__ int reach() const { return causal ? 1 : window; }

    /*  A query sees the keys from first_key on, before visible; end is the sequence's keys. Both rise, or stay,
        from query to query, so a tile of queries sees what is between those of the first and the last one. */
    __device__ int first_key(int b, int query) const
    {
        if constexpr (DOCUMENTS)
            return max(document(b, query).x, query - window + 1);
        return RANGE ? max(0, query + sk - sq - window + 1) : 0;
    }
    __device__ int visible(int b, int query, int end) const
    {
        if constexpr (DOCUMENTS)
            return max(0, min(document(b, query).y, query + reach()));
        return RANGE || causal ? max(0, min(end, query + sk - sq + (RANGE ? reach() : 1))) : end;
    }

    /*  The queries that see a key of the sequence, as far as its end does not matter: from first_query on,
        before end_query. Both rise, or stay, from key to key. */
    __device__ int first_query(int b, int key) const
    {
        if constexpr (DOCUMENTS)
            return max(document(b, key).x, key - reach() + 1);
        return RANGE || causal ? max(0, key - (sk - sq) - (RANGE ? reach() - 1 : 0)) : 0;
    }
    __device__ int end_query(int b, int key) const
    {
        if constexpr (DOCUMENTS)
            return min(document(b, key).y, key + window);
        return RANGE ? max(0, min(sq, key - (sk - sq) + window)) : sq;
    }

    __device__ long long stat(long long b, long long h) const { return (b * heads + h) * sq; }

    __device__ Wide sink(int h) const { return wide_sinks ? ((const Wide *)sinks)[h] : Wide(((const T *)sinks)[h]); }

    /*  Adds the sink of a head to a row's softmax, which has a bound of the scores and the sum of their weights. The
        results are multiplied by the returned factor, besides the division by the sum. A row that has seen no key stays
        as it is. A sink too large for the unit of scores counts as the largest number, so that bound - bound is 0. */
    __device__ Wide add_sink(int h, Wide &bound, Wide &sum) const
    {
        if (!sinks || sum == 0)
            return 1;
        Wide x = sink(h) * Wide(SCORE_UNIT);
        x = x > ignis_max_value<Wide>() ? ignis_max_value<Wide>() : x; /* NaN stays */
        const Wide higher = x > bound ? x : bound, factor = Wide(exp2((bound - higher) * Wide(EXPONENT_UNIT)));
        sum = sum * factor + Wide(exp2((x - higher) * Wide(EXPONENT_UNIT)));
        bound = higher;
        return factor;
    }

    /*  Writes the lse of a query from a bound of its scores and the sum of its weights. */
    __device__ void put_stat(long long at, Wide bound, Wide sum) const
    {
        lse[at] = sum == 0 ? ignis_infinity<Wide>() : BIASED ? bound : (bound + Wide(log2(sum))) * Wide(1 / LOG2);
        if (BIASED)
            lse[stat(batches, 0) + at] = sum == 0 ? 0 : Wide(log2(sum));
    }
};

/*  delta[b, h, i] = sum of out * grad_out over the head, for elements in packs of N. A row of a head takes as
    many lanes as needed, so that a warp reads heads that are neighbours in memory. Blocks of 256 threads, any
    grid. */
template <int N> __device__ inline void attention_delta_packs(const Attention &p)
{
    int lanes = 1;
    while (lanes < 32 && lanes * N < p.head_dim)
        lanes *= 2;
    const long long items = (long long)p.batches * p.sq * p.heads, step = (long long)gridDim.x * 256 / lanes;
    const int lane = threadIdx.x % lanes;

    for (long long first = ((long long)blockIdx.x * 256 + threadIdx.x / 32 * 32) / lanes; first < items;
         first += step) {
        const long long item = first + threadIdx.x % 32 / lanes;
        const int h = (int)(item % p.heads);
        const long long row = item / p.heads % p.sq, b = item / p.heads / p.sq;
        Wide sum = 0;
        if (item < items) {
            const T *out = attention_head(p.out, b, h) + row * p.out.row;
            const T *grad = attention_head(p.grad_out, b, h) + row * p.grad_out.row;
            for (int d = lane * N; d < p.head_dim; d += lanes * N) {
                const auto x = ignis_load<N>(out + d), y = ignis_load<N>(grad + d);
#pragma unroll
                for (int i = 0; i < N; i++)
                    sum += Wide(x[i]) * Wide(y[i]);
            }
        }
        for (int distance = lanes / 2; distance > 0; distance /= 2)
            sum += __shfl_xor_sync(0xffffffff, sum, distance);
        if (lane == 0 && item < items)
            p.delta[p.stat(b, h) + row] = sum;
    }
}

template <typename E> __device__ inline bool attention_aligned(const ignis__attention_rows<E> &rows)
{
    return ignis_is_aligned(rows.data, 16) && (rows.row | rows.head | rows.batch) % (16 / (int)sizeof(T)) == 0;
}

__device__ inline void attention_delta(const Attention &p)
{
    constexpr int N = 16 / sizeof(T);
    if (p.head_dim % N == 0 && attention_aligned(p.out) && attention_aligned(p.grad_out))
        attention_delta_packs<N>(p);
    else
        attention_delta_packs<1>(p);
}

__device__ inline float power_of_2(float x) { return exp2f(x); }
__device__ inline double power_of_2(double x) { return exp2(x); }

/*  The exponent of 2 of a score's weight. */
template <typename W> __device__ inline W exponent(W score, W bound) { return (score - bound) * W(EXPONENT_UNIT); }

/*  Reduces over lanes that are a multiple of from apart, within groups of to lanes. */
template <int from, int to, typename Op, typename W> __device__ inline W reduce_lanes(W x)
{
#pragma unroll
    for (int distance = from; distance < to; distance *= 2)
        x = Op::combine(x, __shfl_xor_sync(0xffffffff, x, distance));
    return x;
}

/*  Products of a head's queries and keys into scores. The cap is that of Gemma 2 (2024). quick: tanh to about
    1e-7 of 1, for types that are rounded to less. */
template <bool quick> struct attention_scores {
    typedef ignis_wide<T> Wide;
    const Bias *bias;
    long long bias_row;
    int last_query, last_key; /* nothing after them is read */
    Wide scale, cap;

    __device__ attention_scores(const Attention &p, int b, int h)
        : bias(BIASED ? attention_head(p.bias, b, h) : nullptr), bias_row(p.bias.row), last_query(p.sq - 1),
          last_key(p.sk - 1),
          scale(Wide(SOFTCAP ? p.scale / p.softcap * (quick ? 2 * LOG2 : 1) : p.scale * SCORE_UNIT)),
          cap(Wide(p.softcap * SCORE_UNIT))
    {
    }

    /*  slope: the derivative with respect to the scaled product. */
    __device__ Wide operator()(Wide product, int query, int key, Wide &slope) const
    {
        Wide x = product * scale;
        slope = 1;
        if constexpr (SOFTCAP) {
            Wide t;
            if constexpr (quick)
                t = 1 - 2 * ignis_ptx_rcp_ftz(1 + ignis_ptx_ex2_ftz(x));
            else
                t = tanh(x);
            slope = 1 - t * t;
            x = cap * t;
        }
        if constexpr (BIASED)
            x += key <= last_key ? Wide((bias + min(query, last_query) * bias_row)[key]) : 0;
        return x;
    }

    __device__ Wide operator()(Wide product, int query, int key) const
    {
        Wide slope;
        return (*this)(product, query, key, slope);
    }
};

/*  Combines the attention of a query to keys that several blocks shared. parts has, for each batch, head and
    split of the keys: a bound of the scores, the sum of the weights 2^(score - bound), and the sum of weight
    * v. grid = heads * batches, blocks of 128; at most 1024 splits. */
__device__ inline void attention_combine(const Attention &p, const Wide *parts, int splits)
{
    __shared__ Wide weights[1024];
    const int b = blockIdx.x / p.heads, h = blockIdx.x % p.heads, size = p.head_dim + 2;
    Wide top = -ignis_infinity<Wide>(), sum = 0;
    parts += (long long)blockIdx.x * splits * size;

    for (int i = threadIdx.x; i < splits; i += 128)
        top = max(top, parts[i * size]);
    top = ignis_block_max(top);
    for (int i = threadIdx.x; i < splits; i += 128) {
        weights[i] = (RANGE || BIASED) && parts[i * size + 1] == 0
                         ? 0
                         : power_of_2(exponent(parts[i * size], top)); /* 0: it saw nothing */
        sum += weights[i] * parts[i * size + 1];
    }
    sum = ignis_block_sum(sum); /* its barriers also order the weights */
    const Wide factor = p.add_sink(h, top, sum);
    if ((RANGE || BIASED) && sum == 0)
        sum = 1;
    for (int d = threadIdx.x; d < p.head_dim; d += 128) {
        Wide x = 0;
#pragma unroll 8
        for (int i = 0; i < splits; i++)
            x += weights[i] * parts[i * size + 2 + d];
        attention_head(p.out, b, h)[d] = T(x * factor / sum);
    }
}

#if IGNIS_BIAS

/*  The share of a block of ignis_sdpa_backward_bias: for keys from key on, the batches, heads and queries
    that share its tile of the bias. */
struct attention_share {
    int key, query, end_query, h, end_h, b, end_b;

    __device__ attention_share(const Attention &p, int rows, int columns)
    {
        const int across = (p.sk + columns - 1) / columns, down = p.bias.row ? (p.sq + rows - 1) / rows : 1;
        const int heads = p.bias.head ? p.heads : 1, tile = blockIdx.x / across;
        key = (int)(blockIdx.x % across) * columns;
        query = tile % down * rows;
        end_query = p.bias.row ? min(query + rows, p.sq) : p.sq;
        h = tile / down % heads;
        end_h = p.bias.head ? h + 1 : p.heads;
        b = tile / down / heads;
        end_b = p.bias.batch ? b + 1 : p.batches;
    }

    /*  Whether none of the queries of a batch, from one on, sees a key of the tile. */
    __device__ bool unseen(const Attention &p, int in_batch, int first, int rows, int columns, int keys) const
    {
        return p.visible(in_batch, min(first + rows, p.sq) - 1, keys) <= key ||
               p.first_key(in_batch, first) >= key + columns;
    }

    __device__ Bias *to(const Attention &p) const { return attention_head(p.grad_bias, b, h); }
};

#endif

#endif /* IGNIS_ATTENTION_CUH */
