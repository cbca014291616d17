/*  >>ops.attention.select - scaled dot-product attention: structs of the kernels, and the choice of a kernel

    The parts: select, operands, backward, sdpa, sdpa_packed, decode. Kernels: ATTENTION (plain), _MMA,
    _HOPPER (wgmma).
    Uses: the ops operation and row_launch. Invariant: shapes, options and device decide the kernel, never the
    data. */

#include "room.h"

/*  For profiles: tells that the next kernel reads or writes like_q tensors as large as q and like_k as large
    as k, and computes `products` products of [sq, sk, head_dim]. Only visible keys count; lengths on the
    device are not known. */
IGNIS__PRIVATE void ignis__attention_cost(const ignis__attention *p, ignis_dtype dtype, int like_q, int like_k,
                                          int products)
{
    double pairs = (double)p->params.batches * p->params.heads, size = ignis__dtypes[dtype].size, seen = 0;
    int i, place, first, last;
    if (!ignis__profiling())
        return;
    for (i = 0; i < p->params.sq; i++) {
        place = i + p->params.sk - p->params.sq;
        first = place >= p->params.window ? place - p->params.window + 1 : 0;
        last = p->params.causal                              ? place
               : p->params.sk - 1 - place < p->params.window ? p->params.sk - 1
                                                             : place + p->params.window - 1;
        seen += last >= first ? last - first + 1 : 0;
    }
    ignis__cost(
        size * p->params.head_dim *
            (like_q * pairs * p->params.sq + like_k * (double)p->params.batches * p->params.kv_heads * p->params.sk),
        2.0 * products * pairs * seen * p->params.head_dim, (int)dtype);
}

/*  Returns IGNIS_RANGE of kernels/attention.cuh: 2 with documents, 1 with a window or lengths of sequences. */
IGNIS__PRIVATE int ignis__attention_range(const ignis__attention *p)
{
    if (p->documents)
        return 2;
    return p->has_lengths || p->params.window < (p->params.sq > p->params.sk ? p->params.sq : p->params.sk);
}

/*  As ignis__attention_range, for wgmma: a softcap has no program of its own, as alone it is no faster. */
IGNIS__PRIVATE int ignis__attention_hopper_range(const ignis__attention *p)
{
    return p->params.softcap > 0 && !ignis__attention_range(p) ? 1 : ignis__attention_range(p);
}

/*  Adds the options of kernels/attention.cuh that make the variant of a program. */
IGNIS__PRIVATE void ignis__attention_options(char *define, size_t size, const ignis__attention *p, int range)
{
    size_t length = strlen(define);
    if (range)
        length += (size_t)snprintf(define + length, size - length, " -DIGNIS_RANGE=%d", range);
    if (p->params.softcap > 0)
        length += (size_t)snprintf(define + length, size - length, " -DIGNIS_SOFTCAP=1");
    if (p->bias_dtype)
        snprintf(define + length, size - length, " -DIGNIS_BIAS=%d", p->bias_dtype);
}

/*  Geometry of kernels/attention_mma.cu for each head size that it is compiled for, without the shared
    memory. */
static const struct {
    int head_dim;
    ignis__attention_shape forward, kv, q;
} ignis__attention_mma[] = {
    {32, {128, 64, 128, 0}, {128, 64, 128, 0}, {128, 64, 128, 0}},
    {64, {128, 64, 128, 0}, {128, 64, 128, 0}, {128, 64, 128, 0}},
    {96, {128, 32, 128, 0}, {64, 64, 128, 0}, {128, 32, 128, 0}},
    {128, {128, 32, 128, 0}, {64, 64, 128, 0}, {128, 32, 128, 0}},
    {192, {64, 32, 128, 0}, {32, 32, 192, 0}, {64, 16, 128, 0}},
    {256, {64, 32, 128, 0}, {32, 32, 128, 0}, {64, 16, 128, 0}},
};

static int ignis__op_major(const ignis__op *op)
{
    return op->as_major ? op->as_major : op->work.device->info.compute_major;
}

/*  Chooses between tensor cores and plain CUDA C, in this one place: f16 and bf16 with mma.m16n8k16 if rows
    are packs of 16 bytes. */
IGNIS__PRIVATE bool ignis__attention_takes_mma(const ignis__op *op, ignis_dtype dtype, const ignis__attention *p)
{
    const ignis__attention_rows *tensors = &p->params.q;
    bool takes = (dtype == IGNIS_F16 || dtype == IGNIS_BF16) && ignis__op_major(op) >= 8 && p->params.head_dim % 8 == 0;
    int i;
    for (i = 0; i < 8 && !op->as_major; i++) /* to grad_v; missing ones are 0 */
        takes = takes && tensors[i].data % 16 == 0;
    return takes;
}

