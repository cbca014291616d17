// SPDX-License-Identifier: MIT
/*  test_comm_model.c - the protocol of kernels/collective.cu, tried in every order in which ranks and blocks can come

    A process is one block of one rank. It does the actions of a few operations in their order; between actions of
    different processes every order is tried. What the regions hold at any time follows from how far each process has
    come, because every place has one writer: so a state is a vector of positions, and all that can be reached are
    visited. Looked for are deadlocks, places that are written before they were read, and reads of what belongs to
    another step. A model that forgets one of the rules must be caught, too. */
#include "test.h"

enum { MOST_PROCESSES = 6, MOST_ACTIONS = 96, MOST_OPERATIONS = 6, MOST_RANKS = 3 };

/*  How an operation goes; kernels/collective.cu has one kernel for each. */
typedef enum shape { PACKETS, PARTS, SLICES } shape;

typedef struct operation {
    shape shape;
    int steps, blocks;
    bool rooted; /* rank 0 alone pushes, and takes nothing */
} operation;

/*  The rules, each of which can be broken to see that the search finds out. */
typedef struct rules {
    int one_phase_slots, two_phase_slots;
    bool meets;      /* every operation waits for the headers of all */
    bool alternates; /* odd and even operations have memory of their own */
    bool wipes_late; /* the wipe comes after the header */
    int wipe;        /* the operation that wipes what the one before it used, -1: none */
} rules;

typedef enum kind { GREET, MEET, WIPE, PUSH, POST, AWAIT, TAKE, FINISH } action_kind;

typedef struct action {
    action_kind kind;
    int op, phase, step, peer;
} action;

typedef struct model {
    int ranks, blocks, processes; /* process = rank * blocks + block */
    rules rules;
    const operation *operations;
    int operation_count;
    int length[MOST_PROCESSES];
    action actions[MOST_PROCESSES][MOST_ACTIONS];
    const char *wrong;
} model;

static void add(model *m, int process, action_kind kind, int op, int phase, int step, int peer)
{
    action *a = &m->actions[process][m->length[process]++];
    if (m->length[process] == MOST_ACTIONS)
        abort();
    a->kind = kind;
    a->op = op;
    a->phase = phase;
    a->step = step;
    a->peer = peer;
}

/*  One action for each other rank. */
static void add_for_all(model *m, int process, action_kind kind, int op, int phase, int step)
{
    int r;
    for (r = 0; r < m->ranks; r++)
        if (r != process / m->blocks)
            add(m, process, kind, op, phase, step, r);
}

/*  What a process takes: from all others, or from the root alone. */
static void add_takes(model *m, int process, int op, int step)
{
    if (m->operations[op].rooted)
        add(m, process, TAKE, op, 0, step, 0);
    else
        add_for_all(m, process, TAKE, op, 0, step);
}

/*  What block 0 does while the others begin. */
static void add_greeting(model *m, int process, int op)
{
    if (process % m->blocks != 0)
        return;
    if (m->rules.wipe == op && !m->rules.wipes_late)
        add(m, process, WIPE, op, 0, 0, 0);
    add_for_all(m, process, GREET, op, 0, 0);
    if (m->rules.wipe == op && m->rules.wipes_late)
        add(m, process, WIPE, op, 0, 0, 0);
}

static void add_meeting(model *m, int process, int op)
{
    if (process % m->blocks == 0 && m->rules.meets)
        add_for_all(m, process, MEET, op, 0, 0);
}

