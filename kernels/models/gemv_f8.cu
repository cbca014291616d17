// SPDX-License-Identifier: MIT
/*  models/gemv_f8.cu - products of rows of e4m3 with weights of F8, by warpgroups of sm_90a

    Weights have the records of blocks.cuh. x is rounded to e4m3 with an f32 scale for each unit of 128 elements of a
    row, as in DeepSeek-V3 (DeepSeek-AI, 2024, section 3.3). wgmma adds a unit from zero; the sum times both scales is
    added in f32. Each half of K, in records, is summed from zero, unit after unit, and both sums are added. No sum
    depends on the number of rows: a row has the same bits alone and in any batch.

    Records of weights and units of x have rings of their own. Up to 64 columns a block has 64 rows of weights, and an
    SM has two blocks; with 128 columns a block has 128 rows. The weights come through registers, as the A of wgmma: of
    a block of 32 elements lane % 4 = t has elements 8 t to 8 t + 7, the first four as bytes 4 t to 4 t + 3 of the
    operand, the last four 16 bytes later, each four in the order 0, 2, 1, 3. x is stored in that order.

    For f16 and bf16. Compiled with -DIGNIS_COLUMNS=<16, 32, 64 or 128> -DIGNIS_SPLIT=<1 or 2>: ignis_gemv_f8; without
    both: ignis_gemv_f8_rows.
*/
#define IGNIS_OPERANDS 8
#include "gemv.cuh"
#include "hopper.cuh"
#include "blocks.cuh"

/*  Returns the place of a row's scale: those of 16 rows are in an order of which lanes read four at a time. */
__device__ inline int scale_place(int row) { return row / 16 * 16 + row % 8 / 2 * 4 + row % 16 / 8 * 2 + row % 2; }
__device__ inline int scales_of_rows(int rows) { return (rows + 15) / 16 * 16; } /* from a unit to the next */

#ifndef IGNIS_COLUMNS

/*  Rounds rows of x. all.x: [rows, records of K, 256] bytes; all.scales: [units of the records, scales_of_rows]. A unit
    with a number that is not finite has the scale NaN. The blocks of a row, one if its norm comes first, have
    PART_UNITS each. grid = rows times them. */
constexpr int UNIT = 128, WARP_UNITS = 4, PART_UNITS = WARP_UNITS * SLICES;

