// SPDX-License-Identifier: MIT
/*  bench_linalg.c - linear algebra of many small matrices and of large ones: milliseconds

        cc -O2 -I. bench/bench_linalg.c -o bench_linalg -lm -ldl -lpthread && ./bench_linalg [part of a name]

    Lines are what bench/peer_linalg.py reads, which adds PyTorch's times for the same work in the same order, and the
    ratio. A name is the operation, the side, and the dtype. No call waits for what it has found.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

#define ROUNDS 11

/*  The operands of a case: positive definite matrices, and a column for each. */
typedef struct data {
    ignis_tensor a, b;
} data;

static ignis_tensor run_cholesky(const data *d)
{
    ignis_tensor info;
    return ignis_cholesky(d->a, &info);
}
static ignis_tensor run_solve(const data *d)
{
    ignis_tensor info;
    return ignis_solve(d->a, d->b, &info);
}
static ignis_tensor run_inverse(const data *d)
{
    ignis_tensor info;
    return ignis_inverse(d->a, &info);
}
static ignis_tensor run_triangular(const data *d) { return ignis_solve_triangular(d->a, d->b, NULL); }
static ignis_tensor run_logdet(const data *d) { return ignis_logdet(d->a, NULL); }
static ignis_tensor run_qr(const data *d)
{
    ignis_tensor r;
    return ignis_qr(d->a, &r);
}
static ignis_tensor run_eigh(const data *d)
{
    ignis_tensor vectors;
    return ignis_eigh(d->a, &vectors);
}
static ignis_tensor run_svd(const data *d)
{
    ignis_tensor u, vt;
    return ignis_svd(d->a, &u, &vt);
}

static const struct {
    const char *name;
    ignis_tensor (*run)(const data *d);
    int64_t count, n;
    ignis_dtype dtype;
} cases[] = {{"cholesky_8", run_cholesky, 10000, 8, IGNIS_F32},
             {"cholesky_32", run_cholesky, 10000, 32, IGNIS_F32},
             {"cholesky_64", run_cholesky, 10000, 64, IGNIS_F32},
             {"cholesky_64_f64", run_cholesky, 10000, 64, IGNIS_F64},
             {"cholesky_256", run_cholesky, 100, 256, IGNIS_F32},
             {"solve_8", run_solve, 10000, 8, IGNIS_F32},
             {"solve_32", run_solve, 10000, 32, IGNIS_F32},
             {"solve_64", run_solve, 10000, 64, IGNIS_F32},
             {"solve_64_f64", run_solve, 10000, 64, IGNIS_F64},
             {"triangular_64", run_triangular, 10000, 64, IGNIS_F32},
             {"inverse_32", run_inverse, 10000, 32, IGNIS_F32},
             {"logdet_32", run_logdet, 10000, 32, IGNIS_F32},
             {"qr_32", run_qr, 1000, 32, IGNIS_F32},
             {"eigh_32", run_eigh, 1000, 32, IGNIS_F32},
             {"svd_32", run_svd, 1000, 32, IGNIS_F32},
             {"cholesky_8192_f64", run_cholesky, 1, 8192, IGNIS_F64},
             {"solve_4096", run_solve, 1, 4096, IGNIS_F32},
             {"qr_2048", run_qr, 1, 2048, IGNIS_F32},
             {"eigh_1024_f64", run_eigh, 1, 1024, IGNIS_F64},
             {"svd_1024_f64", run_svd, 1, 1024, IGNIS_F64}};

int main(int argc, char **argv)
{
    ignis_device_info info;
    bool simulated;
    size_t i;
    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &info) != IGNIS_OK)
        return 1;
    simulated = strstr(info.name, "imulat") != NULL;
    printf("%s\n", info.name);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t count = simulated ? 2 : cases[i].count, n = simulated && cases[i].n > 64 ? 70 : cases[i].n;
        ignis_tensor_desc desc;
        ignis_tensor x, product, eye;
        ignis_scope scope;
        data d;
        timed_call c = {cases[i].run, &d};
        repetition how = {simulated ? 1 : ROUNDS, 20, 0.002};
        if (argc > 1 && !strstr(cases[i].name, argv[1]))
            continue;
        scope = ignis_scope_begin();
        memset(&desc, 0, sizeof desc);
        desc.dtype = cases[i].dtype;
        x = ignis_tensor_randn(IGNIS_SHAPE(count, n, n), &desc);
        product = ignis_matmul_t(x, x);
        eye = ignis_tensor_eye(n, n, &desc);
        d.a = ignis_map("product/n + eye", IGNIS_INPUTS(product, eye, IGNIS_VALUE(n, (double)n)));
        d.b = ignis_tensor_randn(IGNIS_SHAPE(count, n, 1), &desc);
        printf("%-18s %10.4f ms %6lld x [%lld, %lld]\n", cases[i].name, 1e3 * median_seconds(run_call, &c, how),
               (long long)count, (long long)n, (long long)n);
        fflush(stdout);
        ignis_scope_end(scope);
    }
    if (ignis_status_last() != IGNIS_OK)
        printf("%s\n", ignis_status_message());
    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK;
}
