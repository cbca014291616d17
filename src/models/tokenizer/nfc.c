/*  models/tokenizer/nfc.c - Unicode normalization to NFC, NFD, NFKC and NFKD

    The tables are in unicode_table.c. Text that does not change is copied as it is.
    May use: unicode.c, byte_buffer.c. Locks: none. */

#include "room.h"

/*  Returns a character's data for NFC: its combining class << 1, and bit 0 if it may change with the
    character before it. */
IGNIS__PRIVATE uint32_t ignis__char_mark(uint32_t code)
{
    return code < 0x300 ? 0 : ignis__char_run(ignis__char_marks, IGNIS__COUNT(ignis__char_marks), 9, code);
}

/*  Returns the parts of a character, as in ignis__char_parts; 0 if it has none. */
static uint64_t ignis__char_parts_of(uint32_t code)
{
    int low = 0, high = IGNIS__COUNT(ignis__char_parts);
    if (code - 0xAC00 < 11172) { /* a Hangul syllable: without its last letter, and that letter; or the first two */
        uint32_t at = code - 0xAC00;
        return at % 28 ? (uint64_t)(code - at % 28) << 21 | (0x11A7 + at % 28)
                       : (uint64_t)(0x1100 + at / 588) << 21 | (0x1161 + at / 28 % 21);
    }
    while (low < high) {
        int middle = (low + high) / 2;
        if (ignis__char_parts[middle] >> 42 < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < IGNIS__COUNT(ignis__char_parts) && ignis__char_parts[low] >> 42 == code
               ? ignis__char_parts[low] & (((uint64_t)1 << 42) - 1)
               : 0;
}

/*  Returns the character that two compose to; 0 if they do not. */
static uint32_t ignis__char_pair(uint32_t first, uint32_t second)
{
    const uint64_t wanted = (uint64_t)first << 21 | second, mask = ((uint64_t)1 << 42) - 1;
    int low = 0, high = IGNIS__COUNT(ignis__char_pairs);
    if (first - 0x1100 < 19 && second - 0x1161 < 21)
        return 0xAC00 + ((first - 0x1100) * 21 + (second - 0x1161)) * 28;
    if (first - 0xAC00 < 11172 && (first - 0xAC00) % 28 == 0 && second - 0x11A8 < 27)
        return first + (second - 0x11A7);
    while (low < high) {
        int middle = (low + high) / 2;
        if ((ignis__char_parts[ignis__char_pairs[middle]] & mask) < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == IGNIS__COUNT(ignis__char_pairs) || (ignis__char_parts[ignis__char_pairs[low]] & mask) != wanted)
        return 0;
    return (uint32_t)(ignis__char_parts[ignis__char_pairs[low]] >> 42);
}

/*  Returns the row of ignis__char_compat_texts of a character; 0 if it has none. */
static uint64_t ignis__char_compat_row(uint32_t code)
{
    int low = 0, high = IGNIS__COUNT(ignis__char_compat_texts);
    while (low < high) {
        int middle = (low + high) / 2;
        if (ignis__char_compat_texts[middle] >> 24 < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < IGNIS__COUNT(ignis__char_compat_texts) && ignis__char_compat_texts[low] >> 24 == code
               ? ignis__char_compat_texts[low]
               : 0;
}

/*  Tells whether a character may change in a normal form, with the character before it or alone. */
static bool ignis__char_moves(uint32_t code, unsigned form)
{
    if (code < 0xA0)
        return false;
    return ignis__char_mark(code) & 1 || (form != IGNIS__FORM_COMPOSED && ignis__char_parts_of(code)) ||
           (form & IGNIS__FORM_COMPAT &&
            (ignis__char_case(ignis__char_compat, IGNIS__COUNT(ignis__char_compat), code) != code ||
             ignis__char_compat_row(code)));
}

/*  Writes the decomposition of a character, at most IGNIS__CHAR_PARTS items of combining class << 53 | character.
    Returns their number. */
IGNIS__PRIVATE int ignis__char_decompose(uint32_t code, unsigned form, uint64_t parts[IGNIS__CHAR_PARTS])
{
    uint32_t stack[8];
    int depth, count = 0, i;
    for (stack[0] = code, depth = 1; depth > 0;) {
        const uint64_t both = ignis__char_parts_of(code = stack[--depth]);
        const uint64_t row = !both && form & IGNIS__FORM_COMPAT ? ignis__char_compat_row(code) : 0;
        for (i = 0; i < (int)(row >> 16 & 0xFF); i++, count++) {
            const uint32_t part = ignis__char_compat_points[(row & 0xFFFF) + (unsigned)i];
            parts[count] = (uint64_t)(ignis__char_mark(part) >> 1) << 53 | part;
        }
        if (row)
            continue;
        if (!both) {
            if (form & IGNIS__FORM_COMPAT)
                code = ignis__char_case(ignis__char_compat, IGNIS__COUNT(ignis__char_compat), code);
            parts[count++] = (uint64_t)(ignis__char_mark(code) >> 1) << 53 | code;
            continue;
        }
        if (both & 0x1FFFFF)
            stack[depth++] = (uint32_t)(both & 0x1FFFFF);
        stack[depth++] = (uint32_t)(both >> 21);
    }
    return count;
}

IGNIS__PRIVATE int ignis__u64_order(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

/*  Sorts the marks of decomposed characters by their classes; each item is class << 53 | place << 21 | character. */
static void ignis__sort_marks(uint64_t *chars, size_t count)
{
    size_t i, k;
    for (i = 0; i < count; i = k) {
        for (k = i; k < count && chars[k] >> 53; k++)
            continue;
        if (k > i + 1)
            qsort(chars + i, k - i, sizeof *chars, ignis__u64_order);
        k += k == i;
    }
}

/*  Composes decomposed characters, which are sorted. Returns how many remain. */
static size_t ignis__compose(uint64_t *chars, size_t count)
{
    const uint64_t code_mask = ((uint64_t)1 << 21) - 1;
    size_t i, kept = 0, base = 0;
    uint32_t last = 0; /* the class of the last character kept after the base */
    bool has_base = false;
    for (i = 0; i < count; i++) {
        uint32_t code = (uint32_t)(chars[i] & code_mask), mark = (uint32_t)(chars[i] >> 53), made = 0;
        if (has_base && (kept == base + 1 || last < mark))
            made = ignis__char_pair((uint32_t)(chars[base] & code_mask), code);
        if (made) {
            chars[base] = made;
            continue;
        }
        if (!mark) {
            base = kept;
            has_base = true;
        }
        chars[kept++] = chars[i];
        last = mark;
    }
    return kept;
}

/*  Appends a normal form of a text of whole characters. form: IGNIS__FORM_COMPOSED, IGNIS__FORM_COMPAT, both or 0. */
IGNIS__PRIVATE bool ignis__normal_form_add(ignis__bytes *bytes, const char *text, size_t size, unsigned form)
{
    uint64_t *chars = NULL;
    size_t at = 0, base = 0, done = 0, capacity = 0, count, end, i;
    bool ok = true;
    int length, made, k;
    while (ok && at < size) {
        uint32_t code = ignis__utf8_code(text + at, &length);
        if (!ignis__char_moves(code, form)) {
            base = at;
            at += (size_t)length;
            continue;
        }
        /* from the character before, up to the first that cannot change */
        for (end = at; end < size && ignis__char_moves(ignis__utf8_code(text + end, &length), form);
             end += (size_t)length)
            continue;
        if ((end - base) * 6 + IGNIS__CHAR_PARTS > capacity) { /* U+FDFA has 3 bytes and becomes 18 characters */
            capacity = (end - base) * 6 + 64;
            ignis__free(chars);
            chars = (uint64_t *)ignis__alloc(capacity * sizeof *chars);
            if (!chars)
                return false;
        }
        for (i = base, count = 0; i < end; i += (size_t)length) {
            uint64_t parts[IGNIS__CHAR_PARTS];
            made = ignis__char_decompose(ignis__utf8_code(text + i, &length), form, parts);
            for (k = 0; k < made; k++, count++)
                chars[count] = parts[k] | (uint64_t)count << 21;
        }
        ignis__sort_marks(chars, count);
        count = form & IGNIS__FORM_COMPOSED ? ignis__compose(chars, count) : count;
        ok = ignis__bytes_add(bytes, text + done, base - done) && ignis__bytes_reserve(bytes, count * 4);
        for (i = 0; ok && i < count; i++)
            bytes->size += (size_t)ignis__utf8_write(bytes->data + bytes->size, (uint32_t)(chars[i] & 0x1FFFFF));
        done = base = at = end;
    }
    ignis__free(chars);
    return ok && ignis__bytes_add(bytes, text + done, size - done);
}
