// SPDX-License-Identifier: MIT
/*  test_recompute.c - checkpoints that keep results of products: bits, memory, launches of products in backward */
#include "sweep.h"

enum {
    SEQUENCES = 2,
    LENGTH = 8,
    WIDTH = 32,
    HIDDEN = 96,
    HEADS = 4,
    KV_HEADS = 2,
    HEAD = WIDTH / HEADS,
    WEIGHTS = 12
};
enum { QKV = (HEADS + 2 * KV_HEADS) * HEAD, ROWS = SEQUENCES * LENGTH };

typedef enum way { PLAIN, ALL, KEEP, OFFLOAD, MODES } way;

typedef struct model {
    ignis_tensor (*layer)(const ignis_tensor *inputs, int count, void *user_data);
    ignis_tensor x, weights[WEIGHTS];
    int64_t differs_in; /* the call of the layer that computes another product; 0: none */
    int64_t calls;
} model;

static ignis_checkpoint_desc desc_for(way mode)
{
    ignis_checkpoint_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.recompute = mode == KEEP      ? IGNIS_RECOMPUTE_KEEP_PRODUCTS
                     : mode == OFFLOAD ? IGNIS_RECOMPUTE_OFFLOAD_PRODUCTS
                                       : IGNIS_RECOMPUTE_ALL;
    desc.offload_bytes = 1;
    return desc;
}

static ignis_tensor run(way mode, model *m, ignis_tensor x)
{
    const ignis_checkpoint_desc desc = desc_for(mode);
    return mode == PLAIN ? m->layer(&x, 1, m) : ignis_checkpoint(m->layer, m, &x, 1, &desc);
}

/*  A layer of a Llama, with dropout. */
static ignis_tensor llama(const ignis_tensor *inputs, int count, void *user_data)
{
    model *m = (model *)user_data;
    const ignis_tensor *w = m->weights;
    ignis_sdpa_desc attention;
    ignis_rope_desc rope;
    ignis_tensor x = inputs[0], h;
    (void)count;
    memset(&attention, 0, sizeof attention);
    memset(&rope, 0, sizeof rope);
    attention.num_heads = HEADS, attention.num_kv_heads = KV_HEADS, attention.mask = IGNIS_MASK_CAUSAL;
    rope.num_heads = HEADS + KV_HEADS;
    h = ignis_linear(ignis_rms_norm(x, w[0], 1e-5), w[1], no_tensor());
    h = ignis_linear(ignis_sdpa_packed(h, &attention, &rope), w[2], no_tensor());
    x = ignis_add(x, ignis_dropout(h, 0.25));
    h = ignis_mlp_gated(ignis_rms_norm(x, w[3], 1e-5), w[4], w[5], w[6]);
    if (++m->calls == m->differs_in)
        h = ignis_linear(h, w[2], no_tensor());
    return h.id ? ignis_add(x, h) : h;
}

/*  The other products: of an MLP, of attention, of groups, of a convolution and its transpose, and of an einsum. Each
    has weights of its own, so that gradients are added in one order. */
static ignis_tensor mixture(const ignis_tensor *inputs, int count, void *user_data)
{
    model *m = (model *)user_data;
    const ignis_tensor *w = m->weights;
    static const int32_t ends[] = {0, 3, ROWS};
    ignis_tensor_desc ids = tensor_desc(IGNIS_I32, false);
    ignis_tensor offsets = ignis_tensor_from_host(ends, IGNIS_SHAPE(3), &ids), x = inputs[0], h, operands[2];
    ignis_sdpa_desc attention;
    (void)count;
    memset(&attention, 0, sizeof attention);
    attention.num_heads = HEADS;
    h = ignis_silu(ignis_mlp(x, w[4], no_tensor(), w[6], w[0], IGNIS_ACTIVATION_GELU));
    h = ignis_silu(ignis_sdpa(h, ignis_matmul(h, w[2]), ignis_matmul_t(x, w[9]), &attention));
    h = ignis_silu(ignis_grouped_linear(ignis_reshape(h, IGNIS_SHAPE(ROWS, WIDTH)), w[7], offsets));
    h = ignis_silu(ignis_conv1d(ignis_reshape(h, IGNIS_SHAPE(SEQUENCES, LENGTH, WIDTH)), w[8], no_tensor(), NULL));
    h = ignis_silu(ignis_conv_transpose1d(h, w[10], no_tensor(), NULL));
    operands[0] = ignis_reshape(h, IGNIS_SHAPE(ROWS, WIDTH)), operands[1] = w[11];
    h = ignis_silu(ignis_einsum("ij,jk->ik", operands, 2));
    return ignis_add(x, ignis_reshape(h, IGNIS_SHAPE(SEQUENCES, LENGTH, WIDTH)));
}

