/*  >>formula.parse - parses a formula into typed terms

    Recursive descent over the lexer's tokens. Equal terms are one term; constants are folded where C would.
    Uses: functions, lexer. Returns the index of a term; after an error the result is not used. */

#include "room.h"

IGNIS__PRIVATE bool ignis__formula_parse_gradient(ignis__formula_parser *parser); /* it parses the formula inside */

/*  Returns the term equal to `wanted`; adds it if there is none. */
static int ignis__formula_add_term(ignis__formula_parser *r, const ignis__formula_term *wanted)
{
    int i;
    for (i = r->term_count - 1; i >= 0; i--) {
        const ignis__formula_term *term = &r->term[i];
        if (term->function == wanted->function && term->type == wanted->type && term->number == wanted->number &&
            memcmp(term->arg, wanted->arg, sizeof term->arg) == 0 && term->length == wanted->length &&
            (term->length == 0 || memcmp(term->text, wanted->text, (size_t)term->length) == 0))
            return i;
    }
    if (r->term_count == IGNIS__FORMULA_TERMS)
        return ignis__formula_syntax_error(r, r->start, "the formula has more than %d operations",
                                           IGNIS__FORMULA_TERMS);
    r->term[r->term_count] = *wanted;
    return r->term_count++;
}

/*  Adds a term without arguments. */
IGNIS__PRIVATE int ignis__formula_add_leaf(ignis__formula_parser *r, int function, char type, int64_t number,
                                           const char *text, size_t length)
{
    ignis__formula_term term = IGNIS__ZERO;
    term.function = (short)function;
    term.type = type;
    term.number = number;
    term.text = text;
    term.length = (short)length;
    return ignis__formula_add_term(r, &term);
}

static int ignis__formula_add_integer(ignis__formula_parser *r, int64_t number)
{
    return ignis__formula_add_leaf(r, IGNIS__FORMULA_NUMBER, 'i', number, NULL, 0);
}

/*  Converts a term to W, or to a truth value. */
static int ignis__formula_convert(ignis__formula_parser *r, char type, int x)
{
    ignis__formula_term term;
    if (r->term[x].type == type)
        return x;
    if (r->term[x].function == IGNIS__FORMULA_NUMBER && type == 'w')
        return ignis__formula_add_leaf(r, IGNIS__FORMULA_NUMBER, 'w', r->term[x].number, NULL, 0);
    memset(&term, 0, sizeof term);
    term.function = type == 'w' ? IGNIS__FORMULA_WIDE : IGNIS__FORMULA_TRUTH;
    term.type = type;
    term.arg[0] = (short)x;
    return ignis__formula_add_term(r, &term);
}

/*  Applies a function to terms, converted to the types that it takes. */
IGNIS__PRIVATE int ignis__formula_apply(ignis__formula_parser *r, int function, const int *args, int64_t number)
{
    const ignis__formula_function *f = &ignis__formula_functions[function];
    ignis__formula_term term = IGNIS__ZERO;
    bool select = function == IGNIS__FORMULA_SELECT, integers = f->integer != NULL,
         truths = f->type == 'b' && !f->integer;
    int i;
    term.function = (short)function;
    term.number = number;
    for (i = select; i < f->count; i++)
        integers = integers && r->term[args[i]].type != 'w';
    for (i = 0; i < f->count; i++)
        term.arg[i] = (short)ignis__formula_convert(r,
                                                    truths || (select && i == 0) ? 'b'
                                                    : integers                   ? r->term[args[i]].type
                                                                                 : 'w',
                                                    args[i]);
    term.type = f->type != 'n' ? f->type : integers ? 'i' : 'w';
    return ignis__formula_add_term(r, &term);
}

static int ignis__formula_parse_expression(ignis__formula_parser *r);

/*  Applies a formula of a, b, ... to terms. */
IGNIS__PRIVATE int ignis__formula_apply_body(ignis__formula_parser *parser, const char *body, int body_count,
                                             const int *args)
{
    static const char *const letters = "abcd";
    const char *text = parser->text;
    size_t at = parser->at, start = parser->start;
    char kind = parser->kind;
    bool inside = parser->inside;
    int first = parser->name_first, count = parser->name_count, i, result;
    if (*parser->fault || count + body_count > IGNIS__FORMULA_NAMES)
        return ignis__formula_syntax_error(parser, start, "the formula has more than %d names", IGNIS__FORMULA_NAMES);
    for (i = 0; i < body_count; i++) {
        parser->name[count + i].text = letters + i;
        parser->name[count + i].length = 1;
        parser->name[count + i].term = args[i];
    }
    parser->name_first = count;
    parser->name_count = count + body_count;
    parser->text = body;
    parser->at = 0;
    parser->inside = true;
    ignis__formula_next_token(parser);
    result = ignis__formula_parse_expression(parser);
    parser->text = text;
    parser->at = at;
    parser->start = start;
    parser->kind = *parser->fault ? 0 : kind;
    parser->inside = inside;
    parser->name_first = first;
    parser->name_count = count;
    return result;
}

