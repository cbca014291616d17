// SPDX-License-Identifier: MIT
/*  models/experts_product.cu - products of rows with the matrices of their chosen experts, dense or quantised

    Only the weights of the chosen experts are read. A block has a tile of 16 rows of a matrix; its warps have slices of
    K, which are added as a tree. Slices depend on the model alone, so a row has the same bits alone and in a batch.
    There are two ways:

        by slots    Few rows. A block has a slot of a row, or, of down, all slots of a row, whose results it adds.
        by experts  The slots of many rows are sorted: experts_sorted.cu. A block has an expert, reads its weights once
                    for up to SLOTS slots, and ignis_experts_sum adds the results of a row's slots.

    f16 and bf16 on sm_80 and up are multiplied by tensor cores, slots as columns: dense weights as they are; quantised
    ones as whole numbers, and F8 as floats, as in gemv_blocks.cu. Many rows are converted once, by ignis_experts_whole.

    One program per element type, and types of gate (or down) and up: compiled with -DIGNIS_T=<1 to 4>, and, if they are
    quantised, with -DIGNIS_BLOCKS=<a blocks_type> -DIGNIS_BLOCKS_UP=<a blocks_type>. */
#include "ignis.cuh"
#include "activation.cuh"
#include "weights_f8.cuh"

#ifndef IGNIS_BLOCKS
#define IGNIS_BLOCKS 0 /* dense */
#endif
#ifndef IGNIS_BLOCKS_UP
#define IGNIS_BLOCKS_UP 0
#endif

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;
#include "experts.cuh"
#include "shared/models/experts.h"

/*  Returns whether a block has one scale and no minimum. */
__device__ constexpr bool has_one_scale(int type)
{
    const int scales = layout_of(type).scales;
    return scales == IGNIS__SCALES_BLOCK || scales == IGNIS__SCALES_POWER || scales == IGNIS__SCALES_32 ||
           scales == IGNIS__SCALES_128;
}

constexpr bool on_tensor_cores = ignis_is_half<T> && __CUDA_ARCH__ >= 800,
               whole =
                   on_tensor_cores && IGNIS_BLOCKS && IGNIS_BLOCKS_UP && is_f8(IGNIS_BLOCKS) == is_f8(IGNIS_BLOCKS_UP),
               dense = on_tensor_cores && !IGNIS_BLOCKS && !IGNIS_BLOCKS_UP;
/*  PART: elements of K that a warp takes at a time; SLOTS: slots of an expert that are multiplied at once, as registers
    allow */
constexpr int SLICES = 8, THREADS = 32 * SLICES, TILE = 16, PART = 32 * RECORD, MOST_SLOTS = 32,
              SLOTS = whole && has_one_scale(IGNIS_BLOCKS) && has_one_scale(IGNIS_BLOCKS_UP) ? 16 : 8;

/*  The product of a slice of K with a row of x: a number for each row of the tile. */
typedef Wide tile_of[TILE];

/*  Loads elements `at` to at + 7 of a row of k; zeros after its end. */
template <typename To> __device__ inline void eight_of(const T *row, int at, int k, To (&x)[8])
{
    constexpr int N = sizeof(T) == 8 ? 2 : sizeof(T) == 4 ? 4 : 8;
#pragma unroll
    for (int i = 0; i < 8; i += N) {
        ignis_pack<T, N> pack = {};
        if (k % 8 == 0 && at < k)
            pack = ignis_load<N>(row + at + i);
#pragma unroll
        for (int j = 0; j < N; j++)
            x[i + j] = To(pack[j]);
    }
    for (int i = 0; k % 8 && i < 8 && at + i < k; i++)
        x[i] = To(row[at + i]);
}

/*  A part of a row of x for plain cores: eight elements of each lane. */
struct plain_part {
    Wide x[8];

    __device__ void load(const T *row, int part, int k) { eight_of(row, part * PART + threadIdx.x % 32 * 8, k, x); }
};

/*  A part of a row of x as whole numbers: of a block, high bytes, then low ones. */
struct whole_part {
    uint8_t numbers[RECORD * 64];
    float scales[RECORD], sums[RECORD];

