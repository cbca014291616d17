// SPDX-License-Identifier: MIT
/*  bench_shape.c - operations of shape, index and order: milliseconds, and bandwidth as a share of that of a copy on
    the device

        cc -O2 -I. bench/bench_shape.c -o bench_shape -lm -ldl -lpthread && ./bench_shape [part of a name]

    Lines are what bench/peer_shape.py reads, which adds PyTorch's times for the same work in the same order, and the
    ratio.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

#define ROUNDS 11

/*  What the operations work on; sizes are smaller on the simulator. */
typedef struct data {
    int64_t n; /* a power of 2; x is [n, n] */
    ignis_tensor x, row, half, index, ids, src, mask, sorted;
} data;

static ignis_tensor run_permute(const data *d)
{
    static const int dims[] = {2, 0, 1};
    return ignis_permute(ignis_reshape(d->x, IGNIS_SHAPE(d->n / 32, 32, d->n)), dims, 3);
}
static ignis_tensor run_permute_heads(const data *d)
{
    static const int dims[] = {0, 2, 1, 3};
    return ignis_permute(ignis_reshape(d->half, IGNIS_SHAPE(d->n / 16, 16, d->n / 64, 64)), dims, 4);
}
static ignis_tensor run_flip(const data *d)
{
    static const int dims[] = {1};
    return ignis_flip(d->x, dims, 1);
}
static ignis_tensor run_slice_step(const data *d) { return ignis_slice_step(d->x, 1, 0, d->n / 2, 2); }
static ignis_tensor run_expand(const data *d) { return ignis_expand(d->row, IGNIS_SHAPE(d->n, d->n)); }
static ignis_tensor run_pad(const data *d)
{
    static const int64_t widths[] = {1, 1};
    return ignis_pad(d->x, widths, widths, 2, 0);
}
static ignis_tensor run_gather(const data *d) { return ignis_gather(d->x, 1, d->index); }
static ignis_tensor run_index_select(const data *d) { return ignis_index_select(d->x, 0, d->ids); }
static ignis_tensor run_scatter_add(const data *d) { return ignis_scatter_add(d->x, 1, d->index, d->src); }
static ignis_tensor run_cumsum_rows(const data *d) { return ignis_cumsum(d->x, 1); }
static ignis_tensor run_cumsum_columns(const data *d) { return ignis_cumsum(d->x, 0); }
static ignis_tensor run_cumsum_all(const data *d) { return ignis_cumsum(ignis_reshape(d->x, IGNIS_SHAPE(-1)), 0); }
static ignis_tensor run_cumprod(const data *d) { return ignis_cumprod(d->x, 1); }
static ignis_tensor run_logcumsumexp(const data *d) { return ignis_logcumsumexp(d->x, 1); }
static ignis_tensor run_cummax(const data *d)
{
    ignis_tensor indices;
    return ignis_cummax(d->x, 1, &indices);
}
static ignis_tensor run_cummax_all(const data *d)
{
    ignis_tensor indices;
    return ignis_cummax(ignis_reshape(d->x, IGNIS_SHAPE(-1)), 0, &indices);
}
static ignis_tensor run_nonzero(const data *d) { return ignis_nonzero(d->mask); }
static ignis_tensor run_masked_select(const data *d) { return ignis_masked_select(d->x, d->mask); }
static ignis_tensor run_searchsorted(const data *d)
{
    return ignis_searchsorted(d->sorted, ignis_reshape(d->x, IGNIS_SHAPE(-1)), false);
}
static ignis_tensor run_scatter(const data *d) { return ignis_scatter(d->x, 1, d->index, d->src); }
static ignis_tensor run_bincount(const data *d)
{
    const ignis_tensor none = {0};
    return ignis_bincount(ignis_reshape(d->index, IGNIS_SHAPE(-1)), none, d->n);
}
static ignis_tensor run_histogram(const data *d) { return ignis_histogram(d->x, 100, -4, 4); }
static ignis_tensor run_unique(const data *d) { return ignis_unique(d->index, NULL, NULL); }
static ignis_tensor run_tril(const data *d) { return ignis_tril(d->x, 0); }
static ignis_tensor run_sort_rows(const data *d)
{
    ignis_tensor indices;
    return ignis_sort(ignis_reshape(d->x, IGNIS_SHAPE(-1, d->n / 8)), 1, false, &indices);
}
static ignis_tensor run_sort_long(const data *d)
{
    ignis_tensor indices;
    return ignis_sort(d->x, 1, false, &indices);
}
static ignis_tensor run_sort_all(const data *d)
{
    ignis_tensor indices;
    return ignis_sort(ignis_reshape(d->x, IGNIS_SHAPE(-1)), 0, false, &indices);
}
static ignis_tensor run_sort_half(const data *d)
{
    ignis_tensor indices;
    return ignis_sort(ignis_reshape(d->half, IGNIS_SHAPE(-1)), 0, false, &indices);
}
static ignis_tensor run_topk(const data *d)
{
    ignis_tensor indices;
    return ignis_topk(d->x, 50, 1, true, &indices);
}
static ignis_tensor run_topk_one(const data *d)
{
    ignis_tensor indices;
    return ignis_topk(ignis_reshape(ignis_slice(d->x, 0, 0, 8), IGNIS_SHAPE(8 * d->n)), 50, 0, true, &indices);
}

