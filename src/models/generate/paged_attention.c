/*  models/generate/paged_attention.c - writes to the KV cache, attention over pages, sampling: the launches

    Keys of a row are divided into splits by the row's position alone, so the bits of a row do not depend on the
    batch. A chunk of a prompt gathers the keys and values of its sequence, and takes the kernels of ignis_sdpa.
    May use: kernel_params.c, >>attention. Locks: the caller holds the engine's lock. */

#include "room.h"

/*  Rotates q in place, and writes k, rotated, and v to the KV cache. frequencies: [256]; NULL if nothing rotates. */
IGNIS__PRIVATE void ignis__kv_cache_append(ignis__op *op, int count, ignis_dtype dtype, ignis__generate_cache *p,
                                           const double *frequencies)
{
    static const double none[IGNIS__ROPE_HALF] = {0};
    const double *table = frequencies ? frequencies : none;
    float floats[IGNIS__ROPE_HALF];
    /* a block has at least 8 heads, one per warp; fewer blocks if the rows alone fill the device twice */
    int64_t heads = p->heads + 2 * (int64_t)p->kv_heads,
            blocks = ignis__ceil_div(2 * op->work.device->info.multiprocessors, count);
    int64_t share = ignis__ceil_div(heads, ignis__clamp(blocks, 1, ignis__ceil_div(heads, 8)));
    void *params[2];
    params[0] = p;
    params[1] = dtype == IGNIS_F64 ? (void *)(uintptr_t)table : ignis__rope_round_frequencies(floats, table);
    p->turns = frequencies != NULL;
    ignis__op_launch(op, IGNIS__BUILTIN(GENERATE_CACHE), dtype, NULL,
                     ignis__launch_grid(count, ignis__ceil_div(heads, share), 1, 256, 1,
                                        p->q_weight || p->k_weight ? (size_t)share * (dtype == IGNIS_F64 ? 8 : 4) : 0),
                     params);
}

/*  Returns the elements of scratch, in the wide type, that attention of `rows` rows needs. */
IGNIS__PRIVATE int64_t ignis__paged_scratch_elements(const ignis__paged *p, int rows)
{
    return (int64_t)rows * p->heads * p->splits * (2 + p->head_dim);
}

/*  Records the kernels that other devices, or other numbers of rows, take for attention. */
IGNIS__COLD static void ignis__paged_attention_record(const ignis__op *op, ignis_dtype dtype, int group, bool many,
                                                      const char *plain, const char *with_clusters)
{
    if (!op->ok || !ignis__requests.path[0] || (dtype != IGNIS_F16 && dtype != IGNIS_BF16))
        return;
    ignis__record_builtin(group < 2 ? IGNIS__BUILTIN(PAGED_1) : IGNIS__BUILTIN(PAGED_2), dtype, plain, 0, 79);
    ignis__record_builtin(IGNIS__BUILTIN(PAGED_MMA), dtype, plain, 80, IGNIS__EVERY_ARCH);
    ignis__record_builtin(IGNIS__BUILTIN(PAGED_MMA), dtype, with_clusters, 90, IGNIS__EVERY_ARCH);
    if (many)
        ignis__record_builtin(IGNIS__BUILTIN(PAGED_MANY), dtype, plain, 80, IGNIS__EVERY_ARCH);
}

/*  Returns the head size of the program that serves heads of this size. */
IGNIS__PRIVATE int ignis__paged_head_dim(int head_dim) { return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256; }

/*  Launches attention of `count` rows. The scratch has room for `at_a_time` rows, so more rows take several launches.
    */
