/*  models/chat/parse_statement.c - parses text, tags and statements into nodes

    White space around tags is removed as by trim_blocks and lstrip_blocks.
    May use: parse_expression.c, lexer.c. Locks: none. */

#include "room.h"

/*  Adds the text before a tag. Leaves out the white space that the tag's sign removes, and the indentation of
    a tag that is alone in its line. */
static void ignis__chat_data(ignis__chat *c, ignis__chat_node *body, size_t from, size_t to, char sign, bool block)
{
    size_t line, before, at;
    ignis__chat_node *node;
    if (sign == '-') {
        while (to > from && ignis__chat_is_space(c->text + (before = ignis__chat_before(c->text, to))))
            to = before;
    } else if (sign != '+' && block) {
        for (line = to; line > from && c->text[line - 1] != '\n'; line--)
            ;
        at = line;
        while (at < to && ignis__chat_is_space(c->text + at))
            at += ignis__chat_character(c->text + at);
        if (at == to && (line > from || c->line_start))
            to = line;
    }
    if (to > from) {
        node = ignis__chat_node_of(c, IGNIS__CHAT_TEXT, from);
        node->value = ignis__chat_string(c->text + from, to - from, NULL);
        ignis__chat_append(body, node);
    }
}

/*  Returns the place after {% raw %}, given the place after the opening of a tag and its sign. 0 if it is
    another tag. */
static size_t ignis__chat_raw(const ignis__chat *c, size_t at, const char *word)
{
    at = ignis__chat_skip_space(c, at);
    if (!ignis__chat_at(c, at, word))
        return 0;
    at = ignis__chat_skip_space(c, at + strlen(word));
    return ignis__chat_at(c, at, "%}") || ignis__chat_at(c, at, "-%}") ||
                   (word[0] == 'e' && ignis__chat_at(c, at, "+%}"))
               ? at
               : 0;
}

static char ignis__chat_sign(const ignis__chat *c, size_t at)
{
    return (char)(at < c->size && (c->text[at] == '-' || c->text[at] == '+') ? c->text[at] : 0);
}

static void ignis__chat_read_raw(ignis__chat *c, ignis__chat_node *body, size_t at)
{
    size_t from, end;
    char sign;
    (void)ignis__chat_tag_end(c, at, '%');
    from = c->at;
    if (c->text[from - 1] == '\n' && c->text[at] == '%')
        from--; /* unlike other tags, this one keeps the end of its line */
    c->line_start = c->text[from - 1] == '\n';
    for (at = from; at < c->size; at++) {
        if (!ignis__chat_at(c, at, "{%"))
            continue;
        sign = ignis__chat_sign(c, at + 2);
        end = ignis__chat_raw(c, at + 2 + (sign != 0), "endraw");
        if (end) {
            ignis__chat_data(c, body, from, at, sign, true);
            (void)ignis__chat_tag_end(c, end, '%');
            return;
        }
    }
    ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, from, "{%% raw %%} has no end");
}

static void ignis__chat_statement(ignis__chat *c, ignis__chat_node *body);

/*  Reads the body between the end of a tag, which is the current token, and a tag that begins with one of the
    words in `ends`. That word is the current token then. If `ends` is empty, reads to the template's end. */
IGNIS__PRIVATE ignis__chat_node *ignis__chat_body(ignis__chat *c, const char *ends)
{
    ignis__chat_node *body = ignis__chat_node_of(c, IGNIS__CHAT_BLOCK, c->start), *print;
    if (*ends) {
        ignis__chat_take(c, ":");
        if (c->kind != 'E')
            ignis__chat_unexpected(c, "the end of the tag");
    }
    ignis__chat_nest(c);
    while (!c->fault) {
        size_t from = c->at, tag = from, raw;
        const char *brace;
        char kind, sign;
        for (; tag < c->size; tag++) {
            brace = (const char *)memchr(c->text + tag, '{', c->size - tag);
            tag = brace ? (size_t)(brace - c->text) : c->size;
            if (tag + 1 < c->size && strchr("{%#", c->text[tag + 1]) && c->text[tag + 1])
                break;
        }
        if (tag >= c->size) {
            ignis__chat_data(c, body, from, c->size, '+', false);
            c->at = c->size;
            if (*ends)
                ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, c->size, "the template ends before one of: %s", ends);
            break;
        }
        kind = c->text[tag + 1];
        sign = ignis__chat_sign(c, tag + 2);
        ignis__chat_data(c, body, from, tag, sign, kind != '{');
        c->at = tag + 2 + (sign != 0);
        if (kind == '#') {
            size_t at = c->at;
            while (at < c->size && !ignis__chat_tag_end(c, at, '#'))
                at++;
            if (at >= c->size)
                ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, tag, "a comment has no end");
            continue;
        }
        if (kind == '%' && (raw = ignis__chat_raw(c, c->at, "raw")) != 0 && !ignis__chat_at(c, raw, "+")) {
            ignis__chat_read_raw(c, body, raw);
            continue;
        }
        c->tag = kind;
        c->brackets = 0;
        ignis__chat_next(c);
        if (kind == '{') {
            print = ignis__chat_node_of(c, IGNIS__CHAT_PRINT, c->start);
            print->a = ignis__chat_commas(c, ignis__chat_expression, false);
            ignis__chat_append(body, print);
        } else if (*ends && ignis__chat_listed(c, ends)) {
            break;
        } else {
            ignis__chat_statement(c, body);
        }
        if (c->kind != 'E')
            ignis__chat_unexpected(c, "the end of the tag");
    }
    c->nesting--;
    return body;
}

