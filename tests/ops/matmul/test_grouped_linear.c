// SPDX-License-Identifier: MIT
/*  test_grouped_linear.c - rows sorted by group beside sums in double, gradients beside finite differences, a router of
    experts, graphs with other offsets, and errors */
#include "tensor.h"

#include <math.h>

enum { MAX_GROUPS = 5 };

/*  A product: offsets of `groups` groups among `rows` rows. */
typedef struct grouped {
    int rows, in, out, groups;
    double offsets[MAX_GROUPS + 1];
    int offset; /* elements of a larger array before x and w: 1 makes addresses that no pack may be read from */
} grouped;

static const grouped cases[] = {
    {9, 13, 7, 4, {0, 3, 3, 8, 9}, 0},   /* no full packs; a group without rows */
    {12, 16, 24, 3, {2, 7, 7, 10}, 0},   /* rows before and after all groups */
    {5, 8, 8, 5, {0, 0, 0, 5, 5, 5}, 1}, /* one group has all rows; no aligned address */
    {150, 72, 40, 2, {0, 129, 150}, 0},  /* groups of several tiles, the last of one row more than two */
    {7, 8, 8, 2, {0, 0, 0}, 0},          /* no row has a group */
    {0, 8, 8, 2, {0, 0, 0}, 0},          /* empty tensors */
    {3, 0, 8, 2, {0, 1, 3}, 0},          {3, 8, 0, 2, {0, 1, 3}, 0}, {3, 8, 4, 0, {0}, 0},
};
static const grouped large = {260, 16, 130, 1, {1, 260}, 0}; /* by tiles of 128 x 128 */

/*  Compares with a sum whose terms have this total size: results are rounded once, sums have the errors of f32. */
static bool is_rounded(double got, double expected, double terms, ignis_dtype dtype)
{
    const double unit = dtype == IGNIS_BF16 ? 4e-3 : dtype == IGNIS_F16 ? 5e-4 : 0;
    return fabs(got - expected) <= unit * fabs(expected) + (dtype == IGNIS_F64 ? 1e-14 : 1e-6) * (terms + 0.1);
}

static void check_grouped(const grouped *c, ignis_dtype dtype, ignis_dtype index)
{
    const ignis_shape x_shape = IGNIS_SHAPE(c->rows, c->in), w_shape = IGNIS_SHAPE(c->groups, c->out, c->in);
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = noise_at(x_shape, dtype, 1, 0, 1, c->offset, true),
                 w = noise_at(w_shape, dtype, 2, 0, 1, c->offset, true),
                 offsets = tensor_of(c->offsets, IGNIS_SHAPE(c->groups + 1), index, false),
                 y = ignis_grouped_linear(x, w, offsets);
    double *dy, *of_x = tensor_values(x), *of_w = tensor_values(w), *of_y = tensor_values(y), *dx, *dw;
    int g, r, i, o, wrong = 0;
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(c->rows, c->out));
    dy = backward_from(y, dtype, 3, c->offset);
    dx = array_values(ignis_tensor_grad(x)), dw = array_values(ignis_tensor_grad(w));
    for (r = 0; r < c->rows; r++) {
        for (g = c->groups - 1; g >= 0 && (r < c->offsets[g] || r >= c->offsets[g + 1]); g--) {}
        for (o = 0; o < c->out; o++) {
            double sum = 0, terms = 0;
            for (i = 0; g >= 0 && i < c->in; i++) {
                const double term = of_x[r * c->in + i] * of_w[(g * c->out + o) * c->in + i];
                sum += term, terms += fabs(term);
            }
            wrong += !is_rounded(of_y[r * c->out + o], sum, terms, dtype);
        }
        for (i = 0; i < c->in; i++) {
            double sum = 0, terms = 0;
            for (o = 0; g >= 0 && o < c->out; o++) {
                const double term = dy[r * c->out + o] * of_w[(g * c->out + o) * c->in + i];
                sum += term, terms += fabs(term);
            }
            wrong += !is_rounded(dx[r * c->in + i], sum, terms, dtype);
        }
    }
    for (g = 0; g < c->groups; g++)
        for (o = 0; o < c->out; o++)
            for (i = 0; i < c->in; i++) {
                double sum = 0, terms = 0;
                for (r = (int)c->offsets[g]; r < c->offsets[g + 1]; r++) {
                    const double term = dy[r * c->out + o] * of_x[r * c->in + i];
                    sum += term, terms += fabs(term);
                }
                wrong += !is_rounded(dw[(g * c->out + o) * c->in + i], sum, terms, dtype);
            }
    CHECK_INT(wrong, 0);
    free(dy), free(of_x), free(of_w), free(of_y), free(dx), free(dw);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(each_row_by_the_matrix_of_its_group)
{
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(cases); i++)
            check_grouped(&cases[i], float_dtypes[d], (i + d) % 2 ? IGNIS_I32 : IGNIS_I64);
}

