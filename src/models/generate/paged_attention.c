#include "room.h"

/*  Turns q where it is, and writes k and v to the cache. frequencies: [256]; null: nothing turns. */
IGNIS__PRIVATE void ignis__step_cache(ignis__op *op, int count, ignis_dtype dtype, ignis__generate_cache *p,
                                      const double *frequencies)
{
    static const double none[IGNIS__ROPE_HALF] = {0};
    const double *table = frequencies ? frequencies : none;
    float floats[IGNIS__ROPE_HALF];
    /* a block has 8 heads at least, one for each warp; fewer blocks where rows alone fill the device twice */
    int64_t heads = p->heads + 2 * (int64_t)p->kv_heads,
            blocks = ignis__ceil_div(2 * op->work.device->info.multiprocessors, count);
    int64_t share = ignis__ceil_div(heads, ignis__clamp(blocks, 1, ignis__ceil_div(heads, 8)));
    void *params[2];
    params[0] = p;
    params[1] = dtype == IGNIS_F64 ? (void *)(uintptr_t)table : ignis__rope_round_frequencies(floats, table);
    p->turns = frequencies != NULL;
    ignis__op_launch(op, IGNIS__BUILTIN_GENERATE_CACHE, dtype, NULL, count, ignis__ceil_div(heads, share), 1, 256, 1,
                     p->q_weight || p->k_weight ? (size_t)share * (dtype == IGNIS_F64 ? 8 : 4) : 0, params);
}

/*  Bytes of wide numbers that the attention of so many rows takes. */
IGNIS__PRIVATE int64_t ignis__paged_numbers(const ignis__paged *p, int rows)
{
    return (int64_t)rows * p->heads * p->splits * (2 + p->head_dim);
}

/*  Records what other devices, or other numbers of rows, take for attention. */
IGNIS__COLD static void ignis__step_attention_request(const ignis__op *op, ignis_dtype dtype, int group, int head_dim,
                                                      const char *plain, const char *with_clusters)
{
    if (!op->ok || !ignis__requests.path[0] || (dtype != IGNIS_F16 && dtype != IGNIS_BF16))
        return;
    ignis__record_builtin(group < 2 ? IGNIS__BUILTIN_PAGED_1 : IGNIS__BUILTIN_PAGED_2, dtype, plain, 0, 79);
    ignis__record_builtin(IGNIS__BUILTIN_PAGED_MMA, dtype, plain, 80, IGNIS__EVERY_ARCH);
    ignis__record_builtin(IGNIS__BUILTIN_PAGED_MMA, dtype, with_clusters, 90, IGNIS__EVERY_ARCH);
    if (head_dim <= IGNIS__MANY_HEAD_DIM)
        ignis__record_builtin(IGNIS__BUILTIN_PAGED_MANY, dtype, plain, 80, IGNIS__EVERY_ARCH);
}

/*  The size of heads of the program that does attention over pages for heads of this one. */
IGNIS__PRIVATE int ignis__paged_head_dim(int head_dim) { return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256; }