    /*  Converts a part of a row. E is T. */
    template <typename E> __device__ void convert(const E *row, int part, int k)
    {
        const int lane = threadIdx.x % 32, block = lane / 4;
        ignis_pack<E, 8> pack = {};
        if (part * PART + lane * 8 < k)
            pack = ignis_load<8>(row + part * PART + lane * 8);
        if (is_f8(IGNIS_BLOCKS)) {
            *(uint4 *)(numbers + lane * 16) = *(const uint4 *)&pack;
            return;
        }
        const whole_numbers<8, true> x(pack);
        *(uint2 *)(numbers + block * 64 + lane % 4 * 8) = make_uint2(x.high[0], x.high[1]);
        *(uint2 *)(numbers + block * 64 + 32 + lane % 4 * 8) = make_uint2(x.low[0], x.low[1]);
        if (lane % 4 == 0) {
            scales[block] = x.scale;
            sums[block] = x.sum;
        }
    }
};

/*  Slots with an expert in common. */
struct expert_slots {
    const int *own; /* in shared memory */
    const T *x;
    int count, divisor, k; /* divisor: slots of a row of x */

    __device__ const T *row(int i) const { return x + (long long)(own[i] / divisor) * k; }
};

/*  The products of 16 rows of a matrix with the rows of x of some slots: the sums of a warp's parts. Rows of the matrix
    after `last` are not read. By plain cores: */
template <int type> struct plain_product {
    Wide sum[SLOTS] = {}; /* of the row that is this lane */
    ignis__quantised_weight weight;
    const long long first, last;

    __device__ plain_product(const ignis__quantised_weight &w, long long first, long long last)
        : weight(w), first(first), last(last)
    {
        weight.type = type;
    }
    __device__ Wide of_part(int part, const plain_part &x) const
    {
        constexpr int unrolled = type ? 2 : sizeof(Wide) == 4 ? 8 : 4;
        const int lane = threadIdx.x % 32, at = part * PART + lane * 8, k = (int)weight.k;
        Wide own = 0;
#pragma unroll unrolled
        for (int r = 0; r < TILE; r++) {
            const long long row = min(first + r, last);
            Wide y = 0;
            if (type && at < k) {
                float v[8];
                blocks_eight(weight, row, at / 32, at / 8 % 4, v);
#pragma unroll
                for (int j = 0; j < 8; j++)
                    y += x.x[j] * Wide(v[j]);
            } else if (!type) {
                Wide v[8];
                eight_of((const T *)weight.records + row * k, at, k, v);
#pragma unroll
                for (int j = 0; j < 8; j++)
                    y += x.x[j] * v[j];
            }
            y = ignis_warp_sum(y);
            own = lane == r ? y : own;
        }
        return own;
    }
    __device__ void put(tile_of *to, int count) const
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < SLOTS; i++)
            if (i < count && lane < TILE)
                to[i][lane] = sum[i];
    }
};

/*  By tensor cores, quantised weights, one slot: */
template <int type> struct whole_product {
    typedef typename rows_of_blocks<type, T>::kind weights;
    float sum = 0; /* of row lane / 4, or, in odd lanes, of the one eight rows later */
    const weights from;
    typename weights::unit units[2]; /* of a part */

    __device__ whole_product(const ignis__quantised_weight &w, long long first, long long last)
        : from(w.records, w.scales, (int)w.k, min(first + threadIdx.x % 32 / 4, last),
               min(first + threadIdx.x % 32 / 4 + 8, last))
    {
    }
    __device__ void load(int number, int to) { units[to] = from.template load<true>(number); }
    /*  Returns the products of a unit that is loaded. half: of the part. */
    __device__ float of_unit(const typename weights::unit &unit, int half, const whole_part &x) const
    {
        const int lane = threadIdx.x % 32, t = lane % 4, block = half * UNIT + t;
        float y = 0;
        uint4 two[2] = {};
        if constexpr (weights::is_float) {
            weights::add_alone(y, unit, (const uint4 *)(x.numbers + half * UNIT * 64));
        } else {
            if (lane / 8 == t) {
                const uint4 *of = (const uint4 *)(x.numbers + block * 64 + lane / 4 % 2 * 32);
                two[0] = of[0];
                two[1] = of[1];
            }
            weights::add_alone(y, unit, half, two, __fmul_rn(x.scales[block], weights::factor), x.sums[block]);
        }
        return y;
    }
    __device__ void put(tile_of *to, int) const
    {
        const int lane = threadIdx.x % 32;
        if (lane % 4 < 2)
            (*to)[lane / 4 + lane % 4 * 8] = sum;
    }
};

