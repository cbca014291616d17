// SPDX-License-Identifier: MIT
/*  models/attention_paged_many.cu - attention of many rows over a paged KV cache, on tensor cores

    For f16 and bf16, sm_80 and up, with the bits of attention_paged_mma.cu; see attention_paged.cuh. One program per
    type and size of heads: compiled with -DIGNIS_T=<1 or 2> -DIGNIS_HEAD_DIM=<64 or 128>, which serves smaller heads,
    too; with -DIGNIS_CACHE_TYPE=<1 to 3>, too. head_dim is a multiple of 8.

    With many rows, speed is the bandwidth of the memory. So one block stays on each SM. The tiles of keys of all
    rows form one sequence, of which each block has an equal range. A warp has a tile to itself and waits for no
    other warp. While it multiplies with keys, their values are in flight to shared memory; while it multiplies with
    values, the next keys are. Other warps combine the results of splits. Keys and values of 8 or 4 bits are copied as
    they are, and become operands in registers.
*/
#include "attention_paged.cuh"
#include "mma.cuh"
#include "hopper.cuh"
#include "cache_pairs.cuh"

/*  query heads that are the rows of an MMA; the host has the same, and: */
constexpr int D = IGNIS_HEAD_DIM, HEADS = 8;
constexpr bool TYPED = TYPE != IGNIS__CACHE_NUMBERS;
constexpr int WARPS = TYPED ? 10 : 512 / D, OTHERS = TYPED ? 64 : 128; /* warps that multiply; threads that combine */
constexpr int ROWS = 512;                               /* rows of a launch, at most */
/*  pages of a tile; chunks of 8 elements of a key that a lane has */
constexpr int PAGES = SPLIT / PAGE, OWN = D / 32;
/*  bytes of a query; of the numbers of a key or value, and of its scales */
constexpr int BYTES = 2 * D, ROW = TYPED ? IGNIS__CACHE_ROW(TYPE, D) : BYTES,
              SCALE = TYPED ? IGNIS__CACHE_SCALES(TYPE, D) : 0;
/*  of 16 bytes: chunks of a key, and of a query; rows of them that a warp copies at once */
constexpr int CHUNKS = ROW / 16, AT_ONCE = 32 / CHUNKS, QUERY_CHUNKS = BYTES / 16, QUERIES_AT_ONCE = 32 / QUERY_CHUNKS;
/*  elements of a chunk of a key or value; of them, pairs in a word */
constexpr int ELEMENTS = D / CHUNKS, PAIRS = TYPED ? cache_word(TYPE) / 2 : 1;

/*  A warp's tile in shared memory: keys, values, query heads, scales of keys, of values. Scales are [pages, blocks,
    PAGE], or [pages, PAGE]. */
constexpr int VALUES = SPLIT * ROW, QUERIES = 2 * VALUES, KEY_SCALES = QUERIES + HEADS * BYTES,
              VALUE_SCALES = KEY_SCALES + SPLIT * SCALE, TILE = VALUE_SCALES + SPLIT * SCALE;
static_assert(TILE % 128 == 0, "tiles are aligned");

/*  Swizzles the chunks of a query, or of a key that consists of numbers. Lanes that read one chunk of 8 rows, or 4
    adjacent chunks of 2 rows, have no bank conflicts. */
__device__ constexpr int moved(int row) { return ((row ^ row >> 1) & 1) << 2 | (row >> 2 & 1) << 1 | (row >> 1 & 1); }
__device__ inline uint32_t place(int row, int chunk) { return row * BYTES + (chunk ^ moved(row)) * 16; }
/*  Swizzles the chunks of a key or value. Other types: lanes that read one chunk of 8 rows, or 8 bytes of two adjacent
    chunks of 4 rows, have none. */
