// SPDX-License-Identifier: MIT
/*  test_clip.c - one norm and one loss scale over several optimizers: beside double precision, and beside one optimizer
    with all parameters */
#include "fault.h"
#include "tensor.h"

#include <math.h>

enum { OPTIMIZERS = 3 };

static ignis_optimizer sgd(double lr, double scale)
{
    ignis_sgd_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.lr = lr;
    desc.loss_scale.initial = scale;
    desc.loss_scale.interval = scale != 0 ? 2 : 0;
    desc.zero_grad = true;
    return ignis_sgd(&desc);
}

static void add_gradient(ignis_tensor tensor, uint64_t seed, double factor)
{
    ignis_tensor_info info = tensor_info(tensor);
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor g = ignis_scale(tensor_noise(info.shape, info.dtype, seed, false), factor);
    CHECK_OK(ignis_backward(ignis_scale(tensor, 1), ignis_tensor_data(g)));
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_optimizer_info standing_of(ignis_optimizer optimizer)
{
    ignis_optimizer_info info;
    memset(&info, 0, sizeof info);
    CHECK_OK(ignis_optimizer_query(optimizer, &info));
    return info;
}

static double sum_of_squares(ignis_array array)
{
    double *values = array_values(array), sum = 0;
    int64_t i;
    for (i = 0; i < ignis_array_numel(array); i++)
        sum += values[i] * values[i];
    free(values);
    return sum;
}

/*  All gradients together have one norm, in any order of the optimizers' handles. f32 sums of 42 squares: 1e-6. */
TEST(one_norm)
{
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_BF16, IGNIS_F64};
    static const double limits[] = {INFINITY, 100, 0.5};
    int k, i, order;
    SETUP(NULL);
    for (order = 0; order < 2; order++)
        for (k = 0; k < 3; k++) {
            ignis_optimizer optimizers[OPTIMIZERS + 1];
            ignis_tensor p[OPTIMIZERS], idle = tensor_noise(IGNIS_SHAPE(3), IGNIS_F32, 9, true);
            double *values[OPTIMIZERS], *grads[OPTIMIZERS], sum = 0, norm, clip;
            int e;
            for (i = 0; i <= OPTIMIZERS; i++)
                optimizers[order ? OPTIMIZERS - i : i] = sgd(1, 0);
            for (i = 0; i < OPTIMIZERS; i++) {
                p[i] = tensor_noise(IGNIS_SHAPE(6, 7), dtypes[i], (uint64_t)i + 1, true);
                CHECK_OK(ignis_optimizer_add(optimizers[i], p[i], true));
                add_gradient(p[i], (uint64_t)i + 20, 1);
                values[i] = tensor_values(p[i]);
                grads[i] = array_values(ignis_tensor_grad(p[i]));
                sum += sum_of_squares(ignis_tensor_grad(p[i]));
            }
            CHECK_OK(ignis_optimizer_add(optimizers[OPTIMIZERS], idle, true)); /* no gradient: neither norm nor step */
            norm = sqrt(sum), clip = norm > limits[k] ? limits[k] / norm : 1;
            CHECK_OK(ignis_clip_grad_norms(optimizers, OPTIMIZERS + 1, limits[k]));
            for (i = 0; i < OPTIMIZERS; i++) {
                double *after;
                CHECK_OK(ignis_optimizer_step(optimizers[i]));
                CHECK_CLOSE(standing_of(optimizers[i]).grad_norm, norm, 1e-6);
                after = tensor_values(p[i]);
                for (e = 0; e < 42; e++)
                    CHECK_CLOSE(after[e], values[i][e] - clip * grads[i][e],
                                dtypes[i] == IGNIS_BF16 ? 1.0 / 128 : 1e-6);
                free(after), free(values[i]), free(grads[i]);
            }
            CHECK_NUMBER(standing_of(optimizers[OPTIMIZERS]).grad_norm, 0);
            for (i = 0; i <= OPTIMIZERS; i++)
                CHECK_OK(ignis_optimizer_free(optimizers[i]));
            for (i = 0; i < OPTIMIZERS; i++)
                let_go(p[i]);
            let_go(idle);
        }
}

