// SPDX-License-Identifier: MIT
/*  test_ops_shape.c - operations that move elements: permutations, strided slices, flips, expansions, stacks, padding

    What such an operation does is a map: for each element of the result the element of the input that it is, or none.
    The map is made here by walking over coordinates, and values and gradients follow from it in every dtype. Values are
    small integers, that all dtypes hold. */
#include "sweep.h"

#include <math.h>

static const ignis_dtype all_dtypes[7] = {IGNIS_F64, IGNIS_F32, IGNIS_F16, IGNIS_BF16, IGNIS_I32, IGNIS_I64, IGNIS_U8};

typedef enum move_kind { PERMUTE, FLIP, STEP, PAD, EXPAND } move_kind;

typedef struct move {
    move_kind kind;
    ignis_shape in, out;
    int dims[IGNIS_MAX_DIMS], count;
    int64_t start, len, step, before[IGNIS_MAX_DIMS], after[IGNIS_MAX_DIMS];
} move;

static const double filling = 5;

static ignis_tensor move_run(const move *m, ignis_tensor x)
{
    switch (m->kind) {
    case PERMUTE: return ignis_permute(x, m->dims, m->count);
    case FLIP: return ignis_flip(x, m->dims, m->count);
    case STEP: return ignis_slice_step(x, m->dims[0], m->start, m->len, m->step);
    case PAD: return ignis_pad(x, m->before, m->after, m->in.ndim, filling);
    default: return ignis_expand(x, m->out);
    }
}

/*  The element of the input at the coordinates `at` of the result; -1: none. */
static int64_t move_source(const move *m, const int64_t *at)
{
    int64_t from[IGNIS_MAX_DIMS] = {0}, index = 0;
    int i;
    for (i = 0; i < m->in.ndim; i++)
        from[i] = at[i + (m->kind == EXPAND ? m->out.ndim - m->in.ndim : 0)];
    for (i = 0; i < m->count; i++) {
        if (m->kind == PERMUTE)
            from[m->dims[i]] = at[i];
        if (m->kind == FLIP)
            from[m->dims[i]] = m->in.dim[m->dims[i]] - 1 - at[m->dims[i]];
        if (m->kind == STEP)
            from[m->dims[i]] = m->start + at[m->dims[i]] * m->step;
    }
    for (i = 0; i < m->in.ndim; i++) {
        if (m->kind == PAD)
            from[i] -= m->before[i];
        if (m->kind == EXPAND && m->in.dim[i] == 1)
            from[i] = 0;
        if (from[i] < 0 || from[i] >= m->in.dim[i])
            return -1;
        index = index * m->in.dim[i] + from[i];
    }
    return index;
}

static int64_t *move_map(const move *m)
{
    int64_t numel = shape_numel(m->out), i, rest, at[IGNIS_MAX_DIMS],
            *map = (int64_t *)malloc(sizeof *map * (size_t)(numel + 1));
    int d;
    for (i = 0; i < numel; i++) {
        for (rest = i, d = m->out.ndim - 1; d >= 0; rest /= m->out.dim[d--])
            at[d] = rest % m->out.dim[d];
        map[i] = move_source(m, at);
    }
    return map;
}

static void check_move(const move *m)
{
    int64_t numel = shape_numel(m->out), from = shape_numel(m->in), i, wrong, *map = move_map(m);
    double *in = (double *)malloc(sizeof *in * (size_t)(from + 1)),
           *weights = (double *)malloc(sizeof *in * (size_t)(numel + 1)), *got;
    double *expected = (double *)malloc(sizeof *in * (size_t)(from + 1));
    int d;
    for (i = 0; i < from; i++)
        in[i] = (double)(i * 7 % 251);
    for (i = 0; i < numel; i++)
        weights[i] = (double)(i * 5 % 13);
    for (d = 0; d < COUNT_OF(all_dtypes); d++) {
        bool differentiates = d < 4;
        double tolerance = m->kind != EXPAND || d < 2 ? 0
                           : d == 2                   ? 1.0 / 1024
                                                      : 1.0 / 128; /* a sum in f32, rounded once */
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_of(in, m->in, all_dtypes[d], differentiates), y = move_run(m, x), w;
        CHECK_OK(ignis_status_last());
        CHECK_SHAPE_IS(y, m->out);
        CHECK_INT(tensor_info(y).dtype, all_dtypes[d]);
        got = tensor_values(y);
        for (i = 0, wrong = 0; i < numel; i++)
            wrong += got[i] != (map[i] < 0 ? filling : in[map[i]]);
        CHECK_INT(wrong, 0);
        free(got);
        if (differentiates) {
            w = tensor_of(weights, m->out, all_dtypes[d], false);
            CHECK_OK(ignis_backward(y, ignis_tensor_data(w)));
            memset(expected, 0, sizeof *expected * (size_t)from);
            for (i = 0; i < numel; i++)
                if (map[i] >= 0)
                    expected[map[i]] += weights[i];
            got = array_values(ignis_tensor_grad(x));
            for (i = 0, wrong = 0; i < from; i++)
                wrong += !is_close(got[i], expected[i], tolerance);
            CHECK_INT(wrong, 0);
            free(got);
        }
        CHECK_OK(ignis_scope_end(scope));
    }
    free(map);
    free(in);
    free(weights);
    free(expected);
}

/*  Odd sizes, one and none; whole packs; both sides of a tile; more dimensions than merge. */
static const ignis_shape move_shapes[] = {{1, {1}},
                                          {1, {37}},
                                          {2, {5, 3}},
                                          {2, {17, 67}},
                                          {2, {64, 48}},
                                          {2, {3, 0}},
                                          {3, {2, 19, 23}},
                                          {3, {16, 3, 32}},
                                          {3, {32, 16, 16}},
                                          {4, {3, 17, 2, 18}},
                                          {4, {2, 1, 31, 16}},
                                          {5, {2, 3, 2, 5, 16}},
                                          {8, {2, 1, 3, 2, 2, 1, 2, 3}}};

static move move_begin(move_kind kind, const ignis_shape *shape)
{
    move m;
    memset(&m, 0, sizeof m);
    m.kind = kind;
    m.in = m.out = *shape;
    return m;
}

TEST(permute)
{
    unsigned state = 1;
    int s, turn, i;
    SETUP(NULL);
    for (s = 0; s < COUNT_OF(move_shapes); s++)
        for (turn = 0; turn < 4; turn++) {
            move m = move_begin(PERMUTE, &move_shapes[s]);
            m.count = m.in.ndim;
            for (i = 0; i < m.count; i++)
                m.dims[i] = turn == 1 ? m.count - 1 - i : i; /* none, reversed, two at random */
            for (i = m.count - 1; turn > 1 && i > 0; i--) {
                int other = (int)test_draw(&state, (unsigned)i + 1), dim = m.dims[i];
                m.dims[i] = m.dims[other];
                m.dims[other] = dim;
            }
            for (i = 0; i < m.count; i++)
                m.out.dim[i] = m.in.dim[m.dims[i]];
            check_move(&m);
        }
}

TEST(flip)
{
    int s, set, i;
    SETUP(NULL);
    for (s = 0; s < COUNT_OF(move_shapes); s++)
        for (set = 0; set < 4; set++) {
            move m = move_begin(FLIP, &move_shapes[s]);
            for (i = 0; i < m.in.ndim; i++)
                if (set == 3 || (set == 1 && i == 0) || (set == 2 && i == m.in.ndim - 1))
                    m.dims[m.count++] = i;
            check_move(&m);
        }
}

