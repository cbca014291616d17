/*  models/grammar/schema_string.c - strings with a pattern, a format and a length, as rules of characters

    The canonical form of such a string has the shortest escape of each character that needs one, and no other escape.
    So a string has one text, and the automaton of its characters is that of its text.
    May use: regular_expression.c, string_set.c, schema_text.c. Locks: none. */

#include "room.h"

/*  Formats as regular expressions, whose strings have the format. Canonical forms leave out what is rare: leap
    seconds, the year 0, zones of IPv6, quoted names in addresses, hosts of more than 230 characters. */
#define IGNIS__FORMAT_YEAR "(\\d{3}[1-9]|\\d\\d[1-9]\\d|\\d[1-9]\\d\\d|[1-9]\\d{3})"
#define IGNIS__FORMAT_DATE                                                                              \
    "(" IGNIS__FORMAT_YEAR "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|" \
    "02-(0[1-9]|1\\d|2[0-8]))|(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)"
#define IGNIS__FORMAT_TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define IGNIS__FORMAT_LABEL "[A-Za-z0-9](-?[A-Za-z0-9]){0,15}"
#define IGNIS__FORMAT_HOST IGNIS__FORMAT_LABEL "(\\." IGNIS__FORMAT_LABEL "){0,6}"
#define IGNIS__FORMAT_ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
#define IGNIS__FORMAT_IPV4 "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)(\\.(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)){3}"
#define IGNIS__FORMAT_HEX "[0-9A-Fa-f]{1,4}"
#define IGNIS__FORMAT_UNIT "[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2}"
#define IGNIS__FORMAT_REST "(\\?(" IGNIS__FORMAT_UNIT "|[/?])*)?(#(" IGNIS__FORMAT_UNIT "|[/?])*)?"
#define IGNIS__FORMAT_AUTHORITY                                                                                     \
    "//(([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*(:\\d{0,5})?" \
    "(/(" IGNIS__FORMAT_UNIT ")*)*"
#define IGNIS__FORMAT_POINTER "(/([^/~]|~[01])*)*"

/*  NULL: a format of JSON Schema that is not supported. */
static const struct ignis__schema_format {
    const char *name, *pattern;
} ignis__schema_formats[] = {
    {"date", "^" IGNIS__FORMAT_DATE "$"},
    {"time", "^" IGNIS__FORMAT_TIME "$"},
    {"date-time", "^" IGNIS__FORMAT_DATE "T" IGNIS__FORMAT_TIME "$"},
    {"duration", "^P(\\d{1,9}W|(\\d{1,9}D|\\d{1,9}M(\\d{1,9}D)?|\\d{1,9}Y(\\d{1,9}M(\\d{1,9}D)?)?)"
                 "(T(\\d{1,9}S|\\d{1,9}M(\\d{1,9}S)?|\\d{1,9}H(\\d{1,9}M(\\d{1,9}S)?)?))?|"
                 "T(\\d{1,9}S|\\d{1,9}M(\\d{1,9}S)?|\\d{1,9}H(\\d{1,9}M(\\d{1,9}S)?)?))$"},
    {"uuid", "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"},
    {"ipv4", "^" IGNIS__FORMAT_IPV4 "$"},
    {"ipv6", "^((" IGNIS__FORMAT_HEX ":){7}" IGNIS__FORMAT_HEX "|(" IGNIS__FORMAT_HEX ":){1,7}:|(" IGNIS__FORMAT_HEX
             ":){1,6}:" IGNIS__FORMAT_HEX "|(" IGNIS__FORMAT_HEX ":){1,5}(:" IGNIS__FORMAT_HEX
             "){1,2}|(" IGNIS__FORMAT_HEX ":){1,4}(:" IGNIS__FORMAT_HEX "){1,3}|(" IGNIS__FORMAT_HEX
             ":){1,3}(:" IGNIS__FORMAT_HEX "){1,4}|(" IGNIS__FORMAT_HEX ":){1,2}(:" IGNIS__FORMAT_HEX
             "){1,5}|" IGNIS__FORMAT_HEX ":(:" IGNIS__FORMAT_HEX "){1,6}|:((:" IGNIS__FORMAT_HEX "){1,7}|:))$"},
    {"email", "^" IGNIS__FORMAT_ATOM "(\\." IGNIS__FORMAT_ATOM "){0,2}@" IGNIS__FORMAT_HOST "$"},
    {"hostname", "^" IGNIS__FORMAT_HOST "$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]*:(" IGNIS__FORMAT_AUTHORITY "|/?((" IGNIS__FORMAT_UNIT ")+(/(" IGNIS__FORMAT_UNIT
            ")*)*)?)" IGNIS__FORMAT_REST "$"},
    {"json-pointer", "^" IGNIS__FORMAT_POINTER "$"},
    {"relative-json-pointer", "^(0|[1-9]\\d{0,8})(#|" IGNIS__FORMAT_POINTER ")$"},
    {"idn-email", NULL},
    {"idn-hostname", NULL},
    {"uri-reference", NULL},
    {"uri-template", NULL},
    {"iri", NULL},
    {"iri-reference", NULL},
    {"regex", NULL},
};

