/*  models/chat/parse_expression.c - parses expressions into nodes, by precedence of operators

    A reader of nodes never returns NULL. After a fault its nodes are not evaluated.
    May use: lexer.c, repr.c (numbers). Locks: none. */

#include "room.h"

/*  Makes a node. Never NULL: after a fault it returns a spare node that is not evaluated. */
IGNIS__PRIVATE ignis__chat_node *ignis__chat_make_node(ignis__chat *chat, ignis__chat_op op, size_t at)
{
    ignis__chat_node *node = (ignis__chat_node *)ignis__chat_alloc(chat, sizeof *node);
    if (!node)
        node = &chat->spare;
    node->op = (unsigned char)op;
    node->at = at;
    return node;
}

/*  Enters one more level of nesting in the template's text. */
IGNIS__PRIVATE void ignis__chat_nest(ignis__chat *chat)
{
    if (++chat->nesting > IGNIS__CHAT_NESTING)
        ignis__chat_fault(chat, IGNIS_DIAG_CHAT_LIMIT, chat->start, "the template is nested deeper than %d",
                          IGNIS__CHAT_NESTING);
}

IGNIS__PRIVATE void ignis__chat_append(ignis__chat_node *node, ignis__chat_node *part)
{
    if (node->last)
        node->last->next = part;
    else
        node->list = part;
    node->last = part;
}

IGNIS__PRIVATE ignis__chat_node *ignis__chat_read_expression(ignis__chat *chat);
static ignis__chat_node *ignis__chat_read_binary(ignis__chat *chat, int level);

