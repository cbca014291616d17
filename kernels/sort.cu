// SPDX-License-Identifier: MIT
/*  sort.cu - rows in order, stable, with the positions that their elements come from

    Elements become keys: unsigned numbers in the same order, NaN above all others, both zeros the same; for a descending order, their
    complements. Rows of up to a few thousand elements are sorted by a bitonic network in shared memory (Batcher: Sorting Networks
    and their Applications, 1968), as pairs of key and position, which are all different, and so the order is stable.

        ignis_sort_small

    Longer ones by a radix sort of 8 bits a pass, the lowest first (counting, scanning and scattering as in Satish, Harris, Garland:
    Designing Efficient Sorting Algorithms for Manycore GPUs, 2009):

        ignis_sort_keys
        ignis_sort_count, _scan, _scatter       for each 8 bits
        ignis_sort_finish                       what is wanted of each row, from the sorted positions

    Where little is wanted of a long row, that is selected first (ignis_sort_select).

    One program per element type: compiled with -DIGNIS_T=<ignis_dtype>. That of i32 also sorts keys of 32 bits that are made elsewhere.
    Rows [rows, n] are contiguous, with fewer than 2^31 elements each.
*/
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;

template <bool is_long> struct key_of {
    typedef uint32_t type;
};
template <> struct key_of<true> {
    typedef uint64_t type;
};
typedef key_of<sizeof(T) == 8>::type Key;

#define THREADS 256

/*  Where the bits of a number are its order but for its sign: the sign turns over, and negative floating numbers turn over wholly. */
__device__ inline Key key_of_element(T x, int descending)
{
    constexpr int bits = 8 * sizeof(T);
    constexpr Key all = ~Key(0) >> (8 * sizeof(Key) - bits), sign = Key(1) << (bits - 1);
    Key key = 0;
    if constexpr (ignis_is_float<T>) {
        if (x != x) {
            key = all;
        } else {
            memcpy(&key, &x, sizeof(T));
            key = key == sign ? sign : key & sign ? ~key & all : key | sign; /* minus zero as zero */
        }
    } else {
        key = Key(x) & all;
        if (T(-1) < T(0))
            key ^= sign;
    }
    return descending ? ~key & all : key;
}

/* >>small ------------------------------------------------------------------------------------------------------- */

/*  Key and position as one number, of which the lower half is the position, where they fit one; else a pair. */
struct pair {
    uint64_t key;
    uint64_t position;
    __device__ bool operator<(const pair &other) const { return key < other.key || (key == other.key && position < other.position); }
};
template <int bytes> struct item_of {
    typedef uint32_t type;
};
template <> struct item_of<4> {
    typedef uint64_t type;
};
template <> struct item_of<8> {
    typedef pair type;
};
typedef item_of<sizeof(T)>::type Item; /* of rows that are shorter than 2^16 */
typedef item_of<sizeof(T) == 8 ? 8 : 4>::type LongItem;

__device__ inline void set(pair &item, uint64_t key, uint32_t position) { item = {key, position}; }
template <typename Number> __device__ inline void set(Number &item, Key key, uint32_t position)
{
    item = Number(key) << 4 * sizeof(Number) | (position & (~Number(0) >> 4 * sizeof(Number)));
}

__device__ inline uint32_t position_of(const pair &item) { return (uint32_t)item.position; }
template <typename Number> __device__ inline uint32_t position_of(const Number &item)
{
    return (uint32_t)(item & (~Number(0) >> 4 * sizeof(Number)));
}

/*  Puts each `width` of the items in order; a power of 2, as is their number, which is twice that of the threads or more. */
template <typename Item> __device__ inline void sort_items(Item *item, int items, int width)
{
    __syncthreads();
    for (int length = 2; length <= width; length *= 2)
        for (int distance = length / 2; distance > 0; distance /= 2) {
            for (int p = threadIdx.x; p < items / 2; p += blockDim.x) {
                const int low = (p & ~(distance - 1)) << 1 | (p & (distance - 1)), high = low + distance;
                const bool ascends = (low & (width - 1) & length) == 0;
                const Item a = item[low], b = item[high];
                if ((b < a) == ascends) {
                    item[low] = b;
                    item[high] = a;
                }
            }
            /* pairs at a distance of up to 32 lie among the 64 items of one warp */
            if (distance > 32 || (distance == 1 && length > 32))
                __syncthreads();
            else
                __syncwarp();
        }
    __syncthreads();
}