static void add_operation(model *m, int process, int op)
{
    const operation *o = &m->operations[op];
    bool works = process % m->blocks < o->blocks, pushes = works && (!o->rooted || process / m->blocks == 0),
         takes = works && (!o->rooted || process / m->blocks != 0);
    int i;
    if (!works)
        return;
    if (o->shape == PACKETS) { /* a packet says itself that it is there: awaiting and taking are one */
        if (pushes)
            add_for_all(m, process, PUSH, op, 0, 0);
        add_greeting(m, process, op);
        if (takes)
            add_takes(m, process, op, 0);
        add_meeting(m, process, op);
    } else if (o->shape == PARTS) {
        add_greeting(m, process, op);
        for (i = 0; i <= o->steps; i++) {
            if (i < o->steps && pushes)
                add_for_all(m, process, PUSH, op, 0, i);
            if (i == 1)
                add_meeting(m, process, op);
            if (i > 0)
                add_for_all(m, process, AWAIT, op, 0, i - 1);
            if (i < o->steps)
                add_for_all(m, process, POST, op, 0, i);
            if (i > 0 && takes)
                add_takes(m, process, op, i - 1);
        }
    } else {
        add_greeting(m, process, op);
        for (i = 0; i <= o->steps + 1; i++) {
            if (i < o->steps)
                add_for_all(m, process, PUSH, op, 0, i);
            if (i >= 2)
                add_for_all(m, process, AWAIT, op, 1, i - 2);
            if (i < o->steps)
                add_for_all(m, process, POST, op, 0, i);
            if (i >= 2)
                add_for_all(m, process, TAKE, op, 1, i - 2);
            if (i >= 1 && i <= o->steps) {
                if (i == 1)
                    add_meeting(m, process, op);
                add_for_all(m, process, AWAIT, op, 0, i - 1);
                add_for_all(m, process, TAKE, op, 0, i - 1);
                add_for_all(m, process, PUSH, op, 1, i - 1);
                add_for_all(m, process, POST, op, 1, i - 1);
            }
        }
    }
}

static void build(model *m)
{
    int process, op;
    memset(m->length, 0, sizeof m->length);
    m->processes = m->ranks * m->blocks;
    m->wrong = NULL;
    for (process = 0; process < m->processes; process++)
        for (op = 0; op < m->operation_count; op++) {
            add_operation(m, process, op);
            add(m, process, FINISH, op, 0, 0, 0); /* a kernel begins when all blocks of the one before have ended */
        }
}

/*  Whether a process that stands at `at` has done such an action. */
static bool has_done(const model *m, int process, int at, action_kind kind, int op, int phase, int step, int peer)
{
    int i;
    for (i = at - 1; i >= 0; i--) {
        const action *a = &m->actions[process][i];
        if (a->op < op)
            return false;
        if (a->kind == kind && a->op == op && a->phase == phase && a->step == step && a->peer == peer)
            return true;
    }
    return false;
}

static bool does(const model *m, int process, action_kind kind, int op, int phase, int step, int peer)
{
    return has_done(m, process, m->length[process], kind, op, phase, step, peer);
}

static int slots_of(const model *m, int op)
{
    return m->operations[op].shape == SLICES  ? m->rules.two_phase_slots
           : m->operations[op].shape == PARTS ? m->rules.one_phase_slots
                                              : 1;
}

static int set_of(const model *m, int op) { return m->rules.alternates ? op % 2 : 0; }

/*  Whether two steps of operations use a common place of the receiver. Operations are cut up in different ways, so two
    that share a set may touch any of each other's places. */
static bool collide(const model *m, int op, int phase, int step, int process, int other_op, int other_phase,
                    int other_step, int other_process)
{
    if (set_of(m, op) != set_of(m, other_op))
        return false;
    if (op != other_op)
        return true;
    return process == other_process && phase == other_phase && step % slots_of(m, op) == other_step % slots_of(m, op);
}

/*  A push of `process` to rank `peer`: everything that lies in that place must have been taken. */
static bool push_is_safe(const model *m, const unsigned char *at, int process, const action *push)
{
    const int from = process / m->blocks;
    int other, i;
    for (other = 0; other < m->processes; other++) {
        const int source = other / m->blocks, block = other % m->blocks;
        for (i = 0; i < at[other]; i++) {
            const action *before = &m->actions[other][i];
            const int taker = push->peer * m->blocks + block;
            if (before->kind != PUSH || before->peer != push->peer)
                continue;
            if (other == process && before->op == push->op && before->phase == push->phase &&
                before->step == push->step)
                continue;
            if (source != from && before->op == push->op) /* inside an operation every source has places of its own */
                continue;
            if (!collide(m, push->op, push->phase, push->step, process, before->op, before->phase, before->step, other))
                continue;
            if (does(m, taker, TAKE, before->op, before->phase, before->step, source) &&
                !has_done(m, taker, at[taker], TAKE, before->op, before->phase, before->step, source))
                return false;
        }
    }
    return true;
}

