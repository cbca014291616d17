/*  models/generate/generate.c - ignis_generate: the loop that samples tokens and writes text

    While the caller handles one token, the device may compute the next one (engine->ahead). That hides the latency
    of the host. A token ahead is only queued without biases, grammars and ranks, because those need the host
    between the steps.
    May use: sequence_step.c, stop_string.c. Locks: the engine's lock for each token, not while text_fn runs. */

#include "room.h"

/*  Queues the decode step of a token, whose id the device may not have sampled yet. The result is in engine->draws
    when the event is done. follows: the step of the previous token is queued, and leaves its row as this one needs
    it. NULL, and reported, on failure. */
static ignis__pooled_event *ignis__generate_queue_step(const char *call, ignis__sequence *sequence, int position,
                                                       const ignis_sampling_desc *sampling, bool continues)
{
    ignis__engine *engine = sequence->engine;
    ignis__pooled_event *event = NULL;
    ignis__generate_row row;
    ignis__op op;
    if (!ignis__op_begin_on_device(&op, call, engine->device))
        return NULL;
    ignis__sequence_take_pages(&op, sequence, position, position + 1);
    if (!continues) {
        ignis__sequence_fill_row(&op, sequence, position, &row);
        ignis__sampling_fill_row(engine, 0, sampling, &row);
        ignis__sequence_read_lora(&op, sequence);
        ignis__upload_rows(&op, engine->model->dtype, engine->rows, &row, 1);
    }
    ignis__sequence_advance_state(sequence, position, 1);
    ignis__engine_run_step(&op, engine, 1,
                           ignis__sampling_filters(sampling) ? IGNIS__SAMPLING_FILTERED : IGNIS__SAMPLING_UNFILTERED,
                           sequence->lora ? sequence->lora->products : 0);
    if (op.ok)
        event = ignis__event_record(call, engine->device, engine->ahead.stream = op.work.stream);
    op.ok = op.ok && event;
    (void)ignis__engine_leave(&op);
    return event;
}

/*  Samples one token. -1: the context is full; -2: failure, reported; -3: the grammar is complete. continues: one
    more token is likely to follow, and may be sampled while the caller has this one. */
static int32_t ignis__generate_next(const char *call, ignis__sequence *sequence, const ignis_sampling_desc *sampling,
                                    bool continues)
{
    ignis__engine *engine = sequence->engine;
    ignis__pooled_event *event = NULL, *next = NULL;
    const ignis__grammar_state *state;
    ignis__binding binding;
    const ignis__generate_draw *draw;
    int32_t id = -2;
    bool ok, alone, fails = false;
    if (ignis__capture_refuses(call)) /* text_fn of the caller may have begun a capture */
        return -2;
    ignis__mutex_lock(&engine->lock);
    if (engine->ahead.sequence == sequence && engine->ahead.length == sequence->length &&
        engine->ahead.sampling == sampling && engine->ahead.stream == ignis__stream_current(engine->device)) {
        event = engine->ahead.drawn;
        engine->ahead.sequence = NULL;
    }
    ignis__engine_settle(call, engine);
    /* alone: no token ahead; ranks compare their arguments in every step */
    alone =
        !event && (!continues || sequence->length == 0 || sequence->stale || ignis__sequence_ends_in_chunk(sequence) ||
                   ignis__sequence_find_state(sequence, sequence->length - 1) < 0 || sampling->bias_count ||
                   sequence->grammar || engine->model->parallel.size > 1);
    state = sequence->grammar && sequence->length ? ignis__sequence_match_grammar(call, sequence) : NULL;
    if (state && state->count == 0)
        id = -3;
    else if (sequence->length >= engine->context)
        id = -1;
    else if (alone && (state || !sequence->grammar || !sequence->length) &&
             ignis__engine_decode(call, &sequence, 1, sampling, true, NULL, NULL))
        id = sequence->ids[sequence->length - 1];
    ok = id == -2 && !alone;
    if (ok && !event)
        event = ignis__sampling_check(call, sampling, engine->model->vocab) &&
                        ignis__sequence_has_pages(call, sequence, sequence->length - 1, sequence->length)
                    ? ignis__generate_queue_step(call, sequence, sequence->length - 1, sampling, false)
                    : NULL;
    if (ok && event && continues && sequence->length + 1 < engine->context && !sampling->bias_count &&
        ignis__sequence_has_pages(NULL, sequence, sequence->length, sequence->length + 1)) {
        next = ignis__generate_queue_step(call, sequence, sequence->length, sampling, true);
        fails = !next; /* this token is lost as well */
    }
    if (event) {
        if (ignis__device_enter(call, engine->device, &binding)) {
            if (!IGNIS__CUDA_FAILED(call, engine->device, cuEventSynchronize, (event->event)) && !fails) {
                draw = &engine->draws[(sequence->length - 1) % 2];
                sequence->cached = sequence->length;
                if (draw->id < 0) {
                    ignis__sampling_fail(call, draw->id, -1);
                } else {
                    id = draw->id;
                    sequence->log_prob = draw->log_prob;
                    sequence->in_chunk[sequence->length] = false;
                    sequence->ids[sequence->length++] = id;
                    sequence->uploaded = sequence->length;
                }
            }
            ignis__device_leave(&binding);
        }
        ignis__event_recycle(engine->device, event);
    }
    if (next) {
        engine->ahead.sequence = sequence;
        engine->ahead.drawn = next;
        engine->ahead.sampling = sampling;
        engine->ahead.length = sequence->length;
        if (id < 0) /* it would follow a token that does not exist */
            ignis__engine_settle(call, engine);
    }
    ignis__mutex_unlock(&engine->lock);
    return id;
}

