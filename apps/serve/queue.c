// SPDX-License-Identifier: MIT
/*  queue.c - what the threads share: the list of jobs, and signals */

/*  What an answer has grown by, as inside of a JSON string; and its tokens, as items of JSON arrays. */
typedef struct growth {
    text out, tokens, log_probs, offsets;
} growth;

static void growth_free(growth *g)
{
    text_free(&g->out), text_free(&g->tokens), text_free(&g->log_probs), text_free(&g->offsets);
}

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
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .wake_model = PTHREAD_COND_INITIALIZER,
            .ended = PTHREAD_COND_INITIALIZER,
            .stop = INFINITY};

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
