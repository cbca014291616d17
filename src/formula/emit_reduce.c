/*  >>formula.emit_reduce - the CUDA text of a kernel that reduces rows or columns

    Writes the state of the reduction, how states combine in a thread, a team and a block, and the kernel that
    combines chunks.
    Uses: emit. Invariant: states combine in a fixed order, so the same shape has the same bits. */

#include "room.h"

/*  Returns whether integers are summed for their mean: exactly, in 64 bits and the upper 32 bits of the sum. */
static bool ignis__formula_is_integer_mean(const ignis__formula_writer *w)
{
    return w->spec->reduction == IGNIS_REDUCE_MEAN && strcmp(w->type, "i64") == 0;
}

/*  Writes the end of a reduction: state s becomes result `at` of output k, or of a chunk of it. */
IGNIS__COLD static void ignis__formula_emit_result(ignis__formula_writer *writer, int k, const char *state,
                                                   const char *at, bool part)
{
    const ignis__formula_spec *spec = writer->spec;
    ignis__formula_text *text = &writer->text;
    bool kept = spec->kept && !spec->needed, whole_mean = ignis__formula_is_integer_mean(writer);
    bool to_integer = ignis__dtype_is_int((ignis_dtype)spec->out[k]);
    if (part) {
        ignis__formula_emit(text, "        ((S *)p.w[%d])[((u64)%d*parts + part)*p.w[%d] + %s] = %s;\n",
                            writer->shared + 5, k, writer->shared + 4, at, state);
        return;
    }
    if (ignis__formula_reductions[spec->reduction].place)
        ignis__formula_emit(text, "        { const i64 y%d = map_place_of(%s);\n", k, state);
    else if (spec->reduction == IGNIS_REDUCE_LOGSUMEXP)
        ignis__formula_emit(text, "        { const W y%d = %s.v + log(%s.i);\n", k, state, state);
    else if (spec->reduction == IGNIS_REDUCE_NORM)
        ignis__formula_emit(text, "        { const W y%d = map_norm(%s.v, %s.i);\n", k, state, state);
    else if (kept && spec->reduction == IGNIS_REDUCE_PROD)
        ignis__formula_emit(text, "        { const W y%d = %s.i ? %s.v*0 : %s.v;\n", k, state, state, state);
    else if (whole_mean)
        ignis__formula_emit(
            text, "        { const %s y%d = map_mean%s(%s.v, %s.i, (i64)__longlong_as_double((i64)p.w[%d]));\n",
            to_integer ? "i64" : "double", k, to_integer ? "_whole" : "", state, state, writer->shared + 6);
    else
        ignis__formula_emit(text, "        { const %s y%d = %s.v%s;\n", writer->type, k, state,
                            spec->reduction == IGNIS_REDUCE_MEAN ? "/factor" : "");
    if (kept && ignis__formula_saves_position(spec))
        ignis__formula_emit(text, "        ((i64 *)p.w[%d])[%s] = map_place_of(%s);\n", writer->shared + 7, at, state);
    else if (kept && spec->reduction == IGNIS_REDUCE_PROD)
        ignis__formula_emit(text, "        ((W *)p.w[%d])[%s] = map_product(%s.v, %s.i);\n", writer->shared + 7, at,
                            state, state);
    else if (kept && spec->reduction == IGNIS_REDUCE_NORM)
        ignis__formula_emit(text, "        ((W *)p.w[%d])[%s] = y%d;\n", writer->shared + 7, at, k);
    else if (kept) /* the largest element and the sum: their logarithm would be rounded, and the gradients with it */
        ignis__formula_emit(text, "        ((W *)p.w[%d])[%s] = %s.v;\n        ((W *)p.w[%d])[p.w[%d] + %s] = %s.i;\n",
                            writer->shared + 7, at, state, writer->shared + 7, writer->shared + 4, at, state);
    ignis__formula_emit_store(writer, k, 1, true, at);
    ignis__formula_emit(text, "        }\n");
}

/*  Returns the members of a reduction's state besides the value v. */
IGNIS__COLD static const char *ignis__formula_state_members(const ignis__formula_writer *w)
{
    const ignis__formula_spec *spec = w->spec;
    bool kept = (spec->kept && !spec->needed) || ignis__formula_is_integer_mean(w);
    return ignis__formula_reduces_wide(spec->reduction)               ? "W"
           : ignis__formula_reductions[spec->reduction].place || kept ? "int"
                                                                      : NULL;
}

