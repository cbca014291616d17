/*  >>formula.launch - chooses the kernel of a run and launches it

    Chooses packs, teams and chunks from shapes and addresses, fills the parameter's words, launches.
    Uses: broadcast, emit (its layout of words), kernel. The device is entered and the arrays are held. */

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
static void ignis__formula_record_run(const char *call, const ignis__formula_run *run)
{
    ignis__formula_spec spec;
    if (!ignis__requests.path[0])
        return;
    ignis__formula_spec_begin(run, &spec);
    ignis__formula_record(call, run->formula, &spec);
}

/*  Returns whether a run has a kernel: it can be compiled, or the bundle has it. A bundle that has it for
    some sizes has it for any. */
static bool ignis__formula_is_available(const char *call, const ignis__device *device, const ignis__formula_run *run)
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
static int64_t ignis__formula_split(const ignis__work *work, const ignis__formula_spec *spec, const ignis__axis *s,
                                    uint64_t *shared)
{
    int64_t processors = work->device->info.multiprocessors, packs, tiles, parts;
    if (spec->mode == IGNIS__FORMULA_ROWS) {
        packs = s->n / spec->pack;
        parts = ignis__clamp(16 * processors / s->outer, 1, ignis__ceil_div(packs + 1, 1024));
        shared[1] = (uint64_t)packs;
        shared[3] = (uint64_t)ignis__ceil_div(packs, parts);
        parts = packs ? ignis__ceil_div(packs, (int64_t)shared[3]) : 1;
        shared[2] = (uint64_t)parts;
        shared[4] = (uint64_t)s->outer;
        return ignis__ceil_div(s->outer * parts, IGNIS__FORMULA_THREADS / spec->team);
    }
    packs = s->inner / spec->pack;
    tiles = ignis__ceil_div(packs, spec->team);
    parts = ignis__clamp(8 * processors / (s->outer * tiles), 1, ignis__ceil_div(s->n * spec->team, 1024));
    shared[0] = (uint64_t)s->n;
    shared[1] = (uint64_t)packs;
    shared[3] = (uint64_t)ignis__ceil_div(s->n, parts);
    parts = ignis__ceil_div(s->n, (int64_t)shared[3]);
    shared[2] = (uint64_t)parts;
    shared[4] = (uint64_t)(s->outer * s->inner);
    return s->outer * tiles * parts;
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

/*  Launches the kernel of a formula on the current stream. Reduced dimensions are neighbours. */
static bool ignis__formula_launch(const ignis__work *work, const ignis__formula_run *run)
{
    int64_t stride[IGNIS_MAX_INPUTS + 4][IGNIS__FORMULA_ANY_RANK], dim[IGNIS__FORMULA_ANY_RANK], numel = 1, full,
                                                                                                 parts = 1, blocks;
    ignis__axis s = {1, 1, 1}; /* what is reduced */
    uint64_t words[2 * IGNIS_MAX_INPUTS + 2 + 10 + 3 + 5 * (IGNIS__FORMULA_INDICES + 1) + 3 * IGNIS_MAX_DIMS +
                   (IGNIS_MAX_INPUTS + 2) * IGNIS__FORMULA_ANY_RANK],
        shared[8];
    int terms[IGNIS__FORMULA_INDICES], indices = ignis__formula_index_count(run->formula, terms),
                                       count = run->formula->count, rank, widest = 1, linear = 0, i, d;
    unsigned grid[3] = {0, 1, 1}, block[3] = {IGNIS__FORMULA_THREADS, 1, 1};
    bool ok, one_row;
    ignis__address launches = 0;
    const ignis__formula_kernel *kernel;
    ignis__block *memory = NULL;
    ignis__formula_writer w = IGNIS__ZERO;
    ignis__formula_spec spec;
    void *params[] = {words};
    for (i = 0; i < indices; i++) {
        d = (int)run->formula->term[terms[i]].number;
        if (d < -run->shape.ndim || d >= run->shape.ndim)
            return ignis__fail_false(IGNIS_DIAG_DIM_RANGE, work->call, "index(%d) is outside of the result, %s", d,
                                     ignis__shape_write(&run->shape).text);
    }
    if (run->formula->randoms && !ignis__random_step(work, run->random.launches, &launches))
        return false;
    memset(stride, 0, sizeof stride);
    for (i = 0; i <= count + 1; i++)
        if (run->used >> i & 1 && run->input[i])
            ignis__formula_strides(&run->shape, run->input[i], stride[i]);
    ignis__formula_strides(&run->shape, &run->shape, stride[count + 2]);
    if (run->reduced) {
        ignis__formula_strides(&run->shape, run->to_shape, stride[count + 3]);
        ignis__axis_of_broadcast(&run->shape, run->to_shape, &s);
    }
    rank = ignis__formula_collapse_dims(&run->shape, count + 3 + (run->reduced != 0), stride, dim);
    if (rank == 0) { /* a single element */
        rank = 1;
        dim[0] = 1;
        for (i = 0; i <= count + 2; i++)
            stride[i][0] = 1;
    }
    for (d = 0; d < rank; d++)
        numel *= dim[d];
    if (numel == 0)
        return true;
    ignis__formula_spec_begin(run, &spec);
    spec.parts = false;
    if (run->reduced)
        spec.mode = s.inner == 1 && s.n > 1 ? IGNIS__FORMULA_ROWS : IGNIS__FORMULA_COLUMNS;
    if (spec.mode == IGNIS__FORMULA_COLUMNS && s.n == 1) { /* nothing is combined: all are columns of one row */
        s.inner = s.outer * s.inner;
        s.outer = 1;
    }
    for (i = 0; i < run->outs; i++)
        if (!(run->reduced >> i & 1))
            widest = ignis__dtypes[run->out[i]].size > widest ? ignis__dtypes[run->out[i]].size : widest;
    for (i = 0; i <= count + 1; i++) {
        bool one = true, same = true;
        int size = ignis__dtypes[run->dtype[i]].size;
        if (spec.kind[i] == IGNIS__FORMULA_UNUSED || spec.kind[i] == IGNIS__FORMULA_VALUE)
            continue;
        for (d = 0; d < rank; d++) {
            one = one && stride[i][d] == 0;
            same = same && stride[i][d] == stride[count + 2][d];
        }
        spec.kind[i] = same                  ? IGNIS__FORMULA_LINEAR
                       : one                 ? IGNIS__FORMULA_ONE
                       : stride[i][rank - 1] ? IGNIS__FORMULA_ROW
                                             : IGNIS__FORMULA_COLUMN;
        linear += same;
        w.broadcasts = w.broadcasts || spec.kind[i] >= IGNIS__FORMULA_ROW;
        if (!one && stride[i][rank - 1])
            widest = size > widest ? size : widest;
    }
    one_row = spec.mode == IGNIS__FORMULA_ROWS && s.outer == 1 && !w.broadcasts;
    spec.pack = (uint16_t)ignis__formula_choose_pack(run, &spec, widest, spec.mode && !one_row ? dim[rank - 1] : 0);
    spec.rank = (uint16_t)(w.broadcasts ? rank : 1);
    spec.whole = !w.broadcasts || dim[rank - 1] % spec.pack == 0;
    spec.packs_per_thread = linear == 1 || (spec.mode && !spec.needed) ? 2 : 1;
    memset(words, 0, sizeof words);
    memset(shared, 0, sizeof shared);
    if (spec.mode == IGNIS__FORMULA_ROWS) {
        int64_t packs = s.n / spec.pack;
        spec.team =
            s.outer > 1 && packs <= (s.outer < 64 * (int64_t)work->device->info.multiprocessors ? 128 : 512) ? 32 : 128;
    } else if (spec.mode == IGNIS__FORMULA_COLUMNS) {
        for (spec.team = 1; spec.team < s.inner / spec.pack && spec.team < 32;)
            spec.team = (uint16_t)(2 * spec.team);
    }
    if (spec.mode) {
        (void)ignis__formula_split(work, &spec, &s, shared);
        spec.parts = shared[2] > 1;
    }
    kernel = ignis__formula_kernel_get(work->call, work->device, run->formula, &spec);
    if (!kernel)
        return false;
    spec = kernel->spec; /* another kernel may serve */
    if (spec.rank == IGNIS__FORMULA_ANY_RANK) {
        ignis__formula_pad_rank(rank, count + 2, dim, stride);
        rank = IGNIS__FORMULA_ANY_RANK;
        w.broadcasts = true;
    }
    full = numel / spec.pack;
    if (((w.broadcasts && !spec.whole) || spec.kept || indices ? numel : full) > INT32_MAX - 4096 ||
        s.n > INT32_MAX - 4096)
        return ignis__fail_false(IGNIS_DIAG_SHAPE_OVERFLOW, work->call, "%s is larger than one launch can cover",
                                 ignis__shape_write(&run->shape).text);
    blocks = ignis__ceil_div(full > numel % spec.pack ? full : numel % spec.pack,
                             IGNIS__FORMULA_THREADS * spec.packs_per_thread);
    if (spec.mode) {
        blocks = ignis__formula_split(work, &spec, &s, shared);
        parts = (int64_t)shared[2];
        block[0] = spec.mode == IGNIS__FORMULA_COLUMNS ? 256 : IGNIS__FORMULA_THREADS;
    }
    if (blocks > INT32_MAX)
        return ignis__fail_false(IGNIS_DIAG_SHAPE_OVERFLOW, work->call, "%s is larger than one launch can cover",
                                 ignis__shape_write(&run->shape).text);
    if (spec.parts) {
        memory =
            ignis__memory_take(work->call, work->device, work->stream, parts * (int64_t)shared[4] * 16 * run->outs);
        if (!memory)
            return false;
        shared[5] = memory->address;
    }
    memcpy(&shared[6], &run->factor, sizeof shared[6]);
    shared[7] = run->kept_to;
    w.formula = run->formula;
    w.spec = &spec;
    ignis__formula_plan_words(&w);
    if (spec.mode || spec.needed)
        memcpy(words + w.shared, shared, sizeof shared);
    if (run->formula->randoms) {
        words[w.random] = run->random.seed;
        words[w.random + 1] = run->random.first;
        words[w.random + 2] = launches;
    }
    for (i = 0; i < indices; i++) {
        d = (int)run->formula->term[terms[i]].number;
        d += d < 0 ? run->shape.ndim : 0;
        ignis__formula_coordinate_divisor(ignis__shape_product(&run->shape, d + 1, run->shape.ndim), run->shape.dim[d],
                                          &words[w.indices + 5 * i]);
    }
    if (spec.needed && ignis__formula_saves_position(&spec)) {
        ignis__axis_of_broadcast(&run->shape, run->input[count + 1], &s);
        ignis__formula_coordinate_divisor(s.inner, s.n, &words[w.indices + 5 * indices]);
    }
    for (i = 0; i < run->outs; i++)
        words[i] = run->to[i];
    words[w.packs] = (uint64_t)full;
    words[w.packs + 1] = (uint64_t)(numel % spec.pack);
    for (d = 1; d < spec.rank; d++) {
        int64_t divisor = dim[d] / (spec.whole && d == rank - 1 ? spec.pack : 1);
        words[w.dims + 3 * d - 3] = (uint64_t)divisor;
        ignis__formula_divisor(divisor, &words[w.dims + 3 * d - 2]);
    }
    for (i = 0; i <= count + 1; i++) {
        if (spec.kind[i] == IGNIS__FORMULA_VALUE)
            memcpy(&words[w.input[i]], &run->value[i], sizeof words[0]);
        else if (spec.kind[i] != IGNIS__FORMULA_UNUSED)
            words[w.input[i]] = run->address[i];
        for (d = 0; d < spec.rank && spec.kind[i] >= IGNIS__FORMULA_ROW; d++)
            words[w.strides[i] + d] = (uint64_t)stride[i][d];
    }
    grid[0] = (unsigned)blocks;
    ok = ignis__launch_as(work, kernel->function, grid, block, 0, params, false, false);
    if (memory && ok) {
        grid[0] = (unsigned)shared[4];
        block[0] = 128;
        ok = ignis__launch_as(work, kernel->finish, grid, block, 0, params, false, false);
    }
    if (memory)
        ignis__memory_recycle(work->call, work->device, memory);
    return ok;
}