static const struct {
    const char *name;
    ignis_tensor (*run)(const data *d);
    double bytes; /* moved for each element of x at least */
} operations[] = {{"permute", run_permute, 8},
                  {"permute_heads", run_permute_heads, 4},
                  {"flip", run_flip, 8},
                  {"slice_step", run_slice_step, 6},
                  {"expand", run_expand, 4},
                  {"pad", run_pad, 8},
                  {"gather", run_gather, 16},
                  {"index_select", run_index_select, 8},
                  {"scatter_add", run_scatter_add, 20},
                  {"cumsum_rows", run_cumsum_rows, 8},
                  {"cumsum_columns", run_cumsum_columns, 8},
                  {"cumsum_all", run_cumsum_all, 8},
                  {"cumprod", run_cumprod, 8},
                  {"logcumsumexp", run_logcumsumexp, 8},
                  {"cummax", run_cummax, 16},
                  {"cummax_all", run_cummax_all, 16},
                  {"nonzero", run_nonzero, 10}, /* of a half: 2 readings of 1 byte, 16 bytes for each of those */
                  {"masked_select", run_masked_select, 16},
                  {"searchsorted", run_searchsorted, 12},
                  {"scatter", run_scatter, 20},
                  {"bincount", run_bincount, 8},
                  {"histogram", run_histogram, 4},
                  {"unique", run_unique, 16},
                  {"tril", run_tril, 8},
                  {"sort_rows", run_sort_rows, 16},
                  {"sort_long", run_sort_long, 16},
                  {"sort_all", run_sort_all, 16},
                  {"sort_half", run_sort_half, 12},
                  {"topk", run_topk, 4},
                  {"topk_one", run_topk_one, 0}};

static ignis_tensor run_copy(const data *d) { return ignis_cast(d->x, IGNIS_F32); }

int main(int argc, char **argv)
{
    ignis_device_info info;
    ignis_tensor_desc desc;
    ignis_scope scope;
    double copy;
    data d;
    timed_call c = {run_copy, &d};
    repetition how = {ROUNDS, 20, 0.01};
    size_t i;
    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &info) != IGNIS_OK)
        return 1;
    memset(&desc, 0, sizeof desc);
    d.n = strstr(info.name, "imulat") ? 64 : 8192;
    scope = ignis_scope_begin();
    d.x = ignis_tensor_randn(IGNIS_SHAPE(d.n, d.n), NULL);
    d.row = ignis_tensor_randn(IGNIS_SHAPE(1, d.n), NULL);
    d.src = ignis_tensor_randn(IGNIS_SHAPE(d.n, d.n), NULL);
    desc.dtype = IGNIS_BF16;
    d.half = ignis_tensor_randn(IGNIS_SHAPE(d.n, d.n), &desc);
    d.index = ignis_cast(ignis_scale(ignis_tensor_rand(IGNIS_SHAPE(d.n, d.n), NULL), (double)d.n), IGNIS_I64);
    d.ids = ignis_cast(ignis_scale(ignis_tensor_rand(IGNIS_SHAPE(d.n), NULL), (double)d.n), IGNIS_I64);
    d.mask = ignis_map("x > 0", IGNIS_INPUTS(IGNIS_NAMED(x, d.x)));
    d.sorted = ignis_sort(ignis_reshape(d.src, IGNIS_SHAPE(-1)), 0, false, NULL);
    d.sorted = ignis_slice_step(d.sorted, 0, 0, d.n, d.n);
    how.most = d.n > 1000 ? 20 : 1;
    copy = (double)d.n * (double)d.n * 8 / median_seconds(run_call, &c, how);
    printf("%s, [%lld, %lld]; a copy moves %.0f GB/s\n", info.name, (long long)d.n, (long long)d.n, 1e-9 * copy);
    for (i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        double seconds;
        if (argc > 1 && !strstr(operations[i].name, argv[1]))
            continue;
        c.run = operations[i].run;
        seconds = median_seconds(run_call, &c, how);
        printf("%-16s %10.4f ms %6.2f of a copy\n", operations[i].name, 1e3 * seconds,
               operations[i].bytes * (double)d.n * (double)d.n / seconds / copy);
        fflush(stdout);
    }
    ignis_scope_end(scope);
    if (ignis_status_last() != IGNIS_OK)
        printf("%s\n", ignis_status_message());
    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK;
}
