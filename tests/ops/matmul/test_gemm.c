// SPDX-License-Identifier: MIT
/*  test_gemm.c - Ignis' own kernels of matrix products: every type, transposition, batch and odd size, splits of k, and
    what is done to a product before it is stored, against sums in double */
#include "hook.h"
#include "tensor.h"
#include <math.h>
#include <pthread.h>
#include <time.h>

static const char *const dtype_names[] = {"default", "f16", "bf16", "f32", "f64"};

typedef struct scenario {
    int64_t m, n, k, batch; /* batch 0: one matrix; below 0: so many, that share b */
    int transpose_a, transpose_b;
    bool bias, pre, residual, accumulate, row_sums, column_sums, gradient;
    int activation;
    double factor;
    int64_t offset; /* elements between the begin of the memory and that of a, b and out: 1 and 2 are no whole packs */
} scenario;

static scenario plain(int64_t m, int64_t n, int64_t k)
{
    scenario s;
    memset(&s, 0, sizeof s);
    s.m = m, s.n = n, s.k = k;
    return s;
}

enum { A, B, OUT, BIAS, PRE, RESIDUAL, ROW_SUMS, COLUMN_SUMS, ARRAYS };

/*  The tensors of a scenario, all filled, and what is in them as double. */
typedef struct operands {
    ignis_tensor tensor[ARRAYS], whole[ARRAYS];
    double *values[ARRAYS];
} operands;

static int64_t batches_of(const scenario *s) { return s->batch ? s->batch < 0 ? -s->batch : s->batch : 1; }

static operands operands_make(const scenario *s, ignis_dtype dtype)
{
    int64_t batch = batches_of(s), out = batch * s->m * s->n, counts[ARRAYS];
    operands o;
    int i;
    counts[A] = batch * s->m * s->k, counts[B] = (s->batch < 0 ? 1 : batch) * s->k * s->n, counts[BIAS] = s->n;
    counts[OUT] = counts[PRE] = counts[RESIDUAL] = s->activation == IGNIS__ACTIVATION_GATED ? 2 * out : out,
    counts[ROW_SUMS] = s->m, counts[COLUMN_SUMS] = s->n;
    for (i = 0; i < ARRAYS; i++) {
        ignis_array view;
        o.whole[i] = tensor_noise(IGNIS_SHAPE(counts[i] + s->offset), dtype, (uint64_t)i + 1, false);
        view = ignis_array_slice(ignis_tensor_data(o.whole[i]), 0, s->offset, counts[i]);
        o.tensor[i] = ignis_tensor_from_array(view, false);
        drop(view);
        o.values[i] = tensor_values(o.tensor[i]);
    }
    return o;
}

static void operands_free(operands *o)
{
    int i;
    for (i = 0; i < ARRAYS; i++) {
        free(o->values[i]);
        let_go(o->tensor[i]), let_go(o->whole[i]);
    }
}

/*  Few processors: large tiles. Many: small ones, and k is split. NO_WGMMA is added where 16-bit types are to take
    mma.sync. */
enum { FEW = 1, MANY = 132, NO_WGMMA = 1 << 10 };

/*  Runs it into the tensors OUT, PRE and the sums. `processors`: that the device is said to have, which decides about
    tiles and splits. */
static bool run(scenario *s, const operands *o, ignis_dtype dtype, int processors)
{
    ignis__product product;
    ignis__epilogue epilogue;
    ignis__op op;
    ignis_device_info before;
    char encode[sizeof ignis__cuda.cuTensorMapEncodeTiled];
    if (!ignis__op_begin(&op, "test", ARRAYS, o->tensor))
        return false;
    memset(&product, 0, sizeof product);
    memset(&epilogue, 0, sizeof epilogue);
    product.m = s->m, product.n = s->n, product.k = s->k, product.batch = batches_of(s);
    product.batch_a = s->m * s->k, product.batch_b = s->batch < 0 ? 0 : s->k * s->n;
    product.transpose_a = s->transpose_a, product.transpose_b = s->transpose_b, product.dtype = (int)dtype;
    epilogue.bias = s->bias ? op.in[BIAS] : NULL;
    epilogue.pre = s->pre ? op.in[PRE] : NULL;
    epilogue.residual = s->residual ? op.in[RESIDUAL] : NULL;
    epilogue.row_sums = s->row_sums ? op.in[ROW_SUMS] : NULL;
    epilogue.column_sums = s->column_sums ? op.in[COLUMN_SUMS] : NULL;
    epilogue.factor = s->factor;
    epilogue.activation = s->activation, epilogue.gradient = s->gradient, epilogue.accumulate = s->accumulate;
    if (s->activation == IGNIS__ACTIVATION_GATED)
        epilogue.pre = op.in[PRE], epilogue.keeps = s->pre && !s->gradient;
    before = op.work.device->info;
    op.work.device->info.multiprocessors = processors & ~NO_WGMMA;
    memcpy(encode, &ignis__cuda.cuTensorMapEncodeTiled, sizeof encode);
    if (processors & NO_WGMMA)
        memset(&ignis__cuda.cuTensorMapEncodeTiled, 0, sizeof encode); /* as a driver without it */
    if (!ignis__matmul_run(&op, &product, op.in[OUT], op.in[A], op.in[B], &epilogue)) {
        CHECK(!s->row_sums || ignis__allow_tf32 ||
              ignis__matmul_backend == IGNIS_MATMUL_CUBLASLT); /* who leave them to the caller */
        s->row_sums = false;
    }
    op.work.device->info = before;
    memcpy(&ignis__cuda.cuTensorMapEncodeTiled, encode, sizeof encode);
    return ignis__op_leave(&op) == IGNIS_OK;
}

static double unit_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64   ? ldexp(1, -53)
           : dtype == IGNIS_F32 ? ldexp(1, -24)
           : dtype == IGNIS_F16 ? ldexp(1, -11)
                                : ldexp(1, -8);
}

static double activate(int activation, double x)
{
    double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    return activation == IGNIS_ACTIVATION_RELU   ? x < 0 ? 0 : x
           : activation == IGNIS_ACTIVATION_GELU ? 0.5 * x * (1 + tanh(u))
                                                 : x;
}