static const ignis__attention_hopper_shape ignis__attention_hopper[] = {
    {64, 2, 2, 64, 4},   {64, 1, 3, 128, 4}, {128, 1, 2, 64, 4}, {128, 1, 3, 80, 2},
    {128, 1, 2, 128, 2}, {192, 1, 2, 96, 2}, {256, 1, 2, 80, 2}};

/*  Returns the fastest shape, measured on an H200. ranged: a variant of the program, for which three groups
    lack registers, or do not pay with a narrow window. Three groups pay for heads above 64 with many items,
    as the last ones of blocks end at different times. Steady: one shape for any number of queries and keys. */
IGNIS__PRIVATE const ignis__attention_hopper_shape *ignis__attention_hopper_choose(const ignis__op *op,
                                                                                   const ignis__attention *p,
                                                                                   bool ranged)
{
    const ignis__attention_hopper_shape *shapes = ignis__attention_hopper;
    int64_t items = ignis__ceil_div(p->params.sq, 3 * 64) * p->params.batches * p->params.heads,
            multiprocessors = op->work.device->info.multiprocessors;
    if (p->params.head_dim <= 64)
        return ranged || op->steady || p->params.sq <= (p->params.causal ? 2048 : 1024) ? &shapes[0] : &shapes[1];
    if (p->params.head_dim <= 128 && op->steady)
        return &shapes[4];
    if (p->params.head_dim <= 128)
        return p->params.sk <= 256                                             ? &shapes[2]
               : !ranged && p->params.sq > 256 && items >= 8 * multiprocessors ? &shapes[3]
                                                                               : &shapes[4];
    return p->params.head_dim <= 192 ? &shapes[5] : &shapes[6];
}

/*  Writes the options of its program, except those of a variant. */
IGNIS__PRIVATE void ignis__attention_hopper_define(char *define, size_t size, const ignis__attention *p,
                                                   const ignis__attention_hopper_shape *shape)
{
    snprintf(define, size, "-DIGNIS_HEAD_DIM=%d -DIGNIS_CAUSAL=%d -DIGNIS_FORWARD_GROUPS=%d -DIGNIS_FORWARD_KEYS=%d",
             p->params.head_dim, p->params.causal, shape->groups, shape->keys);
}

/*  Returns whether the wgmma kernels can run. If the caller asked for them and they cannot, logs why. */
IGNIS__PRIVATE bool ignis__attention_takes_wgmma(const ignis__op *op, ignis_dtype dtype,
                                                 const ignis__attention *attention)
{
    const ignis__attention_params *p = &attention->params;
    const ignis__attention_rows *tensors = &p->q;
    const char *why = NULL;
    int i;
    if (ignis__attention_backend == IGNIS_ATTENTION_MMA)
        return false;
    if (ignis__op_major(op) != 9)
        why = "the device is not of compute capability 9.0";
    else if (!op->as_major && !ignis__cuda.cuTensorMapEncodeTiled)
        why = "the driver is older than CUDA 12.0";
    else if (!op->as_major && !ignis__wgmma_compiles(op->work.call))
        why = "NVRTC is older than 12.0, or the bundle has no such kernels";
    else if (dtype != IGNIS_F16 && dtype != IGNIS_BF16)
        why = "the dtype is not f16 or bf16";
    else if (p->head_dim % 8 != 0 || p->head_dim < 64 || p->head_dim > 256)
        why = "head_dim is not a multiple of 8 from 64 to 256";
    else if (p->batches == 0 || p->sq == 0 || p->sk == 0)
        why = "there is no query or no key";
    else if (attention->bias_dtype)
        why = "there is a bias";
    for (i = 0; i < 8 && !op->as_major; i++) /* to grad_v; missing ones are 0 */
        if (tensors[i].data % 16 != 0 || (tensors[i].row | tensors[i].head | tensors[i].batch) % 8 != 0)
            why = why ? why : "rows are not aligned to 16 bytes";
    if (why && !op->as_major && ignis__attention_backend == IGNIS_ATTENTION_WGMMA)
        ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_UNSUPPORTED, "%s: not by IGNIS_ATTENTION_WGMMA, as %s", op->work.call,
                   why);
    return !why;
}

/*  Makes the TMA map of a tensor of queries or of keys, for tiles of `rows` rows. In shared memory a tile is a row
    of slabs of 64 columns. Heads of full slabs are copied several slabs at a time. Others are copied slab by
    slab, and the last one is filled with zeros. */
