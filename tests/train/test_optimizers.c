// SPDX-License-Identifier: MIT
/*  test_optimizers.c - Adam, RMSprop, Lion and Muon against references in double, and the scale of a loss with every
    optimizer */
#include "fault.h"
#include "tensor.h"

#include <math.h>

typedef enum method { ADAMW, ADAM, SGD, RMSPROP, RMSPROP_MOMENTUM, LION, MUON, MUON_LIKE_ADAMW, METHODS } method;

#define LR 0.03
#define DECAY 0.2

/*  An optimizer with numbers of its own, and with what all of them have. */
static ignis_optimizer make_optimizer(method m, const ignis_loss_scale_desc *scale, bool zero_grad,
                                      const ignis_schedule_desc *schedule)
{
    ignis_adamw_desc adamw;
    ignis_sgd_desc sgd;
    ignis_rmsprop_desc rmsprop;
    ignis_lion_desc lion;
    ignis_muon_desc muon;
#define FILL(desc)                                      \
    memset(&desc, 0, sizeof desc);                      \
    desc.lr = LR;                                       \
    desc.weight_decay = DECAY;                          \
    desc.zero_grad = zero_grad;                         \
    desc.loss_scale = scale ? *scale : desc.loss_scale; \
    desc.schedule = schedule ? *schedule : desc.schedule
    FILL(adamw);
    FILL(sgd);
    FILL(rmsprop);
    FILL(lion);
    FILL(muon);
    adamw.beta1 = 0.8, adamw.beta2 = 0.97, adamw.eps = 1e-3;
    sgd.momentum = 0.7;
    rmsprop.alpha = 0.9, rmsprop.eps = 1e-3;
    lion.beta1 = 0.85, lion.beta2 = 0.95;
    muon.momentum = 0.9;
    switch (m) {
    case ADAM: adamw.coupled = true; return ignis_adamw(&adamw);
    case SGD: return ignis_sgd(&sgd);
    case RMSPROP_MOMENTUM: rmsprop.momentum = 0.7; return ignis_rmsprop(&rmsprop);
    case RMSPROP: return ignis_rmsprop(&rmsprop);
    case LION: return ignis_lion(&lion);
    case MUON_LIKE_ADAMW: muon.like_adamw = true; return ignis_muon(&muon);
    case MUON: return ignis_muon(&muon);
    default: return ignis_adamw(&adamw);
    }
}

static bool is_muon(method m) { return m >= MUON; }

/* --- references ------------------------------------------------------------------------------------------------------
   */

/*  c [m, n] = a [m, k] b [k, n], or b^T [n, k] */
static void product(double *c, const double *a, const double *b, int m, int k, int n, bool transposed)
{
    int i, j, l;
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j++) {
            double sum = 0;
            for (l = 0; l < k; l++)
                sum += a[i * k + l] * (transposed ? b[j * k + l] : b[l * n + j]);
            c[i * n + j] = sum;
        }
}

/*  Newton-Schulz as it was published: X <- a X + (b A + c A A) X with A = X X^T, of a matrix that is as wide as high at
    least. */
static void orthogonal(double *x, int rows, int columns)
{
    int n = rows * columns, i, j, round;
    double *a = (double *)malloc(sizeof *a * (size_t)(rows * rows)),
           *b = (double *)malloc(sizeof *b * (size_t)(rows * rows)), *y = (double *)malloc(sizeof *y * (size_t)n),
           norm = 0;
    if (rows > columns) {
        for (i = 0; i < rows; i++)
            for (j = 0; j < columns; j++)
                y[j * rows + i] = x[i * columns + j];
        orthogonal(y, columns, rows);
        for (i = 0; i < rows; i++)
            for (j = 0; j < columns; j++)
                x[i * columns + j] = y[j * rows + i];
        free(a), free(b), free(y);
        return;
    }
    for (i = 0; i < n; i++)
        norm += x[i] * x[i];
    for (i = 0; i < n; i++)
        x[i] /= sqrt(norm) > 1e-7 ? sqrt(norm) : 1e-7;
    for (round = 0; round < 5; round++) {
        product(a, x, x, rows, columns, rows, true);
        product(b, a, a, rows, rows, rows, false);
        for (i = 0; i < rows * rows; i++)
            b[i] = -4.7750 * a[i] + 2.0315 * b[i];
        product(y, b, x, rows, rows, columns, false);
        for (i = 0; i < n; i++)
            x[i] = 3.4445 * x[i] + y[i];
    }
    free(a), free(b), free(y);
}

/*  A parameter of rows x columns, and what is to become of it. */
typedef struct parameter {
    ignis_tensor tensor;
    int rows, columns, count;
    double decay, *value, *first, *second;
} parameter;

static void reference_step(parameter *p, method m, const double *grad, int step)
{
    double *u = (double *)malloc(sizeof *u * (size_t)(p->count + 1));
    int i;
    for (i = 0; i < p->count; i++) {
        double g = grad[i], *x = &p->value[i], *first = &p->first[i], *second = &p->second[i];
        switch (m) {
        case ADAM:
        case ADAMW:
            if (m == ADAM)
                g += p->decay * *x;
            *first = 0.8 * *first + 0.2 * g;
            *second = 0.97 * *second + 0.03 * g * g;
            if (m == ADAMW)
                *x *= 1 - LR * p->decay;
            *x -= LR * *first / (1 - pow(0.8, step)) / (sqrt(*second / (1 - pow(0.97, step))) + 1e-3);
            break;
        case SGD:
            *first = 0.7 * *first + g + p->decay * *x;
            *x -= LR * *first;
            break;
        case RMSPROP:
        case RMSPROP_MOMENTUM:
            g += p->decay * *x;
            *second = 0.9 * *second + 0.1 * g * g;
            *first = (m == RMSPROP ? 0 : 0.7) * *first + g / (sqrt(*second) + 1e-3);
            *x -= LR * *first;
            break;
        case LION:
            u[i] = 0.85 * *first + 0.15 * g;
            *x = *x * (1 - LR * p->decay) - LR * (u[i] > 0 ? 1 : u[i] < 0 ? -1 : 0);
            *first = 0.95 * *first + 0.05 * g;
            break;
        default: *first = 0.9 * *first + 0.1 * g; u[i] = 0.9 * *first + 0.1 * g;
        }
    }
    if (is_muon(m)) {
        double longer = p->rows > p->columns ? p->rows : p->columns, ratio = (double)p->rows / p->columns;
        orthogonal(u, p->rows, p->columns);
        for (i = 0; i < p->count; i++)
            p->value[i] = p->value[i] * (1 - LR * p->decay) - LR * u[i] *
                                                                  (m == MUON_LIKE_ADAMW ? 0.2 * sqrt(longer)
                                                                   : ratio > 1          ? sqrt(ratio)
                                                                                        : 1);
    }
    free(u);
}

