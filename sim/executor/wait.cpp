// SPDX-License-Identifier: MIT
/*  wait.cpp - waiting: barriers, warp-wide operations, polling, mbarriers

    A thread that waits switches to another fiber of its block. When no thread can run, the block is
    deadlocked and given up.
*/

/* Reports a deadlock: no thread can run. Lists the waiting threads. */
[[noreturn]] static void deadlock(worker *w, const char *what)
{
    sim_text t = {w->text, sizeof w->text};
    const unsigned *b = w->block.index;
    say(&t, "kernel %s, block (%u,%u,%u): %s:", kernel_name(w), b[0], b[1], b[2], what);
    if (w->async)
        say_async_waiting(&t, w);
    for (int i = 0; i < MAX_BARRIERS; i++)
        if (w->barriers[i].arrived) {
            say(&t, " %u threads wait at barrier %d", w->barriers[i].arrived, i);
            if (w->barriers[i].expected)
                say(&t, ", which wants %u", w->barriers[i].expected);
            say_place(&t, w->barriers[i].at);
            say(&t, ";");
        }
    for (unsigned i = 0; i * SIM_WARP < w->thread_count; i++)
        for (unsigned k = 0; k < w->warps[i].op_count; k++) {
            const warp_op *op = &w->warps[i].ops[k];
            say(&t, " warp %u lanes %08x wait for lanes %08x in %s", i, op->arrived,
                op->mask & w->warps[i].live & ~op->arrived, op->what);
            say_place(&t, op->at);
            say(&t, ";");
        }
    say(&t, " %u of %u threads have exited", w->thread_count - w->live, w->thread_count);
    give_up(w, SIM_LAUNCH_FAILED, NULL, sim_place{NULL, 0});
}

/* Returns the next fiber: of a ready thread, else one that starts more threads. NULL if no thread can run. */
static sim_fiber *next_fiber(worker *w)
{
    if (!w->ready_count && w->started == w->thread_count && w->async)
        async_goes_on(w);
    if (w->ready_count) {
        unsigned index = w->ready[w->ready_head];
        w->ready_head = (w->ready_head + 1) % MAX_THREADS;
        if (--w->ready_count) /* the one after it, which is next */
            context_prefetch(&w->threads[w->ready[w->ready_head]].fiber->context);
        return w->threads[index].fiber;
    }
    if (w->started < w->thread_count)
        return fiber_idle(w, w->order[w->started]);
    return NULL;
}

/* Suspends the current thread until make_ready was called for it and it is next. */
static void give_way(worker *w)
{
    unsigned self = w->current;
    sim_fiber *next = next_fiber(w);
    if (!next)
        deadlock(w, "deadlock");
    if (next != w->running)
        switch_to(w, next, false);
    w->current = self;
    w->threads[self].state = RUNNING;
}

/* Gives up a block whose kernel was found never to wait, and does: refuses instead of computing nonsense. */
static void refuse_in_loop(worker *w, const char *what, sim_place at)
{
    if (!w->whole_block)
        return;
    char sentence[160];
    snprintf(sentence, sizeof sentence, "the simulator took this kernel for one without barriers, but it reached %s",
             what);
    give_up(w, SIM_LAUNCH_FAILED, sentence, at);
}

static bool same_place(sim_place a, sim_place b)
{
    return a.line == b.line && (a.file == b.file || (a.file && b.file && strcmp(a.file, b.file) == 0));
}

static void barrier_release(worker *w, barrier *b, int reduction)
{
    b->result = reduction == SIM_BARRIER_COUNT ? b->ones
                : reduction == SIM_BARRIER_AND ? b->ones == (int)b->arrived
                                               : b->ones > 0;
    for (unsigned i = 0; i < b->waiting_count; i++) {
        if (settings.order == ORDER_RANDOM) {
            unsigned other = i + (unsigned)(random_next(&w->random) % (b->waiting_count - i));
            unsigned short chosen = b->waiting[other];
            b->waiting[other] = b->waiting[i];
            b->waiting[i] = chosen;
        }
        make_ready(w, b->waiting[i]);
    }
    b->arrived = b->waiting_count = 0;
    b->ones = 0;
    count_progress(w);
}

static bool barrier_complete(const worker *w, const barrier *b)
{
    return b->arrived && b->arrived == (b->expected ? b->expected : w->live);
}

