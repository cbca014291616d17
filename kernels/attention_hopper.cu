// SPDX-License-Identifier: MIT
/*  attention_hopper.cu - scaled dot-product attention forward for sm_90a: products of warpgroups, tiles by
    TMA

    After FlashAttention-3 (Shah et al. 2024). One program per type, size of heads, mask, and shape of items:
    compiled with -DIGNIS_T=<IGNIS_F16 or IGNIS_BF16> -DIGNIS_HEAD_DIM=<a multiple of 8 from 64 to 256>
    -DIGNIS_CAUSAL=<0 or 1> -DIGNIS_FORWARD_GROUPS=<groups of four warps> -DIGNIS_FORWARD_KEYS=<of a tile>,
    and the variants of attention.cuh except for the bias. Rows are aligned to 16 bytes.

    A block stays for many items; an item is 64 queries for each group of four warps of a team. A block has
    one team, or two, each with items and shared memory of its own. One more group, the producer, has one
    thread for each team that works: it copies q, and before the groups tiles of k and v, from the last key
    that the queries see down to the first. A group begins the scores of the next keys, then the product of
    the last probabilities with v, and computes probabilities while the tensor cores do the latter. A group
    skips keys that its own queries do not see, and releases their tiles.

    Items are handed out by a counter, as they differ in length, and SMs in how long they wait for memory: the
    longest of some heads first, as many heads as the L2 cache holds. Where there are fewer items than SMs,
    each is split by its keys, and ignis_sdpa_combine adds the parts up, in their order. Equal inputs give
    equal bits in any case. */
#include "ignis.cuh"
#include "hopper.cuh"
#include "attention.cuh"

#ifndef IGNIS_HEAD_DIM
#define IGNIS_HEAD_DIM 64
#endif
#ifndef IGNIS_CAUSAL
#define IGNIS_CAUSAL 1
#endif

/*  Parameters that a benchmark may vary; the host chooses groups and keys, and has teams and stages in its
    table. 64 keys are for short sequences: less is computed in vain. With heads of 64, registers are left for
    two teams, which are at different steps of different items. */
#ifndef IGNIS_FORWARD_GROUPS /* of a team */
#define IGNIS_FORWARD_GROUPS (IGNIS_HEAD_DIM <= 128 && !IGNIS_RANGE ? 3 : 2)
#endif
#ifndef IGNIS_FORWARD_KEYS /* of a tile */
#define IGNIS_FORWARD_KEYS                            \
    (IGNIS_HEAD_DIM <= 64    ? IGNIS_RANGE ? 64 : 128 \
     : IGNIS_HEAD_DIM <= 128 ? IGNIS_RANGE ? 128 : 80 \
     : IGNIS_HEAD_DIM <= 192 ? 96                     \
                             : 80)
#endif
#ifndef IGNIS_FORWARD_TEAMS /* of a block */
#define IGNIS_FORWARD_TEAMS (IGNIS_HEAD_DIM <= 64 && IGNIS_FORWARD_KEYS == 64 ? 2 : 1)
#endif
#ifndef IGNIS_FORWARD_STAGES /* tiles of k, and of v, that are there or on their way */
#define IGNIS_FORWARD_STAGES (IGNIS_HEAD_DIM <= 64 || IGNIS_FORWARD_KEYS == 64 ? 4 : 2)
#endif
#ifndef IGNIS_FORWARD_TURNS /* whether groups take turns: one computes softmax while another one multiplies */
#define IGNIS_FORWARD_TURNS (IGNIS_FORWARD_GROUPS == 3)
#endif

constexpr int D = IGNIS_HEAD_DIM, COLUMNS = (D + 15) / 16 * 16,
              SLABS = (D + 63) / 64; /* of 64 columns, in shared memory */
constexpr int TEAMS = IGNIS_FORWARD_TEAMS, GROUPS = IGNIS_FORWARD_GROUPS, ALL_GROUPS = TEAMS * GROUPS,
              THREADS = 128 * (ALL_GROUPS + 1);
constexpr int QUERIES = 64 * GROUPS, KEYS = IGNIS_FORWARD_KEYS, STAGES = IGNIS_FORWARD_STAGES;
/*  Registers of each thread. A launch has 65536 / THREADS for each, in steps of 8. More than that in all
    would wait for ever. */
