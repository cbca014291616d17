/*  models/weights/model_open.c - ignis_model_inspect, _open, _query and _free: the life of a model

    A model becomes visible in its pool when all of its weights are loaded.
    May use: all parts of the room. Locks: see model.c. */

#include "room.h"

IGNIS__PRIVATE void ignis__model_tokenizer_end(ignis_tokenizer *handle)
{
    ignis__tokenizer *tokenizer = (ignis__tokenizer *)ignis__pool_hold(&ignis__tokenizers, handle->id);
    if (tokenizer) {
        (void)ignis__handle_kill(tokenizer);
        ignis__tokenizer_drop(tokenizer);
    }
    handle->id = 0;
}

/*  Releases the weights. The head of a tied model is the embedding, and is released once. */
static void ignis__model_clear(const char *call, ignis__model *model)
{
    const ignis__family *family = ignis__family_of(model->family);
    int i, layer;
    if (model->tied)
        model->head = ignis__no_tensor();
    for (layer = -1; layer < model->layers && (model->layer || layer < 0); layer++) {
        for (i = 0; i < family->row_count; i++) {
            const ignis__model_row *row = &family->rows[i];
            ignis_tensor *tensor;
            if (row->in_layer != (layer >= 0))
                continue;
            tensor = ignis__model_member(model, row, layer);
            if (tensor->id)
                ignis__tensor_discard(call, *tensor);
            *tensor = ignis__no_tensor();
        }
    }
    ignis__free(model->layer);
    ignis__free(model->path);
    model->layer = NULL;
    model->path = NULL;
    ignis__model_tokenizer_end(&model->tokenizer);
}

IGNIS__PRIVATE void ignis__model_drop(const char *call, ignis__model *model)
{
    if (!ignis__pool_drop(model))
        return;
    if (model->engine)
        model->engine_destroy(call, model->engine);
    ignis__model_clear(call, model);
    ignis__pool_recycle(&ignis__models, model);
}

IGNIS__PRIVATE ignis__model *ignis__model_hold(const char *call, ignis_model handle)
{
    return (ignis__model *)ignis__handle_hold(call, &ignis__models, handle.id);
}

/*  Reports every live model at ignis_shutdown, and ends it before the tensors. */
IGNIS__PRIVATE void ignis__models_close(const char *call)
{
    ignis__model *model;
    uint64_t index = 0;
    while ((model = (ignis__model *)ignis__pool_next(&ignis__models, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "model: %s of %d layers, %lld bytes on device %d",
                           ignis__family_of(model->family)->model_type, model->layers, (long long)model->weight_bytes,
                           (int)(model->device - ignis__devices));
        ignis__handle_kill(model);
        ignis__model_drop(call, model);
    }
}

/*  Makes the tensors of all weights, outside of the caller's scope. */
static bool ignis__model_allocate(const char *call, ignis__model *model, ignis__model_part *parts, int count,
                                  const ignis_model_desc *desc)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    int scopes = thread->scope_count, i;
    ignis_array_desc array;
    bool ok = true;
    memset(&array, 0, sizeof array);
    array.device = desc->device;
    array.tag = "model";
    thread->scope_count = 0;
    for (i = 0; ok && i < count; i++) {
        ignis__blocks blocks = ignis__model_describe_blocks(&parts[i], count - i);
        ignis__array *made;
        if (!parts[i].total)
            continue;
        array.dtype = blocks.count ? IGNIS_U8 : ignis__model_part_dtype(model, &parts[i]);
        array.shape.ndim = parts[i].row->columns && !blocks.count ? 2 : 1;
        array.shape.dim[0] = blocks.count ? ignis__blocks_bytes(&blocks, blocks.count) : parts[i].total;
        array.shape.dim[1] = array.shape.ndim == 2 ? parts[i].columns : 0;
        *parts[i].to = ignis__tensor_adopt(call, ignis__array_create(call, &array), desc->requires_grad);
        made = parts[i].to->id ? ignis__borrow_array(call, *parts[i].to) : NULL;
        ok = made != NULL;
        if (ok) {
            made->blocks = blocks;
            made->blocks.rounds_rows = model->f8_activations && parts[i].row->in_layer;
            ignis__array_drop(call, made);
        }
    }
    thread->scope_count = scopes;
    if (ok && model->tied)
        model->head = model->embedding;
    return ok;
}