/*  Writes the string literal that is the current token, without its quotes and with its escapes replaced. */
static void ignis__chat_unquote(ignis__chat *chat, ignis__chat_writer *out)
{
    static const char plain[] = "ntr\\'\"abfv", values[] = "\n\t\r\\'\"\a\b\f\v";
    size_t at = chat->start + 1, end = chat->at - 1, from = at, i;
    for (; at < end && !chat->fault; from = at) {
        uint32_t code = 0;
        const char *known;
        char piece[4], letter;
        while (at < end && chat->text[at] != '\\')
            at++;
        ignis__chat_write(chat, out, chat->text + from, at - from, NULL, false);
        if (at == end)
            break;
        letter = chat->text[++at];
        known = letter ? strchr(plain, letter) : NULL;
        if (known) {
            code = (unsigned char)values[known - plain];
            at++;
        } else if (letter == '\n') {
            at++;
            continue;
        } else if (letter >= '0' && letter <= '7') {
            for (i = 0; i < 3 && at < end && chat->text[at] >= '0' && chat->text[at] <= '7'; i++)
                code = code * 8 + (uint32_t)(chat->text[at++] - '0');
        } else if (letter == 'x' || letter == 'u' || letter == 'U') {
            size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
            for (at++, i = 0; i < digits && at < end && strchr("0123456789abcdefABCDEF", chat->text[at]); i++, at++)
                code = code << 4 |
                       (uint32_t)(chat->text[at] <= '9' ? chat->text[at] - '0' : (chat->text[at] | 32) - 'a' + 10);
            if (i < digits || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
                ignis__chat_fault(chat, IGNIS_DIAG_CHAT_TEMPLATE, at, "an escape in a text is no character");
        } else if (letter == 'N') {
            ignis__chat_fault(chat, IGNIS_DIAG_UNSUPPORTED, at, "\\N in a text");
        } else { /* not an escape: the backslash is kept */
            code = '\\';
        }
        if (!chat->fault)
            ignis__chat_write(chat, out, piece, (size_t)ignis__utf8_write(piece, code), NULL, false);
    }
}

static ignis__chat_node *ignis__chat_read_constant(ignis__chat *chat, ignis__chat_value value, size_t at)
{
    ignis__chat_node *node = ignis__chat_make_node(chat, IGNIS__CHAT_CONST, at);
    node->value = value;
    return node;
}

/*  Makes a node of a list, tuple or dict. Its items follow. */
static ignis__chat_node *ignis__chat_items_node(ignis__chat *chat, ignis__chat_kind kind, size_t at)
{
    ignis__chat_node *node = ignis__chat_make_node(chat, IGNIS__CHAT_ITEMS_OF, at);
    node->sign = (unsigned char)kind;
    return node;
}

/*  Reads a comma-separated list up to the end of the tag, ')' or '='. Zero or several items make a tuple. */
IGNIS__PRIVATE ignis__chat_node *ignis__chat_read_list(ignis__chat *chat, ignis__chat_node *(*read)(ignis__chat *chat),
                                                       bool empty)
{
    ignis__chat_node *tuple = ignis__chat_items_node(chat, IGNIS__CHAT_TUPLE, chat->start);
    bool comma = false;
    while (!chat->fault && chat->kind != 'E' && !ignis__chat_is_word(chat, ")") && !ignis__chat_is_word(chat, "=")) {
        ignis__chat_append(tuple, read(chat));
        if (!ignis__chat_accept(chat, ","))
            break;
        comma = true;
    }
    if (!tuple->list && !empty)
        ignis__chat_unexpected(chat, "a value");
    return tuple->list && !comma ? tuple->list : tuple;
}

/*  Reads a name, a constant, or an expression in brackets. */
static ignis__chat_node *ignis__chat_read_primary(ignis__chat *chat)
{
    size_t at = chat->start;
    ignis__chat_node *node = ignis__chat_make_node(chat, IGNIS__CHAT_CONST, at);
    bool list = ignis__chat_is_word(chat, "["), whole = chat->kind == '0';
    node->value = ignis__chat_string(chat->text + at, chat->at - at, NULL);
    if (ignis__chat_accept(chat, "none") || ignis__chat_accept(chat, "None")) {
        node->value = ignis__chat_make(IGNIS__CHAT_NONE, 0);
    } else if (ignis__chat_is_listed(chat, "true True false False")) {
        node->value = ignis__chat_bool((chat->text[at] | 32) == 't');
        ignis__chat_next_token(chat);
    } else if (chat->kind == 'a') {
        node->op = IGNIS__CHAT_NAME;
        chat->caller = chat->caller || ignis__chat_is_word(chat, "caller");
        ignis__chat_next_token(chat);
    } else if (chat->kind == '"') {
        ignis__chat_writer out = IGNIS__ZERO;
        for (; chat->kind == '"' && !chat->fault; ignis__chat_next_token(chat))
            ignis__chat_unquote(chat, &out);
        node->value = ignis__chat_string(out.text ? out.text : "", out.size, NULL);
    } else if (whole || chat->kind == '.') {
        node->value = whole ? ignis__chat_make(IGNIS__CHAT_INT, 0) : ignis__chat_real(0);
        chat->here = at;
        if (!(whole ? ignis__chat_read_int(chat, chat->text + at, chat->at - at, &node->value.number)
                    : ignis__chat_read_real(chat->text + at, chat->at - at, &node->value.u.real)) ||
            (whole && chat->text[at] == '0' && node->value.number))
            ignis__chat_fault(chat, IGNIS_DIAG_CHAT_TEMPLATE, at, "a number that is none");
        ignis__chat_next_token(chat);
    } else if (ignis__chat_accept(chat, "(")) {
        node = ignis__chat_read_list(chat, ignis__chat_read_expression, true);
        ignis__chat_expect(chat, ")");
    } else if (list || ignis__chat_is_word(chat, "{")) {
        node = ignis__chat_items_node(chat, list ? IGNIS__CHAT_LIST : IGNIS__CHAT_DICT, at);
        ignis__chat_next_token(chat);
        while (!chat->fault && !ignis__chat_is_word(chat, list ? "]" : "}")) {
            ignis__chat_append(node, ignis__chat_read_expression(chat));
            if (!list) {
                ignis__chat_expect(chat, ":");
                ignis__chat_append(node, ignis__chat_read_expression(chat));
            }
            if (!ignis__chat_accept(chat, ","))
                break;
        }
        ignis__chat_expect(chat, list ? "]" : "}");
    } else {
        ignis__chat_unexpected(chat, "a value");
    }
    return node;
}

/*  Reads arguments after an opening parenthesis. Keyword arguments have their names as values. */
IGNIS__PRIVATE void ignis__chat_read_arguments(ignis__chat *chat, ignis__chat_node *call)
{
    bool named = false;
    ignis__chat_expect(chat, "(");
    while (!chat->fault && !ignis__chat_is_word(chat, ")")) {
        ignis__chat_value name = ignis__chat_make(IGNIS__CHAT_ABSENT, 0);
        ignis__chat_node *argument;
        size_t at = chat->start;
        if (ignis__chat_is_word(chat, "*") || ignis__chat_is_word(chat, "**"))
            ignis__chat_fault(chat, IGNIS_DIAG_UNSUPPORTED, at, "* and ** before arguments");
        if (chat->kind == 'a' && ignis__chat_follows(chat, "=")) {
            name = ignis__chat_take_word(chat);
            ignis__chat_next_token(chat);
            named = true;
        } else if (named) {
            ignis__chat_fault(chat, IGNIS_DIAG_CHAT_TEMPLATE, at,
                              "an argument without a name follows one that has a name");
        }
        argument = ignis__chat_make_node(chat, IGNIS__CHAT_PRINT, at);
        argument->a = ignis__chat_read_expression(chat);
        argument->value = name;
        ignis__chat_append(call, argument);
        if (!ignis__chat_accept(chat, ","))
            break;
    }
    ignis__chat_expect(chat, ")");
}

IGNIS__PRIVATE ignis__chat_node *ignis__chat_wrap_node(ignis__chat *chat, ignis__chat_op op, size_t at,
                                                       ignis__chat_node *part)
{
    ignis__chat_node *node = ignis__chat_make_node(chat, op, at);
    node->a = part;
    return node;
}

/*  Reads an index or a slice, after its bracket. */
static ignis__chat_node *ignis__chat_read_subscript(ignis__chat *chat, ignis__chat_node *object, size_t at)
{
    ignis__chat_node *node = ignis__chat_wrap_node(chat, IGNIS__CHAT_ITEM, at, object), *parts[3] = {NULL, NULL, NULL};
    int colons = 0, i;
    bool more = true;
    while (more && !chat->fault) {
        if (!ignis__chat_is_word(chat, ":") && !ignis__chat_is_word(chat, "]") && !ignis__chat_is_word(chat, ","))
            parts[colons] = ignis__chat_read_expression(chat);
        more = ignis__chat_accept(chat, ":");
        colons += more;
        if (colons > 2)
            ignis__chat_unexpected(chat, "']'");
    }
    if (ignis__chat_is_word(chat, ","))
        ignis__chat_fault(chat, IGNIS_DIAG_UNSUPPORTED, chat->start, "more than one index");
    if (!parts[0] && colons == 0)
        ignis__chat_unexpected(chat, "an index");
    node->b = colons ? NULL : parts[0];
    node->op = (unsigned char)(colons ? IGNIS__CHAT_SLICE : IGNIS__CHAT_ITEM);
    for (i = 0; colons && i < 3; i++)
        ignis__chat_append(node, parts[i] ? parts[i]
                                          : ignis__chat_read_constant(chat, ignis__chat_make(IGNIS__CHAT_NONE, 0), at));
    ignis__chat_expect(chat, "]");
    return node;
}

/*  Reads the attributes, items and calls after a value; with `filters` also filters and tests. */
static ignis__chat_node *ignis__chat_read_postfix(ignis__chat *chat, ignis__chat_node *node, bool filters)
{
    bool filtered = false; /* after a filter or test only more of them and calls may follow */
    while (!chat->fault) {
        size_t at = chat->start;
        if (!filtered && ignis__chat_accept(chat, ".")) {
            bool name = chat->kind == 'a';
            node = ignis__chat_wrap_node(chat, name ? IGNIS__CHAT_ATTRIBUTE : IGNIS__CHAT_ITEM, chat->start, node);
            if (name)
                node->value = ignis__chat_take_word(chat);
            else if (chat->kind == '0')
                node->b = ignis__chat_read_primary(chat);
            else
                ignis__chat_unexpected(chat, "a name");
        } else if (!filtered && ignis__chat_accept(chat, "[")) {
            node = ignis__chat_read_subscript(chat, node, at);
        } else if (ignis__chat_is_word(chat, "(")) {
            node = ignis__chat_wrap_node(chat, IGNIS__CHAT_CALL, at, node);
            ignis__chat_read_arguments(chat, node);
        } else if (filters && ignis__chat_accept(chat, "|")) {
            node = ignis__chat_wrap_node(chat, IGNIS__CHAT_FILTER, chat->start, node);
            node->value = ignis__chat_take_word(chat);
            if (ignis__chat_is_word(chat, "("))
                ignis__chat_read_arguments(chat, node);
            filtered = true;
        } else if (filters && ignis__chat_accept(chat, "is")) {
            bool negated = ignis__chat_accept(chat, "not");
            node = ignis__chat_wrap_node(chat, IGNIS__CHAT_TEST, chat->start, node);
            node->sign = negated;
            node->value = ignis__chat_take_word(chat);
            if (ignis__chat_is_word(chat, "(")) {
                ignis__chat_read_arguments(chat, node);
            } else if ((chat->kind == 'a' && !ignis__chat_is_word(chat, "else") && !ignis__chat_is_word(chat, "or") &&
                        !ignis__chat_is_word(chat, "and")) ||
                       (chat->kind && strchr("\"0.", chat->kind)) || ignis__chat_is_word(chat, "[") ||
                       ignis__chat_is_word(chat, "{")) {
                ignis__chat_node *argument;
                if (ignis__chat_is_word(chat, "is"))
                    ignis__chat_unexpected(chat, "the end of the test");
                argument = ignis__chat_make_node(chat, IGNIS__CHAT_PRINT, chat->start);
                argument->a = ignis__chat_read_postfix(chat, ignis__chat_read_primary(chat), false);
                ignis__chat_append(node, argument);
            }
            filtered = true;
        } else {
            break;
        }
    }
    return node;
}

/*  Reads unary operators. They are counted, as they nest. */
static ignis__chat_node *ignis__chat_read_unary(ignis__chat *chat, bool filters)
{
    ignis__chat_node *node;
    size_t at = chat->start;
    if (!ignis__chat_is_word(chat, "-") && !ignis__chat_is_word(chat, "+"))
        return ignis__chat_read_postfix(chat, ignis__chat_read_primary(chat), filters);
    ignis__chat_nest(chat);
    ignis__chat_next_token(chat);
    node = ignis__chat_wrap_node(chat, IGNIS__CHAT_UNARY, at, ignis__chat_read_unary(chat, false));
    node->sign = (unsigned char)chat->text[at];
    chat->nesting--;
    return ignis__chat_read_postfix(chat, node, filters);
}

IGNIS__PRIVATE const struct ignis__chat_operators_type ignis__chat_operators[] = {
    {"or", 1, 'o'}, {"and", 2, 'a'}, {"==", 4, '='}, {"!=", 4, '!'},  {"<", 4, '<'}, {"<=", 4, 'l'},
    {">", 4, '>'},  {">=", 4, 'g'},  {"in", 4, 'i'}, {"not", 4, 'n'}, {"+", 5, '+'}, {"-", 5, '-'},
    {"~", 6, '~'},  {"*", 7, '*'},   {"/", 7, '/'},  {"//", 7, 'd'},  {"%", 7, '%'}, {"**", 8, '^'}};

static int ignis__chat_find_operator(ignis__chat *chat)
{
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__chat_operators); i++)
        if (ignis__chat_is_word(chat, ignis__chat_operators[i].text) &&
            (ignis__chat_operators[i].sign != 'n' || ignis__chat_follows(chat, "in")))
            return i;
    return -1;
}

