// SPDX-License-Identifier: MIT
/* Two shared libraries with Ignis inside (-DLIBRARY=one, -DLIBRARY=two), and the program that uses both (without). It
   ends with 0 when each has a state of its own, and with 1 when they share one: a failure in the first is seen in the
   second. */
#ifdef LIBRARY
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#define JOIN(a, b) a##b
#define NAME(library, function) JOIN(library, function)

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int NAME(LIBRARY, _fail)(void);
int NAME(LIBRARY, _fail)(void) { return (int)ignis_synchronize(); /* nothing is set up */ }

EXPORTED int NAME(LIBRARY, _last)(void);
int NAME(LIBRARY, _last)(void) { return (int)ignis_status_last(); }
#else
int one_fail(void);
int one_last(void);
int two_last(void);

int main(void)
{
    if (one_fail() == 0 || one_last() == 0)
        return 2;
    return two_last() != 0;
}
#endif
