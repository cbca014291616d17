// SPDX-License-Identifier: MIT
/*  first.c - a formula over a million numbers, its mean and its gradient

    The first program of the README. The formula is text. Ignis compiles it, together with the mean, to one kernel that
    reads x once, and makes the kernel of the gradient by itself. The formula is the Huber loss of sin(w x) beside sin(2
    x); at w = 1 it falls towards w = 2, so its gradient is negative. examples/formula.c follows such a gradient to the
    minimum.

        cc -I. examples/first.c -o first -lm -ldl -lpthread && ./first
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"
#include <stdio.h>

int main(void)
{
    ignis_tensor_desc learned = {.requires_grad = true};
    ignis_setup(NULL);
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = ignis_tensor_linspace(0, 3, 1000000, NULL), w = ignis_tensor_ones(IGNIS_SHAPE(1), &learned);
    ignis_tensor loss =
        ignis_map_mean("d = sin(w*x) - sin(2*x); abs(d) < 0.1 ? 0.5*d*d : 0.1*abs(d) - 0.005", IGNIS_INPUTS(w, x));
    ignis_backward(loss, IGNIS_NO_ARRAY);
    ignis_tensor gradient = ignis_tensor_from_array(ignis_tensor_grad(w), false);
    printf("loss %.4f, gradient %.4f\n", ignis_item(loss), ignis_item(gradient));
    ignis_scope_end(scope);
    return ignis_shutdown();
}