IGNIS__PRIVATE void ignis__paged_attention(ignis__op *op, int count, int at_a_time, ignis_dtype dtype,
                                           const ignis__paged *paged)
{
    /* attention_paged_mma.cu has the same: HEADS and TEAMS of a block, blocks of a CLUSTER, blocks of an SM.
       attention_paged_many.cu: ELEMENTS of a row for all warps that multiply, or with other types than numbers WARPS;
       OTHERS: the other threads, with other types TYPED_OTHERS; ROWS: bytes for what it knows of rows */
    enum { HEADS = 8, CLUSTER = 8, TEAMS = 2, ELEMENTS = 512, WARPS = 10, OTHERS = 128, TYPED_OTHERS = 64 };
    enum { ROWS = IGNIS__STEP_ROWS * 24 + 1024 };
    const ignis__device *device = op->work.device;
    ignis__paged p = *paged;
    int group = p.heads / p.kv_heads, size = (int)ignis__dtypes[dtype].size, rows;
    const int head_dim = ignis__paged_head_dim(p.head_dim), warps = p.type ? (int)WARPS : ELEMENTS / head_dim,
              others = p.type ? (int)TYPED_OTHERS : (int)OTHERS;
    const int row = p.type ? IGNIS__CACHE_ROW(p.type, head_dim) + IGNIS__CACHE_SCALES(p.type, head_dim) : 2 * head_dim;
    bool mma = size == 2 && device->info.compute_major >= 8, clusters, clustered, use_many;
    int heads = mma ? (int)HEADS : group < 2 ? 1 : 2;
    int64_t groups = ignis__ceil_div(group, heads) * p.kv_heads, blocks;
    ignis__builtin builtin = mma          ? IGNIS__BUILTIN(PAGED_MMA)
                             : heads == 1 ? IGNIS__BUILTIN(PAGED_1)
                                          : IGNIS__BUILTIN(PAGED_2);
    size_t arrivals, tiles = (size_t)(warps * (2 * IGNIS__SPLIT * row + HEADS * 2 * head_dim));
    const bool ranged = p.window > 0 || p.softcap > 0 || p.sinks; /* programs of their own */
    char plain[64], with_clusters[96];
    void *params[] = {&p};
    arrivals = 8 * IGNIS__SPLITS * (size_t)(HEADS + HEADS * head_dim / CLUSTER / 2);
    snprintf(plain, sizeof plain, "-DIGNIS_HEAD_DIM=%d%s", head_dim, ranged ? " -DIGNIS_WINDOW=1" : "");
    if (p.type)
        snprintf(plain + strlen(plain), sizeof plain - strlen(plain), " -DIGNIS_CACHE_TYPE=%d", p.type);
    snprintf(with_clusters, sizeof with_clusters, "%s -DIGNIS_CLUSTERS=1", plain);
    ignis__paged_attention_record(op, dtype, group, head_dim <= IGNIS__MANY_HEAD_DIM && !ranged, plain, with_clusters);
    clusters = mma && device->clusters && ignis__variant_exists(device, builtin, dtype, with_clusters);
    use_many = mma && !ranged && head_dim <= IGNIS__MANY_HEAD_DIM &&
               tiles + ROWS <= (size_t)device->info.shared_per_block &&
               ignis__variant_exists(device, IGNIS__BUILTIN(PAGED_MANY), dtype, plain);
    for (; op->ok && count > 0; count -= rows) {
        rows = count < at_a_time ? count : at_a_time;
        /* more rows gain nothing */
        clustered = clusters && 2 * groups * rows * CLUSTER <= device->info.multiprocessors;
        /* blocks: as many as run at once */
        blocks = (head_dim == 64 ? 5 : head_dim == 128 ? 3 : 2) * device->info.multiprocessors / (groups * rows);
        if (!mma || blocks < 3)
            blocks = ignis__ceil_div(8 * device->info.multiprocessors, groups * rows);
        blocks = clustered ? (int64_t)CLUSTER : ignis__clamp(blocks, 1, p.splits);
        p.count = rows;
        if (use_many && 2 * groups * rows >= 5 * device->info.multiprocessors)
            ignis__op_launch(op, IGNIS__BUILTIN(PAGED_MANY), dtype, plain,
                             ignis__launch_row(device->info.multiprocessors, (unsigned)(32 * warps + others), tiles),
                             params);
        else
            ignis__op_launch(
                op, builtin, dtype, clustered ? with_clusters : plain,
                ignis__launch_grid(blocks, groups, rows, clustered ? TEAMS * 128 : 128, 1, clustered ? arrivals : 0),
                params);
        p.q += (ignis__address)((int64_t)rows * p.q_row * size);
        p.out += (ignis__address)((int64_t)rows * p.heads * p.head_dim * size);
        p.rows += sizeof(ignis__generate_row) * (ignis__address)rows;
    }
}