/*  Writes the kernel that combines chunks: a block for each result. */
IGNIS__COLD static void ignis__formula_emit_finish(ignis__formula_writer *writer)
{
    const ignis__formula_spec *spec = writer->spec;
    ignis__formula_text *text = &writer->text;
    int k;
    ignis__formula_emit(text,
                        "extern \"C\" __global__ void __launch_bounds__(128) finish(const P p)\n"
                        "{\n"
                        "    __shared__ S shared[4];\n"
                        "    const u32 parts = (u32)p.w[%d], part = 0;\n"
                        "    const W factor = (W)__longlong_as_double((i64)p.w[%d]);\n"
                        "    S s;\n",
                        writer->shared + 2, writer->shared + 6);
    for (k = 0; k < spec->outs; k++) {
        if (!(spec->reduced >> k & 1))
            continue;
        ignis__formula_emit(text,
                            "    s = map_none();\n"
                            "    for (u32 i = threadIdx.x; i < parts; i += 128u)\n"
                            "        s = map_fold(s, ((const S *)p.w[%d])[((u64)%d*parts + i)*p.w[%d] + blockIdx.x]);\n"
                            "    s = map_together(s, 128, shared);\n"
                            "    if (threadIdx.x == 0)\n",
                            writer->shared + 5, k, writer->shared + 4);
        ignis__formula_emit_result(writer, k, "s", "blockIdx.x", false);
    }
    ignis__formula_emit(text, "}\n");
}

/*  Writes the combination of the states of a warp or a block. has_members: a state has more than a value. */
IGNIS__COLD static void ignis__formula_emit_together(ignis__formula_text *text, bool has_members)
{
    ignis__formula_emit(text,
                        "DI S map_together(S s, const int threads, S *shared)\n"
                        "{\n"
                        "#pragma unroll 1\n"
                        "    for (int d = 16; d; d /= 2) {\n"
                        "        S other;\n"
                        "        other.v = __shfl_xor_sync(~0u, s.v, d);\n"
                        "%s        s = threadIdx.x & d ? map_fold(other, s) : map_fold(s, other);\n"
                        "    }\n"
                        "    if (threads == 32) return s;\n"
                        "    __syncthreads();\n"
                        "    if (threadIdx.x %% 32 == 0) shared[threadIdx.x / 32] = s;\n"
                        "    __syncthreads();\n"
                        "    s = shared[0];\n"
                        "#pragma unroll 1\n"
                        "    for (int i = 1; i < threads / 32; i++) s = map_fold(s, shared[i]);\n"
                        "    return s;\n"
                        "}\n",
                        has_members ? "        other.i = __shfl_xor_sync(~0u, s.i, d);\n" : "");
}

/*  Writes the state, its combination, and the kernel that combines chunks. The sum of logsumexp is that of
    exp(... - v). A product with a gradient multiplies the numbers that are not 0; i counts them. */
