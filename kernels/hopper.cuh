// SPDX-License-Identifier: MIT
/*  hopper.cuh - instructions of sm_90a: barriers in shared memory, bulk copies, and products of warpgroups;
    one wrapper each

    Addresses of shared memory are the 32-bit ones that PTX wants, as __cvta_generic_to_shared gives them. A
    program compiles for sm_90a only; its -DIGNIS_T says what it multiplies: f16, bf16, or f32 as tf32.

    Threads and the asynchronous side (bulk copies, wgmma) see shared memory through two proxies. The
    asynchronous side sees writes of threads after each writer's ignis_ptx_fence_proxy_async and a barrier
    after it. The other way, waiting is enough.

    A product of a warpgroup, four warps of 32: C += A B for A 64 x K, B K x N. With warp w of the group, g =
    lane / 4 and t = lane % 4, a thread holds
        C  float c[N / 8][4]: c[j] is row 16 w + g at columns 8 j + 2 t and the next, then row 16 w + g + 8 at
        the same columns A  from registers: four words, as mma.m16n8k16 has them for rows 16 w ...: two c[j]
        next to each other, rounded
           and packed, are the A of the next product
    K is 32 bytes: 16 elements of 16 bits, 8 of tf32. Operands in shared memory are in slabs of rows of 128
    bytes, each slab aligned to 1024 bytes, with chunk c of 16 bytes of row r at c ^ r % 8, as
    ignis_ptx_tensor_load puts them. Their descriptors:
        rows are those of A, or columns of B   ignis_wgmma_descriptor(at, 0, 1024); next K: + 32 bytes, after the slab
        the next one
        rows are K (transposed; 16 bits only)  ignis_wgmma_descriptor(at, bytes between slabs, 1024); next K:
        + 16 rows of 128 bytes
    ignis_wgmma_ahead moves a descriptor on by some bytes. */
#ifndef IGNIS_HOPPER_CUH
#define IGNIS_HOPPER_CUH

/* >>barriers ---------------------------------------------------------------------------------------------------- */

/*  A barrier is 8 bytes of shared memory. It counts arrivals, and bytes of bulk copies. When all expected
    ones have arrived, its phase ends and the next begins. The first phase has parity 0. Call
    ignis_ptx_fence_mbarrier_init and __syncthreads after ignis_ptx_mbarrier_init. */
__device__ inline void ignis_ptx_mbarrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ inline void ignis_ptx_fence_mbarrier_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void ignis_ptx_mbarrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/*  A warp arrives as one, with everything its lanes did before. compute-sanitizer's racecheck does not see
    that one lane arrives for all. For it (bench/gpu.sh) each lane arrives. Barriers for warps expect a
    multiple of IGNIS_WARP_ARRIVALS. */
constexpr int IGNIS_WARP_ARRIVALS = 1;
__device__ inline void ignis_warp_arrive(uint32_t barrier)
{
    __syncwarp();
    if (IGNIS_WARP_ARRIVALS > 1 || threadIdx.x % 32 == 0)
        ignis_ptx_mbarrier_arrive(barrier);
}

/*  Arrives, and announces bytes of bulk copies. A tile of a tensor counts in full, also outside of the
    tensor. */
__device__ inline void ignis_ptx_mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/*  Whether the phase of that parity has ended; waits for it a little. */
__device__ inline bool ignis_ptx_mbarrier_try_wait(uint32_t barrier, uint32_t parity)
{
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done;
}

/*  As ignis_ptx_mbarrier_wait, without waiting. */
__device__ inline bool ignis_ptx_mbarrier_test_wait(uint32_t barrier, uint32_t parity)
{
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done;
}

__device__ inline void ignis_mbarrier_wait(uint32_t barrier, uint32_t parity)
{
    while (!ignis_ptx_mbarrier_try_wait(barrier, parity)) {}
}

/*  The asynchronous side sees what this thread wrote to shared memory after the next barrier. */
__device__ inline void ignis_ptx_fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/*  As ignis_ptx_fence_proxy_async, for global memory too. */
__device__ inline void ignis_ptx_fence_proxy_async_all() { asm volatile("fence.proxy.async;" ::: "memory"); }

/*  Barriers 0 (that of __syncthreads) to 15 of a block, for a number of its threads that is a multiple of 32.
    To arrive is not to wait. */
