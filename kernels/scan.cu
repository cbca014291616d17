// SPDX-License-Identifier: MIT
/*  scan.cu - all elements up to each one combined, along one dimension

        dst[outer, i, inner] = src[outer, j, inner] combined over all j <= i, or over all j >= i if reverse

    IGNIS_SCAN chooses an operator: sum, product, largest or smallest element, log of the sum of exp, or a gradient of
    these. It combines states, the earlier one on the left, and need not commute. States are in ignis_wide<T>; a
    result is rounded once. The order of all combinations follows from the launch alone, so equal launches give equal
    bits. Where there are few columns, they are cut into parts of part_length: a first launch writes the state of each
    to partial [outer, parts, inner], and a second one combines those before its own. Long rows are cut into tiles,
    and read once.

    One program per element type and operator: compiled with -DIGNIS_T=<ignis_dtype> -DIGNIS_SCAN=<operator>. Blocks
    have THREADS threads, grids any number of blocks. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#include "shared/scan.h"

#define THREADS IGNIS__SCAN_THREADS
#define PACK (sizeof(T) == 1 ? 8 : 16 / (int)sizeof(T)) /* consecutive elements of a thread */
#define IN_FLIGHT 8 /* rows that a thread of the columns loads before it combines the first */

/* >>operators --------------------------------------------------------------------------------------------------- */

#ifndef IGNIS_SCAN
#define IGNIS_SCAN 0 /* one of the operators of shared/scan.h, as a number for the preprocessor */
#endif

/*  An element: where it is in the arrays, and its index along the dimension. */
struct Place {
    long long at, index;
};

#if IGNIS_SCAN == 0 || IGNIS_SCAN == 1
typedef Wide State;
struct Operator {
    static constexpr bool commutes = true;
    static __device__ State none() { return IGNIS_SCAN == 0 ? 0 : 1; }
    static __device__ State combine(State earlier, State later)
    {
        return IGNIS_SCAN == 0 ? earlier + later : earlier * later;
    }
    static __device__ State of(T x, const ignis__scan_arrays &, Place) { return Wide(x); }
    static __device__ T result(State state, const ignis__scan_arrays &, Place) { return T(state); }
};
#elif IGNIS_SCAN == 2 || IGNIS_SCAN == 3
/*  The largest or smallest element and its index, -1 if there is none. The last of equal elements counts; NaN wins over
    numbers. */
template <bool is_float> struct value_of {
    typedef T type;
};
template <> struct value_of<true> {
    typedef Wide type;
};
struct State {
    value_of<ignis_is_float<T>>::type value;
    int index;
};
struct Operator {
    static constexpr bool commutes = false;
    static __device__ State none()
    {
        if constexpr (ignis_is_float<T>)
            return {IGNIS_SCAN == 2 ? -ignis_infinity<Wide>() : ignis_infinity<Wide>(), -1};
        else
            return {IGNIS_SCAN == 2 ? ignis_min_value<T>() : ignis_max_value<T>(), -1};
    }
    static __device__ State combine(State earlier, State later)
    {
        const bool wins = IGNIS_SCAN == 2 ? later.value >= earlier.value : later.value <= earlier.value;
        return later.index >= 0 && (wins || later.value != later.value) ? later : earlier;
    }
    static __device__ State of(T x, const ignis__scan_arrays &, Place place) { return {x, (int)place.index}; }
    static __device__ T result(State state, const ignis__scan_arrays &, Place) { return T(state.value); }
};
#elif IGNIS_SCAN == 4 || IGNIS_SCAN == 6
/*  sum * exp(most). No exp of it is larger than 1. NaN is in the sum. */
struct State {
    Wide most, sum;
};
struct Operator {
    static constexpr bool commutes = true;
    static __device__ State none() { return {-ignis_infinity<Wide>(), 0}; }
    static __device__ State combine(State earlier, State later)
    {
        const bool less = later.most < earlier.most;
        const State high = less ? earlier : later, low = less ? later : earlier;
        const Wide scale = low.most == high.most ? Wide(1) : exp(low.most - high.most);
        return {high.most, high.sum + low.sum * scale};
    }
    /*  The gradient: dx[i] = exp(x[i]) * the sum of g[j] exp(-y[j]) over j >= i. */
    static __device__ State of(T element, const ignis__scan_arrays &arrays, Place place)
    {
        const Wide x = IGNIS_SCAN == 4 ? Wide(element) : -Wide(arrays.y[place.at]),
                   factor = IGNIS_SCAN == 4 ? Wide(1) : Wide(element);
        if (x != x)
            return {-ignis_infinity<Wide>(), x};
        const bool nothing = x == (IGNIS_SCAN == 4 ? -ignis_infinity<Wide>() : ignis_infinity<Wide>());
        return nothing ? none() : State{x, factor};
    }
    static __device__ T result(State state, const ignis__scan_arrays &arrays, Place place)
    {
        if constexpr (IGNIS_SCAN == 4)
            return T(state.most + log(state.sum));
        else
            return T(state.sum * exp(state.most + Wide(arrays.x[place.at])));
    }
};
#elif IGNIS_SCAN == 5
/*  The gradient of products: dx[i] = y[i - 1] s[i] with s[i] = g[i] + x[i + 1] s[i + 1], which divides by nothing. A
    state is the function factor * s + term of what comes before it. */
