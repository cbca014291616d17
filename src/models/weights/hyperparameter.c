/*  models/weights/hyperparameter.c - reads the description of a model: sizes, special tokens, frequencies

    Every required number is checked against its bounds here.
    May use: families.c, config_check.c, rope_scaling.c, tokenizer_gguf.c (texts of tokens). Locks: none. */

#include "room.h"

/*  Adds a token that ends a text. Ignores an id that the model does not have. */
static void ignis__model_add_end_token(ignis__model *model, double id)
{
    int i;
    if (!(id >= 0 && id < model->vocab))
        return;
    for (i = 0; i < model->stop_count && model->stops[i] != (int32_t)id;)
        i++;
    if (i == model->stop_count && i < IGNIS__MODEL_STOPS)
        model->stops[model->stop_count++] = (int32_t)id;
}

/*  Adds the tokens of a GGUF file that end a text: those of its keys, and those known by their texts, as in
    llama.cpp. Writers of such files name one token, but models end their turns with others. */
static bool ignis__model_read_special_tokens_gguf(ignis__model_files *files, ignis__model *model)
{
    static const char *const names[] = {"bos", "eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"};
    ignis__gguf_items texts = IGNIS__ZERO, types = IGNIS__ZERO;
    unsigned found = 0, bits[2];
    int32_t end = -1;
    char name[64];
    size_t size;
    int i;
    for (i = 0; i < IGNIS__COUNT(names); i++) {
        int64_t id = -1;
        snprintf(name, sizeof name, "tokenizer.ggml.%s_token_id", names[i]);
        if (ignis__gguf_find_int(&files->gguf, name, &id) == IGNIS__GGUF_BAD)
            return false;
        if (i > 0)
            ignis__model_add_end_token(model, (double)id);
        else if (id >= 0 && id < model->vocab)
            model->bos = (int32_t)id;
    }
    if (ignis__gguf_find_array(&files->gguf, "tokenizer.ggml.tokens", IGNIS__GGUF_STRING, &texts) == IGNIS__GGUF_BAD ||
        ignis__gguf_find_array(&files->gguf, "tokenizer.ggml.token_type", IGNIS__GGUF_I64, &types) == IGNIS__GGUF_BAD)
        return false;
    for (i = 0; texts.left > 0 && i < model->vocab; i++) {
        int64_t type = types.left > 0 ? ignis__gguf_next_int(&types) : (int64_t)IGNIS__TYPE_NORMAL;
        int which = ignis__tokenizer_find_end_text(ignis__gguf_next_text(&texts, &size), (int)type);
        if (which < 0)
            continue;
        found |= which < IGNIS__END_OTHERS ? 1u << which : 0;
        end = which == IGNIS__END_END ? i : end;
        ignis__model_add_end_token(model, i);
    }
    /* if messages end with other tokens, <|end|> is inside of an answer */
    bits[0] = 1u << IGNIS__END_RETURN | 1u << IGNIS__END_FLUSH;
    bits[1] = 1u << IGNIS__END_CALL | 1u << IGNIS__END_CALLS;
    for (i = 0; found & bits[0] && found & bits[1] && i < model->stop_count; i++)
        if (model->stops[i] == end)
            model->stops[i--] = model->stops[--model->stop_count];
    return true;
}

/*  Reads the tokens that begin and end a text. Missing entries and invalid ids are ignored. */
static bool ignis__model_read_special_tokens(ignis__model_files *files, ignis__model *model)
{
    static const char *const names[] = {"eos_token_id", "eos_token_id[]"};
    const ignis__config_item *item;
    int i, k;
    model->bos = -1;
    if (files->is_gguf)
        return ignis__model_read_special_tokens_gguf(files, model);
    item = ignis__config_find(&files->config, "bos_token_id");
    if (item && item->kind == 'n' && item->number >= 0 && item->number < model->vocab)
        model->bos = (int32_t)item->number;
    for (k = 0; k < 2 && !model->stop_count; k++) { /* generation_config.json comes first */
        const ignis__config *config = k == 0 ? &files->generation : &files->config;
        for (i = 0; i < config->count; i++) {
            item = &config->items[i];
            if ((strcmp(item->name, names[0]) == 0 || strcmp(item->name, names[1]) == 0) && item->kind == 'n')
                ignis__model_add_end_token(model, item->number);
        }
    }
    return true;
}

/*  Reads the sizes of latent attention. GGUF files of older converters have the sizes of heads under the names for the
    cached row. False, and reported, if they contradict each other. */
