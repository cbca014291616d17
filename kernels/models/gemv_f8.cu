// SPDX-License-Identifier: MIT
/*  models/gemv_f8.cu - products of rows of e4m3 with weights of F8, by warpgroups of sm_90a

    Weights have the records of blocks.cuh. x is rounded to e4m3 with an f32 scale for each row. wgmma adds a unit of
    128 elements from zero; the sum times the scale of the weights is added in f32, as in DeepSeek-V3 (DeepSeek-AI,
    2024, section 3.3), where x has a scale for each unit as well: threads would read those for half as long as tensor
    cores multiply. Each half of K, in records, is summed from zero, unit after unit; both sums are added, and
    multiplied with the scale of x. No sum depends on the number of rows: a row has the same bits alone and in any
    batch.

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

#ifndef IGNIS_COLUMNS

/*  Rounds a row of x, after its norm if there is one. all.x: [rows, records of K, 256] bytes; all.scales: [rows]. A row
    with a number that is not finite has the scale NaN. grid = rows. */
extern "C" __global__ void __launch_bounds__(THREADS) ignis_gemv_f8_rows(const __grid_constant__ ignis__gemv_blocks all)
{
    constexpr int at_once = 4, step = 4 * THREADS;
    const ignis__gemv_mma &p = all.product;
    const int row = blockIdx.x, k = (int)p.k, whole = (k + 255) / 256 * 256, first = 4 * threadIdx.x;
    __shared__ uint32_t of_warps[SLICES];
    uint8_t *const to = all.x + (long long)row * whole;
    float inverse = 0;
    bool finite = true;
    uint32_t most = 0; /* sizes as bits: infinity and NaN are above all numbers */
    const auto find_most = [&](int, const ignis_pack<T, 4> &x) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            most = max(most, *(const uint16_t *)&x[i] & 0x7fffu);
    };
    const auto find_scale = [&] {
        most = (uint32_t)ignis_warp_max((float)most); /* of 15 bits */
        if (threadIdx.x % 32 == 0)
            of_warps[threadIdx.x / 32] = most;
        __syncthreads();
        for (int i = 0; i < SLICES; i++)
            most = max(most, of_warps[i]);
        const uint16_t bits = (uint16_t)most;
        const float size = float(*(const T *)&bits);
        finite = size <= 3.402823466e38f;
        const float scale = fmaxf(__fdiv_rn(size, 448.0f), 1.175494351e-38f); /* has a finite inverse */
        inverse = __frcp_rn(scale);
        if (threadIdx.x == 0)
            all.scales[row] = finite ? scale : __int_as_float(0x7fc00000);
    };
    const auto two = [&](T one, T other) { return ignis_e4m3_two(float(one) * inverse, float(other) * inverse); };
    /* in the order of operands */
    const auto put = [&](int i, const ignis_pack<T, 4> &x) {
        const uint32_t four = two(x[0], x[2]) | two(x[1], x[3]) << 16;
        *(uint32_t *)(to + i / 32 * 32 + i / 4 % 2 * 16 + i / 8 % 4 * 4) = finite ? four : 0;
    };
    ignis_grid_dependents_launch();
    if (p.norm_of) {
        const row_norm norm(p);
        ignis_grid_dependency_wait();
        norm.run_times(p.norm_of + row * p.k, [&](const auto &all_of_row) {
            all_of_row(find_most);
            find_scale();
            all_of_row(put);
        });
    } else {
        ignis_grid_dependency_wait();
        const T *const from = p.x + row * p.k;
        const auto each = [&](auto run) {
#pragma unroll 1 /* most of the time of a short kernel with much code goes into fetching it */
            for (int begin = first; begin < k; begin += at_once * step) {
                ignis_pack<T, 4> x[at_once];
#pragma unroll
                for (int i = 0; i < at_once; i++)
                    if (begin + i * step < k)
                        x[i] = *(const ignis_pack<T, 4> *)(from + begin + i * step);
#pragma unroll
                for (int i = 0; i < at_once; i++)
                    if (begin + i * step < k)
                        run(begin + i * step, x[i]);
            }
        };
        each(find_most);
        find_scale();
        each(put); /* from the L1 cache */
    }
    if (k + first < whole)
        put(k + first, ignis_pack<T, 4>{});
}

