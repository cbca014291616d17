#include "room.h"

/*  Whether a sequence's last token is one of many: then what all layers find of it is kept, or found as it was then, and not in a step. */
IGNIS__PRIVATE bool ignis__sequence_ready(const ignis__sequence *s) { return s->length > 0 && s->many[s->length - 1]; }

/*  Reports that no token can be drawn. number: of the sequence among several; below 0: there is one alone. */
IGNIS__COLD IGNIS__PRIVATE void ignis__draw_fail(const char *call, int32_t drawn, int number)
{
    char which[32] = "";
    if (number >= 0)
        snprintf(which, sizeof which, "sequences[%d]: ", number);
    if (drawn == IGNIS__DRAW_NO_LOGITS)
        ignis__fail(IGNIS_DIAG_NO_TOKEN, call,
                    "%sno token can be drawn: no logit of the model is a number above minus infinity. Its weights have "
                    "values that are none, "
                    "or what they compute overflows its dtype",
                    which);
    else
        ignis__fail(IGNIS_DIAG_NO_TOKEN, call,
                    "%sno token can be drawn: sampling->biases and the sequence's grammar forbid all of them", which);
}

/*  A step of some of these sequences, of which `of` has the numbers; draws: and a token for each, behind its end. ready: they are, and it goes
    without the layers. logits: where those of the first one go, or null. */
static void ignis__engine_some(ignis__op *op, ignis__sequence *const *sequences, const int *of, int some, bool ready,
                               const ignis_sampling_desc *sampling, bool draws, float *logits)
{
    static const ignis_sampling_desc greedy = IGNIS__ZERO;
    const char *call = op->work.call;
    ignis__engine *e = sequences[0]->engine;
    ignis__generate_row rows[IGNIS__STEP_ROWS];
    const ignis__generate_draw *draw;
    ignis__address biases = ignis__op_write(op, e->biases), sum = ignis__op_write(op, e->sum), address;
    const int64_t row = e->sum->shape.dim[1] * ignis__dtypes[e->sum->dtype].size;
    ignis__draws kind = draws ? IGNIS__DRAWS_ALL : IGNIS__DRAWS_NONE;
    uint32_t said = 0;
    int width = ready ? some : 1, i;
    while (width < some) /* as graphs have it */
        width *= 2;
    memset(rows, 0, sizeof rows);
    for (i = 0; i < width; i++) {
        const ignis_sampling_desc *d = sampling && i < some ? &sampling[of[i]] : &greedy;
        ignis__sequence *s = i < some ? sequences[of[i]] : NULL;
        rows[i].position = -1;
        if (!s)
            continue;
        if (draws && ignis__sampling_cuts(d))
            kind = IGNIS__DRAWS_CUT;
        ignis__sequence_row(op, s, s->length - 1, &rows[i]);
        ignis__sampling_row(e, i, d, &rows[i]);
        if (draws && d->bias_count)
            op->ok = op->ok &&
                     ignis__copy_from_host(&op->work, biases + (ignis__address)(i * IGNIS__BIASES) * sizeof *d->biases,
                                           d->biases, d->bias_count * (int64_t)sizeof *d->biases);
        if (draws && s->grammar) {
            rows[i].masked = ignis__sequence_mask(op, s);
            op->ok = op->ok && rows[i].masked;
        }
        if (ready)
            op->ok = op->ok && ignis__copy_on_device(&op->work, sum + (ignis__address)(i * row),
                                                     ignis__op_read(op, s->last), row);
    }
    ignis__step_rows(op, e->model->dtype, e->rows, rows, width);
    if (e->model->parallel.size > 1)
        ignis__engine_say(op, e, said = ignis__engine_says(e, sequences, of, some, sampling, draws));
    if (ready)
        ignis__engine_launches(op, e, some, kind, true);
    else
        ignis__engine_step(op, e, width, kind);
    if (e->model->parallel.size > 1)
        op->ok = ignis__engine_agrees(op, e, said);
    if (draws)
        op->ok = op->ok && !IGNIS__CUDA_FAILED(call, e->device, cuStreamSynchronize, (op->work.stream));
    if (logits) {
        address = ignis__op_write(op, e->logits);
        op->ok = op->ok && ignis__copy_to_host(&op->work, logits, address, e->model->vocab * (int64_t)sizeof *logits);
    }
    for (i = 0; op->ok && i < some; i++) {
        ignis__sequence *s = sequences[of[i]];
        s->cached = s->length;
        if (!draws)
            continue;
        draw = &e->draws[2 * i + (s->length - 1) % 2];
        s->ids[s->length] = draw->id;
        s->next_log_prob = draw->log_prob;
    }
}

