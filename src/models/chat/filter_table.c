/*  models/chat/filter_table.c - the table of filters, tests, methods and functions; tests, range, dict, strftime

    A row names its parameters, so that arguments are matched in one place.
    May use: the other parts of filters. Locks: none. */

#include "room.h"

/*  Tests the kind of a value. A letter names the test. */
static ignis__chat_value ignis__chat_do_test(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value v = call->self, by = call->value[0];
    bool yes = false, sequence = v.kind == IGNIS__CHAT_STRING || v.kind == IGNIS__CHAT_DICT ||
                                 v.kind == IGNIS__CHAT_UNDEFINED ||
                                 (v.kind >= IGNIS__CHAT_LIST && v.kind <= IGNIS__CHAT_RANGE_OF);
    switch (call->how) {
    case 'D': yes = v.kind != IGNIS__CHAT_UNDEFINED; break;
    case 'B': yes = v.kind == IGNIS__CHAT_BOOL; break;
    case 'F': yes = v.kind == IGNIS__CHAT_BOOL && !v.number; break;
    case 'T': yes = v.kind == IGNIS__CHAT_BOOL && v.number; break;
    case '0': yes = ignis__chat_is_number(v); break;
    case 'Q': yes = sequence; break;
    case 'W': yes = sequence || ignis__chat_has_items(v) || v.kind == IGNIS__CHAT_LOOP; break;
    case 'C':
        yes = v.kind == IGNIS__CHAT_MACRO || v.kind == IGNIS__CHAT_FUNCTION || v.kind == IGNIS__CHAT_UNDEFINED;
        break;
    case 'E': yes = v.of == 1 && v.kind == IGNIS__CHAT_STRING; break;
    case 'X':
        if (v.kind == by.kind && v.kind >= IGNIS__CHAT_FLOAT && v.kind <= IGNIS__CHAT_STRING)
            return ignis__chat_fail_unsupported(chat, "sameas of texts and numbers with a point");
        yes = v.kind == by.kind && (v.kind <= IGNIS__CHAT_INT ? v.number == by.number : v.u.items == by.u.items);
        break;
    case 'o':
    case 'e':
    case 'd':
        v = ignis__chat_binary_of(chat, '%', v, call->how == 'd' ? by : ignis__chat_make(IGNIS__CHAT_INT, 2));
        yes = ignis__chat_as_real(v) == (call->how == 'o');
        break;
    default:
        yes = call->how < IGNIS__CHAT_KINDS ? v.kind == call->how : ignis__chat_compares(chat, (char)call->how, v, by);
    }
    return ignis__chat_bool(yes);
}

static ignis__chat_value ignis__chat_do_range(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value out = ignis__chat_new(chat, IGNIS__CHAT_RANGE_OF);
    int64_t range[3] = {0, 0, 1}, at, i;
    if (chat->fault)
        return out;
    if (call->named.count)
        return ignis__chat_fail(chat, "the arguments of range have no names");
    for (i = 0; i < call->given.count; i++) {
        if (!ignis__chat_is_whole(call->value[i]))
            return ignis__chat_fail_kind(chat, "range is of whole numbers", call->value[i]);
        range[i] = call->value[i].number;
    }
    if (call->given.count == 1)
        range[1] = range[0], range[0] = 0;
    if (range[2] == 0)
        return ignis__chat_fail(chat, "the step of a range is 0");
    for (at = range[0]; (range[2] > 0 ? at < range[1] : at > range[1]) && ignis__chat_work(chat, 1); at += range[2]) {
        if (out.u.items->count == IGNIS__CHAT_RANGE)
            return ignis__chat_fail(chat, "a range has more than %d numbers", IGNIS__CHAT_RANGE);
        ignis__chat_add(chat, out.u.items, ignis__chat_make(IGNIS__CHAT_INT, at));
        if (range[2] > 0 ? at > INT64_MAX - range[2] : at < INT64_MIN - range[2])
            break;
    }
    return out;
}

/*  Makes a dict or a namespace from another dict and from keyword arguments. */
static ignis__chat_value ignis__chat_do_dict(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value out = ignis__chat_new(chat, (ignis__chat_kind)call->how);
    if (call->given.count > 1)
        return ignis__chat_fail(chat, "dict and namespace take one dict, and arguments with names");
    if (call->given.count && call->given.item[0].kind != IGNIS__CHAT_DICT)
        return ignis__chat_fail_unsupported(chat, "a dict made of a %s", ignis__chat_kinds[call->given.item[0].kind]);
    if (call->given.count)
        ignis__chat_put_all(chat, out.u.items, call->given.item[0].u.items);
    ignis__chat_put_all(chat, out.u.items, &call->named);
    return out;
}

