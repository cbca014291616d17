/*  models/generate/stop_string.c - text output of ignis_generate: UTF-8, stop strings, the callback

    Text that may be the beginning of a stop string is kept back until the next tokens decide. A stop string and all
    text after it never reach the callback.
    May use: >>tokenizer. Locks: none while the callback runs. */

#include "room.h"

/*  Makes room for `more` bytes. False, and reported, if there is no memory. */
static bool ignis__text_output_reserve(ignis__text_output *output, size_t more)
{
    size_t capacity = output->capacity ? output->capacity : 256;
    char *text;
    if (output->size + more <= output->capacity)
        return true;
    while (capacity < output->size + more)
        capacity *= 2;
    text = (char *)ignis__alloc(capacity);
    if (!text)
        return ignis__fail_host_memory(output->call, capacity) == IGNIS_OK;
    if (output->size)
        memcpy(text, output->text, output->size);
    ignis__free(output->text);
    output->text = text;
    output->capacity = capacity;
    return true;
}

/*  Returns whether a stop string begins at `at`. *whole: all of it is there; else the text ends inside it. */
static bool ignis__text_output_matches_stop(const ignis__text_output *output, size_t at, int stop, bool *whole)
{
    size_t length = strlen(output->desc->stops[stop]), left = output->size - at;
    *whole = left >= length;
    return memcmp(output->text + at, output->desc->stops[stop], *whole ? length : left) == 0;
}

/*  Passes text to the callback, up to a stop string or the possible beginning of one. ends: no more text follows. */
static void ignis__text_output_flush(ignis__text_output *output, bool ends)
{
    size_t shown = 0;
    bool whole, undecided = false;
    int i;
    while (shown < output->size && output->stop < 0 && !undecided) {
        for (i = 0; i < output->desc->stop_count && output->stop < 0; i++)
            if (ignis__text_output_matches_stop(output, shown, i, &whole)) {
                output->stop = whole ? i : output->stop;
                undecided = undecided || (!whole && !ends);
            }
        shown += output->stop < 0 && !undecided;
    }
    if (shown > 0 && !output->cancelled && output->desc->text_fn)
        output->cancelled = !output->desc->text_fn(output->text, shown, output->desc->user_data);
    memmove(output->text, output->text + shown, output->size - shown);
    output->size -= shown;
}

/*  Begins to write text, if anything reads it. False, and reported, on failure. */
IGNIS__PRIVATE bool ignis__text_output_begin(ignis__text_output *output, const ignis__sequence *sequence)
{
    ignis_tokenizer_info tokenizer;
    if (!output->desc->text_fn && !output->desc->stop_count)
        return true;
    output->stream.tokenizer = ignis__model_tokenizer(sequence->model);
    output->stream.inside = true;
    if (!output->stream.tokenizer.id || ignis_tokenizer_query(output->stream.tokenizer, &tokenizer) != IGNIS_OK)
        return false;
    output->tokens = tokenizer.tokens;
    return true;
}

/*  Adds one more token; -1: the text has ended. False, and reported, on failure. */
IGNIS__PRIVATE bool ignis__text_output_put(ignis__text_output *output, int32_t id)
{
    int capacity = 64, size;
    if (!output->stream.tokenizer.id || id >= output->tokens)
        return true;
    for (;;) {
        if (!ignis__text_output_reserve(output, (size_t)capacity))
            return false;
        size = id < 0 ? ignis_text_stream_end(&output->stream, output->text + output->size, capacity)
                      : ignis_text_stream_put(&output->stream, id, output->text + output->size, capacity);
        if (size < 0)
            return false;
        if (size <= capacity)
            break;
        capacity = size;
    }
    output->size += (size_t)size;
    ignis__text_output_flush(output, id < 0);
    return true;
}

/*  Checks the values of a description. False, and reported, if one is out of range. */
IGNIS__PRIVATE bool ignis__generate_check(const char *call, const ignis_generate_desc *desc)
{
    int i;
    if (desc->max_tokens < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->max_tokens is %d, below 0", desc->max_tokens) ==
               IGNIS_OK;
    if (desc->draft_tokens < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->draft_tokens is %d, below 0", desc->draft_tokens) ==
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
