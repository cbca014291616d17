// SPDX-License-Identifier: MIT
/*  text.c - memory, the clock, and text that grows */

static void give_up(const char *what, const char *which)
{
    fprintf(stderr, "serve: %s%s\n", what, which);
    exit(1);
}

/*  Ends the program without memory: all that clients can ask for has a limit. */
static void *resize(void *memory, size_t size)
{
    memory = realloc(memory, size ? size : 1);
    if (!memory)
        give_up("out of memory", "");
    return memory;
}

static void *allocate(size_t count, size_t size) { return memset(resize(NULL, count * size), 0, count * size); }

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- text -------------------------------------------------------------------------------------------------------- */

/*  Bytes that grow, with a 0 behind them. */
typedef struct text {
    char *data;
    size_t size, capacity;
} text;

/*  Adds bytes. data: null, if the caller writes them afterwards. */
static void text_add(text *t, const char *data, size_t size)
{
    if (t->capacity - t->size < size + 1) {
        t->capacity = 2 * t->capacity + size + 64;
        t->data = (char *)resize(t->data, t->capacity);
    }
    if (data)
        memcpy(t->data + t->size, data, size);
    t->size += size;
    t->data[t->size] = 0;
}

static void text_print(text *t, const char *format, ...)
{
    va_list arguments;
    int size;
    va_start(arguments, format);
    size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    text_add(t, NULL, (size_t)size);
    va_start(arguments, format);
    vsnprintf(t->data + t->size - size, (size_t)size + 1, format, arguments);
    va_end(arguments);
}

/*  Removes bytes at the front. */
static void text_cut(text *t, size_t size)
{
    if (size)
        memmove(t->data, t->data + size, t->size - size + 1);
    t->size -= size;
}

static void text_free(text *t)
{
    free(t->data);
    memset(t, 0, sizeof *t);
}

/*  Returns the bytes of the character at s: 1 to 4; 0 if it is not UTF-8; -1 if it may become UTF-8 when more comes. */
static int utf8_length(const char *s, size_t size)
{
    const unsigned char *u = (const unsigned char *)s;
    int i, length = u[0] < 0x80 ? 1 : u[0] < 0xC2 ? 0 : u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : u[0] < 0xF5 ? 4 : 0;
    for (i = 1; i < length; i++) {
        int low = i > 1 ? 0x80 : u[0] == 0xE0 ? 0xA0 : u[0] == 0xF0 ? 0x90 : 0x80; /* not in more bytes than needed */
        int high = i > 1          ? 0xBF
                   : u[0] == 0xED ? 0x9F
                   : u[0] == 0xF4 ? 0x8F
                                  : 0xBF; /* no surrogates, none above 10FFFF */
        if ((size_t)i >= size)
            return -1;
        if (u[i] < low || u[i] > high)
            return 0;
    }
    return length;
}

/*  Adds a text as between the quotation marks of a JSON string; bytes that are not UTF-8 become U+FFFD. */
static void text_escape(text *t, const char *s, size_t size)
{
    const char *end = s + size;
    while (s < end) {
        int length = utf8_length(s, (size_t)(end - s));
        if (length <= 0)
            text_print(t, "\xEF\xBF\xBD");
        else if (*s == '"' || *s == '\\')
            text_print(t, "\\%c", *s);
        else if (*s == '\n')
            text_print(t, "\\n");
        else if ((unsigned char)*s < 0x20 || *s == 0x7F)
            text_print(t, "\\u%04x", *s);
        else
            text_add(t, s, (size_t)length);
        s += length <= 0 ? 1 : length;
    }
}

/*  Returns whether a list, as "a, b; c", has an item; compare: strncmp, or strncasecmp where the case of letters does
    not matter. */
static bool has_item(const char *list, const char *item, int (*compare)(const char *, const char *, size_t))
{
    while (list && *list) {
        size_t size = strcspn(list, ", \t;");
        if (size && size == strlen(item) && compare(list, item, size) == 0)
            return true;
        list += size + (list[size] != 0);
    }
    return false;
}