constexpr int PRODUCER_REGISTERS = ALL_GROUPS > 2     ? 32
                                   : D > 192 && RANGE ? 24
                                                      : 40,
              GROUP_REGISTERS = ALL_GROUPS == 4    ? 112
                                : ALL_GROUPS == 3  ? 160
                                : D > 192 && RANGE ? 240
                                                   : 232;
static_assert(PRODUCER_REGISTERS + ALL_GROUPS * GROUP_REGISTERS <= (ALL_GROUPS + 1) * (65536 / THREADS / 8 * 8),
              "a block has so many registers");
constexpr bool CAUSAL = IGNIS_CAUSAL, TURNS = IGNIS_FORWARD_TURNS;
static_assert(!TURNS || TEAMS == 1, "barriers of turns are for one team");
static_assert(!BIASED, "a bias is for attention_mma.cu");
constexpr bool OUT_IN_Q = D > 128;      /* shared memory has no room for out beside q */
constexpr int ITEMS = OUT_IN_Q ? 1 : 2; /* whose q is loaded or on its way */
static_assert(D % 8 == 0 && D >= 64 && D <= 256, "sizes of heads are multiples of 8 from 64 to 256");

constexpr float LOG2_E = 1.44269504088896340736f;
constexpr float LN_2 = 0.69314718055994530942f;
constexpr float SLACK = 8;

/* >>items ------------------------------------------------------------------------------------------------------- */

struct alignas(16) work_item {
    int query, h, b;      /* the first query; b is -1 after the last item */
    int split, from, end; /* tiles of keys */
    int keys;             /* of the sequence */
};

/*  The first key that a query sees, counted from p.first_key. */
__device__ inline int visible(const Attention &p, int b, int query, int keys)
{
    if constexpr (DOCUMENTS)
        return p.visible(b, query, keys);
    if constexpr (RANGE)
        return max(0, min(keys, query + p.sk - p.sq + (CAUSAL ? 1 : p.window)));
    return CAUSAL ? max(0, min(p.sk, query + p.sk - p.sq + 1)) : p.sk;
}

/*  Tiles of keys that the first of count queries from one on, at least, do not all leave unseen: from the
    first to before visible_tiles. */
__device__ inline int visible_tiles(const Attention &p, int b, int query, int count, int keys)
{
    return query < p.sq && query + count > 0 ? (visible(p, b, min(query + count, p.sq) - 1, keys) + KEYS - 1) / KEYS
                                             : 0;
}

__device__ inline int first_tile(const Attention &p, int b, int query) { return p.first_key(b, query) / KEYS; }

__device__ inline int item_count(const Attention &p, const ignis__forward_plan &plan)
{
    return (p.sq + QUERIES - 1) / QUERIES * p.heads * p.batches * plan.splits;
}

/*  The first query of the m-th items, the longest ones if they differ. Causal items end with the group of the
    last query. So if the groups do not fill the last item, the shortest one has some before query 0, full
    ones: a tile may be stored beyond the end of its tensor, but not before its start, or the hardware reports
    an illegal instruction. */
__device__ inline int item_query(const Attention &p, int m)
{
    return CAUSAL ? (p.sq + 63) / 64 * 64 - (m + 1) * QUERIES : m * QUERIES;
}

__device__ inline work_item find_item(const Attention &p, const ignis__forward_plan &plan, int index)
{
    const int rows = (p.sq + QUERIES - 1) / QUERIES, pairs = p.heads * p.batches;
    const int section = index / plan.splits / (plan.section * rows),
              place = index / plan.splits % (plan.section * rows);
    const int width = min(plan.section, pairs - section * plan.section), m = place / width,
              pair = section * plan.section + place % width;
    work_item item;
    item.query = item_query(p, m);
    item.h = pair % p.heads;
    item.b = pair / p.heads;
    item.split = index % plan.splits;
    item.keys = p.keys(item.b);
    item.from = first_tile(p, item.b, item.query) + item.split * plan.tiles;
    item.end = min(visible_tiles(p, item.b, item.query, QUERIES, item.keys), item.from + plan.tiles);
    return item;
}

/* >>memory ------------------------------------------------------------------------------------------------------ */

constexpr uint32_t Q_BYTES = 64 * SLABS * 128, TILE_BYTES = KEYS * SLABS * 128; /* of a group; of keys */
constexpr uint32_t Q_AT = 0, OUT_AT = OUT_IN_Q ? Q_AT : ITEMS * GROUPS * Q_BYTES, K_AT = OUT_AT + GROUPS * Q_BYTES;
constexpr uint32_t V_AT = K_AT + STAGES * TILE_BYTES, BARRIERS_AT = V_AT + STAGES * TILE_BYTES;

