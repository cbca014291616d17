// SPDX-License-Identifier: MIT
/*  cublaslt.c - the simulator's libcublasLt: matrix products on the CPU

    Does what cublasLtMatmul is asked for: f64, f32 (TF32 included), f16 and bf16 matrices in row or column order,
    transposed, in strided batches, with the epilogues for bias, ReLU, GELU and their gradients. Sums are kept in f32
    (f64 for f64), and results are rounded once, to nearest even. The order of summation is this library's own, as it is
    any GPU's.

    The work is handed to the driver with cuLaunchHostFunc, so it obeys streams, events and captured graphs. Algorithms
    differ only in the workspace they claim to need: a program that passes less is told so.
*/
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIM_API __attribute__((visibility("default")))

/* >>types: declarations of cublasLt.h that are needed here. `make prototypes` compiles this file with the
   real header instead. */

#ifndef CUBLAS_VERSION
typedef int cublasStatus_t, cublasComputeType_t, cudaDataType_t, cudaDataType;
typedef int cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublasLtMatmulDescOpaque_t *cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque_t *cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreferenceOpaque_t *cublasLtMatmulPreference_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct cublasLtMatmulAlgo_t {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;
#endif

/* Of libcuda.so.1, which this library is linked to. */
extern int cuLaunchHostFunc(cudaStream_t stream, void (*call)(void *), void *data);
extern int cuMemGetAddressRange_v2(unsigned long long *base, size_t *size, unsigned long long address);
extern int cuStreamIsCapturing(cudaStream_t stream, int *status);
extern void ignis_sim_loads(void);

/* clang-format off */
#define SIM_STATUSES(X) \
    X(0, SUCCESS, "success") X(1, NOT_INITIALIZED, "the library was not initialized") \
    X(3, ALLOC_FAILED, "an allocation failed") X(7, INVALID_VALUE, "an unsupported value or parameter was passed") \
    X(8, ARCH_MISMATCH, "the device lacks a feature") X(11, MAPPING_ERROR, "an access to GPU memory failed") \
    X(13, EXECUTION_FAILED, "the GPU program failed to execute") X(14, INTERNAL_ERROR, "an internal operation failed") \
    X(15, NOT_SUPPORTED, "the functionality requested is not supported") \
    X(16, LICENSE_ERROR, "a license error was detected")

enum {
#define X(number, name, sentence) name = number,
    SIM_STATUSES(X)
#undef X
    NO_STATUS = -1
};
/* clang-format on */

enum { R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14 }; /* cudaDataType */
enum {
    COMPUTE_16F = 64,
    COMPUTE_32F = 68,
    COMPUTE_32F_PEDANTIC = 69,
    COMPUTE_64F = 70,
    COMPUTE_64F_PEDANTIC = 71,
    COMPUTE_FAST_16F = 74,
    COMPUTE_FAST_16BF = 75,
    COMPUTE_FAST_TF32 = 77,
    COMPUTE_EMULATED = 78
};
enum {
    EPILOGUE_RELU = 2,
    EPILOGUE_BIAS = 4,
    EPILOGUE_DRELU = 8,
    EPILOGUE_BGRAD = 16,
    EPILOGUE_GELU = 32,
    EPILOGUE_DGELU = 64,
    EPILOGUE_AUX = 128,
    EPILOGUE_BGRADA = 256,
    EPILOGUE_BGRADB = 512,
    EPILOGUE_KNOWN = 1023
};
enum { ORDER_COL = 0, ORDER_ROW = 1 };
enum { POINTERS_HOST = 0, POINTERS_DEVICE = 1 };

/* >>objects */

enum { MAGIC_HANDLE = 0x6c744831, MAGIC_DESC, MAGIC_LAYOUT, MAGIC_PREFERENCE, MAGIC_ALGO };

typedef struct sim_handle {
    int magic;
} sim_handle;

typedef struct sim_desc {
    int magic;
    int32_t compute, scale, pointer_mode, transa, transb, transc, fill, sm_count, bias_type, aux_type;
    uint32_t epilogue;
    int64_t bias_stride, aux_ld, aux_stride;
    void *bias, *aux;
    int8_t fast;
} sim_desc;

typedef struct sim_layout {
    int magic;
    uint32_t type;
    int32_t order, batch;
    uint64_t rows, cols;
    int64_t ld, stride;
} sim_layout;

typedef struct sim_preference {
    int magic;
    uint32_t mode, schemes, align_a, align_b, align_c, align_d;
    float waves;
    uint64_t workspace, implementations;
} sim_preference;

/* The place of an attribute in its object. */
typedef struct sim_attribute {
    int number;
    size_t offset, size;
} sim_attribute;
#define ATTRIBUTE(number, type, field)                          \
    {                                                           \
        number, offsetof(type, field), sizeof((type *)0)->field \
    }

/* clang-format off */
static const sim_attribute desc_attributes[] = {
    ATTRIBUTE(0, sim_desc, compute), ATTRIBUTE(1, sim_desc, scale), ATTRIBUTE(2, sim_desc, pointer_mode),
    ATTRIBUTE(3, sim_desc, transa), ATTRIBUTE(4, sim_desc, transb), ATTRIBUTE(5, sim_desc, transc),
    ATTRIBUTE(6, sim_desc, fill), ATTRIBUTE(7, sim_desc, epilogue), ATTRIBUTE(8, sim_desc, bias),
    ATTRIBUTE(10, sim_desc, bias_stride), ATTRIBUTE(11, sim_desc, aux), ATTRIBUTE(12, sim_desc, aux_ld),
    ATTRIBUTE(13, sim_desc, aux_stride), ATTRIBUTE(15, sim_desc, sm_count), ATTRIBUTE(22, sim_desc, aux_type),
    ATTRIBUTE(25, sim_desc, fast), ATTRIBUTE(26, sim_desc, bias_type), {-1, 0, 0}
};

static const sim_attribute layout_attributes[] = {
    ATTRIBUTE(0, sim_layout, type), ATTRIBUTE(1, sim_layout, order), ATTRIBUTE(2, sim_layout, rows),
    ATTRIBUTE(3, sim_layout, cols), ATTRIBUTE(4, sim_layout, ld), ATTRIBUTE(5, sim_layout, batch),
    ATTRIBUTE(6, sim_layout, stride), {-1, 0, 0}
};

static const sim_attribute preference_attributes[] = {
    ATTRIBUTE(0, sim_preference, mode), ATTRIBUTE(1, sim_preference, workspace), ATTRIBUTE(3, sim_preference, schemes),
    ATTRIBUTE(5, sim_preference, align_a), ATTRIBUTE(6, sim_preference, align_b), ATTRIBUTE(7, sim_preference, align_c),
    ATTRIBUTE(8, sim_preference, align_d), ATTRIBUTE(9, sim_preference, waves),
    ATTRIBUTE(12, sim_preference, implementations), {-1, 0, 0}
};
/* clang-format on */

static const sim_attribute *find_attribute(const sim_attribute *table, int number)
{
    while (table->number >= 0 && table->number != number)
        table++;
    return table->number >= 0 ? table : NULL;
}

static int is(const void *object, int magic) { return object && *(const int *)object == magic; }

static int set_attribute(void *object, int magic, const sim_attribute *table, int number, const void *value,
                         size_t size)
{
    const sim_attribute *attribute = find_attribute(table, number);
    if (!is(object, magic) || !attribute || !value || size != attribute->size)
        return INVALID_VALUE;
    memcpy((char *)object + attribute->offset, value, size);
    return SUCCESS;
}

static int get_attribute(void *object, int magic, const sim_attribute *table, int number, void *value, size_t size,
                         size_t *written)
{
    const sim_attribute *attribute = find_attribute(table, number);
    if (!is(object, magic) || !attribute || (!size && !written) || (size && (!value || size != attribute->size)))
        return INVALID_VALUE;
    if (size)
        memcpy(value, (char *)object + attribute->offset, size);
    if (written)
        *written = attribute->size;
    return SUCCESS;
}

static int create(void *out, const void *initial, size_t size)
{
    void *object = out ? malloc(size) : NULL;
    if (!object)
        return out ? ALLOC_FAILED : INVALID_VALUE;
    memcpy(object, initial, size);
    *(void **)out = object;
    return SUCCESS;
}

static int destroy(void *object, int magic)
{
    if (!object)
        return SUCCESS;
    if (!is(object, magic))
        return INVALID_VALUE;
    *(int *)object = 0;
    free(object);
    return SUCCESS;
}

/* >>numbers */

static float bits_to_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint32_t float_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float bf16_to_float(uint16_t bits) { return bits_to_float((uint32_t)bits << 16); }

static uint16_t float_to_bf16(float value)
{
    uint32_t bits = float_to_bits(value);
    if (value != value)
        return 0x7FFF;
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Converts a half. A multiplication moves the exponent, which is right for subnormal numbers, too. */
static inline float half_to_float(uint16_t bits)
{
    float value = bits_to_float((uint32_t)(bits & 0x7FFF) << 13) * 0x1p112f;
    uint32_t special = (bits & 0x7C00) == 0x7C00 ? 0x7F800000u : 0;
    return bits_to_float(float_to_bits(value) | special | (uint32_t)(bits & 0x8000) << 16);
}

static uint16_t float_to_half(float value)
{
    uint32_t bits = float_to_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000)
        return 0x7FFF;
    if (magnitude >= 0x477FF000)
        return (uint16_t)(sign | 0x7C00); /* rounds to more than 65504 */
    if (magnitude < 0x38800000)           /* subnormal: the addition rounds */
        return (uint16_t)(sign | (float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3F000000));
    return (uint16_t)(sign | ((magnitude + 0xFFF + (magnitude >> 13 & 1) - 0x38000000) >> 13));
}

/* Rounds to TF32, which keeps 10 bits of fraction. */
static inline float round_tf32(float value)
{
    uint32_t bits = float_to_bits(value);
    return (bits & 0x7F800000) == 0x7F800000 ? value : bits_to_float((bits + 0x1000) & 0xFFFFE000u);
}

static double load(const void *data, int type, size_t index)
{
    switch (type) {
    case R_64F: return ((const double *)data)[index];
    case R_16F: return half_to_float(((const uint16_t *)data)[index]);
    case R_16BF: return bf16_to_float(((const uint16_t *)data)[index]);
    default: return ((const float *)data)[index];
    }
}

static void store(void *data, int type, size_t index, double value)
{
    switch (type) {
    case R_64F: ((double *)data)[index] = value; break;
    case R_16F: ((uint16_t *)data)[index] = float_to_half((float)value); break;
    case R_16BF: ((uint16_t *)data)[index] = float_to_bf16((float)value); break;
    default: ((float *)data)[index] = (float)value;
    }
}

static size_t type_size(int type) { return type == R_64F ? 8 : type == R_32F ? 4 : 2; }

static const double gelu_scale = 0.7978845608028654,
                    gelu_cube = 0.044715; /* sqrt(2/pi), and the constant of the tanh form */

static double gelu(double x) { return 0.5 * x * (1 + tanh(gelu_scale * (x + gelu_cube * x * x * x))); }

static double gelu_slope(double x)
{
    double t = tanh(gelu_scale * (x + gelu_cube * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_scale * (1 + 3 * gelu_cube * x * x);
}

/* >>jobs */

enum { MR = 6, MB = 96, NB = 256, KB = 256, MAX_THREADS = 16 };

/* A matrix as the product reads it, with transposition and order resolved: element (i, j) is at i * row + j *
   col. */
typedef struct sim_operand {
    char *data;
    int type;
    size_t row, col, batch; /* strides in elements */
} sim_operand;

typedef struct sim_job {
    struct sim_job *next;
    atomic_int done;
    int captured; /* may run again */
    int tf32, is_double, pointer_mode, scale;
    size_t vector_bytes;
    size_t m, n, k, batches;
    double alpha, beta;
    const void *alpha_pointer, *beta_pointer;
    sim_operand a, b, c, d, aux, bias;
    unsigned epilogue;
    atomic_size_t next_task;
} sim_job;

static sim_operand operand_of_batch(const sim_operand *operand, size_t batch)
{
    sim_operand one = *operand;
    if (one.data)
        one.data += batch * one.batch * type_size(one.type);
    return one;
}

static size_t index_of(const sim_operand *operand, size_t batch, size_t i, size_t j)
{
    return batch * operand->batch + i * operand->row + j * operand->col;
}

static int get_bit(const sim_operand *mask, size_t bit) { return (unsigned char)mask->data[bit / 8] >> bit % 8 & 1; }

/* Sets a bit. Tasks write the bits of different columns, but these may share a byte. */
static void put_bit(const sim_operand *mask, size_t bit, int value)
{
    unsigned char one = (unsigned char)(1u << bit % 8), *byte = (unsigned char *)mask->data + bit / 8;
    if (value)
        __atomic_fetch_or(byte, one, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(byte, (unsigned char)~one, __ATOMIC_RELAXED);
}

/* Converts a sum to the stored result: scale, C, bias, epilogue. */
static void finish_element(const sim_job *job, size_t batch, size_t i, size_t j, double sum)
{
    unsigned epilogue = job->epilogue;
    size_t aux = index_of(&job->aux, batch, i, j);
    double value = job->alpha * sum;
    if (job->beta != 0)
        value += job->beta * load(job->c.data, job->c.type, index_of(&job->c, batch, i, j));
    if (epilogue & EPILOGUE_BIAS)
        value += load(job->bias.data, job->bias.type, index_of(&job->bias, batch, i, j));
    if (epilogue & EPILOGUE_DGELU)
        value *= gelu_slope(load(job->aux.data, job->aux.type, aux));
    else if (epilogue & EPILOGUE_DRELU)
        value = get_bit(&job->aux, aux) ? value : 0;
    else if (epilogue & EPILOGUE_AUX && epilogue & EPILOGUE_GELU)
        store(job->aux.data, job->aux.type, aux, value);
    else if (epilogue & EPILOGUE_AUX)
        put_bit(&job->aux, aux, value > 0);
    if (epilogue & EPILOGUE_GELU)
        value = gelu(value);
    if (epilogue & EPILOGUE_RELU)
        value = value < 0 ? 0 : value;
    store(job->d.data, job->d.type, index_of(&job->d, batch, i, j), value);
}

#define REAL float
#include "gemm.h"
#define REAL double
#include "gemm.h"

static size_t blocks_of(size_t size, size_t block) { return (size + block - 1) / block; }

/* Runs blocks of the result until none is left. */
static void *run_tasks(void *argument)
{
    sim_job *job = argument;
    size_t down = blocks_of(job->m, MB), across = blocks_of(job->n, NB), task;
    size_t elements = MB * NB + KB * NB + (KB + 1) * MB;
    void *space = malloc(elements * (job->is_double ? sizeof(double) : sizeof(float)));
    if (!space)
        fprintf(stderr, "ignis simulator: no memory for a matrix product\n"), abort();
    while ((task = atomic_fetch_add(&job->next_task, 1)) < down * across * job->batches) {
        size_t batch = task / (down * across), row = task % down * MB, col = task / down % across * NB;
        if (job->is_double)
            task_double(job, batch, row, col, space);
        else
            task_float(job, batch, row, col, space);
    }
    free(space);
    return NULL;
}

static size_t threads_for(const sim_job *job)
{
    double operations = 2.0 * (double)job->m * (double)job->n * (double)job->k * (double)job->batches;
    size_t tasks = blocks_of(job->m, MB) * blocks_of(job->n, NB) * job->batches;
    const char *asked = getenv("IGNIS_SIM_THREADS");
    long cores = asked && atol(asked) > 0 ? atol(asked) : sysconf(_SC_NPROCESSORS_ONLN);
    size_t threads = cores < 1 ? 1 : cores > MAX_THREADS ? MAX_THREADS : (size_t)cores;
    if (operations < 2e7)
        return 1; /* starting a thread would take longer */
    return threads < tasks ? threads : tasks;
}

/* Sums along the rows of a matrix, or along its columns with rows and columns exchanged, into the bias
   vector. */
static void sum_rows(const sim_job *job, const sim_operand *matrix, size_t rows, size_t cols)
{
    for (size_t batch = 0; batch < job->batches; batch++)
        for (size_t i = 0; i < rows; i++) {
            double sum = 0;
            for (size_t j = 0; j < cols; j++)
                sum += load(matrix->data, matrix->type, index_of(matrix, batch, i, j));
            store(job->bias.data, job->bias.type, batch * job->bias.batch + i, sum);
        }
}

static void bias_gradient(const sim_job *job)
{
    sim_operand b_by_column = {
        .data = job->b.data, .type = job->b.type, .row = job->b.col, .col = job->b.row, .batch = job->b.batch};
    if (job->epilogue & EPILOGUE_BGRAD)
        sum_rows(job, &job->d, job->m, job->n);
    if (job->epilogue & EPILOGUE_BGRADA)
        sum_rows(job, &job->a, job->m, job->k);
    if (job->epilogue & EPILOGUE_BGRADB)
        sum_rows(job, &b_by_column, job->n, job->k);
}

/* Runs a job. The driver calls it when the stream reaches it. */
static void run_job(void *argument)
{
    sim_job *job = argument;
    pthread_t threads[MAX_THREADS];
    size_t wanted = threads_for(job), started = 0;
    if (job->pointer_mode == POINTERS_DEVICE) {
        job->alpha = load(job->alpha_pointer, job->scale, 0);
        job->beta = load(job->beta_pointer, job->scale, 0);
    }
    atomic_store(&job->next_task, 0);
    while (started + 1 < wanted && !pthread_create(&threads[started], NULL, run_tasks, job))
        started++;
    run_tasks(job);
    while (started)
        pthread_join(threads[--started], NULL);
    bias_gradient(job);
    atomic_store(&job->done, 1);
}

/* All jobs that may still run. The next call frees those that cannot. */
static struct {
    pthread_mutex_t lock;
    sim_job *first;
} jobs = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep_job(sim_job *job)
{
    pthread_mutex_lock(&jobs.lock);
    for (sim_job **link = &jobs.first; *link;) {
        sim_job *old = *link;
        if (old->captured || !atomic_load(&old->done)) {
            link = &old->next;
        } else {
            *link = old->next;
            free(old);
        }
    }
    if (job)
        job->next = jobs.first, jobs.first = job;
    pthread_mutex_unlock(&jobs.lock);
}

/* Drops a job that the driver did not take. */
static void drop_job(sim_job *job)
{
    job->captured = 0;
    atomic_store(&job->done, 1);
    keep_job(NULL);
}

/* >>checks */

static size_t best_vector(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return 64;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return 32;
#endif
    return 16;
}

static int is_floating(int type) { return type == R_32F || type == R_16F || type == R_16BF; }

/* Checks that a combination of types is computed. */
static int check_types(const sim_desc *desc, int a, int b, int c, int d)
{
    if (a != b || c != d)
        return NOT_SUPPORTED;
    switch (desc->compute) {
    case COMPUTE_64F:
    case COMPUTE_64F_PEDANTIC: return a == R_64F && d == R_64F && desc->scale == R_64F ? SUCCESS : NOT_SUPPORTED;
    case COMPUTE_16F: return a == R_16F && d == R_16F && desc->scale == R_16F ? SUCCESS : NOT_SUPPORTED;
    case COMPUTE_FAST_16F:
    case COMPUTE_FAST_16BF:
    case COMPUTE_FAST_TF32:
    case COMPUTE_EMULATED:
        if (a != R_32F)
            return NOT_SUPPORTED;
        break;
    case COMPUTE_32F:
    case COMPUTE_32F_PEDANTIC: break;
    default: return NOT_SUPPORTED;
    }
    int fits = is_floating(a) && (d == a || d == R_32F) && desc->scale == R_32F;
    return fits ? SUCCESS : NOT_SUPPORTED;
}

static int check_layout(const sim_layout *layout)
{
    if (!is(layout, MAGIC_LAYOUT) || layout->batch < 1)
        return INVALID_VALUE;
    if (layout->order != ORDER_COL && layout->order != ORDER_ROW)
        return NOT_SUPPORTED;
    uint64_t least = layout->order == ORDER_COL ? layout->rows : layout->cols;
    return layout->ld >= 0 && (uint64_t)layout->ld >= least ? SUCCESS : INVALID_VALUE;
}

static int check_epilogue(const sim_desc *desc)
{
    unsigned epilogue = desc->epilogue;
    unsigned backward = epilogue & (EPILOGUE_DRELU | EPILOGUE_DGELU);
    if (epilogue & ~(unsigned)EPILOGUE_KNOWN || !epilogue)
        return INVALID_VALUE;
    if (epilogue & (EPILOGUE_BIAS | EPILOGUE_BGRAD | EPILOGUE_BGRADA | EPILOGUE_BGRADB) && !desc->bias)
        return INVALID_VALUE;
    if ((epilogue & EPILOGUE_AUX || backward) && (!desc->aux || desc->aux_ld <= 0))
        return INVALID_VALUE;
    return desc->transc ? NOT_SUPPORTED : SUCCESS;
}

/* Describes the matrix in memory, transposed for the product if `transposed`. */
static sim_operand operand_of(const void *data, const sim_layout *layout, int transposed)
{
    size_t ld = (size_t)layout->ld, along = layout->order == ORDER_COL;
    size_t row = along ? 1 : ld, col = along ? ld : 1;
    return (sim_operand){.data = (char *)(uintptr_t)data,
                         .type = (int)layout->type,
                         .row = transposed ? col : row,
                         .col = transposed ? row : col,
                         .batch = (size_t)layout->stride};
}

/* Fills in the sizes and types of a product, everything but the addresses. */
static int describe(const sim_desc *desc, const sim_layout *a, const sim_layout *b, const sim_layout *c,
                    const sim_layout *d, sim_job *job)
{
    const sim_layout *layouts[] = {a, b, c, d};
    if (!is(desc, MAGIC_DESC))
        return INVALID_VALUE;
    for (int i = 0; i < 4; i++) {
        int status = check_layout(layouts[i]);
        if (status)
            return status;
        if (layouts[i]->batch != d->batch)
            return INVALID_VALUE;
    }
    int status = check_types(desc, (int)a->type, (int)b->type, (int)c->type, (int)d->type);
    if (!status)
        status = check_epilogue(desc);
    if (status)
        return status;
    job->m = d->rows;
    job->n = d->cols;
    job->k = desc->transa ? a->rows : a->cols;
    job->batches = (size_t)d->batch;
    int agree = (desc->transa ? a->cols : a->rows) == job->m && (desc->transb ? b->cols : b->rows) == job->k &&
                (desc->transb ? b->rows : b->cols) == job->n && c->rows == job->m && c->cols == job->n;
    return agree ? SUCCESS : INVALID_VALUE;
}

/* Checks that a matrix is inside one block of device memory. On a GPU it would be a fault, or wrong results. */
static int check_memory(const char *name, const sim_operand *operand, size_t rows, size_t cols, size_t batches,
                        size_t bits)
{
    unsigned long long base = 0, address = (uintptr_t)operand->data;
    size_t size = 0, last = (batches - 1) * operand->batch + (rows - 1) * operand->row + (cols - 1) * operand->col;
    size_t bytes = (last * bits + bits + 7) / 8;
    if (!rows || !cols)
        return SUCCESS;
    if (!cuMemGetAddressRange_v2(&base, &size, address) && address - base + bytes <= size)
        return SUCCESS;
    fprintf(stderr,
            "ignis simulator: cublasLtMatmul: %s, %zu bytes at %#llx, is not inside one block of device memory\n", name,
            bytes, address);
    return INVALID_VALUE;
}

static int check_job_memory(const sim_job *job)
{
    size_t m = job->m, n = job->n, k = job->k;
    int mask = !(job->epilogue & (EPILOGUE_GELU | EPILOGUE_DGELU));
    const struct {
        const char *name;
        const sim_operand *operand;
        size_t rows, cols, bits;
    } used[] = {
        {"A", &job->a, m, k, 8 * type_size(job->a.type)},
        {"B", &job->b, k, n, 8 * type_size(job->b.type)},
        {"D", &job->d, m, n, 8 * type_size(job->d.type)},
        {"C", job->pointer_mode == POINTERS_HOST && job->beta != 0 ? &job->c : NULL, m, n, 8 * type_size(job->c.type)},
        {"the bias", job->bias.data ? &job->bias : NULL, job->epilogue & EPILOGUE_BGRADB ? n : m, 1,
         8 * type_size(job->bias.type)},
        {"the auxiliary matrix", job->aux.data ? &job->aux : NULL, m, n, mask ? 1 : 8 * type_size(job->aux.type)}};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
        if (!used[i].operand)
            continue;
        int status =
            check_memory(used[i].name, used[i].operand, used[i].rows, used[i].cols, job->batches, used[i].bits);
        if (status)
            return status;
    }
    return SUCCESS;
}

/* >>the functions */

SIM_API cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    return (cublasStatus_t)create(out, &(sim_handle){MAGIC_HANDLE}, sizeof(sim_handle));
}

SIM_API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    keep_job(NULL);
    return (cublasStatus_t)destroy(handle, MAGIC_HANDLE);
}

SIM_API size_t cublasLtGetVersion(void) { return 130000; }

SIM_API size_t cublasLtGetCudartVersion(void) { return 13000; }

SIM_API const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch ((int)status) {
#define X(number, name, sentence) \
    case number: return "CUBLAS_STATUS_" #name;
        SIM_STATUSES(X)
#undef X
    default: return "unknown status";
    }
}

