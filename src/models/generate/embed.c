/* ===============================================================================================================
   >>embed - ignis_model_embed and ignis_model_score: texts to vectors and scores

   Texts are sorted by their lengths, so that rows of one pass have few unused places. Pooling is a product with a row
   of ones and zeros for each text, in f32.
   May use: forward.c, >>text. Locks: none; the caller's handle is held for the call.
   =============================================================================================================== */

#include "room.h"

enum { IGNIS__EMBED_TOKENS = 16384 }; /* of a pass, with unused places; a pass has one text at least */

/*  A text of a call. */
typedef struct ignis__embed_text {
    int32_t *ids;
    int count, second; /* second: where the second text of a pair begins, else count */
    int index;         /* in the caller's list */
} ignis__embed_text;

/*  The state of a call. */
typedef struct ignis__embedding {
    const char *call;
    ignis__model *model;
    const ignis_embed_desc *desc;
    ignis_pooling pooling;
    bool scores; /* by the classifier; else vectors */
    ignis__embed_text *texts;
    int count, width; /* width: numbers of a text */
    float *out;
} ignis__embedding;

static int ignis__embed_text_order(const void *a, const void *b)
{
    const ignis__embed_text *one = (const ignis__embed_text *)a, *other = (const ignis__embed_text *)b;
    return one->count != other->count ? (one->count < other->count ? -1 : 1) : one->index - other->index;
}

/*  Encodes a text. Returns its ids, *count of them. NULL, and reported, on failure. */
static int32_t *ignis__embed_encode(const char *call, ignis_tokenizer tokenizer, const char *text, bool no_bos,
                                    int *count)
{
    ignis_encode_desc encode = IGNIS__ZERO;
    const int64_t size = (int64_t)strlen(text);
    int32_t *ids;
    encode.no_bos = no_bos;
    *count = ignis_tokenizer_encode(tokenizer, text, size, &encode, NULL, 0);
    if (*count < 0)
        return NULL;
    ids = (int32_t *)ignis__alloc_for(call, sizeof *ids * ((size_t)*count + 1));
    if (ids && ignis_tokenizer_encode(tokenizer, text, size, &encode, ids, *count) == *count)
        return ids;
    ignis__free(ids);
    return NULL;
}

/*  Checks that a text has tokens, and not too many, unless it is to be cut. */
static bool ignis__embed_check_count(const ignis__embedding *embedding, int index, int64_t count)
{
    const int most = embedding->model->max_tokens;
    if (count < 1)
        return ignis__fail_false(IGNIS_DIAG_COUNT_MISMATCH, embedding->call, "texts[%d] has no token", index);
    if (count <= most || embedding->desc->truncate)
        return true;
    return ignis__fail_false(IGNIS_DIAG_CONTEXT_FULL, embedding->call,
                             "texts[%d] has %lld tokens, and the model's context %d; desc->truncate cuts it", index,
                             (long long)count, most);
}

/*  Encodes one text, which keeps the ids that the tokenizer adds at its end if it is cut. */
static bool ignis__embed_read_text(ignis__embedding *embedding, const ignis__tokenizer *tokenizer,
                                   ignis_tokenizer handle, const char *text, ignis__embed_text *to)
{
    const int most = embedding->model->max_tokens, back = tokenizer->back_count < most ? tokenizer->back_count : most;
    to->ids = ignis__embed_encode(embedding->call, handle, text, false, &to->count);
    if (!to->ids || !ignis__embed_check_count(embedding, to->index, to->count))
        return false;
    if (to->count > most) {
        memmove(to->ids + most - back, to->ids + to->count - back, sizeof *to->ids * (size_t)back);
        to->count = most;
    }
    to->second = to->count;
    return true;
}