/*  Loads elements `at` to at + 7 of a row of k 16-bit elements as words; zeros after its end. */
__device__ inline uint4 words_of(const T *row, int at, int k)
{
    __align__(16) T x[8];
    if (k % 8 == 0)
        return at < k ? *(const uint4 *)(row + at) : make_uint4(0, 0, 0, 0);
    eight_of(row, at, k, x);
    return *(const uint4 *)x;
}

/*  By tensor cores, dense weights: slots are columns. Of 32 elements of K lane % 4 = t has elements 8 t to 8 t + 7 of
    rows and of columns, which is another order of K than that of the MMA, for both the same. */
template <typename Half> struct dense_product {
    float sum[4] = {};
    const T *rows[2];
    const int k;

    __device__ dense_product(const ignis__quantised_weight &w, long long first, long long last)
        : rows{(const T *)w.records + min(first + threadIdx.x % 32 / 4, last) * w.k,
               (const T *)w.records + min(first + threadIdx.x % 32 / 4 + 8, last) * w.k},
          k((int)w.k)
    {
    }
    __device__ void add(int at, const uint4 &x)
    {
        const uint4 low = words_of(rows[0], at, k), high = words_of(rows[1], at, k);
        const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
        ignis_mma<Half>(sum, first, x.x, x.y);
        ignis_mma<Half>(sum, second, x.z, x.w);
    }
    __device__ void put(tile_of *to, int count) const
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (lane % 4 * 2 + c % 2 < count)
                to[lane % 4 * 2 + c % 2][lane / 4 + c / 2 * 8] = sum[c];
    }
};

template <int i> struct number_of {
    static constexpr int value = i;
};

template <int type, bool whole, bool dense> struct product_of {
    typedef plain_product<type> kind;
};
template <int type> struct product_of<type, true, false> {
    typedef whole_product<type> kind;
};
template <int type> struct product_of<type, false, true> {
    typedef dense_product<T> kind;
};
typedef product_of<IGNIS_BLOCKS, whole, dense>::kind product;
typedef product_of<IGNIS_BLOCKS_UP, whole, dense>::kind product_up;

/*  Multiplies parts of the rows of up to `most` slots with one or two matrices. */
template <int most, typename... Products>
__device__ inline void multiply_parts(const expert_slots &slots, int begin, int end, Products &...products)
{
    if constexpr (dense) {
        const int lane = threadIdx.x % 32, column = lane / 4;
        const T *const row = slots.row(column < slots.count ? column : 0);
#pragma unroll 4
        for (int at = begin * PART; at < min(end * PART, slots.k); at += 32) {
            const int own = at + lane % 4 * 8;
            const uint4 x = column < slots.count ? words_of(row, own, slots.k) : make_uint4(0, 0, 0, 0);
            (products.add(own, x), ...);
        }
    } else if constexpr (whole) {
        static_assert(most == 1, "multiply_whole multiplies several");
        __shared__ __align__(16) whole_part all[SLICES];
        whole_part &x = all[threadIdx.x / 32];
#pragma unroll 1
        for (int part = begin; part < end; part++) {
            /* all loads are in flight while x is converted */
            (products.load(2 * part, 0), ...);
            (products.load(2 * part + 1, 1), ...);
            __syncwarp(); /* all have read the part before */
            x.convert(slots.row(0), part, slots.k);
            __syncwarp();
#pragma unroll
            for (int half = 0; half < 2; half++)
                ((products.sum += products.of_unit(products.units[half], half, x)), ...);
        }
    } else {
#pragma unroll 1
        for (int part = begin; part < end; part++)
#pragma unroll 1
            for (int i = 0; i < slots.count; i++) {
                plain_part x;
                x.load(slots.row(i), part, slots.k);
                const auto add = [&](auto &to) {
                    const Wide y = to.of_part(part, x);
#pragma unroll
                    for (int j = 0; j < SLOTS; j++)
                        if (j == i)
                            to.sum[j] += y;
                };
                (add(products), ...);
            }
    }
}

