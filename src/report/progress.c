/*  report/progress.c - ignis_progress_print: one line on stderr that shows how far a loop is

    In a terminal each line is written over the one before; elsewhere, as in a log, each is a line of its own.
    May use: base/posix.c, base/windows.c. Locks: none; a progress belongs to its caller. */

#include "room.h"

/*  Adds a time as 59 s, 4:35 or 2:03:07. */
static void ignis__progress_time(ignis__string_writer *text, double seconds)
{
    int64_t s = (int64_t)(seconds + 0.5);
    if (s >= 3600)
        ignis__string_add(text, "%lld:%02d:%02d", (long long)(s / 3600), (int)(s / 60 % 60), (int)(s % 60));
    else if (s >= 60)
        ignis__string_add(text, "%d:%02d", (int)(s / 60), (int)(s % 60));
    else
        ignis__string_add(text, "%d s", (int)s);
}

/*  Writes the line of a progress after `seconds` from its first call, and returns its length. */
IGNIS__COLD IGNIS__PRIVATE int ignis__progress_write(const ignis_progress *progress, int64_t done, double seconds,
                                                     const char *name, double value, char *out, size_t size)
{
    double rate = seconds > 0 ? (double)(done - progress->first) / seconds : 0;
    ignis__string_writer text;
    ignis__string_begin(&text, out, size);
    if (progress->label)
        ignis__string_add(&text, "%.64s  ", progress->label);
    ignis__string_add(&text, "%lld", (long long)done);
    if (progress->total > 0)
        ignis__string_add(&text, "/%lld  %d%%", (long long)progress->total,
                          (int)(100 * (double)done / (double)progress->total));
    if (rate > 0)
        ignis__string_add(&text, rate < 10 ? "  %.2f/s" : "  %.0f/s", rate);
    if (rate > 0 && progress->total > done) {
        ignis__string_add(&text, "  ");
        ignis__progress_time(&text, (double)(progress->total - done) / rate);
        ignis__string_add(&text, " left");
    } else if (progress->total > 0 && progress->total <= done) {
        ignis__string_add(&text, "  in ");
        ignis__progress_time(&text, seconds);
    }
    if (name)
        ignis__string_add(&text, "  %.64s %.6g", name, value);
    return text.length < size ? (int)text.length : (int)size - 1;
}

IGNIS__COLD IGNIS_API int ignis_progress_print(ignis_progress *progress, int64_t done, const char *name, double value)
{
    static const char call[] = "ignis_progress_print";
    bool in_terminal = ignis__stderr_is_terminal(), is_last;
    double interval;
    int64_t now = ignis__monotonic_ns();
    char line[320];
    int length;
    if (!ignis__check_not_null(call, "progress", progress))
        return 0;
    if (progress->began_ns == 0) {
        progress->began_ns = now;
        progress->first = done;
    }
    is_last = progress->total > 0 && done >= progress->total;
    interval = progress->interval > 0 ? progress->interval : in_terminal ? 0.1 : 10;
    if (!is_last && progress->shown_ns && (double)(now - progress->shown_ns) < interval * 1e9)
        return 0;
    progress->shown_ns = now;
    length = ignis__progress_write(progress, done, (double)(now - progress->began_ns) * 1e-9, name, value, line,
                                   sizeof line);
    if (in_terminal) /* spaces cover what a longer line has left */
        fprintf(stderr, "\r%s%*s%s", line, length < progress->length ? progress->length - length : 0, "",
                is_last ? "\n" : "");
    else
        fprintf(stderr, "%s\n", line);
    fflush(stderr);
    progress->length = length;
    return length;
}