IGNIS__PRIVATE void ignis__attention_tma_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype,
                                             const ignis__attention *p, const ignis__attention_rows *tensor,
                                             bool of_keys, int rows, int slabs)
{
    int heads = of_keys ? p->params.kv_heads : p->params.heads, length = of_keys ? p->params.sk : p->params.sq;
    int64_t dims[] = {64, length, p->params.head_dim / 64, heads, p->params.batches};
    int64_t strides[] = {2 * tensor->row, 128, 2 * tensor->head, 2 * tensor->batch};
    int box[] = {64, rows, slabs, 1, 1};
    ignis__tensor_map_desc desc = {dtype, false, tensor->data, 5, dims, strides, box, NULL};
    if (p->params.head_dim % 64 != 0) { /* no dimension of slabs */
        desc.rank = 4;
        dims[0] = p->params.head_dim;
        dims[2] = heads;
        dims[3] = p->params.batches;
        strides[1] = strides[2];
        strides[2] = strides[3];
        box[2] = 1;
    }
    op->ok = op->ok && ignis__tensor_map_make(&op->work, map, &desc);
}

/*  Returns how many numbers forward saves in lse for each query: with a bias a bound and a sum. */
IGNIS__PRIVATE int ignis__attention_lse_count(const ignis__attention *p) { return p->bias_dtype ? 2 : 1; }

IGNIS__PRIVATE ignis__attention_variant ignis__attention_choose(const ignis__op *op, ignis_dtype dtype,
                                                                const ignis__attention *attention)
{
    ignis__attention_variant variant = IGNIS__ZERO;
    int i, head_dim = 32, size = dtype == IGNIS_F64 ? 8 : 4, pack = 16 / size, bytes, lines;
    int stats = 1 + ignis__attention_lse_count(attention); /* numbers for a query that backward has in shared memory */
    if (ignis__attention_takes_mma(op, dtype, attention)) {
        for (i = 0; ignis__attention_mma[i].head_dim < attention->params.head_dim;)
            i++;
        head_dim = ignis__attention_mma[i].head_dim;
        variant.forward_kernel = IGNIS__BUILTIN(SDPA_MMA);
        variant.delta_kernel = IGNIS__BUILTIN(SDPA_MMA_BACKWARD_DELTA);
        variant.kv_kernel = IGNIS__BUILTIN(SDPA_MMA_BACKWARD_KV);
        variant.q_kernel = IGNIS__BUILTIN(SDPA_MMA_BACKWARD_Q);
        variant.bias_kernel = IGNIS__BUILTIN(SDPA_MMA_BACKWARD_BIAS);
        variant.forward = ignis__attention_mma[i].forward;
        variant.kv = ignis__attention_mma[i].kv;
        variant.q = ignis__attention_mma[i].q;
        variant.forward.shared = 2 * head_dim * (variant.forward.rows + 4 * variant.forward.walk);
        variant.kv.shared = 2 * head_dim * (2 * variant.kv.rows + 4 * variant.kv.walk) + 8 * stats * variant.kv.walk;
        variant.q.shared = 2 * head_dim * (2 * variant.q.rows + 4 * variant.q.walk) + 4 * stats * variant.q.rows;
        variant.bias = variant.q;
        variant.bias.shared -= 4 * head_dim * variant.q.walk; /* one tile of keys at a time, not two */
    } else {                                                  /* as computed at the top of kernels/attention.cu */
        while (head_dim < attention->params.head_dim)
            head_dim *= 2;
        bytes = head_dim * size;
        variant.forward_kernel = IGNIS__BUILTIN(SDPA);
        variant.delta_kernel = IGNIS__BUILTIN(SDPA_BACKWARD_DELTA);
        variant.kv_kernel = IGNIS__BUILTIN(SDPA_BACKWARD_KV);
        variant.q_kernel = IGNIS__BUILTIN(SDPA_BACKWARD_Q);
        variant.bias_kernel = IGNIS__BUILTIN(SDPA_BACKWARD_BIAS);
        variant.forward.threads = variant.kv.threads = bytes > 1024 ? 64 : 128;
        variant.forward.walk = variant.kv.walk = 16384 / bytes < 8 * pack ? 16384 / bytes : 8 * pack;
        lines = variant.forward.threads / 8;
        variant.forward.rows = lines * (2048 / bytes < pack ? 2048 / bytes : pack);
        variant.kv.rows = lines * (bytes > 1024 ? 1 : 1024 / bytes < pack ? 1024 / bytes : pack);
        variant.forward.shared = (variant.forward.rows + variant.forward.walk) * (bytes + 16) +
                                 variant.forward.rows * (variant.forward.walk * size + 16);
        variant.kv.shared = (2 * variant.kv.rows + variant.kv.walk) * (bytes + 16) +
                            2 * variant.kv.rows * (variant.kv.walk * size + 16);
        variant.q = variant.bias = variant.kv;
    }
    snprintf(variant.define, sizeof variant.define, "-DIGNIS_HEAD_DIM=%d", head_dim);
    ignis__attention_options(variant.define, sizeof variant.define, attention, ignis__attention_range(attention));
    return variant;
}

