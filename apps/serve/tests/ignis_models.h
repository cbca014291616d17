// SPDX-License-Identifier: MIT
/*  ignis_models.h - what the server asks of Ignis, without a model: `make check-serve` builds the server with it, to
    test its HTTP

    A token is a byte, 256 begins a text, 257 ends it. The answer repeats the prompt's text, or of a chat its last
    message, and ends; at a temperature above 1 it is letters that follow from the seed. What a text begins with gives
    orders:
        #N ...       repeats N times
        !fail        the step fails, for all sequences beside it, too
        !prompt      feeding the prompt fails
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
typedef struct ignis_model_desc {
    const char *path;
    int context, sequences;
} ignis_model_desc;
typedef struct ignis_model_info {
    int64_t weight_bytes, cache_bytes, workspace_bytes;
    int context, vocab;
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
} ignis_chat_desc;
typedef struct ignis_logit_bias {
    int32_t id;
    float bias;
} ignis_logit_bias;
typedef struct ignis_text_stream {
    ignis_tokenizer tokenizer;
    bool inside;
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

static int ignis_chat_encode(ignis_tokenizer tokenizer, const ignis_message *messages, int count,
                             const ignis_chat_desc *desc, int32_t *ids, int capacity)
{
    char all[70000] = "";
    const char *last;
    int i, before;
    (void)tokenizer, (void)desc;
    if (strcmp(messages[0].content, "!template") == 0) {
        fake_last = IGNIS_ERROR_ARGUMENT;
        return -1;
    }
    for (i = 0; i + 1 < count; i++)
        if (strlen(all) + strlen(messages[i].content) + 100 < sizeof all)
            sprintf(all + strlen(all), "%s: %s\n", messages[i].role, messages[i].content);
    before = (int)strlen(all);
    last = messages[count - 1].content;
    for (i = 0; i < capacity && i < before + 1 + (int)strlen(last); i++)
        ids[i] = i < before ? (unsigned char)all[i] : i == before ? 256 : (unsigned char)last[i - before - 1];
    return before + 1 + (int)strlen(last);
}

static ignis_sequence ignis_sequence_begin(ignis_model model)
{
    ignis_sequence sequence;
    fake_sequence *s = (fake_sequence *)calloc(1, sizeof *s);
    (void)model;
    s->ids = (int32_t *)calloc((size_t)fake_context, sizeof *s->ids);
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

static ignis_status ignis_sequence_feed(ignis_sequence sequence, const int32_t *ids, int count)
{
    fake_sequence *s = fake_of(sequence);
    if (s->length + count > fake_context)
        fprintf(stderr, "fake: the context is full\n"), abort();
    memcpy(s->ids + s->length, ids, sizeof *ids * (size_t)count);
    s->prompt = s->length += count;
    return fake_says(s, "!prompt") ? fake_last = IGNIS_ERROR_ARGUMENT : IGNIS_OK;
}

static ignis_status ignis_sequence_query(ignis_sequence sequence, ignis_sequence_info *info)
{
    info->length = fake_of(sequence)->length;
    info->log_prob = -0.5;
    return IGNIS_OK;
}

/*  A grammar is what is said behind the prompt. */
static ignis_status ignis_sequence_grammar(ignis_sequence sequence, const char *grammar)
{
    snprintf(fake_of(sequence)->grammar, sizeof fake_of(sequence)->grammar, "%s", grammar);
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
    return size == 0 || done >= times * size ? 257 : s->ids[at + done % size];
}

static ignis_status ignis_sequence_next_all(const ignis_sequence *sequences, int count,
                                            const ignis_sampling_desc *sampling, int32_t *ids)
{
    const char *ms = getenv("SERVE_STEP_MS");
    struct timespec pause = {0, ms ? atol(ms) * 1000000 : 0};
    int i, j;
    if (!count)
        return IGNIS_OK;
    if (ms)
        nanosleep(&pause, NULL);
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