TEST(large_tiles)
{
    SETUP(NULL);
    check_grouped(&large, IGNIS_BF16, IGNIS_I32);
    check_grouped(&large, IGNIS_F32, IGNIS_I32);
}

static ignis_tensor run(const ignis_tensor *in, int count, void *user_data)
{
    return (void)count, ignis_grouped_linear(in[0], in[1], *(const ignis_tensor *)user_data);
}

TEST(gradients_against_finite_differences)
{
    static const double at[] = {0, 2, 2, 5};
    ignis_tensor in[2], offsets;
    SETUP(NULL);
    offsets = tensor_of(at, IGNIS_SHAPE(4), IGNIS_I64, false);
    in[0] = tensor_noise(IGNIS_SHAPE(6, 3), IGNIS_F64, 5, true);
    in[1] = tensor_noise(IGNIS_SHAPE(3, 2, 3), IGNIS_F64, 6, true);
    CHECK(ignis_gradcheck(run, &offsets, in, 2, NULL) < 1e-6);
    let_go(in[0]), let_go(in[1]), let_go(offsets);
}

/*  The bits of a row are those of the row alone, of NaN in other rows too. */
TEST(rows_do_not_depend_on_each_other)
{
    static const double all[] = {0, 40, 90}, alone[] = {0, 0, 1};
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(90, 48), float_dtypes[d], 1, false),
                     w = tensor_noise(IGNIS_SHAPE(2, 16, 48), float_dtypes[d], 2, false), row, y, one;
        ignis_array other = ignis_array_slice(ignis_tensor_data(x), 0, 51, 1);
        CHECK_OK(ignis_array_fill(other, (double)NAN));
        drop(other);
        y = ignis_grouped_linear(x, w, tensor_of(all, IGNIS_SHAPE(3), IGNIS_I32, false));
        row = ignis_slice(x, 0, 52, 1);
        one = ignis_grouped_linear(row, w, tensor_of(alone, IGNIS_SHAPE(3), IGNIS_I32, false));
        for (i = 0; i < 16; i++)
            CHECK_NUMBER(value_at(y, 52 * 16 + i), value_at(one, i));
        CHECK(isnan(value_at(y, 51 * 16)));
        CHECK_OK(ignis_scope_end(scope));
    }
}

/*  Offsets that descend or are outside of the rows give numbers, and touch nothing else. */
TEST(offsets_outside)
{
    static const double wrong[][4] = {{-3, 2, 900, 950}, {5, 1, 4, 0}, {6, 6, 6, -1}};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(wrong); i++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(6, 8), IGNIS_F32, 1, true),
                     w = tensor_noise(IGNIS_SHAPE(3, 4, 8), IGNIS_F32, 2, true),
                     y = ignis_grouped_linear(x, w, tensor_of(wrong[i], IGNIS_SHAPE(4), IGNIS_I64, false));
        CHECK(y.id != 0);
        free(backward_from(y, IGNIS_F32, 3, 0));
        if (i == 0) /* -3 is 0, and 900 is 6 */
            CHECK(value_at(y, 0) != 0 && value_at(y, 5 * 4) != 0);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/*  A mixture of experts as the documentation says: each token goes to 2 of 4 experts. */
