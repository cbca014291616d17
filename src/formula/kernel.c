/* --- writing the text of a kernel ----------------------------------------------------------------------------------------- */

/*  A text that grows. */
typedef struct ignis__map_text {
    char *data;
    size_t length, capacity;
    bool failed;
} ignis__map_text;

IGNIS__PRINTF(2, 3)
IGNIS__COLD static void ignis__map_add(ignis__map_text *t, const char *format, ...)
{
    for (;;) {
        size_t left = t->capacity - t->length, capacity = 2 * t->capacity + 4096;
        va_list args;
        int length;
        char *data;
        va_start(args, format);
        length = t->failed ? 0 : vsnprintf(t->data ? t->data + t->length : NULL, left, format, args);
        va_end(args);
        if (t->failed || (length >= 0 && (size_t)length < left)) {
            t->length += (size_t)length;
            return;
        }
        data = (char *)ignis__alloc(capacity);
        t->failed = !data || length < 0;
        if (data && t->length)
            memcpy(data, t->data, t->length);
        ignis__free(t->data);
        t->data = data;
        t->capacity = data ? capacity : 0;
    }
}

/*  A formula's lines under way. used: terms that were named. partial, by term and input: 0, 1, or 2 + the term whose line has it. guarded, by
    that term and input: a choice may have made it 0, and then it stays 0, whatever it is multiplied with. */
typedef struct ignis__map_lines {
    const ignis__formula *formula;
    ignis__map_text text;
    unsigned char *used, *guarded;
    short *partial;
    uint32_t exact; /* bits of inputs that are wanted in f64, too */
} ignis__map_lines;

/*  An integer that is written down; the smallest one has no name of its own in C. */
IGNIS__COLD static void ignis__map_add_integer(ignis__map_text *t, int64_t number)
{
    if (number == INT64_MIN)
        ignis__map_add(t, "(-9223372036854775807LL-1)");
    else
        ignis__map_add(t, number < 0 ? "(%lldLL)" : "%lldLL", (long long)number);
}

IGNIS__COLD static void ignis__map_add_term(ignis__map_lines *lines, int at)
{
    const ignis__map_term *term = &lines->formula->term[at];
    lines->used[at] = 1;
    if (term->function == IGNIS__MAP_INPUT)
        ignis__map_add(&lines->text, "x%d", (int)term->number);
    else if (term->function == IGNIS__MAP_INDEX)
        ignis__map_add(&lines->text, "i%d", at);
    else if (term->function == IGNIS__MAP_RAND)
        ignis__map_add(&lines->text, "r%d", (int)term->number);
    else if (term->function != IGNIS__MAP_NUMBER)
        ignis__map_add(&lines->text, "n%d", at);
    else if (!term->text) {
        ignis__map_add(&lines->text, term->type == 'w' ? "((W)" : "(");
        ignis__map_add_integer(&lines->text, term->number);
        ignis__map_add(&lines->text, ")");
    } else if (ignis__map_is_digit(term->text[0]) || term->text[0] == '.') {
        bool whole = strspn(term->text, "0123456789") >= (size_t)term->length;
        ignis__map_add(&lines->text, "((W)%.*s%s)", (int)term->length, term->text, whole ? "." : "");
    } else
        ignis__map_add(&lines->text, "(%.*s)", (int)term->length, term->text);
}

/*  A derivative by an input. */
IGNIS__COLD static void ignis__map_add_partial(ignis__map_lines *lines, int partial, int input)
{
    if (partial > 1)
        ignis__map_add(&lines->text, "d%d_%d", partial - 2, input);
    else
        ignis__map_add(&lines->text, "(W)%d", partial);
}

/*  A row's CUDA text for a term; partial: that of the argument, for $d. */
IGNIS__COLD static void ignis__map_add_row(ignis__map_lines *lines, const char *row, int at, int partial, int input)
{
    const ignis__map_term *term = &lines->formula->term[at];
    for (; *row; row++) {
        if (*row != '$') {
            ignis__map_add(&lines->text, "%c", *row);
            continue;
        }
        row++;
        if (*row == 'n')
            ignis__map_add_integer(&lines->text, term->number);
        else if (*row == 'd')
            ignis__map_add_partial(lines, partial, input);
        else
            ignis__map_add_term(lines, *row == 'r' ? at : term->arg[*row - 'a']);
    }
}

/*  Whether a comparison is one of an integer with a number that is not written down. These are compared in f64, as f32 would round them. */
static bool ignis__map_compares_exactly(const ignis__formula *formula, const ignis__map_term *term)
{
    const ignis__map_function *f = &ignis__map_functions[term->function];
    int i, integers = 0, numbers = 0;
    for (i = 0; i < f->count; i++) {
        integers += formula->term[term->arg[i]].function == IGNIS__MAP_WIDE;
        numbers += formula->term[term->arg[i]].function == IGNIS__MAP_NUMBER;
    }
    return f->type == 'b' && f->integer && f->count == 2 && integers > 0 && numbers == 0;
}

/*  One side of such a comparison. */
IGNIS__COLD static void ignis__map_add_exact(ignis__map_lines *lines, int at)
{
    const ignis__map_term *term = &lines->formula->term[at];
    ignis__map_add(&lines->text, "(double)");
    if (term->function == IGNIS__MAP_INPUT) {
        lines->exact |= (uint32_t)1 << term->number;
        ignis__map_add(&lines->text, "v%d", (int)term->number);
    } else {
        ignis__map_add_term(lines, term->function == IGNIS__MAP_WIDE ? term->arg[0] : at);
    }
}

/*  Whether a derivative by an input may be 0 as a choice was made. */
static bool ignis__map_guarded(const ignis__map_lines *lines, int partial, int input)
{
    return partial > 1 && lines->guarded[(partial - 2) * lines->formula->count + input];
}

/*  What an argument adds to a derivative: the row of its function times its own derivative, which is not 0. */
IGNIS__COLD static void ignis__map_add_chain(ignis__map_lines *lines, const char *row, int at, int partial, int input)
{
    bool times = partial > 1 && strcmp(row, "1") != 0 && !strstr(row, "$d");
    bool guarded = times && ignis__map_guarded(lines, partial, input);
    if (strcmp(row, "1") == 0) {
        ignis__map_add_partial(lines, partial, input);
        return;
    }
    if (guarded) {
        ignis__map_add(&lines->text, "(");
        ignis__map_add_partial(lines, partial, input);
        ignis__map_add(&lines->text, " == 0 ? (W)0 : ");
    }
    ignis__map_add(&lines->text, "(");
    ignis__map_add_row(lines, row, at, partial, input);
    ignis__map_add(&lines->text, times ? ")*" : ")");
    if (times)
        ignis__map_add_partial(lines, partial, input);
    if (guarded)
        ignis__map_add(&lines->text, ")");
}

/*  Derivatives by forward mode, of each term by each needed input, in the order of the terms. */
IGNIS__COLD static void ignis__map_add_partials(ignis__map_lines *lines, uint32_t needed, const unsigned char *live)
{
    const ignis__formula *formula = lines->formula;
    int at, input, i, count = formula->count;
    for (at = 0; at < formula->term_count; at++) {
        const ignis__map_term *term = &formula->term[at];
        const ignis__map_function *f = &ignis__map_functions[term->function];
        short *partial = lines->partial + at * count;
        if (!live[at] || term->type != 'w')
            continue;
        if (term->function == IGNIS__MAP_INPUT) {
            partial[term->number] = (short)(needed >> term->number & 1);
            continue;
        }
        for (input = 0; input < count; input++) {
            short of[3] = {0, 0, 0};
            int terms = 0, last = 0;
            bool select = term->function == IGNIS__MAP_SELECT, guarded = !select;
            for (i = select; i < f->count; i++) {
                of[i] = lines->partial[term->arg[i] * count + input];
                if (of[i] && (select || f->partial[i]))
                    terms++, last = i;
            }
            if (!terms)
                continue;
            if (select ? of[1] == of[2] : terms == 1 && strcmp(f->partial[last], "1") == 0) { /* that of an argument */
                partial[input] = of[last];
                continue;
            }
            partial[input] = (short)(2 + at);
            ignis__map_add(&lines->text, "    const W d%d_%d = ", at, input);
            if (select) {
                ignis__map_add_term(lines, term->arg[0]);
                ignis__map_add(&lines->text, " ? ");
                ignis__map_add_partial(lines, of[1], input);
                ignis__map_add(&lines->text, " : ");
                ignis__map_add_partial(lines, of[2], input);
                guarded = !of[1] || !of[2] || ignis__map_guarded(lines, of[1], input) || ignis__map_guarded(lines, of[2], input);
            }
            for (i = 0, last = terms; i < f->count && !select; i++) {
                if (!of[i] || !f->partial[i])
                    continue;
                if (terms-- < last)
                    ignis__map_add(&lines->text, " + ");
                ignis__map_add_chain(lines, f->partial[i], at, of[i], input);
                guarded = guarded && (strstr(f->partial[i], "$d") || ignis__map_guarded(lines, of[i], input));
            }
            lines->guarded[at * count + input] = guarded;
            ignis__map_add(&lines->text, ";\n");
        }
    }
}

