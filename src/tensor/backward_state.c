/* --- one backward: what it has reached, and the groups that it has met --------------------------------------------------------- */

static uint64_t ignis__grad_groups; /* that exist: without any, a backward need not count */
static uint64_t ignis__walk_serials;

/*  A group of leaves of which a backward has met one. The outermost one has counted its uses, so it knows when the last is passed. */
typedef struct ignis__met_group {
    ignis__grad_group *group;
    bool joins;             /* else its leaves are to this backward as all others are */
    bool done;              /* ready_fn was called */
    int64_t uses;           /* by entries that the backward has not passed yet */
    ignis__reached *leaves; /* those that it has reached, or will */
    struct ignis__met_group *next;
} ignis__met_group;

/*  One backward. A backward function that it calls may run another one, inside of it. */
typedef struct ignis__walk {
    const char *call;
    ignis__tape *tape;
    struct ignis__walk *outer; /* in whose backward function this one runs; null: none */
    uint64_t serial;
    bool retains;    /* entries are kept for another backward */
    ignis__node *at; /* the entry whose backward function is running; null: none is */
    uint64_t taken;  /* a bit for each input whose gradient that function has added up itself */
    uint64_t one;    /* the gradient that it starts from, by handle, where that is a 1 that nobody has written; else 0 */
    bool failed;     /* one inside of it has failed, and may have given only a part of its gradients */
    /* what ignis__walk_sums_leave has left: a gradient, null when its sums are given, and the sums of its columns; both claimed */
    ignis__array *summed, *sums;
    int64_t nests; /* entries that it has not passed yet and that run a backward of their own */
    ignis__met_group *groups;
    ignis__reached *leaves; /* those that are in no group */
    ignis__reached **table; /* a hash table of all by their leaf; a power of two of places, of which at least half are empty */
    uint32_t count, capacity;
} ignis__walk;

/*  The place of a leaf in the walk's table, which holds null when the leaf was not reached yet. */
static ignis__reached **ignis__walk_find(const ignis__walk *walk, const ignis__tensor *leaf)
{
    uint32_t i = (leaf->slot.index * 2654435769u >> 7) & (walk->capacity - 1);
    while (walk->table[i] && walk->table[i]->leaf != leaf)
        i = (i + 1) & (walk->capacity - 1);
    return &walk->table[i];
}

/*  Room for one more leaf. */
static bool ignis__walk_grow(ignis__walk *walk)
{
    ignis__walk grown = *walk;
    uint32_t i;
    if (2 * walk->count < walk->capacity)
        return true;
    grown.capacity = walk->capacity ? 4 * walk->capacity : 64;
    grown.table = (ignis__reached **)ignis__alloc_for(walk->call, sizeof *grown.table * grown.capacity);
    if (!grown.table)
        return false;
    for (i = 0; i < walk->capacity; i++)
        if (walk->table[i])
            *ignis__walk_find(&grown, walk->table[i]->leaf) = walk->table[i];
    ignis__free(walk->table);
    *walk = grown;
    return true;
}

/*  The group of a leaf, for the outermost walk: *met is null where the leaf has none, or where it does not join. */
static bool ignis__walk_meet(ignis__walk *walk, ignis__tensor *leaf, ignis__met_group **met)
{
    ignis__grad_group *group;
    ignis__met_group *known;
    *met = NULL;
    ignis__mutex_lock(&leaf->slot.lock);
    group = leaf->group;
    if (group && !ignis__pool_hold_more(group->owner))
        group = NULL; /* it is just ending */
    ignis__mutex_unlock(&leaf->slot.lock);
    if (!group)
        return true;
    for (known = walk->groups; known && known->group != group; known = known->next)
        ;
    if (known) {
        (void)ignis__pool_drop(group->owner); /* one hold is enough */
    } else {
        known = (ignis__met_group *)ignis__alloc_for(walk->call, sizeof *known);
        if (!known || !group->meet_fn(group, walk->call, walk, &known->joins)) {
            ignis__free(known);
            (void)group->end_fn(group, walk->call, walk, false);
            return false;
        }
        known->group = group;
        known->next = walk->groups;
        walk->groups = known;
    }
    *met = known->joins ? known : NULL;
    return true;
}

