/*  base/hash.c - a 64-bit hash

    For cache keys and file checks; not for untrusted keys, as FNV-1a has no secret.
    May use: the C library. */

#include "room.h"

IGNIS__PRIVATE uint64_t ignis__hash(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *byte = (const unsigned char *)data;
    while (size--)
        hash = (hash ^ *byte++) * 0x100000001B3u;
    return hash;
}
