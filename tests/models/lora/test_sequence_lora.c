// SPDX-License-Identifier: MIT
/*  test_sequence_lora.c - sequences with adapters beside the weights: logits beside merged weights and the forward,
    batches, lives, errors, failures */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "checkpoint.h"

/*  Driver calls that fail here leave their objects with the simulator. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libnvrtc\nleak:libcuda\n"; }

/*  Sizes for tensor cores, with heads that products rotate, and for quantised weights. */
#define SIZES(name, kv, tied_head, add_biases)                                                                      \
    {                                                                                                               \
        .family = name, .layers = 2, .hidden = 64, .heads = 4, .kv_heads = kv, .head_dim = 16, .inner = 96,         \
        .vocab = 45, .context = 96, .tied = tied_head, .biases = add_biases, .eps = 1e-5, .theta = 10000, .seed = 5 \
    }
static ck_model gpt2 = SIZES("gpt2", 4, true, false), llama = SIZES("llama", 2, false, true),
                qwen3 = SIZES("qwen3", 2, true, false);
enum { MOST = 64, PROMPT = 80, DRAWN = 2 };

static const char *const all_linear[] = {"all-linear"}, *const some_linear[] = {"v_proj", "up_proj"},
                         *const some_gpt2[] = {"attn.c_proj"};

static ignis_model open_as(ck_model *m, ignis_dtype dtype, ignis_weights weights, int sequences)
{
    ignis_model_desc desc;
    ck_free(m);
    ck_make(m);
    ck_write_folder(m, test_path("model"), IGNIS_F32, 1);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("model");
    desc.dtype = dtype;
    desc.weights = weights;
    desc.sequences = sequences;
    return ignis_model_open(&desc);
}

/*  Adapters of all products, or of some, whose A and B are numbers that look random. */
static ignis_lora lora_of(ignis_model model, int rank, ignis_dtype dtype, const char *const *targets, int target_count)
{
    ignis_lora_desc desc;
    ignis_tensor tensors[MOST];
    ignis_lora lora;
    int count, i;
    int64_t k;
    memset(&desc, 0, sizeof desc);
    desc.rank = rank;
    desc.alpha = 1.5 * rank;
    desc.dtype = dtype;
    desc.targets = targets;
    desc.target_count = target_count;
    lora = ignis_lora_create(model, &desc);
    count = ignis_lora_weights(lora, tensors, MOST);
    CHECK(count > 0 && count <= MOST);
    for (i = 0; i < count; i++) {
        double *values = tensor_values(tensors[i]);
        for (k = 0; k < numel_of(tensors[i]); k++)
            values[k] = (i % 2 ? 0.3 : 0.2) * noise((uint64_t)(100 * rank + i), k);
        CHECK_OK(ignis_array_from_host(ignis_tensor_data(tensors[i]), values, IGNIS_F64, numel_of(tensors[i])));
        free(values);
    }
    return lora;
}

static void ids_fill(const ck_model *m, int32_t *ids, int count, int seed)
{
    int i;
    for (i = 0; i < count; i++)
        ids[i] = (int32_t)((i + seed) * 31 + (i + seed) * (i + seed) / 7) % m->vocab;
}

/*  Computes the logits after `count` tokens, and draws some of the likeliest. */
static void text_of(ignis_sequence sequence, const ck_model *m, const int32_t *ids, int count, float *logits,
                    int32_t *next)
{
    int i;
    CHECK_OK(ignis_sequence_feed(sequence, ids, count));
    CHECK_OK(ignis_sequence_logits(sequence, logits, m->vocab));
    for (i = 0; i < DRAWN; i++)
        CHECK((next[i] = ignis_sequence_next(sequence, NULL)) >= 0);
}

