/* ===============================================================================================================
   >>print - tensors and models as text

   This part: numbers of one array as words of equal width, by the rules of NumPy's FloatingFormat and IntegerFormat
   (numpy/_core/arrayprint.py, 2.4): the fewest digits that give the number back, at most 8 after the point, and a
   common form, positional or scientific, for all numbers.
   May use: array/conversion.c. Locks: none. Texts do not depend on the locale.
   =============================================================================================================== */

#include "room.h"

/*  Rounds a number to a dtype. */
static double ignis__number_round(double value, ignis_dtype dtype)
{
    char bits[8];
    ignis__convert(bits, dtype, &value, IGNIS_F64, 1);
    ignis__convert(&value, IGNIS_F64, bits, dtype, 1);
    return value;
}

/*  Writes the digits of a number above 0, and returns the exponent of the first: the fewest that give the number back
    in its dtype. */
static int ignis__number_digits(double value, ignis_dtype dtype, char *digits, size_t size)
{
    char text[64], *exponent;
    size_t length = 0;
    int places;
    for (places = 0; places <= 16; places++) {
        snprintf(text, sizeof text, "%.*e", places, value);
        if (ignis__number_round(strtod(text, NULL), dtype) == value)
            break;
    }
    exponent = strchr(text, 'e');
    for (places = 0; text + places < exponent; places++)
        if (text[places] >= '0' && text[places] <= '9' && length < size - 1) /* the point is that of the locale */
            digits[length++] = text[places];
    while (length > 1 && digits[length - 1] == '0')
        length--;
    digits[length] = 0;
    return (int)strtol(exponent + 1, NULL, 10);
}

static void ignis__number_trim(char *fraction)
{
    size_t length = strlen(fraction);
    while (length > 0 && fraction[length - 1] == '0')
        fraction[--length] = 0;
}

/*  Splits the number d.ddd that "%.*e" rounds to. */
static void ignis__number_split_scientific(double value, int places, ignis__number_text *out)
{
    char text[64], *exponent;
    snprintf(text, sizeof text, "%.*e", places, value);
    exponent = strchr(text, 'e');
    out->whole[0] = text[0];
    memcpy(out->fraction, exponent - places, (size_t)places);
    out->fraction[places] = 0;
    out->exponent = (int)strtol(exponent + 1, NULL, 10);
}

/*  Splits a finite number at its point. */
static void ignis__number_split(double value, ignis_dtype dtype, bool scientific, ignis__number_text *out)
{
    char digits[32], text[64];
    double size = value < 0 ? -value : value;
    int count, behind, exponent;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    memset(out, 0, sizeof *out);
    out->negative = bits >> 63 != 0;
    strcpy(out->whole, "0");
    if (!(size > 0))
        return;
    exponent = ignis__number_digits(size, dtype, digits, sizeof digits);
    count = (int)strlen(digits);
    behind = scientific ? count - 1 : count - 1 - exponent;
    if (scientific) {
        ignis__number_split_scientific(size, behind < IGNIS__PRINT_DIGITS ? behind : IGNIS__PRINT_DIGITS, out);
    } else if (behind > IGNIS__PRINT_DIGITS) {
        count = snprintf(text, sizeof text, "%.*f", IGNIS__PRINT_DIGITS, size);
        strcpy(out->fraction, text + count - IGNIS__PRINT_DIGITS);
        snprintf(out->whole, sizeof out->whole, "%.*s", (int)strspn(text, "0123456789"), text);
    } else if (exponent < 0) {
        memset(out->fraction, '0', (size_t)(-exponent - 1)); /* fewer than 8 */
        strcpy(out->fraction - exponent - 1, digits);
    } else {
        snprintf(out->whole, sizeof out->whole, "%.*s", exponent + 1, digits);
        while (count <= exponent)
            out->whole[count++] = '0';
        if (exponent + 1 < (int)strlen(digits))
            strcpy(out->fraction, digits + exponent + 1);
    }
    ignis__number_trim(out->fraction);
}

