// SPDX-License-Identifier: MIT
/*  test_lora.c - adapters of models: what they compute, their gradients, PEFT's folders, merging, lives and errors */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "checkpoint.h"

/*  Driver calls that fail here leave their objects with the simulator. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libnvrtc\nleak:libcuda\n"; }

/*  Sizes that differ wherever two could be taken for each other. */
static ck_model gpt2 = {.family = "gpt2",
                        .layers = 2,
                        .hidden = 24,
                        .heads = 3,
                        .kv_heads = 3,
                        .head_dim = 8,
                        .inner = 40,
                        .vocab = 29,
                        .context = 32,
                        .tied = true,
                        .eps = 1e-5,
                        .seed = 1};
static ck_model llama = {.family = "llama",
                         .layers = 2,
                         .hidden = 32,
                         .heads = 6,
                         .kv_heads = 2,
                         .head_dim = 8,
                         .inner = 40,
                         .vocab = 31,
                         .context = 64,
                         .biases = true,
                         .eps = 1e-5,
                         .theta = 10000,
                         .seed = 2};
static ck_model qwen2 = {.family = "qwen2",
                         .layers = 2,
                         .hidden = 24,
                         .heads = 4,
                         .kv_heads = 4,
                         .head_dim = 8,
                         .inner = 40,
                         .vocab = 37,
                         .context = 64,
                         .tied = true,
                         .eps = 1e-6,
                         .theta = 1e6,
                         .seed = 3};
static ck_model qwen3 = {.family = "qwen3",
                         .layers = 2,
                         .hidden = 24,
                         .heads = 3,
                         .kv_heads = 1,
                         .head_dim = 16,
                         .inner = 40,
                         .vocab = 41,
                         .context = 64,
                         .eps = 1e-6,
                         .theta = 1e6,
                         .seed = 4};
static ck_model *const models[] = {&gpt2, &llama, &qwen2, &qwen3};
enum { MODELS = 4, SEQ = 7, BATCH = 2, MOST = 64 };

static const char *const all_linear[] = {"all-linear"};

static ignis_model open_as(ck_model *m, ignis_dtype dtype)
{
    ignis_model_desc desc;
    ck_free(m);
    ck_make(m);
    ck_write_folder(m, test_path("model"), IGNIS_F32, 1);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("model");
    desc.dtype = dtype;
    return ignis_model_open(&desc);
}

static ignis_lora_desc all_of(int rank, double alpha)
{
    ignis_lora_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.rank = rank;
    desc.alpha = alpha;
    desc.targets = all_linear;
    desc.target_count = 1;
    return desc;
}

static ignis_lora_info lora_info(ignis_lora lora)
{
    ignis_lora_info info;
    memset(&info, 0, sizeof info);
    CHECK_OK(ignis_lora_query(lora, &info));
    return info;
}

/*  Fills all A and B with numbers that look random. */
static void fill(ignis_lora lora, double size)
{
    ignis_tensor tensors[MOST];
    int count = ignis_lora_weights(lora, tensors, MOST), i;
    int64_t k;
    CHECK(count > 0 && count <= MOST);
    for (i = 0; i < count && i < MOST; i++) {
        double *values = tensor_values(tensors[i]);
        for (k = 0; k < numel_of(tensors[i]); k++)
            values[k] = size * noise((uint64_t)(100 + i), k);
        CHECK_OK(ignis_array_from_host(ignis_tensor_data(tensors[i]), values, IGNIS_F64, numel_of(tensors[i])));
        free(values);
    }
}

static void ids_fill(const ck_model *m, int32_t *ids)
{
    int i;
    for (i = 0; i < BATCH * SEQ; i++)
        ids[i] = (int32_t)(i * 31 + 7 * (i / SEQ)) % m->vocab;
}

static int64_t score_count(const ck_model *m) { return (int64_t)BATCH * SEQ * m->vocab; }

/*  The scores of an open model, which the caller frees. */
static double *scores_of(ignis_model model, const ck_model *m)
{
    int32_t ids[BATCH * SEQ];
    ignis_tensor_desc desc = tensor_desc(IGNIS_I32, false);
    ignis_scope scope = ignis_scope_begin();
    double *values;
    ids_fill(m, ids);
    values = tensor_values(ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(BATCH, SEQ), &desc)));
    CHECK_OK(ignis_scope_end(scope));
    return values;
}

static bool same_scores(const double *a, const double *b, const ck_model *m)
{
    return memcmp(a, b, (size_t)score_count(m) * sizeof *a) == 0;
}

/*  The largest difference, relative to the largest score. */
static double off(const double *a, const double *b, const ck_model *m)
{
    double most = 0, worst = 0;
    int64_t i;
    for (i = 0; i < score_count(m); i++) {
        worst = !(fabs(a[i] - b[i]) <= worst) ? fabs(a[i] - b[i]) : worst;
        most = fabs(b[i]) > most ? fabs(b[i]) : most;
    }
    CHECK(most > 0.1);
    return worst / most;
}

/*  Adds scale B A to a weight of the reference. */
static void reference_add(ck_model *m, const char *name, ignis_tensor a, ignis_tensor b, double scale)
{
    ignis_shape in = shape_of(a), out = shape_of(b);
    double *w = ck_values(m, name, 0), *av = tensor_values(a), *bv = tensor_values(b);
    int64_t r, c, k;
    CHECK(w != NULL);
    for (r = 0; w && r < out.dim[0]; r++)
        for (c = 0; c < in.dim[1]; c++)
            for (k = 0; k < in.dim[0]; k++)
                w[r * in.dim[1] + c] += scale * bv[r * in.dim[0] + k] * av[k * in.dim[1] + c];
    free(av), free(bv);
}

/*  The names of all products of a layer, in the order in which their adapters come. */
static const char *const gpt2_products[] = {"transformer.h.%d.attn.c_attn", "transformer.h.%d.attn.c_proj",
                                            "transformer.h.%d.mlp.c_fc", "transformer.h.%d.mlp.c_proj"};
static const char *const other_products[] = {"model.layers.%d.self_attn.q_proj", "model.layers.%d.self_attn.k_proj",
                                             "model.layers.%d.self_attn.v_proj", "model.layers.%d.self_attn.o_proj",
                                             "model.layers.%d.mlp.gate_proj",    "model.layers.%d.mlp.up_proj",
                                             "model.layers.%d.mlp.down_proj"};

static double *reference_scores(const ck_model *m)
{
    double *wanted = (double *)calloc((size_t)score_count(m), sizeof *wanted);
    int32_t ids[BATCH * SEQ];
    int b;
    ids_fill(m, ids);
    for (b = 0; b < BATCH; b++)
        ck_forward(m, ids + b * SEQ, SEQ, wanted + (int64_t)b * SEQ * m->vocab);
    return wanted;
}

/* what they compute ----------------------------------------------------------------------------------------------- */

/*  Against a forward in double over weights to which scale B A was added: every product of every family in its rows,
    with and without rslora; then the same merged. f32 sums of some 40 products of numbers of about 1: 5e-6, as in
    test_model.c. */
TEST(what_they_compute_is_that_of_weights_with_b_a_added)
{
    int i, k, layer, rslora;
    SETUP(NULL);
    for (i = 0; i < MODELS; i++) {
        for (rslora = 0; rslora < 2; rslora++) {
            ck_model *m = models[i];
            const char *const *products = ck_is_gpt2(m) ? gpt2_products : other_products;
            int each = ck_is_gpt2(m) ? 4 : 7;
            ignis_lora_desc desc = all_of(3, 2);
            ignis_tensor tensors[MOST];
            char name[96];
            ignis_model model = open_as(m, IGNIS_F32);
            desc.rslora = rslora;
            ignis_lora lora = ignis_lora_create(model, &desc);
            CHECK_OK(ignis_model_set_lora(model, lora));
            CHECK_INT(ignis_lora_weights(lora, tensors, MOST), 2 * each * m->layers);
            CHECK_INT(lora_info(lora).adapters, each * m->layers);
            CHECK_CLOSE(lora_info(lora).scale, rslora ? 2 / sqrt(3) : 2.0 / 3, 1e-15);
            fill(lora, 0.3);
            double *base = reference_scores(m);
            for (layer = 0; layer < m->layers; layer++)
                for (k = 0; k < each; k++) {
                    snprintf(name, sizeof name, products[k], layer);
                    snprintf(name + strlen(name), sizeof name - strlen(name), ".weight");
                    reference_add(m, name, tensors[2 * (layer * each + k)], tensors[2 * (layer * each + k) + 1],
                                  rslora ? 2 / sqrt(3) : 2.0 / 3);
                }
            double *wanted = reference_scores(m), *got = scores_of(model, m), *merged;
            CHECK(off(base, wanted, m) > 0.05);
            CHECK(off(got, wanted, m) <= 5e-6);
            CHECK_INT(lora_info(lora).set, true);
            CHECK_OK(ignis_lora_merge(lora));
            CHECK(!lora_info(lora).set && lora_info(lora).merged);
            merged = scores_of(model, m);
            CHECK(off(merged, wanted, m) <= 5e-6);
            CHECK(off(merged, got, m) <= 5e-6); /* each rounds its sums in its own order */
            free(base), free(wanted), free(got), free(merged);
            CHECK_OK(ignis_lora_free(lora));
            CHECK_OK(ignis_model_free(model));
            ck_free(m);
        }
    }
}

