// SPDX-License-Identifier: MIT
/*  settings.c - the command line */

static struct settings {
    const char *path, *host, *key, *name, *allowed, *origins, *form, *adapters, *cache;
    int64_t port, context, sequences, queue, connections, client_connections, max_body;
    int64_t request_time, idle_time, answer_time, grace_time;
    bool limits_all; /* client_connections holds for this machine's own, too */
} settings;

/*  An option is a number with its limits, or a text. */
static const struct option {
    const char *name;
    int64_t *number, usual, least, most;
    const char **text, *help;
} options[] = {
    {"--host name", NULL, 0, 0, 0, &settings.host, "where to listen (127.0.0.1: this machine alone)"},
    {"--port n", &settings.port, 8080, 0, 65535, NULL, "(8080; 0: the system chooses)"},
    {"--allow-host names", NULL, 0, 0, 0, &settings.allowed,
     "names besides localhost that requests may have in Host: a,b"},
    {"--allow-origin sites", NULL, 0, 0, 0, &settings.origins,
     "whose pages may use this server, as https://a.example,http://b; *: all (none)"},
    {"--calls form", NULL, 0, 0, 0, &settings.form,
     "of calls of tools (as the chat template has it): hermes, llama3, ..."},
    {"--adapters list", NULL, 0, 0, 0, &settings.adapters,
     "of LoRA, by the model's name in a request: name=folder,..."},
    {"--api-key keys", NULL, 0, 0, 0, &settings.key, "of which requests have to show one: a,b (SERVE_API_KEY; none)"},
    {"--name name", NULL, 0, 0, 0, &settings.name, "of the model (the last part of MODEL)"},
    {"--context n", &settings.context, 0, 1, 1 << 30, NULL,
     "tokens of a prompt and its answer (the model's, but at most 4096)"},
    {"--cache type", NULL, 0, 0, 0, &settings.cache,
     "of keys and values: f8, q8_0 or q4_0, in half and a quarter of the memory (numbers)"},
    {"--sequences n", &settings.sequences, 0, 1, MAX_SEQUENCES, NULL,
     "requests that are answered at a time (64, or 8 to 32 for want of memory)"},
    {"--queue n", &settings.queue, 512, 0, 1 << 20, NULL, "requests that wait besides (512); more get 429"},
    {"--connections n", &settings.connections, 512, 1, 100000, NULL, "(512); more get 503"},
    {"--client-connections n", &settings.client_connections, 0, 1, 100000, NULL,
     "of one address (half of all, but all of this machine's)"},
    {"--max-body n", &settings.max_body, 2 << 20, 1, 1 << 30, NULL, "bytes of a request (2097152)"},
    {"--request-time s", &settings.request_time, 30, 1, 1000000, NULL,
     "in which a request has to come, and its answer to be taken (30)"},
    {"--idle-time s", &settings.idle_time, 60, 1, 1000000, NULL, "between two requests of a connection (60)"},
    {"--answer-time s", &settings.answer_time, 600, 1, 1000000, NULL, "from a request to the end of its answer (600)"},
    {"--grace-time s", &settings.grace_time, 10, 0, 1000000, NULL,
     "in which running requests may end after SIGINT or SIGTERM (10)"},
};

static void show_help(FILE *file, int code)
{
    size_t i;
    fputs("serve MODEL [--option value ...]      MODEL: a folder with config.json and model.safetensors, or a .gguf "
          "file\n",
          file);
    for (i = 0; i < COUNT(options); i++)
        fprintf(file, "  %-24s %s\n", options[i].name, options[i].help);
    exit(code);
}

/*  Ends the program with the value of an option. */
static void refuse_option(const char *name, const char *value, const char *expected, ...)
{
    va_list arguments;
    va_start(arguments, expected);
    fprintf(stderr, "serve: %s is %s; expected ", name, value);
    vfprintf(stderr, expected, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void read_settings(int argc, char **argv)
{
    static char last[256]; /* part of the path */
    const struct option *o, *end = options + COUNT(options);
    char *rest;
    int i;
    for (o = options; o < end; o++)
        if (o->number)
            *o->number = o->usual;
    settings.host = "127.0.0.1";
    settings.key = getenv("SERVE_API_KEY");
    for (i = 1; i < argc; i++) {
        const char *name = argv[i], *value = argv[i + 1]; /* argv[argc] is null */
        size_t size = strlen(name);
        if (strcmp(name, "--help") == 0)
            show_help(stdout, 0);
        if (strncmp(name, "--", 2) != 0) {
            if (settings.path)
                give_up("one model only: ", name);
            settings.path = name;
            continue;
        }
        for (o = options; o < end && (strncmp(o->name, name, size) != 0 || o->name[size] != ' '); o++)
            continue;
        if (o == end || !value)
            give_up(value ? "no such option (--help lists them): " : "a value is missing after ", name);
        if (o->text)
            *o->text = value;
        else if ((*o->number = strtoll(value, &rest, 10)) < o->least || *o->number > o->most || !*value || *rest)
            refuse_option(name, value, "a number from %lld to %lld", (long long)o->least, (long long)o->most);
        i++;
    }
    if (!settings.path)
        show_help(stderr, 2);
    if (settings.key && !*settings.key)
        settings.key = NULL;
    settings.limits_all = settings.client_connections > 0;
    if (!settings.limits_all)
        settings.client_connections = (settings.connections + 1) / 2;
    if (!settings.name) {
        snprintf(last, sizeof last, "%s", settings.path);
        for (rest = last + strlen(last); rest > last + 1 && rest[-1] == '/'; rest--)
            rest[-1] = 0;
        settings.name = strrchr(last, '/') && strrchr(last, '/')[1] ? strrchr(last, '/') + 1 : last;
    }
}