static double slope(int activation, double x)
{
    double c = 0.79788456080286535588, t = tanh(c * (x + 0.044715 * x * x * x));
    return activation == IGNIS_ACTIVATION_RELU ? x > 0
                                               : 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

static void compare(const char *what, const scenario *s, ignis_dtype dtype, int64_t i, double got, double expected,
                    double bound)
{
    char text[400];
    if (fabs(got - expected) <= bound)
        return;
    snprintf(
        text, sizeof text,
        "%s of %s m %lld n %lld k %lld batch %lld, transposed %d %d, element %lld: %.9g, expected %.9g within %.3g",
        what, dtype_names[dtype], (long long)s->m, (long long)s->n, (long long)s->k, (long long)s->batch,
        s->transpose_a, s->transpose_b, (long long)i, got, expected, bound);
    test__fail(__FILE__, __LINE__, text);
}

/*  An element of a gated product, where the sum is x, of which the error is no more than bound: out and pre have the
    gate's half first. */
static void compare_gated(const scenario *s, ignis_dtype dtype, int64_t at, double x, double bound,
                          const double *before, const double *out, const double *pre)
{
    int64_t second = s->m * s->n + at;
    double gate = before[at], sigmoid = 1 / (1 + exp(-gate)), silu = gate * sigmoid, unit = unit_of(dtype);
    double own =
        dtype == IGNIS_F64 ? 1e-14 : 1e-6; /* of the functions of the gate, which are not larger than 2 + |gate| */
    if (s->gradient) {
        double by_gate = before[second] * sigmoid * (1 + gate * (1 - sigmoid)), dgate = x * by_gate, dup = x * silu;
        double most = 2 + fabs(gate), up = 1 + fabs(before[second]);
        compare("dgate", s, dtype, at, out[at], dgate,
                unit * fabs(dgate) * 1.01 + (bound + own * fabs(x)) * most * up + own * own);
        compare("dup", s, dtype, at, out[second], dup,
                unit * fabs(dup) * 1.01 + (bound + own * fabs(x)) * most + own * own);
    } else {
        double kept = unit * fabs(x) * 1.01 + bound; /* what is times the gate was rounded */
        compare("gated", s, dtype, at, out[at], silu * x,
                unit * fabs(silu * x) * 1.01 + (kept + own * fabs(x)) * (1 + fabs(gate)) + own * own);
        if (s->pre)
            compare("kept", s, dtype, at, pre[second], x, kept);
        compare("the gate", s, dtype, at, pre[at], gate, 0);
    }
    if (s->gradient || !s->pre)
        compare("what is behind the gate", s, dtype, at, pre[second], before[second], 0);
}

/*  Compares everything that a scenario gives with sums in double. Stops at the first failure.
    `rounding`: of the factors, or of the product before more is done to it. */
OPTIMIZED static void check_rounding(scenario s, ignis_dtype dtype, int processors, double rounding)
{
    operands o = operands_make(&s, dtype);
    double unit = unit_of(dtype), sums = dtype == IGNIS_F64 ? ldexp(1, -53) : ldexp(1, -24),
           gelu = dtype == IGNIS_F64 ? 1e-9 : 1e-6;
    double *out, *pre, *row_sums, *column_sums, *columns = (double *)calloc((size_t)s.n + 1, sizeof *columns);
    int64_t b, i, j, l, batch = batches_of(&s);
    int failures = test__state.failures;
    CHECK(run(&s, &o, dtype, processors));
    out = tensor_values(o.tensor[OUT]), pre = tensor_values(o.tensor[PRE]);
    row_sums = tensor_values(o.tensor[ROW_SUMS]), column_sums = tensor_values(o.tensor[COLUMN_SUMS]);
    for (b = 0; b < batch; b++) {
        const double *av = o.values[A] + b * s.m * s.k, *bv = o.values[B] + (s.batch < 0 ? 0 : b * s.k * s.n);
        for (i = 0; i < s.m && failures == test__state.failures; i++) {
            double row_sum = 0;
            for (l = 0; l < s.k; l++)
                row_sum += s.transpose_a ? av[l * s.m + i] : av[i * s.k + l];
            for (j = 0; j < s.n && failures == test__state.failures; j++) {
                int64_t at = (b * s.m + i) * s.n + j;
                double x = 0, size = 1, bound;
                for (l = 0; l < s.k; l++)
                    x += (s.transpose_a ? av[l * s.m + i] : av[i * s.k + l]) *
                         (s.transpose_b ? bv[j * s.k + l] : bv[l * s.n + j]),
                        size += 1;
                x = (s.factor != 0 ? s.factor : 1) * x + (s.bias ? o.values[BIAS][j] : 0);
                bound = sums * size * size + rounding * 4 * sqrt(size);
                if (s.activation == IGNIS__ACTIVATION_GATED) {
                    compare_gated(&s, dtype, at, x, bound + (rounding > 0 ? unit * fabs(x) : 0), o.values[PRE], out,
                                  pre);
                    continue;
                }
                if (s.activation && s.gradient) {
                    x *= slope(s.activation, o.values[PRE][at]);
                } else if (s.activation) {
                    if (s.pre)
                        compare("pre", &s, dtype, at, pre[at], x, unit * fabs(x) * 1.01 + bound);
                    bound += unit * fabs(x) * 1.2 + gelu; /* what is activated was rounded */
                    x = activate(s.activation, x);
                }
                bound = 1.2 * bound + gelu * fabs(x) * (s.activation != 0);
                x += s.residual ? o.values[RESIDUAL][at] : 0;
                columns[j] += x;
                x += s.accumulate ? o.values[OUT][at] : 0;
                compare("out", &s, dtype, at, out[at], x, bound + unit * fabs(x) * 1.01 + sums * 4);
            }
            if (s.row_sums)
                compare("row sum", &s, dtype, i, row_sums[i], row_sum,
                        unit * fabs(row_sum) * 1.01 + sums * (double)(s.k * s.k));
        }
    }
    for (j = 0; s.column_sums && j < s.n && failures == test__state.failures; j++)
        compare("column sum", &s, dtype, j, column_sums[j], columns[j],
                unit * fabs(columns[j]) * 1.01 +
                    (double)s.m * (sums * (double)(s.k * s.k + s.m * 8) + (s.activation ? unit * 2 : 0)));
    free(out), free(pre), free(row_sums), free(column_sums), free(columns);
    operands_free(&o);
}

static void check(scenario s, ignis_dtype dtype, int processors) { check_rounding(s, dtype, processors, 0); }

/*  f32 by tensor cores: each factor is rounded to 11 bits. */
static void check_tf32(scenario s, int processors) { check_rounding(s, IGNIS_F32, processors, ldexp(1, -11)); }

static void own_setup(ignis_desc *desc)
{
    *desc = test_desc(NULL);
    desc->matmul = IGNIS_MATMUL_OWN;
}

#define SETUP_OWN()   \
    ignis_desc desc;  \
    own_setup(&desc); \
    SETUP(&desc)

TEST(every_type_and_transposition)
{
    static const int64_t sizes[][3] = {{1, 1, 1},     {1, 70, 3},    {67, 1, 31},   {65, 129, 33},
                                       {131, 67, 97}, {128, 64, 64}, {136, 72, 40}, {200, 328, 136}};
    int d, i, way;
    SETUP_OWN();
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(sizes); i++)
            for (way = 0; way < 4; way++) {
                scenario s = plain(sizes[i][0], sizes[i][1], sizes[i][2]);
                s.transpose_a = way % 2, s.transpose_b = way / 2;
                if (!test_takes(float_dtypes[d], way % 2 + way / 2))
                    continue;
                check(s, float_dtypes[d], MANY);
                check(s, float_dtypes[d], FEW);
                if (float_dtypes[d] == IGNIS_F16 || float_dtypes[d] == IGNIS_BF16) {
                    check(s, float_dtypes[d], NO_WGMMA | MANY);
                    check(s, float_dtypes[d], NO_WGMMA | FEW);
                }
            }
}

