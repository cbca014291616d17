/*  models/weights/packed.c - quantised weights of safetensors files: FP8 with scales, AWQ, GPTQ, MXFP4

    Such a weight is several tensors of the file: numbers, and scales beside them. They become one tensor in the list
    of the files. Where a type of GGUF has exactly its values, it is read as rows of blocks of that type: AWQ and GPTQ
    of four bits with zeros as Q5_0, q - z being from -15 to 15; with 8 as every zero as Q4_0; of eight bits with 128
    as Q8_0; MXFP4 as it is. FP8 has the blocks of F8, if scales are of 128 columns, or of rows. Others are read as rows
    of f32.
    May use: checkpoint.c, dequantize.c (halves). Locks: none. */

#include "room.h"

static const char *const ignis__packed_methods[] = {"fp8", "compressed-tensors", "awq", "gptq", "mxfp4"};

static ignis__packed_tensor ignis__packed_tensor_of(const ignis__model_source *source)
{
    ignis__packed_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.file = source->file;
    tensor.begin = source->begin;
    tensor.bytes = source->bytes;
    tensor.dtype = source->dtype;
    tensor.exists = true;
    return tensor;
}

static bool ignis__packed_fail(const ignis__model_files *files, const char *name, const char *suffix,
                               const ignis__model_source *found, const char *wanted)
{
    char full[160];
    snprintf(full, sizeof full, "%.120s%s", name, suffix);
    if (found)
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "tensor %s of '%s' is %s %s; expected %s",
                    ignis__name_write(full).text, files->path, ignis__model_type_write(found).text,
                    ignis__shape_write(&found->shape).text, wanted);
    else
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "'%s' has no tensor %s; expected %s", files->path,
                    ignis__name_write(full).text, wanted);
    return false;
}

/*  Finds a tensor beside the numbers of a weight: `name` without `cut` bytes at its end, with a suffix. It has to be of
    type `type` (NULL: any of floating point), [rows, columns]. */
static bool ignis__packed_find(ignis__model_files *files, const char *name, size_t cut, const char *suffix,
                               const char *type, int64_t rows, int64_t columns, ignis__packed_tensor *tensor)
{
    char full[160], base[128], wanted[96];
    ignis__model_source *source;
    snprintf(base, sizeof base, "%.*s", (int)(strlen(name) - cut), name);
    snprintf(full, sizeof full, "%s%s", base, suffix);
    snprintf(wanted, sizeof wanted, "%s [%lld, %lld]", type ? type : "F32, BF16 or F16", (long long)rows,
             (long long)columns);
    source = ignis__model_source_find(files, full);
    if (!source || source->shape.ndim != 2 || source->shape.dim[0] != rows || source->shape.dim[1] != columns ||
        (type ? strcmp(source->type, type) != 0
              : source->dtype != IGNIS_F32 && source->dtype != IGNIS_BF16 && source->dtype != IGNIS_F16))
        return ignis__packed_fail(files, base, suffix, source, wanted);
    source->used = true;
    *tensor = ignis__packed_tensor_of(source);
    return true;
}

