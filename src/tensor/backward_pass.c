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

/*  One run of a formula: the shapes of its result and of inputs that are arrays. Input `count` is the gradient that comes in. */
typedef struct ignis__map_run {
    ignis__formula *formula;
    ignis_shape shape;
    const ignis_shape *input[IGNIS_MAX_INPUTS + 2]; /* null: a value */
    ignis_dtype dtype[IGNIS_MAX_INPUTS + 2];
    ignis__address address[IGNIS_MAX_INPUTS + 2];
    double value[IGNIS_MAX_INPUTS];
    ignis__random random;  /* where the formula takes random numbers */
    int result;            /* see ignis__map_spec */
    uint32_t used, needed; /* bits of inputs */
    uint32_t reduced;      /* bits of results: those that are reduced to to_shape, which spreads over shape */
    int kept;              /* see ignis__map_spec */
    ignis__address kept_to;
    ignis_reducer reduction;
    const ignis_shape *to_shape;
    double factor; /* of the gradient that comes in; how many elements a mean is of */
    int outs;
    ignis_dtype out[IGNIS_MAX_INPUTS];
    ignis__address to[IGNIS_MAX_INPUTS];
} ignis__map_run;

IGNIS__ONE_COPY static int64_t ignis__shape_product(const ignis_shape *shape, int from, int to)
{
    int64_t product = 1;
    for (; from < to; from++)
        product *= shape->dim[from];
    return product;
}

/*  The strides of an array's elements in the dimensions of a shape that it spreads over, which it does; true when it is that shape. */
static bool ignis__map_strides(const ignis_shape *shape, const ignis_shape *array, int64_t *stride)
{
    int d, lacking = shape->ndim - array->ndim;
    int64_t step = 1;
    bool same = true;
    for (d = shape->ndim - 1; d >= 0; d--) {
        int64_t dim = d < lacking ? 1 : array->dim[d - lacking];
        stride[d] = dim == 1 ? 0 : step;
        step *= dim;
        same = same && (dim == shape->dim[d]);
    }
    return same;
}

/*  The dimensions of a shape without those of 1, neighbours in one where that is so for all `count` inputs; returns how many. */
static int ignis__map_collapse(const ignis_shape *shape, int count, int64_t stride[][IGNIS__MAP_ANY_RANK], int64_t *dim)
{
    int d, i, rank = 0;
    for (d = 0; d < shape->ndim; d++) {
        bool merge = rank > 0;
        if (shape->dim[d] == 1)
            continue;
        for (i = 0; i < count && merge; i++)
            merge = stride[i][rank - 1] == stride[i][d] * shape->dim[d];
        rank += !merge;
        dim[rank - 1] = merge ? dim[rank - 1] * shape->dim[d] : shape->dim[d];
        for (i = 0; i < count; i++)
            stride[i][rank - 1] = stride[i][d];
    }
    return rank;
}

/*  An array seen as [outer, n, inner], of which [outer, inner] is the part that is summed to or spread from. */
typedef struct ignis__spread {
    int64_t outer, n, inner;
} ignis__spread;

/*  n is a dimension of the shape. */
static ignis__spread ignis__spread_along(const ignis_shape *shape, int dim)
{
    ignis__spread spread = {ignis__shape_product(shape, 0, dim), shape->dim[dim], ignis__shape_product(shape, dim + 1, shape->ndim)};
    return spread;
}

/*  Whether b spreads over a: from the last dimension on, b may lack leading ones, or have 1 for neighbouring ones. */
static bool ignis__spread_find(const ignis_shape *a, const ignis_shape *b, ignis__spread *spread)
{
    int i, lacking = a->ndim - b->ndim, phase = 0;
    spread->outer = spread->n = spread->inner = 1;
    if (lacking < 0)
        return false;
    for (i = 0; i < a->ndim; i++) {
        int64_t of_a = a->dim[i], of_b = i < lacking ? 1 : b->dim[i - lacking];
        if (of_a == 1 && of_b == 1)
            continue;
        if (of_a != of_b && of_b != 1)
            return false;
        if (of_a != of_b && phase == 2) /* two places to spread over, apart from each other */
            return false;
        phase = of_a != of_b ? 1 : phase == 1 ? 2 : phase;
        *(phase == 0 ? &spread->outer : phase == 1 ? &spread->n : &spread->inner) *= of_a;
    }
    return true;
}

/*  The pack of a kernel: as many elements as all are aligned for, and `multiple` is one of. */
static int ignis__map_pack(const ignis__map_run *run, const ignis__map_spec *spec, int widest, int64_t multiple)
{
    int pack, i, count = run->formula->count;
    for (pack = 16 / widest; pack > 1; pack /= 2) {
        ignis__address bits = (ignis__address)(multiple % pack);
        for (i = 0; i < run->outs; i++)
            if (!(run->reduced >> i & 1))
                bits |= run->to[i] & (ignis__address)(pack * ignis__dtypes[run->out[i]].size - 1);
        for (i = 0; i <= count + 1; i++)
            if (spec->kind[i] == IGNIS__MAP_LINEAR || spec->kind[i] == IGNIS__MAP_ROW)
                bits |= run->address[i] & (ignis__address)(pack * ignis__dtypes[run->dtype[i]].size - 1);
        if (!bits)
            break;
    }
    return pack;
}

/*  A division in kernels: x / size = (the upper word of x * multiplier, plus x) >> shift, for x below 2^31; by 2^31 and more they divide in 64
    bits. kernels/ignis.cuh has the same struct. */
typedef struct ignis__divisor {
    uint32_t size, multiplier, shift;
} ignis__divisor;

static ignis__divisor ignis__divisor_of(int64_t size)
{
    ignis__divisor d = IGNIS__ZERO;
    if (size >> 31)
        return d;
    d.size = (uint32_t)size;
    while ((uint64_t)1 << d.shift < (uint64_t)size)
        d.shift++;
    if (size > 0)
        d.multiplier = (uint32_t)(((((uint64_t)1 << d.shift) - (uint64_t)size) << 32) / (uint64_t)size + 1);
    return d;
}

/*  The same as words of a formula's kernel: a factor and a shift. */
static void ignis__map_divisor(int64_t divisor, uint64_t *magic)
{
    ignis__divisor d = ignis__divisor_of(divisor);
    magic[0] = d.multiplier;
    magic[1] = d.shift;
}

/*  The same for the place of an element in a dimension of n, behind which are dimensions of `inner` elements. */
static void ignis__map_magic(int64_t inner, int64_t n, uint64_t *magic)
{
    ignis__map_divisor(inner, magic);
    ignis__map_divisor(n, magic + 2);
    magic[4] = (uint64_t)n;
}

/*  What of a spec shapes, strides and addresses have no part in: that of a kernel for any. */
static void ignis__map_spec_begin(const ignis__map_run *run, ignis__map_spec *spec)
{
    int i, count = run->formula->count;
    memset(spec, 0, sizeof *spec);
    spec->needed = (uint16_t)run->needed;
    spec->result = (uint16_t)run->result;
    spec->outs = (uint16_t)run->outs;
    spec->reduced = (uint16_t)run->reduced;
    spec->reduction = (uint16_t)(run->reduced ? run->reduction : 0);
    spec->kept = (uint16_t)run->kept;
    spec->mode = (uint16_t)(run->reduced ? IGNIS__MAP_ROWS : IGNIS__MAP_EACH);
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
        spec->kind[i] = run->input[i] ? IGNIS__MAP_COLUMN : IGNIS__MAP_VALUE;
        spec->dtype[i] = (uint16_t)(run->input[i] ? run->dtype[i] : 0);
        spec->wide = spec->wide || spec->dtype[i] == IGNIS_F64;
    }
    spec->half = spec->half && !spec->wide;
    ignis__map_generalize(spec, count);
}

/*  Records the kernels that a run takes at other sizes. */
static void ignis__map_record_run(const char *call, const ignis__map_run *run)
{
    ignis__map_spec spec;
    if (!ignis__requests.path[0])
        return;
    ignis__map_spec_begin(run, &spec);
    ignis__map_record(call, run->formula, &spec);
}

/*  Whether a run has a kernel: it can be compiled, or the bundle has it, for any sizes if for some. */
static bool ignis__map_there(const char *call, const ignis__device *device, const ignis__map_run *run)
{
    ignis__map_source made;
    ignis__map_spec spec;
    bool there;
    if (!ignis__the_bundle.data || ignis__compiler_there(call))
        return true;
    ignis__map_spec_begin(run, &spec);
    if (ignis__map_kernel_find(device, run->formula, &spec))
        return true;
    if (!ignis__map_source_make(call, run->formula, &spec, &made))
        return true; /* whoever asks for it fails, too */
    there = ignis__program_bundled(device, &made.program);
    ignis__map_source_free(&made);
    return there;
}