/*  Encodes a pair: [CLS] query [SEP] text [SEP]. RoBERTa has two [SEP] between them. */
static bool ignis__embed_read_pair(ignis__embedding *embedding, const ignis__tokenizer *tokenizer,
                                   ignis_tokenizer handle, const char *const texts[2], ignis__embed_text *to)
{
    const int front = tokenizer->front_count, back = tokenizer->back_count, most = embedding->model->max_tokens,
              between = embedding->model->first_position > 0 ? 2 : 1;
    const int64_t added = front + (int64_t)(between + 1) * back;
    int32_t *ids[2] = {NULL, NULL};
    int count[2] = {0, 0}, at = 0, i;
    bool ok = true;
    for (i = 0; ok && i < 2; i++)
        ok = (ids[i] = ignis__embed_encode(embedding->call, handle, texts[i], true, &count[i])) != NULL;
    ok = ok && ignis__embed_check_count(embedding, to->index, added + count[0] + count[1]);
    if (ok && added > most)
        ok = ignis__fail_false(IGNIS_DIAG_CONTEXT_FULL, embedding->call,
                               "the context has %d tokens, fewer than the %lld around a pair", most, (long long)added);
    while (ok && added + count[0] + count[1] > most)
        count[count[0] > count[1] ? 0 : 1]--;
    to->ids =
        ok ? (int32_t *)ignis__alloc_for(embedding->call, sizeof *to->ids * (size_t)(added + count[0] + count[1] + 1))
           : NULL;
    ok = to->ids != NULL;
    for (i = 0; ok && i < front; i++)
        to->ids[at++] = tokenizer->front[i];
    for (i = 0; ok && i < 2; i++) {
        int repeat;
        to->second = i == 1 ? at : 0;
        if (count[i])
            memcpy(to->ids + at, ids[i], sizeof *to->ids * (size_t)count[i]);
        at += count[i];
        for (repeat = 0; repeat < (i == 0 ? between : 1); repeat++, at += back)
            if (back)
                memcpy(to->ids + at, tokenizer->back, sizeof *to->ids * (size_t)back);
    }
    to->count = at;
    ignis__free(ids[0]);
    ignis__free(ids[1]);
    return ok;
}

static void ignis__embed_free_texts(ignis__embedding *embedding)
{
    int i;
    for (i = 0; embedding->texts && i < embedding->count; i++)
        ignis__free(embedding->texts[i].ids);
    ignis__free(embedding->texts);
}

/*  Encodes all texts, and sorts them by their lengths. query: NULL unless scores are asked for. */
static bool ignis__embed_read_texts(ignis__embedding *embedding, const char *query, const char *const *texts)
{
    ignis_tokenizer handle = ignis__model_tokenizer(embedding->model);
    ignis__tokenizer *tokenizer = handle.id ? ignis__tokenizer_hold(embedding->call, handle) : NULL;
    bool ok = tokenizer != NULL;
    int i;
    if (ok)
        embedding->texts = (ignis__embed_text *)ignis__alloc_for(embedding->call, sizeof *embedding->texts *
                                                                                      (size_t)(embedding->count + 1));
    ok = ok && embedding->texts;
    for (i = 0; ok && i < embedding->count; i++)
        embedding->texts[i].index = i;
    for (i = 0; ok && i < embedding->count; i++) {
        const char *pair[2];
        pair[0] = query, pair[1] = texts[i];
        if (!texts[i])
            ok = ignis__fail_false(IGNIS_DIAG_NULL_ARGUMENT, embedding->call, "texts[%d] is null", i);
        else
            ok = query ? ignis__embed_read_pair(embedding, tokenizer, handle, pair, &embedding->texts[i])
                       : ignis__embed_read_text(embedding, tokenizer, handle, texts[i], &embedding->texts[i]);
    }
    if (tokenizer)
        ignis__tokenizer_drop(tokenizer);
    if (ok && embedding->count > 1)
        qsort(embedding->texts, (size_t)embedding->count, sizeof *embedding->texts, ignis__embed_text_order);
    return ok;
}

/*  Returns the scores of the classifier for the hidden states of first tokens. */
static ignis_tensor ignis__embed_classify(const ignis__model *model, ignis_tensor first)
{
    first = ignis_cast(first, model->dtype);
    if (model->pooler.id)
        first = ignis__model_linear(model, first, model->pooler, model->pooler_bias);
    if (model->pooler.id)
        first = ignis_map("tanh(first)", IGNIS_INPUTS(first));
    return ignis_cast(ignis__model_linear(model, first, model->classes, model->class_bias), IGNIS_F32);
}

/*  Computes the numbers of `rows` texts from `texts` on, [rows, width], in a scope. numbers: of [rows, longest, 2] i32,
    then rows i32, then [rows, longest] f32. */