static bool ignis__model_read_latent(ignis__model_files *files, ignis__model *model, const double *numbers)
{
    const int cached = (int)numbers[IGNIS__NUMBER_CACHED_KEY], values = (int)numbers[IGNIS__NUMBER_CACHED_VALUE],
              plain = (int)numbers[IGNIS__NUMBER_PLAIN_DIM];
    model->heads = (int)numbers[IGNIS__NUMBER_HEADS];
    model->kv_heads = 1;
    model->latent = (int)numbers[IGNIS__NUMBER_LATENT];
    model->q_rank = (int)numbers[IGNIS__NUMBER_Q_RANK];
    model->rotary = (int)numbers[IGNIS__NUMBER_ROTARY];
    model->head_dim = numbers[IGNIS__NUMBER_HEAD_DIM] > 0 ? (int)numbers[IGNIS__NUMBER_HEAD_DIM]
                      : plain                             ? plain + model->rotary
                                                          : cached;
    model->value_dim = numbers[IGNIS__NUMBER_VALUE_DIM] > 0 ? (int)numbers[IGNIS__NUMBER_VALUE_DIM] : values;
    if (model->rotary % 2 != 0 || model->head_dim <= model->rotary || model->value_dim < 1 ||
        (!files->is_gguf && model->head_dim != plain + model->rotary))
        return ignis__fail_false(IGNIS_DIAG_MODEL_CONFIG, files->call,
                                 "the description of '%s' contradicts itself: %d elements of heads of %d rotate, %d do "
                                 "not, and heads of values have %d",
                                 files->path, model->rotary, model->head_dim,
                                 files->is_gguf ? model->head_dim - model->rotary : plain, model->value_dim);
    if (numbers[IGNIS__NUMBER_HEAD_DIM] > 0 && cached && cached != model->latent + model->rotary)
        return ignis__fail_false(IGNIS_DIAG_MODEL_CONFIG, files->call,
                                 "the description of '%s' contradicts itself: keys of the cache have %d elements, "
                                 "latents %d, and %d rotate",
                                 files->path, cached, model->latent, model->rotary);
    if (model->head_dim > 2 * IGNIS__MODEL_HALF || model->value_dim > model->head_dim)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, files->call,
                                 "heads of '%s' have %d elements, those of values %d; up to %d, and no more of values "
                                 "than of keys, are supported",
                                 files->path, model->head_dim, model->value_dim, 2 * IGNIS__MODEL_HALF);
    return true;
}

/*  Computes the sizes of heads from the numbers of the description. False, and reported, if they contradict each
    other. */
static bool ignis__model_read_heads(ignis__model_files *files, ignis__model *model, const double *numbers)
{
    double share;
    if (numbers[IGNIS__NUMBER_LATENT] > 0)
        return ignis__model_read_latent(files, model, numbers);
    model->heads = (int)numbers[IGNIS__NUMBER_HEADS];
    model->kv_heads = numbers[IGNIS__NUMBER_KV_HEADS] > 0 ? (int)numbers[IGNIS__NUMBER_KV_HEADS] : model->heads;
    model->head_dim = (int)numbers[IGNIS__NUMBER_HEAD_DIM];
    if (!model->head_dim && model->hidden % model->heads == 0)
        model->head_dim = model->hidden / model->heads;
    if (!model->head_dim) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "the description of '%s' contradicts itself: %d heads do not divide %d numbers a token",
                    files->path, model->heads, model->hidden);
        return false;
    }
    if (model->heads % model->kv_heads != 0) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "the description of '%s' contradicts itself: %d heads are no multiple of %d of keys", files->path,
                    model->heads, model->kv_heads);
        return false;
    }
    if (model->head_dim > 2 * IGNIS__MODEL_HALF || (model->rope && model->head_dim % 2 != 0)) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call,
                    "heads of '%s' have %d numbers; an even number up to %d is needed", files->path, model->head_dim,
                    2 * IGNIS__MODEL_HALF);
        return false;
    }
    model->rotary = model->value_dim = model->head_dim;
    share = numbers[IGNIS__NUMBER_ROTARY_SHARE];
    if (share > 0 && !files->is_gguf &&
        ignis__model_read_number(files, "rope_parameters.partial_rotary_factor", NULL, &share) == IGNIS__GGUF_BAD)
        return false;
    if (share > 0 && !files->is_gguf) /* rounded down, as in transformers */
        model->rotary = share < 65536 ? (int)(model->head_dim * share) : INT32_MAX;
    if (numbers[IGNIS__NUMBER_ROTARY] > 0)
        model->rotary = (int)numbers[IGNIS__NUMBER_ROTARY];
    if (model->rope && (model->rotary < 2 || model->rotary > model->head_dim || model->rotary % 2 != 0)) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "the description of '%s' rotates %d elements of heads of %d; an even number from 2 up to that is "
                    "needed",
                    files->path, model->rotary, model->head_dim);
        return false;
    }
    return true;
}

