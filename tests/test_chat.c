// SPDX-License-Identifier: MIT
/*  test_chat.c - chat templates: texts equal to jinja2's, what is refused and where, limits, and which bytes are whose */
#define IGNIS_MODELS
#include "fault.h"
#include "test.h"

#include "chat_cases.h"

static const char *const no_tokens[] = {NULL};

/*  Renders; the text is the caller's to free, null after a failure. marks: one character for each byte, 1 or 0, in a string like it. */
static char *render(const char *source, const char *json, char **marks)
{
    ignis__chat *chat = (ignis__chat *)malloc(sizeof *chat);
    ignis_chat_desc desc;
    ignis__chat_writer out;
    char *text = NULL;
    memset(&desc, 0, sizeof desc);
    desc.json = json;
    desc.now = 1735732800; /* noon of the first of January 2025 */
    if (ignis__chat_render(chat, "ignis_chat_render", source, NULL, 0, &desc, no_tokens, &out)) {
        text = (char *)calloc(out.size + 1, 1);
        memcpy(text, out.text ? out.text : "", out.size);
        if (marks) {
            size_t i;
            *marks = (char *)calloc(out.size + 1, 1);
            for (i = 0; i < out.size; i++)
                (*marks)[i] = out.marks[i] ? '1' : '0';
        }
    }
    ignis__chat_close(chat);
    free(chat);
    return text;
}

static void check_text(const char *name, const char *source, const char *json, const char *expected)
{
    char *text = render(source, json, NULL);
    if (!text || strcmp(text, expected) != 0)
        test__check_text(__FILE__, __LINE__, name, text ? text : ignis_status_message(), expected, true);
    if (!text)
        ignis_status_clear();
    free(text);
}

#define CHECK_REFUSED(source, json, status, diagnostic, part) check_refused(__LINE__, source, json, status, diagnostic, part)
static void check_refused(int line, const char *source, const char *json, ignis_status status, ignis_diagnostic diagnostic,
                          const char *part)
{
    char *text = render(source, json, NULL);
    test__check_text(__FILE__, line, "text of what should be refused", text ? text : "none", "none", true);
    test__check_failure(__FILE__, line, "ignis_chat_render(...)", status, diagnostic);
    test__check_text(__FILE__, line, "message", test__message, part, false);
    free(text);
}

TEST(cases_are_as_jinja2_has_them)
{
    size_t i;
    setenv("TZ", "UTC", 1);
    tzset();
    SETUP(NULL);
    for (i = 0; i < sizeof chat_cases / sizeof *chat_cases; i++) {
        if (chat_cases[i].text)
            check_text(chat_cases[i].name, chat_cases[i].source, chat_cases[i].variables, chat_cases[i].text);
        else
            CHECK_REFUSED(chat_cases[i].source, chat_cases[i].variables, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_CHAT_REFUSED, chat_cases[i].why);
    }
}

int main(int argc, char **argv) { return test_run(argc, argv); }
