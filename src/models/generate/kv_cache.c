/*  models/generate/kv_cache.c - pages of the KV cache, and tokens that enter it

    A page has the keys and values of 16 positions in all layers. Forks share pages, so a page that others use, too,
    is copied before a sequence writes to it.
    Invariants: engine->uses[page] counts the sequences of a page; a page with 0 is in engine->free_pages.
    May use: engine_step.c. Locks: the caller holds the engine's lock. */

#include "room.h"

/*  Returns how many pages a sequence needs before it can write positions [from, to) to pages of its own. */
IGNIS__PRIVATE int ignis__sequence_pages_needed(const ignis__sequence *sequence, int from, int to)
{
    int page, needed = 0;
    for (page = from / IGNIS__PAGE; page * IGNIS__PAGE < to; page++)
        needed += page >= sequence->page_count || sequence->engine->uses[sequence->page[page]] > 1;
    return needed;
}

/*  Checks that the cache has `needed` free pages. False, and reported, if not. */
IGNIS__PRIVATE bool ignis__engine_has_pages(const char *call, const ignis__engine *engine, int needed)
{
    if (needed <= engine->free_count)
        return true;
    ignis__fail(IGNIS_DIAG_CACHE_FULL, call,
                "the cache has %d pages of %d tokens, %d of them free, and %d are needed; free or truncate sequences, "
                "or open the model with a "
                "larger desc.sequences (%d sequences of %d tokens)",
                engine->pages, (int)IGNIS__PAGE, engine->free_count, needed, engine->model->sequences, engine->context);
    return false;
}

/*  Gives a sequence pages of its own for positions [from, to), copies pages that it shares, and uploads ids and
    pages. The caller has checked that the pages are free. */
IGNIS__PRIVATE void ignis__sequence_take_pages(ignis__op *op, ignis__sequence *sequence, int from, int to)
{
    ignis__engine *engine = sequence->engine;
    ignis__address cache = op->ok ? ignis__op_write(op, engine->cache) : 0;
    int64_t size = ignis__engine_page_elements(engine), slab = size * engine->pages;
    int number, to_page, from_page;
    void *params[] = {&cache, &slab, &size, &to_page, &from_page};
    for (number = from / IGNIS__PAGE; op->ok && number * IGNIS__PAGE < to; number++) {
        bool fresh = number >= sequence->page_count;
        if (!fresh && engine->uses[sequence->page[number]] == 1)
            continue;
        to_page = engine->free_pages[engine->free_count - 1];
        if (!fresh) {
            from_page = sequence->page[number];
            ignis__op_launch_row(op, IGNIS__BUILTIN(GENERATE_COPY), engine->model->dtype,
                                 2 * (int64_t)engine->model->layers, 256, params);
            if (!op->ok)
                return;
            engine->uses[from_page]--;
        }
        engine->free_count--;
        engine->uses[to_page] = 1;
        sequence->page[number] = to_page;
        sequence->page_count += fresh;
        sequence->pages_uploaded = sequence->pages_uploaded < number ? sequence->pages_uploaded : number;
    }
    ignis__upload_i32(op, engine->model->dtype, sequence->pages_on_device, sequence->pages_uploaded,
                      sequence->page + sequence->pages_uploaded, sequence->page_count - sequence->pages_uploaded);
    ignis__upload_i32(op, engine->model->dtype, sequence->ids_on_device, sequence->uploaded,
                      sequence->ids + sequence->uploaded, sequence->length - sequence->uploaded);
    if (op->ok) {
        sequence->pages_uploaded = sequence->page_count;
        sequence->uploaded = sequence->length;
    }
}

IGNIS__PRIVATE void ignis__sequence_fill_row(ignis__op *op, ignis__sequence *sequence, int position,
                                             ignis__generate_row *row)
{
    memset(row, 0, sizeof *row);
    row->ids = ignis__op_write(op, sequence->ids_on_device);
    row->pages = ignis__op_write(op, sequence->pages_on_device);
    row->position = position;
    row->penalty = 1;
}

