// SPDX-License-Identifier: MIT
/*  sort.cu - rows in order, stable, with the positions that their elements come from

    Elements are ordered by keys: unsigned numbers in the same order, NaN above all others, both zeros the
    same; for a descending order, their complements. Short rows are sorted by a bitonic network in shared
    memory (Batcher: Sorting Networks and their Applications, 1968), as pairs of key and position, which are
    all different, and so the order is stable.

        ignis_sort_small

    Longer ones by a radix sort, 8 bits a pass, the lowest first; those of a few thousand elements wholly
    within a block.

        ignis_sort_row

    For the longest, digits of all passes are counted first. In a pass a block sorts a tile of neighbours, and
    learns where its keys of a digit begin from the tiles before it, which say how many they have, or how many
    there are up to them (Adinets, Merrill: Onesweep, A Faster Least Significant Digit Radix Sort for GPUs,
    2022). Tiles are taken from a counter: one that is waited for has been begun.

        ignis_sort_count
        ignis_sort_pass         for each 8 bits

    If little of a long row is needed, it is selected first; of few rows by many blocks, which each
    select from a part of one.

        ignis_sort_select
        ignis_sort_select_few

    One program per element type: compiled with -DIGNIS_T=<ignis_dtype>. That of i32 also sorts numbers of 0
    to 2^31 - 1 that are made elsewhere. Rows [rows, n] are contiguous, with fewer than 2^31 elements each. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;

template <bool is_long> struct key_of {
    typedef uint32_t type;
};
template <> struct key_of<true> {
    typedef uint64_t type;
};
typedef key_of<sizeof(T) == 8>::type Key;

#include "shared/sort.h"

#define THREADS IGNIS__SORT_THREADS

/*  If the bits of a number are its order except for its sign: the sign is flipped, and negative floating
    numbers are flipped as a whole. */
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

/*  Key and position as one number, whose lower half is the position, if they fit one; else a pair. */
struct pair {
    uint64_t key;
    uint64_t position;
    __device__ bool operator<(const pair &other) const
    {
        return key < other.key || (key == other.key && position < other.position);
    }
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

/*  Puts each `width` of the items in order; a power of 2, as is their number, which is 64 or more. */
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
            /* pairs at a distance of up to 32 are among the 64 items of one warp */
            if (distance > 32 || (distance == 1 && length > 32))
                __syncthreads();
            else
                __syncwarp();
        }
    __syncthreads();
}

/*  The first k of each row in order, and their positions. width is the power of 2 from n on; a block sorts
    rows of `items` items together, which its dynamic shared memory holds. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_sort_small(T *values, int64_t *positions, const T *src, long long rows, int n, int width, int items, int k,
                     int descending)
{
    ignis_grid_dependency();
    extern __shared__ uint4 sort_memory[];
    Item *item = (Item *)sort_memory;
    const int at_once = items / width;
    const long long first = (long long)blockIdx.x * at_once;

    for (int i = threadIdx.x; i < items; i += THREADS) {
        const int row = i / width, column = i % width;
        if (column < n && first + row < rows)
            set(item[i], key_of_element(src[(first + row) * n + column], descending), column);
        else
            set(item[i], ~Key(0), ~0u); /* after all others */
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

#define DIGITS IGNIS__SORT_DIGITS
#define PASSES ((int)sizeof(T))

__device__ inline int digit_of(Key key, int shift) { return (int)(key >> shift) & (DIGITS - 1); }

/*  Adds to each digit, in the upper half, the rank of its key among the warp's keys with that digit; counts,
    of the warp, become their numbers. */
template <int rounds> __device__ inline void rank_in_warp(uint32_t (&digits)[rounds], uint16_t *counts)
{
    const uint32_t below = (1u << threadIdx.x % 32) - 1;
#pragma unroll
    for (int round = 0; round < rounds; round++) {
        const uint32_t digit = digits[round];
        uint32_t peers = ~0u;
#pragma unroll
        for (int bit = 0; bit < 8; bit++) {
            const uint32_t ones = __ballot_sync(0xffffffff, digit >> bit & 1);
            peers &= digit >> bit & 1 ? ones : ~ones;
        }
        const uint32_t before = counts[digit];
        digits[round] |= before + __popc(peers & below) << 16;
        __syncwarp();
        if ((peers & below) == 0)
            counts[digit] = (uint16_t)(before + __popc(peers));
        __syncwarp();
    }
}

