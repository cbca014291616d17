// SPDX-License-Identifier: MIT
/*  bench_matmul.c - matrix products by Ignis' own kernels beside cuBLASLt

    Both take turns in one run, as rates fall when a device gets warm; a figure is the median of the rounds, and the
    ratio is of times: above 1 the own kernel is faster. Forms: a b, a b^T, a^T b, and with more done to them, which
    cuBLASLt's product gets as its bias and a pass behind it: a b^T with a bias and gelu, with and without what gelu is
    applied to, a b with the gradient of gelu and column sums, a b with a residual, a^T b with the sums of a, as
    gradients of weights and biases are, and the products of ignis_mlp_gated by w_up and back by w_down. Then the errors
    of both against a sum in double of some elements; -1: not done, for more to it or a large product.

        cc -O2 -I. bench/bench_matmul.c -o bench_matmul -lm -ldl -lpthread
        ./bench_matmul [f16 | bf16 | f32 | tf32 | f64 | e4m3 | e5m2] [rounds] [only=65536] [form=gelu] [graph]
        [8192x4800x1600 ...]

    only, form: products and forms with this text in what is printed of them; several are alternatives. graph:
    microseconds of products in CUDA graphs of 20, so that small ones do not wait for the CPU. Sizes, m x n x k: instead
    of the table. e4m3, e5m2: what ignis_matmul_f8 does, with results of bf16, and ignis_quantize_f8; cuBLASLt's side is
    in peer_matmul.py.

    The other side, with a fused gelu: python3 bench/peer_matmul.py
*/
#define _GNU_SOURCE
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

#define COUNT_OF(table) ((int)(sizeof(table) / sizeof((table)[0])))
#define MAX_ROUNDS 100
enum { IN_GRAPH = 20 }; /* products */

typedef struct shape {
    int64_t batch, m, n, k;
} shape;

static const shape shapes[] = {
    {1, 8192, 8192, 8192}, {1, 4096, 4096, 4096},  {1, 65536, 2304, 768}, {1, 65536, 3072, 768}, {1, 65536, 768, 768},
    {1, 65536, 768, 3072}, {1, 65536, 50304, 768}, {1, 4000, 5120, 1600}, {64, 512, 512, 512},   {1, 1000, 1003, 1001},
    {1, 1000, 1000, 1000}, {1, 128, 128, 8192},    {1, 32, 4096, 4096},   {1, 768, 768, 65536},  {1, 2304, 768, 32768},
    {1, 768, 3072, 32768}, {1, 4104, 4104, 4104},  {1, 64, 128, 64},      {1, 64, 128, 128},     {1, 128, 128, 64},
    {1, 64, 10, 128},      {1, 256, 256, 256},     {1, 512, 512, 512}};
static const int64_t quantized[][2] = {{32768, 768},  {32768, 3072}, {16384, 4096}, {8192, 8192},
                                       {4096, 16384}, {1024, 4096},  {100000, 257}};
static const shape simulated_shapes[] = {{1, 64, 96, 40}, {3, 32, 32, 32}, {1, 33, 35, 37}};

static const struct form {
    const char *name;
    int transpose_a, transpose_b, gelu, pre, residual, sums, gated;
} forms[] = {{"a b", 0, 0, 0, 0, 0},
             {"a b^T", 0, 1, 0, 0, 0},
             {"a^T b", 1, 0, 0, 0, 0},
             {"a b^T, bias, gelu", 0, 1, 1, 1, 0}, /* of a kept bias and product */
             {"a b^T, gelu unkept", 0, 1, 1, 0, 0},
             {"a b, gelu'", 0, 0, 2, 1, 0},
             {"a b + c", 0, 0, 0, 0, 1},
             {"a^T b, sums of a", 1, 0, 0, 0, 0, 1},
             {"a b^T, gated", 0, 1, 0, 0, 0, 0, 1},
             {"a b, gated'", 0, 0, 0, 0, 0, 0, 2}};

/*  What the command line has of "only=" and "form=". */
static int word_count;
static char **words;
static bool in_graphs;
static ignis_dtype eights; /* the dtype of operands of 8 bits; 0: there are none */

static bool is_asked(const char *option, const char *name)
{
    size_t length = strlen(option);
    bool asked = true;
    int i;
    for (i = 0; i < word_count; i++)
        if (strncmp(words[i], option, length) == 0) {
            asked = false;
            if (strstr(name, words[i] + length))
                return true;
        }
    return asked;
}

