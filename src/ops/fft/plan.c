/*  >>ops.fft.plan - radices, block and launch of one pass of a Fourier transform; lengths of several passes

    A pass reads and writes each number once: kernels/fft.cu. Lengths of several passes are products: with
    j = j1 n2 + j2 and k = k1 + n1 k2, transforms of n1 numbers along j1 are multiplied by exp(-2 pi i j2 k1 / n), and
    transforms of n2 numbers along j2 end (Bailey 1990).
    Uses: operation; kernels FFT. */

#include "room.h"

#define IGNIS__FFT_MOST_RADIX 16
#define IGNIS__FFT_SHARED (128 << 10) /* bytes of shared memory that a block takes at most */

/*  The longest transform of one pass; 0: what a block can hold. Tests set it, to have several passes of few numbers. */
IGNIS__PRIVATE int64_t ignis__fft_pass_limit;

/*  Returns whether the prime factors of n are those of radices. */
IGNIS__PRIVATE bool ignis__fft_is_smooth(int64_t n)
{
    int64_t factor;
    for (factor = 2; factor <= 13; factor++)
        while (n > 0 && n % factor == 0)
            n /= factor;
    return n == 1;
}

/*  Returns the first length from n on whose prime factors are at most 5: it takes few passes. */
IGNIS__PRIVATE int64_t ignis__fft_smooth_up(int64_t n)
{
    int64_t rest;
    for (;; n++) {
        for (rest = n; rest % 2 == 0;)
            rest /= 2;
        while (rest % 3 == 0)
            rest /= 3;
        while (rest % 5 == 0)
            rest /= 5;
        if (rest == 1)
            return n;
    }
}

/*  Finds radices of n that are not above `most`, with the lowest cost: a stage costs 16 and its radix. The result has
    radix - 1 in 4 bits each. -1 if there are none. */
static int ignis__fft_radices(int64_t n, int most, uint64_t *radices)
{
    int best = -1, radix, cost;
    uint64_t rest;
    *radices = 0;
    if (n == 1)
        return 0;
    for (radix = most; radix >= 2; radix--) {
        if (n % radix)
            continue;
        cost = ignis__fft_radices(n / radix, radix, &rest);
        if (cost < 0 || (best >= 0 && cost + 16 + radix >= best))
            continue;
        best = cost + 16 + radix;
        *radices = rest << 4 | (uint64_t)(radix - 1);
    }
    return best;
}

/*  Returns how many threads, of at most `most`, transform n numbers: as many as one of its stages has butterflies,
    where the threads of all stages have the least idle work. 0 if they would hold more numbers than registers. */
static int ignis__fft_threads(int64_t n, uint64_t radices, int64_t most)
{
    int64_t best = 0, work, threads, rounds, numbers;
    int result = n == 1;
    uint64_t tried, stage;
    for (tried = radices; tried; tried >>= 4) {
        threads = ignis__clamp(n / ((int64_t)(tried & 15) + 1), 1, most);
        work = 0;
        numbers = 0;
        for (stage = radices; stage; stage >>= 4) {
            const int64_t radix = (int64_t)(stage & 15) + 1;
            rounds = ignis__ceil_div(n / radix, threads);
            numbers = rounds * radix > numbers ? rounds * radix : numbers;
            work += rounds * radix * threads;
        }
        if (numbers > (threads > 512 ? 16 : 20) || (best && work >= best))
            continue;
        best = work;
        result = (int)threads;
    }
    return result;
}

typedef struct ignis__fft_plan {
    uint64_t radices;
    int rows, threads, along;
    int64_t shared;
} ignis__fft_plan;

/*  Returns whether neighbouring indices a are neighbours in memory, and elements of a signal are not. */
static bool ignis__fft_is_along(const ignis__fft_side *side)
{
    return side->a + side->first_a * side->stride == 1 && side->step * side->stride != 1;
}

/*  Plans a pass. False if no block can hold the transform, or not with enough neighbours for full sectors of 32 bytes
    where signals are beside each other. */
static bool ignis__fft_plan_pass(const ignis__op *op, const ignis__fft_work *work, ignis__fft_plan *plan)
{
    const int64_t bytes = 2 * ignis__dtypes[work->dtype].size, pad = bytes == 8 ? 16 : 8,
                  device = op->work.device->info.shared_per_block, n = work->n;
    const int64_t most = device < IGNIS__FFT_SHARED ? device : IGNIS__FFT_SHARED, row = (n + n / pad) | 1,
                  low = n <= 256 ? n : 64, tables = low + ignis__ceil_div(n, low),
                  most_threads = bytes == 8 ? 1024 : 512;
    int64_t rows = 1, least;
    memset(plan, 0, sizeof *plan);
    if ((ignis__fft_pass_limit && n > ignis__fft_pass_limit) || n * bytes > IGNIS__FFT_SHARED ||
        ignis__fft_radices(n, IGNIS__FFT_MOST_RADIX, &plan->radices) < 0)
        return false;
    plan->threads = ignis__fft_threads(n, plan->radices, most_threads);
    if (plan->threads == 0)
        return false;
    plan->along = (ignis__fft_is_along(&work->params.from) ? 1 : 0) | (ignis__fft_is_along(&work->params.to) ? 2 : 0);
    if (work->params.count_a > 1)
        rows = ignis__power_of_2_up(256 / plan->threads + 1) / 2;
    if (work->params.count_a > 1 && plan->along && rows < 64 / bytes)
        rows = 64 / bytes;
    rows = rows < 1 ? 1 : rows;
    while (rows > 1 && (rows * plan->threads > most_threads || (rows * row + tables) * bytes > most))
        rows /= 2;
    least = work->params.count_a > 1 && plan->along ? 32 / bytes : 1;
    plan->rows = (int)rows;
    plan->shared = (rows * row + tables) * bytes;
    return plan->shared <= device && rows >= least;
}

