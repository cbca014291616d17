/*  models/tokenizer/text_stream.c - ignis_text_stream_put and _end: ids to text, in whole characters

    A call changes a copy of the stream, and stores it when its output fits.
    May use: codec.c, unicode.c. Locks: none. */

#include "room.h"

/*  Checks the arguments of a stream's call. */
static bool ignis__stream_check(const char *call, const ignis_text_stream *stream, const char *out, int capacity)
{
    if (!stream || (!out && capacity > 0))
        ignis__fail_null(call, stream ? "out" : "stream");
    else if (capacity < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    else if (stream->held_count < 0 || stream->held_count > 3)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "stream is no stream: zero it first");
    else
        return true;
    return false;
}

IGNIS_API int ignis_text_stream_put(ignis_text_stream *stream, int32_t id, char *out, int capacity)
{
    static const char call[] = "ignis_text_stream_put";
    ignis__tokenizer *held = NULL;
    ignis_text_stream next;
    ignis__bytes bytes = IGNIS__ZERO, fixed = IGNIS__ZERO;
    int size = -1;
    size_t at = 0, before;
    bool ok, open = false;
    if (!ignis__enter(call) || !ignis__stream_check(call, stream, out, capacity) ||
        (held = ignis__tokenizer_hold(call, stream->tokenizer)) == NULL)
        return -1;
    if (!ignis__token_check(call, held, id)) {
        ignis__tokenizer_drop(held);
        return -1;
    }
    if (held->flags[id] & IGNIS__TOKEN_CONTROL && !stream->control) {
        ignis__tokenizer_drop(held);
        return 0;
    }
    next = *stream;
    ok = ignis__bytes_add(&bytes, next.held, (size_t)next.held_count);
    before = bytes.size;
    ok = ok && ignis__token_add(held, id, !next.inside && next.stripped == 0 && next.held_count == 0, &bytes);
    /* removes leading spaces; none remain to be removed once a byte is kept */
    while (!next.inside && next.stripped < held->strip && before == 0 && at < bytes.size && bytes.data[at] == ' ')
        at++, next.stripped++;
    if (at < bytes.size || held->strip == 0)
        next.inside = true;
    for (before = at; ok && at < bytes.size && !open;) { /* whole characters */
        int length = ignis__utf8_length(bytes.data + at, bytes.size - at);
        at += (size_t)(length > 0 ? length : ignis__utf8_broken(bytes.data + at, bytes.size - at, &open));
    }
    next.held_count = 0;
    if (open) {
        for (at = bytes.size - 1; (bytes.data[at] & 0xC0) == 0x80; at--)
            continue;
        next.held_count = (int)(bytes.size - at);
        memcpy(next.held, bytes.data + at, bytes.size - at);
    }
    ok = ok && ignis__bytes_add_fixed(&fixed, bytes.data + before, at - before);
    if (!ok) {
        ignis__fail_host_memory(call, bytes.size);
    } else {
        size = (int)fixed.size;
        if (size <= capacity) {
            if (size)
                memcpy(out, fixed.data, fixed.size);
            *stream = next;
        }
    }
    ignis__free(bytes.data);
    ignis__free(fixed.data);
    ignis__tokenizer_drop(held);
    return size;
}

IGNIS_API int ignis_text_stream_end(ignis_text_stream *stream, char *out, int capacity)
{
    static const char call[] = "ignis_text_stream_end";
    int size;
    if (!ignis__enter(call) || !ignis__stream_check(call, stream, out, capacity))
        return -1;
    size = stream->held_count ? 3 : 0;
    if (size > capacity)
        return size;
    if (size)
        memcpy(out, "\xEF\xBF\xBD", 3);
    stream->held_count = stream->stripped = 0;
    stream->inside = false;
    return size;
}
