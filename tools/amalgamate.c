// SPDX-License-Identifier: MIT
/*  amalgamate.c - writes the headers of Ignis from their parts in src/

        cc tools/amalgamate.c -o build/amalgamate
        build/amalgamate [--check | --lines FOLDER]

    - without options: writes ignis.h and its like; every #include "part" becomes the text of the part, once.
    - --check: exits with 1 when a header is not what would be written, and names the first line that differs.
    - --lines FOLDER: writes them into FOLDER, with #line directives: for `make coverage`, and for a debugger that shows
      the parts.

    Run from the root of the repository. Equal parts give equal headers on every machine. An empty line follows each
    part, except at the end of a comment. An #include of a file that src/ does not have is copied, as all other lines
    are: conditionals are not evaluated.

    Some lines become more than they are:

    - "// amalgamate: overloads": C++ overloads that take option structs by reference.
    - "// amalgamate: traced calls, and NAMES": macros for IGNIS_TRACE_CALLS: of functions that return a handle or put
      work on a stream ("Streams:" in their comments), and of the functions NAMES.
    - "amalgamate: contents", in the manual: the tags of the sections, with titles and chapters.
    - "#define NAME IGNIS_VERSION": the number replaces IGNIS_VERSION.

    The first line of a root gets the version. It is defined in VERSION_FROM and nowhere else.

    Refused, with the part and the line: a conditional that is not closed in its part, a tab, a character outside of
    ASCII, a line above MAX_COLUMNS, a part without a final line end, or with an empty line at its end, a part that no
    root includes, and a part that includes one of a floor above its own.
*/
#include <dirent.h>

#define TOOL "amalgamate"
#include "text.h"

#define MAX_PARTS 1024
#define MAX_PATH 512
#define MAX_COLUMNS 150
#define MAX_LINE 256
#define MAX_DEPTH 8
#define MAX_NAME 64
#define MAX_SIGNATURE 1024
#define MAX_PARAMETERS 16
#define MAX_TAGS 64
#define MADE_COLUMNS 120 /* of generated lines */

static const char *const roots[][2] = {{"src/ignis.h", "ignis.h"},
                                       {"src/ignis_models.h", "ignis_models.h"},
                                       {"src/ignis_collective.h", "ignis_collective.h"}};
#define ROOTS ((int)(sizeof(roots) / sizeof(roots[0])))

static char included[MAX_PARTS][MAX_PATH]; /* by this root, or by one before it */
static int included_count, first_of_root;
static size_t contents_at; /* where the contents of the root's manual belong; 0: nowhere */
static int failures, with_lines;
static text handles; /* " ignis_array ignis_kernel ... ": the types of handles in the roots so far */

/* Reports what is wrong with a part; the others are read all the same. */
static void refuse(const char *path, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s\n", path, line, what);
    failures++;
}

/* >>parts ------------------------------------------------------------------------------------------------------- */

/* Writes the path of what an #include "name" in the file `from` means, without "folder/..". */
static void resolve(char *path, const char *from, const char *name)
{
    const char *slash = strrchr(from, '/');
    int length = slash ? (int)(slash - from) + 1 : 0;
    while (strncmp(name, "../", 3) == 0 && length > 0) {
        for (length--; length > 0 && from[length - 1] != '/'; length--)
            ;
        name += 3;
    }
    if (snprintf(path, MAX_PATH, "%.*s%s", length, from, name) >= MAX_PATH)
        die("%s: the path of %s is too long", from, name);
}

static int is_root(const char *path)
{
    for (int i = 0; i < ROOTS; i++)
        if (strcmp(roots[i][0], path) == 0)
            return 1;
    return 0;
}

static int is_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file)
        fclose(file);
    return file != NULL;
}

/* Whether a line is the directive; what follows it is at *rest. */
static int is_directive(const char *line, const char *directive, const char **rest)
{
    if (*line != '#')
        return 0;
    for (line++; *line == ' '; line++)
        ;
    *rest = line + strlen(directive);
    return strncmp(line, directive, strlen(directive)) == 0;
}

