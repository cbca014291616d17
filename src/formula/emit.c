/*  >>formula.emit - the CUDA text of an elementwise kernel

    Lays out the words of the kernel's parameter, then writes the function f, loads, calls and stores in
    packs.
    Uses: derivative. Invariant: the words that launch.c fills are in the order that ignis__formula_plan_words
    gives them. */

#include "room.h"

IGNIS__PRIVATE const struct ignis__formula_reductions_type ignis__formula_reductions[] = {
    {"", "", "", "", false},
    {"sum", "0", "0", "a.v + b.v", false},
    {"mean", "0", "0", "a.v + b.v", false},
    {"prod", "1", "1", "a.v * b.v", false},
    {"max", "-map_infinity", "-9223372036854775807LL - 1", "map_most(a.v, b.v)", false},
    {"min", "map_infinity", "9223372036854775807LL", "map_least(a.v, b.v)", false},
    {"any", "0", "0", "a.v != 0 || b.v != 0", false},
    {"all", "1", "1", "a.v != 0 && b.v != 0", false},
    {"argmax", "-map_infinity", "-9223372036854775807LL - 1", "a.v > b.v || (a.v != a.v && b.v == b.v)", true},
    {"argmin", "map_infinity", "9223372036854775807LL", "a.v < b.v || (a.v != a.v && b.v == b.v)", true},
    {"logsumexp", "-map_infinity", "", "map_most(a.v, b.v)", false},
    {"norm", "0", "", "a.v + b.v", false},
};

/*  Returns whether the saved value is the position of an element. */
IGNIS__PRIVATE bool ignis__formula_saves_position(const ignis__formula_spec *spec)
{
    return spec->kept == IGNIS_REDUCE_MAX || spec->kept == IGNIS_REDUCE_MIN;
}

/*  Returns the number of index(d) in a formula, and their terms. */
IGNIS__PRIVATE int ignis__formula_index_count(const ignis__formula *formula, int *terms)
{
    int at, count = 0;
    for (at = 0; at < formula->term_count; at++)
        if (formula->term[at].function == IGNIS__FORMULA_INDEX) {
            if (terms)
                terms[count] = at;
            count++;
        }
    return count;
}

IGNIS__PRIVATE void ignis__formula_plan_words(ignis__formula_writer *writer)
{
    const ignis__formula_spec *spec = writer->spec;
    int i, at = spec->outs, count = writer->formula->count;
    for (i = 0; i <= count + 1; i++) {
        writer->input[i] = at;
        at += spec->kind[i] != IGNIS__FORMULA_UNUSED;
        writer->broadcasts = writer->broadcasts || spec->kind[i] >= IGNIS__FORMULA_ROW;
    }
    writer->packs = at;
    writer->dims = at += 2;
    at += 3 * (spec->rank - 1);
    for (i = 0; i <= count + 1; i++) {
        writer->strides[i] = at;
        at += spec->kind[i] >= IGNIS__FORMULA_ROW ? spec->rank : 0;
    }
    writer->shared = at;
    writer->indices = at += spec->mode || spec->needed ? 8 : 0;
    writer->random = at +=
        5 * (ignis__formula_index_count(writer->formula, NULL) + (spec->needed && ignis__formula_saves_position(spec)));
    writer->words = at + (writer->formula->randoms ? 3 : 0);
}

/*  Returns the type of f's result k. Gradients, and what they are summed in, are W. */
IGNIS__PRIVATE const char *ignis__formula_result_type(const ignis__formula_writer *w, int k)
{
    const ignis__formula_spec *spec = w->spec;
    return spec->needed || ignis__formula_reduces_wide(spec->reduction) ||
                   w->formula->term[w->formula->result[spec->result + k]].type == 'w'
               ? "W"
               : "i64";
}

static const char *ignis__formula_type(int dtype)
{
    return dtype == IGNIS_I64 ? "i64" : ignis__dtype_is_int((ignis_dtype)dtype) ? "int" : "W";
}

