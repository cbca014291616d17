// SPDX-License-Identifier: MIT
/*  models/attention_paged_many.cu - attention of many rows over a paged KV cache, on tensor cores

    For f16 and bf16, sm_80 and up, with the bits of attention_paged_mma.cu; see attention_paged.cuh. One program per
    type and size of heads: compiled with -DIGNIS_T=<1 or 2> -DIGNIS_HEAD_DIM=<64 or 128>, which serves smaller heads,
    too. head_dim is a multiple of 8.

    With many rows, speed is the bandwidth of the memory. So one block stays on each SM. The tiles of keys of all
    rows form one sequence, of which each block has an equal range. A warp has a tile to itself and waits for no
    other warp. While it multiplies with keys, their values are in flight to shared memory; while it multiplies with
    values, the next keys are. Other warps combine the results of splits.
*/
#include "attention_paged.cuh"
#include "mma.cuh"
#include "hopper.cuh"

/*  query heads that are the rows of an MMA; the host has the same, and: */
constexpr int D = IGNIS_HEAD_DIM, HEADS = 8;
constexpr int WARPS = 512 / D, OTHERS = 64; /* warps that multiply; threads that combine */
constexpr int ROWS = 512;                   /* rows of a launch, at most */
/*  pages of a tile; chunks of 8 elements of a key that a lane has */
constexpr int PAGES = SPLIT / PAGE, OWN = D / 32;
constexpr int CHUNKS = D / 8, AT_ONCE = 32 / CHUNKS; /* chunks of a key; keys that a warp copies at once */
constexpr uint32_t BYTES = 2 * D;                    /* of a row in shared memory */

/*  A warp's tile; the query heads follow the keys. */
struct tile_memory {
    T keys[SPLIT + HEADS][D], values[SPLIT][D];
};

/*  Swizzles the chunks of a row. Lanes that read one chunk of 8 rows, or 4 adjacent chunks of 2 rows, have no bank
    conflicts. */
__device__ constexpr int moved(int row) { return ((row ^ row >> 1) & 1) << 2 | (row >> 2 & 1) << 1 | (row >> 1 & 1); }
__device__ inline uint32_t place(int row, int chunk) { return row * BYTES + (chunk ^ moved(row)) * 16; }

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

/*  A warp that multiplies. Queries and weights are operand A: 8 of its 16 rows are heads, the others are unused.
    Tiles come from shared memory, so this takes fewer instructions than the products of paged_team. The sums are the
    same. */
struct many_warp {
    const ignis__paged &p;
    many_memory &m;
    const char *const tile;
    const uint32_t keys, values;      /* addresses in shared memory */
    const int lane, g, t, chunk, row; /* chunk, row: what the lane copies, of AT_ONCE rows */
    const float scale;
    uint32_t weights[PAGES][2];
    float out[CHUNKS][4], top, sum; /* of head g; of `out` the first two */

