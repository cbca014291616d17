/* ===============================================================================================================
   >>grammar - the texts that a grammar allows

   GBNF and JSON Schema become rules of bytes; rules become states; states become masks of a vocabulary.
   May use: >>text. Locks: none.
   =============================================================================================================== */

#include "room.h"

IGNIS__PRINTF(4, 5)
IGNIS__COLD IGNIS__PRIVATE bool ignis__grammar_fail(ignis__grammar *grammar, ignis_diagnostic diagnostic,
                                                    const char *at, const char *format, ...)
{
    ignis__string_writer text;
    int line, column;
    va_list args;
    if (grammar->diagnostic != IGNIS_DIAG_NONE)
        return false;
    grammar->diagnostic = diagnostic;
    ignis__string_begin(&text, grammar->fault, sizeof grammar->fault);
    if (at && at >= grammar->text && at <= grammar->text + strlen(grammar->text)) { /* else of a schema within GBNF */
        ignis__text_place(grammar->text, at, &line, &column);
        ignis__string_add(&text, "%sline %d, column %d: ",
                          grammar->text == grammar->source ? "" : "of the grammar of the schema, ", line, column);
    }
    va_start(args, format);
    ignis__string_addv(&text, format, args);
    va_end(args);
    return false;
}

IGNIS__COLD IGNIS__PRIVATE void *ignis__grammar_add(ignis__grammar *grammar, ignis__list *list)
{
    void *item = ignis__list_add(list);
    if (item)
        memset(item, 0, list->size);
    else
        ignis__grammar_fail(grammar, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
    return item;
}
