// SPDX-License-Identifier: MIT
/*  test_hopper.cu - the kernels of test_hopper.c; its FAULTS precede this text, as an enumeration */
#include "ignis.cuh"
#include "hopper.cuh"

constexpr int SIDE = 64, TILE = SIDE * 128, STAGES = 2; /* rows of 64 elements of 16 bits */

#if IGNIS_T == 3

/*  Computes one product of 64 x 64 x 8 floats from tiles of 64 rows of 32, from shared memory and with A from
    registers. */
extern "C" __global__ void __launch_bounds__(128) tf32_products(const float *a, const float *b, float *out)
{
    extern __shared__ char shared[];
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    float *const x = (float *)shared, sums[2][SIDE / 8][4];
    for (int i = threadIdx.x; i < 64 * 32; i += 128) {
        const int place = i / 32 * 32 + ((i % 32 / 4) ^ i / 32 % 8) * 4 + i % 4;
        x[place] = a[i];
        x[TILE / 4 + place] = b[i];
    }
    ignis_ptx_fence_proxy_async();
    __syncthreads();
    const uint64_t by_rows = ignis_wgmma_descriptor(at, 0, 1024), columns = ignis_wgmma_descriptor(at + TILE, 0, 1024);
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    uint32_t words[4];
    for (int i = 0; i < 4; i++)
        words[i] = __float_as_uint(a[(row + i % 2 * 8) * 32 + 8 + lane % 4 + i / 2 * 4]);
    ignis_ptx_wgmma_fence();
    ignis_ptx_wgmma<0>(sums[0], ignis_wgmma_ahead(by_rows, 32), ignis_wgmma_ahead(columns, 32));
    ignis_ptx_wgmma<0>(sums[1], words, ignis_wgmma_ahead(columns, 32));
    ignis_ptx_wgmma_commit();
    ignis_ptx_wgmma_wait<0>();
    ignis_wgmma_hold(sums[0]);
    ignis_wgmma_hold(sums[1]);
    for (int i = 0; i < SIDE / 8; i++)
        for (int e = 0; e < 4; e++)
            for (int way = 0; way < 2; way++)
                out[way * SIDE * SIDE + (row + e / 2 * 8) * SIDE + 8 * i + lane % 4 * 2 + e % 2] = sums[way][i][e];
}

#else

/*  Writes the sums of a thread, rounded, to a tile in shared memory. */
__device__ inline void store_sums(uint32_t out, const float (&sums)[SIDE / 8][4], int warp, int lane)
{
    for (int i = 0; i < SIDE / 16; i++) {
        const int row = 16 * warp + lane % 16, chunk = 2 * i + lane / 16;
        ignis_ptx_stmatrix(out + row * 128 + (chunk ^ row % 8) * 16,
                           ignis_round_two<ignis_bf16>(sums[2 * i][0], sums[2 * i][1]),
                           ignis_round_two<ignis_bf16>(sums[2 * i][2], sums[2 * i][3]),
                           ignis_round_two<ignis_bf16>(sums[2 * i + 1][0], sums[2 * i + 1][1]),
                           ignis_round_two<ignis_bf16>(sums[2 * i + 1][2], sums[2 * i + 1][3]));
    }
}

/*  Computes c[64][64] = a[64][64 * steps] b[64][64 * steps]^T: one warp loads, the warps of a warpgroup
    multiply, with `fault` in it. Shared memory has two stages of a and b, then c, then the barriers. */
