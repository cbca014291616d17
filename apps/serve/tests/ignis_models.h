// SPDX-License-Identifier: MIT
/*  ignis_models.h - what the server asks of Ignis, without a model: `make check-serve` builds the server with it, to
    test its HTTP

    A token is a byte, 256 begins a text, 257 ends it. The answer repeats the prompt's text, or of a chat its last
    message, and ends; at a temperature above 1 it is letters that follow from the seed. What a text begins with gives
    orders:
        #N ...       repeats N times
        !variables   the variables of the chat template
        !fail        the step fails, for all sequences beside it, too
        !prompt      feeding the prompt fails
    A token with a bias of -1 or less is said as _.
    SERVE_STEP_MS: how long a step takes. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum ignis_status { IGNIS_OK, IGNIS_ERROR_ARGUMENT } ignis_status;
typedef struct ignis_model {
    uint64_t id;
} ignis_model;
typedef struct ignis_tokenizer {
    uint64_t id;
} ignis_tokenizer;
typedef struct ignis_sequence {
    uint64_t id;
} ignis_sequence;
typedef enum ignis_model_family {
    IGNIS_MODEL_LLAMA,
    IGNIS_MODEL_BERT,
    IGNIS_MODEL_NOMIC_BERT,
    IGNIS_MODEL_ROBERTA,
    IGNIS_MODEL_XLM_ROBERTA
} ignis_model_family;
typedef struct ignis_embed_desc {
    bool truncate;
} ignis_embed_desc;
typedef enum ignis_cache_type {
    IGNIS_CACHE_DEFAULT,
    IGNIS_CACHE_F8,
    IGNIS_CACHE_Q8_0,
    IGNIS_CACHE_Q4_0
} ignis_cache_type;
typedef struct ignis_model_desc {
    const char *path;
    int context, sequences;
    ignis_cache_type cache_type;
} ignis_model_desc;
typedef struct ignis_model_info {
    int64_t weight_bytes, cache_bytes, workspace_bytes;
    ignis_model_family family;
    int context, vocab, hidden;
    int32_t ends[16];
    int end_count;
} ignis_model_info;
typedef struct ignis_memory_info {
    int64_t device_free;
} ignis_memory_info;
typedef struct ignis_model_warmup_desc {
    int tokens;
    bool (*progress_fn)(int done, int total, void *user_data);
    void *user_data;
} ignis_model_warmup_desc;
typedef struct ignis_tokenizer_info {
    int tokens, eos;
    bool has_template;
} ignis_tokenizer_info;
typedef struct ignis_encode_desc {
    bool no_bos, plain;
} ignis_encode_desc;
typedef struct ignis_message {
    const char *role, *content;
} ignis_message;
typedef struct ignis_chat_desc {
    bool add_generation_prompt;
    const char *json;
} ignis_chat_desc;
typedef struct ignis_decode_desc {
    bool control;
} ignis_decode_desc;
typedef struct ignis_lora {
    uint64_t id;
} ignis_lora;
typedef enum ignis_dtype { IGNIS_F32, IGNIS_I32, IGNIS_I64 } ignis_dtype;
typedef struct ignis_shape {
    int64_t dim[8];
} ignis_shape;
typedef struct ignis_tensor {
    uint64_t id;
} ignis_tensor;
typedef struct ignis_tensor_desc {
    ignis_dtype dtype;
} ignis_tensor_desc;
typedef struct ignis_prefix_desc {
    uint64_t boundary;
} ignis_prefix_desc;
typedef struct ignis_prefix_info {
    int64_t found;
} ignis_prefix_info;
typedef struct ignis_scope {
    uint64_t id;
} ignis_scope;
#define IGNIS_SHAPE(...) fake_shape(__VA_ARGS__, 0)
typedef struct ignis_logit_bias {
    int32_t id;
    float bias;
} ignis_logit_bias;
typedef struct ignis_text_stream {
    ignis_tokenizer tokenizer;
    bool inside, control;
    char held[4];
    int held_count;
} ignis_text_stream;
typedef struct ignis_sequence_info {
    int length;
    double log_prob;
} ignis_sequence_info;
typedef struct ignis_sampling_desc {
    double temperature, top_p, min_p, repetition_penalty;
    int top_k;
    uint64_t seed;
    const ignis_logit_bias *biases;
    int bias_count;
} ignis_sampling_desc;

typedef struct fake_sequence {
    int32_t *ids;
    int length, prompt; /* where the answer begins */
    int64_t boundary;   /* -1: it shares no prefix */
    bool adapted;       /* it says capital letters */
    char grammar[4096]; /* what is said, if it is not empty */
} fake_sequence;

