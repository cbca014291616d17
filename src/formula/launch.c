/*  >>formula.launch - chooses the kernel of a run and launches it

    Chooses packs, teams and chunks from shapes and addresses, fills the parameter's words, launches.
    Uses: broadcast, emit (its layout of words), kernel. The device is entered and the arrays are held. */

#include "room.h"

/*  Starts a spec with what does not depend on shapes, strides and addresses. */
static void ignis__formula_spec_begin(const ignis__formula_run *run, ignis__formula_spec *spec)
{
    int i, count = run->formula->count;
    memset(spec, 0, sizeof *spec);
    spec->needed = (uint16_t)run->needed;
    spec->result = (uint16_t)run->result;
    spec->outs = (uint16_t)run->outs;
    spec->reduced = (uint16_t)run->reduced;
    spec->reduction = (uint16_t)(run->reduced ? run->reduction : 0);
    spec->kept = (uint16_t)run->kept;
    spec->mode = (uint16_t)(run->reduced ? IGNIS__FORMULA_ROWS : IGNIS__FORMULA_EACH);
    spec->team = (uint16_t)(run->reduced ? 128 : 0);
    spec->half = true;
    for (i = 0; i < run->outs; i++) {
        spec->out[i] = (uint16_t)run->out[i];
        spec->half = spec->half && ignis__dtypes[run->out[i]].size == 2;
        spec->wide = spec->wide || run->out[i] == IGNIS_F64;
    }
    for (i = 0; i <= count + 1; i++) {
        if (!(run->used >> i & 1))
            continue;
        spec->kind[i] = run->input[i] ? IGNIS__FORMULA_COLUMN : IGNIS__FORMULA_VALUE;
        spec->dtype[i] = (uint16_t)(run->input[i] ? run->dtype[i] : 0);
        spec->wide = spec->wide || spec->dtype[i] == IGNIS_F64;
    }
    spec->half = spec->half && !spec->wide;
    ignis__formula_spec_generalize(spec, count);
}

/*  Records the kernels that a run needs at other sizes. */
IGNIS__PRIVATE void ignis__formula_record_run(const char *call, const ignis__formula_run *run)
{
    ignis__formula_spec spec;
    if (!ignis__requests.path[0])
        return;
    ignis__formula_spec_begin(run, &spec);
    ignis__formula_record(call, run->formula, &spec);
}

/*  Returns whether a run has a kernel: it can be compiled, or the bundle has it. A bundle that has it for
    some sizes has it for any. */
IGNIS__PRIVATE bool ignis__formula_is_available(const char *call, const ignis__device *device,
                                                const ignis__formula_run *run)
{
    ignis__formula_source made;
    ignis__formula_spec spec;
    bool there;
    if (!ignis__the_bundle.data || ignis__compiler_available(call))
        return true;
    ignis__formula_spec_begin(run, &spec);
    if (ignis__formula_kernel_find(device, run->formula, &spec))
        return true;
    if (!ignis__formula_source_make(call, run->formula, &spec, &made))
        return true; /* asking for the kernel fails too, and reports */
    there = ignis__program_bundled(device, &made.program);
    ignis__formula_source_free(&made);
    return there;
}

/*  Splits a reduction into blocks. Returns their number; the parameter's words are in `shared`, the number of
    chunks in [2]. */
static int64_t ignis__formula_split(const ignis__work *work, const ignis__formula_spec *spec, const ignis__axis *axis,
                                    uint64_t *shared)
{
    int64_t processors = work->device->info.multiprocessors, packs, tiles, parts;
    if (spec->mode == IGNIS__FORMULA_ROWS) {
        packs = axis->n / spec->pack;
        parts = ignis__clamp(16 * processors / axis->outer, 1, ignis__ceil_div(packs + 1, 1024));
        shared[1] = (uint64_t)packs;
        shared[3] = (uint64_t)ignis__ceil_div(packs, parts);
        parts = packs ? ignis__ceil_div(packs, (int64_t)shared[3]) : 1;
        shared[2] = (uint64_t)parts;
        shared[4] = (uint64_t)axis->outer;
        return ignis__ceil_div(axis->outer * parts, IGNIS__FORMULA_THREADS / spec->team);
    }
    packs = axis->inner / spec->pack;
    tiles = ignis__ceil_div(packs, spec->team);
    parts = ignis__clamp(8 * processors / (axis->outer * tiles), 1, ignis__ceil_div(axis->n * spec->team, 1024));
    shared[0] = (uint64_t)axis->n;
    shared[1] = (uint64_t)packs;
    shared[3] = (uint64_t)ignis__ceil_div(axis->n, parts);
    parts = ignis__ceil_div(axis->n, (int64_t)shared[3]);
    shared[2] = (uint64_t)parts;
    shared[4] = (uint64_t)(axis->outer * axis->inner);
    return axis->outer * tiles * parts;
}