static bool ignis__model_check(const char *call, const ignis_model_desc *desc)
{
    const char *field =
        desc && !(desc->dtype == IGNIS_DTYPE_DEFAULT || ignis__dtype_is_float(desc->dtype)) ? "dtype"
        : desc && (!(desc->cache_dtype == IGNIS_DTYPE_DEFAULT || ignis__dtype_is_float(desc->cache_dtype)) ||
                   desc->cache_dtype == IGNIS_F64)
            ? "cache_dtype"
            : NULL;
    if (!desc || !desc->path)
        ignis__fail_null(call, desc ? "desc->path" : "desc");
    else if (field)
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "desc->%s is %d, not a dtype that can be used there", field,
                    (int)(*field == 'd' ? desc->dtype : desc->cache_dtype));
    else if ((unsigned)desc->weights >= IGNIS_WEIGHTS_COUNT)
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "desc->weights is %d, no value of ignis_weights", (int)desc->weights);
    else if ((unsigned)desc->cache_type >= IGNIS_CACHE_COUNT)
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "desc->cache_type is %d, no value of ignis_cache_type",
                    (int)desc->cache_type);
    else if (desc->requires_grad && desc->weights > IGNIS_WEIGHTS_NUMBERS)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call,
                    "desc->requires_grad is set with quantised weights, which have no gradients");
    else if (desc->context < 0 || desc->sequences < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->%s is %d, below 0", desc->context < 0 ? "context" : "sequences",
                    desc->context < 0 ? desc->context : desc->sequences);
    else if (desc->parallel.size < 0 || desc->parallel.size > IGNIS__RANKS || desc->parallel.rank < 0 ||
             desc->parallel.rank >= desc->parallel.size + (desc->parallel.size == 0))
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->parallel is rank %d of %d; there are up to %d ranks",
                    desc->parallel.rank, desc->parallel.size, IGNIS__RANKS);
    else if (desc->parallel.size > 1 && desc->requires_grad)
        ignis__fail(
            IGNIS_DIAG_UNSUPPORTED, call,
            "desc->requires_grad is set, and %d ranks share the model: no gradients are computed through shares",
            desc->parallel.size);
    else if (desc->parallel.size > 1 && desc->weights > IGNIS_WEIGHTS_NUMBERS)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "desc->weights is quantised, and %d ranks share the model: shares are numbers",
                    desc->parallel.size);
    else
        return true;
    return false;
}

/*  Divides the sizes of a description by the ranks. False, and reported, if that is not possible. */
static bool ignis__model_divide_sizes(const char *call, ignis__model *model)
{
    const struct {
        const char *name;
        int *size;
    } shared[] = {{"heads", &model->heads},
                  {"heads of keys and values", &model->kv_heads},
                  {"elements of the MLP", &model->inner}};
    int ranks = model->parallel.size, i;
    for (i = 0; i < IGNIS__COUNT(shared); i++) {
        if (*shared[i].size % ranks != 0) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                        "%d %s cannot be shared by %d ranks: a multiple of their number is needed", *shared[i].size,
                        shared[i].name, ranks);
            return false;
        }
    }
    if (ignis__model_head_rows(model) * (ranks - 1) >= model->vocab) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "a vocabulary of %d tokens cannot be shared by %d ranks",
                    model->vocab, ranks);
        return false;
    }
    for (i = 0; i < IGNIS__COUNT(shared); i++)
        *shared[i].size /= ranks;
    return true;
}

/*  Checks that a model is not shared. False, and reported, if this is a rank's share. */
IGNIS__PRIVATE bool ignis__model_check_not_shared(const char *call, const ignis__model *model)
{
    if (model->parallel.size <= 1)
        return true;
    ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                "the model is the share of rank %d of %d: sequences work with it, %s needs a whole one",
                model->parallel.rank, model->parallel.size, call);
    return false;
}

/*  Checks that ranks can share the layers of this family. False, and reported, if not: norms over the width, and
    results that are scaled or normalised before they are added, need sums over the ranks first; experts and recurrent
    layers are not shared. */
