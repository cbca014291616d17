/*  >>tensor.backward_state - a backward pass: the leaves it has reached, and the groups of leaves it counts

    Finds leaves by a hash table. Counts how often groups are used, so that a group's gradients are ready
    before the pass ends.
    Uses: node, gradient. Belongs to the thread of the pass; tensors are read under their locks.
    Invariant: at least half of the table is empty. */

#include "room.h"

IGNIS__PRIVATE uint64_t ignis__grad_groups; /* groups that exist; a pass need not count if it is 0 */
IGNIS__PRIVATE uint64_t ignis__backward_pass_serials;

/*  Returns a leaf's entry in the table of the pass. It holds NULL if the leaf was not reached yet. */
IGNIS__INLINE IGNIS__PRIVATE ignis__leaf_state **ignis__backward_pass_find_leaf(const ignis__backward_pass *pass,
                                                                                const ignis__tensor *leaf)
{
    uint32_t i = (leaf->slot.index * 2654435769u >> 7) & (pass->capacity - 1);
    while (pass->table[i] && pass->table[i]->leaf != leaf)
        i = (i + 1) & (pass->capacity - 1);
    return &pass->table[i];
}

/*  Makes room for one more leaf. */
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

/*  Finds the group of a leaf for the outermost pass. *state is NULL if the leaf has none, or if the group
    does not join. */
static bool ignis__backward_pass_join_group(ignis__backward_pass *pass, ignis__tensor *leaf, ignis__group_state **state)
{
    ignis__grad_group *group;
    ignis__group_state *known;
    *state = NULL;
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
    *state = known->joins ? known : NULL;
    return true;
}

/*  Returns the state of a held leaf in the pass. NULL, and reported, if out of memory, or if the leaf's group
    cannot join now. */
IGNIS__PRIVATE ignis__leaf_state *ignis__backward_pass_reach_leaf(ignis__backward_pass *pass, ignis__tensor *leaf)
{
    ignis__leaf_state **list = &pass->leaves, *reached;
    if (!ignis__backward_pass_grow_table(pass))
        return NULL;
    reached = *ignis__backward_pass_find_leaf(pass, leaf);
    if (reached)
        return reached;
    reached = (ignis__leaf_state *)ignis__alloc_for(pass->call, sizeof *reached);
    if (!reached || (!pass->outer && !pass->request && !ignis__backward_pass_join_group(pass, leaf, &reached->group))) {
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

/*  Frees a list, with sums that were not written. */
IGNIS__PRIVATE void ignis__leaf_states_free(const char *call, ignis__leaf_state **list)
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

static bool ignis__group_ready(const char *call, ignis__group_state *state)
{
    state->done = true;
    return ignis__leaves_write(call, state->leaves) && state->group->ready_fn(state->group, call);
}

/*  Returns the latest node before `node` (NULL: the latest of all) that is newer than `end`, with its output
    held. NULL if there is none. It skips nodes whose output another thread is just destroying. */
IGNIS__INLINE IGNIS__PRIVATE ignis__node *ignis__node_before(ignis__tape *tape, const ignis__node *node, uint64_t end)
{
    ignis__node *before;
    ignis__mutex_lock(&tape->lock);
    before = node ? node->before : tape->last;
    while (before && before->serial > end && !ignis__pool_hold_more(before->output))
        before = before->before;
    ignis__mutex_unlock(&tape->lock);
    return before && before->serial > end ? before : NULL;
}

/*  Counts a use of a tensor by a node: the node that has made the tensor is counted, too. */
static bool ignis__groups_count_use(ignis__backward_pass *pass, ignis__tensor *tensor, bool needed)
{
    ignis__tape_state tape_state = ignis__tensor_tape_state(tensor);
    ignis__leaf_state *reached;
    if (tape_state.node && tape_state.tape == pass->tape)
        tape_state.node->counted = true;
    if (tape_state.node || !tape_state.leaf || !needed)
        return true;
    reached = ignis__backward_pass_reach_leaf(pass, tensor);
    if (reached && reached->group)
        reached->group->uses++;
    return reached != NULL;
}

/*  Counts how often the nodes that lead to a root use leaves of groups. The latest comes first, so users of a
    node come before it. */
IGNIS__PRIVATE bool ignis__groups_count(ignis__backward_pass *pass, ignis__node *root)
{
    ignis__node *node = root, *before;
    bool ok = true;
    int i;
    ignis__tensor_hold_again(root->output);
    root->counted = true;
    for (; node; node = before) {
        for (i = 0; ok && node->counted && i < node->input_count; i++)
            ok = ignis__groups_count_use(pass, node->inputs[i], node->needed[i]);
        for (i = 0; ok && node->counted && i < node->use_count; i++)
            ok = ignis__groups_count_use(pass, node->uses[i], true);
        before = ignis__node_before(pass->tape, node, 0);
        ignis__tensor_drop(pass->call, node->output);
    }
    return ok;
}

/*  Counts a use as passed. */
static bool ignis__groups_pass_use(ignis__backward_pass *pass, const ignis__tensor *tensor, bool ok)
{
    ignis__leaf_state *reached = pass->count ? *ignis__backward_pass_find_leaf(pass, tensor) : NULL;
    ignis__group_state *state = reached ? reached->group : NULL;
    if (state && --state->uses == 0 && !state->done)
        ok = ok && ignis__group_ready(pass->call, state);
    return ok;
}

/*  Counts a node as passed. Groups whose last use it was are ready. */
IGNIS__PRIVATE bool ignis__groups_pass(ignis__backward_pass *pass, ignis__node *node, bool ok)
{
    int i;
    node->counted = false;
    for (i = 0; i < node->input_count; i++)
        if (node->needed[i])
            ok = ignis__groups_pass_use(pass, node->inputs[i], ok);
    for (i = 0; i < node->use_count; i++)
        ok = ignis__groups_pass_use(pass, node->uses[i], ok);
    return ok;
}

/*  Ends the groups of the outermost pass: they are ready now, or dropped after a failure. */
IGNIS__PRIVATE bool ignis__groups_end(ignis__backward_pass *pass, bool ok)
{
    ignis__group_state *state;
    for (state = pass->groups; state; state = state->next) {
        if (ok && state->joins && !state->done)
            ok = ignis__group_ready(pass->call, state);
        ignis__leaf_states_free(pass->call, &state->leaves);
    }
    while ((state = pass->groups) != NULL) {
        pass->groups = state->next;
        ok = state->group->end_fn(state->group, pass->call, pass, ok) && ok;
        ignis__free(state);
    }
    return ok;
}