/*  Returns the sum of a warp's lanes up to this one. */
__device__ inline uint32_t sum_up_to_lane(uint32_t x)
{
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t lower = __shfl_up_sync(0xffffffff, x, distance);
        x += (int)(threadIdx.x % 32) >= distance ? lower : 0;
    }
    return x;
}

/*  A warp replaces each count by the sum of the counts before it, and counts[DIGITS] by the total. */
__device__ inline void sum_digits(uint32_t *counts)
{
    const int lane = threadIdx.x % 32;
    uint32_t count[DIGITS / 32], sum = 0;
#pragma unroll
    for (int i = 0; i < DIGITS / 32; i++) {
        count[i] = counts[lane * (DIGITS / 32) + i];
        sum += count[i];
    }
    uint32_t before = sum_up_to_lane(sum) - sum;
#pragma unroll
    for (int i = 0; i < DIGITS / 32; i++) {
        counts[lane * (DIGITS / 32) + i] = before;
        before += count[i];
    }
    if (lane == 31)
        counts[DIGITS] = before;
}

/*  Each count of a warp becomes where its first key of that digit goes in the block's order, and
    starts[digit] where the block's first one does. More counts, or null, are summed up meanwhile. */
__device__ inline void place_digits(uint16_t (*counts)[DIGITS], uint32_t *starts, uint32_t *more)
{
    const int warps = blockDim.x / 32;
    __syncthreads();
    for (int digit = threadIdx.x; digit < DIGITS; digit += blockDim.x) {
        uint32_t count = 0;
        for (int w = 0; w < warps; w++)
            count += counts[w][digit];
        starts[digit] = count;
    }
    __syncthreads();
    if (threadIdx.x / 32 == 0)
        sum_digits(starts);
    else if (threadIdx.x / 32 == 1 && more)
        sum_digits(more);
    __syncthreads();
    for (int digit = threadIdx.x; digit < DIGITS; digit += blockDim.x) {
        uint32_t place = starts[digit];
        for (int w = 0; w < warps; w++) {
            const uint32_t own = counts[w][digit];
            counts[w][digit] = (uint16_t)place;
            place += own;
        }
    }
    __syncthreads();
}

/* >>row --------------------------------------------------------------------------------------------------------- */

#define ROW_ROUNDS IGNIS__SORT_ROW_ROUNDS
#define ROW_THREADS 1024
#define NONE 0xffff /* as a position: after the end of the row */

/*  Sorts the first k of each row, and their positions. A block sorts a row of at most ROW_ROUNDS elements for
    each of its threads, in dynamic shared memory for as many. */
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    ignis_sort_row(T *values, int64_t *positions, const T *src, int n, int k, int descending)
{
    ignis_grid_dependency();
    extern __shared__ uint4 sort_memory[];
    __shared__ uint16_t counts[ROW_THREADS / 32][DIGITS];
    __shared__ uint32_t starts[DIGITS + 1];
    T *const elements = (T *)sort_memory;
    uint16_t *const places = (uint16_t *)(elements + blockDim.x * ROW_ROUNDS);
    const int warp = threadIdx.x / 32,
              first = warp * 32 * ROW_ROUNDS + threadIdx.x % 32; /* of this thread, which has each 32nd of its warp's */
    T element[ROW_ROUNDS];
    uint16_t position[ROW_ROUNDS];
    uint32_t digits[ROW_ROUNDS];

    src += (long long)blockIdx.x * n;
#pragma unroll
    for (int round = 0; round < ROW_ROUNDS; round++) {
        const int i = first + 32 * round;
        position[round] = i < n ? i : NONE;
        element[round] = i < n ? src[i] : T(0);
    }
    for (int shift = 0; shift < 8 * PASSES; shift += 8) {
#pragma unroll
        for (int i = 0; i < DIGITS / 32; i++)
            counts[warp][threadIdx.x % 32 + 32 * i] = 0;
#pragma unroll
        for (int round = 0; round < ROW_ROUNDS; round++) /* elements after the end stay there */
            digits[round] =
                position[round] == NONE ? DIGITS - 1 : digit_of(key_of_element(element[round], descending), shift);
        __syncthreads();
        rank_in_warp(digits, counts[warp]);
        place_digits(counts, starts, nullptr);
#pragma unroll
        for (int round = 0; round < ROW_ROUNDS; round++) {
            const int to = counts[warp][digits[round] & (DIGITS - 1)] + (digits[round] >> 16);
            elements[to] = element[round];
            places[to] = position[round];
        }
        __syncthreads();
        if (shift + 8 < 8 * PASSES)
#pragma unroll
            for (int round = 0; round < ROW_ROUNDS; round++) {
                element[round] = elements[first + 32 * round];
                position[round] = places[first + 32 * round];
            }
    }
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        values[(long long)blockIdx.x * k + i] = elements[i];
        positions[(long long)blockIdx.x * k + i] = places[i];
    }
}

