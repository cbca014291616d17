/*  models/weights/rope_scaling.c - RoPE frequencies, scaled: linear, llama3, yarn, longrope, divisors of a GGUF file

    Logarithms and powers are computed here, so that the C library's math is not linked.
    May use: config_check.c, checkpoint.c. Locks: none. */

#include "room.h"

/*  Returns the natural logarithm of a positive number, by the series of atanh: the C library's would have to
    be linked. */
IGNIS__PRIVATE double ignis__ln(double x)
{
    const double ln2 = 0.69314718055994530942;
    double power, square, sum = 0;
    int exponent = 0, i;
    for (; x > 1.5; x /= 2)
        exponent++;
    for (; x < 0.75; x *= 2)
        exponent--;
    power = (x - 1) / (x + 1);
    square = power * power;
    for (i = 1; i < 60; i += 2, power *= square)
        sum += power / i;
    return 2 * sum + exponent * ln2;
}

static double ignis__floor(double x)
{
    double whole = x > -1e15 && x < 1e15 ? (double)(int64_t)x : x;
    return whole > x ? whole - 1 : whole;
}

#define IGNIS__TWO_PI 6.28318530717958647692 /* 2 pi */

/*  Scales a frequency as llama3 does: long waves are scaled, short ones are not, and a slope is between the
    two limits. */
static double ignis__model_scale_llama3(double frequency, double factor, double low, double high, double original)
{
    double wave = IGNIS__TWO_PI / frequency, slope;
    if (wave > original / low)
        return frequency / factor;
    if (wave < original / high)
        return frequency;
    slope = (original / wave - low) / (high - low);
    return (1 - slope) * frequency / factor + slope * frequency;
}

static bool ignis__model_set_rope_scaling(ignis__model_files *files, ignis__model *model, const char *kind)
{
    static const struct {
        const char *name;
        ignis__rope_scaling scaling;
        bool in_gguf; /* llama3 and dynamic are not; such GGUF files have divisors instead, or nothing */
    } kinds[] = {{"default", IGNIS__ROPE_SCALING_NONE, true},      {"none", IGNIS__ROPE_SCALING_NONE, true},
                 {"linear", IGNIS__ROPE_SCALING_LINEAR, true},     {"llama3", IGNIS__ROPE_SCALING_LLAMA3, false},
                 {"yarn", IGNIS__ROPE_SCALING_YARN, true},         {"dynamic", IGNIS__ROPE_SCALING_DYNAMIC, false},
                 {"longrope", IGNIS__ROPE_SCALING_LONGROPE, true}, {"su", IGNIS__ROPE_SCALING_LONGROPE, false}};
    int i;
    for (i = 0; i < IGNIS__COUNT(kinds) && strcmp(kind, kinds[i].name) != 0; i++)
        continue;
    if (i < IGNIS__COUNT(kinds) && (!files->is_gguf || kinds[i].in_gguf)) {
        model->rope_scaling = kinds[i].scaling;
        return true;
    }
    ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' stretches positions by %s; %s are known", files->path,
                ignis__name_write(kind).text,
                files->is_gguf ? "none, linear, yarn and longrope"
                               : "default, linear, llama3, yarn, dynamic and longrope");
    return false;
}

/*  Reads the scaling factor of a GGUF file from the newer of its two keys. *value stays as it is if neither
    exists. */
static bool ignis__model_read_scaling_factor(ignis__model_files *files, const char **key, double *value)
{
    ignis__gguf_found found;
    *key = "rope.scaling.factor";
    found = ignis__model_read_number(files, NULL, *key, value);
    if (found == IGNIS__GGUF_NONE &&
        (found = ignis__model_read_number(files, NULL, "rope.scale_linear", value)) == IGNIS__GGUF_FOUND)
        *key = "rope.scale_linear";
    return found != IGNIS__GGUF_BAD;
}

/*  Checks that a GGUF file without yarn has no attention factor. False, and reported, if it has one. */
static bool ignis__model_check_attention_factor(ignis__model_files *files)
{
    double value = 1;
    if (ignis__model_read_number(files, NULL, "rope.scaling.attn_factor", &value) == IGNIS__GGUF_BAD)
        return false;
    if (value == 1)
        return true;
    ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call,
                "'%s' has %s.rope.scaling.attn_factor %g without yarn, which Ignis cannot do", files->path,
                ignis__family_of(files->family)->architecture, value);
    return false;
}

static const char ignis__rope_of_full[] = "rope_parameters.full_attention";

