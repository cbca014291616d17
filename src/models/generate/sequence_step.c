/*  models/generate/sequence_step.c - one decode step of several sequences: checks, pages, batches, sampled tokens

    All arguments are checked before anything changes. Sequences whose last token was in a chunk come first: their
    hidden states are known, and only logits and sampling are left.
    May use: engine_step.c, kv_cache.c, grammar_mask.c, sampling.c, rank_check.c. Locks: the caller holds the
    engine's. */

#include "room.h"

/*  Returns whether the last token was computed in a chunk. Its hidden state is kept, or recomputed in the same way,
    so that its bits do not change. */
IGNIS__PRIVATE bool ignis__sequence_ends_in_chunk(const ignis__sequence *sequence)
{
    return sequence->length > 0 && sequence->in_chunk[sequence->length - 1];
}

/*  Reports that no token can be sampled. number: of the sequence among several; below 0 if there is one only. */
IGNIS__COLD IGNIS__PRIVATE void ignis__sampling_fail(const char *call, int32_t sampled, int number)
{
    char which[32] = "";
    if (number >= 0)
        snprintf(which, sizeof which, "sequences[%d]: ", number);
    if (sampled == IGNIS__DRAW_NO_LOGITS)
        ignis__fail(IGNIS_DIAG_NO_TOKEN, call,
                    "%sno token can be drawn: no logit of the model is a number above minus infinity. Its weights have "
                    "values that are none, "
                    "or what they compute overflows its dtype",
                    which);
    else
        ignis__fail(IGNIS_DIAG_NO_TOKEN, call,
                    "%sno token can be drawn: sampling->biases and the sequence's grammar forbid all of them", which);
}

/*  Queues the step of a batch. Returns the hash that ranks compare. */
IGNIS__PRIVATE uint32_t ignis__engine_queue_batch(ignis__op *op, const ignis__batch *batch)
{
    static const ignis_sampling_desc greedy = IGNIS__ZERO;
    ignis__engine *engine = batch->sequences[0]->engine;
    const ignis_dtype dtype = engine->model->dtype;
    ignis__generate_row *rows = engine->row;
    const ignis__address sum = ignis__op_write(op, engine->sum);
    const int64_t row = engine->sum->shape.dim[1] * ignis__dtypes[engine->sum->dtype].size;
    ignis__sampling_kind kind = batch->samples ? IGNIS__SAMPLING_UNFILTERED : IGNIS__SAMPLING_NONE;
    uint32_t hash = 0;
    const int width = batch->ready ? batch->count : ignis__step_width(batch->count);
    int adapted = 0, i;
    memset(rows, 0, sizeof *rows * (size_t)width);
    for (i = 0; i < width; i++) {
        const int number = i < batch->count ? batch->of[i] : 0;
        const ignis_sampling_desc *desc = batch->sampling ? &batch->sampling[number] : &greedy;
        ignis__sequence *sequence = batch->sequences[number];
        rows[i].position = -1;
        if (i >= batch->count)
            continue;
        if (batch->samples && ignis__sampling_filters(desc))
            kind = IGNIS__SAMPLING_FILTERED;
        ignis__sequence_fill_row(op, sequence, sequence->length - 1 + batch->ahead, &rows[i]);
        if (!batch->ready)
            ignis__sequence_advance_state(sequence, sequence->length - 1 + batch->ahead, 1);
        ignis__sampling_fill_row(engine, batch->place + i, desc, &rows[i]);
        if (i == 0 || sequence->lora != batch->sequences[batch->of[i - 1]]->lora)
            ignis__sequence_read_lora(op, sequence);
        adapted |= sequence->lora ? sequence->lora->products : 0;
        if (batch->samples)
            ignis__sampling_upload_biases(op, engine, i, desc);
        if (batch->samples && sequence->grammar) {
            rows[i].masked = ignis__sequence_upload_mask(op, sequence);
            op->ok = op->ok && rows[i].masked;
        }
        if (batch->ready)
            op->ok = op->ok && ignis__copy_on_device(&op->work, sum + (ignis__address)(i * row),
                                                     ignis__op_read(op, sequence->last_hidden), row);
    }
    if (!batch->keeps_row)
        ignis__upload_rows(op, dtype, engine->rows, rows, width);
    if (engine->model->parallel.size > 1)
        ignis__engine_upload_agreement(op, engine, hash = ignis__engine_agreement_hash(engine, batch));
    if (batch->ready)
        ignis__engine_launch_step(op, engine, batch->count, kind, true, 0);
    else
        ignis__engine_run_step(op, engine, width, kind, adapted);
    return hash;
}

/*  Runs the step of a batch, and waits if it samples. The tokens are after the last ones. logits: receives those of the
    first sequence, or NULL. */
static void ignis__engine_decode_batch(ignis__op *op, const ignis__batch *batch, float *logits)
{
    const char *call = op->work.call;
    ignis__engine *engine = batch->sequences[0]->engine;
    const uint32_t hash = ignis__engine_queue_batch(op, batch);
    int i;
    if (engine->model->parallel.size > 1)
        op->ok = ignis__engine_check_agreement(op, engine, hash);
    if (batch->samples)
        op->ok = op->ok && !IGNIS__CUDA_FAILED(call, engine->device, cuStreamSynchronize, (op->work.stream));
    if (logits)
        op->ok = op->ok && ignis__copy_to_host(&op->work, logits, ignis__op_write(op, engine->logits),
                                               engine->model->vocab * (int64_t)sizeof *logits);
    for (i = 0; op->ok && i < batch->count; i++) {
        ignis__sequence *sequence = batch->sequences[batch->of[i]];
        const ignis__generate_draw *draw = ignis__sampling_draw(engine, i, sequence->length - 1);
        sequence->cached = sequence->length;
        if (!batch->samples)
            continue;
        sequence->ids[sequence->length] = draw->id;
        sequence->next_log_prob = draw->log_prob;
    }
}

