typedef enum ignis_grid_padding {
    IGNIS_GRID_ZEROS = 0,  /* zeros outside of the image */
    IGNIS_GRID_BORDER,     /* the nearest pixel */
    IGNIS_GRID_REFLECTION, /* the image reflected at its borders, as often as needed */
    IGNIS_GRID_COUNT
} ignis_grid_padding;

typedef struct ignis_grid_sample_desc {
    ignis_grid_padding padding; /* IGNIS_GRID_ZEROS */
    bool nearest;               /* the nearest pixel (false: linear between neighbours) */
    /* -1 and 1 are the centers of the first and last pixels (false: the borders of the image). */
    bool align_corners;
} ignis_grid_sample_desc;

/*  ignis_grid_sample - images, or volumes, at the positions of a grid, as PyTorch's grid_sample, with gradients of both
    A position is (x, y), of volumes (x, y, z), from -1 to 1 across the image; x counts along a row. NaN is outside.
    Shapes: x [n, height, width, channels], grid [n, rows, columns, 2], the result [n, rows, columns, channels]; or x
    [n, depth, height, width, channels], grid [n, planes, rows, columns, 3], the result [n, planes, rows, columns,
    channels]. The grid has the dtype of x, or is f32 where x is f16 or bf16. desc may be null for all defaults.
    The gradient of the image is summed in a fixed order, by sorted positions. The gradient of the grid is zero where
    padding moves a position to the border, and with `nearest`.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (no such padding), SHAPE (dimensions of x and grid, another n, an image without pixels),
    DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (2^31 or more pixels of x, or positions times 4, of
    volumes 8).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_grid_sample(ignis_tensor x, ignis_tensor grid, const ignis_grid_sample_desc *desc);