TEST(tf32_where_it_is_allowed)
{
    static const int64_t sizes[][3] = {{1, 70, 3}, {65, 130, 33}, {128, 64, 64}, {19, 40, 1100}};
    int i, way;
    ignis_desc desc;
    own_setup(&desc);
    desc.allow_tf32 = true;
    SETUP(&desc);
    for (i = 0; i < COUNT_OF(sizes); i++)
        for (way = 0; way < 4; way++) {
            scenario s = plain(sizes[i][0], sizes[i][1], sizes[i][2]);
            s.transpose_a = way % 2, s.transpose_b = way / 2, s.offset = i == 2 ? way % 2 : 0;
            s.bias = true;
            check_tf32(s, MANY);
            check_tf32(s, FEW);
        }
}

TEST(batches_and_a_shared_matrix)
{
    int d, way;
    SETUP_OWN();
    for (d = 0; d < 4; d++)
        for (way = 0; way < 8; way++) {
            scenario s = plain(33, 17, 24);
            s.batch = way / 4 ? -3 : 3, s.transpose_a = way % 2, s.transpose_b = way / 2 % 2;
            check(s, float_dtypes[d], way % 2 ? FEW : MANY);
            if (d >= 2) { /* large enough for wgmma */
                s.m = 72, s.n = 80;
                check(s, float_dtypes[d], way % 2 ? FEW : MANY);
            }
        }
}

TEST(memory_that_is_not_aligned_to_packs)
{
    static const int64_t offsets[] = {1, 2, 4};
    int d, i, way;
    SETUP_OWN();
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(offsets); i++)
            for (way = 0; way < 4; way++) {
                scenario s = plain(72, 80, 48);
                s.offset = offsets[i], s.transpose_a = way % 2, s.transpose_b = way / 2;
                s.bias = s.residual = true;
                check(s, float_dtypes[d], MANY);
            }
}

/*  Rows that are no packs: operands are copied for tensor cores, both or one of them, or are too large for that. */
TEST(rows_that_are_no_packs)
{
    static const int64_t sizes[][3] = {{33, 64, 45}, {40, 131, 64}, {77, 83, 61}, {5, 129, 1301}};
    int64_t limit = ignis__gemm_pack_limit;
    int d, i, way;
    SETUP_OWN();
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(sizes); i++)
            for (way = 0; way < 8; way++) {
                scenario s = plain(sizes[i][0], sizes[i][1], sizes[i][2]);
                s.transpose_a = way % 2, s.transpose_b = way / 2 % 2, s.batch = way < 4 ? 0 : i % 2 ? 2 : -2;
                s.bias = true, s.row_sums = s.column_sums = !s.batch;
                check(s, float_dtypes[d], MANY | (i % 2 ? NO_WGMMA : 0));
                ignis__gemm_pack_limit = 0;
                check(s, float_dtypes[d], i % 2 ? FEW : MANY);
                ignis__gemm_pack_limit = limit;
            }
}

TEST(a_long_sum_is_split)
{
    int d, way;
    SETUP_OWN();
    for (d = 0; d < 4; d++)
        for (way = 0; way < 4; way++) {
            scenario s = plain(19, 40, 1801);
            s.transpose_a = way % 2, s.transpose_b = way / 2;
            s.bias = s.residual = s.row_sums = s.column_sums = way >= 2;
            s.batch = way == 1 ? 2 : 0;
            check(s, float_dtypes[d], MANY);
            if (d >= 2 && way < 3) {
                s.m = 72, s.n = 136, s.k = 1096;
                check(s, float_dtypes[d], MANY);
            }
        }
}

/*  Each part of what is done to a product alone, and all of them together. */
static void check_epilogues(int64_t m, int64_t n, int64_t k, int processors)
{
    int d, part;
    for (d = 0; d < 4; d++)
        for (part = 0; part < 11; part++) {
            scenario s = plain(m, n, k);
            s.transpose_a = part % 2, s.transpose_b = part / 2 % 2;
            s.bias = part == 0 || part >= 7, s.residual = part == 1 || part >= 9, s.accumulate = part == 2 || part >= 9;
            s.row_sums = part == 3 || part >= 9, s.column_sums = part == 4 || part >= 5;
            s.activation = part == 5 || part == 7 || part == 9 ? IGNIS_ACTIVATION_RELU
                           : part >= 5                         ? IGNIS_ACTIVATION_GELU
                                                               : 0;
            s.factor = part == 1 || part >= 9 ? 0.75 : 0;
            s.gradient = part == 5 || part == 6, s.pre = part >= 5 && part != 8;
            if (test_takes(float_dtypes[d], part + part / 2 + processors / FEW))
                check(s, float_dtypes[d], processors);
        }
}

/*  The second products of gated layers, and the products that lead back to them: way 0 and 1 are forward, 1 keeps. */
static scenario gated(int64_t m, int64_t n, int64_t k, int way)
{
    scenario s = plain(m, n, k);
    s.activation = IGNIS__ACTIVATION_GATED;
    s.transpose_b = way < 2, s.pre = way == 1, s.gradient = way == 2;
    return s;
}

