// SPDX-License-Identifier: MIT
/*  fake_nccl.h - libraries that look like NCCL, for tests of what cannot be done with them

    Included after ignis.h. */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include <unistd.h>

/*  Compiles a library that says that it is of this version, and has all functions but `without`, which do nothing and
    say that all is well.
    text: source of functions that are to do something else. False where there is no compiler. */
static inline bool fake_nccl(const char *path, int version, const char *without, const char *text)
{
#define FAKE_NCCL_NAME(ret, name, args, version, required) #name,
    static const char *const names[] = {IGNIS__NCCL_API(FAKE_NCCL_NAME)};
    char source[96], line[512];
    FILE *file;
    int i;
    bool ok;
    snprintf(source, sizeof source, "%.80s.c", path);
    file = fopen(source, "w");
    if (!file)
        return false;
    fprintf(file, "int ncclGetVersion(int *version) { *version = %d; return 0; }\n%s", version, text);
    for (i = 0; i < IGNIS__COUNT(names); i++) {
        const char *name = names[i];
        snprintf(line, sizeof line, " %s(", name);
        if (strcmp(name, "ncclGetVersion") != 0 && strcmp(name, without) != 0 && !strstr(text, line))
            fprintf(file, "long %s(void) { return 0; }\n", name);
    }
    fclose(file);
    snprintf(line, sizeof line, "cc -shared -fPIC -w -o %s %s", path, source);
    ok = system(line) == 0;
    unlink(source);
    return ok;
}

#endif /* FAKE_NCCL_H */
