// SPDX-License-Identifier: MIT
/*  formula.c - a model and its loss in one line: a curve through measurements, some of which are wrong

    The model is a wave a*sin(b*x + c), of which a, b and c are to be found. Model, error and loss are one formula: ignis_map_mean compiles it to
    one kernel, and makes another one for the gradients by a, b and c, which that also sums over all measurements. Without formulas this is
    two kernels in CUDA, and a rule that ties them together, as in custom_op.c.

    The mean of squares is pulled away by the wrong measurements; the Huber loss, which grows like the error itself where that is above k, is not.

        cc -I. examples/formula.c -o formula -lm -ldl -lpthread && ./formula
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <math.h>
#include <stdio.h>

#define COUNT 500
#define STEPS 300

/*  Finds a, b and c for a loss of the error d, and prints them. False: something has failed. */
static bool fit(const char *name, const char *formula, ignis_tensor x, ignis_tensor y)
{
    const float start[3] = {1.0f, 1.8f, 0.0f};
    const ignis_tensor_desc wanted = {.requires_grad = true};
    const ignis_adamw_desc adamw = {.lr = 0.03};
    ignis_scope scope = ignis_scope_begin();
    ignis_optimizer optimizer = ignis_adamw(&adamw);
    ignis_tensor a = ignis_tensor_from_host(&start[0], IGNIS_SHAPE(1), &wanted);
    ignis_tensor b = ignis_tensor_from_host(&start[1], IGNIS_SHAPE(1), &wanted);
    ignis_tensor c = ignis_tensor_from_host(&start[2], IGNIS_SHAPE(1), &wanted);
    double loss = 0;
    ignis_optimizer_add(optimizer, a, false);
    ignis_optimizer_add(optimizer, b, false);
    ignis_optimizer_add(optimizer, c, false);
    for (int step = 0; step < STEPS; step++) {
        ignis_scope inner = ignis_scope_begin();
        ignis_tensor mean = ignis_map_mean(formula, IGNIS_INPUTS(a, b, c, x, y, IGNIS_VALUE(k, 0.1)));
        ignis_backward(mean, IGNIS_NO_ARRAY);
        ignis_optimizer_step(optimizer);
        ignis_optimizer_zero_grad(optimizer);
        if (step + 1 == STEPS)
            loss = ignis_item(mean);
        ignis_scope_end(inner);
    }
    printf("%-8s y = %.3f sin(%.3f x + %.3f), loss %.4f\n", name, ignis_item(a), ignis_item(b), ignis_item(c), loss);
    ignis_optimizer_free(optimizer);
    ignis_scope_end(scope);
    return ignis_status_last() == IGNIS_OK;
}

int main(void)
{
    float at[COUNT], measured[COUNT];
    ignis_tensor x, y;
    bool ok;
    for (int i = 0; i < COUNT; i++) {
        at[i] = 6.0f * (float)i / COUNT;
        measured[i] = 1.5f * sinf(2.0f * at[i] + 0.5f) + 0.05f * sinf(997.0f * (float)i);
        if (i % 7 == 0) /* a wrong one */
            measured[i] = 4.0f;
    }
    if (ignis_setup(NULL) != IGNIS_OK)
        return 1;
    x = ignis_tensor_from_host(at, IGNIS_SHAPE(COUNT), NULL);
    y = ignis_tensor_from_host(measured, IGNIS_SHAPE(COUNT), NULL);
    printf("measured y = 1.500 sin(2.000 x + 0.500), one in seven wrong\n");
    ok = fit("squares", "square(a*sin(b*x + c) - y)", x, y) &&
         fit("Huber", "d = a*sin(b*x + c) - y; abs(d) < k ? 0.5*d*d : k*(abs(d) - 0.5*k)", x, y);
    ignis_tensor_release(x);
    ignis_tensor_release(y);
    if (!ok)
        fprintf(stderr, "%s\n", ignis_status_message());
    return ignis_shutdown() != IGNIS_OK || !ok;
}
