/*  report/curves.c - ignis_curves_write: curves in a diagram, as an SVG file

    Finds the range of all points and round numbers for the axes, then writes texts and lines.
    May use: report_file.c. Locks: none. Numbers do not depend on the locale. */

#include "room.h"

enum {
    IGNIS__CURVES_MOST = 8,
    IGNIS__CURVES_SIZE = 16384,
    IGNIS__CURVES_LEFT = 70, /* margins, which have the labels */
    IGNIS__CURVES_TOP = 36,
    IGNIS__CURVES_RIGHT = 20,
    IGNIS__CURVES_BOTTOM = 50
};

/*  A diagram: the range that it shows, in logarithms if they are drawn, and its rectangle in pixels. */
typedef struct ignis__diagram {
    FILE *file;
    ignis_curves_desc desc;
    double x_least, x_most, y_least, y_most;
    int width, height; /* of the rectangle */
} ignis__diagram;

/*  Returns the logarithm to the base 10 of a number above 0: its power of 2, and a series for the rest
    (log m = 2 atanh((m - 1)/(m + 1))), exact to 1e-15. The header needs no math.h. */
static double ignis__log10(double value)
{
    double power = 0, t, square, sum = 0;
    int i;
    for (; value > 1.5; value /= 2)
        power++;
    for (; value < 0.75; value *= 2)
        power--;
    t = (value - 1) / (value + 1);
    square = t * t;
    for (i = 25; i > 0; i -= 2)
        sum = sum * square + 1.0 / i;
    return (2 * t * sum + power * 0.693147180559945309) * 0.434294481903251828;
}

/*  Numbers whose differences do not overflow. */
static bool ignis__curve_has(double value) { return ignis__is_finite(value) && value < 1e300 && value > -1e300; }

/*  Returns the place and the height of a point; false for one that cannot be drawn. */
static bool ignis__curve_point(const ignis__diagram *diagram, const ignis_curve *curve, int64_t i, double *x, double *y)
{
    *x = curve->at ? curve->at[i] : (double)i;
    *y = curve->values[i];
    if (!ignis__curve_has(*x) || !ignis__curve_has(*y) || (diagram->desc.log_y && *y <= 0))
        return false;
    if (diagram->desc.log_y)
        *y = ignis__log10(*y);
    return true;
}

/*  Returns the range of an axis whose points are all at one number. */
static double ignis__diagram_least_range(double at) { return at > 1 ? at : at < -1 ? -at : 1; }

static void ignis__diagram_range(ignis__diagram *diagram, const ignis_curve *curves, int count)
{
    bool any = false;
    double x, y;
    int64_t i;
    int k;
    for (k = 0; k < count; k++)
        for (i = 0; i < curves[k].count; i++) {
            if (!ignis__curve_point(diagram, &curves[k], i, &x, &y))
                continue;
            diagram->x_least = !any || x < diagram->x_least ? x : diagram->x_least;
            diagram->x_most = !any || x > diagram->x_most ? x : diagram->x_most;
            diagram->y_least = !any || y < diagram->y_least ? y : diagram->y_least;
            diagram->y_most = !any || y > diagram->y_most ? y : diagram->y_most;
            any = true;
        }
    if (!(diagram->x_most > diagram->x_least))
        diagram->x_most = diagram->x_least + ignis__diagram_least_range(diagram->x_least);
    if (!(diagram->y_most > diagram->y_least))
        diagram->y_most = diagram->y_least + ignis__diagram_least_range(diagram->y_least);
}

static double ignis__diagram_x(const ignis__diagram *diagram, double x)
{
    return (double)IGNIS__CURVES_LEFT + (x - diagram->x_least) / (diagram->x_most - diagram->x_least) * diagram->width;
}

static double ignis__diagram_y(const ignis__diagram *diagram, double y)
{
    return (double)IGNIS__CURVES_TOP + (diagram->y_most - y) / (diagram->y_most - diagram->y_least) * diagram->height;
}

static double ignis__power_of_10(int power)
{
    double value = 1;
    for (; power > 0; power--)
        value *= 10;
    for (; power < 0; power++)
        value /= 10;
    return value;
}

/*  Returns the largest whole number up to a value of at most 18 digits. */
static int64_t ignis__axis_floor(double value)
{
    int64_t whole = (int64_t)value;
    return whole - ((double)whole > value);
}

/*  Returns the distance of the marks of an axis: 1, 2 or 5 times a power of 10, so that about 6 fit. */
static double ignis__axis_step(double range)
{
    double step = ignis__power_of_10((int)ignis__axis_floor(ignis__log10(range / 6))), times = range / 6 / step;
    return step * (times > 5 ? 10 : times > 2 ? 5 : times > 1 ? 2 : 1);
}

