/*  models/weights/tensor_match.c - matches the table of weights with the tensors of the files

    A tensor that no weight uses is refused, with the exceptions that ignis_model_inspect documents.
    May use: weight_map.c, checkpoint.c. Locks: none. */

#include "room.h"

/*  Tells whether a tensor is of a layer after the model's own, which predicts further tokens. */
static bool ignis__model_is_of_more_layers(const ignis__model_files *files, const ignis__model *model,
                                           const ignis__model_source *source)
{
    const char *prefix = files->is_gguf ? "blk." : "model.layers.";
    const size_t size = strlen(prefix);
    const int layer = strncmp(source->name, prefix, size) == 0 ? atoi(source->name + size) : -1;
    return layer >= model->layers && layer < model->layers + model->more_layers;
}

/*  Tells whether an unused tensor changes nothing: tables that older versions of transformers have written
    and that follow from the description, and the head of a tied model. */
static bool ignis__model_is_redundant(const ignis__model_files *files, const ignis__model *model,
                                      const ignis__model_source *source)
{
    const ignis__unused_tensor *unused = ignis__family_of(model->family)->unused;
    size_t size = strlen(source->name), end;
    if (ignis__model_is_of_more_layers(files, model, source))
        return true;
    if (files->is_gguf)
        return false;
    for (; unused->suffix; unused++) {
        if (unused->ndim == -2 && strncmp(source->name, unused->suffix, strlen(unused->suffix)) == 0)
            return true;
        end = strlen(unused->suffix);
        if (size >= end && strcmp(source->name + size - end, unused->suffix) == 0 &&
            (unused->ndim < 0 || unused->ndim == source->shape.ndim))
            return true;
    }
    return model->tied && strcmp(source->name, "lm_head.weight") == 0;
}

/*  Checks that the model uses all tensors of the files, as it would be another model without one. False, and
    reported, if not. */
static bool ignis__model_check_unused(const ignis__model_files *files, const ignis__model *model)
{
    int64_t i;
    for (i = 0; i < files->source_count; i++) {
        const ignis__model_source *source = &files->sources[i];
        if (source->used || ignis__model_is_redundant(files, model, source))
            continue;
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call,
                    "'%s' has a tensor %s, %s, for which a %s model of layers 0 to %d has no use", files->path,
                    ignis__name_write(source->name).text, ignis__shape_write(&source->shape).text,
                    ignis__family_of(model->family)->model_type, model->layers - 1);
        return false;
    }
    return true;
}

/*  Returns the shape that the tensor of a part has in the files. */
static ignis_shape ignis__model_wanted_shape(const ignis__model_files *files, const ignis__model *model,
                                             const ignis__model_part *part, const ignis__model_source *source)
{
    ignis_shape wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.ndim = part->row->columns ? 2 : 1;
    wanted.dim[0] = part->file_rows;
    if (wanted.ndim == 2)
        wanted.dim[1] = part->file_columns;
    if (files->is_gguf && wanted.ndim == 2 && wanted.dim[0] == 1 && source && source->shape.ndim == 1) {
        wanted.ndim = 1; /* ggml does not keep dimensions of 1 */
        wanted.dim[0] = wanted.dim[1];
    }
    if (part->row->how & IGNIS__MODEL_HEAD_NORM && part->row->rows != 'D') {
        wanted.ndim = 2;
        wanted.dim[0] = part->file_rows / model->head_dim;
        wanted.dim[1] = model->head_dim;
    }
    if (part->row->how & IGNIS__MODEL_OF_HEADS) {
        wanted.ndim = 3;
        wanted.dim[0] = model->heads;
        wanted.dim[1] = part->rows / model->heads;
        wanted.dim[2] = part->columns;
    }
    if (ignis__part_is_transposed(part)) {
        wanted.dim[1] = part->columns;
        wanted.dim[2] = part->rows / model->heads;
    }
    if (part->row->how & IGNIS__MODEL_EXPERTS && (files->is_gguf || part->row->how & IGNIS__MODEL_TOGETHER)) {
        wanted.ndim++;
        wanted.dim[2] = wanted.dim[1];
        wanted.dim[1] = part->file_rows / model->experts;
        wanted.dim[0] = model->experts;
    }
    if (!files->is_gguf && part->row->how & IGNIS__MODEL_IN_OUT) {
        wanted.dim[0] = part->file_columns;
        wanted.dim[1] = part->file_rows;
    }
    if (!files->is_gguf && part->row->how & IGNIS__MODEL_MIDDLE) {
        wanted.ndim = 3;
        wanted.dim[2] = wanted.dim[1];
        wanted.dim[1] = 1;
    }
    return wanted;
}