static void model_open(model *m, int which, ignis_dtype dtype)
{
    const ignis_shape shapes[WEIGHTS] = {
        IGNIS_SHAPE(WIDTH),         IGNIS_SHAPE(QKV, WIDTH),      IGNIS_SHAPE(WIDTH, WIDTH),
        IGNIS_SHAPE(WIDTH),         IGNIS_SHAPE(HIDDEN, WIDTH),   IGNIS_SHAPE(HIDDEN, WIDTH),
        IGNIS_SHAPE(WIDTH, HIDDEN), IGNIS_SHAPE(2, WIDTH, WIDTH), IGNIS_SHAPE(WIDTH, 3, WIDTH),
        IGNIS_SHAPE(WIDTH, WIDTH),  IGNIS_SHAPE(WIDTH, 3, WIDTH), IGNIS_SHAPE(WIDTH, WIDTH)};
    int i;
    memset(m, 0, sizeof *m);
    m->layer = which ? mixture : llama;
    m->x = tensor_noise(IGNIS_SHAPE(SEQUENCES, LENGTH, WIDTH), dtype, 77, true);
    for (i = 0; i < WEIGHTS; i++)
        m->weights[i] = noise_at(shapes[i], dtype, (uint64_t)i, shapes[i].ndim == 1, 0.3, 0, true);
}

static void model_close(model *m)
{
    int i;
    let_go(m->x);
    for (i = 0; i < WEIGHTS; i++)
        let_go(m->weights[i]);
}

/*  Copies the bytes of a loss and of all gradients, and sets these to zero. Returns their number. */
static int64_t results(const model *m, ignis_tensor loss, unsigned char *to)
{
    int64_t size = ignis_array_size_bytes(ignis_tensor_data(loss)), at = size;
    int i;
    CHECK_OK(ignis_array_to_host_raw(ignis_tensor_data(loss), to, size));
    for (i = -1; i < WEIGHTS; i++) {
        const ignis_tensor tensor = i < 0 ? m->x : m->weights[i];
        if (!ignis_tensor_grad(tensor).id)
            continue;
        size = ignis_array_size_bytes(ignis_tensor_grad(tensor));
        CHECK_OK(ignis_array_to_host_raw(ignis_tensor_grad(tensor), to + at, size));
        CHECK_OK(ignis_zero_grad(tensor));
        at += size;
    }
    return at;
}

/*  Returns the number of kernels of products that were launched since ignis_profile_begin. */
static int64_t product_launches(void)
{
    static ignis_profile_row rows[256];
    int count, i;
    int64_t launches = 0;
    CHECK_OK(ignis_profile_end(NULL, NULL));
    count = ignis_profile_rows(rows, COUNT_OF(rows));
    CHECK(count > 0 && count <= COUNT_OF(rows));
    for (i = 0; i < count && i < COUNT_OF(rows); i++)
        launches += rows[i].flops > 0 ? rows[i].count : 0;
    return launches;
}

