/*  base/utf8.c - UTF-8 checked and written; names for messages

    For text from files: keys, names of tensors, tokens. Nothing here allocates.
    May use: text.c. Locks: none. */

#include "room.h"

IGNIS__PRIVATE bool ignis__utf8_valid(const char *text)
{
    size_t left = strlen(text);
    int length;
    for (; left > 0; text += length, left -= (size_t)length)
        if ((length = ignis__utf8_length(text, left)) == 0)
            return false;
    return true;
}

/*  Writes the bytes of a character and returns their count, at most 4. */
IGNIS__PRIVATE int ignis__utf8_write(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

IGNIS__COLD IGNIS__PRIVATE ignis__name_text ignis__name_write(const char *name)
{
    ignis__name_text out;
    size_t cut = ignis__utf8_cut(name, sizeof out.text - 8);
    memset(&out, 0, sizeof out);
    out.text[0] = '\'';
    memcpy(out.text + 1, name, cut);
    memcpy(out.text + cut + 1, name[cut] ? "...'" : "'", name[cut] ? 4 : 1);
    return out;
}
