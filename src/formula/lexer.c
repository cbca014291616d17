/* --- reading a formula ---------------------------------------------------------------------------------------------------- */

#define IGNIS__MAP_TERMS 1000
#define IGNIS__MAP_NAMES 300
#define IGNIS__MAP_TOKENS 1000
#define IGNIS__MAP_DEPTH 60
#define IGNIS__MAP_LENGTH 16384
#define IGNIS__MAP_INDICES 8 /* and so many random numbers */

typedef struct ignis__map_term {
    short function, arg[3];
    char type;        /* w, i or b */
    short length;     /* of text */
    int64_t number;   /* an input's index; an integer; the exponent of a power; the dimension of an index; which random number it is */
    const char *text; /* of a number of type w; null: it is `number` */
} ignis__map_term;

typedef struct ignis__map_name {
    const char *text;
    size_t length;
    int term;
} ignis__map_name;

/*  A formula being read. After the first fault every token is the end. */
typedef struct ignis__map_reader {
    const char *text;
    size_t at, start; /* behind the current token; its place */
    char kind;        /* of the current token: a name (a), a number (0), an operator (+), the end (0) */
    int tokens, depth;
    bool inside; /* the body of a function */
    int name_first, name_count, term_count, result_count, randoms;
    int result[IGNIS_MAX_INPUTS];
    ignis__map_name name[IGNIS__MAP_NAMES];
    ignis__map_term term[IGNIS__MAP_TERMS];
    size_t column;
    char fault[400];
} ignis__map_reader;

static bool ignis__map_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool ignis__map_is_digit(char c) { return c >= '0' && c <= '9'; }
static size_t ignis__map_word(const char *text)
{
    size_t length = 0;
    while (ignis__map_is_letter(text[length]) || (length && ignis__map_is_digit(text[length])))
        length++;
    return length;
}

/*  The length of a number: 12, 1.5, 1.5f, 1e-3 or, of up to 16 digits, 0xff. */
static size_t ignis__map_digits(const char *text)
{
    static const char *const digits = "0123456789";
    size_t length = strspn(text, digits), whole = length, exponent;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        length = strspn(text + 2, "0123456789abcdefABCDEF");
        return length ? 2 + (length < 16 ? length : 16) : 1;
    }
    length += text[length] == '.';
    length += strspn(text + length, digits);
    if (text[length] == 'e' || text[length] == 'E') {
        exponent = 1 + (size_t)(text[length + 1] == '+' || text[length + 1] == '-');
        if (ignis__map_is_digit(text[length + exponent]))
            length += exponent + strspn(text + length + exponent, digits);
    }
    return length + (length > whole && (text[length] == 'f' || text[length] == 'F'));
}

IGNIS__PRINTF(3, 4)
IGNIS__COLD static int ignis__map_fault(ignis__map_reader *r, size_t at, const char *format, ...)
{
    va_list args;
    if (!*r->fault) {
        va_start(args, format);
        vsnprintf(r->fault, sizeof r->fault, format, args);
        va_end(args);
        r->column = at + 1;
        r->kind = 0;
    }
    return 0;
}

/*  Goes on to the next token. */
static void ignis__map_next(ignis__map_reader *r)
{
    const char *text = r->text;
    size_t at = r->at;
    if (*r->fault)
        return;
    at += strspn(text + at, " \t\r\n");
    r->start = at;
    if (!r->inside && ++r->tokens > IGNIS__MAP_TOKENS) {
        ignis__map_fault(r, at, "the formula has more than %d words and signs", IGNIS__MAP_TOKENS);
        return;
    }
    if (!text[at]) {
        r->kind = 0;
    } else if (ignis__map_is_letter(text[at])) {
        r->kind = 'a';
        at += ignis__map_word(text + at);
    } else if (ignis__map_is_digit(text[at]) || (text[at] == '.' && ignis__map_is_digit(text[at + 1]))) {
        r->kind = '0';
        at += ignis__map_digits(text + at);
        if (ignis__map_is_letter(text[at]) || ignis__map_is_digit(text[at]) || text[at] == '.')
            ignis__map_fault(r, at, "'%c' does not belong to a number", text[at]);
    } else {
        r->kind = '+';
        if (!strchr("+-*/%<>=!&|^~?:;(),", text[at]))
            ignis__map_fault(r, at, "'%c' is no part of a formula", text[at] > ' ' && text[at] < 127 ? text[at] : '?');
        else if (text[at] == '*' && text[at + 1] == '*')
            ignis__map_fault(r, at, "'**' is no part of a formula; use pow(a, b)");
        else if ((strchr("&|<>", text[at]) && text[at + 1] == text[at]) || (strchr("<>=!", text[at]) && text[at + 1] == '='))
            at++;
        at++;
    }
    r->at = at;
}

static bool ignis__map_is(const ignis__map_reader *r, const char *sign)
{
    size_t length = strlen(sign);
    return r->kind == '+' && r->at - r->start == length && strncmp(r->text + r->start, sign, length) == 0;
}

static bool ignis__map_take(ignis__map_reader *r, const char *sign)
{
    bool is = ignis__map_is(r, sign);
    if (is)
        ignis__map_next(r);
    return is;
}

/*  The current token for a message, in *out. */
IGNIS__COLD static const char *ignis__map_token(const ignis__map_reader *r, char *out, size_t size)
{
    size_t length = r->at - r->start;
    if (r->kind)
        snprintf(out, size, "'%.*s'", (int)(length < 30 ? length : 30), r->text + r->start);
    else
        snprintf(out, size, "the end");
    return out;
}

static void ignis__map_want(ignis__map_reader *r, const char *sign)
{
    char token[40];
    if (!ignis__map_take(r, sign))
        ignis__map_fault(r, r->start, "'%s' is expected before %s", sign, ignis__map_token(r, token, sizeof token));
}
