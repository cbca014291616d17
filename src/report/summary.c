/*  report/summary.c - ignis_summary_to_string and ignis_summary_print: a table of a model's tensors, and memory

    A first pass finds the widths of the columns, a second one writes.
    May use: print.c, device/memory_query.c, >>tensor. Locks: none. */

#include "room.h"

/*  The sums of a summary. */
typedef struct ignis__summary {
    int64_t parameters, trainable, bytes, grad_bytes;
    int name_width, shape_width, number_width;
    bool on_device[IGNIS_MAX_DEVICES];
} ignis__summary;

/*  A number in groups of three digits: 1,234,567. */
typedef struct ignis__grouped_text {
    char text[32];
} ignis__grouped_text;

static ignis__grouped_text ignis__grouped_write(int64_t number)
{
    ignis__grouped_text out;
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)number), i, at = 0;
    for (i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            out.text[at++] = ',';
        out.text[at++] = digits[i];
    }
    out.text[at] = 0;
    return out;
}

/*  A row of the table: the facts of a tensor. */
typedef struct ignis__summary_row {
    const char *name;
    char tag[32];
    ignis_shape shape;
    ignis_dtype dtype;
    bool requires_grad, has_grad;
    int device;
    int64_t numel, bytes;
} ignis__summary_row;

static bool ignis__summary_row_get(const char *call, const char *name, ignis_tensor handle, ignis__summary_row *row)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    memset(row, 0, sizeof *row);
    if (!tensor)
        return false;
    ignis__mutex_lock(&tensor->slot.lock);
    if (tensor->data)
        snprintf(row->tag, sizeof row->tag, "%s", tensor->data->tag);
    row->requires_grad = tensor->requires_grad;
    row->has_grad = tensor->grad != NULL;
    ignis__mutex_unlock(&tensor->slot.lock);
    row->name = name ? name : row->tag;
    row->shape = tensor->shape;
    row->dtype = tensor->dtype;
    row->device = ignis__device_ordinal(tensor->device);
    row->numel = ignis__tensor_numel(tensor);
    row->bytes = row->numel * ignis__dtypes[row->dtype].size;
    ignis__tensor_drop(call, tensor);
    return true;
}

static void ignis__summary_add(ignis__summary *sums, const ignis__summary_row *row)
{
    int width = (int)strlen(row->name);
    sums->name_width = width > sums->name_width ? width : sums->name_width;
    width = (int)strlen(ignis__shape_write(&row->shape).text);
    sums->shape_width = width > sums->shape_width ? width : sums->shape_width;
    sums->parameters += row->numel;
    sums->trainable += row->requires_grad ? row->numel : 0;
    sums->bytes += row->bytes;
    sums->grad_bytes += row->has_grad ? row->bytes : 0;
    sums->on_device[row->device] = true;
}

static bool ignis__summary_write(const char *call, const char *const *names, const ignis_tensor *tensors, int count,
                                 ignis__string_writer *text)
{
    ignis__summary sums = IGNIS__ZERO;
    ignis__summary_row row;
    ignis_memory_info memory;
    int i;
    sums.name_width = 5; /* of "total" */
    sums.shape_width = 5;
    if (count < 0)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    if (count > 0 && !ignis__check_not_null(call, "tensors", tensors))
        return false;
    for (i = 0; i < count; i++) {
        if (!ignis__summary_row_get(call, names ? names[i] : NULL, tensors[i], &row))
            return false;
        ignis__summary_add(&sums, &row);
    }
    sums.number_width = (int)strlen(ignis__grouped_write(sums.parameters).text);
    sums.number_width = sums.number_width < 10 ? 10 : sums.number_width;
    ignis__string_add(text, "%-*s  %-*s  %-7s  %*s  %12s\n", sums.name_width, "name", sums.shape_width, "shape",
                      "dtype", sums.number_width, "parameters", "size");
    for (i = 0; i < count; i++) {
        if (!ignis__summary_row_get(call, names ? names[i] : NULL, tensors[i], &row))
            return false;
        ignis__string_add(text, "%-*s  %-*s  %-7s  %*s  %12s%s\n", sums.name_width, row.name, sums.shape_width,
                          ignis__shape_write(&row.shape).text, ignis__dtypes[row.dtype].name, sums.number_width,
                          ignis__grouped_write(row.numel).text, ignis__size_write(row.bytes).text,
                          row.requires_grad ? "" : "  frozen");
    }
    ignis__string_add(text, "%-*s  %-*s  %-7s  %*s  %12s\n", sums.name_width, "total", sums.shape_width, "", "",
                      sums.number_width, ignis__grouped_write(sums.parameters).text,
                      ignis__size_write(sums.bytes).text);
    ignis__string_add(text, "trainable: %s parameters; gradients: %s", ignis__grouped_write(sums.trainable).text,
                      ignis__size_write(sums.grad_bytes).text);
    for (i = 0; i < IGNIS_MAX_DEVICES; i++) {
        if (!sums.on_device[i])
            continue;
        if (ignis_memory_query(i, &memory) != IGNIS_OK)
            return false;
        ignis__string_add(text, "\ndevice %d: %s in use, %s at most, of %s", i,
                          ignis__size_write(memory.live_bytes).text, ignis__size_write(memory.live_peak).text,
                          ignis__size_write(memory.device_total).text);
    }
    return true;
}

IGNIS__COLD IGNIS_API int ignis_summary_to_string(const char *const *names, const ignis_tensor *tensors, int count,
                                                  char *out, size_t capacity)
{
    static const char call[] = "ignis_summary_to_string";
    ignis__string_writer text;
    char none[1];
    if (!ignis__enter(call) || (capacity && !ignis__check_not_null(call, "out", out)))
        return -1;
    ignis__string_begin(&text, out ? out : none, capacity);
    return ignis__summary_write(call, names, tensors, count, &text) ? (int)text.length : -1;
}

IGNIS__COLD IGNIS_API ignis_status ignis_summary_print(const char *const *names, const ignis_tensor *tensors, int count)
{
    static const char call[] = "ignis_summary_print";
    ignis_status status = IGNIS_ERROR_MEMORY;
    ignis__string_writer text;
    size_t size;
    char none[1], *all;
    if (!ignis__enter(call))
        return ignis__failed();
    ignis__string_begin(&text, none, 0);
    if (!ignis__summary_write(call, names, tensors, count, &text))
        return ignis__failed();
    size = text.length + 256; /* numbers may have more digits the second time */
    all = (char *)ignis__alloc_for(call, size);
    if (all) {
        ignis__string_begin(&text, all, size);
        status =
            ignis__summary_write(call, names, tensors, count, &text) ? ignis__print_line(call, all) : ignis__failed();
    }
    ignis__free(all);
    return status;
}
