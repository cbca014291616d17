/*  models/generate/sequence.c - sequences: held, locked, released

    A sequence holds its model, and by that the engine. One lock per engine guards all of its sequences, because
    they share the cache and the buffers of a step.
    Locks: ignis__sequence_enter takes the engine's lock, after steps ahead are settled; _leave releases it. */

#include "room.h"

/*  Lets one more sequence, or an entry of the kept pages, use a page. */
IGNIS__PRIVATE void ignis__page_hold(ignis__page_group *group, int page)
{
    group->spare -= group->uses[page]++ == 1 && group->kept && group->kept[page] >= 0;
}

/*  Takes a free page for a sequence. */
IGNIS__PRIVATE int ignis__page_take(ignis__page_group *group)
{
    const int page = group->free_pages[--group->free_count];
    group->uses[page] = 1;
    return page;
}

/*  Gives up a page of a sequence. */
IGNIS__PRIVATE void ignis__page_drop(ignis__page_group *group, int page)
{
    if (--group->uses[page] == 0)
        group->free_pages[group->free_count++] = page;
    else
        group->spare += group->uses[page] == 1 && group->kept && group->kept[page] >= 0;
}

/*  Returns the first key that windows reach from `position`, or from IGNIS__REWIND tokens before it with `rewinds`.
    It begins a grain, because kernels load tiles of keys whole. */
IGNIS__PRIVATE int ignis__window_begin(const ignis__page_group *group, int position, bool rewinds)
{
    const int64_t begin = (int64_t)position - group->window + 1 - (rewinds ? (int)IGNIS__REWIND + 1 : 0);
    return begin < 0 ? 0 : (int)(begin / IGNIS__WINDOW_GRAIN * IGNIS__WINDOW_GRAIN);
}

/*  Returns the first page that windows reach from `position`. */
IGNIS__PRIVATE int ignis__sequence_window_page(const ignis__engine *engine, int position)
{
    return ignis__window_begin(&engine->groups[IGNIS__PAGES_OF_WINDOWS], position, false) / IGNIS__PAGE;
}

/*  Gives up all pages. */
IGNIS__PRIVATE void ignis__sequence_drop_pages(ignis__sequence *sequence)
{
    int g;
    for (g = 0; g < IGNIS__PAGE_GROUPS; g++) {
        ignis__page_table *table = &sequence->tables[g];
        while (table->count > table->first)
            ignis__page_drop(&sequence->engine->groups[g], table->page[--table->count]);
        table->first = table->count = table->uploaded = 0;
    }
}

/*  Returns the event after the last step of a generation. */
IGNIS__PRIVATE void *ignis__generation_last(const ignis__generation *g)
{
    return g->drawn[(g->first + g->queued - 1) % IGNIS__DRAWS]->event;
}

/*  Waits for the steps of a generation, and discards their tokens. */
IGNIS__PRIVATE void ignis__generation_settle(const char *call, ignis__generation *g)
{
    ignis__engine *engine = g->sequence->engine;
    ignis__binding binding;
    int i;
    if (g->queued == 0)
        return;
    if (ignis__device_enter(call, engine->device, &binding)) {
        if (IGNIS__CUDA_FAILED(call, engine->device, cuEventSynchronize, (ignis__generation_last(g))))
            (void)IGNIS__CUDA(cuStreamSynchronize, (g->stream)); /* others use the buffers next */
        ignis__device_leave(&binding);
    }
    for (i = 0; i < IGNIS__DRAWS; i++) {
        if (g->drawn[i])
            ignis__event_recycle(engine->device, g->drawn[i]);
        g->drawn[i] = NULL;
    }
    g->queued = 0;
    engine->ahead[g->place] = NULL;
    engine->row_of = engine->row_of == g ? NULL : engine->row_of;
}

/*  Frees the polled text of a sequence of a locked engine. */
IGNIS__PRIVATE void ignis__polled_free(const char *call, ignis__sequence *sequence)
{
    ignis__generation_settle(call, &sequence->polled->generation);
    ignis__free(sequence->polled->output.text);
    ignis__free(sequence->polled);
    sequence->polled = NULL;
}