static ignis__chat_node *ignis__chat_read_binary(ignis__chat *chat, int level)
{
    ignis__chat_node *left, *node;
    size_t at = chat->start;
    int op;
    ignis__chat_nest(chat);
    if (level <= 3 && ignis__chat_accept(chat, "not")) {
        left = ignis__chat_wrap_node(chat, IGNIS__CHAT_UNARY, at, ignis__chat_read_binary(chat, 3));
        left->sign = '!';
    } else {
        left = ignis__chat_read_unary(chat, true);
    }
    while ((op = ignis__chat_find_operator(chat)) >= 0 && ignis__chat_operators[op].level >= level) {
        char sign = ignis__chat_operators[op].sign;
        int tighter = ignis__chat_operators[op].level + 1;
        at = chat->start;
        ignis__chat_next_token(chat);
        if (sign == 'n')
            ignis__chat_next_token(chat);
        if (tighter == 5) {
            if (left->op != IGNIS__CHAT_COMPARE || left->sign) /* sign: in parentheses */
                left = ignis__chat_wrap_node(chat, IGNIS__CHAT_COMPARE, at, left);
            node = ignis__chat_wrap_node(chat, IGNIS__CHAT_PRINT, at, ignis__chat_read_binary(chat, tighter));
            ignis__chat_append(left, node);
        } else {
            left = node = ignis__chat_wrap_node(chat, IGNIS__CHAT_BINARY, at, left);
            node->b = ignis__chat_read_binary(chat, tighter);
        }
        node->sign = (unsigned char)sign;
    }
    if (left->op == IGNIS__CHAT_COMPARE)
        left->sign = 1;
    chat->nesting--;
    return left;
}

/*  Reads an expression without a conditional: a following `if` is not part of it. */
IGNIS__PRIVATE ignis__chat_node *ignis__chat_read_condition(ignis__chat *chat)
{
    return ignis__chat_read_binary(chat, 1);
}

IGNIS__PRIVATE ignis__chat_node *ignis__chat_read_expression(ignis__chat *chat)
{
    ignis__chat_node *node = ignis__chat_read_binary(chat, 1);
    size_t at = chat->start;
    while (ignis__chat_accept(chat, "if")) {
        node = ignis__chat_wrap_node(chat, IGNIS__CHAT_CHOICE, at, node);
        node->b = ignis__chat_read_binary(chat, 1);
        if (ignis__chat_accept(chat, "else")) {
            ignis__chat_nest(chat);
            node->c = ignis__chat_read_expression(chat);
            chat->nesting--;
        }
        at = chat->start;
    }
    return node;
}