/*  Runs `count` tokens of a sequence, from `first` on, through all layers. in_chunk[first] says whether as a chunk of a
    prompt. */
IGNIS__PRIVATE void ignis__sequence_run_chunk(ignis__op *op, ignis__sequence *sequence, int first, int count)
{
    ignis__engine *engine = sequence->engine;
    ignis__generate_row row;
    ignis__sequence_fill_row(op, sequence, first, &row);
    ignis__upload_rows_from(op, engine->model->dtype, engine->rows, &row, count);
    ignis__engine_layers(op, engine, count, first + count, sequence->in_chunk[first]);
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
    one, which the next decode step computes. */
static bool ignis__sequence_fill_cache(const char *call, ignis__sequence *sequence)
{
    ignis__engine *engine = sequence->engine;
    ignis__op op;
    int count = 0;
    if (!ignis__model_check_no_lora(call, sequence->model) ||
        !ignis__engine_has_pages(call, engine,
                                 ignis__sequence_pages_needed(sequence, sequence->cached, sequence->length)) ||
        !ignis__op_begin_on_device(&op, call, engine->device))
        return false;
    ignis__sequence_take_pages(&op, sequence, sequence->cached, sequence->length);
    while (op.ok && sequence->cached < sequence->length) {
        count = sequence->length - sequence->cached < IGNIS__CHUNK ? sequence->length - sequence->cached : IGNIS__CHUNK;
        memset(sequence->in_chunk + sequence->cached, count > IGNIS__STEP_ROWS,
               sizeof *sequence->in_chunk * (size_t)count);
        if (count <= IGNIS__STEP_ROWS && --count == 0)
            break;
        ignis__sequence_run_chunk(&op, sequence, sequence->cached, count);
        if (!op.ok)
            break;
        sequence->cached += count;
    }
    if (op.ok && sequence->cached == sequence->length)
        ignis__sequence_keep_hidden(&op, sequence, count);
    op.ok = op.ok && !IGNIS__CUDA_FAILED(call, engine->device, cuStreamSynchronize, (op.work.stream)) &&
            (engine->model->parallel.size <= 1 ||
             engine->model->parallel.check_fn(engine->model->parallel.group) == IGNIS_OK);
    return ignis__engine_leave(&op);
}

/*  Keeps the first `length` tokens, and the pages of those that the cache has. */
IGNIS__PRIVATE void ignis__sequence_truncate(ignis__sequence *sequence, int length)
{
    int pages;
    sequence->length = length;
    sequence->cached = sequence->cached < length ? sequence->cached : length;
    sequence->last_hidden_length = sequence->last_hidden_length <= length ? sequence->last_hidden_length : 0;
    pages = (int)ignis__ceil_div(sequence->cached, IGNIS__PAGE);
    sequence->uploaded = sequence->uploaded < length ? sequence->uploaded : length;
    sequence->hashed_length = sequence->hashed_length <= length ? sequence->hashed_length : 0;
    sequence->constrained = sequence->constrained < length ? sequence->constrained : length;
    sequence->epoch = sequence->matched <= length ? sequence->epoch : 0;
    while (sequence->page_count > pages) {
        int page = sequence->page[--sequence->page_count];
        if (--sequence->engine->uses[page] == 0)
            sequence->engine->free_pages[sequence->engine->free_count++] = page;
    }
    sequence->pages_uploaded =
        sequence->pages_uploaded < sequence->page_count ? sequence->pages_uploaded : sequence->page_count;
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
    sequence->length = before + count;
    if (ignis__sequence_fill_cache(call, sequence))
        return true;
    sequence->cached = cached; /* the pages may have wrong contents */
    ignis__sequence_truncate(sequence, before);
    if (before > 0)
        sequence->in_chunk[before - 1] = in_chunk;
    return false;
}
