// SPDX-License-Identifier: MIT
/*  models/attention_paged_team.cuh - a team of warps that computes a split of a row, on tensor cores

    For f16 and bf16, and for groups of query heads that share a key head. Up to 8 of them are the columns of two
    products:
        scores^T = K q^T      a warp has the 16 keys of a page
        out^T = V^T P^T       a warp has a quarter of a head's elements, over the 64 keys of its team
    Keys and values go from memory to the registers that are their operands. Any element of a head may be any k of the
    first product, and any row of the second, so the order is chosen such that a lane's elements are adjacent.
*/
#ifndef IGNIS_ATTENTION_PAGED_TEAM_CUH
#define IGNIS_ATTENTION_PAGED_TEAM_CUH

#include "attention_paged.cuh"
#include "mma.cuh"
#include "hopper.cuh"
#include "cache_pairs.cuh"

/*  HEADS: query heads of a block; a team has one split at a time */
constexpr int D = IGNIS_HEAD_DIM, HEADS = 8, WARPS = 4, TEAM = 32 * WARPS;
/*  of a lane: chunks of 8 elements of a key, elements of a value */
constexpr int OWN = D / 32;
static_assert(SPLIT == WARPS * PAGE && PAGE == 16, "a warp has a page");

/*  A lane's elements of a value. */
struct alignas(2 * OWN) value_part {
    uint32_t words[OWN / 2];
};
typedef ignis_word_of<sizeof(value_part)>::type value_word;

/*  The scores' maxima and sums, and the weights, which the warps of a team exchange for a tile. */
struct team_memory {
    float tops[WARPS][HEADS], sums[WARPS][HEADS];
    T weights[HEADS][SPLIT + 8]; /* padded, so that lanes read without conflicts */
};

/*  The keys and values of a layer: [pages, kv_heads, PAGE, head_dim], or cells. */
struct paged_source {
    const T *k, *v;
    int kv_heads, head_dim;
};

