/*  >>formula.derivative - CUDA text of the terms and of their derivatives

    Writes each used term as one line, and derivatives by forward mode from the rows of the table of
    functions.
    Uses: functions, cache. Invariant: a derivative of 0 has no line, and a term is computed at most once. */

#include "room.h"

IGNIS__PRINTF(2, 3)
IGNIS__COLD IGNIS__PRIVATE void ignis__formula_emit(ignis__formula_text *text, const char *format, ...)
{
    for (;;) {
        size_t left = text->capacity - text->length, capacity = 2 * text->capacity + 4096;
        va_list args;
        int length;
        char *data;
        va_start(args, format);
        length = text->failed ? 0 : vsnprintf(text->data ? text->data + text->length : NULL, left, format, args);
        va_end(args);
        if (text->failed || (length >= 0 && (size_t)length < left)) {
            text->length += (size_t)length;
            return;
        }
        data = (char *)ignis__alloc(capacity);
        text->failed = !data || length < 0;
        if (data && text->length)
            memcpy(data, text->data, text->length);
        ignis__free(text->data);
        text->data = data;
        text->capacity = data ? capacity : 0;
    }
}

/*  Writes an integer constant. The smallest one has no literal in C. */
IGNIS__COLD static void ignis__formula_emit_integer(ignis__formula_text *t, int64_t number)
{
    if (number == INT64_MIN)
        ignis__formula_emit(t, "(-9223372036854775807LL-1)");
    else
        ignis__formula_emit(t, number < 0 ? "(%lldLL)" : "%lldLL", (long long)number);
}

IGNIS__COLD IGNIS__PRIVATE void ignis__formula_emit_term(ignis__formula_lines *lines, int at)
{
    const ignis__formula_term *term = &lines->formula->term[at];
    lines->used[at] = 1;
    if (term->function == IGNIS__FORMULA_INPUT)
        ignis__formula_emit(&lines->text, "x%d", (int)term->number);
    else if (term->function == IGNIS__FORMULA_INDEX)
        ignis__formula_emit(&lines->text, "i%d", at);
    else if (term->function == IGNIS__FORMULA_RAND)
        ignis__formula_emit(&lines->text, "r%d", (int)term->number);
    else if (term->function != IGNIS__FORMULA_NUMBER)
        ignis__formula_emit(&lines->text, "n%d", at);
    else if (!term->text) {
        ignis__formula_emit(&lines->text, term->type == 'w' ? "((W)" : "(");
        ignis__formula_emit_integer(&lines->text, term->number);
        ignis__formula_emit(&lines->text, ")");
    } else if (ignis__formula_is_digit(term->text[0]) || term->text[0] == '.') {
        bool whole = strspn(term->text, "0123456789") >= (size_t)term->length;
        ignis__formula_emit(&lines->text, "((W)%.*s%s)", (int)term->length, term->text, whole ? "." : "");
    } else
        ignis__formula_emit(&lines->text, "(%.*s)", (int)term->length, term->text);
}

/*  Writes a derivative by an input. */
IGNIS__COLD static void ignis__formula_emit_partial(ignis__formula_lines *lines, int partial, int input)
{
    if (partial > 1)
        ignis__formula_emit(&lines->text, "d%d_%d", partial - 2, input);
    else
        ignis__formula_emit(&lines->text, "(W)%d", partial);
}

/*  Writes a row's CUDA text for a term. partial: the argument's derivative, for $d. */
IGNIS__COLD static void ignis__formula_emit_row(ignis__formula_lines *lines, const char *row, int at, int partial,
                                                int input)
{
    const ignis__formula_term *term = &lines->formula->term[at];
    for (; *row; row++) {
        if (*row != '$') {
            ignis__formula_emit(&lines->text, "%c", *row);
            continue;
        }
        row++;
        if (*row == 'n')
            ignis__formula_emit_integer(&lines->text, term->number);
        else if (*row == 'd')
            ignis__formula_emit_partial(lines, partial, input);
        else
            ignis__formula_emit_term(lines, *row == 'r' ? at : term->arg[*row - 'a']);
    }
}

/*  Returns whether a term compares an integer with a number that is not a literal. Both are then compared as
    f64, as f32 would round them. */
static bool ignis__formula_compares_exactly(const ignis__formula *formula, const ignis__formula_term *term)
{
    const ignis__formula_function *f = &ignis__formula_functions[term->function];
    int i, integers = 0, numbers = 0;
    for (i = 0; i < f->count; i++) {
        integers += formula->term[term->arg[i]].function == IGNIS__FORMULA_WIDE;
        numbers += formula->term[term->arg[i]].function == IGNIS__FORMULA_NUMBER;
    }
    return f->type == 'b' && f->integer && f->count == 2 && integers > 0 && numbers == 0;
}

