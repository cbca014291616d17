/*  models/chat/eval_statement.c - execution of statements: output, if, for, set, macro, call, filter, with

    Each body with a scope of its own restores the outer scope when it ends.
    May use: eval_expression.c, value.c. Locks: none. */

#include "room.h"

IGNIS__PRIVATE ignis__chat_value ignis__chat_lookup(ignis__chat *c, ignis__chat_value name)
{
    ignis__chat_scope *scope;
    int64_t at;
    int row;
    for (scope = c->scope; scope && ignis__chat_work(c, 1); scope = scope->outer)
        if ((at = ignis__chat_find(c, &scope->names, name)) >= 0)
            return scope->names.item[at + 1];
    row = ignis__chat_row_find(c, 'g', name);
    return row >= 0 ? ignis__chat_make(IGNIS__CHAT_FUNCTION, row)
                    : ignis__chat_undefined(ignis__chat_make(IGNIS__CHAT_ABSENT, 0), name);
}

static void ignis__chat_assign(ignis__chat *c, const ignis__chat_node *target, ignis__chat_value value)
{
    const ignis__chat_node *part;
    ignis__chat_items items;
    int64_t i, wanted = 0;
    if (c->fault)
        return;
    if (target->op == IGNIS__CHAT_NAME) {
        ignis__chat_put(c, &c->scope->names, target->value, value);
    } else if (target->op == IGNIS__CHAT_ATTRIBUTE) {
        ignis__chat_value object = ignis__chat_lookup(c, target->a->value);
        c->here = target->at;
        if (object.kind != IGNIS__CHAT_NAMESPACE)
            ignis__chat_fail_kind(c, "attributes are set of namespaces", object);
        else
            ignis__chat_put(c, object.u.items, target->value, value);
    } else {
        for (part = target->list; part; part = part->next)
            wanted++;
        if (!ignis__chat_each(c, value, &items))
            return;
        if (items.count - items.at != wanted)
            ignis__chat_fail(c, "%lld names for %lld values", (long long)wanted, (long long)(items.count - items.at));
        for (part = target->list, i = items.at; part && !c->fault; part = part->next)
            ignis__chat_assign(c, part, items.item[i++]);
    }
}

IGNIS__PRIVATE ignis__chat_scope *ignis__chat_enter(ignis__chat *c, ignis__chat_scope *outer)
{
    ignis__chat_scope *before = c->scope, *scope = (ignis__chat_scope *)ignis__chat_alloc(c, sizeof *scope);
    if (scope) {
        scope->outer = outer;
        c->scope = scope;
    }
    return before;
}

IGNIS__PRIVATE int ignis__chat_run(ignis__chat *c, const ignis__chat_node *body);
IGNIS__PRIVATE ignis__chat_value ignis__chat_eval_call(ignis__chat *c, const ignis__chat_node *node,
                                                       const ignis__chat_value *caller);

/*  Runs a body in a new scope and returns its output as a string. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_capture(ignis__chat *c, const ignis__chat_node *body)
{
    ignis__chat_writer out = IGNIS__ZERO, *before = c->out;
    c->out = &out;
    ignis__chat_run(c, body);
    c->out = before;
    return ignis__chat_written(&out);
}

/*  Finds the next item of a loop that passes the loop's condition. */
IGNIS__PRIVATE bool ignis__chat_peek(ignis__chat *c, ignis__chat_loop *loop)
{
    while (!loop->peeked && loop->next < loop->end && ignis__chat_work(c, 1)) {
        loop->after = loop->items->item[loop->next++];
        loop->peeked = true;
        if (loop->filtered) {
            ignis__chat_scope *before = ignis__chat_enter(c, loop->outer);
            ignis__chat_assign(c, loop->node->a, loop->after);
            loop->peeked = ignis__chat_true(ignis__chat_eval(c, loop->node->c));
            c->scope = before;
        }
    }
    return loop->peeked && !c->fault;
}

static int ignis__chat_run_for(ignis__chat *c, const ignis__chat_node *node)
{
    ignis__chat_loop *loop = (ignis__chat_loop *)ignis__chat_alloc(c, sizeof *loop);
    ignis__chat_value value = ignis__chat_eval(c, node->b), it = ignis__chat_make(IGNIS__CHAT_LOOP, 0),
                      items = ignis__chat_new(c, IGNIS__CHAT_LIST);
    ignis__chat_scope *before = c->scope;
    bool none = true;
    int jump = 0;
    c->here = node->at;
    if (c->fault || !ignis__chat_each(c, value, items.u.items))
        return 0;
    loop->node = node;
    loop->outer = before;
    loop->items = items.u.items;
    loop->next = items.u.items->at;
    loop->end = items.u.items->count;
    loop->base = -loop->next;
    loop->filtered = node->c != NULL;
    it.u.loop = loop;
    ignis__chat_enter(c, before);
    while (jump != IGNIS__CHAT_BREAK && ignis__chat_peek(c, loop)) {
        loop->peeked = false;
        loop->before = loop->now;
        loop->now = loop->after;
        loop->index++;
        c->scope->names.count = 0;
        ignis__chat_assign(c, node->a, loop->now);
        ignis__chat_put(c, &c->scope->names, ignis__chat_words("loop"), it);
        jump = ignis__chat_run(c, node->list);
        none = none && jump; /* as in jinja2: else runs if no iteration completed */
    }
    if (none && node->list->next) {
        ignis__chat_enter(c, before);
        ignis__chat_run(c, node->list->next);
    }
    c->scope = before;
    return 0;
}

