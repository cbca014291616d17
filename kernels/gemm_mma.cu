// SPDX-License-Identifier: MIT
/*  gemm_mma.cu - matrix products on tensor cores by mma.sync, for sm_80 and up

    One program per type and pair of transpositions: compiled with -DIGNIS_T=<IGNIS_F16, IGNIS_BF16 or IGNIS_F32> -DIGNIS_TRANSPOSE_A=<0 or 1>
    -DIGNIS_TRANSPOSE_B=<0 or 1>, and with -DIGNIS_PATCHES for convolutions. f32 is rounded to tf32, and its rows are not summed. Sums in float, in
    the order of k. Grid: tiles of a matrix * batch * splits.

    A block walks over k in steps of 64 bytes; 3 steps are under way while it multiplies one. In shared memory a step of an operand is a tile
    of lines of chunks of 16 bytes, as they lie in memory: a line is 64 bytes of a row (by k), or all rows' elements at one k. Chunks change
    places within a line, so that the 8 that ldmatrix reads at a time are in different banks.
*/
#include "ignis.cuh"
#include "mma.cuh"

typedef ignis_type<IGNIS_T> T;
#include "gemm.cuh"

constexpr int STAGES = 4, E = 16 / sizeof(T), DEPTH = 64 / sizeof(T); /* elements of a chunk, and of k in a step */
constexpr bool A_BY_K = !IGNIS_TRANSPOSE_A, B_BY_K = IGNIS_TRANSPOSE_B;

__device__ inline char *shared()
{
    extern __shared__ uint4 memory[];
    return (char *)memory;
}
__device__ inline uint32_t shared_address() { return (uint32_t)__cvta_generic_to_shared(shared()); }

/*  A step of op(x), PATCHES_A or PATCHES_B of the operands, with so many rows. */
template <int operand, int rows, bool by_k, int threads> struct Tile {
    static constexpr int bytes = rows * 64, across = by_k ? 4 : rows / E, line_bytes = 16 * across;

    static __device__ int chunk_at(int line, int chunk)
    {
        const int swizzle = by_k ? line / 2 % 4 : sizeof(T) == 2 ? line % 8 : line % 4 * 2;
        return line * line_bytes + (chunk ^ swizzle) * 16;
    }

    /*  Starts to copy rows first_row ..., k ... of a matrix with so many elements from line to line; what is beyond the ends is zero. */
    static __device__ void copy(const Product &p, int to, const T *matrix, long long length, long long first_row, long long end_row,
                                long long first_k, long long end_k, int packed)
    {
        const uint32_t base = shared_address();
#pragma unroll
        for (int i = 0; i < bytes / 16 / threads; i++) {
            const int index = i * threads + threadIdx.x, line = index / across, chunk = index % across;
            const long long row = first_row + (by_k ? line : chunk * E), k = first_k + (by_k ? chunk * E : line);
            const long long left = by_k ? end_k - k : end_row - row;
            const bool exists = by_k ? row < end_row : k < end_k;
            const int valid = exists ? (int)max(0LL, min((long long)E, left)) : 0, at = to + chunk_at(line, chunk);
            if (IGNIS_PATCHES && packed == HALF_PACKED) { /* a chunk is of two taps */
#pragma unroll
                for (int half = 0; half < E; half += E / 2) {
                    const int some = max(0, min(E / 2, valid - half));
                    const T *from = some ? p.find<operand>(matrix, by_k, length, by_k ? row : row + half, by_k ? k + half : k) : nullptr;
                    ignis_ptx_cp_async_8(base + at + half * (int)sizeof(T), from ? from : matrix, from ? some * (int)sizeof(T) : 0);
                }
                continue;
            }
            const T *from = valid ? p.find<operand>(matrix, by_k, length, row, k) : nullptr;
            if (packed) { /* so a chunk of a patch is of one tap */
                ignis_ptx_cp_async(base + at, from ? from : matrix, from ? valid * (int)sizeof(T) : 0);
            } else {
                T *element = (T *)(shared() + at);
#pragma unroll
                for (int e = 0; e < E; e++) {
                    if (IGNIS_PATCHES)
                        from = e < valid ? p.find<operand>(matrix, by_k, length, by_k ? row : row + e, by_k ? k + e : k) : nullptr;
                    element[e] = e < valid && from ? from[IGNIS_PATCHES ? 0 : e] : T(0);
                }
            }
        }
    }

    /*  Of the 16 rows from `row` on, chunks 2k and 2k + 1 of k: the words of an A. */
    static __device__ void load_a(uint32_t (&words)[4], int from, int row, int k)
    {
        const uint32_t base = shared_address() + from;
        const int lane = threadIdx.x % 32;
        if constexpr (by_k) {
            ignis_ptx_ldmatrix(words, base + chunk_at(row + lane % 16, 2 * k + lane / 16));
        } else if constexpr (sizeof(T) == 2) {
            ignis_ptx_ldmatrix_transposed(words, base + chunk_at(16 * k + lane % 8 + lane / 16 * 8, row / 8 + lane / 8 % 2));
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                words[i] = word_at(from, 8 * k + lane % 4 + i / 2 * 4, row + lane / 4 + i % 2 * 8);
        }
        round(words);
    }

    /*  The same as the words of two B: of rows 0 to 7 first, then of 8 to 15. */
    static __device__ void load_b(uint32_t (&words)[4], int from, int row, int k)
    {
        const uint32_t base = shared_address() + from;
        const int lane = threadIdx.x % 32;
        if constexpr (by_k) {
            ignis_ptx_ldmatrix(words, base + chunk_at(row + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
        } else if constexpr (sizeof(T) == 2) {
            ignis_ptx_ldmatrix_transposed(words, base + chunk_at(16 * k + lane % 16, row / 8 + lane / 16));
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                words[i] = word_at(from, 8 * k + lane % 4 + i % 2 * 4, row + lane / 4 + i / 2 * 8);
        }
        round(words);
    }

  private:
    static __device__ uint32_t word_at(int from, int k, int row)
    {
        return *(const uint32_t *)(shared() + from + chunk_at(k, row / 4) + row % 4 * 4);
    }
    static __device__ void round(uint32_t (&words)[4])
    {
        if constexpr (sizeof(T) == 4)
#pragma unroll
            for (int i = 0; i < 4; i++)
                words[i] = ignis_ptx_cvt_rna_tf32_f32(__uint_as_float(words[i]));
    }
};

__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if constexpr (sizeof(T) == 4)
        ignis_ptx_mma_tf32(c, a, b0, b1);
    else
        ignis_mma<T>(c, a, b0, b1);
}

/*  DOWN x ACROSS warps have WM x WN of the block's tile each. */
template <int DOWN, int ACROSS, int WM, int WN> __device__ inline void multiply(const Product &p)
{
    ignis_grid_dependency();
    constexpr int threads = 32 * DOWN * ACROSS, BM = DOWN * WM, BN = ACROSS * WN, strip = 32, width = BN + 4;
    typedef Tile<PATCHES_A, BM, A_BY_K, threads> A;
    typedef Tile<PATCHES_B, BN, B_BY_K, threads> B;
    const Place place(p, blockIdx.x, BM, BN);
    const T *a = p.a + place.batch * p.batch_a, *b = p.b + place.batch * p.batch_b;
    const int steps = (int)((place.end_k - place.first_k + DEPTH - 1) / DEPTH);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_row = warp / ACROSS * WM, warp_column = warp % ACROSS * WN;
    const bool sums_rows = sizeof(T) == 2 && p.row_sums && place.column == 0 && warp_column == 0;
    const auto stage = [](int step) { return step % STAGES * (A::bytes + B::bytes); };
    const auto copy = [&](int step) {
        const long long k = place.first_k + (long long)step * DEPTH;
        if (step < steps) {
            A::copy(p, stage(step), a, p.row_a, place.row, p.m, k, place.end_k, p.packed_a);
            B::copy(p, stage(step) + A::bytes, b, p.row_b, place.column, p.n, k, place.end_k, p.packed_b);
        }
        ignis_ptx_cp_async_commit();
    };

    float sum[WM / 16][WN / 8][4], row_sum[WM / 16][4];
#pragma unroll
    for (int m = 0; m < WM / 16; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            row_sum[m][i] = 0;
#pragma unroll
            for (int n = 0; n < WN / 8; n++)
                sum[m][n][i] = 0;
        }
#pragma unroll 1
    for (int step = 0; step < STAGES - 1; step++)
        copy(step);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        ignis_ptx_cp_async_wait<STAGES - 2>();
        __syncthreads(); /* the step is there, and the one before it is done with */
        copy(step + STAGES - 1);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            uint32_t x[WM / 16][4], y[WN / 16][4];
#pragma unroll
            for (int m = 0; m < WM / 16; m++)
                A::load_a(x[m], stage(step), warp_row + 16 * m, k);
#pragma unroll
            for (int n = 0; n < WN / 16; n++)
                B::load_b(y[n], stage(step) + A::bytes, warp_column + 16 * n, k);
#pragma unroll
            for (int m = 0; m < WM / 16; m++)
#pragma unroll
                for (int n = 0; n < WN / 8; n++)
                    mma(sum[m][n], x[m], y[n / 2][n % 2 * 2], y[n / 2][n % 2 * 2 + 1]);
            if (sums_rows) {
                constexpr uint32_t one = ignis_is_same<T, ignis_f16> ? 0x3c003c00 : 0x3f803f80; /* twice */
#pragma unroll
                for (int m = 0; m < WM / 16; m++)
                    mma(row_sum[m], x[m], one, one);
            }
        }
    }
    if (sums_rows && lane % 4 == 0)
