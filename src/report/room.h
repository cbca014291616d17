/*  report - profiles and pictures of memory. */
#pragma once

#include "../base/room.h"
#include "../device/room.h"
#include "../array/room.h"

/*  A number with a decimal point: fprintf depends on the program's locale, which may write 1,5. */
typedef struct ignis__point_text {
    char text[32];
} ignis__point_text;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* report_file.c */
IGNIS__COLD IGNIS__PRIVATE void ignis__json_text(FILE *file, const char *text);
IGNIS__COLD IGNIS__PRIVATE void ignis__xml_text(FILE *file, const char *text);
IGNIS__COLD IGNIS__PRIVATE ignis__point_text ignis__point_write(double value);
IGNIS__COLD IGNIS__PRIVATE FILE *ignis__report_open(const char *call, const char *path);
IGNIS__COLD IGNIS__PRIVATE bool ignis__report_close(const char *call, const char *path, FILE *file);

/* profile.c */
IGNIS__COLD IGNIS__PRIVATE void ignis__profile_close(void);
