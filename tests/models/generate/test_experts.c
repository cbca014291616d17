// SPDX-License-Identifier: MIT
/*  test_experts.c - mixtures of experts of steps and prompts: the router's choice, and the products of the chosen
    experts, dense and of every quantised type, against a reference in double; rows with the same bits alone and among
    others */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "byte_tokenizer.h"

#include "generate.h"

#include <math.h>

/*  A mixture: types of gate, up and down, 0 for dense; experts, those of a row, and sizes. */
typedef struct mixture {
    ignis_dtype dtype;
    int types[3];
    int experts, chosen, hidden, inner, rows;
    bool normalises;
} mixture;

static ignis__array *weight_of(const mixture *c, int which, double **values)
{
    const int rows = c->experts * (which == 2 ? c->hidden : c->inner), k = which == 2 ? c->inner : c->hidden;
    const double factor = 1.5 / sqrt(k);
    ignis__blocks blocks;
    ignis__array *array;
    unsigned char *bytes;
    if (!c->types[which]) {
        *values = rounded_noise(IGNIS_SHAPE(rows, k), c->dtype, 7 + (uint64_t)which, factor);
        array = room(IGNIS_SHAPE(rows, k), c->dtype);
        CHECK_OK(ignis_array_from_host(rooms[room_count - 1].handle, *values, IGNIS_F64, (int64_t)rows * k));
        return array;
    }
    bytes = blocks_bytes(rows, k, c->types[which], rows, 0, 7 + (uint64_t)which, factor, &blocks, values);
    array = room(IGNIS_SHAPE(ignis__blocks_bytes(&blocks, 1)), IGNIS_U8);
    CHECK_OK(ignis_array_from_host(rooms[room_count - 1].handle, bytes, IGNIS_U8, array->numel));
    array->blocks = blocks;
    free(bytes);
    return array;
}

static double product_of(const double *w, const double *x, int k)
{
    double sum = 0;
    int i;
    for (i = 0; i < k; i++)
        sum += w[i] * x[i];
    return sum;
}

/*  The reference: a row through the router and its experts. */
static void mix(const mixture *c, double *const w[4], const double *x, double *out)
{
    double logits[64], shares[64], total = 0, *inner = (double *)calloc((size_t)c->inner, sizeof *inner);
    bool taken[64] = {false};
    int e, s, i;
    for (e = 0; e < c->experts; e++)
        logits[e] = product_of(w[3] + e * c->hidden, x, c->hidden);
    for (e = 0; e < c->experts; e++)
        total += c->normalises ? 0 : exp(logits[e]);
    for (s = 0; s < c->chosen; s++) {
        int best = -1;
        for (e = 0; e < c->experts; e++)
            if (!taken[e] && (best < 0 || logits[e] > logits[best]))
                best = e;
        taken[best] = true;
        shares[best] = exp(logits[best]);
        total += c->normalises ? shares[best] : 0;
    }
    memset(out, 0, (size_t)c->hidden * sizeof *out);
    for (e = 0; e < c->experts; e++) {
        if (!taken[e])
            continue;
        for (i = 0; i < c->inner; i++) {
            const double gate = product_of(w[0] + ((int64_t)e * c->inner + i) * c->hidden, x, c->hidden);
            inner[i] =
                gate / (1 + exp(-gate)) * product_of(w[1] + ((int64_t)e * c->inner + i) * c->hidden, x, c->hidden);
        }
        for (i = 0; i < c->hidden; i++)
            out[i] += shares[e] / total * product_of(w[2] + ((int64_t)e * c->hidden + i) * c->inner, inner, c->inner);
    }
    free(inner);
}

/*  Writes the first rows of an array. */
static void put_rows(const ignis__array *array, const double *values, int rows)
{
    const ignis_array whole = {array->slot.handle}, slice = ignis_array_slice(whole, 0, 0, rows);
    CHECK_OK(ignis_array_from_host(slice, values, IGNIS_F64, rows * array->shape.dim[1]));
    drop(slice);
}

