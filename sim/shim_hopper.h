// SPDX-License-Identifier: MIT
/*  shim_hopper.h - the inline PTX of sm_90a: barriers in shared memory, bulk copies, products of warpgroups

    It only passes calls on to the executor, which does the work: see executor/hopper.cpp.
*/
#ifndef SIM_SHIM_HOPPER_H
#define SIM_SHIM_HOPPER_H

/* A call that lets other threads run. */
#define SIM_WAIT(call)                \
    do {                              \
        uint3 self = sim_this_thread; \
        call;                         \
        sim_this_thread = self;       \
    } while (0)

/* -------------------------------------------------------------------------------------------------- barriers */

SIM_QUIET int sim_mbarrier_wait(void *barrier, unsigned parity, int may_wait, sim_place at)
{
    int over;
    SIM_WAIT(over = sim_rt->mbarrier_wait(barrier, parity, may_wait, at));
    return over;
}
SIM_QUIET void sim_mbarrier_arrive(void *barrier, unsigned bytes, sim_place at)
{
    SIM_WAIT(sim_rt->mbarrier_arrive(barrier, bytes, at));
}
SIM_QUIET void sim_set_registers(unsigned count, int more, sim_place at)
{
    SIM_WAIT(sim_rt->set_registers(count, more, at));
}

SIM_DEVICE void sim_ptx_mbarrier_init_shared_b64(sim_address a, unsigned n, SIM_AT)
{
    sim_rt->mbarrier_init(sim_shared(a), n, SIM_HERE);
}
SIM_DEVICE void sim_ptx_mbarrier_arrive_shared_b64(sim_address a, SIM_AT)
{
    sim_mbarrier_arrive(sim_shared(a), 0, SIM_HERE);
}
SIM_DEVICE void sim_ptx_mbarrier_arrive_expect_tx_shared_b64(sim_address a, unsigned bytes, SIM_AT)
{
    sim_mbarrier_arrive(sim_shared(a), bytes, SIM_HERE);
}
SIM_DEVICE void sim_ptx_mbarrier_try_wait_parity_shared_b64(unsigned &over, sim_address a, unsigned parity, SIM_AT)
{
    over = (unsigned)sim_mbarrier_wait(sim_shared(a), parity, 1, SIM_HERE);
}
SIM_DEVICE void sim_ptx_mbarrier_test_wait_parity_shared_b64(unsigned &over, sim_address a, unsigned parity, SIM_AT)
{
    over = (unsigned)sim_mbarrier_wait(sim_shared(a), parity, 0, SIM_HERE);
}
SIM_DEVICE void sim_ptx_fence_mbarrier_init_release_cluster() { sim_rt->fence_async(); }
SIM_DEVICE void sim_ptx_fence_proxy_async_shared() { sim_rt->fence_async(); }
SIM_DEVICE void sim_ptx_fence_proxy_async() { sim_rt->fence_async(); }
SIM_DEVICE void sim_ptx_setmaxnreg_inc_sync_u32(unsigned n, SIM_AT) { sim_set_registers(n, 1, SIM_HERE); }
SIM_DEVICE void sim_ptx_setmaxnreg_dec_sync_u32(unsigned n, SIM_AT) { sim_set_registers(n, 0, SIM_HERE); }

/* -------------------------------------------------------------------------------------------------- clusters */

/* Addresses of other blocks' shared memory are those of this block's dynamic memory, with the number of the
   block, counted from 1, in the bits above. */
SIM_QUIET void sim_cluster_arrive(sim_place at) { SIM_WAIT(sim_rt->cluster_arrive(at)); }
SIM_QUIET void sim_cluster_wait(sim_place at) { SIM_WAIT(sim_rt->cluster_wait(at)); }
SIM_DEVICE void sim_ptx_bar_cluster_arrive(SIM_AT) { sim_cluster_arrive(SIM_HERE); }
SIM_DEVICE void sim_ptx_bar_cluster_arrive_relaxed(SIM_AT) { sim_cluster_arrive(SIM_HERE); }
SIM_DEVICE void sim_ptx_bar_cluster_wait(SIM_AT) { sim_cluster_wait(SIM_HERE); }
SIM_DEVICE void sim_ptx_mapa_shared__cluster_u32(unsigned &d, unsigned a, unsigned block, SIM_AT)
{
    if (a >> 24 != 0x40 || block >= 0x3f)
        sim_fail(719, "mapa: the simulator maps dynamic shared memory of this block, to up to 63 blocks", SIM_HERE);
    d = a | (block + 1) << 24;
}
SIM_DEVICE char *sim_cluster(sim_address a, unsigned bytes, sim_place at)
{
    unsigned block = (unsigned)a.value >> 24 & 0x3f;
    return block ? sim_rt->cluster_memory(block - 1, (unsigned)a.value & 0xffffff, bytes, at) : sim_shared(a);
}
SIM_DEVICE void sim_ptx_st_shared__cluster_v2_b32(sim_address a, float s0, float s1, SIM_AT)
{
    float *p = (float *)sim_cluster(a, 8, SIM_HERE);
    if (a.value % 8)
        sim_fail(716, "misaligned address in st.shared::cluster.v2", SIM_HERE);
    p[0] = s0;
    p[1] = s1;
}

