/*  >>ops.matmul.cublaslt - matrix products by cuBLASLt, with cached plans

    cuBLASLt stores matrices by columns: a row-major matrix is its transpose there, so operands are exchanged
    and nothing is copied.
    Uses: product, the loader. Locks: a plan's lock while the bias address is in its descriptor; `planning` of
    a device guards its plans, as cuBLASLt may load kernels for one and wait for the device. */

#include "room.h"

/*  A plan: cuBLASLt's choice for a product, kept for the next product of the same kind. It computes out^T =
    op(b)^T op(a)^T. */
typedef struct ignis__plan {
    ignis__product product;
    void *desc, *layout_a, *layout_b, *layout_out; /* in cuBLASLt's order: its A is our b */
    ignis__lt_choice choice;
    ignis__mutex lock; /* the bias address is written into desc */
    struct ignis__plan *next;
} ignis__plan;

#define IGNIS__PLAN_BUCKETS 64

/*  Plans of one device, in buckets. */
typedef struct ignis__planner {
    void *handle;
    ignis__plan *plans[IGNIS__PLAN_BUCKETS];
} ignis__planner;

static ignis__planner *ignis__planners[IGNIS_MAX_DEVICES]; /* allocated for the first product of a device */

#define IGNIS__CUBLASLT(name, args) IGNIS_CALL_HOOK(#name, ignis__cublaslt.name args)

IGNIS__ONE_COPY static bool ignis__lt_check(const char *call, const char *function, int error)
{
    static const struct {
        int error;
        const char *name;
    } names[] = {{1, "CUBLAS_STATUS_NOT_INITIALIZED"},   {3, "CUBLAS_STATUS_ALLOC_FAILED"},
                 {7, "CUBLAS_STATUS_INVALID_VALUE"},     {8, "CUBLAS_STATUS_ARCH_MISMATCH"},
                 {13, "CUBLAS_STATUS_EXECUTION_FAILED"}, {14, "CUBLAS_STATUS_INTERNAL_ERROR"},
                 {15, "CUBLAS_STATUS_NOT_SUPPORTED"}};
    const char *name = "an unknown status";
    int i;
    if (error == 0)
        return true;
    for (i = 0; i < IGNIS__COUNT(names); i++)
        if (names[i].error == error)
            name = names[i].name;
    ignis__fail_because(IGNIS_DIAG_CUBLAS_CALL, call, error, name, NULL, "%s failed with %s (%d)", function, name,
                        error);
    return false;
}
#define IGNIS__LT_OK(call, name, args) ignis__lt_check(call, #name, IGNIS__CUBLASLT(name, args))

static int ignis__lt_type(int dtype)
{
    return dtype == IGNIS_F16    ? IGNIS__LT_R_16F
           : dtype == IGNIS_BF16 ? IGNIS__LT_R_16BF
           : dtype == IGNIS_F64  ? IGNIS__LT_R_64F
                                 : IGNIS__LT_R_32F;
}

static void ignis__plan_free(ignis__plan *plan)
{
    if (plan->layout_a)
        (void)IGNIS__CUBLASLT(cublasLtMatrixLayoutDestroy, (plan->layout_a));
    if (plan->layout_b)
        (void)IGNIS__CUBLASLT(cublasLtMatrixLayoutDestroy, (plan->layout_b));
    if (plan->layout_out)
        (void)IGNIS__CUBLASLT(cublasLtMatrixLayoutDestroy, (plan->layout_out));
    if (plan->desc)
        (void)IGNIS__CUBLASLT(cublasLtMatmulDescDestroy, (plan->desc));
    ignis__free(plan);
}

/*  Describes a matrix stored by rows, [rows, columns], to cuBLASLt: [columns, rows] by columns. */
static bool ignis__plan_layout(const char *call, const ignis__plan *plan, int64_t rows, int64_t columns,
                               int64_t batch_stride, void **layout)
{
    int batch = (int)plan->product.batch;
    if (!IGNIS__LT_OK(call, cublasLtMatrixLayoutCreate,
                      (layout, ignis__lt_type(plan->product.dtype), (uint64_t)columns, (uint64_t)rows, columns)))
        return false;
    return plan->product.batch == 1 ||
           (IGNIS__LT_OK(call, cublasLtMatrixLayoutSetAttribute,
                         (*layout, IGNIS__LT_LAYOUT_BATCH_COUNT, &batch, sizeof batch)) &&
            IGNIS__LT_OK(call, cublasLtMatrixLayoutSetAttribute,
                         (*layout, IGNIS__LT_LAYOUT_BATCH_STRIDE, &batch_stride, sizeof batch_stride)));
}

