/*  models/generate/kv_cache.c - pages of the KV cache, and tokens that enter it

    A page has the keys and values of 16 positions in all layers of its group. Forks share pages, so a page that others
    use, too, is copied before a sequence writes to it. Layers with a window are a group of their own: a sequence gives
    up the pages that its window has left. A sequence that is truncated to where it has given up pages is stale: it has
    no pages, and its tokens are computed again, in the same way, when they are needed.
    Invariants: group->uses[page] counts the sequences of a page; a page with 0 is in group->free_pages.
    May use: engine_step.c. Locks: the caller holds the engine's lock. */

#include "room.h"

/*  Gives up the pages before the window of the row at `position`, except those that a truncation may need. */
static void ignis__sequence_forget(ignis__sequence *sequence, int position)
{
    ignis__page_group *group = &sequence->engine->groups[IGNIS__PAGES_OF_WINDOWS];
    ignis__page_table *table = &sequence->tables[IGNIS__PAGES_OF_WINDOWS];
    const int first = ignis__window_begin(group, position, true) / IGNIS__PAGE;
    for (; group->layers && table->first < first && table->first < table->count; table->first++)
        ignis__page_drop(group, table->page[table->first]);
}

/*  Returns the pages of a group that a sequence needs before it can write positions [from, to) to pages of its own. */
static int ignis__sequence_needs_pages(const ignis__sequence *sequence, int g, int from, int to)
{
    const ignis__page_group *group = &sequence->engine->groups[g];
    const ignis__page_table *table = &sequence->tables[g];
    int page, needed = 0;
    for (page = from / IGNIS__PAGE; group->layers && page * IGNIS__PAGE < to; page++)
        needed += page >= table->count || group->uses[table->page[page]] > 1;
    return needed;
}

/*  Checks that a group has `needed` free pages. Kept pages make room. False, and reported unless call is NULL, if
    not. */
IGNIS__PRIVATE bool ignis__engine_has_pages(const char *call, ignis__engine *engine, int g, int needed)
{
    const ignis__page_group *group = &engine->groups[g];
    if (needed > group->free_count)
        ignis__kept_make_room(engine, g, needed);
    if (needed > group->free_count && call)
        ignis__fail(IGNIS_DIAG_CACHE_FULL, call,
                    "the cache%s has %d pages of %d tokens, %d of them free, and %d are needed; free or truncate "
                    "sequences, or open the model with a larger desc.sequences (%d sequences of %d tokens)",
                    g == IGNIS__PAGES_OF_WINDOWS ? " of layers with a window" : "", group->pages, (int)IGNIS__PAGE,
                    group->free_count, needed, engine->model->sequences, engine->context);
    return needed <= group->free_count;
}

/*  Checks that the cache has the pages that a sequence needs before it can write positions [from, to) to pages of its
    own; of windows those of one chunk. Kept pages make room. False, and reported unless call is NULL, if not. */
IGNIS__PRIVATE bool ignis__sequence_has_pages(const char *call, ignis__sequence *sequence, int from, int to)
{
    ignis__engine *engine = sequence->engine;
    int g, page, needed;
    ignis__sequence_forget(sequence, from);
    for (g = 0; g < IGNIS__PAGE_GROUPS; g++) {
        const ignis__page_group *group = &engine->groups[g];
        const ignis__page_table *table = &sequence->tables[g];
        const int end = g == IGNIS__PAGES_OF_WINDOWS && to - from > IGNIS__CHUNK ? from + IGNIS__CHUNK : to;
        needed = ignis__sequence_needs_pages(sequence, g, from, end);
        if (needed > group->free_count)
            ignis__kept_make_room(engine, g, needed);
        for (page = from / IGNIS__PAGE; needed > group->free_count && page < table->count; page++)
            ignis__kept_release(engine, g, table->page[page]);
        needed = needed > group->free_count ? ignis__sequence_needs_pages(sequence, g, from, end) : needed;
        if (!ignis__engine_has_pages(call, engine, g, needed))
            return false;
    }
    return true;
}

/*  Gives a sequence pages of its own for positions [from, to) in a group, copies pages that it shares, and uploads the
    table. */