static _Thread_local ignis_status fake_last;
static int fake_live; /* sequences */
static int fake_context, fake_most;

static const char *ignis_version_string(void) { return "0"; }
static ignis_status ignis_status_last(void) { return fake_last; }
static const char *ignis_status_message(void) { return "the fake has failed as it was told to: \"quoted\""; }
static void ignis_status_clear(void) { fake_last = IGNIS_OK; }
static ignis_status ignis_setup(const void *desc) { return (void)desc, IGNIS_OK; }
static void fake_sleep(void)
{
    const char *ms = getenv("SERVE_STEP_MS");
    struct timespec pause = {0, ms ? atol(ms) * 1000000 : 0};
    if (ms)
        nanosleep(&pause, NULL);
}

static ignis_status ignis_shutdown(void)
{
    if (fake_live)
        fprintf(stderr, "fake: %d sequences were not freed\n", fake_live);
    return fake_live ? IGNIS_ERROR_ARGUMENT : IGNIS_OK;
}

/*  SERVE_ROOM: sequences that there is memory for. */
static ignis_status ignis_model_inspect(const ignis_model_desc *desc, ignis_model_info *info)
{
    memset(info, 0, sizeof *info);
    info->weight_bytes = 100;
    info->cache_bytes = 10 * desc->sequences;
    return IGNIS_OK;
}

static ignis_status ignis_memory_query(int device, ignis_memory_info *info)
{
    const char *room = getenv("SERVE_ROOM");
    (void)device;
    info->device_free = room ? (100 + 10 * atol(room)) * 10 / 9 + 1 : INT64_MAX;
    return IGNIS_OK;
}

static ignis_status ignis_model_warmup(ignis_model model, const ignis_model_warmup_desc *desc)
{
    (void)model;
    if (desc->progress_fn && (!desc->progress_fn(0, 1, desc->user_data) || !desc->progress_fn(1, 1, desc->user_data)))
        fprintf(stderr, "fake: warming up was stopped\n"), abort();
    return IGNIS_OK;
}

static ignis_model ignis_model_open(const ignis_model_desc *desc)
{
    ignis_model model = {1};
    fake_context = desc->context ? desc->context : 4096;
    fake_most = desc->sequences;
    return model;
}

static ignis_status ignis_model_free(ignis_model model) { return (void)model, IGNIS_OK; }
static ignis_status ignis_model_query(ignis_model model, ignis_model_info *info)
{
    (void)model;
    memset(info, 0, sizeof *info);
    info->context = fake_context;
    info->vocab = 300;
    info->hidden = 2;
    info->family = getenv("SERVE_ENCODER") ? IGNIS_MODEL_BERT : IGNIS_MODEL_LLAMA;
    info->ends[0] = 257;
    info->end_count = 1;
    return IGNIS_OK;
}
static ignis_tokenizer ignis_model_tokenizer(ignis_model model)
{
    ignis_tokenizer tokenizer = {model.id};
    return tokenizer;
}
static ignis_status ignis_tokenizer_query(ignis_tokenizer tokenizer, ignis_tokenizer_info *info)
{
    (void)tokenizer;
    info->tokens = 258;
    info->eos = 257;
    info->has_template = !getenv("SERVE_NO_TEMPLATE");
    return IGNIS_OK;
}

static int ignis_tokenizer_encode(ignis_tokenizer tokenizer, const char *text, int64_t size,
                                  const ignis_encode_desc *desc, int32_t *ids, int capacity)
{
    int i;
    (void)tokenizer, (void)desc;
    for (i = 0; i < capacity && i <= size; i++)
        ids[i] = i ? (unsigned char)text[i - 1] : 256;
    return (int)size + 1;
}

