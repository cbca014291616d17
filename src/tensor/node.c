/* ===============================================================================================================
   >>tensor - tensors, scopes.
   =============================================================================================================== */

/*  Leaves whose gradients somebody wants as soon as a backward knows them all, as to add them up over several GPUs while it goes on. What a
    backward knows of a group belongs to the backward (ignis__group_state). */
typedef struct ignis__grad_group {
    ignis__slot *owner; /* each backward that has met the group holds it, until end_fn gives that hold back */
    bool (*meet_fn)(struct ignis__grad_group *group, const char *call, const void *pass,
                    bool *joins);                                        /* false, reported: not now */
    bool (*ready_fn)(struct ignis__grad_group *group, const char *call); /* the gradients are there */
    bool (*end_fn)(struct ignis__grad_group *group, const char *call, const void *pass,
                   bool ok); /* that backward is over */
} ignis__grad_group;

/*  A tensor's array belongs to it by a reference (ignis__array_claim), so that nobody frees it under the tensor. What the tape needs
    later it claims as well: releasing a tensor's handle gives up the tensor's claim only. */
typedef struct ignis__tensor {
    ignis__slot slot;         /* first; its lock guards what may change: all but shape, dtype, device and made_in */
    ignis__array *data;       /* null once the handle is released */
    ignis__array *grad;       /* changes only inside ignis__leaves_enter */
    bool entered;             /* a thread is inside; guarded by ignis__leaves.lock */
    struct ignis__node *node; /* the entry of the tape that made it */
    bool requires_grad, leaf;
    bool consumed; /* its entry was used up by a backward, or cleared */
    uint64_t
        read; /* 1: an entry has it as an input, so it can be no result any more: entries would hold each other for ever */
    ignis_shape shape; /* of data, also when that is gone */
    ignis_dtype dtype;
    ignis__device *device;
    ignis__grad_group *group;   /* of a leaf; null: none */
    uint64_t made_in;           /* the backward whose backward function made it, by serial; 0: none */
    struct ignis__tensor *next; /* in a list of dead tensors */
} ignis__tensor;

static ignis__pool ignis__tensors = IGNIS__POOL(ignis__tensor, IGNIS__KIND_TENSOR, "tensor", IGNIS_DIAG_TENSOR_FREED);

static uint64_t ignis__scope_serials;

/* --- entries of the tape, as far as tensors hold them ---------------------------------------------------------------- */

/*  One operation: who its inputs are, what its backward function needs. It lives as long as its output's tensor, or until a backward has
    used it. One block of memory holds it with its lists.
     Only the thread of a tape adds entries to it, walks and clears it; any thread may release the tensor that keeps an entry. So the
    thread of the tape may use an entry as long as it holds the output, and others may under the output's lock. */
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
    bool counted;           /* during a backward: its inputs are among the uses of groups */
    bool running;           /* its backward function runs */
    bool nests;             /* backward_fn runs a backward of its own */
    bool knows_one;         /* backward_fn takes no grad_output for one that is 1, as a backward's first */
    ignis__tensor **inputs; /* each held */
    ignis__array **saved;   /* each claimed */
    uint64_t *versions;     /* of what is saved, when it was recorded; IGNIS__UNWRITTEN for what may be written later */
    void *params;
    bool *needed; /* for each input, whether it required a gradient when this was recorded */
    ignis__array
        *grad; /* during a backward: of the output, as far as it is known; claimed. The output is held meanwhile */
} ignis__node;

typedef struct ignis__tape {
    ignis__mutex lock; /* for the links: a tensor may be released by another thread than the one that recorded it */
    ignis__node *first, *last;
    int64_t length;
    uint64_t serials;         /* given out */
    uint64_t number;          /* from 1, in the process */
    bool ended;               /* its thread has; it goes with its last entry */
    struct ignis__tape *next; /* in the list of all */
} ignis__tape;

/*  All tapes: of threads that have not ended, and those of which tensors still keep entries. This lock is taken before a tape's. */
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

/*  The thread ends. Its tape goes, which ignis_shutdown may have freed already; for what else runs at the thread's end all begins anew. */
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

/*  Takes an entry apart that is on no tape. Inputs of which it had the last hold go onto the list of dead tensors. */
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

/*  Takes dead tensors apart, and all that only they kept alive, in a loop: chains of operations are long, and the stack is not. */
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

/*  Ends the entry that made a tensor: its backward is used up. Only the thread of the tape does this, and it holds the output. */
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