/*  Writes one side of such a comparison. */
IGNIS__COLD static void ignis__formula_emit_exact(ignis__formula_lines *lines, int at)
{
    const ignis__formula_term *term = &lines->formula->term[at];
    ignis__formula_emit(&lines->text, "(double)");
    if (term->function == IGNIS__FORMULA_INPUT) {
        lines->exact |= (uint32_t)1 << term->number;
        ignis__formula_emit(&lines->text, "v%d", (int)term->number);
    } else {
        ignis__formula_emit_term(lines, term->function == IGNIS__FORMULA_WIDE ? term->arg[0] : at);
    }
}

/*  Returns whether a choice may have made a derivative 0. */
IGNIS__PRIVATE bool ignis__formula_is_guarded(const ignis__formula_lines *lines, int partial, int input)
{
    return partial > 1 && lines->guarded[(partial - 2) * lines->formula->count + input];
}

/*  Adds an argument's contribution to a derivative: the function's partial derivative times the argument's
    own, which is not 0. */
IGNIS__COLD static void ignis__formula_emit_chain(ignis__formula_lines *lines, const char *row, int at, int partial,
                                                  int input)
{
    bool times = partial > 1 && strcmp(row, "1") != 0 && !strstr(row, "$d");
    bool guarded = times && ignis__formula_is_guarded(lines, partial, input);
    if (strcmp(row, "1") == 0) {
        ignis__formula_emit_partial(lines, partial, input);
        return;
    }
    if (guarded) {
        ignis__formula_emit(&lines->text, "(");
        ignis__formula_emit_partial(lines, partial, input);
        ignis__formula_emit(&lines->text, " == 0 ? (W)0 : ");
    }
    ignis__formula_emit(&lines->text, "(");
    ignis__formula_emit_row(lines, row, at, partial, input);
    ignis__formula_emit(&lines->text, times ? ")*" : ")");
    if (times)
        ignis__formula_emit_partial(lines, partial, input);
    if (guarded)
        ignis__formula_emit(&lines->text, ")");
}

/*  Writes the derivatives of each term by each needed input, in the order of the terms (forward mode). */
IGNIS__COLD static void ignis__formula_emit_partials(ignis__formula_lines *lines, uint32_t needed,
                                                     const unsigned char *live)
{
    const ignis__formula *formula = lines->formula;
    int at, input, i, count = formula->count;
    for (at = 0; at < formula->term_count; at++) {
        const ignis__formula_term *term = &formula->term[at];
        const ignis__formula_function *function = &ignis__formula_functions[term->function];
        short *partial = lines->partial + at * count;
        if (!live[at] || term->type != 'w')
            continue;
        if (term->function == IGNIS__FORMULA_INPUT) {
            partial[term->number] = (short)(needed >> term->number & 1);
            continue;
        }
        for (input = 0; input < count; input++) {
            short of[3] = {0, 0, 0};
            int terms = 0, last = 0;
            bool select = term->function == IGNIS__FORMULA_SELECT, guarded = !select;
            for (i = select; i < function->count; i++) {
                of[i] = lines->partial[term->arg[i] * count + input];
                if (of[i] && (select || function->partial[i]))
                    terms++, last = i;
            }
            if (!terms)
                continue;
            if (select
                    ? of[1] == of[2]
                    : terms == 1 && strcmp(function->partial[last], "1") == 0) { /* the argument's derivative itself */
                partial[input] = of[last];
                continue;
            }
            partial[input] = (short)(2 + at);
            ignis__formula_emit(&lines->text, "    const W d%d_%d = ", at, input);
            if (select) {
                ignis__formula_emit_term(lines, term->arg[0]);
                ignis__formula_emit(&lines->text, " ? ");
                ignis__formula_emit_partial(lines, of[1], input);
                ignis__formula_emit(&lines->text, " : ");
                ignis__formula_emit_partial(lines, of[2], input);
                guarded = !of[1] || !of[2] || ignis__formula_is_guarded(lines, of[1], input) ||
                          ignis__formula_is_guarded(lines, of[2], input);
            }
            for (i = 0, last = terms; i < function->count && !select; i++) {
                if (!of[i] || !function->partial[i])
                    continue;
                if (terms-- < last)
                    ignis__formula_emit(&lines->text, " + ");
                ignis__formula_emit_chain(lines, function->partial[i], at, of[i], input);
                guarded =
                    guarded && (strstr(function->partial[i], "$d") || ignis__formula_is_guarded(lines, of[i], input));
            }
            lines->guarded[at * count + input] = guarded;
            ignis__formula_emit(&lines->text, ";\n");
        }
    }
}

