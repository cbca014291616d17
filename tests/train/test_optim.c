// SPDX-License-Identifier: MIT
/*  test_optim.c - AdamW and SGD against references in double, schedules, clipping, state, and what is refused */
#include "fault.h"
#include "tensor.h"

#include <math.h>

/*  One parameter, and its reference. */
typedef struct parameter {
    ignis_tensor tensor;
    int64_t numel;
    bool decay;
    double *value, *grad, *first, *second;
} parameter;

enum { MAX_PARAMETERS = 80 };

typedef struct training {
    ignis_optimizer optimizer;
    parameter at[MAX_PARAMETERS];
    int count, step;
} training;

static bool is_adamw(const ignis_sgd_desc *sgd) { return sgd == NULL; }

/*  A leaf with noise; where odd, over memory that is not aligned to packs. */
static ignis_tensor leaf(int64_t numel, ignis_dtype dtype, uint64_t seed, bool odd)
{
    ignis_tensor whole = tensor_noise(IGNIS_SHAPE(numel + odd), dtype, seed, false), tensor;
    ignis_array view = ignis_array_slice(ignis_tensor_data(whole), 0, odd, numel);
    tensor = ignis_tensor_from_array(view, true);
    drop(view);
    let_go(whole);
    return tensor;
}

static void add_parameter(training *t, int64_t numel, ignis_dtype dtype, bool decay, bool odd)
{
    parameter *p = &t->at[t->count++];
    p->tensor = leaf(numel, dtype, (uint64_t)t->count, odd);
    p->numel = numel;
    p->decay = decay;
    p->value = tensor_values(p->tensor);
    p->grad = (double *)calloc((size_t)numel + 1, sizeof(double));
    p->first = (double *)calloc((size_t)numel + 1, sizeof(double));
    p->second = (double *)calloc((size_t)numel + 1, sizeof(double));
    CHECK_OK(ignis_optimizer_add(t->optimizer, p->tensor, decay));
}

static void end_training(training *t)
{
    int i;
    CHECK_OK(ignis_optimizer_free(t->optimizer));
    for (i = 0; i < t->count; i++) {
        let_go(t->at[i].tensor);
        free(t->at[i].value), free(t->at[i].grad), free(t->at[i].first), free(t->at[i].second);
    }
    memset(t, 0, sizeof *t);
}

/*  Adds noise to the gradient of one parameter, by a backward. */
static void give_gradient(parameter *p, uint64_t seed)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_dtype dtype = tensor_info(p->tensor).dtype;
    ignis_tensor noise_of_step = tensor_noise(IGNIS_SHAPE(p->numel), dtype, seed, false);
    CHECK_OK(ignis_backward(ignis_scale(p->tensor, 1), ignis_tensor_data(noise_of_step)));
    CHECK_OK(ignis_scope_end(scope));
    free(p->grad);
    p->grad = array_values(ignis_tensor_grad(p->tensor));
}

static void give_gradients(training *t)
{
    int i;
    for (i = 0; i < t->count; i++)
        give_gradient(&t->at[i], (uint64_t)(1000 * t->step + i));
}

static double norm_of(const training *t)
{
    double sum = 0;
    int64_t k;
    int i;
    for (i = 0; i < t->count; i++)
        for (k = 0; k < t->at[i].numel; k++)
            sum += t->at[i].grad[k] * t->at[i].grad[k];
    return sqrt(sum);
}

static void reference_step(training *t, const ignis_sgd_desc *sgd, const ignis_adamw_desc *adamw, double lr,
                           double clip)
{
    int64_t k;
    int i;
    t->step++;
    for (i = 0; i < t->count; i++) {
        parameter *p = &t->at[i];
        double decay = !p->decay ? 0 : is_adamw(sgd) ? adamw->weight_decay : sgd->weight_decay;
        for (k = 0; k < p->numel; k++) {
            double g = p->grad[k] * clip;
            if (is_adamw(sgd)) {
                p->first[k] = adamw->beta1 * p->first[k] + (1 - adamw->beta1) * g;
                p->second[k] = adamw->beta2 * p->second[k] + (1 - adamw->beta2) * g * g;
                p->value[k] *= 1 - lr * decay;
                p->value[k] -= lr * p->first[k] / (1 - pow(adamw->beta1, t->step)) /
                               (sqrt(p->second[k] / (1 - pow(adamw->beta2, t->step))) + adamw->eps);
            } else {
                p->first[k] = sgd->momentum * p->first[k] + g + decay * p->value[k];
                p->value[k] -= lr * p->first[k];
            }
        }
    }
}