SIM_API const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch ((int)status) {
#define X(number, name, sentence) \
    case number: return sentence;
        SIM_STATUSES(X)
#undef X
    default: return "unknown status";
    }
}

SIM_API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                                cudaDataType_t scale)
{
    sim_desc desc = {.magic = MAGIC_DESC,
                     .compute = (int32_t)compute,
                     .scale = (int32_t)scale,
                     .epilogue = 1,
                     .bias_type = -1,
                     .aux_type = -1};
    return (cublasStatus_t)create(out, &desc, sizeof desc);
}

SIM_API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    return (cublasStatus_t)destroy(desc, MAGIC_DESC);
}

SIM_API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t number,
                                                      const void *value, size_t size)
{
    return (cublasStatus_t)set_attribute(desc, MAGIC_DESC, desc_attributes, (int)number, value, size);
}

SIM_API cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t number,
                                                      void *value, size_t size, size_t *written)
{
    return (cublasStatus_t)get_attribute(desc, MAGIC_DESC, desc_attributes, (int)number, value, size, written);
}

SIM_API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                                  uint64_t cols, int64_t ld)
{
    sim_layout layout = {
        .magic = MAGIC_LAYOUT, .type = (uint32_t)type, .batch = 1, .rows = rows, .cols = cols, .ld = ld};
    return (cublasStatus_t)create(out, &layout, sizeof layout);
}