/*  Writes the coordinates of an element or a pack, computed from its index. */
IGNIS__COLD static void ignis__formula_emit_coordinates(ignis__formula_writer *w, const char *index)
{
    int d, dims = w->dims;
    ignis__formula_emit(&w->text, "u32 q = %s;", index);
    for (d = w->spec->rank - 1; d > 0; d--)
        ignis__formula_emit(&w->text,
                            " const u32 h%d = map_quotient(q, p.w[%d], p.w[%d]), c%d = q - h%d*(u32)p.w[%d]; q = h%d;",
                            d, dims + 3 * d - 2, dims + 3 * d - 1, d, d, dims + 3 * d - 3, d);
    ignis__formula_emit(&w->text, " const u32 c0 = q;");
}

/*  Writes the offset of an input's element or pack at the coordinates. */
IGNIS__COLD static void ignis__formula_emit_offset(ignis__formula_writer *w, int input, int pack)
{
    const ignis__formula_spec *spec = w->spec;
    int d;
    ignis__formula_emit(&w->text, "(const char *)p.w[%d] + (", w->input[input]);
    for (d = 0; d < spec->rank - 1; d++)
        ignis__formula_emit(&w->text, "%sc%d*(i64)p.w[%d]", d ? " + " : "", d, w->strides[input] + d);
    if (spec->kind[input] == IGNIS__FORMULA_ROW)
        ignis__formula_emit(&w->text, " + (i64)c%d*%d", d, pack);
    ignis__formula_emit(&w->text, ")*%d", ignis__dtypes[spec->dtype[input]].size);
}

/*  Writes a call of f with elements of a pack, or with single elements. */
IGNIS__COLD static void ignis__formula_emit_call(ignis__formula_writer *writer, bool one)
{
    const ignis__formula_spec *spec = writer->spec;
    int i, count = writer->formula->count, indices = ignis__formula_index_count(writer->formula, NULL);
    ignis__formula_emit(&writer->text, "map_f(");
    for (i = 0; i <= count + 1; i++) {
        if (spec->kind[i] == IGNIS__FORMULA_UNUSED)
            continue;
        if (spec->kind[i] == IGNIS__FORMULA_ONE || spec->kind[i] == IGNIS__FORMULA_VALUE || one)
            ignis__formula_emit(&writer->text, "s%d", i);
        else if (spec->kind[i] == IGNIS__FORMULA_LINEAR || (spec->kind[i] == IGNIS__FORMULA_ROW && spec->whole))
            ignis__formula_emit(&writer->text, "GET_%s(w%d[u], e)", ignis__dtypes[spec->dtype[i]].name, i);
        else
            ignis__formula_emit(&writer->text, spec->whole ? "s%d[u]" : "s%d[u][e]", i);
        ignis__formula_emit(&writer->text, i == count ? "*factor, " : ", ");
    }
    for (i = 0; i < indices + (ignis__formula_saves_position(spec) && spec->needed); i++) {
        ignis__formula_emit(&writer->text, one ? "map_place(p.w + %d, (u32)at), " : "map_place(p.w + %d, at*%du + e), ",
                            writer->indices + 5 * i, spec->pack);
    }
    for (i = 0; i < writer->formula->randoms; i++)
        ignis__formula_emit(&writer->text, "r%d[e], ", i);
    for (i = 0; i < spec->outs; i++)
        ignis__formula_emit(&writer->text, one ? "y%d%s" : "y%d[e]%s", i, i + 1 < spec->outs ? ", " : ");");
}

/*  Writes the random numbers of n elements from `element` on: r0[] and so on. */
IGNIS__COLD static void ignis__formula_emit_random(ignis__formula_writer *w, int n, const char *element)
{
    int i;
    for (i = 0; i < w->formula->randoms; i++)
        ignis__formula_emit(&w->text, "            W r%d[%d]; map_uniform(r%d, %d, %s, p.w + %d, %d, %d);\n", i, n, i,
                            n, element, w->random, w->formula->randoms, i);
}