static int ignis_tokenizer_piece(ignis_tokenizer tokenizer, int32_t id, char *out, int capacity)
{
    (void)tokenizer;
    if (capacity)
        *out = (char)id;
    return id < 256;
}

static int ignis_text_stream_put(ignis_text_stream *s, int32_t id, char *out, int capacity)
{
    int i;
    (void)capacity;
    if (id >= 256)
        return 0;
    if (s->held_count && (id & 0xC0) != 0x80) /* it was no character */
        s->held_count = 0;
    s->held[s->held_count++] = (char)id;
    if (s->held_count < (id < 0x80 ? 1 : (s->held[0] & 0xE0) == 0xC0 ? 2 : (s->held[0] & 0xF0) == 0xE0 ? 3 : 4))
        return 0;
    for (i = 0; i < s->held_count; i++)
        out[i] = s->held[i];
    s->held_count = 0;
    return i;
}

static int ignis_text_stream_end(ignis_text_stream *s, char *out, int capacity)
{
    int size = s->held_count ? 3 : 0;
    (void)capacity;
    memcpy(out, "\xEF\xBF\xBD", (size_t)size);
    s->held_count = 0;
    return size;
}

static int64_t ignis_tokenizer_decode(ignis_tokenizer tokenizer, const int32_t *ids, int count,
                                      const ignis_decode_desc *desc, char *out, int64_t capacity)
{
    int i, size = 0;
    (void)tokenizer, (void)desc;
    for (i = 0; i < count; i++)
        if (ids[i] < 256) {
            if (size < capacity)
                out[size] = (char)ids[i];
            size++;
        }
    return size;
}

/*  SERVE_PROBE: what the template makes of a talk with tools; SERVE_PROBE_QUESTION: if it ends with the question;
    SERVE_PROBE_WORDS, SERVE_PROBE_THOUGHT: if the model says words, or thinks. */
static int64_t ignis_chat_render(ignis_tokenizer tokenizer, const ignis_message *messages, int count,
                                 const ignis_chat_desc *desc, char *out, int64_t capacity)
{
    const bool answers = strstr(desc->json, "the_words") != NULL, asks = !strstr(desc->json, "assistant");
    const char *probe = getenv(answers                             ? "SERVE_PROBE_WORDS"
                               : strstr(desc->json, "the_thought") ? "SERVE_PROBE_THOUGHT"
                               : asks                              ? "SERVE_PROBE_QUESTION"
                                                                   : "SERVE_PROBE");
    (void)tokenizer, (void)messages, (void)count;
    probe = probe ? probe : getenv("SERVE_PROBE");
    probe = probe ? probe : "the_name <tool_call> v1 the_result";
    memcpy(out ? out : (char *)&fake_last, probe, out ? (size_t)capacity : 0);
    return (int64_t)strlen(probe);
}

/*  Reads a JSON string as the server writes it. */
static const char *fake_string(const char *at, char *out, size_t capacity)
{
    static const char hex[] = "0123456789abcdef";
    size_t size = 0;
    for (at++; *at != '"'; at++) {
        char c = *at;
        if (c == '\\') {
            c = *++at;
            if (c == 'n')
                c = '\n';
            if (c == 'u') {
                c = (char)(16 * (strchr(hex, at[3]) - hex) + (strchr(hex, at[4]) - hex));
                at += 4;
            }
        }
        if (size + 1 < capacity)
            out[size++] = c;
    }
    out[size] = 0;
    return at + 1;
}

