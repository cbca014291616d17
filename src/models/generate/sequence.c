#include "room.h"

/*  Takes a sequence apart that nobody uses any more. */
IGNIS__PRIVATE void ignis__sequence_drop(const char *call, ignis__sequence *s)
{
    int i;
    if (!ignis__pool_drop(s))
        return;
    ignis__mutex_lock(&s->engine->lock);
    if (s->grammar)
        s->grammar->uses--;
    for (i = 0; i < s->page_count; i++)
        if (--s->engine->uses[s->page[i]] == 0)
            s->engine->free_pages[s->engine->free_count++] = s->page[i];
    ignis__mutex_unlock(&s->engine->lock);
    if (s->on_device)
        ignis__array_unclaim(call, s->on_device);
    if (s->table)
        ignis__array_unclaim(call, s->table);
    if (s->last)
        ignis__array_unclaim(call, s->last);
    ignis__free(s->ids);
    ignis__free(s->page);
    ignis__free(s->many);
    ignis__model_drop(call, s->model);
    ignis__pool_recycle(&ignis__sequences, s);
}

/*  Waits for a token that was drawn ahead, and forgets it. The engine is locked. */
IGNIS__PRIVATE void ignis__engine_settle(const char *call, ignis__engine *e)
{
    ignis__binding binding;
    if (!e->ahead.sequence)
        return;
    if (ignis__device_enter(call, e->device, &binding)) {
        (void)IGNIS__CUDA_FAILED(call, e->device, cuEventSynchronize, (e->ahead.drawn->event));
        ignis__device_leave(&binding);
    }
    ignis__event_recycle(e->device, e->ahead.drawn);
    e->ahead.sequence = NULL;
}

/*  Locks an engine for work with it, or with one of its sequences, in which no token is drawn ahead. */
IGNIS__PRIVATE void ignis__engine_lock(const char *call, ignis__engine *e)
{
    ignis__mutex_lock(&e->lock);
    ignis__engine_settle(call, e);
}

/*  Ends work with an engine, which others use next, in streams of their own: what a failure has left in this one is waited for. */
IGNIS__PRIVATE bool ignis__engine_leave(ignis__op *op)
{
    if (!op->ok)
        (void)IGNIS__CUDA(cuStreamSynchronize, (op->work.stream));
    return ignis__op_leave(op) == IGNIS_OK;
}

/*  A sequence, held; null, and reported: there is none, or the thread captures. */
IGNIS__PRIVATE ignis__sequence *ignis__sequence_hold(const char *call, ignis_sequence handle)
{
    ignis__sequence *s = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, handle.id);
    if (!s || !ignis__capture_refuses(call))
        return s;
    ignis__sequence_drop(call, s);
    return NULL;
}

/*  The same for a call that works with it, and its engine locked. */
IGNIS__PRIVATE ignis__sequence *ignis__sequence_enter(const char *call, ignis_sequence handle)
{
    ignis__sequence *s = ignis__sequence_hold(call, handle);
    if (s)
        ignis__engine_lock(call, s->engine);
    return s;
}

IGNIS__PRIVATE void ignis__sequence_leave(const char *call, ignis__sequence *s)
{
    ignis__mutex_unlock(&s->engine->lock);
    ignis__sequence_drop(call, s);
}