/*  Describes the product, and lets cuBLASLt choose. *supported becomes false if it has no kernel. */
static bool ignis__plan_fill(const char *call, void *handle, ignis__plan *plan, void *bias, bool *supported)
{
    const ignis__product *product = &plan->product;
    int compute = product->dtype == IGNIS_F64                        ? IGNIS__LT_COMPUTE_64F
                  : product->dtype == IGNIS_F32 && ignis__allow_tf32 ? IGNIS__LT_COMPUTE_32F_TF32
                                                                     : IGNIS__LT_COMPUTE_32F;
    int scale = product->dtype == IGNIS_F64 ? IGNIS__LT_R_64F : IGNIS__LT_R_32F, found = 0, error = 0, i;
    size_t workspace = IGNIS__LT_WORKSPACE;
    uint32_t alignment = (uint32_t)product->alignment,
             /* Partial sums are not rounded to 16 bits. A short sum is not split, as adding its parts takes
           longer. */
        reduction = product->k <= 512 ? IGNIS__LT_REDUCTION_NONE : IGNIS__LT_REDUCTION_COMPUTE_TYPE;
    void *preference = NULL;
    bool ok;
    *supported = true;
    ok = IGNIS__LT_OK(call, cublasLtMatmulDescCreate, (&plan->desc, compute, scale)) &&
         IGNIS__LT_OK(call, cublasLtMatmulDescSetAttribute,
                      (plan->desc, IGNIS__LT_DESC_TRANSA, &product->transpose_b, sizeof product->transpose_b)) &&
         IGNIS__LT_OK(call, cublasLtMatmulDescSetAttribute,
                      (plan->desc, IGNIS__LT_DESC_TRANSB, &product->transpose_a, sizeof product->transpose_a)) &&
         IGNIS__LT_OK(call, cublasLtMatmulDescSetAttribute,
                      (plan->desc, IGNIS__LT_DESC_EPILOGUE, &product->epilogue, sizeof product->epilogue)) &&
         (product->epilogue == IGNIS__LT_EPILOGUE_NONE ||
          IGNIS__LT_OK(call, cublasLtMatmulDescSetAttribute,
                       (plan->desc, IGNIS__LT_DESC_BIAS_POINTER, &bias, sizeof bias))) &&
         ignis__plan_layout(call, plan, product->transpose_b ? product->n : product->k,
                            product->transpose_b ? product->k : product->n, product->batch_b, &plan->layout_a) &&
         ignis__plan_layout(call, plan, product->transpose_a ? product->k : product->m,
                            product->transpose_a ? product->m : product->k, product->batch_a, &plan->layout_b) &&
         ignis__plan_layout(call, plan, product->m, product->n, product->m * product->n, &plan->layout_out) &&
         IGNIS__LT_OK(call, cublasLtMatmulPreferenceCreate, (&preference)) &&
         IGNIS__LT_OK(call, cublasLtMatmulPreferenceSetAttribute,
                      (preference, IGNIS__LT_PREFERENCE_REDUCTION, &reduction, sizeof reduction)) &&
         IGNIS__LT_OK(call, cublasLtMatmulPreferenceSetAttribute,
                      (preference, IGNIS__LT_PREFERENCE_WORKSPACE, &workspace, sizeof workspace));
    for (i = 0; ok && i < 4; i++)
        ok = IGNIS__LT_OK(call, cublasLtMatmulPreferenceSetAttribute,
                          (preference, IGNIS__LT_PREFERENCE_ALIGNMENT_A + i, &alignment, sizeof alignment));
    if (ok) {
        error = IGNIS__CUBLASLT(cublasLtMatmulAlgoGetHeuristic,
                                (handle, plan->desc, plan->layout_a, plan->layout_b, plan->layout_out, plan->layout_out,
                                 preference, 1, &plan->choice, &found));
        *supported = error != IGNIS__LT_NOT_SUPPORTED && (error != 0 || found > 0);
        ok = !*supported || ignis__lt_check(call, "cublasLtMatmulAlgoGetHeuristic", error);
    }
    if (preference)
        (void)IGNIS__CUBLASLT(cublasLtMatmulPreferenceDestroy, (preference));
    return ok;
}

