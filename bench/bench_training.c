// SPDX-License-Identifier: MIT
/*  bench_training.c - what operations on tensors, attention, and training steps cost

    Every figure is a median of repetitions, taken warm. Memory-bound operations count the bytes that have to be read
    and written once: two passes over the tensor forward, three backward (28 bytes a parameter for AdamW), and stand
    beside a device copy that was measured just before them. Cross-entropy counts one pass forward, where no gradient is
    wanted, and two backward, as well as for both together.
    Attention counts 4 s s d forward and 10 s s d backward for each head, half of that when causal. A backward is what
    forward and backward take together, less the forward alone.

        cc -O2 -I. bench/bench_training.c -o bench_training -lm -ldl -lpthread && ./bench_training [word ...]

    Words: sections, host mlp memory attention gpt llama gpt-xl (all of them);
      profile    three steps of mlp, gpt, llama or gpt-xl into profile.json (a trace), profile.txt (kernels), memory.svg
      dry        what gpt, llama and gpt-xl need of an H200's memory, and for what, without a GPU
      wgmma      attention by the kernels for compute capability 9.0 (IGNIS_ATTENTION_WGMMA)
      rows=TEXT  of the attention, the rows with this text in their names

    The other side: python3 bench/peer_training.py [file with the output of this program]
*/
#define _GNU_SOURCE
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include "models.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_OF(table) ((int)(sizeof(table) / sizeof((table)[0])))
#define MAX_ROWS 256

/* --- the table ------------------------------------------------------------------------------------------------------
   */

static struct {
    char name[64];
    double value;
    const char *unit;
    double ratio; /* to a device copy; 0: none */
} rows[MAX_ROWS];
static int row_count;
static bool dry;     /* memory is counted, and nothing runs */
static bool profile; /* three steps of a model are written down */

static void row(const char *name, double value, const char *unit, double ratio)
{
    if (row_count == MAX_ROWS)
        return;
    snprintf(rows[row_count].name, sizeof rows[row_count].name, "%s", name);
    rows[row_count].value = value;
    rows[row_count].unit = unit;
    rows[row_count++].ratio = ratio;
    fprintf(stderr, "%s: %.3f %s\n", name, value, unit); /* to see that it goes on */
}

static void print_rows(void)
{
    int i;
    printf("\n%-48s %12s %-10s %s\n", "", "Ignis", "", "of a copy");
    for (i = 0; i < row_count; i++) {
        printf("%-48s %12.3f %-10s", rows[i].name, rows[i].value, rows[i].unit);
        if (rows[i].ratio > 0)
            printf(" %.2f", rows[i].ratio);
        printf("\n");
    }
}

/* --- time ------------------------------------------------------------------------------------------------------------
   */

typedef void (*step_fn)(void *work);

static double batch(step_fn step, void *work, int steps, bool wait)
{
    double start = now(), stop;
    int i;
    for (i = 0; i < steps; i++)
        step(work);
    if (wait)
        REQUIRE(ignis_synchronize());
    stop = now();
    REQUIRE(ignis_synchronize());
    return (stop - start) / steps;
}

/*  Seconds of a step. wait: until the device is done; else only what the caller waits. */
static double seconds(step_fn step, void *work, bool wait)
{
    enum { REPEATS = 11 };
    double times[REPEATS], goal = simulated ? 0 : 0.02;
    int steps = 1, most = wait ? 4096 : 64 /* fewer than the driver queues before it makes the caller wait */, i;
    batch(step, work, simulated ? 1 : 3, wait);
    while (steps < most && batch(step, work, steps, wait) * steps < goal)
        steps *= 2;
    for (i = 0; i < (simulated ? 1 : REPEATS); i++)
        times[i] = batch(step, work, steps, wait);
    require(ignis_status_last() == IGNIS_OK, "a measured step");
    qsort(times, (size_t)i, sizeof times[0], compare);
    return times[i / 2];
}

