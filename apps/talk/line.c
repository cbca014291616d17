// SPDX-License-Identifier: MIT
/*  line.c - reads a line in a terminal, which can be edited: keys as in Emacs and readline, a history, pasted lines

    Where the input is no terminal, or on Windows, lines come as they are. The terminal is in raw mode only while a line
    is being edited. A line that is wider than the terminal is shown around its cursor. */
#ifdef _WIN32
static int line_edit(const char *prompt, char *line, size_t capacity)
{
    (void)prompt, (void)line, (void)capacity;
    return -2;
}
#else
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY = 100 };
static char *line_history[HISTORY];
static int line_count;

typedef struct line_state {
    const char *prompt;
    char *text;
    size_t size, capacity, cursor; /* bytes */
    int row;                       /* of the history; line_count: the new line */
    char *kept;                    /* the new line, while an older one is shown */
    int pasting;
} line_state;

static void line_remember(const char *text)
{
    char *copy;
    if (!*text || (line_count && strcmp(line_history[line_count - 1], text) == 0) ||
        !(copy = (char *)malloc(strlen(text) + 1)))
        return;
    if (line_count == HISTORY) {
        free(line_history[0]);
        memmove(line_history, line_history + 1, sizeof line_history - sizeof *line_history);
        line_count--;
    }
    line_history[line_count++] = strcpy(copy, text);
}

/*  The bytes of the character at s, and its columns. */
static size_t line_character(const char *s, size_t left, int *columns)
{
    mbstate_t state;
    wchar_t wide;
    size_t size;
    memset(&state, 0, sizeof state);
    size = mbrtowc(&wide, s, left, &state);
    *columns = 1;
    if (size == 0 || size > left)
        return 1;
    *columns = wcwidth(wide);
    *columns = *columns < 0 ? 1 : *columns;
    return size;
}

static size_t line_before(const line_state *l, size_t at)
{
    while (at > 0 && ((unsigned char)l->text[--at] & 0xC0) == 0x80)
        continue;
    return at;
}

static size_t line_after(const line_state *l, size_t at)
{
    int columns;
    return at < l->size ? at + line_character(l->text + at, l->size - at, &columns) : at;
}

/*  Draws the part of the line around the cursor that fits. */
static void line_draw(const line_state *l)
{
    struct winsize window;
    int room = 80, width = 0, columns, back = 0;
    size_t from = l->cursor, at, size;
    if (ioctl(1, TIOCGWINSZ, &window) == 0 && window.ws_col > 10)
        room = window.ws_col;
    room -= (int)strlen(l->prompt) + 2;
    while (from > 0) { /* as much as fits in front of the cursor */
        at = line_before(l, from);
        line_character(l->text + at, l->size - at, &columns);
        if (width + columns > room)
            break;
        width += columns;
        from = at;
    }
    printf("\r%s", l->prompt);
    for (at = from; at < l->size; at += size) {
        size = line_character(l->text + at, l->size - at, &columns);
        if (at >= l->cursor && (width += columns) > room)
            break;
        back += at >= l->cursor ? columns : 0;
        if ((unsigned char)l->text[at] < 32)
            putchar(' ');
        else
            fwrite(l->text + at, 1, size, stdout);
    }
    printf("\033[K");
    if (back)
        printf("\033[%dD", back);
    fflush(stdout);
}

static void line_insert(line_state *l, const char *bytes, size_t size)
{
    if (l->size + size >= l->capacity)
        return;
    memmove(l->text + l->cursor + size, l->text + l->cursor, l->size - l->cursor + 1);
    memcpy(l->text + l->cursor, bytes, size);
    l->size += size;
    l->cursor += size;
}

/*  Takes bytes out; the cursor is where they were. */
static void line_remove(line_state *l, size_t from, size_t to)
{
    memmove(l->text + from, l->text + to, l->size - to + 1);
    l->size -= to - from;
    l->cursor = from;
}

static void line_set(line_state *l, const char *text)
{
    l->size = strlen(text) < l->capacity ? strlen(text) : l->capacity - 1;
    memmove(l->text, text, l->size);
    l->text[l->size] = 0;
    l->cursor = l->size;
}

/*  Shows another line of the history. */
static void line_move(line_state *l, int by)
{
    int to = l->row + by;
    if (to < 0 || to > line_count)
        return;
    if (l->row == line_count) {
        free(l->kept);
        l->kept = (char *)malloc(l->size + 1);
        if (l->kept)
            strcpy(l->kept, l->text);
    }
    l->row = to;
    line_set(l, to < line_count ? line_history[to] : l->kept ? l->kept : "");
}