/*  How the kernel of a reduction is launched: blocks, and words of its parameter, of which [2] is the number of parts. */
static int64_t ignis__map_split(const ignis__work *work, const ignis__map_spec *spec, const ignis__spread *s, uint64_t *shared)
{
    int64_t processors = work->device->info.multiprocessors, packs, tiles, parts;
    if (spec->mode == IGNIS__MAP_ROWS) {
        packs = s->n / spec->pack;
        parts = ignis__clamp(16 * processors / s->outer, 1, ignis__ceil_div(packs + 1, 1024));
        shared[1] = (uint64_t)packs;
        shared[3] = (uint64_t)ignis__ceil_div(packs, parts);
        parts = packs ? ignis__ceil_div(packs, (int64_t)shared[3]) : 1;
        shared[2] = (uint64_t)parts;
        shared[4] = (uint64_t)s->outer;
        return ignis__ceil_div(s->outer * parts, IGNIS__MAP_THREADS / spec->team);
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

/*  Puts dimensions behind others of 1, and one of 1 behind them: as kernels for any shapes have them. */
static void ignis__map_any_rank(int rank, int inputs, int64_t *dim, int64_t stride[][IGNIS__MAP_ANY_RANK])
{
    int before = IGNIS_MAX_DIMS - rank, d, i;
    for (d = IGNIS_MAX_DIMS; d >= 0; d--) {
        bool is = d >= before && d < IGNIS_MAX_DIMS;
        dim[d] = is ? dim[d - before] : 1;
        for (i = 0; i < inputs; i++)
            stride[i][d] = is ? stride[i][d - before] : 0;
    }
}

/*  Runs the kernel of a formula on the current stream. What is reduced is reduced along dimensions that are neighbours. */
static bool ignis__map_launch(const ignis__work *work, const ignis__map_run *run)
{
    int64_t stride[IGNIS_MAX_INPUTS + 4][IGNIS__MAP_ANY_RANK], dim[IGNIS__MAP_ANY_RANK], numel = 1, full, parts = 1, blocks;
    ignis__spread s = {1, 1, 1}; /* of what is reduced */
    uint64_t words[2 * IGNIS_MAX_INPUTS + 2 + 10 + 3 + 5 * (IGNIS__MAP_INDICES + 1) + 3 * IGNIS_MAX_DIMS +
                   (IGNIS_MAX_INPUTS + 2) * IGNIS__MAP_ANY_RANK],
        shared[8];
    int terms[IGNIS__MAP_INDICES], indices = ignis__map_indices(run->formula, terms), count = run->formula->count, rank, widest = 1,
                                   linear = 0, i, d;
    unsigned grid[3] = {0, 1, 1}, block[3] = {IGNIS__MAP_THREADS, 1, 1};
    bool ok, one_row;
    ignis__address launches = 0;
    const ignis__map_kernel *kernel;
    ignis__block *memory = NULL;
    ignis__map_writer w = IGNIS__ZERO;
    ignis__map_spec spec;
    void *params[] = {words};
    for (i = 0; i < indices; i++) {
        d = (int)run->formula->term[terms[i]].number;
        if (d < -run->shape.ndim || d >= run->shape.ndim)
            return ignis__refuse(IGNIS_DIAG_DIM_RANGE, work->call, "index(%d) is outside of the result, %s", d,
                                 ignis__shape_write(&run->shape).text);
    }
    if (run->formula->randoms && !ignis__random_step(work, run->random.launches, &launches))
        return false;
    memset(stride, 0, sizeof stride);
    for (i = 0; i <= count + 1; i++)
        if (run->used >> i & 1 && run->input[i])
            ignis__map_strides(&run->shape, run->input[i], stride[i]);
    ignis__map_strides(&run->shape, &run->shape, stride[count + 2]);
    if (run->reduced) {
        ignis__map_strides(&run->shape, run->to_shape, stride[count + 3]);
        ignis__spread_find(&run->shape, run->to_shape, &s);
    }
    rank = ignis__map_collapse(&run->shape, count + 3 + (run->reduced != 0), stride, dim);
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
    ignis__map_spec_begin(run, &spec);
    spec.parts = false;
    if (run->reduced)
        spec.mode = s.inner == 1 && s.n > 1 ? IGNIS__MAP_ROWS : IGNIS__MAP_COLUMNS;
    if (spec.mode == IGNIS__MAP_COLUMNS && s.n == 1) { /* nothing is folded: all are columns of one row */
        s.inner = s.outer * s.inner;
        s.outer = 1;
    }
    for (i = 0; i < run->outs; i++)
        if (!(run->reduced >> i & 1))
            widest = ignis__dtypes[run->out[i]].size > widest ? ignis__dtypes[run->out[i]].size : widest;
    for (i = 0; i <= count + 1; i++) {
        bool one = true, same = true;
        int size = ignis__dtypes[run->dtype[i]].size;
        if (spec.kind[i] == IGNIS__MAP_UNUSED || spec.kind[i] == IGNIS__MAP_VALUE)
            continue;
        for (d = 0; d < rank; d++) {
            one = one && stride[i][d] == 0;
            same = same && stride[i][d] == stride[count + 2][d];
        }
        spec.kind[i] = same ? IGNIS__MAP_LINEAR : one ? IGNIS__MAP_ONE : stride[i][rank - 1] ? IGNIS__MAP_ROW : IGNIS__MAP_COLUMN;
        linear += same;
        w.spreads = w.spreads || spec.kind[i] >= IGNIS__MAP_ROW;
        if (!one && stride[i][rank - 1])
            widest = size > widest ? size : widest;
    }
    one_row = spec.mode == IGNIS__MAP_ROWS && s.outer == 1 && !w.spreads;
    spec.pack = (uint16_t)ignis__map_pack(run, &spec, widest, spec.mode && !one_row ? dim[rank - 1] : 0);
    spec.rank = (uint16_t)(w.spreads ? rank : 1);
    spec.whole = !w.spreads || dim[rank - 1] % spec.pack == 0;
    spec.packs_per_thread = linear == 1 || (spec.mode && !spec.needed) ? 2 : 1;
    memset(words, 0, sizeof words);
    memset(shared, 0, sizeof shared);
    if (spec.mode == IGNIS__MAP_ROWS) {
        int64_t packs = s.n / spec.pack;
        spec.team = s.outer > 1 && packs <= (s.outer < 64 * (int64_t)work->device->info.multiprocessors ? 128 : 512) ? 32 : 128;
    } else if (spec.mode == IGNIS__MAP_COLUMNS) {
        for (spec.team = 1; spec.team < s.inner / spec.pack && spec.team < 32;)
            spec.team = (uint16_t)(2 * spec.team);
    }
    if (spec.mode) {
        (void)ignis__map_split(work, &spec, &s, shared);
        spec.parts = shared[2] > 1;
    }
    kernel = ignis__map_kernel_get(work->call, work->device, run->formula, &spec);
    if (!kernel)
        return false;
    spec = kernel->spec; /* another one may serve */
    if (spec.rank == IGNIS__MAP_ANY_RANK) {
        ignis__map_any_rank(rank, count + 2, dim, stride);
        rank = IGNIS__MAP_ANY_RANK;
        w.spreads = true;
    }
    full = numel / spec.pack;
    if (((w.spreads && !spec.whole) || spec.kept || indices ? numel : full) > INT32_MAX - 4096 || s.n > INT32_MAX - 4096)
        return ignis__refuse(IGNIS_DIAG_SHAPE_OVERFLOW, work->call, "%s is larger than one launch can cover",
                             ignis__shape_write(&run->shape).text);
    blocks = ignis__ceil_div(full > numel % spec.pack ? full : numel % spec.pack, IGNIS__MAP_THREADS * spec.packs_per_thread);
    if (spec.mode) {
        blocks = ignis__map_split(work, &spec, &s, shared);
        parts = (int64_t)shared[2];
        block[0] = spec.mode == IGNIS__MAP_COLUMNS ? 256 : IGNIS__MAP_THREADS;
    }
    if (blocks > INT32_MAX)
        return ignis__refuse(IGNIS_DIAG_SHAPE_OVERFLOW, work->call, "%s is larger than one launch can cover",
                             ignis__shape_write(&run->shape).text);
    if (spec.parts) {
        memory = ignis__memory_take(work->call, work->device, work->stream, parts * (int64_t)shared[4] * 16 * run->outs);
        if (!memory)
            return false;
        shared[5] = memory->address;
    }
    memcpy(&shared[6], &run->factor, sizeof shared[6]);
    shared[7] = run->kept_to;
    w.formula = run->formula;
    w.spec = &spec;
    ignis__map_words(&w);
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
        ignis__map_magic(ignis__shape_product(&run->shape, d + 1, run->shape.ndim), run->shape.dim[d], &words[w.indices + 5 * i]);
    }
    if (spec.needed && ignis__map_kept_place(&spec)) {
        ignis__spread_find(&run->shape, run->input[count + 1], &s);
        ignis__map_magic(s.inner, s.n, &words[w.indices + 5 * indices]);
    }
    for (i = 0; i < run->outs; i++)
        words[i] = run->to[i];
    words[w.packs] = (uint64_t)full;
    words[w.packs + 1] = (uint64_t)(numel % spec.pack);
    for (d = 1; d < spec.rank; d++) {
        int64_t divisor = dim[d] / (spec.whole && d == rank - 1 ? spec.pack : 1);
        words[w.dims + 3 * d - 3] = (uint64_t)divisor;
        ignis__map_divisor(divisor, &words[w.dims + 3 * d - 2]);
    }
    for (i = 0; i <= count + 1; i++) {
        if (spec.kind[i] == IGNIS__MAP_VALUE)
            memcpy(&words[w.input[i]], &run->value[i], sizeof words[0]);
        else if (spec.kind[i] != IGNIS__MAP_UNUSED)
            words[w.input[i]] = run->address[i];
        for (d = 0; d < spec.rank && spec.kind[i] >= IGNIS__MAP_ROW; d++)
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
        ignis__memory_give(work->call, work->device, memory);
    return ok;
}

/*  Whether others stand between dimensions that are reduced; may: whether that could be so where those of 1 are more. */
static bool ignis__map_reduces_apart(const ignis__map_run *run, bool may)
{
    int d, lacking = run->shape.ndim - run->to_shape->ndim, part = 0; /* 0: before what is reduced, 1: there, 2: behind it */
    for (d = 0; d < run->shape.ndim; d++) {
        int64_t dim = run->shape.dim[d], to = d < lacking ? 1 : run->to_shape->dim[d - lacking];
        bool reduced = may ? to == 1 : to != dim, stays = to == dim && (may || dim != 1);
        if (part == 2 && reduced)
            return true;
        part = part == 1 && stays ? 2 : part == 0 && reduced ? 1 : part;
    }
    return false;
}

/*  The types of the two steps: what the first one gives, and the second one reads. False: out of memory, reported. */
static bool ignis__map_reduce_steps(const char *call, ignis__map_run *run, ignis__map_run *last)
{
    int d;
    *last = *run;
    memset(last->input, 0, sizeof last->input);
    last->input[0] = &last->shape;
    last->dtype[0] = run->out[0] == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32;
    for (d = 0; d < run->formula->count; d++)
        if (run->input[d] && run->dtype[d] == IGNIS_F64)
            last->dtype[0] = IGNIS_F64;
    if (run->formula->term[run->formula->result[0]].type != 'w' && !ignis__map_reduces_wide((int)run->reduction))
        last->dtype[0] = IGNIS_I64;
    last->used = 1;
    last->formula = ignis__formula_get(call, "x", "x", 1, last->dtype[0] == IGNIS_I64);
    run->out[0] = last->dtype[0];
    run->reduction = run->reduction == IGNIS_REDUCE_MEAN ? IGNIS_REDUCE_SUM : run->reduction;
    run->kept = 0;
    return last->formula != NULL;
}

/*  The same for any dimensions that are reduced: in steps, the last ones first, the others of what that gives. */
static bool ignis__map_reduce(const ignis__work *work, ignis__map_run *run)
{
    ignis_shape shape = run->shape;
    const ignis_shape *to_shape = run->to_shape;
    ignis__map_run first, last;
    ignis__block *memory;
    int d, lacking = shape.ndim - to_shape->ndim;
    bool found = false, ok;
    bool whole = ignis__map_reductions[run->reduction].place || (run->kept && !ignis__map_reduces_wide(run->kept)); /* in one step alone */
    if (ignis__requests.path[0] && !whole && ignis__map_reduces_apart(run, true)) {
        first = *run;
        ignis__map_record_run(work->call, run);
        if (!ignis__map_reduce_steps(work->call, &first, &last))
            return false;
        ignis__map_record_run(work->call, &first);
        ignis__map_record_run(work->call, &last);
    }
    if (!ignis__map_reduces_apart(run, false))
        return ignis__map_launch(work, run);
    if (whole)
        return ignis__refuse(IGNIS_DIAG_DIM_RANGE, work->call, "%s%s needs all dimensions, or such that are neighbours",
                             run->kept ? "the gradient of " : "", ignis__map_reductions[run->reduction].name);
    for (d = shape.ndim - 1; d >= 0; d--) {
        bool is = shape.dim[d] != (d < lacking ? 1 : to_shape->dim[d - lacking]);
        if (found && !is && shape.dim[d] > 1)
            break;
        found = found || is;
        if (is)
            shape.dim[d] = 1;
    }
    if (!ignis__map_reduce_steps(work->call, run, &last))
        return false;
    last.shape = shape;
    memory = ignis__memory_take(work->call, work->device, work->stream, ignis__shape_product(&shape, 0, shape.ndim) * 8);
    if (!memory)
        return false;
    last.address[0] = run->to[0] = memory->address;
    run->to_shape = &shape;
    ok = ignis__map_launch(work, run) && ignis__map_reduce(work, &last);
    ignis__memory_give(work->call, work->device, memory);
    return ok;
}

static double ignis__double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double ignis__nan(void) { return ignis__double_of(0x7FF8000000000000u); }

/*  What a reduction of no elements gives; false, and reported, where that is nothing. */
static bool ignis__map_reduce_none(const char *call, ignis_reducer reducer, double *value)
{
    if (reducer >= IGNIS_REDUCE_MAX && reducer != IGNIS_REDUCE_ANY && reducer != IGNIS_REDUCE_ALL && !ignis__map_reduces_wide((int)reducer))
        return ignis__refuse(IGNIS_DIAG_SHAPE_DIFFERS, call, "there is no %s of no elements", ignis__map_reductions[reducer].name);
    *value = reducer == IGNIS_REDUCE_MEAN        ? ignis__nan()
             : reducer == IGNIS_REDUCE_LOGSUMEXP ? ignis__double_of(0xFFF0000000000000u) /* minus infinity */
                                                 : reducer == IGNIS_REDUCE_PROD || reducer == IGNIS_REDUCE_ALL;
    return true;
}

static bool ignis__map_reducer_valid(const char *call, ignis_reducer reducer)
{
    if (reducer >= IGNIS_REDUCE_SUM && reducer < IGNIS_REDUCE_COUNT)
        return true;
    return ignis__refuse(IGNIS_DIAG_BAD_ENUM, call, "there is no reducer %d; IGNIS_REDUCE_SUM to _NORM are 1 to %d", (int)reducer,
                         (int)IGNIS_REDUCE_COUNT - 1);
}

/*  The shape that arrays of several spread over, by NumPy's rules. */
static bool ignis__map_shape(const char *call, const ignis__formula *formula, ignis__map_run *run)
{
    ignis__map_name names[IGNIS_MAX_INPUTS];
    int i, d, k, count = formula->count;
    memset(&run->shape, 0, sizeof run->shape);
    for (i = 0; i < count; i++)
        if (run->input[i] && run->input[i]->ndim > run->shape.ndim)
            run->shape.ndim = run->input[i]->ndim;
    for (d = 0; d < run->shape.ndim; d++) {
        run->shape.dim[d] = 1;
        for (i = 0; i < count; i++) {
            int lacking = run->input[i] ? run->shape.ndim - run->input[i]->ndim : IGNIS_MAX_DIMS;
            if (d < lacking || run->input[i]->dim[d - lacking] == 1 || run->input[i]->dim[d - lacking] == run->shape.dim[d])
                continue;
            if (run->shape.dim[d] != 1) {
                ignis__map_names(formula->names, names, &k, count);
                for (k = 0; !run->input[k]; k++)
                    ;
                return ignis__refuse(IGNIS_DIAG_SPREAD_SHAPE, call,
                                     "%.*s is %s, which does not spread over %lld in dimension %d, nor that over it; "
                                     "%.*s is %s",
                                     (int)names[i].length, names[i].text, ignis__shape_write(run->input[i]).text,
                                     (long long)run->shape.dim[d], d, (int)names[k].length, names[k].text,
                                     ignis__shape_write(run->input[k]).text);
            }
            run->shape.dim[d] = run->input[i]->dim[d - lacking];
        }
    }
    return true;
}

/*  The type of a result of a formula: u8 of a truth value, i64 of an integer; else the widest floating type of the inputs, where f16 and
    bf16 together are f32, and f32 for integers and types of 8 bits alone. */
static ignis_dtype ignis__map_dtype(const ignis__map_run *run, int result)
{
    char type = run->formula->term[run->formula->result[result]].type;
    ignis_dtype widest = IGNIS_DTYPE_DEFAULT;
    int i;
    for (i = 0; i < run->formula->count && type == 'w'; i++) {
        ignis_dtype dtype = run->input[i] ? run->dtype[i] : IGNIS_DTYPE_DEFAULT;
        if (dtype < IGNIS_F16 || dtype > IGNIS_F64 || dtype == widest)
            continue;
        widest = widest == IGNIS_F16 && dtype == IGNIS_BF16   ? IGNIS_F32
                 : widest == IGNIS_BF16 && dtype == IGNIS_F16 ? IGNIS_F32
                 : dtype > widest                             ? dtype
                                                              : widest;
    }
    return type == 'b' ? IGNIS_U8 : type == 'i' ? IGNIS_I64 : widest ? widest : IGNIS_F32;
}

/*  Values among inputs. They travel in a handle that names one of the last values that the thread has made. */
#define IGNIS__VALUES 64

typedef struct ignis__value_list {
    double value[IGNIS__VALUES];
    uint32_t made;
} ignis__value_list;

IGNIS__LOCAL(ignis__value_list, ignis__values, IGNIS__LOCAL_VALUES)
#ifdef _WIN32
#define ignis__values (*ignis__values_get())
#endif

static uint64_t ignis__value_tag(void)
{
    return (uint64_t)(uintptr_t)&ignis__values >> 4 << 32 | (uint64_t)IGNIS__KIND_VALUE << IGNIS__SLOT_BITS;
}

static uint64_t ignis__value_make(double value)
{
    ignis__values.value[++ignis__values.made % IGNIS__VALUES] = value;
    return ignis__value_tag() | (ignis__values.made & IGNIS__SLOT_MASK);
}

/*  Whether a handle is that of a value, which must be one of the last. */
static bool ignis__value_is(uint64_t handle) { return ignis__handle_kind(handle) == IGNIS__KIND_VALUE; }

static bool ignis__value_get(const char *call, uint64_t handle, double *value)
{
    uint32_t ago = (ignis__values.made - (uint32_t)handle) & (uint32_t)IGNIS__SLOT_MASK;
    if ((handle & ~IGNIS__SLOT_MASK) != ignis__value_tag() || ago >= IGNIS__VALUES)
        return ignis__refuse(IGNIS_DIAG_FORMULA, call,
                             "a value is another thread's, or was made long before; make it in the call, by IGNIS_VALUE");
    *value = ignis__values.value[(uint32_t)handle % IGNIS__VALUES];
    return true;
}

/*  What all formulas begin with: checks, and which inputs are values. tensors: the others, `held` of them; at: their places. */
static bool ignis__map_begin(const char *call, const char *formula, const char *names, int count, const uint64_t *handles,
                             ignis__map_run *run, uint64_t *others, int *at, int *held)
{
    int i;
    *held = 0;
    memset(run, 0, sizeof *run);
    if (!ignis__enter(call) || !ignis__given(call, "formula", formula) || !ignis__given(call, "inputs.names", names))
        return false;
    if (count < 1 || count > IGNIS_MAX_INPUTS)
        return ignis__refuse(IGNIS_DIAG_COUNT_MISMATCH, call, "a formula has 1 to %d inputs, not %d", IGNIS_MAX_INPUTS, count);
    for (i = 0; i < count; i++) {
        if (!ignis__value_is(handles[i])) {
            at[*held] = i;
            others[(*held)++] = handles[i];
        } else if (!ignis__value_get(call, handles[i], &run->value[i]))
            return false;
    }
    if (*held == 0)
        ignis__fail(IGNIS_DIAG_FORMULA, call, "all inputs are values; one has to say which shape the result has");
    return *held > 0;
}

/*  Reads the formula, once run->input and dtype are set, which has so many results, and finds their shape. */
static bool ignis__map_prepare(const ignis__work *work, const char *formula, const char *names, int count, int results, ignis__map_run *run)
{
    const char *call = work->call;
    uint32_t integers = 0;
    int i;
    for (i = 0; i < count; i++)
        if (run->input[i])
            integers |= (uint32_t)ignis__dtype_is_int(run->dtype[i]) << i;
    run->formula = ignis__formula_get(call, formula, names, count, integers);
    if (!run->formula || !ignis__map_shape(call, run->formula, run))
        return false;
    if (run->formula->result_count != results)
        return ignis__refuse(IGNIS_DIAG_FORMULA, call, "'%.200s' has %d results, not %d", formula, run->formula->result_count, results);
    run->used = ((uint32_t)1 << count) - 1;
    run->factor = 1;
    run->outs = results;
    return !run->formula->randoms ||
           ignis__random_take(work, IGNIS_F32, (ignis__shape_product(&run->shape, 0, run->shape.ndim) + 3) / 4 * 4 * run->formula->randoms,
                              &run->random);
}

/* --- formulas of arrays ------------------------------------------------------------------------------------------------------ */

IGNIS_API ignis_array ignis_array_value(double value)
{
    ignis_array handle;
    handle.id = ignis__value_make(value);
    return handle;
}

/*  Whether dst may be written while src is read: apart, or the same elements. */
static bool ignis__map_apart(const char *call, const ignis__array *dst, const ignis__array *src)
{
    if (!ignis__array_apart(call, dst, 0, ignis__array_bytes(dst), src))
        return false;
    if (dst->storage != src->storage || dst->offset != src->offset || dst->numel == src->numel || !dst->numel || !src->numel)
        return true;
    return ignis__refuse(IGNIS_DIAG_OVERLAP, call, "%s is spread over the result, which is written to the same memory",
                         ignis__array_label(src).text);
}

/*  Holds results, then inputs that are arrays, enters their device, and makes a formula ready; on failure nothing is held. */
static bool ignis__map_arrays(const char *call, int results, const ignis_array *dsts, const char *formula, const ignis_array_inputs *inputs,
                              ignis__work *work, ignis__map_run *run, ignis__array **arrays, int *held)
{
    uint64_t ids[IGNIS_MAX_INPUTS], others[IGNIS_MAX_INPUTS];
    ignis_array handles[2 * IGNIS_MAX_INPUTS];
    int at[IGNIS_MAX_INPUTS], i, count;
    bool ok;
    for (i = 0; i < inputs->count && i < IGNIS_MAX_INPUTS; i++)
        ids[i] = inputs->array[i].id;
    if (!ignis__map_begin(call, formula, inputs->names, inputs->count, ids, run, others, at, &count))
        return false;
    for (i = 0; i < results; i++)
        handles[i] = dsts[i];
    for (i = 0; i < count; i++)
        handles[results + i].id = others[i];
    if (!ignis__array_hold_all(call, results + count, handles, arrays))
        return false;
    *held = results + count;
    ok = ignis__work_begin(call, arrays[0]->storage->device, work);
    if (!ok) {
        ignis__array_drop_all(call, *held, arrays);
        return false;
    }
    for (i = 0; i < count; i++) {
        run->input[at[i]] = &arrays[results + i]->shape;
        run->dtype[at[i]] = arrays[results + i]->dtype;
    }
    ok = ignis__map_prepare(work, formula, inputs->names, inputs->count, results, run);
    for (i = 1; i < results && ok; i++)
        ok = ignis__same_device(call, arrays[0], arrays[i], "a result");
    for (i = 0; i < count && ok; i++)
        ok = ignis__same_device(call, arrays[0], arrays[results + i], "an input") &&
             ignis__work_read(work, arrays[results + i], &run->address[at[i]]);
    if (!ok) {
        ignis__work_end(work);
        ignis__array_drop_all(call, *held, arrays);
    }
    return ok;
}

static ignis_status ignis__map_into(const char *call, int count, const ignis_array *dsts, const char *formula,
                                    const ignis_array_inputs *inputs)
{
    ignis__array *arrays[2 * IGNIS_MAX_INPUTS];
    ignis__map_run run;
    ignis__work work;
    int64_t numel;
    int held, i, k;
    bool ok;
    if (!ignis__map_arrays(call, count, dsts, formula, inputs, &work, &run, arrays, &held))
        return ignis__failed();
    numel = ignis__shape_product(&run.shape, 0, run.shape.ndim);
    for (k = 0, ok = true; k < count && ok; k++) {
        run.out[k] = arrays[k]->dtype;
        if (numel != arrays[k]->numel)
            ok = ignis__refuse(IGNIS_DIAG_SHAPE_DIFFERS, call, "%s is %s, the result %s",
                               count > 1 ? ignis__array_label(arrays[k]).text : "dst", ignis__shape_write(&arrays[k]->shape).text,
                               ignis__shape_write(&run.shape).text);
        ok = ok && ignis__work_write(&work, arrays[k], &run.to[k]);
        for (i = count; i < held && ok; i++)
            ok = ignis__map_apart(call, arrays[k], arrays[i]);
        for (i = 0; i < k && ok; i++) {
            ok = ignis__array_apart(call, arrays[k], 0, ignis__array_bytes(arrays[k]), arrays[i]);
            if (ok && numel > 0 && arrays[k]->storage == arrays[i]->storage && arrays[k]->offset == arrays[i]->offset)
                ok = ignis__refuse(IGNIS_DIAG_OVERLAP, call, "results %d and %d are in the same memory", i, k);
        }
    }
    ok = ok && ignis__map_launch(&work, &run);
    ignis__work_end(&work);
    ignis__array_drop_all(call, held, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_array_map(ignis_array dst, const char *formula, ignis_array_inputs inputs)
{
    return ignis__map_into("ignis_array_map", 1, &dst, formula, &inputs);
}

/*  Whether there are so many results to fill. */
static bool ignis__map_results(const char *call, int count, const void *results)
{
    if (!ignis__enter(call))
        return false;
    if (count < 1 || count > IGNIS_MAX_INPUTS)
        return ignis__refuse(IGNIS_DIAG_COUNT_MISMATCH, call, "count is %d; 1 to %d results can be had", count, IGNIS_MAX_INPUTS);
    return ignis__given(call, "results", results);
}

IGNIS_API ignis_status ignis_array_map_many(int count, const ignis_array *results, const char *formula, ignis_array_inputs inputs)
{
    static const char call[] = "ignis_array_map_many";
    return ignis__map_results(call, count, results) ? ignis__map_into(call, count, results, formula, &inputs) : ignis__failed();
}

IGNIS_API ignis_status ignis_array_reduce(ignis_array dst, ignis_reducer reducer, const char *formula, ignis_array_inputs inputs)
{
    static const char call[] = "ignis_array_reduce";
    ignis__array *arrays[IGNIS_MAX_INPUTS + 1];
    int64_t numel;
    double none = 0;
    ignis__map_run run;
    ignis__work work;
    int held, i, lacking;
    bool ok;
    if (ignis__enter(call) && !ignis__map_reducer_valid(call, reducer))
        return ignis__failed();
    if (!ignis__map_arrays(call, 1, &dst, formula, &inputs, &work, &run, arrays, &held))
        return ignis__failed();
    lacking = run.shape.ndim - arrays[0]->shape.ndim;
    ok = lacking >= 0;
    numel = ignis__shape_product(&run.shape, 0, run.shape.ndim);
    for (i = 0; i < run.shape.ndim; i++)
        ok = ok && (i < lacking || arrays[0]->shape.dim[i - lacking] == 1 || arrays[0]->shape.dim[i - lacking] == run.shape.dim[i]);
    if (!ok)
        ignis__fail(IGNIS_DIAG_SPREAD_SHAPE, call, "dst is %s, the formula %s; dst has 1 where that is reduced",
                    ignis__shape_write(&arrays[0]->shape).text, ignis__shape_write(&run.shape).text);
    run.reduced = 1;
    run.reduction = reducer;
    run.to_shape = &arrays[0]->shape;
    run.out[0] = arrays[0]->dtype;
    run.factor = reducer == IGNIS_REDUCE_MEAN && numel ? (double)(numel / arrays[0]->numel) : 1;
    for (i = 1; i < held && ok; i++) { /* not even the same memory: others are read after it is written */
        ok = ignis__array_apart(call, arrays[0], 0, ignis__array_bytes(arrays[0]), arrays[i]);
        if (ok && arrays[0]->storage == arrays[i]->storage && arrays[0]->offset == arrays[i]->offset && arrays[0]->numel != 0)
            ok = ignis__refuse(IGNIS_DIAG_OVERLAP, call, "dst is %s, which is read", ignis__array_label(arrays[i]).text);
    }
    if (ok && numel == 0)
        ok = arrays[0]->numel == 0 || (ignis__map_reduce_none(call, reducer, &none) && ignis__work_fill(&work, arrays[0], none));
    else
        ok = ok && ignis__work_write(&work, arrays[0], &run.to[0]) && ignis__map_reduce(&work, &run);
    ignis__work_end(&work);
    ignis__array_drop_all(call, held, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

/* ===============================================================================================================
   >>tensor - tensors, scopes.
   =============================================================================================================== */

/*  Leaves whose gradients somebody wants as soon as a backward knows them all, as to add them up over several GPUs while it goes on. What a
    backward knows of a group belongs to the backward (ignis__met_group). */
typedef struct ignis__grad_group {
    ignis__slot *owner; /* each backward that has met the group holds it, until end_fn gives that hold back */
    bool (*meet_fn)(struct ignis__grad_group *group, const char *call, const void *walk, bool *joins); /* false, reported: not now */
    bool (*ready_fn)(struct ignis__grad_group *group, const char *call);                               /* the gradients are there */
    bool (*end_fn)(struct ignis__grad_group *group, const char *call, const void *walk, bool ok);      /* that backward is over */
} ignis__grad_group;

/*  A tensor's array belongs to it by a reference (ignis__array_claim), so that nobody frees it under the tensor. What the tape needs
    later it claims as well: releasing a tensor's handle gives up the tensor's claim only. */
typedef struct ignis__tensor {
    ignis__slot slot;         /* first; its lock guards what may change: all but shape, dtype, device and made_in */
    ignis__array *data;       /* null once the handle is released */
    ignis__array *grad;       /* changes only inside ignis__leaves_enter */
    bool entered;             /* a thread is inside; guarded by ignis__leaves.lock */
    struct ignis__node *node; /* the entry of the tape that made it */
    bool requires_grad, leaf;
    bool walked;       /* its entry was used up by a backward, or cleared */
    uint64_t read;     /* 1: an entry has it as an input, so it can be no result any more: entries would hold each other for ever */
    ignis_shape shape; /* of data, also when that is gone */
    ignis_dtype dtype;
    ignis__device *device;
    ignis__grad_group *group;   /* of a leaf; null: none */
    uint64_t made_in;           /* the backward whose backward function made it, by serial; 0: none */
    struct ignis__tensor *next; /* in a list of dead tensors */
} ignis__tensor;

static ignis__pool ignis__tensors = IGNIS__POOL(ignis__tensor, IGNIS__KIND_TENSOR, "tensor", IGNIS_DIAG_TENSOR_FREED);

static uint64_t ignis__scope_serials;

/* --- entries of the tape, as far as tensors hold them ---------------------------------------------------------------- */

/*  One operation: who its inputs are, what its backward function needs. It lives as long as its output's tensor, or until a backward has
    used it. One block of memory holds it with its lists.
     Only the thread of a tape adds entries to it, walks and clears it; any thread may release the tensor that keeps an entry. So the
    thread of the tape may use an entry as long as it holds the output, and others may under the output's lock. */
typedef struct ignis__node {
    struct ignis__tape *tape;
    struct ignis__node *before, *after; /* in the order of recording */
    uint64_t serial;                    /* that order as a number, from 1 */
    ignis__tensor *output;
    const char *name;
    ignis_status (*backward_fn)(const ignis_backward_args *args);
    void *user_data;
    int input_count, saved_count;
    bool drawn;             /* during ignis_tape_dot */
    bool counted;           /* during a backward: its inputs are among the uses of groups */
    bool running;           /* its backward function runs */
    bool nests;             /* backward_fn runs a backward of its own */
    bool knows_one;         /* backward_fn takes no grad_output for one that is 1, as a backward's first */
    ignis__tensor **inputs; /* each held */
    ignis__array **saved;   /* each claimed */
    uint64_t *versions;     /* of what is saved, when it was recorded; IGNIS__UNWRITTEN for what may be written later */
    void *params;
    bool *needed;       /* for each input, whether it required a gradient when this was recorded */
    ignis__array *grad; /* during a backward: of the output, as far as it is known; claimed. The output is held meanwhile */
} ignis__node;

typedef struct ignis__tape {
    ignis__mutex lock; /* for the links: a tensor may be released by another thread than the one that recorded it */
    ignis__node *first, *last;
    int64_t length;
    uint64_t serials;         /* given out */
    uint64_t number;          /* from 1, in the process */
    bool ended;               /* its thread has; it goes with its last entry */
    struct ignis__tape *next; /* in the list of all */
} ignis__tape;

/*  All tapes: of threads that have not ended, and those of which tensors still keep entries. This lock is taken before a tape's. */
static struct {
    ignis__mutex lock;
    uint64_t numbers; /* given out so far */
    ignis__tape *first;
} ignis__tapes = {IGNIS__MUTEX_INIT, 0, NULL};

/*  Frees a tape that is in the list; the list is locked. */
static void ignis__tape_free(ignis__tape *tape)
{
    ignis__tape **link = &ignis__tapes.first;
    while (*link != tape)
        link = &(*link)->next;
    *link = tape->next;
    ignis__free(tape);
}

/*  The thread ends. Its tape goes, which ignis_shutdown may have freed already; for what else runs at the thread's end all begins anew. */
static void ignis__tensors_end(void)
{
    ignis__tape *tape;
    bool empty;
    ignis__mutex_lock(&ignis__tapes.lock);
    for (tape = ignis__tapes.first; tape && tape->number != ignis__this_thread.tape; tape = tape->next)
        ;
    if (tape) {
        ignis__mutex_lock(&tape->lock);
        tape->ended = true;
        empty = tape->length == 0;
        ignis__mutex_unlock(&tape->lock);
        if (empty)
            ignis__tape_free(tape);
    }
    ignis__mutex_unlock(&ignis__tapes.lock);
    ignis__this_thread.tape = 0;
    memset(&ignis__this_tensor_thread, 0, sizeof ignis__this_tensor_thread);
}

static void ignis__tensors_at_exit(void)
{
    ignis__this_thread.tensors_end = ignis__tensors_end;
    ignis__thread_watch(&ignis__this_thread);
}

static void ignis__node_unlink(ignis__node *node)
{
    ignis__tape *tape = node->tape;
    bool last;
    ignis__mutex_lock(&tape->lock);
    if (node->before)
        node->before->after = node->after;
    else
        tape->first = node->after;
    if (node->after)
        node->after->before = node->before;
    else
        tape->last = node->before;
    last = --tape->length == 0 && tape->ended;
    ignis__mutex_unlock(&tape->lock);
    if (last) {
        ignis__mutex_lock(&ignis__tapes.lock);
        ignis__tape_free(tape);
        ignis__mutex_unlock(&ignis__tapes.lock);
    }
}

/*  Takes an entry apart that is on no tape. Inputs of which it had the last hold go onto the list of dead tensors. */
static void ignis__node_destroy(const char *call, ignis__node *node, ignis__tensor **dead)
{
    int i;
    for (i = 0; i < node->saved_count; i++)
        ignis__array_unclaim(call, node->saved[i]);
    if (node->grad)
        ignis__array_unclaim(call, node->grad);
    for (i = 0; i < node->input_count; i++) {
        if (ignis__pool_drop(node->inputs[i])) {
            node->inputs[i]->next = *dead;
            *dead = node->inputs[i];
        }
    }
    ignis__free(node);
}

/*  Takes dead tensors apart, and all that only they kept alive, in a loop: chains of operations are long, and the stack is not. */
static void ignis__tensors_bury(const char *call, ignis__tensor *dead)
{
    while (dead) {
        ignis__tensor *tensor = dead;
        dead = tensor->next;
        if (tensor->data)
            ignis__array_unclaim(call, tensor->data);
        if (tensor->grad)
            ignis__array_unclaim(call, tensor->grad);
        if (tensor->node) {
            ignis__node_unlink(tensor->node);
            ignis__node_destroy(call, tensor->node, &dead);
        }
        ignis__pool_give(&ignis__tensors, tensor);
    }
}

IGNIS__ONE_COPY static void ignis__tensor_drop(const char *call, ignis__tensor *tensor)
{
    if (!ignis__pool_drop(tensor))
        return;
    tensor->next = NULL;
    ignis__tensors_bury(call, tensor);
}

/*  Ends the entry that made a tensor: its backward is used up. Only the thread of the tape does this, and it holds the output. */
static void ignis__node_consume(const char *call, ignis__node *node)
{
    ignis__tensor *dead = NULL;
    ignis__mutex_lock(&node->output->slot.lock);
    node->output->node = NULL;
    node->output->walked = true;
    ignis__mutex_unlock(&node->output->slot.lock);
    ignis__node_unlink(node);
    ignis__node_destroy(call, node, &dead);
    ignis__tensors_bury(call, dead);
}

/* --- a thread's scopes ----------------------------------------------------------------------------------------------- */

/*  Where a thread's scopes begin in its list of tensors. */
typedef struct ignis__scope_mark {
    uint64_t serial;
    int first;
} ignis__scope_mark;

static uint64_t *ignis__scope_tensors(void) { return (uint64_t *)ignis__this_thread.attached[0]; }
static ignis__scope_mark *ignis__scope_marks(void) { return (ignis__scope_mark *)ignis__this_thread.attached[1]; }

/*  Room for one more element at the end of one of the thread's arrays. */
static bool ignis__scope_grow(const char *call, int which, int *capacity, int count, size_t size)
{
    int wanted = *capacity ? *capacity * 2 : 64;
    void *grown;
    if (count < *capacity)
        return true;
    grown = realloc(ignis__this_thread.attached[which], (size_t)wanted * size);
    if (!grown) {
        ignis__fail_host_memory(call, (size_t)wanted * size);
        return false;
    }
    ignis__this_thread.attached[which] = grown;
    ignis__tensors_at_exit();
    *capacity = wanted;
    return true;
}

/* --- tensors --------------------------------------------------------------------------------------------------------- */

IGNIS__ONE_COPY static ignis_tensor ignis__no_tensor(void)
{
    ignis_tensor none = IGNIS__ZERO;
    return none;
}

static bool ignis__dtype_is_float(ignis_dtype dtype) { return dtype >= IGNIS_F16 && dtype <= IGNIS_F64; }

IGNIS__ONE_COPY static ignis__tensor *ignis__tensor_hold(const char *call, ignis_tensor handle)
{
    return (ignis__tensor *)ignis__handle_hold(call, &ignis__tensors, handle.id);
}

/*  How a held tensor stands to the tape at this moment. The entry may be used as ignis__node says. */
typedef struct ignis__standing {
    ignis__node *node;
    ignis__tape *tape; /* of the entry */
    bool requires_grad, leaf, walked;
} ignis__standing;

/*  The tensor is locked. */
static ignis__standing ignis__standing_of(const ignis__tensor *tensor)
{
    ignis__standing standing;
    standing.node = tensor->node;
    standing.tape = tensor->node ? tensor->node->tape : NULL;
    standing.requires_grad = tensor->requires_grad;
    standing.leaf = tensor->leaf;
    standing.walked = tensor->walked;
    return standing;
}

IGNIS__ONE_COPY static ignis__standing ignis__tensor_standing(ignis__tensor *tensor)
{
    ignis__standing standing;
    ignis__mutex_lock(&tensor->slot.lock);
    standing = ignis__standing_of(tensor);
    ignis__mutex_unlock(&tensor->slot.lock);
    return standing;
}

static bool ignis__tensor_requires_grad(ignis__tensor *tensor) { return ignis__tensor_standing(tensor).requires_grad; }

/*  The array of a held tensor, held itself, and how the tensor stands; null, and reported, when another thread has released the tensor. */
IGNIS__ONE_COPY static ignis__array *ignis__tensor_enter(const char *call, ignis__tensor *tensor, ignis__standing *standing)
{
    ignis__array *array = NULL;
    ignis__mutex_lock(&tensor->slot.lock);
    *standing = ignis__standing_of(tensor);
    if (tensor->data)
        array = (ignis__array *)ignis__pool_hold(&ignis__arrays, tensor->data->slot.handle);
    ignis__mutex_unlock(&tensor->slot.lock);
    if (!array)
        ignis__fail(IGNIS_DIAG_TENSOR_FREED, call, "a tensor was released by another thread");
    return array;
}

static ignis__array *ignis__tensor_array(const char *call, ignis__tensor *tensor)
{
    ignis__standing standing;
    return ignis__tensor_enter(call, tensor, &standing);
}

/*  A tensor over an array, one claim of which is its own from then on. Only its maker sees it until ignis__tensor_publish. Null: no memory. */
static ignis__tensor *ignis__tensor_make(const char *call, ignis__array *array, bool requires_grad)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__tensor *tensor;
    if (thread->scope_count && !ignis__scope_grow(call, 0, &thread->tensor_capacity, thread->tensor_count, sizeof(uint64_t)))
        return NULL;
    tensor = (ignis__tensor *)ignis__pool_take_zeroed(call, &ignis__tensors);
    if (!tensor)
        return NULL;
    tensor->data = array;
    tensor->made_in = thread->walk_serial;
    tensor->requires_grad = requires_grad;
    tensor->leaf = true;
    tensor->shape = array->shape;
    tensor->dtype = array->dtype;
    tensor->device = array->storage->device;
    return tensor;
}

/*  Gives a tensor that was just made its handle, in the current scope. */
static ignis_tensor ignis__tensor_publish(ignis__tensor *tensor)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis_tensor handle;
    handle.id = ignis__pool_publish(&ignis__tensors, tensor);
    if (thread->scope_count)
        ignis__scope_tensors()[thread->tensor_count++] = handle.id;
    return handle;
}

/*  The tensor of a new array that nobody else has, which ends with it. A handle of 0 for the array passes through. */
static ignis_tensor ignis__tensor_adopt(const char *call, ignis_array made, bool requires_grad)
{
    ignis__array *array = ignis__array_adopt(call, made);
    ignis__tensor *tensor = NULL;
    if (!array)
        return ignis__no_tensor();
    if (requires_grad && !ignis__dtype_is_float(array->dtype))
        ignis__fail(IGNIS_DIAG_GRAD_OF_INTEGERS, call, "a tensor of %s cannot require a gradient", ignis__dtypes[array->dtype].name);
    else
        tensor = ignis__tensor_make(call, array, requires_grad);
    if (tensor)
        return ignis__tensor_publish(tensor);
    ignis__array_unclaim(call, array);
    return ignis__no_tensor();
}

IGNIS__COLD static ignis_array ignis__tensor_array_create(const char *call, ignis_shape shape, const ignis_tensor_desc *desc)
{
    ignis_array_desc array = IGNIS__ZERO;
    array.shape = shape;
    if (desc) {
        array.dtype = desc->dtype;
        array.device = desc->device;
        array.tag = desc->tag;
    }
    return ignis__array_create(call, &array);
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_tensor_from_host(const void *data, ignis_shape shape, const ignis_tensor_desc *desc)
{
    static const char call[] = "ignis_tensor_from_host";
    ignis_tensor none = IGNIS__ZERO;
    ignis_array made;
    ignis__array *array;
    ignis_dtype host;
    int64_t count;
    if (!ignis__enter(call))
        return none;
    made = ignis__tensor_array_create(call, shape, desc);
    if (!made.id)
        return none;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
    count = desc && desc->host_count ? desc->host_count : array->numel;
    host = desc && desc->host_dtype ? desc->host_dtype : array->dtype == IGNIS_F16 || array->dtype == IGNIS_BF16 ? IGNIS_F32 : array->dtype;
    if (!ignis__dtype_valid(call, host) || !ignis__transfer_check(call, array, data, "data", count, array->numel, "elements") ||
        ignis__array_from_host(call, array, data, host) != IGNIS_OK)
        ignis__array_discard(call, &made);
    ignis__array_drop(call, array);
    return ignis__tensor_adopt(call, made, desc && desc->requires_grad);
}

/*  A tensor over the memory of an array, through an array of its own. */
static ignis_tensor ignis__tensor_over(const char *call, ignis__array *array, bool requires_grad)
{
    return ignis__tensor_adopt(call, ignis__array_view(call, array, &array->shape, array->numel, 0), requires_grad);
}

IGNIS_API ignis_tensor ignis_tensor_from_array(ignis_array handle, bool requires_grad)
{
    static const char call[] = "ignis_tensor_from_array";
    ignis_tensor tensor = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array)
        return tensor;
    tensor = ignis__tensor_over(call, array, requires_grad);
    ignis__array_drop(call, array);
    return tensor;
}

IGNIS__COLD static ignis_tensor ignis__tensor_filled(const char *call, ignis_shape shape, const ignis_tensor_desc *desc, double value)
{
    ignis_array made;
    if (!ignis__enter(call))
        return ignis__no_tensor();
    made = ignis__tensor_array_create(call, shape, desc);
    if (made.id && (value == 0 ? ignis__array_set_zero(call, made) : ignis__array_set(call, made, value)) != IGNIS_OK)
        ignis__array_discard(call, &made);
    return ignis__tensor_adopt(call, made, desc && desc->requires_grad);
}

IGNIS_API ignis_tensor ignis_tensor_zeros(ignis_shape shape, const ignis_tensor_desc *desc)
{
    return ignis__tensor_filled("ignis_tensor_zeros", shape, desc, 0);
}

IGNIS_API ignis_tensor ignis_tensor_ones(ignis_shape shape, const ignis_tensor_desc *desc)
{
    return ignis__tensor_filled("ignis_tensor_ones", shape, desc, 1);
}

IGNIS_API ignis_status ignis_seed(uint64_t seed)
{
    if (!ignis__enter("ignis_seed"))
        return IGNIS_ERROR_NOT_SETUP;
    ignis__tensor_thread_now()->seed = seed;
    ignis__tensor_thread_now()->random_used = 0;
    return IGNIS_OK;
}

/*  The array of a tensor by handle, unheld: what ignis_tensor_data returns. */
static ignis_array ignis__tensor_array_handle(const char *call, ignis_tensor handle, bool grad)
{
    ignis_array result = IGNIS__ZERO;
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    if (!tensor)
        return result;
    ignis__mutex_lock(&tensor->slot.lock);
    if (!grad && tensor->data)
        result.id = tensor->data->slot.handle;
    if (grad && tensor->grad)
        result.id = tensor->grad->slot.handle;
    ignis__mutex_unlock(&tensor->slot.lock);
    ignis__tensor_drop(call, tensor);
    return result;
}

IGNIS_API ignis_array ignis_tensor_data(ignis_tensor tensor) { return ignis__tensor_array_handle("ignis_tensor_data", tensor, false); }

IGNIS_API ignis_array ignis_tensor_grad(ignis_tensor tensor) { return ignis__tensor_array_handle("ignis_tensor_grad", tensor, true); }

IGNIS_API ignis_status ignis_tensor_query(ignis_tensor handle, ignis_tensor_info *info)
{
    static const char call[] = "ignis_tensor_query";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_status status = IGNIS_OK;
    if (!tensor)
        return ignis__failed();
    if (!info) {
        status = ignis__fail_null(call, "info");
    } else {
        memset(info, 0, sizeof *info);
        ignis__mutex_lock(&tensor->slot.lock);
        info->shape = tensor->shape;
        info->dtype = tensor->dtype;
        info->device = ignis__device_ordinal(tensor->device);
        info->requires_grad = tensor->requires_grad;
        info->is_leaf = tensor->leaf;
        info->data.id = tensor->data ? tensor->data->slot.handle : 0;
        info->grad.id = tensor->grad ? tensor->grad->slot.handle : 0;
        info->operation = tensor->node ? tensor->node->name : "";
        ignis__mutex_unlock(&tensor->slot.lock);
    }
    ignis__tensor_drop(call, tensor);
    return status;
}

IGNIS__COLD static ignis_status ignis__tensor_read(const char *call, ignis__tensor *tensor, void *out, ignis_dtype dtype, int64_t count)
{
    ignis__array *array = ignis__tensor_array(call, tensor);
    ignis_status status;
    if (!array)
        return ignis__failed();
    if (dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    if (ignis__dtype_valid(call, dtype) && ignis__transfer_check(call, array, out, "out", count, array->numel, "elements"))
        status = ignis__array_to_host(call, array, out, dtype);
    else
        status = ignis__failed();
    ignis__array_drop(call, array);
    return status;
}

IGNIS__COLD IGNIS_API ignis_status ignis_tensor_to_host(ignis_tensor handle, void *out, ignis_dtype dtype, int64_t count)
{
    static const char call[] = "ignis_tensor_to_host";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_status status;
    if (!tensor)
        return ignis__failed();
    status = ignis__tensor_read(call, tensor, out, dtype, count);
    ignis__tensor_drop(call, tensor);
    return status;
}

static int64_t ignis__tensor_numel(const ignis__tensor *tensor)
{
    int64_t numel = 1;
    int i;
    for (i = 0; i < tensor->shape.ndim; i++)
        numel *= tensor->shape.dim[i];
    return numel;
}

IGNIS_API ignis_shape ignis_tensor_shape(ignis_tensor handle)
{
    static const char call[] = "ignis_tensor_shape";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_shape shape = IGNIS__ZERO;
    if (!tensor)
        return shape;
    shape = tensor->shape;
    ignis__tensor_drop(call, tensor);
    return shape;
}

IGNIS_API int64_t ignis_tensor_numel(ignis_tensor handle)
{
    static const char call[] = "ignis_tensor_numel";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    int64_t numel;
    if (!tensor)
        return -1;
    numel = ignis__tensor_numel(tensor);
    ignis__tensor_drop(call, tensor);
    return numel;
}

IGNIS__COLD IGNIS_API int ignis_tensor_to_string(ignis_tensor handle, char *out, size_t capacity)
{
    static const char call[] = "ignis_tensor_to_string";
    ignis__tensor *tensor;
    ignis__text text;
    char none[1];
    if (!ignis__enter(call) || (capacity && !ignis__given(call, "out", out)))
        return -1;
    ignis__text_begin(&text, out ? out : none, capacity);
    tensor = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, handle.id);
    if (tensor) {
        ignis__mutex_lock(&tensor->slot.lock);
        ignis__text_add(&text, "tensor %s %s on device %d", ignis__shape_write(&tensor->shape).text, ignis__dtypes[tensor->dtype].name,
                        ignis__device_ordinal(tensor->device));
        if (tensor->node)
            ignis__text_add(&text, ", result of %s", tensor->node->name);
        else
            ignis__text_add(&text, ", %s", tensor->leaf ? "leaf" : "result of an operation that was released");
        if (tensor->leaf && tensor->requires_grad)
            ignis__text_add(&text, ", requires a gradient");
        if (tensor->data && *tensor->data->tag)
            ignis__text_add(&text, ", '%s'", tensor->data->tag);
        ignis__mutex_unlock(&tensor->slot.lock);
        ignis__tensor_drop(call, tensor);
    } else {
        ignis__text_add(&text, "tensor handle 0x%llx (freed)", (unsigned long long)handle.id);
    }
    return (int)text.length;
}

/*  The one element of a tensor, as it is stored; *dtype is its type, IGNIS_DTYPE_DEFAULT on failure. */
IGNIS__COLD static int64_t ignis__tensor_item(const char *call, ignis_tensor handle, ignis_dtype *dtype)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    int64_t bits = 0;
    *dtype = IGNIS_DTYPE_DEFAULT;
    if (!tensor)
        return bits;
    if (ignis__tensor_numel(tensor) != 1)
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "a tensor of one element is needed, this one is %s",
                    ignis__shape_write(&tensor->shape).text);
    else if (ignis__tensor_read(call, tensor, &bits, ignis__dtype_is_int(tensor->dtype) ? IGNIS_I64 : IGNIS_F64, 1) == IGNIS_OK)
        *dtype = tensor->dtype;
    ignis__tensor_drop(call, tensor);
    return bits;
}

IGNIS__COLD IGNIS_API double ignis_item(ignis_tensor tensor)
{
    static const char call[] = "ignis_item";
    ignis_dtype dtype;
    int64_t bits = ignis__tensor_item(call, tensor, &dtype);
    double value;
    memcpy(&value, &bits, sizeof value);
    if (dtype == IGNIS_DTYPE_DEFAULT)
        return ignis__nan();
    if (!ignis__dtype_is_int(dtype))
        return value;
    if ((double)bits < 9223372036854775808.0 && (int64_t)(double)bits == bits)
        return (double)bits;
    ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the value is %lld, which no double is equal to; ignis_item_i64 returns it", (long long)bits);
    return ignis__nan();
}

IGNIS__COLD IGNIS_API int64_t ignis_item_i64(ignis_tensor tensor)
{
    static const char call[] = "ignis_item_i64";
    ignis_dtype dtype;
    int64_t value = ignis__tensor_item(call, tensor, &dtype);
    if (dtype == IGNIS_DTYPE_DEFAULT || ignis__dtype_is_int(dtype))
        return dtype ? value : INT64_MIN;
    ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "the tensor is %s; i32, i64 or u8 is needed", ignis__dtypes[dtype].name);
    return INT64_MIN;
}

/*  Makes a held tensor's handle stale, and gives up its data; false when that was done already. */
static bool ignis__tensor_end_handle(const char *call, ignis__tensor *tensor)
{
    ignis__array *data;
    bool live;
    ignis__mutex_lock(&tensor->slot.lock);
    live = ignis__pool_live(tensor);
    data = live ? tensor->data : NULL;
    if (live) {
        tensor->data = NULL;
        ignis__pool_kill(tensor);
    }
    ignis__mutex_unlock(&tensor->slot.lock);
    if (data)
        ignis__array_unclaim(call, data);
    if (live)
        ignis__pool_drop(tensor); /* the handle's own hold; the caller still has one */
    return live;
}

IGNIS_API ignis_status ignis_tensor_release(ignis_tensor handle)
{
    static const char call[] = "ignis_tensor_release";
    const uint64_t failures = ignis__failures();
    ignis__tensor *tensor;
    ignis_status status = IGNIS_OK;
    if (!handle.id)
        return IGNIS_OK;
    tensor = ignis__tensor_hold(call, handle);
    if (!tensor)
        return ignis__failed();
    if (!ignis__tensor_end_handle(call, tensor))
        status = ignis__fail(IGNIS_DIAG_TENSOR_FREED, call, "another thread has released the tensor");
    ignis__tensor_drop(call, tensor);
    return status == IGNIS_OK ? ignis__ended(failures, true) : status;
}

/*  Releases what a call has made; no handle: nothing. */
static void ignis__tensor_discard(const char *call, ignis_tensor handle)
{
    ignis__tensor *tensor = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, handle.id);
    if (!tensor)
        return;
    (void)ignis__tensor_end_handle(call, tensor);
    ignis__tensor_drop(call, tensor);
}

