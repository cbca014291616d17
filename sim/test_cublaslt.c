// SPDX-License-Identifier: MIT
/*  test_cublaslt.c - checks of the simulator's libcublasLt against sums in double

        test_cublaslt [folder of the libraries]         default: ../build/sim
        test_cublaslt [folder of the libraries] speed   also times square products
*/
#include "test.h"

#include <math.h>

typedef struct {
    uint64_t data[8];
} algorithm;
typedef struct {
    algorithm algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} heuristic;

/* clang-format off */
#define LT_FUNCTIONS(X) \
    X(cublasLtCreate, (handle *)) X(cublasLtDestroy, (handle)) X(cublasLtMatmulDescCreate, (handle *, int, int)) \
    X(cublasLtMatmulDescDestroy, (handle)) X(cublasLtMatmulDescSetAttribute, (handle, int, const void *, size_t)) \
    X(cublasLtMatmulDescGetAttribute, (handle, int, void *, size_t, size_t *)) \
    X(cublasLtMatrixLayoutCreate, (handle *, int, uint64_t, uint64_t, int64_t)) \
    X(cublasLtMatrixLayoutDestroy, (handle)) X(cublasLtMatrixLayoutSetAttribute, (handle, int, const void *, size_t)) \
    X(cublasLtMatmulPreferenceCreate, (handle *)) X(cublasLtMatmulPreferenceDestroy, (handle)) \
    X(cublasLtMatmulPreferenceSetAttribute, (handle, int, const void *, size_t)) \
    X(cublasLtMatmulAlgoGetHeuristic, (handle, handle, handle, handle, handle, handle, handle, int, heuristic *, \
                                       int *)) \
    X(cublasLtMatmul, (handle, handle, const void *, ptr, handle, ptr, handle, const void *, ptr, handle, ptr, \
                       handle, const algorithm *, ptr, size_t, handle))
/* clang-format on */

LT_FUNCTIONS(DECLARE)

enum { R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14 };
enum { COMPUTE_16F = 64, COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_TF32 = 77 };
enum { RELU = 2, BIAS = 4, DRELU = 8, BGRAD = 16, GELU = 32, DGELU = 64, AUX = 128, BGRADA = 256, BGRADB = 512 };

static handle lt, stream;

/* >>numbers: conversions that are written differently from the library's */

static size_t type_size(int type) { return type == R_64F ? 8 : type == R_32F ? 4 : 2; }

static double read_16(unsigned bits, int exponent_bits, int fraction_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1, exponent = (int)(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    double fraction = bits & ((1u << fraction_bits) - 1), sign = bits >> 15 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return fraction != 0 ? NAN : sign * INFINITY;
    return exponent ? sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits)
                    : sign * ldexp(fraction, 1 - bias - fraction_bits);
}

static double get(const void *data, int type, size_t i)
{
    switch (type) {
    case R_64F: return ((const double *)data)[i];
    case R_16F: return read_16(((const uint16_t *)data)[i], 5, 10);
    case R_16BF: return read_16(((const uint16_t *)data)[i], 8, 7);
    default: return ((const float *)data)[i];
    }
}

/* Returns the nearest number of the type, by trying neighbours. */
static uint16_t to_16(double value, int type)
{
    uint16_t low = 0, high = type == R_16F ? 0x7BFF : 0x7F7F, sign = value < 0 ? 0x8000 : 0;
    double size = fabs(value);
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (get(&middle, type, 0) <= size)
            low = middle;
        else
            high = middle;
    }
    double below = size - get(&low, type, 0), above = get(&high, type, 0) - size;
    return (uint16_t)(sign | (above < below || (above == below && low & 1) ? high : low));
}

static void put(void *data, int type, size_t i, double value)
{
    switch (type) {
    case R_64F: ((double *)data)[i] = value; break;
    case R_32F: ((float *)data)[i] = (float)value; break;
    default: ((uint16_t *)data)[i] = to_16(value, type);
    }
}

/* Returns the bound of the error of one rounded result. */
static double tolerance(int type, int tf32)
{
    if (tf32)
        return 2e-3;
    return type == R_64F ? 1e-13 : type == R_32F ? 2e-6 : type == R_16F ? 1e-3 : 8e-3;
}

/* >>matrices */

typedef struct matrix {
    int type, row_order;
    size_t rows, cols, ld, batch, count; /* batch: elements from one to the next */
    char *host;
    ptr device;
    handle layout;
} matrix;