/*  A leaf with noise; where odd, over memory that is not aligned to packs. */
static parameter new_parameter(ignis_optimizer optimizer, int rows, int columns, ignis_dtype dtype, bool decay,
                               bool odd)
{
    parameter p;
    ignis_tensor whole = tensor_noise(IGNIS_SHAPE(rows * columns + odd), dtype, (uint64_t)(rows + 1), false);
    ignis_array view = ignis_array_slice(ignis_tensor_data(whole), 0, odd, rows * columns),
                matrix = ignis_array_reshape(view, IGNIS_SHAPE(rows, columns));
    memset(&p, 0, sizeof p);
    p.tensor = ignis_tensor_from_array(matrix, true);
    drop(view), drop(matrix), let_go(whole);
    p.rows = rows, p.columns = columns, p.count = rows * columns;
    p.decay = decay ? DECAY : 0;
    p.value = tensor_values(p.tensor);
    p.first = (double *)calloc((size_t)p.count + 1, sizeof(double));
    p.second = (double *)calloc((size_t)p.count + 1, sizeof(double));
    CHECK_OK(ignis_optimizer_add(optimizer, p.tensor, decay));
    return p;
}

static void end_parameter(parameter *p)
{
    let_go(p->tensor);
    free(p->value), free(p->first), free(p->second);
}

/*  Adds noise times a factor to the gradient. */
static void give_gradient(const parameter *p, uint64_t seed, double factor)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor g =
        ignis_scale(tensor_noise(IGNIS_SHAPE(p->rows, p->columns), tensor_info(p->tensor).dtype, seed, false), factor);
    CHECK_OK(ignis_backward(ignis_scale(p->tensor, 1), ignis_tensor_data(g)));
    CHECK_OK(ignis_scope_end(scope));
}

static const int sizes[][2] = {{20, 31}, {31, 20}, {1, 7}, {9, 1}, {16, 16}, {1, 1}, {0, 3}};
enum { SIZES = 7 };

static void check_method(method m, ignis_dtype dtype)
{
    ignis_optimizer optimizer = make_optimizer(m, NULL, false, NULL);
    /* Steps are in f32; Muon's matrices in bf16: entries of some 0.2, of factors up to 4.5, in rounds that carry errors
       of 2^-9 on. */
    double tolerance = dtype == IGNIS_F64   ? 1e-11
                       : is_muon(m)         ? 3 * LR * 0.05 + (dtype == IGNIS_F32 ? 0 : 1.0 / 128)
                       : dtype == IGNIS_F32 ? 1e-5
                       : dtype == IGNIS_F16 ? 1.0 / 1024
                                            : 1.0 / 128;
    parameter p[SIZES];
    char what[120];
    int i, k, step;
    for (i = 0; i < SIZES; i++)
        p[i] = new_parameter(optimizer, sizes[i][0], sizes[i][1], dtype, i % 2 == 0, i % 3 == 1);
    for (step = 1; step <= 3; step++) {
        for (i = 0; i < SIZES; i++) {
            double *grad;
            give_gradient(&p[i], (uint64_t)(10 * step + i), 1);
            grad = array_values(ignis_tensor_grad(p[i].tensor));
            reference_step(&p[i], m, grad, step);
            free(grad);
        }
        CHECK_OK(ignis_optimizer_step(optimizer));
        CHECK_OK(ignis_optimizer_zero_grad(optimizer));
    }
    for (i = 0; i < SIZES; i++) {
        double *got = tensor_values(p[i].tensor);
        for (k = 0; k < p[i].count && is_close(got[k], p[i].value[k], tolerance); k++)
            ;
        if (k < p[i].count) {
            snprintf(what, sizeof what, "method %d, %s, parameter %d: element %d is %.17g, expected %.17g", (int)m,
                     ignis_dtype_name(dtype), i, k, got[k], p[i].value[k]);
            test__fail(__FILE__, __LINE__, what);
        }
        free(got);
        end_parameter(&p[i]);
    }
    CHECK_OK(ignis_optimizer_free(optimizer));
}

TEST(every_method)
{
    int m, d;
    SETUP(NULL);
    for (m = 0; m < METHODS; m++)
        for (d = 0; d < 4; d++)
            check_method((method)m, float_dtypes[d]);
}

/*  What Muon steps by has singular values near 1: rows of a wide matrix are about orthonormal. Those of the iteration
    lie between 0.7 and 1.2. */
TEST(muon_steps_are_about_orthogonal)
{
    ignis_optimizer optimizer;
    ignis_muon_desc desc;
    ignis_array step;
    parameter p;
    double *u, dot;
    int i, j, k;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    optimizer = ignis_muon(&desc);
    p = new_parameter(optimizer, 8, 200, IGNIS_F32, false, false);
    give_gradient(&p, 3, 1e-5);
    CHECK_OK(ignis_optimizer_step(optimizer));
    step = ignis_optimizer_state(optimizer, 0, IGNIS_OPTIMIZER_SECOND);
    u = array_values(step);
    for (i = 0; i < 8; i++)
        for (j = 0; j <= i; j++) {
            for (dot = 0, k = 0; k < 200; k++)
                dot += u[i * 200 + k] * u[j * 200 + k];
            CHECK(i == j ? dot > 0.5 && dot < 1.5 : fabs(dot) < 0.35);
        }
    free(u);
    end_parameter(&p);
    CHECK_OK(ignis_optimizer_free(optimizer));
}