TEST(bits_and_launches_of_products)
{
    static unsigned char got[MODES][1 << 17];
    static const ignis_dtype dtypes[] = {IGNIS_BF16, IGNIS_F32, IGNIS_F16};
    int which, k, i;
    SETUP(NULL);
    for (which = 0; which < 2; which++)
        for (k = 0; k < COUNT_OF(dtypes); k++) {
            int64_t forward[MODES], backward[MODES], size[MODES];
            model m;
            model_open(&m, which, dtypes[k]);
            for (i = 0; i < MODES; i++) {
                ignis_scope scope = ignis_scope_begin();
                ignis_tensor loss;
                CHECK_OK(ignis_seed(5));
                CHECK_OK(ignis_profile_begin());
                loss = run((way)i, &m, run((way)i, &m, m.x));
                loss = ignis_sum(ignis_mul(loss, loss));
                forward[i] = product_launches();
                CHECK_OK(ignis_profile_begin());
                CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
                backward[i] = product_launches();
                size[i] = results(&m, loss, got[i]);
                CHECK_OK(ignis_scope_end(scope));
                CHECK_INT(forward[i], forward[PLAIN]);
                CHECK_INT(size[i], size[PLAIN]);
                CHECK(memcmp(got[i], got[PLAIN], (size_t)size[PLAIN]) == 0);
            }
            CHECK(forward[PLAIN] >= 2 * (which ? 9 : 6));
            CHECK_INT(backward[KEEP], backward[PLAIN]);
            CHECK_INT(backward[OFFLOAD], backward[PLAIN]);
            CHECK_INT(backward[ALL], backward[PLAIN] + forward[PLAIN]);
            model_close(&m);
        }
    CHECK_INT(memory().live_blocks, 0);
}

/*  Bytes of an array of `elements` numbers in the memory cache. */
static int64_t block_of(int64_t elements, int64_t size) { return (elements * size + 511) / 512 * 512; }

/*  Results of products stay, and nothing else. At most one layer has all of its activations at a time. */
TEST(memory_between_none_and_all)
{
    enum { LAYERS = 4 };
    int64_t kept[MODES], peak[MODES], products;
    int i, k;
    for (i = 0; i < MODES; i++) {
        ignis_tensor x, loss;
        ignis_scope scope;
        int64_t before;
        model m;
        SETUP(NULL);
        model_open(&m, 0, IGNIS_F32);
        scope = ignis_scope_begin();
        before = memory().live_bytes;
        for (x = m.x, k = 0; k < LAYERS; k++) {
            ignis_scope inside = ignis_scope_begin();
            x = ignis_scope_return(inside, run((way)i, &m, x));
        }
        kept[i] = memory().live_bytes - before;
        loss = ignis_sum(x);
        CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
        peak[i] = memory().live_peak;
        CHECK_OK(ignis_scope_end(scope));
        model_close(&m);
        CHECK_INT(memory().live_blocks, 0);
        CHECK_OK(ignis_shutdown());
    }
    products = block_of(ROWS * QKV, 4) + 2 * block_of(ROWS * WIDTH, 4) + block_of(ROWS * HEADS, 4) /* attention */
               + block_of(ROWS * WIDTH, 4) + 3 * block_of(ROWS * HIDDEN, 4);
    CHECK_INT(kept[ALL], LAYERS * block_of(ROWS * WIDTH, 4)); /* results of the layers */
    CHECK_INT(kept[KEEP], kept[ALL] + LAYERS * products);
    CHECK(kept[KEEP] < kept[PLAIN]);
    CHECK_INT(kept[OFFLOAD], kept[ALL] + products); /* those of the last layer are on their way */
    CHECK(peak[OFFLOAD] < peak[KEEP]);
    CHECK(peak[ALL] < peak[KEEP] && peak[KEEP] < peak[PLAIN]);
}

/* --- nesting, graphs, second derivatives, failures ---------------------------------------------------------------- */

typedef struct nest {
    model *m;
    way inner;
} nest;

static ignis_tensor two_layers(const ignis_tensor *inputs, int count, void *user_data)
{
    const nest *n = (const nest *)user_data;
    (void)count;
    return ignis_silu(run(n->inner, n->m, n->m->layer(&inputs[0], 1, n->m)));
}