/* Counts the current thread at a barrier. True for the last one. */
static bool barrier_enter(worker *w, unsigned id, unsigned count, int predicate, sim_place at)
{
    if (id >= MAX_BARRIERS)
        give_up(w, SIM_LAUNCH_FAILED, "a barrier number is above 15", at);
    if (count % SIM_WARP)
        give_up(w, SIM_LAUNCH_FAILED, "a barrier for a number of threads that is not a multiple of 32", at);
    barrier *b = &w->barriers[id];
    if (!b->arrived) {
        b->at = at;
        b->expected = count;
    } else if (b->expected != count || (!count && !same_place(b->at, at))) {
        char sentence[320];
        snprintf(sentence, sizeof sentence,
                 "the threads of the block are at different barriers: %u of %u wait at "
                 "%s:%d, this one came to another",
                 b->arrived, w->live, b->at.file, b->at.line);
        give_up(w, SIM_LAUNCH_FAILED, sentence, at);
    }
    if (!count && settings.strict && w->live < w->thread_count) {
        char sentence[160];
        snprintf(sentence, sizeof sentence, "__syncthreads after %u of %u threads have exited",
                 w->thread_count - w->live, w->thread_count);
        give_up(w, SIM_LAUNCH_FAILED, sentence, at);
    }
    if (__tsan_release)
        __tsan_release(b);
    b->arrived++;
    b->ones += predicate != 0;
    return barrier_complete(w, b);
}

static int runtime_barrier(unsigned id, unsigned count, int reduction, int predicate, sim_place at)
{
    worker *w = this_worker;
    refuse_in_loop(w, "a barrier", at);
    bool last = barrier_enter(w, id, count, predicate, at);
    barrier *b = &w->barriers[id];
    if (last)
        barrier_release(w, b, reduction);
    else {
        b->waiting[b->waiting_count++] = (unsigned short)w->current;
        w->threads[w->current].state = AT_BARRIER;
        give_way(w);
    }
    if (__tsan_acquire)
        __tsan_acquire(b);
    return b->result;
}

static void runtime_arrive(unsigned id, unsigned count, sim_place at)
{
    worker *w = this_worker;
    refuse_in_loop(w, "a barrier", at);
    if (barrier_enter(w, id, count, 0, at))
        barrier_release(w, &w->barriers[id], SIM_BARRIER_SYNC);
}

/* Runs a warp-wide operation when all its lanes have arrived, and lets the others run. */
static void warp_complete(worker *w, unsigned warp_index, warp_op *op, unsigned except)
{
    warp *p = &w->warps[warp_index];
    unsigned arrived = op->arrived;
    sim_combine combine = op->combine;
    *op = p->ops[--p->op_count];
    if (combine)
        combine(p->records, arrived);
    for (unsigned lanes = arrived & ~except; lanes; lanes &= lanes - 1)
        make_ready(w, warp_index * SIM_WARP + (unsigned)__builtin_ctz(lanes));
}

static warp_op *warp_op_find(worker *w, warp *p, unsigned mask, sim_combine combine, const char *what, sim_place at)
{
    for (unsigned i = 0; i < p->op_count; i++) {
        warp_op *op = &p->ops[i];
        if (op->mask == mask && op->combine == combine && (op->what == what || strcmp(op->what, what) == 0))
            return op;
        if (op->mask == mask) {
            char sentence[320];
            snprintf(sentence, sizeof sentence, "lanes %08x of the warp wait in %s at %s:%d, this one came to %s",
                     op->arrived, op->what, op->at.file, op->at.line, what);
            give_up(w, SIM_LAUNCH_FAILED, sentence, at);
        }
    }
    warp_op *op = &p->ops[p->op_count++];
    *op = warp_op{mask, 0, combine, what, at};
    return op;
}

static void warp_check(worker *w, const warp *p, unsigned mask, unsigned lane, const char *what, sim_place at)
{
    char sentence[160];
    if (!(mask & lane)) {
        snprintf(sentence, sizeof sentence, "%s with mask %08x, which lacks the calling lane", what, mask);
        give_up(w, SIM_LAUNCH_FAILED, sentence, at);
    }
    if (settings.strict && (mask & p->exited)) {
        snprintf(sentence, sizeof sentence, "%s with mask %08x, but lanes %08x have exited", what, mask,
                 mask & p->exited);
        give_up(w, SIM_LAUNCH_FAILED, sentence, at);
    }
}

static void runtime_warp(unsigned mask, sim_combine combine, void *record, int fence, const char *what, sim_place at)
{
    worker *w = this_worker;
    refuse_in_loop(w, what, at);
    warp *p = &w->warps[w->current / SIM_WARP];
    unsigned lane = 1u << (w->current % SIM_WARP);
    warp_check(w, p, mask, lane, what, at);
    warp_op *op = warp_op_find(w, p, mask, combine, what, at);
    op->arrived |= lane;
    p->records[w->current % SIM_WARP] = record;
    if (fence && __tsan_release)
        __tsan_release(&p->fence);
    if (op->arrived == (mask & p->live))
        warp_complete(w, w->current / SIM_WARP, op, lane);
    else {
        w->threads[w->current].state = AT_WARP;
        give_way(w);
    }
    if (fence && __tsan_acquire)
        __tsan_acquire(&p->fence);
}

static unsigned runtime_live_lanes(void)
{
    worker *w = this_worker;
    refuse_in_loop(w, "__activemask", sim_place{NULL, 0});
    return w->warps[w->current / SIM_WARP].live;
}

static int job_failed(const worker *w);
static void watch_progress(worker *w);

