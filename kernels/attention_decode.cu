// SPDX-License-Identifier: MIT
/*  attention_decode.cu - attention of one query to all keys of a cache

    Bound by memory: every element of k and v is read once and used once for each query head that shares it.
    So no tensor cores, but as many blocks as the device needs, which share the keys (Flash-Decoding, Dao et
    al. 2023): each writes what it found to scratch memory, and a second kernel combines that, in a fixed
    order. attention_decode_mma.cu is faster where it can be used. One program per type and size of heads:
    compiled with -DIGNIS_T=<ignis_dtype> -DIGNIS_HEAD_DIM=<64, 128, 256 or 512>, which serves smaller heads
    too, and the variants of attention.cuh. */
#include "ignis.cuh"
#include "attention.cuh"

#ifndef IGNIS_HEAD_DIM
#define IGNIS_HEAD_DIM 64
#endif
#ifndef IGNIS_DECODE_PACKS /* of k, and as many of v, that a thread loads at a time */
#define IGNIS_DECODE_PACKS 4
#endif

typedef ignis_wide<T> W;

constexpr int D = IGNIS_HEAD_DIM;
constexpr int WARPS = 8;
constexpr int PACK = 16 / sizeof(T);
constexpr int ROW_BYTES = D * sizeof(W);
constexpr int LANES = ROW_BYTES <= 512    ? 8
                      : ROW_BYTES <= 1024 ? 16
                                          : 32; /* that have a row: 64 bytes each, of wide numbers */
constexpr int CHUNKS = D / LANES / PACK;        /* packs that a lane has of a row; neighbours have neighbouring packs */
constexpr int ROWS = 32 / LANES;                /* of a warp at a time */
constexpr int KEYS = CHUNKS < IGNIS_DECODE_PACKS ? IGNIS_DECODE_PACKS / CHUNKS : 1; /* of some lanes at a time */
constexpr int WALK = WARPS * ROWS * KEYS;                                           /* of a block at a time */
static_assert(D % 64 == 0 && D <= 512, "sizes of heads are multiples of 64");

/*  A lane's part of a row. */
template <bool packed> __device__ inline void load_row(ignis_pack<T> (&part)[CHUNKS], const T *row, int head_dim)
{
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const int d = (threadIdx.x % LANES + LANES * c) * PACK;
        if (packed) {
            if (d < head_dim)
                part[c] = ignis_load_once(row + d);
            else
                part[c] = ignis_pack<T>{};
        } else {
#pragma unroll
            for (int i = 0; i < PACK; i++)
                part[c][i] = d + i < head_dim ? row[d + i] : T(0.0f);
        }
    }
}

/*  Results that the warps of a block exchange. */
template <int G> struct findings {
    W top[WARPS][G], sum[WARPS][G], out[WARPS][D];
};

/*  G query heads that share a key head, over a block's part of the keys. scratch: for each head and split the
    greatest score, the sum of the weights 2^(score - greatest), then the sum of weight * v. */
template <int G, bool packed>
__device__ inline void decode(const Attention &p, W *scratch, int per_split, findings<G> &warps)
{
    const int group = p.heads / p.kv_heads, passes = (group + G - 1) / G;
    const int b = blockIdx.z, kv_h = blockIdx.y / passes, first_h = kv_h * group + blockIdx.y % passes * G;
    const int heads =
        min(G, (kv_h + 1) * group - first_h); /* the last ones may be fewer; then the first is done again */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int end = p.keys(b),
              start = RANGE ? max(0, end - p.window) : 0; /* of the keys that the query sees; the query is last */
    const int from = start + blockIdx.x * per_split, to = min(end, from + per_split);
    const T *k = attention_head(p.k, b, kv_h), *v = attention_head(p.v, b, kv_h);
    const W scale = W(p.scale * LOG2);

    W q[G][CHUNKS][PACK], out[G][CHUNKS][PACK], top[G], sum[G];
#pragma unroll
    for (int g = 0; g < G; g++) {
        ignis_pack<T> part[CHUNKS];
        load_row<packed>(part, attention_head(p.q, b, first_h + (g < heads ? g : 0)), p.head_dim);
        top[g] = -ignis_infinity<W>();
        sum[g] = 0;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int i = 0; i < PACK; i++) {
                q[g][c][i] = SCORED ? W(part[c][i]) : W(part[c][i]) * scale;
                out[g][c][i] = 0;
            }
    }