extern "C" __global__ void __launch_bounds__(THREADS) ignis_gemv_f8_rows(const __grid_constant__ ignis__gemv_blocks all)
{
    const ignis__gemv_mma &p = all.product;
    const int parts = (int)gridDim.x / p.rows, row = (int)blockIdx.x / parts,
              first = (int)blockIdx.x % parts * PART_UNITS + (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32,
              units = ((int)p.k + 2 * UNIT - 1) / (2 * UNIT) * 2;
    const int stride = scales_of_rows(p.rows);
    /* the order of operands */
    uint8_t *const to = all.x + (long long)row * units * UNIT + lane / 8 * 32 + lane % 2 * 16 + lane % 8 / 2 * 4;
    float *const scales = all.scales + scale_place(row);
    const auto put =
        [&](int unit,
            const ignis_pack<T, 4> &x) { /* by a warp: lanes have four elements */
                                         float most = 0;
                                         bool finite = true;
#pragma unroll
                                         for (int i = 0; i < 4; i++) {
                                             const float size = fabsf(float(x[i]));
                                             finite = finite && size <= 3.402823466e38f;
                                             most = fmaxf(most, size);
                                         }
                                         /* a scale has a finite inverse */
                                         const float scale =
                                             fmaxf(__fdiv_rn(ignis_warp_max(most), 448.0f), 1.175494351e-38f);
                                         const bool all_finite = __all_sync(0xffffffff, finite);
                                         const float inverse = __frcp_rn(scale);
                                         const auto two = [&](int one, int other) {
                                             return ignis_e4m3_two(float(x[one]) * inverse, float(x[other]) * inverse);
                                         };
                                         *(uint32_t *)(to + unit * UNIT) = all_finite ? two(0, 2) | two(1, 3) << 16 : 0;
                                         if (lane == 0)
                                             scales[(long long)unit * stride] =
                                                 all_finite ? scale : __int_as_float(0x7fc00000);
        };
    ignis_grid_dependents_launch();
    if (p.norm_of) {
        const row_norm norm(p);
        ignis_grid_dependency_wait();
        norm.run(p.norm_of + row * p.k, [&](int i, const ignis_pack<T, 4> &four) { put(i / UNIT, four); });
        if (threadIdx.x / 32 == 0 && (units - 1) * UNIT >= p.k)
            put(units - 1, ignis_pack<T, 4>{});
        return;
    }
    ignis_grid_dependency_wait();
    const T *const from = p.x + row * p.k + 4 * lane;
    ignis_pack<T, 4> x[WARP_UNITS];
#pragma unroll
    for (int i = 0; i < WARP_UNITS; i++) {
        const int unit = first + i * SLICES;
        x[i] = {};
        if (unit * UNIT < p.k)
            x[i] = *(const ignis_pack<T, 4> *)(from + unit * UNIT);
    }
#pragma unroll
    for (int i = 0; i < WARP_UNITS; i++)
        if (first + i * SLICES < units)
            put(first + i * SLICES, x[i]);
}

#else

#define IGNIS_TILES (IGNIS_COLUMNS <= 64 ? 4 : 8)
#include "gemv_tile.cuh"

constexpr bool WIDE = COLUMNS > 64;
/*  A warp starts the copies, or the first one of a warpgroup, which gives up registers. */
constexpr int ALL_THREADS = TILE_THREADS + (WIDE ? 128 : 32), RESIDENT = WIDE ? 1 : 2; /* blocks of an SM */
constexpr int K_SLICES = 2, OWN = K_SLICES / SPLIT;                                    /* slices of a block */
constexpr int RECORD_BYTES = record_bytes(BLOCKS_F8), EIGHT_BYTES = TOGETHER * RECORD_BYTES;
/*  The host has these, too: of a record of all rows of weights; of a unit of all rows of x, and of its scales. FOUND:
    sums that another block sends, and then results. */
constexpr int WEIGHT_BYTES = 2 * TILES * EIGHT_BYTES, UNIT_BYTES = COLUMNS * 128, SCALES_BYTES = COLUMNS * 4;
constexpr int SENT_BYTES = SPLIT > 1 ? TILE_THREADS *SHARE * 16 : 0, RESULT_BYTES = SHARE * 8 * STAGED_BYTES,
              FOUND_BYTES = SENT_BYTES > RESULT_BYTES ? SENT_BYTES : RESULT_BYTES;
/*  Two products run at a time, as registers allow: those of both halves of the columns, or of both units of a record.
*/
constexpr int PART = WIDE ? N / 2 : N, UNITS = COLUMNS <= 32 ? 2 : 1; /* PART: eights of columns of a product */
static_assert(RECORD_BYTES / 16 % 2 == 1, "so rows that lanes read at a time have different banks");

/*  Of a block. Addresses are those of shared memory. */
struct f8_memory {
    char *weights, *scales, *found;
    uint32_t x_at, weights_at, scales_at, found_at, full, empty, x_full, x_empty, arrived, ready;
    cache_row *rows; /* of the block's columns */

    __device__ f8_memory(const ignis__gemv_blocks &all, char *memory)
        : weights(memory + all.x_ring * UNIT_BYTES), scales(weights + all.product.ring * WEIGHT_BYTES),
          found(memory + all.product.found_at), x_at((uint32_t)__cvta_generic_to_shared(memory)),
          weights_at(x_at + all.x_ring * UNIT_BYTES), scales_at(weights_at + all.product.ring * WEIGHT_BYTES),
          found_at(x_at + all.product.found_at), full(found_at + FOUND_BYTES), empty(full + 8 * all.product.ring),
          x_full(empty + 8 * all.product.ring), x_empty(x_full + 8 * all.x_ring), arrived(x_empty + 8 * all.x_ring),
          ready(arrived + 8), rows((cache_row *)(found + FOUND_BYTES + 16 * (all.product.ring + all.x_ring) + 16))
    {
    }
};

/*  The records of a slice of K, or of those of a block. */
struct record_range {
    int first, count;

    __device__ record_range(const ignis__gemv_mma &p, int slice, int slices)
    {
        const int all = ((int)p.k + 255) / 256, each = (all + K_SLICES - 1) / K_SLICES;
        first = min(slice * each, all);
        count = min(first + slices * each, all) - first;
    }
};

/*  Sums of the share of a block, as tile_finish takes them. */
struct share_sums {
    static constexpr bool in_staged = SPLIT > 1;
    float y[SHARE][4];

    __device__ float4 take(int, int i) const { return make_float4(y[i][0], y[i][1], y[i][2], y[i][3]); }
    __device__ void go_on() /* registers have no index in a loop */
    {
#pragma unroll
        for (int n = 0; n + AT_ONCE < SHARE; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                y[n][i] = y[n + AT_ONCE][i];
    }
};

/*  A thread that multiplies. */
struct f8_thread {
    const ignis__gemv_blocks &all;
    const ignis__gemv_mma &p;
    const f8_memory &m;
    const block_place &place;
    const int lane, warp;
    ring_place at, x_at; /* of weights; of x */
    uint32_t exchanges;  /* of sums */

    __device__ f8_thread(const ignis__gemv_blocks &all, const f8_memory &m, const block_place &place)
        : all(all), p(all.product), m(m), place(place), lane(threadIdx.x % 32),
          warp(threadIdx.x / 32), at{0, 0}, x_at{0, 0}, exchanges(0)
    {
    }

    /*  Loads the weights of a unit, and their scales. Weights are not loaded while wgmma multiplies: the compiler would
        load them to the registers that it reads. */
    static __device__ void load(const char *record, int unit, uint32_t (&a)[4][4], float (&d)[2])
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const char *const from = record + r * TILES * EIGHT_BYTES;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const uint4 q = *(const uint4 *)(from + unit * 128 + j * 64 + threadIdx.x % 4 * 16);
                a[2 * j][r] = q.x, a[2 * j][2 + r] = q.y;
                a[2 * j + 1][r] = q.z, a[2 * j + 1][2 + r] = q.w;
            }
            d[r] = ((const float *)(from + 256))[unit];
        }
    }
    static __device__ void ask(float (&found)[PART][4], const uint32_t (&a)[4][4], uint64_t x)
    {
        ignis_ptx_wgmma<0>(found, a[0], x);
#pragma unroll
        for (int j = 1; j < 4; j++)
            ignis_ptx_wgmma<1>(found, a[j], ignis_wgmma_ahead(x, 32 * j));
        ignis_ptx_wgmma_commit();
    }
    /*  Adds the sums of a unit, times both scales, for columns from eight `first` on. scales: of the unit. */
    template <int first>
    static __device__ void add(float (&sum)[N][4], float (&found)[PART][4], const float (&d)[2], const char *scales)
    {
        ignis_wgmma_hold(found);
#pragma unroll
        for (int n = 0; n < PART; n += 2) {
            const float4 x = ((const float4 *)scales)[(first + n) * 2 + threadIdx.x % 4];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    sum[first + n + i][c] =
                        fmaf(found[n + i][c], __fmul_rn(d[c / 2], i ? (c % 2 ? x.w : x.z) : (c % 2 ? x.y : x.x)),
                             sum[first + n + i][c]);
        }
    }
    __device__ uint64_t x_of(const ring_place &of) const
    {
        ignis_mbarrier_wait(m.x_full + 8 * of.stage, of.phase);
        return ignis_wgmma_descriptor(m.x_at + of.stage * UNIT_BYTES, 0, 1024);
    }
    __device__ const char *scales_of(const ring_place &of) const { return m.scales + of.stage * SCALES_BYTES; }

    /*  Returns this lane's record of the ring's stage, after it has come. */
    __device__ const char *record() const
    {
        ignis_mbarrier_wait(m.full + 8 * at.stage, at.phase);
        return m.weights + at.stage * WEIGHT_BYTES + warp * EIGHT_BYTES + row_of_lanes(lane / 4) * RECORD_BYTES;
    }

    /*  Multiplies `count` records of each row of weights with those of x: 128 columns. The next unit's weights are
        loaded while sums are added. */
    __device__ void multiply_halves(float (&sum)[N][4], int count)
    {
        uint32_t a[4][4];
        float d[2];
        if (count > 0)
            load(record(), 0, a, d);
#pragma unroll 1
        for (int unit = 0; unit < 2 * count; unit++) {
            float found[2][PART][4], own[2] = {d[0], d[1]};
            const uint64_t x = x_of(x_at);
            const char *const scales = scales_of(x_at);
            ignis_wgmma_hold(a);
            ignis_ptx_wgmma_fence();
            ask(found[0], a, x);
            ask(found[1], a, ignis_wgmma_ahead(x, UNIT_BYTES / 2));
            if (unit % 2) {
                ignis_warp_arrive(m.empty + 8 * at.stage);
                at.go_on(p.ring);
            }
            ignis_ptx_wgmma_wait<1>();
            add<0>(sum, found[0], own, scales);
            ignis_ptx_wgmma_wait<0>();
            ignis_wgmma_hold(a); /* until here wgmma reads the registers of these weights */
            if (unit < 2 * count - 1)
                load(record(), (unit + 1) % 2, a, d);
            add<N - PART>(sum, found[1], own, scales);
            ignis_warp_arrive(m.x_empty + 8 * x_at.stage);
            x_at.go_on(all.x_ring);
        }
    }
    /*  Multiplies a record of each row of weights with those of x: fewer columns. */
    __device__ void multiply(float (&sum)[N][4])
    {
        const char *const from = record();
        float found[UNITS][PART][4];
        const ring_place first = x_at;
        uint32_t a[UNITS][4][4];
        float d[UNITS][2];
        load(from, 0, a[0], d[0]);
        if (UNITS == 2)
            load(from, 1, a[UNITS - 1], d[UNITS - 1]);
#pragma unroll
        for (int i = 0; i < UNITS; i++)
            ignis_wgmma_hold(a[i]);
        x_at.go_on(all.x_ring);
        const uint64_t x[2] = {x_of(first), x_of(x_at)};
        ignis_ptx_wgmma_fence();
        ask(found[0], a[0], x[0]);
        if (UNITS == 2) {
            ask(found[UNITS - 1], a[UNITS - 1], x[1]);
            ignis_warp_arrive(m.empty + 8 * at.stage);
            ignis_ptx_wgmma_wait<1>();
            add<0>(sum, found[0], d[0], scales_of(first));
        } else {
            ignis_ptx_wgmma_wait<0>();
            add<0>(sum, found[0], d[0], scales_of(first));
            ignis_wgmma_hold(a[0]);
            load(from, 1, a[0], d[0]);
            ignis_wgmma_hold(a[0]);
            ignis_ptx_wgmma_fence();
            ask(found[0], a[0], x[1]);
            ignis_warp_arrive(m.empty + 8 * at.stage);
        }
        ignis_warp_arrive(m.x_empty + 8 * first.stage);
        ignis_ptx_wgmma_wait<0>();
        add<0>(sum, found[UNITS - 1], d[UNITS - 1], scales_of(x_at));
#pragma unroll
        for (int i = 0; i < UNITS; i++)
            ignis_wgmma_hold(a[i]);
        ignis_warp_arrive(m.x_empty + 8 * x_at.stage);
        x_at.go_on(all.x_ring);
        at.go_on(p.ring);
    }
    /*  Multiplies the block's slices, and adds them. */
    __device__ void slices(float (&total)[N][4])
    {
        float sum[N][4];
#pragma unroll 1
        for (int slice = 0; slice < OWN; slice++) {
            const int count = record_range(p, place.part * OWN + slice, 1).count;
#pragma unroll
            for (int n = 0; n < N; n++)
                sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
            if constexpr (WIDE)
                multiply_halves(sum, count);
            else
#pragma unroll 1
                for (int i = 0; i < count; i++)
                    multiply(sum);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    total[n][i] = (OWN > 1 ? total[n][i] : 0.0f) + sum[n][i]; /* a sum is never -0 */
        }
    }

    /*  The other block may send its sums. */
    __device__ void allow() const
    {
        if (SPLIT == 1 || threadIdx.x > 0)
            return;
        ignis_ptx_mbarrier_arrive_expect(m.arrived, SENT_BYTES);
        ignis_ptx_mbarrier_arrive_cluster(ignis_ptx_mapa(m.ready, place.part ^ 1));
    }
    /*  Sends the other block the sums of its share, and adds those that it sends. */
    __device__ void exchange(const float (&sum)[N][4], share_sums &own)
    {
        if constexpr (SPLIT == 1) {
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    own.y[n][i] = sum[n][i];
        } else {
            const bool last = place.part == 1;
            const uint32_t to = ignis_ptx_mapa(m.found_at + threadIdx.x * 8, place.part ^ 1),
                           barrier = ignis_ptx_mapa(m.arrived, place.part ^ 1);
            const float2 *const from = (const float2 *)m.found + threadIdx.x;
            ignis_mbarrier_wait(m.ready, exchanges & 1);
#pragma unroll
            for (int n = 0; n < SHARE; n++)
#pragma unroll
                for (int i = 0; i < 4; i += 2) {
                    const float *const low = sum[n] + i, *const high = sum[SHARE + n] + i;
                    ignis_ptx_st_async(to + (2 * n + i / 2) * TILE_THREADS * 8,
                                       make_float2(last ? low[0] : high[0], last ? low[1] : high[1]), barrier);
                    own.y[n][i] = last ? high[0] : low[0];
                    own.y[n][i + 1] = last ? high[1] : low[1];
                }
            ignis_mbarrier_wait(m.arrived, exchanges & 1);
            exchanges++;
#pragma unroll
            for (int n = 0; n < SHARE; n++)
#pragma unroll
                for (int i = 0; i < 4; i += 2) {
                    const float2 more = from[(2 * n + i / 2) * TILE_THREADS];
                    own.y[n][i] += more.x, own.y[n][i + 1] += more.y;
                }
        }
    }
};

