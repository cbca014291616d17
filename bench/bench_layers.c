// SPDX-License-Identifier: MIT
/*  bench_layers.c - pooling, upsampling, borders, patches, sampling by a grid, and norms of channels, in bf16:
    milliseconds, and bandwidth as a share of that of a copy on the device

        cc -O2 -I. bench/bench_layers.c -o bench_layers -lm -ldl -lpthread && ./bench_layers [part of a name]

    Each layer twice: forward alone, and with its gradients (a name that ends in +). The bandwidth counts what has to be
    read and written once.
    Lines are what bench/peer_layers.py reads, which adds PyTorch's times for the same work in the same order, and the
    ratios.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

#define ROUNDS 11

/*  x [n, size, size, channels], what goes with it, and the gradient of the layer's result. grid: positions of images
    that are turned. */
typedef struct data {
    ignis_tensor x, w, b, gradient, grid;
    ignis_tensor mean, var;
    int64_t size;
} data;

static ignis_pool_desc pool_of(int window, int stride, int padding)
{
    ignis_pool_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.window[0] = desc.window[1] = window;
    desc.stride[0] = desc.stride[1] = stride;
    desc.padding[0] = desc.padding[1] = padding;
    return desc;
}

static ignis_tensor run_max_pool(const data *d)
{
    ignis_pool_desc desc = pool_of(3, 2, 1);
    return ignis_max_pool(d->x, &desc);
}

static ignis_tensor run_avg_pool(const data *d)
{
    ignis_pool_desc desc = pool_of(2, 2, 0);
    return ignis_avg_pool(d->x, &desc);
}

static ignis_tensor twice(const data *d, ignis_upsample_mode mode)
{
    ignis_upsample_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.size[0] = desc.size[1] = 2 * d->size;
    desc.mode = mode;
    return ignis_upsample(d->x, &desc);
}
static ignis_tensor run_nearest(const data *d) { return twice(d, IGNIS_UPSAMPLE_NEAREST); }
static ignis_tensor run_bilinear(const data *d) { return twice(d, IGNIS_UPSAMPLE_LINEAR); }

static ignis_tensor run_pad_reflect(const data *d)
{
    static const int64_t widths[] = {0, 1, 1, 0};
    return ignis_pad_reflect(d->x, widths, widths, 4);
}

static ignis_tensor run_unfold(const data *d)
{
    ignis_unfold_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kernel[0] = desc.kernel[1] = 3;
    desc.padding[0] = desc.padding[1] = 1;
    return ignis_unfold(d->x, &desc);
}
static ignis_tensor run_grid_sample(const data *d) { return ignis_grid_sample(d->x, d->grid, NULL); }

/*  Positions in bf16, as PyTorch wants them of x. */
static ignis_tensor make_grid(int64_t n, int64_t size, const ignis_tensor_desc *desc)
{
    const ignis_tensor s = ignis_value((double)size);
    return ignis_map_shape("x = (2*index(2) + 1)/s - 1; y = (2*index(1) + 1)/s - 1; "
                           "index(3) == 0 ? 0.9*x - 0.2*y : 0.2*x + 0.9*y",
                           IGNIS_SHAPE(n, size, size, 2), IGNIS_INPUTS(s), desc);
}

static ignis_tensor batch_norm(const data *d, bool eval)
{
    ignis_batch_norm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.running_mean = ignis_tensor_data(d->mean);
    desc.running_var = ignis_tensor_data(d->var);
    desc.eval = eval;
    return ignis_batch_norm(d->x, d->w, d->b, &desc);
}
static ignis_tensor run_batch_norm(const data *d) { return batch_norm(d, false); }
static ignis_tensor run_batch_norm_eval(const data *d) { return batch_norm(d, true); }
static ignis_tensor run_group_norm(const data *d) { return ignis_group_norm(d->x, 32, d->w, d->b, 0); }

static const struct {
    const char *name;
    ignis_tensor (*run)(const data *d);
    int64_t n, size, channels;
    bool reads_x; /* for its gradient */
} layers[] = {{"max_pool", run_max_pool, 64, 112, 64, false},
              {"avg_pool", run_avg_pool, 64, 56, 256, false},
              {"nearest", run_nearest, 16, 64, 256, false},
              {"bilinear", run_bilinear, 16, 64, 256, false},
              {"pad_reflect", run_pad_reflect, 64, 56, 256, false},
              {"unfold", run_unfold, 16, 56, 64, false},
              {"grid_sample", run_grid_sample, 16, 64, 256, false},
              {"batch_norm_64", run_batch_norm, 64, 112, 64, true},
              {"batch_norm_256", run_batch_norm, 64, 56, 256, true},
              {"batch_norm_2048", run_batch_norm, 64, 7, 2048, true},
              {"batch_norm_eval", run_batch_norm_eval, 64, 56, 256, true},
              {"group_norm_256", run_group_norm, 64, 56, 256, true},
              {"group_norm_512", run_group_norm, 16, 32, 512, true}};