struct State {
    Wide factor, term;
};
struct Operator {
    static constexpr bool commutes = false;
    static __device__ State none() { return {1, 0}; }
    static __device__ State combine(State earlier, State later)
    {
        return {earlier.factor * later.factor, earlier.term * later.factor + later.term};
    }
    static __device__ State of(T g, const ignis__scan_arrays &arrays, Place place)
    {
        return {place.index + 1 < arrays.n ? Wide(arrays.x[place.at + arrays.inner]) : Wide(1), Wide(g)};
    }
    static __device__ T result(State state, const ignis__scan_arrays &arrays, Place place)
    {
        return T(place.index > 0 ? Wide(arrays.y[place.at - arrays.inner]) * state.term : state.term);
    }
};
#endif

/*  Returns the state of the lane `distance` lanes before this one. */
__device__ inline State from_lower(State x, int distance)
{
    uint32_t words[sizeof(State) / 4];
    memcpy(words, &x, sizeof(x));
#pragma unroll
    for (int i = 0; i < (int)sizeof(State) / 4; i++)
        words[i] = __shfl_up_sync(0xffffffff, words[i], distance);
    memcpy(&x, words, sizeof(x));
    return x;
}

/*  Returns the state of a lane. */
__device__ inline State from_lane(State x, int lane)
{
    uint32_t words[sizeof(State) / 4];
    memcpy(words, &x, sizeof(x));
#pragma unroll
    for (int i = 0; i < (int)sizeof(State) / 4; i++)
        words[i] = __shfl_sync(0xffffffff, words[i], lane);
    memcpy(&x, words, sizeof(x));
    return x;
}

/*  Combines the states of a warp's lanes in their order; every lane gets the result. */
__device__ inline State combine_warp(State x)
{
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const State other = from_lane(x, threadIdx.x % 32 ^ distance);
        x = threadIdx.x & distance ? Operator::combine(other, x) : Operator::combine(x, other);
    }
    return x;
}