/* --- scopes ----------------------------------------------------------------------------------------------------------- */

IGNIS_API ignis_scope ignis_scope_begin(void)
{
    static const char call[] = "ignis_scope_begin";
    ignis_scope scope = IGNIS__ZERO;
    ignis__tensor_thread *thread;
    if (!ignis__enter(call))
        return scope;
    thread = ignis__tensor_thread_now();
    if (!ignis__scope_grow(call, 1, &thread->scope_capacity, thread->scope_count, sizeof(ignis__scope_mark)))
        return scope;
    scope.id = ignis__atomic_add(&ignis__scope_serials, 1);
    ignis__scope_marks()[thread->scope_count].serial = scope.id;
    ignis__scope_marks()[thread->scope_count++].first = thread->tensor_count;
    return scope;
}

/*  Ends the innermost scope; `keep` goes on to the enclosing one. */
static void ignis__scope_pop(const char *call, uint64_t keep)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    int first = ignis__scope_marks()[--thread->scope_count].first;
    ignis__tensor *tensor;
    bool kept = false;
    while (thread->tensor_count > first) {
        uint64_t handle = ignis__scope_tensors()[--thread->tensor_count];
        if (handle == keep) {
            kept = true;
            continue;
        }
        tensor = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, handle);
        if (!tensor)
            continue;
        ignis__tensor_end_handle(call, tensor);
        ignis__tensor_drop(call, tensor);
    }
    if (kept && thread->scope_count) /* there is room: it was in the list before */
        ignis__scope_tensors()[thread->tensor_count++] = keep;
}

