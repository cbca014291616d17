/*  models/grammar/schema_number.c - decimal numbers within bounds, and multiples, as rules of digits

    Bounds are compared digit by digit: a beginning of a number is equal to that of a bound, or within the bounds
    whatever follows. The remainder of a multiple is carried along. So the rules hold exactly the decimal numbers that
    fit, and no floating-point number is involved.
    May use: schema_text.c. Locks: none. */

#include "room.h"

enum { IGNIS__NUMBER_WHOLE = 16, IGNIS__NUMBER_FRACTION = 16, IGNIS__NUMBER_MULTIPLE = 512 };

/*  Reads a number of JSON. False if it has too many digits. */
IGNIS__PRIVATE bool ignis__decimal_read(ignis__schema_decimal *decimal, const char *text)
{
    char digits[2 * IGNIS__DECIMAL_DIGITS];
    int count = 0, point = 0, exponent = 0, i;
    bool behind = false, minus = false;
    memset(decimal, 0, sizeof *decimal);
    decimal->negative = *text == '-';
    for (text += *text == '-'; ignis__formula_is_digit(*text) || *text == '.'; text++) {
        if (*text == '.') {
            behind = true;
            continue;
        }
        if (count == 0 && *text == '0') { /* a zero at the begin */
            point -= behind;
            continue;
        }
        if (count == IGNIS__COUNT(digits))
            return false;
        digits[count++] = *text;
        point += !behind;
    }
    if (*text == 'e' || *text == 'E') {
        minus = text[1] == '-';
        for (text += 1 + (text[1] == '-' || text[1] == '+'); ignis__formula_is_digit(*text); text++)
            exponent = exponent < 10000 ? exponent * 10 + (*text - '0') : exponent;
    }
    point += minus ? -exponent : exponent;
    while (count > 0 && digits[count - 1] == '0')
        count--;
    if (count == 0) {
        decimal->negative = false;
        return true;
    }
    decimal->whole = point > 0 ? point : 0;
    decimal->fraction = count > point ? count - point : 0;
    if (decimal->whole > IGNIS__DECIMAL_DIGITS || decimal->fraction > IGNIS__DECIMAL_DIGITS)
        return false;
    for (i = 0; i < decimal->whole + decimal->fraction; i++) {
        int from = i - decimal->whole + point;
        decimal->digits[i] = from >= 0 && from < count ? digits[from] : '0';
    }
    return true;
}

/*  Returns the count of digits before the point, at least 1. */
static int ignis__decimal_length(const ignis__schema_decimal *decimal)
{
    return decimal->whole > 0 ? decimal->whole : 1;
}

static int ignis__decimal_digit(const ignis__schema_decimal *decimal, int i)
{
    return decimal->whole > 0 ? decimal->digits[i] - '0' : 0;
}

static int ignis__decimal_fraction(const ignis__schema_decimal *decimal, int i)
{
    return i < decimal->fraction ? decimal->digits[decimal->whole + i] - '0' : 0;
}

/*  Returns -1, 0 or 1 as a is below, equal to or above b. */
IGNIS__PRIVATE int ignis__decimal_compare(const ignis__schema_decimal *a, const ignis__schema_decimal *b)
{
    int sign = a->negative ? -1 : 1, i, order = 0;
    if (a->negative != b->negative)
        return sign;
    if (a->whole != b->whole)
        return a->whole < b->whole ? -sign : sign;
    for (i = 0; i < a->whole && order == 0; i++)
        order = a->digits[i] - b->digits[i];
    for (i = 0; (i < a->fraction || i < b->fraction) && order == 0; i++)
        order = ignis__decimal_fraction(a, i) - ignis__decimal_fraction(b, i);
    return order == 0 ? 0 : order < 0 ? -sign : sign;
}

