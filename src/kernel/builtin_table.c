/*  kernel/builtin_table.c - the built-in kernels of ignis.h, and how a header above adds its own

    Each kernel is a constant of its own, which the operations that launch it name. Two tables have them all: one by
    number, of facts without texts, and one by name, which holds every text. The functions at the end find a kernel or
    a source by name in the tables of both headers: warm-up and records use them, and nothing else may. Otherwise every
    program would carry every text: tests/compile/run.sh checks the size of one that has no operations.
    Invariant: the key of a program of ignis.h does not depend on the table above. */

#include "room.h"

IGNIS__BUILTINS(IGNIS__BUILTIN_ROW)

static const ignis__kernel_part ignis__parts[] = {
    IGNIS__PART(SDPA_BACKWARD_DELTA, SDPA_BACKWARD_BIAS, "ignis_sdpa_backward_delta"),
    IGNIS__PART(SDPA_MMA_BACKWARD_DELTA, SDPA_MMA_BACKWARD_BIAS, "ignis_sdpa_backward_delta"),
    IGNIS__PART(SDPA_HOPPER, SDPA_HOPPER_COMBINE, "ignis_sdpa"),
    IGNIS__PART(SDPA_HOPPER_BACKWARD_ROWS, SDPA_HOPPER_BACKWARD_ROTATED, "ignis_sdpa_backward_rows"),
    IGNIS__PART(SDPA_DECODE_1, SDPA_DECODE_COMBINE, "ignis_sdpa_decode_1"),
    IGNIS__PART(SDPA_MMA_DECODE, SDPA_MMA_DECODE_COMBINE, "ignis_sdpa_decode"),
    IGNIS__PART(GEMM, GEMM_SMALL, "ignis_gemm"),
    IGNIS__PART(GEMM_MMA, GEMM_MMA_SMALL, "ignis_gemm_mma"),
    IGNIS__PART(GEMM_GROUPED, GEMM_GROUPED_SMALL, "ignis_gemm_grouped"),
    IGNIS__PART(GEMM_GROUPED_MMA, GEMM_GROUPED_MMA_SMALL, "ignis_gemm_grouped_mma"),
    IGNIS__PART(DEPTHWISE, DEPTHWISE_UNPACKED, "ignis_depthwise"),
    IGNIS__PART(DEPTHWISE_WEIGHTS, DEPTHWISE_WEIGHTS_UNPACKED, "ignis_depthwise_weights"),
    IGNIS__PART(GEMM_FINISH, GEMM_SUMS, "ignis_gemm_finish"),
    IGNIS__PART(TRANSPOSE_RUNS, TRANSPOSE_TILES, "ignis_transpose_runs"),
    IGNIS__PART(STRIDED_COPY, STRIDED_TILES, "ignis_strided_copy"),
    IGNIS__PART(SUM_ROWS, SUM_FINISH, "ignis_sum_rows"),
    IGNIS__PART(SCAN_ROWS, SCAN_COLUMNS, "ignis_scan_rows"),
    IGNIS__PART(SCATTER_ADD_ROWS, SEGMENT_FINISH, "ignis_scatter_add_rows"),
    IGNIS__PART(SCATTER_CLAIM, SCATTER_LAST, "ignis_scatter_claim"),
    IGNIS__PART(SELECT_COUNT, SELECT_WRITE, "ignis_select_count"),
    IGNIS__PART(UNIQUE_HEADS, UNIQUE_WRITE, "ignis_unique_heads"),
    IGNIS__PART(SORT_SMALL, SORT_SELECT_FEW, "ignis_sort_small"),
    IGNIS__PART(SORT_COUNT, SORT_PASS, "ignis_sort_count"),
    IGNIS__PART(LINALG_COPY, LINALG_DET, "ignis_linalg_copy"),
    IGNIS__PART(LINALG_QR, LINALG_RANK, "ignis_linalg_qr"),
    IGNIS__PART(LINALG_JACOBI_BEGIN, LINALG_SIGN_COLUMNS, "ignis_linalg_jacobi_begin"),
    IGNIS__PART(LAYER_NORM_WARP, LAYER_NORM_BLOCK, "ignis_layer_norm_warp"),
    IGNIS__PART(LAYER_NORM_BACKWARD_AVERAGES, LAYER_NORM_BACKWARD_COLUMNS, "ignis_layer_norm_backward_averages"),
    IGNIS__PART(RMS_NORM_WARP, RMS_NORM_BLOCK, "ignis_rms_norm_warp"),
    IGNIS__PART(RMS_NORM_BACKWARD_AVERAGES, RMS_NORM_BACKWARD_COLUMNS, "ignis_rms_norm_backward_averages"),
    IGNIS__PART(ADD_LAYER_NORM_WARP, ADD_LAYER_NORM_BLOCK, "ignis_add_layer_norm_warp"),
    IGNIS__PART(ADD_RMS_NORM_WARP, ADD_RMS_NORM_BLOCK, "ignis_add_rms_norm_warp"),
    IGNIS__PART(LAYER_NORM_ROWS_FEW, LAYER_NORM_ROWS_EVEN, "ignis_layer_norm_rows_few"),
    IGNIS__PART(LAYER_NORM_ROWS_BACKWARD_FEW, LAYER_NORM_ROWS_BACKWARD_EVEN, "ignis_layer_norm_rows_backward_few"),
    IGNIS__PART(RMS_NORM_ROWS_FEW, RMS_NORM_ROWS_EVEN, "ignis_rms_norm_rows_few"),
    IGNIS__PART(RMS_NORM_ROWS_BACKWARD_FEW, RMS_NORM_ROWS_BACKWARD_EVEN, "ignis_rms_norm_rows_backward_few"),
    IGNIS__PART(CHANNEL_STATISTICS, CHANNEL_APPLY, "ignis_channel_statistics"),
    IGNIS__PART(CHANNEL_SUMS, CHANNEL_BACKWARD, "ignis_channel_sums"),
    IGNIS__PART(LAYER_NORM_WIDE_WARP, LAYER_NORM_WIDE_BLOCK, "ignis_layer_norm_warp"),
    IGNIS__PART(LAYER_NORM_WIDE_BACKWARD_AVERAGES, LAYER_NORM_WIDE_BACKWARD_COLUMNS,
                "ignis_layer_norm_backward_averages"),
    IGNIS__PART(RMS_NORM_WIDE_WARP, RMS_NORM_WIDE_BLOCK, "ignis_rms_norm_warp"),
    IGNIS__PART(RMS_NORM_WIDE_BACKWARD_AVERAGES, RMS_NORM_WIDE_BACKWARD_COLUMNS, "ignis_rms_norm_backward_averages"),
    IGNIS__PART(ADD_LAYER_NORM_WIDE_WARP, ADD_LAYER_NORM_WIDE_BLOCK, "ignis_add_layer_norm_warp"),
    IGNIS__PART(ADD_RMS_NORM_WIDE_WARP, ADD_RMS_NORM_WIDE_BLOCK, "ignis_add_rms_norm_warp"),
    IGNIS__PART(LAYER_NORM_WIDE_ROWS_FEW, LAYER_NORM_WIDE_ROWS_EVEN, "ignis_layer_norm_rows_few"),
    IGNIS__PART(LAYER_NORM_WIDE_ROWS_BACKWARD_FEW, LAYER_NORM_WIDE_ROWS_BACKWARD_EVEN,
                "ignis_layer_norm_rows_backward_few"),
    IGNIS__PART(RMS_NORM_WIDE_ROWS_FEW, RMS_NORM_WIDE_ROWS_EVEN, "ignis_rms_norm_rows_few"),
    IGNIS__PART(RMS_NORM_WIDE_ROWS_BACKWARD_FEW, RMS_NORM_WIDE_ROWS_BACKWARD_EVEN, "ignis_rms_norm_rows_backward_few"),
    IGNIS__PART(CHANNEL_AVERAGES_WIDE, CHANNEL_BACKWARD_WIDE, "ignis_channel_averages"),
    IGNIS__PART(SOFTMAX_WARP, SOFTMAX_LONG, "ignis_softmax_warp"),
    IGNIS__PART(SOFTMAX_BACKWARD_WARP, SOFTMAX_BACKWARD_BLOCK, "ignis_softmax_backward_warp"),
    IGNIS__PART(LOG_SOFTMAX_WARP, LOG_SOFTMAX_LONG, "ignis_log_softmax_warp"),
    IGNIS__PART(LOG_SOFTMAX_BACKWARD_WARP, LOG_SOFTMAX_BACKWARD_BLOCK, "ignis_log_softmax_backward_warp"),
    IGNIS__PART(CROSS_ENTROPY_WARP, CROSS_ENTROPY_BLOCK, "ignis_cross_entropy_warp"),
    IGNIS__PART(CROSS_ENTROPY_LOSS_WARP, CROSS_ENTROPY_LOSS_BLOCK, "ignis_cross_entropy_loss_warp"),
    IGNIS__PART(EMBEDDING_KEYS, EMBEDDING_ROWS, "ignis_embedding_keys"),
    IGNIS__PART(QUANTIZE_F8_E4M3_WARP, QUANTIZE_F8_E4M3_BLOCK, "ignis_quantize_f8_e4m3_warp"),
    IGNIS__PART(QUANTIZE_F8_E5M2_WARP, QUANTIZE_F8_E5M2_BLOCK, "ignis_quantize_f8_e5m2_warp"),
};

