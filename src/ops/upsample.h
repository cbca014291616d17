typedef struct ignis_upsample_desc {
    int64_t size[2];          /* required: rows and columns of the result; may be fewer than before */
    ignis_upsample_mode mode; /* IGNIS_UPSAMPLE_NEAREST */
    /* Of LINEAR: pixels are points, and the first and last ones keep their positions (false: pixels are
       squares, and the borders of the image stay; outside of all centers the nearest pixel counts). */
    bool align_corners;
} ignis_upsample_desc;

/*  ignis_upsample - an image or a signal at another size, as PyTorch's interpolate
    Shapes: x [n, height, width, channels] or [n, length, channels]; the result has the rows and columns of
    desc. Positions of pixels are exact; of PyTorch's modes, NEAREST is what "nearest" would be without its
    rounding.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (null desc, size below 1, no such mode, align_corners without LINEAR, a second
    number for a signal), SHAPE (no image nor signal, one of no pixels), DTYPE, MEMORY, LIBRARY, COMPILE,
    CUDA, UNSUPPORTED (a size or channels of 2^28 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_upsample(ignis_tensor x, const ignis_upsample_desc *desc);
