/*  >>ops.einsum.equation - reads the equation of ignis_einsum, and checks it against the operands

    Labels are numbers: letters in ASCII order, then the dimensions of the dots. The last one of those is
    always the same label.
    Uses: operation. */

#include "room.h"

/*  Reports a fault at a character of the equation, beside the operation's other checks. */
IGNIS__PRINTF(3, 4)
IGNIS__COLD static bool ignis__equation_fail(ignis__einsum *e, const char *at, const char *format, ...)
{
    char reason[160];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return ignis__op_fail(e->op, IGNIS_DIAG_EQUATION, "column %d of '%.200s': %s", (int)(at - e->equation) + 1,
                          e->equation, reason);
}

/*  Returns the label of a letter; -1 of other characters. */
static int ignis__label_of(char letter)
{
    return letter >= 'A' && letter <= 'Z' ? letter - 'A' : letter >= 'a' && letter <= 'z' ? 26 + letter - 'a' : -1;
}

/*  Writes what a label is called. */
static const char *ignis__equation_label(int label, char name[40])
{
    if (label < IGNIS__LETTERS)
        snprintf(name, 40, "label %c", label < 26 ? 'A' + label : 'a' + label - 26);
    else
        snprintf(name, 40, "dimension %d of the dots", label - IGNIS__LABELS);
    return name;
}

/*  Appends the labels of dots that are `count` dimensions. */
static bool ignis__term_add_dots(ignis__einsum *e, const char *at, ignis__term *term, int count)
{
    int i;
    if (term->count + count > IGNIS_MAX_DIMS)
        return ignis__equation_fail(e, at, "more than %d dimensions", IGNIS_MAX_DIMS);
    for (i = 0; i < count; i++)
        term->label[term->count++] = (uint8_t)(IGNIS__LABELS - count + i);
    return true;
}

/*  Reads the labels of a term up to a comma, -> or the end: *end. dots: dimensions of the dots; -1: those that are left
    of `ndim`. */
static bool ignis__term_read(ignis__einsum *e, const char *at, ignis__term *term, int ndim, int dots, const char **end)
{
    const char *c;
    int letters = 0;
    for (c = at; *c && *c != ',' && *c != '-'; c++)
        letters += ignis__label_of(*c) >= 0;
    if (dots < 0 && letters > ndim)
        return ignis__equation_fail(e, at, "%d labels for operand %d, of %d dimensions", letters,
                                    (int)(term - e->terms), ndim);
    dots = dots < 0 ? ndim - letters : dots;
    for (c = at; *c && *c != ',' && *c != '-'; c++) {
        if (*c == ' ')
            continue;
        if (c[0] == '.' && c[1] == '.' && c[2] == '.') {
            if (term->has_dots)
                return ignis__equation_fail(e, c, "dots a second time in a term");
            term->has_dots = true;
            if (!ignis__term_add_dots(e, c, term, dots))
                return false;
            c += 2;
            continue;
        }
        if (ignis__label_of(*c) < 0)
            return ignis__equation_fail(e, c, "expected a letter, '...', ',' or '->'");
        if (term->count == IGNIS_MAX_DIMS)
            return ignis__equation_fail(e, c, "more than %d dimensions", IGNIS_MAX_DIMS);
        term->label[term->count++] = (uint8_t)ignis__label_of(*c);
    }
    *end = c;
    return true;
}

