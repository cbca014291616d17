/*  ignis_layer_norm - (x - mean) / sqrt(variance + eps) * w + b, with mean and variance over the last
    dimension
    ignis_rms_norm - x / sqrt(mean of x^2 + eps) * w
    Shapes: x [..., n]; w and b [n]. Beside x of f16 or bf16 they may be f32, and so are their gradients. eps 0
    means 1e-5, as in PyTorch's layer_norm; for next to none give a tiny one, such as 1e-30: beside types other
    than f64 the least that counts is 2^-126.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (eps below 0, or NaN), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA,
    UNSUPPORTED (n of 2^30 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_layer_norm(ignis_tensor x, ignis_tensor w, ignis_tensor b, double eps);
IGNIS_API ignis_tensor ignis_rms_norm(ignis_tensor x, ignis_tensor w, double eps);

/*  ignis_add_layer_norm, ignis_add_rms_norm - x + y, the end of a residual branch, and its norm: one pass
    over memory for both Gives what ignis_add and then ignis_layer_norm or ignis_rms_norm give, to the last
    bit. *sum becomes x + y, another tensor of the result's kind, and may be the variable that x is in: h =
    ignis_add_layer_norm(x, h, w, b, eps, &x). sum may be null where only the norm is needed. Backward needs
    nothing of this kind: the gradient of a norm adds itself to that which its input has from elsewhere, in
    one pass too, and the same pass makes the gradient of the bias where x or y is what ignis_linear or
    ignis_mlp gave.
    Shapes: x and y [..., n], the same; w and b [n], as above. eps as above.
    Returns: the norm, or no handle; then *sum is no handle either.
    Errors: FREED, ARGUMENT (eps below 0, or NaN), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA,
    UNSUPPORTED (n of 2^30 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_add_layer_norm(ignis_tensor x, ignis_tensor y, ignis_tensor w, ignis_tensor b, double eps,
                                            ignis_tensor *sum);
IGNIS_API ignis_tensor ignis_add_rms_norm(ignis_tensor x, ignis_tensor y, ignis_tensor w, double eps,
                                          ignis_tensor *sum);