TEST(slice_step)
{
    static const int64_t steps[] = {1, 2, 3, -1, -2, 1000};
    int s, k, i;
    SETUP(NULL);
    for (s = 0; s < COUNT_OF(move_shapes); s++)
        for (k = 0; k < COUNT_OF(steps); k++)
            for (i = 0; i < move_shapes[s].ndim; i++) {
                move m = move_begin(STEP, &move_shapes[s]);
                int64_t size = m.in.dim[i];
                m.count = 1;
                m.dims[0] = i;
                m.step = steps[k];
                m.start = size == 0 ? 0 : m.step > 0 ? size / 4 : size - 1 - size / 5;
                while (m.start + m.len * m.step >= 0 && m.start + m.len * m.step < size)
                    m.len++;
                m.out.dim[i] = m.len;
                check_move(&m);
            }
}

TEST(pad)
{
    int s, turn, i;
    SETUP(NULL);
    for (s = 0; s < COUNT_OF(move_shapes); s++)
        for (turn = 0; turn < 4; turn++) {
            move m = move_begin(PAD, &move_shapes[s]);
            for (i = 0; i < m.in.ndim;
                 i++) { /* nothing; one side of each; whole packs of the last; in front of the first */
                m.before[i] = turn == 1 ? i % 3 : turn == 2 && i == m.in.ndim - 1 ? 16 : turn == 3 && i == 0 ? 2 : 0;
                m.after[i] = turn == 1 ? (i + 1) % 2 : turn == 2 && i == m.in.ndim - 1 ? 32 : 0;
                m.out.dim[i] += m.before[i] + m.after[i];
            }
            check_move(&m);
        }
}

TEST(expand)
{
    static const ignis_shape pairs[][2] = {{{1, {1}}, {1, {1}}},
                                           {{1, {1}}, {1, {37}}},
                                           {{1, {1}}, {3, {2, 3, 16}}},
                                           {{2, {5, 1}}, {2, {5, 17}}},
                                           {{2, {1, 48}}, {2, {7, 48}}},
                                           {{1, {13}}, {3, {2, 3, 13}}},
                                           {{3, {2, 1, 16}}, {3, {2, 3, 16}}},
                                           {{3, {1, 3, 1}}, {3, {5, 3, 7}}}, /* sums in two places */
                                           {{4, {1, 17, 1, 18}}, {5, {2, 3, 17, 4, 18}}},
                                           {{4, {2, 1, 3, 1}}, {4, {2, 5, 3, 16}}},
                                           {{2, {3, 1}}, {2, {3, 0}}},
                                           {{2, {0, 1}}, {3, {2, 0, 5}}},
                                           {{8, {1, 2, 1, 2, 1, 2, 1, 2}}, {8, {2, 2, 2, 2, 3, 2, 2, 2}}}};
    int s;
    SETUP(NULL);
    for (s = 0; s < COUNT_OF(pairs); s++) {
        move m = move_begin(EXPAND, &pairs[s][0]);
        m.out = pairs[s][1];
        check_move(&m);
    }
}

