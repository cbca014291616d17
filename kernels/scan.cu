// SPDX-License-Identifier: MIT
/*  scan.cu - sums of all elements up to each one, along one dimension

        dst[outer, i, inner] = the sum of src[outer, j, inner] over all j <= i, or over all j >= i if reverse

    Computed in ignis_wide<T>, and rounded once. The order of all additions follows from the launch alone, so
    equal launches give equal bits. Where there are few columns, they are cut into parts of part_length: a
    first launch writes the sum of each to partial [outer, parts, inner], and a second one adds those before
    its own. Long rows are cut into tiles, and read once.

    One program per element type: compiled with -DIGNIS_T=<ignis_dtype>. Blocks have THREADS threads, grids
    any number of blocks. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define THREADS 256
#define PACK (sizeof(T) == 1 ? 8 : 16 / (int)sizeof(T)) /* consecutive elements of a thread */
#define IN_FLIGHT 8 /* rows that a thread of the columns loads before it adds the first */

/*  Returns the sum of x over all threads of the team before this one; *all becomes that over the whole team. */
template <typename Team> __device__ inline Wide sum_before(Wide x, Wide *all)
{
    __shared__ Wide warp_sums[THREADS / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Wide sum = x, before = 0;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const Wide lower = __shfl_up_sync(0xffffffff, sum, distance);
        if (lane >= distance)
            sum = lower + sum;
    }
    const Wide up_to_me = sum;
    if constexpr (Team::is_block) {
        __syncthreads();
        if (lane == 31)
            warp_sums[warp] = sum;
        __syncthreads();
        *all = 0;
#pragma unroll
        for (int w = 0; w < THREADS / 32; w++) {
            if (w == warp)
                before = *all;
            *all += warp_sums[w];
        }
    } else {
        *all = __shfl_sync(0xffffffff, sum, 31);
    }
    const Wide lower = __shfl_up_sync(0xffffffff, up_to_me, 1);
    return lane ? before + lower : before;
}

/*  Loads PACK elements from i on, in the order of the sum; from end on they are 0. */
__device__ inline void load(Wide (&x)[PACK], const T *row, long long n, long long i, long long end, bool reverse,
                            bool packed)
{
    ignis_pack<T, PACK> pack;
    if (packed && i < end)
        pack = ignis_load<PACK>(row + (reverse ? n - PACK - i : i));
#pragma unroll
    for (int e = 0; e < PACK; e++) {
        if (i + e >= end)
            x[e] = 0;
        else if (packed)
            x[e] = Wide(reverse ? pack[PACK - 1 - e] : pack[e]);
        else
            x[e] = Wide(row[reverse ? n - 1 - i - e : i + e]);
    }
}

__device__ inline void store(T *row, const Wide (&x)[PACK], long long n, long long i, long long end, bool reverse,
                             bool packed)
{
    if (i >= end)
        return;
    if (packed) {
        ignis_pack<T, PACK> pack;
#pragma unroll
        for (int e = 0; e < PACK; e++)
            pack[reverse ? PACK - 1 - e : e] = T(x[e]);
        ignis_store(row + (reverse ? n - PACK - i : i), pack);
    } else {
#pragma unroll
        for (int e = 0; e < PACK; e++)
            if (i + e < end)
                row[reverse ? n - 1 - i - e : i + e] = T(x[e]);
    }
}

/* >>rows -------------------------------------------------------------------------------------------------------- */

/*  A team does a row. */
template <typename Team>
__device__ inline void scan_rows(T *dst, const T *src, long long outer, long long n, bool reverse, bool packed)
{
    for (long long row = Team::first(); row < outer; row += Team::count()) {
        Wide carry = 0;
        for (long long at = 0; at < n; at += Team::size() * PACK) {
            const long long i = at + Team::thread() * PACK;
            Wide x[PACK], all;
            load(x, src + row * n, n, i, n, reverse, packed);
#pragma unroll
            for (int e = 1; e < PACK; e++)
                x[e] += x[e - 1];
            const Wide before = carry + sum_before<Team>(x[PACK - 1], &all);
#pragma unroll
            for (int e = 0; e < PACK; e++)
                x[e] += before;
            store(dst + row * n, x, n, i, n, reverse, packed);
            carry += all;
        }
    }
}

