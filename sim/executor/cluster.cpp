// SPDX-License-Identifier: MIT
/*  cluster.cpp - clusters: blocks that run at the same time, wait for each other and write to each other

    A block writes to another one through the inbox of that block, which its own OS thread empties.
    cluster.lock guards the inboxes and the counts.
*/

/* Blocks that run at the same time, each on its own OS thread. */
struct cluster {
    pthread_mutex_t lock;
    unsigned blocks, ended, arrived,
        phase; /* arrived: blocks whose threads have all arrived in this phase; phases are counted from 1 */
    struct worker *members[64]; /* those that are running */
};

/* Counts a block that has arrived or ended. The lock is held. */
static void cluster_count(struct cluster *c)
{
    if (c->arrived + c->ended < c->blocks)
        return;
    c->arrived = 0;
    __atomic_fetch_add(&c->phase, 1, __ATOMIC_RELEASE);
}

/* Counts a thread that has arrived or exited. */
static void cluster_block_arrives(worker *w)
{
    if (!w->cluster_arrived || w->cluster_arrived < w->live)
        return;
    w->cluster_arrived = 0;
    pthread_mutex_lock(&w->cluster->lock);
    w->cluster->arrived++;
    cluster_count(w->cluster);
    pthread_mutex_unlock(&w->cluster->lock);
}

static struct cluster *cluster_of(worker *w, sim_place at)
{
    if (!w->cluster)
        give_up(w, SIM_ILLEGAL_INSTRUCTION, "an instruction for clusters, in a kernel without __cluster_dims__", at);
    return w->cluster;
}

static void runtime_cluster_arrive(sim_place at)
{
    worker *w = this_worker;
    struct cluster *c = cluster_of(w, at);
    sim_thread *t = &w->threads[w->current];
    if (t->cluster_phase)
        give_up(w, SIM_LAUNCH_FAILED, "arrives twice at the barrier of its cluster, and has not waited", at);
    t->cluster_phase = __atomic_load_n(&c->phase, __ATOMIC_ACQUIRE);
    w->cluster_arrived++;
    count_progress(w);
    cluster_block_arrives(w);
}

static void runtime_cluster_wait(sim_place at)
{
    worker *w = this_worker;
    struct cluster *c = cluster_of(w, at);
    sim_thread *t = &w->threads[w->current];
    if (!t->cluster_phase)
        give_up(w, SIM_LAUNCH_FAILED, "waits at the barrier of its cluster, and has not arrived", at);
    while (__atomic_load_n(&c->phase, __ATOMIC_ACQUIRE) == t->cluster_phase)
        yield_to_others(w, true);
    t->cluster_phase = 0;
    w->vain_rounds = 0;
}

static char *runtime_cluster_memory(unsigned block, unsigned offset, unsigned bytes, sim_place at)
{
    worker *w = this_worker;
    struct cluster *c = cluster_of(w, at);
    char sentence[160], *memory = NULL;
    if (block >= c->blocks || (uint64_t)offset + bytes > w->block.dynamic_size) {
        snprintf(sentence, sizeof sentence,
                 "byte %u of the shared memory of block %u of a cluster: there are %u blocks, with %llu bytes", offset,
                 block, c->blocks, w->block.dynamic_size);
        give_up(w, SIM_ILLEGAL_ADDRESS, sentence, at);
    }
    pthread_mutex_lock(&c->lock);
    memory = c->members[block] ? c->members[block]->dynamic_shared : NULL;
    pthread_mutex_unlock(&c->lock);
    if (!memory) {
        snprintf(sentence, sizeof sentence,
                 "shared memory of block %u of the cluster, which has not begun, or has ended", block);
        give_up(w, SIM_ILLEGAL_ADDRESS, sentence, at);
    }
    return memory + offset;
}

static void runtime_bulk_source(const void *from, unsigned bytes, sim_place at)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    check_place(w, (const char *)from, bytes, 16, at);
    check_readable(w, (const char *)from, bytes, "a bulk copy", at);
}

static unsigned cluster_rank(worker *w, sim_place at)
{
    struct cluster *c = cluster_of(w, at);
    unsigned rank = 0;
    pthread_mutex_lock(&c->lock);
    while (c->members[rank] != w)
        rank++;
    pthread_mutex_unlock(&c->lock);
    return rank;
}

/* Sends to a block. from is NULL for an arrival. */
static void send_to_block(worker *w, unsigned block, unsigned offset, const void *from, unsigned bytes,
                          unsigned counted_at, sim_place at)
{
    struct cluster *c = cluster_of(w, at);
    (void)runtime_cluster_memory(block, offset, bytes, at);
    mbarrier *b = (mbarrier *)runtime_cluster_memory(block, counted_at, sizeof *b, at);
    bulk_load *l = (bulk_load *)malloc(sizeof *l + bytes);
    if (!l)
        abort();
    *l = bulk_load{NULL, b, NULL, bytes, {0}};
    if (from)
        memcpy(l->data, from, bytes);
    pthread_mutex_lock(&c->lock);
    worker *to = c->members[block];
    if (to) {
        l->to = from ? to->dynamic_shared + offset : NULL;
        l->next = to->inbox;
        to->inbox = l;
    }
    pthread_mutex_unlock(&c->lock);
    if (!to) {
        free(l);
        give_up(w, SIM_ILLEGAL_ADDRESS, "a store to a block of the cluster that has ended meanwhile", at);
    }
    count_progress(w);
}

static void runtime_cluster_store(unsigned block, unsigned offset, const void *from, unsigned bytes,
                                  unsigned counted_at, sim_place at)
{
    send_to_block(this_worker, block, offset, from, bytes, counted_at, at);
}

static void runtime_cluster_signal(unsigned block, unsigned counted_at, sim_place at)
{
    send_to_block(this_worker, block, counted_at, NULL, 0, counted_at, at);
}

/* Empties the inbox: loads that have arrived are under way, and arrivals count. */
static void take_inbox(worker *w)
{
    if (!w->cluster)
        return;
    pthread_mutex_lock(&w->cluster->lock);
    bulk_load *l = w->inbox;
    w->inbox = NULL;
    pthread_mutex_unlock(&w->cluster->lock);
    while (l) {
        bulk_load *next = l->next;
        l->next = NULL;
        if (l->to) {
            *w->async->last_load = l;
            w->async->last_load = &l->next;
        } else {
            mbarrier *b = mbarrier_at(w, l->barrier, sim_place{NULL, 0});
            free(l);
            mbarrier_arrival(w, b, 0, sim_place{NULL, 0});
        }
        l = next;
    }
}

/* Waits until other blocks send something, as all threads wait. */
static void wait_for_inbox(worker *w)
{
    look_for_failures(w);
    pause_in_vain(w);
}