/*  "role: content" of all messages but the last one, whose content follows 256. */
static int ignis_chat_encode(ignis_tokenizer tokenizer, const ignis_message *messages, int count,
                             const ignis_chat_desc *desc, int32_t *ids, int capacity)
{
    static _Thread_local char all[70000], last[70000], role[70000], skipped[70000];
    const char *at = strstr(desc->json, "\"messages\":[") + 12;
    int i, depth = 0, before, size;
    bool first = true;
    (void)tokenizer, (void)messages, (void)count;
    all[0] = last[0] = role[0] = 0;
    while (depth > 0 || *at != ']') {
        if (*at == '{' && depth++ == 0) {
            if (!first && strlen(all) + strlen(last) + strlen(role) + 100 < sizeof all)
                strcat(strcat(strcat(strcat(all, role), ": "), last), "\n");
            first = false;
        }
        depth -= *at == '}';
        if (*at != '"')
            at++;
        else if (depth == 1 && strncmp(at, "\"role\":", 7) == 0)
            at = fake_string(at + 7, role, sizeof role);
        else if (depth == 1 && strncmp(at, "\"content\":", 10) == 0)
            at = fake_string(at + 10, last, sizeof last);
        else
            at = fake_string(at, skipped, sizeof skipped);
    }
    if (strcmp(last, "!template") == 0) {
        fake_last = IGNIS_ERROR_ARGUMENT;
        return -1;
    }
    if (strcmp(last, "!variables") == 0)
        snprintf(last, sizeof last, "%s", desc->json);
    before = (int)strlen(all);
    size = (int)strlen(last);
    for (i = 0; i < capacity && i < before + 1 + size; i++)
        ids[i] = i < before ? (unsigned char)all[i] : i == before ? 256 : (unsigned char)last[i - before - 1];
    return before + 1 + size;
}

static ignis_sequence ignis_sequence_begin(ignis_model model)
{
    ignis_sequence sequence;
    fake_sequence *s = (fake_sequence *)calloc(1, sizeof *s);
    (void)model;
    s->ids = (int32_t *)calloc((size_t)fake_context, sizeof *s->ids);
    s->boundary = -1;
    if (++fake_live > fake_most)
        fprintf(stderr, "fake: too many sequences\n"), abort();
    sequence.id = (uint64_t)(uintptr_t)s;
    return sequence;
}

static fake_sequence *fake_of(ignis_sequence sequence) { return (fake_sequence *)(uintptr_t)sequence.id; }

static ignis_status ignis_sequence_free(ignis_sequence sequence)
{
    free(fake_of(sequence)->ids);
    free(fake_of(sequence));
    fake_live--;
    return IGNIS_OK;
}

static ignis_sequence ignis_sequence_fork(ignis_sequence sequence)
{
    ignis_sequence other = {0};
    fake_sequence *s = (fake_sequence *)calloc(1, sizeof *s), *from = fake_of(sequence);
    *s = *from;
    s->ids = (int32_t *)calloc((size_t)fake_context, sizeof *s->ids);
    memcpy(s->ids, from->ids, sizeof *s->ids * (size_t)from->length);
    if (++fake_live > fake_most)
        fprintf(stderr, "fake: too many sequences\n"), abort();
    other.id = (uint64_t)(uintptr_t)s;
    return other;
}

static int ignis_sequence_length(ignis_sequence sequence) { return fake_of(sequence)->length; }

static ignis_status ignis_sequence_truncate(ignis_sequence sequence, int length)
{
    fake_of(sequence)->length = length;
    return IGNIS_OK;
}

/*  The likeliest tokens are 'a', 'b', 'c', ... */
static ignis_status ignis_sequence_logits(ignis_sequence sequence, float *logits, int count)
{
    int i;
    (void)sequence;
    for (i = 0; i < count; i++)
        logits[i] = i >= 'a' && i <= 'z' ? (float)('z' - i) : -50;
    return IGNIS_OK;
}

/*  Where the text begins that is repeated. */
static int fake_start(const fake_sequence *s)
{
    int at = s->prompt;
    while (at > 0 && s->ids[at - 1] != 256)
        at--;
    return at;
}

static bool fake_says(const fake_sequence *s, const char *what)
{
    int i, at = fake_start(s);
    for (i = 0; what[i]; i++)
        if (at + i >= s->prompt || s->ids[at + i] != what[i])
            return false;
    return true;
}

/*  The last prompt of each boundary is kept, in pages of 16. */
static struct {
    int32_t ids[4096];
    int count;
} fake_kept[8];
static int64_t fake_found;

static ignis_status ignis_sequence_share_prefix(ignis_sequence sequence, const ignis_prefix_desc *desc)
{
    fake_of(sequence)->boundary = (int64_t)desc->boundary;
    return IGNIS_OK;
}

static ignis_status ignis_model_prefixes(ignis_model model, ignis_prefix_info *info)
{
    (void)model;
    info->found = fake_found;
    return IGNIS_OK;
}