static unsigned seed = 1;

static double random_number(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) / (1 << 23) - 1;
}

static size_t at(const matrix *x, size_t batch, size_t i, size_t j)
{
    return batch * x->batch + (x->row_order ? i * x->ld + j : i + j * x->ld);
}

static matrix new_matrix(int type, int row_order, size_t rows, size_t cols, size_t count)
{
    matrix x = {.type = type, .row_order = row_order, .rows = rows, .cols = cols, .count = count};
    x.ld = (row_order ? cols : rows) + 3;
    x.batch = x.ld * (row_order ? rows : cols) + 5;
    size_t bytes = x.batch * count * type_size(type);
    x.host = malloc(bytes);
    for (size_t i = 0; i < x.batch * count; i++)
        put(x.host, type, i, random_number());
    OK(cuMemAlloc_v2(&x.device, bytes));
    OK(cuMemcpyHtoD_v2(x.device, x.host, bytes));
    OK(cublasLtMatrixLayoutCreate(&x.layout, type, rows, cols, (int64_t)x.ld));
    int32_t batches = (int32_t)count;
    int64_t stride = (int64_t)x.batch;
    OK(cublasLtMatrixLayoutSetAttribute(x.layout, 1, &row_order, 4));
    OK(cublasLtMatrixLayoutSetAttribute(x.layout, 5, &batches, 4));
    OK(cublasLtMatrixLayoutSetAttribute(x.layout, 6, &stride, 8));
    return x;
}

static void *result_of(const matrix *x)
{
    size_t bytes = x->batch * x->count * type_size(x->type);
    void *out = malloc(bytes);
    OK(cuMemcpyDtoH_v2(out, x->device, bytes));
    return out;
}

static void free_matrix(matrix *x)
{
    free(x->host);
    OK(cuMemFree_v2(x->device));
    OK(cublasLtMatrixLayoutDestroy(x->layout));
}

/* >>products */

typedef struct product {
    int type, out_type, compute, transa, transb, row_order;
    size_t m, n, k, batches;
    double alpha, beta;
    unsigned epilogue;
} product;

