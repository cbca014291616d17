/*  What all sequences of a model share: the cache, room for a step, its graphs. Its lock is held while a step runs and is waited for, as there is
    one room. */
enum { IGNIS__CHUNK = 512 }; /* rows of a prompt at a time */

typedef struct ignis__engine_layer {
    ignis__array *attn_norm, *attn_norm_bias, *qkv, *qkv_bias, *q_norm, *k_norm, *o, *o_bias, *mlp_norm, *mlp_norm_bias, *up, *up_bias,
        *down, *down_bias;
} ignis__engine_layer;

typedef struct ignis__sequence ignis__sequence;
/*  What a mask on the device has. */
typedef struct ignis__engine_mask {
    uint64_t grammar, used; /* the number of the grammar, 0: there is none; when it was used last */
    int32_t epoch, state;
} ignis__engine_mask;

typedef struct ignis__engine {
    ignis__mutex lock;
    const ignis__model *model;
    ignis__device *device;
    ignis__engine_layer *layer; /* arrays of the weights, held; null: the family has none */
    ignis__array *embedding, *positions, *norm, *norm_bias, *head;
    /* numbers: of a quantised weight; null: there is none; turning: the frequencies; ended: zeros, see attention_paged.cu; mine: logits from this
       rank's first one on; table, words: where layers have what, and what blocks tell each other, for generate_step.cu, null: it does not do steps;
       step_types: those of its weights as bits, 0: they are numbers; said: to other ranks; all arrays of these are claimed */
    ignis__array *cache, *rows, *sum, *normed, *qkv, *attended, *inner, *room, *scratch, *logits, *scores, *biases, *parts, *masks, *bins,
        *gathered, *numbers, *turning, *ended, *mine, *table, *words, *said;
    int context, step_rows, splits, pages, step_types;
    char step_define[96];
    int *uses, *free_pages; /* sequences that have a page; pages that none has */
    int free_count;
    double frequencies[IGNIS__ROPE_HALF];
    struct {
        ignis__sequence *sequence;           /* whose next token is drawn ahead, while the caller has the last one; null: none */
        ignis__pooled_event *drawn;          /* behind it */
        const ignis_sampling_desc *sampling; /* of the call of ignis_generate that has it drawn, which settles it before it returns */
        void *stream;
        int length; /* of the sequence without the token */
    } ahead;
    ignis__generate_draw *draws; /* [step_rows][2]: of tokens behind even and odd positions */
    ignis__pinned *draws_piece;  /* which has them */
    struct {
        int runs;
        ignis__capture *capture;
        void *exec;                /* CUgraphExec; null: not yet */
    } steps[3][8];                 /* by ignis__draws, of 1, 2, 4 ... rows */
    ignis__vocabulary *vocabulary; /* for grammars; null: not yet */
    ignis__grammar *grammars;      /* that sequences have, and have had, the latest first */
    uint64_t grammars_made, masks_used;
    int mask_count; /* that `masks` has room for */
    ignis__engine_mask *mask;
} ignis__engine;

struct ignis__sequence {
    ignis__slot slot;
    ignis__model *model;   /* held */
    ignis__engine *engine; /* its lock guards the rest */
    int32_t *ids, *page;   /* room for the context, and one */
    bool *many;            /* of each token: it is computed as one of more than IGNIS__STEP_ROWS that were fed */
    int length, page_count;
    int cached;           /* tokens that the cache has: all but the last one, or all */
    int sent, pages_sent; /* that are in device memory, too */
    int said_length;      /* tokens that `said` is a number of: for other ranks to compare */
    uint32_t said;
    float log_prob, next_log_prob;   /* of the token drawn last; of one behind it that no one has seen, as the step goes on */
    ignis__grammar *grammar;         /* the engine's; null: none */
    int constrained, matched;        /* tokens ahead of its text; tokens that its state is behind */
    int32_t state, epoch;            /* of the grammar; epoch: 0: there is none yet */
    ignis__array *on_device, *table; /* the same; claimed */
    ignis__array *last;              /* what all layers have found of the last of many tokens; claimed, forks have the same; or null */
    int last_length;                 /* up to that one; 0: of none that is there */
};

