// SPDX-License-Identifier: MIT
/*  gemm_hopper.cu - matrix products of f16 and bf16 by wgmma, for sm_90a

    One program per type, pair of transpositions and width of a tile: compiled with -DIGNIS_T=<IGNIS_F16 or IGNIS_BF16>
    -DIGNIS_TRANSPOSE_A=<0 or 1> -DIGNIS_TRANSPOSE_B=<0 or 1> -DIGNIS_COLUMNS=<128 or 256>, and with -DIGNIS_ACTIVATION=<RELU or GELU> for
    products that get no more than that and a bias (p.direct); without for all others. Sums in float, in the order of k.

    Blocks stay, and do tiles of 128 rows in turn. One warp of the first warpgroup loads steps of 64 elements of k, as far ahead as there is
    room; the second and third warpgroup multiply 64 rows each. All operands lie as the memory has them: wgmma transposes.
*/
#include "ignis.cuh"
#include "mma.cuh"
#include "hopper.cuh"

typedef ignis_type<IGNIS_T> T;
#include "gemm.cuh"

#ifndef IGNIS_ACTIVATION
#define IGNIS_ACTIVATION NO_ACTIVATION
#endif

constexpr int BM = 128, BN = IGNIS_COLUMNS, BK = 64, STAGES = BN == 256 ? 4 : 6, SLAB = 64 * 128; /* bytes of 64 rows of 64 elements */
constexpr int A_BYTES = BM * BK * 2, STAGE_BYTES = A_BYTES + BN * BK * 2;
constexpr int STAGING_WIDTH = 64 + 4, STAGING_BYTES = 64 * STAGING_WIDTH * 4; /* of a warpgroup: 64 x 64 results */
constexpr int STAGING = STAGES * STAGE_BYTES, BARRIERS = STAGING + 2 * STAGING_BYTES;
constexpr bool A_BY_K = !IGNIS_TRANSPOSE_A, B_BY_K = IGNIS_TRANSPOSE_B;

/*  Loads a step of an operand: by k as rows of 64 k, else as slabs of 64 rows at each k. */
template <int rows, bool by_k>
__device__ inline void load(uint32_t to, const ignis_tensor_map *map, uint32_t barrier, long long row, long long k, long long batch)
{
    if constexpr (by_k)
        ignis_ptx_tensor_load<3>(to, map, barrier, (int)k, (int)row, (int)batch);
    else
#pragma unroll
        for (int i = 0; i < rows / 64; i++)
            ignis_ptx_tensor_load<3>(to + i * SLAB, map, barrier, (int)row + 64 * i, (int)k, (int)batch);
}

/*  Adds the sums of 16 rows of a step of op(a) to sums, which is a C of mma.m16n8k16 of equal columns: the product of a slab with ones. */
__device__ inline void add_rows(float (&sums)[4], uint32_t slab, int warp)
{
    constexpr uint32_t one = ignis_is_same<T, ignis_f16> ? 0x3c003c00 : 0x3f803f80; /* twice */
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < BK / 16; i++) {
        uint32_t words[4];
        if constexpr (A_BY_K) {
            const int row = 16 * warp + lane % 16, chunk = 2 * i + lane / 16;
            ignis_ptx_ldmatrix(words, slab + row * 128 + (chunk ^ row % 8) * 16);
        } else {
            const int k = 16 * i + lane % 8 + lane / 16 * 8, chunk = 2 * warp + lane / 8 % 2;
            ignis_ptx_ldmatrix_transposed(words, slab + k * 128 + (chunk ^ k % 8) * 16);
        }
        ignis_mma<T>(sums, words, one, one);
    }
}

/*  16 columns of 16 rows of a warp, in the order of an accumulator: the bias is added, `before` is that as it is kept, rounded, and x is activated
    where this program has an activation. */
__device__ inline void apply(const Product &p, float (&x)[2][4], uint32_t (&before)[4], long long column)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const long long at = column + 8 * i + threadIdx.x % 4 * 2;
        if (p.bias && at < p.n) {
            const auto bias = ignis_load<2>(p.bias + at);
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[i][e] += ignis_wide_at(bias, e % 2);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t word = ignis_round_two<T>(x[i][2 * half], x[i][2 * half + 1]);
            before[2 * i + half] = word;
            if (IGNIS_ACTIVATION) {
                const auto two = ignis_pack_of<ignis_pack<T, 2>>(word);
#pragma unroll
                for (int e = 0; e < 2; e++)
                    x[i][2 * half + e] = IGNIS_ACTIVATION == RELU ? relu(ignis_wide_at(two, e)) : gelu(ignis_wide_at(two, e));
            }
        }
    }
}

