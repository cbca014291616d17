/*  models/chat/filter_format.c - conversion to strings and numbers, printf-style format, indent

    Numbers are written with a point whatever the locale of the program is.
    May use: filter_argument.c, repr.c. Locks: none. */

#include "room.h"

/*  Runs string (0) and safe (1). */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_text(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value s = ignis__chat_text(chat, call->self);
    s.of |= (unsigned char)call->how;
    return s;
}

/*  Runs int (0) and float (1). */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_number(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value v = call->self, otherwise = call->value[0], out = ignis__chat_make(IGNIS__CHAT_INT, v.number);
    bool is_float = call->how == 1, known = ignis__chat_is_number(v);
    double real = known ? ignis__chat_as_real(v) : 0;
    if (v.kind == IGNIS__CHAT_UNDEFINED)
        return ignis__chat_fail_kind(chat, "", v);
    if (!is_float && ignis__chat_is_given(call->value[1]) && call->value[1].number != 10)
        return ignis__chat_fail_unsupported(chat, "int of another base");
    if (!otherwise.kind)
        otherwise = is_float ? ignis__chat_real(0) : ignis__chat_make(IGNIS__CHAT_INT, 0);
    if (v.kind == IGNIS__CHAT_STRING) {
        call->value[0] = ignis__chat_make(IGNIS__CHAT_ABSENT, 0);
        call->how = 3;
        v = ignis__chat_do_strip(chat, call);
        if (!is_float && ignis__chat_read_int(chat, v.u.text, (size_t)v.number, &out.number))
            v.kind = IGNIS__CHAT_INT;
        known = v.kind == IGNIS__CHAT_INT || ignis__chat_read_real(v.u.text, (size_t)v.number, &real);
    }
    if (!known || (!is_float && real != real))
        return otherwise;
    if (is_float)
        out = ignis__chat_real(real);
    else if (!ignis__chat_is_whole(v) && (real >= 9.2e18 || real <= -9.2e18))
        return real - real != 0 ? ignis__chat_fail(chat, "int of an infinite number")
                                : ignis__chat_fail_unsupported(chat, "a whole number of more than 64 bits");
    else if (!ignis__chat_is_whole(v))
        out.number = (int64_t)real;
    out.mark = ignis__chat_is_marked(call->self);
    return out;
}

/*  One conversion of a format: %(key)-+ #0width.precision and a letter. */
typedef struct ignis__chat_spec {
    bool left, plus, space, other, zero;
    int64_t width, precision; /* precision -1: not given */
    char letter;
} ignis__chat_spec;

/*  Writes a number as a conversion does, without its width, to `out` of `size` bytes. */
static bool ignis__chat_convert_number(ignis__chat *chat, const ignis__chat_spec *spec, ignis__chat_value v, char *out,
                                       size_t capacity)
{
    bool real = strchr("eEfFgG", spec->letter) != NULL,
         negative = v.kind == IGNIS__CHAT_FLOAT ? copysign(1, v.u.real) < 0 : v.number < 0;
    char format[16], digits[512], *at;
    const char *prefix = "";
    int64_t precision = spec->precision;
    uint64_t whole;
    double value = ignis__chat_as_real(v);
    if (!ignis__chat_is_number(v) || (!real && v.kind == IGNIS__CHAT_FLOAT && strchr("xXo", spec->letter))) {
        ignis__chat_fail_kind(
            chat, strchr("xXo", spec->letter) ? "%x and %o write whole numbers" : "a conversion writes a number", v);
        return false;
    }
    if (!real && v.kind == IGNIS__CHAT_FLOAT && !(value > -9.2e18 && value < 9.2e18)) {
        ignis__chat_fail_unsupported(chat, "a whole number of more than 64 bits");
        return false;
    }
    if (precision > 100) {
        ignis__chat_fail_unsupported(chat, "a precision above 100");
        return false;
    }
    ignis__chat_work(chat, 16);
    if (real) {
        value = negative ? -value : value;
        snprintf(format, sizeof format, "%%%s.%d%c", spec->other ? "#" : "", precision < 0 ? 6 : (int)precision,
                 spec->letter);
        snprintf(digits, sizeof digits, format, value);
        for (at = digits; *at; at++) /* the program's locale may use another decimal point, of several bytes */
            if (!strchr("0123456789eE+-infaINFA", *at)) {
                size_t more = 1;
                while (at[more] && !strchr("0123456789eE+-", at[more]))
                    more++;
                *at = '.';
                memmove(at + 1, at + more, strlen(at + more) + 1);
            }
    } else {
        int64_t number = v.kind == IGNIS__CHAT_FLOAT ? (int64_t)value : v.number;
        negative = number < 0;
        whole = negative ? 0 - (uint64_t)number : (uint64_t)number;
        snprintf(format, sizeof format, "%%.%dll%c", precision < 1 ? 1 : (int)precision,
                 strchr("diu", spec->letter) ? 'u' : spec->letter);
        snprintf(digits, sizeof digits, format, (unsigned long long)whole);
        prefix = !spec->other          ? ""
                 : spec->letter == 'x' ? "0x"
                 : spec->letter == 'X' ? "0X"
                 : spec->letter == 'o' ? "0o"
                                       : "";
    }
    snprintf(out, capacity, "%s%s%s", negative ? "-" : spec->plus ? "+" : spec->space ? " " : "", prefix, digits);
    return true;
}

