/*  >>formula.gradient_formula - the gradient of a formula as a formula, which can be differentiated again

    A text "@5,1 formula" has as results the gradients of result 1 by the inputs whose bits are in 5. The gradient of
    that result is one input more, the last; with "@5,1! formula" it is 1. Prefixes nest, so a gradient of any order is
    a text, as caches and bundles need it.
    Reverse mode: from the last term to the first, each hands its adjoint on to its arguments. An adjoint that a choice
    has made 0 has a mask: the condition under which it may be another number. Products with it are chosen by the mask,
    so an infinity in the branch not taken reaches no gradient, of any order.
    Uses: functions, lexer, parse. */

#include "room.h"

/*  The additions of a function to the adjoints of its arguments a and b; c is its result, d the result's adjoint. The
    conditions under which that is not 0; NULL: any. */
static const struct {
    const char *name, *adjoint[2], *mask[2];
} ignis__formula_adjoints[] = {
    {"+", {"d", "d"}, {NULL, NULL}},
    {"-", {"d", "-d"}, {NULL, NULL}},
    {"*", {"d*b", "d*a"}, {NULL, NULL}},
    {"/", {"d/b", "-d*c/b"}, {NULL, NULL}},
    {"%", {"d", "-d*trunc(a/b)"}, {NULL, NULL}},
    {"abs", {"a > 0 ? d : a < 0 ? -d : a == 0 ? 0 : a", NULL}, {"a != 0", NULL}},
    {"max", {"a < b ? 0 : a == b ? 0.5*d : d", "b < a ? 0 : a == b ? 0.5*d : d"}, {"!(a < b)", "!(b < a)"}},
    {"min", {"a > b ? 0 : a == b ? 0.5*d : d", "b > a ? 0 : a == b ? 0.5*d : d"}, {"!(a > b)", "!(b > a)"}},
    {"relu", {"a <= 0 ? 0 : d", NULL}, {"!(a <= 0)", NULL}},
    {"exp", {"d*c", NULL}, {NULL, NULL}},
    {"exp2", {"d*c*0.693147180559945309", NULL}, {NULL, NULL}},
    {"expm1", {"d*(c + 1)", NULL}, {NULL, NULL}},
    {"log", {"d/a", NULL}, {NULL, NULL}},
    {"log2", {"d*1.44269504088896341/a", NULL}, {NULL, NULL}},
    {"log10", {"d*0.434294481903251828/a", NULL}, {NULL, NULL}},
    {"log1p", {"d/(1 + a)", NULL}, {NULL, NULL}},
    {"sqrt", {"0.5*d/c", NULL}, {NULL, NULL}},
    {"rsqrt", {"-0.5*d*c*c*c", NULL}, {NULL, NULL}},
    {"cbrt", {"d/(3*c*c)", NULL}, {NULL, NULL}},
    {"sin", {"d*cos(a)", NULL}, {NULL, NULL}},
    {"cos", {"-d*sin(a)", NULL}, {NULL, NULL}},
    {"tan", {"d*(1 + c*c)", NULL}, {NULL, NULL}},
    {"asin", {"d*rsqrt(1 - a*a)", NULL}, {NULL, NULL}},
    {"acos", {"-d*rsqrt(1 - a*a)", NULL}, {NULL, NULL}},
    {"atan", {"d/(1 + a*a)", NULL}, {NULL, NULL}},
    {"sinh", {"d*cosh(a)", NULL}, {NULL, NULL}},
    {"cosh", {"d*sinh(a)", NULL}, {NULL, NULL}},
    {"tanh", {"d*(1 - c*c)", NULL}, {NULL, NULL}},
    {"sigmoid", {"d*c*(1 - c)", NULL}, {NULL, NULL}},
    {"softplus", {"d*sigmoid(a)", NULL}, {NULL, NULL}},
    {"erf", {"d*1.12837916709551257*exp(-a*a)", NULL}, {NULL, NULL}},
    {"pow", {"b == 0 ? 0 : d*b*pow(a, b - 1)", "a == 0 && b >= 0 ? 0 : d*c*log(a)"}, {"b != 0", "!(a == 0 && b >= 0)"}},
    {"with_grad", {NULL, "d"}, {NULL, NULL}},
    {"atan2", {"d*b/(a*a + b*b)", "-d*a/(a*a + b*b)"}, {NULL, NULL}},
};

/*  Adjoints of the terms of a formula while they are computed; -1: none. */
typedef struct ignis__formula_reverse {
    ignis__formula_parser *parser;
    bool depends[IGNIS__FORMULA_TERMS]; /* on an input whose gradient is needed */
    short adjoint[IGNIS__FORMULA_TERMS], mask[IGNIS__FORMULA_TERMS];
} ignis__formula_reverse;