/*  Adds the slices of a row, as a tree. found: of slice 0; the next ones are `apart` tiles later. */
__device__ inline Wide sum_of_slices(const tile_of *found, int apart, int row)
{
    return ((found[0][row] + found[apart][row]) + (found[2 * apart][row] + found[3 * apart][row])) +
           ((found[4 * apart][row] + found[5 * apart][row]) + (found[6 * apart][row] + found[7 * apart][row]));
}

/*  Returns the parts of K of a slice. */
__device__ inline int parts_of_slice(int k) { return ((k + PART - 1) / PART + SLICES - 1) / SLICES; }
__device__ inline int end_of_slice(int k, int slice)
{
    return min((k + PART - 1) / PART, (slice + 1) * parts_of_slice(k));
}

/*  Finds up to SLOTS slots of the expert that is blockIdx.x, from number `first` on, and returns how many. */
__device__ inline int slots_of_expert(const ignis__experts &p, int first, int (&own)[SLOTS])
{
    const int begin = p.offsets[blockIdx.x] + first, count = min(p.offsets[blockIdx.x + 1] - begin, SLOTS);
    __syncthreads(); /* all have read those before */
    if ((int)threadIdx.x < count)
        own[threadIdx.x] = p.order[begin + threadIdx.x];
    __syncthreads();
    return count;
}

/*  Computes the inner elements of a tile, of slots with an expert in common. */
template <int most>
__device__ inline void inner_of(const ignis__experts &p, int expert, const int *own, int count,
                                tile_of (&found)[2][SLICES][most])
{
    const int warp = threadIdx.x / 32, k = (int)p.weights[0].k, i = (int)threadIdx.x / TILE, in = threadIdx.x % TILE,
              row = (int)blockIdx.y * TILE + in;
    const long long base = (long long)expert * p.n, tile = base + blockIdx.y * TILE, last = base + p.n - 1;
    product gate(p.weights[0], tile, last);
    product_up up(p.weights[1], tile, last);
    multiply_parts<most>(expert_slots{own, p.x, count, p.slot_count, k}, warp * parts_of_slice(k),
                         end_of_slice(k, warp), gate, up);
    gate.put(found[0][warp], count);
    up.put(found[1][warp], count);
    __syncthreads();
    if (i < count && row < p.n)
        p.out[(long long)own[i] * p.n + row] =
            T(gated(Wide(p.limit), sum_of_slices(&found[0][0][i], most, in) + bias_at(p.bias[0], base + row),
                    sum_of_slices(&found[1][0][i], most, in) + bias_at(p.bias[1], base + row)));
}

/*  Computes inner [rows, slots, n] = gated(x gate^T, x up^T) with the matrices of the chosen experts.
    grid = rows * slots, tiles of n. */
extern "C" __global__ void __launch_bounds__(THREADS, 2) ignis_experts_up(const __grid_constant__ ignis__experts p)
{
    __shared__ tile_of found[2][SLICES][1];
    __shared__ int own[1];
    ignis_grid_dependency();
    if (threadIdx.x == 0)
        own[0] = (int)blockIdx.x;
    __syncthreads();
    inner_of<1>(p, p.chosen[blockIdx.x], own, 1, found);
}

/*  Converts a row of k elements to whole numbers: see ignis__experts. E is T. */
template <typename E> __device__ inline void convert_row(uint8_t *to, const E *row, int k, int units)
{
    float *scales = (float *)(to + units * UNIT * 64);
    for (int first = 0; first < units * UNIT * 4; first += THREADS) {
        const int eight = first + threadIdx.x;
        ignis_pack<E, 8> pack = {};
        if (eight * 8 < k)
            pack = ignis_load<8>(row + eight * 8);
        if (is_f8(IGNIS_BLOCKS)) {
            if (eight < units * UNIT * 4)
                ((uint4 *)to)[eight] = *(const uint4 *)&pack;
            continue;
        }
        const whole_numbers<8, true> x(pack);
        if (eight >= units * UNIT * 4)
            continue;
        ((uint4 *)to)[eight] = make_uint4(x.high[0], x.high[1], x.low[0], x.low[1]);
        if (eight % 4 == 0) {
            scales[eight / 4] = x.scale;
            scales[units * UNIT + eight / 4] = x.sum;
        }
    }
}

