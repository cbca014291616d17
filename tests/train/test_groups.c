// SPDX-License-Identifier: MIT
/*  test_groups.c - groups of parameters in one optimizer beside optimizers of their own, whose results
    test_optimizers.c compares with double precision */
#include "fault.h"
#include "tensor.h"

#include <math.h>

typedef enum method { ADAMW, ADAM, SGD, RMSPROP, LION, MUON, METHODS } method;

static ignis_optimizer make_optimizer(int m, double lr, double decay)
{
    ignis_adamw_desc adamw;
    ignis_sgd_desc sgd;
    ignis_rmsprop_desc rmsprop;
    ignis_lion_desc lion;
    ignis_muon_desc muon;
#define FILL(desc)                              \
    memset(&desc, 0, sizeof desc);              \
    desc.lr = lr;                               \
    desc.weight_decay = decay;                  \
    desc.zero_grad = true;                      \
    desc.schedule.kind = IGNIS_SCHEDULE_COSINE; \
    desc.schedule.warmup = 2;                   \
    desc.schedule.total = 9
    FILL(adamw);
    FILL(sgd);
    FILL(rmsprop);
    FILL(lion);
    FILL(muon);
    sgd.momentum = rmsprop.momentum = 0.7;
    adamw.coupled = m == ADAM;
    return m == SGD       ? ignis_sgd(&sgd)
           : m == RMSPROP ? ignis_rmsprop(&rmsprop)
           : m == LION    ? ignis_lion(&lion)
           : m == MUON    ? ignis_muon(&muon)
                          : ignis_adamw(&adamw);
}

static const double rates[] = {0.03, 0.2, 0.001}, decays[] = {0.1, 0, 0.5};
#define PER_GROUP 2 /* one with decay, one without */

static ignis_tensor new_parameter(int at, ignis_dtype dtype)
{
    return tensor_noise(IGNIS_SHAPE(5 + at, 7), dtype, (uint64_t)at + 1, true);
}

static void give_gradient(ignis_tensor tensor, uint64_t seed)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor_info info = tensor_info(tensor);
    CHECK_OK(
        ignis_backward(ignis_scale(tensor, 1), ignis_tensor_data(tensor_noise(info.shape, info.dtype, seed, false))));
    CHECK_OK(ignis_scope_end(scope));
}

static bool equal(ignis_tensor a, ignis_tensor b)
{
    double *values[2] = {tensor_values(a), tensor_values(b)};
    bool same = memcmp(values[0], values[1], sizeof(double) * (size_t)tensor_info(a).shape.dim[0] * 7) == 0;
    free(values[0]), free(values[1]);
    return same;
}

/*  Each group has the bits of an optimizer of its own. The schedule scales all rates. */
TEST(a_group_is_as_an_optimizer)
{
    int m, d, g, i, step;
    SETUP(NULL);
    for (m = 0; m < METHODS; m++)
        for (d = 0; d < 2; d++) {
            ignis_dtype dtype = d ? IGNIS_BF16 : IGNIS_F32;
            ignis_optimizer one = make_optimizer(m, rates[0], decays[0]), alone[3];
            ignis_tensor p[3][PER_GROUP][2];
            ignis_optimizer_info info;
            for (g = 0; g < 3; g++) {
                if (g)
                    CHECK_INT(ignis_optimizer_add_group(one, rates[g], decays[g]), g);
                alone[g] = make_optimizer(m, rates[g], decays[g]);
                for (i = 0; i < PER_GROUP; i++) {
                    p[g][i][0] = new_parameter(g * PER_GROUP + i, dtype);
                    p[g][i][1] = new_parameter(g * PER_GROUP + i, dtype);
                    CHECK_OK(ignis_optimizer_add(one, p[g][i][0], i == 0));
                    CHECK_OK(ignis_optimizer_add(alone[g], p[g][i][1], i == 0));
                }
            }
            for (step = 0; step < 5; step++) {
                for (g = 0; g < 3; g++)
                    for (i = 0; i < 2 * PER_GROUP; i++)
                        give_gradient(p[g][i / 2][i % 2], (uint64_t)(100 * step + 10 * g + i / 2));
                CHECK_OK(ignis_optimizer_step(one));
                for (g = 0; g < 3; g++)
                    CHECK_OK(ignis_optimizer_step(alone[g]));
            }
            CHECK_OK(ignis_optimizer_query(one, &info));
            CHECK_INT(info.parameters, 3 * PER_GROUP);
            for (g = 0; g < 3; g++) {
                for (i = 0; i < PER_GROUP; i++) {
                    CHECK(equal(p[g][i][0], p[g][i][1]));
                    let_go(p[g][i][0]), let_go(p[g][i][1]);
                }
                CHECK_OK(ignis_optimizer_free(alone[g]));
            }
            CHECK_OK(ignis_optimizer_free(one));
        }
}