/*  Intersects a set with the strings of a pattern. begun: the set is made already. */
static bool ignis__schema_add_pattern(ignis__schema *schema, const char *at, const char *text, size_t size,
                                      ignis__string_set *set, bool begun)
{
    ignis__string_set other;
    const char *reason = ignis__string_set_of_pattern(&other, text, size);
    if (reason) {
        ignis__schema_fail_unsupported(schema, at, "this regular expression is not supported: %s", reason);
        return false;
    }
    if (begun && !ignis__string_set_intersect(set, &other))
        ignis__schema_fail_unsupported(schema, at, "this is too large together with other keywords of strings");
    if (begun)
        ignis__string_set_free(&other);
    else
        *set = other;
    return !schema->grammar->diagnostic;
}

/*  Makes the set of strings of the keywords pattern and format, and of lengths beside them. False, and no set, if no
    schema has such a keyword, or after a fault. */
IGNIS__PRIVATE bool ignis__schema_make_strings(ignis__schema *schema, const ignis__schema_merged *merged,
                                               ignis__string_set *set)
{
    ignis__string_set lengths;
    const char *at, *name, *last = NULL;
    bool begun = false, ok = true;
    int i, k, least, most;
    size_t size;
    ignis__string_set_begin(set);
    for (i = 0; i < merged->count && ok; i++) {
        if ((at = merged->node[i].has[IGNIS__SCHEMA_PATTERN]) != NULL) {
            name = ignis__schema_read_string(schema, at, 0, &size);
            if (*at != '"')
                ignis__schema_fail_malformed(schema, at, "pattern has to be a string");
            ok = *at == '"' && ignis__schema_add_pattern(schema, at, name, size, set, begun);
            begun = begun || ok;
            last = at;
        }
        if (ok && (at = merged->node[i].has[IGNIS__SCHEMA_FORMAT]) != NULL) {
            name = ignis__schema_read_string(schema, at, 0, &size);
            for (k = 0; k < IGNIS__COUNT(ignis__schema_formats); k++)
                if (*at == '"' && strlen(ignis__schema_formats[k].name) == size &&
                    memcmp(ignis__schema_formats[k].name, name, size) == 0)
                    break;
            if (k == IGNIS__COUNT(ignis__schema_formats)) /* a word that JSON Schema does not define: a remark */
                continue;
            if (!ignis__schema_formats[k].pattern)
                ignis__schema_fail_unsupported(schema, at, "the format '%s' is not supported",
                                               ignis__schema_formats[k].name);
            ok = ignis__schema_formats[k].pattern &&
                 ignis__schema_add_pattern(schema, at, ignis__schema_formats[k].pattern,
                                           strlen(ignis__schema_formats[k].pattern), set, begun);
            begun = begun || ok;
            last = at;
        }
    }
    ignis__schema_read_counts(schema, merged, IGNIS__SCHEMA_MIN_LENGTH, &least, &most);
    if (begun && ok && (least > 0 || most >= 0)) {
        if (!ignis__string_set_of_lengths(&lengths, least, most < 0 || most >= least ? most : least) ||
            !ignis__string_set_intersect(set, &lengths))
            ignis__schema_fail_unsupported(schema, last, "this is too large together with minLength and maxLength");
        ignis__string_set_free(&lengths);
    }
    if (begun && !schema->grammar->diagnostic)
        return true;
    ignis__string_set_free(set); /* after a fault it may have been made */
    return false;
}