/*  The first k of each row in order, and their positions. width is the power of 2 from n on; a block sorts rows of `items` items together,
    which its dynamic shared memory holds. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_sort_small(T *values, int64_t *positions, const T *src, long long rows, int n, int width, int items, int k, int descending)
{
    extern __shared__ uint4 sort_memory[];
    Item *item = (Item *)sort_memory;
    const int at_once = items / width;
    const long long first = (long long)blockIdx.x * at_once;

    for (int i = threadIdx.x; i < items; i += THREADS) {
        const int row = i / width, column = i % width;
        if (column < n && first + row < rows)
            set(item[i], key_of_element(src[(first + row) * n + column], descending), column);
        else
            set(item[i], ~Key(0), ~0u); /* behind all others */
    }
    sort_items(item, items, width);
    for (int i = threadIdx.x; i < items; i += THREADS) {
        const int row = i / width, column = i % width;
        if (column >= k || first + row >= rows)
            continue;
        const uint32_t position = position_of(item[i]);
        const long long to = (first + row) * k + column;
        positions[to] = position;
        values[to] = src[(first + row) * n + position];
    }
}

/* >>radix ------------------------------------------------------------------------------------------------------- */

#define DIGITS 256 /* values of the 8 bits of a key that a pass sorts by */
#define WARPS (THREADS / 32)
#define ROUNDS (sizeof(Key) == 4 ? 16 : 8) /* keys of a thread */
#define TILE (THREADS * ROUNDS)            /* keys of a block; a row has ceil(n / TILE) tiles */

extern "C" __global__ void __launch_bounds__(THREADS) ignis_sort_keys(Key *keys, const T *src, long long count, int descending)
{
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        keys[i] = key_of_element(src[i], descending);
}

/*  The place in its row of the key that a thread has in a round. Each warp has a contiguous part of the tile, of which lane l takes every
    32nd. */
__device__ inline long long tile_place(int tile, int round)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return (long long)tile * TILE + (warp * ROUNDS + round) * 32 + lane;
}

__device__ inline int digit_of(Key key, int shift) { return (int)(key >> shift) & (DIGITS - 1); }

/*  counts[row, d, tile] = how many keys of the tile have digit d; added to totals[row, d], too. One block a tile. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_sort_count(uint32_t *counts, uint32_t *totals, const Key *keys, long long n, int tiles, int shift)
{
    __shared__ uint32_t histogram[DIGITS];
    const long long row = blockIdx.x / tiles;
    const int tile = blockIdx.x % tiles;
    histogram[threadIdx.x] = 0;
    __syncthreads();
    for (int round = 0; round < ROUNDS; round++) {
        const long long i = tile_place(tile, round);
        if (i < n)
            atomicAdd(&histogram[digit_of(keys[row * n + i], shift)], 1u); /* of integers: the order does not matter */
    }
    __syncthreads();
    const uint32_t count = histogram[threadIdx.x];
    counts[(row * DIGITS + threadIdx.x) * tiles + tile] = count;
    if (count)
        atomicAdd(&totals[row * DIGITS + threadIdx.x], count);
}

/*  The sum of x over all threads before this one; *all becomes that over all of the block. */
__device__ inline uint32_t sum_before(uint32_t x, uint32_t *warp_sums, uint32_t *all)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t sum = x, before = 0;
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t lower = __shfl_up_sync(0xffffffff, sum, distance);
        sum += lane >= distance ? lower : 0;
    }
    __syncthreads();
    if (lane == 31)
        warp_sums[warp] = sum;
    __syncthreads();
    *all = 0;
    for (int w = 0; w < WARPS; w++) {
        before += w < warp ? warp_sums[w] : 0;
        *all += warp_sums[w];
    }
    return before + sum - x;
}