/*  The drafts of an ignis_generate. */
typedef struct ignis__generate_drafts {
    ignis__sequence *by; /* guesses, held; NULL: the sequence's own tokens do */
    int32_t *ids;        /* of the sequence, for `by`; or NULL */
    int32_t guesses[IGNIS__STEP_ROWS];
} ignis__generate_drafts;

/*  Guesses up to `most` tokens. Returns how many; -1, and reported, on failure. */
static int ignis__generate_guess(const char *call, ignis__sequence *sequence, ignis__generate_drafts *drafts,
                                 const ignis_sampling_desc *sampling, int most)
{
    int count = 0, length;
    ignis__engine_lock(call, sequence->engine);
    length = sequence->length;
    if (drafts->by)
        memcpy(drafts->ids, sequence->ids, sizeof *drafts->ids * (size_t)length);
    else
        count = ignis__sequence_guess(sequence, drafts->guesses, most);
    ignis__mutex_unlock(&sequence->engine->lock);
    return drafts->by ? ignis__sequence_guess_by(call, drafts->by, drafts->ids, length, sampling, drafts->guesses, most)
                      : count;
}

/*  As ignis__generate_next, with drafts of up to `most` tokens. */
static int32_t ignis__generate_next_by_draft(const char *call, ignis__sequence *sequence,
                                             const ignis_generate_desc *desc, ignis__generate_drafts *drafts, int most,
                                             ignis_generate_info *info)
{
    int32_t id = -1;
    int count = 0, checked = 0;
    bool ok = true;
    if (ignis__capture_refuses(call))
        return -2;
    ignis__engine_lock(call, sequence->engine);
    if (sequence->waiting)
        id = ignis__sequence_take_waiting(sequence);
    ignis__mutex_unlock(&sequence->engine->lock);
    if (id >= 0) {
        info->accepted++;
        return id;
    }
    count = ignis__generate_guess(call, sequence, drafts, &desc->sampling,
                                  most < sequence->engine->step_rows ? most : sequence->engine->step_rows - 1);
    if (count < 0)
        return -2;
    ignis__engine_lock(call, sequence->engine);
    ok = count == 0 || ignis__sequence_check(call, sequence, drafts->guesses, count, &desc->sampling, &checked);
    if (ok && checked)
        id = ignis__sequence_take_waiting(sequence);
    ignis__mutex_unlock(&sequence->engine->lock);
    info->steps++;
    info->guessed += checked;
    return !ok ? -2 : checked ? id : ignis__generate_next(call, sequence, &desc->sampling, false);
}

static bool ignis__generate_is_end(const ignis__sequence *sequence, const ignis_generate_desc *desc, int32_t id)
{
    const int32_t *ends = desc->end_count > 0 ? desc->ends : sequence->model->stops;
    int count = desc->end_count > 0 ? desc->end_count : desc->end_count < 0 ? 0 : sequence->model->stop_count, i;
    for (i = 0; i < count && ends[i] != id;)
        i++;
    return i < count;
}

/*  Generates tokens on a held sequence until there is a finish reason. drafts: or NULL. False, and reported, on
    failure. */