/*  Reads the attention factor of yarn in config.json: itself, or the ratio of those of mscale and mscale_all_dim. */
static bool ignis__model_read_yarn_factor(ignis__model_files *files, ignis__model *model, const char *group)
{
    double log_factor = model->factor > 1 ? 0.1 * ignis__ln(model->factor) : 0, scale = 0, all = 0;
    char name[80];
    snprintf(name, sizeof name, "%s.mscale", group);
    if (ignis__model_read_number(files, name, NULL, &scale) == IGNIS__GGUF_BAD)
        return false;
    snprintf(name, sizeof name, "%s.mscale_all_dim", group);
    if (ignis__model_read_number(files, name, NULL, &all) == IGNIS__GGUF_BAD)
        return false;
    if (model->latent && all > 0) /* without its own rotation, too */
        model->softmax_factor = 1 + all * log_factor;
    snprintf(name, sizeof name, "%s.attention_factor", group);
    return ignis__model_read_real(
        files, name, NULL, scale != 0 && all != 0 ? (scale * log_factor + 1) / (all * log_factor + 1) : log_factor + 1,
        &model->attention_factor);
}

/*  Reads the attention factor and the original context of longrope. The divisors follow with the frequencies. */
static bool ignis__model_read_longrope(ignis__model_files *files, ignis__model *model, const char *group)
{
    double factor, usual;
    char name[80];
    snprintf(name, sizeof name, "%s.original_max_position_embeddings", group);
    if (!ignis__config_find(&files->config, name))
        snprintf(name, sizeof name, "original_max_position_embeddings");
    if (!ignis__model_read_real(files, name, "rope.scaling.original_context_length", model->context, &model->original))
        return false;
    factor = model->context / model->original;
    snprintf(name, sizeof name, "%s.factor", group);
    if (ignis__model_read_number(files, name, NULL, &factor) == IGNIS__GGUF_BAD)
        return false;
    usual =
        factor > 1 && model->original > 1 ? ignis__square_root(1 + ignis__ln(factor) / ignis__ln(model->original)) : 1;
    snprintf(name, sizeof name, "%s.attention_factor", group);
    return ignis__model_read_real(files, name, "rope.scaling.attn_factor", usual, &model->attention_factor);
}

/*  Reads the RoPE scaling. Old and new forms of config.json: rope_scaling {rope_type or type, ...} and
    rope_theta, or all in rope_parameters. A GGUF file has keys. */
IGNIS__PRIVATE bool ignis__model_read_rope_scaling(ignis__model_files *files, ignis__model *model)
{
    const char *group = ignis__config_find(&files->config, "rope_parameters.full_attention") ? ignis__rope_of_full
                        : ignis__config_find(&files->config, "rope_parameters")              ? "rope_parameters"
                                                                                             : "rope_scaling",
               *text = NULL;
    const char *factor = NULL; /* its key in a GGUF file */
    const ignis__config_item *kind;
    char name[80];
    size_t size;
    double context = model->context, usual, said = 0;
    bool yarn;
#define IGNIS__IN_GROUP(field) (snprintf(name, sizeof name, "%s.%s", group, field), name)
    model->attention_factor = 1;
    if (files->is_gguf) {
        snprintf(name, sizeof name, "%s.rope.scaling.type", ignis__family_of(files->family)->architecture);
        if (ignis__gguf_find_string(&files->gguf, name, &text, &size) == IGNIS__GGUF_BAD ||
            !ignis__model_read_real(files, NULL, "rope.freq_base", 10000, &model->theta) ||
            !ignis__model_read_scaling_factor(files, &factor, &said))
            return false;
        text = !text && said != 0 ? "linear" : text;
    } else {
        kind = ignis__config_find(&files->config, IGNIS__IN_GROUP("rope_type"));
        kind = kind ? kind : ignis__config_find(&files->config, IGNIS__IN_GROUP("type"));
        text = kind ? (kind->kind == 't' ? kind->text : "?") : NULL;
        if (!ignis__config_find(&files->config, IGNIS__IN_GROUP("rope_theta")))
            snprintf(name, sizeof name, "%s",
                     ignis__config_find(&files->config, "rotary_emb_base") ? "rotary_emb_base" : "rope_theta");
        if (!ignis__model_read_real(files, name, NULL, 10000, &model->theta))
            return false;
    }
    if (!files->is_gguf && !text && ignis__config_find(&files->config, IGNIS__IN_GROUP("factor"))) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "config.json of '%s' has %s, and does not say of which rope_type", files->path, name);
        return false;
    }
    if (text && !ignis__model_set_rope_scaling(files, model, text))
        return false;
    yarn = model->rope_scaling == IGNIS__ROPE_SCALING_YARN;
    if (model->rope_scaling == IGNIS__ROPE_SCALING_LONGROPE)
        return ignis__model_read_longrope(files, model, group);
    if (files->is_gguf && !yarn && !ignis__model_check_attention_factor(files))
        return false;
    if (model->rope_scaling == IGNIS__ROPE_SCALING_NONE || model->rope_scaling == IGNIS__ROPE_SCALING_DYNAMIC)
        return true;
    if (!ignis__model_read_real(files, IGNIS__IN_GROUP("factor"), factor, 0, &model->factor))
        return false;
    if (model->rope_scaling == IGNIS__ROPE_SCALING_LINEAR)
        return true;
    if (!ignis__model_read_real(files, IGNIS__IN_GROUP("original_max_position_embeddings"),
                                "rope.scaling.original_context_length", yarn ? context : 0, &model->original) ||
        !ignis__model_read_real(files, IGNIS__IN_GROUP(yarn ? "beta_slow" : "low_freq_factor"),
                                yarn ? "rope.scaling.yarn_beta_slow" : NULL, yarn, &model->low) ||
        !ignis__model_read_real(files, IGNIS__IN_GROUP(yarn ? "beta_fast" : "high_freq_factor"),
                                yarn ? "rope.scaling.yarn_beta_fast" : NULL, yarn ? 32 : 0, &model->high))
        return false;
    if (model->high <= model->low) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "the description of '%s' stretches positions from %g to %g, the wrong way round", files->path,
                    model->low, model->high);
        return false;
    }
    if (!yarn)
        return true;
    if (!(model->theta > 1)) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "the description of '%s' has rope_theta %g; yarn needs one above 1", files->path, model->theta);
        return false;
    }
    if (files->is_gguf) { /* a GGUF file multiplies the usual factor, config.json replaces it */
        usual = model->factor > 1 ? 0.1 * ignis__ln(model->factor) + 1 : 1;
        if (!ignis__model_read_real(files, NULL, "rope.scaling.attn_factor", 1, &model->attention_factor))
            return false;
        model->attention_factor *= model->latent ? 1 : usual; /* llama.cpp divides by it in DeepSeek */
        model->uncut = ignis__family_of(files->family)->features & IGNIS__UNCUT_YARN;
        return true;
    }
    if (!ignis__model_read_yarn_factor(files, model, group))
        return false;
    kind = ignis__config_find(&files->config, IGNIS__IN_GROUP("truncate"));
    model->uncut = kind && kind->kind == 'b' && kind->number == 0;
    if (kind && kind->kind != 'b') {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "config.json of '%s': %s is neither true nor false",
                    files->path, name);
        return false;
    }
    return true;