/*  Options of kernels/attention_hopper_backward.cu; see ignis__attention_has_one_query_tile and
    ignis__attention_adds_directly. */
IGNIS__PRIVATE const char *const ignis__attention_backward_forms[] = {"", " -DIGNIS_FEW=1", " -DIGNIS_DIRECT=1"};

/*  While programs are recorded: requests the kernels that devices of every kind choose, for one of the two
    variants. */
IGNIS__COLD static void ignis__attention_request_variant(ignis__op *op, ignis_dtype dtype,
                                                         const ignis__attention *attention, bool backward)
{
    const ignis__attention_params *p = &attention->params;
    static const struct {
        int major, first;
    } kinds[] = {{7, 0}, {8, 80}}; /* the first also for unaligned rows */
    int range = ignis__attention_hopper_range(attention);
    ignis__attention_variant variant;
    char define[IGNIS__DEFINES];
    int i, most;
    for (i = 0; i < IGNIS__COUNT(kinds); i++) {
        op->as_major = kinds[i].major;
        variant = ignis__attention_choose(op, dtype, attention);
        ignis__record_builtin(backward ? variant.delta_kernel : variant.forward_kernel, dtype, variant.define,
                              kinds[i].first, IGNIS__EVERY_ARCH);
    }
    op->as_major = 9;
    if (ignis__attention_takes_wgmma(op, dtype, attention) && backward) {
        for (i = 0; i < IGNIS__COUNT(ignis__attention_backward_forms); i++) {
            if ((i == 1 && p->heads != p->kv_heads) || (i == 2 && p->head_dim != 128))
                continue;
            snprintf(define, sizeof define, "-DIGNIS_HEAD_DIM=%d -DIGNIS_CAUSAL=%d%s", p->head_dim, p->causal,
                     ignis__attention_backward_forms[i]);
            ignis__attention_options(define, sizeof define, attention, range);
            ignis__record_builtin(IGNIS__BUILTIN(SDPA_HOPPER_BACKWARD_ROWS), dtype, define, 90, 90);
        }
    } else if (ignis__attention_takes_wgmma(op, dtype, attention)) {
        for (i = 0, most = 0; i < IGNIS__COUNT(ignis__attention_hopper);
             i++) { /* all shapes of the smallest head_dim that holds it */
            if (ignis__attention_hopper[i].head_dim < p->head_dim ||
                (most && ignis__attention_hopper[i].head_dim > most))
                continue;
            most = ignis__attention_hopper[i].head_dim;
            ignis__attention_hopper_define(define, sizeof define, attention, &ignis__attention_hopper[i]);
            ignis__attention_options(define, sizeof define, attention, range);
            ignis__record_builtin(IGNIS__BUILTIN(SDPA_HOPPER), dtype, define, 90, 90);
        }
    }
    op->as_major = 0;
}

/*  Requests kernels for this number of rows and others, with rows inside a window and beyond it. */
IGNIS__COLD IGNIS__PRIVATE void ignis__attention_request(ignis__op *op, ignis_dtype dtype,
                                                         const ignis__attention *given, bool backward)
{
    ignis__attention p = *given;
    if (!op->ok || !ignis__requests.path[0])
        return;
    ignis__attention_request_variant(op, dtype, &p, backward);
    p.params.window = ignis__attention_range(&p) ? p.params.sq > p.params.sk ? p.params.sq : p.params.sk : 0;
    if (p.windowed && !p.has_lengths && !p.documents)
        ignis__attention_request_variant(op, dtype, &p, backward);
}

IGNIS__PRIVATE void ignis__attention_launch(ignis__op *op, const ignis__attention_variant *variant,
                                            ignis__builtin kernel, const ignis__attention_shape *shape,
                                            ignis_dtype dtype, int rows, int heads, ignis__attention *p)
{
    int64_t blocks = ignis__ceil_div(rows, shape->rows) * heads * p->params.batches;
    void *params[] = {&p->params};
    ignis__op_launch(op, kernel, dtype, variant->define,
                     ignis__launch_row(blocks, (unsigned)shape->threads, (size_t)shape->shared), params);
}
