/*  models/tokenizer/normalize.c - the steps of a normalizer

    The order is that of the file. Two buffers of the encoder take turns.
    May use: nfc.c, charsmap.c, word_piece.c, pattern.c, string_search.c. Locks: none. */

#include "room.h"

/*  Appends a text with another one where matches of a pattern or of a text were. */
static bool ignis__normalize_replace(ignis__encoder *encoder, const ignis__normalizer_step *step, ignis__bytes *out,
                                     const char *text, size_t size)
{
    const ignis__needle from = ignis__needle_of(step->from, step->pattern ? 0 : strlen(step->from), false);
    const size_t to = strlen(step->to);
    ignis__pattern_search search;
    size_t done = 0, at = 0, last = SIZE_MAX, begin, end;
    const char *found;
    int length;
    search.pattern = step->pattern;
    search.text = text;
    search.size = size;
    search.steps = encoder->steps;
    while (at <= size && size > 0 && out->size <= IGNIS__TEXT_LIMIT) {
        if (step->pattern) {
            if (!ignis__pattern_find(&search, at, &begin, &end))
                break;
        } else {
            found = ignis__needle_find(&from, text + at, size - at);
            if (!found)
                break;
            begin = (size_t)(found - text);
            end = begin + from.length;
        }
        if ((begin != end || begin != last) && /* an empty match is not beside the match before it */
            (!ignis__bytes_add(out, text + done, begin - done) || !ignis__bytes_add(out, step->to, to)))
            return false;
        done = at = last = end;
        if (begin == end) { /* an empty match: the next search begins after the next character */
            length = 1;
            if (at < size)
                (void)ignis__utf8_code(text + at, &length);
            at += (size_t)length;
        }
    }
    if (step->pattern) {
        encoder->steps = search.steps;
        encoder->too_slow = encoder->too_slow || search.steps <= 0;
    }
    return !encoder->too_slow && ignis__bytes_add(out, text + done, size - done);
}

/*  Appends a text without white space at its ends. how: IGNIS__STRIP_LEFT, IGNIS__STRIP_RIGHT or both. */
static bool ignis__normalize_strip(ignis__bytes *out, const char *text, size_t size, unsigned how)
{
    size_t at = how & IGNIS__STRIP_LEFT ? ignis__char_skip(text, size, 0, IGNIS__CHAR_SPACE, false) : 0, last;
    int length;
    while (how & IGNIS__STRIP_RIGHT && size > at) {
        for (last = size - 1; (text[last] & 0xC0) == 0x80; last--)
            continue;
        if (!(ignis__char_at(text, size, last, &length) & IGNIS__CHAR_SPACE))
            break;
        size = last;
    }
    return ignis__bytes_add(out, text + at, size - at);
}

/*  Returns the character that Nmt makes of one; UINT32_MAX if it drops it. */
static uint32_t ignis__char_nmt(uint32_t code)
{
    if (code == 9 || code == 10 || code == 12 || code == 13 || code == 0x1680 || code - 0x200B < 5 || code == 0x2028 ||
        code == 0x2029 || code == 0x2581 || code == 0xFEFF || code == 0xFFFD)
        return ' ';
    return (code > 0 && code < 32) || code == 127 || code == 0x8F || code == 0x9F ? UINT32_MAX : code;
}

/*  Appends the characters that a step keeps. */
static bool ignis__normalize_filter(ignis__bytes *out, const char *text, size_t size, ignis__normalizer_kind kind)
{
    size_t at;
    int length;
    if (!ignis__bytes_reserve(out, size)) /* none becomes longer */
        return false;
    for (at = 0; at < size; at += (size_t)length) {
        const uint32_t code = ignis__utf8_code(text + at, &length);
        const uint32_t to = kind == IGNIS__NORMAL_NMT    ? ignis__char_nmt(code)
                            : ignis__char_drop(code) & 4 ? UINT32_MAX
                                                         : code;
        if (to != UINT32_MAX)
            out->size += (size_t)ignis__utf8_write(out->data + out->size, to);
    }
    return true;
}

/*  Tells whether a step removes the first character of a text, which is not empty. */
static bool ignis__normalize_cuts_front(const ignis__normalizer_step *step, const char *text)
{
    int length;
    const uint32_t code = ignis__utf8_code(text, &length);
    switch (step->kind) {
    case IGNIS__NORMAL_STRIP: return step->how & IGNIS__STRIP_LEFT && ignis__char_space(code);
    case IGNIS__NORMAL_NMT: return ignis__char_nmt(code) == UINT32_MAX;
    case IGNIS__NORMAL_ACCENTS: return (ignis__char_drop(code) & 4) != 0;
    case IGNIS__NORMAL_BERT:
        return (step->how & IGNIS__BERT_CLEAN && ignis__char_drop(code) & 1) ||
               (step->how & IGNIS__BERT_STRIP && ignis__char_drop(code) & 2);
    default: return false;
    }
}

/*  Normalizes a text between added tokens of the raw text. */
IGNIS__PRIVATE bool ignis__encode_normalize(ignis__encoder *encoder, const char **text, size_t *size)
{
    const ignis__tokenizer *tokenizer = encoder->tokenizer;
    int i;
    encoder->front_cut = false;
    for (i = 0; i < tokenizer->normal_count; i++) {
        const ignis__normalizer_step *normal = &tokenizer->normals[i];
        ignis__bytes *out = &encoder->normal[i % 2];
        bool ok = true;
        out->size = 0;
        encoder->front_cut = encoder->front_cut || (*size > 0 && ignis__normalize_cuts_front(normal, *text));
        switch (normal->kind) {
        case IGNIS__NORMAL_FORM: ok = ignis__normal_form_add(out, *text, *size, normal->how); break;
        case IGNIS__NORMAL_BERT: ok = ignis__bert_normalize(out, *text, *size, normal->how); break;
        case IGNIS__NORMAL_STRIP: ok = ignis__normalize_strip(out, *text, *size, normal->how); break;
        case IGNIS__NORMAL_CHARSMAP: ok = ignis__charsmap_add(normal->map, out, *text, *size); break;
        case IGNIS__NORMAL_REPLACE: ok = ignis__normalize_replace(encoder, normal, out, *text, *size); break;
        case IGNIS__NORMAL_PREPEND:
            ok = (*size == 0 || ignis__bytes_add(out, normal->to, strlen(normal->to))) &&
                 ignis__bytes_add(out, *text, *size);
            break;
        default: ok = ignis__normalize_filter(out, *text, *size, normal->kind); break;
        }
        encoder->too_long = encoder->too_long || out->size > IGNIS__TEXT_LIMIT;
        if (!ok || encoder->too_long)
            return false;
        *text = out->data ? out->data : "";
        *size = out->size;
    }
    return true;
}