/*  Parses index(d); d is a literal. */
static int ignis__formula_parse_index(ignis__formula_parser *r, size_t start)
{
    const ignis__formula_term *term;
    int at, count = 0, dim;
    ignis__formula_next_token(r);
    dim = ignis__formula_parse_expression(r);
    ignis__formula_expect(r, ")");
    if (*r->fault)
        return 0;
    term = &r->term[dim];
    if (term->function != IGNIS__FORMULA_NUMBER || term->type != 'i' || term->number < -IGNIS_MAX_DIMS ||
        term->number >= IGNIS_MAX_DIMS)
        return ignis__formula_syntax_error(r, start, "index takes the number of a dimension, -%d to %d", IGNIS_MAX_DIMS,
                                           IGNIS_MAX_DIMS - 1);
    at = ignis__formula_add_leaf(r, IGNIS__FORMULA_INDEX, 'i', term->number, NULL, 0);
    for (dim = 0; dim < r->term_count; dim++)
        count += r->term[dim].function == IGNIS__FORMULA_INDEX;
    return count <= IGNIS__FORMULA_INDICES
               ? at
               : ignis__formula_syntax_error(r, start, "the formula has more than %d indices", IGNIS__FORMULA_INDICES);
}

/*  Parses rand() or randn(). Each is a random number of its own. */
static int ignis__formula_parse_random(ignis__formula_parser *r, size_t start, bool normal)
{
    int uniform[2] = {0, 0}, i;
    ignis__formula_next_token(r);
    ignis__formula_expect(r, ")");
    for (i = 0; i < 1 + normal; i++) {
        if (r->randoms == IGNIS__FORMULA_INDICES)
            return ignis__formula_syntax_error(r, start,
                                               "the formula takes more than %d random numbers, of which randn() is two",
                                               IGNIS__FORMULA_INDICES);
        uniform[i] = ignis__formula_add_leaf(r, IGNIS__FORMULA_RAND, 'w', r->randoms++, NULL, 0);
    }
    return normal && !*r->fault ? ignis__formula_apply(r, IGNIS__FORMULA_RANDN, uniform, 0) : uniform[0];
}

/*  Raises a term to a literal integer power. An integer stays an integer, unless the result may be a
    fraction, or both are literals. */
IGNIS__PRIVATE int ignis__formula_power(ignis__formula_parser *r, int x, int64_t n)
{
    if (n < 0 || r->term[x].function == IGNIS__FORMULA_NUMBER)
        x = ignis__formula_convert(r, 'w', x);
    if (n == 0) /* of NaN too */
        return r->term[x].type == 'w' ? ignis__formula_convert(r, 'w', ignis__formula_add_integer(r, 1))
                                      : ignis__formula_add_integer(r, 1);
    return ignis__formula_apply(r, IGNIS__FORMULA_POWER, &x, n);
}

/*  Finds the integer that a term of type W was converted from. False if there is none. */
static bool ignis__formula_find_integer(ignis__formula_parser *r, int x, int *integer)
{
    const ignis__formula_term *term = &r->term[x];
    bool number = term->function == IGNIS__FORMULA_NUMBER && !term->text;
    if (number || term->function == IGNIS__FORMULA_WIDE)
        *integer = number ? ignis__formula_add_integer(r, term->number) : term->arg[0];
    return number || term->function == IGNIS__FORMULA_WIDE;
}

