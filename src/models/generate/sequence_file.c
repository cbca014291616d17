/*  models/generate/sequence_file.c - sequences in files

    A file has a header, then the tokens, which of them were computed in chunks, the hidden state after the last chunk,
    the states of recurrent layers, and the pages of the cache by layer. It is read and written by the same code. It is
    for one model: the header has a hash of its shapes, and of the shapes, the types and the first bytes of its weights.
    Everything is untrusted until the checksum matches; the header is checked before anything is taken by it. A damaged
    body is found when all of it is read, and then the sequence is freed.
    May use: kv_cache.c, sequence_next.c, the room `file`. Locks: the engine's lock. */

#include "room.h"

IGNIS__PRIVATE const char ignis__sequence_magic[8] = {'I', 'G', 'N', 'I', 'S', 'S', 'E', 'Q'};

/*  A file of a sequence that is read or written. */
typedef struct ignis__sequence_file {
    const char *path;
    ignis__op op;
    FILE *to;         /* NULL if it is read */
    ignis__load from; /* if it is read */
    int64_t at;       /* the next byte that is read */
    uint64_t hash;    /* of all bytes so far */
    char *page;       /* the bytes of a piece of device memory */
} ignis__sequence_file;

/*  Moves host memory to or from a file. */
static void ignis__sequence_file_host(ignis__sequence_file *f, void *data, int64_t size)
{
    const char *call = f->op.work.call;
    if (f->op.ok && f->to)
        f->op.ok = ignis__save_write(call, f->path, f->to, data, size);
    else if (f->op.ok)
        f->op.ok = ignis__load_read(call, &f->from, f->at, data, size);
    f->at += size;
    if (f->op.ok)
        f->hash = ignis__hash(f->hash, data, (size_t)size);
}

/*  Sets rows of a head in a page to zeros, from `used` on: of numbers, or of a quantised cache, whose scales follow
    the rows. size: bytes of the rows and scales. */
static void ignis__cell_clear(const ignis__model *model, char *cell, int64_t size, int used)
{
    const int type = model ? (int)model->cache_type : 0, left = IGNIS__PAGE - used;
    const int64_t row = type ? IGNIS__CACHE_ROW(type, model->head_dim) : size / IGNIS__PAGE;
    const int scale = type == IGNIS__CACHE_F8 ? 1 : 2;
    int64_t at;
    memset(cell + used * row, 0, (size_t)(left * row));
    for (at = row * IGNIS__PAGE; at < size; at += scale * IGNIS__PAGE)
        memset(cell + at + used * scale, 0, (size_t)(left * scale));
}

/*  Moves device memory to or from a file, at most a page at a time. Of each of `groups` parts of it, the rows from
    `used` on of IGNIS__PAGE are written as zeros: no text has computed them. model: of a page, or NULL. */
static void ignis__sequence_file_device(ignis__sequence_file *f, const ignis__model *model, ignis__address address,
                                        int64_t size, int groups, int used)
{
    int i;
    if (f->op.ok && f->to)
        f->op.ok = ignis__copy_to_host(&f->op.work, f->page, address, size);
    for (i = 0; f->op.ok && f->to && used < IGNIS__PAGE && i < groups; i++)
        ignis__cell_clear(model, f->page + i * (size / groups), size / groups, used);
    ignis__sequence_file_host(f, f->page, size);
    if (f->op.ok && !f->to)
        f->op.ok = ignis__copy_from_host(&f->op.work, address, f->page, size);
}

/*  Moves a whole array to or from a file, in pieces of `piece` bytes. */
static void ignis__sequence_file_array(ignis__sequence_file *f, ignis__array *array, int64_t piece)
{
    const int64_t bytes = ignis__array_bytes(array);
    const ignis__address address = ignis__op_write(&f->op, array);
    int64_t done, size;
    for (done = 0; f->op.ok && done < bytes; done += size) {
        size = bytes - done < piece ? bytes - done : piece;
        ignis__sequence_file_device(f, NULL, address + (ignis__address)done, size, 1, IGNIS__PAGE);
    }
}

/*  Returns the bytes of a page in a slab. */
static int64_t ignis__sequence_page_bytes(const ignis__engine *engine)
{
    return ignis__engine_page_elements(engine) * ignis__dtypes[engine->model->dtype].size;
}

