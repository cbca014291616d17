/* >>picture - pictures, curves, a progress line ------------------------------------------------------------------ */

/*  ignis_picture_write - write a PNG file of 8 bits for red, green and blue of each pixel, row by row from the top
    The pixels are stored as they are: nothing is compressed.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (null; width or height below 1 or above 16384), IO.
    Ownership: pixels stays the caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_picture_write(const char *path, const uint8_t *pixels, int width, int height);

/*  ignis_picture_colour - write the colour of a number from 0 to 1 to three bytes: from black by red and yellow to
    white
    Numbers below 0 are black, those above 1 white, NaN is grey.
    Returns: nothing.
    Errors: none.
    Ownership: pixel is the caller's, of 3 bytes.
    Threads: any. */
IGNIS_API void ignis_picture_colour(uint8_t *pixel, double value);

/*  A line of a diagram, such as the loss of a training. */
typedef struct ignis_curve {
    const char *name;     /* in the legend (none) */
    const double *values; /* the heights of its points; NaN and infinities leave a gap */
    const double *at;     /* the places of its points (0, 1, 2, ...) */
    int64_t count;        /* of points */
} ignis_curve;

typedef struct ignis_curves_desc {
    const char *title, *x_label, *y_label; /* (none) */
    bool log_y;                            /* powers of 10 are at equal distances; numbers of 0 and less leave a gap */
    int width, height;                     /* in pixels (800 and 450) */
} ignis_curves_desc;

/*  ignis_curves_write - draw up to 8 curves as an SVG file, which browsers and papers show
    desc may be null for all defaults. Of a curve with more than 4 points for each pixel column the least and the
    largest are drawn, so that files stay small.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (null; a count below 0 or above 8; a size above 16384), MEMORY, IO.
    Ownership: curves stay the caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_curves_write(const char *path, const ignis_curve *curves, int count,
                                          const ignis_curves_desc *desc);

/*  A progress line: the caller's, zero at the beginning, {.total = 1000, .label = "train"} for example. */
typedef struct ignis_progress {
    int64_t total;     /* of steps (not known) */
    const char *label; /* (none) */
    double interval;   /* least seconds from one line to the next (0.1 in a terminal, else 10) */
    /* Ignis' own: */
    int64_t began_ns, shown_ns, first;
    int length;
} ignis_progress;

/*  ignis_progress_print - show on stderr how far a loop is, how fast, and how long it still takes
    train  120/1000  12%  3.2/s  4:35 left  loss 0.693147
    done: steps so far, of which the first call's count as the beginning. name and value: a number to show, such as
    "loss"; name null for none. In a terminal the line is written over the one before; elsewhere each is a line. The
    last step (total) is always shown and ends the line.
    Returns: the length of the line that was written; 0 if the interval has not passed.
    Errors: ARGUMENT (null progress).
    Ownership: unchanged.
    Threads: any; one at a time for a line. Does not wait for the device, but ignis_item of a loss does: call it for the
    steps that are shown. */
IGNIS_API int ignis_progress_print(ignis_progress *progress, int64_t done, const char *name, double value);
