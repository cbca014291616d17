#include "room.h"

/*  How many pages a sequence still has to get to write positions [from, to) in pages of its own. */
IGNIS__PRIVATE int ignis__sequence_pages_needed(const ignis__sequence *s, int from, int to)
{
    int page, needed = 0;
    for (page = from / IGNIS__PAGE; page * IGNIS__PAGE < to; page++)
        needed += page >= s->page_count || s->engine->uses[s->page[page]] > 1;
    return needed;
}

/*  False, and reported: the cache has not that many pages left. */
IGNIS__PRIVATE bool ignis__engine_has_pages(const char *call, const ignis__engine *e, int needed)
{
    if (needed <= e->free_count)
        return true;
    ignis__fail(IGNIS_DIAG_CACHE_FULL, call,
                "the cache has %d pages of %d tokens, %d of them free, and %d are needed; free or truncate sequences, "
                "or open the model with a "
                "larger desc.sequences (%d sequences of %d tokens)",
                e->pages, (int)IGNIS__PAGE, e->free_count, needed, e->model->sequences, e->context);
    return false;
}

/*  Makes the pages of positions [from, to) a sequence's own, copies those that others have too, and tells the device. The engine has enough. */
IGNIS__PRIVATE void ignis__sequence_take_pages(ignis__op *op, ignis__sequence *s, int from, int to)
{
    ignis__engine *e = s->engine;
    ignis__address cache = op->ok ? ignis__op_write(op, e->cache) : 0;
    int64_t size = ignis__engine_page_elements(e), slab = size * e->pages;
    int number, to_page, from_page;
    void *params[] = {&cache, &slab, &size, &to_page, &from_page};
    for (number = from / IGNIS__PAGE; op->ok && number * IGNIS__PAGE < to; number++) {
        bool fresh = number >= s->page_count;
        if (!fresh && e->uses[s->page[number]] == 1)
            continue;
        to_page = e->free_pages[e->free_count - 1];
        if (!fresh) {
            from_page = s->page[number];
            ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_COPY, e->model->dtype, 2 * (int64_t)e->model->layers, 256,
                                 params);
            if (!op->ok)
                return;
            e->uses[from_page]--;
        }
        e->free_count--;
        e->uses[to_page] = 1;
        s->page[number] = to_page;
        s->page_count += fresh;
        s->pages_sent = s->pages_sent < number ? s->pages_sent : number;
    }
    ignis__step_words(op, e->model->dtype, s->table, s->pages_sent, s->page + s->pages_sent,
                      s->page_count - s->pages_sent);
    ignis__step_words(op, e->model->dtype, s->on_device, s->sent, s->ids + s->sent, s->length - s->sent);
    if (op->ok) {
        s->pages_sent = s->page_count;
        s->sent = s->length;
    }
}

IGNIS__PRIVATE void ignis__sequence_row(ignis__op *op, ignis__sequence *s, int position, ignis__generate_row *row)
{
    memset(row, 0, sizeof *row);
    row->ids = ignis__op_write(op, s->on_device);
    row->pages = ignis__op_write(op, s->table);
    row->position = position;
    row->penalty = 1;
}

/*  Tokens of a sequence from `first` on go through all layers, in the way that the first one is marked for. */
IGNIS__PRIVATE void ignis__sequence_piece(ignis__op *op, ignis__sequence *s, int first, int count)
{
    ignis__engine *e = s->engine;
    ignis__generate_row row;
    ignis__sequence_row(op, s, first, &row);
    ignis__step_chunk(op, e->model->dtype, e->rows, &row, count);
    ignis__engine_layers(op, e, count, first + count, s->many[first]);
}

/*  Keeps what all layers have found of a sequence's last token, which is the last of so many rows. */
IGNIS__PRIVATE void ignis__sequence_keep(ignis__op *op, ignis__sequence *s, int count)
{
    ignis__engine *e = s->engine;
    const int64_t bytes = e->sum->shape.dim[1] * ignis__dtypes[e->sum->dtype].size;
    ignis__array *last = NULL;
    ignis__address from = ignis__op_write(op, e->sum) + (ignis__address)((count - 1) * bytes);
    op->ok = op->ok && ignis__engine_room(op->work.call, e, &last, 1, e->sum->shape.dim[1], e->sum->dtype) &&
             ignis__copy_on_device(&op->work, ignis__op_write(op, last), from, bytes);
    if (s->last)
        ignis__array_unclaim(op->work.call, s->last);
    s->last = last;
    s->last_length = op->ok ? s->length : 0;
}

