/* ===============================================================================================================
   >>picture - pictures, curves, a progress line

   This part: ignis_picture_write, a PNG file whose pixels are in "stored" blocks of zlib (RFC 1950, 1951, 2083), and
   the colours of numbers.
   May use: report_file.c. Locks: none.
   =============================================================================================================== */

#include "room.h"

enum { IGNIS__PICTURE_LIMIT = 16384 };

/*  A PNG file while it is written. */
typedef struct ignis__png {
    FILE *file;
    uint32_t crc; /* of the chunk that is being written */
} ignis__png;

static void ignis__png_bytes(ignis__png *png, const void *bytes, size_t count)
{
    const unsigned char *byte = (const unsigned char *)bytes;
    size_t i;
    int bit;
    for (i = 0; i < count; i++) {
        png->crc ^= byte[i];
        for (bit = 0; bit < 8; bit++)
            png->crc = png->crc & 1 ? 0xEDB88320u ^ png->crc >> 1 : png->crc >> 1;
    }
    fwrite(bytes, 1, count, png->file);
}

static void ignis__png_number(ignis__png *png, uint32_t value)
{
    unsigned char bytes[4];
    int i;
    for (i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(value >> (24 - 8 * i) & 0xFF);
    ignis__png_bytes(png, bytes, 4);
}

static void ignis__png_begin(ignis__png *png, const char *name, size_t size)
{
    ignis__png_number(png, (uint32_t)size);
    png->crc = 0xFFFFFFFFu;
    ignis__png_bytes(png, name, 4);
}

static void ignis__png_end(ignis__png *png) { ignis__png_number(png, png->crc ^ 0xFFFFFFFFu); }

/*  Writes all pixels: a block for each row, which begins with the number of its filter. */
static void ignis__png_rows(ignis__png *png, const uint8_t *pixels, int width, int height)
{
    const size_t row = 3 * (size_t)width + 1;
    uint32_t a = 1, b = 0; /* Adler-32 */
    unsigned char block[6] = {0, 0, 0, 0, 0, 0};
    size_t i;
    int y;
    ignis__png_begin(png, "IDAT", 2 + (size_t)height * (5 + row) + 4);
    ignis__png_bytes(png, "\x78\x01", 2);
    block[1] = (unsigned char)(row & 0xFF); /* the size of the block, and its complement */
    block[2] = (unsigned char)(row >> 8);
    block[3] = (unsigned char)(~row & 0xFF);
    block[4] = (unsigned char)(~row >> 8 & 0xFF);
    for (y = 0; y < height; y++) {
        const uint8_t *bytes = pixels + (size_t)y * (row - 1);
        block[0] = y == height - 1;
        ignis__png_bytes(png, block, 6);
        ignis__png_bytes(png, bytes, row - 1);
        b = (b + a) % 65521;
        for (i = 0; i < row - 1; i++) {
            a = (a + bytes[i]) % 65521;
            b = (b + a) % 65521;
        }
    }
    ignis__png_number(png, b << 16 | a);
    ignis__png_end(png);
}

IGNIS__COLD IGNIS_API ignis_status ignis_picture_write(const char *path, const uint8_t *pixels, int width, int height)
{
    static const char call[] = "ignis_picture_write";
    static const unsigned char format[5] = {8, 2, 0, 0, 0};
    ignis__png png = IGNIS__ZERO;
    if (!ignis__check_not_null(call, "path", path) || !ignis__check_not_null(call, "pixels", pixels))
        return ignis__failed();
    if (width < 1 || height < 1 || width > IGNIS__PICTURE_LIMIT || height > IGNIS__PICTURE_LIMIT)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the picture is %d x %d; expected 1 to %d", width, height,
                           IGNIS__PICTURE_LIMIT);
    png.file = ignis__report_open(call, path);
    if (!png.file)
        return ignis__failed();
    fwrite("\x89PNG\r\n\x1A\n", 1, 8, png.file);
    ignis__png_begin(&png, "IHDR", 13);
    ignis__png_number(&png, (uint32_t)width);
    ignis__png_number(&png, (uint32_t)height);
    ignis__png_bytes(&png, format, sizeof format);
    ignis__png_end(&png);
    ignis__png_rows(&png, pixels, width, height);
    ignis__png_begin(&png, "IEND", 0);
    ignis__png_end(&png);
    return ignis__report_close(call, path, png.file) ? IGNIS_OK : ignis__failed();
}

IGNIS_API void ignis_picture_colour(uint8_t *pixel, double value)
{
    int k;
    for (k = 0; k < 3; k++) {
        double part = 3 * value - k;
        if (ignis__is_nan(value))
            part = 0.5;
        pixel[k] = (uint8_t)(255 * (part > 0 ? part < 1 ? part : 1 : 0));
    }
}
