/*  >>tensor.scope - scopes of a thread, and calls of functions of the caller's

    A scope releases the tensors that the thread made inside it. A frame checks that a called function ended
    what it began.
    Uses: thread, tensor. All state belongs to the thread, so nothing is locked. */

#include "room.h"

IGNIS_API ignis_scope ignis_scope_begin(void)
{
    static const char call[] = "ignis_scope_begin";
    ignis_scope scope = IGNIS__ZERO;
    ignis__tensor_thread *thread;
    if (!ignis__enter(call))
        return scope;
    thread = ignis__tensor_thread_now();
    if (!ignis__scope_grow(call, 1, &thread->scope_capacity, thread->scope_count, sizeof(ignis__scope_mark)))
        return scope;
    scope.id = ignis__atomic_add(&ignis__scope_serials, 1);
    ignis__scope_marks()[thread->scope_count].serial = scope.id;
    ignis__scope_marks()[thread->scope_count++].first = thread->tensor_count;
    return scope;
}

/*  Ends the innermost scope; `keep` moves to the enclosing one. */
static void ignis__scope_pop(const char *call, uint64_t keep)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    int first = ignis__scope_marks()[--thread->scope_count].first;
    ignis__tensor *tensor;
    bool kept = false;
    while (thread->tensor_count > first) {
        uint64_t handle = ignis__scope_tensors()[--thread->tensor_count];
        if (handle == keep) {
            kept = true;
            continue;
        }
        tensor = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, handle);
        if (!tensor)
            continue;
        ignis__tensor_end_handle(call, tensor);
        ignis__tensor_drop(call, tensor);
    }
    if (kept && thread->scope_count) /* there is room: it was in the list before */
        ignis__scope_tensors()[thread->tensor_count++] = keep;
}

static bool ignis__scope_end(const char *call, ignis_scope scope, uint64_t keep)
{
    ignis__tensor_thread *thread;
    if (!ignis__enter(call))
        return false;
    thread = ignis__tensor_thread_now();
    if (!thread->scope_count || ignis__scope_marks()[thread->scope_count - 1].serial != scope.id)
        return ignis__fail_false(IGNIS_DIAG_SCOPE_ORDER, call,
                                 "this is not the innermost open scope of this thread, which has %d open",
                                 thread->scope_count);
    if (thread->scope_count == thread->scope_floor) {
        thread->unbalanced = true;
        return ignis__fail_false(IGNIS_DIAG_SCOPE_ORDER, call,
                                 "the scope was begun before the function that is running now, which cannot end it");
    }
    ignis__scope_pop(call, keep);
    return true;
}

IGNIS_API ignis_status ignis_scope_end(ignis_scope scope)
{
    const uint64_t failures = ignis__failures();
    return ignis__ended(failures, ignis__scope_end("ignis_scope_end", scope, 0));
}

IGNIS_API ignis_tensor ignis_scope_return(ignis_scope scope, ignis_tensor tensor)
{
    (void)ignis__scope_end("ignis_scope_return", scope, tensor.id);
    return tensor;
}

IGNIS__INLINE IGNIS__PRIVATE void ignis__frame_begin(ignis__frame *frame, const char *call, const char *rule,
                                                     int no_grad)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__outer_call_begin(&frame->outer, call, rule);
    frame->no_grad = thread->no_grad;
    frame->scope_floor = thread->scope_floor;
    frame->no_grad_floor = thread->no_grad_floor;
    frame->unbalanced = thread->unbalanced;
    thread->no_grad = thread->no_grad_floor = no_grad;
    thread->scope_floor = thread->scope_count;
    thread->unbalanced = false;
}

/*  Ends a frame. False, and reported, if the function began or ended something without its counterpart. */
IGNIS__PRIVATE bool ignis__frame_end(const ignis__frame *frame)
{
    const char *call = frame->outer.call, *what = frame->outer.rule ? frame->outer.rule : call;
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    int scopes = thread->scope_count - thread->scope_floor, sections = thread->no_grad - thread->no_grad_floor;
    bool balanced =
        !thread->unbalanced && scopes == 0 && sections == 0; /* whatever it ended too often was reported then */
    ignis__outer_call_end(&frame->outer);
    if (scopes || sections)
        ignis__fail(IGNIS_DIAG_SCOPE_ORDER, call,
                    "the function of '%s' has returned with %d scopes and %d no-grad sections that it did not end",
                    what, scopes, sections);
    while (thread->scope_count > thread->scope_floor)
        ignis__scope_pop(call, 0);
    thread->no_grad = frame->no_grad;
    thread->scope_floor = frame->scope_floor;
    thread->no_grad_floor = frame->no_grad_floor;
    thread->unbalanced = frame->unbalanced;
    return balanced;
}

/*  Adds the tensors whose data or gradient an array is to a text. Returns their number. */
IGNIS__COLD IGNIS__PRIVATE int ignis__tensors_list_claims(ignis__string_writer *text, const ignis__array *array)
{
    ignis__tensor *tensor;
    uint64_t index = 0;
    int count = 0;
    while ((tensor = (ignis__tensor *)ignis__pool_next(&ignis__tensors, &index)) != NULL) {
        bool is_data, is_grad;
        ignis__mutex_lock(&tensor->slot.lock);
        is_data = tensor->data == array;
        is_grad = tensor->grad == array;
        ignis__mutex_unlock(&tensor->slot.lock);
        if (is_data || is_grad)
            ignis__string_add(text, ", it is the %s of a tensor %s", is_data ? "data" : "gradient",
                              ignis__shape_write(&tensor->shape).text);
        count += is_data + is_grad;
        ignis__tensor_drop("ignis_array_free", tensor);
    }
    return count;
}