/*  Marks the arguments of all marked terms. */
static void ignis__formula_mark_arguments(const ignis__formula *formula, unsigned char *used)
{
    int at, i;
    for (at = formula->term_count - 1; at >= 0; at--)
        for (i = 0; used[at] && i < ignis__formula_functions[formula->term[at].function].count; i++)
            used[formula->term[at].arg[i]] = 1;
}

/*  Writes the values of `count` results from `first` on, and the derivatives by some inputs.
    ignis__formula_lines_free frees the lines. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__formula_lines_write(ignis__formula_lines *lines, const ignis__formula *formula,
                                                           int first, int count, uint32_t needed, bool value)
{
    static const char types[] = "wib";
    static const char *const names[] = {"W", "i64", "bool"};
    size_t terms = (size_t)formula->term_count;
    unsigned char *live;
    ignis__formula_text partials;
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
    ignis__formula_mark_arguments(formula, live);
    if (needed)
        ignis__formula_emit_partials(lines, needed, live);
    ignis__formula_mark_arguments(formula, lines->used);
    partials = lines->text;
    memset(&lines->text, 0, sizeof lines->text);
    for (at = 0; at < formula->term_count; at++) {
        const ignis__formula_term *term = &formula->term[at];
        const ignis__formula_function *function = &ignis__formula_functions[term->function];
        bool integers =
            function->integer && (term->type == 'i' || (term->type == 'b' && formula->term[term->arg[0]].type != 'w'));
        if (!lines->used[at] || term->function <= IGNIS__FORMULA_RAND)
            continue;
        ignis__formula_emit(&lines->text, "    const %s n%d = ", names[strchr(types, term->type) - types], at);
        if (ignis__formula_compares_exactly(formula, term)) {
            ignis__formula_emit_exact(lines, term->arg[0]);
            ignis__formula_emit(&lines->text, " %s ", function->name);
            ignis__formula_emit_exact(lines, term->arg[1]);
        } else {
            ignis__formula_emit_row(lines, integers ? function->integer : function->value, at, 0, 0);
        }
        ignis__formula_emit(&lines->text, ";\n");
    }
    if (partials.length)
        ignis__formula_emit(&lines->text, "%s", partials.data);
    lines->text.failed = lines->text.failed || partials.failed;
    ignis__free(partials.data);
    return !lines->text.failed;
}

IGNIS__PRIVATE void ignis__formula_lines_free(ignis__formula_lines *lines)
{
    ignis__free(lines->text.data);
    ignis__free(lines->used);
    ignis__free(lines->partial);
}

/*  Returns whether a reduction's gradient needs the value besides what the reduction saved. */
IGNIS__PRIVATE bool ignis__formula_saves_value(int kept)
{
    return kept == IGNIS_REDUCE_LOGSUMEXP || kept == IGNIS_REDUCE_NORM || kept == IGNIS_REDUCE_PROD;
}

/*  Returns whether a reduction computes in W for integers too. Its state has two numbers. */
IGNIS__PRIVATE bool ignis__formula_reduces_wide(int reduction)
{
    return reduction == IGNIS_REDUCE_LOGSUMEXP || reduction == IGNIS_REDUCE_NORM;
}

/*  Finds what the gradients of a result by some inputs need. False, and reported, if out of memory. */
IGNIS__PRIVATE bool ignis__formula_needs_get(const char *call, ignis__formula *formula, int result, uint32_t needed,
                                             bool value, ignis__formula_needs *needs)
{
    uint32_t key = needed | (uint32_t)result << 16 | (uint32_t)value << 31;
    ignis__formula_lines lines;
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
    ok = ignis__formula_lines_write(&lines, formula, result, 1, needed, value);
    memset(needs, 0, sizeof *needs);
    needs->needed = key;
    for (i = 0; ok && i < formula->count; i++) { /* the first terms are the inputs */
        needs->used |= (uint32_t)(lines.used[i] != 0) << i;
        needs->same |= (uint32_t)(lines.partial[formula->result[result] * formula->count + i] == 1) << i;
    }
    ignis__formula_lines_free(&lines);
    if (!ok) {
        ignis__fail_host_memory(call, 1);
        return false;
    }
    ignis__mutex_lock(&ignis__formulas.lock);
    formula->needs[formula->needs_next++ % IGNIS__COUNT(formula->needs)] = *needs;
    ignis__mutex_unlock(&ignis__formulas.lock);
    return true;
}