IGNIS__COLD static void ignis__formula_emit_folding(ignis__formula_writer *writer)
{
    const ignis__formula_spec *spec = writer->spec;
    ignis__formula_text *text = &writer->text;
    const char *more = ignis__formula_state_members(writer);
    bool sums = ignis__formula_is_integer_mean(writer), counts = more && spec->reduction == IGNIS_REDUCE_PROD;
    int reduction = spec->reduction +
                    (ignis__formula_saves_position(spec) && !spec->needed ? IGNIS_REDUCE_ARGMAX - IGNIS_REDUCE_MAX : 0);
    const char *fold = ignis__formula_reductions[reduction].fold;
    ignis__formula_emit(text, "struct S { %s v;", writer->type);
    if (more)
        ignis__formula_emit(text, " %s i;", more);
    ignis__formula_emit(text, " };\nDI S map_none() { S s; s.v = %s;%s return s; }\n",
                        strcmp(writer->type, "W") == 0 ? ignis__formula_reductions[reduction].none
                                                       : ignis__formula_reductions[reduction].none_integer,
                        !more                            ? ""
                        : *more == 'W' || counts || sums ? " s.i = 0;"
                                                         : " s.i = 0x7fffffff;");
    /* fold combines two states; next combines a state with a thread's next element, whose index is higher */
    if (sums)
        ignis__formula_emit(text,
                            "DI S map_fold(const S a, const S b)\n"
                            "{\n"
                            "    S s;\n"
                            "    s.v = (i64)((u64)a.v + (u64)b.v);\n"
                            "    s.i = a.i + b.i + ((u64)s.v < (u64)a.v);\n"
                            "    return s;\n"
                            "}\n"
                            "DI S map_next(const S a, const i64 v, const u32 at) { S b; b.v = v; b.i = v < 0 ? -1 : 0; "
                            "return map_fold(a, b); }\n");
    else if (counts)
        ignis__formula_emit(text,
                            "DI S map_fold(const S a, const S b) { S s; s.v = %s; s.i = a.i + b.i; return s; }\n"
                            "DI S map_next(S a, const W v, const u32 at) { a.v = v == 0 ? a.v : a.v*v; a.i += v == 0; "
                            "return a; }\n",
                            fold);
    else if (more && *more == 'i') /* keeps the first of equal elements; without any, place_of is the first */
        ignis__formula_emit(text,
                            "DI S map_fold(const S a, const S b) { return a.v == b.v || (a.v != a.v && b.v != b.v) ? "
                            "(a.i < b.i ? a : b) : %s ? a : b; }\n"
                            "DI S map_next(S a, const %s v, const u32 at)\n"
                            "{\n"
                            "    const bool is = !(v %s a.v) && a.v == a.v;\n"
                            "    a.v = is ? v : a.v;\n"
                            "    a.i = is ? (int)at : a.i;\n"
                            "    return a;\n"
                            "}\n"
                            "DI i64 map_place_of(const S s) { return s.i == 0x7fffffff ? 0 : s.i; }\n",
                            fold, writer->type, reduction == IGNIS_REDUCE_ARGMAX ? "<=" : ">=");
    else if (spec->reduction == IGNIS_REDUCE_NORM)
        ignis__formula_emit(text,
                            "DI S map_fold(const S a, const S b) { S s; s.v = %s; s.i = a.i + b.i; return s; }\n"
                            "DI S map_next(S a, const W v, const u32 at)\n"
                            "{\n"
                            "    const W low = v*MAP_NORM_LOW, high = v*MAP_NORM_HIGH;\n"
                            "    a.v += low*low;\n"
                            "    a.i += high*high;\n"
                            "    return a;\n"
                            "}\n",
                            fold);
    else if (more)
        ignis__formula_emit(text,
                            "DI S map_fold(const S a, const S b)\n"
                            "{\n"
                            "    S s;\n"
                            "    s.v = %s;\n"
                            "    s.i = (a.v == s.v ? a.i : a.i*exp(a.v - s.v)) + (b.v == s.v ? b.i : b.i*exp(b.v - "
                            "s.v));\n"
                            "    return s;\n"
                            "}\n"
                            "DI S map_next(S a, const W v, const u32 at)\n"
                            "{\n"
                            "    const W e = v == a.v ? (W)1 : exp(-fabs(v - a.v));\n"
                            "    a.i = v > a.v ? a.i*e + 1 : a.i + e;\n"
                            "    a.v = a.v > v || a.v != a.v ? a.v : v;\n"
                            "    return a;\n"
                            "}\n",
                            fold);
    else
        ignis__formula_emit(text,
                            "DI S map_fold(const S a, const S b) { S s; s.v = %s; return s; }\n"
                            "DI S map_next(const S a, const %s v, const u32 at) { S b; b.v = v; return map_fold(a, b); "
                            "}\n",
                            fold, writer->type);
    ignis__formula_emit_together(text, more != NULL);
    if (spec->parts)
        ignis__formula_emit_finish(writer);
}

