/*  tensor - tensors, scopes, the tape, backward, checkpoints. Knows no operation. */
#pragma once

#include "../base/room.h"
#include "../device/room.h"
#include "../array/room.h"
#include "../kernel/room.h"
#include "../shared/addends.h"

/*  State of the tensor rooms for a thread. */
typedef struct ignis__tensor_thread {
    uint64_t setup;                    /* the setup that it belongs to; state of an older one is forgotten */
    int tensor_count, tensor_capacity; /* handles made inside scopes, those of the innermost scope last */
    int scope_count, scope_capacity;
    int no_grad;
    struct ignis__tape *tape;
    struct ignis__backward_pass *pass; /* the innermost backward pass; NULL: none */
    uint64_t pass_serial;              /* its serial, or 0 */
    int scope_floor,
        /* Open when a function of the caller's was called, which may not end them. */
        no_grad_floor;
    bool unbalanced;    /* the function has tried to */
    bool saw_trainable; /* an operation had an input that requires a gradient, recorded or not */
    /* Of the checkpoint whose function runs for the first time; NULL: none. */
    struct ignis__checkpoint_inputs *checkpoint_inputs;
    struct ignis__products *keeps;   /* results of products are added to these; NULL: they are not kept */
    struct ignis__products *replays; /* and are taken from these, not computed; NULL: they are computed */
} ignis__tensor_thread;

#ifdef _WIN32
#define ignis__this_tensor_thread (*ignis__this_tensor_thread_get())
#endif

struct ignis__grad_group;
struct ignis__tensor;
typedef struct ignis__offload ignis__offload; /* results of products in pinned host memory: offload.c */

/*  A range of the elements of a leaf, which one rank keeps the state of and updates. */
typedef struct ignis__piece {
    uint64_t sharer;        /* the handle of the training that the leaf belongs to */
    int64_t start, count;   /* elements of the leaf; a piece may be empty */
    int64_t at;             /* the leaf's place in its group, in elements */
    int copy, copies;       /* this rank's copy of the piece, of those that ranks have */
    int rank;               /* equal on the ranks that have copies of one piece: below the ranks that share a copy */
    ignis_array data, grad; /* the elements and their gradients; the caller frees both. No grad: see grad_fn */
} ignis__piece;

/*  Functions of groups whose leaves are cut into pieces, one for each rank. All ranks call those that send alike. Work
    is queued on the current stream. */
typedef struct ignis__sharing {
    bool (*piece_fn)(struct ignis__grad_group *group, const char *call, const struct ignis__tensor *leaf,
                     ignis__piece *piece);                              /* of this rank */
    bool (*sum_fn)(struct ignis__grad_group *group, ignis_array array); /* over the ranks, in place */
    bool (*fill_fn)(struct ignis__grad_group *group, const char *call, int64_t at,
                    ignis_array leaf); /* sends this rank's piece of a leaf, receives the others */
    /* as fill_fn, for the values of all leaves; or notes that these changed */
    bool (*spread_fn)(struct ignis__grad_group *group, const char *call);
    bool (*drop_fn)(struct ignis__grad_group *group, const char *call); /* gives up a hold of group->owner */
    /* NULL: nothing to do; else frees what was gathered, before a call of an optimizer uses the pieces. writes: it
       changes their values */
    bool (*begin_fn)(struct ignis__grad_group *group, const char *call, bool writes);
    /* NULL: the gradient of a leaf is its own; else sets this rank's piece of it to zero */
    bool (*zero_fn)(struct ignis__grad_group *group, const char *call, const struct ignis__tensor *leaf);
    /* NULL: gradients of pieces have memory for good. Else returns the gradient of `count` elements of a piece from
       `start` on, for the leaf `at`; made as zeros if it is missing. The caller frees it. */
    ignis_array (*grad_fn)(struct ignis__grad_group *group, const char *call, int64_t at, int64_t start, int64_t count);
    /* If there is a grad_fn: drops the gradients of all leaves, as their optimizer has used them */
    bool (*forget_fn)(struct ignis__grad_group *group, const char *call);
    /* array = that of the rank with copy `from`, on all ranks that have copies of this rank's pieces */
    bool (*copy_fn)(struct ignis__grad_group *group, ignis_array array, int from);
    /* As spread_fn for all groups of the owner, whose pieces were written; and drops their gradients */
    bool (*renew_fn)(struct ignis__grad_group *group, const char *call);
    /* Waits for the stream. False, and reported, if an operation of the ranks has failed */
    bool (*wait_fn)(struct ignis__grad_group *group);
} ignis__sharing;

