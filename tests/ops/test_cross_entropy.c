// SPDX-License-Identifier: MIT
/*  test_cross_entropy.c - cross_entropy and linear_cross_entropy against double references, gradients by finite
    differences */
#include "rows.h"

/* cross_entropy ---------------------------------------------------------------------------------------------------- */

typedef struct entropy_case {
    ignis_dtype dtype, target_dtype;
    int64_t rows, columns, classes, ignore;
    ignis_reduction reduction;
    double upstream; /* the gradient of the loss */
    int64_t skip;
    bool alone; /* without the gradient */
} entropy_case;

static void check_cross_entropy(const entropy_case *e)
{
    ignis_cross_entropy_desc desc;
    ignis_dtype wide = e->dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32;
    ignis_tensor logits = noise_at(IGNIS_SHAPE(e->rows, e->columns), e->dtype, (uint64_t)e->columns, 0, 5, e->skip,
                                   !e->alone),
                 targets, loss, grad;
    int64_t *indices = (int64_t *)malloc(sizeof *indices * (size_t)(e->rows + 1)), r, i, used = 0;
    double *xs = tensor_values(logits), *expected = numbers(e->rows * e->columns), *got, sum = 0, scale;
    for (r = 0; r < e->rows; r++) {
        indices[r] = r % 5 == 1 ? e->ignore : (int64_t)((noise(20, r) + 1) / 2 * (double)e->classes);
        used += indices[r] != e->ignore;
    }
    targets = indices_of(indices, IGNIS_SHAPE(e->rows), e->target_dtype);
    memset(&desc, 0, sizeof desc);
    desc.ignore_index = e->ignore;
    desc.ignore_zero = e->ignore == 0;
    desc.reduction = e->reduction;
    desc.classes = e->classes == e->columns ? 0 : e->classes;
    loss = ignis_cross_entropy(logits, targets, &desc);
    CHECK_SHAPE_IS(loss, IGNIS_SHAPE(1));
    CHECK_INT(tensor_info(loss).dtype, wide);
    scale = e->reduction == IGNIS_REDUCTION_MEAN ? 1 / (double)used : 1;
    for (r = 0; r < e->rows; r++) {
        const double *row = xs + r * e->columns;
        double *to = expected + r * e->columns, max = -INFINITY, exps = 0;
        if (indices[r] == e->ignore)
            continue;
        softmax_reference(row, to, e->classes);
        for (i = 0; i < e->classes; i++)
            max = row[i] > max ? row[i] : max;
        for (i = 0; i < e->classes; i++)
            exps += exp(row[i] - max);
        sum += max + log(exps) - row[indices[r]];
        to[indices[r]] -= 1;
        for (i = 0; i < e->classes; i++)
            to[i] *= scale * e->upstream;
    }
    CHECK_CLOSE(ignis_item(loss), sum * scale, wide == IGNIS_F64 ? 1e-12 : 4e-6);
    CHECK(tensor_info(loss).requires_grad == !e->alone);
    if (e->alone) {
        free(xs), free(expected), free(indices);
        let_go(logits), let_go(targets), let_go(loss);
        return;
    }
    grad = tensor_of(&e->upstream, IGNIS_SHAPE(1), wide, false);
    CHECK_OK(ignis_backward(loss, e->upstream == 1 ? IGNIS_NO_ARRAY : ignis_tensor_data(grad)));
    got = array_values(ignis_tensor_grad(logits));
    CHECK_ALL("gradient of cross_entropy", e->dtype, e->columns, got, expected, e->rows * e->columns,
              2 * rounding_of(e->dtype), e->dtype == IGNIS_F16 ? 1e-4 : scale * e->upstream * 0.01);
    free(got), free(xs), free(expected), free(indices);
    let_go(logits), let_go(targets), let_go(loss), let_go(grad);
}

TEST(cross_entropy_and_its_gradient)
{
    static const int64_t columns[] = {1, 2, 5, 8, 64, 100, 257, 1024, 1025, 3000, 9004, 72, 4096};
    entropy_case e;
    int i;
    SETUP(NULL);
    memset(&e, 0, sizeof e);
    EACH_FLOAT(e.dtype)
    for (i = 0; i < COUNT_OF(columns); i++) {
        e.rows = columns[i] > 2000 ? 3 : i % 3 == 0 ? 11 : i % 3 == 1 ? 67 : 130; /* one block has up to 128 */
        e.columns = columns[i];
        e.classes = i % 3 == 1 && columns[i] > 3 ? columns[i] - 3 : columns[i];
        e.target_dtype = i % 2 ? IGNIS_I32 : IGNIS_I64;
        e.reduction = i % 4 == 2 ? IGNIS_REDUCTION_SUM : IGNIS_REDUCTION_MEAN;
        e.ignore = i % 2 ? -100 : i % 4 == 0 ? -7 : 0;
        e.upstream = i % 3 == 0 ? 1 : 0.75;
        e.skip = i % 5 == 4;
        check_cross_entropy(&e);
    }
}