/*  SGD without momentum moves by lr times the gradient: the rates of each group can be read off. A graph follows
    ignis_optimizer_set_group, a restored state has the rates that it was saved with. */
TEST(rates_change_in_graphs_and_are_restored)
{
    ignis_sgd_desc desc;
    ignis_optimizer optimizers[2];
    ignis_tensor p[2], ones;
    ignis_graph graph;
    ignis_array numbers;
    double expected[2] = {1, 1};
    int i, step;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.lr = 0.5;
    ones = tensor_counting(IGNIS_SHAPE(1), IGNIS_F64, 1, false);
    for (i = 0; i < 2; i++) {
        optimizers[i] = ignis_sgd(&desc);
        p[i] = tensor_counting(IGNIS_SHAPE(1), IGNIS_F64, 1, true);
        CHECK_OK(ignis_tensor_set_grad(p[i], ignis_tensor_data(ones)));
    }
    CHECK_OK(ignis_optimizer_add(optimizers[0], p[0], true));
    CHECK_INT(ignis_optimizer_add_group(optimizers[0], 0.25, 0), 1);
    CHECK_OK(ignis_optimizer_add(optimizers[0], p[1], true));
    CHECK_OK(ignis_optimizer_step(optimizers[0])); /* compiles the kernels, which a capture does not */
    expected[0] -= 0.5, expected[1] -= 0.25;
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_optimizer_step(optimizers[0]));
    graph = ignis_graph_end();
    for (step = 0; step < 3; step++) {
        static const double lr[] = {0.125, 0, 1}, decay[] = {0, 0, 0.5};
        CHECK_OK(ignis_optimizer_set_group(optimizers[0], 1, lr[step], decay[step]));
        CHECK_OK(ignis_graph_launch(graph));
        expected[0] -= 0.5;
        expected[1] -= lr[step] * (1 + decay[step] * expected[1]);
        for (i = 0; i < 2; i++)
            CHECK_CLOSE(value_at(p[i], 0), expected[i], 1e-14);
    }
    CHECK_OK(ignis_graph_free(graph));
    CHECK_INT(ignis_optimizer_add_group(optimizers[1], 7, 7), 1);
    CHECK_OK(ignis_optimizer_add(optimizers[1], p[1], true));
    CHECK(!ignis_optimizer_state(optimizers[1], 0, IGNIS_OPTIMIZER_GROUP).id);
    numbers = ignis_optimizer_state(optimizers[1], 1, IGNIS_OPTIMIZER_GROUP);
    CHECK_OK(ignis_array_copy(numbers, ignis_optimizer_state(optimizers[0], 1, IGNIS_OPTIMIZER_GROUP)));
    CHECK_NUMBER(array_at(numbers, 0), 1);
    CHECK_NUMBER(array_at(numbers, 1), 0.5);
    CHECK_OK(ignis_optimizer_step(optimizers[1]));
    CHECK_CLOSE(value_at(p[1], 0), expected[1] - (1 + 0.5 * expected[1]), 1e-14);
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_optimizer_free(optimizers[i]));
        let_go(p[i]);
    }
    let_go(ones);
}