__device__ inline void ignis_ptx_bar_arrive(uint32_t id, uint32_t threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/*  Sets the registers of each thread of this warpgroup: a multiple of 8, from 24 to 240. All together have no
    more than the launch got. A kernel without __launch_bounds__(threads, 1) keeps its registers. */
template <int registers> __device__ inline void ignis_ptx_setmaxnreg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers> __device__ inline void ignis_ptx_setmaxnreg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

/*  Words that threads of several blocks write and read to order their work; or threads of one block, in a
    loop that waits. */
__device__ inline uint32_t ignis_ptx_ld_acquire_u32(const uint32_t *from)
{
    uint32_t x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
}

__device__ inline void ignis_ptx_st_release_u32(uint32_t *to, uint32_t x)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

/*  Words of 8 bytes that blocks exchange, each complete by itself. Two neighbours are loaded at once, but may
    be of different times. */
__device__ inline ulonglong2 ignis_ptx_ld_relaxed_gpu_v2(const unsigned long long *from)
{
    ulonglong2 x;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(x.x), "=l"(x.y) : "l"(from) : "memory");
    return x;
}

__device__ inline void ignis_ptx_st_relaxed_gpu_u64(unsigned long long *to, unsigned long long x)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(x) : "memory");
}

__device__ inline uint32_t ignis_ptx_ld_volatile_shared(uint32_t from)
{
    uint32_t x;
    asm volatile("ld.volatile.shared::cta.u32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
    return x;
}

__device__ inline void ignis_ptx_st_volatile_shared(uint32_t to, uint32_t x)
{
    asm volatile("st.volatile.shared::cta.u32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}

/*  A cluster is blocks that run at the same time and see each other's shared memory. Its barrier is for all
    of their threads. The others see a thread's earlier writes after the wait. */
__device__ inline void ignis_ptx_cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }

__device__ inline void ignis_ptx_cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

/*  Arrives, without ordering earlier writes. */
__device__ inline void ignis_ptx_cluster_arrive_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/*  Returns the address of this block's shared memory in a block of the cluster; and stores there. That block
    has begun, and has not ended. */
__device__ inline uint32_t ignis_ptx_mapa(uint32_t at, uint32_t block)
{
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
    return there;
}

__device__ inline void ignis_ptx_st_cluster(uint32_t to, float2 x)
{
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x.x), "f"(x.y) : "memory");
}

/*  Arrives at an mbarrier there, without ordering earlier writes: with .release.cluster it would first wait
    for all memory that is on its way. */
__device__ inline void ignis_ptx_mbarrier_arrive_cluster(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/*  As above, with its bytes announced and counted like those of bulk copies at a barrier of that block: its
    waiters see them. Earlier work need not be complete, as it must be for an arrival that others see. */
__device__ inline void ignis_ptx_st_async(uint32_t to, float2 x, uint32_t barrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
                 "f"(x.x), "f"(x.y), "r"(barrier)
                 : "memory");
}

/*  Adds four floats to memory, aligned to 16 bytes, each by itself. */
__device__ inline void ignis_ptx_red_add_f32(float4 *to, float4 x)
{
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y), "f"(x.z),
                 "f"(x.w)
                 : "memory");
}

/* >>copies ------------------------------------------------------------------------------------------------------ */

#include "shared/tensor_map.h"

__device__ inline void ignis_ptx_prefetch_tensormap(const ignis__tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/*  Copies a tile of a tensor between shared memory (aligned for its swizzle: 1024 bytes for 128) and global
    memory. Its first element has these coordinates, the fastest first. Outside of the tensor loads give
    zeros, and stores and additions do nothing. A load is announced with ignis_ptx_mbarrier_arrive_expect.
    Stores and additions belong to the group that the thread's next ignis_ptx_bulk_commit closes. */
template <int rank>
__device__ inline void ignis_ptx_tensor_load(uint32_t to, const ignis__tensor_map *map, uint32_t barrier, int x, int y,
                                             int z = 0, int u = 0, int v = 0)
{
    static_assert(rank >= 2 && rank <= 5, "tensors have 2 to 5 dimensions here");
    if constexpr (rank == 2)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
                     "%4}], [%2];" ::"r"(to),
                     "l"(map), "r"(barrier), "r"(x), "r"(y)
                     : "memory");
    else if constexpr (rank == 3)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
                     "%4, %5}], [%2];" ::"r"(to),
                     "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                     : "memory");
    else if constexpr (rank == 4)
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
                     "%4, %5, %6}], [%2];" ::"r"(to),
                     "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(u)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
                     "%4, %5, %6, %7}], [%2];" ::"r"(to),
                     "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v)
                     : "memory");
}

