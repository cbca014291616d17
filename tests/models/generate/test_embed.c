// SPDX-License-Identifier: MIT
/*  test_embed.c - tiny encoders, from folders and GGUF files, against the test's own forward in double; vectors and
    scores of texts

    The forward here follows the layouts and formulas of transformers: it knows nothing of the library's tables. */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "encoder.h"
#include "near.h"

enum { SEQ = 7, MOST = 12 };

/* --- the forward, in double --------------------------------------------------------------------------------------- */

static const double *of_model(const encoder *e, const ck_model *m, const char *name)
{
    char format[96];
    snprintf(format, sizeof format, "%s%s", e->prefix, name);
    return ck_values(m, format, 0);
}

static const double *of_layer(const encoder *e, const ck_model *m, int layer, const char *name, const char *end)
{
    char format[96];
    snprintf(format, sizeof format, "%sencoder.%s.%%d.%s%s", e->prefix, e->nomic ? "layers" : "layer", name, end);
    return ck_values(m, format, layer);
}

static void norm(double *x, const double *w, const double *b)
{
    double mean = 0, square = 0;
    int i;
    for (i = 0; i < H; i++)
        mean += x[i] / H;
    for (i = 0; i < H; i++)
        square += (x[i] - mean) * (x[i] - mean) / H;
    for (i = 0; i < H; i++)
        x[i] = (x[i] - mean) / sqrt(square + 1e-12) * w[i] + b[i];
}

static void rotate(double *x, int position)
{
    int i;
    for (i = 0; i < D / 2; i++) {
        const double angle = position * pow(1000, -2.0 * i / D), a = x[i], b = x[i + D / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + D / 2] = b * cos(angle) + a * sin(angle);
    }
}

static void attention(const encoder *e, const ck_model *m, int l, const double *x, int seq, double *out)
{
    static const char *const names[] = {"attention.self.query", "attention.self.key", "attention.self.value"};
    double qkv[MOST][3 * Q * D], attended[Q * D], score[MOST];
    int s, j, i, head, part;
    for (s = 0; s < seq; s++) {
        for (part = 0; part < 3 && !e->nomic; part++)
            ck_linear(qkv[s] + part * Q * D, of_layer(e, m, l, names[part], ".weight"),
                      of_layer(e, m, l, names[part], ".bias"), x + s * H, Q * D, H);
        if (e->nomic)
            ck_linear(qkv[s], of_layer(e, m, l, "attn.Wqkv", ".weight"), NULL, x + s * H, 3 * Q * D, H);
        for (head = 0; head < 2 * Q && e->nomic; head++)
            rotate(qkv[s] + head * D, s);
    }
    for (s = 0; s < seq; s++) {
        for (head = 0; head < Q; head++) {
            double sum = 0;
            for (j = 0; j < seq; j++) {
                for (score[j] = 0, i = 0; i < D; i++)
                    score[j] += qkv[s][head * D + i] * qkv[j][(Q + head) * D + i];
                sum += score[j] = exp(score[j] / sqrt(D));
            }
            for (i = 0; i < D; i++)
                for (attended[head * D + i] = 0, j = 0; j < seq; j++)
                    attended[head * D + i] += score[j] / sum * qkv[j][(2 * Q + head) * D + i];
        }
        ck_linear(out + s * H, of_layer(e, m, l, e->nomic ? "attn.out_proj" : "attention.output.dense", ".weight"),
                  e->nomic ? NULL : of_layer(e, m, l, "attention.output.dense", ".bias"), attended, H, Q * D);
    }
}

