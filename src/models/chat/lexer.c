/*  models/chat/lexer.c - splits tags into tokens: names, numbers, strings, operators

    After a fault every token is the end of the template, so that all readers end.
    May use: value.c. Locks: none. */

#include "room.h"

IGNIS__PRIVATE size_t ignis__chat_skip_space(const ignis__chat *c, size_t at)
{
    while (at < c->size && ignis__chat_is_space(c->text + at))
        at += ignis__chat_character(c->text + at);
    return at;
}

IGNIS__PRIVATE bool ignis__chat_at(const ignis__chat *c, size_t at, const char *sign)
{
    size_t length = strlen(sign);
    return at <= c->size && c->size - at >= length && memcmp(c->text + at, sign, length) == 0;
}

static size_t ignis__chat_digits(const ignis__chat *c, size_t at)
{
    while (at < c->size && (ignis__formula_is_digit(c->text[at]) ||
                            (c->text[at] == '_' && at + 1 < c->size && ignis__formula_is_digit(c->text[at + 1]))))
        at++;
    return at;
}

/*  Checks for the end of a tag at a place. If found, skips it, and the white space that it removes. */
IGNIS__PRIVATE bool ignis__chat_tag_end(ignis__chat *c, size_t at, char tag)
{
    char end[3];
    bool minus = ignis__chat_at(c, at, "-"), plus = tag != '{' && ignis__chat_at(c, at, "+");
    end[0] = tag == '{' ? '}' : tag, end[1] = '}', end[2] = 0;
    if (!ignis__chat_at(c, at + (minus || plus), end))
        return false;
    at += 2 + (size_t)(minus || plus);
    if (minus)
        at = ignis__chat_skip_space(c, at);
    else if (!plus && tag != '{' && ignis__chat_at(c, at, "\n"))
        at++;
    c->at = at;
    c->line_start = c->text[at - 1] == '\n';
    return true;
}

/*  Reads the next token of a tag. */
IGNIS__PRIVATE void ignis__chat_next(ignis__chat *c)
{
    static const char *const signs[] = {"**", "//", "==", "!=", "<=", ">="};
    size_t at, i;
    char first;
    if (c->fault)
        return;
    c->start = at = ignis__chat_skip_space(c, c->at);
    c->at = at;
    if (c->brackets == 0 && ignis__chat_tag_end(c, at, c->tag)) {
        c->kind = 'E';
        return;
    }
    if (at == c->size) {
        c->kind = 0;
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, at, "the template ends inside a tag");
        return;
    }
    first = c->text[at];
    if (ignis__formula_is_letter(first)) {
        c->kind = 'a';
        while (at < c->size && (ignis__formula_is_letter(c->text[at]) || ignis__formula_is_digit(c->text[at])))
            at++;
    } else if (ignis__formula_is_digit(first)) {
        size_t end;
        c->kind = '0';
        at = ignis__chat_digits(c, at);
        if (c->start == 0 || c->text[c->start - 1] != '.') {
            end = at < c->size && c->text[at] == '.' ? ignis__chat_digits(c, at + 1) : at;
            if (end > at + 1)
                at = end, c->kind = '.';
            if (at < c->size && (c->text[at] == 'e' || c->text[at] == 'E')) {
                end = at + 1 + (size_t)(ignis__chat_at(c, at + 1, "-") || ignis__chat_at(c, at + 1, "+"));
                if (ignis__chat_digits(c, end) > end)
                    at = ignis__chat_digits(c, end), c->kind = '.';
            }
        }
        if (at < c->size && ignis__formula_is_letter(c->text[at]))
            ignis__chat_fault(c, first == '0' ? IGNIS_DIAG_UNSUPPORTED : IGNIS_DIAG_CHAT_TEMPLATE, c->start,
                              "a number with letters in it");
    } else if (first == '"' || first == '\'') {
        c->kind = '"';
        for (at++; at < c->size && c->text[at] != first; at++)
            at += c->text[at] == '\\';
        if (at >= c->size) {
            ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, c->start, "a text in quotes has no end");
            return;
        }
        at++;
    } else {
        c->kind = '+';
        if (!strchr("+-*/%~[](){}=!<>.:|,;", first) || (first == '!' && !ignis__chat_at(c, at, "!="))) {
            ignis__chat_fault(c, (unsigned char)first < 128 ? IGNIS_DIAG_CHAT_TEMPLATE : IGNIS_DIAG_UNSUPPORTED, at,
                              "%s inside a tag",
                              (unsigned char)first < 128 ? "a sign that is none" : "a name with letters beyond ASCII");
            return;
        }
        at++;
        for (i = 0; i < sizeof signs / sizeof *signs; i++)
            if (ignis__chat_at(c, c->start, signs[i]))
                at = c->start + 2;
        if (strchr("([{", first))
            c->brackets++;
        else if (strchr(")]}", first) && c->brackets > 0)
            c->brackets--;
    }
    if (!c->fault)
        c->at = at;
}

IGNIS__PRIVATE bool ignis__chat_sees(const ignis__chat *c, const char *word)
{
    return !c->fault && (c->kind == 'a' || c->kind == '+') && c->at - c->start == strlen(word) &&
           ignis__chat_at(c, c->start, word);
}

IGNIS__PRIVATE bool ignis__chat_take(ignis__chat *c, const char *word)
{
    bool is = ignis__chat_sees(c, word);
    if (is)
        ignis__chat_next(c);
    return is;
}

/*  Tells whether the text after the current token begins with this sign. */
IGNIS__PRIVATE bool ignis__chat_then(const ignis__chat *c, const char *sign)
{
    size_t at = ignis__chat_skip_space(c, c->at), behind = at + strlen(sign);
    return ignis__chat_at(c, at, sign) &&
           (behind == c->size || *sign == '='
                ? !ignis__chat_at(c, behind, "=")
                : !ignis__formula_is_letter(c->text[behind]) && !ignis__formula_is_digit(c->text[behind]));
}

/*  Tells whether the current token is one of these words. */
IGNIS__PRIVATE bool ignis__chat_listed(const ignis__chat *c, const char *words)
{
    return c->kind == 'a' && ignis__chat_in_words(words, c->text + c->start, (int64_t)(c->at - c->start));
}

IGNIS__COLD IGNIS__PRIVATE void ignis__chat_unexpected(ignis__chat *c, const char *wanted)
{
    char token[40] = "the end of the tag";
    size_t length = c->at - c->start;
    if (c->kind != 'E')
        snprintf(token, sizeof token, "'%.*s'", (int)(length < 30 ? length : 30), c->text + c->start);
    ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, c->start, "%s is expected before %s", wanted, token);
}

IGNIS__PRIVATE void ignis__chat_want(ignis__chat *c, const char *sign)
{
    char wanted[24];
    snprintf(wanted, sizeof wanted, "'%.16s'", sign);
    if (!ignis__chat_take(c, sign))
        ignis__chat_unexpected(c, wanted);
}

/*  Returns the current token as a string, and reads the next. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_word(ignis__chat *c)
{
    ignis__chat_value word = ignis__chat_string(c->text + c->start, c->at - c->start, NULL);
    if (c->kind != 'a')
        ignis__chat_unexpected(c, "a name");
    ignis__chat_next(c);
    return word;
}