static ignis__pool ignis__sequences = IGNIS__POOL(ignis__sequence, IGNIS__KIND_SEQUENCE, "sequence", IGNIS_DIAG_SEQUENCE_FREED);

static int64_t ignis__engine_page_elements(const ignis__engine *e)
{
    return (int64_t)IGNIS__PAGE * e->model->kv_heads * e->model->head_dim;
}

/*  Gives up what an engine has; no step of it runs. */
IGNIS__COLD static void ignis__engine_destroy(const char *call, void *engine)
{
    ignis__engine *e = (ignis__engine *)engine;
    ignis__array **array;
    ignis__grammar *grammar;
    ignis__binding binding;
    bool lost = ignis__devices_lost(), entered = ignis__device_enter_to_give(call, e->device, &binding);
    int i;
    if (entered)
        (void)ignis__device_finish(e->device);
    for (i = 0; (entered || lost) && i < 8 * IGNIS__COUNT(e->steps); i++)
        if (e->steps[i / 8][i % 8].capture)
            ignis__graph_destroy(call, e->steps[i / 8][i % 8].capture, lost ? NULL : e->steps[i / 8][i % 8].exec);
    if (e->draws_piece)
        (void)ignis__pinned_chunk_recycle(call, e->device, e->draws_piece);
    if (entered)
        ignis__device_leave(&binding);
    while ((grammar = e->grammars) != NULL) {
        e->grammars = grammar->next;
        ignis__grammar_free(grammar);
    }
    if (e->vocabulary)
        ignis__vocabulary_free(e->vocabulary);
    for (array = &e->cache; array <= &e->said; array++)
        if (*array)
            ignis__array_unclaim(call, *array);
    for (array = &e->embedding; array <= &e->head; array++)
        if (*array)
            ignis__array_drop(call, *array);
    for (array = (ignis__array **)(void *)e->layer; e->layer && array < (ignis__array **)(void *)(e->layer + e->model->layers); array++)
        if (*array)
            ignis__array_drop(call, *array);
    ignis__free(e->layer);
    ignis__free(e->uses);
    ignis__free(e->mask);
    ignis__free(e->free_pages);
    ignis__free(e);
}

/*  A new array of the engine's. False: there is no memory. */
IGNIS__COLD static bool ignis__engine_room(const char *call, const ignis__engine *e, ignis__array **array, int64_t rows, int64_t columns,
                                           ignis_dtype dtype)
{
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape.ndim = 2;
    desc.shape.dim[0] = rows;
    desc.shape.dim[1] = columns;
    desc.dtype = dtype;
    desc.device = e->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(e->device - ignis__devices);
    desc.tag = "generation";
    *array = ignis__array_adopt(call, ignis__array_create(call, &desc));
    return *array != NULL;
}

/*  The array of a weight, held; null where there is none. */
IGNIS__COLD static ignis__array *ignis__engine_weight(const char *call, ignis_tensor tensor, bool *ok)
{
    ignis__array *array = NULL;
    if (*ok && tensor.id)
        *ok = (array = ignis__array_hold(call, ignis_tensor_data(tensor))) != NULL;
    return array;
}