/*  Moves dimensions to the end of the array after dimensions of 1, and adds one of 1: the form that kernels
    for any shape take. */
static void ignis__formula_pad_rank(int rank, int inputs, int64_t *dim, int64_t stride[][IGNIS__FORMULA_ANY_RANK])
{
    int before = IGNIS_MAX_DIMS - rank, d, i;
    for (d = IGNIS_MAX_DIMS; d >= 0; d--) {
        bool is = d >= before && d < IGNIS_MAX_DIMS;
        dim[d] = is ? dim[d - before] : 1;
        for (i = 0; i < inputs; i++)
            stride[i][d] = is ? stride[i][d - before] : 0;
    }
}

/*  The plan of a launch: dimensions that the inputs, the result and the reduction step through, and the spec. */
typedef struct ignis__formula_plan {
    int64_t stride[IGNIS_MAX_INPUTS + 4][IGNIS__FORMULA_ANY_RANK], dim[IGNIS__FORMULA_ANY_RANK], numel;
    int rank, index_count;
    int terms[IGNIS__FORMULA_INDICES]; /* of each index(d) */
    ignis__axis axis;                  /* the reduced elements */
    ignis__formula_spec spec;
    ignis__formula_writer words; /* where the words of the parameter are */
    uint64_t shared[8];          /* words of a reduction: see ignis__formula_writer */
} ignis__formula_plan;

#define IGNIS__FORMULA_WORDS                                                                     \
    (2 * IGNIS_MAX_INPUTS + 2 + 10 + 3 + 5 * (IGNIS__FORMULA_INDICES + 1) + 3 * IGNIS_MAX_DIMS + \
     (IGNIS_MAX_INPUTS + 2) * IGNIS__FORMULA_ANY_RANK)

/*  Checks that each index(d) names a dimension of the result. */
static bool ignis__formula_check_indices(const ignis__work *work, const ignis__formula_run *run,
                                         ignis__formula_plan *plan)
{
    int i, d;
    plan->index_count = ignis__formula_index_count(run->formula, plan->terms);
    for (i = 0; i < plan->index_count; i++) {
        d = (int)run->formula->term[plan->terms[i]].number;
        if (d < -run->shape.ndim || d >= run->shape.ndim)
            return ignis__fail_false(IGNIS_DIAG_DIM_RANGE, work->call, "index(%d) is outside of the result, %s", d,
                                     ignis__shape_write(&run->shape).text);
    }
    return true;
}

/*  Sets the strides of all arrays, joins dimensions, and counts the elements. */
static void ignis__formula_plan_dims(const ignis__formula_run *run, ignis__formula_plan *plan)
{
    int count = run->formula->count, i, d;
    ignis__axis all = {1, 1, 1};
    plan->axis = all;
    memset(plan->stride, 0, sizeof plan->stride);
    for (i = 0; i <= count + 1; i++)
        if (run->used >> i & 1 && run->input[i])
            ignis__formula_strides(&run->shape, run->input[i], plan->stride[i]);
    ignis__formula_strides(&run->shape, &run->shape, plan->stride[count + 2]);
    if (run->reduced) {
        ignis__formula_strides(&run->shape, run->to_shape, plan->stride[count + 3]);
        ignis__axis_of_broadcast(&run->shape, run->to_shape, &plan->axis);
    }
    plan->rank = ignis__formula_collapse_dims(&run->shape, count + 3 + (run->reduced != 0), plan->stride, plan->dim);
    if (plan->rank == 0) { /* a single element */
        plan->rank = 1;
        plan->dim[0] = 1;
        for (i = 0; i <= count + 2; i++)
            plan->stride[i][0] = 1;
    }
    plan->numel = 1;
    for (d = 0; d < plan->rank; d++)
        plan->numel *= plan->dim[d];
}

