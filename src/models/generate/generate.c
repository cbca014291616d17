#include "room.h"

/*  Queues the step of a token, whose id may still be known to the device alone; what it draws is in `draws` when the event has come. goes_on:
    it is behind the step of the token before, which has left its row as this one needs it. Null: a failure. */
static ignis__pooled_event *ignis__generate_queue(const char *call, ignis__sequence *s, int position,
                                                  const ignis_sampling_desc *sampling, bool goes_on)
{
    ignis__engine *e = s->engine;
    ignis__pooled_event *drawn = NULL;
    ignis__generate_row row;
    ignis__op op;
    if (!ignis__next_begin(&op, call, e->device))
        return NULL;
    ignis__sequence_take_pages(&op, s, position, position + 1);
    if (!goes_on) {
        ignis__sequence_row(&op, s, position, &row);
        ignis__sampling_row(e, 0, sampling, &row);
        ignis__step_rows(&op, e->model->dtype, e->rows, &row, 1);
    }
    ignis__engine_step(&op, e, 1, ignis__sampling_cuts(sampling) ? IGNIS__DRAWS_CUT : IGNIS__DRAWS_ALL);
    if (op.ok)
        drawn = ignis__event_record(call, e->device, e->ahead.stream = op.work.stream);
    op.ok = op.ok && drawn;
    (void)ignis__engine_leave(&op);
    return drawn;
}

/*  Draws one token; -1: the context is full, -2: a failure, -3: its grammar has come to its end. goes_on: one more is likely to come, and is drawn
    while the caller has this one. */
static int32_t ignis__generate_next(const char *call, ignis__sequence *s, const ignis_sampling_desc *sampling,
                                    bool goes_on)
{
    ignis__engine *e = s->engine;
    ignis__pooled_event *drawn = NULL, *next = NULL;
    const ignis__grammar_state *state;
    ignis__binding binding;
    const ignis__generate_draw *draw;
    int32_t id = -2;
    bool ok, alone, fails = false;
    if (ignis__capture_refuses(call)) /* which the caller's text_fn has begun */
        return -2;
    ignis__mutex_lock(&e->lock);
    if (e->ahead.sequence == s && e->ahead.length == s->length && e->ahead.sampling == sampling &&
        e->ahead.stream == ignis__stream_current(e->device)) {
        drawn = e->ahead.drawn;
        e->ahead.sequence = NULL;
    }
    ignis__engine_settle(call, e);
    alone = !drawn && (!goes_on || s->length == 0 || ignis__sequence_ready(s) || sampling->bias_count || s->grammar ||
                       e->model->parallel.size > 1); /* ranks compare what they work with, step by step */
    state = s->grammar && s->length ? ignis__sequence_match(call, s) : NULL;
    if (state && state->count == 0)
        id = -3;
    else if (s->length >= e->context)
        id = -1;
    else if (alone && (state || !s->grammar || !s->length) &&
             ignis__engine_run(call, &s, 1, sampling, true, NULL, NULL))
        id = s->ids[s->length - 1];
    fails = id == -2 && !alone && !ignis__model_plain(call, s->model); /* with a token drawn ahead, too */
    ok = id == -2 && !alone && !fails;
    if (ok && !drawn)
        drawn = ignis__sampling_check(call, sampling, e->model->vocab) &&
                        ignis__engine_has_pages(call, e, ignis__sequence_pages_needed(s, s->length - 1, s->length))
                    ? ignis__generate_queue(call, s, s->length - 1, sampling, false)
                    : NULL;
    if (ok && drawn && goes_on && s->length + 1 < e->context && !sampling->bias_count &&
        ignis__sequence_pages_needed(s, s->length, s->length + 1) <= e->free_count) {
        next = ignis__generate_queue(call, s, s->length, sampling, true);
        fails = !next; /* then this token is not there either */
    }
    if (drawn) {
        if (ignis__device_enter(call, e->device, &binding)) {
            if (!IGNIS__CUDA_FAILED(call, e->device, cuEventSynchronize, (drawn->event)) && !fails) {
                draw = &e->draws[(s->length - 1) % 2];
                s->cached = s->length;
                if (draw->id < 0) {
                    ignis__draw_fail(call, draw->id, -1);
                } else {
                    id = draw->id;
                    s->log_prob = draw->log_prob;
                    s->many[s->length] = false;
                    s->ids[s->length++] = id;
                    s->sent = s->length;
                }
            }
            ignis__device_leave(&binding);
        }
        ignis__event_recycle(e->device, drawn);
    }
    if (next) {
        e->ahead.sequence = s;
        e->ahead.drawn = next;
        e->ahead.sampling = sampling;
        e->ahead.length = s->length;
        if (id < 0) /* then it comes behind a token that is not there */
            ignis__engine_settle(call, e);
    }
    ignis__mutex_unlock(&e->lock);
    return id;
}

