/*  models/chat/parse_statement.c - parses text, tags and statements into nodes

    White space around tags is removed as by trim_blocks and lstrip_blocks.
    May use: parse_expression.c, lexer.c. Locks: none. */

#include "room.h"

/*  Adds the text before a tag. Leaves out the white space that the tag's sign removes, and the indentation of
    a tag that is alone in its line. */
static void ignis__chat_add_data(ignis__chat *chat, ignis__chat_node *body, size_t from, size_t to, char sign,
                                 bool block)
{
    size_t line, before, at;
    ignis__chat_node *node;
    if (sign == '-') {
        while (to > from && ignis__chat_is_space(chat->text + (before = ignis__chat_before(chat->text, to))))
            to = before;
    } else if (sign != '+' && block) {
        for (line = to; line > from && chat->text[line - 1] != '\n'; line--)
            ;
        at = line;
        while (at < to && ignis__chat_is_space(chat->text + at))
            at += ignis__chat_character(chat->text + at);
        if (at == to && (line > from || chat->line_start))
            to = line;
    }
    if (to > from) {
        node = ignis__chat_make_node(chat, IGNIS__CHAT_TEXT, from);
        node->value = ignis__chat_string(chat->text + from, to - from, NULL);
        ignis__chat_append(body, node);
    }
}

/*  Returns the place after {% raw %}, given the place after the opening of a tag and its sign. 0 if it is
    another tag. */
static size_t ignis__chat_match_raw(const ignis__chat *chat, size_t at, const char *word)
{
    at = ignis__chat_skip_space(chat, at);
    if (!ignis__chat_at(chat, at, word))
        return 0;
    at = ignis__chat_skip_space(chat, at + strlen(word));
    return ignis__chat_at(chat, at, "%}") || ignis__chat_at(chat, at, "-%}") ||
                   (word[0] == 'e' && ignis__chat_at(chat, at, "+%}"))
               ? at
               : 0;
}

static char ignis__chat_read_sign(const ignis__chat *chat, size_t at)
{
    return (char)(at < chat->size && (chat->text[at] == '-' || chat->text[at] == '+') ? chat->text[at] : 0);
}

static void ignis__chat_read_raw(ignis__chat *chat, ignis__chat_node *body, size_t at)
{
    size_t from, end;
    char sign;
    (void)ignis__chat_tag_end(chat, at, '%');
    from = chat->at;
    if (chat->text[from - 1] == '\n' && chat->text[at] == '%')
        from--; /* unlike other tags, this one keeps the end of its line */
    chat->line_start = chat->text[from - 1] == '\n';
    for (at = from; at < chat->size; at++) {
        if (!ignis__chat_at(chat, at, "{%"))
            continue;
        sign = ignis__chat_read_sign(chat, at + 2);
        end = ignis__chat_match_raw(chat, at + 2 + (sign != 0), "endraw");
        if (end) {
            ignis__chat_add_data(chat, body, from, at, sign, true);
            (void)ignis__chat_tag_end(chat, end, '%');
            return;
        }
    }
    ignis__chat_fault(chat, IGNIS_DIAG_CHAT_TEMPLATE, from, "{%% raw %%} has no end");
}

static void ignis__chat_read_statement(ignis__chat *chat, ignis__chat_node *body);

/*  Reads the body between the end of a tag, which is the current token, and a tag that begins with one of the
    words in `ends`. That word is the current token then. If `ends` is empty, reads to the template's end. */