static void check_parameters(const training *t, bool master)
{
    int i;
    for (i = 0; i < t->count; i++) {
        const parameter *p = &t->at[i];
        ignis_dtype dtype = tensor_info(p->tensor).dtype;
        double rounding = dtype == IGNIS_F64   ? 1e-12
                          : dtype == IGNIS_F32 ? 1e-5
                          : dtype == IGNIS_F16 ? 1.0 / 1024
                                               : 1.0 / 128;
        double *values = tensor_values(p->tensor);
        int64_t k;
        if (!master && dtype <= IGNIS_BF16)
            rounding *= 4; /* each step rounds */
        for (k = 0; k < p->numel && is_close(values[k], p->value[k], rounding); k++)
            ;
        if (k < p->numel) {
            char text[256];
            snprintf(text, sizeof text, "step %d, parameter %d of dtype %d: element %lld is %.17g, expected %.17g",
                     t->step, i, (int)dtype, (long long)k, values[k], p->value[k]);
            test__fail(__FILE__, __LINE__, text);
        }
        free(values);
    }
}

static ignis_adamw_desc usual_adamw(void)
{
    ignis_adamw_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.lr = 0.02, desc.beta1 = 0.9, desc.beta2 = 0.99, desc.eps = 1e-8, desc.weight_decay = 0.1;
    return desc;
}

static void add_usual_parameters(training *t, ignis_dtype dtype)
{
    add_parameter(t, 20000, dtype, true, false);
    add_parameter(t, 1, dtype, false, false);
    add_parameter(t, 8193, dtype, true, true);
    add_parameter(t, 77, dtype, false, true);
}

static void check_steps(const ignis_sgd_desc *sgd, const ignis_adamw_desc *adamw, ignis_dtype dtype)
{
    training t;
    int s;
    memset(&t, 0, sizeof t);
    t.optimizer = is_adamw(sgd) ? ignis_adamw(adamw) : ignis_sgd(sgd);
    add_usual_parameters(&t, dtype);
    for (s = 0; s < 3; s++) {
        give_gradients(&t);
        reference_step(&t, sgd, adamw, is_adamw(sgd) ? adamw->lr : sgd->lr, 1);
        CHECK_OK(ignis_optimizer_step(t.optimizer));
        check_parameters(&t, is_adamw(sgd) ? !adamw->no_master : !sgd->no_master);
        CHECK_OK(ignis_optimizer_zero_grad(t.optimizer));
        CHECK_NUMBER(grad_at(t.at[2].tensor, 8192), 0);
    }
    end_training(&t);
}

TEST(adamw)
{
    int d, master;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (master = 0; master < 2; master++) {
            ignis_adamw_desc desc = usual_adamw();
            desc.no_master = !master;
            check_steps(NULL, &desc, float_dtypes[d]);
        }
}

TEST(sgd)
{
    static const double momenta[] = {0, 0.9};
    int d, m;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (m = 0; m < 2; m++) {
            ignis_sgd_desc desc;
            memset(&desc, 0, sizeof desc);
            desc.lr = 0.05, desc.momentum = momenta[m], desc.weight_decay = 0.1, desc.no_master = d == 2;
            check_steps(&desc, NULL, float_dtypes[d]);
        }
}

TEST(many_parameters_of_all_dtypes)
{
    ignis_adamw_desc desc = usual_adamw();
    training t;
    int i, s;
    SETUP(NULL);
    memset(&t, 0, sizeof t);
    t.optimizer = ignis_adamw(&desc);
    for (i = 0; i < 75; i++) /* more than one launch carries to the table */
        add_parameter(&t, 1 + 37 * i % 500, float_dtypes[i % 4], i % 2 == 0, i % 5 == 0);
    for (s = 0; s < 3; s++) {
        give_gradients(&t);
        reference_step(&t, NULL, &desc, desc.lr, 1);
        CHECK_OK(ignis_optimizer_step(t.optimizer));
        check_parameters(&t, true);
        if (s == 1) /* grows */
            add_parameter(&t, 600, IGNIS_F32, true, false), t.at[t.count - 1].first[0] = 0;
        if (s == 1)
            break;
        CHECK_OK(ignis_optimizer_zero_grad(t.optimizer));
    }
    give_gradient(&t.at[75], 5);
    CHECK_OK(ignis_optimizer_step(t.optimizer));
    CHECK(value_at(t.at[75].tensor, 0) != t.at[75].value[0]);
    end_training(&t);
}