__device__ constexpr int key_moved(int row)
{
    return !TYPED        ? moved(row)
           : CHUNKS == 8 ? (row & 3) << 1 | (row >> 2 & 1)
           : CHUNKS == 4 ? (row & 2) | (row >> 2 & 1)
                         : row >> 2 & 1;
}
__device__ inline uint32_t key_place(int row, int chunk) { return row * ROW + (chunk ^ key_moved(row)) * 16; }

/*  Returns x, which is equal in all lanes of a warp. The compiler cannot know that, and would prepare for divergent
    lanes. */
__device__ inline bool is_true(bool x) { return __any_sync(0xffffffff, x); }

struct row_memory {
    const int32_t *pages;
    int end, next;     /* end: of the keys; next: tiles of all rows up to this one */
    int tiles, splits; /* tiles: of a split; splits: of query heads that share a key head */
};

struct many_memory {
    row_memory rows[ROWS];
    uint32_t finished[WARPS]; /* splits that each warp has finished */
    bool is_last;
};

/*  A block's splits, as parts one after the other: each part belongs to a row and to query heads that share a key
    head. */
struct block_parts {
    const many_memory &m;
    /* count: of rows; group: query heads of a key head; from, to: tiles of the block */
    const int count, group, kv_heads, from, to;
    /* of the part: its row, key head, first query head within the group, first tile */
    int row, kv, head, start;
    /* splits of the part that the block has; before: splits of the parts before */
    int first, last, before;

    __device__ block_parts(const many_memory &m, const ignis__paged &p)
        : m(m), count(p.count), group(p.heads / p.kv_heads), kv_heads(p.kv_heads),
          from((int)((long long)m.rows[count - 1].next * blockIdx.x / gridDim.x)),
          to((int)((long long)m.rows[count - 1].next * (blockIdx.x + 1) / gridDim.x)), row(0), kv(0), head(0), first(0),
          last(0), before(0)
    {
        for (int i = threadIdx.x % 32; i < ROWS; i += 32)
            row += __popc(__ballot_sync(0xffffffff, i < count && m.rows[i].next <= from));
        start = row > 0 ? m.rows[row - 1].next : 0;
        if (more()) {
            const int passes = (group + HEADS - 1) / HEADS, part = (from - start) / tiles();
            kv = part / passes;
            head = part % passes * HEADS;
            start += part * tiles();
            look();
        }
    }
    __device__ bool more() const { return row < count && start < to; }
    __device__ int tiles() const { return (m.rows[row].end + SPLIT - 1) / SPLIT; }
    __device__ int heads() const { return min(HEADS, group - head); }
    /*  Finds the part's splits of this block. A split belongs to the block that has its first tile. */
    __device__ void look()
    {
        const int each = m.rows[row].tiles, ahead = max(from - start, 0), up_to = to - start;
        first = each == 1 ? ahead : (ahead + each - 1) / each;
        last = min(m.rows[row].splits, each == 1 ? up_to : (up_to + each - 1) / each);
    }
    __device__ void go_on()
    {
        before += last - first;
        start += tiles();
        head += HEADS;
        if (head >= group) {
            head = 0;
            kv++;
        }
        if (kv == kv_heads) {
            kv = 0;
            do
                row++;
            while (row < count && m.rows[row].end <= 0);
        }
        if (more())
            look();
    }
};

/*  A warp's tile: keys from `at` on; keys of its split end at `to`. 0: there is no tile. */
struct warp_tile {
    int row, kv, first, heads; /* kv: the key head; first, heads: the query heads */
    int split, at, to, page;   /* page: of lane % PAGES */
    bool begins, alone;        /* begins: the first tile of its split; alone: the split is the row's only one */
};

/*  Enumerates the tiles of a warp. The warp has every WARPS-th split of the block. */
struct warp_tiles {
    block_parts parts;
    int split, at, to;

