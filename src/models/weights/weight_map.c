/*  models/weights/weight_map.c - which tensors of the files become which rows of which weight

    Loading, lookup by name, adapters and writing read the rows of the family's table here.
    May use: families.c, checkpoint.c (names of tensors). Locks: none. */

#include "room.h"

IGNIS__PRIVATE ignis__model_name ignis__model_name_write(const char *prefix, const char *pattern, int layer)
{
    ignis__model_name name;
    const char *place = strchr(pattern, '#');
    if (place)
        snprintf(name.text, sizeof name.text, "%s%.*s%d%s", prefix, (int)(place - pattern), pattern, layer, place + 1);
    else
        snprintf(name.text, sizeof name.text, "%s%s", prefix, pattern);
    return name;
}

/*  Returns a size of a rank's share by its letter. Sizes that ranks share are `size` times as large in the
    files. */
static int64_t ignis__model_size_of_letter(const ignis__model *model, char letter)
{
    switch (letter) {
    case 'V': return model->vocab;
    case 'P': return (int64_t)model->context + model->first_position;
    case 'T': return model->type_count;
    case 'C': return model->class_count;
    case 'H': return model->hidden;
    case '3': return (int64_t)3 * model->heads * model->head_dim;
    case 'Q': return (int64_t)model->heads * model->head_dim;
    case 'K': return (int64_t)model->kv_heads * model->head_dim;
    case 'D': return model->head_dim;
    case 'I': return model->inner;
    case 'F': return (int64_t)(model->heads + 2 * model->kv_heads) * model->head_dim;
    case 'G': return (int64_t)2 * model->inner;
    case 'E': return model->experts;
    case 'N': return model->heads;
    case 'X': return model->expert_inner;
    case 'S': return model->shared_inner ? model->shared_inner : model->inner;
    case 'A': return model->q_rank;
    case 'L': return model->latent;
    case 'M': return (int64_t)model->latent + model->rotary;
    case 'U': return (int64_t)model->heads * (model->head_dim - model->rotary);
    case 'W': return (int64_t)model->heads * model->value_dim;
    case 'B': return (int64_t)model->heads * (model->head_dim - model->rotary + model->value_dim);
    case 'g':
    case 'h': return (int64_t)model->heads * model->head_dim;
    case 'q':
    case 'k': return (int64_t)model->delta_heads * model->delta_k;
    case 'v':
    case 'z':
    case 'Z': return (int64_t)model->delta_v_heads * model->delta_v;
    case 'l': return (int64_t)2 * model->delta_heads * model->delta_k + (int64_t)model->delta_v_heads * model->delta_v;
    case 'b':
    case 'a':
    case 'n': return model->delta_v_heads;
    case 'Y': return model->delta_v;
    case 'w': return model->delta_conv;
    default: return 1;
    }
}

/*  Returns the rows of the first product of attention. */
IGNIS__PRIVATE int64_t ignis__model_qkv_rows(const ignis__model *model)
{
    if (!model->latent)
        return ignis__model_size_of_letter(model, 'F');
    return ignis__model_size_of_letter(model, model->q_rank ? 'A' : 'Q') + ignis__model_size_of_letter(model, 'M');
}

/*  Returns the greatest common divisor. */
static int64_t ignis__model_divisor_of(int64_t a, int64_t b) { return b ? ignis__model_divisor_of(b, a % b) : a; }

/*  Tells whether a part has columns of the file's matrices of heads as rows. */
IGNIS__PRIVATE bool ignis__part_is_transposed(const ignis__model_part *part)
{
    return part->row->how & IGNIS__MODEL_OF_HEADS && part->row->rows == 'U';
}

/*  Returns the dtype of a part that is not quantised. */
IGNIS__PRIVATE ignis_dtype ignis__model_part_dtype(const ignis__model *model, const ignis__model_part *part)
{
    return part->row->how & IGNIS__MODEL_WIDE ? ignis__wide_dtype(model->dtype) : model->dtype;
}