/*  inner is 1. packed: n is a multiple of PACK, dst and src aligned to 16 bytes. warps: a warp does a row,
    and not a block. */
extern "C" __global__ void __launch_bounds__(THREADS, 3)
    ignis_scan_rows(T *dst, const T *src, long long outer, long long n, int reverse, int packed, int warps)
{
    if (warps)
        scan_rows<ignis_warp_team>(dst, src, outer, n, reverse, packed);
    else
        scan_rows<ignis_block_team>(dst, src, outer, n, reverse, packed);
}

/* >>tiles ------------------------------------------------------------------------------------------------------- */

#define ROUNDS (64 / ((int)sizeof(Wide) * PACK)) /* packs of a thread */
#define TILE (THREADS * ROUNDS * PACK)           /* 64 bytes of sums a thread; the host knows it, too */
#define HALVES ((int)sizeof(Wide) / 4)

/*  Publishes a tile's sum: each half is a word with a bit that marks it as written. */
__device__ inline void say(uint64_t *to, Wide sum)
{
    uint32_t half[HALVES];
    memcpy(half, &sum, sizeof(sum));
#pragma unroll
    for (int i = 0; i < HALVES; i++)
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to + i), "l"((uint64_t)1 << 32 | half[i]) : "memory");
}

__device__ inline Wide hear(const uint64_t *from)
{
    uint32_t half[HALVES];
    Wide sum;
#pragma unroll
    for (int i = 0; i < HALVES; i++) {
        uint64_t word;
        do
            asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from + i) : "memory");
        while (!(word >> 32));
        half[i] = (uint32_t)word;
    }
    memcpy(&sum, half, sizeof(sum));
    return sum;
}

/*  Where this thread's first pack of a tile is in its row; the next one is 32 packs on. */
__device__ inline long long first_of(int tile)
{
    return (long long)tile * TILE + threadIdx.x / 32 * 32 * ROUNDS * PACK + threadIdx.x % 32 * PACK;
}

/*  As above for long rows in one pass, in the manner of decoupled look-back (Merrill, Garland: Single-pass
    Parallel Prefix Scan with Decoupled Look-back, 2016), but in one order: each tile publishes its sum; the
    last one of THREADS tiles in a row, a group, says that of the group. A tile adds what the tiles before it
    in its group say, and the groups before that one. said [outer, tiles + groups, HALVES] and *next_tile are
    0 before.

    Blocks draw tiles in order, and say a tile's sum before they wait for those before the tile that they had
    drawn before it: by then these have been said. Meanwhile one more is loaded. Of the tiles that are not
    done the first one waits for such that have said their sums, so that no block waits for ever. */
extern "C" __global__ void __launch_bounds__(THREADS, sizeof(Wide) == 8 ? 2 : 3)
    ignis_scan_tiles(T *dst, uint64_t *said, uint32_t *next_tile, const T *src, long long outer, long long n, int tiles,
                     int reverse, int packed)
{
    __shared__ uint32_t drawn;
    __shared__ Wide warp_sums[THREADS / 32], earlier_sums[THREADS / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, groups = (tiles + THREADS - 1) / THREADS;
    const uint32_t count = (uint32_t)(outer * tiles);
    ignis_pack<T, PACK> ahead[ROUNDS];
    const auto says = [&](uint32_t number) { return said + (long long)(number / tiles) * (tiles + groups) * HALVES; };
    const auto load_tile = [&](uint32_t number) {
        const T *const row = src + number / tiles * n;
        const long long first = first_of(number % tiles);
        if (number < count && packed)
#pragma unroll
            for (int r = 0; r < ROUNDS; r++)
                if (first + r * 32 * PACK < n)
                    ahead[r] =
                        ignis_load<PACK>(row + (reverse ? n - PACK - first - r * 32 * PACK : first + r * 32 * PACK));
    };
    /* Computes the sums of a loaded tile, up to each element of it, and their total, which is published;
       returns the next tile. */
    const auto add_up = [&](uint32_t number, Wide(&x)[ROUNDS][PACK], Wide &all) {
        const long long first = first_of(number % tiles);
        uint32_t future = 0;
        Wide sum = 0, before = 0;
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            if (!packed)
                load(x[r], src + number / tiles * n, n, first + r * 32 * PACK, n, reverse, false);
#pragma unroll
            for (int e = 0; e < PACK && packed; e++)
                x[r][e] = first + r * 32 * PACK < n ? Wide(ahead[r][reverse ? PACK - 1 - e : e]) : Wide(0);
#pragma unroll
            for (int e = 1; e < PACK; e++)
                x[r][e] += x[r][e - 1];
            sum += x[r][PACK - 1];
        }
        sum = ignis_warp_sum(sum);
        if (lane == 0)
            warp_sums[warp] = sum;
        __syncthreads();
        all = 0;
#pragma unroll
        for (int w = 0; w < THREADS / 32; w++) {
            if (w == warp)
                before = all;
            all += warp_sums[w];
        }
        if (threadIdx.x == 0) {
            say(says(number) + (long long)(number % tiles) * HALVES, all);
            future = atomicAdd(next_tile, 1u);
        }
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            Wide of_round;
            const Wide in_round = before + sum_before<ignis_warp_team>(x[r][PACK - 1], &of_round);
#pragma unroll
            for (int e = 0; e < PACK; e++)
                x[r][e] += in_round;
            before += of_round;
        }
        if (threadIdx.x == 0)
            drawn = future;
        __syncthreads();
        return drawn;
    };

    if (threadIdx.x == 0)
        drawn = atomicAdd(next_tile, 1u);
    __syncthreads();
    uint32_t number = drawn, next = count;
    Wide x[ROUNDS][PACK], all;
    load_tile(number);
    if (number < count)
        load_tile(next = add_up(number, x, all));
