/*  models/generate/sampling.c - checks of ignis_sampling_desc, and its copy for the device

    generate_draw.cu samples. Host and kernel must agree on which rows are filtered, as the host chooses the
    launches.
    Locks: none. */

#include "room.h"

static bool ignis__sampling_check_number(const char *call, const char *name, double value, double highest)
{
    if (value >= 0 && value <= highest)
        return true;
    ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "sampling->%s is %g, outside 0 to %g", name, value, highest);
    return false;
}

/*  Checks all values of a description. False, and reported, if one is out of range. */
IGNIS__PRIVATE bool ignis__sampling_check(const char *call, const ignis_sampling_desc *desc, int vocab)
{
    int i;
    if (!ignis__sampling_check_number(call, "temperature", desc->temperature, 1e6) ||
        !ignis__sampling_check_number(call, "top_p", desc->top_p, 1) ||
        !ignis__sampling_check_number(call, "min_p", desc->min_p, 1) ||
        !ignis__sampling_check_number(call, "repetition_penalty", desc->repetition_penalty, 1e6) ||
        !ignis__sampling_check_number(call, "top_k", desc->top_k, INT32_MAX) ||
        !ignis__sampling_check_number(call, "penalty_window", desc->penalty_window, INT32_MAX) ||
        !ignis__sampling_check_number(call, "bias_count", desc->bias_count, IGNIS__BIASES))
        return false;
    if (desc->bias_count && !desc->biases)
        return ignis__fail_null(call, "sampling->biases") == IGNIS_OK;
    for (i = 0; i < desc->bias_count; i++)
        if (desc->biases[i].id < 0 || desc->biases[i].id >= vocab ||
            (i && desc->biases[i].id <= desc->biases[i - 1].id) || desc->biases[i].bias != desc->biases[i].bias)
            return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call,
                               "sampling->biases[%d] is %g for token %d; ids rise from 0 to %d at most, each once, and "
                               "a bias is a number",
                               i, (double)desc->biases[i].bias, (int)desc->biases[i].id, vocab - 1) == IGNIS_OK;
    return true;
}

/*  Returns whether top k, top p or min p may exclude tokens. generate_draw.cu has the same rule. */
IGNIS__PRIVATE bool ignis__sampling_filters(const ignis_sampling_desc *desc)
{
    return desc->temperature != 0 && (desc->top_k > 0 || (desc->top_p > 0 && desc->top_p < 1) || desc->min_p > 0);
}

/*  Returns where the token after `position` of a row is. number: of the row in its step. */
IGNIS__PRIVATE const ignis__generate_draw *ignis__sampling_draw(const ignis__engine *engine, int number, int position)
{
    return &engine->draws[number * IGNIS__DRAWS + position % IGNIS__DRAWS];
}

/*  Uploads the biases of a row, without waiting. */
IGNIS__PRIVATE void ignis__sampling_upload_biases(ignis__op *op, const ignis__engine *engine, int number,
                                                  const ignis_sampling_desc *desc)
{
    const int64_t words = (int64_t)(sizeof *desc->biases / sizeof(int32_t));
    if (desc->bias_count)
        ignis__upload_i32(op, engine->model->dtype, engine->biases, number * words * IGNIS__BIASES,
                          (const int32_t *)(const void *)desc->biases, desc->bias_count * words);
}

/*  Sets how the next token of a row is sampled, and where the host reads it. number: of the row in its step. */
IGNIS__PRIVATE void ignis__sampling_fill_row(const ignis__engine *engine, int number, const ignis_sampling_desc *desc,
                                             ignis__generate_row *row)
{
    row->draws = (ignis__address)(uintptr_t)ignis__sampling_draw(engine, number, 0);
    row->temperature = desc->temperature;
    row->top_k = desc->top_k;
    row->top_p = desc->top_p;
    row->min_p = desc->min_p;
    row->penalty = desc->repetition_penalty == 0 ? 1 : desc->repetition_penalty;
    row->window = desc->penalty_window;
    row->seed = desc->seed;
    row->biases = desc->bias_count;
}
