// SPDX-License-Identifier: MIT
/*  train_gpt.c - train a small GPT on any text, from one C file

    A language model reads a text and guesses, at every place, which byte comes next. This one is a GPT-2 (Radford et
    al. 2019) in small: bytes become vectors; a stack of blocks lets each place look back at the places before it
    (attention) and think about what it saw (a small MLP); the last vector scores all 256 bytes that might follow.
    Training lowers the loss, the mean of -log(the share that was given to the byte that did follow): at first log(256)
    = 5.5, for good English below 1.5.

        cc -I. examples/train_gpt.c -o train_gpt -lm -ldl -lpthread && ./train_gpt

    The text is ignis.h, or the file that you name: ./train_gpt book.txt. The program shows its progress, and from time
    to time what it would write itself; in the end it draws the loss as a picture, loss.svg. The model goes to
    gpt.safetensors, also on Ctrl-C; ./train_gpt --resume gpt.safetensors goes on from there as if nothing had happened,
    to the last bit. ./train_gpt --help lists what can be changed. --export folder also writes the model as Hugging Face
    has GPT-2, with a tokenizer whose ids are the bytes, for transformers and for examples/generate.c and apps/serve:
    ./generate folder "Once upon". The sizes fit a GPU; on Ignis' simulator, which has none, they are tiny.

    ./train_gpt --gpus 4 trains on four GPUs: four processes, each with the whole model on a GPU of its own and a fourth
    of every batch. While backward goes on they average their gradients, and so take equal steps. The losses are those
    of one GPU, up to rounding. --shard parameters divides weights, gradients and what the optimizer remembers among
    them, so that larger models fit; --shard optimizer or gradients divide less. With --shard-ranks 8 each eight GPUs
    divide a copy, so that only gradients go between machines of eight. Under torchrun, mpirun or srun the program takes
    its part among theirs, on several machines too; --gpus is not needed then.

    With --restarts 3 a process that is killed is started again, up to three times, and takes the training from the
    memory of another one. The others wait for it, and do the step again that was not complete. The losses are those of
    a run without deaths. With --shard this needs --shard-ranks, so that another GPU has a copy of what was lost.

    How it is written:
        Tensors that are made between ignis_scope_begin and ignis_scope_end are gone afterwards, so a step leaves
        nothing behind.
        Errors are looked at once a step: when a call has failed, all that use its result fail quietly, and Ignis has
        written the first reason to stderr.
        On a GPU a step is hundreds of small pieces of work. After a few steps they are captured as a CUDA graph, and
        from then on one call runs them all.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BYTES 256 /* a token is a byte */
#define MAX_LAYERS 48
#define MAX_PARAMETERS (12 * MAX_LAYERS + 8)

static void give_up(const char *what, const char *which)
{
    fprintf(stderr, "train_gpt: %s%s\n", what, which);
    exit(1);
}

/*  The one place where errors are looked at. Ignis has written the reason to stderr already. */
static void check(void)
{
    if (ignis_status_last() != IGNIS_OK)
        give_up("stopped by the error above", "");
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        give_up("out of memory", "");
    return memory;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    interrupted = 1;
    signal(signal_number, SIG_DFL); /* the second Ctrl-C ends the program at once */
}

/*  Random numbers by place instead of by order: which ones a step gets depends on the seed and the step alone, so a run
    that is resumed needs no state to go on in the same way. (The mixer of SplitMix64: Steele, Lea, Flood 2014.) */