/*  Gradients of any size lead to the same step, though their squares are no numbers. */
TEST(muon_of_gradients_far_from_one)
{
    static const int powers[] = {0, 66, 100, 120};
    double *values[4];
    int k, i;
    SETUP(NULL);
    for (k = 0; k < 4; k++) {
        ignis_optimizer optimizer = ignis_muon(NULL);
        parameter p = new_parameter(optimizer, 6, 9, IGNIS_F32, false, false);
        give_gradient(&p, 3, ldexp(1, powers[k]));
        CHECK_OK(ignis_optimizer_step(optimizer));
        values[k] = tensor_values(p.tensor);
        for (i = 0; i < 54; i++)
            CHECK(values[k][i] == values[0][i] && values[k][i] != p.value[i]);
        end_parameter(&p);
        CHECK_OK(ignis_optimizer_free(optimizer));
    }
    for (k = 0; k < 4; k++)
        free(values[k]);
}

/* --- steps of a parameter's own ----------------------------------------------------------------------------------- */

static ignis_optimizer_info standing_of(ignis_optimizer optimizer)
{
    ignis_optimizer_info info;
    memset(&info, 0, sizeof info);
    CHECK_OK(ignis_optimizer_query(optimizer, &info));
    return info;
}

/*  Steps that a parameter had no gradient for, at the start, in between or before it was added, are not its own. Each
    is held against a reference that counts for itself. */
TEST(a_parameter_has_steps_of_its_own)
{
    static const unsigned char seen[][12] = {
        {0, 0, 1, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0}, {1, 0, 0, 1, 0, 1, 1, 0, 1}, {1, 1, 1, 1}};
    int m, k, d, added;
    SETUP(NULL);
    for (m = 0; m < 2; m++)
        for (k = 0; k < 4; k++)
            for (added = 0; added < 2; added++)
                for (d = 0; d < 2; d++) {
                    ignis_dtype dtype = d ? IGNIS_F64 : IGNIS_F32;
                    ignis_optimizer optimizer = make_optimizer(m ? ADAM : ADAMW, NULL, false, NULL);
                    parameter p[2];
                    double *got, *grad;
                    int step, own = 0, i;
                    p[0] = new_parameter(optimizer, 3, 5, dtype, true, false);
                    for (step = 0; step < 12; step++) {
                        if (step == 0 && added) { /* before the second is there */
                            give_gradient(&p[0], 7, 1);
                            CHECK_OK(ignis_optimizer_step(optimizer));
                        }
                        if (step == 0)
                            p[1] = new_parameter(optimizer, 4, 9, dtype, true, true);
                        give_gradient(&p[0], 7, 1);
                        if (seen[k][step]) {
                            give_gradient(&p[1], (uint64_t)step, 1);
                            grad = array_values(ignis_tensor_grad(p[1].tensor));
                            reference_step(&p[1], m ? ADAM : ADAMW, grad, ++own);
                            free(grad);
                        }
                        CHECK_OK(ignis_optimizer_step(optimizer));
                        for (i = 0; i < 2; i++)
                            CHECK_OK(ignis_tensor_set_grad(p[i].tensor, IGNIS_NO_ARRAY));
                    }
                    got = array_values(ignis_optimizer_state(optimizer, 1, IGNIS_OPTIMIZER_MISSED));
                    CHECK_NUMBER(got[0], 12 - own + added);
                    free(got);
                    got = tensor_values(p[1].tensor);
                    for (i = 0; i < p[1].count; i++)
                        CHECK_CLOSE(got[i], p[1].value[i], d ? 1e-11 : 1e-5);
                    free(got);
                    end_parameter(&p[0]), end_parameter(&p[1]);
                    CHECK_OK(ignis_optimizer_free(optimizer));
                }
}

/*  The first step of Adam moves by lr, whenever it comes. */
TEST(a_late_first_step_is_as_long_as_an_early_one)
{
    static const int late[] = {1, 2, 10, 100, 1000};
    int k, step;
    SETUP(NULL);
    for (k = 0; k < 5; k++) {
        ignis_optimizer optimizer = ignis_adamw(NULL);
        parameter p[2];
        p[0] = new_parameter(optimizer, 1, 1, IGNIS_F64, false, false);
        p[1] = new_parameter(optimizer, 1, 1, IGNIS_F64, false, false);
        give_gradient(&p[0], 1, 1);
        for (step = 1; step < late[k]; step++)
            CHECK_OK(ignis_optimizer_step(optimizer));
        give_gradient(&p[1], 1, 1);
        CHECK_OK(ignis_optimizer_step(optimizer));
        CHECK_CLOSE(fabs(value_at(p[1].tensor, 0) - p[1].value[0]), 1e-3, 1e-8);
        CHECK_INT(standing_of(optimizer).step, late[k]);
        end_parameter(&p[0]), end_parameter(&p[1]);
        CHECK_OK(ignis_optimizer_free(optimizer));
    }
}

/*  A step with the gradients of the first or of both parameters. */
static void step_with(ignis_optimizer optimizer, const parameter *p, const ignis_tensor *grads, bool both)
{
    CHECK_OK(ignis_tensor_set_grad(p[0].tensor, ignis_tensor_data(grads[0])));
    CHECK_OK(ignis_tensor_set_grad(p[1].tensor, both ? ignis_tensor_data(grads[1]) : IGNIS_NO_ARRAY));
    CHECK_OK(ignis_optimizer_step(optimizer));
}

