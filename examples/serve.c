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
    not is ignored. A seed gives the same text again, whatever other requests are answered beside it. response_format holds an answer to a
    JSON schema, or to be an object of JSON.

    How it is written:
        Each connection has a thread, which reads requests and writes answers. One more thread runs the model, and never sees a socket.
        Between them is a list of jobs: a job is a request on its way to being answered.
        The first jobs of the list advance together, a token each at a time, by ignis_sequence_next_all: the weights are read once for
        all of them. A new one joins between two steps, its prompt in pieces, so that the others go on meanwhile.
        Before it listens, ignis_model_warmup compiles and captures all that answers will take, so that no request waits for that.
        Whatever a client can make large has a limit: heads, bodies, connections of one address and of all, waiting requests, and the time
        that each of them takes. A client that closes its connection, or only its sending half, has left: its job is dropped.
        A page of another web site cannot use the server of whoever looks at it: bodies have to be JSON by their Content-Type, Origin has to
        be Host, and Host one of this server's names or an address, which no page can have made up (DNS rebinding takes a name). With a key
        any Host may come from outside, as a page has no key. There is no TLS: put a proxy in front of it before it is let out of the
        machine, and give it a key.

    For POSIX systems: Windows has neither poll nor signals as they are used here.
*/
#define IGNIS_IMPLEMENTATION
#define IGNIS_MODELS
#include "ignis.h"

#include <arpa/inet.h>
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
#define MAX_LINE 1024   /* bytes of a line between chunks */
#define MAX_DEPTH 32    /* of JSON */
#define MAX_MEMBERS 512 /* of one JSON object */
#define MAX_VALUES 400000
#define MAX_STOPS 16
#define MAX_BIASES 512
#define MAX_SEQUENCES 1024
#define PIECE 256  /* tokens of a prompt that are computed between two steps */
#define OVER 8     /* connections above the limit, which hear 503 */
#define LINGER 2.0 /* seconds in which a client may read the last answer */

#define COUNT(array) (sizeof(array) / sizeof *(array))

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

static void *allocate(size_t count, size_t size) { return memset(resize(NULL, count * size), 0, count * size); }

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- text -------------------------------------------------------------------------------------------------------- */

/*  Bytes that grow, with a 0 behind them. */
typedef struct text {
    char *data;
    size_t size, capacity;
} text;

/*  data: null, if the caller writes the bytes afterwards. */
static void text_add(text *t, const char *data, size_t size)
{
    if (t->capacity - t->size < size + 1) {
        t->capacity = 2 * t->capacity + size + 64;
        t->data = (char *)resize(t->data, t->capacity);
    }
    if (data)
        memcpy(t->data + t->size, data, size);
    t->size += size;
    t->data[t->size] = 0;
}

