// SPDX-License-Identifier: MIT
/*  test_picture.c - PNG files byte for byte, colours, diagrams and progress lines */
#include "tensor.h"

static char text[400000];

static size_t read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    CHECK(file != NULL);
    if (file)
        fclose(file);
    text[size] = 0;
    return size;
}

/*  The bytes that Python's zlib gives for the same blocks, which it decompresses to the rows. */
TEST(a_png_file)
{
    static const uint8_t pixels[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 1, 2, 3};
    static const unsigned char expected[] = {
        0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0x00, 0x00, 0x00, 0x0D, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00,
        0x00, 0x02, 0x00, 0x00, 0x00, 0x02, 0x08, 0x02, 0x00, 0x00, 0x00, 0xFD, 0xD4, 0x9A, 0x73, 0x00, 0x00, 0x00,
        0x1E, 0x49, 0x44, 0x41, 0x54, 0x78, 0x01, 0x00, 0x07, 0x00, 0xF8, 0xFF, 0x00, 0xFF, 0x00, 0x00, 0x00, 0xFF,
        0x00, 0x01, 0x07, 0x00, 0xF8, 0xFF, 0x00, 0x00, 0x00, 0xFF, 0x01, 0x02, 0x03, 0x19, 0xFE, 0x03, 0x04, 0x1D,
        0x3C, 0xCD, 0x6A, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4E, 0x44, 0xAE, 0x42, 0x60, 0x82};
    const char *path = test_path("two.png");
    SETUP(NULL);
    CHECK_OK(ignis_picture_write(path, pixels, 2, 2));
    CHECK_INT(read_text(path), sizeof expected);
    CHECK(memcmp(text, expected, sizeof expected) == 0);
    CHECK_STATUS(ignis_picture_write(path, pixels, 0, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("the picture is 0 x 2; expected 1 to 16384");
    CHECK_STATUS(ignis_picture_write(path, pixels, 2, 16385), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_picture_write(path, NULL, 2, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_picture_write(NULL, pixels, 2, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_picture_write(test_path("no/two.png"), pixels, 2, 2), IGNIS_ERROR_IO, IGNIS_DIAG_REPORT_IO);
}

TEST(colours_of_numbers)
{
    static const struct {
        double value;
        uint8_t pixel[3];
    } cases[] = {{-1, {0, 0, 0}},          {0, {0, 0, 0}},       {1.0 / 3, {255, 0, 0}},      {0.5, {255, 127, 0}},
                 {2.0 / 3, {255, 255, 0}}, {1, {255, 255, 255}}, {INFINITY, {255, 255, 255}}, {NAN, {127, 127, 127}}};
    uint8_t pixel[3];
    int i, k;
    for (i = 0; i < COUNT_OF(cases); i++) {
        ignis_picture_colour(pixel, cases[i].value);
        for (k = 0; k < 3; k++)
            CHECK_INT(pixel[k], cases[i].pixel[k]);
    }
}

/*  The diagram is 800 x 450: the curves are in x from 70 to 780 and y from 36 to 400. */
TEST(curves_lead_through_their_points)
{
    static const double line[] = {0, 10, 5}, powers[] = {1, 0, 100, NAN, 10}, at[] = {0, 1, 2, 3, 4};
    ignis_curve curves[2] = {{"a <line>", line, NULL, 3}, {NULL, NULL, NULL, 0}};
    ignis_curves_desc desc = {"title", "step", "loss", false, 0, 0};
    const char *path = test_path("curves.svg");
    SETUP(NULL);
    CHECK_OK(ignis_curves_write(path, curves, 2, &desc));
    read_text(path);
    CHECK_HAS(text, "width=\"800\" height=\"450\"");
    CHECK_HAS(text, "<path d=\"M70.000 400.000L425.000 36.000L780.000 218.000\" fill=\"none\"");
    CHECK_HAS(text, ">a &#60;line&#62;</text>");
    CHECK_HAS(text, ">title</text>");
    CHECK_HAS(text, ">step</text>");
    CHECK_HAS(text, ">loss</text>");
    CHECK_HAS(text, "<text x=\"64.000\" y=\"404.000\" text-anchor=\"end\">0</text>");
    CHECK_HAS(text, "<text x=\"64.000\" y=\"40.000\" text-anchor=\"end\">10</text>");
    CHECK_HAS(text, ">0.5</text>"); /* at steps of 0.5 along x */
    CHECK_HAS(text, "</svg>\n");
    curves[0].values = powers, curves[0].at = at, curves[0].count = 5;
    desc.log_y = true;
    CHECK_OK(ignis_curves_write(path, curves, 1, &desc)); /* 0 and NaN are gaps */
    read_text(path);
    CHECK_HAS(text, "<path d=\"M70.000 400.000M425.000 36.000M780.000 218.000\" fill=\"none\"");
    CHECK_HAS(text, "y=\"404.000\" text-anchor=\"end\">1</text>");
    CHECK_HAS(text, "y=\"222.000\" text-anchor=\"end\">10</text>");
    CHECK_HAS(text, "y=\"40.000\" text-anchor=\"end\">100</text>");
    CHECK_HAS(text, ">20</text>");
}

TEST(curves_of_any_numbers)
{
    static const double extremes[] = {1e308, -1e308, 1e-320, INFINITY, 1e299, -1e299}, same[] = {7, 7};
    enum { MANY = 100000 };
    double *many = (double *)calloc(MANY, sizeof *many);
    ignis_curve curve = {NULL, extremes, NULL, 6};
    ignis_curves_desc desc = {NULL, NULL, NULL, true, 400, 300};
    const char *path = test_path("any.svg");
    SETUP(NULL);
    CHECK_OK(ignis_curves_write(path, &curve, 1, NULL));
    CHECK_OK(ignis_curves_write(path, &curve, 1, &desc));
    CHECK_OK(ignis_curves_write(path, NULL, 0, &desc));
    curve.values = same, curve.count = 2;
    CHECK_OK(ignis_curves_write(path, &curve, 1, NULL));
    read_text(path);
    CHECK_HAS(text, "<path d=\"M70.000 400.000L780.000 400.000\"");
    curve.at = same, curve.values = extremes + 4, curve.count = 1;
    CHECK_OK(ignis_curves_write(path, &curve, 1, NULL));
    many[MANY / 2] = 1; /* a single point stays to be seen among many */
    curve.at = NULL, curve.values = many, curve.count = MANY;
    CHECK_OK(ignis_curves_write(path, &curve, 1, NULL));
    CHECK(read_text(path) < 200000);
    CHECK_HAS(text, " 36.000L");
    free(many);
}

TEST(curves_are_checked)
{
    static const double values[] = {1};
    ignis_curve curve = {NULL, values, NULL, 1};
    ignis_curves_desc desc = {NULL, NULL, NULL, false, 100, 0};
    const char *path = test_path("refused.svg");
    SETUP(NULL);
    CHECK_STATUS(ignis_curves_write(path, &curve, 9, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("count is 9; expected 0 to 8");
    CHECK_STATUS(ignis_curves_write(path, &curve, 1, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("the size is 100 x 450; expected 200 x 150 to 16384 x 16384");
    CHECK_STATUS(ignis_curves_write(NULL, &curve, 1, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_curves_write(path, NULL, 1, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    curve.count = -1;
    CHECK_STATUS(ignis_curves_write(path, &curve, 1, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    curve.count = 1, curve.values = NULL;
    CHECK_STATUS(ignis_curves_write(path, &curve, 1, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
}

TEST(progress_lines)
{
    static const struct {
        const char *label;
        int64_t total, first, done;
        double seconds;
        const char *name, *line;
    } cases[] = {
        {"train", 1000, 0, 120, 37.5, "loss", "train  120/1000  12%  3.20/s  4:35 left  loss 0.693147"},
        {NULL, 0, 0, 7, 0.5, NULL, "7  14/s"},
        {NULL, 10, 0, 0, 0, NULL, "0/10  0%"},
        {NULL, 10, 2, 10, 4000, NULL, "10/10  100%  0.00/s  in 1:06:40"},
        {"resumed", 100, 90, 95, 5, "x", "resumed  95/100  95%  1.00/s  5 s left  x 0.693147"},
    };
    ignis_progress progress;
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        memset(&progress, 0, sizeof progress);
        progress.label = cases[i].label;
        progress.total = cases[i].total;
        progress.first = cases[i].first;
        CHECK_INT(ignis__progress_write(&progress, cases[i].done, cases[i].seconds, cases[i].name, 0.69314718, text,
                                        sizeof text),
                  strlen(cases[i].line));
        CHECK_TEXT(text, cases[i].line);
    }
    memset(&progress, 0, sizeof progress);
    progress.total = 3;
    progress.interval = 1000;
    CHECK(ignis_progress_print(&progress, 1, NULL, 0) > 0);
    CHECK_INT(ignis_progress_print(&progress, 2, NULL, 0), 0); /* too early */
    CHECK(ignis_progress_print(&progress, 3, "loss", 1) > 0);  /* the last one */
    CHECK_REFUSED(0, ignis_progress_print(NULL, 3, NULL, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