/*  Leaves whose gradients are needed as soon as a backward pass has completed them, to sum them over GPUs
    while it continues. The state of a group in a pass belongs to the pass (ignis__group_state). */
typedef struct ignis__grad_group {
    ignis__slot *owner; /* each pass that has reached the group holds it, until end_fn gives that hold back */
    bool (*meet_fn)(
        struct ignis__grad_group *group, const char *call, const void *pass,
        bool *joins); /* *joins false: not in this pass. Returns false, and reports, if it cannot join now */
    bool (*ready_fn)(struct ignis__grad_group *group, const char *call); /* the gradients are complete */
    bool (*end_fn)(struct ignis__grad_group *group, const char *call, const void *pass, bool ok); /* the pass is over */
    const ignis__sharing *sharing; /* NULL: every rank updates whole leaves */
    int leaf_count;
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
    bool consumed;     /* its node was used up by a pass, or cleared */
    bool retains_grad; /* of a result: passes write its gradient as that of a leaf */
    uint64_t
        read; /* 1: a node has it as an input, so it cannot become a result: nodes would hold each other for ever */
    ignis_shape shape; /* of data, also when data has been released */
    ignis_dtype dtype;
    ignis__device *device;
    ignis__grad_group *group;   /* of a leaf; NULL: none */
    uint64_t made_in;           /* the serial of the pass whose backward function made it; 0: none */
    struct ignis__tensor *next; /* in a list of dead tensors */
} ignis__tensor;

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
    ignis_status (*vjp_fn)(const ignis_vjp_args *args); /* NULL: it has no second derivative */
    void *user_data;
    int input_count, saved_count, kept_count; /* the last saved arrays are for vjp_fn alone */
    int wanted;             /* during ignis_grad: 1 + the number of the input that its output is; 0: none */
    bool keeps_inputs;      /* these are the inputs */
    bool is_operation;      /* of Ignis: without a vjp_fn it has the request's operation_vjp */
    bool leads;             /* during ignis_grad: an input of that leads here */
    bool drawn;             /* during ignis_tape_dot */
    bool counted;           /* during a pass: its inputs are counted as uses of groups */
    bool running;           /* its backward function runs */
    bool nests;             /* backward_fn runs a pass of its own, which reaches the inputs and `uses` alone */
    bool knows_one;         /* backward_fn takes no grad_output for a gradient of 1, as a pass starts with */
    ignis__tensor **inputs; /* each held */
    ignis__tensor **uses;   /* each held: older tensors that require a gradient, of a checkpoint's function; or NULL */
    int use_count;
    ignis__offload *offload; /* NULL: none */
    ignis__array **saved;    /* each claimed */
    uint64_t
        *versions; /* of saved arrays, when it was recorded; IGNIS__UNWRITTEN for arrays that may be written later */
    void *params;
    bool *needed; /* for each input, whether it required a gradient when this was recorded */
    /* During a pass: the gradient of the output so far, claimed; the output is held meanwhile. */
    ignis__array *grad;
    ignis_tensor recorded_grad; /* the same in a pass that is recorded */
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
struct ignis__tapes_type {
    ignis__mutex lock;
    uint64_t numbers; /* given out so far */
    ignis__tape *first;
};

/*  The start of a scope in the thread's list of tensors. */
typedef struct ignis__scope_mark {
    uint64_t serial;
    int first;
} ignis__scope_mark;

/*  The state of a held tensor on the tape at this moment. The node may be used as ignis__node says. */
typedef struct ignis__tape_state {
    ignis__node *node;
    ignis__tape *tape; /* of the node */
    bool requires_grad, leaf, consumed;
} ignis__tape_state;

/*  A call of a caller's function, for a rule or not (NULL). Scopes and no-grad sections stay as they were;
    messages name the call. */