/*  Another optimizer that goes on from the state of this one, which is freed. */
static ignis_optimizer take_over(ignis_optimizer optimizer, method m, const ignis_loss_scale_desc *scale,
                                 const parameter *p)
{
    ignis_optimizer next = make_optimizer(m, scale, false, NULL);
    int i, part;
    for (i = 0; i < 2; i++)
        CHECK_OK(ignis_optimizer_add(next, p[i].tensor, true));
    for (i = 0; i < 2; i++)
        for (part = IGNIS_OPTIMIZER_SELF; part <= IGNIS_OPTIMIZER_MISSED; part++) {
            ignis_array from = ignis_optimizer_state(optimizer, i, (ignis_optimizer_part)part);
            if (from.id)
                CHECK_OK(ignis_array_copy(ignis_optimizer_state(next, i, (ignis_optimizer_part)part), from));
        }
    CHECK_OK(ignis_optimizer_free(optimizer));
    return next;
}

/*  Plainly, by graphs and through a saved state, with a skipped step among them: the same bits. One graph has no
    gradient of the second parameter. */
TEST(own_steps_in_graphs_and_saved_states)
{
    static const double bad = INFINITY;
    ignis_loss_scale_desc scale;
    int m, way, i, s;
    SETUP(NULL);
    memset(&scale, 0, sizeof scale);
    scale.initial = 1, scale.interval = 1000;
    for (m = 0; m < METHODS; m++) {
        double *values[3];
        for (way = 0; way < 3; way++) {
            ignis_optimizer optimizer = make_optimizer((method)m, &scale, false, NULL);
            ignis_graph graphs[2] = {{0}, {0}};
            ignis_tensor grads[2];
            parameter p[2];
            for (i = 0; i < 2; i++) {
                p[i] = new_parameter(optimizer, 4, 6, IGNIS_F32, true, false);
                grads[i] = tensor_noise(IGNIS_SHAPE(4, 6), IGNIS_F32, (uint64_t)i, false);
            }
            step_with(optimizer, p, grads, false);
            for (i = 0; way == 1 && i < 2; i++) {
                CHECK_OK(ignis_graph_begin());
                step_with(optimizer, p, grads, i != 0);
                graphs[i] = ignis_graph_end();
            }
            for (s = 0; s < 9; s++) {
                bool both = s == 3 || s == 4 || s == 6 || s == 7;
                double first = s == 4 ? bad : 0.1 * s;
                ignis_array part = ignis_array_slice(ignis_tensor_data(grads[0]), 0, 0, 1);
                if (way == 2 && s == 5)
                    optimizer = take_over(optimizer, (method)m, &scale, p);
                CHECK_OK(ignis_array_fill(part, first));
                drop(part);
                if (way == 1)
                    CHECK_OK(ignis_graph_launch(graphs[both]));
                else
                    step_with(optimizer, p, grads, both);
            }
            CHECK_INT(standing_of(optimizer).step, 9);
            CHECK_INT(standing_of(optimizer).skipped, 1);
            CHECK_INT(ignis_optimizer_state(optimizer, 1, IGNIS_OPTIMIZER_MISSED).id != 0, m == ADAMW || m == ADAM);
            if (m == ADAMW || m == ADAM)
                CHECK_NUMBER(array_at(ignis_optimizer_state(optimizer, 1, IGNIS_OPTIMIZER_MISSED), 0), 6);
            values[way] = tensor_values(p[1].tensor);
            for (i = 0; i < 2; i++) {
                if (way == 1)
                    CHECK_OK(ignis_graph_free(graphs[i]));
                let_go(grads[i]);
                end_parameter(&p[i]);
            }
            CHECK_OK(ignis_optimizer_free(optimizer));
        }
        CHECK(memcmp(values[0], values[1], 24 * sizeof *values[0]) == 0);
        CHECK(memcmp(values[0], values[2], 24 * sizeof *values[0]) == 0);
        for (way = 0; way < 3; way++)
            free(values[way]);
    }
}

/* --- the scale of a loss ------------------------------------------------------------------------------------------ */

static ignis_loss_scale_desc scaled(double initial, int64_t interval)
{
    ignis_loss_scale_desc scale;
    memset(&scale, 0, sizeof scale);
    scale.initial = initial;
    scale.interval = interval;
    return scale;
}