/*  Reads the target of an assignment: a name, an attribute of a namespace, or several with commas. */
static ignis__chat_node *ignis__chat_target_of(ignis__chat *c, ignis__chat_node *(*again)(ignis__chat *c),
                                               bool attributes)
{
    ignis__chat_node *node;
    if (ignis__chat_sees(c, "(")) {
        ignis__chat_nest(c);
        ignis__chat_next(c);
        node = ignis__chat_commas(c, again, false);
        ignis__chat_want(c, ")");
        c->nesting--;
        return node;
    }
    if (ignis__chat_listed(c, "true True false False none None"))
        ignis__chat_unexpected(c, "a name to assign to");
    node = ignis__chat_node_of(c, IGNIS__CHAT_NAME, c->start);
    node->value = ignis__chat_word(c);
    if (attributes && ignis__chat_take(c, ".")) {
        node = ignis__chat_around(c, IGNIS__CHAT_ATTRIBUTE, c->start, node);
        node->value = ignis__chat_word(c);
    }
    return node;
}

static ignis__chat_node *ignis__chat_name_target(ignis__chat *c)
{
    return ignis__chat_target_of(c, ignis__chat_name_target, false);
}

static ignis__chat_node *ignis__chat_any_target(ignis__chat *c)
{
    return ignis__chat_target_of(c, ignis__chat_any_target, true);
}

static void ignis__chat_read_if(ignis__chat *c, ignis__chat_node *node)
{
    bool more = true;
    while (more && !c->fault) {
        bool last = ignis__chat_sees(c, "else");
        ignis__chat_node *branch = ignis__chat_node_of(c, IGNIS__CHAT_IF, c->start);
        ignis__chat_next(c);
        branch->a = last ? NULL : ignis__chat_commas(c, ignis__chat_condition, false);
        branch->b = ignis__chat_body(c, last ? "endif" : "elif else endif");
        ignis__chat_append(node, branch);
        more = !ignis__chat_take(c, "endif");
    }
}

static void ignis__chat_read_for(ignis__chat *c, ignis__chat_node *node)
{
    ignis__chat_next(c);
    node->a = ignis__chat_commas(c, ignis__chat_name_target, false);
    ignis__chat_want(c, "in");
    node->b = ignis__chat_commas(c, ignis__chat_condition, false);
    if (ignis__chat_take(c, "if"))
        node->c = ignis__chat_expression(c);
    if (ignis__chat_sees(c, "recursive"))
        ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, c->start, "a recursive loop");
    c->loops++;
    ignis__chat_append(node, ignis__chat_body(c, "else endfor"));
    c->loops--;
    if (ignis__chat_take(c, "else"))
        ignis__chat_append(node, ignis__chat_body(c, "endfor"));
    ignis__chat_take(c, "endfor");
}

static void ignis__chat_read_set(ignis__chat *c, ignis__chat_node *node)
{
    ignis__chat_next(c);
    node->a = ignis__chat_commas(c, ignis__chat_any_target, false);
    if (ignis__chat_take(c, "=")) {
        node->b = ignis__chat_commas(c, ignis__chat_expression, false);
        return;
    }
    if (ignis__chat_sees(c, "|"))
        ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, c->start, "a filter of a set block");
    node->op = IGNIS__CHAT_SET_BLOCK;
    node->b = ignis__chat_body(c, "endset");
    ignis__chat_take(c, "endset");
}

/*  Reads the parameters of a macro, in parentheses. */
static void ignis__chat_read_parameters(ignis__chat *c, ignis__chat_node *node)
{
    bool defaults = false;
    ignis__chat_want(c, "(");
    while (!c->fault && !ignis__chat_sees(c, ")")) {
        ignis__chat_node *name = ignis__chat_node_of(c, IGNIS__CHAT_NAME, c->start);
        name->value = ignis__chat_word(c);
        if (ignis__chat_take(c, "="))
            defaults = true, name->a = ignis__chat_expression(c);
        else if (defaults)
            ignis__chat_unexpected(c, "a default value");
        ignis__chat_append(node, name);
        if (!ignis__chat_sees(c, ")"))
            ignis__chat_want(c, ",");
    }
    ignis__chat_want(c, ")");
}