    __device__ explicit warp_tiles(const block_parts &parts)
        : parts(parts), split(parts.first + threadIdx.x / 32), at(0), to(0)
    {
    }
    __device__ warp_tile take()
    {
        warp_tile x = {};
        if (at >= to) {
            while (parts.more() && split >= parts.last) {
                split -= parts.last;
                parts.go_on();
                split += parts.first;
            }
            if (!parts.more())
                return x;
            at = split * parts.m.rows[parts.row].tiles * SPLIT;
            to = min(parts.m.rows[parts.row].end, at + parts.m.rows[parts.row].tiles * SPLIT);
            x.begins = true;
        }
        const row_memory &row = parts.m.rows[parts.row];
        x.row = parts.row;
        x.kv = parts.kv;
        x.first = parts.kv * parts.group + parts.head;
        x.heads = parts.heads();
        x.split = split;
        x.alone = row.splits == 1;
        x.at = at;
        x.to = to;
        x.page = row.pages[min(at + PAGE * (int)(threadIdx.x % PAGES), to - 1) / PAGE];
        at += SPLIT;
        if (at >= to)
            split += WARPS;
        return x;
    }
};

/*  A warp that multiplies. Queries are operand A: 8 of its 16 rows are heads, the others are unused. Values are operand
    A, and weights operand B, so that sums take half the registers. Tiles come from shared memory, so this takes fewer
    instructions than the products of paged_team. The sums are the same. */
struct many_warp {
    const ignis__paged &p;
    many_memory &m;
    const char *const tile;
    const uint32_t keys, values;      /* addresses in shared memory */
    const int lane, g, t, chunk, row; /* chunk, row: what the lane copies, of AT_ONCE rows */
    const int cell, row_bytes;        /* bytes of the rows of a page and head, and of a row, in global memory */
    const float scale;
    uint32_t weights[PAGES][2];
    float out[D / 16][4]; /* of elements g and g + 8 of 16, of heads 2 t and 2 t + 1 */
    float top, sum;       /* of head g */