extern "C" __global__ void __launch_bounds__(256)
    product(const __grid_constant__ ignis__tensor_map a, const __grid_constant__ ignis__tensor_map b,
            const __grid_constant__ ignis__tensor_map c, int steps, int fault, const uint32_t *never)
{
    extern __shared__ char shared[];
    const uint32_t tiles = (uint32_t)__cvta_generic_to_shared(shared), out = tiles + 2 * STAGES * TILE,
                   full = out + 2 * TILE;
    const uint32_t empty = full + 8 * STAGES, spare = empty + 8 * STAGES;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES && fault != NOT_INITIALISED; s++) {
            ignis_ptx_mbarrier_init(full + 8 * s, 1);
            ignis_ptx_mbarrier_init(empty + 8 * s, fault == TOO_MANY_ARRIVALS || fault == POLLS_IN_VAIN ? 5
                                                   : fault == TOO_FEW_ARRIVALS                          ? 3
                                                                                                        : 4);
        }
        ignis_ptx_mbarrier_init(spare, 1);
        if (fault != NO_MBARRIER_FENCE)
            ignis_ptx_fence_mbarrier_init();
    }
    __syncthreads();

    if (warp >= 4) {
        if (fault != REGISTERS)
            ignis_ptx_setmaxnreg_dec<24>();
        else
            ignis_ptx_setmaxnreg_dec<248>();
        if (threadIdx.x == 128) {
            /* no thread arrives there */
            if (ignis_ptx_mbarrier_test_wait(spare, 0) || !ignis_ptx_mbarrier_test_wait(spare, 1))
                return;
            ignis_ptx_bulk_prefetch(never, fault == MISALIGNED_PREFETCH ? 8 : 16);
        }
        for (int i = 0; i < steps && threadIdx.x == 128; i++) {
            const int s = i % STAGES;
            const uint32_t to = tiles + 2 * s * TILE, barrier = full + 8 * s;
            ignis_mbarrier_wait(empty + 8 * s, (i / STAGES & 1) ^ (fault == PARITY_OF_LOADS ? 0 : 1));
            ignis_ptx_mbarrier_arrive_expect(barrier, 2 * TILE + (fault == TOO_MANY_BYTES  ? 16
                                                                  : fault == TOO_FEW_BYTES ? -TILE
                                                                                           : 0));
            if (fault == WRONG_RANK)
                ignis_ptx_tensor_load<3>(to, &a, barrier, 64 * i, 0, 0);
            ignis_ptx_tensor_load<2>(to + (fault == MISALIGNED_TILE ? 128
                                           : fault == TILE_BEYOND   ? 7 * TILE
                                                                    : 0),
                                     fault == NO_MAP ? (const ignis__tensor_map *)shared : &a, barrier, 64 * i, 0);
            ignis_ptx_tensor_load<2>(to + TILE, &b, barrier, 64 * i, 0);
            if (fault == UNUSED_LOAD && i == steps - 1) {
                ignis_ptx_mbarrier_arrive_expect(spare, 16);
                ignis_ptx_bulk_load(out + TILE, never, 16, spare);
            }
        }
        while (fault == POLLS_IN_VAIN && threadIdx.x == 160 && !ignis_ptx_ld_acquire_u32(never)) {}
        return;
    }

    if (fault == REGISTERS)
        ignis_ptx_setmaxnreg_inc<256>();
    else
        ignis_ptx_setmaxnreg_inc<240>();
    float sums[SIDE / 8][4];
    for (int i = 0; i < SIDE / 8; i++)
        for (int e = 0; e < 4; e++)
            sums[i][e] = 0;
    for (int i = 0; i < steps; i++) {
        const int s = i % STAGES, k_step = fault == WRONG_START ? 32 + 256 : 32;
        const uint32_t at = tiles + 2 * s * TILE;
        uint64_t x = ignis_wgmma_descriptor(at, 0, fault == WRONG_STRIDE ? 512 : 1024);
        uint64_t y = ignis_wgmma_descriptor(at + TILE + (fault == BEYOND ? 160 * 1024 : 0), 0, 1024);
        if (fault == NO_SWIZZLE)
            x &= ~((uint64_t)3 << 62);
        ignis_mbarrier_wait(full + 8 * s, (i / STAGES & 1) ^ (fault == PARITY_OF_PRODUCTS ? 1 : 0));
        if (fault == NO_OPERAND_FENCE)
            ignis_ptx_stmatrix(at + 16 * threadIdx.x, 0, 0, 0, 0);
        ignis_ptx_wgmma_fence();
        for (int k = 0; k < 4; k++)
            ignis_ptx_wgmma<1, 0, 0>(sums, ignis_wgmma_ahead(fault == DIFFERENT_WARPS && warp == 2 ? y : x, k * k_step),
                                     ignis_wgmma_ahead(y, k * 32));
        ignis_ptx_wgmma_commit();
        if (fault == EARLY_RELEASE && lane == 0)
            ignis_ptx_mbarrier_arrive(empty + 8 * s);
        if (fault == NO_PRODUCT_WAIT || (fault == NO_LAST_WAIT && i == steps - 1))
            ignis_ptx_wgmma_wait<1>();
        else
            ignis_ptx_wgmma_wait<0>();
        ignis_wgmma_hold(sums);
        if (fault != EARLY_RELEASE && lane == 0)
            ignis_ptx_mbarrier_arrive(empty + 8 * s);
    }

    store_sums(out, sums, warp, lane);
    if (fault != NO_FENCE)
        ignis_ptx_fence_proxy_async();
    if (fault == NO_PLAIN_FENCE && threadIdx.x == 5)
        *(float *)(shared + 4 * TILE) = 0;
    if (fault != NO_BARRIER)
        ignis_ptx_bar_sync(1, fault == NAMED_BARRIER ? 160 : 128);
    if (threadIdx.x == 0) {
        ignis_ptx_tensor_store<2>(&c, out, 0, fault == STORE_AHEAD ? -64 : 0);
        ignis_ptx_bulk_commit();
        if (fault == REUSED_SOURCE)
            for (int i = 0; i < TILE; i += 4)
                ignis_ptx_st_volatile_shared(out + i, 0);
        if (fault == NO_STORE_WAIT)
            ignis_ptx_bulk_wait_read<1>();
        else
            ignis_ptx_bulk_wait_read<0>();
    }
}

