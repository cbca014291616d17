// SPDX-License-Identifier: MIT
/*  attention_hopper_backward.cu - gradients of scaled dot-product attention on Hopper: wgmma, bulk copies,
    the same bits each time

    For sm_90a; one program per type, size of heads and mask: compiled with -DIGNIS_T=<IGNIS_F16 or
    IGNIS_BF16> -DIGNIS_HEAD_DIM=<a multiple of 8 from 64 to 256> -DIGNIS_CAUSAL=<0 or 1>, and the variants of
    attention.cuh except for the bias.

    After FlashAttention-3 (Shah et al. 2024). Three kernels, one after the other, the last of which is one of
    two:
        ignis_sdpa_backward_rows    delta and lse of each query, as the next kernel wants them; all its words begin at 0
        ignis_sdpa_backward         a block has keys and loops over tiles of queries; grad_q is summed in float, tile by
        tile
        ignis_sdpa_backward_finish  rounds grad_q
        ignis_sdpa_backward_rotated  as finish if rope has rotated q and k: also rotates grad_q and grad_k
        back
    The second and ignis_sdpa_backward_finish also sum the columns of what they give, if they are needed: the
    gradient of a projection's bias.

    With P = 2^(x - lse), of scores x that include the scale, and dP = grad_out v^T:
        dS = P (dP - delta)     grad_v = P^T grad_out     grad_k = scale dS^T q     grad_q = scale dS k
    Scores are computed transposed, rows are keys: so P and dS are in the registers where the products for
    grad_v and grad_k take them.

    Many blocks add to one tile of grad_q. They do it in turns, in a fixed order, so that equal inputs give
    equal bits. A block takes its place in that order from a counter when it starts: it only ever waits for
    blocks that took theirs before, which are running.

    With few queries all blocks of a head would wait for their turns at one tile, and each would do little
    more than begin and end. With -DIGNIS_FEW=1 up to 128 queries of a head stay in a block that loops over
    tiles of keys: see few_walk. With -DIGNIS_DIRECT=1 the threads that have grad_q add it themselves, which
    ends a turn sooner than copies do: for up to 256 queries; with many, copies beside the products are
    faster. */
#include "ignis.cuh"
#include "attention.cuh"
#include "hopper.cuh"
#include "rope.cuh"

#ifndef IGNIS_FEW
#define IGNIS_FEW 0
#endif
#ifndef IGNIS_DIRECT
#define IGNIS_DIRECT 0
#endif

constexpr int HEAD_DIM = IGNIS_HEAD_DIM, D = (HEAD_DIM + 15) / 16 * 16; /* filled up with zeros by the copies */
constexpr bool CAUSAL = IGNIS_CAUSAL, FEW = IGNIS_FEW;
constexpr float LOG2_E = 1.44269504088896340736f;
static_assert(!BIASED, "a bias is for attention_mma.cu");
static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM >= 64 && HEAD_DIM <= 256, "sizes of heads are multiples of 8");
static_assert(!FEW || !SOFTCAP || HEAD_DIM == 64 || HEAD_DIM > 128, "registers do not hold a cap, too");

/*  Two groups of 4 warps compute. Up to 128 columns each has half of the keys; beyond, registers hold no more
    than half of the columns. */
constexpr bool WIDE = D > 128;
constexpr int KEYS = WIDE ? 64 : 128, QUERIES = FEW || D == 64 ? 128 : 64;
constexpr int CHUNKS = D / 8;
/*  One code for both groups; else each has its own, with its columns as constants. */
constexpr bool SAME_CODE = FEW ? !WIDE || D == 256 : D == 64 || D == 128;
/*  Blocks of a cluster, which have neighbouring keys and loop over the same tiles. For wide heads, adding
    each block's grad_q would take longer than all else. So two blocks exchange their dS, and each has half of
    the columns, for the keys of both. */
constexpr int CLUSTER = WIDE && !FEW ? 2 : 1, SPAN = CLUSTER * KEYS;
constexpr bool DIRECT = WIDE || IGNIS_DIRECT;
constexpr int TURNS =
    DIRECT ? 2 * CLUSTER : 1; /* words for a tile of grad_q: one for each group of each block, or one in all */
static_assert(!IGNIS_DIRECT || D == 128, "for others it is not faster, or not measured");

/* >>sums -------------------------------------------------------------------------------------------------------- */

#if !IGNIS_FEW /* then there are more keys than queries, so no projection made both */

constexpr int SUMMED = 64, PAIRS = HEAD_DIM / 2; /* rows of a sum; columns that a thread sums */

/*  The sums of two columns of SUMMED rows in shared memory. from(row): where a row has both. */
template <typename From>
__device__ inline void sum_pair(const Attention &p, const ignis__attention_scratch &s, int b, int part, int head,
                                int pair, From from)
{
    float2 sum = make_float2(0, 0);
#pragma unroll 16
    for (int row = 0; row < SUMMED; row++) {
        const ignis_pack<T, 2> two = *(const ignis_pack<T, 2> *)from(row);
        sum.x += float(two[0]);
        sum.y += float(two[1]);
    }
    const long long parts = (p.sk + SUMMED - 1) / SUMMED,
                    place = (b * parts + part) * (p.heads + 2 * p.kv_heads) + head;
    if (part < parts)
        *(float2 *)(s.sums + place * HEAD_DIM + 2 * pair) = sum;
}

#endif

/* >>rows -------------------------------------------------------------------------------------------------------- */

constexpr int AT_ONCE = 4; /* rows, for enough loads on their way; the host knows it, too */

/*  Some lanes process AT_ONCE rows of a head, one after the other; heads are innermost, as in memory. grid =
    ceil(batches * heads * rows / AT_ONCE / (256 / lanes)), blocks of 256. */
extern "C" __global__ void __launch_bounds__(256) ignis_sdpa_backward_rows(Attention p, ignis__attention_scratch s)
{
    ignis_grid_dependency();
    constexpr int lanes = D <= 64 ? 8 : D <= 128 ? 16 : 32;
    const unsigned item = blockIdx.x * (256 / lanes) + threadIdx.x / lanes, fours = s.rows / AT_ONCE;
    const int lane = threadIdx.x % lanes, h = item % p.heads, query = item / p.heads % fours * AT_ONCE,
              b = item / p.heads / fours;
    const bool exists = b < p.batches && query + lane < p.sq && lane < AT_ONCE; /* the row that this lane writes */
    const float lse = exists ? p.lse[p.stat(b, h) + query + lane] * LOG2_E : ignis_infinity<float>();
    uint4 xs[AT_ONCE], ys[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        if (b < p.batches && query + i < p.sq && lane * 8 < HEAD_DIM) {
            xs[i] = *(const uint4 *)(attention_head(p.out, b, h) + (query + i) * p.out.row + lane * 8);
            ys[i] = *(const uint4 *)(attention_head(p.grad_out, b, h) + (query + i) * p.grad_out.row + lane * 8);
        }
    float delta = 0;
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        float sum = 0;
        if (b < p.batches && query + i < p.sq && lane * 8 < HEAD_DIM) {
            const auto x = ignis_pack_of<ignis_pack<T, 8>>(xs[i]), y = ignis_pack_of<ignis_pack<T, 8>>(ys[i]);
#pragma unroll
            for (int k = 0; k < 8; k++)
                sum += ignis_wide_at(x, k) * ignis_wide_at(y, k);
        }
#pragma unroll
        for (int distance = lanes / 2; distance > 0; distance /= 2)
            sum += __shfl_xor_sync(0xffffffff, sum, distance);
        delta = lane == i ? sum : delta;
    }
    if (lane >= AT_ONCE || b >= p.batches)
        return;
    const long long row = ((long long)b * p.heads + h) * s.rows + query + lane;
    s.delta[row] = lse < ignis_infinity<float>() ? delta : 0; /* it sees something */
    s.lse[row] = lse;
    if (!FEW && row % QUERIES == 0)
        for (int i = 0; i < TURNS; i++)
            s.turns[row / QUERIES * TURNS + i] = 0;
    if (!FEW && blockIdx.x == 0 && threadIdx.x == 0)
        *s.next = 0;
}

/* >>walk -------------------------------------------------------------------------------------------------------- */

/*  The work of a block: its keys, and the order in which it comes to the tiles of queries that see them.

    No block should wait for its turn. With a causal mask the blocks of the last keys, which have the shortest
    way, come first and walk upwards, so each comes to a tile well after the block before it. That would end
    with the longest ways; so the last section goes the other way round. Without a mask all walk upwards, and
    wait once, at the start; with a window the last keys come first there too.

    Whether a tile and a block belong together is asked from both sides, so the answers are computed alike: of
    whole tiles and blocks, whether or not the last of their rows exist. */
struct block_walk {
    int block, blocks; /* of SPAN keys; all that the sequence has */
    int kv_h, b, group, tiles, offset;
    int first;               /* tile that sees keys of the block */
    int end;                 /* after the last one */
    int masked;              /* tiles of which some query does not see some key: the first ones */
    int keys;                /* RANGE: of the sequence */
    int seen_from, seen_end; /* DOCUMENTS: the queries that see all keys of the block */
    bool down;

