// SPDX-License-Identifier: MIT
/*  attention_paged_mma.cu - attention of new tokens over a cache of pages, on tensor cores: see attention_paged.cuh

    For f16 and bf16 and groups of query heads that share a key head, up to 8 of which are the columns of two products:
        scores^T = K q^T      a warp has the 16 keys of a page
        out^T = V^T P^T       a warp has a quarter of a head's elements, over the 64 keys of its team
    Keys and values go from memory to the registers that are their operands: which element of a head is which k of the first product, and which row of
    the second one, is free, so that each lane's are next to each other.

    For sm_80 and up. One program per type and size of heads: compiled with -DIGNIS_T=<1 or 2> -DIGNIS_HEAD_DIM=<64, 128 or 256>, which serves smaller
    heads, too; and with -DIGNIS_CLUSTERS=1, for sm_90 and up. head_dim is a multiple of 8.

    With clusters, for few rows, blocks give each other what they have found without memory between: each puts together a share of the elements.
*/
#include "attention_paged.cuh"
#include "mma.cuh"
#include "hopper.cuh"

#ifndef IGNIS_CLUSTERS
#define IGNIS_CLUSTERS 0
#endif
constexpr bool CLUSTERED = IGNIS_CLUSTERS;
constexpr int D = IGNIS_HEAD_DIM, HEADS = 8, WARPS = 4, TEAM = 32 * WARPS; /* query heads of a block; a team of warps has a split at a time */
constexpr int CLUSTER = 8, TEAMS = CLUSTERED ? 2 : 1;                      /* blocks of a cluster, teams of a block; the host has the same */
constexpr int OWN = D / 32;                                                /* what a lane has: chunks of 8 elements of a key, elements of a value */
constexpr int BLOCKS = (D == 64 ? 5 : D == 128 ? 3 : 2) / TEAMS;           /* of a multiprocessor: the kernel behind this one begins beside it */
static_assert(SPLIT == WARPS * PAGE && PAGE == 16, "a warp has a page");

/*  What a lane has of a value. */
struct alignas(2 * OWN) value_part {
    uint32_t words[OWN / 2];
};
typedef ignis_word_of<sizeof(value_part)>::type value_word;

/*  What the warps of a team tell each other of the keys of a tile. */
struct team_memory {
    float tops[WARPS][HEADS], sums[WARPS][HEADS];
    T weights[HEADS][SPLIT + 8]; /* so lanes read without conflicts */
};

/*  What the blocks of a cluster have found of a block's share of the elements. */
struct arrivals {
    float2 tops[SPLITS][HEADS]; /* the greatest score, and the sum */
    float2 found[SPLITS][HEADS * D / CLUSTER / 2];
};

__device__ inline void send(float2 *to, int block, float x, float y)
{
    ignis_ptx_st_cluster(ignis_ptx_mapa((uint32_t)__cvta_generic_to_shared(to), block), make_float2(x, y));
}

/*  grid = blocks that share out the splits, with clusters CLUSTER; kv_heads * ceil(heads / kv_heads / HEADS); rows. Blocks of TEAMS * TEAM threads, with
    shared memory for arrivals in clusters. */
extern "C" __global__ void
#if IGNIS_CLUSTERS
    __cluster_dims__(CLUSTER, 1, 1)
