// SPDX-License-Identifier: MIT
/*  test_model.c - models opened from folders and GGUF files: their scores against a forward in double, their weights,
    sizes and handles */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "model.h"

static void ids_fill(const ck_model *m, int32_t *ids, int count)
{
    int i;
    for (i = 0; i < count; i++)
        ids[i] = (int32_t)(i * 31 + 7 * (i / SEQ)) % m->vocab;
}

/*  The scores of an open model for BATCH texts. */
static void scores_of(ignis_model model, const ck_model *m, float *out)
{
    int32_t ids[BATCH * SEQ];
    ignis_tensor_desc desc = tensor_desc(IGNIS_I32, false);
    ignis_scope scope = ignis_scope_begin();
    ids_fill(m, ids, BATCH * SEQ);
    ignis_tensor scores = ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(BATCH, SEQ), &desc));
    CHECK_OK(ignis_tensor_to_host(scores, out, IGNIS_F32, (int64_t)BATCH * SEQ * m->vocab));
    ignis_scope_end(scope);
}

/*  Compares the scores of an open model with those in double. */
static void check_scores(int line, ignis_model model, const ck_model *m, double tolerance)
{
    int64_t count = (int64_t)BATCH * SEQ * m->vocab, i;
    float *scores = (float *)calloc((size_t)count, sizeof *scores);
    double *wanted = (double *)calloc((size_t)count, sizeof *wanted), most = 0, worst = 0;
    int32_t ids[BATCH * SEQ];
    char text[200];
    int b;
    if (!model.id) {
        test__fail(__FILE__, line, "the model is not open");
        free(scores), free(wanted);
        return;
    }
    ids_fill(m, ids, BATCH * SEQ);
    for (b = 0; b < BATCH; b++)
        ck_forward(m, ids + b * SEQ, SEQ, wanted + b * SEQ * m->vocab);
    scores_of(model, m, scores);
    for (i = 0; i < count; i++) {
        double difference = fabs((double)scores[i] - wanted[i]);
        most = fabs(wanted[i]) > most ? fabs(wanted[i]) : most;
        worst = !(difference <= worst) ? difference : worst;
    }
    if (getenv("IGNIS_TEST_SHOW"))
        printf("%s line %d: off by %g of %g\n", m->family, line, worst, most);
    if (!(worst <= tolerance * most) || most < 0.1) {
        snprintf(text, sizeof text, "%s: scores are off by %g, the largest is %g", m->family, worst, most);
        test__fail(__FILE__, line, text);
    }
    free(scores), free(wanted);
}
#define CHECK_SCORES(model, m, tolerance) check_scores(__LINE__, model, m, tolerance)

/* scores ---------------------------------------------------------------------------------------------------------- */

TEST(families_agree_with_a_forward_in_double)
{
    int i, shards;
    SETUP(NULL);
    for (i = 0; i < MODELS; i++) {
        ck_make(models[i]);
        for (shards = 1; shards <= 3; shards += 2) {
            ck_write_folder(models[i], test_path("family"), IGNIS_F32, shards);
            ignis_model model = open_with(test_path("family"), IGNIS_DTYPE_DEFAULT);
            CHECK_SCORES(model, models[i], 5e-6);
            CHECK_OK(ignis_model_free(model));
        }
        ck_free(models[i]);
    }
}

TEST(gguf_files_agree_with_a_forward_in_double)
{
    int i;
    SETUP(NULL);
    for (i = 0; i < MODELS; i++) {
        ck_model m = *models[i];
        if (m.stretch && strcmp(m.stretch, "llama3") == 0)
            m.stretch = NULL;
        ck_make(&m);
        ck_bytes file = ck_gguf(&m, 0, NULL);
        test_write_file(test_path("m.gguf"), file.data, file.size);
        ignis_model model = open_with(test_path("m.gguf"), IGNIS_DTYPE_DEFAULT);
        CHECK_SCORES(model, &m, 5e-6);
        CHECK_OK(ignis_model_free(model));
        free(file.data);
        ck_free(&m);
    }
}

/*  Compares a weight of an open model with the values of the file's tensors, rounded to the model's dtype. */
static void check_values(int line, ignis_model model, const ck_model *m, ignis_dtype dtype, double tolerance)
{
    int i;
    for (i = 0; i < m->count; i++) {
        const ck_tensor *t = &m->tensors[i];
        int64_t count = (int64_t)t->rows * (t->columns ? t->columns : 1), k, wrong = 0;
        double *got = (double *)calloc((size_t)count, sizeof *got);
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor tensor = ignis_model_tensor(model, t->name);
        CHECK_INT(tensor_info(tensor).dtype, dtype);
        CHECK_OK(ignis_tensor_to_host(tensor, got, IGNIS_F64, count));
        for (k = 0; k < count; k++)
            wrong += !(fabs(got[k] - ck_round(t->v[k], dtype)) <= tolerance * fabs(t->v[k]) + tolerance * 0.01);
        if (wrong) {
            printf("%s: %lld of %lld values are wrong\n", t->name, (long long)wrong, (long long)count);
            test__fail(__FILE__, line, t->name);
        }
        ignis_scope_end(scope);
        free(got);
    }
}
#define CHECK_VALUES(model, m, dtype, tolerance) check_values(__LINE__, model, m, dtype, tolerance)

/*  The values in bf16 are those in f32, rounded as arrays are. */
static void check_rounded(ignis_model f32, ignis_model bf16, const ck_model *m)
{
    ignis_scope scope = ignis_scope_begin();
    int64_t count = (int64_t)m->tensors[0].rows * m->tensors[0].columns;
    float *one = (float *)calloc((size_t)count, sizeof *one);
    uint16_t *wanted = (uint16_t *)calloc((size_t)count, 2), *got = (uint16_t *)calloc((size_t)count, 2);
    CHECK_OK(ignis_tensor_to_host(ignis_model_tensor(f32, m->tensors[0].name), one, IGNIS_F32, count));
    CHECK_OK(ignis_tensor_to_host(ignis_model_tensor(bf16, m->tensors[0].name), got, IGNIS_BF16, count));
    ignis__convert(wanted, IGNIS_BF16, one, IGNIS_F32, count);
    CHECK_INT(memcmp(wanted, got, (size_t)count * 2), 0);
    free(one), free(wanted), free(got);
    ignis_scope_end(scope);
}

TEST(f32_and_bf16_convert_as_by_way_of_f64)
{
    uint32_t bits;
    uint64_t state = 1;
    int i, wrong = 0;
    for (i = 0; i < 200000; i++) {
        uint16_t wanted, got;
        uint32_t wanted_bits, got_bits;
        float value;
        double exact;
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        bits = (uint32_t)(state >> 32);
        if (i % 4 == 0)
            bits = (bits & 0xFFFF0000u) | (uint32_t)(0x7FFF + i / 4 % 3); /* ties, and beside them */
        memcpy(&value, &bits, sizeof value);
        ignis__convert(&exact, IGNIS_F64, &value, IGNIS_F32, 1);
        ignis__convert(&wanted, IGNIS_BF16, &exact, IGNIS_F64, 1);
        ignis__convert(&got, IGNIS_BF16, &value, IGNIS_F32, 1);
        wrong += wanted != got;
        got = (uint16_t)(bits >> 16); /* any bits, NaN among them */
        ignis__convert(&exact, IGNIS_F64, &got, IGNIS_BF16, 1);
        ignis__convert(&wanted_bits, IGNIS_F32, &exact, IGNIS_F64, 1);
        ignis__convert(&got_bits, IGNIS_F32, &got, IGNIS_BF16, 1);
        wrong += wanted_bits != got_bits;
    }
    CHECK_INT(wrong, 0);
}

TEST(every_type_of_gguf_becomes_its_numbers)
{
    int type;
    SETUP(NULL);
    for (type = 0; type < CK_TYPES; type++) {
        ignis_dtype own = type == 0 ? IGNIS_F32 : type == 1 ? IGNIS_F16 : IGNIS_BF16;
        ck_model m = wide;
        ignis_model_desc desc;
        ignis_model_info info;
        ck_make(&m);
        write_gguf(&m, type, test_path("t.gguf"));
        memset(&desc, 0, sizeof desc);
        desc.path = test_path("t.gguf");
        desc.weights = IGNIS_WEIGHTS_NUMBERS;
        CHECK_OK(ignis_model_inspect(&desc, &info));
        CHECK_INT(info.dtype, own);
        CHECK_INT(info.weight_bytes, info.parameters * (type == 0 ? 4 : 2));
        CHECK_INT(info.quantised, 0);
        desc.dtype = IGNIS_F32;
        ignis_model model = ignis_model_open(&desc);
        CHECK_VALUES(model, &m, IGNIS_F32, 4e-7); /* f32 rounds products and sums */
        CHECK_SCORES(model, &m, 5e-6);
        ignis_model wide_f32 = model;
        if (type > 2) { /* rounded twice, so the last place may differ */
            desc.dtype = IGNIS_DTYPE_DEFAULT;
            model = ignis_model_open(&desc);
            CHECK_VALUES(model, &m, IGNIS_BF16, 0.009);
            check_rounded(wide_f32, model, &m);
            CHECK_OK(ignis_model_free(model));
        }
        CHECK_OK(ignis_model_free(wide_f32));
        ck_free(&m);
    }
}

/* quantised weights ----------------------------------------------------------------------------------------------- */

static ignis_model open_weights(const char *path, ignis_weights weights, ignis_dtype dtype)
{
    ignis_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.weights = weights;
    desc.dtype = dtype;
    desc.sequences = 3;
    return ignis_model_open(&desc);
}

/*  The model's values become those that an open one has. */
static void take_values(ignis_model model, ck_model *m)
{
    int i;
    for (i = 0; i < m->count; i++) {
        const ck_tensor *t = &m->tensors[i];
        ignis_scope scope = ignis_scope_begin();
        CHECK_OK(ignis_tensor_to_host(ignis_model_tensor(model, t->name), t->v, IGNIS_F64,
                                      (int64_t)t->rows * (t->columns ? t->columns : 1)));
        ignis_scope_end(scope);
    }
}

