/*  The version of this header. IGNIS_VERSION is a number to compare: 500 for 0.5.0. */
#define IGNIS_VERSION_MAJOR 0
#define IGNIS_VERSION_MINOR 5
#define IGNIS_VERSION_PATCH 0
#define IGNIS_VERSION (10000 * IGNIS_VERSION_MAJOR + 100 * IGNIS_VERSION_MINOR + IGNIS_VERSION_PATCH)

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef IGNIS_API
#if defined(IGNIS_STATIC) && defined(__GNUC__)
#define IGNIS_API static __attribute__((unused))
#elif defined(IGNIS_STATIC)
#define IGNIS_API static
#elif defined(IGNIS_HIDDEN) && defined(IGNIS_IMPLEMENTATION) && defined(__GNUC__) && !defined(_WIN32)
/*  Symbols hidden by the linker are hidden in all files. A pragma in one file would make g++ warn in the others:
    about each class with a member that uses a template of a hidden function's address. */
#define IGNIS_API extern __attribute__((visibility("hidden")))
#if defined(__cplusplus) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wattributes"
#endif
#else
#define IGNIS_API extern
#endif
#endif