typedef struct ignis__frame {
    ignis__outer_call outer;
    int no_grad, scope_floor, no_grad_floor;
    bool unbalanced;
} ignis__frame;

/*  Older arrays that the function of a checkpoint reads. They must not change until the function runs again. */
typedef struct ignis__checkpoint_inputs {
    uint64_t newest;     /* the latest array before the function ran, by id */
    ignis_array *arrays; /* there is always room for one more */
    uint64_t *versions;  /* at the first read; in the same block */
    int count, capacity;
    ignis__tensor **uses; /* older tensors that require a gradient, each held */
    int use_count, use_capacity;
} ignis__checkpoint_inputs;

/*  Results of products in the order of a checkpoint's function: the first run fills the list, the second reads it. */
typedef struct ignis__products {
    ignis__array **arrays; /* claimed by the first run, or by the checkpoint's node */
    uint64_t *versions;    /* after the product; in the same block */
    int count, capacity;
    int next; /* the result that the second run needs next */
} ignis__products;

#define IGNIS__MAX_INPUTS 64

/*  A leaf that a backward pass has reached, and the sum of its gradients. */
typedef struct ignis__leaf_state {
    ignis__tensor *leaf;              /* held */
    ignis__array *sum;                /* claimed; NULL: nothing yet, or written already */
    ignis_tensor recorded_sum;        /* the same in a pass that is recorded */
    struct ignis__group_state *group; /* NULL: none */
    struct ignis__leaf_state *next;
} ignis__leaf_state;

/*  A group of leaves of which a pass has reached one. The outermost pass counts its uses, so it knows the
    last one. */
typedef struct ignis__group_state {
    ignis__grad_group *group;
    bool joins;                /* false: its leaves are to this pass like any others */
    bool done;                 /* ready_fn was called */
    int64_t uses;              /* by nodes that the pass has not run yet */
    ignis__leaf_state *leaves; /* leaves that it has reached or will reach */
    struct ignis__group_state *next;
} ignis__group_state;

/*  The desc of ignis_grad, and the vjp_fn of operations of Ignis. Only ignis_grad has that: programs without it link no
    operation for its sake. */
typedef struct ignis__grad_options {
    const ignis_tensor *seeds; /* NULL: none */
    bool create_graph, retain_graph, allow_unused;
    ignis_status (*operation_vjp)(const ignis_vjp_args *args);
} ignis__grad_options;

/*  A request of ignis_grad to its pass: gradients of some tensors, and of no others. */
typedef struct ignis__grad_request {
    int count;
    ignis__tensor **inputs; /* held */
    ignis__array **arrays;  /* their gradients so far, claimed; of inputs that have a node */
    ignis_tensor *recorded; /* the same in a pass that is recorded */
    ignis__tensor **held;   /* these, held until their aliases are made */
    uint64_t first;         /* nodes up to this serial do not lead from an input */
    ignis_status (*operation_vjp)(const ignis_vjp_args *args);
} ignis__grad_request;

/*  One backward pass. A backward function that it calls may run another one inside it. */
typedef struct ignis__backward_pass {
    const char *call;
    ignis__tape *tape;
    struct ignis__backward_pass *outer; /* the pass whose backward function started this one; NULL: none */
    uint64_t serial;
    bool retains;                      /* nodes are kept for another pass */
    bool records;                      /* gradients are tensors, and what computes them is recorded */
    ignis__grad_request *request;      /* NULL: gradients are written to the leaves */
    const ignis__grad_request *within; /* the request, or that of the innermost enclosing pass that has one */
    ignis__node *node;                 /* the node whose backward function is running; NULL: none */
    uint64_t summed_inputs;            /* a bit for each input whose gradient that function has added up itself */
    uint64_t one; /* the handle of the gradient that it starts from if that is an unwritten 1; else 0 */
    bool failed;  /* a pass inside it has failed and may have added only some of its gradients */
    /* the offer of ignis__backward_pass_offer_column_sums: a gradient (NULL after its sums were taken) and
       its column sums, both claimed */
    ignis__array *offered, *sums;
    ignis__group_state *groups;
    ignis__leaf_state *leaves; /* leaves without a group */
    ignis__leaf_state **table; /* a hash table of all by their leaf, of a power of two */
    uint32_t count, capacity;
} ignis__backward_pass;