static bool ignis__scope_end(const char *call, ignis_scope scope, uint64_t keep)
{
    ignis__tensor_thread *thread;
    if (!ignis__enter(call))
        return false;
    thread = ignis__tensor_thread_now();
    if (!thread->scope_count || ignis__scope_marks()[thread->scope_count - 1].serial != scope.id)
        return ignis__refuse(IGNIS_DIAG_SCOPE_ORDER, call, "this is not the innermost open scope of this thread, which has %d open",
                             thread->scope_count);
    if (thread->scope_count == thread->scope_floor) {
        thread->unbalanced = true;
        return ignis__refuse(IGNIS_DIAG_SCOPE_ORDER, call,
                             "the scope was begun before the function that is running now, which cannot end it");
    }
    ignis__scope_pop(call, keep);
    return true;
}

IGNIS_API ignis_status ignis_scope_end(ignis_scope scope)
{
    const uint64_t failures = ignis__failures();
    return ignis__ended(failures, ignis__scope_end("ignis_scope_end", scope, 0));
}

IGNIS_API ignis_tensor ignis_scope_return(ignis_scope scope, ignis_tensor tensor)
{
    (void)ignis__scope_end("ignis_scope_return", scope, tensor.id);
    return tensor;
}

/*  Around a function of the caller's, for a rule or not (null): scopes and no-grad sections stay as they were; messages name the call. */
typedef struct ignis__frame {
    ignis__outer_call outer;
    int no_grad, scope_floor, no_grad_floor;
    bool unbalanced;
} ignis__frame;

