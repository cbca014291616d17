// SPDX-License-Identifier: MIT
/*  test_model.c - models opened from folders and GGUF files: their scores against a forward in double, their weights, what is refused */
#define IGNIS_MODELS
#include "fault.h"
#undef IGNIS_CALL_HOOK
#define IGNIS_CALL_HOOK(name, call) ((fault__code = fault_take(name)) != 0 ? fault__code : fault_note(name, (int)(call)))
#include "tensor.h"

#include "checkpoint.h"

/*  Driver calls that fail here leave their objects with the simulator. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libnvrtc\nleak:libcuda\n"; }

static char folder[] = "/tmp/ignis_test_model_XXXXXX";

static const char *path_of(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static ck_model gpt2 = {.family = "gpt2",
                        .layers = 2,
                        .hidden = 48,
                        .heads = 3,
                        .kv_heads = 3,
                        .head_dim = 16,
                        .inner = 80,
                        .vocab = 67,
                        .context = 24,
                        .tied = true,
                        .eps = 1e-5,
                        .seed = 1};
static ck_model llama = {.family = "llama",
                         .layers = 2,
                         .hidden = 48,
                         .heads = 6,
                         .kv_heads = 2,
                         .head_dim = 8,
                         .inner = 72,
                         .vocab = 67,
                         .context = 64,
                         .eps = 1e-5,
                         .theta = 10000,
                         .old_config = true,
                         .seed = 2};
static ck_model llama3 = {.family = "llama",
                          .layers = 1,
                          .hidden = 32,
                          .heads = 4,
                          .kv_heads = 1,
                          .head_dim = 64,
                          .inner = 48,
                          .vocab = 131,
                          .context = 512,
                          .tied = true,
                          .biases = true,
                          .eps = 1e-6,
                          .theta = 500000,
                          .stretch = "llama3",
                          .old_config = true,
                          .seed = 3};
static ck_model qwen2 = {.family = "qwen2",
                         .layers = 2,
                         .hidden = 48,
                         .heads = 4,
                         .kv_heads = 4,
                         .head_dim = 12,
                         .inner = 40,
                         .vocab = 53,
                         .context = 128,
                         .tied = true,
                         .eps = 1e-6,
                         .theta = 1e6,
                         .stretch = "yarn",
                         .seed = 4};
static ck_model qwen3 = {.family = "qwen3",
                         .layers = 2,
                         .hidden = 40,
                         .heads = 3,
                         .kv_heads = 1,
                         .head_dim = 80,
                         .inner = 56,
                         .vocab = 71,
                         .context = 96,
                         .eps = 1e-6,
                         .theta = 1e6,
                         .stretch = "linear",
                         .seed = 5};
static ck_model *const models[] = {&gpt2, &llama, &llama3, &qwen2, &qwen3};
enum { MODELS = 5, SEQ = 13, BATCH = 2 };

static ignis_model open_with(const char *path, ignis_dtype dtype)
{
    ignis_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.dtype = dtype;
    return ignis_model_open(&desc);
}

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
            ck_write_folder(models[i], path_of("family"), IGNIS_F32, shards);
            ignis_model model = open_with(path_of("family"), IGNIS_DTYPE_DEFAULT);
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
        test_write_file(path_of("m.gguf"), file.data, file.size);
        ignis_model model = open_with(path_of("m.gguf"), IGNIS_DTYPE_DEFAULT);
        CHECK_SCORES(model, &m, 5e-6);
        CHECK_OK(ignis_model_free(model));
        free(file.data);
        ck_free(&m);
    }
}

/*  A model with rows of 256, as the K types need them. */
static ck_model wide = {.family = "llama",
                        .layers = 1,
                        .hidden = 256,
                        .heads = 4,
                        .kv_heads = 2,
                        .head_dim = 64,
                        .inner = 256,
                        .vocab = 35,
                        .context = 32,
                        .eps = 1e-5,
                        .theta = 10000,
                        .seed = 6};

