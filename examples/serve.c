// SPDX-License-Identifier: MIT
/*  serve.c - an HTTP server for language models, which OpenAI's clients can talk to, in one C file

    It opens a model from a folder of Hugging Face or a .gguf file, and answers on this machine alone unless it is told otherwise:

        cc -I. examples/serve.c -o serve -lm -ldl -lpthread && ./serve --help

        ./serve SmolLM2-135M-Instruct          # then open http://127.0.0.1:8080 in a browser, or:
        curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \
            -d '{"messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 100, "stream": true}'
        curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "Once upon a time", "seed": 7}'

    Routes: GET / (a page to try it), GET /health, GET /v1/models, POST /v1/completions, POST /v1/chat/completions. The table `parameters`
    has what a request may say. What would change the answer and is not there is refused by name, such as n above 1 or tools; what would
    not is ignored. A seed gives the same text again, whatever other requests are answered beside it.

    How it is written:
        Two threads. One polls the sockets and never calls Ignis; the other one runs the model and never sees a socket. Between them are
        jobs: a job is a request on its way to being answered.
        All jobs that run advance together, a token each at a time, by ignis_sequence_next_all: the weights are read once for all of them.
        A new one joins between two steps, its prompt in pieces, so that the others go on meanwhile.
        Whatever a client can make large has a limit: heads, bodies, connections, waiting requests, and the time that each of them takes.
        A client that closes its connection, or only its sending half, has left: its job is dropped.
        A page of another web site cannot use the server of whoever looks at it: bodies have to be JSON by their Content-Type, Origin and
        Host have to be this server's. There is no TLS: put a proxy in front of it before it is let out of the machine, and give it a key.

    For POSIX systems: Windows has neither poll nor signals as they are used here.
*/
#define IGNIS_IMPLEMENTATION
#define IGNIS_MODELS
#include "ignis.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_HEAD 16384  /* bytes of a request line and its headers */
#define MAX_HEADERS 100 /* lines */
#define MAX_DEPTH 32    /* of JSON */
#define MAX_MEMBERS 512 /* of one JSON object */
#define MAX_VALUES 400000
#define MAX_STOPS 16
#define MAX_BIASES 512
#define MAX_NAMES 8          /* of --allow-host */
#define MAX_UNSENT (1 << 18) /* bytes that wait for a slow reader; the rest stays with the job */
#define PIECE 256            /* tokens of a prompt that are computed between two steps */
#define OVER 8               /* connections above the limit, which hear 503 */
#define LINGER 2.0           /* seconds in which a client may read the last answer */

static void give_up(const char *what, const char *which)
{
    fprintf(stderr, "serve: %s%s\n", what, which);
    exit(1);
}

/*  Ends the program without memory: all that clients can ask for has a limit. */
static void *resize(void *memory, size_t size)
{
    memory = realloc(memory, size ? size : 1);
    if (!memory)
        give_up("out of memory", "");
    return memory;
}

