/*  models/kernel_table.c - the table of the kernels in kernels/models, as builtin_table.c has the kernels of ignis.h

    It is known before main begins: a program may read a record before it opens a model.
    May use: >>kernel. Locks: none. */

#include "room.h"

#include "../../build/model_kernels.c"

IGNIS__MODEL_BUILTINS(IGNIS__BUILTIN_ROW)

static const ignis__kernel_part ignis__model_kernel_parts[] = {
    IGNIS__PART(BLOCKS_EMBEDDING, BLOCKS_EMBED, "ignis_blocks_embedding"),
    IGNIS__PART(GENERATE_WORDS, GENERATE_DRAW, "ignis_generate_words"),
    IGNIS__PART(GEMV_1, GEMV_8, "ignis_gemv_1"),
    IGNIS__PART(GEMV_GATED_1, GEMV_GATED_8, "ignis_gemv_gated_1"),
    IGNIS__PART(GEMV_BLOCKS_ROWS, GEMV_BLOCKS_64, "ignis_gemv_blocks_rows"),
    IGNIS__PART(GEMV_MMA_NORM, GEMV_MMA_8, "ignis_gemv_mma_norm"),
    IGNIS__PART(GEMV_MMA_16, GEMV_MMA_64, "ignis_gemv_mma_16"),
    IGNIS__PART(LATENT_ROWS, LATENT_VALUES, "ignis_latent_rows"),
    IGNIS__PART(EXPERTS_ROUTER, EXPERTS_SHARED, "ignis_experts_router"),
    IGNIS__PART(EXPERTS_SORT, EXPERTS_COMBINE, "ignis_experts_sort"),
    IGNIS__PART(PAGED_1, PAGED_2, "ignis_attention_paged_1"),
    IGNIS__PART(DELTA_NET_CONV, DELTA_NET_GATE, "ignis_delta_net_conv"),
    IGNIS__PART(LORA_SHRINK, LORA_EXPAND, "ignis_lora_shrink"),
};

static int ignis__model_kernel_dtypes(const char *name)
{
    if (strncmp(name, "attention", 9) == 0 || strncmp(name, "gemv_", 5) == 0 || strncmp(name, "generate_step", 13) == 0)
        return 0;
    return strncmp(name, "generate_draw", 13) == 0 ? 1 /* logits are always floating-point */
                                                   : 4 /* floating-point dtypes come first */;
}

static const ignis__builtin ignis__model_builtins[] = {IGNIS__MODEL_BUILTINS(IGNIS__BUILTIN_LISTED)};

IGNIS__PRIVATE ignis__kernel_table ignis__model_kernels = {ignis__model_kernel_parts,
                                                           IGNIS__MODEL_SOURCES_HASH,
                                                           IGNIS__COUNT(ignis__model_kernel_sources),
                                                           IGNIS__BUILTIN_COUNT,
                                                           IGNIS__COUNT(ignis__model_builtins),
                                                           IGNIS__COUNT(ignis__model_kernel_parts),
                                                           {0}};

IGNIS__PRIVATE ignis__kernel_list ignis__model_kernel_list = {
    ignis__model_kernel_sources, ignis__model_builtins, IGNIS__COUNT(ignis__model_kernel_sources),
    IGNIS__COUNT(ignis__model_builtins), ignis__model_kernel_dtypes};

#ifdef __cplusplus
static struct ignis__model_kernels_known {
    ignis__model_kernels_known()
    {
        ignis__kernels_above = &ignis__model_kernels;
        ignis__kernel_list_above = &ignis__model_kernel_list;
    }
} ignis__model_kernels_are_known;
#elif defined(IGNIS__PARTS) /* builtin_table.c is compiled by itself, and defines the variables */
__attribute__((constructor)) static void ignis__model_kernels_are_known(void)
{
    ignis__kernels_above = &ignis__model_kernels;
    ignis__kernel_list_above = &ignis__model_kernel_list;
}
#else
IGNIS__PRIVATE ignis__kernel_table *ignis__kernels_above = &ignis__model_kernels;
IGNIS__PRIVATE ignis__kernel_list *ignis__kernel_list_above = &ignis__model_kernel_list;
#endif