#undef IGNIS__IN_GROUP
}

/*  Returns, for yarn, the index of the frequency with this number of turns within the original context. */
static double ignis__model_yarn_index(const ignis__model *model, double turns)
{
    return model->rotary * ignis__ln(model->original / (IGNIS__TWO_PI * turns)) / (2 * ignis__ln(model->theta));
}

/*  Computes f_i = theta^(-2 i / rotary), scaled; 0 for elements that do not rotate. */
IGNIS__PRIVATE void ignis__model_frequencies(ignis__model *model)
{
    double ratio = ignis__root_of_degree(1 / model->theta, model->rotary / 2), f = 1, low = 0, high = 0, t;
    int i;
    if (model->rope_scaling == IGNIS__ROPE_SCALING_YARN) {
        low = ignis__model_yarn_index(model, model->high);
        high = ignis__model_yarn_index(model, model->low);
        low = model->uncut ? low : ignis__floor(low);
        high = model->uncut ? high : -ignis__floor(-high);
        low = low < 0 ? 0 : low;
        high = high > model->rotary - 1 ? model->rotary - 1 : high;
        high = high == low ? high + 0.001 : high;
    }
    for (i = 0; i < model->rotary / 2; i++, f *= ratio) {
        t = (i - low) / (high - low == 0 ? 1 : high - low);
        t = t < 0 ? 0 : t > 1 ? 1 : t;
        model->frequencies[i] =
            model->rope_scaling == IGNIS__ROPE_SCALING_LINEAR ? f / model->factor
            : model->rope_scaling == IGNIS__ROPE_SCALING_LLAMA3
                ? ignis__model_scale_llama3(f, model->factor, model->low, model->high, model->original)
            : model->rope_scaling == IGNIS__ROPE_SCALING_YARN ? f * (1 - t) + f / model->factor * t
                                                              : f;
    }
}

/*  Computes frequencies without scaling. */
IGNIS__PRIVATE void ignis__model_plain_frequencies(const ignis__model *model, double theta, double *to)
{
    double ratio = ignis__root_of_degree(1 / theta, model->rotary / 2), f = 1;
    int i;
    for (i = 0; model->rope && i < model->rotary / 2; i++, f *= ratio)
        to[i] = f;
}

