/* >>ops.matmul - matrix products --------------------------------------------------------------------------------

   Products of row-major matrices by built-in kernels or cuBLASLt; ON MATRIX PRODUCTS has the choice.
   An epilogue (bias, activation, residual) runs inside the product. */

/*  ignis_matmul - matrix product a b; ignis_matmul_t - a b^T, without transposing b in memory
    Shapes: a [..., m, k]; b [k, n] ([n, k] for _t) or [..., k, n]; the result [..., m, n]. Leading dimensions
    that differ broadcast to each other by NumPy's rules, by copies (ignis_expand); b [k, n] serves all of a
    as it is.
    f16, bf16 and f32 are summed in f32 (f32 by tf32 with ignis_desc.allow_tf32), f64 in f64.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (inner or leading dimensions differ), DTYPE, DEVICE, MEMORY, LIBRARY (no NVRTC or,
    where asked for, no cuBLASLt), CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_matmul(ignis_tensor a, ignis_tensor b);
IGNIS_API ignis_tensor ignis_matmul_t(ignis_tensor a, ignis_tensor b);

/*  ignis_linear - x w^T + bias, as a layer of a network
    Shapes: x [..., in]; w [out, in]; bias [out], or no handle for none; the result [..., out]. Sums as in
    ignis_matmul; in f16 and bf16 cuBLASLt may round the product once before it adds the bias.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY (no NVRTC or, where asked for, no cuBLASLt), CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_linear(ignis_tensor x, ignis_tensor w, ignis_tensor bias);

/*  ignis_grouped_linear - multiply rows that are sorted by group, each by the matrix of its group: experts of a mixture
    Row r of x belongs to group g if offsets[g] <= r < offsets[g + 1], and gives x[r] w[g]^T. A row of no group gives
    zeros, and so does the gradient of w[g] if group g has no rows. Offsets are read on the device: nothing waits for
    the host, and a captured graph computes with those that are in memory when it runs. Offsets that descend give wrong
    numbers; no memory outside of the tensors is read or written.
    With the ids of ignis_topk, one for each copy of a token, as a row [rows], ignis_sort gives the sorted ids and the
    order, ignis_index_select(x, 0, order) the sorted rows, and ignis_searchsorted(sorted ids, 0 to groups, false) the
    offsets.
    Shapes: x [rows, in]; w [groups, out, in]; offsets [groups + 1], of i32 or i64; the result [rows, out].
    f16, bf16 and f32 are summed in f32 (f32 by tf32 with ignis_desc.allow_tf32), f64 in f64, in the order of in; the
    gradient of w in the order of the rows. A row's result does not depend on other rows.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (an input was never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_grouped_linear(ignis_tensor x, ignis_tensor w, ignis_tensor offsets);

/*  ignis_quantize_f8 - numbers as floats of 8 bits and a scale: q = x / scale
    The scale is what makes the largest of the numbers 448, or 57344 in e5m2, the largest that there are: of
    all of them, or of each row; 1 where all are zero. 4 significant bits are left, or 3. NaN stays
    and does not count; with an infinity, all of its scale are NaN or zero.
    Shapes: x [..., n] of any; the result like x; *scale [1], or per row [..., 1].
    Dtypes: x f16, bf16, f32 or f64; dtype f8_e4m3 or f8_e5m2; *scale f32.
    Returns: the tensor, and *scale filled; or no handles. They have no gradient.
    Errors: FREED, ARGUMENT (no such dtype; scale is null; x was never written to), DTYPE, UNSUPPORTED (rows
    of 2^30 or more), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host, for both.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_quantize_f8(ignis_tensor x, ignis_dtype dtype, bool per_row, ignis_tensor *scale);

/*  ignis_matmul_f8 - the product of two matrices of 8 bits an element by their scales: (scale_a a) (scale_b
    b)^T + bias
    By tensor cores, which do twice as many of these operations a second as of those of 16 bits. Scales are
    those of ignis_quantize_f8.
    Shapes: a [..., m, k]; b [n, k]; scale_a [1], or one for each row of a; scale_b [1] or one for each of the
    n; bias [n]; the result [..., m, n].
    Dtypes: a and b f8_e4m3, or both f8_e5m2; scales f32, no handle for 1; bias, or no handle for none, and
    the result are of dtype: f16, bf16 or f32.
    Precision: products are exact, and added up by tensor cores 512 at a time, with some 13 bits after the
    point of the largest, then in f32: of noise, the error was a third of a thousandth of the standard
    deviation of the results on an H200. Scales are multiplied in f32, and the result is rounded once.
    Returns: the tensor, or no handle. It has no gradient.
    Errors: FREED, ARGUMENT (no such dtype), SHAPE, DTYPE, DEVICE, MEMORY, UNSUPPORTED (the device's compute
    capability is below 8.9), LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_matmul_f8(ignis_tensor a, ignis_tensor b, ignis_tensor scale_a, ignis_tensor scale_b,
                                       ignis_tensor bias, ignis_dtype dtype);

typedef enum ignis_activation {
    IGNIS_ACTIVATION_RELU = 1,
    IGNIS_ACTIVATION_GELU /* as ignis_gelu; the numbers are those of src/shared/gemm.h, too */
} ignis_activation;

/*  ignis_mlp - two linear layers and the activation between them: activation(x w1^T + b1) w2^T + b2
    As ignis_linear, ignis_relu or ignis_gelu, and ignis_linear, in fewer passes over memory: biases,
    the activation, its gradient and the gradients of the biases are part of the products, as far as those who
    compute them can (ignis_desc.matmul).
    Shapes: x [..., in]; w1 [hidden, in]; w2 [out, hidden]; b1 [hidden] and b2 [out], or no handles for none;
    the result [..., out].
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (no such activation), FREED, SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY (as ignis_linear),
    CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_mlp(ignis_tensor x, ignis_tensor w1, ignis_tensor b1, ignis_tensor w2, ignis_tensor b2,
                                 ignis_activation activation);

#define IGNIS_MAX_LAYERS 8 /* of ignis_mlp_layers */

/*  ignis_mlp_layers - any number of linear layers, as ignis_mlp, with the activation between them, not
    behind the last
    count is 1 to IGNIS_MAX_LAYERS. Deeper networks are several of these, and the activation between them.
    Shapes: x [..., in]; weights[i] [out, in], in being the out of the layer before; biases null for none, or
    biases[i] [out], or no handle for a layer that has none; the result [..., out of the last layer].
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (no such activation, count), FREED, SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY (as
    ignis_linear), CUDA.
    Ownership: as ignis_tensor_from_host. The arrays of handles are the caller's.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_mlp_layers(ignis_tensor x, const ignis_tensor *weights, const ignis_tensor *biases,
                                        int count, ignis_activation activation);

/*  ignis_mlp_gated - the gated layers of Llama and its like (SwiGLU, Shazeer 2020): (silu(x w_gate^T) * (x
    w_up^T)) w_down^T
    As ignis_linear three times and ignis_silu_mul, in fewer passes over memory: the gate is applied
    in the product by w_up, and gradients of both leave the product by w_down, as far as those who compute
    them can (ignis_desc.matmul).
    Shapes: x [..., in]; w_gate and w_up [hidden, in]; w_down [out, hidden]; the result [..., out].
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY (as ignis_linear), CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_mlp_gated(ignis_tensor x, ignis_tensor w_gate, ignis_tensor w_up, ignis_tensor w_down);