/*  Converts rows of x to whole numbers. grid = rows. */
template <typename Params> __device__ inline void convert_rows(const Params &p)
{
    const int k = (int)p.weights[0].k, units = (k + PART - 1) / PART * 2;
    convert_row(p.whole + (long long)blockIdx.x * units * IGNIS__EXPERTS_WHOLE_BYTES, p.x + (long long)blockIdx.x * k,
                k, units);
}
extern "C" __global__ void __launch_bounds__(THREADS) ignis_experts_whole(const __grid_constant__ ignis__experts p)
{
    ignis_grid_dependency();
    if constexpr (whole)
        convert_rows(p);
}

/*  Tiles that the warps of a block multiply before they add slices: of gate and of up, or of down. A warp has a slice
    of a tile at a time. */
constexpr int GROUP = 4, COLUMN = 20;     /* COLUMN: floats of a column of a tile, which do not conflict */
typedef float whole_tile[SLOTS * COLUMN]; /* a slice */

/*  Slots with an expert in common, whose rows of x are whole numbers. */
struct whole_slots {
    const uint8_t *x;
    const int *own;     /* in shared memory */
    int count, divisor; /* divisor: slots of a row of x */
};

/*  Multiplies a slice of a tile with slots, N times 8 columns. begin, end: of its parts. */
template <int type, int N>
__device__ inline void multiply_slice(float (&sum)[N][4], const ignis__quantised_weight &w, long long first,
                                      long long last, int begin, int end, const whole_slots &slots)
{
    typedef typename rows_of_blocks<type, T>::kind weights;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, k = (int)w.k, units = (k + PART - 1) / PART * 2;
    const weights from(w.records, w.scales, k, min(first + g, last), min(first + g + 8, last));
    constexpr int ring = N == 1 && has_one_scale(type) ? 2 : 1; /* as registers allow */
    int numbers[N], scales[N][2];                               /* offsets in x */
    typename weights::unit loaded[ring];
#pragma unroll
    for (int i = 0; i < ring; i++)
        loaded[i] = from.template load<false>(2 * begin + i);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const auto row = [&](int column) { /* clamped: columns that do not exist are not used */
                                           return slots.own[min(8 * n + column, slots.count - 1)] / slots.divisor *
                                                  units * IGNIS__EXPERTS_WHOLE_BYTES;
        };
        numbers[n] = row(g) + t * 16;
#pragma unroll
        for (int i = 0; i < 2; i++)
            scales[n][i] = row(2 * t + i) + units * UNIT * 64;
    }
#pragma unroll 1
    for (int first_unit = 2 * begin; first_unit < 2 * end; first_unit += ring) {
#pragma unroll
        for (int i = 0; i < ring; i++) {
            const int unit = first_unit + i;
            weights::template add<N, false>(
                sum, 8 * N, loaded[i], unit,
                [&](int block, int n) { return *(const uint4 *)(slots.x + numbers[n] + (unit * UNIT + block) * 64); },
                [&](int block, int n, float(&of)[2]) {
                    float2 both;
                    const float *first_of = (const float *)(slots.x + scales[n][0]) + unit * UNIT + block,
                                *second_of = (const float *)(slots.x + scales[n][1]) + unit * UNIT + block;
                    both.x = __fmul_rn(*first_of, weights::factor);
                    both.y = __fmul_rn(*second_of, weights::factor);
                    if (weights::minima) {
                        of[0] = first_of[units * UNIT];
                        of[1] = second_of[units * UNIT];
                    }
                    return both;
                });
            if (unit + ring < 2 * end)
                loaded[i] = from.template load<false>(unit + ring);
        }
    }
}

