/*  kernel/record_read.c - reads the lines of a record

    Records are untrusted: a line that is not understood is refused with the reason.
    May use: record.c. Locks: none. */

#include "room.h"

IGNIS__PRIVATE void ignis__request_free(ignis__request *request)
{
    ignis__free(request->headers);
    ignis__free(request->text);
    request->headers = NULL;
    request->text = NULL;
}

/*  Reads the next word of a line in place: in quotes, with the escapes \n, \r, \" and \\, or up to a blank. NULL if
    there is none, or (*whole is false) if the closing quote is missing. */
IGNIS__COLD IGNIS__PRIVATE char *ignis__request_word(char **line, bool *whole)
{
    char *from = *line + strspn(*line, " "), *word = from, *to;
    if (*from == 0)
        return NULL;
    if (*from != '"') {
        from += strcspn(from, " ");
        *line = from + (*from != 0);
        *from = 0;
        return word;
    }
    word = to = ++from;
    for (; *from && *from != '"'; from++) {
        bool escaped = *from == '\\' && from[1];
        from += escaped;
        *to++ = (char)(!escaped ? *from : *from == 'n' ? '\n' : *from == 'r' ? '\r' : *from);
    }
    *whole = *whole && *from == '"';
    *line = from + (*from != 0);
    *to = 0;
    return *whole ? word : NULL;
}

/*  Reads source, part and options of a line. */
IGNIS__COLD static bool ignis__request_read_builtin(char *line, ignis__request *request, bool *whole,
                                                    ignis__string_writer *why)
{
    ignis__program *program = &request->program;
    char *word = ignis__request_word(&line, whole);
    const ignis__source *source;
    ignis__builtin builtin;
    int i = 0;
    while ((source = ignis__source_at(i)) != NULL && word && strcmp(source->name, word) != 0)
        i++;
    if (!word || !source)
        return ignis__explain(why, "Ignis has no source %s", word ? word : "");
    if (!source->pieces)
        return ignis__explain(why, "%s is of the operations of tensors, which IGNIS_NO_TENSORS leaves out", word);
    program->own = source;
    program->name = source->name;
    program->source = "";
    word = ignis__request_word(&line, whole);
    if (word && *word != '-') {
        i = 0;
        while ((builtin = ignis__builtin_of_source(source, i)) != NULL &&
               strcmp(ignis__builtin_part(builtin), word) != 0)
            i++;
        if (!builtin)
            return ignis__explain(why, "%s of Ignis has no part %s", program->name, word);
        program->part = word;
        word = ignis__request_word(&line, whole);
    }
    for (; word; word = ignis__request_word(&line, whole)) {
        if (program->option_count == IGNIS__MAX_OPTIONS)
            return ignis__explain(why, "there are more than %d options", IGNIS__MAX_OPTIONS);
        request->options[program->option_count++] = word;
    }
    return true;
}

/*  Reads a program with all of its text. */
IGNIS__COLD static bool ignis__request_read_kernel(char *line, ignis__request *request, bool *whole,
                                                   ignis__string_writer *why)
{
    ignis__program *program = &request->program;
    char *name = ignis__request_word(&line, whole), *entry = ignis__request_word(&line, whole);
    char *source = ignis__request_word(&line, whole), *word = ignis__request_word(&line, whole);
    long options = word ? strtol(word, NULL, 10) : -1;
    if (options < 0 || options > IGNIS__MAX_OPTIONS)
        return ignis__explain(why,
                              "a kernel is a name, an entry, a source, a number of options, the options, and headers");
    program->name = name;
    program->entry = *entry ? entry : NULL;
    program->source = source;
    for (; options > 0 && (word = ignis__request_word(&line, whole)) != NULL; options--)
        request->options[program->option_count++] = word;
    if (options > 0)
        return ignis__explain(why, "there are fewer options than the line says");
    request->headers = (ignis_kernel_header *)ignis__alloc((strlen(line) / 4 + 1) *
                                                           sizeof *request->headers); /* two words in quotes each */
    if (!request->headers)
        return ignis__explain(why, "out of memory");
    while ((word = ignis__request_word(&line, whole)) != NULL) {
        request->headers[program->header_count].name = word;
        request->headers[program->header_count++].text = word = ignis__request_word(&line, whole);
        if (!word)
            return ignis__explain(why, "a header has no text");
    }
    program->headers = request->headers;
    return true;
}

/*  Reads a line, which it changes; the request then points into it. False, with the reason in `why`, if it is not a
    record line. read_formula: ignis__request_read_formula, or NULL where there are no formulas. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__request_read(char *line, ignis__request_reader *read_formula,
                                                    ignis__request *request, ignis__string_writer *why)
{
    bool whole = true, read = false;
    char *word = ignis__request_word(&line, &whole),
         *range = word && *word != '#' ? ignis__request_word(&line, &whole) : NULL, *end = word;
    memset(request, 0, sizeof *request);
    request->program.options = request->options;
    if (whole && (!word || *word == '#'))
        return true;
    if (whole && strcmp(word, "ignis") == 0) {
        if (range && atoi(range) == IGNIS_VERSION)
            return true;
        return ignis__explain(why, "the record is of version %s, this is %d; record again", range ? range : "",
                              IGNIS_VERSION);
    }
    request->first = range ? (int)strtol(range, &end, 10) : -1;
    request->last = range && *end == '-' ? (int)strtol(end + 1, &end, 10) : -1;
    if (!whole)
        ;
    else if (request->first < 0 || request->last < 0 || request->last > IGNIS__EVERY_ARCH || *end)
        ignis__string_add(why, "'%s' must be followed by a range of compute capabilities, such as 80-%d", word,
                          IGNIS__EVERY_ARCH);
    else if (strcmp(word, "own") == 0)
        read = ignis__request_read_builtin(line, request, &whole, why);
    else if (strcmp(word, "kernel") == 0)
        read = ignis__request_read_kernel(line, request, &whole, why);
    else if (strcmp(word, "formula") == 0)
        read = read_formula ? read_formula(line, request, &whole, why)
                            : ignis__explain(why, "it is a formula, and IGNIS_NO_TENSORS leaves formulas out");
    else
        ignis__string_add(why, "'%s' is not ignis, own, formula or kernel", word);
    if (!whole) {
        ignis__string_begin(why, why->data, why->capacity);
        ignis__string_add(why, "a word has no quote at its end");
    }
    if (read && whole)
        return true;
    ignis__request_free(request);
    return false;
}
