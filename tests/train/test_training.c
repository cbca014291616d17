// SPDX-License-Identifier: MIT
/*  test_training.c - whole training steps of a small transformer: memory that runs out anywhere, calls that fail,
    checkpoints, equal bits */
#include "fault.h"
#include "tensor.h"
#include <math.h>

enum { OUT_OF_MEMORY = 2, UNKNOWN = 999 }; /* CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN */
enum { BATCH = 2, SEQ = 6, WIDTH = 16, HEADS = 2, VOCAB = 11, PARAMETERS = 15 };

/*  A block with something of everything. */
typedef struct model {
    ignis_tensor tokens, targets, table, positions, norm1_weight, norm1_bias, qkv_weight, qkv_bias, out_weight,
        out_bias, norm2_weight, up_weight, gate_weight, down_weight, norm3_weight, norm3_bias, head_weight;
    ignis_tensor *all[PARAMETERS];
    int count;
    ignis_optimizer optimizer;
    ignis_dtype dtype;
    double dropout;
    bool checkpoint, opened;
} model;

static void model_add(model *m, ignis_tensor *slot, ignis_shape shape, double base)
{
    double values[VOCAB * WIDTH + 3 * WIDTH * WIDTH];
    int64_t numel = shape_numel(shape), i;
    for (i = 0; i < numel; i++)
        values[i] = base + 0.3 * noise((uint64_t)m->count + 10, i);
    *slot = tensor_of(values, shape, m->dtype, true);
    m->opened = m->opened && slot->id && ignis_optimizer_add(m->optimizer, *slot, shape.ndim > 1) == IGNIS_OK;
    m->all[m->count++] = slot;
}

static bool model_open(model *m, ignis_dtype dtype)
{
    static const double tokens[BATCH * SEQ] = {1, 5, 3, 3, 0, 10, 2, 7, 7, 4, 9, 6};
    ignis_adamw_desc desc;
    memset(m, 0, sizeof *m);
    memset(&desc, 0, sizeof desc);
    desc.lr = 0.01;
    desc.weight_decay = 0.1;
    m->dtype = dtype;
    m->tokens = tensor_of(tokens, IGNIS_SHAPE(BATCH, SEQ), IGNIS_I32, false);
    m->targets = tensor_of(tokens, IGNIS_SHAPE(BATCH, SEQ), IGNIS_I64, false);
    m->optimizer = ignis_adamw(&desc);
    m->opened = m->tokens.id && m->targets.id && m->optimizer.id;
    model_add(m, &m->table, IGNIS_SHAPE(VOCAB, WIDTH), 0);
    model_add(m, &m->positions, IGNIS_SHAPE(SEQ, WIDTH), 0);
    model_add(m, &m->norm1_weight, IGNIS_SHAPE(WIDTH), 1);
    model_add(m, &m->norm1_bias, IGNIS_SHAPE(WIDTH), 0);
    model_add(m, &m->qkv_weight, IGNIS_SHAPE(3 * WIDTH, WIDTH), 0);
    model_add(m, &m->qkv_bias, IGNIS_SHAPE(3 * WIDTH), 0);
    model_add(m, &m->out_weight, IGNIS_SHAPE(WIDTH, WIDTH), 0);
    model_add(m, &m->out_bias, IGNIS_SHAPE(WIDTH), 0);
    model_add(m, &m->norm2_weight, IGNIS_SHAPE(WIDTH), 1);
    model_add(m, &m->up_weight, IGNIS_SHAPE(2 * WIDTH, WIDTH), 0);
    model_add(m, &m->gate_weight, IGNIS_SHAPE(2 * WIDTH, WIDTH), 0);
    model_add(m, &m->down_weight, IGNIS_SHAPE(2 * WIDTH, WIDTH), 0);
    model_add(m, &m->norm3_weight, IGNIS_SHAPE(WIDTH), 1);
    model_add(m, &m->norm3_bias, IGNIS_SHAPE(WIDTH), 0);
    model_add(m, &m->head_weight, IGNIS_SHAPE(VOCAB, WIDTH), 0);
    return m->opened;
}

static void model_close(model *m)
{
    int i;
    for (i = 0; i < m->count; i++)
        let_go(*m->all[i]);
    let_go(m->tokens);
    let_go(m->targets);
    CHECK_OK(ignis_optimizer_free(m->optimizer));
}