/*  Each count becomes where the first such key of its tile goes in its row. Few tiles: one block a row, of which a thread does a digit; else
    one block a row and digit. */
extern "C" __global__ void __launch_bounds__(THREADS) ignis_sort_scan(uint32_t *counts, const uint32_t *totals, int tiles, int few)
{
    __shared__ uint32_t warp_sums[WARPS];
    const long long row = few ? blockIdx.x : blockIdx.x / DIGITS;
    const int digit = few ? threadIdx.x : blockIdx.x % DIGITS;
    uint32_t *mine = counts + (row * DIGITS + digit) * tiles, all;
    const uint32_t total = totals[row * DIGITS + threadIdx.x];
    if (few) {
        uint32_t before = sum_before(total, warp_sums, &all);
        for (int tile = 0; tile < tiles; tile++) {
            const uint32_t own = mine[tile];
            mine[tile] = before;
            before += own;
        }
        return;
    }
    uint32_t before;
    sum_before(threadIdx.x < digit ? total : 0, warp_sums, &before);
    for (int first = 0; first < tiles; first += THREADS) {
        const int tile = first + threadIdx.x;
        const uint32_t place = before + sum_before(tile < tiles ? mine[tile] : 0, warp_sums, &all);
        if (tile < tiles)
            mine[tile] = place;
        before += all;
    }
}

/*  Puts every key, with its position in the row, where this pass sorts it to: first in order within the tile, in shared memory, then to
    where the scanned counts say, neighbours side by side. In the first pass positions is null: they are still in order. One block a tile. */
extern "C" __global__ void __launch_bounds__(THREADS, 3)
    ignis_sort_scatter(Key *sorted_keys, uint32_t *sorted_positions, const Key *keys, const uint32_t *positions, const uint32_t *offsets,
                       long long n, int tiles, int shift)
{
    __shared__ uint32_t next[WARPS][DIGITS]; /* counts of each warp; then where its next key of a digit goes within the tile */
    __shared__ uint32_t to_global[DIGITS];   /* from there to the place in the row, modulo 2^32 */
    __shared__ uint32_t warp_sums[WARPS];
    __shared__ Key tile_keys[TILE];
    __shared__ uint32_t tile_positions[TILE];
    const long long row = blockIdx.x / tiles;
    const int tile = blockIdx.x % tiles, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int filled = (int)min(n - (long long)tile * TILE, (long long)TILE);
    Key mine[ROUNDS];

    keys += row * n;
    for (int w = 0; w < WARPS; w++)
        next[w][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
        const long long i = tile_place(tile, round);
        if (i < n) {
            mine[round] = keys[i];
            atomicAdd(&next[warp][digit_of(mine[round], shift)], 1u);
        }
    }
    __syncthreads();
    uint32_t count = 0, all;
    for (int w = 0; w < WARPS; w++)
        count += next[w][threadIdx.x];
    uint32_t place = sum_before(count, warp_sums, &all);
    to_global[threadIdx.x] = offsets[(row * DIGITS + threadIdx.x) * tiles + tile] - place;
    for (int w = 0; w < WARPS; w++) {
        const uint32_t own = next[w][threadIdx.x];
        next[w][threadIdx.x] = place;
        place += own;
    }
    __syncthreads();
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
        const long long i = tile_place(tile, round);
        const int digit = i < n ? digit_of(mine[round], shift) : DIGITS; /* those behind the end are among themselves */
        const uint32_t peers = __match_any_sync(0xffffffff, digit);
        const int rank = __popc(peers & ((1u << lane) - 1));
        uint32_t to = 0;
        if (digit < DIGITS)
            to = next[warp][digit] + rank;
        __syncwarp();
        if (digit < DIGITS) {
            if (rank == 0)
                next[warp][digit] += __popc(peers);
            tile_keys[to] = mine[round];
            tile_positions[to] = positions ? positions[row * n + i] : (uint32_t)i;
        }
        __syncwarp();
    }
    __syncthreads();
    for (int i = threadIdx.x; i < filled; i += THREADS) {
        const Key key = tile_keys[i];
        const long long to = row * n + (to_global[digit_of(key, shift)] + i);
        sorted_keys[to] = key;
        sorted_positions[to] = tile_positions[i];
    }
}

