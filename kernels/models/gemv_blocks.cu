// SPDX-License-Identifier: MIT
/*  models/gemv_blocks.cu - GEMV of up to 64 rows with quantised weights, on tensor cores

    As gemv_mma.cu for dense weights: slices of K depend on K alone, so a row has the same bits alone and in a
    batch. The norm of one row precedes the product, and the epilogue depends on the kind. Only weights are read
    before the earlier kernels have ended. Weights and rows are multiplied as whole numbers: weights_blocks.cuh; those
    of F8 as floats: weights_f8.cuh. On sm_90 and up TMA brings the weights of a product of one row to shared memory.

    For f16 and bf16, sm_80 and up. One program per type of x and of blocks: compiled with -DIGNIS_T=<1 or 2>
    -DIGNIS_BLOCKS=<a blocks_type>.
*/
#include "gemv.cuh"
#include "weights_f8.cuh"
#include "hopper.cuh"

typedef rows_of_blocks<IGNIS_BLOCKS, T>::kind weights;

constexpr int UNIT_BYTES = 2 * 32 * UNIT; /* bytes of a unit of x */
constexpr int TILE = SLICES * 16 + 8;     /* floats of a tile, for one row */

__device__ inline uint4 *shared_memory()
{
    extern __shared__ __align__(128) uint4 memory[];
    return memory;
}

/*  The units of a warp's slice of K. Two units are a record. */
struct slice_of_k {
    int units, first, last;

    __device__ explicit slice_of_k(long long k)
    {
        units = ((int)k + 32 * RECORD - 1) / (32 * RECORD) * 2;
        const int each = (units + 2 * SLICES - 1) / (2 * SLICES) * 2;
        first = threadIdx.x / 32 * each;
        last = min(first + each, units);
    }
};

__device__ inline int tiles_of(const ignis__gemv_blocks &all)
{
    const ignis__gemv_mma &p = all.product;
    return (int)((p.n - all.first + (p.gated ? 7 : 15)) / (p.gated ? 8 : 16));
}

/*  Returns rows g and g + 8 of a tile; low, high: the first row and the ninth. */
__device__ inline weights weights_of_tile(const ignis__gemv_blocks &all, int tile, int g, int &low, int &high)
{
    const ignis__gemv_mma &p = all.product;
    const int behind = (int)(p.gated ? 2 * p.n : p.n) - 1 - all.first;
    tile_rows(p, all.first, tile, low, high);
    low -= all.first;
    high -= all.first;
    return weights((const uint8_t *)p.weights, all.scales_of, (int)p.k, min(low + g, behind), min(high + g, behind));
}

/*  Loads eight elements of a row from `at` on; zeros after its end. */
__device__ inline ignis_pack<T, 8> eight_of(const T *row, int at, long long k)
{
    ignis_pack<T, 8> x = {};
    if (at < k)
        x = ignis_load<8>(row + at);
    return x;
}