/*  Marks what the marked terms are made of. */
static void ignis__map_mark(const ignis__formula *formula, unsigned char *used)
{
    int at, i;
    for (at = formula->term_count - 1; at >= 0; at--)
        for (i = 0; used[at] && i < ignis__map_functions[formula->term[at].function].count; i++)
            used[formula->term[at].arg[i]] = 1;
}

/*  Writes the values of `count` results from `first` on, and derivatives by some inputs; ignis__map_lines_free frees the lines. */
IGNIS__COLD static bool ignis__map_lines_write(ignis__map_lines *lines, const ignis__formula *formula, int first, int count,
                                               uint32_t needed, bool value)
{
    static const char types[] = "wib";
    static const char *const names[] = {"W", "i64", "bool"};
    size_t terms = (size_t)formula->term_count;
    unsigned char *live;
    ignis__map_text partials;
    int at;
    memset(lines, 0, sizeof *lines);
    lines->formula = formula;
    lines->used = (unsigned char *)ignis__alloc(terms * (2 + (size_t)formula->count));
    lines->partial = (short *)ignis__alloc(terms * (size_t)formula->count * sizeof(short));
    if (!lines->used || !lines->partial)
        return false;
    memset(lines->used, 0, terms * (2 + (size_t)formula->count));
    lines->guarded = lines->used + 2 * terms;
    memset(lines->partial, 0, terms * (size_t)formula->count * sizeof(short));
    live = lines->used + terms;
    for (at = first; at < first + count; at++) {
        live[formula->result[at]] = 1;
        lines->used[formula->result[at]] = value;
    }
    ignis__map_mark(formula, live);
    if (needed)
        ignis__map_add_partials(lines, needed, live);
    ignis__map_mark(formula, lines->used);
    partials = lines->text;
    memset(&lines->text, 0, sizeof lines->text);
    for (at = 0; at < formula->term_count; at++) {
        const ignis__map_term *term = &formula->term[at];
        const ignis__map_function *f = &ignis__map_functions[term->function];
        bool integers = f->integer && (term->type == 'i' || (term->type == 'b' && formula->term[term->arg[0]].type != 'w'));
        if (!lines->used[at] || term->function <= IGNIS__MAP_RAND)
            continue;
        ignis__map_add(&lines->text, "    const %s n%d = ", names[strchr(types, term->type) - types], at);
        if (ignis__map_compares_exactly(formula, term)) {
            ignis__map_add_exact(lines, term->arg[0]);
            ignis__map_add(&lines->text, " %s ", f->name);
            ignis__map_add_exact(lines, term->arg[1]);
        } else {
            ignis__map_add_row(lines, integers ? f->integer : f->value, at, 0, 0);
        }
        ignis__map_add(&lines->text, ";\n");
    }
    if (partials.length)
        ignis__map_add(&lines->text, "%s", partials.data);
    lines->text.failed = lines->text.failed || partials.failed;
    ignis__free(partials.data);
    return !lines->text.failed;
}

static void ignis__map_lines_free(ignis__map_lines *lines)
{
    ignis__free(lines->text.data);
    ignis__free(lines->used);
    ignis__free(lines->partial);
}

/*  What a reduction's gradient takes besides what is kept of it: the value. */
static bool ignis__map_kept_value(int kept)
{
    return kept == IGNIS_REDUCE_LOGSUMEXP || kept == IGNIS_REDUCE_NORM || kept == IGNIS_REDUCE_PROD;
}

/*  Reductions in W also of integers, whose state is two of them. */
static bool ignis__map_reduces_wide(int reduction) { return reduction == IGNIS_REDUCE_LOGSUMEXP || reduction == IGNIS_REDUCE_NORM; }

/*  What the gradients of a result by some inputs take. False, and reported, without memory. */
static bool ignis__map_needs_get(const char *call, ignis__formula *formula, int result, uint32_t needed, bool value,
                                 ignis__map_needs *needs)
{
    uint32_t key = needed | (uint32_t)result << 16 | (uint32_t)value << 31;
    ignis__map_lines lines;
    bool found = false, ok;
    int i;
    ignis__mutex_lock(&ignis__formulas.lock);
    for (i = 0; i < IGNIS__COUNT(formula->needs) && !found; i++) {
        found = formula->needs[i].needed == key;
        if (found)
            *needs = formula->needs[i];
    }
    ignis__mutex_unlock(&ignis__formulas.lock);
    if (found)
        return true;
    ok = ignis__map_lines_write(&lines, formula, result, 1, needed, value);
    memset(needs, 0, sizeof *needs);
    needs->needed = key;
    for (i = 0; ok && i < formula->count; i++) { /* the first terms are the inputs */
        needs->used |= (uint32_t)(lines.used[i] != 0) << i;
        needs->same |= (uint32_t)(lines.partial[formula->result[result] * formula->count + i] == 1) << i;
    }
    ignis__map_lines_free(&lines);
    if (!ok) {
        ignis__fail_host_memory(call, 1);
        return false;
    }
    ignis__mutex_lock(&ignis__formulas.lock);
    formula->needs[formula->needs_next++ % IGNIS__COUNT(formula->needs)] = *needs;
    ignis__mutex_unlock(&ignis__formulas.lock);
    return true;
}

/*  What a kernel does with the elements: each is a result; or they are reduced along rows of packs, or down columns of packs. */
enum { IGNIS__MAP_EACH, IGNIS__MAP_ROWS, IGNIS__MAP_COLUMNS };

/*  The reductions, in the order of ignis_reducer: what none of all elements gives, in W and in integers, and how two states a and b
    become one, each a value v and, where `place` is, the number i of its element. NaN wins over numbers in max and min. */