/*  Frees what a sequence owns, returns its pages, and recycles the slot. */
IGNIS__PRIVATE void ignis__sequence_clear(const char *call, ignis__sequence *sequence)
{
    ignis__mutex_lock(&sequence->engine->lock);
    if (sequence->polled)
        ignis__polled_free(call, sequence);
    if (sequence->grammar)
        sequence->grammar->uses--;
    ignis__sequence_drop_pages(sequence);
    ignis__mutex_unlock(&sequence->engine->lock);
    if (sequence->ids_on_device)
        ignis__array_unclaim(call, sequence->ids_on_device);
    if (sequence->pages_on_device)
        ignis__array_unclaim(call, sequence->pages_on_device);
    if (sequence->last_hidden)
        ignis__array_unclaim(call, sequence->last_hidden);
    if (sequence->states)
        ignis__array_unclaim(call, sequence->states);
    ignis__free(sequence->ids);
    ignis__free(sequence->tables[0].page);
    ignis__free(sequence->in_chunk);
    ignis__sequence_drop_lora(call, sequence);
    ignis__model_drop(call, sequence->model);
    ignis__pool_recycle(&ignis__sequences, sequence);
}

/*  Drops a hold; the last one destroys the sequence. */
IGNIS__PRIVATE void ignis__sequence_drop(const char *call, ignis__sequence *sequence)
{
    if (ignis__pool_drop(sequence))
        ignis__sequence_clear(call, sequence);
}

/*  Reports all live sequences at ignis_shutdown, and ends them before graphs, as they hold some. */
IGNIS__PRIVATE void ignis__sequences_close(const char *call)
{
    ignis__sequence *sequence;
    uint64_t index = 0;
    while ((sequence = (ignis__sequence *)ignis__pool_next(&ignis__sequences, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "sequence of %d tokens on device %d", sequence->length,
                           (int)(sequence->engine->device - ignis__devices));
        ignis__handle_kill(sequence);
        ignis__sequence_drop(call, sequence);
    }
}

/*  Waits for all steps that are ahead, and discards their tokens. The caller holds the engine's lock. */
IGNIS__PRIVATE void ignis__engine_settle(const char *call, ignis__engine *engine)
{
    int i;
    for (i = 0; i < engine->step_rows; i++)
        if (engine->ahead[i])
            ignis__generation_settle(call, engine->ahead[i]);
}

/*  Locks an engine for work on it or on its sequences. No step is ahead afterwards. */
IGNIS__PRIVATE void ignis__engine_lock(const char *call, ignis__engine *engine)
{
    ignis__mutex_lock(&engine->lock);
    ignis__engine_settle(call, engine);
}

/*  Ends work with an engine. Other threads use it next, on streams of their own, so after a failure this waits for
    what is queued. */
IGNIS__PRIVATE bool ignis__engine_leave(ignis__op *op)
{
    if (!op->ok)
        (void)IGNIS__CUDA(cuStreamSynchronize, (op->work.stream));
    return ignis__op_leave(op) == IGNIS_OK;
}

/*  Holds a sequence. NULL, and reported, if the handle is freed or this thread captures a graph. */
IGNIS__PRIVATE ignis__sequence *ignis__sequence_hold(const char *call, ignis_sequence handle)
{
    ignis__sequence *sequence = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, handle.id);
    if (!sequence || !ignis__capture_refuses(call))
        return sequence;
    ignis__sequence_drop(call, sequence);
    return NULL;
}

/*  As ignis__sequence_hold, and locks the engine. */
IGNIS__PRIVATE ignis__sequence *ignis__sequence_enter(const char *call, ignis_sequence handle)
{
    ignis__sequence *sequence = ignis__sequence_hold(call, handle);
    if (sequence)
        ignis__engine_lock(call, sequence->engine);
    return sequence;
}

IGNIS__PRIVATE void ignis__sequence_leave(const char *call, ignis__sequence *sequence)
{
    ignis__mutex_unlock(&sequence->engine->lock);
    ignis__sequence_drop(call, sequence);
}