static bool ignis__embed_run_pass(const ignis__embedding *embedding, const ignis__embed_text *texts, int rows,
                                  int32_t *numbers, float *result)
{
    ignis__model *model = embedding->model;
    const int64_t longest = texts[rows - 1].count, all = rows * longest;
    int32_t *ids = numbers, *types = ids + all, *lengths = types + all;
    float *weights = (float *)(void *)(lengths + rows);
    struct ignis__lora *lora;
    ignis_hidden_desc hidden;
    ignis_tensor_desc desc;
    ignis_tensor h, w;
    ignis_shape shape;
    int64_t i;
    int row;
    bool ok;
    memset(&shape, 0, sizeof shape);
    memset(&desc, 0, sizeof desc);
    memset(&hidden, 0, sizeof hidden);
    memset(numbers, 0, (size_t)(3 * all + rows) * sizeof *numbers);
    for (row = 0; row < rows; row++) {
        const ignis__embed_text *text = &texts[row];
        memcpy(ids + row * longest, text->ids, sizeof *ids * (size_t)text->count);
        lengths[row] = text->count;
        for (i = text->second; i < text->count; i++)
            types[row * longest + i] = 1;
        for (i = 0; i < text->count; i++)
            weights[row * longest + i] = embedding->pooling == IGNIS_POOLING_MEAN    ? 1.0f
                                         : embedding->pooling == IGNIS_POOLING_FIRST ? (float)(i == 0)
                                                                                     : (float)(i == text->count - 1);
    }
    desc.dtype = IGNIS_I32;
    desc.device = model->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(model->device - ignis__devices);
    shape.ndim = 2;
    shape.dim[0] = rows;
    shape.dim[1] = longest;
    h = ignis_tensor_from_host(ids, shape, &desc);
    ok = h.id != 0;
    if (ok && model->types.id && model->type_count > 1)
        ok = (hidden.types = ignis_tensor_from_host(types, shape, &desc)).id != 0;
    shape.ndim = 1;
    if (ok && model->encoder)
        ok = (hidden.lengths = ignis_tensor_from_host(lengths, shape, &desc)).id != 0;
    if (!ok) /* without them the result would be another one */
        return false;
    lora = ignis__model_lora(model);
    h = ignis_cast(ignis__model_hidden(model, lora, h, &hidden, longest), IGNIS_F32);
    if (lora)
        ignis__lora_drop(embedding->call, lora);
    desc.dtype = IGNIS_F32;
    shape.ndim = 3;
    shape.dim[1] = 1;
    shape.dim[2] = longest;
    w = ignis_tensor_from_host(weights, shape, &desc);
    h = ignis_matmul(w, h);
    shape.ndim = 2;
    shape.dim[1] = model->hidden;
    h = ignis_reshape(h, shape);
    if (embedding->scores)
        h = ignis__embed_classify(model, h);
    return ignis_tensor_to_host(h, result, IGNIS_F32, (int64_t)rows * embedding->width) == IGNIS_OK;
}

/*  Divides a vector by a divisor, or by its length if that is asked for. */
static void ignis__embed_scale(float *to, const float *from, int width, double divisor, bool raw)
{
    double square = 0;
    int i;
    for (i = 0; i < width; i++)
        square += (double)from[i] * (double)from[i];
    if (!raw)
        divisor = square > 0 ? ignis__square_root(square) : 1;
    for (i = 0; i < width; i++)
        to[i] = (float)((double)from[i] / divisor);
}