enum {
    FULL_Q, /* and the item */
    EMPTY_Q = FULL_Q + ITEMS,
    FULL_K = EMPTY_Q + ITEMS,
    EMPTY_K = FULL_K + STAGES,
    FULL_V = EMPTY_K + STAGES,
    EMPTY_V = FULL_V + STAGES,
    BARRIERS = EMPTY_V + STAGES
};
constexpr uint32_t ITEMS_AT = (BARRIERS_AT + 8 * BARRIERS + 15) / 16 * 16,
                   ITEMS_END = ITEMS_AT + ITEMS * sizeof(work_item);
constexpr uint32_t TEAM_BYTES = (ITEMS_END + 1023) / 1024 * 1024, SHARED_BYTES = (TEAMS - 1) * TEAM_BYTES + ITEMS_END;
static_assert(SHARED_BYTES <= 232448, "a block has so much shared memory");

/*  A stage of a ring of `stages`, and the parity of the phase that is waited for. */
template <int stages = STAGES> struct ring {
    uint32_t stage, parity;

    __device__ void advance()
    {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/*  Loads a tile of `rows` rows, slab after slab; and stores one. */
template <int rows>
__device__ inline void load_tile(uint32_t to, const ignis__tensor_map *map, uint32_t barrier, int first,
                                 const work_item &item, int h)
{
    if constexpr (D % 64 == 0)
        ignis_ptx_tensor_load<5>(to, map, barrier, 0, first, 0, h, item.b);
    else
#pragma unroll
        for (int slab = 0; slab < SLABS; slab++)
            ignis_ptx_tensor_load<4>(to + slab * rows * 128, map, barrier, slab * 64, first, h, item.b);
}

template <int rows>
__device__ inline void store_tile(const ignis__tensor_map *map, uint32_t from, int first, const work_item &item)
{
    if constexpr (D % 64 == 0)
        ignis_ptx_tensor_store<5>(map, from, 0, first, 0, item.h, item.b);
    else
#pragma unroll
        for (int slab = 0; slab < SLABS; slab++)
            ignis_ptx_tensor_store<4>(map, from + slab * rows * 128, slab * 64, first, item.h, item.b);
    ignis_ptx_bulk_commit();
}

/*  Clears values of the n-th tile that no query sees, after the sequence's length or before all windows: 0
    times an old value may be NaN. Called by a group that has waited for the tile; the others do the same. */
__device__ inline void clear_unseen(const Attention &p, char *tile, int n, int b, int keys)
{
    const int from = p.first_seen_key(b) - n * KEYS, end = keys - n * KEYS;
#pragma unroll 1 /* for fewer registers */
    for (int i = threadIdx.x % 128; i < SLABS * KEYS * 8; i += 128)
        if (i / 8 % KEYS < from || i / 8 % KEYS >= end)
            ((uint4 *)tile)[i] = make_uint4(0, 0, 0, 0);
    ignis_ptx_fence_proxy_async();
    ignis_ptx_bar_sync(8 + threadIdx.x / 128, 128);
}

/* >>products ---------------------------------------------------------------------------------------------------- */

/*  Begins S = Q K^T. */
__device__ inline void begin_scores(float (&s)[KEYS / 8][4], uint64_t q, uint64_t k)
{
    ignis_wgmma_hold(s);
    ignis_ptx_wgmma_fence();
#pragma unroll
    for (int d = 0; d < COLUMNS; d += 16) {
        const uint64_t a = ignis_wgmma_ahead(q, d / 64 * 64 * 128 + d % 64 * 2);
        const uint64_t b = ignis_wgmma_ahead(k, d / 64 * KEYS * 128 + d % 64 * 2);
        if (d == 0)
            ignis_ptx_wgmma<0, 0, 0>(s, a, b);
        else
            ignis_ptx_wgmma<1, 0, 0>(s, a, b);
    }
    ignis_ptx_wgmma_commit();
}

/*  Begins O += P V. */
__device__ inline void begin_out(float (&out)[COLUMNS / 8][4], const uint32_t (&weights)[KEYS / 16][4], uint64_t v)
{
    ignis_wgmma_hold(out);
    ignis_ptx_wgmma_fence();
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
        ignis_ptx_wgmma<1, 1>(out, weights[k], ignis_wgmma_ahead(v, k * 16 * 128));
    ignis_ptx_wgmma_commit();
}

/* >>softmax ----------------------------------------------------------------------------------------------------- */

/*  Of the two rows of a lane, r and r + 8: a bound that scores, in units of log 2, exceed by SLACK at most,
    and its part of the sum of 2^(score - bound). A true maximum would have to be found across lanes for each
    tile, and out scaled whenever it grows; like this both happen seldom, and 2^8 more costs no precision. */
struct softmax {
    float top[2], sum[2], factor[2]; /* of out, if raised */
    bool raised;
};

/*  Turns scores into weights. Of the tile's keys, the lane's rows see those from start[...] to limit[...], if
    masked. scale is that of the scores, or with a cap that of its exponent, as in attention_scores. */
template <bool masked>
__device__ inline void softmax_step(float (&s)[KEYS / 8][4], softmax &state, float scale, float cap,
                                    const int (&start)[2], const int (&limit)[2])
{
    const int column = threadIdx.x % 4 * 2;
    float most[2], bias[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float x = -ignis_infinity<float>();
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                if constexpr (SOFTCAP)
                    s[j][i] = cap - 2 * cap * ignis_ptx_rcp_ftz(1 + ignis_ptx_ex2_ftz(s[j][i] * scale));
                if (masked && (8 * j + column + i % 2 >= limit[r] || (RANGE && 8 * j + column + i % 2 < start[r])))
                    s[j][i] = -ignis_infinity<float>();
                x = fmaxf(x, s[j][i]);
            }
        most[r] = SOFTCAP ? x : x * scale;
    }
    state.raised = __any_sync(0xffffffff, most[0] > state.top[0] + SLACK || most[1] > state.top[1] + SLACK);
    if (state.raised) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float top = most[r];
            top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
            top = top > state.top[r] + SLACK ? top
                                             : state.top[r]; /* a row has the same bits whatever rows are beside it */
            state.factor[r] = top > state.top[r] ? ignis_ptx_ex2_ftz(state.top[r] - top) : 1.0f;
            state.top[r] = top;
            state.sum[r] *= state.factor[r];
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        bias[r] = masked && state.top[r] == -ignis_infinity<float>() ? 0 : state.top[r];
        float first = 0, second = 0;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
            s[j][2 * r] = ignis_ptx_ex2_ftz(SOFTCAP ? s[j][2 * r] - bias[r] : fmaf(s[j][2 * r], scale, -bias[r]));
            s[j][2 * r + 1] =
                ignis_ptx_ex2_ftz(SOFTCAP ? s[j][2 * r + 1] - bias[r] : fmaf(s[j][2 * r + 1], scale, -bias[r]));
            first += s[j][2 * r];
            second += s[j][2 * r + 1];
        }
        state.sum[r] += first + second;
    }
}

