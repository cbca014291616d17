/*  models/tokenizer/byte_buffer.c - a growing buffer of bytes

    A buffer that could not grow keeps what it has.
    May use: host memory, unicode.c. Locks: none. */

#include "room.h"

/*  Grows a buffer by at least `more` bytes. False without memory. */
IGNIS__PRIVATE bool ignis__bytes_reserve(ignis__bytes *bytes, size_t more)
{
    size_t capacity = bytes->capacity ? bytes->capacity : 256;
    char *data;
    if (more <= bytes->capacity - bytes->size)
        return true;
    while (capacity - bytes->size < more)
        capacity *= 2;
    data = (char *)ignis__alloc(capacity);
    if (!data)
        return false;
    if (bytes->size)
        memcpy(data, bytes->data, bytes->size);
    ignis__free(bytes->data);
    bytes->data = data;
    bytes->capacity = capacity;
    return true;
}

IGNIS__PRIVATE bool ignis__bytes_add(ignis__bytes *bytes, const char *data, size_t size)
{
    if (!ignis__bytes_reserve(bytes, size))
        return false;
    if (size)
        memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    return true;
}

/*  Appends a text, with U+FFFD for bytes that are not UTF-8. *broken: there were some. */
IGNIS__PRIVATE bool ignis__bytes_add_fixed(ignis__bytes *bytes, const char *text, size_t size)
{
    size_t at = 0, begin = 0;
    bool open;
    while (at < size) {
        int length = ignis__utf8_length(text + at, size - at);
        if (length > 0) {
            at += (size_t)length;
            continue;
        }
        if (!ignis__bytes_add(bytes, text + begin, at - begin) || !ignis__bytes_add(bytes, "\xEF\xBF\xBD", 3))
            return false;
        begin = at += (size_t)ignis__utf8_broken(text + at, size - at, &open);
    }
    return ignis__bytes_add(bytes, text + begin, size - begin);
}