/*  Moves all after the header to or from a file. The sequence has the pages. */
static void ignis__sequence_file_body(ignis__sequence_file *f, ignis__sequence *sequence,
                                      const ignis__sequence_header *header)
{
    ignis__engine *engine = sequence->engine;
    const int64_t bytes = ignis__sequence_page_bytes(engine);
    int g, slab, i;
    ignis__sequence_file_host(f, sequence->ids, header->length * (int64_t)sizeof *sequence->ids);
    ignis__sequence_file_host(f, sequence->in_chunk, header->length * (int64_t)sizeof *sequence->in_chunk);
    if (header->hidden)
        ignis__sequence_file_array(f, sequence->last_hidden, bytes);
    if (sequence->states)
        ignis__sequence_file_array(f, sequence->states, bytes);
    for (g = 0; f->op.ok && g < IGNIS__PAGE_GROUPS; g++) {
        const ignis__page_group *group = &engine->groups[g];
        const int slabs = group->layers * ignis__engine_slabs(engine);
        const ignis__address cache = group->layers ? ignis__op_write(&f->op, engine->caches[g]) : 0;
        for (slab = 0; f->op.ok && slab < slabs; slab++)
            for (i = header->first[g]; f->op.ok && i < header->pages[g]; i++) {
                const int64_t page = (int64_t)slab * group->pages + sequence->tables[g].page[i];
                ignis__sequence_file_device(
                    f, engine->model, cache + (ignis__address)(page * bytes), bytes, engine->model->kv_heads,
                    header->cached - i * IGNIS__PAGE < IGNIS__PAGE ? header->cached - i * IGNIS__PAGE
                                                                   : (int)IGNIS__PAGE);
            }
    }
}

/*  Returns the bytes of a file with this header, whose values are in their ranges. */
static int64_t ignis__sequence_file_bytes(const ignis__sequence *sequence, const ignis__sequence_header *header)
{
    const ignis__engine *engine = sequence->engine;
    int64_t bytes =
        (int64_t)sizeof *header + header->length * (int64_t)(sizeof *sequence->ids + sizeof *sequence->in_chunk);
    int g;
    if (header->hidden)
        bytes += engine->sum->shape.dim[1] * ignis__dtypes[engine->sum->dtype].size;
    if (sequence->states)
        bytes += ignis__array_bytes(sequence->states);
    for (g = 0; g < IGNIS__PAGE_GROUPS; g++)
        bytes += (int64_t)engine->groups[g].layers * ignis__engine_slabs(engine) *
                 (header->pages[g] - header->first[g]) * ignis__sequence_page_bytes(engine);
    return bytes;
}

/*  Adds an array of weights to a hash: its shape, its type, and its first bytes. */
static uint64_t ignis__identity_add(ignis__op *op, uint64_t hash, ignis__array *array)
{
    char bytes[512];
    int64_t size = ignis__array_bytes(array), numbers[2 + IGNIS_MAX_DIMS], i;
    size = size < (int64_t)sizeof bytes ? size : (int64_t)sizeof bytes;
    memset(bytes, 0, sizeof bytes);
    memset(numbers, 0, sizeof numbers);
    numbers[0] = array->dtype;
    for (i = 0; i < array->blocks.count; i++)
        numbers[1] = numbers[1] * 64 + array->blocks.part[i].type + 1;
    numbers[1] += array->blocks.rounds_rows ? (int64_t)1 << 32 : 0;
    for (i = 0; i < array->shape.ndim; i++)
        numbers[2 + i] = array->shape.dim[i];
    op->ok = op->ok && ignis__copy_to_host(&op->work, bytes, ignis__op_read(op, array), size);
    return ignis__hash(ignis__hash(hash, numbers, sizeof numbers), bytes, sizeof bytes);
}

