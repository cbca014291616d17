/* >>file - safetensors files ------------------------------------------------------------------------------------ */

typedef struct ignis_storage_entry {
    char name[256];    /* cut, at a whole character, to 255 bytes */
    ignis_dtype dtype; /* after ignis_load; IGNIS_DTYPE_DEFAULT if not supported */
    ignis_shape shape; /* [1] for a tensor without dimensions */
    int64_t bytes;     /* in the file */
} ignis_storage_entry;

/*  ignis_save - write tensors and their names to a safetensors file
    Names are UTF-8, different from each other and not "__metadata__"; one tensor may have several. The file is
    identical to that of the Python package safetensors for the same tensors. It is written beside path, flushed to
    the disk and renamed, so path has the old file or the new one, whatever happens; on a failure the old one. The new
    file gets the old one's mode, and its owner and group as far as the system allows. A symbolic link stays, and its
    target is replaced; other hard links of the old file keep the old content. The same holds for all calls that write
    models, adapters and their configs. On Windows the folder decides on the rights of a new file.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (null, a count below 0, a bad name, a tensor that was never written to), FREED, CONTRACT (an
    array is owned by another layer or being saved or loaded by another thread), UNSUPPORTED (this thread captures a
    graph), MEMORY, IO, CUDA.
    Ownership: during the call IGNIS_OWNER_WNAIS owns the tensors' arrays. names and tensors may be reused when the
    call returns.
    Threads: any. Streams: reads on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_save(const char *path, const char *const *names, const ignis_tensor *tensors, int count);

/*  ignis_load - read tensors from a safetensors file by their names; the rest of the file is ignored
    If tensors[i].id is 0, a new tensor that requires no gradient is made on the current device. Else the values go
    into that tensor, whose shape and dtype must be those of the file. A tensor without dimensions counts as [1].
    BOOL becomes U8; I8, I16 and U16 become I32; U32 becomes I64. The whole header is checked, and every name found,
    before the first tensor is touched.
    Returns: IGNIS_OK, or the reason; then no tensor was made, and given tensors are unchanged, except after MEMORY,
    CUDA or IO (another process has shortened the file meanwhile, say).
    Errors: ARGUMENT (null, a count below 0, a name that is not in the file), FORMAT (the file is damaged, truncated
    or not safetensors), SHAPE, DTYPE (a given tensor differs from the file's), UNSUPPORTED (a dtype that Ignis does
    not support, or this thread captures a graph), FREED, CONTRACT (an array is owned by another layer or being
    saved or loaded by another thread), MEMORY, IO, CUDA.
    Ownership: new tensors as ignis_tensor_from_host. During the call IGNIS_OWNER_WNAIS owns the tensors' arrays.
    Threads: any. Streams: writes on the current stream, and waits for the current device. */
IGNIS_API ignis_status ignis_load(const char *path, const char *const *names, ignis_tensor *tensors, int count);

/*  ignis_file_list - list the tensors in a safetensors file, in the order of their data
    entries may be null if capacity is 0.
    Returns: the number of tensors, also if that is more than capacity; -1 on failure.
    Errors: ARGUMENT, FORMAT (the file is damaged, truncated or not safetensors), MEMORY, IO.
    Ownership: entries are copies.
    Threads: any. */
IGNIS_API int ignis_file_list(const char *path, ignis_storage_entry *entries, int capacity);
#define ignis_storage_list ignis_file_list /* the name up to 0.4; gone in 0.6 */