/*  Returns the rows of the vocabulary that each rank multiplies with; the last ranks may have fewer. */
IGNIS__PRIVATE int64_t ignis__model_head_rows(const ignis__model *model)
{
    return ignis__ceil_div(model->vocab, model->parallel.size);
}

/*  Tells whether a row of the table is some rows of a tensor, and its other rows do not follow in the weight. No tensor
    of a folder can be made of such a weight. */
IGNIS__PRIVATE bool ignis__model_is_sliced(const ignis__model_row *row)
{
    return row->how & (IGNIS__MODEL_EVEN | IGNIS__MODEL_ODD) || strchr("ghqkvzba", row->rows);
}

/*  Sets the rows of a part of a tensor that has q, k, v and z, or b and a, for one head of k after the other. */
static void ignis__model_select_of_heads(const ignis__model *model, ignis__model_part *part, char letter)
{
    const int64_t group = model->delta_v_heads / model->delta_heads, k = model->delta_k, v = group * model->delta_v;
    const bool gains = letter == 'b' || letter == 'a';
    part->run = gains ? group : letter == 'q' || letter == 'k' ? k : v;
    part->stride = gains ? 2 * group : 2 * (k + v);
    part->skip_rows = letter == 'k' ? k : letter == 'v' ? 2 * k : letter == 'z' ? 2 * k + v : letter == 'a' ? group : 0;
    part->file_rows = part->stride * model->delta_heads;
}

/*  Sets which rows and columns of the file's tensor a part is. The ranks share heads of queries, keys and
    values, elements of the MLP, and rows of an untied head. Every rank has the rest. */
static void ignis__model_select_share(const ignis__model_files *files, const ignis__model *model,
                                      ignis__model_part *part)
{
    const ignis__model_row *row = part->row;
    int64_t ranks = model->parallel.size, rank = model->parallel.rank;
    part->rows = ignis__model_size_of_letter(model, row->rows);
    if (row->how & IGNIS__MODEL_TOGETHER || (row->how & IGNIS__MODEL_EXPERTS && files && files->is_gguf))
        part->rows *= model->experts;
    part->every = row->how & (IGNIS__MODEL_EVEN | IGNIS__MODEL_ODD) && !(files && files->is_gguf) ? 2 : 1;
    part->run = part->rows;
    part->file_rows = part->rows * part->every;
    part->columns = part->file_columns = ignis__model_size_of_letter(model, row->columns);
    if (row->how & IGNIS__MODEL_HEAD) {
        part->skip_rows = rank * ignis__model_head_rows(model);
        part->rows = part->run = ignis__clamp(model->vocab - part->skip_rows, 0, ignis__model_head_rows(model));
    } else if (strchr("QKI3FG", row->rows)) {
        part->run = row->rows == '3' ? part->rows / 3 : row->rows == 'G' ? part->rows / 2 : part->rows;
        part->file_rows = part->rows * ranks;
        part->skip_rows = part->run * rank;
    }
    if (row->rows == 'F') {
        part->grouped = row->how & IGNIS__MODEL_GROUPED && !(files && files->is_gguf);
        part->by_heads = ranks > 1 || part->grouped;
        part->run = part->by_heads ? model->head_dim : part->rows;
        part->heads = model->heads, part->kv_heads = model->kv_heads;
        part->rank = (int)rank, part->ranks = (int)ranks;
    }
    if (row->rows == 'B') { /* in the files each head has its rows of keys, then those of values */
        part->grouped = true;
        part->plain = model->head_dim - model->rotary, part->value_dim = model->value_dim;
        part->heads = model->heads;
        part->run = ignis__model_divisor_of(part->plain, part->value_dim);
    }
    if (row->how & IGNIS__MODEL_ODD)
        part->skip_rows = part->every - 1;
    part->stride = part->run * ranks;
    if (row->how & (IGNIS__MODEL_FIRST_HALF | IGNIS__MODEL_SECOND_HALF) && !(files && files->is_gguf)) {
        part->run = part->rows / model->experts;
        part->stride = 2 * part->run;
        part->file_rows = 2 * part->rows;
        part->skip_rows = row->how & IGNIS__MODEL_SECOND_HALF ? part->run : 0;
    }
    if (row->rows == 'g' || row->rows == 'h') {
        part->run = model->head_dim;
        part->stride = 2 * part->run;
        part->file_rows = 2 * part->rows;
        part->skip_rows = row->rows == 'h' ? part->run : 0;
    }
    if (strchr("qkvzba", row->rows))
        ignis__model_select_of_heads(model, part, row->rows);
    if (row->columns == 'Q' || row->columns == 'I') {
        part->file_columns = part->columns * ranks;
        part->skip_columns = part->columns * rank;
    }
}

