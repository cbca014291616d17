// SPDX-License-Identifier: MIT
/* ignis_models.h alone; with -DIGNIS_IMPLEMENTATION its implementation, and that of ignis.h, too. As a program
   (-DWITH_MAIN) it checks that the kernels of models are known before the first call of a model: it reads a record that
   names one, and one that names no kernel. */
#include "ignis_models.h"

#ifdef WITH_MAIN
#include <stdio.h>
#include <string.h>

static int is_read(const char *name, const char *line)
{
    FILE *file = fopen(name, "w");
    int read = 0;
    if (file && fputs(line, file) >= 0 && fclose(file) == 0) {
        const ignis_ticket ticket = ignis_warmup_record(name);
        read = ticket.id != 0 && ignis_ticket_wait(ticket) == IGNIS_OK;
    }
    remove(name);
    return read;
}

int main(int argc, char **argv)
{
    ignis_desc dry;
    char name[300];
    int known, unknown;
    memset(&dry, 0, sizeof dry);
    dry.dry_run = argc > 0;
    if (ignis_setup(&dry) != IGNIS_OK)
        return 2;
    snprintf(name, sizeof name, "%s.record", argv[0]);
    known = is_read(name, "own 0-999 gemv.cu ignis_gemv_1 -DIGNIS_T=1\n");
    unknown = is_read(name, "own 0-999 gemv.cu ignis_gemv_3 -DIGNIS_T=1\n");
    ignis_status_clear();
    return ignis_shutdown() == IGNIS_OK && known && !unknown ? 0 : 1;
}
#endif
