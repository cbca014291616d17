/*  models/chat/eval_statement.c - execution of statements: output, if, for, set, macro, call, filter, with

    Each body with a scope of its own restores the outer scope when it ends.
    May use: eval_expression.c, value.c. Locks: none. */

#include "room.h"

IGNIS__PRIVATE ignis__chat_value ignis__chat_lookup(ignis__chat *chat, ignis__chat_value name)
{
    ignis__chat_scope *scope;
    int64_t at;
    int row;
    for (scope = chat->scope; scope && ignis__chat_work(chat, 1); scope = scope->outer)
        if ((at = ignis__chat_find(chat, &scope->names, name)) >= 0)
            return scope->names.item[at + 1];
    row = ignis__chat_row_find(chat, 'g', name);
    return row >= 0 ? ignis__chat_make(IGNIS__CHAT_FUNCTION, row)
                    : ignis__chat_undefined(ignis__chat_make(IGNIS__CHAT_ABSENT, 0), name);
}

static void ignis__chat_assign(ignis__chat *chat, const ignis__chat_node *target, ignis__chat_value value)
{
    const ignis__chat_node *part;
    ignis__chat_items items;
    int64_t i, wanted = 0;
    if (chat->fault)
        return;
    if (target->op == IGNIS__CHAT_NAME) {
        ignis__chat_put(chat, &chat->scope->names, target->value, value);
    } else if (target->op == IGNIS__CHAT_ATTRIBUTE) {
        ignis__chat_value object = ignis__chat_lookup(chat, target->a->value);
        chat->here = target->at;
        if (object.kind != IGNIS__CHAT_NAMESPACE)
            ignis__chat_fail_kind(chat, "attributes are set of namespaces", object);
        else
            ignis__chat_put(chat, object.u.items, target->value, value);
    } else {
        for (part = target->list; part; part = part->next)
            wanted++;
        if (!ignis__chat_iterate(chat, value, &items))
            return;
        if (items.count - items.at != wanted)
            ignis__chat_fail(chat, "%lld names for %lld values", (long long)wanted,
                             (long long)(items.count - items.at));
        for (part = target->list, i = items.at; part && !chat->fault; part = part->next)
            ignis__chat_assign(chat, part, items.item[i++]);
    }
}

IGNIS__PRIVATE ignis__chat_scope *ignis__chat_enter(ignis__chat *chat, ignis__chat_scope *outer)
{
    ignis__chat_scope *before = chat->scope, *scope = (ignis__chat_scope *)ignis__chat_alloc(chat, sizeof *scope);
    if (scope) {
        scope->outer = outer;
        chat->scope = scope;
    }
    return before;
}

IGNIS__PRIVATE int ignis__chat_run(ignis__chat *chat, const ignis__chat_node *body);
IGNIS__PRIVATE ignis__chat_value ignis__chat_eval_call(ignis__chat *chat, const ignis__chat_node *node,
                                                       const ignis__chat_value *caller);

/*  Runs a body in a new scope and returns its output as a string. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_capture(ignis__chat *chat, const ignis__chat_node *body)
{
    ignis__chat_writer out = IGNIS__ZERO, *before = chat->out;
    chat->out = &out;
    ignis__chat_run(chat, body);
    chat->out = before;
    return ignis__chat_writer_value(&out);
}

/*  Finds the next item of a loop that passes the loop's condition. */
IGNIS__PRIVATE bool ignis__chat_peek(ignis__chat *chat, ignis__chat_loop *loop)
{
    while (!loop->peeked && loop->next < loop->end && ignis__chat_work(chat, 1)) {
        loop->after = loop->items->item[loop->next++];
        loop->peeked = true;
        if (loop->filtered) {
            ignis__chat_scope *before = ignis__chat_enter(chat, loop->outer);
            ignis__chat_assign(chat, loop->node->a, loop->after);
            loop->peeked = ignis__chat_true(ignis__chat_eval(chat, loop->node->c));
            chat->scope = before;
        }
    }
    return loop->peeked && !chat->fault;
}

static int ignis__chat_run_for(ignis__chat *chat, const ignis__chat_node *node)
{
    ignis__chat_loop *loop = (ignis__chat_loop *)ignis__chat_alloc(chat, sizeof *loop);
    ignis__chat_value value = ignis__chat_eval(chat, node->b), it = ignis__chat_make(IGNIS__CHAT_LOOP, 0),
                      items = ignis__chat_new(chat, IGNIS__CHAT_LIST);
    ignis__chat_scope *before = chat->scope;
    bool none = true;
    int jump = 0;
    chat->here = node->at;
    if (chat->fault || !ignis__chat_iterate(chat, value, items.u.items))
        return 0;
    loop->node = node;
    loop->outer = before;
    loop->items = items.u.items;
    loop->next = items.u.items->at;
    loop->end = items.u.items->count;
    loop->base = -loop->next;
    loop->filtered = node->c != NULL;
    it.u.loop = loop;
    ignis__chat_enter(chat, before);
    while (jump != IGNIS__CHAT_BREAK && ignis__chat_peek(chat, loop)) {
        loop->peeked = false;
        loop->before = loop->now;
        loop->now = loop->after;
        loop->index++;
        chat->scope->names.count = 0;
        ignis__chat_assign(chat, node->a, loop->now);
        ignis__chat_put(chat, &chat->scope->names, ignis__chat_words("loop"), it);
        jump = ignis__chat_run(chat, node->list);
        none = none && jump; /* as in jinja2: else runs if no iteration completed */
    }
    if (none && node->list->next) {
        ignis__chat_enter(chat, before);
        ignis__chat_run(chat, node->list->next);
    }
    chat->scope = before;
    return 0;
}

