/*  models/grammar/gbnf.c - parses GBNF into rules of bytes

    Rules that begin with themselves are refused. Alternatives that never end are removed, so a text that the
    matcher allows can always be completed.
    May use: grammar.c. Locks: none. */

#include "room.h"

typedef struct ignis__grammar_reader {
    ignis__grammar *g;
    const char *at, *end;
    ignis__list row; /* parts of the alternatives that are being read, the innermost last */
    int64_t looked;  /* names that were compared */
} ignis__grammar_reader;

#define ignis__grammar_wrong(r, ...) ignis__grammar_fail((r)->g, IGNIS_DIAG_GRAMMAR, (r)->at, __VA_ARGS__)

static void ignis__grammar_blank(ignis__grammar_reader *r, bool lines)
{
    for (;; r->at++) {
        if (r->at < r->end && *r->at == '#')
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        if (r->at == r->end || !(*r->at == ' ' || *r->at == '\t' || *r->at == '\r' || (lines && *r->at == '\n')))
            return;
    }
}

static bool ignis__grammar_take(ignis__grammar_reader *r, char c)
{
    bool is = !r->g->diagnostic && r->at < r->end && *r->at == c;
    r->at += is;
    return is;
}

/*  Makes an anonymous rule. -1 without memory. */
static int32_t ignis__grammar_rule_new(ignis__grammar *g)
{
    ignis__grammar_rule *rule = (ignis__grammar_rule *)ignis__grammar_add(g, &g->rules);
    if (!rule)
        return -1;
    rule->alternatives = rule->calls = rule->named = -1;
    return (int32_t)g->rules.count - 1;
}

static void ignis__grammar_push(ignis__grammar_reader *r, int32_t rule, int low, int high)
{
    ignis__grammar_part *part = NULL;
    if (r->row.count + r->g->parts.count >= IGNIS__GRAMMAR_PARTS)
        ignis__grammar_fail(r->g, IGNIS_DIAG_UNSUPPORTED, r->at, "with this the grammar has more than %d parts",
                            (int)IGNIS__GRAMMAR_PARTS);
    else if (!r->g->diagnostic)
        part = (ignis__grammar_part *)ignis__grammar_add(r->g, &r->row);
    if (!part)
        return;
    part->rule = rule;
    part->low = (unsigned char)low;
    part->high = (unsigned char)high;
}

/*  Makes the parts from `from` on another alternative of a rule. */
static void ignis__grammar_close(ignis__grammar_reader *r, int32_t rule, int64_t from)
{
    ignis__grammar *g = r->g;
    ignis__grammar_alternative *to = NULL;
    ignis__grammar_part *part;
    int64_t i;
    ignis__grammar_push(r, IGNIS__GRAMMAR_END, 0, 0);
    if (!g->diagnostic)
        to = (ignis__grammar_alternative *)ignis__grammar_add(g, &g->alternatives);
    if (to) {
        to->rule = rule;
        to->first = (int32_t)g->parts.count;
        to->next = IGNIS__GRAMMAR_AT(g, rule, rules, rule)->alternatives;
        IGNIS__GRAMMAR_AT(g, rule, rules, rule)->alternatives = (int32_t)g->alternatives.count - 1;
    }
    for (i = from; to && i < r->row.count && (part = (ignis__grammar_part *)ignis__grammar_add(g, &g->parts)) != NULL;
         i++) {
        *part = ((ignis__grammar_part *)(void *)r->row.items)[i];
        part->alternative = (int32_t)g->alternatives.count - 1;
        if (part->rule >= 0) {
            to->open++;
            part->other = IGNIS__GRAMMAR_AT(g, rule, rules, part->rule)->calls;
            IGNIS__GRAMMAR_AT(g, rule, rules, part->rule)->calls = (int32_t)g->parts.count - 1;
        }
    }
    r->row.count = from;
}

