// SPDX-License-Identifier: MIT
/*  models/gemv_f8.cu - products of rows of e4m3 with weights of F8, by warpgroups of sm_90a

    Weights have the records of blocks.cuh. x is rounded to e4m3 with an f32 scale for each unit of 128 elements of a
    row, as in DeepSeek-V3 (DeepSeek-AI, 2024, section 3.3). wgmma adds a unit from zero; the sum times both scales is
    added in f32. A slice of K, of K_SLICES, is summed from zero, unit after unit, and slice after slice is added. No
    sum depends on the number of rows: a row has the same bits alone and in any batch.

    A block takes tiles of 128 rows of weights and COLUMNS rows of x, one after the other; or the blocks of a cluster
    have a slice of one tile each, and exchange their sums. The weights come through registers, as the A of wgmma: of
    a block of 32 elements lane % 4 = t has elements 8 t to 8 t + 7, the first four as bytes 4 t to 4 t + 3 of the
    operand, the last four 16 bytes later, each four in the order 0, 2, 1, 3. x is stored in that order.

    For f16 and bf16. Compiled with -DIGNIS_COLUMNS=<8, 16, 32, 64 or 128> -DIGNIS_CLUSTER=<1 or 4>: ignis_gemv_f8;
    without both: ignis_gemv_f8_rows.
*/
#define IGNIS_OPERANDS 8
#include "gemv.cuh"
#include "hopper.cuh"
#include "blocks.cuh"

#ifndef IGNIS_COLUMNS

/*  Rounds rows of x. all.x: [rows, records of K, 256] bytes; all.scales: [units of the records, rows up to a multiple
    of 8]. A unit with a number that is not finite has the scale NaN. grid = rows; shared memory for a row of T, if its
    norm comes first. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_gemv_f8_rows(const __grid_constant__ ignis__gemv_blocks all)
{
    extern __shared__ __align__(16) char memory[];
    constexpr int of_unit = 128;
    const ignis__gemv_mma &p = all.product;
    const int lane = threadIdx.x % 32, stride = (gridDim.x + 7) / 8 * 8,
              units = ((int)p.k + 2 * of_unit - 1) / (2 * of_unit) * 2;
    const T *row = p.x + blockIdx.x * p.k;
    uint8_t *const to = all.x + (long long)blockIdx.x * units * of_unit;
    ignis_grid_dependents_launch();
    if (p.norm_of) {
        const row_norm norm(p);
        ignis_grid_dependency_wait();
        norm.run(p.norm_of + blockIdx.x * p.k,
                 [&](int i, const ignis_pack<T, 4> &four) { ignis_store_shared((T *)memory + i, four); });
        row = (const T *)memory;
        __syncthreads();
    } else {
        ignis_grid_dependency_wait();
    }
    for (int unit = threadIdx.x / 32; unit < units; unit += SLICES) {
        const int at = unit * of_unit + 4 * lane;
        ignis_pack<T, 4> x = {};
        float most = 0;
        bool finite = true;
        if (at < p.k)
            x = *(const ignis_pack<T, 4> *)(row + at);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float size = fabsf(float(x[i]));
            finite = finite && size <= 3.402823466e38f;
            most = fmaxf(most, size);
        }
        /* a scale has a finite inverse */
        const float scale = fmaxf(__fdiv_rn(ignis_warp_max(most), 448.0f), 1.175494351e-38f);
        const bool all_finite = __all_sync(0xffffffff, finite);
        const float inverse = __frcp_rn(scale);
        const auto two = [&](int first, int second) {
            return ignis_e4m3_two(float(x[first]) * inverse, float(x[second]) * inverse);
        };
        /* the order of operands */
        *(uint32_t *)(to + unit * of_unit + lane / 8 * 32 + lane % 2 * 16 + lane % 8 / 2 * 4) =
            all_finite ? two(0, 2) | two(1, 3) << 16 : 0;
        if (lane == 0)
            all.scales[(long long)unit * stride + blockIdx.x] = all_finite ? scale : __int_as_float(0x7fc00000);
    }
}