/*  Reads the scales of an FP8 weight: of blocks, of rows, or one. */
static bool ignis__packed_read_f8(ignis__model_files *files, const ignis__model_source *source, ignis__packed *to)
{
    static const char *const suffixes[] = {".weight_scale_inv", ".weight_scale", ".input_scale"};
    char base[128], full[160];
    ignis__model_source *scale = NULL, *input;
    const ignis_shape *shape;
    int i, k, size[2] = {128, 128};
    snprintf(base, sizeof base, "%.*s", (int)(strlen(source->name) - 7), source->name);
    for (i = 0; i < 2 && !scale; i++) {
        snprintf(full, sizeof full, "%s%s", base, suffixes[i]);
        scale = ignis__model_source_find(files, full);
    }
    if (!scale)
        return ignis__packed_fail(files, base, suffixes[0], NULL, "the scales of an FP8 weight");
    snprintf(full, sizeof full, "%s%s", base, suffixes[2]);
    input = ignis__model_source_find(files, full); /* of activations, which stay in floating point */
    if (input)
        input->used = true;
    for (i = k = 0; i < files->config.count; i++) {
        const ignis__config_item *item = &files->config.items[i];
        if (strcmp(item->name, "quantization_config.weight_block_size[]") == 0 && k < 2 && item->number >= 1 &&
            item->number <= 65536)
            size[k++] = (int)item->number;
    }
    shape = &scale->shape;
    to->block_rows = size[0];
    to->group = size[1];
    if (ignis__shape_product(shape, 0, shape->ndim) == 1) {
        to->block_rows = to->rows;
        to->group = to->columns;
    } else if (shape->dim[0] == to->rows && (shape->ndim == 1 || (shape->ndim == 2 && shape->dim[1] == 1))) {
        to->block_rows = 1;
        to->group = to->columns;
    } else if (shape->ndim != 2 || shape->dim[0] != ignis__ceil_div(to->rows, size[0]) ||
               shape->dim[1] != ignis__ceil_div(to->columns, size[1])) {
        snprintf(full, sizeof full, "one scale, [%lld, 1], or [%lld, %lld] of blocks of %d by %d", (long long)to->rows,
                 (long long)ignis__ceil_div(to->rows, size[0]), (long long)ignis__ceil_div(to->columns, size[1]),
                 size[0], size[1]);
        return ignis__packed_fail(files, base, suffixes[i == 2], scale, full);
    }
    if (scale->dtype != IGNIS_F32 && scale->dtype != IGNIS_BF16 && scale->dtype != IGNIS_F16)
        return ignis__packed_fail(files, base, suffixes[0], scale, "scales of F32, BF16 or F16");
    scale->used = true;
    to->scales = ignis__packed_tensor_of(scale);
    to->bits = 8;
    to->type = to->columns % 128 == 0 && to->group % 128 == 0 ? IGNIS__GGUF_F8 : 0;
    return true;
}

static double ignis__packed_number(const ignis__model_files *files, const char *name, double otherwise)
{
    const ignis__config_item *item = ignis__config_find(&files->config, name);
    return item && (item->kind == 'n' || item->kind == 'b') ? item->number : otherwise;
}

/*  Finds the scales and zeros of AWQ and GPTQ, and chooses a type that has their values. */
static bool ignis__packed_read_groups(ignis__model_files *files, const ignis__model_source *source, bool awq,
                                      ignis__packed *to)
{
    const ignis__config_item *format = ignis__config_find(&files->config, "quantization_config.checkpoint_format");
    double bits = ignis__packed_number(files, "quantization_config.bits", 4),
           group = ignis__packed_number(files, "quantization_config.group_size", 128);
    bool sym = !awq && ignis__packed_number(files, "quantization_config.sym", 1) != 0,
         order = !awq && ignis__packed_number(files, "quantization_config.desc_act", 0) != 0;
    int64_t groups;
    if (bits != 4 && (awq || bits != 8)) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call,
                    "config.json of '%s' has quantization_config.bits %g; expected 4%s", files->path, bits,
                    awq ? "" : " or 8");
        return false;
    }
    to->bits = (int)bits;
    to->columns = source->shape.ndim == 2 ? source->shape.dim[0] * (awq ? 1 : 32 / to->bits) : 0;
    to->rows = source->shape.ndim == 2 ? source->shape.dim[1] * (awq ? 8 : 1) : 0;
    group = group == -1 ? (double)to->columns : group;
    if (strcmp(source->type, "I32") != 0 || to->rows % (32 / to->bits) || !(group >= 32 && group <= 1 << 24) ||
        (int)group % 32 || group != (double)(int)group || to->columns % (int)group) {
        char wanted[96];
        snprintf(wanted, sizeof wanted, "I32 numbers of %d bits in groups of %g, a multiple of 32", to->bits, group);
        return ignis__packed_fail(files, source->name, "", source, wanted);
    }
    to->group = (int)group;
    groups = to->columns / to->group;
    if (!ignis__packed_find(files, source->name, 8, ".scales", NULL, groups, to->rows, &to->scales) ||
        !ignis__packed_find(files, source->name, 8, ".qzeros", "I32", groups, to->rows / (32 / to->bits), &to->zeros))
        return false;
    if (!awq) {
        char name[160];
        ignis__model_source *indices;
        snprintf(name, sizeof name, "%.*s.g_idx", (int)(strlen(source->name) - 8), source->name);
        indices = ignis__model_source_find(files, name);
        if (indices &&
            (strcmp(indices->type, "I32") != 0 || indices->shape.ndim != 1 || indices->shape.dim[0] != to->columns))
            return ignis__packed_fail(files, name, "", indices, "I32, an index for each column");
        if (order && !indices)
            return ignis__packed_fail(files, name, "", NULL, "an index for each column, as desc_act is true");
        if (indices) {
            indices->used = true;
            to->order = ignis__packed_tensor_of(indices);
        }
    }
    to->any_order = order;
    to->added = !awq && !(format && format->kind == 't' && strcmp(format->text, "gptq_v2") == 0);
    to->sym = sym;
    if (to->scales.dtype == IGNIS_F16 && !order)
        to->type = to->bits == 4 ? (sym ? IGNIS__GGUF_Q4_0 : IGNIS__GGUF_Q5_0) : sym ? IGNIS__GGUF_Q8_0 : 0;
    return true;
}