/*  Writes a kernel that reduces rows. A team of threads reduces one chunk of a row. */
IGNIS__COLD static void ignis__formula_emit_rows(ignis__formula_writer *writer)
{
    const ignis__formula_spec *spec = writer->spec;
    ignis__formula_text *text = &writer->text;
    int k, n = spec->pack, team = spec->team;
    bool largest = spec->reduction == IGNIS_REDUCE_ARGMAX || spec->reduction == IGNIS_REDUCE_MAX;
    bool packs = n > 1 && (ignis__formula_reductions[spec->reduction].place ||
                           (ignis__formula_saves_position(spec) && !spec->needed));
    char there[60], thread[40];
    snprintf(there, sizeof there, "first + u*%du < end", team);
    ignis__formula_emit(text,
                        "    __shared__ S shared[%d];\n    const u32 packs = (u32)p.w[%d], length = (u32)p.w[%d];\n",
                        team / 32, writer->shared + 1, writer->shared + 3);
    ignis__formula_emit(text, spec->parts ? "    const u32 parts = (u32)p.w[%d];\n" : "    const u32 parts = 1;\n",
                        writer->shared + 2);
    ignis__formula_emit(text,
                        "    const u32 item = blockIdx.x*%du + threadIdx.x / %d, lane = threadIdx.x %% %d, row = "
                        "item / parts, part = item %% parts;\n",
                        IGNIS__FORMULA_THREADS / team, team, team);
    ignis__formula_emit(text,
                        "    const u32 end = min(part*length + length, packs), start = row*packs;\n"
                        "    if (row >= (u32)p.w[%d]) return;\n",
                        writer->shared + 4);
    for (k = 0; k < spec->outs; k++)
        ignis__formula_emit(text, "    S a%d = map_none();\n", k);
    if (packs) /* the largest element of a pack is found first, then its position: i is the pack's, b the pack */
        ignis__formula_emit(text, "    %s b[%d];\n", writer->type, n);
    ignis__formula_emit(text,
                        "#pragma unroll 1\n    for (u32 first = part*length + lane; first < end; first += %du) {\n",
                        team * spec->packs_per_thread);
    snprintf(thread, sizeof thread, "start + first + u*%du", team);
    ignis__formula_emit_packs(writer, there, thread);
    if (packs)
        ignis__formula_emit(text,
                            "            S c;\n"
                            "            c.v = y0[0];\n"
                            "#pragma unroll\n"
                            "            for (int e = 1; e < %d; e++) c.v = %s(c.v, y0[e]);\n"
                            "            c = map_next(a0, c.v, (first + u*%du)*%d);\n"
                            "            const bool is = c.i != a0.i;\n"
                            "            a0 = c;\n"
                            "#pragma unroll\n"
                            "            for (int e = 0; e < %d; e++) b[e] = is ? y0[e] : b[e];\n",
                            n, largest ? "map_most" : "map_least", team, n, n);
    for (k = 0; k < spec->outs && !packs; k++)
        if (spec->reduced >> k & 1)
            ignis__formula_emit(
                text,
                "#pragma unroll\n"
                "            for (int e = 0; e < %d; e++) a%d = map_next(a%d, y%d[e], (first + u*%du)*%d + "
                "e);\n",
                n, k, k, k, team, n);
    ignis__formula_emit(text, "        }\n    }\n    }\n");
    if (packs)
        ignis__formula_emit(
            text,
            "    int place = 0;\n"
            "#pragma unroll\n"
            "    for (int e = %d; e > 0; e--) place = b[e - 1] == a0.v || b[e - 1] != b[e - 1] ? e - 1 : "
            "place;\n"
            "    a0.i += a0.i == 0x7fffffff ? 0 : place;\n",
            n);
    if (!writer->broadcasts && spec->pack > 1) {
        ignis__formula_emit_rest(
            writer, "lane + (part + 1 < parts ? 64u : 0u)"); /* in the last chunk; fewer than 16 elements */
        for (k = 0; k < spec->outs; k++)
            if (spec->reduced >> k & 1)
                ignis__formula_emit(text, "        a%d = map_next(a%d, y%d, (u32)at);\n", k, k, k);
        ignis__formula_emit(text, "    }\n");
    }
    for (k = 0; k < spec->outs; k++) {
        if (!(spec->reduced >> k & 1))
            continue;
        ignis__formula_emit(text, "    a%d = map_together(a%d, %d, shared);\n    if (lane == 0) {\n", k, k, team);
        snprintf(thread, sizeof thread, "a%d", k);
        ignis__formula_emit_result(writer, k, thread, "row", spec->parts);
        ignis__formula_emit(text, "    }\n");
    }
}