#else

#define IGNIS_TILES (IGNIS_COLUMNS <= 64 ? 4 : 8)
#include "gemv_tile.cuh"

constexpr bool WIDE = COLUMNS > 64;
/*  Two warps start the copies, or the first two of a warpgroup, which gives up registers. */
constexpr int ALL_THREADS = TILE_THREADS + (WIDE ? 128 : 64), RESIDENT = WIDE ? 1 : 2; /* blocks of an SM */
constexpr int K_SLICES = 2, OWN = K_SLICES / SPLIT;                                    /* slices of a block */
constexpr int RECORD_BYTES = record_bytes(BLOCKS_F8), EIGHT_BYTES = TOGETHER * RECORD_BYTES;
/*  The host has these, too: of a record of all rows of weights; of a unit of all rows of x. FOUND: sums that another
    block sends, and then results. */
constexpr int WEIGHT_BYTES = 2 * TILES * EIGHT_BYTES, UNIT_BYTES = COLUMNS * 128;
constexpr int SENT_BYTES = SPLIT > 1 ? TILE_THREADS *SHARE * 16 : 0, RESULT_BYTES = SHARE * 8 * STAGED_BYTES,
              FOUND_BYTES = SENT_BYTES > RESULT_BYTES ? SENT_BYTES : RESULT_BYTES;
/*  Two products run at a time, as registers allow: those of both halves of the columns, or of both units of a record.
    PART: eights of columns of a product; IN_REGISTERS: eights of columns of a slice whose sums wait there. */
constexpr int PART = WIDE ? N / 2 : N, IN_REGISTERS = N < 8 ? N : 8, UNITS = COLUMNS <= 32 ? 2 : 1;
static_assert((N - IN_REGISTERS) * TILE_THREADS * 16 <= FOUND_BYTES, "sums of a slice wait there");
static_assert(RECORD_BYTES / 16 % 2 == 1, "so rows that lanes read at a time have different banks");

/*  Of a block. Addresses are those of shared memory. */
struct f8_memory {
    char *weights, *found;
    uint32_t x_at, weights_at, found_at, full, empty, x_full, x_empty, arrived, ready;
    cache_row *rows; /* of the block's columns */
    float *scales;   /* of the block's columns */

    __device__ f8_memory(const ignis__gemv_blocks &all, char *memory)
        : weights(memory + all.x_ring * UNIT_BYTES), found(memory + all.product.found_at),
          x_at((uint32_t)__cvta_generic_to_shared(memory)), weights_at(x_at + all.x_ring * UNIT_BYTES),
          found_at(x_at + all.product.found_at), full(found_at + FOUND_BYTES), empty(full + 8 * all.product.ring),
          x_full(empty + 8 * all.product.ring), x_empty(x_full + 8 * all.x_ring), arrived(x_empty + 8 * all.x_ring),
          ready(arrived + 8), rows((cache_row *)(found + FOUND_BYTES + 16 * (all.product.ring + all.x_ring) + 16)),
          scales((float *)(rows + COLUMNS))
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
    static constexpr bool in_staged = SPLIT > 1 || N > IN_REGISTERS;
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