static void ignis__frame_begin(ignis__frame *frame, const char *call, const char *rule, int no_grad)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__outer_call_begin(&frame->outer, call, rule);
    frame->no_grad = thread->no_grad;
    frame->scope_floor = thread->scope_floor;
    frame->no_grad_floor = thread->no_grad_floor;
    frame->unbalanced = thread->unbalanced;
    thread->no_grad = thread->no_grad_floor = no_grad;
    thread->scope_floor = thread->scope_count;
    thread->unbalanced = false;
}

/*  False, and reported: the function has begun or ended what it did not end or begin. */
static bool ignis__frame_end(const ignis__frame *frame)
{
    const char *call = frame->outer.call, *what = frame->outer.rule ? frame->outer.rule : call;
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    int scopes = thread->scope_count - thread->scope_floor, sections = thread->no_grad - thread->no_grad_floor;
    bool balanced = !thread->unbalanced && scopes == 0 && sections == 0; /* what it has ended too much was reported then */
    ignis__outer_call_end(&frame->outer);
    if (scopes || sections)
        ignis__fail(IGNIS_DIAG_SCOPE_ORDER, call,
                    "the function of '%s' has returned with %d scopes and %d no-grad sections that it did not end", what, scopes, sections);
    while (thread->scope_count > thread->scope_floor)
        ignis__scope_pop(call, 0);
    thread->no_grad = frame->no_grad;
    thread->scope_floor = frame->scope_floor;
    thread->no_grad_floor = frame->no_grad_floor;
    thread->unbalanced = frame->unbalanced;
    return balanced;
}

/*  Adds the tensors that an array is the data or the gradient of to a text; returns how many they are. */
IGNIS__COLD static int ignis__tensors_claiming(ignis__text *text, const ignis__array *array)
{
    ignis__tensor *tensor;
    uint64_t index = 0;
    int count = 0;
    while ((tensor = (ignis__tensor *)ignis__pool_next(&ignis__tensors, &index)) != NULL) {
        bool is_data, is_grad;
        ignis__mutex_lock(&tensor->slot.lock);
        is_data = tensor->data == array;
        is_grad = tensor->grad == array;
        ignis__mutex_unlock(&tensor->slot.lock);
        if (is_data || is_grad)
            ignis__text_add(text, ", it is the %s of a tensor %s", is_data ? "data" : "gradient", ignis__shape_write(&tensor->shape).text);
        count += is_data + is_grad;
        ignis__tensor_drop("ignis_array_free", tensor);
    }
    return count;
}

/* ===============================================================================================================
   >>tape - recording, backward, checkpoints. Knows no operation.
   =============================================================================================================== */

/*  Another hold of what the caller holds already. */
static void ignis__tensor_rehold(ignis__tensor *held) { ignis__atomic_add(&held->slot.state, 1); }

/*  The calling thread's tape, made at its first use. */
static ignis__tape *ignis__tape_now(const char *call)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__tape *tape = thread->tape;
    if (tape)
        return tape;
    tape = (ignis__tape *)ignis__alloc_for(call, sizeof *tape);
    if (!tape)
        return NULL;
    ignis__mutex_init(&tape->lock);
    ignis__mutex_lock(&ignis__tapes.lock);
    tape->number = ++ignis__tapes.numbers;
    tape->next = ignis__tapes.first;
    ignis__tapes.first = tape;
    ignis__mutex_unlock(&ignis__tapes.lock);
    thread->tape = tape;
    ignis__this_thread.tape = tape->number;
    ignis__tensors_at_exit();
    return tape;
}

static bool ignis__recording(void) { return ignis__tensor_thread_now()->no_grad == 0; }

/*  What an entry keeps of a held array for its backward, claimed. An array that lives by its references gets one more. The caller's own is kept
    through a view: he may free it at any time, or use it for ever. Null, and reported: there is no memory. */
static ignis__array *ignis__array_keep(const char *call, ignis__array *array)
{
    bool kept;
    ignis__mutex_lock(&array->slot.lock);
    kept = array->owned_by_refs && ignis__pool_live(array);
    if (kept) {
        array->ref_count++;
        ignis__atomic_add(&array->slot.state, 1);
    }
    ignis__array_unlock(array);
    return kept ? array : ignis__array_adopt(call, ignis__array_view(call, array, &array->shape, array->numel, 0));
}

/*  Takes an entry apart that did not get onto the tape. */
IGNIS__COLD static void ignis__node_discard(const char *call, ignis__node *node)
{
    ignis__tensor *dead = NULL;
    ignis__node_destroy(call, node, &dead);
    ignis__tensors_bury(call, dead);
}

/*  An entry for an operation on held inputs, whose standings may be null: to be asked for. It is on no tape yet, and has room for what the rule
    saves. Null, and reported: it cannot be recorded on this thread's tape, or there is no memory. */
static ignis__node *ignis__node_make(const char *call, int count, ignis__tensor *const *inputs, const ignis__standing *standings,
                                     const ignis_rule *rule)
{
    ignis__tape *tape = ignis__tape_now(call);
    size_t saved_size = (sizeof(ignis__array *) + sizeof(uint64_t)) * (size_t)rule->saved_count;
    size_t size = sizeof(ignis__node) + (sizeof(ignis__tensor *) + sizeof(bool)) * (size_t)count + saved_size + rule->params_size;
    ignis__node *node = tape ? (ignis__node *)ignis__alloc_for(call, size) : NULL;
    int i;
    if (!node)
        return NULL;
    node->tape = tape;
    node->name = rule->name;
    node->backward_fn = rule->backward_fn;
    node->user_data = rule->user_data;
    node->inputs = (ignis__tensor **)(void *)(node + 1);
    node->saved = (ignis__array **)(void *)(node->inputs + count);
    node->versions = (uint64_t *)(void *)(node->saved + rule->saved_count);
    node->params = node->versions + rule->saved_count;
    node->needed = (bool *)node->params + rule->params_size;
    if (rule->params_size)
        memcpy(node->params, rule->params, rule->params_size);
    for (i = 0; i < count; i++) {
        ignis__standing standing = standings ? standings[i] : ignis__tensor_standing(inputs[i]);
        if (standing.node && standing.tape != tape) {
            ignis__fail(IGNIS_DIAG_TAPE_OF_OTHER, call,
                        "input %d was recorded by another thread, whose tape it belongs to; ignis_detach it", i);
            ignis__node_discard(call, node);
            return NULL;
        }
        ignis__tensor_rehold(inputs[i]);
        if (!ignis__atomic_load(&inputs[i]->read))
            ignis__atomic_store(&inputs[i]->read, 1);
        node->inputs[node->input_count++] = inputs[i];
        node->needed[i] = standing.requires_grad;
    }
    return node;
}

/*  Lets an entry have a claim of an array; false for none. */
static bool ignis__node_save(ignis__node *node, ignis__array *claimed)
{
    if (!claimed)
        return false;
    node->versions[node->saved_count] = ignis__array_version(claimed);
    node->saved[node->saved_count++] = claimed;
    return true;
}

/*  Makes a tensor, which is locked or seen by nobody else, the result of an entry. */
static void ignis__tensor_result(ignis__tensor *output, ignis__node *node)
{
    output->requires_grad = true;
    output->leaf = false;
    output->node = node;
    node->output = output;
}

/*  Puts an entry at the end of its tape. */
static void ignis__tape_append(ignis__node *node)
{
    ignis__tape *tape = node->tape;
    ignis__mutex_lock(&tape->lock);
    node->serial = ++tape->serials;
    node->before = tape->last;
    if (tape->last)
        tape->last->after = node;
    else
        tape->first = node;
    tape->last = node;
    tape->length++;
    ignis__mutex_unlock(&tape->lock);
}

/*  Makes a held tensor the result of an entry, which goes onto the tape; false, and reported: it is not new. */
static bool ignis__tape_claims(const char *call, ignis__tensor *output, ignis__node *node)
{
    const char *what = NULL;
    bool read;
    ignis__mutex_lock(&output->slot.lock);
    read = ignis__atomic_load(&output->read) != 0;
    if (output->node || output->walked || output->requires_grad)
        what = output->node ? output->node->name : "an operation";
    else if (!read)
        ignis__tensor_result(output, node);
    ignis__mutex_unlock(&output->slot.lock);
    if (what)
        ignis__fail(IGNIS_DIAG_RECORDED_TWICE, call,
                    "output is the result of '%s' already, or a leaf that requires a gradient; record a new tensor", what);
    else if (read)
        ignis__fail(IGNIS_DIAG_RECORDED_TWICE, call, "output is an input of an operation that is recorded; record a new tensor");
    else
        ignis__tape_append(node);
    return !what && !read;
}

/*  Writes an operation on held tensors down that the caller has done; he has found that one of them requires a gradient, and that recording is on.
    Returns the entry, which is good as long as the output is held; null after a failure. */