SIM_DEVICE void sim_ptx_mbarrier_arrive_shared__cluster_b64(sim_address a, SIM_AT)
{
    unsigned block = (unsigned)a.value >> 24 & 0x3f;
    if (!block)
        sim_fail(719, "mbarrier.arrive.shared::cluster: the simulator takes addresses of mapa", SIM_HERE);
    sim_rt->cluster_signal(block - 1, (unsigned)a.value & 0xffffff, SIM_HERE);
}

SIM_DEVICE void sim_ptx_st_async_shared__cluster_mbarrier__complete_tx__bytes_v2_b32(sim_address a, float s0, float s1,
                                                                                     sim_address barrier, SIM_AT)
{
    const float both[2] = {s0, s1};
    unsigned block = (unsigned)a.value >> 24 & 0x3f;
    if (a.value % 8)
        sim_fail(716, "misaligned address in st.async.v2", SIM_HERE);
    if (!block || block != ((unsigned)barrier.value >> 24 & 0x3f))
        sim_fail(719, "st.async: the simulator takes addresses of mapa, both of one block", SIM_HERE);
    sim_rt->cluster_store(block - 1, (unsigned)a.value & 0xffffff, both, 8, (unsigned)barrier.value & 0xffffff,
                          SIM_HERE);
}

/* ---------------------------------------------------------------------------------------------------- copies */

SIM_DEVICE void sim_ptx_cp_async_bulk_shared__cluster_shared_mbarrier__complete_tx__bytes(sim_address to,
                                                                                          sim_address from,
                                                                                          unsigned bytes,
                                                                                          sim_address barrier, SIM_AT)
{
    unsigned block = (unsigned)to.value >> 24 & 0x3f;
    if ((to.value | from.value | bytes) % 16)
        sim_fail(716, "misaligned address, or number of bytes, in a bulk copy to another block's shared memory",
                 SIM_HERE);
    if (!block || block != ((unsigned)barrier.value >> 24 & 0x3f))
        sim_fail(719, "a bulk copy from shared memory: the simulator takes addresses of mapa, both of one block",
                 SIM_HERE);
    sim_rt->bulk_source(sim_shared(from), bytes, SIM_HERE);
    sim_rt->cluster_store(block - 1, (unsigned)to.value & 0xffffff, sim_shared(from), bytes,
                          (unsigned)barrier.value & 0xffffff, SIM_HERE);
}
SIM_DEVICE void sim_ptx_cp_async_bulk_shared__cluster_mbarrier__complete_tx__bytes(sim_address to, sim_address from,
                                                                                   unsigned bytes, sim_address barrier,
                                                                                   SIM_AT)
{
    sim_rt->bulk_load(sim_shared(to), sim_generic(from), bytes, sim_shared(barrier), SIM_HERE);
}
SIM_DEVICE void sim_ptx_cp_async_bulk_prefetch(sim_address from, unsigned bytes, SIM_AT)
{
    if ((from.value | bytes) % 16)
        sim_fail(716, "misaligned address, or number of bytes, in cp.async.bulk.prefetch", SIM_HERE);
    const volatile char *at = (const volatile char *)sim_generic(from);
    if (bytes) /* a place that does not exist is an error, as on a GPU */
        (void)at[0], (void)at[bytes - 1];
}
SIM_DEVICE void sim_ptx_cp_async_bulk_shared_bulk_group(sim_address to, sim_address from, unsigned bytes, SIM_AT)
{
    sim_rt->bulk_store(sim_generic(to), sim_shared(from), bytes, 0, SIM_HERE);
}
SIM_DEVICE void sim_ptx_cp_reduce_async_bulk_shared_bulk_group_add_f32(sim_address to, sim_address from, unsigned bytes,
                                                                       SIM_AT)
{
    sim_rt->bulk_store(sim_generic(to), sim_shared(from), bytes, 1, SIM_HERE);
}
#define SIM_TENSOR_COPIES(rank)                                                                                      \
    SIM_DEVICE void sim_ptx_cp_async_bulk_tensor_##rank##d_shared__cluster_tile_mbarrier__complete_tx__bytes(        \
        sim_address to, sim_address map, sim_coordinates where, sim_address barrier, SIM_AT)                         \
    {                                                                                                                \
        sim_rt->tensor_load(sim_shared(to), sim_generic(map), where, rank, sim_shared(barrier), SIM_HERE);           \
    }                                                                                                                \
    SIM_DEVICE void                                                                                                  \
        sim_ptx_cp_async_bulk_tensor_##rank##d_shared__cluster_tile_mbarrier__complete_tx__bytes_multicast__cluster( \
            sim_address to, sim_address map, sim_coordinates where, sim_address barrier, unsigned short blocks,      \
            SIM_AT)                                                                                                  \
    {                                                                                                                \
        sim_rt->tensor_multicast(sim_shared(to), sim_generic(map), where, rank, sim_shared(barrier), blocks,         \
                                 SIM_HERE);                                                                          \
    }                                                                                                                \
    SIM_DEVICE void sim_ptx_cp_async_bulk_tensor_##rank##d_shared_tile_bulk_group(                                   \
        sim_address map, sim_coordinates where, sim_address from, SIM_AT)                                            \
    {                                                                                                                \
        sim_rt->tensor_store(sim_generic(map), where, rank, sim_shared(from), 0, SIM_HERE);                          \
    }                                                                                                                \
    SIM_DEVICE void sim_ptx_cp_reduce_async_bulk_tensor_##rank##d_shared_add_tile_bulk_group(                        \
        sim_address map, sim_coordinates where, sim_address from, SIM_AT)                                            \
    {                                                                                                                \
        sim_rt->tensor_store(sim_generic(map), where, rank, sim_shared(from), 1, SIM_HERE);                          \
    }
