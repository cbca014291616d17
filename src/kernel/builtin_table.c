/*  kernel/builtin_table.c - the built-in kernels of ignis.h, and how a header above adds its own

    A table has the sources, kernels and parts of one header, and what is loaded of them on each device. All that
    finds a kernel, a source or a header by name or number goes through the functions at the end, which know both
    tables. Invariant: the key of a program of ignis.h does not depend on the table above. */

#include "room.h"

static const ignis__builtin_row ignis__builtins[] = {
#define IGNIS__BUILTIN_ROW(name, source, entry, how) \
    {&ignis__sources[IGNIS__SOURCE_##source], entry, IGNIS__KERNEL_##how},
    IGNIS__BUILTINS(IGNIS__BUILTIN_ROW)
#undef IGNIS__BUILTIN_ROW
};

static const ignis__kernel_part ignis__parts[] = {
    IGNIS__PART(SDPA_BACKWARD_DELTA, SDPA_BACKWARD_BIAS),
    IGNIS__PART(SDPA_MMA_BACKWARD_DELTA, SDPA_MMA_BACKWARD_BIAS),
    IGNIS__PART(SDPA_HOPPER, SDPA_HOPPER_COMBINE),
    IGNIS__PART(SDPA_HOPPER_BACKWARD_ROWS, SDPA_HOPPER_BACKWARD_ROTATED),
    IGNIS__PART(SDPA_DECODE_1, SDPA_DECODE_COMBINE),
    IGNIS__PART(SDPA_MMA_DECODE, SDPA_MMA_DECODE_COMBINE),
    IGNIS__PART(GEMM, GEMM_SMALL),
    IGNIS__PART(GEMM_MMA, GEMM_MMA_SMALL),
    IGNIS__PART(DEPTHWISE, DEPTHWISE_UNPACKED),
    IGNIS__PART(DEPTHWISE_WEIGHTS, DEPTHWISE_WEIGHTS_UNPACKED),
    IGNIS__PART(GEMM_FINISH, GEMM_SUMS),
    IGNIS__PART(TRANSPOSE_RUNS, TRANSPOSE_TILES),
    IGNIS__PART(STRIDED_COPY, STRIDED_TILES),
    IGNIS__PART(SUM_ROWS, SUM_FINISH),
    IGNIS__PART(SCAN_ROWS, SCAN_COLUMNS),
    IGNIS__PART(SCATTER_ADD_ROWS, SEGMENT_FINISH),
    IGNIS__PART(SCATTER_CLAIM, SCATTER_LAST),
    IGNIS__PART(SELECT_COUNT, SELECT_WRITE),
    IGNIS__PART(UNIQUE_HEADS, UNIQUE_WRITE),
    IGNIS__PART(SORT_SMALL, SORT_SELECT_FEW),
    IGNIS__PART(SORT_COUNT, SORT_PASS),
    IGNIS__PART(LINALG_COPY, LINALG_DET),
    IGNIS__PART(LINALG_QR, LINALG_RANK),
    IGNIS__PART(LINALG_JACOBI_BEGIN, LINALG_SIGN_COLUMNS),
    IGNIS__PART(LAYER_NORM_WARP, LAYER_NORM_BLOCK),
    IGNIS__PART(LAYER_NORM_BACKWARD_AVERAGES, LAYER_NORM_BACKWARD_COLUMNS),
    IGNIS__PART(RMS_NORM_WARP, RMS_NORM_BLOCK),
    IGNIS__PART(RMS_NORM_BACKWARD_AVERAGES, RMS_NORM_BACKWARD_COLUMNS),
    IGNIS__PART(ADD_LAYER_NORM_WARP, ADD_LAYER_NORM_BLOCK),
    IGNIS__PART(ADD_RMS_NORM_WARP, ADD_RMS_NORM_BLOCK),
    IGNIS__PART(LAYER_NORM_ROWS_FEW, LAYER_NORM_ROWS_EVEN),
    IGNIS__PART(LAYER_NORM_ROWS_BACKWARD_FEW, LAYER_NORM_ROWS_BACKWARD_EVEN),
    IGNIS__PART(RMS_NORM_ROWS_FEW, RMS_NORM_ROWS_EVEN),
    IGNIS__PART(RMS_NORM_ROWS_BACKWARD_FEW, RMS_NORM_ROWS_BACKWARD_EVEN),
    IGNIS__PART(CHANNEL_STATISTICS, CHANNEL_APPLY),
    IGNIS__PART(CHANNEL_SUMS, CHANNEL_BACKWARD),
    IGNIS__PART(SOFTMAX_WARP, SOFTMAX_LONG),
    IGNIS__PART(SOFTMAX_BACKWARD_WARP, SOFTMAX_BACKWARD_BLOCK),
    IGNIS__PART(LOG_SOFTMAX_WARP, LOG_SOFTMAX_LONG),
    IGNIS__PART(LOG_SOFTMAX_BACKWARD_WARP, LOG_SOFTMAX_BACKWARD_BLOCK),
    IGNIS__PART(CROSS_ENTROPY_WARP, CROSS_ENTROPY_BLOCK),
    IGNIS__PART(CROSS_ENTROPY_LOSS_WARP, CROSS_ENTROPY_LOSS_BLOCK),
    IGNIS__PART(EMBEDDING_KEYS, EMBEDDING_ROWS),
    IGNIS__PART(QUANTIZE_F8_E4M3_WARP, QUANTIZE_F8_E4M3_BLOCK),
    IGNIS__PART(QUANTIZE_F8_E5M2_WARP, QUANTIZE_F8_E5M2_BLOCK),
};

static int ignis__own_dtypes(const char *name)
{
    if (strncmp(name, "attention", 9) == 0 || strncmp(name, "gemm_", 5) == 0 || strncmp(name, "grouped_", 8) == 0 ||
        strncmp(name, "fft", 3) == 0)
        return 0;
    return strcmp(name, "elementwise.cu") == 0 || strcmp(name, "sort.cu") == 0 ? IGNIS_DTYPE_COUNT - 1
                                                                               : 4 /* the floating types come first */;
}

static ignis__kernel_table ignis__own_kernels = {ignis__sources,
                                                 ignis__builtins,
                                                 ignis__parts,
                                                 IGNIS__SOURCE_COUNT,
                                                 0,
                                                 IGNIS__BUILTIN_COUNT,
                                                 IGNIS__COUNT(ignis__parts),
                                                 ignis__own_dtypes,
                                                 {0}};

/*  The table of a header above. A program may read a record before it uses that header, so the header's
    implementation sets this before main begins: in C by a second declaration that has a value, in C++ by a
    constructor. */
IGNIS__PRIVATE ignis__kernel_table *ignis__kernels_above;

/*  Returns a table by its index from 0 on. NULL if there are no more. */
IGNIS__PRIVATE ignis__kernel_table *ignis__kernel_table_at(int index)
{
    return index == 0 ? &ignis__own_kernels : index == 1 ? ignis__kernels_above : NULL;
}

IGNIS__PRIVATE ignis__kernel_table *ignis__table_of_builtin(ignis__builtin builtin)
{
    return builtin < IGNIS__BUILTIN_COUNT ? &ignis__own_kernels : ignis__kernels_above;
}

IGNIS__PRIVATE const ignis__builtin_row *ignis__builtin_row_of(ignis__builtin builtin)
{
    const ignis__kernel_table *table = ignis__table_of_builtin(builtin);
    return &table->builtins[builtin - table->first];
}

/*  Returns a source of any table by its index from 0 on. NULL if there are no more. */
IGNIS__PRIVATE const ignis__source *ignis__source_at(int index)
{
    const ignis__kernel_table *table;
    int i;
    for (i = 0; (table = ignis__kernel_table_at(i)) != NULL; index -= table->source_count, i++)
        if (index < table->source_count)
            return &table->sources[index];
    return NULL;
}

/*  Returns the number of a kernel of a source, by its index from 0 on. -1 if there are no more. */
IGNIS__PRIVATE ignis__builtin ignis__builtin_of_source(const ignis__source *source, int index)
{
    const ignis__kernel_table *table;
    int i, k;
    for (i = 0; (table = ignis__kernel_table_at(i)) != NULL; i++)
        for (k = 0; k < table->builtin_count; k++)
            if (table->builtins[k].source == source && index-- == 0)
                return table->first + k;
    return -1;
}

/*  Returns the next header in memory that a source (NULL: a program of the caller) may include; *at is 0 for the
    first. A source of a header above has the headers of its own table, too. Others do not, so that their programs are
    the same with and without a header above. NULL if there are no more. */
IGNIS__PRIVATE const ignis__source *ignis__header_next(const ignis__source *from, int *at)
{
    const ignis__kernel_table *above = ignis__kernels_above;
    bool is_above = above && (uintptr_t)from - (uintptr_t)above->sources < (size_t)above->source_count * sizeof *from;
    const ignis__source *source;
    while ((source = ignis__source_at((*at)++)) != NULL)
        if (ignis__source_is_header(source) && (is_above || *at <= IGNIS__SOURCE_COUNT))
            return source;
    return NULL;
}