template <int rank>
__device__ inline void ignis_ptx_tensor_store(const ignis__tensor_map *map, uint32_t from, int x, int y, int z = 0,
                                              int u = 0, int v = 0)
{
    static_assert(rank >= 2 && rank <= 5, "tensors have 2 to 5 dimensions here");
    if constexpr (rank == 2)
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                     "r"(from), "r"(x), "r"(y)
                     : "memory");
    else if constexpr (rank == 3)
        asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                     "r"(from), "r"(x), "r"(y), "r"(z)
                     : "memory");
    else if constexpr (rank == 4)
        asm volatile(
            "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
            "r"(from), "r"(x), "r"(y), "r"(z), "r"(u)
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
            "r"(from), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v)
            : "memory");
}

/*  As above, for pixels: rows of a tile are consecutive pixels of a box in each image of a tensor [image, y,
    x, channel], as cuTensorMapEncodeIm2col describes it, from a pixel of the box on. Loads read at (right,
    down) from there, 0 to 255. Volumes [image, z, y, x, channel] are read at (right, down, deep), 0 to 31. */
__device__ inline void ignis_ptx_pixels_load(uint32_t to, const ignis__tensor_map *map, uint32_t barrier, int channel,
                                             int x, int y, int image, int right, int down)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
                 "%4, %5, %6}], [%2], {%7, %8};" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(image), "h"((unsigned short)right),
                 "h"((unsigned short)down)
                 : "memory");
}

__device__ inline void ignis_ptx_pixels_store(const ignis__tensor_map *map, uint32_t from, int channel, int x, int y,
                                              int image)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
        "r"(from), "r"(channel), "r"(x), "r"(y), "r"(image)
        : "memory");
}

__device__ inline void ignis_ptx_voxels_load(uint32_t to, const ignis__tensor_map *map, uint32_t barrier, int channel,
                                             int x, int y, int z, int image, int right, int down, int deep)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
                 "%4, %5, %6, %7}], [%2], {%8, %9, %10};" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(z), "r"(image), "h"((unsigned short)right),
                 "h"((unsigned short)down), "h"((unsigned short)deep)
                 : "memory");
}

__device__ inline void ignis_ptx_voxels_store(const ignis__tensor_map *map, uint32_t from, int channel, int x, int y,
                                              int z, int image)
{
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.im2col_no_offs.bulk_group [%0, {%2, %3, %4, %5, %6}], "
                 "[%1];" ::"l"(map),
                 "r"(from), "r"(channel), "r"(x), "r"(y), "r"(z), "r"(image)
                 : "memory");
}

template <int rank>
__device__ inline void ignis_ptx_tensor_add(const ignis__tensor_map *map, uint32_t from, int x, int y, int z = 0,
                                            int u = 0, int v = 0)
{
    static_assert(rank >= 2 && rank <= 5, "tensors have 2 to 5 dimensions here");
    if constexpr (rank == 2)
        asm volatile(
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
            "r"(from), "r"(x), "r"(y)
            : "memory");
    else if constexpr (rank == 3)
        asm volatile(
            "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
                map),
            "r"(from), "r"(x), "r"(y), "r"(z)
            : "memory");
    else if constexpr (rank == 4)
        asm volatile(
            "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
                map),
            "r"(from), "r"(x), "r"(y), "r"(z), "r"(u)
            : "memory");
    else
        asm volatile(
            "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::
                "l"(map),
            "r"(from), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v)
            : "memory");
}

/*  Copies contiguous bytes: addresses and count are multiples of 16. */
__device__ inline void ignis_ptx_bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/*  As above, to the L2 cache; nothing waits for it. */
__device__ inline void ignis_ptx_bulk_prefetch(const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/*  Loads a tile of three dimensions for the blocks of a cluster whose bits are set: to the same address in
    each, and counted at the barrier there. */
__device__ inline void ignis_ptx_tensor_multicast(uint32_t to, const ignis__tensor_map *map, uint32_t barrier,
                                                  uint16_t blocks, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(blocks)
                 : "memory");
}