    __device__ many_warp(const ignis__paged &p, many_memory &m, const char *tiles)
        : p(p), m(m), tile(tiles + threadIdx.x / 32 * TILE), keys((uint32_t)__cvta_generic_to_shared(tile)),
          values(keys + VALUES), lane(threadIdx.x % 32), g(lane / 4), t(lane % 4), chunk(lane % CHUNKS),
          row(lane / CHUNKS), cell(TYPED ? cache_cell(TYPE, p.head_dim) : PAGE * 2 * p.head_dim),
          row_bytes(TYPED ? IGNIS__CACHE_ROW(TYPE, p.head_dim) : 2 * p.head_dim), scale((float)p.scale * (float)LOG2_E)
    {
    }
    __device__ const char *page_of(const T *from, const warp_tile &x, int page) const
    {
        /* no overflow: each index numbers 256 bytes or more */
        const uint32_t number = __shfl_sync(0xffffffff, x.page, page) * p.kv_heads + x.kv;
        return (const char *)from + (long long)number * cell;
    }
    /*  Starts the copies of a tile's keys or values up to `limit`; zeros follow. */
    __device__ void fetch(uint32_t to, const T *data, const warp_tile &x, int limit) const
    {
        if (is_true(p.head_dim == D && x.at + SPLIT <= limit)) {
            const uint32_t own = to + key_place(row, chunk);
#pragma unroll 1 /* short code is fetched sooner */
            for (int page = 0; page < PAGES; page++) {
                const char *const from = page_of(data, x, page) + lane * 16;
#pragma unroll
                for (int i = 0; i < PAGE; i += AT_ONCE)
                    ignis_ptx_cp_async((own ^ key_moved(i) * 16) + (PAGE * page + i) * ROW, from + i * ROW, 16);
            }
        } else if (is_true(x.to > 0)) {
            const uint32_t own = to + key_place(row, chunk);
            const bool inside = chunk * 16 < row_bytes;
#pragma unroll 1
            for (int page = 0; page < PAGES; page++) {
                const char *const cell_at = page_of(data, x, page);
                const char *const from = cell_at + row * row_bytes + chunk * 16;
                const int left = inside ? limit - x.at - PAGE * page - row : 0;
#pragma unroll
                for (int i = 0; i < PAGE; i += AT_ONCE)
                    ignis_ptx_cp_async((own ^ key_moved(i) * 16) + (PAGE * page + i) * ROW,
                                       i < left ? from + i * row_bytes : cell_at, i < left ? 16 : 0);
            }
        }
    }
    /*  Starts the copies of a tile's scales of keys or values, except those of the page that has the key at `without`.
     */
    __device__ void fetch_scales(uint32_t to, const T *data, const warp_tile &x, int without) const
    {
        constexpr int all = TYPED ? SCALE : 1; /* chunks of a page */
        const int existing = IGNIS__CACHE_SCALES(TYPE, p.head_dim);
        if (is_true(x.to == 0))
            return;
#pragma unroll 1
        for (int from = 0; from < PAGES * all; from += 32) {
            const int part = from + lane, page = part / all % PAGES, at = x.at + PAGE * page;
            const char *const cell_at = page_of(data, x, page);
            const bool exists = at < x.to && part % all < existing;
            if (part < PAGES * all && (unsigned)(without - at) >= PAGE)
                ignis_ptx_cp_async(to + part * 16, exists ? cell_at + PAGE * row_bytes + part % all * 16 : cell_at,
                                   exists ? 16 : 0);
        }
    }
    __device__ void fetch_queries(const warp_tile &x) const
    {
        const T *const from = p.q + x.row * p.q_row + x.first * p.head_dim;
        const int part = lane % QUERY_CHUNKS;
        const bool exists = part * 8 < p.head_dim;
#pragma unroll 1
        for (int r = lane / QUERY_CHUNKS; r < x.heads; r += QUERIES_AT_ONCE)
            ignis_ptx_cp_async(keys + QUERIES + place(r, part), exists ? from + r * p.head_dim + part * 8 : from,
                               exists ? 16 : 0);
    }
    /*  Starts the copies of the row's own key and value, if they are in the tile. */
    __device__ void fetch_last(const warp_tile &x) const
    {
        const int last = m.rows[x.row].end - 1 - x.at, page = last / PAGE;
        if (is_true(x.to == 0 || last >= SPLIT))
            return;
        const bool exists = lane * 16 < row_bytes;
        const char *const k = page_of(p.k, x, page), *const v = page_of(p.v, x, page);
        const int from = last % PAGE * row_bytes + (exists ? lane * 16 : 0);
        if (lane < CHUNKS) {
            ignis_ptx_cp_async(keys + key_place(last, lane), k + from, exists ? 16 : 0);
            ignis_ptx_cp_async(values + key_place(last, lane), v + from, exists ? 16 : 0);
        }
        if constexpr (TYPED) {
            const bool has_scales = lane < IGNIS__CACHE_SCALES(TYPE, p.head_dim);
            const int scales = has_scales ? PAGE * row_bytes + lane * 16 : 0, to = (page * SCALE + lane) * 16;
            if (lane < SCALE) {
                ignis_ptx_cp_async(keys + KEY_SCALES + to, k + scales, has_scales ? 16 : 0);
                ignis_ptx_cp_async(keys + VALUE_SCALES + to, v + scales, has_scales ? 16 : 0);
            }
        }
    }
    /*  Returns the lane's chunk c of key 8 j + g, of numbers at `own`. */
    template <bool whole> __device__ uint4 key_of(uint32_t own, int c, int j) const
    {
        if constexpr (!TYPED) {
            return *(const uint4 *)(tile + (own ^ c * 64) + j * 8 * ROW);
        } else {
            constexpr bool nibbles = TYPE == IGNIS__CACHE_Q4_0;
            const char *const from = tile + (own ^ c * (nibbles ? 16 : 32)) + j * 8 * ROW, *const scales =
                                                                                               tile + KEY_SCALES;
            const uint32_t stored = TYPE == IGNIS__CACHE_F8
                                        ? *(const uint8_t *)(scales + 8 * j + g)
                                        : *(const uint16_t *)(scales + ((j / 2 * OWN + c) * PAGE + j % 2 * 8 + g) * 2);
            return cache_eight<T, TYPE, whole>(nibbles ? make_uint2(*(const uint32_t *)from, 0) : *(const uint2 *)from,
                                               cache_scale_bits<T, TYPE, whole>(stored) * 0x10001);
        }
    }
    /*  Returns the scales of values 2 t and 2 t + 1 of a page, and of chunk j, or of those `more` values later. Values
        that do not exist may have any scales: they get zeros. */
    template <bool whole> __device__ uint32_t scales_of(const warp_tile &x, int page, int j, int more) const
    {
        const int key = 2 * t + more, left = x.to - x.at - PAGE * page - key;
        const char *const from = tile + VALUE_SCALES;
        uint32_t two;
        if constexpr (TYPE == IGNIS__CACHE_F8) {
            const uint32_t stored = *(const uint16_t *)(from + page * PAGE + key);
            two = cache_scale_bits<T, TYPE, whole>(stored & 255) | cache_scale_bits<T, TYPE, whole>(stored >> 8) << 16;
        } else {
            two = *(const uint32_t *)(from + ((page * OWN + j * ELEMENTS / 32) * PAGE + key) * 2);
        }
        return left >= 2 ? two : left == 1 ? two & 0xffff : 0;
    }
    /*  Returns whether some of the tile's scales, from `at` on, are not those of cache_pair's `whole`. */
    __device__ bool is_large(int at) const
    {
        const uint32_t two = *(const uint16_t *)(tile + at + 2 * lane);
        return TYPE == IGNIS__CACHE_F8 && is_true(max(two & 255, two >> 8) > CACHE_WHOLE);
    }
    /*  Does the key half of paged_team::add. whole: see cache_pair. */
    template <bool whole> __device__ void score(const warp_tile &x)
    {
        constexpr int bytes = TYPED ? 8 * ROW / D : 16; /* of a lane's chunk */
        const uint32_t own = key_place(g, t * bytes / 16) + t * bytes % 16,
                       of_q = QUERIES + place(min(g, x.heads - 1), t);
        float s[2 * PAGES][4], most = -ignis_infinity<float>(), of_pages[PAGES], two[PAGES / 2];
#pragma unroll
        for (int j = 0; j < 2 * PAGES; j++)
            s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0; /* keys 2 t and 2 t + 1 of eight */
#pragma unroll
        for (int c = 0; c < OWN; c++) {
            const uint4 q = *(const uint4 *)(tile + (of_q ^ c * 64));
            const uint32_t low[4] = {q.x, q.x, q.y, q.y}, high[4] = {q.z, q.z, q.w, q.w};
#pragma unroll
            for (int j = 0; j < 2 * PAGES; j++) {
                const uint4 k = key_of<whole>(own, c, j);
                ignis_mma<T>(s[j], low, k.x, k.y);
                ignis_mma<T>(s[j], high, k.z, k.w);
            }
        }
        if (is_true(x.at + SPLIT > x.to))
#pragma unroll
            for (int j = 0; j < 2 * PAGES; j++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    s[j][i] = x.at + 8 * j + 2 * t + i < x.to ? s[j][i] : -ignis_infinity<float>();
#pragma unroll
        for (int j = 0; j < 2 * PAGES; j++)
            most = max(most, max(s[j][0], s[j][1]));
        const float before = x.begins ? -ignis_infinity<float>() : top;
        /* each tile has a key, so that `top` is finite */
        top = max(before, reduce_lanes<1, 4, ignis_max>(most) * scale);
        const float factor = ignis_ptx_ex2_ftz(before - top), factors[2] = {of_head(factor, 2 * t),
                                                                            of_head(factor, 2 * t + 1)};
        if (is_true(x.begins)) {
            sum = 0;
#pragma unroll
            for (int j = 0; j < D / 16; j++)
                out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0;
        } else {
#pragma unroll
            for (int j = 0; j < D / 16; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    out[j][i] *= factors[i % 2];
        }
#pragma unroll
        for (int j = 0; j < 2 * PAGES; j++) {
            s[j][0] = ignis_ptx_ex2_ftz(fmaf(s[j][0], scale, -top));
            s[j][1] = ignis_ptx_ex2_ftz(fmaf(s[j][1], scale, -top));
            weights[j / 2][j % 2] = ignis_round_two<T>(s[j][0], s[j][1]);
        }
        /* Sums of pages over four lanes: each exchange leaves a lane half of them, finally page t. Then the sum of
           the pages. */
#pragma unroll
        for (int i = 0; i < PAGES; i++)
            of_pages[i] = (s[2 * i][0] + s[2 * i + 1][0]) + (s[2 * i][1] + s[2 * i + 1][1]);
#pragma unroll
        for (int i = 0; i < PAGES / 2; i++) {
            const float x = of_pages[2 * i], y = of_pages[2 * i + 1];
            two[i] = (t & 1 ? y : x) + __shfl_xor_sync(0xffffffff, t & 1 ? x : y, 1);
        }
        const float one = (t & 2 ? two[1] : two[0]) + __shfl_xor_sync(0xffffffff, t & 2 ? two[0] : two[1], 2);
        sum = __fmul_rn(sum, factor) + reduce_lanes<1, 4, ignis_sum>(one);
    }
    /*  Does the value half of paged_team::add. */
    template <bool whole> __device__ void add(const warp_tile &x)
    {
        const uint32_t own = key_place(lane % PAGE, lane / PAGE);
#pragma unroll
        for (int page = 0; page < PAGES; page++) {
#pragma unroll
            for (int j = 0; j < CHUNKS; j += 2) {
                uint32_t v[4];
                ignis_ptx_ldmatrix_transposed(v, values + (own ^ j * 16) + PAGE * page * ROW);
                if constexpr (!TYPED) {
                    const uint32_t a[4] = {v[0], v[2], v[1], v[3]};
                    ignis_mma<T>(out[j / 2], a, weights[page][0], weights[page][1]);
                } else {
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const uint32_t low = scales_of<whole>(x, page, j + i, 0),
                                       high = scales_of<whole>(x, page, j + i, 8);
#pragma unroll
                        for (int pair = 0; pair < PAIRS; pair += 2) {
                            const uint32_t a[4] = {cache_pair<T, TYPE, whole>(v[2 * i], pair, low),
                                                   cache_pair<T, TYPE, whole>(v[2 * i], pair + 1, low),
                                                   cache_pair<T, TYPE, whole>(v[2 * i + 1], pair, high),
                                                   cache_pair<T, TYPE, whole>(v[2 * i + 1], pair + 1, high)};
                            ignis_mma<T>(out[((j + i) * PAIRS + pair) / 2], a, weights[page][0], weights[page][1]);
                        }
                    }
                }
            }
        }
    }
    /*  Returns what a lane of head h has in x. */
    __device__ float of_head(float x, int h) const { return __shfl_sync(0xffffffff, x, 4 * h); }
    /*  Calls put(d, left, right) for each two elements that the lane writes, of head 2 t + (g & 1). Lanes of two
        adjacent elements exchange, so that each has both of one head. */
    template <typename Put> __device__ void put_pairs(Put put) const
    {
        const bool odd = g & 1;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            const float *const two = &out[j / 2][j % 2 * 2];
            const float given = __shfl_xor_sync(0xffffffff, odd ? two[0] : two[1], 4);
            /* a word of two values has PAIRS of elements that are adjacent */
            put(j / PAIRS * ELEMENTS + g / 2 * (ELEMENTS / 4) + j % PAIRS * 2, odd ? given : two[0],
                odd ? two[1] : given);
        }
    }
    /*  Writes the result of a split. Each element has one store and no branch: a tile that is a split waits for it. */
    __device__ void put(const warp_tile &x) const
    {
        const int h = 2 * t + (g & 1); /* the head whose elements the lane writes */
        const long long head = (long long)x.row * p.heads + x.first;
        const int elements = h < x.heads ? p.head_dim : 0;
        if (is_true(x.alone)) { /* no other split contributes */
            const float divisor = of_head(sum, h);
            T *const to = p.out + (head + h) * p.head_dim;
            put_pairs([&](int d, float left, float right) {
                if (d < elements)
                    *(uint32_t *)(to + d) = ignis_round_two<T>(left / divisor, right / divisor);
            });
            return;
        }
        float *const found = p.scratch + (head * p.splits + x.split) * (2 + p.head_dim);
        const int more = p.splits * (2 + p.head_dim); /* from a head to the next one */
        float *const to = found + h * more + 2;
        if (g < x.heads && t == 0)
            *(float2 *)(found + g * more) = make_float2(top, sum);
        put_pairs([&](int d, float left, float right) {
            if (d < elements)
                *(float2 *)(to + d) = make_float2(left, right);
        });
    }
    /*  Tells the threads that combine how many splits the warp has put. */
    __device__ void count(uint32_t splits) const
    {
        __threadfence_block();
        __syncwarp();
        if (lane == 0)
            ignis_ptx_st_volatile_shared((uint32_t)__cvta_generic_to_shared(&m.finished[threadIdx.x / 32]), splits);
    }
    __device__ void run(const block_parts &parts)
    {
        warp_tiles tiles(parts);
        warp_tile now = {}, next = {};
        uint32_t done = 0;
        bool has_put = false; /* the split before is not counted yet */
        if (!p.settled)
            ignis_grid_dependency_wait();
#pragma unroll 1
        /* n: a tile is loaded two iterations before its use. When n is 0, the first one is there, and the pages of
           the next one are known. */
        for (int n = -2;; n++) {
            const warp_tile behind = tiles.take();
            if (n == 0) {
                ignis_grid_dependency_wait();
                ignis_ptx_cp_async_wait<0>(); /* the last key and value are zeros in shared memory until here */
                if (is_true(now.to > 0))
                    fetch_queries(now);
                fetch_last(now);
                ignis_ptx_cp_async_commit();
                ignis_ptx_cp_async_wait<0>();
            }
            if (n >= 0) {
                if (is_true(now.to == 0)) {
                    if (has_put)
                        count(++done);
                    return;
                }
                ignis_ptx_cp_async_wait<1>();
                __syncwarp();
                if (TYPE == IGNIS__CACHE_F8 && is_large(KEY_SCALES))
                    score<false>(now);
                else
                    score<true>(now);
                __syncwarp();
                if (has_put) /* here, as its fence waits for copies: only those of values are on their way */
                    count(++done);
            }
            const int without = n < 0 && p.settled ? m.rows[next.row].end - 1 : -1;
            const int limit = without < 0 ? next.to : min(next.to, without);
            fetch(keys, p.k, next, limit);
            if (TYPED)
                fetch_scales(keys + KEY_SCALES, p.k, next, without);
            if (is_true(n >= 0 && next.to > 0))
                fetch_queries(next);
            ignis_ptx_cp_async_commit();
            if (n >= 0) {
                ignis_ptx_cp_async_wait<1>();
                __syncwarp();
                if (TYPE == IGNIS__CACHE_F8 && is_large(VALUE_SCALES))
                    add<false>(now);
                else
                    add<true>(now);
                __syncwarp();
            }
            fetch(values, p.v, next, limit);
            if (TYPED)
                fetch_scales(keys + VALUE_SCALES, p.v, next, without);
            ignis_ptx_cp_async_commit();
            has_put = n >= 0 && is_true(now.at + SPLIT >= now.to);
            if (has_put)
                put(now);
            now = next;
            next = behind;
        }
    }
};

