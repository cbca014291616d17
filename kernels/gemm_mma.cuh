// SPDX-License-Identifier: MIT
/*  gemm_mma.cuh - a tile of a matrix product on tensor cores by mma.sync, for sm_80 and up

    Included after mma.cuh and gemm.cuh, with the options of gemm_mma.cu. The caller has waited for the work before it.

    A block loops over k in steps of 64 bytes; 3 steps are under way while it multiplies one, and half of a
    step comes to registers while the other half is multiplied. In shared memory a step of an operand is a
    tile of lines of chunks of 16 bytes, as they are in memory: a line is 64 bytes of a row (by k), or all
    rows' elements at one k. Chunks change places within a line, so that the 8 that ldmatrix reads at a time
    are in different banks. */
#ifndef IGNIS_GEMM_MMA_CUH
#define IGNIS_GEMM_MMA_CUH

constexpr int STAGES = 4, E = 16 / sizeof(Operand),
              DEPTH = 64 / sizeof(Operand); /* elements of a chunk, and of k in a step */
constexpr bool A_BY_K = !IGNIS_TRANSPOSE_A, B_BY_K = IGNIS_TRANSPOSE_B;
static_assert(!SCALED || (A_BY_K && B_BY_K), "ldmatrix transposes no bytes");
constexpr int SUM_STEPS = 8; /* of 8 bits, with a sum of their own */

__device__ inline char *shared()
{
    extern __shared__ uint4 memory[];
    return (char *)memory;
}
__device__ inline uint32_t shared_address() { return (uint32_t)__cvta_generic_to_shared(shared()); }

/*  op(x), IGNIS__OPERAND_A or _B of the operands, with `rows` rows, of which a warp multiplies `own`.
    Whatever is the same in each k step is computed before the first one: the tensor cores wait for all other
    instructions. */