/*  From shared memory to that of another block of the cluster, and to a barrier there. */
__device__ inline void ignis_ptx_bulk_send(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "r"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

__device__ inline void ignis_ptx_bulk_store(void *to, uint32_t from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
                 : "memory");
}

__device__ inline void ignis_ptx_bulk_add_f32(float *to, uint32_t from, uint32_t bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

__device__ inline void ignis_ptx_bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/*  Waits until all but the thread's `pending` latest groups are done; the first form, until they have only
    read shared memory. */
template <int pending> __device__ inline void ignis_ptx_bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

template <int pending> __device__ inline void ignis_ptx_bulk_wait()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

/*  The reverse of ignis_ptx_ldmatrix of mma.cuh: lane l gives the address of row l % 8 of matrix l / 8. */
__device__ inline void ignis_ptx_stmatrix(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b),
                 "r"(c), "r"(d)
                 : "memory");
}

__device__ inline void ignis_ptx_stmatrix_transposed(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a),
                 "r"(b), "r"(c), "r"(d)
                 : "memory");
}

/* >>products ---------------------------------------------------------------------------------------------------- */

/*  Before a product whose C, or A in registers, other instructions touched. */
__device__ inline void ignis_ptx_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void ignis_ptx_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/*  Waits until all but the `pending` latest groups are done. Before that nothing touches C, nor A in
    registers, nor writes the operands in shared memory. Call ignis_wgmma_hold after it: it keeps the compiler
    from moving uses of them forward. */
template <int pending> __device__ inline void ignis_ptx_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

template <int n> __device__ inline void ignis_wgmma_hold(float (&c)[n][4])
{
#pragma unroll
    for (int i = 0; i < n; i++)
        asm volatile("" : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])::"memory");
}

/*  Forgets the values of C. Else the compiler copies them between products that do not add to them, round a loop. */
template <int n> __device__ inline void ignis_wgmma_forget(float (&c)[n][4])
{
#pragma unroll
    for (int i = 0; i < n; i++)
        asm volatile("" : "=f"(c[i][0]), "=f"(c[i][1]), "=f"(c[i][2]), "=f"(c[i][3]));
}

template <int n> __device__ inline void ignis_wgmma_hold(uint32_t (&a)[n][4])
{
#pragma unroll
    for (int i = 0; i < n; i++)
        asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

/*  An operand in shared memory; leading and stride are bytes, multiples of 16. See above. */
__device__ inline uint64_t ignis_wgmma_descriptor(uint32_t at, uint32_t leading, uint32_t stride)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           (uint64_t)1 << 62;
}

__device__ inline uint64_t ignis_wgmma_ahead(uint64_t descriptor, uint32_t bytes) { return descriptor + (bytes >> 4); }

/*  C += A B, or with keep = 0 C = A B, for N of 8, and of 16, 32 ... 256:
        ignis_ptx_wgmma<keep, transpose_a, transpose_b>(c, a, b)     both in shared memory
        ignis_ptx_wgmma<keep, transpose_b>(c, words, b)              A in registers
    Transposed means that the rows in memory are K. */
