/*  models/tokenizer/pattern.c - regular expressions of pre-tokenizers

    Has what tokenizer.json files use of Oniguruma's syntax: alternatives, groups, sets of characters, categories and
    scripts, &&, greedy and possessive repetition of a set, repeated groups of a fixed length or where nothing follows,
    (?i:), (?=), (?!), \b, ^ and $. Anything else is refused by its text.
    A search goes back where alternatives fail. Its steps are counted, and a limit ends it.
    May use: unicode.c, tokenizer.c. Locks: none; a compiled pattern does not change. */

#include "room.h"

/*  Bytes, items, nested groups. A search calls itself at most once for each item. */
enum {
    IGNIS__PATTERN_LIMIT = 8192,
    IGNIS__PATTERN_ITEMS = 512,
    IGNIS__PATTERN_DEPTH = 16,
    IGNIS__PATTERN_MANY = 1 << 30
};

/*  In the order of ignis__char_categories. */
static const char ignis__pattern_categories[][3] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                                    "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                                    "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs", "Cn"};

/*  In the order of ignis__char_scripts. */
static const char *const ignis__pattern_scripts[] = {"",     "Han", "Hiragana", "Katakana", "Hangul",
                                                     "Thai", "Lao", "Khmer",    "Myanmar"};

/*  The state of compiling. fold: case is ignored. */
typedef struct ignis__pattern_reader {
    const char *at, *end;
    ignis__pattern *pattern;
    int depth;
    bool fold, failed;
} ignis__pattern_reader;

static int ignis__pattern_read_choices(ignis__pattern_reader *reader);

static bool ignis__pattern_starts(const ignis__pattern_reader *reader, const char *text)
{
    size_t size = strlen(text);
    return (size_t)(reader->end - reader->at) >= size && memcmp(reader->at, text, size) == 0;
}

static int ignis__pattern_fail(ignis__pattern_reader *reader)
{
    reader->failed = true;
    return -1;
}

static void ignis__pattern_add_range(ignis__pattern_reader *reader, ignis__pattern_set *set, uint32_t low,
                                     uint32_t high)
{
    ignis__pattern *pattern = reader->pattern;
    uint32_t c;
    for (c = low; c <= high && c < 128; c++)
        set->ascii[c / 32] |= 1u << c % 32;
    if (high >= 128) {
        pattern->ranges[2 * pattern->range_count] = low;
        pattern->ranges[2 * pattern->range_count++ + 1] = high;
        set->count++;
    }
}

/*  Adds a character, and if case is ignored the others that equal it. */
static void ignis__pattern_add_char(ignis__pattern_reader *reader, ignis__pattern_set *set, uint32_t code)
{
    bool letter = (code | 32) - 'a' < 26 && code < 128;
    ignis__pattern_add_range(reader, set, code, code);
    if (!reader->fold)
        return;
    if (code >= 128)
        reader->failed = true;
    if (letter)
        ignis__pattern_add_range(reader, set, code ^ 32, code ^ 32);
    if (letter && ((code | 32) == 's' || (code | 32) == 'k')) { /* the long s, the Kelvin sign */
        code = (code | 32) == 's' ? 0x17F : 0x212A;
        ignis__pattern_add_range(reader, set, code, code);
    }
}

static void ignis__pattern_add_categories(ignis__pattern_set *set, uint32_t categories)
{
    uint32_t c;
    set->categories |= categories;
    for (c = 0; c < 128; c++)
        if (categories >> ignis__char_category(c) & 1)
            set->ascii[c / 32] |= 1u << c % 32;
}

static void ignis__pattern_add_space(ignis__pattern_set *set, bool inverse)
{
    uint32_t c;
    for (c = 0; c < 128; c++)
        if (ignis__char_space(c) != inverse)
            set->ascii[c / 32] |= 1u << c % 32;
    set->space = set->space || !inverse;
    set->not_space = set->not_space || inverse;
}

/*  Adds scripts. No script of the table has a character of ASCII. */
static void ignis__pattern_add_scripts(ignis__pattern_set *set, uint32_t scripts)
{
    int i;
    set->scripts |= scripts;
    for (i = 0; scripts & 1 && i < 4; i++)
        set->ascii[i] = UINT32_MAX;
}