    __device__ many_warp(const ignis__paged &p, many_memory &m, const tile_memory *tiles)
        : p(p), m(m), tile((const char *)(tiles + threadIdx.x / 32)), keys((uint32_t)__cvta_generic_to_shared(tile)),
          values(keys + (SPLIT + HEADS) * BYTES), lane(threadIdx.x % 32), g(lane / 4), t(lane % 4),
          chunk(lane % CHUNKS), row(lane / CHUNKS), scale((float)p.scale * (float)LOG2_E)
    {
    }
    __device__ const T *page_of(const T *from, const warp_tile &x, int page) const
    {
        /* no overflow: each index numbers 256 bytes or more */
        const uint32_t number = __shfl_sync(0xffffffff, x.page, page) * p.kv_heads + x.kv;
        return from + (long long)number * (PAGE * p.head_dim);
    }
    /*  Starts the copies of a tile's keys or values, except the one at `without`. */
    __device__ void fetch(uint32_t to, const T *data, const warp_tile &x, int without) const
    {
        if (is_true(p.head_dim == D && x.at + SPLIT <= x.to && (unsigned)(without - x.at) >= SPLIT)) {
            const uint32_t own = to + place(row, chunk);
#pragma unroll 1 /* short code is fetched sooner */
            for (int page = 0; page < PAGES; page++) {
                const T *const from = page_of(data, x, page) + lane * 8;
#pragma unroll
                for (int i = 0; i < PAGE; i += AT_ONCE)
                    ignis_ptx_cp_async((own ^ moved(i) * 16) + (PAGE * page + i) * BYTES, from + i * D, 16);
            }
        } else if (is_true(x.to > 0)) {
#pragma unroll 1
            for (int i = 0; i < SPLIT; i += AT_ONCE) {
                const int r = i + row, at = x.at + r;
                const T *const from = page_of(data, x, i / PAGE);
                const bool exists = at < x.to && chunk * 8 < p.head_dim;
                if (at != without)
                    ignis_ptx_cp_async(to + place(r, chunk), exists ? from + r % PAGE * p.head_dim + chunk * 8 : from,
                                       exists ? 16 : 0);
            }
        }
    }
    __device__ void fetch_queries(const warp_tile &x) const
    {
        const T *const from = p.q + x.row * p.q_row + x.first * p.head_dim;
        const bool exists = chunk * 8 < p.head_dim;
#pragma unroll 1
        for (int r = row; r < x.heads; r += AT_ONCE)
            ignis_ptx_cp_async(keys + SPLIT * BYTES + place(r, chunk),
                               exists ? from + r * p.head_dim + chunk * 8 : from, exists ? 16 : 0);
    }
    /*  Starts the copies of the row's own key and value, if they are in the tile. */
    __device__ void fetch_last(const warp_tile &x) const
    {
        const int last = m.rows[x.row].end - 1 - x.at;
        if (is_true(x.to == 0 || last >= SPLIT))
            return;
        const bool exists = lane * 8 < p.head_dim;
        const long long from = page_of(p.k, x, last / PAGE) - p.k + last % PAGE * p.head_dim + (exists ? lane * 8 : 0);
        if (lane < CHUNKS) {
            ignis_ptx_cp_async(keys + place(last, lane), p.k + from, exists ? 16 : 0);
            ignis_ptx_cp_async(values + place(last, lane), p.v + from, exists ? 16 : 0);
        }
    }
    /*  Does the key half of paged_team::add. */
    __device__ void score(const warp_tile &x)
    {
        const uint32_t own = place(g, t), of_q = SPLIT * BYTES + place(min(g, x.heads - 1), t);
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
                const uint4 k = *(const uint4 *)(tile + (own ^ c * 64) + j * 8 * BYTES);
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
        const float factor = ignis_ptx_ex2_ftz(before - top);
        if (is_true(x.begins)) {
            sum = 0;
#pragma unroll
            for (int j = 0; j < CHUNKS; j++)
                out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0;
        } else {
#pragma unroll
            for (int j = 0; j < CHUNKS; j++) {
                out[j][0] *= factor;
                out[j][1] *= factor;
            }
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
    __device__ void add()
    {
        const uint32_t own = place(lane % PAGE, lane / PAGE);
#pragma unroll
        for (int page = 0; page < PAGES; page++) {
            const uint32_t a[4] = {weights[page][0], weights[page][0], weights[page][1], weights[page][1]};
#pragma unroll
            for (int j = 0; j < CHUNKS; j += 2) {
                uint32_t b[4];
                ignis_ptx_ldmatrix_transposed(b, values + (own ^ j * 16) + PAGE * page * BYTES);
                ignis_mma<T>(out[j], a, b[0], b[1]);
                ignis_mma<T>(out[j + 1], a, b[2], b[3]);
            }
        }
    }
    /*  Writes the result of a split. */
    __device__ void put(const warp_tile &x) const
    {
        const long long head = (long long)x.row * p.heads + x.first + g;
        float *const found = p.scratch + (head * p.splits + x.split) * (2 + p.head_dim);
        if (g >= x.heads)
            return;
        if (!x.alone && t == 0)
            *(float2 *)found = make_float2(top, sum);
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            const int d = 8 * j + 2 * t;
            if (8 * j < p.head_dim && !x.alone)
                *(float2 *)(found + 2 + d) = make_float2(out[j][0], out[j][1]);
            else if (8 * j < p.head_dim) /* no other split contributes */
                *(uint32_t *)(p.out + head * p.head_dim + d) = ignis_round_two<T>(out[j][0] / sum, out[j][1] / sum);
        }
    }
    __device__ void run(const block_parts &parts)
    {
        warp_tiles tiles(parts);
        warp_tile now = {}, next = {};
        uint32_t done = 0;
        if (!p.settled)
            ignis_grid_dependency_wait();
#pragma unroll 1
        /* n: a tile is loaded two iterations before its use. When n is 0, the first one is there, and the pages of
           the next one are known. */
        for (int n = -2;; n++) {
            const warp_tile behind = tiles.take();
            if (n == 0) {
                ignis_grid_dependency_wait();
                if (is_true(now.to > 0))
                    fetch_queries(now);
                fetch_last(now);
                ignis_ptx_cp_async_commit();
                ignis_ptx_cp_async_wait<0>();
            }
            if (n >= 0) {
                if (is_true(now.to == 0))
                    return;
                ignis_ptx_cp_async_wait<1>();
                __syncwarp();
                score(now);
                __syncwarp();
            }
            const int without = n < 0 && p.settled ? m.rows[next.row].end - 1 : -1;
            fetch(keys, p.k, next, without);
            if (is_true(n >= 0 && next.to > 0))
                fetch_queries(next);
            ignis_ptx_cp_async_commit();
            if (n >= 0) {
                ignis_ptx_cp_async_wait<1>();
                __syncwarp();
                add();
                __syncwarp();
            }
            fetch(values, p.v, next, without);
            ignis_ptx_cp_async_commit();
            if (n >= 0 && is_true(now.at + SPLIT >= now.to)) {
                put(now);
                __threadfence_block();
                __syncwarp();
                if (lane == 0)
                    ignis_ptx_st_volatile_shared((uint32_t)__cvta_generic_to_shared(&m.finished[threadIdx.x / 32]),
                                                 ++done);
            }
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
        many_warp(p, m, (const tile_memory *)memory).run(parts);
    } else {
        ignis_grid_dependency_wait();
        combine_parts(p, m, parts);
    }
}
