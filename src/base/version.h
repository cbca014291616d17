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
/* What the linker hides is hidden for all files. In the others a template of a function's address would have to be hidden, too, and each class
   with such a member: g++ warns of those that are not. */
#define IGNIS_API extern __attribute__((visibility("hidden")))
#if defined(__cplusplus) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wattributes"
#endif
#else
#define IGNIS_API extern
#endif
#endif