/*  Returns the name of the head in a folder. */
static const char *ignis__model_head_name(ignis_model_family number)
{
    const ignis__family *family = ignis__family_of((ignis_model_family)number);
    int i;
    for (i = 0; i < family->row_count; i++)
        if (family->rows[i].how & IGNIS__MODEL_HEAD)
            return family->rows[i].hf;
    return "";
}

/*  Reads the number of tokens, and whether the head is the embedding. */
static bool ignis__model_read_vocabulary(ignis__model_files *files, ignis__model *model)
{
    const ignis__config_item *tied, *vocab;
    if (files->is_gguf) { /* the table has the number of tokens */
        const ignis__model_source *table = ignis__model_source_find(files, "token_embd.weight");
        model->vocab = table && table->shape.ndim == 2 && table->shape.dim[0] > 0 && table->shape.dim[0] < INT32_MAX
                           ? (int)table->shape.dim[0]
                           : 1;
        model->tied = !ignis__model_source_find(files, "output.weight");
        return true;
    }
    vocab = ignis__config_find(&files->config, "vocab_size");
    if (!vocab || vocab->kind != 'n' || !(vocab->number >= 1 && vocab->number < INT32_MAX) ||
        vocab->number != (double)(int)vocab->number) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "the description of '%s' has %s vocab_size; a whole number from 1 to %d is needed", files->path,
                    vocab ? "a bad" : "no", INT32_MAX - 1);
        return false;
    }
    model->vocab = (int)vocab->number;
    tied = ignis__config_find(&files->config, "tie_word_embeddings");
    model->tied = tied && tied->kind == 'b' ? tied->number != 0
                                            : !ignis__model_source_find(files, ignis__model_head_name(files->family));
    return true;
}

/*  Returns the rows of a tensor of the files; 0 if they do not have it, or if it has another number of dimensions. */
static int ignis__model_rows_of(const ignis__model_files *files, const ignis__model *model, size_t member)
{
    const ignis__family *family = ignis__family_of(model->family);
    const ignis__model_source *source = NULL;
    int i;
    for (i = 0; i < family->row_count && !source; i++)
        if (!family->rows[i].in_layer && family->rows[i].member == member &&
            (files->is_gguf ? family->rows[i].gguf : family->rows[i].hf))
            source =
                ignis__model_source_find(files, ignis__model_weight_name(files, model, &family->rows[i], -1, 0).text);
    return source && source->shape.ndim == 2 && source->shape.dim[0] < INT32_MAX ? (int)source->shape.dim[0] : 0;
}

/*  Reads how a folder of sentence-transformers pools hidden states. */
static bool ignis__model_read_pooling(ignis__model_files *files, ignis__model *model)
{
    static const struct {
        const char *name;
        int pooling;
    } modes[] = {{"pooling_mode_cls_token", IGNIS_POOLING_FIRST}, {"pooling_mode_mean_tokens", IGNIS_POOLING_MEAN},
                 {"pooling_mode_lasttoken", IGNIS_POOLING_LAST},  {"pooling_mode_max_tokens", -1},
                 {"pooling_mode_mean_sqrt_len_tokens", -1},       {"pooling_mode_weightedmean_tokens", -1}};
    char *path = ignis__model_path(files->call, files->path, "1_Pooling/config.json"),
         *dense = ignis__model_path(files->call, files->path, "2_Dense/config.json");
    ignis__config config;
    int64_t size, time;
    bool ok;
    int i;
    memset(&config, 0, sizeof config);
    ok = path && dense && ignis__config_open(files->call, path, false, &config);
    for (i = 0; ok && i < IGNIS__COUNT(modes); i++) {
        const ignis__config_item *item = ignis__config_find(&config, modes[i].name);
        if (item && item->kind == 'b' && item->number != 0) /* two at once are unknown, too */
            model->pooling = model->pooling ? -1 : modes[i].pooling;
    }
    if (ok && ignis__file_info(dense, &size, &time))
        model->pooling = -1;
    ignis__config_close(&config);
    ignis__free(path);
    ignis__free(dense);
    return ok;
}

