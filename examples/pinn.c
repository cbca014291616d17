// SPDX-License-Identifier: MIT
/*  pinn.c - a physics-informed network for Burgers' equation, as short as it gets; burgers.c explains and draws it

        cc -I. examples/pinn.c -o pinn -lm -ldl -lpthread && ./pinn
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>
#include <stdlib.h>

static ignis_tensor w[4], b[4];

static ignis_tensor solution(ignis_tensor x, ignis_tensor t)
{
    ignis_tensor h = ignis_concat((ignis_tensor[]){x, t}, 2, 1);
    for (int l = 0; l < 4; l++)
        h = ignis_linear(l ? ignis_map("tanh(h)", IGNIS_INPUTS(h)) : h, w[l], b[l]);
    return ignis_map("t*(1 - x*x)*h - sin(pi*x)", IGNIS_INPUTS(x, t, h));
}

int main(int argc, char **argv)
{
    const int widths[] = {2, 32, 32, 32, 1}, steps = argc > 1 ? atoi(argv[1]) : 2000;
    const ignis_tensor_desc leaf = {.requires_grad = true};
    ignis_setup(NULL);
    ignis_scope all = ignis_scope_begin();
    ignis_optimizer optimizer = ignis_adamw(&(ignis_adamw_desc){.lr = 2e-3, .drop_grad = true});
    for (int l = 0; l < 4; l++) {
        w[l] = ignis_parameter(optimizer, IGNIS_SHAPE(widths[l + 1], widths[l]), NULL);
        b[l] = ignis_parameter(optimizer, IGNIS_SHAPE(widths[l + 1]), NULL);
    }
    for (int step = 0; step < steps; step++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor r = ignis_tensor_rand(IGNIS_SHAPE(256, 1), &leaf),
                     t = ignis_tensor_rand(IGNIS_SHAPE(256, 1), &leaf);
        ignis_tensor x = ignis_map("2*r - 1", IGNIS_INPUTS(r)), u = solution(x, t);
        ignis_tensor u_t = ignis_derivative(u, t), u_x = ignis_derivative(u, x), u_xx = ignis_derivative(u_x, x);
        ignis_tensor loss = ignis_map_mean("r = u_t + u*u_x - 0.03*u_xx; r*r", IGNIS_INPUTS(u, u_t, u_x, u_xx));
        ignis_backward(loss, IGNIS_NO_ARRAY);
        ignis_optimizer_step(optimizer);
        if (step % 200 == 0)
            printf("%d %.5f\n", step, ignis_item(loss));
        ignis_scope_end(scope);
    }
    return ignis_optimizer_free(optimizer) || ignis_scope_end(all) || ignis_shutdown();
}