static uint64_t random_at(uint64_t seed, uint64_t step, uint64_t index)
{
    uint64_t x = seed * 0x9E3779B97F4A7C15u + step * 0xD1342543DE82EF95u + (index + 1) * 0xA24BAED4963EE407u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* --- settings ---------------------------------------------------------------------------------------------------- */

typedef struct settings {
    int64_t steps, layers, width, heads, context, batch;
    int64_t bf16; /* 0: the parameters are f32 */
    int64_t seed;
    int64_t done; /* steps, when it was saved */
    double lr;
    int64_t graph, sample, gpus, restarts, shard_ranks;
    ignis_shard shard; /* what the GPUs divide among them */
    const char *text, *save, *resume, *out;
    const char *folder; /* of --export; null: none */
    const char *prompt; /* null: the beginning of the held-out text */
} settings;

static const char help[] =
    "train_gpt [text file] [--option value ...]\n"
    "  --steps n       how long to train             --lr x          the highest learning rate\n"
    "  --layers n      blocks                        --seed n        another seed, another run\n"
    "  --width n       numbers per place             --save file     the model (gpt.safetensors)\n"
    "  --heads n       of attention                  --resume file   go on from there\n"
    "  --context n     bytes that are looked at      --out file      the picture (loss.svg)\n"
    "  --batch n       stretches of text per step    --sample n      bytes that are shown (0: none)\n"
    "  --dtype f32|bf16                              --graph 0|1     steps as a CUDA graph\n"
    "  --gpus n        that share the work           --prompt text   what samples go on from\n"
    "  --export folder the model for others, too     --restarts n    of processes that were killed (0)\n"
    "  --shard none|optimizer|gradients|parameters   what they divide; then nothing can be resumed\n"
    "  --shard-ranks n GPUs that divide a copy (0: all)\n";

static settings settings_default(int is_simulator)
{
    settings small = {
        .steps = 400, .layers = 2, .width = 64, .heads = 4, .context = 64, .batch = 4, .lr = 6e-3, .sample = 120};
    settings large = {
        .steps = 1000, .layers = 6, .width = 384, .heads = 6, .context = 256, .batch = 64, .lr = 1e-3, .sample = 400};
    settings s = is_simulator ? small : large;
    s.bf16 = s.graph = !is_simulator;
    s.seed = 1;
    s.save = "gpt.safetensors";
    s.out = "loss.svg";
    return s;
}

/*  What a resumed run must agree on with the one before; these go into the file of the model. */
#define SAVED_NUMBERS 9

static int64_t *saved_number(settings *s, int i)
{
    int64_t *numbers[SAVED_NUMBERS];
    numbers[0] = &s->steps, numbers[1] = &s->layers, numbers[2] = &s->width, numbers[3] = &s->heads;
    numbers[4] = &s->context, numbers[5] = &s->batch, numbers[6] = &s->bf16, numbers[7] = &s->seed;
    numbers[8] = &s->done;
    return numbers[i];
}

static void settings_check(const settings *s, int ranks)
{
    if (s->layers > MAX_LAYERS || s->width % s->heads != 0)
        give_up("--layers is at most 48, and --width a multiple of --heads", "");
    if (s->batch % ranks != 0)
        give_up("--batch has to be a multiple of the number of GPUs", "");
    if (s->shard != IGNIS_SHARD_NONE && s->resume)
        give_up("--resume needs what the optimizer remembers of all parameters, which --shard divides", "");
    if (s->shard != IGNIS_SHARD_NONE && s->restarts > 0 && (s->shard_ranks == 0 || s->shard_ranks >= ranks))
        give_up("--restarts with --shard needs --shard-ranks, so that other GPUs have copies", "");
    if (s->done > s->steps)
        give_up("the model has had more than --steps already", "");
}

/*  By the name of an ignis_shard. */
static ignis_shard shard_named(const char *name)
{
    static const char *const names[IGNIS_SHARD_COUNT] = {"none", "optimizer", "gradients", "parameters"};
    int i = 0;
    while (i < IGNIS_SHARD_COUNT && strcmp(name, names[i]) != 0)
        i++;
    if (i == IGNIS_SHARD_COUNT)
        give_up("--shard is none, optimizer, gradients or parameters, not ", name);
    return (ignis_shard)i;
}

/*  The command line goes over what is in s already. */
static void settings_read(settings *s, int argc, char **argv)
{
    int i;
    for (i = 1; i < argc; i++) {
        const char *name = argv[i], *value = argv[i + 1]; /* argv[argc] is null */
        struct {
            const char *name;
            int64_t *number;
            int64_t least;
        } numbers[] = {
            {"--steps", &s->steps, 1}, {"--layers", &s->layers, 1},     {"--width", &s->width, 1},
            {"--heads", &s->heads, 1}, {"--context", &s->context, 2},   {"--batch", &s->batch, 1},
            {"--seed", &s->seed, 0},   {"--graph", &s->graph, 0},       {"--sample", &s->sample, 0},
            {"--gpus", &s->gpus, 1},   {"--restarts", &s->restarts, 0}, {"--shard-ranks", &s->shard_ranks, 0}};
        size_t k, count = sizeof numbers / sizeof *numbers;
        if (strncmp(name, "--", 2) != 0) {
            s->text = name;
            continue;
        }
        if (!value)
            give_up("a value is missing after ", name);
        i++;
        for (k = 0; k < count && strcmp(name, numbers[k].name) != 0; k++)
            continue;
        if (k < count) {
            char *end;
            *numbers[k].number = strtoll(value, &end, 10);
            if (*end || *numbers[k].number < numbers[k].least)
                give_up("not a number that makes sense: ", value);
        } else if (strcmp(name, "--lr") == 0) {
            s->lr = atof(value);
        } else if (strcmp(name, "--dtype") == 0 && (strcmp(value, "f32") == 0 || strcmp(value, "bf16") == 0)) {
            s->bf16 = strcmp(value, "bf16") == 0;
        } else if (strcmp(name, "--save") == 0) {
            s->save = value;
        } else if (strcmp(name, "--resume") == 0) {
            s->resume = value;
        } else if (strcmp(name, "--out") == 0) {
            s->out = value;
        } else if (strcmp(name, "--shard") == 0) {
            s->shard = shard_named(value);
        } else if (strcmp(name, "--export") == 0) {
            s->folder = value;
        } else if (strcmp(name, "--prompt") == 0 && *value) {
            s->prompt = value;
        } else {
            give_up("no such option, or not such a value (--help lists them): ", name);
        }
    }
}

/* --- text -------------------------------------------------------------------------------------------------------- */

typedef struct text {
    unsigned char *bytes;
    size_t count;
    size_t training; /* so many bytes at the front are for training; the rest is held out to measure what was learned */
    int seen[BYTES]; /* which bytes there are at all */
} text;

/*  The text that is always there: ignis.h, here or beside the program. */
static const char *text_find(const char *program)
{
    static char beside[1024];
    const char *slash = strrchr(program, '/');
    FILE *here = fopen("ignis.h", "rb");
    if (here)
        fclose(here);
    else if (slash &&
             snprintf(beside, sizeof beside, "%.*s/ignis.h", (int)(slash - program), program) < (int)sizeof beside)
        return beside;
    return "ignis.h";
}

static text text_read(const char *path, size_t context)
{
    FILE *file = fopen(path, "rb");
    text t = {0};
    size_t i, capacity = 1 << 16;
    if (!file)
        give_up("a text to learn from can be named on the command line; cannot read ", path);
    t.bytes = (unsigned char *)allocate(capacity, 1);
    while ((i = fread(t.bytes + t.count, 1, capacity - t.count, file)) > 0) {
        t.count += i;
        if (t.count == capacity && !(t.bytes = (unsigned char *)realloc(t.bytes, capacity *= 2)))
            give_up("out of memory for ", path);
    }
    if (ferror(file))
        give_up("cannot read ", path);
    fclose(file);
    t.training = t.count - t.count / 10;
    if (t.count - t.training < context + 2)
        give_up("the text is too short for --context: ", path);
    for (i = 0; i < t.count; i++)
        t.seen[t.bytes[i]] = 1;
    return t;
}

/* --- the model --------------------------------------------------------------------------------------------------- */

typedef struct block {
    ignis_tensor norm1_weight, norm1_bias; /* layer norm in front of attention */
    ignis_tensor qkv_weight, qkv_bias;     /* queries, keys and values in one product */
    ignis_tensor out_weight, out_bias;
    ignis_tensor norm2_weight, norm2_bias; /* layer norm in front of the MLP */
    ignis_tensor up_weight, up_bias;
    ignis_tensor down_weight, down_bias;
} block;

typedef struct model {
    int64_t width, heads, context;
    int layers;
    ignis_tensor bytes;     /* [256, width]: a vector for each byte, and again, transposed, what scores the next byte */
    ignis_tensor positions; /* [context, width]: a vector for each place */
    block blocks[MAX_LAYERS];
    ignis_tensor norm_weight, norm_bias;

    ignis_tensor parameters[MAX_PARAMETERS]; /* all of these once more */
    char names[MAX_PARAMETERS][32];
    bool is_matrix[MAX_PARAMETERS];
    int count;
} model;

/*  Makes a parameter: normal values times deviation, or ones, or zeros. A block's number becomes part of the name; -1:
    none. */
enum { ZEROS = 0, ONES = -1 };

static ignis_tensor parameter(model *m, const settings *s, int in_block, const char *name, ignis_shape shape,
                              double deviation)
{
    ignis_tensor_desc desc = {.dtype = s->bf16 ? IGNIS_BF16 : IGNIS_F32, .requires_grad = true, .tag = name};
    ignis_tensor tensor = deviation > 0       ? ignis_tensor_randn(shape, &desc)
                          : deviation == ONES ? ignis_tensor_ones(shape, &desc)
                                              : ignis_tensor_zeros(shape, &desc);
    if (deviation > 0)
        ignis_array_scale(ignis_tensor_data(tensor), ignis_tensor_data(tensor), deviation);
    if (in_block < 0)
        snprintf(m->names[m->count], sizeof m->names[0], "%s", name);
    else
        snprintf(m->names[m->count], sizeof m->names[0], "block.%d.%s", in_block, name);
    m->is_matrix[m->count] = shape.ndim > 1;
    m->parameters[m->count++] = tensor;
    return tensor;
}

static model *model_make(const settings *s)
{
    model *m = (model *)allocate(1, sizeof *m);
    int64_t width = s->width;
    double deviation = 0.5 / sqrt((double)width),
           into_sum = deviation / sqrt(2.0 * (double)s->layers); /* 2 * layers of these are summed up */
    int i;
    m->width = width, m->heads = s->heads, m->context = s->context, m->layers = (int)s->layers;
    ignis_seed((uint64_t)s->seed);
    m->bytes = parameter(m, s, -1, "bytes", IGNIS_SHAPE(BYTES, width), deviation);
    m->positions = parameter(m, s, -1, "positions", IGNIS_SHAPE(s->context, width), deviation);
    for (i = 0; i < m->layers; i++) {
        block *b = &m->blocks[i];
        b->norm1_weight = parameter(m, s, i, "norm1.weight", IGNIS_SHAPE(width), ONES);
        b->norm1_bias = parameter(m, s, i, "norm1.bias", IGNIS_SHAPE(width), ZEROS);
        b->qkv_weight = parameter(m, s, i, "qkv.weight", IGNIS_SHAPE(3 * width, width), deviation);
        b->qkv_bias = parameter(m, s, i, "qkv.bias", IGNIS_SHAPE(3 * width), ZEROS);
        b->out_weight = parameter(m, s, i, "out.weight", IGNIS_SHAPE(width, width), into_sum);
        b->out_bias = parameter(m, s, i, "out.bias", IGNIS_SHAPE(width), ZEROS);
        b->norm2_weight = parameter(m, s, i, "norm2.weight", IGNIS_SHAPE(width), ONES);
        b->norm2_bias = parameter(m, s, i, "norm2.bias", IGNIS_SHAPE(width), ZEROS);
        b->up_weight = parameter(m, s, i, "up.weight", IGNIS_SHAPE(4 * width, width), deviation);
        b->up_bias = parameter(m, s, i, "up.bias", IGNIS_SHAPE(4 * width), ZEROS);
        b->down_weight = parameter(m, s, i, "down.weight", IGNIS_SHAPE(width, 4 * width), into_sum);
        b->down_bias = parameter(m, s, i, "down.bias", IGNIS_SHAPE(width), ZEROS);
    }
    m->norm_weight = parameter(m, s, -1, "norm.weight", IGNIS_SHAPE(width), ONES);
    m->norm_bias = parameter(m, s, -1, "norm.bias", IGNIS_SHAPE(width), ZEROS);
    return m;
}

/*  What attention and MLP find in h [batch, context, width], to be added to x; h is x, normalized. The scope lets go of
    everything in between, apart from what the tape keeps for backward. */
static ignis_tensor block_attend(const model *m, const block *b, ignis_tensor h)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_sdpa_desc attention = {.num_heads = (int)m->heads};
    h = ignis_sdpa_packed(ignis_linear(h, b->qkv_weight, b->qkv_bias), &attention, NULL);
    return ignis_scope_return(scope, ignis_linear(h, b->out_weight, b->out_bias));
}

