/*  models/grammar/gbnf.c - parses GBNF into rules of bytes

    Rules that begin with themselves are refused. Alternatives that never end are removed, so a text that the
    matcher allows can always be completed.
    May use: grammar.c; json_schema.c, for schemas within GBNF. Locks: none. */

#include "room.h"

typedef struct ignis__grammar_reader {
    ignis__grammar *grammar;
    const char *at, *end;
    ignis__list row;  /* parts of the alternatives that are being read, the innermost last */
    int64_t compared; /* names that were compared */
    bool generated;   /* the text is that of a schema's rules, which see their own names alone */
    struct {
        const char *text;
        int32_t size, rule;
    } classes[256]; /* classes of characters that were read, by a hash of their text: schemas repeat them */
} ignis__grammar_reader;

#define ignis__grammar_fail_here(reader, ...) \
    ignis__grammar_fail((reader)->grammar, IGNIS_DIAG_GRAMMAR, (reader)->at, __VA_ARGS__)

static void ignis__grammar_skip_blank(ignis__grammar_reader *reader, bool lines)
{
    for (;; reader->at++) {
        if (reader->at < reader->end && *reader->at == '#')
            while (reader->at < reader->end && *reader->at != '\n')
                reader->at++;
        if (reader->at == reader->end ||
            !(*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r' || (lines && *reader->at == '\n')))
            return;
    }
}

static bool ignis__grammar_accept(ignis__grammar_reader *reader, char c)
{
    bool is = !reader->grammar->diagnostic && reader->at < reader->end && *reader->at == c;
    reader->at += is;
    return is;
}

/*  Makes an anonymous rule. -1 without memory. */
static int32_t ignis__grammar_make_rule(ignis__grammar *grammar)
{
    ignis__grammar_rule *rule = (ignis__grammar_rule *)ignis__grammar_add(grammar, &grammar->rules);
    if (!rule)
        return -1;
    rule->alternatives = rule->calls = rule->named = -1;
    return (int32_t)grammar->rules.count - 1;
}

static void ignis__grammar_push_part(ignis__grammar_reader *reader, int32_t rule, int low, int high)
{
    ignis__grammar_part *part = NULL;
    if (reader->row.count + reader->grammar->parts.count >= IGNIS__GRAMMAR_PARTS)
        ignis__grammar_fail(reader->grammar, IGNIS_DIAG_UNSUPPORTED, reader->at,
                            "with this the grammar has more than %d parts", (int)IGNIS__GRAMMAR_PARTS);
    else if (!reader->grammar->diagnostic)
        part = (ignis__grammar_part *)ignis__grammar_add(reader->grammar, &reader->row);
    if (!part)
        return;
    part->rule = rule;
    part->low = (unsigned char)low;
    part->high = (unsigned char)high;
}

/*  Makes the parts from `from` on another alternative of a rule. */
static void ignis__grammar_end_alternative(ignis__grammar_reader *reader, int32_t rule, int64_t from)
{
    ignis__grammar *grammar = reader->grammar;
    ignis__grammar_alternative *to = NULL;
    ignis__grammar_part *part;
    int64_t i;
    ignis__grammar_push_part(reader, IGNIS__GRAMMAR_END, 0, 0);
    if (!grammar->diagnostic)
        to = (ignis__grammar_alternative *)ignis__grammar_add(grammar, &grammar->alternatives);
    if (to) {
        to->rule = rule;
        to->first = (int32_t)grammar->parts.count;
        to->next = IGNIS__GRAMMAR_AT(grammar, rule, rules, rule)->alternatives;
        IGNIS__GRAMMAR_AT(grammar, rule, rules, rule)->alternatives = (int32_t)grammar->alternatives.count - 1;
    }
    for (i = from; to && i < reader->row.count &&
                   (part = (ignis__grammar_part *)ignis__grammar_add(grammar, &grammar->parts)) != NULL;
         i++) {
        *part = ((ignis__grammar_part *)(void *)reader->row.items)[i];
        part->alternative = (int32_t)grammar->alternatives.count - 1;
        if (part->rule >= 0) {
            to->open++;
            part->other = IGNIS__GRAMMAR_AT(grammar, rule, rules, part->rule)->calls;
            IGNIS__GRAMMAR_AT(grammar, rule, rules, part->rule)->calls = (int32_t)grammar->parts.count - 1;
        }
    }
    reader->row.count = from;
}

/*  Reads a character of a literal or a class. -1 after a fault. */
static int64_t ignis__grammar_read_character(ignis__grammar_reader *reader)
{
    static const char names[] = "nrt\\\"[]xuU", values[] = "\n\r\t\\\"[]";
    const char *known, *begin = reader->at;
    int length = ignis__utf8_length(reader->at, (size_t)(reader->end - reader->at));
    int64_t code;
    if (length == 0) {
        ignis__grammar_fail_here(reader, reader->at == reader->end ? "the text ends within quotes or brackets"
                                                                   : "this is not UTF-8");
        return -1;
    }
    code = ignis__utf8_code(reader->at, &length);
    reader->at += length;
    if (code != '\\')
        return code;
    known = reader->at < reader->end ? strchr(names, *reader->at) : NULL;
    if (!known) {
        reader->at = begin;
        ignis__grammar_fail_here(reader, "a backslash is followed by an unknown escape");
        return -1;
    }
    reader->at++;
    if (known - names < 7)
        return values[known - names];
    code = 0;
    for (length = 2 << (known - names - 7);
         length > 0 && reader->at < reader->end && *reader->at && strchr("0123456789abcdefABCDEF", *reader->at);
         length--, reader->at++)
        code = code * 16 + (*reader->at <= '9' ? *reader->at - '0' : (*reader->at | 32) - 'a' + 10);
    if (length == 0 && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF))
        return code;
    reader->at = begin;
    ignis__grammar_fail_here(reader, length ? "an escape has too few digits" : "there is no such character");
    return -1;
}

/*  Adds the characters of a range as alternatives of a rule. Ranges are split until either the first bytes
    are equal or all following bytes are allowed. */
static void ignis__grammar_add_range(ignis__grammar_reader *reader, int32_t rule, uint32_t low, uint32_t high)
{
    static const uint32_t borders[] = {0x7F, 0x7FF, 0xD7FF, 0xDFFF,
                                       0xFFFF}; /* borders of the UTF-8 lengths, and the surrogates */
    int64_t from = reader->row.count;
    char first[4], last[4];
    uint32_t cut = 0, bits;
    int i, length;
    for (i = 0; i < IGNIS__COUNT(borders) && !cut; i++)
        cut = low <= borders[i] && high > borders[i] ? borders[i] + 1 : 0;
    for (bits = 0x3F; low > 0x7F && !cut && bits <= 0x3FFFF; bits = bits << 6 | 0x3F)
        if ((low & ~bits) != (high & ~bits))
            cut = low & bits ? (low | bits) + 1 : (high & bits) != bits ? high & ~bits : 0;
    if (cut) {
        ignis__grammar_add_range(reader, rule, low, cut - 1);
        ignis__grammar_add_range(reader, rule, cut, high);
        return;
    }
    if (low >= 0xD800 && high <= 0xDFFF)
        return;
    length = ignis__utf8_write(first, low);
    (void)ignis__utf8_write(last, high);
    for (i = 0; i < length; i++)
        ignis__grammar_push_part(reader, IGNIS__GRAMMAR_BYTE, (unsigned char)first[i], (unsigned char)last[i]);
    ignis__grammar_end_alternative(reader, rule, from);
}

/*  Reads a class after its bracket. any: the dot, which is any character. */
static void ignis__grammar_read_class(ignis__grammar_reader *reader, bool any)
{
    uint64_t ranges[IGNIS__GRAMMAR_RANGES];
    const char *text = reader->at - 1;
    int64_t low, high;
    uint32_t next = 0;
    int32_t rule, size;
    int count = 0, i, slot;
    bool others = any || ignis__grammar_accept(reader, '^');
    while (!any && !reader->grammar->diagnostic && !ignis__grammar_accept(reader, ']')) {
        low = high = ignis__grammar_read_character(reader);
        if (reader->end - reader->at > 1 && reader->at[0] == '-' && reader->at[1] != ']') {
            reader->at++;
            high = ignis__grammar_read_character(reader);
        }
        if (low > high)
            ignis__grammar_fail_here(reader, "a range ends before it begins");
        else if (count == IGNIS__GRAMMAR_RANGES)
            ignis__grammar_fail_here(reader, "a class has more than %d ranges", (int)IGNIS__GRAMMAR_RANGES);
        else
            ranges[count++] = (uint64_t)low << 32 | (uint64_t)high;
    }
    if (reader->grammar->diagnostic)
        return;
    size = (int32_t)(reader->at - text);
    slot = (int)(ignis__token_hash(text, (size_t)size) % IGNIS__COUNT(reader->classes));
    if (reader->classes[slot].size == size && memcmp(reader->classes[slot].text, text, (size_t)size) == 0) {
        ignis__grammar_push_part(reader, reader->classes[slot].rule, 0, 0);
        return;
    }
    if ((rule = ignis__grammar_make_rule(reader->grammar)) < 0)
        return;
    qsort(ranges, (size_t)count, sizeof *ranges, ignis__u64_order);
    for (i = 0; i < count; i++) {
        uint32_t begin = (uint32_t)(ranges[i] >> 32), end = (uint32_t)ranges[i];
        if (!others)
            ignis__grammar_add_range(reader, rule, begin, end);
        else if (begin > next)
            ignis__grammar_add_range(reader, rule, next, begin - 1);
        next = end >= next ? end + 1 : next;
    }
    if (others && next <= 0x10FFFF)
        ignis__grammar_add_range(reader, rule, next, 0x10FFFF);
    reader->classes[slot].text = text;
    reader->classes[slot].size = size;
    reader->classes[slot].rule = rule;
    ignis__grammar_push_part(reader, rule, 0, 0);
}

/*  Reads a count of a repetition. */
static int ignis__grammar_read_number(ignis__grammar_reader *reader)
{
    const char *begin = reader->at;
    int number = 0;
    for (; reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9'; reader->at++)
        number = number < IGNIS__GRAMMAR_PARTS ? number * 10 + (*reader->at - '0') : number;
    if (reader->at == begin)
        ignis__grammar_fail_here(reader, "a number is missing");
    return number;
}

/*  Repeats the parts after `from` from `least` to `most` times; without a limit if most is below 0. */
static void ignis__grammar_repeat(ignis__grammar_reader *reader, int64_t from, int least, int most)
{
    ignis__grammar_part part;
    int32_t rule, rest = -1;
    int64_t top;
    int i;
    if (reader->row.count - from != 1) {
        rule = ignis__grammar_make_rule(reader->grammar);
        ignis__grammar_end_alternative(reader, rule, from);
        ignis__grammar_push_part(reader, rule, 0, 0);
    }
    if (reader->grammar->diagnostic)
        return;
    part = ((ignis__grammar_part *)(void *)reader->row.items)[--reader->row.count];
    for (i = 0; i < least && !reader->grammar->diagnostic; i++)
        ignis__grammar_push_part(reader, part.rule, part.low, part.high);
    for (i = most < 0 ? -1 : least; (i < most || (most < 0 && rest < 0)) && !reader->grammar->diagnostic; i++) {
        top = reader->row.count; /* rest: once more and the rest after it, or nothing */
        if ((rule = ignis__grammar_make_rule(reader->grammar)) < 0)
            return;
        ignis__grammar_end_alternative(reader, rule, top);
        ignis__grammar_push_part(reader, part.rule, part.low, part.high);
        if (most < 0 || rest >= 0)
            ignis__grammar_push_part(reader, most < 0 ? rule : rest, 0, 0);
        ignis__grammar_end_alternative(reader, rule, top);
        rest = rule;
    }
    if (rest >= 0)
        ignis__grammar_push_part(reader, rest, 0, 0);
}

static const char ignis__grammar_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/*  Returns the rule of a name, and makes it if it is new. -1 after a fault. */
static int32_t ignis__grammar_find_rule(ignis__grammar_reader *reader)
{
    const char *name = reader->at;
    ignis__grammar_rule *rule;
    int32_t *bucket, i;
    size_t size = strspn(name, ignis__grammar_letters);
    if (size == 0) {
        ignis__grammar_fail_here(reader, "the name of a rule is missing");
        return -1;
    }
    reader->at += size;
    bucket = &reader->grammar->rule_of[ignis__token_hash(name, size) % 256];
    if (reader->compared > IGNIS__GRAMMAR_COMPARED) {
        ignis__grammar_fail(reader->grammar, IGNIS_DIAG_UNSUPPORTED, reader->at,
                            "the grammar has too many names: %lld had to be looked at", (long long)reader->compared);
        return -1;
    }
    for (i = *bucket; i >= 0; i = rule->named) {
        rule = IGNIS__GRAMMAR_AT(reader->grammar, rule, rules, i);
        reader->compared += 1 + ((size_t)rule->size == size ? (int64_t)size / 64 : 0);
        if ((size_t)rule->size == size && rule->generated == reader->generated && memcmp(rule->name, name, size) == 0)
            return i;
    }
    if ((i = ignis__grammar_make_rule(reader->grammar)) < 0)
        return -1;
    rule = IGNIS__GRAMMAR_AT(reader->grammar, rule, rules, i);
    rule->name = name;
    rule->size = (int32_t)size;
    rule->generated = reader->generated;
    rule->named = *bucket;
    return *bucket = i;
}

/*  Writes the text that a control token has in a grammar: a byte that no UTF-8 has, and 28 bits of its id. */
IGNIS__PRIVATE void ignis__grammar_control_text(int32_t id, unsigned char text[IGNIS__GRAMMAR_CONTROL_SIZE])
{
    int i;
    text[0] = IGNIS__GRAMMAR_CONTROL;
    for (i = 1; i < IGNIS__GRAMMAR_CONTROL_SIZE; i++, id >>= 7)
        text[i] = (unsigned char)(0x80 | (id & 0x7F));
}

/*  Reads the id of a control token after "<", as in <[151658]>, and pushes its text. */
static void ignis__grammar_read_control(ignis__grammar_reader *reader)
{
    unsigned char text[IGNIS__GRAMMAR_CONTROL_SIZE];
    int i, id;
    if (!ignis__grammar_accept(reader, '[')) {
        ignis__grammar_fail_here(reader, "[ with the id of a control token is missing after <");
        return;
    }
    id = ignis__grammar_read_number(reader);
    if (!reader->grammar->diagnostic && !(ignis__grammar_accept(reader, ']') && ignis__grammar_accept(reader, '>')))
        ignis__grammar_fail_here(reader, "]> is missing after the id of a control token");
    ignis__grammar_control_text(id, text);
    for (i = 0; i < IGNIS__GRAMMAR_CONTROL_SIZE; i++)
        ignis__grammar_push_part(reader, IGNIS__GRAMMAR_BYTE, text[i], text[i]);
}

/* they use each other: the rules of a schema are read as text */
static int32_t ignis__grammar_read_rules(ignis__grammar_reader *reader);
IGNIS__PRIVATE char *ignis__schema_translate(ignis__grammar *grammar, const char *text, const char *marker, bool whole);

/*  Reads the marker of %text. An empty one after a fault. */
static void ignis__grammar_read_marker(ignis__grammar_reader *reader, char *marker, size_t capacity)
{
    char bytes[4];
    int64_t code;
    size_t size = 0, length;
    ignis__grammar_skip_blank(reader, false);
    if (!ignis__grammar_accept(reader, '"'))
        ignis__grammar_fail_here(reader, "a marker in quotes is missing after %%text");
    while (!reader->grammar->diagnostic && !ignis__grammar_accept(reader, '"')) {
        if ((code = ignis__grammar_read_character(reader)) < 0)
            break;
        length = (size_t)ignis__utf8_write(bytes, (uint32_t)code);
        if (size + length >= capacity || code == 0)
            ignis__grammar_fail_here(reader, "a marker has more than %d bytes, or the character 0", (int)capacity - 1);
        else
            memcpy(marker + size, bytes, length);
        size += length;
    }
    marker[reader->grammar->diagnostic ? 0 : size] = 0;
    if (!reader->grammar->diagnostic && size == 0)
        ignis__grammar_fail_here(reader, "a marker is empty");
}

/*  Reads %json {schema} or %text "marker" {schema} after the sign, and pushes its rule. */
static void ignis__grammar_read_schema(ignis__grammar_reader *reader, const char *sign)
{
    ignis__grammar *grammar = reader->grammar;
    bool plain = strncmp(reader->at, "text", 4) == 0, quoted = false;
    const char *begin, *end = reader->end;
    char marker[64] = "", *copy, *rules, **kept, reason[sizeof grammar->fault];
    int depth = 0, line, column;
    if (!plain && strncmp(reader->at, "json", 4) != 0) {
        ignis__grammar_fail_here(reader, "after %% comes neither json nor text");
        return;
    }
    reader->at += 4;
    if (plain)
        ignis__grammar_read_marker(reader, marker, sizeof marker);
    ignis__grammar_skip_blank(reader, true);
    begin = reader->at;
    if (!grammar->diagnostic && (begin == end || *begin != '{'))
        ignis__grammar_fail_here(reader, "a schema in braces is missing");
    do {
        if (grammar->diagnostic)
            return;
        if (reader->at == end)
            ignis__grammar_fail(grammar, IGNIS_DIAG_GRAMMAR, sign, "the text ends within this schema");
        else if (quoted && *reader->at == '\\' && end - reader->at > 1)
            reader->at++;
        else if (*reader->at == '"')
            quoted = !quoted;
        else if (!quoted)
            depth += (*reader->at == '{') - (*reader->at == '}');
        reader->at += reader->at < end;
    } while (depth > 0);
    copy = (char *)ignis__alloc((size_t)(reader->at - begin) + 1);
    if (copy)
        memcpy(copy, begin, (size_t)(reader->at - begin)); /* allocations are zeros */
    else
        ignis__grammar_fail(grammar, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
    rules = copy ? ignis__schema_translate(grammar, copy, plain ? marker : NULL, false) : NULL;
    ignis__free(copy);
    if (!rules) {
        memcpy(reason, grammar->fault, sizeof reason);
        ignis__text_place(grammar->text, sign, &line, &column);
        snprintf(grammar->fault, sizeof grammar->fault, "line %d, column %d: %.280s", line, column, reason);
        return;
    }
    kept = (char **)ignis__grammar_add(grammar, &grammar->schemas);
    if (kept) {
        const char *at = reader->at;
        *kept = rules;
        reader->at = rules;
        reader->end = rules + strlen(rules);
        reader->generated = true;
        depth = ignis__grammar_read_rules(reader);
        reader->at = at;
        reader->end = end;
        reader->generated = false;
        ignis__grammar_push_part(reader, depth, 0, 0);
    } else {
        ignis__free(rules);
    }
}

/*  Reads the alternatives of a rule. nested: the depth of groups, inside which a line end does not end a
    rule. */
static void ignis__grammar_read_alternatives(ignis__grammar_reader *reader, int32_t rule, int nested)
{
    int64_t from = reader->row.count, last = -1;
    int64_t code;
    int32_t group;
    int least, most;
    char bytes[4];
    if (nested > IGNIS__GRAMMAR_NESTED)
        ignis__grammar_fail_here(reader, "groups are nested deeper than %d", (int)IGNIS__GRAMMAR_NESTED);
    while (!reader->grammar->diagnostic) {
        ignis__grammar_skip_blank(reader, nested > 0);
        if (ignis__grammar_accept(reader, '|')) {
            ignis__grammar_end_alternative(reader, rule, from);
            ignis__grammar_skip_blank(reader, true);
            last = -1;
        } else if (reader->at < reader->end && strchr("*+?{", *reader->at) && *reader->at) {
            if (last < 0)
                ignis__grammar_fail_here(reader, "there is nothing to repeat");
            least = *reader->at == '+';
            most = *reader->at == '?' ? 1 : -1;
            if (*reader->at++ == '{') {
                ignis__grammar_skip_blank(reader, nested > 0);
                least = most = ignis__grammar_read_number(reader);
                ignis__grammar_skip_blank(reader, nested > 0);
                if (ignis__grammar_accept(reader, ',')) {
                    ignis__grammar_skip_blank(reader, nested > 0);
                    most = reader->at < reader->end && *reader->at == '}' ? -1 : ignis__grammar_read_number(reader);
                    ignis__grammar_skip_blank(reader, nested > 0);
                }
                if (!ignis__grammar_accept(reader, '}') || (most >= 0 && most < least))
                    ignis__grammar_fail_here(reader, most >= 0 && most < least ? "the second number is below the first"
                                                                               : "a } is missing");
            }
            if (!reader->grammar->diagnostic)
                ignis__grammar_repeat(reader, last, least, most);
        } else {
            int64_t begin = reader->row.count;
            if (ignis__grammar_accept(reader, '"')) {
                while (!reader->grammar->diagnostic && !ignis__grammar_accept(reader, '"'))
                    if ((code = ignis__grammar_read_character(reader)) >= 0)
                        for (most = ignis__utf8_write(bytes, (uint32_t)code), least = 0; least < most; least++)
                            ignis__grammar_push_part(reader, IGNIS__GRAMMAR_BYTE, (unsigned char)bytes[least],
                                                     (unsigned char)bytes[least]);
            } else if (ignis__grammar_accept(reader, '[')) {
                ignis__grammar_read_class(reader, false);
            } else if (ignis__grammar_accept(reader, '.')) {
                ignis__grammar_read_class(reader, true);
            } else if (ignis__grammar_accept(reader, '<')) {
                ignis__grammar_read_control(reader);
            } else if (ignis__grammar_accept(reader, '(')) {
                if ((group = ignis__grammar_make_rule(reader->grammar)) >= 0)
                    ignis__grammar_read_alternatives(reader, group, nested + 1);
                if (!ignis__grammar_accept(reader, ')'))
                    ignis__grammar_fail_here(reader, reader->at == reader->end
                                                         ? "a ) is missing"
                                                         : "this begins nothing that a group may have");
                ignis__grammar_push_part(reader, group, 0, 0);
            } else if (!reader->generated && ignis__grammar_accept(reader, '%')) {
                ignis__grammar_read_schema(reader, reader->at - 1);
            } else if (reader->at < reader->end && *reader->at && strchr(ignis__grammar_letters, *reader->at)) {
                ignis__grammar_push_part(reader, ignis__grammar_find_rule(reader), 0, 0);
            } else {
                break;
            }
            last = begin;
        }
    }
    ignis__grammar_end_alternative(reader, rule, from);
}

/*  Refuses left recursion: a rule that calls itself before any byte would never end. A rule that ends with
    itself is allowed. Finds also which rules match the empty text. */
static bool ignis__grammar_check_left_recursion(ignis__grammar *grammar)
{
    ignis__grammar_rule *rules = IGNIS__GRAMMAR_AT(grammar, rule, rules, 0), *rule, *to;
    const ignis__grammar_alternative *alternatives = IGNIS__GRAMMAR_AT(grammar, alternative, alternatives, 0);
    const ignis__grammar_part *parts = IGNIS__GRAMMAR_AT(grammar, part, parts, 0), *part;
    int32_t i, now;
    for (i = 0; i < grammar->rules.count; i++)
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
                return ignis__grammar_fail(grammar, IGNIS_DIAG_GRAMMAR, to->name,
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
static bool ignis__grammar_remove_endless(ignis__grammar *grammar)
{
    ignis__grammar_rule *rules = IGNIS__GRAMMAR_AT(grammar, rule, rules, 0);
    ignis__grammar_alternative *alternatives = IGNIS__GRAMMAR_AT(grammar, alternative, alternatives, 0);
    const ignis__grammar_part *parts = IGNIS__GRAMMAR_AT(grammar, part, parts, 0);
    int32_t i, part, last = -1, *link;
    for (i = 0; i < grammar->alternatives.count; i++) {
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
    for (i = 0; i < grammar->rules.count; i++)
        for (link = &rules[i].alternatives; *link >= 0;)
            if (alternatives[*link].open)
                *link = alternatives[*link].next;
            else
                link = &alternatives[*link].next;
    return rules[grammar->root].ends || ignis__grammar_fail(grammar, IGNIS_DIAG_GRAMMAR, rules[grammar->root].name,
                                                            "no text of the rule 'root' ever ends");
}

/*  Reads rules up to the end of the reader's text. Returns the first rule; -1 without rules, or after a fault. */
static int32_t ignis__grammar_read_rules(ignis__grammar_reader *reader)
{
    ignis__grammar *grammar = reader->grammar;
    int32_t rule, first = -1;
    for (ignis__grammar_skip_blank(reader, true); reader->at < reader->end && !grammar->diagnostic;
         ignis__grammar_skip_blank(reader, true)) {
        const char *name = reader->at;
        rule = ignis__grammar_find_rule(reader);
        first = first < 0 ? rule : first;
        ignis__grammar_skip_blank(reader, false);
        if (!grammar->diagnostic && strncmp(reader->at, "::=", 3) != 0)
            ignis__grammar_fail_here(reader, "::= is missing behind the name of a rule");
        if (grammar->diagnostic)
            break;
        if (IGNIS__GRAMMAR_AT(grammar, rule, rules, rule)->defined) {
            reader->at = name;
            ignis__grammar_fail_here(reader, "this rule was there before");
        }
        IGNIS__GRAMMAR_AT(grammar, rule, rules, rule)->defined = true;
        reader->at += grammar->diagnostic ? 0 : 3;
        ignis__grammar_skip_blank(reader, true);
        ignis__grammar_read_alternatives(reader, rule, 0);
        if (reader->at < reader->end && *reader->at != '\n')
            ignis__grammar_fail_here(reader, "this begins nothing that a rule may have");
    }
    return grammar->diagnostic ? -1 : first;
}

/*  Parses the GBNF in g->text into rules. */
IGNIS__PRIVATE bool ignis__grammar_read_gbnf(ignis__grammar *grammar)
{
    ignis__grammar_reader reader = IGNIS__ZERO;
    ignis__grammar_part *part;
    bool edge[257] = {false};
    int32_t i;
    reader.grammar = grammar;
    reader.at = grammar->text;
    reader.end = reader.at + strlen(reader.at);
    reader.row.size = sizeof(ignis__grammar_part);
    memset(grammar->rule_of, 0xFF, sizeof grammar->rule_of);
    ignis__grammar_read_rules(&reader);
    ignis__free(reader.row.items);
    for (i = 0, grammar->root = -1; i < grammar->rules.count && !grammar->diagnostic; i++) {
        const ignis__grammar_rule *known = IGNIS__GRAMMAR_AT(grammar, rule, rules, i);
        if (known->name && !known->defined)
            ignis__grammar_fail(grammar, IGNIS_DIAG_GRAMMAR, known->name, "there is no rule '%.*s'",
                                known->size > 60 ? 60 : (int)known->size, known->name);
        if (known->size == 4 && !known->generated && memcmp(known->name, "root", 4) == 0)
            grammar->root = i;
    }
    if (!grammar->diagnostic && grammar->root < 0)
        ignis__grammar_fail(grammar, IGNIS_DIAG_GRAMMAR, NULL, "there is no rule 'root', which the text would be");
    if (grammar->diagnostic || !ignis__grammar_check_left_recursion(grammar) || !ignis__grammar_remove_endless(grammar))
        return false;
    for (i = 0; i < grammar->parts.count; i++) { /* bytes that no part distinguishes share a class */
        part = IGNIS__GRAMMAR_AT(grammar, part, parts, i);
        if (part->rule == IGNIS__GRAMMAR_BYTE)
            edge[part->low] = edge[part->high + 1] = true;
    }
    for (i = 0, grammar->classes = 1; i < 256; i++) {
        grammar->classes += i > 0 && edge[i];
        grammar->class_of[i] = (unsigned char)(grammar->classes - 1);
    }
    return true;
}