#else

constexpr int COLUMNS = IGNIS_COLUMNS, CLUSTER = IGNIS_CLUSTER, N = COLUMNS / 8;
/*  Slices of K, and those of a block. */
constexpr int K_SLICES = 4, OWN = K_SLICES / CLUSTER;
constexpr int TILES = SLICES; /* pairs of eight rows of weights, one for each warp */
constexpr int RECORD_BYTES = record_bytes(BLOCKS_F8), EIGHT_BYTES = TOGETHER * RECORD_BYTES;
/*  of a unit of all rows of x, of a record of them, and of its scales */
constexpr int BOX_BYTES = COLUMNS * 128, X_BYTES = 2 * BOX_BYTES, SCALES_BYTES = 2 * COLUMNS * 4;
constexpr int WEIGHTS_BYTES = 2 * TILES * EIGHT_BYTES, ALL_BYTES = X_BYTES + SCALES_BYTES + WEIGHTS_BYTES;
/*  the host has the same */
constexpr int STAGE_BYTES = (ALL_BYTES + 1023) / 1024 * 1024;
/*  Floats from a column of sums to the next: pairs of two rows of weights. Threads write without conflicts. */
constexpr int PITCH = 16 * TILES + 4, FOUND_BYTES = COLUMNS * PITCH * 4; /* the host has the same */
constexpr int ALL_THREADS = THREADS + 128;                               /* a warpgroup starts the copies */
/*  columns whose epilogue is that of this block */
constexpr int SHARE = COLUMNS / CLUSTER;
/*  Two units are multiplied before the first one's sums are read, as registers allow. */
constexpr int UNITS = COLUMNS <= 64 ? 2 : 1;
static_assert(RECORD_BYTES / 16 % 2 == 1, "so rows that lanes read at a time have different banks");

/*  Finds tile i of a group: eight rows of weights from `low` on, and eight from `high` on. */
__device__ inline void group_rows(const ignis__gemv_mma &p, int group, int i, int &low, int &high)
{
    low = group * 16 * TILES + 8 * i;
    high = low + 8 * TILES;
    if (p.gated || p.kind == IGNIS__GEMV_CACHE)
        tile_rows(p, 0, group * TILES + i, low, high);
}

/*  The order in which a block takes records of K: tiles, then its slices, then their records. */
struct record_order {
    int tile, slice, at, end; /* tile: none after the last one */
    const int length, per_slice, first_slice, tiles, stride;

    __device__ record_order(int k, int tiles)
        : tile(blockIdx.x / CLUSTER), slice(0), length((k + 255) / 256), per_slice((length + K_SLICES - 1) / K_SLICES),
          first_slice(blockIdx.x % CLUSTER * OWN), tiles(tiles), stride(gridDim.x / CLUSTER)
    {
        begin();
        if (at == end)
            next_slice();
    }
    __device__ void begin()
    {
        at = min((first_slice + slice) * per_slice, length);
        end = min(at + per_slice, length);
    }
    /*  Goes to the next slice that is not empty. */
    __device__ void next_slice()
    {
        do {
            if (++slice == OWN)
                slice = 0, tile += stride;
            begin();
        } while (at == end && tile < tiles);
    }
    __device__ void go_on()
    {
        if (++at == end)
            next_slice();
    }
};

/*  The copies to the ring, by a warp. */
struct ring_copies {
    const ignis__gemv_blocks &all;
    const ignis__tensor_map *of_x;
    const uint32_t ring, full;
    const int rows; /* of the scales */

