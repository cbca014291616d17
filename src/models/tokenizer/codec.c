/*  models/tokenizer/codec.c - ignis_tokenizer_encode, _decode and _piece

    Every id of the caller is checked before it is decoded.
    May use: encode.c, tokenizer.c. Locks: none; the tokenizer is held during a call. */

#include "room.h"

/*  Encodes a text for a public call, and closes the encoder, which has a tokenizer, room for ids, and how control
    tokens in the text are read. -1, and reported, on failure. */
IGNIS__PRIVATE int ignis__tokenizer_encode(const char *call, ignis__encoder *encoder, const char *text, size_t size,
                                           bool no_bos)
{
    int count = -1;
    if (!ignis__encode(encoder, text, size, no_bos) && encoder->too_long)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the text has more than %lld bytes once it is normalized",
                    (long long)IGNIS__TEXT_LIMIT);
    else if (encoder->too_slow)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "a pattern of the tokenizer's pre_tokenizer takes too many steps for this text of %lld bytes",
                    (long long)size);
    else if (encoder->failed)
        ignis__fail_host_memory(call, size);
    else if (encoder->unclear)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "this tokenizer finds control tokens in normalized text, where it is not known whether a message "
                    "has written them");
    else if (encoder->count > INT32_MAX)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the text has %lld tokens, above 2^31", (long long)encoder->count);
    else
        count = (int)encoder->count;
    ignis__encoder_close(encoder);
    return count;
}

IGNIS_API int ignis_tokenizer_encode(ignis_tokenizer tokenizer, const char *text, int64_t size,
                                     const ignis_encode_desc *desc, int32_t *ids, int capacity)
{
    static const char call[] = "ignis_tokenizer_encode";
    ignis__tokenizer *held = ignis__tokenizer_hold(call, tokenizer);
    ignis__encoder encoder = IGNIS__ZERO;
    int count = -1;
    if (!held)
        return -1;
    if ((!text && size != 0) || (!ids && capacity > 0))
        ignis__fail_null(call, !text && size != 0 ? "text" : "ids");
    else if (capacity < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    else if (size < 0 || size > IGNIS__TEXT_LIMIT)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld; texts have 0 to %lld bytes", (long long)size,
                    (long long)IGNIS__TEXT_LIMIT);
    else {
        encoder.tokenizer = held;
        encoder.plain = desc && desc->plain;
        encoder.ids = ids;
        encoder.capacity = capacity;
        count = ignis__tokenizer_encode(call, &encoder, text ? text : "", (size_t)size, desc && desc->no_bos);
    }
    ignis__tokenizer_drop(held);
    return count;
}

/*  Appends the text of an id. first: it is at the beginning of the text. False without memory. */
IGNIS__PRIVATE bool ignis__token_add(const ignis__tokenizer *tokenizer, int32_t id, bool first, ignis__bytes *out)
{
    const char *text = tokenizer->bytes + tokenizer->begin[id];
    size_t size = tokenizer->begin[id + 1] - tokenizer->begin[id], at, begin = 0;
    unsigned byte;
    char c;
    if (tokenizer->byte_level)
        return ignis__bytes_add(out, text, size);
    if (tokenizer->word_pieces)
        return ignis__word_add(tokenizer, text, size, first, out);
    if (tokenizer->byte_decoder && size == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>' &&
        strspn(text + 3, "0123456789ABCDEFabcdef") == 2 && sscanf(text + 3, "%2x", &byte) == 1) {
        c = (char)byte;
        return ignis__bytes_add(out, &c, 1);
    }
    for (at = 0; at + 3 <= size;) {
        bool taken = first && (tokenizer->metaspace_decoder == IGNIS__METASPACE_ALWAYS ||
                               tokenizer->metaspace_decoder == IGNIS__METASPACE_FIRST);
        if (memcmp(text + at, IGNIS__LOW_LINE, 3) != 0) {
            at++;
            continue;
        }
        if (!ignis__bytes_add(out, text + begin, at - begin) || (!taken && !ignis__bytes_add(out, " ", 1)))
            return false;
        begin = at += 3;
    }
    return ignis__bytes_add(out, text + begin, size - begin);
}

/*  Checks an id. False, and reported, if the tokenizer does not have it. */
IGNIS__PRIVATE bool ignis__token_check(const char *call, const ignis__tokenizer *tokenizer, int32_t id)
{
    if (id >= 0 && id < tokenizer->info.tokens)
        return true;
    ignis__fail(IGNIS_DIAG_TOKEN_RANGE, call, "there is no id %d; those of this tokenizer are below %d", (int)id,
                tokenizer->info.tokens);
    return false;
}

IGNIS_API int64_t ignis_tokenizer_decode(ignis_tokenizer tokenizer, const int32_t *ids, int count,
                                         const ignis_decode_desc *desc, char *out, int64_t capacity)
{
    static const char call[] = "ignis_tokenizer_decode";
    ignis__bytes bytes = IGNIS__ZERO;
    ignis__tokenizer *held = ignis__tokenizer_hold(call, tokenizer);
    int64_t size = -1;
    int i, strip;
    bool first = true, known = true, has_memory = true;
    if (!held)
        return -1;
    if ((!ids && count > 0) || (!out && capacity > 0)) {
        ignis__fail_null(call, !ids && count > 0 ? "ids" : "out");
    } else if (count < 0 || capacity < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "%s is below 0", count < 0 ? "count" : "capacity");
    } else {
        for (i = 0; known && has_memory && i < count; i++) {
            known = ignis__token_check(call, held, ids[i]);
            if (!known || (held->flags[ids[i]] & IGNIS__TOKEN_CONTROL && !(desc && desc->control)))
                continue;
            has_memory = ignis__token_add(held, ids[i], first, &bytes);
            first = false;
        }
        if (!has_memory)
            ignis__fail_host_memory(call, bytes.size);
        for (strip = 0; has_memory && strip < held->strip && (size_t)strip < bytes.size && bytes.data[strip] == ' ';
             strip++)
            continue;
        size = known && has_memory ? (int64_t)bytes.size - strip : -1;
        if (size > 0 && capacity > 0)
            memcpy(out, bytes.data + strip, (size_t)(size < capacity ? size : capacity));
        ignis__free(bytes.data);
    }
    ignis__tokenizer_drop(held);
    return size;
}

IGNIS_API int ignis_tokenizer_piece(ignis_tokenizer tokenizer, int32_t id, char *out, int capacity)
{
    static const char call[] = "ignis_tokenizer_piece";
    ignis__bytes bytes = IGNIS__ZERO;
    ignis__tokenizer *held = ignis__tokenizer_hold(call, tokenizer);
    int size = -1;
    if (!held)
        return -1;
    if (!out && capacity > 0) {
        ignis__fail_null(call, "out");
    } else if (capacity < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    } else if (ignis__token_check(call, held, id)) {
        if (!ignis__token_add(held, id, false, &bytes)) {
            ignis__fail_host_memory(call, bytes.size);
        } else {
            size = (int)bytes.size;
            if (size > 0 && capacity > 0)
                memcpy(out, bytes.data, (size_t)(size < capacity ? size : capacity));
        }
        ignis__free(bytes.data);
    }
    ignis__tokenizer_drop(held);
    return size;
}