#ifndef IGNIS_OPERANDS /* their type, where that is not the one of results */
#define IGNIS_OPERANDS IGNIS_T
#endif
#if IGNIS_OPERANDS == 1
#define IGNIS_WGMMA_TYPE "k16.f32.f16.f16 {"
#elif IGNIS_OPERANDS == 2
#define IGNIS_WGMMA_TYPE "k16.f32.bf16.bf16 {"
#elif IGNIS_OPERANDS == 8
#define IGNIS_WGMMA_TYPE "k32.f32.e4m3.e4m3 {"
#elif IGNIS_OPERANDS == 9
#define IGNIS_WGMMA_TYPE "k32.f32.e5m2.e5m2 {"
#else
#define IGNIS_WGMMA_TYPE "k8.f32.tf32.tf32 {"
#endif
#define IGNIS_WGMMA_SUM(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define IGNIS_WGMMA_TEXT_8 "%0, %1, %2, %3"
#define IGNIS_WGMMA_SUMS_8 IGNIS_WGMMA_SUM(0)
#define IGNIS_WGMMA_TEXT_16 IGNIS_WGMMA_TEXT_8 ", %4, %5, %6, %7"
#define IGNIS_WGMMA_SUMS_16 IGNIS_WGMMA_SUMS_8, IGNIS_WGMMA_SUM(1)
#define IGNIS_WGMMA_TEXT_32 IGNIS_WGMMA_TEXT_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define IGNIS_WGMMA_SUMS_32 IGNIS_WGMMA_SUMS_16, IGNIS_WGMMA_SUM(2), IGNIS_WGMMA_SUM(3)
#define IGNIS_WGMMA_TEXT_48 IGNIS_WGMMA_TEXT_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define IGNIS_WGMMA_SUMS_48 IGNIS_WGMMA_SUMS_32, IGNIS_WGMMA_SUM(4), IGNIS_WGMMA_SUM(5)
#define IGNIS_WGMMA_TEXT_64 IGNIS_WGMMA_TEXT_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define IGNIS_WGMMA_SUMS_64 IGNIS_WGMMA_SUMS_48, IGNIS_WGMMA_SUM(6), IGNIS_WGMMA_SUM(7)
#define IGNIS_WGMMA_TEXT_80 IGNIS_WGMMA_TEXT_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define IGNIS_WGMMA_SUMS_80 IGNIS_WGMMA_SUMS_64, IGNIS_WGMMA_SUM(8), IGNIS_WGMMA_SUM(9)
#define IGNIS_WGMMA_TEXT_96 IGNIS_WGMMA_TEXT_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define IGNIS_WGMMA_SUMS_96 IGNIS_WGMMA_SUMS_80, IGNIS_WGMMA_SUM(10), IGNIS_WGMMA_SUM(11)
#define IGNIS_WGMMA_TEXT_112 IGNIS_WGMMA_TEXT_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define IGNIS_WGMMA_SUMS_112 IGNIS_WGMMA_SUMS_96, IGNIS_WGMMA_SUM(12), IGNIS_WGMMA_SUM(13)
#define IGNIS_WGMMA_TEXT_128 IGNIS_WGMMA_TEXT_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define IGNIS_WGMMA_SUMS_128 IGNIS_WGMMA_SUMS_112, IGNIS_WGMMA_SUM(14), IGNIS_WGMMA_SUM(15)
#define IGNIS_WGMMA_TEXT_144 IGNIS_WGMMA_TEXT_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define IGNIS_WGMMA_SUMS_144 IGNIS_WGMMA_SUMS_128, IGNIS_WGMMA_SUM(16), IGNIS_WGMMA_SUM(17)
#define IGNIS_WGMMA_TEXT_160 IGNIS_WGMMA_TEXT_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define IGNIS_WGMMA_SUMS_160 IGNIS_WGMMA_SUMS_144, IGNIS_WGMMA_SUM(18), IGNIS_WGMMA_SUM(19)
#define IGNIS_WGMMA_TEXT_176 IGNIS_WGMMA_TEXT_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define IGNIS_WGMMA_SUMS_176 IGNIS_WGMMA_SUMS_160, IGNIS_WGMMA_SUM(20), IGNIS_WGMMA_SUM(21)
#define IGNIS_WGMMA_TEXT_192 IGNIS_WGMMA_TEXT_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define IGNIS_WGMMA_SUMS_192 IGNIS_WGMMA_SUMS_176, IGNIS_WGMMA_SUM(22), IGNIS_WGMMA_SUM(23)
#define IGNIS_WGMMA_TEXT_208 IGNIS_WGMMA_TEXT_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define IGNIS_WGMMA_SUMS_208 IGNIS_WGMMA_SUMS_192, IGNIS_WGMMA_SUM(24), IGNIS_WGMMA_SUM(25)
#define IGNIS_WGMMA_TEXT_224 IGNIS_WGMMA_TEXT_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define IGNIS_WGMMA_SUMS_224 IGNIS_WGMMA_SUMS_208, IGNIS_WGMMA_SUM(26), IGNIS_WGMMA_SUM(27)
#define IGNIS_WGMMA_TEXT_240 IGNIS_WGMMA_TEXT_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define IGNIS_WGMMA_SUMS_240 IGNIS_WGMMA_SUMS_224, IGNIS_WGMMA_SUM(28), IGNIS_WGMMA_SUM(29)
#define IGNIS_WGMMA_TEXT_256 IGNIS_WGMMA_TEXT_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define IGNIS_WGMMA_SUMS_256 IGNIS_WGMMA_SUMS_240, IGNIS_WGMMA_SUM(30), IGNIS_WGMMA_SUM(31)