/*  Reads what encoders have beside layers, and how hidden states become one vector. */
static bool ignis__model_read_encoder(ignis__model_files *files, ignis__model *model, const double *numbers)
{
    static const int poolings[] = {0, IGNIS_POOLING_MEAN, IGNIS_POOLING_FIRST, IGNIS_POOLING_LAST, IGNIS_POOLING_FIRST};
    const unsigned features = ignis__family_of(model->family)->features;
    const ignis__config_item *pad = ignis__config_find(&files->config, "pad_token_id");
    const double pooling = numbers[IGNIS__NUMBER_POOLING];
    files->bare = !files->is_gguf && !ignis__model_source_find(files, "model.embed_tokens.weight") &&
                  ignis__model_source_find(files, "embed_tokens.weight");
    model->encoder = features & IGNIS__ENCODER;
    model->prefixed = !files->is_gguf && *ignis__model_prefix(files, model);
    model->type_count = files->is_gguf ? ignis__model_rows_of(files, model, offsetof(ignis__model, types))
                                       : (int)numbers[IGNIS__NUMBER_TYPES];
    model->class_count = ignis__model_rows_of(files, model, offsetof(ignis__model, classes));
    if (features & IGNIS__LATE_POSITIONS) { /* max_position_embeddings counts the rows before the first one, too */
        model->first_position = 2;
        if (pad && pad->kind == 'n' && pad->number >= 0 && pad->number < model->context)
            model->first_position = (int)pad->number + 1;
        model->context -= model->first_position;
        if (model->context < 1)
            return ignis__fail_false(IGNIS_DIAG_MODEL_CONFIG, files->call,
                                     "the description of '%s' has max_position_embeddings %d, and its first position "
                                     "is row %d",
                                     files->path, model->context + model->first_position, model->first_position);
    }
    if (!files->is_gguf)
        return ignis__model_read_pooling(files, model);
    model->pooling = pooling >= 0 && pooling < IGNIS__COUNT(poolings) ? poolings[(int)pooling] : -1;
    return true;
}

/*  Returns a scale that a model is multiplied by; 0 if it is 1, which changes nothing. */
static double ignis__model_scale(double scale) { return scale == 1 ? 0 : scale; }

/*  Sets the features that most families lack. */
static void ignis__model_set_features(const ignis__model_files *files, ignis__model *model, const double *numbers)
{
    const unsigned features = ignis__family_of(model->family)->features;
    double scale = numbers[IGNIS__NUMBER_LOGIT_SCALE];
    model->rms = !(features & IGNIS__LAYER_NORMS);
    model->rope = !(features & IGNIS__POSITIONS);
    model->gelu = features & IGNIS__PLAIN_GELU;
    model->gelu_gate = features & IGNIS__GELU_GATE;
    model->exact_gelu = features & IGNIS__EXACT_GELU;
    model->wide_norms = features & IGNIS__WIDE_NORMS;
    model->norm_offset = features & IGNIS__ONE_PLUS ? 1 : 0;
    model->embedding_scale =
        ignis__model_scale(features & IGNIS__SQUARE_ROOT_SCALE ? ignis__square_root(model->hidden)
                                                               : numbers[IGNIS__NUMBER_EMBEDDING_SCALE]);
    model->residual_scale =
        ignis__model_scale(numbers[IGNIS__NUMBER_RESIDUAL_SCALE] /
                           (features & IGNIS__DEPTH_SCALE && !files->is_gguf ? ignis__square_root(model->layers) : 1));
    if (numbers[IGNIS__NUMBER_LOGIT_WIDTH] > 0)
        scale = model->hidden / numbers[IGNIS__NUMBER_LOGIT_WIDTH];
    model->logit_scale = ignis__model_scale(scale > 0 && features & IGNIS__LOGITS_DIVIDED ? 1 / scale : scale);
    model->softcap = numbers[IGNIS__NUMBER_SOFTCAP];
    model->logit_softcap = numbers[IGNIS__NUMBER_LOGIT_SOFTCAP];
}

/*  Returns the item'th entry of a list of config.json; NULL if the list is shorter. */
static const ignis__config_item *ignis__model_list_item(const ignis__config *config, const char *name, int item)
{
    int i;
    for (i = 0; i < config->count; i++)
        if (strcmp(config->items[i].name, name) == 0 && item-- == 0)
            return &config->items[i];
    return NULL;
}

/*  Sets the scale of a layer's scores. The factor of scaled frequencies is for what they rotate: in layers that rotate
    otherwise it is 1, and elements that do not rotate are divided by it before the scores are scaled. Latent attention
    multiplies the rotated elements themselves by the factor. */
static void ignis__layer_set_scale(const ignis__model *model, ignis__layer *layer)
{
    const double factor = layer->rope == IGNIS__ROPE_COMMON && !model->latent ? model->attention_factor : 1;
    layer->attention_scale = model->attention_scale * factor * factor;
    layer->rest_scale = model->rotary < model->head_dim && factor != 1 ? 1 / factor : 0;
}