/*  Writes a kernel that reduces columns. Threads in x take packs of a row; threads in y share the rows. */
IGNIS__COLD static void ignis__formula_emit_columns(ignis__formula_writer *writer)
{
    const ignis__formula_spec *spec = writer->spec;
    ignis__formula_text *text = &writer->text;
    int k, n = spec->pack, x = spec->team, y = 256 / x;
    char there[60];
    snprintf(there, sizeof there, "row + u*%du < end", y);
    ignis__formula_emit(text,
                        "    __shared__ S shared[%d][%d];\n"
                        "    const u32 rows = (u32)p.w[%d], packs = (u32)p.w[%d], length = (u32)p.w[%d];\n",
                        y, x * n, writer->shared, writer->shared + 1, writer->shared + 3);
    ignis__formula_emit(text, spec->parts ? "    const u32 parts = (u32)p.w[%d];\n" : "    const u32 parts = 1;\n",
                        writer->shared + 2);
    ignis__formula_emit(text,
                        "    const u32 tx = threadIdx.x %% %d, ty = threadIdx.x / %d, tiles = (packs + %d) / %d;\n", x,
                        x, x - 1, x);
    ignis__formula_emit(text, "    const u32 tile = blockIdx.x %% tiles, part = blockIdx.x / tiles %% parts, group = "
                              "blockIdx.x / tiles / parts;\n");
    ignis__formula_emit(
        text, "    const u32 column = tile*%du + tx, end = column < packs ? min(part*length + length, rows) : 0;\n", x);
    for (k = 0; k < spec->outs; k++)
        ignis__formula_emit(text,
                            "    S a%d[%d];\n#pragma unroll\n    for (int e = 0; e < %d; e++) a%d[e] = map_none();\n",
                            k, n, n, k);
    ignis__formula_emit(text, "#pragma unroll 1\n    for (u32 row = part*length + ty; row < end; row += %du) {\n",
                        y * spec->packs_per_thread);
    {
        char at[80];
        snprintf(at, sizeof at, "(group*rows + row + u*%du)*packs + column", y);
        ignis__formula_emit_packs(writer, there, at);
    }
    for (k = 0; k < spec->outs; k++)
        if (spec->reduced >> k & 1)
            ignis__formula_emit(
                text,
                "#pragma unroll\n"
                "            for (int e = 0; e < %d; e++) a%d[e] = map_next(a%d[e], y%d[e], row + u*%du);\n",
                n, k, k, k, y);
    ignis__formula_emit(text, "        }\n    }\n    }\n");
    for (k = 0; k < spec->outs; k++) {
        if (!(spec->reduced >> k & 1))
            continue;
        ignis__formula_emit(text,
                            "    __syncthreads();\n"
                            "#pragma unroll\n"
                            "    for (int e = 0; e < %d; e++) shared[ty][tx*%d + e] = a%d[e];\n"
                            "    __syncthreads();\n",
                            n, n, k);
        ignis__formula_emit(text,
                            "    for (u32 c = threadIdx.x; c < %du && tile*%du + c < packs*%du; c += 256u) {\n"
                            "        S s = shared[0][c];\n",
                            x * n, x * n, n);
        ignis__formula_emit(text,
                            "#pragma unroll 1\n"
                            "        for (int i = 1; i < %d; i++) s = map_fold(s, shared[i][c]);\n"
                            "        const u64 to = (u64)group*packs*%d + tile*%du + c;\n",
                            y, n, x * n);
        ignis__formula_emit_result(writer, k, "s", "to", spec->parts);
        ignis__formula_emit(text, "    }\n");
    }
}

/*  Lays out the parameter's words and writes the whole kernel. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__formula_write_kernel(ignis__formula_writer *writer,
                                                            const ignis__formula *formula,
                                                            const ignis__formula_spec *spec)
{
    ignis__formula_text *text = &writer->text;
    int threads = spec->mode == IGNIS__FORMULA_COLUMNS ? 256 : IGNIS__FORMULA_THREADS;
    bool ok;
    memset(writer, 0, sizeof *writer);
    writer->formula = formula;
    writer->spec = spec;
    writer->type = ignis__formula_result_type(writer, 0);
    ignis__formula_plan_words(writer);
    ok = ignis__formula_emit_function(writer);
    if (spec->mode)
        ignis__formula_emit_folding(writer);
    ignis__formula_emit(text, "extern \"C\" __global__ void __launch_bounds__(%d) k(const P p)\n{\n", threads);
    ignis__formula_emit_constants(writer);
    if (spec->mode == IGNIS__FORMULA_ROWS) {
        ignis__formula_emit_rows(writer);
    } else if (spec->mode == IGNIS__FORMULA_COLUMNS) {
        ignis__formula_emit_columns(writer);
    } else {
        char there[60], at[40];
        snprintf(at, sizeof at, "base + u*%du", threads);
        snprintf(there, sizeof there, "%s < (u32)p.w[%d]", at, writer->packs);
        ignis__formula_emit(text, "    const u32 base = blockIdx.x*%du + threadIdx.x;\n",
                            threads * spec->packs_per_thread);
        ignis__formula_emit_packs(writer, there, at);
        ignis__formula_emit(text, "        }\n    }\n");
        if (spec->pack > 1 && !(writer->broadcasts && spec->whole)) {
            ignis__formula_emit_rest(writer, "base");
            ignis__formula_emit(text, "    }\n");
        }
    }
    ignis__formula_emit(text, "}\n");
    return ok && !text->failed;
}