/*  Brings the records and units of all tiles of a block, by a warp. It starts before earlier work has ended, which does
    not write weights. */
__device__ inline void bring(const ignis__gemv_blocks &all, const f8_memory &m, const block_place &place,
                             const ignis__tensor_map &of_x)
{
    const ignis__gemv_mma &p = all.product;
    const int lane = threadIdx.x % 32, rows = (int)(p.gated ? 2 * p.n : p.n), stride = scales_of_rows(p.rows),
              length = ((int)p.k + 255) / 256;
    const record_range records(p, place.part * OWN, OWN);
    const uint32_t own = m.weights_at + lane * EIGHT_BYTES;
    const uint8_t *from = nullptr; /* this lane's eight rows of weights */
    int asked = 0;
    const auto find_rows = [&](int group) {
        int low, high;
        group_rows<TILES>(p, 0, group, lane % TILES, low, high);
        const int row = lane < TILES ? low : high;
        from = (const uint8_t *)p.weights +
               (first_record(row < rows ? row : 0, length) + (long long)records.first * TOGETHER) * RECORD_BYTES;
    };
    const auto ask_weights = [&](int stage) {
        if (lane == 0)
            ignis_ptx_mbarrier_arrive_expect(m.full + 8 * stage, WEIGHT_BYTES);
        __syncwarp();
        if (lane < 2 * TILES)
            ignis_ptx_bulk_load(own + stage * WEIGHT_BYTES, from, EIGHT_BYTES, m.full + 8 * stage);
        from += EIGHT_BYTES;
    };
    find_rows(place.group);
    if (place.group < place.groups)
        for (; asked < min(p.ring, records.count); asked++)
            ask_weights(asked);
    ignis_grid_dependency_wait();
    ring_place at = {0, 1}, x_at = {0, 1}; /* the first round waits for nobody */
    for (int group = place.group; group < place.groups; group += place.stride) {
        const float *scales = all.scales + (long long)2 * records.first * stride + place.column;
        if (group != place.group)
            find_rows(group);
#pragma unroll 1
        for (int i = 0; i < 2 * records.count; i++) {
            if (i % 2 == 0) {
                ignis_mbarrier_wait(m.empty + 8 * at.stage, at.phase);
                if (asked > 0)
                    asked--;
                else
                    ask_weights(at.stage);
                at.go_on(p.ring);
            }
            ignis_mbarrier_wait(m.x_empty + 8 * x_at.stage, x_at.phase);
            if (lane == 0) { /* some scales after those of the last row are read, and not used */
                const uint32_t barrier = m.x_full + 8 * x_at.stage;
                ignis_ptx_mbarrier_arrive_expect(barrier, UNIT_BYTES + SCALES_BYTES);
                ignis_ptx_tensor_load<2>(m.x_at + x_at.stage * UNIT_BYTES, &of_x, barrier,
                                         (2 * records.first + i) * 128, place.column);
                ignis_ptx_bulk_load(m.scales_at + x_at.stage * SCALES_BYTES, scales, SCALES_BYTES, barrier);
            }
            scales += stride;
            x_at.go_on(all.x_ring);
        }
    }
}