/*  One step of sequences of one engine, which is locked; draws: and a token for each, appended. logits: where those of the first one go, or null.
    drawn: where the tokens go, or null; those that are not drawn are left out. Everything is checked before anything changes. Sequences that are
    ready come first. */
IGNIS__PRIVATE bool ignis__engine_run(const char *call, ignis__sequence *const *sequences, int count,
                                      const ignis_sampling_desc *sampling, bool draws, float *logits, int32_t *drawn)
{
    ignis__engine *e = sequences[0]->engine;
    ignis__op op;
    int of[IGNIS__STEP_ROWS], turn, next, some, i;
    bool all = true;
    if (!ignis__model_plain(call, sequences[0]->model))
        return false;
    for (i = 0; i < count; i++) {
        ignis__sequence *s = sequences[i];
        if (s->length == 0)
            return ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call,
                               "the sequence has no token yet; ignis_sequence_feed gives it some") == IGNIS_OK;
        if (draws && s->length == e->context)
            return ignis__fail(IGNIS_DIAG_CONTEXT_FULL, call, "the sequence has %d tokens, as many as the context",
                               s->length) == IGNIS_OK;
        if ((draws && sampling && !ignis__sampling_check(call, &sampling[i], e->model->vocab)) ||
            (draws && s->grammar && !ignis__sequence_allows(call, s)))
            return false;
    }
    if (!ignis__next_begin(&op, call, e->device))
        return false;
    for (i = 0; op.ok && i < count; i++) { /* one after the other: who comes last to a shared page needs no copy */
        ignis__sequence *s = sequences[i];
        op.ok = ignis__engine_has_pages(call, e, ignis__sequence_pages_needed(s, s->length - 1, s->length));
        ignis__sequence_take_pages(&op, s, s->length - 1, s->length);
        if (!op.ok || !ignis__sequence_ready(s) || s->last_length == s->length)
            continue;
        ignis__sequence_piece(&op, s, s->length - 1, 1);
        ignis__sequence_keep(&op, s, 1);
    }
    for (turn = 0; turn < 2; turn++)
        for (next = 0; op.ok && next < count;) {
            for (some = 0; next < count && some < e->step_rows; next++)
                if (ignis__sequence_ready(sequences[next]) == (turn == 0))
                    of[some++] = next;
            if (some > 0)
                ignis__engine_some(&op, sequences, of, some, turn == 0, sampling, draws, logits);
        }
    for (i = 0; op.ok && draws && i < count; i++) {
        ignis__sequence *s = sequences[i];
        int32_t id = s->ids[s->length];
        if (id < 0) { /* the others have theirs */
            ignis__draw_fail(call, id, drawn ? i : -1);
            all = false;
            continue;
        }
        if (drawn)
            drawn[i] = id;
        s->many[s->length] = false;
        s->sent = ++s->length;
        s->log_prob = s->next_log_prob;
    }
    for (i = 0; !op.ok && i < count; i++) /* pages that were taken for nothing */
        ignis__sequence_cut(sequences[i], sequences[i]->length);
    return ignis__engine_leave(&op) && all;
}
