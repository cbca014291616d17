/*  Host memory. Zeroed, as every struct of Ignis starts from zero. */
static ignis_allocator ignis__allocator;

static void *ignis__alloc(size_t size)
{
    void *memory = ignis__allocator.alloc_fn ? ignis__allocator.alloc_fn(size, ignis__allocator.user_data) : malloc(size);
    if (memory)
        memset(memory, 0, size);
    return memory;
}

IGNIS__ONE_COPY static void ignis__free(void *memory)
{
    if (!memory)
        return;
    if (ignis__allocator.free_fn)
        ignis__allocator.free_fn(memory, ignis__allocator.user_data);
    else
        free(memory);
}

static char *ignis__copy_string(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = (char *)ignis__alloc(size);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}
