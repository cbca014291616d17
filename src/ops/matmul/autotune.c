/*  >>ops.matmul.autotune - IGNIS_MATMUL_MEASURE: built-in kernel or cuBLASLt, measured once for each kind of

    product Times both for a kind of product on a kind of device, and keeps the faster one in the cache
    folder's products.txt.
    Uses: cublaslt, gemm_launch. Locks: the table's lock; nobody measures while holding it. A capture never
    measures. */

#include "room.h"

#define IGNIS__MEASURE_ROUNDS 3 /* the fastest one counts */
#define IGNIS__MEASURE_RUNS 4   /* in a round */

IGNIS__PRIVATE struct ignis__measurements_type ignis__measurements = {IGNIS__MUTEX_INIT, false, NULL};

static ignis__autotune *ignis__autotune_find(uint64_t key)
{
    ignis__autotune *found = ignis__measurements.first;
    while (found && found->key != key)
        found = found->next;
    return found;
}

/*  Remembers a choice that is not known yet; without memory it is not remembered. */
static void ignis__autotune_add(uint64_t key, bool own)
{
    ignis__autotune *added = (ignis__autotune *)ignis__alloc(sizeof *added);
    if (!added)
        return;
    added->key = key;
    added->own = own;
    added->next = ignis__measurements.first;
    ignis__measurements.first = added;
}

static bool ignis__autotune_path(char *path, size_t size)
{
    snprintf(path, size, "%s/products.txt", ignis__kernels_state.cache_dir);
    return ignis__kernels_state.cache_dir[0] != 0;
}

/*  Reads earlier choices: lines of a key, "own" or "cublaslt", and words for people. */
IGNIS__COLD static void ignis__autotune_read(const char *call)
{
    char path[1024], *text, *line;
    size_t size = 0;
    if (ignis__measurements.is_read || !ignis__autotune_path(path, sizeof path))
        return;
    ignis__measurements.is_read = true;
    text = (char *)ignis__cache_read(call, path, &size);
    for (line = text; line && line < text + size; line++) {
        char *end = (char *)memchr(line, '\n', (size_t)(text + size - line)), *word;
        unsigned long long key;
        if (!end)
            break;
        *end = 0;
        key = strtoull(line, &word, 16);
        if (word == line + 16 && (strncmp(word, " own ", 5) == 0 || strncmp(word, " cublaslt ", 10) == 0) &&
            !ignis__autotune_find(key))
            ignis__autotune_add(key, word[1] == 'o');
        line = end;
    }
    ignis__free(text);
}

IGNIS__COLD static void ignis__autotune_write(const char *call, const char *line)
{
    char path[1024], why[160], theirs[160];
    bool ok;
    if (!ignis__autotune_path(path, sizeof path) || !ignis__cache_folder(call))
        return;
    ok = ignis__line_append(path, line, true, why, sizeof why);
    if (!ok && !ignis__path_is_private(
                   path, theirs,
                   sizeof theirs)) /* made by an older version with a umask that lets the group write: replace it */
        ok = ignis__file_remove(path) && ignis__line_append(path, line, true, why, sizeof why);
    if (!ok)
        ignis__cache_warn(call, "write", path, why);
}

/*  Returns the key of a choice: the product, its epilogue, the device, and the versions of both candidates. */
static uint64_t ignis__autotune_key(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a,
                                    ignis__array *b, const ignis__epilogue *epilogue)
{
    static const ignis__source *const sources[] = {&ignis__source_gemm_cu,
                                                   &ignis__source_gemm_cuh,
                                                   &ignis__source_gemm_tile_cuh,
                                                   &ignis__source_gemm_mma_cu,
                                                   &ignis__source_gemm_mma_cuh,
                                                   &ignis__source_gemm_hopper_cu,
                                                   &ignis__source_gemm_hopper_ahead_cuh};
    const ignis_device_info *info = &op->work.device->info;
    ignis__product described = *product;
    int parts[] = {epilogue->activation,          epilogue->gradient,         epilogue->bias != NULL,
                   epilogue->pre != NULL,         epilogue->residual != NULL, epilogue->row_sums != NULL,
                   epilogue->column_sums != NULL, ignis__allow_tf32,          info->multiprocessors};
    int i;
    uint64_t key;
    described.alignment = ignis__alignment_of(ignis__op_read(op, a), ignis__op_read(op, b), ignis__op_write(op, out));
    key = ignis__hash(IGNIS__HASH_START, &described, sizeof described);
    key = ignis__hash(key, parts, sizeof parts);
    key = ignis__hash(key, info->name, strlen(info->name));
    key = ignis__hash(key, &ignis__libraries[IGNIS_LIBRARY_CUBLASLT].release, sizeof(uint64_t));
    for (i = 0; i < IGNIS__COUNT(sources); i++)
        key = ignis__hash(key, &sources[i]->hash, sizeof(uint64_t));
    return key;
}