static const struct {
    const char *name, *none, *none_integer, *fold;
    bool place;
} ignis__map_reductions[] = {
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

/*  A kernel's text under way, and where the words of its parameter are. */
typedef struct ignis__map_writer {
    ignis__map_text text;
    const ignis__formula *formula;
    const ignis__map_spec *spec;
    int input[IGNIS_MAX_INPUTS + 2], strides[IGNIS_MAX_INPUTS + 2]; /* of each input */
    int packs;                                                      /* how many whole packs there are, and elements behind the last */
    int dims;                                                       /* size and magic numbers of each dimension but the first */
    int shared;  /* of reductions: rows, packs of a row, parts, rows or packs of a part, results, parts' memory, factor, what is kept */
    int indices; /* of each index(d), and of the place that is kept: its magic numbers */
    int random;  /* seed, first counter, and the address of the count of launches */
    int words;
    uint32_t exact;   /* see ignis__map_lines */
    bool spreads;     /* some inputs are rows or columns */
    const char *type; /* of the first one of f's results, and of what is reduced */
} ignis__map_writer;

/*  Whether that is the place of an element. */
static bool ignis__map_kept_place(const ignis__map_spec *spec) { return spec->kept == IGNIS_REDUCE_MAX || spec->kept == IGNIS_REDUCE_MIN; }

/*  How many index(d) a formula has; their terms. */
static int ignis__map_indices(const ignis__formula *formula, int *terms)
{
    int at, count = 0;
    for (at = 0; at < formula->term_count; at++)
        if (formula->term[at].function == IGNIS__MAP_INDEX) {
            if (terms)
                terms[count] = at;
            count++;
        }
    return count;
}

static void ignis__map_words(ignis__map_writer *w)
{
    const ignis__map_spec *spec = w->spec;
    int i, at = spec->outs, count = w->formula->count;
    for (i = 0; i <= count + 1; i++) {
        w->input[i] = at;
        at += spec->kind[i] != IGNIS__MAP_UNUSED;
        w->spreads = w->spreads || spec->kind[i] >= IGNIS__MAP_ROW;
    }
    w->packs = at;
    w->dims = at += 2;
    at += 3 * (spec->rank - 1);
    for (i = 0; i <= count + 1; i++) {
        w->strides[i] = at;
        at += spec->kind[i] >= IGNIS__MAP_ROW ? spec->rank : 0;
    }
    w->shared = at;
    w->indices = at += spec->mode || spec->needed ? 8 : 0;
    w->random = at += 5 * (ignis__map_indices(w->formula, NULL) + (spec->needed && ignis__map_kept_place(spec)));
    w->words = at + (w->formula->randoms ? 3 : 0);
}

/*  The type of f's result k: gradients are W, and what is summed up in it. */
static const char *ignis__map_result_type(const ignis__map_writer *w, int k)
{
    const ignis__map_spec *spec = w->spec;
    return spec->needed || ignis__map_reduces_wide(spec->reduction) || w->formula->term[w->formula->result[spec->result + k]].type == 'w'
               ? "W"
               : "i64";
}

static const char *ignis__map_type(int dtype) { return dtype == IGNIS_I64 ? "i64" : ignis__dtype_is_int((ignis_dtype)dtype) ? "int" : "W"; }

/*  The coordinates of an element, or of a pack, out of its index. */
IGNIS__COLD static void ignis__map_add_coordinates(ignis__map_writer *w, const char *index)
{
    int d, dims = w->dims;
    ignis__map_add(&w->text, "u32 q = %s;", index);
    for (d = w->spec->rank - 1; d > 0; d--)
        ignis__map_add(&w->text, " const u32 h%d = map_quotient(q, p.w[%d], p.w[%d]), c%d = q - h%d*(u32)p.w[%d]; q = h%d;", d,
                       dims + 3 * d - 2, dims + 3 * d - 1, d, d, dims + 3 * d - 3, d);
    ignis__map_add(&w->text, " const u32 c0 = q;");
}

/*  Where an input's element or pack of the coordinates is. */
IGNIS__COLD static void ignis__map_add_place(ignis__map_writer *w, int input, int pack)
{
    const ignis__map_spec *spec = w->spec;
    int d;
    ignis__map_add(&w->text, "(const char *)p.w[%d] + (", w->input[input]);
    for (d = 0; d < spec->rank - 1; d++)
        ignis__map_add(&w->text, "%sc%d*(i64)p.w[%d]", d ? " + " : "", d, w->strides[input] + d);
    if (spec->kind[input] == IGNIS__MAP_ROW)
        ignis__map_add(&w->text, " + (i64)c%d*%d", d, pack);
    ignis__map_add(&w->text, ")*%d", ignis__dtypes[spec->dtype[input]].size);
}

/*  A call of f with the inputs' elements: those of a pack, or single ones. */
IGNIS__COLD static void ignis__map_add_call(ignis__map_writer *w, bool one)
{
    const ignis__map_spec *spec = w->spec;
    int i, count = w->formula->count, indices = ignis__map_indices(w->formula, NULL);
    ignis__map_add(&w->text, "map_f(");
    for (i = 0; i <= count + 1; i++) {
        if (spec->kind[i] == IGNIS__MAP_UNUSED)
            continue;
        if (spec->kind[i] == IGNIS__MAP_ONE || spec->kind[i] == IGNIS__MAP_VALUE || one)
            ignis__map_add(&w->text, "s%d", i);
        else if (spec->kind[i] == IGNIS__MAP_LINEAR || (spec->kind[i] == IGNIS__MAP_ROW && spec->whole))
            ignis__map_add(&w->text, "GET_%s(w%d[u], e)", ignis__dtypes[spec->dtype[i]].name, i);
        else
            ignis__map_add(&w->text, spec->whole ? "s%d[u]" : "s%d[u][e]", i);
        ignis__map_add(&w->text, i == count ? "*factor, " : ", ");
    }
    for (i = 0; i < indices + (ignis__map_kept_place(spec) && spec->needed); i++) {
        ignis__map_add(&w->text, one ? "map_place(p.w + %d, (u32)at), " : "map_place(p.w + %d, at*%du + e), ", w->indices + 5 * i,
                       spec->pack);
    }
    for (i = 0; i < w->formula->randoms; i++)
        ignis__map_add(&w->text, "r%d[e], ", i);
    for (i = 0; i < spec->outs; i++)
        ignis__map_add(&w->text, one ? "y%d%s" : "y%d[e]%s", i, i + 1 < spec->outs ? ", " : ");");
}

/*  The random numbers of n elements from `element` on, r0[] and so on. */
IGNIS__COLD static void ignis__map_add_random(ignis__map_writer *w, int n, const char *element)
{
    int i;
    for (i = 0; i < w->formula->randoms; i++)
        ignis__map_add(&w->text, "            W r%d[%d]; map_uniform(r%d, %d, %s, p.w + %d, %d, %d);\n", i, n, i, n, element, w->random,
                       w->formula->randoms, i);
}

/*  Stores a pack of n elements of result k: y[], or y where it is one. */
IGNIS__COLD static void ignis__map_add_store(ignis__map_writer *w, int k, int n, bool one, const char *index)
{
    ignis__map_text *t = &w->text;
    int dtype = w->spec->out[k], size = ignis__dtypes[dtype].size, words = n * size / 4 ? n * size / 4 : 1, e;
    bool two = dtype == IGNIS_F16 || dtype == IGNIS_BF16;
    ignis__map_add(t, "            { u32 o[%d]%s;", words, size == 1 ? " = {}" : "");
    for (e = 0; e < n; e += 1 + two) {
        ignis__map_add(t, one ? " %s_%s(o, %d, y%d" : " %s_%s(o, %d, y%d[%d]", two ? "TWO" : "SET", ignis__dtypes[dtype].name, e, k, e);
        if (two && n > 1)
            ignis__map_add(t, ", y%d[%d]", k, e + 1);
        ignis__map_add(t, two && n == 1 ? ", 0.f);" : ");");
    }
    ignis__map_add(t, " st%d((char *)p.w[%d] + (u64)(%s)*%d, o); }\n", n * size, k, index, n * size);
}

/*  f, which computes the results of an element, and what stands before it. */
IGNIS__COLD static bool ignis__map_add_function(ignis__map_writer *w)
{
    const ignis__formula *formula = w->formula;
    const ignis__map_spec *spec = w->spec;
    ignis__map_text *t = &w->text;
    int i, k = 0, count = formula->count, terms[IGNIS__MAP_INDICES], indices = ignis__map_indices(formula, terms);
    ignis__map_lines lines;
    bool chosen = false, ok = ignis__map_lines_write(&lines, formula, spec->result, spec->needed ? 1 : spec->outs, spec->needed,
                                                     !spec->needed || ignis__map_kept_value(spec->kept));
    ignis__map_add(t, "#define W %s\n%s#include \"map.cuh\"\nstruct P { u64 w[%d]; };\n",
                   spec->wide ? "double\n#define IGNIS_WIDE" : "float", spec->half ? "#define IGNIS_HALF\n" : "", w->words);
    ignis__map_add(t, "DI void map_f(");
    for (i = 0; i <= count + 1; i++)
        if (spec->kind[i] == IGNIS__MAP_VALUE && lines.exact >> i & 1)
            ignis__map_add(t, "const double v%d, ", i);
        else if (spec->kind[i] != IGNIS__MAP_UNUSED)
            ignis__map_add(t, "const %s x%d, ", ignis__map_type(spec->dtype[i]), i);
    for (i = 0; i < indices; i++)
        ignis__map_add(t, "const int i%d, ", terms[i]);
    if (ignis__map_kept_place(spec) && spec->needed)
        ignis__map_add(t, "const i64 at, ");
    for (i = 0; i < formula->randoms; i++)
        ignis__map_add(t, "const W r%d, ", i);
    for (i = 0; i < spec->outs; i++)
        ignis__map_add(t, "%s &y%d%s", ignis__map_result_type(w, i), i, i + 1 < spec->outs ? ", " : ")\n{\n");
    w->exact = lines.exact;
    for (i = 0; i < count; i++)
        if (lines.exact >> i & 1)
            ignis__map_add(t, spec->kind[i] == IGNIS__MAP_VALUE ? "    const W x%d = (W)v%d;\n" : "    const double v%d = x%d;\n", i, i);
    ignis__map_add(t, "%s", lines.text.length ? lines.text.data : "");
    if (ok && spec->needed) {
        const char *value;
        lines.text.length = 0;
        ignis__map_add_term(&lines, formula->result[spec->result]);
        value = lines.text.failed ? "" : lines.text.data;
        chosen = ignis__map_kept_place(spec) || ignis__map_reduces_wide(spec->kept);
        if (ignis__map_kept_place(spec))
            ignis__map_add(t, "    const bool chosen = at == x%d;\n", count + 1);
        else if (spec->kept == IGNIS_REDUCE_NORM)
            ignis__map_add(t, "    const bool chosen = x%d != 0;\n", count + 1);
        else if (chosen) /* minus infinity adds nothing, and where all is minus infinity, nothing can be told of it */
            ignis__map_add(t, "    const bool chosen = %s != -map_infinity;\n", value);
        ignis__map_add(t, "    const W g = x%d", count);
        if (spec->kept == IGNIS_REDUCE_PROD)
            ignis__map_add(t, "*map_others(%s, x%d)", value, count + 1);
        else if (spec->kept == IGNIS_REDUCE_LOGSUMEXP)
            ignis__map_add(t, "*exp(%s - x%d)", value, count + 1);
        else if (spec->kept == IGNIS_REDUCE_NORM)
            ignis__map_add(t, "*map_divide(%s, x%d)", value, count + 1);
        ignis__map_add(t, ";\n");
    }
    for (i = 0; i < count && ok && spec->needed; i++) {
        int partial = lines.partial[formula->result[spec->result] * count + i];
        if (!(spec->needed >> i & 1))
            continue;
        ignis__map_add(t, "    y%d = ", k++);
        if (partial && chosen)
            ignis__map_add(t, "!chosen ? (W)0 : ");
        if (ignis__map_guarded(&lines, partial, i))
            ignis__map_add(t, "d%d_%d == 0 ? (W)0 : ", partial - 2, i);
        if (partial > 1)
            ignis__map_add(t, "d%d_%d*", partial - 2, i);
        ignis__map_add(t, partial ? "g;\n" : "0;\n");
    }
    for (i = 0; i < spec->outs && ok && !spec->needed; i++) {
        lines.text.length = 0;
        ignis__map_add_term(&lines, formula->result[spec->result + i]);
        ignis__map_add(t, "    y%d = %s;\n", i, lines.text.failed ? "" : lines.text.data);
    }
    ignis__map_add(t, "}\n");
    ok = ok && !lines.text.failed;
    ignis__map_lines_free(&lines);
    return ok;
}

/*  What all packs share: values, and arrays of one element. */
IGNIS__COLD static void ignis__map_add_constants(ignis__map_writer *w)
{
    const ignis__map_spec *spec = w->spec;
    int i, count = w->formula->count;
    for (i = 0; i <= count + 1; i++)
        if (spec->kind[i] == IGNIS__MAP_VALUE)
            ignis__map_add(&w->text, "    const %s s%d = __longlong_as_double((i64)p.w[%d]);\n", w->exact >> i & 1 ? "double" : "W", i,
                           w->input[i]);
        else if (spec->kind[i] == IGNIS__MAP_ONE)
            ignis__map_add(&w->text, "    const %s s%d = ONE_%s(p.w[%d]);\n", ignis__map_type(spec->dtype[i]), i,
                           ignis__dtypes[spec->dtype[i]].name, w->input[i]);
    if (spec->mode || spec->needed)
        ignis__map_add(&w->text, "    const W factor = (W)__longlong_as_double((i64)p.w[%d]);\n", w->shared + 6);
}

/*  Loads the packs of a thread, and computes: pack u is there where `there` is true, and the one numbered `at`. What follows is the block
    of a pack, with y[] for each result, in the braces of a loop over u and of an if. */
IGNIS__COLD static void ignis__map_add_packs(ignis__map_writer *w, const char *there, const char *at)
{
    const ignis__map_spec *spec = w->spec;
    ignis__map_text *t = &w->text;
    int i, n = spec->pack, per = spec->packs_per_thread, count = w->formula->count;
    char element[32], loop[400];
    for (i = 0; i <= count + 1; i++) {
        int size = ignis__dtypes[spec->dtype[i]].size;
        if (spec->kind[i] == IGNIS__MAP_LINEAR || (spec->kind[i] == IGNIS__MAP_ROW && spec->whole))
            ignis__map_add(t, "    u32 w%d[%d][%d];\n", i, per, n * size / 4 ? n * size / 4 : 1);
        else if (spec->kind[i] >= IGNIS__MAP_ROW)
            ignis__map_add(t, spec->whole ? "    %s s%d[%d];\n" : "    %s s%d[%d][%d];\n", ignis__map_type(spec->dtype[i]), i, per, n);
    }
    snprintf(loop, sizeof loop, "#pragma unroll\n    for (int u = 0; u < %d; u++) {\n        if (%s) {\n            const u32 at = %s;\n",
             per, there, at);
    snprintf(element, sizeof element, "at*%du + e", n);
    ignis__map_add(t, "%s", loop);
    for (i = 0; i <= count + 1; i++) {
        int bytes = n * ignis__dtypes[spec->dtype[i]].size;
        if (spec->kind[i] == IGNIS__MAP_LINEAR)
            ignis__map_add(t, "            ld%d(w%d[u], (const char *)p.w[%d] + (u64)at*%d);\n", bytes, i, w->input[i], bytes);
    }
    if (w->spreads && !spec->whole)
        ignis__map_add(t, "#pragma unroll\n            for (int e = 0; e < %d; e++) {\n", n);
    if (w->spreads)
        ignis__map_add_coordinates(w, spec->whole ? "at" : element);
    for (i = 0; i <= count + 1; i++) {
        if (spec->kind[i] < IGNIS__MAP_ROW)
            continue;
        if (spec->kind[i] == IGNIS__MAP_ROW && spec->whole)
            ignis__map_add(t, "\n            ld%d(w%d[u], ", n * ignis__dtypes[spec->dtype[i]].size, i);
        else
            ignis__map_add(t, "\n            s%d[u]%s = ONE_%s(", i, spec->whole ? "" : "[e]", ignis__dtypes[spec->dtype[i]].name);
        ignis__map_add_place(w, i, spec->whole ? n : 1);
        ignis__map_add(t, ");");
    }
    ignis__map_add(t, "%s\n        }\n    }\n%s", w->spreads && !spec->whole ? " }" : "", loop);
    for (i = 0; i < spec->outs; i++)
        ignis__map_add(t, "            %s y%d[%d];\n", ignis__map_result_type(w, i), i, n);
    snprintf(element, sizeof element, "(u64)at*%d", n);
    ignis__map_add_random(w, n, element);
    ignis__map_add(t, "#pragma unroll\n            for (int e = 0; e < %d; e++) ", n);
    ignis__map_add_call(w, false);
    ignis__map_add(t, "\n");
    for (i = 0; i < spec->outs; i++)
        if (!(spec->reduced >> i & 1))
            ignis__map_add_store(w, i, n, false, "at");
}

/*  Loads the element behind the last whole pack that is the thread's, and computes. */
IGNIS__COLD static void ignis__map_add_rest(ignis__map_writer *w, const char *thread)
{
    const ignis__map_spec *spec = w->spec;
    ignis__map_text *t = &w->text;
    int i, count = w->formula->count;
    ignis__map_add(t, "    if (%s < (u32)p.w[%d]) {\n        const u64 at = p.w[%d]*%d + %s;\n        ", thread, w->packs + 1, w->packs,
                   spec->pack, thread);
    if (w->spreads)
        ignis__map_add_coordinates(w, "(u32)at");
    for (i = 0; i <= count + 1; i++) {
        if (spec->kind[i] != IGNIS__MAP_LINEAR && spec->kind[i] < IGNIS__MAP_ROW)
            continue;
        ignis__map_add(t, "\n        const %s s%d = ONE_%s(", ignis__map_type(spec->dtype[i]), i, ignis__dtypes[spec->dtype[i]].name);
        if (spec->kind[i] == IGNIS__MAP_LINEAR)
            ignis__map_add(t, "(const char *)p.w[%d] + at*%d", w->input[i], ignis__dtypes[spec->dtype[i]].size);
        else
            ignis__map_add_place(w, i, 1);
        ignis__map_add(t, ");");
    }
    for (i = 0; i < spec->outs; i++)
        ignis__map_add(t, "\n        %s y%d;", ignis__map_result_type(w, i), i);
    ignis__map_add(t, "\n");
    if (w->formula->randoms)
        ignis__map_add(t, "            const int e = 0;\n");
    ignis__map_add_random(w, 1, "at");
    ignis__map_add(t, "        ");
    ignis__map_add_call(w, true);
    ignis__map_add(t, "\n");
    for (i = 0; i < spec->outs; i++)
        if (!(spec->reduced >> i & 1))
            ignis__map_add_store(w, i, 1, true, "at");
}

/*  Whether integers are summed up for their mean: exactly, in a value of 64 bits and its upper 32. */
static bool ignis__map_whole_mean(const ignis__map_writer *w)
{
    return w->spec->reduction == IGNIS_REDUCE_MEAN && strcmp(w->type, "i64") == 0;
}

/*  Ends a reduction: state s of result `at` of output k, or of a part of it. */
IGNIS__COLD static void ignis__map_add_result(ignis__map_writer *w, int k, const char *state, const char *at, bool part)
{
    const ignis__map_spec *spec = w->spec;
    ignis__map_text *t = &w->text;
    bool kept = spec->kept && !spec->needed, whole_mean = ignis__map_whole_mean(w);
    bool to_integer = ignis__dtype_is_int((ignis_dtype)spec->out[k]);
    if (part) {
        ignis__map_add(t, "        ((S *)p.w[%d])[((u64)%d*parts + part)*p.w[%d] + %s] = %s;\n", w->shared + 5, k, w->shared + 4, at,
                       state);
        return;
    }
    if (ignis__map_reductions[spec->reduction].place)
        ignis__map_add(t, "        { const i64 y%d = map_place_of(%s);\n", k, state);
    else if (spec->reduction == IGNIS_REDUCE_LOGSUMEXP)
        ignis__map_add(t, "        { const W y%d = %s.v + log(%s.i);\n", k, state, state);
    else if (spec->reduction == IGNIS_REDUCE_NORM)
        ignis__map_add(t, "        { const W y%d = map_norm(%s.v, %s.i);\n", k, state, state);
    else if (kept && spec->reduction == IGNIS_REDUCE_PROD)
        ignis__map_add(t, "        { const W y%d = %s.i ? %s.v*0 : %s.v;\n", k, state, state, state);
    else if (whole_mean)
        ignis__map_add(t, "        { const %s y%d = map_mean%s(%s.v, %s.i, (i64)__longlong_as_double((i64)p.w[%d]));\n",
                       to_integer ? "i64" : "double", k, to_integer ? "_whole" : "", state, state, w->shared + 6);
    else
        ignis__map_add(t, "        { const %s y%d = %s.v%s;\n", w->type, k, state, spec->reduction == IGNIS_REDUCE_MEAN ? "/factor" : "");
    if (kept && ignis__map_kept_place(spec))
        ignis__map_add(t, "        ((i64 *)p.w[%d])[%s] = map_place_of(%s);\n", w->shared + 7, at, state);
    else if (kept && spec->reduction == IGNIS_REDUCE_PROD)
        ignis__map_add(t, "        ((W *)p.w[%d])[%s] = map_product(%s.v, %s.i);\n", w->shared + 7, at, state, state);
    else if (kept && spec->reduction == IGNIS_REDUCE_NORM)
        ignis__map_add(t, "        ((W *)p.w[%d])[%s] = y%d;\n", w->shared + 7, at, k);
    else if (kept) /* the largest and the sum: their logarithm would be rounded, and with it all that gradients are made from */
        ignis__map_add(t, "        ((W *)p.w[%d])[%s] = %s.v;\n        ((W *)p.w[%d])[p.w[%d] + %s] = %s.i;\n", w->shared + 7, at, state,
                       w->shared + 7, w->shared + 4, at, state);
    ignis__map_add_store(w, k, 1, true, at);
    ignis__map_add(t, "        }\n");
}

/*  The state of a reduction: what there is beside the value v. */
IGNIS__COLD static const char *ignis__map_state(const ignis__map_writer *w)
{
    const ignis__map_spec *spec = w->spec;
    bool kept = (spec->kept && !spec->needed) || ignis__map_whole_mean(w);
    return ignis__map_reduces_wide(spec->reduction) ? "W" : ignis__map_reductions[spec->reduction].place || kept ? "int" : NULL;
}

/*  State and folding of a reduction, and the kernel that folds parts: a block for each result. The sum of logsumexp is that of exp(... -
    v); a product whose gradient is wanted is that of the numbers that are not 0, and i how many are. */
IGNIS__COLD static void ignis__map_add_folding(ignis__map_writer *w)
{
    const ignis__map_spec *spec = w->spec;
    ignis__map_text *t = &w->text;
    const char *more = ignis__map_state(w);
    bool sums = ignis__map_whole_mean(w), counts = more && spec->reduction == IGNIS_REDUCE_PROD;
    int k, reduction = spec->reduction + (ignis__map_kept_place(spec) && !spec->needed ? IGNIS_REDUCE_ARGMAX - IGNIS_REDUCE_MAX : 0);
    const char *fold = ignis__map_reductions[reduction].fold;
    ignis__map_add(t, "struct S { %s v;", w->type);
    if (more)
        ignis__map_add(t, " %s i;", more);
    ignis__map_add(t, " };\nDI S map_none() { S s; s.v = %s;%s return s; }\n",
                   strcmp(w->type, "W") == 0 ? ignis__map_reductions[reduction].none : ignis__map_reductions[reduction].none_integer,
                   !more                            ? ""
                   : *more == 'W' || counts || sums ? " s.i = 0;"
                                                    : " s.i = 0x7fffffff;");
    /* fold joins two states, next one and the next element of a thread, whose places go up */
    if (sums)
        ignis__map_add(
            t, "DI S map_fold(const S a, const S b)\n{\n    S s;\n    s.v = (i64)((u64)a.v + (u64)b.v);\n    s.i = a.i + b.i + "
               "((u64)s.v < (u64)a.v);\n    return s;\n}\n"
               "DI S map_next(const S a, const i64 v, const u32 at) { S b; b.v = v; b.i = v < 0 ? -1 : 0; return map_fold(a, b); }\n");
    else if (counts)
        ignis__map_add(t,
                       "DI S map_fold(const S a, const S b) { S s; s.v = %s; s.i = a.i + b.i; return s; }\n"
                       "DI S map_next(S a, const W v, const u32 at) { a.v = v == 0 ? a.v : a.v*v; a.i += v == 0; return a; }\n",
                       fold);
    else if (more &&
             *more == 'i') /* of equals the first; what is not above none, such as minus infinity, leaves it: then the first one is it */
        ignis__map_add(
            t,
            "DI S map_fold(const S a, const S b) { return a.v == b.v || (a.v != a.v && b.v != b.v) ? (a.i < b.i ? a : b) : %s ? a : "
            "b; }\nDI S map_next(S a, const %s v, const u32 at)\n{\n    const bool is = !(v %s a.v) && a.v == a.v;\n    a.v = is ? v : "
            "a.v;\n    a.i = is ? (int)at : a.i;\n    return a;\n}\nDI i64 map_place_of(const S s) { return s.i == 0x7fffffff ? 0 : s.i; "
            "}\n",
            fold, w->type, reduction == IGNIS_REDUCE_ARGMAX ? "<=" : ">=");
    else if (spec->reduction == IGNIS_REDUCE_NORM)
        ignis__map_add(t,
                       "DI S map_fold(const S a, const S b) { S s; s.v = %s; s.i = a.i + b.i; return s; }\n"
                       "DI S map_next(S a, const W v, const u32 at)\n{\n    const W low = v*MAP_NORM_LOW, high = v*MAP_NORM_HIGH;\n"
                       "    a.v += low*low;\n    a.i += high*high;\n    return a;\n}\n",
                       fold);
    else if (more)
        ignis__map_add(
            t,
            "DI S map_fold(const S a, const S b)\n{\n    S s;\n    s.v = %s;\n    s.i = (a.v == s.v ? a.i : a.i*exp(a.v - s.v)) + "
            "(b.v == s.v ? b.i : b.i*exp(b.v - s.v));\n    return s;\n}\nDI S map_next(S a, const W v, const u32 at)\n{\n    const W e = v "
            "== "
            "a.v ? (W)1 : exp(-fabs(v - a.v));\n    a.i = v > a.v ? a.i*e + 1 : a.i + e;\n    a.v = a.v > v || a.v != a.v ? a.v : v;\n  "
            "  return a;\n}\n",
            fold);
    else
        ignis__map_add(t,
                       "DI S map_fold(const S a, const S b) { S s; s.v = %s; return s; }\n"
                       "DI S map_next(const S a, const %s v, const u32 at) { S b; b.v = v; return map_fold(a, b); }\n",
                       fold, w->type);
    ignis__map_add(
        t,
        "DI S map_together(S s, const int threads, S *shared)\n{\n#pragma unroll 1\n    for (int d = 16; d; d /= 2) {\n        S "
        "other;\n        other.v = __shfl_xor_sync(~0u, s.v, d);\n%s        s = threadIdx.x & d ? map_fold(other, s) : map_fold(s, "
        "other);\n    }\n    if (threads == 32) return s;\n    __syncthreads();\n    if (threadIdx.x %% 32 == 0) "
        "shared[threadIdx.x / 32] = s;\n    __syncthreads();\n    s = shared[0];\n#pragma unroll 1\n    for (int i = 1; i < threads "
        "/ 32; i++) s = map_fold(s, shared[i]);\n    return s;\n}\n",
        more ? "        other.i = __shfl_xor_sync(~0u, s.i, d);\n" : "");
    if (!spec->parts)
        return;
    ignis__map_add(t,
                   "extern \"C\" __global__ void __launch_bounds__(128) finish(const P p)\n{\n    __shared__ S shared[4];\n"
                   "    const u32 parts = (u32)p.w[%d], part = 0;\n    const W factor = (W)__longlong_as_double((i64)p.w[%d]);\n    S s;\n",
                   w->shared + 2, w->shared + 6);
    for (k = 0; k < spec->outs; k++) {
        if (!(spec->reduced >> k & 1))
            continue;
        ignis__map_add(t,
                       "    s = map_none();\n    for (u32 i = threadIdx.x; i < parts; i += 128u)\n"
                       "        s = map_fold(s, ((const S *)p.w[%d])[((u64)%d*parts + i)*p.w[%d] + blockIdx.x]);\n    s = map_together(s, "
                       "128, shared);\n"
                       "    if (threadIdx.x == 0)\n",
                       w->shared + 5, k, w->shared + 4);
        ignis__map_add_result(w, k, "s", "blockIdx.x", false);
    }
    ignis__map_add(t, "}\n");
}

/*  A kernel that reduces rows: a team of threads does a part of one. */
IGNIS__COLD static void ignis__map_add_rows(ignis__map_writer *w)
{
    const ignis__map_spec *spec = w->spec;
    ignis__map_text *t = &w->text;
    int k, n = spec->pack, team = spec->team;
    bool largest = spec->reduction == IGNIS_REDUCE_ARGMAX || spec->reduction == IGNIS_REDUCE_MAX;
    bool packs = n > 1 && (ignis__map_reductions[spec->reduction].place || (ignis__map_kept_place(spec) && !spec->needed));
    char there[60], thread[40];
    snprintf(there, sizeof there, "first + u*%du < end", team);
    ignis__map_add(t, "    __shared__ S shared[%d];\n    const u32 packs = (u32)p.w[%d], length = (u32)p.w[%d];\n", team / 32,
                   w->shared + 1, w->shared + 3);
    ignis__map_add(t, spec->parts ? "    const u32 parts = (u32)p.w[%d];\n" : "    const u32 parts = 1;\n", w->shared + 2);
    ignis__map_add(
        t, "    const u32 item = blockIdx.x*%du + threadIdx.x / %d, lane = threadIdx.x %% %d, row = item / parts, part = item %% parts;\n",
        IGNIS__MAP_THREADS / team, team, team);
    ignis__map_add(t, "    const u32 end = min(part*length + length, packs), start = row*packs;\n    if (row >= (u32)p.w[%d]) return;\n",
                   w->shared + 4);
    for (k = 0; k < spec->outs; k++)
        ignis__map_add(t, "    S a%d = map_none();\n", k);
    if (packs) /* the largest element of a pack is found before its place: i is that of the pack, b the pack */
        ignis__map_add(t, "    %s b[%d];\n", w->type, n);
    ignis__map_add(t, "#pragma unroll 1\n    for (u32 first = part*length + lane; first < end; first += %du) {\n",
                   team * spec->packs_per_thread);
    snprintf(thread, sizeof thread, "start + first + u*%du", team);
    ignis__map_add_packs(w, there, thread);
    if (packs)
        ignis__map_add(
            t,
            "            S c;\n            c.v = y0[0];\n#pragma unroll\n            for (int e = 1; e < %d; e++) c.v = %s(c.v, y0[e]);\n"
            "            c = map_next(a0, c.v, (first + u*%du)*%d);\n            const bool is = c.i != a0.i;\n            a0 = c;\n"
            "#pragma unroll\n            for (int e = 0; e < %d; e++) b[e] = is ? y0[e] : b[e];\n",
            n, largest ? "map_most" : "map_least", team, n, n);
    for (k = 0; k < spec->outs && !packs; k++)
        if (spec->reduced >> k & 1)
            ignis__map_add(
                t, "#pragma unroll\n            for (int e = 0; e < %d; e++) a%d = map_next(a%d, y%d[e], (first + u*%du)*%d + e);\n", n, k,
                k, k, team, n);
    ignis__map_add(t, "        }\n    }\n    }\n");
    if (packs)
        ignis__map_add(
            t,
            "    int place = 0;\n#pragma unroll\n    for (int e = %d; e > 0; e--) place = b[e - 1] == a0.v || b[e - 1] != b[e - 1] ? e "
            "- 1 : place;\n    a0.i += a0.i == 0x7fffffff ? 0 : place;\n",
            n);
    if (!w->spreads && spec->pack > 1) {
        ignis__map_add_rest(w, "lane + (part + 1 < parts ? 64u : 0u)"); /* in the last part; there are fewer than 16 */
        for (k = 0; k < spec->outs; k++)
            if (spec->reduced >> k & 1)
                ignis__map_add(t, "        a%d = map_next(a%d, y%d, (u32)at);\n", k, k, k);
        ignis__map_add(t, "    }\n");
    }
    for (k = 0; k < spec->outs; k++) {
        if (!(spec->reduced >> k & 1))
            continue;
        ignis__map_add(t, "    a%d = map_together(a%d, %d, shared);\n    if (lane == 0) {\n", k, k, team);
        snprintf(thread, sizeof thread, "a%d", k);
        ignis__map_add_result(w, k, thread, "row", spec->parts);
        ignis__map_add(t, "    }\n");
    }
}

/*  A kernel that reduces columns: threads side by side along rows of packs, which the others of the block share out among them. */
IGNIS__COLD static void ignis__map_add_columns(ignis__map_writer *w)
{
    const ignis__map_spec *spec = w->spec;
    ignis__map_text *t = &w->text;
    int k, n = spec->pack, x = spec->team, y = 256 / x;
    char there[60];
    snprintf(there, sizeof there, "row + u*%du < end", y);
    ignis__map_add(t, "    __shared__ S shared[%d][%d];\n    const u32 rows = (u32)p.w[%d], packs = (u32)p.w[%d], length = (u32)p.w[%d];\n",
                   y, x * n, w->shared, w->shared + 1, w->shared + 3);
    ignis__map_add(t, spec->parts ? "    const u32 parts = (u32)p.w[%d];\n" : "    const u32 parts = 1;\n", w->shared + 2);
    ignis__map_add(t, "    const u32 tx = threadIdx.x %% %d, ty = threadIdx.x / %d, tiles = (packs + %d) / %d;\n", x, x, x - 1, x);
    ignis__map_add(t,
                   "    const u32 tile = blockIdx.x %% tiles, part = blockIdx.x / tiles %% parts, group = blockIdx.x / tiles / parts;\n");
    ignis__map_add(t, "    const u32 column = tile*%du + tx, end = column < packs ? min(part*length + length, rows) : 0;\n", x);
    for (k = 0; k < spec->outs; k++)
        ignis__map_add(t, "    S a%d[%d];\n#pragma unroll\n    for (int e = 0; e < %d; e++) a%d[e] = map_none();\n", k, n, n, k);
    ignis__map_add(t, "#pragma unroll 1\n    for (u32 row = part*length + ty; row < end; row += %du) {\n", y * spec->packs_per_thread);
    {
        char at[80];
        snprintf(at, sizeof at, "(group*rows + row + u*%du)*packs + column", y);
        ignis__map_add_packs(w, there, at);
    }
    for (k = 0; k < spec->outs; k++)
        if (spec->reduced >> k & 1)
            ignis__map_add(t, "#pragma unroll\n            for (int e = 0; e < %d; e++) a%d[e] = map_next(a%d[e], y%d[e], row + u*%du);\n",
                           n, k, k, k, y);
    ignis__map_add(t, "        }\n    }\n    }\n");
    for (k = 0; k < spec->outs; k++) {
        if (!(spec->reduced >> k & 1))
            continue;
        ignis__map_add(t,
                       "    __syncthreads();\n#pragma unroll\n    for (int e = 0; e < %d; e++) shared[ty][tx*%d + e] = a%d[e];\n    "
                       "__syncthreads();\n",
                       n, n, k);
        ignis__map_add(t, "    for (u32 c = threadIdx.x; c < %du && tile*%du + c < packs*%du; c += 256u) {\n        S s = shared[0][c];\n",
                       x * n, x * n, n);
        ignis__map_add(t,
                       "#pragma unroll 1\n        for (int i = 1; i < %d; i++) s = map_fold(s, shared[i][c]);\n        const u64 to = "
                       "(u64)group*packs*%d + tile*%du + c;\n",
                       y, n, x * n);
        ignis__map_add_result(w, k, "s", "to", spec->parts);
        ignis__map_add(t, "    }\n");
    }
}

/*  The words of a kernel's parameter, and its text: for each element, or in a reduction. */
IGNIS__COLD static bool ignis__map_write(ignis__map_writer *w, const ignis__formula *formula, const ignis__map_spec *spec)
{
    ignis__map_text *t = &w->text;
    int threads = spec->mode == IGNIS__MAP_COLUMNS ? 256 : IGNIS__MAP_THREADS;
    bool ok;
    memset(w, 0, sizeof *w);
    w->formula = formula;
    w->spec = spec;
    w->type = ignis__map_result_type(w, 0);
    ignis__map_words(w);
    ok = ignis__map_add_function(w);
    if (spec->mode)
        ignis__map_add_folding(w);
    ignis__map_add(t, "extern \"C\" __global__ void __launch_bounds__(%d) k(const P p)\n{\n", threads);
    ignis__map_add_constants(w);
    if (spec->mode == IGNIS__MAP_ROWS) {
        ignis__map_add_rows(w);
    } else if (spec->mode == IGNIS__MAP_COLUMNS) {
        ignis__map_add_columns(w);
    } else {
        char there[60], at[40];
        snprintf(at, sizeof at, "base + u*%du", threads);
        snprintf(there, sizeof there, "%s < (u32)p.w[%d]", at, w->packs);
        ignis__map_add(t, "    const u32 base = blockIdx.x*%du + threadIdx.x;\n", threads * spec->packs_per_thread);
        ignis__map_add_packs(w, there, at);
        ignis__map_add(t, "        }\n    }\n");
        if (spec->pack > 1 && !(w->spreads && spec->whole)) {
            ignis__map_add_rest(w, "base");
            ignis__map_add(t, "    }\n");
        }
    }
    ignis__map_add(t, "}\n");
    return ok && !t->failed;
}

/* --- kernels, and their launches ------------------------------------------------------------------------------------------ */

/*  A spec as words of a record: its numbers that are not 0, as "place:number,...". */
IGNIS__COLD static void ignis__map_spec_write(ignis__map_text *t, const ignis__map_spec *spec)
{
    uint16_t numbers[IGNIS__MAP_SPEC];
    const char *comma = "";
    int i;
    memcpy(numbers, spec, sizeof numbers);
    for (i = 0; i < IGNIS__MAP_SPEC; i++)
        if (numbers[i]) {
            ignis__map_add(t, "%s%d:%d", comma, i, numbers[i]);
            comma = ",";
        }
}

/*  Whether a spec, which somebody may have written, is one that a kernel can have. */
IGNIS__COLD static bool ignis__map_spec_valid(const ignis__formula *formula, const ignis__map_spec *spec)
{
    int i, count = formula->count, outs = 0;
    bool reduces = spec->mode != IGNIS__MAP_EACH;
    for (i = 0; i <= count + 1; i++)
        if (spec->kind[i] > IGNIS__MAP_COLUMN || spec->dtype[i] >= IGNIS_DTYPE_COUNT ||
            (!spec->dtype[i] && spec->kind[i] != IGNIS__MAP_UNUSED && spec->kind[i] != IGNIS__MAP_VALUE))
            return false;
    for (i = 0; i < spec->outs && i < IGNIS_MAX_INPUTS; i++)
        if (spec->out[i] == 0 || spec->out[i] >= IGNIS_DTYPE_COUNT)
            return false;
    for (i = 0; i < count; i++)
        outs += spec->needed >> i & 1;
    return spec->outs >= 1 && spec->outs <= IGNIS_MAX_INPUTS && spec->result < formula->result_count &&
           (spec->needed ? outs == spec->outs && !(spec->needed >> count) : spec->result + spec->outs <= formula->result_count) &&
           spec->mode <= IGNIS__MAP_COLUMNS && spec->reduction < IGNIS_REDUCE_COUNT && (spec->reduction != 0) == reduces &&
           (spec->reduced != 0) == reduces && !(spec->reduced >> spec->outs) && spec->rank >= 1 && spec->rank <= IGNIS__MAP_ANY_RANK &&
           spec->pack >= 1 && spec->pack <= 16 && !(spec->pack & (spec->pack - 1)) && spec->packs_per_thread >= 1 &&
           spec->packs_per_thread <= 2 && spec->team <= 128 && !(spec->team & (spec->team - 1)) &&
           (spec->mode != IGNIS__MAP_ROWS || spec->team >= 32) &&
           (spec->mode != IGNIS__MAP_COLUMNS || (spec->team >= 1 && spec->team <= 32)) && spec->whole <= 1 && spec->wide <= 1 &&
           spec->half <= 1 && spec->parts <= 1 && (!spec->kept || (spec->kept >= IGNIS_REDUCE_PROD && spec->kept < IGNIS_REDUCE_COUNT));
}

/*  Makes of a spec that of a kernel for any shapes, strides and addresses: inputs that are arrays are walked by strides, element by element. */
static void ignis__map_generalize(ignis__map_spec *spec, int count)
{
    int i;
    for (i = 0; i <= count + 1; i++)
        if (spec->kind[i] != IGNIS__MAP_UNUSED && spec->kind[i] != IGNIS__MAP_VALUE)
            spec->kind[i] = IGNIS__MAP_COLUMN;
    spec->rank = IGNIS__MAP_ANY_RANK;
    spec->pack = spec->packs_per_thread = spec->whole = 1;
    spec->parts = spec->mode != IGNIS__MAP_EACH;
}

/*  The kernels beside one that other sizes and addresses take: those for inputs that are spread alike, then those for any. False: that is all. */
static bool ignis__map_other(const ignis__map_spec *spec, int count, int turn, ignis__map_spec *other)
{
    static const struct {
        uint16_t mode, team;
    } any[] = {{IGNIS__MAP_ROWS, 128}, {IGNIS__MAP_COLUMNS, 4}, {IGNIS__MAP_COLUMNS, 32}};
    bool spreads = false, reduces = spec->mode != IGNIS__MAP_EACH;
    int i, widest = 1, alike;
    for (i = 0; i <= count + 1; i++) {
        spreads = spreads || spec->kind[i] >= IGNIS__MAP_ROW;
        if ((spec->kind[i] == IGNIS__MAP_LINEAR || spec->kind[i] == IGNIS__MAP_ROW) && ignis__dtypes[spec->dtype[i]].size > widest)
            widest = ignis__dtypes[spec->dtype[i]].size;
    }
    for (i = 0; i < spec->outs; i++)
        if (!(spec->reduced >> i & 1) && ignis__dtypes[spec->out[i]].size > widest)
            widest = ignis__dtypes[spec->out[i]].size;
    alike = spec->rank == IGNIS__MAP_ANY_RANK ? 0 : !reduces ? 1 + spreads : spec->mode == IGNIS__MAP_COLUMNS && spec->team == 32 ? 2 : 4;
    *other = *spec;
    if (turn < alike) {
        other->pack = (uint16_t)(16 / widest);
        other->whole = reduces || turn == 0;
        other->parts = reduces && turn % 2;
        if (reduces && turn >= 2)
            other->team = spec->mode == IGNIS__MAP_COLUMNS || spec->team != 32 ? 32 : 128;
        return true;
    }
    turn -= alike;
    if (turn >= (reduces ? IGNIS__COUNT(any) : 1))
        return false;
    if (reduces) {
        other->mode = any[turn].mode;
        other->team = any[turn].team;
    }
    ignis__map_generalize(other, count);
    return true;
}

/*  Whether another kernel can take a launch for which one is meant. */
static bool ignis__map_serves(const ignis__map_spec *other, const ignis__map_spec *meant)
{
    bool any = other->rank == IGNIS__MAP_ANY_RANK;
    if (other->mode != meant->mode || other->parts < meant->parts)
        return false;
    if (any)
        return meant->mode != IGNIS__MAP_COLUMNS || other->team == 32 || other->team >= meant->team * meant->pack;
    return other->pack <= meant->pack && (!other->whole || meant->whole || other->pack == 1);
}

/*  The program of a kernel. */
typedef struct ignis__map_source {
    ignis__program program;
    ignis__map_text text, line;
} ignis__map_source;

static void ignis__map_source_free(ignis__map_source *made)
{
    ignis__free(made->text.data);
    ignis__free(made->line.data);
}

IGNIS__COLD static bool ignis__map_source_make(const char *call, const ignis__formula *formula, const ignis__map_spec *spec,
                                               ignis__map_source *made)
{
    static const char *const options[] = {"-w", "-ftz=true", "-prec-div=false"};
    ignis__map_writer writer;
    const char *words[2], *at;
    bool ok;
    int i;
    memset(made, 0, sizeof *made);
    ok = ignis__map_write(&writer, formula, spec);
    made->text = writer.text;
    words[0] = formula->text;
    words[1] = formula->names;
    ignis__map_add(&made->line, "formula 0-%d", IGNIS__EVERY_ARCH);
    for (i = 0; i < 2; i++) {
        ignis__map_add(&made->line, " \"");
        for (at = words[i]; *at; at++)
            ignis__map_add(&made->line, "%s%c", *at == '"' || *at == '\\' || *at == '\n' || *at == '\r' ? "\\" : "",
                           *at == '\n'   ? 'n'
                           : *at == '\r' ? 'r'
                                         : *at);
        ignis__map_add(&made->line, "\"");
    }
    ignis__map_add(&made->line, " %d %u ", formula->count, (unsigned)formula->integers);
    ignis__map_spec_write(&made->line, spec);
    made->program.source = made->text.data;
    made->program.name = "formula.cu";
    made->program.options = options;
    made->program.option_count = spec->half ? 3 : 1;
    made->program.formula = formula->text;
    made->program.line = made->line.data;
    if (ok && !made->line.failed)
        return true;
    ignis__map_source_free(made);
    ignis__fail_host_memory(call, 1);
    return false;
}

/*  "TEXT" "NAMES" INPUTS INTEGERS NUMBERS */
IGNIS__COLD static bool ignis__request_read_formula(char *line, ignis__request *request, bool *whole, ignis__text *why)
{
    char *text = ignis__request_word(&line, whole), *names = ignis__request_word(&line, whole), *word[3], *at, *end;
    long count, integers, place, number;
    uint16_t numbers[IGNIS__MAP_SPEC];
    char reason[300];
    ignis__record before, failure;
    ignis__map_spec spec;
    ignis__map_source made;
    ignis__formula *formula;
    int i;
    for (i = 0; i < 3; i++)
        word[i] = ignis__request_word(&line, whole);
    count = word[0] ? strtol(word[0], NULL, 10) : 0;
    integers = word[1] ? strtol(word[1], NULL, 10) : -1;
    if (!word[2] || count < 1 || count > IGNIS_MAX_INPUTS || integers < 0 || integers >> count)
        return ignis__reason(why, "a formula is a text, names of inputs, how many, which are integers, and numbers of its kernel");
    memset(numbers, 0, sizeof numbers);
    for (at = word[2]; *at; at = end + (*end == ',')) {
        place = strtol(at, &end, 10);
        number = *end == ':' ? strtol(end + 1, &end, 10) : -1;
        if (place < 0 || place >= IGNIS__MAP_SPEC || number < 0 || number > 65535 || (*end && *end != ','))
            return ignis__reason(why, "the numbers of a formula's kernel are none at '%.20s'", at);
        numbers[place] = (uint16_t)number;
    }
    memcpy(&spec, numbers, sizeof spec);
    before = ignis__quiet_begin();
    formula = ignis__formula_get("the formula", text, names, (int)count, (uint32_t)integers);
    ignis__quiet_end(&before, &failure, reason, sizeof reason);
    if (!formula)
        return ignis__reason(why, "%s", reason);
    if (!ignis__map_spec_valid(formula, &spec))
        return ignis__reason(why, "the numbers of a formula's kernel are those of none");
    request->formula = formula;
    memcpy(request->spec, numbers, sizeof numbers);
    if (spec.rank == IGNIS__MAP_ANY_RANK) /* of a bundle alone: this one and others of its kind */
        return true;
    if (!ignis__map_source_make("a record", formula, &spec, &made))
        return ignis__reason(why, "out of memory");
    ignis__free(made.line.data);
    for (i = 0; i < made.program.option_count; i++)
        request->options[i] = made.program.options[i];
    made.program.options = request->options;
    made.program.line = NULL;
    request->program = made.program;
    request->text = made.text.data;
    return true;
}

/*  The kernels beside that of a formula's line that a bundle has, too. False: there are no more. For tools/ignis_embed.c. */
IGNIS__MAYBE_UNUSED IGNIS__COLD static bool ignis__request_other(const ignis__request *request, int turn, ignis__map_source *made)
{
    ignis__map_spec spec, other;
    memcpy(&spec, request->spec, sizeof spec);
    return request->formula && ignis__map_other(&spec, request->formula->count, turn, &other) &&
           ignis__map_source_make("a record", request->formula, &other, made);
}

/*  Records a kernel, which other sizes than those of now take. */
IGNIS__COLD static void ignis__map_record(const char *call, const ignis__formula *formula, const ignis__map_spec *spec)
{
    ignis__map_source made;
    if (!ignis__map_source_make(call, formula, spec, &made))
        return;
    ignis__request_add(&made.program, 0, IGNIS__EVERY_ARCH);
    ignis__map_source_free(&made);
}

/*  A kernel that was made for a spec, or that serves instead; null: there is none yet. */
static const ignis__map_kernel *ignis__map_kernel_find(const ignis__device *device, const ignis__formula *formula,
                                                       const ignis__map_spec *spec)
{
    const ignis__map_kernel *kernel;
    ignis__mutex_lock(&ignis__formulas.lock);
    for (kernel = formula->kernels; kernel; kernel = kernel->next)
        if (kernel->device == device && memcmp(&kernel->spec, spec, sizeof *spec) == 0)
            break;
    ignis__mutex_unlock(&ignis__formulas.lock);
    return kernel && kernel->instead ? kernel->instead : kernel;
}

/*  Two threads may make the same one; both stay, the newer is found. */
static void ignis__map_kernel_list(ignis__formula *formula, ignis__map_kernel *kernel)
{
    ignis__mutex_lock(&ignis__formulas.lock);
    kernel->next = formula->kernels;
    formula->kernels = kernel;
    ignis__mutex_unlock(&ignis__formulas.lock);
}

/*  Loads a kernel on a device that is entered. bundled: only from the bundle. Null: it failed, or (*failed false) it is not there. */
IGNIS__COLD static const ignis__map_kernel *ignis__map_kernel_load(const char *call, ignis__device *device, ignis__formula *formula,
                                                                   const ignis__map_spec *spec, bool bundled, bool *failed)
{
    ignis__map_kernel *kernel = NULL;
    ignis__map_source made;
    *failed = true;
    if (!ignis__map_source_make(call, formula, spec, &made))
        return NULL;
    *failed = !bundled || ignis__program_bundled(device, &made.program);
    if (*failed && (kernel = (ignis__map_kernel *)ignis__alloc_for(call, sizeof *kernel)) != NULL) {
        memset(kernel, 0, sizeof *kernel);
        kernel->spec = *spec;
        kernel->device = device;
        if (!ignis__module_make(call, device, &made.program, &kernel->module) ||
            !ignis__function_get(call, device, &kernel->module, "k", &kernel->function) ||
            (spec->parts && !ignis__function_get(call, device, &kernel->module, "finish", &kernel->finish))) {
            ignis__module_unload(&kernel->module);
            ignis__free(kernel);
            kernel = NULL;
        }
    }
    ignis__map_source_free(&made);
    if (!kernel)
        return NULL;
    *failed = false;
    ignis__function_name(kernel->function, formula->text);
    ignis__map_kernel_list(formula, kernel);
    return kernel;
}

/*  A kernel on a device that is entered: that of the spec, or where it is neither in the bundle nor can be compiled, another of the bundle that
    serves. Null on failure. */
static const ignis__map_kernel *ignis__map_kernel_get(const char *call, ignis__device *device, ignis__formula *formula,
                                                      const ignis__map_spec *spec)
{
    const ignis__map_kernel *kernel = ignis__map_kernel_find(device, formula, spec);
    ignis__map_kernel *stands;
    ignis__map_spec other;
    bool failed = false;
    int turn;
    if (kernel)
        return kernel;
    if (!ignis__the_bundle.data || ignis__compiler_there(call))
        return ignis__map_kernel_load(call, device, formula, spec, false, &failed);
    kernel = ignis__map_kernel_load(call, device, formula, spec, true, &failed);
    if (kernel || failed)
        return kernel;
    for (turn = 0; !kernel && !failed && ignis__map_other(spec, formula->count, turn, &other); turn++)
        if (ignis__map_serves(&other, spec) && (kernel = ignis__map_kernel_find(device, formula, &other)) == NULL)
            kernel = ignis__map_kernel_load(call, device, formula, &other, true, &failed);
    if (failed)
        return NULL;
    if (!kernel) /* from the caches, or it is missed by its name */
        return ignis__map_kernel_load(call, device, formula, spec, false, &failed);
    stands = (ignis__map_kernel *)ignis__alloc(sizeof *stands);
    if (stands) { /* else it is looked for again */
        memset(stands, 0, sizeof *stands);
        stands->spec = *spec;
        stands->device = device;
        stands->instead = kernel;
        ignis__map_kernel_list(formula, stands);
    }
    return kernel;
}

/*  Unloads the kernels of a device, whose context is current; null: forgets the formulas, which have none any more. */
IGNIS__COLD static void ignis__formulas_close(const ignis__device *device)
{
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__formulas.first); i++) {
        ignis__formula *formula = ignis__formulas.first[i], *next;
        for (; formula; formula = next) {
            ignis__map_kernel **link = &formula->kernels, *kernel;
            next = formula->next;
            while (device && (kernel = *link) != NULL) {
                if (kernel->device != device) {
                    link = &kernel->next;
                    continue;
                }
                *link = kernel->next;
                ignis__module_unload(&kernel->module);
                ignis__free(kernel);
            }
            if (!device) {
                ignis__free(formula->term);
                ignis__free(formula);
            }
        }
        if (!device)
            ignis__formulas.first[i] = NULL;
    }
}

