// SPDX-License-Identifier: MIT
/*  near.h - numbers that are nearly what they should be */
#ifndef NEAR_H
#define NEAR_H

#include "tensor.h"

#include <math.h>

static inline bool is_near(double got, double expected, double tolerance)
{
    return fabs(got - expected) <= tolerance * (1 + fabs(expected)) || (isnan(got) && isnan(expected)) ||
           got == expected;
}

static inline void check_near(const char *text, const char *what, const double *got, const double *expected,
                              int64_t count, double tolerance)
{
    char line[600];
    int64_t i;
    for (i = 0; i < count; i++) {
        if (is_near(got[i], expected[i], tolerance))
            continue;
        snprintf(line, sizeof line, "%s: %s: element %lld is %.17g, expected %.17g", text, what, (long long)i, got[i],
                 expected[i]);
        test__fail(__FILE__, __LINE__, line);
        return;
    }
}

/*  got[i] is expected[i] within tolerance * (its size, or `floor` if that is larger). Reports the first that is not. */
static inline void check_each(int line, const char *what, ignis_dtype dtype, int64_t n, const double *got,
                              const double *expected, int64_t count, double tolerance, double floor)
{
    char text[512];
    int64_t i;
    for (i = 0; i < count; i++) {
        double size = fabs(expected[i]) > floor ? fabs(expected[i]) : floor;
        if (got[i] == expected[i] || fabs(got[i] - expected[i]) <= tolerance * size ||
            (isnan(got[i]) && isnan(expected[i])))
            continue;
        snprintf(text, sizeof text, "%s, dtype %d, n %lld: element %lld of %lld is %.17g, expected %.17g within %g",
                 what, (int)dtype, (long long)n, (long long)i, (long long)count, got[i], expected[i], tolerance * size);
        test__fail(__FILE__, line, text);
        return;
    }
}

/*  got[i] is wanted[i] within tolerance * the largest number that is wanted, which has to be above `least`. With
    IGNIS_TEST_SHOW in the environment it prints how far off they are. */
static inline void check_of_largest(int line, const char *of, const char *what, const float *got, const double *wanted,
                                    int count, double tolerance, double least)
{
    double most = 0, worst = 0;
    char text[200];
    int i;
    for (i = 0; i < count; i++) {
        double off = fabs((double)got[i] - wanted[i]);
        most = fabs(wanted[i]) > most ? fabs(wanted[i]) : most;
        worst = !(off <= worst) ? off : worst;
    }
    if (getenv("IGNIS_TEST_SHOW"))
        printf("%s, %s: off by %g of %g\n", of, what, worst, most);
    if (worst <= tolerance * most && most > least)
        return;
    snprintf(text, sizeof text, "%s, %s: off by %g of %g", of, what, worst, most);
    test__fail(__FILE__, line, text);
}

#endif /* NEAR_H */