/*  Writes the store of n elements of result k: y[], or y for one element. */
IGNIS__COLD IGNIS__PRIVATE void ignis__formula_emit_store(ignis__formula_writer *w, int k, int n, bool one,
                                                          const char *index)
{
    ignis__formula_text *t = &w->text;
    int dtype = w->spec->out[k], size = ignis__dtypes[dtype].size, words = n * size / 4 ? n * size / 4 : 1, e;
    bool two = dtype == IGNIS_F16 || dtype == IGNIS_BF16;
    ignis__formula_emit(t, "            { u32 o[%d]%s;", words, size == 1 ? " = {}" : "");
    for (e = 0; e < n; e += 1 + two) {
        ignis__formula_emit(t, one ? " %s_%s(o, %d, y%d" : " %s_%s(o, %d, y%d[%d]", two ? "TWO" : "SET",
                            ignis__dtypes[dtype].name, e, k, e);
        if (two && n > 1)
            ignis__formula_emit(t, ", y%d[%d]", k, e + 1);
        ignis__formula_emit(t, two && n == 1 ? ", 0.f);" : ");");
    }
    ignis__formula_emit(t, " st%d((char *)p.w[%d] + (u64)(%s)*%d, o); }\n", n * size, k, index, n * size);
}

/*  Writes f, which computes the results of one element, and the helpers that it needs. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__formula_emit_function(ignis__formula_writer *writer)
{
    const ignis__formula *formula = writer->formula;
    const ignis__formula_spec *spec = writer->spec;
    ignis__formula_text *text = &writer->text;
    int i, k = 0, count = formula->count, terms[IGNIS__FORMULA_INDICES],
           indices = ignis__formula_index_count(formula, terms);
    ignis__formula_lines lines;
    bool chosen = false,
         ok = ignis__formula_lines_write(&lines, formula, spec->result, spec->needed ? 1 : spec->outs, spec->needed,
                                         !spec->needed || ignis__formula_saves_value(spec->kept));
    ignis__formula_emit(text, "#define W %s\n%s#include \"map.cuh\"\nstruct P { u64 w[%d]; };\n",
                        spec->wide ? "double\n#define IGNIS_WIDE" : "float", spec->half ? "#define IGNIS_HALF\n" : "",
                        writer->words);
    ignis__formula_emit(text, "DI void map_f(");
    for (i = 0; i <= count + 1; i++)
        if (spec->kind[i] == IGNIS__FORMULA_VALUE && lines.exact >> i & 1)
            ignis__formula_emit(text, "const double v%d, ", i);
        else if (spec->kind[i] != IGNIS__FORMULA_UNUSED)
            ignis__formula_emit(text, "const %s x%d, ", ignis__formula_type(spec->dtype[i]), i);
    for (i = 0; i < indices; i++)
        ignis__formula_emit(text, "const int i%d, ", terms[i]);
    if (ignis__formula_saves_position(spec) && spec->needed)
        ignis__formula_emit(text, "const i64 at, ");
    for (i = 0; i < formula->randoms; i++)
        ignis__formula_emit(text, "const W r%d, ", i);
    for (i = 0; i < spec->outs; i++)
        ignis__formula_emit(text, "%s &y%d%s", ignis__formula_result_type(writer, i), i,
                            i + 1 < spec->outs ? ", " : ")\n{\n");
    writer->exact = lines.exact;
    for (i = 0; i < count; i++)
        if (lines.exact >> i & 1)
            ignis__formula_emit(text,
                                spec->kind[i] == IGNIS__FORMULA_VALUE ? "    const W x%d = (W)v%d;\n"
                                                                      : "    const double v%d = x%d;\n",
                                i, i);
    ignis__formula_emit(text, "%s", lines.text.length ? lines.text.data : "");
    if (ok && spec->needed) {
        const char *value;
        lines.text.length = 0;
        ignis__formula_emit_term(&lines, formula->result[spec->result]);
        value = lines.text.failed ? "" : lines.text.data;
        chosen = ignis__formula_saves_position(spec) || ignis__formula_reduces_wide(spec->kept);
        if (ignis__formula_saves_position(spec))
            ignis__formula_emit(text, "    const bool chosen = at == x%d;\n", count + 1);
        else if (spec->kept == IGNIS_REDUCE_NORM)
            ignis__formula_emit(text, "    const bool chosen = x%d != 0;\n", count + 1);
        else if (chosen) /* minus infinity adds nothing; if all are minus infinity, the result stays so */
            ignis__formula_emit(text, "    const bool chosen = %s != -map_infinity;\n", value);
        ignis__formula_emit(text, "    const W g = x%d", count);
        if (spec->kept == IGNIS_REDUCE_PROD)
            ignis__formula_emit(text, "*map_others(%s, x%d)", value, count + 1);
        else if (spec->kept == IGNIS_REDUCE_LOGSUMEXP)
            ignis__formula_emit(text, "*exp(%s - x%d)", value, count + 1);
        else if (spec->kept == IGNIS_REDUCE_NORM)
            ignis__formula_emit(text, "*map_divide(%s, x%d)", value, count + 1);
        ignis__formula_emit(text, ";\n");
    }
    for (i = 0; i < count && ok && spec->needed; i++) {
        int partial = lines.partial[formula->result[spec->result] * count + i];
        if (!(spec->needed >> i & 1))
            continue;
        ignis__formula_emit(text, "    y%d = ", k++);
        if (partial && chosen)
            ignis__formula_emit(text, "!chosen ? (W)0 : ");
        if (ignis__formula_is_guarded(&lines, partial, i))
            ignis__formula_emit(text, "d%d_%d == 0 ? (W)0 : ", partial - 2, i);
        if (partial > 1)
            ignis__formula_emit(text, "d%d_%d*", partial - 2, i);
        ignis__formula_emit(text, partial ? "g;\n" : "0;\n");
    }
    for (i = 0; i < spec->outs && ok && !spec->needed; i++) {
        lines.text.length = 0;
        ignis__formula_emit_term(&lines, formula->result[spec->result + i]);
        ignis__formula_emit(text, "    y%d = %s;\n", i, lines.text.failed ? "" : lines.text.data);
    }
    ignis__formula_emit(text, "}\n");
    ok = ok && !lines.text.failed;
    ignis__formula_lines_free(&lines);
    return ok;
}

