/*  models/chat/eval_expression.c - evaluation of expressions: calls, filters, tests, operators

    Every evaluation counts its work and its depth, so a template ends.
    May use: eval_attribute.c, eval_operator.c, filter_table.c. Locks: none. */

#include "room.h"

/*  Evaluates the arguments of a call, filter or test. */
static void ignis__chat_take_arguments(ignis__chat *chat, const ignis__chat_node *node, ignis__chat_call *call)
{
    const ignis__chat_node *argument;
    for (argument = node->list; argument && !chat->fault; argument = argument->next) {
        ignis__chat_value value = ignis__chat_eval(chat, argument->a);
        if (argument->value.kind == IGNIS__CHAT_ABSENT)
            ignis__chat_add(chat, &call->given, value);
        else if (ignis__chat_find(chat, &call->named, argument->value) >= 0)
            ignis__chat_fail(chat, "an argument is given twice");
        else
            ignis__chat_put(chat, &call->named, argument->value, value);
    }
    chat->here = node->at;
}

/*  Returns an argument by its position or by its name. Counts those given by name. */
static ignis__chat_value ignis__chat_argument(ignis__chat *chat, const ignis__chat_call *call, ignis__chat_value of,
                                              ignis__chat_value name, int64_t place, int64_t *named)
{
    int64_t at = ignis__chat_find(chat, &call->named, name);
    *named += at >= 0;
    if (at >= 0 && place < call->given.count)
        return ignis__chat_fail(chat, "%.*s gets '%.*s' twice", (int)of.number, of.u.text, (int)name.number,
                                name.u.text);
    return at >= 0                     ? call->named.item[at + 1]
           : place < call->given.count ? call->given.item[place]
                                       : ignis__chat_make(IGNIS__CHAT_ABSENT, 0);
}

static ignis__chat_value ignis__chat_call_macro(ignis__chat *chat, const ignis__chat_macro *macro,
                                                const ignis__chat_call *call)
{
    ignis__chat_scope *before = ignis__chat_enter(chat, macro->scope);
    ignis__chat_value of = macro->node->value, caller = ignis__chat_words("caller"), value;
    const ignis__chat_node *name;
    int64_t count = 0, named = 0;
    for (name = macro->node->list; name && !chat->fault; name = name->next) {
        value = ignis__chat_argument(chat, call, of, name->value, count++, &named);
        if (!value.kind)
            value = name->a ? ignis__chat_eval(chat, name->a) : ignis__chat_undefined(value, name->value);
        ignis__chat_put(chat, &chat->scope->names, name->value, value);
    }
    if (macro->node->sign && !chat->fault &&
        ignis__chat_find(chat, &chat->scope->names, caller) < 0) { /* defined in macros that name it */
        value = ignis__chat_argument(chat, call, of, caller, INT64_MAX, &named);
        ignis__chat_put(chat, &chat->scope->names, caller, value.kind ? value : ignis__chat_undefined(value, caller));
    }
    if (call->given.count > count || call->named.count > 2 * named)
        ignis__chat_fail(chat, "the macro '%.*s' has no such argument, or it has two values", (int)of.number,
                         of.u.text);
    value = ignis__chat_capture(chat, macro->node->b);
    chat->scope = before;
    return value;
}

/*  Runs a row of the table with its arguments in the order of its parameters. */
static ignis__chat_value ignis__chat_run_row(ignis__chat *chat, const ignis__chat_row *row, ignis__chat_call *call)
{
    ignis__chat_value of = ignis__chat_string(row->names, strcspn(row->names, " "), NULL);
    const char *at = row->parameters;
    int64_t named = 0;
    int count = 0;
    if (chat->fault)
        return call->self;
    if (!row->run)
        return ignis__chat_fail_unsupported(chat, "the function '%s'", row->names);
    memset(call->value, 0, sizeof call->value);
    call->how = row->how;
    if (call->self.kind == IGNIS__CHAT_STRING)
        ignis__chat_work(chat, call->self.number / 16);
    for (; at && *at; count++) {
        bool needed = *at == '!';
        size_t length = strcspn(at += needed, " ");
        call->value[count] = ignis__chat_argument(chat, call, of, ignis__chat_string(at, length, NULL), count, &named);
        if (needed && !call->value[count].kind)
            return ignis__chat_fail(chat, "%.*s needs '%.*s'", (int)of.number, of.u.text, (int)length, at);
        at += length + (at[length] == ' ');
    }
    if (at && (call->given.count > count || call->named.count > 2 * named))
        return ignis__chat_fail(chat, "%.*s takes other arguments: %s", (int)of.number, of.u.text,
                                *row->parameters ? row->parameters : "none");
    return chat->fault ? call->self : row->run(chat, call);
}