/*  Three steps, warm, written down. */
static void profile_steps(step_fn step, void *work)
{
    int i;
    REQUIRE(ignis_profile_begin());
    for (i = 0; i < 3; i++)
        step(work);
    REQUIRE(ignis_profile_end("profile.json", "profile.txt"));
    REQUIRE(ignis_memory_snapshot("memory.svg"));
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/*  A tensor as an operation in the middle of a network sees it: it wants a gradient, which goes nowhere. */
static ignis_status sink_backward(const ignis_backward_args *args)
{
    (void)args;
    return IGNIS_OK;
}

static ignis_tensor sink_leaf;

static ignis_tensor inner(ignis_tensor tensor)
{
    ignis_tensor seen = ignis_tensor_from_array(ignis_tensor_data(tensor), false);
    ignis_rule rule;
    memset(&rule, 0, sizeof rule);
    rule.name = "inner";
    rule.backward_fn = sink_backward;
    ignis_tape_record(seen, &sink_leaf, 1, &rule);
    return seen;
}

/*  An operation on some tensors, forward or forward and backward. */
typedef struct operation {
    ignis_tensor (*run)(const struct operation *op, const ignis_tensor *in);
    ignis_tensor in[4];
    int count;
    ignis_array gradient; /* of the result; no handle: 1 */
    ignis_sdpa_desc attention;
} operation;

static void step_forward(void *work)
{
    const operation *op = (const operation *)work;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor in[4];
    int i;
    for (i = 0; i < op->count; i++)
        in[i] = inner(op->in[i]);
    op->run(op, in);
    ignis_scope_end(scope);
}

static void step_both(void *work)
{
    const operation *op = (const operation *)work;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor in[4];
    int i;
    for (i = 0; i < op->count; i++)
        in[i] = inner(op->in[i]);
    ignis_backward(op->run(op, in), op->gradient);
    ignis_scope_end(scope);
}

/*  Forward where no gradient is wanted. */
static void step_alone(void *work)
{
    ignis_no_grad_begin();
    step_forward(work);
    ignis_no_grad_end();
}

static void release(operation *op)
{
    int i;
    for (i = 0; i < op->count; i++)
        REQUIRE(ignis_tensor_release(op->in[i]));
}

/* --- small operations --------------------------------------------------------------------------------------------- */

enum { SMALL = 64 };

static void add_many(void *work)
{
    const ignis_tensor *in = (const ignis_tensor *)work;
    ignis_scope scope = ignis_scope_begin();
    int i;
    for (i = 0; i < SMALL; i++)
        ignis_add(in[0], in[1]);
    ignis_scope_end(scope);
}

static void bench_host(void)
{
    ignis_tensor in[2];
    in[0] = parameter(IGNIS_SHAPE(1024), IGNIS_F32, 1, false);
    in[1] = parameter(IGNIS_SHAPE(1024), IGNIS_F32, 1, false);
    row("add of 1024 floats", seconds(add_many, in, false) / SMALL * 1e6, "us", 0);
    REQUIRE(ignis_tensor_release(in[0]));
    in[0] = parameter(IGNIS_SHAPE(1024), IGNIS_F32, 1, true);
    row("add of 1024 floats, recorded", seconds(add_many, in, false) / SMALL * 1e6, "us", 0);
    REQUIRE(ignis_tensor_release(in[0]));
    REQUIRE(ignis_tensor_release(in[1]));
}

/* --- a small network ---------------------------------------------------------------------------------------------- */

typedef struct mlp {
    ignis_tensor x, targets, weights[3], biases[3];
    ignis_optimizer optimizer;
    ignis_graph graph;
    bool at_once; /* all layers are one call */
} mlp;

static void mlp_step(void *work)
{
    mlp *m = (mlp *)work;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor h = m->x;
    int i;
    if (m->at_once)
        h = ignis_mlp_layers(h, m->weights, m->biases, 3, IGNIS_ACTIVATION_RELU);
    for (i = 0; i < 3 && !m->at_once; i++) {
        h = ignis_linear(h, m->weights[i], m->biases[i]);
        if (i < 2)
            h = ignis_relu(h);
    }
    ignis_backward(ignis_cross_entropy(h, m->targets, NULL), IGNIS_NO_ARRAY);
    ignis_optimizer_step(m->optimizer);
    ignis_scope_end(scope);
}

static void mlp_replay(void *work) { ignis_graph_launch(((mlp *)work)->graph); }

static void bench_mlp(void)
{
    static const int64_t widths[] = {64, 128, 128, 10};
    const int64_t examples = simulated ? 8 : 64;
    ignis_adamw_desc desc;
    mlp m;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.drop_grad = true;
    m.x = parameter(IGNIS_SHAPE(examples, widths[0]), IGNIS_F32, 1, false);
    m.targets = random_ids(IGNIS_SHAPE(examples), 10);
    m.optimizer = ignis_adamw(&desc);
    for (i = 0; i < 3; i++) {
        m.weights[i] = parameter(IGNIS_SHAPE(widths[i + 1], widths[i]), IGNIS_F32, 0.1, true);
        m.biases[i] = parameter(IGNIS_SHAPE(widths[i + 1]), IGNIS_F32, 0, true);
        REQUIRE(ignis_optimizer_add(m.optimizer, m.weights[i], true));
        REQUIRE(ignis_optimizer_add(m.optimizer, m.biases[i], false));
    }
    if (profile) {
        m.at_once = false;
        batch(mlp_step, &m, 4, true);
        profile_steps(mlp_step, &m);
    }
    for (i = 0; i < 2; i++) {
        m.at_once = i == 1;
        row(i ? "MLP train step, ignis_mlp_layers" : "MLP 64-128-128-10 train step", seconds(mlp_step, &m, true) * 1e6,
            "us", 0);
        REQUIRE(ignis_graph_begin());
        mlp_step(&m);
        m.graph = ignis_graph_end();
        require(m.graph.id != 0, "the capture");
        row(i ? "MLP train step, ignis_mlp_layers, CUDA graph" : "MLP train step, CUDA graph",
            seconds(mlp_replay, &m, true) * 1e6, "us", 0);
        REQUIRE(ignis_graph_free(m.graph));
    }
    REQUIRE(ignis_optimizer_free(m.optimizer));
    for (i = 0; i < 3; i++) {
        REQUIRE(ignis_tensor_release(m.weights[i]));
        REQUIRE(ignis_tensor_release(m.biases[i]));
    }
    REQUIRE(ignis_tensor_release(m.x));
    REQUIRE(ignis_tensor_release(m.targets));
}

/* --- operations that memory bounds -------------------------------------------------------------------------------- */

static ignis_tensor run_layer_norm(const operation *op, const ignis_tensor *in)
{
    return (void)op, ignis_layer_norm(in[0], in[1], in[2], 1e-5);
}
static ignis_tensor run_rms_norm(const operation *op, const ignis_tensor *in)
{
    return (void)op, ignis_rms_norm(in[0], in[1], 1e-5);
}
/*  x + y, which the caller of a network would use again, and its norm. */
static ignis_tensor run_add_layer_norm(const operation *op, const ignis_tensor *in)
{
    ignis_tensor sum, h = ignis_add_layer_norm(in[0], in[3], in[1], in[2], 1e-5, &sum);
    ignis_tensor_release(sum);
    return (void)op, h;
}
static ignis_tensor run_softmax(const operation *op, const ignis_tensor *in) { return (void)op, ignis_softmax(in[0]); }
static ignis_tensor run_log_softmax(const operation *op, const ignis_tensor *in)
{
    return (void)op, ignis_log_softmax(in[0]);
}
static ignis_tensor run_gelu(const operation *op, const ignis_tensor *in) { return (void)op, ignis_gelu(in[0]); }
static ignis_tensor run_cross_entropy(const operation *op, const ignis_tensor *in)
{
    return ignis_cross_entropy(in[0], op->in[1], NULL);
}
static ignis_tensor run_head(const operation *op, const ignis_tensor *in)
{
    ignis_tensor logits = ignis_matmul_t(in[0], in[1]), loss = ignis_cross_entropy(logits, op->in[2], NULL);
    ignis_tensor_release(logits);
    return loss;
}
static ignis_tensor run_chunked_head(const operation *op, const ignis_tensor *in)
{
    return ignis_linear_cross_entropy(in[0], in[1], op->in[2], NULL);
}

typedef struct copy_work {
    ignis_array to, from;
} copy_work;

static void step_copy(void *work)
{
    copy_work *c = (copy_work *)work;
    ignis_array_copy(c->to, c->from);
}

/*  Bytes a second that a copy of so many bytes moves, read and written. */
static double copy_rate(int64_t bytes)
{
    ignis_array_desc desc;
    copy_work work;
    double rate;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(bytes);
    desc.dtype = IGNIS_U8;
    work.to = ignis_array_create(&desc);
    work.from = ignis_array_create(&desc);
    REQUIRE(ignis_array_zero(work.from));
    rate = 2 * (double)bytes / seconds(step_copy, &work, true);
    REQUIRE(ignis_array_free(work.to));
    REQUIRE(ignis_array_free(work.from));
    return rate;
}

static void bench_rows(int64_t count, int64_t n)
{
    static const struct {
        const char *name;
        ignis_tensor (*run)(const operation *op, const ignis_tensor *in);
        int inputs, passes; /* of the forward; the backward has 3 */
    } table[] = {{"layer_norm", run_layer_norm, 3, 2},         {"rms_norm", run_rms_norm, 2, 2},
                 {"add_layer_norm", run_add_layer_norm, 4, 4}, {"softmax", run_softmax, 1, 2},
                 {"log_softmax", run_log_softmax, 1, 2},       {"gelu", run_gelu, 1, 2}};
    int64_t bytes = 2 * count * n, rows_now = simulated ? 8 : count, n_now = simulated ? 64 : n;
    double copy, forward, both;
    ignis_tensor gradient;
    operation op;
    char name[64];
    int i;
    if (simulated)
        bytes = 2 * rows_now * n_now;
    gradient = parameter(IGNIS_SHAPE(rows_now, n_now), IGNIS_BF16, 1, false);
    copy = copy_rate(bytes);
    snprintf(name, sizeof name, "device copy of %lldx%lld bf16", (long long)count, (long long)n);
    row(name, copy / 1e12, "TB/s", 0);
    for (i = 0; i < COUNT_OF(table); i++) {
        memset(&op, 0, sizeof op);
        op.run = table[i].run;
        op.count = table[i].inputs;
        op.gradient = ignis_tensor_data(gradient);
        op.in[0] = parameter(IGNIS_SHAPE(rows_now, n_now), IGNIS_BF16, 1, false);
        op.in[1] = op.count > 1 ? parameter(IGNIS_SHAPE(n_now), IGNIS_BF16, ONES, false) : op.in[1];
        op.in[2] = op.count > 2 ? parameter(IGNIS_SHAPE(n_now), IGNIS_BF16, 0, false) : op.in[2];
        op.in[3] = op.count > 3 ? parameter(IGNIS_SHAPE(rows_now, n_now), IGNIS_BF16, 1, false) : op.in[3];
        copy = copy_rate(bytes);
        forward = seconds(step_forward, &op, true);
        both = seconds(step_both, &op, true);
        snprintf(name, sizeof name, "%s %lldx%lld forward", table[i].name, (long long)count, (long long)n);
        row(name, table[i].passes * (double)bytes / forward / 1e12, "TB/s",
            table[i].passes * (double)bytes / forward / copy);
        snprintf(name, sizeof name, "%s %lldx%lld backward", table[i].name, (long long)count, (long long)n);
        row(name, 3 * (double)bytes / (both - forward) / 1e12, "TB/s", 3 * (double)bytes / (both - forward) / copy);
        release(&op);
    }
    REQUIRE(ignis_tensor_release(gradient));
}

static void bench_cross_entropy(int64_t rows_named, int64_t n_named)
{
    const int64_t count = simulated ? 8 : rows_named, n = simulated ? 96 : n_named;
    double bytes = 2 * (double)(count * n), copy = copy_rate(2 * count * n), forward, both;
    char name[64], size[32];
    operation op;
    memset(&op, 0, sizeof op);
    op.run = run_cross_entropy;
    op.count = 1;
    op.in[0] = parameter(IGNIS_SHAPE(count, n), IGNIS_BF16, 1, false);
    op.in[1] = random_ids(IGNIS_SHAPE(count), n);
    forward = seconds(step_alone, &op, true);
    both = seconds(step_both, &op, true);
    snprintf(size, sizeof size, "%lldx%lld", (long long)rows_named, (long long)n_named);
    snprintf(name, sizeof name, "cross_entropy %s forward", size);
    row(name, bytes / forward / 1e12, "TB/s", bytes / forward / copy);
    snprintf(name, sizeof name, "cross_entropy %s backward", size);
    row(name, 2 * bytes / (both - forward) / 1e12, "TB/s", 2 * bytes / (both - forward) / copy);
    snprintf(name, sizeof name, "cross_entropy %s both", size);
    row(name, both * 1e3, "ms", 0);
    snprintf(name, sizeof name, "cross_entropy %s both, rate", size);
    row(name, 2 * bytes / both / 1e12, "TB/s", 2 * bytes / both / copy);
    REQUIRE(ignis_tensor_release(op.in[0]));
    REQUIRE(ignis_tensor_release(op.in[1]));
}

/*  The head of a language model and its loss, forward and backward: with all logits at a time, and in chunks. */
static void bench_head(int64_t rows_named, int64_t width, int64_t n_named)
{
    const int64_t count = simulated ? 8 : rows_named, n = simulated ? 96 : n_named;
    char name[64];
    operation op;
    int i;
    memset(&op, 0, sizeof op);
    op.count = 2;
    op.in[0] = parameter(IGNIS_SHAPE(count, width), IGNIS_BF16, 1, false);
    op.in[1] = parameter(IGNIS_SHAPE(n, width), IGNIS_BF16, 0.02, false);
    op.in[2] = random_ids(IGNIS_SHAPE(count), n);
    for (i = 0; i < 2; i++) {
        op.run = i ? run_chunked_head : run_head;
        snprintf(name, sizeof name, "head %lldx%lldx%lld%s", (long long)rows_named, (long long)width,
                 (long long)n_named, i ? ", in chunks" : "");
        row(name, seconds(step_both, &op, true) * 1e3, "ms", 0);
    }
    for (i = 0; i < 3; i++)
        REQUIRE(ignis_tensor_release(op.in[i]));
}

static void step_optimizer(void *work) { ignis_optimizer_step(*(ignis_optimizer *)work); }

static void bench_adamw(ignis_dtype dtype, const char *name)
{
    enum { TENSORS = 100 };
    const int64_t each = simulated ? 16 : 1000000;
    ignis_tensor tensors[TENSORS];
    ignis_optimizer optimizer = ignis_adamw(NULL);
    double copy = copy_rate(each * TENSORS * 4), time;
    int i;
    for (i = 0; i < TENSORS; i++) {
        tensors[i] = parameter(IGNIS_SHAPE(each), dtype, 1, true);
        REQUIRE(ignis_zero_grad(tensors[i]));
        REQUIRE(ignis_optimizer_add(optimizer, tensors[i], true));
    }
    time = seconds(step_optimizer, &optimizer, true);
    row(name, 28 * (double)each * TENSORS / time / 1e12, "TB/s", 28 * (double)each * TENSORS / time / copy);
    REQUIRE(ignis_optimizer_free(optimizer));
    for (i = 0; i < TENSORS; i++)
        REQUIRE(ignis_tensor_release(tensors[i]));
}

static void bench_memory(void)
{
    bench_rows(65536, 768);
    bench_rows(16384, 4096);
    bench_rows(8192, 12288);
    bench_rows(100000, 257); /* rows that begin anywhere, and rows that are long */
    bench_rows(4096, 50257);
    bench_cross_entropy(65536, 768);
    bench_cross_entropy(16384, 4096);
    bench_cross_entropy(16384, 50304);
    bench_head(32768, 768, 50304);
    bench_adamw(IGNIS_F32, "AdamW 100M f32");
    bench_adamw(IGNIS_BF16, "AdamW 100M bf16 with f32 copy");
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

static ignis_tensor run_sdpa(const operation *op, const ignis_tensor *in)
{
    ignis_sdpa_desc desc = op->attention;
    if (op->count > 3 && desc.sinks.id)
        desc.sinks = in[3];
    else if (op->count > 3)
        desc.bias = in[3];
    return ignis_sdpa(in[0], in[1], in[2], &desc);
}

static ignis_tensor run_sdpa_packed(const operation *op, const ignis_tensor *in)
{
    return ignis_sdpa_packed(in[0], &op->attention, NULL);
}

/*  16384 tokens of a width of about 2048, but where it says otherwise. peer_training.py has the same shapes. */
typedef struct attention_shape {
    const char *name;
    int d, heads, kv_heads;
    int64_t batch, sq, sk;
    ignis_mask mask;
    ignis_dtype dtype;
    bool packed; /* q, k and v in one tensor */
    int window;
    double softcap;
    bool lengths; /* of the sequences: all keys, then 1/batch fewer for each */
    int bias;     /* [1, heads, bias, sk], which is trained */
    int document; /* the rows are documents of this length on average: half of it, all, one and a half, and again */
    bool sinks;   /* trained; without a bias */
} attention_shape;

/*  Writes the number of each row's document. */
static void set_documents(int32_t *ids, int64_t rows, int document)
{
    int64_t row, left = 0;
    int32_t id = -1;
    for (row = 0; row < rows; row++) {
        if (left == 0)
            left = document * (++id % 3 + 1) / 2;
        left--;
        ids[row] = id;
    }
}

/*  Pairs of a query and a key that it sees, of one head. */
static double seen_pairs(const attention_shape *shape, int64_t batch, int64_t sq, int64_t sk)
{
    double pairs = 0;
    int64_t b, i;
    if (shape->document) { /* causal, one sequence */
        int64_t left, length;
        for (i = 0, left = sq; left > 0; i++, left -= length) {
            length = shape->document * (i % 3 + 1) / 2;
            length = length < left ? length : left;
            pairs += (double)(length * (length + 1) / 2);
        }
        return pairs;
    }
    for (b = 0; b < batch; b++)
        for (i = 0; i < sq; i++) {
            int64_t place = i + sk - sq, end = shape->lengths ? sk * (batch - b) / batch : sk, first = 0;
            if (shape->mask == IGNIS_MASK_CAUSAL && place + 1 < end)
                end = place + 1;
            if (shape->window && place - shape->window + 1 > 0)
                first = place - shape->window + 1;
            pairs += end > first ? (double)(end - first) : 0;
        }
    return pairs;
}

static void bench_attention_shape(const attention_shape *shape)
{
    int64_t batch = simulated ? 1 : shape->batch, sq = simulated ? 64 : shape->sq, sk = simulated ? 64 : shape->sk;
    int heads = simulated ? shape->heads / shape->kv_heads : shape->heads, kv_heads = simulated ? 1 : shape->kv_heads,
        i;
    double flops = 4.0 * (double)(sq * sk) * shape->d * (double)(heads * batch) *
                   (shape->mask == IGNIS_MASK_CAUSAL ? 0.5 : 1),
           forward, both;
    int32_t lengths[64];
    ignis_tensor gradient = parameter(IGNIS_SHAPE(batch, sq, heads * shape->d), shape->dtype, 1, false);
    operation op;
    char name[64];
    memset(&op, 0, sizeof op);
    op.run = shape->packed ? run_sdpa_packed : run_sdpa;
    op.count = shape->packed ? 1 : 3;
    op.gradient = ignis_tensor_data(gradient);
    op.attention.num_heads = heads;
    op.attention.num_kv_heads = kv_heads;
    op.attention.mask = shape->mask;
    op.in[0] = parameter(IGNIS_SHAPE(batch, sq, (shape->packed ? heads + 2 * kv_heads : heads) * shape->d),
                         shape->dtype, 1, false);
    for (i = 1; i < op.count; i++)
        op.in[i] = parameter(IGNIS_SHAPE(batch, sk, kv_heads * shape->d), shape->dtype, 1, false);
    if (shape->window || shape->lengths || shape->document)
        flops = 4.0 * seen_pairs(shape, batch, sq, sk) * shape->d * heads;
    op.attention.window = shape->window;
    op.attention.softcap = shape->softcap;
    if (shape->lengths) {
        ignis_tensor_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.dtype = IGNIS_I32;
        for (i = 0; i < batch; i++)
            lengths[i] = (int32_t)(sk * (batch - i) / batch);
        op.attention.lengths = ignis_tensor_from_host(lengths, IGNIS_SHAPE(batch), &desc);
    }
    if (shape->document) {
        int32_t *ids = (int32_t *)malloc((size_t)sq * sizeof *ids);
        ignis_tensor_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.dtype = IGNIS_I32;
        set_documents(ids, sq, shape->document);
        op.attention.segments = ignis_tensor_from_host(ids, IGNIS_SHAPE(1, sq), &desc);
        free(ids);
    }
    if (shape->bias)
        op.in[op.count++] =
            parameter(IGNIS_SHAPE(heads, simulated && shape->bias > 1 ? sq : shape->bias, sk), shape->dtype, 1, false);
    if (shape->sinks)
        op.in[op.count++] = op.attention.sinks = parameter(IGNIS_SHAPE(heads), shape->dtype, 1, false);
    forward = seconds(step_forward, &op, true);
    both = seconds(step_both, &op, true);
    snprintf(name, sizeof name, "sdpa %s forward", shape->name);
    row(name, flops / forward / 1e12, "TFLOP/s", 0);
    snprintf(name, sizeof name, "sdpa %s backward", shape->name);
    row(name, 2.5 * flops / (both - forward) / 1e12, "TFLOP/s", 0);
    release(&op);
    if (shape->lengths)
        REQUIRE(ignis_tensor_release(op.attention.lengths));
    if (shape->document)
        REQUIRE(ignis_tensor_release(op.attention.segments));
    REQUIRE(ignis_tensor_release(gradient));
}

static const char *rows_with = ""; /* of the attention, those with this text in their names */

static void bench_attention(void)
{
    static const attention_shape others[] = {
        {"D72 causal S4096", 72, 28, 28, 4, 4096, 4096, IGNIS_MASK_CAUSAL, IGNIS_BF16, false},
        {"D80 causal S4096", 80, 25, 25, 4, 4096, 4096, IGNIS_MASK_CAUSAL, IGNIS_BF16, false},
        {"D96 causal S4096", 96, 21, 21, 4, 4096, 4096, IGNIS_MASK_CAUSAL, IGNIS_BF16, false},
        {"D192 causal S4096", 192, 10, 10, 4, 4096, 4096, IGNIS_MASK_CAUSAL, IGNIS_BF16, false},
        {"D256 causal S4096", 256, 8, 8, 4, 4096, 4096, IGNIS_MASK_CAUSAL, IGNIS_BF16, false},
        {"D256 full S4096", 256, 8, 8, 4, 4096, 4096, IGNIS_MASK_NONE, IGNIS_BF16, false},
        {"D128 causal S4096 heads 32/8", 128, 32, 8, 4, 4096, 4096, IGNIS_MASK_CAUSAL, IGNIS_BF16, false},
        {"D128 causal S4000", 128, 16, 16, 4, 4000, 4000, IGNIS_MASK_CAUSAL, IGNIS_BF16, false},
        {"D64 causal S4000", 64, 32, 32, 4, 4000, 4000, IGNIS_MASK_CAUSAL, IGNIS_BF16, false},
        {"D128 causal S4096 f16", 128, 16, 16, 4, 4096, 4096, IGNIS_MASK_CAUSAL, IGNIS_F16, false},
        {"D128 causal S4096 of 8 heads", 128, 8, 8, 1, 4096, 4096, IGNIS_MASK_CAUSAL, IGNIS_BF16, false},
        {"D128 causal S1024 of 8 heads", 128, 8, 8, 1, 1024, 1024, IGNIS_MASK_CAUSAL, IGNIS_BF16, false},
        {"D64 causal S1024 of 12 heads", 64, 12, 12, 1, 1024, 1024, IGNIS_MASK_CAUSAL, IGNIS_BF16, false},
        {"D64 full S77 on 4096", 64, 32, 32, 4, 77, 4096, IGNIS_MASK_NONE, IGNIS_BF16, false},
        {"D128 full S77 on 4096", 128, 16, 16, 4, 77, 4096, IGNIS_MASK_NONE, IGNIS_BF16, false},
        {"D64 causal S128", 64, 32, 32, 128, 128, 128, IGNIS_MASK_CAUSAL, IGNIS_BF16, false},
        {"D128 causal S128", 128, 16, 16, 128, 128, 128, IGNIS_MASK_CAUSAL, IGNIS_BF16, false},
        {"D64 causal S1024 packed", 64, 12, 12, 32, 1024, 1024, IGNIS_MASK_CAUSAL, IGNIS_BF16, true},
        {"D128 causal S4096 heads 32/8 packed", 128, 32, 8, 4, 4096, 4096, IGNIS_MASK_CAUSAL, IGNIS_BF16, true},
        {"D64 causal S16384 window 1024", 64, 32, 32, 1, 16384, 16384, IGNIS_MASK_CAUSAL, IGNIS_BF16, false, 1024},
        {"D128 causal S16384 window 4096 heads 32/8", 128, 32, 8, 1, 16384, 16384, IGNIS_MASK_CAUSAL, IGNIS_BF16, false,
         4096},
        {"D128 causal S16384 window 512", 128, 16, 16, 1, 16384, 16384, IGNIS_MASK_CAUSAL, IGNIS_BF16, false, 512},
        {"D128 full S4096 lengths", 128, 16, 16, 4, 4096, 4096, IGNIS_MASK_NONE, IGNIS_BF16, false, 0, 0, true},
        {"D128 full S4000 lengths", 128, 16, 16, 4, 4000, 4000, IGNIS_MASK_NONE, IGNIS_BF16, false, 0, 0, true},
        {"D64 causal S1000 lengths", 64, 32, 32, 16, 1000, 1000, IGNIS_MASK_CAUSAL, IGNIS_BF16, false, 0, 0, true},
        {"D256 causal S4096 softcap heads 16/8", 256, 16, 8, 4, 4096, 4096, IGNIS_MASK_CAUSAL, IGNIS_BF16, false, 0,
         50},
        {"D256 causal S8192 window 4096 softcap heads 16/8", 256, 16, 8, 2, 8192, 8192, IGNIS_MASK_CAUSAL, IGNIS_BF16,
         false, 4096, 50},
        {"D64 full S512 bias", 64, 12, 12, 32, 512, 512, IGNIS_MASK_NONE, IGNIS_BF16, false, 0, 0, false, 512},
        {"D64 causal S2048 bias of keys", 64, 16, 16, 8, 2048, 2048, IGNIS_MASK_CAUSAL, IGNIS_BF16, false, 0, 0, false,
         1},
        {"D64 causal S16384 documents 512", 64, 32, 32, 1, 16384, 16384, IGNIS_MASK_CAUSAL, IGNIS_BF16, false, 0, 0,
         false, 0, 512},
        {"D128 causal S16384 documents 1024", 128, 16, 16, 1, 16384, 16384, IGNIS_MASK_CAUSAL, IGNIS_BF16, false, 0, 0,
         false, 0, 1024},
        {"D128 causal S16384 documents 4096 heads 32/8", 128, 32, 8, 1, 16384, 16384, IGNIS_MASK_CAUSAL, IGNIS_BF16,
         false, 0, 0, false, 0, 4096},
        {"D64 causal S4096 sinks heads 64/8", 64, 64, 8, 2, 4096, 4096, IGNIS_MASK_CAUSAL, IGNIS_BF16, false, 0, 0,
         false, 0, 0, true},
        {"D64 causal S4096 sinks window 128 heads 64/8", 64, 64, 8, 2, 4096, 4096, IGNIS_MASK_CAUSAL, IGNIS_BF16, false,
         128, 0, false, 0, 0, true},
    };
    static const int lengths[] = {1024, 4096, 16384};
    int d, causal, s;
    for (d = 64; d <= 128; d += 64)
        for (causal = 1; causal >= 0; causal--)
            for (s = 0; s < COUNT_OF(lengths); s++) {
                attention_shape shape;
                char name[64];
                snprintf(name, sizeof name, "D%d %s S%d", d, causal ? "causal" : "full", lengths[s]);
                memset(&shape, 0, sizeof shape);
                shape.name = name;
                shape.d = d;
                shape.heads = shape.kv_heads = 2048 / d;
                shape.batch = 16384 / lengths[s];
                shape.sq = shape.sk = lengths[s];
                shape.mask = causal ? IGNIS_MASK_CAUSAL : IGNIS_MASK_NONE;
                shape.dtype = IGNIS_BF16;
                shape.packed = false;
                if (strstr(shape.name, rows_with))
                    bench_attention_shape(&shape);
            }
    for (s = 0; s < COUNT_OF(others); s++)
        if (strstr(others[s].name, rows_with))
            bench_attention_shape(&others[s]);
}

/* --- GPT-2 -------------------------------------------------------------------------------------------------------- */

static void gpt_step_of(void *work) { gpt_step((gpt *)work); }
static void gpt_replay(void *work) { ignis_graph_launch(((gpt *)work)->graph); }
static void llama_step_of(void *work) { llama_step((llama *)work); }

/*  What the peak of a dry run is made of, but for what is less than a hundredth of it. */
static void memory_rows(const ignis_memory_info *memory)
{
    static ignis_memory_row used[128];
    int count = ignis_memory_rows(0, used, COUNT_OF(used)), i;
    char text[80];
    for (i = 0; i < count && i < COUNT_OF(used) && used[i].peak_bytes >= memory->live_peak / 100; i++) {
        snprintf(text, sizeof text, "  %s%s%s", used[i].tag[0] ? used[i].tag : used[i].call,
                 used[i].inside[0] ? " in " : "", used[i].inside);
        row(text, (double)used[i].peak_bytes / (1 << 30), "GiB", 0);
    }
}

/*  The rows of a model: tokens of a step in a second, and the peak of memory, which is that of this model as what was
    cached is given up. */
static void model_rows(const char *name, double tokens, void (*step)(void *), void *model)
{
    ignis_memory_info memory;
    char text[80];
    if (dry) {
        step(model);
        step(model);
    } else {
        snprintf(text, sizeof text, "%s train step", name);
        row(text, tokens / seconds(step, model, true) / 1e3, "ktokens/s", 0);
    }
    REQUIRE(ignis_memory_query(0, &memory));
    snprintf(text, sizeof text, "%s, peak of device memory", name);
    row(text, (double)memory.reserved_peak / (1 << 30), "GiB", 0);
    if (dry)
        memory_rows(&memory);
    if (profile)
        profile_steps(step, model);
}

static void bench_gpt(void)
{
    static gpt g;
    gpt_open(&g, &gpt_124m);
    gpt_optimize(&g);
    model_rows("GPT-2 124M, B 32, T 1024", (double)(g.sequences * g.context), gpt_step_of, &g);
    if (!dry) {
        REQUIRE(ignis_graph_begin());
        gpt_step(&g);
        g.graph = ignis_graph_end();
        require(g.graph.id != 0, "the capture");
        row("GPT-2 124M train step, CUDA graph",
            (double)(g.sequences * g.context) / seconds(gpt_replay, &g, true) / 1e3, "ktokens/s", 0);
        REQUIRE(ignis_graph_free(g.graph));
    }
    gpt_close(&g);
}

/*  Models that fill a device. The peak of memory is theirs alone where no other section runs in the same call. */
static void bench_llama(void)
{
    static llama l;
    llama_open(&l, &llama_shapes[0]);
    llama_optimize(&l);
    model_rows("Llama 1B, B 4, T 2048", (double)(l.sequences * l.context), llama_step_of, &l);
    llama_close(&l);
}

static void bench_gpt_xl(void)
{
    static gpt g;
    gpt_open(&g, &gpt_1558m);
    gpt_optimize(&g);
    model_rows("GPT-2 1.5B, B 8, T 1024", (double)(g.sequences * g.context), gpt_step_of, &g);
    gpt_close(&g);
}

/* --- the program -------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } sections[] = {{"host", bench_host},           {"mlp", bench_mlp}, {"memory", bench_memory},
                    {"attention", bench_attention}, {"gpt", bench_gpt}, {"llama", bench_llama},
                    {"gpt-xl", bench_gpt_xl}};
    ignis_device_info device;
    ignis_desc desc;
    int i, k, words = 1; /* that are no section */
    memset(&desc, 0, sizeof desc);
    for (k = 1; k < argc; k++)
        if (strcmp(argv[k], "wgmma") == 0) {
            desc.attention = IGNIS_ATTENTION_WGMMA;
            words++;
        } else if (strcmp(argv[k], "dry") == 0) {
            desc.dry_run = dry = true;
            words++;
        } else if (strcmp(argv[k], "profile") == 0) {
            desc.trace_memory = profile = true;
            words++;
        } else if (strncmp(argv[k], "rows=", 5) == 0) {
            rows_with = argv[k] + 5;
            words++;
        }
    REQUIRE(ignis_setup(&desc));
    REQUIRE(ignis_device_query(0, &device));
    simulated = strstr(device.name, "Simulator") != NULL;
    sink_leaf = parameter(IGNIS_SHAPE(1), IGNIS_BF16, ONES, true);
    for (i = 0; i < COUNT_OF(sections); i++) {
        bool chosen = argc == words;
        for (k = 1; k < argc; k++)
            chosen = chosen || strcmp(argv[k], sections[i].name) == 0;
        if (chosen) {
            sections[i].run();
            ignis_memory_trim(0);
        }
    }
    REQUIRE(ignis_tensor_release(sink_leaf));
    REQUIRE(ignis_shutdown());
    printf("\n%s, compute capability %d.%d, driver %d.%d\n", device.name, device.compute_major, device.compute_minor,
           device.driver_version / 1000, device.driver_version % 1000 / 10);
    if (simulated)
        printf("THIS IS THE SIMULATOR: the sizes are tiny, and the figures mean nothing.\n");
    print_rows();
    return 0;
}
