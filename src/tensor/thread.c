/*  >>tensor.thread - what the tensor rooms keep for each thread

    Scopes, no-grad depth, the running backward pass and checkpoint. State of an older ignis_setup is
    forgotten at first use.
    Uses: the room base. Nothing is locked: it belongs to the thread. */

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
} ignis__tensor_thread;

IGNIS__LOCAL(ignis__tensor_thread, ignis__this_tensor_thread, IGNIS__LOCAL_TENSORS)
#ifdef _WIN32
#define ignis__this_tensor_thread (*ignis__this_tensor_thread_get())
#endif

IGNIS__ONE_COPY static ignis__tensor_thread *ignis__tensor_thread_now(void)
{
    ignis__tensor_thread *thread = &ignis__this_tensor_thread;
    if (thread->setup != ignis__global.setups) {
        thread->setup = ignis__global.setups;
        thread->tensor_count = thread->scope_count = thread->no_grad = 0;
        thread->tensor_capacity = thread->scope_capacity = 0; /* ignis_shutdown has freed them */
        thread->tape = NULL;
        thread->pass = NULL;
        thread->pass_serial = 0;
        thread->scope_floor = thread->no_grad_floor = 0;
        thread->unbalanced = thread->saw_trainable = false;
        thread->checkpoint_inputs = NULL;
    }
    return thread;
}