/* Copies the line at *at without its end, cut to `size`, and moves *at to the next line. 0: there is none. */
static int next_line(const char **at, char *line, size_t size)
{
    size_t length = strcspn(*at, "\n");
    if (**at == 0)
        return 0;
    snprintf(line, size, "%.*s", (int)length, *at);
    *at += length + ((*at)[length] == '\n');
    return 1;
}

static void check_line(const char *path, int number, const char *line, size_t length)
{
    if (length > MAX_COLUMNS)
        refuse(path, number, "the line is too long");
    for (size_t i = 0; i < length; i++)
        if (line[i] < 32 || line[i] > 126) {
            refuse(path, number, line[i] == '\t' ? "a tab" : "a character outside of ASCII");
            break;
        }
}

/* >>declarations ------------------------------------------------------------------------------------------------ */

static int starts(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

static int ends(const char *s, const char *with)
{
    size_t size = strlen(s), end = strlen(with);
    return size >= end && strcmp(s + size - end, with) == 0;
}

/* A walk through the public functions of a header. */
typedef struct walk {
    const char *at;                       /* the next line */
    char conditions[MAX_DEPTH][MAX_LINE]; /* the #ifs around it, the include guard first; "": cannot be repeated */
    int depth;
    int uses_stream;               /* the last comment says "Streams:" */
    char signature[MAX_SIGNATURE]; /* "ignis_tensor ignis_add(ignis_tensor a, ignis_tensor b)" */
    char result[MAX_NAME], name[MAX_NAME];
    const char *parameters; /* in signature, after the parenthesis */
} walk;

/* Reads a declaration that begins in `line` into w. */
static void read_function(walk *w, char *line)
{
    size_t length = 0;
    char *name;
    do {
        length += (size_t)snprintf(w->signature + length, sizeof(w->signature) - length, "%s%s", length ? " " : "",
                                   line + strspn(line, " "));
        if (length >= sizeof(w->signature))
            die("a declaration is too long: %s", w->signature);
    } while (!ends(w->signature, ";") && next_line(&w->at, line, MAX_LINE));
    w->signature[length - 1] = 0;
    memmove(w->signature, w->signature + 10, length - 10); /* "IGNIS_API " */
    name = strchr(w->signature, '(');
    if (!name || !ends(w->signature, ")"))
        die("no declaration of a function: %s", w->signature);
    w->parameters = name + 1;
    while (name > w->signature && name[-1] != ' ' && name[-1] != '*')
        name--;
    snprintf(w->result, sizeof(w->result), "%.*s", (int)(name - w->signature), w->signature);
    if (ends(w->result, " "))
        w->result[strlen(w->result) - 1] = 0;
    snprintf(w->name, sizeof(w->name), "%.*s", (int)(w->parameters - 1 - name), name);
}

/* Goes to the next public function. 0: no further one before the implementation. */
static int next_function(walk *w)
{
    char line[MAX_LINE];
    const char *rest;
    while (next_line(&w->at, line, sizeof(line)) && strcmp(line, "#ifdef IGNIS_IMPLEMENTATION") != 0) {
        if (is_directive(line, "if", &rest)) {
            if (w->depth == MAX_DEPTH)
                die("conditionals are nested too deep: %s", line);
            snprintf(w->conditions[w->depth++], MAX_LINE, "%s", ends(line, "\\") ? "" : line);
        } else if (is_directive(line, "endif", &rest) && w->depth > 0) {
            w->depth--;
        } else if (is_directive(line, "el", &rest) && w->depth > 0) {
            w->conditions[w->depth - 1][0] = 0;
        }
        if (starts(line, "/*"))
            w->uses_stream = 0;
        if (strstr(line, "Streams:"))
            w->uses_stream = 1;
        if (starts(line, "IGNIS_API ")) {
            read_function(w, line);
            return 1;
        }
    }
    return 0;
}

/* Ends the open conditionals, and begins those around w's function without the include guard; nothing if both are
   equal.
   NULL: there is no further function. */
static void change_conditions(text *out, text *open, const walk *w)
{
    text wanted = {0};
    append(&wanted, "", 0);
    for (int i = 1; w && i < w->depth; i++) {
        if (!w->conditions[i][0])
            die("%s is declared in an #else, or in a conditional of several lines", w->name);
        print(&wanted, "%s\n", w->conditions[i]);
    }
    if (!open->data || strcmp(open->data, wanted.data) != 0) {
        for (size_t i = 0; i < open->size; i++)
            if (open->data[i] == '\n')
                print(out, "#endif\n");
        append(out, wanted.data, wanted.size);
        free(open->data);
        *open = wanted;
    } else {
        free(wanted.data);
    }
}

/* >>overloads --------------------------------------------------------------------------------------------------- */

/* Whether a parameter points to one option struct; several of them have a name in the plural. */
static int is_option(const char *parameter)
{
    char type[MAX_NAME], name[MAX_NAME];
    if (sscanf(parameter, "const %63s *%63s", type, name) != 2 || ends(name, "s"))
        return 0;
    return ends(type, "desc") || strcmp(type, "ignis_launch") == 0;
}

/* Splits the parameters of w's function. Returns their number. */
static int split_parameters(const walk *w, char (*parameters)[MAX_LINE])
{
    int count = 0;
    for (const char *s = w->parameters; *s; count++) {
        const char *begin = s;
        for (int depth = 0; *s && (depth > 0 || (*s != ',' && *s != ')')); s++)
            depth += (*s == '(') - (*s == ')');
        if (count == MAX_PARAMETERS || s - begin >= MAX_LINE)
            die("%s has too many parameters", w->name);
        snprintf(parameters[count], MAX_LINE, "%.*s", (int)(s - begin), begin);
        s += *s ? 1 + strspn(s + 1, " ") : 0;
    }
    return count;
}

/* Writes the overload whose parameters of the bits in `referred` are references. */
static void add_overload(text *out, const walk *w, char (*parameters)[MAX_LINE], int count, unsigned referred)
{
    text list = {0}, broken = {0}, call = {0}, begin = {0};
    size_t column;
    print(&begin, "static inline %s%s%s(", w->result, ends(w->result, "*") ? "" : " ", w->name);
    column = begin.size;
    print(&call, "return %s(", w->name);
    for (int i = 0; i < count; i++) {
        char parameter[MAX_LINE];
        char *name = parameters[i] + strlen(parameters[i]);
        const char *end = i == count - 1 ? ")" : ",";
        while (name > parameters[i] && name[-1] != ' ' && name[-1] != '*')
            name--;
        strcpy(parameter, parameters[i]);
        if (referred >> i & 1)
            parameter[name - parameters[i] - 1] = '&';
        if (i > 0 && column + 1 + strlen(parameter) + 1 > MADE_COLUMNS) {
            print(&broken, "\n%*s", (int)begin.size, "");
            column = begin.size;
        } else if (i > 0) {
            print(&broken, " ");
            column++;
        }
        print(&broken, "%s%s", parameter, end);
        column += strlen(parameter) + 1;
        print(&list, "%s%s%s", i ? " " : "", parameter, end);
        print(&call, "%s%s%s%s", i ? " " : "", referred >> i & 1 ? "&" : "", name, end);
    }
    if (begin.size + list.size + call.size + strlen(" { ; }") <= MADE_COLUMNS)
        print(out, "%s%s { %s; }\n", begin.data, list.data, call.data);
    else
        print(out, "%s%s\n{\n    %s;\n}\n", begin.data, broken.data, call.data);
    free(list.data), free(broken.data), free(call.data), free(begin.data);
}

static void add_overloads(text *out)
{
    text made = {0}, open = {0};
    walk w = {0};
    for (w.at = out->data; next_function(&w);) {
        char parameters[MAX_PARAMETERS][MAX_LINE];
        const int count = split_parameters(&w, parameters);
        unsigned options = 0;
        for (int i = 0; i < count; i++)
            options |= (unsigned)is_option(parameters[i]) << i;
        if (options)
            change_conditions(&made, &open, &w);
        for (unsigned referred = 1; referred <= options; referred++)
            if (!(referred & ~options))
                add_overload(&made, &w, parameters, count, referred);
    }
    change_conditions(&made, &open, NULL);
    append(out, made.data, made.size);
    free(made.data), free(open.data);
}

/* >>traced ------------------------------------------------------------------------------------------------------ */

/* Adds the handles that a header defines: structs of nothing but an id. */
static void find_handles(const text *header)
{
    static const char form[] = " {\n    uint64_t id;\n} ";
    for (const char *s = header->data; (s = strstr(s, form)) != NULL;) {
        s += strlen(form);
        print(&handles, " %.*s ", (int)strcspn(s, ";"), s);
    }
}

/* Whether a list has the word, between spaces. */
static int has_word(const char *list, const char *word)
{
    char spaced[MAX_NAME + 2];
    snprintf(spaced, sizeof(spaced), " %s ", word);
    return strstr(list, spaced) != NULL;
}

/* `named` has the names of further functions. */
static void add_traced(text *out, const char *named)
{
    text made = {0}, open = {0};
    walk w = {0};
    int missing = 0;
    for (const char *s = named; (s = strstr(s, " ignis_")) != NULL; s++)
        missing++;
    find_handles(out);
    for (w.at = out->data; next_function(&w);) {
        if (!w.uses_stream && !has_word(handles.data, w.result)) {
            if (!has_word(named, w.name))
                continue;
            missing--;
        }
        change_conditions(&made, &open, &w);
        print(&made, "#define %s(...) IGNIS__AT(%s(__VA_ARGS__))\n", w.name, w.name);
    }
    if (missing)
        die("traced calls: a function is not declared, or traced without its name:%s", named);
    change_conditions(&made, &open, NULL);
    print(out, "/*  IGNIS_TRACE_CALLS: functions that return a handle or put work on a stream first say where they are "
               "called. */\n"
               "#ifdef IGNIS_TRACE_CALLS\n#undef IGNIS__AT\n"
               "#define IGNIS__AT(call) (ignis_call_site(__FILE__, __LINE__), call)\n");
    append(out, made.data, made.size);
    print(out, "#endif\n");
    free(made.data), free(open.data);
}

/* >>contents ---------------------------------------------------------------------------------------------------- */

/* A section of a header. */
typedef struct section {
    char tag[MAX_NAME], title[MAX_LINE];
    int is_declared;
} section;

/* Finds the sections by their marks: ">>tag - title ---" in the declarations, at a banner in the implementation. */
static int find_sections(const char *header, section *sections)
{
    char line[MAX_LINE];
    int count = 0, declared = 1;
    while (next_line(&header, line, sizeof(line))) {
        section s = {{0}, {0}, declared};
        int known = 0;
        declared = declared && strcmp(line, "#ifdef IGNIS_IMPLEMENTATION") != 0;
        if (!starts(line, declared ? "/* >>" : "   >>") || sscanf(line + 5, "%63[a-z_.]", s.tag) != 1)
            continue;
        for (int i = 0; i < count && !known; i++)
            known = strcmp(sections[i].tag, s.tag) == 0;
        if (known)
            continue;
        if (starts(line + 5 + strlen(s.tag), " - ")) {
            char *end;
            snprintf(s.title, sizeof(s.title), "%s", line + 5 + strlen(s.tag) + 3);
            if ((end = strstr(s.title, " --")) != NULL)
                *end = 0;
        }
        if (count == MAX_TAGS)
            die("more than %d sections", MAX_TAGS);
        sections[count++] = s;
    }
    return count;
}

/* Writes a space and a tag, on a line of its own where it does not fit. */
static void add_tag(text *out, size_t *column, const char *mark, const char *tag)
{
    const size_t length = strlen(mark) + strlen(tag);
    if (*column + 1 + length > MADE_COLUMNS) {
        print(out, "\n%24s", "");
        *column = 24;
    } else {
        print(out, " ");
        *column += 1;
    }
    print(out, "%s%s", mark, tag);
    *column += length;
}

/* Whether a heading of the manual names the tag, as "ON ERRORS (>>status)". */
static int names_tag(const char *heading, const char *tag)
{
    while ((heading = strstr(heading, ">>")) != NULL) {
        heading += 2;
        if (starts(heading, tag) && strchr(",)", heading[strlen(tag)]))
            return 1;
    }
    return 0;
}

/* Writes the chapters of the manual that name the tag. */
static void add_chapters(text *out, const char *header, const char *tag, size_t column)
{
    char line[MAX_LINE];
    int count = 0;
    while (next_line(&header, line, sizeof(line)) && !starts(line, "*/")) {
        const char *tags = strstr(line, " (>>");
        if (!starts(line, "    ") || line[4] < 'A' || line[4] > 'Z' || !tags || !names_tag(tags, tag))
            continue;
        if (count++ == 0)
            print(out, "%*s", column < 71 ? (int)(72 - column) : 2, "");
        else
            print(out, ", ");
        print(out, "%.*s", (int)(tags - line - 4), line + 4);
    }
}

static void add_contents(text *out, const char *header)
{
    section sections[MAX_TAGS];
    const int count = find_sections(header, sections);
    int hidden = 0;
    size_t column;
    for (int i = 0; i < count; i++) {
        const section *s = &sections[i];
        const size_t before = out->size, length = strlen(s->tag);
        int families = 0;
        if (!s->is_declared || strchr(s->tag, '.'))
            continue;
        print(out, "        >>%-13s %s", s->tag, s->title);
        column = out->size - before;
        for (int j = 0; j < count; j++)
            if (sections[j].is_declared && starts(sections[j].tag, s->tag) && sections[j].tag[length] == '.') {
                if (families == 0)
                    print(out, ":"), column++;
                add_tag(out, &column, families ? "" : ">>", sections[j].tag + (families ? length : 0));
                families++;
            }
        add_chapters(out, header, s->tag, column);
        print(out, "\n");
    }
    for (int i = 0; i < count; i++)
        if (!sections[i].is_declared) {
            if (hidden++ == 0)
                column = 36, print(out, "\n        In the implementation alone:");
            add_tag(out, &column, ">>", sections[i].tag);
        }
    if (hidden)
        print(out, ".\n");
}

/* >>lines ------------------------------------------------------------------------------------------------------- */

/* Writes where the next line comes from, for --lines. */
static void add_position(text *out, const char *path, int number)
{
    if (with_lines)
        print(out, "#line %d \"%s\"\n", number, path);
}

/* Replaces a line that is meant for this program. 0: it is none. */
static int add_made(text *out, const char *path, int number, const char *line)
{
    static const char traced[] = "// amalgamate: traced calls";
    char named[MAX_LINE];
    if (!strstr(line, "amalgamate: "))
        return 0;
    if (strcmp(line, "// amalgamate: overloads") == 0)
        add_overloads(out);
    else if (starts(line, traced))
        snprintf(named, sizeof(named), "%s ", line + strlen(traced)), add_traced(out, named);
    else if (strcmp(line, "        amalgamate: contents") == 0)
        contents_at = out->size;
    else
        refuse(path, number, "not a line that tools/amalgamate.c knows");
    if (starts(line, "//"))
        add_position(out, path, number + 1);
    return 1;
}

/* Copies a line, with the version where it belongs. */
static void add_line(text *out, const char *path, int number, const char *line)
{
    char name[MAX_NAME];
    int length = 0;
    const char *dash = number == 1 && is_root(path) ? strstr(line, " - ") : NULL;
    if (dash)
        print(out, "%.*s - v%d.%d.%d%s\n", (int)(dash - line), line, version[0], version[1], version[2], dash);
    else if (sscanf(line, "#define %63s IGNIS_VERSION%n", name, &length) == 1 && length && strchr(" ", line[length]))
        print(out, "#define %s %d%s\n", name, 10000 * version[0] + 100 * version[1] + version[2], line + length);
    else
        append(out, line, strlen(line)), append(out, "\n", 1);
}

/* The rooms of src/, from the lowest floor to the highest. */
static const char *const floors[] = {
    " shared ",
    " base ",
    " device ",
    " array ",
    " kernel ",
    " formula ",
    " tensor ",
    " ops ",
    " train linalg file interop report ",
    " models collective ",
};
#define FLOORS ((int)(sizeof(floors) / sizeof(floors[0])))

/* Returns the floor of a part; what is in no room is above all. */
static int floor_of(const char *path)
{
    char room[MAX_NAME] = "";
    int i = 0;
    (void)sscanf(path, "src/%63[^/]", room);
    while (i < FLOORS && !has_word(floors[i], room))
        i++;
    return i;
}

static void add_part(text *out, const char *path);

/* Whether a part begins with a guard: such a part is repeated in each root that includes it, as these may be used in
   any order. */
static int is_guarded(const char *path)
{
    char begin[8] = "";
    FILE *file = fopen(path, "rb");
    const int read = file && fgets(begin, sizeof(begin), file);
    if (file)
        fclose(file);
    return read && strcmp(begin, "#ifndef") == 0;
}

/* Puts the part that a line includes in its place, once, with an empty line behind it unless a comment ends there, or
   an empty line follows (`next` is the rest of the file). 0: the line includes no part. */
static int add_included(text *out, const char *from, int number, const char *line, const char *next)
{
    char name[MAX_PATH], path[MAX_PATH];
    if (strncmp(line, "#include \"", 10) != 0 || sscanf(line + 10, "%500[^\"]", name) != 1)
        return 0;
    resolve(path, from, name);
    if (is_root(path) || !is_file(path))
        return 0;
    if (starts(path, "src/") && floor_of(path) > floor_of(from))
        refuse(from, number, "includes a part of a floor above its own");
    for (int i = is_guarded(path) ? first_of_root : 0; i < included_count; i++)
        if (strcmp(included[i], path) == 0)
            return 1;
    if (included_count == MAX_PARTS)
        die("more than %d parts", MAX_PARTS);
    strcpy(included[included_count++], path);
    add_part(out, path);
    if (strncmp(next, "*/", 2) != 0 && *next != '\n')
        append(out, "\n", 1);
    add_position(out, from, number + 1);
    return 1;
}

/* A room.h declares, behind this line, what the parts of the room define. Headers do without: a definition precedes its
   uses there. */
#define DEFINED_IN_PARTS "/* --- defined in the parts"

static void add_part(text *out, const char *path)
{
    text t = {0};
    const char *rest;
    size_t before;
    int number = 0, depth = 0, copied = 1;
    if (!read_file(path, &t))
        die("cannot open %s", path);
    if (t.size == 0 || t.data[t.size - 1] != '\n')
        refuse(path, 1, "the part does not end with a line end");
    if (t.size > 1 && t.data[t.size - 2] == '\n')
        refuse(path, 1, "the part ends with an empty line");
    if (!is_root(path))
        add_position(out, path, 1);
    for (char *line = t.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = 0;
        number++;
        if (strncmp(path, "src/", 4) == 0) /* and not what tools/embed.c has written */
            check_line(path, number, line, (size_t)(end - line));
        depth += is_directive(line, "if", &rest);
        depth -= is_directive(line, "endif", &rest);
        if (depth < 0) {
            refuse(path, number, "#endif without #if");
            depth = 0;
        }
        copied = copied && !starts(line, DEFINED_IN_PARTS);
        if (!copied)
            continue;
        if (strcmp(line, "#pragma once") == 0) {
            add_position(out, path, number + 1);
            continue;
        }
        before = out->size;
        if (add_included(out, path, number, line, end + 1)) {
            if (out->size == before && end[1] == '\n')
                end++, number++,
                    add_position(out, path,
                                 number + 1); /* the empty line behind an #include of what is there already */
        } else if (!add_made(out, path, number, line)) {
            add_line(out, path, number, line);
        }
    }
    if (depth > 0)
        refuse(path, number, "an #if is not closed in its part");
    free(t.data);
}

/* >>unreached --------------------------------------------------------------------------------------------------- */

static int is_included(const char *path)
{
    for (int i = 0; i < included_count; i++)
        if (strcmp(included[i], path) == 0)
            return 1;
    return is_root(path);
}

/* Refuses the files of a folder, and of those in it, that no root includes. */
static void find_unreached(const char *folder)
{
    DIR *dir = opendir(folder);
    char path[MAX_PATH];
    if (!dir)
        die("cannot open %s", folder);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        DIR *below;
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) >= (int)sizeof(path))
            die("%s/%s: the path is too long", folder, entry->d_name);
        if ((below = opendir(path)) != NULL) {
            closedir(below);
            find_unreached(path);
        } else if (!is_included(path)) {
            refuse(path, 1, "no root includes this part");
        }
    }
    closedir(dir);
}