/*  Sets which layers have a window or a state, and how each layer rotates: by the lists of config.json, or else by
    periods. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__model_read_layers(ignis__model_files *files, ignis__model *model)
{
    static const char *const lists[] = {"layer_types[]", "no_rope_layers[]"};
    const unsigned features = ignis__family_of(model->family)->features;
    double numbers[IGNIS__NUMBERS];
    int i, period, rope_period, window, attention_period;
    if (!ignis__model_read_numbers(files, numbers))
        return false;
    window = (int)numbers[IGNIS__NUMBER_WINDOW];
    period = (int)numbers[IGNIS__NUMBER_WINDOW_PERIOD];
    rope_period = (int)numbers[IGNIS__NUMBER_ROPE_PERIOD];
    attention_period = (int)numbers[IGNIS__NUMBER_ATTENTION_PERIOD];
    for (i = 0; i < 2; i++) {
        const bool exists = ignis__model_list_item(&files->config, lists[i], 0) != NULL;
        if (!exists || (ignis__model_list_item(&files->config, lists[i], model->layers - 1) &&
                        !ignis__model_list_item(&files->config, lists[i], model->layers)))
            continue;
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "config.json of '%s' has a list %s of another length than its %d layers", files->path, lists[i],
                    model->layers);
        return false;
    }
    for (i = 0; i < model->layers; i++) {
        ignis__layer *layer = &model->layer[i];
        const ignis__config_item *type = ignis__model_list_item(&files->config, lists[0], i),
                                 *turns = ignis__model_list_item(&files->config, lists[1], i);
        bool windowed = type && type->kind == 't' ? strcmp(type->text, "sliding_attention") == 0
                                                  : window > 0 && (period == 0 || (i + 1) % period != 0);
        bool rotates =
            turns && turns->kind == 'n' ? turns->number != 0 : rope_period == 0 || (i + 1) % rope_period != 0;
        if (windowed && window == 0) {
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                        "config.json of '%s' says that layer %d has a window, and does not say of how many tokens",
                        files->path, i);
            return false;
        }
        layer->window = windowed && window < model->context ? window : 0; /* a longer one cuts nothing */
        layer->rope = !rotates || (features & IGNIS__ONLY_WINDOWS_ROTATE && !windowed) ? IGNIS__ROPE_NONE
                      : features & IGNIS__LOCAL_ROPE && windowed                       ? IGNIS__ROPE_LOCAL
                                                                                       : IGNIS__ROPE_COMMON;
        layer->recurrent = type && type->kind == 't' ? strcmp(type->text, "linear_attention") == 0
                                                     : attention_period > 0 && (i + 1) % attention_period != 0;
        model->recurrent_layers += layer->recurrent;
        ignis__layer_set_scale(model, layer);
    }
    if (model->recurrent_layers == model->layers)
        return ignis__fail_false(IGNIS_DIAG_MODEL_CONFIG, files->call,
                                 "the description of '%s' has no layer with attention: all of its %d layers are "
                                 "recurrent",
                                 files->path, model->layers);
    return true;
}

/*  Sets the scale of the scores of attention, without the factor of scaled frequencies. */
static void ignis__model_set_attention_scale(const ignis__model_files *files, ignis__model *model,
                                             const double *numbers)
{
    double scalar = numbers[IGNIS__NUMBER_QUERY_SCALAR];
    /* GGUF files of Gemma lack it. The largest models differ from the others; llama.cpp knows them by their depth */
    if (files->is_gguf && model->family == IGNIS_MODEL_GEMMA2 && model->layers == 46)
        scalar = (double)model->hidden / model->heads;
    if (files->is_gguf && model->family == IGNIS_MODEL_GEMMA3 && model->layers == 62)
        scalar = (double)model->hidden / model->heads;
    model->attention_scale = numbers[IGNIS__NUMBER_ATTENTION_SCALE] > 0
                                 ? numbers[IGNIS__NUMBER_ATTENTION_SCALE]
                                 : 1 / ignis__square_root(scalar > 0 ? scalar : model->head_dim);
    if (files->is_gguf && numbers[IGNIS__NUMBER_YARN_LOG] > 0 && model->factor > 1)
        model->softmax_factor = 1 + numbers[IGNIS__NUMBER_YARN_LOG] * ignis__ln(model->factor);
    if (model->softmax_factor > 0)
        model->attention_scale *= model->softmax_factor * model->softmax_factor;
}

/*  Tells whether the experts of a layer are separate tensors in the files. */
static bool ignis__model_experts_apart(const ignis__model_files *files)
{
    const ignis__family *family = ignis__family_of(files->family);
    bool apart = false;
    int i;
    for (i = 0; i < family->row_count; i++) {
        const ignis__model_row *row = &family->rows[i];
        apart |= (row->how & (IGNIS__MODEL_EXPERTS | IGNIS__MODEL_TOGETHER)) == IGNIS__MODEL_EXPERTS;
        if (row->how & IGNIS__MODEL_EXPERTS && row->how & IGNIS__MODEL_FUSED && row->hf &&
            ignis__model_source_find(files, ignis__model_name_write("", row->hf, 0).text))
            return false;
    }
    return apart && !files->is_gguf;
}