static void check_logits(int line, const float *a, const double *b, int count, double tolerance)
{
    double most = 0, worst = 0;
    int i;
    for (i = 0; i < count; i++) {
        worst = !(fabs((double)a[i] - b[i]) <= worst) ? fabs((double)a[i] - b[i]) : worst;
        most = fabs(b[i]) > most ? fabs(b[i]) : most;
    }
    if (!(worst <= tolerance * most)) {
        char text[96];
        snprintf(text, sizeof text, "logits are off by %g of their largest, %g; %g is allowed", worst / most, most,
                 tolerance);
        test__fail(__FILE__, line, text);
    }
}

/*  The logits after the last token by ignis_model_forward, with the adapters that are set. */
static void forward_of(ignis_model model, const ck_model *m, const int32_t *ids, int count, double *logits)
{
    ignis_tensor_desc desc = tensor_desc(IGNIS_I32, false);
    ignis_scope scope = ignis_scope_begin();
    double *values = tensor_values(ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(count), &desc)));
    memcpy(logits, values + (int64_t)(count - 1) * m->vocab, (size_t)m->vocab * sizeof *logits);
    free(values);
    CHECK_OK(ignis_scope_end(scope));
}

/*  A step has 22 rows, more than steps of the model's few sequences have; a chunk has 80. In f32 the tolerance is that
    of sums in another order; bf16 and f16 round each result of some ten products. */
TEST(logits_are_those_of_merged_weights)
{
    static const struct {
        ck_model *m;
        ignis_dtype dtype, adapters;
        ignis_weights weights;
        int rank;
        double tolerance;
        int lengths; /* of prompts: a step alone, or a chunk, too */
    } cases[] = {
        {&gpt2, IGNIS_F32, IGNIS_F32, IGNIS_WEIGHTS_NUMBERS, 3, 1e-5, 2},
        {&llama, IGNIS_F32, IGNIS_F64, IGNIS_WEIGHTS_NUMBERS, 8, 1e-5, 2},
        /* the forward rounds to the adapters' bf16 */
        {&qwen3, IGNIS_F32, IGNIS_BF16, IGNIS_WEIGHTS_NUMBERS, 64, 4e-2, 1},
        {&qwen3, IGNIS_F64, IGNIS_F64, IGNIS_WEIGHTS_NUMBERS, 1, 1e-6, 1}, /* logits are f32 */
        {&llama, IGNIS_BF16, IGNIS_F32, IGNIS_WEIGHTS_NUMBERS, 4, 4e-2, 2},
        {&gpt2, IGNIS_F16, IGNIS_F16, IGNIS_WEIGHTS_NUMBERS, 16, 6e-3, 1},
        {&llama, IGNIS_F32, IGNIS_F32, IGNIS_WEIGHTS_Q4_0, 8, 1e-5, 1},
        {&qwen3, IGNIS_BF16, IGNIS_F32, IGNIS_WEIGHTS_Q8_0, 8, 4e-2, 1},
    };
    static const int counts[] = {23, PROMPT};
    int k, c, i;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(cases); k++) {
        ck_model *m = cases[k].m;
        ignis_model model = open_as(m, cases[k].dtype, cases[k].weights, 2);
        ignis_lora lora = lora_of(model, cases[k].rank, cases[k].adapters, all_linear, 1);
        float logits[2][64];
        double expected[64];
        int32_t ids[PROMPT], next[2][DRAWN], other[DRAWN];
        ids_fill(m, ids, PROMPT, k);
        for (c = 0; c < cases[k].lengths; c++) {
            ignis_sequence sequence = ignis_sequence_begin(model);
            CHECK_OK(ignis_sequence_set_lora(sequence, lora));
            text_of(sequence, m, ids, counts[c], logits[c], next[c]);
            CHECK_OK(ignis_sequence_free(sequence));
            forward_of(model, m, ids, counts[c], expected);
            for (i = 0; i < m->vocab && fabs((double)logits[c][i] - expected[i]) < 0.05;)
                i++;
            CHECK(i < m->vocab); /* the adapters change something */
            CHECK_OK(ignis_model_set_lora(model, lora));
            forward_of(model, m, ids, counts[c], expected);
            CHECK_OK(ignis_model_set_lora(model, (ignis_lora){0}));
            check_logits(__LINE__, logits[c], expected, m->vocab, cases[k].tolerance);
        }
        if (cases[k].weights == IGNIS_WEIGHTS_NUMBERS)
            CHECK_OK(ignis_lora_merge(lora));
        for (c = 0; c < cases[k].lengths && cases[k].weights == IGNIS_WEIGHTS_NUMBERS; c++) {
            ignis_sequence sequence = ignis_sequence_begin(model);
            float merged[64];
            text_of(sequence, m, ids, counts[c], merged, other);
            for (i = 0; i < m->vocab; i++)
                expected[i] = (double)merged[i];
            check_logits(__LINE__, logits[c], expected, m->vocab,
                         cases[k].adapters == IGNIS_BF16 ? 1e-5 : cases[k].tolerance);
            if (cases[k].dtype == IGNIS_F32)
                CHECK(memcmp(other, next[c], sizeof other) == 0);
            CHECK_OK(ignis_sequence_free(sequence));
        }
        CHECK_OK(ignis_lora_free(lora));
        CHECK_OK(ignis_model_free(model));
        ck_free(m);
    }
}

