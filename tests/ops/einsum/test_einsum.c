// SPDX-License-Identifier: MIT
/*  test_einsum.c - sums of products by labels, beside loops over all labels in double precision */
#include <math.h>

#include "sweep.h"

/*  An equation without dots and blanks; sizes of its labels, in the order of letters; the result, where the
    equation has none. */
typedef struct einsum_case {
    const char *equation;
    const char *letters;
    int sizes[10];
    const char *implied;
} einsum_case;

static const einsum_case cases[] = {
    {"ij,jk->ik", "ijk", {3, 4, 5}, NULL},
    {"ij,jk->ki", "ijk", {3, 4, 5}, NULL},
    {"ji,jk->ik", "ijk", {3, 4, 5}, NULL},
    {"ij,kj->ik", "ijk", {3, 4, 5}, NULL},
    {"ji,kj->ik", "ijk", {3, 4, 5}, NULL},
    {"ij,jk", "ijk", {3, 4, 5}, "ik"},
    {"ba,ca", "abc", {3, 4, 5}, "bc"},
    {"ij,jk->", "ijk", {3, 4, 5}, NULL},
    {"i,i->", "i", {7}, NULL},
    {"i,j->ij", "ij", {3, 4}, NULL},
    {"i,j->ji", "ij", {3, 4}, NULL},
    {"ij,ij->ij", "ij", {3, 4}, NULL},
    {"ij,ji->ij", "ij", {3, 4}, NULL},
    {"ij,ij->j", "ij", {3, 4}, NULL},
    {"ij,j->i", "ij", {3, 4}, NULL},
    {"ij->ji", "ij", {3, 4}, NULL},
    {"ij->ij", "ij", {3, 4}, NULL},
    {"ij->", "ij", {3, 4}, NULL},
    {"ijk->ki", "ijk", {3, 4, 5}, NULL},
    {"ii->i", "i", {5}, NULL},
    {"ii->", "i", {5}, NULL},
    {"ii", "i", {5}, ""},
    {"ijji->ij", "ij", {3, 4}, NULL},
    {"iji,jk->ik", "ijk", {3, 4, 5}, NULL},
    {"iii->i", "i", {4}, NULL},
    {"bij,bjk->bik", "bijk", {2, 3, 4, 5}, NULL},
    {"ijb,bkj->kib", "bijk", {2, 3, 4, 5}, NULL},
    {"bhqd,bhkd->bhqk", "bhqkd", {2, 3, 4, 5, 6}, NULL},
    {"bqhd,bkhd->bhqk", "bhqkd", {2, 3, 4, 5, 6}, NULL},
    {"bhqk,bkhd->bqhd", "bhqkd", {2, 3, 4, 5, 6}, NULL},
    {"abcd,cdef->abef", "abcdef", {2, 3, 2, 3, 2, 3}, NULL},
    {"abcd,dcef->feab", "abcdef", {2, 3, 2, 3, 2, 3}, NULL},
    {"ij,jk,kl->il", "ijkl", {3, 4, 5, 2}, NULL},
    {"ij,jk,kl,lm->im", "ijklm", {5, 2, 6, 3, 4}, NULL},
    {"i,i,i->i", "i", {4}, NULL},
    {"ij,ik,il->jkl", "ijkl", {3, 2, 4, 5}, NULL},
    {"ab,cd,ef->fedcba", "abcdef", {2, 3, 2, 3, 2, 3}, NULL},
    {"ij,k->ijk", "ijk", {3, 4, 5}, NULL},
    {"ij,kl->ik", "ijkl", {3, 4, 5, 2}, NULL},
    {"a,ab,abc,bc,c->", "abc", {3, 4, 5}, NULL},
    {"ij,jk->ik", "ijk", {1, 1, 1}, NULL},
    {"ij,jk->ik", "ijk", {3, 0, 4}, NULL},
    {"ij,jk->ik", "ijk", {0, 3, 4}, NULL},
    {"ij->i", "ij", {3, 0}, NULL},
    {"Ab,bA->A", "Ab", {3, 4}, NULL},
    {"a,b,c,d,e,f,g,h->hgfedcba", "abcdefgh", {2, 1, 2, 3, 1, 2, 1, 2}, NULL},
    {"ab,bc,cd,de,ef,fg,gh,ha->", "abcdefgh", {2, 3, 2, 3, 2, 3, 2, 3}, NULL},
};