static bool ignis__generate_ends(const ignis__sequence *s, const ignis_generate_desc *desc, int32_t id)
{
    const int32_t *ends = desc->end_count > 0 ? desc->ends : s->model->stops;
    int count = desc->end_count > 0 ? desc->end_count : desc->end_count < 0 ? 0 : s->model->stop_count, i;
    for (i = 0; i < count && ends[i] != id;)
        i++;
    return i < count;
}

/*  The loop of ignis_generate, on a held sequence. */
static bool ignis__generate_run(ignis__showing *show, ignis__sequence *s, ignis_generate_info *info)
{
    const ignis_generate_desc *desc = show->desc;
    int64_t begin = ignis__monotonic_ns();
    int32_t id;
    while (!info->ending) {
        if (desc->max_tokens && info->tokens == desc->max_tokens) {
            info->ending = IGNIS_ENDING_LENGTH;
            break;
        }
        id = ignis__generate_next(show->call, s, &desc->sampling,
                                  desc->max_tokens == 0 || info->tokens + 1 < desc->max_tokens);
        info->seconds = (double)(ignis__monotonic_ns() - begin) * 1e-9;
        if (id == -2)
            return false;
        if (id < 0) {
            info->ending = id == -1 ? IGNIS_ENDING_CONTEXT : IGNIS_ENDING_GRAMMAR;
            break;
        }
        info->first = info->tokens++ ? info->first : info->seconds;
        if (ignis__generate_ends(s, desc, id))
            info->ending = IGNIS_ENDING_TOKEN;
        else if (!ignis__showing_put(show, id))
            return false;
        else if (show->cancelled)
            info->ending = IGNIS_ENDING_CALLER;
        else if (show->stop >= 0)
            info->ending = IGNIS_ENDING_STOP;
    }
    if (show->cancelled || show->stop >= 0)
        return true;
    if (!ignis__showing_put(show, -1))
        return false;
    info->ending = show->stop >= 0 ? IGNIS_ENDING_STOP : info->ending;
    return true;
}

IGNIS_API ignis_status ignis_generate(ignis_sequence sequence, const ignis_generate_desc *desc)
{
    static const char call[] = "ignis_generate";
    static const ignis_generate_desc defaults = IGNIS__ZERO;
    ignis__sequence *s;
    ignis_generate_info info = IGNIS__ZERO;
    ignis_tokenizer_info tokenizer;
    ignis__showing show;
    bool ok;
    info.stop = -1;
    if (desc && desc->info)
        *desc->info = info;
    s = ignis__sequence_hold(call, sequence);
    if (!s)
        return ignis__failed();
    memset(&show, 0, sizeof show);
    show.call = call;
    show.desc = desc ? desc : &defaults;
    show.stop = -1;
    ok = ignis__generate_check(call, show.desc);
    if (ok && (show.desc->text_fn || show.desc->stop_count)) {
        show.stream.tokenizer = ignis__model_tokenizer(s->model);
        show.stream.inside = true;
        ok = show.stream.tokenizer.id && ignis_tokenizer_query(show.stream.tokenizer, &tokenizer) == IGNIS_OK;
        show.tokens = ok ? tokenizer.tokens : 0;
    }
    if (ok) {
        ok = ignis__generate_run(&show, s, &info);
        ignis__engine_lock(call, s->engine);
        ignis__mutex_unlock(&s->engine->lock);
    }
    info.stop = show.stop;
    info.ending = ok ? info.ending : IGNIS_ENDING_NONE;
    if (desc && desc->info)
        *desc->info = info;
    ignis__free(show.text);
    ignis__sequence_drop(call, s);
    return ok ? IGNIS_OK : ignis__failed();
}