/*  Reads a character of a literal or a class. -1 after a fault. */
static int64_t ignis__grammar_character(ignis__grammar_reader *r)
{
    static const char names[] = "nrt\\\"[]xuU", values[] = "\n\r\t\\\"[]";
    const char *known, *begin = r->at;
    int length = ignis__utf8_length(r->at, (size_t)(r->end - r->at));
    int64_t code;
    if (length == 0) {
        ignis__grammar_wrong(r, r->at == r->end ? "the text ends within quotes or brackets" : "this is not UTF-8");
        return -1;
    }
    code = ignis__utf8_code(r->at, &length);
    r->at += length;
    if (code != '\\')
        return code;
    known = r->at < r->end ? strchr(names, *r->at) : NULL;
    if (!known) {
        r->at = begin;
        ignis__grammar_wrong(r, "a backslash is followed by an unknown escape");
        return -1;
    }
    r->at++;
    if (known - names < 7)
        return values[known - names];
    code = 0;
    for (length = 2 << (known - names - 7);
         length > 0 && r->at < r->end && *r->at && strchr("0123456789abcdefABCDEF", *r->at); length--, r->at++)
        code = code * 16 + (*r->at <= '9' ? *r->at - '0' : (*r->at | 32) - 'a' + 10);
    if (length == 0 && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF))
        return code;
    r->at = begin;
    ignis__grammar_wrong(r, length ? "an escape has too few digits" : "there is no such character");
    return -1;
}

/*  Adds the characters of a range as alternatives of a rule. Ranges are split until either the first bytes
    are equal or all following bytes are allowed. */
static void ignis__grammar_range(ignis__grammar_reader *r, int32_t rule, uint32_t low, uint32_t high)
{
    static const uint32_t borders[] = {0x7F, 0x7FF, 0xD7FF, 0xDFFF,
                                       0xFFFF}; /* borders of the UTF-8 lengths, and the surrogates */
    int64_t from = r->row.count;
    char first[4], last[4];
    uint32_t cut = 0, bits;
    int i, length;
    for (i = 0; i < IGNIS__COUNT(borders) && !cut; i++)
        cut = low <= borders[i] && high > borders[i] ? borders[i] + 1 : 0;
    for (bits = 0x3F; low > 0x7F && !cut && bits <= 0x3FFFF; bits = bits << 6 | 0x3F)
        if ((low & ~bits) != (high & ~bits))
            cut = low & bits ? (low | bits) + 1 : (high & bits) != bits ? high & ~bits : 0;
    if (cut) {
        ignis__grammar_range(r, rule, low, cut - 1);
        ignis__grammar_range(r, rule, cut, high);
        return;
    }
    if (low >= 0xD800 && high <= 0xDFFF)
        return;
    length = ignis__utf8_write(first, low);
    (void)ignis__utf8_write(last, high);
    for (i = 0; i < length; i++)
        ignis__grammar_push(r, IGNIS__GRAMMAR_BYTE, (unsigned char)first[i], (unsigned char)last[i]);
    ignis__grammar_close(r, rule, from);
}

/*  Reads a class after its bracket. any: the dot, which is any character. */
static void ignis__grammar_class(ignis__grammar_reader *r, bool any)
{
    uint64_t ranges[IGNIS__GRAMMAR_RANGES];
    int64_t low, high;
    uint32_t next = 0;
    int32_t rule = ignis__grammar_rule_new(r->g);
    int count = 0, i;
    bool others = any || ignis__grammar_take(r, '^');
    while (!any && !r->g->diagnostic && !ignis__grammar_take(r, ']')) {
        low = high = ignis__grammar_character(r);
        if (r->end - r->at > 1 && r->at[0] == '-' && r->at[1] != ']') {
            r->at++;
            high = ignis__grammar_character(r);
        }
        if (low > high)
            ignis__grammar_wrong(r, "a range ends before it begins");
        else if (count == IGNIS__GRAMMAR_RANGES)
            ignis__grammar_wrong(r, "a class has more than %d ranges", (int)IGNIS__GRAMMAR_RANGES);
        else
            ranges[count++] = (uint64_t)low << 32 | (uint64_t)high;
    }
    if (r->g->diagnostic)
        return;
    qsort(ranges, (size_t)count, sizeof *ranges, ignis__u64_order);
    for (i = 0; i < count; i++) {
        uint32_t begin = (uint32_t)(ranges[i] >> 32), end = (uint32_t)ranges[i];
        if (!others)
            ignis__grammar_range(r, rule, begin, end);
        else if (begin > next)
            ignis__grammar_range(r, rule, next, begin - 1);
        next = end >= next ? end + 1 : next;
    }
    if (others && next <= 0x10FFFF)
        ignis__grammar_range(r, rule, next, 0x10FFFF);
    ignis__grammar_push(r, rule, 0, 0);
}