/*  Returns the row of the file with a row of a part. */
IGNIS__PRIVATE int64_t ignis__model_file_row(const ignis__model_part *part, int64_t row)
{
    int64_t head = row / part->run, heads = (int64_t)part->heads * part->ranks, kv_heads = part->kv_heads,
            group = part->by_heads ? part->heads / part->kv_heads : 0, which, kv;
    const int64_t plain = part->plain, values = part->value_dim, of_values = row - part->heads * plain;
    if (plain)
        return of_values < 0 ? row / plain * (plain + values) + row % plain
                             : of_values / values * (plain + values) + plain + of_values % values;
    if (!part->by_heads)
        return part->skip_rows + head * part->stride + row % part->run * part->every;
    if (head < part->heads) { /* of q; then of k and v */
        head += (int64_t)part->rank * part->heads;
        head = part->grouped ? head / group * (group + 2) + head % group : head;
    } else {
        which = (head - part->heads) / kv_heads;
        kv = part->rank * kv_heads + (head - part->heads) % kv_heads;
        head = part->grouped ? kv * (group + 2) + group + which : heads + which * kv_heads * part->ranks + kv;
    }
    return head * part->run + row % part->run;
}

/*  Returns the rows within which the order may differ in the file: those of a head, or of all keys of latents. */
IGNIS__PRIVATE int64_t ignis__model_move_unit(const ignis__model *model, const ignis__model_part *part)
{
    return !(part->row->how & IGNIS__MODEL_PAIRS) ? 1 : part->row->rows == 'M' ? part->rows : model->head_dim;
}

/*  Tells whether elements of heads have another order in the file: those that rotate together are adjacent there, or
    only the first elements of a head rotate. Here elements i and i + head_dim / 2 rotate together. files: NULL for
    the order of a folder. */
IGNIS__PRIVATE bool ignis__model_moves_rows(const ignis__model_files *files, const ignis__model *model,
                                            const ignis__model_row *row)
{
    unsigned pairs = files && files->is_gguf ? IGNIS__GGUF_PAIRS : IGNIS__HF_PAIRS;
    return row->how & IGNIS__MODEL_PAIRS && model->rope &&
           (ignis__family_of(model->family)->features & pairs || model->rotary < model->head_dim);
}

/*  Returns the row of the file, within its heads, that has row `row` of a part. */
IGNIS__PRIVATE int64_t ignis__model_head_row(const ignis__model_files *files, const ignis__model *model,
                                             const ignis__model_part *part, int64_t row)
{
    unsigned pairs =
        ignis__family_of(model->family)->features & (files && files->is_gguf ? IGNIS__GGUF_PAIRS : IGNIS__HF_PAIRS);
    int64_t middle = model->head_dim / 2, turning = model->rotary / 2, inside = row % model->head_dim;
    int64_t i = inside % middle, second = inside / middle, unit = ignis__model_move_unit(model, part), at;
    if (model->latent) { /* the last elements rotate */
        at = row % unit - (unit - model->rotary);
        return at < 0 || !pairs ? row : row - at + 2 * (at % turning) + at / turning;
    }
    if (part->row->rows == 'F' && row >= (int64_t)(model->heads + model->kv_heads) * model->head_dim)
        return row;
    if (i >= turning) /* does not rotate */
        return row - inside + 2 * turning + second * (middle - turning) + i - turning;
    return row - inside + (pairs ? 2 * i + second : second * turning + i);
}