/*  A new tensor that an elementwise kernel fills. params are the address, ..., the number of elements at `last`. */
typedef struct ignis__creation {
    const char *call;
    ignis__builtin builtin;
    ignis_shape shape;
    const ignis_tensor_desc *desc; /* NULL: all defaults */
    void **params;
    int last;
    ignis__random *random; /* the random numbers that it takes; NULL: none */
    ignis__address *step;  /* the address of their counter of launches */
    int words;             /* random words of an element, of four that a counter has */
    bool integers;         /* they are integers */
} ignis__creation;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* thread.c */
#ifdef _WIN32
IGNIS__PRIVATE ignis__tensor_thread *ignis__this_tensor_thread_get(void);
#else
extern __thread ignis__tensor_thread ignis__this_tensor_thread;
#endif
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__tensor_thread *ignis__tensor_thread_now(void);

/* node.c */
extern ignis__pool ignis__tensors;
extern uint64_t ignis__scope_serials;
extern struct ignis__tapes_type ignis__tapes;
IGNIS__PRIVATE void ignis__tensors_at_exit(void);
IGNIS__PRIVATE void ignis__node_destroy(const char *call, ignis__node *node, ignis__tensor **dead);
IGNIS__PRIVATE void ignis__tensors_destroy_chain(const char *call, ignis__tensor *dead);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__tensor_drop(const char *call, ignis__tensor *tensor);
IGNIS__PRIVATE void ignis__node_consume(const char *call, ignis__node *node);

/* tensor.c */
IGNIS__PRIVATE uint64_t *ignis__scope_tensors(void);
IGNIS__PRIVATE ignis__scope_mark *ignis__scope_marks(void);
IGNIS__PRIVATE bool ignis__scope_grow(const char *call, int which, int *capacity, int count, size_t size);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_tensor ignis__no_tensor(void);
IGNIS__PRIVATE bool ignis__dtype_is_float(ignis_dtype dtype);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__tensor *ignis__tensor_hold(const char *call, ignis_tensor handle);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__tape_state ignis__tensor_tape_state(ignis__tensor *tensor);
IGNIS__PRIVATE bool ignis__tensor_requires_grad(ignis__tensor *tensor);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__tensor_enter(const char *call, ignis__tensor *tensor,
                                                                 ignis__tape_state *tape_state);
IGNIS__PRIVATE ignis__array *ignis__tensor_array(const char *call, ignis__tensor *tensor);
IGNIS__PRIVATE ignis__tensor *ignis__tensor_make(const char *call, ignis__array *array, bool requires_grad);
IGNIS__PRIVATE ignis_tensor ignis__tensor_publish(ignis__tensor *tensor);
IGNIS__PRIVATE ignis_tensor ignis__tensor_adopt(const char *call, ignis_array made, bool requires_grad);
IGNIS__COLD IGNIS__PRIVATE ignis_array ignis__tensor_array_create(const char *call, ignis_shape shape,
                                                                  const ignis_tensor_desc *desc);
IGNIS__PRIVATE ignis_tensor ignis__tensor_over(const char *call, ignis__array *array, bool requires_grad);

/* query.c */
IGNIS__PRIVATE int64_t ignis__tensor_numel(const ignis__tensor *tensor);
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__tensor_read(const char *call, ignis__tensor *tensor, void *out,
                                                           ignis_dtype dtype, int64_t count);
IGNIS__PRIVATE bool ignis__tensor_end_handle(const char *call, ignis__tensor *tensor);
IGNIS__PRIVATE void ignis__tensor_discard(const char *call, ignis_tensor handle);

/* scope.c */
IGNIS__PRIVATE void ignis__frame_begin(ignis__frame *frame, const char *call, const char *rule, int no_grad);
IGNIS__PRIVATE bool ignis__frame_end(const ignis__frame *frame);
IGNIS__COLD IGNIS__PRIVATE int ignis__tensors_list_claims(ignis__string_writer *text, const ignis__array *array);

