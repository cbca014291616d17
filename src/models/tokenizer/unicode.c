/*  models/tokenizer/unicode.c - UTF-8 and kinds of characters

    Functions with a length read whole characters and never beyond the text.
    May use: the tables of unicode_table.c. Locks: none. */

#include "room.h"

/*  Returns the value of the run that contains a character. The table has first << shift | value for each run. */
IGNIS__PRIVATE uint32_t ignis__char_run(const uint32_t *table, int count, int shift, uint32_t code)
{
    int low = 0, high = count; /* the run is before high, and at low or after it */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (table[middle] >> shift <= code)
            low = middle;
        else
            high = middle;
    }
    return table[low] >> shift <= code ? table[low] & ((1u << shift) - 1) : 0;
}

IGNIS__PRIVATE bool ignis__char_space(uint32_t code)
{
    return code < 0x80 ? (code >= 9 && code <= 13) || code == ' '
                       : code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
                             code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

/*  Returns line and column of a place in a text, in characters, both from 1 on. */
IGNIS__COLD IGNIS__PRIVATE void ignis__text_place(const char *text, const char *at, int *line, int *column)
{
    for (*line = *column = 1; text < at; text++) {
        *column = *text == '\n' ? 1 : *column + ((*text & 0xC0) != 0x80);
        *line += *text == '\n';
    }
}

/*  Decodes the first character of valid UTF-8, and its length. */
IGNIS__PRIVATE uint32_t ignis__utf8_code(const char *text, int *length)
{
    const unsigned char *byte = (const unsigned char *)text;
    if (byte[0] < 0x80) {
        *length = 1;
        return byte[0];
    }
    if (byte[0] < 0xE0) {
        *length = 2;
        return (uint32_t)(byte[0] & 0x1F) << 6 | (byte[1] & 0x3F);
    }
    if (byte[0] < 0xF0) {
        *length = 3;
        return (uint32_t)(byte[0] & 0x0F) << 12 | (uint32_t)(byte[1] & 0x3F) << 6 | (byte[2] & 0x3F);
    }
    *length = 4;
    return (uint32_t)(byte[0] & 0x07) << 18 | (uint32_t)(byte[1] & 0x3F) << 12 | (uint32_t)(byte[2] & 0x3F) << 6 |
           (byte[3] & 0x3F);
}

/*  Returns how many invalid bytes at the beginning of a text become one U+FFFD: as many as a character could
    begin with (Unicode, 3.9, maximal subparts). *open: the text ends there, and more bytes could complete a
    character. */
IGNIS__PRIVATE int ignis__utf8_broken(const char *text, size_t size, bool *open)
{
    static const unsigned char second[] = {0x80, 0x90, 0xA0}; /* each first byte permits one of these as the second */
    int length = 0, m, k;
    for (m = 1; m <= 3 && (size_t)m <= size; m++) {
        bool fits = false;
        for (k = 0; k < 3 && !fits; k++) {
            char trial[4];
            memset(trial, 0x80, sizeof trial);
            trial[m] = (char)second[k];
            memcpy(trial, text, (size_t)m);
            fits = ignis__utf8_length(trial, sizeof trial) > m;
        }
        if (!fits)
            break;
        length = m;
    }
    *open = length > 0 && (size_t)length == size;
    return length ? length : 1;
}

/*  Returns the kind of the character at a place, and its length. */
IGNIS__PRIVATE unsigned ignis__char_at(const char *text, size_t size, size_t at, int *length)
{
    uint32_t code;
    *length = 0;
    if (at >= size)
        return IGNIS__CHAR_END;
    code = ignis__utf8_code(text + at, length);
    if (code < 0x80) {
        if ((code | 32) - 'a' < 26)
            return IGNIS__CHAR_LETTER | IGNIS__CHAR_WORD;
        if (code - '0' < 10)
            return IGNIS__CHAR_NUMBER | IGNIS__CHAR_WORD | IGNIS__CHAR_DIGIT;
        if (code == '\r' || code == '\n')
            return IGNIS__CHAR_SPACE | IGNIS__CHAR_LINE;
        return ignis__char_space(code) ? IGNIS__CHAR_SPACE : code == '_' ? IGNIS__CHAR_WORD : 0;
    }
    return ignis__char_space(code) ? (unsigned)IGNIS__CHAR_SPACE
                                   : ignis__char_run(ignis__char_kinds, IGNIS__COUNT(ignis__char_kinds), 4, code);
}

/*  Skips the characters of these kinds from a place on; with `other`, the characters of none of them. */
IGNIS__PRIVATE size_t ignis__char_skip(const char *text, size_t size, size_t at, unsigned kinds, bool other)
{
    int length;
    for (; at < size; at += (size_t)length)
        if (((ignis__char_at(text, size, at, &length) & kinds) != 0) == other)
            break;
    return at;
}

/*  Returns the general category of a character: an index of ignis__pattern_categories. */
IGNIS__PRIVATE int ignis__char_category(uint32_t code)
{
    return (int)ignis__char_run(ignis__char_categories, IGNIS__COUNT(ignis__char_categories), 6, code) & 31;
}

IGNIS__PRIVATE bool ignis__char_punctuation(uint32_t code)
{
    return (ignis__char_run(ignis__char_categories, IGNIS__COUNT(ignis__char_categories), 6, code) & 32) != 0;
}

/*  Returns the letter that a table of runs maps a letter to; the letter itself if the table does not have it. */
IGNIS__PRIVATE uint32_t ignis__char_case(const uint64_t *table, int count, uint32_t code)
{
    int low = 0, high = count;
    uint64_t run;
    uint32_t first;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (table[middle] >> 43 <= code)
            low = middle;
        else
            high = middle;
    }
    run = table[low];
    first = (uint32_t)(run >> 43);
    if (code < first || code - first > (run >> 26 & 0xFFFF) || (run >> 42 & 1 && (code - first) % 2))
        return code;
    return code + (uint32_t)(run & 0x3FFFFFF) - (1u << 25);
}