/*  More than a block has threads, of one element type: a block looks for its own among them. */
TEST(more_parameters_than_threads)
{
    enum { COUNT = 600 };
    ignis_tensor tensors[COUNT];
    ignis_sgd_desc desc;
    ignis_optimizer optimizer;
    int i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.lr = 0.5;
    optimizer = ignis_sgd(&desc);
    for (i = 0; i < COUNT; i++) {
        ignis_array grad = make(IGNIS_SHAPE(i == 77 ? 30000 : 3), IGNIS_F32); /* one of several blocks */
        CHECK_OK(ignis_array_fill(grad, i + 1));
        tensors[i] = tensor_noise(IGNIS_SHAPE(ignis_array_numel(grad)), IGNIS_F32, 1, true);
        CHECK_OK(ignis_array_fill(ignis_tensor_data(tensors[i]), 1000));
        CHECK_OK(ignis_optimizer_add(optimizer, tensors[i], true));
        CHECK_OK(ignis_backward(tensors[i], grad));
        drop(grad);
    }
    CHECK_OK(ignis_optimizer_step(optimizer));
    for (i = 0; i < COUNT; i++) {
        CHECK_NUMBER(value_at(tensors[i], 0), 1000 - 0.5 * (i + 1));
        CHECK_NUMBER(value_at(tensors[i], i == 77 ? 29999 : 2), 1000 - 0.5 * (i + 1));
        let_go(tensors[i]);
    }
    CHECK_OK(ignis_optimizer_free(optimizer));
}

TEST(parameters_without_gradient_stay)
{
    ignis_adamw_desc desc = usual_adamw();
    ignis_optimizer_info info;
    training t;
    SETUP(NULL);
    memset(&t, 0, sizeof t);
    t.optimizer = ignis_adamw(&desc);
    add_parameter(&t, 100, IGNIS_F32, true, false);
    add_parameter(&t, 50, IGNIS_F32, true, false);
    CHECK_OK(ignis_optimizer_step(t.optimizer)); /* nobody has a gradient: no step */
    CHECK_OK(ignis_clip_grad_norm(t.optimizer, 1));
    CHECK_OK(ignis_optimizer_zero_grad(t.optimizer));
    CHECK_OK(ignis_optimizer_query(t.optimizer, &info));
    CHECK_INT(info.step, 0);
    CHECK_INT(info.parameters, 2);
    give_gradient(&t.at[1], 3);
    CHECK_OK(ignis_optimizer_step(t.optimizer));
    CHECK_NUMBER(value_at(t.at[0].tensor, 7), t.at[0].value[7]);
    CHECK(value_at(t.at[1].tensor, 7) != t.at[1].value[7]);
    CHECK_OK(ignis_optimizer_query(t.optimizer, &info));
    CHECK_INT(info.step, 1);
    CHECK_NUMBER(info.lr, 0.02);
    end_training(&t);
}

TEST(a_step_can_zero_the_gradients)
{
    ignis_adamw_desc desc = usual_adamw();
    training t;
    int i;
    SETUP(NULL);
    memset(&t, 0, sizeof t);
    desc.zero_grad = true;
    t.optimizer = ignis_adamw(&desc);
    add_usual_parameters(&t, IGNIS_BF16);
    give_gradients(&t);
    reference_step(&t, NULL, &desc, desc.lr, 1);
    CHECK_OK(ignis_optimizer_step(t.optimizer));
    check_parameters(&t, true);
    for (i = 0; i < t.count; i++) {
        double *grad = array_values(ignis_tensor_grad(t.at[i].tensor));
        int64_t k;
        for (k = 0; k < t.at[i].numel && grad[k] == 0; k++)
            ;
        CHECK_INT(k, t.at[i].numel);
        free(grad);
    }
    end_training(&t);
}