/* tape.c */
IGNIS__PRIVATE ignis__tape *ignis__tape_now(const char *call);
IGNIS__PRIVATE void ignis__tensor_hold_again(ignis__tensor *held);
IGNIS__PRIVATE bool ignis__recording(void);
IGNIS__PRIVATE ignis__array *ignis__array_keep(const char *call, ignis__array *array);
IGNIS__COLD IGNIS__PRIVATE void ignis__node_discard(const char *call, ignis__node *node);
IGNIS__PRIVATE ignis__node *ignis__node_make(const char *call, int count, ignis__tensor *const *inputs,
                                             const ignis__tape_state *tape_states, const ignis_rule *rule,
                                             int kept_count);
IGNIS__PRIVATE bool ignis__node_save(ignis__node *node, ignis__array *claimed);
IGNIS__PRIVATE void ignis__tensor_result(ignis__tensor *output, ignis__node *node);
IGNIS__PRIVATE void ignis__tape_append(ignis__node *node);
IGNIS__PRIVATE ignis__node *ignis__tape_add(const char *call, ignis__tensor *output, int count,
                                            ignis__tensor *const *inputs, const ignis_rule *rule);
IGNIS__PRIVATE bool ignis__checkpoint_inputs_add(const char *call, ignis__checkpoint_inputs *reads,
                                                 const ignis__array *array);
IGNIS__PRIVATE bool ignis__checkpoint_inputs_read(const char *call, const ignis__array *array);
IGNIS__PRIVATE bool ignis__checkpoint_inputs_use(const char *call, ignis__tensor *tensor, const ignis__array *array);
IGNIS__COLD IGNIS__PRIVATE int ignis__tape_list_claims(ignis__string_writer *text, const ignis__array *array);

/* gradient.c */
IGNIS__PRIVATE void ignis__array_set_shape(ignis__array *array, const ignis_shape *shape);
IGNIS__PRIVATE bool ignis__array_is_private(ignis__array *array);
IGNIS__PRIVATE bool ignis__gradient_add(const char *call, ignis__array **sum, ignis__array *gradient);
IGNIS__PRIVATE bool ignis__gradient_separate(const char *call, ignis__array **sum);
IGNIS__PRIVATE void ignis__leaf_enter(ignis__tensor *leaf);
IGNIS__PRIVATE void ignis__leaf_leave(ignis__tensor *leaf);
IGNIS__PRIVATE bool ignis__gradient_wait(const char *call, ignis__array *grad);
IGNIS__PRIVATE void ignis__gradient_install(const char *call, ignis__tensor *leaf, ignis__array *grad);
IGNIS__PRIVATE bool ignis__leaves_write(const char *call, ignis__leaf_state *list);

/* backward_state.c */
extern uint64_t ignis__grad_groups;
extern uint64_t ignis__backward_pass_serials;
IGNIS__PRIVATE ignis__leaf_state **ignis__backward_pass_find_leaf(const ignis__backward_pass *pass,
                                                                  const ignis__tensor *leaf);
IGNIS__PRIVATE ignis__leaf_state *ignis__backward_pass_reach_leaf(ignis__backward_pass *pass, ignis__tensor *leaf);
IGNIS__PRIVATE void ignis__leaf_states_free(const char *call, ignis__leaf_state **list);
IGNIS__PRIVATE ignis__node *ignis__node_before(ignis__tape *tape, const ignis__node *node, uint64_t end);
IGNIS__PRIVATE bool ignis__groups_count(ignis__backward_pass *pass, ignis__node *root);
IGNIS__PRIVATE bool ignis__groups_pass(ignis__backward_pass *pass, ignis__node *node, bool ok);
IGNIS__PRIVATE bool ignis__groups_end(ignis__backward_pass *pass, bool ok);

/* backward_pass.c */
IGNIS__PRIVATE ignis__array *ignis__backward_pass_input_sum(int input);
IGNIS__PRIVATE void ignis__backward_pass_mark_summed(int input);
IGNIS__PRIVATE const ignis__node *ignis__backward_pass_find_maker(ignis__tensor *tensor);
IGNIS__PRIVATE void ignis__backward_pass_offer_column_sums(ignis_array gradient, ignis_array sums);
IGNIS__PRIVATE ignis_array ignis__backward_pass_take_column_sums(const ignis__array *gradient, int64_t n);
IGNIS__PRIVATE bool ignis__backward_pass_retains(void);
IGNIS__PRIVATE ignis__array *ignis__gradient_hold(const char *call, const ignis__tensor *tensor, ignis_array handle,
                                                  const char *name);
