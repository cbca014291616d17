/*  >>tensor.thread - what the tensor rooms keep for each thread

    Scopes, no-grad depth, the running backward pass and checkpoint. State of an older ignis_setup is
    forgotten at first use.
    Uses: the room base. Nothing is locked: it belongs to the thread. */

#include "room.h"

IGNIS__LOCAL(ignis__tensor_thread, ignis__this_tensor_thread, IGNIS__LOCAL_TENSORS)

IGNIS__ONE_COPY IGNIS__PRIVATE ignis__tensor_thread *ignis__tensor_thread_now(void)
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
        thread->keeps = thread->replays = NULL;
    }
    return thread;
}