/*  Returns a hash of an engine's model: what the keys and values of a token depend on. */
static uint64_t ignis__engine_identity(ignis__op *op, ignis__engine *engine)
{
    const ignis__model *m = engine->model;
    ignis__array **array, **end = (ignis__array **)(void *)(engine->layer + m->layers);
    int32_t numbers[21];
    double reals[4];
    uint64_t hash = IGNIS__HASH_START;
    int i;
    numbers[0] = (int32_t)m->family, numbers[1] = m->layers, numbers[2] = m->heads, numbers[3] = m->kv_heads;
    numbers[4] = m->head_dim, numbers[5] = m->hidden, numbers[6] = m->inner, numbers[7] = m->vocab;
    numbers[8] = m->experts, numbers[9] = m->chosen, numbers[10] = m->latent, numbers[11] = m->rotary;
    numbers[12] = m->value_dim, numbers[13] = m->delta_heads, numbers[14] = m->delta_conv;
    numbers[15] = (int32_t)m->dtype, numbers[16] = m->parallel.size, numbers[17] = m->parallel.rank;
    numbers[18] = engine->groups[0].layers, numbers[19] = engine->groups[1].layers,
    numbers[20] = (int32_t)m->cache_type;
    hash = ignis__hash(hash, numbers, sizeof numbers);
    reals[0] = m->eps, reals[1] = m->attention_factor, reals[2] = m->softcap, reals[3] = m->attention_scale;
    hash = ignis__hash(hash, reals, sizeof reals);
    hash = ignis__hash(hash, engine->frequencies, sizeof engine->frequencies);
    for (i = 0; i < m->layers; i++)
        hash = ignis__hash(hash, &m->layer[i].window, sizeof m->layer[i].window);
    for (array = &engine->embedding; array <= &engine->head; array++)
        hash = *array ? ignis__identity_add(op, hash, *array) : hash;
    for (array = (ignis__array **)(void *)engine->layer; array < end; array++)
        hash = *array ? ignis__identity_add(op, hash, *array) : hash;
    return hash;
}

/*  Returns the checksum of a file whose bytes after the header have this hash. */
static uint64_t ignis__sequence_checksum(const ignis__sequence_header *header, uint64_t body)
{
    ignis__sequence_header h = *header;
    h.checksum = body;
    return ignis__hash(IGNIS__HASH_START, &h, sizeof h);
}

/*  Begins work on a file. False, and reported, on failure. */
static bool ignis__sequence_file_begin(ignis__sequence_file *f, const char *call, const char *path,
                                       const ignis__engine *engine)
{
    memset(f, 0, sizeof *f);
    f->path = path;
    f->hash = IGNIS__HASH_START;
    f->page = (char *)ignis__alloc_for(call, (size_t)ignis__sequence_page_bytes(engine));
    if (f->page && ignis__op_begin_on_device(&f->op, call, engine->device))
        return true;
    ignis__free(f->page);
    return false;
}

/*  Describes a sequence. */
static ignis__sequence_header ignis__sequence_describe(ignis__op *op, const ignis__sequence *sequence)
{
    ignis__sequence_header h;
    int g, i;
    memset(&h, 0, sizeof h); /* its bytes have a checksum */
    memcpy(h.magic, ignis__sequence_magic, sizeof h.magic);
    h.version = IGNIS__SEQUENCE_VERSION;
    h.layers = sequence->model->layers;
    h.hidden_elements = sequence->model->hidden;
    h.vocab = sequence->model->vocab;
    h.model = ignis__engine_identity(op, sequence->engine);
    h.length = sequence->length;
    h.cached = sequence->cached;
    h.stale = sequence->stale || sequence->cached < sequence->length - 1;
    if (h.stale)
        h.cached = sequence->length - 1;
    h.hidden = sequence->last_hidden && sequence->length > 0 && sequence->last_hidden_length == sequence->length;
    h.log_prob = sequence->log_prob;
    for (i = 0; i < 2; i++)
        h.state_tokens[i] = sequence->state_tokens[i] <= h.cached && !h.stale ? sequence->state_tokens[i] : 0;
    for (g = 0; g < IGNIS__PAGE_GROUPS && !h.stale && h.cached > 0; g++) {
        h.first[g] = sequence->tables[g].first;
        h.pages[g] = sequence->engine->groups[g].layers ? (int32_t)ignis__ceil_div(h.cached, IGNIS__PAGE) : 0;
    }
    h.bytes = ignis__sequence_file_bytes(sequence, &h);
    return h;
}

/*  Writes a locked sequence. */
static bool ignis__sequence_write(const char *call, ignis__sequence *sequence, const char *path)
{
    ignis__replacement r;
    ignis__sequence_header header;
    ignis__sequence_file f;
    bool ok;
    if (sequence->lora)
        return ignis__fail_false(IGNIS_DIAG_LORA_STATE, call,
                                 "the sequence is computed with adapters; a file has sequences without adapters");
    if (!ignis__replace_begin(&r, call, path))
        return false;
    ok = ignis__sequence_file_begin(&f, call, path, sequence->engine);
    if (ok) {
        f.to = r.file;
        header = ignis__sequence_describe(&f.op, sequence);
        f.op.ok = f.op.ok && ignis__save_write(call, path, f.to, &header, sizeof header);
        ignis__sequence_file_body(&f, sequence, &header);
        header.checksum = ignis__sequence_checksum(&header, f.hash);
        if (f.op.ok && fseek(f.to, 0, SEEK_SET) != 0)
            f.op.ok = ignis__file_fail(call, path, "written");
        f.op.ok = f.op.ok && ignis__save_write(call, path, f.to, &header, sizeof header);
        ignis__free(f.page);
        ok = ignis__engine_leave(&f.op);
    }
    return ignis__replace_end(&r, ok);
}