static void *allocate(size_t size)
{
    void *memory = resize(NULL, size);
    memset(memory, 0, size);
    return memory;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- text -------------------------------------------------------------------------------------------------------- */

/*  Bytes that grow. There is a 0 behind them, unless there is no memory at all. */
typedef struct text {
    char *data;
    size_t size, capacity;
} text;

static void text_add(text *t, const void *data, size_t size)
{
    if (t->capacity - t->size < size + 1) {
        t->capacity = 2 * t->capacity + size + 64;
        t->data = (char *)resize(t->data, t->capacity);
    }
    if (size)
        memcpy(t->data + t->size, data, size);
    t->size += size;
    t->data[t->size] = 0;
}

static void text_put(text *t, const char *string) { text_add(t, string, strlen(string)); }

/*  For numbers and names; at most 1000 bytes. */
static void text_print(text *t, const char *format, ...)
{
    char line[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    text_put(t, line);
}

/*  Takes bytes away at the front. */
static void text_cut(text *t, size_t size)
{
    if (size)
        memmove(t->data, t->data + size, t->size - size + 1);
    t->size -= size;
}

static void text_free(text *t)
{
    free(t->data);
    memset(t, 0, sizeof *t);
}

/*  The bytes of the character at s: 1 to 4; 0 if it is not UTF-8; -1 if it may become UTF-8 when more comes. */
static int utf8_length(const char *s, size_t size)
{
    const unsigned char *u = (const unsigned char *)s;
    int i, length = u[0] < 0x80 ? 1 : u[0] < 0xC2 ? 0 : u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : u[0] < 0xF5 ? 4 : 0;
    for (i = 1; i < length; i++) {
        int low = i > 1 ? 0x80 : u[0] == 0xE0 ? 0xA0 : u[0] == 0xF0 ? 0x90 : 0x80;  /* not in more bytes than needed */
        int high = i > 1 ? 0xBF : u[0] == 0xED ? 0x9F : u[0] == 0xF4 ? 0x8F : 0xBF; /* no surrogates, none above 10FFFF */
        if ((size_t)i >= size)
            return -1;
        if (u[i] < low || u[i] > high)
            return 0;
    }
    return length;
}

/*  As a JSON string; bytes that are not UTF-8 become U+FFFD. */
static void text_quote(text *t, const char *s, size_t size)
{
    size_t i = 0;
    text_put(t, "\"");
    while (i < size) {
        int length = utf8_length(s + i, size - i);
        if (length <= 0)
            text_put(t, "\xEF\xBF\xBD");
        else if (s[i] == '"' || s[i] == '\\')
            text_print(t, "\\%c", s[i]);
        else if ((unsigned char)s[i] < 0x20 || s[i] == 0x7F)
            text_print(t, "\\u%04x", s[i]);
        else
            text_add(t, s + i, (size_t)length);
        i += length <= 0 ? 1 : (size_t)length;
    }
    text_put(t, "\"");
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

typedef enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind;

/*  A value; its strings lie where the text was, decoded, with a 0 behind. */
typedef struct json {
    json_kind kind;
    int first, next; /* the first of those inside, the next one beside; 0: none, as 0 is the whole */
    int count;       /* of those inside */
    char *key, *string;
    size_t size; /* of the string */
    double number;
} json;

typedef struct json_tree {
    json *values;
    int count, capacity, depth;
    char *at, *end;
    const char *error; /* what is wrong at `at`; null: nothing is */
} json_tree;

static bool json_fail(json_tree *t, const char *what)
{
    if (!t->error)
        t->error = what;
    return false;
}

static void json_space(json_tree *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t' || *t->at == '\n' || *t->at == '\r'))
        t->at++;
}

static bool json_take(json_tree *t, char c)
{
    json_space(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

/*  Four hexadecimal digits; -1 if there are others. */
static int json_unit(json_tree *t)
{
    int i, unit = 0;
    for (i = 0; i < 4; i++) {
        char c = (char)(t->at + i < t->end ? t->at[i] : 0);
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0)
            return -1;
        unit = 16 * unit + digit;
    }
    t->at += 4;
    return unit;
}

/*  What stands behind a backslash, written to `to`; the bytes, or 0. A decoded character is never longer than its escape. */
static int json_escape(json_tree *t, char *to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    char c = t->at < t->end ? *t->at++ : '\0';
    const char *known = c ? strchr(from, c) : NULL;
    int unit, low, length = 0;
    if (known) {
        *to = into[known - from];
        return 1;
    }
    if (c != 'u' || (unit = json_unit(t)) < 0)
        return json_fail(t, "an escape that JSON does not have");
    if (unit == 0)
        return json_fail(t, "the character U+0000, which no text has");
    if (unit >= 0xD800 && unit < 0xE000) { /* two of them are one character */
        if (unit >= 0xDC00 || t->end - t->at < 6 || t->at[0] != '\\' || t->at[1] != 'u')
            return json_fail(t, "half of a surrogate pair");
        t->at += 2;
        low = json_unit(t);
        if (low < 0xDC00 || low > 0xDFFF)
            return json_fail(t, "half of a surrogate pair");
        unit = 0x10000 + (unit - 0xD800) * 0x400 + low - 0xDC00;
    }
    if (unit < 0x80)
        to[length++] = (char)unit;
    else if (unit < 0x800)
        to[length++] = (char)(0xC0 | unit >> 6);
    else if (unit < 0x10000)
        to[length++] = (char)(0xE0 | unit >> 12);
    else
        to[length++] = (char)(0xF0 | unit >> 18);
    if (unit >= 0x10000)
        to[length++] = (char)(0x80 | (unit >> 12 & 63));
    if (unit >= 0x800)
        to[length++] = (char)(0x80 | (unit >> 6 & 63));
    if (unit >= 0x80)
        to[length++] = (char)(0x80 | (unit & 63));
    return length;
}

/*  Null, if it is none. */
static char *json_string(json_tree *t, size_t *size)
{
    char *start, *to;
    if (!json_take(t, '"')) {
        json_fail(t, "something else than a string");
        return NULL;
    }
    start = to = t->at;
    while (t->at < t->end && *t->at != '"') {
        int length;
        if (*t->at == '\\') {
            t->at++;
            length = json_escape(t, to);
            if (!length)
                return NULL;
        } else {
            length = utf8_length(t->at, (size_t)(t->end - t->at));
            if (length <= 0 || (unsigned char)*t->at < 0x20) {
                json_fail(t, length <= 0 ? "text that is not UTF-8" : "a control character in a string");
                return NULL;
            }
            memmove(to, t->at, (size_t)length);
            t->at += length;
        }
        to += length;
    }
    if (t->at == t->end) {
        json_fail(t, "a string without an end");
        return NULL;
    }
    t->at++;
    *to = 0; /* in place of the closing quotation mark, or before it */
    *size = (size_t)(to - start);
    return start;
}

static bool json_digits(json_tree *t)
{
    char *start = t->at;
    while (t->at < t->end && *t->at >= '0' && *t->at <= '9')
        t->at++;
    return t->at > start;
}

static bool json_number(json_tree *t)
{
    char *start;
    bool ok;
    t->at += *t->at == '-';
    start = t->at;
    ok = json_digits(t) && (*start != '0' || t->at == start + 1); /* no digit follows a leading 0 */
    if (ok && t->at < t->end && *t->at == '.') {
        t->at++;
        ok = json_digits(t);
    }
    if (ok && t->at < t->end && (*t->at | 32) == 'e') {
        t->at++;
        t->at += t->at < t->end && (*t->at == '+' || *t->at == '-');
        ok = json_digits(t);
    }
    return ok;
}

static int json_value(json_tree *t);

/*  The values inside an array or an object, chained. */
static bool json_inside(json_tree *t, int whole, char close)
{
    int last = 0, inside, other;
    if (json_take(t, close))
        return true;
    if (++t->depth > MAX_DEPTH)
        return json_fail(t, "values nested too deeply");
    do {
        size_t size;
        char *key = NULL;
        if (close == '}') {
            key = json_string(t, &size);
            if (!key)
                return false;
            for (other = t->values[whole].first; other; other = t->values[other].next)
                if (strcmp(t->values[other].key, key) == 0)
                    return json_fail(t, "a key that was there before");
            if (t->values[whole].count == MAX_MEMBERS)
                return json_fail(t, "too many keys");
            if (!json_take(t, ':'))
                return json_fail(t, "no colon behind a key");
        }
        inside = json_value(t);
        if (inside < 0)
            return false;
        t->values[inside].key = key;
        if (last)
            t->values[last].next = inside;
        else
            t->values[whole].first = inside;
        last = inside;
        t->values[whole].count++;
    } while (json_take(t, ','));
    t->depth--;
    return json_take(t, close) ||
           json_fail(t, close == ']' ? "neither a comma nor the end of an array" : "neither a comma nor the end of an object");
}

/*  The index of the next value, -1 if it is none. */
static int json_value(json_tree *t)
{
    static const char *words[] = {"null", "false", "true"};
    int i, index = t->count;
    json value;
    memset(&value, 0, sizeof value);
    json_space(t);
    if (t->at == t->end)
        return json_fail(t, "nothing more") - 1;
    if (t->count == MAX_VALUES)
        return json_fail(t, "too many values") - 1;
    if (t->count == t->capacity)
        t->values = (json *)resize(t->values, sizeof *t->values * (size_t)(t->capacity = 2 * t->capacity + 64));
    t->values[t->count++] = value;
    if (*t->at == '"') {
        value.kind = JSON_STRING;
        value.string = json_string(t, &value.size);
        if (!value.string)
            return -1;
    } else if (*t->at == '[' || *t->at == '{') {
        char close = (char)(*t->at == '[' ? ']' : '}');
        t->at++;
        t->values[index].kind = close == ']' ? JSON_ARRAY : JSON_OBJECT;
        return json_inside(t, index, close) ? index : -1;
    } else if (*t->at == '-' || (*t->at >= '0' && *t->at <= '9')) {
        char *start = t->at;
        value.kind = JSON_NUMBER;
        if (!json_number(t))
            return json_fail(t, "a number that JSON does not have") - 1;
        value.number = strtod(start, NULL);
        if (!isfinite(value.number))
            return json_fail(t, "a number that is too large") - 1;
    } else {
        for (i = 0; i < 3; i++)
            if ((size_t)(t->end - t->at) >= strlen(words[i]) && memcmp(t->at, words[i], strlen(words[i])) == 0)
                break;
        if (i == 3)
            return json_fail(t, "something that is no value") - 1;
        value.kind = (json_kind)i; /* JSON_NULL, JSON_FALSE, JSON_TRUE */
        t->at += strlen(words[i]);
    }
    t->values[index] = value;
    return index;
}

/*  Reads a whole text, which has a 0 behind and is overwritten. The caller frees t->values in any case. */
static bool json_read(json_tree *t, text *source)
{
    memset(t, 0, sizeof *t);
    t->at = source->data;
    t->end = source->data + source->size;
    if (json_value(t) < 0)
        return false;
    json_space(t);
    return t->at == t->end || json_fail(t, "more than one value");
}

/* --- what the two threads share ---------------------------------------------------------------------------------- */

/*  Numbers of the command line. */
static struct settings {
    const char *path, *host, *key, *name;
    const char *allowed[MAX_NAMES];
    int allowed_count;
    int64_t port, context, sequences, queue, connections, max_body;
    int64_t request_time, idle_time, answer_time, grace_time;
} settings = {.host = "127.0.0.1",
              .port = 8080,
              .sequences = 8,
              .queue = 32,
              .connections = 64,
              .max_body = 2 << 20,
              .request_time = 30,
              .idle_time = 60,
              .answer_time = 600,
              .grace_time = 10};

/*  The numbers that a request may have; those of `parameters`. Booleans are 0 or 1. */
typedef struct numbers {
    double max_tokens, temperature, top_p, top_k, min_p, repetition_penalty, seed;
    double stream, logprobs;
} numbers;

typedef struct job {
    struct job *next; /* that waits, too */

    /* what is asked for: nobody changes it any more */
    bool chat;
    numbers numbers;
    bool usage;
    text body; /* where all strings lie */
    ignis_message *messages;
    int message_count;
    const char *prompt; /* null: prompt_ids */
    size_t prompt_size;
    int32_t *prompt_ids;
    int prompt_count;
    const char *stops[MAX_STOPS];
    int stop_count;
    ignis_logit_bias biases[MAX_BIASES];
    int bias_count;

    /* the model's thread alone */
    ignis_sequence sequence;
    ignis_sampling_desc sampling;
    ignis_text_stream stream;
    int32_t *ids; /* of the prompt */
    int fed;
    int64_t most;   /* tokens of the answer */
    text held;      /* what may be the beginning of a stop string */
    size_t written; /* characters that went out */

    /* under the lock */
    text out;                        /* of the answer, since the loop looked last */
    text tokens, log_probs, offsets; /* the same for its tokens, as items of JSON arrays */
    int count, drawn;                /* tokens of the prompt and of the answer */
    bool dropped;                    /* nobody waits for the answer: whoever sees it last frees the job */
    bool done;
    int status;         /* of HTTP */
    const char *finish; /* why it has ended */
    char message[512];  /* why there is no answer */
} job;

static struct shared {
    pthread_mutex_t lock;
    pthread_cond_t wake_model;
    int wake_loop[2]; /* a pipe; signals write to it, too */
    job *first, **last;
    int jobs, running;
    bool quit;
} shared = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {-1, -1}, NULL, &shared.first, 0, 0, false};

static volatile sig_atomic_t interrupted;

static void wake_loop(void)
{
    ssize_t written = write(shared.wake_loop[1], "", 1); /* a full pipe wakes it as well */
    (void)written;
}

static void on_signal(int number)
{
    int before = errno;
    (void)number;
    interrupted++;
    wake_loop();
    errno = before;
}

static void job_free(job *j)
{
    text *texts[] = {&j->body, &j->held, &j->out, &j->tokens, &j->log_probs, &j->offsets};
    size_t i;
    for (i = 0; i < sizeof texts / sizeof *texts; i++)
        text_free(texts[i]);
    free(j->messages);
    free(j->prompt_ids);
    free(j->ids);
    free(j);
}

/* --- the model's thread ------------------------------------------------------------------------------------------ */

static struct engine {
    ignis_model model;
    ignis_tokenizer tokenizer;
    int context, tokens;
    int32_t ends[17]; /* tokens that end an answer */
    int end_count;
    bool talks;
} engine;

/*  The end of a job, for the model's thread. */
static void job_end(job *j, int status, const char *finish, const char *message)
{
    if (j->sequence.id)
        ignis_sequence_free(j->sequence);
    pthread_mutex_lock(&shared.lock);
    shared.jobs--;
    shared.running--;
    j->done = true;
    j->status = status;
    j->finish = finish;
    snprintf(j->message, sizeof j->message, "%s", message);
    if (j->dropped)
        job_free(j);
    pthread_mutex_unlock(&shared.lock);
    wake_loop();
}

/*  A call of Ignis has failed. */
static void job_fail(job *j, int status)
{
    char message[512];
    snprintf(message, sizeof message, "%s", ignis_status_message());
    ignis_status_clear();
    job_end(j, status, NULL, message);
}

/*  The ids of the prompt. How many there are, or -1. Control tokens that messages have in their text are text; a prompt is the client's own. */
static int encode(job *j, int capacity)
{
    ignis_chat_desc chat = {.add_generation_prompt = true};
    j->ids = (int32_t *)resize(j->ids, sizeof *j->ids * (size_t)capacity);
    if (j->chat)
        return ignis_chat_encode(engine.tokenizer, j->messages, j->message_count, &chat, j->ids, capacity);
    if (j->prompt)
        return ignis_tokenizer_encode(engine.tokenizer, j->prompt, (int64_t)j->prompt_size, NULL, j->ids, capacity);
    memcpy(j->ids, j->prompt_ids, sizeof *j->ids * (size_t)j->prompt_count);
    return j->prompt_count;
}

/*  Makes tokens of the prompt. False: the job has ended. */
static bool job_begin(job *j)
{
    char message[200];
    int i, room = (int)j->body.size + 256, count = encode(j, room); /* hardly ever more tokens than bytes of the request */
    if (count > room)
        count = encode(j, count);
    if (count < 0) {
        job_fail(j, 400);
        return false;
    }
    for (i = 0; i < count && j->ids[i] >= 0 && j->ids[i] < engine.tokens; i++)
        continue;
    if (i < count || count == 0 || count >= engine.context) {
        if (i < count)
            snprintf(message, sizeof message, "prompt: there is no token %d", (int)j->ids[i]);
        else if (count == 0)
            snprintf(message, sizeof message, "the prompt has no tokens");
        else
            snprintf(message, sizeof message, "the prompt has %d tokens; the context has room for %d, and one of the answer", count,
                     engine.context - 1);
        job_end(j, 400, NULL, message);
        return false;
    }
    j->count = count;
    j->most = engine.context - count;
    if (j->numbers.max_tokens < (double)j->most)
        j->most = (int64_t)j->numbers.max_tokens;
    j->sampling.temperature = j->numbers.temperature;
    j->sampling.top_k = (int)j->numbers.top_k;
    j->sampling.top_p = j->numbers.top_p > 0 ? j->numbers.top_p : 1e-9; /* for Ignis 0 is all */
    j->sampling.min_p = j->numbers.min_p;
    j->sampling.repetition_penalty = j->numbers.repetition_penalty;
    j->sampling.seed = (uint64_t)(int64_t)j->numbers.seed;
    j->sampling.biases = j->biases;
    j->sampling.bias_count = j->bias_count;
    j->stream.tokenizer = engine.tokenizer;
    j->stream.inside = !j->chat;
    j->sequence = ignis_sequence_begin(engine.model);
    if (ignis_status_last() != IGNIS_OK) {
        job_fail(j, 500);
        return false;
    }
    return true;
}

/*  Where in what is held a stop string begins, whole or, if it may, in its first bytes at the end; the end, if none does. */
static size_t find_stop(const job *j, bool in_part)
{
    size_t start, held = j->held.size;
    int i;
    for (start = 0; start < held; start++)
        for (i = 0; i < j->stop_count; i++) {
            size_t size = strlen(j->stops[i]), there = held - start;
            if ((in_part || size <= there) && memcmp(j->held.data + start, j->stops[i], size < there ? size : there) == 0)
                return start;
        }
    return held;
}

static size_t characters(const char *s, size_t size)
{
    size_t i, count = 0;
    for (i = 0; i < size; i++)
        count += (s[i] & 0xC0) != 0x80;
    return count;
}

static void add_item(text *t, const char *format, double number)
{
    text_put(t, t->size ? "," : "");
    text_print(t, format, number);
}

/*  A token as chats list it, and as completions do. Under the lock. */
static void add_log_prob(job *j, const char *piece, int size, double log_prob)
{
    int i;
    if (!(log_prob > -9999))
        log_prob = -9999;
    text_put(&j->tokens, j->tokens.size ? "," : "");
    text_put(&j->tokens, j->chat ? "{\"token\":" : "");
    text_quote(&j->tokens, piece, (size_t)size);
    if (j->chat) {
        text_print(&j->tokens, ",\"logprob\":%.6g,\"bytes\":[", log_prob);
        for (i = 0; i < size; i++)
            text_print(&j->tokens, i ? ",%d" : "%d", (unsigned char)piece[i]);
        text_put(&j->tokens, "],\"top_logprobs\":[]}");
    }
    add_item(&j->log_probs, "%.6g", log_prob);
    add_item(&j->offsets, "%.0f", (double)(j->written + characters(j->held.data, j->held.size)));
}

static bool is_end(int32_t id)
{
    int i;
    for (i = 0; i < engine.end_count; i++)
        if (engine.ends[i] == id)
            return true;
    return false;
}

/*  One more token. False: the job has ended. */
static bool job_put(job *j, int32_t id)
{
    char piece[4096], rest[8];
    ignis_sequence_info info = {0};
    bool ended = is_end(id), last = ended, stopped;
    int raw, rest_size, size = ended ? 0 : ignis_text_stream_put(&j->stream, id, piece, (int)sizeof piece);
    size_t release;
    if (size < 0 || size > (int)sizeof piece) {
        job_fail(j, 500);
        return false;
    }
    pthread_mutex_lock(&shared.lock);
    if (!ended) {
        last = ++j->drawn >= j->most;
        if (j->numbers.logprobs > 0) {
            char bytes[4096];
            ignis_sequence_query(j->sequence, &info);
            raw = ignis_tokenizer_piece(engine.tokenizer, id, bytes, (int)sizeof bytes);
            add_log_prob(j, bytes, raw < 0 || raw > (int)sizeof bytes ? 0 : raw, info.log_prob);
        }
    }
    text_add(&j->held, piece, (size_t)size);
    if (last && (rest_size = ignis_text_stream_end(&j->stream, rest, (int)sizeof rest)) > 0)
        text_add(&j->held, rest, (size_t)rest_size);
    release = find_stop(j, false);
    stopped = release < j->held.size;
    if (!stopped && !last)
        release = find_stop(j, true);
    text_add(&j->out, j->held.data, release);
    j->written += characters(j->held.data, release);
    text_cut(&j->held, release);
    pthread_mutex_unlock(&shared.lock);
    if (last || stopped)
        job_end(j, 200, ended || stopped ? "stop" : "length", "");
    else
        wake_loop();
    return !last && !stopped;
}

static bool is_wanted(job *j)
{
    bool wanted;
    pthread_mutex_lock(&shared.lock);
    wanted = !j->dropped && !shared.quit;
    pthread_mutex_unlock(&shared.lock);
    return wanted;
}

/*  A piece of a prompt, then a token for all jobs whose prompt is through; says of each whether it goes on. */
static void step(job **jobs, int count, bool *alive)
{
    ignis_sequence *sequences = (ignis_sequence *)allocate(sizeof *sequences * (size_t)count);
    ignis_sampling_desc *sampling = (ignis_sampling_desc *)allocate(sizeof *sampling * (size_t)count);
    int32_t *ids = (int32_t *)allocate(sizeof *ids * (size_t)count);
    int *which = (int *)allocate(sizeof *which * (size_t)count);
    int i, ready = 0;
    for (i = 0; i < count && jobs[i]->fed == jobs[i]->count; i++)
        continue;
    if (i < count) {
        job *j = jobs[i];
        int piece = j->count - j->fed < PIECE ? j->count - j->fed : PIECE;
        if (ignis_sequence_feed(j->sequence, j->ids + j->fed, piece) != IGNIS_OK) {
            job_fail(j, 500);
            alive[i] = false;
        } else {
            j->fed += piece;
        }
    }
    for (i = 0; i < count; i++)
        if (alive[i] && jobs[i]->fed == jobs[i]->count) {
            sequences[ready] = jobs[i]->sequence;
            sampling[ready] = jobs[i]->sampling;
            which[ready++] = i;
        }
    if (ignis_sequence_next_all(sequences, ready, sampling, ids) == IGNIS_OK) {
        for (i = 0; i < ready; i++)
            alive[which[i]] = job_put(jobs[which[i]], ids[i]);
    } else { /* then none has gone on: each alone, so that only the guilty ones fail */
        ignis_status_clear();
        for (i = 0; i < ready; i++) {
            int32_t id = ignis_sequence_next(sequences[i], &sampling[i]);
            if (id < 0)
                job_fail(jobs[which[i]], 500);
            alive[which[i]] = id >= 0 && job_put(jobs[which[i]], id);
        }
    }
    free(sequences), free(sampling), free(ids), free(which);
}

/*  Takes those out that have ended. */
static int keep_alive(job **jobs, int count, bool *alive)
{
    int i, kept = 0;
    for (i = 0; i < count; i++)
        if (alive[i]) {
            alive[kept] = true;
            jobs[kept++] = jobs[i];
        }
    return kept;
}

static void *run_model(void *unused)
{
    job **jobs = (job **)allocate(sizeof *jobs * (size_t)settings.sequences);
    bool *alive = (bool *)allocate(sizeof *alive * (size_t)settings.sequences), quit = false;
    int i, count = 0;
    (void)unused;
    while (!quit || count) {
        pthread_mutex_lock(&shared.lock);
        while (!shared.quit && !count && !shared.first)
            pthread_cond_wait(&shared.wake_model, &shared.lock);
        while (count < settings.sequences && shared.first) {
            jobs[count++] = shared.first;
            shared.first = shared.first->next;
            shared.running++;
        }
        if (!shared.first)
            shared.last = &shared.first;
        quit = shared.quit && !shared.first;
        pthread_mutex_unlock(&shared.lock);

        for (i = 0; i < count; i++) {
            alive[i] = is_wanted(jobs[i]);
            if (!alive[i])
                job_end(jobs[i], 503, NULL, "the server is shutting down");
            else if (!jobs[i]->count)
                alive[i] = job_begin(jobs[i]);
        }
        count = keep_alive(jobs, count, alive);
        step(jobs, count, alive);
        count = keep_alive(jobs, count, alive);
    }
    free(jobs), free(alive);
    return NULL;
}

/* --- connections ------------------------------------------------------------------------------------------------- */

typedef enum state {
    READING_HEAD,
    READING_BODY,
    WAITING,   /* for a job */
    WRITING,   /* the rest of an answer */
    LINGERING, /* the answer was the last one: the client reads it, and what it still sends is thrown away */
    CLOSED
} state;

typedef enum chunk { CHUNK_SIZE, CHUNK_DATA, CHUNK_END, CHUNK_TRAILER } chunk;

typedef struct connection {
    int fd;
    state state;
    text in, out; /* what has come and was not looked at, what has to go */
    size_t sent, scanned;
    double until, progress; /* when the state has to end, when bytes went out last */

    /* the request */
    const struct route *route;
    bool head_only, keep, old; /* HEAD; the connection goes on; HTTP/1.0 */
    bool chunked;
    chunk chunk;
    size_t left, trailers; /* bytes of the body or chunk that have not come; bytes of trailers that have */
    text body;

    /* the answer */
    job *job;
    bool stream, begun; /* as events; the first one is out */
    text answer, tokens, log_probs, offsets;
    char id[48];
    time_t created;
} connection;

typedef struct status {
    int number;
    const char *reason, *type, *more; /* the type of error by OpenAI, headers */
} status;

static const status statuses[] = {
    {200, "OK", "", ""},
    {400, "Bad Request", "invalid_request_error", ""},
    {401, "Unauthorized", "authentication_error", "WWW-Authenticate: Bearer\r\n"},
    {403, "Forbidden", "permission_error", ""},
    {404, "Not Found", "invalid_request_error", ""},
    {405, "Method Not Allowed", "invalid_request_error", ""}, /* Allow comes from the route */
    {408, "Request Timeout", "invalid_request_error", ""},
    {411, "Length Required", "invalid_request_error", ""},
    {413, "Content Too Large", "invalid_request_error", ""},
    {415, "Unsupported Media Type", "invalid_request_error", ""},
    {417, "Expectation Failed", "invalid_request_error", ""},
    {429, "Too Many Requests", "rate_limit_error", "Retry-After: 1\r\n"},
    {431, "Request Header Fields Too Large", "invalid_request_error", ""},
    {500, "Internal Server Error", "server_error", ""},
    {501, "Not Implemented", "invalid_request_error", ""},
    {503, "Service Unavailable", "server_error", "Retry-After: 5\r\n"},
    {505, "HTTP Version Not Supported", "invalid_request_error", ""},
};

static const status *status_of(int number)
{
    const status *s = statuses;
    while (s->number != number)
        s++;
    return s;
}

typedef struct route {
    const char *method, *path;
    bool open; /* no key is asked for */
    void (*answer)(connection *c);
} route;

static void answer_page(connection *c);
static void answer_health(connection *c);
static void answer_models(connection *c);
static void answer_text(connection *c);

static const route routes[] = {
    {"GET", "/", true, answer_page},
    {"GET", "/health", true, answer_health},
    {"GET", "/v1/models", false, answer_models},
    {"POST", "/v1/completions", false, answer_text},
    {"POST", "/v1/chat/completions", false, answer_text},
};

/*  The head of an answer. size: of the body; -1: it comes in pieces. */
static void put_head(connection *c, int number, const char *type, int64_t size)
{
    const status *s = status_of(number);
    char date[64];
    struct tm now;
    time_t clock = time(NULL);
    gmtime_r(&clock, &now);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &now);
    if (interrupted || (size < 0 && c->old))
        c->keep = false; /* HTTP/1.0 has no chunks: the end of the connection is the end of the answer */
    text_print(&c->out, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\n%s", number, s->reason, date, type, s->more);
    text_put(&c->out, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
    if (number == 405)
        text_print(&c->out, "Allow: %s\r\n", strcmp(c->route->method, "GET") == 0 ? "GET, HEAD" : c->route->method);
    if (size >= 0)
        text_print(&c->out, "Content-Length: %lld\r\n", (long long)size);
    else if (!c->old)
        text_put(&c->out, "Transfer-Encoding: chunked\r\n");
    text_print(&c->out, "Connection: %s\r\n\r\n", c->keep ? "keep-alive" : "close");
    c->progress = seconds();
}

static void respond(connection *c, int number, const char *type, const char *body, size_t size)
{
    put_head(c, number, type, (int64_t)size);
    if (!c->head_only)
        text_add(&c->out, body, size);
    c->state = WRITING;
    c->until = seconds() + (double)settings.request_time;
}

static void put_error(text *t, int number, const char *name, const char *message)
{
    text_print(t, "{\"error\":{\"message\":");
    text_quote(t, message, strlen(message));
    text_print(t, ",\"type\":\"%s\",\"param\":", status_of(number)->type);
    if (name)
        text_quote(t, name, strlen(name) < 100 ? strlen(name) : 100);
    else
        text_put(t, "null");
    text_print(t, ",\"code\":%d}}", number);
}

/*  Answers with an error, as OpenAI writes them. name: the parameter that is wrong, or null. False, for the caller to return. */
static bool refuse(connection *c, int number, const char *name, const char *format, ...)
{
    char message[1000];
    text body = {0};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    put_error(&body, number, name, message);
    respond(c, number, "application/json", body.data, body.size);
    text_free(&body);
    return false;
}

/*  The same, when what follows on the connection cannot be understood, or is not worth it. */
static bool refuse_all(connection *c, int number, const char *message)
{
    c->keep = false;
    return refuse(c, number, NULL, "%s", message);
}

/* --- requests: the head ------------------------------------------------------------------------------------------ */

static bool is_token(const char *s)
{
    const char *c;
    for (c = s; *c; c++)
        if (!((*c >= '0' && *c <= '9') || ((*c | 32) >= 'a' && (*c | 32) <= 'z') || strchr("!#$%&'*+-.^_`|~", *c)))
            return false;
    return *s != 0;
}

/*  Whether a header that is a list, as "a, b", has an item. */
static bool has_item(const char *list, const char *item)
{
    size_t size = strlen(item);
    while (list && *list) {
        list += strspn(list, ", \t");
        if (strncasecmp(list, item, size) == 0 && strchr(", \t;", list[size]))
            return true;
        list += strcspn(list, ",");
    }
    return false;
}

enum { HOST, LENGTH, CODING, CONNECTION, EXPECT, KEY, TYPE, ORIGIN, FIELDS };

static const char *const fields[FIELDS] = {"Host",   "Content-Length", "Transfer-Encoding", "Connection",
                                           "Expect", "Authorization",  "Content-Type",      "Origin"};

/*  Whether only this machine reaches the server. */
static bool is_local(void)
{
    return strcmp(settings.host, "localhost") == 0 || strncmp(settings.host, "127.", 4) == 0 || strcmp(settings.host, "::1") == 0;
}

/*  The name in "name:port". A page whose name was made to lead to this machine (DNS rebinding) has another one than this server. */
static bool is_own_name(const char *host)
{
    static const char *const local[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    size_t i, size = end ? (size_t)(end + 1 - host) : strcspn(host, ":");
    if (host[size] && (host[size] != ':' || strspn(host + size + 1, "0123456789") != strlen(host + size + 1)))
        return false;
    for (i = 0; i < (size_t)settings.allowed_count; i++)
        if (strlen(settings.allowed[i]) == size && strncasecmp(host, settings.allowed[i], size) == 0)
            return true;
    for (i = 0; i < 3; i++)
        if (strlen(local[i]) == size && strncasecmp(host, local[i], size) == 0)
            return true;
    return !is_local() && !settings.allowed_count;
}

/*  Takes as long for every key of the same length. */
static bool is_key(const char *given)
{
    size_t i, size = strlen(settings.key);
    unsigned difference = 0;
    if (!given || strncasecmp(given, "Bearer ", 7) != 0 || strlen(given + 7) != size)
        return false;
    for (i = 0; i < size; i++)
        difference |= (unsigned)(given[7 + i] ^ settings.key[i]);
    return difference == 0;
}

/*  Header lines, which end in \r\n each, into values. */
static bool read_fields(connection *c, char *line, const char *values[FIELDS])
{
    int i, count = 0;
    while (*line) {
        char *end = strstr(line, "\r\n"), *next = end + 2, *colon, *value;
        *end = 0;
        colon = strchr(line, ':');
        if (!colon)
            return refuse_all(c, 400, "a header line without a colon");
        *colon = 0;
        if (!is_token(line))
            return refuse_all(c, 400, "the name of a header has characters that names do not have");
        if (++count > MAX_HEADERS)
            return refuse_all(c, 431, "too many headers");
        value = colon + 1 + strspn(colon + 1, " \t");
        while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
            *--end = 0;
        for (i = 0; i < FIELDS && strcasecmp(line, fields[i]) != 0; i++)
            continue;
        if (i < FIELDS && values[i])
            return refuse_all(c, 400, "a header that says how to read the request is there twice");
        if (i < FIELDS)
            values[i] = value;
        line = next;
    }
    return true;
}

/*  How long the body is. */
static bool read_framing(connection *c, const char *values[FIELDS])
{
    const char *length = values[LENGTH];
    c->chunked = values[CODING] != NULL;
    if (c->chunked && (length || c->old))
        return refuse_all(c, 400, "Transfer-Encoding beside Content-Length, or in HTTP/1.0");
    if (c->chunked && strcasecmp(values[CODING], "chunked") != 0)
        return refuse_all(c, 501, "Transfer-Encoding: only chunked is known");
    if (length && (!*length || strspn(length, "0123456789") != strlen(length)))
        return refuse_all(c, 400, "Content-Length is no number");
    if (length && (strlen(length) > 12 || atoll(length) > settings.max_body))
        return refuse_all(c, 413, "the body is larger than this server takes");
    c->left = length ? (size_t)atoll(length) : 0;
    c->chunk = CHUNK_SIZE;
    c->trailers = 0;
    return true;
}

/*  The route, and whether it may be taken. */
static bool find_route(connection *c, const char *method, const char *path, const char *values[FIELDS])
{
    const char *origin = values[ORIGIN];
    bool has_body = c->chunked || c->left;
    size_t i;
    c->head_only = strcmp(method, "HEAD") == 0;
    c->keep = c->keep && !has_body; /* if it is refused, nobody reads the body */
    if (!values[HOST] && !c->old)
        return refuse_all(c, 400, "HTTP/1.1 needs a Host header");
    if (values[HOST] && !is_own_name(values[HOST]))
        return refuse_all(c, 403, "Host is none of this server's names; --allow-host adds one");
    if (origin && (!strstr(origin, "://") || !values[HOST] || strcasecmp(strstr(origin, "://") + 3, values[HOST]) != 0))
        return refuse_all(c, 403, "Origin is the page of another site");
    c->route = NULL;
    for (i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strcmp(path, routes[i].path) == 0)
            c->route = &routes[i];
    if (!c->route)
        return refuse(c, 404, NULL, "there is nothing at this path");
    if (strcmp(method, c->route->method) != 0 && !(c->head_only && strcmp(c->route->method, "GET") == 0))
        return refuse(c, 405, NULL, "this path has the method %s only", c->route->method);
    if (settings.key && !c->route->open && !is_key(values[KEY]))
        return refuse(c, 401, NULL, "no key, or a wrong one: Authorization: Bearer KEY");
    if (strcmp(method, "POST") == 0) {
        const char *type = values[TYPE] ? values[TYPE] : "";
        if (!c->chunked && !values[LENGTH])
            return refuse(c, 411, NULL, "neither Content-Length nor Transfer-Encoding");
        if (strncasecmp(type, "application/json", 16) != 0 || !strchr("; \t", type[16]))
            return refuse(c, 415, NULL, "Content-Type has to be application/json");
    }
    if (values[EXPECT] && strcasecmp(values[EXPECT], "100-continue") != 0)
        return refuse(c, 417, NULL, "Expect: only 100-continue is known");
    return true;
}

/*  The request line and the headers, once they are there. */
static bool read_head(connection *c)
{
    const char *values[FIELDS] = {0};
    char *method, *path, *version, *end, *line;
    size_t size, blank = 0;
    bool keep;
    while (c->in.size - blank >= 2 && c->in.data[blank] == '\r' && c->in.data[blank + 1] == '\n')
        blank += 2; /* some clients end a body with one line too many */
    text_cut(&c->in, blank);
    if (!c->in.size)
        return false;
    if (c->scanned == 0) { /* a request begins */
        c->until = seconds() + (double)settings.request_time;
        c->keep = c->old = c->head_only = c->begun = c->stream = false;
    }
    for (end = NULL; c->scanned < c->in.size && !end; c->scanned++) {
        unsigned char now = (unsigned char)c->in.data[c->scanned], before = c->scanned ? (unsigned char)c->in.data[c->scanned - 1] : 0;
        if ((now < 0x20 && now != '\t' && now != '\r' && now != '\n') || now == 0x7F || (now == '\n') != (before == '\r'))
            return refuse_all(c, 400, "this is not HTTP: control characters, or lines that do not end in CR LF");
        if (now == '\n' && c->scanned >= 3 && c->in.data[c->scanned - 2] == '\n')
            end = c->in.data + c->scanned + 1;
    }
    if ((end ? (size_t)(end - c->in.data) : c->in.size) > MAX_HEAD)
        return refuse_all(c, 431, "the request line and the headers are too long");
    if (!end)
        return false;
    size = (size_t)(end - c->in.data);
    end[-2] = 0; /* the empty line */
    method = c->in.data;
    line = strstr(method, "\r\n");
    *line = 0;
    line += 2;
    path = strchr(method, ' ');
    version = path ? strchr(path + 1, ' ') : NULL;
    if (!version || strchr(version + 1, ' '))
        return refuse_all(c, 400, "the request line is not METHOD PATH VERSION");
    *path++ = *version++ = 0;
    if (strncmp(version, "HTTP/", 5) != 0 || !is_token(method) || path[0] != '/')
        return refuse_all(c, 400, "the request line is not METHOD PATH VERSION");
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return refuse_all(c, 505, "only HTTP/1.1 and 1.0 are known");
    path[strcspn(path, "?")] = 0;
    c->old = version[7] == '0';
    if (!read_fields(c, line, values) || !read_framing(c, values))
        return false;
    c->keep = keep = c->old ? has_item(values[CONNECTION], "keep-alive") : !has_item(values[CONNECTION], "close");
    if (!find_route(c, method, path, values)) {
        text_cut(&c->in, size);
        c->scanned = 0;
        return false;
    }
    c->keep = keep;
    text_cut(&c->in, size);
    c->scanned = 0;
    if (values[EXPECT] && !c->old && (c->chunked || c->left) && !c->in.size)
        text_put(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
    c->state = READING_BODY;
    return true;
}

/* --- requests: the body ------------------------------------------------------------------------------------------ */

/*  The line at *at, without its end; null if it is not whole yet, or too long: then the request is refused. */
static char *read_line(connection *c, size_t *at, size_t *size)
{
    char *start = c->in.data + *at, *end = c->in.size > *at ? (char *)memchr(start, '\n', c->in.size - *at) : NULL;
    if ((end ? (size_t)(end - start) : c->in.size - *at) > 1024 || (end && (end == start || end[-1] != '\r'))) {
        refuse_all(c, 400, "a line between chunks is too long, or does not end in CR LF");
        return NULL;
    }
    if (!end)
        return NULL;
    *size = (size_t)(end - 1 - start);
    *at += *size + 2;
    return start;
}

/*  Moves what has come of the body. True if it is whole. */
static bool read_body(connection *c)
{
    size_t at = 0, size, piece;
    bool whole = false;
    char *line;
    if (!c->chunked) {
        at = c->in.size < c->left ? c->in.size : c->left;
        text_add(&c->body, c->in.data, at);
        c->left -= at;
        whole = c->left == 0;
    }
    while (c->chunked && !whole && c->state == READING_BODY) {
        if (c->chunk == CHUNK_DATA) {
            piece = c->in.size - at < c->left ? c->in.size - at : c->left;
            text_add(&c->body, c->in.data + at, piece);
            at += piece;
            c->left -= piece;
            if (c->left)
                break;
            c->chunk = CHUNK_END;
            continue;
        }
        line = read_line(c, &at, &size);
        if (!line)
            break;
        if (c->chunk == CHUNK_SIZE) {
            size_t digits = strspn(line, "0123456789abcdefABCDEF");
            if (!digits || digits > 8 || (digits < size && (!line[digits] || !strchr("; \t", line[digits])))) {
                refuse_all(c, 400, "a chunk without a size");
                break;
            }
            c->left = (size_t)strtoul(line, NULL, 16);
            c->chunk = c->left ? CHUNK_DATA : CHUNK_TRAILER;
            if (c->body.size + c->left > (size_t)settings.max_body)
                refuse_all(c, 413, "the body is larger than this server takes");
        } else if (c->chunk == CHUNK_END) {
            c->chunk = CHUNK_SIZE;
            if (size)
                refuse_all(c, 400, "a chunk is longer than its size");
        } else { /* trailers say nothing that matters here */
            whole = size == 0;
            c->trailers += size + 2;
            if (c->trailers > MAX_HEAD)
                refuse_all(c, 431, "the trailers are too long");
        }
    }
    text_cut(&c->in, at);
    return whole && c->state == READING_BODY;
}

/* --- requests: what is asked for --------------------------------------------------------------------------------- */

enum { TEXT = 1, CHAT = 2, BOTH = 3 }; /* /v1/completions, /v1/chat/completions */

typedef enum parameter_kind {
    NUMBER,
    INTEGER,
    BOOLEAN,
    OTHER,   /* code reads it */
    IGNORED, /* it does not change the answer */
    REFUSED  /* it does, and is not there: only what changes nothing is taken: the number `least`, false, "", {} and [] */
} parameter_kind;

typedef struct parameter {
    const char *name;
    int where;
    parameter_kind kind;
    double least, most;
    size_t offset; /* in numbers */
} parameter;

#define AT(member) offsetof(numbers, member)

/*  All of them may be null, which is as if they were not there. */
static const parameter parameters[] = {
    {"model", BOTH, OTHER, 0, 0, 0},
    {"messages", CHAT, OTHER, 0, 0, 0},
    {"prompt", TEXT, OTHER, 0, 0, 0},
    {"stop", BOTH, OTHER, 0, 0, 0},
    {"logit_bias", BOTH, OTHER, 0, 0, 0},
    {"stream_options", BOTH, OTHER, 0, 0, 0},
    {"logprobs", TEXT, OTHER, 0, 0, 0},
    {"response_format", CHAT, OTHER, 0, 0, 0},
    {"max_tokens", BOTH, INTEGER, 1, 1e9, AT(max_tokens)},
    {"max_completion_tokens", CHAT, INTEGER, 1, 1e9, AT(max_tokens)},
    {"temperature", BOTH, NUMBER, 0, 2, AT(temperature)},
    {"top_p", BOTH, NUMBER, 0, 1, AT(top_p)},
    {"top_k", BOTH, INTEGER, 0, 1e9, AT(top_k)},
    {"min_p", BOTH, NUMBER, 0, 1, AT(min_p)},
    {"repetition_penalty", BOTH, NUMBER, 0.01, 100, AT(repetition_penalty)},
    {"seed", BOTH, INTEGER, -9007199254740991.0, 9007199254740991.0, AT(seed)},
    {"stream", BOTH, BOOLEAN, 0, 0, AT(stream)},
    {"logprobs", CHAT, BOOLEAN, 0, 0, AT(logprobs)},
    {"user", BOTH, IGNORED, 0, 0, 0},
    {"metadata", CHAT, IGNORED, 0, 0, 0},
    {"store", CHAT, IGNORED, 0, 0, 0},
    {"service_tier", CHAT, IGNORED, 0, 0, 0},
    {"safety_identifier", CHAT, IGNORED, 0, 0, 0},
    {"prompt_cache_key", CHAT, IGNORED, 0, 0, 0},
    {"prompt_cache_retention", CHAT, IGNORED, 0, 0, 0},
    {"prediction", CHAT, IGNORED, 0, 0, 0}, /* speed alone */
    {"parallel_tool_calls", CHAT, IGNORED, 0, 0, 0},
    {"tool_choice", CHAT, IGNORED, 0, 0, 0}, /* there are no tools */
    {"function_call", CHAT, IGNORED, 0, 0, 0},
    {"n", BOTH, REFUSED, 1, 0, 0},
    {"best_of", TEXT, REFUSED, 1, 0, 0},
    {"top_logprobs", CHAT, REFUSED, 0, 0, 0},
    {"frequency_penalty", BOTH, REFUSED, 0, 0, 0},
    {"presence_penalty", BOTH, REFUSED, 0, 0, 0},
    {"echo", TEXT, REFUSED, 0, 0, 0},
    {"suffix", TEXT, REFUSED, 0, 0, 0},
    {"tools", CHAT, REFUSED, 0, 0, 0},
    {"functions", CHAT, REFUSED, 0, 0, 0},
    {"modalities", CHAT, REFUSED, 0, 0, 0},
    {"audio", CHAT, REFUSED, 0, 0, 0},
    {"web_search_options", CHAT, REFUSED, 0, 0, 0},
    {"reasoning_effort", CHAT, REFUSED, 0, 0, 0},
    {"verbosity", CHAT, REFUSED, 0, 0, 0},
};

/*  A request that is being read. */
typedef struct reading {
    connection *c;
    json_tree tree;
    job *job;
    const json *found[sizeof parameters / sizeof *parameters]; /* null: not there */
} reading;

static const json *inside(const reading *r, const json *whole) { return whole->first ? &r->tree.values[whole->first] : NULL; }
static const json *beside(const reading *r, const json *value) { return value->next ? &r->tree.values[value->next] : NULL; }

static const json *member(const reading *r, const json *object, const char *key)
{
    const json *m = object->kind == JSON_OBJECT ? inside(r, object) : NULL;
    while (m && strcmp(m->key, key) != 0)
        m = beside(r, m);
    return m && m->kind != JSON_NULL ? m : NULL;
}

static const json *found(const reading *r, const char *name)
{
    size_t i;
    for (i = 0; i < sizeof parameters / sizeof *parameters; i++)
        if (r->found[i] && strcmp(parameters[i].name, name) == 0)
            return r->found[i];
    return NULL;
}

static bool is_text(const json *value, const char *string)
{
    return value && value->kind == JSON_STRING && strcmp(value->string, string) == 0;
}

/*  All parameters have their names in the table, and their values within its limits. */
static bool read_parameters(reading *r, int where)
{
    const json *value = inside(r, r->tree.values);
    size_t i, count = sizeof parameters / sizeof *parameters;
    for (; value; value = beside(r, value)) {
        const parameter *p = parameters;
        const char *name = value->key;
        double *number;
        bool is_number = value->kind == JSON_NUMBER, is_boolean = value->kind == JSON_TRUE || value->kind == JSON_FALSE;
        for (i = 0; i < count && (strcmp(p->name, name) != 0 || !(p->where & where)); i++)
            p++;
        if (i == count)
            return refuse(r->c, 400, name, "there is no parameter %.100s here", name);
        if (value->kind == JSON_NULL)
            continue;
        r->found[i] = value;
        number = (double *)(void *)((char *)&r->job->numbers + p->offset);
        switch (p->kind) {
        case NUMBER:
        case INTEGER:
            if (!is_number || value->number < p->least || value->number > p->most ||
                (p->kind == INTEGER && value->number != floor(value->number)))
                return refuse(r->c, 400, name, "%s has to be %s from %.15g to %.15g", name, p->kind == INTEGER ? "an integer" : "a number",
                              p->least, p->most);
            *number = value->number;
            break;
        case BOOLEAN:
            if (!is_boolean)
                return refuse(r->c, 400, name, "%s has to be true or false", name);
            *number = value->kind == JSON_TRUE;
            break;
        case REFUSED:
            if (is_number ? value->number != p->least : value->kind == JSON_TRUE || value->size || value->count)
                return refuse(r->c, 400, name, "this server does not have %s", name);
            break;
        case OTHER:
        case IGNORED: break;
        }
    }
    return true;
}

static bool read_stops(reading *r)
{
    const json *stop = found(r, "stop"), *one = stop && stop->kind == JSON_ARRAY ? inside(r, stop) : stop;
    for (; one; one = stop->kind == JSON_ARRAY ? beside(r, one) : NULL) {
        if (one->kind != JSON_STRING || !one->size || one->size > 1000 || r->job->stop_count == MAX_STOPS)
            return refuse(r->c, 400, "stop", "stop has to be a string of 1 to 1000 bytes, or an array of up to %d of them", MAX_STOPS);
        r->job->stops[r->job->stop_count++] = one->string;
    }
    return true;
}

static int compare_biases(const void *a, const void *b)
{
    const ignis_logit_bias *x = (const ignis_logit_bias *)a, *y = (const ignis_logit_bias *)b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool read_biases(reading *r)
{
    const json *biases = found(r, "logit_bias"), *one = biases ? inside(r, biases) : NULL;
    int i, *count = &r->job->bias_count;
    if (biases && (biases->kind != JSON_OBJECT || biases->count > MAX_BIASES))
        return refuse(r->c, 400, "logit_bias", "logit_bias has to be an object of up to %d numbers", MAX_BIASES);
    for (; one; one = beside(r, one)) {
        size_t digits = strspn(one->key, "0123456789");
        long id = digits && digits < 9 && !one->key[digits] ? strtol(one->key, NULL, 10) : -1;
        if (id < 0 || id >= engine.tokens || one->kind != JSON_NUMBER || fabs(one->number) > 100)
            return refuse(r->c, 400, "logit_bias", "logit_bias has to be numbers from -100 to 100 under the ids of tokens, 0 to %d",
                          engine.tokens - 1);
        r->job->biases[*count].id = (int32_t)id;
        r->job->biases[(*count)++].bias = one->number <= -100 ? -INFINITY : (float)one->number;
    }
    qsort(r->job->biases, (size_t)*count, sizeof *r->job->biases, compare_biases);
    for (i = 1; i < *count; i++)
        if (r->job->biases[i].id == r->job->biases[i - 1].id)
            return refuse(r->c, 400, "logit_bias", "logit_bias has the token %d twice", (int)r->job->biases[i].id);
    return true;
}

/*  A text, or an array of one text, or the ids of tokens. */
static bool read_prompt(reading *r)
{
    const json *prompt = found(r, "prompt"), *one;
    int i = 0;
    if (prompt && prompt->kind == JSON_ARRAY && prompt->count == 1 && inside(r, prompt)->kind != JSON_NUMBER)
        prompt = inside(r, prompt);
    if (!prompt || (prompt->kind != JSON_STRING && (prompt->kind != JSON_ARRAY || !prompt->count)))
        return refuse(r->c, 400, "prompt", "prompt has to be a text, or an array of the ids of tokens; one prompt a request");
    if (prompt->kind == JSON_STRING) {
        r->job->prompt = prompt->string;
        r->job->prompt_size = prompt->size;
        return true;
    }
    r->job->prompt_ids = (int32_t *)allocate(sizeof *r->job->prompt_ids * (size_t)prompt->count);
    for (one = inside(r, prompt); one; one = beside(r, one)) {
        if (one->kind != JSON_NUMBER || one->number != floor(one->number) || one->number < 0 || one->number >= engine.tokens)
            return refuse(r->c, 400, "prompt", "prompt[%d] has to be the id of a token, 0 to %d; one prompt a request", i,
                          engine.tokens - 1);
        r->job->prompt_ids[i++] = (int32_t)one->number;
    }
    r->job->prompt_count = i;
    return true;
}

/*  Texts of the parts {"type": "text", "text": "..."}, pushed together where the first one lies: a later one lies behind it. Null: refused. */
static char *join_parts(reading *r, const json *content)
{
    const json *part = inside(r, content), *first = part ? member(r, part, "text") : NULL, *piece;
    size_t size = 0;
    for (; part; part = beside(r, part)) {
        piece = member(r, part, "text");
        if (!is_text(member(r, part, "type"), "text") || !piece || piece->kind != JSON_STRING)
            break;
        memmove(first->string + size, piece->string, piece->size);
        size += piece->size;
    }
    if (part || !first) {
        refuse(r->c, 400, "messages", "content has to be a text, or an array of parts of type text");
        return NULL;
    }
    first->string[size] = 0;
    return first->string;
}

static bool read_messages(reading *r)
{
    static const char *const roles[] = {"system", "user", "assistant", "developer"};
    const json *messages = found(r, "messages"), *one;
    if (!engine.talks)
        return refuse(r->c, 400, NULL, "this model has no chat template: take /v1/completions");
    if (!messages || messages->kind != JSON_ARRAY || !messages->count)
        return refuse(r->c, 400, "messages", "messages has to be an array of at least one message");
    r->job->messages = (ignis_message *)allocate(sizeof *r->job->messages * (size_t)messages->count);
    for (one = inside(r, messages); one; one = beside(r, one)) {
        const json *role = member(r, one, "role"), *content = member(r, one, "content");
        ignis_message *message = &r->job->messages[r->job->message_count++];
        int i;
        for (i = 0; i < 4 && !is_text(role, roles[i]); i++)
            continue;
        if (i == 4)
            return refuse(r->c, 400, "messages", "messages[%d].role has to be system, developer, user or assistant",
                          r->job->message_count - 1);
        if (member(r, one, "tool_calls") || member(r, one, "function_call") || member(r, one, "audio"))
            return refuse(r->c, 400, "messages", "messages[%d]: this server knows no tools and no sound", r->job->message_count - 1);
        message->role = i == 3 ? "system" : roles[i]; /* OpenAI's newer name for it */
        if (content && content->kind == JSON_ARRAY)
            message->content = join_parts(r, content);
        else if (content && content->kind == JSON_STRING)
            message->content = content->string;
        else
            refuse(r->c, 400, "messages", "messages[%d].content has to be a text, or an array of parts of type text",
                   r->job->message_count - 1);
        if (!message->content)
            return false;
    }
    return true;
}

/*  What the table leaves to code. */
static bool read_rest(reading *r)
{
    const json *model = found(r, "model"), *format = found(r, "response_format"), *options = found(r, "stream_options");
    const json *logprobs = found(r, "logprobs");
    if (model && !is_text(model, settings.name))
        return refuse(r->c, 404, "model", "the model of this server is %.200s", settings.name);
    if (format && !is_text(member(r, format, "type"), "text"))
        return refuse(r->c, 400, "response_format", "this server has no response_format but text");
    if (options && options->kind != JSON_OBJECT)
        return refuse(r->c, 400, "stream_options", "stream_options has to be an object");
    r->job->usage = options && member(r, options, "include_usage") && member(r, options, "include_usage")->kind == JSON_TRUE;
    if (!r->job->chat && logprobs) {
        if (logprobs->kind != JSON_NUMBER || logprobs->number != 0)
            return refuse(r->c, 400, "logprobs",
                          "this server has the log probabilities of the answer's own tokens alone: logprobs has to be 0");
        r->job->numbers.logprobs = 1;
    }
    return read_stops(r) && read_biases(r) && (r->job->chat ? read_messages(r) : read_prompt(r));
}

/*  Different ones for requests that do not name one. */
static double random_seed(void)
{
    static uint64_t count;
    struct timespec now;
    uint64_t x;
    clock_gettime(CLOCK_REALTIME, &now);
    x = ((uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec + ++count) * 0x9E3779B97F4A7C15u;
    return (double)((x ^ x >> 29) >> 11);
}

/*  Makes a job of a request and hands it to the model's thread. */
static void answer_text(connection *c)
{
    reading r;
    bool ok, full;
    job *j = (job *)allocate(sizeof *j);
    memset(&r, 0, sizeof r);
    r.c = c;
    r.job = j;
    j->chat = strcmp(c->route->path, "/v1/chat/completions") == 0;
    j->numbers.temperature = j->numbers.top_p = 1;
    j->numbers.max_tokens = j->chat ? 1e9 : 16; /* as OpenAI has them */
    j->numbers.seed = random_seed();
    j->body = c->body; /* strings stay where they are */
    memset(&c->body, 0, sizeof c->body);
    text_add(&j->body, "", 0);
    ok = json_read(&r.tree, &j->body);
    if (!ok)
        refuse(c, 400, NULL, "the body is not JSON: %s at byte %ld", r.tree.error, (long)(r.tree.at - j->body.data));
    else if (r.tree.values->kind != JSON_OBJECT)
        ok = refuse(c, 400, NULL, "the body has to be a JSON object");
    ok = ok && read_parameters(&r, j->chat ? CHAT : TEXT) && read_rest(&r);
    free(r.tree.values);
    if (ok && interrupted)
        ok = refuse_all(c, 503, "the server is shutting down");
    pthread_mutex_lock(&shared.lock);
    full = shared.jobs >= settings.sequences + settings.queue;
    if (ok && !full) {
        *shared.last = j;
        shared.last = &j->next;
        shared.jobs++;
        pthread_cond_signal(&shared.wake_model);
    }
    pthread_mutex_unlock(&shared.lock);
    if (ok && full)
        ok = refuse(c, 429, NULL, "%d requests are running or waiting, which is as many as this server takes",
                    (int)(settings.sequences + settings.queue));
    if (!ok) {
        job_free(j);
        return;
    }
    c->job = j;
    c->stream = j->numbers.stream != 0;
    c->created = time(NULL);
    c->state = WAITING;
    c->until = seconds() + (double)settings.answer_time;
    snprintf(c->id, sizeof c->id, "%s-%013llx", j->chat ? "chatcmpl" : "cmpl", (unsigned long long)random_seed());
}

/* --- answers ----------------------------------------------------------------------------------------------------- */

static const char page[] =
    "<!doctype html>\n<meta charset=utf-8><meta name=viewport content='width=device-width'><title>Ignis</title>\n"
    "<style>body{font:16px/1.5 sans-serif;max-width:46em;margin:2em auto;padding:0 1em;color:#222}\n"
    "p{white-space:pre-wrap;overflow-wrap:anywhere;padding:.5em .8em;border-radius:.5em;margin:.5em 0}\n"
    ".user{background:#e8eef7}.assistant{background:#f4f4f0}.error{background:#fbe3e0}\n"
    "textarea{width:100%;box-sizing:border-box;font:inherit}label{margin-right:1em}input{width:5em;font:inherit}</style>\n"
    "<h1 id=name>Ignis</h1><div id=talk></div><form id=form><textarea id=text rows=3 placeholder='Ask'></textarea>\n"
    "<p><button id=send>Send</button> <button type=button id=stop disabled>Stop</button> <button type=button id=clear>New</button></p>\n"
    "<label>kind <select id=kind><option value=chat>chat<option value=text>go on with a text</select></label>\n"
    "<label>temperature <input id=temperature value=0.7></label><label>tokens <input id=tokens value=400></label>\n"
    "<label>key <input id=key type=password autocomplete=off></label></form>\n"
    "<script>\n"
    "const at = id => document.getElementById(id); let talk = [], control = null;\n"
    "const head = () => ({'Content-Type': 'application/json', ...(at('key').value ? {Authorization: 'Bearer ' + at('key').value} : {})});\n"
    "function show(who, text) { const p = document.createElement('p'); p.className = who; p.textContent = text; at('talk').append(p); "
    "return p; }\n"
    "async function send(text) {\n"
    "  const chat = at('kind').value == 'chat', answer = {role: 'assistant', content: ''}; let rest = '';\n"
    "  const ask = {stream: true, temperature: +at('temperature').value, max_tokens: +at('tokens').value};\n"
    "  show('user', text); const p = show('assistant', '');\n"
    "  if (chat) { talk.push({role: 'user', content: text}); ask.messages = talk.slice(); talk.push(answer); } else ask.prompt = text;\n"
    "  control = new AbortController(); at('send').disabled = true; at('stop').disabled = false;\n"
    "  try {\n"
    "    const reply = await fetch(chat ? '/v1/chat/completions' : '/v1/completions',\n"
    "                              {method: 'POST', headers: head(), body: JSON.stringify(ask), signal: control.signal});\n"
    "    if (!reply.ok) throw new Error((await reply.json()).error.message);\n"
    "    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();\n"
    "    for (let got; !(got = await reader.read()).done;) {\n"
    "      const lines = (rest + got.value).split('\\n'); rest = lines.pop();\n"
    "      for (const line of lines) if (line.startsWith('data: {')) {\n"
    "        const event = JSON.parse(line.slice(6)); if (event.error) throw new Error(event.error.message);\n"
    "        const choice = event.choices[0]; if (choice) answer.content += chat ? choice.delta.content || '' : choice.text;\n"
    "        p.textContent = answer.content; } }\n"
    "  } catch (error) { if (error.name != 'AbortError') show('error', error.message); if (chat && !answer.content) talk.splice(-2); }\n"
    "  at('send').disabled = false; at('stop').disabled = true; control = null; }\n"
    "at('form').onsubmit = e => { e.preventDefault(); const t = at('text').value; if (t && !control) { at('text').value = ''; send(t); } "
    "};\n"
    "at('text').onkeydown = e => { if (e.key == 'Enter' && !e.shiftKey) { e.preventDefault(); at('form').requestSubmit(); } };\n"
    "at('stop').onclick = () => control && control.abort();\n"
    "at('clear').onclick = () => { if (control) control.abort(); talk = []; at('talk').replaceChildren(); };\n"
    "</script>\n";

/*  The page writes what a model says as text, never as HTML; if it had a way to, the policy would let no script in from elsewhere. */
static void answer_page(connection *c)
{
    respond(
        c, 200,
        "text/html; charset=utf-8\r\nContent-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        page, sizeof page - 1);
}

static void answer_health(connection *c)
{
    text body = {0};
    pthread_mutex_lock(&shared.lock);
    text_print(&body, "{\"status\":\"ok\",\"running\":%d,\"waiting\":%d}", shared.running, shared.jobs - shared.running);
    pthread_mutex_unlock(&shared.lock);
    respond(c, 200, "application/json", body.data, body.size);
    text_free(&body);
}

static void answer_models(connection *c)
{
    static time_t started;
    text body = {0};
    if (!started)
        started = time(NULL);
    text_put(&body, "{\"object\":\"list\",\"data\":[{\"id\":");
    text_quote(&body, settings.name, strlen(settings.name));
    text_print(&body, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"ignis\",\"max_model_len\":%d}]}", (long long)started,
               engine.context);
    respond(c, 200, "application/json", body.data, body.size);
    text_free(&body);
}

/*  What an object of an answer begins with. */
static void put_object(connection *c, text *t)
{
    bool chat = c->job->chat;
    text_print(t, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", c->id,
               !chat       ? "text_completion"
               : c->stream ? "chat.completion.chunk"
                           : "chat.completion",
               (long long)c->created);
    text_quote(t, settings.name, strlen(settings.name));
    text_print(t, ",\"system_fingerprint\":\"ignis-%s\",\"choices\":[", ignis_version_string());
}

/*  The choice: text that has come, or all of it. finish: null as long as there is more. */
static void put_choice(connection *c, text *t, const text *answer, const char *finish)
{
    const char *start = !c->job->chat ? "{\"index\":0,\"text\":"
                        : c->stream   ? "{\"index\":0,\"delta\":{"
                                      : "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":";
    text_put(t, start);
    if (c->job->chat && c->stream && (answer->size || !finish))
        text_put(t, c->begun ? "\"content\":" : "\"role\":\"assistant\",\"content\":");
    if (!c->job->chat || !c->stream || answer->size || !finish)
        text_quote(t, answer->data, answer->size);
    text_put(t, c->job->chat ? "}" : "");
    if (c->tokens.size && c->job->chat)
        text_put(t, ",\"logprobs\":{\"content\":["), text_add(t, c->tokens.data, c->tokens.size), text_put(t, "],\"refusal\":null}");
    else if (c->tokens.size) {
        text_put(t, ",\"logprobs\":{\"tokens\":["), text_add(t, c->tokens.data, c->tokens.size);
        text_put(t, "],\"token_logprobs\":["), text_add(t, c->log_probs.data, c->log_probs.size);
        text_put(t, "],\"text_offset\":["), text_add(t, c->offsets.data, c->offsets.size);
        text_put(t, "],\"top_logprobs\":null}");
    } else
        text_put(t, ",\"logprobs\":null");
    text_print(t, finish ? ",\"finish_reason\":\"%s\"}" : ",\"finish_reason\":null}", finish);
    c->tokens.size = c->log_probs.size = c->offsets.size = 0;
}

static void put_usage(const connection *c, text *t)
{
    const job *j = c->job;
    text_print(t, "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}}", j->count, j->drawn,
               j->count + j->drawn);
}

/*  Part of a body that comes in pieces: an event, or the end, which is empty. */
static void put_piece(connection *c, const char *data, size_t size)
{
    if (!c->old)
        text_print(&c->out, "%zx\r\n", size);
    text_add(&c->out, data, size);
    text_put(&c->out, c->old ? "" : "\r\n");
}

static void put_event(connection *c, const text *data)
{
    text event = {0};
    text_put(&event, "data: ");
    text_add(&event, data->data, data->size);
    text_put(&event, "\n\n");
    put_piece(c, event.data, event.size);
    text_free(&event);
}

/*  Lets go of the job, and takes its place in the queue away. */
static void drop_job(connection *c)
{
    job *j = c->job, **at = &shared.first;
    bool ours;
    if (!j)
        return;
    pthread_mutex_lock(&shared.lock);
    while (*at && *at != j)
        at = &(*at)->next;
    ours = j->done || *at;
    if (*at) {
        *at = j->next;
        if (shared.last == &j->next)
            shared.last = at;
        shared.jobs--;
    }
    j->dropped = true;
    pthread_mutex_unlock(&shared.lock);
    if (ours)
        job_free(j);
    c->job = NULL;
}

/*  Ends the answer of a stream. error: null, or the reason why it is not whole. */
static void end_stream(connection *c, int number, const char *error)
{
    text last = {0};
    if (error)
        put_error(&last, number, NULL, error);
    else
        text_put(&last, "[DONE]");
    put_event(c, &last);
    if (!c->old)
        put_piece(c, "", 0);
    text_free(&last);
    c->state = WRITING;
    c->until = seconds() + (double)settings.request_time;
}

/*  The request is not answered to its end: too late, or a failure. */
static void break_off(connection *c, int number, const char *message)
{
    if (c->stream && c->begun)
        end_stream(c, number, message);
    else
        refuse(c, number, NULL, "%s", message);
    drop_job(c);
}

static void take(text *to, text *from)
{
    if (from->size)
        text_add(to, from->data, from->size);
    from->size = 0;
}

/*  Hands on what the model's thread has made since. */
static void pump(connection *c)
{
    job *j = c->job;
    text event = {0};
    bool done, news;
    if (c->out.size - c->sent > MAX_UNSENT)
        return;
    pthread_mutex_lock(&shared.lock);
    news = j->out.size || j->tokens.size;
    done = j->done;
    take(&c->answer, &j->out);
    if (c->tokens.size && j->tokens.size)
        text_put(&c->tokens, ","), text_put(&c->log_probs, ","), text_put(&c->offsets, ",");
    take(&c->tokens, &j->tokens), take(&c->log_probs, &j->log_probs), take(&c->offsets, &j->offsets);
    pthread_mutex_unlock(&shared.lock);
    if (done && j->status != 200) {
        break_off(c, j->status, j->message);
        return;
    }
    if (c->stream && (news || (done && !c->begun))) {
        if (!c->begun)
            put_head(c, 200, "text/event-stream", -1);
        put_object(c, &event);
        put_choice(c, &event, &c->answer, NULL);
        text_put(&event, j->usage ? "],\"usage\":null}" : "]}");
        put_event(c, &event);
        c->begun = true;
        c->answer.size = event.size = 0;
    }
    if (done && c->stream) {
        put_object(c, &event);
        put_choice(c, &event, &c->answer, j->finish);
        text_put(&event, j->usage ? "],\"usage\":null}" : "]}");
        put_event(c, &event);
        if (j->usage) {
            event.size = 0;
            put_object(c, &event);
            text_put(&event, "],");
            put_usage(c, &event);
            put_event(c, &event);
        }
        end_stream(c, 200, NULL);
        drop_job(c);
    } else if (done) {
        put_object(c, &event);
        put_choice(c, &event, &c->answer, j->finish);
        text_put(&event, "],");
        put_usage(c, &event);
        respond(c, 200, "application/json", event.data, event.size);
        drop_job(c);
    }
    text_free(&event);
}

/* --- the loop ---------------------------------------------------------------------------------------------------- */

static connection *open_connection(int fd, bool refused)
{
    connection *c = (connection *)allocate(sizeof *c);
    int on = 1;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->fd = fd;
    c->progress = seconds();
    c->until = c->progress + (double)settings.idle_time;
    if (refused)
        refuse_all(c, 503, "as many connections are open as this server takes");
    return c;
}

static void free_connection(connection *c)
{
    text *texts[] = {&c->in, &c->out, &c->body, &c->answer, &c->tokens, &c->log_probs, &c->offsets};
    size_t i;
    drop_job(c);
    for (i = 0; i < sizeof texts / sizeof *texts; i++)
        text_free(texts[i]);
    close(c->fd);
    free(c);
}

/*  Everything is out. */
static void end_answer(connection *c)
{
    double now = seconds();
    text_free(&c->body), text_free(&c->answer), text_free(&c->out);
    text_free(&c->tokens), text_free(&c->log_probs), text_free(&c->offsets);
    c->sent = 0;
    if (c->keep && !interrupted) {
        c->state = READING_HEAD;
        c->until = now + (double)settings.idle_time;
    } else {
        shutdown(c->fd, SHUT_WR);
        c->state = LINGERING;
        c->until = now + LINGER;
    }
}

/*  Sends what there is. False: no more goes out now. */
static bool send_out(connection *c)
{
    while (c->sent < c->out.size) {
        ssize_t sent = send(c->fd, c->out.data + c->sent, c->out.size - c->sent, 0); /* SIGPIPE is ignored */
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            c->state = CLOSED;
        if (sent <= 0)
            return false;
        c->sent += (size_t)sent;
        c->progress = seconds();
        if (c->sent > MAX_UNSENT) { /* a slow reader never has all of it */
            text_cut(&c->out, c->sent);
            c->sent = 0;
        }
    }
    text_cut(&c->out, c->out.size);
    c->sent = 0;
    return true;
}

/*  As far as a connection comes without waiting. */
static void advance(connection *c)
{
    state before;
    size_t unread;
    do {
        before = c->state;
        unread = c->in.size;
        if (c->state == READING_HEAD && c->in.size)
            read_head(c);
        if (c->state == READING_BODY && read_body(c))
            c->route->answer(c);
        if (c->state == WAITING)
            pump(c);
        if (c->state != LINGERING && c->state != CLOSED && send_out(c) && c->state == WRITING)
            end_answer(c);
    } while ((c->state != before || c->in.size != unread) && c->state != CLOSED && c->state != LINGERING);
}

/*  Whether more is read now. Of the next request a little is, to see whether the client is there. */
static bool wants_input(const connection *c) { return c->state == LINGERING || (c->state != WRITING && c->in.size <= MAX_HEAD); }

static void receive(connection *c)
{
    char buffer[16384];
    ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
        return;
    if (got <= 0)
        c->state = CLOSED;
    else if (c->state != LINGERING)
        text_add(&c->in, buffer, (size_t)got);
}

/*  When it has waited long enough, whatever it waits for. */
static double deadline(const connection *c)
{
    double stalled = c->progress + (double)settings.request_time;
    return c->out.size > c->sent && stalled < c->until ? stalled : c->until;
}

static void expire(connection *c)
{
    bool stalled = c->out.size > c->sent && c->state != LINGERING;
    if (!stalled && (c->state == READING_BODY || (c->state == READING_HEAD && c->in.size)))
        refuse_all(c, 408, "the request has not come in time");
    else if (!stalled && c->state == WAITING) {
        c->keep = false;
        break_off(c, 503, "the answer has taken longer than this server allows");
    } else
        c->state = CLOSED;
}

static void accept_some(int listener, connection **all, int *count)
{
    int most = (int)settings.connections, i;
    for (i = 0; i < 16 && *count < most + OVER; i++) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            return;
        all[*count] = open_connection(fd, *count >= most);
        (*count)++;
    }
}

/*  Answers, until a signal comes; then until all that runs is answered, or the time for that is over, or a second signal comes. */
static void run_loop(int listener)
{
    int most = (int)settings.connections + OVER, count = 0, i, kept;
    connection **all = (connection **)allocate(sizeof *all * (size_t)most);
    struct pollfd *polled = (struct pollfd *)allocate(sizeof *polled * (size_t)(most + 2));
    double stop = INFINITY, full = 0;
    char drain[256];
    while (!interrupted || count) {
        double now = seconds(), first = stop;
        int timeout;
        if (interrupted && isinf(stop)) {
            stop = first = now + (double)settings.grace_time;
            for (i = 0; i < count; i++)
                if (all[i]->state == READING_HEAD && !all[i]->in.size)
                    all[i]->state = CLOSED;
        }
        if (interrupted > 1)
            stop = now;
        for (i = kept = 0; i < count; i++) {
            connection *c = all[i];
            if (now >= stop && c->state == WAITING) {
                c->keep = false;
                break_off(c, 503, "the server is shutting down");
                c->until = now + 1;
                advance(c);
            } else if (now >= stop + 2)
                c->state = CLOSED;
            else if (now >= deadline(c)) {
                expire(c);
                advance(c);
            }
            if (c->state == CLOSED) {
                free_connection(c);
                continue;
            }
            if (deadline(c) < first)
                first = deadline(c);
            polled[kept].fd = c->fd;
            polled[kept].events = (short)((wants_input(c) ? POLLIN : 0) | (c->out.size > c->sent ? POLLOUT : 0));
            all[kept++] = c;
        }
        count = kept;
        if (interrupted && !count)
            break;
        polled[count].fd = shared.wake_loop[0];
        polled[count].events = POLLIN;
        polled[count + 1].fd = interrupted || count == most || now < full ? -1 : listener;
        polled[count + 1].events = POLLIN;
        timeout = first - now > 1 || isinf(first) ? 1000 : (int)((first - now) * 1000) + 1;
        if (poll(polled, (nfds_t)(count + 2), timeout < 1 ? 1 : timeout) < 0)
            continue; /* a signal */
        if (polled[count].revents)
            while (read(shared.wake_loop[0], drain, sizeof drain) == (ssize_t)sizeof drain)
                continue;
        for (i = 0; i < count; i++) {
            connection *c = all[i];
            if (polled[i].revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)) {
                if (polled[i].events & POLLIN)
                    receive(c);
                else if (polled[i].revents & (POLLHUP | POLLERR | POLLNVAL))
                    c->state = CLOSED;
            }
            if (polled[i].revents || c->job)
                advance(c);
        }
        if (polled[count + 1].fd >= 0 && polled[count + 1].revents) {
            int had = count;
            accept_some(listener, all, &count);
            if (count == had)
                full = now + 0.1; /* no descriptors, say: not again at once */
            for (i = had; i < count; i++)
                advance(all[i]);
        }
    }
    free(all), free(polled);
}

/*  The first address of the host that takes it. */
static int open_listener(void)
{
    struct addrinfo want, *list = NULL, *a;
    char port[16];
    int fd = -1, on = 1, code;
    memset(&want, 0, sizeof want);
    want.ai_socktype = SOCK_STREAM;
    want.ai_flags = AI_PASSIVE;
    snprintf(port, sizeof port, "%d", (int)settings.port);
    code = getaddrinfo(settings.host, port, &want, &list);
    if (code)
        give_up("no such address: ", gai_strerror(code));
    for (a = list; a; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 128) == 0)
            break;
        code = errno;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    if (fd < 0)
        give_up("cannot listen there: ", strerror(code));
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

/*  The port, also where the system has chosen it. */
static int port_of(int listener)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &size);
    return address.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)(void *)&address)->sin6_port)
                                         : ntohs(((struct sockaddr_in *)(void *)&address)->sin_port);
}

/* --- the command line -------------------------------------------------------------------------------------------- */

static const char help[] = "serve MODEL [--option value ...]      MODEL: a folder with config.json and model.safetensors, or a .gguf file\n"
                           "  --host name          where to listen (127.0.0.1: this machine alone)\n"
                           "  --port n             (8080; 0: the system chooses)\n"
                           "  --allow-host name    a name besides localhost that requests may have in Host; up to 8 times\n"
                           "  --api-key key        what requests have to show (SERVE_API_KEY; none)\n"
                           "  --name name          of the model (the last part of MODEL)\n"
                           "  --context n          tokens of a prompt and its answer (the model's, but at most 4096)\n"
                           "  --sequences n        requests that are answered at a time (8)\n"
                           "  --queue n            requests that wait besides (32); more hear 429\n"
                           "  --connections n      (64); more hear 503\n"
                           "  --max-body n         bytes of a request (2097152)\n"
                           "  --request-time s     in which a request has to come, and its answer to be taken (30)\n"
                           "  --idle-time s        between two requests of a connection (60)\n"
                           "  --answer-time s      from a request to the end of its answer (600)\n"
                           "  --grace-time s       in which running requests may end after SIGINT or SIGTERM (10)\n";

static void read_settings(int argc, char **argv)
{
    static const struct {
        const char *name;
        int64_t *number, least, most;
    } counts[] = {{"--port", &settings.port, 0, 65535},
                  {"--context", &settings.context, 1, 1 << 30},
                  {"--sequences", &settings.sequences, 1, 1024},
                  {"--queue", &settings.queue, 0, 1 << 20},
                  {"--connections", &settings.connections, 1, 100000},
                  {"--max-body", &settings.max_body, 1, 1 << 30},
                  {"--request-time", &settings.request_time, 1, 1000000},
                  {"--idle-time", &settings.idle_time, 1, 1000000},
                  {"--answer-time", &settings.answer_time, 1, 1000000},
                  {"--grace-time", &settings.grace_time, 0, 1000000}};
    static const struct {
        const char *name, **text;
    } texts[] = {{"--host", &settings.host}, {"--api-key", &settings.key}, {"--name", &settings.name}};
    size_t k;
    int i;
    settings.key = getenv("SERVE_API_KEY");
    for (i = 1; i < argc; i++) {
        const char *name = argv[i], *value = argv[i + 1]; /* argv[argc] is null */
        if (strcmp(name, "--help") == 0) {
            fputs(help, stdout);
            exit(0);
        }
        if (strncmp(name, "--", 2) != 0) {
            if (settings.path)
                give_up("one model only: ", name);
            settings.path = name;
            continue;
        }
        if (!value)
            give_up("a value is missing after ", name);
        i++;
        for (k = 0; k < sizeof counts / sizeof *counts && strcmp(name, counts[k].name) != 0; k++)
            continue;
        if (k < sizeof counts / sizeof *counts) {
            char *end;
            *counts[k].number = strtoll(value, &end, 10);
            if (!*value || *end || *counts[k].number < counts[k].least || *counts[k].number > counts[k].most)
                give_up("not a number that makes sense: ", value);
            continue;
        }
        for (k = 0; k < sizeof texts / sizeof *texts && strcmp(name, texts[k].name) != 0; k++)
            continue;
        if (k < sizeof texts / sizeof *texts)
            *texts[k].text = value;
        else if (strcmp(name, "--allow-host") == 0 && settings.allowed_count < MAX_NAMES)
            settings.allowed[settings.allowed_count++] = value;
        else
            give_up("no such option (--help lists them): ", name);
    }
    if (settings.key && !*settings.key)
        settings.key = NULL;
}

/*  The last part of a path. */
static const char *name_of(const char *path)
{
    static char name[256];
    size_t end = strlen(path), start;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (start = end; start > 0 && path[start - 1] != '/'; start--)
        continue;
    snprintf(name, sizeof name, "%.*s", (int)(end - start), path + start);
    return name;
}

static void check(void)
{
    if (ignis_status_last() != IGNIS_OK)
        give_up("stopped by the error above", "");
}

static void open_engine(void)
{
    ignis_model_desc desc = {.path = settings.path, .context = (int)settings.context, .sequences = (int)settings.sequences};
    ignis_model_info info;
    ignis_tokenizer_info about;
    ignis_setup(NULL);
    engine.model = ignis_model_open(&desc);
    engine.tokenizer = ignis_model_tokenizer(engine.model);
    ignis_model_query(engine.model, &info);
    ignis_tokenizer_query(engine.tokenizer, &about);
    check();
    engine.context = info.context;
    engine.tokens = about.tokens < info.vocab ? about.tokens : info.vocab;
    memcpy(engine.ends, info.ends, sizeof info.ends);
    engine.end_count = info.end_count;
    if (about.eos >= 0)
        engine.ends[engine.end_count++] = about.eos;
    engine.talks = about.has_template;
}

int main(int argc, char **argv)
{
    struct sigaction action;
    pthread_t thread;
    int listener;
    read_settings(argc, argv);
    if (!settings.path) {
        fputs(help, stderr);
        return 2;
    }
    if (!settings.name)
        settings.name = name_of(settings.path);
    open_engine();

    listener = open_listener();
    if (!settings.key && !is_local())
        fprintf(stderr, "serve: without --api-key everybody who reaches %s may use this server\n", settings.host);
    if (pipe(shared.wake_loop) != 0)
        give_up("no pipe: ", strerror(errno));
    fcntl(shared.wake_loop[0], F_SETFL, O_NONBLOCK);
    fcntl(shared.wake_loop[1], F_SETFL, O_NONBLOCK);
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (pthread_create(&thread, NULL, run_model, NULL) != 0)
        give_up("no thread for the model", "");
    printf("serve: %s at http://%s%s%s:%d\n", settings.name, strchr(settings.host, ':') ? "[" : "", settings.host,
           strchr(settings.host, ':') ? "]" : "", port_of(listener));
    fflush(stdout);

    run_loop(listener);
    close(listener);
    pthread_mutex_lock(&shared.lock);
    shared.quit = true;
    pthread_cond_signal(&shared.wake_model);
    pthread_mutex_unlock(&shared.lock);
    pthread_join(thread, NULL);
    ignis_model_free(engine.model);
    puts("serve: ended");
    return ignis_shutdown() != IGNIS_OK;
}
