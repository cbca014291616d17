/* ===============================================================================================================
   >>kernel - NVRTC, the kernel cache in memory and on disk, launches, the built-in kernels

   From a program (text, options, headers) to an image (compiled for one architecture) to a module (loaded on a
   device) to a function. This part: the structs of all of them.
   May use: >>array, >>device, >>loader. cache_key.c names an image, module.c finds or makes it, user_kernel.c has
   the kernels of the caller, builtin.c those of Ignis.
   Locks: ignis__kernels_state's locks guard the memory cache and compilations; no lock is held while a module is
   loaded.
   =============================================================================================================== */

#include "room.h"

#if !defined(IGNIS_KERNELS_VERSION) || IGNIS_KERNELS_VERSION != IGNIS_VERSION
#error "ignis.h and ignis_kernels.h are of different versions: copy all headers of Ignis from one release"
#endif

IGNIS__PRIVATE struct ignis__kernels_state_type ignis__kernels_state;

IGNIS__COLD IGNIS__PRIVATE char *ignis__source_join(const ignis__source *source)
{
    size_t size = 1, used = 0, length;
    char *text;
    int i;
    for (i = 0; i < source->piece_count; i++)
        size += strlen(source->pieces[i]);
    text = (char *)ignis__alloc(size);
    for (i = 0; text && i < source->piece_count; i++) {
        length = strlen(source->pieces[i]);
        memcpy(text + used, source->pieces[i], length);
        used += length;
    }
    return text;
}

/*  Returns the next source that a program may include; NVRTC gets them from memory, by their names. *at is 0 for the
    first. NULL if there are no more. */
IGNIS__PRIVATE const ignis__source *ignis__header_next(const ignis__program *program, int *at)
{
    const ignis__source *common = program->common ? program->common : &ignis__source_ignis_cuh;
    int index = (*at)++;
    return program->own ? program->own->includes[index] : index == 0 ? common : common->includes[index - 1];
}