static void ignis__sequence_take_group(ignis__op *op, ignis__sequence *sequence, int g, int from, int to)
{
    ignis__engine *engine = sequence->engine;
    ignis__page_group *group = &engine->groups[g];
    ignis__page_table *table = &sequence->tables[g];
    ignis__address cache = op->ok ? ignis__op_write(op, engine->caches[g]) : 0;
    int64_t size = ignis__engine_page_elements(engine), slab = size * group->pages;
    int number, to_page, from_page;
    void *params[] = {&cache, &slab, &size, &to_page, &from_page};
    for (number = from / IGNIS__PAGE; op->ok && number * IGNIS__PAGE < to; number++) {
        bool fresh = number >= table->count;
        if (!fresh && group->uses[table->page[number]] == 1)
            continue;
        to_page = group->free_pages[group->free_count - 1];
        if (!fresh) {
            from_page = table->page[number];
            ignis__op_launch_row(op, IGNIS__BUILTIN(GENERATE_COPY), engine->model->dtype,
                                 (int64_t)ignis__engine_slabs(engine) * group->layers, 256, params);
            if (!op->ok)
                return;
            ignis__page_drop(group, from_page); /* others use it, too */
        }
        group->free_count--;
        group->uses[to_page] = 1;
        table->page[number] = to_page;
        table->count += fresh;
        table->uploaded = table->uploaded < number ? table->uploaded : number;
    }
    table->uploaded = table->uploaded < table->first ? table->first : table->uploaded;
    ignis__upload_i32(op, engine->model->dtype, sequence->pages_on_device,
                      (int64_t)g * ignis__engine_context_pages(engine) + table->uploaded, table->page + table->uploaded,
                      table->count - table->uploaded);
    if (op->ok)
        table->uploaded = table->count;
}

/*  Gives a sequence pages of its own for positions [from, to), and uploads ids and pages. The caller has checked that
    the pages are free. */
IGNIS__PRIVATE void ignis__sequence_take_pages(ignis__op *op, ignis__sequence *sequence, int from, int to)
{
    ignis__engine *engine = sequence->engine;
    int g;
    for (g = 0; g < IGNIS__PAGE_GROUPS; g++)
        if (engine->groups[g].layers)
            ignis__sequence_take_group(op, sequence, g, from, to);
    ignis__upload_i32(op, engine->model->dtype, sequence->ids_on_device, sequence->uploaded,
                      sequence->ids + sequence->uploaded, sequence->length - sequence->uploaded);
    if (op->ok)
        sequence->uploaded = sequence->length;
}

IGNIS__PRIVATE void ignis__sequence_fill_row(ignis__op *op, ignis__sequence *sequence, int position,
                                             ignis__generate_row *row)
{
    memset(row, 0, sizeof *row);
    row->ids = ignis__op_write(op, sequence->ids_on_device);
    row->pages = ignis__op_write(op, sequence->pages_on_device);
    row->position = position;
    row->penalty = 1;
    if (sequence->states) {
        row->states = ignis__op_write(op, sequence->states);
        row->turn = (ignis__sequence_find_state(sequence, position) + position) & 1;
    }
    row->adapters = sequence->lora ? ignis__op_read(op, sequence->lora->table) : 0;
}

/*  Runs `count` tokens of a sequence, from `first` on, through all layers. in_chunk[first] says whether as a chunk of a
    prompt. */
IGNIS__PRIVATE void ignis__sequence_run_chunk(ignis__op *op, ignis__sequence *sequence, int first, int count)
{
    ignis__engine *engine = sequence->engine;
    ignis__generate_row row;
    ignis__sequence_fill_row(op, sequence, first, &row);
    ignis__sequence_advance_state(sequence, first, count);
    ignis__sequence_read_lora(op, sequence);
    ignis__upload_rows_from(op, engine->model->dtype, engine->rows, &row, count);
    ignis__engine_layers(op, engine, count, first + count, sequence->in_chunk[first],
                         sequence->lora ? sequence->lora->products : 0);
}

/*  Computes the tokens of a stale sequence again, each in a chunk or not as before, so that all bits are the same. A
    sequence without a state before `position`, the next one to be computed, is stale, too. */