/*  Returns a value as a conversion writes it, without its width. */
static ignis__chat_value ignis__chat_convert(ignis__chat *chat, const ignis__chat_spec *spec, ignis__chat_value v)
{
    ignis__chat_writer out = IGNIS__ZERO;
    char text[700];
    if (spec->letter == 's' || spec->letter == 'r') {
        ignis__chat_write_value(chat, &out, v, NULL, spec->letter == 'r', 0);
        v = ignis__chat_writer_value(&out);
        return spec->precision < 0 ? v : ignis__chat_part(v, 0, ignis__chat_offset(chat, v, spec->precision));
    }
    if (spec->letter == 'c') {
        if (v.kind == IGNIS__CHAT_STRING && ignis__chat_characters(chat, v) == 1)
            return v;
        if (!ignis__chat_is_whole(v) || v.number < 0 || v.number > 0x10FFFF ||
            (v.number >= 0xD800 && v.number < 0xE000))
            return ignis__chat_fail(chat, "%%c writes one character, or the number of one");
        text[ignis__utf8_write(text, (uint32_t)v.number)] = 0;
        ignis__chat_write(chat, &out, text, v.number ? strlen(text) : 1, NULL, v.mark);
        return ignis__chat_writer_value(&out);
    }
    if (!ignis__chat_convert_number(chat, spec, v, text, sizeof text))
        return ignis__chat_words("");
    ignis__chat_write_words(chat, &out, text, v.mark);
    return ignis__chat_writer_value(&out);
}

/*  Reads the digits of a format as a number. Too many digits give a number above every limit. */
static int64_t ignis__chat_format_number(ignis__chat_value format, size_t *at)
{
    int64_t number = 0;
    for (; *at < (size_t)format.number && ignis__formula_is_digit(format.u.text[*at]); ++*at)
        number = number > INT32_MAX ? number : number * 10 + (format.u.text[*at] - '0');
    return number;
}