/*  Chooses the kernel's spec from dimensions, strides and addresses. */
static void ignis__formula_plan_spec(const ignis__work *work, const ignis__formula_run *run, ignis__formula_plan *plan)
{
    int count = run->formula->count, rank = plan->rank, widest = 1, linear = 0, i, d;
    ignis__formula_spec *spec = &plan->spec;
    ignis__axis *axis = &plan->axis;
    bool one_row, broadcasts = false;
    ignis__formula_spec_begin(run, spec);
    spec->parts = false;
    if (run->reduced)
        spec->mode = axis->inner == 1 && axis->n > 1 ? IGNIS__FORMULA_ROWS : IGNIS__FORMULA_COLUMNS;
    if (spec->mode == IGNIS__FORMULA_COLUMNS && axis->n == 1) { /* nothing is combined: all are columns of one row */
        axis->inner = axis->outer * axis->inner;
        axis->outer = 1;
    }
    for (i = 0; i < run->outs; i++)
        if (!(run->reduced >> i & 1))
            widest = ignis__dtypes[run->out[i]].size > widest ? ignis__dtypes[run->out[i]].size : widest;
    for (i = 0; i <= count + 1; i++) {
        const int64_t *stride = plan->stride[i];
        bool one = true, same = true;
        int size = ignis__dtypes[run->dtype[i]].size;
        if (spec->kind[i] == IGNIS__FORMULA_UNUSED || spec->kind[i] == IGNIS__FORMULA_VALUE)
            continue;
        for (d = 0; d < rank; d++) {
            one = one && stride[d] == 0;
            same = same && stride[d] == plan->stride[count + 2][d];
        }
        spec->kind[i] = same               ? IGNIS__FORMULA_LINEAR
                        : one              ? IGNIS__FORMULA_ONE
                        : stride[rank - 1] ? IGNIS__FORMULA_ROW
                                           : IGNIS__FORMULA_COLUMN;
        linear += same;
        broadcasts = broadcasts || spec->kind[i] >= IGNIS__FORMULA_ROW;
        if (!one && stride[rank - 1])
            widest = size > widest ? size : widest;
    }
    one_row = spec->mode == IGNIS__FORMULA_ROWS && axis->outer == 1 && !broadcasts;
    spec->pack =
        (uint16_t)ignis__formula_choose_pack(run, spec, widest, spec->mode && !one_row ? plan->dim[rank - 1] : 0);
    spec->rank = (uint16_t)(broadcasts ? rank : 1);
    spec->whole = !broadcasts || plan->dim[rank - 1] % spec->pack == 0;
    spec->packs_per_thread = linear == 1 || (spec->mode && !spec->needed) ? 2 : 1;
    if (spec->mode == IGNIS__FORMULA_ROWS) {
        int64_t packs = axis->n / spec->pack, rows = 64 * (int64_t)work->device->info.multiprocessors;
        spec->team = axis->outer > 1 && packs <= (axis->outer < rows ? 128 : 512) ? 32 : 128;
    } else if (spec->mode == IGNIS__FORMULA_COLUMNS) {
        for (spec->team = 1; spec->team < axis->inner / spec->pack && spec->team < 32;)
            spec->team = (uint16_t)(2 * spec->team);
    }
    plan->words.broadcasts = broadcasts;
    memset(plan->shared, 0, sizeof plan->shared);
    if (spec->mode) {
        (void)ignis__formula_split(work, spec, axis, plan->shared);
        spec->parts = plan->shared[2] > 1;
    }
}

/*  Fills the words of the kernel's parameter. `launches`: the address of a graph's launch counter. */
static void ignis__formula_fill_words(const ignis__formula_run *run, ignis__formula_plan *plan, ignis__address launches,
                                      uint64_t *words)
{
    const ignis__formula_writer *at = &plan->words;
    const ignis__formula_spec *spec = &plan->spec;
    int count = run->formula->count, i, d;
    memcpy(&plan->shared[6], &run->factor, sizeof plan->shared[6]);
    plan->shared[7] = run->kept_to;
    if (spec->mode || spec->needed)
        memcpy(words + at->shared, plan->shared, sizeof plan->shared);
    if (run->formula->randoms) {
        words[at->random] = run->random.seed;
        words[at->random + 1] = run->random.first;
        words[at->random + 2] = launches;
    }
    for (i = 0; i < plan->index_count; i++) {
        d = (int)run->formula->term[plan->terms[i]].number;
        d += d < 0 ? run->shape.ndim : 0;
        ignis__formula_coordinate_divisor(ignis__shape_product(&run->shape, d + 1, run->shape.ndim), run->shape.dim[d],
                                          &words[at->indices + 5 * i]);
    }
    if (spec->needed && ignis__formula_saves_position(spec)) {
        ignis__axis_of_broadcast(&run->shape, run->input[count + 1], &plan->axis);
        ignis__formula_coordinate_divisor(plan->axis.inner, plan->axis.n, &words[at->indices + 5 * plan->index_count]);
    }
    for (i = 0; i < run->outs; i++)
        words[i] = run->to[i];
    words[at->packs] = (uint64_t)(plan->numel / spec->pack);
    words[at->packs + 1] = (uint64_t)(plan->numel % spec->pack);
    for (d = 1; d < spec->rank; d++) {
        int64_t divisor = plan->dim[d] / (spec->whole && d == plan->rank - 1 ? spec->pack : 1);
        words[at->dims + 3 * d - 3] = (uint64_t)divisor;
        ignis__formula_divisor(divisor, &words[at->dims + 3 * d - 2]);
    }
    for (i = 0; i <= count + 1; i++) {
        if (spec->kind[i] == IGNIS__FORMULA_VALUE)
            memcpy(&words[at->input[i]], &run->value[i], sizeof words[0]);
        else if (spec->kind[i] != IGNIS__FORMULA_UNUSED)
            words[at->input[i]] = run->address[i];
        for (d = 0; d < spec->rank && spec->kind[i] >= IGNIS__FORMULA_ROW; d++)
            words[at->strides[i] + d] = (uint64_t)plan->stride[i][d];
    }
}