static bool ignis__model_check_ranks(const char *call, const ignis__model *model)
{
    const ignis__family *family = ignis__family_of(model->family);
    bool apart = model->wide_norms || model->head_layer_norms || model->residual_scale > 0 || model->experts > 0 ||
                 model->encoder || model->latent > 0 || model->recurrent_layers > 0;
    int i;
    for (i = 0; i < family->row_count; i++)
        apart |= family->rows[i].in_layer && (family->rows[i].member == offsetof(ignis__layer, attn_norm_behind) ||
                                              family->rows[i].member == offsetof(ignis__layer, mlp_norm_behind));
    if (!apart || model->parallel.size <= 1)
        return true;
    return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call, "a model of %s cannot be shared by %d ranks",
                             family->model_type, model->parallel.size);
}

/*  Checks that 8-bit activations have weights to be multiplied with. False, and reported, if not. */
static bool ignis__model_check_activations(const char *call, const ignis__model *model, const ignis__model_part *parts,
                                           int count)
{
    bool some = false;
    int i;
    for (i = 0; i < count; i++)
        some |= parts[i].row->in_layer && parts[i].blocks == IGNIS__GGUF_F8;
    if (!model->f8_activations)
        return true;
    if (!some || model->encoder)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "desc->f8_activations is set, and %s; weights of layers that are F8 are expected, as "
                                 "IGNIS_WEIGHTS_F8 makes them, in a model that generates texts",
                                 some ? "the model is an encoder" : "no layer has F8 weights");
    if (model->dtype != IGNIS_F16 && model->dtype != IGNIS_BF16)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "desc->f8_activations is set, and the model's dtype is %s; f16 or bf16 is expected",
                                 ignis__dtypes[model->dtype].name);
    return true;
}

/*  Checks that the device has the products of 8-bit activations. False, and reported, if not. */
static bool ignis__model_check_device(const char *call, const ignis__model *model)
{
    const ignis_device_info *info = &model->device->info;
    if (!model->f8_activations || info->compute_major == 9)
        return true;
    return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                             "desc->f8_activations is set, and device %d (%s) is of compute capability %d.%d; 9.0 is "
                             "needed",
                             (int)(model->device - ignis__devices), info->name, info->compute_major,
                             info->compute_minor);
}

/*  Opens the files, reads the description, and finds every weight. On failure all is closed. */
IGNIS__COLD static ignis__model_part *ignis__model_read(const char *call, const ignis_model_desc *desc,
                                                        ignis__model_files *files, ignis__model *model, int *count)
{
    ignis__model_part *parts = NULL;
    memset(files, 0, sizeof *files);
    files->call = call;
    files->path = desc->path;
    files->gguf.descriptor = -1;
    model->dtype = desc->dtype;
    model->cache_dtype = desc->cache_dtype;
    model->cache_type = desc->cache_type;
    model->f8_activations = desc->f8_activations;
    model->parallel = desc->parallel;
    model->max_tokens = desc->context;
    model->parallel.size += model->parallel.size == 0;
    model->weights = desc->requires_grad || model->parallel.size > 1 ? IGNIS_WEIGHTS_NUMBERS : desc->weights;
    if ((ignis__path_is_special(desc->path) ? ignis__model_open_folder(files) && ignis__packed_join(files)
                                            : ignis__model_open_gguf(files)) &&
        ignis__model_read_hyperparameters(files, model) && ignis__model_check_ranks(call, model) &&
        ignis__model_divide_sizes(call, model)) {
        if (desc->context > model->context)
            ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->context is %d, above the model's %d", desc->context,
                        model->context);
        else if ((model->layer = (ignis__layer *)ignis__alloc((size_t)model->layers * sizeof *model->layer)) == NULL)
            ignis__fail_host_memory(call, (size_t)model->layers * sizeof *model->layer);
        else if (ignis__model_read_layers(files, model))
            parts = ignis__model_parts_make(call, files, model, count);
    }
    if (parts && (!ignis__model_match_tensors(files, model, parts, *count) ||
                  !ignis__model_check_activations(call, model, parts, *count))) {
        ignis__free(parts);
        parts = NULL;
    }
    model->sequences = desc->sequences ? desc->sequences : 1;
    if (!parts) {
        ignis__free(model->layer);
        ignis__model_files_close(files);
    }
    return parts;
}

/*  Tests unset it, so that layers with a window keep the keys of all tokens. */
IGNIS__PRIVATE bool ignis__model_keeps_windows = true;

/*  Returns how many tokens, of all sequences together, layers with a window have room for: of each sequence the window,
    what a truncation may uncover and the rest of the first grain, and of one sequence a chunk. 0 if no layer has a
    window, or if all tokens are not more. window, layers: the longest window, and their number; may be NULL. */