/*  Combines the results of a split's rows, if this block has finished the last split. The other threads run it. */
__device__ inline void combine_parts(const ignis__paged &p, many_memory &m, block_parts parts)
{
    const int thread = threadIdx.x - 32 * WARPS, warp = thread % 32 % WARPS;
    const uint32_t finished = (uint32_t)__cvta_generic_to_shared(&m.finished[warp]);
    for (int row = blockIdx.x; row < p.count; row += gridDim.x) /* a row that does not exist gets zeros */
        if (m.rows[row].end <= 0)
            for (int i = thread; i < p.heads * p.head_dim; i += OTHERS)
                p.out[row * p.heads * p.head_dim + i] = T(0.0f);
    for (; parts.more(); parts.go_on()) {
        const int own = parts.last - parts.first, splits = m.rows[parts.row].splits;
        /* splits of the block that the warp has */
        const int wanted = (parts.before + own - warp + WARPS - 1) / WARPS;
        const paged_heads heads = {parts.kv, parts.kv * parts.group + parts.head, parts.heads(), parts.row};
        if (own == 0 || splits == 1)
            continue;
        while (!__all_sync(0xffffffff, (int)ignis_ptx_ld_volatile_shared(finished) >= wanted))
            __nanosleep(100);
        __threadfence_block();
        if (own < splits) {
            /* counts splits in this kernel */
            uint32_t *const ended = p.ended + (long long)heads.row * p.heads + heads.first;
            ignis_ptx_bar_sync(1, OTHERS);
            if (thread == 0) {
                m.is_last = ignis_ptx_atom_add_acq_rel(ended, own) == splits - own;
                if (m.is_last)
                    *ended = 0;
            }
            ignis_ptx_bar_sync(1, OTHERS);
            if (!m.is_last)
                continue;
        }
        combine_heads(p, heads, splits, thread, OTHERS);
    }
}