IGNIS__PRIVATE void ignis__sequence_refill(ignis__op *op, ignis__sequence *sequence, int position)
{
    const bool *in_chunk = sequence->in_chunk;
    int at, end, cached = sequence->cached;
    if (!sequence->stale && ignis__sequence_find_state(sequence, position) < 0)
        ignis__sequence_drop_pages(sequence);
    else if (!sequence->stale)
        return;
    sequence->stale = false;
    if (sequence->states) { /* the states count tokens */
        cached = position;
        sequence->cached = 0;
        ignis__sequence_forget_states(sequence);
    }
    for (at = 0; op->ok && at < cached; at = end) {
        const int most = in_chunk[at] ? IGNIS__CHUNK : IGNIS__PROMPT_ROWS;
        for (end = at + 1; end < cached && end < at + most && in_chunk[end] == in_chunk[at];)
            end++;
        op->ok = ignis__sequence_has_pages(op->work.call, sequence, at, end);
        ignis__sequence_take_pages(op, sequence, at, end);
        ignis__sequence_run_chunk(op, sequence, at, end - at);
    }
    sequence->cached = cached;
    if (op->ok)
        return;
    ignis__sequence_drop_pages(sequence);
    sequence->stale = true;
}

/*  Keeps the hidden state of a sequence's last token, which is the last one of `count` rows. */
IGNIS__PRIVATE void ignis__sequence_keep_hidden(ignis__op *op, ignis__sequence *sequence, int count)
{
    ignis__engine *engine = sequence->engine;
    const int64_t bytes = engine->sum->shape.dim[1] * ignis__dtypes[engine->sum->dtype].size;
    ignis__array *last = NULL;
    ignis__address from = ignis__op_write(op, engine->sum) + (ignis__address)((count - 1) * bytes);
    op->ok = op->ok &&
             ignis__engine_alloc(op->work.call, engine, &last, 1, engine->sum->shape.dim[1], engine->sum->dtype) &&
             ignis__copy_on_device(&op->work, ignis__op_write(op, last), from, bytes);
    if (sequence->last_hidden)
        ignis__array_unclaim(op->work.call, sequence->last_hidden);
    sequence->last_hidden = last;
    sequence->last_hidden_length = op->ok ? sequence->length : 0;
}

/*  Puts tokens into the KV cache, and waits. Of a chunk it takes all tokens. Of fewer tokens it leaves out the last
    one, which the next decode step computes. Chunks are those of a sequence that takes no kept pages, so the bits are
    the same. */
static bool ignis__sequence_fill_cache(const char *call, ignis__sequence *sequence)
{
    ignis__engine *engine = sequence->engine;
    const int first = sequence->cached, grain = sequence->shares ? ignis__kept_grain(sequence) : 1;
    const bool shares = sequence->shares && first % grain == 0;
    ignis__op op;
    int count = 0, at, end, path = -1, pages = 0;
    if (!ignis__op_begin_on_device(&op, call, engine->device))
        return false;
    for (at = first; at < sequence->length; at = end) {
        end = sequence->length - at < IGNIS__CHUNK ? sequence->length : at + IGNIS__CHUNK;
        memset(sequence->in_chunk + at, end - at > IGNIS__PROMPT_ROWS, sizeof *sequence->in_chunk * (size_t)(end - at));
    }
    ignis__sequence_refill(&op, sequence, sequence->cached);
    if (op.ok && shares)
        ignis__kept_give(sequence, grain, &path, &pages);
    op.ok = op.ok && ignis__sequence_has_pages(call, sequence, sequence->cached, sequence->length);
    while (op.ok && sequence->cached < sequence->length) {
        end = first + ((sequence->cached - first) / IGNIS__CHUNK + 1) * IGNIS__CHUNK;
        count = (end < sequence->length ? end : sequence->length) - sequence->cached;
        op.ok = ignis__sequence_has_pages(call, sequence, sequence->cached, sequence->cached + count);
        ignis__sequence_take_pages(&op, sequence, sequence->cached, sequence->cached + count);
        if (!sequence->in_chunk[sequence->cached] && --count == 0)
            break;
        ignis__sequence_run_chunk(&op, sequence, sequence->cached, count);
        if (!op.ok)
            break;
        sequence->cached += count;
        if (shares)
            ignis__kept_add(sequence, &path, &pages);
        ignis__sequence_forget(sequence, sequence->cached);
        if (!sequence->in_chunk[sequence->cached - 1])
            break; /* the last token is left out */
    }
    if (op.ok && path >= 0)
        ignis__kept_use_sequence(sequence, path, pages);
    if (op.ok && sequence->cached == sequence->length)
        ignis__sequence_keep_hidden(&op, sequence, count);
    op.ok = op.ok && !IGNIS__CUDA_FAILED(call, engine->device, cuStreamSynchronize, (op.work.stream)) &&
            (engine->model->parallel.size <= 1 ||
             engine->model->parallel.check_fn(engine->model->parallel.group) == IGNIS_OK);
    if (!op.ok && shares)
        ignis__kept_clear(engine); /* pages may have wrong contents */
    return ignis__engine_leave(&op);
}