#pragma unroll 1
    while (number < count) {
        const int tile = number % tiles, group = tile / THREADS, in_group = tile % THREADS;
        const uint64_t *const tile_says = says(number);
        uint64_t *const group_says = says(number) + (long long)tiles * HALVES;
        uint32_t future = count;
        Wide y[ROUNDS][PACK], all_next = 0;
        if (next < count)
            load_tile(future = add_up(next, y, all_next));
        Wide earlier = (int)threadIdx.x < in_group
                           ? hear(tile_says + (long long)(tile - in_group + threadIdx.x) * HALVES)
                           : Wide(0);
        if (in_group == THREADS - 1) {
            const Wide of_group = ignis_block_sum(earlier) + all;
            if (threadIdx.x == 0)
                say(group_says + (long long)group * HALVES, of_group);
        }
        for (int g = threadIdx.x; g < group; g += THREADS)
            earlier += hear(group_says + (long long)g * HALVES);
        earlier = ignis_warp_sum(earlier);
        if (lane == 0)
            earlier_sums[warp] = earlier;
        __syncthreads();
        earlier = 0;
#pragma unroll
        for (int w = 0; w < THREADS / 32; w++)
            earlier += earlier_sums[w];
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
#pragma unroll
            for (int e = 0; e < PACK; e++)
                x[r][e] += earlier;
            store(dst + number / tiles * n, x[r], n, first_of(tile) + r * 32 * PACK, n, reverse, packed);
#pragma unroll
            for (int e = 0; e < PACK; e++)
                x[r][e] = y[r][e];
        }
        number = next;
        next = future;
        all = all_next;
    }
}

/* >>columns ----------------------------------------------------------------------------------------------------- */

/*  A thread does a part of a column; without dst it only sums it up. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_scan_columns(T *dst, Wide *partial, const T *src, long long outer, long long n, long long inner,
                       long long part_length, long long parts, int reverse)
{
    const long long step = (long long)gridDim.x * THREADS;
    for (long long item = (long long)blockIdx.x * THREADS + threadIdx.x; item < outer * parts * inner; item += step) {
        const long long column = item % inner, part = item / inner % parts, group = item / inner / parts;
        const long long begin = part * part_length, end = min(begin + part_length, n);
        const long long first = group * n * inner + column + (reverse ? (n - 1) * inner : 0),
                        by = reverse ? -inner : inner;
        Wide sum = 0;
        if (dst)
            for (long long p = 0; p < part; p++)
                sum += partial[(group * parts + p) * inner + column];
        for (long long i = begin; i < end; i += IN_FLIGHT) {
            T x[IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (i + k < end)
                    x[k] = src[first + (i + k) * by];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (i + k < end) {
                    sum += Wide(x[k]);
                    if (dst)
                        dst[first + (i + k) * by] = T(sum);
                }
        }
        if (!dst)
            partial[item] = sum;
    }
}