/*  Checks that a header is of a file for the model of a sequence, and that it is consistent. False, and reported, if
    not. */
static bool ignis__sequence_header_check(ignis__sequence_file *f, const ignis__sequence *sequence,
                                         const ignis__sequence_header *h)
{
    const char *call = f->op.work.call;
    const ignis__engine *engine = sequence->engine;
    ignis__sequence_header own;
    bool sound = true;
    int g, i;
    if (memcmp(h->magic, ignis__sequence_magic, sizeof h->magic) != 0)
        return ignis__fail_false(IGNIS_DIAG_SEQUENCE_FILE, call, "'%s' does not begin with %.8s", f->path,
                                 ignis__sequence_magic);
    if (h->version != IGNIS__SEQUENCE_VERSION)
        return ignis__fail_false(IGNIS_DIAG_SEQUENCE_FILE, call,
                                 "'%s' has version %u; expected %d, or ignis_sequence_save "
                                 "of this version of Ignis writes it again",
                                 f->path, (unsigned)h->version, (int)IGNIS__SEQUENCE_VERSION);
    own = ignis__sequence_describe(&f->op, sequence);
    if (!f->op.ok)
        return false;
    if (h->model != own.model)
        return ignis__fail_false(
            IGNIS_DIAG_SEQUENCE_MODEL, call,
            "'%s' is of a model of %d layers, %d elements and %d tokens with the hash %016llx; this "
            "one has %d layers, %d elements, %d tokens and the hash %016llx",
            f->path, h->layers, h->hidden_elements, h->vocab, (unsigned long long)h->model, own.layers,
            own.hidden_elements, own.vocab, (unsigned long long)own.model);
    if (h->length > engine->context)
        return ignis__fail_false(IGNIS_DIAG_CONTEXT_FULL, call,
                                 "'%s' has %d tokens, which do not fit the context of %d", f->path, h->length,
                                 engine->context);
    sound = h->length >= 0 && h->cached >= 0 && h->cached <= h->length && h->cached >= h->length - 1 &&
            (h->hidden == 0 || (h->hidden == 1 && h->length > 0)) &&
            (h->stale == 0 || (h->stale == 1 && h->cached > 0));
    for (i = 0; sound && i < 2; i++)
        sound = h->state_tokens[i] >= 0 && h->state_tokens[i] <= (sequence->states ? h->cached : 0);
    for (g = 0; sound && g < IGNIS__PAGE_GROUPS; g++) {
        const ignis__page_group *group = &engine->groups[g];
        const int pages = group->layers && !h->stale ? (int)ignis__ceil_div(h->cached, IGNIS__PAGE) : 0;
        const int first =
            g == IGNIS__PAGES_OF_WINDOWS && pages ? ignis__window_begin(group, h->cached - 1, false) / IGNIS__PAGE : 0;
        sound = h->pages[g] == pages && h->first[g] >= 0 && h->first[g] <= first;
    }
    if (!sound)
        return ignis__fail_false(IGNIS_DIAG_SEQUENCE_FILE, call,
                                 "'%s' is damaged: %d tokens, %d of them in %d and %d pages from page %d and %d on",
                                 f->path, h->length, h->cached, h->pages[0], h->pages[1], h->first[0], h->first[1]);
    if (h->bytes != f->from.size || h->bytes != ignis__sequence_file_bytes(sequence, h))
        return ignis__fail_false(IGNIS_DIAG_SEQUENCE_FILE, call, "'%s' has %lld bytes; expected %lld for %d tokens",
                                 f->path, (long long)f->from.size, (long long)ignis__sequence_file_bytes(sequence, h),
                                 h->length);
    return true;
}

/*  Gives an empty sequence what a header says, without the contents. False, and reported, if there is no memory. */
static bool ignis__sequence_take_header(const char *call, ignis__sequence *sequence, const ignis__sequence_header *h)
{
    ignis__engine *engine = sequence->engine;
    int g;
    for (g = 0; g < IGNIS__PAGE_GROUPS; g++)
        if (!ignis__engine_has_pages(call, engine, g, h->pages[g] - h->first[g]))
            return false;
    if (h->hidden &&
        !ignis__engine_alloc(call, engine, &sequence->last_hidden, 1, engine->sum->shape.dim[1], engine->sum->dtype))
        return false;
    for (g = 0; g < IGNIS__PAGE_GROUPS; g++) {
        ignis__page_table *table = &sequence->tables[g];
        for (table->first = table->count = table->uploaded = h->first[g]; table->count < h->pages[g]; table->count++)
            table->page[table->count] = ignis__page_take(&engine->groups[g]);
    }
    return true;
}