/*  One product at a time: rows of q, k, v, gate and up alone, with zeros beside them. */
TEST(one_target_changes_its_own_rows_alone)
{
    const char *const names[] = {"q_proj", "k_proj", "v_proj", "mlp.gate_proj", "up_proj", "layers.1.self_attn.k_proj"};
    const int product[] = {0, 1, 2, 4, 5, 1};
    int i, layer;
    SETUP(NULL);
    for (i = 0; i < 6; i++) {
        ignis_model model = open_as(&llama, IGNIS_F32);
        ignis_lora_desc desc = all_of(2, 2);
        ignis_tensor tensors[MOST];
        char name[96];
        int count;
        desc.targets = &names[i];
        ignis_lora lora = ignis_lora_create(model, &desc);
        count = ignis_lora_weights(lora, tensors, MOST);
        CHECK_INT(count, i == 5 ? 2 : 4);
        fill(lora, 0.5);
        for (layer = i == 5; layer < 2; layer++) {
            snprintf(name, sizeof name, other_products[product[i]], layer);
            snprintf(name + strlen(name), sizeof name - strlen(name), ".weight");
            reference_add(&llama, name, tensors[i == 5 ? 0 : 2 * layer], tensors[i == 5 ? 1 : 2 * layer + 1], 1);
        }
        CHECK_OK(ignis_model_set_lora(model, lora));
        double *wanted = reference_scores(&llama), *got = scores_of(model, &llama);
        CHECK(off(got, wanted, &llama) <= 5e-6);
        free(wanted), free(got);
        CHECK_OK(ignis_lora_free(lora));
        CHECK_OK(ignis_model_free(model));
        ck_free(&llama);
    }
}

/*  B is 0, so at first the scores keep their bits; but for GPT-2's MLP, which is one operation no more, where both of
    its products have adapters. */
TEST(at_first_they_change_nothing)
{
    int i, way;
    SETUP(NULL);
    for (i = 0; i < MODELS; i++) {
        for (way = 0; way < 4; way++) {
            ignis_model model = open_as(models[i], way < 2 ? IGNIS_F32 : IGNIS_BF16);
            ignis_lora_desc desc = all_of(4, 8);
            desc.dtype = way == 3 ? IGNIS_F32 : IGNIS_DTYPE_DEFAULT;
            ignis_lora lora = ignis_lora_create(model, way == 0 ? NULL : &desc);
            double *before = scores_of(model, models[i]), *after;
            CHECK_INT(lora_info(lora).dtype, way == 2 ? IGNIS_BF16 : IGNIS_F32);
            if (way == 0) {
                CHECK(lora_info(lora).rank == 8 && lora_info(lora).alpha == 8 && lora_info(lora).scale == 1);
                CHECK_INT(lora_info(lora).adapters, ck_is_gpt2(models[i]) ? 2 : 4); /* c_attn; q_proj and v_proj */
                CHECK_INT(lora_info(lora).parameters,
                          ck_is_gpt2(models[i]) ? 2 * 8 * (24 + 72)
                                                : 2 * 8 *
                                                      (2 * models[i]->hidden +
                                                       (models[i]->heads + models[i]->kv_heads) * models[i]->head_dim));
            }
            CHECK_OK(ignis_model_set_lora(model, lora));
            after = scores_of(model, models[i]);
            if (way >= 1 && ck_is_gpt2(models[i]))
                CHECK(off(after, before, models[i]) <= (way == 1 ? 5e-6 : 0.04));
            else
                CHECK_INT(same_scores(before, after, models[i]), true);
            free(before), free(after);
            CHECK_OK(ignis_lora_free(lora));
            CHECK_OK(ignis_model_free(model));
            ck_free(models[i]);
        }
    }
}

/*  A is uniform within 1 / sqrt(in), by its seed alone. */
TEST(a_is_uniform_and_of_its_seed)
{
    ignis_tensor a[4][MOST];
    ignis_lora lora[4];
    double *values[4], sum = 0, squares = 0, most = 0, *random[2];
    int i;
    int64_t k;
    ignis_model model;
    SETUP(NULL);
    model = open_as(&llama, IGNIS_F32);
    for (i = 0; i < 4; i++) {
        ignis_lora_desc desc = all_of(i == 3 ? 5 : 64, 0);
        desc.seed = i == 2 ? 6 : 5;
        CHECK_OK(ignis_seed(9));
        lora[i] = ignis_lora_create(model, &desc);
        if (i < 2) { /* the thread's own numbers go on as if nothing had been */
            ignis_scope scope = ignis_scope_begin();
            random[i] = tensor_values(ignis_tensor_rand(IGNIS_SHAPE(16), NULL));
            CHECK_OK(ignis_scope_end(scope));
        }
        CHECK_INT(ignis_lora_weights(lora[i], a[i], MOST), 28);
        values[i] = tensor_values(a[i][0]);
    }
    CHECK_OK(ignis_seed(9));
    ignis_scope scope = ignis_scope_begin();
    double *alone = tensor_values(ignis_tensor_rand(IGNIS_SHAPE(16), NULL));
    CHECK_OK(ignis_scope_end(scope));
    CHECK(memcmp(random[0], random[1], 16 * sizeof *alone) == 0 && memcmp(random[0], alone, 16 * sizeof *alone) == 0);
    free(random[0]), free(random[1]), free(alone);
    CHECK_INT(memcmp(values[0], values[1], 64 * 32 * sizeof(double)), 0);
    CHECK(memcmp(values[0], values[2], 64 * 32 * sizeof(double)) != 0);
    CHECK_SHAPE_IS(a[0][0], IGNIS_SHAPE(64, 32));
    CHECK_SHAPE_IS(a[3][1], IGNIS_SHAPE(48, 5));
    for (k = 0; k < 64 * 32; k++) {
        sum += values[0][k];
        squares += values[0][k] * values[0][k];
        most = fabs(values[0][k]) > most ? fabs(values[0][k]) : most;
    }
    CHECK(most <= 1 / sqrt(32) * 1.000001 && most > 0.99 / sqrt(32));
    CHECK(fabs(sum / 2048) < 4 / sqrt(3 * 32 * 2048)); /* four deviations of the mean of 2048 */
    CHECK_CLOSE(squares / 2048 * 3 * 32, 1, 0.1);
    for (i = 0; i < 4; i++) {
        double *b = tensor_values(a[i][1]);
        CHECK_NUMBER(b[0], 0);
        free(b), free(values[i]);
        CHECK_OK(ignis_lora_free(lora[i]));
    }
    CHECK_OK(ignis_model_free(model));
    ck_free(&llama);
}

/* training -------------------------------------------------------------------------------------------------------- */

static struct {
    ignis_model model;
    ignis_tensor ids, targets;
    const ck_model *m;
} task;

static void task_begin(ignis_model model, const ck_model *m)
{
    ignis_tensor_desc int_desc = tensor_desc(IGNIS_I32, false);
    int32_t ids[BATCH * SEQ];
    ids_fill(m, ids);
    task.model = model;
    task.m = m;
    task.ids = ignis_tensor_from_host(ids, IGNIS_SHAPE(BATCH, SEQ), &int_desc);
    task.targets = ignis_tensor_from_host(ids, IGNIS_SHAPE(BATCH * SEQ), &int_desc);
}

static void task_end(void)
{
    CHECK_OK(ignis_tensor_release(task.ids));
    CHECK_OK(ignis_tensor_release(task.targets));
}

static ignis_tensor task_loss(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)inputs, (void)count, (void)user_data;
    return ignis_cross_entropy(
        ignis_reshape(ignis_model_forward(task.model, task.ids), IGNIS_SHAPE(BATCH * SEQ, task.m->vocab)), task.targets,
        NULL);
}