IGNIS__PRIVATE int64_t ignis__model_window_tokens(const ignis__model *model, int *window, int *layers)
{
    const int64_t grain = IGNIS__WINDOW_GRAIN;
    int64_t tokens;
    int longest = 0, count = 0, i;
    for (i = 0; i < model->layers; i++) {
        longest = model->layer[i].window > longest ? model->layer[i].window : longest;
        count += model->layer[i].window > 0;
    }
    tokens = ignis__ceil_div((int64_t)longest + IGNIS__REWIND + grain, grain) * grain * model->sequences + IGNIS__CHUNK;
    if (count == 0 || tokens >= (int64_t)model->max_tokens * model->sequences || !ignis__model_keeps_windows)
        tokens = count = longest = 0;
    if (window)
        *window = longest;
    if (layers)
        *layers = count;
    return tokens;
}

/*  Returns the elements of a token in the KV cache of a layer. */
IGNIS__PRIVATE int64_t ignis__model_cache_elements(const ignis__model *model)
{
    return model->latent ? (int64_t)model->latent + model->rotary : (int64_t)2 * model->kv_heads * model->head_dim;
}

/*  Returns the bytes of a token in the KV cache of a layer. */
IGNIS__PRIVATE int64_t ignis__model_cache_bytes(const ignis__model *model)
{
    const int64_t elements = ignis__model_cache_elements(model), rows = 2 * (int64_t)model->kv_heads;
    const int type = (int)model->cache_type;
    return type == IGNIS__CACHE_NUMBERS
               ? elements * ignis__dtypes[model->cache_dtype].size
               : rows * (IGNIS__CACHE_ROW(type, model->head_dim) + IGNIS__CACHE_SCALES(type, model->head_dim));
}

/*  Returns the 16-bit elements that hold the rows of a product of a step as integers, with a scale and a sum for each
    block of 32: see kernels/models/gemv_blocks.cu. */
IGNIS__PRIVATE int64_t ignis__blocks_scratch_elements(int64_t columns)
{
    return IGNIS__GEMV_ROWS * ignis__ceil_div(columns, 256) * (256 + 8 * 2 * 2);
}

/*  Returns the bytes of rows that are rounded to e4m3, and of their scales: see kernels/models/gemv_f8.cu. */
IGNIS__PRIVATE int64_t ignis__f8_rows_bytes(int64_t rows, int64_t columns)
{
    return rows * (ignis__ceil_div(columns, 256) * 256 + 4);
}

/*  Returns the elements of all heads of values of a recurrent layer. */
IGNIS__PRIVATE int64_t ignis__delta_width(const ignis__model *model)
{
    return (int64_t)model->delta_v_heads * model->delta_v;
}

/*  Returns the rows of q, k and v of a recurrent layer, which are the channels of its convolution. */
IGNIS__PRIVATE int64_t ignis__delta_channels(const ignis__model *model)
{
    return (int64_t)2 * model->delta_heads * model->delta_k + ignis__delta_width(model);
}

/*  Returns the rows of q, k, v and the gate of a recurrent layer. */
IGNIS__PRIVATE int64_t ignis__delta_rows(const ignis__model *model)
{
    return ignis__delta_channels(model) + ignis__delta_width(model);
}

/*  Returns the elements of the state of a recurrent layer: [heads of v, elements of k, elements of v], then the latest
    inputs of the convolution, the oldest one first. */
IGNIS__PRIVATE int64_t ignis__delta_state(const ignis__model *model)
{
    return ignis__delta_width(model) * model->delta_k + ignis__delta_channels(model) * (model->delta_conv - 1);
}

/*  Returns the inner elements of the widest dense MLP. */
IGNIS__PRIVATE int ignis__model_widest_inner(const ignis__model *model)
{
    return model->shared_inner > model->inner ? model->shared_inner : model->inner;
}

/*  Elements of quantised experts that are converted at a time: a few matrices of large experts, most of which stay in
    the L2 cache until they are multiplied. */
IGNIS__PRIVATE int64_t ignis__expert_elements = (int64_t)1 << 25;

/*  Returns the experts whose weights are converted at a time. */
IGNIS__PRIVATE int ignis__model_experts_at_once(const ignis__model *model)
{
    const int64_t elements = (int64_t)model->hidden * model->expert_inner;
    return (int)ignis__clamp(ignis__expert_elements / ignis__clamp(elements, 1, INT64_MAX), 1, model->experts);
}