IGNIS__COLD static bool ignis__engine_weights(const char *call, ignis__engine *e)
{
    const ignis__model *m = e->model;
    bool ok = true;
    int i;
    e->embedding = ignis__engine_weight(call, m->embedding, &ok);
    e->positions = ignis__engine_weight(call, m->positions, &ok);
    e->norm = ignis__engine_weight(call, m->norm, &ok);
    e->norm_bias = ignis__engine_weight(call, m->norm_bias, &ok);
    e->head = ignis__engine_weight(call, m->head.id ? m->head : m->embedding, &ok);
    if (ok && m->tied && m->parallel.size > 1) {
        int64_t share = ignis__model_head_rows(m), first = share * m->parallel.rank;
        ignis_array rows = ignis__array_slice(call, e->head, 0, first, ignis__clamp(m->vocab - first, 0, share));
        ignis__array_drop(call, e->head);
        e->head = rows.id ? ignis__array_hold(call, rows) : NULL;
        ok = e->head != NULL;
        ignis__array_discard(call, &rows);
    }
    for (i = 0; ok && i < m->layers; i++) {
        const ignis__layer *from = &m->layer[i];
        ignis__engine_layer *to = &e->layer[i];
        to->attn_norm = ignis__engine_weight(call, from->attn_norm, &ok);
        to->attn_norm_bias = ignis__engine_weight(call, from->attn_norm_bias, &ok);
        to->qkv = ignis__engine_weight(call, from->qkv, &ok);
        to->qkv_bias = ignis__engine_weight(call, from->qkv_bias, &ok);
        to->q_norm = ignis__engine_weight(call, from->q_norm, &ok);
        to->k_norm = ignis__engine_weight(call, from->k_norm, &ok);
        to->o = ignis__engine_weight(call, from->o, &ok);
        to->o_bias = ignis__engine_weight(call, from->o_bias, &ok);
        to->mlp_norm = ignis__engine_weight(call, from->mlp_norm, &ok);
        to->mlp_norm_bias = ignis__engine_weight(call, from->mlp_norm_bias, &ok);
        to->up = ignis__engine_weight(call, from->up, &ok);
        to->up_bias = ignis__engine_weight(call, from->up_bias, &ok);
        to->down = ignis__engine_weight(call, from->down, &ok);
        to->down_bias = ignis__engine_weight(call, from->down_bias, &ok);
    }
    return ok;
}

/*  What ranks need besides: where this one's logits begin, which are added to zeros of others, and what it says. */
IGNIS__COLD static bool ignis__engine_ranks(const char *call, ignis__engine *e)
{
    const ignis_model_parallel *ranks = &e->model->parallel;
    ignis_shape shape = e->logits->shape;
    if (ranks->size <= 1)
        return true;
    shape.dim[0] = e->step_rows;
    e->mine = ignis__array_adopt(call, ignis__array_view(call, e->logits, &shape, shape.dim[0] * shape.dim[1],
                                                         ranks->rank * ignis__model_head_rows(e->model) * (int64_t)sizeof(float)));
    return e->mine && ignis__engine_room(call, e, &e->said, 1, ranks->size, IGNIS_F32);
}

/*  Room for the numbers of any quantised weight of a layer, which prompts are multiplied with; none where there is none. */
IGNIS__COLD static bool ignis__engine_numbers(const char *call, ignis__engine *e)
{
    int64_t most = ignis__model_largest(e->model);
    return most == 0 || ignis__engine_room(call, e, &e->numbers, 1, most, e->model->dtype);
}

/*  What generate_step.cu reads of a layer, in its order, and of the logits behind the last one; null: there is none. */
typedef struct ignis__step_arrays {
    ignis__array *weights[4], *bias[4], *norm[2], *norm_bias[2], *head_norm[2];
} ignis__step_arrays;

static ignis__step_arrays ignis__engine_arrays(const ignis__engine *e, int layer)
{
    const ignis__engine_layer *l = &e->layer[layer];
    ignis__step_arrays a;
    memset(&a, 0, sizeof a);
    if (layer == e->model->layers) {
        a.weights[0] = e->head, a.norm[0] = e->norm, a.norm_bias[0] = e->norm_bias;
        return a;
    }
    a.weights[0] = l->qkv, a.weights[1] = l->o, a.weights[2] = l->up, a.weights[3] = l->down;
    a.bias[0] = l->qkv_bias, a.bias[1] = l->o_bias, a.bias[2] = l->up_bias, a.bias[3] = l->down_bias;
    a.norm[0] = l->attn_norm, a.norm[1] = l->mlp_norm, a.norm_bias[0] = l->attn_norm_bias, a.norm_bias[1] = l->mlp_norm_bias;
    a.head_norm[0] = l->q_norm, a.head_norm[1] = l->k_norm;
    return a;
}
