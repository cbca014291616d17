// SPDX-License-Identifier: MIT
/*  test_losses.c - losses by formulas against double references, forward and backward, and cross-entropy where it is
    one of them */
#include "sweep.h"

#include <math.h>

static double softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }

/* --- losses of elements --------------------------------------------------------------------------------------------
   */

/*  A loss of x and target t, and its slope by x. */
typedef struct element_loss {
    const char *name;
    ignis_tensor (*loss)(ignis_tensor x, ignis_tensor t, ignis_reduction reduction);
    double (*value)(double x, double t), (*slope)(double x, double t);
} element_loss;

static double mse_value(double x, double t) { return (x - t) * (x - t); }
static double mse_slope(double x, double t) { return 2 * (x - t); }
static double l1_value(double x, double t) { return fabs(x - t); }
static double l1_slope(double x, double t) { return x > t ? 1 : x < t ? -1 : 0; }
static double huber_value(double x, double t)
{
    return fabs(x - t) < 0.75 ? 0.5 * (x - t) * (x - t) : 0.75 * (fabs(x - t) - 0.375);
}
static double huber_slope(double x, double t) { return fabs(x - t) < 0.75 ? x - t : x > t ? 0.75 : -0.75; }
static double bce_value(double x, double t) { return t * softplus(-x) + (1 - t) * softplus(x); }
static double bce_slope(double x, double t) { return 1 / (1 + exp(-x)) - t; }

static ignis_tensor huber(ignis_tensor x, ignis_tensor t, ignis_reduction reduction)
{
    return ignis_huber_loss(x, t, 0.75, reduction);
}
static ignis_tensor bce(ignis_tensor x, ignis_tensor t, ignis_reduction reduction)
{
    ignis_bce_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.reduction = reduction;
    return ignis_bce_with_logits(x, t, &desc);
}

static const element_loss element_losses[] = {{"mse", ignis_mse_loss, mse_value, mse_slope},
                                              {"l1", ignis_l1_loss, l1_value, l1_slope},
                                              {"huber", huber, huber_value, huber_slope},
                                              {"bce", bce, bce_value, bce_slope}};
enum { ELEMENT_LOSSES = 4 };

/*  Numbers with the given size, 0 among them. */
static ignis_tensor some(int64_t count, ignis_dtype dtype, uint64_t seed, double size, bool positive,
                         bool requires_grad)
{
    double *values = (double *)malloc(sizeof *values * (size_t)(count + 1));
    ignis_tensor tensor;
    int64_t i;
    for (i = 0; i < count; i++) {
        values[i] = i % 11 == 3 ? 0 : size * noise(seed, i);
        if (positive)
            values[i] = i % 5 == 1 ? 1 : fabs(values[i]);
    }
    tensor = tensor_of(values, IGNIS_SHAPE(count), dtype, requires_grad);
    free(values);
    return tensor;
}

/*  16-bit gradients are rounded once; what they are computed with is f32, by functions that are exact to that rounding.
    */
static double rounding(ignis_dtype dtype)
{
    return dtype == IGNIS_F64 ? 1e-12 : dtype == IGNIS_F32 ? 1e-5 : dtype == IGNIS_F16 ? 2.0 / 1024 : 2.0 / 128;
}

static void check_numbers(const char *what, const double *got, const double *expected, int64_t count, double tolerance)
{
    char text[200];
    int64_t i;
    for (i = 0;
         i < count && (is_close(got[i], expected[i], tolerance) || (got[i] != got[i] && expected[i] != expected[i]));
         i++)
        ;
    if (i == count)
        return;
    snprintf(text, sizeof text, "%s: element %lld is %.17g, expected %.17g", what, (long long)i, got[i], expected[i]);
    test__fail(__FILE__, __LINE__, text);
}

static void check_element_loss(const element_loss *e, int64_t count, ignis_dtype dtype, ignis_reduction reduction)
{
    ignis_tensor x = some(count, dtype, 1, 3, false, true), t = some(count, dtype, 2, 1, true, false), loss, upstream;
    double *xs = tensor_values(x), *ts = tensor_values(t),
           *expected = (double *)calloc((size_t)count + 1, sizeof *expected), *got, sum = 0;
    bool each = reduction == IGNIS_REDUCTION_NONE;
    double scale = reduction == IGNIS_REDUCTION_MEAN ? 1 / (double)count : 1;
    int64_t i;
    loss = e->loss(x, t, reduction);
    CHECK_INT(tensor_info(loss).dtype, dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32);
    CHECK_SHAPE_IS(loss, IGNIS_SHAPE(each ? count : 1));
    for (i = 0; i < count; i++)
        sum += expected[i] = e->value(xs[i], ts[i]);
    got = tensor_values(loss);
    if (!each)
        expected[0] = sum * scale;
    check_numbers(e->name, got, expected, each ? count : 1, dtype == IGNIS_F64 ? 1e-12 : 2e-5); /* of f32 sums */
    free(got);
    upstream = some(each ? count : 1, tensor_info(loss).dtype, 3, 1, true, false);
    got = tensor_values(upstream);
    for (i = 0; i < count; i++)
        expected[i] = e->slope(xs[i], ts[i]) * scale * got[each ? i : 0];
    free(got);
    CHECK_OK(ignis_backward(loss, ignis_tensor_data(upstream)));
    got = array_values(ignis_tensor_grad(x));
    check_numbers(e->name, got, expected, count, rounding(dtype));
    free(got), free(xs), free(ts), free(expected);
    let_go(x), let_go(t), let_go(loss), let_go(upstream);
}