static double gelu(double x) { return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
static double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

static double reference(const product *p, const matrix *a, const matrix *b, const matrix *c, size_t batch, size_t i,
                        size_t j)
{
    double sum = 0;
    for (size_t q = 0; q < p->k; q++)
        sum += get(a->host, a->type, p->transa ? at(a, batch, q, i) : at(a, batch, i, q)) *
               get(b->host, b->type, p->transb ? at(b, batch, j, q) : at(b, batch, q, j));
    return p->alpha * sum + (p->beta != 0 ? p->beta * get(c->host, c->type, at(c, batch, i, j)) : 0);
}

static handle new_desc(const product *p, const matrix *bias, const matrix *aux)
{
    handle desc = NULL;
    int32_t transa = p->transa, transb = p->transb;
    int64_t aux_ld = (int64_t)aux->ld, aux_stride = (int64_t)aux->batch, bias_stride = (int64_t)bias->batch;
    OK(cublasLtMatmulDescCreate(&desc, p->compute,
                                p->compute == COMPUTE_64F   ? R_64F
                                : p->compute == COMPUTE_16F ? R_16F
                                                            : R_32F));
    OK(cublasLtMatmulDescSetAttribute(desc, 3, &transa, 4));
    OK(cublasLtMatmulDescSetAttribute(desc, 4, &transb, 4));
    OK(cublasLtMatmulDescSetAttribute(desc, 7, &p->epilogue, 4));
    OK(cublasLtMatmulDescSetAttribute(desc, 8, &bias->device, 8));
    OK(cublasLtMatmulDescSetAttribute(desc, 10, &bias_stride, 8));
    OK(cublasLtMatmulDescSetAttribute(desc, 11, &aux->device, 8));
    OK(cublasLtMatmulDescSetAttribute(desc, 12, &aux_ld, 8));
    OK(cublasLtMatmulDescSetAttribute(desc, 13, &aux_stride, 8));
    return desc;
}

static int near(double value, double expected, double bound)
{
    return fabs(value - expected) <= bound * (1 + fabs(expected));
}

/* Converts alpha and beta to the scale type. */
static void scale_of(const product *p, double value, void *out)
{
    put(out, p->compute == COMPUTE_64F ? R_64F : p->compute == COMPUTE_16F ? R_16F : R_32F, 0, value);
}

/* Counts wrong elements of D, and of what the epilogue writes besides. */
static size_t count_wrong(const product *p, const matrix *a, const matrix *b, const matrix *c, const matrix *d,
                          const matrix *bias, const matrix *aux)
{
    char *out = result_of(d), *aux_out = result_of(aux);
    double bound = tolerance(d->type, p->compute == COMPUTE_TF32) * sqrt((double)p->k + 1);
    size_t wrong = 0;
    for (size_t batch = 0; batch < p->batches; batch++)
        for (size_t i = 0; i < p->m; i++)
            for (size_t j = 0; j < p->n; j++) {
                double value = reference(p, a, b, c, batch, i, j),
                       before = get(aux->host, aux->type, at(aux, batch, i, j));
                if (p->epilogue & BIAS)
                    value += get(bias->host, bias->type, batch * bias->batch + i);
                if (p->epilogue & GELU && p->epilogue & AUX)
                    wrong += !near(get(aux_out, aux->type, at(aux, batch, i, j)), value, bound);
                if (p->epilogue & DGELU)
                    value *= gelu_slope(before);
                if (p->epilogue & GELU)
                    value = gelu(value);
                if (p->epilogue & RELU)
                    value = value > 0 ? value : 0;
                wrong += !near(get(out, d->type, at(d, batch, i, j)), value, bound);
            }
    free(out);
    free(aux_out);
    return wrong;
}

static void test_product(product p)
{
    double alpha, beta;
    char what[256];
    if (!p.batches)
        p.batches = 1;
    if (!p.epilogue)
        p.epilogue = 1;
    matrix a = new_matrix(p.type, p.row_order, p.transa ? p.k : p.m, p.transa ? p.m : p.k, p.batches);
    matrix b = new_matrix(p.type, p.row_order, p.transb ? p.n : p.k, p.transb ? p.k : p.n, p.batches);
    matrix c = new_matrix(p.out_type, p.row_order, p.m, p.n, p.batches),
           d = new_matrix(p.out_type, p.row_order, p.m, p.n, p.batches);
    matrix bias = new_matrix(p.out_type, 0, p.m > p.n ? p.m : p.n, 1, p.batches),
           aux = new_matrix(p.out_type, p.row_order, p.m, p.n, p.batches);
    handle desc = new_desc(&p, &bias, &aux);
    scale_of(&p, p.alpha, &alpha);
    scale_of(&p, p.beta, &beta);
    OK(cublasLtMatmul(lt, desc, &alpha, a.device, a.layout, b.device, b.layout, &beta, c.device, c.layout, d.device,
                      d.layout, NULL, 0, 0, stream));
    OK(cuStreamSynchronize(stream));
    size_t wrong = count_wrong(&p, &a, &b, &c, &d, &bias, &aux);
    snprintf(what, sizeof what,
             "%zu wrong: type %d to %d, compute %d, trans %d%d, row order %d, %zux%zux%zu x %zu, epilogue %u", wrong,
             p.type, p.out_type, p.compute, p.transa, p.transb, p.row_order, p.m, p.n, p.k, p.batches, p.epilogue);
    check(!wrong, what, __FILE__, __LINE__);
    matrix *all[] = {&a, &b, &c, &d, &bias, &aux};
    for (int i = 0; i < 6; i++)
        free_matrix(all[i]);
    OK(cublasLtMatmulDescDestroy(desc));
}

static void test_types_and_shapes(void)
{
    static const struct {
        int in, out, compute;
    } types[] = {{R_32F, R_32F, COMPUTE_32F},   {R_64F, R_64F, COMPUTE_64F}, {R_16F, R_16F, COMPUTE_32F},
                 {R_16BF, R_16BF, COMPUTE_32F}, {R_16F, R_32F, COMPUTE_32F}, {R_16BF, R_32F, COMPUTE_32F},
                 {R_32F, R_32F, COMPUTE_TF32},  {R_16F, R_16F, COMPUTE_16F}};
    static const struct {
        size_t m, n, k, batches;
    } sizes[] = {{1, 1, 1, 1}, {7, 5, 3, 2}, {100, 260, 70, 1}, {97, 33, 300, 3}};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int flags = 0; flags < 8; flags++)
                test_product((product){.type = types[t].in,
                                       .out_type = types[t].out,
                                       .compute = types[t].compute,
                                       .transa = flags & 1,
                                       .transb = flags >> 1 & 1,
                                       .row_order = flags >> 2,
                                       .m = sizes[s].m,
                                       .n = sizes[s].n,
                                       .k = sizes[s].k,
                                       .batches = sizes[s].batches,
                                       .alpha = 1.25,
                                       .beta = flags & 1 ? 0.5 : 0});
}

