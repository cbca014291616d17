/* >>file - safetensors files ------------------------------------------------------------------------------------ */

typedef struct ignis_storage_entry {
    char name[256];    /* cut, at a whole character, to 255 bytes */
    ignis_dtype dtype; /* that ignis_load makes: of BOOL U8, of I8, I16 and U16 I32, of U32 I64; IGNIS_DTYPE_DEFAULT: it has none */
    ignis_shape shape; /* [1] for a tensor without dimensions */
    int64_t bytes;     /* in the file */
} ignis_storage_entry;

/*  ignis_save - write tensors and their names to a safetensors file
    Names are UTF-8, different from each other and not "__metadata__"; one tensor may have several. The file is identical to what the
    Python package safetensors writes for the same tensors. It is written beside path, flushed to the disk and renamed, so path holds
    the old file or the new one, whatever happens; on a failure it holds the old one. The new one has the old one's mode, and its owner and group as
    far as the system lets it; a symbolic link stays, and what it leads to is replaced; other names of the old file (hard links) keep that. So do all
    calls that write models, adapters and their descriptions. On Windows a new file has the rights that its folder gives.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (null, a count below 0, a bad name, a tensor that was never written to), FREED, CONTRACT (an array is owned by another
    layer or being saved or loaded by another thread), UNSUPPORTED (this thread captures a graph), MEMORY, IO, CUDA.
    Ownership: while it works IGNIS_OWNER_WNAIS owns the tensors' arrays. names and tensors may be reused when the call returns.
    Threads: any. Streams: reads on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_save(const char *path, const char *const *names, const ignis_tensor *tensors, int count);

/*  ignis_load - read tensors from a safetensors file by their names; what else is in the file does not matter
    Where tensors[i].id is 0 a new tensor that requires no gradient is made on the current device; else the values go into that
    tensor, whose shape and dtype must be those of the file. A tensor without dimensions counts as [1]. Numbers of a type that Ignis has not become
    those of one that holds their values, as ignis_storage_entry says. The whole header is checked, and every name found, before the first tensor is
    touched.
    Returns: IGNIS_OK, or the reason; then no tensor was made, and those given are as they were unless it is MEMORY, CUDA or IO (another process
    has shortened the file meanwhile, say).
    Errors: ARGUMENT (null, a count below 0, a name that is not in the file), FORMAT (the file is damaged, truncated or not safetensors),
    SHAPE, DTYPE (the tensor given is another than the file's), UNSUPPORTED (a dtype that Ignis does not have, or this thread captures a graph),
    FREED, CONTRACT (an array is owned by another layer or being saved or loaded by another thread), MEMORY, IO, CUDA.
    Ownership: new tensors as ignis_tensor_from_host. While it works IGNIS_OWNER_WNAIS owns the tensors' arrays.
    Threads: any. Streams: writes on the current stream, and waits for the current device. */
IGNIS_API ignis_status ignis_load(const char *path, const char *const *names, ignis_tensor *tensors, int count);

/*  ignis_storage_list - the tensors in a safetensors file, in the order of their data
    entries may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT, FORMAT (the file is damaged, truncated or not safetensors), MEMORY, IO.
    Ownership: entries are copies.
    Threads: any. */
IGNIS_API int ignis_storage_list(const char *path, ignis_storage_entry *entries, int capacity);
