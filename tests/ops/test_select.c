// SPDX-License-Identifier: MIT
/*  test_select.c - nonzero, masked_select, unique, searchsorted, bincount, histogram, scatter and index_put beside
    loops */
#include "sweep.h"

#include <math.h>

static const ignis_dtype all_dtypes[9] = {IGNIS_F64, IGNIS_F32, IGNIS_F16,     IGNIS_BF16,   IGNIS_I32,
                                          IGNIS_I64, IGNIS_U8,  IGNIS_F8_E4M3, IGNIS_F8_E5M2};

/*  Integers from 0 to below `limit` that look random. */
static int64_t number_at(uint64_t seed, int64_t i, int64_t limit)
{
    return (int64_t)((noise(seed, i) + 1) / 2 * (double)limit);
}

static ignis_tensor integers(const int64_t *values, ignis_shape shape, ignis_dtype dtype)
{
    ignis_tensor_desc desc = tensor_desc(dtype, false);
    desc.host_dtype = IGNIS_I64;
    return ignis_tensor_from_host(values, shape, &desc);
}

static double *doubles(int64_t count) { return (double *)calloc((size_t)count + 1, sizeof(double)); }

/* --- nonzero, masked_select --------------------------------------------------------------------------------------- */

static void check_nonzero(ignis_shape shape, ignis_dtype dtype, double share)
{
    int64_t numel = shape_numel(shape), i, count = 0, wrong = 0, rest;
    double *values = doubles(numel), *got, *got_elements;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x, y, picked, places;
    int d;
    for (i = 0; i < numel; i++)
        values[i] = (noise(4, i) + 1) / 2 < share ? (double)(1 + i % 90) : 0;
    if (numel > 3 && dtype < IGNIS_I32 && share > 0)
        values[2] = NAN;
    x = tensor_of(values, shape, dtype, false);
    y = tensor_counting(shape, IGNIS_I64, 1, false);
    places = ignis_nonzero(x);
    picked = ignis_masked_select(y, x);
    CHECK_OK(ignis_status_last());
    got = tensor_values(places);
    got_elements = tensor_values(picked);
    CHECK_INT(tensor_info(places).dtype, IGNIS_I64);
    for (i = 0; i < numel; i++) {
        if (values[i] == 0)
            continue;
        if (count < numel_of(picked))
            for (d = shape.ndim - 1, rest = i; d >= 0; rest /= shape.dim[d--])
                wrong += got[count * shape.ndim + d] != (double)(rest % shape.dim[d]);
        wrong += count >= numel_of(picked) || got_elements[count] != (double)(i + 1);
        count++;
    }
    CHECK_SHAPE_IS(places, IGNIS_SHAPE(count, shape.ndim));
    CHECK_SHAPE_IS(picked, IGNIS_SHAPE(count));
    CHECK_INT(wrong, 0);
    free(values);
    free(got);
    free(got_elements);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(nonzero_and_masked_select)
{
    static const ignis_shape shapes[] = {{1, {1}},     {1, {0}},         {2, {3, 0}},
                                         {1, {37}},    {2, {5, 7}},      {8, {1, 2, 3, 1, 2, 5, 1, 3}},
                                         {1, {12293}}, {3, {16, 16, 16}}};
    int s, d;
    SETUP(NULL);
    for (s = 0; s < COUNT_OF(shapes); s++)
        for (d = 0; d < COUNT_OF(all_dtypes); d++) {
            check_nonzero(shapes[s], all_dtypes[d], 0.3);
            check_nonzero(shapes[s], all_dtypes[d], s % 2 ? 1 : 0);
        }
}

static ignis_tensor masks[2];

static ignis_tensor call_masked_select(const ignis_tensor *x, int count, void *mask)
{
    return (void)count, ignis_masked_select(x[0], *(const ignis_tensor *)mask);
}

TEST(gradients_of_masked_select)
{
    static const int64_t some[] = {0, 1, 1, 0, 0, 7}, all[] = {1, 1, 1, 1, 1, 1};
    int i, d;
    SETUP(NULL);
    masks[0] = integers(some, IGNIS_SHAPE(2, 3), IGNIS_U8), masks[1] = integers(all, IGNIS_SHAPE(2, 3), IGNIS_I32);
    for (i = 0; i < 2; i++) {
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(2, 3), IGNIS_F64, 3, true);
        CHECK(ignis_gradcheck(call_masked_select, &masks[i], &x, 1, NULL) < 1e-6);
        let_go(x);
    }
    for (d = 0; d < 4; d++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(2, 3), float_dtypes[d], 3, true);
        CHECK_OK(ignis_backward(ignis_masked_select(x, masks[0]),
                                ignis_tensor_data(tensor_counting(IGNIS_SHAPE(3), float_dtypes[d], 1, false))));
        for (i = 0; i < 6; i++)
            CHECK_NUMBER(grad_at(x, i), i == 1 ? 1 : i == 2 ? 2 : i == 5 ? 3 : 0);
        CHECK_OK(ignis_scope_end(scope));
    }
    let_go(masks[0]);
    let_go(masks[1]);
}