static ignis_tensor block_think(const block *b, ignis_tensor h)
{
    ignis_scope scope = ignis_scope_begin();
    h = ignis_gelu(ignis_linear(h, b->up_weight, b->up_bias));
    return ignis_scope_return(scope, ignis_linear(h, b->down_weight, b->down_bias));
}

/*  tokens [batch, context] -> what the model makes of each place [batch, context, width]. Adding to x and normalizing
    it for what comes next is one call, as both go through the same memory. */
static ignis_tensor model_apply(const model *m, ignis_tensor tokens)
{
    ignis_tensor x = ignis_add(ignis_embedding(m->bytes, tokens), m->positions);
    ignis_tensor h = ignis_layer_norm(x, m->blocks[0].norm1_weight, m->blocks[0].norm1_bias, 1e-5);
    int i;
    for (i = 0; i < m->layers; i++) {
        const block *b = &m->blocks[i];
        bool is_last = i == m->layers - 1;
        h = ignis_add_layer_norm(x, block_attend(m, b, h), b->norm2_weight, b->norm2_bias, 1e-5, &x);
        h = ignis_add_layer_norm(x, block_think(b, h), is_last ? m->norm_weight : b[1].norm1_weight,
                                 is_last ? m->norm_bias : b[1].norm1_bias, 1e-5, &x);
    }
    return h;
}

/*  Scores of the byte after each place [batch, context, 256], and the loss, which needs no more of them at a time than
    a part. */
static ignis_tensor model_scores(const model *m, ignis_tensor tokens)
{
    return ignis_matmul_t(model_apply(m, tokens), m->bytes);
}

static ignis_tensor model_loss(const model *m, ignis_tensor tokens, ignis_tensor targets)
{
    return ignis_linear_cross_entropy(model_apply(m, tokens), m->bytes, targets, NULL);
}

/* --- a run ------------------------------------------------------------------------------------------------------- */

typedef struct run {
    settings set;
    text text;
    int rank, ranks; /* this process is one of so many; alone, it is 0 of 1 */
    ignis_comm comm; /* between them */
    model *model;
    ignis_parallel parallel; /* makes backward average the gradients over the ranks */
    ignis_optimizer optimizer;
    ignis_training training; /* what ranks that come back take from the others; none without --restarts */
    int64_t part;            /* = batch / ranks: stretches of text for each rank */
    ignis_tensor tokens,
        targets; /* [part, context], filled anew for each step, always the same memory: a graph reads from there */
    int32_t *host_tokens, *host_targets;
    size_t *starts;      /* [part]: where in the text they come from */
    ignis_tensor loss;   /* [1]: of the step that ran last */
    ignis_tensor losses; /* [steps]: collected on the device, so that no step has to wait for its loss to come out */
    float *host_losses;  /* those that were fetched */
    float *validation;   /* [steps + 1]: of the held-out text before that step; 0: not measured there */
    ignis_tensor validations; /* these once more */
    int64_t step, fetched;    /* steps that are done, losses that were fetched */
    ignis_graph graph;
    ignis_tensor stop; /* [1] */
    bool stopped;      /* somebody pressed Ctrl-C */
    double pace;       /* seconds that a step takes */
} run;

/*  Puts the stretches of text that begin at starts into tokens, and what follows each byte into targets. */
static void batch_set(run *r)
{
    int64_t part = r->part, context = r->set.context, i, k;
    for (i = 0; i < part; i++) {
        for (k = 0; k < context; k++) {
            r->host_tokens[i * context + k] = r->text.bytes[r->starts[i] + (size_t)k];
            r->host_targets[i * context + k] = r->text.bytes[r->starts[i] + (size_t)k + 1];
        }
    }
    ignis_array_from_host(ignis_tensor_data(r->tokens), r->host_tokens, IGNIS_I32, part * context);
    ignis_array_from_host(ignis_tensor_data(r->targets), r->host_targets, IGNIS_I32, part * context);
}

/*  Puts the mean over all ranks into the array, on every rank. */
static void average(run *r, ignis_array array) { ignis_comm_all_reduce(r->comm, array, array, IGNIS_OP_AVG); }

static ignis_tensor batch_loss(run *r) { return model_loss(r->model, r->tokens, r->targets); }

static void update_on_device(run *r)
{
    ignis_clip_grad_norm(r->optimizer, 1.0);
    ignis_optimizer_step(r->optimizer);
}

/*  Everything that a step does on the device, and nothing else: this is what a graph captures. After backward the
    gradients are those of the whole batch, on every rank. With --restarts the update comes later. */