/*  Times the product by one candidate: nanoseconds of a run in the fastest round; -1 if it cannot compute it,
    or on failure. */
IGNIS__COLD static int64_t ignis__autotune_time(ignis__op *op, bool own, const ignis__product *product,
                                                ignis__array *out, ignis__array *a, ignis__array *b,
                                                const ignis__epilogue *epilogue)
{
    int64_t best = -1, start;
    int round, run, made = op->made_count;
    bool row_sums;
    for (round = 0; op->ok && round <= IGNIS__MEASURE_ROUNDS; round++) { /* the first one loads, and does not count */
        start = ignis__monotonic_ns();
        for (run = 0; run < (round ? IGNIS__MEASURE_RUNS : 1); run++) {
            if (own)
                ignis__gemm_run(op, product, out, a, b, epilogue);
            else if (!ignis__lt_multiply(op, product, out, a, b, epilogue, &row_sums))
                return -1;
            ignis__op_free_made(op, made);
        }
        op->ok = op->ok && !IGNIS__CUDA_FAILED(op->work.call, op->work.device, cuStreamSynchronize, (op->work.stream));
        start = ignis__monotonic_ns() - start;
        if (round && (best < 0 || start < best))
            best = start;
    }
    return op->ok ? best / IGNIS__MEASURE_RUNS : -1;
}

/*  Looks up which candidate computes a product: *own. If unknown, remembers *own if `keeps`; another thread
    may have been first. */
static bool ignis__autotune_lookup(const char *call, uint64_t key, bool *own, bool keeps)
{
    const ignis__autotune *found;
    ignis__mutex_lock(&ignis__measurements.lock);
    ignis__autotune_read(call);
    found = ignis__autotune_find(key);
    if (found)
        *own = found->own;
    else if (keeps)
        ignis__autotune_add(key, *own);
    ignis__mutex_unlock(&ignis__measurements.lock);
    return found != NULL;
}

/*  Returns whether a built-in kernel computes the product. Measures if that is unknown; a capture cannot
    measure, and uses cuBLASLt. */
IGNIS__PRIVATE bool ignis__autotune_picks_builtin(ignis__op *op, const ignis__product *product, ignis__array *out,
                                                  ignis__array *a, ignis__array *b, const ignis__epilogue *epilogue)
{
    uint64_t key;
    int64_t own, other;
    bool is_own = false;
    ignis__record before, failure;
    char line[256], why[1024];
    if (product->k == 0 || epilogue->accumulate) /* measuring would add to the result */
        return false;
    key = ignis__autotune_key(op, product, out, a, b, epilogue);
    if (ignis__autotune_lookup(op->work.call, key, &is_own, false) || !op->ok || ignis__capture_on(op->work.device))
        return is_own;
    other = ignis__autotune_time(op, false, product, out, a, b, epilogue);
    if (!op->ok)
        return false;
    before = ignis__quiet_begin();
    own = ignis__autotune_time(op, true, product, out, a, b, epilogue);
    ignis__quiet_end(&before, &failure, why, sizeof why);
    if (!op->ok) { /* no NVRTC, say; the run itself reports it if there is no other way */
        op->ok = true;
        if (other >= 0 && !ignis__autotune_lookup(op->work.call, key, &is_own, true))
            ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: cuBLASLt computes this product, unmeasured. %s",
                       op->work.call, why);
        return other < 0 || is_own;
    }
    is_own = own >= 0 && (other < 0 || own < other);
    snprintf(line, sizeof line, "%016llx %s (own %.1f us, cuBLASLt %.1f us): %s %lld x %lld x %lld, batch %lld\n",
             (unsigned long long)key, is_own ? "own" : "cublaslt", (double)own * 1e-3, (double)other * 1e-3,
             ignis__dtypes[product->dtype].name, (long long)product->m, (long long)product->n, (long long)product->k,
             (long long)product->batch);
    if (!ignis__autotune_lookup(op->work.call, key, &is_own, true)) {
        ignis__autotune_write(op->work.call, line);
        ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: measured: %s", op->work.call, line + 17);
    }
    return is_own;
}

IGNIS__PRIVATE void ignis__autotune_close(void)
{
    while (ignis__measurements.first) {
        ignis__autotune *next = ignis__measurements.first->next;
        ignis__free(ignis__measurements.first);
        ignis__measurements.first = next;
    }
    ignis__measurements.is_read = false;
}