static void mlp(const encoder *e, const ck_model *m, int l, const double *x, double *out)
{
    double up[I], gate[I];
    int i;
    if (e->nomic) {
        ck_linear(up, of_layer(e, m, l, "mlp.fc11", ".weight"), NULL, x, I, H);
        ck_linear(gate, of_layer(e, m, l, "mlp.fc12", ".weight"), NULL, x, I, H);
        for (i = 0; i < I; i++)
            up[i] *= gate[i] / (1 + exp(-gate[i]));
        ck_linear(out, of_layer(e, m, l, "mlp.fc2", ".weight"), NULL, up, H, I);
        return;
    }
    ck_linear(up, of_layer(e, m, l, "intermediate.dense", ".weight"), of_layer(e, m, l, "intermediate.dense", ".bias"),
              x, I, H);
    for (i = 0; i < I; i++)
        up[i] = 0.5 * up[i] * (1 + erf(up[i] / sqrt(2)));
    ck_linear(out, of_layer(e, m, l, "output.dense", ".weight"), of_layer(e, m, l, "output.dense", ".bias"), up, H, I);
}

/*  Hidden states [seq, H]. types: NULL for zeros. */
static void forward(const encoder *e, const ck_model *m, const int32_t *ids, const int32_t *types, int seq, double *x)
{
    const double *words = of_model(e, m, "embeddings.word_embeddings.weight"),
                 *positions = of_model(e, m, "embeddings.position_embeddings.weight"),
                 *kinds = of_model(e, m, "embeddings.token_type_embeddings.weight");
    double a[MOST * H], z[H];
    int l, s, i;
    for (s = 0; s < seq; s++) {
        for (i = 0; i < H; i++)
            x[s * H + i] = words[ids[s] * H + i] + (positions ? positions[(s + 2 * e->roberta) * H + i] : 0) +
                           kinds[(types ? types[s] : 0) * H + i];
        norm(x + s * H, of_model(e, m, e->nomic ? "emb_ln.weight" : "embeddings.LayerNorm.weight"),
             of_model(e, m, e->nomic ? "emb_ln.bias" : "embeddings.LayerNorm.bias"));
    }
    for (l = 0; l < LAYERS; l++) {
        const char *first = e->nomic ? "norm1" : "attention.output.LayerNorm",
                   *second = e->nomic ? "norm2" : "output.LayerNorm";
        attention(e, m, l, x, seq, a);
        for (s = 0; s < seq; s++) {
            for (i = 0; i < H; i++)
                x[s * H + i] += a[s * H + i];
            norm(x + s * H, of_layer(e, m, l, first, ".weight"), of_layer(e, m, l, first, ".bias"));
            mlp(e, m, l, x + s * H, z);
            for (i = 0; i < H; i++)
                x[s * H + i] += z[i];
            norm(x + s * H, of_layer(e, m, l, second, ".weight"), of_layer(e, m, l, second, ".bias"));
        }
    }
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static void write_folder(const encoder *e, const ck_model *m)
{
    test_remove_folder(test_path("e"));
    CHECK_INT(ignis__folder_make_all(test_path("e/1_Pooling")), true);
    write_files(e, m, test_path("e"));
}

static void write_pooling(const char *mode)
{
    char text[200];
    snprintf(text, sizeof text, "{\"word_embedding_dimension\": 32, \"pooling_mode_%s\": true}", mode);
    ck_write_text(test_path("e/1_Pooling"), "config.json", text);
}

static ignis_model open_model(const char *path, ignis_dtype dtype, ignis_weights weights)
{
    ignis_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.dtype = dtype;
    desc.weights = weights;
    return ignis_model_open(&desc);
}

/* --- comparisons -------------------------------------------------------------------------------------------------- */

static void compare(const encoder *e, const char *what, const float *got, const double *wanted, int count,
                    double tolerance)
{
    check_of_largest(__LINE__, e->model_type, what, got, wanted, count, tolerance, 0.01);
}

/*  Two texts of different lengths in one batch, the second one with types. */
static void check_hidden(const encoder *e, const ck_model *m, ignis_model model, double tolerance)
{
    int32_t ids[2 * SEQ], types[2 * SEQ] = {0}, lengths[2] = {SEQ - 3, SEQ};
    float got[2 * SEQ * H];
    double wanted[SEQ * H];
    ignis_tensor_desc desc = tensor_desc(IGNIS_I32, false);
    ignis_scope scope = ignis_scope_begin();
    ignis_hidden_desc hidden;
    ignis_tensor of;
    int i;
    for (i = 0; i < 2 * SEQ; i++) {
        ids[i] = (i * 13 + 5) % V;
        types[i] = i >= SEQ + 3;
    }
    memset(&hidden, 0, sizeof hidden);
    of = ignis_tensor_from_host(ids, IGNIS_SHAPE(2, SEQ), &desc);
    hidden.lengths = ignis_tensor_from_host(lengths, IGNIS_SHAPE(2), &desc);
    hidden.types = ignis_tensor_from_host(types, IGNIS_SHAPE(2, SEQ), &desc);
    CHECK_OK(ignis_tensor_to_host(ignis_model_hidden(model, of, &hidden), got, IGNIS_F32, 2 * SEQ * H));
    for (i = 0; i < 2; i++) {
        forward(e, m, ids + i * SEQ, types + i * SEQ, lengths[i], wanted);
        compare(e, i ? "second text" : "first text", got + i * SEQ * H, wanted, lengths[i] * H, tolerance);
    }
    of = ignis_tensor_from_host(ids, IGNIS_SHAPE(SEQ), &desc);
    CHECK_OK(ignis_tensor_to_host(ignis_model_hidden(model, of, NULL), got, IGNIS_F32, SEQ * H));
    forward(e, m, ids, NULL, SEQ, wanted);
    compare(e, "without a batch", got, wanted, SEQ * H, tolerance);
    CHECK_OK(ignis_scope_end(scope));
}

static const char *const texts[] = {"The cats sat on the mat.", "cat", "Caf\xC3\xA9 tatas [SEP] dog", ""};
static const int32_t text_ids[][MOST] = {
    {2, 4, 11, 6, 8, 4, 9, 10, 3}, {2, 5, 3}, {2, 14, 15, 12, 13, 7, 3, 1, 3}, {2, 3}};
static const int32_t text_of_decoder[] = {2, 4, 5, 6, 3};
static const int text_counts[] = {9, 3, 9, 2};

/*  The vector of a text, from the forward in double. */
static void vector_of(const encoder *e, const ck_model *m, const int32_t *ids, int count, ignis_pooling pooling,
                      bool raw, double *to)
{
    double x[MOST * H], square = 0;
    int s, i;
    forward(e, m, ids, NULL, count, x);
    for (i = 0; i < H; i++) {
        to[i] = pooling == IGNIS_POOLING_LAST ? x[(count - 1) * H + i] : x[i];
        for (s = 1; s < count && pooling == IGNIS_POOLING_MEAN; s++)
            to[i] += x[s * H + i];
        to[i] /= pooling == IGNIS_POOLING_MEAN ? count : 1;
        square += to[i] * to[i];
    }
    for (i = 0; i < H && !raw; i++)
        to[i] /= sqrt(square);
}

static void check_vectors(const encoder *e, const ck_model *m, ignis_model model, const ignis_embed_desc *desc,
                          ignis_pooling pooling)
{
    float got[COUNT_OF(texts) * H];
    double wanted[H];
    int i;
    memset(got, 0xFF, sizeof got);
    CHECK_OK(ignis_model_embed(model, texts, COUNT_OF(texts), desc, got));
    for (i = 0; i < COUNT_OF(texts); i++) {
        vector_of(e, m, text_ids[i], text_counts[i], pooling, desc && desc->raw, wanted);
        compare(e, texts[i], got + i * H, wanted, H, 1e-5);
    }
}

/*  Scores of pairs: the query has type 0, the text 1. */
static void check_scores(const encoder *e, const ck_model *m, ignis_model model)
{
    static const int32_t pairs[2][2][MOST] = {{{2, 5, 3, 11, 6, 3}, {2, 5, 3, 9, 3}},
                                              {{2, 5, 3, 3, 11, 6, 3}, {2, 5, 3, 3, 9, 3}}};
    static const char *const answers[] = {"cats sat", "mat"};
    const double *w = e->roberta ? ck_values(m, "classifier.out_proj.weight", 0) : ck_values(m, "classifier.weight", 0);
    const double *b = e->roberta ? ck_values(m, "classifier.out_proj.bias", 0) : ck_values(m, "classifier.bias", 0);
    double x[MOST * H], pooled[H], wanted[2];
    int32_t types[MOST];
    float got[2];
    int i, k;
    for (i = 0; i < 2; i++) {
        const int count = (i ? 5 : 6) + e->roberta, second = 3 + e->roberta;
        for (k = 0; k < MOST; k++)
            types[k] = k >= second;
        forward(e, m, pairs[e->roberta][i], types, count, x);
        ck_linear(pooled,
                  e->roberta ? ck_values(m, "classifier.dense.weight", 0) : of_model(e, m, "pooler.dense.weight"),
                  e->roberta ? ck_values(m, "classifier.dense.bias", 0) : of_model(e, m, "pooler.dense.bias"), x, H, H);
        for (wanted[i] = b[0], k = 0; k < H; k++)
            wanted[i] += w[k] * tanh(pooled[k]);
    }
    CHECK_OK(ignis_model_score(model, "cat", answers, 2, NULL, got));
    compare(e, "scores", got, wanted, 2, 2e-5); /* sums of f32, of numbers larger than the result */
}

TEST(folders_agree_with_a_forward_in_double)
{
    int i;
    SETUP(NULL);
    for (i = 0; i < ENCODERS; i++) {
        const encoder *e = &encoders[i];
        ignis_model model;
        ck_model m;
        make_tensors(e, &m);
        write_folder(e, &m);
        model = open_model(test_path("e"), IGNIS_F32, IGNIS_WEIGHTS_DEFAULT);
        if (!model.id)
            test__fail(__FILE__, __LINE__, ignis_status_message());
        ignis_status_clear();
        if (model.id) {
            check_hidden(e, &m, model, 1e-5); /* sums of f32 */
            check_vectors(e, &m, model, NULL, IGNIS_POOLING_MEAN);
            if (e->classifier)
                check_scores(e, &m, model);
        }
        if (model.id && e->classifier) { /* a saved model is the same model, with the names of its folder */
            test_remove_folder(test_path("saved"));
            CHECK_OK(ignis_model_save(model, test_path("saved")));
            CHECK_OK(ignis_model_free(model));
            model = open_model(test_path("saved"), IGNIS_F32, IGNIS_WEIGHTS_DEFAULT);
            check_scores(e, &m, model);
        }
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

TEST(gguf_files_agree_with_a_forward_in_double)
{
    static const char *const two[] = {"the cats", "Cat dog"};
    static const int32_t ids[2][MOST] = {{2, 4, 5, 6, 3}, {2, 5, 1, 3}};
    float got[2 * H];
    double wanted[H];
    int i, k;
    SETUP(NULL);
    for (i = 0; i < ENCODERS; i++) {
        const encoder *e = &encoders[i];
        ignis_model model;
        ck_model m;
        if (!e->architecture)
            continue;
        make_tensors(e, &m);
        write_gguf_file(e, &m, test_path("e.gguf"));
        model = open_model(test_path("e.gguf"), IGNIS_F32, IGNIS_WEIGHTS_DEFAULT);
        if (!model.id)
            test__fail(__FILE__, __LINE__, ignis_status_message());
        ignis_status_clear();
        if (model.id) {
            check_hidden(e, &m, model, 1e-5);
            CHECK_OK(ignis_model_embed(model, two, 2, NULL, got));
            for (k = 0; k < 2; k++) {
                vector_of(e, &m, ids[k], 5 - k, IGNIS_POOLING_FIRST, false, wanted); /* pooling_type 2 */
                compare(e, two[k], got + k * H, wanted, H, 1e-5);
            }
        }
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

TEST(other_dtypes_and_quantised_weights_agree)
{
    static const struct {
        ignis_dtype dtype;
        ignis_weights weights;
        double tolerance;
    } cases[] = {{IGNIS_F64, IGNIS_WEIGHTS_DEFAULT, 1e-6},  /* the test reads f32 */
                 {IGNIS_BF16, IGNIS_WEIGHTS_DEFAULT, 6e-2}, /* 8 bits, of weights, too */
                 {IGNIS_F32, IGNIS_WEIGHTS_Q8_0, 6e-2}};    /* 7 bits of weights */
    const encoder *e = &encoders[0];
    ck_model m;
    int i;
    SETUP(NULL);
    make_tensors(e, &m);
    write_folder(e, &m);
    for (i = 0; i < COUNT_OF(cases); i++) {
        ignis_model model = open_model(test_path("e"), cases[i].dtype, cases[i].weights);
        check_hidden(e, &m, model, cases[i].tolerance);
        CHECK_OK(ignis_model_free(model));
    }
    ck_free(&m);
}

TEST(poolings)
{
    static const char *const modes[] = {"mean_tokens", "cls_token", "lasttoken"};
    static const ignis_pooling poolings[] = {IGNIS_POOLING_MEAN, IGNIS_POOLING_FIRST, IGNIS_POOLING_LAST};
    const encoder *e = &encoders[0];
    ignis_embed_desc desc;
    ignis_model model;
    float vectors[COUNT_OF(texts) * H];
    ck_model m;
    int i;
    SETUP(NULL);
    make_tensors(e, &m);
    write_folder(e, &m);
    for (i = 0; i < 3; i++) {
        write_pooling(modes[i]);
        model = open_model(test_path("e"), IGNIS_F32, IGNIS_WEIGHTS_DEFAULT);
        memset(&desc, 0, sizeof desc);
        check_vectors(e, &m, model, &desc, poolings[i]);
        desc.raw = true;
        desc.pooling = poolings[(i + 1) % 3];
        check_vectors(e, &m, model, &desc, desc.pooling);
        CHECK_OK(ignis_model_free(model));
    }
    write_pooling("max_tokens");
    model = open_model(test_path("e"), IGNIS_F32, IGNIS_WEIGHTS_DEFAULT);
    CHECK_STATUS(ignis_model_embed(model, texts, 1, NULL, vectors), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("pool hidden states in a way that Ignis cannot do");
    CHECK_OK(ignis_model_embed(model, texts, 0, &desc, NULL));
    check_vectors(e, &m, model, &desc, desc.pooling);
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

TEST(long_texts_are_refused_or_cut)
{
    static const char *const text[] = {"the cat sat on the mat. the cat sat on the mat. the cat sat on the mat."};
    const encoder *e = &encoders[0];
    const int32_t cut[] = {2, 4, 5, 6, 8, 4, 9, 3}; /* [SEP] stays */
    ignis_model_desc open;
    ignis_embed_desc desc;
    ignis_model model;
    float got[H];
    double wanted[H];
    ck_model m;
    SETUP(NULL);
    make_tensors(e, &m);
    write_folder(e, &m);
    memset(&open, 0, sizeof open);
    open.path = test_path("e");
    open.dtype = IGNIS_F32;
    open.context = 8;
    model = ignis_model_open(&open);
    CHECK_STATUS(ignis_model_embed(model, text, 1, NULL, got), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_CONTEXT_FULL);
    CHECK_MESSAGE_HAS("texts[0] has 23 tokens, and the model's context 8; desc->truncate cuts it");
    memset(&desc, 0, sizeof desc);
    desc.truncate = true;
    CHECK_OK(ignis_model_embed(model, text, 1, &desc, got));
    vector_of(e, &m, cut, 8, IGNIS_POOLING_MEAN, false, wanted);
    compare(e, "cut", got, wanted, H, 1e-5);
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

/*  A model of another kind has hidden states, too: its logits are their product with the head. */
TEST(hidden_states_of_a_decoder)
{
    const int32_t ids[2 * SEQ] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7};
    ignis_tensor_desc i32 = tensor_desc(IGNIS_I32, false);
    float logits[2 * SEQ * V], got[2 * SEQ * V], states[2 * SEQ * H], vector[H];
    static const char *const text[] = {"the cat sat"};
    ignis_tensor of, hidden;
    ignis_hidden_desc desc;
    ignis_model model;
    ignis_scope scope;
    ck_model m;
    double square = 0;
    char config[2048], path[256];
    int i;
    SETUP(NULL);
    memset(&m, 0, sizeof m);
    m.family = "llama", m.layers = 2, m.hidden = H, m.heads = 2, m.kv_heads = 1, m.head_dim = D, m.inner = I,
    m.vocab = V;
    m.context = CONTEXT, m.theta = 10000, m.eps = 1e-5, m.seed = 9;
    ck_make(&m);
    write_folder(&encoders[0], &m);
    ck_config(&m, config, sizeof config);
    ck_write_text(test_path("e"), "config.json", config);
    snprintf(path, sizeof path, "%s/model.safetensors", test_path("e"));
    ck_write_safetensors(&m, path, IGNIS_F32, 0, 1);
    model = open_model(test_path("e"), IGNIS_F32, IGNIS_WEIGHTS_DEFAULT);
    scope = ignis_scope_begin();
    of = ignis_tensor_from_host(ids, IGNIS_SHAPE(2, SEQ), &i32);
    hidden = ignis_model_hidden(model, of, NULL);
    CHECK_OK(ignis_tensor_to_host(hidden, states, IGNIS_F32, 2 * SEQ * H));
    CHECK_OK(ignis_tensor_to_host(ignis_linear(hidden, ignis_model_tensor(model, "lm_head.weight"), ignis__no_tensor()),
                                  got, IGNIS_F32, 2 * SEQ * V));
    CHECK_OK(ignis_tensor_to_host(ignis_model_forward(model, of), logits, IGNIS_F32, 2 * SEQ * V));
    CHECK_INT(memcmp(got, logits, sizeof got), 0);
    CHECK_OK(ignis_model_embed(model, text, 1, NULL, vector)); /* of the last token */
    of = ignis_tensor_from_host(text_of_decoder, IGNIS_SHAPE(5), &i32);
    CHECK_OK(ignis_tensor_to_host(ignis_model_hidden(model, of, NULL), states, IGNIS_F32, 5 * H));
    for (i = 0; i < H; i++)
        square += (double)states[4 * H + i] * (double)states[4 * H + i];
    for (i = 0; i < H; i++)
        CHECK_CLOSE(vector[i], states[4 * H + i] / sqrt(square), 1e-6);
    CHECK_OK(ignis_model_free(model));
    for (i = 0; i < m.count; i++) /* the names of an embedder, such as Qwen3-Embedding */
        if (strncmp(m.tensors[i].name, "model.", 6) == 0)
            memmove(m.tensors[i].name, m.tensors[i].name + 6, strlen(m.tensors[i].name + 6) + 1);
    ck_write_safetensors(&m, path, IGNIS_F32, 0, 1);
    model = open_model(test_path("e"), IGNIS_F32, IGNIS_WEIGHTS_DEFAULT);
    CHECK_OK(ignis_tensor_to_host(ignis_model_hidden(model, of, NULL), got, IGNIS_F32, 5 * H));
    CHECK_INT(memcmp(got, states, 5 * H * sizeof *got), 0);
    memset(&desc, 0, sizeof desc);
    desc.types = of;
    CHECK_FAILS(ignis_model_hidden(model, of, &desc).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("desc->types is set; a llama model has no types of tokens");
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

TEST(wrong_uses_are_refused)
{
    const encoder *e = &encoders[0];
    const int32_t ids[CONTEXT + 1] = {0};
    static const char *const none[] = {"cat", NULL};
    ignis_model_desc open;
    ignis_tensor_desc i32 = tensor_desc(IGNIS_I32, false);
    ignis_embed_desc desc;
    ignis_model model;
    ignis_scope scope;
    float got[2 * H];
    ck_model m;
    SETUP(NULL);
    make_tensors(e, &m);
    write_folder(e, &m);
    model = open_model(test_path("e"), IGNIS_F32, IGNIS_WEIGHTS_DEFAULT);
    scope = ignis_scope_begin();
    memset(&desc, 0, sizeof desc);
    memset(&open, 0, sizeof open);
    open.path = test_path("e");
    CHECK_FAILS(ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(3), &i32)).id,
                IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("a bert model is an encoder, which has no logits; ignis_model_hidden");
    CHECK_FAILS(ignis_sequence_begin(model).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("a bert model is an encoder, which has no next token");
    CHECK_FAILS(ignis_model_hidden(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(CONTEXT + 1), &i32), NULL).id,
                IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("the model has positions for 24 tokens");
    CHECK_STATUS(ignis_model_embed(model, NULL, 1, NULL, got), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_model_embed(model, texts, 1, NULL, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_model_embed(model, none, 2, NULL, got), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_MESSAGE_HAS("texts[1] is null");
    CHECK_STATUS(ignis_model_embed(model, texts, -1, NULL, got), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.pooling = IGNIS_POOLING_COUNT;
    CHECK_STATUS(ignis_model_embed(model, texts, 1, &desc, got), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_STATUS(ignis_model_score(model, NULL, texts, 1, NULL, got), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_model_score(model, "cat", texts, 1, NULL, got), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("the bert model has a classifier of 0 classes; expected one class");
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_model_free(model));
    CHECK_STATUS(ignis_model_embed(model, texts, 1, NULL, got), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    write_config(e, test_path("e"), "\"hidden_act\": \"gelu_new\", ");
    CHECK_FAILS(ignis_model_open(&open).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("has hidden_act 'gelu_new', which Ignis cannot do");
    write_config(e, test_path("e"), "\"hidden_act\": \"gelu\", \"is_decoder\": true, ");
    CHECK_FAILS(ignis_model_open(&open).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("has is_decoder true");
    ck_free(&m);
}

/*  Computes vectors and scores, in one status. */
static ignis_status embed_and_score(ignis_model model, float *vectors)
{
    ignis_status status = ignis_model_embed(model, texts, 2, NULL, vectors);
    return status == IGNIS_OK ? ignis_model_score(model, "cat", texts, 2, NULL, vectors + 2 * H) : status;
}

/*  Checks results within the rounding of f32: a product whose library fails is computed by other kernels. */
static void check_equal(const float *got, const float *wanted)
{
    int i, wrong = 0;
    for (i = 0; i < 2 * H + 2; i++)
        wrong += !(fabs((double)got[i] - (double)wanted[i]) <= 1e-5);
    CHECK_INT(wrong, 0);
}

/*  With each allocation, or each call of the driver, failing once, nothing stays behind, and the next try succeeds. */
static void check_failures(const char *prefix)
{
    static host_counter counter;
    ignis_desc setup = test_counting_desc(&counter);
    float wanted[2 * H + 2], got[2 * H + 2];
    ignis_model model;
    int64_t before;
    int at, failures = 0;
    bool hit = true;
    SETUP(&setup);
    model = open_model(test_path("e"), IGNIS_F32, IGNIS_WEIGHTS_DEFAULT);
    CHECK_OK(embed_and_score(model, wanted)); /* what is made once is there afterwards */
    before = memory().live_bytes;
    for (at = 1; at < 2000 && hit; at += at < 40 ? 1 : 17) {
        ignis_status status;
        fault_plan(prefix, at, 2, &counter, false);
        status = embed_and_score(model, got);
        hit = fault_over(&counter);
        CHECK(status == IGNIS_OK || hit);
        if (status == IGNIS_OK)
            check_equal(got, wanted);
        failures += status != IGNIS_OK;
        ignis_status_clear();
        CHECK_INT(memory().live_bytes, before);
    }
    CHECK(!hit);
    CHECK(failures > 20);
    CHECK_OK(embed_and_score(model, got));
    check_equal(got, wanted);
    CHECK_OK(ignis_model_free(model));
    CHECK_OK(ignis_shutdown());
    CHECK_INT(counter.blocks, 0);
}

TEST(what_fails_leaves_nothing_behind)
{
    const encoder *e = &encoders[1];
    ck_model m;
    make_tensors(e, &m);
    write_folder(e, &m);
    check_failures(NULL);
    check_failures("cu");
    ck_free(&m);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