static bool ignis__generate_run(ignis__text_output *output, ignis__sequence *sequence, ignis__generate_drafts *drafts,
                                ignis_generate_info *info)
{
    const ignis_generate_desc *desc = output->desc;
    int64_t begin = ignis__monotonic_ns();
    int32_t id;
    int most;
    while (!info->ending) {
        if (desc->max_tokens && info->tokens == desc->max_tokens) {
            info->ending = IGNIS_ENDING_LENGTH;
            break;
        }
        most = desc->draft_tokens;
        if (desc->max_tokens && most > desc->max_tokens - info->tokens - 1)
            most = desc->max_tokens - info->tokens - 1;
        if (drafts) {
            id = ignis__generate_next_by_draft(output->call, sequence, desc, drafts, most, info);
        } else {
            info->steps++;
            id = ignis__generate_next(output->call, sequence, &desc->sampling,
                                      desc->max_tokens == 0 || info->tokens + 1 < desc->max_tokens);
        }
        info->seconds = (double)(ignis__monotonic_ns() - begin) * 1e-9;
        if (id == -2)
            return false;
        if (id < 0) {
            info->ending = id == -1 ? IGNIS_ENDING_CONTEXT : IGNIS_ENDING_GRAMMAR;
            break;
        }
        info->first = info->tokens++ ? info->first : info->seconds;
        if (ignis__generate_is_end(sequence, desc, id))
            info->ending = IGNIS_ENDING_TOKEN;
        else if (!ignis__text_output_put(output, id))
            return false;
        else if (output->cancelled)
            info->ending = IGNIS_ENDING_CALLER;
        else if (output->stop >= 0)
            info->ending = IGNIS_ENDING_STOP;
    }
    if (output->cancelled || output->stop >= 0)
        return true;
    if (!ignis__text_output_put(output, -1))
        return false;
    info->ending = output->stop >= 0 ? IGNIS_ENDING_STOP : info->ending;
    return true;
}

/*  Begins drafts for a held sequence. False, and reported, on failure. */
static bool ignis__generate_begin_drafts(const char *call, ignis__sequence *sequence, const ignis_generate_desc *desc,
                                         ignis__generate_drafts *drafts)
{
    memset(drafts, 0, sizeof *drafts);
    if (!desc->draft.id)
        return true;
    drafts->by = ignis__sequence_hold(call, desc->draft);
    if (!drafts->by)
        return false;
    if (drafts->by == sequence)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "desc->draft is the sequence itself");
    if (drafts->by->model->vocab != sequence->model->vocab)
        return ignis__fail_false(IGNIS_DIAG_WRONG_MODEL, call,
                                 "the model of desc->draft has %d tokens, that of the sequence has %d; both have the "
                                 "same vocabulary",
                                 drafts->by->model->vocab, sequence->model->vocab);
    drafts->ids = (int32_t *)ignis__alloc_for(call, sizeof *drafts->ids * ((size_t)sequence->engine->context + 1));
    return drafts->ids != NULL;
}

IGNIS_API ignis_status ignis_generate(ignis_sequence handle, const ignis_generate_desc *desc)
{
    static const char call[] = "ignis_generate";
    static const ignis_generate_desc defaults = IGNIS__ZERO;
    ignis__sequence *sequence;
    ignis_generate_info info = IGNIS__ZERO;
    ignis_tokenizer_info tokenizer;
    ignis__text_output output;
    ignis__generate_drafts drafts;
    bool ok;
    info.stop = -1;
    if (desc && desc->info)
        *desc->info = info;
    sequence = ignis__sequence_hold(call, handle);
    if (!sequence)
        return ignis__failed();
    memset(&output, 0, sizeof output);
    output.call = call;
    output.desc = desc ? desc : &defaults;
    output.stop = -1;
    memset(&drafts, 0, sizeof drafts);
    ok = ignis__generate_check(call, output.desc) && ignis__generate_begin_drafts(call, sequence, output.desc, &drafts);
    if (ok && (output.desc->text_fn || output.desc->stop_count)) {
        output.stream.tokenizer = ignis__model_tokenizer(sequence->model);
        output.stream.inside = true;
        ok = output.stream.tokenizer.id && ignis_tokenizer_query(output.stream.tokenizer, &tokenizer) == IGNIS_OK;
        output.tokens = ok ? tokenizer.tokens : 0;
    }
    if (ok) {
        ignis__engine_lock(call, sequence->engine);
        sequence->waiting = 0; /* of another call, which text_fn belongs to */
        ignis__mutex_unlock(&sequence->engine->lock);
        ok = ignis__generate_run(&output, sequence, output.desc->draft_tokens ? &drafts : NULL, &info);
        ignis__engine_lock(call, sequence->engine);
        if (output.desc->draft_tokens) /* returns the pages of guesses */
            ignis__sequence_truncate(sequence, sequence->length);
        ignis__mutex_unlock(&sequence->engine->lock);
    }
    info.stop = output.stop;
    info.ending = ok ? info.ending : IGNIS_ENDING_NONE;
    if (desc && desc->info)
        *desc->info = info;
    ignis__free(output.text);
    ignis__free(drafts.ids);
    if (drafts.by)
        ignis__sequence_drop(call, drafts.by);
    ignis__sequence_drop(call, sequence);
    return ok ? IGNIS_OK : ignis__failed();
}