/*  Writes what all packs share: values, and arrays of one element. */
IGNIS__COLD IGNIS__PRIVATE void ignis__formula_emit_constants(ignis__formula_writer *w)
{
    const ignis__formula_spec *spec = w->spec;
    int i, count = w->formula->count;
    for (i = 0; i <= count + 1; i++)
        if (spec->kind[i] == IGNIS__FORMULA_VALUE)
            ignis__formula_emit(&w->text, "    const %s s%d = __longlong_as_double((i64)p.w[%d]);\n",
                                w->exact >> i & 1 ? "double" : "W", i, w->input[i]);
        else if (spec->kind[i] == IGNIS__FORMULA_ONE)
            ignis__formula_emit(&w->text, "    const %s s%d = ONE_%s(p.w[%d]);\n", ignis__formula_type(spec->dtype[i]),
                                i, ignis__dtypes[spec->dtype[i]].name, w->input[i]);
    if (spec->mode || spec->needed)
        ignis__formula_emit(&w->text, "    const W factor = (W)__longlong_as_double((i64)p.w[%d]);\n", w->shared + 6);
}

/*  Writes the loads of a thread's packs and the calls of f. Pack u exists where `there` is true, and is
    number `at`. The text that follows is the block of one pack with y[] for each result; it closes a loop
    over u and an if. */
