#pragma once
/* ===============================================================================================================
   >>platform - threads, atomics, clock, libraries, files, host memory

   Hides the operating system and the compiler: only the parts up to >>status include system headers or test for
   _WIN32 (text.c and hash.c are plain C).
   May use: the C library and the system. Nothing here reports failures or takes a lock of Ignis; callers report.
   =============================================================================================================== */

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _MSC_VER
#pragma warning(push) /* functions of C that /sdl refuses; unused helpers of optional layers */
#pragma warning(disable : 4996 4505)
#endif
#ifdef _WIN32
#ifndef _INC_WINDOWS /* no other header has included it: leave out what Ignis does not need */
#define IGNIS__WINDOWS_OWN
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#ifndef NOGDI
#define NOGDI
#endif
#ifndef NOUSER
#define NOUSER
#endif
#endif
#include <windows.h>
#include <fcntl.h>
#include <io.h>
#ifdef IGNIS__WINDOWS_OWN /* words that programs use; Windows needs them under other names */
#undef near
#undef far
#undef NEAR
#undef FAR
#define NEAR
#define FAR
#undef IN
#undef OUT
#undef OPTIONAL
#undef DELETE_TREE
#undef IGNIS__WINDOWS_OWN
#endif
#else
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif
#if defined(__GLIBC__) ? !defined(__USE_XOPEN2K8) : defined(IGNIS__TOO_LATE)
#error "ignis.h: with -std=c99 or c11, put #define _POSIX_C_SOURCE 200809L above the first #include of this file"
#endif
#endif

#if UINTPTR_MAX != 0xFFFFFFFFFFFFFFFF
#error "ignis.h needs a 64-bit system, as CUDA does"
#endif

#ifndef IGNIS_ASSERT
#include <assert.h>
#define IGNIS_ASSERT(condition) assert(condition)
#endif

/* clang-format off */
#ifdef __cplusplus
#define IGNIS__ZERO {}
#else
#define IGNIS__ZERO {0}
#endif

/* clang-format on */

#if defined(__MINGW_PRINTF_FORMAT)
#define IGNIS__PRINTF(at, first) __attribute__((format(__MINGW_PRINTF_FORMAT, at, first)))
#elif defined(__GNUC__)
#define IGNIS__PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define IGNIS__PRINTF(at, first)
#endif

/*  Marks a function that only the tensor layer uses: it is unused with IGNIS_NO_TENSORS. */
#ifdef __GNUC__
#define IGNIS__MAYBE_UNUSED __attribute__((unused))
#else
#define IGNIS__MAYBE_UNUSED
#endif

/*  IGNIS__COLD: for functions that run on failure, once, or before slow I/O: optimised for size, placed apart.
    IGNIS__ONE_COPY: for helpers with many callers, which would be a sixth of all code if they were inlined. Both
    shorten compilation. IGNIS__INLINE: for small functions that every call of Ignis runs; gcc -O1 inlines no others. */
#define IGNIS__INLINE inline
#if defined(__GNUC__)
#define IGNIS__COLD __attribute__((cold, noinline))
#define IGNIS__ONE_COPY __attribute__((noinline))
#elif defined(_MSC_VER)
#define IGNIS__COLD __declspec(noinline)
#define IGNIS__ONE_COPY __declspec(noinline)
#else
#define IGNIS__COLD
#define IGNIS__ONE_COPY
#endif

/*  For the texts of src/shared, which kernels read, too: there it is a pointer, here an address on the device. */
#define IGNIS__POINTER(type) ignis__address
#define IGNIS__TEMPLATE(E) /* of the type that addresses of a struct point to */
#define IGNIS__OF(type, E) struct type
#define IGNIS__ALIGNED(bytes) /* where kernels need it, the host copies */
/*  Fails to compile if the size of a struct that kernels have, too, is not the one that they check as well. */
#define IGNIS__ASSERT_SIZE(type, bytes) IGNIS__STATIC_ASSERT(size_of_##type, sizeof(type) == (bytes))
#define IGNIS__STATIC_ASSERT(name, condition) typedef char ignis__assert_##name[(condition) ? 1 : -1]

#define IGNIS__COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/*  Names that parts share are static in the headers, and extern where parts are compiled alone. */
#ifndef IGNIS__PRIVATE
#define IGNIS__PRIVATE static
#endif