/*  Multiplies a group of tiles, from number `first` on: `matrices` of each, gate and up or down. */
template <int N, int matrices>
__device__ inline void multiply_group(const ignis__experts &p, int first, const int *own, int count,
                                      whole_tile (&found)[GROUP][SLICES])
{
    const int lane = threadIdx.x % 32, k = (int)p.weights[0].k, each = parts_of_slice(k),
              used = ((k + PART - 1) / PART + each - 1) / each;
    const long long base = (long long)blockIdx.x * p.n;
    const whole_slots slots = {p.whole, own, count, matrices == 2 ? p.slot_count : 1};
#pragma unroll 1
    for (int i = (int)threadIdx.x / 32; i < GROUP * used; i += SLICES) {
        const int which = i / used, slice = i % used, tile = first + which / matrices;
        float sum[N][4] = {};
        if (tile * TILE >= p.n)
            break;
        const auto multiply = [&](auto number, const ignis__quantised_weight &w) {
            multiply_slice<decltype(number)::value, N>(sum, w, base + tile * TILE, base + p.n - 1, slice * each,
                                                       end_of_slice(k, slice), slots);
        };
        if (IGNIS_BLOCKS == IGNIS_BLOCKS_UP)
            multiply(number_of<IGNIS_BLOCKS>(), p.weights[which % matrices]);
        else if (which % matrices == 0)
            multiply(number_of<IGNIS_BLOCKS>(), p.weights[0]);
        else
            multiply(number_of<IGNIS_BLOCKS_UP>(), p.weights[1]);
        float *to = found[which][slice] + lane % 4 * 2 * COLUMN + lane / 4;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                to[(8 * n + c % 2) * COLUMN + c / 2 * 8] = sum[n][c];
    }
}

/*  Multiplies the tiles of a block with all slots of its expert, and calls put(slot, row, y) with the results
    of a slot and a row of the matrices. */
template <int matrices, typename Put> __device__ inline void multiply_whole(const ignis__experts &p, const Put &put)
{
    __shared__ whole_tile found[GROUP][SLICES];
    __shared__ int own[SLOTS];
    constexpr int tiles = GROUP / matrices;
    const int in = threadIdx.x % TILE, i = threadIdx.x / TILE;
    for (int j = threadIdx.x; j < (int)(sizeof found / sizeof(float)); j += THREADS)
        ((float *)found)[j] = 0; /* slices that do not exist */
    for (int first_slot = 0, count; (count = slots_of_expert(p, first_slot, own)) > 0; first_slot += SLOTS)
        for (int first = blockIdx.y * tiles; first * TILE < p.n; first += gridDim.y * tiles) {
            if (SLOTS == 8 || count <= 8)
                multiply_group<1, matrices>(p, first, own, count, found);
            else
                multiply_group<2, matrices>(p, first, own, count, found);
            __syncthreads();
#pragma unroll 1
            for (int tile = 0; tile < tiles; tile++) {
                const int row = (first + tile) * TILE + in;
                float y[matrices];
                if (i >= count || row >= p.n)
                    continue;
#pragma unroll
                for (int m = 0; m < matrices; m++) {
                    const whole_tile *slices = found[tile * matrices + m];
                    const int at = i * COLUMN + in;
                    y[m] = ((slices[0][at] + slices[1][at]) + (slices[2][at] + slices[3][at])) +
                           ((slices[4][at] + slices[5][at]) + (slices[6][at] + slices[7][at]));
                }
                put(own[i], row, y);
            }
            __syncthreads();
        }
}

/*  As ignis_experts_up, by experts. grid = experts, tiles of n, or groups of them that are multiplied with whole
    numbers. */
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ignis_experts_up_sorted(const __grid_constant__ ignis__experts p)
{
    ignis_grid_dependency();
    if constexpr (whole) {
        const long long base = (long long)blockIdx.x * p.n;
        multiply_whole<2>(p, [&](int slot, int row, const float(&y)[2]) {
            p.out[(long long)slot * p.n + row] =
                T(gated(Wide(p.limit), y[0] + bias_at(p.bias[0], base + row), y[1] + bias_at(p.bias[1], base + row)));
        });
    } else {
        __shared__ tile_of found[2][SLICES][SLOTS];
        __shared__ int own[SLOTS];
        for (int first = 0, count; (count = slots_of_expert(p, first, own)) > 0; first += SLOTS)
            inner_of<SLOTS>(p, (int)blockIdx.x, own, count, found);
    }
}

/*  Adds the result of an expert, times its share, to the sum of a row, with one rounding in all kernels. */
__device__ inline Wide add_result(Wide total, Wide share, Wide found, Wide bias)
{
    return fma(share, found + bias, total);
}

__device__ inline void put_total(const ignis__experts &p, long long at, Wide total)
{
    if (p.out)
        p.out[at] = T(total);
    else
        p.sum[at] += total;
}

