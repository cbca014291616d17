/*  models/weights/model_tensor.c - ignis_model_tensor, _weights and _tokenizer

    A part of a weight is a view; a quantised weight is copied.
    May use: weight_map.c, quantized_linear.c, >>text. Locks: the model's slot.lock guards its tokenizer. */

#include "room.h"

/*  Finds the part of a model with a name, or the first part of the weight with it: then *whole is set. NULL
    if there is none. */
static const ignis__model_part *ignis__model_find(ignis__model *model, const ignis__model_part *parts, int count,
                                                  const char *name, bool *whole)
{
    const char *prefix = ignis__model_prefix(NULL, model);
    int i;
    for (i = 0; i < count; i++) {
        const ignis__model_row *row = parts[i].row;
        ignis__model_name full = ignis__model_weight_name(NULL, model, row, parts[i].layer, parts[i].expert);
        if (ignis__model_is_sliced(row)) /* not a tensor of a folder */
            continue;
        *whole = !row->whole && !strchr(row->hf, '@');
        if (strcmp(full.text, name) == 0 || (*prefix && strcmp(full.text + strlen(prefix), name) == 0 &&
                                             !(row->how & (IGNIS__MODEL_HEAD | IGNIS__MODEL_OUTSIDE))))
            return &parts[i];
        *whole = true;
        if (row->whole && strcmp(ignis__model_name_write("", row->whole, parts[i].layer).text, name) == 0)
            return &parts[i];
        if (model->tied && strcmp(name, "lm_head.weight") == 0 && parts[i].to == &model->embedding)
            return &parts[i];
    }
    return NULL;
}

/*  Makes a tensor over rows of a weight. Of a quantised one it is a copy in the dtype. */
IGNIS__PRIVATE ignis_tensor ignis__model_slice_rows(const char *call, ignis_tensor weight, int64_t first, int64_t rows,
                                                    ignis_dtype dtype)
{
    ignis__blocks blocks = ignis__blocks_of(call, weight);
    ignis__array *array = blocks.count ? NULL : ignis__borrow_array(call, weight);
    ignis_array view = IGNIS__ZERO;
    if (blocks.count)
        return ignis__model_dequantise(call, weight, &blocks, first, rows, dtype);
    if (!array)
        return ignis__no_tensor();
    view = ignis__array_slice(call, array, 0, first, rows);
    ignis__array_drop(call, array);
    return ignis__tensor_adopt(call, view, false);
}

/*  Tells whether the experts of a part are one tensor in folders, whose rows follow each other as here. */
static bool ignis__model_is_joined(const ignis__model_part *part)
{
    return part->row->how & IGNIS__MODEL_TOGETHER && !(part->row->how & (IGNIS__MODEL_EVEN | IGNIS__MODEL_ODD)) &&
           part->row->columns;
}

/*  Makes the tensor [experts, rows, columns] of a part with all experts; with both halves of their rows, if the part is
    the first half. The part after it is the other one then. */
static ignis_tensor ignis__model_experts_tensor(const char *call, const ignis__model *model,
                                                const ignis__model_part *part)
{
    const int count = part->row->how & IGNIS__MODEL_FIRST_HALF ? 2 : 1;
    ignis_tensor pieces[2];
    int i;
    for (i = 0; i < count; i++)
        pieces[i] = ignis_reshape(ignis__model_slice_rows(call, *part[i].to, 0, part[i].rows, model->dtype),
                                  IGNIS_SHAPE(model->experts, -1, part->columns));
    return count == 1 ? pieces[0] : ignis_concat(pieces, 2, 1);
}

/*  Returns the place in a folder of row or column i, where `kind` is the letter of these rows or columns in a table:
    heads of v of recurrent layers have another order in GGUF files. */
static int64_t ignis__model_head_place(const ignis__model *model, char kind, int64_t i)
{
    const int64_t size = kind == 'n' ? 1 : model->delta_v, heads = model->delta_heads,
                  first = kind == 'l' ? 2 * heads * model->delta_k : 0, head = (i - first) / (size ? size : 1);
    if (!model->tiled || !strchr("lnZ", kind) || i < first)
        return i;
    return first + (head % heads * (model->delta_v_heads / heads) + head / heads) * size + (i - first) % size;
}

