/*  >>job.protocol - types that ranks exchange, and the interface of jobs

    Structs travel as they are in memory: all ranks run the same version of Ignis, which the version number checks.
    Invariants: no pointers in structs that are sent.
    Locks: watches are called with the job locked. */

#include "room.h"

IGNIS__PRIVATE bool ignis__bit(const unsigned char *bits, int i) { return bits[i / 8] >> i % 8 & 1; }
IGNIS__PRIVATE void ignis__bit_set(unsigned char *bits, int i)
{
    bits[i / 8] = (unsigned char)(bits[i / 8] | 1u << i % 8);
}