/*  Finds the scales of MXFP4: numbers [.., blocks, 16], scales [.., blocks]. */
static bool ignis__packed_read_mxfp4(ignis__model_files *files, const ignis__model_source *source, ignis__packed *to)
{
    char name[160];
    ignis__model_source *scales;
    ignis_shape shape = source->shape;
    snprintf(name, sizeof name, "%.*s_scales", (int)(strlen(source->name) - 7), source->name);
    scales = ignis__model_source_find(files, name);
    if (strcmp(source->type, "U8") != 0 || shape.ndim < 3 || shape.dim[shape.ndim - 1] != 16)
        return ignis__packed_fail(files, source->name, "", source, "U8 [.., blocks, 16]");
    shape.ndim--;
    if (!scales || strcmp(scales->type, "U8") != 0 || !ignis__shape_same(&scales->shape, &shape))
        return ignis__packed_fail(files, name, "", scales, "U8, a scale for each block");
    scales->used = true;
    to->scales = ignis__packed_tensor_of(scales);
    to->columns = shape.dim[shape.ndim - 1] * 32;
    to->rows = to->columns ? ignis__shape_product(&shape, 0, shape.ndim) * 32 / to->columns : 0;
    to->type = IGNIS__GGUF_MXFP4;
    to->bits = 4;
    to->group = 32;
    return true;
}

static bool ignis__ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), length = strlen(end);
    return size > length && strcmp(text + size - length, end) == 0;
}

/*  Makes one weight of numbers and scales; its kind is 0 if the tensor is no such weight. */
static bool ignis__packed_make(ignis__model_files *files, ignis__model_source *source, const char *method,
                               ignis__packed *to)
{
    const bool f8 = strcmp(method, "fp8") == 0 || strcmp(method, "compressed-tensors") == 0,
               awq = strcmp(method, "awq") == 0;
    const char *suffix = f8 ? ".weight" : awq || strcmp(method, "gptq") == 0 ? ".qweight" : "_blocks";
    size_t size = strlen(source->name);
    memset(to, 0, sizeof *to);
    if (!ignis__ends_with(source->name, suffix) || (f8 && source->dtype != IGNIS_F8_E4M3) || size > 120)
        return true;
    to->numbers = ignis__packed_tensor_of(source);
    if (f8) {
        to->kind = IGNIS__PACKED_F8;
        if (source->shape.ndim != 2)
            return ignis__packed_fail(files, source->name, "", source, "two dimensions");
        to->rows = source->shape.dim[0];
        to->columns = source->shape.dim[1];
        if (!ignis__packed_read_f8(files, source, to))
            return false;
    } else if (*suffix == '.') {
        to->kind = awq ? IGNIS__PACKED_AWQ : IGNIS__PACKED_GPTQ;
        if (!ignis__packed_read_groups(files, source, awq, to))
            return false;
    } else {
        to->kind = IGNIS__PACKED_MXFP4;
        if (!ignis__packed_read_mxfp4(files, source, to))
            return false;
    }
    snprintf(to->name, sizeof to->name, "%.*s%s", (int)(size - strlen(suffix)), source->name,
             *suffix == '.' ? ".weight" : "");
    return true;
}

/*  Gives a source the name, shape and type of the weight that it is the numbers of. */
static void ignis__packed_rename(ignis__model_source *source, const ignis__packed *packed, int number)
{
    int blocks = packed->type ? ignis__blocks_type(packed->type) : -1;
    source->name = packed->name;
    source->packed = number + 1;
    if (packed->kind == IGNIS__PACKED_MXFP4) {
        source->shape.ndim--;
        source->shape.dim[source->shape.ndim - 1] *= 32;
    } else {
        source->shape.dim[0] = packed->rows;
        source->shape.dim[1] = packed->columns;
    }
    source->quant = (uint32_t)packed->type;
    source->dtype = packed->type ? IGNIS_DTYPE_DEFAULT : IGNIS_F32;
    source->elements = blocks < 0 ? 1 : ignis__blocks_types[blocks].file_elements;
    source->bytes = blocks < 0 ? 4 : ignis__blocks_types[blocks].file_bytes;
}

