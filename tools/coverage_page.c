// SPDX-License-Identifier: MIT
/*  coverage_page.c - shows which lines and branches of src/ the tests reach

        gcov -t -b -c OBJECT... >counts.txt
        build/amalgamate --lines FOLDER
        build/coverage_page counts.txt FOLDER page.html

    Prints a row for each room of src/, and a total. Writes one HTML page with the rooms, their parts, and the text of
    each part: lines that no test reaches are red, lines with a branch that is never taken are yellow.

    gcov does not count a line "call(" whose arguments on the next lines have branches. Such a line counts as reached if
    its arguments are.

    A part may be compiled several times: for other tests, in a header, with other macros. A line or a branch is reached
    if it is reached in one of these. Lines of a header are counted for the part that they come from, as the #line
    directives in FOLDER say. */
#define TOOL "coverage_page"
#include "text.h"

#define MAX_FILES 2048
#define MAX_PATH 512
#define MAX_BRANCHES 255 /* of a line */

typedef struct source_line {
    long long count;         /* how often it was reached; -1: no code */
    unsigned char *branches; /* 1 for each that was taken */
    int branch_count;
} source_line;

typedef struct source_file {
    char path[MAX_PATH];
    source_line *lines; /* from number 1 */
    int line_count;
} source_file;

/* A line of a header, and the line of src/ that it comes from. */
typedef struct position {
    source_file *file;
    int line;
} position;

typedef struct header {
    const char *name;
    position *lines; /* from number 1 */
    int line_count;
} header;

typedef struct counts {
    int lines, reached, branches, taken;
} counts;

static source_file *files[MAX_FILES];
static int file_count;
static header headers[] = {{"ignis.h", NULL, 0}, {"ignis_models.h", NULL, 0}, {"ignis_collective.h", NULL, 0}};
#define HEADERS ((int)(sizeof(headers) / sizeof(headers[0])))

static void *grow(void *data, size_t size)
{
    data = realloc(data, size);
    if (!data)
        die("out of memory");
    return data;
}

/* >>counts ------------------------------------------------------------------------------------------------------ */

/* Returns the file of a path, whose "folder/.." are taken out. */
static source_file *file_of(const char *path)
{
    char plain[MAX_PATH];
    char *up, *folder;
    if (snprintf(plain, sizeof(plain), "%s", path) >= (int)sizeof(plain))
        die("%s: the path is too long", path);
    while ((up = strstr(plain, "/../")) != NULL) {
        for (folder = up; folder > plain && folder[-1] != '/'; folder--)
            ;
        memmove(folder, up + 4, strlen(up + 4) + 1);
    }
    for (int i = 0; i < file_count; i++)
        if (strcmp(files[i]->path, plain) == 0)
            return files[i];
    if (file_count == MAX_FILES)
        die("more than %d files", MAX_FILES);
    files[file_count] = (source_file *)grow(NULL, sizeof(source_file));
    memset(files[file_count], 0, sizeof(source_file));
    strcpy(files[file_count]->path, plain);
    return files[file_count++];
}

static source_line *line_of(source_file *file, int number)
{
    if (number >= file->line_count) {
        const int count = 2 * number + 64;
        file->lines = (source_line *)grow(file->lines, sizeof(source_line) * (size_t)count);
        for (int i = file->line_count; i < count; i++)
            file->lines[i] = (source_line){-1, NULL, 0};
        file->line_count = count;
    }
    return &file->lines[number];
}

/* Reads where the lines of a header come from. */
static void read_positions(header *h, const char *folder)
{
    char path[MAX_PATH], from[MAX_PATH];
    text t = {0};
    position next = {NULL, 0};
    int room = 0, number = 0;
    snprintf(path, sizeof(path), "%s/%s", folder, h->name);
    if (!read_file(path, &t))
        die("cannot open %s", path);
    for (char *line = t.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = 0;
        if (sscanf(line, "#line %d \"%511[^\"]", &next.line, from) == 2) {
            next.file = file_of(from);
            continue;
        }
        if (++number >= room)
            room = 2 * number + 64, h->lines = (position *)grow(h->lines, sizeof(position) * (size_t)room);
        h->lines[number] = next;
        next.line++;
    }
    h->line_count = number + 1;
    free(t.data);
}

/* Returns the header that a path outside of src/ names; NULL if it names none. */
static const header *header_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (strncmp(path, "src/", 4) == 0)
        return NULL;
    for (int i = 0; i < HEADERS; i++)
        if (strcmp(headers[i].name, slash ? slash + 1 : path) == 0)
            return &headers[i];
    return NULL;
}