/*  Reads how many layers the files have, those without experts, and those after the model's own. False, and reported,
    if they contradict each other. */
static bool ignis__model_read_depth(ignis__model_files *files, ignis__model *model, const double *numbers)
{
    const double all = numbers[IGNIS__NUMBER_LAYERS], more = numbers[IGNIS__NUMBER_MORE_LAYERS],
                 own = files->is_gguf ? all - more : all, dense = numbers[IGNIS__NUMBER_DENSE_LAYERS];
    if (!(own >= 1 && more <= 65536 && dense <= own) || more != (double)(int)more || dense != (double)(int)dense)
        return ignis__fail_false(IGNIS_DIAG_MODEL_CONFIG, files->call,
                                 "the description of '%s' contradicts itself: of %g layers, %g have no experts, and %g "
                                 "are after the others",
                                 files->path, all, dense, more);
    model->layers = (int)own;
    model->more_layers = (int)more;
    model->dense_layers = (int)dense;
    return true;
}

/*  Reads how shares of experts are computed. False, and reported, if that is not possible. */
static bool ignis__model_read_shares(ignis__model_files *files, ignis__model *model, const double *numbers)
{
    const unsigned features = ignis__family_of(model->family)->features;
    const ignis__config_item *item = ignis__config_find(&files->config, "norm_topk_prob");
    int size;
    char name[96];
    model->sigmoid = features & IGNIS__SIGMOID;
    model->normalises = features & (files->is_gguf ? IGNIS__NORMALISED | IGNIS__GGUF_NORMALISED : IGNIS__NORMALISED) ||
                        (item ? item->kind == 'b' && item->number != 0 : model->sigmoid);
    snprintf(name, sizeof name, "%s.expert_weights_norm", ignis__family_of(model->family)->architecture);
    if (files->is_gguf && ignis__gguf_find_bool(&files->gguf, name, &model->normalises) == IGNIS__GGUF_BAD)
        return false;
    model->routed_scale = numbers[IGNIS__NUMBER_ROUTED_SCALE];
    item = ignis__config_find(&files->config, "topk_method");
    if (item && item->kind == 't' && strcmp(item->text, "greedy") == 0) /* whatever the numbers of groups are */
        return true;
    model->groups = (int)numbers[IGNIS__NUMBER_GROUPS];
    model->used_groups = (int)numbers[IGNIS__NUMBER_USED_GROUPS];
    if (!model->groups)
        return true;
    size = model->experts / model->groups;
    if (model->experts % model->groups == 0 && model->used_groups <= model->groups &&
        (size > 1 || model->used_groups == model->groups) && model->chosen <= model->used_groups * size)
        return true;
    return ignis__fail_false(IGNIS_DIAG_MODEL_CONFIG, files->call,
                             "the description of '%s' contradicts itself: %d experts are in %d groups, and a token has "
                             "%d experts of %d groups",
                             files->path, model->experts, model->groups, model->chosen, model->used_groups);
}

/*  Reads the sizes of a mixture of experts. False, and reported, if they contradict each other. */
static bool ignis__model_read_experts(ignis__model_files *files, ignis__model *model, const double *numbers)
{
    double shared = numbers[IGNIS__NUMBER_SHARED_INNER];
    model->expert_limit = numbers[IGNIS__NUMBER_EXPERT_LIMIT];
    model->experts = (int)numbers[IGNIS__NUMBER_EXPERTS];
    model->chosen = (int)numbers[IGNIS__NUMBER_CHOSEN];
    if (!model->experts)
        return true;
    model->expert_inner =
        numbers[IGNIS__NUMBER_EXPERT_INNER] > 0 ? (int)numbers[IGNIS__NUMBER_EXPERT_INNER] : model->inner;
    shared = shared > 0 ? shared : numbers[IGNIS__NUMBER_SHARED_COUNT] * model->expert_inner;
    if (shared > 1 << 26)
        return ignis__fail_false(IGNIS_DIAG_MODEL_CONFIG, files->call,
                                 "the description of '%s' has an expert for all tokens of %g inner elements, above %d",
                                 files->path, shared, 1 << 26);
    if (model->dense_layers > 0)
        model->shared_inner = (int)shared;
    else
        model->inner = shared > 0 ? (int)shared : model->expert_inner;
    if (model->chosen > model->experts)
        return ignis__fail_false(IGNIS_DIAG_MODEL_CONFIG, files->call,
                                 "the description of '%s' contradicts itself: a token has %d of %d experts",
                                 files->path, model->chosen, model->experts);
    if (ignis__model_experts_apart(files) &&
        (int64_t)(model->layers - model->dense_layers) * model->experts > files->source_count)
        return ignis__fail_false(IGNIS_DIAG_MODEL_CONFIG, files->call,
                                 "the description of '%s' has %d layers of %d experts, but there are %lld tensors",
                                 files->path, model->layers - model->dense_layers, model->experts,
                                 (long long)files->source_count);
    return ignis__model_read_shares(files, model, numbers);
}

