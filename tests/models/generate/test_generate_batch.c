// SPDX-License-Identifier: MIT
/*  test_generate_batch.c - batches of up to 512 sequences: each text is the one that it has alone, with windows, forks,
    mixtures of experts and quantised weights; memory that does not suffice; how many graphs are kept */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "byte_tokenizer.h"

#include "generate.h"

enum { MOST = 512, CONTEXT = 80 };

static const test_shape tiny = {1, 2, 1, 16, 32, 24, 70, false, true, false, IGNIS_BF16};

/*  Makes text i: one of eight is a fork of the one before, and one of eight has three tokens. */
static ignis_sequence text_begin(const test_model *t, int i, ignis_sequence before)
{
    ignis_sequence s = i % 8 == 3 ? ignis_sequence_fork(before) : ignis_sequence_begin(t->handle);
    const int length = i % 8 == 5 ? 3 : 1;
    int32_t ids[3];
    int j;
    for (j = 0; j < length; j++)
        ids[j] = id_at(31 * i + j, t->shape.vocab);
    CHECK_OK(ignis_sequence_feed(s, ids, length));
    return s;
}

/*  Computes the logits of `count` texts in one step, without sampling, which takes most of the time here. Some of them
    have the same bits alone. */
static void check_rows(const test_model *t, int count)
{
    static ignis_sequence s[MOST];
    static ignis__sequence *held[MOST];
    static float logits[MOST * 128], alone[128];
    ignis__engine *engine;
    ignis_array rows;
    int i, wrong = 0, stride;
    for (i = 0; i < count; i++) {
        s[i] = text_begin(t, i, i ? s[i - 1] : s[0]);
        held[i] = ignis__sequence_hold("test", s[i]);
    }
    engine = (ignis__engine *)t->model->engine;
    CHECK(engine->step_rows >= count);
    for (i = 0; i < (count < 100 ? 2 : 1); i++) { /* by launches, then as a graph */
        ignis__engine_lock("test", engine);
        CHECK(ignis__engine_decode("test", held, count, NULL, false, NULL, NULL));
        ignis__mutex_unlock(&engine->lock);
    }
    stride = (int)engine->logits->shape.dim[1];
    rows.id = engine->logits->slot.handle;
    CHECK(stride <= 128);
    CHECK_OK(ignis_array_to_host(rows, logits, IGNIS_F32, engine->logits->numel));
    for (i = 0; i < count; i += i < 3 || i + 1 == count ? 1 : i + 11 < count ? 11 : count - 1 - i) {
        CHECK_OK(ignis_sequence_logits(s[i], alone, t->shape.vocab));
        wrong += memcmp(alone, logits + i * stride, sizeof *alone * (size_t)t->shape.vocab) != 0;
    }
    CHECK_INT(wrong, 0);
    CHECK(memcmp(logits, logits + stride, sizeof *logits * (size_t)t->shape.vocab) != 0);
    for (i = 0; i < count; i++) {
        ignis__sequence_drop("test", held[i]);
        CHECK_OK(ignis_sequence_free(s[i]));
    }
}

TEST(rows_of_a_large_step_are_those_of_a_small_one)
{
    static const int counts[] = {65, 128, 200, 512};
    test_model t;
    int i;
    SETUP(NULL);
    test_model_begin(&t, &tiny, CONTEXT, MOST);
    for (i = 0; i < COUNT_OF(counts); i++)
        check_rows(&t, counts[i]);
    test_model_end(&t);
}

/*  Texts of 66 sequences, one of them with a prompt that was a chunk: sampled in batches and alone. */
TEST(texts_of_a_large_batch_are_those_alone)
{
    enum { COUNT = 66, STEPS = 2 };
    ignis_sequence s[COUNT];
    ignis_sampling_desc sampling[COUNT];
    int32_t ids[70], drawn[STEPS][COUNT];
    test_model t;
    int i, step;
    SETUP(NULL);
    CHECK_INT(ignis__step_width(66), 128);
    memset(sampling, 0, sizeof sampling);
    test_model_begin(&t, &tiny, CONTEXT, 65);
    for (i = 0; i < COUNT; i++) {
        s[i] = text_begin(&t, i, i ? s[i - 1] : s[0]);
        sampling[i].temperature = i % 3 ? 0.9 : 0;
        sampling[i].top_k = i % 5 == 4 ? 20 : 0;
        sampling[i].seed = (uint64_t)i;
    }
    for (i = 0; i < 66; i++)
        ids[i] = id_at(i, tiny.vocab);
    CHECK_OK(ignis_sequence_set(s[7], ids, 66));
    for (step = 0; step < STEPS; step++)
        CHECK_OK(ignis_sequence_next_all(s, COUNT, sampling, drawn[step]));
    for (i = 0; i < COUNT; i += i < 3 ? 1 : 9) {
        CHECK_OK(ignis_sequence_truncate(s[i], ignis_sequence_length(s[i]) - STEPS));
        for (step = 0; step < STEPS; step++)
            CHECK_INT(ignis_sequence_next(s[i], &sampling[i]), drawn[step][i]);
    }
    for (i = 0; i < COUNT; i++)
        CHECK_OK(ignis_sequence_free(s[i]));
    test_model_end(&t);
}