/*  Reads {Lu}, {L} or {Han} after \p. */
static void ignis__pattern_read_property(ignis__pattern_reader *reader, ignis__pattern_set *set, bool inverse)
{
    uint32_t categories = 0;
    char name[12] = {0};
    int i, length = 0;
    if (ignis__pattern_starts(reader, "{^")) {
        inverse = !inverse;
        reader->at++;
    }
    if (reader->at < reader->end)
        reader->at++; /* the brace */
    while (reader->at < reader->end && *reader->at != '}' && length < (int)sizeof name - 1)
        name[length++] = *reader->at++;
    if (reader->at == reader->end || *reader->at != '}') {
        reader->failed = true;
        return;
    }
    reader->at++;
    for (i = 1; i < IGNIS__COUNT(ignis__pattern_scripts); i++)
        if (strcmp(ignis__pattern_scripts[i], name) == 0) {
            ignis__pattern_add_scripts(set, inverse ? ~(1u << i) & ((1u << IGNIS__COUNT(ignis__pattern_scripts)) - 1)
                                                    : 1u << i);
            return;
        }
    for (i = 0; i < IGNIS__COUNT(ignis__pattern_categories); i++)
        if (length > 0 && length <= 2 && strncmp(ignis__pattern_categories[i], name, (size_t)length) == 0)
            categories |= 1u << i;
    if (!categories)
        reader->failed = true;
    ignis__pattern_add_categories(set, inverse ? ~categories & ((1u << IGNIS__COUNT(ignis__pattern_categories)) - 1)
                                               : categories);
}

/*  Reads hexadecimal digits. */
static uint32_t ignis__pattern_read_hex(ignis__pattern_reader *reader, int digits)
{
    uint32_t code = 0;
    bool braces = digits == 2 && reader->at < reader->end && *reader->at == '{';
    int i;
    reader->at += braces;
    for (i = 0; i < (braces ? 6 : digits) && reader->at < reader->end && *reader->at != '}'; i++, reader->at++) {
        char c = *reader->at;
        int value = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (value < 0)
            reader->failed = true;
        code = code * 16 + (uint32_t)(value & 15);
    }
    if (braces ? reader->at == reader->end || *reader->at++ != '}' : i < digits)
        reader->failed = true;
    return code;
}

/*  Reads one character, or an escape that means a set: then it is added, and UINT32_MAX is returned. */
static uint32_t ignis__pattern_read_char(ignis__pattern_reader *reader, ignis__pattern_set *set)
{
    static const char letters[] = "rntfae", codes[] = "\r\n\t\f\a\033";
    uint32_t code;
    const char *letter;
    int length;
    char c;
    if (*reader->at != '\\') {
        code = ignis__utf8_code(reader->at, &length);
        reader->at += length;
        return code;
    }
    if (++reader->at == reader->end) {
        reader->failed = true;
        return 0;
    }
    c = *reader->at;
    letter = strchr(letters, c);
    if ((unsigned char)c >= 128 || !((c | 32) >= 'a' && (c | 32) <= 'z') || letter) {
        code = ignis__utf8_code(reader->at, &length);
        reader->failed = reader->failed || (c >= '0' && c <= '9');
        reader->at += length;
        return letter ? (uint32_t)codes[letter - letters] : code;
    }
    reader->at++;
    if (c == 'x' || c == 'u')
        return ignis__pattern_read_hex(reader, c == 'x' ? 2 : 4);
    if ((c == 'p' || c == 'P') && reader->at < reader->end && *reader->at == '{')
        ignis__pattern_read_property(reader, set, c == 'P');
    else if (c == 's' || c == 'S')
        ignis__pattern_add_space(set, c == 'S');
    else if (c == 'd')
        ignis__pattern_add_categories(set, 1u << 8);
    else
        reader->failed = true;
    return UINT32_MAX;
}