/*  Computes rows `first` and on of x. Returns the sums, which begin as 1, or, of 16 bits, the results. */
static double *run(const mixture *c, ignis__engine *engine, const ignis__engine_layer *layer, const double *x,
                   int first, int count, bool is_chunk)
{
    double *ones = (double *)calloc((size_t)(count * c->hidden), sizeof *ones), *got;
    ignis_array sum = {engine->sum->slot.handle};
    ignis__device *device = ignis__device_get("test", 0);
    ignis__op op;
    int i;
    for (i = 0; i < count * c->hidden; i++)
        ones[i] = 1;
    put_rows(engine->sum, ones, count);
    put_rows(engine->normed, x + (int64_t)first * c->hidden, count);
    free(ones);
    memset(&op, 0, sizeof op);
    CHECK(ignis__op_begin_on_device(&op, "test", device));
    ignis__experts_run(&op, engine, layer, count, is_chunk);
    CHECK(op.ok);
    CHECK_OK(ignis__op_leave(&op));
    if (engine->result) {
        ignis_array result = {engine->result->slot.handle};
        got = array_values(result);
        for (i = 0; i < count * c->hidden; i++)
            got[i] += 1;
        return got;
    }
    return array_values(sum);
}

/*  Compares the results of all rows with the reference. */
static void check_rows(const mixture *c, double *const w[4], const double *x, const double *got, bool is_chunk)
{
    /* sums of f32; of 16 bits, x as whole numbers of 15 bits, and inner elements rounded */
    const double tolerance = c->dtype == IGNIS_F64 ? 1e-12 : c->dtype == IGNIS_F32 ? 1e-5 : 2e-2;
    double *wanted = (double *)calloc((size_t)(c->rows * c->hidden), sizeof *wanted), most = 0;
    char text[200];
    int i, r;
    for (r = 0; r < c->rows; r++)
        mix(c, w, x + (int64_t)r * c->hidden, wanted + r * c->hidden);
    for (i = 0; i < c->rows * c->hidden; i++)
        most = fabs(wanted[i]) > most ? fabs(wanted[i]) : most;
    for (i = 0; i < c->rows * c->hidden; i++)
        if (!(fabs(got[i] - 1 - wanted[i]) <= tolerance * most + 1.2e-7)) { /* and that of a sum near 1 */
            snprintf(text, sizeof text,
                     "dtype %d, blocks %d, %d, %d, %d by %d, chunk %d: [%d, %d] is %.9g, expected %.9g", (int)c->dtype,
                     c->types[0], c->types[1], c->types[2], c->hidden, c->inner, is_chunk, i / c->hidden, i % c->hidden,
                     got[i] - 1, wanted[i]);
            test__fail(__FILE__, __LINE__, text);
            break;
        }
    CHECK(most > 1e-3);
    free(wanted);
}

/*  Makes the buffers of an engine. */
static void make_buffers(const mixture *c, ignis__engine *engine, bool adds)
{
    const ignis_dtype wide = c->dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32;
    const int slots = c->rows * c->chosen;
    engine->normed = room(IGNIS_SHAPE(c->rows, c->hidden), c->dtype);
    engine->sum = room(IGNIS_SHAPE(c->rows, c->hidden), wide);
    engine->result = adds ? NULL : room(IGNIS_SHAPE(c->rows, c->hidden), c->dtype);
    engine->router_logits = room(IGNIS_SHAPE(c->rows, c->experts), wide);
    engine->chosen = room(IGNIS_SHAPE(c->rows, c->chosen), IGNIS_I32);
    engine->shares = room(IGNIS_SHAPE(c->rows, c->chosen), wide);
    engine->expert_inner = room(IGNIS_SHAPE(slots, c->inner), c->dtype);
    engine->expert_order = room(IGNIS_SHAPE(1, 2 * slots + c->experts + 1), IGNIS_I32);
    engine->expert_rows = room(IGNIS_SHAPE(slots, c->hidden), c->dtype);
    engine->expert_up = room(IGNIS_SHAPE(slots, c->inner), c->dtype);
    engine->expert_whole =
        room(IGNIS_SHAPE(slots, ignis__experts_whole_bytes(c->hidden > c->inner ? c->hidden : c->inner)), IGNIS_U8);
    engine->expert_results = room(IGNIS_SHAPE(slots, c->hidden), wide);
    engine->dequantised = room(IGNIS_SHAPE(1, c->experts * c->hidden * c->inner), c->dtype);
}