/*  The product as ignis_linear and ignis_mlp ask for it, so that every form can be had. */
static bool multiply(const struct form *form, const shape *s, ignis_dtype dtype, const ignis_tensor *tensors,
                     ignis_matmul_backend by)
{
    enum { A, B, OUT, BIAS, PRE, SUMS };
    ignis__product product;
    ignis__epilogue epilogue;
    ignis__op op;
    if (!ignis__op_begin(&op, "bench_matmul", 6, tensors))
        return false;
    memset(&product, 0, sizeof product);
    memset(&epilogue, 0, sizeof epilogue);
    product.m = s->m, product.n = s->n, product.k = s->k, product.batch = s->batch;
    product.batch_a = s->m * s->k, product.batch_b = s->k * s->n;
    product.transpose_a = form->transpose_a, product.transpose_b = form->transpose_b, product.dtype = (int)dtype;
    product.operands = (int)eights;
    epilogue.activation = form->gelu ? IGNIS_ACTIVATION_GELU : 0;
    epilogue.gradient = form->gelu == 2;
    epilogue.bias = form->gelu == 1 ? op.in[BIAS] : NULL;
    epilogue.column_sums = form->gelu == 2 ? op.in[SUMS] : NULL;
    epilogue.pre = form->pre ? op.in[PRE] : NULL;
    epilogue.residual = form->residual ? op.in[PRE] : NULL;
    epilogue.row_sums = form->sums ? op.in[SUMS] : NULL;
    if (form->gated) {
        epilogue.activation = IGNIS__ACTIVATION_GATED;
        epilogue.gradient = form->gated == 2, epilogue.keeps = form->gated == 1;
        epilogue.pre = op.in[PRE];
    }
    ignis__matmul_backend = (int)by; /* as ignis_desc.matmul */
    if (!ignis__matmul_run(&op, &product, op.in[OUT], op.in[A], op.in[B], &epilogue) && form->sums) {
        ignis__axis rows = {1, s->k, s->m};
        ignis__op_sum(&op, op.in[SUMS], op.in[A], NULL, 1.0, &rows);
    }
    return ignis__op_leave(&op) == IGNIS_OK;
}

static double seconds_of(const struct form *form, const shape *s, ignis_dtype dtype, const ignis_tensor *tensors,
                         ignis_matmul_backend by, int runs)
{
    double start;
    int i;
    ignis_synchronize();
    start = now();
    for (i = 0; i < runs; i++)
        if (!multiply(form, s, dtype, tensors, by))
            return 0;
    return ignis_synchronize() == IGNIS_OK ? (now() - start) / runs : 0;
}

/*  The same of products in a graph, which is launched so often. */
static double graph_seconds_of(const struct form *form, const shape *s, ignis_dtype dtype, const ignis_tensor *tensors,
                               ignis_matmul_backend by, int launches)
{
    ignis_graph graph;
    double start, seconds = 0;
    bool ok = ignis_graph_begin() == IGNIS_OK;
    int i;
    for (i = 0; i < IN_GRAPH && ok; i++)
        ok = multiply(form, s, dtype, tensors, by);
    graph = ignis_graph_end();
    ok = ok && ignis_graph_launch(graph) == IGNIS_OK && ignis_synchronize() == IGNIS_OK; /* the first one uploads it */
    start = now();
    for (i = 0; i < launches && ok; i++)
        ok = ignis_graph_launch(graph) == IGNIS_OK;
    if (ok && ignis_synchronize() == IGNIS_OK)
        seconds = (now() - start) / (launches * IN_GRAPH);
    ignis_graph_free(graph);
    return seconds;
}

/*  The largest error of some elements of the first matrix, in units of the last place of the largest one. */
static double error_of(const struct form *form, const shape *s, const ignis_tensor *tensors)
{
    int64_t size_a = s->m * s->k, size_b = s->k * s->n, size = s->m * s->n, i, l;
    double worst = 0, *a, *b, *out;
    if (form->gelu || form->residual || form->gated || size_a + size_b + size > (int64_t)1 << 26)
        return -1;
    a = (double *)malloc(sizeof *a * (size_t)(size_a * s->batch)),
    b = (double *)malloc(sizeof *b * (size_t)(size_b * s->batch));
    out = (double *)malloc(sizeof *out * (size_t)(size * s->batch));
    (void)ignis_tensor_to_host(tensors[0], a, IGNIS_F64, size_a * s->batch);
    (void)ignis_tensor_to_host(tensors[1], b, IGNIS_F64, size_b * s->batch);
    (void)ignis_tensor_to_host(tensors[2], out, IGNIS_F64, size * s->batch);
    for (i = 0; i < 1000; i++) {
        int64_t at = (i * 7919 + i * i * 104729) % size, row = at / s->n, column = at % s->n;
        double sum = 0, scale = 0;
        for (l = 0; l < s->k; l++) {
            double x = form->transpose_a ? a[l * s->m + row] : a[row * s->k + l],
                   y = form->transpose_b ? b[column * s->k + l] : b[l * s->n + column];
            sum += x * y, scale += x * x * y * y;
        }
        if (fabs(out[at] - sum) / sqrt(scale + 1e-30) > worst)
            worst = fabs(out[at] - sum) / sqrt(scale + 1e-30);
    }
    free(a), free(b), free(out);
    return worst;
}