#pragma unroll 1
    for (int at = from + warp * ROWS * KEYS; at < to; at += WALK) {
        ignis_pack<T> k_part[KEYS][CHUNKS], v_part[KEYS][CHUNKS];
#pragma unroll
        for (int n = 0; n < KEYS; n++) {
            const long long key = min(at + n * ROWS + lane / LANES, to - 1);
            load_row<packed>(k_part[n], k + key * p.k.row, p.head_dim);
        }
#pragma unroll
        for (int n = 0; n < KEYS; n++) {
            const long long key = min(at + n * ROWS + lane / LANES, to - 1);
            load_row<packed>(v_part[n], v + key * p.v.row, p.head_dim);
        }
#pragma unroll
        for (int g = 0; g < G; g++) {
            const attention_scores<false> scored(p, b, first_h + (g < heads ? g : 0));
            W s[KEYS], higher = top[g];
#pragma unroll
            for (int n = 0; n < KEYS; n++) {
                W part = 0;
#pragma unroll
                for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                    for (int i = 0; i < PACK; i++)
                        part += q[g][c][i] * W(k_part[n][c][i]);
                s[n] = reduce_lanes<1, LANES, ignis_sum>(part);
                if constexpr (SCORED)
                    s[n] = scored(s[n], 0, at + n * ROWS + lane / LANES);
                if (at + n * ROWS + lane / LANES >= to)
                    s[n] = -ignis_infinity<W>();
                higher = max(higher, s[n]);
            }
            const W base = higher == -ignis_infinity<W>() ? 0 : higher; /* these lanes had no key yet */
            const W factor = power_of_2(exponent(top[g], base));
            top[g] = higher;
            sum[g] *= factor;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int i = 0; i < PACK; i++)
                    out[g][c][i] *= factor;
#pragma unroll
            for (int n = 0; n < KEYS; n++) {
                const W weight = power_of_2(exponent(s[n], base));
                sum[g] += weight;
#pragma unroll
                for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                    for (int i = 0; i < PACK; i++)
                        out[g][c][i] += weight * W(v_part[n][c][i]);
            }
        }
    }

    /* The rows of a warp, then the warps. */
#pragma unroll
    for (int g = 0; g < G; g++) {
        const W higher = reduce_lanes<LANES, 32, ignis_max>(top[g]);
        const W factor = higher == -ignis_infinity<W>() ? 0 : power_of_2(exponent(top[g], higher));
        const W total = reduce_lanes<LANES, 32, ignis_sum>(sum[g] * factor);
        if (lane == 0) {
            warps.top[warp][g] = higher;
            warps.sum[warp][g] = total;
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int i = 0; i < PACK; i++) {
                const W x = reduce_lanes<LANES, 32, ignis_sum>(out[g][c][i] * factor);
                if (lane < LANES)
                    warps.out[warp][(lane + LANES * c) * PACK + i] = x;
            }
        __syncthreads();

        W block_top = warps.top[0][g], block_sum = 0;
        for (int w = 1; w < WARPS; w++)
            block_top = max(block_top, warps.top[w][g]);
        const W block_base = (RANGE || BIASED) && block_top == -ignis_infinity<W>() ? 0 : block_top;
        for (int w = 0; w < WARPS; w++)
            block_sum += warps.sum[w][g] * power_of_2(exponent(warps.top[w][g], block_base));
        const long long item = (long long)b * p.heads + first_h + g;
        W *result = scratch + (item * gridDim.x + blockIdx.x) * (p.head_dim + 2);
        for (int d = threadIdx.x; g < heads && d < p.head_dim; d += 32 * WARPS) {
            W x = 0;
            for (int w = 0; w < WARPS; w++)
                x += warps.out[w][d] * power_of_2(exponent(warps.top[w][g], block_base));
            result[2 + d] = x;
        }
        if (g < heads && threadIdx.x == 0) {
            result[0] = block_top;
            result[1] = block_sum;
        }
        __syncthreads();
    }
}

/*  grid = splits, kv_heads * ceil(heads / kv_heads / G), batches. Every split has a key, except in shorter
    sequences. */
#define DECODE(G)                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)                                                   \
        ignis_sdpa_decode_##G(Attention p, W *scratch, int per_split)                                             \
    {                                                                                                             \
        __shared__ findings<G> warps; /* declared here, so that both forms share it */                            \
        if (p.head_dim % PACK == 0 && attention_aligned(p.q) && attention_aligned(p.k) && attention_aligned(p.v)) \
            decode<G, true>(p, scratch, per_split, warps);                                                        \
        else                                                                                                      \
            decode<G, false>(p, scratch, per_split, warps);                                                       \
    }
DECODE(1)
DECODE(2)
#if IGNIS_T != 4 || IGNIS_HEAD_DIM <= 256 /* beyond, four heads in f64 are more than registers hold */
DECODE(4)
#endif

extern "C" __global__ void __launch_bounds__(128) ignis_sdpa_decode_combine(Attention p, const W *scratch, int splits)
{
    attention_combine(p, scratch, splits);
}