static void test_epilogues(void)
{
    static const unsigned epilogues[] = {BIAS,        RELU,       RELU | BIAS,       GELU,
                                         GELU | BIAS, GELU | AUX, GELU | AUX | BIAS, DGELU | AUX};
    for (size_t e = 0; e < sizeof epilogues / sizeof *epilogues; e++)
        for (int row_order = 0; row_order < 2; row_order++)
            for (int type = 0; type < 2; type++)
                test_product((product){.type = type ? R_16BF : R_32F,
                                       .out_type = type ? R_16BF : R_32F,
                                       .compute = COMPUTE_32F,
                                       .row_order = row_order,
                                       .m = 50,
                                       .n = 300,
                                       .k = 20,
                                       .batches = 2,
                                       .alpha = 1,
                                       .epilogue = epilogues[e]});
}

/* Checks sums that are written to the bias vector. */
static void test_bias_gradients(void)
{
    static const unsigned epilogues[] = {BGRADA, BGRADB, DGELU | AUX | BGRAD};
    float one = 1, zero = 0;
    for (size_t e = 0; e < 3; e++) {
        product p = {.type = R_32F,
                     .compute = COMPUTE_32F,
                     .m = 9,
                     .n = 11,
                     .k = 6,
                     .batches = 1,
                     .alpha = 1,
                     .epilogue = epilogues[e]};
        matrix a = new_matrix(R_32F, 0, 9, 6, 1), b = new_matrix(R_32F, 0, 6, 11, 1),
               d = new_matrix(R_32F, 0, 9, 11, 1);
        matrix bias = new_matrix(R_32F, 0, 11, 1, 1), aux = new_matrix(R_32F, 0, 9, 11, 1);
        handle desc = new_desc(&p, &bias, &aux);
        OK(cublasLtMatmul(lt, desc, &one, a.device, a.layout, b.device, b.layout, &zero, d.device, d.layout, d.device,
                          d.layout, NULL, 0, 0, stream));
        OK(cuStreamSynchronize(stream));
        char *sums = result_of(&bias), *out = result_of(&d);
        size_t rows = e == 1 ? 11 : 9, cols = e == 2 ? 11 : 6;
        for (size_t i = 0; i < rows; i++) {
            double sum = 0;
            for (size_t j = 0; j < cols; j++)
                sum += e == 0   ? get(a.host, R_32F, at(&a, 0, i, j))
                       : e == 1 ? get(b.host, R_32F, at(&b, 0, j, i))
                                : get(out, R_32F, at(&d, 0, i, j));
            CHECK(near(get(sums, R_32F, i), sum, 1e-5));
        }
        free(sums);
        free(out);
        matrix *all[] = {&a, &b, &d, &bias, &aux};
        for (int i = 0; i < 5; i++)
            free_matrix(all[i]);
        OK(cublasLtMatmulDescDestroy(desc));
    }
}

/* Checks that the gradient of ReLU reads the mask that ReLU has written. */
static void test_relu_mask(void)
{
    float one = 1, zero = 0;
    product p = {.type = R_32F, .compute = COMPUTE_32F, .m = 20, .n = 6, .k = 4, .batches = 1, .epilogue = RELU | AUX};
    matrix a = new_matrix(R_32F, 0, 20, 4, 1), b = new_matrix(R_32F, 0, 4, 6, 1), d = new_matrix(R_32F, 0, 20, 6, 1);
    matrix g = new_matrix(R_32F, 0, 20, 6, 1),
           mask = new_matrix(R_32F, 0, 125, 1, 1); /* a leading dimension of 128 bits */
    handle forward = new_desc(&p, &mask, &mask);
    p.epilogue = DRELU | AUX;
    handle backward = new_desc(&p, &mask, &mask);
    OK(cublasLtMatmul(lt, forward, &one, a.device, a.layout, b.device, b.layout, &zero, d.device, d.layout, d.device,
                      d.layout, NULL, 0, 0, stream));
    OK(cublasLtMatmul(lt, backward, &one, a.device, a.layout, b.device, b.layout, &zero, g.device, g.layout, g.device,
                      g.layout, NULL, 0, 0, stream));
    OK(cuStreamSynchronize(stream));
    char *x = result_of(&d), *y = result_of(&g);
    CHECK(!memcmp(x, y, 4 * 20));
    matrix *all[] = {&a, &b, &d, &g, &mask};
    for (int i = 0; i < 5; i++)
        free_matrix(all[i]);
    OK(cublasLtMatmulDescDestroy(forward));
    OK(cublasLtMatmulDescDestroy(backward));
    free(x);
    free(y);
}

