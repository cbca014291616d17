/* >>ops.image - pooling, upsampling, batch and group norm -------------------------------------------------------

   Images are channels-last, [n, height, width, channels], and signals [n, length, channels].
   In a desc the first number is for rows and the second for columns. A signal uses the first, and its second is 0.
   Gradients are gathered in a fixed order: equal inputs give equal bits. */

typedef struct ignis_pool_desc {
    int window[2];  /* required: rows and columns of a window */
    int stride[2];  /* from one window to the next (window) */
    int padding[2]; /* on both sides, half of the window at most (0) */
    /* A last window may reach beyond the padding, if it begins before its end (false: such a window is left
       out). */
    bool ceil_mode;
    /* Of ignis_avg_pool: divide by the number of elements inside of the image (false: padding counts too). */
    bool exclude_padding;
} ignis_pool_desc;

/*  ignis_max_pool, ignis_avg_pool - the largest or the average element of each window, channel by channel,
    as in PyTorch
    Shapes: x [n, height, width, channels] or [n, length, channels]; the result has (size + 2 padding -
    window) / stride + 1 rows and columns, rounded down, or up with ceil_mode. Padding is minus infinity to
    ignis_max_pool, zero to ignis_avg_pool. NaN is the largest number. The first of equal elements has the
    gradient (with NaN, the last NaN). The average over all of an image is ignis_mean_dim(ignis_reshape(x,
    IGNIS_SHAPE(n, -1, channels)), 1).
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (null desc, window below 1, stride or padding below 0, padding above half of the
    window, a second number for a signal), SHAPE (no image nor signal, too small for the window), DTYPE,
    MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (height, width, channels or window of 2^28 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_max_pool(ignis_tensor x, const ignis_pool_desc *desc);
IGNIS_API ignis_tensor ignis_avg_pool(ignis_tensor x, const ignis_pool_desc *desc);

typedef enum ignis_upsample_mode {
    IGNIS_UPSAMPLE_NEAREST = 0, /* the pixel at o * size / new_size, rounded down */
    IGNIS_UPSAMPLE_LINEAR,      /* linear between neighbours: bilinear for images */
    IGNIS_UPSAMPLE_COUNT
} ignis_upsample_mode;