/*  Writes a number for a mark as "%g", with a point in every locale. */
static void ignis__axis_text(double value, char *out, size_t size)
{
    char *at;
    snprintf(out, size, "%.4g", value);
    for (at = out; *at; at++)
        if (!strchr("0123456789+-e.infa", *at))
            *at = '.';
}

static void ignis__diagram_text(const ignis__diagram *diagram, double x, double y, const char *more, const char *text)
{
    fprintf(diagram->file, "<text x=\"%s\" y=\"%s\" %s>", ignis__point_write(x).text, ignis__point_write(y).text, more);
    ignis__xml_text(diagram->file, text);
    fprintf(diagram->file, "</text>\n");
}

/*  Draws a mark's line across the diagram, and its number. */
static void ignis__diagram_mark(const ignis__diagram *diagram, bool is_x, double place, double value)
{
    double x = IGNIS__CURVES_LEFT, y = IGNIS__CURVES_TOP;
    char number[32];
    if (is_x)
        x = ignis__diagram_x(diagram, place);
    else
        y = ignis__diagram_y(diagram, place);
    ignis__axis_text(value, number, sizeof number);
    fprintf(diagram->file, "<path d=\"M%s %s%c%d\" stroke=\"#ddd\"/>\n", ignis__point_write(x).text,
            ignis__point_write(y).text, is_x ? 'v' : 'h', is_x ? diagram->height : diagram->width);
    if (is_x)
        ignis__diagram_text(diagram, x, IGNIS__CURVES_TOP + diagram->height + 16, "text-anchor=\"middle\"", number);
    else
        ignis__diagram_text(diagram, IGNIS__CURVES_LEFT - 6, y + 4, "text-anchor=\"end\"", number);
}

/*  Marks an axis at multiples of its step. */
static void ignis__diagram_marks(const ignis__diagram *diagram, bool is_x, double least, double most)
{
    const double step = ignis__axis_step(most - least), first = least / step - 1e-9;
    double at = first > -1e15 && first < 1e15 ? -(double)ignis__axis_floor(-first) : first;
    int i;
    for (i = 0; i < 16 && (at + i) * step <= most + 1e-9 * step; i++)
        ignis__diagram_mark(diagram, is_x, (at + i) * step, (at + i) * step);
}

/*  Marks an axis of logarithms at powers of 10, and at 2 and 5 times them where there is space. */
static void ignis__diagram_log_marks(const ignis__diagram *diagram)
{
    static const int times[] = {1, 2, 5};
    const double least = diagram->y_least - 1e-9, most = diagram->y_most + 1e-9;
    const int first = (int)ignis__axis_floor(diagram->y_least + 1e-9), last = (int)ignis__axis_floor(most);
    const int by = (last - first) / 8 + 1;
    int power, k;
    for (power = first; power <= last; power += by)
        for (k = 0; k < (last - first < 3 ? 3 : 1); k++) {
            double value = times[k] * ignis__power_of_10(power), place = ignis__log10(value);
            if (place >= least && place <= most)
                ignis__diagram_mark(diagram, false, place, value);
        }
}

static void ignis__diagram_axes(const ignis__diagram *diagram)
{
    ignis__diagram_marks(diagram, true, diagram->x_least, diagram->x_most);
    if (diagram->desc.log_y)
        ignis__diagram_log_marks(diagram);
    else
        ignis__diagram_marks(diagram, false, diagram->y_least, diagram->y_most);
    fprintf(diagram->file, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#444\"/>\n",
            IGNIS__CURVES_LEFT, IGNIS__CURVES_TOP, diagram->width, diagram->height);
    if (diagram->desc.title)
        ignis__diagram_text(diagram, IGNIS__CURVES_LEFT + diagram->width / 2, 22,
                            "text-anchor=\"middle\" font-size=\"15\"", diagram->desc.title);
    if (diagram->desc.x_label)
        ignis__diagram_text(diagram, IGNIS__CURVES_LEFT + diagram->width / 2, IGNIS__CURVES_TOP + diagram->height + 38,
                            "text-anchor=\"middle\"", diagram->desc.x_label);
    if (diagram->desc.y_label)
        ignis__diagram_text(diagram, IGNIS__CURVES_LEFT - 6, IGNIS__CURVES_TOP - 8, "text-anchor=\"end\"",
                            diagram->desc.y_label);
}

/*  Writes a point of a path. pen: 'M' begins a line, 'L' continues it. */
static void ignis__curve_to(const ignis__diagram *diagram, char pen, double x, double y)
{
    fprintf(diagram->file, "%c%s %s", pen, ignis__point_write(ignis__diagram_x(diagram, x)).text,
            ignis__point_write(ignis__diagram_y(diagram, y)).text);
}