TEST(a_step_can_drop_the_gradients)
{
    ignis_adamw_desc desc = usual_adamw();
    int64_t held;
    training t;
    int i, s;
    SETUP(NULL);
    memset(&t, 0, sizeof t);
    desc.drop_grad = true;
    t.optimizer = ignis_adamw(&desc);
    add_usual_parameters(&t, IGNIS_BF16);
    held = memory().live_blocks;
    for (s = 1; s <= 3; s++) {
        give_gradients(&t); /* each from a single backward: what it made is the gradient, and nothing is added */
        reference_step(&t, NULL, &desc, desc.lr, 1);
        CHECK_OK(ignis_optimizer_step(t.optimizer));
        check_parameters(&t, true);
        for (i = 0; i < t.count; i++)
            CHECK(!ignis_tensor_grad(t.at[i].tensor).id);
        CHECK_INT(memory().live_blocks, held + 1); /* the table */
    }
    CHECK_OK(ignis_optimizer_step(t.optimizer)); /* without a gradient there is nothing to do */
    check_parameters(&t, true);
    end_training(&t);
}

TEST(clipping)
{
    ignis_adamw_desc desc = usual_adamw();
    ignis_optimizer_info info;
    training t;
    int d, s;
    double norm, max_norm, clip, *kept;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        memset(&t, 0, sizeof t);
        desc.beta2 = 0.5; /* not that AdamW would undo the scale */
        t.optimizer = ignis_adamw(&desc);
        add_usual_parameters(&t, float_dtypes[d]);
        add_parameter(&t, 500, d == 0 ? IGNIS_F64 : IGNIS_F32, true, false); /* f32 would show in the norm */
        for (s = 0; s < 3; s++) {
            give_gradients(&t);
            norm = norm_of(&t);
            max_norm = s == 0 ? norm * 2 : norm * 0.25;
            clip = s == 1 ? 0.25 : 1;
            kept = array_values(ignis_tensor_grad(t.at[0].tensor));
            if (s < 2) {
                CHECK_OK(ignis_clip_grad_norm(t.optimizer, max_norm));
                CHECK_OK(ignis_optimizer_query(t.optimizer, &info));
                CHECK_CLOSE(info.grad_norm / norm, 1, 1e-5);
            } /* the third step is not clipped: clipping is for one step */
            reference_step(&t, NULL, &desc, desc.lr, clip);
            CHECK_OK(ignis_optimizer_step(t.optimizer));
            check_parameters(&t, true);
            CHECK_NUMBER(grad_at(t.at[0].tensor, 19999), kept[19999]);
            free(kept);
            CHECK_OK(ignis_optimizer_zero_grad(t.optimizer));
        }
        end_training(&t);
    }
}

static double expected_factor(const ignis_schedule_desc *s, int64_t step)
{
    double done;
    if (step <= s->warmup)
        return (double)step / (double)s->warmup;
    if (s->kind == IGNIS_SCHEDULE_CONSTANT)
        return 1;
    done = (double)(step - s->warmup) / (double)(s->total - s->warmup);
    done = done < 1 ? done : 1;
    return s->floor +
           (1 - s->floor) *
               (s->kind == IGNIS_SCHEDULE_COSINE ? 0.5 * (1 + cos(3.14159265358979323846 * done)) : 1 - done);
}

TEST(schedules)
{
    static const ignis_schedule kinds[] = {IGNIS_SCHEDULE_CONSTANT, IGNIS_SCHEDULE_COSINE, IGNIS_SCHEDULE_LINEAR};
    ignis_optimizer_info info;
    training t;
    int kind, warm, s;
    SETUP(NULL);
    for (kind = 0; kind < 3; kind++)
        for (warm = 0; warm < 2; warm++) {
            ignis_sgd_desc desc;
            memset(&desc, 0, sizeof desc);
            memset(&t, 0, sizeof t);
            desc.lr = 0.1;
            desc.schedule.kind = kinds[kind], desc.schedule.warmup = 4 * warm, desc.schedule.total = 9,
            desc.schedule.floor = 0.1 * warm;
            t.optimizer = ignis_sgd(&desc);
            add_parameter(&t, 5, IGNIS_F64, true, false);
            for (s = 1; s <= 11; s++) {
                double lr = 0.1 * expected_factor(&desc.schedule, s);
                if (s == 7)
                    CHECK_OK(ignis_optimizer_set_lr(t.optimizer, 0.3));
                if (s >= 7)
                    lr *= 3;
                give_gradients(&t);
                reference_step(&t, &desc, NULL, lr, 1);
                CHECK_OK(ignis_optimizer_step(t.optimizer));
                CHECK_OK(ignis_optimizer_query(t.optimizer, &info));
                CHECK_CLOSE(info.lr / 0.1, lr / 0.1, 1e-12);
                CHECK_INT(info.step, s);
                CHECK_OK(ignis_optimizer_zero_grad(t.optimizer));
            }
            check_parameters(&t, true);
            end_training(&t);
        }
}