/*  Weights as the A of the next product. */
__device__ inline void round_weights(uint32_t (&weights)[KEYS / 16][4], const float (&s)[KEYS / 8][4])
{
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            weights[k][i] = ignis_round_two<T>(s[2 * k + i / 2][i % 2 * 2], s[2 * k + i / 2][i % 2 * 2 + 1]);
}

__device__ inline void rescale(float (&out)[COLUMNS / 8][4], const softmax &state)
{
    if (!state.raised)
        return;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[j][i] *= state.factor[i / 2];
}

/* >>forward ----------------------------------------------------------------------------------------------------- */

/*  The thread that copies for a team; memory and base are the team's. */
__device__ inline void produce(const Attention &p, const ignis__forward_plan &plan, const ignis__tensor_map *q,
                               const ignis__tensor_map *k, const ignis__tensor_map *v, char *memory, uint32_t base,
                               int team)
{
    const auto barrier = [&](int i) { return base + BARRIERS_AT + 8 * i; };
    const int count = item_count(p, plan);
    ring<> k_ring = {0, 1}, v_ring = {0, 1}; /* the first wait for an empty stage passes at once */
    ring<ITEMS> items = {0, 1};
    for (int index = team * gridDim.x + blockIdx.x;; items.advance()) {
        work_item item;
        item.b = -1;
        item.from = item.end = 0;
        if (index < count)
            item = find_item(p, plan, index);
        const int kv_h = item.h / (p.heads / p.kv_heads);
        const auto load = [&](ring<> &stages, uint32_t at, int full, int empty, const ignis__tensor_map *map, int n) {
            ignis_mbarrier_wait(barrier(empty + stages.stage), stages.parity);
            ignis_ptx_mbarrier_arrive_expect(barrier(full + stages.stage), TILE_BYTES);
            load_tile<KEYS>(base + at + stages.stage * TILE_BYTES, map, barrier(full + stages.stage), n * KEYS, item,
                            kv_h);
            stages.advance();
        };
        if (OUT_IN_Q && item.end > item.from) /* q comes late */
            load(k_ring, K_AT, FULL_K, EMPTY_K, k, item.end - 1);
        ignis_mbarrier_wait(barrier(EMPTY_Q + items.stage), items.parity);
        ((work_item *)(memory + ITEMS_AT))[items.stage] = item;
        if (item.b < 0) {
            ignis_ptx_mbarrier_arrive(barrier(FULL_Q + items.stage));
            return;
        }
        const int absent = CAUSAL ? max(0, -item.query) / 64 : 0; /* groups before query 0 */
        ignis_ptx_mbarrier_arrive_expect(barrier(FULL_Q + items.stage), (GROUPS - absent) * Q_BYTES);
        for (int group = 0; group < GROUPS; group++)
            if (group >= absent)
                load_tile<64>(base + Q_AT + (items.stage * GROUPS + group) * Q_BYTES, q, barrier(FULL_Q + items.stage),
                              item.query + 64 * group, item, item.h);
        if (!OUT_IN_Q && item.end > item.from)
            load(k_ring, K_AT, FULL_K, EMPTY_K, k, item.end - 1);
        for (int n = item.end - 1; n > item.from; n--) {
            load(k_ring, K_AT, FULL_K, EMPTY_K, k, n - 1);
            load(v_ring, V_AT, FULL_V, EMPTY_V, v, n);
        }
        /* The next item is taken late, so that no block has two long ones, but before a wait, which hides its
           latency. */
        const unsigned taken = atomicAdd(plan.counter, 1);
        if (item.end > item.from)
            load(v_ring, V_AT, FULL_V, EMPTY_V, v, item.from);
        if (taken == (unsigned)count - 1) /* an item is taken after each one: this was the last time */
            *plan.counter = 0;
        index = TEAMS * gridDim.x + taken;
    }
}