    __device__ block_walk(const Attention &p, int section, int place)
    {
        const int pairs = p.kv_heads * p.batches;
        blocks = (p.sk + SPAN - 1) / SPAN;
        group = p.heads / p.kv_heads;
        tiles = (p.sq + QUERIES - 1) / QUERIES;
        offset = p.sk - p.sq;

        const int s = place / (section * blocks), in = place % (section * blocks),
                  width = min(section, pairs - s * section);
        const int pair = s * section + in % width;
        kv_h = pair % p.kv_heads;
        b = pair / p.kv_heads;
        down = CAUSAL && s > 0 && (s + 1) * section >= pairs;
        block = (CAUSAL || RANGE) && !down ? blocks - 1 - in / width : in / width;

        const int key = block * SPAN;
        if constexpr (DOCUMENTS) {
            const int last = min(key + SPAN, p.sk) - 1;
            const int2 its = p.document(b, key);
            keys = p.keys(b);
            first = max(document(p, b, key).x, key - reach(p) + 1) / QUERIES;
            end = (min(document(p, b, last).y, last + p.window) + QUERIES - 1) / QUERIES;
            seen_from = max(its.x, key + SPAN - reach(p));
            seen_end = its.y < key + SPAN ? 0 : min(its.y, key + p.window);
            masked = 0;
            return;
        }
        if constexpr (RANGE) {
            keys = p.keys(b);
            blocks = (keys + SPAN - 1) / SPAN;
            first = max(0, key - offset - reach(p) + 1) / QUERIES;
            end = key < keys
                      ? min(tiles, max(first, (max(0, key + SPAN - 1 - offset + p.window) + QUERIES - 1) / QUERIES))
                      : first;
            masked = 0; /* see is_masked */
            return;
        }
        end = tiles;
        first = CAUSAL ? max(0, key - offset) / QUERIES : 0;
        const int whole = CAUSAL ? min(tiles, max(first, (key + SPAN - 1 - offset + QUERIES - 1) / QUERIES)) : first;
        masked = key + SPAN > p.sk ? tiles - first : whole - first;
    }

    __device__ int first_key() const { return block * SPAN + rank() * KEYS; } /* of this block of the cluster */
    __device__ static int rank() { return blockIdx.x % CLUSTER; }

    __device__ int steps() const { return end - first; } /* for one query head */
    __device__ int tile(int step) const { return CAUSAL && down ? end - 1 - step : first + step; }

    /*  As attention.reach. */
    __device__ static int reach(const Attention &p) { return CAUSAL ? 1 : p.window; }

    /*  RANGE: whether not every query of a tile sees every key. */
    __device__ bool is_masked(const Attention &p, int tile) const
    {
        if constexpr (DOCUMENTS)
            return tile * QUERIES < seen_from || (tile + 1) * QUERIES > seen_end;
        const int key = block * SPAN, query = tile * QUERIES + p.sk - p.sq;
        return key + SPAN > keys || query + reach(p) < key + SPAN || query + QUERIES - p.window > key;
    }
    __device__ long long head(const Attention &p, int g) const { return (long long)b * p.heads + kv_h * group + g; }

    /*  DOCUMENTS: a row's document. Here a row in no document has one of its own, so that each tile and each
        block has one at least that belongs to it, and both sides agree on all of them. */
    __device__ static int2 document(const Attention &p, int b, int row)
    {
        const int2 its = p.bounds_of(b, row);
        return its.x <= row && row < its.y ? its : make_int2(row, row + 1);
    }

    /*  The blocks that add to a tile are those from the first one to before the end. */
    __device__ static int first_block(const Attention &p, int b, int tile)
    {
        if constexpr (DOCUMENTS)
            return max(document(p, b, tile * QUERIES).x, tile * QUERIES - p.window + 1) / SPAN;
        return max(0, tile * QUERIES + p.sk - p.sq - p.window + 1) / SPAN;
    }
    __device__ static int end_block(const Attention &p, int b, int tile, int keys)
    {
        if constexpr (DOCUMENTS) {
            const int last = min((tile + 1) * QUERIES, p.sq) - 1;
            return (min(document(p, b, last).y, last + reach(p)) + SPAN - 1) / SPAN;
        }
        return (min(keys, max(0, (tile + 1) * QUERIES + p.sk - p.sq + reach(p) - 1)) + SPAN - 1) / SPAN;
    }

    /*  Returns how many blocks add to a tile before this one. */
    __device__ unsigned turn(const Attention &p, int tile) const
    {
        if constexpr (RANGE)
            return down ? block - first_block(p, b, tile) : end_block(p, b, tile, keys) - 1 - block;
        const int last = CAUSAL ? min(blocks, ((tile + 1) * QUERIES + offset + SPAN - 1) / SPAN) : blocks;
        return CAUSAL && !down ? last - 1 - block : block;
    }
};

/* >>tiles ------------------------------------------------------------------------------------------------------- */

/*  A tile in shared memory is slabs of 64 columns, one after the other. A row of a slab has 128 bytes, in
    which the hardware swizzles chunks of 16 bytes. */
constexpr int SLABS = (D + 63) / 64, ROW = 128, STEP = 16 * ROW; /* bytes from 16 rows to the next */
constexpr uint32_t KV_BYTES = SLABS * KEYS * ROW, Q_BYTES = SLABS * QUERIES * ROW, S_BYTES = KEYS * QUERIES * 2;

#if IGNIS_FEW

/*  As many stages of keys and values as fit beside the queries. */
constexpr int STAGES = SLABS == 1 ? 4 : SLABS == 4 ? 1 : 2;
constexpr uint32_t STAGE_BYTES = 2 * KV_BYTES, Q_AT = STAGES * STAGE_BYTES, OUT_AT = Q_AT + Q_BYTES,
                   S_AT = OUT_AT + Q_BYTES;
constexpr uint32_t P_AT = S_AT + S_BYTES, LSE_AT = P_AT + (WIDE ? S_BYTES : 0), DELTA_AT = LSE_AT + QUERIES * 4;
constexpr uint32_t BARS_AT = DELTA_AT + QUERIES * 4, SHARED_BYTES = BARS_AT + 8 * (1 + 2 * STAGES);

enum { FULL_Q, FULL_KV, DONE = FULL_KV + STAGES }; /* mbarriers */
enum { BOTH_GROUPS = 1 };                          /* a named barrier */

#else

/*  Two stages for the tiles that the block loops over, but one of grad_out for the widest heads. Wide heads
    also have P in shared memory, two slabs of keys of the cluster's other block (for each group the one with
    its columns of grad_q), and dS. The others have two buffers of grad_q. */
constexpr int Q_STAGES = 2, OUT_STAGES = SLABS == 4 ? 1 : 2;
constexpr uint32_t SLAB_BYTES = KEYS * ROW, ADD_BYTES = QUERIES * D * 4;
constexpr uint32_t K_AT = 0, V_AT = K_AT + KV_BYTES, Q_AT = V_AT + KV_BYTES, OUT_AT = Q_AT + Q_STAGES * Q_BYTES;
constexpr uint32_t S_AT = OUT_AT + OUT_STAGES * Q_BYTES, P_AT = S_AT + 2 * S_BYTES, ADD_AT = P_AT;
constexpr uint32_t OTHER_K_AT = P_AT + 2 * S_BYTES, OTHER_S_AT = OTHER_K_AT + 2 * SLAB_BYTES;
constexpr uint32_t LSE_AT = WIDE ? OTHER_S_AT + 2 * S_BYTES : ADD_AT + 2 * ADD_BYTES,
                   DELTA_AT = LSE_AT + Q_STAGES * QUERIES * 4;
constexpr uint32_t BARS_AT = DELTA_AT + OUT_STAGES * QUERIES * 4;
constexpr uint32_t PLACE_AT = BARS_AT + 88, READY_AT = PLACE_AT + 8, SHARED_BYTES = READY_AT + 8;

/*  mbarriers; the last two: dS of the other block is there. */
enum {
    FULL_KV,
    FULL_Q,
    EMPTY_Q = FULL_Q + 2,
    FULL_OUT = EMPTY_Q + 2,
    EMPTY_OUT = FULL_OUT + 2,
    RECEIVED = EMPTY_OUT + 2
};
enum { BOTH_GROUPS = 1, ADD_FULL = 4, ADD_EMPTY = 8 }; /* named barriers; the last two: for each group and buffer */

#endif
static_assert(SHARED_BYTES <= 232448, "a block has 227 KB");

__device__ inline uint32_t chunk_at(uint32_t tile, int rows, int row, int chunk)
{
    return tile + chunk / 8 * rows * ROW + row * ROW + (chunk % 8 ^ row % 8) * 16;
}

/*  Descriptors of a tile: of rows along which the product sums up, and of rows which are summed up. */
__device__ inline uint64_t along_rows(uint32_t tile) { return ignis_wgmma_descriptor(tile, 0, 1024); }
__device__ inline uint64_t across_rows(uint32_t tile, int rows)
{
    return ignis_wgmma_descriptor(tile, rows * ROW, 1024);
}

/*  As above, moved along the rows. */
__device__ inline uint64_t column(uint64_t desc, int rows, int d)
{
    return ignis_wgmma_ahead(desc, d / 64 * rows * ROW + d % 64 * 2);
}

__device__ inline void load_tile(uint32_t to, const ignis__tensor_map *map, uint32_t bar, int rows, int row, int h,
                                 int b)
{
    if constexpr (HEAD_DIM % 64 == 0) {
        ignis_ptx_tensor_load<5>(to, map, bar, 0, row, 0, h, b);
    } else {
#pragma unroll
        for (int slab = 0; slab < SLABS; slab++)
            ignis_ptx_tensor_load<4>(to + slab * rows * ROW, map, bar, slab * 64, row, h, b);
    }
}

/*  Loads a slab by a TMA map whose tiles are single slabs, for any size of heads. */
__device__ inline void load_slab(uint32_t to, const ignis__tensor_map *map, uint32_t bar, int slab, int row, int h,
                                 int b)
{
    if constexpr (HEAD_DIM % 64 == 0)
        ignis_ptx_tensor_load<5>(to, map, bar, 0, row, slab, h, b);
    else
        ignis_ptx_tensor_load<4>(to, map, bar, slab * 64, row, h, b);
}

__device__ inline void store_tile(const ignis__tensor_map *map, uint32_t from, int rows, int row, int h, int b)
{
    if constexpr (HEAD_DIM % 64 == 0) {
        ignis_ptx_tensor_store<5>(map, from, 0, row, 0, h, b);
    } else {
#pragma unroll
        for (int slab = 0; slab < SLABS; slab++)
            ignis_ptx_tensor_store<4>(map, from + slab * rows * ROW, slab * 64, row, h, b);
    }
}