/*  Reads a count of a repetition. */
static int ignis__grammar_number(ignis__grammar_reader *r)
{
    const char *begin = r->at;
    int number = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        number = number < IGNIS__GRAMMAR_PARTS ? number * 10 + (*r->at - '0') : number;
    if (r->at == begin)
        ignis__grammar_wrong(r, "a number is missing");
    return number;
}

/*  Repeats the parts after `from` from `least` to `most` times; without a limit if most is below 0. */
static void ignis__grammar_repeat(ignis__grammar_reader *r, int64_t from, int least, int most)
{
    ignis__grammar_part part;
    int32_t rule, rest = -1;
    int64_t top;
    int i;
    if (r->row.count - from != 1) {
        rule = ignis__grammar_rule_new(r->g);
        ignis__grammar_close(r, rule, from);
        ignis__grammar_push(r, rule, 0, 0);
    }
    if (r->g->diagnostic)
        return;
    part = ((ignis__grammar_part *)(void *)r->row.items)[--r->row.count];
    for (i = 0; i < least && !r->g->diagnostic; i++)
        ignis__grammar_push(r, part.rule, part.low, part.high);
    for (i = most < 0 ? -1 : least; (i < most || (most < 0 && rest < 0)) && !r->g->diagnostic; i++) {
        top = r->row.count; /* rest: once more and the rest after it, or nothing */
        if ((rule = ignis__grammar_rule_new(r->g)) < 0)
            return;
        ignis__grammar_close(r, rule, top);
        ignis__grammar_push(r, part.rule, part.low, part.high);
        if (most < 0 || rest >= 0)
            ignis__grammar_push(r, most < 0 ? rule : rest, 0, 0);
        ignis__grammar_close(r, rule, top);
        rest = rule;
    }
    if (rest >= 0)
        ignis__grammar_push(r, rest, 0, 0);
}

static const char ignis__grammar_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/*  Returns the rule of a name, and makes it if it is new. -1 after a fault. */
static int32_t ignis__grammar_name(ignis__grammar_reader *r)
{
    const char *name = r->at;
    ignis__grammar_rule *rule;
    int32_t *bucket, i;
    size_t size = strspn(name, ignis__grammar_letters);
    if (size == 0) {
        ignis__grammar_wrong(r, "the name of a rule is missing");
        return -1;
    }
    r->at += size;
    bucket = &r->g->rule_of[ignis__token_hash(name, size) % 256];
    if (r->looked > IGNIS__GRAMMAR_LOOKED) {
        ignis__grammar_fail(r->g, IGNIS_DIAG_UNSUPPORTED, r->at,
                            "the grammar has too many names: %lld had to be looked at", (long long)r->looked);
        return -1;
    }
    for (i = *bucket; i >= 0; i = rule->named) {
        rule = IGNIS__GRAMMAR_AT(r->g, rule, rules, i);
        r->looked += 1 + ((size_t)rule->size == size ? (int64_t)size / 64 : 0);
        if ((size_t)rule->size == size && memcmp(rule->name, name, size) == 0)
            return i;
    }
    if ((i = ignis__grammar_rule_new(r->g)) < 0)
        return -1;
    rule = IGNIS__GRAMMAR_AT(r->g, rule, rules, i);
    rule->name = name;
    rule->size = (int32_t)size;
    rule->named = *bucket;
    return *bucket = i;
}

/*  Reads the alternatives of a rule. nested: the depth of groups, inside which a line end does not end a
    rule. */