/*  An optimizer for each of two parameters, beside one for both: the same bits, though gradients overflow in some
    steps, in either parameter. In a graph, too. */
TEST(one_scale)
{
    static const double factors[][2] = {{1, 1}, {INFINITY, 1}, {1, 1}, {1, INFINITY}, {1, 1}, {1, 1}, {1, 1}};
    int way, s, i;
    SETUP(NULL);
    for (way = 0; way < 2; way++) {
        ignis_optimizer pair[2], both = sgd(0.1, 1024);
        ignis_tensor p[2][2], factor = ignis_tensor_zeros(IGNIS_SHAPE(2), NULL);
        ignis_graph graph = {0};
        pair[1] = sgd(0.1, 4); /* which pair[0]'s takes the place of */
        pair[0] = sgd(0.1, 1024);
        for (i = 0; i < 2; i++) {
            p[i][0] = tensor_noise(IGNIS_SHAPE(5, 3), IGNIS_F32, (uint64_t)i + 1, true);
            p[i][1] = tensor_noise(IGNIS_SHAPE(5, 3), IGNIS_F32, (uint64_t)i + 1, true);
            CHECK_OK(ignis_optimizer_add(pair[i], p[i][0], false));
            CHECK_OK(ignis_optimizer_add(both, p[i][1], false));
        }
        for (s = 0; s < 7 + way; s++) {
            bool captures = way && s == 1; /* the first step has compiled the kernels */
            if (s - way >= 0)
                CHECK_OK(ignis_array_from_host(ignis_tensor_data(factor), factors[s - way], IGNIS_F64, 2));
            if (captures)
                CHECK_OK(ignis_graph_begin());
            if (!way || s <= 1) {
                ignis_scope scope = ignis_scope_begin();
                for (i = 0; i < 2; i++) {
                    ignis_tensor f0 = ignis_slice(factor, 0, 0, 1), f1 = ignis_slice(factor, 0, 1, 1), x = p[0][i],
                                 y = p[1][i];
                    ignis_tensor loss = ignis_map_sum("f0*x*x + f1*y*y", IGNIS_INPUTS(f0, f1, x, y));
                    CHECK_OK(ignis_backward(ignis_scale_loss(i ? both : pair[0], loss), IGNIS_NO_ARRAY));
                }
                CHECK_OK(ignis_clip_grad_norms(pair, 2, 0.75));
                CHECK_OK(ignis_clip_grad_norm(both, 0.75));
                for (i = 0; i < 2; i++)
                    CHECK_OK(ignis_optimizer_step(pair[i]));
                CHECK_OK(ignis_optimizer_step(both));
                CHECK_OK(ignis_scope_end(scope));
            }
            if (captures)
                graph = ignis_graph_end();
            if (graph.id)
                CHECK_OK(ignis_graph_launch(graph));
        }
        for (i = 0; i < 2; i++) {
            double *a = tensor_values(p[i][0]), *b = tensor_values(p[i][1]);
            CHECK(memcmp(a, b, 15 * sizeof *a) == 0);
            CHECK_INT(standing_of(pair[i]).skipped, 2);
            CHECK_INT(standing_of(pair[i]).step, 5 + way);
            CHECK_NUMBER(standing_of(pair[i]).loss_scale, standing_of(both).loss_scale);
            CHECK_NUMBER(standing_of(pair[i]).grad_norm, standing_of(both).grad_norm);
            free(a), free(b);
        }
        if (graph.id)
            CHECK_OK(ignis_graph_free(graph));
        for (i = 0; i < 2; i++) {
            CHECK_OK(ignis_optimizer_free(pair[i]));
            let_go(p[i][0]), let_go(p[i][1]);
        }
        CHECK_OK(ignis_optimizer_free(both));
        let_go(factor);
    }
}

