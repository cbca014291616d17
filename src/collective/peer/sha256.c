/*  >>peer.sha256 - SHA-256 (FIPS 180-4) and HMAC (RFC 2104)

    Computes hashes and proofs.
    Uses: nothing.
    Invariants: the same bytes on every machine. */

#include "room.h"

static uint32_t ignis__sha_rotate(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void ignis__sha_block(ignis__sha *sha)
{
    static const uint32_t primes[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64], s[8];
    int i;
    for (i = 0; i < 16; i++)
        w[i] = (uint32_t)sha->block[4 * i] << 24 | (uint32_t)sha->block[4 * i + 1] << 16 |
               (uint32_t)sha->block[4 * i + 2] << 8 | sha->block[4 * i + 3];
    for (; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] +
               (ignis__sha_rotate(w[i - 15], 7) ^ ignis__sha_rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (ignis__sha_rotate(w[i - 2], 17) ^ ignis__sha_rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, sha->state, sizeof s);
    for (i = 0; i < 64; i++) {
        uint32_t a = s[7] + (ignis__sha_rotate(s[4], 6) ^ ignis__sha_rotate(s[4], 11) ^ ignis__sha_rotate(s[4], 25)) +
                     ((s[4] & s[5]) ^ (~s[4] & s[6])) + primes[i] + w[i];
        uint32_t b = (ignis__sha_rotate(s[0], 2) ^ ignis__sha_rotate(s[0], 13) ^ ignis__sha_rotate(s[0], 22)) +
                     ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += a;
        s[0] = a + b;
    }
    for (i = 0; i < 8; i++)
        sha->state[i] += s[i];
}

IGNIS__PRIVATE void ignis__sha_begin(ignis__sha *sha)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sha->state, start, sizeof start);
    sha->size = 0;
}

IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__sha_add(ignis__sha *sha, const void *data, size_t size)
{
    const unsigned char *at = (const unsigned char *)data;
    while (size-- > 0) {
        sha->block[sha->size++ % 64] = *at++;
        if (sha->size % 64 == 0)
            ignis__sha_block(sha);
    }
}

IGNIS__PRIVATE void ignis__sha_end(ignis__sha *sha, unsigned char out[32])
{
    static const unsigned char padding[64] = {0x80};
    unsigned char bits[8];
    int i;
    for (i = 0; i < 8; i++)
        bits[i] = (unsigned char)(sha->size * 8 >> (56 - 8 * i));
    ignis__sha_add(sha, padding, 1 + (119 - sha->size % 64) % 64);
    ignis__sha_add(sha, bits, sizeof bits);
    for (i = 0; i < 32; i++)
        out[i] = (unsigned char)(sha->state[i / 4] >> (24 - i % 4 * 8));
}

/*  Computes an HMAC over the concatenation of two texts; only holders of the secret can. */
IGNIS__PRIVATE void ignis__hmac(const unsigned char secret[IGNIS__SECRET], const void *a, size_t a_size, const void *b,
                                size_t b_size, unsigned char out[32])
{
    unsigned char pad[64];
    ignis__sha sha;
    int i;
    for (i = 0; i < 64; i++)
        pad[i] = (unsigned char)(0x36 ^ (i < IGNIS__SECRET ? secret[i] : 0));
    ignis__sha_begin(&sha);
    ignis__sha_add(&sha, pad, sizeof pad);
    ignis__sha_add(&sha, a, a_size);
    ignis__sha_add(&sha, b, b_size);
    ignis__sha_end(&sha, out);
    for (i = 0; i < 64; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    ignis__sha_begin(&sha);
    ignis__sha_add(&sha, pad, sizeof pad);
    ignis__sha_add(&sha, out, 32);
    ignis__sha_end(&sha, out);
}
