/*  >>formula.cache - formulas that were parsed, with their kernels

    Parses a formula once for each set of integer inputs, and keeps it until ignis_shutdown.
    Uses: lexer, parse, functions. Locks: ignis__formulas.lock guards the list and each formula's kernels and
    needs.
    Invariant: a formula in the list is never changed or freed before shutdown, so it is used without the
    lock. */

#include "room.h"

IGNIS__PRIVATE struct ignis__formulas_type ignis__formulas = {IGNIS__MUTEX_INIT, {0}};

/*  Parses a formula for the list. NULL if out of memory, or if *r has the error. */
IGNIS__COLD IGNIS__PRIVATE ignis__formula *ignis__formula_read(ignis__formula_parser *parser, const char *text,
                                                               const char *names, uint64_t hash, int count,
                                                               uint32_t integers)
{
    size_t text_size = strlen(text) + 1, names_size = strlen(names) + 1;
    ignis__formula *formula = (ignis__formula *)ignis__alloc(sizeof *formula + text_size + names_size);
    int i, k;
    memset(parser, 0, sizeof *parser);
    if (!formula)
        return NULL;
    formula->hash = hash;
    formula->integers = integers;
    formula->count = count;
    formula->text = (char *)(formula + 1);
    formula->names = formula->text + text_size;
    memcpy(formula->text, text, text_size);
    memcpy(formula->names, names, names_size);
    parser->text = formula->text;
    if (!ignis__formula_parse_names(formula->names, parser->name, &parser->name_count, IGNIS_MAX_INPUTS + 1))
        ignis__formula_syntax_error(
            parser, 0, "input %d, '%.*s', is no name; IGNIS_NAMED gives it one", parser->name_count - 1,
            (int)(parser->name[parser->name_count - 1].length < 60 ? parser->name[parser->name_count - 1].length : 60),
            parser->name[parser->name_count - 1].text);
    else if (parser->name_count != count)
        ignis__formula_syntax_error(parser, 0, "there are %d inputs, and %d names: %.200s", count, parser->name_count,
                                    names);
    else if (text_size > IGNIS__FORMULA_LENGTH)
        ignis__formula_syntax_error(parser, 0, "the formula is longer than %d characters", IGNIS__FORMULA_LENGTH - 1);
    parser->column = 0; /* no term of the formula is reused */
    for (i = 0; i < count && !*parser->fault; i++) {
        for (k = 0; k < i; k++)
            if (parser->name[i].length == parser->name[k].length &&
                strncmp(parser->name[i].text, parser->name[k].text, parser->name[i].length) == 0)
                ignis__formula_syntax_error(parser, (size_t)-1, "two inputs have the name '%.*s'",
                                            (int)parser->name[i].length, parser->name[i].text);
        parser->name[i].term =
            ignis__formula_add_leaf(parser, IGNIS__FORMULA_INPUT, integers >> i & 1 ? 'i' : 'w', i, NULL, 0);
    }
    parser->inputs = count;
    if (!*parser->fault)
        ignis__formula_parse_program(parser);
    if (!*parser->fault)
        formula->term = (ignis__formula_term *)ignis__alloc((size_t)parser->term_count * sizeof *formula->term);
    if (!formula->term) {
        ignis__free(formula);
        return NULL;
    }
    formula->term_count = parser->term_count;
    formula->result_count = parser->result_count;
    formula->randoms = parser->randoms;
    memcpy(formula->result, parser->result, sizeof formula->result);
    memcpy(formula->term, parser->term, (size_t)parser->term_count * sizeof *formula->term);
    return formula;
}

/*  Returns the formula of `count` inputs; bits of `integers` mark inputs that are integers. NULL, and
    reported, if it does not parse. */
IGNIS__PRIVATE ignis__formula *ignis__formula_get(const char *call, const char *text, const char *names, int count,
                                                  uint32_t integers)
{
    ignis__formula *formula, **list;
    ignis__formula_parser *parser;
    uint64_t hash =
        ignis__hash(ignis__hash(IGNIS__HASH_START + integers, text, strlen(text) + 1), names, strlen(names));
    list = &ignis__formulas.first[hash % (uint64_t)IGNIS__COUNT(ignis__formulas.first)];
    ignis__mutex_lock(&ignis__formulas.lock);
    for (formula = *list; formula; formula = formula->next)
        if (formula->hash == hash && formula->integers == integers && strcmp(formula->text, text) == 0 &&
            strcmp(formula->names, names) == 0)
            break;
    ignis__mutex_unlock(&ignis__formulas.lock);
    if (formula)
        return formula;
    parser = (ignis__formula_parser *)ignis__alloc(sizeof *parser);
    formula = parser ? ignis__formula_read(parser, text, names, hash, count, integers) : NULL;
    /* Two threads may parse the same text. Both formulas stay; the newer one is found. */
    if (formula) {
        ignis__mutex_lock(&ignis__formulas.lock);
        formula->next = *list;
        *list = formula;
        ignis__mutex_unlock(&ignis__formulas.lock);
    } else if (parser && *parser->fault && parser->column) {
        ignis__fail(IGNIS_DIAG_FORMULA, call, "column %d of '%.200s': %s", (int)parser->column, text, parser->fault);
    } else if (parser && *parser->fault) {
        ignis__fail(IGNIS_DIAG_FORMULA, call, "%s", parser->fault);
    } else {
        ignis__fail_host_memory(call, sizeof *parser);
    }
    ignis__free(parser);
    return formula;
}
