/*  report/print.c - ignis_tensor_values_to_string and ignis_tensor_print: the layout of NumPy's repr

    Reads the elements that are shown, finds their form, and writes them by dimensions (numpy/_core/arrayprint.py, 2.4:
    lines of 75 columns, a summary above 1000 elements, 3 at each edge).
    May use: number_format.c, >>tensor. Locks: none. */

#include "room.h"

enum { IGNIS__PRINT_THRESHOLD = 1000, IGNIS__PRINT_EDGE = 3, IGNIS__PRINT_WIDTH = 75 };

static const char ignis__print_prefix[] = "tensor(";

/*  A tensor while it is printed. */
typedef struct ignis__print {
    ignis_shape shape;
    ignis_dtype dtype;
    bool requires_grad, summary;
    void *values;  /* of the elements that are shown: double, or int64_t of integers */
    int64_t count; /* of them */
    ignis__number_format format;
    ignis__string_writer *text;
    int64_t next; /* to be written */
    int column;
} ignis__print;

/*  Returns how many elements of a dimension are shown. */
static int64_t ignis__print_shown(const ignis__print *print, int dim)
{
    int64_t n = print->shape.dim[dim];
    return print->summary && n > 2 * IGNIS__PRINT_EDGE ? 2 * IGNIS__PRINT_EDGE : n;
}

/*  Copies the shown elements below an index of dimensions before `dim` to `to`, and returns the end of them. NULL after
    a failure. whole: a copy of all elements on the host; NULL: none, each run is copied from the device. */
static char *ignis__print_gather(const ignis__print *print, const ignis__work *work, ignis__address from,
                                 const char *whole, int dim, int64_t index, char *to)
{
    int64_t n = print->shape.dim[dim], shown = ignis__print_shown(print, dim), size = ignis__dtypes[print->dtype].size,
            i;
    bool is_last = dim == print->shape.ndim - 1;
    for (i = 0; i < shown && to; i++) {
        int64_t at = index * n + (i < shown / 2 || shown == n ? i : n - shown + i), run = shown == n ? n : shown / 2;
        if (!is_last) {
            to = ignis__print_gather(print, work, from, whole, dim + 1, at, to);
            continue;
        }
        if (whole)
            memcpy(to, whole + at * size, (size_t)(run * size));
        else if (!ignis__copy_to_host(work, to, from + (uint64_t)(at * size), run * size))
            return NULL;
        to += run * size;
        i += run - 1;
    }
    return to;
}

/*  Reads the shown elements of a tensor. */
static bool ignis__print_read(const char *call, ignis__print *print, ignis__array *array)
{
    const int64_t size = ignis__dtypes[print->dtype].size, bytes = ignis__array_bytes(array);
    bool is_whole = bytes <= 1048576, ok;
    ignis__address address = 0;
    ignis__work work;
    char *raw, *whole = NULL;
    int d;
    print->summary = array->numel > IGNIS__PRINT_THRESHOLD;
    for (d = 0, print->count = 1; d < print->shape.ndim; d++)
        print->count *= ignis__print_shown(print, d);
    print->values = ignis__alloc_for(call, (size_t)(print->count * 8 + 8));
    raw = print->values ? (char *)ignis__alloc_for(call, (size_t)(print->count * size + 1)) : NULL;
    if (raw && is_whole)
        whole = (char *)ignis__alloc_for(call, (size_t)bytes + 1);
    ok = raw && (whole || !is_whole) && ignis__work_begin(call, array->storage->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, array, &address) &&
             (!is_whole || ignis__copy_to_host(&work, whole, address, bytes)) &&
             ignis__print_gather(print, &work, address, whole, 0, 0, raw) != NULL;
        ignis__work_end(&work);
    }
    if (ok) {
        ignis__convert(print->values, ignis__dtype_is_int(print->dtype) ? IGNIS_I64 : IGNIS_F64, raw, print->dtype,
                       print->count);
        ignis__number_format_find(&print->format, print->dtype, print->values, print->count);
    }
    ignis__free(whole);
    ignis__free(raw);
    return ok;
}

/*  Ends the line, and indents the next one. */
static void ignis__print_break(ignis__print *print, int lines, int indent)
{
    while (lines-- > 0)
        ignis__string_add(print->text, "\n");
    ignis__string_add(print->text, "%*s", indent, "");
    print->column = indent;
}

/*  Writes a word of a row, which goes on the next line if it does not fit. */
static void ignis__print_word(ignis__print *print, const char *word, bool first, int indent, int width)
{
    int length = (int)strlen(word);
    if (!first) {
        ignis__string_add(print->text, ",");
        print->column += 2;
        if (print->column + length > width)
            ignis__print_break(print, 1, indent);
        else
            ignis__string_add(print->text, " ");
    }
    ignis__string_add(print->text, "%s", word);
    print->column += length;
}