/*  Puts tokens into the cache: all of a piece of many, of others all but the last one, which the next step computes. Waits for them. */
static bool ignis__sequence_fill(const char *call, ignis__sequence *s)
{
    ignis__engine *e = s->engine;
    ignis__op op;
    int count = 0;
    if (!ignis__model_plain(call, s->model) ||
        !ignis__engine_has_pages(call, e, ignis__sequence_pages_needed(s, s->cached, s->length)) ||
        !ignis__next_begin(&op, call, e->device))
        return false;
    ignis__sequence_take_pages(&op, s, s->cached, s->length);
    while (op.ok && s->cached < s->length) {
        count = s->length - s->cached < IGNIS__CHUNK ? s->length - s->cached : IGNIS__CHUNK;
        memset(s->many + s->cached, count > IGNIS__STEP_ROWS, sizeof *s->many * (size_t)count);
        if (count <= IGNIS__STEP_ROWS && --count == 0)
            break;
        ignis__sequence_piece(&op, s, s->cached, count);
        if (!op.ok)
            break;
        s->cached += count;
    }
    if (op.ok && s->cached == s->length)
        ignis__sequence_keep(&op, s, count);
    op.ok = op.ok && !IGNIS__CUDA_FAILED(call, e->device, cuStreamSynchronize, (op.work.stream)) &&
            (e->model->parallel.size <= 1 || e->model->parallel.check_fn(e->model->parallel.group) == IGNIS_OK);
    return ignis__engine_leave(&op);
}

/*  Leaves the first tokens, and the pages of those that the cache has. */
IGNIS__PRIVATE void ignis__sequence_cut(ignis__sequence *s, int length)
{
    int pages;
    s->length = length;
    s->cached = s->cached < length ? s->cached : length;
    s->last_length = s->last_length <= length ? s->last_length : 0;
    pages = (int)ignis__ceil_div(s->cached, IGNIS__PAGE);
    s->sent = s->sent < length ? s->sent : length;
    s->said_length = s->said_length <= length ? s->said_length : 0;
    s->constrained = s->constrained < length ? s->constrained : length;
    s->epoch = s->matched <= length ? s->epoch : 0;
    while (s->page_count > pages) {
        int page = s->page[--s->page_count];
        if (--s->engine->uses[page] == 0)
            s->engine->free_pages[s->engine->free_count++] = page;
    }
    s->pages_sent = s->pages_sent < s->page_count ? s->pages_sent : s->page_count;
}

/*  False, and reported: the model has not all of these tokens. */
IGNIS__PRIVATE bool ignis__sequence_knows(const char *call, const ignis__sequence *s, const int32_t *ids, int count)
{
    int i = 0;
    while (i < count && ids[i] >= 0 && ids[i] < s->model->vocab)
        i++;
    if (i < count)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "ids[%d] is %d; the model has tokens 0 to %d", i, (int)ids[i],
                    s->model->vocab - 1);
    return i == count;
}

/*  Appends tokens that the model has, and puts what comes before the last one into the cache. After a failure the sequence is as it was. */
IGNIS__PRIVATE bool ignis__sequence_append(const char *call, ignis__sequence *s, const int32_t *ids, int count)
{
    int before = s->length, cached = s->cached;
    bool many = before > 0 && s->many[before - 1]; /* it may go with the others */
    if (count > s->engine->context - before)
        return ignis__fail(IGNIS_DIAG_CONTEXT_FULL, call,
                           "the sequence has %d tokens, %d more do not fit the context of %d", before, count,
                           s->engine->context) == IGNIS_OK;
    if (count == 0)
        return true;
    memcpy(s->ids + before, ids, sizeof *ids * (size_t)count);
    s->length = before + count;
    if (ignis__sequence_fill(call, s))
        return true;
    s->cached = cached; /* what was computed may be wrong */
    ignis__sequence_cut(s, before);
    if (before > 0)
        s->many[before - 1] = many;
    return false;
}