TEST(losses_of_elements)
{
    static const int64_t counts[] = {1, 7, 129, 1031};
    int k, d, c, r;
    SETUP(NULL);
    for (k = 0; k < ELEMENT_LOSSES; k++)
        for (d = 0; d < 4; d++)
            for (c = 0; c < 4 && test_takes(float_dtypes[d], k); c++)
                for (r = 0; r < IGNIS_REDUCTION_COUNT; r++)
                    check_element_loss(&element_losses[k], counts[c], float_dtypes[d], (ignis_reduction)r);
}

TEST(losses_of_nothing)
{
    int k;
    SETUP(NULL);
    for (k = 0; k < ELEMENT_LOSSES; k++) {
        ignis_tensor x = some(0, IGNIS_F32, 1, 1, false, true), t = some(0, IGNIS_F32, 1, 1, true, false), mean, sum,
                     each;
        mean = element_losses[k].loss(x, t, IGNIS_REDUCTION_MEAN);
        sum = element_losses[k].loss(x, t, IGNIS_REDUCTION_SUM);
        each = element_losses[k].loss(x, t, IGNIS_REDUCTION_NONE);
        CHECK_NUMBER(ignis_item(mean), NAN);
        CHECK_NUMBER(ignis_item(sum), 0);
        CHECK_INT(numel_of(each), 0);
        CHECK_OK(ignis_backward(sum, IGNIS_NO_ARRAY));
        let_go(x), let_go(t), let_go(mean), let_go(sum), let_go(each);
    }
}

/*  A sum in f16 would be infinite, and the mean's gradient, before a scale is in it, 0. */
TEST(losses_of_f16_are_f32)
{
    ignis_scope scope;
    int64_t count = 100000;
    double big = 60;
    ignis_tensor x, t, loss, sum, scale;
    double factor = 65536;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_of(&big, IGNIS_SHAPE(1), IGNIS_F16, true);
    t = ignis_expand(x, IGNIS_SHAPE(count));
    loss = ignis_mse_loss(t, ignis_map("0*t", IGNIS_INPUTS(t)), IGNIS_REDUCTION_MEAN);
    sum = ignis_mse_loss(t, ignis_map("0*t", IGNIS_INPUTS(t)), IGNIS_REDUCTION_SUM);
    CHECK_CLOSE(ignis_item(loss), 3600, 1e-5);
    CHECK_CLOSE(ignis_item(sum), 3.6e8, 1e-5);
    scale = tensor_of(&factor, IGNIS_SHAPE(1), IGNIS_F32, false);
    CHECK_OK(ignis_backward(loss, ignis_tensor_data(scale)));
    CHECK(isinf(grad_at(x, 0))); /* 120 * 65536 is beyond f16 */
    let_go(scale);
    CHECK_OK(ignis_scope_end(scope));
}