TEST(a_router_of_experts)
{
    enum { TOKENS = 6, IN = 5, OUT = 3, EXPERTS = 4, CHOSEN = 2 };
    static const double numbers[] = {0, 1, 2, 3, 4};
    ignis_tensor x, w, logits, chosen, ids, order, sorted, rows, y, owner, offsets;
    double *of_x, *of_w, *of_logits, *of_y;
    int t, e, o, i;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(TOKENS, IN), IGNIS_F64, 1, true);
    w = tensor_noise(IGNIS_SHAPE(EXPERTS, OUT, IN), IGNIS_F64, 2, true);
    logits = tensor_noise(IGNIS_SHAPE(TOKENS, EXPERTS), IGNIS_F64, 3, true);
    chosen = ignis_reshape(ignis_softmax(ignis_topk(logits, CHOSEN, 1, true, &ids)), IGNIS_SHAPE(-1, 1));
    sorted = ignis_sort(ignis_reshape(ids, IGNIS_SHAPE(-1)), 0, false, &order);
    offsets = ignis_searchsorted(sorted, tensor_of(numbers, IGNIS_SHAPE(EXPERTS + 1), IGNIS_I64, false), false);
    owner = ignis_map("floor(order/2)", IGNIS_INPUTS(order));
    rows = ignis_grouped_linear(ignis_index_select(x, 0, owner), w, offsets);
    rows = ignis_mul(rows, ignis_expand(ignis_index_select(chosen, 0, order), IGNIS_SHAPE(TOKENS * CHOSEN, OUT)));
    y = ignis_index_put(ignis_map("0*x", IGNIS_INPUTS(IGNIS_NAMED(x, ignis_slice(x, 1, 0, OUT)))), &owner, 1, rows,
                        true);
    REQUIRE(y.id != 0);
    of_x = tensor_values(x), of_w = tensor_values(w), of_logits = tensor_values(logits), of_y = tensor_values(y);
    for (t = 0; t < TOKENS; t++) {
        const double *row = of_logits + t * EXPERTS;
        int first = 0, second = -1;
        for (e = 1; e < EXPERTS; e++)
            first = row[e] > row[first] ? e : first;
        for (e = 0; e < EXPERTS; e++)
            second = e != first && (second < 0 || row[e] > row[second]) ? e : second;
        for (o = 0; o < OUT; o++) {
            const double share = 1 / (1 + exp(row[second] - row[first]));
            double sum = 0;
            for (i = 0; i < IN; i++)
                sum += of_x[t * IN + i] *
                       (share * of_w[(first * OUT + o) * IN + i] + (1 - share) * of_w[(second * OUT + o) * IN + i]);
            CHECK_CLOSE(of_y[t * OUT + o], sum, 1e-12);
        }
    }
    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
    CHECK(ignis_tensor_grad(w).id != 0 && ignis_tensor_grad(logits).id != 0);
    free(of_x), free(of_w), free(of_logits), free(of_y);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(a_graph_reads_offsets_when_it_runs)
{
    static const double before[] = {0, 4, 4, 4}, after[] = {0, 1, 3, 4};
    ignis_tensor x, w, offsets, y, expected;
    ignis_graph graph;
    int i;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(4, 8), IGNIS_F16, 1, false);
    w = tensor_noise(IGNIS_SHAPE(3, 8, 8), IGNIS_F16, 2, false);
    offsets = tensor_of(after, IGNIS_SHAPE(4), IGNIS_I32, false);
    expected = ignis_grouped_linear(x, w, offsets);
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(offsets), before, IGNIS_F64, 4));
    CHECK_OK(ignis_graph_begin());
    y = ignis_grouped_linear(x, w, offsets);
    graph = ignis_graph_end();
    REQUIRE(graph.id != 0);
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(offsets), after, IGNIS_F64, 4));
    CHECK_OK(ignis_graph_launch(graph));
    for (i = 0; i < 32; i++)
        CHECK_NUMBER(value_at(y, i), value_at(expected, i));
    CHECK_OK(ignis_graph_free(graph));
    let_go(x), let_go(w), let_go(offsets), let_go(y), let_go(expected);
}

TEST(errors)
{
    ignis_tensor x, w, offsets, other;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(4, 3), IGNIS_F32, 1, true);
    w = tensor_noise(IGNIS_SHAPE(2, 5, 3), IGNIS_F32, 2, true);
    offsets = tensor_counting(IGNIS_SHAPE(3), IGNIS_I32, 1, false);
    CHECK_REFUSED(0, ignis_grouped_linear(w, w, offsets).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("x is [2, 5, 3], w [2, 5, 3]; expected x [rows, in] and w [groups, out, in]");
    CHECK_REFUSED(0, ignis_grouped_linear(x, x, offsets).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_grouped_linear(x, w, x).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("offsets is f32");
    other = tensor_counting(IGNIS_SHAPE(2), IGNIS_I32, 1, false);
    CHECK_REFUSED(0, ignis_grouped_linear(x, w, other).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("offsets is [2]; w [2, 5, 3] needs [3]");
    let_go(other);
    other = tensor_noise(IGNIS_SHAPE(2, 5, 4), IGNIS_F32, 2, false);
    CHECK_REFUSED(0, ignis_grouped_linear(x, other, offsets).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    let_go(other);
    other = tensor_noise(IGNIS_SHAPE(2, 5, 3), IGNIS_F64, 2, false);
    CHECK_REFUSED(0, ignis_grouped_linear(x, other, offsets).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_grouped_linear(offsets, w, offsets).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    let_go(other);
    CHECK_REFUSED(0, ignis_grouped_linear(x, w, other).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    let_go(x), let_go(w), let_go(offsets);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