/*  Returns the prefix of the names in a folder: models without a head are written without one. files: NULL for the
    names of an open model, which are those of its folder; those of GPT-2 always have it. */
IGNIS__PRIVATE const char *ignis__model_prefix(const ignis__model_files *files, const ignis__model *model)
{
    const ignis__family *family = ignis__family_of(model->family);
    bool has = family->prefix != NULL;
    if (has && files)
        has = ignis__model_source_find(files, ignis__model_name_write(family->prefix, family->rows[0].hf, 0).text) !=
              NULL;
    else if (has)
        has = model->prefixed || model->family == IGNIS_MODEL_GPT2;
    return has ? family->prefix : "";
}

IGNIS__PRIVATE ignis__model_name ignis__model_weight_name(const ignis__model_files *files, const ignis__model *model,
                                                          const ignis__model_row *row, int layer, int expert)
{
    bool plain = row->how & (IGNIS__MODEL_HEAD | IGNIS__MODEL_OUTSIDE); /* beside the model in GPT-2 and BERT */
    ignis__model_name name, numbered;
    const char *place;
    if (files && files->is_gguf)
        return ignis__model_name_write("", row->gguf, layer);
    name = files && files->bare && strncmp(row->hf, "model.", 6) == 0
               ? ignis__model_name_write("", row->hf + 6, layer)
               : ignis__model_name_write(plain ? "" : ignis__model_prefix(files, model), row->hf, layer);
    place = strchr(name.text, '@');
    if (!place)
        return name;
    snprintf(numbered.text, sizeof numbered.text, "%.*s%d%.*s", (int)(place - name.text), name.text, expert,
             (int)sizeof numbered.text / 2, place + 1);
    return numbered;
}

IGNIS__PRIVATE ignis_tensor *ignis__model_member(ignis__model *model, const ignis__model_row *row, int layer)
{
    char *base = row->in_layer ? (char *)&model->layer[layer] : (char *)model;
    return (ignis_tensor *)(void *)(base + row->member);
}

/*  Tells whether the files have a weight whole: see IGNIS__MODEL_FUSED. */
static bool ignis__model_is_fused(const ignis__model_files *files, const ignis__model *model,
                                  const ignis__model_row *row, int layer)
{
    const ignis__family *family = ignis__family_of(model->family);
    int i;
    for (i = 0; files && i < family->row_count; i++) {
        const ignis__model_row *other = &family->rows[i];
        if (other->how & IGNIS__MODEL_FUSED && other->member == row->member &&
            (files->is_gguf ? other->gguf : other->hf) &&
            ignis__model_source_find(files, ignis__model_weight_name(files, model, other, layer, 0).text))
            return true;
    }
    return false;
}