SIM_API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return (cublasStatus_t)destroy(layout, MAGIC_LAYOUT);
}

SIM_API cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                        cublasLtMatrixLayoutAttribute_t number, const void *value,
                                                        size_t size)
{
    return (cublasStatus_t)set_attribute(layout, MAGIC_LAYOUT, layout_attributes, (int)number, value, size);
}

SIM_API cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                        cublasLtMatrixLayoutAttribute_t number, void *value,
                                                        size_t size, size_t *written)
{
    return (cublasStatus_t)get_attribute(layout, MAGIC_LAYOUT, layout_attributes, (int)number, value, size, written);
}

SIM_API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    return (cublasStatus_t)create(out, &(sim_preference){.magic = MAGIC_PREFERENCE}, sizeof(sim_preference));
}

SIM_API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return (cublasStatus_t)destroy(preference, MAGIC_PREFERENCE);
}

SIM_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                            cublasLtMatmulPreferenceAttributes_t number,
                                                            const void *value, size_t size)
{
    return (cublasStatus_t)set_attribute(preference, MAGIC_PREFERENCE, preference_attributes, (int)number, value, size);
}

static const size_t big_workspace = (size_t)1 << 20;

/* Returns two algorithms: one with a workspace, if the preference allows it, and one without. */
SIM_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                      cublasLtMatmulPreference_t preference, int requested,
                                                      cublasLtMatmulHeuristicResult_t results[], int *count)
{
    sim_job job = {0};
    if (!is(handle, MAGIC_HANDLE))
        return (cublasStatus_t)NOT_INITIALIZED;
    if (!is(preference, MAGIC_PREFERENCE) || requested < 1 || !results || !count)
        return (cublasStatus_t)INVALID_VALUE;
    *count = 0;
    ignis_sim_loads(); /* the real library may load the kernels that it finds */
    int status = describe((sim_desc *)desc, (sim_layout *)a, (sim_layout *)b, (sim_layout *)c, (sim_layout *)d, &job);
    if (status)
        return (cublasStatus_t)status;
    size_t allowed = ((sim_preference *)preference)->workspace;
    for (int i = allowed < big_workspace; i < 2 && *count < requested; i++) {
        cublasLtMatmulHeuristicResult_t *result = &results[(*count)++];
        memset(result, 0, sizeof *result);
        result->workspaceSize = i ? 0 : big_workspace;
        result->algo.data[0] = MAGIC_ALGO;
        result->algo.data[1] = result->workspaceSize;
        result->wavesCount = 1;
    }
    return (cublasStatus_t)SUCCESS;
}