IGNIS__PRIVATE bool ignis__fft_fits(const ignis__op *op, const ignis__fft_work *work)
{
    ignis__fft_plan plan;
    return ignis__fft_plan_pass(op, work, &plan);
}

/*  Returns whether all numbers of signals are in memory, and pairs aligned. */
static bool ignis__fft_is_whole(const ignis__fft_work *work)
{
    const ignis__fft_params *p = &work->params;
    const int numbers[] = {p->points, p->points, 2 * p->points, p->points + 1, p->points / 2 + 1}; /* of each kind */
    return !p->chirp && p->from.length == numbers[work->load] && p->to.length == numbers[work->store] &&
           (work->load != IGNIS__FFT_PAIRS || (p->how & IGNIS__FFT_PACKED_IN)) &&
           (work->store != IGNIS__FFT_PAIRS || (p->how & IGNIS__FFT_PACKED_OUT));
}

/*  Writes the options of a plan's program. */
static void ignis__fft_define(char *define, size_t size, const ignis__fft_work *work, const ignis__fft_plan *plan,
                              bool is_whole)
{
    const ignis__fft_params *p = &work->params;
    const int how = plan->along | (p->chirp ? 4 : 0) | (p->turn ? 8 : 0) | (is_whole ? 16 : 0) |
                    (p->from.step * p->from.stride == 1 ? 32 : 0) | (p->to.step * p->to.stride == 1 ? 64 : 0) |
                    (p->points == work->n ? 128 : 0);
    snprintf(define, size,
             "-DIGNIS_N=%d -DIGNIS_RADICES=0x%llxULL -DIGNIS_ROWS=%d -DIGNIS_THREADS=%d -DIGNIS_LOAD=%d "
             "-DIGNIS_STORE=%d -DIGNIS_HOW=%d",
             (int)work->n, (unsigned long long)plan->radices, plan->rows, plan->threads, work->load, work->store, how);
}

/*  Requests the programs of a pass for one signal and for several, for signals as they are and for others. */
IGNIS__COLD static void ignis__fft_record(ignis__op *op, const ignis__fft_work *work)
{
    ignis__fft_work other = *work;
    ignis__fft_plan plan;
    char define[IGNIS__DEFINES];
    int i;
    for (other.params.count_a = 1; other.params.count_a <= 2; other.params.count_a++) {
        if (!ignis__fft_plan_pass(op, &other, &plan))
            continue;
        for (i = 0; i < 2; i++) {
            ignis__fft_define(define, sizeof define, &other, &plan, i == 1);
            ignis__record_builtin(IGNIS__BUILTIN(FFT), work->dtype, define, 0, IGNIS__EVERY_ARCH);
        }
    }
}

/*  Launches a pass that fits. */
IGNIS__PRIVATE void ignis__fft_pass(ignis__op *op, const ignis__fft_work *work)
{
    ignis__fft_params p = work->params;
    ignis__fft_plan plan;
    char define[IGNIS__DEFINES];
    void *params[] = {&p};
    int64_t tiles, blocks;
    if (!op->ok || p.count_a * p.count_b * work->count_c == 0)
        return;
    if (!ignis__fft_plan_pass(op, work, &plan)) {
        ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "a transform of %lld numbers does not fit into a block of device %d",
                       (long long)work->n, ignis__device_ordinal(op->work.device));
        return;
    }
    tiles = ignis__ceil_div(p.count_a, plan.rows);
    blocks = tiles * p.count_b * work->count_c;
    if (blocks > INT32_MAX) {
        ignis__op_fail(op, IGNIS_DIAG_SHAPE_OVERFLOW, "the tensors are larger than one launch can cover");
        return;
    }
    p.tiles_a = (int)tiles;
    ignis__fft_define(define, sizeof define, work, &plan, ignis__fft_is_whole(work));
    if (ignis__requests.path[0])
        ignis__fft_record(op, work);
    ignis__op_launch(op, IGNIS__BUILTIN(FFT), work->dtype, define,
                     ignis__launch_row(blocks, (unsigned)(plan.rows * plan.threads), (size_t)plan.shared), params);
}

/*  Splits n into two factors of at most `most`, as equal as possible. */
static bool ignis__fft_halve(int64_t n, int64_t most, int64_t *parts)
{
    int64_t low = 1;
    while ((low + 1) * (low + 1) <= n)
        low++;
    while (n % low)
        low--;
    parts[0] = n / low;
    parts[1] = low;
    return parts[0] <= most;
}

/*  Splits n into two or three lengths of a pass each. Returns their number; 0 if it cannot be. */
IGNIS__PRIVATE int ignis__fft_split(int64_t n, int64_t *parts)
{
    int64_t most = IGNIS__FFT_SHARED / 64; /* with 64 bytes of neighbours */
    if (ignis__fft_pass_limit && ignis__fft_pass_limit < most)
        most = ignis__fft_pass_limit;
    if (!ignis__fft_is_smooth(n))
        return 0;
    if (n <= most * most && ignis__fft_halve(n, most, parts))
        return 2;
    for (parts[0] = 1; parts[0] * parts[0] * parts[0] < n;)
        parts[0]++;
    for (; parts[0] <= most; parts[0]++)
        if (n % parts[0] == 0 && n / parts[0] <= most * most && ignis__fft_halve(n / parts[0], most, parts + 1))
            return 3;
    return 0;
}