static void ignis__print_dim(ignis__print *print, int dim)
{
    const int indent = (int)sizeof ignis__print_prefix + dim, left = print->shape.ndim - dim;
    const int64_t shown = ignis__print_shown(print, dim);
    const bool gap = shown < print->shape.dim[dim];
    char word[64];
    int64_t i;
    ignis__string_add(print->text, "[");
    print->column = indent;
    for (i = 0; i < shown + gap; i++) {
        bool is_gap = gap && i == IGNIS__PRINT_EDGE;
        if (left == 1) {
            if (!is_gap)
                ignis__number_write(&print->format, print->values, print->next++, word, sizeof word);
            ignis__print_word(print, is_gap ? "..." : word, i == 0, indent, IGNIS__PRINT_WIDTH - 2 - dim);
            continue;
        }
        if (i > 0) {
            ignis__string_add(print->text, ",");
            ignis__print_break(print, left - 1, indent);
        }
        if (is_gap)
            ignis__string_add(print->text, "...");
        else
            ignis__print_dim(print, dim + 1);
    }
    ignis__string_add(print->text, "]");
    print->column++;
}

static void ignis__print_write(ignis__print *print, ignis__string_writer *text)
{
    char facts[300];
    int length;
    print->text = text;
    print->next = 0;
    ignis__string_add(text, ignis__print_prefix);
    print->column = (int)sizeof ignis__print_prefix - 1;
    if (print->count > 0) {
        ignis__print_dim(print, 0);
    } else {
        ignis__string_add(text, "[]");
        print->column += 2;
    }
    length = snprintf(facts, sizeof facts, "shape=%s, dtype=%s%s)", ignis__shape_write(&print->shape).text,
                      ignis__dtypes[print->dtype].name, print->requires_grad ? ", requires_grad" : "");
    ignis__string_add(text, ",");
    if (print->column + 1 + length + 1 > IGNIS__PRINT_WIDTH)
        ignis__print_break(print, 1, (int)sizeof ignis__print_prefix - 1);
    else
        ignis__string_add(text, " ");
    ignis__string_add(text, "%s", facts);
}

/*  Reads what is printed of a tensor. The caller frees print->values, also after a failure. */
static bool ignis__print_begin(const char *call, ignis_tensor handle, ignis__print *print)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis__tape_state tape_state;
    ignis__array *array;
    bool ok = false;
    memset(print, 0, sizeof *print);
    if (!tensor)
        return false;
    array = ignis__tensor_enter(call, tensor, &tape_state);
    if (array) {
        print->shape = array->shape;
        print->dtype = array->dtype;
        print->requires_grad = tape_state.requires_grad;
        ok = ignis__print_read(call, print, array);
        ignis__array_drop(call, array);
    }
    ignis__tensor_drop(call, tensor);
    return ok;
}

IGNIS__COLD IGNIS_API int ignis_tensor_values_to_string(ignis_tensor tensor, char *out, size_t capacity)
{
    static const char call[] = "ignis_tensor_values_to_string";
    ignis__string_writer text;
    ignis__print print;
    char none[1];
    bool ok;
    if (!ignis__enter(call) || (capacity && !ignis__check_not_null(call, "out", out)))
        return -1;
    ok = ignis__print_begin(call, tensor, &print);
    ignis__string_begin(&text, out ? out : none, capacity);
    if (ok)
        ignis__print_write(&print, &text);
    ignis__free(print.values);
    return ok ? (int)text.length : -1;
}

/*  Writes a text and the end of a line to stdout. */
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__print_line(const char *call, const char *text)
{
    if (fputs(text, stdout) != EOF && fputc('\n', stdout) != EOF)
        return IGNIS_OK;
    return ignis__fail(IGNIS_DIAG_REPORT_IO, call, "stdout cannot be written to");
}

IGNIS__COLD IGNIS_API ignis_status ignis_tensor_print(ignis_tensor tensor)
{
    static const char call[] = "ignis_tensor_print";
    ignis_status status = IGNIS_ERROR_MEMORY;
    ignis__string_writer text;
    ignis__print print;
    char none[1], *all;
    if (!ignis__print_begin(call, tensor, &print)) {
        ignis__free(print.values);
        return ignis__failed();
    }
    ignis__string_begin(&text, none, 0);
    ignis__print_write(&print, &text);
    all = (char *)ignis__alloc_for(call, text.length + 1);
    if (all) {
        ignis__string_begin(&text, all, text.length + 1);
        ignis__print_write(&print, &text);
        status = ignis__print_line(call, all);
    }
    ignis__free(all);
    ignis__free(print.values);
    return status;
}