/* Loads in im2col mode of four dimensions, two of which are pixels. */
SIM_DEVICE void sim_ptx_cp_async_bulk_tensor_4d_shared__cluster_im2col_mbarrier__complete_tx__bytes(
    sim_address to, sim_address map, sim_coordinates where, sim_address barrier, unsigned short x, unsigned short y,
    SIM_AT)
{
    where.offset[0] = x, where.offset[1] = y;
    sim_rt->tensor_load(sim_shared(to), sim_generic(map), where, -4, sim_shared(barrier), SIM_HERE);
}
SIM_DEVICE void sim_ptx_cp_async_bulk_tensor_4d_shared_im2col_no_offs_bulk_group(sim_address map, sim_coordinates where,
                                                                                 sim_address from, SIM_AT)
{
    sim_rt->tensor_store(sim_generic(map), where, -4, sim_shared(from), 0, SIM_HERE);
}
/* As above, of five dimensions, three of which are pixels. */
SIM_DEVICE void sim_ptx_cp_async_bulk_tensor_5d_shared__cluster_im2col_mbarrier__complete_tx__bytes(
    sim_address to, sim_address map, sim_coordinates where, sim_address barrier, unsigned short x, unsigned short y,
    unsigned short z, SIM_AT)
{
    where.offset[0] = x, where.offset[1] = y, where.offset[2] = z;
    sim_rt->tensor_load(sim_shared(to), sim_generic(map), where, -5, sim_shared(barrier), SIM_HERE);
}
SIM_DEVICE void sim_ptx_cp_async_bulk_tensor_5d_shared_im2col_no_offs_bulk_group(sim_address map, sim_coordinates where,
                                                                                 sim_address from, SIM_AT)
{
    sim_rt->tensor_store(sim_generic(map), where, -5, sim_shared(from), 0, SIM_HERE);
}
SIM_TENSOR_COPIES(1)
SIM_TENSOR_COPIES(2)
SIM_TENSOR_COPIES(3)
SIM_TENSOR_COPIES(4)
SIM_TENSOR_COPIES(5)
SIM_DEVICE void sim_ptx_cp_async_bulk_commit_group() { sim_rt->bulk_commit(); }
SIM_DEVICE void sim_ptx_cp_async_bulk_wait_group(unsigned pending) { sim_rt->bulk_wait(pending, 0); }
SIM_DEVICE void sim_ptx_cp_async_bulk_wait_group_read(unsigned pending) { sim_rt->bulk_wait(pending, 1); }
SIM_DEVICE void sim_ptx_prefetch_tensormap(sim_address) {}

/* ------------------------------------------------------------------------------------------------- stmatrix */