/*  Where labels of a term lead, in its elements. */
static int64_t place_of(const char *term, int length, const einsum_case *c, const int *at)
{
    int64_t place = 0;
    int i;
    for (i = 0; i < length; i++) {
        const int label = (int)(strchr(c->letters, term[i]) - c->letters);
        place = place * c->sizes[label] + at[label];
    }
    return place;
}

static ignis_shape shape_of_term(const char *term, int length, const einsum_case *c)
{
    ignis_shape shape = IGNIS_SHAPE(1);
    int i;
    for (i = 0; i < length; i++)
        shape.dim[i] = c->sizes[strchr(c->letters, term[i]) - c->letters];
    shape.ndim = length ? length : 1;
    return shape;
}

typedef struct einsum_run {
    const einsum_case *c;
    const char *terms[IGNIS_MAX_OPERANDS], *result;
    int lengths[IGNIS_MAX_OPERANDS], count, result_length;
} einsum_run;

static einsum_run run_of(const einsum_case *c)
{
    einsum_run run;
    const char *at = c->equation;
    memset(&run, 0, sizeof run);
    run.c = c;
    for (;; at++) {
        run.terms[run.count] = at;
        at += strcspn(at, ",-");
        run.lengths[run.count] = (int)(at - run.terms[run.count]);
        run.count++;
        if (*at != ',')
            break;
    }
    run.result = *at ? at + 2 : c->implied;
    run.result_length = (int)strlen(run.result);
    return run;
}

/*  The sums over all labels. The caller frees them. */
static double *loops(const einsum_run *run, double *const *values)
{
    const ignis_shape shape = shape_of_term(run->result, run->result_length, run->c);
    double *sums = (double *)calloc((size_t)shape_numel(shape) + 1, sizeof *sums);
    int at[10] = {0}, labels = (int)strlen(run->c->letters), i;
    for (i = 0; i < labels; i++)
        if (run->c->sizes[i] == 0)
            return sums;
    for (;;) {
        double product = 1;
        for (i = 0; i < run->count; i++)
            product *= values[i][place_of(run->terms[i], run->lengths[i], run->c, at)];
        sums[place_of(run->result, run->result_length, run->c, at)] += product;
        for (i = labels - 1; i >= 0 && ++at[i] == run->c->sizes[i]; i--)
            at[i] = 0;
        if (i < 0)
            return sums;
    }
}

TEST(equations)
{
    int n, i, d;
    SETUP(NULL);
    for (n = 0; n < COUNT_OF(cases); n++)
        for (d = 0; d < (n % 8 == 0 ? COUNT_OF(float_dtypes) : 1); d++) {
            /* short floats round each product of two */
            const double tolerance = float_dtypes[d] == IGNIS_F64   ? 1e-13
                                     : float_dtypes[d] == IGNIS_F32 ? 1e-5
                                     : float_dtypes[d] == IGNIS_F16 ? 4e-3
                                                                    : 3e-2;
            const einsum_run run = run_of(&cases[n]);
            const ignis_shape shape = shape_of_term(run.result, run.result_length, run.c);
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor operands[IGNIS_MAX_OPERANDS], y;
            double *values[IGNIS_MAX_OPERANDS], *expected, *got;
            for (i = 0; i < run.count; i++) {
                operands[i] = tensor_noise(shape_of_term(run.terms[i], run.lengths[i], run.c), float_dtypes[d],
                                           (uint64_t)i, false);
                values[i] = tensor_values(operands[i]);
            }
            y = ignis_einsum(cases[n].equation, operands, run.count);
            expected = loops(&run, values);
            CHECK_SHAPE_IS(y, shape);
            got = tensor_values(y);
            for (i = 0; i < shape_numel(shape); i++)
                if (!is_close(got[i], expected[i], tolerance)) {
                    fprintf(stderr, "%s, %s: ", cases[n].equation, ignis_dtype_name(float_dtypes[d]));
                    CHECK_CLOSE(got[i], expected[i], tolerance);
                    break;
                }
            for (i = 0; i < run.count; i++)
                free(values[i]);
            free(expected), free(got);
            CHECK_OK(ignis_scope_end(scope));
        }
}

