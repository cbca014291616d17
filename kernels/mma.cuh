// SPDX-License-Identifier: MIT
/*  mma.cuh - instructions of tensor cores and of asynchronous copies, for kernels that need them: one wrapper
    each

    sm_80 and up. Tiles of 16-bit elements are in shared memory, addressed by the 32-bit addresses that PTX
    wants.

    A warp's mma.m16n8k16 computes C += A B for A 16 x 16, B 16 x 8. With g = lane / 4 and t = lane % 4, a
    lane holds
        A  four words: rows g and g + 8 at columns 2t, 2t + 1; then the same rows at columns 2t + 8, 2t + 9
        B  two words:  column g at rows 2t, 2t + 1; then at rows 2t + 8, 2t + 9
        C  four floats: row g at columns 2t, 2t + 1; then row g + 8 at the same columns
    So two C next to each other, rounded and packed, are the A of the next product. */
#ifndef IGNIS_MMA_CUH
#define IGNIS_MMA_CUH

/*  Returns (word & mask) | bits as one instruction; the compiler would make two. */
__device__ inline uint32_t and_or(uint32_t word, uint32_t mask, uint32_t bits)
{
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
    return result;
}

/*  Returns the upper 32 bits of a product; of one and a sum, the lower ones. */
__device__ inline uint32_t ignis_ptx_mul_hi(uint32_t a, uint32_t b)
{
    uint32_t upper;
    asm("mul.hi.u32 %0, %1, %2;" : "=r"(upper) : "r"(a), "r"(b));
    return upper;
}
__device__ inline uint32_t ignis_ptx_mad(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t lower;
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(lower) : "r"(a), "r"(b), "r"(c));
    return lower;
}

/*  Returns bytes of `low` and `high`: one for each of the four low nibbles of `which`, whose number is the nibble's
    three low bits. If the nibble's bit 3 is set, all bits of the byte are its highest bit. */
__device__ inline uint32_t ignis_ptx_prmt(uint32_t low, uint32_t high, uint32_t which)
{
    uint32_t four;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(four) : "r"(low), "r"(high), "r"(which));
    return four;
}

__device__ inline void ignis_ptx_mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void ignis_ptx_mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/*  As above for words of tf32, half as many along k: mma.m16n8k8, in which A has columns t and t + 4 and B
    such rows. */
__device__ inline void ignis_ptx_mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/*  As above for signed bytes, twice as many along k, with sums in i32: mma.m16n8k32, in which A has columns
    4t to 4t + 3, then 16 more, and B such rows. */
__device__ inline void ignis_ptx_mma_s8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/*  As above for floats of 8 bits, with sums in float, on sm_89 and up. */
__device__ inline void ignis_ptx_mma_e4m3(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void ignis_ptx_mma_e5m2(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t ignis_ptx_cvt_rna_tf32_f32(float x)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

/*  Loads four 8 x 8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8, and
    gets of each matrix the word at row lane / 4, columns 2 (lane % 4) and the next; transposed: of the
    transposed matrix. */
__device__ inline void ignis_ptx_ldmatrix(uint32_t (&words)[4], uint32_t from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from));
}

__device__ inline void ignis_ptx_ldmatrix_transposed(uint32_t (&words)[4], uint32_t from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from));
}

/*  Starts to copy 16 bytes; those after `valid`, if given, become zero. Committed copies form a group, and
    groups finish in order. Other threads see what a wait has finished after a barrier. */
__device__ inline void ignis_ptx_cp_async(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ inline void ignis_ptx_cp_async(uint32_t to, const void *from, int valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
}

/*  As ignis_ptx_cp_async, for 8 and 4 bytes. */
__device__ inline void ignis_ptx_cp_async_8(uint32_t to, const void *from, int valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
}

__device__ inline void ignis_ptx_cp_async_4(uint32_t to, const void *from, int valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
}

__device__ inline void ignis_ptx_cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int pending> __device__ inline void ignis_ptx_cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/*  Computes C += A B for a type. */
template <typename T> __device__ inline void ignis_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    static_assert(ignis_is_half<T>, "tensor cores take f16 and bf16 here");
    if constexpr (ignis_is_same<T, ignis_f16>)
        ignis_ptx_mma_f16(c, a, b0, b1);
    else
        ignis_ptx_mma_bf16(c, a, b0, b1);
}

#if __CUDA_ARCH__ >= 800
__device__ inline uint32_t ignis_ptx_fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t result;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}

__device__ inline uint32_t ignis_ptx_fma_f16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t result;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}

/*  Returns a b + c of two numbers in a word. */
template <typename T> __device__ inline uint32_t fma_two(uint32_t a, uint32_t b, uint32_t c)
{
    if constexpr (ignis_is_same<T, ignis_bf16>)
        return ignis_ptx_fma_bf16x2(a, b, c);
    else
        return ignis_ptx_fma_f16x2(a, b, c);
}
#endif

#endif /* IGNIS_MMA_CUH */