static ignis_tensor model_attention(const ignis_tensor *inputs, int count, void *user_data)
{
    const model *m = (const model *)user_data;
    ignis_tensor h;
    ignis_rope_desc rope;
    ignis_sdpa_desc attention;
    (void)count;
    memset(&rope, 0, sizeof rope);
    memset(&attention, 0, sizeof attention);
    attention.num_heads = HEADS;
    h = ignis_linear(ignis_layer_norm(inputs[0], m->norm1_weight, m->norm1_bias, 1e-5), m->qkv_weight, m->qkv_bias);
    h = ignis_sdpa_packed(h, &attention, &rope);
    h = ignis_linear(h, m->out_weight, m->out_bias);
    return ignis_add(inputs[0], m->dropout > 0 ? ignis_dropout(h, m->dropout) : h);
}

static ignis_tensor model_mlp(const ignis_tensor *inputs, int count, void *user_data)
{
    const model *m = (const model *)user_data;
    ignis_tensor h, none = {0}, parts[2];
    (void)count;
    h = ignis_rms_norm(inputs[0], m->norm2_weight, 1e-5);
    h = ignis_mul(ignis_silu(ignis_linear(h, m->gate_weight, none)), ignis_linear(h, m->up_weight, none));
    if (ignis_split(h, -1, 2, NULL, parts) != IGNIS_OK)
        memset(parts, 0, sizeof parts);
    h = ignis_concat(parts, 2, -1);
    return ignis_add(inputs[0], ignis_gelu(ignis_matmul(h, m->down_weight)));
}

/*  The loss, in a scope of the caller's. */
static ignis_tensor model_loss(model *m)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x, loss;
    x = ignis_add(ignis_embedding(m->table, m->tokens), m->positions);
    x = m->checkpoint ? ignis_checkpoint(model_attention, m, &x, 1, NULL) : model_attention(&x, 1, m);
    x = m->checkpoint ? ignis_checkpoint(model_mlp, m, &x, 1, NULL) : model_mlp(&x, 1, m);
    x = ignis_layer_norm(x, m->norm3_weight, m->norm3_bias, 1e-5);
    loss = ignis_cross_entropy(ignis_matmul_t(x, m->head_weight), m->targets, NULL);
    return scope.id ? ignis_scope_return(scope, loss) : loss;
}

typedef enum stage { FORWARD, BACKWARD, OPTIMIZER, DONE } stage;

/*  One step, and how far it came. The loss goes to *loss where it is not null; then the step waits. */
static stage model_step(model *m, double *loss)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor tensor;
    stage reached = FORWARD;
    if (!scope.id)
        return FORWARD;
    tensor = model_loss(m);
    if (tensor.id)
        reached = BACKWARD;
    if (tensor.id && ignis_backward(tensor, IGNIS_NO_ARRAY) == IGNIS_OK)
        reached = OPTIMIZER;
    if (reached == OPTIMIZER && ignis_clip_grad_norm(m->optimizer, 1.0) == IGNIS_OK &&
        ignis_optimizer_step(m->optimizer) == IGNIS_OK && ignis_optimizer_zero_grad(m->optimizer) == IGNIS_OK)
        reached = DONE;
    if (loss)
        *loss = ignis_item(tensor);
    ignis_scope_end(scope);
    return reached;
}

/*  A sum over all bits of all parameters. */
static uint64_t model_fingerprint(const model *m)
{
    uint64_t sum = 0;
    int i;
    for (i = 0; i < m->count; i++) {
        double *values = tensor_values(*m->all[i]);
        int64_t numel = numel_of(*m->all[i]), k;
        for (k = 0; k < numel; k++) {
            uint64_t bits;
            memcpy(&bits, &values[k], sizeof bits);
            sum = sum * 31 + bits;
        }
        free(values);
    }
    return sum;
}

/* --- it learns, and does so with equal bits ----------------------------------------------------------------------- */

TEST(every_dtype_learns)
{
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        double first = 0, last = 0;
        model m;
        REQUIRE(model_open(&m, float_dtypes[d]));
        for (i = 0; i < 20; i++)
            CHECK_INT(model_step(&m, i ? &last : &first), DONE);
        CHECK(first > 1.5 && first < 6);
        CHECK(last < 0.5 * first);
        model_close(&m);
        CHECK_INT(memory().live_blocks, 0);
    }
}