IGNIS__PRIVATE bool ignis__backward_pass_accepts(const ignis__backward_pass *pass, const ignis__tensor *tensor,
                                                 const ignis__tape_state *tape_state);
IGNIS__PRIVATE bool ignis__backward_pass_add_to(ignis__backward_pass *pass, ignis__tensor *tensor,
                                                ignis__array *gradient, bool whole);
IGNIS__PRIVATE ignis_status ignis__backward_pass_status(const ignis__backward_pass *pass, const ignis__node *node,
                                                        ignis_status status);
IGNIS__PRIVATE bool ignis__backward_pass_run(ignis__backward_pass *pass, ignis__node *root, bool ok);
IGNIS__PRIVATE void ignis__backward_pass_begin(ignis__backward_pass *pass, const char *call);
IGNIS__PRIVATE bool ignis__backward_pass_end(ignis__backward_pass *pass, bool ok);
IGNIS__PRIVATE ignis__array *ignis__backward_start(const char *call, const ignis__tensor *tensor,
                                                   ignis_array grad_output, const char *name, bool known);

/* zero_grad.c */
IGNIS__PRIVATE ignis_status ignis__zero_grad(const char *call, ignis__tensor *tensor);
IGNIS__PRIVATE bool ignis__gradient_drop(const char *call, ignis__tensor *tensor);
IGNIS__COLD IGNIS__PRIVATE void ignis__tape_clear(const char *call, ignis__tape *tape);

/* recorded_gradient.c */
IGNIS__PRIVATE ignis_tensor ignis__recorded_alias(const char *call, ignis__tensor *of, ignis__array *array,
                                                  const ignis_shape *shape);
IGNIS__PRIVATE bool ignis__recorded_add_to(ignis__backward_pass *pass, ignis__tensor *tensor, ignis_tensor gradient);
IGNIS__PRIVATE bool ignis__recorded_run_node(ignis__backward_pass *pass, ignis__node *node, const bool *needed);
IGNIS__PRIVATE ignis_status ignis__recorded_splice(const char *call, ignis_tensor tensor, ignis_tensor grad_output);

/* grad.c */
IGNIS__PRIVATE ignis_status ignis__grad_call(const char *call, const ignis_tensor *outputs, int output_count,
                                             const ignis_tensor *inputs, int input_count, ignis_tensor *grads,
                                             const ignis__grad_options *options);
IGNIS__PRIVATE bool ignis__grad_leads(const ignis__backward_pass *pass, ignis__tensor *tensor);

/* offload.c */
IGNIS__COLD IGNIS__PRIVATE ignis__offload *ignis__offload_begin(const char *call, ignis__products *products,
                                                                int64_t least);
IGNIS__COLD IGNIS__PRIVATE bool ignis__offload_use(const char *call, ignis__offload *offload,
                                                   ignis__products *products);
IGNIS__COLD IGNIS__PRIVATE bool ignis__offload_end_use(const char *call, ignis__offload *offload);
IGNIS__COLD IGNIS__PRIVATE void ignis__offload_close(const char *call, ignis__offload *offload);
IGNIS__PRIVATE void ignis__lanes_leave(const ignis__tape *tape);
IGNIS__COLD IGNIS__PRIVATE void ignis__lanes_close(const char *call);

/* checkpoint.c */
IGNIS__PRIVATE bool ignis__products_add(const char *call, ignis__products *products, ignis__array *claimed);
IGNIS__PRIVATE ignis__array *ignis__products_next(const char *call, ignis__products *products, const ignis_shape *shape,
                                                  ignis_dtype dtype);
IGNIS__PRIVATE ignis_tensor ignis__tensor_fn_call(const char *call, int no_grad, ignis_tensor_fn fn,
                                                  const ignis_tensor *inputs, int count, void *user_data);

/* shutdown.c */
IGNIS__PRIVATE void ignis__tensors_close(const char *call);

/* creation.c */
IGNIS__COLD IGNIS__PRIVATE ignis_tensor ignis__tensor_create_by_kernel(const ignis__creation *creation);
