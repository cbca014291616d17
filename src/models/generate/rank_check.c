/*  models/generate/rank_check.c - the agreement: all ranks of a model compute the same step

    Each rank adds a hash of its arguments to the logits' buffer, at its own place. The sum over the ranks, which
    the step needs anyway, brings every rank the hashes of all.
    May use: kernel_params.c. Locks: the caller holds the engine's lock. */

#include "room.h"

static uint32_t ignis__agreement_hash_add(uint32_t hash, const void *bytes, size_t size)
{
    const unsigned char *at = (const unsigned char *)bytes;
    while (size-- > 0)
        hash = (hash ^ *at++) * 16777619u; /* FNV-1a */
    return hash;
}

/*  Returns a hash of what this rank is about to compute: model, sequences, sampling. All ranks must have the same
    hash. */
IGNIS__PRIVATE uint32_t ignis__engine_agreement_hash(const ignis__engine *engine, const ignis__batch *batch)
{
    const ignis__model *model = engine->model;
    int numbers[12], i;
    double reals[4];
    uint32_t hash = 2166136261u;
    numbers[0] = model->layers, numbers[1] = model->hidden, numbers[2] = model->heads, numbers[3] = model->kv_heads,
    numbers[4] = model->inner;
    numbers[5] = model->vocab, numbers[6] = (int)model->family, numbers[7] = (int)model->dtype,
    numbers[8] = model->max_tokens, numbers[9] = model->sequences;
    numbers[10] = batch->count, numbers[11] = batch->samples;
    hash = ignis__agreement_hash_add(hash, numbers, sizeof numbers);
    for (i = 0; i < batch->count; i++) {
        ignis__sequence *sequence = batch->sequences[batch->of[i]];
        const ignis_sampling_desc *desc = batch->samples && batch->sampling ? &batch->sampling[batch->of[i]] : NULL;
        for (; sequence->hashed_length < sequence->length; sequence->hashed_length++)
            sequence->tokens_hash =
                ignis__agreement_hash_add(sequence->hashed_length ? sequence->tokens_hash : 2166136261u,
                                          &sequence->ids[sequence->hashed_length], sizeof *sequence->ids);
        hash = ignis__agreement_hash_add(hash, &sequence->tokens_hash, sizeof sequence->tokens_hash);
        if (sequence->grammar) {
            hash = ignis__agreement_hash_add(hash, sequence->grammar->source, strlen(sequence->grammar->source));
            hash = ignis__agreement_hash_add(hash, &sequence->constrained, sizeof sequence->constrained);
        }
        if (!desc)
            continue;
        reals[0] = desc->temperature, reals[1] = desc->top_p, reals[2] = desc->min_p,
        reals[3] = desc->repetition_penalty;
        hash = ignis__agreement_hash_add(hash, reals, sizeof reals);
        hash = ignis__agreement_hash_add(hash, &desc->top_k, sizeof desc->top_k);
        hash = ignis__agreement_hash_add(hash, &desc->penalty_window, sizeof desc->penalty_window);
        hash = ignis__agreement_hash_add(hash, &desc->seed, sizeof desc->seed);
        hash = ignis__agreement_hash_add(hash, desc->biases, sizeof *desc->biases * (size_t)desc->bias_count);
    }
    return (hash ^ hash >> 24) & 0xFFFFFFu; /* 24 bits: a float adds zeros to it without rounding */
}

/*  Uploads this rank's hash. */
IGNIS__PRIVATE void ignis__engine_upload_agreement(ignis__op *op, const ignis__engine *engine, uint32_t hash)
{
    float numbers[IGNIS__RANKS] = {0};
    int32_t words[IGNIS__RANKS];
    numbers[engine->model->parallel.rank] = (float)hash;
    memcpy(words, numbers, sizeof words);
    ignis__upload_i32(op, engine->model->dtype, engine->agreement, 0, words, engine->model->parallel.size);
}

/*  Waits for a step. False, and reported, if its sums failed or a rank has another hash. */
IGNIS__PRIVATE bool ignis__engine_check_agreement(ignis__op *op, const ignis__engine *engine, uint32_t hash)
{
    const ignis_model_parallel *ranks = &engine->model->parallel;
    ignis__address logits = ignis__op_write(op, engine->logits);
    float others[IGNIS__RANKS];
    int i;
    if (!op->ok ||
        !ignis__copy_to_host(&op->work, others, logits + (ignis__address)engine->model->vocab * sizeof(float),
                             ranks->size * (int64_t)sizeof(float)) ||
        ranks->check_fn(ranks->group) != IGNIS_OK)
        return false;
    for (i = 0; i < ranks->size; i++)
        if (others[i] != (float)hash)
            return ignis__fail(
                       IGNIS_DIAG_COMM_MISMATCH, op->work.call,
                       "rank %d works with other tokens, sequences or sampling than rank %d, or with another model: "
                       "its number of them is "
                       "%06x, here it is %06x; all ranks of a model make the same calls with the same arguments",
                       i, ranks->rank, (unsigned)others[i], (unsigned)hash) == IGNIS_OK;
    return true;
}