static void text_print(text *t, const char *format, ...)
{
    va_list arguments;
    int size;
    va_start(arguments, format);
    size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    text_add(t, NULL, (size_t)size);
    va_start(arguments, format);
    vsnprintf(t->data + t->size - size, (size_t)size + 1, format, arguments);
    va_end(arguments);
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

/*  What stands between the quotation marks of a JSON string; bytes that are not UTF-8 become U+FFFD. */
static void text_escape(text *t, const char *s, size_t size)
{
    const char *end = s + size;
    while (s < end) {
        int length = utf8_length(s, (size_t)(end - s));
        if (length <= 0)
            text_print(t, "\xEF\xBF\xBD");
        else if (*s == '"' || *s == '\\')
            text_print(t, "\\%c", *s);
        else if ((unsigned char)*s < 0x20 || *s == 0x7F)
            text_print(t, "\\u%04x", *s);
        else
            text_add(t, s, (size_t)length);
        s += length <= 0 ? 1 : length;
    }
}

/*  Whether a list, as "a, b; c", has an item; compare: strncmp, or strncasecmp where the case of letters does not matter. */
static bool has_item(const char *list, const char *item, int (*compare)(const char *, const char *, size_t))
{
    while (list && *list) {
        size_t size = strcspn(list, ", \t;");
        if (size && size == strlen(item) && compare(list, item, size) == 0)
            return true;
        list += size + (list[size] != 0);
    }
    return false;
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

typedef enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind;

/*  A value; its strings lie where the text was, decoded, with a 0 behind. */
typedef struct json {
    json_kind kind;
    struct json *first, *next; /* the first of those inside, the next one beside */
    int count;                 /* of those inside */
    char *key, *string;
    const char *digits; /* of a number, as they were written, without an end */
    size_t size;        /* of the string, or of the digits */
    double number;
} json;

typedef struct json_reader {
    json *values; /* the first one is the whole */
    size_t count, most;
    int depth;
    char *at, *end;
    const char *error; /* what is wrong at `at` */
} json_reader;

static bool json_fail(json_reader *r, const char *what)
{
    r->error = what;
    return false;
}

static bool json_take(json_reader *r, char c)
{
    r->at += strspn(r->at, " \t\n\r");
    if (*r->at != c)
        return false;
    r->at++;
    return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/*  What stands behind "\u", four hexadecimal digits; -1 if it is something else. */
static int json_unit(json_reader *r)
{
    char digits[5] = "";
    if (*r->at != 'u' || strspn(++r->at, "0123456789abcdefABCDEF") < 4)
        return -1;
    memcpy(digits, r->at, 4);
    r->at += 4;
    return (int)strtol(digits, NULL, 16);
}

/*  What stands behind a backslash, written to *to. A decoded character is never longer than its escape. */
static bool json_escape(json_reader *r, char **to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    const char *known = *r->at ? strchr(from, *r->at) : NULL;
    int unit, low, length, i;
    if (known) {
        r->at++;
        *(*to)++ = into[known - from];
        return true;
    }
    unit = json_unit(r);
    if (unit <= 0)
        return json_fail(r, unit ? "an escape that JSON does not have" : "the character U+0000, which no text has");
    if (unit >= 0xD800 && unit < 0xE000) { /* two of them are one character */
        low = unit < 0xDC00 && *r->at == '\\' ? (r->at++, json_unit(r)) : -1;
        if (low < 0xDC00 || low > 0xDFFF)
            return json_fail(r, "half of a surrogate pair");
        unit = 0x10000 + (unit - 0xD800) * 0x400 + low - 0xDC00;
    }
    length = unit < 0x80 ? 1 : unit < 0x800 ? 2 : unit < 0x10000 ? 3 : 4;
    for (i = length - 1; i > 0; i--, unit >>= 6)
        (*to)[i] = (char)(0x80 | (unit & 63));
    (*to)[0] = (char)(length == 1 ? unit : unit | 0xF00 >> length);
    *to += length;
    return true;
}

static bool json_string(json_reader *r, char **string, size_t *size)
{
    char *to;
    if (!json_take(r, '"'))
        return json_fail(r, "something else than a string");
    for (*string = to = r->at; *r->at != '"';) {
        if ((unsigned char)*r->at < 0x20)
            return json_fail(r, r->at == r->end ? "a string without an end" : "a control character in a string");
        if (*r->at != '\\')
            *to++ = *r->at++;
        else if (r->at++, !json_escape(r, &to))
            return false;
    }
    r->at++;
    *to = 0; /* in place of the closing quotation mark, or before it */
    *size = (size_t)(to - *string);
    return true;
}

/*  A number for strtod may have more forms than one for JSON. */
static bool json_number(json_reader *r, json *value)
{
    char *start = r->at, *digits = start + (*start == '-'), *dot;
    size_t size = strspn(start, "+-.0123456789eE");
    dot = (char *)memchr(start, '.', size);
    value->digits = start;
    value->size = size;
    value->number = strtod(start, &r->at);
    if (r->at != start + size || !is_digit(*digits) || (*digits == '0' && is_digit(digits[1])) || (dot && !is_digit(dot[1])))
        return r->at = start, json_fail(r, "a number that JSON does not have");
    return isfinite(value->number) || json_fail(r, "a number that is too large");
}

/*  Reads the next value to values[count]; those inside an array or an object follow it. */
static bool json_value(json_reader *r)
{
    static const char *const words[] = {"null", "false", "true"};
    json *value = &r->values[r->count], **last = &value->first, *other;
    char close;
    int i;
    r->at += strspn(r->at, " \t\n\r");
    if (r->at == r->end || r->count == r->most)
        return json_fail(r, r->at == r->end ? "nothing more" : "too many values");
    memset(value, 0, sizeof *value);
    r->count++;
    for (i = JSON_NULL; i <= JSON_TRUE; i++)
        if (strncmp(r->at, words[i], strlen(words[i])) == 0) {
            value->kind = (json_kind)i;
            r->at += strlen(words[i]);
            return true;
        }
    value->kind = *r->at == '"' ? JSON_STRING : *r->at == '[' ? JSON_ARRAY : *r->at == '{' ? JSON_OBJECT : JSON_NUMBER;
    if (value->kind == JSON_STRING)
        return json_string(r, &value->string, &value->size);
    if (value->kind == JSON_NUMBER)
        return *r->at == '-' || is_digit(*r->at) ? json_number(r, value) : json_fail(r, "something that is no value");
    close = (char)(value->kind == JSON_ARRAY ? ']' : '}');
    r->at++;
    if (json_take(r, close))
        return true;
    if (++r->depth > MAX_DEPTH)
        return json_fail(r, "values nested too deeply");
    do {
        char *key = NULL;
        size_t size;
        if (value->kind == JSON_OBJECT) {
            if (!json_string(r, &key, &size))
                return false;
            for (other = value->first; other; other = other->next)
                if (strcmp(other->key, key) == 0)
                    return json_fail(r, "a key that was there before");
            if (value->count == MAX_MEMBERS || !json_take(r, ':'))
                return json_fail(r, value->count == MAX_MEMBERS ? "too many keys" : "no colon behind a key");
        }
        other = &r->values[r->count];
        if (!json_value(r))
            return false;
        other->key = key;
        *last = other;
        last = &other->next;
        value->count++;
    } while (json_take(r, ','));
    r->depth--;
    return json_take(r, close) ||
           json_fail(r, close == ']' ? "neither a comma nor the end of an array" : "neither a comma nor the end of an object");
}

/*  Reads a whole text, which is overwritten. The caller frees r->values in any case. */
static bool json_read(json_reader *r, text *source)
{
    int length;
    memset(r, 0, sizeof *r);
    r->end = source->data + source->size;
    for (r->at = source->data; r->at < r->end; r->at += length) {
        length = utf8_length(r->at, (size_t)(r->end - r->at));
        if (length <= 0)
            return json_fail(r, "text that is not UTF-8");
    }
    r->at = source->data;
    r->most = source->size < MAX_VALUES ? source->size : MAX_VALUES; /* a value has a byte, at least */
    r->values = (json *)resize(NULL, sizeof *r->values * (r->most + 1));
    if (!json_value(r))
        return false;
    r->at += strspn(r->at, " \t\n\r");
    return r->at == r->end || json_fail(r, "more than one value");
}

/*  The value under a key; null, if it is null, not there, or the object is none. */
static const json *member(const json *object, const char *key)
{
    const json *m = object->kind == JSON_OBJECT ? object->first : NULL;
    while (m && strcmp(m->key, key) != 0)
        m = m->next;
    return m && m->kind != JSON_NULL ? m : NULL;
}

static bool is_text(const json *value, const char *string)
{
    return value && value->kind == JSON_STRING && strcmp(value->string, string) == 0;
}

/*  The text of a value. */
static void json_print(text *t, const json *value)
{
    static const char *const words[] = {"null", "false", "true"};
    const json *one;
    char number[40];
    if (value->key)
        text_print(t, "\""), text_escape(t, value->key, strlen(value->key)), text_print(t, "\":");
    if (value->kind < JSON_NUMBER) {
        text_print(t, "%s", words[value->kind]);
    } else if (value->kind == JSON_NUMBER) {
        snprintf(number, sizeof number, "%.15g", value->number);
        text_print(t, strtod(number, NULL) == value->number ? "%.15g" : "%.17g", value->number);
    } else if (value->kind == JSON_STRING) {
        text_print(t, "\""), text_escape(t, value->string, value->size), text_print(t, "\"");
    } else {
        text_print(t, value->kind == JSON_ARRAY ? "[" : "{");
        for (one = value->first; one; one = one->next)
            text_print(t, one == value->first ? "" : ","), json_print(t, one);
        text_print(t, value->kind == JSON_ARRAY ? "]" : "}");
    }
}

/* --- the command line -------------------------------------------------------------------------------------------- */

static struct settings {
    const char *path, *host, *key, *name, *allowed;
    int64_t port, context, sequences, queue, connections, client_connections, max_body;
    int64_t request_time, idle_time, answer_time, grace_time;
    bool limits_all; /* client_connections holds for this machine's own, too */
} settings;

/*  An option is a number with its limits, or a text. */
static const struct option {
    const char *name;
    int64_t *number, usual, least, most;
    const char **text, *help;
} options[] = {
    {"--host name", NULL, 0, 0, 0, &settings.host, "where to listen (127.0.0.1: this machine alone)"},
    {"--port n", &settings.port, 8080, 0, 65535, NULL, "(8080; 0: the system chooses)"},
    {"--allow-host names", NULL, 0, 0, 0, &settings.allowed, "names besides localhost that requests may have in Host: a,b"},
    {"--api-key key", NULL, 0, 0, 0, &settings.key, "what requests have to show (SERVE_API_KEY; none)"},
    {"--name name", NULL, 0, 0, 0, &settings.name, "of the model (the last part of MODEL)"},
    {"--context n", &settings.context, 0, 1, 1 << 30, NULL, "tokens of a prompt and its answer (the model's, but at most 4096)"},
    {"--sequences n", &settings.sequences, 0, 1, MAX_SEQUENCES, NULL,
     "requests that are answered at a time (64, or 8 to 32 for want of memory)"},
    {"--queue n", &settings.queue, 512, 0, 1 << 20, NULL, "requests that wait besides (512); more hear 429"},
    {"--connections n", &settings.connections, 512, 1, 100000, NULL, "(512); more hear 503"},
    {"--client-connections n", &settings.client_connections, 0, 1, 100000, NULL, "of one address (half of all, but all of this machine's)"},
    {"--max-body n", &settings.max_body, 2 << 20, 1, 1 << 30, NULL, "bytes of a request (2097152)"},
    {"--request-time s", &settings.request_time, 30, 1, 1000000, NULL, "in which a request has to come, and its answer to be taken (30)"},
    {"--idle-time s", &settings.idle_time, 60, 1, 1000000, NULL, "between two requests of a connection (60)"},
    {"--answer-time s", &settings.answer_time, 600, 1, 1000000, NULL, "from a request to the end of its answer (600)"},
    {"--grace-time s", &settings.grace_time, 10, 0, 1000000, NULL, "in which running requests may end after SIGINT or SIGTERM (10)"},
};

static void show_help(FILE *file, int code)
{
    size_t i;
    fputs("serve MODEL [--option value ...]      MODEL: a folder with config.json and model.safetensors, or a .gguf file\n", file);
    for (i = 0; i < COUNT(options); i++)
        fprintf(file, "  %-24s %s\n", options[i].name, options[i].help);
    exit(code);
}

static void read_settings(int argc, char **argv)
{
    static char last[256]; /* part of the path */
    const struct option *o, *end = options + COUNT(options);
    char *rest;
    int i;
    for (o = options; o < end; o++)
        if (o->number)
            *o->number = o->usual;
    settings.host = "127.0.0.1";
    settings.key = getenv("SERVE_API_KEY");
    for (i = 1; i < argc; i++) {
        const char *name = argv[i], *value = argv[i + 1]; /* argv[argc] is null */
        size_t size = strlen(name);
        if (strcmp(name, "--help") == 0)
            show_help(stdout, 0);
        if (strncmp(name, "--", 2) != 0) {
            if (settings.path)
                give_up("one model only: ", name);
            settings.path = name;
            continue;
        }
        for (o = options; o < end && (strncmp(o->name, name, size) != 0 || o->name[size] != ' '); o++)
            continue;
        if (o == end || !value)
            give_up(value ? "no such option (--help lists them): " : "a value is missing after ", name);
        if (o->text)
            *o->text = value;
        else if ((*o->number = strtoll(value, &rest, 10)) < o->least || *o->number > o->most || !*value || *rest)
            give_up("not a number that makes sense: ", value);
        i++;
    }
    if (!settings.path)
        show_help(stderr, 2);
    if (settings.key && !*settings.key)
        settings.key = NULL;
    settings.limits_all = settings.client_connections > 0;
    if (!settings.limits_all)
        settings.client_connections = (settings.connections + 1) / 2;
    if (!settings.name) {
        snprintf(last, sizeof last, "%s", settings.path);
        for (rest = last + strlen(last); rest > last + 1 && rest[-1] == '/'; rest--)
            rest[-1] = 0;
        settings.name = strrchr(last, '/') && strrchr(last, '/')[1] ? strrchr(last, '/') + 1 : last;
    }
}

/* --- what the threads share -------------------------------------------------------------------------------------- */

/*  What an answer has grown by, as inside of a JSON string; and its tokens, as items of JSON arrays. */
typedef struct growth {
    text out, tokens, log_probs, offsets;
} growth;

static void growth_free(growth *g) { text_free(&g->out), text_free(&g->tokens), text_free(&g->log_probs), text_free(&g->offsets); }

/*  A request that is being answered. It belongs to the thread of its connection, which waits until it is done. */
typedef struct job {
    /* what is asked for: nobody changes it any more */
    bool chat, stream, usage, logprobs;
    int64_t max_tokens, top_k;
    ignis_sampling_desc sampling;
    ignis_logit_bias biases[MAX_BIASES];
    const char *stops[MAX_STOPS];
    int stop_count;
    text grammar; /* of the answer, a JSON schema; empty: none */
    ignis_message *messages;
    int32_t *ids; /* the prompt, also that of messages */
    int count;

    /* the model's thread alone */
    ignis_sequence sequence;
    ignis_text_stream characters;
    int fed;
    bool unwanted; /* it has seen that the job was dropped */
    text held;     /* what may be the beginning of a stop string */
    size_t offset; /* characters of the text so far */

    /* under the lock of what is shared */
    struct job *next;
    bool begun, dropped; /* the model's thread has it; nobody waits for its answer */

    /* under its own lock, for which only two threads wait */
    pthread_mutex_t lock;
    pthread_cond_t news;
    growth news_text; /* since the connection looked last */
    int drawn;
    bool done;          /* the model's thread has it no more */
    const char *finish; /* why it has ended; null: there was a failure */
    char message[512];  /* of the failure */
} job;

static struct shared {
    pthread_mutex_t lock;
    pthread_cond_t wake_model, ended; /* there is a job; a connection has ended */
    job *first;                       /* those that run, and behind them those that wait */
    int jobs;
    struct connection *connections;
    int connection_count;
    double stop; /* when answers are cut off, after a signal; atomic */
    bool quit;
    int signal_pipe[2]; /* a pipe, for those that wait: it can be read when a signal has come */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake_model = PTHREAD_COND_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER, .stop = INFINITY};

static int signals;

/*  How many signals have come to end the server. */
static int interrupted(void) { return __atomic_load_n(&signals, __ATOMIC_SEQ_CST); }

static void on_signal(int number)
{
    int before = errno;
    ssize_t written = write(shared.signal_pipe[1], "", 1);
    (void)written, (void)number;
    __atomic_add_fetch(&signals, 1, __ATOMIC_SEQ_CST);
    errno = before;
}

static double stop_time(void)
{
    double stop;
    __atomic_load(&shared.stop, &stop, __ATOMIC_SEQ_CST);
    return stop;
}

/*  Waits for news, a tenth of a second at most. Under the lock. */
static void nap(pthread_cond_t *news, pthread_mutex_t *lock)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(news, lock, &until);
}

/*  Takes a job out of the list. Under the lock. */
static void job_leave(job *j)
{
    job **at = &shared.first;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    shared.jobs--;
}

/* --- the model's thread ------------------------------------------------------------------------------------------ */

static struct engine {
    ignis_model model;
    ignis_tokenizer tokenizer;
    int context, tokens;
    int32_t ends[17]; /* tokens that end an answer */
    int end_count;
    bool talks;
    text name; /* of the model, as inside of a JSON string */
    time_t started;
} engine;

/*  The end of a job. finish: null, if a call of Ignis has failed. False, for the caller to return. */
static bool job_end(job *j, const char *finish)
{
    if (!finish)
        snprintf(j->message, sizeof j->message, "%s", ignis_status_message());
    ignis_status_clear();
    if (j->sequence.id)
        ignis_sequence_free(j->sequence);
    pthread_mutex_lock(&shared.lock);
    job_leave(j);
    pthread_mutex_unlock(&shared.lock);
    pthread_mutex_lock(&j->lock);
    j->finish = finish;
    j->done = true;
    pthread_cond_signal(&j->news);
    pthread_mutex_unlock(&j->lock); /* from here on it may be gone */
    return false;
}

/*  Computes a piece of the prompt, if no other job has in this step. Whether the job is ready for a token. */
static bool job_feed(job *j, bool *fed)
{
    int piece = j->count - j->fed < PIECE ? j->count - j->fed : PIECE;
    if (j->unwanted)
        return job_end(j, NULL);
    if (!j->sequence.id && !(j->sequence = ignis_sequence_begin(engine.model)).id)
        return job_end(j, NULL);
    if (piece && !*fed) {
        *fed = true;
        if (ignis_sequence_feed(j->sequence, j->ids + j->fed, piece) != IGNIS_OK)
            return job_end(j, NULL);
        j->fed += piece;
        if (j->fed == j->count && j->grammar.size && ignis_sequence_grammar(j->sequence, j->grammar.data) != IGNIS_OK)
            return job_end(j, NULL);
    }
    return j->fed == j->count;
}

/*  The bytes of what is held that can go out: up to a stop string, or to what may become one, if more text comes. */
static size_t find_stop(const job *j, bool last, bool *stopped)
{
    size_t start, held = j->held.size, end = held;
    int i;
    for (start = 0; start < held; start++)
        for (i = 0; i < j->stop_count; i++) {
            size_t size = strlen(j->stops[i]), there = held - start;
            if (memcmp(j->held.data + start, j->stops[i], size < there ? size : there) != 0)
                continue;
            *stopped = size <= there;
            if (*stopped)
                return start;
            if (!last && start < end)
                end = start;
        }
    return end;
}

/*  A token as chats list it, and as completions do. Under the job's lock. */
static void add_log_prob(job *j, int32_t id)
{
    growth *g = &j->news_text;
    char piece[4096];
    const char *comma = g->tokens.size ? "," : "";
    ignis_sequence_info info = {0};
    int i, size = id < engine.tokens ? ignis_tokenizer_piece(engine.tokenizer, id, piece, (int)sizeof piece) : 0;
    size = size < 0 || size > (int)sizeof piece ? 0 : size;
    ignis_sequence_query(j->sequence, &info);
    info.log_prob = info.log_prob > -9999 ? info.log_prob : -9999;
    text_print(&g->tokens, j->chat ? "%s{\"token\":\"" : "%s\"", comma);
    text_escape(&g->tokens, piece, (size_t)size);
    text_print(&g->tokens, "\"");
    if (j->chat) {
        text_print(&g->tokens, ",\"logprob\":%.6g,\"bytes\":[", info.log_prob);
        for (i = 0; i < size; i++)
            text_print(&g->tokens, i ? ",%d" : "%d", (unsigned char)piece[i]);
        text_print(&g->tokens, "],\"top_logprobs\":[]}");
    }
    text_print(&g->log_probs, "%s%.6g", comma, info.log_prob);
    text_print(&g->offsets, "%s%zu", comma, j->offset);
}

/*  One more token. */
static void job_put(job *j, int32_t id)
{
    char piece[4096];
    bool ended = false, last, stopped = false;
    int i, size = 0;
    size_t release;
    for (i = 0; i < engine.end_count; i++)
        ended = ended || engine.ends[i] == id;
    if (!ended && id < engine.tokens) /* those behind them fill up the model's vocabulary, and are no text */
        size = ignis_text_stream_put(&j->characters, id, piece, (int)sizeof piece);
    if (size < 0 || size > (int)sizeof piece) {
        job_end(j, NULL);
        return;
    }
    pthread_mutex_lock(&j->lock);
    if (!ended)
        j->drawn++;
    if (!ended && j->logprobs)
        add_log_prob(j, id);
    last = ended || j->drawn >= j->max_tokens;
    text_add(&j->held, piece, (size_t)size);
    for (i = 0; i < size; i++)
        j->offset += (piece[i] & 0xC0) != 0x80; /* a character begins */
    if (last && (size = ignis_text_stream_end(&j->characters, piece, (int)sizeof piece)) > 0)
        text_add(&j->held, piece, (size_t)size);
    release = find_stop(j, last, &stopped);
    text_escape(&j->news_text.out, j->held.data, release);
    text_cut(&j->held, release);
    pthread_mutex_unlock(&j->lock);
    if (last || stopped)
        job_end(j, ended || stopped ? "stop" : "length");
    else if (j->stream)
        pthread_cond_signal(&j->news); /* nobody else has anything to do before the end */
}

/*  Steps: a piece of a prompt, then a token for each of the first jobs whose prompt is through. */
static void *run_model(void *unused)
{
    static job *jobs[MAX_SEQUENCES], *j;
    static ignis_sequence sequences[MAX_SEQUENCES];
    static ignis_sampling_desc sampling[MAX_SEQUENCES];
    static int32_t ids[MAX_SEQUENCES];
    (void)unused;
    for (;;) {
        int i, count = 0, ready = 0;
        bool fed = false, ok;
        pthread_mutex_lock(&shared.lock);
        while (!shared.quit && !shared.first)
            pthread_cond_wait(&shared.wake_model, &shared.lock);
        for (j = shared.first; j && count < (int)settings.sequences; j = j->next) {
            j->begun = true;
            j->unwanted = j->dropped;
            jobs[count++] = j;
        }
        pthread_mutex_unlock(&shared.lock);
        if (!count)
            return NULL; /* quit */
        for (i = 0; i < count; i++)
            if (job_feed(jobs[i], &fed)) {
                sequences[ready] = jobs[i]->sequence;
                sampling[ready] = jobs[i]->sampling;
                jobs[ready++] = jobs[i];
            }
        ok = ignis_sequence_next_all(sequences, ready, sampling, ids) == IGNIS_OK;
        if (!ok)
            ignis_status_clear();
        for (i = 0; i < ready; i++) {
            if (!ok && ids[i] < 0) /* those that have not gone on: each alone, so that only the guilty ones fail */
                ids[i] = ignis_sequence_next(sequences[i], &sampling[i]);
            if (ids[i] < 0)
                job_end(jobs[i], NULL);
            else
                job_put(jobs[i], ids[i]);
        }
    }
}

/* --- connections ------------------------------------------------------------------------------------------------- */

typedef struct connection {
    struct connection *next;   /* under the lock of what is shared */
    unsigned char address[16]; /* of the client: IPv6, or IPv4 as IPv6 has it */
    int fd;
    bool refused; /* it is one too many */
    bool gone;    /* the client has left, or does not take its answer */
    text in;      /* what has come; */
    size_t taken; /* so much of it was read */
    text head, body, out;
    bool idle;    /* nothing of a request has come */
    double until; /* when the request has to be there */

    /* the request */
    const struct route *route;
    bool head_only, old; /* HEAD, HTTP/1.0 */
    bool lasting, keep;  /* the client wants the connection to go on; it does: all of the request was read */
    bool chunked;
    size_t length; /* of the body, if it is not chunked */

    /* the answer */
    job *job;
    bool begun; /* the first event of a stream is out */
    growth said;
    text part;
    char id[48];
    time_t created;
} connection;

static const struct status {
    int number;
    const char *reason, *type, *more; /* the type of error by OpenAI, headers */
} statuses[] = {
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

static const struct status *status_of(int number)
{
    const struct status *s = statuses;
    while (s->number != number)
        s++;
    return s;
}

enum { TEXT = 1, CHAT = 2, BOTH = 3 }; /* /v1/completions, /v1/chat/completions */

typedef struct route {
    const char *method, *path;
    bool open; /* no key is asked for */
    int kind;
    void (*answer)(connection *c);
} route;

/*  Waits for the socket. False: it is too late, also for the server as a whole. */
static bool wait_for(connection *c, short events, double until)
{
    struct pollfd polled[2] = {{c->fd, events, 0}, {shared.signal_pipe[0], POLLIN, 0}};
    for (;;) {
        double left = until - seconds(), rest = stop_time() + LINGER - seconds();
        bool ending = interrupted() > 0; /* then the pipe can always be read */
        if (left <= 0 || rest <= 0 || (ending && c->idle))
            return false;
        if (poll(polled, ending ? 1 : 2, ending ? 100 : left < 1000 ? (int)(left * 1000) + 1 : 1000000) > 0 && polled[0].revents)
            return true;
    }
}

/*  Reads what has come, if anything has. False: the client has left. */
static bool fetch(connection *c)
{
    char buffer[MAX_HEAD];
    ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
    if (got > 0)
        text_add(&c->in, buffer, (size_t)got);
    else if (got == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK))
        c->gone = true;
    return !c->gone;
}

/*  Sends what there is. A client that does not take it in time has left, too. */
static void flush(connection *c)
{
    double until = seconds() + (double)settings.request_time;
    size_t sent = 0;
    while (sent < c->out.size && !c->gone) {
        ssize_t now = send(c->fd, c->out.data + sent, c->out.size - sent, 0); /* SIGPIPE is ignored */
        if (now >= 0)
            sent += (size_t)now;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            c->gone = !wait_for(c, POLLOUT, until);
        else
            c->gone = errno != EINTR;
    }
    text_cut(&c->out, c->out.size);
}

/*  The head of an answer. size: of the body; -1: it comes in pieces. */
static void put_head(connection *c, int number, const char *type, int64_t size)
{
    const struct status *s = status_of(number);
    char date[64];
    struct tm now;
    time_t clock = time(NULL);
    gmtime_r(&clock, &now);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &now);
    if (interrupted() || (size < 0 && c->old))
        c->keep = false; /* HTTP/1.0 has no chunks: the end of the connection is the end of the answer */
    text_print(&c->out, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\n%s", number, s->reason, date, type, s->more);
    text_print(&c->out, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
    if (number == 405)
        text_print(&c->out, "Allow: %s\r\n", strcmp(c->route->method, "GET") == 0 ? "GET, HEAD" : c->route->method);
    if (size >= 0)
        text_print(&c->out, "Content-Length: %lld\r\n", (long long)size);
    else if (!c->old)
        text_print(&c->out, "Transfer-Encoding: chunked\r\n");
    text_print(&c->out, "Connection: %s\r\n\r\n", c->keep ? "keep-alive" : "close");
}

static void respond(connection *c, int number, const char *type, const char *body)
{
    put_head(c, number, type, (int64_t)strlen(body));
    if (!c->head_only)
        text_add(&c->out, body, strlen(body));
    flush(c);
}

/*  An error as OpenAI writes them. name: the parameter that is wrong, or null. */
static const char *make_error(connection *c, int number, const char *name, const char *message)
{
    text *t = &c->part;
    text_cut(t, t->size);
    text_print(t, "{\"error\":{\"message\":\"");
    text_escape(t, message, strlen(message));
    text_print(t, "\",\"type\":\"%s\",\"param\":%s", status_of(number)->type, name ? "\"" : "null");
    if (name)
        text_escape(t, name, strlen(name) < 100 ? strlen(name) : 100);
    text_print(t, "%s,\"code\":%d}}", name ? "\"" : "", number);
    return t->data;
}

/*  Answers with an error. False, for the caller to return. */
static bool refuse(connection *c, int number, const char *name, const char *format, ...)
{
    char message[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    respond(c, number, "application/json", make_error(c, number, name, message));
    return false;
}

/* --- requests: what is asked for --------------------------------------------------------------------------------- */

typedef enum parameter_kind {
    NUMBER,  /* a double */
    INTEGER, /* an int64_t */
    BOOLEAN, /* a bool */
    OTHER,   /* code reads it, or it does not change the answer */
    REFUSED  /* it does, and is not there: only what changes nothing is taken: the number `least`, false, "", {} and [] */
} parameter_kind;

/*  All of them may be null, which is as if they were not there. */
static const struct parameter {
    const char *names;
    int where;
    parameter_kind kind;
    double least, most;
    size_t offset; /* in a job */
} parameters[] = {
    {"model stop logit_bias stream_options seed", BOTH, OTHER, 0, 0, 0},
    {"prompt logprobs", TEXT, OTHER, 0, 0, 0},
    {"messages response_format", CHAT, OTHER, 0, 0, 0},
    {"max_tokens", BOTH, INTEGER, 1, 1e9, offsetof(job, max_tokens)},
    {"max_completion_tokens", CHAT, INTEGER, 1, 1e9, offsetof(job, max_tokens)},
    {"temperature", BOTH, NUMBER, 0, 2, offsetof(job, sampling.temperature)},
    {"top_p", BOTH, NUMBER, 0, 1, offsetof(job, sampling.top_p)},
    {"top_k", BOTH, INTEGER, 0, 1e9, offsetof(job, top_k)},
    {"min_p", BOTH, NUMBER, 0, 1, offsetof(job, sampling.min_p)},
    {"repetition_penalty", BOTH, NUMBER, 0.01, 100, offsetof(job, sampling.repetition_penalty)},
    {"stream", BOTH, BOOLEAN, 0, 0, offsetof(job, stream)},
    {"logprobs", CHAT, BOOLEAN, 0, 0, offsetof(job, logprobs)},
    {"user", BOTH, OTHER, 0, 0, 0},
    {"metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention", CHAT, OTHER, 0, 0, 0},
    {"prediction", CHAT, OTHER, 0, 0, 0},                                    /* speed alone */
    {"parallel_tool_calls tool_choice function_call", CHAT, OTHER, 0, 0, 0}, /* there are no tools */
    {"n", BOTH, REFUSED, 1, 0, 0},
    {"best_of", TEXT, REFUSED, 1, 0, 0},
    {"frequency_penalty presence_penalty", BOTH, REFUSED, 0, 0, 0},
    {"echo suffix", TEXT, REFUSED, 0, 0, 0},
    {"top_logprobs tools functions modalities audio web_search_options reasoning_effort verbosity", CHAT, REFUSED, 0, 0, 0},
};

/*  All parameters have their names in the table, and their values within its limits. */
static bool read_parameters(connection *c, const json *request)
{
    const json *value;
    for (value = request->first; value; value = value->next) {
        const struct parameter *p = parameters, *end = parameters + COUNT(parameters);
        const char *name = value->key;
        bool is_number = value->kind == JSON_NUMBER, is_boolean = value->kind == JSON_TRUE || value->kind == JSON_FALSE;
        void *to;
        while (p < end && !((p->where & c->route->kind) && has_item(p->names, name, strncmp)))
            p++;
        if (p == end)
            return refuse(c, 400, name, "there is no parameter %.100s here", name);
        to = (char *)c->job + p->offset;
        if (value->kind == JSON_NULL)
            continue;
        if (p->kind == REFUSED && (is_number ? value->number != p->least : value->kind == JSON_TRUE || value->size || value->count))
            return refuse(c, 400, name, "this server does not have %s", name);
        if (p->kind == BOOLEAN && !is_boolean)
            return refuse(c, 400, name, "%s has to be true or false", name);
        if ((p->kind == NUMBER || p->kind == INTEGER) && (!is_number || value->number < p->least || value->number > p->most ||
                                                          (p->kind == INTEGER && value->number != floor(value->number))))
            return refuse(c, 400, name, "%s has to be %s from %.15g to %.15g", name, p->kind == INTEGER ? "an integer" : "a number",
                          p->least, p->most);
        if (p->kind == NUMBER)
            *(double *)to = value->number;
        else if (p->kind == INTEGER)
            *(int64_t *)to = (int64_t)value->number;
        else if (p->kind == BOOLEAN)
            *(bool *)to = value->kind == JSON_TRUE;
    }
    return true;
}

/*  An integer of 64 bits, with or without a sign: a double has not all of them. */
static bool read_seed(connection *c, const json *seed)
{
    uint64_t *to = &c->job->sampling.seed;
    char *end = NULL;
    if (!seed)
        return true;
    errno = 0;
    if (seed->kind == JSON_NUMBER)
        *to = seed->digits[0] == '-' ? (uint64_t)strtoll(seed->digits, &end, 10) : (uint64_t)strtoull(seed->digits, &end, 10);
    if (!end || errno || end != seed->digits + seed->size)
        return refuse(c, 400, "seed", "seed has to be an integer from -9223372036854775808 to 18446744073709551615, in digits");
    return true;
}

static bool read_stops(connection *c, const json *stop)
{
    job *j = c->job;
    const json *one = stop && stop->kind == JSON_ARRAY ? stop->first : stop;
    for (; one; one = one == stop ? NULL : one->next) {
        if (one->kind != JSON_STRING || !one->size || one->size > 1000 || j->stop_count == MAX_STOPS)
            return refuse(c, 400, "stop", "stop has to be a string of 1 to 1000 bytes, or an array of up to %d of them", MAX_STOPS);
        j->stops[j->stop_count++] = one->string;
    }
    return true;
}

static bool read_biases(connection *c, const json *biases)
{
    job *j = c->job;
    const json *one = biases ? biases->first : NULL;
    ignis_logit_bias *at;
    if (biases && (biases->kind != JSON_OBJECT || biases->count > MAX_BIASES))
        return refuse(c, 400, "logit_bias", "logit_bias has to be an object of up to %d numbers", MAX_BIASES);
    for (; one; one = one->next) {
        size_t digits = strspn(one->key, "0123456789");
        long id = digits && digits < 9 && !one->key[digits] ? strtol(one->key, NULL, 10) : -1;
        if (id < 0 || id >= engine.tokens || one->kind != JSON_NUMBER || fabs(one->number) > 100)
            return refuse(c, 400, "logit_bias", "logit_bias has to be numbers from -100 to 100 under the ids of tokens, 0 to %d",
                          engine.tokens - 1);
        for (at = j->biases + j->sampling.bias_count++; at > j->biases && at[-1].id > id; at--) /* in rising order */
            at[0] = at[-1];
        if (at > j->biases && at[-1].id == id)
            return refuse(c, 400, "logit_bias", "logit_bias has the token %ld twice", id);
        at->id = (int32_t)id;
        at->bias = one->number <= -100 ? -INFINITY : (float)one->number;
    }
    j->sampling.biases = j->biases;
    return true;
}

/*  Texts of the parts {"type": "text", "text": "..."}, pushed together where the first one lies: a later one lies behind it. Null: refused. */
static char *join_parts(const json *content)
{
    const json *part = content->first, *first = part ? member(part, "text") : NULL, *piece;
    size_t size = 0;
    for (; part; part = part->next) {
        piece = member(part, "text");
        if (!is_text(member(part, "type"), "text") || !piece || piece->kind != JSON_STRING)
            return NULL;
        memmove(first->string + size, piece->string, piece->size);
        size += piece->size;
    }
    if (first)
        first->string[size] = 0;
    return first ? first->string : NULL;
}

/*  Makes tokens of messages. What they have in their text is text: no control token. */
static bool read_messages(connection *c, const json *messages)
{
    job *j = c->job;
    ignis_chat_desc chat = {.add_generation_prompt = true};
    const json *one;
    int i = 0;
    if (!engine.talks)
        return refuse(c, 400, NULL, "this model has no chat template: take /v1/completions");
    if (!messages || messages->kind != JSON_ARRAY || !messages->count)
        return refuse(c, 400, "messages", "messages has to be an array of at least one message");
    j->messages = (ignis_message *)allocate((size_t)messages->count, sizeof *j->messages);
    for (one = messages->first; one; one = one->next, i++) {
        const json *role = member(one, "role"), *content = member(one, "content");
        if (!role || role->kind != JSON_STRING || !has_item("system user assistant developer", role->string, strncmp))
            return refuse(c, 400, "messages", "messages[%d].role has to be system, developer, user or assistant", i);
        if (member(one, "tool_calls") || member(one, "function_call") || member(one, "audio"))
            return refuse(c, 400, "messages", "messages[%d]: this server knows no tools and no sound", i);
        j->messages[i].role = is_text(role, "developer") ? "system" : role->string; /* OpenAI's newer name for it */
        j->messages[i].content = !content ? NULL : content->kind == JSON_ARRAY ? join_parts(content) : content->string;
        if (!j->messages[i].content)
            return refuse(c, 400, "messages", "messages[%d].content has to be a text, or an array of parts of type text", i);
    }
    j->count = ignis_chat_encode(engine.tokenizer, j->messages, i, &chat, j->ids, engine.context);
    return true;
}

/*  Makes tokens of a text, or an array of one text; or takes them from an array of their ids. */
static bool read_prompt(connection *c, const json *prompt)
{
    job *j = c->job;
    const json *one;
    if (prompt && prompt->kind == JSON_ARRAY && prompt->count == 1 && prompt->first->kind != JSON_NUMBER)
        prompt = prompt->first;
    if (!prompt || (prompt->kind != JSON_STRING && (prompt->kind != JSON_ARRAY || !prompt->count)))
        return refuse(c, 400, "prompt", "prompt has to be a text, or an array of the ids of tokens; one prompt a request");
    if (prompt->kind == JSON_STRING)
        j->count = ignis_tokenizer_encode(engine.tokenizer, prompt->string, (int64_t)prompt->size, NULL, j->ids, engine.context);
    for (one = prompt->first; one; one = one->next, j->count++) {
        if (one->kind != JSON_NUMBER || one->number != floor(one->number) || one->number < 0 || one->number >= engine.tokens)
            return refuse(c, 400, "prompt", "prompt[%d] has to be the id of a token, 0 to %d; one prompt a request", j->count,
                          engine.tokens - 1);
        if (j->count < engine.context)
            j->ids[j->count] = (int32_t)one->number;
    }
    return true;
}

/*  What an answer looks like: {"type": "text"}, "json_object", or "json_schema" with {"schema": ...}. */
static bool read_format(connection *c, const json *format)
{
    const json *type = member(format, "type"), *schema = member(format, "json_schema");
    text *grammar = &c->job->grammar;
    if (is_text(type, "text"))
        return true;
    schema = schema && schema->kind == JSON_OBJECT ? member(schema, "schema") : NULL;
    if (is_text(type, "json_object"))
        text_print(grammar, "{\"type\":\"object\"}");
    else if (is_text(type, "json_schema") && schema && schema->kind == JSON_OBJECT)
        json_print(grammar, schema);
    else
        return refuse(c, 400, "response_format", "response_format has the types text, json_object, and json_schema with a schema");
    if (!is_text(type, "json_object")) { /* its first bytes are the key it had */
        text_cut(grammar, strlen("\"schema\":"));
        if (ignis_grammar_check(grammar->data) != IGNIS_OK) {
            refuse(c, 400, "response_format", "%s", ignis_status_message());
            ignis_status_clear();
            return false;
        }
    }
    return true;
}

/*  What the table leaves to code. */
static bool read_rest(connection *c, const json *request)
{
    job *j = c->job;
    const json *model = member(request, "model"), *format = member(request, "response_format"), *logprobs = member(request, "logprobs");
    const json *streamed = member(request, "stream_options"), *usage = streamed ? member(streamed, "include_usage") : NULL;
    if (model && !is_text(model, settings.name))
        return refuse(c, 404, "model", "the model of this server is %.200s", settings.name);
    if (format && !read_format(c, format))
        return false;
    if (streamed && streamed->kind != JSON_OBJECT)
        return refuse(c, 400, "stream_options", "stream_options has to be an object");
    if (!j->chat && logprobs && (logprobs->kind != JSON_NUMBER || logprobs->number != 0))
        return refuse(c, 400, "logprobs", "this server has the log probabilities of the answer's own tokens alone: logprobs has to be 0");
    j->usage = usage && usage->kind == JSON_TRUE;
    j->logprobs = j->logprobs || (!j->chat && logprobs);
    if (!read_seed(c, member(request, "seed")) || !read_stops(c, member(request, "stop")) || !read_biases(c, member(request, "logit_bias")))
        return false;
    j->ids = (int32_t *)resize(NULL, sizeof *j->ids * (size_t)engine.context); /* more are counted, but not written */
    if (!(j->chat ? read_messages(c, member(request, "messages")) : read_prompt(c, member(request, "prompt"))))
        return false;
    if (j->count <= 0) {
        refuse(c, 400, NULL, "%s", j->count ? ignis_status_message() : "the prompt has no tokens");
        ignis_status_clear();
    } else if (j->count >= engine.context)
        refuse(c, 400, NULL, "the prompt has %d tokens; the context has room for %d, and one of the answer", j->count, engine.context - 1);
    return j->count > 0 && j->count < engine.context;
}

/*  Another number for each request. */
static uint64_t random_number(const connection *c)
{
    struct timespec now;
    uint64_t x;
    clock_gettime(CLOCK_REALTIME, &now);
    x = ((uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec + (uint64_t)(uintptr_t)c) * 0x9E3779B97F4A7C15u;
    return (x ^ x >> 29) >> 12;
}

/*  Makes a job of a request. */
static bool read_job(connection *c)
{
    job *j = c->job;
    json_reader r;
    bool ok;
    j->chat = c->route->kind == CHAT;
    j->sampling.temperature = j->sampling.top_p = 1; /* as OpenAI has them */
    j->max_tokens = j->chat ? INT32_MAX : 16;
    j->sampling.seed = random_number(c);
    text_add(&c->body, "", 0);
    ok = json_read(&r, &c->body);
    if (!ok)
        refuse(c, 400, NULL, "the body is not JSON: %s at byte %ld", r.error, (long)(r.at - c->body.data));
    else if (r.values->kind != JSON_OBJECT)
        ok = refuse(c, 400, NULL, "the body has to be a JSON object");
    ok = ok && read_parameters(c, r.values) && read_rest(c, r.values);
    free(r.values);
    if (ok && j->max_tokens > engine.context - j->count)
        j->max_tokens = engine.context - j->count;
    j->sampling.top_p = j->sampling.top_p > 0 ? j->sampling.top_p : 1e-9; /* for Ignis 0 is all */
    j->sampling.top_k = (int)j->top_k;
    j->characters.tokenizer = engine.tokenizer;
    j->characters.inside = !j->chat;
    return ok;
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
        page);
}

static void answer_health(connection *c)
{
    int jobs, running;
    pthread_mutex_lock(&shared.lock);
    jobs = shared.jobs;
    pthread_mutex_unlock(&shared.lock);
    running = jobs < settings.sequences ? jobs : (int)settings.sequences;
    text_cut(&c->part, c->part.size);
    text_print(&c->part, "{\"status\":\"ok\",\"running\":%d,\"waiting\":%d}", running, jobs - running);
    respond(c, 200, "application/json", c->part.data);
}

static void answer_models(connection *c)
{
    text_cut(&c->part, c->part.size);
    text_print(&c->part, "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"ignis\",",
               engine.name.data, (long long)engine.started);
    text_print(&c->part, "\"max_model_len\":%d}]}", engine.context);
    respond(c, 200, "application/json", c->part.data);
}

enum { WHOLE, EVENT, LAST_EVENT, USAGE_EVENT };

/*  Takes what the model's thread has made since. Under the job's lock; what is made of it is made without. */
static void take_news(connection *c)
{
    growth before = c->said;
    c->said = c->job->news_text;
    c->job->news_text = before;
}

/*  An answer, or one event of a stream, with what was taken. */
static const char *make_answer(connection *c, int what)
{
    job *j = c->job;
    growth *g = &c->said;
    const char *out = g->out.size ? g->out.data : "";
    text *t = &c->part;
    text_cut(t, t->size);
    text_print(t, "{\"id\":\"%s\",\"object\":\"%s%s\",\"created\":%lld,\"model\":\"%s\",\"system_fingerprint\":\"ignis-%s\",\"choices\":[",
               c->id, j->chat ? "chat.completion" : "text_completion", j->chat && what != WHOLE ? ".chunk" : "", (long long)c->created,
               engine.name.data, ignis_version_string());
    if (what != USAGE_EVENT) {
        if (!j->chat)
            text_print(t, "{\"index\":0,\"text\":\"%s\"", out);
        else if (what == WHOLE)
            text_print(t, "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%s\"}", out);
        else if (what == LAST_EVENT)
            text_print(t, "{\"index\":0,\"delta\":{}");
        else
            text_print(t, "{\"index\":0,\"delta\":{%s\"content\":\"%s\"}", c->begun ? "" : "\"role\":\"assistant\",", out);
        if (!g->tokens.size)
            text_print(t, ",\"logprobs\":null");
        else if (j->chat)
            text_print(t, ",\"logprobs\":{\"content\":[%s],\"refusal\":null}", g->tokens.data);
        else
            text_print(t, ",\"logprobs\":{\"tokens\":[%s],\"token_logprobs\":[%s],\"text_offset\":[%s],\"top_logprobs\":null}",
                       g->tokens.data, g->log_probs.data, g->offsets.data);
        if (what == EVENT)
            text_print(t, ",\"finish_reason\":null}");
        else
            text_print(t, ",\"finish_reason\":\"%s\"}", j->finish);
        text_cut(&g->out, g->out.size), text_cut(&g->tokens, g->tokens.size);
        text_cut(&g->log_probs, g->log_probs.size), text_cut(&g->offsets, g->offsets.size);
    }
    if (what == WHOLE || what == USAGE_EVENT)
        text_print(t, "],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}}", j->count, j->drawn,
                   j->count + j->drawn);
    else
        text_print(t, j->usage ? "],\"usage\":null}" : "]}");
    return t->data;
}

/*  An event of a stream, which is a chunk. */
static void put_event(connection *c, const char *data)
{
    if (!c->begun)
        put_head(c, 200, "text/event-stream", -1);
    c->begun = true;
    if (c->old)
        text_print(&c->out, "data: %s\n\n", data);
    else
        text_print(&c->out, "%zx\r\ndata: %s\n\n\r\n", strlen(data) + 8, data);
}

/*  error: null, or why the answer is not whole, with its number. */
static void end_stream(connection *c, int number, const char *error)
{
    if (error)
        put_event(c, make_error(c, number, NULL, error));
    else {
        if (!c->begun || c->said.out.size || c->said.tokens.size)
            put_event(c, make_answer(c, EVENT));
        put_event(c, make_answer(c, LAST_EVENT));
        if (c->job->usage)
            put_event(c, make_answer(c, USAGE_EVENT));
        put_event(c, "[DONE]");
    }
    text_print(&c->out, c->old ? "" : "0\r\n\r\n");
    flush(c);
}

/*  Puts the job in the list, if there is room. */
static bool enlist(connection *c)
{
    job **last = &shared.first;
    int64_t most = settings.sequences + settings.queue;
    bool ok;
    if (interrupted())
        return refuse(c, 503, NULL, "the server is shutting down");
    pthread_mutex_lock(&shared.lock);
    ok = shared.jobs < most;
    if (ok) {
        while (*last)
            last = &(*last)->next;
        *last = c->job;
        shared.jobs++;
        pthread_cond_signal(&shared.wake_model);
    }
    pthread_mutex_unlock(&shared.lock);
    return ok || refuse(c, 429, NULL, "%d requests are running or waiting, which is as many as this server takes", (int)most);
}

/*  Waits until the job has ended, passes on what there is of a stream, and drops the job if the client leaves. Null, or why it was dropped. */
static const char *follow(connection *c)
{
    job *j = c->job;
    double until = seconds() + (double)settings.answer_time;
    const char *late = NULL;
    bool waits;
    pthread_mutex_lock(&j->lock);
    while (!j->done && !late && !c->gone) {
        bool some = j->stream && (j->news_text.out.size || j->news_text.tokens.size);
        if (some)
            take_news(c);
        else
            nap(&j->news, &j->lock);
        pthread_mutex_unlock(&j->lock);
        if (some)
            put_event(c, make_answer(c, EVENT));
        flush(c);
        if (c->in.size <= MAX_HEAD) /* a little of the next request, to see whether the client is there */
            fetch(c);
        late = seconds() > stop_time() ? "the server is shutting down"
               : seconds() > until     ? "the answer has taken longer than this server allows"
                                       : NULL;
        pthread_mutex_lock(&j->lock);
    }
    pthread_mutex_unlock(&j->lock);
    pthread_mutex_lock(&shared.lock);
    j->dropped = true;
    waits = !j->begun;
    if (waits)
        job_leave(j);
    pthread_mutex_unlock(&shared.lock);
    pthread_mutex_lock(&j->lock);
    while (!j->done && !waits) /* soon: at the end of a step */
        pthread_cond_wait(&j->news, &j->lock);
    take_news(c);
    pthread_mutex_unlock(&j->lock);
    return late;
}

/*  Makes a job of the request, and answers with what becomes of it. */
static void answer_text(connection *c)
{
    job j;
    const char *late, *error;
    memset(&j, 0, sizeof j);
    pthread_mutex_init(&j.lock, NULL);
    pthread_cond_init(&j.news, NULL);
    c->job = &j;
    c->created = time(NULL);
    snprintf(c->id, sizeof c->id, "%s-%013llx", c->route->kind == CHAT ? "chatcmpl" : "cmpl", (unsigned long long)random_number(c));
    if (read_job(c) && enlist(c)) {
        late = follow(c);
        error = j.finish ? NULL : late ? late : j.message;
        c->keep = c->keep && !late;
        if (!j.stream && !error)
            respond(c, 200, "application/json", make_answer(c, WHOLE));
        else if (!c->begun && error)
            refuse(c, late ? 503 : 500, NULL, "%s", error);
        else
            end_stream(c, late ? 503 : 500, error);
    }
    free(j.ids), free(j.messages), text_free(&j.grammar);
    text_free(&j.held), growth_free(&j.news_text), growth_free(&c->said);
    pthread_cond_destroy(&j.news);
    pthread_mutex_destroy(&j.lock);
}

/* --- requests: HTTP ---------------------------------------------------------------------------------------------- */

static const route routes[] = {
    {"GET", "/", true, 0, answer_page},
    {"GET", "/health", true, 0, answer_health},
    {"GET", "/v1/models", false, 0, answer_models},
    {"POST", "/v1/completions", false, TEXT, answer_text},
    {"POST", "/v1/chat/completions", false, CHAT, answer_text},
};

/*  Waits for more. False: there is none, and the connection ends. */
static bool receive(connection *c)
{
    size_t had;
    text_cut(&c->in, c->taken);
    c->taken = 0;
    had = c->in.size;
    while (fetch(c) && c->in.size == had)
        if (!wait_for(c, POLLIN, c->until))
            return c->idle ? false : refuse(c, 408, NULL, "the request has not come in time");
    return !c->gone;
}

/*  The next line, without its end; null, if the request is refused, or the client has left. *room: the bytes that lines may have. */
static char *read_line(connection *c, size_t *room, int number, const char *too_long)
{
    size_t i;
    for (i = 0; i < *room; i++) {
        char *line, now, before;
        if (c->taken + i == c->in.size && !receive(c))
            return NULL;
        line = c->in.data + c->taken;
        now = line[i];
        before = (char)(i ? line[i - 1] : 0);
        if (((unsigned char)now < 0x20 && !strchr("\t\r\n", now)) || now == 0 || now == 0x7F || (now == '\n') != (before == '\r')) {
            refuse(c, 400, NULL, "this is not HTTP: control characters, or lines that do not end in CR LF");
            return NULL;
        }
        if (now == '\n') {
            line[i - 1] = 0;
            c->taken += i + 1;
            *room -= i + 1;
            return line;
        }
    }
    refuse(c, number, NULL, "%s", too_long);
    return NULL;
}

static bool is_token(const char *s)
{
    return *s && !s[strspn(s, "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")];
}

enum { HOST, LENGTH, CODING, CONNECTION, EXPECT, KEY, TYPE, ORIGIN, ENCODING, FIELDS };

static const char *const fields[FIELDS] = {"Host",         "Content-Length", "Transfer-Encoding", "Connection", "Expect", "Authorization",
                                           "Content-Type", "Origin",         "Content-Encoding"};

/*  Whether only this machine reaches the server. */
static bool is_local(void)
{
    return strcmp(settings.host, "localhost") == 0 || strncmp(settings.host, "127.", 4) == 0 || strcmp(settings.host, "::1") == 0;
}

/*  Whether a name is an address, as "192.168.1.5" or "[fe80::1]". */
static bool is_address(const char *name)
{
    unsigned char address[16];
    char inside[256] = "";
    if (name[0] != '[')
        return inet_pton(AF_INET, name, address) == 1;
    snprintf(inside, sizeof inside, "%.*s", (int)strcspn(name + 1, "]"), name + 1);
    return inet_pton(AF_INET6, inside, address) == 1;
}

/*  The name in "name:port". A page whose name was made to lead to this machine (DNS rebinding) has another one than this server, which is no
    address; and no key. */
static bool is_own_name(const char *host)
{
    char name[256];
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    size_t size = end ? (size_t)(end + 1 - host) : strcspn(host, ":");
    if (!size || size >= sizeof name || (host[size] && (host[size] != ':' || host[size + 1 + strspn(host + size + 1, "0123456789")])))
        return false;
    snprintf(name, sizeof name, "%.*s", (int)size, host);
    return has_item("localhost,127.0.0.1,[::1]", name, strncasecmp) || has_item(settings.allowed, name, strncasecmp) ||
           strcasecmp(name, settings.host) == 0 || (!is_local() && (is_address(name) || settings.key));
}

/*  Takes as long for every key of the same length. */
static bool is_key(const char *given)
{
    const char *key = settings.key;
    int difference = 0;
    if (!given || strncasecmp(given, "Bearer ", 7) != 0 || strlen(given + 7) != strlen(key))
        return false;
    for (given += 7; *key; key++, given++)
        difference |= *key ^ *given;
    return difference == 0;
}

/*  Header lines, with a 0 behind each and an empty one at the end, into values. */
static bool read_fields(connection *c, char *line, const char *values[FIELDS])
{
    int i, count = 0;
    char *next;
    for (; *line; line = next) {
        char *end = line + strlen(line), *colon = strchr(line, ':'), *value;
        next = end + 1;
        if (!colon)
            return refuse(c, 400, NULL, "a header line without a colon");
        *colon = 0;
        if (!is_token(line))
            return refuse(c, 400, NULL, "the name of a header has characters that names do not have");
        if (++count > MAX_HEADERS)
            return refuse(c, 431, NULL, "too many headers");
        value = colon + 1 + strspn(colon + 1, " \t");
        while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
            *--end = 0;
        for (i = 0; i < FIELDS && strcasecmp(line, fields[i]) != 0; i++)
            continue;
        if (i < FIELDS && values[i])
            return refuse(c, 400, NULL, "a header that says how to read the request is there twice");
        if (i < FIELDS)
            values[i] = value;
    }
    return true;
}

/*  How long the body is, and the route, if it may be taken. */
static bool check_head(connection *c, const char *method, const char *path, const char *values[FIELDS])
{
    const char *host = values[HOST], *origin = values[ORIGIN], *site = origin ? strstr(origin, "://") : NULL;
    const char *length = values[LENGTH], *type = values[TYPE] ? values[TYPE] : "", *going_on = values[CONNECTION];
    const route *r = routes, *end = routes + COUNT(routes);
    c->chunked = values[CODING] != NULL;
    if (c->chunked && (length || c->old))
        return refuse(c, 400, NULL, "Transfer-Encoding beside Content-Length, or in HTTP/1.0");
    if (c->chunked && strcasecmp(values[CODING], "chunked") != 0)
        return refuse(c, 501, NULL, "Transfer-Encoding: only chunked is known");
    if (length && (!*length || length[strspn(length, "0123456789")]))
        return refuse(c, 400, NULL, "Content-Length is no number");
    if (length && (strlen(length) > 12 || atoll(length) > settings.max_body))
        return refuse(c, 413, NULL, "the body is larger than this server takes");
    c->length = length ? (size_t)atoll(length) : 0;
    c->head_only = strcmp(method, "HEAD") == 0;
    if (!host && !c->old)
        return refuse(c, 400, NULL, "HTTP/1.1 needs a Host header");
    if (host && !is_own_name(host))
        return refuse(c, 403, NULL, "Host is none of this server's names; --allow-host adds one");
    if (origin && (!site || !host || strcasecmp(site + 3, host) != 0))
        return refuse(c, 403, NULL, "Origin is the page of another site");
    c->lasting = c->old ? has_item(going_on, "keep-alive", strncasecmp) : !has_item(going_on, "close", strncasecmp);
    c->keep = c->lasting && !c->chunked && !c->length; /* if it is refused, nobody reads the body */
    while (r < end && strcmp(path, r->path) != 0)
        r++;
    c->route = r;
    if (r == end)
        return refuse(c, 404, NULL, "there is nothing at this path");
    if (strcmp(method, r->method) != 0 && !(c->head_only && strcmp(r->method, "GET") == 0))
        return refuse(c, 405, NULL, "this path has the method %s only", r->method);
    if (settings.key && !r->open && !is_key(values[KEY]))
        return refuse(c, 401, NULL, "no key, or a wrong one: Authorization: Bearer KEY");
    if (r->kind && !c->chunked && !length)
        return refuse(c, 411, NULL, "neither Content-Length nor Transfer-Encoding");
    if (r->kind && (strncasecmp(type, "application/json", 16) != 0 || !strchr("; \t", type[16])))
        return refuse(c, 415, NULL, "Content-Type has to be application/json");
    if (values[ENCODING] && strcasecmp(values[ENCODING], "identity") != 0)
        return refuse(c, 415, NULL, "Content-Encoding: a body has to come as it is, without compression");
    if (values[EXPECT] && strcasecmp(values[EXPECT], "100-continue") != 0)
        return refuse(c, 417, NULL, "Expect: only 100-continue is known");
    c->keep = false;
    return true;
}

/*  The request line and the headers. False: they are refused, or do not come. */
static bool read_head(connection *c)
{
    const char *values[FIELDS] = {0}, *target_host = NULL;
    char *method, *path, *version, *line, authority[300];
    size_t room = MAX_HEAD, size;
    c->keep = c->old = c->head_only = c->begun = false;
    c->idle = true;
    c->until = seconds() + (double)settings.idle_time;
    do { /* some clients end a body with one line too many */
        if (c->taken == c->in.size && !receive(c))
            return false;
        c->taken += strspn(c->in.data + c->taken, "\r\n");
    } while (c->taken == c->in.size);
    c->idle = false;
    c->until = seconds() + (double)settings.request_time;
    text_cut(&c->head, c->head.size);
    do {
        line = read_line(c, &room, 431, "the request line and the headers are too long");
        if (!line)
            return false;
        text_add(&c->head, line, strlen(line) + 1);
    } while (*line);
    method = c->head.data;
    line = method + strlen(method) + 1;
    path = strchr(method, ' ');
    version = path ? strchr(path + 1, ' ') : NULL;
    if (!version || strchr(version + 1, ' '))
        return refuse(c, 400, NULL, "the request line is not METHOD PATH VERSION");
    *path++ = *version++ = 0;
    if (strncasecmp(path, "http://", 7) == 0 || strncasecmp(path, "https://", 8) == 0) { /* as to a proxy: a server has to take it, too */
        path = strstr(path, "://") + 3;
        size = strcspn(path, "/?#");
        if (!size || size >= sizeof authority)
            return refuse(c, 400, NULL, "the target of the request has no host, or a long one");
        snprintf(authority, sizeof authority, "%.*s", (int)size, path);
        path += size;
        target_host = authority;
        if (*path != '/')
            *--path = '/', path[1] = 0; /* in place of the last byte of the host, which was copied */
    }
    if (strncmp(version, "HTTP/", 5) != 0 || !is_token(method) || path[0] != '/')
        return refuse(c, 400, NULL, "the request line is not METHOD PATH VERSION");
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return refuse(c, 505, NULL, "only HTTP/1.1 and 1.0 are known");
    path[strcspn(path, "?")] = 0;
    c->old = version[7] == '0';
    if (!read_fields(c, line, values))
        return false;
    if (target_host && (values[HOST] || c->old))
        values[HOST] = target_host; /* it is what counts (RFC 9112, 3.2.2) */
    if (!check_head(c, method, path, values))
        return false;
    if (values[EXPECT] && !c->old && (c->chunked || c->length) && c->taken == c->in.size) {
        text_print(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
        flush(c);
    }
    return true;
}

static bool read_bytes(connection *c, size_t size)
{
    while (size) {
        size_t there = c->in.size - c->taken, piece = there < size ? there : size;
        if (!piece && !receive(c))
            return false;
        text_add(&c->body, c->in.data + c->taken, piece);
        c->taken += piece;
        size -= piece;
    }
    return true;
}

static bool read_body(connection *c)
{
    static const char too_long[] = "a line between chunks is too long";
    size_t room, digits, size = c->length;
    char *line;
    if (!c->chunked)
        return read_bytes(c, size);
    for (;;) {
        room = MAX_LINE;
        line = read_line(c, &room, 400, too_long);
        if (!line)
            return false;
        digits = strspn(line, "0123456789abcdefABCDEF");
        if (!digits || digits > 8 || !strchr("; \t", line[digits]))
            return refuse(c, 400, NULL, "a chunk without a size");
        size = (size_t)strtoul(line, NULL, 16);
        if (!size)
            break;
        if (c->body.size + size > (size_t)settings.max_body)
            return refuse(c, 413, NULL, "the body is larger than this server takes");
        if (!read_bytes(c, size) || !(line = read_line(c, &room, 400, too_long)))
            return false;
        if (*line)
            return refuse(c, 400, NULL, "a chunk is longer than its size");
    }
    for (room = MAX_HEAD; line && *line;) /* trailers say nothing that matters here */
        line = read_line(c, &room, 431, "the trailers are too long");
    return line != NULL;
}

/* --- the threads of connections ---------------------------------------------------------------------------------- */

static void *serve(void *data)
{
    connection *c = (connection *)data, **at = &shared.connections;
    double until;
    if (c->refused)
        refuse(c, 503, NULL, "as many connections are open as this server takes");
    else
        do {
            if (read_head(c) && read_body(c)) {
                c->keep = c->lasting;
                c->route->answer(c);
            }
            text_free(&c->body), text_free(&c->out), text_free(&c->part); /* they may be large */
        } while (c->keep && !c->gone);
    shutdown(c->fd, SHUT_WR);
    for (until = seconds() + LINGER; fetch(c) && wait_for(c, POLLIN, until);) /* or what still comes takes the last answer with it */
        text_cut(&c->in, c->in.size);
    close(c->fd);
    pthread_mutex_lock(&shared.lock);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    shared.connection_count--;
    pthread_cond_signal(&shared.ended);
    pthread_mutex_unlock(&shared.lock);
    text_free(&c->in), text_free(&c->head), text_free(&c->out), text_free(&c->part);
    free(c);
    return NULL;
}

/*  The address of a client; of IPv6 its first 64 bits, as a client may choose the others. Returns whether it is the loopback of this machine. */
static bool read_address(const struct sockaddr_storage *from, unsigned char address[16])
{
    static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF}, own[16] = {[15] = 1};
    memset(address, 0, 16);
    if (from->ss_family == AF_INET) {
        memcpy(address, mapped, 12);
        memcpy(address + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
    } else if (from->ss_family == AF_INET6) {
        memcpy(address, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
    }
    if (memcmp(address, mapped, 12) == 0)
        return address[12] == 127;
    if (memcmp(address, own, 16) == 0)
        return true;
    memset(address + 8, 0, 8);
    return false;
}

/*  Answers a connection of an address that has as many as it may have, without a thread, and without waiting for it. */
static void turn_away(connection *c)
{
    const char *body = make_error(c, 503, NULL, "this address has as many connections as it may have");
    ssize_t sent;
    put_head(c, 503, "application/json", (int64_t)strlen(body));
    text_add(&c->out, body, strlen(body));
    sent = send(c->fd, c->out.data, c->out.size, 0);
    (void)sent;
    text_free(&c->out), text_free(&c->part);
}

/*  Takes up a connection: a thread has it from here on. Under the lock. */
static void take_up(int fd, const struct sockaddr_storage *from)
{
    connection *c = (connection *)allocate(1, sizeof *c), *other;
    bool own = read_address(from, c->address);
    int same = 0, on = 1;
    pthread_t thread;
    for (other = shared.connections; other; other = other->next)
        same += memcmp(other->address, c->address, sizeof c->address) == 0;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->fd = fd;
    c->refused = shared.connection_count >= settings.connections;
    same = same >= settings.client_connections && (!own || settings.limits_all);
    if (same)
        turn_away(c);
    if (same || pthread_create(&thread, NULL, serve, c) != 0) {
        close(fd);
        free(c);
        return;
    }
    pthread_detach(thread);
    shared.connection_count++;
    c->next = shared.connections;
    shared.connections = c;
}

/*  Answers, until a signal comes; then until all that runs is answered, or the time for that is over, or a second signal comes. */
static void run(int listener)
{
    struct pollfd polled[2] = {{listener, POLLIN, 0}, {shared.signal_pipe[0], POLLIN, 0}};
    int fd;
    pthread_mutex_lock(&shared.lock);
    while (!interrupted() || shared.connection_count) {
        struct sockaddr_storage from;
        socklen_t size = sizeof from;
        if (interrupted()) {
            double stop = seconds() + (interrupted() > 1 ? 0 : (double)settings.grace_time);
            stop = stop < stop_time() ? stop : stop_time();
            __atomic_store(&shared.stop, &stop, __ATOMIC_SEQ_CST);
        }
        if (interrupted() || shared.connection_count >= settings.connections + OVER) {
            nap(&shared.ended, &shared.lock);
            continue;
        }
        pthread_mutex_unlock(&shared.lock);
        memset(&from, 0, sizeof from);
        fd = poll(polled, 2, -1) > 0 && polled[0].revents ? accept(listener, (struct sockaddr *)&from, &size) : -1;
        if (fd < 0)
            poll(NULL, 0, 100); /* no descriptors, say: not again at once */
        pthread_mutex_lock(&shared.lock);
        if (fd >= 0)
            take_up(fd, &from);
    }
    pthread_mutex_unlock(&shared.lock);
}

/*  Its address goes to `at`: the system may choose the port. */
static int open_listener(char *at, size_t capacity)
{
    struct addrinfo want, *list = NULL, *a;
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char port[16];
    int fd = -1, on = 1, code;
    memset(&want, 0, sizeof want);
    want.ai_socktype = SOCK_STREAM;
    want.ai_flags = AI_PASSIVE;
    snprintf(port, sizeof port, "%d", (int)settings.port);
    code = getaddrinfo(settings.host, port, &want, &list);
    if (code)
        give_up("no such address: ", gai_strerror(code));
    for (a = list; a; a = a->ai_next) { /* the first one that it can have */
        fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 128) == 0)
            break;
        code = errno;
        close(fd);
    }
    if (!a)
        give_up("cannot listen there: ", strerror(code));
    freeaddrinfo(list);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    getsockname(fd, (struct sockaddr *)&address, &size);
    getnameinfo((struct sockaddr *)&address, size, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    snprintf(at, capacity, strchr(settings.host, ':') ? "http://[%s]:%s" : "http://%s:%s", settings.host, port);
    return fd;
}

/*  How many sequences there is memory for, where nobody has said it: of 64, 32, 16 and 8 the most that leave a tenth of what is free. */
static void choose_sequences(ignis_model_desc *desc)
{
    ignis_model_info info;
    ignis_memory_info memory;
    if (settings.sequences)
        return;
    for (settings.sequences = 64; settings.sequences > 8; settings.sequences /= 2) {
        desc->sequences = (int)settings.sequences;
        if (ignis_model_inspect(desc, &info) != IGNIS_OK || ignis_memory_query(0, &memory) != IGNIS_OK ||
            (double)(info.weight_bytes + info.cache_bytes + info.workspace_bytes) < 0.9 * (double)memory.device_free)
            break;
    }
}

/*  Says how far it is, once a second. */
static bool show_progress(int done, int total, void *user_data)
{
    double *last = (double *)user_data, now = seconds();
    if (now - *last < 1)
        return true;
    *last = now;
    fprintf(stderr, "serve: warming up, %d of %d\n", done, total);
    return true;
}

static void open_engine(void)
{
    ignis_model_desc desc = {.path = settings.path, .context = (int)settings.context};
    double begun = seconds();
    ignis_model_warmup_desc warmup = {.tokens = PIECE, .progress_fn = show_progress, .user_data = &begun};
    ignis_model_info info;
    ignis_tokenizer_info about;
    ignis_setup(NULL);
    choose_sequences(&desc);
    desc.sequences = (int)settings.sequences;
    engine.model = ignis_model_open(&desc);
    engine.tokenizer = ignis_model_tokenizer(engine.model);
    ignis_model_query(engine.model, &info);
    ignis_tokenizer_query(engine.tokenizer, &about);
    ignis_model_warmup(engine.model, &warmup);
    if (ignis_status_last() != IGNIS_OK)
        give_up("stopped by the error above", "");
    engine.context = info.context;
    engine.tokens = about.tokens < info.vocab ? about.tokens : info.vocab;
    memcpy(engine.ends, info.ends, sizeof info.ends);
    engine.end_count = info.end_count;
    if (about.eos >= 0)
        engine.ends[engine.end_count++] = about.eos;
    engine.talks = about.has_template;
    engine.started = time(NULL);
    text_escape(&engine.name, settings.name, strlen(settings.name));
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_flags = 0};
    pthread_t thread;
    char at[300];
    int listener;
    read_settings(argc, argv);
    open_engine();
    listener = open_listener(at, sizeof at);
    if (!settings.key && !is_local())
        fprintf(stderr, "serve: without --api-key everybody who reaches %s may use this server\n", settings.host);
    if (pipe(shared.signal_pipe) != 0)
        give_up("no pipe: ", strerror(errno));
    fcntl(shared.signal_pipe[1], F_SETFL, O_NONBLOCK);
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    if (pthread_create(&thread, NULL, run_model, NULL) != 0)
        give_up("no thread for the model", "");
    printf("serve: %s at %s\n", settings.name, at);
    fflush(stdout);

    run(listener);
    close(listener);
    pthread_mutex_lock(&shared.lock);
    shared.quit = true;
    pthread_cond_signal(&shared.wake_model);
    pthread_mutex_unlock(&shared.lock);
    pthread_join(thread, NULL);
    ignis_model_free(engine.model);
    text_free(&engine.name);
    puts("serve: ended");
    return ignis_shutdown() != IGNIS_OK;
}
