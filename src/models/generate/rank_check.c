#include "room.h"

static uint32_t ignis__said_mix(uint32_t said, const void *bytes, size_t size)
{
    const unsigned char *at = (const unsigned char *)bytes;
    while (size-- > 0)
        said = (said ^ *at++) * 16777619u; /* FNV-1a */
    return said;
}

/*  A number of what a step's rank works with: its model, the step's sequences, which are numbers `of` those that there are, how they are drawn from.
    Others must have the same. */
IGNIS__PRIVATE uint32_t ignis__engine_says(const ignis__engine *e, ignis__sequence *const *sequences, const int *of,
                                           int count, const ignis_sampling_desc *sampling, bool draws)
{
    const ignis__model *m = e->model;
    int numbers[12], i;
    double reals[4];
    uint32_t said = 2166136261u;
    numbers[0] = m->layers, numbers[1] = m->hidden, numbers[2] = m->heads, numbers[3] = m->kv_heads,
    numbers[4] = m->inner;
    numbers[5] = m->vocab, numbers[6] = (int)m->family, numbers[7] = (int)m->dtype, numbers[8] = m->room,
    numbers[9] = m->sequences;
    numbers[10] = count, numbers[11] = draws;
    said = ignis__said_mix(said, numbers, sizeof numbers);
    for (i = 0; i < count; i++) {
        ignis__sequence *s = sequences[of[i]];
        const ignis_sampling_desc *d = draws && sampling ? &sampling[of[i]] : NULL;
        for (; s->said_length < s->length; s->said_length++)
            s->said = ignis__said_mix(s->said_length ? s->said : 2166136261u, &s->ids[s->said_length], sizeof *s->ids);
        said = ignis__said_mix(said, &s->said, sizeof s->said);
        if (s->grammar) {
            said = ignis__said_mix(said, s->grammar->source, strlen(s->grammar->source));
            said = ignis__said_mix(said, &s->constrained, sizeof s->constrained);
        }
        if (!d)
            continue;
        reals[0] = d->temperature, reals[1] = d->top_p, reals[2] = d->min_p, reals[3] = d->repetition_penalty;
        said = ignis__said_mix(said, reals, sizeof reals);
        said = ignis__said_mix(said, &d->top_k, sizeof d->top_k);
        said = ignis__said_mix(said, &d->penalty_window, sizeof d->penalty_window);
        said = ignis__said_mix(said, &d->seed, sizeof d->seed);
        said = ignis__said_mix(said, d->biases, sizeof *d->biases * (size_t)d->bias_count);
    }
    return (said ^ said >> 24) & 0xFFFFFFu; /* floats add up such numbers and zeros without rounding */
}

/*  Tells the device what this rank says. */
IGNIS__PRIVATE void ignis__engine_say(ignis__op *op, const ignis__engine *e, uint32_t said)
{
    float numbers[IGNIS__RANKS] = {0};
    int32_t words[IGNIS__RANKS];
    numbers[e->model->parallel.rank] = (float)said;
    memcpy(words, numbers, sizeof words);
    ignis__step_words(op, e->model->dtype, e->said, 0, words, e->model->parallel.size);
}

/*  Whether the sums of a step that is done are right, and all ranks have said the same. */
IGNIS__PRIVATE bool ignis__engine_agrees(ignis__op *op, const ignis__engine *e, uint32_t said)
{
    const ignis_model_parallel *ranks = &e->model->parallel;
    ignis__address logits = ignis__op_write(op, e->logits);
    float others[IGNIS__RANKS];
    int i;
    if (!op->ok ||
        !ignis__copy_to_host(&op->work, others, logits + (ignis__address)e->model->vocab * sizeof(float),
                             ranks->size * (int64_t)sizeof(float)) ||
        ranks->check_fn(ranks->group) != IGNIS_OK)
        return false;
    for (i = 0; i < ranks->size; i++)
        if (others[i] != (float)said)
            return ignis__fail(
                       IGNIS_DIAG_COMM_MISMATCH, op->work.call,
                       "rank %d works with other tokens, sequences or sampling than rank %d, or with another model: "
                       "its number of them is "
                       "%06x, here it is %06x; all ranks of a model make the same calls with the same arguments",
                       i, ranks->rank, (unsigned)others[i], (unsigned)said) == IGNIS_OK;
    return true;
}