/*  A team. All of its threads call all functions. only: the block has no other team. */
template <bool only> struct paged_team {
    paged_source source;
    const int32_t *const page_of; /* pages of the row */
    team_memory &m;
    const float scale;
    double softcap;                      /* with WINDOW: of the scores, or 0 */
    int begin;                           /* with WINDOW: the first key that the row sees */
    const int number, warp, g, t, own_d; /* own_d: the first element of a value that this lane has */
    int kv, from, to;                    /* kv: the key head; from, to: keys of the split */
    uint4 keys[2][OWN];                  /* keys, values, pages: of the tile that was fetched */
    value_part values[WARPS][4];
    int pages[WARPS], own_page;
    float out[D / 64][4], top[2], sum[2]; /* of heads 2 t and 2 t + 1 */

    __device__ paged_team(const paged_source &source, const int32_t *page_of, double scale, team_memory &m)
        : source(source), page_of(page_of), m(m), scale((float)scale * (float)LOG2_E), softcap(0), begin(0),
          number(threadIdx.x / TEAM), warp(threadIdx.x % TEAM / 32), g(threadIdx.x % 32 / 4), t(threadIdx.x % 4),
          own_d(warp * (D / WARPS) + g * OWN)
    {
    }
    __device__ void sync() const
    {
        if (only)
            __syncthreads();
        else
            ignis_ptx_bar_sync(2 + number, TEAM);
    }
    __device__ void find(int at)
    {
#pragma unroll
        for (int i = 0; i < WARPS; i++)
            pages[i] = page_of[min(at + PAGE * i, to - 1) / PAGE];
        own_page = page_of[min(at + PAGE * warp, to - 1) / PAGE];
    }
    __device__ long long place(int page, int r) const
    {
        return (((long long)page * source.kv_heads + kv) * PAGE + r) * source.head_dim;
    }
    /*  Loads this lane's chunk c of a key; zeros if the key does not exist. */
    __device__ uint4 load_chunk(const T *key, int c, bool exists) const
    {
        return exists && (t + 4 * c) * 8 < source.head_dim ? __ldcg((const uint4 *)key + t + 4 * c)
                                                           : make_uint4(0, 0, 0, 0);
    }
    __device__ value_part load_value(const T *from) const
    {
        return own_d < source.head_dim ? ignis_pack_of<value_part>(__ldcg((const value_word *)(from + own_d)))
                                       : value_part{};
    }
    __device__ const uint8_t *cell(const T *from, int page) const
    {
        return (const uint8_t *)from + ((long long)page * source.kv_heads + kv) * cache_cell(TYPE, source.head_dim);
    }
    /*  Loads this lane's chunk c of key r of a page, and its elements of a value; zeros if it does not exist. */
    __device__ uint4 load_key(int page, int r, int c, bool exists) const
    {
        const int d = (t + 4 * c) * 8, head_dim = source.head_dim;
        if constexpr (TYPE == IGNIS__CACHE_NUMBERS) {
            return load_chunk(source.k + place(page, r), c, exists);
        } else {
            uint2 words = {0, 0};
            if (!exists || d >= head_dim)
                return make_uint4(0, 0, 0, 0);
            const uint8_t *const own = cell(source.k, page), *const from = own + r * IGNIS__CACHE_ROW(TYPE, head_dim) +
                                                                           d / cache_word(TYPE) * 4;
            if constexpr (TYPE == IGNIS__CACHE_Q4_0)
                words.x = __ldcg((const uint32_t *)from);
            else
                words = __ldcg((const uint2 *)from);
            return cache_eight<T, TYPE>(words, cache_scale_two<T, TYPE>(own, head_dim, r, d));
        }
    }
    __device__ value_part load_value_of(int page, int r, bool exists) const
    {
        if constexpr (TYPE == IGNIS__CACHE_NUMBERS) {
            return exists ? load_value(source.v + place(page, r)) : value_part{};
        } else {
            constexpr int per_word = cache_word(TYPE), words = (OWN + per_word - 1) / per_word;
            const int head_dim = source.head_dim;
            value_part x = {};
            if (!exists || own_d >= head_dim)
                return x;
            const uint8_t *const own = cell(source.v, page);
            const uint32_t *const from =
                (const uint32_t *)(own + r * IGNIS__CACHE_ROW(TYPE, head_dim)) + own_d / per_word;
            const uint32_t scales = cache_scale_two<T, TYPE>(own, head_dim, r, own_d);
#pragma unroll
            for (int i = 0; i < OWN; i += 2)
                x.words[i / 2] = cache_pair<T, TYPE>(__ldcg(from + (words > 1 ? i / per_word : 0)),
                                                     (own_d + i) % per_word / 2, scales);
            return x;
        }
    }
    static __device__ int row_of(int t, int j) { return 2 * t + j % 2 + j / 2 * 8; } /* of a page's values */

    /*  Clears what was fetched, so that its registers are free until the next fetch. */
    __device__ void forget()
    {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int c = 0; c < OWN; c++)
                keys[i][c] = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < WARPS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                values[i][j] = value_part{};
    }
    /*  Loads a tile, with keys from `at` on; zeros after the last key. */
    __device__ void fetch(int at)
    {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int c = 0; c < OWN; c++)
                keys[i][c] = load_key(own_page, g + 8 * i, c, at + PAGE * warp + g + 8 * i < to);
#pragma unroll
        for (int i = 0; i < WARPS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                values[i][j] = load_value_of(pages[i], row_of(t, j), at + PAGE * i + row_of(t, j) < to);
    }
    /*  Replaces key `last` of fetch(at), which may have been loaded before it was written. key(c): this lane's chunk
        c of it. */
    template <typename Key> __device__ void replace(int at, int last, Key key, const value_part &value)
    {
        const int page = (last - at) / PAGE, r = (last - at) % PAGE;
        if (warp == page && g == r % 8)
#pragma unroll
            for (int c = 0; c < OWN; c++) {
                const uint4 own = key(c);
                keys[0][c] = r < 8 ? own : keys[0][c];
                keys[1][c] = r < 8 ? keys[1][c] : own;
            }
#pragma unroll
        for (int i = 0; i < WARPS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (i == page && row_of(t, j) == r)
                    values[i][j] = value;
    }
    /*  Starts a split. */
    __device__ void clear()
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            top[i] = -ignis_infinity<float>();
            sum[i] = 0;
        }