/*  Converts rows of x to whole numbers; of F8 it only fills them up with zeros. grid = rows; shared memory for a row,
    if its norm comes first. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_gemv_blocks_rows(const __grid_constant__ ignis__gemv_blocks all)
{
    const ignis__gemv_mma &p = all.product;
    uint4 *const memory = shared_memory();
    const int units = slice_of_k(p.k).units, columns = (gridDim.x + 7) / 8 * 8;
    const T *row = p.x + blockIdx.x * p.k;
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
    for (int from = 0; from < units * UNIT * 4; from += THREADS) {
        const int eight = from + threadIdx.x, block = eight / 4;
        if (weights::is_float) {
            const ignis_pack<T, 8> x = eight_of(row, eight * 8, p.k);
            const uint4 words = *(const uint4 *)&x;
            uint32_t *const to = (uint32_t *)(all.x + ((long long)blockIdx.x * units * UNIT + block) * 64);
            if (block >= units * UNIT)
                continue;
            if (all.paired)
                to[eight % 4] = words.x, to[4 + eight % 4] = words.y, to[8 + eight % 4] = words.z,
                           to[12 + eight % 4] = words.w; /* see paired_place */
            else
                ((uint4 *)to)[eight % 4] = words;
            continue;
        }
        const whole_numbers<8, weights::minima> x(eight_of(row, eight * 8, p.k));
        if (block >= units * UNIT)
            continue;
        if (all.paired) {
            uint32_t *to = (uint32_t *)(all.x + ((long long)blockIdx.x * units * UNIT + block) * 64);
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[paired_place(eight % 4, i)] = ignis_round_two<T>(x.rounded[2 * i], x.rounded[2 * i + 1]);
        } else
            *(uint4 *)(all.x + ((long long)blockIdx.x * units * UNIT * 4 + eight) * 16) =
                make_uint4(x.high[0], x.high[1], x.low[0], x.low[1]);
        if (eight % 4 == 0) {
            float *to = all.scales + block * columns + blockIdx.x;
            to[0] = x.scale * weights::factor;
            if (weights::minima)
                to[units * UNIT * columns] = x.sum;
        }
    }
}

/*  The chunks of a warp's slices of a block's tiles, in their order; `slots` of them are in flight. A lane has a row
    and the one eight rows later. A source has: units, slots (units per chunk, chunks in flight); ask(slot), which
    starts the copy of the next chunk, if there is one; wait(slot); of(slot, i), which returns what a lane has of the
    i-th unit. */
struct piece_order {
    const ignis__gemv_blocks &all;
    const slice_of_k &k;
    const int tiles, row; /* row: of a tile's first eight, that this lane has */
    int tile, unit;       /* of the next chunk */
    int low, high;        /* rows of that tile */
    weights from;

    __device__ piece_order(const ignis__gemv_blocks &all, const slice_of_k &k, int tiles, int row)
        : all(all), k(k), tiles(k.first < k.last ? tiles : 0), row(row), tile(blockIdx.x), unit(k.first),
          from(weights_of_tile(all, blockIdx.x, row, low, high))
    {
    }
    __device__ void go_on(int units)
    {
        unit += units;
        if (unit < k.last)
            return;
        unit = k.first;
        tile += gridDim.x;
        if (tile < tiles)
            from = weights_of_tile(all, tile, row, low, high);
    }
};

struct pieces_in_registers : piece_order {
    static constexpr int units = 1, slots = weights::halves || weights::bytes ? 2 : 3;
    weights::unit loaded[slots];

    __device__ pieces_in_registers(const ignis__gemv_blocks &all, const void *, const slice_of_k &k, int tiles)
        : piece_order(all, k, tiles, threadIdx.x % 32 / 4)
    {
    }
    __device__ void ask(int slot)
    {
        if (tile >= tiles)
            return;
        loaded[slot] = from.load<true>(unit);
        go_on(units);
    }
    __device__ void wait(int) {}
    __device__ const weights::unit &of(int slot, int) const { return loaded[slot]; }
};

#if __CUDA_ARCH__ >= 900
/*  A source by TMA: records of 16 rows at a time, to a ring for each warp. Gated halves have the same offset within
    an eight of rows if n is a multiple of 8. Loads by the lanes themselves wait for the copies in flight. */
struct pieces_in_shared : piece_order {
    /* the host has the same */
    static constexpr int bytes = record_bytes(IGNIS_BLOCKS), units = 2, slots = bytes > 144 ? 2 : 3;
    static_assert(bytes / 16 % 2 == 1, "so rows that lanes read at a time have different banks");
    const int records;
    weights::unit rest[slots];
    uint32_t ring, barriers, phases;