static void bench(const shape *s, const struct form *form, ignis_dtype dtype, int rounds, bool has_cublaslt)
{
    static const ignis_matmul_backend ways[2] = {IGNIS_MATMUL_OWN, IGNIS_MATMUL_CUBLASLT};
    double seconds[2][MAX_ROUNDS], middle[2] = {0, 0}, error[2] = {0, 0}, figure[2],
                                   flop = 2.0 * (double)s->batch * (double)s->m * (double)s->n * (double)s->k;
    int64_t batch = s->batch;
    ignis_tensor_desc desc;
    ignis_tensor tensors[6];
    ignis_scope scope;
    char name[100];
    int round, way, runs = 1, i;
    snprintf(name, sizeof name, "%lld x %lld x %lld", (long long)s->m, (long long)s->n, (long long)s->k);
    if (batch > 1)
        snprintf(name, sizeof name, "%lld of %lld x %lld x %lld", (long long)batch, (long long)s->m, (long long)s->n,
                 (long long)s->k);
    if (!is_asked("only=", name) || !is_asked("form=", form->name))
        return;
    scope = ignis_scope_begin();
    memset(&desc, 0, sizeof desc);
    desc.dtype = dtype;
    tensors[0] = ignis_tensor_randn(IGNIS_SHAPE(batch * s->m * s->k), &desc);
    tensors[1] = ignis_tensor_randn(IGNIS_SHAPE(batch * s->k * s->n), &desc);
    for (i = 0; i < 2 && eights; i++)
        tensors[i] = ignis_cast(tensors[i], eights);
    tensors[2] = ignis_tensor_zeros(IGNIS_SHAPE((form->gated ? 2 : 1) * batch * s->m * s->n), &desc);
    tensors[3] = ignis_tensor_randn(IGNIS_SHAPE(s->n), &desc);
    tensors[4] = ignis_tensor_zeros(IGNIS_SHAPE(form->gated                   ? 2 * s->m * s->n
                                                : form->pre || form->residual ? batch * s->m * s->n
                                                                              : 1),
                                    &desc);
    tensors[5] = ignis_tensor_zeros(IGNIS_SHAPE(form->sums ? s->m : s->n), &desc);
    for (way = 0; way < (has_cublaslt ? 2 : 1); way++) {
        double once;
        (void)seconds_of(form, s, dtype, tensors, ways[way], 1); /* compiles */
        once = seconds_of(form, s, dtype, tensors, ways[way], 1);
        error[way] = error_of(form, s, tensors);
        runs = once > 0 && 0.01 / once > runs ? (int)(0.01 / once) : runs; /* a round takes 10 ms */
    }
    for (round = 0; round < rounds; round++)
        for (way = 0; way < (has_cublaslt ? 2 : 1); way++)
            seconds[way][round] = in_graphs ? graph_seconds_of(form, s, dtype, tensors, ways[way],
                                                               (runs < 400 ? runs : 400) / IN_GRAPH + 1)
                                            : seconds_of(form, s, dtype, tensors, ways[way], runs > 1000 ? 1000 : runs);
    for (way = 0; way < (has_cublaslt ? 2 : 1); way++)
        middle[way] = median(seconds[way], rounds);
    for (way = 0; way < 2; way++)
        figure[way] = in_graphs ? middle[way] * 1e6 : middle[way] > 0 ? flop / middle[way] * 1e-12 : 0;
    printf("%-26s %-18s %9.1f %9.1f %6.2f   %.2g %.2g%s\n", name, form->name, figure[0], figure[1],
           middle[0] > 0 ? middle[1] / middle[0] : 0, error[0], error[1],
           ignis_status_last() == IGNIS_OK ? "" : "  FAILED");
    if (ignis_status_last() != IGNIS_OK) {
        printf("    %s\n", ignis_status_message());
        ignis_status_clear();
    }
    fflush(stdout);
    ignis_scope_end(scope);
}

