/*  base/dry_cublaslt.c - cuBLASLt in dry runs

    Returns success and the largest workspace for every product, so that memory is counted as with cuBLASLt.
    May use: dry_driver.c. Locks: none. */

#include "room.h"

#ifndef IGNIS_NO_TENSORS
/*  cuBLASLt takes each product, with the most workspace that Ignis lets it have. */
static int ignis__dry_lt_desc(void **desc, int compute, int scale)
{
    return (void)compute, (void)scale, ignis__dry_recycle(desc);
}
static int ignis__dry_lt_layout(void **layout, int type, uint64_t rows, uint64_t columns, int64_t stride)
{
    return (void)type, (void)rows, (void)columns, (void)stride, ignis__dry_recycle(layout);
}
static int ignis__dry_lt_set(void *desc, int attribute, const void *value, size_t size)
{
    return (void)desc, (void)attribute, (void)value, (void)size, 0;
}
static int ignis__dry_lt_choose(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
                                int wanted, void *choice, int *found)
{
    (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)wanted;
    ((ignis__lt_choice *)choice)->workspace = IGNIS__LT_WORKSPACE;
    *found = 1;
    return 0;
}
static int ignis__dry_lt_run(void *handle, void *desc, const void *alpha, const void *a, void *layout_a, const void *b,
                             void *layout_b, const void *beta, const void *c, void *layout_c, void *d, void *layout_d,
                             const void *algo, void *workspace, size_t size, void *stream)
{
    (void)handle, (void)desc, (void)alpha, (void)a, (void)layout_a, (void)b, (void)layout_b, (void)beta, (void)c,
        (void)layout_c, (void)d;
    return (void)layout_d, (void)algo, (void)workspace, (void)size, (void)stream, 0;
}

IGNIS__COLD IGNIS__PRIVATE void ignis__dry_bind_products(void)
{
    struct ignis__cublaslt_api *lt = &ignis__cublaslt;
    lt->cublasLtCreate = lt->cublasLtMatmulPreferenceCreate = ignis__dry_recycle;
    lt->cublasLtDestroy = lt->cublasLtMatmulDescDestroy = lt->cublasLtMatrixLayoutDestroy = ignis__dry_handle;
    lt->cublasLtMatmulPreferenceDestroy = ignis__dry_handle;
    lt->cublasLtMatmulDescCreate = ignis__dry_lt_desc;
    lt->cublasLtMatrixLayoutCreate = ignis__dry_lt_layout;
    lt->cublasLtMatmulDescSetAttribute = lt->cublasLtMatrixLayoutSetAttribute = ignis__dry_lt_set;
    lt->cublasLtMatmulPreferenceSetAttribute = ignis__dry_lt_set;
    lt->cublasLtMatmulAlgoGetHeuristic = ignis__dry_lt_choose;
    lt->cublasLtMatmul = ignis__dry_lt_run;
}
#endif