IGNIS__PRIVATE void ignis__sampling_launch(ignis__op *op, int count, ignis__sampling_kind draws, ignis__draw *p)
{
    const ignis_dtype only = IGNIS_F16; /* one program serves all dtypes */
    int64_t blocks = ignis__clamp(2 * op->work.device->info.multiprocessors / count, 1, IGNIS__DRAW_BLOCKS);
    void *params[] = {p};
    ignis__op_launch(op, IGNIS__BUILTIN(GENERATE_DRAW), only, NULL,
                     ignis__launch_grid(IGNIS__DRAW_PARTS, count, 1, 256, 1, 0), params);
    if (draws != IGNIS__SAMPLING_FILTERED)
        return;
    ignis__op_launch(op, IGNIS__BUILTIN(GENERATE_DRAW_BINS), only, NULL,
                     ignis__launch_grid(IGNIS__DRAW_PARTS, count, 1, 256, 1, 0), params);
    ignis__op_launch(op, IGNIS__BUILTIN(GENERATE_DRAW_CUT), only, NULL, ignis__launch_grid(blocks, count, 1, 512, 1, 0),
                     params);
}

/*  Launches attention of a chunk's rows by the kernels of ignis_sdpa. end: tokens of the sequence up to the end of
    the chunk. gathered: [2, tokens, kv_heads * head_dim]; the chunk's own keys and values are there already. Of those
    before the chunk it gathers what the first row sees: no kernel uses values before the windows of all rows. */
IGNIS__PRIVATE void ignis__chunk_attention(ignis__op *op, int count, int end, const ignis__paged *paged,
                                           ignis__array *gathered)
{
    const ignis_dtype dtype = gathered->dtype;
    int64_t width = (int64_t)paged->kv_heads * paged->head_dim, size = ignis__dtypes[dtype].size;
    ignis__address k_to = ignis__op_write(op, gathered), v_to = k_to + (ignis__address)(gathered->numel / 2 * size),
                   k = paged->k, v = paged->v, row = paged->rows;
    int kv_heads = paged->kv_heads, head_dim = paged->head_dim, before = end - count, table = paged->table,
        type = paged->type;
    int first = paged->window > 0 && paged->window <= before ? before - paged->window + 1 : 0;
    void *params[] = {&k_to, &v_to, &k, &v, &row, &table, &first, &before, &kv_heads, &head_dim, &type};
    ignis__attention p;
    if (before > first)
        ignis__op_launch_row(op, IGNIS__BUILTIN(GENERATE_GATHER), dtype,
                             ignis__ceil_div((before - first) * width / ignis__pack_elements(dtype), 256), 256, params);
    memset(&p, 0, sizeof p);
    p.params.q.data = paged->q;
    p.params.q.row = paged->q_row;
    p.params.k.data = k_to;
    p.params.v.data = v_to;
    p.params.k.row = p.params.v.row = width;
    p.params.out.data = paged->out;
    p.params.out.row = (int64_t)paged->heads * head_dim;
    p.params.q.head = p.params.k.head = p.params.v.head = p.params.out.head = head_dim;
    p.params.batches = 1;
    p.params.heads = paged->heads;
    p.params.kv_heads = kv_heads;
    p.params.head_dim = head_dim;
    p.params.sq = count;
    p.params.sk = end;
    p.params.window = paged->window > 0 && paged->window < end ? paged->window : end;
    p.params.softcap = paged->softcap;
    p.params.causal = 1;
    p.params.scale = paged->scale;
    p.params.sinks = paged->sinks;
    ignis__sdpa_run(op, dtype, &p);
}