/*  Stores what a warpgroup has of a tile, 64 columns at a time, which pass through its staging memory: rounded, for the copy engine, where no
    more than a bias and an activation is applied; else as floats, which the shared epilogue takes from there. turn counts the strips of all
    tiles: the copy engine may still read that of the turn before. */
__device__ inline void store(const Product &p, const ignis_tensor_map *out, const ignis_tensor_map *pre, const Place &tile, int group,
                             char *staging, int &turn, float (&sum)[BN / 8][4])
{
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const auto sync = [&] { ignis_ptx_bar_sync(1 + group, 128); };
    const bool direct = IGNIS_ACTIVATION || p.direct;
    const bool keeps = IGNIS_ACTIVATION && p.pre; /* in the second half of the staging memory */
    Place place = tile;
    place.row += 64 * group;
#pragma unroll 1
    for (int strip = 0; strip < BN / 64 && place.row < p.m && place.column < p.n; strip++, place.column += 64) {
        char *const room = staging + (direct && !keeps ? turn++ % 2 * SLAB : 0);
        float *const results = (float *)room;
        if (direct && thread == 0) {
            if (keeps)
                ignis_ptx_bulk_wait_read<0>();
            else
                ignis_ptx_bulk_wait_read<1>();
        }
        sync(); /* nobody uses the room any more */
#pragma unroll
        for (int c = 0; c < BN / 8; c += 2) { /* 16 columns */
            if (c / 8 != strip)
                continue;
            if (direct) {
                const int row = 16 * warp + lane % 16, chunk = c % 8 + lane / 16;
                const uint32_t to = (uint32_t)__cvta_generic_to_shared(room) + row * 128 + (chunk ^ row % 8) * 16;
                float x[2][4];
                uint32_t before[4];
#pragma unroll
                for (int i = 0; i < 8; i++)
                    x[i / 4][i % 4] = sum[c + i / 4][i % 4];
                apply(p, x, before, place.column + c % 8 * 8);
                if (keeps)
                    ignis_ptx_stmatrix(to + SLAB, before[0], before[1], before[2], before[3]);
                if (IGNIS_ACTIVATION)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        before[i] = ignis_round_two<T>(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1]);
                ignis_ptx_stmatrix(to, before[0], before[1], before[2], before[3]);
            } else {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    *(float2 *)&results[(16 * warp + lane / 4 + i % 2 * 8) * STAGING_WIDTH + c % 8 * 8 + i / 2 * 8 + lane % 4 * 2] =
                        make_float2(sum[c + i / 2][i % 2 * 2], sum[c + i / 2][i % 2 * 2 + 1]);
            }
        }
        if (direct) {
            ignis_ptx_fence_proxy_async();
            sync();
            if (thread == 0) {
                const uint32_t from = (uint32_t)__cvta_generic_to_shared(room);
                ignis_ptx_tensor_store<3>(out, from, (int)place.column, (int)place.row, (int)place.batch);
                if (keeps)
                    ignis_ptx_tensor_store<3>(pre, from + SLAB, (int)place.column, (int)place.row, (int)place.batch);
                ignis_ptx_bulk_commit();
            }
            continue;
        }
        sync();
        const auto result = [&](int r, int c) { return results[r * STAGING_WIDTH + c]; };
        if (p.partial) {
            store_partial<128, 64>(p, place, thread, 0, 64, result);
        } else {
            Epilogue<128, 64> epilogue(p, place, thread);
            epilogue.strip(0, 64, result);
            epilogue.end(64, results, sync);
        }
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    ignis_gemm_hopper(const __grid_constant__ ignis_tensor_map a, const __grid_constant__ ignis_tensor_map b,
                      const __grid_constant__ ignis_tensor_map out, const __grid_constant__ ignis_tensor_map pre,
                      const __grid_constant__ Product p)
{
    extern __shared__ __align__(1024) char memory[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
    const auto full = [&](int stage) { return base + BARRIERS + 16 * stage; };
    const auto empty = [&](int stage) { return base + BARRIERS + 16 * stage + 8; };
    const int group = __shfl_sync(0xffffffff, (int)threadIdx.x / 128, 0) - 1;
    const unsigned tiles = (unsigned)((p.m + BM - 1) / BM * ((p.n + BN - 1) / BN) * p.batch * p.splits);

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            ignis_ptx_mbarrier_init(full(i), 1);
            ignis_ptx_mbarrier_init(empty(i), 8); /* warps */
        }
        ignis_ptx_fence_mbarrier_init();
    }
    __syncthreads();

    int stage = 0;
    const auto next = [&](int &parity) {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    };
    if (group < 0) {
        ignis_ptx_setmaxnreg_dec<40>();
        if (threadIdx.x != 0)
            return;
        int parity = 1; /* the first round finds all stages empty */
        for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const Place place(p, tile, BM, BN);
            for (long long k = place.first_k; k < place.end_k; k += BK) {
                const uint32_t to = base + stage * STAGE_BYTES;
                ignis_mbarrier_wait(empty(stage), parity);
                ignis_ptx_mbarrier_arrive_expect(full(stage), STAGE_BYTES);
                load<BM, A_BY_K>(to, &a, full(stage), place.row, k, p.batch_a ? place.batch : 0);
                load<BN, B_BY_K>(to + A_BYTES, &b, full(stage), place.column, k, p.batch_b ? place.batch : 0);
                next(parity);
            }
        }
        return;
    }

    ignis_ptx_setmaxnreg_inc<232>();
    int parity = 0, turn = 0;
    const uint64_t first_a = ignis_wgmma_descriptor(base + group * SLAB, 0, 1024);
    const uint64_t first_b = ignis_wgmma_descriptor(base + A_BYTES, B_BY_K ? 0 : SLAB, 1024);
    const auto release = [&](int stage) {
        if (threadIdx.x % 32 == 0)
            ignis_ptx_mbarrier_arrive(empty(stage));
    };
    for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const Place place(p, tile, BM, BN);
        const bool sums_rows = p.row_sums && place.column == 0;
        float sum[BN / 8][4], row_sums[4] = {0, 0, 0, 0};
        int last = -1;