/*  Returns the row of the table of functions whose name a formula has for it. */
static int ignis__formula_find(const char *name)
{
    int i = 0;
    while (strcmp(ignis__formula_functions[i].name, name) != 0)
        i++;
    return i;
}

static int ignis__formula_apply_two(ignis__formula_parser *parser, const char *name, int a, int b)
{
    int args[2];
    args[0] = a;
    args[1] = b;
    return *parser->fault ? 0 : ignis__formula_apply(parser, ignis__formula_find(name), args, 0);
}

/*  Returns a ? b : c; c -1: 0. */
static int ignis__formula_select(ignis__formula_parser *parser, int a, int b, int c)
{
    int args[3];
    args[0] = a;
    args[1] = b;
    args[2] = c >= 0 ? c : ignis__formula_add_leaf(parser, IGNIS__FORMULA_NUMBER, 'i', 0, NULL, 0);
    return *parser->fault ? 0 : ignis__formula_apply(parser, IGNIS__FORMULA_SELECT, args, 0);
}

/*  Adds a value to the adjoint of a term. It is 0 where the mask (-1: none) is false. */
static void ignis__formula_add_adjoint(ignis__formula_reverse *reverse, int term, int value, int mask)
{
    ignis__formula_parser *parser = reverse->parser;
    bool first = reverse->adjoint[term] < 0;
    if (*parser->fault)
        return;
    if (!first)
        value = ignis__formula_apply_two(parser, "+", reverse->adjoint[term], value);
    if (!first && mask >= 0)
        mask = reverse->mask[term] < 0 ? -1 : ignis__formula_apply_two(parser, "||", reverse->mask[term], mask);
    reverse->adjoint[term] = (short)value;
    reverse->mask[term] = (short)mask;
}

/*  Hands a value on to the adjoint of a term, from term `at`. own: a condition under which it is not 0; -1: none.
    plain: it is 0 where the adjoint of `at` is. */
static void ignis__formula_hand_on(ignis__formula_reverse *reverse, int at, int to, int value, int own, bool plain)
{
    ignis__formula_parser *parser = reverse->parser;
    int mask = reverse->mask[at];
    if (own >= 0)
        mask = mask < 0 ? own : ignis__formula_apply_two(parser, "&&", mask, own);
    if (mask >= 0 && !plain)
        value = ignis__formula_select(parser, mask, value, -1);
    ignis__formula_add_adjoint(reverse, to, value, mask);
}

/*  Hands the adjoint of a choice on to its branches. */
static void ignis__formula_reverse_select(ignis__formula_reverse *reverse, int at)
{
    ignis__formula_parser *parser = reverse->parser;
    const ignis__formula_term term = parser->term[at];
    int condition = term.arg[0], i;
    for (i = 1; i < 3 && !*parser->fault; i++) {
        if (i == 2)
            condition = ignis__formula_apply(parser, IGNIS__FORMULA_NOT, &condition, 0);
        if (reverse->depends[term.arg[i]])
            ignis__formula_hand_on(reverse, at, term.arg[i],
                                   ignis__formula_select(parser, condition, reverse->adjoint[at], -1), condition, true);
    }
}

/*  Hands the adjoint of a power on: times n and the power with n - 1. */
static void ignis__formula_reverse_power(ignis__formula_reverse *reverse, int at)
{
    ignis__formula_parser *parser = reverse->parser;
    const ignis__formula_term term = parser->term[at];
    int n = ignis__formula_add_leaf(parser, IGNIS__FORMULA_NUMBER, 'i', term.number, NULL, 0);
    int value = ignis__formula_apply_two(parser, "*", reverse->adjoint[at], n);
    value = ignis__formula_apply_two(parser, "*", value, ignis__formula_power(parser, term.arg[0], term.number - 1));
    ignis__formula_hand_on(reverse, at, term.arg[0], value, -1, false);
}

