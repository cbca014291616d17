/* --- one backward: what it has reached, and the groups that it has met --------------------------------------------------------- */

static uint64_t ignis__grad_groups; /* that exist: without any, a backward need not count */
static uint64_t ignis__backward_pass_serials;

/*  A group of leaves of which a backward has met one. The outermost one has counted its uses, so it knows when the last is passed. */
typedef struct ignis__group_state {
    ignis__grad_group *group;
    bool joins;                /* else its leaves are to this backward as all others are */
    bool done;                 /* ready_fn was called */
    int64_t uses;              /* by entries that the backward has not passed yet */
    ignis__leaf_state *leaves; /* those that it has reached, or will */
    struct ignis__group_state *next;
} ignis__group_state;

/*  One backward. A backward function that it calls may run another one, inside of it. */
typedef struct ignis__backward_pass {
    const char *call;
    ignis__tape *tape;
    struct ignis__backward_pass *outer; /* in whose backward function this one runs; null: none */
    uint64_t serial;
    bool retains;    /* entries are kept for another backward */
    ignis__node *at; /* the entry whose backward function is running; null: none is */
    uint64_t taken;  /* a bit for each input whose gradient that function has added up itself */
    uint64_t one; /* the gradient that it starts from, by handle, where that is a 1 that nobody has written; else 0 */
    bool failed;  /* one inside of it has failed, and may have given only a part of its gradients */
    /* what ignis__backward_pass_offer_column_sums has left: a gradient, null when its sums are given, and the sums of its columns; both claimed */
    ignis__array *summed, *sums;
    int64_t nests; /* entries that it has not passed yet and that run a backward of their own */
    ignis__group_state *groups;
    ignis__leaf_state *leaves; /* those that are in no group */
    ignis__leaf_state *
        *table; /* a hash table of all by their leaf; a power of two of places, of which at least half are empty */
    uint32_t count, capacity;
} ignis__backward_pass;

/*  The place of a leaf in the pass's table, which holds null when the leaf was not reached yet. */
static ignis__leaf_state **ignis__backward_pass_find_leaf(const ignis__backward_pass *pass, const ignis__tensor *leaf)
{
    uint32_t i = (leaf->slot.index * 2654435769u >> 7) & (pass->capacity - 1);
    while (pass->table[i] && pass->table[i]->leaf != leaf)
        i = (i + 1) & (pass->capacity - 1);
    return &pass->table[i];
}

/*  Room for one more leaf. */
static bool ignis__backward_pass_grow_table(ignis__backward_pass *pass)
{
    ignis__backward_pass grown = *pass;
    uint32_t i;
    if (2 * pass->count < pass->capacity)
        return true;
    grown.capacity = pass->capacity ? 4 * pass->capacity : 64;
    grown.table = (ignis__leaf_state **)ignis__alloc_for(pass->call, sizeof *grown.table * grown.capacity);
    if (!grown.table)
        return false;
    for (i = 0; i < pass->capacity; i++)
        if (pass->table[i])
            *ignis__backward_pass_find_leaf(&grown, pass->table[i]->leaf) = pass->table[i];
    ignis__free(pass->table);
    *pass = grown;
    return true;
}

/*  The group of a leaf, for the outermost pass: *met is null where the leaf has none, or where it does not join. */
static bool ignis__backward_pass_join_group(ignis__backward_pass *pass, ignis__tensor *leaf, ignis__group_state **met)
{
    ignis__grad_group *group;
    ignis__group_state *known;
    *met = NULL;
    ignis__mutex_lock(&leaf->slot.lock);
    group = leaf->group;
    if (group && !ignis__pool_hold_more(group->owner))
        group = NULL; /* it is just ending */
    ignis__mutex_unlock(&leaf->slot.lock);
    if (!group)
        return true;
    for (known = pass->groups; known && known->group != group; known = known->next)
        ;
    if (known) {
        (void)ignis__pool_drop(group->owner); /* one hold is enough */
    } else {
        known = (ignis__group_state *)ignis__alloc_for(pass->call, sizeof *known);
        if (!known || !group->meet_fn(group, pass->call, pass, &known->joins)) {
            ignis__free(known);
            (void)group->end_fn(group, pass->call, pass, false);
            return false;
        }
        known->group = group;
        known->next = pass->groups;
        pass->groups = known;
    }
    *met = known->joins ? known : NULL;
    return true;
}