static void write_gguf(ck_model *m, int type, const char *path)
{
    ck_bytes file = ck_gguf(m, type, NULL);
    test_write_file(path, file.data, file.size);
    free(file.data);
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
        write_gguf(&m, type, path_of("t.gguf"));
        memset(&desc, 0, sizeof desc);
        desc.path = path_of("t.gguf");
        CHECK_OK(ignis_model_inspect(&desc, &info));
        CHECK_INT(info.dtype, own);
        CHECK_INT(info.weight_bytes, info.parameters * (type == 0 ? 4 : 2));
        ignis_model model = open_with(desc.path, IGNIS_F32);
        CHECK_VALUES(model, &m, IGNIS_F32, 4e-7); /* f32 rounds products and sums */
        CHECK_SCORES(model, &m, 5e-6);
        CHECK_OK(ignis_model_free(model));
        if (type > 2) { /* rounded twice, so the last place may differ */
            model = open_with(desc.path, IGNIS_DTYPE_DEFAULT);
            CHECK_VALUES(model, &m, IGNIS_BF16, 0.009);
            CHECK_OK(ignis_model_free(model));
        }
        ck_free(&m);
    }
}

/*  From each dtype of files to each of models: the values are those of one rounding, and the scores those of the dtype. */
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
        ck_write_folder(&m, path_of("d"), dtypes[from], 1);
        for (to = -1; to < 3; to++) {
            ignis_model model = open_with(path_of("d"), to < 0 ? IGNIS_DTYPE_DEFAULT : dtypes[to]);
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
        test_write_file(path_of("m.gguf"), file.data, file.size);
        free(file.data);
        ignis_model model = open_with(path_of("m.gguf"), IGNIS_DTYPE_DEFAULT);
        if (table) { /* frequencies that config.json has no words for */
            m.stretch = "llama3";
            CHECK_SCORES(model, &m, 5e-6);
            CHECK_STATUS(ignis_model_save(model, path_of("saved")), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
        } else {
            ignis__model *inside = ignis__model_hold("test", model);
            for (i = 0; i < 32; i++)
                CHECK(fabs(inside->frequencies[i] - f[i]) <= 1e-6 * f[i]);
            ignis__model_drop("test", inside);
            CHECK_OK(ignis_model_save(model, path_of("saved")));
            ignis_model again = open_with(path_of("saved"), IGNIS_DTYPE_DEFAULT);
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
        ck_write_folder(models[i], path_of("from"), IGNIS_F32, 1);
        ignis_model model = open_with(path_of("from"), dtypes[i]);
        CHECK_OK(ignis_model_save(model, path_of("to/deep")));
        CHECK_INT(test_files_in(path_of("to/deep")), 2);
        CHECK_OK(ignis_model_save(model, path_of("to/deep"))); /* over the old one */
        ignis_model again = open_with(path_of("to/deep"), IGNIS_DTYPE_DEFAULT);
        CHECK_INT(same_scores(model, again, models[i]), true);
        CHECK_OK(ignis_model_query(model, &info));
        CHECK_OK(ignis_model_query(again, &info_again));
        info.file_bytes = info_again.file_bytes;
        CHECK_INT(memcmp(&info, &info_again, sizeof info), 0);
        ignis__model *one = ignis__model_hold("test", model), *other = ignis__model_hold("test", again);
        CHECK_INT(memcmp(one->frequencies, other->frequencies, sizeof one->frequencies), 0);
        CHECK_INT(memcmp(&one->attention_scale, &other->attention_scale, sizeof(float)), 0);
        CHECK_INT(one->bos, other->bos);
        CHECK_INT(one->stop_count, other->stop_count);
        CHECK_INT(memcmp(one->stops, other->stops, sizeof one->stops), 0);
        CHECK(one->stop_count == (ck_is_gpt2(models[i]) ? 1 : 2) && one->stops[0] == 2);
        ignis__model_drop("test", one);
        ignis__model_drop("test", other);
        CHECK_OK(ignis_model_free(model));
        CHECK_OK(ignis_model_free(again));
        ck_free(models[i]);
        test_remove_folder(path_of("to"));
    }
}

TEST(saving_fails_where_it_cannot_write)
{
    ignis_model model;
    SETUP(NULL);
    ck_make(&gpt2);
    ck_write_folder(&gpt2, path_of("f"), IGNIS_F32, 1);
    model = open_with(path_of("f"), IGNIS_DTYPE_DEFAULT);
    test_write_file(path_of("file"), "x", 1);
    CHECK_STATUS(ignis_model_save(model, path_of("file/below")), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_STATUS(ignis_model_save(model, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_INT(ignis__folder_make_all(path_of("s/config.json")), true); /* a folder in the place of the file */
    CHECK_STATUS(ignis_model_save(model, path_of("s")), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_INT(test_files_in(path_of("s")), 2); /* nothing half-written stays */
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
    ck_write_folder(&llama3, path_of("f"), IGNIS_F32, 1);
    model = open_with(path_of("f"), IGNIS_DTYPE_DEFAULT);
    CHECK_VALUES(model, &llama3, IGNIS_F32, 0);
    ignis_scope scope = ignis_scope_begin();
    tensor = ignis_model_tensor(model, "model.layers.0.self_attn.qkv_proj.weight");
    CHECK_INT(shape_of(tensor).dim[0], (4 + 2) * 64);
    CHECK_INT(shape_of(tensor).dim[1], 32);
    CHECK_INT(shape_of(ignis_model_tensor(model, "model.layers.0.self_attn.qkv_proj.bias")).dim[0], (4 + 2) * 64);
    CHECK_INT(shape_of(ignis_model_tensor(model, "model.layers.0.mlp.gate_up_proj.weight")).dim[0], 2 * 48);
    part = ignis_model_tensor(model, "model.layers.0.self_attn.k_proj.weight");
    CHECK_INT(shape_of(part).dim[0], 64);
    CHECK_INT(ignis_model_tensor(model, "lm_head.weight").id, ignis_model_tensor(model, "model.embed_tokens.weight").id);
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
    CHECK_FAILS(ignis_model_tensor(model, "model.layers.1.input_layernorm.weight"), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STORAGE_MISSING);
    CHECK_MESSAGE_HAS("the model, llama of 1 layers, has no weight 'model.layers.1.input_layernorm.weight'");
    CHECK_OK(ignis_model_free(model));
    CHECK_FAILS(ignis_tensor_data(tensor), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    ck_free(&llama3);
    ck_make(&gpt2);
    ck_write_folder(&gpt2, path_of("f"), IGNIS_F32, 1);
    model = open_with(path_of("f"), IGNIS_DTYPE_DEFAULT);
    CHECK_INT(ignis_model_tensor(model, "h.1.mlp.c_fc.bias").id, ignis_model_tensor(model, "transformer.h.1.mlp.c_fc.bias").id);
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
    ck_write_folder(&gpt2, path_of("f"), IGNIS_F32, 1);
    model = open_with(path_of("f"), IGNIS_DTYPE_DEFAULT);
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
    for (family = 0; family < MODELS; family++) {
        const ck_model *m = models[family];
        ignis_model_desc desc;
        ck_make(models[family]);
        ck_write_folder(m, path_of("f"), IGNIS_F32, 1);
        memset(&desc, 0, sizeof desc);
        memset(&adamw, 0, sizeof adamw);
        desc.path = path_of("f");
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
            loss = ignis_cross_entropy(ignis_reshape(ignis_model_forward(model, ids), IGNIS_SHAPE(2 * SEQ, m->vocab)), targets, NULL);
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
    ck_write_folder(&qwen3, path_of("f"), IGNIS_BF16, 2);
    memset(&desc, 0, sizeof desc);
    desc.path = path_of("f");
    CHECK_OK(ignis_model_inspect(&desc, &info)); /* before ignis_setup */
    CHECK(info.family == IGNIS_MODEL_QWEN3 && info.layers == 2 && info.hidden == 40 && info.heads == 3 && info.kv_heads == 1);
    CHECK(info.head_dim == 80 && info.inner == 56 && info.vocab == 71 && info.model_context == 96 && info.context == 96);
    CHECK(info.sequences == 1 && info.dtype == IGNIS_BF16 && info.cache_dtype == IGNIS_BF16 && !info.tied);
    CHECK_INT(info.parameters, 2 * 71 * 40 + 40 + 2 * (40 + 240 * 40 + 2 * 80 * 40 + 160 + 40 * 240 + 40 + 3 * 56 * 40));
    CHECK_INT(info.weight_bytes, info.parameters * 2);
    CHECK_INT(info.file_bytes, info.parameters * 2);
    CHECK_INT(info.cache_bytes_of_token, 2 * 2 * 80 * 2);
    CHECK_INT(info.cache_bytes, info.cache_bytes_of_token * 96);
    CHECK(info.workspace_bytes > 0);
    desc.context = 50, desc.sequences = 3, desc.dtype = IGNIS_F32, desc.cache_dtype = IGNIS_F16;
    CHECK_OK(ignis_model_inspect(&desc, &info));
    CHECK_INT(info.cache_bytes, info.cache_bytes_of_token * 50 * 3);
    CHECK_INT(info.weight_bytes, info.parameters * 4);
    CHECK_INT(info.cache_bytes_of_token, 2 * 2 * 80 * 2);
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
    ck_write_folder(&gpt2, path_of("f"), IGNIS_F32, 1);
    memset(&desc, 0, sizeof desc);
    desc.path = path_of("f");
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
    ck_write_folder(&qwen2, path_of("f"), IGNIS_F32, 2);
    memset(&desc, 0, sizeof desc);
    memset(&seen, 0, sizeof seen);
    desc.path = path_of("f");
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

TEST(handles_are_checked_and_leaks_reported)
{
    ignis_tensor_desc f32 = tensor_desc(IGNIS_F32, false), i32 = tensor_desc(IGNIS_I32, false);
    int32_t ids[100] = {0};
    ignis_model none, model;
    ignis_model_info info;
    memset(&none, 0, sizeof none);
    SETUP(NULL);
    ck_make(&gpt2);
    ck_write_folder(&gpt2, path_of("f"), IGNIS_F32, 1);
    ignis_scope scope = ignis_scope_begin();
    model = open_with(path_of("f"), IGNIS_DTYPE_DEFAULT);
    CHECK_OK(ignis_scope_end(scope)); /* the weights stay */
    CHECK_SCORES(model, &gpt2, 5e-6);
    scope = ignis_scope_begin();
    CHECK_INT(shape_of(ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(3), &i32))).dim[1], gpt2.vocab);
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
    CHECK_STATUS(ignis_model_save(model, path_of("s")), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_FAILS(ignis_model_tensor(model, "x"), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_FAILS(ignis_model_weights(model, NULL, 0), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_FAILS(ignis_model_forward(model, ignis_tensor_zeros(IGNIS_SHAPE(1), &i32)), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_INT(memory().live_bytes > 0, true); /* the ids */
    model = open_with(path_of("f"), IGNIS_DTYPE_DEFAULT);
    test_leaks_expected = true;
    CHECK_OK(ignis_shutdown());
    CHECK_HAS(test_log_text(IGNIS_DIAG_HANDLE_LEAKED), "model: gpt2 of 2 layers");
    ck_free(&gpt2);
}

int main(int argc, char **argv)
{
    int result;
    if (!mkdtemp(folder))
        return 1;
    result = test_run(argc, argv);
    test_remove_folder(folder);
    return result;
}
