// SPDX-License-Identifier: MIT
/*  dirent.h - what the tests use of it, for compilers of Microsoft's kind */
#ifndef DIRENT_H
#define DIRENT_H

#include <io.h>
#include <stdio.h>
#include <stdlib.h>

struct dirent {
    char d_name[260];
};
typedef struct DIR {
    intptr_t find;
    struct _finddata64_t next;
    int any;
    struct dirent entry;
} DIR;

static inline DIR *opendir(const char *path)
{
    char pattern[600];
    DIR *folder = (DIR *)calloc(1, sizeof *folder);
    snprintf(pattern, sizeof pattern, "%s/*", path);
    if (folder && (folder->find = _findfirst64(pattern, &folder->next)) != -1)
        return folder->any = 1, folder;
    free(folder);
    return NULL;
}
static inline struct dirent *readdir(DIR *folder)
{
    if (!folder->any)
        return NULL;
    snprintf(folder->entry.d_name, sizeof folder->entry.d_name, "%s", folder->next.name);
    folder->any = _findnext64(folder->find, &folder->next) == 0;
    return &folder->entry;
}
static inline int closedir(DIR *folder)
{
    _findclose(folder->find);
    free(folder);
    return 0;
}

#endif /* DIRENT_H */