static void ignis__grammar_alternatives(ignis__grammar_reader *r, int32_t rule, int nested)
{
    int64_t from = r->row.count, last = -1;
    int64_t code;
    int32_t group;
    int least, most;
    char bytes[4];
    if (nested > IGNIS__GRAMMAR_NESTED)
        ignis__grammar_wrong(r, "groups are nested deeper than %d", (int)IGNIS__GRAMMAR_NESTED);
    while (!r->g->diagnostic) {
        ignis__grammar_blank(r, nested > 0);
        if (ignis__grammar_take(r, '|')) {
            ignis__grammar_close(r, rule, from);
            ignis__grammar_blank(r, true);
            last = -1;
        } else if (r->at < r->end && strchr("*+?{", *r->at) && *r->at) {
            if (last < 0)
                ignis__grammar_wrong(r, "there is nothing to repeat");
            least = *r->at == '+';
            most = *r->at == '?' ? 1 : -1;
            if (*r->at++ == '{') {
                ignis__grammar_blank(r, nested > 0);
                least = most = ignis__grammar_number(r);
                ignis__grammar_blank(r, nested > 0);
                if (ignis__grammar_take(r, ',')) {
                    ignis__grammar_blank(r, nested > 0);
                    most = r->at < r->end && *r->at == '}' ? -1 : ignis__grammar_number(r);
                    ignis__grammar_blank(r, nested > 0);
                }
                if (!ignis__grammar_take(r, '}') || (most >= 0 && most < least))
                    ignis__grammar_wrong(r, most >= 0 && most < least ? "the second number is below the first"
                                                                      : "a } is missing");
            }
            if (!r->g->diagnostic)
                ignis__grammar_repeat(r, last, least, most);
        } else {
            int64_t begin = r->row.count;
            if (ignis__grammar_take(r, '"')) {
                while (!r->g->diagnostic && !ignis__grammar_take(r, '"'))
                    if ((code = ignis__grammar_character(r)) >= 0)
                        for (most = ignis__utf8_write(bytes, (uint32_t)code), least = 0; least < most; least++)
                            ignis__grammar_push(r, IGNIS__GRAMMAR_BYTE, (unsigned char)bytes[least],
                                                (unsigned char)bytes[least]);
            } else if (ignis__grammar_take(r, '[')) {
                ignis__grammar_class(r, false);
            } else if (ignis__grammar_take(r, '.')) {
                ignis__grammar_class(r, true);
            } else if (ignis__grammar_take(r, '(')) {
                if ((group = ignis__grammar_rule_new(r->g)) >= 0)
                    ignis__grammar_alternatives(r, group, nested + 1);
                if (!ignis__grammar_take(r, ')'))
                    ignis__grammar_wrong(r, r->at == r->end ? "a ) is missing"
                                                            : "this begins nothing that a group may have");
                ignis__grammar_push(r, group, 0, 0);
            } else if (r->at < r->end && *r->at && strchr(ignis__grammar_letters, *r->at)) {
                ignis__grammar_push(r, ignis__grammar_name(r), 0, 0);
            } else {
                break;
            }
            last = begin;
        }
    }
    ignis__grammar_close(r, rule, from);
}

/*  Refuses left recursion: a rule that calls itself before any byte would never end. A rule that ends with
    itself is allowed. Finds also which rules match the empty text. */
static bool ignis__grammar_begins(ignis__grammar *g)
{
    ignis__grammar_rule *rules = IGNIS__GRAMMAR_AT(g, rule, rules, 0), *rule, *to;
    const ignis__grammar_alternative *alternatives = IGNIS__GRAMMAR_AT(g, alternative, alternatives, 0);
    const ignis__grammar_part *parts = IGNIS__GRAMMAR_AT(g, part, parts, 0), *part;
    int32_t i, now;
    for (i = 0; i < g->rules.count; i++)
        for (now = rules[i].seen ? -1 : i; now >= 0;) {
            rule = &rules[now];
            if (!rule->seen) {
                rule->seen = 1;
                rule->caller = now == i ? -1 : rule->caller;
                rule->at = rule->alternatives;
                rule->at_part = rule->at < 0 ? -1 : alternatives[rule->at].first;
            }
            if (rule->at < 0) {
                rule->seen = 2;
                now = rule->caller;
                continue;
            }
            part = &parts[rule->at_part];
            to = part->rule < 0 ? NULL : &rules[part->rule];
            if (to && !to->seen) {
                to->caller = now;
                now = part->rule;
                continue;
            }
            if (to && to->seen == 1 && !(to == rule && part[1].rule == IGNIS__GRAMMAR_END)) {
                while (!to->name && to->caller >= 0)
                    to = &rules[to->caller];
                return ignis__grammar_fail(g, IGNIS_DIAG_GRAMMAR, to->name,
                                           "the rule '%.*s' begins with itself, by left recursion",
                                           to->size > 60 ? 60 : (int)to->size, to->name ? to->name : "");
            }
            rule->empty = rule->empty || part->rule == IGNIS__GRAMMAR_END;
            if (to && to->seen == 2 && to->empty) {
                rule->at_part++;
            } else {
                rule->at = alternatives[rule->at].next;
                rule->at_part = rule->at < 0 ? -1 : alternatives[rule->at].first;
            }
        }
    return true;
}

