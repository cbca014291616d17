/*  models/chat/parse_expression.c - parses expressions into nodes, by precedence of operators

    A reader of nodes never returns NULL. After a fault its nodes are not evaluated.
    May use: lexer.c, repr.c (numbers). Locks: none. */

#include "room.h"

/*  Makes a node. Never NULL: after a fault it returns a spare node that is not evaluated. */
IGNIS__PRIVATE ignis__chat_node *ignis__chat_node_of(ignis__chat *c, ignis__chat_op op, size_t at)
{
    ignis__chat_node *node = (ignis__chat_node *)ignis__chat_alloc(c, sizeof *node);
    if (!node)
        node = &c->spare;
    node->op = (unsigned char)op;
    node->at = at;
    return node;
}

/*  Enters one more level of nesting in the template's text. */
IGNIS__PRIVATE void ignis__chat_nest(ignis__chat *c)
{
    if (++c->nesting > IGNIS__CHAT_NESTING)
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_LIMIT, c->start, "the template is nested deeper than %d",
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

IGNIS__PRIVATE ignis__chat_node *ignis__chat_expression(ignis__chat *c);
static ignis__chat_node *ignis__chat_binary(ignis__chat *c, int level);

/*  Writes the string literal that is the current token, without its quotes and with its escapes replaced. */
static void ignis__chat_unquote(ignis__chat *c, ignis__chat_writer *out)
{
    static const char plain[] = "ntr\\'\"abfv", values[] = "\n\t\r\\'\"\a\b\f\v";
    size_t at = c->start + 1, end = c->at - 1, from = at, i;
    for (; at < end && !c->fault; from = at) {
        uint32_t code = 0;
        const char *known;
        char piece[4], letter;
        while (at < end && c->text[at] != '\\')
            at++;
        ignis__chat_write(c, out, c->text + from, at - from, NULL, false);
        if (at == end)
            break;
        letter = c->text[++at];
        known = letter ? strchr(plain, letter) : NULL;
        if (known) {
            code = (unsigned char)values[known - plain];
            at++;
        } else if (letter == '\n') {
            at++;
            continue;
        } else if (letter >= '0' && letter <= '7') {
            for (i = 0; i < 3 && at < end && c->text[at] >= '0' && c->text[at] <= '7'; i++)
                code = code * 8 + (uint32_t)(c->text[at++] - '0');
        } else if (letter == 'x' || letter == 'u' || letter == 'U') {
            size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
            for (at++, i = 0; i < digits && at < end && strchr("0123456789abcdefABCDEF", c->text[at]); i++, at++)
                code = code << 4 | (uint32_t)(c->text[at] <= '9' ? c->text[at] - '0' : (c->text[at] | 32) - 'a' + 10);
            if (i < digits || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
                ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, at, "an escape in a text is no character");
        } else if (letter == 'N') {
            ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, at, "\\N in a text");
        } else { /* not an escape: the backslash is kept */
            code = '\\';
        }
        if (!c->fault)
            ignis__chat_write(c, out, piece, (size_t)ignis__utf8_write(piece, code), NULL, false);
    }
}

static ignis__chat_node *ignis__chat_constant(ignis__chat *c, ignis__chat_value value, size_t at)
{
    ignis__chat_node *node = ignis__chat_node_of(c, IGNIS__CHAT_CONST, at);
    node->value = value;
    return node;
}

/*  Makes a node of a list, tuple or dict. Its items follow. */
static ignis__chat_node *ignis__chat_items_node(ignis__chat *c, ignis__chat_kind kind, size_t at)
{
    ignis__chat_node *node = ignis__chat_node_of(c, IGNIS__CHAT_ITEMS_OF, at);
    node->sign = (unsigned char)kind;
    return node;
}

