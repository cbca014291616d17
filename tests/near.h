// SPDX-License-Identifier: MIT
/*  near.h - numbers that are nearly what they should be */
#ifndef NEAR_H
#define NEAR_H

#include "tensor.h"

#include <math.h>

static inline bool is_near(double got, double expected, double tolerance)
{
    return fabs(got - expected) <= tolerance * (1 + fabs(expected)) || (isnan(got) && isnan(expected)) || got == expected;
}

static inline void check_near(const char *text, const char *what, const double *got, const double *expected, int64_t count,
                              double tolerance)
{
    char line[600];
    int64_t i;
    for (i = 0; i < count; i++) {
        if (is_near(got[i], expected[i], tolerance))
            continue;
        snprintf(line, sizeof line, "%s: %s: element %lld is %.17g, expected %.17g", text, what, (long long)i, got[i], expected[i]);
        test__fail(__FILE__, __LINE__, line);
        return;
    }
}

#endif /* NEAR_H */