/*  Attention of rows, of which the scratch memory has room for so many at a time. */
IGNIS__PRIVATE void ignis__step_attention(ignis__op *op, int count, int at_a_time, ignis_dtype dtype,
                                          const ignis__paged *paged)
{
    /* attention_paged_mma.cu has the same: heads and teams of a block, blocks of a cluster, and of a multiprocessor; and attention_paged_many.cu:
       elements of a row for all warps that multiply, and the other threads */
    enum { HEADS = 8, CLUSTER = 8, TEAMS = 2, ELEMENTS = 512, OTHERS = 64 };
    const ignis__device *device = op->work.device;
    ignis__paged p = *paged;
    int group = p.heads / p.kv_heads, size = (int)ignis__dtypes[dtype].size, some;
    const int head_dim = ignis__paged_head_dim(p.head_dim);
    bool mma = size == 2 && device->info.compute_major >= 8, clusters, clustered, many;
    int heads = mma ? (int)HEADS : group < 2 ? 1 : 2;
    int64_t groups = ignis__ceil_div(group, heads) * p.kv_heads, blocks;
    ignis__builtin builtin = mma ? IGNIS__BUILTIN_PAGED_MMA : (ignis__builtin)((int)IGNIS__BUILTIN_PAGED_1 + heads - 1);
    size_t arrivals, tiles = 2 * ELEMENTS * (2 * IGNIS__SPLIT + HEADS);
    char plain[32], with_clusters[64];
    void *params[] = {&p};
    arrivals = 8 * IGNIS__SPLITS * (size_t)(HEADS + HEADS * head_dim / CLUSTER / 2);
    snprintf(plain, sizeof plain, "-DIGNIS_HEAD_DIM=%d", head_dim);
    snprintf(with_clusters, sizeof with_clusters, "%s -DIGNIS_CLUSTERS=1", plain);
    ignis__step_attention_request(op, dtype, group, head_dim, plain, with_clusters);
    clusters = mma && device->clusters && ignis__variant_exists(device, builtin, dtype, with_clusters);
    many = mma && head_dim <= IGNIS__MANY_HEAD_DIM && tiles + 4096 <= (size_t)device->info.shared_per_block &&
           ignis__variant_exists(device, IGNIS__BUILTIN_PAGED_MANY, dtype, plain);
    for (; op->ok && count > 0; count -= some) {
        some = count < at_a_time ? count : at_a_time;
        clustered = clusters && 2 * groups * some * CLUSTER <= device->info.multiprocessors; /* more gain nothing */
        blocks = (head_dim == 64    ? 5
                  : head_dim == 128 ? 3
                                    : 2) *
                 device->info.multiprocessors / (groups * some); /* that run at once */
        if (!mma || blocks < 3)
            blocks = ignis__ceil_div(8 * device->info.multiprocessors, groups * some);
        blocks = clustered ? (int64_t)CLUSTER : ignis__clamp(blocks, 1, p.splits);
        p.count = some;
        if (many && 2 * groups * some >= 5 * device->info.multiprocessors)
            ignis__op_launch(op, IGNIS__BUILTIN_PAGED_MANY, dtype, plain, device->info.multiprocessors, 1, 1,
                             (unsigned)(32 * ELEMENTS / head_dim + OTHERS), 1, tiles, params);
        else
            ignis__op_launch(op, builtin, dtype, clustered ? with_clusters : plain, blocks, groups, some,
                             clustered ? TEAMS * 128 : 128, 1, clustered ? arrivals : 0, params);
        p.q += (ignis__address)((int64_t)some * p.q_row * size);
        p.out += (ignis__address)((int64_t)some * p.heads * p.head_dim * size);
        p.rows += sizeof(ignis__generate_row) * (ignis__address)some;
    }
}

IGNIS__PRIVATE void ignis__step_draw(ignis__op *op, int count, ignis__draws draws, ignis__draw *p)
{
    const ignis_dtype only = IGNIS_F16; /* one program is for all */
    int64_t blocks = ignis__clamp(2 * op->work.device->info.multiprocessors / count, 1, IGNIS__DRAW_BLOCKS);
    void *params[] = {p};
    ignis__op_launch(op, IGNIS__BUILTIN_GENERATE_DRAW, only, NULL, IGNIS__DRAW_PARTS, count, 1, 256, 1, 0, params);
    if (draws != IGNIS__DRAWS_CUT)
        return;
    ignis__op_launch(op, IGNIS__BUILTIN_GENERATE_DRAW_BINS, only, NULL, IGNIS__DRAW_PARTS, count, 1, 256, 1, 0, params);
    ignis__op_launch(op, IGNIS__BUILTIN_GENERATE_DRAW_CUT, only, NULL, blocks, count, 1, 512, 1, 0, params);
}

/*  Attention of the rows of a piece of a prompt, which ends behind `end` tokens, by the kernels of ignis_sdpa: over keys and values in `gathered`,
    [2, tokens, kv_heads * head_dim], where those of the piece are by now. */
IGNIS__PRIVATE void ignis__step_attention_many(ignis__op *op, int count, int end, const ignis__paged *paged,
                                               ignis__array *gathered)
{
    const ignis_dtype dtype = gathered->dtype;
    int64_t width = (int64_t)paged->kv_heads * paged->head_dim, size = ignis__dtypes[dtype].size;
    ignis__address k_to = ignis__op_write(op, gathered), v_to = k_to + (ignis__address)(gathered->numel / 2 * size),
                   k = paged->k, v = paged->v, row = paged->rows;
    int kv_heads = paged->kv_heads, head_dim = paged->head_dim, before = end - count;
    void *params[] = {&k_to, &v_to, &k, &v, &row, &before, &kv_heads, &head_dim};
    ignis__attention p;
    if (before > 0)
        ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_GATHER, dtype,
                             ignis__ceil_div(before * width / ignis__pack_elements(dtype), 256), 256, params);
    memset(&p, 0, sizeof p);
    p.q.data = paged->q;
    p.q.row = paged->q_row;
    p.k.data = k_to;
    p.v.data = v_to;
    p.k.row = p.v.row = width;
    p.out.data = paged->out;
    p.out.row = (int64_t)paged->heads * head_dim;
    p.q.head = p.k.head = p.v.head = p.out.head = head_dim;
    p.batches = 1;
    p.heads = paged->heads;
    p.kv_heads = kv_heads;
    p.head_dim = head_dim;
    p.sq = count;
    p.sk = p.window = end;
    p.causal = 1;
    p.scale = paged->scale;
    ignis__sdpa_run(op, dtype, &p);
}
