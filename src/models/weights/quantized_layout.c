/*  models/weights/quantized_layout.c - the bytes of quantised weights on the device, and which weights are quantised

    Rows are in groups of eight. kernels/models/blocks.cuh has the layout of a record.
    May use: weight_map.c. Locks: none. */

#include "room.h"

IGNIS__PRIVATE const struct ignis__blocks_types_type ignis__blocks_types[] = {
#define IGNIS__BLOCKS_ROW(name, number, elements, bytes, bits, scales, numbers, divisor) \
    {number,                                                                             \
     IGNIS__BLOCKS_RECORD(bits, IGNIS__SCALES_##scales),                                 \
     IGNIS__BLOCKS_OUTSIDE(IGNIS__SCALES_##scales),                                      \
     elements,                                                                           \
     bytes,                                                                              \
     bits,                                                                               \
     IGNIS__SCALES_##scales,                                                             \
     IGNIS__NUMBERS_##numbers,                                                           \
     divisor},
    IGNIS__BLOCKS_TYPES(IGNIS__BLOCKS_ROW)
#undef IGNIS__BLOCKS_ROW
};

/*  Returns the index of a type in the table; -1 if it is not there. */
IGNIS__PRIVATE int ignis__blocks_type(int type)
{
    switch (type) {
#define IGNIS__BLOCKS_CASE(name, number, elements, bytes, bits, scales, numbers, divisor) \
    case number: return IGNIS__BLOCKS_##name;
        IGNIS__BLOCKS_TYPES(IGNIS__BLOCKS_CASE)
#undef IGNIS__BLOCKS_CASE
    default: return -1;
    }
}

/*  Returns the bytes of `rows` rows, which are in groups of eight; a multiple of 16. scales: includes the
    scales after them. */
IGNIS__PRIVATE int64_t ignis__blocks_bytes_of(int type, int64_t rows, int64_t columns, bool scales)
{
    int number = ignis__blocks_type(type);
    int64_t records = ignis__ceil_div(rows, 8) * 8 * ignis__ceil_div(columns, 256);
    return records * ignis__blocks_types[number].bytes + (scales ? records * ignis__blocks_types[number].scale : 0);
}

/*  Returns the offset of a row. */
IGNIS__PRIVATE int64_t ignis__blocks_row(int type, int64_t row, int64_t columns)
{
    return ignis__blocks_bytes_of(type, row / 8 * 8, columns, false) +
           row % 8 * ignis__blocks_types[ignis__blocks_type(type)].bytes;
}

/*  Returns the bytes of the first `parts` parts of a weight. */
IGNIS__PRIVATE int64_t ignis__blocks_bytes(const ignis__blocks *blocks, int parts)
{
    int64_t bytes = 0;
    int i;
    for (i = 0; i < parts; i++)
        bytes += ignis__blocks_bytes_of(blocks->part[i].type, blocks->part[i].rows, blocks->columns, true);
    return bytes;
}

/*  Returns the type that the description asks for; 0 if the weight is not to be quantised. */
static int ignis__model_wanted_type(const ignis__model *model, const ignis__model_part *part)
{
    if (!part->row->columns || strchr("PTC", part->row->rows) || model->weights == IGNIS_WEIGHTS_NUMBERS ||
        part->row->how & IGNIS__MODEL_DENSE)
        return 0;
    if (model->weights == IGNIS_WEIGHTS_DEFAULT)
        return ignis__blocks_type((int)part->from->quant) < 0 ? 0 : (int)part->from->quant;
    if (model->weights == IGNIS_WEIGHTS_F8 && ignis__blocks_type((int)part->from->quant) >= 0)
        return (int)part->from->quant;
    if (part->columns % 32 != 0)
        return 0;
    return model->weights == IGNIS_WEIGHTS_Q4_0                               ? IGNIS__GGUF_Q4_0
           : model->weights == IGNIS_WEIGHTS_Q4_K && part->columns % 256 == 0 ? IGNIS__GGUF_Q4_K
           : model->weights == IGNIS_WEIGHTS_F8 && part->columns % 128 == 0   ? IGNIS__GGUF_F8
                                                                              : IGNIS__GGUF_Q8_0;
}

/*  Describes the parts of a weight on the device. `parts` begins at its first part. */
IGNIS__PRIVATE ignis__blocks ignis__model_describe_blocks(const ignis__model_part *parts, int count)
{
    ignis__blocks blocks;
    int i;
    memset(&blocks, 0, sizeof blocks);
    blocks.columns = (int)parts[0].columns;
    for (i = 0; parts[0].blocks && i < count && (i == 0 || !parts[i].total); i++) {
        if (!i || blocks.part[blocks.count - 1].type != parts[i].blocks)
            blocks.part[blocks.count++].type = parts[i].blocks;
        blocks.part[blocks.count - 1].rows += (int)parts[i].rows;
    }
    return blocks;
}

/*  Chooses the type of every weight on the device, and counts bytes. The parts of one weight are all
    quantised, or none is. Gate and up have one type, as one kernel reads both, and so have all experts. */
IGNIS__PRIVATE void ignis__model_choose_types(ignis__model *model, ignis__model_part *parts, int count)
{
    ignis__blocks blocks;
    int first, end, i;
    for (first = 0; first < count; first = end) {
        bool all = true, aligned = true; /* groups of eight rows stay together */
        for (end = first; end == first || (end < count && !parts[end].total); end++) {
            const bool one_type = strchr("IS", parts[end].row->rows) || parts[end].row->how & IGNIS__MODEL_EXPERTS;
            parts[end].blocks = ignis__model_wanted_type(model, &parts[end]);
            all = all && parts[end].blocks && (!one_type || parts[end].blocks == parts[first].blocks);
            aligned = aligned && parts[end].rows % 8 == 0 && parts[end].run % 8 == 0;
        }
        all = all && (aligned || (end == first + 1 && parts[first].run >= parts[first].rows));
        for (i = first; i < end; i++) {
            parts[i].blocks = all ? parts[i].blocks : 0;
            model->quantised += all ? parts[i].rows * parts[i].columns : 0;
        }
        blocks = ignis__model_describe_blocks(&parts[first], count - first);
        model->weight_bytes += all ? ignis__blocks_bytes(&blocks, blocks.count)
                                   : parts[first].total * parts[first].columns *
                                         ignis__dtypes[ignis__model_part_dtype(model, &parts[first])].size;
    }
}
