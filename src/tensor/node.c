/* ===============================================================================================================
   >>tensor - tensors, scopes and the tape.

   node: what a tensor and a node of the tape are, and how they end. thread, tensor, scope: tensors of a thread. tape:
   recording. gradient, backward_state, backward_pass, zero_grad: the backward pass. checkpoint, creation, query.
   Uses the rooms base, device, array and kernel. Knows no operation.
   Invariants: a node lives until its output ends or a pass has used it; a tensor holds its array by one claim.
   Locks: ignis__tapes.lock, then a tape's lock, then a tensor's.
   =============================================================================================================== */

/*  Leaves whose gradients are needed as soon as a backward pass has completed them, to sum them over GPUs
    while it continues. The state of a group in a pass belongs to the pass (ignis__group_state). */
typedef struct ignis__grad_group {
    ignis__slot *owner; /* each pass that has reached the group holds it, until end_fn gives that hold back */
    bool (*meet_fn)(
        struct ignis__grad_group *group, const char *call, const void *pass,
        bool *joins); /* *joins false: not in this pass. Returns false, and reports, if it cannot join now */
    bool (*ready_fn)(struct ignis__grad_group *group, const char *call); /* the gradients are complete */
    bool (*end_fn)(struct ignis__grad_group *group, const char *call, const void *pass, bool ok); /* the pass is over */
} ignis__grad_group;

/*  A tensor claims its array, so that nobody frees it. The tape claims what it needs later: releasing a
    tensor's handle gives up the tensor's claim only. */
typedef struct ignis__tensor {
    /* First; its lock guards whatever may change: all but shape, dtype, device and made_in. */
    ignis__slot slot;
    ignis__array *data;       /* NULL once the handle is released */
    ignis__array *grad;       /* changes only inside ignis__leaves_enter */
    bool entered;             /* a thread is inside; guarded by ignis__leaves.lock */
    struct ignis__node *node; /* the node that made it */
    bool requires_grad, leaf;
    bool consumed; /* its node was used up by a pass, or cleared */
    uint64_t
        read; /* 1: a node has it as an input, so it cannot become a result: nodes would hold each other for ever */
    ignis_shape shape; /* of data, also when data has been released */
    ignis_dtype dtype;
    ignis__device *device;
    ignis__grad_group *group;   /* of a leaf; NULL: none */
    uint64_t made_in;           /* the serial of the pass whose backward function made it; 0: none */
    struct ignis__tensor *next; /* in a list of dead tensors */
} ignis__tensor;

static ignis__pool ignis__tensors = IGNIS__POOL(ignis__tensor, IGNIS__KIND_TENSOR, "tensor", IGNIS_DIAG_TENSOR_FREED);

static uint64_t ignis__scope_serials;

/* --- nodes of the tape, as far as tensors hold them --------------------------------------------------------------- */

/*  One operation: its inputs, and what its backward function needs, in one block of memory. It lives as long
    as its output's tensor, or until a pass has used it. Only the thread of a tape adds nodes, runs and clears
    them. Any thread may release the tensor that keeps a node. So the thread of the tape may use a node while
    it holds the output, and others under the output's lock. */
typedef struct ignis__node {
    struct ignis__tape *tape;
    struct ignis__node *before, *after; /* in the order of recording */
    uint64_t serial;                    /* that order as a number, from 1 */
    ignis__tensor *output;
    const char *name;
    ignis_status (*backward_fn)(const ignis_backward_args *args);
    void *user_data;
    int input_count, saved_count;
    bool drawn;             /* during ignis_tape_dot */
    bool counted;           /* during a pass: its inputs are counted as uses of groups */
    bool running;           /* its backward function runs */
    bool nests;             /* backward_fn runs a pass of its own */
    bool knows_one;         /* backward_fn takes no grad_output for a gradient of 1, as a pass starts with */
    ignis__tensor **inputs; /* each held */
    ignis__array **saved;   /* each claimed */
    uint64_t
        *versions; /* of saved arrays, when it was recorded; IGNIS__UNWRITTEN for arrays that may be written later */
    void *params;
    bool *needed; /* for each input, whether it required a gradient when this was recorded */
    /* During a pass: the gradient of the output so far, claimed; the output is held meanwhile. */
    ignis__array *grad;
} ignis__node;

typedef struct ignis__tape {
    ignis__mutex lock; /* for the links: another thread may release a tensor of this tape */
    ignis__node *first, *last;
    int64_t length;
    uint64_t serials;         /* given out */
    uint64_t number;          /* from 1, in the process */
    bool ended;               /* its thread has; the tape ends with its last node */
    struct ignis__tape *next; /* in the list of all */
} ignis__tape;

/*  All tapes: of threads that run, and those whose nodes are still kept by tensors. This lock is taken before
    a tape's. */
static struct {
    ignis__mutex lock;
    uint64_t numbers; /* given out so far */
    ignis__tape *first;
} ignis__tapes = {IGNIS__MUTEX_INIT, 0, NULL};

/*  Frees a tape that is in the list; the list is locked. */
static void ignis__tape_free(ignis__tape *tape)
{
    ignis__tape **link = &ignis__tapes.first;
    while (*link != tape)
        link = &(*link)->next;
    *link = tape->next;
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

static void ignis__tensors_at_exit(void)
{
    ignis__this_thread.tensors_end = ignis__tensors_end;
    ignis__thread_register(&ignis__this_thread);
}

static void ignis__node_unlink(ignis__node *node)
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
static void ignis__node_destroy(const char *call, ignis__node *node, ignis__tensor **dead)
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
    ignis__free(node);
}

/*  Destroys dead tensors, and all that only they kept alive, in a loop: chains of operations are long, and
    the stack is not. */
static void ignis__tensors_destroy_chain(const char *call, ignis__tensor *dead)
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

IGNIS__ONE_COPY static void ignis__tensor_drop(const char *call, ignis__tensor *tensor)
{
    if (!ignis__pool_drop(tensor))
        return;
    tensor->next = NULL;
    ignis__tensors_destroy_chain(call, tensor);
}

/*  Ends the node that made a tensor: its backward is used up. Only the thread of the tape does this, and it
    holds the output. */
static void ignis__node_consume(const char *call, ignis__node *node)
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