/*  Texts of two adapters and of none have the same bits alone and in a batch; rows of eight sequences share the reads
    of one. The last steps are graphs. */
TEST(texts_are_the_same_in_any_batch)
{
    enum { COUNT = 20, STEPS = 2 };
    static const struct {
        ck_model *m;
        ignis_dtype dtype;
        ignis_weights weights;
    } cases[] = {{&llama, IGNIS_BF16, IGNIS_WEIGHTS_NUMBERS},
                 {&gpt2, IGNIS_F32, IGNIS_WEIGHTS_NUMBERS},
                 {&qwen3, IGNIS_F16, IGNIS_WEIGHTS_Q4_0}};
    int k, i, step;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(cases); k++) {
        ck_model small = *cases[k].m, *m = &small;
        ignis_model model = (small.layers = 1, open_as(m, cases[k].dtype, cases[k].weights, 32));
        ignis_sequence sequences[COUNT], sequence;
        ignis_sampling_desc sampling[COUNT];
        ignis_lora lora[3] = {{0}, lora_of(model, 3, IGNIS_F32, all_linear, 1), {0}};
        int32_t ids[PROMPT], next[STEPS][COUNT], id;
        float first[64], logits[64], in_batch[64];
        lora[2] = lora_of(model, 16, IGNIS_BF16, k == 1 ? some_gpt2 : some_linear, k == 1 ? 1 : 2);
        memset(sampling, 0, sizeof sampling);
        sequence = ignis_sequence_begin(model); /* before the model has met adapters */
        ids_fill(m, ids, 5, 0);
        CHECK_OK(ignis_sequence_feed(sequence, ids, 5));
        CHECK_OK(ignis_sequence_logits(sequence, first, m->vocab));
        CHECK_OK(ignis_sequence_free(sequence));
        for (i = 0; i < COUNT; i++) {
            sampling[i].temperature = i % 2;
            sampling[i].seed = (uint64_t)i;
            sequences[i] = ignis_sequence_begin(model);
            CHECK_OK(ignis_sequence_set_lora(sequences[i], lora[i % 7 == 0 ? 0 : i % 5 == 0 ? 2 : 1]));
            ids_fill(m, ids, PROMPT, i);
            CHECK_OK(ignis_sequence_feed(sequences[i], ids, i == 4 ? 70 : 1 + i % 5));
        }
        for (step = 0; step < STEPS; step++)
            CHECK_OK(ignis_sequence_next_all(sequences, COUNT, sampling, next[step]));
        for (i = 0; i < COUNT; i++) {
            if (i > 5 && i < COUNT - 4) {
                CHECK_OK(ignis_sequence_free(sequences[i]));
                continue;
            }
            CHECK_OK(ignis_sequence_logits(sequences[i], in_batch, m->vocab));
            sequence = ignis_sequence_begin(model);
            CHECK_OK(ignis_sequence_set_lora(sequence, lora[i % 7 == 0 ? 0 : i % 5 == 0 ? 2 : 1]));
            ids_fill(m, ids, PROMPT, i);
            CHECK_OK(ignis_sequence_feed(sequence, ids, i == 4 ? 70 : 1 + i % 5));
            for (step = 0; step < STEPS; step++) {
                id = ignis_sequence_next(sequence, &sampling[i]);
                CHECK_INT(id, next[step][i]);
            }
            CHECK_OK(ignis_sequence_logits(sequence, logits, m->vocab));
            CHECK(memcmp(logits, in_batch, sizeof *logits * (size_t)m->vocab) == 0);
            CHECK_OK(ignis_sequence_free(sequence));
            CHECK_OK(ignis_sequence_free(sequences[i]));
        }
        sequence = ignis_sequence_begin(model);
        ids_fill(m, ids, 5, 0);
        CHECK_OK(ignis_sequence_feed(sequence, ids, 5));
        CHECK_OK(ignis_sequence_logits(sequence, logits, m->vocab));
        CHECK(memcmp(logits, first, sizeof *logits * (size_t)m->vocab) == 0);
        CHECK_OK(ignis_sequence_free(sequence));
        for (i = 1; i < 3; i++)
            CHECK_OK(ignis_lora_free(lora[i]));
        CHECK_OK(ignis_model_free(model));
        ck_free(m);
    }
}