/*  Reads a file into an empty locked sequence. False, and reported, if it cannot be read; then the sequence has any
    contents. */
static bool ignis__sequence_read(const char *call, ignis__sequence *sequence, ignis__sequence_file *f)
{
    ignis__sequence_header h;
    const unsigned char *in_chunk = (const unsigned char *)sequence->in_chunk;
    uint64_t checksum;
    int i;
    bool sound = true;
    if (f->from.size < (int64_t)sizeof h)
        return ignis__fail_false(IGNIS_DIAG_SEQUENCE_FILE, call, "'%s' has %lld bytes; expected at least %d", f->path,
                                 (long long)f->from.size, (int)sizeof h);
    f->op.ok = ignis__load_read(call, &f->from, 0, &h, sizeof h);
    f->at = sizeof h;
    if (!f->op.ok || !ignis__sequence_header_check(f, sequence, &h) || !ignis__sequence_take_header(call, sequence, &h))
        return false;
    ignis__sequence_file_body(f, sequence, &h);
    checksum = ignis__sequence_checksum(&h, f->hash);
    if (!f->op.ok)
        return false;
    if (checksum != h.checksum)
        return ignis__fail_false(IGNIS_DIAG_SEQUENCE_FILE, call,
                                 "'%s' is damaged: it has the checksum %016llx; expected %016llx", f->path,
                                 (unsigned long long)checksum, (unsigned long long)h.checksum);
    for (i = 0; sound && i < h.length; i++)
        sound = sequence->ids[i] >= 0 && sequence->ids[i] < sequence->model->vocab && in_chunk[i] <= 1;
    if (!sound)
        return ignis__fail_false(IGNIS_DIAG_SEQUENCE_FILE, call, "'%s' is damaged: token %d is %d, computed in way %d",
                                 f->path, i - 1, (int)sequence->ids[i - 1], (int)in_chunk[i - 1]);
    sequence->length = h.length;
    sequence->cached = h.cached;
    sequence->stale = h.stale != 0;
    sequence->last_hidden_length = h.hidden ? h.length : 0;
    sequence->log_prob = h.log_prob;
    for (i = 0; i < 2; i++)
        sequence->state_tokens[i] = h.state_tokens[i];
    return true;
}

IGNIS_API ignis_status ignis_sequence_save(ignis_sequence handle, const char *path)
{
    static const char call[] = "ignis_sequence_save";
    ignis__sequence *sequence = ignis__sequence_enter(call, handle);
    bool ok;
    if (!sequence)
        return ignis__failed();
    ok = ignis__check_not_null(call, "path", path) && ignis__sequence_write(call, sequence, path);
    ignis__sequence_leave(call, sequence);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_sequence ignis_sequence_load(ignis_model model, const char *path)
{
    static const char call[] = "ignis_sequence_load";
    ignis_sequence none = IGNIS__ZERO, handle = ignis__sequence_new(call, model);
    ignis__sequence *sequence = handle.id ? ignis__sequence_enter(call, handle) : NULL;
    ignis__sequence_file f;
    bool ok;
    if (!sequence)
        return none;
    ok = ignis__check_not_null(call, "path", path);
    if (ok && sequence->lora)
        ok = ignis__fail_false(IGNIS_DIAG_LORA_STATE, call,
                               "adapters are set on the model; a file has sequences without adapters");
    ok = ok && ignis__sequence_file_begin(&f, call, path, sequence->engine);
    if (ok) {
        f.op.ok = ignis__load_open_file(call, path, &f.from);
        if (f.op.ok) {
            f.op.ok = ignis__sequence_read(call, sequence, &f) &&
                      !IGNIS__CUDA_FAILED(call, sequence->engine->device, cuStreamSynchronize, (f.op.work.stream));
            ignis__load_close(&f.from);
        }
        ignis__free(f.page);
        ok = ignis__engine_leave(&f.op);
    }
    if (!ok)
        ignis__handle_kill(sequence);
    ignis__sequence_leave(call, sequence);
    return ok ? handle : none;
}