IGNIS__PRIVATE ignis__chat_node *ignis__chat_read_body(ignis__chat *chat, const char *ends)
{
    ignis__chat_node *body = ignis__chat_make_node(chat, IGNIS__CHAT_BLOCK, chat->start), *print;
    if (*ends) {
        ignis__chat_accept(chat, ":");
        if (chat->kind != 'E')
            ignis__chat_unexpected(chat, "the end of the tag");
    }
    ignis__chat_nest(chat);
    while (!chat->fault) {
        size_t from = chat->at, tag = from, raw;
        const char *brace;
        char kind, sign;
        for (; tag < chat->size; tag++) {
            brace = (const char *)memchr(chat->text + tag, '{', chat->size - tag);
            tag = brace ? (size_t)(brace - chat->text) : chat->size;
            if (tag + 1 < chat->size && strchr("{%#", chat->text[tag + 1]) && chat->text[tag + 1])
                break;
        }
        if (tag >= chat->size) {
            ignis__chat_add_data(chat, body, from, chat->size, '+', false);
            chat->at = chat->size;
            if (*ends)
                ignis__chat_fault(chat, IGNIS_DIAG_CHAT_TEMPLATE, chat->size, "the template ends before one of: %s",
                                  ends);
            break;
        }
        kind = chat->text[tag + 1];
        sign = ignis__chat_read_sign(chat, tag + 2);
        ignis__chat_add_data(chat, body, from, tag, sign, kind != '{');
        chat->at = tag + 2 + (sign != 0);
        if (kind == '#') {
            size_t at = chat->at;
            while (at < chat->size && !ignis__chat_tag_end(chat, at, '#'))
                at++;
            if (at >= chat->size)
                ignis__chat_fault(chat, IGNIS_DIAG_CHAT_TEMPLATE, tag, "a comment has no end");
            continue;
        }
        if (kind == '%' && (raw = ignis__chat_match_raw(chat, chat->at, "raw")) != 0 &&
            !ignis__chat_at(chat, raw, "+")) {
            ignis__chat_read_raw(chat, body, raw);
            continue;
        }
        chat->tag = kind;
        chat->brackets = 0;
        ignis__chat_next_token(chat);
        if (kind == '{') {
            print = ignis__chat_make_node(chat, IGNIS__CHAT_PRINT, chat->start);
            print->a = ignis__chat_read_list(chat, ignis__chat_read_expression, false);
            ignis__chat_append(body, print);
        } else if (*ends && ignis__chat_is_listed(chat, ends)) {
            break;
        } else {
            ignis__chat_read_statement(chat, body);
        }
        if (chat->kind != 'E')
            ignis__chat_unexpected(chat, "the end of the tag");
    }
    chat->nesting--;
    return body;
}

/*  Reads the target of an assignment: a name, an attribute of a namespace, or several with commas. */
static ignis__chat_node *ignis__chat_read_target(ignis__chat *chat, ignis__chat_node *(*again)(ignis__chat *chat),
                                                 bool attributes)
{
    ignis__chat_node *node;
    if (ignis__chat_is_word(chat, "(")) {
        ignis__chat_nest(chat);
        ignis__chat_next_token(chat);
        node = ignis__chat_read_list(chat, again, false);
        ignis__chat_expect(chat, ")");
        chat->nesting--;
        return node;
    }
    if (ignis__chat_is_listed(chat, "true True false False none None"))
        ignis__chat_unexpected(chat, "a name to assign to");
    node = ignis__chat_make_node(chat, IGNIS__CHAT_NAME, chat->start);
    node->value = ignis__chat_take_word(chat);
    if (attributes && ignis__chat_accept(chat, ".")) {
        node = ignis__chat_wrap_node(chat, IGNIS__CHAT_ATTRIBUTE, chat->start, node);
        node->value = ignis__chat_take_word(chat);
    }
    return node;
}

static ignis__chat_node *ignis__chat_read_name_target(ignis__chat *chat)
{
    return ignis__chat_read_target(chat, ignis__chat_read_name_target, false);
}

static ignis__chat_node *ignis__chat_read_any_target(ignis__chat *chat)
{
    return ignis__chat_read_target(chat, ignis__chat_read_any_target, true);
}