/*  The gradient that a backward begins with need not be there, but what the rules behind it get is. */
TEST(cross_entropy_behind_and_before_others)
{
    static const double targets[3] = {1, 0, 2}, one = 1;
    double *values[3];
    int i, k;
    SETUP(NULL);
    for (i = 0; i < 3; i++) { /* from the loss; from the loss with a 1; from a sum of it */
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(3, 4), IGNIS_F32, 7, true),
                     indices = tensor_of(targets, IGNIS_SHAPE(3), IGNIS_I32, false);
        ignis_tensor gradient = tensor_of(&one, IGNIS_SHAPE(1), IGNIS_F32, false);
        ignis_tensor loss = ignis_cross_entropy(ignis_gelu(ignis_scale(x, 3)), indices, NULL);
        if (i == 2)
            loss = ignis_sum(loss);
        CHECK_OK(ignis_backward(loss, i == 1 ? ignis_tensor_data(gradient) : IGNIS_NO_ARRAY));
        values[i] = array_values(ignis_tensor_grad(x));
        CHECK_OK(ignis_scope_end(scope));
        for (k = 0; k < 12; k++)
            CHECK_NUMBER(values[i][k], values[0][k]);
    }
    for (i = 0; i < 3; i++)
        free(values[i]);
    CHECK_INT(memory().live_blocks, 0);
}

/* linear_cross_entropy --------------------------------------------------------------------------------------------- */

typedef struct linear_entropy_case {
    ignis_dtype dtype;
    int64_t rows, n, columns, classes, chunk;
    ignis_reduction reduction;
    double upstream;           /* the gradient of the loss */
    bool of_hidden, of_weight; /* gradients */
} linear_entropy_case;

static void check_linear_cross_entropy(const linear_entropy_case *e)
{
    ignis_cross_entropy_desc desc;
    ignis_dtype wide = e->dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor hidden = noise_at(IGNIS_SHAPE(e->rows, e->n), e->dtype, 1, 0, 1, 0, e->of_hidden), targets, loss, grad;
    ignis_tensor weight = noise_at(IGNIS_SHAPE(e->columns, e->n), e->dtype, 2, 0, 1, 0, e->of_weight);
    int64_t *indices = (int64_t *)malloc(sizeof *indices * (size_t)(e->rows + 1)), r, v, i, used = 0;
    double *hs = tensor_values(hidden), *ws = tensor_values(weight), *dh = numbers(e->rows * e->n),
           *dw = numbers(e->columns * e->n), *got;
    double *row = numbers(e->columns), *share = numbers(e->columns), sum = 0, scale,
           tolerance = e->dtype == IGNIS_F16 ? 3e-3 : 2 * rounding_of(e->dtype);
    for (r = 0; r < e->rows; r++) {
        indices[r] = r % 5 == 1 ? -100 : (int64_t)((noise(20, r) + 1) / 2 * (double)e->classes);
        used += indices[r] != -100;
    }
    targets = indices_of(indices, IGNIS_SHAPE(e->rows), IGNIS_I32);
    memset(&desc, 0, sizeof desc);
    desc.reduction = e->reduction;
    desc.classes = e->classes == e->columns ? 0 : e->classes;
    desc.chunk = e->chunk;
    loss = ignis_linear_cross_entropy(hidden, weight, targets, &desc);
    CHECK_SHAPE_IS(loss, IGNIS_SHAPE(1));
    CHECK_INT(tensor_info(loss).dtype, wide);
    scale = e->reduction == IGNIS_REDUCTION_MEAN ? 1 / (double)used : 1;
    for (r = 0; r < e->rows; r++) {
        double max = -INFINITY, exps = 0;
        if (indices[r] == -100)
            continue;
        for (v = 0; v < e->classes; v++) {
            for (row[v] = 0, i = 0; i < e->n; i++)
                row[v] += hs[r * e->n + i] * ws[v * e->n + i];
            max = row[v] > max ? row[v] : max;
        }
        softmax_reference(row, share, e->classes);
        for (v = 0; v < e->classes; v++)
            exps += exp(row[v] - max);
        sum += max + log(exps) - row[indices[r]];
        share[indices[r]] -= 1;
        for (v = 0; v < e->classes; v++)
            for (i = 0; i < e->n; i++) {
                dh[r * e->n + i] += scale * e->upstream * share[v] * ws[v * e->n + i];
                dw[v * e->n + i] += scale * e->upstream * share[v] * hs[r * e->n + i];
            }
    }
    CHECK_CLOSE(ignis_item(loss), sum * scale, e->dtype == IGNIS_F64 ? 1e-12 : e->dtype == IGNIS_F32 ? 4e-6 : 4e-3);
    CHECK(tensor_info(loss).requires_grad == (e->of_hidden || e->of_weight));
    if (e->of_hidden || e->of_weight) {
        grad = tensor_of(&e->upstream, IGNIS_SHAPE(1), wide, false);
        CHECK_OK(ignis_backward(loss, e->upstream == 1 ? IGNIS_NO_ARRAY : ignis_tensor_data(grad)));
    }
    if (e->of_hidden) {
        got = array_values(ignis_tensor_grad(hidden));
        CHECK_ALL("dhidden of linear_cross_entropy", e->dtype, e->columns, got, dh, e->rows * e->n, tolerance,
                  largest(dh, e->rows * e->n) + 1e-30);
        free(got);
    }
    if (e->of_weight) {
        got = array_values(ignis_tensor_grad(weight));
        CHECK_ALL("dweight of linear_cross_entropy", e->dtype, e->columns, got, dw, e->columns * e->n, tolerance,
                  largest(dw, e->columns * e->n) + 1e-30);
        free(got);
    }
    CHECK(ignis_tensor_grad(hidden).id != 0 || !e->of_hidden);
    CHECK_OK(ignis_scope_end(scope));
    free(indices), free(hs), free(ws), free(dh), free(dw), free(row), free(share);
}