static void step_on_device(run *r)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor loss = batch_loss(r);
    ignis_backward(loss, IGNIS_NO_ARRAY);
    ignis_array_copy(ignis_tensor_data(r->loss), ignis_tensor_data(loss));
    average(r, ignis_tensor_data(r->loss));
    if (!r->set.restarts)
        update_on_device(r);
    ignis_scope_end(scope);
}

/*  As check; but with --restarts it returns true if another rank was lost, and what was done last does not count. */
static bool is_rank_lost(const run *r)
{
    ignis_status status = ignis_status_last();
    if (r->set.restarts > 0 && (status == IGNIS_ERROR_PEER || status == IGNIS_ERROR_TIMEOUT))
        return true;
    check();
    return false;
}

/*  steps_before: since the program began. The first steps compile kernels and fill caches; a graph is captured after
    them. With --restarts no rank updates the model before the gradients of all have come. */
static void train_step(run *r, int64_t steps_before)
{
    int64_t first = r->rank * r->part, i;
    for (i = 0; i < r->part; i++)
        r->starts[i] = (size_t)(random_at((uint64_t)r->set.seed, (uint64_t)r->step, (uint64_t)(first + i)) %
                                (r->text.training - (size_t)r->set.context));
    batch_set(r);
    if (r->set.graph && steps_before == 3 && ignis_graph_begin() == IGNIS_OK) {
        step_on_device(r);
        r->graph = ignis_graph_end();
    }
    if (r->graph.id)
        ignis_graph_launch(r->graph);
    else
        step_on_device(r);
    if (r->set.restarts > 0) {
        ignis_comm_synchronize(r->comm);
        if (is_rank_lost(r))
            return;
        update_on_device(r);
        if (is_rank_lost(r)) /* with --shard the update waits for other ranks, too */
            return;
    }
    ignis_array_write_rows(ignis_tensor_data(r->losses), ignis_tensor_data(r->loss), r->step);
    check();
    if (r->set.restarts > 0) {
        ignis_training_mark(r->training, r->step + 1);
        if (is_rank_lost(r))
            return;
    }
    r->step++;
}

/*  Fetches the losses of the steps since the last time. This waits until the device has done them all. */
static void losses_fetch(run *r)
{
    if (r->fetched == r->step)
        return;
    ignis_array piece = ignis_array_slice(ignis_tensor_data(r->losses), 0, r->fetched, r->step - r->fetched);
    ignis_array_to_host(piece, r->host_losses + r->fetched, IGNIS_F32, r->step - r->fetched);
    ignis_array_free(piece);
    check();
    r->fetched = r->step;
}

