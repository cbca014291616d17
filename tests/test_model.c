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

int main(int argc, char **argv)
{
    int result;
    if (!mkdtemp(folder))
        return 1;
    result = test_run(argc, argv);
    test_remove_folder(folder);
    return result;
}