/* Checks that every half and bfloat16 survives a product with 1, and that rounding is to nearest even. */
static void test_conversions(void)
{
    static const int types[] = {R_16F, R_16BF};
    float one = 1, zero = 0;
    for (int t = 0; t < 2; t++) {
        product p = {.type = types[t], .compute = COMPUTE_32F, .batches = 1, .epilogue = 1};
        matrix a = new_matrix(types[t], 0, 65536, 1, 1), b = new_matrix(types[t], 0, 1, 1, 1),
               d = new_matrix(types[t], 0, 65536, 1, 1);
        handle desc = new_desc(&p, &a, &a);
        for (unsigned i = 0; i < 65536; i++)
            ((uint16_t *)(void *)a.host)[i] = (uint16_t)i;
        put(b.host, types[t], 0, 1);
        OK(cuMemcpyHtoD_v2(a.device, a.host, 2 * 65536));
        OK(cuMemcpyHtoD_v2(b.device, b.host, 2));
        OK(cublasLtMatmul(lt, desc, &one, a.device, a.layout, b.device, b.layout, &zero, d.device, d.layout, d.device,
                          d.layout, NULL, 0, 0, stream));
        uint16_t *out = result_of(&d);
        unsigned wrong = 0;
        for (unsigned i = 0; i < 65536; i++) {
            double x = get(a.host, types[t], i), y = get(out, types[t], i);
            wrong += isnan(x) ? !isnan(y) : x != y;
        }
        CHECK(!wrong);
        free(out);
        float scale = 1 + 1.0f / 4096; /* between two numbers: the nearest is expected */
        OK(cublasLtMatmul(lt, desc, &scale, a.device, a.layout, b.device, b.layout, &zero, d.device, d.layout, d.device,
                          d.layout, NULL, 0, 0, stream));
        out = result_of(&d);
        wrong = 0;
        unsigned largest = types[t] == R_16F ? 0x7BFE : 0x7F7E;
        for (unsigned i = 0; i < largest; i++)
            wrong += out[i] != to_16((float)(get(a.host, types[t], i) * (double)scale), types[t]);
        CHECK(!wrong);
        free(out);
        free_matrix(&a), free_matrix(&b), free_matrix(&d);
        OK(cublasLtMatmulDescDestroy(desc));
    }
}

static void test_heuristics_and_errors(void)
{
    float one = 1, zero = 0;
    heuristic results[4];
    int count = -1;
    uint64_t allowed = 32 << 20;
    int32_t bad_batches = 2;
    handle preference = NULL;
    ptr workspace = 0;
    product p = {.type = R_32F, .compute = COMPUTE_32F, .batches = 1, .epilogue = 1};
    matrix a = new_matrix(R_32F, 0, 8, 6, 1), b = new_matrix(R_32F, 0, 6, 4, 1), d = new_matrix(R_32F, 0, 8, 4, 1);
    handle desc = new_desc(&p, &a, &a);
    OK(cublasLtMatmulPreferenceCreate(&preference));
    OK(cublasLtMatmulAlgoGetHeuristic(lt, desc, a.layout, b.layout, d.layout, d.layout, preference, 4, results,
                                      &count));
    CHECK(count == 1 && results[0].workspace == 0);
    OK(cublasLtMatmulPreferenceSetAttribute(preference, 1, &allowed, 8));
    CODE(7, cublasLtMatmulPreferenceSetAttribute(preference, 1, &allowed, 4));
    OK(cublasLtMatmulAlgoGetHeuristic(lt, desc, a.layout, b.layout, d.layout, d.layout, preference, 4, results,
                                      &count));
    CHECK(count == 2 && results[0].workspace > 0 && results[1].workspace == 0);
    OK(cuMemAlloc_v2(&workspace, results[0].workspace));
#define MATMUL(A, layout_b, algo, space, bytes)                                                                    \
    cublasLtMatmul(lt, desc, &one, A, a.layout, b.device, layout_b, &zero, d.device, d.layout, d.device, d.layout, \
                   algo, space, bytes, stream)
    OK(MATMUL(a.device, b.layout, &results[0].algo, workspace, results[0].workspace));
    CODE(7, MATMUL(a.device, b.layout, &results[0].algo, workspace, results[0].workspace - 1));
    CODE(7, MATMUL(a.device, b.layout, &results[0].algo, 0, results[0].workspace));
    CODE(7, MATMUL(a.device, d.layout, NULL, 0, 0));        /* sizes that do not match */
    CODE(7, MATMUL(a.device + 4096, b.layout, NULL, 0, 0)); /* not allocated */
    OK(cublasLtMatrixLayoutSetAttribute(b.layout, 5, &bad_batches, 4));
    CODE(7, MATMUL(a.device, b.layout, NULL, 0, 0));
    CODE(1, cublasLtMatmulAlgoGetHeuristic(NULL, desc, a.layout, b.layout, d.layout, d.layout, preference, 1, results,
                                           &count));
    OK(cublasLtMatmulPreferenceDestroy(preference));
    OK(cuMemFree_v2(workspace));
    OK(cublasLtMatmulDescDestroy(desc));
    free_matrix(&a), free_matrix(&b), free_matrix(&d);
}