/*  Reads a comma-separated list up to the end of the tag, ')' or '='. Zero or several items make a tuple. */
IGNIS__PRIVATE ignis__chat_node *ignis__chat_commas(ignis__chat *c, ignis__chat_node *(*read)(ignis__chat *c),
                                                    bool empty)
{
    ignis__chat_node *tuple = ignis__chat_items_node(c, IGNIS__CHAT_TUPLE, c->start);
    bool comma = false;
    while (!c->fault && c->kind != 'E' && !ignis__chat_sees(c, ")") && !ignis__chat_sees(c, "=")) {
        ignis__chat_append(tuple, read(c));
        if (!ignis__chat_take(c, ","))
            break;
        comma = true;
    }
    if (!tuple->list && !empty)
        ignis__chat_unexpected(c, "a value");
    return tuple->list && !comma ? tuple->list : tuple;
}

/*  Reads a name, a constant, or an expression in brackets. */
static ignis__chat_node *ignis__chat_primary(ignis__chat *c)
{
    size_t at = c->start;
    ignis__chat_node *node = ignis__chat_node_of(c, IGNIS__CHAT_CONST, at);
    bool list = ignis__chat_sees(c, "["), whole = c->kind == '0';
    node->value = ignis__chat_string(c->text + at, c->at - at, NULL);
    if (ignis__chat_take(c, "none") || ignis__chat_take(c, "None")) {
        node->value = ignis__chat_make(IGNIS__CHAT_NONE, 0);
    } else if (ignis__chat_listed(c, "true True false False")) {
        node->value = ignis__chat_bool((c->text[at] | 32) == 't');
        ignis__chat_next(c);
    } else if (c->kind == 'a') {
        node->op = IGNIS__CHAT_NAME;
        c->caller = c->caller || ignis__chat_sees(c, "caller");
        ignis__chat_next(c);
    } else if (c->kind == '"') {
        ignis__chat_writer out = IGNIS__ZERO;
        for (; c->kind == '"' && !c->fault; ignis__chat_next(c))
            ignis__chat_unquote(c, &out);
        node->value = ignis__chat_string(out.text ? out.text : "", out.size, NULL);
    } else if (whole || c->kind == '.') {
        node->value = whole ? ignis__chat_make(IGNIS__CHAT_INT, 0) : ignis__chat_real(0);
        c->here = at;
        if (!(whole ? ignis__chat_read_int(c, c->text + at, c->at - at, &node->value.number)
                    : ignis__chat_read_real(c->text + at, c->at - at, &node->value.u.real)) ||
            (whole && c->text[at] == '0' && node->value.number))
            ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, at, "a number that is none");
        ignis__chat_next(c);
    } else if (ignis__chat_take(c, "(")) {
        node = ignis__chat_commas(c, ignis__chat_expression, true);
        ignis__chat_want(c, ")");
    } else if (list || ignis__chat_sees(c, "{")) {
        node = ignis__chat_items_node(c, list ? IGNIS__CHAT_LIST : IGNIS__CHAT_DICT, at);
        ignis__chat_next(c);
        while (!c->fault && !ignis__chat_sees(c, list ? "]" : "}")) {
            ignis__chat_append(node, ignis__chat_expression(c));
            if (!list) {
                ignis__chat_want(c, ":");
                ignis__chat_append(node, ignis__chat_expression(c));
            }
            if (!ignis__chat_take(c, ","))
                break;
        }
        ignis__chat_want(c, list ? "]" : "}");
    } else {
        ignis__chat_unexpected(c, "a value");
    }
    return node;
}

/*  Reads arguments after an opening parenthesis. Keyword arguments have their names as values. */
IGNIS__PRIVATE void ignis__chat_arguments(ignis__chat *c, ignis__chat_node *call)
{
    bool named = false;
    ignis__chat_want(c, "(");
    while (!c->fault && !ignis__chat_sees(c, ")")) {
        ignis__chat_value name = ignis__chat_make(IGNIS__CHAT_ABSENT, 0);
        ignis__chat_node *argument;
        size_t at = c->start;
        if (ignis__chat_sees(c, "*") || ignis__chat_sees(c, "**"))
            ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, at, "* and ** before arguments");
        if (c->kind == 'a' && ignis__chat_then(c, "=")) {
            name = ignis__chat_word(c);
            ignis__chat_next(c);
            named = true;
        } else if (named) {
            ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, at,
                              "an argument without a name follows one that has a name");
        }
        argument = ignis__chat_node_of(c, IGNIS__CHAT_PRINT, at);
        argument->a = ignis__chat_expression(c);
        argument->value = name;
        ignis__chat_append(call, argument);
        if (!ignis__chat_take(c, ","))
            break;
    }
    ignis__chat_want(c, ")");
}