/*  Evaluates format % values as Python does. Values are a tuple, or a dict for conversions with keys. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_format(ignis__chat *chat, ignis__chat_value format,
                                                    ignis__chat_value values)
{
    ignis__chat_writer out = IGNIS__ZERO;
    ignis__chat_value spaces = ignis__chat_words(" "), zeros = ignis__chat_words("0"), v;
    bool tuple = values.kind == IGNIS__CHAT_TUPLE, dict = values.kind == IGNIS__CHAT_DICT, numeric;
    bool rest = dict || values.kind == IGNIS__CHAT_LIST || values.kind == IGNIS__CHAT_RANGE_OF ||
                values.kind == IGNIS__CHAT_UNDEFINED; /* surplus values are allowed */
    size_t at, from = 0, size = (size_t)format.number, begin, head;
    int64_t next = 0, count = tuple ? values.u.items->count : 1, pad;
    if (format.of)
        return ignis__chat_fail_unsupported(chat, "a text behind |safe %% values");
    for (at = 0; at < size && ignis__chat_work(chat, 1); from = at) {
        const char *found = (const char *)memchr(format.u.text + at, '%', size - at);
        ignis__chat_spec spec;
        memset(&spec, 0, sizeof spec);
        spec.precision = -1;
        at = found ? (size_t)(found - format.u.text) : size;
        ignis__chat_write_string(chat, &out, ignis__chat_part(format, from, at));
        if (at == size)
            break;
        v = ignis__chat_make(IGNIS__CHAT_ABSENT, 0);
        if (++at < size && format.u.text[at] == '%') {
            ignis__chat_write_string(chat, &out, ignis__chat_part(format, at, at + 1));
            at++;
            continue;
        }
        if (at < size && format.u.text[at] == '(') {
            const char *end = (const char *)memchr(format.u.text + at, ')', size - at);
            if (!end || memchr(format.u.text + at + 1, '(', (size_t)(end - format.u.text) - at - 1))
                return ignis__chat_fail(chat, "a format has a key without an end, or with another in it");
            if (!dict)
                return ignis__chat_fail(chat, "a format with keys needs a dict");
            v = ignis__chat_part(format, at + 1, (size_t)(end - format.u.text));
            at = (size_t)(end - format.u.text) + 1;
            if (!ignis__chat_find_item(chat, values, v, &v))
                return ignis__chat_fail_kind(chat, "", v);
            next = count; /* no conversion without a key may follow */
        }
        for (; at < size && strchr("-+ #0", format.u.text[at]) && format.u.text[at]; at++)
            *(format.u.text[at] == '-'   ? &spec.left
              : format.u.text[at] == '+' ? &spec.plus
              : format.u.text[at] == ' ' ? &spec.space
              : format.u.text[at] == '#' ? &spec.other
                                         : &spec.zero) = true;
        if (at < size && format.u.text[at] == '*')
            return ignis__chat_fail_unsupported(chat, "a format with *");
        spec.width = ignis__chat_format_number(format, &at);
        if (at < size && format.u.text[at] == '.') {
            at++;
            if (at < size && format.u.text[at] == '*')
                return ignis__chat_fail_unsupported(chat, "a format with *");
            spec.precision = ignis__chat_format_number(format, &at);
        }
        at += at < size && format.u.text[at] && strchr("hlL", format.u.text[at]);
        spec.letter = (char)(at < size ? format.u.text[at] : 0);
        if (!spec.letter || !strchr("diuoxXeEfFgGcrs", spec.letter))
            return ignis__chat_fail(chat, "a format has a %% without one of d i u o x X e E f F g G c r s");
        at++;
        if (!v.kind && next == count)
            return ignis__chat_fail(chat, "a format has more conversions than there are values");
        if (!v.kind)
            v = tuple ? values.u.items->item[next] : values, next++;
        v = ignis__chat_convert(chat, &spec, v);
        if (chat->fault)
            break;
        pad = spec.width - ignis__chat_characters(chat, v);
        numeric = strchr("crs", spec.letter) == NULL;
        head = numeric && v.number > 0 && strchr("+- ", v.u.text[0]) ? 1 : 0;
        head += numeric && spec.other && strchr("xXo", spec.letter) ? 2 : 0;
        numeric = numeric && spec.zero && !spec.left &&
                  (ignis__formula_is_digit(v.u.text[v.number - 1]) || strchr("xX", spec.letter) ||
                   v.u.text[v.number - 1] == '.');
        spaces.marks = zeros.marks = NULL;
        begin = out.size;
        if (numeric)
            ignis__chat_write_string(chat, &out, ignis__chat_part(v, 0, head));
        if (!spec.left)
            ignis__chat_write_string(chat, &out, ignis__chat_repeat(chat, numeric ? zeros : spaces, pad));
        ignis__chat_write_string(chat, &out, ignis__chat_part(v, numeric ? head : 0, (size_t)v.number));
        if (spec.left)
            ignis__chat_write_string(chat, &out, ignis__chat_repeat(chat, spaces, pad));
        if (!chat->fault && pad > 0 && ignis__chat_is_marked(v))
            memset(out.marks + begin, 1, out.size - begin);
    }
    if (!chat->fault && !rest && next < count)
        return ignis__chat_fail(chat, "a format has fewer conversions than there are values");
    return ignis__chat_writer_value(&out);
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_do_format(ignis__chat *chat, ignis__chat_call *call)
{
    bool named = call->named.count > 0;
    ignis__chat_value values = ignis__chat_new(chat, named ? IGNIS__CHAT_DICT : IGNIS__CHAT_TUPLE);
    if (named && call->given.count)
        return ignis__chat_fail(chat, "format takes values with names, or values without");
    if (!chat->fault)
        *values.u.items = named ? call->named : call->given;
    return ignis__chat_format(chat, ignis__chat_text(chat, call->self), values);
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_do_indent(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value width = call->value[0], s = call->self, by;
    bool first = ignis__chat_true(call->value[1]), blank = ignis__chat_true(call->value[2]);
    ignis__chat_writer text = IGNIS__ZERO;
    const ignis__chat_items *lines;
    int64_t i;
    if (!ignis__chat_want_text(chat, s))
        return width;
    by = width.kind == IGNIS__CHAT_STRING
             ? width
             : ignis__chat_repeat(chat, ignis__chat_words(" "), ignis__chat_want_int(chat, width, 4));
    call->self = ignis__chat_join_two(chat, s, ignis__chat_words("\n"));
    call->value[0] = ignis__chat_bool(false);
    lines = ignis__chat_do_lines(chat, call).u.items;
    for (i = 0; !chat->fault && i < lines->count; i++) {
        ignis__chat_write_words(chat, &text, i ? "\n" : "", false);
        if (i ? blank || lines->item[i].number : first)
            ignis__chat_write_string(chat, &text, by);
        ignis__chat_write_string(chat, &text, lines->item[i]);
    }
    by = ignis__chat_writer_value(&text);
    by.of = s.of;
    return by;
}