/*  Reads a bound, and keeps the narrower one. side: 1 for a least number, -1 for a most. */
static void ignis__number_range_bound(ignis__schema *schema, const char *at, ignis__number_range *range, int side,
                                      bool excluded)
{
    ignis__schema_decimal *bound = side > 0 ? &range->least : &range->most, now;
    bool *has = side > 0 ? &range->has_least : &range->has_most, *open = side > 0 ? &range->above : &range->below;
    int order;
    if (*at != '-' && !ignis__formula_is_digit(*at)) {
        ignis__schema_fail_malformed(schema, at, "this has to be a number");
        return;
    }
    if (!ignis__decimal_read(&now, at) || now.fraction > IGNIS__NUMBER_FRACTION) {
        ignis__schema_fail_unsupported(schema, at,
                                       "a bound with more than %d digits before the point, or %d after "
                                       "it, is not supported",
                                       (int)IGNIS__DECIMAL_DIGITS, (int)IGNIS__NUMBER_FRACTION);
        return;
    }
    order = *has ? side * ignis__decimal_compare(&now, bound) : 1;
    if (order > 0)
        *bound = now;
    *open = order > 0 ? excluded : order == 0 ? *open || excluded : *open;
    *has = true;
}

static int64_t ignis__greatest_divisor(int64_t a, int64_t b) { return b == 0 ? a : ignis__greatest_divisor(b, a % b); }

/*  Reads multipleOf. With one from before: the least number that is a multiple of both. */
static void ignis__number_range_multiple(ignis__schema *schema, const char *at, ignis__number_range *range)
{
    ignis__schema_decimal number;
    int64_t multiple = 0, other = range->multiple;
    int i, decimals;
    bool fits = true;
    if (!ignis__formula_is_digit(*at) || (ignis__decimal_read(&number, at) && number.whole + number.fraction == 0)) {
        ignis__schema_fail_malformed(schema, at, "multipleOf has to be a number above 0");
        return;
    }
    fits = ignis__decimal_read(&number, at) && number.whole <= 6 && number.fraction <= 6;
    for (i = 0; fits && i < number.whole + number.fraction; i++)
        multiple = multiple * 10 + (number.digits[i] - '0');
    decimals = fits && number.fraction > range->decimals ? number.fraction : range->decimals;
    for (i = fits ? number.fraction : decimals; i < decimals; i++)
        multiple *= 10;
    for (i = range->decimals; i < decimals; i++)
        other *= 10;
    fits = fits && multiple <= IGNIS__NUMBER_MULTIPLE && other <= IGNIS__NUMBER_MULTIPLE;
    if (fits && other)
        multiple = multiple / ignis__greatest_divisor(multiple, other) * other;
    range->multiple = multiple;
    range->decimals = decimals;
    if (!fits || multiple > IGNIS__NUMBER_MULTIPLE)
        ignis__schema_fail_unsupported(schema, at, "multipleOf is supported up to %d units of its last decimal",
                                       (int)IGNIS__NUMBER_MULTIPLE);
}

/*  Reads the keywords of numbers. */
IGNIS__PRIVATE void ignis__schema_read_range(ignis__schema *schema, const ignis__schema_merged *merged,
                                             ignis__number_range *range)
{
    int i, side;
    memset(range, 0, sizeof *range);
    for (i = 0; i < merged->count && !schema->grammar->diagnostic; i++)
        for (side = 1; side >= -1; side -= 2) {
            const char *const *has = merged->node[i].has;
            const char *bound = has[side > 0 ? IGNIS__SCHEMA_MINIMUM : IGNIS__SCHEMA_MAXIMUM],
                       *open = has[side > 0 ? IGNIS__SCHEMA_EXCLUSIVE_MINIMUM : IGNIS__SCHEMA_EXCLUSIVE_MAXIMUM];
            if (bound) /* in draft 4, true excludes the bound beside it */
                ignis__number_range_bound(schema, bound, range, side, open && *open == 't');
            if (open && *open != 't' && *open != 'f')
                ignis__number_range_bound(schema, open, range, side, true);
            if (side > 0 && has[IGNIS__SCHEMA_MULTIPLE_OF])
                ignis__number_range_multiple(schema, has[IGNIS__SCHEMA_MULTIPLE_OF], range);
        }
}

/*  Tells whether a number is within a range. */
IGNIS__PRIVATE bool ignis__number_range_has(const ignis__number_range *range, const ignis__schema_decimal *number)
{
    int order, i;
    int64_t rest = 0;
    order = range->has_least ? ignis__decimal_compare(number, &range->least) : 1;
    if (order < 0 || (order == 0 && range->above))
        return false;
    order = range->has_most ? ignis__decimal_compare(number, &range->most) : -1;
    if (order > 0 || (order == 0 && range->below))
        return false;
    if (!range->multiple)
        return true;
    for (i = 0; i < number->whole + range->decimals; i++)
        rest = (rest * 10 +
                (i < number->whole ? number->digits[i] - '0' : ignis__decimal_fraction(number, i - number->whole))) %
               range->multiple;
    return rest == 0 && number->fraction <= range->decimals;
}