/*  Forward and backward, for median_seconds. */
static void run_both(const void *work)
{
    const timed_call *c = (const timed_call *)work;
    ignis_tensor y = c->run(c->d);
    ignis_backward(y, ignis_tensor_data(c->d->gradient));
    ignis_tensor_set_grad(c->d->x, IGNIS_NO_ARRAY); /* the next one is not added to it */
    ignis_tensor_set_grad(c->d->w, IGNIS_NO_ARRAY);
    ignis_tensor_set_grad(c->d->b, IGNIS_NO_ARRAY);
}

static ignis_tensor run_copy(const data *d) { return ignis_cast(d->x, IGNIS_F32); }

/*  Sizes are smaller on the simulator. */
static void measure(int i, bool simulator, double copy)
{
    int64_t n = simulator ? 1 : layers[i].n, size = simulator ? 6 : layers[i].size;
    double numel = (double)n * (double)size * (double)size * (double)layers[i].channels, out;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor_desc desc;
    int pass;
    data d;
    timed_call c = {layers[i].run, &d};
    const repetition how = {ROUNDS, simulator ? 1 : 50, 0.01};
    for (pass = 0; pass < 2; pass++) {
        char name[64];
        double seconds, bytes;
        memset(&desc, 0, sizeof desc);
        d.size = size;
        d.mean = ignis_tensor_rand(IGNIS_SHAPE(layers[i].channels), &desc);
        d.var = ignis_tensor_rand(IGNIS_SHAPE(layers[i].channels), &desc);
        desc.dtype = IGNIS_BF16;
        desc.requires_grad = pass == 1;
        d.x = ignis_tensor_randn(IGNIS_SHAPE(n, size, size, layers[i].channels), &desc);
        d.w = ignis_tensor_rand(IGNIS_SHAPE(layers[i].channels), &desc);
        d.b = ignis_tensor_rand(IGNIS_SHAPE(layers[i].channels), &desc);
        desc.requires_grad = false;
        d.grid = make_grid(n, size, &desc);
        d.gradient = ignis_tensor_randn(ignis_tensor_shape(layers[i].run(&d)), &desc);
        out = (double)ignis_tensor_numel(d.gradient);
        bytes = 2 * (numel + out) * (pass ? 2 : 1) + (pass && layers[i].reads_x ? 2 * numel : 0);
        seconds = median_seconds(pass ? run_both : run_call, &c, how);
        snprintf(name, sizeof name, "%s%s", layers[i].name, pass ? "+" : "");
        printf("%-18s %10.4f ms %6.2f TB/s %6.2f of a copy\n", name, 1e3 * seconds, 1e-12 * bytes / seconds,
               bytes / seconds / copy);
        fflush(stdout);
    }
    ignis_scope_end(scope);
}

int main(int argc, char **argv)
{
    const int count = (int)(sizeof layers / sizeof layers[0]);
    ignis_device_info info;
    ignis_tensor_desc desc;
    ignis_scope scope;
    bool simulator;
    double copy;
    int64_t n;
    data d;
    timed_call c = {run_copy, &d};
    repetition how = {ROUNDS, 20, 0.01};
    int i;
    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &info) != IGNIS_OK)
        return 1;
    simulator = strstr(info.name, "imulat") != NULL;
    memset(&desc, 0, sizeof desc);
    n = simulator ? 1 << 12 : (int64_t)1 << 27;
    scope = ignis_scope_begin();
    d.x = ignis_tensor_randn(IGNIS_SHAPE(n), &desc);
    how.most = simulator ? 1 : 20;
    copy = 8.0 * (double)n / median_seconds(run_call, &c, how);
    ignis_scope_end(scope);
    printf("%s, bf16, channels-last; a copy moves %.2f TB/s%s\n", info.name, 1e-12 * copy,
           simulator ? "; on the simulator figures mean nothing" : "");
    for (i = 0; i < count; i++)
        if (argc < 2 || strstr(layers[i].name, argv[1]))
            measure(i, simulator, copy);
    if (ignis_status_last() != IGNIS_OK)
        printf("%s\n", ignis_status_message());
    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK;
}
