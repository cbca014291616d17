// SPDX-License-Identifier: MIT
/*  test_averages.c - sums of gradients in f32 beside exact ones and beside gradients that backward adds, and averages
    of weights beside double precision */
#include "fault.h"
#include "tensor.h"

#include <math.h>

typedef enum method { ADAMW, ADAM, SGD, RMSPROP, LION, MUON, METHODS } method;

typedef struct options {
    double scale, ema;
    bool zero_grad, drop_grad, no_master;
} options;

static ignis_optimizer make_optimizer(int m, options o)
{
    ignis_adamw_desc adamw;
    ignis_sgd_desc sgd;
    ignis_rmsprop_desc rmsprop;
    ignis_lion_desc lion;
    ignis_muon_desc muon;
#define FILL(desc)                     \
    memset(&desc, 0, sizeof desc);     \
    desc.lr = 0.05;                    \
    desc.weight_decay = 0.1;           \
    desc.loss_scale.initial = o.scale; \
    desc.zero_grad = o.zero_grad;      \
    desc.drop_grad = o.drop_grad;      \
    desc.no_master = o.no_master;      \
    desc.ema_decay = o.ema
    FILL(adamw);
    FILL(sgd);
    FILL(rmsprop);
    FILL(lion);
    FILL(muon);
    adamw.coupled = m == ADAM;
    return m == SGD       ? ignis_sgd(&sgd)
           : m == RMSPROP ? ignis_rmsprop(&rmsprop)
           : m == LION    ? ignis_lion(&lion)
           : m == MUON    ? ignis_muon(&muon)
                          : ignis_adamw(&adamw);
}

static options plain(void)
{
    options o;
    memset(&o, 0, sizeof o);
    return o;
}

static void add_gradient(ignis_tensor tensor, uint64_t seed, double factor)
{
    ignis_tensor_info info = tensor_info(tensor);
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor g = ignis_scale(tensor_noise(info.shape, info.dtype, seed, false), factor);
    CHECK_OK(ignis_backward(ignis_scale(tensor, 1), ignis_tensor_data(g)));
    CHECK_OK(ignis_scope_end(scope));
}

static bool equal(ignis_array a, ignis_array b)
{
    double *values[2] = {array_values(a), array_values(b)};
    bool same = memcmp(values[0], values[1], sizeof(double) * (size_t)ignis_array_numel(a)) == 0;
    free(values[0]), free(values[1]);
    return same;
}

static ignis_optimizer_info standing_of(ignis_optimizer optimizer)
{
    ignis_optimizer_info info;
    memset(&info, 0, sizeof info);
    CHECK_OK(ignis_optimizer_query(optimizer, &info));
    return info;
}

/* --- sums of gradients -------------------------------------------------------------------------------------------- */

/*  Of f32 the sums are those that backward makes, to the last bit: so is all that follows, with clipping and a scale,
    and where a step is skipped. */