IGNIS__PRIVATE ignis__chat_node *ignis__chat_around(ignis__chat *c, ignis__chat_op op, size_t at,
                                                    ignis__chat_node *part)
{
    ignis__chat_node *node = ignis__chat_node_of(c, op, at);
    node->a = part;
    return node;
}

/*  Reads an index or a slice, after its bracket. */
static ignis__chat_node *ignis__chat_subscript(ignis__chat *c, ignis__chat_node *object, size_t at)
{
    ignis__chat_node *node = ignis__chat_around(c, IGNIS__CHAT_ITEM, at, object), *parts[3] = {NULL, NULL, NULL};
    int colons = 0, i;
    bool more = true;
    while (more && !c->fault) {
        if (!ignis__chat_sees(c, ":") && !ignis__chat_sees(c, "]") && !ignis__chat_sees(c, ","))
            parts[colons] = ignis__chat_expression(c);
        more = ignis__chat_take(c, ":");
        colons += more;
        if (colons > 2)
            ignis__chat_unexpected(c, "']'");
    }
    if (ignis__chat_sees(c, ","))
        ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, c->start, "more than one index");
    if (!parts[0] && colons == 0)
        ignis__chat_unexpected(c, "an index");
    node->b = colons ? NULL : parts[0];
    node->op = (unsigned char)(colons ? IGNIS__CHAT_SLICE : IGNIS__CHAT_ITEM);
    for (i = 0; colons && i < 3; i++)
        ignis__chat_append(node,
                           parts[i] ? parts[i] : ignis__chat_constant(c, ignis__chat_make(IGNIS__CHAT_NONE, 0), at));
    ignis__chat_want(c, "]");
    return node;
}

