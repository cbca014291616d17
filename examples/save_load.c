// SPDX-License-Identifier: MIT
/*  save_load.c - train a small network, save it, load it again, and use it: the whole way in sixty lines

    The network learns the sine between -pi and pi from 64 points. It is one hidden layer: tanh-like bends (gelu) of 32
    lines, added up. Training makes tensors that require gradients; a saved file brings back plain ones, which is what a
    program that only uses the network wants.

        cc -I. examples/save_load.c -o save_load -lm -ldl -lpthread && ./save_load
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <math.h>
#include <stdio.h>

enum { POINTS = 64, HIDDEN = 32, PARTS = 4 };
static const char *const names[PARTS] = {"up.weight", "up.bias", "down.weight", "down.bias"};

static ignis_tensor apply(const ignis_tensor *net, ignis_tensor x) /* [n, 1] -> [n, 1] */
{
    return ignis_linear(ignis_gelu(ignis_linear(x, net[0], net[1])), net[2], net[3]);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "sine.safetensors";
    ignis_tensor_desc trained = {.requires_grad = true};
    ignis_adamw_desc adamw = {.lr = 0.02, .drop_grad = true};
    ignis_tensor loaded[PARTS] = {{0}};
    float x[POINTS], y[POINTS], asked[5] = {-3, -1.5f, 0, 1, 2}, answer[5] = {0};

    ignis_setup(NULL);
    ignis_seed(1);
    for (int i = 0; i < POINTS; i++)
        x[i] = 3.14159265f * (2 * i / (POINTS - 1.0f) - 1), y[i] = sinf(x[i]);
    ignis_tensor input = ignis_tensor_from_host(x, IGNIS_SHAPE(POINTS, 1), NULL),
                 target = ignis_tensor_from_host(y, IGNIS_SHAPE(POINTS, 1), NULL);
    ignis_tensor net[PARTS] = {
        ignis_tensor_randn(IGNIS_SHAPE(HIDDEN, 1), &trained), ignis_tensor_randn(IGNIS_SHAPE(HIDDEN), &trained),
        ignis_tensor_zeros(IGNIS_SHAPE(1, HIDDEN), &trained), ignis_tensor_zeros(IGNIS_SHAPE(1), &trained)};
    ignis_optimizer optimizer = ignis_adamw(&adamw);
    for (int i = 0; i < PARTS; i++)
        ignis_optimizer_add(optimizer, net[i], false);
    for (int step = 0; step <= 300; step++) { /* train */
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor error = ignis_sub(apply(net, input), target), loss = ignis_mean(ignis_mul(error, error));
        ignis_backward(loss, IGNIS_NO_ARRAY);
        ignis_optimizer_step(optimizer);
        if (step % 100 == 0)
            printf("step %3d: loss %.6f\n", step, ignis_item(loss));
        ignis_scope_end(scope);
    }
    ignis_save(path, names, net, PARTS);    /* save */
    ignis_load(path, names, loaded, PARTS); /* load: handles that are 0 become new tensors */

    ignis_no_grad_begin(); /* use */
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor_to_host(apply(loaded, ignis_tensor_from_host(asked, IGNIS_SHAPE(5, 1), NULL)), answer, IGNIS_F32, 5);
    ignis_scope_end(scope);
    ignis_no_grad_end();
    if (ignis_status_last() != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */
    for (int i = 0; i < 5; i++)
        printf("sin(%4.1f) is %7.4f, and the network of %s says %7.4f\n", asked[i], sin(asked[i]), path, answer[i]);

    ignis_optimizer_free(optimizer);
    for (int i = 0; i < PARTS; i++)
        ignis_tensor_release(net[i]), ignis_tensor_release(loaded[i]);
    ignis_tensor_release(input), ignis_tensor_release(target);
    return ignis_shutdown() != IGNIS_OK;
}
