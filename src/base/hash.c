/*  A 64-bit FNV-1a hash (Fowler, Noll, Vo), continued from `hash`. */
#define IGNIS__HASH_START 0xCBF29CE484222325u
static uint64_t ignis__hash(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *byte = (const unsigned char *)data;
    while (size--)
        hash = (hash ^ *byte++) * 0x100000001B3u;
    return hash;
}