/* Stores row r of matrix m at the address of lane 8 m + r. That lane stores it itself: so the sanitizers see
   which thread writes. */
struct sim_stmatrix_record {
    unsigned in[4];
    uint4 row;
    int count, transposed;
};

SIM_QUIET unsigned short sim_stmatrix_element(void *const *records, int matrix, int row, int column, int transposed)
{
    int g = transposed ? column : row, t = transposed ? row : column;
    return (unsigned short)(((sim_stmatrix_record *)records[4 * g + t / 2])->in[matrix] >> 16 * (t % 2));
}

SIM_QUIET void sim_stmatrix_combine(void *const *records, unsigned)
{
    for (int lane = 0; lane < 32; lane++) {
        sim_stmatrix_record *r = (sim_stmatrix_record *)records[lane];
        unsigned words[4];
        for (int i = 0; i < 4 && lane / 8 < r->count; i++)
            words[i] = (unsigned)sim_stmatrix_element(records, lane / 8, lane % 8, 2 * i + 1, r->transposed) << 16 |
                       sim_stmatrix_element(records, lane / 8, lane % 8, 2 * i, r->transposed);
        if (lane / 8 < r->count)
            r->row = uint4{words[0], words[1], words[2], words[3]};
    }
}

SIM_QUIET uint4 sim_stmatrix_exchange(int count, int transposed, const unsigned *in, sim_place at)
{
    sim_stmatrix_record r = {{0, 0, 0, 0}, {0, 0, 0, 0}, count, transposed};
    for (int i = 0; i < count; i++)
        r.in[i] = in[i];
    if (sim_rt->live_lanes() != 0xffffffffu)
        sim_fail(719, "stmatrix in a warp that is not complete", at);
    sim_warp(0xffffffffu, sim_stmatrix_combine, &r, 0, "stmatrix", at);
    return r.row;
}

SIM_DEVICE void sim_stmatrix(sim_address to, int count, int transposed, const unsigned *in, sim_place at)
{
    uint4 row = sim_stmatrix_exchange(count, transposed, in, at);
    if (sim_lane() >= 8 * (unsigned)count)
        return;
    if (to.value % 16)
        sim_fail(716, "misaligned address in stmatrix", at);
    *(uint4 *)sim_shared(to) = row;
    sim_wrote_shared(sim_shared(to), 16);
}

#define SIM_STMATRIX(suffix, transposed)                                                                               \
    SIM_DEVICE void sim_ptx_stmatrix_sync_m8n8_x1##suffix##_shared_b16(sim_address to, unsigned a, SIM_AT)             \
    {                                                                                                                  \
        sim_stmatrix(to, 1, transposed, &a, SIM_HERE);                                                                 \
    }                                                                                                                  \
    SIM_DEVICE void sim_ptx_stmatrix_sync_m8n8_x2##suffix##_shared_b16(sim_address to, unsigned a, unsigned b, SIM_AT) \
    {                                                                                                                  \
        unsigned in[] = {a, b};                                                                                        \
        sim_stmatrix(to, 2, transposed, in, SIM_HERE);                                                                 \
    }                                                                                                                  \
    SIM_DEVICE void sim_ptx_stmatrix_sync_m8n8_x4##suffix##_shared_b16(sim_address to, unsigned a, unsigned b,         \
                                                                       unsigned c, unsigned d, SIM_AT)                 \
    {                                                                                                                  \
        unsigned in[] = {a, b, c, d};                                                                                  \
        sim_stmatrix(to, 4, transposed, in, SIM_HERE);                                                                 \
    }
SIM_STMATRIX(, 0)
SIM_STMATRIX(_trans, 1)

/* -------------------------------------------------------------------------------------------------- products */

SIM_QUIET void sim_wgmma_issue(sim_wgmma *product) { SIM_WAIT(sim_rt->wgmma(product)); }

/* The operands are the first and the last of the sums, A (a descriptor, or four words), the descriptor of B,
   whether to keep the sums, the signs of A and B, and for 16 bits whether A (if it is not in registers) and B
   are transposed. */
SIM_DEVICE void sim_wgmma_of(sim_wgmma p, const float *last, int sign_a, int sign_b)
{
    if (last != p.c + p.n / 2 - 1)
        sim_fail(719, "the simulator wants the sums of a product in one array, in their order", sim_place{0, 0});
    if (sign_a != 1 || sign_b != 1)
        sim_fail(719, "the simulator knows no negated operands of wgmma", sim_place{0, 0});
    sim_wgmma_issue(&p);
}
#define SIM_WGMMA(types, kind, transpose_a, transpose_b, ...)                                                    \
    template <int n>                                                                                             \
    SIM_DEVICE void sim_ptx_wgmma_mma_async_sync_##types(float *c, float *last, unsigned long long a,            \
                                                         unsigned long long b, int keep, int sign_a,             \
                                                         int sign_b __VA_ARGS__)                                 \
    {                                                                                                            \
        sim_wgmma_of(sim_wgmma{c, n, kind, keep, transpose_a, transpose_b, 0, a, b, {0, 0, 0, 0}}, last, sign_a, \
                     sign_b);                                                                                    \
    }