/*  Computes a mixture as rows of a step, and of a chunk; of more than 64 rows, which no step has, the latter alone. A
    row has the same bits alone and behind half of the rows. */
static void check(const mixture *c, bool adds)
{
    /* blocks of random bytes are small numbers */
    const double size = c->types[0] && c->types[0] != IGNIS__GGUF_Q4_0 && c->types[0] != IGNIS__GGUF_Q8_0 &&
                                c->types[0] != IGNIS__GGUF_F8
                            ? 40
                            : 2;
    const int before = room_count;
    double *w[4], *x, *got, *again;
    ignis__model model;
    ignis__engine engine;
    ignis__engine_layer layer;
    int i, is_chunk;
    memset(&model, 0, sizeof model);
    memset(&engine, 0, sizeof engine);
    memset(&layer, 0, sizeof layer);
    model.dtype = c->dtype;
    model.experts = c->experts, model.chosen = c->chosen, model.hidden = c->hidden, model.expert_inner = c->inner;
    model.normalises = c->normalises;
    engine.model = &model;
    layer.gate_experts = weight_of(c, 0, &w[0]);
    layer.up_experts = weight_of(c, 1, &w[1]);
    layer.down_experts = weight_of(c, 2, &w[2]);
    w[3] = rounded_noise(IGNIS_SHAPE(c->experts, c->hidden), c->dtype, 5, 4 / size / sqrt(c->hidden));
    layer.router = room(IGNIS_SHAPE(c->experts, c->hidden), c->dtype);
    CHECK_OK(ignis_array_from_host(rooms[room_count - 1].handle, w[3], IGNIS_F64, c->experts * c->hidden));
    x = rounded_noise(IGNIS_SHAPE(c->rows, c->hidden), c->dtype, 3, size);
    make_buffers(c, &engine, adds);
    for (is_chunk = c->rows > 64; is_chunk < 2; is_chunk++) {
        const int firsts[] = {c->rows - 1, c->rows / 2};
        got = run(c, &engine, &layer, x, 0, c->rows, is_chunk);
        check_rows(c, w, x, got, is_chunk);
        for (i = 0; i < COUNT_OF(firsts); i++) {
            const int rows = c->rows - firsts[i];
            again = run(c, &engine, &layer, x, firsts[i], rows, is_chunk);
            CHECK_INT(memcmp(again, got + firsts[i] * c->hidden, (size_t)(rows * c->hidden) * sizeof *again), 0);
            free(again);
        }
        free(got);
    }
    free(x);
    for (i = 0; i < 4; i++)
        free(w[i]);
    while (room_count > before) {
        room_count--;
        ignis__array_drop("test", rooms[room_count].array);
        drop(rooms[room_count].handle);
    }
}

TEST(dense_experts)
{
    static const mixture cases[] = {
        {IGNIS_F64, {0, 0, 0}, 5, 3, 40, 23, 4, false},    {IGNIS_F32, {0, 0, 0}, 40, 4, 300, 17, 3, true},
        {IGNIS_F16, {0, 0, 0}, 3, 3, 552, 40, 2, true},    {IGNIS_BF16, {0, 0, 0}, 6, 2, 33, 600, 5, false},
        {IGNIS_BF16, {0, 0, 0}, 1, 1, 2312, 16, 2, false}, {IGNIS_BF16, {0, 0, 0}, 3, 2, 72, 24, 19, true},
        {IGNIS_F32, {0, 0, 0}, 2, 1, 24, 20, 21, true},
    };
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++)
        check(&cases[i], i % 2 == 0);
}

/*  Each type of blocks of 32 elements, or of 256, with parts of K that warps share out, and several experts; gate and
    up of two types; one of both dense; down dense. */
