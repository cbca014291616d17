/*  models/chat/lexer.c - splits tags into tokens: names, numbers, strings, operators

    After a fault every token is the end of the template, so that all readers end.
    May use: value.c. Locks: none. */

#include "room.h"

IGNIS__PRIVATE size_t ignis__chat_skip_space(const ignis__chat *chat, size_t at)
{
    while (at < chat->size && ignis__chat_is_space(chat->text + at))
        at += ignis__chat_character(chat->text + at);
    return at;
}

IGNIS__PRIVATE bool ignis__chat_at(const ignis__chat *chat, size_t at, const char *sign)
{
    size_t length = strlen(sign);
    return at <= chat->size && chat->size - at >= length && memcmp(chat->text + at, sign, length) == 0;
}

static size_t ignis__chat_digits(const ignis__chat *chat, size_t at)
{
    while (at < chat->size &&
           (ignis__formula_is_digit(chat->text[at]) ||
            (chat->text[at] == '_' && at + 1 < chat->size && ignis__formula_is_digit(chat->text[at + 1]))))
        at++;
    return at;
}

/*  Checks for the end of a tag at a place. If found, skips it, and the white space that it removes. */
IGNIS__PRIVATE bool ignis__chat_tag_end(ignis__chat *chat, size_t at, char tag)
{
    char end[3];
    bool minus = ignis__chat_at(chat, at, "-"), plus = tag != '{' && ignis__chat_at(chat, at, "+");
    end[0] = tag == '{' ? '}' : tag, end[1] = '}', end[2] = 0;
    if (!ignis__chat_at(chat, at + (minus || plus), end))
        return false;
    at += 2 + (size_t)(minus || plus);
    if (minus)
        at = ignis__chat_skip_space(chat, at);
    else if (!plus && tag != '{' && ignis__chat_at(chat, at, "\n"))
        at++;
    chat->at = at;
    chat->line_start = chat->text[at - 1] == '\n';
    return true;
}

/*  Reads the next token of a tag. */
IGNIS__PRIVATE void ignis__chat_next_token(ignis__chat *chat)
{
    static const char *const signs[] = {"**", "//", "==", "!=", "<=", ">="};
    size_t at, i;
    char first;
    if (chat->fault)
        return;
    chat->start = at = ignis__chat_skip_space(chat, chat->at);
    chat->at = at;
    if (chat->brackets == 0 && ignis__chat_tag_end(chat, at, chat->tag)) {
        chat->kind = 'E';
        return;
    }
    if (at == chat->size) {
        chat->kind = 0;
        ignis__chat_fault(chat, IGNIS_DIAG_CHAT_TEMPLATE, at, "the template ends inside a tag");
        return;
    }
    first = chat->text[at];
    if (ignis__formula_is_letter(first)) {
        chat->kind = 'a';
        while (at < chat->size && (ignis__formula_is_letter(chat->text[at]) || ignis__formula_is_digit(chat->text[at])))
            at++;
    } else if (ignis__formula_is_digit(first)) {
        size_t end;
        chat->kind = '0';
        at = ignis__chat_digits(chat, at);
        if (chat->start == 0 || chat->text[chat->start - 1] != '.') {
            end = at < chat->size && chat->text[at] == '.' ? ignis__chat_digits(chat, at + 1) : at;
            if (end > at + 1)
                at = end, chat->kind = '.';
            if (at < chat->size && (chat->text[at] == 'e' || chat->text[at] == 'E')) {
                end = at + 1 + (size_t)(ignis__chat_at(chat, at + 1, "-") || ignis__chat_at(chat, at + 1, "+"));
                if (ignis__chat_digits(chat, end) > end)
                    at = ignis__chat_digits(chat, end), chat->kind = '.';
            }
        }
        if (at < chat->size && ignis__formula_is_letter(chat->text[at]))
            ignis__chat_fault(chat, first == '0' ? IGNIS_DIAG_UNSUPPORTED : IGNIS_DIAG_CHAT_TEMPLATE, chat->start,
                              "a number with letters in it");
    } else if (first == '"' || first == '\'') {
        chat->kind = '"';
        for (at++; at < chat->size && chat->text[at] != first; at++)
            at += chat->text[at] == '\\';
        if (at >= chat->size) {
            ignis__chat_fault(chat, IGNIS_DIAG_CHAT_TEMPLATE, chat->start, "a text in quotes has no end");
            return;
        }
        at++;
    } else {
        chat->kind = '+';
        if (!strchr("+-*/%~[](){}=!<>.:|,;", first) || (first == '!' && !ignis__chat_at(chat, at, "!="))) {
            ignis__chat_fault(chat, (unsigned char)first < 128 ? IGNIS_DIAG_CHAT_TEMPLATE : IGNIS_DIAG_UNSUPPORTED, at,
                              "%s inside a tag",
                              (unsigned char)first < 128 ? "a sign that is none" : "a name with letters beyond ASCII");
            return;
        }
        at++;
        for (i = 0; i < sizeof signs / sizeof *signs; i++)
            if (ignis__chat_at(chat, chat->start, signs[i]))
                at = chat->start + 2;
        if (strchr("([{", first))
            chat->brackets++;
        else if (strchr(")]}", first) && chat->brackets > 0)
            chat->brackets--;
    }
    if (!chat->fault)
        chat->at = at;
}