/*  Takes the sizes of an operand's labels. Labels of 1 that are longer elsewhere stay 1 in their term. */
static bool ignis__term_sizes(ignis__einsum *e, const char *at, ignis__term *term, const ignis_shape *shape)
{
    const int number = (int)(term - e->terms);
    char name[40];
    int i, k;
    if (term->count == 0 && shape->ndim == 1 && shape->dim[0] == 1)
        return true;
    if (term->count != shape->ndim)
        return ignis__op_fail(
            e->op, IGNIS_DIAG_SHAPE_DIFFERS, "column %d of '%.200s': %d labels for operand %d, which is %s",
            (int)(at - e->equation) + 1, e->equation, term->count, number, ignis__shape_write(shape).text);
    for (i = 0; i < term->count; i++) {
        int64_t *size = &e->size[term->label[i]];
        term->size[i] = shape->dim[i];
        for (k = 0; k < i; k++)
            if (term->label[k] == term->label[i] && term->size[k] != term->size[i])
                return ignis__op_fail(e->op, IGNIS_DIAG_SHAPE_DIFFERS,
                                      "column %d of '%.200s': the diagonal of operand %d, %s, of two sizes",
                                      (int)(at - e->equation) + 1, e->equation, number, ignis__shape_write(shape).text);
        if (*size < 0 || *size == 1)
            *size = shape->dim[i];
        else if (shape->dim[i] != 1 && shape->dim[i] != *size)
            return ignis__op_fail(e->op, IGNIS_DIAG_SHAPE_DIFFERS,
                                  "column %d of '%.200s': %s is %lld in operand %d, %s, and %lld in another one",
                                  (int)(at - e->equation) + 1, e->equation, ignis__equation_label(term->label[i], name),
                                  (long long)shape->dim[i], number, ignis__shape_write(shape).text, (long long)*size);
    }
    return true;
}

/*  Counts how often each label is in the operands. Returns the dimensions of the longest dots. */
static int ignis__labels_count(const ignis__einsum *e, int *counts)
{
    int dots = 0, i, k;
    memset(counts, 0, IGNIS__LABELS * sizeof *counts);
    for (i = 0; i < e->count; i++)
        for (k = 0; k < e->terms[i].count; k++) {
            const int label = e->terms[i].label[k];
            counts[label]++;
            if (IGNIS__LABELS - label > dots && label >= IGNIS__LETTERS)
                dots = IGNIS__LABELS - label;
        }
    return dots;
}

/*  Makes the labels of a result that the equation does not name. */
static bool ignis__result_imply(ignis__einsum *e, const char *at, const int *counts, int dots)
{
    int label;
    if (!ignis__term_add_dots(e, at, &e->result, dots))
        return false;
    for (label = 0; label < IGNIS__LETTERS; label++) {
        if (counts[label] != 1)
            continue;
        if (e->result.count == IGNIS_MAX_DIMS)
            return ignis__equation_fail(e, at, "a result of more than %d dimensions", IGNIS_MAX_DIMS);
        e->result.label[e->result.count++] = (uint8_t)label;
    }
    return true;
}

/*  Checks that labels of the result are in an operand, each once. */
static bool ignis__result_check(ignis__einsum *e, const char *at, const int *counts)
{
    uint64_t seen = 0;
    for (; *at; at++) {
        const int label = ignis__label_of(*at);
        if (label < 0)
            continue;
        if (!counts[label])
            return ignis__equation_fail(e, at, "label %c is in no operand", *at);
        if (seen >> label & 1)
            return ignis__equation_fail(e, at, "label %c a second time in the result", *at);
        seen |= (uint64_t)1 << label;
    }
    return true;
}

/*  Reads the equation of the operation's inputs. False, and reported, if it is not sound. */
IGNIS__PRIVATE bool ignis__equation_read(ignis__einsum *e)
{
    const char *at = e->equation, *end = at;
    int counts[IGNIS__LABELS], dots, i;
    for (i = 0; i < e->count; i++) {
        while (*at == ' ')
            at++;
        if (!ignis__term_read(e, at, &e->terms[i], e->op->in[i]->shape.ndim, -1, &end) ||
            !ignis__term_sizes(e, at, &e->terms[i], &e->op->in[i]->shape))
            return false;
        if (i < e->count - 1 && *end != ',')
            return ignis__equation_fail(e, end, "%d terms for %d operands", i + 1, e->count);
        at = i < e->count - 1 ? end + 1 : end;
    }
    if (*end == ',')
        return ignis__equation_fail(e, end, "more terms than operands, which are %d", e->count);
    dots = ignis__labels_count(e, counts);
    if (!*end)
        return ignis__result_imply(e, end, counts, dots);
    if (end[0] != '-' || end[1] != '>')
        return ignis__equation_fail(e, end, "expected '->'");
    at = end + 2;
    if (!ignis__term_read(e, at, &e->result, 0, dots, &end))
        return false;
    if (*end)
        return ignis__equation_fail(e, end, "expected the end");
    return ignis__result_check(e, at, counts);
}