/*  The used rows of a sequence: keys that some query sees, and queries that see some key. Other rows are
    after its length, or before or after all windows. No product may read them: 0 times their value may be
    NaN. */
struct used_rows {
    int from, end;

    static __device__ used_rows keys(const Attention &p, int b, int keys) { return {p.first_seen_key(b), keys}; }
    static __device__ used_rows queries(const Attention &p, int b, int keys)
    {
        if constexpr (DOCUMENTS) /* each query sees itself */
            return used_rows::keys(p, b, keys);
        return {p.first_query(b, 0), !RANGE ? p.sq : keys > 0 ? max(0, keys - 1 - (p.sk - p.sq) + p.window) : 0};
    }
    /*  Returns whether `rows` rows from `first` on are all used: after the last one copies leave zeros. */
    __device__ bool has_all(int first, int rows, int count) const
    {
        return first >= from && min(first + rows, count) <= end;
    }
    /*  Clears the unused rows of a tile whose first row is given. By both groups. */
    __device__ void clear_others(char *tile, int slabs, int rows, int first) const
    {
#pragma unroll 1 /* for fewer registers */
        for (int i = threadIdx.x - 128; i < slabs * rows * 8; i += 256)
            if (first + i / 8 % rows < from || first + i / 8 % rows >= end)
                ((uint4 *)tile)[i] = make_uint4(0, 0, 0, 0);
    }
    /*  After the last tile of a round. */
    static __device__ void meet()
    {
        ignis_ptx_fence_proxy_async();
        ignis_ptx_bar_sync(BOTH_GROUPS, 256);
    }
};

/*  C = A B^T over all columns. */
template <int n>
__device__ inline void product_of_rows(float (&c)[n][4], uint64_t a, int a_rows, uint64_t b, int b_rows)
{
    ignis_wgmma_hold(c);
    ignis_ptx_wgmma_fence();
#pragma unroll
    for (int d = 0; d < D; d += 16) {
        if (d == 0)
            ignis_ptx_wgmma<0, 0, 0>(c, column(a, a_rows, d), column(b, b_rows, d));
        else
            ignis_ptx_wgmma<1, 0, 0>(c, column(a, a_rows, d), column(b, b_rows, d));
    }
    ignis_ptx_wgmma_commit();
}

/*  C += A B, for A in registers. */
template <int n, int k> __device__ inline void add_product(float (&c)[n][4], const uint32_t (&a)[k][4], uint64_t b)
{
    ignis_wgmma_hold(c);
    ignis_ptx_wgmma_fence();
#pragma unroll
    for (int i = 0; i < k; i++)
        ignis_ptx_wgmma<1, 1>(c, a[i], ignis_wgmma_ahead(b, i * STEP));
    ignis_ptx_wgmma_commit();
}

/*  C = A B over all keys, or with keep C += A B, for A and B across rows. */
template <int keep = 0, int n> __device__ inline void product_of_keys(float (&c)[n][4], uint64_t a, uint64_t b)
{
    ignis_wgmma_hold(c);
    ignis_ptx_wgmma_fence();
    ignis_ptx_wgmma<keep, 1, 1>(c, a, b);
#pragma unroll
    for (int i = 1; i < KEYS / 16; i++)
        ignis_ptx_wgmma<1, 1, 1>(c, ignis_wgmma_ahead(a, i * STEP), ignis_wgmma_ahead(b, i * STEP));
    ignis_ptx_wgmma_commit();
}

/*  As above, once more, after that product, for other keys. */
template <int n> __device__ inline void continue_of_keys(float (&c)[n][4], uint64_t a, uint64_t b)
{
    ignis_ptx_wgmma_fence();
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++)
        ignis_ptx_wgmma<1, 1, 1>(c, ignis_wgmma_ahead(a, i * STEP), ignis_wgmma_ahead(b, i * STEP));
    ignis_ptx_wgmma_commit();
}

/*  C += A B, for A a tile of KEYS and QUERIES. */
template <int n> __device__ inline void add_tile_product(float (&c)[n][4], uint64_t a, uint64_t b)
{
    ignis_wgmma_hold(c);
    ignis_ptx_wgmma_fence();
#pragma unroll
    for (int i = 0; i < QUERIES / 16; i++)
        ignis_ptx_wgmma<1, 0, 1>(c, column(a, KEYS, 16 * i), ignis_wgmma_ahead(b, i * STEP));
    ignis_ptx_wgmma_commit();
}

/*  Computes P from scores; key and query are the first ones of the lane, and its statistics begin at lse.
    With a cap, scale is that of its exponent, as in attention_scores. RANGE: keys are those of the sequence. */
template <int n, typename Flag>
__device__ inline void probabilities(float (&x)[n][4], const float *lse, float scale, float cap, Flag masked,
                                     const Attention &p, int b, int keys, int key, int query)
{
#pragma unroll
    for (int j = 0; j < n; j++) {
        const float2 its = *(const float2 *)(lse + 8 * j);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            if constexpr (SOFTCAP) {
                const float least = cap - (e % 2 ? its.y : its.x);
                x[j][e] =
                    ignis_ptx_ex2_ftz(fmaf(-2 * cap, ignis_ptx_rcp_ftz(1 + ignis_ptx_ex2_ftz(x[j][e] * scale)), least));
            } else {
                x[j][e] = ignis_ptx_ex2_ftz(fmaf(x[j][e], scale, e % 2 ? -its.y : -its.x));
            }
        }
    }
    if (masked) {
        /* The distance of the lane's keys from its first query, or with RANGE from the first key that it
           sees: one number to compare, so that the compiler makes no branch. Keys that no query sees are at
           the largest distance; with RANGE it is unsigned. */
        constexpr int NEVER = RANGE ? -1 : 0x7fffffff;
        int ahead[2], seen[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int its_key = key + 8 * half, distance = its_key - query - (p.sk - p.sq);
            seen[half] = RANGE ? p.window + block_walk::reach(p) - 1 : 0;
            if constexpr (DOCUMENTS) { /* the last query that sees it, and their number */
                const int its_end = p.end_query(b, its_key);
                ahead[half] = its_end - 1 - query;
                seen[half] = its_key >= keys ? 0 : max(0, its_end - p.first_query(b, its_key));
                continue;
            }
            ahead[half] = its_key >= (RANGE ? keys : p.sk) ? NEVER
                          : RANGE                          ? distance + p.window - 1
                          : CAUSAL                         ? distance
                                                           : 0;
        }
#pragma unroll
        for (int j = 0; j < n; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int next = 8 * j + e % 2; /* query */
                if (RANGE ? (unsigned)(ahead[e / 2] - next) >= (unsigned)seen[e / 2] : ahead[e / 2] > next)
                    x[j][e] = 0;
            }
    }
}

/*  Computes dS = P (dP - delta) in place of dP. The derivative of the cap is 1 - tanh^2; tanh is computed
    from P again, as registers do not hold both. Where P is 0 it is anything below 1, or NaN. */
template <int n>
__device__ inline void score_gradients(float (&y)[n][4], const float (&x)[n][4], const float *delta, const float *lse,
                                       float cap)
{
    const float per_cap = 1 / cap;
#pragma unroll
    for (int j = 0; j < n; j++) {
        const float2 its = *(const float2 *)(delta + 8 * j), its_lse = *(const float2 *)(lse + 8 * j);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            y[j][e] = x[j][e] * (y[j][e] - (e % 2 ? its.y : its.x));
            if constexpr (SOFTCAP) {
                const float t = (__log2f(x[j][e]) + (e % 2 ? its_lse.y : its_lse.x)) * per_cap;
                y[j][e] *= fmaxf(0, fmaf(-t, t, 1));
            }
        }
    }
}

/*  The scale of products for probabilities, and the cap in units of log 2. */
__device__ inline float score_scale(const Attention &p)
{
    return SOFTCAP ? (float)(p.scale / p.softcap) * (2 * LOG2_E) : (float)p.scale * LOG2_E;
}
__device__ inline float score_cap(const Attention &p) { return SOFTCAP ? (float)p.softcap * LOG2_E : 1; }