#pragma unroll
        for (int j = 0; j < D / 64; j++)
            out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0;
    }
    /*  Adds the fetched tile to top, sum and out. q(c): this lane's chunk c of head g, in the layout of keys. */
    template <typename Q> __device__ void add(int at, Q q)
    {
        float s[4] = {0, 0, 0, 0}; /* keys g and g + 8 */
        const float unit = WINDOW ? 1.0f : scale;
#pragma unroll
        for (int c = 0; c < OWN; c++) {
            const uint4 &x = keys[0][c], &y = keys[1][c];
            const uint32_t low[4] = {x.x, y.x, x.y, y.y}, high[4] = {x.z, y.z, x.w, y.w};
            const uint4 of_q = q(c);
            ignis_mma<T>(s, low, of_q.x, of_q.y);
            ignis_mma<T>(s, high, of_q.z, of_q.w);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int key = at + PAGE * warp + g + i / 2 * 8;
            if (WINDOW)
                s[i] = with_softcap(s[i] * scale, softcap);
            s[i] = key < to && (!WINDOW || key >= begin) ? s[i] : -ignis_infinity<float>();
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float own = reduce_lanes<4, 32, ignis_max>(max(s[i], s[2 + i]));
            if (g == 0)
                m.tops[warp][2 * t + i] = own;
        }
        sync();
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float most =
                max(max(m.tops[0][2 * t + i], m.tops[1][2 * t + i]), max(m.tops[2][2 * t + i], m.tops[3][2 * t + i]));
            const float higher = max(top[i], most * unit); /* each tile has a key, so that `higher` is finite */
            const float factor = ignis_ptx_ex2_ftz(top[i] - higher);
            top[i] = higher;
            /* not fused with the addition below: all kernels have the same bits */
            sum[i] = __fmul_rn(sum[i], factor);
#pragma unroll
            for (int j = 0; j < D / 64; j++) {
                out[j][i] *= factor;
                out[j][2 + i] *= factor;
            }
            s[i] = ignis_ptx_ex2_ftz(fmaf(s[i], unit, -higher));
            s[2 + i] = ignis_ptx_ex2_ftz(fmaf(s[2 + i], unit, -higher));
            m.weights[2 * t + i][PAGE * warp + g] = T(s[i]);
            m.weights[2 * t + i][PAGE * warp + g + 8] = T(s[2 + i]);
            const float own = reduce_lanes<4, 32, ignis_sum>(s[i] + s[2 + i]);
            if (g == 0)
                m.sums[warp][2 * t + i] = own;
        }
        sync();
#pragma unroll
        for (int i = 0; i < 2; i++)
            sum[i] += (m.sums[0][2 * t + i] + m.sums[1][2 * t + i]) + (m.sums[2][2 * t + i] + m.sums[3][2 * t + i]);
#pragma unroll
        for (int page = 0; page < WARPS; page++) {
            const uint32_t *weights = (const uint32_t *)&m.weights[g][PAGE * page + 2 * t];
#pragma unroll
            for (int j = 0; j < D / 64; j++) {
                uint32_t a[4];
#pragma unroll
                for (int i = 0; i < 2; i++) { /* of keys 2 t and 2 t + 1, then of the keys eight later */
                    const uint32_t x = values[page][2 * i].words[j], y = values[page][2 * i + 1].words[j];
                    a[2 * i] = __byte_perm(x, y, 0x5410);
                    a[2 * i + 1] = __byte_perm(x, y, 0x7632);
                }
                ignis_mma<T>(out[j], a, weights[0], weights[4]);
            }
        }
    }
};

#endif /* IGNIS_ATTENTION_PAGED_TEAM_CUH */