/*  Makes a macro. It sees the variables of the enclosing scopes. */
static ignis__chat_value ignis__chat_macro_of(ignis__chat *c, const ignis__chat_node *node)
{
    ignis__chat_value value = ignis__chat_make(IGNIS__CHAT_MACRO, 0);
    value.u.macro = (ignis__chat_macro *)ignis__chat_alloc(c, sizeof *value.u.macro);
    if (!value.u.macro)
        return ignis__chat_make(IGNIS__CHAT_UNDEFINED, 0);
    value.u.macro->node = node;
    value.u.macro->scope = c->scope;
    return value;
}

static int ignis__chat_run_one(ignis__chat *c, const ignis__chat_node *node)
{
    const ignis__chat_node *part;
    ignis__chat_scope *before = c->scope, *inner;
    ignis__chat_value value;
    int jump = 0;
    switch (node->op) {
    case IGNIS__CHAT_TEXT: ignis__chat_write_string(c, c->out, node->value); break;
    case IGNIS__CHAT_PRINT:
        value = ignis__chat_eval(c, node->a);
        c->here = node->at;
        if (node->sign && value.kind != IGNIS__CHAT_STRING)
            ignis__chat_fail_kind(c, "the filters of a block write text", value);
        if (!c->fault)
            ignis__chat_write_value(c, c->out, value, NULL, false, 0);
        break;
    case IGNIS__CHAT_IF:
        for (part = node->list; part && !c->fault; part = part->next)
            if (!part->a || ignis__chat_true(ignis__chat_eval(c, part->a)))
                return c->fault ? 0 : ignis__chat_run(c, part->b);
        break;
    case IGNIS__CHAT_FOR: return ignis__chat_run_for(c, node);
    case IGNIS__CHAT_SET:
        value = ignis__chat_eval(c, node->b);
        c->here = node->at;
        ignis__chat_assign(c, node->a, value);
        break;
    case IGNIS__CHAT_SET_BLOCK:
        ignis__chat_enter(c, before);
        value = ignis__chat_capture(c, node->b);
        c->scope = before;
        c->here = node->at;
        ignis__chat_assign(c, node->a, value);
        break;
    case IGNIS__CHAT_MACRO_OF: ignis__chat_put(c, &before->names, node->value, ignis__chat_macro_of(c, node)); break;
    case IGNIS__CHAT_CALL_BLOCK:
        value = ignis__chat_macro_of(c, node->b);
        value = ignis__chat_eval_call(c, node->a, &value);
        c->here = node->at;
        if (value.kind != IGNIS__CHAT_STRING)
            ignis__chat_fail_kind(c, "what a block calls gives text", value);
        if (!c->fault)
            ignis__chat_write_string(c, c->out, value);
        break;
    case IGNIS__CHAT_BLOCK:
        ignis__chat_enter(c, before);
        inner = c->scope;
        for (part = node->list; part && !c->fault;
             part = part->next) { /* of with: values are evaluated outside of the scope and set inside */
            c->scope = before;
            value = ignis__chat_eval(c, part->b);
            c->scope = inner;
            ignis__chat_assign(c, part->a, value);
        }
        jump = ignis__chat_run(c, node->b);
        c->scope = before;
        break;
    default: return node->op;
    }
    return jump;
}

IGNIS__PRIVATE bool ignis__chat_deeper(ignis__chat *c, size_t at)
{
    c->here = at;
    if (c->fault || !ignis__chat_work(c, 1))
        return false;
    if (c->depth >= IGNIS__CHAT_DEPTH) {
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_LIMIT, at, "the template is nested deeper than %d", IGNIS__CHAT_DEPTH);
        return false;
    }
    c->depth++;
    return true;
}

/*  Runs the statements of a body. Returns the statement that ended it early (break or continue), or 0. */
IGNIS__PRIVATE int ignis__chat_run(ignis__chat *c, const ignis__chat_node *body)
{
    const ignis__chat_node *node;
    int jump = 0;
    if (!ignis__chat_deeper(c, body->at))
        return 0;
    for (node = body->list; node && !jump && ignis__chat_work(c, 1); node = node->next)
        jump = ignis__chat_run_one(c, node);
    c->depth--;
    return c->fault ? 0 : jump;
}