/*  The mean of the loss over a few stretches of the held-out text, the same ones each time. */
static float validate(run *r)
{
    size_t room = r->text.count - r->text.training - (size_t)r->set.context - 1;
    int64_t batches = 4, first = r->rank * r->part, k, i;
    double sum = 0;
    ignis_no_grad_begin();
    for (k = 0; k < batches; k++) {
        ignis_scope scope = ignis_scope_begin();
        for (i = 0; i < r->part; i++)
            r->starts[i] =
                r->text.training + room * (size_t)(k * r->set.batch + first + i) / (size_t)(batches * r->set.batch);
        batch_set(r);
        ignis_tensor loss = batch_loss(r);
        average(r, ignis_tensor_data(loss));
        sum += ignis_item(loss) / (double)batches;
        ignis_scope_end(scope);
    }
    ignis_no_grad_end();
    if (!is_rank_lost(r)) {
        r->validation[r->step] = (float)sum;
        ignis_array_from_host(ignis_tensor_data(r->validations), r->validation, IGNIS_F32, r->set.steps + 1);
    }
    return (float)sum;
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

/*  Chooses the next byte by the scores. Below 1, temperature prefers the likely ones. */
static int choose(const run *r, const float *scores, double temperature, uint64_t random)
{
    double weights[BYTES], sum = 0, left;
    float highest = -INFINITY;
    int i, last = 0;
    for (i = 0; i < BYTES; i++)
        if (r->text.seen[i] && scores[i] > highest)
            highest = scores[i];
    for (i = 0; i < BYTES; i++) {
        weights[i] = r->text.seen[i] ? exp((scores[i] - highest) / temperature) : 0;
        sum += weights[i];
    }
    left = sum * (double)(random >> 11) / 9007199254740992.0; /* 2^53 */
    for (i = 0; i < BYTES; i++) {
        if (weights[i] > 0) {
            last = i;
            left -= weights[i];
            if (left < 0)
                break;
        }
    }
    return last;
}

/*  How many of the bytes from here on are words with single blanks between them; 0 in the middle of a word. */
static int64_t words_at(const unsigned char *from, const unsigned char *end)
{
    int64_t count = 0;
    if (isalpha(from[-1]))
        return 0;
    while (from + count < end &&
           (isalpha(from[count]) || (count > 0 && from[count] == ' ' && isalpha(from[count - 1]))))
        count++;
    return count;
}

/*  What samples begin with, at most limit bytes of it: the end of --prompt, or the first few words in a row of the
    held-out text, which the model has never seen. Returns how many bytes these are. */
static int64_t prompt_get(const run *r, int32_t *window, int64_t limit)
{
    const char *given = r->set.prompt;
    int64_t wanted = given ? (int64_t)strlen(given) : 24, count = wanted < limit ? wanted : limit, i;
    const unsigned char *from = (const unsigned char *)given, *end = r->text.bytes + r->text.count;
    if (given)
        from += wanted - count;
    else
        for (from = r->text.bytes + r->text.training; from + count < end && words_at(from, end) < count;)
            from++;
    for (i = 0; i < count; i++)
        window[i] = from[i];
    return count;
}

static void byte_print(int byte) { putchar(byte == '\n' || byte >= 128 || isprint(byte) ? byte : ' '); }

/*  Whether the ranks have parts of each weight: then all of them compute what uses the model. */
static bool is_divided(const run *r) { return r->ranks > 1 && r->set.shard == IGNIS_SHARD_PARAMETERS; }

/*  Lets the model go on from the prompt, byte by byte. It sees a window with the last bytes; what stands in the window
    behind them does not matter, as attention only looks back. The first rank prints. */
static void sample_print(run *r)
{
    static const char line[] = "------------------------------------------------------------";
    int64_t context = r->set.context, length, i;
    int32_t *window = (int32_t *)allocate((size_t)context, sizeof *window);
    float scores[BYTES];
    ignis_tensor_desc ids = {.dtype = IGNIS_I32};
    bool prints = r->rank == 0;
    if (prints)
        printf("\n---- what it writes after %lld steps, from the prompt in brackets %s\n[", (long long)r->step,
               line + 25);
    length = prompt_get(r, window, context - 1);
    for (i = 0; prints && i < length; i++)
        byte_print(window[i]);
    if (prints)
        putchar(']');
    ignis_no_grad_begin();
    for (i = 0; i < r->set.sample && ignis_status_last() == IGNIS_OK && (!interrupted || is_divided(r)); i++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor logits = model_scores(r->model, ignis_tensor_from_host(window, IGNIS_SHAPE(1, context), &ids));
        ignis_array rows = ignis_array_reshape(ignis_tensor_data(logits), IGNIS_SHAPE(context, BYTES));
        ignis_array last_row = ignis_array_slice(rows, 0, length - 1, 1);
        ignis_array_to_host(last_row, scores, IGNIS_F32, BYTES);
        ignis_array_free(last_row);
        ignis_array_free(rows);
        ignis_scope_end(scope);
        int next = choose(r, scores, 0.8, random_at((uint64_t)r->set.seed, (uint64_t)r->step, 1000000 + (uint64_t)i));
        if (length == context)
            memmove(window, window + 1, (size_t)(--length) * sizeof *window);
        window[length++] = next;
        if (prints)
            byte_print(next);
        fflush(stdout);
    }
    ignis_no_grad_end();
    check();
    if (prints)
        printf("\n%s\n\n", line);
    free(window);
}

/*  The mean of the losses of the steps from first to before last, of those that there are. */
static float mean_loss(const run *r, int64_t first, int64_t last)
{
    double sum = 0;
    int64_t i;
    first = first > 0 ? first : 0;
    last = last < r->step ? last : r->step;
    for (i = first; i < last; i++)
        sum += r->host_losses[i];
    return (float)(sum / (double)(last - first));
}

/*  On a terminal one line that changes; in a file a line for each twentieth of the way. shown: the step that was
    printed last. */
static void progress_print(const run *r, float validation, int64_t shown)
{
    char bar[31];
    int64_t lines = 20, step = r->step, steps = r->set.steps;
    int i, full = (int)(30 * step / steps), left = (int)(r->pace * (double)(steps - step));
    double tokens = r->pace > 0 ? (double)(r->set.batch * r->set.context) / r->pace : 0;
    bool is_terminal = isatty(STDOUT_FILENO);
    if (!is_terminal && lines * step / steps == lines * shown / steps)
        return;
    for (i = 0; i < 30; i++)
        bar[i] = i < full ? '#' : '.';
    bar[30] = 0;
    printf("%s[%s] %lld/%lld  loss %.3f  held-out %.3f  %.0f tokens/s  %d:%02d left %s", is_terminal ? "\r" : "", bar,
           (long long)step, (long long)steps, mean_loss(r, step - 20, step), validation, tokens, left / 60, left % 60,
           is_terminal ? "" : "\n");
    fflush(stdout);
}

/*  Where the picture shows a step and a loss. */
typedef struct axes {
    double steps, lowest, highest;
} axes;

static double x_of(const axes *a, double step) { return 60 + 820 * step / a->steps; }
static double y_of(const axes *a, double loss) { return 440 - 400 * (loss - a->lowest) / (a->highest - a->lowest); }

/*  The step from mark to mark on an axis: 1, 2 or 5 times a power of ten, for 6 to 12 marks or so. */
static double unit_of(double range)
{
    double unit = pow(10, floor(log10(range / 12)));
    return range <= 12 * 2 * unit ? 2 * unit : range <= 12 * 5 * unit ? 5 * unit : 10 * unit;
}

/*  The loss of each step, its mean over 21 steps, and the loss on held-out text, as an SVG picture with axes. */
static void picture_write(const run *r)
{
    double highest = r->host_losses[0], lowest = highest, unit, mark, at;
    int64_t steps = r->step, i;
    FILE *file = fopen(r->set.out, "w");
    if (!file)
        give_up("cannot write ", r->set.out);
    for (i = 0; i < steps; i++) {
        highest = fmax(highest, r->host_losses[i]);
        lowest = fmin(lowest, r->host_losses[i]);
    }
    unit = unit_of(highest - lowest + 0.1), mark = fmax(1, unit_of((double)steps));
    axes a = {(double)steps, unit * floor(lowest / unit), unit * ceil(highest / unit)};

    fprintf(file,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 900 490' font-family='sans-serif' font-size='13'>\n"
            "<rect width='900' height='490' fill='white'/>\n"
            "<text x='60' y='24'>loss in nats per byte: <tspan fill='#0b5394'>training</tspan>, <tspan "
            "fill='#cc4125'>held-out "
            "text</tspan></text>\n"
            "<text x='880' y='482' text-anchor='end'>step</text>\n");
    for (at = a.lowest; at < a.highest + unit / 2; at += unit)
        fprintf(file, "<path d='M60 %.1fH880' stroke='#dddddd'/><text x='52' y='%.1f' text-anchor='end'>%.1f</text>\n",
                y_of(&a, at), y_of(&a, at) + 4, at);
    for (at = 0; at <= a.steps; at += mark)
        fprintf(file, "<path d='M%.1f 440v6' stroke='black'/><text x='%.1f' y='462' text-anchor='middle'>%.0f</text>\n",
                x_of(&a, at), x_of(&a, at), at);
    fprintf(file,
            "<path d='M60 40V440H880' fill='none' stroke='black'/>\n<polyline fill='none' stroke='#9fc5e8' points='");
    for (i = 0; i < steps; i++)
        fprintf(file, "%.1f,%.1f ", x_of(&a, (double)i), y_of(&a, r->host_losses[i]));
    fprintf(file, "'/>\n<polyline fill='none' stroke='#0b5394' stroke-width='2' points='");
    for (i = 0; i < steps;
         i++) { /* the mean of as many steps on either side, so that the curve begins and ends where the loss did */
        int64_t side = i < 10 ? i : steps - 1 - i < 10 ? steps - 1 - i : 10;
        fprintf(file, "%.1f,%.1f ", x_of(&a, (double)i), y_of(&a, mean_loss(r, i - side, i + side + 1)));
    }
    fprintf(file, "'/>\n<polyline fill='none' stroke='#cc4125' stroke-width='2' points='");
    for (i = 0; i <= steps; i++)
        if (r->validation[i] > 0)
            fprintf(file, "%.1f,%.1f ", x_of(&a, (double)i), y_of(&a, fmin(r->validation[i], a.highest)));
    fprintf(file, "'/>\n</svg>\n");
    if (fclose(file) != 0)
        give_up("cannot write ", r->set.out);
}

/* --- saving and resuming ----------------------------------------------------------------------------------------- */

/*  What the file holds, under these names: the parameters, what the optimizer remembers of each, the settings, the
    course of the loss. */
typedef struct contents {
    ignis_tensor tensors[5 * MAX_PARAMETERS + 8];
    char texts[5 * MAX_PARAMETERS + 8][48];
    const char *names[5 * MAX_PARAMETERS + 8];
    int count;
} contents;

static void contents_add(contents *c, const char *prefix, const char *name, ignis_tensor tensor)
{
    snprintf(c->texts[c->count], sizeof c->texts[0], "%s%s", prefix, name);
    c->names[c->count] = c->texts[c->count];
    c->tensors[c->count++] = tensor;
}

/*  Parameters and optimizer, unless ranks have parts of its state. These exist
    before a file is read, so ignis_load writes into them. */
static contents *contents_of_run(run *r)
{
    static const char *const parts[] = {"", "adamw.first.", "adamw.second.", "adamw.master.", "adamw.missed."};
    contents *c = (contents *)allocate(1, sizeof *c);
    int i, part;
    contents_add(c, "", "adamw",
                 ignis_tensor_from_array(ignis_optimizer_state(r->optimizer, 0, IGNIS_OPTIMIZER_SELF), false));
    for (i = 0; i < r->model->count; i++) {
        contents_add(c, "", r->model->names[i], r->model->parameters[i]);
        for (part = IGNIS_OPTIMIZER_FIRST; !r->set.shard && part <= IGNIS_OPTIMIZER_MISSED; part++) {
            ignis_array array = ignis_optimizer_state(r->optimizer, i, (ignis_optimizer_part)part);
            if (array.id) /* in f32 there is no master copy */
                contents_add(c, parts[part], r->model->names[i], ignis_tensor_from_array(array, false));
        }
    }
    return c;
}

/*  Makes whole parameters of those that ranks have parts of: all ranks read them together, and one of them saves. */
static void run_gather(run *r)
{
    int i;
    for (i = 0; is_divided(r) && i < r->model->count; i++) {
        ignis_array whole = ignis_array_clone(ignis_tensor_data(r->model->parameters[i]));
        ignis_tensor_release(r->model->parameters[i]);
        r->model->parameters[i] = ignis_tensor_from_array(whole, false);
        ignis_array_free(whole);
    }
    check();
}

static void run_save(run *r)
{
    ignis_scope scope = ignis_scope_begin();
    contents *c = contents_of_run(r);
    ignis_tensor_desc integers = {.dtype = IGNIS_I64}, number = {.dtype = IGNIS_F64};
    int64_t numbers[SAVED_NUMBERS];
    int i;
    r->set.done = r->step;
    for (i = 0; i < SAVED_NUMBERS; i++)
        numbers[i] = *saved_number(&r->set, i);
    contents_add(c, "run.", "settings", ignis_tensor_from_host(numbers, IGNIS_SHAPE(SAVED_NUMBERS), &integers));
    contents_add(c, "run.", "learning_rate", ignis_tensor_from_host(&r->set.lr, IGNIS_SHAPE(1), &number));
    contents_add(c, "run.", "losses", ignis_tensor_from_host(r->host_losses, IGNIS_SHAPE(r->step), NULL));
    contents_add(c, "run.", "validation", ignis_tensor_from_host(r->validation, IGNIS_SHAPE(r->step + 1), NULL));
    ignis_save(r->set.save, c->names, c->tensors, c->count);
    ignis_scope_end(scope);
    free(c);
    check();
}

static FILE *export_begin(const char *folder, const char *name)
{
    char path[1024];
    FILE *file = snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path ? fopen(path, "wb") : NULL;
    if (!file)
        give_up("cannot write the exported ", name);
    return file;
}

static void export_end(FILE *file, const char *name)
{
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed)
        give_up("cannot write the exported ", name);
}