    /*  Loads the weights of a unit, while wgmma does not read these registers: see ignis_wgmma_hold. */
    static __device__ void load(const char *record, int unit, uint32_t (&a)[4][4])
    {
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const uint4 q =
                    *(const uint4 *)(record + r * TILES * EIGHT_BYTES + unit * 128 + j * 64 + threadIdx.x % 4 * 16);
                a[2 * j][r] = q.x, a[2 * j][2 + r] = q.y;
                a[2 * j + 1][r] = q.z, a[2 * j + 1][2 + r] = q.w;
            }
    }
    /*  Loads the scales of both units, of the low row and of the high one. */
    static __device__ void load_scales(const char *record, float (&d)[2][2])
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float2 of_units = *(const float2 *)(record + r * TILES * EIGHT_BYTES + 256);
            d[0][r] = of_units.x, d[1][r] = of_units.y;
        }
    }
    static __device__ void ask(float (&found)[PART][4], uint32_t (&a)[4][4], uint64_t x)
    {
        ignis_wgmma_hold(a);
        ignis_ptx_wgmma_fence();
        ignis_ptx_wgmma<0>(found, a[0], x);
#pragma unroll
        for (int j = 1; j < 4; j++)
            ignis_ptx_wgmma<1>(found, a[j], ignis_wgmma_ahead(x, 32 * j));
        ignis_ptx_wgmma_commit();
    }
    /*  Waits until all but the `pending` latest products are done. found, a: sums and weights of the latest one of
        those. */
    template <int pending> static __device__ void wait(float (&found)[PART][4], uint32_t (&a)[4][4])
    {
        ignis_ptx_wgmma_wait<pending>();
        ignis_wgmma_hold(found);
        ignis_wgmma_hold(a);
    }
    /*  Adds the sums of a unit, times the scales of the weights, for columns from eight `first` on. */
    template <int first>
    static __device__ void add(float (&sum)[N][4], const float (&found)[PART][4], const float (&d)[2])
    {
#pragma unroll
        for (int n = 0; n < PART; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                sum[first + n][c] = fmaf(found[n][c], d[c / 2], sum[first + n][c]);
    }
    __device__ uint64_t x_of(const ring_place &of) const
    {
        ignis_mbarrier_wait(m.x_full + 8 * of.stage, of.phase);
        return ignis_wgmma_descriptor(m.x_at + of.stage * UNIT_BYTES, 0, 1024);
    }

    /*  Returns this lane's record of the ring's stage, after it has come. */
    __device__ const char *record() const
    {
        ignis_mbarrier_wait(m.full + 8 * at.stage, at.phase);
        return m.weights + at.stage * WEIGHT_BYTES + warp * EIGHT_BYTES + row_of_lanes(lane / 4) * RECORD_BYTES;
    }

    /*  Frees the ring's stage for the next record. */
    __device__ void free_record()
    {
        ignis_warp_arrive(m.empty + 8 * at.stage);
        at.go_on(p.ring);
    }

    /*  Multiplies `count` records of each row of weights with those of x: 128 columns. Within a record a product of
        half of the columns is under way while the sums of the one before are added. From one record to the next none
        is: ptxas would serialise them. The other warpgroup multiplies then. */
    __device__ void multiply_halves(float (&sum)[N][4], int count)
    {
        constexpr int high = N - PART;
        uint32_t a[2][4][4];
        float d[2][2];
        if (count > 0) {
            const char *const from = record();
            load(from, 0, a[0]);
            load(from, 1, a[1]);
            load_scales(from, d);
            free_record();
        }
#pragma unroll 1
        for (int left = count; left > 0; left--) {
            float found[2][PART][4];
            const float last[2] = {d[1][0], d[1][1]};
            const int stage = x_at.stage;
            const char *next = nullptr;
            uint64_t x = x_of(x_at);
            ignis_wgmma_forget(found[0]);
            ignis_wgmma_forget(found[1]);
            ask(found[0], a[0], x);
            ask(found[1], a[0], ignis_wgmma_ahead(x, UNIT_BYTES / 2));
            x_at.go_on(all.x_ring);
            x = x_of(x_at);
            wait<1>(found[0], a[1]);
            add<0>(sum, found[0], d[0]);
            ask(found[0], a[1], x);
            wait<1>(found[1], a[0]);
            add<high>(sum, found[1], d[0]);
            ignis_warp_arrive(m.x_empty + 8 * stage);
            ask(found[1], a[1], ignis_wgmma_ahead(x, UNIT_BYTES / 2));
            if (left > 1) {
                next = record();
                load(next, 0, a[0]);
            }
            wait<1>(found[0], a[0]);
            add<0>(sum, found[0], last);
            wait<0>(found[1], a[1]);
            ignis_warp_arrive(m.x_empty + 8 * x_at.stage);
            x_at.go_on(all.x_ring);
            if (left > 1) {
                load(next, 1, a[1]);
                load_scales(next, d);
                free_record();
            }
            add<high>(sum, found[1], last);
        }
    }
    /*  Multiplies a record of each row of weights with those of x: fewer columns. */
    __device__ void multiply(float (&sum)[N][4])
    {
        const char *const from = record();
        float found[UNITS][PART][4], d[2][2];
        const ring_place first = x_at;
        uint32_t a[UNITS][4][4];
        load(from, 0, a[0]);
        load_scales(from, d);
        if (UNITS == 2)
            load(from, 1, a[UNITS - 1]);
        x_at.go_on(all.x_ring);
        const uint64_t x[2] = {x_of(first), x_of(x_at)};
        ask(found[0], a[0], x[0]);
        if (UNITS == 2) {
            ask(found[UNITS - 1], a[UNITS - 1], x[1]);
            ignis_warp_arrive(m.empty + 8 * at.stage);
            wait<1>(found[0], a[0]);
            add<0>(sum, found[0], d[0]);
        } else {
            wait<0>(found[0], a[0]);
            add<0>(sum, found[0], d[0]);
            load(from, 1, a[0]);
            ask(found[0], a[0], x[1]);
            ignis_warp_arrive(m.empty + 8 * at.stage);
        }
        ignis_warp_arrive(m.x_empty + 8 * first.stage);
        wait<0>(found[UNITS - 1], a[UNITS - 1]);
        add<0>(sum, found[UNITS - 1], d[1]);
        ignis_warp_arrive(m.x_empty + 8 * x_at.stage);
        x_at.go_on(all.x_ring);
        at.go_on(p.ring);
    }
    /*  Multiplies a slice. */
    __device__ void slice(float (&sum)[N][4], int number)
    {
        const int count = record_range(p, number, 1).count;
#pragma unroll
        for (int n = 0; n < N; n++)
            sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
        if constexpr (WIDE)
            multiply_halves(sum, count);
        else
#pragma unroll 1
            for (int i = 0; i < count; i++)
                multiply(sum);
    }
    /*  Multiplies the block's slices, and adds them. Sums of the first one wait in registers, and where those end in
        the memory of results. */
    __device__ void slices(float (&sum)[N][4])
    {
        slice(sum, place.part * OWN);
        if constexpr (OWN > 1) {
            float4 kept[IN_REGISTERS], *const others = (float4 *)m.found + threadIdx.x;
#pragma unroll
            for (int n = 0; n < N; n++) {
                const float4 four = make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]);
                if (n < IN_REGISTERS)
                    kept[n] = four;
                else
                    others[(n - IN_REGISTERS) * TILE_THREADS] = four;
            }
            slice(sum, 1);
#pragma unroll
            for (int n = 0; n < N; n++) {
                const float4 four = n < IN_REGISTERS ? kept[n] : others[(n - IN_REGISTERS) * TILE_THREADS];
                sum[n][0] += four.x, sum[n][1] += four.y, sum[n][2] += four.z, sum[n][3] += four.w;
            }
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
    /*  Multiplies the sums of the share with the scales of x. */
    __device__ void scale(share_sums &own) const
    {
        const float *const of_columns = m.scales + place.part * SHARE * 8 + 2 * (lane % 4);
#pragma unroll
        for (int n = 0; n < SHARE; n++) {
            const float2 d = *(const float2 *)(of_columns + 8 * n);
            own.y[n][0] *= d.x, own.y[n][1] *= d.y, own.y[n][2] *= d.x, own.y[n][3] *= d.y;
        }
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

/*  Brings the records of all tiles of a block, by a warp. It starts before earlier work has ended, which does not write
    weights. */
__device__ inline void bring_weights(const ignis__gemv_mma &p, const f8_memory &m, const block_place &place)
{
    const int lane = threadIdx.x % 32, rows = (int)(p.gated ? 2 * p.n : p.n), length = ((int)p.k + 255) / 256;
    const record_range records(p, place.part * OWN, OWN);
    ring_place at = {0, 1}; /* the first round waits for nobody */
    for (int group = place.group; group < place.groups; group += place.stride) {
        int low, high;
        group_rows<TILES>(p, 0, group, lane % TILES, low, high);
        const int row = lane < TILES ? low : high;
        const uint8_t *from = /* this lane's eight rows */
            (const uint8_t *)p.weights +
            (first_record(row < rows ? row : 0, length) + (long long)records.first * TOGETHER) * RECORD_BYTES;
#pragma unroll 1
        for (int i = 0; i < records.count; i++, from += EIGHT_BYTES) {
            const uint32_t barrier = m.full + 8 * at.stage;
            ignis_mbarrier_wait(m.empty + 8 * at.stage, at.phase);
            if (lane == 0)
                ignis_ptx_mbarrier_arrive_expect(barrier, WEIGHT_BYTES);
            __syncwarp();
            if (lane < 2 * TILES)
                ignis_ptx_bulk_load(m.weights_at + at.stage * WEIGHT_BYTES + lane * EIGHT_BYTES, from, EIGHT_BYTES,
                                    barrier);
            at.go_on(p.ring);
        }
    }
}

/*  Brings the units of x of all tiles of a block, by a thread. */
__device__ inline void bring_x(const ignis__gemv_blocks &all, const f8_memory &m, const block_place &place,
                               const ignis__tensor_map &of_x)
{
    const record_range records(all.product, place.part * OWN, OWN);
    ring_place at = {0, 1};
    for (int group = place.group; group < place.groups; group += place.stride)
#pragma unroll 1
        for (int i = 0; i < 2 * records.count; i++) {
            const uint32_t barrier = m.x_full + 8 * at.stage;
            ignis_mbarrier_wait(m.x_empty + 8 * at.stage, at.phase);
            ignis_ptx_mbarrier_arrive_expect(barrier, UNIT_BYTES);
            ignis_ptx_tensor_load<2>(m.x_at + at.stage * UNIT_BYTES, &of_x, barrier, (2 * records.first + i) * 128,
                                     place.column);
            at.go_on(all.x_ring);
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
    memory: units of x, and p.ring records; FOUND_BYTES from p.found_at on; barriers, and a cache_row and a scale for
    each column. */
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
            bring_weights(p, m, place);
        ignis_grid_dependency_wait();
        if (threadIdx.x == TILE_THREADS + 32)
            bring_x(all, m, place, of_x);
    } else {
        shift_registers<true>();
        if (SPLIT > 1)
            ignis_ptx_cluster_wait();
        ignis_grid_dependency_wait();
        find_cache_rows(p, place.column, m.rows);
        if (threadIdx.x < COLUMNS)
            m.scales[threadIdx.x] =
                place.column + (int)threadIdx.x < p.rows ? all.scales[place.column + threadIdx.x] : 0;
        f8_thread thread(all, m, place);
        const tile_finish finish = {p, place, m.rows, m.found};
        for (int group = place.group; group < place.groups; group += place.stride) {
            float sum[N][4];
            share_sums own;
            tile_finish::sync(); /* results of the tile before, and places of rows */
            thread.allow();
            thread.slices(sum);
            thread.exchange(sum, own);
            thread.scale(own);
            finish.run(group, own);
        }
    }
}

#endif