static void ignis__chat_read_if(ignis__chat *chat, ignis__chat_node *node)
{
    bool more = true;
    while (more && !chat->fault) {
        bool last = ignis__chat_is_word(chat, "else");
        ignis__chat_node *branch = ignis__chat_make_node(chat, IGNIS__CHAT_IF, chat->start);
        ignis__chat_next_token(chat);
        branch->a = last ? NULL : ignis__chat_read_list(chat, ignis__chat_read_condition, false);
        branch->b = ignis__chat_read_body(chat, last ? "endif" : "elif else endif");
        ignis__chat_append(node, branch);
        more = !ignis__chat_accept(chat, "endif");
    }
}

static void ignis__chat_read_for(ignis__chat *chat, ignis__chat_node *node)
{
    ignis__chat_next_token(chat);
    node->a = ignis__chat_read_list(chat, ignis__chat_read_name_target, false);
    ignis__chat_expect(chat, "in");
    node->b = ignis__chat_read_list(chat, ignis__chat_read_condition, false);
    if (ignis__chat_accept(chat, "if"))
        node->c = ignis__chat_read_expression(chat);
    if (ignis__chat_is_word(chat, "recursive"))
        ignis__chat_fault(chat, IGNIS_DIAG_UNSUPPORTED, chat->start, "a recursive loop");
    chat->loops++;
    ignis__chat_append(node, ignis__chat_read_body(chat, "else endfor"));
    chat->loops--;
    if (ignis__chat_accept(chat, "else"))
        ignis__chat_append(node, ignis__chat_read_body(chat, "endfor"));
    ignis__chat_accept(chat, "endfor");
}

static void ignis__chat_read_set(ignis__chat *chat, ignis__chat_node *node)
{
    ignis__chat_next_token(chat);
    node->a = ignis__chat_read_list(chat, ignis__chat_read_any_target, false);
    if (ignis__chat_accept(chat, "=")) {
        node->b = ignis__chat_read_list(chat, ignis__chat_read_expression, false);
        return;
    }
    if (ignis__chat_is_word(chat, "|"))
        ignis__chat_fault(chat, IGNIS_DIAG_UNSUPPORTED, chat->start, "a filter of a set block");
    node->op = IGNIS__CHAT_SET_BLOCK;
    node->b = ignis__chat_read_body(chat, "endset");
    ignis__chat_accept(chat, "endset");
}

/*  Reads the parameters of a macro, in parentheses. */
static void ignis__chat_read_parameters(ignis__chat *chat, ignis__chat_node *node)
{
    bool defaults = false;
    ignis__chat_expect(chat, "(");
    while (!chat->fault && !ignis__chat_is_word(chat, ")")) {
        ignis__chat_node *name = ignis__chat_make_node(chat, IGNIS__CHAT_NAME, chat->start);
        name->value = ignis__chat_take_word(chat);
        if (ignis__chat_accept(chat, "="))
            defaults = true, name->a = ignis__chat_read_expression(chat);
        else if (defaults)
            ignis__chat_unexpected(chat, "a default value");
        ignis__chat_append(node, name);
        if (!ignis__chat_is_word(chat, ")"))
            ignis__chat_expect(chat, ",");
    }
    ignis__chat_expect(chat, ")");
}

/*  Reads the body of a macro, up to the word `end`. */
static void ignis__chat_read_macro_body(ignis__chat *chat, ignis__chat_node *node, const char *end)
{
    int loops = chat->loops;
    bool caller = chat->caller;
    chat->loops = 0;
    chat->caller = false;
    node->b = ignis__chat_read_body(chat, end);
    node->sign = chat->caller;
    chat->loops = loops;
    chat->caller = chat->caller || caller;
    ignis__chat_accept(chat, end);
}

static void ignis__chat_read_macro(ignis__chat *chat, ignis__chat_node *node)
{
    ignis__chat_next_token(chat);
    node->value = ignis__chat_take_word(chat);
    ignis__chat_read_parameters(chat, node);
    ignis__chat_read_macro_body(chat, node, "endmacro");
}