/*  Reads the body of a macro, up to the word `end`. */
static void ignis__chat_read_macro_body(ignis__chat *c, ignis__chat_node *node, const char *end)
{
    int loops = c->loops;
    bool caller = c->caller;
    c->loops = 0;
    c->caller = false;
    node->b = ignis__chat_body(c, end);
    node->sign = c->caller;
    c->loops = loops;
    c->caller = c->caller || caller;
    ignis__chat_take(c, end);
}

static void ignis__chat_read_macro(ignis__chat *c, ignis__chat_node *node)
{
    ignis__chat_next(c);
    node->value = ignis__chat_word(c);
    ignis__chat_read_parameters(c, node);
    ignis__chat_read_macro_body(c, node, "endmacro");
}

/*  Reads {% call(parameters) f(arguments) %}: f is called with a macro named caller. */
static void ignis__chat_read_call(ignis__chat *c, ignis__chat_node *node)
{
    ignis__chat_next(c);
    node->b = ignis__chat_node_of(c, IGNIS__CHAT_MACRO_OF, c->start);
    node->b->value = ignis__chat_words("caller");
    if (ignis__chat_sees(c, "("))
        ignis__chat_read_parameters(c, node->b);
    node->a = ignis__chat_expression(c);
    if (node->a->op != IGNIS__CHAT_CALL)
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, node->a->at, "what stands behind {%% call %%} is a call");
    ignis__chat_read_macro_body(c, node->b, "endcall");
}

/*  Reads a filter block: the output of its body is filtered and printed. */
static void ignis__chat_read_filter(ignis__chat *c, ignis__chat_node *node)
{
    ignis__chat_node *capture = ignis__chat_node_of(c, IGNIS__CHAT_CAPTURE, c->start);
    node->a = capture;
    node->sign = 1;
    do {
        ignis__chat_next(c);
        node->a = ignis__chat_around(c, IGNIS__CHAT_FILTER, c->start, node->a);
        node->a->value = ignis__chat_word(c);
        if (ignis__chat_sees(c, "("))
            ignis__chat_arguments(c, node->a);
    } while (ignis__chat_sees(c, "|"));
    capture->b = ignis__chat_body(c, "endfilter");
    ignis__chat_take(c, "endfilter");
}

/*  Reads generation, whose marks for training are not used here, and with. Each ends with a tag of its own
    name. */
static void ignis__chat_read_block(ignis__chat *c, ignis__chat_node *node)
{
    bool with = ignis__chat_sees(c, "with");
    int loops = c->loops;
    ignis__chat_next(c);
    while (with && !c->fault && c->kind == 'a') {
        ignis__chat_node *set = ignis__chat_node_of(c, IGNIS__CHAT_SET, c->start);
        set->a = ignis__chat_commas(c, ignis__chat_name_target, false);
        ignis__chat_want(c, "=");
        set->b = ignis__chat_expression(c);
        ignis__chat_append(node, set);
        if (!ignis__chat_take(c, ","))
            break;
    }
    if (!with)
        c->loops = 0;
    node->b = ignis__chat_body(c, with ? "endwith" : "endgeneration");
    c->loops = loops;
    ignis__chat_take(c, with ? "endwith" : "endgeneration");
}

static void ignis__chat_read_jump(ignis__chat *c, ignis__chat_node *node)
{
    if (!c->loops)
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, node->at, "break and continue belong into a loop");
    ignis__chat_next(c);
}

static void ignis__chat_statement(ignis__chat *c, ignis__chat_node *body)
{
    static const struct {
        const char *word;
        ignis__chat_op op;
        void (*read)(ignis__chat *c, ignis__chat_node *node);
    } statements[] = {
        {"if", IGNIS__CHAT_IF, ignis__chat_read_if},
        {"for", IGNIS__CHAT_FOR, ignis__chat_read_for},
        {"set", IGNIS__CHAT_SET, ignis__chat_read_set},
        {"macro", IGNIS__CHAT_MACRO_OF, ignis__chat_read_macro},
        {"with", IGNIS__CHAT_BLOCK, ignis__chat_read_block},
        {"generation", IGNIS__CHAT_BLOCK, ignis__chat_read_block},
        {"break", IGNIS__CHAT_BREAK, ignis__chat_read_jump},
        {"continue", IGNIS__CHAT_CONTINUE, ignis__chat_read_jump},
        {"filter", IGNIS__CHAT_PRINT, ignis__chat_read_filter},
        {"call", IGNIS__CHAT_CALL_BLOCK, ignis__chat_read_call},
    };
    ignis__chat_node *node;
    size_t length = c->at - c->start;
    int i;
    for (i = 0; i < IGNIS__COUNT(statements); i++) {
        if (ignis__chat_sees(c, statements[i].word)) {
            node = ignis__chat_node_of(c, statements[i].op, c->start);
            statements[i].read(c, node);
            ignis__chat_append(body, node);
            return;
        }
    }
    if (ignis__chat_listed(c, "block extends print include from import autoescape"))
        ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, c->start, "the statement '%.*s'", (int)length, c->text + c->start);
    else
        ignis__chat_unexpected(c, "a statement");
}