static ignis__node *ignis__tape_add(const char *call, ignis__tensor *output, int count, ignis__tensor *const *inputs,
                                    const ignis_rule *rule)
{
    ignis__node *node = ignis__node_make(call, count, inputs, NULL, rule);
    bool ok = true;
    int i;
    for (i = 0; node && ok && i < rule->saved_count; i++) {
        ignis__array *array = ignis__array_hold(call, rule->saved[i]);
        ok = array && ignis__node_save(node, ignis__array_keep(call, array));
        if (array)
            ignis__array_drop(call, array);
    }
    if (node && ok && ignis__tape_claims(call, output, node))
        return node;
    if (node)
        ignis__node_discard(call, node);
    return NULL;
}

/*  What the function of a checkpoint reads and what was there before it: that has to be the same when the function runs again. */
typedef struct ignis__watch {
    uint64_t newest;     /* array that was there, by id */
    ignis_array *arrays; /* there is always room for one more */
    uint64_t *versions;  /* when they were read first; in the same block */
    int count, capacity;
} ignis__watch;

static bool ignis__watch_add(const char *call, ignis__watch *watch, const ignis__array *array)
{
    if (watch->count + 1 >= watch->capacity) {
        int capacity = watch->capacity ? 2 * watch->capacity : 64;
        size_t size = (sizeof *watch->arrays + sizeof *watch->versions) * (size_t)capacity;
        ignis_array *arrays = (ignis_array *)ignis__alloc_for(call, size);
        uint64_t *versions;
        if (!arrays)
            return false;
        versions = (uint64_t *)(void *)(arrays + capacity);
        if (watch->count) {
            memcpy(arrays, watch->arrays, sizeof *arrays * (size_t)watch->count);
            memcpy(versions, watch->versions, sizeof *versions * (size_t)watch->count);
        }
        ignis__free(watch->arrays);
        watch->arrays = arrays;
        watch->versions = versions;
        watch->capacity = capacity;
    }
    watch->arrays[watch->count].id = array->slot.handle;
    watch->versions[watch->count++] = ignis__array_version(array);
    return true;
}

/*  An operation is about to read an array. */
static bool ignis__watch_read(const char *call, const ignis__array *array)
{
    ignis__watch *watch = ignis__tensor_thread_now()->watch;
    int i;
    if (!watch || array->id > watch->newest)
        return true;
    for (i = 0; i < watch->count; i++)
        if (watch->arrays[i].id == array->slot.handle)
            return true;
    return ignis__watch_add(call, watch, array);
}

#define IGNIS__MAX_INPUTS 64