TEST(quantised_experts)
{
    static const int types[] = {IGNIS__GGUF_Q4_0,    IGNIS__GGUF_Q4_1,    IGNIS__GGUF_Q5_0,  IGNIS__GGUF_Q5_1,
                                IGNIS__GGUF_Q8_0,    IGNIS__GGUF_IQ4_NL,  IGNIS__GGUF_MXFP4, IGNIS__GGUF_Q2_K,
                                IGNIS__GGUF_Q3_K,    IGNIS__GGUF_Q4_K,    IGNIS__GGUF_Q5_K,  IGNIS__GGUF_Q6_K,
                                IGNIS__GGUF_IQ2_XXS, IGNIS__GGUF_IQ3_XXS, IGNIS__GGUF_IQ4_XS};
    static const mixture mixed[] = {
        {IGNIS_BF16, {IGNIS__GGUF_Q4_K, IGNIS__GGUF_Q6_K, IGNIS__GGUF_Q8_0}, 3, 2, 512, 96, 3, true},
        {IGNIS_BF16, {IGNIS__GGUF_Q8_0, 0, 0}, 3, 2, 288, 33, 2, true},
        {IGNIS_F32, {0, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_0}, 3, 2, 64, 32, 2, true},
        {IGNIS_F64, {IGNIS__GGUF_MXFP4, IGNIS__GGUF_MXFP4, IGNIS__GGUF_MXFP4}, 3, 2, 288, 32, 2, true},
        {IGNIS_F16, {IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_0}, 2, 2, 2336, 32, 2, true},
        {IGNIS_BF16, {IGNIS__GGUF_Q4_0, IGNIS__GGUF_MXFP4, IGNIS__GGUF_Q4_0}, 3, 2, 96, 32, 19, true},
        {IGNIS_BF16, {IGNIS__GGUF_MXFP4, IGNIS__GGUF_MXFP4, IGNIS__GGUF_MXFP4}, 2, 2, 288, 96, 40, true},
        {IGNIS_BF16, {IGNIS__GGUF_F8, IGNIS__GGUF_F8, IGNIS__GGUF_F8}, 3, 2, 384, 128, 3, true},
        {IGNIS_F16, {IGNIS__GGUF_F8, IGNIS__GGUF_F8, IGNIS__GGUF_F8}, 2, 2, 2432, 128, 19, true},
        {IGNIS_F32, {IGNIS__GGUF_F8, IGNIS__GGUF_F8, IGNIS__GGUF_F8}, 3, 2, 256, 128, 2, true},
        {IGNIS_BF16, {IGNIS__GGUF_F8, IGNIS__GGUF_Q8_0, IGNIS__GGUF_F8}, 3, 2, 128, 128, 9, true},
    };
    int t;
    SETUP(NULL);
    for (t = 0; t < COUNT_OF(types); t++) {
        const bool of_32 = t < 7;
        const mixture c = {t % 3 == 0   ? IGNIS_BF16
                           : t % 3 == 1 ? IGNIS_F16
                                        : IGNIS_F32,
                           {types[t], types[t], types[t]},
                           3,
                           2,
                           of_32 ? 352 : 512,
                           of_32 ? 64 : 256,
                           3,
                           t % 2 == 0};
        check(&c, t % 2 == 0);
    }
    for (t = 0; t < COUNT_OF(mixed); t++)
        check(&mixed[t], t % 2 == 0);
}

/*  More rows than a step has: experts with several tiles of rows, and with none; enough rows for large tiles; quantised
    experts that are converted one or two at a time. */
TEST(rows_of_prompts)
{
    static const struct {
        mixture c;
        int64_t elements;
    } cases[] = {
        {{IGNIS_F32, {0, 0, 0}, 3, 2, 36, 20, 130, true}, 0},
        {{IGNIS_F64, {0, 0, 0}, 60, 2, 16, 8, 66, false}, 0},
        {{IGNIS_BF16, {0, 0, 0}, 2, 1, 128, 128, 270, true}, 0},
        {{IGNIS_F16, {IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q8_0}, 5, 2, 64, 32, 90, true}, 2 * 64 * 32},
        {{IGNIS_BF16, {IGNIS__GGUF_MXFP4, IGNIS__GGUF_MXFP4, 0}, 3, 3, 64, 32, 65, true}, 1},
    };
    const int64_t usual = ignis__expert_elements;
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        ignis__expert_elements = cases[i].elements ? cases[i].elements : usual;
        check(&cases[i].c, i % 2 == 0);
    }
    ignis__expert_elements = usual;
}

int main(int argc, char **argv) { return test_run(argc, argv); }