/*  Makes a macro. It sees the variables of the enclosing scopes. */
static ignis__chat_value ignis__chat_make_macro(ignis__chat *chat, const ignis__chat_node *node)
{
    ignis__chat_value value = ignis__chat_make(IGNIS__CHAT_MACRO, 0);
    value.u.macro = (ignis__chat_macro *)ignis__chat_alloc(chat, sizeof *value.u.macro);
    if (!value.u.macro)
        return ignis__chat_make(IGNIS__CHAT_UNDEFINED, 0);
    value.u.macro->node = node;
    value.u.macro->scope = chat->scope;
    return value;
}

static int ignis__chat_run_statement(ignis__chat *chat, const ignis__chat_node *node)
{
    const ignis__chat_node *part;
    ignis__chat_scope *before = chat->scope, *inner;
    ignis__chat_value value;
    int jump = 0;
    switch (node->op) {
    case IGNIS__CHAT_TEXT: ignis__chat_write_string(chat, chat->out, node->value); break;
    case IGNIS__CHAT_PRINT:
        value = ignis__chat_eval(chat, node->a);
        chat->here = node->at;
        if (node->sign && value.kind != IGNIS__CHAT_STRING)
            ignis__chat_fail_kind(chat, "the filters of a block write text", value);
        if (!chat->fault)
            ignis__chat_write_value(chat, chat->out, value, NULL, false, 0);
        break;
    case IGNIS__CHAT_IF:
        for (part = node->list; part && !chat->fault; part = part->next)
            if (!part->a || ignis__chat_true(ignis__chat_eval(chat, part->a)))
                return chat->fault ? 0 : ignis__chat_run(chat, part->b);
        break;
    case IGNIS__CHAT_FOR: return ignis__chat_run_for(chat, node);
    case IGNIS__CHAT_SET:
        value = ignis__chat_eval(chat, node->b);
        chat->here = node->at;
        ignis__chat_assign(chat, node->a, value);
        break;
    case IGNIS__CHAT_SET_BLOCK:
        ignis__chat_enter(chat, before);
        value = ignis__chat_capture(chat, node->b);
        chat->scope = before;
        chat->here = node->at;
        ignis__chat_assign(chat, node->a, value);
        break;
    case IGNIS__CHAT_MACRO_OF:
        ignis__chat_put(chat, &before->names, node->value, ignis__chat_make_macro(chat, node));
        break;
    case IGNIS__CHAT_CALL_BLOCK:
        value = ignis__chat_make_macro(chat, node->b);
        value = ignis__chat_eval_call(chat, node->a, &value);
        chat->here = node->at;
        if (value.kind != IGNIS__CHAT_STRING)
            ignis__chat_fail_kind(chat, "what a block calls gives text", value);
        if (!chat->fault)
            ignis__chat_write_string(chat, chat->out, value);
        break;
    case IGNIS__CHAT_BLOCK:
        ignis__chat_enter(chat, before);
        inner = chat->scope;
        for (part = node->list; part && !chat->fault;
             part = part->next) { /* of with: values are evaluated outside of the scope and set inside */
            chat->scope = before;
            value = ignis__chat_eval(chat, part->b);
            chat->scope = inner;
            ignis__chat_assign(chat, part->a, value);
        }
        jump = ignis__chat_run(chat, node->b);
        chat->scope = before;
        break;
    default: return node->op;
    }
    return jump;
}

IGNIS__PRIVATE bool ignis__chat_enter_node(ignis__chat *chat, size_t at)
{
    chat->here = at;
    if (chat->fault || !ignis__chat_work(chat, 1))
        return false;
    if (chat->depth >= IGNIS__CHAT_DEPTH) {
        ignis__chat_fault(chat, IGNIS_DIAG_CHAT_LIMIT, at, "the template is nested deeper than %d", IGNIS__CHAT_DEPTH);
        return false;
    }
    chat->depth++;
    return true;
}

/*  Runs the statements of a body. Returns the statement that ended it early (break or continue), or 0. */
IGNIS__PRIVATE int ignis__chat_run(ignis__chat *chat, const ignis__chat_node *body)
{
    const ignis__chat_node *node;
    int jump = 0;
    if (!ignis__chat_enter_node(chat, body->at))
        return 0;
    for (node = body->list; node && !jump && ignis__chat_work(chat, 1); node = node->next)
        jump = ignis__chat_run_statement(chat, node);
    chat->depth--;
    return chat->fault ? 0 : jump;
}