    __device__ void ask_weights(int stage, const record_order &of) const
    {
        const ignis__gemv_mma &p = all.product;
        const int lane = threadIdx.x % 32, behind = (int)(p.gated ? 2 * p.n : p.n);
        int low, high;
        if (lane == 0) /* the barrier expects the bytes of x, too */
            ignis_ptx_mbarrier_arrive_expect(full + 8 * stage, ALL_BYTES);
        __syncwarp();
        if (lane >= 2 * TILES)
            return;
        group_rows(p, of.tile / p.across, lane % TILES, low, high);
        const int row = lane < TILES ? low : high;
        ignis_ptx_bulk_load(
            ring + stage * STAGE_BYTES + X_BYTES + SCALES_BYTES + lane * EIGHT_BYTES,
            (const uint8_t *)p.weights +
                (first_record(row < behind ? row : 0, of.length) + (long long)of.at * TOGETHER) * RECORD_BYTES,
            EIGHT_BYTES, full + 8 * stage);
    }
    __device__ void ask_x(int stage, const record_order &of) const
    {
        const int lane = threadIdx.x % 32, column = of.tile % all.product.across * COLUMNS;
        const uint32_t to = ring + stage * STAGE_BYTES;
        if (lane < 2)
            ignis_ptx_tensor_load<2>(to + lane * BOX_BYTES, of_x, full + 8 * stage, (2 * of.at + lane) * 128, column);
        else if (lane < 4) /* some after those of the last row are read, and not used */
            ignis_ptx_bulk_load(to + X_BYTES + (lane - 2) * COLUMNS * 4,
                                all.scales + (long long)(2 * of.at + lane - 2) * rows + column, COLUMNS * 4,
                                full + 8 * stage);
    }
};

/*  Adds the sums of a unit, times both scales. d: of two rows of weights; scales: of this lane's columns. */
__device__ inline void add_unit(float (&sum)[N][4], const float (&found)[N][4], const float (&d)[2],
                                const float *scales)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        const float2 of_x = *(const float2 *)(scales + 8 * n);
#pragma unroll
        for (int c = 0; c < 4; c++)
            sum[n][c] = fmaf(found[n][c], __fmul_rn(d[c / 2], c % 2 ? of_x.y : of_x.x), sum[n][c]);
    }
}

/*  Multiplies a record of each row of weights with those of x, by a warpgroup: a warp has a tile. */
__device__ inline void multiply(float (&sum)[N][4], const char *stage)
{
    const int lane = threadIdx.x % 32, t = lane % 4;
    const char *const records = stage + X_BYTES + SCALES_BYTES + threadIdx.x / 32 * EIGHT_BYTES +
                                row_of_lanes(lane / 4) * RECORD_BYTES;
    /* from one lane: the compiler keeps descriptors in uniform registers */
    const uint64_t x =
        ignis_wgmma_descriptor(__shfl_sync(0xffffffff, (uint32_t)__cvta_generic_to_shared(stage), 0), 0, 1024);
    uint32_t a[UNITS][4][4];
    float d[UNITS][2], found[UNITS][N][4];
    const auto load = [&](int unit) {
        const int i = unit % UNITS;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const char *const record = records + r * TILES * EIGHT_BYTES;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const uint4 q = *(const uint4 *)(record + unit * 128 + j * 64 + t * 16);
                a[i][2 * j][r] = q.x, a[i][2 * j][2 + r] = q.y;
                a[i][2 * j + 1][r] = q.z, a[i][2 * j + 1][2 + r] = q.w;
            }
            d[i][r] = ((const float *)(record + 256))[unit];
        }
        ignis_wgmma_hold(a[i]);
    };
    const auto ask = [&](int unit) {
        const int i = unit % UNITS;
        const uint64_t of_unit = ignis_wgmma_ahead(x, unit * BOX_BYTES);
        ignis_ptx_wgmma_fence();
        ignis_ptx_wgmma<0>(found[i], a[i][0], of_unit);
#pragma unroll
        for (int j = 1; j < 4; j++)
            ignis_ptx_wgmma<1>(found[i], a[i][j], ignis_wgmma_ahead(of_unit, 32 * j));
        ignis_ptx_wgmma_commit();
    };
    const auto take = [&](int unit) {
        const int i = unit % UNITS;
        ignis_wgmma_hold(found[i]);
        ignis_wgmma_hold(a[i]); /* until here wgmma reads the registers of these weights */
        add_unit(sum, found[i], d[i], (const float *)(stage + X_BYTES) + unit * COLUMNS + 2 * t);
    };
    /* weights are not loaded while wgmma multiplies: the compiler would load them to the registers that it reads */
    load(0);
    if (UNITS == 2)
        load(1);
    ask(0);
    if (UNITS == 2) {
        ask(1);
        ignis_ptx_wgmma_wait<1>();
        take(0);
    } else {
        ignis_ptx_wgmma_wait<0>();
        take(0);
        load(1);
        ask(1);
    }
    ignis_ptx_wgmma_wait<0>();
    take(1);
}

