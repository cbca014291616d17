/*  >>ops.matmul.dispatch - the choice between built-in kernels and cuBLASLt

    Every product passes here: ignis__matmul_run. The thresholds were measured on an H200.
    Uses: gemm_launch, cublaslt, autotune. */

#include "room.h"

/*  Returns whether a product has few tiny tiles. */
IGNIS__PRIVATE bool ignis__gemm_is_tiny(const ignis__op *op, const ignis__product *product)
{
    int64_t tiles = ignis__ceil_div(product->m, 16) * ignis__ceil_div(product->n, 32) * product->batch;
    return tiles <= 2 * op->work.device->info.multiprocessors && product->k <= 512;
}

/*  Returns whether a product by wgmma fills the device: at least a round of tiles, nearly all inside the
    matrix. Of tiles that are finished beside the next one, a tenth may be outside. */
static bool ignis__gemm_fills_device(const ignis__op *op, const ignis__product *product)
{
    int64_t m = ignis__ceil_div(product->m, 128) * product->batch, n = product->n;
    double size = (double)product->m * (double)n * (double)product->batch / 128;
    return m * ignis__ceil_div(n, 256) >= op->work.device->info.multiprocessors && product->k >= 256 &&
           ((double)(m * ignis__ceil_div(n, 256) * 256) < 1.04 * size ||
            (product->k >= ignis__gemm_ahead_k((ignis_dtype)product->dtype) && product->k <= 4096 &&
             (double)(m * ignis__ceil_div(n, 192) * 192) < 1.1 * size));
}

/*  As ignis__gemm_fills_device, for f32, which is contiguous along k or transposed first. cuBLASLt is slow if
    no operand is contiguous along k; if one is not, the other one needs many rows. */
static bool ignis__gemm_fills_device_f32(const ignis__op *op, const ignis__product *product)
{
    bool turns_a = product->transpose_a, turns_b = !product->transpose_b;
    int64_t most = ignis__gemm_pack_limit / ignis__dtypes[IGNIS_F32].size / product->batch;
    double tiles = (double)product->m * (double)product->n * (double)product->batch / (128 * 128);
    if (!turns_a && !turns_b)
        return product->m >= 512 && product->n >= 64 && product->k >= 64 &&
               tiles > 0.9 * op->work.device->info.multiprocessors;
    return ignis__gemm_fills_device(op, product) && (!turns_a || product->m * product->k <= most) &&
           (!turns_b || product->n * product->k <= most) &&
           (turns_a == turns_b || (turns_a ? product->n : product->m) >= 8192);
}

/*  Returns whether built-in kernels are at least as fast as cuBLASLt on an H200: for few tiny tiles (by
    tensor cores 1 us slower, but an epilogue costs nothing), and for large products by wgmma. */
IGNIS__PRIVATE bool ignis__gemm_beats_cublaslt(const ignis__op *op, const ignis__product *product)
{
    ignis_dtype dtype = (ignis_dtype)product->dtype;
    if (ignis__gemm_is_tiny(op, product))
        return ignis__nvrtc_available(op->work.call);
    return product->k <= 8192 && /* at 32768 and more they were slower */
           (product->m | product->n | product->k) % ignis__pack_elements(dtype) == 0 &&
           (dtype == IGNIS_F32 ? ignis__gemm_fills_device_f32(op, product) : ignis__gemm_fills_device(op, product)) &&
           ignis__nvrtc_available(op->work.call) && ignis__gemm_has_wgmma(op, dtype);
}

/*  Runs a product, whose sizes may be zero, and its epilogue (NULL: none). False: the caller computes
    epilogue->row_sums. */
IGNIS__PRIVATE bool ignis__matmul_run(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a,
                                      ignis__array *b, const ignis__epilogue *epilogue)
{
    static const ignis__epilogue nothing = IGNIS__ZERO;
    int by = ignis__matmul_backend;
    bool row_sums = false, own = by == IGNIS_MATMUL_OWN;
    if (!epilogue)
        epilogue = &nothing;
    if (!op->ok || op->replays || out->numel == 0)
        return false;
    if (by == IGNIS_MATMUL_AUTO)
        own = ignis__gemm_beats_cublaslt(op, product) || !ignis__cublaslt_available(op->work.call);
    else if (by == IGNIS_MATMUL_MEASURE)
        own = !ignis__cublaslt_available(op->work.call) ||
              ignis__autotune_picks_builtin(op, product, out, a, b, epilogue);
    if (!own && ignis__lt_multiply(op, product, out, a, b, epilogue, &row_sums))
        return row_sums;
    if (by == IGNIS_MATMUL_CUBLASLT)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "cuBLASLt has no kernel for this product of %s on device %d",
                              ignis__dtypes[product->dtype].name, op->work.device->info.device);
    return ignis__gemm_run(op, product, out, a, b, epilogue);
}
