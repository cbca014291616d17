// SPDX-License-Identifier: MIT
/*  queue.c - what the threads share: the list of jobs, and signals */

/*  Kinds of requests, as bits. */
enum { TEXT = 1, CHAT = 2, NATIVE = 4, RESPONSES = 8, EMBED = 16, TOKENS = 32, GENERATES = 15 };

/*  A part of an answer: text, reasoning, the name of a tool that is called, or its arguments. */
typedef struct answer_piece {
    piece_kind kind;
    text text;
} answer_piece;

/*  The growth of an answer: its pieces, and its tokens as items of JSON arrays. */
typedef struct growth {
    answer_piece *pieces;
    int count, capacity;
    text tokens, log_probs, offsets, tops;
} growth;

static void growth_free(growth *g)
{
    int i;
    for (i = 0; i < g->count; i++)
        text_free(&g->pieces[i].text);
    free(g->pieces);
    text_free(&g->tokens), text_free(&g->log_probs), text_free(&g->offsets), text_free(&g->tops);
    memset(g, 0, sizeof *g);
}

/*  Adds to the last piece, if it has the same kind; each call is a piece of its own. */
static void growth_add(growth *g, piece_kind kind, const char *data, size_t size)
{
    if (!g->count || g->pieces[g->count - 1].kind != kind || kind == PIECE_CALL) {
        if (g->count == g->capacity) {
            g->capacity = 2 * g->capacity + 4;
            g->pieces = (answer_piece *)resize(g->pieces, sizeof *g->pieces * (size_t)g->capacity);
        }
        memset(&g->pieces[g->count], 0, sizeof *g->pieces);
        g->pieces[g->count++].kind = kind;
    }
    text_add(&g->pieces[g->count - 1].text, data, size);
}

/*  One text that is asked for. A request has several if it has several prompts, or n above 1. */
typedef struct job {
    struct request *ask;
    struct job *leader; /* an earlier job with the same prompt; NULL if there is none */
    const int32_t *ids; /* the prompt */
    int count, index;   /* index: of the choice */
    int most;           /* tokens of the answer */

    /* the model's thread alone */
    ignis_sampling_desc sampling;
    ignis_logit_bias *biases; /* those of the request and of penalties, in rising order; NULL: no penalties */
    int *uses;                /* of the token of each bias */
    ignis_sequence sequence;
    ignis_text_stream characters;
    parser parser;
    int fed, found; /* tokens of the prompt that are computed; of these, those that earlier requests had computed */
    int embedded;   /* texts that have vectors */
    bool chosen;    /* the tool that has to be called is known */
    bool unwanted;  /* it has seen that the job was dropped */
    text held;      /* what may be the beginning of a stop string */
    text name;      /* of the tool, while it is being chosen */
    size_t offset;  /* characters of the text so far */
    double first_at;
    struct {
        int32_t id;
        double log_prob;
    } tops[MAX_TOPS]; /* the likeliest tokens, before one is sampled */
    int top_count;
    bool scored; /* the prompt is echoed */

    /* under the lock of what is shared */
    struct job *next;
    bool begun, dropped; /* the model's thread has it; nobody waits for its answer */

    /* under the lock of its request */
    growth news; /* since the connection looked last */
    int drawn;
    bool done;          /* the model's thread has it no more */
    const char *finish; /* why it has ended; NULL: there was a failure */
    char message[512];  /* of the failure */
    int calls;          /* of tools */

    bool opened, ended; /* the connection's: the first event of the choice is out; the last one is */
    int calls_said;     /* in events */
    growth all;         /* pieces that are out, of /v1/responses */
    int open_item, item_count, event_count;
} job;

/*  A request that is being answered. It belongs to the thread of its connection, which waits until it is done. */
typedef struct request {
    /* what is asked for: nobody changes it any more */
    int kind; /* of the route */
    int key;  /* which of the keys was shown, from 1 on; 0: none is asked for */
    bool stream, usage, logprobs, echo, add_special, with_pieces, base64;
    int64_t max_tokens, top_k, choices, top_logprobs;
    double presence, frequency;
    ignis_sampling_desc sampling;
    ignis_logit_bias biases[MAX_BIASES];
    const char *stops[MAX_STOPS];
    int stop_count;
    json *values;            /* the body */
    text grammar;            /* of the answer, or of its beginning; empty: none */
    text variables;          /* of the chat template, as a JSON object */
    text ignored;            /* names of parameters that this server does not know */
    text own_text;           /* messages and tools as chats have them, of a request that has them otherwise */
    json *own_values;        /* those of own_text */
    const json *tools;       /* those that may be called; NULL: none */
    bool forced;             /* a call is forced, whose arguments are JSON */
    bool parallel;           /* an answer may have several calls */
    text head;               /* the beginning of a call that is forced in a form of keys and values; empty: none */
    const json *forced_tool; /* the only one that may be called; NULL: the model chooses */
    int32_t *middle;         /* tokens between the name of a chosen tool and its arguments */
    int middle_count;
    int thought; /* which of `thoughts` the prompt has opened, from 1 on; 0: none */
    bool plain;  /* the whole answer is text: a grammar holds it */
    int adapter; /* its number, or -1 */
    int32_t **prompts;
    int *counts;
    int prompt_count;

    char **texts; /* of which vectors are asked for */
    int text_count;
    float *vectors;

    job *jobs;
    int job_count;
    double asked_at;
    uint64_t id;

    /* for which only two threads wait */
    pthread_mutex_t lock;
    pthread_cond_t news;
    int open; /* jobs that are not done; under the lock */
} request;

static struct shared {
    pthread_mutex_t lock;
    pthread_cond_t wake_model, ended; /* there is a job; a connection has ended */
    job *first;                       /* those that run, and behind them those that wait */
    int jobs;
    int64_t prompt_tokens, found_tokens, drawn_tokens, failed, dropped; /* since the start, for /metrics */
    struct connection *connections;
    int connection_count;
    double stop; /* when answers are cut off, after a signal; atomic */
    bool quit;
    int signal_pipe[2]; /* a pipe, for those that wait: it can be read when a signal has come */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .wake_model = PTHREAD_COND_INITIALIZER,
            .ended = PTHREAD_COND_INITIALIZER,
            .stop = INFINITY};

static int signals;

/*  Returns the number of signals that have come to end the server. */
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