/*  Hands the adjoint of a term on to its arguments. */
static void ignis__formula_reverse_term(ignis__formula_reverse *reverse, int at)
{
    ignis__formula_parser *parser = reverse->parser;
    const ignis__formula_term term = parser->term[at];
    const ignis__formula_function *function = &ignis__formula_functions[term.function];
    const char *adjoint, *mask;
    int args[4], row = 0, i, value, own;
    if (term.function == IGNIS__FORMULA_SELECT || term.function == IGNIS__FORMULA_POWER) {
        if (term.function == IGNIS__FORMULA_SELECT)
            ignis__formula_reverse_select(reverse, at);
        else
            ignis__formula_reverse_power(reverse, at);
        return;
    }
    while (row < IGNIS__COUNT(ignis__formula_adjoints) &&
           strcmp(ignis__formula_adjoints[row].name, function->name) != 0)
        row++;
    args[0] = term.arg[0];
    args[1] = function->count > 1 ? term.arg[1] : term.arg[0];
    args[2] = at;
    args[3] = reverse->adjoint[at];
    for (i = 0; i < function->count && i < 2; i++) {
        if (!function->partial[i] || !reverse->depends[term.arg[i]])
            continue;
        adjoint = term.function == IGNIS__FORMULA_NEG           ? "-d"
                  : row < IGNIS__COUNT(ignis__formula_adjoints) ? ignis__formula_adjoints[row].adjoint[i]
                                                                : NULL;
        mask = row < IGNIS__COUNT(ignis__formula_adjoints) ? ignis__formula_adjoints[row].mask[i] : NULL;
        if (!adjoint) {
            ignis__formula_syntax_error(parser, 0, "the gradient of '%s' cannot be differentiated", function->name);
            return;
        }
        value = ignis__formula_apply_body(parser, adjoint, 4, args);
        own = mask ? ignis__formula_apply_body(parser, mask, 4, args) : -1;
        ignis__formula_hand_on(reverse, at, term.arg[i], value, own,
                               strcmp(adjoint, "d") == 0 || strcmp(adjoint, "-d") == 0);
    }
}

/*  Makes the gradients of a term by the needed inputs the results, in the order of the inputs. upstream: the gradient
    of the term. */
static void ignis__formula_differentiate(ignis__formula_reverse *reverse, int of, uint32_t needed, int upstream)
{
    ignis__formula_parser *parser = reverse->parser;
    int at, i, zero;
    for (at = 0; at <= of; at++) {
        const ignis__formula_term *term = &parser->term[at];
        reverse->adjoint[at] = reverse->mask[at] = -1;
        reverse->depends[at] =
            term->function == IGNIS__FORMULA_INPUT && term->type == 'w' && needed >> term->number & 1;
        for (i = 0; i < ignis__formula_functions[term->function].count && term->type == 'w'; i++)
            reverse->depends[at] = reverse->depends[at] || reverse->depends[term->arg[i]];
    }
    reverse->adjoint[of] = (short)upstream;
    for (at = of; at >= 0 && !*parser->fault; at--)
        if (reverse->depends[at] && reverse->adjoint[at] >= 0 && parser->term[at].function != IGNIS__FORMULA_INPUT)
            ignis__formula_reverse_term(reverse, at);
    zero = ignis__formula_add_leaf(parser, IGNIS__FORMULA_NUMBER, 'w', 0, NULL, 0);
    for (i = 0, parser->result_count = 0; i < parser->inputs && !*parser->fault; i++)
        if (needed >> i & 1)
            parser->result[parser->result_count++] =
                i <= of && reverse->adjoint[i] >= 0 ? reverse->adjoint[i] : zero; /* the first terms are the inputs */
}

/*  Reads a number of a prefix. */
static uint32_t ignis__formula_prefix_number(const char *text, size_t *at)
{
    uint32_t number = 0;
    for (; ignis__formula_is_digit(text[*at]); ++*at)
        number = 10 * number + (uint32_t)(text[*at] - '0');
    return number;
}

/*  Parses a program that begins with "@needed,result ". False if it does not. */
IGNIS__PRIVATE bool ignis__formula_parse_gradient(ignis__formula_parser *parser)
{
    ignis__formula_reverse *reverse;
    uint32_t needed, result;
    int inputs, upstream;
    bool is_one;
    if (parser->text[parser->at] != '@' || !ignis__formula_is_digit(parser->text[parser->at + 1]))
        return false;
    parser->at++;
    needed = ignis__formula_prefix_number(parser->text, &parser->at);
    parser->at += parser->text[parser->at] == ',';
    result = ignis__formula_prefix_number(parser->text, &parser->at);
    is_one = parser->text[parser->at] == '!';
    parser->at += is_one;
    parser->at += parser->text[parser->at] == ' ';
    parser->gradients += !is_one;
    inputs = parser->inputs - parser->gradients;
    if (inputs < 1 || needed == 0 || needed >> inputs) {
        ignis__formula_syntax_error(parser, 0, "the gradient of a formula needs its inputs, and one more");
        return true;
    }
    ignis__formula_parse_program(parser);
    upstream = is_one ? ignis__formula_add_leaf(parser, IGNIS__FORMULA_NUMBER, 'w', 1, NULL, 0) : inputs;
    if (*parser->fault || result >= (uint32_t)parser->result_count)
        return ignis__formula_syntax_error(parser, 0, "the formula has no result %d", (int)result), true;
    reverse = (ignis__formula_reverse *)ignis__alloc(sizeof *reverse);
    if (!reverse)
        return ignis__formula_syntax_error(parser, 0, "out of host memory"), true;
    reverse->parser = parser;
    ignis__formula_differentiate(reverse, parser->result[result], needed, upstream);
    ignis__free(reverse);
    return true;
}