/*  Reads the sizes of recurrent layers. False, and reported, if they contradict each other. */
static bool ignis__model_read_recurrent(ignis__model_files *files, ignis__model *model, const double *numbers)
{
    const unsigned features = ignis__family_of(model->family)->features;
    const double width = numbers[IGNIS__NUMBER_DELTA_WIDTH];
    double rows, state;
    if (!(features & IGNIS__RECURRENT))
        return true;
    model->delta_heads = (int)numbers[IGNIS__NUMBER_DELTA_HEADS];
    model->delta_v_heads = (int)numbers[IGNIS__NUMBER_DELTA_V_HEADS];
    model->delta_k = (int)numbers[IGNIS__NUMBER_DELTA_K];
    model->delta_v = (int)(files->is_gguf ? width / model->delta_v_heads : numbers[IGNIS__NUMBER_DELTA_V]);
    model->delta_conv = (int)numbers[IGNIS__NUMBER_DELTA_CONV];
    model->tiled = files->is_gguf && features & IGNIS__GGUF_TILED;
    rows = 2.0 * model->delta_heads * model->delta_k + 2.0 * model->delta_v_heads * model->delta_v;
    if (model->delta_v_heads % model->delta_heads != 0 ||
        (files->is_gguf && (double)model->delta_v * model->delta_v_heads != width))
        return ignis__fail_false(IGNIS_DIAG_MODEL_CONFIG, files->call,
                                 "the description of '%s' contradicts itself: recurrent layers have %d heads of values "
                                 "of %g elements together, and %d heads of keys",
                                 files->path, model->delta_v_heads,
                                 files->is_gguf ? width : (double)model->delta_v_heads * model->delta_v,
                                 model->delta_heads);
    state = (double)model->delta_v_heads * model->delta_v * model->delta_k;
    if (rows > 1 << 26 || state > 1 << 30)
        return ignis__fail_false(IGNIS_DIAG_MODEL_CONFIG, files->call,
                                 "the description of '%s' has recurrent layers of %g rows and states of %g elements; "
                                 "up to %d and %d are possible",
                                 files->path, rows, state, 1 << 26, 1 << 30);
    return true;
}

/*  Sets the family of a GGUF file whose architecture has two: a Llama with experts is Mixtral, a DeepSeek whose shares
    are sigmoids (2) is V3. */
static bool ignis__model_find_family(ignis__model_files *files)
{
    const bool llama = files->family == IGNIS_MODEL_LLAMA;
    double number = 0;
    if (!files->is_gguf || (!llama && files->family != IGNIS_MODEL_DEEPSEEK_V2))
        return true;
    if (ignis__model_read_number(files, NULL, llama ? "expert_count" : "expert_gating_func", &number) ==
        IGNIS__GGUF_BAD)
        return false;
    if (llama && number > 0)
        files->family = IGNIS_MODEL_MIXTRAL;
    if (!llama && number == 2)
        files->family = IGNIS_MODEL_DEEPSEEK_V3;
    return true;
}

/*  Reads true or false from config.json. False, and reported, if it is neither. */
static bool ignis__model_read_choice(const ignis__model_files *files, const char *name, bool *choice)
{
    const ignis__config_item *item = ignis__config_find(&files->config, name);
    if (item && item->kind != 'b' && item->kind != '0')
        return ignis__fail_false(IGNIS_DIAG_MODEL_CONFIG, files->call, "config.json of '%s': %s is not true or false",
                                 files->path, name);
    *choice = item && item->kind == 'b' ? item->number != 0 : *choice;
    return true;
}

/*  Reads the heads of keys of Falcon, and whether attention and MLP have norms of their own. New decoders say the heads
    as a number, others have one or as many as of queries. */