/*  Returns the elements of scratch for products with quantised weights: for one weight, or some experts, converted to
    the dtype, or for the rows of a step. 0 if no weight is quantised. */
IGNIS__PRIVATE int64_t ignis__model_scratch_elements(const ignis__model *model)
{
    int64_t heads = (int64_t)model->heads * model->head_dim, own = ignis__model_qkv_rows(model),
            qkv = model->q_rank && heads > own ? heads : own; /* also that of q_b, whose columns are q_rank */
    int64_t inner = ignis__model_widest_inner(model), up = (model->gelu ? 1 : 2) * inner, rows = qkv > up ? qkv : up,
            k = heads > model->hidden ? heads : model->hidden;
    const int64_t delta = ignis__delta_rows(model), v = ignis__delta_width(model),
                  of_k = model->q_rank > k ? model->q_rank : k, widest = v > of_k ? v : of_k;
    const int64_t f8 = ignis__f8_rows_bytes(IGNIS__STEP_ROWS, inner > widest ? inner : widest) / 2;
    int64_t scratch = ignis__blocks_scratch_elements(inner > widest ? inner : widest),
            experts =
                model->experts ? (int64_t)ignis__model_experts_at_once(model) * model->hidden * model->expert_inner : 0;
    scratch = scratch > experts ? scratch : experts;
    if (model->f8_activations && scratch < f8)
        scratch = f8;
    rows = delta > rows ? delta : rows;
    return !model->quantised ? 0 : rows * widest > scratch ? rows * widest : scratch;
}

/*  Tells whether the family has norms of q and k. */
static bool ignis__model_has_head_norms(const ignis__model *model)
{
    const ignis__family *family = ignis__family_of(model->family);
    int i;
    for (i = 0; i < family->row_count; i++)
        if (family->rows[i].in_layer && family->rows[i].member == offsetof(ignis__layer, q_norm))
            return true;
    return false;
}

static void ignis__model_info_write(const ignis__model *model, ignis_model_info *info)
{
    int64_t rows = model->max_tokens < 512 ? model->max_tokens : 512, qkv = ignis__model_qkv_rows(model), windowed;
    const int attentive = model->layers - model->recurrent_layers;
    int layers;
    memset(info, 0, sizeof *info);
    info->family = model->family;
    info->layers = model->layers, info->hidden = model->hidden, info->heads = model->heads * model->parallel.size;
    info->kv_heads = model->kv_heads * model->parallel.size;
    info->rank = model->parallel.rank, info->ranks = model->parallel.size;
    info->head_dim = model->head_dim, info->inner = model->inner * model->parallel.size, info->vocab = model->vocab;
    info->model_context = model->context;
    info->context = model->max_tokens, info->sequences = model->sequences;
    info->dtype = model->dtype, info->cache_dtype = model->cache_dtype;
    info->cache_type = model->cache_type;
    info->tied = model->tied;
    memcpy(info->ends, model->stops, sizeof info->ends);
    info->end_count = model->stop_count;
    info->parameters = model->parameters, info->quantised = model->quantised, info->file_bytes = model->file_bytes,
    info->weight_bytes = model->weight_bytes;
    info->cache_bytes_of_token = attentive * ignis__model_cache_bytes(model);
    info->state_bytes =
        2 * model->recurrent_layers * ignis__delta_state(model) * ignis__dtypes[ignis__wide_dtype(model->dtype)].size;
    info->cache_bytes =
        (int64_t)model->max_tokens * model->sequences; /* counted in tokens; may exceed 64 bits in bytes */
    windowed = ignis__model_window_tokens(model, NULL, &layers);
    info->cache_bytes =
        info->cache_bytes > INT64_MAX / info->cache_bytes_of_token
            ? INT64_MAX
            : info->cache_bytes_of_token / attentive * (info->cache_bytes * (attentive - layers) + windowed * layers);
    if (model->latent) /* q, and keys and values of all heads as wide as q */
        qkv += (int64_t)5 * model->heads * model->head_dim;
    /* a residual, its norm, qkv and its parts (again with norms of heads), gate and up together and apart; rows of
       experts; the last logits */
    info->workspace_bytes = (rows * (3 * (int64_t)model->hidden + (ignis__model_has_head_norms(model) ? 5 : 2) * qkv +
                                     (model->gelu ? 1 : 4) * (int64_t)ignis__model_widest_inner(model) +
                                     model->chosen * (model->hidden + 2 * (int64_t)model->expert_inner)) +
                             model->vocab + ignis__model_scratch_elements(model)) *
                            ignis__dtypes[model->dtype].size;
}