/*  Dots, blanks and dimensions of 1, beside the same equation with letters. */
TEST(dots_and_broadcasts)
{
    static const struct {
        const char *equation, *letters;
        ignis_shape a, b, plain_a, plain_b;
    } same[] = {
        {"...ij,...jk->...ik",
         "bcij,bcjk->bcik",
         {4, {2, 3, 4, 5}},
         {4, {2, 3, 5, 2}},
         {4, {2, 3, 4, 5}},
         {4, {2, 3, 5, 2}}},
        {"...ij,...jk", "bcij,bcjk->bcik", {4, {2, 3, 4, 5}}, {4, {2, 3, 5, 2}}, {4, {2, 3, 4, 5}}, {4, {2, 3, 5, 2}}},
        {" ...i j , ... jk -> ...ki ",
         "bcij,cjk->bcki",
         {4, {2, 3, 4, 5}},
         {3, {3, 5, 2}},
         {4, {2, 3, 4, 5}},
         {3, {3, 5, 2}}},
        {"...ij,jk->...ik", "bcij,jk->bcik", {4, {2, 3, 4, 5}}, {2, {5, 2}}, {4, {2, 3, 4, 5}}, {2, {5, 2}}},
        {"i...,j...->ij...", "ibc,jbc->ijbc", {3, {2, 3, 4}}, {3, {5, 3, 4}}, {3, {2, 3, 4}}, {3, {5, 3, 4}}},
        {"...i,...i->i", "bi,bi->i", {2, {3, 4}}, {2, {3, 4}}, {2, {3, 4}}, {2, {3, 4}}},
        {"...i,...i->...", "bi,ci->bci", {3, {3, 1, 4}}, {2, {2, 4}}, {2, {3, 4}}, {2, {2, 4}}},
        {"ij,jk->ik", "i,jk->ik", {2, {3, 1}}, {2, {5, 2}}, {1, {3}}, {2, {5, 2}}},
        {"ij,ij->ij", "i,ij->ij", {2, {3, 1}}, {2, {3, 2}}, {1, {3}}, {2, {3, 2}}},
    };
    int n, i;
    SETUP(NULL);
    for (n = 0; n < COUNT_OF(same); n++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor operands[2], plain[2], y, z;
        operands[0] = tensor_noise(same[n].a, IGNIS_F64, 1, false),
        operands[1] = tensor_noise(same[n].b, IGNIS_F64, 2, false);
        plain[0] = ignis_reshape(operands[0], same[n].plain_a), plain[1] = ignis_reshape(operands[1], same[n].plain_b);
        y = ignis_einsum(same[n].equation, operands, 2);
        z = ignis_einsum(n == 6 ? "bi,ci->bc" : same[n].letters, plain, 2);
        CHECK_INT(numel_of(y), numel_of(z));
        for (i = 0; i < numel_of(z); i++)
            CHECK_CLOSE(value_at(y, i), value_at(z, i), 1e-14);
        CHECK_OK(ignis_scope_end(scope));
    }
}

static ignis_tensor loss_of(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_tensor y = ignis_einsum((const char *)user_data, inputs, count);
    return ignis_map_sum("(1 + 0.3*index(-1))*y*y + y", IGNIS_INPUTS(y));
}