/*  Whether the next action of a process can go on; notes what is wrong with it. */
static bool enabled(model *m, const unsigned char *at, int process)
{
    const action *a = &m->actions[process][at[process]];
    const int rank = process / m->blocks, block = process % m->blocks;
    int other, i;
    switch (a->kind) {
    case MEET: return has_done(m, a->peer * m->blocks, at[a->peer * m->blocks], GREET, a->op, 0, 0, rank);
    case AWAIT:
        other = a->peer * m->blocks + block;
        return has_done(m, other, at[other], POST, a->op, a->phase, a->step, rank);
    case TAKE:
        other = a->peer * m->blocks + block;
        if (has_done(m, other, at[other], PUSH, a->op, a->phase, a->step, rank))
            return true;
        if (m->operations[a->op].shape != PACKETS)
            m->wrong = "a step was taken before it was pushed";
        return false;
    case PUSH:
        if (!push_is_safe(m, at, process, a))
            m->wrong = "a place was written before it was taken";
        return true;
    /* nobody may have pushed into the set for the operation after this one, and all of the last one was taken */
    case WIPE:
        for (other = 0; other < m->processes; other++)
            for (i = 0; i < at[other]; i++)
                if (m->actions[other][i].kind == PUSH && m->actions[other][i].peer == rank &&
                    m->actions[other][i].op > a->op)
                    m->wrong = "packets of the next operation were wiped";
        return true;
    case FINISH:
        for (i = 0; i < m->blocks; i++) { /* the others of the rank have come here, or gone on */
            int sibling = rank * m->blocks + i, k, ended = 0;
            for (k = 0; k < at[sibling]; k++)
                ended += m->actions[sibling][k].kind == FINISH;
            if (ended < a->op || (ended == a->op && m->actions[sibling][at[sibling]].kind != FINISH))
                return false;
        }
        return true;
    default: return true;
    }
}

/*  Visits all states. Returns their number; m->wrong says what is wrong, if anything is. */
static long search(model *m)
{
    static unsigned char stack[1 << 22][MOST_PROCESSES];
    size_t radix[MOST_PROCESSES], states = 1, depth = 1;
    unsigned char *seen;
    long visited = 0;
    int p;
    build(m);
    for (p = 0; p < m->processes; p++) {
        radix[p] = states;
        states *= (size_t)m->length[p] + 1;
    }
    seen = (unsigned char *)calloc(states / 8 + 1, 1);
    if (!seen)
        return 0;
    memset(stack[0], 0, MOST_PROCESSES);
    while (depth && !m->wrong) {
        unsigned char at[MOST_PROCESSES];
        bool stuck = true, over = true;
        memcpy(at, stack[--depth], sizeof at);
        visited++;
        for (p = 0; p < m->processes; p++) {
            size_t index = 0;
            int q;
            if (at[p] == m->length[p])
                continue;
            over = false;
            if (!enabled(m, at, p))
                continue;
            stuck = false;
            at[p]++;
            for (q = 0; q < m->processes; q++)
                index += radix[q] * at[q];
            if (!(seen[index / 8] >> index % 8 & 1) && depth < sizeof stack / sizeof *stack) {
                seen[index / 8] = (unsigned char)(seen[index / 8] | 1 << index % 8);
                memcpy(stack[depth++], at, sizeof at);
            }
            at[p]--;
        }
        if (stuck && !over)
            m->wrong = "nobody can go on";
    }
    free(seen);
    return visited;
}

static const rules the_rules = {4, 3, true, true, false, -1};

static void holds(int ranks, int blocks, const operation *operations, int count, rules how)
{
    model *m = (model *)calloc(1, sizeof *m);
    char text[256];
    long visited;
    m->ranks = ranks;
    m->blocks = blocks;
    m->operations = operations;
    m->operation_count = count;
    m->rules = how;
    visited = search(m);
    if (m->wrong) {
        snprintf(text, sizeof text, "%d ranks of %d blocks, after %ld states: %s", ranks, blocks, visited, m->wrong);
        test__fail(__FILE__, __LINE__, text);
    }
    CHECK(visited > 10);
    free(m);
}