/*  Tells whether a part has other rows at a place than a folder has, or other columns. */
static bool ignis__model_moves(const ignis__model *model, const ignis__model_part *part, bool columns)
{
    const char kind = columns ? part->row->columns : part->row->rows;
    return (!columns && (part->moved || part->grouped)) || (model->tiled && kind && strchr("lnZ", kind));
}

/*  Returns a tensor with its rows, or its columns, in the order of a folder, or the other way round: a copy. */
static ignis_tensor ignis__model_move(const char *call, const ignis__model *model, const ignis__model_part *part,
                                      ignis_tensor tensor, bool to_folder, bool columns)
{
    const ignis_shape shape = ignis_tensor_shape(tensor);
    const int64_t count = columns ? part->columns : part->rows;
    ignis_shape rows = shape;
    ignis_tensor_desc desc;
    ignis_tensor from;
    int32_t *ids = (int32_t *)ignis__alloc_for(call, (size_t)count * sizeof *ids);
    int64_t i;
    if (!ids)
        return ignis__no_tensor();
    for (i = 0; i < count; i++) {
        int64_t at = ignis__model_head_place(model, columns ? part->row->columns : part->row->rows, i);
        if (!columns && (part->moved || part->grouped))
            at = ignis__model_file_row(part, part->moved ? ignis__model_head_row(NULL, model, part, i) : i);
        ids[to_folder ? at : i] = (int32_t)(to_folder ? i : at);
    }
    memset(&desc, 0, sizeof desc);
    desc.dtype = desc.host_dtype = IGNIS_I32;
    desc.device = model->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(model->device - ignis__devices);
    rows.ndim = 1;
    rows.dim[0] = count;
    from = ignis_tensor_from_host(ids, rows, &desc);
    ignis__free(ids);
    if (columns)
        return ignis_transpose(ignis_embedding(ignis_transpose(tensor, 0, 1), from), 0, 1);
    rows.ndim = 2;
    rows.dim[1] = shape.ndim == 2 ? shape.dim[1] : 1;
    return ignis_reshape(ignis_embedding(ignis_reshape(tensor, rows), from), shape);
}

/*  Returns a tensor [rows, ...] of a part with its rows in the order of a folder, or the other way round: a copy, if
    that order is another one. */
IGNIS__PRIVATE ignis_tensor ignis__model_reorder_rows(const char *call, const ignis__model *model,
                                                      const ignis__model_part *part, ignis_tensor tensor,
                                                      bool to_folder)
{
    const bool moves = tensor.id && ignis__model_moves(model, part, false);
    return moves ? ignis__model_move(call, model, part, tensor, to_folder, false) : tensor;
}

/*  As ignis__model_reorder_rows, for the columns of a tensor [..., columns] of two dimensions. */
IGNIS__PRIVATE ignis_tensor ignis__model_reorder_columns(const char *call, const ignis__model *model,
                                                         const ignis__model_part *part, ignis_tensor tensor,
                                                         bool to_folder)
{
    const bool moves = tensor.id && ignis__model_moves(model, part, true);
    return moves ? ignis__model_move(call, model, part, tensor, to_folder, true) : tensor;
}

/*  Makes a tensor with the rows and columns of a part in the order of a folder: a copy if that order differs. */
IGNIS__PRIVATE ignis_tensor ignis__model_part_tensor(const char *call, const ignis__model *model,
                                                     const ignis__model_part *part)
{
    ignis_tensor tensor = ignis__model_is_joined(part)
                              ? ignis__model_experts_tensor(call, model, part)
                              : ignis__model_slice_rows(call, *part->to, part->first, part->rows, model->dtype);
    tensor = ignis__model_reorder_rows(call, model, part, tensor, true);
    return ignis__model_reorder_columns(call, model, part, tensor, true);
}