IGNIS_API ignis_status ignis_tape_record(ignis_tensor output_handle, const ignis_tensor *handles, int count, const ignis_rule *rule)
{
    static const char call[] = "ignis_tape_record";
    ignis__tensor *output, *inputs[IGNIS__MAX_INPUTS];
    bool wanted = false, ok = true;
    int i, held = 0;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!rule || !rule->backward_fn || !rule->name)
        return ignis__fail_null(call, !rule ? "rule" : !rule->name ? "rule->name" : "rule->backward_fn");
    if (count < 0 || count > IGNIS__MAX_INPUTS)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, outside 0 to %d", count, IGNIS__MAX_INPUTS);
    if (rule->saved_count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "rule->saved_count is %d, below 0", rule->saved_count);
    if ((count > 0 && !handles) || (rule->saved_count > 0 && !rule->saved) || (rule->params_size > 0 && !rule->params))
        return ignis__fail_null(call, count > 0 && !handles                   ? "inputs"
                                      : rule->saved_count > 0 && !rule->saved ? "rule->saved"
                                                                              : "rule->params");
    if ((output = ignis__tensor_hold(call, output_handle)) == NULL)
        return ignis__failed();
    for (; ok && held < count; held += ok) {
        inputs[held] = ignis__tensor_hold(call, handles[held]);
        ok = inputs[held] != NULL;
        if (ok && inputs[held] == output) {
            ok = ignis__refuse(IGNIS_DIAG_RECORDED_TWICE, call, "output is input %d itself; record a new tensor", held);
            ignis__tensor_drop(call, inputs[held]);
        }
        wanted = wanted || (ok && ignis__tensor_requires_grad(inputs[held]));
    }
    for (i = 0; ok && i < held; i++) {
        ignis__array *array = ignis__tensor_array(call, inputs[i]);
        ok = array && ignis__watch_read(call, array);
        if (array)
            ignis__array_drop(call, array);
    }
    if (ok && wanted)
        ignis__tensor_thread_now()->saw_trainable = true;
    if (ok && wanted && ignis__recording()) {
        if (!ignis__dtype_is_float(output->dtype))
            ok = ignis__refuse(IGNIS_DIAG_GRAD_OF_INTEGERS, call, "a tensor of %s cannot require a gradient",
                               ignis__dtypes[output->dtype].name);
        ok = ok && ignis__tape_add(call, output, count, inputs, rule);
    }
    for (i = 0; i < held; i++)
        ignis__tensor_drop(call, inputs[i]);
    ignis__tensor_drop(call, output);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_no_grad_begin(void)
{
    if (!ignis__enter("ignis_no_grad_begin"))
        return IGNIS_ERROR_NOT_SETUP;
    ignis__tensor_thread_now()->no_grad++;
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_no_grad_end(void)
{
    static const char call[] = "ignis_no_grad_end";
    ignis__tensor_thread *thread;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    thread = ignis__tensor_thread_now();
    if (thread->no_grad == thread->no_grad_floor) {
        thread->unbalanced = true;
        return ignis__fail(IGNIS_DIAG_SCOPE_ORDER, call, "there was no ignis_no_grad_begin%s",
                           thread->no_grad ? " in the function that is running now" : "");
    }
    thread->no_grad--;
    return IGNIS_OK;
}

IGNIS_API ignis_tensor ignis_detach(ignis_tensor handle)
{
    static const char call[] = "ignis_detach";
    ignis_tensor detached = IGNIS__ZERO;
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis__array *array;
    if (!tensor)
        return detached;
    array = ignis__tensor_array(call, tensor);
    if (array) {
        detached = ignis__tensor_over(call, array, false);
        ignis__array_drop(call, array);
    }
    ignis__tensor_drop(call, tensor);
    return detached;
}

/*  Adds the entries that have saved an array to a text; returns how often. */
IGNIS__COLD static int ignis__tape_claiming(ignis__text *text, const ignis__array *array)
{
    ignis__tape *tape;
    const ignis__node *node;
    int count = 0, i;
    ignis__mutex_lock(&ignis__tapes.lock);
    for (tape = ignis__tapes.first; tape; tape = tape->next) {
        ignis__mutex_lock(&tape->lock);
        for (node = tape->first; node; node = node->after) {
            int before = count;
            for (i = 0; i < node->saved_count; i++)
                count += node->saved[i] == array;
            if (count > before)
                ignis__text_add(text, ", the gradient of '%s' needs it", node->name);
        }
        ignis__mutex_unlock(&tape->lock);
    }
    ignis__mutex_unlock(&ignis__tapes.lock);
    return count;
}

/* --- gradients that add up ----------------------------------------------------------------------------------------------- */

/*  Gives a private array another shape of as many elements; audits and pictures of memory look at it meanwhile. */
static void ignis__array_set_shape(ignis__array *array, const ignis_shape *shape)
{
    ignis__mutex_lock(&array->slot.lock);
    ignis__shape_copy(&array->shape, shape);
    ignis__array_unlock(array);
}

/*  Whether nobody but the caller, by one claim, can see the array or its memory. */
static bool ignis__array_is_private(ignis__array *array)
{
    bool is_private;
    ignis__mutex_lock(&array->slot.lock);
    is_private = (ignis__atomic_load(&array->slot.state) & 0xFFFFFFFFu) == 2 /* its handle and the claim */ && array->ref_count == 1 &&
                 !array->view && ignis__atomic_load(&array->storage->users) == 1 && !array->storage->wrapped;
    ignis__array_unlock(array);
    return is_private;
}

/*  *sum += gradient; *sum is claimed, null for none yet, and the gradient's claim is taken over. The first gradient is only kept: a
    backward function may have given the same array elsewhere, so the sum is made in memory of its own unless *sum is private. */
static bool ignis__gradient_add(const char *call, ignis__array **sum, ignis__array *gradient)
{
    ignis_array handles[3], made = IGNIS__ZERO;
    ignis_status status;
    if (!*sum) {
        *sum = gradient;
        return true;
    }
    handles[1].id = (*sum)->slot.handle;
    handles[2].id = gradient->slot.handle;
    if (ignis__array_is_private(*sum)) {
        handles[0] = handles[1];
    } else if (ignis__array_is_private(gradient)) {
        handles[0] = handles[2];
    } else {
        made = ignis__array_create_like(call, *sum, (*sum)->dtype);
        if (!made.id) {
            ignis__array_unclaim(call, gradient);
            return false;
        }
        handles[0] = made;
    }
    status = ignis__array_binary(call, IGNIS__BUILTIN_ADD, handles[0], handles[1], handles[2]);
    if (made.id) {
        ignis__array_unclaim(call, gradient);
        ignis__array_unclaim(call, *sum);
        *sum = ignis__array_adopt(call, made);
    } else if (handles[0].id == handles[2].id) {
        ignis__array_unclaim(call, *sum);
        *sum = gradient;
    } else {
        ignis__array_unclaim(call, gradient);
    }
    return status == IGNIS_OK;
}

/*  Replaces a claimed sum by a copy, unless its memory is private already. */
static bool ignis__gradient_separate(const char *call, ignis__array **sum)
{
    ignis__array *copy;
    if (ignis__array_is_private(*sum))
        return true;
    copy = ignis__array_adopt(call, ignis__array_create_like(call, *sum, (*sum)->dtype));
    if (copy && !ignis__array_copy_bytes(call, copy, 0, *sum)) {
        ignis__array_unclaim(call, copy);
        copy = NULL;
    }
    if (!copy)
        return false;
    ignis__array_unclaim(call, *sum);
    *sum = copy;
    return true;
}

/* --- gradients of leaves, to which any number of threads may add ------------------------------------------------------------ */

/*  A leaf that a backward has reached, and the sum of what has reached it. */
typedef struct ignis__reached {
    ignis__tensor *leaf;            /* held */
    ignis__array *sum;              /* claimed; null: nothing yet, or written already */
    struct ignis__met_group *group; /* null: none */
    struct ignis__reached *next;
} ignis__reached;

/*  One thread at a time changes the gradient of a leaf, from ignis__leaves_enter to ignis__leaves_leave. A list is entered as a whole: a thread that
    waits has entered nothing, so no two wait for each other. No mutex is held in between, as taking memory and queueing work may take long. */
static struct {
    ignis__mutex lock;
    ignis__condition left;
} ignis__leaves = {IGNIS__MUTEX_INIT, IGNIS__CONDITION_INIT};

static void ignis__leaves_enter(ignis__reached *list)
{
    ignis__reached *at = list;
    ignis__mutex_lock(&ignis__leaves.lock);
    while (at) {
        if (at->leaf->entered) {
            ignis__condition_wait(&ignis__leaves.left, &ignis__leaves.lock);
            at = list;
        } else {
            at = at->next;
        }
    }
    for (at = list; at; at = at->next)
        at->leaf->entered = true;
    ignis__mutex_unlock(&ignis__leaves.lock);
}

static void ignis__leaves_leave(ignis__reached *list)
{
    ignis__mutex_lock(&ignis__leaves.lock);
    for (; list; list = list->next)
        list->leaf->entered = false;
    ignis__condition_wake(&ignis__leaves.left);
    ignis__mutex_unlock(&ignis__leaves.lock);
}

/*  The same for a single tensor. */
static void ignis__leaf_enter(ignis__tensor *leaf)
{
    ignis__reached one = IGNIS__ZERO;
    one.leaf = leaf;
    ignis__leaves_enter(&one);
}

static void ignis__leaf_leave(ignis__tensor *leaf)
{
    ignis__reached one = IGNIS__ZERO;
    one.leaf = leaf;
    ignis__leaves_leave(&one);
}

/*  Lets work on the current stream, which is about to change a gradient, wait for the changes that other threads have queued on their streams. Not in
    a capture: that began when all streams were idle, and who launches its graph orders the launch. */
static bool ignis__gradient_follow(const char *call, ignis__array *grad)
{
    ignis__device *device = grad->storage->device;
    return ignis__capture_on(device) || ignis__storage_sum_on(call, grad->storage, ignis__stream_now(device));
}

/*  Makes a claimed and private array the gradient of an entered leaf that has none yet. */
static void ignis__gradient_install(const char *call, ignis__tensor *leaf, ignis__array *grad)
{
    ignis__array_set_shape(grad, &leaf->shape);
    (void)ignis__gradient_follow(call, grad); /* nothing comes before the first */
    ignis__mutex_lock(&leaf->slot.lock);
    leaf->grad = grad;
    ignis__mutex_unlock(&leaf->slot.lock);
}

#define IGNIS__ADDENDS 100 /* that one launch carries */

/*  A row of what ignis_add_each reads; kernels/elementwise.cu has the same. */
typedef struct ignis__addends {
    struct {
        ignis__address dst, src;
        int64_t n, first_block;
    } at[IGNIS__ADDENDS];
} ignis__addends;

/*  Adds the sum of a leaf to the gradient that it has, in one launch with the leaves of its kind that follow in the list. The
    gradients' memory stays: pointers to it may be part of a graph. */
static bool ignis__gradients_add(const char *call, ignis__reached *first)
{
    unsigned grid[3] = {0, 1, 1}, block[3] = {256, 1, 1};
    ignis__array *added[IGNIS__ADDENDS];
    ignis__reached *at;
    ignis__addends addends;
    ignis__work work;
    int64_t blocks = 0;
    int count = 0, i;
    void *params[] = {&addends, &count}, *function;
    bool ok = ignis__work_begin(call, first->leaf->device, &work);
    if (!ok)
        return false;
    for (at = first; ok && at && count < IGNIS__ADDENDS; at = at->next) {
        ignis__tensor *leaf = at->leaf;
        if (!at->sum || !leaf->grad || leaf->dtype != first->leaf->dtype || leaf->device != first->leaf->device)
            continue;
        ok = ignis__gradient_follow(call, leaf->grad) && ignis__work_read(&work, at->sum, &addends.at[count].src) &&
             ignis__work_write(&work, leaf->grad, &addends.at[count].dst);
        addends.at[count].n = at->sum->numel;
        addends.at[count].first_block = blocks;
        blocks += (at->sum->numel + 4095) / 4096;
        added[count++] = at->sum;
        at->sum = NULL;
    }
    if (ok && blocks) {
        grid[0] = (unsigned)blocks;
        function = ignis__builtin_get(call, work.device, IGNIS__BUILTIN_ADD_EACH, first->leaf->dtype);
        ok = function && ignis__builtin_launch(&work, IGNIS__BUILTIN_ADD_EACH, function, grid, block, 0, params);
    }
    ignis__work_end(&work);
    for (i = 0; i < count; i++)
        ignis__array_unclaim(call, added[i]);
    return ok;
}

/*  Whether the kernel that adds to a leaf's gradient is there, which may have to be compiled and loaded first. */
static bool ignis__gradient_addable(const char *call, const ignis__tensor *leaf)
{
    ignis__work work;
    bool ok = ignis__work_begin(call, leaf->device, &work);
    if (ok) {
        ok = ignis__builtin_get(call, work.device, IGNIS__BUILTIN_ADD_EACH, leaf->dtype) != NULL;
        ignis__work_end(&work);
    }
    return ok;
}

/*  Writes the sums of a list to the gradients of its leaves. What can fail comes first: then nothing has changed. */
static bool ignis__leaves_write(const char *call, ignis__reached *list)
{
    const ignis__tensor *added = NULL; /* the last leaf to which something is added: most are of one kind */
    ignis__reached *at;
    bool ok = true;
    ignis__leaves_enter(list);
    for (at = list; ok && at; at = at->next) {
        const ignis__tensor *leaf = at->leaf;
        if (at->sum && !leaf->grad) {
            ok = ignis__gradient_separate(call, &at->sum);
            continue;
        }
        ok = !at->sum || ignis__array_readable(call, leaf->grad);
        if (ok && at->sum && (!added || added->dtype != leaf->dtype || added->device != leaf->device)) {
            ok = ignis__gradient_addable(call, leaf);
            added = leaf;
        }
    }
    for (at = list; ok && at; at = at->next)
        ok = !at->sum || !at->leaf->grad || ignis__gradients_add(call, at);
    for (at = list; ok && at; at = at->next) {
        if (at->sum)
            ignis__gradient_install(call, at->leaf, at->sum);
        at->sum = NULL;
    }
    ignis__leaves_leave(list);
    return ok;
}

/* --- one backward: what it has reached, and the groups that it has met --------------------------------------------------------- */

static uint64_t ignis__grad_groups; /* that exist: without any, a backward need not count */
static uint64_t ignis__walk_serials;

/*  A group of leaves of which a backward has met one. The outermost one has counted its uses, so it knows when the last is passed. */
typedef struct ignis__met_group {
    ignis__grad_group *group;
    bool joins;             /* else its leaves are to this backward as all others are */
    bool done;              /* ready_fn was called */
    int64_t uses;           /* by entries that the backward has not passed yet */
    ignis__reached *leaves; /* those that it has reached, or will */
    struct ignis__met_group *next;
} ignis__met_group;

/*  One backward. A backward function that it calls may run another one, inside of it. */
typedef struct ignis__walk {
    const char *call;
    ignis__tape *tape;
    struct ignis__walk *outer; /* in whose backward function this one runs; null: none */
    uint64_t serial;
    bool retains;    /* entries are kept for another backward */
    ignis__node *at; /* the entry whose backward function is running; null: none is */
    uint64_t taken;  /* a bit for each input whose gradient that function has added up itself */
    uint64_t one;    /* the gradient that it starts from, by handle, where that is a 1 that nobody has written; else 0 */
    bool failed;     /* one inside of it has failed, and may have given only a part of its gradients */
    /* what ignis__walk_sums_leave has left: a gradient, null when its sums are given, and the sums of its columns; both claimed */
    ignis__array *summed, *sums;
    int64_t nests; /* entries that it has not passed yet and that run a backward of their own */
    ignis__met_group *groups;
    ignis__reached *leaves; /* those that are in no group */
    ignis__reached **table; /* a hash table of all by their leaf; a power of two of places, of which at least half are empty */
    uint32_t count, capacity;
} ignis__walk;

/*  The place of a leaf in the walk's table, which holds null when the leaf was not reached yet. */
static ignis__reached **ignis__walk_find(const ignis__walk *walk, const ignis__tensor *leaf)
{
    uint32_t i = (leaf->slot.index * 2654435769u >> 7) & (walk->capacity - 1);
    while (walk->table[i] && walk->table[i]->leaf != leaf)
        i = (i + 1) & (walk->capacity - 1);
    return &walk->table[i];
}

/*  Room for one more leaf. */
static bool ignis__walk_grow(ignis__walk *walk)
{
    ignis__walk grown = *walk;
    uint32_t i;
    if (2 * walk->count < walk->capacity)
        return true;
    grown.capacity = walk->capacity ? 4 * walk->capacity : 64;
    grown.table = (ignis__reached **)ignis__alloc_for(walk->call, sizeof *grown.table * grown.capacity);
    if (!grown.table)
        return false;
    for (i = 0; i < walk->capacity; i++)
        if (walk->table[i])
            *ignis__walk_find(&grown, walk->table[i]->leaf) = walk->table[i];
    ignis__free(walk->table);
    *walk = grown;
    return true;
}

/*  The group of a leaf, for the outermost walk: *met is null where the leaf has none, or where it does not join. */
static bool ignis__walk_meet(ignis__walk *walk, ignis__tensor *leaf, ignis__met_group **met)
{
    ignis__grad_group *group;
    ignis__met_group *known;
    *met = NULL;
    ignis__mutex_lock(&leaf->slot.lock);
    group = leaf->group;
    if (group && !ignis__pool_hold_more(group->owner))
        group = NULL; /* it is just ending */
    ignis__mutex_unlock(&leaf->slot.lock);
    if (!group)
        return true;
    for (known = walk->groups; known && known->group != group; known = known->next)
        ;
    if (known) {
        (void)ignis__pool_drop(group->owner); /* one hold is enough */
    } else {
        known = (ignis__met_group *)ignis__alloc_for(walk->call, sizeof *known);
        if (!known || !group->meet_fn(group, walk->call, walk, &known->joins)) {
            ignis__free(known);
            (void)group->end_fn(group, walk->call, walk, false);
            return false;
        }
        known->group = group;
        known->next = walk->groups;
        walk->groups = known;
    }
    *met = known->joins ? known : NULL;
    return true;
}

/*  What the walk knows of a held leaf. Null, and reported: out of memory, or the leaf's group cannot be met now. */
static ignis__reached *ignis__walk_reach(ignis__walk *walk, ignis__tensor *leaf)
{
    ignis__reached **list = &walk->leaves, *reached;
    if (!ignis__walk_grow(walk))
        return NULL;
    reached = *ignis__walk_find(walk, leaf);
    if (reached)
        return reached;
    reached = (ignis__reached *)ignis__alloc_for(walk->call, sizeof *reached);
    if (!reached || (!walk->outer && !ignis__walk_meet(walk, leaf, &reached->group))) {
        ignis__free(reached);
        return NULL;
    }
    ignis__tensor_rehold(leaf);
    reached->leaf = leaf;
    if (reached->group)
        list = &reached->group->leaves;
    reached->next = *list;
    *list = reached;
    *ignis__walk_find(walk, leaf) = reached;
    walk->count++;
    return reached;
}

/*  Frees a list, with the sums that were not written. */
static void ignis__reached_end(const char *call, ignis__reached **list)
{
    ignis__reached *reached;
    while ((reached = *list) != NULL) {
        *list = reached->next;
        if (reached->sum)
            ignis__array_unclaim(call, reached->sum);
        ignis__tensor_drop(call, reached->leaf);
        ignis__free(reached);
    }
}

static bool ignis__group_ready(const char *call, ignis__met_group *met)
{
    met->done = true;
    return ignis__leaves_write(call, met->leaves) && met->group->ready_fn(met->group, call);
}

/*  The nearest entry before this one (null: the newest of all) that is newer than `end`, with its output held; null: there is none. It skips entries
    that another thread is just about to end, having given back the last hold of their outputs. */
static ignis__node *ignis__node_before(ignis__tape *tape, const ignis__node *node, uint64_t end)
{
    ignis__node *before;
    ignis__mutex_lock(&tape->lock);
    before = node ? node->before : tape->last;
    while (before && before->serial > end && !ignis__pool_hold_more(before->output))
        before = before->before;
    ignis__mutex_unlock(&tape->lock);
    return before && before->serial > end ? before : NULL;
}

/*  Counts how often the entries on the way from a root use leaves of groups. Newest first: whoever uses an entry comes before it. */
static bool ignis__groups_count(ignis__walk *walk, ignis__node *root)
{
    ignis__node *node = root, *before;
    bool ok = true;
    int i;
    ignis__tensor_rehold(root->output);
    root->counted = true;
    for (; node; node = before) {
        for (i = 0; ok && node->counted && i < node->input_count; i++) {
            ignis__standing standing = ignis__tensor_standing(node->inputs[i]);
            ignis__reached *reached;
            if (standing.node && standing.tape == walk->tape) {
                standing.node->counted = true;
            } else if (standing.leaf && node->needed[i]) {
                reached = ignis__walk_reach(walk, node->inputs[i]);
                ok = reached != NULL;
                if (ok && reached->group)
                    reached->group->uses++;
            }
        }
        walk->nests += node->counted && node->nests;
        before = ignis__node_before(walk->tape, node, 0);
        ignis__tensor_drop(walk->call, node->output);
    }
    return ok;
}

/*  The walk has passed an entry: groups of which it was the last use are ready, unless one that is to come may use anything. */
static bool ignis__groups_pass(ignis__walk *walk, ignis__node *node, bool ok)
{
    ignis__met_group *met;
    bool was_last = node->nests && walk->nests == 1;
    int i;
    node->counted = false;
    walk->nests -= node->nests;
    for (i = 0; i < node->input_count; i++) {
        ignis__reached *reached = walk->count && node->needed[i] ? *ignis__walk_find(walk, node->inputs[i]) : NULL;
        met = reached ? reached->group : NULL;
        if (met && --met->uses == 0 && !walk->nests && !met->done)
            ok = ok && ignis__group_ready(walk->call, met);
    }
    for (met = was_last ? walk->groups : NULL; met; met = met->next)
        if (met->joins && met->uses == 0 && !met->done)
            ok = ok && ignis__group_ready(walk->call, met);
    return ok;
}

/*  The outermost walk is over: what is left of its groups is ready now, or dropped after a failure. */
static bool ignis__groups_end(ignis__walk *walk, bool ok)
{
    ignis__met_group *met;
    for (met = walk->groups; met; met = met->next) {
        if (ok && met->joins && !met->done)
            ok = ignis__group_ready(walk->call, met);
        ignis__reached_end(walk->call, &met->leaves);
    }
    while ((met = walk->groups) != NULL) {
        walk->groups = met->next;
        ok = met->group->end_fn(met->group, walk->call, walk, ok) && ok;
        ignis__free(met);
    }
    return ok;
}

/* --- backward ---------------------------------------------------------------------------------------------------------- */

/*  *sum += gradient as ignis__gradient_add does it, or *sum = gradient where that is the whole, with the sum in it. */
static bool ignis__walk_add(const ignis__walk *walk, ignis__array **sum, ignis__array *gradient, bool whole)
{
    if (whole && *sum) {
        ignis__array_unclaim(walk->call, *sum);
        *sum = NULL;
    }
    return ignis__gradient_add(walk->call, sum, gradient);
}

/*  Gives a gradient, whose claim is taken over, to a leaf. */
static bool ignis__walk_give_leaf(ignis__walk *walk, ignis__tensor *leaf, ignis__array *gradient, bool whole)
{
    ignis__reached *reached = ignis__walk_reach(walk, leaf);
    if (reached && !(reached->group && reached->group->done))
        return ignis__walk_add(walk, &reached->sum, gradient, whole);
    if (reached)
        ignis__fail(IGNIS_DIAG_GRADIENT_LATE, walk->call,
                    "a backward function ran a backward that reached a parameter %s of data-parallel training, whose gradient was given to "
                    "the other ranks already; use ignis_checkpoint for it",
                    ignis__shape_write(&leaf->shape).text);
    ignis__array_unclaim(walk->call, gradient);
    return false;
}

/*  Whether a gradient can still be given to an input of an entry. */
static bool ignis__walk_admits(const ignis__walk *walk, const ignis__tensor *tensor, const ignis__standing *standing)
{
    if (standing->node && standing->tape != walk->tape)
        ignis__fail(IGNIS_DIAG_TAPE_OF_OTHER, walk->call, "a tensor %s on the way was recorded by another thread meanwhile",
                    ignis__shape_write(&tensor->shape).text);
    else if (standing->node && standing->node->running)
        ignis__fail(IGNIS_DIAG_BACKWARD_TWICE, walk->call,
                    "a tensor %s on the way is the result of '%s', whose backward function is running",
                    ignis__shape_write(&tensor->shape).text, standing->node->name);
    else if (!standing->node && !standing->leaf)
        ignis__fail(IGNIS_DIAG_BACKWARD_TWICE, walk->call,
                    "a tensor %s on the way was made by operations that an earlier backward or ignis_tape_clear has released; "
                    "run them again",
                    ignis__shape_write(&tensor->shape).text);
    else
        return true;
    return false;
}

/*  Gives a gradient, whose claim is taken over, to a held tensor on the way. */
static bool ignis__walk_give(ignis__walk *walk, ignis__tensor *tensor, ignis__array *gradient, bool whole)
{
    ignis__standing standing = ignis__tensor_standing(tensor);
    if (!ignis__walk_admits(walk, tensor, &standing)) {
        ignis__array_unclaim(walk->call, gradient);
        return false;
    }
    if (!standing.node)
        return ignis__walk_give_leaf(walk, tensor, gradient, whole);
    if (!standing.node->grad)
        ignis__tensor_rehold(tensor); /* the output is held until its entry is done: nothing else may keep it alive */
    return ignis__walk_add(walk, &standing.node->grad, gradient, whole);
}

/*  For a backward function that is running: what its walk has as the gradient of an input by now; null: nothing yet. */
static ignis__array *ignis__walk_sum(int input)
{
    const ignis__walk *walk = ignis__tensor_thread_now()->walk;
    ignis__tensor *tensor = walk->at->inputs[input];
    const ignis__node *maker = ignis__tensor_standing(tensor).node;
    const ignis__reached *leaf = !maker && walk->count ? *ignis__walk_find(walk, tensor) : NULL;
    return maker ? maker->grad : leaf ? leaf->sum : NULL;
}

/*  For a backward function that is running: the gradient that it gives for an input is the whole, and has ignis__walk_sum in it. */
static void ignis__walk_sum_taken(int input) { ignis__tensor_thread_now()->walk->taken |= (uint64_t)1 << input; }

/*  For a backward function that is running: the entry of its walk's tape that made a tensor; null: none did. */
static const ignis__node *ignis__walk_maker(ignis__tensor *tensor)
{
    ignis__standing standing = ignis__tensor_standing(tensor);
    return standing.tape == ignis__tensor_thread_now()->walk->tape ? standing.node : NULL;
}

static void ignis__walk_sums_drop(ignis__walk *walk)
{
    if (walk->summed)
        ignis__array_unclaim(walk->call, walk->summed);
    if (walk->sums)
        ignis__array_unclaim(walk->call, walk->sums);
    walk->summed = walk->sums = NULL;
}

/*  For a backward function that is running: the gradient that it gives has these sums of its columns, for the function which that goes to and which
    has a bias. Both are arrays that nobody has claimed yet. */
static void ignis__walk_sums_leave(ignis_array gradient, ignis_array sums)
{
    ignis__walk *walk = ignis__tensor_thread_now()->walk;
    ignis__walk_sums_drop(walk);
    walk->summed = ignis__array_adopt(walk->call, gradient);
    walk->sums = ignis__array_adopt(walk->call, sums);
}

/*  The other end: the n sums of the columns of its gradient, which it may give on. No handle: nobody has left them. */
static ignis_array ignis__walk_sums_take(const ignis__array *gradient, int64_t n)
{
    ignis__walk *walk = ignis__tensor_thread_now()->walk;
    ignis_array sums = IGNIS__ZERO;
    if (walk->summed && walk->summed->storage == gradient->storage && walk->summed->offset == gradient->offset &&
        walk->summed->numel == gradient->numel && walk->sums->numel == n) {
        ignis__array_unclaim(walk->call, walk->summed);
        walk->summed = NULL;
        sums.id = walk->sums->slot.handle;
    }
    return sums;
}

/*  For a backward function that is running: whether it may run again, so what was saved for it has to stay as it is. */
static bool ignis__walk_retains(void) { return ignis__tensor_thread_now()->walk->retains; }

/*  Checks what a backward function gave for an input, and claims it. Null, and reported, when it does not fit. */
static ignis__array *ignis__walk_claim(const ignis__walk *walk, const ignis__node *node, int input, ignis_array handle)
{
    const ignis__tensor *tensor = node->inputs[input];
    ignis__array *gradient = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (!gradient) {
        ignis__fail(IGNIS_DIAG_ARRAY_FREED, walk->call, "the backward of '%s' gave a freed array for input %d", node->name, input);
        return NULL;
    }
    ignis__array_claim(gradient);
    ignis__array_drop(walk->call, gradient);
    if (gradient->numel == ignis__tensor_numel(tensor) && gradient->dtype == tensor->dtype && gradient->storage->device == tensor->device &&
        (gradient->numel == 0 || ignis__storage_readable(gradient->storage)))
        return gradient;
    if (gradient->storage->device != tensor->device)
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, walk->call,
                    "the backward of '%s' gave a gradient on device %d for input %d, which is on device %d", node->name,
                    ignis__device_ordinal(gradient->storage->device), input, ignis__device_ordinal(tensor->device));
    else if (gradient->numel == ignis__tensor_numel(tensor) && gradient->dtype == tensor->dtype)
        ignis__fail(IGNIS_DIAG_ARRAY_UNWRITTEN, walk->call, "the backward of '%s' gave %s for input %d, which was never written to",
                    node->name, ignis__array_label(gradient).text, input);
    else
        ignis__fail(gradient->dtype != tensor->dtype ? IGNIS_DIAG_DTYPE_DIFFERS : IGNIS_DIAG_SHAPE_DIFFERS, walk->call,
                    "the backward of '%s' gave a gradient %s of %s for input %d, which is %s of %s", node->name,
                    ignis__shape_write(&gradient->shape).text, ignis__dtypes[gradient->dtype].name, input,
                    ignis__shape_write(&tensor->shape).text, ignis__dtypes[tensor->dtype].name);
    ignis__array_unclaim(walk->call, gradient);
    return NULL;
}