/*  Microseconds of ignis_quantize_f8 of bf16 in a graph: of rows, and of all. */
static void bench_quantize(int64_t rows, int64_t n, int rounds)
{
    ignis_tensor_desc desc;
    ignis_tensor x, scale;
    ignis_scope scope = ignis_scope_begin();
    double seconds[MAX_ROUNDS], middle[2];
    int per_row, round, i;
    memset(&desc, 0, sizeof desc);
    desc.dtype = IGNIS_BF16;
    x = ignis_tensor_randn(IGNIS_SHAPE(rows, n), &desc);
    for (per_row = 0; per_row < 2; per_row++) {
        ignis_graph graph;
        ignis_quantize_f8(x, eights, per_row, &scale); /* compiles */
        ignis_graph_begin();
        for (i = 0; i < IN_GRAPH; i++) {
            ignis_scope inner = ignis_scope_begin();
            ignis_quantize_f8(x, eights, per_row, &scale);
            ignis_scope_end(inner);
        }
        graph = ignis_graph_end();
        ignis_graph_launch(graph);
        for (round = 0; round < rounds; round++) {
            ignis_synchronize();
            seconds[round] = now();
            for (i = 0; i < 5; i++)
                ignis_graph_launch(graph);
            ignis_synchronize();
            seconds[round] = (now() - seconds[round]) / (5 * IN_GRAPH);
        }
        middle[per_row] = median(seconds, rounds);
        ignis_graph_free(graph);
    }
    printf("%6lld x %-17lld quantize           %9.1f %9.1f us: rows, all%s\n", (long long)rows, (long long)n,
           1e6 * middle[1], 1e6 * middle[0], ignis_status_last() == IGNIS_OK ? "" : "  FAILED");
    ignis_scope_end(scope);
}

int main(int argc, char **argv)
{
    ignis_desc desc;
    ignis_device_info device;
    ignis_library_info library;
    ignis_dtype dtype = IGNIS_BF16;
    const shape *table = shapes;
    shape asked[32];
    int rounds = 15, i, f, count = COUNT_OF(shapes), asked_count = 0;
    bool has_cublaslt, simulated;
    memset(&desc, 0, sizeof desc);
    words = argv + 1, word_count = argc - 1;
    for (i = 1; i < argc; i++) {
        in_graphs = in_graphs || strcmp(argv[i], "graph") == 0;
        desc.allow_tf32 = desc.allow_tf32 || strcmp(argv[i], "tf32") == 0;
        dtype = strcmp(argv[i], "f16") == 0                                   ? IGNIS_F16
                : strcmp(argv[i], "f32") == 0 || strcmp(argv[i], "tf32") == 0 ? IGNIS_F32
                : strcmp(argv[i], "f64") == 0                                 ? IGNIS_F64
                                                                              : dtype;
        if (strcmp(argv[i], "e4m3") == 0 || strcmp(argv[i], "e5m2") == 0)
            eights = argv[i][1] == '4' ? IGNIS_F8_E4M3 : IGNIS_F8_E5M2;
        if (asked_count < COUNT_OF(asked)) {
            long long m, n, k;
            if (sscanf(argv[i], "%lldx%lldx%lld", &m, &n, &k) == 3) {
                asked[asked_count].batch = 1, asked[asked_count].m = m, asked[asked_count].n = n,
                asked[asked_count].k = k;
                asked_count++;
                continue;
            }
        }
        if (atoi(argv[i]) > 0)
            rounds = atoi(argv[i]) < MAX_ROUNDS ? atoi(argv[i]) : MAX_ROUNDS;
    }
    if (ignis_setup(&desc) != IGNIS_OK || ignis_device_query(0, &device) != IGNIS_OK) {
        fprintf(stderr, "%s\n", ignis_status_message());
        return 1;
    }
    simulated = strstr(device.name, "Simulator") != NULL;
    if (simulated) {
        printf("On the simulator figures mean nothing.\n");
        table = simulated_shapes;
        count = COUNT_OF(simulated_shapes);
        rounds = 1;
    }
    if (asked_count) {
        table = asked;
        count = asked_count;
    }
    has_cublaslt = !eights && ignis_library_query(IGNIS_LIBRARY_CUBLASLT, &library) == IGNIS_OK;
    ignis_status_clear();
    printf("%s, %s%s; %s\n%-26s %-18s %9s %9s %6s   %s\n", device.name, ignis_dtype_name(eights ? eights : dtype),
           desc.allow_tf32 ? " by tf32" : "", in_graphs ? "microseconds" : "TFLOP/s", "m x n x k", "", "own",
           "cuBLASLt", "ratio", "errors, as parts of the root of the sum of squares");
    for (i = 0; i < count; i++)
        for (f = 0; f < COUNT_OF(forms); f++)
            if (eights ? strcmp(forms[f].name, "a b^T") == 0 && table[i].batch == 1
                       : (!forms[f].gelu && !forms[f].residual && !forms[f].sums && !forms[f].gated) ||
                             table[i].batch == 1)
                bench(&table[i], &forms[f], dtype, rounds, has_cublaslt);
    for (i = 0; i < (eights && !asked_count ? COUNT_OF(quantized) : 0); i++)
        bench_quantize(simulated ? 8 : quantized[i][0], simulated ? quantized[i][1] / 64 : quantized[i][1], rounds);
    return ignis_shutdown() != IGNIS_OK;
}