/*  more: takes registers that others gave; else gives them. The launch has 168 for each of 384 threads. */
template <bool more> __device__ inline void shift_registers()
{
#if __CUDA_ARCH__ == 900
    if (WIDE && more)
        ignis_ptx_setmaxnreg_inc<232>();
    else if (WIDE)
        ignis_ptx_setmaxnreg_dec<40>();
#endif
}

/*  Params: a TMA map of x, whose tiles are COLUMNS rows of 128 bytes. grid: clusters, a multiple of p.across. Shared
    memory: units of x, p.ring records, scales; FOUND_BYTES from p.found_at on; barriers, and a cache_row for each
    column. */
extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(ALL_THREADS, RESIDENT)
    ignis_gemv_f8(const __grid_constant__ ignis__gemv_blocks all, const __grid_constant__ ignis__tensor_map of_x)
{
    extern __shared__ __align__(1024) char memory[];
    const ignis__gemv_mma &p = all.product;
    const f8_memory m(all, memory);
    const block_place place(p);
    const int warp = threadIdx.x / 32;

    if (threadIdx.x == 0) {
        for (int i = 0; i < p.ring; i++) {
            ignis_ptx_mbarrier_init(m.full + 8 * i, 1);
            ignis_ptx_mbarrier_init(m.empty + 8 * i, TILES * IGNIS_WARP_ARRIVALS);
        }
        for (int i = 0; i < all.x_ring; i++) {
            ignis_ptx_mbarrier_init(m.x_full + 8 * i, 1);
            ignis_ptx_mbarrier_init(m.x_empty + 8 * i, TILES * IGNIS_WARP_ARRIVALS);
        }
        ignis_ptx_mbarrier_init(m.arrived, 1);
        ignis_ptx_mbarrier_init(m.ready, 1);
        ignis_ptx_fence_mbarrier_init();
    }
    if (SPLIT > 1)
        ignis_ptx_cluster_arrive(); /* nothing is sent to a block that has not begun */
    ignis_grid_dependents_launch();
    __syncthreads();

    if (warp >= TILES) {
        shift_registers<false>();
        if (SPLIT > 1)
            ignis_ptx_cluster_wait();
        if (warp == TILES)
            bring(all, m, place, of_x);
        else
            ignis_grid_dependency_wait();
    } else {
        shift_registers<true>();
        if (SPLIT > 1)
            ignis_ptx_cluster_wait();
        ignis_grid_dependency_wait();
        find_cache_rows(p, place.column, m.rows);
        f8_thread thread(all, m, place);
        const tile_finish finish = {p, place, m.rows, m.found};
        for (int group = place.group; group < place.groups; group += place.stride) {
            float sum[N][4] = {};
            share_sums own;
            tile_finish::sync(); /* results of the tile before, and places of rows */
            thread.allow();
            thread.slices(sum);
            thread.exchange(sum, own);
            finish.run(group, own);
        }
    }
}

#endif
