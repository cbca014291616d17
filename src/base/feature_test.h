/*  The implementation needs these: -std=c99 hides system functions unless one of them is defined before the first
    system header. */
#if (defined(IGNIS_IMPLEMENTATION) && !defined(IGNIS_IMPLEMENTED)) || defined(IGNIS__PARTS)
#if defined(__APPLE__) && defined(_POSIX_C_SOURCE) && !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE /* _POSIX_C_SOURCE would hide more than it adds there */
#elif defined(__STRICT_ANSI__) && !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE) && \
    !defined(_XOPEN_SOURCE) && !defined(_WIN32) && !defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#if defined(EOF) || defined(CLOCKS_PER_SEC)
#define IGNIS__TOO_LATE /* stdio.h or time.h came before */
#endif
#endif
#endif

#if defined(IGNIS_IMPLEMENTATION) && !defined(IGNIS_ALLOW_FAST_MATH)
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ + 0) || defined(_M_FP_FAST)
#error "Ignis does not compile with -ffast-math and its like, which drop checks for NaN: see IGNIS_ALLOW_FAST_MATH"
#endif
#endif

#undef IGNIS__VERSION_HERE
#define IGNIS__VERSION_HERE IGNIS_VERSION
#if defined(IGNIS_INCLUDED) && (!defined(IGNIS_VERSION) || IGNIS_VERSION != IGNIS__VERSION_HERE)
#error "two versions of ignis.h are included in one file"
#endif