/*  Reads a set after its bracket. Its last part may be && and a set in brackets. */
static void ignis__pattern_read_set(ignis__pattern_reader *reader, ignis__pattern_set *set)
{
    bool first = true;
    uint32_t low, high;
    int i;
    set->negated = reader->at < reader->end && *reader->at == '^';
    reader->at += set->negated;
    for (; reader->at < reader->end && (*reader->at != ']' || first) && !reader->failed; first = false) {
        if (ignis__pattern_starts(reader, "&&[") && !first) {
            ignis__pattern_set *other = &reader->pattern->sets[reader->pattern->set_count++];
            other->first = reader->pattern->range_count;
            reader->at += 3;
            if (++reader->depth > IGNIS__PATTERN_DEPTH)
                reader->failed = true;
            else
                ignis__pattern_read_set(reader, other);
            reader->depth--;
            for (i = 0; i < 4; i++)
                set->ascii[i] &= other->negated ? ~other->ascii[i] : other->ascii[i];
            set->other = reader->pattern->set_count;
            reader->failed = reader->failed || reader->at == reader->end || *reader->at != ']';
            break;
        }
        if (*reader->at == '[' || ignis__pattern_starts(reader, "&&") || *reader->at == ']') {
            reader->failed = true;
            return;
        }
        low = ignis__pattern_read_char(reader, set);
        if (low == UINT32_MAX)
            continue;
        if (reader->end - reader->at < 2 || *reader->at != '-' || reader->at[1] == ']') {
            ignis__pattern_add_char(reader, set, low);
            continue;
        }
        reader->at++;
        high = ignis__pattern_read_char(reader, set);
        if (high == UINT32_MAX || high < low || reader->fold)
            reader->failed = true;
        else
            ignis__pattern_add_range(reader, set, low, high);
    }
    if (reader->at == reader->end)
        reader->failed = true;
    else
        reader->at++;
}

/*  Reads the number of repetitions of an item. */
static void ignis__pattern_read_count(ignis__pattern_reader *reader, ignis__pattern_item *item)
{
    char c = reader->at < reader->end ? *reader->at : 0;
    bool braces = c == '{';
    item->min = item->max = 1;
    if (c == '*' || c == '+' || c == '?') {
        item->min = c == '+';
        item->max = c == '?' ? 1 : IGNIS__PATTERN_MANY;
        reader->at++;
    } else if (braces) {
        int numbers[2] = {0, IGNIS__PATTERN_MANY}, i = 0, digits = 0;
        for (reader->at++; reader->at < reader->end && *reader->at != '}' && !reader->failed; reader->at++) {
            if (*reader->at == ',' && i == 0 && digits > 0) {
                i = 1;
            } else if (*reader->at >= '0' && *reader->at <= '9' && digits < 6) {
                numbers[i] = (i == 1 && numbers[1] == IGNIS__PATTERN_MANY ? 0 : numbers[i]) * 10 + (*reader->at - '0');
                digits++;
            } else {
                reader->failed = true;
            }
        }
        item->min = numbers[0];
        item->max = i ? numbers[1] : numbers[0];
        reader->failed = reader->failed || reader->at == reader->end || digits == 0 || item->max < item->min;
        reader->at += !reader->failed;
    }
    c = reader->at < reader->end ? *reader->at : 0;
    item->possessive = c == '+' && item->max != item->min && !braces;
    reader->at += item->possessive;
    c = reader->at < reader->end ? *reader->at : 0;
    if (c == '?' || c == '+' || c == '*' || (c == '{' && item->max != 1))
        reader->failed = true; /* lazy, or repeated twice */
    if (item->kind == IGNIS__ITEM_GROUP ? item->possessive
                                        : item->kind != IGNIS__ITEM_SET && (item->min != 1 || item->max != 1))
        reader->failed = true;
}