IGNIS__COLD IGNIS__PRIVATE void ignis__formula_emit_packs(ignis__formula_writer *writer, const char *there,
                                                          const char *at)
{
    const ignis__formula_spec *spec = writer->spec;
    ignis__formula_text *text = &writer->text;
    int i, n = spec->pack, per = spec->packs_per_thread, count = writer->formula->count;
    char element[32], loop[400];
    for (i = 0; i <= count + 1; i++) {
        int size = ignis__dtypes[spec->dtype[i]].size;
        if (spec->kind[i] == IGNIS__FORMULA_LINEAR || (spec->kind[i] == IGNIS__FORMULA_ROW && spec->whole))
            ignis__formula_emit(text, "    u32 w%d[%d][%d];\n", i, per, n * size / 4 ? n * size / 4 : 1);
        else if (spec->kind[i] >= IGNIS__FORMULA_ROW)
            ignis__formula_emit(text, spec->whole ? "    %s s%d[%d];\n" : "    %s s%d[%d][%d];\n",
                                ignis__formula_type(spec->dtype[i]), i, per, n);
    }
    snprintf(loop, sizeof loop,
             "#pragma unroll\n    for (int u = 0; u < %d; u++) {\n        if (%s) {\n            const u32 at = %s;\n",
             per, there, at);
    snprintf(element, sizeof element, "at*%du + e", n);
    ignis__formula_emit(text, "%s", loop);
    for (i = 0; i <= count + 1; i++) {
        int bytes = n * ignis__dtypes[spec->dtype[i]].size;
        if (spec->kind[i] == IGNIS__FORMULA_LINEAR)
            ignis__formula_emit(text, "            ld%d(w%d[u], (const char *)p.w[%d] + (u64)at*%d);\n", bytes, i,
                                writer->input[i], bytes);
    }
    if (writer->broadcasts && !spec->whole)
        ignis__formula_emit(text, "#pragma unroll\n            for (int e = 0; e < %d; e++) {\n", n);
    if (writer->broadcasts)
        ignis__formula_emit_coordinates(writer, spec->whole ? "at" : element);
    for (i = 0; i <= count + 1; i++) {
        if (spec->kind[i] < IGNIS__FORMULA_ROW)
            continue;
        if (spec->kind[i] == IGNIS__FORMULA_ROW && spec->whole)
            ignis__formula_emit(text, "\n            ld%d(w%d[u], ", n * ignis__dtypes[spec->dtype[i]].size, i);
        else
            ignis__formula_emit(text, "\n            s%d[u]%s = ONE_%s(", i, spec->whole ? "" : "[e]",
                                ignis__dtypes[spec->dtype[i]].name);
        ignis__formula_emit_offset(writer, i, spec->whole ? n : 1);
        ignis__formula_emit(text, ");");
    }
    ignis__formula_emit(text, "%s\n        }\n    }\n%s", writer->broadcasts && !spec->whole ? " }" : "", loop);
    for (i = 0; i < spec->outs; i++)
        ignis__formula_emit(text, "            %s y%d[%d];\n", ignis__formula_result_type(writer, i), i, n);
    snprintf(element, sizeof element, "(u64)at*%d", n);
    ignis__formula_emit_random(writer, n, element);
    ignis__formula_emit(text, "#pragma unroll\n            for (int e = 0; e < %d; e++) ", n);
    ignis__formula_emit_call(writer, false);
    ignis__formula_emit(text, "\n");
    for (i = 0; i < spec->outs; i++)
        if (!(spec->reduced >> i & 1))
            ignis__formula_emit_store(writer, i, n, false, "at");
}

/*  Writes the load of the thread's element after the last full pack, and the call of f. */
IGNIS__COLD IGNIS__PRIVATE void ignis__formula_emit_rest(ignis__formula_writer *writer, const char *thread)
{
    const ignis__formula_spec *spec = writer->spec;
    ignis__formula_text *text = &writer->text;
    int i, count = writer->formula->count;
    ignis__formula_emit(text, "    if (%s < (u32)p.w[%d]) {\n        const u64 at = p.w[%d]*%d + %s;\n        ", thread,
                        writer->packs + 1, writer->packs, spec->pack, thread);
    if (writer->broadcasts)
        ignis__formula_emit_coordinates(writer, "(u32)at");
    for (i = 0; i <= count + 1; i++) {
        if (spec->kind[i] != IGNIS__FORMULA_LINEAR && spec->kind[i] < IGNIS__FORMULA_ROW)
            continue;
        ignis__formula_emit(text, "\n        const %s s%d = ONE_%s(", ignis__formula_type(spec->dtype[i]), i,
                            ignis__dtypes[spec->dtype[i]].name);
        if (spec->kind[i] == IGNIS__FORMULA_LINEAR)
            ignis__formula_emit(text, "(const char *)p.w[%d] + at*%d", writer->input[i],
                                ignis__dtypes[spec->dtype[i]].size);
        else
            ignis__formula_emit_offset(writer, i, 1);
        ignis__formula_emit(text, ");");
    }
    for (i = 0; i < spec->outs; i++)
        ignis__formula_emit(text, "\n        %s y%d;", ignis__formula_result_type(writer, i), i);
    ignis__formula_emit(text, "\n");
    if (writer->formula->randoms)
        ignis__formula_emit(text, "            const int e = 0;\n");
    ignis__formula_emit_random(writer, 1, "at");
    ignis__formula_emit(text, "        ");
    ignis__formula_emit_call(writer, true);
    ignis__formula_emit(text, "\n");
    for (i = 0; i < spec->outs; i++)
        if (!(spec->reduced >> i & 1))
            ignis__formula_emit_store(writer, i, 1, true, "at");
}
