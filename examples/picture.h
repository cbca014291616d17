// SPDX-License-Identifier: MIT
/*  picture.h - what the examples that make pictures share: a PNG file, the short way, and colours for numbers

    The pixels are in the file as they are, in "stored" blocks of zlib. */
#ifndef PICTURE_H
#define PICTURE_H

#include <stddef.h>
#include <stdio.h>

typedef struct png {
    FILE *file;
    unsigned crc; /* of the chunk that is being written */
} png;

static void png_bytes(png *out, const unsigned char *bytes, size_t count)
{
    size_t i;
    int bit;
    for (i = 0; i < count; i++) {
        out->crc ^= bytes[i];
        for (bit = 0; bit < 8; bit++)
            out->crc = out->crc & 1 ? 0xEDB88320u ^ out->crc >> 1 : out->crc >> 1;
    }
    fwrite(bytes, 1, count, out->file);
}

static void png_number(png *out, unsigned value)
{
    unsigned char bytes[4] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16), (unsigned char)(value >> 8),
                              (unsigned char)value};
    png_bytes(out, bytes, 4);
}

static void png_chunk_begin(png *out, const char *name, size_t size)
{
    png_number(out, (unsigned)size);
    out->crc = 0xFFFFFFFFu;
    png_bytes(out, (const unsigned char *)name, 4);
}

static void png_chunk_end(png *out) { png_number(out, out->crc ^ 0xFFFFFFFFu); }

/*  Red, green and blue of each pixel, one byte each. */
static int png_write(const char *path, const unsigned char *pixels, int width, int height)
{
    static const unsigned char signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'},
                               format[5] = {8, 2, 0, 0, 0};
    static const unsigned char zlib[2] = {0x78, 0x01}, no_filter[1] = {0};
    size_t row = 3 * (size_t)width + 1, i; /* a row starts with the number of its filter */
    unsigned a = 1, b = 0;                 /* Adler-32 */
    png out = {fopen(path, "wb"), 0};
    int y, failed;
    if (!out.file)
        return 0;
    fwrite(signature, 1, sizeof signature, out.file);
    png_chunk_begin(&out, "IHDR", 13);
    png_number(&out, (unsigned)width);
    png_number(&out, (unsigned)height);
    png_bytes(&out, format, sizeof format);
    png_chunk_end(&out);
    png_chunk_begin(&out, "IDAT", sizeof zlib + (size_t)height * (5 + row) + 4);
    png_bytes(&out, zlib, sizeof zlib);
    for (y = 0; y < height; y++) { /* one block per row: whether it is the last, its size, the size's complement */
        unsigned char block[5] = {y == height - 1, (unsigned char)row, (unsigned char)(row >> 8), (unsigned char)~row,
                                  (unsigned char)(~row >> 8)};
        const unsigned char *bytes = pixels + (size_t)y * (row - 1);
        png_bytes(&out, block, sizeof block);
        png_bytes(&out, no_filter, 1);
        png_bytes(&out, bytes, row - 1);
        b = (b + a) % 65521;
        for (i = 0; i < row - 1; i++) {
            a = (a + bytes[i]) % 65521;
            b = (b + a) % 65521;
        }
    }
    png_number(&out, b << 16 | a);
    png_chunk_end(&out);
    png_chunk_begin(&out, "IEND", 0);
    png_chunk_end(&out);
    failed = ferror(out.file);
    return fclose(out.file) == 0 && !failed;
}

/*  A number from 0 to 1 as a colour, from black by red and yellow to white. */
static inline void picture_colour(unsigned char *pixel, double value)
{
    int k;
    for (k = 0; k < 3; k++) {
        double part = 3 * value - k;
        pixel[k] = (unsigned char)(255 * (part > 0 ? part < 1 ? part : 1 : 0));
    }
}

#endif /* PICTURE_H */