static void fake_keep(const fake_sequence *s, const int32_t *ids, int count)
{
    int i = 0;
    if (s->boundary < 0 || s->boundary >= 8 || s->length || count > 4096)
        return;
    while (i < count - 1 && i < fake_kept[s->boundary].count && fake_kept[s->boundary].ids[i] == ids[i])
        i++;
    fake_found += i / 16 * 16;
    memcpy(fake_kept[s->boundary].ids, ids, sizeof *ids * (size_t)count);
    fake_kept[s->boundary].count = count;
}

static ignis_status ignis_sequence_feed(ignis_sequence sequence, const int32_t *ids, int count)
{
    fake_sequence *s = fake_of(sequence);
    FILE *file = getenv("SERVE_FED") ? fopen(getenv("SERVE_FED"), "ab") : NULL; /* gets texts that are fed */
    int i;
    if (s->length + count > fake_context)
        fprintf(stderr, "fake: the context is full\n"), abort();
    fake_keep(s, ids, count);
    memcpy(s->ids + s->length, ids, sizeof *ids * (size_t)count);
    s->prompt = s->length += count;
    for (i = 0; file && i < count; i++)
        fputc(ids[i] < 256 ? ids[i] : 0, file);
    if (file)
        fclose(file);
    return fake_says(s, "!prompt") ? fake_last = IGNIS_ERROR_ARGUMENT : IGNIS_OK;
}

static ignis_status ignis_sequence_query(ignis_sequence sequence, ignis_sequence_info *info)
{
    info->length = fake_of(sequence)->length;
    info->log_prob = -0.5;
    return IGNIS_OK;
}

/*  A grammar is what is said behind the prompt; SERVE_SAYS: in place of one of calls. */
static ignis_status ignis_sequence_grammar(ignis_sequence sequence, const char *grammar)
{
    fake_sequence *s = fake_of(sequence);
    const char *says = grammar && strstr(grammar, "\narguments0 ::= ") ? getenv("SERVE_SAYS") : NULL;
    if (says)
        snprintf(s->grammar, sizeof s->grammar, "%s", says);
    else if (grammar && strncmp(grammar, "root ::= \"", 10) == 0) /* its first text */
        snprintf(s->grammar, sizeof s->grammar, "%.*s", (int)strcspn(grammar + 10, "\""), grammar + 10);
    else
        snprintf(s->grammar, sizeof s->grammar, "%s", grammar ? grammar : "");
    s->prompt = s->length;
    return IGNIS_OK;
}

static ignis_status ignis_grammar_check(const char *grammar)
{
    return strstr(grammar, "pattern") ? fake_last = IGNIS_ERROR_ARGUMENT : IGNIS_OK;
}

static int32_t fake_next(fake_sequence *s, const ignis_sampling_desc *sampling)
{
    int at = fake_start(s), size, done = s->length - s->prompt, times = 1, i;
    if (s->length >= fake_context || s->length == 0)
        fprintf(stderr, "fake: no token, or the context is full\n"), abort();
    if (at < s->prompt && s->ids[at] == '#')
        for (times = 0, at++; at < s->prompt && s->ids[at] >= '0' && s->ids[at] <= '9'; at++)
            times = 10 * times + s->ids[at] - '0';
    if (s->grammar[0])
        return s->grammar[done] ? (unsigned char)s->grammar[done] : 257;
    size = s->prompt - at;
    for (i = 0; i < sampling->bias_count; i++)
        if (sampling->biases[i].bias >= 100)
            return sampling->biases[i].id;
    if (sampling->temperature > 1)
        return 'a' +
               (int32_t)((sampling->seed * 0x9E3779B97F4A7C15u + (uint64_t)done * 0xD1342543DE82EF95u) >> 40) % 26;
    for (i = 0; i < sampling->bias_count && size && done < times * size; i++)
        if (sampling->biases[i].id == s->ids[at + done % size] && sampling->biases[i].bias <= -1)
            return '_';
    if (size == 0 || done >= times * size)
        return 257;
    i = s->ids[at + done % size];
    return s->adapted && i >= 'a' && i <= 'z' ? i - 32 : i;
}