/*  Computes all texts, pass after pass. */
static bool ignis__embed_run(ignis__embedding *embedding)
{
    int begin, end, i;
    bool ok = true;
    for (begin = 0; ok && begin < embedding->count; begin = end) {
        int32_t *numbers;
        float *result;
        int64_t longest, rows;
        ignis_scope scope;
        for (end = begin + 1;
             end < embedding->count && (int64_t)(end + 1 - begin) * embedding->texts[end].count <= IGNIS__EMBED_TOKENS;)
            end++;
        rows = end - begin;
        longest = embedding->texts[end - 1].count;
        numbers = (int32_t *)ignis__alloc_for(embedding->call, (size_t)(rows * (3 * longest + 1)) * sizeof *numbers);
        result = (float *)ignis__alloc_for(embedding->call, (size_t)(rows * embedding->width) * sizeof *result);
        ok = numbers && result;
        if (ok) {
            scope = ignis_scope_begin();
            (void)ignis_no_grad_begin();
            ok = ignis__embed_run_pass(embedding, embedding->texts + begin, (int)rows, numbers, result);
            (void)ignis_no_grad_end();
            (void)ignis_scope_end(scope);
        }
        for (i = 0; ok && i < rows; i++) {
            const ignis__embed_text *text = &embedding->texts[begin + i];
            ignis__embed_scale(embedding->out + (int64_t)text->index * embedding->width,
                               result + (int64_t)i * embedding->width, embedding->width,
                               embedding->pooling == IGNIS_POOLING_MEAN ? text->count : 1,
                               embedding->scores || embedding->desc->raw);
        }
        ignis__free(numbers);
        ignis__free(result);
    }
    return ok;
}

/*  Checks the model and the arguments of a call, and chooses the pooling. */
static bool ignis__embed_check(ignis__embedding *embedding, const char *const *texts)
{
    const ignis__model *model = embedding->model;
    const char *call = embedding->call, *type = ignis__family_of(model->family)->model_type;
    if ((embedding->count > 0 && (!texts || !embedding->out)) || embedding->count < 0) {
        if (embedding->count < 0)
            ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", embedding->count);
        else
            ignis__fail_null(call, !texts ? "texts" : embedding->scores ? "scores" : "vectors");
        return false;
    }
    if (!ignis__model_check_not_shared(call, model))
        return false;
    if (embedding->scores && model->class_count != 1)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "the %s model has a classifier of %d classes; expected one class", type,
                                 model->class_count);
    if ((unsigned)embedding->desc->pooling >= IGNIS_POOLING_COUNT)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "desc->pooling is %d, no value of ignis_pooling",
                                 (int)embedding->desc->pooling);
    embedding->pooling = embedding->scores ? IGNIS_POOLING_FIRST : embedding->desc->pooling;
    if (embedding->pooling != IGNIS_POOLING_DEFAULT)
        return true;
    if (model->pooling < 0)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "the files of the %s model pool hidden states in a way that Ignis cannot do; "
                                 "desc->pooling chooses another one",
                                 type);
    embedding->pooling = model->pooling   ? (ignis_pooling)model->pooling
                         : model->encoder ? IGNIS_POOLING_MEAN
                                          : IGNIS_POOLING_LAST;
    return true;
}

/*  Runs a call: scores if there is a query, else vectors. */
static ignis_status ignis__embed(ignis__embedding *embedding, ignis_model handle, const char *query,
                                 const char *const *texts)
{
    static const ignis_embed_desc none = IGNIS__ZERO;
    bool ok;
    embedding->model = ignis__model_hold(embedding->call, handle);
    if (!embedding->model)
        return ignis__failed();
    embedding->desc = embedding->desc ? embedding->desc : &none;
    embedding->width = embedding->scores ? 1 : embedding->model->hidden;
    ok = ignis__embed_check(embedding, texts) && ignis__embed_read_texts(embedding, query, texts) &&
         ignis__embed_run(embedding);
    ignis__embed_free_texts(embedding);
    ignis__model_drop(embedding->call, embedding->model);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_model_embed(ignis_model model, const char *const *texts, int count,
                                         const ignis_embed_desc *desc, float *vectors)
{
    ignis__embedding embedding = IGNIS__ZERO;
    embedding.call = "ignis_model_embed";
    embedding.desc = desc;
    embedding.count = count;
    embedding.out = vectors;
    return ignis__embed(&embedding, model, NULL, texts);
}

IGNIS_API ignis_status ignis_model_score(ignis_model model, const char *query, const char *const *texts, int count,
                                         const ignis_embed_desc *desc, float *scores)
{
    ignis__embedding embedding = IGNIS__ZERO;
    embedding.call = "ignis_model_score";
    embedding.desc = desc;
    embedding.count = count;
    embedding.out = scores;
    embedding.scores = true;
    if (!query)
        return ignis__fail_null(embedding.call, "query");
    return ignis__embed(&embedding, model, query, texts);
}
