// SPDX-License-Identifier: MIT
/*  models/experts_product.cu - products of rows with the matrices of their chosen experts, dense or quantised

    Only the weights of the chosen experts are read. A block has a tile of 16 rows of a matrix; its warps have slices of
    K, which are added as a tree. Slices depend on the model alone, so a row has the same bits alone and in a batch.
    Blocks of all rows of x with the same tile are adjacent: rows that have an expert in common find its weights in the
    cache. f16 and bf16 on sm_80 and up multiply quantised weights as whole numbers on tensor cores, as gemv_blocks.cu.

    One program per element type, and types of gate (or down) and up: compiled with -DIGNIS_T=<1 to 4>, and, if they are
    quantised, with -DIGNIS_BLOCKS=<a blocks_type> -DIGNIS_BLOCKS_UP=<a blocks_type>. */
#include "ignis.cuh"
#include "activation.cuh"
#include "weights_blocks.cuh"

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

constexpr int SLICES = 8, THREADS = 32 * SLICES, TILE = 16, PART = 32 * RECORD; /* PART: elements of a part of K */
constexpr bool whole = ignis_is_half<T> && IGNIS_BLOCKS && IGNIS_BLOCKS_UP && __CUDA_ARCH__ >= 800;

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

/*  A part of a row of x as whole numbers, in the shared memory of a warp: of a block, high bytes, then low ones. */
template <typename E> struct whole_part {
    struct memory {
        uint8_t numbers[RECORD * 64];
        float scales[RECORD], sums[RECORD];
    };
    memory *at;

    __device__ void load(const E *row, int part, int k)
    {
        __shared__ __align__(16) memory all[SLICES];
        const int lane = threadIdx.x % 32, block = lane / 4;
        ignis_pack<E, 8> pack = {};
        if (part * PART + lane * 8 < k)
            pack = ignis_load<8>(row + part * PART + lane * 8);
        at = &all[threadIdx.x / 32];
        const whole_numbers<8, true> x(pack);
        __syncwarp(); /* all have read the part before */
        *(uint2 *)(at->numbers + block * 64 + lane % 4 * 8) = make_uint2(x.high[0], x.high[1]);
        *(uint2 *)(at->numbers + block * 64 + 32 + lane % 4 * 8) = make_uint2(x.low[0], x.low[1]);
        if (lane % 4 == 0) {
            at->scales[block] = x.scale;
            at->sums[block] = x.sum;
        }
        __syncwarp();
    }
};

/*  The products of 16 rows of a matrix, from `first` on, with a row of x: the sum of this warp's parts. Rows after
    `last` are not read. */
template <int type, bool whole> struct product {
    Wide sum = 0; /* of the row that is this lane */

    __device__ void add(const ignis__quantised_weight &w, long long first, long long last, int part,
                        const plain_part &x, Wide share)
    {
        constexpr int unrolled = type ? 2 : TILE;
        const int lane = threadIdx.x % 32, at = part * PART + lane * 8, k = (int)w.k;
        ignis__quantised_weight weight = w;
        weight.type = type;
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
                eight_of((const T *)w.records + row * k, at, k, v);
#pragma unroll
                for (int j = 0; j < 8; j++)
                    y += x.x[j] * v[j];
            }
            y = ignis_warp_sum(y);
            sum += lane == r ? share * y : Wide(0);
        }
    }
    __device__ void put(Wide *to) const
    {
        if (threadIdx.x % 32 < TILE)
            to[threadIdx.x % 32] = sum;
    }
};

template <int type> struct product<type, true> {
    typedef blocks_rows<type> weights;
    float sum = 0; /* of row lane / 4, or, in odd lanes, of the one eight rows later */

    __device__ void add(const ignis__quantised_weight &w, long long first, long long last, int part,
                        const whole_part<T> &x, float share)
    {
        const int lane = threadIdx.x % 32, t = lane % 4;
        const weights from(w.records, w.scales, (int)w.k, min(first + lane / 4, last), min(first + lane / 4 + 8, last));
        const typename weights::unit units[2] = {from.template load<true>(2 * part),
                                                 from.template load<true>(2 * part + 1)};
        float y = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int block = i * UNIT + t;
            uint4 two[2] = {};
            if (lane / 8 == t) {
                const uint4 *of = (const uint4 *)(x.at->numbers + block * 64 + lane / 4 % 2 * 32);
                two[0] = of[0];
                two[1] = of[1];
            }
            weights::add_alone(y, units[i], i, two, __fmul_rn(x.at->scales[block], weights::factor), x.at->sums[block]);
        }
        sum = fmaf(share, y, sum);
    }
    __device__ void put(float *to) const
    {
        const int lane = threadIdx.x % 32;
        if (lane % 4 < 2)
            to[lane / 4 + lane % 4 * 8] = sum;
    }
};