/*  By finite differences in f64, for every element of every A and B of one layer of a small model of each family. */
TEST(gradients_agree_with_finite_differences)
{
    int i;
    SETUP(NULL);
    for (i = 0; i < MODELS; i++) {
        ck_model m = *models[i];
        ignis_lora_desc desc = all_of(1, 0.7);
        ignis_tensor tensors[MOST];
        int count, k, j;
        int64_t n;
        m.layers = 1, m.hidden = 8, m.heads = m.kv_heads = ck_is_gpt2(&m) || i == 2 ? 1 : 2, m.inner = 6, m.vocab = 7;
        m.head_dim = 8 / m.heads;
        m.kv_heads = 1;
        ignis_model model = open_as(&m, IGNIS_F64);
        ignis_lora lora = ignis_lora_create(model, &desc);
        CHECK_OK(ignis_model_set_lora(model, lora));
        fill(lora, 0.8);
        count = ignis_lora_weights(lora, tensors, MOST);
        task_begin(model, &m);
        double worst = ignis_gradcheck(task_loss, NULL, tensors, count, NULL);
        if (!(worst <= 1e-6)) {
            printf("%s: off by %g\n", m.family, worst);
            test__fail(__FILE__, __LINE__, ignis_status_message());
        }
        ignis_scope scope = ignis_scope_begin();
        CHECK_OK(ignis_backward(task_loss(NULL, 0, NULL), IGNIS_NO_ARRAY));
        CHECK_OK(ignis_scope_end(scope));
        for (k = 0; k < count; k++) { /* none is left out */
            double *grad = array_values(ignis_tensor_grad(tensors[k])), most = 0;
            n = numel_of(tensors[k]);
            for (j = 0; j < n; j++)
                most = fabs(grad[j]) > most ? fabs(grad[j]) : most;
            CHECK(most > 1e-6);
            free(grad);
        }
        task_end();
        CHECK_OK(ignis_lora_free(lora));
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

static double train(ignis_lora lora, int steps, double lr)
{
    ignis_tensor tensors[MOST];
    ignis_adamw_desc adamw;
    double loss = 0;
    int count = ignis_lora_weights(lora, tensors, MOST), i, step;
    memset(&adamw, 0, sizeof adamw);
    adamw.lr = lr;
    adamw.drop_grad = true;
    ignis_optimizer optimizer = ignis_adamw(&adamw);
    for (i = 0; i < count; i++)
        CHECK_OK(ignis_optimizer_add(optimizer, tensors[i], false));
    for (step = 0; step < steps; step++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor result = task_loss(NULL, 0, NULL);
        loss = ignis_item(result);
        CHECK_OK(ignis_backward(result, IGNIS_NO_ARRAY));
        CHECK_OK(ignis_optimizer_step(optimizer));
        CHECK_OK(ignis_scope_end(scope));
    }
    CHECK_OK(ignis_optimizer_free(optimizer));
    return loss;
}

/*  The loss falls, the model's own weights keep their bits and get no gradients; then the adapters are saved, opened
    beside another copy of the model with the same bits, merged and saved as a model. */
TEST(training_saving_opening_and_merging)
{
    int i, way;
    SETUP(NULL);
    for (i = 0; i < MODELS; i++) {
        for (way = 0; way < 3; way++) { /* f32; f32 beside bf16; bf16 */
            ck_model *m = models[i];
            ignis_model model = open_as(m, way ? IGNIS_BF16 : IGNIS_F32),
                        other = open_as(m, way ? IGNIS_BF16 : IGNIS_F32), saved;
            ignis_lora_desc desc = all_of(4, 16);
            ignis_tensor weights[MOST], before[MOST], after[MOST];
            double *base = scores_of(model, m), *trained, *again, first;
            int count = ignis_model_weights(model, weights, MOST), k;
            desc.dtype = way == 1 ? IGNIS_F32 : IGNIS_DTYPE_DEFAULT;
            ignis_lora lora = ignis_lora_create(model, &desc), opened;
            CHECK_OK(ignis_model_set_lora(model, lora));
            task_begin(model, m);
            ignis_scope scope = ignis_scope_begin();
            first = ignis_item(task_loss(NULL, 0, NULL));
            CHECK_OK(ignis_scope_end(scope));
            CHECK(train(lora, 12, 1e-2) < 0.8 * first);
            for (k = 0; k < count; k++)
                CHECK_INT(ignis_tensor_grad(weights[k]).id, 0);
            trained = scores_of(model, m);
            CHECK_OK(ignis_model_set_lora(model, (ignis_lora){0}));
            again = scores_of(model, m);
            CHECK_INT(same_scores(base, again, m), true);
            free(again);
            CHECK_OK(ignis_lora_save(lora, test_path("adapter/deep")));
            CHECK_INT(test_files_in(test_path("adapter/deep")), 2);
            opened = ignis_lora_open(other, test_path("adapter/deep"));
            CHECK_OK(ignis_model_set_lora(other, opened));
            ignis_lora_info one = lora_info(lora), two = lora_info(opened);
            one.set = two.set;
            CHECK_INT(memcmp(&one, &two, sizeof one), 0);
            CHECK_INT(ignis_lora_weights(lora, before, MOST), ignis_lora_weights(opened, after, MOST));
            for (k = 0; k < 2 * one.adapters; k++) {
                double *a = tensor_values(before[k]), *b = tensor_values(after[k]);
                CHECK_INT(memcmp(a, b, (size_t)numel_of(before[k]) * sizeof *a), 0);
                free(a), free(b);
            }
            again = scores_of(other, m);
            CHECK_INT(same_scores(trained, again, m), true);
            free(again);
            task.model = other;
            CHECK(train(opened, 1, 1e-3) < first); /* what was opened can be trained on */
            CHECK_OK(ignis_lora_free(opened));
            CHECK_OK(ignis_lora_merge(lora));
            again = scores_of(model, m);
            CHECK(off(again, trained, m) <=
                  (way ? 0.04 : 5e-6)); /* weights and numbers in between have 8 bits, or 24 */
            CHECK_OK(ignis_model_save(model, test_path("merged")));
            ignis_model_desc from;
            memset(&from, 0, sizeof from);
            from.path = test_path("merged");
            saved = ignis_model_open(&from);
            free(trained);
            trained = scores_of(saved, m);
            CHECK_INT(same_scores(trained, again, m), true);
            free(again), free(trained), free(base);
            task_end();
            CHECK_OK(ignis_lora_free(lora));
            CHECK_OK(ignis_model_free(model));
            CHECK_OK(ignis_model_free(other));
            CHECK_OK(ignis_model_free(saved));
            ck_free(m);
        }
    }
}

/*  Weights that stay quantised give what numbers of the same values give, also to the gradients of adapters, and are
    not merged into. */
TEST(a_quantised_model_learns_as_its_numbers_do)
{
    static const ignis_weights weights[] = {IGNIS_WEIGHTS_Q8_0, IGNIS_WEIGHTS_Q4_0};
    int family, way, k, count;
    SETUP(NULL);
    for (family = 0; family < 2; family++) { /* GPT-2 and Llama */
        for (way = 0; way < 2; way++) {
            ck_model m = *models[family];
            ignis_model_desc desc;
            ignis_lora_desc lora_desc = all_of(4, 16);
            ignis_model model[2];
            ignis_lora lora[2];
            ignis_model_info info;
            ignis_tensor tensors[2][MOST];
            double *base, *scores[2], first;
            m.hidden = 64, m.heads = 8, m.kv_heads = family ? 2 : 8, m.inner = 96;
            CHECK_OK(ignis_model_free(open_as(&m, IGNIS_F32)));
            memset(&desc, 0, sizeof desc);
            desc.path = test_path("model");
            desc.weights = weights[way];
            model[0] = ignis_model_open(&desc);
            CHECK_OK(ignis_model_query(model[0], &info));
            CHECK(info.quantised > 0);
            CHECK_OK(ignis_model_save(model[0], test_path("numbers")));
            desc.path = test_path("numbers");
            desc.weights = IGNIS_WEIGHTS_NUMBERS;
            model[1] = ignis_model_open(&desc);
            base = scores_of(model[0], &m);
            for (k = 0; k < 2; k++) {
                lora[k] = ignis_lora_create(model[k], &lora_desc);
                CHECK_OK(ignis_model_set_lora(model[k], lora[k]));
                scores[k] = scores_of(model[k], &m);
            }
            CHECK_INT(same_scores(scores[0], base, &m), true); /* B is 0 */
            CHECK(off(scores[0], scores[1], &m) <= 5e-6);
            free(scores[0]), free(scores[1]);
            for (k = 0; k < 2; k++) {
                fill(lora[k], 0.2);
                task_begin(model[k], &m);
                ignis_scope scope = ignis_scope_begin();
                CHECK_OK(ignis_backward(task_loss(NULL, 0, NULL), IGNIS_NO_ARRAY));
                CHECK_OK(ignis_scope_end(scope));
                task_end();
                count = ignis_lora_weights(lora[k], tensors[k], MOST);
            }
            for (k = 0; k < count; k++) {
                double *one = array_values(ignis_tensor_grad(tensors[0][k])),
                       *two = array_values(ignis_tensor_grad(tensors[1][k])), most = 0, worst = 0;
                int64_t i;
                for (i = 0; i < numel_of(tensors[0][k]); i++) {
                    most = fabs(two[i]) > most ? fabs(two[i]) : most;
                    worst = !(fabs(one[i] - two[i]) <= worst) ? fabs(one[i] - two[i]) : worst;
                }
                CHECK(most > 0 && worst <= 5e-5 * most);
                free(one), free(two);
                CHECK_OK(ignis_tensor_set_grad(tensors[0][k], IGNIS_NO_ARRAY));
            }
            task_begin(model[0], &m);
            ignis_scope scope = ignis_scope_begin();
            first = ignis_item(task_loss(NULL, 0, NULL));
            CHECK_OK(ignis_scope_end(scope));
            CHECK(train(lora[0], 10, 1e-2) < 0.8 * first);
            task_end();
            CHECK_STATUS(ignis_lora_merge(lora[0]), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
            CHECK_MESSAGE_HAS("weights of the model are quantised, and adapters are merged into numbers alone");
            CHECK(lora_info(lora[0]).set && !lora_info(lora[0]).merged);
            scores[0] = scores_of(model[0], &m);
            CHECK_OK(ignis_lora_save(lora[0], test_path("a"))); /* beside the numbers they can be merged */
            CHECK_OK(ignis_lora_free(lora[1]));
            lora[1] = ignis_lora_open(model[1], test_path("a"));
            CHECK_OK(ignis_lora_merge(lora[1]));
            scores[1] = scores_of(model[1], &m);
            CHECK(off(scores[1], scores[0], &m) <= 5e-6);
            free(scores[0]);
            CHECK_OK(ignis_model_set_lora(model[0], (ignis_lora){0}));
            scores[0] = scores_of(model[0], &m);
            CHECK_INT(same_scores(scores[0], base, &m), true); /* the base is as it was */
            free(scores[0]), free(scores[1]), free(base);
            for (k = 0; k < 2; k++) {
                CHECK_OK(ignis_lora_free(lora[k]));
                CHECK_OK(ignis_model_free(model[k]));
            }
            ck_free(&m);
        }
    }
}

/*  A step as a graph does what it does without. */
TEST(a_step_can_be_a_graph)
{
    double losses[2];
    int way, step, i, count;
    SETUP(NULL);
    for (way = 0; way < 2; way++) {
        ignis_model model = open_as(&llama, IGNIS_F32);
        ignis_lora_desc desc = all_of(4, 8);
        ignis_tensor tensors[MOST], loss;
        ignis_adamw_desc adamw;
        ignis_graph graph = {0};
        memset(&adamw, 0, sizeof adamw);
        adamw.lr = 1e-2;
        adamw.drop_grad = true;
        ignis_lora lora = ignis_lora_create(model, &desc);
        ignis_optimizer optimizer = ignis_adamw(&adamw);
        CHECK_OK(ignis_model_set_lora(model, lora));
        count = ignis_lora_weights(lora, tensors, MOST);
        for (i = 0; i < count; i++)
            CHECK_OK(ignis_optimizer_add(optimizer, tensors[i], false));
        task_begin(model, &llama);
        for (step = 0; step < 5; step++) {
            ignis_scope scope = ignis_scope_begin();
            if (way == 0 || step < 2) {
                if (way && step == 1)
                    CHECK_OK(ignis_graph_begin());
                loss = task_loss(NULL, 0, NULL);
                CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
                CHECK_OK(ignis_optimizer_step(optimizer));
            }
            if (way && step == 1) {
                CHECK_FAILS(ignis_lora_create(model, NULL), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
                CHECK_FAILS(ignis_lora_open(model, test_path("x")), IGNIS_ERROR_UNSUPPORTED,
                            IGNIS_DIAG_CAPTURE_REFUSED);
                CHECK_STATUS(ignis_lora_save(lora, test_path("x")), IGNIS_ERROR_UNSUPPORTED,
                             IGNIS_DIAG_CAPTURE_REFUSED);
                CHECK_STATUS(ignis_lora_merge(lora), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
                graph = ignis_graph_end();
            }
            CHECK_OK(ignis_scope_end(scope));
            if (way && step > 0)
                CHECK_OK(ignis_graph_launch(graph));
        }
        ignis_scope scope = ignis_scope_begin();
        losses[way] = ignis_item(task_loss(NULL, 0, NULL));
        CHECK_OK(ignis_scope_end(scope));
        if (graph.id)
            CHECK_OK(ignis_graph_free(graph));
        task_end();
        CHECK_OK(ignis_optimizer_free(optimizer));
        CHECK_OK(ignis_lora_free(lora));
        CHECK_OK(ignis_model_free(model));
        ck_free(&llama);
    }
    CHECK_NUMBER(losses[0], losses[1]);
}

/*  Dropout is for training: without a tape nothing is left out. */
TEST(dropout_is_for_training)
{
    ignis_lora_desc desc = all_of(4, 8);
    double *plain, *dropped, *other, *again;
    ignis_model model;
    SETUP(NULL);
    model = open_as(&qwen2, IGNIS_F32);
    ignis_lora lora = ignis_lora_create(model, &desc);
    desc.dropout = 0.5;
    ignis_lora half = ignis_lora_create(model, &desc);
    CHECK_NUMBER(lora_info(half).dropout, 0.5);
    fill(lora, 0.3), fill(half, 0.3);
    CHECK_OK(ignis_model_set_lora(model, lora));
    plain = scores_of(model, &qwen2);
    CHECK_OK(ignis_model_set_lora(model, half));
    CHECK_INT(lora_info(lora).set, false);
    dropped = scores_of(model, &qwen2);
    other = scores_of(model, &qwen2);
    CHECK_OK(ignis_no_grad_begin());
    again = scores_of(model, &qwen2);
    CHECK_OK(ignis_no_grad_end());
    CHECK(off(dropped, plain, &qwen2) > 1e-3 && off(dropped, other, &qwen2) > 1e-3);
    CHECK_INT(same_scores(plain, again, &qwen2), true);
    free(plain), free(dropped), free(other), free(again);
    CHECK_OK(ignis_lora_free(lora));
    CHECK_OK(ignis_lora_free(half));
    CHECK_OK(ignis_model_free(model));
    ck_free(&qwen2);
}

/* PEFT's folders -------------------------------------------------------------------------------------------------- */

static void check_file(int line, const char *path, const char *name, int rows, int columns)
{
    ignis_storage_entry entries[MOST];
    int count = ignis_file_list(path, entries, MOST), i;
    for (i = 0; i < count && strcmp(entries[i].name, name) != 0;)
        i++;
    if (i == count)
        test__fail(__FILE__, line, name);
    else if (entries[i].shape.ndim != 2 || entries[i].shape.dim[0] != rows || entries[i].shape.dim[1] != columns)
        test__fail(__FILE__, line, "another shape");
}
#define CHECK_FILE(path, name, rows, columns) check_file(__LINE__, path, name, rows, columns)

static char *file_text(const char *path)
{
    size_t size;
    return (char *)ignis__file_read(path, &size);
}

/*  Names and shapes are those that PEFT has for the same modules of transformers, whatever the layout of the model's
    weights. */
TEST(files_have_names_and_shapes_of_peft)
{
    static const char *const c_proj[] = {"mlp.c_proj", "c_attn"}, *const mixed[] = {"q_proj", "layers.1.mlp.up_proj"};
    ignis_lora_desc desc = all_of(3, 12);
    ignis_model model;
    ignis_lora lora;
    char *config, path[160];
    SETUP(NULL);
    model = open_as(&gpt2, IGNIS_F32);
    lora = ignis_lora_create(model, &desc);
    CHECK_OK(ignis_lora_save(lora, test_path("a")));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", test_path("a"));
    CHECK_INT(ignis_file_list(path, NULL, 0), 16);
    CHECK_FILE(path, "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight", 3, 24);
    CHECK_FILE(path, "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight", 72, 3);
    CHECK_FILE(path, "base_model.model.transformer.h.1.attn.c_proj.lora_A.weight", 3, 24);
    CHECK_FILE(path, "base_model.model.transformer.h.1.attn.c_proj.lora_B.weight", 24, 3);
    CHECK_FILE(path, "base_model.model.transformer.h.0.mlp.c_fc.lora_A.weight", 3, 24);
    CHECK_FILE(path, "base_model.model.transformer.h.0.mlp.c_fc.lora_B.weight", 40, 3);
    CHECK_FILE(path, "base_model.model.transformer.h.1.mlp.c_proj.lora_A.weight", 3, 40);
    CHECK_FILE(path, "base_model.model.transformer.h.1.mlp.c_proj.lora_B.weight", 24, 3);
    snprintf(path, sizeof path, "%s/adapter_config.json", test_path("a"));
    config = file_text(path);
    CHECK_HAS(config, "\"target_modules\": [\"c_attn\", \"attn.c_proj\", \"c_fc\", \"mlp.c_proj\"]");
    CHECK_HAS(config, "\"fan_in_fan_out\": true");
    CHECK_HAS(config, "\"peft_type\": \"LORA\"");
    CHECK_HAS(config, "\"task_type\": \"CAUSAL_LM\"");
    CHECK_HAS(config, "\"r\": 3");
    CHECK_HAS(config, "\"lora_alpha\": 12");
    CHECK_HAS(config, "\"lora_dropout\": 0");
    CHECK_HAS(config, "\"bias\": \"none\"");
    CHECK_HAS(config, "\"use_rslora\": false");
    CHECK_HAS(config, test_folder); /* base_model_name_or_path */
    ignis__free(config);
    CHECK_OK(ignis_lora_free(lora));
    desc.targets = c_proj, desc.target_count = 2, desc.rslora = true;
    lora = ignis_lora_create(model, &desc);
    CHECK_OK(ignis_lora_save(lora, test_path("a"))); /* over the old one */
    snprintf(path, sizeof path, "%s/adapter_config.json", test_path("a"));
    config = file_text(path);
    CHECK_HAS(config, "\"target_modules\": [\"c_attn\", \"mlp.c_proj\"]");
    CHECK_HAS(config, "\"use_rslora\": true");
    ignis__free(config);
    CHECK_OK(ignis_lora_free(lora));
    lora = ignis_lora_open(model, test_path("a"));
    CHECK_CLOSE(lora_info(lora).scale, 12 / sqrt(3), 1e-15);
    CHECK_INT(lora_info(lora).adapters, 4);
    CHECK_OK(ignis_lora_free(lora));
    CHECK_OK(ignis_model_free(model));
    ck_free(&gpt2);

    model = open_as(&llama, IGNIS_F32);
    desc = all_of(2, 0);
    lora = ignis_lora_create(model, &desc);
    CHECK_OK(ignis_lora_save(lora, test_path("a")));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", test_path("a"));
    CHECK_INT(ignis_file_list(path, NULL, 0), 28);
    CHECK_FILE(path, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", 2, 32);
    CHECK_FILE(path, "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight", 48, 2);
    CHECK_FILE(path, "base_model.model.model.layers.0.self_attn.k_proj.lora_B.weight", 16, 2);
    CHECK_FILE(path, "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight", 16, 2);
    CHECK_FILE(path, "base_model.model.model.layers.1.self_attn.o_proj.lora_A.weight", 2, 48);
    CHECK_FILE(path, "base_model.model.model.layers.1.self_attn.o_proj.lora_B.weight", 32, 2);
    CHECK_FILE(path, "base_model.model.model.layers.1.mlp.gate_proj.lora_B.weight", 40, 2);
    CHECK_FILE(path, "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight", 2, 32);
    CHECK_FILE(path, "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight", 2, 40);
    CHECK_FILE(path, "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight", 32, 2);
    CHECK_OK(ignis_lora_free(lora));
    desc.targets = mixed, desc.target_count = 2;
    lora = ignis_lora_create(model, &desc);
    CHECK_OK(ignis_lora_save(lora, test_path("a")));
    snprintf(path, sizeof path, "%s/adapter_config.json", test_path("a"));
    config = file_text(path);
    CHECK_HAS(config, "\"target_modules\": [\"q_proj\", \"model.layers.1.mlp.up_proj\"]");
    CHECK_HAS(config, "\"fan_in_fan_out\": false");
    ignis__free(config);
    CHECK_OK(ignis_lora_free(lora));
    lora = ignis_lora_open(model, test_path("a"));
    CHECK_INT(lora_info(lora).adapters, 3);
    CHECK_OK(ignis_lora_free(lora));
    CHECK_OK(ignis_model_free(model));
    ck_free(&llama);
}

static const char sound_config[] =
    "{\"alora_invocation_tokens\": null, \"alpha_pattern\": {}, \"arrow_config\": null, \"auto_mapping\": "
    "{\"base_model_class\": \"x\"},\n"
    " \"base_model_name_or_path\": \"some/where\", \"bias\": \"none\", \"corda_config\": null, "
    "\"ensure_weight_tying\": false,\n"
    " \"eva_config\": null, \"exclude_modules\": null, \"fan_in_fan_out\": false, \"inference_mode\": true, "
    "\"init_lora_weights\": true,\n"
    " \"layer_replication\": null, \"layers_pattern\": null, \"layers_to_transform\": null, \"loftq_config\": {}, "
    "\"lora_alpha\": 16,\n"
    " \"lora_bias\": false, \"lora_dropout\": 0.05, \"megatron_config\": null, \"megatron_core\": \"megatron.core\",\n"
    " \"modules_to_save\": null, \"peft_type\": \"LORA\", \"peft_version\": \"0.18.0\", \"qalora_group_size\": 16, "
    "\"r\": 2,\n"
    " \"rank_pattern\": {}, \"revision\": null, \"target_modules\": [\"v_proj\", \"q_proj\"], \"target_parameters\": "
    "null,\n"
    " \"task_type\": \"CAUSAL_LM\", \"trainable_token_indices\": null, \"use_dora\": false, \"use_qalora\": false, "
    "\"use_rslora\": "
    "false}\n";

/*  The sound text with a piece replaced. */
static void write_config(const char *from, const char *to)
{
    char text[4096], *place;
    snprintf(text, sizeof text, "%s", sound_config);
    if (from) {
        place = strstr(text, from);
        CHECK(place != NULL);
        if (place) {
            char rest[4096];
            snprintf(rest, sizeof rest, "%s", place + strlen(from));
            snprintf(place, sizeof text - (size_t)(place - text), "%s%s", to, rest);
        }
    }
    CHECK_INT(ignis__folder_make_all(test_path("peft")), true);
    ck_write_text(test_path("peft"), "adapter_config.json", text);
}

typedef struct peft_tensor {
    const char *name;
    int rows, columns;
    ignis_dtype dtype;
} peft_tensor;

/*  Writes a file of tensors; those without a name are left out. */
static void write_tensors(const peft_tensor *list, int count)
{
    ignis_tensor tensors[MOST];
    const char *names[MOST];
    char full[MOST][160], path[160];
    int i, made = 0;
    ignis_scope scope = ignis_scope_begin();
    for (i = 0; i < count; i++) {
        if (!list[i].name)
            continue;
        snprintf(full[made], sizeof full[0], "%s", list[i].name);
        names[made] = full[made];
        tensors[made++] =
            list[i].dtype == IGNIS_I32
                ? tensor_counting(IGNIS_SHAPE(list[i].rows, list[i].columns), IGNIS_I32, 1, false)
                : tensor_noise(list[i].columns ? IGNIS_SHAPE(list[i].rows, list[i].columns) : IGNIS_SHAPE(list[i].rows),
                               list[i].dtype, 7, false);
    }
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", test_path("peft"));
    CHECK_OK(ignis_save(path, names, tensors, made));
    CHECK_OK(ignis_scope_end(scope));
}

#define PEFT_LAYER "base_model.model.model.layers."
enum { SOUND = 8 };
static const peft_tensor sound_tensors[SOUND] = {{PEFT_LAYER "0.self_attn.q_proj.lora_A.weight", 2, 32, IGNIS_F16},
                                                 {PEFT_LAYER "0.self_attn.q_proj.lora_B.weight", 48, 2, IGNIS_F16},
                                                 {PEFT_LAYER "0.self_attn.v_proj.lora_A.weight", 2, 32, IGNIS_F16},
                                                 {PEFT_LAYER "0.self_attn.v_proj.lora_B.weight", 16, 2, IGNIS_F16},
                                                 {PEFT_LAYER "1.self_attn.q_proj.lora_A.weight", 2, 32, IGNIS_F16},
                                                 {PEFT_LAYER "1.self_attn.q_proj.lora_B.weight", 48, 2, IGNIS_F16},
                                                 {PEFT_LAYER "1.self_attn.v_proj.lora_A.weight", 2, 32, IGNIS_F16},
                                                 {PEFT_LAYER "1.self_attn.v_proj.lora_B.weight", 16, 2, IGNIS_F16}};

/*  What PEFT writes is opened; what would compute something else is refused by name. */
TEST(configs_that_cannot_be_followed_are_refused)
{
    static const struct {
        const char *from, *to;
        ignis_status status;
        const char *message;
    } cases[] = {
        {NULL, NULL, 0, NULL},
        {"\"init_lora_weights\": true", "\"init_lora_weights\": \"gaussian\"", 0, NULL},
        {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa_niter_4\"", IGNIS_ERROR_UNSUPPORTED,
         "has init_lora_weights 'pissa_niter_4'"},
        {"[\"v_proj\", \"q_proj\"]", "\"all-linear\"", 0, NULL},
        {"\"layers_to_transform\": null", "\"layers_to_transform\": [0, 1]", 0, NULL},
        {"\"peft_version\"", "\"of_tomorrow\": [], \"peft_version\"", 0, NULL},
        {"\"peft_version\"", "\"of_tomorrow\": [1], \"peft_version\"", IGNIS_ERROR_UNSUPPORTED,
         "has 'of_tomorrow' there, which Ignis cannot do"},
        {"\"peft_version\"", "\"of_tomorrow\": 0.5, \"peft_version\"", IGNIS_ERROR_UNSUPPORTED,
         "has 'of_tomorrow' there"},
        {"\"peft_version\"", "\"of_tomorrow\": \"x\", \"peft_version\"", IGNIS_ERROR_UNSUPPORTED,
         "has 'of_tomorrow' 'x'"},
        {"\"use_dora\": false", "\"use_dora\": true", IGNIS_ERROR_UNSUPPORTED,
         "has 'use_dora' true, which Ignis cannot do"},
        {"\"use_qalora\": false", "\"use_qalora\": true", IGNIS_ERROR_UNSUPPORTED, "has 'use_qalora' true"},
        {"\"lora_bias\": false", "\"lora_bias\": true", IGNIS_ERROR_UNSUPPORTED, "has 'lora_bias' true"},
        {"\"bias\": \"none\"", "\"bias\": \"lora_only\"", IGNIS_ERROR_UNSUPPORTED,
         "has bias 'lora_only', which Ignis cannot do"},
        {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]", IGNIS_ERROR_UNSUPPORTED,
         "has 'modules_to_save' there"},
        {"\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 4}", IGNIS_ERROR_UNSUPPORTED,
         "has 'rank_pattern' there"},
        {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": 4}", IGNIS_ERROR_UNSUPPORTED,
         "has 'alpha_pattern' there"},
        {"\"layer_replication\": null", "\"layer_replication\": [[0, 1]]", IGNIS_ERROR_UNSUPPORTED,
         "has 'layer_replication' there"},
        {"\"trainable_token_indices\": null", "\"trainable_token_indices\": [3]", IGNIS_ERROR_UNSUPPORTED,
         "has 'trainable_token_indices' there"},
        {"\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\"", IGNIS_ERROR_UNSUPPORTED, "has peft_type 'IA3'"},
        {"\"peft_type\": \"LORA\"", "\"peft_typE\": \"LORA\"", IGNIS_ERROR_FORMAT, "has no peft_type"},
        {"\"peft_type\": \"LORA\"", "\"peft_type\": 7", IGNIS_ERROR_FORMAT, "peft_type is no text"},
        {"\"use_rslora\": false", "\"use_rslora\": \"yes\"", IGNIS_ERROR_FORMAT,
         "use_rslora is neither true nor false"},
        {"\"bias\": \"none\"", "\"bias\": true", IGNIS_ERROR_FORMAT, "bias is no text"},
        {"\"init_lora_weights\": true", "\"init_lora_weights\": [1]", IGNIS_ERROR_FORMAT,
         "init_lora_weights is neither true nor false"},
        {"\"r\": 2", "\"r\": 0", IGNIS_ERROR_FORMAT, "has r 0; a number from 1 to 65536 is needed"},
        {"\"r\": 2", "\"r\": -2", IGNIS_ERROR_FORMAT, "has r -2"},
        {"\"r\": 2", "\"r\": 1.5", IGNIS_ERROR_FORMAT, "has r 1.5; a whole number is needed"},
        {"\"r\": 2", "\"r\": 1e30", IGNIS_ERROR_FORMAT, "has r 1e+30"},
        {"\"r\": 2", "\"r\": \"2\"", IGNIS_ERROR_FORMAT, "r is no number"},
        {"\"r\": 2", "\"r\": null", IGNIS_ERROR_FORMAT, "has no r"},
        {"\"r\": 2", "\"r\": 3", IGNIS_ERROR_FORMAT, "the model and a rank of 3 make it [3, 32]"},
        {"\"lora_alpha\": 16", "\"lora_alpha\": NaN", IGNIS_ERROR_FORMAT, "is no sound JSON file"},
        {"\"lora_alpha\": 16", "\"lora_alpha\": 1e400", IGNIS_ERROR_FORMAT, "lora_alpha"},
        {"\"lora_alpha\": 16", "\"lora_alpha\": 0", IGNIS_ERROR_FORMAT, "has lora_alpha 0"},
        {"\"lora_alpha\": 16,", "", IGNIS_ERROR_FORMAT, "has no lora_alpha"},
        {"\"lora_dropout\": 0.05", "\"lora_dropout\": 1", IGNIS_ERROR_FORMAT, "has lora_dropout 1"},
        {"\"lora_dropout\": 0.05, ", "", 0, NULL},
        {"\"use_rslora\": false}", "\"use_rslora\": false", IGNIS_ERROR_FORMAT, "is no sound JSON file"},
    };
    ignis_model model;
    int i;
    SETUP(NULL);
    model = open_as(&llama, IGNIS_F32);
    write_config(NULL, NULL);
    write_tensors(sound_tensors, SOUND);
    for (i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        write_config(cases[i].from, cases[i].to);
        ignis_lora lora = ignis_lora_open(model, test_path("peft"));
        CHECK_INT(ignis_status_last(), cases[i].status);
        if (cases[i].status)
            CHECK_HAS(ignis_status_message(), cases[i].message);
        CHECK_INT(lora.id != 0, !cases[i].status);
        ignis_status_clear();
        if (lora.id) {
            ignis_lora_info info = lora_info(lora);
            CHECK(info.rank == 2 && info.adapters == 4 && info.alpha == 16 && info.scale == 8 &&
                  info.dtype == IGNIS_F16);
            CHECK_OK(ignis_lora_free(lora));
        }
    }
    CHECK_OK(ignis_model_free(model));
    ck_free(&llama);
}

TEST(tensors_that_do_not_fit_are_refused)
{
    static const struct {
        int at;
        peft_tensor tensor;
        ignis_status status;
        const char *message;
    } cases[] = {
        {0,
         {NULL, 0, 0, 0},
         IGNIS_ERROR_FORMAT,
         "has no tensor base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"},
        {7,
         {NULL, 0, 0, 0},
         IGNIS_ERROR_FORMAT,
         "has no tensor base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"},
        {0,
         {PEFT_LAYER "0.self_attn.q_proj.lora_A.weight", 32, 2, IGNIS_F16},
         IGNIS_ERROR_FORMAT,
         "is [32, 2]; the model and a rank of 2 make it [2, 32]"},
        {1,
         {PEFT_LAYER "0.self_attn.q_proj.lora_B.weight", 16, 2, IGNIS_F16},
         IGNIS_ERROR_FORMAT,
         "is [16, 2]; the model and a rank of 2 make it [48, 2]"},
        {1,
         {PEFT_LAYER "0.self_attn.q_proj.lora_B.weight", 96, 0, IGNIS_F16},
         IGNIS_ERROR_FORMAT,
         "is [96]; the model"},
        {1,
         {PEFT_LAYER "0.self_attn.q_proj.lora_B.weight", 48, 2, IGNIS_F32},
         IGNIS_ERROR_UNSUPPORTED,
         "is of type F32; all are of one"},
        {0,
         {PEFT_LAYER "0.self_attn.q_proj.lora_A.weight", 2, 32, IGNIS_I32},
         IGNIS_ERROR_UNSUPPORTED,
         "is of type I32"},
        {8,
         {PEFT_LAYER "2.self_attn.q_proj.lora_A.weight", 2, 32, IGNIS_F16},
         IGNIS_ERROR_FORMAT,
         "which has no place beside a product of the model, llama of 2 layers"},
        {8,
         {PEFT_LAYER "0.self_attn.q_proj.lora_magnitude_vector", 48, 0, IGNIS_F16},
         IGNIS_ERROR_FORMAT,
         "has no place"},
        {8, {PEFT_LAYER "0.self_attn.q_proj.lora_B.bias", 48, 0, IGNIS_F16}, IGNIS_ERROR_FORMAT, "has no place"},
        {8, {"base_model.model.lm_head.lora_A.weight", 2, 32, IGNIS_F16}, IGNIS_ERROR_FORMAT, "has no place"},
        {8,
         {"base_model.model.model.embed_tokens.lora_embedding_A", 2, 31, IGNIS_F16},
         IGNIS_ERROR_FORMAT,
         "has no place"},
        {8, {PEFT_LAYER "00.self_attn.q_proj.lora_A.weight", 2, 32, IGNIS_F16}, IGNIS_ERROR_FORMAT, "has no place"},
    };
    ignis_model model;
    char path[160];
    int i;
    SETUP(NULL);
    model = open_as(&llama, IGNIS_F32);
    write_config(NULL, NULL);
    for (i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        peft_tensor tensors[SOUND + 1];
        int64_t before = memory().live_bytes;
        memcpy(tensors, sound_tensors, sizeof sound_tensors);
        memset(&tensors[SOUND], 0, sizeof tensors[SOUND]);
        tensors[cases[i].at] = cases[i].tensor;
        write_tensors(tensors, SOUND + 1);
        CHECK_INT(ignis_lora_open(model, test_path("peft")).id, 0);
        CHECK_INT(ignis_status_last(), cases[i].status);
        CHECK_HAS(ignis_status_message(), cases[i].message);
        ignis_status_clear();
        CHECK_INT(memory().live_bytes, before);
    }
    write_tensors(sound_tensors, 0);
    CHECK_FAILS(ignis_lora_open(model, test_path("peft")), IGNIS_ERROR_FORMAT, IGNIS_DIAG_LORA_FORMAT);
    CHECK_MESSAGE_HAS("has no tensors");
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", test_path("peft"));
    test_write_file(path, "damaged", 7);
    CHECK_FAILS(ignis_lora_open(model, test_path("peft")), IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT);
    CHECK_INT(unlink(path), 0);
    CHECK_FAILS(ignis_lora_open(model, test_path("peft")), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS("adapter_model.safetensors");
    CHECK_FAILS(ignis_lora_open(model, test_path("nowhere")), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS("adapter_config.json");
    CHECK_FAILS(ignis_lora_open(model, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_model_free(model));
    ck_free(&llama);
}

/*  Beside a GGUF file, whose q and k have their rows in another order, the same folder gives the same scores. */
TEST(folders_serve_gguf_files_too)
{
    ignis_model model[2];
    ignis_lora lora[2];
    double *scores[2];
    ck_bytes file;
    int i;
    SETUP(NULL);
    write_config(NULL, NULL);
    write_tensors(sound_tensors, SOUND);
    model[0] = open_as(&llama, IGNIS_F32);
    file = ck_gguf(&llama, 0, NULL);
    test_write_file(test_path("m.gguf"), file.data, file.size);
    free(file.data);
    ignis_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("m.gguf");
    model[1] = ignis_model_open(&desc);
    for (i = 0; i < 2; i++) {
        lora[i] = ignis_lora_open(model[i], test_path("peft"));
        CHECK_OK(ignis_model_set_lora(model[i], lora[i]));
        CHECK_OK(ignis_no_grad_begin()); /* the file asks for dropout */
        scores[i] = scores_of(model[i], &llama);
        CHECK_OK(ignis_no_grad_end());
    }
    CHECK(off(scores[1], scores[0], &llama) <= 5e-6);
    for (i = 0; i < 2; i++) {
        free(scores[i]);
        CHECK_OK(ignis_lora_free(lora[i]));
        CHECK_OK(ignis_model_free(model[i]));
    }
    ck_free(&llama);
}

/* errors, lives --------------------------------------------------------------------------------------------------- */

TEST(descriptions_are_checked)
{
    static const char *const unknown[] = {"q_proj", "query"}, *const part[] = {"proj"}, *const head[] = {"lm_head"},
                             *const empty[] = {""}, *const hole[] = {NULL};
    ignis_lora_desc desc;
    ignis_model model;
    SETUP(NULL);
    model = open_as(&llama, IGNIS_F32);
#define CHECK_BAD(field, value, back, diagnostic, message)                                           \
    do {                                                                                             \
        desc.field = (value);                                                                        \
        CHECK_FAILS(ignis_lora_create(model, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_##diagnostic); \
        CHECK_MESSAGE_HAS(message);                                                                  \
        desc.field = (back);                                                                         \
    } while (0)
    desc = all_of(2, 1);
    CHECK_BAD(rank, -1, 2, BAD_NUMBER, "desc->rank is -1; 1 to 65536 is needed");
    CHECK_BAD(rank, 65537, 2, BAD_NUMBER, "desc->rank is 65537");
    CHECK_BAD(alpha, -1, 1, BAD_NUMBER, "desc->alpha is -1; a positive number is needed");
    CHECK_BAD(alpha, NAN, 1, BAD_NUMBER, "desc->alpha is");
    CHECK_BAD(alpha, HUGE_VAL, 1, BAD_NUMBER, "desc->alpha is inf");
    CHECK_BAD(dropout, 1, 0, BAD_NUMBER, "desc->dropout is 1; 0 to below 1 is needed");
    CHECK_BAD(dropout, -0.1, 0, BAD_NUMBER, "desc->dropout is -0.1");
    CHECK_BAD(dropout, NAN, 0, BAD_NUMBER, "desc->dropout is");
    CHECK_BAD(dtype, IGNIS_I32, IGNIS_F32, BAD_ENUM, "desc->dtype");
    CHECK_BAD(target_count, -1, 1, BAD_NUMBER, "desc->target_count is -1, below 0");
    CHECK_BAD(targets, NULL, all_linear, NULL_ARGUMENT, "desc->targets");
    CHECK_BAD(targets, hole, all_linear, NULL_ARGUMENT, "desc->targets[0] of 1 is null");
    CHECK_BAD(targets, part, all_linear, STORAGE_MISSING,
              "desc->targets[0] is 'proj', which is no product of the model, llama of 2 layers");
    CHECK_MESSAGE_HAS("they have self_attn.q_proj, self_attn.k_proj, self_attn.v_proj, self_attn.o_proj, "
                      "mlp.gate_proj, mlp.up_proj, mlp.down_proj");
    CHECK_BAD(targets, head, all_linear, STORAGE_MISSING, "desc->targets[0] is 'lm_head'");
    CHECK_BAD(targets, empty, all_linear, STORAGE_MISSING, "desc->targets[0] is ''");
    desc.target_count = 2;
    CHECK_BAD(targets, unknown, all_linear, STORAGE_MISSING, "desc->targets[1] is 'query'");
    CHECK_OK(ignis_model_free(model));
    CHECK_FAILS(ignis_lora_create(model, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_FAILS(ignis_lora_open(model, test_path("peft")), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_INT(memory().live_bytes, 0);
    ck_free(&llama);
}

TEST(handles_are_checked_and_leaks_reported)
{
    ignis_tensor tensors[MOST];
    ignis_lora_info info;
    ignis_lora none = {0}, lora, other;
    ignis_model model, second;
    SETUP(NULL);
    model = open_as(&llama, IGNIS_F32);
    second = open_as(&llama, IGNIS_F32);
    ignis_scope scope = ignis_scope_begin();
    lora = ignis_lora_create(model, NULL);
    CHECK_OK(ignis_scope_end(scope)); /* A and B stay */
    other = ignis_lora_create(model, NULL);
    CHECK_STATUS(ignis_lora_query(lora, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_INT(ignis_lora_weights(lora, NULL, 0), 8);
    CHECK_INT(ignis_lora_weights(lora, tensors, 1), 8);
    CHECK_INT(tensor_info(tensors[0]).requires_grad, true);
    CHECK_FAILS(ignis_lora_weights(lora, NULL, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_lora_weights(lora, tensors, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_lora_save(lora, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    test_write_file(test_path("file"), "x", 1);
    CHECK_STATUS(ignis_lora_save(lora, test_path("file/below")), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_STATUS(ignis_model_set_lora(second, lora), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LORA_STATE);
    CHECK_MESSAGE_HAS("the adapters were made for another model");
    CHECK_OK(ignis_model_set_lora(second, none));
    CHECK_OK(ignis_model_set_lora(model, lora));
    CHECK_OK(ignis_model_set_lora(model, other));
    CHECK(!lora_info(lora).set && lora_info(other).set);
    CHECK_OK(ignis_lora_free(other)); /* while it is set */
    CHECK_STATUS(ignis_model_set_lora(model, other), IGNIS_ERROR_FREED, IGNIS_DIAG_LORA_FREED);
    free(scores_of(model, &llama));
    CHECK_OK(ignis_model_set_lora(model, lora));
    CHECK_OK(ignis_lora_merge(lora));
    CHECK_STATUS(ignis_lora_merge(lora), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LORA_STATE);
    CHECK_MESSAGE_HAS("the adapters are merged already");
    CHECK_STATUS(ignis_model_set_lora(model, lora), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LORA_STATE);
    CHECK_OK(ignis_lora_save(lora, test_path("a")));
    other = ignis_lora_create(model, NULL);
    CHECK_OK(ignis_model_set_lora(model, other));
    CHECK_OK(ignis_model_free(model)); /* its memory stays for the adapters */
    CHECK_STATUS(ignis_model_set_lora(model, other), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_OK(ignis_lora_save(other, test_path("a")));
    CHECK_OK(ignis_lora_merge(other));
    CHECK_OK(ignis_lora_free(other));
    CHECK_OK(ignis_lora_free(lora));
    CHECK_STATUS(ignis_lora_free(lora), IGNIS_ERROR_FREED, IGNIS_DIAG_LORA_FREED);
    CHECK_STATUS(ignis_lora_query(lora, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_LORA_FREED);
    CHECK_STATUS(ignis_lora_query(none, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_LORA_FREED);
    CHECK_STATUS(ignis_lora_merge(lora), IGNIS_ERROR_FREED, IGNIS_DIAG_LORA_FREED);
    CHECK_STATUS(ignis_lora_save(lora, test_path("a")), IGNIS_ERROR_FREED, IGNIS_DIAG_LORA_FREED);
    CHECK_FAILS(ignis_lora_weights(lora, NULL, 0), IGNIS_ERROR_FREED, IGNIS_DIAG_LORA_FREED);
    CHECK_FAILS(ignis_tensor_data(tensors[0]), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    lora = ignis_lora_create(second, NULL);
    CHECK_OK(ignis_model_set_lora(second, lora));
    test_leaks_expected = true;
    CHECK_OK(ignis_shutdown());
    CHECK_HAS(test_log_text(IGNIS_DIAG_HANDLE_LEAKED), "of 2 layers");
    CHECK_INT(test_log_count(IGNIS_DIAG_HANDLE_LEAKED), 2); /* adapters and model */
    ck_free(&llama);
}

/*  What the tape has recorded outlives the adapters. */
TEST(backward_after_free)
{
    ignis_lora_desc desc = all_of(2, 2);
    ignis_model model;
    SETUP(NULL);
    model = open_as(&qwen3, IGNIS_F32);
    ignis_lora lora = ignis_lora_create(model, &desc);
    CHECK_OK(ignis_model_set_lora(model, lora));
    task_begin(model, &qwen3);
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor loss = task_loss(NULL, 0, NULL);
    CHECK_OK(ignis_lora_free(lora));
    CHECK_OK(ignis_model_free(model));
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
    task_end();
    CHECK_INT(memory().live_bytes, 0);
    ck_free(&qwen3);
}

static ignis_model shared;
static ignis_lora shared_lora[2];
static double *shared_scores[3]; /* without, and with each */

static void *use_shared(void *worker)
{
    int turn, k;
    for (turn = 0; turn < 6; turn++) {
        if (*(int *)worker < 2) { /* what is set may change at any time, but not inside of a forward */
            double *scores = scores_of(shared, &llama);
            for (k = 0; k < 3 && !same_scores(scores, shared_scores[k], &llama);)
                k++;
            CHECK(k < 3);
            free(scores);
        } else {
            ignis_lora own = ignis_lora_create(shared, NULL);
            CHECK_OK(ignis_model_set_lora(shared, shared_lora[turn % 2]));
            CHECK_OK(ignis_lora_save(shared_lora[turn % 2], test_path("shared")));
            CHECK_OK(ignis_model_set_lora(shared, (ignis_lora){0}));
            CHECK_OK(ignis_model_set_lora(shared, own)); /* which changes nothing */
            CHECK_OK(ignis_lora_free(own));
        }
    }
    return NULL;
}

TEST(threads_set_and_use_them)
{
    ignis_lora_desc desc = all_of(2, 2);
    pthread_t threads[3];
    int number[3] = {0, 1, 2}, i;
    SETUP(NULL);
    shared = open_as(&llama, IGNIS_F32);
    shared_scores[0] = scores_of(shared, &llama);
    for (i = 0; i < 2; i++) {
        shared_lora[i] = ignis_lora_create(shared, &desc);
        fill(shared_lora[i], 0.2 + 0.2 * i);
        CHECK_OK(ignis_model_set_lora(shared, shared_lora[i]));
        shared_scores[i + 1] = scores_of(shared, &llama);
    }
    CHECK_OK(ignis_synchronize());
    for (i = 0; i < 3; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, use_shared, &number[i]), 0);
    for (i = 0; i < 3; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    for (i = 0; i < 3; i++)
        free(shared_scores[i]);
    for (i = 0; i < 2; i++)
        CHECK_OK(ignis_lora_free(shared_lora[i]));
    CHECK_OK(ignis_model_free(shared));
    ck_free(&llama);
}

TEST(a_dry_run_counts_what_they_take)
{
    ignis_lora_desc desc = all_of(8, 8);
    ignis_desc setup;
    ignis_model model;
    int64_t before;
    memset(&setup, 0, sizeof setup);
    setup.dry_run = true;
    SETUP(&setup);
    model = open_as(&llama, IGNIS_F32);
    before = memory().live_bytes;
    ignis_lora lora = ignis_lora_create(model, &desc);
    CHECK(memory().live_bytes >= before + 4 * lora_info(lora).parameters);
    CHECK_OK(ignis_model_set_lora(model, lora));
    task_begin(model, &llama);
    ignis_scope scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(task_loss(NULL, 0, NULL), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
    task_end();
    CHECK_OK(ignis_lora_merge(lora));
    CHECK_OK(ignis_lora_free(lora));
    CHECK_OK(ignis_model_free(model));
    ck_free(&llama);
}

/*  Whatever fails, nothing stays behind; a merge that failed goes on where it stopped. */
TEST(what_fails_leaves_nothing_behind)
{
    static host_counter counter;
    ignis_desc setup = test_counting_desc(&counter);
    static const char *const prefixes[] = {NULL, "cuLaunchKernel", "cuMemcpy"};
    int what, way, at, failures[4] = {0, 0, 0, 0};
    ignis_model model;
    ignis_lora lora;
    SETUP(&setup);
    model = open_as(&llama, IGNIS_F32);
    write_config(NULL, NULL);
    write_tensors(sound_tensors, SOUND);
    lora = ignis_lora_open(model, test_path("peft")); /* so that what is made once is there */
    CHECK_OK(ignis_lora_merge(lora));
    CHECK_OK(ignis_lora_free(lora));
    CHECK_OK(ignis_lora_free(ignis_lora_create(model, NULL)));
    for (what = 0; what < 4; what++) {
        for (way = 0; way < 3; way++) {
            for (at = 1; at < 400; at += at < 30 ? 1 : 7) {
                bool hit, ok = false;
                int64_t before;
                lora = what < 2 ? (ignis_lora){0} : ignis_lora_open(model, test_path("peft"));
                before = memory().live_bytes;
                fault_plan(prefixes[way], at, 2, &counter, false);
                if (what == 0)
                    ok = (lora = ignis_lora_create(model, NULL)).id != 0;
                else if (what == 1)
                    ok = (lora = ignis_lora_open(model, test_path("peft"))).id != 0;
                else if (what == 2)
                    ok = ignis_lora_save(lora, test_path("f")) == IGNIS_OK;
                else
                    ok = ignis_lora_merge(lora) == IGNIS_OK;
                hit = fault_over(&counter);
                if (!ok) {
                    CHECK(hit);
                    failures[what]++;
                    if (what < 2)
                        CHECK_INT(memory().live_bytes, before);
                }
                ignis_status_clear();
                if (what == 3 && !lora_info(lora).merged)
                    CHECK_OK(ignis_lora_merge(lora));
                if (lora.id)
                    CHECK_OK(ignis_lora_free(lora));
                if (!hit)
                    break;
            }
            CHECK(at < 400);
        }
    }
    for (what = 0; what < 4; what++)
        CHECK(failures[what] > 8);
    CHECK_OK(ignis_model_free(model));
    CHECK_INT(memory().live_bytes, 0);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(counter.blocks, 0);
    ck_free(&llama);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