TEST(gated_products)
{
    static const int64_t sizes[][3] = {{1, 1, 1},   {19, 32, 40},  {65, 131, 33},
                                       {77, 48, 0}, {9, 21, 1100}, {136, 200, 72}};
    int d, i, way;
    SETUP_OWN();
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(sizes); i++)
            for (way = 0; way < 3; way++) {
                scenario s = gated(sizes[i][0], sizes[i][1], sizes[i][2], way);
                check(s, float_dtypes[d], MANY);
                check(s, float_dtypes[d], FEW);
                if (float_dtypes[d] == IGNIS_F16 || float_dtypes[d] == IGNIS_BF16)
                    check(s, float_dtypes[d], NO_WGMMA | FEW);
                s.offset = 1 + i % 2;
                check(s, float_dtypes[d], MANY);
            }
}

TEST(what_is_done_to_a_product)
{
    int d, part;
    SETUP_OWN();
    check_epilogues(77, 48, 40, MANY);
    check_epilogues(35, 131, 24, FEW);
    check_epilogues(9, 21, 1100, MANY);
    check_epilogues(136, 200, 72, MANY);
    for (d = 0; d < 4; d++) /* what wgmma's kernel does in registers */
        for (part = 0; part < 8; part++) {
            scenario s = plain(150, 200, 72);
            s.transpose_b = part % 2, s.bias = part != 2, s.pre = part > 3 && part % 2;
            s.activation = part == 0 ? 0 : part % 3 == 0 ? IGNIS_ACTIVATION_RELU : IGNIS_ACTIVATION_GELU;
            s.batch = part == 6 ? 2 : 0;
            if (test_takes(float_dtypes[d], part + part / 2))
                check(s, float_dtypes[d], part % 4 < 2 ? FEW : MANY);
        }
    for (d = 2; d < 4; d++) /* many steps of k, several tiles for a block: its warpgroups drift apart */
        for (part = 0; part < 6; part++) {
            scenario s = plain(200, part == 4 ? 720 : 520, 328);
            s.transpose_a = part == 3, s.transpose_b = part < 3, s.bias = part == 0 || part == 2,
            s.pre = part == 0 || part > 3;
            s.activation = part < 2 || part == 4 ? IGNIS_ACTIVATION_GELU : part == 5 ? IGNIS_ACTIVATION_RELU : 0;
            s.residual = part == 2, s.accumulate = s.row_sums = part == 3;
            s.gradient = part > 3, s.column_sums = part == 4;
            if (test_takes(float_dtypes[d], part))
                check(s, float_dtypes[d], FEW);
        }
}

/*  cuBLASLt's products get the same done to them by a pass of their own. */
TEST(what_is_done_to_a_product_of_cublaslt)
{
    ignis_desc desc = test_desc(NULL);
    ignis_library_info info;
    int d, part;
    desc.matmul = IGNIS_MATMUL_CUBLASLT;
    SETUP(&desc);
    if (ignis_library_query(IGNIS_LIBRARY_CUBLASLT, &info) != IGNIS_OK) {
        ignis_status_clear();
        SKIP("there is no cuBLASLt");
    }
    for (d = 0; d < 4; d++)
        for (part = 0; part < 4; part++) {
            scenario s = plain(21, 16, part == 3 ? 0 : 24);
            s.bias = s.pre = s.column_sums = true;
            s.activation = part % 2 ? IGNIS_ACTIVATION_RELU : IGNIS_ACTIVATION_GELU;
            s.residual = s.accumulate = part >= 2;
            s.factor = part == 1 ? 0.75 : 0;
            s.offset = part == 2; /* no packs */
            check_rounding(s, float_dtypes[d], MANY, unit_of(float_dtypes[d]));
        }
    for (d = 0; d < 4; d++)
        for (part = 0; part < 6; part++) {
            scenario s = gated(21, part < 3 ? 16 : 35, 24, part % 3);
            s.offset = part == 4;
            check_rounding(s, float_dtypes[d], MANY, unit_of(float_dtypes[d]));
        }
}

TEST(sums_over_nothing)
{
    int d;
    SETUP_OWN();
    for (d = 0; d < 4; d++) {
        scenario s = plain(5, 9, 0);
        s.bias = s.residual = s.row_sums = s.column_sums = true;
        check(s, float_dtypes[d], MANY);
    }
}

TEST(the_same_bits_every_time)
{
    static const int64_t sizes[][3] = {{70, 90, 50}, {17, 20, 1500}};
    int d, i, again;
    SETUP_OWN();
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(sizes); i++) {
            scenario s = plain(sizes[i][0], sizes[i][1], sizes[i][2]);
            operands o;
            double *first[ARRAYS];
            s.bias = s.row_sums = s.column_sums = true;
            o = operands_make(&s, float_dtypes[d]);
            for (again = 0; again < 4; again++) {
                int which;
                CHECK(run(&s, &o, float_dtypes[d], MANY));
                for (which = OUT; which < ARRAYS; which++) {
                    double *now = tensor_values(o.tensor[which]);
                    if (again == 0)
                        first[which] = now;
                    else
                        CHECK(memcmp(first[which], now, sizeof *now * (size_t)numel_of(o.tensor[which])) == 0);
                    if (again > 0)
                        free(now);
                    if (again == 3)
                        free(first[which]);
                }
            }
            operands_free(&o);
        }
}

/*  Which kernel a product of that type and size is for on device 0, whose number of multiprocessors it is said to be.
    */
static ignis__gemm_kernel chosen_for(int activation, ignis_dtype dtype, int64_t m, int64_t n, int64_t k, int processors)
{
    static const ignis__epilogue nothing;
    static ignis__device device;
    ignis__gemm p;
    ignis__op op;
    memset(&op, 0, sizeof op), memset(&p, 0, sizeof p);
    device = ignis__devices[0];
    device.info.multiprocessors = processors;
    op.work.device = &device;
    op.work.call = "test";
    p.params.m = m, p.params.n = p.params.row_b = n, p.params.k = p.params.row_a = k, p.params.batch = 1,
    p.params.factor = 1;
    p.params.packed_a = k % 8 == 0, p.params.packed_b = p.params.packed_out = n % 8 == 0;
    p.dtype = p.operands = dtype;
    p = ignis__gemm_by_wgmma(&p);
    p.params.activation = activation;
    return ignis__gemm_choose(&op, dtype, &p, &nothing);
}

static ignis__gemm_kernel chosen(ignis_dtype dtype, int64_t m, int64_t n, int64_t k, int processors)
{
    return chosen_for(0, dtype, m, n, k, processors);
}