IGNIS__PRIVATE bool ignis__chat_is_word(const ignis__chat *chat, const char *word)
{
    return !chat->fault && (chat->kind == 'a' || chat->kind == '+') && chat->at - chat->start == strlen(word) &&
           ignis__chat_at(chat, chat->start, word);
}

IGNIS__PRIVATE bool ignis__chat_accept(ignis__chat *chat, const char *word)
{
    bool is = ignis__chat_is_word(chat, word);
    if (is)
        ignis__chat_next_token(chat);
    return is;
}

/*  Tells whether the text after the current token begins with this sign. */
IGNIS__PRIVATE bool ignis__chat_follows(const ignis__chat *chat, const char *sign)
{
    size_t at = ignis__chat_skip_space(chat, chat->at), behind = at + strlen(sign);
    return ignis__chat_at(chat, at, sign) &&
           (behind == chat->size || *sign == '='
                ? !ignis__chat_at(chat, behind, "=")
                : !ignis__formula_is_letter(chat->text[behind]) && !ignis__formula_is_digit(chat->text[behind]));
}

/*  Tells whether the current token is one of these words. */
IGNIS__PRIVATE bool ignis__chat_is_listed(const ignis__chat *chat, const char *words)
{
    return chat->kind == 'a' &&
           ignis__chat_in_words(words, chat->text + chat->start, (int64_t)(chat->at - chat->start));
}

IGNIS__COLD IGNIS__PRIVATE void ignis__chat_unexpected(ignis__chat *chat, const char *wanted)
{
    char token[40] = "the end of the tag";
    size_t length = chat->at - chat->start;
    if (chat->kind != 'E')
        snprintf(token, sizeof token, "'%.*s'", (int)(length < 30 ? length : 30), chat->text + chat->start);
    ignis__chat_fault(chat, IGNIS_DIAG_CHAT_TEMPLATE, chat->start, "%s is expected before %s", wanted, token);
}

IGNIS__PRIVATE void ignis__chat_expect(ignis__chat *chat, const char *sign)
{
    char wanted[24];
    snprintf(wanted, sizeof wanted, "'%.16s'", sign);
    if (!ignis__chat_accept(chat, sign))
        ignis__chat_unexpected(chat, wanted);
}

/*  Returns the current token as a string, and reads the next. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_take_word(ignis__chat *chat)
{
    ignis__chat_value word = ignis__chat_string(chat->text + chat->start, chat->at - chat->start, NULL);
    if (chat->kind != 'a')
        ignis__chat_unexpected(chat, "a name");
    ignis__chat_next_token(chat);
    return word;
}