/*  Draws a curve. A group of points that share a pixel column becomes its least and its largest. */
static void ignis__curve_draw(const ignis__diagram *diagram, const ignis_curve *curve, const char *colour)
{
    const int64_t group = 1 + curve->count / (4 * (int64_t)diagram->width);
    char pen = 'M';
    int64_t i, k;
    fprintf(diagram->file, "<path d=\"");
    for (i = 0; i < curve->count; i += group) {
        double x, y, least_x = 0, least = 0, most_x = 0, most = 0;
        int points = 0;
        for (k = i; k < i + group && k < curve->count; k++) {
            if (!ignis__curve_point(diagram, curve, k, &x, &y))
                continue;
            if (!points || y < least)
                least_x = x, least = y;
            if (!points || y > most)
                most_x = x, most = y;
            points++;
        }
        if (!points) {
            pen = 'M';
            continue;
        }
        ignis__curve_to(diagram, pen, least_x <= most_x ? least_x : most_x, least_x <= most_x ? least : most);
        pen = 'L';
        if (points > 1)
            ignis__curve_to(diagram, pen, least_x <= most_x ? most_x : least_x, least_x <= most_x ? most : least);
    }
    fprintf(diagram->file, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", colour);
}

static void ignis__diagram_write(ignis__diagram *diagram, const ignis_curve *curves, int count)
{
    static const char *const colours[IGNIS__CURVES_MOST] = {"#1f5fa8", "#c8512b", "#2d8a4e", "#7a4fa3",
                                                            "#b08900", "#4a9fb5", "#a33d6a", "#666666"};
    char more[64];
    int k, line = 0;
    ignis__diagram_range(diagram, curves, count);
    fprintf(diagram->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            diagram->desc.width, diagram->desc.height);
    ignis__diagram_axes(diagram);
    for (k = 0; k < count; k++) {
        ignis__curve_draw(diagram, &curves[k], colours[k]);
        if (!curves[k].name)
            continue;
        snprintf(more, sizeof more, "text-anchor=\"end\" fill=\"%s\"", colours[k]);
        ignis__diagram_text(diagram, IGNIS__CURVES_LEFT + diagram->width - 8, IGNIS__CURVES_TOP + 18 + 16 * line++,
                            more, curves[k].name);
    }
    fprintf(diagram->file, "</svg>\n");
}

static bool ignis__curves_check(const char *call, const ignis_curve *curves, int count, ignis_curves_desc *desc)
{
    int k;
    if (count < 0 || count > IGNIS__CURVES_MOST)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "count is %d; expected 0 to %d", count,
                                 IGNIS__CURVES_MOST);
    if (count > 0 && !ignis__check_not_null(call, "curves", curves))
        return false;
    for (k = 0; k < count; k++) {
        if (curves[k].count < 0)
            return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "curves[%d].count is %lld, below 0", k,
                                     (long long)curves[k].count);
        if (curves[k].count > 0 && !ignis__check_not_null(call, "curves.values", curves[k].values))
            return false;
    }
    desc->width = desc->width ? desc->width : 800;
    desc->height = desc->height ? desc->height : 450;
    if (desc->width < 200 || desc->height < 150 || desc->width > IGNIS__CURVES_SIZE ||
        desc->height > IGNIS__CURVES_SIZE)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "the size is %d x %d; expected 200 x 150 to %d x %d",
                                 desc->width, desc->height, IGNIS__CURVES_SIZE, IGNIS__CURVES_SIZE);
    return true;
}

IGNIS__COLD IGNIS_API ignis_status ignis_curves_write(const char *path, const ignis_curve *curves, int count,
                                                      const ignis_curves_desc *desc)
{
    static const char call[] = "ignis_curves_write";
    ignis__diagram diagram = IGNIS__ZERO;
    if (desc)
        diagram.desc = *desc;
    if (!ignis__check_not_null(call, "path", path) || !ignis__curves_check(call, curves, count, &diagram.desc))
        return ignis__failed();
    diagram.width = diagram.desc.width - IGNIS__CURVES_LEFT - IGNIS__CURVES_RIGHT;
    diagram.height = diagram.desc.height - IGNIS__CURVES_TOP - IGNIS__CURVES_BOTTOM;
    diagram.file = ignis__report_open(call, path);
    if (!diagram.file)
        return ignis__failed();
    ignis__diagram_write(&diagram, curves, count);
    return ignis__report_close(call, path, diagram.file) ? IGNIS_OK : ignis__failed();
}