/*  The first k of each row: values [rows, k], and their positions. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_sort_finish(T *values, int64_t *positions, const T *src, const uint32_t *sorted, long long rows, long long n, long long k)
{
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows * k)
        return;
    const long long row = i / k;
    const uint32_t position = sorted[row * n + (i - row * k)];
    positions[i] = position;
    values[i] = src[row * n + position];
}

/* >>select ------------------------------------------------------------------------------------------------------ */

#define SELECT 8 /* elements of a thread at a time */

/*  The first k of each row in order, for a k that is small beside n: the k-th key is found digit by digit, from the highest on, by
    counting; then keys below it, and as many that are equal to it as are missing, the first ones, are sorted in shared memory, which has
    `items` items, a power of 2 from k on. One block a row. */
extern "C" __global__ void __launch_bounds__(THREADS, 3)
    ignis_sort_select(T *values, int64_t *positions, const T *src, long long n, int k, int items, int descending)
{
    extern __shared__ uint4 sort_memory[];
    __shared__ uint32_t histogram[DIGITS], warp_sums[WARPS];
    __shared__ uint32_t found_digit, found_before;
    LongItem *item = (LongItem *)sort_memory;
    const T *row = src + blockIdx.x * n;
    Key limit = 0, known = 0;  /* the k-th key, as far as it is known */
    uint32_t missing = k, all; /* among keys that agree with it so far */

    for (int shift = 8 * (int)sizeof(T) - 8; shift >= 0; shift -= 8) {
        histogram[threadIdx.x] = 0;
        __syncthreads();
#pragma unroll 8
        for (long long i = threadIdx.x; i < n; i += THREADS) {
            const Key key = key_of_element(row[i], descending);
            if ((key & known) == limit)
                atomicAdd(&histogram[digit_of(key, shift)], 1u); /* of integers: the order does not matter */
        }
        __syncthreads();
        const uint32_t count = histogram[threadIdx.x], before = sum_before(count, warp_sums, &all);
        if (before < missing && missing <= before + count) {
            found_digit = threadIdx.x;
            found_before = before;
        }
        __syncthreads();
        limit |= Key(found_digit) << shift;
        known |= Key(DIGITS - 1) << shift;
        missing -= found_before;
        __syncthreads();
    }

    for (int i = threadIdx.x; i < items; i += THREADS)
        set(item[i], ~Key(0), ~0u); /* behind all others */
    uint32_t taken = 0, equal = 0;  /* so far */
    for (long long at = 0; at < n; at += THREADS * SELECT) {
        const long long first = at + threadIdx.x * SELECT; /* neighbours, so that positions stay in order */
        Key key[SELECT];
        uint32_t equals = 0, less = 0; /* bits */
#pragma unroll
        for (int e = 0; e < SELECT; e++) {
            key[e] = first + e < n ? key_of_element(row[first + e], descending) : ~Key(0);
            equals |= (uint32_t)(first + e < n && key[e] == limit) << e;
            less |= (uint32_t)(first + e < n && key[e] < limit) << e;
        }
        if (!__syncthreads_or(equals | less))
            continue;
        uint32_t rank = equal + sum_before(__popc(equals), warp_sums, &all);
        equal += all;
#pragma unroll
        for (int e = 0; e < SELECT; e++)
            if (equals >> e & 1)
                less |= (uint32_t)(rank++ < missing) << e;
        uint32_t to = taken + sum_before(__popc(less), warp_sums, &all);
        taken += all;
#pragma unroll
        for (int e = 0; e < SELECT; e++)
            if (less >> e & 1)
                set(item[to++], key[e], (uint32_t)(first + e));
    }
    sort_items(item, items, items);
    for (int i = threadIdx.x; i < k; i += THREADS) {
        const uint32_t position = position_of(item[i]);
        positions[(long long)blockIdx.x * k + i] = position;
        values[(long long)blockIdx.x * k + i] = row[position];
    }
}