/*  Parses the call of a function, after its name, which begins at `start`. */
static int ignis__formula_parse_call(ignis__formula_parser *parser, size_t start, size_t length)
{
    const char *name = parser->text + start;
    int function, count = 0, args[3] = {0, 0, 0};
    const ignis__formula_function *f = NULL;
    if (length == 5 && strncmp(name, "index", length) == 0)
        return ignis__formula_parse_index(parser, start);
    if ((length == 4 || length == 5) && strncmp(name, "randn", length) == 0)
        return ignis__formula_parse_random(parser, start, length == 5);
    for (function = 0; function < IGNIS__COUNT(ignis__formula_functions); function++) {
        f = &ignis__formula_functions[function];
        if (strlen(f->name) == length && strncmp(f->name, name, length) == 0)
            break;
    }
    if (function == IGNIS__COUNT(ignis__formula_functions))
        return ignis__formula_syntax_error(parser, start, "there is no function '%.*s'%s",
                                           (int)(length < 30 ? length : 30), name,
                                           ignis__formula_hint_of(name, length).text);
    ignis__formula_next_token(parser);
    if (!ignis__formula_at_token(parser, ")")) {
        do {
            int arg = ignis__formula_parse_expression(parser);
            if (count < 3)
                args[count] = arg;
            count++;
        } while (ignis__formula_accept(parser, ","));
    }
    ignis__formula_expect(parser, ")");
    if (count != f->count)
        return ignis__formula_syntax_error(parser, start, "%s takes %d value%s, not %d", f->name, f->count,
                                           f->count == 1 ? "" : "s", count);
    if (*parser->fault)
        return 0;
    if (f->body)
        return ignis__formula_apply_body(parser, f->body, f->count, args);
    if (strcmp(f->name, "pow") == 0 && parser->term[args[1]].function == IGNIS__FORMULA_NUMBER &&
        parser->term[args[1]].type == 'i')
        return ignis__formula_power(parser, args[0], parser->term[args[1]].number);
    if (function >= IGNIS__FORMULA_WHOLE && function < IGNIS__FORMULA_WHOLE_QUOTIENT &&
        parser->term[args[0]].function == IGNIS__FORMULA_DIVIDE) {
        const short *of = parser->term[args[0]].arg;
        int sides[2];
        if (ignis__formula_find_integer(parser, of[0], &sides[0]) &&
            ignis__formula_find_integer(parser, of[1], &sides[1]))
            return ignis__formula_apply(parser, function + IGNIS__FORMULA_WHOLE_QUOTIENT - IGNIS__FORMULA_WHOLE, sides,
                                        0);
    }
    return ignis__formula_apply(parser, function, args, 0);
}

IGNIS__COLD static int ignis__formula_unknown_name(ignis__formula_parser *r, size_t start, size_t length)
{
    char names[300] = "";
    ignis__string_writer text;
    int i;
    ignis__string_begin(&text, names, sizeof names);
    for (i = r->name_first; i < r->name_count; i++)
        ignis__string_add(&text, "%s%.*s", i > r->name_first ? ", " : "", (int)r->name[i].length, r->name[i].text);
    return ignis__formula_syntax_error(r, start, "'%.*s' is not known%s; the names are %s",
                                       (int)(length < 30 ? length : 30), r->text + start,
                                       ignis__formula_hint_of(r->text + start, length).text, names);
}

/*  Parses a name, a call, a number or an expression in parentheses. */
static int ignis__formula_parse_primary(ignis__formula_parser *parser)
{
    size_t start = parser->start, length = parser->at - start, digit;
    const char *text = parser->text + start;
    char kind = parser->kind, token[40];
    int i;
    if (ignis__formula_accept(parser, "(")) {
        i = ignis__formula_parse_expression(parser);
        ignis__formula_expect(parser, ")");
        return i;
    }
    if (kind != 'a' && kind != '0')
        return ignis__formula_syntax_error(parser, start, "%s where a value is expected",
                                           ignis__formula_token_text(parser, token, sizeof token));
    ignis__formula_next_token(parser);
    if (kind == '0' && length > 2 && (text[1] == 'x' || text[1] == 'X')) {
        uint64_t bits = 0;
        for (digit = 2; digit < length; digit++)
            bits = bits << 4 |
                   (uint64_t)(ignis__formula_is_digit(text[digit]) ? text[digit] - '0' : (text[digit] | 32) - 'a' + 10);
        return ignis__formula_add_integer(parser, (int64_t)bits);
    }
    if (kind == '0') {
        int64_t number = 0;
        length -= text[length - 1] == 'f' || text[length - 1] == 'F';
        for (digit = 0; digit < length && ignis__formula_is_digit(text[digit]); digit++) {
            if (number > (INT64_MAX - 9) / 10)
                break;
            number = 10 * number + (text[digit] - '0');
        }
        return digit == length ? ignis__formula_add_integer(parser, number)
                               : ignis__formula_add_leaf(parser, IGNIS__FORMULA_NUMBER, 'w', 0, text, length);
    }
    if (ignis__formula_at_token(parser, "("))
        return ignis__formula_parse_call(parser, start, length);
    for (i = parser->name_count - 1; i >= parser->name_first; i--)
        if (parser->name[i].length == length && strncmp(parser->name[i].text, text, length) == 0)
            return parser->name[i].term;
    for (i = 0; i < IGNIS__COUNT(ignis__formula_constants); i++)
        if (strlen(ignis__formula_constants[i].name) == length &&
            strncmp(ignis__formula_constants[i].name, text, length) == 0)
            return ignis__formula_add_leaf(parser, IGNIS__FORMULA_NUMBER, 'w', 0, ignis__formula_constants[i].value,
                                           strlen(ignis__formula_constants[i].value));
    return ignis__formula_unknown_name(parser, start, length);
}