/*  Whether that is left to an own kernel where both are there. */
static bool leads(ignis_dtype dtype, int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b)
{
    ignis__device device = ignis__devices[0];
    ignis__product product = ignis__product_of(dtype, m, n, k, transpose_b);
    ignis__op op;
    memset(&op, 0, sizeof op);
    device.info.multiprocessors = 132;
    op.work.device = &device;
    op.work.call = "test";
    product.transpose_a = transpose_a;
    return ignis__gemm_beats_cublaslt(&op, &product);
}

/*  What may be done to a product: one form for each part from 0 to 7; others are plain. */
static scenario form_of(const int64_t size[3], int part)
{
    scenario s = plain(size[0], size[1], size[2]);
    s.transpose_a = part == 2, s.transpose_b = part % 2;
    s.bias = part == 1 || part == 3 || part == 4 || part == 7, s.pre = part == 3 || part == 5 || part == 6;
    s.activation = part < 3 || part > 6 ? 0 : part == 6 ? IGNIS_ACTIVATION_RELU : IGNIS_ACTIVATION_GELU;
    s.gradient = part == 5 || part == 6, s.column_sums = part == 5;
    s.residual = part == 7, s.accumulate = part == 2;
    return s;
}

/*  The simulator takes every second form of a size, and those between of the next size. */
static bool takes_form(int size, int part) { return (size + part) % 2 == 0 || test_takes_all(); }

static bool has_wgmma(void)
{
    ignis_device_info info;
    CHECK_OK(ignis_device_query(0, &info));
    return info.compute_major == 9;
}

static bool has_pairs(void) { return has_wgmma() && ignis__devices[0].clusters; }

/*  A tile is finished beside the next one: as many steps of k as that takes, and more; edges, and batches. */
TEST(a_tile_is_finished_beside_the_next_one)
{
    static const int64_t sizes[][3] = {{200, 568, 768}, {328, 376, 888}, {72, 568, 1032}};
    int d, i, part;
    SETUP_OWN();
    if (!has_wgmma())
        SKIP("the device has no wgmma");
    for (d = test_takes_all() ? 2 : 3; d < 4; d++)
        for (i = 0; i < COUNT_OF(sizes); i++)
            for (part = 0; part < 9; part++) {
                scenario s = form_of(sizes[i], part);
                s.batch = part == 8 ? 2 : 0;
                CHECK_INT(chosen(float_dtypes[d], s.m, s.n, s.k, FEW).columns, 192);
                if (!takes_form(i, part))
                    continue;
                check(s, float_dtypes[d], FEW);
                if (part >= 3)
                    continue;
                s = gated(s.m, s.n, s.k, part);
                CHECK_INT(chosen_for(s.activation, float_dtypes[d], s.m, s.n, s.k, FEW).columns, 192);
                check(s, float_dtypes[d], FEW);
            }
    CHECK_INT(chosen_for(IGNIS__ACTIVATION_GATED, IGNIS_BF16, 8192, 8192, 2048, 132).columns, 192);
    CHECK(chosen_for(IGNIS__ACTIVATION_GATED, IGNIS_BF16, 8192, 64, 2048, 132).columns == 64);
}

/*  Tiles of 192 rows have as many columns as fit the multiprocessors best, also where that is no multiple of 64: edges,
    of which warpgroups have no rows or columns, batches, and blocks in pairs. */
TEST(tiles_fit_the_multiprocessors)
{
    static const struct {
        int64_t size[3];
        int processors, columns;
    } table[] = {{{264, 264, 64}, 4, 144}, {{336, 376, 200}, 4, 192}, {{384, 320, 40}, 4, 160},
                 {{376, 280, 776}, 6, 96}, {{384, 160, 72}, 4, 80},   {{384, 224, 136}, 4, 112},
                 {{192, 528, 64}, 3, 176}, {{384, 504, 328}, 8, 128}};
    int d, i, part;
    SETUP_OWN();
    if (!has_wgmma())
        SKIP("the device has no wgmma");
    for (d = test_takes_all() ? 2 : 3; d < 4; d++)
        for (i = 0; i < COUNT_OF(table); i++)
            for (part = 0; part < 9; part++) {
                scenario s = form_of(table[i].size, part);
                ignis__gemm_kernel kernel = chosen(float_dtypes[d], s.m, s.n, s.k, table[i].processors);
                if (s.gradient || s.residual || s.accumulate)
                    continue;
                s.batch = part == 8 ? 2 : 0;
                CHECK_INT(kernel.rows, 192);
                CHECK_INT(kernel.columns, table[i].columns);
                if (takes_form(i, part))
                    check(s, float_dtypes[d], table[i].processors * (s.batch ? 2 : 1));
            }
    CHECK_INT(chosen(IGNIS_BF16, 2064, 2064, 2064, 132).columns, 176); /* 132 tiles */
    CHECK_INT(chosen(IGNIS_BF16, 2056, 2056, 2056, 132).columns, 192); /* 66 pairs: rows are not whole sectors */
    CHECK_INT(chosen(IGNIS_BF16, 1536, 1536, 1536, 132).columns, 96);  /* 128 tiles */
    CHECK_INT(chosen(IGNIS_BF16, 2048, 2048, 2048, 132).columns, 256);
}

/*  Products in pairs of blocks, of every form. processors: of the device; 0: few, of which blocks do several tiles, and
    pairs share b. */
static void check_pairs(const int64_t (*sizes)[3], int count, int processors)
{
    int d, i, part;
    for (d = test_takes_all() ? 2 : 3; d < 4; d++)
        for (i = 0; i < count; i++)
            for (part = 0; part < 10; part++) {
                scenario s = form_of(sizes[i], part);
                s.transpose_a |= part == 6, s.batch = part == 0 ? 2 : 0;
                s.column_sums |= part == 9, s.row_sums = part >= 8;
                if (processors) {
                    ignis__gemm_kernel kernel = chosen(float_dtypes[d], s.m, s.n, s.k, processors);
                    CHECK(ignis__gemm_shares_a(kernel.rows, kernel.columns, kernel.blocks));
                }
                if (takes_form(i, part))
                    check(s, float_dtypes[d], processors ? processors : 2 + 5 * (part % 3));
            }
}

/*  Pairs of blocks share b where rows are not whole sectors: of each width, tiles of which the second of a pair may
    have no row; split; with few multiprocessors blocks do several. */