TEST(sums_of_f32_are_those_of_backward)
{
    int m, way, s, i, pass;
    SETUP(NULL);
    for (m = 0; m < METHODS; m++)
        for (way = 0; way < 4; way++) {
            options o = plain();
            ignis_optimizer optimizers[2];
            ignis_tensor p[2][2];
            o.scale = way == 1 ? 64 : 0, o.zero_grad = way != 2, o.drop_grad = way == 3;
            for (i = 0; i < 2; i++) {
                optimizers[i] = make_optimizer(m, o);
                p[i][0] = tensor_noise(IGNIS_SHAPE(5, 7), IGNIS_F32, 1, true);
                p[i][1] = tensor_noise(IGNIS_SHAPE(30, 50), IGNIS_F32, 2, true);
                CHECK_OK(ignis_optimizer_add(optimizers[i], p[i][0], true));
                CHECK_OK(ignis_optimizer_add(optimizers[i], p[i][1], false));
            }
            for (s = 0; s < 4; s++)
                for (i = 0; i < 2; i++) {
                    for (pass = 0; pass < 3; pass++) {
                        add_gradient(p[i][0], (uint64_t)(10 * s + pass), way == 1 && s == 2 ? INFINITY : 1);
                        add_gradient(p[i][1], (uint64_t)(10 * s + pass), 1);
                        if (i && pass < 2 + s % 2) /* the last one may be in a sum, or not */
                            CHECK_OK(ignis_optimizer_accumulate(optimizers[i]));
                    }
                    if (way != 2)
                        CHECK_OK(ignis_clip_grad_norm(optimizers[i], 3));
                    CHECK_OK(ignis_optimizer_step(optimizers[i]));
                    if (way == 2)
                        CHECK_OK(ignis_optimizer_zero_grad(optimizers[i]));
                }
            CHECK_NUMBER(standing_of(optimizers[0]).grad_norm, standing_of(optimizers[1]).grad_norm);
            CHECK_INT(standing_of(optimizers[1]).skipped, way == 1);
            for (i = 0; i < 2; i++)
                CHECK(equal(ignis_tensor_data(p[0][i]), ignis_tensor_data(p[1][i])));
            for (i = 0; i < 2; i++) {
                CHECK_OK(ignis_optimizer_free(optimizers[i]));
                let_go(p[i][0]), let_go(p[i][1]);
            }
        }
}

/*  256 and 200 times 0.5: f32 has the sum 356 exactly, bf16 stays at 256, f16 has 356 in whole numbers. At an address
    that is no multiple of 16, too. */
TEST(small_gradients_are_not_lost)
{
    static const ignis_dtype dtypes[] = {IGNIS_BF16, IGNIS_F16, IGNIS_F64};
    int d, sums, odd, pass, k;
    SETUP(NULL);
    for (d = 0; d < 3; d++)
        for (sums = 0; sums < 2; sums++)
            for (odd = 0; odd < 2; odd++) {
                ignis_sgd_desc desc;
                ignis_optimizer optimizer;
                ignis_tensor whole = tensor_noise(IGNIS_SHAPE(19 + odd), dtypes[d], 1, false), p, grad;
                ignis_array view = ignis_array_slice(ignis_tensor_data(whole), 0, odd, 19), master;
                memset(&desc, 0, sizeof desc);
                desc.lr = 1, desc.zero_grad = true;
                optimizer = ignis_sgd(&desc);
                CHECK_OK(ignis_array_fill(view, 0));
                p = ignis_tensor_from_array(view, true);
                CHECK_OK(ignis_optimizer_add(optimizer, p, false));
                for (pass = 0; pass <= 200; pass++) {
                    ignis_scope scope = ignis_scope_begin();
                    grad = ignis_cast(
                        ignis_map_shape("g", IGNIS_SHAPE(19), IGNIS_INPUTS(IGNIS_VALUE(g, pass ? 0.5 : 256)), NULL),
                        dtypes[d]);
                    CHECK_OK(ignis_backward(ignis_scale(p, 1), ignis_tensor_data(grad)));
                    if (sums)
                        CHECK_OK(ignis_optimizer_accumulate(optimizer));
                    CHECK_OK(ignis_scope_end(scope));
                }
                CHECK_OK(ignis_clip_grad_norm(optimizer, INFINITY));
                CHECK_OK(ignis_optimizer_step(optimizer));
                master = ignis_optimizer_state(optimizer, 0, IGNIS_OPTIMIZER_MASTER);
                for (k = 0; k < 19; k++)
                    CHECK_NUMBER(master.id ? array_at(master, k) : value_at(p, k), !sums && d == 0 ? -256 : -356);
                CHECK_CLOSE(standing_of(optimizer).grad_norm, sqrt(19.0) * (!sums && d == 0 ? 256 : 356), 1e-6);
                CHECK_OK(ignis_optimizer_step(optimizer)); /* the sums are 0 again, as are the gradients */
                CHECK_NUMBER(master.id ? array_at(master, 18) : value_at(p, 18), !sums && d == 0 ? -256 : -356);
                CHECK_OK(ignis_optimizer_free(optimizer));
                let_go(p), let_go(whole), drop(view);
            }
}

