// SPDX-License-Identifier: MIT
/*  bench_grad.c - second derivatives of a network of four layers with tanh: milliseconds of a step, in f32

        cc -O2 -I. bench/bench_grad.c -o bench_grad -lm -ldl -lpthread && ./bench_grad [part of a name]

    Lines are what bench/peer_grad.py reads, which adds PyTorch's times for the same work, and the ratio. A name is the
    work, the rows and the width. penalty: the gradient by the weights of the mean square of the gradient by the input.
    hvp: second derivatives by the weights times a vector.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

#define ROUNDS 11
#define LAYERS 4
#define INPUTS 64

typedef struct network {
    ignis_tensor x, w[2 * LAYERS], v[2 * LAYERS]; /* weights and biases, and a vector */
} network;

static ignis_tensor output(const network *net)
{
    ignis_tensor h = net->x;
    for (int l = 0; l < LAYERS; l++) {
        h = ignis_linear(h, net->w[2 * l], net->w[2 * l + 1]);
        if (l < LAYERS - 1)
            h = ignis_map("tanh(h)", IGNIS_INPUTS(h));
    }
    return h;
}

static void penalty(const void *work)
{
    const network *net = (const network *)work;
    const ignis_grad_desc graph = {.create_graph = true};
    ignis_tensor y = ignis_sum(output(net)), g, grads[2 * LAYERS];
    ignis_grad_desc unused = {.allow_unused = true}; /* the last bias */
    ignis_grad(&y, 1, &net->x, 1, &g, &graph);
    y = ignis_map_mean("g*g", IGNIS_INPUTS(g));
    ignis_grad(&y, 1, net->w, 2 * LAYERS, grads, &unused);
}

static void hvp(const void *work)
{
    const network *net = (const network *)work;
    ignis_tensor y = output(net), products[2 * LAYERS];
    ignis_hvp(ignis_map_mean("y*y", IGNIS_INPUTS(y)), net->w, 2 * LAYERS, net->v, products);
}

static const struct {
    const char *name;
    void (*run)(const void *work);
    int64_t rows, width;
} cases[] = {{"penalty_256_64", penalty, 256, 64},
             {"penalty_4096_256", penalty, 4096, 256},
             {"penalty_16384_1024", penalty, 16384, 1024},
             {"hvp_256_64", hvp, 256, 64},
             {"hvp_4096_256", hvp, 4096, 256},
             {"hvp_16384_1024", hvp, 16384, 1024}};

int main(int argc, char **argv)
{
    ignis_device_info info;
    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &info) != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */
    const bool simulated = strstr(info.name, "imulat") != NULL;
    const repetition how = {simulated ? 1 : ROUNDS, simulated ? 1 : 10, 1e9};
    printf("%s\n", info.name);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int64_t rows = simulated ? 8 : cases[i].rows, width = simulated ? 16 : cases[i].width;
        const ignis_tensor_desc leaf = {.requires_grad = true};
        if (argc > 1 && !strstr(cases[i].name, argv[1]))
            continue;
        ignis_scope scope = ignis_scope_begin();
        network net;
        net.x = ignis_tensor_randn(IGNIS_SHAPE(rows, INPUTS), &leaf);
        for (int l = 0; l < LAYERS; l++) {
            const int64_t in = l ? width : INPUTS, out = l < LAYERS - 1 ? width : 1;
            ignis_tensor w = ignis_tensor_randn(IGNIS_SHAPE(out, in), NULL);
            w = ignis_map("w*rsqrt(n)", IGNIS_INPUTS(w, IGNIS_VALUE(n, (double)in)));
            net.w[2 * l] = ignis_tensor_from_array(ignis_tensor_data(w), true);
            net.w[2 * l + 1] = ignis_tensor_zeros(IGNIS_SHAPE(out), &leaf);
            net.v[2 * l] = ignis_tensor_randn(IGNIS_SHAPE(out, in), NULL);
            net.v[2 * l + 1] = ignis_tensor_randn(IGNIS_SHAPE(out), NULL);
        }
        printf("%-18s %10.4f ms\n", cases[i].name, 1e3 * median_seconds(cases[i].run, &net, how));
        fflush(stdout);
        ignis_scope_end(scope);
    }
    if (ignis_status_last() != IGNIS_OK)
        printf("%s\n", ignis_status_message());
    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK;
}
