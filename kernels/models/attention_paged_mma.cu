// SPDX-License-Identifier: MIT
/*  models/attention_paged_mma.cu - attention of few rows over a paged KV cache, on tensor cores

    For f16 and bf16, sm_80 and up; see attention_paged.cuh and attention_paged_team.cuh. One program per type and
    size of heads: compiled with -DIGNIS_T=<1 or 2> -DIGNIS_HEAD_DIM=<64, 128 or 256>, which serves smaller heads,
    too; and with -DIGNIS_CLUSTERS=1, for sm_90 and up; with -DIGNIS_CACHE_TYPE=<1 to 3>, too. head_dim is a multiple of
    8.

    With clusters, for few rows, blocks exchange the results of splits through shared memory. Each block combines its
    slice of the elements.
*/
#include "attention_paged_team.cuh"

#ifndef IGNIS_CLUSTERS
#define IGNIS_CLUSTERS 0
#endif
constexpr bool CLUSTERED = IGNIS_CLUSTERS;
/*  blocks of a cluster; teams of a block; the host has the same */
constexpr int CLUSTER = 8, TEAMS = CLUSTERED ? 2 : 1;
/*  blocks of an SM: the next kernel begins beside this one */
constexpr int BLOCKS = (D == 64 ? 5 : D == 128 ? 3 : 2) / TEAMS;

/*  The results of a cluster's blocks for this block's slice of the elements. */
struct arrivals {
    float2 tops[SPLITS][HEADS]; /* the greatest score, and the sum */
    float2 found[SPLITS][HEADS * D / CLUSTER / 2];
};

__device__ inline void send(float2 *to, int block, float x, float y)
{
    ignis_ptx_st_cluster(ignis_ptx_mapa((uint32_t)__cvta_generic_to_shared(to), block), make_float2(x, y));
}

/*  grid = blocks that divide the splits, or CLUSTER; kv_heads * ceil(heads / kv_heads / HEADS); rows. Blocks of TEAMS
    * TEAM threads; clusters have shared memory for arrivals. */
extern "C" __global__ void
#if IGNIS_CLUSTERS
__cluster_dims__(CLUSTER, 1, 1)
#endif
    __launch_bounds__(TEAMS *TEAM, BLOCKS) ignis_attention_paged_mma(const __grid_constant__ ignis__paged p)
{
    __shared__ team_memory of_teams[TEAMS];
    extern __shared__ __align__(16) char memory[]; /* arrivals, with clusters */
    arrivals &arrived = *(arrivals *)memory;
    const ignis__generate_row &row = p.rows[blockIdx.z];
    const paged_heads heads(p, HEADS, blockIdx.y);
    const paged_splits splits(row.position + 1, p.window);
    const int32_t *const pages = row.pages + p.table;
    paged_team<!CLUSTERED> team({p.k, p.v, p.kv_heads, p.head_dim}, pages, p.scale, of_teams[threadIdx.x / TEAM]);
    const int first = blockIdx.x * TEAMS + team.number, stride = gridDim.x * TEAMS, end = splits.end;
    /* pairs of elements that a block of a cluster combines */
    const int share = (heads.count * p.head_dim + 2 * CLUSTER - 1) / (2 * CLUSTER);
    team.kv = heads.kv;
    team.softcap = p.softcap;
    team.begin = splits.begin;
    const auto begin = [&](int split) {
        team.from = splits.from(split);
        team.to = min(end, team.from + splits.keys);
    };
    /* Loads the row's own key and value again: the first load may have come before the earlier kernels wrote them. */
    const auto fetch_last = [&] {
        const int last = end - 1, r = last % PAGE;
        if (last - team.from >= SPLIT)
            return;
        const int page = pages[last / PAGE];
        team.replace(
            team.from, last, [&](int c) { return team.load_key(page, r, c, true); }, team.load_value_of(page, r, true));
    };
    begin(first);
    if (CLUSTERED)
        ignis_ptx_cluster_arrive(); /* nothing is sent to a block that has not begun */
    ignis_grid_dependents_launch();
    if (team.from < end) {
        team.find(team.from);
        if (p.settled)
            team.fetch(team.from);
    }
    ignis_grid_dependency_wait();
    if (!CLUSTERED && end <= 0 && blockIdx.x == 0) /* a row that does not exist gets zeros */
        combine_by_the_last(p, heads, 0);
    if (!CLUSTERED && team.from >= end)
        return;
    uint4 q[OWN]; /* of head g, in the layout of keys */
    if (team.from < end) {
        const T *of = p.q + blockIdx.z * p.q_row + (heads.first + min(team.g, heads.count - 1)) * p.head_dim;
        if (p.settled)
            fetch_last();
        else
            team.fetch(team.from);
#pragma unroll
        for (int c = 0; c < OWN; c++)
            q[c] = team.load_chunk(of, c, true);
    }
    if (CLUSTERED)
        ignis_ptx_cluster_wait();

    for (int split = first; split < splits.count; split += stride) {
        team.clear();
        for (int at = team.from; at < team.to; at += SPLIT) {
            if (at > team.from) {
                team.find(at);
                team.fetch(at);
            }
            team.add(at, [&](int c) { return q[c]; });
        }
        if (split + stride < splits.count) { /* the next ones are in flight meanwhile */
            begin(split + stride);
            team.find(team.from);
            team.fetch(team.from);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int h = 2 * team.t + i;
            if (h >= heads.count)
                continue;
            float *const found = heads.found(p, h, split);
            const float sum = with_sink(p, heads.first + h, team.sum[i], team.top[i]);
            if (CLUSTERED && team.warp == 0)
                send(&arrived.tops[split][h], team.g, team.top[i], team.sum[i]);
            else if (team.warp == 0 && team.g == 0 && splits.count > 1)
                *(float2 *)found = make_float2(team.top[i], team.sum[i]);
#pragma unroll
            for (int j = 0; j < D / 64 && team.own_d < p.head_dim; j++) {
                const int d = team.own_d + 2 * j, pair = (h * p.head_dim + d) / 2;
                const float x = team.out[j][i], y = team.out[j][2 + i];
                if (CLUSTERED)
                    send(&arrived.found[split][pair % share], pair / share, x, y);
                else if (splits.count > 1)
                    *(float2 *)(found + 2 + d) = make_float2(x, y);
                else /* no other split contributes */
                    *(uint32_t *)(heads.out(p) + 2 * pair) = ignis_round_two<T>(x / sum, y / sum);
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
            const float2 x = combine_two(p, heads.first + h, splits.count, [&](int split, float2 &tops, float2 &two) {
                tops = arrived.tops[split][h];
                two = arrived.found[split][i];
            });
            *(uint32_t *)(heads.out(p) + at) = ignis_round_two<T>(x.x, x.y);
        }
    } else if (splits.count > 1) {
        combine_by_the_last(p, heads, splits.count);
    }
}