/*  grid = any number of blocks. Shared memory for WARPS tiles. */
extern "C" __global__ void __launch_bounds__(32 * WARPS + OTHERS, 1)
    ignis_attention_paged_many(const __grid_constant__ ignis__paged p)
{
    extern __shared__ __align__(1024) char memory[];
    __shared__ many_memory m;
    const int lane = threadIdx.x % 32, groups = p.kv_heads * ((p.heads / p.kv_heads + HEADS - 1) / HEADS);
    ignis_grid_dependents_launch();
    if (threadIdx.x < 32)
        for (int from = 0, all = 0; from < p.count; from += 32) { /* tiles of all rows up to each row */
            const int row = from + lane, end = row < p.count ? p.rows[row].position + 1 : 0;
            const int32_t *const pages = row < p.count ? p.rows[row].pages : nullptr;
            const paged_splits splits(end);
            int tiles = (max(end, 0) + SPLIT - 1) / SPLIT * groups;
            for (int distance = 1; distance < 32; distance *= 2) {
                const int other = __shfl_up_sync(0xffffffff, tiles, distance);
                tiles += lane >= distance ? other : 0;
            }
            if (row < p.count)
                m.rows[row] = {pages, end, all + tiles, splits.keys / SPLIT, splits.count};
            all += __shfl_sync(0xffffffff, tiles, 31);
        }
    else if (threadIdx.x < 32 + WARPS)
        m.finished[threadIdx.x - 32] = 0;
    __syncthreads();
    const block_parts parts(m, p);
    if (threadIdx.x < 32 * WARPS) {
        many_warp(p, m, memory).run(parts);
    } else {
        ignis_grid_dependency_wait();
        combine_parts(p, m, parts);
    }
}