/*  Reads the attributes, items and calls after a value; with `filters` also filters and tests. */
static ignis__chat_node *ignis__chat_postfix(ignis__chat *c, ignis__chat_node *node, bool filters)
{
    bool filtered = false; /* after a filter or test only more of them and calls may follow */
    while (!c->fault) {
        size_t at = c->start;
        if (!filtered && ignis__chat_take(c, ".")) {
            bool name = c->kind == 'a';
            node = ignis__chat_around(c, name ? IGNIS__CHAT_ATTRIBUTE : IGNIS__CHAT_ITEM, c->start, node);
            if (name)
                node->value = ignis__chat_word(c);
            else if (c->kind == '0')
                node->b = ignis__chat_primary(c);
            else
                ignis__chat_unexpected(c, "a name");
        } else if (!filtered && ignis__chat_take(c, "[")) {
            node = ignis__chat_subscript(c, node, at);
        } else if (ignis__chat_sees(c, "(")) {
            node = ignis__chat_around(c, IGNIS__CHAT_CALL, at, node);
            ignis__chat_arguments(c, node);
        } else if (filters && ignis__chat_take(c, "|")) {
            node = ignis__chat_around(c, IGNIS__CHAT_FILTER, c->start, node);
            node->value = ignis__chat_word(c);
            if (ignis__chat_sees(c, "("))
                ignis__chat_arguments(c, node);
            filtered = true;
        } else if (filters && ignis__chat_take(c, "is")) {
            bool negated = ignis__chat_take(c, "not");
            node = ignis__chat_around(c, IGNIS__CHAT_TEST, c->start, node);
            node->sign = negated;
            node->value = ignis__chat_word(c);
            if (ignis__chat_sees(c, "(")) {
                ignis__chat_arguments(c, node);
            } else if ((c->kind == 'a' && !ignis__chat_sees(c, "else") && !ignis__chat_sees(c, "or") &&
                        !ignis__chat_sees(c, "and")) ||
                       (c->kind && strchr("\"0.", c->kind)) || ignis__chat_sees(c, "[") || ignis__chat_sees(c, "{")) {
                ignis__chat_node *argument;
                if (ignis__chat_sees(c, "is"))
                    ignis__chat_unexpected(c, "the end of the test");
                argument = ignis__chat_node_of(c, IGNIS__CHAT_PRINT, c->start);
                argument->a = ignis__chat_postfix(c, ignis__chat_primary(c), false);
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
static ignis__chat_node *ignis__chat_unary(ignis__chat *c, bool filters)
{
    ignis__chat_node *node;
    size_t at = c->start;
    if (!ignis__chat_sees(c, "-") && !ignis__chat_sees(c, "+"))
        return ignis__chat_postfix(c, ignis__chat_primary(c), filters);
    ignis__chat_nest(c);
    ignis__chat_next(c);
    node = ignis__chat_around(c, IGNIS__CHAT_UNARY, at, ignis__chat_unary(c, false));
    node->sign = (unsigned char)c->text[at];
    c->nesting--;
    return ignis__chat_postfix(c, node, filters);
}

IGNIS__PRIVATE const struct ignis__chat_operators_type ignis__chat_operators[] = {
    {"or", 1, 'o'}, {"and", 2, 'a'}, {"==", 4, '='}, {"!=", 4, '!'},  {"<", 4, '<'}, {"<=", 4, 'l'},
    {">", 4, '>'},  {">=", 4, 'g'},  {"in", 4, 'i'}, {"not", 4, 'n'}, {"+", 5, '+'}, {"-", 5, '-'},
    {"~", 6, '~'},  {"*", 7, '*'},   {"/", 7, '/'},  {"//", 7, 'd'},  {"%", 7, '%'}, {"**", 8, '^'}};

static int ignis__chat_operator(ignis__chat *c)
{
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__chat_operators); i++)
        if (ignis__chat_sees(c, ignis__chat_operators[i].text) &&
            (ignis__chat_operators[i].sign != 'n' || ignis__chat_then(c, "in")))
            return i;
    return -1;
}

static ignis__chat_node *ignis__chat_binary(ignis__chat *c, int level)
{
    ignis__chat_node *left, *node;
    size_t at = c->start;
    int op;
    ignis__chat_nest(c);
    if (level <= 3 && ignis__chat_take(c, "not")) {
        left = ignis__chat_around(c, IGNIS__CHAT_UNARY, at, ignis__chat_binary(c, 3));
        left->sign = '!';
    } else {
        left = ignis__chat_unary(c, true);
    }
    while ((op = ignis__chat_operator(c)) >= 0 && ignis__chat_operators[op].level >= level) {
        char sign = ignis__chat_operators[op].sign;
        int tighter = ignis__chat_operators[op].level + 1;
        at = c->start;
        ignis__chat_next(c);
        if (sign == 'n')
            ignis__chat_next(c);
        if (tighter == 5) {
            if (left->op != IGNIS__CHAT_COMPARE || left->sign) /* sign: in parentheses */
                left = ignis__chat_around(c, IGNIS__CHAT_COMPARE, at, left);
            node = ignis__chat_around(c, IGNIS__CHAT_PRINT, at, ignis__chat_binary(c, tighter));
            ignis__chat_append(left, node);
        } else {
            left = node = ignis__chat_around(c, IGNIS__CHAT_BINARY, at, left);
            node->b = ignis__chat_binary(c, tighter);
        }
        node->sign = (unsigned char)sign;
    }
    if (left->op == IGNIS__CHAT_COMPARE)
        left->sign = 1;
    c->nesting--;
    return left;
}

/*  Reads an expression without a conditional: a following `if` is not part of it. */
IGNIS__PRIVATE ignis__chat_node *ignis__chat_condition(ignis__chat *c) { return ignis__chat_binary(c, 1); }

IGNIS__PRIVATE ignis__chat_node *ignis__chat_expression(ignis__chat *c)
{
    ignis__chat_node *node = ignis__chat_binary(c, 1);
    size_t at = c->start;
    while (ignis__chat_take(c, "if")) {
        node = ignis__chat_around(c, IGNIS__CHAT_CHOICE, at, node);
        node->b = ignis__chat_binary(c, 1);
        if (ignis__chat_take(c, "else")) {
            ignis__chat_nest(c);
            node->c = ignis__chat_expression(c);
            c->nesting--;
        }
        at = c->start;
    }
    return node;
}