TEST(refusals)
{
    ignis_optimizer list[2], none = {0};
    ignis_sgd_desc desc;
    ignis_tensor x[2];
    int i;
    SETUP(NULL);
    for (i = 0; i < 2; i++) {
        x[i] = tensor_noise(IGNIS_SHAPE(2), IGNIS_F32, 1, true);
        list[i] = sgd(1, i ? 8 : 0);
        CHECK_OK(ignis_optimizer_add(list[i], x[i], true));
        add_gradient(x[i], 1, 1);
    }
    CHECK_STATUS(ignis_clip_grad_norms(list, 2, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_clip_grad_norms(list, 2, NAN), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_clip_grad_norms(list, 0, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("count is 0");
    CHECK_STATUS(ignis_clip_grad_norms(NULL, 1, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_clip_grad_norms(list, 2, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("optimizers[1] has a loss scale");
    CHECK_OK(ignis_optimizer_free(list[0]));
    memset(&desc, 0, sizeof desc);
    desc.loss_scale.initial = 8, desc.loss_scale.interval = 3;
    list[0] = ignis_sgd(&desc);
    CHECK_STATUS(ignis_clip_grad_norms(list, 2, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_OK(ignis_optimizer_add(list[0], x[0], true));
    CHECK_STATUS(ignis_clip_grad_norms(list, 2, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("the loss scales of optimizers[1] and optimizers[0] differ");
    CHECK_OK(ignis_optimizer_free(list[0]));
    list[0] = list[1];
    CHECK_STATUS(ignis_clip_grad_norms(list, 2, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("optimizers[0] and optimizers[1] are the same");
    list[0] = none;
    CHECK_STATUS(ignis_clip_grad_norms(list, 2, 1), IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
    CHECK_OK(ignis_optimizer_step(list[1])); /* nothing is locked */
    CHECK_OK(ignis_optimizer_free(list[1]));
    for (i = 0; i < 2; i++)
        let_go(x[i]);
}

TEST(optimizers_of_two_devices)
{
    ignis_optimizer list[2];
    ignis_tensor x[2];
    int i;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_device_use(1 - i));
        x[i] = tensor_noise(IGNIS_SHAPE(2), IGNIS_F32, 1, true);
        list[i] = sgd(1, 8);
        CHECK_OK(ignis_optimizer_add(list[i], x[i], true));
        add_gradient(x[i], 1, 1);
    }
    CHECK_STATUS(ignis_clip_grad_norms(list, 2, 1), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_MESSAGE_HAS("optimizers[1] is on device 0");
    CHECK_OK(ignis_optimizer_step(list[1])); /* nothing is locked */
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_optimizer_free(list[i]));
        let_go(x[i]);
    }
}

/*  Clipping while calls of a name fail, one after the other (null: allocations on the host). */
static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_optimizer list[2];
    ignis_tensor x[2];
    bool reached = true;
    int64_t before;
    int at, i;
    SETUP(&desc);
    for (i = 0; i < 2; i++) {
        x[i] = tensor_noise(IGNIS_SHAPE(4), IGNIS_F32, 1, true);
        list[i] = sgd(1, 0);
        CHECK_OK(ignis_optimizer_add(list[i], x[i], true));
        add_gradient(x[i], 1, 1);
    }
    CHECK_OK(ignis_clip_grad_norms(list, 2, 1));
    before = memory().live_bytes;
    for (at = 1; at < 100 && reached; at++) {
        fault_plan(prefix, at, 2, &counter, false);
        (void)ignis_clip_grad_norms(list, 2, 1);
        reached = fault_over(&counter);
        ignis_status_clear();
        CHECK_INT(memory().live_bytes, before);
        CHECK_OK(ignis_optimizer_step(list[1]));
    }
    CHECK(at > 2 && !reached);
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_optimizer_free(list[i]));
        let_go(x[i]);
    }
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
