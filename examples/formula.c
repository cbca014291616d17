// SPDX-License-Identifier: MIT
/*  formula.c - a model and its loss in one line: a curve through measurements, some of which are wrong

    The model is a wave a*sin(b*x + c), of which a, b and c are to be found. Model, error and loss are one formula:
    ignis_map_mean compiles it to one kernel, and makes another one for the gradients by a, b and c, which that also
    sums over all measurements.

    The mean of squares is pulled away by the wrong measurements; the Huber loss, which grows like the error itself
    where that is above k, is not.

    Then the same Huber loss as it would be without formulas: two kernels in CUDA, and a rule that ties them together
    (custom_op.c explains it).
    The program checks that both are the same, values and gradients. The line takes one pass over memory to the mean,
    these take two.

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

/* --- the same loss as an operation of one's own ------------------------------------------------------------------- */

static const char huber_source[] =
    "extern \"C\" __global__ void huber(float *loss, const float *p, const float *y, float k, int n)\n"
    "{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n) {\n"
    "        float d = p[i] - y[i];\n"
    "        loss[i] = fabsf(d) < k ? 0.5f * d * d : k * (fabsf(d) - 0.5f * k);\n"
    "    }\n"
    "}\n"
    "extern \"C\" __global__ void huber_backward(float *dp, const float *g, const float *p, const float *y, float k, "
    "int n)\n"
    "{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n)\n"
    "        dp[i] = g[i] * fminf(fmaxf(p[i] - y[i], -k), k);\n"
    "}\n";

#define K 0.1f

static ignis_kernel huber, huber_gradient;

/*  The gradient of the predictions. It becomes the tape's, which frees it when it is done. */
static ignis_status huber_backward(const ignis_backward_args *args)
{
    const ignis_array_desc desc = {.shape = IGNIS_SHAPE(COUNT)};
    const ignis_array dp = ignis_array_create(&desc);
    const ignis_arg arguments[] = {ignis_arg_array(dp),
                                   ignis_arg_array(args->grad_output),
                                   ignis_arg_array(args->saved[0]),
                                   ignis_arg_array(args->saved[1]),
                                   ignis_arg_f32(K),
                                   ignis_arg_i32(COUNT)};
    const ignis_launch launch = {.grid = {(COUNT + 127) / 128}, .block = {128}};
    args->grad_inputs[0] = dp;
    return ignis_kernel_launch(huber_gradient, &launch, arguments, 6);
}

/*  The losses of predictions p for measurements y. */
static ignis_tensor huber_by_hand(ignis_tensor p, ignis_tensor y)
{
    const ignis_tensor loss = ignis_tensor_zeros(IGNIS_SHAPE(COUNT), NULL);
    const ignis_array saved[] = {ignis_tensor_data(p), ignis_tensor_data(y)};
    const ignis_arg arguments[] = {ignis_arg_array(ignis_tensor_data(loss)), ignis_arg_array(saved[0]),
                                   ignis_arg_array(saved[1]), ignis_arg_f32(K), ignis_arg_i32(COUNT)};
    const ignis_launch launch = {.grid = {(COUNT + 127) / 128}, .block = {128}};
    const ignis_rule rule = {.name = "huber", .backward_fn = huber_backward, .saved = saved, .saved_count = 2};
    ignis_kernel_launch(huber, &launch, arguments, 5);
    ignis_tape_record(loss, &p, 1, &rule);
    return loss;
}

/*  Whether both give the same loss and gradient, of predictions that are all 0. */
static bool compare(ignis_tensor y)
{
    const ignis_tensor_desc wanted = {.requires_grad = true};
    ignis_kernel_desc kernel = {.source = huber_source, .name = "huber.cu", .entry = "huber"};
    ignis_scope scope = ignis_scope_begin();
    float gradient[2][COUNT] = {{0}}, furthest = 0;
    double loss[2] = {0, 1};
    huber = ignis_kernel_compile(&kernel);
    kernel.entry = "huber_backward";
    huber_gradient = ignis_kernel_compile(&kernel);
    for (int i = 0; i < 2; i++) {
        ignis_tensor p = ignis_tensor_zeros(IGNIS_SHAPE(COUNT), &wanted), mean;
        if (i == 0)
            mean = ignis_map_mean("d = p - y; abs(d) < k ? 0.5*d*d : k*(abs(d) - 0.5*k)",
                                  IGNIS_INPUTS(p, y, IGNIS_VALUE(k, K)));
        else
            mean = ignis_mean(huber_by_hand(p, y));
        ignis_backward(mean, IGNIS_NO_ARRAY);
        loss[i] = ignis_item(mean);
        ignis_array_to_host(ignis_tensor_grad(p), gradient[i], IGNIS_F32, COUNT);
    }
    for (int i = 0; i < COUNT; i++)
        furthest = fmaxf(furthest, fabsf(gradient[0][i] - gradient[1][i]));
    printf("one line: loss %.6f; by hand, in fifty: loss %.6f; gradients differ by %.1e at most\n", loss[0], loss[1],
           furthest);
    ignis_kernel_free(huber);
    ignis_kernel_free(huber_gradient);
    ignis_scope_end(scope);
    return fabs(loss[0] - loss[1]) < 1e-6 && furthest < 1e-8f;
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
         fit("Huber", "d = a*sin(b*x + c) - y; abs(d) < k ? 0.5*d*d : k*(abs(d) - 0.5*k)", x, y) && compare(y);
    ignis_tensor_release(x);
    ignis_tensor_release(y);
    if (!ok)
        fprintf(stderr, "%s\n", ignis_status_message());
    return ignis_shutdown() != IGNIS_OK || !ok;
}