static bool ignis__model_read_falcon(ignis__model_files *files, ignis__model *model, double *numbers)
{
    const double norms = numbers[IGNIS__NUMBER_NORMS];
    bool is_new = false, has_one = true;
    if (!(ignis__family_of(files->family)->features & IGNIS__FALCON_CHOICES))
        return true;
    if (files->is_gguf) {
        model->two_norms = ignis__model_source_find(files, "blk.0.attn_norm_2.weight") != NULL;
        return true;
    }
    if (!ignis__model_read_choice(files, "new_decoder_architecture", &is_new) ||
        !ignis__model_read_choice(files, "multi_query", &has_one))
        return false;
    if (!is_new && norms == 2)
        return ignis__fail_false(IGNIS_DIAG_MODEL_CONFIG, files->call,
                                 "the description of '%s' contradicts itself: num_ln_in_parallel_attn is 2, and "
                                 "new_decoder_architecture is false",
                                 files->path);
    model->two_norms = is_new && norms != 1;
    if (!is_new)
        numbers[IGNIS__NUMBER_KV_HEADS] = has_one ? 1 : numbers[IGNIS__NUMBER_HEADS];
    return true;
}

/*  Reads what only some models of a family have: parallel blocks, and layer norms of heads. In GGUF files of StableLM
    the tensors say it: converters write use_parallel_residual as true if config.json lacks it, which means false. */
static bool ignis__model_read_choices(ignis__model_files *files, ignis__model *model)
{
    const unsigned features = ignis__family_of(model->family)->features;
    bool parallel = features & IGNIS__PARALLEL_BLOCKS, normed = false;
    char name[64];
    if (files->is_gguf) {
        snprintf(name, sizeof name, "%s.use_parallel_residual", ignis__family_of(model->family)->architecture);
        if (parallel && ignis__gguf_find_bool(&files->gguf, name, &parallel) == IGNIS__GGUF_BAD)
            return false;
        if (features & IGNIS__PARALLEL_CHOICE && !(features & IGNIS__PARALLEL_BLOCKS))
            parallel = !ignis__model_source_find(files, "blk.0.ffn_norm.weight");
        normed = ignis__model_source_find(files, "blk.0.attn_q_norm.weight") != NULL;
    } else if (!ignis__model_read_choice(files, "use_qk_norm", &normed) ||
               !ignis__model_read_choice(files, "qk_layernorm", &normed) ||
               (features & IGNIS__PARALLEL_CHOICE &&
                !ignis__model_read_choice(files, "use_parallel_residual", &parallel))) {
        return false;
    }
    model->parallel_blocks = parallel;
    model->head_layer_norms = normed && features & IGNIS__HEAD_LAYER_NORMS;
    return true;
}

/*  Reads the description. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__model_read_hyperparameters(ignis__model_files *files, ignis__model *model)
{
    double numbers[IGNIS__NUMBERS], theta;
    if (!ignis__model_find_family(files))
        return false;
    model->family = files->family;
    model->rope = !(ignis__family_of(files->family)->features & IGNIS__POSITIONS);
    if (!files->is_gguf && !ignis__model_refuse_unknown_keys(files))
        return false;
    if (!ignis__model_read_numbers(files, numbers))
        return false;
    if (!ignis__model_read_depth(files, model, numbers) || !ignis__model_read_falcon(files, model, numbers))
        return false;
    model->hidden = (int)numbers[IGNIS__NUMBER_HIDDEN];
    model->inner = numbers[IGNIS__NUMBER_INNER] > 0 ? (int)numbers[IGNIS__NUMBER_INNER] : 4 * model->hidden;
    model->context = (int)numbers[IGNIS__NUMBER_CONTEXT];
    model->eps = numbers[IGNIS__NUMBER_EPS];
    if (!ignis__model_read_encoder(files, model, numbers))
        return false;
    if (!model->max_tokens)
        model->max_tokens = model->context < 4096 ? model->context : 4096;
    if (model->layers > files->source_count) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "the description of '%s' has %d layers, but there are %lld tensors", files->path, model->layers,
                    (long long)files->source_count);
        return false;
    }
    if (!ignis__model_read_experts(files, model, numbers) || !ignis__model_read_heads(files, model, numbers) ||
        !ignis__model_read_recurrent(files, model, numbers) || !ignis__model_read_vocabulary(files, model) ||
        (files->is_gguf && !ignis__model_refuse_unknown_gguf_keys(files, model)))
        return false;
    ignis__model_set_features(files, model, numbers);
    if (!ignis__model_read_choices(files, model))
        return false;
    if (model->rope && !ignis__model_read_rope_scaling(files, model))
        return false;
    model->attention_factor = model->rope ? model->attention_factor : 1;
    if (model->rope)
        ignis__model_frequencies(model);
    if (model->rope && !ignis__model_read_rope_divisors(files, model))
        return false;
    theta = numbers[IGNIS__NUMBER_LOCAL_THETA] > 0 ? numbers[IGNIS__NUMBER_LOCAL_THETA] : model->theta;
    ignis__model_plain_frequencies(model, theta, model->local_frequencies);
    ignis__model_set_attention_scale(files, model, numbers);
    return ignis__model_read_special_tokens(files, model);
}