/*  Finds the tensor of every part, and checks its shape and type. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__model_match_tensors(ignis__model_files *files, ignis__model *model,
                                                           ignis__model_part *parts, int count)
{
    int64_t elements[IGNIS_DTYPE_COUNT] = {0}, numel; /* [0]: of quantised tensors */
    int i, k;
    for (i = 0; i < count; i++) {
        ignis__model_part *part = &parts[i];
        ignis__model_name name = ignis__model_weight_name(files, model, part->row, part->layer, part->expert);
        ignis__model_source *source = ignis__model_source_find(files, name.text);
        const ignis_shape wanted = ignis__model_wanted_shape(files, model, part, source);
        if (!source) {
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                        "'%s' has no tensor %s, %s, which its description asks for", files->path,
                        ignis__name_write(name.text).text, ignis__shape_write(&wanted).text);
            return false;
        }
        if (!source->quant && !ignis__dtype_is_float(source->dtype)) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call,
                        "tensor %s of '%s' is of type %s, which Ignis cannot read as a weight",
                        ignis__name_write(name.text).text, files->path, ignis__model_type_write(source).text);
            return false;
        }
        if (source->quant == IGNIS__GGUF_F8 && (part->columns % 128 != 0 || ignis__part_is_transposed(part)))
            ignis__packed_as_floats(files, source);
        if (!ignis__shape_same(&source->shape, &wanted)) {
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "tensor %s of '%s' is %s; its description makes it %s",
                        ignis__name_write(name.text).text, files->path, ignis__shape_write(&source->shape).text,
                        ignis__shape_write(&wanted).text);
            return false;
        }
        if (ignis__part_is_transposed(part) && part->rows / model->heads % source->elements != 0) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call,
                        "tensor %s of '%s' is %s, in blocks of %d elements, and %d elements of a head do not rotate",
                        ignis__name_write(name.text).text, files->path, source->type, source->elements,
                        model->head_dim - model->rotary);
            return false;
        }
        if (source->quant && !part->row->columns) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "tensor %s of '%s' is %s, though it has one dimension",
                        ignis__name_write(name.text).text, files->path, source->type);
            return false;
        }
        if (part->columns % source->elements != 0) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call,
                        "tensor %s of '%s' is %s, in blocks of %d elements of a row; shares of %d ranks have %lld of "
                        "its %lld, which cuts a block",
                        ignis__name_write(name.text).text, files->path, source->type, source->elements,
                        model->parallel.size, (long long)part->columns, (long long)part->file_columns);
            return false;
        }
        if (!files->is_gguf && part->row->how & IGNIS__MODEL_TOGETHER && part->row->columns &&
            model->expert_limit > 0 && source->quant != IGNIS__GGUF_MXFP4) { /* gpt-oss: 16-bit ones are transposed */
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call,
                        "tensor %s of '%s' is %s; Ignis reads the experts of %s as MXFP4 only",
                        ignis__name_write(name.text).text, files->path, ignis__model_type_write(source).text,
                        ignis__family_of(model->family)->model_type);
            return false;
        }
        if (source->packed &&
            (part->row->how & IGNIS__MODEL_IN_OUT || (part->skip_rows % 8 && part->every == 1) || part->run % 8)) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call,
                        "tensor %s of '%s' is quantised: its rows %lld to %lld would be read, or its columns; expected "
                        "rows in groups of eight",
                        ignis__name_write(name.text).text, files->path, (long long)part->skip_rows,
                        (long long)(part->skip_rows + part->run));
            return false;
        }
        part->from = source;
        source->used = true;
        numel = part->rows * part->columns; /* of the file's own shape */
        elements[source->quant || source->packed ? 0 : source->dtype] +=
            part->file_rows * part->file_columns; /* equal on all ranks */
        model->parameters += numel;
        model->file_bytes += ignis__model_source_bytes(files, source, numel);
    }
    if (!ignis__model_check_unused(files, model))
        return false;
    if (!model->dtype) {
        for (k = 0, i = 0; i < IGNIS_DTYPE_COUNT; i++)
            k = elements[i] > elements[k] ? i : k;
        model->dtype = k ? (ignis_dtype)k : IGNIS_BF16;
    }
    if (!model->cache_dtype)
        model->cache_dtype = model->dtype;
    ignis__model_choose_types(model, parts, count);
    return true;
}