static void set_scaling(sim_job *job, const sim_desc *desc, const void *alpha, const void *beta)
{
    job->pointer_mode = desc->pointer_mode;
    job->scale = desc->scale;
    job->alpha_pointer = alpha;
    job->beta_pointer = beta;
    if (desc->pointer_mode != POINTERS_HOST)
        return;
    job->alpha = load(alpha, desc->scale, 0);
    job->beta = load(beta, desc->scale, 0);
}

/* Sets bias and auxiliary matrix of the epilogue. The bias is a column that is added to every column of D. */
static void set_epilogue(sim_job *job, const sim_desc *desc, const sim_layout *d)
{
    sim_layout aux = *d;
    job->epilogue = desc->epilogue;
    if (desc->epilogue & (EPILOGUE_BIAS | EPILOGUE_BGRAD | EPILOGUE_BGRADA | EPILOGUE_BGRADB))
        job->bias = (sim_operand){.data = desc->bias,
                                  .type = desc->bias_type < 0 ? (int)d->type : desc->bias_type,
                                  .row = 1,
                                  .batch = (size_t)desc->bias_stride};
    if (!(desc->epilogue & (EPILOGUE_AUX | EPILOGUE_DRELU | EPILOGUE_DGELU)))
        return;
    aux.ld = desc->aux_ld;
    aux.stride = desc->aux_stride;
    if (desc->aux_type >= 0)
        aux.type = (uint32_t)desc->aux_type;
    job->aux = operand_of(desc->aux, &aux, 0);
}