/*  Tells whether the weight of a row exists: in the files, or in the model if `files` is NULL. */
static bool ignis__model_has_row(const ignis__model_files *files, ignis__model *model, const ignis__model_row *row,
                                 int layer)
{
    const ignis__family *family = ignis__family_of(model->family);
    int i;
    if (!(files && files->is_gguf ? row->gguf : row->hf))
        return false;
    if (row->how & IGNIS__MODEL_HEAD)
        return !model->tied;
    if (row->how & IGNIS__MODEL_SERIAL)
        return !model->parallel_blocks;
    if (row->how & IGNIS__MODEL_HEAD_NORM)
        return model->head_layer_norms;
    if (row->how & (model->q_rank ? IGNIS__MODEL_DIRECT : IGNIS__MODEL_LOW_RANK))
        return false;
    if (row->how & (IGNIS__MODEL_ONE_NORM | IGNIS__MODEL_TWO_NORMS) &&
        model->two_norms != ((row->how & IGNIS__MODEL_TWO_NORMS) != 0))
        return false;
    if (row->how & (IGNIS__MODEL_FUSED | IGNIS__MODEL_APART) &&
        ignis__model_is_fused(files, model, row, layer) != ((row->how & IGNIS__MODEL_FUSED) != 0))
        return false;
    if (row->how & (layer < model->dense_layers ? IGNIS__MODEL_SPARSE : IGNIS__MODEL_LEADING))
        return false;
    if (layer >= 0 && row->how & (model->layer[layer].recurrent ? IGNIS__MODEL_ATTENTIVE : IGNIS__MODEL_RECURRENT))
        return false;
    if (row->how & IGNIS__MODEL_SAID && files && !files->is_gguf) {
        const ignis__config_item *said = ignis__config_find(&files->config, "use_qk_norm");
        return said && said->kind == 'b' && said->number != 0;
    }
    if (!(row->how & IGNIS__MODEL_OPTIONAL))
        return true;
    if (!files)
        return ignis__model_member(model, row, layer)->id != 0;
    for (i = 0; i < family->row_count; i++) {
        const ignis__model_row *other = &family->rows[i];
        if (other->in_layer == row->in_layer && other->member == row->member &&
            (files->is_gguf ? other->gguf : other->hf) &&
            ignis__model_source_find(files, ignis__model_weight_name(files, model, other, layer, 0).text))
            return true;
    }
    return false;
}

/*  Returns how many tensors a row is: of each expert or of each head, or one. */
static int ignis__model_repeats(const ignis__model_files *files, const ignis__model *model, const ignis__model_row *row)
{
    if ((files && files->is_gguf) || !strchr(row->hf, '@'))
        return 1;
    return row->how & IGNIS__MODEL_EXPERTS                 ? model->experts
           : row->member == offsetof(ignis__layer, q_norm) ? model->heads
                                                           : model->kv_heads;
}

/*  Lists all parts, those of one weight one after the other. files is NULL for an open model. Returns their
    number; parts may be NULL. */
static int ignis__model_parts(const ignis__model_files *files, ignis__model *model, ignis__model_part *parts)
{
    const ignis__family *family = ignis__family_of(model->family);
    int count = 0, first = 0, i, layer, expert, experts;
    for (layer = -1; layer < model->layers; layer++) {
        const ignis__model_row *before = NULL;
        for (i = 0; i < family->row_count; i++) {
            const ignis__model_row *row = &family->rows[i];
            if (row->in_layer != (layer >= 0) || !ignis__model_has_row(files, model, row, layer))
                continue;
            experts = ignis__model_repeats(files, model, row);
            for (expert = 0; expert < experts; expert++, count++) {
                ignis__model_part *part = parts ? &parts[count] : NULL;
                const bool continues = before && before->member == row->member;
                before = row;
                if (!part)
                    continue;
                memset(part, 0, sizeof *part);
                part->row = row;
                part->layer = layer;
                part->expert = expert;
                ignis__model_select_share(files, model, part);
                part->to = ignis__model_member(model, row, layer);
                part->moved = ignis__model_moves_rows(files, model, row);
                if (continues)
                    part->first = parts[count - 1].first + parts[count - 1].rows;
                else
                    first = count;
                parts[first].total += part->rows;
            }
        }
    }
    return count;
}

IGNIS__PRIVATE ignis__model_part *ignis__model_parts_make(const char *call, const ignis__model_files *files,
                                                          ignis__model *model, int *count)
{
    ignis__model_part *parts;
    size_t size;
    *count = ignis__model_parts(files, model, NULL);
    size = ((size_t)*count + 1) * sizeof *parts;
    parts = (ignis__model_part *)ignis__alloc(size);
    if (parts)
        (void)ignis__model_parts(files, model, parts);
    else
        ignis__fail_host_memory(call, size);
    return parts;
}
