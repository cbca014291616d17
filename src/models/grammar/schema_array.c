/*  models/grammar/schema_array.c - writes the rules of arrays

    Each item of prefixItems has a rule of its own; all later items share one. Items that have to differ have a rule for
    each set of values that are used.
    May use: schema_merge.c, schema_text.c. Locks: none. */

#include "room.h"

enum { IGNIS__SCHEMA_UNIQUE = 8 }; /* values of items that are all different, at most */

/*  Returns the schema of an item of one schema: `items`, or an element of a row of schemas. *rest: it is that of all
    items from this one on. NULL if any value may be there. */
static const char *ignis__schema_item(ignis__schema *schema, const ignis__schema_node *node, int number, bool *rest)
{
    const char *items = node->has[IGNIS__SCHEMA_ITEMS], *row = node->has[IGNIS__SCHEMA_PREFIX_ITEMS], *at;
    if (!row && items && *items == '[') {
        row = items;
        items = node->has[IGNIS__SCHEMA_ADDITIONAL_ITEMS];
    }
    for (at = row ? ignis__schema_first(row) : NULL; at && number > 0; number--)
        at = ignis__schema_next(schema, at);
    *rest = at == NULL;
    return at ? at : items;
}

/*  Collects the schemas of an item. *rest: they are those of all items from this one on. Returns their number. */
static int ignis__schema_items(ignis__schema *schema, const ignis__schema_merged *merged, int number,
                               ignis__schema_element *elements, bool *rest)
{
    int i, k, count = 0;
    *rest = true;
    for (i = 0; i < merged->count; i++) {
        bool ends;
        const char *at = ignis__schema_item(schema, &merged->node[i], number, &ends);
        *rest = *rest && ends;
        for (k = 0; at && k < count && elements[k] != 8 * (at - schema->text);)
            k++;
        if (at && k == count)
            elements[count++] = 8 * (at - schema->text);
    }
    return count;
}

/*  Writes the rules of arrays of different values of an enum: one for each set of values that are used. */
static void ignis__schema_write_unique(ignis__schema *schema, const ignis__schema_merged *merged, int number, int least,
                                       int most)
{
    ignis__schema_element elements[IGNIS__SCHEMA_MERGED];
    const char *values[IGNIS__SCHEMA_UNIQUE], *value = NULL;
    ignis__bytes *to = &schema->deferred;
    ignis__schema_merged *item;
    int count = 0, i, used, k, from = -1;
    bool rest;
    item = ignis__schema_merge(schema, elements, ignis__schema_items(schema, merged, 0, elements, &rest));
    for (i = 0; item && i < item->count && from < 0; i++)
        from = item->node[i].has[IGNIS__SCHEMA_CONST] || item->node[i].has[IGNIS__SCHEMA_ENUM] ? i : from;
    if (item && from >= 0) {
        const char *const *has = item->node[from].has;
        for (i = 0; i < item->count; i++)
            rest = rest && !item->node[i].has[IGNIS__SCHEMA_ANY_OF] && !item->node[i].has[IGNIS__SCHEMA_ONE_OF];
        for (value = has[IGNIS__SCHEMA_CONST] ? has[IGNIS__SCHEMA_CONST] : ignis__schema_first(has[IGNIS__SCHEMA_ENUM]);
             value; value = has[IGNIS__SCHEMA_CONST] ? NULL : ignis__schema_next(schema, value)) {
            for (k = 0; k < count && !ignis__schema_values_equal(schema, values[k], value);)
                k++;
            if (k < count || !ignis__schema_allows(schema, item, value))
                continue;
            rest = rest && count < IGNIS__SCHEMA_UNIQUE;
            if (!rest)
                break;
            values[count++] = value;
        }
    }
    if (item && (from < 0 || !rest))
        ignis__schema_fail_unsupported(schema, merged->node[0].at,
                                       "uniqueItems is supported for items that are one of "
                                       "up to %d values of an enum",
                                       (int)IGNIS__SCHEMA_UNIQUE);
    ignis__free(item);
    ignis__schema_write(schema, &schema->out, "\"[\" ws v%d-u0 \"]\"", number);
    for (i = 0; i < 1 << count && !schema->grammar->diagnostic; i++) {
        const char *bar = "";
        for (k = used = 0; k < count; k++)
            used += i >> k & 1;
        ignis__schema_write(schema, to, "v%d-u%d ::= ", number, i);
        for (k = 0; k < count && (most < 0 || used < most); k++)
            if (!(i >> k & 1)) {
                ignis__schema_write(schema, to, "%s%s", bar, i ? "\",\" ws " : "");
                ignis__schema_write_literal(schema, to, values[k]);
                ignis__schema_write(schema, to, " v%d-u%d", number, i | 1 << k);
                bar = " | ";
            }
        if (used >= least)
            ignis__schema_write(schema, to, "%s%s\n", bar, i ? "ws" : "\"\"");
        else
            ignis__schema_write(schema, to, *bar ? "\n" : "nothing\n");
    }
}