static int check_workspace(const cublasLtMatmulAlgo_t *algo, const void *workspace, size_t size)
{
    if (!algo)
        return SUCCESS;
    if (algo->data[0] != MAGIC_ALGO || algo->data[1] > size || (algo->data[1] && !workspace))
        return INVALID_VALUE;
    return (uintptr_t)workspace % 16 ? INVALID_VALUE : SUCCESS;
}

static int submit(sim_job *job, cudaStream_t stream)
{
    int capturing = 0;
    cuStreamIsCapturing(stream, &capturing);
    job->captured = capturing;
    keep_job(job);
    if (!cuLaunchHostFunc(stream, run_job, job))
        return SUCCESS;
    drop_job(job);
    return EXECUTION_FAILED;
}

SIM_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc_handle, const void *alpha,
                                      const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                                      cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                                      cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                                      const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_size,
                                      cudaStream_t stream)
{
    const sim_desc *desc = (sim_desc *)desc_handle;
    if (!is(handle, MAGIC_HANDLE))
        return (cublasStatus_t)NOT_INITIALIZED;
    if (!alpha || !beta || !a || !b || !d)
        return (cublasStatus_t)INVALID_VALUE;
    sim_job *job = calloc(1, sizeof *job);
    if (!job)
        return (cublasStatus_t)ALLOC_FAILED;
    int status = describe(desc, (sim_layout *)a_layout, (sim_layout *)b_layout, (sim_layout *)c_layout,
                          (sim_layout *)d_layout, job);
    if (!status && desc->pointer_mode != POINTERS_HOST && desc->pointer_mode != POINTERS_DEVICE)
        status = NOT_SUPPORTED;
    if (!status)
        status = check_workspace(algo, workspace, workspace_size);
    if (!status) {
        job->a = operand_of(a, (sim_layout *)a_layout, desc->transa);
        job->b = operand_of(b, (sim_layout *)b_layout, desc->transb);
        job->c = operand_of(c, (sim_layout *)c_layout, 0);
        job->d = operand_of(d, (sim_layout *)d_layout, 0);
        job->tf32 = desc->compute == COMPUTE_FAST_TF32;
        job->is_double = job->a.type == R_64F;
        job->vector_bytes = best_vector();
        set_scaling(job, desc, alpha, beta);
        set_epilogue(job, desc, (sim_layout *)d_layout);
        status = check_job_memory(job);
    }
    if (status)
        return free(job), (cublasStatus_t)status;
    return (cublasStatus_t)submit(job, stream);
}