/*  Stores the results of a group for its 64 queries: rows of out through its slab of shared memory, and lse. */
__device__ inline void store_out(const Attention &p, const ignis__tensor_map *map, const work_item &item,
                                 const float (&out)[COLUMNS / 8][4], softmax &state, int group, uint32_t place)
{
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, first = item.query + 64 * group;
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int query = first + 16 * warp + lane / 4 + 8 * r;
        factor[r] = p.add_sink(item.h, state.top[r], state.sum[r]);
        factor[r] = state.sum[r] == 0 ? 0 : factor[r] / state.sum[r];
        if (p.lse && lane % 4 == 0 && query >= 0 && query < p.sq)
            p.lse[p.stat(item.b, item.h) + query] =
                state.sum[r] == 0 ? ignis_infinity<float>() : (state.top[r] + log2f(state.sum[r])) * LN_2;
    }
    if (threadIdx.x % 128 == 0)
        ignis_ptx_bulk_wait_read<0>(); /* the rows of the last item have left */
    ignis_ptx_bar_sync(8 + threadIdx.x / 128, 128);
#pragma unroll
    for (int j = 0; j < COLUMNS / 16; j++) {
        const int row = 16 * warp + lane % 16, chunk = 2 * j + lane / 16;
        ignis_ptx_stmatrix(place + chunk / 8 * 64 * 128 + row * 128 + (chunk % 8 ^ row % 8) * 16,
                           ignis_round_two<T>(out[2 * j][0] * factor[0], out[2 * j][1] * factor[0]),
                           ignis_round_two<T>(out[2 * j][2] * factor[1], out[2 * j][3] * factor[1]),
                           ignis_round_two<T>(out[2 * j + 1][0] * factor[0], out[2 * j + 1][1] * factor[0]),
                           ignis_round_two<T>(out[2 * j + 1][2] * factor[1], out[2 * j + 1][3] * factor[1]));
    }
    ignis_ptx_fence_proxy_async();
    ignis_ptx_bar_sync(8 + threadIdx.x / 128, 128);
    if (threadIdx.x % 128 == 0 && first >= 0) /* else no row of it exists */
        store_tile<64>(map, place, first, item);
}

