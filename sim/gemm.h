// SPDX-License-Identifier: MIT
/*  gemm.h - the inner part of a matrix product, for one type

    cublaslt.c includes this once with REAL float and once with REAL double. A block of the result is the sum over
    slices of k. Each slice of both operands is first converted and packed into panels that the micro-kernel reads
    sequentially.
*/
#define NAME2(a, b) a##_##b
#define NAME1(a, b) NAME2(a, b)
#define NAME(a) NAME1(a, REAL)

/* Computes tile += panel of A (k rows of MR) times panel of B (k rows of 2 vectors). One definition for each
   vector size. */
#define MICRO_KERNEL(name, attributes, bytes)                                                            \
    attributes static void NAME(name)(size_t k, const REAL *a, const REAL *b, REAL *tile, size_t stride) \
    {                                                                                                    \
        typedef REAL vector __attribute__((vector_size(bytes), aligned(sizeof(REAL)), may_alias));       \
        enum { WIDTH = bytes / sizeof(REAL) };                                                           \
        vector sum[MR][2];                                                                               \
        for (int i = 0; i < MR; i++)                                                                     \
            for (int j = 0; j < 2; j++)                                                                  \
                sum[i][j] = *(const vector *)(tile + (size_t)i * stride + j * WIDTH);                    \
        for (size_t p = 0; p < k; p++, a += MR, b += 2 * WIDTH) {                                        \
            vector b0 = *(const vector *)b, b1 = *(const vector *)(b + WIDTH);                           \
            for (int i = 0; i < MR; i++) {                                                               \
                sum[i][0] += a[i] * b0;                                                                  \
                sum[i][1] += a[i] * b1;                                                                  \
            }                                                                                            \
        }                                                                                                \
        for (int i = 0; i < MR; i++)                                                                     \
            for (int j = 0; j < 2; j++)                                                                  \
                *(vector *)(tile + (size_t)i * stride + j * WIDTH) = sum[i][j];                          \
    }

MICRO_KERNEL(micro_16, , 16)
#ifdef __x86_64__
MICRO_KERNEL(micro_32, __attribute__((target("avx2,fma"))), 32)
MICRO_KERNEL(micro_64, __attribute__((target("avx512f"))), 64)
#endif

typedef void (*NAME(micro))(size_t, const REAL *, const REAL *, REAL *, size_t);

static NAME(micro) NAME(micro_of)(size_t vector_bytes)
{
#ifdef __x86_64__
    if (vector_bytes == 64)
        return NAME(micro_64);
    if (vector_bytes == 32)
        return NAME(micro_32);
#endif
    (void)vector_bytes;
    return NAME(micro_16);
}

/* Packs panels of `width` rows, out of `rows` x `k` elements that begin at `first`; missing rows are 0. */
static void NAME(pack)(REAL *to, size_t width, size_t rows, size_t k, const sim_operand *from, size_t first, int tf32)
{
#define CONVERT(type, convert)             \
    for (size_t p = 0; p < k; p++)         \
        for (size_t i = 0; i < width; i++) \
    to[p * width + i] = i < count ? (REAL)convert(((const type *)from->data)[at + i * from->row + p * from->col]) : 0
    for (size_t panel = 0; panel < rows; panel += width, to += width * k) {
        size_t count = rows - panel < width ? rows - panel : width, at = first + panel * from->row;
        switch (from->type) {
        case R_16F: CONVERT(uint16_t, half_to_float); break;
        case R_16BF: CONVERT(uint16_t, bf16_to_float); break;
        case R_64F: CONVERT(double, ); break;
        default:
            if (tf32)
                CONVERT(float, round_tf32);
            else
                CONVERT(float, );
        }
    }
#undef CONVERT
}

/* Computes sum[rows][NB] = A * B for the block at (row, col), with `space` for the packed slices. */
static void NAME(block)(const sim_job *job, const sim_operand *a, const sim_operand *b, size_t row, size_t col,
                        REAL *sum, REAL *space)
{
    size_t rows = job->m - row < MB ? job->m - row : MB, cols = job->n - col < NB ? job->n - col : NB;
    size_t width = 2 * job->vector_bytes / sizeof(REAL);
    NAME(micro) micro = NAME(micro_of)(job->vector_bytes);
    REAL *packed_b = space, *packed_a = space + KB * NB;
    memset(sum, 0, sizeof(REAL) * MB * NB);
    for (size_t at = 0; at < job->k; at += KB) {
        size_t k = job->k - at < KB ? job->k - at : KB;
        sim_operand b_by_column = {.data = b->data, .type = b->type, .row = b->col, .col = b->row};
        NAME(pack)(packed_a, MR, rows, k, a, row * a->row + at * a->col, job->tf32);
        NAME(pack)(packed_b, width, cols, k, &b_by_column, at * b->row + col * b->col, job->tf32);
        for (size_t j = 0; j < cols; j += width)
            for (size_t i = 0; i < rows; i += MR)
                micro(k, packed_a + i * k, packed_b + j * k, sum + i * NB + j, NB);
    }
}

/* Computes one block from begin to end, with `space` as scratch. */
static void NAME(task)(const sim_job *job, size_t batch, size_t row, size_t col, void *space)
{
    REAL *sum = space;
    sim_operand a = operand_of_batch(&job->a, batch), b = operand_of_batch(&job->b, batch);
    NAME(block)(job, &a, &b, row, col, sum, sum + MB * NB);
    for (size_t i = 0; i < MB && row + i < job->m; i++)
        for (size_t j = 0; j < NB && col + j < job->n; j++)
            finish_element(job, batch, row + i, col + j, sum[i * NB + j]);
}

#undef MICRO_KERNEL
#undef NAME
#undef NAME1
#undef NAME2
#undef REAL