TEST(pairs_of_blocks_share_a_factor)
{
    static const int64_t sizes[][3] = {{136, 72, 40}, {264, 136, 328}, {392, 264, 72}, {200, 568, 776}};
    SETUP_OWN();
    if (!has_pairs())
        SKIP("the device has no wgmma, or no clusters");
    check_pairs(sizes, COUNT_OF(sizes), 0);
}

/*  Tiles of 64 columns in pairs share a: the second of a pair may have no column, a may have few rows; split. */
TEST(pairs_of_blocks_are_side_by_side)
{
    static const int64_t sizes[][3] = {{64, 128, 512}, {100, 136, 776}, {200, 72, 1032}, {17, 264, 640}, {1, 80, 16}};
    SETUP_OWN();
    if (!has_pairs())
        SKIP("the device has no wgmma, or no clusters");
    check_pairs(sizes, COUNT_OF(sizes), 132);
}

/*  Factors that are tf32, but a sum of two products that is not: results are stored as f32. */
static void check_not_rounded(int64_t m, int64_t n, int processors)
{
    enum { K = 400 };
    int before = ignis__devices[0].info.multiprocessors;
    float *data = (float *)calloc((size_t)(m + n) * K, sizeof *data),
          *got = (float *)malloc(sizeof *got * (size_t)(m * n));
    ignis_tensor a, b, out;
    int64_t i, wrong = 0;
    for (i = 0; i < m + n; i++)
        data[i * K] = 1, data[i * K + 5] = 0.0078125f; /* 1 + 2^-14 */
    a = ignis_tensor_from_host(data, IGNIS_SHAPE(m, K), NULL);
    b = ignis_tensor_from_host(data + m * K, IGNIS_SHAPE(n, K), NULL);
    ignis__devices[0].info.multiprocessors = processors;
    out = ignis_matmul_t(a, b);
    ignis__devices[0].info.multiprocessors = before;
    CHECK_OK(ignis_tensor_to_host(out, got, IGNIS_F32, m * n));
    for (i = 0; i < m * n; i++)
        wrong += got[i] != 1.00006103515625f;
    CHECK_INT(wrong, 0);
    free(data), free(got);
    let_go(a), let_go(b), let_go(out);
}

/*  f32 that may be rounded, where operands lie by k or are turned: every form, edges, splits, batches, and blocks in
    pairs. */
TEST(tf32_by_wgmma)
{
    static const struct {
        int64_t size[3];
        int processors, rows, columns; /* of the tiles of a plain product */
    } table[] = {{{17, 264, 640}, 132, 128, 64}, {{100, 136, 776}, 132, 128, 64}, {{64, 128, 512}, 132, 128, 64},
                 {{200, 40, 520}, 30, 128, 64},  {{392, 264, 68}, 12, 128, 128},  {{264, 136, 332}, 2, 192, 144},
                 {{376, 280, 776}, 6, 192, 96},  {{200, 568, 392}, 2, 128, 192},  {{328, 376, 456}, 2, 128, 192},
                 {{328, 504, 200}, 2, 128, 256}};
    ignis_desc desc;
    int i, part;
    own_setup(&desc);
    desc.allow_tf32 = true;
    SETUP(&desc);
    if (!has_pairs())
        SKIP("the device has no wgmma, or no clusters");
    for (i = 0; i < COUNT_OF(table); i++) {
        const int64_t *size = table[i].size;
        ignis__gemm_kernel kernel = chosen(IGNIS_F32, size[0], size[1], size[2], table[i].processors);
        CHECK_INT(kernel.rows, table[i].rows);
        CHECK_INT(kernel.columns, table[i].columns);
        for (part = 0; part < 10; part++) {
            scenario s = form_of(size, part);
            s.transpose_a = part % 4 == 2, s.transpose_b = part % 2, s.batch = part == 0 ? 2 : 0;
            s.column_sums |= part == 9;
            if (takes_form(i, part))
                check_tf32(s, table[i].processors);
        }
    }
    check_not_rounded(64, 128, 2), check_not_rounded(200, 568, 2), check_not_rounded(376, 280, 6),
        check_not_rounded(328, 504, 2);
    CHECK(leads(IGNIS_F32, 4096, 4096, 4096, false, true) && leads(IGNIS_F32, 4096, 4096, 4096, true, false));
    CHECK(!leads(IGNIS_F32, 4096, 4096, 4096, false, false) && leads(IGNIS_F32, 8192, 4096, 4096, false, false));
    CHECK(!leads(IGNIS_F32, 4096, 4096, 4096, true, true) && leads(IGNIS_F32, 4096, 8192, 4096, true, true));
    CHECK(leads(IGNIS_F32, 8192, 32768, 8192, false, false) &&
          !leads(IGNIS_F32, 8192, 32769 + 7, 8192, false, false)); /* 1 GiB to turn */
    CHECK(leads(IGNIS_F32, 1536, 1536, 1536, false, true) && !leads(IGNIS_F32, 1536, 512, 2048, false, true));
}