static ignis__chat_value ignis__chat_do_raise(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value text = ignis__chat_text(chat, call->value[0]);
    size_t size = text.number < 500 ? (size_t)text.number : 500;
    if (chat->fault)
        return text;
    if (size < (size_t)text.number)
        size = ignis__chat_before(text.u.text, size + 1);
    return ignis__chat_fault(chat, IGNIS_DIAG_CHAT_REFUSED, chat->here, "%.*s%s", (int)size, text.u.text,
                             size < (size_t)text.number ? "..." : "");
}

static ignis__chat_value ignis__chat_do_strftime(ignis__chat *chat, ignis__chat_call *call)
{
    static const char known[] = "aAbBcdDeFhHIjmMpRSTuUwWxXyY%nt";
    ignis__chat_value format = call->value[0];
    ignis__chat_writer out = IGNIS__ZERO;
    struct tm now;
    int64_t i;
#ifdef _WIN32
    __time64_t seconds = chat->now ? chat->now : (__time64_t)time(NULL);
    bool ok = _localtime64_s(&now, &seconds) == 0;
#else
    time_t seconds = chat->now ? (time_t)chat->now : time(NULL);
    bool ok = localtime_r(&seconds, &now) != NULL;
#endif
    if (!ignis__chat_want_text(chat, format) || !ok)
        return ignis__chat_fail(chat, "the time cannot be told");
    for (i = 0; i < format.number && !chat->fault; i++) {
        char one[4] = "%?", text[128], *from = text;
        bool short_one = false;
        if (format.u.text[i] != '%') {
            ignis__chat_write_string(chat, &out, ignis__chat_part(format, (size_t)i, (size_t)i + 1));
            continue;
        }
        i++;
        if (i + 1 < format.number && format.u.text[i] == '-')
            short_one = true, i++;
        ignis__chat_work(chat, 8);
        one[1] = i < format.number ? format.u.text[i] : 0;
        if (!one[1] || !strchr(known, one[1]) || (short_one && !strchr("dHIjmMSyUW", one[1])))
            return ignis__chat_fail_unsupported(chat, "strftime_now with '%%%c'",
                                                one[1] > ' ' && one[1] < 127 ? one[1] : '?');
        if (strftime(text, sizeof text, one, &now) == 0)
            *text = 0;
        while (short_one && *from == '0' && from[1])
            from++;
        ignis__chat_write_words(chat, &out, from, false);
    }
    return ignis__chat_writer_value(&out);
}