/*  Copies without a product: 1024 floats to shared memory and from there to three places. A tile is out of
    the tensor's range by 8 rows and 16 columns; it is added where it exceeds the other end of the range. */
extern "C" __global__ void copies(const __grid_constant__ ignis__tensor_map map, const float *from, float *to,
                                  float *sum, float *tile)
{
    extern __shared__ char shared[];
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(shared), barrier = at + 3 * TILE;
    if (threadIdx.x == 0) {
        ignis_ptx_mbarrier_init(barrier, 2);
        ignis_ptx_fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        ignis_ptx_mbarrier_arrive_expect(barrier, TILE + 4096);
        ignis_ptx_bulk_load(at, from, 4096, barrier);
        ignis_ptx_tensor_load<3>(at + TILE, &map, barrier, -16, -8, 1);
    } else if (threadIdx.x == 32)
        ignis_ptx_mbarrier_arrive(barrier);
    ignis_mbarrier_wait(barrier, 0);
    for (int i = threadIdx.x; i < TILE / 4; i += blockDim.x)
        tile[i] = ((const float *)(shared + TILE))[i];
    __syncthreads();
    if (threadIdx.x < 2) {
        if (threadIdx.x == 0)
            ignis_ptx_bulk_store(to, at, 4096);
        else
            ignis_ptx_bulk_add_f32(sum, at, 4096);
        ignis_ptx_bulk_commit();
        if (threadIdx.x == 0)
            ignis_ptx_tensor_add<3>(&map, at + TILE, 24, 8, 1);
        ignis_ptx_bulk_commit();
        ignis_ptx_bulk_wait<0>();
    }
}

/*  Copies 64 pixels of 64 channels, from (x, y) of an image on, moved by (right, down), and stores them as
    those of another map from its begin on. */
extern "C" __global__ void pixels(const __grid_constant__ ignis__tensor_map from,
                                  const __grid_constant__ ignis__tensor_map to, int x, int y, int image, int right,
                                  int down)
{
    extern __shared__ char shared[];
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(shared), barrier = at + TILE;
    if (threadIdx.x == 0) {
        ignis_ptx_mbarrier_init(barrier, 1);
        ignis_ptx_fence_mbarrier_init();
        ignis_ptx_mbarrier_arrive_expect(barrier, TILE);
        ignis_ptx_pixels_load(at, &from, barrier, 0, x, y, image, right, down);
        ignis_mbarrier_wait(barrier, 0);
        ignis_ptx_pixels_store(&to, at, 0, 0, 0, 0);
        ignis_ptx_bulk_commit();
        ignis_ptx_bulk_wait<0>();
    }
}

/*  Computes one product of 64 x 64 x 16 from tiles of 64 rows, for all transpositions of its operands, and
    with A from registers. Plain stores fill the tiles. */
template <int ta, int tb, bool in_registers> __device__ void one_product(char *shared, uint32_t at, float *out)
{
    float sums[SIDE / 8][4];
    const uint64_t x = ignis_wgmma_descriptor(at, 0, 1024), y = ignis_wgmma_descriptor(at + TILE, 0, 1024);
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, column = lane % 4 * 2;
    uint32_t words[4];
    for (int i = 0; i < 4; i++) {
        const int r = row + i % 2 * 8, k = column + i / 2 * 8;
        words[i] = *(const uint32_t *)(shared + r * 128 + ((k / 8) ^ r % 8) * 16 + k % 8 * 2);
    }
    ignis_ptx_wgmma_fence();
    if constexpr (in_registers)
        ignis_ptx_wgmma<0, tb>(sums, words, y);
    else
        ignis_ptx_wgmma<0, ta, tb>(sums, x, y);
    ignis_ptx_wgmma_commit();
    ignis_ptx_wgmma_wait<0>();
    ignis_wgmma_hold(sums);
    for (int i = 0; i < SIDE / 8; i++)
        for (int e = 0; e < 4; e++)
            out[(row + e / 2 * 8) * SIDE + 8 * i + column + e % 2] = sums[i][e];
}