/*  Writes an alternative for each kind of character that leads from a state to another. */
static const char *ignis__schema_write_edges(ignis__schema *schema, const ignis__string_set *set,
                                             const ignis__string_set_state *state, int32_t to, const char *bar)
{
    static const char *const escapes[32] = {NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                            NULL, "b",  "t",  "n",  NULL, "f",  "r"};
    bool controls[32] = {false}, all = true;
    int i, k, count = 0;
    ignis__bytes *out = &schema->deferred;
    for (i = 0; i < state->count; i++) {
        const ignis__string_set_edge *edge =
            (const ignis__string_set_edge *)(const void *)set->edges.items + state->first + i;
        static const uint32_t borders[] = {0x20, 0x21, 0x23, 0x5B, 0x5D, IGNIS__STRING_SET_CODES - 1};
        if (edge->to != to)
            continue;
        for (k = 0; k < 32; k++)
            controls[k] = controls[k] || (edge->low <= (uint32_t)k && edge->high >= (uint32_t)k);
        for (k = 0; k < (schema->marker ? 2 : 6); k += 2) { /* characters that need no escape: in plain text all */
            uint32_t low = edge->low, high = edge->high;
            if (!schema->marker) {
                low = low > borders[k] ? low : borders[k];
                high = high < borders[k + 1] ? high : borders[k + 1];
            }
            if (low > high)
                continue;
            if (count == IGNIS__GRAMMAR_RANGES) {
                ignis__schema_write(schema, out, "] s%d-%d", schema->automata, (int)to);
                count = 0;
            }
            ignis__schema_write(schema, out,
                                count++  ? "\\U%08X-\\U%08X"
                                : bar[0] ? " | [\\U%08X-\\U%08X"
                                         : "[\\U%08X-\\U%08X",
                                (unsigned)low, (unsigned)high);
            bar = " | ";
        }
    }
    if (count)
        ignis__schema_write(schema, out, "] s%d-%d", schema->automata, (int)to);
    if (schema->marker)
        return bar;
    for (i = 0; i < state->count; i++) {
        const ignis__string_set_edge *edge =
            (const ignis__string_set_edge *)(const void *)set->edges.items + state->first + i;
        for (k = 0; edge->to == to && k < 2; k++)
            if (edge->low <= (k ? 0x5C : 0x22) && edge->high >= (k ? 0x5C : 0x22)) {
                ignis__schema_write(schema, out, "%s\"\\\\%s\" s%d-%d", bar, k ? "\\\\" : "\\\"", schema->automata,
                                    (int)to);
                bar = " | ";
            }
    }
    for (k = 0; k < 32; k++)
        all = all && controls[k];
    if (all) {
        ignis__schema_write(schema, out, "%scontrol s%d-%d", bar, schema->automata, (int)to);
        return " | ";
    }
    for (k = 0; k < 32; k++)
        if (controls[k]) {
            if (escapes[k])
                ignis__schema_write(schema, out, "%s\"\\\\%s\" s%d-%d", bar, escapes[k], schema->automata, (int)to);
            else
                ignis__schema_write(schema, out, "%s\"\\\\u00%02x\" s%d-%d", bar, (unsigned)k, schema->automata,
                                    (int)to);
            bar = " | ";
        }
    return bar;
}

/*  Writes the rules of the strings of a set after the line that is being written. Returns the number n of their first
    rule, "sn-0", which is what follows the quote at their begin. */
