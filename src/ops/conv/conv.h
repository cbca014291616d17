/* >>ops.conv - convolutions -------------------------------------------------------------------------------------

   A convolution is a matrix product of patches, which are never stored.
   Images are channels-last: [n, height, width, channels], volumes [n, depth, height, width, channels]. */

/*  Of the dimensions of an image, in their order: ignis_conv1d takes the first of each, ignis_conv2d two. */
typedef struct ignis_conv_desc {
    int stride[3];   /* pixels from one patch to the next (1) */
    int padding[3];  /* zeros before the first and after the last pixel (0) */
    int dilation[3]; /* pixels from one tap of a patch to the next (1) */
    int groups;      /* the channels are in groups; a result depends on the channels of x in its group (1) */
} ignis_conv_desc;

/*  ignis_conv2d - convolution of images: each pixel of the result is the product of w and a patch of x, plus bias;
    ignis_conv1d - of rows of points; ignis_conv3d - of volumes
    As in PyTorch it is a correlation: w is not flipped. Channels are the last dimension ("channels last", NHWC), where
    a bias, a norm or ignis_linear have theirs. Images that come as NCHW become that by
    ignis_permute(x, (int[]){0, 2, 3, 1}, 4), weights [outs, channels, height, width] of PyTorch by the same.
    Shapes: x [images, height, width, channels], w [outs, kernel height, kernel width, channels / groups],
    bias [outs] or no handle for none; the result [images, out height, out width, outs] with out = floor((in +
    2 padding - dilation (kernel - 1) - 1) / stride) + 1. For ignis_conv1d the same without height; for ignis_conv3d a
    depth comes before each height. desc may be null for all defaults.
    Nothing is copied to make patches. f16 and bf16 use tensor cores on devices of compute capability 8.0 and
    up, f32 with ignis_desc.allow_tf32; channels of a group that are not a multiple of 8 (tf32: 4), nor 4 (2),
    are copied to where they are. A 1 x 1 kernel of stride 1 without padding is ignis_linear, computed by whom
    ignis_desc.matmul says; all others are computed by built-in kernels. f16, bf16 and f32 are summed in f32, f64
    in f64, gradients too, in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (a number of desc below 0), SHAPE (dimensions of x and w, channels that are not
    groups times those of w, a bias that is not [outs], a patch larger than the image with its padding),
    DTYPE, DEVICE, MEMORY, LIBRARY (no NVRTC), COMPILE, CUDA, UNSUPPORTED (more than 2^30 pixels, or elements
    of a patch).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_conv2d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc *desc);
IGNIS_API ignis_tensor ignis_conv1d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc *desc);
IGNIS_API ignis_tensor ignis_conv3d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc *desc);

/*  Of the dimensions of an image, in their order, as ignis_conv_desc. */
typedef struct ignis_conv_transpose_desc {
    int stride[3];         /* pixels of the result from one pixel of x to the next (1) */
    int padding[3];        /* pixels that are cut off on both sides (0) */
    int dilation[3];       /* pixels from one tap to the next (1) */
    int output_padding[3]; /* pixels more after the last one, fewer than the stride (0) */
    int groups;            /* the channels are in groups (1) */
} ignis_conv_transpose_desc;

/*  ignis_conv_transpose2d - the transpose of a convolution of images, plus bias: each pixel of x adds its product with
    w to a patch of the result; ignis_conv_transpose1d - of rows of points; ignis_conv_transpose3d - of volumes
    It is the gradient of ignis_conv2d by its x, computed by the same kernels: no zeros are multiplied. As in PyTorch;
    images and weights are channels-last.
    Shapes: x [images, height, width, channels], w [channels, kernel height, kernel width, outs / groups], bias [outs]
    or no handle for none; the result [images, out height, out width, outs] with out = (in - 1) stride - 2 padding +
    dilation (kernel - 1) + 1 + output_padding. For ignis_conv_transpose1d the same without height, for
    ignis_conv_transpose3d with a depth before each height. desc may be null for all defaults.
    Returns: the tensor, or no handle.
    Errors: as ignis_conv2d; ARGUMENT (an output_padding that is not below the stride), SHAPE (a result without
    pixels).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_conv_transpose2d(ignis_tensor x, ignis_tensor w, ignis_tensor bias,
                                              const ignis_conv_transpose_desc *desc);
IGNIS_API ignis_tensor ignis_conv_transpose1d(ignis_tensor x, ignis_tensor w, ignis_tensor bias,
                                              const ignis_conv_transpose_desc *desc);
IGNIS_API ignis_tensor ignis_conv_transpose3d(ignis_tensor x, ignis_tensor w, ignis_tensor bias,
                                              const ignis_conv_transpose_desc *desc);

/*  Of the dimensions of an image, in their order, as ignis_conv_desc. */
typedef struct ignis_unfold_desc {
    int kernel[3];   /* required: pixels of a patch */
    int stride[3];   /* pixels from one patch to the next (1) */
    int padding[3];  /* zeros before the first and after the last pixel (0) */
    int dilation[3]; /* pixels from one tap of a patch to the next (1) */
} ignis_unfold_desc;

/*  ignis_unfold - patches of images, signals or volumes as rows of matrices (im2col)
    A row has the taps of a patch in the order of the weights of ignis_conv2d, the channels of each side by side: so
    ignis_matmul_t(rows, w) with w [outs, taps * channels] is a convolution. Rows of PyTorch's unfold are columns, with
    the taps of each channel side by side.
    Shapes: x [n, length, channels], [n, height, width, channels] or [n, depth, height, width, channels]; the result
    [n, patches, taps * channels], with as many patches as ignis_conv2d gives pixels, and the product of desc.kernel as
    taps.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (null desc, a kernel below 1, another number below 0), SHAPE (other dimensions of x, a patch
    larger than the image with its padding), DTYPE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (more than 2^30 pixels,
    patches, or elements of a patch).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_unfold(ignis_tensor x, const ignis_unfold_desc *desc);

/*  ignis_fold - the sum of patches, each put where ignis_unfold takes it from (col2im): the gradient of ignis_unfold
    Each of the two is the gradient of the other. A pixel sums its patches in a fixed order.
    Shapes: patches [n, patches, taps * channels]; size has the `sides` sizes of an image, 1 to 3; the result
    [n, size, channels].
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (null desc or size, sides, a size below 0; as ignis_unfold), SHAPE (patches that such images
    do not have), DTYPE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (as ignis_unfold).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_fold(ignis_tensor patches, const int64_t *size, int sides, const ignis_unfold_desc *desc);

/*  ignis_pixel_shuffle - channels become pixels: [n, h, w, c f f] becomes [n, h f, w f, c] for a factor f;
    ignis_pixel_unshuffle - the inverse. Any dtype.
    Channel (k f + i) f + j of a pixel becomes channel k of row i, column j of its square of pixels, as in PyTorch.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, ARGUMENT (factor below 1, never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_pixel_shuffle(ignis_tensor x, int factor);
IGNIS_API ignis_tensor ignis_pixel_unshuffle(ignis_tensor x, int factor);