/*  Combines the states of a block's threads in their order; every thread gets the result. */
__device__ inline State combine_block(State x)
{
    __shared__ State of_warps[THREADS / 32];
    x = combine_warp(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = of_warps[0];
#pragma unroll
    for (int w = 1; w < THREADS / 32; w++)
        x = Operator::combine(x, of_warps[w]);
    return x;
}

/*  Combines x over all threads of the team before this one; *all becomes that over the whole team. */
template <typename Team> __device__ inline State combine_before(State x, State *all)
{
    __shared__ State of_warps[THREADS / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    State sum = x, before = Operator::none();
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const State lower = from_lower(sum, distance);
        if (lane >= distance)
            sum = Operator::combine(lower, sum);
    }
    const State up_to_me = sum;
    if constexpr (Team::is_block) {
        __syncthreads();
        if (lane == 31)
            of_warps[warp] = sum;
        __syncthreads();
        *all = Operator::none();
#pragma unroll
        for (int w = 0; w < THREADS / 32; w++) {
            if (w == warp)
                before = *all;
            *all = Operator::combine(*all, of_warps[w]);
        }
    } else {
        *all = from_lane(sum, 31);
    }
    const State lower = from_lower(up_to_me, 1);
    return lane ? Operator::combine(before, lower) : before;
}

/*  The place of the i-th element of a row in the order of the scan; src begins `start` elements before the row. */
__device__ inline Place place_of(long long start, long long n, long long i, bool reverse)
{
    const long long index = reverse ? n - 1 - i : i;
    return {start + index, index};
}

/*  Loads PACK elements from i on, in the order of the scan; from end on there are none. */
__device__ inline void load(State (&x)[PACK], const T *src, const ignis__scan_arrays &arrays, long long start,
                            long long n, long long i, bool reverse, bool packed)
{
    ignis_pack<T, PACK> pack;
    if (packed && i < n)
        pack = ignis_load<PACK>(src + start + (reverse ? n - PACK - i : i));
#pragma unroll
    for (int e = 0; e < PACK; e++) {
        const Place place = place_of(start, n, i + e, reverse);
        if (i + e >= n)
            x[e] = Operator::none();
        else if (packed)
            x[e] = Operator::of(reverse ? pack[PACK - 1 - e] : pack[e], arrays, place);
        else
            x[e] = Operator::of(src[place.at], arrays, place);
    }
}

__device__ inline void store(T *dst, const State (&x)[PACK], const ignis__scan_arrays &arrays, long long start,
                             long long n, long long i, bool reverse, bool packed)
{
    if (i >= n)
        return;
    if (packed) {
        ignis_pack<T, PACK> pack;
#pragma unroll
        for (int e = 0; e < PACK; e++)
            pack[reverse ? PACK - 1 - e : e] = Operator::result(x[e], arrays, place_of(start, n, i + e, reverse));
        ignis_store(dst + start + (reverse ? n - PACK - i : i), pack);
    } else {
#pragma unroll
        for (int e = 0; e < PACK; e++)
            if (i + e < n) {
                const Place place = place_of(start, n, i + e, reverse);
                dst[place.at] = Operator::result(x[e], arrays, place);
            }
    }
#if IGNIS_SCAN == 2 || IGNIS_SCAN == 3 /* never in reverse */
#pragma unroll
    for (int e = 0; e < PACK; e += 2) {
        ignis_pack<long long, 2> two;
        two[0] = x[e].index;
        two[1] = x[e + 1].index;
        if (packed)
            ignis_store(arrays.positions + start + i + e, two);
        else
#pragma unroll
            for (int k = 0; k < 2; k++)
                if (i + e + k < n)
                    arrays.positions[start + i + e + k] = two[k];
    }
#endif
}

/* >>rows -------------------------------------------------------------------------------------------------------- */

/*  A team does a row. */
template <typename Team>
__device__ inline void scan_rows(T *dst, const T *src, const ignis__scan_arrays &arrays, long long outer, long long n,
                                 bool reverse, bool packed)
{
    for (long long row = Team::first(); row < outer; row += Team::count()) {
        State carry = Operator::none();
        for (long long at = 0; at < n; at += Team::size() * PACK) {
            const long long i = at + Team::thread() * PACK;
            State x[PACK], all;
            load(x, src, arrays, row * n, n, i, reverse, packed);
#pragma unroll
            for (int e = 1; e < PACK; e++)
                x[e] = Operator::combine(x[e - 1], x[e]);
            const State before = Operator::combine(carry, combine_before<Team>(x[PACK - 1], &all));
#pragma unroll
            for (int e = 0; e < PACK; e++)
                x[e] = Operator::combine(before, x[e]);
            store(dst, x, arrays, row * n, n, i, reverse, packed);
            carry = Operator::combine(carry, all);
        }
    }
}

/*  inner is 1. packed: n is a multiple of PACK, all arrays are aligned to 16 bytes. warps: a warp does a row, and not a
    block. */
extern "C" __global__ void __launch_bounds__(THREADS, (int)sizeof(State) * PACK > 32 ? 2 : 3)
    ignis_scan_rows(T *dst, const T *src, ignis__scan_arrays arrays, long long outer, long long n, int reverse,
                    int packed, int warps)
{
    if (warps)
        scan_rows<ignis_warp_team>(dst, src, arrays, outer, n, reverse, packed);
    else
        scan_rows<ignis_block_team>(dst, src, arrays, outer, n, reverse, packed);
}

/* >>tiles ------------------------------------------------------------------------------------------------------- */

#define ROUNDS                                                                                       \
    ((int)sizeof(State) * PACK < IGNIS__SCAN_BYTES ? IGNIS__SCAN_BYTES / ((int)sizeof(State) * PACK) \
                                                   : 1) /* packs of a thread */
#define TILE (THREADS * ROUNDS * PACK)                  /* as the host computes it */
#define HALVES ((int)sizeof(State) / 4)

/*  Publishes a tile's state: each 32 bits are a word with a bit that marks it as written. */
__device__ inline void say(uint64_t *to, State sum)
{
    uint32_t half[HALVES];
    memcpy(half, &sum, sizeof(sum));
#pragma unroll
    for (int i = 0; i < HALVES; i++)
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to + i), "l"((uint64_t)1 << 32 | half[i]) : "memory");
}