/*  Makes an FP8 weight rows of f32, for parts that blocks of F8 do not fit. */
IGNIS__PRIVATE void ignis__packed_as_floats(ignis__model_files *files, ignis__model_source *source)
{
    ignis__packed *packed = &files->packed[source->packed - 1];
    packed->type = 0;
    ignis__packed_rename(source, packed, source->packed - 1);
}

/*  Replaces the tensors of quantised weights of a folder by one for each weight. The list is sorted again after it. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__packed_join(ignis__model_files *files)
{
    const ignis__config_item *all = ignis__config_find(&files->config, "quantization_config"),
                             *method = ignis__config_find(&files->config, "quantization_config.quant_method");
    int64_t i;
    int k, count = 0;
    if (!all)
        return true;
    for (k = 0; method && method->kind == 't' && k < IGNIS__COUNT(ignis__packed_methods) &&
                strcmp(method->text, ignis__packed_methods[k]) != 0;
         k++)
        continue;
    if (!method || method->kind != 't' || k == IGNIS__COUNT(ignis__packed_methods)) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call,
                    "config.json of '%s' has quantization_config.quant_method %s; awq, compressed-tensors, fp8, gptq "
                    "and mxfp4 are known",
                    files->path, ignis__name_write(method && method->kind == 't' ? method->text : "").text);
        return false;
    }
    files->packed = (ignis__packed *)ignis__alloc(((size_t)files->source_count + 1) * sizeof *files->packed);
    if (!files->packed) {
        ignis__fail_host_memory(files->call, ((size_t)files->source_count + 1) * sizeof *files->packed);
        return false;
    }
    for (i = 0; i < files->source_count; i++)
        if (!ignis__packed_make(files, &files->sources[i], method->text, &files->packed[i]))
            return false;
    for (i = 0; i < files->source_count; i++)
        if (files->packed[i].kind) {
            ignis__packed_rename(&files->sources[i], &files->packed[i], (int)i);
            count++;
        }
    return count == 0 || ignis__model_sort_sources(files);
}

/*  Returns how many bytes of a region are read at once: all, with those between, if those are no more than its own.
    Else its parts are read one by one, and the result is their sum. */
IGNIS__PRIVATE int64_t ignis__packed_span(const ignis__packed_region *region)
{
    if (region->count > 1 && region->step > 0 && region->step <= 2 * region->size)
        return (region->count - 1) * region->step + region->size;
    return region->count * region->size;
}

/*  Lists the bytes of the files from which rows from `first` on and columns `skip` to skip + columns are made: numbers,
    scales, zeros, order. Only MXFP4 has rows apart. Returns how many bytes the buffer has that they are read into. */
IGNIS__PRIVATE int64_t ignis__packed_regions(const ignis__packed *p, const ignis__packed_range *range,
                                             ignis__packed_region region[4])
{
    const int64_t first = range->first, rows = range->rows, skip = range->skip, columns = range->columns;
    const ignis__packed_tensor *of[4];
    const int64_t per = 32 / p->bits, group = p->any_order ? 0 : skip / p->group;
    const int64_t groups = p->any_order ? p->columns / p->group : (skip + columns - 1) / p->group - group + 1;
    int64_t total = 0, scale;
    int i;
    of[0] = &p->numbers, of[1] = &p->scales, of[2] = &p->zeros, of[3] = &p->order;
    memset(region, 0, 4 * sizeof *region);
#define IGNIS__REGION(i, at, far, bytes, times) \
    region[i].begin = of[i]->begin + (at), region[i].step = (far), region[i].size = (bytes), region[i].count = (times)
    switch (p->kind) {
    case IGNIS__PACKED_F8:
        IGNIS__REGION(0, first * p->columns + skip, p->columns, columns, rows);
        scale = ignis__ceil_div(p->columns, p->group) * p->scales.bytes;
        IGNIS__REGION(1, first / p->block_rows * scale, 0,
                      ((first + rows - 1) / p->block_rows - first / p->block_rows + 1) * scale, 1);
        break;
    case IGNIS__PACKED_MXFP4:
        IGNIS__REGION(0, (first * p->columns + skip) / 2, range->every * p->columns / 2, columns / 2, rows);
        IGNIS__REGION(1, (first * p->columns + skip) / 32, range->every * p->columns / 32, columns / 32, rows);
        break;
    default:
        if (p->kind == IGNIS__PACKED_AWQ)
            IGNIS__REGION(0, (skip * (p->rows / 8) + first / 8) * 4, p->rows / 8 * 4, rows / 8 * 4, columns);
        else
            IGNIS__REGION(0, (skip / per * p->rows + first) * 4, p->rows * 4, rows * 4, columns / per);
        IGNIS__REGION(1, (group * p->rows + first) * p->scales.bytes, p->rows * p->scales.bytes, rows * p->scales.bytes,
                      groups);
        IGNIS__REGION(2, (group * (p->rows / per) + first / per) * 4, p->rows / per * 4, rows / per * 4, groups);
        if (p->order.exists)
            IGNIS__REGION(3, skip * 4, 0, columns * 4, 1);
    }
#undef IGNIS__REGION
    for (i = 0; i < 4; i++) {
        region[i].file = of[i]->file;
        total += ignis__packed_span(&region[i]);
    }
    return total;
}