/*  As store_out, for a part of the keys, unnormalized. */
__device__ inline void store_part(const Attention &p, const ignis__forward_plan &plan, const work_item &item,
                                  const float (&out)[COLUMNS / 8][4], const softmax &state, int group)
{
    const int lane = threadIdx.x % 32, query = item.query + 64 * group + threadIdx.x / 32 % 4 * 16 + lane / 4;
    const long long rows = (long long)p.batches * p.heads * p.sq;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (query + 8 * r < 0 || query + 8 * r >= p.sq)
            continue;
        const long long row = item.split * rows + p.stat(item.b, item.h) + query + 8 * r;
        float2 *to = (float2 *)(plan.parts + row * D) + lane % 4;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            to[4 * j] = make_float2(out[j][2 * r], out[j][2 * r + 1]);
        if (lane % 4 == 0)
            ((float2 *)(plan.parts + plan.splits * rows * D))[row] = make_float2(state.top[r], state.sum[r]);
    }
}

/*  A group of four warps of a team; memory and base are the team's. */
__device__ inline void consume(const Attention &p, const ignis__forward_plan &plan, const ignis__tensor_map *map,
                               char *memory, uint32_t base, int group)
{
    const auto barrier = [&](int i) { return base + BARRIERS_AT + 8 * i; };
    const int lane = threadIdx.x % 32, row = 64 * group + threadIdx.x / 32 % 4 * 16 + lane / 4;
    const float scale = SOFTCAP ? (float)(p.scale / p.softcap) * (2 * LOG2_E) : (float)p.scale * LOG2_E;
    const float cap = SOFTCAP ? (float)p.softcap * LOG2_E : 0;
    const uint64_t q_tiles = ignis_wgmma_descriptor(base + Q_AT + group * Q_BYTES, 0, 1024);
    const uint64_t k_tile = ignis_wgmma_descriptor(base + K_AT, 0, 1024),
                   v_tile = ignis_wgmma_descriptor(base + V_AT, KEYS * 128, 1024);
    const uint32_t place = base + OUT_AT + group * Q_BYTES;
    const auto arrive = [&](int i) { ignis_warp_arrive(barrier(i)); };
    ring<> k_ring = {0, 0}, v_ring = {0, 0};
    const auto wait_k = [&] { ignis_mbarrier_wait(barrier(FULL_K + k_ring.stage), k_ring.parity); };
    const auto wait_v = [&] { ignis_mbarrier_wait(barrier(FULL_V + v_ring.stage), v_ring.parity); };
    const auto release_k = [&] {
        arrive(EMPTY_K + k_ring.stage);
        k_ring.advance();
    };
    const auto release_v = [&] {
        arrive(EMPTY_V + v_ring.stage);
        v_ring.advance();
    };
    const auto take_turn = [&] {
        if (TURNS)
            ignis_ptx_bar_sync(2 + group, 256);
    };
    const auto give_turn = [&] {
        if (TURNS)
            ignis_ptx_bar_arrive(2 + (group + 1) % GROUPS, 256);
    };
    if (TURNS && group == 0)
        ignis_ptx_bar_arrive(2, 256); /* it has the first turn */

    for (ring<ITEMS> items = {0, 0};; items.advance()) {
        ignis_mbarrier_wait(barrier(FULL_Q + items.stage), items.parity);
        const work_item item = ((const work_item *)(memory + ITEMS_AT))[items.stage];
        if (item.b < 0)
            break;
        const uint64_t q_tile = ignis_wgmma_ahead(q_tiles, items.stage * GROUPS * Q_BYTES);
        const int first = item.query + 64 * group;
        const int begin =
            RANGE ? max(item.from, first_tile(p, item.b, first)) : item.from; /* of the keys that this group sees */
        const int seen = min(item.end, visible_tiles(p, item.b, first, 64, item.keys)),
                  end = RANGE && seen <= begin ? item.from : seen;
        const int whole =
            max(begin, visible(p, item.b, first, item.keys) / KEYS); /* below, all its queries see all keys */
        const int whole_from =
            RANGE ? max(begin, (p.first_key(item.b, first + 63) + KEYS - 1) / KEYS) : begin; /* as far as this */
        const auto limits = [&](int n, int(&start)[2], int(&limit)[2]) {
            int query = item.query + row;
            if (DOCUMENTS && D > 192)
                asm volatile("" : "+r"(query)); /* loaded again each time: registers do not hold the results */
            start[0] = p.first_key(item.b, query) - n * KEYS;
            start[1] = p.first_key(item.b, query + 8) - n * KEYS;
            limit[0] = visible(p, item.b, query, item.keys) - n * KEYS;
            limit[1] = visible(p, item.b, query + 8, item.keys) - n * KEYS;
        };
        float out[COLUMNS / 8][4], s[KEYS / 8][4];
        uint32_t weights[KEYS / 16][4];
        softmax state;
        state.top[0] = state.top[1] = -ignis_infinity<float>();
        state.sum[0] = state.sum[1] = 0;
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++)
            out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0;

        int n = item.end - 1;
#pragma unroll 1
        for (; n >= max(end, item.from); n--) { /* nothing that it sees. It waits, lest it arrive in a phase before */
            wait_k();
            if (n < item.end - 1 || end > item.from) { /* as often as groups that see all of it */
                take_turn();
                give_turn();
            }
            release_k();
            wait_v();
            release_v();
        }
        if (end > item.from) {
            int start[2], limit[2];
            wait_k();
            begin_scores(s, q_tile, ignis_wgmma_ahead(k_tile, k_ring.stage * TILE_BYTES));
            ignis_ptx_wgmma_wait<0>();
            ignis_wgmma_hold(s);
            release_k();
            limits(n, start, limit);
            softmax_step<true>(s, state, scale, cap, start, limit);
            round_weights(weights, s);
            if (RANGE && (n + 1) * KEYS > item.keys) {
                wait_v();
                clear_unseen(p, memory + V_AT + v_ring.stage * TILE_BYTES, n, item.b, item.keys);
            }
            const auto step = [&](auto masked, int n) {
                int start[2], limit[2];
                wait_k();
                take_turn();
                begin_scores(s, q_tile, ignis_wgmma_ahead(k_tile, k_ring.stage * TILE_BYTES));
                wait_v();
                begin_out(out, weights, ignis_wgmma_ahead(v_tile, v_ring.stage * TILE_BYTES));
                give_turn();
                ignis_ptx_wgmma_wait<1>();
                ignis_wgmma_hold(s);
                release_k();
                limits(n, start, limit);
                softmax_step<decltype(masked)::value>(s, state, scale, cap, start, limit);
                ignis_ptx_wgmma_wait<0>();
                ignis_wgmma_hold(out);
                ignis_wgmma_hold(weights);
                release_v();
                round_weights(weights, s);
                rescale(out, state);
            };
            struct yes {
                enum { value = true };
            };
            struct no {
                enum { value = false };
            };
#pragma unroll 1
            for (n--; n >= whole; n--)
                step(yes(), n);
#pragma unroll 1
            for (; n >= whole_from; n--)
                step(no(), n);
            if constexpr (RANGE)
#pragma unroll 1
                for (; n >= begin; n--)
                    step(yes(), n);
            if (!OUT_IN_Q)
                arrive(EMPTY_Q + items.stage);
            wait_v();
            if (RANGE && begin * KEYS < p.first_seen_key(item.b))
                clear_unseen(p, memory + V_AT + v_ring.stage * TILE_BYTES, begin, item.b, item.keys);
            begin_out(out, weights, ignis_wgmma_ahead(v_tile, v_ring.stage * TILE_BYTES));
            ignis_ptx_wgmma_wait<0>();
            ignis_wgmma_hold(out);
            release_v();
            if constexpr (RANGE)
                for (; n >= item.from; n--) { /* left by its window, but not by that of the others */
                    wait_k();
                    take_turn();
                    give_turn();
                    release_k();
                    wait_v();
                    release_v();
                }
        } else if (!OUT_IN_Q) {
            arrive(EMPTY_Q + items.stage);
        }

#pragma unroll
        for (int r = 0; r < 2; r++) {
            state.sum[r] += __shfl_xor_sync(0xffffffff, state.sum[r], 1);
            state.sum[r] += __shfl_xor_sync(0xffffffff, state.sum[r], 2);
        }
        if (plan.splits == 1)
            store_out(p, map, item, out, state, group, place);
        else if (item.end > item.from)
            store_part(p, plan, item, out, state, group);
        if (OUT_IN_Q) { /* q comes back when out has left its slab */
            if (threadIdx.x % 128 == 0)
                ignis_ptx_bulk_wait_read<0>();
            ignis_ptx_bar_sync(8 + threadIdx.x / 128, 128);
            arrive(EMPTY_Q + items.stage);
        }
    }
    if (threadIdx.x % 128 == 0)
        ignis_ptx_bulk_wait<0>();
}