/*  Numbers of one sign while their rules are written. low, high: bounds without their sign, or NULL. */
typedef struct ignis__number_writer {
    ignis__schema *schema;
    const ignis__schema_decimal *low, *high;
    bool above, below;
    char sign; /* p or m, in names of rules */
    int fraction, decimals;
    int64_t multiple; /* at least 1 */
    bool *seen;       /* by key */
    int32_t *todo, count;
} ignis__number_writer;

/*  A beginning of a number. at: digits that are missing before the point, or that were read after it. */
typedef struct ignis__number_place {
    bool behind, low, high; /* low, high: equal to the bound so far */
    int at;
    int64_t rest;
} ignis__number_place;

static int32_t ignis__number_place_key(const ignis__number_writer *writer, const ignis__number_place *place)
{
    return (
        int32_t)(((((place->behind ? IGNIS__NUMBER_WHOLE + 1 : 0) + place->at) * 2 + place->low) * 2 + place->high) *
                     writer->multiple +
                 place->rest);
}

/*  Tells whether a number may end at a place. */
static bool ignis__number_ends(const ignis__number_writer *writer, const ignis__number_place *place)
{
    int at = place->behind ? place->at : 0, i;
    int64_t rest = place->rest;
    bool more = false;
    if ((!place->behind && place->at > 0) || (place->behind && place->at == 0))
        return false;
    for (i = at; place->low && i < writer->low->fraction; i++)
        more = more || ignis__decimal_fraction(writer->low, i) > 0;
    if (place->low && (more || writer->above))
        return false;
    for (i = at, more = false; place->high && i < writer->high->fraction; i++)
        more = more || ignis__decimal_fraction(writer->high, i) > 0;
    if (place->high && !more && writer->below)
        return false;
    for (i = at; i < writer->decimals; i++)
        rest = rest * 10 % writer->multiple;
    return rest == 0;
}

/*  Writes the name of the rule of a place, which is written later if it is new. */
static void ignis__number_write_name(ignis__number_writer *writer, const ignis__number_place *place)
{
    int32_t key = ignis__number_place_key(writer, place);
    if (!writer->seen[key]) {
        writer->seen[key] = true;
        writer->todo[writer->count++] = key;
    }
    ignis__schema_write(writer->schema, &writer->schema->deferred, " n%d%c-%d", writer->schema->numbers, writer->sign,
                        (int)key);
}

/*  Writes the alternatives of a place that begin with a digit. first: a zero may not be first. */
static const char *ignis__number_write_digits(ignis__number_writer *writer, const ignis__number_place *place,
                                              const char *bar, bool first)
{
    int low = 0, high = 9, digit, end;
    if (place->low)
        low = place->behind ? ignis__decimal_fraction(writer->low, place->at)
                            : ignis__decimal_digit(writer->low, ignis__decimal_length(writer->low) - place->at);
    if (place->high)
        high = place->behind ? ignis__decimal_fraction(writer->high, place->at)
                             : ignis__decimal_digit(writer->high, ignis__decimal_length(writer->high) - place->at);
    for (digit = first && low == 0 ? 1 : low; digit <= high; digit = end + 1) {
        ignis__number_place next = *place;
        next.at += place->behind ? 1 : -1;
        next.low = place->low && digit == low;
        next.high = place->high && digit == high;
        next.rest = (place->rest * 10 + digit) % writer->multiple;
        end = digit;
        if (writer->multiple == 1 && !next.low && !next.high) /* digits that lead to the same place */
            end = place->high ? high - 1 : high;
        ignis__schema_write(writer->schema, &writer->schema->deferred, "%s[%d-%d]", bar, digit, end);
        ignis__number_write_name(writer, &next);
        bar = " | ";
    }
    return bar;
}