/* values at the edges: large numbers in the place of -infinity, and what all of a row have in common --------------- */

/*  The largest of a type, as masks are often made of its negative. */
static double largest_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64   ? 1.7976931348623157e308
           : dtype == IGNIS_F32 ? 3.4028234663852886e38
           : dtype == IGNIS_F16 ? 65504
                                : 3.3895313892515355e38;
}

static double within(double x, double most) { return x > most ? most : x < -most ? -most : x; }

/*  Ordinary numbers and masks of every size: most are masks, all of them, the first half, or one. */
static double masked_at(int64_t r, int64_t i, int64_t n, double most)
{
    static const double masks[] = {-1e4, -65504, -1e9, -1e10, -1e20, -INFINITY, 1e9, 1e20, INFINITY};
    int64_t kind = r / COUNT_OF(masks) % 4;
    bool masked = kind == 0 ? i % 3 != 1 : kind == 1 ? true : kind == 2 ? i < n / 2 : i == n - 1;
    return within(masked ? masks[r % COUNT_OF(masks)] : 4 * noise((uint64_t)r, i), most);
}

/*  Equal numbers, ordinary ones, and equal ones but one; all with the same added. */
static double offset_at(int64_t r, int64_t i, int64_t n, double most)
{
    static const double offsets[] = {0, 1, 100, 1e4, -1e4, 1e6, 1e8, -1e8};
    double offset = offsets[r % COUNT_OF(offsets)], step = fabs(offset) > 320 ? fabs(offset) / 32 : 10;
    int64_t kind = r / COUNT_OF(offsets) % 3;
    return within(offset + (kind == 1 ? 4 * noise((uint64_t)r, i) : kind == 2 && i == r % n ? step : 0), most);
}

typedef enum edge_kind {
    EDGE_SOFTMAX,
    EDGE_LOSS,
    EDGE_GRADIENT,
    EDGE_LINEAR,
    EDGE_EACH,
    EDGE_SMOOTH,
    EDGE_LOGS,
    EDGE_NLL,
    EDGE_KINDS
} edge_kind;

typedef struct edge_case {
    edge_kind kind;
    ignis_dtype dtype;
    int64_t rows, n;
    double (*at)(int64_t r, int64_t i, int64_t n, double most);
} edge_case;

/*  The logits of a linear_cross_entropy are one product each, with 1. */
static ignis_tensor edge_linear(const double *x, const edge_case *e, ignis_tensor targets, ignis_tensor *weight)
{
    double *one = numbers(e->rows * e->rows), *transposed = numbers(e->n * e->rows);
    ignis_tensor hidden;
    int64_t r, i;
    for (r = 0; r < e->rows; r++) {
        one[r * e->rows + r] = 1;
        for (i = 0; i < e->n; i++)
            transposed[i * e->rows + r] = x[r * e->n + i];
    }
    hidden = tensor_of(one, IGNIS_SHAPE(e->rows, e->rows), e->dtype, false);
    *weight = tensor_of(transposed, IGNIS_SHAPE(e->n, e->rows), e->dtype, true);
    free(one), free(transposed);
    return ignis_linear_cross_entropy(hidden, *weight, targets, NULL);
}

static ignis_tensor edge_loss(const double *x, const edge_case *e, ignis_tensor logits, ignis_tensor targets,
                              ignis_tensor *into)
{
    ignis_cross_entropy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.label_smoothing = e->kind == EDGE_SMOOTH ? 0.1 : 0;
    desc.reduction = e->kind == EDGE_EACH ? IGNIS_REDUCTION_NONE : IGNIS_REDUCTION_MEAN;
    if (e->kind == EDGE_NLL)
        return ignis_nll_loss(ignis_log_softmax(logits), targets, NULL);
    return e->kind == EDGE_LINEAR ? edge_linear(x, e, targets, into) : ignis_cross_entropy(logits, targets, &desc);
}