IGNIS__COLD IGNIS_API ignis_status ignis_model_inspect(const ignis_model_desc *desc, ignis_model_info *info)
{
    static const char call[] = "ignis_model_inspect";
    ignis__model_files files;
    ignis__model model;
    ignis__model_part *parts;
    int count = 0;
    memset(&model, 0, sizeof model);
    if (!ignis__model_check(call, desc))
        return ignis__failed();
    if (!info)
        return ignis__fail_null(call, "info");
    parts = ignis__model_read(call, desc, &files, &model, &count);
    if (!parts)
        return ignis__failed();
    ignis__model_info_write(&model, info);
    ignis__free(parts);
    ignis__free(model.layer);
    ignis__model_files_close(&files);
    return IGNIS_OK;
}

/*  Moves a loaded model to a slot of the pool, which makes it visible. */
static bool ignis__model_publish(const char *call, ignis__model *read, ignis_model *handle)
{
    ignis__model *model = (ignis__model *)ignis__pool_take(call, &ignis__models);
    if (!model)
        return false;
    ignis__pool_fill(&ignis__models, model, read);
    ignis__models_close_by(IGNIS__CLOSE_MODELS, ignis__models_close);
    handle->id = ignis__pool_publish(&ignis__models, model);
    return true;
}

IGNIS__COLD IGNIS_API ignis_model ignis_model_open(const ignis_model_desc *desc)
{
    static const char call[] = "ignis_model_open";
    ignis_model handle = IGNIS__ZERO;
    ignis__model_files files;
    ignis__model_part *parts = NULL;
    ignis__model model;
    ignis__array *first;
    int count = 0;
    bool ok;
    memset(&model, 0, sizeof model);
    if (!ignis__models_enter(call) || ignis__capture_refuses(call) || !ignis__model_check(call, desc))
        return handle;
    if (desc->parallel.size > 1 && (!desc->parallel.sum_fn || !desc->parallel.check_fn)) {
        ignis__fail_null(call, desc->parallel.sum_fn ? "desc->parallel.check_fn" : "desc->parallel.sum_fn");
        return handle;
    }
    parts = ignis__model_read(call, desc, &files, &model, &count);
    if (!parts)
        return handle;
    model.path = ignis__copy_string(desc->path);
    ok = model.path != NULL;
    if (!ok)
        ignis__fail_host_memory(call, strlen(desc->path) + 1);
    ok = ok && ignis__model_allocate(call, &model, parts, count, desc);
    first = ok ? ignis__borrow_array(call, model.embedding) : NULL;
    if (first) {
        model.device = first->storage->device;
        ignis__array_drop(call, first);
        ok = ignis__model_check_device(call, &model) && ignis__model_load(&files, &model, parts, count, desc) &&
             ignis__model_publish(call, &model, &handle);
    } else {
        ok = false;
    }
    if (!ok)
        ignis__model_clear(call, &model);
    ignis__free(parts);
    ignis__model_files_close(&files);
    return handle;
}

IGNIS__COLD IGNIS_API ignis_status ignis_model_free(ignis_model handle)
{
    static const char call[] = "ignis_model_free";
    const uint64_t failures = ignis__failures();
    ignis__model *model;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    model = ignis__model_hold(call, handle);
    if (!model)
        return ignis__failed();
    live = ignis__handle_kill(model);
    ignis__model_drop(call, model);
    return live ? ignis__ended(failures, true)
                : ignis__fail(IGNIS_DIAG_MODEL_FREED, call, "another thread has freed the model");
}

IGNIS__COLD IGNIS_API ignis_status ignis_model_query(ignis_model handle, ignis_model_info *info)
{
    static const char call[] = "ignis_model_query";
    ignis__model *model = ignis__model_hold(call, handle);
    if (!model)
        return ignis__failed();
    if (info)
        ignis__model_info_write(model, info);
    ignis__model_drop(call, model);
    return info ? IGNIS_OK : ignis__fail_null(call, "info");
}