static int graphs, graphs_made;

static int count_graphs(const char *name, int result)
{
    graphs_made += strncmp(name, "cuGraphInstantiate", 18) == 0 && result == 0;
    graphs += strncmp(name, "cuGraphInstantiate", 18) == 0 && result == 0;
    graphs -= strcmp(name, "cuGraphExecDestroy") == 0 && result == 0;
    return result;
}

/*  Samples a token of the first `count` texts twice, by launches and then as a graph, and takes them back. */
static void sample_twice(ignis_sequence *s, int count, const ignis_sampling_desc *sampling, int32_t *ids)
{
    int32_t again[8];
    int i, step;
    for (step = 0; step < 2; step++) {
        CHECK_OK(ignis_sequence_next_all(s, count, sampling, step ? again : ids));
        for (i = 0; i < count; i++)
            CHECK_OK(ignis_sequence_truncate(s[i], ignis_sequence_length(s[i]) - 1));
    }
    CHECK(memcmp(ids, again, sizeof *ids * (size_t)count) == 0);
}

/*  An engine keeps a limited number of graphs, and captures a step again whose graph had to make room. */
TEST(graphs_of_steps_have_a_limit)
{
    enum { LIMIT = 3, KINDS = 2, WIDTHS = 4, TURNS = 2 };
    ignis_sequence s[8];
    ignis_sampling_desc sampling[8];
    int32_t drawn[TURNS][KINDS][WIDTHS][8];
    test_model t;
    int i, kind, turn, width;
    SETUP(NULL);
    memset(sampling, 0, sizeof sampling);
    memset(drawn, 0, sizeof drawn);
    graphs = graphs_made = 0;
    call_hook.end = count_graphs;
    test_model_begin(&t, &tiny, CONTEXT, 8);
    for (i = 0; i < 8; i++)
        s[i] = text_begin(&t, i, i ? s[i - 1] : s[0]);
    ((ignis__engine *)t.model->engine)->max_graphs = LIMIT;
    for (turn = 0; turn < TURNS; turn++) {
        for (kind = 0; kind < KINDS; kind++)
            for (width = 0; width < WIDTHS; width++) {
                for (i = 0; i < 8; i++) {
                    sampling[i].temperature = 1;
                    sampling[i].seed = (uint64_t)i;
                    sampling[i].top_k = kind ? 9 : 0;
                }
                sample_twice(s, 1 << width, sampling, drawn[turn][kind][width]);
                CHECK_INT(graphs, ((ignis__engine *)t.model->engine)->graph_count);
                CHECK(graphs <= LIMIT);
            }
        CHECK_INT(graphs, LIMIT);
        CHECK(memcmp(drawn[0], drawn[turn], sizeof drawn[0]) == 0);
    }
    CHECK(graphs_made > KINDS * WIDTHS + LIMIT); /* also again those that had made room */
    for (i = 0; i < 8; i++)
        CHECK_OK(ignis_sequence_free(s[i]));
    test_model_end(&t);
    call_hook.end = NULL;
    CHECK_INT(graphs, 0);
}

TEST(batches_of_other_models)
{
    static const test_shape cases[] = {
        {1, 2, 2, 8, 24, 20, 60, true, true, false, IGNIS_F32},    /* GPT-2, on plain cores */
        {1, 2, 1, 8, 40, 24, 60, false, false, true, IGNIS_F16},   /* keys and values by a kernel of their own */
        {1, 2, 1, 16, 256, 32, 60, false, true, false, IGNIS_BF16} /* quantised */
    };
    test_model t;
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        weights_type = i == 2 ? IGNIS__GGUF_Q4_0 : 0; /* whose rows need 32 elements */
        other_type = i == 2 ? IGNIS__GGUF_Q8_0 : 0;
        test_model_begin(&t, &cases[i], CONTEXT, 80);
        weights_type = other_type = 0;
        check_rows(&t, 67);
        test_model_end(&t);
    }
}

/*  F8: one row, up to 8, 16, 32 and 64, and parts of more; sums of its products are rounded, in one order. */
TEST(batches_with_weights_of_f8)
{
    static const test_shape shape = {1, 2, 1, 64, 256, 128, 70, false, true, false, IGNIS_BF16};
    static const int counts[] = {2, 3, 8, 17, 64, 65, 130};
    test_model t;
    int i;
    SETUP(NULL);
    weights_type = other_type = IGNIS__GGUF_F8;
    test_model_begin(&t, &shape, CONTEXT, 130);
    weights_type = other_type = 0;
    for (i = 0; i < COUNT_OF(counts); i++)
        check_rows(&t, counts[i]);
    test_model_end(&t);
}