template <int operand, int rows, int own, bool by_k, int threads> struct Tile {
    static constexpr int bytes = rows * 64, across = by_k ? 4 : rows / E, line_bytes = 16 * across;
    static constexpr int count = bytes / 16 / threads,
                         lines = threads / across; /* chunks that a thread copies, this many lines apart */
    static_assert(count * 16 * threads == bytes && lines % 8 == 0, "a thread's chunks change places alike");
    const Product &p;
    const Operand *const matrix;
    const long long length, end_row, end_k, row;
    long long k; /* of the first chunk, as is row */
    /* where rows are packs, the chunks of the next step; of rows that are not there other ones, which nobody needs */
    const Operand *next[count];
    const int first_own, packed;    /* first_own: of the warp's rows */
    int to, last;                   /* where the first chunk goes; which of them the last step has, as bits */
    int lanes[by_k ? 2 : own / 16]; /* where ldmatrix loads for this lane: halves of a step, or each 16 rows */

    static __device__ int chunk_at(int line, int chunk)
    {
        const int swizzle = by_k ? line / 2 % 4 : sizeof(Operand) == 2 ? line % 8 : line % 4 * 2;
        return line * line_bytes + (chunk ^ swizzle) * 16;
    }

    /*  Rows first_row ..., k ... of a matrix with a distance between lines; beyond the end of k it is zero. */
    __device__ Tile(const Product &p, const Operand *matrix, long long length, long long first_row, long long end_row,
                    long long first_k, long long end_k, int first_own, int packed)
        : p(p), matrix(matrix), length(length), end_row(end_row), end_k(end_k),
          row(first_row + (by_k ? threadIdx.x / across : threadIdx.x % across * E)),
          k(first_k + (by_k ? threadIdx.x % across * E : threadIdx.x / across)), first_own(first_own), packed(packed),
          to(chunk_at(threadIdx.x / across, threadIdx.x % across)), last(0)
    {
        const long long last_k = k + (end_k - first_k - 1) / DEPTH * DEPTH;
        const int lane = threadIdx.x % 32;
        const bool straight = (operand == IGNIS__OPERAND_A) == by_k; /* B has along rows what A has along k */
        const int line = straight ? lane % 16 : lane % 8 + lane / 16 * 8, chunk = straight ? lane / 16 : lane / 8 % 2;
#pragma unroll
        for (int i = 0; i < count; i++) {
            next[i] = matrix + (by_k ? min(row + i * lines, end_row - 1) * length + k
                                     : (k + i * lines) * length + min(row, (end_row - 1) / E * E));
            last |= (last_k + (by_k ? 0 : i * lines) < end_k) << i;
        }
#pragma unroll
        for (int i = 0; i < (int)(sizeof lanes / sizeof *lanes); i++) {
            lanes[i] = by_k ? chunk_at(first_own + line, 2 * i + chunk) : chunk_at(line, first_own / E + 2 * i + chunk);
            asm volatile(""
                         : "+r"(lanes[i])); /* else the compiler computes it again in each k step, to save registers */
        }
        asm volatile("" : "+r"(to));
    }

    /*  Starts to copy the next step. */
    __device__ void copy(int stage, bool is_last)
    {
        if (!IGNIS_PATCHES && packed) {
            const uint32_t base = shared_address() + stage + to;
#pragma unroll
            for (int i = 0; i < count; i++) {
                if (is_last)
                    ignis_ptx_cp_async(base + i * lines * line_bytes, next[i], last >> i & 1 ? 16 : 0);
                else
                    ignis_ptx_cp_async(base + i * lines * line_bytes, next[i]);
                next[i] += by_k ? DEPTH : DEPTH * length;
            }
        } else {
            copy_any(stage);
            k += DEPTH;
        }
    }

    /*  Loads half of a k step of the warp's rows 16 i ... 16 i + 15: the words of an A, or of two B, of rows
        0 to 7 first. */
    __device__ void load(uint32_t (&words)[4], int stage, int i, int half) const
    {
        const uint32_t base = shared_address() + stage;
        if constexpr (by_k) {
            ignis_ptx_ldmatrix(words, base + lanes[half] + 16 * i * line_bytes);
        } else if constexpr (sizeof(Operand) == 2) {
            ignis_ptx_ldmatrix_transposed(words, base + lanes[i] + 16 * half * line_bytes);
        } else { /* which transposes no words of 32 bits */
            const int lane = threadIdx.x % 32;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int later = operand == IGNIS__OPERAND_A ? j / 2 : j % 2,
                          below = operand == IGNIS__OPERAND_A ? j % 2 : j / 2;
                const int row = first_own + 16 * i + lane / 4 + below * 8;
                words[j] = *(const uint32_t *)(shared() + stage + chunk_at(8 * half + lane % 4 + later * 4, row / 4) +
                                               row % 4 * 4);
            }
        }
        if constexpr (sizeof(Operand) == 4)
#pragma unroll
            for (int j = 0; j < 4; j++)
                words[j] = ignis_ptx_cvt_rna_tf32_f32(__uint_as_float(words[j]));
    }

  private:
    /*  Copies rows that are not packs, or rows of patches. */
    __device__ void copy_any(int stage) const
    {
        const uint32_t base = shared_address();
#pragma unroll
        for (int i = 0; i < count; i++) {
            const long long row = this->row + (by_k ? i * lines : 0), k = this->k + (by_k ? 0 : i * lines),
                            left = by_k ? end_k - k : end_row - row;
            const bool exists = by_k ? row < end_row : k < end_k;
            const int valid = exists ? (int)max(0LL, min((long long)E, left)) : 0,
                      at = stage + to + i * lines * line_bytes;
            if (IGNIS_PATCHES && packed == IGNIS__HALF_PACKED) { /* a chunk is of two taps */
#pragma unroll
                for (int half = 0; half < E; half += E / 2) {
                    const int some = max(0, min(E / 2, valid - half));
                    const Operand *from =
                        some ? p.find<operand>(matrix, by_k, length, by_k ? row : row + half, by_k ? k + half : k)
                             : nullptr;
                    ignis_ptx_cp_async_8(base + at + half * (int)sizeof(Operand), from ? from : matrix,
                                         from ? some * (int)sizeof(Operand) : 0);
                }
                continue;
            }
            const Operand *from = valid ? p.find<operand>(matrix, by_k, length, row, k) : nullptr;
            if (packed) { /* so a chunk of a patch is of one tap */
                ignis_ptx_cp_async(base + at, from ? from : matrix, from ? valid * (int)sizeof(Operand) : 0);
            } else {
                Operand *element = (Operand *)(shared() + at);
#pragma unroll
                for (int e = 0; e < E; e++) {
                    if (IGNIS_PATCHES)
                        from = e < valid ? p.find<operand>(matrix, by_k, length, by_k ? row : row + e, by_k ? k + e : k)
                                         : nullptr;
                    element[e] = e < valid && from ? from[IGNIS_PATCHES ? 0 : e] : Operand(0);
                }
            }
        }
    }
};

__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if constexpr (ignis_is_same<Operand, ignis_f8_e4m3>)
        ignis_ptx_mma_e4m3(c, a, b0, b1);
    else if constexpr (SCALED)
        ignis_ptx_mma_e5m2(c, a, b0, b1);
    else if constexpr (sizeof(T) == 4)
        ignis_ptx_mma_tf32(c, a, b0, b1);
    else
        ignis_mma<T>(c, a, b0, b1);
}