/*  Reads one item and its repetitions. Returns its index; -1 on failure. */
static int ignis__pattern_read_item(ignis__pattern_reader *reader)
{
    ignis__pattern *pattern = reader->pattern;
    int index = pattern->item_count++;
    ignis__pattern_item *item = &pattern->items[index];
    bool fold = reader->fold;
    item->next = item->inner = -1;
    if (index >= IGNIS__PATTERN_ITEMS)
        return ignis__pattern_fail(reader);
    if (*reader->at == '(') {
        static const char *const openings[] = {"(?:", "(?i:", "(?=", "(?!", "("};
        int i = 0;
        while (!ignis__pattern_starts(reader, openings[i]))
            i++;
        reader->at += strlen(openings[i]);
        if (++reader->depth > IGNIS__PATTERN_DEPTH || (i == 4 && reader->at < reader->end && *reader->at == '?'))
            return ignis__pattern_fail(reader);
        item->kind = i == 2 ? IGNIS__ITEM_AHEAD : i == 3 ? IGNIS__ITEM_NOT_AHEAD : IGNIS__ITEM_GROUP;
        reader->fold = fold || i == 1;
        item->inner = ignis__pattern_read_choices(reader);
        reader->fold = fold;
        reader->depth--;
        if (reader->failed || reader->at == reader->end || *reader->at++ != ')')
            return ignis__pattern_fail(reader);
    } else if (*reader->at == '$' || *reader->at == '^') {
        item->kind = *reader->at++ == '$' ? IGNIS__ITEM_LINE_END : IGNIS__ITEM_LINE_BEGIN;
    } else if (ignis__pattern_starts(reader, "\\b")) {
        item->kind = IGNIS__ITEM_WORD_EDGE;
        reader->at += 2;
    } else {
        ignis__pattern_set *set = &pattern->sets[pattern->set_count];
        uint32_t code;
        item->kind = IGNIS__ITEM_SET;
        item->inner = pattern->set_count++;
        set->first = pattern->range_count;
        if (strchr("*+?{", *reader->at))
            return ignis__pattern_fail(reader);
        if (*reader->at == '[') {
            reader->at++;
            ignis__pattern_read_set(reader, set);
        } else if (*reader->at == '.') {
            reader->at++;
            ignis__pattern_add_range(reader, set, '\n', '\n');
            set->negated = true;
        } else {
            code = ignis__pattern_read_char(reader, set);
            if (code != UINT32_MAX)
                ignis__pattern_add_char(reader, set, code);
        }
    }
    if (!reader->failed)
        ignis__pattern_read_count(reader, item);
    return reader->failed ? -1 : index;
}

/*  Reads alternatives up to a ) or the end. Returns the index of the first. */
static int ignis__pattern_read_choices(ignis__pattern_reader *reader)
{
    ignis__pattern *pattern = reader->pattern;
    int first = -1, before = -1;
    for (;;) {
        int choice = pattern->choice_count++, last = -1, item;
        pattern->choices[choice].first = pattern->choices[choice].next = -1;
        if (first < 0)
            first = choice;
        else
            pattern->choices[before].next = choice;
        before = choice;
        while (reader->at < reader->end && *reader->at != '|' && *reader->at != ')') {
            item = ignis__pattern_read_item(reader);
            if (item < 0)
                return -1;
            if (last < 0)
                pattern->choices[choice].first = item;
            else
                pattern->items[last].next = item;
            last = item;
        }
        if (reader->at == reader->end || *reader->at != '|')
            return first;
        reader->at++;
    }
}

/*  Returns the characters of each match of a group that has one length and one way to match; 0 for other groups. */
static int ignis__pattern_width(const ignis__pattern *pattern, int choice)
{
    int width = 0, i;
    if (pattern->choices[choice].next >= 0)
        return 0;
    for (i = pattern->choices[choice].first; i >= 0; i = pattern->items[i].next) {
        const ignis__pattern_item *item = &pattern->items[i];
        if (item->kind != IGNIS__ITEM_SET || item->min != item->max)
            return 0;
        width += item->max;
    }
    return width;
}

/*  Chooses how repeated groups are matched. last: nothing follows the alternatives, or only what matches anywhere. A
    search never goes back into a repeated group at such an end, so each repetition keeps its first match. False if a
    repeated group is elsewhere, and its matches differ in length. */
static bool ignis__pattern_choose_loops(ignis__pattern *pattern, int choice, bool last)
{
    int i;
    for (; choice >= 0; choice = pattern->choices[choice].next)
        for (i = pattern->choices[choice].first; i >= 0; i = pattern->items[i].next) {
            ignis__pattern_item *item = &pattern->items[i];
            const bool group = item->kind == IGNIS__ITEM_GROUP, ends = last && item->next < 0;
            const bool ahead = item->kind == IGNIS__ITEM_AHEAD || item->kind == IGNIS__ITEM_NOT_AHEAD;
            if (group && item->max != 1 && (item->width = ignis__pattern_width(pattern, item->inner)) > 0) {
                item->kind = IGNIS__ITEM_STEPS;
                continue;
            }
            if (group && item->max != 1) {
                if (!ends || item->min > 1)
                    return false;
                item->kind = IGNIS__ITEM_LOOP;
            }
            if ((group || ahead) && !ignis__pattern_choose_loops(pattern, item->inner, ends || ahead))
                return false;
        }
    return true;
}