/* Checks that a captured product reads its operands anew each time, and its scaling factors as they were. */
static void test_graph(void)
{
    float one = 1, zero = 0, three = 3, out = 0;
    handle graph = NULL, exec = NULL;
    product p = {.type = R_32F, .compute = COMPUTE_32F, .batches = 1, .epilogue = 1};
    matrix a = new_matrix(R_32F, 0, 1, 1, 1), b = new_matrix(R_32F, 0, 1, 1, 1), d = new_matrix(R_32F, 0, 1, 1, 1);
    handle desc = new_desc(&p, &a, &a);
    OK(cuStreamBeginCapture_v2(stream, 0));
    OK(MATMUL(a.device, b.layout, NULL, 0, 0));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    one = 7;
    OK(cuMemcpyHtoD_v2(b.device, &three, 4));
    for (float x = 1; x < 4; x++) {
        OK(cuMemcpyHtoD_v2(a.device, &x, 4));
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH_v2(&out, d.device, 4));
        CHECK(out == 3 * x);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cublasLtMatmulDescDestroy(desc));
    free_matrix(&a), free_matrix(&b), free_matrix(&d);
}

static void time_products(void)
{
    static const struct {
        int type;
        const char *name;
    } types[] = {{R_32F, "f32"}, {R_64F, "f64"}, {R_16BF, "bf16"}};
    for (int t = 0; t < 3; t++)
        for (size_t n = 128; n <= 1024; n *= 2) {
            double one = 1, zero = 0, best = 1e9;
            product p = {
                .type = types[t].type, .compute = t == 1 ? COMPUTE_64F : COMPUTE_32F, .batches = 1, .epilogue = 1};
            if (t != 1)
                scale_of(&p, 1, &one), scale_of(&p, 0, &zero);
            matrix a = new_matrix(types[t].type, 0, n, n, 1), b = new_matrix(types[t].type, 0, n, n, 1),
                   d = new_matrix(types[t].type, 0, n, n, 1);
            handle desc = new_desc(&p, &a, &a);
            for (int i = 0; i < 5; i++) {
                double start = seconds();
                OK(MATMUL(a.device, b.layout, NULL, 0, 0));
                OK(cuStreamSynchronize(stream));
                if (seconds() - start < best)
                    best = seconds() - start;
            }
            printf("%-5s %5zu  %8.1f GFLOP/s\n", types[t].name, n, 2e-9 * (double)(n * n * n) / best);
            OK(cublasLtMatmulDescDestroy(desc));
            free_matrix(&a), free_matrix(&b), free_matrix(&d);
        }
}

int main(int argc, char **argv)
{
    handle context = NULL;
    if (argc > 1)
        folder = argv[1];
    load_driver();
    void *library = need_library("libcublasLt.so");
    LT_FUNCTIONS(LOAD)
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 1));
    OK(cublasLtCreate(&lt));
    test_types_and_shapes();
    test_epilogues();
    test_bias_gradients();
    test_relu_mask();
    test_conversions();
    test_heuristics_and_errors();
    test_graph();
    if (argc > 2 && !strcmp(argv[2], "speed"))
        time_products();
    OK(cublasLtDestroy(lt));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    return report();
}