/* --- unique, searchsorted ----------------------------------------------------------------------------------------- */

static void check_unique(ignis_shape shape, ignis_dtype dtype, int64_t limit)
{
    int64_t numel = shape_numel(shape), i, k, count = 0, wrong = 0, *often = (int64_t *)calloc((size_t)limit, 8);
    double *values = doubles(numel), *got, *inverse_got, *counts_got;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x, y, inverse, counts;
    for (i = 0; i < numel; i++)
        often[number_at(9, i, limit)]++, values[i] = (double)number_at(9, i, limit);
    x = tensor_of(values, shape, dtype, false);
    y = ignis_unique(x, &inverse, &counts);
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(inverse, shape);
    got = tensor_values(y), inverse_got = tensor_values(inverse), counts_got = tensor_values(counts);
    for (k = 0; k < limit; k++) {
        if (!often[k])
            continue;
        wrong += count >= numel_of(y) || got[count] != (double)k || counts_got[count] != (double)often[k];
        count++;
    }
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(count));
    CHECK_SHAPE_IS(counts, IGNIS_SHAPE(count));
    for (i = 0; i < numel; i++)
        wrong += got[(int)inverse_got[i]] != values[i];
    CHECK_INT(wrong, 0);
    CHECK_INT(numel_of(ignis_unique(x, NULL, NULL)), count);
    free(often), free(values), free(got), free(inverse_got), free(counts_got);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(unique)
{
    static const double odd[] = {0, NAN, -0.0, HUGE_VAL, 3, NAN, -HUGE_VAL, 3};
    static const double expected[] = {-HUGE_VAL, 0, 3, HUGE_VAL}, often[] = {1, 2, 2, 1, 2};
    ignis_scope scope;
    ignis_tensor y, counts;
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 7; d++) {
        check_unique(IGNIS_SHAPE(1), all_dtypes[d], 5);
        check_unique(IGNIS_SHAPE(0, 3), all_dtypes[d], 5);
        check_unique(IGNIS_SHAPE(7, 31), all_dtypes[d], 40);
        check_unique(IGNIS_SHAPE(1, 1, 3, 1, 2, 1, 1, 2), all_dtypes[d], 3);
        if (d < 2)
            check_unique(IGNIS_SHAPE(10001), all_dtypes[d], 300);
    }
    for (d = 0; d < 4; d++) {
        scope = ignis_scope_begin();
        y = ignis_unique(tensor_of(odd, IGNIS_SHAPE(8), float_dtypes[d], false), NULL, &counts);
        CHECK_SHAPE_IS(y, IGNIS_SHAPE(5));
        for (i = 0; i < 5; i++) {
            CHECK(i < 4 ? value_at(y, i) == expected[i] : value_at(y, i) != value_at(y, i));
            CHECK_NUMBER(value_at(counts, i), often[i]);
        }
        CHECK_OK(ignis_scope_end(scope));
    }
}

