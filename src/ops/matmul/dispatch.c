/* >>ops.matmul - the choice ------------------------------------------------------------------------------------------------ */

/*  Products of few tiny tiles. */
static bool ignis__gemm_is_tiny(const ignis__op *op, const ignis__product *product)
{
    int64_t tiles = ignis__ceil_div(product->m, 16) * ignis__ceil_div(product->n, 32) * product->batch;
    return tiles <= 2 * op->work.device->info.multiprocessors && product->k <= 512;
}

/*  Of those by wgmma: a round of tiles at least, of which next to nothing lies outside; of those that are finished beside the next one, a tenth
    may. */
static bool ignis__gemm_fills_device(const ignis__op *op, const ignis__product *product)
{
    int64_t m = ignis__ceil_div(product->m, 128) * product->batch, n = product->n;
    double size = (double)product->m * (double)n * (double)product->batch / 128;
    return m * ignis__ceil_div(n, 256) >= op->work.device->info.multiprocessors && product->k >= 256 &&
           ((double)(m * ignis__ceil_div(n, 256) * 256) < 1.04 * size ||
            (product->k >= ignis__gemm_ahead_k((ignis_dtype)product->dtype) && product->k <= 4096 &&
             (double)(m * ignis__ceil_div(n, 192) * 192) < 1.1 * size));
}

/*  The same of f32, which lies along the sum, or is turned: cuBLASLt is slow where neither operand does; where one does not, the other one has to
    have many rows. */
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

/*  Products for which own kernels are at least as fast as cuBLASLt on an H200: of few tiny tiles (alone by tensor cores 1 us slower, but what is done
    to them costs nothing), and large ones by wgmma. */
static bool ignis__gemm_beats_cublaslt(const ignis__op *op, const ignis__product *product)
{
    ignis_dtype dtype = (ignis_dtype)product->dtype;
    if (ignis__gemm_is_tiny(op, product))
        return ignis__nvrtc_available(op->work.call);
    return product->k <= 8192 && /* at 32768 and more they were slower */
           (product->m | product->n | product->k) % ignis__pack_elements(dtype) == 0 &&
           (dtype == IGNIS_F32 ? ignis__gemm_fills_device_f32(op, product) : ignis__gemm_fills_device(op, product)) &&
           ignis__nvrtc_available(op->work.call) && ignis__gemm_has_wgmma(op, dtype);
}

/*  A product, whose sizes may be zero, and what is done to it (null: nothing). False: epilogue->row_sums are left to the caller. */
static bool ignis__matmul_run(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a,
                              ignis__array *b, const ignis__epilogue *epilogue)
{
    static const ignis__epilogue nothing = IGNIS__ZERO;
    int by = ignis__matmul_by;
    bool row_sums = false, own = by == IGNIS_MATMUL_OWN;
    if (!epilogue)
        epilogue = &nothing;
    if (!op->ok || out->numel == 0)
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
