// SPDX-License-Identifier: MIT
/*  moe.c - a mixture of experts: a gate sends each row to the two networks of four that it finds best

    A row is computed by its two experts alone, and their results are weighted (Shazeer et al. 2017). How many rows an
    expert gets is read from the device: see ignis_nonzero.

        cc -I. examples/moe.c -o moe -lm -ldl -lpthread && ./moe
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>
#include <stdlib.h>

enum { EXPERTS = 4, WIDTH = 32 };

static ignis_tensor gate, w1[EXPERTS], b1[EXPERTS], w2[EXPERTS], b2[EXPERTS];

static ignis_tensor mixture(ignis_tensor x)
{
    ignis_tensor best, top = ignis_softmax(ignis_topk(ignis_matmul_t(x, gate), 2, 1, true, &best));
    ignis_tensor y = ignis_tensor_zeros(IGNIS_SHAPE(ignis_tensor_shape(x).dim[0], 1), NULL);
    for (int e = 0; e < EXPERTS; e++) {
        ignis_tensor mask = ignis_map("best == e", IGNIS_INPUTS(best, IGNIS_VALUE(e, e)));
        ignis_tensor row = ignis_reshape(ignis_slice(ignis_nonzero(mask), 1, 0, 1), IGNIS_SHAPE(-1));
        ignis_tensor weight = ignis_reshape(ignis_masked_select(top, mask), IGNIS_SHAPE(-1, 1));
        ignis_tensor h = ignis_mlp(ignis_index_select(x, 0, row), w1[e], b1[e], w2[e], b2[e], IGNIS_ACTIVATION_GELU);
        y = ignis_index_put(y, &row, 1, ignis_mul(h, weight), true);
    }
    return y;
}

int main(int argc, char **argv)
{
    const int steps = argc > 1 ? atoi(argv[1]) : 2000;
    ignis_setup(NULL);
    ignis_scope all = ignis_scope_begin();
    ignis_optimizer optimizer = ignis_adamw(&(ignis_adamw_desc){.lr = 5e-3, .drop_grad = true});
    gate = ignis_parameter(optimizer, IGNIS_SHAPE(EXPERTS, 2), NULL);
    for (int e = 0; e < EXPERTS; e++) {
        w1[e] = ignis_parameter(optimizer, IGNIS_SHAPE(WIDTH, 2), NULL);
        b1[e] = ignis_parameter(optimizer, IGNIS_SHAPE(WIDTH), NULL);
        w2[e] = ignis_parameter(optimizer, IGNIS_SHAPE(1, WIDTH), NULL);
        b2[e] = ignis_parameter(optimizer, IGNIS_SHAPE(1), NULL);
    }
    for (int step = 0; step < steps; step++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor r = ignis_tensor_rand(IGNIS_SHAPE(256, 2), NULL), x = ignis_map("2*r - 1", IGNIS_INPUTS(r));
        ignis_tensor a = ignis_slice(x, 1, 0, 1), b = ignis_slice(x, 1, 1, 1);
        ignis_tensor target = ignis_map("a < 0 ? sin(6*b) : b < 0 ? a*a : -a", IGNIS_INPUTS(a, b));
        ignis_tensor loss = ignis_mse_loss(mixture(x), target, IGNIS_REDUCTION_MEAN);
        ignis_backward(loss, IGNIS_NO_ARRAY);
        ignis_optimizer_step(optimizer);
        if (step % 200 == 0)
            printf("%d %.5f\n", step, ignis_item(loss));
        ignis_scope_end(scope);
    }
    return ignis_optimizer_free(optimizer) || ignis_scope_end(all) || ignis_shutdown();
}