/*  A tokenizer whose ids are the bytes themselves: nothing is split, nothing joined. In such files each byte has a
    letter: visible ones of Latin-1 their own, the others what comes from U+0100 on. */
static void export_tokenizer(const run *r)
{
    FILE *file = export_begin(r->set.folder, "tokenizer.json");
    int byte, others = 0;
    fprintf(
        file,
        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": null,\n"
        " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
        "\"use_regex\": false},\n"
        " \"post_processor\": null,\n"
        " \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": "
        "false},\n"
        " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null,\n"
        "  \"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"vocab\": {");
    for (byte = 0; byte < BYTES; byte++) {
        bool visible = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        fprintf(file, "%s\"\\u%04x\": %d",
                byte == 0  ? ""
                : byte % 8 ? ", "
                           : ",\n   ",
                (unsigned)(visible ? byte : 256 + others++), byte);
    }
    fprintf(file, "},\n  \"merges\": []}}\n");
    export_end(file, "tokenizer.json");
    file = export_begin(r->set.folder, "tokenizer_config.json");
    fprintf(file,
            "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"model_max_length\": %lld, "
            "\"clean_up_tokenization_spaces\": false}\n",
            (long long)r->model->context);
    export_end(file, "tokenizer_config.json");
}

/*  Writes the model as Hugging Face has GPT-2: other names, and matrices the other way round, [in, out]. */
static void run_export(run *r)
{
    static const char *const names[][2] = {
        {"bytes", "wte.weight"},    {"positions", "wpe.weight"}, {"norm.weight", "ln_f.weight"},
        {"norm.bias", "ln_f.bias"}, {"norm1", "ln_1"},           {"qkv", "attn.c_attn"},
        {"out", "attn.c_proj"},     {"norm2", "ln_2"},           {"up", "mlp.c_fc"},
        {"down", "mlp.c_proj"}};
    const model *m = r->model;
    ignis_scope scope = ignis_scope_begin();
    contents *c = (contents *)allocate(1, sizeof *c);
    char path[1024], name[48], part[16];
    FILE *file;
    int i, k, block = 0;
    mkdir(r->set.folder, 0777); /* it may be there */
    for (i = 0; i < m->count; i++) {
        bool in_block = sscanf(m->names[i], "block.%d.%15[a-z0-9]", &block, part) == 2;
        for (k = 0; strcmp(in_block ? part : m->names[i], names[k][0]) != 0; k++)
            continue;
        snprintf(name, sizeof name, "h.%d.%s%s", block, names[k][1], strrchr(m->names[i], '.'));
        contents_add(c, "transformer.", in_block ? name : names[k][1],
                     in_block && m->is_matrix[i] ? ignis_transpose(m->parameters[i], 0, 1) : m->parameters[i]);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", r->set.folder);
    ignis_save(path, c->names, c->tensors, c->count);
    ignis_scope_end(scope);
    free(c);
    check();
    file = export_begin(r->set.folder, "config.json");
    fprintf(
        file,
        "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", \"vocab_size\": %d, \"n_positions\": "
        "%lld, \"n_embd\": "
        "%lld,\n"
        " \"n_layer\": %d, \"n_head\": %lld, \"n_inner\": %lld, \"activation_function\": \"gelu_new\", "
        "\"layer_norm_epsilon\": 1e-5,\n"
        " \"torch_dtype\": \"%s\", \"tie_word_embeddings\": true, \"bos_token_id\": null, \"eos_token_id\": null}\n",
        BYTES, (long long)m->context, (long long)m->width, m->layers, (long long)m->heads, (long long)(4 * m->width),
        r->set.bf16 ? "bfloat16" : "float32");
    export_end(file, "config.json");
    export_tokenizer(r);
}

/*  The settings that a file was saved with: the sizes of the model must be known before it can be made. */
static void settings_load(settings *s)
{
    static const char *const names[] = {"run.settings", "run.learning_rate"};
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor tensors[2] = {{0}, {0}};
    int64_t numbers[SAVED_NUMBERS] = {0};
    int i;
    ignis_load(s->resume, names, tensors, 2);
    ignis_tensor_to_host(tensors[0], numbers, IGNIS_I64, SAVED_NUMBERS);
    ignis_tensor_to_host(tensors[1], &s->lr, IGNIS_F64, 1);
    ignis_scope_end(scope);
    check();
    for (i = 0; i < SAVED_NUMBERS; i++)
        *saved_number(s, i) = numbers[i];
}

static void run_load(run *r)
{
    ignis_scope scope = ignis_scope_begin();
    contents *c = contents_of_run(r);
    int first = c->count;
    contents_add(c, "run.", "losses", (ignis_tensor){0});
    contents_add(c, "run.", "validation", (ignis_tensor){0});
    ignis_load(r->set.resume, c->names, c->tensors, c->count);
    ignis_tensor_to_host(c->tensors[first], r->host_losses, IGNIS_F32, r->set.done);
    ignis_tensor_to_host(c->tensors[first + 1], r->validation, IGNIS_F32, r->set.done + 1);
    ignis_scope_end(scope);
    free(c);
    ignis_optimizer_set_lr(r->optimizer, r->set.lr);
    check();
    r->step = r->fetched = r->set.done;
}

/* --- several GPUs --------------------------------------------------------------------------------------------------
   */

/*  Starts this program as a rank. */
static pid_t rank_start(int rank, char **argv)
{
    char text[16];
    pid_t child;
    snprintf(text, sizeof text, "%d", rank);
    setenv("IGNIS_RANK", text, 1);
    setenv("IGNIS_LOCAL_RANK", text, 1);
    child = fork();
    if (child == 0) {
        execvp(argv[0], argv);
        give_up("cannot start ", argv[0]);
    }
    if (child < 0)
        give_up("cannot start another process", "");
    return child;
}

/*  Runs this program once for each GPU, as processes that meet in a folder of their own. One that fails is started
    again, `restarts` times in all; then the others are ended, too. When rank 0 has ended well, all is written: no other
    is started again, and one that was, and now waits for rank 0, is ended. Returns the exit code. */
static int run_on_gpus(int gpus, int64_t restarts, char **argv)
{
    char folder[] = "/tmp/train_gpt_XXXXXX", text[64];
    pid_t *ranks = (pid_t *)allocate((size_t)gpus, sizeof *ranks), ended;
    int64_t left = restarts;
    int i, status, result = 0;
    bool is_over = false;
    if (!mkdtemp(folder))
        give_up("cannot make the folder ", folder);
    setenv("IGNIS_COMM_LAUNCHER", "ignis", 1); /* of the names that ignis_comm_init knows rank and size by, these */
    setenv("IGNIS_COMM_DIR", folder, 1);
    snprintf(text, sizeof text, "%d", gpus);
    setenv("IGNIS_WORLD_SIZE", text, 1);
    for (i = 0; i < gpus; i++)
        ranks[i] = rank_start(i, argv);
    while ((ended = wait(&status)) > 0 || errno == EINTR) {
        for (i = 0; i < gpus && ranks[i] != ended; i++)
            continue;
        if (i == gpus)
            continue;
        ranks[i] = 0;
        if (i == 0 && status == 0 && restarts > 0) {
            is_over = true;
            sleep(left < restarts ? 2 : 0); /* the others end, too */
            for (i = 0; i < gpus && left < restarts; i++)
                if (ranks[i] > 0)
                    kill(ranks[i], SIGTERM);
        }
        if (status == 0 || is_over)
            continue;
        if (left-- > 0) {
            fprintf(stderr, "train_gpt: rank %d was lost and starts again\n", i);
            ranks[i] = rank_start(i, argv);
            continue;
        }
        if (!result)
            sleep(2); /* the others have heard of it, and say so */
        result = 1;
        for (i = 0; i < gpus; i++)
            if (ranks[i] > 0)
                kill(ranks[i], SIGTERM);
    }
    if (rmdir(folder) != 0) { /* a process that was killed has left the sockets where it was met */
        snprintf(text, sizeof text, "rm -r %s", folder);
        result |= system(text) != 0;
    }
    free(ranks);
    return result;
}

/*  Meets the other ranks, and takes the GPU that is this one's. */
static void run_meet(run *r)
{
    /* they wait for each other, as while the first one writes; with --restarts also for one that says nothing */
    ignis_comm_desc desc = {.timeout_s = 300, .heartbeat_s = r->set.restarts > 0 ? 30 : 0};
    ignis_comm_info info = {.size = 1};
    r->comm = ignis_comm_init(&desc);
    ignis_comm_query(r->comm, &info);
    ignis_device_use(info.device);
    check();
    r->rank = info.rank, r->ranks = info.size;
}

/*  Meets the ranks that are left, and those that take the place of the others, when one was lost. Takes the training
    from the memory of another rank, or goes back to the last step that all have done. False if the others do not
    come. */
static bool run_join(run *r, bool is_lost)
{
    int attempt;
    for (attempt = 0; attempt < 3; attempt++, is_lost = true) {
        ignis_status_clear();
        if (is_lost) {
            ignis_comm grown = ignis_comm_grow(r->comm, NULL);
            if (!grown.id)
                continue;
            if (r->graph.id)
                ignis_graph_free(r->graph);
            r->graph = (ignis_graph){0};
            ignis_parallel_regroup(r->parallel, grown); /* new ranks call ignis_parallel_create */
            ignis_comm_destroy(r->comm);
            r->comm = grown;
        }
        if (ignis_status_last() == IGNIS_OK &&
            ignis_training_regroup(r->training, ignis_comm_ranks(r->comm), &r->step) == IGNIS_OK) {
            r->fetched = 0;
            ignis_tensor_to_host(r->validations, r->validation, IGNIS_F32, r->set.steps + 1);
            check();
            return true;
        }
        if (ignis_status_last() == IGNIS_ERROR_UNSUPPORTED) /* all copies of a part are lost */
            check();
    }
    ignis_status_clear();
    return false;
}

/*  Whether somebody has pressed Ctrl-C. All ranks have to stop after the same step, so they ask each other. */
static bool stop_wanted(run *r)
{
    ignis_array stop = ignis_tensor_data(r->stop);
    float flag = (float)interrupted;
    ignis_array_from_host(stop, &flag, IGNIS_F32, 1);
    ignis_comm_all_reduce(r->comm, stop, stop, IGNIS_OP_MAX);
    ignis_array_to_host(stop, &flag, IGNIS_F32, 1);
    return !is_rank_lost(r) && flag > 0;
}

/* --- all together ------------------------------------------------------------------------------------------------ */

/*  Names what a rank that comes back takes from the others. */
static void training_make(run *r)
{
    static const char *const state_names[] = {"losses", "validations"};
    const char *names[MAX_PARAMETERS];
    ignis_tensor state[2];
    ignis_training_desc desc = {.tensors = r->model->parameters, .count = r->model->count, .optimizer_count = 1};
    int i;
    for (i = 0; i < r->model->count; i++)
        names[i] = r->model->names[i];
    state[0] = r->losses, state[1] = r->validations;
    desc.names = names, desc.optimizers = &r->optimizer;
    desc.state_names = state_names, desc.state = state, desc.state_count = 2;
    r->training = ignis_training_create(&desc);
}

static void run_begin(run *r)
{
    const settings *s = &r->set;
    ignis_tensor_desc ids = {.dtype = IGNIS_I32};
    ignis_schedule_desc schedule = {
        .kind = IGNIS_SCHEDULE_COSINE, .warmup = s->steps / 20, .total = s->steps, .floor = 0.1};
    ignis_adamw_desc adamw = {.lr = s->lr, .beta2 = 0.99, .weight_decay = 0.1, .schedule = schedule, .drop_grad = true};
    ignis_parallel_desc parallel = {
        .shard = s->shard, .shard_ranks = (int)s->shard_ranks, .no_broadcast = s->restarts > 0};
    size_t numbers;
    int i;
    r->part = s->batch / r->ranks;
    numbers = (size_t)(r->part * s->context);
    r->text = text_read(s->text, (size_t)s->context);
    r->model = model_make(s);
    r->parallel = ignis_parallel_create(r->comm, r->model->parameters, r->model->count, &parallel);
    r->optimizer = ignis_adamw(&adamw);
    for (i = 0; i < r->model->count; i++) /* weight decay is for matrices; biases and norms stay as they want */
        ignis_optimizer_add(r->optimizer, r->model->parameters[i], r->model->is_matrix[i]);
    r->tokens = ignis_tensor_zeros(IGNIS_SHAPE(r->part, s->context), &ids);
    r->targets = ignis_tensor_zeros(IGNIS_SHAPE(r->part, s->context), &ids);
    r->loss = ignis_tensor_zeros(IGNIS_SHAPE(1), NULL);
    r->stop = ignis_tensor_zeros(IGNIS_SHAPE(1), NULL);
    r->losses = ignis_tensor_zeros(IGNIS_SHAPE(s->steps), NULL);
    r->host_tokens = (int32_t *)allocate(numbers, sizeof(int32_t));
    r->host_targets = (int32_t *)allocate(numbers, sizeof(int32_t));
    r->starts = (size_t *)allocate((size_t)r->part, sizeof(size_t));
    r->host_losses = (float *)allocate((size_t)s->steps, sizeof(float));
    r->validation = (float *)allocate((size_t)s->steps + 1, sizeof(float));
    r->validations = ignis_tensor_zeros(IGNIS_SHAPE(s->steps + 1), NULL);
    if (s->restarts > 0)
        training_make(r);
    check();
}

static void run_end(run *r)
{
    int i;
    if (r->graph.id)
        ignis_graph_free(r->graph);
    ignis_training_free(r->training);
    ignis_optimizer_free(r->optimizer);
    ignis_parallel_free(r->parallel);
    ignis_comm_destroy(r->comm);
    for (i = 0; i < r->model->count; i++)
        ignis_tensor_release(r->model->parameters[i]);
    ignis_tensor_release(r->tokens);
    ignis_tensor_release(r->targets);
    ignis_tensor_release(r->loss);
    ignis_tensor_release(r->stop);
    ignis_tensor_release(r->losses);
    ignis_tensor_release(r->validations);
    free(r->model);
    free(r->text.bytes);
    free(r->host_tokens);
    free(r->host_targets);
    free(r->starts);
    free(r->host_losses);
    free(r->validation);
}

/*  look_every: so many steps go by before the program waits for the device to see what the loss is. */
static void train(run *r, int64_t look_every)
{
    int64_t steps = r->set.steps, validate_every = steps < 20 ? 1 : steps / 20,
            sample_every = steps < 4 ? 1 : steps / 4;
    int64_t steps_before = 0, looked_at = r->step, i;
    float validation = 0;
    double since = seconds(), pace;
    for (i = r->step; i >= 0 && validation == 0; i--) /* of a run that goes on */
        validation = r->validation[i];
    for (;;) {
        if (is_rank_lost(r)) {
            bool is_joined = run_join(r, true);
            if (!is_joined && r->step < steps)
                give_up("the other ranks did not come", "");
            if (!is_joined) /* they have finished */
                break;
            steps_before = 0, looked_at = r->step; /* as those that have just come */
        }
        bool is_last = r->stopped || r->step >= steps, is_first_rank = r->rank == 0;
        if (r->step % validate_every == 0 || is_last)
            validation = validate(r);
        if (is_rank_lost(r))
            continue;
        if ((is_first_rank || is_divided(r)) && r->set.sample > 0 && !r->stopped &&
            (r->step % sample_every == 0 || is_last || steps_before == 0))
            sample_print(r);
        if (is_last)
            break;
        if (r->step == looked_at)
            since = seconds();
        train_step(r, steps_before++);
        if (is_rank_lost(r))
            continue;
        if (r->step % look_every == 0 || r->step == steps) {
            losses_fetch(r);
            r->stopped = stop_wanted(r);
            pace = (seconds() - since) / (double)(r->step - looked_at);
            r->pace = steps_before <= 2 * look_every ? pace : 0.9 * r->pace + 0.1 * pace;
            if (is_first_rank)
                progress_print(r, validation, looked_at);
            looked_at = r->step;
            since = seconds();
        }
    }
    losses_fetch(r);
}

int main(int argc, char **argv)
{
    static run r;
    settings asked = {0};
    ignis_device_info device;
    int64_t i, parameters = 0;

    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            printf("%s", help);
            return 0;
        }
    }
    settings_read(&asked, argc, argv);
    if (asked.gpus > 1 && !getenv("IGNIS_RANK"))
        return run_on_gpus((int)asked.gpus, asked.restarts, argv);
    ignis_setup(NULL);
    r.set.restarts = asked.restarts;
    run_meet(&r);
    ignis_device_query(ignis_device_current(), &device);
    check();
    int is_simulator = strncmp(device.name, "Ignis Simulator", 15) == 0;
    r.set = settings_default(is_simulator);
    settings_read(&r.set, argc, argv);
    if (r.set.resume) {
        settings_load(&r.set);
        settings_read(&r.set, argc, argv); /* once more: the command line is stronger than the file */
    }
    settings_check(&r.set, r.ranks);
    if (!r.set.text)
        r.set.text = text_find(argv[0]);
    run_begin(&r);
    if (r.set.resume)
        run_load(&r);
    if (r.set.restarts > 0) {
        ignis_training_mark(r.training, r.step);
        if (!run_join(&r, false))
            give_up("the other ranks did not come", "");
    }
    for (i = 0; i < r.model->count; i++)
        parameters += ignis_array_numel(ignis_tensor_data(r.model->parameters[i]));
    if (r.rank == 0)
        printf("%d x %s: %zu bytes of text, %lld parameters, %lld x %lld bytes a step\n", r.ranks, device.name,
               r.text.count, (long long)parameters, (long long)r.set.batch, (long long)r.set.context);
    signal(SIGINT, on_interrupt);

    train(&r, is_simulator ? 1 : 10);

    run_gather(&r);
    if (r.rank > 0) { /* the first one does the rest for all */
        run_end(&r);
        return ignis_shutdown() != IGNIS_OK;
    }
    run_save(&r);
    if (r.set.folder)
        run_export(&r);
    printf("\n");
    if (r.stopped && !r.set.shard)
        printf("Interrupted after step %lld; this goes on: train_gpt %s --resume %s\n", (long long)r.step, r.set.text,
               r.set.save);
    if (r.step > 0) {
        picture_write(&r);
        printf("The loss fell from %.3f to %.3f, on held-out text from %.3f to %.3f. The picture is %s, the model is "
               "%s.\n",
               r.host_losses[0], mean_loss(&r, r.step - 20, r.step), r.validation[0], r.validation[r.step], r.set.out,
               r.set.save);
    }
    run_end(&r);
    return ignis_shutdown() != IGNIS_OK;
}