/*  Checks that a term may be an operand of a bit operator, which begins at `start`. */
static bool ignis__formula_check_integer(ignis__formula_parser *r, size_t start, const char *name, int x)
{
    if (r->term[x].type == 'w')
        ignis__formula_syntax_error(r, start, "'%s' takes integers, and one here is a floating number%s", name,
                                    *name == '^'                     ? "; pow(a, b) is a power"
                                    : (*name == '&' || *name == '|') ? "; && and || are those of truth values"
                                                                     : "");
    return !*r->fault;
}

/*  Parses an expression after its signs. Signs are counted, as they nest. */
static int ignis__formula_parse_unary(ignis__formula_parser *parser)
{
    bool minus = ignis__formula_at_token(parser, "-"), bits = ignis__formula_at_token(parser, "~");
    size_t start = parser->start;
    int x;
    if (!minus && !bits && !ignis__formula_at_token(parser, "!") && !ignis__formula_at_token(parser, "+"))
        return ignis__formula_parse_primary(parser);
    if (++parser->depth > IGNIS__FORMULA_DEPTH)
        return ignis__formula_syntax_error(parser, parser->start, "the formula is nested deeper than %d",
                                           IGNIS__FORMULA_DEPTH);
    if (ignis__formula_accept(parser, "+")) {
        x = ignis__formula_parse_unary(parser);
    } else {
        ignis__formula_next_token(parser);
        x = ignis__formula_parse_unary(parser);
        if (minus && parser->term[x].function == IGNIS__FORMULA_NUMBER && parser->term[x].type == 'i')
            x = ignis__formula_add_integer(parser, (int64_t)(0 - (uint64_t)parser->term[x].number));
        else if (!*parser->fault && (!bits || ignis__formula_check_integer(parser, start, "~", x)))
            x = ignis__formula_apply(parser,
                                     minus  ? IGNIS__FORMULA_NEG
                                     : bits ? IGNIS__FORMULA_INVERT
                                            : IGNIS__FORMULA_NOT,
                                     &x, 0);
    }
    parser->depth--;
    return x;
}

/*  Parses binary operators by their precedence. */
static int ignis__formula_parse_binary(ignis__formula_parser *parser, int level)
{
    static const char *const levels[] = {"||", "&&", "|", "^", "&", "== !=", "<= >= < >", "<< >>", "+ -", "* / %"};
    const char *name;
    int sides[2], function;
    if (level == IGNIS__COUNT(levels))
        return ignis__formula_parse_unary(parser);
    sides[0] = ignis__formula_parse_binary(parser, level + 1);
    for (;;) {
        size_t length = parser->at - parser->start, start = parser->start;
        for (function = 0; function < IGNIS__COUNT(ignis__formula_functions); function++) {
            name = ignis__formula_functions[function].name;
            if (ignis__formula_functions[function].count == 2 && *name && !ignis__formula_is_letter(*name) &&
                ignis__formula_at_token(parser, name))
                break;
        }
        if (function == IGNIS__COUNT(ignis__formula_functions) || *parser->fault)
            return sides[0];
        { /* does the list of this level have the operator's name as a word? */
            const char *found = strstr(levels[level], name);
            while (found && (found[length] > ' ' || (found > levels[level] && found[-1] > ' ')))
                found = strstr(found + 1, name);
            if (!found)
                return sides[0];
        }
        ignis__formula_next_token(parser);
        sides[1] = ignis__formula_parse_binary(parser, level + 1);
        if (!*parser->fault && ignis__formula_functions[function].type == 'i')
            (void)(ignis__formula_check_integer(parser, start, name, sides[0]) &&
                   ignis__formula_check_integer(parser, start, name, sides[1]));
        if (*parser->fault)
            return 0;
        sides[0] = ignis__formula_apply(parser, function, sides, 0);
    }
}

