/*  >>tensor.tape_dot - the tape as a Graphviz graph: ignis_tape_dot

    Writes the nodes that lead to a tensor, with shapes and the bytes that each keeps. Uses: tape,
    backward_state. Belongs to the thread that recorded the tape. */

#include "room.h"

IGNIS__COLD static void ignis__dot_tensor(ignis__string_writer *text, const ignis__tensor *tensor)
{
    ignis__string_add(text, "%s %s", ignis__shape_write(&tensor->shape).text, ignis__dtypes[tensor->dtype].name);
}

/*  Draws a node, and marks the makers of its inputs. */
static void ignis__dot_node(ignis__string_writer *text, const ignis__node *node)
{
    int64_t bytes = 0;
    int i, k;
    for (i = 0; i < node->saved_count; i++) {
        for (k = 0; k < i && node->saved[k]->storage != node->saved[i]->storage; k++)
            ;
        bytes += k == i || i < node->saved_count - node->kept_count ? ignis__array_bytes(node->saved[i]) : 0;
    }
    ignis__string_add(text, "  n%p [shape=box label=\"%s\\n", (const void *)node, node->name);
    ignis__dot_tensor(text, node->output);
    ignis__string_add(text, "\\n%lld bytes kept\"];\n", (long long)bytes);
    for (i = 0; i < node->input_count; i++) {
        ignis__tensor *input = node->inputs[i];
        ignis__tape_state tape_state = ignis__tensor_tape_state(input);
        if (tape_state.node && tape_state.tape == node->tape) {
            tape_state.node->drawn = true;
            ignis__string_add(text, "  n%p -> n%p;\n", (const void *)tape_state.node, (const void *)node);
            continue;
        }
        ignis__string_add(text, "  t%p [label=\"%s\\n", (const void *)input, node->needed[i] ? "leaf" : "constant");
        ignis__dot_tensor(text, input);
        ignis__string_add(text, "\"];\n  t%p -> n%p;\n", (const void *)input, (const void *)node);
    }
}

IGNIS__COLD IGNIS_API int64_t ignis_tape_dot(ignis_tensor handle, char *out, size_t capacity)
{
    static const char call[] = "ignis_tape_dot";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis__tape_state tape_state;
    ignis__node *node, *before;
    ignis__string_writer text;
    char none[1];
    bool ok;
    if (!tensor)
        return -1;
    tape_state = ignis__tensor_tape_state(tensor);
    ok = !capacity || ignis__check_not_null(call, "out", out);
    if (ok && tape_state.node && tape_state.tape != ignis__tensor_thread_now()->tape)
        ok = ignis__fail_false(IGNIS_DIAG_TAPE_OF_OTHER, call,
                               "the tensor was recorded by another thread, whose tape it belongs to");
    if (!ok) {
        ignis__tensor_drop(call, tensor);
        return -1;
    }
    ignis__string_begin(&text, out ? out : none, capacity);
    ignis__string_add(&text, "digraph tape {\n");
    node = tape_state.node;
    if (node) {
        node->drawn = true;
        ignis__tensor_hold_again(tensor);
    }
    /* The latest first: users of a node come before it. */
    for (; node; node = before) {
        if (node->drawn)
            ignis__dot_node(&text, node);
        node->drawn = false;
        before = ignis__node_before(node->tape, node, 0);
        ignis__tensor_drop(call, node->output);
    }
    ignis__string_add(&text, "}\n");
    ignis__tensor_drop(call, tensor);
    return (int64_t)text.length;
}