/*  The innermost checkpoint decides: products that it does not keep are computed again, twice below ALL in ALL. */
TEST(nested)
{
    static unsigned char got[1 << 17], plain[1 << 17];
    /* how often the backward computes the forward of the outer layer, and of the inner one */
    static const int again[MODES][MODES][2] = {{{0, 0}, {0, 1}, {0, 0}, {0, 0}},
                                               {{1, 1}, {1, 2}, {1, 1}, {1, 1}},
                                               {{0, 0}, {0, 2}, {0, 0}, {0, 0}},
                                               {{0, 0}, {0, 2}, {0, 0}, {0, 0}}};
    int outer, inner;
    int64_t layer = 0, backward = 0, size = 0;
    SETUP(NULL);
    for (outer = PLAIN; outer < MODES; outer++)
        for (inner = PLAIN; inner < MODES; inner++) {
            const ignis_checkpoint_desc desc = desc_for((way)outer);
            const bool first = outer == PLAIN && inner == PLAIN;
            ignis_scope scope;
            ignis_tensor loss;
            model m;
            nest n;
            int64_t launches;
            model_open(&m, 0, IGNIS_F32);
            scope = ignis_scope_begin();
            n.m = &m, n.inner = (way)inner;
            CHECK_OK(ignis_seed(5));
            CHECK_OK(ignis_profile_begin());
            loss = outer == PLAIN ? two_layers(&m.x, 1, &n) : ignis_checkpoint(two_layers, &n, &m.x, 1, &desc);
            loss = ignis_sum(ignis_mul(loss, loss));
            launches = product_launches();
            layer = first ? launches / 2 : layer;
            CHECK_INT(launches, 2 * layer);
            CHECK_OK(ignis_profile_begin());
            CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
            launches = product_launches();
            backward = first ? launches : backward;
            CHECK_INT(launches, backward + layer * (again[outer][inner][0] + again[outer][inner][1]));
            size = results(&m, loss, first ? plain : got);
            CHECK(first || memcmp(got, plain, (size_t)size) == 0);
            CHECK_OK(ignis_scope_end(scope));
            model_close(&m);
            CHECK_INT(memory().live_blocks, 0);
        }
}

/*  A graph keeps products in its own memory. Each launch draws other random numbers, in every way the same ones. */
TEST(graphs)
{
    static unsigned char got[MODES][3][1 << 17];
    int64_t size = 0;
    int i, k, launch;
    SETUP(NULL);
    for (i = 0; i < MODES; i++) {
        ignis_tensor loss;
        ignis_scope scope;
        ignis_graph graph;
        model m;
        model_open(&m, 0, IGNIS_BF16);
        scope = ignis_scope_begin();
        CHECK_OK(ignis_seed(9));
        for (k = 0; k < 2; k++) { /* gradients have memory before the capture */
            if (k)
                CHECK_OK(ignis_graph_begin());
            loss = run((way)i, &m, run((way)i, &m, m.x));
            loss = ignis_sum(ignis_mul(loss, loss));
            CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
            if (!k)
                size = results(&m, loss, got[i][0]);
        }
        graph = ignis_graph_end();
        for (launch = 0; launch < 3; launch++) {
            CHECK_OK(ignis_graph_launch(graph));
            CHECK_INT(results(&m, loss, got[i][launch]), size);
            CHECK(memcmp(got[i][launch], got[PLAIN][launch], (size_t)size) == 0);
        }
        CHECK(memcmp(got[i][0], got[i][1], (size_t)size) != 0);
        CHECK_OK(ignis_graph_free(graph));
        CHECK_OK(ignis_scope_end(scope));
        model_close(&m);
        CHECK_INT(memory().live_blocks, 0);
    }
}