static ignis_status ignis_sequence_next_all(const ignis_sequence *sequences, int count,
                                            const ignis_sampling_desc *sampling, int32_t *ids)
{
    int i, j;
    if (!count)
        return IGNIS_OK;
    fake_sleep();
    for (i = 0; i < count; i++)
        ids[i] = -1;
    for (i = 0; i < count; i++) {
        for (j = 0; j < i; j++)
            if (sequences[i].id == sequences[j].id)
                fprintf(stderr, "fake: a sequence twice\n"), abort();
        if (fake_says(fake_of(sequences[i]), "!fail"))
            return fake_last = IGNIS_ERROR_ARGUMENT;
    }
    for (i = 0; i < count; i++) {
        fake_sequence *s = fake_of(sequences[i]);
        ids[i] = fake_next(s, &sampling[i]);
        s->ids[s->length++] = ids[i];
    }
    return IGNIS_OK;
}

static int32_t ignis_sequence_next(ignis_sequence sequence, const ignis_sampling_desc *sampling)
{
    int32_t id;
    return ignis_sequence_next_all(&sequence, 1, sampling, &id) == IGNIS_OK ? id : -1;
}

/*  Tensors have no values: log probabilities are -0.25, and the likeliest tokens 'a', 'b', ... */
static ignis_shape fake_shape(int64_t first, ...)
{
    ignis_shape shape = {{first}};
    return shape;
}
static ignis_tensor ignis_tensor_from_host(const void *data, ignis_shape shape, const ignis_tensor_desc *desc)
{
    ignis_tensor tensor = {(uint64_t)shape.dim[0]};
    (void)data, (void)desc;
    return tensor;
}
static ignis_tensor ignis_model_forward(ignis_model model, ignis_tensor ids) { return (void)model, ids; }
static ignis_tensor ignis_log_softmax(ignis_tensor x) { return x; }
static ignis_tensor ignis_gather(ignis_tensor x, int dim, ignis_tensor index) { return (void)dim, (void)index, x; }
static ignis_tensor ignis_topk(ignis_tensor x, int64_t k, int dim, bool largest, ignis_tensor *indices)
{
    (void)k, (void)dim, (void)largest;
    *indices = x;
    return x;
}
static ignis_status ignis_tensor_to_host(ignis_tensor tensor, void *out, ignis_dtype dtype, int64_t count)
{
    int64_t i;
    (void)tensor;
    for (i = 0; i < count; i++)
        if (dtype == IGNIS_F32)
            ((float *)out)[i] = -0.25f;
        else
            ((int64_t *)out)[i] = 'a' + i % (count / (int64_t)tensor.id);
    return IGNIS_OK;
}
static ignis_scope ignis_scope_begin(void)
{
    ignis_scope scope = {1};
    return scope;
}
static ignis_status ignis_scope_end(ignis_scope scope) { return (void)scope, IGNIS_OK; }
static ignis_status ignis_no_grad_begin(void) { return IGNIS_OK; }
static ignis_status ignis_no_grad_end(void) { return IGNIS_OK; }

/*  Adapters open from any folder but "none". */
static ignis_lora ignis_lora_open(ignis_model model, const char *folder)
{
    ignis_lora lora = {1};
    (void)model;
    if (strcmp(folder, "none") == 0)
        fake_last = IGNIS_ERROR_ARGUMENT;
    return lora;
}
static ignis_status ignis_lora_free(ignis_lora lora) { return (void)lora, IGNIS_OK; }
static ignis_status ignis_sequence_set_lora(ignis_sequence sequence, ignis_lora lora)
{
    fake_of(sequence)->adapted = lora.id != 0;
    return IGNIS_OK;
}

/*  A vector is the number of bytes and the first one. */
static ignis_status ignis_model_embed(ignis_model model, const char *const *texts, int count,
                                      const ignis_embed_desc *desc, float *vectors)
{
    int i;
    (void)model, (void)desc;
    fake_sleep();
    if (count > 16)
        fprintf(stderr, "fake: %d texts at once\n", count), abort();
    for (i = 0; i < count; i++) {
        vectors[2 * i] = (float)strlen(texts[i]);
        vectors[2 * i + 1] = (float)(unsigned char)texts[i][0];
        if (strcmp(texts[i], "!fail") == 0)
            return fake_last = IGNIS_ERROR_ARGUMENT;
    }
    return IGNIS_OK;
}