/*  Keeps the first `length` tokens, and the pages of those that the cache has. Without all pages that the next row
    needs, which may be that of the last token, the sequence becomes stale. */
IGNIS__PRIVATE void ignis__sequence_truncate(ignis__sequence *sequence, int length)
{
    ignis__page_group *groups = sequence->engine->groups;
    int pages, g;
    sequence->length = length;
    sequence->waiting = 0;
    sequence->cached = sequence->cached < length ? sequence->cached : length;
    sequence->last_hidden_length = sequence->last_hidden_length <= length ? sequence->last_hidden_length : 0;
    ignis__sequence_forget_states(sequence);
    pages = (int)ignis__ceil_div(sequence->cached, IGNIS__PAGE);
    sequence->uploaded = sequence->uploaded < length ? sequence->uploaded : length;
    sequence->hashed_length = sequence->hashed_length <= length ? sequence->hashed_length : 0;
    sequence->constrained = sequence->constrained < length ? sequence->constrained : length;
    sequence->epoch = sequence->matched <= length ? sequence->epoch : 0;
    sequence->stale =
        sequence->cached > 0 &&
        (sequence->stale || sequence->tables[IGNIS__PAGES_OF_WINDOWS].first * IGNIS__PAGE >
                                ignis__window_begin(&groups[IGNIS__PAGES_OF_WINDOWS], sequence->cached - 1, false));
    if (sequence->stale || pages == 0)
        ignis__sequence_drop_pages(sequence);
    for (g = 0; g < IGNIS__PAGE_GROUPS; g++) {
        ignis__page_table *table = &sequence->tables[g];
        while (table->count > pages)
            ignis__page_drop(&groups[g], table->page[--table->count]);
        table->uploaded = table->uploaded < table->count ? table->uploaded : table->count;
    }
}

/*  Checks that the model has these ids. False, and reported, if not. */
IGNIS__PRIVATE bool ignis__sequence_check_ids(const char *call, const ignis__sequence *sequence, const int32_t *ids,
                                              int count)
{
    int i = 0;
    while (i < count && ids[i] >= 0 && ids[i] < sequence->model->vocab)
        i++;
    if (i < count)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "ids[%d] is %d; the model has tokens 0 to %d", i, (int)ids[i],
                    sequence->model->vocab - 1);
    return i == count;
}

/*  Appends ids that the model has, and puts them into the cache, except the last one unless it is in a chunk. After a
    failure the sequence is as it was. */
IGNIS__PRIVATE bool ignis__sequence_append(const char *call, ignis__sequence *sequence, const int32_t *ids, int count)
{
    int before = sequence->length, cached = sequence->cached;
    bool in_chunk = before > 0 && sequence->in_chunk[before - 1]; /* may be recomputed together with new tokens */
    if (count > sequence->engine->context - before)
        return ignis__fail(IGNIS_DIAG_CONTEXT_FULL, call,
                           "the sequence has %d tokens, %d more do not fit the context of %d", before, count,
                           sequence->engine->context) == IGNIS_OK;
    if (count == 0)
        return true;
    memcpy(sequence->ids + before, ids, sizeof *ids * (size_t)count);
    sequence->waiting = 0;
    sequence->length = before + count;
    if (ignis__sequence_fill_cache(call, sequence))
        return true;
    sequence->cached = cached; /* the pages may have wrong contents */
    ignis__sequence_truncate(sequence, before);
    if (before > 0)
        sequence->in_chunk[before - 1] = in_chunk;
    return false;
}