static float ignis__packed_scale(const ignis__packed *p, const unsigned char *scales, int64_t at)
{
    float value;
    uint16_t bits;
    scales += at * p->scales.bytes;
    memcpy(&bits, scales, sizeof bits);
    if (p->scales.dtype == IGNIS_F32)
        memcpy(&value, scales, sizeof value);
    else
        value =
            (float)(p->scales.dtype == IGNIS_F16 ? ignis__widen_float(bits, 10, 5) : ignis__widen_float(bits, 7, 8));
    return value;
}

/*  Returns a number of `bits` bits: number `at` of a sequence of words. */
static int ignis__packed_bits(const unsigned char *words, int64_t word, int64_t at, int bits)
{
    uint32_t value;
    memcpy(&value, words + 4 * word, 4);
    return (int)(value >> at * bits & ((1u << bits) - 1));
}

/*  Writes a block of 32 numbers q of a type of GGUF. */
static void ignis__packed_block(int type, const unsigned char *scale, const unsigned char *q, unsigned char *to)
{
    uint32_t fifth = 0;
    int i;
    memcpy(to, scale, 2);
    if (type == IGNIS__GGUF_Q8_0) {
        for (i = 0; i < 32; i++)
            to[2 + i] = q[i] ^ 128;
        return;
    }
    for (i = 0; i < 16; i++)
        to[(type == IGNIS__GGUF_Q5_0 ? 6 : 2) + i] = (unsigned char)((q[i] & 15) | (q[16 + i] & 15) << 4);
    for (i = 0; i < 32; i++)
        fifth |= (uint32_t)(q[i] >> 4 & 1) << i;
    if (type == IGNIS__GGUF_Q5_0)
        memcpy(to + 2, &fifth, 4);
}

/*  Makes a row of AWQ or GPTQ. `row` is counted from the first one of the regions. False, with a reason, if zeros or
    the order are not those that config.json says. */
static bool ignis__packed_row_of_groups(const ignis__packed *p, const unsigned char *const at[4], int64_t row,
                                        int64_t rows, int64_t columns, int64_t skip, unsigned char *to, char why[200])
{
    static const int nibbles[] = {0, 4, 1, 5, 2, 6, 3, 7}; /* of AWQ: where row 8 i + k is in a word */
    const int64_t per = 32 / p->bits, first_group = p->any_order ? 0 : skip / p->group;
    const bool awq = p->kind == IGNIS__PACKED_AWQ;
    const int middle = p->type == IGNIS__GGUF_Q5_0 ? 16 : 1 << (p->bits - 1);
    const int64_t place = awq ? nibbles[row % 8] : row % per;
    unsigned char q[32];
    int64_t k;
    for (k = 0; k < columns; k++) {
        int64_t group = (skip + k) / p->group;
        int zero, number;
        if (p->order.exists) {
            int32_t index;
            memcpy(&index, at[3] + 4 * k, 4);
            if (index < 0 || index >= p->columns / p->group || (!p->any_order && index != group)) {
                snprintf(why, 200, "g_idx of %.80s has %d at %lld; expected %s", p->name, (int)index,
                         (long long)(skip + k), p->any_order ? "a group" : "the column's group, as desc_act is false");
                return false;
            }
            group = index;
        }
        group -= first_group;
        zero = ignis__packed_bits(at[2], group * (rows / per) + row / per, place, p->bits) + p->added;
        number = (awq ? ignis__packed_bits(at[0], k * (rows / 8) + row / 8, place, 4)
                      : ignis__packed_bits(at[0], k / per * rows + row, k % per, p->bits)) -
                 zero;
        if (p->sym && p->type && zero != middle) {
            snprintf(why, 200, "qzeros of %.80s has a zero %d; expected %d, as config.json has sym", p->name, zero,
                     middle);
            return false;
        }
        if (!p->type) {
            float value = (float)number * ignis__packed_scale(p, at[1], group * rows + row);
            memcpy(to + 4 * k, &value, 4);
            continue;
        }
        q[k % 32] = (unsigned char)(number + middle);
        if (k % 32 == 31) {
            ignis__packed_block(p->type, at[1] + 2 * (group * rows + row), q, to);
            to += ignis__blocks_types[ignis__blocks_type(p->type)].file_bytes;
        }
    }
    return true;
}

