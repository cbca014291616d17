/*  kernel/record.c - records: the programs that a run requests, a line each

    Written while the program runs, read by ignis_embed and ignis_warmup_record.
    May use: program.c, base/file_io.c. Locks: ignis__requests.lock guards the hashes of written lines and the file. */

#include "room.h"

IGNIS__PRIVATE struct ignis__requests_type ignis__requests = {IGNIS__MUTEX_INIT, {0}, false, NULL, 0, 0, false};

/*  Returns the compute capabilities that a built-in source compiles for. */
IGNIS__PRIVATE void ignis__program_range(const ignis__program *program, int *first, int *last)
{
    bool own = program->own != NULL, wgmma = own && strstr(program->name, "hopper");
    int i;
    *first = wgmma ? 90 : own && strstr(program->name, "_mma.") ? 80 : 0;
    for (i = 0; own && i < program->option_count; i++)
        *first = strstr(program->options[i], "-DIGNIS_CLUSTERS") ? 90 : *first;
    *last = wgmma ? 90 : IGNIS__EVERY_ARCH;
}

/*  Writes a program as messages and bundles name it: "gemm_mma.cu ignis_gemm_mma -DIGNIS_T=2 -DIGNIS_TRANSPOSE_A=0",
    "kernel.cu scale<float> -DN=4". */
IGNIS__COLD IGNIS__PRIVATE void ignis__program_write(ignis__string_writer *text, const ignis__program *program)
{
    const char *which = program->part ? program->part : program->entry;
    int i;
    if (program->formula) {
        ignis__string_add(text, "the formula '%s'", program->formula);
        return;
    }
    ignis__string_add(text, "%s%s%s", program->name, which ? " " : "", which ? which : "");
    for (i = 0; i < program->option_count; i++)
        ignis__string_add(text, " %s", program->options[i]);
}

IGNIS__COLD static void ignis__request_quote(ignis__string_writer *text, const char *word)
{
    ignis__string_add(text, " \"");
    while (*word) {
        size_t plain = strcspn(word, "\"\\\r\n");
        ignis__string_add(text, "%.*s", (int)plain, word);
        word += plain;
        if (*word)
            ignis__string_add(text, "\\%c", *word == '\n' ? 'n' : *word == '\r' ? 'r' : *word);
        word += *word != 0;
    }
    ignis__string_add(text, "\"");
}

IGNIS__COLD static void ignis__request_write(ignis__string_writer *text, const ignis__program *program, int first,
                                             int last)
{
    int i;
    if (program->line) {
        ignis__string_add(text, "%s\n", program->line);
        return;
    }
    ignis__string_add(text, "%s %d-%d", program->own ? "own" : "kernel", first, last);
    if (program->own) {
        ignis__string_add(text, " ");
        ignis__program_write(text, program);
    } else {
        ignis__request_quote(text, program->name);
        ignis__request_quote(text, program->entry ? program->entry : "");
        ignis__request_quote(text, program->source);
        ignis__string_add(text, " %d", program->option_count);
        for (i = 0; i < program->option_count; i++)
            ignis__request_quote(text, program->options[i]);
        for (i = 0; i < program->header_count; i++) {
            ignis__request_quote(text, program->headers[i].name);
            ignis__request_quote(text, program->headers[i].text);
        }
    }
    ignis__string_add(text, "\n");
}

/*  Appends a line to a file in one write, so that lines of several processes stay whole. Links are not followed.
    is_private: files that other users own or may write to are refused. False, with the reason in *why, on failure. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__line_append(const char *path, const char *line, bool is_private, char *why,
                                                   size_t size)
{
    FILE *file = ignis__file_create(path, IGNIS__FILE_APPEND);
    bool ok;
    *why = 0;
    if (file && is_private && !ignis__stream_is_private(file, why, size)) {
        fclose(file);
        return false;
    }
    ok = file && setvbuf(file, NULL, _IONBF, 0) == 0 && fwrite(line, strlen(line), 1, file) == 1;
    if (!ok)
        ignis__system_error(why, size);
    return file && fclose(file) == 0 && ok;
}

/*  Checks whether a line is new, and remembers it if there is memory. The lock is held. */
IGNIS__COLD static bool ignis__request_is_new(uint64_t hash)
{
    int i;
    for (i = 0; i < ignis__requests.count; i++)
        if (ignis__requests.lines[i] == hash)
            return false;
    if (ignis__requests.count == ignis__requests.room) {
        int room = 2 * ignis__requests.room + 64;
        uint64_t *lines = (uint64_t *)ignis__alloc((size_t)room * sizeof *lines);
        if (!lines)
            return true;
        if (ignis__requests.count)
            memcpy(lines, ignis__requests.lines, (size_t)ignis__requests.count * sizeof *lines);
        ignis__free(ignis__requests.lines);
        ignis__requests.lines = lines;
        ignis__requests.room = room;
    }
    ignis__requests.lines[ignis__requests.count++] = hash;
    return true;
}

IGNIS__COLD IGNIS__PRIVATE void ignis__request_add(const ignis__program *program, int first, int last)
{
    ignis__string_writer text;
    char *line = NULL, why[160] = "out of memory";
    size_t size = 0;
    int turn;
    if (!ignis__requests.path[0])
        return;
    for (turn = 0; turn < 2; turn++) { /* the first measures */
        ignis__string_begin(&text, line, size);
        ignis__request_write(&text, program, first, last);
        if (turn == 0 && (line = (char *)ignis__alloc(size = text.length + 1)) == NULL)
            break;
    }
    ignis__mutex_lock(&ignis__requests.lock);
    if (!line || (ignis__request_is_new(ignis__hash(IGNIS__HASH_START, line, size)) &&
                  !ignis__line_append(ignis__requests.path, line, ignis__requests.from_environment, why, sizeof why) &&
                  !ignis__requests.broken)) {
        ignis__requests.broken = true;
        ignis__log(IGNIS_LOG_WARNING, IGNIS_DIAG_BUNDLE_IO, "%s cannot be recorded in %s: %s", program->name,
                   ignis__requests.path, why);
    }
    ignis__mutex_unlock(&ignis__requests.lock);
    ignis__free(line);
}