#if IGNIS_OPERANDS == 1 || IGNIS_OPERANDS == 2
#define IGNIS_WGMMA(N, n0, n1, n2, n3, n4, n5, n6)                                                       \
    template <int keep, int transpose_a, int transpose_b>                                                \
    __device__ inline void ignis_ptx_wgmma(float(&c)[N / 8][4], uint64_t a, uint64_t b)                  \
    {                                                                                                    \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N IGNIS_WGMMA_TYPE IGNIS_WGMMA_TEXT_##N        \
                     "}, %" #n0 ", %" #n1 ", %" #n2 ", 1, 1, %" #n3 ", %" #n4 ";"                        \
                     : IGNIS_WGMMA_SUMS_##N                                                              \
                     : "l"(a), "l"(b), "n"(keep), "n"(transpose_a), "n"(transpose_b));                   \
    }                                                                                                    \
    template <int keep, int transpose_b>                                                                 \
    __device__ inline void ignis_ptx_wgmma(float(&c)[N / 8][4], const uint32_t(&a)[4], uint64_t b)       \
    {                                                                                                    \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N IGNIS_WGMMA_TYPE IGNIS_WGMMA_TEXT_##N        \
                     "}, {%" #n0 ", %" #n1 ", %" #n2 ", %" #n3 "}, %" #n4 ", %" #n5 ", 1, 1, %" #n6 ";"  \
                     : IGNIS_WGMMA_SUMS_##N                                                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(keep), "n"(transpose_b)); \
    }
#else /* never transposed */
#define IGNIS_WGMMA(N, n0, n1, n2, n3, n4, n5, n6)                                                                     \
    template <int keep> __device__ inline void ignis_ptx_wgmma(float(&c)[N / 8][4], uint64_t a, uint64_t b)            \
    {                                                                                                                  \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N IGNIS_WGMMA_TYPE IGNIS_WGMMA_TEXT_##N "}, %" #n0 ", %" #n1 \
                                                                                                  ", %" #n2 ", 1, 1;"  \
                     : IGNIS_WGMMA_SUMS_##N                                                                            \
                     : "l"(a), "l"(b), "n"(keep));                                                                     \
    }                                                                                                                  \
    template <int keep> __device__ inline void ignis_ptx_wgmma(float(&c)[N / 8][4], const uint32_t(&a)[4], uint64_t b) \
    {                                                                                                                  \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N IGNIS_WGMMA_TYPE IGNIS_WGMMA_TEXT_##N                      \
                     "}, {%" #n0 ", %" #n1 ", %" #n2 ", %" #n3 "}, %" #n4 ", %" #n5 ", 1, 1;"                          \
                     : IGNIS_WGMMA_SUMS_##N                                                                            \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(keep));                                 \
    }
#endif
IGNIS_WGMMA(8, 4, 5, 6, 7, 8, 9, 10)
IGNIS_WGMMA(16, 8, 9, 10, 11, 12, 13, 14)
IGNIS_WGMMA(32, 16, 17, 18, 19, 20, 21, 22)
IGNIS_WGMMA(48, 24, 25, 26, 27, 28, 29, 30)
IGNIS_WGMMA(64, 32, 33, 34, 35, 36, 37, 38)
IGNIS_WGMMA(80, 40, 41, 42, 43, 44, 45, 46)
IGNIS_WGMMA(96, 48, 49, 50, 51, 52, 53, 54)
IGNIS_WGMMA(112, 56, 57, 58, 59, 60, 61, 62)
IGNIS_WGMMA(128, 64, 65, 66, 67, 68, 69, 70)
IGNIS_WGMMA(144, 72, 73, 74, 75, 76, 77, 78)
IGNIS_WGMMA(160, 80, 81, 82, 83, 84, 85, 86)
IGNIS_WGMMA(176, 88, 89, 90, 91, 92, 93, 94)
IGNIS_WGMMA(192, 96, 97, 98, 99, 100, 101, 102)
IGNIS_WGMMA(208, 104, 105, 106, 107, 108, 109, 110)
IGNIS_WGMMA(224, 112, 113, 114, 115, 116, 117, 118)
IGNIS_WGMMA(240, 120, 121, 122, 123, 124, 125, 126)
IGNIS_WGMMA(256, 128, 129, 130, 131, 132, 133, 134)
#undef IGNIS_WGMMA

#endif /* IGNIS_HOPPER_CUH */