    __device__ pieces_in_shared(const ignis__gemv_blocks &all, const void *memory, const slice_of_k &k, int tiles)
        : piece_order(all, k, tiles, row_of_lanes(threadIdx.x % 32 / 4)), records(k.units / units), phases(0)
    {
        const uint32_t at = (uint32_t)__cvta_generic_to_shared(memory), warp = threadIdx.x / 32;
        ring = at + warp * slots * 16 * bytes;
        barriers = at + SLICES * slots * 16 * bytes + warp * slots * 8;
        if (threadIdx.x % 32 == 0) {
            for (int i = 0; i < slots; i++)
                ignis_ptx_mbarrier_init(barriers + 8 * i, 1);
            ignis_ptx_fence_mbarrier_init();
        }
        __syncwarp();
    }
    __device__ void ask(int slot)
    {
        if (tile >= tiles)
            return;
        __syncwarp(); /* all have read the slot */
        if (threadIdx.x % 32 == 0) {
            const ignis__gemv_mma &p = all.product;
            /* the second eight may not exist */
            const int rows = (int)(p.gated ? 2 * p.n : p.n) - all.first, first[2] = {low, high < rows ? high : low};
            ignis_ptx_mbarrier_arrive_expect(barriers + 8 * slot, 16 * bytes);
#pragma unroll
            for (int r = 0; r < 2; r++)
                ignis_ptx_bulk_load(ring + (slot * 16 + 8 * r) * bytes,
                                    (const uint8_t *)p.weights +
                                        (first_record(first[r], records) + unit / units * TOGETHER) * bytes,
                                    8 * bytes, barriers + 8 * slot);
        }
        from.load_d(rest[slot], unit / 2);
        go_on(units);
    }
    __device__ void wait(int slot)
    {
        ignis_mbarrier_wait(barriers + 8 * slot, phases >> slot & 1);
        phases ^= 1 << slot;
    }
    __device__ weights::unit of(int slot, int i) const
    {
        const uint8_t *box = (const uint8_t *)__cvta_shared_to_generic(ring + slot * 16 * bytes + row * bytes);
        weights::unit w = rest[slot];
#pragma unroll
        for (int r = 0; r < 2; r++)
            weights::read<true>(w, r, box + r * 8 * bytes, i, [](const uint8_t *from) { return *(const uint4 *)from; });
        return w;
    }
};
typedef pieces_in_shared pieces_of_one;
#else
typedef pieces_in_registers pieces_of_one;
#endif

/*  Converts a warp's slice of a row to whole numbers in shared memory: of a block, high bytes, then low ones. */
__device__ inline void put_whole(const T *row, const slice_of_k &k, long long length, uint8_t *whole, float *scales,
                                 float *sums)
{
    constexpr int at_a_time = 4; /* loads of a lane */
    for (int first = k.first * UNIT * 4 + threadIdx.x % 32; first / (4 * UNIT) < k.last; first += 32 * at_a_time) {
        ignis_pack<T, 8> eights[at_a_time];
#pragma unroll
        for (int i = 0; i < at_a_time; i++)
            eights[i] = eight_of(row, (first + 32 * i) * 8, length);
#pragma unroll
        for (int i = 0; i < at_a_time; i++) {
            const int t = threadIdx.x % 4, block = first / 4 + 8 * i;
            if (block >= k.last * UNIT) /* equal in all lanes, which have two units */
                break;
            if (weights::is_float) {
                *(uint4 *)(whole + block * 64 + t * 16) = *(const uint4 *)&eights[i];
                continue;
            }
            const whole_numbers<8, weights::minima> x(eights[i]);
            *(uint2 *)(whole + block * 64 + t * 8) = make_uint2(x.high[0], x.high[1]);
            *(uint2 *)(whole + block * 64 + 32 + t * 8) = make_uint2(x.low[0], x.low[1]);
            if (t == 0) {
                scales[block] = x.scale * weights::factor;
                if (weights::minima)
                    sums[block] = x.sum;
            }
        }
    }
}