/*  DOWN x ACROSS warps have WM x WN of the block's tile each. */
template <int DOWN, int ACROSS, int WM, int WN> __device__ inline void multiply(const Product &p, const Place &place)
{
    constexpr int threads = 32 * DOWN * ACROSS, BM = DOWN * WM, BN = ACROSS * WN, strip = 32,
                  width = BN + 8; /* so that warps write to all banks */
    typedef Tile<IGNIS__OPERAND_A, BM, WM, A_BY_K, threads> A;
    typedef Tile<IGNIS__OPERAND_B, BN, WN, B_BY_K, threads> B;
    const int steps = (int)((place.end_k - place.first_k + DEPTH - 1) / DEPTH);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_row = warp / ACROSS * WM,
              warp_column = warp % ACROSS * WN;
    const bool sums_rows = sizeof(Operand) == 2 && p.row_sums && place.column == 0 && warp_column == 0;
    const auto stage = [](int step) { return step % STAGES * (A::bytes + B::bytes); };
    A a(p, p.a + place.batch * p.batch_a, p.row_a, place.row, p.m, place.first_k, place.end_k, warp_row, p.packed_a);
    B b(p, p.b + place.batch * p.batch_b, p.row_b, place.column, p.n, place.first_k, place.end_k, warp_column,
        p.packed_b);
    const auto copy = [&](int step) {
        if (step < steps) {
            a.copy(stage(step), step == steps - 1);
            b.copy(stage(step) + A::bytes, step == steps - 1);
        }
        ignis_ptx_cp_async_commit();
    };

    float sum[WM / 16][WN / 8][4], row_sum[WM / 16][4], total[SCALED ? WM / 16 : 1][WN / 8][4] = {};
    const auto add_up = [&] {
#pragma unroll
        for (int i = 0; i < (SCALED ? WM * WN / 32 : 0); i++) {
            float &x = sum[i / (WN / 2)][i / 4 % (WN / 8)][i % 4];
            total[i / (WN / 2)][i / 4 % (WN / 8)][i % 4] += x;
            x = 0;
        }
    };
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
    uint32_t x[2][WM / 16][4],
        y[2][WN / 16][4]; /* half a step, and the next half, which is loaded while that is multiplied */
    const auto load = [&](int step, int half) {
#pragma unroll
        for (int m = 0; m < WM / 16; m++)
            a.load(x[half][m], stage(step), m, half);
#pragma unroll
        for (int n = 0; n < WN / 16; n++)
            b.load(y[half][n], stage(step) + A::bytes, n, half);
    };
    const auto wait = [] { /* the next step is there, and no warp loads from this one any more */
                           ignis_ptx_cp_async_wait<STAGES - 2>();
                           __syncthreads();
    };
    wait();
    load(0, 0);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (half == 0) {
                load(step, 1);
                copy(step + STAGES - 1);
            } else {
                wait();
                load(step + 1, 0); /* after the last k step */
            }
#pragma unroll
            for (int m = 0; m < WM / 16; m++)
#pragma unroll
                for (int n = 0; n < WN / 8; n++)
                    mma(sum[m][n], x[half][m], y[half][n / 2][n % 2 * 2], y[half][n / 2][n % 2 * 2 + 1]);
            if (sums_rows) {
                constexpr uint32_t one = ignis_is_same<T, ignis_f16> ? 0x3c003c00 : 0x3f803f80; /* twice */
#pragma unroll
                for (int m = 0; m < WM / 16; m++)
                    mma(row_sum[m], x[half][m], one, one);
            }
        }
        if (SCALED && (step % SUM_STEPS == SUM_STEPS - 1 || step == steps - 1))
            add_up();
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
                    for (int n = 0; n < WN / 8; n++) {
                        const int column = warp_column + 8 * n + lane % 4 * 2;
                        float *const two = SCALED ? &total[m][n][2 * half] : &sum[m][n][2 * half];
                        if (SCALED) {
                            const float scale = p.scale_of_row(min(place.row + first + row, p.m - 1));
#pragma unroll
                            for (int i = 0; i < 2; i++)
                                two[i] *= scale * p.scale_of_column(min(place.column + column + i, p.n - 1));
                        }
                        *(float2 *)&results[row * width + column] = make_float2(two[0], two[1]);
                    }
            }
        __syncthreads();
        if (p.partial)
            store_partial<threads, BN>(p, place, threadIdx.x, first, strip, result);
        else
            epilogue.strip(first, strip, result);
    }
    epilogue.end(BM, results, [] { __syncthreads(); });
}

#endif /* IGNIS_GEMM_MMA_CUH */