/*  What an entry has saved is as it was when it was recorded. */
static bool ignis__walk_unchanged(const ignis__walk *walk, const ignis__node *node)
{
    int i;
    for (i = 0; i < node->saved_count; i++) {
        const ignis__array *saved = node->saved[i];
        uint64_t version = ignis__storage_version(saved->storage);
        char view_of[40] = "";
        if (version == node->versions[i] || node->versions[i] == IGNIS__UNWRITTEN)
            continue;
        if (saved->view) /* which the tape may have made itself, to keep an array of the caller */
            snprintf(view_of, sizeof view_of, ", a view of #%llu,", (unsigned long long)saved->parent);
        return ignis__refuse(
            IGNIS_DIAG_SAVED_CHANGED, walk->call,
            "the gradient of '%s' needs %s %s%s as it was when the operation was recorded, but it was written to since (version %llu, "
            "recorded at %llu); write after the backward, or to a copy",
            node->name, ignis__array_label(saved).text, ignis__shape_write(&saved->shape).text, view_of, (unsigned long long)version,
            (unsigned long long)node->versions[i]);
    }
    return true;
}

/*  Runs the backward function of an entry, between scopes and no-grad sections that it cannot end. */
static bool ignis__walk_call(ignis__walk *walk, ignis__node *node, const ignis_backward_args *args)
{
    ignis__frame frame;
    ignis_status status;
    ignis__frame_begin(&frame, walk->call, node->name, ignis__tensor_thread_now()->no_grad + 1);
    walk->at = node;
    walk->taken = 0;
    node->running = true;
    status = node->backward_fn(args);
    node->running = false;
    walk->at = NULL;
    if (!ignis__frame_end(&frame) && status == IGNIS_OK)
        status = ignis__failed();
    if (walk->failed && status == IGNIS_OK)
        status = ignis__fail(IGNIS_DIAG_BACKWARD_FAILED, walk->call,
                             "the backward of '%s' answered OK, but an ignis_backward inside of it has failed", node->name);
    if (status != IGNIS_OK && ignis__this_thread.record.status == IGNIS_OK)
        ignis__fail(IGNIS_DIAG_BACKWARD_FAILED, walk->call, "the backward of '%s' answered %s", node->name, ignis_status_name(status));
    else if (status != IGNIS_OK)
        ignis__this_thread.latest = status;
    return status == IGNIS_OK;
}

/*  Gives the gradient of an entry's output the output's shape: it came in the shape that the function it is from, or the caller, gave it. */
static bool ignis__walk_shape(const ignis__walk *walk, ignis__node *node)
{
    const ignis_shape *shape = &node->output->shape;
    ignis__array *view;
    if (ignis__shape_same(&node->grad->shape, shape))
        return true;
    if (ignis__array_is_private(node->grad)) {
        ignis__array_set_shape(node->grad, shape);
        return true;
    }
    view = ignis__array_adopt(walk->call, ignis__array_view(walk->call, node->grad, shape, node->grad->numel, 0));
    if (!view)
        return false;
    ignis__array_unclaim(walk->call, node->grad);
    node->grad = view;
    return true;
}

/*  Runs the backward of one entry, and hands its gradients on. */
static bool ignis__walk_step(ignis__walk *walk, ignis__node *node)
{
    ignis_backward_args args = IGNIS__ZERO;
    ignis_array grads[IGNIS__MAX_INPUTS] = IGNIS__ZERO, saved_few[16], *saved = saved_few;
    ignis__array *given[IGNIS__MAX_INPUTS];
    bool ok = true;
    int i;
    for (i = 0; i < node->input_count; i++) {
        ignis__standing standing = ignis__tensor_standing(node->inputs[i]);
        if (node->needed[i] && !ignis__walk_admits(walk, node->inputs[i], &standing))
            return false;
    }
    if (node->saved_count > IGNIS__COUNT(saved_few) &&
        (saved = (ignis_array *)ignis__alloc_for(walk->call, sizeof *saved * (size_t)node->saved_count)) == NULL)
        return false;
    for (i = 0; i < node->saved_count; i++)
        saved[i].id = node->saved[i]->slot.handle;
    args.grad_output.id = node->grad->slot.handle != walk->one ? node->grad->slot.handle : 0;
    args.saved = saved;
    args.saved_count = node->saved_count;
    args.params = node->params;
    args.input_count = node->input_count;
    args.needed = node->needed;
    args.grad_inputs = grads;
    args.user_data = node->user_data;
    ok = ignis__walk_call(walk, node, &args);
    for (i = 0; i < node->input_count; i++) { /* claim all before any is given on: one array may be there twice */
        given[i] = grads[i].id ? ignis__walk_claim(walk, node, i, grads[i]) : NULL;
        ok = ok && (given[i] || !grads[i].id || !node->needed[i]);
    }
    if (!walk->summed) /* so that the sums, if they are among those, belong to who gets them */
        ignis__walk_sums_drop(walk);
    for (i = 0; i < node->input_count; i++) {
        if (given[i] && ok && node->needed[i])
            ok = ignis__walk_give(walk, node->inputs[i], given[i], walk->taken >> i & 1);
        else if (given[i])
            ignis__array_unclaim(walk->call, given[i]);
    }
    if (saved != saved_few)
        ignis__free(saved);
    return ok;
}

/*  Walks from the entry of the root back to the first, running those that a gradient has reached, and takes these apart unless it retains them. A
    walk inside a backward function ends where the enclosing one stands. The output of the entry that the walk is at is held. */
static bool ignis__walk_run(ignis__walk *walk, ignis__node *root, ignis__array *gradient)
{
    uint64_t end = walk->outer ? walk->outer->at->serial : 0;
    ignis__node *node = root, *before;
    bool ok = true;
    ignis__tensor_rehold(root->output); /* as of every entry with a gradient */
    root->grad = gradient;
    ignis__tensor_rehold(root->output);
    if (!walk->outer && ignis__atomic_load(&ignis__grad_groups))
        ok = ignis__groups_count(walk, root);
    for (; node; node = before) {
        ignis__tensor *output = node->output;
        if (node->grad)
            ok = ok && ignis__walk_unchanged(walk, node) && ignis__walk_shape(walk, node) && ignis__walk_step(walk, node);
        if (node->counted)
            ok = ignis__groups_pass(walk, node, ok);
        before = ignis__node_before(walk->tape, node, end);
        if (node->grad) {
            if (walk->retains) {
                ignis__array_unclaim(walk->call, node->grad);
                node->grad = NULL;
            } else {
                ignis__node_consume(walk->call, node);
            }
            ignis__tensor_drop(walk->call, output);
        }
        ignis__tensor_drop(walk->call, output);
    }
    return ok;
}

/*  Writes the gradients of leaves. A walk inside a backward function writes those of leaves that the function has made, which wants to read them, and
    leaves the others to the enclosing walk: so when the outermost one fails, no leaf has changed. */
static bool ignis__walk_end(ignis__walk *walk, bool ok)
{
    ignis__reached **link = &walk->leaves, *reached;
    while (walk->outer && (reached = *link) != NULL) {
        ignis__array *sum = reached->sum;
        if (reached->leaf->made_in == walk->outer->serial) {
            link = &reached->next;
            continue;
        }
        if (ok && sum) {
            reached->sum = NULL;
            ok = ignis__walk_give_leaf(walk->outer, reached->leaf, sum, false);
        }
        *link = reached->next;
        reached->next = NULL;
        ignis__reached_end(walk->call, &reached);
    }
    ignis__walk_sums_drop(walk);
    ok = ok && ignis__leaves_write(walk->call, walk->leaves);
    ok = ignis__groups_end(walk, ok);
    ignis__reached_end(walk->call, &walk->leaves);
    ignis__free(walk->table);
    if (!ok && walk->outer)
        walk->outer->failed = true;
    return ok;
}

/*  An array of the caller's that is to be a tensor's gradient, held. Null, and reported, when it does not fit. */
static ignis__array *ignis__gradient_hold(const char *call, const ignis__tensor *tensor, ignis_array handle, const char *name)
{
    ignis__array *gradient = ignis__array_hold(call, handle);
    if (!gradient)
        return NULL;
    if (gradient->numel != ignis__tensor_numel(tensor))
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "%s is %s, the tensor is %s", name, ignis__shape_write(&gradient->shape).text,
                    ignis__shape_write(&tensor->shape).text);
    else if (gradient->dtype != tensor->dtype)
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "%s is %s, the tensor is %s", name, ignis__dtypes[gradient->dtype].name,
                    ignis__dtypes[tensor->dtype].name);
    else if (gradient->storage->device != tensor->device)
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "%s is on device %d, the tensor on device %d", name,
                    ignis__device_ordinal(gradient->storage->device), ignis__device_ordinal(tensor->device));
    else
        return gradient;
    ignis__array_drop(call, gradient);
    return NULL;
}

/*  The gradient that a backward starts from, claimed: the caller's, or 1, unwritten where the entry knows it. Null, reported: it does not fit. */
static ignis__array *ignis__backward_start(const char *call, const ignis__tensor *tensor, ignis_array grad_output, bool known)
{
    ignis_array_desc desc = IGNIS__ZERO;
    ignis_array made;
    ignis__array *gradient;
    if (grad_output.id) {
        gradient = ignis__gradient_hold(call, tensor, grad_output, "grad_output");
        if (!gradient)
            return NULL;
        /* through a view, which ends with the walk: the array itself stays the caller's */
        made = ignis__array_view(call, gradient, &gradient->shape, gradient->numel, 0);
        ignis__array_drop(call, gradient);
        return ignis__array_adopt(call, made);
    }
    if (ignis__tensor_numel(tensor) != 1) {
        ignis__fail(IGNIS_DIAG_BACKWARD_NOT_SCALAR, call, "a tensor of shape %s needs grad_output; without it there has to be one element",
                    ignis__shape_write(&tensor->shape).text);
        return NULL;
    }
    desc.shape = tensor->shape;
    desc.dtype = tensor->dtype;
    desc.device = ignis__device_in_desc(tensor->device);
    made = ignis__array_create(call, &desc);
    if (made.id && !known && ignis__array_set(call, made, 1.0) != IGNIS_OK)
        ignis__array_discard(call, &made);
    return ignis__array_adopt(call, made);
}

static ignis_status ignis__backward_held(const char *call, ignis__tensor *tensor, ignis_array grad_output, bool retains)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__standing standing = ignis__tensor_standing(tensor);
    ignis__walk walk;
    ignis__array *gradient;
    bool ok, runs, known;
    if (standing.walked)
        return ignis__fail(IGNIS_DIAG_BACKWARD_TWICE, call,
                           "the operations that made this tensor were released by an earlier backward or ignis_tape_clear; "
                           "run them again, or keep them with ignis_backward_retain");
    if (!standing.requires_grad)
        return ignis__fail(IGNIS_DIAG_NO_GRAD_WANTED, call,
                           "the tensor does not require a gradient, and none of the tensors that it was made of does");
    if (standing.node && standing.tape != thread->tape)
        return ignis__fail(IGNIS_DIAG_TAPE_OF_OTHER, call, "the tensor was recorded by another thread, whose tape it belongs to");
    if (thread->walk && !thread->walk->at)
        return ignis__fail(IGNIS_DIAG_TAPE_WALKED, call, "a backward of this thread is under way, outside of its backward functions");
    /* inside a backward function, what is older than its entry waits for the enclosing walk */
    runs = standing.node && (!thread->walk || standing.node->serial > thread->walk->at->serial);
    known = runs && !grad_output.id && standing.node->knows_one;
    gradient = ignis__backward_start(call, tensor, grad_output, known);
    if (!gradient)
        return ignis__failed();
    memset(&walk, 0, sizeof walk);
    walk.call = call;
    walk.tape = thread->tape;
    walk.retains = retains;
    walk.outer = thread->walk;
    walk.serial = ignis__atomic_add(&ignis__walk_serials, 1);
    walk.one = known ? gradient->slot.handle : 0;
    thread->walk = &walk;
    thread->walk_serial = walk.serial;
    ok = runs ? ignis__walk_run(&walk, standing.node, gradient) : ignis__walk_give(&walk, tensor, gradient, false);
    ok = ignis__walk_end(&walk, ok);
    thread->walk = walk.outer;
    thread->walk_serial = walk.outer ? walk.outer->serial : 0;
    return ok ? IGNIS_OK : ignis__failed();
}

static ignis_status ignis__backward(const char *call, ignis_tensor handle, ignis_array grad_output, bool retains)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_status status;
    if (!tensor)
        return ignis__failed();
    status = ignis__backward_held(call, tensor, grad_output, retains);
    ignis__tensor_drop(call, tensor);
    return status;
}

IGNIS_API ignis_status ignis_backward(ignis_tensor tensor, ignis_array grad_output)
{
    return ignis__backward("ignis_backward", tensor, grad_output, false);
}

IGNIS_API ignis_status ignis_backward_retain(ignis_tensor tensor, ignis_array grad_output)
{
    return ignis__backward("ignis_backward_retain", tensor, grad_output, true);
}

