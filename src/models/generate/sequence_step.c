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

/*  Runs one batch. of: numbers of its sequences. draws: also samples a token for each, after its last one. ready: the
    hidden states are known, so the layers are left out. logits: receives those of the first sequence, or NULL. */
static void ignis__engine_decode_batch(ignis__op *op, ignis__sequence *const *sequences, const int *of, int batch,
                                       bool ready, const ignis_sampling_desc *sampling, bool samples, float *logits)
{
    static const ignis_sampling_desc greedy = IGNIS__ZERO;
    const char *call = op->work.call;
    ignis__engine *engine = sequences[0]->engine;
    ignis__generate_row *rows = engine->row;
    const ignis__generate_draw *draw;
    ignis__address biases = ignis__op_write(op, engine->biases), sum = ignis__op_write(op, engine->sum), address;
    const int64_t row = engine->sum->shape.dim[1] * ignis__dtypes[engine->sum->dtype].size;
    ignis__sampling_kind kind = samples ? IGNIS__SAMPLING_UNFILTERED : IGNIS__SAMPLING_NONE;
    uint32_t hash = 0;
    const int width = ready ? batch : ignis__step_width(batch);
    int adapted = 0, i;
    memset(rows, 0, sizeof *rows * (size_t)width);
    for (i = 0; i < width; i++) {
        const ignis_sampling_desc *desc = sampling && i < batch ? &sampling[of[i]] : &greedy;
        ignis__sequence *sequence = i < batch ? sequences[of[i]] : NULL;
        rows[i].position = -1;
        if (!sequence)
            continue;
        if (samples && ignis__sampling_filters(desc))
            kind = IGNIS__SAMPLING_FILTERED;
        ignis__sequence_fill_row(op, sequence, sequence->length - 1, &rows[i]);
        if (!ready)
            ignis__sequence_advance_state(sequence, sequence->length - 1, 1);
        ignis__sampling_fill_row(engine, i, desc, &rows[i]);
        if (i == 0 || sequence->lora != sequences[of[i - 1]]->lora)
            ignis__sequence_read_lora(op, sequence);
        adapted |= sequence->lora ? sequence->lora->products : 0;
        if (samples && desc->bias_count)
            op->ok = op->ok && ignis__copy_from_host(
                                   &op->work, biases + (ignis__address)(i * IGNIS__BIASES) * sizeof *desc->biases,
                                   desc->biases, desc->bias_count * (int64_t)sizeof *desc->biases);
        if (samples && sequence->grammar) {
            rows[i].masked = ignis__sequence_upload_mask(op, sequence);
            op->ok = op->ok && rows[i].masked;
        }
        if (ready)
            op->ok = op->ok && ignis__copy_on_device(&op->work, sum + (ignis__address)(i * row),
                                                     ignis__op_read(op, sequence->last_hidden), row);
    }
    ignis__upload_rows(op, engine->model->dtype, engine->rows, rows, width);
    if (engine->model->parallel.size > 1)
        ignis__engine_upload_agreement(
            op, engine, hash = ignis__engine_agreement_hash(engine, sequences, of, batch, sampling, samples));
    if (ready)
        ignis__engine_launch_step(op, engine, batch, kind, true, 0);
    else
        ignis__engine_run_step(op, engine, width, kind, adapted);
    if (engine->model->parallel.size > 1)
        op->ok = ignis__engine_check_agreement(op, engine, hash);
    if (samples)
        op->ok = op->ok && !IGNIS__CUDA_FAILED(call, engine->device, cuStreamSynchronize, (op->work.stream));
    if (logits) {
        address = ignis__op_write(op, engine->logits);
        op->ok =
            op->ok && ignis__copy_to_host(&op->work, logits, address, engine->model->vocab * (int64_t)sizeof *logits);
    }
    for (i = 0; op->ok && i < batch; i++) {
        ignis__sequence *sequence = sequences[of[i]];
        sequence->cached = sequence->length;
        if (!samples)
            continue;
        draw = &engine->draws[2 * i + (sequence->length - 1) % 2];
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

/*  Runs one decode step of sequences of one locked engine. draws: also samples and appends a token for each. logits:
    receives those of the first sequence, or NULL. drawn: receives the tokens, or NULL; the entries of sequences
    without a token are not written. Checks everything before anything changes. */
IGNIS__PRIVATE bool ignis__engine_decode(const char *call, ignis__sequence *const *sequences, int count,
                                         const ignis_sampling_desc *sampling, bool samples, float *logits,
                                         int32_t *sampled)
{
    ignis__engine *engine = sequences[0]->engine;
    ignis__op op;
    int of[IGNIS__STEP_ROWS], pass, next, batch, i;
    bool all = true;
    for (i = 0; i < count; i++) {
        ignis__sequence *sequence = sequences[i];
        sequence->waiting = 0;
        if (sequence->length == 0)
            return ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call,
                               "the sequence has no token yet; ignis_sequence_feed gives it some") == IGNIS_OK;
        if (samples && sequence->length == engine->context)
            return ignis__fail(IGNIS_DIAG_CONTEXT_FULL, call, "the sequence has %d tokens, as many as the context",
                               sequence->length) == IGNIS_OK;
        if ((samples && sampling && !ignis__sampling_check(call, &sampling[i], engine->model->vocab)) ||
            (samples && sequence->grammar && !ignis__sequence_check_grammar(call, sequence)))
            return false;
    }
    if (!ignis__op_begin_on_device(&op, call, engine->device))
        return false;
    for (i = 0; op.ok && i < count; i++) { /* in order: the last sequence of a shared page needs no copy */
        ignis__sequence *sequence = sequences[i];
        const bool known = ignis__sequence_ends_in_chunk(sequence) && sequence->last_hidden_length == sequence->length;
        if (!known || sequence->stale)
            ignis__sequence_refill(&op, sequence, known ? sequence->cached : sequence->length - 1);
        op.ok = op.ok && ignis__sequence_has_pages(call, sequence, sequence->length - 1, sequence->length);
        ignis__sequence_take_pages(&op, sequence, sequence->length - 1, sequence->length);
        if (!op.ok || !ignis__sequence_ends_in_chunk(sequence) || known)
            continue;
        ignis__sequence_run_chunk(&op, sequence, sequence->length - 1, 1);
        ignis__sequence_keep_hidden(&op, sequence, 1);
    }
    for (pass = 0; pass < 2; pass++)
        for (next = 0; op.ok && next < count;) {
            for (batch = 0; next < count && batch < engine->step_rows; next++)
                if (ignis__sequence_ends_in_chunk(sequences[next]) == (pass == 0))
                    ignis__engine_add_row(sequences, of, batch++, next);
            if (batch > 0)
                ignis__engine_decode_batch(&op, sequences, of, batch, pass == 0, sampling, samples, logits);
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