/*  Rounds results into operands of the next product. */
template <int n> __device__ inline void round_results(uint32_t (&to)[n / 2][4], const float (&x)[n][4])
{
#pragma unroll
    for (int k = 0; k < n / 2; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[k][i] = ignis_round_two<T>(x[2 * k + i / 2][i % 2 * 2], x[2 * k + i / 2][i % 2 * 2 + 1]);
}

/*  16 rows of a warp into a tile, from a chunk on. */
template <int k>
__device__ inline void store_operands(uint32_t tile, int rows, int row, int chunk, const uint32_t (&from)[k][4])
{
    const int lane = threadIdx.x % 32;
    const uint32_t place = tile + (row + lane % 16) * ROW, swizzle = (lane / 16 ^ lane % 8) * 16;
#pragma unroll
    for (int i = 0; i < k; i++)
        ignis_ptx_stmatrix(place + (chunk + 2 * i) / 8 * rows * ROW + (swizzle ^ (chunk + 2 * i) % 8 * 16), from[i][0],
                           from[i][1], from[i][2], from[i][3]);
}

/*  Rows of a warp, from a chunk on, times a factor, into a tile of 64 or 128 keys. */
template <int n>
__device__ inline void store_gradients(uint32_t tile, int row, int chunk, const float (&from)[n][4], float factor)
{
#pragma unroll
    for (int i = 0; i < n / 2; i++) {
        uint32_t words[1][4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            words[0][e] = ignis_round_two<T>(from[2 * i + e / 2][e % 2 * 2] * factor,
                                             from[2 * i + e / 2][e % 2 * 2 + 1] * factor);
        store_operands(tile, KEYS, row, chunk + 2 * i, words);
    }
}

/* >>few --------------------------------------------------------------------------------------------------------- */

#if IGNIS_FEW

/*  Few queries of a head, many keys. A block has the queries, and loops over the tiles of keys of its part.
    It sums its grad_q in registers, and writes it at the end to memory of its own. grad_k and grad_v of a
    tile are complete, as no other block has queries of the head. So no block waits for another; finish adds
    the parts of grad_q in their order. */
struct few_walk {
    int pair, part; /* a head of a batch; a part of the keys */
    int h, b;
    int first, end;  /* tiles of keys */
    int keys, query; /* of the sequence; the position of the first query */

    __device__ few_walk(const Attention &p, const ignis__attention_scratch &s)
    {
        const int pairs = p.heads * p.batches;
        pair = blockIdx.x % pairs;
        part = blockIdx.x / pairs;
        h = pair % p.heads;
        b = pair / p.heads;
        first = part * s.section;
        end = min(first + s.section, (p.sk + KEYS - 1) / KEYS);
        keys = p.keys(b);
        query = p.sk - p.sq;
    }

    /*  RANGE: whether some query sees some key of a tile. */
    __device__ bool is_seen(const Attention &p, int tile) const
    {
        return tile * KEYS < min(keys, query + p.sq - 1 + block_walk::reach(p)) &&
               (tile + 1) * KEYS > query - p.window + 1;
    }

    /*  Whether not every query sees every key of a tile. */
    __device__ bool is_masked(const Attention &p, int tile) const
    {
        const int end_key = (tile + 1) * KEYS;
        if constexpr (RANGE)
            return end_key > keys || query + block_walk::reach(p) < end_key || query + QUERIES - p.window > tile * KEYS;
        return end_key > p.sk || (CAUSAL && query + 1 < end_key);
    }
};

/*  One thread loads the queries, then tile after tile of k and v. Their gradients replace them in shared
    memory; when they are stored, the stage is free for the next tile. */
__device__ inline void carry_all(uint32_t base, const ignis__tensor_map *q, const ignis__tensor_map *k,
                                 const ignis__tensor_map *v, const ignis__tensor_map *grad_out,
                                 const ignis__tensor_map *grad_k, const ignis__tensor_map *grad_v,
                                 const ignis__attention_scratch &s, const few_walk &walk)
{
    const auto bar = [&](int i) { return base + BARS_AT + 8 * i; };
    const long long stat = (long long)walk.pair * s.rows;
    ignis_ptx_mbarrier_arrive_expect(bar(FULL_Q), 2 * (Q_BYTES + QUERIES * 4));
    load_tile(base + Q_AT, q, bar(FULL_Q), QUERIES, 0, walk.h, walk.b);
    load_tile(base + OUT_AT, grad_out, bar(FULL_Q), QUERIES, 0, walk.h, walk.b);
    ignis_ptx_bulk_load(base + LSE_AT, s.lse + stat, QUERIES * 4, bar(FULL_Q));
    ignis_ptx_bulk_load(base + DELTA_AT, s.delta + stat, QUERIES * 4, bar(FULL_Q));
    for (int tile = walk.first; tile < walk.end + STAGES; tile++) {
        const int i = tile - walk.first, stage = i % STAGES, row = tile * KEYS, done = row - STAGES * KEYS;
        const uint32_t at = base + stage * STAGE_BYTES;
        if (i >= STAGES && tile - STAGES < walk.end) {
            ignis_mbarrier_wait(bar(DONE + stage), i / STAGES % 2 ^ 1);
            store_tile(grad_k, at, KEYS, done, walk.h, walk.b);
            store_tile(grad_v, at + KV_BYTES, KEYS, done, walk.h, walk.b);
            ignis_ptx_bulk_commit();
            ignis_ptx_bulk_wait_read<0>();
        }
        if (tile < walk.end) {
            ignis_ptx_mbarrier_arrive_expect(bar(FULL_KV + stage), STAGE_BYTES);
            load_tile(at, k, bar(FULL_KV + stage), KEYS, row, walk.h, walk.b);
            load_tile(at + KV_BYTES, v, bar(FULL_KV + stage), KEYS, row, walk.h, walk.b);
        }
    }
    ignis_ptx_bulk_wait<0>();
}

template <int n> __device__ inline void clear(float (&c)[n][4])
{
#pragma unroll
    for (int j = 0; j < n; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            c[j][e] = 0;
}

/*  A group of warps. Up to 128 columns it has the scores of half of the keys, and grad_q of half of the
    queries, with all columns. For wide heads it has the scores of half of the queries, passes P and dS to the
    other group, and has its columns of all gradients. */
template <int chunks>
__device__ inline void compute_group(char *shared, uint32_t base, int w, const Attention &p,
                                     const ignis__attention_scratch &s, const few_walk &walk)
{
    constexpr int halves = WIDE ? 2 : 1,
                  own = WIDE ? QUERIES / 2 : QUERIES; /* of queries: with its grad_q, with its scores */
    const auto bar = [&](int i) { return base + BARS_AT + 8 * i; };
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, row = (WIDE ? 0 : 64 * w) + 16 * warp,
              chunk = WIDE ? 16 * w : 0;
    const int first_query = WIDE ? own * w : 0, query = first_query + lane % 4 * 2;
    const float scale = score_scale(p), cap = score_cap(p);
    const float *lse = (const float *)(shared + LSE_AT) + query, *delta = (const float *)(shared + DELTA_AT) + query;
    const uint64_t q_rows = along_rows(base + Q_AT + first_query * ROW),
                   out_rows = along_rows(base + OUT_AT + first_query * ROW);
    const uint64_t q_columns = across_rows(base + Q_AT + chunk / 8 * QUERIES * ROW, QUERIES);
    const uint64_t out_columns = across_rows(base + OUT_AT + chunk / 8 * QUERIES * ROW, QUERIES);
    float grad_q[halves][chunks][4];
#pragma unroll
    for (int half = 0; half < halves; half++)
        clear(grad_q[half]);

    ignis_mbarrier_wait(bar(FULL_Q), 0);
    if (RANGE && !used_rows::queries(p, walk.b, walk.keys).has_all(0, QUERIES, p.sq)) {
        const used_rows used = used_rows::queries(p, walk.b, walk.keys);
        used.clear_others(shared + Q_AT, SLABS, QUERIES, 0);
        used.clear_others(shared + OUT_AT, SLABS, QUERIES, 0);
        used.meet();
    }
#pragma unroll 1
    for (int tile = walk.first; tile < walk.end; tile++) {
        const int i = tile - walk.first, stage = i % STAGES;
        const uint32_t k = base + stage * STAGE_BYTES, v = k + KV_BYTES, half_of_keys = WIDE ? 0 : w * 64 * ROW;
        float grad[chunks][4]; /* of v, then of k */
        ignis_mbarrier_wait(bar(FULL_KV + stage), i / STAGES % 2);
        clear(grad);
        if (RANGE && !walk.is_seen(p, tile)) {
            store_gradients(v, row, chunk, grad, 1);
        } else {
            float x[own / 8][4], y[own / 8][4];
            uint32_t weights[own / 16][4], gradients[own / 16][4];
            if (RANGE && !used_rows::keys(p, walk.b, walk.keys).has_all(tile * KEYS, KEYS, p.sk)) {
                const used_rows used = used_rows::keys(p, walk.b, walk.keys);
                used.clear_others(shared + stage * STAGE_BYTES, SLABS, KEYS, tile * KEYS);
                used.clear_others(shared + stage * STAGE_BYTES + KV_BYTES, SLABS, KEYS, tile * KEYS);
                used.meet();
            }
            product_of_rows(x, along_rows(k + half_of_keys), KEYS, q_rows, QUERIES);
            product_of_rows(y, along_rows(v + half_of_keys), KEYS, out_rows, QUERIES);
            ignis_ptx_wgmma_wait<1>();
            ignis_wgmma_hold(x);
            probabilities(x, lse, scale, cap, walk.is_masked(p, tile), p, walk.b, walk.keys,
                          tile * KEYS + row + lane / 4, query);
            round_results(weights, x);
            ignis_ptx_wgmma_wait<0>();
            ignis_wgmma_hold(y);
            score_gradients(y, x, delta, lse, cap);
            round_results(gradients, y);
            store_operands(base + S_AT, KEYS, row, first_query / 8, gradients);
            if constexpr (WIDE)
                store_operands(base + P_AT, KEYS, row, first_query / 8, weights);
            else
                add_product(grad, weights, out_columns);
            ignis_ptx_fence_proxy_async();
            ignis_ptx_bar_sync(BOTH_GROUPS, 256);

            if constexpr (WIDE)
                add_tile_product(grad, along_rows(base + P_AT), out_columns);
#pragma unroll
            for (int half = 0; half < halves; half++)
                product_of_keys<1>(grad_q[half], across_rows(base + S_AT + (WIDE ? half : w) * KEYS * ROW, KEYS),
                                   across_rows(k + chunk / 8 * KEYS * ROW, KEYS));
            ignis_ptx_wgmma_wait<halves>();
            ignis_wgmma_hold(grad);
            if constexpr (!WIDE)
                ignis_wgmma_hold(weights);
            store_gradients(v, row, chunk, grad, 1);
            clear(grad);
            if constexpr (WIDE)
                add_tile_product(grad, along_rows(base + S_AT), q_columns);
            else
                add_product(grad, gradients, q_columns);
            ignis_ptx_wgmma_wait<0>();
#pragma unroll
            for (int half = 0; half < halves; half++)
                ignis_wgmma_hold(grad_q[half]);
            ignis_wgmma_hold(grad);
            if constexpr (!WIDE)
                ignis_wgmma_hold(gradients);
            ignis_ptx_bar_sync(BOTH_GROUPS, 256); /* nobody reads the keys and scores any more */
        }
        store_gradients(k, row, chunk, grad, (float)p.scale);
        ignis_ptx_fence_proxy_async();
        ignis_warp_arrive(bar(DONE + stage));
    }

    const long long heads = (long long)p.batches * p.heads;
    float *to = s.grad_q + (walk.part * heads + walk.pair) * p.sq * D + 8 * chunk + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < halves; half++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int its = (WIDE ? half : w) * 64 + 16 * warp + lane / 4 + 8 * e;
            if (its < p.sq)
#pragma unroll
                for (int j = 0; j < chunks; j++)
                    *(float2 *)(to + (long long)its * D + 8 * j) =
                        make_float2(grad_q[half][j][2 * e], grad_q[half][j][2 * e + 1]);
        }
}

/*  grid = parts of the keys * heads * batches, blocks of 384 threads, SHARED_BYTES. */
extern "C" __global__ void __launch_bounds__(384, 1)
    ignis_sdpa_backward(const __grid_constant__ ignis__tensor_map q, const __grid_constant__ ignis__tensor_map k,
                        const __grid_constant__ ignis__tensor_map v, const __grid_constant__ ignis__tensor_map grad_out,
                        const __grid_constant__ ignis__tensor_map grad_k,
                        const __grid_constant__ ignis__tensor_map grad_v, const Attention p,
                        const ignis__attention_scratch s)
{
    ignis_grid_dependency();
    extern __shared__ __align__(1024) char shared[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 1 + 2 * STAGES; i++)
            ignis_ptx_mbarrier_init(base + BARS_AT + 8 * i,
                                    i < DONE ? 1 : 8 * IGNIS_WARP_ARRIVALS); /* warps that are done */
        ignis_ptx_fence_mbarrier_init();
    }
    __syncthreads();
    const few_walk walk(p, s);
    if (group == 0) {
        ignis_ptx_setmaxnreg_dec<24>(); /* as below */
        if (threadIdx.x == 0)
            carry_all(base, &q, &k, &v, &grad_out, &grad_k, &grad_v, s, walk);
        return;
    }
    ignis_ptx_setmaxnreg_inc<240>();
    constexpr int first = WIDE ? 16 : CHUNKS, second = SAME_CODE ? first : CHUNKS - first;
    if constexpr (SAME_CODE)
        compute_group<first>(shared, base, group - 1, p, s, walk);
    else if (group == 1)
        compute_group<first>(shared, base, 0, p, s, walk);
    else
        compute_group<second>(shared, base, 1, p, s, walk);
}

/*  Sums the parts of grad_q, scales and rounds. A thread has 8 columns of a row. grid = ceil(batches * heads
    * sq * D / 8 / 256), blocks of 256. */
extern "C" __global__ void __launch_bounds__(256) ignis_sdpa_backward_finish(Attention p, ignis__attention_scratch s)
{
    ignis_grid_dependency();
    const long long item = (long long)blockIdx.x * 256 + threadIdx.x, row = item / CHUNKS,
                    rows = (long long)p.batches * p.heads * p.sq;
    const int chunk = item % CHUNKS, parts = ((p.sk + KEYS - 1) / KEYS + s.section - 1) / s.section;
    if (row >= rows || chunk * 8 >= HEAD_DIM)
        return;
    const float *from = s.grad_q + item * 8;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll 4
    for (int part = 0; part < parts; part++, from += rows * D) {
        const float4 x = *(const float4 *)from, y = *(const float4 *)(from + 4);
        sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w;
        sum[4] += y.x, sum[5] += y.y, sum[6] += y.z, sum[7] += y.w;
    }
    for (int i = 0; i < 8; i++)
        sum[i] *= (float)p.scale;
    const long long pair = row / p.sq;
    ignis_store<8>(attention_head(p.grad_q, pair / p.heads, pair % p.heads) + row % p.sq * p.grad_q.row + chunk * 8,
                   ignis_pack_round<T>(sum));
}

#else /* not FEW */

/*  WIDE: returns where the columns of grad_q of a group and a block of the cluster begin; there are 64, or
    half of a third slab. */
__device__ inline int columns_of(int w, int rank) { return w == 0 ? 64 * rank : 128 + (SLABS == 4 ? 64 : 32) * rank; }

/* >>producers --------------------------------------------------------------------------------------------------- */

/*  One thread loads keys and values, then tile after tile of q and grad_out. */
__device__ inline void load_all(uint32_t base, const ignis__tensor_map *q, const ignis__tensor_map *k,
                                const ignis__tensor_map *v, const ignis__tensor_map *grad_out, const Attention &p,
                                const ignis__attention_scratch &s, const block_walk &walk)
{
    const auto bar = [&](int i) { return base + BARS_AT + 8 * i; };
    ignis_ptx_mbarrier_arrive_expect(bar(FULL_KV), 2 * KV_BYTES + (WIDE ? 2 * SLAB_BYTES : 0));
    if constexpr (WIDE) {
        const int rank = walk.rank(), other = walk.first_key() + (rank ? -KEYS : KEYS);
        for (int slab = 0; slab < SLABS; slab++)
            load_slab(base + K_AT + slab * SLAB_BYTES, k, bar(FULL_KV), slab, walk.first_key(), walk.kv_h, walk.b);
        for (int w = 0; w < 2; w++)
            load_slab(base + OTHER_K_AT + w * SLAB_BYTES, k, bar(FULL_KV), columns_of(w, rank) / 64, other, walk.kv_h,
                      walk.b);
    } else {
        load_tile(base + K_AT, k, bar(FULL_KV), KEYS, walk.first_key(), walk.kv_h, walk.b);
    }
    load_tile(base + V_AT, v, bar(FULL_KV), KEYS, walk.first_key(), walk.kv_h, walk.b);
    int i = 0;
    for (int g = 0; g < walk.group; g++) {
        const int h = walk.kv_h * walk.group + g;
        const long long stat = walk.head(p, g) * s.rows;
        for (int step = 0; step < walk.steps(); step++, i++) {
            const int from = walk.tile(step) * QUERIES;
            const int stage = i % Q_STAGES, out_stage = i % OUT_STAGES;
            ignis_mbarrier_wait(bar(EMPTY_Q + stage), i / Q_STAGES % 2 ^ 1);
            ignis_ptx_mbarrier_arrive_expect(bar(FULL_Q + stage), Q_BYTES + QUERIES * 4);
            load_tile(base + Q_AT + stage * Q_BYTES, q, bar(FULL_Q + stage), QUERIES, from, h, walk.b);
            ignis_ptx_bulk_load(base + LSE_AT + stage * QUERIES * 4, s.lse + stat + from, QUERIES * 4,
                                bar(FULL_Q + stage));
            ignis_mbarrier_wait(bar(EMPTY_OUT + out_stage), i / OUT_STAGES % 2 ^ 1);
            ignis_ptx_mbarrier_arrive_expect(bar(FULL_OUT + out_stage), Q_BYTES + QUERIES * 4);
            load_tile(base + OUT_AT + out_stage * Q_BYTES, grad_out, bar(FULL_OUT + out_stage), QUERIES, from, h,
                      walk.b);
            ignis_ptx_bulk_load(base + DELTA_AT + out_stage * QUERIES * 4, s.delta + stat + from, QUERIES * 4,
                                bar(FULL_OUT + out_stage));
        }
    }
}

/*  Adds a buffer to grad_q, or, as the first one, stores it. */
__device__ inline void add_buffer(float *to, uint32_t from, uint32_t bytes, bool first)
{
    if (first)
        ignis_ptx_bulk_store(to, from, bytes);
    else
        ignis_ptx_bulk_add_f32(to, from, bytes);
    ignis_ptx_bulk_commit();
}

__device__ inline void wait_until_ready(uint32_t base, unsigned step)
{
    while (ignis_ptx_ld_volatile_shared(base + READY_AT) <= step)
        ;
    ignis_ptx_fence_proxy_async_all();
}

__device__ inline void end_turn(uint32_t *turns, unsigned turn)
{
    ignis_ptx_bulk_wait<0>();
    ignis_ptx_fence_proxy_async_all();
    ignis_ptx_st_release_u32(turns, turn + 1);
}

/*  Two warps add to grad_q, alternate steps, so that one adds while the other waits until it is done. In a
    step, each group has half of the buffer. */
__device__ inline void add_steps(uint32_t base, int me, const Attention &p, const ignis__attention_scratch &s,
                                 const block_walk &walk)
{
    const int lane = threadIdx.x % 32;
    const uint32_t from = base + ADD_AT + me * ADD_BYTES;
    constexpr uint32_t half = D == 64 ? ADD_BYTES / 2 : 64 * 64 * 4; /* of the queries, or 64 columns */
    unsigned i = 0;
    for (int g = 0; g < walk.group; g++)
        for (int step = 0; step < walk.steps(); step++, i++) {
            if (i % 2 != (unsigned)me)
                continue;
            const long long tile = walk.head(p, g) * walk.tiles + walk.tile(step);
            const unsigned turn = walk.turn(p, walk.tile(step));
            float *to = s.grad_q + tile * (QUERIES * D);
#pragma unroll
            for (int w = 0; w < 2; w++) {
                ignis_ptx_bar_sync(ADD_FULL + w + 2 * me, 160);
                if (lane == 0) {
                    if (w == 0)
                        wait_until_ready(base, i);
                    add_buffer(to + w * (half / 4), from + w * half, w ? ADD_BYTES - half : half, turn == 0);
                }
                __syncwarp();
            }
#pragma unroll
            for (int w = 0; w < 2; w++) {
                if (lane == 0) {
                    if (w)
                        ignis_ptx_bulk_wait_read<0>();
                    else
                        ignis_ptx_bulk_wait_read<1>();
                }
                __syncwarp();
                ignis_ptx_bar_arrive(ADD_EMPTY + w + 2 * me, 160);
            }
            if (lane == 0)
                end_turn(s.turns + tile, turn);
            __syncwarp();
        }
}

/*  DIRECT: the threads of a group add to grad_q. A warp tells them when it is their turn, and the next block
    when they have added. */
__device__ inline void lead_adding(int w, const Attention &p, const ignis__attention_scratch &s, const block_walk &walk)
{
    const int lane = threadIdx.x % 32;
    for (int g = 0; g < walk.group; g++)
        for (int step = 0; step < walk.steps(); step++) {
            const unsigned turn = walk.turn(p, walk.tile(step));
            uint32_t *const turns =
                s.turns + (walk.head(p, g) * walk.tiles + walk.tile(step)) * TURNS + CLUSTER * w + walk.rank();
            if (lane == 0)
                while (turn != 0 && ignis_ptx_ld_acquire_u32(turns) != turn)
                    ;
            __syncwarp();
            ignis_ptx_bar_arrive(ADD_EMPTY + w, 160);
            ignis_ptx_bar_sync(ADD_FULL + w, 160);
            if (lane == 0)
                ignis_ptx_st_release_u32(turns, turn + 1);
            __syncwarp();
        }
}

/*  One thread waits for the block's turn, before the threads that add. */
__device__ inline void watch_turns(uint32_t base, const Attention &p, const ignis__attention_scratch &s,
                                   const block_walk &walk)
{
    unsigned i = 0;
    for (int g = 0; g < walk.group; g++)
        for (int step = 0; step < walk.steps(); step++) {
            const uint32_t *turns = s.turns + walk.head(p, g) * walk.tiles + walk.tile(step);
            const unsigned turn = walk.turn(p, walk.tile(step));
            while (turn != 0 && ignis_ptx_ld_acquire_u32(turns) != turn)
                ;
            ignis_ptx_st_volatile_shared(base + READY_AT, ++i);
        }
}

/* >>backward ---------------------------------------------------------------------------------------------------- */

/*  Waits for the keys and values. Unused keys become zeros, and unused queries: see used_rows. */
__device__ inline void wait_for_keys(char *shared, uint32_t base, const Attention &p, const block_walk &walk)
{
    ignis_mbarrier_wait(base + BARS_AT + 8 * FULL_KV, 0);
    if (RANGE && !used_rows::keys(p, walk.b, walk.keys).has_all(walk.block * SPAN, SPAN, p.sk)) {
        const used_rows used = used_rows::keys(p, walk.b, walk.keys);
        used.clear_others(shared + K_AT, SLABS, KEYS, walk.first_key());
        used.clear_others(shared + V_AT, SLABS, KEYS, walk.first_key());
        if (WIDE)
            used.clear_others(shared + OTHER_K_AT, 2, KEYS, walk.first_key() + (walk.rank() ? -KEYS : KEYS));
        used.meet();
    }
}

/*  Of a tile that is there, or will be: stages of q and grad_out, and the parities of their phases. */
__device__ inline void clear_queries(char *shared, uint32_t base, const Attention &p, const block_walk &walk, int tile,
                                     int stage, int parity, int out_stage, int out_parity)
{
    const used_rows used = used_rows::queries(p, walk.b, walk.keys);
    if (used.has_all(tile * QUERIES, QUERIES, p.sq))
        return;
    ignis_mbarrier_wait(base + BARS_AT + 8 * (FULL_Q + stage), parity);
    ignis_mbarrier_wait(base + BARS_AT + 8 * (FULL_OUT + out_stage), out_parity);
    used.clear_others(shared + Q_AT + stage * Q_BYTES, SLABS, QUERIES, tile * QUERIES);
    used.clear_others(shared + OUT_AT + out_stage * Q_BYTES, SLABS, QUERIES, tile * QUERIES);
    used.meet();
}

template <bool masked> struct Mask {
    __device__ constexpr operator bool() const { return masked; }
};

/*  All steps of a group of warps; step is called with whether the tile is masked, which of the heads it is
    of, and the tile. Two loops, so that most tiles are without a question, or one that asks, where that makes
    four copies of step two. */
template <typename Step> __device__ inline void walk_tiles(const Attention &p, const block_walk &walk, Step step)
{
    for (int g = 0; g < walk.group; g++) {
        int i = 0;
        if constexpr (RANGE && SAME_CODE && !SOFTCAP) {
#pragma unroll 1
            while (i < walk.steps()) {
#pragma unroll 1
                for (; i < walk.steps() && walk.is_masked(p, walk.tile(i)); i++)
                    step(Mask<true>(), g, walk.tile(i));
#pragma unroll 1
                for (; i < walk.steps() && !walk.is_masked(p, walk.tile(i)); i++)
                    step(Mask<false>(), g, walk.tile(i));
            }
        } else if constexpr (RANGE) {
#pragma unroll 1
            for (; i < walk.steps(); i++)
                if constexpr (SOFTCAP && D == 64) /* registers hold no other way */
                    step(Mask<true>(), g, walk.tile(i));
                else
                    step(walk.is_masked(p, walk.tile(i)), g, walk.tile(i));
        } else if constexpr (!SAME_CODE) {
#pragma unroll 1
            for (; i < walk.steps(); i++)
                step(CAUSAL && walk.down ? i >= walk.steps() - walk.masked : i < walk.masked, g, walk.tile(i));
        } else if constexpr (CAUSAL) {
#pragma unroll 1
            for (int pass = 0; pass < 2; pass++)
                if (pass == walk.down) { /* the masked ones come first, or last when going down */
#pragma unroll 1
                    for (const int end = i + walk.masked; i < end; i++)
                        step(Mask<true>(), g, walk.tile(i));
                } else {
#pragma unroll 1
                    for (const int end = i + walk.steps() - walk.masked; i < end; i++)
                        step(Mask<false>(), g, walk.tile(i));
                }
        } else {
#pragma unroll 1
            for (; i < walk.masked; i++)
                step(Mask<true>(), g, walk.tile(i));
#pragma unroll 1
            for (; i < walk.steps(); i++)
                step(Mask<false>(), g, walk.tile(i));
        }
    }
}

/*  DIRECT: adds a group's columns of a step's grad_q, of which `n` chunks exist, when it is the block's turn. */
template <int n> __device__ inline void add_to_grad_q(float *to, int w, int chunks, bool first, const float (&z)[n][4])
{
    float4 *const at = (float4 *)to + threadIdx.x % 128;
    ignis_ptx_bar_sync(ADD_EMPTY + w, 160);
#pragma unroll
    for (int j = 0; j < n; j++) {
        const float4 x = make_float4(z[j][0], z[j][1], z[j][2], z[j][3]);
        if (j < chunks && first)
            at[j * 128] = x;
        else if (j < chunks)
            ignis_ptx_red_add_f32(at + j * 128, x);
    }
    ignis_ptx_bar_arrive(ADD_FULL + w, 160);
}

#if IGNIS_HEAD_DIM <= 128

/*  A group's share of a step's grad_q, columns of 64 rows, into a buffer that a warp of the producers adds
    from. */
template <int n> __device__ inline void hand_over(char *buffer, const float (&z)[n][4], int full, int empty)
{
    ignis_ptx_bar_sync(empty, 160);
#pragma unroll
    for (int j = 0; j < n; j++)
        *(float4 *)(buffer + (j * 128 + threadIdx.x % 128) * 16) = make_float4(z[j][0], z[j][1], z[j][2], z[j][3]);
    ignis_ptx_fence_proxy_async();
    ignis_ptx_bar_arrive(full, 160);
}

/*  A group with all columns of 64 keys. It has own_chunks chunks of columns of grad_q. */
template <int own_chunks>
__device__ inline void compute_group(char *shared, uint32_t base, int w, const Attention &p,
                                     const ignis__attention_scratch &s, const block_walk &walk)
{
    constexpr bool SPLIT_QUERIES =
        D == 64; /* a group has half of the queries of grad_q; else one of two slabs of columns */
    const auto bar = [&](int i) { return base + BARS_AT + 8 * i; };
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, row = 64 * w + 16 * warp;
    const int key = walk.first_key() + row + lane / 4;
    const float scale = score_scale(p), cap = score_cap(p);
    float grad_k[CHUNKS][4], grad_v[CHUNKS][4];
#pragma unroll
    for (int j = 0; j < CHUNKS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            grad_k[j][e] = grad_v[j][e] = 0;
    const uint64_t k_rows = along_rows(base + K_AT + w * 64 * ROW), v_rows = along_rows(base + V_AT + w * 64 * ROW);
    const uint64_t q_rows = along_rows(base + Q_AT), out_rows = along_rows(base + OUT_AT);
    const uint64_t q_columns = across_rows(base + Q_AT, QUERIES), out_columns = across_rows(base + OUT_AT, QUERIES);
    const uint64_t k_columns = across_rows(base + K_AT + (SPLIT_QUERIES ? 0 : w * KEYS * ROW), KEYS);
    int stage = 0, parity = 0; /* the stage also of scores and of grad_q on their way */

    if (warp < 2 && !DIRECT)
        ignis_ptx_bar_arrive(ADD_EMPTY + w + 2 * warp, 160); /* nobody has to wait for the first use of a buffer */
    wait_for_keys(shared, base, p, walk);
    walk_tiles(p, walk, [&](auto masked, int g, int tile) {
        float x[QUERIES / 8][4], y[QUERIES / 8][4];
        uint32_t weights[QUERIES / 16][4], gradients[QUERIES / 16][4];
        const uint32_t scores = base + S_AT + stage * S_BYTES;
        const uint32_t of_stage = stage * Q_BYTES;

        if ((CAUSAL || RANGE) && masked)
            clear_queries(shared, base, p, walk, tile, stage, parity, stage, parity);
        ignis_mbarrier_wait(bar(FULL_Q + stage), parity);
        product_of_rows(x, k_rows, KEYS, ignis_wgmma_ahead(q_rows, of_stage), QUERIES);
        ignis_mbarrier_wait(bar(FULL_OUT + stage), parity);
        product_of_rows(y, v_rows, KEYS, ignis_wgmma_ahead(out_rows, of_stage), QUERIES);
        ignis_ptx_wgmma_wait<1>();
        ignis_wgmma_hold(x);
        const float *lse = (const float *)(shared + LSE_AT) + stage * QUERIES + lane % 4 * 2;
        probabilities(x, lse, scale, cap, masked, p, walk.b, walk.keys, key, tile * QUERIES + lane % 4 * 2);
        round_results(weights, x);
        ignis_ptx_wgmma_wait<0>();
        ignis_wgmma_hold(y);
        score_gradients(y, x, (const float *)(shared + DELTA_AT) + stage * QUERIES + lane % 4 * 2, lse, cap);
        round_results(gradients, y);
        store_operands(scores, KEYS, row, 0, gradients);

        add_product(grad_v, weights, ignis_wgmma_ahead(out_columns, of_stage));
        ignis_ptx_fence_proxy_async();
        ignis_ptx_bar_sync(BOTH_GROUPS, 256);
        float z[own_chunks][4];
        const uint64_t score_columns = across_rows(scores + (SPLIT_QUERIES ? w * KEYS * ROW : 0), KEYS);
        product_of_keys(z, score_columns, k_columns);
        ignis_ptx_wgmma_wait<1>();
        ignis_wgmma_hold(grad_v);
        ignis_wgmma_hold(weights);
        ignis_warp_arrive(bar(EMPTY_OUT + stage));
        add_product(grad_k, gradients, ignis_wgmma_ahead(q_columns, of_stage));
        ignis_ptx_wgmma_wait<1>();
        ignis_wgmma_hold(z);
        if constexpr (DIRECT)
            add_to_grad_q(s.grad_q + (walk.head(p, g) * walk.tiles + tile) * (QUERIES * D) + w * (64 * QUERIES), w,
                          own_chunks, walk.turn(p, tile) == 0, z);
        else
            hand_over(shared + ADD_AT + stage * ADD_BYTES + w * (SPLIT_QUERIES ? ADD_BYTES / 2 : 64 * 64 * 4), z,
                      ADD_FULL + w + 2 * stage, ADD_EMPTY + w + 2 * stage);
        ignis_ptx_wgmma_wait<0>();
        ignis_wgmma_hold(grad_k);
        ignis_wgmma_hold(gradients);
        ignis_warp_arrive(bar(EMPTY_Q + stage));
        stage ^= 1;
        parity ^= stage == 0;
    });

    ignis_ptx_bar_sync(BOTH_GROUPS, 256); /* nobody reads keys and values any more */
    store_gradients(base + K_AT, row, 0, grad_k, (float)p.scale);
    store_gradients(base + V_AT, row, 0, grad_v, 1);
}

#else

/*  A group with the first 128 columns or the others, of all keys. Each group computes the scores of half of
    the queries; then they exchange them. dS also goes to the cluster's other block, in two stages. No
    acknowledgement is needed: that block sent its dS for a step after all steps before, so the stage of the
    step before is free when it arrives. */
template <int own_chunks>
__device__ inline void compute_group(char *shared, uint32_t base, int w, const Attention &p,
                                     const ignis__attention_scratch &s, const block_walk &walk)
{
    constexpr int own = QUERIES / 2; /* queries */
    const auto bar = [&](int i) { return base + BARS_AT + 8 * i; };
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, query = w * own + lane % 4 * 2;
    const int key = walk.first_key() + 16 * warp + lane / 4, rank = walk.rank();
    const float scale = score_scale(p), cap = score_cap(p);
    float grad_k[own_chunks][4], grad_v[own_chunks][4];
#pragma unroll
    for (int j = 0; j < own_chunks; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            grad_k[j][e] = grad_v[j][e] = 0;
    const uint64_t k_rows = along_rows(base + K_AT), v_rows = along_rows(base + V_AT);
    const uint64_t q_rows = along_rows(base + Q_AT + w * own * ROW),
                   out_rows = along_rows(base + OUT_AT + w * own * ROW);
    const uint64_t q_columns = across_rows(base + Q_AT + 2 * w * QUERIES * ROW, QUERIES);
    const uint64_t out_columns = across_rows(base + OUT_AT + 2 * w * QUERIES * ROW, QUERIES);
    constexpr int n = SLABS == 4 || own_chunks == 16 ? 8 : 4; /* chunks of grad_q */
    const int columns = columns_of(w, rank);
    const uint64_t k_columns = column(across_rows(base + K_AT, KEYS), KEYS, columns);
    const uint64_t other_columns = across_rows(base + OTHER_K_AT + w * SLAB_BYTES + columns % 64 * 2, KEYS);
    const uint32_t other_scores = ignis_ptx_mapa(base + OTHER_S_AT, rank ^ 1),
                   other_received = ignis_ptx_mapa(bar(RECEIVED), rank ^ 1);
    float *const grad_q = s.grad_q + columns * QUERIES;
    int i = 0;

    wait_for_keys(shared, base, p, walk);
    walk_tiles(p, walk, [&](auto masked, int g, int tile) {
        float x[own / 8][4], y[own / 8][4];
        uint32_t operands[own / 16][4];
        const uint32_t scores = base + S_AT + i % 2 * S_BYTES, weights = base + P_AT + i % 2 * S_BYTES;
        const int stage = i % Q_STAGES, out_stage = i % OUT_STAGES;

        if ((CAUSAL || RANGE) && masked)
            clear_queries(shared, base, p, walk, tile, stage, i / Q_STAGES % 2, out_stage, i / OUT_STAGES % 2);
        ignis_mbarrier_wait(bar(FULL_Q + stage), i / Q_STAGES % 2);
        product_of_rows(x, k_rows, KEYS, ignis_wgmma_ahead(q_rows, stage * Q_BYTES), QUERIES);
        ignis_mbarrier_wait(bar(FULL_OUT + out_stage), i / OUT_STAGES % 2);
        product_of_rows(y, v_rows, KEYS, ignis_wgmma_ahead(out_rows, out_stage * Q_BYTES), QUERIES);
        ignis_ptx_wgmma_wait<1>();
        ignis_wgmma_hold(x);
        const float *lse = (const float *)(shared + LSE_AT) + stage * QUERIES + query;
        probabilities(x, lse, scale, cap, masked, p, walk.b, walk.keys, key, tile * QUERIES + query);
        round_results(operands, x);
        store_operands(weights, KEYS, 16 * warp, w * (own / 8), operands);
        ignis_ptx_fence_proxy_async();
        ignis_ptx_bar_sync(BOTH_GROUPS, 256);

        add_tile_product(grad_v, along_rows(weights), ignis_wgmma_ahead(out_columns, out_stage * Q_BYTES));
        ignis_ptx_wgmma_wait<1>();
        ignis_wgmma_hold(y);
        score_gradients(y, x, (const float *)(shared + DELTA_AT) + out_stage * QUERIES + query, lse, cap);
        round_results(operands, y);
        store_operands(scores, KEYS, 16 * warp, w * (own / 8), operands);
        ignis_ptx_fence_proxy_async();
        ignis_ptx_bar_sync(BOTH_GROUPS, 256);
        if (threadIdx.x == 128) {
            ignis_ptx_mbarrier_arrive_expect(bar(RECEIVED + i % 2), S_BYTES);
            ignis_ptx_bulk_send(other_scores + i % 2 * S_BYTES, scores, S_BYTES, other_received + i % 2 * 8);
        }
        __syncwarp();

        add_tile_product(grad_k, along_rows(scores), ignis_wgmma_ahead(q_columns, stage * Q_BYTES));
        ignis_ptx_wgmma_wait<1>();
        ignis_wgmma_hold(grad_v);
        ignis_warp_arrive(bar(EMPTY_OUT + out_stage));
        float z[n][4];
        product_of_keys(z, across_rows(scores, KEYS), k_columns);
        ignis_mbarrier_wait(bar(RECEIVED + i % 2), i / 2 % 2);
        continue_of_keys(z, across_rows(base + OTHER_S_AT + i % 2 * S_BYTES, KEYS), other_columns);
        ignis_ptx_wgmma_wait<0>();
        ignis_wgmma_hold(grad_k);
        ignis_warp_arrive(bar(EMPTY_Q + stage));
        ignis_wgmma_hold(z);
        add_to_grad_q(grad_q + (walk.head(p, g) * walk.tiles + tile) * (QUERIES * D), w, CHUNKS - columns / 8,
                      walk.turn(p, tile) == 0, z);
        i++;
    });

    ignis_ptx_bar_sync(BOTH_GROUPS, 256);
    store_gradients(base + K_AT, 16 * warp, 16 * w, grad_k, (float)p.scale);
    store_gradients(base + V_AT, 16 * warp, 16 * w, grad_v, 1);
}

#endif

__device__ inline void compute(char *shared, uint32_t base, int w, const Attention &p,
                               const ignis__attention_scratch &s, const block_walk &walk)
{
    constexpr int first = WIDE ? 16 : 8, second = SAME_CODE ? first : CHUNKS - first;
    if constexpr (SAME_CODE)
        compute_group<first>(shared, base, w, p, s, walk);
    else if (w == 0)
        compute_group<first>(shared, base, 0, p, s, walk);
    else
        compute_group<second>(shared, base, 1, p, s, walk);
}

#if IGNIS_HEAD_DIM > 128
#define IGNIS_CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
#else /* no cluster is not a cluster of one block, which needs a device with clusters */
#define IGNIS_CLUSTERED
#endif

/*  grid = CLUSTER * ceil(sk / SPAN) * kv_heads * batches, blocks of 384 threads, SHARED_BYTES. */
extern "C" __global__ void IGNIS_CLUSTERED __launch_bounds__(384, 1)
    ignis_sdpa_backward(const __grid_constant__ ignis__tensor_map q, const __grid_constant__ ignis__tensor_map k,
                        const __grid_constant__ ignis__tensor_map v, const __grid_constant__ ignis__tensor_map grad_out,
                        const __grid_constant__ ignis__tensor_map grad_k,
                        const __grid_constant__ ignis__tensor_map grad_v, const Attention p,
                        const ignis__attention_scratch s)
{
    ignis_grid_dependency();
    extern __shared__ __align__(1024) char shared[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    const auto bar = [&](int i) { return base + BARS_AT + 8 * i; };
    const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        ignis_ptx_mbarrier_init(bar(FULL_KV), 1);
        for (int i = 0; i < 2; i++) {
            ignis_ptx_mbarrier_init(bar(FULL_Q + i), 1);
            ignis_ptx_mbarrier_init(bar(FULL_OUT + i), 1);
            ignis_ptx_mbarrier_init(bar(EMPTY_Q + i), 8 * IGNIS_WARP_ARRIVALS); /* warps */
            ignis_ptx_mbarrier_init(bar(EMPTY_OUT + i), 8 * IGNIS_WARP_ARRIVALS);
            ignis_ptx_mbarrier_init(bar(RECEIVED + i), 1);
        }
        ignis_ptx_fence_mbarrier_init();
        ignis_ptx_st_volatile_shared(base + READY_AT, 0);
        if (block_walk::rank() == 0)
            ignis_ptx_st_volatile_shared(base + PLACE_AT, atomicAdd(s.next, 1));
    }
    if (threadIdx.x == 32) { /* while the others wait for the block's place */
        ignis_ptx_prefetch_tensormap(&k);
        ignis_ptx_prefetch_tensormap(&v);
        ignis_ptx_prefetch_tensormap(&q);
        ignis_ptx_prefetch_tensormap(&grad_out);
    }
    if constexpr (CLUSTER > 1) { /* once all have begun, the other block learns the place */
        ignis_ptx_cluster_arrive();
        ignis_ptx_cluster_wait();
        if (threadIdx.x == 0 && block_walk::rank() == 0)
            ignis_ptx_st_cluster(ignis_ptx_mapa(base + PLACE_AT, 1),
                                 make_float2(__uint_as_float(ignis_ptx_ld_volatile_shared(base + PLACE_AT)), 0));
        ignis_ptx_cluster_arrive();
        ignis_ptx_cluster_wait();
    } else {
        __syncthreads();
    }
    const block_walk walk(p, s.section, __shfl_sync(0xffffffff, ignis_ptx_ld_volatile_shared(base + PLACE_AT), 0));

    if (group == 0) {
        ignis_ptx_setmaxnreg_dec<24>(); /* 128 * 24 + 256 * 240 registers are what the launch got: 384 * 168 */
        const int warp = threadIdx.x / 32;
        if (warp == 0) {
            if (threadIdx.x == 0)
                load_all(base, &q, &k, &v, &grad_out, p, s, walk);
        } else if (warp < 3) {
            if constexpr (DIRECT)
                lead_adding(warp - 1, p, s, walk);
            else
                add_steps(base, warp - 1, p, s, walk);
        } else if (!DIRECT && threadIdx.x % 32 == 0)
            watch_turns(base, p, s, walk);
        return;
    }
    ignis_ptx_setmaxnreg_inc<240>();
    compute(shared, base, group - 1, p, s, walk);
    ignis_ptx_fence_proxy_async();
    ignis_ptx_bar_sync(BOTH_GROUPS, 256);
    if (threadIdx.x == 128) {
        store_tile(&grad_k, base + K_AT, KEYS, walk.first_key(), walk.kv_h, walk.b);
        store_tile(&grad_v, base + V_AT, KEYS, walk.first_key(), walk.kv_h, walk.b);
        ignis_ptx_bulk_commit();
    }
    if (s.sums) { /* while they are stored */
        constexpr int parts = KEYS / SUMMED;
        const int pair = (threadIdx.x - 128) % PAIRS, item = (threadIdx.x - 128) / PAIRS, part = item % parts,
                  of_v = item / parts;
        if (of_v < 2)
            sum_pair(p, s, walk.b, walk.first_key() / SUMMED + part, p.heads + of_v * p.kv_heads + walk.kv_h, pair,
                     [&](int row) {
                         return shared + chunk_at(of_v ? V_AT : K_AT, KEYS, part * SUMMED + row, pair / 4) +
                                pair % 4 * 4;
                     });
    }
    if (threadIdx.x == 128)
        ignis_ptx_bulk_wait<0>();
    if constexpr (CLUSTER > 1) { /* the other block has read what was sent to it */
        ignis_ptx_cluster_arrive();
        ignis_ptx_cluster_wait();
    }
}

/* >>finish ------------------------------------------------------------------------------------------------------ */

/*  The rotation of q and k; their gradients are rotated back. */
struct rotation : ignis__rotation {
    /*  Rotates back a chunk of a row of a head, and the one half a row after it. */
    __device__ void back(uint4 &first, uint4 &second, int row, int chunk) const
    {
        float sine[8], cosine[8];
        angles(sine, cosine, row + offset, own, frequencies, chunk * 8, -1.0f);
        auto a = ignis_pack_of<ignis_pack<T, 8>>(first), b = ignis_pack_of<ignis_pack<T, 8>>(second);
        turn_pairs(a, b, sine, cosine);
        first = ignis_word(a);
        second = ignis_word(b);
    }
};

constexpr int ROW_STRIDE = D * 2 + 16; /* bytes of a row in shared memory */

/*  Writes a tile of grad_q, scaled and rounded, to shared memory, so that rows are stored in chunks of 16
    bytes. */
__device__ inline void round_tile(char *rows, const Attention &p, const ignis__attention_scratch &s, int first, int b)
{
    const int thread = threadIdx.x % 128, lane = threadIdx.x % 32;
    const bool unseen = RANGE ? block_walk::end_block(p, b, first / QUERIES, p.keys(b)) <=
                                    block_walk::first_block(p, b, first / QUERIES)
                              : CAUSAL && first + QUERIES + p.sk - p.sq <= 0; /* by any key, so nobody has written it */
    const float4 *from = (const float4 *)s.grad_q + (long long)blockIdx.x * (QUERIES * D / 4);
    const float scale = (float)p.scale;
    constexpr int WORDS = QUERIES / 64 * CHUNKS / 2; /* of this thread, all on their way before the first is used */
    float4 words[WORDS];
#pragma unroll
    for (int k = 0; k < WORDS; k++)
        words[k] = unseen ? make_float4(0, 0, 0, 0) : __ldcs(from + (2 * k + threadIdx.x / 128) * 128 + thread);
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
        const int i = 2 * k + threadIdx.x / 128;
        const float4 x = words[k];
        char *to = rows + (i / CHUNKS * 64 + thread / 32 * 16 + lane / 4) * ROW_STRIDE + i % CHUNKS * 16 + lane % 4 * 4;
        *(uint32_t *)to = ignis_round_two<T>(x.x * scale, x.y * scale);
        *(uint32_t *)(to + 8 * ROW_STRIDE) = ignis_round_two<T>(x.z * scale, x.w * scale);
    }
    __syncthreads();
}

/*  Stores a tile of grad_q for the caller. grid = tiles * heads * batches, blocks of 256. */
extern "C" __global__ void __launch_bounds__(256) ignis_sdpa_backward_finish(Attention p, ignis__attention_scratch s)
{
    ignis_grid_dependency();
    __shared__ __align__(16) char rows[QUERIES * ROW_STRIDE];
    const int tiles = s.rows / QUERIES, first = blockIdx.x % tiles * QUERIES, item = blockIdx.x / tiles,
              h = item % p.heads, b = item / p.heads;
    round_tile(rows, p, s, first, b);
    T *to = attention_head(p.grad_q, b, h);
#pragma unroll
    for (int i = threadIdx.x; i < QUERIES * CHUNKS; i += 256) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        if (first + row < p.sq && chunk * 8 < HEAD_DIM)
            *(uint4 *)(to + (first + row) * p.grad_q.row + chunk * 8) =
                *(const uint4 *)(rows + row * ROW_STRIDE + chunk * 16);
    }
    const int pair = threadIdx.x % PAIRS, part = threadIdx.x / PAIRS;
    if (s.sums && part < QUERIES / SUMMED)
        sum_pair(p, s, b, first / SUMMED + part, h, pair,
                 [&](int row) { return rows + (part * SUMMED + row) * ROW_STRIDE + pair * 4; });
}

/*  As above, rotated back; after the blocks of grad_q come those that rotate grad_k in place. For heads of
    full pairs of chunks, and as many keys as queries. grid = tiles * (heads + kv_heads) * batches. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_sdpa_backward_rotated(Attention p, ignis__attention_scratch s, const __grid_constant__ rotation turn)
{
    ignis_grid_dependency();
    __shared__ __align__(16) char rows[QUERIES * ROW_STRIDE];
    const int tiles = s.rows / QUERIES, item = blockIdx.x / tiles, first = blockIdx.x % tiles * QUERIES;
    const bool of_k = item >= p.heads * p.batches;
    const int heads = of_k ? p.kv_heads : p.heads, head = of_k ? item - p.heads * p.batches : item, b = head / heads,
              h = head % heads;
    const auto &grad = of_k ? p.grad_k : p.grad_q;
    if (!of_k)
        round_tile(rows, p, s, first, b);
    T *const to = attention_head(grad, b, h);
    constexpr int HALF = HEAD_DIM / 16; /* chunks */
#pragma unroll 2
    for (int i = threadIdx.x; i < QUERIES * HALF; i += 256) {
        const int row = i / HALF, chunk = i % HALF;
        if (first + row >= p.sq)
            continue;
        uint4 *const at = (uint4 *)(to + (first + row) * grad.row) + chunk;
        const uint4 *const from = of_k ? at : (const uint4 *)(rows + row * ROW_STRIDE) + chunk;
        uint4 one = from[0], other = from[HALF];
        turn.back(one, other, first + row - (DOCUMENTS ? p.document(b, first + row).x : 0), chunk);
        at[0] = one;
        at[HALF] = other;
    }
}

#endif