/*  Compiles a pattern in valid UTF-8. It lives as long as the tokenizer. NULL, with *no_memory, without memory; NULL if
    it has something that is not supported. */
IGNIS__COLD IGNIS__PRIVATE const ignis__pattern *ignis__pattern_compile(ignis__tokenizer *tokenizer, const char *text,
                                                                        bool *no_memory)
{
    size_t size = strlen(text), count = size + 2;
    ignis__pattern *pattern = (ignis__pattern *)ignis__tokenizer_keep(tokenizer, sizeof *pattern);
    ignis__pattern_reader reader;
    *no_memory = false;
    if (size > IGNIS__PATTERN_LIMIT)
        return NULL;
    *no_memory = true;
    if (!pattern ||
        !(pattern->items = (ignis__pattern_item *)ignis__tokenizer_keep(tokenizer, count * sizeof *pattern->items)) ||
        !(pattern->choices =
              (ignis__pattern_choice *)ignis__tokenizer_keep(tokenizer, count * sizeof *pattern->choices)) ||
        !(pattern->sets = (ignis__pattern_set *)ignis__tokenizer_keep(tokenizer, count * sizeof *pattern->sets)) ||
        !(pattern->ranges = (uint32_t *)ignis__tokenizer_keep(tokenizer, 4 * count * sizeof *pattern->ranges)))
        return NULL;
    *no_memory = false;
    memset(&reader, 0, sizeof reader);
    reader.at = text;
    reader.end = text + size;
    reader.pattern = pattern;
    (void)ignis__pattern_read_choices(&reader); /* the root is the first one */
    return reader.failed || reader.at != reader.end || !ignis__pattern_choose_loops(pattern, 0, true) ? NULL : pattern;
}

/* --- searching ---------------------------------------------------------------------------------------------------- */

static bool ignis__pattern_has(const ignis__pattern *pattern, const ignis__pattern_set *set, uint32_t code)
{
    bool in;
    int i;
    if (code < 128)
        return (set->ascii[code / 32] >> code % 32 & 1) != set->negated;
    in = (set->categories >> ignis__char_category(code) & 1) != 0;
    if (!in && set->scripts)
        in = set->scripts >> ignis__char_run(ignis__char_scripts, IGNIS__COUNT(ignis__char_scripts), 4, code) & 1;
    if (!in && (set->space || set->not_space))
        in = ignis__char_space(code) ? set->space : set->not_space;
    for (i = set->first; !in && i < set->first + set->count; i++)
        in = code >= pattern->ranges[2 * i] && code <= pattern->ranges[2 * i + 1];
    if (in && set->other)
        in = ignis__pattern_has(pattern, &pattern->sets[set->other - 1], code);
    return in != set->negated;
}

/*  Returns the place some characters before another one. */
static size_t ignis__pattern_back(const char *text, size_t at, int characters)
{
    for (; characters > 0; characters--)
        for (at--; (text[at] & 0xC0) == 0x80;)
            at--;
    return at;
}

/*  Tells whether the character at a place is one of a word, as \b sees it: joiners without width are not, the
    fractions and raised digits of Latin 1 are. */
static bool ignis__pattern_in_word(const char *text, size_t size, size_t at)
{
    int length;
    const unsigned kind = ignis__char_at(text, size, at, &length);
    const uint32_t code = ignis__utf8_code(text + at, &length);
    const bool latin = code == 0xB2 || code == 0xB3 || code == 0xB9 || (code >= 0xBC && code <= 0xBE);
    return latin || (kind & IGNIS__CHAR_WORD && code != 0x200C && code != 0x200D);
}

/*  Tells whether a word begins or ends at a place. */
static bool ignis__pattern_word_edge(const char *text, size_t size, size_t at)
{
    const bool before = at > 0 && ignis__pattern_in_word(text, size, ignis__pattern_back(text, at, 1)),
               after = at < size && ignis__pattern_in_word(text, size, at);
    return before != after;
}

