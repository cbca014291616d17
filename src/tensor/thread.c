/* ===============================================================================================================
   >>random - where random numbers begin, and what tensors keep for a thread.
   =============================================================================================================== */

/*  What the tensor sections keep of a thread. */
typedef struct ignis__tensor_thread {
    uint64_t setup;                    /* the setup that it belongs to: an older one is forgotten */
    int tensor_count, tensor_capacity; /* handles made inside scopes, those of the innermost scope last */
    int scope_count, scope_capacity;
    int no_grad;
    struct ignis__tape *tape;
    struct ignis__backward_pass *pass; /* the innermost backward; null: none */
    uint64_t pass_serial;              /* its serial, or 0 */
    int scope_floor,
        no_grad_floor;  /* what was open before a function of the caller's was called, which may not end it */
    bool unbalanced;    /* the function has tried to */
    bool saw_trainable; /* an operation had an input that requires a gradient, recorded or not */
    struct ignis__checkpoint_inputs
        *checkpoint_inputs; /* of the checkpoint whose function runs for the first time; null: none */
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