static uint64_t train(ignis_dtype dtype, int steps, double dropout, bool checkpoint)
{
    model m;
    uint64_t result;
    int i;
    CHECK(model_open(&m, dtype));
    CHECK_OK(ignis_seed(42));
    m.dropout = dropout;
    m.checkpoint = checkpoint;
    for (i = 0; i < steps; i++)
        CHECK_INT(model_step(&m, NULL), DONE);
    result = model_fingerprint(&m);
    model_close(&m);
    return result;
}

TEST(two_runs_have_equal_bits)
{
    int d;
    SETUP(NULL);
    for (d = 1; d < 4; d++)
        CHECK(train(float_dtypes[d], 5, 0.2, false) == train(float_dtypes[d], 5, 0.2, false));
    CHECK(train(IGNIS_F32, 5, 0.2, false) != train(IGNIS_F32, 5, 0, false));
}

/*  With dropout inside, which has to come out the same in the second run. */
TEST(checkpoints_change_no_bit)
{
    SETUP(NULL);
    CHECK(train(IGNIS_F32, 4, 0.3, false) == train(IGNIS_F32, 4, 0.3, true));
    CHECK(train(IGNIS_BF16, 4, 0.3, false) == train(IGNIS_BF16, 4, 0.3, true));
    CHECK_INT(memory().live_blocks, 0);
}

TEST(a_graph_changes_no_bit)
{
    model m;
    ignis_graph graph;
    int way, i;
    uint64_t eager = 0;
    SETUP(NULL);
    for (way = 0; way < 2; way++) {
        REQUIRE(model_open(&m, IGNIS_BF16));
        CHECK_INT(model_step(&m, NULL), DONE);
        if (way == 0) {
            for (i = 0; i < 4; i++)
                CHECK_INT(model_step(&m, NULL), DONE);
            eager = model_fingerprint(&m);
        } else {
            CHECK_OK(ignis_graph_begin());
            CHECK_INT(model_step(&m, NULL), DONE);
            graph = ignis_graph_end();
            for (i = 0; i < 4; i++)
                CHECK_OK(ignis_graph_launch(graph));
            CHECK(model_fingerprint(&m) == eager);
            CHECK_OK(ignis_graph_free(graph));
        }
        model_close(&m);
    }
    CHECK_INT(memory().live_blocks, 0);
}

TEST(a_hundred_steps_take_no_memory)
{
    ignis_memory_info first, last;
    model m;
    int i;
    SETUP(NULL);
    REQUIRE(model_open(&m, IGNIS_F32));
    memset(&first, 0, sizeof first);
    for (i = 0; i < 100; i++) {
        m.checkpoint = i % 2 != 0;
        CHECK_INT(model_step(&m, NULL), DONE);
        CHECK_INT(ignis_tape_length(), 0);
        if (i == 3)
            first = memory();
    }
    last = memory();
    CHECK_INT(last.live_bytes, first.live_bytes);
    CHECK_INT(last.live_blocks, first.live_blocks);
    CHECK_INT(last.reserved_bytes, first.reserved_bytes);
    model_close(&m);
}

/* --- failures anywhere -------------------------------------------------------------------------------------------- */

/*  Everything comes back to where it was, and training goes on: a step that fails before the optimizer changes nothing.
    */
static void check_recovery(model *m, const ignis_memory_info *before, stage reached, uint64_t start, uint64_t expected,
                           int at)
{
    ignis_memory_info after = memory();
    double loss = 0;
    char text[256];
    CHECK_INT(after.live_bytes, before->live_bytes);
    CHECK_INT(after.live_blocks, before->live_blocks);
    CHECK_INT(ignis_tape_length(), 0);
    if (reached < OPTIMIZER && model_fingerprint(m) != start) {
        snprintf(text, sizeof text, "failure %d, before the optimizer, has changed parameters", at);
        test__fail(__FILE__, __LINE__, text);
    }
    CHECK_OK(ignis_optimizer_zero_grad(m->optimizer));
    CHECK_INT(model_step(m, &loss), DONE);
    CHECK(loss > 0 && loss < 6);
    if (reached < OPTIMIZER && model_fingerprint(m) != expected) {
        snprintf(text, sizeof text, "the step after failure %d gives other parameters than without it", at);
        test__fail(__FILE__, __LINE__, text);
    }
}