/*  The items that follow a group. */
typedef struct ignis__pattern_rest {
    int item;
    const struct ignis__pattern_rest *after;
} ignis__pattern_rest;

static bool ignis__pattern_match(ignis__pattern_search *search, int index, const ignis__pattern_rest *rest, size_t at,
                                 size_t *end);

/*  Tells whether one of the alternatives from `choice` on, and then `rest`, match. */
static bool ignis__pattern_match_choices(ignis__pattern_search *search, int choice, const ignis__pattern_rest *rest,
                                         size_t at, size_t *end)
{
    for (; choice >= 0 && search->steps > 0; choice = search->pattern->choices[choice].next)
        if (ignis__pattern_match(search, search->pattern->choices[choice].first, rest, at, end))
            return true;
    return false;
}

/*  Matches a repeated group whose repetitions keep their first match. Returns how many there are. */
static int ignis__pattern_loop(ignis__pattern_search *search, const ignis__pattern_item *item, size_t *at)
{
    size_t to = *at;
    int count = 0;
    while (count < item->max && search->steps > 0 &&
           ignis__pattern_match_choices(search, item->inner, NULL, *at, &to)) {
        count++;
        if (to == *at) /* of no characters, as often as it likes */
            return item->max;
        *at = to;
    }
    return count;
}

static bool ignis__pattern_match(ignis__pattern_search *search, int index, const ignis__pattern_rest *rest, size_t at,
                                 size_t *end)
{
    const ignis__pattern *pattern = search->pattern;
    const char *text = search->text;
    while (search->steps-- > 0) {
        const ignis__pattern_item *item;
        if (index < 0) {
            *end = at;
            if (!rest)
                return true;
            index = rest->item;
            rest = rest->after;
            continue;
        }
        item = &pattern->items[index];
        index = item->next;
        if (item->kind == IGNIS__ITEM_SET) {
            size_t to = at;
            int count = 0, length;
            for (; count < item->max && to < search->size; to += (size_t)length, count++, search->steps--)
                if (!ignis__pattern_has(pattern, &pattern->sets[item->inner], ignis__utf8_code(text + to, &length)))
                    break;
            if (count < item->min)
                return false;
            for (; count > item->min && !item->possessive && search->steps > 0; count--) {
                if (ignis__pattern_match(search, index, rest, to, end))
                    return true;
                to = ignis__pattern_back(text, to, 1);
            }
            at = to;
        } else if (item->kind == IGNIS__ITEM_LOOP || item->kind == IGNIS__ITEM_STEPS) {
            int count = ignis__pattern_loop(search, item, &at);
            if (count < item->min)
                return false;
            for (; count > item->min && item->kind == IGNIS__ITEM_STEPS && search->steps > 0; count--) {
                if (ignis__pattern_match(search, index, rest, at, end))
                    return true;
                at = ignis__pattern_back(text, at, item->width);
            }
        } else if (item->kind == IGNIS__ITEM_GROUP) {
            ignis__pattern_rest more;
            more.item = index;
            more.after = rest;
            if (ignis__pattern_match_choices(search, item->inner, &more, at, end))
                return true;
            if (item->min > 0)
                return false;
        } else if (item->kind == IGNIS__ITEM_LINE_END     ? at < search->size && text[at] != '\n'
                   : item->kind == IGNIS__ITEM_LINE_BEGIN ? at > 0 && text[at - 1] != '\n'
                   : item->kind == IGNIS__ITEM_WORD_EDGE
                       ? !ignis__pattern_word_edge(text, search->size, at)
                       : ignis__pattern_match_choices(search, item->inner, NULL, at, end) !=
                             (item->kind == IGNIS__ITEM_AHEAD)) {
            return false;
        }
    }
    return false;
}

/*  Finds the first match at or after a place. False if there is none, or if search->steps has fallen to 0. */
IGNIS__PRIVATE bool ignis__pattern_find(ignis__pattern_search *search, size_t at, size_t *begin, size_t *end)
{
    int length = 1;
    for (; at <= search->size && search->steps > 0; at += (size_t)length) {
        if (ignis__pattern_match_choices(search, 0, NULL, at, end)) {
            *begin = at;
            return true;
        }
        if (at < search->size)
            (void)ignis__utf8_code(search->text + at, &length);
    }
    return false;
}