/*  Adds a unit of weights times the row. */
template <typename Weights>
__device__ inline void add_unit(float &sum, const typename Weights::unit &w, int unit, const uint8_t *whole,
                                const float *scales, const float *sums)
{
    const int lane = threadIdx.x % 32, t = lane % 4, block = unit * UNIT + t;
    uint4 x[2] = {};
    if constexpr (Weights::is_float) {
        Weights::add_alone(sum, w, (const uint4 *)(whole + unit * UNIT_BYTES));
    } else {
        if (lane / 8 == t) {
            const uint4 *of = (const uint4 *)(whole + block * 64 + lane / 4 % 2 * 32);
            x[0] = of[0];
            x[1] = of[1];
        }
        Weights::add_alone(sum, w, unit, x, scales[block], Weights::minima ? sums[block] : 0);
    }
}

/*  Multiplies one row. A block adds the warps' results after all of its tiles, so that no warp waits for another
    before. grid = blocks of up to 32 tiles; shared memory for the ring, TILE floats per tile, the row as whole
    numbers with scales and, for minima, sums, and the row itself if its norm comes first. */
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ignis_gemv_blocks_1(const __grid_constant__ ignis__gemv_blocks all)
{
    const ignis__gemv_mma &p = all.product;
    uint4 *const memory = shared_memory();
    const int t = threadIdx.x % 4, slice = threadIdx.x / 32, tiles = tiles_of(all);
    const int own = (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x,
              most = (tiles + (int)gridDim.x - 1) / (int)gridDim.x;
    const slice_of_k k(p.k);
    float *found = (float *)((char *)memory + p.found_at);
    uint8_t *whole = (uint8_t *)(found + most * TILE);
    float *scales = (float *)(whole + k.units * UNIT_BYTES), *sums = scales + k.units * UNIT;
    T *row = (T *)(sums + (weights::minima ? k.units * UNIT : 0));

    const int g = threadIdx.x % 8, finished = threadIdx.x / 8; /* row and tile of this thread's epilogue */
    int low, high;
    finish_line line;

    ignis_grid_dependents_launch();
    pieces_of_one coming(all, memory, k, tiles);
#pragma unroll
    for (int i = 0; i < pieces_of_one::slots; i++)
        coming.ask(i);
    tile_rows(p, all.first, blockIdx.x + finished * gridDim.x, low, high);
    if (finished < own)
        line.load(p, low + g, high + g, 0);
    if (p.norm_of) {
        const row_norm norm(p);
        ignis_grid_dependency_wait();
        norm.run(p.norm_of, [&](int i, const ignis_pack<T, 4> &four) { ignis_store_shared(row + i, four); });
        __syncthreads();
        put_whole(row, k, p.k, whole, scales, sums); /* each warp converts what it needs */
    } else {
        ignis_grid_dependency_wait();
        put_whole(p.x, k, p.k, whole, scales, sums);
    }
    __syncwarp();

    if (finished < own)
        line.load_sum(p, low + g, high + g, 0);
    float *to = found + slice * 16 + coming.row + t * 8;
    float sum = 0;
    if (k.first >= k.last)
        for (int i = 0; i < own && t < 2; i++)
            to[i * TILE] = 0;
    for (int done = 0, at = k.first; k.first < k.last && done < own;) {
#pragma unroll
        for (int slot = 0; slot < pieces_of_one::slots; slot++) {
            if (done >= own)
                break;
            coming.wait(slot);
#pragma unroll
            for (int i = 0; i < pieces_of_one::units; i++) {
                if (at + i >= k.last)
                    break;
                add_unit<weights>(sum, coming.of(slot, i), at + i, whole, scales, sums);
            }
            coming.ask(slot);
            at += pieces_of_one::units;
            if (at >= k.last) {
                if (t < 2)
                    to[done * TILE] = sum;
                done++;
                at = k.first;
                sum = 0;
            }
        }
    }
    __syncthreads();
    if (finished < own) {
        float y[2];
#pragma unroll
        for (int part = 0; part < 2; part++)
            y[part] = sum_of_slices(found + finished * TILE + g + 8 * part, 16);
        line.put(p, low + g, high + g, 0, y[0], y[1]);
    }
}

/*  Multiplies up to 8 N rows. */
template <int N> __device__ inline void product(const ignis__gemv_blocks &all)
{
    const ignis__gemv_mma &p = all.product;
    uint4 *const memory = shared_memory();
    constexpr int columns = 8 * N, found_size = SLICES * columns * COLUMN;
    /* as registers allow */
    constexpr int ring = N == 8 || (N == 1 && weights::halves && __CUDA_ARCH__ < 900) ? 1 : 2;
    float *found = (float *)memory; /* [2][SLICES][columns][COLUMN] */
    const int lane = threadIdx.x % 32, t = lane % 4, slice = threadIdx.x / 32, tiles = tiles_of(all),
              rows = (p.rows + 7) / 8 * 8;
    const slice_of_k k(p.k);
    const int steps = (k.last - k.first + ring - 1) / ring;
    typename weights::unit loaded[ring];

    int low, high;

    ignis_grid_dependents_launch();
    weights from = weights_of_tile(all, blockIdx.x, lane / 4, low, high);
#pragma unroll
    for (int i = 0; i < ring; i++)
        if (k.first + i < k.last)
            loaded[i] = from.load<false>(k.first + i);
    ignis_grid_dependency_wait();

    for (int tile = blockIdx.x, turn = 0; tile < tiles; tile += gridDim.x, turn ^= 1) {
        const int g = threadIdx.x % 8, own = threadIdx.x / 8; /* row and column of this thread's epilogue */
        float sum[N][4] = {};
        finish_line line;
        tile_rows(p, all.first, tile, low, high);
        if (own < p.rows)
            line.load_sum(p, low + g, high + g, own);
        for (int step = 0; step < steps; step++) {
            const bool is_last = step + 1 == steps, more = !is_last || tile + gridDim.x < tiles;
            const int next = is_last ? k.first : k.first + (step + 1) * ring;
            int next_low, next_high;
            if (is_last && more)
                from = weights_of_tile(all, tile + gridDim.x, lane / 4, next_low, next_high);
#pragma unroll
            for (int i = 0; i < ring; i++) {
                const int unit = k.first + step * ring + i;
                if (unit < k.last)
                    weights::add<N>(
                        sum, rows, loaded[i], unit,
                        [&](int block, int n) {
                            if (8 * n >= rows)
                                return make_uint4(0, 0, 0, 0);
                            return *(const uint4 *)(all.x + ((8 * n + lane / 4) * k.units + unit) * UNIT_BYTES +
                                                    block * 64 + t * 16);
                        },
                        [&](int block, int n, float(&of)[2]) {
                            if (8 * n >= rows)
                                return make_float2(0, 0);
                            const float *scales = all.scales + (unit * UNIT + block) * rows + 8 * n + 2 * t;
                            if (weights::minima) {
                                const float2 both = *(const float2 *)(scales + k.units * UNIT * rows);
                                of[0] = both.x;
                                of[1] = both.y;
                            }
                            return *(const float2 *)scales;
                        });
                if (more && next + i < k.last)
                    loaded[i] = from.load<false>(next + i);
            }
        }

        float *slices = found + turn * found_size;
        put_slice<columns>(slices + slice * columns * COLUMN, sum, lane / 4);
        __syncthreads(); /* that of the next tile comes before this half is written again */
        finish_tile<columns, false>(p, slices, low, high, line);
    }
}

/*  grid = any number of blocks, at most one per tile; shared memory for 2 SLICES COLUMN columns floats. */
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ignis_gemv_blocks_8(const __grid_constant__ ignis__gemv_blocks p)
{
    product<1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    ignis_gemv_blocks_16(const __grid_constant__ ignis__gemv_blocks p)
{
    product<2>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    ignis_gemv_blocks_32(const __grid_constant__ ignis__gemv_blocks p)
{
    product<4>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    ignis_gemv_blocks_64(const __grid_constant__ ignis__gemv_blocks p)
{
    product<8>(p);
}