/*  Passes and a step in graphs; ignis_optimizer_zero_grad forgets the sums. */
TEST(sums_in_graphs)
{
    ignis_sgd_desc desc;
    ignis_optimizer optimizer;
    static const double zeros[3] = {0, 0, 0};
    ignis_tensor p, ones;
    ignis_graph graphs[2];
    int i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.lr = 1, desc.zero_grad = true;
    optimizer = ignis_sgd(&desc);
    p = tensor_of(zeros, IGNIS_SHAPE(3), IGNIS_F32, true);
    ones = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    CHECK_OK(ignis_optimizer_add(optimizer, p, false));
    CHECK_OK(ignis_tensor_set_grad(p, ignis_tensor_data(ones)));
    CHECK_OK(ignis_graph_begin());
    CHECK_STATUS(ignis_optimizer_accumulate(optimizer), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_OK(ignis_graph_free(ignis_graph_end()));
    CHECK_OK(ignis_optimizer_accumulate(optimizer));
    CHECK_OK(ignis_optimizer_zero_grad(optimizer));
    CHECK_OK(ignis_optimizer_step(optimizer));
    CHECK_NUMBER(value_at(p, 2), 0);
    for (i = 0; i < 2; i++) {
        ignis_scope scope = ignis_scope_begin();
        CHECK_OK(ignis_graph_begin());
        if (i == 0) {
            CHECK_OK(ignis_backward(ignis_scale(p, 1), ignis_tensor_data(ones)));
            CHECK_OK(ignis_optimizer_accumulate(optimizer));
        } else {
            CHECK_OK(ignis_optimizer_step(optimizer));
        }
        graphs[i] = ignis_graph_end();
        CHECK_OK(ignis_scope_end(scope));
    }
    for (i = 0; i < 10; i++)
        CHECK_OK(ignis_graph_launch(graphs[i % 5 == 4]));
    CHECK_NUMBER(value_at(p, 0), -8);
    CHECK_NUMBER(value_at(p, 2), -24);
    for (i = 0; i < 2; i++)
        CHECK_OK(ignis_graph_free(graphs[i]));
    CHECK_OK(ignis_optimizer_free(optimizer));
    let_go(p), let_go(ones);
}

/* --- averages of weights ------------------------------------------------------------------------------------------ */

/*  Beside a mean in double precision of the values, or of the f32 copies; skipped steps do not move it. */
TEST(averages)
{
    int m, d, s, k;
    SETUP(NULL);
    for (m = 0; m < METHODS; m++)
        for (d = 0; d < COUNT_OF(float_dtypes); d++) {
            ignis_dtype dtype = float_dtypes[d];
            options o = plain();
            ignis_optimizer optimizer;
            ignis_tensor p = tensor_noise(IGNIS_SHAPE(3, 11), dtype, 1, true);
            double *average = tensor_values(p), *got, *value;
            ignis_array master;
            o.ema = 0.75, o.scale = 2, o.zero_grad = true;
            optimizer = make_optimizer(m, o);
            CHECK_OK(ignis_optimizer_add(optimizer, p, true));
            master = ignis_optimizer_state(optimizer, 0, IGNIS_OPTIMIZER_MASTER);
            for (s = 0; s < 5; s++) {
                add_gradient(p, (uint64_t)s, s == 2 ? INFINITY : 1);
                CHECK_OK(ignis_optimizer_step(optimizer));
                value = master.id ? array_values(master) : tensor_values(p);
                for (k = 0; k < 33 && s != 2; k++)
                    average[k] += 0.25 * (value[k] - average[k]);
                free(value);
            }
            CHECK_INT(standing_of(optimizer).skipped, 1);
            got = array_values(ignis_optimizer_state(optimizer, 0, IGNIS_OPTIMIZER_EMA));
            for (k = 0; k < 33; k++)
                CHECK_CLOSE(got[k], average[k], dtype == IGNIS_F64 ? 1e-13 : 1e-6);
            free(got), free(average);
            CHECK_OK(ignis_optimizer_free(optimizer));
            let_go(p);
        }
}

/*  Averages change no bit of the training, go into the parameters and out of them, and are restored with the state. */
TEST(averages_are_exchanged_and_restored)
{
    int d, i, s, part;
    SETUP(NULL);
    for (d = 0; d < COUNT_OF(float_dtypes); d++) {
        ignis_dtype dtype = float_dtypes[d];
        options o = plain();
        ignis_optimizer optimizers[3];
        ignis_tensor p[3], before = tensor_noise(IGNIS_SHAPE(4, 9), dtype, 1, false);
        ignis_array ema, expected = ignis_array_clone(ignis_tensor_data(before));
        o.zero_grad = true;
        for (i = 0; i < 3; i++) {
            o.ema = i ? 0.9 : 0;
            optimizers[i] = make_optimizer(ADAMW, o);
            p[i] = tensor_noise(IGNIS_SHAPE(4, 9), dtype, 1, true);
            CHECK_OK(ignis_optimizer_add(optimizers[i], p[i], true));
        }
        ema = ignis_optimizer_state(optimizers[1], 0, IGNIS_OPTIMIZER_EMA);
        CHECK(!ignis_optimizer_state(optimizers[0], 0, IGNIS_OPTIMIZER_EMA).id);
        for (s = 0; s < 6; s++) {
            if (s == 3) { /* the third one goes on from the second */
                for (part = IGNIS_OPTIMIZER_SELF; part <= IGNIS_OPTIMIZER_EMA; part++) {
                    ignis_array from = part == IGNIS_OPTIMIZER_GROUP
                                           ? IGNIS_NO_ARRAY
                                           : ignis_optimizer_state(optimizers[1], 0, (ignis_optimizer_part)part);
                    if (from.id)
                        CHECK_OK(ignis_array_copy(ignis_optimizer_state(optimizers[2], 0, (ignis_optimizer_part)part),
                                                  from));
                }
                CHECK_OK(ignis_array_copy(ignis_tensor_data(p[2]), ignis_tensor_data(p[1])));
            }
            for (i = 0; i < (s < 3 ? 2 : 3); i++) {
                add_gradient(p[i], (uint64_t)s, 1);
                CHECK_OK(ignis_optimizer_step(optimizers[i]));
            }
            CHECK(equal(ignis_tensor_data(p[0]), ignis_tensor_data(p[1])));
            CHECK_OK(ignis_array_copy(ignis_tensor_data(before), ignis_tensor_data(p[1])));
            CHECK_OK(ignis_array_copy(expected, ema)); /* rounded to the parameter's dtype */
            CHECK_OK(ignis_optimizer_swap_ema(optimizers[1]));
            CHECK(equal(ignis_tensor_data(p[1]), expected));
            CHECK(!equal(ignis_tensor_data(p[1]), ignis_tensor_data(before)));
            CHECK_STATUS(ignis_optimizer_step(optimizers[1]), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OPTIMIZER_STATE);
            CHECK_MESSAGE_HAS("the parameters hold their averages");
            CHECK_OK(ignis_optimizer_swap_ema(optimizers[1]));
            CHECK(equal(ignis_tensor_data(p[1]), ignis_tensor_data(before)));
        }
        CHECK(equal(ignis_tensor_data(p[1]), ignis_tensor_data(p[2])));
        CHECK(equal(ema, ignis_optimizer_state(optimizers[2], 0, IGNIS_OPTIMIZER_EMA)));
        for (i = 0; i < 3; i++) {
            CHECK_OK(ignis_optimizer_free(optimizers[i]));
            let_go(p[i]);
        }
        let_go(before), drop(expected);
    }
}

/*  A graph of a step moves the averages. */
TEST(averages_in_graphs)
{
    options o = plain();
    ignis_optimizer optimizers[2];
    ignis_tensor p[2];
    ignis_graph graph = {0};
    int i, s;
    SETUP(NULL);
    o.ema = 0.5;
    for (i = 0; i < 2; i++) {
        optimizers[i] = make_optimizer(LION, o);
        p[i] = tensor_noise(IGNIS_SHAPE(4, 9), IGNIS_BF16, 1, true);
        CHECK_OK(ignis_optimizer_add(optimizers[i], p[i], true));
        add_gradient(p[i], 5, 1);
        CHECK_OK(ignis_optimizer_step(optimizers[i]));
    }
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_optimizer_step(optimizers[0]));
    graph = ignis_graph_end();
    for (s = 0; s < 4; s++) {
        CHECK_OK(ignis_graph_launch(graph));
        CHECK_OK(ignis_optimizer_step(optimizers[1]));
    }
    CHECK(equal(ignis_optimizer_state(optimizers[0], 0, IGNIS_OPTIMIZER_EMA),
                ignis_optimizer_state(optimizers[1], 0, IGNIS_OPTIMIZER_EMA)));
    CHECK_OK(ignis_graph_free(graph));
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_optimizer_free(optimizers[i]));
        let_go(p[i]);
    }
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