/*  Copies an array of one optimizer's state to another's. */
static void restore(ignis_optimizer to, ignis_optimizer from, int parameter_index, ignis_optimizer_part part)
{
    CHECK_OK(ignis_array_copy(ignis_optimizer_state(to, parameter_index, part),
                              ignis_optimizer_state(from, parameter_index, part)));
}

TEST(state_can_be_restored_bit_for_bit)
{
    ignis_adamw_desc desc = usual_adamw();
    training a, b;
    double *of_a, *of_b;
    int s, i;
    SETUP(NULL);
    memset(&a, 0, sizeof a), memset(&b, 0, sizeof b);
    desc.schedule.kind = IGNIS_SCHEDULE_COSINE, desc.schedule.total = 6, desc.schedule.warmup = 1;
    a.optimizer = ignis_adamw(&desc), b.optimizer = ignis_adamw(&desc);
    for (i = 0; i < 2; i++)
        add_parameter(&a, 3000, i ? IGNIS_F32 : IGNIS_BF16, true, false),
            add_parameter(&b, 3000, i ? IGNIS_F32 : IGNIS_BF16, true, false);
    for (s = 0; s < 5; s++) {
        if (s == 2) { /* b joins */
            restore(b.optimizer, a.optimizer, 0, IGNIS_OPTIMIZER_SELF);
            for (i = 0; i < 2; i++) {
                CHECK_OK(ignis_array_copy(ignis_tensor_data(b.at[i].tensor), ignis_tensor_data(a.at[i].tensor)));
                restore(b.optimizer, a.optimizer, i, IGNIS_OPTIMIZER_FIRST);
                restore(b.optimizer, a.optimizer, i, IGNIS_OPTIMIZER_SECOND);
            }
            restore(b.optimizer, a.optimizer, 0, IGNIS_OPTIMIZER_MASTER);
            CHECK_INT(ignis_optimizer_state(b.optimizer, 1, IGNIS_OPTIMIZER_MASTER).id, 0);
        }
        a.step = b.step = s;
        give_gradients(&a);
        CHECK_OK(ignis_optimizer_step(a.optimizer));
        CHECK_OK(ignis_optimizer_zero_grad(a.optimizer));
        if (s < 2)
            continue;
        give_gradients(&b);
        CHECK_OK(ignis_optimizer_step(b.optimizer));
        CHECK_OK(ignis_optimizer_zero_grad(b.optimizer));
    }
    for (i = 0; i < 2; i++) {
        of_a = tensor_values(a.at[i].tensor), of_b = tensor_values(b.at[i].tensor);
        CHECK(memcmp(of_a, of_b, 3000 * sizeof *of_a) == 0);
        free(of_a), free(of_b);
    }
    end_training(&a), end_training(&b);
}

