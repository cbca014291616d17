// SPDX-License-Identifier: MIT
/*  chat_render.c - renders chat templates for chat_compare.py

    Standard input: cases, each a line of two sizes, then so many bytes of a template and of JSON variables. Standard
    output for each:
    a line "ok SIZE" or "error SIZE" or "unsupported SIZE", then so many bytes: the text, or the message. */
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

static void quiet(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    (void)level, (void)diagnostic, (void)message, (void)user_data;
}

static char *read_bytes(size_t size)
{
    char *text = (char *)calloc(size + 1, 1);
    if (!text || fread(text, 1, size, stdin) != size)
        exit(1);
    return text;
}

int main(void)
{
    unsigned long sizes[2];
    ignis_desc setup;
    memset(&setup, 0, sizeof setup);
    setup.dry_run = true;
    setup.logger.log_fn = quiet;
    if (ignis_setup(&setup) != IGNIS_OK) {
        fprintf(stderr, "%s\n", ignis_status_message());
        return 1;
    }
    while (scanf("%lu %lu", &sizes[0], &sizes[1]) == 2 && getchar() == '\n') {
        static const ignis_tokenizer none = {0};
        char *source = read_bytes(sizes[0]), *json = read_bytes(sizes[1]);
        ignis_chat_desc desc;
        static char out[1 << 22];
        int64_t size;
        memset(&desc, 0, sizeof desc);
        desc.json = json;
        desc.now = 1735732800; /* as chat_compare.py has it */
        desc.chat_template = source;
        size = ignis_chat_render(none, NULL, 0, &desc, out, sizeof out);
        if (size >= 0 && size <= (int64_t)sizeof out) {
            printf("ok %lld\n", (long long)size);
            fwrite(out, 1, (size_t)size, stdout);
        } else {
            const char *message = ignis_status_message();
            printf("%s %lu\n%s", ignis_status_last() == IGNIS_ERROR_UNSUPPORTED ? "unsupported" : "error",
                   (unsigned long)strlen(message), message);
            ignis_status_clear();
        }
        fflush(stdout);
        free(source);
        free(json);
    }
    return ignis_shutdown() != IGNIS_OK;
}