/* Adds what gcov says of a branch to its line. */
static void add_branch(source_line *at, const char *line)
{
    int index = 0;
    long long taken = 0;
    if (sscanf(line, "branch %d taken %lld", &index, &taken) < 1 || index < 0 || index >= MAX_BRANCHES)
        return;
    if (index >= at->branch_count) {
        at->branches = (unsigned char *)grow(at->branches, (size_t)index + 1);
        memset(at->branches + at->branch_count, 0, (size_t)(index + 1 - at->branch_count));
        at->branch_count = index + 1;
    }
    if (taken > 0)
        at->branches[index] = 1;
}

/* Reads what gcov has printed: lines "count:number:text", each followed by lines "branch ..." and others. */
static void read_counts(const char *path)
{
    text t = {0};
    const header *in = NULL;
    source_file *file = NULL;
    source_line *at = NULL;
    if (!read_file(path, &t))
        die("cannot open %s", path);
    for (char *line = t.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        char count[32];
        int number, length = 0;
        *end = 0;
        if (strncmp(line, "branch ", 7) == 0) {
            if (at)
                add_branch(at, line);
        } else if (sscanf(line, " %31[^:]:%d:%n", count, &number, &length) == 2 && length) {
            if (number == 0 && strncmp(line + length, "Source:", 7) == 0) {
                in = header_of(line + length + 7);
                file = in || strncmp(line + length + 7, "src/", 4) != 0 ? NULL : file_of(line + length + 7);
            }
            at = NULL;
            if (number == 0 || strcmp(count, "-") == 0)
                continue;
            if (in && number < in->line_count && in->lines[number].file)
                at = line_of(in->lines[number].file, in->lines[number].line);
            else if (file)
                at = line_of(file, number);
            if (at)
                at->count = (at->count < 0 ? 0 : at->count) + atoll(count); /* 0 if it is #####: not reached */
        }
    }
    free(t.data);
}

static void add_line(counts *sum, const source_line *line)
{
    if (line->count < 0)
        return;
    sum->lines++;
    sum->reached += line->count > 0;
    sum->branches += line->branch_count;
    for (int i = 0; i < line->branch_count; i++)
        sum->taken += line->branches[i];
}

/* Whether a line ends within the arguments of a call: by "(" or ",", and not in a branch of ?: that begins with it. */
static int is_call_open(const char *line, size_t length)
{
    const size_t indent = strspn(line, " ");
    return length > indent && strchr("(,", line[length - 1]) && !strchr("?:", line[indent]);
}

/* Counts lines "call(" as reached when their arguments are. */
static void mend_calls(source_file *file)
{
    text t = {0};
    const char *line;
    size_t begin;
    int number = 1;
    long long below = 0; /* the count of the next line that has code */
    if (!read_file(file->path, &t))
        die("cannot open %s", file->path);
    for (size_t i = 0; i < t.size; i++)
        number += t.data[i] == '\n';
    for (size_t end = t.size; number > 0; number--, end = begin - 1) {
        for (begin = end; begin > 0 && t.data[begin - 1] != '\n'; begin--)
            ;
        line = t.data + begin;
        if (number < file->line_count && file->lines[number].count >= 0) {
            if (file->lines[number].count == 0 && below > 0 && is_call_open(line, end - begin))
                file->lines[number].count = below;
            below = file->lines[number].count;
        }
    }
    free(t.data);
}

static counts counts_of(const source_file *file)
{
    counts sum = {0, 0, 0, 0};
    for (int i = 1; i < file->line_count; i++)
        add_line(&sum, &file->lines[i]);
    return sum;
}

static void add_counts(counts *sum, counts more)
{
    sum->lines += more.lines, sum->reached += more.reached;
    sum->branches += more.branches, sum->taken += more.taken;
}

static double percent(int part, int of) { return of ? 100.0 * part / of : 100.0; }

/* >>page -------------------------------------------------------------------------------------------------------- */

static void add_escaped(text *out, const char *line)
{
    for (; *line; line++)
        if (*line == '<' || *line == '&')
            print(out, *line == '<' ? "&lt;" : "&amp;");
        else
            append(out, line, 1);
}

static void add_row(text *out, const char *name, const char *link, counts sum)
{
    print(out, "<tr><td>");
    if (link)
        print(out, "<a href=\"#%s\">%s</a>", link, name);
    else
        print(out, "%s", name);
    print(out, "</td><td>%d</td><td>%d</td><td>%.1f</td><td>%d</td><td>%d</td><td>%.1f</td></tr>\n", sum.lines,
          sum.lines - sum.reached, percent(sum.reached, sum.lines), sum.branches, sum.branches - sum.taken,
          percent(sum.taken, sum.branches));
}