/*  Makes sequences round the activations of a model's layers to e4m3, as ignis_model_open does. */
static void round_activations(const test_model *t)
{
    int i, j;
    t->model->f8_activations = true;
    for (i = 0; i < t->shape.layers; i++) {
        const ignis_tensor weights[] = {t->model->layer[i].qkv, t->model->layer[i].o, t->model->layer[i].up,
                                        t->model->layer[i].down};
        for (j = 0; j < COUNT_OF(weights); j++) {
            ignis__array *array = ignis__borrow_array("test", weights[j]);
            ignis__blocks *blocks = &array->blocks;
            if (blocks->count == 2 &&
                blocks->part[0].rows % 8 == 0) { /* both are F8: one part, as opened models have */
                blocks->part[0].rows += blocks->part[1].rows;
                blocks->count = 1;
            }
            CHECK_INT(blocks->count, 1);
            blocks->rounds_rows = true;
            ignis__array_drop("test", array);
        }
    }
}

/*  F8 with activations of e4m3: norms before products, gates, and keys and values from the product itself, or by a
    kernel of their own. */
TEST(batches_with_activations_of_e4m3)
{
    static const test_shape cases[] = {{1, 2, 1, 64, 256, 128, 70, false, true, false, IGNIS_BF16},
                                       {1, 2, 2, 64, 128, 384, 70, false, false, true, IGNIS_F16}};
    static const int counts[] = {3, 17, 130, 65};
    ignis_device_info info;
    test_model t;
    int i, k;
    SETUP(NULL);
    CHECK_OK(ignis_device_query(0, &info));
    if (info.compute_major != 9)
        SKIP("the products need sm_90a");
    for (k = 0; k < COUNT_OF(cases); k++) {
        weights_type = other_type = IGNIS__GGUF_F8;
        test_model_begin(&t, &cases[k], CONTEXT, 130);
        weights_type = other_type = 0;
        round_activations(&t);
        for (i = 2 * k; i < 2 * k + 2; i++)
            check_rows(&t, counts[i]);
        test_model_end(&t);
    }
}

/*  Layers that are wide enough for wgmma, whose inner elements go from product to product in the order of operands. */
TEST(batches_of_wide_layers)
{
    static const test_shape shape = {1, 8, 2, 64, 512, 512, 70, false, true, false, IGNIS_BF16};
    test_model t;
    SETUP(NULL);
    test_model_begin(&t, &shape, CONTEXT, 66);
    check_rows(&t, 66);
    test_model_end(&t);
}

TEST(batches_with_windows)
{
    static const test_shape shape = {2, 2, 1, 16, 32, 24, 70, false, true, false, IGNIS_BF16};
    test_model t;
    SETUP(NULL);
    test_model_begin(&t, &shape, CONTEXT, 80);
    t.model->layer[0].window = 2;
    check_rows(&t, 66);
    test_model_end(&t);
}

/*  A mixture of experts beside an MLP for all tokens. */
TEST(batches_with_experts)
{
    enum { EXPERTS = 5, INNER = 16 };
    test_model t;
    ignis_tensor made[4];
    double *values[4];
    int i;
    SETUP(NULL);
    test_model_begin(&t, &tiny, CONTEXT, 80);
    t.model->experts = EXPERTS;
    t.model->chosen = 2;
    t.model->expert_inner = INNER;
    t.model->layer[0].router = made[0] = weight(&tiny, IGNIS_SHAPE(EXPERTS, tiny.hidden), 1, 0, &values[0]);
    t.model->layer[0].gate_experts = made[1] = matrix(&tiny, EXPERTS * INNER, tiny.hidden, 0, 0.3, &values[1]);
    t.model->layer[0].up_experts = made[2] = matrix(&tiny, EXPERTS * INNER, tiny.hidden, 0, 0.3, &values[2]);
    t.model->layer[0].down_experts = made[3] = matrix(&tiny, EXPERTS * tiny.hidden, INNER, 0, 0.3, &values[3]);
    check_rows(&t, 66);
    for (i = 0; i < 4; i++) {
        CHECK_OK(ignis_tensor_release(made[i]));
        free(values[i]);
    }
    test_model_end(&t);
}

/*  Buffers of a step grow with the sequences: what does not fit is refused by name, and nothing stays. */
TEST(a_step_beyond_the_device)
{
    test_shape shape = tiny;
    int64_t before;
    ignis_desc desc;
    test_model t;
    memset(&desc, 0, sizeof desc);
    desc.memory_limit = 40 << 20;
    SETUP(&desc);
    shape.vocab = 15000;
    test_model_begin(&t, &shape, 16, MOST); /* 512 rows of logits take 31 MB, and those of scores as much */
    before = memory().live_bytes;
    CHECK_FAILS(ignis_sequence_begin(t.handle), IGNIS_ERROR_MEMORY, IGNIS_DIAG_DEVICE_MEMORY);
    CHECK_MESSAGE_HAS("29.3 MiB were requested");
    CHECK_INT(memory().live_bytes, before);
    t.model->sequences = 8;
    CHECK_OK(ignis_sequence_free(ignis_sequence_begin(t.handle)));
    test_model_end(&t);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
