/*  models/tokenizer/pre_tokenizer.c - splits text into pieces, as the patterns of ignis__tokenizer_patterns do

    Three patterns of many models have code of their own, which is faster than pattern.c.
    May use: unicode.c. Locks: none. */

#include "room.h"

/*  Returns the end of a contraction at an apostrophe; 0 if there is none. */
static size_t ignis__split_contraction(const char *text, size_t size, size_t at, bool any_case)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    int i, k;
    if (any_case && size - at >= 3 &&
        memcmp(text + at + 1, "\xC5\xBF", 2) == 0) /* the long s equals s if case is ignored */
        return at + 3;
    for (i = 0; i < IGNIS__COUNT(endings); i++) {
        for (k = 0; endings[i][k] && at + 1 + (size_t)k < size; k++) {
            char c = text[at + 1 + (size_t)k];
            if (c != endings[i][k] && !(any_case && (c | 32) == endings[i][k]))
                break;
        }
        if (!endings[i][k])
            return at + 1 + (size_t)k;
    }
    return 0;
}

/*  Returns the end of the piece that begins at a place. The alternatives are in the order of the pattern. */
IGNIS__PRIVATE size_t ignis__split_next(ignis__splitter split, const char *text, size_t size, size_t at)
{
    const unsigned none = IGNIS__CHAR_LETTER | IGNIS__CHAR_NUMBER | IGNIS__CHAR_SPACE;
    bool gpt2 = split == IGNIS__SPLIT_GPT2;
    int length, next_length;
    unsigned kind = ignis__char_at(text, size, at, &length), next;
    size_t end, last, line = 0, blank = at;
    if (split == IGNIS__SPLIT_NONE)
        return size;
    if (text[at] == '\'' && (end = ignis__split_contraction(text, size, at, !gpt2)) != 0)
        return end;
    if (kind & IGNIS__CHAR_LETTER)
        return ignis__char_skip(text, size, at, IGNIS__CHAR_LETTER, false);
    next = ignis__char_at(text, size, at + (size_t)length, &next_length);
    if (next & IGNIS__CHAR_LETTER && (gpt2 ? text[at] == ' ' : !(kind & (IGNIS__CHAR_LINE | IGNIS__CHAR_NUMBER))))
        return ignis__char_skip(text, size, at + (size_t)length, IGNIS__CHAR_LETTER, false);
    if (gpt2 && text[at] == ' ' && next & IGNIS__CHAR_NUMBER)
        return ignis__char_skip(text, size, at + 1, IGNIS__CHAR_NUMBER, false);
    if (kind & IGNIS__CHAR_NUMBER) {
        int left = split == IGNIS__SPLIT_LLAMA3 ? 3 : 1;
        if (gpt2)
            return ignis__char_skip(text, size, at, IGNIS__CHAR_NUMBER, false);
        for (end = at; left > 0 && ignis__char_at(text, size, end, &length) & IGNIS__CHAR_NUMBER; left--)
            end += (size_t)length;
        return end;
    }
    if (text[at] == ' ' && !(next & (none | IGNIS__CHAR_END))) {
        kind = next;
        blank = at + 1;
    }
    if (!(kind & none)) { /* punctuation */
        end = ignis__char_skip(text, size, blank, none, true);
        while (!gpt2 && end < size && (text[end] == '\r' || text[end] == '\n'))
            end++;
        return end;
    }
    for (end = last = at; end < size; end += (size_t)length) { /* white space */
        kind = ignis__char_at(text, size, end, &length);
        if (!(kind & IGNIS__CHAR_SPACE))
            break;
        last = end;
        if (kind & IGNIS__CHAR_LINE)
            line = end + (size_t)length;
    }
    if (!gpt2 && line)
        return line;
    return end < size && last > at ? last : end; /* the last one belongs to the next word */
}