/*  Allocates what keeps the plans of a device that is entered. Returns NULL on failure. */
IGNIS__COLD static ignis__planner *ignis__planner_make(const char *call)
{
    ignis__planner *planner = NULL;
    if (ignis__library_load(call, IGNIS_LIBRARY_CUBLASLT))
        planner = (ignis__planner *)ignis__alloc_for(call, sizeof *planner);
    if (planner && !IGNIS__LT_OK(call, cublasLtCreate, (&planner->handle))) {
        ignis__free(planner);
        return NULL;
    }
    return planner;
}

/*  Returns the plan of a product on a device that is entered. NULL if not supported, or after a reported
    failure (*supported tells). */
static ignis__plan *ignis__plan_get(const char *call, ignis__device *device, const ignis__product *product, void *bias,
                                    bool *supported)
{
    int index = ignis__device_ordinal(device),
        bucket = (int)(ignis__hash(IGNIS__HASH_START, product, sizeof *product) % IGNIS__PLAN_BUCKETS);
    ignis__planner *planner;
    ignis__plan *plan;
    *supported = true;
    ignis__mutex_lock(&device->planning);
    if (!ignis__planners[index])
        ignis__planners[index] = ignis__planner_make(call);
    planner = ignis__planners[index];
    for (plan = planner ? planner->plans[bucket] : NULL; plan; plan = plan->next)
        if (memcmp(&plan->product, product, sizeof *product) == 0)
            break;
    if (!plan && planner) {
        plan = (ignis__plan *)ignis__alloc_for(call, sizeof *plan);
        if (plan) {
            plan->product = *product;
            ignis__mutex_init(&plan->lock);
            if (ignis__plan_fill(call, planner->handle, plan, bias, supported) && *supported) {
                plan->next = planner->plans[bucket];
                planner->plans[bucket] = plan;
            } else {
                ignis__plan_free(plan);
                plan = NULL;
            }
        }
    }
    ignis__mutex_unlock(&device->planning);
    return plan;
}

IGNIS__PRIVATE int ignis__alignment_of(ignis__address a, ignis__address b, ignis__address c)
{
    ignis__address bits = a | b | c | 16;
    return (int)(bits & (~bits + 1));
}

/*  Runs a product by cuBLASLt: out = factor * op(a) op(b). IGNIS__LT_EPILOGUE_BIAS adds bias [n] to each row;
    IGNIS__LT_EPILOGUE_BGRADB makes bias [m] the sums of op(a) over k. False if it has no kernel; then nothing
    was done. All sizes are positive. */
static bool ignis__lt_run(ignis__op *op, const ignis__product *product, double factor, int epilogue, ignis__array *out,
                          ignis__array *a, ignis__array *b, ignis__array *bias)
{
    static const float zero_f32 = 0;
    static const double zero_f64 = 0;
    float factor_f32 = (float)factor;
    ignis__product described = *product;
    bool wide = product->dtype == IGNIS_F64, known, traced;
    ignis__trace_item item;
    ignis__address at_a = ignis__op_read(op, a), at_b = ignis__op_read(op, b), at_out = ignis__op_write(op, out),
                   at_bias = 0;
    ignis__block *workspace = NULL;
    ignis__plan *plan;
    void *bias_pointer;
    if (bias)
        at_bias = epilogue == IGNIS__LT_EPILOGUE_BGRADB ? ignis__op_write(op, bias) : ignis__op_read(op, bias);
    if (!op->ok)
        return true;
    described.epilogue = epilogue;
    described.alignment = ignis__alignment_of(at_a, at_b, at_out);
    bias_pointer = (void *)(uintptr_t)at_bias;
    plan = ignis__plan_get(op->work.call, op->work.device, &described, bias_pointer, &known);
    if (!plan) {
        op->ok = !known;
        return known;
    }
    if (plan->choice.workspace) {
        workspace =
            ignis__memory_take(op->work.call, op->work.device, op->work.stream, (int64_t)plan->choice.workspace);
        op->ok = workspace != NULL;
    }
    if (bias)
        ignis__mutex_lock(&plan->lock);
    if (bias && op->ok)
        op->ok = IGNIS__LT_OK(op->work.call, cublasLtMatmulDescSetAttribute,
                              (plan->desc, IGNIS__LT_DESC_BIAS_POINTER, &bias_pointer, sizeof bias_pointer));
    ignis__cost(-1, 2.0 * (double)product->m * (double)product->n * (double)product->k * (double)product->batch,
                product->dtype);
    traced = op->ok && ignis__profiling() &&
             ignis__trace_open(&item, IGNIS__TRACED_KERNEL, op->work.call, op->work.device, op->work.stream, NULL,
                               "cublasLtMatmul");
    if (op->ok)
        op->ok = IGNIS__LT_OK(
            op->work.call, cublasLtMatmul,
            (ignis__planners[op->work.device - ignis__devices]->handle, plan->desc,
             wide ? (const void *)&factor : (const void *)&factor_f32, (const void *)(uintptr_t)at_b, plan->layout_a,
             (const void *)(uintptr_t)at_a, plan->layout_b, wide ? (const void *)&zero_f64 : (const void *)&zero_f32,
             (const void *)(uintptr_t)at_out, plan->layout_out, (void *)(uintptr_t)at_out, plan->layout_out,
             &plan->choice.algo, (void *)(uintptr_t)(workspace ? workspace->address : 0), plan->choice.workspace,
             op->work.stream));
    if (traced)
        (void)ignis__trace_close(&item, op->ok);
    if (bias)
        ignis__mutex_unlock(&plan->lock);
    if (workspace)
        ignis__memory_recycle(op->work.call, op->work.device, workspace);
    return true;
}