extern "C" __global__ void __launch_bounds__(128) products(const ignis_bf16 *a, const ignis_bf16 *b, float *out)
{
    extern __shared__ char shared[];
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    for (int i = threadIdx.x; i < SIDE * SIDE; i += 128) {
        const int place = i / 64 * 128 + ((i % 64 / 8) ^ i / 64 % 8) * 16 + i % 8 * 2;
        *(ignis_bf16 *)(shared + place) = a[i];
        *(ignis_bf16 *)(shared + TILE + place) = b[i];
    }
    ignis_ptx_fence_proxy_async();
    __syncthreads();
    one_product<0, 0, false>(shared, at, out);
    one_product<0, 1, false>(shared, at, out + SIDE * SIDE);
    one_product<1, 0, false>(shared, at, out + 2 * SIDE * SIDE);
    one_product<1, 1, false>(shared, at, out + 3 * SIDE * SIDE);
    one_product<0, 0, true>(shared, at, out + 4 * SIDE * SIDE);
    one_product<0, 1, true>(shared, at, out + 5 * SIDE * SIDE);
}

/*  Sends a pair from each thread of a cluster's blocks to each of these blocks, which adds up what arrives:
    out is [blocks][64]. Some blocks leave before the barrier, and there may be a fault. */
enum { RIGHT, TWICE, NEVER, NO_SUCH_BLOCK, NO_SUCH_BYTE };
constexpr int CLUSTER = 4;