static void breaks(int ranks, int blocks, const operation *operations, int count, rules how)
{
    model *m = (model *)calloc(1, sizeof *m);
    m->ranks = ranks;
    m->blocks = blocks;
    m->operations = operations;
    m->operation_count = count;
    m->rules = how;
    search(m);
    CHECK(m->wrong != NULL);
    free(m);
}

TEST(two_ranks_of_one_block)
{
    static const operation parts[] = {{PARTS, 6, 1, false}, {PARTS, 1, 1, false}, {PARTS, 5, 1, false}};
    static const operation slices[] = {{SLICES, 5, 1, false}, {SLICES, 1, 1, false}, {SLICES, 4, 1, false}};
    static const operation mixed[] = {{PACKETS, 1, 1, false}, {SLICES, 4, 1, false}, {PACKETS, 1, 1, true},
                                      {PACKETS, 1, 1, true},  {PARTS, 3, 1, true},   {PACKETS, 1, 1, false}};
    holds(2, 1, parts, 3, the_rules);
    holds(2, 1, slices, 3, the_rules);
    holds(2, 1, mixed, 6, the_rules);
}

TEST(two_ranks_of_two_blocks)
{
    static const operation parts[] = {{PARTS, 2, 2, false}, {PARTS, 1, 1, false}, {PARTS, 1, 2, false}};
    static const operation packets[] = {
        {PACKETS, 1, 2, false}, {PACKETS, 1, 1, true}, {PACKETS, 1, 2, false}, {PACKETS, 1, 2, true}};
    static const operation slices[] = {{SLICES, 1, 2, false}, {PACKETS, 1, 1, false}, {SLICES, 1, 2, false}};
    holds(2, 2, parts, 3, the_rules);
    holds(2, 2, packets, 4, the_rules);
    holds(2, 2, slices, 3, the_rules);
}

TEST(three_ranks)
{
    static const operation packets[] = {
        {PACKETS, 1, 1, false}, {PACKETS, 1, 1, true}, {PACKETS, 1, 1, true}, {PACKETS, 1, 1, false}};
    static const operation parts[] = {{PARTS, 3, 1, false}, {PACKETS, 1, 1, true}, {PARTS, 1, 1, false}};
    static const operation slices[] = {{SLICES, 3, 1, false}, {PACKETS, 1, 1, false}};
    holds(3, 1, packets, 4, the_rules);
    holds(3, 1, parts, 3, the_rules);
    holds(3, 1, slices, 2, the_rules);
}

TEST(wiping)
{
    static const operation packets[] = {
        {PACKETS, 1, 2, false}, {PACKETS, 1, 1, true}, {PACKETS, 1, 2, false}, {PACKETS, 1, 2, false}};
    rules how = the_rules;
    int op;
    for (op = 1; op < 4; op++) {
        how.wipe = op;
        holds(2, 2, packets, 4, how);
    }
}

TEST(every_rule_is_needed)
{
    static const operation parts[] = {{PARTS, 6, 1, false}};
    static const operation slices[] = {{SLICES, 5, 1, false}};
    static const operation rooted[] = {
        {PACKETS, 1, 1, true}, {PACKETS, 1, 1, true}, {PACKETS, 1, 1, true}, {PACKETS, 1, 1, true}};
    static const operation packets[] = {{PACKETS, 1, 1, false}, {PACKETS, 1, 1, true}, {PACKETS, 1, 1, false}};
    rules how = the_rules;
    how.one_phase_slots = 3;
    breaks(2, 1, parts, 1, how);
    how = the_rules;
    how.two_phase_slots = 2;
    breaks(2, 1, slices, 1, how);
    how = the_rules;
    how.meets = false;
    breaks(2, 1, rooted, 4, how);
    how = the_rules;
    how.alternates = false;
    breaks(2, 1, rooted, 4, how);
    how = the_rules;
    how.wipe = 1;
    how.wipes_late = true;
    breaks(2, 1, packets, 3, how);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