static int ignis__own_dtypes(const char *name)
{
    if (strncmp(name, "attention", 9) == 0 || strncmp(name, "gemm_", 5) == 0 || strncmp(name, "grouped_", 8) == 0 ||
        strncmp(name, "fft", 3) == 0)
        return 0;
    if (strstr(name, "_wide.cu"))
        return IGNIS_BF16; /* types of 16 bits come first */
    return strcmp(name, "elementwise.cu") == 0 || strcmp(name, "sort.cu") == 0 ? IGNIS_DTYPE_COUNT - 1
                                                                               : 4 /* the floating types come first */;
}

static const ignis__builtin ignis__builtins[] = {IGNIS__BUILTINS(IGNIS__BUILTIN_LISTED)};

static ignis__kernel_table ignis__own_kernels = {
    ignis__parts, IGNIS__SOURCES_HASH, IGNIS__SOURCE_COUNT, 0, IGNIS__BUILTIN_COUNT, IGNIS__COUNT(ignis__parts), {0}};

static ignis__kernel_list ignis__own_kernel_list = {ignis__sources, ignis__builtins, IGNIS__SOURCE_COUNT,
                                                    IGNIS__BUILTIN_COUNT, ignis__own_dtypes};

/*  The tables of a header above. A program may read a record before it uses that header, so the header's
    implementation sets them before main begins: in C by a second declaration that has a value, in C++ by a
    constructor. */