#pragma unroll
        for (int m = 0; m < WM / 16; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const long long row = place.row + warp_row + 16 * m + 8 * half + lane / 4;
                if (row < p.m)
                    p.row_sums[place.split * p.m + row] = row_sum[m][2 * half];
            }

    ignis_ptx_cp_async_wait<0>();
    float *results = (float *)shared();
    Epilogue<threads, BN> epilogue(p, place, threadIdx.x);
#pragma unroll 1
    for (int first = 0; first < BM; first += strip) {
        const auto result = [&](int r, int c) { return results[r * width + c]; };
        __syncthreads();
#pragma unroll
        for (int m = 0; m < WM / 16; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = warp_row + 16 * m + 8 * half + lane / 4 - first;
                if (row >= 0 && row < strip)
#pragma unroll
                    for (int n = 0; n < WN / 8; n++)
                        *(float2 *)&results[row * width + warp_column + 8 * n + lane % 4 * 2] =
                            make_float2(sum[m][n][2 * half], sum[m][n][2 * half + 1]);
            }
        __syncthreads();
        if (p.partial)
            store_partial<threads, BN>(p, place, threadIdx.x, first, strip, result);
        else
            epilogue.strip(first, strip, result);
    }
    epilogue.end(BM, results, [] { __syncthreads(); });
}

/*  8 warps, tiles of 128 x 128; 4 warps, 64 x 64. Shared memory: 4 steps of both operands. */
extern "C" __global__ void __launch_bounds__(256, 1) ignis_gemm_mma(const Product p) { multiply<2, 4, 64, 32>(p); }
extern "C" __global__ void __launch_bounds__(128, 1) ignis_gemm_mma_small(const Product p) { multiply<2, 2, 32, 32>(p); }