/*  Applies a filter or a test, found by its name. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_apply(ignis__chat *chat, char of, ignis__chat_value name,
                                                   ignis__chat_call *call)
{
    int row = name.kind == IGNIS__CHAT_STRING ? ignis__chat_row_find(chat, of, name) : -1;
    if (chat->fault || name.kind != IGNIS__CHAT_STRING)
        return ignis__chat_fail(chat, "the name of a filter or test is text");
    if (row < 0)
        return ignis__chat_fail_unsupported(chat, "the %s '%.*s'", of == 'f' ? "filter" : "test",
                                            (int)(name.number < 60 ? name.number : 60), name.u.text);
    return ignis__chat_run_row(chat, ignis__chat_row_at(row), call);
}

/*  Evaluates a call, filter or test. `caller` is the macro that {% call %} passes, or NULL. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_eval_call(ignis__chat *chat, const ignis__chat_node *node,
                                                       const ignis__chat_value *caller)
{
    ignis__chat_call call = IGNIS__ZERO;
    ignis__chat_value object = ignis__chat_eval(chat, node->a);
    ignis__chat_take_arguments(chat, node, &call);
    if (caller)
        ignis__chat_put(chat, &call.named, ignis__chat_words("caller"), *caller);
    if (chat->fault)
        return object;
    call.self = object;
    if (node->op != IGNIS__CHAT_CALL) {
        object = ignis__chat_apply(chat, node->op == IGNIS__CHAT_FILTER ? 'f' : 't', node->value, &call);
        return node->sign ? ignis__chat_bool(!ignis__chat_true(object)) : object;
    }
    if (object.kind == IGNIS__CHAT_MACRO)
        return ignis__chat_call_macro(chat, object.u.macro, &call);
    if (object.kind != IGNIS__CHAT_FUNCTION)
        return ignis__chat_fail_kind(chat, "what is called is a function", object);
    if (object.u.object)
        call.self = *object.u.object;
    return ignis__chat_run_row(chat, ignis__chat_row_at(object.number), &call);
}

static ignis__chat_value ignis__chat_eval_items(ignis__chat *chat, const ignis__chat_node *node)
{
    bool dict = node->sign == IGNIS__CHAT_DICT;
    ignis__chat_value value, out = ignis__chat_new(chat, (ignis__chat_kind)node->sign);
    const ignis__chat_node *part;
    for (part = node->list; part && !chat->fault; part = part->next) {
        value = ignis__chat_eval(chat, part);
        if (!dict)
            ignis__chat_add(chat, out.u.items, value);
        else if (part = part->next, !chat->fault && ignis__chat_hashable(chat, value))
            ignis__chat_put(chat, out.u.items, value, ignis__chat_eval(chat, part));
    }
    return out;
}

static ignis__chat_value ignis__chat_eval_compare(ignis__chat *chat, const ignis__chat_node *node)
{
    ignis__chat_value left = ignis__chat_eval(chat, node->a), right;
    const ignis__chat_node *part;
    bool yes = true;
    for (part = node->list; part && yes && !chat->fault; part = part->next, left = right) {
        right = ignis__chat_eval(chat, part->a);
        chat->here = part->at;
        yes = !chat->fault && ignis__chat_compares(chat, (char)part->sign, left, right);
    }
    return ignis__chat_bool(yes);
}

static ignis__chat_value ignis__chat_eval_unary(ignis__chat *chat, const ignis__chat_node *node)
{
    ignis__chat_value value = ignis__chat_eval(chat, node->a);
    chat->here = node->at;
    if (node->sign == '!')
        return ignis__chat_bool(!ignis__chat_true(value));
    if (chat->fault || !ignis__chat_is_number(value))
        return ignis__chat_fail_kind(chat, "a sign stands before a number", value);
    if (value.kind == IGNIS__CHAT_FLOAT)
        value.u.real = node->sign == '-' ? -value.u.real : value.u.real;
    else if (node->sign == '-' && value.number == INT64_MIN)
        return ignis__chat_fail_unsupported(chat, "a whole number of more than 64 bits");
    else
        value.kind = IGNIS__CHAT_INT, value.number = node->sign == '-' ? -value.number : value.number;
    return value;
}

static ignis__chat_value ignis__chat_eval_slice(ignis__chat *chat, const ignis__chat_node *node)
{
    ignis__chat_value object = ignis__chat_eval(chat, node->a), bound[3];
    const ignis__chat_node *part;
    int i = 0;
    for (part = node->list; part && i < 3; part = part->next)
        bound[i++] = ignis__chat_eval(chat, part);
    chat->here = node->at;
    return chat->fault ? object : ignis__chat_slice(chat, object, bound);
}

static ignis__chat_value ignis__chat_eval_two(ignis__chat *chat, const ignis__chat_node *node)
{
    ignis__chat_value a = ignis__chat_eval(chat, node->a), b;
    bool logical = node->sign == 'a' || node->sign == 'o';
    if (chat->fault || (logical && ignis__chat_true(a) == (node->sign == 'o')))
        return a;
    b = ignis__chat_eval(chat, node->b);
    chat->here = node->at;
    if (chat->fault || logical)
        return b;
    return node->op == IGNIS__CHAT_ITEM ? ignis__chat_eval_member(chat, a, b, true)
                                        : ignis__chat_binary_of(chat, (char)node->sign, a, b);
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_eval(ignis__chat *chat, const ignis__chat_node *node)
{
    ignis__chat_value value = ignis__chat_make(IGNIS__CHAT_UNDEFINED, 0);
    ignis__chat_scope *before;
    if (!ignis__chat_enter_node(chat, node->at))
        return value;
    switch (node->op) {
    case IGNIS__CHAT_CONST: value = node->value; break;
    case IGNIS__CHAT_NAME: value = ignis__chat_lookup(chat, node->value); break;
    case IGNIS__CHAT_ITEMS_OF: value = ignis__chat_eval_items(chat, node); break;
    case IGNIS__CHAT_SLICE: value = ignis__chat_eval_slice(chat, node); break;
    case IGNIS__CHAT_ATTRIBUTE:
        value = ignis__chat_eval(chat, node->a);
        chat->here = node->at;
        value = ignis__chat_eval_member(chat, value, node->value, false);
        break;
    case IGNIS__CHAT_CALL:
    case IGNIS__CHAT_FILTER:
    case IGNIS__CHAT_TEST: value = ignis__chat_eval_call(chat, node, NULL); break;
    case IGNIS__CHAT_CAPTURE:
        before = ignis__chat_enter(chat, chat->scope);
        value = ignis__chat_capture(chat, node->b);
        chat->scope = before;
        break;
    case IGNIS__CHAT_UNARY: value = ignis__chat_eval_unary(chat, node); break;
    case IGNIS__CHAT_COMPARE: value = ignis__chat_eval_compare(chat, node); break;
    case IGNIS__CHAT_CHOICE:
        if (ignis__chat_true(ignis__chat_eval(chat, node->b)))
            value = ignis__chat_eval(chat, node->a);
        else if (node->c)
            value = ignis__chat_eval(chat, node->c);
        break;
    default: value = ignis__chat_eval_two(chat, node); break;
    }
    chat->depth--;
    return value;
}
