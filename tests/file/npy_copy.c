// SPDX-License-Identifier: MIT
/*  npy_copy.c - the other side of numpy_compare.py

    npy_copy IN OUT [IN OUT]...    loads each IN, writes its values to stdout and a line "---", and saves it to OUT;
    for a file that cannot be loaded or saved the message instead of the values */
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>

static void say_nothing(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    (void)level, (void)diagnostic, (void)message, (void)user_data;
}

int main(int argc, char **argv)
{
    ignis_desc desc = {0};
    int i;
    desc.logger.log_fn = say_nothing;
    if (ignis_setup(&desc) != IGNIS_OK)
        return 2;
    for (i = 1; i + 1 < argc; i += 2) {
        ignis_tensor tensor = ignis_npy_load(argv[i], NULL);
        if (tensor.id && ignis_npy_save(argv[i + 1], tensor, NULL) == IGNIS_OK)
            ignis_tensor_print(tensor);
        if (ignis_status_last() != IGNIS_OK)
            printf("%s\n", ignis_status_message());
        ignis_status_clear();
        printf("---\n");
        if (tensor.id)
            ignis_tensor_release(tensor);
    }
    return ignis_shutdown() != IGNIS_OK;
}