/*  Adds the results of the chosen experts, times their shares, to the rows of `sum`, or writes them to `out`, if that
    is not null. A warp has a slice of a slot at a time. grid = rows, tiles of n. */
extern "C" __global__ void __launch_bounds__(THREADS, 2) ignis_experts_down(const __grid_constant__ ignis__experts p)
{
    __shared__ tile_of found[MOST_SLOTS][SLICES];
    __shared__ int own[MOST_SLOTS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, k = (int)p.weights[0].k, each = parts_of_slice(k),
              used = ((k + PART - 1) / PART + each - 1) / each, row = (int)(blockIdx.y * TILE + threadIdx.x);
    ignis_grid_dependency();
    if ((int)threadIdx.x < p.slot_count)
        own[threadIdx.x] = (int)blockIdx.x * p.slot_count + (int)threadIdx.x;
    for (int i = (int)threadIdx.x; i < p.slot_count * (SLICES - used) * TILE; i += THREADS)
        found[i / TILE / (SLICES - used)][used + i / TILE % (SLICES - used)][i % TILE] = 0;
    __syncthreads();
    for (int i = warp; i < p.slot_count * used; i += SLICES) {
        const int slot = i / used, slice = i % used;
        const long long base = (long long)p.chosen[own[slot]] * p.n;
        product down(p.weights[0], base + blockIdx.y * TILE, base + p.n - 1);
        multiply_parts<1>(expert_slots{own + slot, p.x, 1, 1, k}, slice * each, end_of_slice(k, slice), down);
        down.put(&found[slot][slice], 1);
    }
    __syncthreads();
    if (threadIdx.x >= TILE || row >= p.n)
        return;
    Wide total = 0;
    for (int slot = 0; slot < p.slot_count; slot++)
        total = add_result(total, p.shares[own[slot]], sum_of_slices(found[slot], 1, lane),
                           bias_at(p.bias[0], (long long)p.chosen[own[slot]] * p.n + row));
    put_total(p, (long long)blockIdx.x * p.n + row, total);
}

/*  Computes the results [rows, slots, n] of the chosen experts, by experts. grid = as ignis_experts_up_sorted. */
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ignis_experts_down_sorted(const __grid_constant__ ignis__experts p)
{
    ignis_grid_dependency();
    if constexpr (whole) {
        multiply_whole<1>(
            p, [&](int slot, int row, const float(&y)[1]) { p.results[(long long)slot * p.n + row] = y[0]; });
    } else {
        __shared__ tile_of found[SLICES][SLOTS];
        __shared__ int own[SLOTS];
        const int warp = threadIdx.x / 32, k = (int)p.weights[0].k, row = (int)(blockIdx.y * TILE + threadIdx.x % TILE);
        const long long base = (long long)blockIdx.x * p.n;
        for (int first = 0, count; (count = slots_of_expert(p, first, own)) > 0; first += SLOTS) {
            product down(p.weights[0], base + blockIdx.y * TILE, base + p.n - 1);
            multiply_parts<SLOTS>(expert_slots{own, p.x, count, 1, k}, warp * parts_of_slice(k), end_of_slice(k, warp),
                                  down);
            down.put(found[warp], count);
            __syncthreads();
            for (int i = (int)threadIdx.x / TILE; i < count && row < p.n; i += THREADS / TILE)
                p.results[(long long)own[i] * p.n + row] = sum_of_slices(&found[0][i], SLOTS, (int)threadIdx.x % TILE);
        }
    }
}

/*  Adds the results of a row's experts, as ignis_experts_down does. grid = blocks of n, rows. */
extern "C" __global__ void __launch_bounds__(THREADS) ignis_experts_sum(const __grid_constant__ ignis__experts p)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x), first = (int)blockIdx.y * p.slot_count;
    Wide total = 0;
    ignis_grid_dependency();
    if (i >= p.n)
        return;
    for (int slot = first; slot < first + p.slot_count; slot++)
        total = add_result(total, p.shares[slot], p.results[(long long)slot * p.n + i],
                           bias_at(p.bias[0], (long long)p.chosen[slot] * p.n + i));
    put_total(p, (long long)blockIdx.y * p.n + i, total);
}