/*  Does the epilogue of a tile's columns, of a share of them in a cluster. found: sums by slice of the cluster, column
    and pair of rows; column: the first one of the tile; wait(): called before the first sum is read. */
template <typename Wait>
__device__ inline void finish_columns(const ignis__gemv_mma &p, int group, int column, const float *found,
                                      const Wait &wait)
{
    constexpr int HALVES = 8 * TILES / 32, PARTS = SHARE * HALVES, AT_ONCE = PARTS / SLICES >= 2 ? 2 : 1;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bool waits = true;
#pragma unroll 1
    for (int from = warp; from < PARTS || waits; from += SLICES * AT_ONCE) {
        finish_line lines[AT_ONCE];
        int low[AT_ONCE], high[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int part = from + i * SLICES, pair = part % HALVES * 32 + lane, c = column + part / HALVES;
            group_rows(p, group, pair / 8, low[i], high[i]);
            low[i] += row_of_lanes(pair % 8), high[i] += row_of_lanes(pair % 8);
            if (part < PARTS && c < p.rows) {
                lines[i].load(p, low[i], high[i], c);
                lines[i].load_sum(p, low[i], high[i], c);
            }
        }
        if (waits)
            wait();
        waits = false;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int part = from + i * SLICES, pair = part % HALVES * 32 + lane, c = part / HALVES;
            if (part >= PARTS || column + c >= p.rows)
                continue;
            float2 y = *(const float2 *)(found + c * PITCH + 2 * pair);
#pragma unroll
            for (int slice = 1; slice < CLUSTER; slice++) {
                const float2 more = *(const float2 *)(found + (slice * SHARE + c) * PITCH + 2 * pair);
                y.x += more.x, y.y += more.y;
            }
            lines[i].put(p, low[i], high[i], column + c, y.x, y.y);
        }
    }
}

/*  Waits for the warps that multiply. */
__device__ inline void wait_for_sums() { ignis_ptx_bar_sync(1, THREADS); }

/*  more: takes registers that others gave; else gives them. The launch has 168 for each of 384 threads. */
template <bool more> __device__ inline void shift_registers()
{
#if __CUDA_ARCH__ == 900
    if (more)
        ignis_ptx_setmaxnreg_inc<232>();
    else
        ignis_ptx_setmaxnreg_dec<40>();
#endif
}