/* >>passes ------------------------------------------------------------------------------------------------------ */

#define TILE_THREADS IGNIS__SORT_TILE_THREADS
#define TILE_WARPS (TILE_THREADS / 32)
#define ROUNDS (sizeof(T) == 8 ? IGNIS__SORT_ROUNDS_OF_8 : IGNIS__SORT_ROUNDS) /* elements of a thread */
#define TILE (TILE_THREADS * ROUNDS)                                           /* a row has ceil(n / TILE) tiles */
#define COUNTED (IGNIS__SORT_COUNTED * TILE)                                   /* elements that a block counts */
#define COPIES (32 / PASSES) /* of each count, for lanes that meet others of the same digit */

/*  counts[row, pass, digit] += the row's keys with the digit. A block has COUNTED elements of a row, which
    has `parts` such blocks. */
extern "C" __global__ void __launch_bounds__(TILE_THREADS)
    ignis_sort_count(uint32_t *counts, const T *src, long long n, int parts, int passes, int descending)
{
    ignis_grid_dependency();
    __shared__ uint32_t histogram[PASSES * DIGITS][COPIES];
    const long long row = blockIdx.x / parts, first = (long long)(blockIdx.x % parts) * COUNTED;
    for (int i = threadIdx.x; i < PASSES * DIGITS * COPIES; i += TILE_THREADS)
        histogram[i / COPIES][i % COPIES] = 0;
    __syncthreads();
    src += row * n;
#pragma unroll 8
    for (long long i = first + threadIdx.x; i < min(first + COUNTED, n); i += TILE_THREADS) {
        const Key key = key_of_element(src[i], descending);
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++)
            if (pass < passes)
                atomicAdd(&histogram[pass * DIGITS + digit_of(key, 8 * pass)][threadIdx.x % COPIES],
                          1u); /* of integers: the order does not matter */
    }
    __syncthreads();
    for (int i = threadIdx.x; i < passes * DIGITS; i += TILE_THREADS) {
        uint32_t count = 0;
        for (int copy = 0; copy < COPIES; copy++)
            count += histogram[i][copy];
        if (count)
            atomicAdd(&counts[row * passes * DIGITS + i], count);
    }
}

/*  The word that a tile publishes for a digit: nothing yet (0), its number of keys (plus 1), or the number up
    to its end. */
#define UP_TO_ME 0x80000000u

__device__ inline uint32_t said(const uint32_t *from)
{
    uint32_t x;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
}

__device__ inline void say(uint32_t *to, uint32_t x)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

/*  Moves every element, with its position in the row, to where the digit at shift sorts it: first in order
    within the tile, in shared memory, then neighbours side by side. from_positions null: they are still in
    order. counts: of this pass; after stride words those of the next row. tiles_said[row, tile, digit] and
    *next_tile are 0 before. The last pass has long_positions instead of positions, and leaves the first k of
    each row. Dynamic shared memory: a tile of elements and of positions. */
extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2)
    ignis_sort_pass(T *to, uint32_t *positions, int64_t *long_positions, const T *from, const uint32_t *from_positions,
                    const uint32_t *counts, int stride, uint32_t *tiles_said, uint32_t *next_tile, long long n,
                    long long k, int tiles, int shift, int descending)
{
    ignis_grid_dependency();
    extern __shared__ uint4 sort_memory[];
    __shared__ uint16_t own[TILE_WARPS][DIGITS];
    __shared__ uint32_t starts[DIGITS + 1], to_row[DIGITS + 1],
        mine; /* to_row: from an index in the tile to that in the row, modulo 2^32 */
    T *const elements = (T *)sort_memory;
    uint32_t *const places = (uint32_t *)(elements + TILE);
    const int warp = threadIdx.x / 32,
              first = warp * 32 * ROUNDS + threadIdx.x % 32; /* of this thread, which has each 32nd of its warp's */
    T element[ROUNDS];
    uint32_t digits[ROUNDS];

    if (threadIdx.x == 0)
        mine = atomicAdd(next_tile, 1u);
#pragma unroll
    for (int i = 0; i < DIGITS / 32; i++)
        own[warp][threadIdx.x % 32 + 32 * i] = 0;
    __syncthreads();
    const long long row = mine / tiles;
    const int tile = mine % tiles, filled = (int)min(n - (long long)tile * TILE, (long long)TILE);
    const int at = tile * TILE + first,
              left = filled - first; /* this thread's first element in the row, and the number from it on */
    to += row * (long_positions ? k : n);
    from += row * n + at;
#pragma unroll
    for (int round = 0; round < ROUNDS; round++)
        element[round] = 32 * round < left ? from[32 * round] : T(0);
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) /* elements after the end stay there */
        digits[round] = 32 * round < left ? digit_of(key_of_element(element[round], descending), shift) : DIGITS - 1;
    if (threadIdx.x < DIGITS)
        to_row[threadIdx.x] = counts[row * stride + threadIdx.x];
    rank_in_warp(digits, own[warp]);
    place_digits(own, starts, to_row);

    uint32_t *const says = tiles_said + (long long)mine * DIGITS + threadIdx.x;
    uint32_t count = 0;
    if (threadIdx.x < DIGITS) {
        count = starts[threadIdx.x + 1] - starts[threadIdx.x] - (threadIdx.x == DIGITS - 1 ? TILE - filled : 0);
        say(says, tile ? count + 1 : count | UP_TO_ME);
    }
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
        const int place = own[warp][digits[round] & (DIGITS - 1)] + (digits[round] >> 16);
        elements[place] = element[round];
        places[place] =
            from_positions && 32 * round < left ? from_positions[row * n + at + 32 * round] : at + 32 * round;
    }
    __syncthreads();
    if (threadIdx.x < DIGITS) {
        uint32_t before = 0; /* keys of this digit in the tiles before */
        for (int other = tile - 1, step = 1; other >= 0; other -= step) {
            const uint32_t word = said(says - (long long)(tile - other) * DIGITS);
            step = word != 0;
            before += word & UP_TO_ME ? word & ~UP_TO_ME : word - (word != 0);
            if (word & UP_TO_ME)
                break;
        }
        if (tile)
            say(says, (before + count) | UP_TO_ME);
        to_row[threadIdx.x] += before - starts[threadIdx.x];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < filled; i += TILE_THREADS) {
        const T x = elements[i];
        const long long place = (uint32_t)(to_row[digit_of(key_of_element(x, descending), shift)] + i);
        if (long_positions && place >= k)
            continue;
        to[place] = x;
        if (long_positions)
            long_positions[row * k + place] = places[i];
        else
            positions[row * n + place] = places[i];
    }
}

/* >>select ------------------------------------------------------------------------------------------------------ */

#define SELECT 8 /* elements of a thread at a time */

/*  The sum of x over all threads before this one; *all becomes that over all of the block. */
template <int threads> __device__ inline uint32_t sum_before(uint32_t x, uint32_t *warp_sums, uint32_t *all)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t sum = sum_up_to_lane(x);
    uint32_t before = 0;
    __syncthreads();
    if (lane == 31)
        warp_sums[warp] = sum;
    __syncthreads();
    *all = 0;
    for (int w = 0; w < threads / 32; w++) {
        before += w < warp ? warp_sums[w] : 0;
        *all += warp_sums[w];
    }
    return before + sum - x;
}

/*  Selects the first k of each row in order, for a k that is small beside n. The k-th key is found digit by
    digit, from the highest on, by counting. Then keys below it, and as many equal ones as are missing, the
    first ones, are sorted in shared memory, which has `items` items, a power of 2 from k and 64 on. One block
    a row. With several parts, a row has as many blocks, and each leaves the first k of its part, of k
    elements or more, unsorted. The parts' [parts, k] then are a row to select from, in which equal elements
    are still in order; from_positions has their positions. */