/*  As ignis__lt_run, with an epilogue: the bias inside the product if cuBLASLt can, the rest in a pass after
    it. */
IGNIS__PRIVATE bool ignis__lt_multiply(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a,
                                       ignis__array *b, const ignis__epilogue *epilogue, bool *row_sums)
{
    bool narrow = product->dtype != IGNIS_F64, biased = false;
    bool keeps = epilogue->pre && !epilogue->gradient && epilogue->activation != IGNIS__ACTIVATION_GATED;
    ignis__array *to = epilogue->accumulate ? ignis__op_new_like(op, out) : keeps ? epilogue->pre : out;
    ignis__epilogue rest = *epilogue;
    double factor = epilogue->factor != 0 ? epilogue->factor : 1;
    ignis__gemm gemm;
    rest.factor = 1;
    *row_sums = false;
    if (product->k == 0)
        ignis__op_zero(op, to);
    else if (epilogue->bias && narrow)
        biased = ignis__lt_run(op, product, factor, IGNIS__LT_EPILOGUE_BIAS, to, a, b, epilogue->bias);
    else if (epilogue->row_sums && product->dtype == IGNIS_F32) /* it sums 16-bit numbers in 16 bits */
        *row_sums = ignis__lt_run(op, product, factor, IGNIS__LT_EPILOGUE_BGRADB, to, a, b, epilogue->row_sums);
    if (product->k > 0 && !biased && !*row_sums &&
        !ignis__lt_run(op, product, factor, IGNIS__LT_EPILOGUE_NONE, to, a, b, NULL))
        return false;
    if (biased)
        rest.bias = NULL;
    if (keeps && biased && to == epilogue->pre)
        rest.pre = NULL; /* done */
    if (rest.activation || rest.residual || rest.column_sums || rest.accumulate) {
        gemm = ignis__gemm_describe(op, product, out, &rest);
        gemm.params.partial = ignis__op_read(op, to);
        gemm.params.packed_out = gemm.params.packed_out && gemm.params.partial % 16 == 0;
        ignis__gemm_launch_finish(op, IGNIS__BUILTIN(GEMM_APPLY), IGNIS__GEMM_APPLY_ROWS, out->dtype, &gemm, &rest);
    } else if (rest.bias) {
        ignis__address at = ignis__op_write(op, out), from = ignis__op_read(op, rest.bias);
        void *params[] = {&at, &at, &from, &out->numel, &rest.bias->numel, &out->numel};
        ignis__op_launch_elementwise(op, IGNIS__BUILTIN(ADD_BROADCAST), out->dtype, out->numel, params);
    }
    return true;
}

/*  Frees the plans of a device; its context is current. */
IGNIS__PRIVATE void ignis__matmul_close(ignis__device *device)
{
    int index = ignis__device_ordinal(device), bucket;
    ignis__planner *planner = ignis__planners[index];
    for (bucket = 0; planner && bucket < IGNIS__PLAN_BUCKETS; bucket++) {
        while (planner->plans[bucket]) {
            ignis__plan *plan = planner->plans[bucket];
            planner->plans[bucket] = plan->next;
            ignis__plan_free(plan);
        }
    }
    if (planner)
        (void)IGNIS__CUBLASLT(cublasLtDestroy, (planner->handle));
    ignis__free(planner);
    ignis__planners[index] = NULL;
}

IGNIS__PRIVATE bool ignis__cublaslt_available(const char *call)
{
    return ignis__library_available(call, IGNIS_LIBRARY_CUBLASLT, "built-in kernels compute products");
}