/*  What the walk knows of a held leaf. Null, and reported: out of memory, or the leaf's group cannot be met now. */
static ignis__reached *ignis__walk_reach(ignis__walk *walk, ignis__tensor *leaf)
{
    ignis__reached **list = &walk->leaves, *reached;
    if (!ignis__walk_grow(walk))
        return NULL;
    reached = *ignis__walk_find(walk, leaf);
    if (reached)
        return reached;
    reached = (ignis__reached *)ignis__alloc_for(walk->call, sizeof *reached);
    if (!reached || (!walk->outer && !ignis__walk_meet(walk, leaf, &reached->group))) {
        ignis__free(reached);
        return NULL;
    }
    ignis__tensor_rehold(leaf);
    reached->leaf = leaf;
    if (reached->group)
        list = &reached->group->leaves;
    reached->next = *list;
    *list = reached;
    *ignis__walk_find(walk, leaf) = reached;
    walk->count++;
    return reached;
}

/*  Frees a list, with the sums that were not written. */
static void ignis__reached_end(const char *call, ignis__reached **list)
{
    ignis__reached *reached;
    while ((reached = *list) != NULL) {
        *list = reached->next;
        if (reached->sum)
            ignis__array_unclaim(call, reached->sum);
        ignis__tensor_drop(call, reached->leaf);
        ignis__free(reached);
    }
}

static bool ignis__group_ready(const char *call, ignis__met_group *met)
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
static bool ignis__groups_count(ignis__walk *walk, ignis__node *root)
{
    ignis__node *node = root, *before;
    bool ok = true;
    int i;
    ignis__tensor_rehold(root->output);
    root->counted = true;
    for (; node; node = before) {
        for (i = 0; ok && node->counted && i < node->input_count; i++) {
            ignis__standing standing = ignis__tensor_standing(node->inputs[i]);
            ignis__reached *reached;
            if (standing.node && standing.tape == walk->tape) {
                standing.node->counted = true;
            } else if (standing.leaf && node->needed[i]) {
                reached = ignis__walk_reach(walk, node->inputs[i]);
                ok = reached != NULL;
                if (ok && reached->group)
                    reached->group->uses++;
            }
        }
        walk->nests += node->counted && node->nests;
        before = ignis__node_before(walk->tape, node, 0);
        ignis__tensor_drop(walk->call, node->output);
    }
    return ok;
}

/*  The walk has passed an entry: groups of which it was the last use are ready, unless one that is to come may use anything. */
static bool ignis__groups_pass(ignis__walk *walk, ignis__node *node, bool ok)
{
    ignis__met_group *met;
    bool was_last = node->nests && walk->nests == 1;
    int i;
    node->counted = false;
    walk->nests -= node->nests;
    for (i = 0; i < node->input_count; i++) {
        ignis__reached *reached = walk->count && node->needed[i] ? *ignis__walk_find(walk, node->inputs[i]) : NULL;
        met = reached ? reached->group : NULL;
        if (met && --met->uses == 0 && !walk->nests && !met->done)
            ok = ok && ignis__group_ready(walk->call, met);
    }
    for (met = was_last ? walk->groups : NULL; met; met = met->next)
        if (met->joins && met->uses == 0 && !met->done)
            ok = ok && ignis__group_ready(walk->call, met);
    return ok;
}

/*  The outermost walk is over: what is left of its groups is ready now, or dropped after a failure. */
static bool ignis__groups_end(ignis__walk *walk, bool ok)
{
    ignis__met_group *met;
    for (met = walk->groups; met; met = met->next) {
        if (ok && met->joins && !met->done)
            ok = ignis__group_ready(walk->call, met);
        ignis__reached_end(walk->call, &met->leaves);
    }
    while ((met = walk->groups) != NULL) {
        walk->groups = met->next;
        ok = met->group->end_fn(met->group, walk->call, walk, ok) && ok;
        ignis__free(met);
    }
    return ok;
}