/*  Fails one call of the step after the other, and with `all` each call after it, too. */
static int sweep_step(const ignis_desc *desc, const char *prefix, int code, host_counter *counter, bool all,
                      bool checkpoint)
{
    uint64_t start, expected = 0;
    int at;
    CHECK_OK(ignis_setup(desc));
    for (at = 0; at < 3000 && test__state.failures < 5; at++) {
        ignis_memory_info before;
        ignis_status_info info;
        stage reached;
        bool hit;
        model m;
        CHECK(model_open(&m, IGNIS_F32));
        m.checkpoint = checkpoint;
        CHECK_INT(model_step(&m, NULL), DONE); /* compiles, makes buffers of gradients and plans */
        CHECK(ignis_memory_trim(0) >= 0);
        start = model_fingerprint(&m);
        before = memory();
        if (at == 0) { /* without a failure */
            CHECK_INT(model_step(&m, NULL), DONE);
            expected = model_fingerprint(&m);
            model_close(&m);
            continue;
        }
        fault_plan(prefix, at, code, counter, all);
        reached = model_step(&m, NULL);
        hit = fault_over(counter);
        ignis_status_query(&info);
        if ((reached == DONE) != (info.status == IGNIS_OK)) {
            char text[1024];
            snprintf(text, sizeof text, "call %d fails: the step comes to stage %d, the failure is: %.800s", at,
                     (int)reached, info.message);
            test__fail(__FILE__, __LINE__, text);
        }
        if (reached != DONE && info.status != IGNIS_ERROR_MEMORY && info.status != IGNIS_ERROR_CUDA)
            test__fail(__FILE__, __LINE__, info.message);
        ignis_status_clear();
        if (reached != DONE)
            check_recovery(&m, &before, reached, start, expected, at);
        else
            CHECK(model_fingerprint(&m) == expected);
        model_close(&m);
        CHECK_INT(memory().live_blocks, 0);
        if (!hit)
            break;
    }
    CHECK_OK(ignis_shutdown());
    return at - 1;
}

TEST(out_of_device_memory_anywhere)
{
    ignis_desc desc = test_desc(NULL);
    int count;
    desc.memory_bypass = true; /* each block is one driver allocation */
    count = sweep_step(&desc, "cuMemAlloc", OUT_OF_MEMORY, NULL, true, false);
    printf("    %d driver allocations\n", count);
    CHECK(count > 50);
}

TEST(out_of_device_memory_anywhere_with_checkpoints)
{
    ignis_desc desc = test_desc(NULL);
    int count;
    desc.memory_bypass = true;
    count = sweep_step(&desc, "cuMemAlloc", OUT_OF_MEMORY, NULL, true, true);
    printf("    %d driver allocations\n", count);
    CHECK(count > 70);
}

TEST(out_of_host_memory_anywhere)
{
    static const bool ways[2] = {false, true};
    host_counter counter;
    int i, count;
    for (i = 0; i < 2; i++) {
        ignis_desc desc = test_counting_desc(&counter);
        count = sweep_step(&desc, NULL, 0, &counter, ways[i], i == 1);
        printf("    %d host allocations\n", count);
        CHECK(count > 50);
        CHECK_INT(counter.blocks, 0);
    }
}

TEST(each_launch_fails_once)
{
    ignis_desc desc = test_desc(NULL);
    int count;
    NEEDS_NO_MEMCHECK();
    count = sweep_step(&desc, "cuLaunch", UNKNOWN, NULL, false, false);
    printf("    %d launches\n", count);
    CHECK(count > 40);
}

TEST(each_copy_and_fill_fails_once)
{
    ignis_desc desc = test_desc(NULL);
    NEEDS_NO_MEMCHECK();
    (void)sweep_step(&desc, "cuMemset", UNKNOWN, NULL, false, true);
    (void)sweep_step(&desc, "cuMemcpy", UNKNOWN, NULL, false, true);
}

TEST(each_product_fails_once)
{
    ignis_desc desc = test_desc(NULL);
    int count;
    NEEDS_NO_MEMCHECK();
    desc.matmul = IGNIS_MATMUL_CUBLASLT;
    count = sweep_step(&desc, "cublasLtMatmul", 14 /* CUBLAS_STATUS_INTERNAL_ERROR */, NULL, false, false);
    printf("    %d calls of cuBLASLt\n", count);
    CHECK(count > 15);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