/*  Launches the kernel of a formula on the current stream. Reduced dimensions are neighbours. */
IGNIS__PRIVATE bool ignis__formula_launch(const ignis__work *work, const ignis__formula_run *run)
{
    uint64_t words[IGNIS__FORMULA_WORDS];
    unsigned grid[3] = {0, 1, 1}, block[3] = {IGNIS__FORMULA_THREADS, 1, 1};
    int64_t full, rest, blocks;
    bool ok, counts_elements;
    ignis__address launches = 0;
    const ignis__formula_kernel *kernel;
    ignis__block *memory = NULL;
    ignis__formula_plan plan;
    ignis__formula_spec *spec = &plan.spec;
    void *params[] = {words};
    memset(&plan.words, 0, sizeof plan.words);
    if (!ignis__formula_check_indices(work, run, &plan))
        return false;
    if (run->formula->randoms && !ignis__random_step(work, run->random.launches, &launches))
        return false;
    ignis__formula_plan_dims(run, &plan);
    if (plan.numel == 0)
        return true;
    ignis__formula_plan_spec(work, run, &plan);
    kernel = ignis__formula_kernel_get(work->call, work->device, run->formula, spec);
    if (!kernel)
        return false;
    *spec = kernel->spec; /* another kernel may serve */
    if (spec->rank == IGNIS__FORMULA_ANY_RANK) {
        ignis__formula_pad_rank(plan.rank, run->formula->count + 2, plan.dim, plan.stride);
        plan.rank = IGNIS__FORMULA_ANY_RANK;
        plan.words.broadcasts = true;
    }
    full = plan.numel / spec->pack;
    rest = plan.numel % spec->pack;
    counts_elements = (plan.words.broadcasts && !spec->whole) || spec->kept || plan.index_count;
    blocks = ignis__ceil_div(full > rest ? full : rest, IGNIS__FORMULA_THREADS * spec->packs_per_thread);
    if (spec->mode) {
        blocks = ignis__formula_split(work, spec, &plan.axis, plan.shared);
        block[0] = spec->mode == IGNIS__FORMULA_COLUMNS ? 256 : IGNIS__FORMULA_THREADS;
    }
    if ((counts_elements ? plan.numel : full) > INT32_MAX - 4096 || plan.axis.n > INT32_MAX - 4096 ||
        blocks > INT32_MAX)
        return ignis__fail_false(IGNIS_DIAG_SHAPE_OVERFLOW, work->call, "%s is larger than one launch can cover",
                                 ignis__shape_write(&run->shape).text);
    if (spec->parts) {
        memory = ignis__memory_take(work->call, work->device, work->stream,
                                    (int64_t)plan.shared[2] * (int64_t)plan.shared[4] * 16 * run->outs);
        if (!memory)
            return false;
        plan.shared[5] = memory->address;
    }
    plan.words.formula = run->formula;
    plan.words.spec = spec;
    ignis__formula_plan_words(&plan.words);
    memset(words, 0, sizeof words);
    ignis__formula_fill_words(run, &plan, launches, words);
    grid[0] = (unsigned)blocks;
    ok = ignis__launch_as(work, kernel->function, grid, block, 0, params, false, false);
    if (memory && ok) {
        grid[0] = (unsigned)plan.shared[4];
        block[0] = 128;
        ok = ignis__launch_as(work, kernel->finish, grid, block, 0, params, false, false);
    }
    if (memory)
        ignis__memory_recycle(work->call, work->device, memory);
    return ok;
}