TEST(refusals)
{
    options o = plain();
    ignis_sgd_desc sgd;
    ignis_muon_desc muon;
    ignis_optimizer optimizer, freed = {0};
    SETUP(NULL);
    memset(&sgd, 0, sizeof sgd), memset(&muon, 0, sizeof muon);
    sgd.ema_decay = 1;
    CHECK_REFUSED(0, ignis_sgd(&sgd).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("ema_decay is 1");
    muon.ema_decay = NAN;
    CHECK_REFUSED(0, ignis_muon(&muon).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    o.ema = 0;
    optimizer = make_optimizer(SGD, o);
    CHECK_STATUS(ignis_optimizer_swap_ema(optimizer), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OPTIMIZER_STATE);
    CHECK_MESSAGE_HAS("has no averages");
    CHECK_STATUS(ignis_optimizer_accumulate(optimizer), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_OK(ignis_optimizer_free(optimizer));
    o.ema = 0.5;
    optimizer = make_optimizer(SGD, o);
    CHECK_STATUS(ignis_optimizer_swap_ema(optimizer), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_optimizer_swap_ema(freed), IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
    CHECK_STATUS(ignis_optimizer_accumulate(freed), IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
    CHECK_OK(ignis_optimizer_free(optimizer));
}

/*  Sums, averages and a step while calls of a name fail, one after the other (null: allocations on the host). */
static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    options o = plain();
    bool reached = true;
    int64_t before;
    int at;
    SETUP(&desc);
    o.ema = 0.5;
    let_go(tensor_counting(IGNIS_SHAPE(1), IGNIS_F32, 1, false));
    before = memory().live_bytes;
    for (at = 1; at < 1000 && reached; at++) {
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(4, 6), IGNIS_BF16, 1, true),
                     g = tensor_noise(IGNIS_SHAPE(4, 6), IGNIS_BF16, 1, false);
        ignis_optimizer optimizer;
        CHECK_OK(ignis_tensor_set_grad(x, ignis_tensor_data(g)));
        fault_plan(prefix, at, 2, &counter, false);
        optimizer = make_optimizer(SGD, o);
        if (optimizer.id && ignis_optimizer_add(optimizer, x, true) == IGNIS_OK &&
            ignis_optimizer_accumulate(optimizer) == IGNIS_OK && ignis_optimizer_step(optimizer) == IGNIS_OK)
            (void)ignis_optimizer_swap_ema(optimizer);
        reached = fault_over(&counter);
        ignis_status_clear();
        if (optimizer.id)
            CHECK_OK(ignis_optimizer_free(optimizer));
        let_go(x), let_go(g);
        CHECK_INT(memory().live_bytes, before);
    }
    CHECK(at > 3 && !reached);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
