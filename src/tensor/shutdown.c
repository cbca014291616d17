/*  >>tensor.shutdown - ends every tensor and tape at ignis_shutdown

    Reports tensors that are still alive. Called once, when no other thread uses Ignis.
    Uses: tensor, tape, scope, offload. */

#include "room.h"

/*  Ends every tensor; reports those that are alive, except on the tape. */
IGNIS__PRIVATE void ignis__tensors_close(const char *call)
{
    ignis__tensor *tensor;
    uint64_t index = 0;
    ignis__tape *tapes, *tape;
    ignis__mutex_lock(&ignis__tapes.lock);
    tapes = ignis__tapes.first; /* a thread that ends meanwhile does not find its own */
    ignis__tapes.first = NULL;
    for (tape = tapes; tape; tape = tape->next)
        tape->ended = false;
    ignis__mutex_unlock(&ignis__tapes.lock);
    for (tape = tapes; tape; tape = tape->next)
        ignis__tape_clear(call, tape);
    while ((tensor = (ignis__tensor *)ignis__pool_next(&ignis__tensors, &index)) != NULL) {
        if (tensor->data)
            ignis__array_leaked(call, tensor->data, "tensor over ");
        ignis__tensor_end_handle(call, tensor);
        ignis__tensor_drop(call, tensor);
    }
    ignis__lanes_close(call);
    while (tapes) {
        tape = tapes;
        tapes = tape->next;
        ignis__free(tape);
    }
}