static void check_edge(const edge_case *e)
{
    static const char *const names[] = {
        "softmax at the edges", "loss at the edges",   "gradient at the edges",    "linear_cross_entropy at the edges",
        "losses at the edges",  "smooth at the edges", "log_softmax at the edges", "nll at the edges"};
    int64_t count = e->rows * e->n, *indices = (int64_t *)calloc((size_t)e->rows, sizeof *indices), r, i;
    double *x = numbers(count), *share = numbers(count), *losses = numbers(e->rows), *maxima = numbers(e->rows),
           *rests = numbers(e->rows), *xs, *got, *turned, sum = 0, scale = 1 / (double)e->rows,
           smooth = e->kind == EDGE_SMOOTH ? 0.1 : 0;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor logits, targets, result = ignis_value(0), into;
    for (r = 0; r < e->rows; r++)
        for (i = 0; i < e->n; i++)
            x[r * e->n + i] = e->at(r, i, e->n, largest_of(e->dtype));
    into = logits = tensor_of(x, IGNIS_SHAPE(e->rows, e->n), e->dtype, e->kind != EDGE_LOSS);
    xs = tensor_values(logits);
    for (r = 0; r < e->rows; r++) {
        const double *row = xs + r * e->n;
        double max = row[0], exps = 0;
        softmax_reference(row, share + r * e->n, e->n);
        for (i = 1; i < e->n; i++) /* a mask that is the target would hide the losses of all other rows */
            if (row[i] > max)
                max = row[i], indices[r] = i;
        if (e->at == offset_at && r % 2)
            indices[r] = r * 7 % e->n;
        for (i = 0; i < e->n; i++)
            exps += exp(row[i] - max);
        maxima[r] = max, rests[r] = log(exps);
        losses[r] = (1 - smooth) * (max - row[indices[r]]) + rests[r];
        for (i = 0; i < e->n && smooth != 0; i++)
            losses[r] += smooth / (double)e->n * (max - row[i]);
        sum += losses[r];
    }
    targets = indices_of(indices, IGNIS_SHAPE(e->rows), IGNIS_I64);
    if (e->kind == EDGE_SOFTMAX) {
        got = tensor_values(ignis_softmax(logits));
        CHECK_ALL(names[e->kind], e->dtype, e->n, got, share, count, 2 * rounding_of(e->dtype),
                  e->dtype == IGNIS_F16 ? 1e-4 : 1e-9);
        free(got);
    } else if (e->kind == EDGE_LOGS) {
        turned = numbers(count);
        for (i = 0; i < count; i++)
            turned[i] = xs[i] - maxima[i / e->n] - rests[i / e->n];
        got = tensor_values(ignis_log_softmax(logits));
        CHECK_ALL(names[e->kind], e->dtype, e->n, got, turned, count, rounding_of(e->dtype), 1);
        free(got), free(turned);
    } else {
        result = edge_loss(x, e, logits, targets, &into);
    }
    if (e->kind == EDGE_EACH) {
        got = tensor_values(result);
        CHECK_ALL(names[e->kind], e->dtype, e->n, got, losses, e->rows, e->dtype == IGNIS_F64 ? 1e-12 : 4e-6, 1);
        free(got);
        result = ignis_mean(result);
    }
    if (e->kind == EDGE_SOFTMAX || e->kind == EDGE_LOGS) {
        CHECK_OK(ignis_scope_end(scope));
        free(indices), free(x), free(share), free(losses), free(maxima), free(rests), free(xs);
        return;
    }
    CHECK_CLOSE(ignis_item(result), sum * scale,
                e->kind == EDGE_NLL     ? rounding_of(e->dtype)
                : e->dtype == IGNIS_F64 ? 1e-12
                                        : 4e-6);
    if (e->kind > EDGE_LOSS) {
        for (r = 0; r < e->rows; r++) {
            share[r * e->n + indices[r]] -= 1 - smooth;
            for (i = 0; i < e->n; i++)
                share[r * e->n + i] = scale * (share[r * e->n + i] - smooth / (double)e->n);
        }
        CHECK_OK(ignis_backward(result, IGNIS_NO_ARRAY));
        got = array_values(ignis_tensor_grad(into));
        turned = numbers(count);
        for (i = 0; i < count; i++)
            turned[i] = e->kind == EDGE_LINEAR ? got[i % e->n * e->rows + i / e->n] : got[i];
        CHECK_ALL(names[e->kind], e->dtype, e->n, turned, share, count, 2 * rounding_of(e->dtype),
                  e->dtype == IGNIS_F16 ? 1e-4 : 0.1 * scale);
        free(got), free(turned);
    }
    free(indices), free(x), free(share), free(losses), free(maxima), free(rests), free(xs);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Of every number of columns, so that each kernel has some. */
static void check_edges(double (*at)(int64_t r, int64_t i, int64_t n, double most))
{
    static const int64_t columns[] = {3, 16, 37, 1000, 3001, 4096, 9000};
    edge_case e;
    int kind, i;
    e.at = at;
    EACH_FLOAT(e.dtype)
    for (kind = 0; kind < EDGE_KINDS; kind++)
        for (i = 0; i < COUNT_OF(columns); i++) {
            e.kind = (edge_kind)kind;
            e.n = columns[i];
            e.rows = e.n == 37 || e.n == 1000 ? 150 : 36; /* one block has up to 128 */
            if (kind < EDGE_LINEAR || kind == EDGE_LOGS ||
                (e.n <= 1000 && !(kind == EDGE_SMOOTH && at == masked_at))) /* whose losses are beyond f32 */
                check_edge(&e);
        }
}

TEST(masks_of_large_finite_numbers)
{
    SETUP(NULL);
    check_edges(masked_at);
}

TEST(a_common_offset_costs_no_digits)
{
    SETUP(NULL);
    check_edges(offset_at);
}

TEST(linear_cross_entropy_and_its_gradients)
{
    static const linear_entropy_case cases[] = {{IGNIS_F64, 11, 5, 7, 7, 0, IGNIS_REDUCTION_MEAN, 1, true, true},
                                                {IGNIS_F64, 11, 5, 7, 6, 3, IGNIS_REDUCTION_MEAN, 0.75, true, true},
                                                {IGNIS_F64, 11, 8, 16, 13, 1, IGNIS_REDUCTION_SUM, 1, true, true},
                                                {IGNIS_F64, 12, 8, 16, 16, 4, IGNIS_REDUCTION_MEAN, 1, true, false},
                                                {IGNIS_F64, 12, 8, 16, 16, 5, IGNIS_REDUCTION_MEAN, 1, false, true},
                                                {IGNIS_F64, 1, 1, 1, 1, 0, IGNIS_REDUCTION_MEAN, 1, true, true},
                                                {IGNIS_F64, 12, 8, 16, 16, 5, IGNIS_REDUCTION_MEAN, 1, false, false},
                                                {IGNIS_F64, 300, 16, 40, 37, 131, IGNIS_REDUCTION_MEAN, 1, true, true},
                                                {IGNIS_F64, 5, 16, 1100, 1100, 2, IGNIS_REDUCTION_MEAN, 1, true, true}};
    linear_entropy_case e;
    ignis_dtype dtype;
    int i;
    SETUP(NULL);
    EACH_FLOAT(dtype)
    for (i = 0; i < COUNT_OF(cases); i++) {
        e = cases[i];
        e.dtype = dtype;
        check_linear_cross_entropy(&e);
    }
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_tensor apply_linear_cross_entropy(const ignis_tensor *inputs, int count, void *user_data)
{
    static const int64_t targets[7] = {1, 0, 4, -100, 2, 2, 3};
    ignis_cross_entropy_desc desc;
    ignis_tensor indices = indices_of(targets, IGNIS_SHAPE(7), IGNIS_I64), loss;
    (void)count, (void)user_data;
    memset(&desc, 0, sizeof desc);
    desc.chunk = 3;
    loss = ignis_linear_cross_entropy(inputs[0], inputs[1], indices, &desc);
    let_go(indices);
    return loss;
}

TEST(linear_cross_entropy_gradcheck)
{
    ignis_tensor inputs[2];
    SETUP(NULL);
    inputs[0] = tensor_noise(IGNIS_SHAPE(7, 3), IGNIS_F64, 1, true);
    inputs[1] = tensor_noise(IGNIS_SHAPE(5, 3), IGNIS_F64, 2, true);
    CHECK(ignis_gradcheck(apply_linear_cross_entropy, NULL, inputs, 2, NULL) < 1e-6);
    let_go(inputs[0]), let_go(inputs[1]);
}

/*  Twice the same bits, behind an operation and before one; and a second backward, which must find what was saved as it
    was. */
TEST(linear_cross_entropy_is_deterministic_and_may_be_repeated)
{
    int64_t targets[100], i;
    double *values[2];
    ignis_cross_entropy_desc desc;
    ignis_dtype dtype;
    int run;
    SETUP(NULL);
    for (i = 0; i < 100; i++)
        targets[i] = i * i % 48;
    memset(&desc, 0, sizeof desc);
    desc.chunk = 17;
    EACH_FLOAT(dtype)
    {
        for (run = 0; run < 2; run++) {
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor x = tensor_noise(IGNIS_SHAPE(4, 25, 32), dtype, 1, true),
                         w = tensor_noise(IGNIS_SHAPE(48, 32), dtype, 2, true);
            ignis_tensor loss = ignis_scale(
                ignis_linear_cross_entropy(ignis_gelu(x), w, indices_of(targets, IGNIS_SHAPE(4, 25), IGNIS_I64), &desc),
                0.5);
            if (run == 0) {
                CHECK_OK(ignis_backward_retain(loss, IGNIS_NO_ARRAY));
                CHECK_OK(ignis_zero_grad(x));
                CHECK_OK(ignis_zero_grad(w));
            }
            CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
            values[run] = array_values(ignis_tensor_grad(w));
            CHECK(largest(values[run], 48 * 32) > 0);
            CHECK_OK(ignis_scope_end(scope));
        }
        CHECK(memcmp(values[0], values[1], sizeof *values[0] * 48 * 32) == 0);
        free(values[0]), free(values[1]);
    }
}

/*  Neither the logits nor their gradient are there as a whole. */
TEST(linear_cross_entropy_takes_the_memory_of_its_chunks)
{
    int64_t *targets = (int64_t *)calloc(4096, sizeof *targets), before;
    ignis_cross_entropy_desc desc;
    ignis_tensor hidden, weight, indices, loss;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.chunk = 64;
    hidden = tensor_noise(IGNIS_SHAPE(4096, 8), IGNIS_BF16, 1, true);
    weight = tensor_noise(IGNIS_SHAPE(1024, 8), IGNIS_BF16, 2, true);
    indices = indices_of(targets, IGNIS_SHAPE(4096), IGNIS_I64);
    before = memory().live_bytes;
    loss = ignis_linear_cross_entropy(hidden, weight, indices, &desc);
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    CHECK(memory().live_peak - before < 4096 * 1024 * 2 / 4); /* a fourth of the logits */
    let_go(hidden), let_go(weight), let_go(indices), let_go(loss);
    free(targets);
}

TEST(linear_cross_entropy_of_no_rows_and_of_wrong_inputs)
{
    static const int64_t targets[4] = {0, 1, 2, 3};
    ignis_cross_entropy_desc desc;
    ignis_tensor hidden, weight, other, indices, loss;
    double *dw;
    int i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.reduction = IGNIS_REDUCTION_SUM;
    weight = tensor_noise(IGNIS_SHAPE(6, 8), IGNIS_F32, 2, true);
    hidden = tensor_noise(IGNIS_SHAPE(0, 8), IGNIS_F32, 1, true);
    indices = indices_of(targets, IGNIS_SHAPE(0), IGNIS_I64);
    loss = ignis_linear_cross_entropy(hidden, weight, indices, &desc);
    CHECK_NUMBER(ignis_item(loss), 0);
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    dw = array_values(ignis_tensor_grad(weight));
    CHECK_NUMBER(largest(dw, 48), 0);
    free(dw);
    let_go(loss);
    loss = ignis_linear_cross_entropy(hidden, weight, indices, NULL);
    CHECK(isnan(ignis_item(loss)));
    let_go(loss), let_go(indices), let_go(hidden);
    hidden = tensor_noise(IGNIS_SHAPE(4, 8), IGNIS_F32, 1, true);
    other = tensor_noise(IGNIS_SHAPE(6, 7), IGNIS_F32, 1, true);
    indices = indices_of(targets, IGNIS_SHAPE(4), IGNIS_I64);
    for (i = 0; i < 6; i++) {
        memset(&desc, 0, sizeof desc);
        desc.chunk = i == 4 ? -1 : 0;
        desc.classes = i == 5 ? 7 : 0;
        loss = ignis_linear_cross_entropy(i == 0 ? indices : hidden,
                                          i == 1   ? other
                                          : i == 2 ? hidden
                                                   : weight,
                                          i == 3 ? hidden : indices, &desc);
        CHECK(loss.id == 0 || i == 2);
        CHECK_INT(ignis_status_last(), i == 0 || i == 3 ? IGNIS_ERROR_DTYPE
                                       : i == 1         ? IGNIS_ERROR_SHAPE
                                       : i == 2         ? IGNIS_OK
                                                        : IGNIS_ERROR_ARGUMENT);
        ignis_status_clear();
        if (loss.id)
            let_go(loss);
    }
    let_go(other);
    other = tensor_noise(IGNIS_SHAPE(0, 8), IGNIS_F32, 1, true);
    CHECK_FAILS(ignis_linear_cross_entropy(hidden, other, indices, NULL), IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("weight [0, 8]; [..., n] and [classes, n] are needed, neither of them 0");
    let_go(hidden), let_go(weight), let_go(other), let_go(indices);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(cross_entropy_of_a_vocabulary)
{
    entropy_case e;
    SETUP(NULL);
    memset(&e, 0, sizeof e);
    EACH_FLOAT(e.dtype)
    {
        e.rows = 2;
        e.columns = 50304;
        e.classes = 50257;
        e.target_dtype = IGNIS_I32;
        e.ignore = -100;
        e.upstream = 1;
        check_cross_entropy(&e);
    }
}

/*  More rows than a GPU has in flight: a team loads its next one early. */
TEST(cross_entropy_of_rows_that_take_turns)
{
    static const int64_t sizes[][2] = {{20000, 8}, {4000, 1032}};
    entropy_case e;
    int i;
    SETUP(NULL);
    memset(&e, 0, sizeof e);
    e.dtype = IGNIS_BF16;
    e.target_dtype = IGNIS_I32;
    e.ignore = -100;
    e.upstream = 1;
    for (i = 0; i < COUNT_OF(sizes); i++) {
        e.rows = sizes[i][0];
        e.columns = e.classes = sizes[i][1];
        check_cross_entropy(&e);
    }
}

/*  A target that is no class is seen, and nothing is read out of bounds for it. */
TEST(cross_entropy_of_wrong_targets)
{
    static const int64_t wrong[] = {10, -1, INT64_MIN, INT64_MAX, 12};
    ignis_cross_entropy_desc desc;
    ignis_dtype dtype;
    int i, k;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.classes = 10;
    EACH_FLOAT(dtype)
    for (i = 0; i < COUNT_OF(wrong); i++) {
        int64_t indices[3] = {2, 0, 3};
        ignis_tensor logits = tensor_noise(IGNIS_SHAPE(3, 12), dtype, 1, true), targets, loss;
        double *dx;
        indices[1] = wrong[i];
        targets = indices_of(indices, IGNIS_SHAPE(3), IGNIS_I64);
        loss = ignis_cross_entropy(logits, targets, &desc);
        CHECK(isnan(ignis_item(loss)));
        CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
        dx = array_values(ignis_tensor_grad(logits));
        for (k = 0; k < 36; k++)
            CHECK(k % 12 >= 10 ? dx[k] == 0 : k / 12 == 1 ? isnan(dx[k]) : !isnan(dx[k]));
        free(dx);
        let_go(logits), let_go(targets), let_go(loss);
    }
}

TEST(cross_entropy_of_ignored_rows)
{
    static const int64_t ignored[4] = {-100, -100, -100, -100};
    ignis_cross_entropy_desc desc;
    ignis_dtype dtype;
    int i, sum;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    EACH_FLOAT(dtype)
    for (sum = 0; sum < 2; sum++) {
        ignis_tensor logits = tensor_noise(IGNIS_SHAPE(2, 2, 9), dtype, 1, true),
                     targets = indices_of(ignored, IGNIS_SHAPE(2, 2), IGNIS_I32), loss;
        double *dx;
        desc.reduction = sum ? IGNIS_REDUCTION_SUM : IGNIS_REDUCTION_MEAN;
        loss = ignis_cross_entropy(logits, targets, &desc);
        CHECK(sum ? ignis_item(loss) == 0 : isnan(ignis_item(loss)));
        CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
        dx = array_values(ignis_tensor_grad(logits));
        for (i = 0; i < 36; i++)
            CHECK_NUMBER(dx[i], 0.0);
        free(dx);
        let_go(logits), let_go(targets), let_go(loss);
    }
}

/*  Without a gradient none is made: by kernels of their own, where a row is whole packs. */
TEST(cross_entropy_alone)
{
    static const int64_t sizes[][2] = {{3, 3},     {130, 8},   {131, 72}, {129, 1000}, {200, 1024},
                                       {35, 2056}, {67, 4096}, {3, 9000}, {1, 50304},  {9000, 8}};
    entropy_case e;
    int i;
    SETUP(NULL);
    memset(&e, 0, sizeof e);
    e.alone = true;
    EACH_FLOAT(e.dtype)
    for (i = 0; i < COUNT_OF(sizes); i++) {
        e.rows = sizes[i][0];
        e.columns = sizes[i][1];
        e.classes = e.columns - (i % 3 == 1                    ? 0
                                 : i % 3 == 2 && e.columns > 8 ? 8
                                                               : 1); /* the last ones are packs of f32 to f64 only */
        e.target_dtype = i % 2 ? IGNIS_I64 : IGNIS_I32;
        e.ignore = i % 2 ? 0 : -100;
        e.reduction = i % 4 == 3 ? IGNIS_REDUCTION_SUM : IGNIS_REDUCTION_MEAN;
        check_cross_entropy(&e);
        e.classes = e.columns;
        check_cross_entropy(&e);
    }
    e.dtype = IGNIS_BF16;
    e.rows = 280000; /* more than 32 for each warp that a GPU holds at a time */
    e.columns = e.classes = 8;
    check_cross_entropy(&e);
    e.rows = 4000; /* and several for each block, of which some are ignored */
    e.columns = e.classes = 1032;
    check_cross_entropy(&e);
}

TEST(cross_entropy_alone_of_wrong_and_ignored_targets)
{
    static const int64_t columns[] = {16, 2048};
    int64_t indices[130];
    ignis_cross_entropy_desc desc;
    ignis_dtype dtype;
    int i, r, wrong;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.reduction = IGNIS_REDUCTION_SUM;
    EACH_FLOAT(dtype)
    for (i = 0; i < COUNT_OF(columns); i++)
        for (wrong = 0; wrong < 2; wrong++) {
            ignis_tensor logits = tensor_noise(IGNIS_SHAPE(130, columns[i]), dtype, 1, false), targets, mean, sum;
            for (r = 0; r < 130; r++)
                indices[r] = r == 77 && wrong ? columns[i] : -100;
            targets = indices_of(indices, IGNIS_SHAPE(130), IGNIS_I32);
            mean = ignis_cross_entropy(logits, targets, NULL);
            sum = ignis_cross_entropy(logits, targets, &desc);
            CHECK(isnan(ignis_item(mean)));
            CHECK(wrong ? isnan(ignis_item(sum)) : ignis_item(sum) == 0);
            let_go(logits), let_go(targets), let_go(mean), let_go(sum);
        }
}

/* finite differences ----------------------------------------------------------------------------------------------- */

static ignis_tensor softmax_of(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count, (void)user_data;
    return ignis_softmax(inputs[0]);
}

static ignis_tensor log_softmax_of(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count, (void)user_data;
    return ignis_log_softmax(inputs[0]);
}
static ignis_tensor layer_norm_of(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count, (void)user_data;
    return ignis_layer_norm(inputs[0], inputs[1], inputs[2], 1e-5);
}
static ignis_tensor rms_norm_of(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count, (void)user_data;
    return ignis_rms_norm(inputs[0], inputs[1], 1e-5);
}
static ignis_tensor rope_of(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_rope_desc desc;
    (void)count, (void)user_data;
    memset(&desc, 0, sizeof desc);
    desc.num_heads = 2;
    desc.pos_offset = 3;
    return ignis_rope(inputs[0], &desc);
}
static ignis_tensor embedding_of(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count;
    return ignis_embedding(inputs[0], *(ignis_tensor *)user_data);
}
static ignis_tensor cross_entropy_of(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_cross_entropy_desc desc;
    (void)count;
    memset(&desc, 0, sizeof desc);
    desc.ignore_index = 3;
    return ignis_cross_entropy(inputs[0], *(ignis_tensor *)user_data, &desc);
}

static void check_gradients(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs, int count)
{
    double error = ignis_gradcheck(fn, user_data, inputs, count, NULL);
    int i;
    CHECK(error < 1e-6);
    CHECK_OK(ignis_status_last());
    ignis_status_clear();
    for (i = 0; i < count; i++)
        let_go(inputs[i]);
}

TEST(gradients_by_finite_differences)
{
    static const int64_t lasts[] = {1, 4, 7, 30, 66};
    static const int64_t indices[6] = {1, 0, 3, 1, 1, 2};
    ignis_tensor inputs[3], ids;
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(lasts); i++) {
        ignis_shape shape = IGNIS_SHAPE(2, 2, lasts[i]), last = IGNIS_SHAPE(lasts[i]);
        inputs[0] = tensor_noise(shape, IGNIS_F64, 1, true);
        check_gradients(softmax_of, NULL, inputs, 1);
        inputs[0] = tensor_noise(shape, IGNIS_F64, 1, true);
        check_gradients(log_softmax_of, NULL, inputs, 1);
        inputs[0] = tensor_noise(shape, IGNIS_F64, 1, lasts[i] > 1);
        inputs[1] = tensor_noise(last, IGNIS_F64, 2, true);
        inputs[2] = tensor_noise(last, IGNIS_F64, 3, true);
        check_gradients(layer_norm_of, NULL, inputs, 3);
        inputs[0] = tensor_noise(shape, IGNIS_F64, 1, lasts[i] > 1);
        inputs[1] = tensor_noise(last, IGNIS_F64, 2, true);
        check_gradients(rms_norm_of, NULL, inputs, 2);
    }
    inputs[0] = tensor_noise(IGNIS_SHAPE(2, 3, 12), IGNIS_F64, 1, true);
    check_gradients(rope_of, NULL, inputs, 1);
    ids = indices_of(indices, IGNIS_SHAPE(2, 3), IGNIS_I64);
    inputs[0] = tensor_noise(IGNIS_SHAPE(5, 3), IGNIS_F64, 1, true);
    check_gradients(embedding_of, &ids, inputs, 1);
    inputs[0] = tensor_noise(IGNIS_SHAPE(2, 3, 5), IGNIS_F64, 1, true);
    check_gradients(cross_entropy_of, &ids, inputs, 1);
    let_go(ids);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