/* >>headers ----------------------------------------------------------------------------------------------------- */

/* 1: the header is what its parts make; else the first line that differs is named. */
static int check_header(const char *path, const text *made)
{
    text found = {0};
    size_t i;
    int line = 1;
    if (!read_file(path, &found))
        die("cannot open %s; run: make headers", path);
    for (i = 0; i < found.size && i < made->size && found.data[i] == made->data[i]; i++)
        line += found.data[i] == '\n';
    if (i < found.size || i < made->size)
        refuse(path, line, "is not what the parts in src/ make. Change these, then run: make headers");
    i = i == found.size && i == made->size;
    free(found.data);
    return (int)i;
}

/* A header that has not changed is left alone, so that make does not take it for a new one. */
static void write_header(const char *path, const text *made)
{
    text found = {0};
    const int same =
        read_file(path, &found) && found.size == made->size && memcmp(found.data, made->data, made->size) == 0;
    FILE *file;
    free(found.data);
    if (same)
        return;
    file = fopen(path, "wb");
    if (!file || fwrite(made->data, 1, made->size, file) != made->size || fclose(file) != 0)
        die("cannot write %s", path);
}

int main(int argc, char **argv)
{
    const int check = argc == 2 && strcmp(argv[1], "--check") == 0;
    text made[ROOTS] = {{0}};
    with_lines = argc == 3 && strcmp(argv[1], "--lines") == 0;
    if (argc > 1 && !check && !with_lines) {
        fputs("usage: amalgamate [--check | --lines FOLDER]\n", stderr);
        return 2;
    }
    read_version();
    for (int i = 0; i < ROOTS; i++) {
        text t = {0};
        contents_at = 0;
        first_of_root = included_count;
        add_part(&t, roots[i][0]);
        append(&made[i], t.data, contents_at);
        if (contents_at)
            add_contents(&made[i], t.data);
        append(&made[i], t.data + contents_at, t.size - contents_at);
        free(t.data);
    }
    find_unreached("src");
    for (int i = 0; i < ROOTS && !failures; i++) {
        char path[MAX_PATH];
        snprintf(path, sizeof(path), "%s/%s", with_lines ? argv[2] : ".", roots[i][1]);
        if (check)
            check_header(roots[i][1], &made[i]);
        else
            write_header(path, &made[i]);
    }
    for (int i = 0; i < ROOTS; i++)
        free(made[i].data);
    free(handles.data);
    return failures > 0;
}