/* The text of a part: a span for each line that is not reached, or of which a branch is not. */
static void add_text(text *out, const source_file *file)
{
    text t = {0};
    int number = 0;
    if (!read_file(file->path, &t))
        die("cannot open %s", file->path);
    print(out, "<details id=\"%s\"><summary>%s</summary><pre>\n", file->path, file->path);
    for (char *line = t.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        counts one = {0, 0, 0, 0};
        const char *mark;
        *end = 0;
        if (++number < file->line_count)
            add_line(&one, &file->lines[number]);
        mark = one.lines > one.reached ? "no" : one.branches > one.taken ? "part" : NULL;
        print(out, "%5d ", number);
        if (mark && one.branches)
            print(out, "<span class=%s title=\"%d of %d branches\">", mark, one.taken, one.branches);
        else if (mark)
            print(out, "<span class=%s>", mark);
        add_escaped(out, line);
        print(out, mark ? "</span>\n" : "\n");
    }
    print(out, "</pre></details>\n");
    free(t.data);
}

/* The room of a part: the folder below src/. */
static void room_of(char *room, const char *path)
{
    const char *name = path + strlen("src/"), *slash = strchr(name, '/');
    snprintf(room, 64, "%.*s", slash ? (int)(slash - name) : 3, slash ? name : "src");
}

static int by_room(const void *a, const void *b)
{
    source_file *const *first = (source_file *const *)a, *const *second = (source_file *const *)b;
    char rooms[2][64];
    int order;
    room_of(rooms[0], (*first)->path);
    room_of(rooms[1], (*second)->path);
    order = strcmp(rooms[0], rooms[1]);
    return order ? order : strcmp((*first)->path, (*second)->path);
}

static const char page_head[] =
    "<!doctype html><meta charset=\"utf-8\"><title>Ignis %d.%d.%d: coverage</title>\n<style>"
    "body{font:14px sans-serif;margin:2em}td,th{padding:1px 10px;text-align:right}td:first-child{text-align:left}"
    "pre{font-size:12px}.no{background:#fbb}.part{background:#ff9}summary{cursor:pointer}</style>\n"
    "<script>addEventListener('hashchange',()=>document.getElementById(location.hash.slice(1)).open=true)</script>\n"
    "<h1>Lines and branches of src/ that the tests reach</h1>\n";
static const char table_head[] = "<table><tr><th></th><th>lines</th><th>not reached</th><th>%</th>"
                                 "<th>branches</th><th>not taken</th><th>%</th></tr>\n";

static void show_room(const char *room, counts sum)
{
    printf("%-12s %6d lines, %5.1f %% reached; %6d branches, %5.1f %% taken\n", room, sum.lines,
           percent(sum.reached, sum.lines), sum.branches, percent(sum.taken, sum.branches));
}

/* Writes the page, and prints a row for each room. */
static void show(const char *path)
{
    text out = {0}, rooms = {0}, parts = {0}, texts = {0};
    counts total = {0, 0, 0, 0}, sum = total;
    char room[64] = "", last[64] = "";
    FILE *page;
    qsort(files, (size_t)file_count, sizeof(files[0]), by_room);
    for (int i = 0; i < file_count; i++) {
        counts one = counts_of(files[i]);
        if (one.lines == 0)
            continue;
        mend_calls(files[i]);
        one = counts_of(files[i]);
        room_of(room, files[i]->path);
        if (strcmp(room, last) != 0 && sum.lines)
            show_room(last, sum), add_row(&rooms, last, NULL, sum), sum = (counts){0, 0, 0, 0};
        strcpy(last, room);
        add_counts(&sum, one);
        add_counts(&total, one);
        add_row(&parts, files[i]->path, files[i]->path, one);
        add_text(&texts, files[i]);
    }
    if (total.lines == 0)
        die("no line of src/ is counted");
    show_room(last, sum), add_row(&rooms, last, NULL, sum);
    show_room("all", total), add_row(&rooms, "all", NULL, total);
    print(&out, page_head, version[0], version[1], version[2]);
    print(&out, "<h2>Rooms</h2>\n%s", table_head);
    append(&out, rooms.data, rooms.size);
    print(&out, "</table>\n<h2>Parts</h2>\n%s", table_head);
    append(&out, parts.data, parts.size);
    print(&out, "</table>\n<h2>Text</h2>\n");
    append(&out, texts.data, texts.size);
    page = fopen(path, "wb");
    if (!page || fwrite(out.data, 1, out.size, page) != out.size || fclose(page) != 0)
        die("cannot write %s", path);
    free(out.data), free(rooms.data), free(parts.data), free(texts.data);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: coverage_page COUNTS FOLDER PAGE\n", stderr);
        return 2;
    }
    read_version();
    for (int i = 0; i < HEADERS; i++)
        read_positions(&headers[i], argv[2]);
    read_counts(argv[1]);
    show(argv[3]);
    return 0;
}