static int line_byte(void)
{
    unsigned char byte;
    return read(0, &byte, 1) == 1 ? byte : -1;
}

/*  A key that sends ESC [ ... or ESC O ... */
static void line_escape(line_state *l)
{
    int number = 0, key = line_byte();
    if (key != '[' && key != 'O')
        return;
    for (key = line_byte(); key >= '0' && key <= '9'; key = line_byte())
        number = number < 1000 ? 10 * number + key - '0' : number;
    while (key == ';' || (key >= '0' && key <= '9')) /* with Shift, Control and so on */
        key = line_byte();
    if (key == 'A' || key == 'B')
        line_move(l, key == 'A' ? -1 : 1);
    else if (key == 'C')
        l->cursor = line_after(l, l->cursor);
    else if (key == 'D')
        l->cursor = line_before(l, l->cursor);
    else if (key == 'H' || (key == '~' && (number == 1 || number == 7)))
        l->cursor = 0;
    else if (key == 'F' || (key == '~' && (number == 4 || number == 8)))
        l->cursor = l->size;
    else if (key == '~' && number == 3)
        line_remove(l, l->cursor, line_after(l, l->cursor));
    else if (key == '~' && (number == 200 || number == 201))
        l->pasting = number == 200;
}

/*  Control keys, as in readline. */
static void line_control(line_state *l, int key)
{
    size_t from = l->cursor;
    switch (key) {
    case 1: l->cursor = 0; break;                             /* Ctrl-A */
    case 2: l->cursor = line_before(l, l->cursor); break;     /* Ctrl-B */
    case 4: line_remove(l, from, line_after(l, from)); break; /* Ctrl-D */
    case 5: l->cursor = l->size; break;                       /* Ctrl-E */
    case 6: l->cursor = line_after(l, l->cursor); break;      /* Ctrl-F */
    case 11: line_remove(l, from, l->size); break;            /* Ctrl-K */
    case 12: printf("\033[H\033[2J"); break;                  /* Ctrl-L */
    case 14: line_move(l, 1); break;                          /* Ctrl-N */
    case 16: line_move(l, -1); break;                         /* Ctrl-P */
    case 21: line_remove(l, 0, from); break;                  /* Ctrl-U */
    case 27: line_escape(l); break;
    case 8:
    case 127: line_remove(l, line_before(l, from), from); break;
    case 23: /* Ctrl-W: a word */
        while (from > 0 && l->text[from - 1] == ' ')
            from--;
        while (from > 0 && l->text[from - 1] != ' ')
            from--;
        line_remove(l, from, l->cursor);
        break;
    default: break;
    }
}

/*  Reads keys up to Enter. 1: a line; 0: Ctrl-C; -1: Ctrl-D in an empty line, or the end of the input. */
static int line_keys(line_state *l)
{
    for (;;) {
        int key;
        char byte;
        line_draw(l);
        key = line_byte();
        byte = (char)key;
        if (key < 0 || (key == 4 && !l->size))
            return -1;
        if (key == 3)
            return 0;
        if (l->pasting && (key == '\r' || key == '\n'))
            line_insert(l, "\n", 1);
        else if (key == '\r' || key == '\n')
            return 1;
        else if ((key < 32 && key != '\t') || key == 127)
            line_control(l, key);
        else
            line_insert(l, &byte, 1);
    }
}

/*  As line_keys; -2: the input or the output is no terminal. */
static int line_edit(const char *prompt, char *line, size_t capacity)
{
    struct termios before, raw;
    line_state l;
    int result;
    if (!isatty(0) || !isatty(1) || tcgetattr(0, &before) != 0)
        return -2;
    memset(&l, 0, sizeof l);
    l.prompt = prompt;
    l.text = line;
    l.capacity = capacity;
    l.row = line_count;
    line[0] = 0;
    raw = before;
    raw.c_iflag &= ~(tcflag_t)(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
    raw.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(0, TCSADRAIN, &raw);
    printf("\033[?2004h"); /* tells us what is pasted */
    result = line_keys(&l);
    l.cursor = l.size;
    line_draw(&l);
    printf("\033[?2004l\n");
    fflush(stdout);
    tcsetattr(0, TCSADRAIN, &before);
    free(l.kept);
    if (result == 1)
        line_remember(line);
    return result;
}
#endif