/*  Finds the form and the widths that all numbers share. values: double, or int64_t for integers. */
IGNIS__COLD IGNIS__PRIVATE void ignis__number_format_find(ignis__number_format *format, ignis_dtype dtype,
                                                          const void *values, int64_t count)
{
    const double *numbers = (const double *)values;
    double most = 0, least = 0, limit = dtype == IGNIS_F64 ? 1e8 : dtype == IGNIS_F32 ? 1e6 : 1e3, size;
    ignis__number_text text;
    int special = 0, width;
    int64_t i;
    memset(format, 0, sizeof *format);
    format->dtype = dtype;
    if (ignis__dtype_is_int(dtype)) {
        for (i = 0; i < count; i++) {
            width = snprintf(NULL, 0, "%lld", (long long)((const int64_t *)values)[i]);
            format->left = width > format->left ? width : format->left;
        }
        return;
    }
    for (i = 0; i < count; i++) {
        size = numbers[i] < 0 ? -numbers[i] : numbers[i];
        if (!ignis__is_finite(size)) {
            width = ignis__is_nan(size) || numbers[i] > 0 ? 3 : 4;
            special = width > special ? width : special;
        } else if (size > 0) {
            most = size > most ? size : most;
            least = least > 0 && least < size ? least : size;
        }
    }
    format->scientific =
        most >= limit ||
        (most > 0 && (least < ignis__number_round(0.0001, dtype) || ignis__number_round(most / least, dtype) > 1000));
    for (i = 0; i < count; i++) {
        if (!ignis__is_finite(numbers[i]))
            continue;
        ignis__number_split(numbers[i], dtype, format->scientific, &text);
        width = (int)strlen(text.whole) + text.negative;
        format->left = width > format->left ? width : format->left;
        width = (int)strlen(text.fraction);
        format->right = width > format->right ? width : format->right;
        width = text.exponent > 99 || text.exponent < -99 ? 3 : 2;
        format->exponent = width > format->exponent ? width : format->exponent;
    }
    format->tail = format->right + (format->scientific ? 2 + format->exponent : 0);
    if (special - format->tail - 1 > format->left)
        format->left = special - format->tail - 1;
}

/*  Writes number `i` as a word. All words of a format are as long. */
IGNIS__COLD IGNIS__PRIVATE void ignis__number_write(const ignis__number_format *format, const void *values, int64_t i,
                                                    char *out, size_t size)
{
    ignis__number_text text;
    ignis__string_writer writer;
    double value;
    ignis__string_begin(&writer, out, size);
    if (ignis__dtype_is_int(format->dtype)) {
        ignis__string_add(&writer, "%*lld", format->left, (long long)((const int64_t *)values)[i]);
        return;
    }
    value = ((const double *)values)[i];
    if (!ignis__is_finite(value)) {
        ignis__string_add(&writer, "%*s", format->left + format->tail + 1,
                          ignis__is_nan(value) ? "nan"
                          : value > 0          ? "inf"
                                               : "-inf");
        return;
    }
    ignis__number_split(value, format->dtype, format->scientific, &text);
    if (format->scientific) { /* with as many digits as the longest number needs, zeros or not */
        ignis__number_split_scientific(text.negative ? -value : value, format->right, &text);
        ignis__string_add(&writer, "%*s%s%s.%se%c%0*d", format->left - text.negative - 1, "", text.negative ? "-" : "",
                          text.whole, text.fraction, text.exponent < 0 ? '-' : '+', format->exponent,
                          text.exponent < 0 ? -text.exponent : text.exponent);
    } else {
        ignis__string_add(&writer, "%*s%s%s.%-*s", format->left - text.negative - (int)strlen(text.whole), "",
                          text.negative ? "-" : "", text.whole, format->right, text.fraction);
    }
}