/*  Params: a TMA map of x, whose tiles are COLUMNS rows of 128 bytes. grid = any number of blocks, at most one per
    tile; or one cluster per tile. Shared memory for product.ring stages, FOUND_BYTES from found_at on, and barriers. */
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(ALL_THREADS, 1)
    ignis_gemv_f8(const __grid_constant__ ignis__gemv_blocks all, const __grid_constant__ ignis__tensor_map of_x)
{
    extern __shared__ __align__(1024) char memory[];
    const ignis__gemv_mma &p = all.product;
    float *const found = (float *)(memory + p.found_at);
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(memory), found_at = at + p.found_at,
                   arrived = found_at + FOUND_BYTES, full = arrived + 8, empty = full + 8 * p.ring;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % CLUSTER;
    const int results = p.gated ? 8 * TILES : 16 * TILES, tiles = (int)((p.n + results - 1) / results) * p.across;

    if (threadIdx.x == 0) {
        for (int i = 0; i < p.ring; i++) {
            ignis_ptx_mbarrier_init(full + 8 * i, 1);
            ignis_ptx_mbarrier_init(empty + 8 * i, SLICES * IGNIS_WARP_ARRIVALS);
        }
        ignis_ptx_mbarrier_init(arrived, 1);
        ignis_ptx_fence_mbarrier_init();
        if (CLUSTER > 1)
            ignis_ptx_mbarrier_arrive_expect(arrived, COLUMNS * 8 * TILES * 8);
    }
    if (CLUSTER > 1)
        ignis_ptx_cluster_arrive(); /* nothing is sent to a block that has not begun */
    ignis_grid_dependents_launch();
    __syncthreads();

    if (warp >= SLICES) {
        shift_registers<false>();
        if (warp > SLICES) { /* the rest of its warpgroup */
            ignis_grid_dependency_wait();
            if (CLUSTER > 1)
                ignis_ptx_cluster_wait();
            return;
        }
        const ring_copies copies = {all, &of_x, at, full, (p.rows + 7) / 8 * 8};
        record_order ahead((int)p.k, tiles), of = ahead;
        int asked = 0;
        for (; asked < p.ring && ahead.tile < tiles; ahead.go_on())
            copies.ask_weights(asked++, ahead);
        ignis_grid_dependency_wait();
        for (int i = 0; i < asked; i++, of.go_on())
            copies.ask_x(i, of);
        for (uint32_t stage = 0, phase = 0; ahead.tile < tiles; ahead.go_on()) {
            ignis_mbarrier_wait(empty + 8 * stage, phase);
            copies.ask_weights(stage, ahead);
            copies.ask_x(stage, ahead);
            if (++stage == p.ring)
                stage = 0, phase ^= 1;
        }
        if (CLUSTER > 1)
            ignis_ptx_cluster_wait();
        return;
    }

    shift_registers<true>();
    ignis_grid_dependency_wait();
    record_order of((int)p.k, tiles);
    int stage = 0;
    uint32_t phase = 0;
    /* this lane's part of found: a pair of rows, and columns */
    const int pair = 2 * (8 * warp + lane / 4), own = lane % 4 * 2;
    for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += of.stride) {
        const int group = tile / p.across, column = tile % p.across * COLUMNS;
        float sum[N][4];
        for (int slice = 0; slice < OWN; slice++) {
#pragma unroll
            for (int n = 0; n < N; n++)
                sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
            while (of.tile == tile && of.slice == slice) {
                ignis_mbarrier_wait(full + 8 * stage, phase);
                multiply(sum, memory + stage * STAGE_BYTES);
                ignis_warp_arrive(empty + 8 * stage);
                if (++stage == p.ring)
                    stage = 0, phase ^= 1;
                of.go_on();
            }
            if (CLUSTER > 1)
                break;
            if (slice == 0 && tile != blockIdx.x)
                wait_for_sums(); /* the epilogue before has read them */
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float2 *const kept = (float2 *)(found + (8 * n + own + j) * PITCH + pair);
                    float2 x = make_float2(sum[n][j], sum[n][2 + j]);
                    if (slice > 0) {
                        const float2 before = *kept;
                        x.x = before.x + x.x, x.y = before.y + x.y;
                    }
                    *kept = x;
                }
        }
        if (CLUSTER == 1) {
            finish_columns(p, group, column, found, wait_for_sums);
            continue;
        }
        ignis_ptx_cluster_wait();
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int c = 8 * n + own + j;
                ignis_ptx_st_async(
                    ignis_ptx_mapa(found_at + ((rank * SHARE + c % SHARE) * PITCH + pair) * 4, c / SHARE),
                    make_float2(sum[n][j], sum[n][2 + j]), ignis_ptx_mapa(arrived, c / SHARE));
            }
        finish_columns(p, group, column + rank * SHARE, found, [&] { ignis_mbarrier_wait(arrived, 0); });
    }
}

#endif