/*  Makes a row of F8. NaN becomes the scale: products have no NaN of e4m3. line: of scales. */
static void ignis__packed_row_of_f8(const ignis__packed *p, const unsigned char *bits, const unsigned char *scales,
                                    int64_t line, int64_t columns, int64_t skip, unsigned char *to)
{
    int64_t k;
    int i;
    for (k = 0; k < columns; k += 128, to += 132) {
        float scale = ignis__packed_scale(p, scales, line + (skip + k) / p->group);
        memcpy(to, &scale, 4);
        memcpy(to + 4, bits + k, 128);
        for (i = 0; i < 128; i++)
            if ((bits[k + i] & 127) == 127)
                memset(to, 0xFF, 4);
    }
}

/*  Makes rows of the bytes that ignis__packed_regions lists, one region after the other: blocks of p->type, or f32.
    False, with a reason, if the bytes contradict the description. */
IGNIS__PRIVATE bool ignis__packed_rows(const ignis__packed *p, const unsigned char *bytes,
                                       const ignis__packed_region region[4], const ignis__packed_range *range,
                                       unsigned char *to, char why[200])
{
    const unsigned char *at[4];
    const int64_t rows = range->rows, columns = range->columns;
    int64_t row, k, i;
    for (i = 0; i < 4; bytes += region[i].size * region[i].count, i++)
        at[i] = bytes;
    for (row = 0; row < rows; row++) {
        if (p->kind == IGNIS__PACKED_F8) {
            const int64_t across = ignis__ceil_div(p->columns, p->group);
            const int64_t line = ((range->first + row) / p->block_rows - range->first / p->block_rows) * across;
            float *values = (float *)(void *)to + row * columns;
            if (p->type) {
                ignis__packed_row_of_f8(p, at[0] + row * columns, at[1], line, columns, range->skip,
                                        to + row * (columns / 128) * 132);
                continue;
            }
            ignis__convert(values, IGNIS_F32, at[0] + row * columns, IGNIS_F8_E4M3, columns);
            for (k = 0; k < columns; k++)
                values[k] *= ignis__packed_scale(p, at[1], line + (range->skip + k) / p->group);
        } else if (p->kind == IGNIS__PACKED_MXFP4) {
            for (k = 0; k < columns / 32; k++, to += 17) {
                const unsigned char *q = at[0] + (row * columns + 32 * k) / 2;
                to[0] = at[1][row * (columns / 32) + k];
                for (i = 0; i < 16; i++) /* elements i and 16 + i */
                    to[1 + i] = (unsigned char)((q[i / 2] >> i % 2 * 4 & 15) | (q[8 + i / 2] >> i % 2 * 4 & 15) << 4);
            }
        } else if (!ignis__packed_row_of_groups(
                       p, at, row, rows, columns, range->skip,
                       to + row * (p->type ? columns / 32 * ignis__blocks_types[ignis__blocks_type(p->type)].file_bytes
                                           : columns * 4),
                       why)) {
            return false;
        }
    }
    return true;
}

/*  Returns the bytes that elements of a tensor take in its file, without the scales of a packed weight. */
IGNIS__PRIVATE int64_t ignis__model_source_bytes(const ignis__model_files *files, const ignis__model_source *source,
                                                 int64_t elements)
{
    return source->packed ? elements * files->packed[source->packed - 1].bits / 8
                          : elements / source->elements * source->bytes;
}