/*  Writes the rules of the numbers of one sign. */
static void ignis__number_write_sign(ignis__number_writer *writer)
{
    ignis__bytes *to = &writer->schema->deferred;
    ignis__number_place place = IGNIS__ZERO;
    int32_t key, length;
    const char *bar = "";
    ignis__schema_write(writer->schema, to, "n%d%c ::= ", writer->schema->numbers, writer->sign);
    for (length = 1; length <= IGNIS__NUMBER_WHOLE; length++) {
        if ((writer->low && ignis__decimal_length(writer->low) > length) ||
            (writer->high && ignis__decimal_length(writer->high) < length))
            continue;
        place.at = length;
        place.low = writer->low && ignis__decimal_length(writer->low) == length;
        place.high = writer->high && ignis__decimal_length(writer->high) == length;
        bar = ignis__number_write_digits(writer, &place, bar, length > 1);
    }
    ignis__schema_write(writer->schema, to, *bar ? "\n" : "nothing\n");
    while (writer->count > 0 && !writer->schema->grammar->diagnostic) {
        key = writer->todo[--writer->count];
        ignis__schema_write(writer->schema, to, "n%d%c-%d ::= ", writer->schema->numbers, writer->sign, (int)key);
        place.rest = key % writer->multiple;
        key = (int32_t)(key / writer->multiple);
        place.high = key & 1;
        place.low = key >> 1 & 1;
        place.at = key >> 2;
        place.behind = place.at > IGNIS__NUMBER_WHOLE;
        place.at -= place.behind ? IGNIS__NUMBER_WHOLE + 1 : 0;
        bar = "";
        if (ignis__number_ends(writer, &place)) {
            ignis__schema_write(writer->schema, to, "\"\"");
            bar = " | ";
        }
        if (!place.behind && place.at == 0 && writer->fraction > 0) {
            place.behind = true;
            ignis__schema_write(writer->schema, to, "%s\".\"", bar);
            ignis__number_write_name(writer, &place);
            bar = " | ";
        } else if (place.behind ? place.at < writer->fraction : place.at > 0) {
            bar = ignis__number_write_digits(writer, &place, bar, false);
        }
        ignis__schema_write(writer->schema, to, *bar ? "\n" : "nothing\n");
    }
}

/*  Writes the rules of the numbers of a range after the line that is being written. Returns the number of their
    first rule, "n1". */
IGNIS__PRIVATE int ignis__schema_write_number(ignis__schema *schema, const ignis__number_range *range, bool integer)
{
    static const ignis__schema_decimal zero = IGNIS__ZERO;
    ignis__number_writer writer = IGNIS__ZERO;
    bool plus = !range->has_most || !range->most.negative, minus = !range->has_least || range->least.negative;
    size_t keys;
    if (schema->grammar->diagnostic)
        return 0;
    writer.schema = schema;
    writer.multiple = range->multiple ? range->multiple : 1;
    writer.decimals = range->multiple ? range->decimals : 0;
    writer.fraction = integer ? 0 : range->multiple ? range->decimals : IGNIS__NUMBER_FRACTION;
    keys = (size_t)(IGNIS__NUMBER_WHOLE + 1 + IGNIS__NUMBER_FRACTION + 1) * 4 * (size_t)writer.multiple;
    writer.seen = (bool *)ignis__alloc(keys);
    writer.todo = (int32_t *)ignis__alloc(sizeof *writer.todo * keys);
    if (!writer.seen || !writer.todo)
        ignis__schema_fail_memory(schema);
    schema->numbers++;
    ignis__schema_write(schema, &schema->deferred, "n%d ::= ", schema->numbers);
    if (plus)
        ignis__schema_write(schema, &schema->deferred, "n%dp%s", schema->numbers, minus ? " | " : "");
    if (minus)
        ignis__schema_write(schema, &schema->deferred, "\"-\" n%dm", schema->numbers);
    ignis__schema_write(schema, &schema->deferred, plus || minus ? "\n" : "nothing\n");
    if (plus && !schema->grammar->diagnostic) {
        writer.sign = 'p';
        writer.low = range->has_least && !range->least.negative ? &range->least : NULL;
        writer.high = range->has_most ? &range->most : NULL;
        writer.above = range->above;
        writer.below = range->below;
        ignis__number_write_sign(&writer);
    }
    if (minus && !schema->grammar->diagnostic) {
        memset(writer.seen, 0, keys);
        writer.sign = 'm';
        writer.low = range->has_most && range->most.negative ? &range->most : &zero;
        writer.above = writer.low == &zero || range->below;
        writer.high = range->has_least ? &range->least : NULL;
        writer.below = range->above;
        ignis__number_write_sign(&writer);
    }
    ignis__free(writer.seen), ignis__free(writer.todo);
    return schema->numbers;
}