/*  A loss of an example that is right by far keeps its digits, and one that is wrong by far does not overflow. */
TEST(bce_of_large_logits)
{
    ignis_scope scope;
    static const double xs[] = {-80, -20, 0, 20, 80, 1e30, -1e30}, ts[] = {0, 0, 1, 1, 1, 0, 1};
    static const double edges[] = {-INFINITY, INFINITY, -INFINITY, INFINITY, NAN, NAN}, sides[] = {0, 1, 1, 0, 0, 1};
    static const double losses[] = {0, 0, INFINITY, INFINITY, NAN, NAN}, slopes[] = {0, 0, -1, 1, NAN, NAN};
    ignis_tensor x, t, loss;
    ignis_bce_desc desc;
    double *got, *grad;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_of(xs, IGNIS_SHAPE(7), IGNIS_F32, true);
    t = tensor_of(ts, IGNIS_SHAPE(7), IGNIS_U8, false);
    loss = bce(x, t, IGNIS_REDUCTION_NONE);
    CHECK_OK(ignis_backward(ignis_sum(loss), IGNIS_NO_ARRAY));
    got = tensor_values(loss);
    grad = array_values(ignis_tensor_grad(x));
    for (i = 0; i < 7; i++) {
        CHECK_CLOSE(got[i] / bce_value(xs[i], ts[i]), 1, 1e-5);
        CHECK_CLOSE(grad[i], bce_slope(xs[i], ts[i]), 1e-6);
    }
    free(got), free(grad);
    let_go(x), let_go(t);
    x = tensor_of(edges, IGNIS_SHAPE(6), IGNIS_F32, true);
    t = tensor_of(sides, IGNIS_SHAPE(6), IGNIS_U8, false);
    loss = bce(x, t, IGNIS_REDUCTION_NONE);
    CHECK_OK(ignis_backward(loss, ignis_tensor_data(ignis_tensor_ones(IGNIS_SHAPE(6), NULL))));
    got = tensor_values(loss);
    grad = array_values(ignis_tensor_grad(x));
    for (i = 0; i < 6; i++) {
        CHECK(got[i] == losses[i] || (isnan(got[i]) && isnan(losses[i])));
        CHECK(grad[i] == slopes[i] || (isnan(grad[i]) && isnan(slopes[i])));
    }
    free(got), free(grad);
    let_go(x); /* a weight of 0 leaves nothing of them */
    x = tensor_of(edges, IGNIS_SHAPE(6), IGNIS_F32, true);
    memset(&desc, 0, sizeof desc);
    desc.reduction = IGNIS_REDUCTION_SUM;
    desc.weight = ignis_tensor_zeros(IGNIS_SHAPE(6), NULL);
    loss = ignis_bce_with_logits(x, t, &desc);
    CHECK_CLOSE(ignis_item(loss), 0, 0);
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    grad = array_values(ignis_tensor_grad(x));
    for (i = 0; i < 6; i++)
        CHECK(grad[i] == 0);
    free(grad);
    let_go(x), let_go(t);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(bce_with_weights)
{
    ignis_scope scope;
    enum { ROWS = 5, COLUMNS = 7 };
    ignis_tensor x, t, loss;
    double *xs, *ts, *ws, *ps, *got, *grad, expected[ROWS * COLUMNS], slope[ROWS * COLUMNS], sum = 0;
    ignis_bce_desc desc;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    memset(&desc, 0, sizeof desc);
    x = tensor_noise(IGNIS_SHAPE(ROWS, COLUMNS), IGNIS_F64, 1, true);
    t = ignis_map("abs(x)",
                  IGNIS_INPUTS(IGNIS_NAMED(x, tensor_noise(IGNIS_SHAPE(ROWS, COLUMNS), IGNIS_F32, 2, false))));
    desc.weight = tensor_noise(IGNIS_SHAPE(ROWS, 1), IGNIS_F64, 3, false);
    desc.pos_weight = tensor_noise(IGNIS_SHAPE(COLUMNS), IGNIS_F64, 4, false);
    xs = tensor_values(x), ts = tensor_values(t), ws = tensor_values(desc.weight), ps = tensor_values(desc.pos_weight);
    for (i = 0; i < ROWS * COLUMNS; i++) {
        double w = ws[i / COLUMNS], p = ps[i % COLUMNS], s = 1 / (1 + exp(-xs[i]));
        expected[i] = w * (p * ts[i] * softplus(-xs[i]) + (1 - ts[i]) * softplus(xs[i]));
        slope[i] = w * (p * ts[i] * (s - 1) + (1 - ts[i]) * s) / (ROWS * COLUMNS);
        sum += expected[i];
    }
    desc.reduction = IGNIS_REDUCTION_NONE;
    got = tensor_values(ignis_bce_with_logits(x, t, &desc));
    check_numbers("weighted bce", got, expected, ROWS * COLUMNS, 1e-12);
    desc.reduction = IGNIS_REDUCTION_MEAN;
    loss = ignis_bce_with_logits(x, t, &desc);
    CHECK_CLOSE(ignis_item(loss), sum / (ROWS * COLUMNS), 1e-12);
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    grad = array_values(ignis_tensor_grad(x));
    check_numbers("gradient of weighted bce", grad, slope, ROWS * COLUMNS, 1e-12);
    CHECK_CLOSE(ignis_item(ignis_bce_with_logits(x, t, NULL)), ignis_item(bce(x, t, IGNIS_REDUCTION_MEAN)), 0);
    desc.weight = tensor_noise(IGNIS_SHAPE(3, ROWS, 1), IGNIS_F64, 3, false);
    CHECK_FAILS(ignis_bce_with_logits(x, t, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_BROADCAST_SHAPE);
    CHECK_MESSAGE_HAS("together they are [3, 5, 7]");
    free(xs), free(ts), free(ws), free(ps), free(got), free(grad);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- losses of rows -------------------------------------------------------------------------------------------------
   */

/*  Logits or log-probabilities of rows with padding behind their classes, and what is to come out of them. */
typedef struct rows_case {
    ignis_dtype dtype, target_dtype;
    int64_t rows, columns, classes;
    double smoothing;
    ignis_reduction reduction;
    bool nll;
} rows_case;

static void check_rows(const rows_case *c)
{
    ignis_cross_entropy_desc desc;
    int64_t n = c->rows * c->columns, *ids = (int64_t *)malloc(sizeof *ids * (size_t)(c->rows + 1)), counted = 0, r, i;
    ignis_tensor x = some(n, c->dtype, 5, 4, false, true), logits = ignis_reshape(x, IGNIS_SHAPE(c->rows, c->columns)),
                 targets, loss, upstream;
    double *xs = tensor_values(x), *expected = (double *)calloc((size_t)c->rows + 1, sizeof *expected),
           *slope = (double *)calloc((size_t)n + 1, sizeof *slope), *got, *ups, sum = 0;
    ignis_tensor_desc integers = tensor_desc(c->target_dtype, false);
    bool each = c->reduction == IGNIS_REDUCTION_NONE;
    char what[100];
    for (r = 0; r < c->rows; r++) {
        const double *row = xs + r * c->columns;
        double exps = 0, log_sum, ignored = r % 5 == 1;
        ids[r] = ignored ? -7 : (int64_t)((noise(20, r) + 1) / 2 * (double)c->classes);
        for (i = 0; i < c->classes; i++)
            exps += exp(row[i]);
        log_sum = log(exps);
        for (i = 0; i < c->classes && !ignored; i++) {
            double q = (i == ids[r] ? 1 - c->smoothing : 0) + c->smoothing / (double)c->classes;
            expected[r] += c->nll ? (i == ids[r] ? -row[i] : 0) : q * (log_sum - row[i]);
            slope[r * c->columns + i] = c->nll ? (i == ids[r] ? -1 : 0) : exp(row[i] - log_sum) - q;
        }
        counted += !ignored;
        sum += expected[r];
    }
    integers.host_dtype = IGNIS_I64;
    targets = ignis_tensor_from_host(ids, IGNIS_SHAPE(c->rows), &integers);
    memset(&desc, 0, sizeof desc);
    desc.ignore_index = -7;
    desc.classes = c->classes;
    desc.label_smoothing = c->smoothing;
    desc.reduction = c->reduction;
    loss = c->nll ? ignis_nll_loss(logits, targets, &desc) : ignis_cross_entropy(logits, targets, &desc);
    CHECK_INT(tensor_info(loss).dtype, c->dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32);
    CHECK_SHAPE_IS(loss, IGNIS_SHAPE(each ? c->rows : 1));
    if (c->reduction == IGNIS_REDUCTION_MEAN)
        sum /= (double)counted;
    if (!each)
        expected[0] = sum;
    snprintf(what, sizeof what, "%s of %lld x %lld, smoothing %g", c->nll ? "nll" : "cross_entropy", (long long)c->rows,
             (long long)c->columns, c->smoothing);
    got = tensor_values(loss);
    check_numbers(what, got, expected, each ? c->rows : 1, c->dtype == IGNIS_F64 ? 1e-12 : 1e-5);
    free(got);
    upstream = some(each ? c->rows : 1, tensor_info(loss).dtype, 3, 1, true, false);
    ups = tensor_values(upstream);
    for (i = 0; i < n; i++)
        slope[i] *= ups[each ? i / c->columns : 0] / (c->reduction == IGNIS_REDUCTION_MEAN ? (double)counted : 1);
    CHECK_OK(ignis_backward(loss, ignis_tensor_data(upstream)));
    got = array_values(ignis_tensor_grad(x));
    check_numbers(what, got, slope, n, rounding(c->dtype));
    free(got), free(ups), free(xs), free(expected), free(slope), free(ids);
    let_go(x), let_go(logits), let_go(targets), let_go(loss), let_go(upstream);
}

TEST(losses_of_rows)
{
    static const int64_t columns[] = {1, 2, 7, 33, 257};
    rows_case c;
    int d, i, r;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (i = 0; i < 5; i++)
            for (r = 0; r < IGNIS_REDUCTION_COUNT; r++) {
                memset(&c, 0, sizeof c);
                c.dtype = float_dtypes[d];
                c.target_dtype = i % 2 ? IGNIS_I64 : IGNIS_I32;
                c.rows = 13 - i;
                c.columns = columns[i];
                c.classes = i > 1 ? columns[i] - 2 : columns[i];
                c.reduction = (ignis_reduction)r;
                c.nll = true;
                check_rows(&c);
                c.nll = false;
                c.smoothing = i == 4 ? 1 : 0.1;
                check_rows(&c);
                c.smoothing = 0;
                check_rows(&c); /* NONE; else the kernels of all rows, by the same reference */
            }
}

/*  Impossible classes have no part in the loss, and a target that is no class makes loss and gradient of its row NaN.
    */
TEST(losses_of_rows_at_the_edges)
{
    ignis_scope scope;
    static const double xs[] = {0, -INFINITY, 1, 2, 3, 4, 1, 1, 1, -INFINITY, -INFINITY, -INFINITY};
    static const int32_t ids[] = {0, 3, -100, 1};
    ignis_tensor x, t, loss;
    ignis_cross_entropy_desc desc;
    ignis_tensor_desc integers = tensor_desc(IGNIS_I32, false);
    double *got, *grad;
    int nll;
    SETUP(NULL);
    scope = ignis_scope_begin();
    memset(&desc, 0, sizeof desc);
    desc.reduction = IGNIS_REDUCTION_NONE;
    for (nll = 0; nll < 2; nll++) {
        x = tensor_of(xs, IGNIS_SHAPE(2, 2, 3), IGNIS_F32, true);
        t = ignis_tensor_from_host(ids, IGNIS_SHAPE(2, 2), &integers);
        loss = nll ? ignis_nll_loss(x, t, &desc) : ignis_cross_entropy(x, t, &desc);
        CHECK_SHAPE_IS(loss, IGNIS_SHAPE(2, 2));
        CHECK_OK(ignis_backward(ignis_sum(loss), IGNIS_NO_ARRAY));
        got = tensor_values(loss);
        grad = array_values(ignis_tensor_grad(x));
        CHECK_CLOSE(got[0], nll ? 0 : log(1 + exp(1.0)), 1e-6);
        CHECK_CLOSE(grad[0], nll ? -1 : 1 / (1 + exp(1.0)) - 1, 1e-6);
        CHECK_NUMBER(grad[1], 0);
        CHECK_NUMBER(got[1], NAN);
        CHECK_NUMBER(grad[3], NAN);
        CHECK_NUMBER(got[2], 0);
        CHECK_NUMBER(grad[6], 0);
        CHECK_NUMBER(got[3], nll ? INFINITY : NAN);
        free(got), free(grad);
        let_go(x), let_go(t);
    }
    memset(&desc, 0, sizeof desc);
    desc.label_smoothing = 0.5; /* all ignored: the mean of none */
    x = tensor_noise(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    t = ignis_tensor_from_host(ids + 2, IGNIS_SHAPE(1), &integers);
    CHECK_NUMBER(ignis_item(ignis_cross_entropy(x, t, &desc)), NAN);
    CHECK_NUMBER(ignis_item(ignis_nll_loss(x, t, NULL)), NAN);
    x = tensor_noise(IGNIS_SHAPE(0, 3), IGNIS_F32, 1, true);
    t = ignis_tensor_from_host(ids, IGNIS_SHAPE(0), &integers);
    desc.reduction = IGNIS_REDUCTION_SUM;
    loss = ignis_cross_entropy(x, t, &desc);
    CHECK_NUMBER(ignis_item(loss), 0);
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
}

/* --- batches in which nothing counts --------------------------------------------------------------------------------
   */

enum { IDLE_LOSSES = 10 };

/*  A loss of x [rows, columns], whose rows or elements count for nothing, and into what else its gradients go. */
static ignis_tensor idle_loss(int at, ignis_tensor x, ignis_tensor ids, ignis_tensor zeros, ignis_tensor other,
                              ignis_reduction reduction)
{
    ignis_cross_entropy_desc desc;
    ignis_bce_desc weights;
    memset(&desc, 0, sizeof desc);
    memset(&weights, 0, sizeof weights);
    desc.reduction = weights.reduction = reduction;
    switch (at) {
    case 0: return ignis_cross_entropy(x, ids, &desc);
    case 1: desc.label_smoothing = 0.1; return ignis_cross_entropy(x, ids, &desc);
    case 2: return ignis_nll_loss(x, ids, &desc);
    case 3: desc.chunk = 3; return ignis_linear_cross_entropy(x, other, ids, &desc);
    case 4: return ignis_kl_div(x, zeros, false, reduction);
    case 5: return ignis_kl_div(x, ignis_map("log(z)", IGNIS_INPUTS(IGNIS_NAMED(z, zeros))), true, reduction);
    case 6: weights.weight = zeros; return ignis_bce_with_logits(x, zeros, &weights);
    case 7: weights.pos_weight = other; return ignis_bce_with_logits(x, zeros, &weights);
    case 8: return ignis_mse_loss(x, zeros, reduction);
    default: return ignis_huber_loss(x, zeros, 1, reduction);
    }
}

/*  Gradients are 0 where all rows are ignored, all weights or targets 0, or no rows there: those of the mean, too,
    which is NaN. garbage: what stands in rows that are ignored. */
static void check_idle(int at, ignis_dtype dtype, int64_t rows, int64_t columns, ignis_reduction reduction,
                       double garbage)
{
    ignis_scope scope = ignis_scope_begin();
    int64_t n = rows * columns, i, others;
    int64_t *ids = (int64_t *)malloc(sizeof *ids * (size_t)(rows + 1));
    double *xs = (double *)malloc(sizeof *xs * (size_t)(n + 1)), *got;
    ignis_tensor_desc integers = tensor_desc(IGNIS_I32, false);
    ignis_tensor x, t, zeros, other, loss;
    bool none_counts = rows == 0 || at < 4;
    char what[100];
    for (i = 0; i < rows; i++)
        ids[i] = -100;
    for (i = 0; i < n; i++)
        xs[i] = i % 3 ? noise(1, i) : garbage;
    integers.host_dtype = IGNIS_I64;
    x = tensor_of(xs, IGNIS_SHAPE(rows, columns), dtype, true);
    t = ignis_tensor_from_host(ids, IGNIS_SHAPE(rows), &integers);
    memset(xs, 0, sizeof *xs * (size_t)n);
    zeros = tensor_of(xs, IGNIS_SHAPE(rows, columns), dtype, false);
    other = tensor_noise(at == 3 ? IGNIS_SHAPE(5, columns) : IGNIS_SHAPE(columns), dtype, 2, true);
    loss = idle_loss(at, x, t, zeros, other, reduction);
    snprintf(what, sizeof what, "idle loss %d of %lld x %lld, dtype %d, reduction %d, garbage %g", at, (long long)rows,
             (long long)columns, (int)dtype, (int)reduction, garbage);
    if (reduction == IGNIS_REDUCTION_NONE)
        loss = ignis_sum(loss);
    got = tensor_values(loss);
    xs[0] = none_counts && reduction == IGNIS_REDUCTION_MEAN ? NAN : 0;
    check_numbers(what, got, xs, 1, 0);
    free(got);
    xs[0] = 0;
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    got = array_values(ignis_tensor_grad(x));
    check_numbers(what, got, xs, n, 0);
    free(got);
    if (at == 3 || at == 7) {
        others = numel_of(other);
        xs = (double *)realloc(xs, sizeof *xs * (size_t)(others + 1));
        memset(xs, 0, sizeof *xs * (size_t)others);
        got = array_values(ignis_tensor_grad(other));
        check_numbers(what, got, xs, others, 0);
        free(got);
    }
    free(ids), free(xs);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(gradients_are_zero_where_nothing_counts)
{
    static const int64_t sizes[][2] = {{0, 3}, {1, 3}, {4, 64}, {150, 64}, {150, 7}};
    static const double garbage[] = {INFINITY, NAN};
    int at, d, i, k, reduction;
    SETUP(NULL);
    for (at = 0; at < IDLE_LOSSES; at++)
        for (reduction = 0; reduction < IGNIS_REDUCTION_COUNT; reduction++)
            for (i = 0; i < COUNT_OF(sizes); i++)
                for (d = 0; d < 4; d++) {
                    if ((at == 3 && reduction == IGNIS_REDUCTION_NONE) || (at > 3 && d != i % 4) || (at > 6 && i > 0))
                        continue;
                    check_idle(at, float_dtypes[d], sizes[i][0], sizes[i][1], (ignis_reduction)reduction, 0.5);
                    for (k = 0; k < 2 && at < 3 && d == i % 4; k++)
                        check_idle(at, float_dtypes[d], sizes[i][0], sizes[i][1], (ignis_reduction)reduction,
                                   garbage[k]);
                }
    CHECK_INT(memory().live_blocks, 0);
}

TEST(kl_div)
{
    enum { ROWS = 5, COLUMNS = 37 };
    ignis_tensor x, q, p, loss;
    double *xs, *ps, *got, expected[ROWS], slope[ROWS * COLUMNS];
    int i, d, logs, reduction;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (logs = 0; logs < 2; logs++)
            for (reduction = 0; reduction < IGNIS_REDUCTION_COUNT; reduction++) {
                ignis_scope scope = ignis_scope_begin();
                double sum = 0, scale = reduction == IGNIS_REDUCTION_MEAN ? 1.0 / ROWS : 1;
                x = tensor_noise(IGNIS_SHAPE(ROWS, COLUMNS), float_dtypes[d], 1, true);
                q = ignis_map("x - 3", IGNIS_INPUTS(x));
                p = tensor_noise(IGNIS_SHAPE(ROWS, COLUMNS), float_dtypes[d], 2, false);
                p = logs ? ignis_map("p < -0.7 ? -inf : p - 4", IGNIS_INPUTS(p))
                         : ignis_map("max(p, 0) / 16", IGNIS_INPUTS(p));
                xs = tensor_values(q), ps = tensor_values(p);
                memset(expected, 0, sizeof expected);
                for (i = 0; i < ROWS * COLUMNS; i++) {
                    double t = logs ? exp(ps[i]) : ps[i];
                    expected[i / COLUMNS] += t == 0 ? 0 : t * (log(t) - xs[i]);
                    slope[i] = -t * scale;
                }
                for (i = 0; i < ROWS; i++)
                    sum += expected[i];
                if (reduction != IGNIS_REDUCTION_NONE)
                    expected[0] = sum * scale;
                loss = ignis_kl_div(q, p, logs, (ignis_reduction)reduction);
                CHECK_SHAPE_IS(loss, IGNIS_SHAPE(reduction == IGNIS_REDUCTION_NONE ? ROWS : 1));
                got = tensor_values(loss);
                check_numbers("kl_div", got, expected, reduction == IGNIS_REDUCTION_NONE ? ROWS : 1,
                              d == 0 ? 1e-12 : 1e-5);
                free(got);
                CHECK_OK(ignis_backward(ignis_sum(loss), IGNIS_NO_ARRAY));
                got = array_values(ignis_tensor_grad(x));
                check_numbers("gradient of kl_div", got, slope, ROWS * COLUMNS, rounding(float_dtypes[d]));
                free(got), free(xs), free(ps);
                CHECK_OK(ignis_scope_end(scope));
            }
}

/*  Of rows of any size the cosine is that of their directions, never above 1, and its gradient is that of ordinary ones
    divided by the size. */
TEST(cosine_similarity_far_from_one)
{
    static const int powers[][2] = {{0, 0}, {70, 600}, {120, 1000}, {127, 1023}, {-20, -20}};
    enum { ROWS = 40, N = 37 };
    double as[ROWS * N], bs[ROWS * N], ones[ROWS * N], plain[ROWS * N];
    int d, k, i, r;
    SETUP(NULL);
    for (d = 0; d < 2; d++)
        for (k = 0; k < COUNT_OF(powers); k++) {
            ignis_dtype dtype = d ? IGNIS_F64 : IGNIS_F32;
            int power = powers[k][d];
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor a, b, c;
            double *got, *self, *grad;
            for (i = 0; i < ROWS * N; i++) {
                ones[i] = (double)(float)noise(3, i), plain[i] = (double)(float)noise(4, i);
                as[i] = ldexp(ones[i], power), bs[i] = ldexp(plain[i], i / N % 2 ? power : 0);
            }
            a = tensor_of(as, IGNIS_SHAPE(ROWS, N), dtype, true), b = tensor_of(bs, IGNIS_SHAPE(ROWS, N), dtype, false);
            c = ignis_cosine_similarity(a, b);
            got = tensor_values(c);
            self = tensor_values(ignis_cosine_similarity(a, a));
            CHECK_OK(ignis_backward(ignis_sum(c), IGNIS_NO_ARRAY));
            grad = array_values(ignis_tensor_grad(a));
            for (r = 0; r < ROWS; r++) {
                double ab = 0, aa = 0, bb = 0;
                for (i = r * N; i < (r + 1) * N; i++)
                    ab += ones[i] * plain[i], aa += ones[i] * ones[i], bb += plain[i] * plain[i];
                CHECK_CLOSE(got[r], ab / sqrt(aa * bb), d ? 1e-14 : 1e-6);
                CHECK(self[r] <= 1 && self[r] > 1 - (d ? 1e-14 : 1e-6));
                for (i = r * N; i < (r + 1) * N; i++)
                    CHECK_CLOSE(ldexp(grad[i], power),
                                (plain[i] / sqrt(bb) - ones[i] / sqrt(aa) * ab / sqrt(aa * bb)) / sqrt(aa),
                                d ? 1e-13 : 1e-5);
            }
            free(got), free(self), free(grad);
            CHECK_OK(ignis_tape_clear());
            CHECK_OK(ignis_scope_end(scope));
        }
}

TEST(cosine_similarity)
{
    ignis_scope scope;
    static const double as[] = {3, 4, 0, 0, 1, 0, -2, 2}, bs[] = {4, 3, 1, 1, 0, 5, 2, -2},
                        expected[] = {24.0 / 25, 0, 0, -1};
    int d;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (d = 0; d < 4; d++) {
        ignis_tensor a = tensor_of(as, IGNIS_SHAPE(4, 2), float_dtypes[d], true),
                     b = tensor_of(bs, IGNIS_SHAPE(4, 2), float_dtypes[d], false), c = ignis_cosine_similarity(a, b);
        double *got = tensor_values(c), *grad;
        check_numbers("cosine", got, expected, 4, d == 0 ? 1e-15 : 1e-6);
        CHECK_OK(ignis_backward(ignis_sum(c), IGNIS_NO_ARRAY));
        grad = array_values(ignis_tensor_grad(a));
        CHECK_CLOSE(grad[0], 4.0 / 25 - 24.0 / 25 * 3 / 25, rounding(float_dtypes[d]));
        CHECK(d == 0 ? grad[2] > 1e7 : grad[2] == grad[2]); /* of no length: as PyTorch, which divides by 1e-8 */
        CHECK_NUMBER(grad[5] > 0, 1);
        free(got), free(grad);
        let_go(a), let_go(b), let_go(c);
    }
    CHECK_OK(ignis_scope_end(scope));
}

/* --- gradients by finite differences, and what fails -------------------------------------------------------------- */

static ignis_tensor every_loss(int at, const ignis_tensor *inputs)
{
    ignis_tensor x = inputs[0], t = inputs[1], ids = inputs[2];
    ignis_cross_entropy_desc soft;
    ignis_bce_desc weights;
    memset(&soft, 0, sizeof soft);
    memset(&weights, 0, sizeof weights);
    weights.weight = weights.pos_weight = t;
    soft.label_smoothing = 0.2;
    switch (at) {
    case 0: return ignis_mse_loss(x, t, IGNIS_REDUCTION_SUM);
    case 1: return ignis_huber_loss(x, t, 0.3, IGNIS_REDUCTION_MEAN);
    case 2: return ignis_bce_with_logits(x, t, &weights);
    case 3: return ignis_kl_div(x, t, false, IGNIS_REDUCTION_MEAN);
    case 4: return ignis_kl_div(x, t, true, IGNIS_REDUCTION_SUM);
    case 5: return ignis_nll_loss(x, ids, NULL);
    case 6: return ignis_cross_entropy(x, ids, &soft);
    case 7: return ignis_sum(ignis_cosine_similarity(x, t));
    case 8: return ignis_l1_loss(x, t, IGNIS_REDUCTION_MEAN);
    default: soft.reduction = IGNIS_REDUCTION_NONE; return ignis_sum(ignis_cross_entropy(x, ids, &soft));
    }
}
enum { EVERY = 10 };

typedef struct checked_loss {
    int at;
    ignis_tensor ids;
} checked_loss;

static ignis_tensor call_loss(const ignis_tensor *inputs, int count, void *user_data)
{
    const checked_loss *c = (const checked_loss *)user_data;
    ignis_tensor all[3];
    (void)count;
    all[0] = inputs[0], all[1] = inputs[1], all[2] = c->ids;
    return every_loss(c->at, all);
}

static ignis_tensor few_ids(void)
{
    static const int32_t ids[] = {2, -100, 0, 4};
    ignis_tensor_desc integers = tensor_desc(IGNIS_I32, false);
    return ignis_tensor_from_host(ids, IGNIS_SHAPE(4), &integers);
}

TEST(gradients_by_differences)
{
    ignis_scope scope;
    ignis_tensor inputs[2], t;
    checked_loss c;
    SETUP(NULL);
    scope = ignis_scope_begin();
    inputs[0] = tensor_noise(IGNIS_SHAPE(4, 5), IGNIS_F64, 1, true);
    t = tensor_noise(IGNIS_SHAPE(4, 5), IGNIS_F64, 2, false);
    inputs[1] = ignis_tensor_from_array(ignis_tensor_data(ignis_map("abs(t) + 0.01", IGNIS_INPUTS(t))), true);
    c.ids = few_ids();
    for (c.at = 0; c.at < EVERY; c.at++)
        CHECK(ignis_gradcheck(call_loss, &c, inputs, c.at == 5 || c.at == 6 || c.at == 9 ? 1 : 2, NULL) < 1e-6);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor all_losses(int at, const ignis_tensor *inputs)
{
    ignis_tensor sum = every_loss(0, inputs);
    int i;
    (void)at;
    for (i = 2; i < 8 && sum.id; i++)
        if (i != 4)
            sum = ignis_add(sum, every_loss(i, inputs));
    return sum;
}

TEST(each_call_of_the_driver_fails_once)
{
    ignis_scope scope;
    static host_counter counter; /* outlives what the shutdown frees */
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor inputs[3];
    SETUP(&desc);
    scope = ignis_scope_begin();
    inputs[0] = tensor_noise(IGNIS_SHAPE(4, 5), IGNIS_F32, 1, true);
    inputs[1] = some(20, IGNIS_F32, 2, 1, true, false);
    inputs[1] = ignis_reshape(inputs[1], IGNIS_SHAPE(4, 5));
    inputs[2] = few_ids();
    sweep_walks("cuLaunchKernel", &counter, all_losses, inputs);
    sweep_walks(NULL, &counter, all_losses, inputs);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(wrong_inputs)
{
    ignis_scope scope;
    ignis_tensor x, column, ids, whole;
    ignis_cross_entropy_desc desc;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(4, 5), IGNIS_F32, 1, false);
    column = tensor_noise(IGNIS_SHAPE(4, 1), IGNIS_F32, 1, false);
    ids = few_ids();
    CHECK_FAILS(ignis_mse_loss(x, column, IGNIS_REDUCTION_MEAN), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("ignis_mse_loss");
    CHECK_MESSAGE_HAS("targets is [4, 1], the first input is [4, 5]");
    CHECK_FAILS(ignis_l1_loss(x, x, IGNIS_REDUCTION_COUNT), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_MESSAGE_HAS("ignis_l1_loss: there is no reduction 3");
    CHECK_FAILS(ignis_huber_loss(x, x, 0, IGNIS_REDUCTION_MEAN), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("delta is 0");
    whole = ignis_cast(x, IGNIS_I32);
    CHECK_FAILS(ignis_mse_loss(whole, whole, IGNIS_REDUCTION_MEAN), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_FAILS(ignis_kl_div(x, column, false, IGNIS_REDUCTION_MEAN), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_FAILS(ignis_kl_div(x, x, false, (ignis_reduction)-1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_FAILS(ignis_cosine_similarity(x, column), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_FAILS(ignis_nll_loss(x, column, NULL), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_FAILS(ignis_nll_loss(x, ignis_slice(ids, 0, 0, 3), NULL), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    memset(&desc, 0, sizeof desc);
    desc.label_smoothing = 1.5;
    CHECK_FAILS(ignis_cross_entropy(x, ids, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("label_smoothing is 1.5");
    CHECK_FAILS(ignis_nll_loss(x, ids, &desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    desc.label_smoothing = 0;
    desc.reduction = IGNIS_REDUCTION_NONE;
    CHECK_FAILS(ignis_linear_cross_entropy(x, x, ids, &desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    desc.reduction = IGNIS_REDUCTION_COUNT;
    CHECK_FAILS(ignis_nll_loss(x, ids, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_OK(ignis_scope_end(scope));
}

int main(int argc, char **argv) { return test_run(argc, argv); }