#pragma unroll
        for (int i = 0; i < BN / 8; i++)
            sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = 0;
#pragma unroll 1
        for (long long k = place.first_k; k < place.end_k; k += BK) {
            ignis_mbarrier_wait(full(stage), parity);
            const uint64_t at_a = ignis_wgmma_ahead(first_a, stage * STAGE_BYTES), at_b = ignis_wgmma_ahead(first_b, stage * STAGE_BYTES);
            ignis_wgmma_hold(sum);
            ignis_ptx_wgmma_fence();
#pragma unroll
            for (int i = 0; i < BK / 16; i++)
                ignis_ptx_wgmma<1, !A_BY_K, !B_BY_K>(sum, ignis_wgmma_ahead(at_a, A_BY_K ? 32 * i : 2048 * i),
                                                     ignis_wgmma_ahead(at_b, B_BY_K ? 32 * i : 2048 * i));
            ignis_ptx_wgmma_commit();
            if (sums_rows)
                add_rows(row_sums, base + stage * STAGE_BYTES + group * SLAB, threadIdx.x / 32 % 4);
            ignis_ptx_wgmma_wait<1>();
            if (last >= 0)
                release(last); /* of the step before this one */
            last = stage;
            next(parity);
        }
        ignis_ptx_wgmma_wait<0>();
        ignis_wgmma_hold(sum);
        release(last);
        const int lane = threadIdx.x % 32;
        const long long row = place.row + 64 * group + threadIdx.x / 32 % 4 * 16 + lane / 4;
        if (sums_rows && lane % 4 == 0) {
            if (row < p.m)
                p.row_sums[place.split * p.m + row] = row_sums[0];
            if (row + 8 < p.m)
                p.row_sums[place.split * p.m + row + 8] = row_sums[2];
        }
        store(p, &out, &pre, place, group, memory + STAGING + group * STAGING_BYTES, turn, sum);
    }
    if (threadIdx.x % 128 == 0)
        ignis_ptx_bulk_wait<0>();
}