IGNIS__PRIVATE int ignis__schema_write_strings(ignis__schema *schema, const ignis__string_set *set)
{
    const ignis__string_set_state *states = (const ignis__string_set_state *)(const void *)set->states.items;
    const ignis__string_set_edge *edges = (const ignis__string_set_edge *)(const void *)set->edges.items;
    int32_t i, k, m;
    const char *bar;
    schema->automata++;
    for (i = 0; i < set->states.count && !schema->grammar->diagnostic; i++) {
        ignis__schema_write(schema, &schema->deferred, "s%d-%d ::= ", schema->automata, (int)i);
        bar = "";
        if (states[i].ends) {
            ignis__schema_write(schema, &schema->deferred, schema->marker ? "\"\"" : "\"\\\"\"");
            bar = " | ";
        }
        for (k = 0; k < states[i].count; k++) { /* each next state once */
            for (m = 0; m < k && edges[states[i].first + m].to != edges[states[i].first + k].to;)
                m++;
            if (m == k)
                bar = ignis__schema_write_edges(schema, set, &states[i], edges[states[i].first + k].to, bar);
            ignis__schema_count_work(schema, m);
        }
        ignis__schema_write(schema, &schema->deferred, *bar ? "\n" : "nothing\n");
    }
    return schema->automata;
}

/*  Writes strings of plain text, in which the marker does not occur. Where that needs too many states beside bounds of
    the length or a pattern, its first two characters do not occur, or the first one. */
IGNIS__PRIVATE void ignis__schema_write_plain_strings(ignis__schema *schema, const ignis__schema_merged *merged,
                                                      int least, int most)
{
    ignis__string_set set, others;
    size_t sizes[3] = {strlen(schema->marker)}; /* of the marker, and of its first two characters and one */
    int length = (int)(sizes[0] < 4 ? sizes[0] : 4), i;
    uint32_t code = ignis__utf8_code(schema->marker, &length);
    bool has_pattern = ignis__schema_make_strings(schema, merged, &set), ok = false;
    bool is_any = !has_pattern && least == 0 && most < 0;
    if (is_any && schema->grammar->any_plain && strcmp(schema->marker, schema->grammar->any_plain_marker) == 0) {
        ignis__schema_write(schema, &schema->out, "s%d-0", (int)schema->grammar->any_plain);
        return;
    }
    sizes[2] = (size_t)length;
    length = (int)(sizes[0] - sizes[2] < 4 ? sizes[0] - sizes[2] : 4);
    if (length > 0)
        (void)ignis__utf8_code(schema->marker + sizes[2], &length);
    sizes[1] = sizes[2] + (size_t)length;
    for (i = 0; i < 3 && !ok && !schema->grammar->diagnostic; i++) {
        ignis__string_set_begin(&others);
        ok = has_pattern || (i < 2 && ignis__string_set_of_lengths(&set, least, most));
        if (ok && !has_pattern) {
            int64_t states = set.states.count * (int64_t)sizes[i];
            ok = states <= 64 ||
                 (states <= IGNIS__SCHEMA_PLAIN << i * 2 && schema->grammar->plain + states <= 8 * IGNIS__SCHEMA_PLAIN);
            schema->grammar->plain += ok ? (int32_t)states : 0;
        }
        ok = ok && ignis__string_set_without(&others, schema->marker, sizes[i]) &&
             ignis__string_set_intersect(&set, &others);
        ignis__string_set_free(&others);
        if (!ok && !has_pattern)
            ignis__string_set_free(&set);
    }
    if (ok)
        ignis__schema_write(schema, &schema->out, "s%d-0", ignis__schema_write_strings(schema, &set));
    if (ok && is_any) {
        schema->grammar->any_plain = schema->automata;
        snprintf(schema->grammar->any_plain_marker, sizeof schema->grammar->any_plain_marker, "%s", schema->marker);
    }
    if (!ok && has_pattern)
        ignis__schema_fail_unsupported(schema, merged->node[0].at,
                                       "strings of this pattern are too large beside a marker");
    if (!ok && !has_pattern) {
        ignis__schema_write(schema, &schema->out, "[^\\x00\\U%08X]", (unsigned)code);
        ignis__schema_write_times(schema, &schema->out, least, most);
    }
    if (ok || has_pattern)
        ignis__string_set_free(&set);
}
