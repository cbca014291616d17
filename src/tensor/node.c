/* ===============================================================================================================
   >>tensor - tensors, scopes and the tape.

   node: what a tensor and a node of the tape are, and how they end. thread, tensor, scope: tensors of a thread. tape:
   recording. gradient, backward_state, backward_pass, zero_grad: the backward pass. checkpoint, creation, query.
   Uses the rooms base, device, array and kernel. Knows no operation.
   Invariants: a node lives until its output ends or a pass has used it; a tensor holds its array by one claim.
   Locks: ignis__tapes.lock, then a tape's lock, then a tensor's.
   =============================================================================================================== */

#include "room.h"

/* Of the part offload. */
IGNIS__COLD IGNIS__PRIVATE void ignis__offload_close(const char *call, ignis__offload *offload);
IGNIS__PRIVATE void ignis__lanes_leave(const ignis__tape *tape);

IGNIS__PRIVATE ignis__pool ignis__tensors =
    IGNIS__POOL(ignis__tensor, IGNIS__KIND_TENSOR, "tensor", IGNIS_DIAG_TENSOR_FREED);

IGNIS__PRIVATE uint64_t ignis__scope_serials;

/* --- nodes of the tape, as far as tensors hold them --------------------------------------------------------------- */

IGNIS__PRIVATE struct ignis__tapes_type ignis__tapes = {IGNIS__MUTEX_INIT, 0, NULL};

/*  Frees a tape that is in the list; the list is locked. */
static void ignis__tape_free(ignis__tape *tape)
{
    ignis__tape **link = &ignis__tapes.first;
    while (*link != tape)
        link = &(*link)->next;
    *link = tape->next;
    ignis__lanes_leave(tape);
    ignis__free(tape);
}

/*  Ends a thread's tensors and its tape, which ignis_shutdown may have freed already. Code that runs later at
    the thread's end starts anew. */
static void ignis__tensors_end(void)
{
    ignis__tape *tape;
    bool empty;
    ignis__mutex_lock(&ignis__tapes.lock);
    for (tape = ignis__tapes.first; tape && tape->number != ignis__this_thread.tape; tape = tape->next)
        ;
    if (tape) {
        ignis__mutex_lock(&tape->lock);
        tape->ended = true;
        empty = tape->length == 0;
        ignis__mutex_unlock(&tape->lock);
        if (empty)
            ignis__tape_free(tape);
    }
    ignis__mutex_unlock(&ignis__tapes.lock);
    ignis__this_thread.tape = 0;
    memset(&ignis__this_tensor_thread, 0, sizeof ignis__this_tensor_thread);
}

IGNIS__PRIVATE void ignis__tensors_at_exit(void)
{
    ignis__this_thread.tensors_end = ignis__tensors_end;
    ignis__thread_register(&ignis__this_thread);
}

IGNIS__INLINE static void ignis__node_unlink(ignis__node *node)
{
    ignis__tape *tape = node->tape;
    bool last;
    ignis__mutex_lock(&tape->lock);
    if (node->before)
        node->before->after = node->after;
    else
        tape->first = node->after;
    if (node->after)
        node->after->before = node->before;
    else
        tape->last = node->before;
    last = --tape->length == 0 && tape->ended;
    ignis__mutex_unlock(&tape->lock);
    if (last) {
        ignis__mutex_lock(&ignis__tapes.lock);
        ignis__tape_free(tape);
        ignis__mutex_unlock(&ignis__tapes.lock);
    }
}

/*  Destroys a node that is on no tape. Inputs of which it had the last hold go to the list of dead tensors. */
IGNIS__PRIVATE void ignis__node_destroy(const char *call, ignis__node *node, ignis__tensor **dead)
{
    int i;
    for (i = 0; i < node->saved_count; i++)
        ignis__array_unclaim(call, node->saved[i]);
    if (node->grad)
        ignis__array_unclaim(call, node->grad);
    for (i = 0; i < node->input_count; i++) {
        if (ignis__pool_drop(node->inputs[i])) {
            node->inputs[i]->next = *dead;
            *dead = node->inputs[i];
        }
    }
    for (i = 0; i < node->use_count; i++) {
        if (ignis__pool_drop(node->uses[i])) {
            node->uses[i]->next = *dead;
            *dead = node->uses[i];
        }
    }
    ignis__free(node->uses);
    if (node->offload)
        ignis__offload_close(call, node->offload);
    ignis__free(node);
}

/*  Destroys dead tensors, and all that only they kept alive, in a loop: chains of operations are long, and
    the stack is not. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__tensors_destroy_chain(const char *call, ignis__tensor *dead)
{
    while (dead) {
        ignis__tensor *tensor = dead;
        dead = tensor->next;
        if (tensor->data)
            ignis__array_unclaim(call, tensor->data);
        if (tensor->grad)
            ignis__array_unclaim(call, tensor->grad);
        if (tensor->node) {
            ignis__node_unlink(tensor->node);
            ignis__node_destroy(call, tensor->node, &dead);
        }
        ignis__pool_recycle(&ignis__tensors, tensor);
    }
}

IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__tensor_drop(const char *call, ignis__tensor *tensor)
{
    if (!ignis__pool_drop(tensor))
        return;
    tensor->next = NULL;
    ignis__tensors_destroy_chain(call, tensor);
}

/*  Ends the node that made a tensor: its backward is used up. Only the thread of the tape does this, and it
    holds the output. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__node_consume(const char *call, ignis__node *node)
{
    ignis__tensor *dead = NULL;
    ignis__mutex_lock(&node->output->slot.lock);
    node->output->node = NULL;
    node->output->consumed = true;
    ignis__mutex_unlock(&node->output->slot.lock);
    ignis__node_unlink(node);
    ignis__node_destroy(call, node, &dead);
    ignis__tensors_destroy_chain(call, dead);
}