/*  The work of a step on one parameter, whose gradient is the parameter itself. */
static void whole_step(ignis_optimizer optimizer, ignis_tensor x)
{
    ignis_scope scope = ignis_scope_begin();
    CHECK_OK(ignis_optimizer_zero_grad(optimizer));
    CHECK_OK(ignis_backward(ignis_scale(ignis_sum(ignis_mul(x, x)), 0.5), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_clip_grad_norm(optimizer, 1));
    CHECK_OK(ignis_optimizer_step(optimizer));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(a_graph_of_a_step_moves_on)
{
    ignis_adamw_desc desc = usual_adamw();
    ignis_optimizer_info info;
    ignis_optimizer optimizers[2];
    ignis_tensor x[2];
    ignis_graph graph;
    double *values[2];
    int i, s;
    SETUP(NULL);
    desc.schedule.kind = IGNIS_SCHEDULE_COSINE, desc.schedule.total = 8, desc.schedule.warmup = 2;
    for (i = 0; i < 2; i++) {
        optimizers[i] = ignis_adamw(&desc);
        x[i] = tensor_noise(IGNIS_SHAPE(10007), IGNIS_F32, 1, true);
        CHECK_OK(ignis_optimizer_add(optimizers[i], x[i], true));
        whole_step(optimizers[i], x[i]);
    }
    for (s = 0; s < 5; s++)
        whole_step(optimizers[0], x[0]);
    CHECK_OK(ignis_graph_begin());
    whole_step(optimizers[1], x[1]);
    graph = ignis_graph_end();
    for (s = 0; s < 4; s++)
        CHECK_OK(ignis_graph_launch(graph));
    whole_step(optimizers[1], x[1]); /* and without the graph again */
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_optimizer_query(optimizers[i], &info));
        CHECK_INT(info.step, 6);
        values[i] = tensor_values(x[i]);
    }
    CHECK(memcmp(values[0], values[1], 10007 * sizeof *values[0]) == 0);
    CHECK_OK(ignis_graph_free(graph));
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_optimizer_free(optimizers[i]));
        let_go(x[i]);
        free(values[i]);
    }
}