/* clang-format off */
static const ignis__chat_row ignis__chat_rows[] = {
    {"fs", "capitalize", "", ignis__chat_do_case, 2},
    {"f", "count length", "", ignis__chat_do_length, 0},
    {"f", "d default", "default_value boolean", ignis__chat_do_default, 0},
    {"f", "dictsort", "case_sensitive by reverse", ignis__chat_do_sort, 1},
    {"f", "first", "", ignis__chat_do_end, 0},
    {"f", "float", "default", ignis__chat_do_number, 1},
    {"f", "indent", "width first blank", ignis__chat_do_indent, 0},
    {"f", "int", "default base", ignis__chat_do_number, 0},
    {"f", "items", "", ignis__chat_do_pairs, IGNIS__CHAT_GENERATOR},
    {"f", "join", "d attribute", ignis__chat_do_join, 0},
    {"f", "last", "", ignis__chat_do_end, 1},
    {"f", "list", "", ignis__chat_do_list, 0},
    {"fs", "lower", "", ignis__chat_do_case, 0},
    {"f", "format", NULL, ignis__chat_do_format, 0},
    {"f", "max", "case_sensitive attribute", ignis__chat_do_extreme, 1},
    {"f", "min", "case_sensitive attribute", ignis__chat_do_extreme, 0},
    {"f", "map", NULL, ignis__chat_do_map, 0},
    {"f", "reject", NULL, ignis__chat_do_map, 2},
    {"f", "rejectattr", NULL, ignis__chat_do_map, 4},
    {"f", "replace", "!old !new count", ignis__chat_do_replace, 1},
    {"f", "reverse", "", ignis__chat_do_list, 1},
    {"f", "safe", "", ignis__chat_do_text, 1},
    {"f", "select", NULL, ignis__chat_do_map, 1},
    {"f", "selectattr", NULL, ignis__chat_do_map, 3},
    {"f", "sort", "reverse case_sensitive attribute", ignis__chat_do_sort, 0},
    {"f", "string", "", ignis__chat_do_text, 0},
    {"f", "title", "", ignis__chat_do_case, 3},
    {"f", "tojson", "ensure_ascii indent separators sort_keys", ignis__chat_do_tojson, 0},
    {"f", "trim", "chars", ignis__chat_do_strip, 3},
    {"fs", "upper", "", ignis__chat_do_case, 1},
    {"t", "boolean", "", ignis__chat_do_test, IGNIS__CHAT_BOOL},
    {"t", "callable", "", ignis__chat_do_test, 'C'},
    {"t", "defined", "", ignis__chat_do_test, 'D'},
    {"t", "divisibleby", "!num", ignis__chat_do_test, 'd'},
    {"t", "eq equalto ==", "!b", ignis__chat_do_test, '='},
    {"t", "escaped", "", ignis__chat_do_test, 'E'},
    {"t", "even", "", ignis__chat_do_test, 'e'},
    {"t", "false", "", ignis__chat_do_test, 'F'},
    {"t", "float", "", ignis__chat_do_test, IGNIS__CHAT_FLOAT},
    {"t", "ge >=", "!b", ignis__chat_do_test, 'g'},
    {"t", "gt greaterthan >", "!b", ignis__chat_do_test, '>'},
    {"t", "in", "!seq", ignis__chat_do_test, 'i'},
    {"t", "integer", "", ignis__chat_do_test, IGNIS__CHAT_INT},
    {"t", "iterable", "", ignis__chat_do_test, 'W'},
    {"t", "le <=", "!b", ignis__chat_do_test, 'l'},
    {"t", "lt lessthan <", "!b", ignis__chat_do_test, '<'},
    {"t", "mapping", "", ignis__chat_do_test, IGNIS__CHAT_DICT},
    {"t", "ne !=", "!b", ignis__chat_do_test, '!'},
    {"t", "none", "", ignis__chat_do_test, IGNIS__CHAT_NONE},
    {"t", "number", "", ignis__chat_do_test, '0'},
    {"t", "odd", "", ignis__chat_do_test, 'o'},
    {"t", "sameas", "!other", ignis__chat_do_test, 'X'},
    {"t", "sequence", "", ignis__chat_do_test, 'Q'},
    {"t", "string", "", ignis__chat_do_test, IGNIS__CHAT_STRING},
    {"t", "true", "", ignis__chat_do_test, 'T'},
    {"t", "undefined", "", ignis__chat_do_test, IGNIS__CHAT_UNDEFINED},
    {"s", "count", "!sub", ignis__chat_do_find, 4},
    {"s", "endswith", "!suffix", ignis__chat_do_affix, 2},
    {"s", "find", "!sub", ignis__chat_do_find, 1},
    {"s", "index", "!sub", ignis__chat_do_find, 3},
    {"s", "join", "!iterable", ignis__chat_do_join, 1},
    {"s", "lstrip", "chars", ignis__chat_do_strip, 1},
    {"s", "removeprefix", "!prefix", ignis__chat_do_affix, 3},
    {"s", "removesuffix", "!suffix", ignis__chat_do_affix, 4},
    {"s", "replace", "!old !new count", ignis__chat_do_replace, 0},
    {"s", "rfind", "!sub", ignis__chat_do_find, 2},
    {"s", "rsplit", "sep maxsplit", ignis__chat_do_split, 1},
    {"s", "rstrip", "chars", ignis__chat_do_strip, 2},
    {"s", "split", "sep maxsplit", ignis__chat_do_split, 0},
    {"s", "splitlines", "keepends", ignis__chat_do_lines, 0},
    {"s", "startswith", "!prefix", ignis__chat_do_affix, 1},
    {"s", "strip", "chars", ignis__chat_do_strip, 3},
    {"s", "title", "", ignis__chat_do_case, 4},
    {"d", "get", "!key default", ignis__chat_do_get, 0},
    {"d", "items", "", ignis__chat_do_pairs, IGNIS__CHAT_ITEMS},
    {"d", "keys", "", ignis__chat_do_pairs, IGNIS__CHAT_KEYS},
    {"d", "values", "", ignis__chat_do_pairs, IGNIS__CHAT_VALUES},
    {"g", "cycler", NULL, NULL, 0},
    {"g", "joiner", NULL, NULL, 0},
    {"g", "lipsum", NULL, NULL, 0},
    {"g", "dict", NULL, ignis__chat_do_dict, IGNIS__CHAT_DICT},
    {"g", "namespace", NULL, ignis__chat_do_dict, IGNIS__CHAT_NAMESPACE},
    {"g", "raise_exception", "!message", ignis__chat_do_raise, 0},
    {"g", "range", "!start stop step", ignis__chat_do_range, 0},
    {"g", "strftime_now", "!format", ignis__chat_do_strftime, 0},
};
/* clang-format on */

IGNIS__PRIVATE int ignis__chat_row_find(ignis__chat *chat, char of, ignis__chat_value name)
{
    int i;
    ignis__chat_work(chat, 8); /* counted for a search of the whole table */
    for (i = 0; i < IGNIS__COUNT(ignis__chat_rows); i++)
        if (strchr(ignis__chat_rows[i].of, of) &&
            ignis__chat_in_words(ignis__chat_rows[i].names, name.u.text, name.number))
            return i;
    return -1;
}

IGNIS__PRIVATE const ignis__chat_row *ignis__chat_row_at(int64_t row) { return &ignis__chat_rows[row]; }
