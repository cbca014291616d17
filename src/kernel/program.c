/* ===============================================================================================================
   >>kernel - NVRTC, the kernel cache in memory and on disk, launches, the built-in kernels

   From a program (text, options, headers) to an image (compiled for one architecture) to a module (loaded on a
   device) to a function. This part: the structs of all of them.
   May use: >>array, >>device, >>loader. cache_key.c names an image, module.c finds or makes it, user_kernel.c has
   the kernels of the caller, builtin.c those of Ignis.
   Locks: ignis__kernels_state's locks guard the memory cache and compilations; no lock is held while a module is
   loaded.
   =============================================================================================================== */

#include "ignis_kernels.h"

#if !defined(IGNIS_KERNELS_VERSION) || IGNIS_KERNELS_VERSION != IGNIS_VERSION
#error "ignis.h and ignis_kernels.h are of different versions: copy all headers of Ignis from one release"
#endif

enum { IGNIS__NVRTC_OUT_OF_MEMORY = 1, IGNIS__NVRTC_INVALID_OPTION = 5, IGNIS__NVRTC_COMPILATION = 6 };

/*  A program to compile: text, options, headers, and the names to look up in the result. */
typedef struct ignis__program {
    const char *source;
    const char *name;  /* for compile errors */
    const char *entry; /* a name expression; null: entries are extern "C" and looked up as they are */
    const char *const *options;
    int option_count;
    const ignis_kernel_header *headers; /* besides those of Ignis */
    int header_count;
    const void *image; /* compiled code of the caller instead of text */
    size_t image_size;
    const ignis__source *own; /* a source of Ignis, of which this is a program; else null */
    const char
        *part; /* of a source of Ignis in records and bundles: the first of the kernels that are meant; null: all */
    const char *formula,
        *line; /* of a formula's kernel: its text, which messages have, and its line of a record; else null */
} ignis__program;

/*  A compiled program for one architecture, with the lowered names of its entries, in one block of memory. */
typedef struct ignis__kernel_binary {
    uint64_t key[2];
    char *memory;
    char *lowered;
    void *data;
    size_t size;
    uint64_t holds;                    /* of the memory cache, and of loaders */
    struct ignis__kernel_binary *next; /* in the memory cache */
} ignis__kernel_binary;

/*  A module. Every kernel has its own, loaded from an image, so its __device__ variables are its own, too. */
typedef struct ignis__module {
    void *module; /* CUmodule */
    char *lowered;
    bool from_cache;
} ignis__module;

#define IGNIS__MAX_OPTIONS 64
#define IGNIS__IMAGE_BYTES ((size_t)64 << 20) /* that the memory cache may hold */

static struct {
    ignis__mutex lock;
    ignis__kernel_binary *images; /* the memory cache, last used first */
    ignis__mutex compiling[16];   /* by key: a thread that needs a program being compiled waits for it */
    char cache_dir[900];          /* "": no disk cache */
    int64_t cache_limit;
    bool cache_broken;     /* a warning was logged */
    bool last_read;        /* the next one was looked for */
    uint64_t last_release; /* of the NVRTC that has last written to the disk cache */
} ignis__kernels_state;

IGNIS__COLD static char *ignis__source_join(const ignis__source *source)
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

/*  Sources that others include. NVRTC gets them from memory, by their names. */
static bool ignis__source_is_header(const ignis__source *source) { return strstr(source->name, ".cuh") != NULL; }