TEST(refusals)
{
    ignis_adamw_desc desc = usual_adamw();
    ignis_sgd_desc sgd;
    ignis_optimizer optimizer, none = {0};
    ignis_optimizer_info info;
    ignis_scope scope;
    ignis_tensor x, plain, result;
    SETUP(NULL);
    scope = ignis_scope_begin();
    memset(&sgd, 0, sizeof sgd);
    x = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, true);
    plain = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    result = ignis_scale(x, 2);
    optimizer = ignis_adamw(NULL);
    CHECK_STATUS(ignis_optimizer_step(optimizer), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_optimizer_zero_grad(optimizer), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_clip_grad_norm(optimizer, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_clip_grad_norm(optimizer, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_optimizer_add(optimizer, plain, true), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_STATUS(ignis_optimizer_add(optimizer, result, true), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_OK(ignis_optimizer_add(optimizer, x, true));
    CHECK_STATUS(ignis_optimizer_add(optimizer, x, false), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("already");
    CHECK_STATUS(ignis_optimizer_set_lr(optimizer, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_optimizer_query(optimizer, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_optimizer_state(optimizer, 1, IGNIS_OPTIMIZER_FIRST).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_optimizer_state(optimizer, 0, (ignis_optimizer_part)9).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_BAD_ENUM);
    CHECK_OK(ignis_optimizer_free(optimizer));
    CHECK_STATUS(ignis_optimizer_step(optimizer), IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
    CHECK_STATUS(ignis_optimizer_add(optimizer, x, true), IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
    CHECK_STATUS(ignis_optimizer_free(optimizer), IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
    CHECK_STATUS(ignis_optimizer_query(optimizer, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
    CHECK_STATUS(ignis_optimizer_step(none), IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
    desc.beta1 = 1;
    CHECK_REFUSED(0, ignis_adamw(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("beta1");
    desc = usual_adamw(), desc.weight_decay = -1;
    CHECK_REFUSED(0, ignis_adamw(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc = usual_adamw(), desc.schedule.kind = IGNIS_SCHEDULE_LINEAR;
    CHECK_REFUSED(0, ignis_adamw(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("total");
    sgd.schedule.kind = (ignis_schedule)7;
    CHECK_REFUSED(0, ignis_sgd(&sgd).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    sgd.schedule.kind = IGNIS_SCHEDULE_CONSTANT, sgd.lr = -0.1;
    CHECK_REFUSED(0, ignis_sgd(&sgd).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Weights that a step changes between a forward pass and its backward. */
TEST(a_step_between_forward_and_backward_is_refused)
{
    ignis_optimizer optimizer;
    ignis_scope scope;
    ignis_tensor w, y;
    ignis_array weights, grad;
    uint64_t version;
    SETUP(NULL);
    w = tensor_counting(IGNIS_SHAPE(2, 2), IGNIS_F32, 1, true);
    weights = ignis_tensor_data(w);
    optimizer = ignis_adamw(NULL);
    CHECK_OK(ignis_optimizer_add(optimizer, w, true));
    scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(ignis_sum(ignis_mul(w, w)), IGNIS_NO_ARRAY));
    grad = ignis_tensor_grad(w);
    y = ignis_sum(ignis_matmul(w, w));
    version = version_of(weights);
    CHECK_OK(ignis_optimizer_step(optimizer));
    CHECK_INT(version_of(weights), version + 1);
    CHECK_STATUS(ignis_backward(y, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SAVED_CHANGED);
    CHECK_MESSAGE_HAS("'matmul'");
    CHECK_OK(ignis_backward(ignis_sum(ignis_matmul(w, w)), IGNIS_NO_ARRAY)); /* after the step, as everybody does it */
    version = version_of(grad);
    CHECK_OK(ignis_clip_grad_norm(optimizer, 1));
    CHECK_INT(version_of(grad), version + 1);
    CHECK_OK(ignis_optimizer_zero_grad(optimizer));
    CHECK_INT(version_of(grad), version + 2);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_optimizer_free(optimizer));
    let_go(w);
}

TEST(shutdown_ends_optimizers)
{
    ignis_optimizer optimizer;
    ignis_tensor x;
    SETUP(NULL);
    x = tensor_counting(IGNIS_SHAPE(3), IGNIS_F16, 1, true);
    optimizer = ignis_adamw(NULL);
    CHECK_OK(ignis_optimizer_add(optimizer, x, true));
    let_go(x);
    test_leaks_expected = true;
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_HANDLE_LEAKED), 1);
    CHECK_HAS(test_log_text(IGNIS_DIAG_HANDLE_LEAKED), "optimizer: adamw of 1 parameter");
    SETUP(NULL);
    CHECK_STATUS(ignis_optimizer_step(optimizer), IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
}

/*  A parameter lives as long as its optimizer, also when its handle is gone. */
TEST(the_optimizer_keeps_its_parameters)
{
    ignis_optimizer optimizer;
    ignis_array data;
    ignis_tensor x, y;
    ignis_sgd_desc desc;
    int64_t before;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.lr = 1;
    before = memory().live_bytes;
    optimizer = ignis_sgd(&desc);
    x = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, true);
    data = ignis_tensor_data(x);
    CHECK_OK(ignis_optimizer_add(optimizer, x, true));
    y = ignis_sum(x);
    let_go(x);
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
    let_go(y);
    CHECK_OK(ignis_optimizer_step(optimizer));
    CHECK_NUMBER(array_at(data, 2), 2);
    CHECK_OK(ignis_optimizer_free(optimizer));
    CHECK(!ignis_array_is_live(data));
    CHECK_INT(memory().live_bytes, before);
}

/*  Adding and stepping while calls of a name fail, one after the other (null: allocations on the host). */
static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    int64_t before;
    int at;
    bool reached = true;
    SETUP(&desc);
    let_go(tensor_counting(IGNIS_SHAPE(1), IGNIS_F32, 1, false));
    before = memory().live_bytes;
    for (at = 1; at < 500 && reached; at++) {
        ignis_adamw_desc adamw = usual_adamw();
        ignis_optimizer optimizer;
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(40), IGNIS_BF16, 1, true);
        CHECK_OK(ignis_backward(x, ignis_tensor_data(x)));
        fault_plan(prefix, at, 2, &counter, false);
        optimizer = ignis_adamw(&adamw);
        if (optimizer.id && ignis_optimizer_add(optimizer, x, true) == IGNIS_OK &&
            ignis_clip_grad_norm(optimizer, 1) == IGNIS_OK && ignis_optimizer_step(optimizer) == IGNIS_OK &&
            ignis_optimizer_zero_grad(optimizer) == IGNIS_OK)
            CHECK_OK(ignis_status_last());
        reached = fault_over(&counter);
        ignis_status_clear();
        if (optimizer.id)
            CHECK_OK(ignis_optimizer_free(optimizer));
        let_go(x);
        CHECK_INT(memory().live_bytes, before);
    }
    CHECK(at > 5 && !reached);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