IGNIS__PRIVATE ignis__kernel_table *ignis__kernels_above;
IGNIS__PRIVATE ignis__kernel_list *ignis__kernel_list_above;

/*  Returns a table by its index from 0 on. NULL if there are no more. */
IGNIS__PRIVATE ignis__kernel_table *ignis__kernel_table_at(int index)
{
    return index == 0 ? &ignis__own_kernels : index == 1 ? ignis__kernels_above : NULL;
}

IGNIS__PRIVATE ignis__kernel_table *ignis__table_of_builtin(ignis__builtin builtin)
{
    return builtin->number < IGNIS__BUILTIN_COUNT ? &ignis__own_kernels : ignis__kernels_above;
}

static ignis__kernel_list *ignis__kernel_list_at(int index)
{
    return index == 0 ? &ignis__own_kernel_list : index == 1 ? ignis__kernel_list_above : NULL;
}

/*  Returns a source of any list by its index from 0 on. NULL if there are no more. */
IGNIS__PRIVATE const ignis__source *ignis__source_at(int index)
{
    ignis__kernel_list *list;
    int i;
    for (i = 0; (list = ignis__kernel_list_at(i)) != NULL; index -= list->source_count, i++)
        if (index < list->source_count)
            return list->sources[index];
    return NULL;
}

/*  Returns a kernel of a source, by its index from 0 on. NULL if there are no more. */
IGNIS__PRIVATE ignis__builtin ignis__builtin_of_source(const ignis__source *source, int index)
{
    ignis__kernel_list *list;
    int i, k;
    for (i = 0; (list = ignis__kernel_list_at(i)) != NULL; i++)
        for (k = 0; k < list->builtin_count; k++)
            if (list->builtins[k]->source == source && index-- == 0)
                return list->builtins[k];
    return NULL;
}

/*  Returns the number of dtypes for which a source is one program without further choices: none for headers and for
    sources with variants. */
IGNIS__PRIVATE int ignis__source_dtypes(const ignis__source *source)
{
    ignis__builtin builtin = ignis__builtin_of_source(source, 0);
    if (!builtin || !source->pieces)
        return 0;
    return ignis__kernel_list_at(builtin->number >= IGNIS__BUILTIN_COUNT)->dtypes(source->name);
}
