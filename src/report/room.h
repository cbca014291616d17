/*  report - profiles, tensors and models as text, pictures. */
#pragma once

#include "../base/room.h"
#include "../device/room.h"
#include "../array/room.h"
#include "../kernel/room.h"
#include "../formula/room.h"
#include "../tensor/room.h"

/*  A number with a decimal point: fprintf depends on the program's locale, which may write 1,5. */
typedef struct ignis__point_text {
    char text[32];
} ignis__point_text;

#define IGNIS__PRINT_DIGITS 8 /* after the point */

/*  A finite number as text: its digits before and after the point. */
typedef struct ignis__number_text {
    char whole[32], fraction[32];
    int exponent; /* of the scientific form */
    bool negative;
} ignis__number_text;

/*  The form that all numbers of a tensor are printed in, as words of one length. */
typedef struct ignis__number_format {
    ignis_dtype dtype;
    bool scientific;
    int left, right, exponent; /* columns before the point, after it, and of the exponent's digits */
    int tail;                  /* columns after the point, with those of the exponent */
} ignis__number_format;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* report_file.c */
IGNIS__COLD IGNIS__PRIVATE void ignis__json_text(FILE *file, const char *text);
IGNIS__COLD IGNIS__PRIVATE void ignis__xml_text(FILE *file, const char *text);
IGNIS__COLD IGNIS__PRIVATE ignis__point_text ignis__point_write(double value);
IGNIS__COLD IGNIS__PRIVATE FILE *ignis__report_open(const char *call, const char *path);
IGNIS__COLD IGNIS__PRIVATE bool ignis__report_close(const char *call, const char *path, FILE *file);

/* profile.c */
IGNIS__COLD IGNIS__PRIVATE void ignis__profile_close(void);

/* number_format.c */
IGNIS__COLD IGNIS__PRIVATE void ignis__number_format_find(ignis__number_format *format, ignis_dtype dtype,
                                                          const void *values, int64_t count);
IGNIS__COLD IGNIS__PRIVATE void ignis__number_write(const ignis__number_format *format, const void *values, int64_t i,
                                                    char *out, size_t size);

/* print.c */
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__print_line(const char *call, const char *text);

/* progress.c */
IGNIS__COLD IGNIS__PRIVATE int ignis__progress_write(const ignis_progress *progress, int64_t done, double seconds,
                                                     const char *name, double value, char *out, size_t size);