#define SIM_WGMMA_REGISTERS(types, kind, transpose_b, ...)                                                             \
    template <int n>                                                                                                   \
    SIM_DEVICE void sim_ptx_wgmma_mma_async_sync_##types(float *c, float *last, unsigned a0, unsigned a1, unsigned a2, \
                                                         unsigned a3, unsigned long long b, int keep, int sign_a,      \
                                                         int sign_b __VA_ARGS__)                                       \
    {                                                                                                                  \
        sim_wgmma_of(sim_wgmma{c, n, kind, keep, 0, transpose_b, 1, 0, b, {a0, a1, a2, a3}}, last, sign_a, sign_b);    \
    }
SIM_WGMMA(f32_bf16_bf16, SIM_WGMMA_BF16, ta, tb, , int ta, int tb)
SIM_WGMMA(f32_f16_f16, SIM_WGMMA_F16, ta, tb, , int ta, int tb)
SIM_WGMMA(f32_tf32_tf32, SIM_WGMMA_TF32, 0, 0)
SIM_WGMMA(f32_e4m3_e4m3, SIM_WGMMA_E4M3, 0, 0)
SIM_WGMMA(f32_e5m2_e5m2, SIM_WGMMA_E5M2, 0, 0)
SIM_WGMMA_REGISTERS(f32_bf16_bf16, SIM_WGMMA_BF16, tb, , int tb)
SIM_WGMMA_REGISTERS(f32_f16_f16, SIM_WGMMA_F16, tb, , int tb)
SIM_WGMMA_REGISTERS(f32_tf32_tf32, SIM_WGMMA_TF32, 0)
SIM_WGMMA_REGISTERS(f32_e4m3_e4m3, SIM_WGMMA_E4M3, 0)
SIM_WGMMA_REGISTERS(f32_e5m2_e5m2, SIM_WGMMA_E5M2, 0)
SIM_DEVICE void sim_ptx_wgmma_fence_sync() {}
SIM_DEVICE void sim_ptx_wgmma_commit_group_sync() { sim_rt->wgmma_commit(); }
SIM_QUIET void sim_wgmma_wait(unsigned pending) { SIM_WAIT(sim_rt->wgmma_wait(pending)); }
SIM_DEVICE void sim_ptx_wgmma_wait_group_sync(unsigned pending) { sim_wgmma_wait(pending); }

/* Loads a word of shared memory that threads of a block wait for. */
SIM_DEVICE void sim_ptx_ld_volatile_shared_b32(unsigned &d, sim_address a, SIM_AT)
{
    d = sim_load_ordered<unsigned>(sim_address_of(sim_shared(a), 0), SIM_HERE);
}
SIM_DEVICE void sim_ptx_st_volatile_shared_b32(sim_address a, unsigned s, SIM_AT)
{
    sim_store_ordered<unsigned>(sim_address_of(sim_shared(a), 0), s, SIM_HERE);
    sim_wrote_shared(sim_shared(a), 4);
}

/* ------------------------------------------------------------------------------------------------ plain stores */

/* A program of sm_90a is compiled with the calls of a kernel's address sanitizer, one before each store: they
   report stores to shared memory to wrote_shared. */
#if defined(SIM_TRACKS_STORES)
#define SIM_UNTRACKED extern "C" __attribute__((no_sanitize("kernel-address")))
SIM_UNTRACKED void __asan_storeN_noabort(void *p, long size)
{
    if ((size_t)p - (size_t)sim_this_block.dynamic_shared < sim_this_block.dynamic_size)
        sim_wrote_shared(p, (unsigned)size);
}
#define SIM_TRACKED(size) \
    SIM_UNTRACKED void __asan_store##size##_noabort(void *p) { __asan_storeN_noabort(p, size); }
SIM_TRACKED(1)
SIM_TRACKED(2)
SIM_TRACKED(4)
SIM_TRACKED(8)
SIM_TRACKED(16)
SIM_UNTRACKED void __asan_loadN_noabort(void *, long) {}
SIM_UNTRACKED void __asan_handle_no_return() {}
#endif

#endif