__device__ inline State hear(const uint64_t *from)
{
    uint32_t half[HALVES];
    State sum;
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
    Parallel Prefix Scan with Decoupled Look-back, 2016), but in one order: each tile publishes its state; the
    last one of THREADS tiles in a row, a group, says that of the group. A tile combines what the groups
    before its own say, and the tiles before it in its group. said [outer, tiles + groups, HALVES] and *next_tile are
    0 before.

    Blocks draw tiles in order, and say a tile's state before they wait for those before the tile that they had
    drawn before it: by then these have been said. Meanwhile one more is loaded. Of the tiles that are not
    done the first one waits for such that have said their states, so that no block waits for ever. */
extern "C" __global__ void __launch_bounds__(THREADS, sizeof(State) >= 8 ? 2 : 3)
    ignis_scan_tiles(T *dst, uint64_t *said, uint32_t *next_tile, const T *src, ignis__scan_arrays arrays,
                     long long outer, long long n, int tiles, int reverse, int packed)
{
    __shared__ uint32_t drawn;
    __shared__ State warp_sums[THREADS / 32];
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
    /* Combines the elements of a loaded tile up to each of them, and all of them, which is published;
       returns the next tile. */
    const auto add_up = [&](uint32_t number, State(&x)[ROUNDS][PACK], State &all) {
        const long long first = first_of(number % tiles), start = number / tiles * n;
        uint32_t future = 0;
        State sum = Operator::none(), before = sum;
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            const long long from = first + r * 32 * PACK;
            if (!packed)
                load(x[r], src, arrays, start, n, from, reverse, false);
#pragma unroll
            for (int e = 0; e < PACK && packed; e++)
                x[r][e] = from < n ? Operator::of(ahead[r][reverse ? PACK - 1 - e : e], arrays,
                                                  place_of(start, n, from + e, reverse))
                                   : Operator::none();
#pragma unroll
            for (int e = 1; e < PACK; e++)
                x[r][e] = Operator::combine(x[r][e - 1], x[r][e]);
            sum = Operator::combine(sum, Operator::commutes ? x[r][PACK - 1] : combine_warp(x[r][PACK - 1]));
        }
        if (Operator::commutes)
            sum = combine_warp(sum);
        if (lane == 0)
            warp_sums[warp] = sum;
        __syncthreads();
        all = Operator::none();
#pragma unroll
        for (int w = 0; w < THREADS / 32; w++) {
            if (w == warp)
                before = all;
            all = Operator::combine(all, warp_sums[w]);
        }
        if (threadIdx.x == 0) {
            say(says(number) + (long long)(number % tiles) * HALVES, all);
            future = atomicAdd(next_tile, 1u);
        }
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            State of_round;
            const State up_to_lane = combine_before<ignis_warp_team>(x[r][PACK - 1], &of_round),
                        in_round = Operator::combine(before, up_to_lane);
#pragma unroll
            for (int e = 0; e < PACK; e++)
                x[r][e] = Operator::combine(in_round, x[r][e]);
            before = Operator::combine(before, of_round);
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
    State x[ROUNDS][PACK], all;
    load_tile(number);
    if (number < count)
        load_tile(next = add_up(number, x, all));
#pragma unroll 1
    while (number < count) {
        const int tile = number % tiles, group = tile / THREADS, in_group = tile % THREADS;
        const uint64_t *const tile_says = says(number);
        uint64_t *const group_says = says(number) + (long long)tiles * HALVES;
        uint32_t future = count;
        State y[ROUNDS][PACK], all_next = Operator::none();
        if (next < count)
            load_tile(future = add_up(next, y, all_next));
        State earlier = Operator::none(), groups_before = earlier;
        if ((int)threadIdx.x < in_group)
            earlier = hear(tile_says + (long long)(tile - in_group + threadIdx.x) * HALVES);
        earlier = combine_block(earlier);
        if (in_group == THREADS - 1 && threadIdx.x == 0)
            say(group_says + (long long)group * HALVES, Operator::combine(earlier, all));
        if (group > 0) {
            const int each = (group + THREADS - 1) / THREADS, end = min(group, (int)(threadIdx.x + 1) * each);
            for (int g = threadIdx.x * each; g < end; g++)
                groups_before = Operator::combine(groups_before, hear(group_says + (long long)g * HALVES));
            earlier = Operator::combine(combine_block(groups_before), earlier);
        }
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
#pragma unroll
            for (int e = 0; e < PACK; e++)
                x[r][e] = Operator::combine(earlier, x[r][e]);
            store(dst, x[r], arrays, number / tiles * n, n, first_of(tile) + r * 32 * PACK, reverse, packed);
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

/*  A thread does a part of a column; without dst it only combines it. */
extern "C" __global__ void __launch_bounds__(THREADS, sizeof(State) == 16 ? 1 : 2)
    ignis_scan_columns(T *dst, State *partial, const T *src, ignis__scan_arrays arrays, long long outer,
                       long long part_length, long long parts, int reverse)
{
    const long long n = arrays.n, inner = arrays.inner, step = (long long)gridDim.x * THREADS;
    for (long long item = (long long)blockIdx.x * THREADS + threadIdx.x; item < outer * parts * inner; item += step) {
        const long long column = item % inner, part = item / inner % parts, group = item / inner / parts;
        const long long begin = part * part_length, end = min(begin + part_length, n),
                        first = group * n * inner + column + (reverse ? (n - 1) * inner : 0),
                        by = reverse ? -inner : inner;
        State sum = Operator::none();
        const auto place = [&](long long i) { return Place{first + i * by, reverse ? n - 1 - i : i}; };
        if (dst)
            for (long long p = 0; p < part; p++)
                sum = Operator::combine(sum, partial[(group * parts + p) * inner + column]);
        for (long long i = begin; i < end; i += IN_FLIGHT) {
            T x[IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (i + k < end)
                    x[k] = src[place(i + k).at];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (i + k < end) {
                    const Place at = place(i + k);
                    sum = Operator::combine(sum, Operator::of(x[k], arrays, at));
                    if (dst)
                        dst[at.at] = Operator::result(sum, arrays, at);
#if IGNIS_SCAN == 2 || IGNIS_SCAN == 3
                    if (dst)
                        arrays.positions[at.at] = sum.index;
#endif
                }
        }
        if (!dst)
            partial[item] = sum;
    }
}
