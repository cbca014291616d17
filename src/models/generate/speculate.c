/*  models/generate/speculate.c - drafts: guesses of the next tokens, of which one decode step checks several

    The step has a row for the last token and one for each token of the draft. Each row samples what follows it, as a
    step of its own would: its attention ends with its position, and its random numbers depend on the position. So the
    tokens are those of single steps, as far as the draft agrees with them, and one more. They wait in the sequence
    until ignis_generate has passed on the token before each.
    May use: engine_step.c, kv_cache.c, sampling.c, sequence_step.c. Locks: as each function says. */

#include "room.h"

/*  Guesses tokens by what followed the last ones earlier in the sequence: the longest match of at least two tokens, the
    latest of equal ones. Text that has just begun to repeat itself goes on doing so. The caller holds the engine's
    lock. Returns how many. */
IGNIS__PRIVATE int ignis__sequence_guess(const ignis__sequence *sequence, int32_t *guesses, int most)
{
    enum { LEAST = 2, ENOUGH = 16 };
    const int32_t *ids = sequence->ids;
    const int length = sequence->length;
    int at, match, best = LEAST - 1, follows = -1, i;
    for (at = length - 1; at >= LEAST && best < ENOUGH; at--) { /* ids[at] would follow */
        for (match = 0; match < at && match < ENOUGH && ids[at - 1 - match] == ids[length - 1 - match];)
            match++;
        if (match > best) {
            best = match;
            follows = at;
        }
    }
    for (i = 0; follows >= 0 && i < most; i++)
        guesses[i] = follows + i < length ? ids[follows + i] : guesses[follows + i - length];
    return follows >= 0 ? most : 0;
}

/*  Guesses tokens with another sequence, which becomes a copy of the first `count` ids. The caller holds no lock.
    Returns how many; -1, and reported, on failure. */
IGNIS__PRIVATE int ignis__sequence_guess_by(const char *call, ignis__sequence *draft, const int32_t *ids, int count,
                                            const ignis_sampling_desc *sampling, int32_t *guesses, int most)
{
    int done = 0;
    bool ok = true;
    if (count == 0 || most == 0 || count + most > draft->engine->context)
        return 0;
    ignis__engine_lock(call, draft->engine);
    ok = ignis__sequence_replace_tokens(call, draft, ids, count);
    for (; ok && done < most; done++) {
        ok = ignis__engine_decode(call, &draft, 1, sampling, true, NULL, NULL);
        if (ok)
            guesses[done] = draft->ids[draft->length - 1];
    }
    ignis__mutex_unlock(&draft->engine->lock);
    return ok ? done : -1;
}

/*  Returns how many tokens of a draft the next step of a sequence of a locked engine can check. */
static int ignis__sequence_checks_at_most(ignis__sequence *sequence, int count)
{
    const ignis__engine *engine = sequence->engine;
    const int by_rows = (engine->step_rows < IGNIS__GEMV_ROWS ? engine->step_rows : (int)IGNIS__GEMV_ROWS) - 1,
              by_context = engine->context - sequence->length - 1;
    int most = count < by_rows ? count : by_rows;
    most = most < by_context ? most : by_context;
    if (sequence->length == 0 || sequence->stale || sequence->states || sequence->grammar ||
        ignis__sequence_ends_in_chunk(sequence) || engine->model->parallel.size > 1)
        return 0;
    while (most > 0 && !ignis__sequence_has_pages(NULL, sequence, sequence->length - 1, sequence->length + most))
        most--;
    return most;
}

/*  Uploads the rows of a step that checks a draft, whose tokens are at the end of the sequence, and runs it. */
static void ignis__sequence_run_check(ignis__op *op, ignis__sequence *sequence, int count,
                                      const ignis_sampling_desc *sampling)
{
    ignis__engine *engine = sequence->engine;
    ignis__generate_row *rows = engine->row;
    const int width = ignis__step_width(count + 1);
    int i;
    memset(rows, 0, sizeof *rows * (size_t)width);
    for (i = 0; i < width; i++) {
        rows[i].position = -1;
        if (i > count)
            continue;
        ignis__sequence_fill_row(op, sequence, sequence->length - count - 1 + i, &rows[i]);
        ignis__sampling_fill_row(engine, i, sampling, &rows[i]);
        rows[i].checks = true;
        ignis__sampling_upload_biases(op, engine, i, sampling);
    }
    ignis__sequence_read_lora(op, sequence);
    ignis__upload_rows(op, engine->model->dtype, engine->rows, rows, width);
    engine->one_sequence = true;
    ignis__engine_run_step(op, engine, width,
                           ignis__sampling_filters(sampling) ? IGNIS__SAMPLING_FILTERED : IGNIS__SAMPLING_UNFILTERED,
                           sequence->lora ? sequence->lora->products : 0);
    engine->one_sequence = false;
    op->ok = op->ok && !IGNIS__CUDA_FAILED(op->work.call, engine->device, cuStreamSynchronize, (op->work.stream));
}

/*  Appends the first of the waiting tokens. The caller holds the engine's lock. */
IGNIS__PRIVATE int32_t ignis__sequence_take_waiting(ignis__sequence *sequence)
{
    sequence->waiting--;
    sequence->log_prob = sequence->waiting_log_probs[sequence->length % IGNIS__STEP_ROWS];
    sequence->in_chunk[sequence->length] = false;
    sequence->cached = sequence->length;
    return sequence->ids[sequence->length++];
}

/*  Checks a draft of a sequence of a locked engine, on which no token is ahead. The tokens that are sampled wait in the
    sequence. *checked: tokens of the draft that the step had rows for; 0 if none could be checked, and nothing was
    done. False, and reported, on failure; then the sequence is as it was. */
IGNIS__PRIVATE bool ignis__sequence_check(const char *call, ignis__sequence *sequence, const int32_t *draft, int count,
                                          const ignis_sampling_desc *sampling, int *checked)
{
    ignis__engine *engine = sequence->engine;
    const int length = sequence->length;
    const ignis__generate_draw *drawn;
    ignis__op op;
    int n = 0, i;
    bool goes_on = true;
    *checked = 0;
    if (!ignis__sampling_check(call, sampling, engine->model->vocab))
        return false;
    count = ignis__sequence_checks_at_most(sequence, count);
    if (count <= 0)
        return true;
    if (!ignis__op_begin_on_device(&op, call, engine->device))
        return false;
    memcpy(sequence->ids + length, draft, sizeof *draft * (size_t)count);
    sequence->length = length + count;
    ignis__sequence_take_pages(&op, sequence, length - 1, length + count);
    ignis__sequence_run_check(&op, sequence, count, sampling);
    sequence->length = length; /* the pages stay */
    sequence->uploaded = sequence->uploaded < length ? sequence->uploaded : length;
    for (i = 0; op.ok && goes_on && i <= count; i++) {
        drawn = ignis__sampling_draw(engine, i, length - 1 + i);
        goes_on = drawn->id >= 0 && i < count && drawn->id == draft[i];
        if (drawn->id < 0)
            break;
        sequence->ids[length + i] = drawn->id;
        sequence->waiting_log_probs[(length + i) % IGNIS__STEP_ROWS] = drawn->log_prob;
        n++;
    }
    sequence->waiting = n;
    if (op.ok && n == 0)
        ignis__sampling_fail(call, ignis__sampling_draw(engine, 0, length - 1)->id, -1);
    *checked = count;
    if (n == 0)
        ignis__sequence_truncate(sequence, length);
    return ignis__engine_leave(&op) && n > 0;
}