/*  Adds a sequence to the `batch` numbers in `of`, after the others with its adapters: adjacent rows read them once. */
static void ignis__engine_add_row(ignis__sequence *const *sequences, int *of, int batch, int number)
{
    const uintptr_t lora = (uintptr_t)sequences[number]->lora;
    for (; batch > 0 && (uintptr_t)sequences[of[batch - 1]]->lora > lora; batch--)
        of[batch] = of[batch - 1];
    of[batch] = number;
}

/*  Checks that a sequence of a locked engine can take part in a step. Forgets the tokens that wait. False, and
    reported, if it cannot. */
IGNIS__PRIVATE bool ignis__sequence_check_step(const char *call, ignis__sequence *sequence,
                                               const ignis_sampling_desc *sampling, bool samples)
{
    sequence->waiting = 0;
    if (sequence->length == 0)
        return ignis__fail_false(IGNIS_DIAG_COUNT_MISMATCH, call,
                                 "the sequence has no token yet; ignis_sequence_feed gives it some");
    if (samples && sequence->length == sequence->engine->context)
        return ignis__fail_false(IGNIS_DIAG_CONTEXT_FULL, call, "the sequence has %d tokens, as many as the context",
                                 sequence->length);
    return !samples || ((!sampling || ignis__sampling_check(call, sampling, sequence->model->vocab)) &&
                        (!sequence->grammar || ignis__sequence_check_grammar(call, sequence)));
}

/*  Gives a sequence of a locked engine all that its next step needs: a page, the tokens before, the hidden state of a
    last token that is in a chunk. */
IGNIS__PRIVATE void ignis__sequence_prepare_step(ignis__op *op, ignis__sequence *sequence)
{
    const bool known = ignis__sequence_ends_in_chunk(sequence) && sequence->last_hidden_length == sequence->length;
    if (!known || sequence->stale)
        ignis__sequence_refill(op, sequence, known ? sequence->cached : sequence->length - 1);
    op->ok = op->ok && ignis__sequence_has_pages(op->work.call, sequence, sequence->length - 1, sequence->length);
    ignis__sequence_take_pages(op, sequence, sequence->length - 1, sequence->length);
    if (!op->ok || !ignis__sequence_ends_in_chunk(sequence) || known)
        return;
    ignis__sequence_run_chunk(op, sequence, sequence->length - 1, 1);
    ignis__sequence_keep_hidden(op, sequence, 1);
}

/*  Runs one decode step of sequences of one locked engine. draws: also samples and appends a token for each. logits:
    receives those of the first sequence, or NULL. drawn: receives the tokens, or NULL; the entries of sequences
    without a token are not written. Checks everything before anything changes. */
IGNIS__PRIVATE bool ignis__engine_decode(const char *call, ignis__sequence *const *sequences, int count,
                                         const ignis_sampling_desc *sampling, bool samples, float *logits,
                                         int32_t *sampled)
{
    ignis__engine *engine = sequences[0]->engine;
    ignis__batch batch;
    ignis__op op;
    int of[IGNIS__STEP_ROWS], pass, next, i;
    bool all = true;
    for (i = 0; i < count; i++)
        if (!ignis__sequence_check_step(call, sequences[i], sampling ? &sampling[i] : NULL, samples))
            return false;
    if (!ignis__op_begin_on_device(&op, call, engine->device))
        return false;
    for (i = 0; op.ok && i < count; i++) /* in order: the last sequence of a shared page needs no copy */
        ignis__sequence_prepare_step(&op, sequences[i]);
    memset(&batch, 0, sizeof batch);
    batch.sequences = sequences;
    batch.of = of;
    batch.sampling = sampling;
    batch.samples = samples;
    for (pass = 0; pass < 2; pass++)
        for (next = 0; op.ok && next < count;) {
            for (batch.count = 0; next < count && batch.count < engine->step_rows; next++)
                if (ignis__sequence_ends_in_chunk(sequences[next]) == (pass == 0))
                    ignis__engine_add_row(sequences, of, batch.count++, next);
            batch.ready = pass == 0;
            if (batch.count > 0)
                ignis__engine_decode_batch(&op, &batch, logits);
        }
    for (i = 0; op.ok && samples && i < count; i++) {
        ignis__sequence *sequence = sequences[i];
        int32_t id = sequence->ids[sequence->length];
        if (id < 0) { /* the other sequences have theirs */
            ignis__sampling_fail(call, id, sampled ? i : -1);
            all = false;
            continue;
        }
        if (sampled)
            sampled[i] = id;
        sequence->in_chunk[sequence->length] = false;
        sequence->uploaded = ++sequence->length;
        sequence->log_prob = sequence->next_log_prob;
    }
    for (i = 0; !op.ok && i < count; i++) /* returns pages that were taken in vain */
        ignis__sequence_truncate(sequences[i], sequences[i]->length);
    return ignis__engine_leave(&op) && all;
}