static void check_search(ignis_shape rows, ignis_shape shape, ignis_dtype dtype, bool right)
{
    int64_t n = rows.dim[rows.ndim - 1], m = shape.dim[shape.ndim - 1], count = shape_numel(shape), i, k, wrong = 0;
    double *sorted = doubles(shape_numel(rows)), *values = doubles(count), *got;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor y, table, x;
    for (i = 0; i < shape_numel(rows); i++) /* rows that ascend, with ties */
        sorted[i] = (double)(i % n / 3 * 2) + (i % n == n - 1 && dtype < IGNIS_I32 ? NAN : 0);
    for (i = 0; i < count; i++)
        values[i] = i == 1 && dtype < IGNIS_I32 ? NAN : (double)number_at(2, i, n + 4);
    table = tensor_of(sorted, rows, dtype, false), x = tensor_of(values, shape, dtype, false);
    free(sorted), free(values);
    sorted = tensor_values(table), values = tensor_values(x); /* as they are rounded */
    y = ignis_searchsorted(table, x, right);
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(y, shape);
    got = tensor_values(y);
    for (i = 0; i < count; i++) {
        const double *row = sorted + (rows.ndim == 1 ? 0 : i / m * n), v = values[i];
        int64_t before = 0;
        for (k = 0; k < n; k++)
            before += right ? v != v || row[k] <= v : row[k] < v || (v != v && row[k] == row[k]);
        wrong += got[i] != (double)before;
    }
    CHECK_INT(wrong, 0);
    free(sorted), free(values), free(got);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(searchsorted)
{
    int d, right;
    SETUP(NULL);
    for (d = 0; d < COUNT_OF(all_dtypes); d++)
        for (right = 0; right < 2; right++) {
            check_search(IGNIS_SHAPE(1), IGNIS_SHAPE(5), all_dtypes[d], right);
            check_search(IGNIS_SHAPE(20), IGNIS_SHAPE(3, 0), all_dtypes[d], right);
            check_search(IGNIS_SHAPE(61), IGNIS_SHAPE(3, 7), all_dtypes[d], right);
            check_search(IGNIS_SHAPE(3, 2, 9), IGNIS_SHAPE(3, 2, 11), all_dtypes[d], right);
        }
    check_search(IGNIS_SHAPE(0), IGNIS_SHAPE(4), IGNIS_I32, false);
}

/* --- counts ------------------------------------------------------------------------------------------------------- */

static void check_bincount(int64_t count, int64_t limit, int64_t bins, ignis_dtype dtype)
{
    int64_t *ids = (int64_t *)calloc((size_t)count + 1, 8), i, wrong = 0, most = -1, size;
    double *expected, *sums, *got, *got_sums, *got_grad;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x, w, y, weighted;
    for (i = 0; i < count; i++) {
        ids[i] = number_at(5, i, limit) - 2;
        most = ids[i] > most ? ids[i] : most;
    }
    size = bins ? bins : most + 1;
    expected = doubles(size), sums = doubles(size);
    x = integers(ids, IGNIS_SHAPE(count), dtype);
    w = tensor_counting(IGNIS_SHAPE(count), IGNIS_F64, 0.25, true);
    for (i = 0; i < count; i++)
        if (ids[i] >= 0 && ids[i] < size)
            expected[ids[i]]++, sums[ids[i]] += 0.25 * (double)(i + 1);
    y = ignis_bincount(x, no_tensor(), bins);
    weighted = ignis_bincount(x, w, bins);
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(size));
    CHECK_SHAPE_IS(weighted, IGNIS_SHAPE(size));
    got = tensor_values(y), got_sums = tensor_values(weighted);
    CHECK_OK(ignis_backward(weighted, ignis_tensor_data(tensor_counting(IGNIS_SHAPE(size), IGNIS_F64, 1, false))));
    got_grad = array_values(ignis_tensor_grad(w));
    for (i = 0; i < size; i++)
        wrong += got[i] != expected[i] || !is_close(got_sums[i], sums[i], 1e-12);
    for (i = 0; i < count; i++)
        wrong += got_grad[i] != (ids[i] >= 0 && ids[i] < size ? (double)(ids[i] + 1) : 0);
    CHECK_INT(wrong, 0);
    free(ids), free(expected), free(sums), free(got), free(got_sums), free(got_grad);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(bincount)
{
    ignis_scope scope;
    static const int64_t below[] = {-5, -1};
    SETUP(NULL);
    check_bincount(1, 4, 3, IGNIS_I64);
    check_bincount(0, 4, 3, IGNIS_I64);
    check_bincount(301, 20, 0, IGNIS_I32);
    check_bincount(301, 20, 7, IGNIS_I64);
    check_bincount(20000, 12000, 10000, IGNIS_I64); /* more bins than shared memory holds */
    check_bincount(5000, 100, 0, IGNIS_I64);
    scope = ignis_scope_begin();
    CHECK_SHAPE_IS(ignis_bincount(integers(below, IGNIS_SHAPE(2), IGNIS_I64), no_tensor(), 0), IGNIS_SHAPE(0));
    CHECK_SHAPE_IS(ignis_bincount(integers(below, IGNIS_SHAPE(0), IGNIS_I64), no_tensor(), 0), IGNIS_SHAPE(0));
    CHECK_OK(ignis_scope_end(scope));
}

static void check_histogram(int64_t count, int64_t bins, double low, double high, ignis_dtype dtype)
{
    int64_t i, k, wrong = 0;
    double *values = doubles(count), *in, *edges = doubles(bins + 1), *edges_in, *got, *got_edges;
    double *expected = doubles(bins), *by_edges = doubles(bins);
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x, e;
    for (i = 0; i < count; i++)
        values[i] = i == 5 && dtype < IGNIS_I32 ? NAN
                    : i % 7 == 3                ? low + (double)(i % bins) * ((high - low) / (double)bins)
                    : i % 11 == 1               ? high
                                                : low + (high - low) * 0.6 * (noise(1, i) + 0.9);
    for (k = 0; k <= bins; k++)
        edges[k] = low + (double)k * ((high - low) / (double)bins);
    x = tensor_of(values, IGNIS_SHAPE(count), dtype, false);
    e = tensor_of(edges, IGNIS_SHAPE(bins + 1), dtype, false);
    in = tensor_values(x), edges_in = tensor_values(e);
    for (i = 0; i < count; i++)
        for (k = 0; k < bins; k++) {
            bool is_last = k == bins - 1;
            expected[k] += in[i] >= edges[k] && (is_last ? in[i] <= high : in[i] < edges[k + 1]);
            by_edges[k] += in[i] >= edges_in[k] && (is_last ? in[i] <= edges_in[bins] : in[i] < edges_in[k + 1]);
        }
    got = tensor_values(ignis_histogram(x, bins, low, high));
    got_edges = tensor_values(ignis_histogram_edges(x, e));
    CHECK_OK(ignis_status_last());
    for (k = 0; k < bins; k++)
        wrong += (got[k] != expected[k]) + (got_edges[k] != by_edges[k]);
    CHECK_INT(wrong, 0);
    free(values), free(in), free(edges), free(edges_in), free(got), free(got_edges), free(expected), free(by_edges);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(histogram)
{
    int d;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        check_histogram(1, 1, 0, 1, float_dtypes[d]);
        check_histogram(0, 3, 0, 1, float_dtypes[d]);
        check_histogram(1001, 10, -1, 1, float_dtypes[d]);
        check_histogram(1001, 7, 0.1, 0.9, float_dtypes[d]);
    }
    check_histogram(9001, 300, -3, 5, IGNIS_F32);
    check_histogram(500, 10, 0, 100, IGNIS_I64);
    check_histogram(500, 9, 0, 90, IGNIS_U8);
    check_histogram(700, 9000, -3, 5, IGNIS_F64); /* more bins than shared memory holds */
}

/* --- scatter, index_put ------------------------------------------------------------------------------------------- */

typedef struct put {
    ignis_tensor indices[3];
    int count, dim; /* count 0: scatter along dim */
    bool adds;
} put;

static ignis_tensor call_put(const ignis_tensor *x, int count, void *user_data)
{
    const put *p = (const put *)user_data;
    (void)count;
    if (p->count == 0)
        return ignis_scatter(x[0], p->dim, p->indices[0], x[1]);
    return ignis_index_put(x[0], p->indices, p->count, x[1], p->adds);
}

/*  The tensor is [5, 4, 3]; of its places that several elements go to, the last one counts; ids 0 and 4 lead nowhere.
    */
TEST(index_put)
{
    int d, count, adds, i, k;
    SETUP(NULL);
    for (count = 1; count <= 3; count++)
        for (adds = 0; adds < 2; adds++)
            for (d = 0; d < COUNT_OF(all_dtypes); d++) {
                static const int64_t sizes[] = {5, 4, 3};
                int64_t ids[3][6], inner = count == 1 ? 12 : count == 2 ? 3 : 1, at, wrong = 0;
                double expected[60], *got;
                ignis_scope scope;
                ignis_shape values = {2, {2, 3}};
                put p;
                ignis_tensor x[2], y;
                if (adds && d >= 7) /* floats of 8 bits are not added up */
                    continue;
                scope = ignis_scope_begin();
                memset(&p, 0, sizeof p);
                p.count = count, p.adds = adds;
                for (k = 0; k < count; k++) {
                    for (i = 0; i < 6; i++)
                        ids[k][i] = i == 0 && k == 0           ? -1
                                    : i == 4 && k == count - 1 ? sizes[k]
                                                               : (i / 2 * 2 + k) % sizes[k];
                    p.indices[k] = integers(ids[k], IGNIS_SHAPE(2, 3), k == 1 ? IGNIS_I32 : IGNIS_I64);
                    if (k)
                        values.dim[values.ndim - 1] = values.dim[values.ndim - 1];
                }
                for (k = count; k < 3; k++)
                    values.dim[values.ndim++] = sizes[k];
                x[0] = tensor_counting(IGNIS_SHAPE(5, 4, 3), all_dtypes[d], 1, d < 4);
                x[1] = tensor_counting(values, all_dtypes[d], 0.5, d < 4);
                y = call_put(x, 2, &p);
                CHECK_OK(ignis_status_last());
                got = tensor_values(x[0]);
                memcpy(expected, got, sizeof expected);
                free(got);
                got = tensor_values(x[1]);
                for (i = 0; i < 6; i++) {
                    bool inside = true;
                    for (k = 0, at = 0; k < count; at = at * sizes[k] + ids[k][i], k++)
                        inside = inside && ids[k][i] >= 0 && ids[k][i] < sizes[k];
                    for (k = 0; inside && k < inner; k++)
                        expected[at * inner + k] = (adds ? expected[at * inner + k] : 0) + got[i * inner + k];
                }
                free(got);
                got = tensor_values(y);
                for (i = 0; i < 60; i++)
                    wrong += !is_close(got[i], expected[i], d == 3 ? 8e-3 : d == 2 ? 1e-3 : 0);
                CHECK_INT(wrong, 0);
                free(got);
                if (d == 0)
                    CHECK(ignis_gradcheck(call_put, &p, x, 2, NULL) < 1e-6);
                CHECK_OK(ignis_scope_end(scope));
            }
}

TEST(scatter)
{
    static const int64_t ids[] = {3, 0, 1, 3, 0, 9, 3, 3, -1, 2, 2, 0};
    int d, dim, i;
    SETUP(NULL);
    for (dim = 0; dim < 2; dim++)
        for (d = 0; d < COUNT_OF(all_dtypes); d++) {
            ignis_scope scope = ignis_scope_begin();
            ignis_shape shape = dim ? IGNIS_SHAPE(3, 4) : IGNIS_SHAPE(4, 3),
                        index = dim ? IGNIS_SHAPE(2, 6) : IGNIS_SHAPE(6, 2);
            int64_t wrong = 0, place[12], last[12];
            double *src, *got, *grad;
            put p;
            ignis_tensor x[2], y;
            memset(&p, 0, sizeof p);
            p.dim = dim;
            p.indices[0] = integers(ids, index, d % 2 ? IGNIS_I32 : IGNIS_I64);
            x[0] = tensor_counting(shape, all_dtypes[d], 0.25, d < 4);
            x[1] = tensor_counting(index, all_dtypes[d], 8, d < 4);
            y = call_put(x, 2, &p);
            CHECK_OK(ignis_status_last());
            src = tensor_values(x[1]), got = tensor_values(y);
            for (i = 0; i < 12; i++)
                last[i] = -1;
            for (i = 0; i < 12; i++) {
                place[i] = ids[i] < 0 || ids[i] > 3 ? -1 : dim ? i / 6 * 4 + ids[i] : ids[i] * 3 + i % 2;
                if (place[i] >= 0)
                    last[place[i]] = i;
            }
            for (i = 0; i < 12; i++)
                wrong += got[i] != (last[i] < 0 ? value_at(x[0], i) : src[last[i]]);
            if (d == 0)
                CHECK(ignis_gradcheck(call_put, &p, x, 2, NULL) < 1e-6);
            if (d < 4) {
                CHECK_OK(ignis_backward(y, ignis_tensor_data(tensor_counting(shape, all_dtypes[d], 1, false))));
                grad = array_values(ignis_tensor_grad(x[1]));
                for (i = 0; i < 12; i++)
                    wrong += grad[i] != (place[i] >= 0 && last[place[i]] == i ? (double)(place[i] + 1) : 0);
                free(grad);
                grad = array_values(ignis_tensor_grad(x[0]));
                for (i = 0; i < 12; i++)
                    wrong += grad[i] != (last[i] < 0 ? (double)(i + 1) : 0);
                free(grad);
            }
            CHECK_INT(wrong, 0);
            free(src), free(got);
            CHECK_OK(ignis_scope_end(scope));
        }
}

/*  Many elements for few places: the last one every time. */
TEST(scatter_is_the_same_every_time)
{
    enum { COUNT = 5000 };
    int64_t ids[COUNT];
    double last[7];
    int i, turn;
    ignis_scope scope;
    SETUP(NULL);
    for (i = 0; i < COUNT; i++)
        ids[i] = number_at(1, i, 7), last[ids[i]] = i + 1;
    scope = ignis_scope_begin();
    for (turn = 0; turn < 3; turn++) {
        ignis_tensor y =
            ignis_scatter(ignis_tensor_zeros(IGNIS_SHAPE(7), NULL), 0, integers(ids, IGNIS_SHAPE(COUNT), IGNIS_I64),
                          tensor_counting(IGNIS_SHAPE(COUNT), IGNIS_F32, 1, false));
        for (i = 0; i < 7; i++)
            CHECK_NUMBER(value_at(y, i), last[i]);
    }
    CHECK_OK(ignis_scope_end(scope));
}

/* --- graphs, refusals, memory ------------------------------------------------------------------------------------- */

TEST(in_a_graph)
{
    static const int64_t ids[] = {1, 1, 0, 4}, others[] = {4, 4, 4, 1};
    ignis_scope scope;
    ignis_tensor x, y = no_tensor();
    ignis_graph graph;
    SETUP(NULL);
    x = integers(ids, IGNIS_SHAPE(4), IGNIS_I64);
    scope = ignis_scope_begin();
    CHECK_OK(ignis_graph_begin());
    CHECK_REFUSED(0, ignis_nonzero(x).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_REFUSED(0, ignis_masked_select(x, x).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_REFUSED(0, ignis_unique(x, NULL, NULL).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_REFUSED(0, ignis_bincount(x, no_tensor(), 0).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_MESSAGE_HAS("ignis_bincount");
    y = ignis_bincount(x, no_tensor(), 5);
    graph = ignis_graph_end();
    y = ignis_scope_return(scope, y);
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_NUMBER(value_at(y, 1), 2);
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(x), others, IGNIS_I64, 4));
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_NUMBER(value_at(y, 1), 1);
    CHECK_NUMBER(value_at(y, 4), 3);
    CHECK_OK(ignis_graph_free(graph));
    let_go(y);
    let_go(x);
}

TEST(refusals)
{
    ignis_scope scope;
    ignis_tensor x, row, ids, many[9];
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, false);
    row = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    ids = tensor_counting(IGNIS_SHAPE(2), IGNIS_I64, 1, false);
    for (i = 0; i < 9; i++)
        many[i] = ids;
    CHECK_REFUSED(0, ignis_masked_select(x, row).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("mask is [3], the first input is [2, 3]");
    CHECK_REFUSED(0, ignis_searchsorted(row, ids, false).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_searchsorted(x, row, false).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_searchsorted(x, tensor_counting(IGNIS_SHAPE(3, 3), IGNIS_F32, 1, false), false).id,
                  IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_bincount(row, no_tensor(), 3).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_bincount(row, no_tensor(), 0).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_bincount(ids, row, 3).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_bincount(ids, ids, 3).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_bincount(ids, no_tensor(), -1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_histogram(x, 0, 0, 1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_histogram(x, 3, 1, 1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_histogram(x, 3, 0, NAN).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_histogram_edges(x, x).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_histogram_edges(x, ids).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_scatter(x, 2, ids, x).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_scatter(x, 0, ids, x).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_scatter(x, 0, x, x).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_scatter(row, 0, ids, row).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_index_put(x, NULL, 1, x, false).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_index_put(x, many, 0, x, false).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_index_put(x, many, 9, x, false).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_index_put(x, many, 3, row, false).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_RANK);
    CHECK_REFUSED(0, ignis_index_put(x, many, 1, row, false).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS(
        "values is [3]; expected the shape of an index, [2], and of a slice, the dimensions of [2, 3] from 1 on");
    CHECK_REFUSED(0, ignis_index_put(x, &x, 1, x, false).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(
        0, ignis_scatter(x, 0, tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_I64, 1, false), ignis_cast(x, IGNIS_F64)).id,
        IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    many[1] = tensor_counting(IGNIS_SHAPE(1), IGNIS_I64, 1, false);
    CHECK_REFUSED(0, ignis_index_put(x, many, 2, ids, false).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("indices[1] is [1], indices[0] is [2]");
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    const ignis_tensor x = inputs[0], ids = inputs[1];
    ignis_tensor y = ignis_scatter(x, 0, ids, x), counts = no_tensor(), inverse = no_tensor(), w, made[4];
    int i;
    (void)at;
    y = ignis_index_put(y, &ids, 1, y, false);
    y = ignis_index_put(y, &ids, 1, y, true);
    w = ignis_bincount(ids, y, 0);
    y = ignis_masked_select(y, ignis_map("y > 1", IGNIS_INPUTS(y)));
    made[0] = w.id ? ignis_unique(ids, &inverse, &counts) : w;
    made[1] = made[0].id ? ignis_histogram(ids, 3, 0, 3) : w;
    made[2] = made[1].id ? ignis_searchsorted(x, x, false) : w;
    made[3] = made[2].id ? ignis_nonzero(x) : w;
    for (i = 0; i < 4; i++)
        if (!made[i].id)
            return made[i];
    return ignis_add(ignis_sum(y), ignis_sum(w));
}

static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    static const int64_t ids[] = {1, 3, 1, 0};
    ignis_tensor inputs[2];
    SETUP(&desc);
    inputs[0] = tensor_counting(IGNIS_SHAPE(4), IGNIS_F32, 1, true);
    inputs[1] = integers(ids, IGNIS_SHAPE(4), IGNIS_I64);
    sweep_walks(prefix, &counter, everything, inputs);
    let_go(inputs[0]);
    let_go(inputs[1]);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_copy_fails_once) { sweep("cuMemcpyDtoH"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