/*  Writes the rules of an array. Rule vN-ai is what may follow from item i on, as long as items have schemas of their
    own; all later items have one rule. */
IGNIS__PRIVATE void ignis__schema_write_array(ignis__schema *schema, const ignis__schema_merged *merged, int number)
{
    ignis__schema_element elements[IGNIS__SCHEMA_MERGED];
    ignis__bytes *to = &schema->deferred;
    int least, most, i, k, count;
    bool unique = false, rest = false, never;
    ignis__schema_read_counts(schema, merged, IGNIS__SCHEMA_MIN_ITEMS, &least, &most);
    if (most >= 0 && least > most) { /* schemas that contradict each other */
        ignis__schema_write(schema, &schema->out, "nothing");
        return;
    }
    for (i = 0; i < merged->count; i++)
        unique = unique || (merged->node[i].has[IGNIS__SCHEMA_UNIQUE_ITEMS] &&
                            *merged->node[i].has[IGNIS__SCHEMA_UNIQUE_ITEMS] == 't');
    if (unique && (most < 0 || most > 1)) {
        ignis__schema_write_unique(schema, merged, number, least, most);
        return;
    }
    ignis__schema_write(schema, &schema->out, "\"[\" ws v%d-a0 \"]\"", number);
    for (i = 0; !rest && !schema->grammar->diagnostic; i++) {
        count = ignis__schema_items(schema, merged, i, elements, &rest);
        for (k = 0, never = most >= 0 && i >= most; k < count; k++)
            never = never || schema->text[elements[k] / 8] == 'f';
        if (never && merged->count == 1 && least > i && (most < 0 || most > i))
            ignis__schema_fail_malformed(schema, merged->node[0].at, "no text fits: minItems is %d, and items false",
                                         least);
        ignis__schema_write(schema, to, "v%d-a%d ::= ", number, i);
        if (!never) {
            ignis__schema_write(schema, to, i ? "\",\" ws " : "");
            ignis__schema_write_name(schema, to, elements, count);
            if (rest) {
                ignis__schema_write(schema, to, " (\",\" ws ");
                ignis__schema_write_name(schema, to, elements, count);
                ignis__schema_write(schema, to, ")");
                ignis__schema_write_times(schema, to, least > i + 1 ? least - i - 1 : 0, most < 0 ? -1 : most - i - 1);
                ignis__schema_write(schema, to, " ws");
            } else {
                ignis__schema_write(schema, to, " v%d-a%d", number, i + 1);
            }
            ignis__schema_write(schema, to, i >= least ? " | " : "");
        }
        ignis__schema_write(schema, to, i >= least ? i ? "ws\n" : "\"\"\n" : never ? "nothing\n" : "\n");
        rest = rest || never;
    }
}