/*  Reads {% call(parameters) f(arguments) %}: f is called with a macro named caller. */
static void ignis__chat_read_call(ignis__chat *chat, ignis__chat_node *node)
{
    ignis__chat_next_token(chat);
    node->b = ignis__chat_make_node(chat, IGNIS__CHAT_MACRO_OF, chat->start);
    node->b->value = ignis__chat_words("caller");
    if (ignis__chat_is_word(chat, "("))
        ignis__chat_read_parameters(chat, node->b);
    node->a = ignis__chat_read_expression(chat);
    if (node->a->op != IGNIS__CHAT_CALL)
        ignis__chat_fault(chat, IGNIS_DIAG_CHAT_TEMPLATE, node->a->at, "what stands behind {%% call %%} is a call");
    ignis__chat_read_macro_body(chat, node->b, "endcall");
}

/*  Reads a filter block: the output of its body is filtered and printed. */
static void ignis__chat_read_filter(ignis__chat *chat, ignis__chat_node *node)
{
    ignis__chat_node *capture = ignis__chat_make_node(chat, IGNIS__CHAT_CAPTURE, chat->start);
    node->a = capture;
    node->sign = 1;
    do {
        ignis__chat_next_token(chat);
        node->a = ignis__chat_wrap_node(chat, IGNIS__CHAT_FILTER, chat->start, node->a);
        node->a->value = ignis__chat_take_word(chat);
        if (ignis__chat_is_word(chat, "("))
            ignis__chat_read_arguments(chat, node->a);
    } while (ignis__chat_is_word(chat, "|"));
    capture->b = ignis__chat_read_body(chat, "endfilter");
    ignis__chat_accept(chat, "endfilter");
}

/*  Reads generation, whose marks for training are not used here, and with. Each ends with a tag of its own
    name. */
static void ignis__chat_read_block(ignis__chat *chat, ignis__chat_node *node)
{
    bool with = ignis__chat_is_word(chat, "with");
    int loops = chat->loops;
    ignis__chat_next_token(chat);
    while (with && !chat->fault && chat->kind == 'a') {
        ignis__chat_node *set = ignis__chat_make_node(chat, IGNIS__CHAT_SET, chat->start);
        set->a = ignis__chat_read_list(chat, ignis__chat_read_name_target, false);
        ignis__chat_expect(chat, "=");
        set->b = ignis__chat_read_expression(chat);
        ignis__chat_append(node, set);
        if (!ignis__chat_accept(chat, ","))
            break;
    }
    if (!with)
        chat->loops = 0;
    node->b = ignis__chat_read_body(chat, with ? "endwith" : "endgeneration");
    chat->loops = loops;
    ignis__chat_accept(chat, with ? "endwith" : "endgeneration");
}

static void ignis__chat_read_jump(ignis__chat *chat, ignis__chat_node *node)
{
    if (!chat->loops)
        ignis__chat_fault(chat, IGNIS_DIAG_CHAT_TEMPLATE, node->at, "break and continue belong into a loop");
    ignis__chat_next_token(chat);
}

static void ignis__chat_read_statement(ignis__chat *chat, ignis__chat_node *body)
{
    static const struct {
        const char *word;
        ignis__chat_op op;
        void (*read)(ignis__chat *chat, ignis__chat_node *node);
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
    size_t length = chat->at - chat->start;
    int i;
    for (i = 0; i < IGNIS__COUNT(statements); i++) {
        if (ignis__chat_is_word(chat, statements[i].word)) {
            node = ignis__chat_make_node(chat, statements[i].op, chat->start);
            statements[i].read(chat, node);
            ignis__chat_append(body, node);
            return;
        }
    }
    if (ignis__chat_is_listed(chat, "block extends print include from import autoescape"))
        ignis__chat_fault(chat, IGNIS_DIAG_UNSUPPORTED, chat->start, "the statement '%.*s'", (int)length,
                          chat->text + chat->start);
    else
        ignis__chat_unexpected(chat, "a statement");
}