/*  loss = sum of x * noise, so that this is the gradient, times a factor; scaled by the optimizer. */
static void backward_of_loss(ignis_optimizer optimizer, const parameter *p, uint64_t seed, double factor)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = p->tensor, g = tensor_noise(IGNIS_SHAPE(p->rows, p->columns), tensor_info(x).dtype, seed, false);
    ignis_tensor loss = ignis_sum(ignis_cast(ignis_mul(x, g), IGNIS_F32));
    CHECK_OK(ignis_backward(ignis_scale_loss(optimizer, ignis_scale(loss, factor)), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
}

/*  A scale that is a power of two changes no bit of a step in f32, also where gradients are clipped; steps that
    overflow change nothing. */
TEST(every_method_with_a_scale_gives_the_same_bits)
{
    ignis_schedule_desc schedule;
    int m, i, step;
    SETUP(NULL);
    memset(&schedule, 0, sizeof schedule);
    schedule.kind = IGNIS_SCHEDULE_COSINE, schedule.warmup = 2, schedule.total = 6;
    for (m = 0; m < METHODS; m++) {
        ignis_loss_scale_desc scale = scaled(1024, 3);
        ignis_optimizer optimizers[2];
        parameter p[2];
        double *values[2];
        for (i = 0; i < 2; i++) {
            optimizers[i] = make_optimizer((method)m, i ? &scale : NULL, true, &schedule);
            p[i] = new_parameter(optimizers[i], 13, 21, IGNIS_F32, true, true);
            for (step = 0; step < 5; step++) {
                if (i && (step == 1 || step == 4)) { /* one more, which is skipped */
                    backward_of_loss(optimizers[i], &p[i], 99, step == 1 ? INFINITY : NAN);
                    if (step == 1)
                        CHECK_OK(ignis_clip_grad_norm(optimizers[i], 0.5));
                    CHECK_OK(ignis_optimizer_step(optimizers[i]));
                    CHECK_NUMBER(grad_at(p[i].tensor, 5), 0); /* zero_grad all the same */
                }
                backward_of_loss(optimizers[i], &p[i], (uint64_t)step, 1);
                if (step % 2)
                    CHECK_OK(ignis_clip_grad_norm(optimizers[i], 0.5));
                CHECK_OK(ignis_optimizer_step(optimizers[i]));
            }
            values[i] = tensor_values(p[i].tensor);
            CHECK_INT(standing_of(optimizers[i]).step, 5);
            CHECK_INT(standing_of(optimizers[i]).skipped, i ? 2 : 0);
            CHECK_NUMBER(standing_of(optimizers[i]).loss_scale,
                         i ? 512 : 1); /* 1024, skipped 512, three good ones 1024, skipped 512 */
        }
        CHECK_NUMBER(standing_of(optimizers[0]).lr, standing_of(optimizers[1]).lr);
        CHECK(memcmp(values[0], values[1], 13 * 21 * sizeof *values[0]) == 0);
        for (i = 0; i < 2; i++) {
            free(values[i]);
            end_parameter(&p[i]);
            CHECK_OK(ignis_optimizer_free(optimizers[i]));
        }
    }
}

/*  Gradients of f16 that are below its range are there with a scale, and too large a scale finds its way down. */
TEST(gradients_of_f16)
{
    ignis_loss_scale_desc scale = scaled(ldexp(1, 30), 2);
    ignis_optimizer plain, optimizer;
    ignis_optimizer_info info;
    parameter p, q;
    double before, *values, *reference;
    int i;
    SETUP(NULL);
    plain = make_optimizer(SGD, NULL, true, NULL);
    optimizer = make_optimizer(SGD, &scale, true, NULL);
    p = new_parameter(plain, 7, 11, IGNIS_F16, false, false);
    q = new_parameter(optimizer, 7, 11, IGNIS_F16, false, false);
    backward_of_loss(plain, &p, 1, 1e-9);
    CHECK_NUMBER(grad_at(p.tensor, 3), 0);
    backward_of_loss(optimizer, &q, 1, 1);
    CHECK(isinf(grad_at(q.tensor, 3)));
    before = value_at(q.tensor, 3);
    for (i = 0; i < 14 || standing_of(optimizer).step == 0; i++) {
        CHECK_OK(ignis_optimizer_step(optimizer));
        if (standing_of(optimizer).step == 0) {
            CHECK_NUMBER(value_at(q.tensor, 3), before);
            CHECK_NUMBER(standing_of(optimizer).loss_scale, ldexp(1, 29 - i));
            CHECK_INT(standing_of(optimizer).skipped, i + 1);
        }
        if (standing_of(optimizer).step)
            break;
        backward_of_loss(optimizer, &q, 1, 1);
    }
    info = standing_of(optimizer);
    CHECK_NUMBER(info.loss_scale, 32768); /* the largest power of two that f16 has: the gradient of the sum */
    CHECK_INT(info.step, 1);
    values = tensor_values(q.tensor);
    reference = rounded_noise(IGNIS_SHAPE(7, 11), IGNIS_F16, 1, 1);
    for (i = 0; i < 77; i++)
        CHECK_CLOSE(values[i], q.value[i] - LR * reference[i], 1.0 / 1024);
    free(values), free(reference);
    end_parameter(&p), end_parameter(&q);
    CHECK_OK(ignis_optimizer_free(plain));
    CHECK_OK(ignis_optimizer_free(optimizer));
}

/*  The norm is that of the gradients without their scale, and is measured once where they are clipped. */
TEST(clipping_with_a_scale)
{
    ignis_loss_scale_desc scale = scaled(4096, 0);
    ignis_optimizer optimizer;
    parameter p;
    double *grad, norm = 0, *values;
    int i;
    SETUP(NULL);
    optimizer = make_optimizer(SGD, &scale, false, NULL);
    p = new_parameter(optimizer, 10, 33, IGNIS_F32, false, true);
    backward_of_loss(optimizer, &p, 4, 1);
    grad = array_values(ignis_tensor_grad(p.tensor));
    for (i = 0; i < 330; i++)
        norm += grad[i] * grad[i] / 4096 / 4096;
    norm = sqrt(norm);
    CHECK_OK(ignis_clip_grad_norm(optimizer, norm / 4));
    CHECK_CLOSE(standing_of(optimizer).grad_norm, norm, 1e-5);
    CHECK_OK(ignis_optimizer_step(optimizer));
    values = tensor_values(p.tensor);
    for (i = 0; i < 330; i++)
        CHECK_CLOSE(values[i], p.value[i] - LR * grad[i] / 4096 / 4, 1e-6);
    CHECK_OK(ignis_optimizer_step(optimizer)); /* not clipped: measured by the step itself */
    CHECK_CLOSE(standing_of(optimizer).grad_norm, norm, 1e-5);
    CHECK_INT(standing_of(optimizer).step, 2);
    free(grad), free(values);
    end_parameter(&p);
    CHECK_OK(ignis_optimizer_free(optimizer));
}

/*  Gradients whose squares are no numbers have a norm all the same, beside those of other parameters; they are clipped
    to it, and a loss scale skips nothing. What is not finite is still found. */
TEST(norms_of_gradients_far_from_one)
{
    static const struct {
        ignis_dtype dtype;
        int rows, columns, power;
        bool other; /* another parameter with a gradient of ordinary numbers */
    } table[] = {{IGNIS_F32, 3, 5, 66, false},    {IGNIS_F32, 3, 5, 66, true},       {IGNIS_F32, 100, 100, 100, true},
                 {IGNIS_F32, 40, 40, 120, false}, {IGNIS_F32, 4, 7, -90, false},     {IGNIS_F32, 30, 70, -120, false},
                 {IGNIS_BF16, 30, 70, 80, true},  {IGNIS_BF16, 1, 3, -100, false},   {IGNIS_F64, 30, 70, 600, true},
                 {IGNIS_F64, 1, 3, 1000, false},  {IGNIS_F64, 90, 100, -600, false}, {IGNIS_F64, 3, 5, -1000, false},
                 {IGNIS_F64, 3, 5, 505, true},    {IGNIS_F32, 90, 100, 62, false},   {IGNIS_F16, 3, 5, 15, true},
                 {IGNIS_F32, 3, 5, 0, true}};
    ignis_loss_scale_desc scale = scaled(1, 1000);
    int k, i, s;
    SETUP(NULL);
    for (k = 0; k < (int)(sizeof table / sizeof table[0]); k++)
        for (s = 0; s < 2; s++) {
            ignis_optimizer optimizer = make_optimizer(SGD, s ? &scale : NULL, false, NULL);
            double *grad, *values, square = 0, norm;
            parameter p[2];
            static const double bad[] = {INFINITY, NAN};
            p[0] = new_parameter(optimizer, table[k].rows, table[k].columns, table[k].dtype, false, k % 2 != 0);
            p[1] = new_parameter(optimizer, 10, 10, IGNIS_F32, false, false);
            give_gradient(&p[0], 3, 1);
            if (table[k].other)
                give_gradient(&p[1], 4, 1);
            grad = array_values(ignis_tensor_grad(p[0].tensor));
            for (i = 0; i < p[0].count; i++) {
                square += grad[i] * grad[i];
                grad[i] = ldexp(grad[i], table[k].power);
            }
            CHECK_OK(ignis_array_from_host(ignis_tensor_grad(p[0].tensor), grad, IGNIS_F64, p[0].count));
            if (table[k].other) {
                values = array_values(ignis_tensor_grad(p[1].tensor));
                for (i = 0; i < 100; i++)
                    square += ldexp(values[i] * values[i], -2 * table[k].power);
                free(values);
            }
            norm = sqrt(square); /* times 2^power */
            CHECK_OK(ignis_clip_grad_norm(optimizer, ldexp(norm, table[k].power - 1)));
            CHECK_CLOSE(ldexp(standing_of(optimizer).grad_norm, -table[k].power), norm, 1e-5 * norm);
            CHECK_OK(ignis_clip_grad_norm(optimizer, 1));
            CHECK_OK(ignis_optimizer_step(optimizer));
            CHECK_INT(standing_of(optimizer).step, 1);
            CHECK_INT(standing_of(optimizer).skipped, 0);
            values = tensor_values(p[0].tensor);
            for (i = 0; i < p[0].count && ldexp(norm, table[k].power) > 1; i++)
                CHECK_CLOSE(values[i], p[0].value[i] - LR * ldexp(grad[i], -table[k].power) / norm,
                            table[k].dtype == IGNIS_BF16 ? 1.0 / 128
                                                         : 1.0 / 1024 * (table[k].dtype == IGNIS_F16 ? 1 : 1e-2));
            for (i = 0; s && i < 2; i++) {
                grad[0] = bad[i];
                CHECK_OK(ignis_array_from_host(ignis_tensor_grad(p[0].tensor), grad, IGNIS_F64, p[0].count));
                CHECK_OK(ignis_optimizer_step(optimizer));
                CHECK_INT(standing_of(optimizer).skipped, i + 1);
            }
            free(grad), free(values);
            end_parameter(&p[0]), end_parameter(&p[1]);
            CHECK_OK(ignis_optimizer_free(optimizer));
        }
}

/*  A whole step: what overflows is given by a tensor, so that a graph's launches differ. */
static void whole_step(ignis_optimizer optimizer, const parameter *p, ignis_tensor factor)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = p->tensor, loss = ignis_map_sum("0.5*x*x*factor", IGNIS_INPUTS(x, factor));
    CHECK_OK(ignis_backward(ignis_scale_loss(optimizer, loss), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_clip_grad_norm(optimizer, 3));
    CHECK_OK(ignis_optimizer_step(optimizer));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(a_graph_of_a_step_with_a_scale)
{
    static const double factors[] = {1, INFINITY, 1, 1, 1, NAN, 1, 1};
    static const method methods[] = {LION, RMSPROP_MOMENTUM, ADAM, MUON};
    int k, i, s;
    SETUP(NULL);
    for (k = 0; k < 4; k++) {
        ignis_loss_scale_desc scale = scaled(256, 2);
        ignis_optimizer optimizers[2];
        ignis_tensor factor[2];
        ignis_graph graph = {0};
        parameter p[2];
        double *values[2];
        for (i = 0; i < 2; i++) {
            optimizers[i] = make_optimizer(methods[k], &scale, true, NULL);
            p[i] = new_parameter(optimizers[i], 12, 17, IGNIS_F32, true, false);
            factor[i] = tensor_of(factors, IGNIS_SHAPE(1), IGNIS_F32, false);
            whole_step(optimizers[i], &p[i], factor[i]);
            if (i) {
                CHECK_OK(ignis_graph_begin());
                whole_step(optimizers[i], &p[i], factor[i]);
                graph = ignis_graph_end();
            }
            for (s = 0; s < 8; s++) {
                CHECK_OK(ignis_array_from_host(ignis_tensor_data(factor[i]), &factors[s], IGNIS_F64, 1));
                if (i)
                    CHECK_OK(ignis_graph_launch(graph));
                else
                    whole_step(optimizers[i], &p[i], factor[i]);
            }
            CHECK_INT(standing_of(optimizers[i]).step, 7);
            CHECK_INT(standing_of(optimizers[i]).skipped, 2);
            CHECK_NUMBER(standing_of(optimizers[i]).loss_scale,
                         512); /* good ones: 1+1 512, skipped 256, 2 good 512, 1, skipped 256, 2 good 512 */
            values[i] = tensor_values(p[i].tensor);
        }
        CHECK(memcmp(values[0], values[1], 12 * 17 * sizeof *values[0]) == 0);
        CHECK_OK(ignis_graph_free(graph));
        for (i = 0; i < 2; i++) {
            free(values[i]);
            let_go(factor[i]);
            end_parameter(&p[i]);
            CHECK_OK(ignis_optimizer_free(optimizers[i]));
        }
    }
}

/*  After so many steps that overflow the scale is at its lowest, and grows again from there; a scale of 0, as states of
    before 0.5.0 may have it, is healed by a step. */
TEST(a_scale_comes_back)
{
    static const struct {
        double initial, lowest, at_least;
        int bad;
    } table[] = {{65536, 0, 1, 40},
                 {65536, 0, 1, 2500},
                 {65536, 16, 16, 40},
                 {0.25, 0, 0.25, 5},
                 {1e-30, 0, 1e-30, 2},
                 {65536, 0, 256, 8},
                 {1, 1.0 / 1024, 1.0 / 1024, 20},
                 {65536, 65536, 65536, 3}};
    int k, step;
    SETUP(NULL);
    for (k = 0; k < 8; k++) {
        ignis_loss_scale_desc scale = scaled(table[k].initial, 2);
        ignis_optimizer optimizer;
        ignis_tensor good = tensor_noise(IGNIS_SHAPE(1, 3), IGNIS_F32, 3, false);
        ignis_array grad;
        parameter p;
        double zero = 0;
        scale.lowest = table[k].lowest;
        optimizer = make_optimizer(SGD, &scale, false, NULL);
        p = new_parameter(optimizer, 1, 3, IGNIS_F32, true, false);
        CHECK_OK(ignis_zero_grad(p.tensor));
        grad = ignis_tensor_grad(p.tensor);
        CHECK_OK(ignis_array_fill(grad, INFINITY));
        for (step = 0; step < table[k].bad; step++)
            CHECK_OK(ignis_optimizer_step(optimizer));
        CHECK_NUMBER(standing_of(optimizer).loss_scale, table[k].at_least);
        CHECK_INT(standing_of(optimizer).skipped, table[k].bad);
        CHECK_OK(ignis_tensor_set_grad(p.tensor, ignis_tensor_data(good)));
        for (step = 0; step < 4; step++)
            CHECK_OK(ignis_optimizer_step(optimizer));
        CHECK_NUMBER(standing_of(optimizer).loss_scale, 4 * table[k].at_least);
        CHECK_INT(standing_of(optimizer).step, 4);
        grad = ignis_array_slice(ignis_optimizer_state(optimizer, 0, IGNIS_OPTIMIZER_SELF), 0, 8, 1); /* the scale */
        CHECK_OK(ignis_array_from_host(grad, &zero, IGNIS_F64, 1));
        drop(grad);
        CHECK_OK(ignis_optimizer_step(optimizer));
        CHECK(standing_of(optimizer).loss_scale > 0);
        CHECK_OK(ignis_optimizer_step(optimizer));
        CHECK_INT(standing_of(optimizer).step, 5);
        let_go(good);
        end_parameter(&p);
        CHECK_OK(ignis_optimizer_free(optimizer));
    }
}

TEST(state_is_restored_bit_for_bit)
{
    int m, i, s, part;
    SETUP(NULL);
    for (m = 0; m < METHODS; m++) {
        ignis_loss_scale_desc scale = scaled(256, 2);
        ignis_optimizer optimizers[2];
        parameter p[2];
        double *values[2];
        for (i = 0; i < 2; i++) {
            optimizers[i] = make_optimizer((method)m, &scale, true, NULL);
            p[i] = new_parameter(optimizers[i], 9, 14, IGNIS_BF16, true, false);
        }
        for (s = 0; s < 5; s++) {
            if (s == 3) { /* the second one joins */
                CHECK_OK(ignis_array_copy(ignis_tensor_data(p[1].tensor), ignis_tensor_data(p[0].tensor)));
                for (part = IGNIS_OPTIMIZER_SELF; part <= IGNIS_OPTIMIZER_MISSED; part++) {
                    ignis_array from = ignis_optimizer_state(optimizers[0], 0, (ignis_optimizer_part)part);
                    if (from.id && !(is_muon((method)m) && part == IGNIS_OPTIMIZER_SECOND))
                        CHECK_OK(ignis_array_copy(ignis_optimizer_state(optimizers[1], 0, (ignis_optimizer_part)part),
                                                  from));
                }
            }
            for (i = 0; i <= (s >= 3); i++) {
                backward_of_loss(optimizers[i], &p[i], (uint64_t)s, 1);
                CHECK_OK(ignis_optimizer_step(optimizers[i]));
            }
        }
        CHECK_INT(standing_of(optimizers[1]).step, 5);
        CHECK_NUMBER(standing_of(optimizers[1]).loss_scale, 1024);
        for (i = 0; i < 2; i++) {
            values[i] = tensor_values(p[i].tensor);
            end_parameter(&p[i]);
            CHECK_OK(ignis_optimizer_free(optimizers[i]));
        }
        CHECK(memcmp(values[0], values[1], 9 * 14 * sizeof *values[0]) == 0);
        free(values[0]), free(values[1]);
    }
}

/* --- refusals, and calls that fail -------------------------------------------------------------------------------- */

TEST(refusals)
{
    ignis_sgd_desc sgd;
    ignis_rmsprop_desc rmsprop;
    ignis_lion_desc lion;
    ignis_muon_desc muon;
    ignis_optimizer optimizer, none = {0};
    ignis_scope scope;
    ignis_tensor x, loss;
    SETUP(NULL);
    scope = ignis_scope_begin();
    memset(&rmsprop, 0, sizeof rmsprop), memset(&lion, 0, sizeof lion), memset(&muon, 0, sizeof muon);
    rmsprop.alpha = 1;
    CHECK_REFUSED(0, ignis_rmsprop(&rmsprop).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("alpha is 1");
    lion.beta2 = -0.5;
    CHECK_REFUSED(0, ignis_lion(&lion).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("beta2 is -0.5");
    muon.momentum = 1;
    CHECK_REFUSED(0, ignis_muon(&muon).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("momentum is 1");
    memset(&sgd, 0, sizeof sgd);
    sgd.loss_scale = scaled(-1, 0);
    CHECK_REFUSED(0, ignis_sgd(&sgd).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("loss_scale.initial is -1");
    sgd.loss_scale = scaled(2, -1);
    CHECK_REFUSED(0, ignis_sgd(&sgd).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("loss_scale.interval");
    sgd.loss_scale = scaled(2, 1), sgd.loss_scale.growth = 0.5;
    CHECK_REFUSED(0, ignis_sgd(&sgd).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("loss_scale.growth");
    sgd.loss_scale = scaled(2, 1), sgd.loss_scale.backoff = 1.5;
    CHECK_REFUSED(0, ignis_sgd(&sgd).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("loss_scale.backoff");
    sgd.loss_scale = scaled(2, 1), sgd.loss_scale.lowest = 4;
    CHECK_REFUSED(0, ignis_sgd(&sgd).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("loss_scale.lowest is 4");
    x = tensor_counting(IGNIS_SHAPE(6), IGNIS_F16, 1, true);
    optimizer = ignis_muon(NULL);
    CHECK_STATUS(ignis_optimizer_add(optimizer, x, true), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("[6]");
    loss = ignis_sum(x);
    CHECK_REFUSED(0, ignis_scale_loss(optimizer, loss).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_scale_loss(none, loss).id, IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
    CHECK_NUMBER(ignis_item(ignis_scale_loss(optimizer, ignis_cast(loss, IGNIS_F32))), 21);
    CHECK_OK(ignis_optimizer_free(optimizer));
    CHECK_OK(ignis_scope_end(scope));
}

/*  No number of an optimizer may be NaN or infinite. */
TEST(numbers_that_are_none)
{
    static const double bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    ignis_adamw_desc adamw;
    ignis_sgd_desc sgd;
    ignis_rmsprop_desc rmsprop;
    ignis_lion_desc lion;
    ignis_muon_desc muon;
    int k;
    SETUP(NULL);
#define REFUSES(make, desc, number)                                                     \
    (memset(&desc, 0, sizeof desc), desc.loss_scale.initial = 2, desc.number = bad[k]); \
    CHECK_REFUSED(0, make(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);      \
    CHECK_MESSAGE_HAS(#number " is ")
#define ALL_REFUSE(make, desc)               \
    REFUSES(make, desc, lr);                 \
    REFUSES(make, desc, weight_decay);       \
    REFUSES(make, desc, schedule.floor);     \
    REFUSES(make, desc, loss_scale.initial); \
    REFUSES(make, desc, loss_scale.growth);  \
    REFUSES(make, desc, loss_scale.backoff); \
    REFUSES(make, desc, loss_scale.lowest)
    for (k = 0; k < 4; k++) {
        ALL_REFUSE(ignis_adamw, adamw);
        ALL_REFUSE(ignis_sgd, sgd);
        ALL_REFUSE(ignis_rmsprop, rmsprop);
        ALL_REFUSE(ignis_lion, lion);
        ALL_REFUSE(ignis_muon, muon);
        REFUSES(ignis_adamw, adamw, beta1);
        REFUSES(ignis_adamw, adamw, beta2);
        REFUSES(ignis_adamw, adamw, eps);
        REFUSES(ignis_sgd, sgd, momentum);
        REFUSES(ignis_rmsprop, rmsprop, alpha);
        REFUSES(ignis_rmsprop, rmsprop, eps);
        REFUSES(ignis_rmsprop, rmsprop, momentum);
        REFUSES(ignis_lion, lion, beta1);
        REFUSES(ignis_lion, lion, beta2);
        REFUSES(ignis_muon, muon, momentum);
    }
    for (k = 0; k < 4; k++) {
        ignis_optimizer optimizer = ignis_adamw(NULL);
        parameter p = new_parameter(optimizer, 1, 2, IGNIS_F32, false, false);
        give_gradient(&p, 1, 1);
        CHECK_STATUS(ignis_optimizer_set_lr(optimizer, bad[k]), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
        if (k == 2) /* the norm alone */
            CHECK_OK(ignis_clip_grad_norm(optimizer, bad[k]));
        else
            CHECK_STATUS(ignis_clip_grad_norm(optimizer, bad[k]), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
        CHECK_OK(ignis_optimizer_step(optimizer));
        CHECK(value_at(p.tensor, 0) == value_at(p.tensor, 0));
        end_parameter(&p);
        CHECK_OK(ignis_optimizer_free(optimizer));
    }
}

/*  Steps of Muon and of Lion with a scale while calls of a name fail, one after the other (null: allocations on the
    host). */
static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_loss_scale_desc scale = scaled(16, 0);
    int64_t before;
    int m, at;
    SETUP(&desc);
    let_go(tensor_counting(IGNIS_SHAPE(1), IGNIS_F32, 1, false));
    for (m = LION; m <= MUON; m++) {
        bool reached = true;
        before = memory().live_bytes;
        for (at = 1; at < 1000 && reached; at++) {
            ignis_optimizer optimizer;
            ignis_tensor x = tensor_noise(IGNIS_SHAPE(4, 6), IGNIS_BF16, 1, true), loss = no_tensor(), large = loss;
            fault_plan(prefix, at, 2, &counter, false);
            optimizer = make_optimizer((method)m, &scale, false, NULL);
            if (optimizer.id && ignis_optimizer_add(optimizer, x, true) == IGNIS_OK) {
                loss = ignis_map_sum("x*x", IGNIS_INPUTS(x));
                large = ignis_scale_loss(optimizer, loss);
                if (large.id && ignis_backward(large, IGNIS_NO_ARRAY) == IGNIS_OK &&
                    ignis_optimizer_step(optimizer) == IGNIS_OK)
                    CHECK_OK(ignis_status_last());
            }
            reached = fault_over(&counter);
            ignis_status_clear();
            if (loss.id)
                let_go(loss);
            if (large.id)
                let_go(large);
            CHECK_OK(ignis_tape_clear());
            if (optimizer.id)
                CHECK_OK(ignis_optimizer_free(optimizer));
            let_go(x);
            CHECK_INT(memory().live_bytes, before);
        }
        CHECK(at > 5 && !reached);
    }
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