__device__ void give_and_add_up(float *out, int fault)
{
    extern __shared__ float2 slots[]; /* [CLUSTER][64] */
    const int rank = blockIdx.x % CLUSTER;
    if (fault != NEVER)
        ignis_ptx_cluster_arrive();
    if (fault == TWICE)
        ignis_ptx_cluster_arrive();
    ignis_ptx_cluster_wait();
    for (int i = 0; i < CLUSTER; i++) {
        const int to = fault == NO_SUCH_BLOCK ? i + 1 : i, slot = fault == NO_SUCH_BYTE ? rank + 1 : rank;
        ignis_ptx_st_cluster(ignis_ptx_mapa((uint32_t)__cvta_generic_to_shared(&slots[slot * 64 + threadIdx.x]), to),
                             make_float2((float)(blockIdx.x * 64 + threadIdx.x), 1));
    }
    if (blockIdx.x % 3 == 0 && threadIdx.x >= 32)
        return;
    ignis_ptx_cluster_arrive();
    ignis_ptx_cluster_wait();
    for (int i = threadIdx.x; i < 64; i += blockIdx.x % 3 == 0 ? 32 : 64) {
        float2 sum = make_float2(0, 0);
        for (int r = 0; r < CLUSTER; r++) {
            sum.x += slots[r * 64 + i].x;
            sum.y += slots[r * 64 + i].y;
        }
        out[blockIdx.x * 64 + i] = sum.y == CLUSTER ? sum.x : -1;
    }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(64) clusters(float *out, int fault)
{
    give_and_add_up(out, fault);
}
extern "C" __global__ void __launch_bounds__(64) no_clusters(float *out, int fault) { give_and_add_up(out, fault); }

/*  Adds up what a thread has received from all blocks of its cluster. -1 if one block did not send exactly
    once. */
__device__ static void put_sum(float *out, const float2 *slots)
{
    float2 sum = make_float2(0, 0);
    for (int r = 0; r < CLUSTER; r++) {
        sum.x += slots[r * 64 + threadIdx.x].x;
        sum.y += slots[r * 64 + threadIdx.x].y;
    }
    out[blockIdx.x * 64 + threadIdx.x] = sum.y == CLUSTER ? sum.x : -1;
}

/*  As above, by stores that count at a barrier of the receiving block: no block waits for all. A fault: they
    announce more than arrives, or count at a barrier of another block. */
enum { MORE = 1, ELSEWHERE };

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(64) async_stores(float *out, int fault)
{
    extern __shared__ float2 slots[]; /* [CLUSTER][64], and the barrier */
    const int rank = blockIdx.x % CLUSTER;
    const uint32_t barrier = (uint32_t)__cvta_generic_to_shared(&slots[CLUSTER * 64]);
    if (threadIdx.x == 0) {
        ignis_ptx_mbarrier_init(barrier, 1);
        ignis_ptx_fence_mbarrier_init();
        ignis_ptx_mbarrier_arrive_expect(barrier, CLUSTER * 64 * 8 + (fault == MORE ? 8 : 0));
    }
    __syncthreads();
    ignis_ptx_cluster_arrive();
    ignis_ptx_cluster_wait();
    for (int i = 0; i < CLUSTER; i++)
        ignis_ptx_st_async(ignis_ptx_mapa((uint32_t)__cvta_generic_to_shared(&slots[rank * 64 + threadIdx.x]), i),
                           make_float2((float)(blockIdx.x * 64 + threadIdx.x), 1),
                           ignis_ptx_mapa(barrier, fault == ELSEWHERE ? 0 : i));
    ignis_mbarrier_wait(barrier, 0);
    put_sum(out, slots);
}

/*  Loads tiles in each block for all of its cluster, twice, the second time after all have read the first
    ones: out is [blocks][64], the sums of what arrived. A fault: for a block that does not exist, or an
    arrival that is sent nowhere. */
enum { NOT_THERE = 1, NOWHERE };

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(64)
    multicasts(const __grid_constant__ ignis__tensor_map map, float *out, int fault)
{
    extern __shared__ __align__(1024) float tiles[]; /* [CLUSTER][64], and the barriers: full, and empty */
    const int rank = blockIdx.x % CLUSTER;
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(tiles), full = base + CLUSTER * 256, empty = full + 8;
    float sum = 0;
    if (threadIdx.x == 0) {
        ignis_ptx_mbarrier_init(full, 1);
        ignis_ptx_mbarrier_init(empty, CLUSTER);
        ignis_ptx_fence_mbarrier_init();
    }
    __syncthreads();
    ignis_ptx_cluster_arrive_relaxed();
    ignis_ptx_cluster_wait();
    for (int round = 0; round < 2; round++) {
        if (threadIdx.x == 0) {
            ignis_mbarrier_wait(empty, 1 ^ round); /* at first all are empty */
            ignis_ptx_mbarrier_arrive_expect(full, CLUSTER * 256);
            ignis_ptx_tensor_multicast(base + rank * 256, &map, full,
                                       fault == NOT_THERE ? 1 << CLUSTER : (1 << CLUSTER) - 1, 0, blockIdx.x, round);
        }
        ignis_mbarrier_wait(full, round);
        for (int i = 0; i < CLUSTER; i++)
            sum += tiles[i * 64 + threadIdx.x];
        __syncthreads();
        if (threadIdx.x < CLUSTER)
            ignis_ptx_mbarrier_arrive_cluster(fault == NOWHERE ? empty : ignis_ptx_mapa(empty, threadIdx.x));
    }
    out[blockIdx.x * 64 + threadIdx.x] = sum;
    ignis_ptx_cluster_arrive_relaxed(); /* no block sends to one that has ended */
    ignis_ptx_cluster_wait();
}

/*  As above, by copies of all that a block has. A fault: they count at a barrier of another block, or precede
    the fence. */
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(64) bulk_sends(float *out, int fault)
{
    extern __shared__ __align__(16) float2 slots[]; /* [CLUSTER][64], the barrier, and [64] of its own */
    const int rank = blockIdx.x % CLUSTER;
    float2 *const own = slots + CLUSTER * 64 + 2;
    const uint32_t barrier = (uint32_t)__cvta_generic_to_shared(&slots[CLUSTER * 64]);
    own[threadIdx.x] = make_float2((float)(blockIdx.x * 64 + threadIdx.x), 1);
    if (threadIdx.x == 0) {
        ignis_ptx_mbarrier_init(barrier, 1);
        ignis_ptx_fence_mbarrier_init();
        ignis_ptx_mbarrier_arrive_expect(barrier, CLUSTER * 64 * 8);
    }
    if (fault != MORE)
        ignis_ptx_fence_proxy_async();
    ignis_ptx_cluster_arrive();
    ignis_ptx_cluster_wait();
    if (threadIdx.x == 0)
        for (int i = 0; i < CLUSTER; i++)
            ignis_ptx_bulk_send(ignis_ptx_mapa((uint32_t)__cvta_generic_to_shared(&slots[rank * 64]), i),
                                (uint32_t)__cvta_generic_to_shared(own), 64 * 8,
                                ignis_ptx_mapa(barrier, fault == ELSEWHERE ? 0 : i));
    ignis_mbarrier_wait(barrier, 0);
    put_sum(out, slots);
    ignis_ptx_cluster_arrive(); /* what this block sent has been read */
    ignis_ptx_cluster_wait();
}

/*  Has no feature of sm_90a, but is in the same program: stores to dynamic shared memory are not tracked. */
extern "C" __global__ void plain(float *out)
{
    extern __shared__ float values[];
    values[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = values[threadIdx.x ^ 1];
}

#endif