/*  What is kept serves a second pass, and a pass that is recorded. */
TEST(passes_that_retain_or_record)
{
    static unsigned char got[MODES][3][1 << 17];
    int64_t size = 0;
    int i, k;
    SETUP(NULL);
    for (i = 0; i < MODES; i++) {
        ignis_scope scope;
        ignis_grad_desc desc;
        ignis_tensor loss, grad;
        model m;
        model_open(&m, 0, IGNIS_F32);
        scope = ignis_scope_begin();
        CHECK_OK(ignis_seed(3));
        loss = run((way)i, &m, run((way)i, &m, m.x));
        loss = ignis_sum(ignis_mul(loss, loss));
        for (k = 0; k < 2; k++) {
            CHECK_OK(ignis_backward_retain(loss, IGNIS_NO_ARRAY));
            size = results(&m, loss, got[i][k]);
            CHECK(memcmp(got[i][k], got[PLAIN][0], (size_t)size) == 0);
        }
        memset(&desc, 0, sizeof desc);
        desc.create_graph = true;
        CHECK_OK(ignis_grad(&loss, 1, &m.x, 1, &grad, &desc));
        CHECK_OK(ignis_backward(ignis_sum(ignis_mul(grad, grad)), IGNIS_NO_ARRAY));
        size = results(&m, loss, got[i][2]);
        /* a recorded pass adds the gradients of a layer's input in another order than it does across layers */
        CHECK(i == PLAIN || memcmp(got[i][2], got[ALL][2], (size_t)size) == 0);
        CHECK(memcmp(got[i][2], got[i][0], (size_t)size) != 0);
        CHECK_OK(ignis_scope_end(scope));
        model_close(&m);
        CHECK_INT(memory().live_blocks, 0);
    }
}

/*  A function that computes more or fewer products the second time is found out; no gradient has changed. */
TEST(other_products_the_second_time)
{
    static const char *const messages[] = {
        "the function has computed 7 results of products in its second run; expected 8",
        "expected no more, as in the first"};
    int i;
    SETUP(NULL);
    for (i = 0; i < 2; i++) {
        ignis_scope scope;
        ignis_status_info info;
        ignis_tensor loss;
        model m;
        model_open(&m, 0, IGNIS_F32);
        scope = ignis_scope_begin();
        m.differs_in = 1 + i;
        loss = ignis_sum(run(KEEP, &m, m.x));
        CHECK_INT(ignis_backward(loss, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT);
        ignis_status_query(&info);
        CHECK_INT(info.diagnostic, IGNIS_DIAG_CHECKPOINT_DIFFERS);
        CHECK_HAS(info.message, messages[i]);
        ignis_status_clear();
        CHECK_INT(ignis_tensor_grad(m.x).id, 0);
        loss = ignis_sum(run(KEEP, &m, m.x));
        CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
        CHECK(ignis_tensor_grad(m.x).id != 0);
        CHECK_OK(ignis_scope_end(scope));
        model_close(&m);
        CHECK_INT(memory().live_blocks, 0);
    }
}

TEST(wrong_arguments)
{
    ignis_checkpoint_desc desc;
    model m;
    SETUP(NULL);
    model_open(&m, 0, IGNIS_F32);
    memset(&desc, 0, sizeof desc);
    desc.recompute = IGNIS_RECOMPUTE_COUNT;
    CHECK_REFUSED(0, ignis_checkpoint(llama, &m, &m.x, 1, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_MESSAGE_HAS("ignis_checkpoint: desc->recompute is 3, not one of ignis_recompute");
    desc.recompute = IGNIS_RECOMPUTE_OFFLOAD_PRODUCTS, desc.offload_bytes = -1;
    CHECK_REFUSED(0, ignis_checkpoint(llama, &m, &m.x, 1, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("ignis_checkpoint: desc->offload_bytes is -1, below 0");
    CHECK_INT(m.calls, 0);
    model_close(&m);
}

static model swept;
static way swept_way;

static ignis_tensor sweep_layers(int at, const ignis_tensor *inputs)
{
    (void)at;
    return ignis_sum(run(swept_way, &swept, inputs[0]));
}

/*  Each allocation and each call of the driver fails once, in both runs. */
TEST(failures_leave_nothing_behind)
{
    host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    SETUP(&desc);
    NEEDS_NO_MEMCHECK();
    model_open(&swept, 0, IGNIS_F32);
    for (swept_way = KEEP; swept_way <= OFFLOAD; swept_way = (way)(swept_way + 1)) {
        sweep_walks("cuLaunchKernel", &counter, sweep_layers, &swept.x);
        sweep_walks(NULL, &counter, sweep_layers, &swept.x);
    }
    sweep_walks("cuMemcpyDtoH", &counter, sweep_layers, &swept.x);
    sweep_walks("cuMemHostAlloc", &counter, sweep_layers, &swept.x);
    model_close(&swept);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