TEST(the_kernel_follows_device_type_and_size)
{
    ignis_device_info info;
    SETUP_OWN();
    CHECK_OK(ignis_device_query(0, &info));
    CHECK_INT(chosen(IGNIS_F32, 128, 128, 64, 1).builtin->number, IGNIS__NUMBER_GEMM);
    CHECK_INT(chosen(IGNIS_F64, 128, 128, 64, 2).builtin->number, IGNIS__NUMBER_GEMM_SMALL);
    CHECK_INT(chosen(IGNIS_F32, 32, 32, 64, 9).builtin->number, IGNIS__NUMBER_GEMM_TINY);
    CHECK_INT(chosen(IGNIS_F16, 32, 32, 60, 9).builtin->number, IGNIS__NUMBER_GEMM_TINY); /* rows are no packs */
    CHECK_INT(chosen(IGNIS_F16, 32, 32, 64, 9).builtin->number, info.compute_major < 8 ? IGNIS__NUMBER_GEMM_TINY
                                                                : info.compute_major == 9
                                                                    ? IGNIS__NUMBER_GEMM_HOPPER
                                                                    : IGNIS__NUMBER_GEMM_MMA_SMALL);
    CHECK_INT(chosen(IGNIS_F16, 256, 256, 256, 16).builtin->number, info.compute_major < 8 ? IGNIS__NUMBER_GEMM_SMALL
                                                                    : info.compute_major == 9
                                                                        ? IGNIS__NUMBER_GEMM_HOPPER
                                                                        : IGNIS__NUMBER_GEMM_MMA_SMALL);
    if (info.compute_major >= 8 && info.compute_major != 9)
        CHECK_INT(chosen(IGNIS_F16, 4096, 4096, 4096, 16).builtin->number, IGNIS__NUMBER_GEMM_MMA);
    CHECK(chosen(IGNIS_F32, 1024, 1024, 64, 64).splits == 1 && chosen(IGNIS_F32, 64, 64, 4096, 64).splits > 4);
    if (info.compute_major == 9) {
        CHECK_INT(chosen(IGNIS_BF16, 1000, 1000, 1000, 132).builtin->number, IGNIS__NUMBER_GEMM_HOPPER);
        CHECK_INT(chosen(IGNIS_BF16, 1000, 1000, 1000, 132).columns, 64); /* 128 of them */
        CHECK_INT(chosen(IGNIS_F16, 8192, 8192, 8192, 132).columns, 192);
        CHECK(chosen(IGNIS_F16, 8192, 8192, 8192, 132).shared <= 232448);
        CHECK(!chosen(IGNIS_F16, 8192, 8192, 8192, 132).packs && chosen(IGNIS_F16, 8192, 8192, 8192, 132).splits == 1);
        CHECK_INT(chosen(IGNIS_BF16, 1000, 1000, 1000, 132).splits, 1);
        CHECK_INT(chosen(IGNIS_BF16, 1000, 1003, 1001, 132).builtin->number, IGNIS__NUMBER_GEMM_HOPPER);
        CHECK(chosen(IGNIS_BF16, 1000, 1003, 1001, 132).packs);
        CHECK_INT(chosen(IGNIS_BF16, 65536, 768, 50257, 132).builtin->number,
                  IGNIS__NUMBER_GEMM_MMA);                                /* a copy would take 6 GB */
        CHECK_INT(chosen(IGNIS_BF16, 65536, 768, 768, 132).columns, 192); /* finished beside the next one */
        CHECK_INT(chosen(IGNIS_BF16, 768, 768, 65536, 132).columns, 256); /* 18 tiles, 7 parts: one round */
        CHECK_INT(chosen(IGNIS_BF16, 768, 768, 65536, 132).splits, 7);
        CHECK_INT(chosen(IGNIS_BF16, 1024, 1024, 1024, 132).columns, 64); /* 128 tiles, not 64 */
        CHECK_INT(chosen(IGNIS_BF16, 1024, 4096, 4096, 132).columns, 256);
        CHECK_INT(chosen(IGNIS_BF16, 1024, 1024, 1024, 132).splits, 1);
        CHECK(chosen(IGNIS_BF16, 128, 128, 8192, 132).splits >= 16);
        CHECK_INT(chosen(IGNIS_BF16, 64, 1024, 1024, 132).columns, 64);
        CHECK(leads(IGNIS_BF16, 4096, 4096, 4096, false, false) &&
              !leads(IGNIS_F32, 4096, 4096, 4096, false, true)); /* exact */
    }
}

/*  How often a text is in a file; -1: there is no such file. */
static int count_in_file(const char *path, const char *text)
{
    size_t size = 0;
    char *data = (char *)ignis__file_read(path, &size);
    int count = 0;
    size_t i;
    for (i = 0; data && i + strlen(text) <= size; i++)
        count += memcmp(data + i, text, strlen(text)) == 0;
    if (!data)
        return -1;
    ignis__free(data);
    return count;
}

/*  The faster one is kept on disk, and found there; what stands there first holds. */
TEST(the_faster_one_is_measured_once)
{
    ignis_desc desc = test_desc(NULL);
    char folder[] = "/tmp/ignis_test_products_XXXXXX", path[100];
    double *first = NULL, *again;
    ignis_tensor a, b;
    struct stat info;
    bool own[3];
    int round, i;
    if (!mkdtemp(folder))
        SKIP("there is no folder for it");
    snprintf(path, sizeof path, "%s/products.txt", folder);
    desc.matmul = IGNIS_MATMUL_MEASURE;
    desc.cache_dir = folder;
    for (round = 0; round < 3; round++) {
        ignis_tensor y;
        ignis_library_info library;
        SETUP(&desc);
        if (ignis_library_query(IGNIS_LIBRARY_CUBLASLT, &library) != IGNIS_OK) {
            ignis_status_clear();
            SKIP("there is no cuBLASLt");
        }
        a = tensor_noise(IGNIS_SHAPE(9, 30), IGNIS_F32, 1, false),
        b = tensor_noise(IGNIS_SHAPE(30, 7), IGNIS_F32, 2, false);
        for (i = 0; i < 3; i++) {
            y = ignis_matmul(a, b);
            again = tensor_values(y);
            if (first)
                CHECK(memcmp(first, again, 63 * sizeof *first) == 0 || round == 2);
            else
                first = (double *)memcpy(malloc(63 * sizeof *first), again, 63 * sizeof *first);
            free(again), let_go(y);
        }
        CHECK_INT(count_in_file(path, "f32 9 x 7 x 30"), 1);
        CHECK(ignis__measurements.first != NULL && ignis__measurements.first->next == NULL);
        own[round] = ignis__measurements.first && ignis__measurements.first->own;
        let_go(a), let_go(b);
        if (round == 1) { /* another choice in the file is followed, too, and a line that is not one does no harm */
            FILE *file = fopen(path, "r+b");
            char line[300] = "";
            if (file && fgets(line, sizeof line, file) && fseek(file, 0, SEEK_SET) == 0)
                fprintf(file, "nonsense\n%.16s %s so\n%s", line, strstr(line, " own (") ? "cublaslt" : "own", line);
            CHECK(file && fclose(file) == 0);
        }
        CHECK_OK(ignis_shutdown());
    }
    CHECK_INT(count_in_file(path, "f32 9 x 7 x 30"), 1); /* it was not measured again */
    CHECK_INT(own[1], own[0]);
    CHECK_INT(own[2], !own[1]);
    CHECK_INT(chmod(path, 0664), 0); /* others may have written to it: a new one takes its place */
    SETUP(&desc);
    a = tensor_noise(IGNIS_SHAPE(9, 30), IGNIS_F32, 1, false),
    b = tensor_noise(IGNIS_SHAPE(30, 7), IGNIS_F32, 2, false);
    let_go(ignis_matmul(a, b));
    let_go(a), let_go(b);
    CHECK_OK(ignis_shutdown());
    CHECK(stat(path, &info) == 0 && (info.st_mode & 022) == 0);
    CHECK_INT(count_in_file(path, "nonsense"), 0);
    CHECK_INT(count_in_file(path, "f32 9 x 7 x 30"), 1);
    free(first);
    remove(path);
    test_remove_folder(folder);
}