static int ignis__formula_parse_expression(ignis__formula_parser *r)
{
    int args[3];
    if (++r->depth > IGNIS__FORMULA_DEPTH)
        return ignis__formula_syntax_error(r, r->start, "the formula is nested deeper than %d", IGNIS__FORMULA_DEPTH);
    args[0] = ignis__formula_parse_binary(r, 0);
    if (ignis__formula_accept(r, "?")) {
        args[1] = ignis__formula_parse_expression(r);
        ignis__formula_expect(r, ":");
        args[2] = ignis__formula_parse_expression(r);
        args[0] = *r->fault ? 0 : ignis__formula_apply(r, IGNIS__FORMULA_SELECT, args, 0);
    }
    r->depth--;
    return args[0];
}

/*  Parses statements `name = expression;`, then the expressions of the results. */
IGNIS__PRIVATE void ignis__formula_parse_program(ignis__formula_parser *parser)
{
    char token[40];
    int result;
    if (ignis__formula_parse_gradient(parser))
        return;
    ignis__formula_next_token(parser);
    while (parser->kind == 'a') {
        size_t start = parser->start, length = parser->at - start,
               behind = parser->at + strspn(parser->text + parser->at, " \t\r\n");
        ignis__formula_name *name = &parser->name[parser->name_count];
        if (parser->text[behind] != '=' || parser->text[behind + 1] == '=')
            break;
        ignis__formula_next_token(parser);
        ignis__formula_next_token(parser);
        result = ignis__formula_parse_expression(parser);
        ignis__formula_expect(parser, ";");
        if (parser->name_count == IGNIS__FORMULA_NAMES)
            ignis__formula_syntax_error(parser, start, "the formula has more than %d names", IGNIS__FORMULA_NAMES);
        if (*parser->fault)
            return;
        name->text = parser->text + start;
        name->length = length;
        name->term = result;
        parser->name_count++;
    }
    do {
        size_t start = parser->start;
        result = ignis__formula_parse_expression(parser);
        if (parser->result_count == IGNIS_MAX_INPUTS)
            ignis__formula_syntax_error(parser, start, "the formula has more than %d results", IGNIS_MAX_INPUTS);
        else
            parser->result[parser->result_count++] = result;
    } while (ignis__formula_accept(parser, ","));
    ignis__formula_accept(parser, ";");
    if (parser->kind)
        ignis__formula_syntax_error(
            parser, parser->start, "%s is not expected here%s", ignis__formula_token_text(parser, token, sizeof token),
            ignis__formula_hint_of(parser->text + parser->start, parser->at - parser->start).text);
}

/*  Splits the names of inputs, which a macro made from its arguments: `x`, or MACRO(x, ...), whose first
    argument is the name. False if the last name is neither, or one too many. */
IGNIS__PRIVATE bool ignis__formula_parse_names(const char *text, ignis__formula_name *names, int *count, int capacity)
{
    *count = 0;
    for (;;) {
        ignis__formula_name *name = &names[*count];
        size_t word, length = 0;
        int depth = 0;
        text += strspn(text, " \t\r\n");
        while (text[length] && (depth > 0 || text[length] != ',')) {
            depth += strchr("([{", text[length]) ? 1 : strchr(")]}", text[length]) ? -1 : 0;
            length++;
        }
        if (*count == capacity)
            return false;
        ++*count;
        name->text = text;
        name->length = length;
        word = ignis__formula_name_length(text);
        if (word > 0 && word + strspn(text + word, " \t\r\n") == length) {
            name->length = word;
        } else {
            const char *inner = text + word + strspn(text + word, " \t\r\n");
            if (word == 0 || *inner != '(')
                return false;
            inner += 1 + strspn(inner + 1, " \t\r\n");
            word = ignis__formula_name_length(inner);
            if (word == 0 || inner[word + strspn(inner + word, " \t\r\n")] != ',')
                return false;
            name->text = inner;
            name->length = word;
        }
        if (!text[length])
            return true;
        text += length + 1;
    }
}
