// SPDX-License-Identifier: MIT
/*  file_copy.c - the other side of safetensors_roundtrip.py

    file_copy copy IN OUT          loads every tensor of IN, and saves them to OUT
    file_copy fill IN OUT          the same, but loads into tensors that are there already
    file_copy check FILE...        a line for each file: the number of tensors in it, or the name of the status and the
    message */
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say_nothing(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    (void)level, (void)diagnostic, (void)message, (void)user_data;
}

static void copy_file(const char *in, const char *out, bool fill)
{
    int count = ignis_file_list(in, NULL, 0), i;
    ignis_storage_entry *entries;
    const char **names;
    ignis_tensor *tensors;
    ignis_tensor_desc desc;
    if (count < 0)
        return;
    entries = (ignis_storage_entry *)calloc((size_t)count + 1, sizeof *entries);
    names = (const char **)calloc((size_t)count + 1, sizeof *names);
    tensors = (ignis_tensor *)calloc((size_t)count + 1, sizeof *tensors);
    memset(&desc, 0, sizeof desc);
    if (entries && names && tensors && ignis_file_list(in, entries, count) == count) {
        for (i = 0; i < count; i++) {
            names[i] = entries[i].name;
            desc.dtype = entries[i].dtype;
            if (fill)
                tensors[i] = ignis_tensor_zeros(entries[i].shape, &desc);
        }
        if (ignis_status_last() == IGNIS_OK && ignis_load(in, names, tensors, count) == IGNIS_OK)
            ignis_save(out, names, tensors, count);
        for (i = 0; i < count; i++)
            if (tensors[i].id)
                ignis_tensor_release(tensors[i]);
    }
    free(entries);
    free(names);
    free(tensors);
}

int main(int argc, char **argv)
{
    ignis_desc desc;
    int i, count;
    memset(&desc, 0, sizeof desc);
    desc.logger.log_fn = say_nothing;
    if (argc < 3 || ignis_setup(&desc) != IGNIS_OK) {
        fprintf(stderr, "file_copy: %s\n", argc < 3 ? "see the head of file_copy.c" : ignis_status_message());
        return 1;
    }
    if (strcmp(argv[1], "check") != 0 && argc == 4)
        copy_file(argv[2], argv[3], strcmp(argv[1], "fill") == 0);
    for (i = 2; i < argc && strcmp(argv[1], "check") == 0; i++) {
        count = ignis_file_list(argv[i], NULL, 0);
        if (count >= 0)
            printf("%d\n", count);
        else
            printf("%s %s\n", ignis_status_name(ignis_status_last()), ignis_status_message());
        ignis_status_clear();
    }
    if (ignis_status_last() != IGNIS_OK)
        fprintf(stderr, "file_copy: %s\n", ignis_status_message());
    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK;
}