/*  As ignis__model_part_tensor, without intermediate tensors in the caller's scope, and without a tape. */
static ignis_tensor ignis__model_moved_tensor(const char *call, const ignis__model *model,
                                              const ignis__model_part *part)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor tensor;
    (void)ignis_no_grad_begin();
    tensor = ignis__model_part_tensor(call, model, part);
    (void)ignis_no_grad_end();
    return ignis_scope_return(scope, tensor);
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_model_tensor(ignis_model handle, const char *name)
{
    static const char call[] = "ignis_model_tensor";
    ignis__model *model = ignis__model_hold(call, handle);
    ignis_tensor tensor = IGNIS__ZERO;
    const ignis__model_part *part = NULL;
    ignis__model_part *parts = NULL;
    bool whole = false;
    int count = 0;
    if (!model)
        return tensor;
    if (!name)
        ignis__fail_null(call, "name");
    else
        parts = ignis__model_parts_make(call, NULL, model, &count);
    if (parts) {
        part = ignis__model_find(model, parts, count, name, &whole);
        if (!part)
            ignis__fail(IGNIS_DIAG_STORAGE_MISSING, call, "the model, %s of %d layers, has no weight %s",
                        ignis__family_of(model->family)->model_type, model->layers, ignis__name_write(name).text);
        else if (!(whole && part->row->whole) &&
                 (ignis__model_moves(model, part, false) || ignis__model_moves(model, part, true) ||
                  ignis__model_is_joined(part)))
            tensor = ignis__model_moved_tensor(call, model, part);
        else if (whole && !ignis__blocks_of(call, *part->to).count)
            tensor = *part->to;
        else
            tensor = ignis__model_slice_rows(call, *part->to, whole ? 0 : part->first, whole ? part->total : part->rows,
                                             model->dtype);
    }
    ignis__free(parts);
    ignis__model_drop(call, model);
    return tensor;
}

/*  Returns the tokenizer of a held model. No handle, and reported, if it cannot be opened. */
IGNIS__COLD IGNIS__PRIVATE ignis_tokenizer ignis__model_tokenizer(ignis__model *model)
{
    ignis_tokenizer tokenizer, late;
    ignis__mutex_lock(&model->slot.lock);
    tokenizer = model->tokenizer;
    ignis__mutex_unlock(&model->slot.lock);
    if (tokenizer.id)
        return tokenizer;
    late = ignis_tokenizer_open(model->path); /* opened without the lock; of two threads the first one wins */
    ignis__mutex_lock(&model->slot.lock);
    if (late.id && !model->tokenizer.id) {
        model->tokenizer = late;
        late.id = 0;
    }
    tokenizer = model->tokenizer;
    ignis__mutex_unlock(&model->slot.lock);
    ignis__model_tokenizer_end(&late);
    return tokenizer;
}

IGNIS__COLD IGNIS_API ignis_tokenizer ignis_model_tokenizer(ignis_model handle)
{
    ignis__model *model = ignis__model_hold("ignis_model_tokenizer", handle);
    ignis_tokenizer tokenizer = IGNIS__ZERO;
    if (!model)
        return tokenizer;
    tokenizer = ignis__model_tokenizer(model);
    ignis__model_drop("ignis_model_tokenizer", model);
    return tokenizer;
}

IGNIS__COLD IGNIS_API int ignis_model_weights(ignis_model handle, ignis_tensor *tensors, int capacity)
{
    static const char call[] = "ignis_model_weights";
    ignis__model *model = ignis__model_hold(call, handle);
    ignis__model_part *parts = NULL;
    int count = 0, made = 0, i;
    if (!model)
        return -1;
    if (capacity < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    else if (!tensors && capacity > 0)
        ignis__fail_null(call, "tensors");
    else
        parts = ignis__model_parts_make(call, NULL, model, &count);
    for (i = 0; parts && i < count; i++) {
        if (!parts[i].total || ignis__blocks_of(call, *parts[i].to).count)
            continue;
        if (made < capacity)
            tensors[made] = *parts[i].to;
        made++;
    }
    made = parts ? made : -1;
    ignis__free(parts);
    ignis__model_drop(call, model);
    return made;
}
