/*  base/text.c - strings in fixed buffers, and UTF-8

    For messages: nothing here allocates, and all text from outside can be escaped.
    May use: the C library. Locks: none. */

#include "room.h"

IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__string_begin(ignis__string_writer *text, char *data, size_t capacity)
{
    text->data = data;
    text->capacity = capacity;
    text->length = 0;
    if (capacity)
        data[0] = 0;
}

IGNIS__PRINTF(2, 0)
IGNIS__COLD IGNIS__PRIVATE void ignis__string_addv(ignis__string_writer *text, const char *format, va_list args)
{
    size_t used = text->length < text->capacity ? text->length : text->capacity;
    int added = vsnprintf(used < text->capacity ? text->data + used : NULL, text->capacity - used, format, args);
    if (added > 0)
        text->length += (size_t)added;
}

IGNIS__PRINTF(2, 3)
IGNIS__COLD IGNIS__PRIVATE void ignis__string_add(ignis__string_writer *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ignis__string_addv(text, format, args);
    va_end(args);
}

/*  Returns the bytes of the character at the beginning of a text of `size` bytes; 0 if it is not well-formed UTF-8
    (Unicode, table 3-7). */
IGNIS__COLD IGNIS__PRIVATE int ignis__utf8_length(const char *text, size_t size)
{
    const unsigned char *byte = (const unsigned char *)text;
    unsigned char low = 0x80, high = 0xBF; /* range of the second byte */
    int length, i;
    if (size == 0)
        return 0;
    if (byte[0] < 0x80)
        return 1;
    if (byte[0] < 0xC2 || byte[0] > 0xF4)
        return 0;
    length = byte[0] < 0xE0 ? 2 : byte[0] < 0xF0 ? 3 : 4;
    if ((size_t)length > size)
        return 0;
    if (byte[0] == 0xE0)
        low = 0xA0; /* shorter forms exist */
    else if (byte[0] == 0xED)
        high = 0x9F; /* surrogates */
    else if (byte[0] == 0xF0)
        low = 0x90;
    else if (byte[0] == 0xF4)
        high = 0x8F; /* beyond U+10FFFF */
    if (byte[1] < low || byte[1] > high)
        return 0;
    for (i = 2; i < length; i++)
        if ((byte[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

/*  Returns the length of the longest prefix of whole characters with at most `limit` bytes. */
IGNIS__PRIVATE size_t ignis__utf8_cut(const char *text, size_t limit)
{
    size_t size = strlen(text), cut = size < limit ? size : limit;
    while (cut > 0 && cut + 3 > limit && ((unsigned char)text[cut] & 0xC0) == 0x80)
        cut--;
    return cut;
}

/*  Adds text from outside. Control characters, bidirectional marks, line ends and bytes that are not UTF-8 become
    escapes. With `lines`, line ends and tabs stay. */
IGNIS__COLD IGNIS__PRIVATE void ignis__string_add_escaped(ignis__string_writer *text, const char *from, size_t size,
                                                          bool lines)
{
    static const char letters[] = "abtnvfr"; /* of the bytes from 7 on */
    size_t at = 0, plain = 0;
    while (at < size) {
        const unsigned char *byte = (const unsigned char *)from + at;
        int length = ignis__utf8_length(from + at, size - at), i;
        bool control = byte[0] < ' ' ? !lines || !strchr("\n\t", (int)byte[0]) || !byte[0] : byte[0] == 0x7F;
        bool hidden = (length == 2 && byte[0] == 0xC2 &&
                       byte[1] < 0xA0) || /* U+0080 to U+009F; then directions of writing, ends of lines */
                      (length == 3 && byte[0] == 0xE2 && byte[1] == 0x80 &&
                       (byte[2] == 0x8E || byte[2] == 0x8F || (byte[2] & 0xF8) == 0xA8)) ||
                      (length == 3 && byte[0] == 0xE2 && byte[1] == 0x81 && byte[2] >= 0xA6 && byte[2] <= 0xA9);
        if (length && !control && !hidden) {
            at += (size_t)length;
            continue;
        }
        ignis__string_add(text, "%.*s", (int)(at - plain), from + plain);
        length = length ? length : 1;
        for (i = 0; i < length; i++) {
            if (byte[i] >= 7 && byte[i] < 14)
                ignis__string_add(text, "\\%c", letters[byte[i] - 7]);
            else
                ignis__string_add(text, "\\x%02x", (unsigned)byte[i]);
        }
        plain = at += (size_t)length;
    }
    ignis__string_add(text, "%.*s", (int)(at - plain), from + plain);
}