/*  What the pass knows of a held leaf. Null, and reported: out of memory, or the leaf's group cannot be met now. */
static ignis__leaf_state *ignis__backward_pass_reach_leaf(ignis__backward_pass *pass, ignis__tensor *leaf)
{
    ignis__leaf_state **list = &pass->leaves, *reached;
    if (!ignis__backward_pass_grow_table(pass))
        return NULL;
    reached = *ignis__backward_pass_find_leaf(pass, leaf);
    if (reached)
        return reached;
    reached = (ignis__leaf_state *)ignis__alloc_for(pass->call, sizeof *reached);
    if (!reached || (!pass->outer && !ignis__backward_pass_join_group(pass, leaf, &reached->group))) {
        ignis__free(reached);
        return NULL;
    }
    ignis__tensor_hold_again(leaf);
    reached->leaf = leaf;
    if (reached->group)
        list = &reached->group->leaves;
    reached->next = *list;
    *list = reached;
    *ignis__backward_pass_find_leaf(pass, leaf) = reached;
    pass->count++;
    return reached;
}

/*  Frees a list, with the sums that were not written. */
static void ignis__leaf_states_free(const char *call, ignis__leaf_state **list)
{
    ignis__leaf_state *reached;
    while ((reached = *list) != NULL) {
        *list = reached->next;
        if (reached->sum)
            ignis__array_unclaim(call, reached->sum);
        ignis__tensor_drop(call, reached->leaf);
        ignis__free(reached);
    }
}

static bool ignis__group_ready(const char *call, ignis__group_state *met)
{
    met->done = true;
    return ignis__leaves_write(call, met->leaves) && met->group->ready_fn(met->group, call);
}

/*  The nearest entry before this one (null: the newest of all) that is newer than `end`, with its output held; null: there is none. It skips entries
    that another thread is just about to end, having given back the last hold of their outputs. */
static ignis__node *ignis__node_before(ignis__tape *tape, const ignis__node *node, uint64_t end)
{
    ignis__node *before;
    ignis__mutex_lock(&tape->lock);
    before = node ? node->before : tape->last;
    while (before && before->serial > end && !ignis__pool_hold_more(before->output))
        before = before->before;
    ignis__mutex_unlock(&tape->lock);
    return before && before->serial > end ? before : NULL;
}

/*  Counts how often the entries on the way from a root use leaves of groups. Newest first: whoever uses an entry comes before it. */
static bool ignis__groups_count(ignis__backward_pass *pass, ignis__node *root)
{
    ignis__node *node = root, *before;
    bool ok = true;
    int i;
    ignis__tensor_hold_again(root->output);
    root->counted = true;
    for (; node; node = before) {
        for (i = 0; ok && node->counted && i < node->input_count; i++) {
            ignis__tape_state tape_state = ignis__tensor_tape_state(node->inputs[i]);
            ignis__leaf_state *reached;
            if (tape_state.node && tape_state.tape == pass->tape) {
                tape_state.node->counted = true;
            } else if (tape_state.leaf && node->needed[i]) {
                reached = ignis__backward_pass_reach_leaf(pass, node->inputs[i]);
                ok = reached != NULL;
                if (ok && reached->group)
                    reached->group->uses++;
            }
        }
        pass->nests += node->counted && node->nests;
        before = ignis__node_before(pass->tape, node, 0);
        ignis__tensor_drop(pass->call, node->output);
    }
    return ok;
}

/*  The pass has passed an entry: groups of which it was the last use are ready, unless one that is to come may use anything. */
static bool ignis__groups_pass(ignis__backward_pass *pass, ignis__node *node, bool ok)
{
    ignis__group_state *met;
    bool was_last = node->nests && pass->nests == 1;
    int i;
    node->counted = false;
    pass->nests -= node->nests;
    for (i = 0; i < node->input_count; i++) {
        ignis__leaf_state *reached =
            pass->count && node->needed[i] ? *ignis__backward_pass_find_leaf(pass, node->inputs[i]) : NULL;
        met = reached ? reached->group : NULL;
        if (met && --met->uses == 0 && !pass->nests && !met->done)
            ok = ok && ignis__group_ready(pass->call, met);
    }
    for (met = was_last ? pass->groups : NULL; met; met = met->next)
        if (met->joins && met->uses == 0 && !met->done)
            ok = ok && ignis__group_ready(pass->call, met);
    return ok;
}

/*  The outermost pass is over: what is left of its groups is ready now, or dropped after a failure. */
static bool ignis__groups_end(ignis__backward_pass *pass, bool ok)
{
    ignis__group_state *met;
    for (met = pass->groups; met; met = met->next) {
        if (ok && met->joins && !met->done)
            ok = ignis__group_ready(pass->call, met);
        ignis__leaf_states_free(pass->call, &met->leaves);
    }
    while ((met = pass->groups) != NULL) {
        pass->groups = met->next;
        ok = met->group->end_fn(met->group, pass->call, pass, ok) && ok;
        ignis__free(met);
    }
    return ok;
}