#endif
        __launch_bounds__(TEAMS *TEAM, BLOCKS) ignis_attention_paged_mma(const __grid_constant__ paged_params p)
{
    __shared__ team_memory of_teams[TEAMS];
    extern __shared__ __align__(16) char memory[]; /* CLUSTERED: arrivals */
    arrivals &arrived = *(arrivals *)memory;
    const generate_row &row = p.rows[blockIdx.z];
    const paged_heads heads(p, HEADS);
    const paged_splits splits(row);
    const int team = threadIdx.x / TEAM, warp = threadIdx.x % TEAM / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int first = blockIdx.x * TEAMS + team, stride = gridDim.x * TEAMS, end = splits.end;
    const int share = (heads.count * p.head_dim + 2 * CLUSTER - 1) / (2 * CLUSTER); /* pairs of elements that a block of a cluster puts together */
    const int own_d = warp * (D / WARPS) + g * OWN;                                 /* of a value */
    const float scale = (float)p.scale * (float)LOG2_E;
    int from = first * splits.keys, to = min(end, from + splits.keys);
    team_memory &m = of_teams[team];
    uint4 keys[2][OWN];
    value_part values[WARPS][4];
    int pages[WARPS], own_page; /* of a tile */

    const auto find = [&](int at) {
#pragma unroll
        for (int i = 0; i < WARPS; i++)
            pages[i] = row.pages[min(at + PAGE * i, to - 1) / PAGE];
        own_page = pages[0];
#pragma unroll
        for (int i = 1; i < WARPS; i++)
            own_page = warp == i ? pages[i] : own_page;
    };
    const auto place = [&](int page, int r) { return (((long long)page * p.kv_heads + heads.kv) * PAGE + r) * p.head_dim; };
    const auto load_key = [&](uint4 (&to)[OWN], const T *from, bool exists) {
#pragma unroll
        for (int c = 0; c < OWN; c++)
            to[c] = exists && (t + 4 * c) * 8 < p.head_dim ? __ldcg((const uint4 *)from + t + 4 * c) : make_uint4(0, 0, 0, 0);
    };
    const auto load_value = [&](const T *from) {
        return own_d < p.head_dim ? ignis_pack_of<value_part>(__ldcg((const value_word *)(from + own_d))) : value_part{};
    };
    const auto row_of = [&](int j) { return 2 * t + j % 2 + j / 2 * 8; }; /* of a page's values */
    /* A tile that has keys from one on, with zeros behind the last one. */
    const auto fetch = [&](int at) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            load_key(keys[i], p.k + place(own_page, g + 8 * i), at + PAGE * warp + g + 8 * i < to);
#pragma unroll
        for (int i = 0; i < WARPS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                values[i][j] = at + PAGE * i + row_of(j) < to ? load_value(p.v + place(pages[i], row_of(j))) : value_part{};
    };
    /* What fetch() has of the row itself may be from before the kernels ahead wrote it. */
    const auto fetch_last = [&](int at) {
        const int last = end - 1 - at, page = last / PAGE, r = last % PAGE;
        if (last >= SPLIT)
            return;
        const long long there = place(row.pages[(end - 1) / PAGE], r);
        const value_part value = load_value(p.v + there);
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (warp == page && g + 8 * i == r)
                load_key(keys[i], p.k + there, true);
#pragma unroll
        for (int i = 0; i < WARPS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (i == page && row_of(j) == r)
                    values[i][j] = value;
    };
    const auto sync_team = [&] {
        if (CLUSTERED)
            ignis_ptx_bar_sync(1 + team, TEAM);
        else
            __syncthreads();
    };
    if (CLUSTERED)
        ignis_ptx_cluster_arrive(); /* who has begun: nothing is sent to others before */
    ignis_grid_dependents_launch();
    if (from < end) {
        find(from);
        if (p.settled)
            fetch(from);
    }
    ignis_grid_dependency_wait();
    if (!CLUSTERED && end <= 0 && blockIdx.x == 0) /* a row that is not there gives zeros */
        combine_by_the_last(p, heads, 0);
    if (!CLUSTERED && from >= end)
        return;
    uint4 q[OWN]; /* of head g, as keys */
    if (from < end) {
        const T *of = p.q + blockIdx.z * p.q_row + (heads.first + min(g, heads.count - 1)) * p.head_dim;
        if (p.settled)
            fetch_last(from);
        else
            fetch(from);
        load_key(q, of, true);
    }
    if (CLUSTERED)
        ignis_ptx_cluster_wait();

    for (int split = first; split < splits.count; split += stride) {
        float out[D / 64][4], top[2], sum[2]; /* of heads 2 t and 2 t + 1 */
#pragma unroll
        for (int i = 0; i < 2; i++) {
            top[i] = -ignis_infinity<float>();
            sum[i] = 0;
        }
#pragma unroll
        for (int j = 0; j < D / 64; j++)
            out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0;
        for (int at = from; at < to; at += SPLIT) {
            float s[4] = {0, 0, 0, 0}; /* keys g and g + 8 */
            if (at > from) {
                find(at);
                fetch(at);
            }
#pragma unroll
            for (int c = 0; c < OWN; c++) {
                const uint4 &x = keys[0][c], &y = keys[1][c];
                const uint32_t low[4] = {x.x, y.x, x.y, y.y}, high[4] = {x.z, y.z, x.w, y.w};
                ignis_mma<T>(s, low, q[c].x, q[c].y);
                ignis_mma<T>(s, high, q[c].z, q[c].w);
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[i] = at + PAGE * warp + g + i / 2 * 8 < to ? s[i] * scale : -ignis_infinity<float>();
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float own = reduce_lanes<4, 32, ignis_max>(max(s[i], s[2 + i]));
                if (g == 0)
                    m.tops[warp][2 * t + i] = own;
            }
            sync_team();
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float higher = top[i];
#pragma unroll
                for (int w = 0; w < WARPS; w++)
                    higher = max(higher, m.tops[w][2 * t + i]);
                const float factor = power_of_2(top[i] - higher); /* each tile has a key, so that `higher` is a number */
                top[i] = higher;
                sum[i] *= factor;
#pragma unroll
                for (int j = 0; j < D / 64; j++) {
                    out[j][i] *= factor;
                    out[j][2 + i] *= factor;
                }
                s[i] = power_of_2(s[i] - higher);
                s[2 + i] = power_of_2(s[2 + i] - higher);
                m.weights[2 * t + i][PAGE * warp + g] = T(s[i]);
                m.weights[2 * t + i][PAGE * warp + g + 8] = T(s[2 + i]);
                const float own = reduce_lanes<4, 32, ignis_sum>(s[i] + s[2 + i]);
                if (g == 0)
                    m.sums[warp][2 * t + i] = own;
            }
            sync_team();
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
                    for (int i = 0; i < 2; i++) { /* of keys 2 t and 2 t + 1, then eight on */
                        const uint32_t x = values[page][2 * i].words[j], y = values[page][2 * i + 1].words[j];
                        a[2 * i] = __byte_perm(x, y, 0x5410);
                        a[2 * i + 1] = __byte_perm(x, y, 0x7632);
                    }
                    ignis_mma<T>(out[j], a, weights[0], weights[4]);
                }
            }
        }

        if (split + stride < splits.count) { /* the next ones are on their way meanwhile */
            from = (split + stride) * splits.keys;
            to = min(end, from + splits.keys);
            find(from);
            fetch(from);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int h = 2 * t + i;
            if (h >= heads.count)
                continue;
            float *const found = heads.found(p, h, split);
            if (CLUSTERED && warp == 0)
                send(&arrived.tops[split][h], g, top[i], sum[i]);
            else if (warp == 0 && g == 0 && splits.count > 1)
                *(float2 *)found = make_float2(top[i], sum[i]);
#pragma unroll
            for (int j = 0; j < D / 64 && own_d < p.head_dim; j++) {
                const int d = own_d + 2 * j, pair = (h * p.head_dim + d) / 2;
                const float x = out[j][i], y = out[j][2 + i];
                if (CLUSTERED)
                    send(&arrived.found[split][pair % share], pair / share, x, y);
                else if (splits.count > 1)
                    *(float2 *)(found + 2 + d) = make_float2(x, y);
                else /* nobody else has a part of it */
                    *(uint32_t *)(heads.out(p) + 2 * pair) = ignis_round_two<T>(x / sum[i], y / sum[i]);
            }
        }
    }

    if (CLUSTERED) {
        ignis_ptx_cluster_arrive();
        ignis_ptx_cluster_wait();
        for (int i = threadIdx.x; i < share; i += TEAMS * TEAM) {
            const int at = 2 * (blockIdx.x * share + i), h = at / p.head_dim;
            if (h >= heads.count)
                break;
            const float2 x = combine_two(splits.count, [&](int split, float2 &tops, float2 &two) {
                tops = arrived.tops[split][h];
                two = arrived.found[split][i];
            });
            *(uint32_t *)(heads.out(p) + at) = ignis_round_two<T>(x.x, x.y);
        }
    } else if (splits.count > 1) {
        combine_by_the_last(p, heads, splits.count);
    }
}