/*  More groups and parameters than one launch carries rows. */
TEST(many_groups)
{
    enum { COUNT = 80 };
    ignis_sgd_desc desc;
    ignis_optimizer optimizer;
    ignis_tensor p[COUNT], ones;
    int i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    optimizer = ignis_sgd(&desc);
    ones = tensor_counting(IGNIS_SHAPE(1), IGNIS_F32, 1, false);
    for (i = 0; i < COUNT; i++) {
        p[i] = tensor_counting(IGNIS_SHAPE(1), IGNIS_F32, 1, true);
        CHECK_INT(ignis_optimizer_add_group(optimizer, i, 0), i + 1);
        CHECK_OK(ignis_optimizer_add(optimizer, p[i], true));
        CHECK_OK(ignis_tensor_set_grad(p[i], ignis_tensor_data(ones)));
    }
    CHECK_OK(ignis_optimizer_step(optimizer));
    for (i = 0; i < COUNT; i++) {
        CHECK_NUMBER(value_at(p[i], 0), 1 - i);
        let_go(p[i]);
    }
    let_go(ones);
    CHECK_OK(ignis_optimizer_free(optimizer));
}

TEST(refusals)
{
    ignis_optimizer optimizer, freed;
    SETUP(NULL);
    optimizer = ignis_adamw(NULL);
    freed = ignis_adamw(NULL);
    CHECK_OK(ignis_optimizer_free(freed));
    CHECK_REFUSED(-1, ignis_optimizer_add_group(optimizer, -1, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("lr is -1");
    CHECK_REFUSED(-1, ignis_optimizer_add_group(optimizer, 1, NAN), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("weight_decay is ");
    CHECK_REFUSED(-1, ignis_optimizer_add_group(freed, 1, 0), IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
    CHECK_STATUS(ignis_optimizer_set_group(optimizer, 1, 1, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("group is 1; the optimizer has no groups");
    CHECK_INT(ignis_optimizer_add_group(optimizer, 1, 0), 1);
    CHECK_STATUS(ignis_optimizer_set_group(optimizer, 0, 1, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_optimizer_set_group(optimizer, 2, 1, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_optimizer_set_group(optimizer, 1, INFINITY, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_optimizer_set_group(freed, 1, 1, 0), IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
    CHECK_REFUSED(0, ignis_optimizer_state(optimizer, 2, IGNIS_OPTIMIZER_GROUP).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("group is 2");
    CHECK_OK(ignis_graph_begin());
    CHECK_REFUSED(-1, ignis_optimizer_add_group(optimizer, 1, 0), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_OK(ignis_graph_free(ignis_graph_end()));
    CHECK_OK(ignis_optimizer_free(optimizer));
}

/*  A group and a step while calls of a name fail, one after the other (null: allocations on the host). */
static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    bool reached = true;
    int64_t before;
    int at;
    SETUP(&desc);
    let_go(tensor_counting(IGNIS_SHAPE(1), IGNIS_F32, 1, false));
    before = memory().live_bytes;
    for (at = 1; at < 1000 && reached; at++) {
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(4, 6), IGNIS_BF16, 1, true),
                     g = tensor_noise(IGNIS_SHAPE(4, 6), IGNIS_BF16, 1, false);
        ignis_optimizer optimizer;
        CHECK_OK(ignis_tensor_set_grad(x, ignis_tensor_data(g)));
        fault_plan(prefix, at, 2, &counter, false);
        optimizer = ignis_sgd(NULL);
        if (optimizer.id && ignis_optimizer_add_group(optimizer, 1, 0) == 1 &&
            ignis_optimizer_add(optimizer, x, true) == IGNIS_OK)
            (void)ignis_optimizer_step(optimizer);
        reached = fault_over(&counter);
        ignis_status_clear();
        if (optimizer.id)
            CHECK_OK(ignis_optimizer_free(optimizer));
        let_go(x), let_go(g);
        CHECK_INT(memory().live_bytes, before);
    }
    CHECK(at > 2 && !reached);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
