/*  base/host_memory.c - host memory from the caller's allocator, else from malloc

    The allocator is valid from ignis_setup to ignis_shutdown. Memory that lives longer (slots, messages) comes from
    malloc directly.
    May use: the C library. Locks: none. */

#include "room.h"

/*  Allocates host memory, filled with zeros: every struct of Ignis begins as zeros. */
IGNIS__PRIVATE ignis_allocator ignis__allocator;

IGNIS__INLINE IGNIS__PRIVATE void *ignis__alloc(size_t size)
{
    void *memory =
        ignis__allocator.alloc_fn ? ignis__allocator.alloc_fn(size, ignis__allocator.user_data) : malloc(size);
    if (memory)
        memset(memory, 0, size);
    return memory;
}

IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__free(void *memory)
{
    if (!memory)
        return;
    if (ignis__allocator.free_fn)
        ignis__allocator.free_fn(memory, ignis__allocator.user_data);
    else
        free(memory);
}

IGNIS__PRIVATE char *ignis__copy_string(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = (char *)ignis__alloc(size);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}