/*  The logits behind a text: fed in short pieces, in one of more than 64 tokens, and drawn among others. */
static void check_texts(int line, ignis_model model, const ck_model *m, double tolerance)
{
    enum { LONG = 80 };
    int lengths[] = {9, LONG}, i, k;
    float *scores = (float *)calloc((size_t)m->vocab, sizeof *scores),
          *again = (float *)calloc((size_t)m->vocab, sizeof *again);
    double *wanted = (double *)calloc((size_t)(LONG * m->vocab), sizeof *wanted);
    for (i = 0; i < 2; i++) {
        ignis_sequence one = ignis_sequence_begin(model), other = ignis_sequence_begin(model), both[2];
        int32_t ids[LONG], drawn[2];
        double most = 0, worst = 0;
        ids_fill(m, ids, lengths[i]);
        ck_forward(m, ids, lengths[i], wanted);
        CHECK_OK(ignis_sequence_feed(one, ids, lengths[i]));
        CHECK_OK(ignis_sequence_logits(one, scores, m->vocab));
        for (k = 0; k < m->vocab; k++) {
            double value = wanted[(lengths[i] - 1) * m->vocab + k], off = fabs((double)scores[k] - value);
            most = fabs(value) > most ? fabs(value) : most;
            worst = !(off <= worst) ? off : worst;
        }
        if (!(worst <= tolerance * most) || most < 0.1) {
            char text[128];
            snprintf(text, sizeof text, "%d tokens: off by %g of %g", lengths[i], worst, most);
            test__fail(__FILE__, line, text);
        }
        CHECK_OK(ignis_sequence_feed(other, ids, 5)); /* a step of both has the bits of a step alone */
        ids[lengths[i] - 1] = ignis_sequence_next(one, NULL);
        CHECK_OK(ignis_sequence_logits(one, scores, m->vocab));
        CHECK_OK(ignis_sequence_truncate(one, lengths[i]));
        both[0] = other, both[1] = one;
        CHECK_OK(ignis_sequence_next_all(both, 2, NULL, drawn));
        CHECK_INT(drawn[1], ids[lengths[i] - 1]);
        CHECK_OK(ignis_sequence_logits(one, again, m->vocab));
        CHECK_INT(memcmp(scores, again, sizeof *scores * (size_t)m->vocab), 0);
        CHECK_OK(ignis_sequence_free(one));
        CHECK_OK(ignis_sequence_free(other));
    }
    free(scores), free(again), free(wanted);
}
#define CHECK_TEXTS(model, m, tolerance) check_texts(__LINE__, model, m, tolerance)

/*  Bytes that a matrix takes as blocks, in records of 256 elements, eight rows at a time; what is behind them goes up
    to a multiple of 16. */
static int64_t blocks_bytes(int type, int64_t rows, int64_t columns)
{
    return (rows + 7) / 8 * 8 * ((columns + 255) / 256) * (256 / ck_types[type].elements) * ck_types[type].bytes;
}

TEST(weights_stay_quantised_as_in_the_file)
{
    static const int types[][2] = {{3, 0}, {4, 0}, {6, 0}, {8, 0},
                                   {6, 8}, {4, 3}, {7, 0}, {6, 7}}; /* and v and down of another type */
    int i, k;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(types); i++) {
        ck_model m = wide;
        ignis_model_desc desc;
        ignis_model_info info;
        ignis_tensor weights[64];
        int64_t bytes = 0, planes = 0;
        ignis_scope scope;
        float *scores, *wanted;
        m.context = 96;
        ck_make(&m);
        ck_other_type = types[i][1];
        write_gguf(&m, types[i][0], test_path("t.gguf"));
        memset(&desc, 0, sizeof desc);
        desc.path = test_path("t.gguf");
        CHECK_OK(ignis_model_inspect(&desc, &info));
        CHECK_INT(info.dtype, IGNIS_BF16);
        for (k = 0; k < m.count; k++) {
            const ck_tensor *t = &m.tensors[k];
            bytes += t->columns ? blocks_bytes(ck_type_of(t, types[i][0]), t->rows, t->columns) : 2 * t->rows;
            planes += t->columns ? 4 : 0;
        }
        ck_other_type = 0;
        CHECK(info.weight_bytes >= bytes && info.weight_bytes < bytes + 16 * planes);
        CHECK(info.quantised > info.parameters * 99 / 100);
        scores = (float *)calloc((size_t)(BATCH * SEQ * m.vocab), sizeof *scores);
        wanted = (float *)calloc((size_t)(BATCH * SEQ * m.vocab), sizeof *wanted);
        for (k = 0; k < 2;
             k++) { /* the numbers, and what operations make of them, are those of weights that are numbers */
            ignis_dtype dtype = k ? IGNIS_BF16 : IGNIS_F32;
            ignis_model model = open_weights(desc.path, IGNIS_WEIGHTS_DEFAULT, dtype);
            ignis_model numbers = open_weights(desc.path, IGNIS_WEIGHTS_NUMBERS, dtype);
            CHECK_VALUES(model, &m, dtype, k ? 0.009 : 4e-7);
            scores_of(model, &m, scores);
            scores_of(numbers, &m, wanted);
            CHECK_INT(memcmp(scores, wanted, sizeof *scores * (size_t)(BATCH * SEQ * m.vocab)), 0);
            /* random blocks make scores of up to 45, where the last place of f32 is 4e-6: a sum of them is off by a
               few, and so are probabilities */
            CHECK_TEXTS(model, &m, k ? 0.05 : 2e-5);
            CHECK(ignis_model_weights(model, weights, 64) == 3); /* norms */
            CHECK_OK(ignis_model_free(model));
            CHECK_OK(ignis_model_free(numbers));
        }
        free(scores), free(wanted);
        ignis_model model = open_weights(desc.path, IGNIS_WEIGHTS_DEFAULT, IGNIS_F32); /* a tensor of one is a copy */
        scope = ignis_scope_begin();
        ignis_tensor copy = ignis_model_tensor(model, "model.layers.0.mlp.gate_up_proj.weight");
        ignis_shape shape = tensor_info(copy).shape;
        CHECK(shape.ndim == 2 && shape.dim[0] == 2 * m.inner && shape.dim[1] == m.hidden);
        CHECK_OK(ignis_scope_end(scope));
        CHECK_OK(ignis_model_save(model, test_path("saved")));
        CHECK_OK(ignis_model_free(model));
        model = open_with(test_path("saved"), IGNIS_DTYPE_DEFAULT);
        CHECK_VALUES(model, &m, IGNIS_F32, 4e-7);
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

TEST(weights_are_quantised_as_they_are_read)
{
    static const ignis_weights formats[] = {IGNIS_WEIGHTS_Q8_0, IGNIS_WEIGHTS_Q4_0, IGNIS_WEIGHTS_Q4_K,
                                            IGNIS_WEIGHTS_F8};
    /* rms of errors by that of the numbers, at most. Numbers of e4m3 are 1/8 of their power of two apart, so errors are
       1/8 / sqrt(12) = 0.036 of numbers of 1, and 0.018 of those just below 2 */
    static const double most[] = {0.006, 0.13, 0.1, 0.03};
    int f, i, k;
    SETUP(NULL);
    for (i = 0; i < 3; i++) {
        for (f = 0; f < COUNT_OF(formats); f++) {
            ck_model m = i == 0 ? wide : i == 1 ? gpt2 : llama;
            ignis_model_desc desc;
            ignis_model_info info;
            double error = 0, size = 0, *before;
            if (i == 1) /* rows of three blocks, and of two and a half */
                m.hidden = 96, m.head_dim = 32, m.context = 96;
            m.context = 96;
            ck_make(&m);
            ck_write_folder(&m, test_path("q"), IGNIS_F32, 1);
            memset(&desc, 0, sizeof desc);
            desc.path = test_path("q");
            desc.weights = formats[f];
            desc.sequences = 3;
            CHECK_OK(ignis_model_inspect(&desc, &info));
            ignis_model model = ignis_model_open(&desc);
            k = (int)((int64_t)m.tensors[0].rows * m.tensors[0].columns);
            before = (double *)malloc(sizeof *before * (size_t)k);
            memcpy(before, m.tensors[0].v, sizeof *before * (size_t)k);
            take_values(model, &m);
            while (k-- > 0)
                error += pow(m.tensors[0].v[k] - before[k], 2), size += before[k] * before[k];
            free(before);
            if (i < 2) {
                int type = f >= 2 && i == 1 ? 0 : f; /* Q8_0 where rows are no multiples of 256, or 128 */
                CHECK(info.quantised > info.parameters / 2 && sqrt(error / size) < most[type] && error > 0);
            } else { /* rows of 48 elements stay as they are */
                CHECK(info.quantised == 0 && error == 0);
            }
            CHECK_SCORES(model, &m, 5e-6);
            CHECK_TEXTS(model, &m, 5e-6);
            CHECK_OK(ignis_model_free(model));
            ck_free(&m);
        }
    }
}

/*  Logits of a model with weights of F8, beside those of its f32 weights. A weight is off by 1/16 at most, about 0.026
    of itself in the mean square, and so is each product of independent weights by its own size. The layer has four
    products behind each other, and the head one, between embedding and logits: about 0.026 sqrt(6) = 0.064. */
TEST(logits_with_weights_of_f8)
{
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_BF16};
    int i;
    SETUP(NULL);
    for (i = 0; i < 2; i++) {
        ck_model m = wide;
        double error = 0, size = 0;
        int64_t count, k;
        float *scores, *wanted;
        m.context = 96;
        ck_make(&m);
        ck_write_folder(&m, test_path("f"), IGNIS_F32, 1);
        count = (int64_t)BATCH * SEQ * m.vocab;
        scores = (float *)calloc((size_t)count, sizeof *scores);
        wanted = (float *)calloc((size_t)count, sizeof *wanted);
        ignis_model model = open_weights(test_path("f"), IGNIS_WEIGHTS_F8, dtypes[i]);
        ignis_model numbers = open_weights(test_path("f"), IGNIS_WEIGHTS_NUMBERS, IGNIS_F32);
        scores_of(model, &m, scores);
        scores_of(numbers, &m, wanted);
        for (k = 0; k < count; k++) {
            error += pow((double)scores[k] - (double)wanted[k], 2);
            size += pow((double)wanted[k], 2);
        }
        if (getenv("IGNIS_TEST_SHOW"))
            printf("F8: off by %g of the logits' mean square\n", sqrt(error / size));
        CHECK(sqrt(error / size) < 0.08 && sqrt(error / size) > 0.01);
        take_values(model, &m); /* decode steps agree with those weights as they are on the device */
        CHECK_TEXTS(model, &m, i ? 0.05 : 2e-5);
        CHECK_OK(ignis_model_free(model));
        CHECK_OK(ignis_model_free(numbers));
        free(scores), free(wanted);
        ck_free(&m);
    }
}

