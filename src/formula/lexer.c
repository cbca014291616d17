/*  >>formula.lexer - the tokens of a formula, and its limits

    Splits a text into names, numbers and operators. After the first error every token is the end of the text,
    so the parser stops by itself and the error with its column is reported once. */

#include "room.h"

#define IGNIS__FORMULA_TOKENS 1000

IGNIS__PRIVATE bool ignis__formula_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
IGNIS__PRIVATE bool ignis__formula_is_digit(char c) { return c >= '0' && c <= '9'; }
IGNIS__PRIVATE size_t ignis__formula_name_length(const char *text)
{
    size_t length = 0;
    while (ignis__formula_is_letter(text[length]) || (length && ignis__formula_is_digit(text[length])))
        length++;
    return length;
}

/*  Returns the length of a number: 12, 1.5, 1.5f, 1e-3 or, with up to 16 digits, 0xff. */
static size_t ignis__formula_number_length(const char *text)
{
    static const char *const digits = "0123456789";
    size_t length = strspn(text, digits), whole = length, exponent;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        length = strspn(text + 2, "0123456789abcdefABCDEF");
        return length ? 2 + (length < 16 ? length : 16) : 1;
    }
    length += text[length] == '.';
    length += strspn(text + length, digits);
    if (text[length] == 'e' || text[length] == 'E') {
        exponent = 1 + (size_t)(text[length + 1] == '+' || text[length + 1] == '-');
        if (ignis__formula_is_digit(text[length + exponent]))
            length += exponent + strspn(text + length + exponent, digits);
    }
    return length + (length > whole && (text[length] == 'f' || text[length] == 'F'));
}

IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE int ignis__formula_syntax_error(ignis__formula_parser *r, size_t at, const char *format, ...)
{
    va_list args;
    if (!*r->fault) {
        va_start(args, format);
        vsnprintf(r->fault, sizeof r->fault, format, args);
        va_end(args);
        r->column = at + 1;
        r->kind = 0;
    }
    return 0;
}

/*  Moves to the next token. */
IGNIS__PRIVATE void ignis__formula_next_token(ignis__formula_parser *parser)
{
    const char *text = parser->text;
    size_t at = parser->at;
    if (*parser->fault)
        return;
    at += strspn(text + at, " \t\r\n");
    parser->start = at;
    if (!parser->inside && ++parser->tokens > IGNIS__FORMULA_TOKENS) {
        ignis__formula_syntax_error(parser, at, "the formula has more than %d words and signs", IGNIS__FORMULA_TOKENS);
        return;
    }
    if (!text[at]) {
        parser->kind = 0;
    } else if (ignis__formula_is_letter(text[at])) {
        parser->kind = 'a';
        at += ignis__formula_name_length(text + at);
    } else if (ignis__formula_is_digit(text[at]) || (text[at] == '.' && ignis__formula_is_digit(text[at + 1]))) {
        parser->kind = '0';
        at += ignis__formula_number_length(text + at);
        if (ignis__formula_is_letter(text[at]) || ignis__formula_is_digit(text[at]) || text[at] == '.')
            ignis__formula_syntax_error(parser, at, "'%c' does not belong to a number", text[at]);
    } else {
        parser->kind = '+';
        if (!strchr("+-*/%<>=!&|^~?:;(),", text[at]))
            ignis__formula_syntax_error(parser, at, "'%c' is no part of a formula",
                                        text[at] > ' ' && text[at] < 127 ? text[at] : '?');
        else if (text[at] == '*' && text[at + 1] == '*')
            ignis__formula_syntax_error(parser, at, "'**' is no part of a formula; use pow(a, b)");
        else if ((strchr("&|<>", text[at]) && text[at + 1] == text[at]) ||
                 (strchr("<>=!", text[at]) && text[at + 1] == '='))
            at++;
        at++;
    }
    parser->at = at;
}

IGNIS__PRIVATE bool ignis__formula_at_token(const ignis__formula_parser *r, const char *sign)
{
    size_t length = strlen(sign);
    return r->kind == '+' && r->at - r->start == length && strncmp(r->text + r->start, sign, length) == 0;
}

IGNIS__PRIVATE bool ignis__formula_accept(ignis__formula_parser *r, const char *sign)
{
    bool is = ignis__formula_at_token(r, sign);
    if (is)
        ignis__formula_next_token(r);
    return is;
}

/*  Writes the current token to *out for a message. */
IGNIS__COLD IGNIS__PRIVATE const char *ignis__formula_token_text(const ignis__formula_parser *r, char *out, size_t size)
{
    size_t length = r->at - r->start;
    if (r->kind)
        snprintf(out, size, "'%.*s'", (int)(length < 30 ? length : 30), r->text + r->start);
    else
        snprintf(out, size, "the end");
    return out;
}

IGNIS__PRIVATE void ignis__formula_expect(ignis__formula_parser *r, const char *sign)
{
    char token[40];
    if (!ignis__formula_accept(r, sign))
        ignis__formula_syntax_error(r, r->start, "'%s' is expected before %s", sign,
                                    ignis__formula_token_text(r, token, sizeof token));
}