/*  Removes alternatives that no text completes, so a text that the matcher allows can always be completed. */
static bool ignis__grammar_ends(ignis__grammar *g)
{
    ignis__grammar_rule *rules = IGNIS__GRAMMAR_AT(g, rule, rules, 0);
    ignis__grammar_alternative *alternatives = IGNIS__GRAMMAR_AT(g, alternative, alternatives, 0);
    const ignis__grammar_part *parts = IGNIS__GRAMMAR_AT(g, part, parts, 0);
    int32_t i, part, last = -1, *link;
    for (i = 0; i < g->alternatives.count; i++) {
        int32_t rule = alternatives[i].rule;
        if (alternatives[i].open || rules[rule].ends)
            continue;
        rules[rule].ends = true;
        for (rules[rule].caller = -1, last = rule;
             last >= 0;) { /* a list of rules that end and whose callers are not updated yet */
            rule = last;
            last = rules[rule].caller;
            for (part = rules[rule].calls; part >= 0; part = parts[part].other) {
                ignis__grammar_alternative *in = &alternatives[parts[part].alternative];
                if (--in->open == 0 && !rules[in->rule].ends) {
                    rules[in->rule].ends = true;
                    rules[in->rule].caller = last;
                    last = in->rule;
                }
            }
        }
    }
    for (i = 0; i < g->rules.count; i++)
        for (link = &rules[i].alternatives; *link >= 0;)
            if (alternatives[*link].open)
                *link = alternatives[*link].next;
            else
                link = &alternatives[*link].next;
    return rules[g->root].ends ||
           ignis__grammar_fail(g, IGNIS_DIAG_GRAMMAR, rules[g->root].name, "no text of the rule 'root' ever ends");
}

/*  Parses the GBNF in g->text into rules. */
IGNIS__PRIVATE bool ignis__grammar_read(ignis__grammar *g)
{
    ignis__grammar_reader r = IGNIS__ZERO;
    ignis__grammar_part *part;
    bool edge[257] = {false};
    int32_t i, rule;
    r.g = g;
    r.at = g->text;
    r.end = r.at + strlen(r.at);
    r.row.size = sizeof(ignis__grammar_part);
    memset(g->rule_of, 0xFF, sizeof g->rule_of);
    for (ignis__grammar_blank(&r, true); r.at < r.end && !g->diagnostic; ignis__grammar_blank(&r, true)) {
        const char *name = r.at;
        rule = ignis__grammar_name(&r);
        ignis__grammar_blank(&r, false);
        if (!g->diagnostic && strncmp(r.at, "::=", 3) != 0)
            ignis__grammar_wrong(&r, "::= is missing behind the name of a rule");
        if (g->diagnostic)
            break;
        if (IGNIS__GRAMMAR_AT(g, rule, rules, rule)->defined) {
            r.at = name;
            ignis__grammar_wrong(&r, "this rule was there before");
        }
        IGNIS__GRAMMAR_AT(g, rule, rules, rule)->defined = true;
        r.at += g->diagnostic ? 0 : 3;
        ignis__grammar_blank(&r, true);
        ignis__grammar_alternatives(&r, rule, 0);
        if (r.at < r.end && *r.at != '\n')
            ignis__grammar_wrong(&r, "this begins nothing that a rule may have");
    }
    ignis__free(r.row.items);
    for (i = 0, g->root = -1; i < g->rules.count && !g->diagnostic; i++) {
        const ignis__grammar_rule *known = IGNIS__GRAMMAR_AT(g, rule, rules, i);
        if (known->name && !known->defined)
            ignis__grammar_fail(g, IGNIS_DIAG_GRAMMAR, known->name, "there is no rule '%.*s'",
                                known->size > 60 ? 60 : (int)known->size, known->name);
        if (known->size == 4 && memcmp(known->name, "root", 4) == 0)
            g->root = i;
    }
    if (!g->diagnostic && g->root < 0)
        ignis__grammar_fail(g, IGNIS_DIAG_GRAMMAR, NULL, "there is no rule 'root', which the text would be");
    if (g->diagnostic || !ignis__grammar_begins(g) || !ignis__grammar_ends(g))
        return false;
    for (i = 0; i < g->parts.count; i++) { /* bytes that no part distinguishes share a class */
        part = IGNIS__GRAMMAR_AT(g, part, parts, i);
        if (part->rule == IGNIS__GRAMMAR_BYTE)
            edge[part->low] = edge[part->high + 1] = true;
    }
    for (i = 0, g->classes = 1; i < 256; i++) {
        g->classes += i > 0 && edge[i];
        g->class_of[i] = (unsigned char)(g->classes - 1);
    }
    return true;
}