/*  grid = at most as many blocks as there are SMs; blocks of THREADS, SHARED_BYTES of shared memory. The TMA
    maps of q and out have tiles of 64 rows, those of k and v of KEYS. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    ignis_sdpa(const __grid_constant__ ignis__tensor_map q, const __grid_constant__ ignis__tensor_map k,
               const __grid_constant__ ignis__tensor_map v, const __grid_constant__ ignis__tensor_map out,
               const Attention p, const ignis__forward_plan plan)
{
    extern __shared__ __align__(1024) char memory[];
    const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0),
              warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
    const int team =
        group < ALL_GROUPS ? group / GROUPS : warp; /* a warp of the last group, the producer, copies for each */
    const bool produces = group == ALL_GROUPS && team < TEAMS && threadIdx.x % 32 == 0;
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(memory) + team * TEAM_BYTES;
    if (produces) {
        ignis_ptx_prefetch_tensormap(&q);
        ignis_ptx_prefetch_tensormap(&k);
        ignis_ptx_prefetch_tensormap(&v);
        for (int i = 0; i < BARRIERS; i++) {
            const bool filled = i < EMPTY_Q || (i >= FULL_K && i < EMPTY_K) || (i >= FULL_V && i < EMPTY_V);
            ignis_ptx_mbarrier_init(base + BARRIERS_AT + 8 * i, filled ? 1 : 4 * GROUPS * IGNIS_WARP_ARRIVALS);
        }
        ignis_ptx_fence_mbarrier_init();
    }
    ignis_grid_dependency(); /* all that, while the kernel ahead runs */
    __syncthreads();
    if (group == ALL_GROUPS) {
        ignis_ptx_setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (produces)
            produce(p, plan, &q, &k, &v, memory + team * TEAM_BYTES, base, team);
    } else {
        ignis_ptx_setmaxnreg_inc<GROUP_REGISTERS>();
        consume(p, plan, &out, memory + team * TEAM_BYTES, base, group % GROUPS);
    }
}

