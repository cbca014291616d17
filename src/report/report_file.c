/*  report/report_file.c - report files: JSON, XML and numbers written independently of the locale

    For profiles and memory snapshots. Texts of the caller are escaped.
    May use: base/file_io.c, base/utf8.c. Locks: none. */

#include "room.h"

/*  Writes text of the caller in JSON: bytes that are not UTF-8, as in a cut tag, become '?'. */
IGNIS__COLD IGNIS__PRIVATE void ignis__json_text(FILE *file, const char *text)
{
    size_t left = strlen(text);
    fputc('"', file);
    while (left > 0) {
        int length = ignis__utf8_length(text, left);
        if ((unsigned char)*text < 0x20)
            fprintf(file, "\\u%04x", (unsigned)*text);
        else if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if (length == 0)
            fputc('?', file);
        else
            fwrite(text, 1, (size_t)length, file);
        length = length ? length : 1;
        text += length;
        left -= (size_t)length;
    }
    fputc('"', file);
}

/*  As ignis__json_text, in XML. */
IGNIS__COLD IGNIS__PRIVATE void ignis__xml_text(FILE *file, const char *text)
{
    for (; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
            fprintf(file, "&#%d;", *text);
        else
            fputc((unsigned char)*text < 0x20 || (unsigned char)*text >= 0x80 ? '?' : *text, file);
}

IGNIS__COLD IGNIS__PRIVATE ignis__point_text ignis__point_write(double value)
{
    ignis__point_text out;
    int64_t thousandths = (int64_t)(value * 1000 + (value < 0 ? -0.5 : 0.5)), whole = thousandths / 1000,
            rest = thousandths % 1000;
    snprintf(out.text, sizeof out.text, "%s%lld.%03d", thousandths < 0 ? "-" : "",
             (long long)(whole < 0 ? -whole : whole), (int)(rest < 0 ? -rest : rest));
    return out;
}

/*  Opens a report, replacing an old one. NULL, and reported, if it cannot be written. */
IGNIS__COLD IGNIS__PRIVATE FILE *ignis__report_open(const char *call, const char *path)
{
    FILE *file = ignis__file_create(path, IGNIS__FILE_REPLACE);
    if (!file)
        ignis__fail_file(IGNIS_DIAG_REPORT_IO, call, path, "opened to write a report");
    return file;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__report_close(const char *call, const char *path, FILE *file)
{
    bool failed = ferror(file) != 0;
    if (fclose(file) == 0 && !failed)
        return true;
    return ignis__fail_false(IGNIS_DIAG_REPORT_IO, call, "cannot write to %s: the report is not whole", path);
}