static ignis_lora_info lora_info(ignis_lora lora)
{
    ignis_lora_info info;
    memset(&info, 0, sizeof info);
    CHECK_OK(ignis_lora_query(lora, &info));
    return info;
}

/*  Sequences begin with the model's adapters, forks have those of their sequence, and all take the values of A and B
    at each step. */
TEST(sequences_keep_their_adapters)
{
    int32_t ids[8], next[2][DRAWN];
    float logits[3][64];
    ignis_model model, second;
    ignis_sequence sequence, fork;
    ignis_lora lora, other;
    ignis_generate_desc few;
    ignis_tensor tensors[MOST];
    SETUP(NULL);
    memset(&few, 0, sizeof few);
    few.max_tokens = 4, few.end_count = -1;
    model = open_as(&llama, IGNIS_F32, IGNIS_WEIGHTS_Q8_0, 4);
    lora = lora_of(model, 4, IGNIS_F32, all_linear, 1);
    ids_fill(&llama, ids, 8, 3);
    CHECK_OK(ignis_model_set_lora(model, lora));
    sequence = ignis_sequence_begin(model);
    CHECK_OK(ignis_model_set_lora(model, (ignis_lora){0}));
    CHECK_INT(lora_info(lora).sequences, 1);
    CHECK_OK(ignis_sequence_feed(sequence, ids, 8));
    fork = ignis_sequence_fork(sequence);
    CHECK_INT(lora_info(lora).sequences, 2);
    CHECK_OK(ignis_sequence_logits(sequence, logits[0], llama.vocab));
    CHECK_OK(ignis_sequence_logits(fork, logits[1], llama.vocab));
    CHECK(memcmp(logits[0], logits[1], sizeof(float) * (size_t)llama.vocab) == 0);
    CHECK_OK(ignis_generate(fork, &few)); /* with tokens ahead */
    CHECK_OK(ignis_sequence_truncate(fork, 8));
    CHECK_OK(ignis_generate(fork, &few));
    CHECK_INT(ignis_sequence_length(fork), 12);
    CHECK_OK(ignis_sequence_free(fork));
    CHECK_INT(lora_info(lora).sequences, 1);
    text_of(sequence, &llama, ids, 0, logits[0], next[0]);
    CHECK_OK(ignis_sequence_truncate(sequence, 8));
    CHECK_OK(ignis_sequence_set_lora(sequence, lora)); /* the same as before */
    text_of(sequence, &llama, ids, 0, logits[1], next[1]);
    CHECK(memcmp(logits[0], logits[1], sizeof(float) * (size_t)llama.vocab) == 0);
    CHECK(memcmp(next[0], next[1], sizeof next[0]) == 0);

    other = lora_of(model, 2, IGNIS_F32, all_linear, 1);
    CHECK_STATUS(ignis_sequence_set_lora(sequence, other), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LORA_STATE);
    CHECK_MESSAGE_HAS("the sequence has 10 tokens, which are computed with its adapters; ignis_sequence_truncate to 0 "
                      "tokens comes before other adapters");
    CHECK_STATUS(ignis_sequence_set_lora(sequence, (ignis_lora){0}), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LORA_STATE);
    CHECK_STATUS(ignis_lora_free(lora), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LORA_STATE);
    CHECK_MESSAGE_HAS("1 sequences are computed with the adapters; free them first, or set other adapters on them");
    CHECK_OK(ignis_sequence_truncate(sequence, 0));
    CHECK_OK(ignis_sequence_set_lora(sequence, other));
    CHECK_INT(lora_info(lora).sequences, 0);
    CHECK_INT(lora_info(other).sequences, 1);
    CHECK_OK(ignis_lora_free(lora));
    CHECK_OK(ignis_sequence_feed(sequence, ids, 8));
    CHECK_OK(ignis_sequence_logits(sequence, logits[0], llama.vocab));
    CHECK(memcmp(logits[0], logits[1], sizeof(float) * (size_t)llama.vocab) != 0);
    CHECK(ignis_lora_weights(other, tensors, MOST) == 28); /* B of the last product, and all of A without it */
    CHECK_OK(ignis_array_scale(ignis_tensor_data(tensors[27]), ignis_tensor_data(tensors[27]), 0.5));
    CHECK_OK(ignis_sequence_logits(sequence, logits[1], llama.vocab));
    CHECK(memcmp(logits[0], logits[1], sizeof(float) * (size_t)llama.vocab) != 0);
    CHECK_OK(ignis_sequence_truncate(sequence, 0));
    CHECK_OK(ignis_sequence_set_lora(sequence, (ignis_lora){0}));
    CHECK_OK(ignis_sequence_feed(sequence, ids, 8));
    CHECK_OK(ignis_sequence_logits(sequence, logits[2], llama.vocab));
    CHECK(memcmp(logits[1], logits[2], sizeof(float) * (size_t)llama.vocab) != 0);
    CHECK_OK(ignis_lora_free(other));
    CHECK_OK(ignis_sequence_free(sequence));

    second = open_as(&llama, IGNIS_F32, IGNIS_WEIGHTS_NUMBERS, 4);
    lora = lora_of(second, 4, IGNIS_F32, all_linear, 1);
    sequence = ignis_sequence_begin(model);
    CHECK_STATUS(ignis_sequence_set_lora(sequence, lora), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LORA_STATE);
    CHECK_MESSAGE_HAS("ignis_sequence_set_lora: the adapters were made for another model");
    CHECK_OK(ignis_sequence_free(sequence));
    CHECK_STATUS(ignis_sequence_set_lora(sequence, lora), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    sequence = ignis_sequence_begin(second);
    CHECK_OK(ignis_sequence_set_lora(sequence, lora));
    CHECK_STATUS(ignis_sequence_save(sequence, test_path("s")), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LORA_STATE);
    CHECK_MESSAGE_HAS("a file has sequences without adapters");
    CHECK_STATUS(ignis_lora_merge(lora), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LORA_STATE);
    CHECK_MESSAGE_HAS("sequences are computed with the adapters; free them first");
    CHECK_OK(ignis_sequence_set_lora(sequence, (ignis_lora){0}));
    CHECK_OK(ignis_lora_merge(lora));
    CHECK_STATUS(ignis_sequence_set_lora(sequence, lora), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LORA_STATE);
    CHECK_MESSAGE_HAS("the adapters are part of the model's weights, into which ignis_lora_merge has added them");
    CHECK_OK(ignis_lora_free(lora));
    CHECK_STATUS(ignis_sequence_set_lora(sequence, lora), IGNIS_ERROR_FREED, IGNIS_DIAG_LORA_FREED);
    lora = lora_of(second, 513, IGNIS_F32, all_linear, 1);
    CHECK_STATUS(ignis_sequence_set_lora(sequence, lora), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("the adapters have rank 513; sequences support ranks of up to 512");
    CHECK_INT(lora_info(lora).sequences, 0);
    CHECK_OK(ignis_model_set_lora(second, lora));
    CHECK_FAILS(ignis_sequence_begin(second).id ? 0 : -1, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_OK(ignis_lora_free(lora));
    lora = lora_of(second, 512, IGNIS_BF16, all_linear, 1);
    CHECK_OK(ignis_sequence_set_lora(sequence, lora));
    text_of(sequence, &llama, ids, 8, logits[0], next[0]);
    CHECK_OK(ignis_model_free(second));
    CHECK_OK(ignis_sequence_free(sequence));
    CHECK_OK(ignis_lora_free(lora));
    CHECK_OK(ignis_model_free(model));
    CHECK_INT(memory().live_bytes, 0);
    ck_free(&llama);
}

/*  What fails leaves the sequence without the adapters, or with its tokens. */
TEST(what_fails_leaves_nothing_behind)
{
    static host_counter counter;
    ignis_desc setup = test_counting_desc(&counter);
    static const char *const prefixes[] = {NULL, "cuLaunchKernel", "cuMemAlloc"};
    int way, at, failures[3] = {0, 0, 0};
    int32_t ids[8], next = 0;
    float expected[64], logits[64];
    ignis_model model;
    ignis_sequence sequence;
    ignis_lora lora;
    SETUP(&setup);
    ids_fill(&llama, ids, 8, 1);
    model = open_as(&llama, IGNIS_F32, IGNIS_WEIGHTS_NUMBERS, 4);
    lora = lora_of(model, 4, IGNIS_F32, all_linear, 1);
    sequence = ignis_sequence_begin(model);
    CHECK_OK(ignis_sequence_set_lora(sequence, lora));
    CHECK_OK(ignis_sequence_feed(sequence, ids, 8));
    CHECK_OK(ignis_sequence_logits(sequence, expected, llama.vocab));
    CHECK_OK(ignis_sequence_free(sequence));
    CHECK_OK(ignis_lora_free(lora));
    for (way = 0; way < 3; way++) {
        for (at = 1; at < 400; at += at < 12 ? 1 : 13) {
            bool hit, ok;
            sequence = ignis_sequence_begin(model);
            lora = lora_of(model, 4, IGNIS_F32, all_linear, 1);
            fault_plan(prefixes[way], at, 2, &counter, false);
            ok = ignis_sequence_set_lora(sequence, lora) == IGNIS_OK;
            CHECK_INT(lora_info(lora).sequences, ok);
            ok = ok && ignis_sequence_feed(sequence, ids, 8) == IGNIS_OK;
            ok = ok && (next = ignis_sequence_next(sequence, NULL)) >= 0;
            hit = fault_over(&counter);
            failures[way] += !ok;
            CHECK(ok || hit);
            ignis_status_clear();
            CHECK_OK(ignis_sequence_truncate(sequence, 0));
            CHECK_OK(ignis_sequence_set_lora(sequence, lora));
            CHECK_OK(ignis_sequence_feed(sequence, ids, 8));
            CHECK_OK(ignis_sequence_logits(sequence, logits, llama.vocab));
            CHECK(memcmp(logits, expected, sizeof(float) * (size_t)llama.vocab) == 0);
            CHECK_OK(ignis_sequence_free(sequence));
            CHECK_OK(ignis_lora_free(lora));
            if (!hit)
                break;
        }
        CHECK(at < 400);
    }
    CHECK(failures[0] > 3 && failures[1] > 10);
    CHECK_OK(ignis_model_free(model));
    CHECK_INT(memory().live_bytes, 0);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(counter.blocks, 0);
    ck_free(&llama);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