template <int threads> __device__ inline void select(const ignis__selection p)
{
    extern __shared__ uint4 select_memory[];
    __shared__ uint32_t histogram[DIGITS], warp_sums[threads / 32];
    __shared__ uint32_t found_digit, found_before;
    LongItem *item = (LongItem *)select_memory;
    const int part = blockIdx.x % p.parts;
    const long long begin = p.n * part / p.parts,
                    start = blockIdx.x / p.parts * p.n + begin; /* in the row, and in all */
    const int count = (int)(p.n * (part + 1) / p.parts - begin);
    const T *row = p.src + start;
    Key limit = 0, known = 0;    /* the k-th key, as far as it is known */
    uint32_t missing = p.k, all; /* among keys that agree with it so far */

    for (int shift = 8 * (int)sizeof(T) - 8; shift >= 0; shift -= 8) {
        if (threadIdx.x < DIGITS)
            histogram[threadIdx.x] = 0;
        __syncthreads();
        for (int at = threadIdx.x; at < count; at += threads * SELECT) {
            /* all are on their way before the first is used, without branches for elements after the end */
            T element[SELECT];
#pragma unroll
            for (int e = 0; e < SELECT; e++)
                element[e] = row[min(at + e * threads, count - 1)];
#pragma unroll
            for (int e = 0; e < SELECT; e++) {
                const Key key = key_of_element(element[e], p.descending);
                if (at + e * threads < count && (key & known) == limit)
                    atomicAdd(&histogram[digit_of(key, shift)], 1u); /* of integers: the order does not matter */
            }
        }
        __syncthreads();
        const uint32_t own = threadIdx.x < DIGITS ? histogram[threadIdx.x] : 0,
                       before = sum_before<threads>(own, warp_sums, &all);
        if (before < missing && missing <= before + own) {
            found_digit = threadIdx.x;
            found_before = before;
        }
        __syncthreads();
        limit |= Key(found_digit) << shift;
        known |= Key(DIGITS - 1) << shift;
        missing -= found_before;
        __syncthreads();
    }

    for (int i = threadIdx.x; i < p.items; i += threads)
        set(item[i], ~Key(0), ~0u); /* after all others */
    uint32_t taken = 0, equal = 0;  /* so far */
    for (int at = 0; at < count; at += threads * SELECT) {
        const int first = at + threadIdx.x * SELECT; /* neighbours, so that positions stay in order */
        Key key[SELECT];
        uint32_t equals = 0, less = 0; /* bits */
#pragma unroll
        for (int e = 0; e < SELECT; e++) {
            key[e] = key_of_element(row[min(first + e, count - 1)], p.descending);
            equals |= (uint32_t)(first + e < count && key[e] == limit) << e;
            less |= (uint32_t)(first + e < count && key[e] < limit) << e;
        }
        if (!__syncthreads_or(equals | less))
            continue;
        uint32_t rank = equal + sum_before<threads>(__popc(equals), warp_sums, &all);
        equal += all;
#pragma unroll
        for (int e = 0; e < SELECT; e++)
            if (equals >> e & 1)
                less |= (uint32_t)(rank++ < missing) << e;
        uint32_t to = taken + sum_before<threads>(__popc(less), warp_sums, &all);
        taken += all;
#pragma unroll
        for (int e = 0; e < SELECT; e++)
            if (less >> e & 1)
                set(item[to++], key[e], (uint32_t)(first + e));
    }
    if (p.parts == 1)
        sort_items(item, p.items, p.items);
    else
        __syncthreads();
    for (int i = threadIdx.x; i < p.k; i += threads) {
        const uint32_t position = position_of(item[i]);
        p.positions[(long long)blockIdx.x * p.k + i] =
            p.from_positions ? p.from_positions[start + position] : begin + position;
        p.values[(long long)blockIdx.x * p.k + i] = row[position];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 3) ignis_sort_select(const ignis__selection p)
{
    ignis_grid_dependency();
    select<THREADS>(p);
}

/*  As ignis_sort_select, by larger blocks, for few rows. */
extern "C" __global__ void __launch_bounds__(IGNIS__SORT_FEW_THREADS) ignis_sort_select_few(const ignis__selection p)
{
    ignis_grid_dependency();
    select<IGNIS__SORT_FEW_THREADS>(p);
}