static void look_for_failures(worker *w)
{
    int failed = job_failed(w);
    if (failed) /* another block of the launch failed: this one might wait for it for ever */
        give_up(w, failed, "given up because another block failed", sim_place{NULL, 0});
    failed = sim_fault();
    if (failed) /* the awaited value will not come */
        give_up(w, failed, "given up because another kernel or copy failed", sim_place{NULL, 0});
}

/* Pauses, longer after more pauses: the other side may be a compiler, and there may be a hundred waiting
   threads. */
static void pause_in_vain(worker *w)
{
    const unsigned times = w->vain_rounds / 32 < 50 ? w->vain_rounds / 32 + 1 : 50;
    const struct timespec pause = {0, 20000 * (long)times};
    if (w->async)
        watch_progress(w);
    nanosleep(&pause, NULL);
}

/* Waits when every thread of the block that can run has polled: what they wait for comes from elsewhere. At
   first it yields the processor, then it sleeps: yielding alone would let spinning OS threads pass the
   processor among themselves. */
static void wait_for_others(worker *w, bool in_vain)
{
    enum { OFFERS = 8 };
    if (in_vain && w->async && async_goes_on(w))
        return;
    if (in_vain)
        look_for_failures(w);
    if (!in_vain || ++w->vain_rounds <= OFFERS)
        sched_yield();
    else
        pause_in_vain(w);
}

static void yield_to_others(worker *w, bool in_vain)
{
    bool others = !w->whole_block && (w->ready_count || w->started < w->thread_count);
    if (++w->yields > w->ready_count && (w->whole_block || w->started == w->thread_count)) {
        w->yields = 0;
        wait_for_others(w, in_vain);
    }
    if (!others)
        return;
    unsigned self = w->current;
    make_ready(w, self);
    /* Threads that have not begun come first: one of them may be awaited. */
    switch_to(w, w->started < w->thread_count ? fiber_idle(w, w->order[w->started]) : next_fiber(w), false);
    w->current = self;
    w->threads[self].state = RUNNING;
}

static void runtime_yield(void) { yield_to_others(this_worker, false); }

static void runtime_poll(const void *address, unsigned long long value)
{
    worker *w = this_worker;
    if (w->whole_block)
        return;
    sim_thread *t = &w->threads[w->current];
    unsigned i = 0;
    while (i < REMEMBERED_POLLS && t->polls[i].address != address)
        i++;
    if (i < REMEMBERED_POLLS && t->polls[i].value == value) {
        yield_to_others(w, true);
        return;
    }
    t->new_polls++;
    if (i == REMEMBERED_POLLS)
        i = t->new_polls % REMEMBERED_POLLS;
    t->polls[i].address = address;
    t->polls[i].value = value;
    w->vain_rounds = 0;
    count_progress(w);
    if (t->new_polls % NEW_POLLS == 0)
        yield_to_others(w, false);
}

static void runtime_waited() { this_worker->waited++; }

static sim_copies *runtime_copies(int grow)
{
    worker *w = this_worker;
    sim_copies *c = &w->threads[w->current].copies;
    if (grow && c->count == c->capacity) {
        c->capacity = c->capacity ? 2 * c->capacity : 16;
        c->items = (sim_copy *)realloc(c->items, c->capacity * sizeof *c->items);
        if (!c->items)
            abort();
    }
    return c;
}

/* Lets the threads run that this thread has made ready. */
static void step_back(worker *w)
{
    if (w->whole_block || !w->ready_count)
        return;
    make_ready(w, w->current);
    give_way(w);
}

static void runtime_mbarrier_arrive(void *p, unsigned bytes, sim_place at)
{
    worker *w = this_worker;
    refuse_in_loop(w, "an mbarrier", at);
    mbarrier *b = mbarrier_at(w, p, at);
    if (bytes >= 1u << 20)
        give_up_at(w, p, "an mbarrier counts less than 2^20 bytes", at);
    if (__tsan_release)
        __tsan_release(b);
    unsigned phase = b->phase;
    mbarrier_arrival(w, b, bytes, at);
    if (b->phase != phase)
        step_back(w);
}

static int runtime_mbarrier_wait(void *p, unsigned parity, int may_wait, sim_place at)
{
    worker *w = this_worker;
    refuse_in_loop(w, "an mbarrier", at);
    mbarrier *b = mbarrier_at(w, p, at);
    sim_thread *self = &w->threads[w->current];
    if ((b->phase & 1) == parity)
        deliver_loads(w, b);
    if ((b->phase & 1) == parity && may_wait) {
        self->barrier = b;
        self->parity = parity;
        self->at = at;
        self->state = AT_MBARRIER;
        w->async->waiting[w->async->waiting_count++] = (unsigned short)w->current;
        give_way(w);
    } else if ((b->phase & 1) == parity)
        yield_to_others(w, true);
    if (__tsan_acquire)
        __tsan_acquire(b);
    return (b->phase & 1) != parity;
}