TEST(gradients)
{
    static const int chosen[] = {2, 4, 8, 12, 13, 22, 23, 26, 28, 31, 33, 35, 39};
    int n, i;
    SETUP(NULL);
    for (n = 0; n < COUNT_OF(chosen); n++) {
        const einsum_run run = run_of(&cases[chosen[n]]);
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor operands[IGNIS_MAX_OPERANDS];
        char equation[64];
        double error;
        snprintf(equation, sizeof equation, "%s", cases[chosen[n]].equation);
        for (i = 0; i < run.count; i++)
            operands[i] =
                tensor_noise(shape_of_term(run.terms[i], run.lengths[i], run.c), IGNIS_F64, (uint64_t)i, true);
        error = ignis_gradcheck(loss_of, equation, operands, run.count, NULL);
        if (!(error < 1e-6))
            fprintf(stderr, "%s: an error of %g\n", equation, error);
        CHECK(error < 1e-6);
        CHECK_OK(ignis_scope_end(scope));
    }
}

TEST(tensordot)
{
    static const int first[] = {1, 2}, second[] = {-1, 0}, none[] = {0};
    ignis_scope scope;
    ignis_tensor operands[2], y, z;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    operands[0] = tensor_noise(IGNIS_SHAPE(2, 3, 4), IGNIS_F64, 1, false);
    operands[1] = tensor_noise(IGNIS_SHAPE(4, 5, 3), IGNIS_F64, 2, false);
    y = ignis_tensordot(operands[0], operands[1], first, second, 2);
    z = ignis_einsum("abc,cdb->ad", operands, 2);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(2, 5));
    for (i = 0; i < 10; i++)
        CHECK_CLOSE(value_at(y, i), value_at(z, i), 1e-14);
    y = ignis_tensordot(operands[0], operands[1], NULL, NULL, 0);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(2, 3, 4, 4, 5, 3));
    CHECK_CLOSE(value_at(y, 61), value_at(operands[0], 1) * value_at(operands[1], 1), 1e-15);
    operands[1] = tensor_noise(IGNIS_SHAPE(2), IGNIS_F64, 2, false);
    y = ignis_tensordot(operands[1], operands[1], none, none, 1);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(1));
    CHECK_CLOSE(value_at(y, 0),
                value_at(operands[1], 0) * value_at(operands[1], 0) +
                    value_at(operands[1], 1) * value_at(operands[1], 1),
                1e-15);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(errors)
{
    static const struct {
        const char *equation;
        int count;
        ignis_status status;
        ignis_diagnostic diagnostic;
        const char *says;
    } wrong[] = {
        {"ij,jk->iz", 2, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EQUATION,
         "column 9 of 'ij,jk->iz': label z is in no operand"},
        {"ij,jk->ii", 2, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EQUATION,
         "column 9 of 'ij,jk->ii': label i a second time in the result"},
        {"ij,jk->i,k", 2, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EQUATION, "column 9 of 'ij,jk->i,k': expected the end"},
        {"ij,jk-ik", 2, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EQUATION, "column 6 of 'ij,jk-ik': expected '->'"},
        {"ij->ik", 2, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EQUATION, "column 3 of 'ij->ik': 1 terms for 2 operands"},
        {"ij,jk,k->i", 2, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EQUATION,
         "column 6 of 'ij,jk,k->i': more terms than operands, which are 2"},
        {"ijk,jk->i", 2, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EQUATION,
         "column 1 of 'ijk,jk->i': 3 labels for operand 0, of 2 dimensions"},
        {"i,jk->i", 2, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS,
         "column 1 of 'i,jk->i': 1 labels for operand 0, which is [3, 4]"},
        {"i1,jk->i", 2, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EQUATION,
         "column 2 of 'i1,jk->i': expected a letter, '...', ',' or '->'"},
        {"i..,jk->i", 2, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EQUATION,
         "column 2 of 'i..,jk->i': expected a letter, '...', ',' or '->'"},
        {"......,jk->k", 2, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EQUATION,
         "column 4 of '......,jk->k': dots a second time in a term"},
        {"ij,ik->jk", 2, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS,
         "column 4 of 'ij,ik->jk': label i is 4 in operand 1, [4, 5], and 3 in another one"},
        {"i...,k...->ik", 2, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS,
         "dimension -1 of the dots is 5 in operand 1, [4, 5], and 4 in another one"},
        {"ii,jk->ik", 2, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS,
         "column 1 of 'ii,jk->ik': the diagonal of operand 0, [3, 4], of two sizes"},
        {"", 1, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS, "column 1 of '': 0 labels for operand 0, which is [3, 4]"},
        {"ij", 0, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER, "count is 0; expected 1 to 8"},
        {"ij", 9, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER, "count is 9; expected 1 to 8"},
    };
    static const int zero[] = {0, 0}, five[] = {5, 1}, last[] = {-1, 0};
    ignis_scope scope;
    ignis_tensor operands[2], mixed[2], five_dims[2];
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    operands[0] = tensor_noise(IGNIS_SHAPE(3, 4), IGNIS_F32, 1, false);
    operands[1] = tensor_noise(IGNIS_SHAPE(4, 5), IGNIS_F32, 2, false);
    for (i = 0; i < COUNT_OF(wrong); i++) {
        CHECK(ignis_einsum(wrong[i].equation, operands, wrong[i].count).id == 0);
        if (!strstr(ignis_status_message(), wrong[i].says))
            fprintf(stderr, "%s\n", ignis_status_message());
        CHECK(strstr(ignis_status_message(), wrong[i].says) != NULL);
        test__check_failure(__FILE__, __LINE__, "ignis_einsum(equation, operands, count)", wrong[i].status,
                            wrong[i].diagnostic);
    }
    CHECK_REFUSED(0, ignis_einsum(NULL, operands, 2).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_einsum("ij", NULL, 1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    mixed[0] = operands[0], mixed[1] = tensor_noise(IGNIS_SHAPE(4, 5), IGNIS_F16, 2, false);
    CHECK_REFUSED(0, ignis_einsum("ij,jk", mixed, 2).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    mixed[1] = no_tensor();
    CHECK_REFUSED(0, ignis_einsum("ij,jk", mixed, 2).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    five_dims[0] = five_dims[1] = tensor_noise(IGNIS_SHAPE(1, 2, 1, 2, 1), IGNIS_F32, 1, false);
    CHECK_REFUSED(0, ignis_einsum("abcde,fghij", five_dims, 2).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EQUATION);
    CHECK_REFUSED(0, ignis_tensordot(five_dims[0], five_dims[1], zero, zero, 0).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_SHAPE_RANK);
    CHECK_REFUSED(0, ignis_tensordot(operands[0], operands[1], zero, zero, 2).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_tensordot(operands[0], operands[0], zero, zero, 2).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_tensordot(operands[0], operands[1], five, zero, 1).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_tensordot(operands[0], operands[1], last, zero, -1).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_tensordot(operands[0], operands[1], last, NULL, 1).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    ignis_tensor three[3], y;
    (void)at;
    three[0] = inputs[0], three[1] = inputs[1], three[2] = inputs[1];
    y = ignis_einsum("iij,jk,lk->li", three, 3);
    return ignis_map_sum("y*y", IGNIS_INPUTS(y));
}

TEST(every_failure_is_reported)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    static const char *const prefixes[] = {"cuMemAlloc", "cuLaunch", NULL};
    ignis_tensor inputs[2];
    int i;
    SETUP(&desc);
    inputs[0] = tensor_noise(IGNIS_SHAPE(3, 3, 4), IGNIS_F32, 1, true);
    inputs[1] = tensor_noise(IGNIS_SHAPE(4, 4), IGNIS_F32, 2, true);
    for (i = 0; i < COUNT_OF(prefixes); i++)
        sweep_walks(prefixes[i], &counter, everything, inputs);
    let_go(inputs[0]), let_go(inputs[1]);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