/*  Adds the splits. A warp has a query of a head; blocks of 256, enough for all queries. */
extern "C" __global__ void __launch_bounds__(256) ignis_sdpa_combine(const Attention p, const ignis__forward_plan plan)
{
    ignis_grid_dependency();
    const long long rows = (long long)p.batches * p.heads * p.sq, row = blockIdx.x * 8LL + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    const int query = (int)(row % p.sq), h = (int)(row / p.sq % p.heads), b = (int)(row / p.sq / p.heads);
    const int first = item_query(p, (CAUSAL ? (p.sq + 63) / 64 * 64 - 1 - query : query) / QUERIES),
              tiles = visible_tiles(p, b, first, QUERIES, p.keys(b)) - first_tile(p, b, first);
    const int splits = (tiles + plan.tiles - 1) / plan.tiles;                          /* that there are */
    const float2 *stats = (const float2 *)(plan.parts + plan.splits * rows * D) + row; /* a bound, a sum */
    float most = -ignis_infinity<float>(), sum = 0;
    for (int i = 0; i < splits; i++)
        most = fmaxf(most, stats[i * rows].x);
    const auto weight = [&](int i) {
        return stats[i * rows].y > 0 ? ignis_ptx_ex2_ftz(stats[i * rows].x - most) : 0.0f;
    };
    for (int i = 0; i < splits; i++)
        sum += stats[i * rows].y * weight(i);
    float top = most;
    const float scale = p.add_sink(h, top, sum), factor = sum == 0 ? 0 : scale / sum;
    if (p.lse && lane == 0)
        p.lse[row] = sum == 0 ? ignis_infinity<float>() : (top + log2f(sum)) * LN_2;
    for (int d = 4 * lane; d < D; d += 128) {
        float x[4] = {};
        for (int i = 0; i < splits; i++) {
            const auto part = ignis_load<4>(plan.parts + (i * rows + row) * D + d);
            const float w = weight(i) * factor;
#pragma unroll
            for (int k = 0; k < 4; k++)
                x[k] += part[k] * w;
        }
        ignis_store(attention_head(p.out, b, h) + query * p.out.row + d, ignis_pack_round<T>(x));
    }
}