/*  Reads a tensor of divisors of the frequencies from a GGUF file. */
static bool ignis__model_read_divisors(ignis__model_files *files, ignis__model_source *source, int pairs,
                                       float *divisor)
{
    int i;
    source->used = true;
    if (source->dtype != IGNIS_F32 || source->shape.ndim != 1 || source->shape.dim[0] != pairs) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "tensor %s of '%s' is %s %s; F32 [%d] is needed",
                    source->name, files->path, ignis__model_type_write(source).text,
                    ignis__shape_write(&source->shape).text, pairs);
        return false;
    }
    if (!ignis__model_read_source(files, source, divisor, pairs * 4))
        return false;
    for (i = 0; i < pairs; i++) {
        if (!(divisor[i] > 0 && (double)divisor[i] < 1e12)) {
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                        "tensor %s of '%s' has %g at %d; positive numbers are needed", source->name, files->path,
                        (double)divisor[i], i);
            return false;
        }
    }
    return true;
}

/*  Divides the frequencies by the short or the long factors of longrope: the long ones if sequences may be longer than
    the original context. */
static bool ignis__model_apply_longrope(ignis__model_files *files, ignis__model *model)
{
    const bool is_long = model->max_tokens > model->original;
    const char *which = is_long ? "long_factor" : "short_factor",
               *group = ignis__config_find(&files->config, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    ignis__model_source *factors[2] = {NULL, NULL};
    float divisor[IGNIS__MODEL_HALF];
    int pairs = model->rotary / 2, count = 0, i;
    char name[64];
    if (files->is_gguf) {
        factors[0] = ignis__model_source_find(files, "rope_factors_short.weight");
        factors[1] = ignis__model_source_find(files, "rope_factors_long.weight");
        if (!factors[0] || !factors[1]) {
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                        "'%s' stretches positions by longrope, and has no tensor rope_factors_%s.weight", files->path,
                        factors[0] ? "long" : "short");
            return false;
        }
        if (!ignis__model_read_divisors(files, factors[!is_long], pairs, divisor) ||
            !ignis__model_read_divisors(files, factors[is_long], pairs, divisor))
            return false;
        count = pairs;
    }
    snprintf(name, sizeof name, "%s.%s[]", group, which);
    for (i = 0; !files->is_gguf && i < files->config.count; i++) {
        const ignis__config_item *item = &files->config.items[i];
        if (strcmp(item->name, name) != 0)
            continue;
        if (item->kind != 'n' || !(item->number > 0 && item->number < 1e12)) {
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                        "config.json of '%s': item %d of %s is not a positive number", files->path, count, which);
            return false;
        }
        if (count < pairs)
            divisor[count] = (float)item->number;
        count++;
    }
    if (count != pairs) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "config.json of '%s' has %d items of %s; %d are needed",
                    files->path, count, which, pairs);
        return false;
    }
    for (i = 0; i < pairs; i++)
        model->frequencies[i] /= (double)divisor[i];
    return true;
}

/*  Reads divisors of the frequencies: those of longrope, or a GGUF file's own, as converters of Llama 3 write them. */
IGNIS__PRIVATE bool ignis__model_read_rope_divisors(ignis__model_files *files, ignis__model *model)
{
    ignis__model_source *source = files->is_gguf ? ignis__model_source_find(files, "rope_freqs.weight") : NULL;
    float divisor[IGNIS__MODEL_HALF];
    int i, pairs = model->rotary / 2, guess;
    bool like, alone;
    if (model->rope_scaling == IGNIS__ROPE_SCALING_LONGROPE)
        return ignis__model_apply_longrope(files, model);
    if (!source)
        return true;
    if (!ignis__model_read_divisors(files, source, pairs, divisor))
        return false;
    alone = model->rope_scaling == IGNIS__ROPE_SCALING_NONE;
    model->rope_scaling = IGNIS__ROPE_SCALING_TABLE;
    for (guess = 8; guess <= 32 && model->rope_scaling == IGNIS__ROPE_SCALING_TABLE;
         guess *= 4) { /* as in Llama 3.1 and 3.2; config.json can express these */
        for (like = alone, i = 0; i < pairs; i++) {
            double f = model->frequencies[i],
                   d = f / ignis__model_scale_llama3(f, guess, 1, 4, 8192) / (double)divisor[i];
            like = like && d > 1 - 1e-5 && d < 1 + 1e-5;
        }
        if (!like)
            continue;
        model->rope_scaling = IGNIS__ROPE_SCALING_LLAMA3;
        model->factor = guess, model->low = 1, model->high = 4, model->original = 8192;
    }
    for (i = 0; i < pairs; i++)
        model->frequencies[i] /= (double)divisor[i];
    return true;
}