template <bool whole> struct part_of {
    typedef plain_part type;
};
template <> struct part_of<true> {
    typedef whole_part<T> type;
};
typedef part_of<whole>::type x_part;

/*  Adds the slices of a row, as a tree. */
__device__ inline Wide sum_of_slices(const Wide (&found)[SLICES][TILE], int row)
{
    return ((found[0][row] + found[1][row]) + (found[2][row] + found[3][row])) +
           ((found[4][row] + found[5][row]) + (found[6][row] + found[7][row]));
}

/*  Computes inner [rows, slots, n] = gated(x gate^T, x up^T) with the matrices of the chosen experts.
    grid = rows * slots, tiles of n. */
extern "C" __global__ void __launch_bounds__(THREADS, 2) ignis_experts_up(const __grid_constant__ ignis__experts p)
{
    __shared__ Wide found[2][SLICES][TILE];
    const int warp = threadIdx.x / 32, k = (int)p.weights[0].k, parts = (k + PART - 1) / PART,
              each = (parts + SLICES - 1) / SLICES, row = (int)(blockIdx.y * TILE + threadIdx.x);
    ignis_grid_dependency();
    const long long base = (long long)p.chosen[blockIdx.x] * p.n, first = base + blockIdx.y * TILE,
                    last = base + p.n - 1;
    const T *const from = p.x + (long long)(blockIdx.x / p.slot_count) * k;
    product<IGNIS_BLOCKS, whole> gate;
    product<IGNIS_BLOCKS_UP, whole> up;
    x_part x;
    for (int part = warp * each; part < min(parts, (warp + 1) * each); part++) {
        x.load(from, part, k);
        gate.add(p.weights[0], first, last, part, x, 1);
        up.add(p.weights[1], first, last, part, x, 1);
    }
    gate.put(found[0][warp]);
    up.put(found[1][warp]);
    __syncthreads();
    if (threadIdx.x < TILE && row < p.n)
        p.out[(long long)blockIdx.x * p.n + row] =
            T(gated(Wide(p.limit), sum_of_slices(found[0], (int)threadIdx.x) + bias_at(p.bias[0], base + row),
                    sum_of_slices(found[1], (int)threadIdx.x) + bias_at(p.bias[1], base + row)));
}

/*  Adds the results of the chosen experts, times their shares, to the rows of `sum`, or writes them to `out`, if that
    is not null. grid = rows, tiles of n. */
extern "C" __global__ void __launch_bounds__(THREADS, 2) ignis_experts_down(const __grid_constant__ ignis__experts p)
{
    __shared__ Wide found[SLICES][TILE];
    const int warp = threadIdx.x / 32, k = (int)p.weights[0].k, parts = (k + PART - 1) / PART,
              all = parts * p.slot_count, each = (all + SLICES - 1) / SLICES,
              row = (int)(blockIdx.y * TILE + threadIdx.x);
    product<IGNIS_BLOCKS, whole> down;
    x_part x;
    ignis_grid_dependency();
    for (int i = warp * each; i < min(all, (warp + 1) * each); i++) {
        const int slot = (int)blockIdx.x * p.slot_count + i / parts;
        const long long base = (long long)p.chosen[slot] * p.n;
        x.load(p.x + (long long)slot * k, i % parts, k);
        down.add(p.weights[0], base + blockIdx.y * TILE, base + p.n - 1, i % parts, x, p.shares[slot]);
    }
    down.put(found[warp]);
    __syncthreads();
    if (threadIdx.x >= TILE || row >= p.n)
        return;
    Wide total = sum_of_slices(found, (int)threadIdx.x);
    for (int s = 0; s < p.slot_count && p.bias[0]; s++) {
        const int slot = (int)blockIdx.x * p.slot_count + s;
        total += p.shares[slot] * bias_at(p.bias[0], (long long)p.chosen[slot] * p.n + row);
    }
    if (p.out)
        p.out[(long long)blockIdx.x * p.n + row] = T(total);
    else
        p.sum[(long long)blockIdx.x * p.n + row] += total;
}