/*  Another thread's product, which is computed while the first thread waits for its own. */
static struct {
    ignis_tensor factor;
    double *values;
    bool is_begun;
    uint64_t is_done;
} meanwhile;

static void *compute_meanwhile(void *unused)
{
    ignis_tensor y = ignis_matmul(meanwhile.factor, meanwhile.factor);
    meanwhile.values = tensor_values(y);
    let_go(y);
    ignis__atomic_store(&meanwhile.is_done, 1);
    return unused;
}

static pthread_t meanwhile_thread;

static int begin_meanwhile(const char *name)
{
    static const struct timespec pause = {0, 1000000};
    int i;
    if (meanwhile.is_begun || strcmp(name, "cuStreamSynchronize") != 0)
        return 0;
    meanwhile.is_begun = true;
    CHECK_INT(pthread_create(&meanwhile_thread, NULL, compute_meanwhile, NULL), 0);
    for (i = 0; i < 20000 && !ignis__atomic_load(&meanwhile.is_done); i++)
        nanosleep(&pause, NULL);
    CHECK(ignis__atomic_load(&meanwhile.is_done)); /* what is on the stream may wait for it */
    return 0;
}

/*  Two threads measure the same product, and the choice of the first holds for both. */
TEST(other_threads_go_on_while_one_measures)
{
    ignis_desc desc = test_desc(NULL);
    ignis_library_info info;
    ignis_tensor y;
    double *values;
    desc.matmul = IGNIS_MATMUL_MEASURE;
    desc.cache_dir = "off";
    SETUP(&desc);
    if (ignis_library_query(IGNIS_LIBRARY_CUBLASLT, &info) != IGNIS_OK) {
        ignis_status_clear();
        SKIP("there is no cuBLASLt");
    }
    memset(&meanwhile, 0, sizeof meanwhile);
    y = tensor_noise(IGNIS_SHAPE(20, 20), IGNIS_F32, 1, false);
    let_go(ignis_matmul(y, y)); /* from here on the kernels are there */
    let_go(y);
    meanwhile.factor = tensor_noise(IGNIS_SHAPE(21, 21), IGNIS_F32, 1, false);
    call_hook.begin = begin_meanwhile;
    y = ignis_matmul(meanwhile.factor, meanwhile.factor);
    call_hook.begin = NULL;
    REQUIRE(meanwhile.is_begun);
    CHECK_INT(pthread_join(meanwhile_thread, NULL), 0);
    values = tensor_values(y);
    CHECK(memcmp(values, meanwhile.values, 441 * sizeof *values) == 0);
    CHECK(ignis__measurements.first && ignis__measurements.first->next && !ignis__measurements.first->next->next);
    free(values), free(meanwhile.values), let_go(y), let_go(meanwhile.factor);
}

/*  What own kernels need is not there: cuBLASLt computes the product, and nothing is kept for other processes. */
TEST(measuring_goes_without_own_kernels)
{
    ignis_desc desc = test_desc(NULL);
    ignis_library_info info;
    ignis_tensor a, y;
    int i;
    desc.matmul = IGNIS_MATMUL_MEASURE;
    desc.cache_dir = "off";
    desc.nvrtc_library = "missing/libnvrtc.so";
    SETUP(&desc);
    if (ignis_library_query(IGNIS_LIBRARY_CUBLASLT, &info) != IGNIS_OK) {
        ignis_status_clear();
        SKIP("there is no cuBLASLt");
    }
    a = tensor_of((const double[]){3}, IGNIS_SHAPE(1, 1), IGNIS_F32, false);
    for (i = 0; i < 2; i++) {
        y = ignis_matmul(a, a);
        REQUIRE(y.id != 0);
        CHECK_INT(ignis_status_last(), IGNIS_OK);
        CHECK_NUMBER(value_at(y, 0), 9);
        let_go(y);
    }
    CHECK(ignis__measurements.first && !ignis__measurements.first->own && !ignis__measurements.first->next);
    let_go(a);
}

TEST(nothing_of_cublaslt_is_loaded)
{
    ignis_desc desc;
    ignis_tensor a, y;
    own_setup(&desc);
    desc.cublas_library = "missing/libcublasLt.so";
    SETUP(&desc);
    a = tensor_noise(IGNIS_SHAPE(4, 4), IGNIS_F32, 1, false);
    y = ignis_matmul(a, a);
    CHECK(y.id != 0);
    CHECK_INT(ignis_status_last(), IGNIS_OK);
    let_go(a), let_go(y);
}

TEST(who_computes_products_is_checked)
{
    ignis_desc desc = test_desc(NULL);
    desc.matmul = (ignis_matmul_backend)7;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_MESSAGE_HAS("desc.matmul is 7");
}

/*  IGNIS_MATMUL speaks where the program does not. */
TEST(the_environment_chooses)
{
    static const struct {
        const char *name;
        ignis_matmul_backend by;
    } names[] = {{"own", IGNIS_MATMUL_OWN},
                 {"cublaslt", IGNIS_MATMUL_CUBLASLT},
                 {"measure", IGNIS_MATMUL_MEASURE},
                 {"auto", IGNIS_MATMUL_AUTO}};
    const char *env = getenv("IGNIS_MATMUL");
    char before[32];
    ignis_desc desc = test_desc(NULL);
    int i;
    snprintf(before, sizeof before, "%s", env ? env : "");
    for (i = 0; i < COUNT_OF(names); i++) {
        CHECK_INT(setenv("IGNIS_MATMUL", names[i].name, 1), 0);
        SETUP(&desc);
        CHECK_INT(ignis__matmul_backend, names[i].by);
        CHECK_OK(ignis_shutdown());
    }
    CHECK_INT(setenv("IGNIS_MATMUL", "fast", 1), 0);
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_MESSAGE_HAS("IGNIS_MATMUL is \"fast\"; it is auto, cublaslt, own or measure");
    desc.matmul = IGNIS_MATMUL_OWN;
    SETUP(&desc);
    CHECK_INT(ignis__matmul_backend, IGNIS_MATMUL_OWN);
    CHECK_INT(setenv("IGNIS_MATMUL", before, 1), 0);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