TEST(expand_keeps_a_dimension)
{
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    CHECK_SHAPE_IS(ignis_expand(tensor_counting(IGNIS_SHAPE(3, 1), IGNIS_F32, 1, false), IGNIS_SHAPE(2, -1, 4)),
                   IGNIS_SHAPE(2, 3, 4));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(stack)
{
    static const int counts[] = {1, 2, 9, 24, 50}; /* more than 24 are joined in turn */
    ignis_tensor parts[50];
    int c, dim, i, d;
    SETUP(NULL);
    for (d = 0; d < COUNT_OF(all_dtypes); d++)
        for (c = 0; c < COUNT_OF(counts); c++)
            for (dim = -3; dim < 3; dim++) {
                ignis_scope scope = ignis_scope_begin();
                ignis_tensor whole, weights;
                ignis_shape shape = IGNIS_SHAPE(3, 5);
                int64_t k, outer, inner, wrong = 0, place = dim < 0 ? dim + 3 : dim;
                double *got, *grad;
                for (i = 0; i < counts[c]; i++)
                    parts[i] = tensor_counting(shape, all_dtypes[d], 1 + i % 3, d < 4);
                whole = ignis_stack(parts, counts[c], dim);
                CHECK_INT(shape_of(whole).dim[place], counts[c]);
                CHECK_INT(shape_of(whole).ndim, 3);
                outer = place == 0 ? 1 : place == 1 ? 3 : 15;
                inner = 15 / outer;
                got = tensor_values(whole);
                for (k = 0; k < 15 * counts[c]; k++)
                    wrong += got[k] != (double)((k / inner / counts[c] * inner + k % inner + 1) *
                                                (1 + k / inner % counts[c] % 3));
                CHECK_INT(wrong, 0);
                free(got);
                if (d < 4) {
                    weights = tensor_counting(shape_of(whole), IGNIS_F64, 1, false);
                    CHECK_OK(
                        ignis_backward(ignis_sum(ignis_mul(ignis_cast(whole, IGNIS_F64), weights)), IGNIS_NO_ARRAY));
                    for (i = 0; i < counts[c]; i++) {
                        grad = array_values(ignis_tensor_grad(parts[i]));
                        for (k = 0; k < 15; k++)
                            wrong += !is_close(grad[k], (double)((k / inner * counts[c] + i) * inner + k % inner + 1),
                                               d < 3 ? 0 : 1.0 / 128);
                        free(grad);
                    }
                    CHECK_INT(wrong, 0);
                }
                CHECK_OK(ignis_scope_end(scope));
            }
}

TEST(moves_refuse)
{
    static const int twice[] = {0, 0}, outside[] = {0, 2}, both[] = {0, 1};
    static const int64_t negative[] = {0, -1}, huge[] = {INT64_MAX, 0};
    ignis_scope scope;
    ignis_tensor a, b, eight, pair[2];
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, false);
    b = tensor_counting(IGNIS_SHAPE(3, 2), IGNIS_F32, 1, false);
    eight = tensor_counting(IGNIS_SHAPE(1, 1, 1, 1, 1, 1, 1, 2), IGNIS_F32, 1, false);
    CHECK_REFUSED(0, ignis_permute(a, twice, 2).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_MESSAGE_HAS("dimension 0 of [2, 3] is given twice");
    CHECK_REFUSED(0, ignis_permute(a, outside, 2).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_permute(a, both, 1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_REFUSED(0, ignis_permute(a, NULL, 2).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_flip(a, twice, 2).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_flip(a, both, -1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_flip(a, NULL, 1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_slice_step(a, 1, 0, 2, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_slice_step(a, 1, 0, 3, 2).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
    CHECK_MESSAGE_HAS("3 elements from 0 on in steps of 2 are outside dim 1 of shape [2, 3]");
    CHECK_REFUSED(0, ignis_slice_step(a, 1, 1, 3, -1).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
    CHECK_REFUSED(0, ignis_slice_step(a, 1, 3, 1, 1).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
    CHECK_REFUSED(0, ignis_slice_step(a, 1, -1, 1, 1).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
    CHECK_REFUSED(0, ignis_slice_step(a, 1, 0, 2, INT64_MIN).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
    CHECK_REFUSED(0, ignis_slice_step(a, 2, 0, 1, 1).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_INT(ignis_tensor_numel(ignis_slice_step(a, 1, 3, 0, 1)), 0);
    CHECK_REFUSED(0, ignis_pad(a, NULL, NULL, 1, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_REFUSED(0, ignis_pad(a, NULL, negative, 2, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("dimension 1 is padded by 0 and -1");
    CHECK_REFUSED(0, ignis_pad(a, huge, NULL, 2, 0).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_OVERFLOW);
    CHECK_REFUSED(0, ignis_expand(a, IGNIS_SHAPE(2, 4)).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_BROADCAST_SHAPE);
    CHECK_MESSAGE_HAS("[2, 3] does not broadcast to [2, 4]");
    CHECK_REFUSED(0, ignis_expand(a, IGNIS_SHAPE(3)).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_BROADCAST_SHAPE);
    CHECK_REFUSED(0, ignis_expand(a, IGNIS_SHAPE(-1, 2, 3)).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_BROADCAST_SHAPE);
    pair[0] = a, pair[1] = b;
    CHECK_REFUSED(0, ignis_stack(pair, 2, 0).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_PARTS_SHAPE);
    CHECK_MESSAGE_HAS("ignis_stack: tensor 1 is [3, 2], tensor 0 is [2, 3]; tensors of a stack have one shape");
    CHECK_REFUSED(0, ignis_stack(pair, 1, 3).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_stack(pair, 0, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_stack(NULL, 1, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_stack(&eight, 1, 0).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_RANK);
    pair[1] = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F16, 1, false);
    CHECK_REFUSED(0, ignis_stack(pair, 2, 0).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- elements by index -------------------------------------------------------------------------------------------- */

/*  Which element of the tensor [sizes] element i of `shape` belongs to; -1: none. index has the elements of shape, or,
    if it is a row, those of dim. */
static int64_t indexed_place(const ignis_shape *sizes, const ignis_shape *shape, int dim, bool row,
                             const int64_t *index, int64_t i)
{
    int64_t at[IGNIS_MAX_DIMS], rest = i, place = 0, id;
    int d;
    for (d = shape->ndim - 1; d >= 0; rest /= shape->dim[d--])
        at[d] = rest % shape->dim[d];
    id = index[row ? at[dim] : i];
    if (id < 0 || id >= sizes->dim[dim])
        return -1;
    for (d = 0; d < shape->ndim; d++)
        place = place * sizes->dim[d] + (d == dim ? id : at[d]);
    return place;
}

typedef struct indexed {
    ignis_shape sizes, shape;
    int dim;
    bool row, one; /* all elements go to one place */
} indexed;

static ignis_tensor index_tensor(const int64_t *index, ignis_shape shape, ignis_dtype dtype)
{
    ignis_tensor_desc desc = tensor_desc(dtype, false);
    desc.host_dtype = IGNIS_I64;
    return ignis_tensor_from_host(index, shape, &desc);
}

static void check_indexed(const indexed *c)
{
    ignis_shape ids = c->shape;
    int64_t numel = shape_numel(c->shape), from = shape_numel(c->sizes), i, wrong, place, *index, count;
    double *in = (double *)malloc(sizeof *in * (size_t)(from + 1)),
           *src = (double *)malloc(sizeof *in * (size_t)(numel + 1)), *got, *sums;
    int d;
    if (c->row)
        ids = IGNIS_SHAPE(c->shape.dim[c->dim]);
    count = shape_numel(ids);
    index = (int64_t *)malloc(sizeof *index * (size_t)(count + 1));
    sums = (double *)malloc(sizeof *sums * (size_t)(from + 1));
    for (i = 0; i < count; i++) {
        index[i] = c->one ? 0 : (int64_t)((noise(5, i) + 1) / 2 * (double)c->sizes.dim[c->dim]);
        if (!c->one && (i == 3 || i == 40))
            index[i] = i == 3 ? -1 : c->sizes.dim[c->dim];
    }
    for (i = 0; i < from; i++)
        in[i] = (double)(i * 7 % 61);
    for (i = 0; i < numel; i++)
        src[i] = c->one ? 1 : (double)(i * 5 % 7);
    for (d = 0; d < COUNT_OF(all_dtypes); d++) {
        bool differentiates = d < 4;
        double tolerance = d < 2 ? 0 : d == 2 ? 1.0 / 1024 : d == 3 ? 1.0 / 128 : 0; /* a sum in f32, rounded once */
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_of(in, c->sizes, all_dtypes[d], differentiates), y,
                     w = tensor_of(src, c->shape, all_dtypes[d], differentiates);
        ignis_tensor id = index_tensor(index, ids, d % 2 ? IGNIS_I32 : IGNIS_I64);
        y = c->row ? ignis_index_select(x, c->dim, id) : ignis_gather(x, c->dim, id);
        CHECK_OK(ignis_status_last());
        CHECK_SHAPE_IS(y, c->shape);
        got = tensor_values(y);
        memset(sums, 0, sizeof *sums * (size_t)from);
        for (i = 0, wrong = 0; i < numel; i++) {
            place = indexed_place(&c->sizes, &c->shape, c->dim, c->row, index, i);
            wrong += place >= 0 ? got[i] != in[place] : d < 4 ? got[i] == got[i] : got[i] != 0;
            if (place >= 0)
                sums[place] += src[i];
        }
        CHECK_INT(wrong, 0);
        free(got);
        if (differentiates) {
            CHECK_OK(ignis_backward(y, ignis_tensor_data(w)));
            got = array_values(ignis_tensor_grad(x));
            for (i = 0; i < from; i++)
                wrong += !is_close(got[i], sums[i], tolerance);
            CHECK_INT(wrong, 0);
            free(got);
        }
        if (!c->row) {
            y = ignis_scatter_add(x, c->dim, id, w);
            CHECK_OK(ignis_status_last());
            CHECK_SHAPE_IS(y, c->sizes);
            got = tensor_values(y);
            for (i = 0; i < from; i++)
                wrong += all_dtypes[d] == IGNIS_U8 ? (int64_t)got[i] != (int64_t)(in[i] + sums[i]) % 256
                                                   : !is_close(got[i], in[i] + sums[i], tolerance);
            CHECK_INT(wrong, 0);
            free(got);
        }
        if (!c->row && differentiates) {
            ignis_tensor weights = tensor_of(in, c->sizes, all_dtypes[d], false);
            CHECK_OK(ignis_zero_grad(x));
            CHECK_OK(ignis_backward(y, ignis_tensor_data(weights)));
            got = array_values(ignis_tensor_grad(x));
            for (i = 0; i < from; i++)
                wrong += got[i] != in[i];
            free(got);
            got = array_values(ignis_tensor_grad(w));
            for (i = 0; i < numel; i++) {
                place = indexed_place(&c->sizes, &c->shape, c->dim, c->row, index, i);
                wrong += got[i] != (place >= 0 ? in[place] : 0);
            }
            CHECK_INT(wrong, 0);
            free(got);
        }
        CHECK_OK(ignis_scope_end(scope));
    }
    free(in);
    free(src);
    free(sums);
    free(index);
}

TEST(gather_and_scatter_add)
{
    static const indexed cases[] = {
        {{1, {1}}, {1, {1}}, 0, false, false},
        {{1, {7}}, {1, {100}}, 0, false, false},
        {{2, {5, 3}}, {2, {9, 3}}, 0, false, false},
        {{2, {5, 3}}, {2, {4, 7}}, 1, false, false},
        {{2, {6, 31}}, {2, {2, 31}}, 0, false, false},
        {{3, {4, 6, 5}}, {3, {3, 13, 5}}, 1, false, false},
        {{3, {4, 6, 5}}, {3, {4, 6, 2}}, 2, false, false},
        {{2, {2, 0}}, {2, {2, 0}}, 1, false, false},
        {{2, {3, 4}}, {2, {0, 4}}, 0, false, false},
        {{2, {300, 3}}, {2, {1500, 3}}, 0, false, false}, /* keys of 16 bits, several tiles */
        {{2, {2, 1}}, {2, {1000, 1}}, 0, false, true},    /* one sum over many warps */
        {{1, {2}}, {1, {1000}}, 0, false, true},          /* and over one, by a warp of its own */
        {{2, {3, 40}}, {2, {3, 300}}, 1, false, false},
        {{1, {70000}}, {1, {50}}, 0, false, false}};
    int c;
    SETUP(NULL);
    for (c = 0; c < COUNT_OF(cases); c++)
        check_indexed(&cases[c]);
}

TEST(index_select)
{
    static const indexed cases[] = {{{1, {7}}, {1, {100}}, 0, true, false},
                                    {{2, {5, 3}}, {2, {9, 3}}, 0, true, false},
                                    {{2, {5, 3}}, {2, {5, 7}}, 1, true, false},
                                    {{2, {5, 48}}, {2, {9, 48}}, 0, true, false},
                                    {{3, {4, 6, 32}}, {3, {4, 45, 32}}, 1, true, false},
                                    {{3, {4, 6, 5}}, {3, {4, 13, 5}}, 1, true, false},
                                    {{3, {2, 3, 17}}, {3, {2, 3, 70}}, 2, true, false},
                                    {{3, {1, 3, 17}}, {3, {1, 5, 17}}, 1, true, false},
                                    {{2, {2, 3}}, {2, {2, 0}}, 1, true, false},
                                    {{2, {0, 3}}, {2, {0, 4}}, 1, true, false}};
    int c;
    SETUP(NULL);
    for (c = 0; c < COUNT_OF(cases); c++)
        check_indexed(&cases[c]);
}

/*  Sums in f32 whose last bits depend on the order are the same every time. */
TEST(scatter_add_is_the_same_every_time)
{
    enum { COUNT = 3000, PLACES = 7 };
    int64_t index[COUNT], i;
    float first[PLACES], again[PLACES];
    ignis_scope scope;
    ignis_tensor zeros, src, id;
    int turn, ndim;
    SETUP(NULL);
    for (i = 0; i < COUNT; i++)
        index[i] = (int64_t)((noise(1, i) + 1) / 2 * PLACES);
    for (ndim = 1; ndim <= 2; ndim++) { /* along the last dimension, and another one */
        scope = ignis_scope_begin();
        id = index_tensor(index, ndim == 1 ? IGNIS_SHAPE(COUNT) : IGNIS_SHAPE(COUNT, 1), IGNIS_I64);
        zeros = ignis_tensor_zeros(ndim == 1 ? IGNIS_SHAPE(PLACES) : IGNIS_SHAPE(PLACES, 1), NULL);
        src = tensor_noise(ndim == 1 ? IGNIS_SHAPE(COUNT) : IGNIS_SHAPE(COUNT, 1), IGNIS_F32, 2, false);
        for (turn = 0; turn < 3; turn++) {
            CHECK_OK(
                ignis_tensor_to_host(ignis_scatter_add(zeros, 0, id, src), turn ? again : first, IGNIS_F32, PLACES));
            CHECK(turn == 0 || memcmp(first, again, sizeof first) == 0);
        }
        for (turn = 0; turn < PLACES;
             turn++) { /* and they are sums: 430 terms of 1 at most, one after the other or in a tree */
            double sum = 0;
            for (i = 0; i < COUNT; i++)
                sum += index[i] == turn ? (double)(float)noise(2, i) : 0;
            CHECK_CLOSE(first[turn], sum, 1e-5);
        }
        CHECK_OK(ignis_scope_end(scope));
    }
}

TEST(index_refusals)
{
    static const int64_t ids[] = {0, 1, 0, 1, 0, 1};
    ignis_scope scope;
    ignis_tensor a, id, flat, wide, floats;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, false);
    id = index_tensor(ids, IGNIS_SHAPE(2, 3), IGNIS_I64);
    flat = index_tensor(ids, IGNIS_SHAPE(6), IGNIS_I64);
    wide = index_tensor(ids, IGNIS_SHAPE(1, 6), IGNIS_I32);
    floats = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, false);
    CHECK_REFUSED(0, ignis_gather(a, 2, id).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_gather(a, 0, floats).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("index is f32; i32 or i64 is needed");
    CHECK_REFUSED(0, ignis_gather(a, 0, flat).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_gather(a, 0, wide).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("index is [1, 6], the tensor is [2, 3]; it may be larger in dimension 0 only");
    CHECK_REFUSED(0, ignis_scatter_add(a, 1, wide, a).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("src is [2, 3], index is [1, 6]");
    CHECK_REFUSED(0, ignis_scatter_add(a, 1, id, tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F16, 1, false)).id,
                  IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_index_select(a, 0, id).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("index is [2, 3], and not one row");
    CHECK_REFUSED(0, ignis_index_select(a, -3, flat).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_index_select(a, 0, floats).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- sums up to each element -------------------------------------------------------------------------------------- */

static void check_cumsum(ignis_shape shape, int dim)
{
    int64_t numel = shape_numel(shape), n = shape.dim[dim], inner = 1, i, k, wrong;
    double *in, *weights, *got;
    int d;
    for (d = dim + 1; d < shape.ndim; d++)
        inner *= shape.dim[d];
    for (d = 0; d < 6; d++) { /* all dtypes but u8 */
        ignis_dtype dtype = all_dtypes[d];
        /* sums of up to n numbers below 1 in f32, in a tree or up to 128 of them in order, and one rounding */
        double tolerance = d == 0 ? 1e-12 : d == 1 ? 1e-5 : d == 2 ? 1.0 / 1024 : d == 3 ? 1.0 / 128 : 0;
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x, y, w;
        in = rounded_noise(shape, dtype, 5, d < 4 ? 1 : 100);
        weights = rounded_noise(shape, d < 4 ? dtype : IGNIS_F64, 6, 1);
        x = tensor_of(in, shape, dtype, d < 4);
        y = ignis_cumsum(x, dim);
        CHECK_OK(ignis_status_last());
        CHECK_SHAPE_IS(y, shape);
        got = tensor_values(y);
        for (i = 0, wrong = 0; i < numel; i++) {
            double sum = 0;
            for (k = i - i / inner % n * inner; k <= i; k += inner)
                sum += in[k];
            wrong += !is_close(got[i], sum, tolerance);
        }
        CHECK_INT(wrong, 0);
        free(got);
        if (d < 4) {
            w = tensor_of(weights, shape, dtype, false);
            CHECK_OK(ignis_backward(y, ignis_tensor_data(w)));
            got = array_values(ignis_tensor_grad(x));
            for (i = 0; i < numel; i++) {
                double sum = 0;
                for (k = i + (n - 1 - i / inner % n) * inner; k >= i; k -= inner)
                    sum += weights[k];
                wrong += !is_close(got[i], sum, tolerance);
            }
            CHECK_INT(wrong, 0);
            free(got);
        }
        free(in);
        free(weights);
        CHECK_OK(ignis_scope_end(scope));
    }
}

TEST(cumsum)
{
    static const ignis_shape shapes[] = {{1, {1}},       {1, {0}},          {1, {37}},        {2, {5, 3}},
                                         {2, {3, 0}},    {2, {9, 64}},      {2, {2, 1000}},   {2, {1, 1031}},
                                         {2, {2, 2048}}, {1, {9001}},       {3, {2, 700, 3}}, {3, {3, 5, 7}},
                                         {2, {300, 2}},  {4, {2, 3, 2, 8}}, {2, {3, 6016}}};
    int s, dim;
    SETUP(NULL);
    for (s = 0; s < COUNT_OF(shapes); s++)
        for (dim = 0; dim < shapes[s].ndim; dim++)
            check_cumsum(shapes[s], dim);
}

/*  One long row is the work of several blocks; whole packs and not, and more tiles than a group has. */
TEST(cumsum_of_a_long_row)
{
    static const int64_t sizes[] = {40000, 40961, 2048 * 257 + 6};
    int s, turn;
    SETUP(NULL);
    for (s = 0; s < COUNT_OF(sizes); s++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(sizes[s]), s == 2 ? IGNIS_F64 : IGNIS_F32, 4, true),
                     y = ignis_cumsum(x, -1);
        double *in = tensor_values(x), *got = tensor_values(y), *again, *grad, sum = 0;
        int64_t i, wrong = 0;
        for (i = 0; i < sizes[s]; i++) {
            sum += in[i];
            wrong += !is_close(got[i], sum, 2e-5);
        }
        CHECK_OK(ignis_backward(y, ignis_tensor_data(x)));
        grad = array_values(ignis_tensor_grad(x));
        for (i = sizes[s], sum = 0; i-- > 0;) {
            sum += in[i];
            wrong += !is_close(grad[i], sum, 2e-5);
        }
        CHECK_INT(wrong, 0);
        for (turn = 0; turn < (s < 2 ? 2 : 0); turn++) {
            again = tensor_values(ignis_cumsum(x, 0));
            CHECK(memcmp(again, got, sizeof *got * (size_t)sizes[s]) == 0);
            free(again);
        }
        free(in);
        free(got);
        free(grad);
        CHECK_OK(ignis_scope_end(scope));
    }
}

TEST(cumsum_of_integers_wraps)
{
    const int64_t values[] = {INT64_MAX, 1, 5};
    ignis_scope scope;
    ignis_tensor x;
    int64_t got[3];
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = index_tensor(values, IGNIS_SHAPE(3), IGNIS_I64);
    CHECK_OK(ignis_tensor_to_host(ignis_cumsum(x, 0), got, IGNIS_I64, 3));
    CHECK(got[0] == INT64_MAX && got[1] == INT64_MIN && got[2] == INT64_MIN + 5);
    CHECK_REFUSED(0, ignis_cumsum(x, 1).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_cumsum(tensor_counting(IGNIS_SHAPE(2), IGNIS_U8, 1, false), 0).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- patterns ----------------------------------------------------------------------------------------------------- */

TEST(arange_and_linspace)
{
    static const double lines[][3] = {{0, 5, 1},   {0, 5, 2},    {3, -4, -1.5},    {2, 2, 1},
                                      {1, 100, 1}, {0, 9001, 1}, {-0.5, 0.5, 0.25}};
    static const int64_t counts[] = {0, 1, 2, 3, 8, 37, 5000};
    ignis_scope scope;
    int l, d;
    int64_t i, n, wrong;
    SETUP(NULL);
    for (d = 0; d < COUNT_OF(all_dtypes); d++)
        for (l = 0; l < COUNT_OF(lines) + COUNT_OF(counts); l++) {
            ignis_tensor_desc desc = tensor_desc(all_dtypes[d], false);
            const double *line = lines[l % COUNT_OF(lines)];
            double *values, *got;
            ignis_tensor x, y;
            scope = ignis_scope_begin();
            if (l < COUNT_OF(lines)) {
                x = ignis_tensor_arange(line[0], line[1], line[2], &desc);
                n = (int64_t)ceil((line[1] - line[0]) / line[2]);
            } else {
                n = counts[l - COUNT_OF(lines)];
                x = ignis_tensor_linspace(-1, 3, n, &desc);
            }
            CHECK_OK(ignis_status_last());
            CHECK_SHAPE_IS(x, IGNIS_SHAPE(n));
            values = (double *)malloc(sizeof *values * (size_t)(n + 1));
            for (i = 0; i < n; i++)
                values[i] = l < COUNT_OF(lines) ? line[0] + (double)i * line[2]
                            : n == 1            ? -1
                            : 2 * i < n         ? -1 + 4 / (double)(n - 1) * (double)i
                                                : 3 - 4 / (double)(n - 1) * (double)(n - 1 - i);
            y = tensor_of(values, IGNIS_SHAPE(n), all_dtypes[d],
                          false); /* rounded once, or cut to integers that saturate */
            got = tensor_values(x);
            free(values);
            values = tensor_values(y);
            for (i = 0, wrong = 0; i < n; i++) /* the last bit of a double may differ: a multiply-add rounds once */
                wrong += !is_close(got[i], values[i],
                                   d == 0                ? 1e-15
                                   : l < COUNT_OF(lines) ? 0
                                   : d == 1              ? 1e-7
                                   : d == 2              ? 1e-3
                                   : d == 3              ? 1e-2
                                                         : 1);
            CHECK_INT(wrong, 0);
            if (l >= COUNT_OF(lines) && n > 1)
                CHECK(got[0] == values[0] && got[n - 1] == values[n - 1]);
            free(got);
            free(values);
            CHECK_OK(ignis_scope_end(scope));
        }
    CHECK_REFUSED(0, ignis_tensor_arange(0, 5, -1, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("from 0 to 5 in steps of -1");
    CHECK_REFUSED(0, ignis_tensor_arange(0, 5, 0, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_tensor_arange(0, NAN, 1, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_tensor_linspace(0, 1, -1, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_tensor_eye(-1, 2, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIM);
}

/*  Whole numbers of 64 bits beyond 2^53, of which a double has not all. */
TEST(lines_of_large_integers)
{
    ignis_tensor_desc desc = tensor_desc(IGNIS_I64, false);
    ignis_scope scope;
    ignis_tensor x[3];
    int64_t got[9];
    int i, k;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x[0] = ignis_tensor_arange(9007199254740992, 9007199254741010, 2, &desc);
    x[1] = ignis_tensor_linspace(9007199254740992, 9007199254741000, 9, &desc);
    x[2] = ignis_tensor_linspace(-9007199254740996, -9007199254741004, 9, &desc);
    for (k = 0; k < 3; k++) {
        CHECK_OK(ignis_tensor_to_host(x[k], got, IGNIS_I64, 9));
        for (i = 0; i < 9; i++)
            CHECK_INT(got[i], k == 2 ? -9007199254740996 - i : 9007199254740992 + (k == 0 ? 2 : 1) * i);
    }
    CHECK_OK(ignis_scope_end(scope));
}

TEST(eye_and_triangles)
{
    static const ignis_shape shapes[] = {{2, {1, 1}},      {2, {5, 3}}, {2, {3, 5}},        {3, {2, 7, 16}},
                                         {3, {3, 65, 33}}, {2, {0, 3}}, {4, {2, 2, 16, 16}}};
    static const int64_t diagonals[] = {0, 1, -1, 3, -100, 100, INT64_MIN, INT64_MAX};
    ignis_tensor row;
    int s, k, d, upper;
    SETUP(NULL);
    for (s = 0; s < COUNT_OF(shapes); s++)
        for (d = 0; d < COUNT_OF(all_dtypes); d++)
            for (k = 0; k < (d < 2 ? COUNT_OF(diagonals) : 2); k++)
                for (upper = 0; upper < 2; upper++) {
                    ignis_scope scope = ignis_scope_begin();
                    const ignis_shape *shape = &shapes[s];
                    int64_t numel = shape_numel(*shape), columns = shape->dim[shape->ndim - 1],
                            rows = shape->dim[shape->ndim - 2], i, wrong = 0;
                    ignis_tensor_desc desc = tensor_desc(all_dtypes[d], false);
                    ignis_tensor x = tensor_counting(*shape, all_dtypes[d], 1, d < 4);
                    ignis_tensor y = upper ? ignis_triu(x, diagonals[k]) : ignis_tril(x, diagonals[k]),
                                 eye = ignis_tensor_eye(rows, columns, &desc);
                    double *in = tensor_values(x), *got = tensor_values(y), *ones = tensor_values(eye), *grad = NULL;
                    CHECK_OK(ignis_status_last());
                    if (d < 4) {
                        CHECK_OK(ignis_backward(y, ignis_tensor_data(x)));
                        grad = array_values(ignis_tensor_grad(x));
                    }
                    for (i = 0; i < numel; i++) {
                        int64_t diagonal = i % columns - i / columns % rows;
                        bool kept = upper ? diagonal >= diagonals[k] : diagonal <= diagonals[k];
                        wrong += got[i] != (kept ? in[i] : 0) || (grad && grad[i] != (kept ? in[i] : 0));
                        wrong += i < rows * columns && ones[i] != (diagonal == 0);
                    }
                    CHECK_INT(wrong, 0);
                    free(in);
                    free(got);
                    free(ones);
                    free(grad);
                    CHECK_OK(ignis_scope_end(scope));
                }
    row = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    CHECK_REFUSED(0, ignis_tril(row, 0).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_RANK);
    CHECK_MESSAGE_HAS("[3]; two dimensions or more are needed");
    let_go(row);
}

TEST(one_hot)
{
    static const int64_t classes[] = {1, 5, 16, 37, 0}, ids[] = {0, 4, -1, 3, 36, 37, 2, 2, 15, 16};
    int c, d;
    SETUP(NULL);
    for (c = 0; c < COUNT_OF(classes); c++)
        for (d = 0; d < COUNT_OF(all_dtypes); d++) {
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor x = index_tensor(ids, IGNIS_SHAPE(2, 5), d % 2 ? IGNIS_I64 : IGNIS_I32),
                         y = ignis_one_hot(x, classes[c], all_dtypes[d]);
            double *got = tensor_values(y);
            int64_t i, wrong = 0;
            CHECK_OK(ignis_status_last());
            CHECK_SHAPE_IS(y, IGNIS_SHAPE(2, 5, classes[c]));
            for (i = 0; i < 10 * classes[c]; i++)
                wrong += got[i] != (i % classes[c] == ids[i / classes[c]]);
            CHECK_INT(wrong, 0);
            free(got);
            CHECK_REFUSED(0, ignis_one_hot(x, -1, IGNIS_F32).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
            CHECK_REFUSED(0, ignis_one_hot(x, 3, (ignis_dtype)99).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
            CHECK_REFUSED(0, ignis_one_hot(tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false), 3, IGNIS_F32).id,
                          IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
            CHECK_OK(ignis_scope_end(scope));
        }
}

/* --- sort, topk --------------------------------------------------------------------------------------------------- */

static bool sort_less(double a, double b) /* NaN is the largest */ { return a == a && (b != b || a < b); }

/*  Checks values and indices [outer, k, inner] of in [outer, n, inner]: the order, stability, and that they are the
    first ones. */
static void check_sorted(const double *in, const double *values, const double *indices, int64_t outer, int64_t n,
                         int64_t inner, int64_t k, bool descending)
{
    int64_t o, c, i, wrong = 0;
    char *seen = (char *)malloc((size_t)n + 1);
    for (o = 0; o < outer; o++)
        for (c = 0; c < inner; c++) {
            double last = 0;
            memset(seen, 0, (size_t)n + 1);
            for (i = 0; i < k; i++) {
                int64_t at = (o * k + i) * inner + c, id = (int64_t)indices[at],
                        before = i ? (int64_t)indices[at - inner] : 0;
                double value = values[at], other = i ? values[at - inner] : 0,
                       from = id >= 0 && id < n ? in[(o * n + id) * inner + c] : 12345;
                wrong += id < 0 || id >= n || seen[id]++ || (value != from && (value == value || from == from));
                if (i)
                    wrong += descending ? sort_less(other, value) : sort_less(value, other);
                if (i && !sort_less(other, value) && !sort_less(value, other))
                    wrong += id < before;
                last = value;
            }
            for (i = 0; k > 0 && i < n;
                 /* none that is left would come before the last, and of equal ones those with lower indices are in */
                 i++)
                if (!seen[i]) {
                    double left = in[(o * n + i) * inner + c];
                    wrong += descending ? sort_less(last, left) : sort_less(left, last);
                    if (!sort_less(last, left) && !sort_less(left, last))
                        wrong += i < (int64_t)indices[(o * k + k - 1) * inner + c];
                }
        }
    CHECK_INT(wrong, 0);
    free(seen);
}

static void check_sort(ignis_shape shape, int dim, int64_t k, int first_dtype, int last_dtype)
{
    int64_t numel = shape_numel(shape), n = shape.dim[dim], outer = 1, inner = 1, i, wrong;
    double *in = (double *)malloc(sizeof *in * (size_t)(numel + 1)), *got, *places, *grad;
    int d, descending;
    for (d = 0; d < shape.ndim; d++)
        *(d < dim ? &outer : &inner) *= d == dim ? 1 : shape.dim[d];
    for (d = first_dtype; d < last_dtype; d++)
        for (descending = 0; descending < 2; descending++) {
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor x, y, indices;
            for (i = 0; i < numel;
                 i++) { /* a few values, many times; in floating types with NaN, both zeros and infinities */
                in[i] = all_dtypes[d] == IGNIS_U8 ? floor((noise(3, i) + 1) * 127)
                                                  : floor(noise(3, i) * (n > 100 ? 1e6 : 20));
                if (d < 4) {
                    in[i] = in[i] / 8;
                    in[i] = i % 17 == 3   ? NAN
                            : i % 17 == 5 ? 0.0
                            : i % 17 == 9 ? -0.0
                            : i % 61 == 7 ? INFINITY
                            : i % 61 == 9 ? -INFINITY
                                          : in[i];
                }
            }
            x = tensor_of(in, shape, all_dtypes[d], d < 4);
            got = tensor_values(x);
            memcpy(in, got, sizeof *in * (size_t)numel); /* as rounded */
            free(got);
            y = k < 0 ? ignis_sort(x, dim, descending != 0, &indices)
                      : ignis_topk(x, k, dim, descending != 0, &indices);
            CHECK_OK(ignis_status_last());
            CHECK_INT(shape_of(y).dim[dim], k < 0 ? n : k);
            CHECK_INT(tensor_info(indices).dtype, IGNIS_I64);
            CHECK_SHAPE_IS(indices, shape_of(y));
            got = tensor_values(y);
            places = tensor_values(indices);
            check_sorted(in, got, places, outer, n, inner, k < 0 ? n : k, descending != 0);
            if (d < 4) { /* each gets the gradient of where it has gone */
                int64_t kept = k < 0 ? n : k, at;
                double *expected = (double *)calloc((size_t)numel + 1, sizeof *expected), *weights;
                ignis_tensor w = tensor_noise(shape_of(y), all_dtypes[d], 8, false);
                weights = tensor_values(w);
                CHECK_OK(ignis_backward(y, ignis_tensor_data(w)));
                for (at = 0; at < outer * kept * inner; at++)
                    expected[(at / inner / kept * n + (int64_t)places[at]) * inner + at % inner] = weights[at];
                grad = array_values(ignis_tensor_grad(x));
                for (i = 0, wrong = 0; i < numel; i++)
                    wrong += grad[i] != expected[i];
                CHECK_INT(wrong, 0);
                free(grad);
                free(expected);
                free(weights);
            }
            free(got);
            free(places);
            CHECK_OK(ignis_scope_end(scope));
        }
    free(in);
}

TEST(sort)
{
    static const ignis_shape shapes[] = {{1, {1}},    {1, {2}},      {1, {37}},       {2, {5, 3}},
                                         {2, {3, 0}}, {2, {70, 33}}, {3, {2, 19, 3}}, {2, {3, 1025}}};
    int s, dim;
    SETUP(NULL);
    for (s = 0; s < COUNT_OF(shapes); s++)
        for (dim = 0; dim < shapes[s].ndim; dim++)
            check_sort(shapes[s], dim, -1, 0, COUNT_OF(all_dtypes));
}

/*  Rows that a block sorts by itself, from the first that is no bitonic network's to the longest. */
TEST(sort_of_rows_of_a_block)
{
    SETUP(NULL);
    check_sort(IGNIS_SHAPE(2, 257), 1, -1, 0, COUNT_OF(all_dtypes));
    check_sort(IGNIS_SHAPE(4097), 0, -1, 0, 4);
    check_sort(IGNIS_SHAPE(8192), 0, -1, 0, 2);
    check_sort(IGNIS_SHAPE(2, 3000), 1, 2000, 1, 2);
}

/*  Rows that shared memory cannot hold: all passes of the radix sort, in several tiles. */
TEST(sort_of_long_rows)
{
    SETUP(NULL);
    check_sort(IGNIS_SHAPE(2, 8193), 1, -1, 0, COUNT_OF(all_dtypes));
    check_sort(IGNIS_SHAPE(12288), 0, -1, 1, 2); /* whole tiles */
    check_sort(IGNIS_SHAPE(9001, 2), 0, -1, 1, 3);
    check_sort(IGNIS_SHAPE(2, 70000), 1, -1, 0, 1); /* more than a block counts: 18 tiles of 64 bits */
}

TEST(topk)
{
    SETUP(NULL);
    check_sort(IGNIS_SHAPE(1), 0, 1, 0, COUNT_OF(all_dtypes));
    check_sort(IGNIS_SHAPE(3, 37), 1, 5, 0, COUNT_OF(all_dtypes));
    check_sort(IGNIS_SHAPE(3, 37), 1, 0, 0, 2);
    check_sort(IGNIS_SHAPE(20, 3), 0, 7, 0, 2);
    check_sort(IGNIS_SHAPE(3, 5000), 1, 10, 0, COUNT_OF(all_dtypes)); /* selected */
    check_sort(IGNIS_SHAPE(2, 5000), 1, 1000, 1, 3);                  /* selected, a whole list of items */
    check_sort(IGNIS_SHAPE(5000, 2), 0, 3, 1, 2);
    check_sort(IGNIS_SHAPE(2, 5000), 1, 1025, 1, 2); /* sorted, and cut */
}

/*  Few long rows: of parts, of what is left of these, and so on. Many rows: a block each. */
TEST(topk_of_long_rows)
{
    int processors;
    SETUP(NULL);
    processors = ignis__devices[0].info.multiprocessors;
    check_sort(IGNIS_SHAPE(2, 8192), 1, 1024, 1, 2);
    check_sort(IGNIS_SHAPE(2, 8193), 1, 50, 0, COUNT_OF(all_dtypes)); /* 3 parts of different lengths */
    check_sort(IGNIS_SHAPE(16385), 0, 1, 0, COUNT_OF(all_dtypes));
    check_sort(IGNIS_SHAPE(3, 8199), 1, 1023, 0, COUNT_OF(all_dtypes));
    check_sort(IGNIS_SHAPE(40001), 0, 1024, 0, 3); /* 10 parts, then 3 */
    check_sort(IGNIS_SHAPE(9001, 2), 0, 65, 1, 2);
    ignis__devices[0].info.multiprocessors = 2;
    check_sort(IGNIS_SHAPE(2, 9001), 1, 33, 0, COUNT_OF(all_dtypes));
    check_sort(IGNIS_SHAPE(3, 4097), 1, 1024, 0, COUNT_OF(all_dtypes));
    ignis__devices[0].info.multiprocessors = processors;
}

/*  Positions of more than 16 bits, whatever the dtype. */
TEST(topk_at_the_end_of_a_long_row)
{
    enum { COUNT = 70000 };
    double *values = (double *)calloc(COUNT, sizeof *values);
    int d;
    SETUP(NULL);
    values[COUNT - 3] = 7, values[COUNT - 1] = 9;
    for (d = 0; d < COUNT_OF(all_dtypes); d++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor indices,
            top = ignis_topk(tensor_of(values, IGNIS_SHAPE(COUNT), all_dtypes[d], false), 3, 0, true, &indices);
        CHECK_NUMBER(value_at(indices, 0), COUNT - 1);
        CHECK_NUMBER(value_at(indices, 1), COUNT - 3);
        CHECK_NUMBER(value_at(indices, 2), 0);
        CHECK_NUMBER(value_at(top, 0), 9);
        CHECK_NUMBER(value_at(top, 1), 7);
        CHECK_OK(ignis_scope_end(scope));
    }
    free(values);
}

TEST(topk_of_equal_elements)
{
    ignis_scope scope;
    ignis_tensor x, indices;
    int64_t k;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = ignis_tensor_ones(IGNIS_SHAPE(6000), NULL);
    CHECK(ignis_topk(x, 300, 0, true, &indices).id != 0);
    for (k = 0; k < 300; k += 23)
        CHECK_NUMBER(value_at(indices, k), (double)k);
    CHECK(ignis_topk(x, 1024, 0, false, &indices).id != 0); /* as many as there is room for */
    CHECK_NUMBER(value_at(indices, 1023), 1023);
    CHECK(ignis_topk(ignis_tensor_ones(IGNIS_SHAPE(20001), NULL), 1000, 0, true, &indices).id != 0); /* of parts */
    for (k = 0; k < 1000; k += 37)
        CHECK_NUMBER(value_at(indices, k), (double)k);
    CHECK(ignis_sort(x, 0, true, NULL).id != 0);
    CHECK_REFUSED(0, ignis_topk(x, 6001, 0, true, &indices).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("k is 6001, outside 0 to the 6000 of dimension 0 of [6000]");
    CHECK_INT(indices.id, 0);
    CHECK_REFUSED(0, ignis_topk(x, -1, 0, true, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_sort(x, 1, true, &indices).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- masks -------------------------------------------------------------------------------------------------------- */

/*  Floats of 8 bits are moved, ordered, counted and computed with by formulas; what networks do with numbers is
    refused. */
TEST(floats_of_8_bits)
{
    static const double values[6] = {3, -0.5, 448, 2, -7, 0};
    static const int dims[2] = {1, 0};
    ignis_scope scope;
    ignis_dtype dtype;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (dtype = IGNIS_F8_E4M3; dtype <= IGNIS_F8_E5M2; dtype = (ignis_dtype)(dtype + 1)) {
        ignis_tensor wide = tensor_of(values, IGNIS_SHAPE(2, 3), IGNIS_F32, false), x = ignis_cast(wide, dtype),
                     indices = no_tensor(), t;
        CHECK_INT(tensor_info(x).dtype, dtype);
        CHECK_NUMBER(ignis_item(ignis_slice(ignis_reshape(x, IGNIS_SHAPE(6)), 0, 1, 1)), -0.5);
        CHECK_NUMBER(value_at(ignis_permute(x, dims, 2), 3), -7);
        CHECK_NUMBER(value_at(ignis_flip(x, dims, 1), 0), 448);
        t = ignis_sort(x, 1, true, &indices);
        CHECK_NUMBER(value_at(t, 0), 448);
        CHECK_NUMBER(value_at(t, 5), -7);
        CHECK_NUMBER(value_at(indices, 0), 2);
        CHECK_NUMBER(value_at(ignis_tril(x, 0), 1), 0);
        CHECK_NUMBER(value_at(ignis_index_select(x, 1, tensor_of(values + 5, IGNIS_SHAPE(1), IGNIS_I64, false)), 1), 2);
        CHECK_NUMBER(value_at(ignis_one_hot(tensor_of(values + 3, IGNIS_SHAPE(1), IGNIS_I64, false), 3, dtype), 2), 1);
        t = ignis_map("x * 2", IGNIS_INPUTS(x));
        CHECK_INT(tensor_info(t).dtype, IGNIS_F32);
        CHECK_NUMBER(value_at(t, 2), 896);
        CHECK_NUMBER(value_at(ignis_cast(t, IGNIS_F8_E4M3), 2), 448); /* saturates */
        CHECK_REFUSED(0, ignis_cumsum(x, 0).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
        CHECK_REFUSED(0, ignis_matmul(x, x).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
        CHECK_REFUSED(0, ignis_softmax(x).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
        CHECK_REFUSED(INT64_MIN, ignis_item_i64(ignis_slice(ignis_reshape(x, IGNIS_SHAPE(6)), 0, 1, 1)),
                      IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
        CHECK_REFUSED(0, ignis_tensor_from_array(ignis_tensor_data(x), true).id, IGNIS_ERROR_DTYPE,
                      IGNIS_DIAG_GRAD_OF_INTEGERS);
    }
    CHECK_OK(ignis_scope_end(scope));
}

/*  Comparisons and masked fills are formulas: a mask of u8, spread over a tensor of any floating type, that stops the
    gradient. */
TEST(masks_are_formulas)
{
    int d;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_counting(IGNIS_SHAPE(3, 5), all_dtypes[d], 1, true),
                     row = tensor_counting(IGNIS_SHAPE(5), all_dtypes[d], 2, false);
        ignis_tensor mask = ignis_map("row > 5", IGNIS_INPUTS(row)), y;
        double *got, *grad;
        int i;
        CHECK_OK(ignis_status_last());
        CHECK_INT(tensor_info(mask).dtype, IGNIS_U8);
        y = ignis_map("mask ? fill : x", IGNIS_INPUTS(mask, x, IGNIS_VALUE(fill, -8)));
        CHECK_INT(tensor_info(y).dtype, all_dtypes[d]);
        CHECK_OK(ignis_backward(y, ignis_tensor_data(ignis_detach(x))));
        got = tensor_values(y);
        grad = array_values(ignis_tensor_grad(x));
        for (i = 0; i < 15; i++) {
            bool filled = 2 * (i % 5 + 1) > 5;
            CHECK_NUMBER(value_at(mask, i % 5), filled);
            CHECK_NUMBER(got[i], filled ? -8 : i + 1);
            CHECK_NUMBER(grad[i], filled ? 0 : i + 1);
        }
        free(got);
        free(grad);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/* --- what all operations here have in common ---------------------------------------------------------------------- */

/*  Each operation as a function of x [6, 5]; what else it needs is made before, as a graph cannot copy from the host.
    */
static struct {
    ignis_tensor index, row;
} common;

static void common_begin(void)
{
    static const int64_t ids[] = {3, 0, 5, 3, 2, 1, 1, 0, 5, 5};
    common.index = index_tensor(ids, IGNIS_SHAPE(2, 5), IGNIS_I64);
    common.row = index_tensor(ids, IGNIS_SHAPE(4), IGNIS_I32);
}

static void common_end(void)
{
    let_go(common.index);
    let_go(common.row);
}

static ignis_tensor common_run(int which, ignis_tensor x)
{
    static const int dims[] = {1, 0};
    static const int64_t widths[] = {1, 2};
    switch (which) {
    case 0: return ignis_permute(x, dims, 2);
    case 1: return ignis_flip(x, dims, 1);
    case 2: return ignis_slice_step(x, 0, 5, 3, -2);
    case 3: return ignis_pad(x, widths, NULL, 2, 1);
    case 4: return ignis_expand(x, IGNIS_SHAPE(2, 6, 5));
    case 5: return ignis_stack(&x, 1, 1);
    case 6: return ignis_gather(x, 0, common.index);
    case 7: return ignis_index_select(x, 0, common.row);
    case 8: return ignis_scatter_add(x, 0, common.index, ignis_slice(x, 0, 1, 2));
    case 9: return ignis_cumsum(x, 0);
    case 10: return ignis_cumsum(x, 1);
    case 11: return ignis_tril(x, 1);
    case 12: return ignis_sort(x, 0, true, NULL);
    case 13: return ignis_topk(x, 2, 1, false, NULL);
    default: return no_tensor();
    }
}
enum { COMMON = 14 };

static ignis_tensor common_call(const ignis_tensor *x, int count, void *which)
{
    (void)count;
    return common_run(*(const int *)which, x[0]);
}

TEST(gradients_agree_with_differences)
{
    int which;
    SETUP(NULL);
    common_begin();
    for (which = 0; which < COMMON; which++) {
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(6, 5), IGNIS_F64, 3, true);
        CHECK(ignis_gradcheck(common_call, &which, &x, 1, NULL) < 1e-6);
        CHECK_OK(ignis_status_last());
        let_go(x);
    }
    common_end();
}

TEST(backward_walks_once)
{
    int which;
    SETUP(NULL);
    common_begin();
    for (which = 0; which < COMMON; which++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor loss = ignis_sum(common_run(which, tensor_noise(IGNIS_SHAPE(6, 5), IGNIS_F32, 3, true)));
        CHECK_OK(ignis_backward_retain(loss, IGNIS_NO_ARRAY));
        CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
        CHECK_STATUS(ignis_backward(loss, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_TWICE);
        CHECK_OK(ignis_scope_end(scope));
    }
    common_end();
}

/*  A graph computes values and gradients anew from what its input holds when it is launched. */
TEST(graphs)
{
    int which, i;
    SETUP(NULL);
    common_begin();
    for (which = 0; which < COMMON; which++) {
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(6, 5), IGNIS_F32, 3, true), y = no_tensor();
        double *values = NULL, *grad = NULL, *noise_values;
        ignis_graph graph = {0};
        for (i = 0; i < 2; i++) {
            ignis_scope scope = ignis_scope_begin();
            if (i == 1)
                CHECK_OK(ignis_graph_begin());
            y = common_run(which, x);
            CHECK_OK(ignis_backward(ignis_sum(ignis_mul(y, y)), IGNIS_NO_ARRAY));
            if (i == 1)
                graph = ignis_graph_end();
            if (i == 0) {
                values = tensor_values(y);
                grad = array_values(ignis_tensor_grad(x));
                CHECK_OK(ignis_array_zero(ignis_tensor_grad(x)));
                CHECK_OK(ignis_scope_end(scope));
                continue;
            }
            y = ignis_scope_return(scope, y);
            CHECK_OK(ignis_graph_launch(graph));
            noise_values = tensor_values(y);
            CHECK(memcmp(noise_values, values, sizeof *values * (size_t)numel_of(y)) == 0);
            free(noise_values);
            noise_values = array_values(ignis_tensor_grad(x));
            CHECK(memcmp(noise_values, grad, sizeof *grad * 30) == 0);
            free(noise_values);
        }
        CHECK_OK(ignis_graph_free(graph));
        free(values);
        free(grad);
        let_go(y);
        let_go(x);
    }
    common_end();
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/*  Operations of several arrays, x [6, 5]; columns too, which are moved before they are sorted or added up. */
static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    const ignis_tensor x = inputs[0];
    ignis_tensor indices = no_tensor(), other,
                 y = ignis_expand(ignis_reshape(x, IGNIS_SHAPE(1, 6, 1, 5)), IGNIS_SHAPE(2, 6, 3, 5));
    (void)at;
    y = ignis_sort(y, 1, true, &indices);
    other = ignis_topk(ignis_gather(y, 1, indices), 2, 3, false, NULL);
    y = ignis_scatter_add(y, 1, indices, y);
    y = ignis_index_select(y, 1, common.row);
    y = ignis_add(ignis_sum(ignis_mul(y, y)), ignis_sum(other));
    if (indices.id)
        ignis_tensor_release(indices);
    return y;
}

/*  Each call of driver functions of a name, or each allocation on the host where that is null, fails once: a clean
    failure each time, nothing stays behind, and the next time all is well. */
static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor inputs[1];
    SETUP(&desc);
    common_begin();
    inputs[0] = tensor_noise(IGNIS_SHAPE(6, 5), IGNIS_F32, 1, true);
    sweep_walks(prefix, &counter, everything, inputs);
    let_go(inputs[0]);
    common_end();
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_set_fails_once) { sweep("cuMemset"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
