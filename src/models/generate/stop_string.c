/* --- text out --------------------------------------------------------------------------------------------------------------- */

#include "room.h"

/*  Room for so many bytes more. */
static bool ignis__showing_room(ignis__showing *show, size_t more)
{
    size_t capacity = show->capacity ? show->capacity : 256;
    char *text;
    if (show->size + more <= show->capacity)
        return true;
    while (capacity < show->size + more)
        capacity *= 2;
    text = (char *)ignis__alloc(capacity);
    if (!text)
        return ignis__fail_host_memory(show->call, capacity) == IGNIS_OK;
    if (show->size)
        memcpy(text, show->text, show->size);
    ignis__free(show->text);
    show->text = text;
    show->capacity = capacity;
    return true;
}

/*  Whether the text has a stop at a place, or, there being too little of it, may have it yet. */
static bool ignis__showing_may_stop(const ignis__showing *show, size_t at, int stop, bool *whole)
{
    size_t length = strlen(show->desc->stops[stop]), left = show->size - at;
    *whole = left >= length;
    return memcmp(show->text + at, show->desc->stops[stop], *whole ? length : left) == 0;
}

/*  Shows what may be shown: up to a stop, or to where one may begin; ends: all of it. */
static void ignis__showing_go(ignis__showing *show, bool ends)
{
    size_t shown = 0;
    bool whole, held = false;
    int i;
    while (shown < show->size && show->stop < 0 && !held) {
        for (i = 0; i < show->desc->stop_count && show->stop < 0; i++)
            if (ignis__showing_may_stop(show, shown, i, &whole)) {
                show->stop = whole ? i : show->stop;
                held = held || (!whole && !ends);
            }
        shown += show->stop < 0 && !held;
    }
    if (shown > 0 && !show->cancelled && show->desc->text_fn)
        show->cancelled = !show->desc->text_fn(show->text, shown, show->desc->user_data);
    memmove(show->text, show->text + shown, show->size - shown);
    show->size -= shown;
}

/*  Takes one more token; below 0: the text has ended. */
IGNIS__PRIVATE bool ignis__showing_put(ignis__showing *show, int32_t id)
{
    int room = 64, size;
    if (!show->stream.tokenizer.id || id >= show->tokens)
        return true;
    for (;;) {
        if (!ignis__showing_room(show, (size_t)room))
            return false;
        size = id < 0 ? ignis_text_stream_end(&show->stream, show->text + show->size, room)
                      : ignis_text_stream_put(&show->stream, id, show->text + show->size, room);
        if (size < 0)
            return false;
        if (size <= room)
            break;
        room = size;
    }
    show->size += (size_t)size;
    ignis__showing_go(show, id < 0);
    return true;
}

/*  False, and reported: a number or text of desc is none. */
IGNIS__PRIVATE bool ignis__generate_check(const char *call, const ignis_generate_desc *desc)
{
    int i;
    if (desc->max_tokens < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->max_tokens is %d, below 0", desc->max_tokens) ==
               IGNIS_OK;
    if (desc->stop_count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->stop_count is %d, below 0", desc->stop_count) ==
               IGNIS_OK;
    if (desc->end_count > 0 && !desc->ends)
        return ignis__fail_null(call, "desc->ends") == IGNIS_OK;
    if (desc->stop_count && !desc->stops)
        return ignis__fail_null(call, "desc->stops") == IGNIS_OK;
    for (i = 0; i < desc->stop_count; i++)
        if (!desc->stops[i] || !*desc->stops[i])
            return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->stops[%d] is %s", i,
                               desc->stops[i] ? "empty" : "null") == IGNIS_OK;
    return true;
}