/*  IGNIS_WEIGHTS_F8 keeps what the file has quantised. */
TEST(f8_does_not_quantise_twice)
{
    ck_model m = wide;
    ignis_model_desc desc;
    ignis_model_info as_in_file, info;
    SETUP(NULL);
    ck_make(&m);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("k.gguf");
    write_gguf(&m, 4, desc.path); /* Q4_0 */
    CHECK_OK(ignis_model_inspect(&desc, &as_in_file));
    desc.weights = IGNIS_WEIGHTS_F8;
    CHECK_OK(ignis_model_inspect(&desc, &info));
    CHECK(info.quantised == as_in_file.quantised && info.weight_bytes == as_in_file.weight_bytes);
    ignis_model model = open_weights(desc.path, IGNIS_WEIGHTS_F8, IGNIS_F32);
    CHECK_VALUES(model, &m, IGNIS_F32, 4e-7);
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

/*  A scale of 1, as the greatest of each 128 numbers is 448: all others have the bits that arrays round to. */
TEST(rounding_to_f8_is_that_of_arrays)
{
    enum { BLOCKS = 512 };
    float x[128];
    unsigned char block[132], wanted[128];
    uint64_t state = 1;
    int b, i, wrong = 0;
    for (b = 0; b < BLOCKS; b++) {
        for (i = 0; i < 128; i++) {
            uint32_t bits;
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
            bits = (uint32_t)(state >> 32);
            if (i % 4 == 0) /* ties, and beside them */
                bits = (bits & 0xFFF00000u) | (uint32_t)(0x7FFFF + i / 4 % 3);
            bits = (bits & 0x807FFFFFu) | (114u + (bits >> 23 & 31) % 22) << 23; /* 2^-13 to 2^8 */
            memcpy(&x[i], &bits, sizeof bits);
            if (i % 8 == 1) /* steps of the smallest numbers, and halves of them */
                x[i] = (float)(b % 64 - 32) / 1024;
            if (fabs((double)x[i]) > 448)
                x[i] = 0;
        }
        x[b % 128] = b % 2 ? 448 : -448;
        ignis__quantise(IGNIS__GGUF_F8, x, 128, block);
        ignis__convert(wanted, IGNIS_F8_E4M3, x, IGNIS_F32, 128);
        for (i = 0; i < 128; i++) /* a zero has any sign */
            wrong += wanted[i] != block[4 + i] && (wanted[i] | block[4 + i]) & 127;
        CHECK(memcmp(block, "\0\0\x80\x3f", 4) == 0);
    }
    CHECK_INT(wrong, 0);
}

/*  The gradient of x through a quantised weight is that through its numbers. */
TEST(gradients_go_through_quantised_weights)
{
    ck_model m = wide;
    ignis_tensor_desc leaf = tensor_desc(IGNIS_F32, true);
    double *gradients[2];
    int k;
    SETUP(NULL);
    ck_make(&m);
    ck_other_type = 8;
    write_gguf(&m, 6, test_path("g.gguf"));
    ck_other_type = 0;
    for (k = 0; k < 2; k++) {
        ignis_model handle =
            open_weights(test_path("g.gguf"), k ? IGNIS_WEIGHTS_NUMBERS : IGNIS_WEIGHTS_DEFAULT, IGNIS_F32);
        ignis__model *model = ignis__model_hold("test", handle);
        ignis_scope scope = ignis_scope_begin();
        float *values = (float *)malloc(5 * 256 * sizeof *values);
        int i;
        for (i = 0; i < 5 * 256; i++)
            values[i] = (float)noise(3, i);
        ignis_tensor in = ignis_tensor_from_host(values, IGNIS_SHAPE(5, 256), &leaf);
        ignis_tensor y = ignis__model_linear(model, in, model->layer[0].qkv, ignis__no_tensor());
        CHECK_OK(ignis_backward(ignis_sum(ignis_mul(y, y)), IGNIS_NO_ARRAY));
        gradients[k] = array_values(ignis_tensor_grad(in));
        CHECK_OK(ignis_scope_end(scope));
        free(values);
        ignis__model_drop("test", model);
        CHECK_OK(ignis_model_free(handle));
    }
    for (k = 0; k < 5 * 256; k++)
        CHECK_CLOSE(gradients[0][k], gradients[1][k], 1e-5);
    free(gradients[0]), free(gradients[1]);
    ck_free(&m);
}

TEST(quantised_weights_are_not_trained)
{
    ck_model m = wide;
    ignis_model_desc desc;
    ignis_model_info info;
    SETUP(NULL);
    ck_make(&m);
    write_gguf(&m, 4, test_path("t.gguf"));
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("t.gguf");
    desc.weights = IGNIS_WEIGHTS_Q4_0;
    desc.requires_grad = true;
    CHECK_FAILS(ignis_model_open(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("desc->requires_grad");
    desc.weights = IGNIS_WEIGHTS_COUNT;
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_MESSAGE_HAS("desc->weights is");
    desc.weights = IGNIS_WEIGHTS_DEFAULT;
    CHECK_OK(ignis_model_inspect(&desc, &info));
    CHECK(info.quantised == 0 && info.weight_bytes == 2 * info.parameters);
    ck_free(&m);
}

/*  Blocks of random bytes, whose scales are finite, become the floats of the Python package gguf 0.19: their bytes have
    its hash (FNV-1a). make check-gguf compares more of them, and those of the device. */
TEST(blocks_become_the_floats_of_gguf)
{
    static const struct {
        int type, scale_at;
        uint64_t hash;
    } cases[] = {
        {IGNIS__GGUF_Q4_0, 0, 0xdf6543834e289032u},    {IGNIS__GGUF_Q4_1, 0, 0xc3a2cd75d4cc6b80u},
        {IGNIS__GGUF_Q5_0, 0, 0xba6e228c3bc51d49u},    {IGNIS__GGUF_Q5_1, 0, 0x7d2e5f1ec6560b0du},
        {IGNIS__GGUF_Q8_0, 0, 0xb194dc927d9de2a7u},    {IGNIS__GGUF_Q2_K, 80, 0xe7c1c680251162d1u},
        {IGNIS__GGUF_Q3_K, 108, 0xeacd1c3196f684c7u},  {IGNIS__GGUF_Q4_K, 0, 0xf25ba290d332ce99u},
        {IGNIS__GGUF_Q5_K, 0, 0xa49e553360d37afau},    {IGNIS__GGUF_Q6_K, 208, 0x6c5ed15dff6dc618u},
        {IGNIS__GGUF_IQ2_XXS, 0, 0xcb0c1ffb2d73ade3u}, {IGNIS__GGUF_IQ2_XS, 0, 0x17128750ed96e058u},
        {IGNIS__GGUF_IQ2_S, 0, 0x18d2273a0b473626u},   {IGNIS__GGUF_IQ3_XXS, 0, 0x6d21510f019ee57cu},
        {IGNIS__GGUF_IQ3_S, 0, 0xc1d588b7df5578c1u},   {IGNIS__GGUF_IQ4_NL, 0, 0x6fdafebf404cae10u},
        {IGNIS__GGUF_IQ4_XS, 0, 0x9326b50ac3bf8148u},  {IGNIS__GGUF_MXFP4, 0, 0xafd825cdfeaae93eu},
    };
    int t, b, i;
    for (t = 0; t < COUNT_OF(cases); t++) {
        const struct ignis__blocks_types_type *type = &ignis__blocks_types[ignis__blocks_type(cases[t].type)];
        uint32_t x = (uint32_t)type->type;
        uint64_t hash = 0xcbf29ce484222325u;
        for (b = 0; b < (type->file_elements == 32 ? 40 : 8); b++) {
            unsigned char bytes[256], back[1024];
            float values[256];
            for (i = 0; i < type->file_bytes; i++) {
                x = x * 1664525u + 1013904223u;
                bytes[i] = (unsigned char)(x >> 24);
            }
            if (type->type != IGNIS__GGUF_MXFP4)
                bytes[cases[t].scale_at + 1] &= 0xbf;
            if (type->numbers == (int)IGNIS__NUMBERS_PLAIN)
                bytes[cases[t].scale_at + 3] &= 0xbf;
            ignis__dequantise((uint32_t)type->type, bytes, values);
            memcpy(back, values, (size_t)type->file_elements * 4);
            for (i = 0; i < type->file_elements * 4; i++)
                hash = (hash ^ back[i]) * 0x100000001b3u;
        }
        CHECK(hash == cases[t].hash);
    }
}

/*  Blocks of numbers that are not finite are no numbers, and others are not touched by them. */
TEST(numbers_that_are_not_finite_are_quantised)
{
    static const int types[] = {IGNIS__GGUF_Q8_0, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_K, IGNIS__GGUF_F8};
    int t, i;
    for (t = 0; t < 4; t++) {
        unsigned char bytes[1024];
        float x[512], back[256];
        const struct ignis__blocks_types_type *of = &ignis__blocks_types[ignis__blocks_type(types[t])];
        const int size = of->file_bytes, elements = of->file_elements;
        for (i = 0; i < 512; i++)
            x[i] = (float)i;
        x[elements + 5] = t == 1 ? (float)INFINITY : (float)NAN;
        ignis__quantise(types[t], x, 2 * elements, bytes);
        ignis__dequantise((uint32_t)types[t], bytes + size, back);
        CHECK(back[0] != back[0] && back[5] != back[5]);
        ignis__dequantise((uint32_t)types[t], bytes, back);
        for (i = 0; i < elements; i++)
            CHECK(fabs((double)back[i] - i) <= elements / 8);
        memset(x, 0, sizeof x);
        ignis__quantise(types[t], x, elements, bytes);
        ignis__dequantise((uint32_t)types[t], bytes, back);
        for (i = 0; i < elements; i++)
            CHECK(back[i] == 0);
    }
}

/*  From each dtype of files to each of models: the values are those of one rounding, and the scores those of the dtype.
    */
TEST(weights_are_converted_as_they_are_read)
{
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_F16, IGNIS_BF16};
    static const double tolerance[] = {5e-6, 0.006, 0.04};
    int from, to;
    SETUP(NULL);
    for (from = 0; from < 3; from++) {
        ck_model m = from == 1 ? gpt2 : llama;
        ck_make(&m);
        ck_round_all(&m, dtypes[from]);
        ck_write_folder(&m, test_path("d"), dtypes[from], 1);
        for (to = -1; to < 3; to++) {
            ignis_model model = open_with(test_path("d"), to < 0 ? IGNIS_DTYPE_DEFAULT : dtypes[to]);
            CHECK_VALUES(model, &m, to < 0 ? dtypes[from] : dtypes[to], 0);
            if (to == from || (from == 0 && to == 2))
                CHECK_SCORES(model, &m, tolerance[to]);
            CHECK_OK(ignis_model_free(model));
        }
        ck_free(&m);
    }
}

TEST(a_file_of_divisors_is_llama3)
{
    float divisors[32];
    double f[256], plain[256];
    int i, table;
    SETUP(NULL);
    for (table = 0; table < 2; table++) {
        ck_model m = llama3, bare = llama3;
        bare.stretch = NULL;
        ck_make(&m);
        ck_frequencies(&m, f);
        ck_frequencies(&bare, plain);
        if (table == 0)
            for (i = 0; i < 32; i++) { /* Llama 3.1's own numbers */
                double wave = 2 * 3.14159265358979323846 / plain[i], s = (8192 / wave - 1) / 3;
                f[i] = wave > 8192 ? plain[i] / 8 : wave < 2048 ? plain[i] : (1 - s) * plain[i] / 8 + s * plain[i];
            }
        for (i = 0; i < 32; i++)
            divisors[i] = (float)(plain[i] / f[i]);
        m.stretch = NULL;
        ck_bytes file = ck_gguf(&m, 0, divisors);
        test_write_file(test_path("m.gguf"), file.data, file.size);
        free(file.data);
        ignis_model model = open_with(test_path("m.gguf"), IGNIS_DTYPE_DEFAULT);
        if (table) { /* frequencies that config.json has no words for */
            m.stretch = "llama3";
            CHECK_SCORES(model, &m, 5e-6);
            CHECK_STATUS(ignis_model_save(model, test_path("saved")), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
        } else {
            ignis__model *inside = ignis__model_hold("test", model);
            for (i = 0; i < 32; i++)
                CHECK(fabs(inside->frequencies[i] - f[i]) <= 1e-6 * f[i]);
            ignis__model_drop("test", inside);
            CHECK_OK(ignis_model_save(model, test_path("saved")));
            ignis_model again = open_with(test_path("saved"), IGNIS_DTYPE_DEFAULT);
            inside = ignis__model_hold("test", again);
            for (i = 0; i < 32; i++)
                CHECK(fabs(inside->frequencies[i] - f[i]) <= 1e-6 * f[i]);
            ignis__model_drop("test", inside);
            CHECK_OK(ignis_model_free(again));
        }
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

/*  Keys of a GGUF file by which positions are stretched, and what they have to come to. */
static const struct stretch_case {
    const char *type; /* rope.scaling.type, or null */
    struct {
        const char *name;
        double value;
    } keys[3];
    const char *like;    /* the model's stretch, as checkpoint.h has it; null: none */
    const char *message; /* of a refusal; null: it is taken */
} stretch_cases[] = {
    {NULL, {{"rope.scale_linear", 3.5}}, "linear", NULL},
    {NULL, {{"rope.scaling.factor", 3.5}}, "linear", NULL},
    {"linear", {{"rope.scale_linear", 3.5}}, "linear", NULL},
    {"linear", {{"rope.scaling.factor", 3.5}}, "linear", NULL},
    {NULL, {{"rope.scale_linear", 9}, {"rope.scaling.factor", 3.5}}, "linear", NULL}, /* the newer one */
    {"yarn", {{"rope.scale_linear", 4}, {"rope.scaling.original_context_length", 32}}, "yarn", NULL},
    {"none", {{"rope.scaling.factor", 3.5}, {"rope.scale_linear", 9}}, NULL, NULL},
    {NULL, {{"rope.scaling.factor", 1}}, NULL, NULL},
    {NULL, {{"rope.scaling.factor", 0}}, NULL, NULL}, /* as it is where there is none */
    {NULL, {{"rope.scaling.original_context_length", 32}}, NULL, NULL},
    {NULL, {{"rope.scaling.attn_factor", 1}}, NULL, NULL},
    {NULL, {{"rope.scaling.factor", -2}}, NULL, "has rope.scaling.factor -2; a positive number is needed"},
    {NULL, {{"rope.scale_linear", -2}}, NULL, "has rope.scale_linear -2; a positive number is needed"},
    {NULL,
     {{"rope.scaling.attn_factor", 2}},
     NULL,
     "has llama.rope.scaling.attn_factor 2 without yarn, which Ignis cannot do"},
    {"yarn",
     {{"rope.scaling.factor", 4}, {"rope.scaling.yarn_log_multiplier", 0.5}},
     NULL,
     "rope.scaling.yarn_log_multiplier 0.5, not 0"},
    {"yarn",
     {{"rope.scaling.factor", 4}, {"rope.scaling.yarn_attn_factor", 0.5}},
     NULL,
     "rope.scaling.yarn_attn_factor 0.5, not 1"},
    {"longrope",
     {{"rope.scaling.factor", 4}},
     NULL,
     "stretches positions by longrope, and has no tensor rope_factors_short.weight"},
    {"llama3",
     {{"rope.scaling.factor", 4}},
     NULL,
     "stretches positions by 'llama3'; none, linear, yarn and longrope are known"},
};
static const struct stretch_case *stretch_now;

static int put_stretch(ck_bytes *head)
{
    int count = 0;
    if (stretch_now->type)
        ck_text(head, "llama.rope.scaling.type"), ck_u32(head, 8), ck_text(head, stretch_now->type);
    for (; count < 3 && stretch_now->keys[count].name; count++)
        ck_key_f32(head, "llama", stretch_now->keys[count].name, stretch_now->keys[count].value);
    return count + (stretch_now->type != NULL);
}

TEST(keys_of_a_gguf_file_stretch_positions)
{
    int i, k;
    SETUP(NULL);
    for (i = 0; i < (int)(sizeof stretch_cases / sizeof *stretch_cases); i++) {
        ck_model m = llama;
        double f[256], factor;
        ck_make(&m);
        stretch_now = &stretch_cases[i];
        ck_more_keys = put_stretch;
        ck_bytes file = ck_gguf(&m, 0, NULL);
        ck_more_keys = NULL;
        test_write_file(test_path("m.gguf"), file.data, file.size);
        free(file.data);
        m.stretch = stretch_now->like;
        ignis_model model = open_with(test_path("m.gguf"), IGNIS_F32);
        if (stretch_now->message) {
            CHECK_INT(model.id, 0);
            CHECK_HAS(ignis_status_message(), stretch_now->message);
            ignis_status_clear();
        } else {
            ignis__model *inside = ignis__model_hold("test", model);
            CHECK(inside != NULL);
            factor = ck_frequencies(&m, f);
            for (k = 0; inside && k < m.head_dim / 2; k++)
                CHECK(fabs(inside->frequencies[k] - f[k]) <= 1e-6 * f[k]);
            CHECK(inside && fabs(inside->attention_factor - factor) <= 1e-6);
            if (inside)
                ignis__model_drop("test", inside);
            CHECK_SCORES(model, &m, 5e-6);
            CHECK_OK(ignis_model_free(model));
        }
        ck_free(&m);
    }
}

/*  Between which frequencies yarn has its slope: whole numbers, but where "truncate" is false. */
TEST(yarn_rounds_its_slope_unless_told_not_to)
{
    static const struct {
        const char *say;
        bool cut;
    } cases[] = {
        {"", true}, {", \"truncate\": true", true}, {", \"truncate\": null", true}, {", \"truncate\": false", false}};
    static const char factor[] = "\"factor\": 4.0";
    const double pi = 3.14159265358979323846;
    ignis_model_desc desc;
    char to[128];
    double low, high, t;
    int i, k, again;
    SETUP(NULL);
    ck_model m = qwen3; /* 40 frequencies: the slope has room */
    m.stretch = "yarn";
    ck_make(&m);
    for (i = 0; i < 4; i++) {
        ck_write_folder(&m, test_path("f"), IGNIS_F32, 1);
        snprintf(to, sizeof to, "%s%s", factor, cases[i].say);
        change_config(&m, factor, to);
        low = m.head_dim * log(32 / (2 * pi * 32)) / (2 * log(m.theta));
        high = m.head_dim * log(32 / (2 * pi * 1)) / (2 * log(m.theta));
        low = cases[i].cut ? floor(low) : low;
        high = cases[i].cut ? ceil(high) : high;
        low = low < 0 ? 0 : low;
        for (again = 0; again < 2; again++) { /* and as it was saved */
            ignis_model model = open_with(test_path(again ? "saved" : "f"), IGNIS_DTYPE_DEFAULT);
            ignis__model *inside = ignis__model_hold("test", model);
            CHECK(inside != NULL);
            for (k = 0; inside && k < m.head_dim / 2; k++) {
                double f = pow(m.theta, -2.0 * k / m.head_dim);
                t = (k - low) / (high - low);
                t = t < 0 ? 0 : t > 1 ? 1 : t;
                CHECK(fabs(inside->frequencies[k] - (f * (1 - t) + f / 4 * t)) <= 1e-12 * f);
            }
            if (inside)
                ignis__model_drop("test", inside);
            if (!again)
                CHECK_OK(ignis_model_save(model, test_path("saved")));
            CHECK_OK(ignis_model_free(model));
        }
    }
    snprintf(to, sizeof to, "%s, \"truncate\": 1", factor);
    change_config(&m, factor, to);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("f");
    CHECK_FAILS(ignis_model_open(&desc), IGNIS_ERROR_FORMAT, IGNIS_DIAG_MODEL_CONFIG);
    CHECK_MESSAGE_HAS("rope_parameters.truncate is neither true nor false");
    ck_free(&m);
}

/*  Which tokens end a text, by the keys of a GGUF file and by the texts of its tokens, whose ids begin at 3. */
static int put_ends(ck_bytes *head)
{
    ck_text(head, "tokenizer.ggml.bos_token_id"), ck_u32(head, 4), ck_u32(head, 1);
    ck_text(head, "tokenizer.ggml.eot_token_id"), ck_u32(head, 4), ck_u32(head, 4);
    ck_text(head, "tokenizer.ggml.eom_token_id"), ck_u32(head, 4), ck_u32(head, 5);
    ck_text(head, "tokenizer.ggml.fim_pad_token_id"), ck_u32(head, 4), ck_u32(head, 1000); /* which it does not have */
    return 4;
}

static int put_wrong_end(ck_bytes *head)
{
    ck_text(head, "tokenizer.ggml.eot_token_id"), ck_u32(head, 8), ck_text(head, "<|eot_id|>");
    return 1;
}

TEST(texts_end_by_the_tokens_that_end_turns)
{
    static const struct {
        int (*keys)(ck_bytes *head);
        int type; /* of the tokens: 0 none said, 1 normal, 3 control, 4 of the user */
        const char *tokens[6];
        int ends[8]; /* eos_token_id is 2 always */
    } cases[] = {
        {NULL, 0, {"b"}, {2}},
        {put_ends, 0, {"b", "c", "d"}, {2, 4, 5}},
        {put_ends, 3, {"<|eot_id|>", "<|eom_id|>", "<|im_end|>"}, {2, 4, 5, 3}},
        {NULL,
         3,
         {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<EOT>"},
         {2, 3, 4, 5, 6, 7, 8}},
        {NULL,
         3,
         {"_<EOT>", "[EOT]", "[EOS]", "<|endoftext|>", "<|end_of_text|>", "<end_of_utterance>"},
         {2, 3, 4, 5, 6, 7, 8}},
        {NULL,
         4,
         {"<eos>", "<turn|>", "<|tool_response>", "[e~[",
          "<\xef\xbd\x9c"
          "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"},
         {2, 3, 4, 5, 6, 7}},
        {NULL, 3, {"<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>", "<|im_start|>"}, {2, 3, 4, 5}},
        {NULL, 1, {"<|im_end|>", "<|eot_id|> ", " <|eot_id|>", "</s>", "|im_end|>"}, {2, 3}}, /* </s> is HTML */
        {NULL, 3, {"</s>"}, {2, 3}},
        {NULL,
         3,
         {"<|end|>", "<|return|>", "<|call|>", "<|start|>"},
         {2, 5, 4}}, /* there <|end|> ends a message of several */
        {NULL, 3, {"<|calls|>", "<|flush|>", "<|end|>"}, {2, 3, 4}},
        {NULL, 3, {"<|end|>", "<|call|>"}, {2, 3, 4}},
    };
    ignis_model_desc desc;
    ignis_model_info info;
    int i, k, count;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("m.gguf");
    for (i = 0; i < (int)(sizeof cases / sizeof *cases) + 1; i++) {
        bool wrong = i == (int)(sizeof cases / sizeof *cases);
        ck_model m = llama;
        ck_make(&m);
        for (count = 0; !wrong && count < 6 && cases[i].tokens[count];)
            count++;
        ck_more_keys = wrong ? put_wrong_end : cases[i].keys;
        ck_tokens = wrong ? NULL : cases[i].tokens, ck_token_count = wrong ? 0 : count,
        ck_token_type = wrong ? 0 : cases[i].type;
        ck_bytes file = ck_gguf(&m, 0, NULL);
        ck_more_keys = NULL, ck_tokens = NULL, ck_token_count = ck_token_type = 0;
        test_write_file(desc.path, file.data, file.size);
        free(file.data);
        ck_free(&m);
        if (wrong) {
            CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT, IGNIS_DIAG_GGUF_FORMAT);
            CHECK_MESSAGE_HAS("key 'tokenizer.ggml.eot_token_id' is text, not a whole number");
            break;
        }
        CHECK_OK(ignis_model_inspect(&desc, &info));
        for (k = 0; k < 8 && cases[i].ends[k]; k++)
            CHECK_INT(info.ends[k], cases[i].ends[k]);
        CHECK_INT(info.end_count, k);
    }
}

/*  Tensors that a model has no use for are refused by name, but for those that change nothing. */
TEST(tensors_without_a_use_are_refused)
{
    static const struct {
        ck_model *model;
        const char *name, *gguf; /* null: only in the other kind of file */
        int rows, columns;
        bool leading, fits;
    } cases[] = {
        {&llama, "model.layers.0.self_attn.q_norm.weight", "blk.0.attn_q_norm.weight", 8, 0, false, false},
        {&llama, "lm_head.bias", "output.bias", 67, 0, false, false},
        {&llama, "model.layers.0.self_attn.sinks", "blk.0.attn_sinks.weight", 6, 0, false, false},
        {&llama, "model.layers.2.self_attn.q_proj.weight", "blk.2.attn_q.weight", 48, 48, false, false},
        {&llama, "model.layers.00.input_layernorm.weight", "blk.00.attn_norm.weight", 48, 0, false, false},
        {&llama, "model.norm.bias", "output_norm.bias", 48, 0, false, false},
        {&llama, "score.weight", "cls.weight", 2, 48, false, false},
        {&llama, "model.layers.1.mlp.experts.0.up_proj.weight", "blk.1.ffn_up_exps.weight", 72, 48, false, false},
        {&llama, "model.layers.0.self_attn.q_proj.weight_scale", "blk.0.attn_q.scale", 1, 0, false, false},
        {&llama, "x", "x", 1, 0, false, false},
        {&llama3, "model.layers.0.post_feedforward_layernorm.weight", "blk.0.post_ffw_norm.weight", 32, 0, false,
         false},
        {&qwen2, "model.layers.0.self_attn.q_norm.weight", "blk.1.attn_k_norm.weight", 12, 0, false, false},
        {&qwen3, "model.layers.1.self_attn.q_proj.bias.bias", "rope_factors_long.weight", 40, 0, false, false},
        {&gpt2, "transformer.h.0.crossattention.c_attn.weight", "rope_freqs.weight", 8, 0, false, false},
        {&gpt2, "transformer.h.0.attn.bias", NULL, 24, 0, false, false}, /* no mask */
        {&llama, "model.layers.0.attn.bias", NULL, 24, 24, true, false},
        {&llama, "model.layers.0.self_attn.rotary_emb.inv_freq", NULL, 4, 0, false, true},
        {&qwen3, "model.rotary_emb.inv_freq", NULL, 40, 0, false, true},
        {&llama, NULL, "blk.0.attn_rot_embd.weight", 4, 0, false, false},
        {&gpt2, "transformer.h.0.attn.bias", NULL, 24, 24, true, true},
        {&gpt2, "h.1.attn.masked_bias", NULL, 1, 0, false, true},
        {&gpt2, "lm_head.weight", NULL, 67, 48, false, true}, /* the table is the head */
        {&llama3, "lm_head.weight", NULL, 131, 32, false, true},
    };
    ignis_model_desc desc;
    ignis_model_info info;
    int i, kind;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    for (i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        for (kind = 0; kind < 2; kind++) {
            const char *name = kind ? cases[i].gguf : cases[i].name;
            ck_model m = *cases[i].model;
            if (!name)
                continue;
            m.stretch = NULL;
            ck_make(&m);
            ck_add(&m, cases[i].rows, cases[i].columns, name, name, 0, false, false);
            m.tensors[m.count - 1].leading = cases[i].leading;
            desc.path = test_path(kind ? "m.gguf" : "f");
            if (kind) {
                ck_bytes file = ck_gguf(&m, 0, NULL);
                test_write_file(desc.path, file.data, file.size);
                free(file.data);
            } else {
                ck_write_folder(&m, desc.path, IGNIS_F32, 1);
            }
            if (cases[i].fits) {
                CHECK_OK(ignis_model_inspect(&desc, &info));
            } else {
                CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
                CHECK_MESSAGE_HAS(name);
                CHECK_MESSAGE_HAS("model of layers 0 to ");
                CHECK_INT(ignis_model_open(&desc).id, 0);
                CHECK_INT(ignis_status_last(), IGNIS_ERROR_UNSUPPORTED);
                ignis_status_clear();
            }
            ck_free(&m);
        }
    }
    CHECK_INT(memory().live_bytes, 0);
}

static int put_not_causal(ck_bytes *head)
{
    ck_text(head, "llama.attention.causal"), ck_u32(head, 7), ck_put(head, "\0", 1);
    return 1;
}

static int said_part, said_count, said_tensors; /* what a part says */
static int put_part(ck_bytes *head)
{
    ck_text(head, "split.no"), ck_u32(head, 2), ck_put(head, &said_part, 2);
    ck_text(head, "split.count"), ck_u32(head, 2), ck_put(head, &said_count, 2);
    ck_text(head, "split.tensors.count"), ck_u32(head, 5), ck_u32(head, (uint32_t)said_tensors);
    return 3;
}

static int put_only_part(ck_bytes *head)
{
    ck_text(head, "split.no"), ck_u32(head, 2), ck_put(head, "\0", 2);
    ck_text(head, "split.count"), ck_u32(head, 2), ck_put(head, "\1", 2);
    return 2;
}

/*  Writes part `part` of three of a model, under the name of part `as`. */
static void write_part(ck_model *m, int type, const float *divisors, int part, int as)
{
    char name[64];
    ck_bytes file;
    ck_parts = 3, ck_part = part, ck_more_keys = put_part;
    file = ck_gguf(m, type, divisors);
    ck_parts = 1, ck_part = 0, ck_more_keys = NULL;
    snprintf(name, sizeof name, "m-%05d-of-00003.gguf", as + 1);
    test_write_file(test_path(name), file.data, file.size);
    free(file.data);
}

/*  Three files are one model, wherever its tensors are; the divisors are in the third one. */
TEST(a_model_in_parts)
{
    float divisors[128];
    int type, part, i;
    SETUP(NULL);
    for (type = 0; type <= 6; type += 6) {
        ck_model m = wide;
        ignis_model model;
        ck_make(&m);
        CHECK(m.count % 3 != 2); /* the divisors are not in the first part */
        said_count = 3, said_tensors = m.count + 1;
        for (i = 0; i < m.head_dim / 2; i++)
            divisors[i] = 1;
        for (part = 0; part < 3; part++) {
            said_part = part;
            write_part(&m, type, divisors, part, part);
        }
        model = open_with(test_path("m-00001-of-00003.gguf"), IGNIS_F32);
        CHECK_VALUES(model, &m, IGNIS_F32, 4e-7);
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

TEST(parts_that_do_not_fit_are_refused)
{
    static const struct {
        int part, count, tensors, wrong; /* what part `wrong` says, and all of tensors */
        const char *message;
    } cases[] = {{1, 3, 0, 1, NULL},
                 {2, 3, 0, 1, "says that it is part 3 of 3; expected part 2 of 3"},
                 {1, 4, 0, 1, "says that it is part 2 of 4; expected part 2 of 3"},
                 {0, 2, 0, 0, "its name has to end in -00001-of-00002.gguf"},
                 {1, 3, 0, 0, "its name has to end in -00002-of-00003.gguf"},
                 {7, 3, 0, 0, "has split.no 7 and split.count 3; expected a number below the count"},
                 {1, 3, 5, 1, "3 parts have"}};
    ignis_model_desc desc;
    ignis_model_info info;
    ck_model m = llama;
    int i, part;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    ck_make(&m);
    for (i = 0; i < COUNT_OF(cases); i++) {
        for (part = 0; part < 3; part++) {
            said_part = part == cases[i].wrong ? cases[i].part : part;
            said_count = part == cases[i].wrong ? cases[i].count : 3;
            said_tensors = cases[i].tensors ? cases[i].tensors : m.count;
            write_part(&m, 0, NULL, part, part);
        }
        desc.path = test_path("m-00001-of-00003.gguf");
        if (!cases[i].message) {
            CHECK_OK(ignis_model_inspect(&desc, &info));
            desc.path = test_path("m-00002-of-00003.gguf");
            CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT, IGNIS_DIAG_MODEL_CONFIG);
            CHECK_MESSAGE_HAS("is part 2 of 3: a model is opened by its first part");
            continue;
        }
        CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT, IGNIS_DIAG_MODEL_CONFIG);
        CHECK_MESSAGE_HAS(cases[i].message);
    }
    said_count = 3, said_tensors = 0;
    for (i = 0; i < m.count; i++)
        said_tensors += (i + 1) % 3 == 0 ? 2 : (i + 1) % 3 == 2;
    for (part = 0; part < 3; part++) /* the tensors of the first part again as those of the second */
        said_part = part, write_part(&m, 0, NULL, part == 1 ? 0 : part, part);
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT, IGNIS_DIAG_MODEL_CONFIG);
    CHECK_MESSAGE_HAS("m-00002-of-00003.gguf'");
    remove(test_path("m-00002-of-00003.gguf"));
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS("is part 1 of 3, but part 2 is missing: '");
    CHECK_MESSAGE_HAS("m-00002-of-00003.gguf'");
    ck_free(&m);
}

TEST(a_part_of_a_model_and_one_that_looks_ahead_are_refused)
{
    ignis_model_desc desc;
    ignis_model_info info;
    int only;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("m.gguf");
    for (only = 0; only < 3; only++) {
        ck_model m = llama;
        ck_make(&m);
        ck_more_keys = only == 2 ? put_not_causal : only ? put_only_part : put_part;
        said_part = 0, said_count = 2, said_tensors = m.count;
        ck_bytes file = ck_gguf(&m, 0, NULL);
        ck_more_keys = NULL;
        test_write_file(desc.path, file.data, file.size);
        free(file.data), ck_free(&m);
        if (only == 1) {
            CHECK_OK(ignis_model_inspect(&desc, &info));
        } else if (only == 2) {
            CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
            CHECK_MESSAGE_HAS("has llama.attention.causal false, which Ignis cannot do");
        } else {
            CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT, IGNIS_DIAG_MODEL_CONFIG);
            CHECK_MESSAGE_HAS("is part 1 of 2: its name has to end in -00001-of-00002.gguf");
        }
    }
}

/* weights --------------------------------------------------------------------------------------------------------- */

static bool same_scores(ignis_model a, ignis_model b, const ck_model *m)
{
    int64_t count = (int64_t)BATCH * SEQ * m->vocab;
    float *one = (float *)calloc((size_t)count, sizeof *one), *other = (float *)calloc((size_t)count, sizeof *other);
    bool same;
    scores_of(a, m, one);
    scores_of(b, m, other);
    same = memcmp(one, other, (size_t)count * sizeof *one) == 0;
    free(one), free(other);
    return same;
}

TEST(what_is_saved_is_opened_again_to_the_bit)
{
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_BF16, IGNIS_F32, IGNIS_F16, IGNIS_F32};
    ignis_model_info info, info_again;
    int i;
    SETUP(NULL);
    for (i = 0; i < MODELS; i++) {
        ck_make(models[i]);
        ck_write_folder(models[i], test_path("from"), IGNIS_F32, 1);
        ignis_model model = open_with(test_path("from"), dtypes[i]);
        CHECK_OK(ignis_model_save(model, test_path("to/deep")));
        CHECK_INT(test_files_in(test_path("to/deep")), 2);
        CHECK_OK(ignis_model_save(model, test_path("to/deep"))); /* over the old one */
        ignis_model again = open_with(test_path("to/deep"), IGNIS_DTYPE_DEFAULT);
        CHECK_INT(same_scores(model, again, models[i]), true);
        CHECK_OK(ignis_model_query(model, &info));
        CHECK_OK(ignis_model_query(again, &info_again));
        info.file_bytes = info_again.file_bytes;
        CHECK_INT(memcmp(&info, &info_again, sizeof info), 0);
        ignis__model *one = ignis__model_hold("test", model), *other = ignis__model_hold("test", again);
        CHECK_INT(memcmp(one->frequencies, other->frequencies, sizeof one->frequencies), 0);
        CHECK_INT(memcmp(&one->attention_scale, &other->attention_scale, sizeof one->attention_scale), 0);
        CHECK_INT(one->bos, other->bos);
        CHECK_INT(one->stop_count, other->stop_count);
        CHECK_INT(memcmp(one->stops, other->stops, sizeof one->stops), 0);
        CHECK(one->stop_count == (ck_is_gpt2(models[i]) ? 1 : 2) && one->stops[0] == 2);
        ignis__model_drop("test", one);
        ignis__model_drop("test", other);
        CHECK_OK(ignis_model_free(model));
        CHECK_OK(ignis_model_free(again));
        ck_free(models[i]);
        test_remove_folder(test_path("to"));
    }
}

/*  A tokenizer, a template and settings of generation go along, byte by byte, and nothing else does. */
TEST(what_stands_beside_the_weights_is_copied)
{
    static const char *const names[] = {
        "tokenizer.json",      "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "chat_template.jinja", "chat_template.json",    "generation_config.json",  "vocab.json",
        "merges.txt",          "tokenizer.model"};
    const size_t large = 3 * (size_t)IGNIS__CONVERT_CHUNK + 5; /* more than one piece */
    char *bytes = (char *)malloc(large), path[256];
    ignis_model_desc desc;
    ignis_model model;
    size_t i;
    int k;
    SETUP(NULL);
    for (i = 0; i < large; i++)
        bytes[i] = (char)(i * i / 7);
    ck_make(&gpt2);
    ck_write_folder(&gpt2, test_path("f"), IGNIS_F32, 2);
    for (k = 0; k < 10; k++) {
        char text[64];
        snprintf(text, sizeof text, "{\"number\": %d}", k);
        ck_write_text(test_path("f"), names[k], text);
    }
    snprintf(path, sizeof path, "%s/vocab.json", test_path("f"));
    test_write_file(path, bytes, large);
    snprintf(path, sizeof path, "%s/merges.txt", test_path("f"));
    test_write_file(path, "", 0);
    ck_write_text(test_path("f"), "README.md", "not this one");
    model = open_with(test_path("f"), IGNIS_DTYPE_DEFAULT);
    test_remove_folder(test_path("to"));
    CHECK_OK(ignis_model_save(model, test_path("to")));
    CHECK_INT(test_files_in(test_path("to")), 12);
    for (k = 0; k < 10; k++) {
        size_t sizes[2];
        char *copies[2];
        snprintf(path, sizeof path, "%s/%s", test_path("f"), names[k]);
        copies[0] = (char *)ignis__file_read(path, &sizes[0]);
        snprintf(path, sizeof path, "%s/%s", test_path("to"), names[k]);
        copies[1] = (char *)ignis__file_read(path, &sizes[1]);
        CHECK(copies[0] && copies[1] && sizes[0] == sizes[1] && memcmp(copies[0], copies[1], sizes[0]) == 0);
        ignis__free(copies[0]), ignis__free(copies[1]);
    }
    CHECK_OK(ignis_model_save(model, test_path("f"))); /* onto themselves: model.safetensors comes beside the shards */
    CHECK_INT(test_files_in(test_path("f")), 10 + 1 + 4 + 1);
    snprintf(path, sizeof path, "%s/vocab.json", test_path("f"));
    char *again = (char *)ignis__file_read(path, &i);
    CHECK(again && i == large && memcmp(again, bytes, large) == 0);
    ignis__free(again);
    snprintf(path, sizeof path, "%s/tokenizer.model", test_path("f"));
    CHECK_INT(unlink(path), 0);
    CHECK_INT(ignis__folder_make_all(path), true); /* a folder is no tokenizer */
    test_remove_folder(test_path("to"));
    CHECK_OK(ignis_model_save(model, test_path("to")));
    CHECK_INT(test_files_in(test_path("to")), 11);
    snprintf(path, sizeof path, "%s/chat_template.jinja", test_path("to"));
    CHECK_INT(unlink(path), 0);
    CHECK_INT(ignis__folder_make_all(path), true);
    CHECK_STATUS(ignis_model_save(model, test_path("to")), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS("chat_template.jinja' exists, and is not a regular file");
    CHECK_INT(test_files_in(test_path("to")), 11); /* nothing half-written stays */
    test_remove_folder(test_path("f"));
    CHECK_OK(ignis_model_save(model, test_path("alone"))); /* where it came from there is nothing any more */
    CHECK_INT(test_files_in(test_path("alone")), 2);
    CHECK_OK(ignis_model_free(model));
    write_gguf(&gpt2, 0, test_path("m.gguf")); /* whose keys have the tokenizer */
    ck_write_text(test_folder, "tokenizer.json", "{}");
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("m.gguf");
    model = ignis_model_open(&desc);
    test_remove_folder(test_path("alone"));
    CHECK_OK(ignis_model_save(model, test_path("alone")));
    CHECK_INT(test_files_in(test_path("alone")), 2);
    CHECK_OK(ignis_model_free(model));
    free(bytes);
    ck_free(&gpt2);
}

/*  No folder is the current one, as in Python's os.path.join. */
TEST(files_lie_in_the_folder_that_is_named)
{
    static const char *const cases[][2] = {{"", "name"}, {"f", "f/name"}, {"f/", "f/name"}, {"/", "/name"}};
    int i;
    for (i = 0; i < COUNT_OF(cases); i++) {
        char *path = ignis__model_path("test", cases[i][0], "name");
        CHECK_TEXT(path, cases[i][1]);
        ignis__free(path);
    }
}

TEST(saving_fails_where_it_cannot_write)
{
    ignis_model model;
    SETUP(NULL);
    ck_make(&gpt2);
    ck_write_folder(&gpt2, test_path("f"), IGNIS_F32, 1);
    model = open_with(test_path("f"), IGNIS_DTYPE_DEFAULT);
    test_write_file(test_path("file"), "x", 1);
    CHECK_STATUS(ignis_model_save(model, test_path("file/below")), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_STATUS(ignis_model_save(model, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_INT(ignis__folder_make_all(test_path("s/config.json")), true); /* a folder in the place of the file */
    CHECK_STATUS(ignis_model_save(model, test_path("s")), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_INT(test_files_in(test_path("s")), 2); /* nothing half-written stays */
    CHECK_SCORES(model, &gpt2, 5e-6);
    CHECK_OK(ignis_model_free(model));
    ck_free(&gpt2);
}

TEST(weights_have_names)
{
    ignis_tensor all[64], tensor, part;
    ignis_model model;
    int count, i;
    SETUP(NULL);
    ck_make(&llama3);
    ck_write_folder(&llama3, test_path("f"), IGNIS_F32, 1);
    model = open_with(test_path("f"), IGNIS_DTYPE_DEFAULT);
    CHECK_VALUES(model, &llama3, IGNIS_F32, 0);
    ignis_scope scope = ignis_scope_begin();
    tensor = ignis_model_tensor(model, "model.layers.0.self_attn.qkv_proj.weight");
    CHECK_INT(shape_of(tensor).dim[0], (4 + 2) * 64);
    CHECK_INT(shape_of(tensor).dim[1], 32);
    CHECK_INT(shape_of(ignis_model_tensor(model, "model.layers.0.self_attn.qkv_proj.bias")).dim[0], (4 + 2) * 64);
    CHECK_INT(shape_of(ignis_model_tensor(model, "model.layers.0.mlp.gate_up_proj.weight")).dim[0], 2 * 48);
    part = ignis_model_tensor(model, "model.layers.0.self_attn.k_proj.weight");
    CHECK_INT(shape_of(part).dim[0], 64);
    CHECK_INT(ignis_model_tensor(model, "lm_head.weight").id,
              ignis_model_tensor(model, "model.embed_tokens.weight").id);
    CHECK_OK(ignis_array_zero(ignis_tensor_data(part))); /* it is the same memory */
    float *rows = (float *)calloc(384 * 32, sizeof *rows);
    CHECK_OK(ignis_tensor_to_host(tensor, rows, IGNIS_F32, 384 * 32));
    for (i = 0; i < 384 * 32; i++)
        CHECK_INT(rows[i] == 0, i / 32 >= 256 && i / 32 < 320);
    free(rows);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_array_numel(ignis_tensor_data(tensor)) == 384 * 32 ? 0 : 1); /* a weight outlives the scope */
    count = ignis_model_weights(model, all, 64);
    CHECK_INT(count, 2 + 8 + 2 - 0 + 0);
    CHECK_INT(ignis_model_weights(model, NULL, 0), count);
    CHECK_INT(ignis_model_weights(model, all, 1), count);
    CHECK_FAILS(ignis_model_weights(model, NULL, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_model_weights(model, all, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_model_tensor(model, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_model_tensor(model, "model.layers.1.input_layernorm.weight"), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_STORAGE_MISSING);
    CHECK_MESSAGE_HAS("the model, llama of 1 layers, has no weight 'model.layers.1.input_layernorm.weight'");
    CHECK_OK(ignis_model_free(model));
    CHECK_FAILS(ignis_tensor_data(tensor), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    ck_free(&llama3);
    ck_make(&gpt2);
    ck_write_folder(&gpt2, test_path("f"), IGNIS_F32, 1);
    model = open_with(test_path("f"), IGNIS_DTYPE_DEFAULT);
    CHECK_INT(ignis_model_tensor(model, "h.1.mlp.c_fc.bias").id,
              ignis_model_tensor(model, "transformer.h.1.mlp.c_fc.bias").id);
    CHECK_OK(ignis_model_free(model));
    ck_free(&gpt2);
}

/*  GPT-2's first files have names without a prefix. */
TEST(names_without_a_prefix_are_found)
{
    ignis_model model;
    int i;
    SETUP(NULL);
    ck_make(&gpt2);
    for (i = 0; i < gpt2.count; i++)
        memmove(gpt2.tensors[i].name, gpt2.tensors[i].name + 12, strlen(gpt2.tensors[i].name) - 11);
    ck_write_folder(&gpt2, test_path("f"), IGNIS_F32, 1);
    model = open_with(test_path("f"), IGNIS_DTYPE_DEFAULT);
    ck_free(&gpt2);
    ck_make(&gpt2);
    CHECK_SCORES(model, &gpt2, 5e-6);
    CHECK_OK(ignis_model_free(model));
    ck_free(&gpt2);
}

TEST(a_model_learns)
{
    ignis_tensor weights[64], ids, targets, loss;
    ignis_adamw_desc adamw;
    ignis_tensor_desc int_desc = tensor_desc(IGNIS_I32, false);
    int32_t text[2 * SEQ];
    double first = 0, last = 0;
    int family, step, count, i;
    SETUP(NULL);
    for (family = 0; family < MODELS; family += 2) { /* GPT-2, Llama with biases, Qwen3 */
        const ck_model *m = models[family];
        ignis_model_desc desc;
        ck_make(models[family]);
        ck_write_folder(m, test_path("f"), IGNIS_F32, 1);
        memset(&desc, 0, sizeof desc);
        memset(&adamw, 0, sizeof adamw);
        desc.path = test_path("f");
        desc.requires_grad = true;
        ids_fill(m, text, 2 * SEQ);
        ids = ignis_tensor_from_host(text, IGNIS_SHAPE(2, SEQ), &int_desc);
        targets = ignis_tensor_from_host(text, IGNIS_SHAPE(2 * SEQ), &int_desc);
        ignis_model model = ignis_model_open(&desc);
        adamw.lr = 3e-3;
        ignis_optimizer optimizer = ignis_adamw(&adamw);
        count = ignis_model_weights(model, weights, 64);
        CHECK(count > 8 && count <= 64);
        for (i = 0; i < count; i++)
            CHECK_OK(ignis_optimizer_add(optimizer, weights[i], false));
        for (step = 0; step < 4; step++) {
            ignis_scope scope = ignis_scope_begin();
            loss = ignis_cross_entropy(ignis_reshape(ignis_model_forward(model, ids), IGNIS_SHAPE(2 * SEQ, m->vocab)),
                                       targets, NULL);
            last = ignis_item(loss);
            first = step == 0 ? last : first;
            CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
            for (i = 0; step == 0 && i < count; i++) {
                ignis_array grad = ignis_tensor_grad(weights[i]);
                int64_t n = ignis_array_numel(grad), k;
                float *values = (float *)calloc((size_t)n, sizeof *values), most = 0;
                CHECK_OK(ignis_array_to_host(grad, values, IGNIS_F32, n));
                for (k = 0; k < n; k++)
                    most = fabsf(values[k]) > most ? fabsf(values[k]) : most;
                CHECK(most > 0);
                free(values);
            }
            CHECK_OK(ignis_optimizer_step(optimizer));
            CHECK_OK(ignis_optimizer_zero_grad(optimizer));
            CHECK_OK(ignis_scope_end(scope));
        }
        CHECK(last < 0.9 * first);
        CHECK_OK(ignis_model_save(model, test_path("learnt"))); /* what was learnt is what others get */
        ignis_model again = open_with(test_path("learnt"), IGNIS_DTYPE_DEFAULT);
        CHECK_INT(same_scores(model, again, m), true);
        CHECK_OK(ignis_model_free(again));
        CHECK_OK(ignis_optimizer_free(optimizer));
        CHECK_OK(ignis_model_free(model));
        CHECK_OK(ignis_tensor_release(ids));
        CHECK_OK(ignis_tensor_release(targets));
        ck_free(models[family]);
    }
}

/* what a model is ------------------------------------------------------------------------------------------------- */

TEST(sizes_are_known_without_a_device)
{
    ignis_model_desc desc;
    ignis_model_info info;
    ck_make(&qwen3);
    ck_write_folder(&qwen3, test_path("f"), IGNIS_BF16, 2);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("f");
    CHECK_OK(ignis_model_inspect(&desc, &info)); /* before ignis_setup */
    CHECK(info.family == IGNIS_MODEL_QWEN3 && info.layers == 2 && info.hidden == 40 && info.heads == 3 &&
          info.kv_heads == 1);
    CHECK(info.head_dim == 80 && info.inner == 56 && info.vocab == 71 && info.model_context == 96 &&
          info.context == 96);
    CHECK(info.sequences == 1 && info.dtype == IGNIS_BF16 && info.cache_dtype == IGNIS_BF16 && !info.tied);
    CHECK_INT(info.parameters,
              2 * 71 * 40 + 40 + 2 * (40 + 240 * 40 + 2 * 80 * 40 + 160 + 40 * 240 + 40 + 3 * 56 * 40));
    CHECK_INT(info.weight_bytes, info.parameters * 2);
    CHECK_INT(info.file_bytes, info.parameters * 2);
    CHECK_INT(info.cache_bytes_of_token, 2 * 2 * 80 * 2);
    CHECK_INT(info.cache_bytes, info.cache_bytes_of_token * 96);
    CHECK(info.workspace_bytes > 0);
    CHECK(info.end_count == 2 && info.ends[0] == 2 && info.ends[1] == 3);
    desc.context = 50, desc.sequences = 3, desc.dtype = IGNIS_F32, desc.cache_dtype = IGNIS_F16;
    CHECK_OK(ignis_model_inspect(&desc, &info));
    CHECK_INT(info.cache_bytes, info.cache_bytes_of_token * 50 * 3);
    CHECK_INT(info.weight_bytes, info.parameters * 4);
    CHECK_INT(info.cache_bytes_of_token, 2 * 2 * 80 * 2);
    desc.cache_type = IGNIS_CACHE_Q8_0;
    CHECK_OK(ignis_model_inspect(&desc, &info));
    CHECK(info.cache_type == IGNIS_CACHE_Q8_0);
    CHECK_INT(info.cache_bytes_of_token, 2 * 2 * (80 + 80 / 16));
    desc.cache_type = IGNIS_CACHE_COUNT;
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_MESSAGE_HAS("desc->cache_type is 4, no value of ignis_cache_type");
    desc.cache_type = IGNIS_CACHE_DEFAULT;
    desc.context = 97;
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.context = -1;
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.context = 0, desc.sequences = -2;
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("desc->sequences is -2, below 0");
    desc.sequences = 0, desc.dtype = IGNIS_I32;
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    desc.dtype = IGNIS_DTYPE_DEFAULT, desc.cache_dtype = IGNIS_F64;
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_MESSAGE_HAS("desc->cache_dtype");
    CHECK_STATUS(ignis_model_inspect(NULL, &info), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc.cache_dtype = IGNIS_DTYPE_DEFAULT;
    CHECK_STATUS(ignis_model_inspect(&desc, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc.path = NULL;
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_model_open(&desc), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    ck_free(&qwen3);
}

/*  A description may speak of more tokens than there are bytes. */
TEST(caches_beyond_all_memory)
{
    ck_model large = llama;
    ignis_model_desc desc;
    ignis_model_info info;
    large.context = 1 << 30;
    ck_make(&large);
    ck_write_folder(&large, test_path("f"), IGNIS_F32, 1);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("f");
    desc.context = large.context;
    desc.sequences = INT32_MAX;
    CHECK_OK(ignis_model_inspect(&desc, &info));
    CHECK(info.cache_bytes_of_token > 2 && info.cache_bytes == INT64_MAX);
    ck_free(&large);
}

TEST(a_dry_run_counts_what_a_model_takes)
{
    ignis_model_desc desc;
    ignis_model_info info;
    ignis_desc setup;
    ignis_model model;
    memset(&setup, 0, sizeof setup);
    setup.dry_run = true;
    SETUP(&setup);
    ck_make(&gpt2);
    ck_write_folder(&gpt2, test_path("f"), IGNIS_F32, 1);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("f");
    model = ignis_model_open(&desc);
    CHECK_OK(ignis_model_query(model, &info));
    CHECK(memory().live_bytes >= info.weight_bytes && memory().live_bytes < info.weight_bytes + 64 * 1024);
    int32_t ids[SEQ] = {0};
    ignis_tensor_desc int_desc = tensor_desc(IGNIS_I32, false);
    ignis_scope scope = ignis_scope_begin();
    CHECK(ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(SEQ), &int_desc)).id != 0);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_model_free(model));
    ck_free(&gpt2);
}

/*  Files of the sizes that are published, without their values: what they say is true, and about what a pass takes. */
TEST(true_shapes_are_counted)
{
    static const struct {
        ck_model model;
        int64_t parameters, cache_of_token;
    } cases[] = {{{.family = "llama",
                   .layers = 16,
                   .hidden = 2048,
                   .heads = 32,
                   .kv_heads = 8,
                   .head_dim = 64,
                   .inner = 8192,
                   .vocab = 128256,
                   .context = 131072,
                   .tied = true,
                   .eps = 1e-5,
                   .theta = 500000},
                  1235814400,
                  32768}, /* Llama 3.2 1B */
                 {{.family = "qwen3",
                   .layers = 28,
                   .hidden = 1024,
                   .heads = 16,
                   .kv_heads = 8,
                   .head_dim = 128,
                   .inner = 3072,
                   .vocab = 151936,
                   .context = 40960,
                   .tied = true,
                   .eps = 1e-6,
                   .theta = 1000000},
                  596049920,
                  114688}}; /* Qwen3-0.6B */
    static const char *const parts[] = {
        "input_layernorm",  "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
        "self_attn.v_proj", "self_attn.o_proj",         "mlp.gate_proj",    "mlp.up_proj",
        "mlp.down_proj",    "self_attn.q_norm",         "self_attn.k_norm"};
    int32_t *ids = (int32_t *)calloc(512, sizeof *ids);
    ignis_tensor_desc int_desc = tensor_desc(IGNIS_I32, false);
    ignis_desc setup;
    int c, l, k;
    NEEDS_POSIX("truncate");
    memset(&setup, 0, sizeof setup);
    setup.dry_run = true;
    for (c = 0; c < 2; c++) {
        ck_model m = cases[c].model;
        ck_bytes header = {0}, file = {0};
        char text[8192], path[256];
        int64_t end = 0, h = m.hidden, q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
        int64_t rows[] = {h, h, q, kv, kv, h, m.inner, m.inner, h, m.head_dim, m.head_dim},
                columns[] = {0, 0, h, h, h, q, h, h, m.inner, 0, 0};
        ignis_model_desc desc;
        ignis_model_info info;
        test_remove_folder(test_path("f"));
        CHECK_INT(ignis__folder_make_all(test_path("f")), true);
        ck_config(&m, text, sizeof text);
        ck_write_text(test_path("f"), "config.json", text);
        snprintf(text, sizeof text,
                 "{\"model.embed_tokens.weight\":{\"dtype\":\"BF16\",\"shape\":[%d,%d],\"data_offsets\":[0,%lld]},"
                 "\"model.norm.weight\":{"
                 "\"dtype\":"
                 "\"BF16\",\"shape\":[%d],\"data_offsets\":[%lld,%lld]}",
                 m.vocab, m.hidden, 2LL * m.vocab * m.hidden, m.hidden, 2LL * m.vocab * m.hidden,
                 2LL * m.vocab * m.hidden + 2 * m.hidden);
        end = 2LL * m.vocab * m.hidden + 2 * m.hidden;
        ck_put(&header, text, strlen(text));
        for (l = 0; l < m.layers; l++) {
            for (k = 0; k < (c ? 11 : 9); k++) {
                int64_t bytes = 2 * rows[k] * (columns[k] ? columns[k] : 1);
                snprintf(path, sizeof path, columns[k] ? "%lld,%lld" : "%lld", (long long)rows[k],
                         (long long)columns[k]);
                snprintf(
                    text, sizeof text,
                    ",\"model.layers.%d.%s.weight\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%lld,%lld]}",
                    l, parts[k], path, (long long)end, (long long)(end + bytes));
                ck_put(&header, text, strlen(text));
                end += bytes;
            }
        }
        ck_put(&header, "}", 1);
        ck_u64(&file, header.size);
        ck_put(&file, header.data, header.size);
        snprintf(path, sizeof path, "%s/model.safetensors", test_path("f"));
        test_write_file(path, file.data, file.size);
        CHECK_INT(truncate(path, (off_t)((int64_t)file.size + end)), 0); /* with a hole */
        free(header.data), free(file.data);
        memset(&desc, 0, sizeof desc);
        desc.path = test_path("f");
        SETUP(&setup); /* each has a peak of its own */
        CHECK_OK(ignis_model_inspect(&desc, &info));
        CHECK_INT(info.parameters, cases[c].parameters);
        CHECK_INT(info.cache_bytes_of_token, cases[c].cache_of_token);
        CHECK_INT(info.context, 4096);
        ignis_model model = ignis_model_open(&desc);
        int64_t before = memory().live_bytes, taken;
        CHECK(before >= info.weight_bytes && before < info.weight_bytes + info.weight_bytes / 64);
        ignis_no_grad_begin();
        ignis_scope scope = ignis_scope_begin();
        ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(512), &int_desc));
        ignis_scope_end(scope);
        ignis_no_grad_end();
        taken = memory().live_peak - before -
                (int64_t)511 * m.vocab * 2; /* without the scores of other rows than the last */
        CHECK(taken < info.workspace_bytes * 5 / 4 && taken > info.workspace_bytes / 2);
        CHECK_OK(ignis_model_free(model));
        CHECK_OK(ignis_shutdown());
    }
    free(ids);
}

/* progress, handles, what is left behind -------------------------------------------------------------------------- */

static struct {
    int calls, stop_at;
    int64_t done, total;
} seen;

static bool progress(int64_t done, int64_t total, void *user_data)
{
    CHECK(user_data == &seen);
    CHECK(done > seen.done && done <= total);
    seen.done = done, seen.total = total;
    return ++seen.calls != seen.stop_at;
}

TEST(progress_is_told_and_may_stop)
{
    ignis_model_desc desc;
    ignis_model model;
    int calls, stop;
    SETUP(NULL);
    ck_make(&qwen2);
    ck_write_folder(&qwen2, test_path("f"), IGNIS_F32, 2);
    memset(&desc, 0, sizeof desc);
    memset(&seen, 0, sizeof seen);
    desc.path = test_path("f");
    desc.progress_fn = progress;
    desc.user_data = &seen;
    model = ignis_model_open(&desc);
    CHECK_INT(seen.done, seen.total);
    calls = seen.calls;
    CHECK(calls > 10);
    CHECK_OK(ignis_model_free(model));
    for (stop = 1; stop <= calls; stop += calls / 3) {
        memset(&seen, 0, sizeof seen);
        seen.stop_at = stop;
        CHECK_FAILS(ignis_model_open(&desc), IGNIS_ERROR_IO, IGNIS_DIAG_MODEL_CANCELLED);
        CHECK_MESSAGE_HAS("desc.progress_fn has returned false");
        CHECK_INT(memory().live_bytes, 0);
    }
    ck_free(&qwen2);
}

TEST(a_model_has_its_tokenizer)
{
    static const char tokenizer[] =
        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": "
        "null, \"pre_tokenizer\": {\"type\": "
        "\"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true}, "
        "\"post_processor\": null, \"decoder\": {\"type\": "
        "\"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}, \"model\": "
        "{\"type\": \"BPE\", \"dropout\": null, "
        "\"unk_token\": null, \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": "
        "false, \"byte_fallback\": false, "
        "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}}";
    int32_t ids[8];
    ignis_tokenizer found;
    ignis_model model;
    SETUP(NULL);
    ck_make(&gpt2);
    ck_write_folder(&gpt2, test_path("f"), IGNIS_F32, 1);
    model = open_with(test_path("f"), IGNIS_DTYPE_DEFAULT);
    found = ignis_model_tokenizer(model);
    CHECK_INT(found.id, 0);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_IO);
    ignis_status_clear();
    ck_write_text(test_path("f"), "tokenizer.json", tokenizer);
    found = ignis_model_tokenizer(model); /* there is one now */
    CHECK(found.id != 0);
    CHECK_INT(ignis_model_tokenizer(model).id, found.id);
    CHECK_INT(ignis_tokenizer_encode(found, "aba", 3, NULL, ids, 8), 2);
    CHECK(ids[0] == 2 && ids[1] == 0);
    CHECK_OK(ignis_model_free(model));
    CHECK_STATUS(ignis_tokenizer_free(found), IGNIS_ERROR_FREED, IGNIS_DIAG_TOKENIZER_FREED);
    CHECK_FAILS(ignis_model_tokenizer(model), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    ck_free(&gpt2);
}

TEST(handles_are_checked_and_leaks_reported)
{
    ignis_tensor_desc f32 = tensor_desc(IGNIS_F32, false), i32 = tensor_desc(IGNIS_I32, false);
    int32_t ids[100] = {0};
    ignis_model none, model;
    ignis_model_info info;
    memset(&none, 0, sizeof none);
    SETUP(NULL);
    ck_make(&gpt2);
    ck_write_folder(&gpt2, test_path("f"), IGNIS_F32, 1);
    ignis_scope scope = ignis_scope_begin();
    model = open_with(test_path("f"), IGNIS_DTYPE_DEFAULT);
    CHECK_OK(ignis_scope_end(scope)); /* the weights stay */
    CHECK_SCORES(model, &gpt2, 5e-6);
    scope = ignis_scope_begin();
    CHECK_INT(shape_of(ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(3), &i32))).dim[1],
              gpt2.vocab);
    CHECK_FAILS(ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(1, 25), &i32)), IGNIS_ERROR_SHAPE,
                IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("ids is [1, 25]; the model has positions for 24 tokens");
    CHECK_FAILS(ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(1, 2, 3), &i32)), IGNIS_ERROR_SHAPE,
                IGNIS_DIAG_SHAPE_DIFFERS);
    ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(2, 3), &f32));
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_DTYPE);
    ignis_status_clear();
    CHECK_OK(ignis_scope_end(scope));
    CHECK_SCORES(model, &gpt2, 5e-6);
    CHECK_STATUS(ignis_model_query(model, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_model_free(model));
    CHECK_STATUS(ignis_model_free(model), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_STATUS(ignis_model_query(model, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_STATUS(ignis_model_query(none, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_STATUS(ignis_model_save(model, test_path("s")), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_FAILS(ignis_model_tensor(model, "x"), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_FAILS(ignis_model_weights(model, NULL, 0), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_FAILS(ignis_model_forward(model, ignis_tensor_zeros(IGNIS_SHAPE(1), &i32)), IGNIS_ERROR_FREED,
                IGNIS_DIAG_MODEL_FREED);
    CHECK_INT(memory().live_bytes > 0, true); /* the ids */
    model = open_with(test_path("f"), IGNIS_DTYPE_DEFAULT);
    test_leaks_expected = true;
    CHECK_OK(ignis_shutdown());
    CHECK_HAS(test_log_text(IGNIS_DIAG_HANDLE_LEAKED), "model: gpt2 of 2 layers");
    ck_free(&gpt2);
}

static ignis_model shared;

static void *use_shared(void *scores)
{
    scores_of(shared, &llama, (float *)scores);
    ignis_model other = open_with(test_path("f"), IGNIS_BF16); /* and another one meanwhile */
    CHECK_OK(ignis_model_free(other));
    return NULL;
}

TEST(threads_share_a_model)
{
    size_t count = (size_t)(BATCH * SEQ * llama.vocab);
    float *scores[3];
    pthread_t threads[2];
    int i;
    SETUP(NULL);
    ck_make(&llama);
    ck_write_folder(&llama, test_path("f"), IGNIS_F32, 1);
    shared = open_with(test_path("f"), IGNIS_DTYPE_DEFAULT);
    for (i = 0; i < 3; i++)
        scores[i] = (float *)calloc(count, sizeof(float));
    scores_of(shared, &llama, scores[2]);
    for (i = 0; i < 2; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, use_shared, scores[i]), 0);
    for (i = 0; i < 2; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    for (i = 0; i < 2; i++)
        CHECK_INT(memcmp(scores[i], scores[2], count * sizeof(float)), 0);
    for (i = 0; i < 3; i++)
        free(scores[i]);
    CHECK_OK(ignis_model_free(shared));
    ck_free(&llama);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
