// SPDX-License-Identifier: MIT
/*  message.cpp - messages of a block, giving it up, and making its threads ready

    The first error of a block ends it. Its message is the one of the launch.
*/

typedef struct sim_text {
    char *at;
    size_t left;
} sim_text;

static void say(sim_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(sim_text *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(t->at, t->left, format, arguments);
    va_end(arguments);
    size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
    t->at += used;
    t->left -= used;
}

static void thread_position(const worker *w, unsigned index, unsigned out[3])
{
    out[0] = index % w->block.block_dim[0];
    out[1] = index / w->block.block_dim[0] % w->block.block_dim[1];
    out[2] = index / w->block.block_dim[0] / w->block.block_dim[1];
}

static const char *kernel_name(const worker *w);

static void say_where(sim_text *t, const worker *w)
{
    const unsigned *b = w->block.index;
    say(t, "kernel %s, block (%u,%u,%u)", kernel_name(w), b[0], b[1], b[2]);
    if (!w->whole_block) {
        unsigned p[3];
        thread_position(w, w->current, p);
        say(t, ", thread (%u,%u,%u)", p[0], p[1], p[2]);
    }
    say(t, ": ");
}

static void say_place(sim_text *t, sim_place at)
{
    if (at.file)
        say(t, " at %s:%d", at.file, at.line);
}

/* Begins a region in which the thread sanitizer sees no accesses: they are not the kernel's. No other thread
   runs meanwhile. */
static void begin_quiet(worker *w)
{
    if (!AnnotateIgnoreWritesBegin)
        return;
    w->quiet++;
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static void end_quiet(worker *w)
{
    if (!AnnotateIgnoreWritesEnd)
        return;
    w->quiet--;
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}

/* Gives the block up; the launch ends with `code`. If `sentence` is NULL, w->text is already written. */
[[noreturn]] static void give_up(worker *w, int code, const char *sentence, sim_place at)
{
    if (sentence) {
        sim_text t = {w->text, sizeof w->text};
        say_where(&t, w);
        say(&t, "%s", sentence);
        say_place(&t, at);
    }
    w->failure = code;
    while (w->quiet)
        end_quiet(w);
    if (__tsan_release)
        __tsan_release(&w->end_fence);
    switch_to(w, NULL, true);
    abort();
}

static void runtime_fail(int code, const char *sentence, sim_place at) { give_up(this_worker, code, sentence, at); }

static void make_ready(worker *w, unsigned index)
{
    w->threads[index].state = READY;
    w->ready[(w->ready_head + w->ready_count++) % MAX_THREADS] = (unsigned short)index;
}

/* As make_ready, for a thread that runs before the other ready ones: so an access of another thread that is
   too early shows. */
static void make_ready_first(worker *w, unsigned index)
{
    w->threads[index].state = READY;
    w->ready_head = (w->ready_head + MAX_THREADS - 1) % MAX_THREADS;
    w->ready[w->ready_head] = (unsigned short)index;
    w->ready_count++;
}

static void count_progress(worker *w); /* something happened that may let a thread go on */
