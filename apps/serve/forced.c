// SPDX-License-Identifier: MIT
/*  forced.c - grammars of calls that have to be made, in forms whose arguments are keys and values

    A grammar holds the model to the text that its family's template writes of a call, so that the parser of calls.c
    reads it as any other. Properties come in the schema's order. Strings are plain text up to the marker behind them,
    other values JSON. Where a schema allows strings beside other kinds, and the form does not say which one a value is,
    a string is written as JSON, too: the parser cannot tell "12" from 12 otherwise. A marker that the checkpoint has as
    a control token is that token, as in texts that the model was trained on. */

enum { MAX_GRAMMAR = 4 << 20 }; /* bytes: each property with references has the whole schema beside it */

/*  Adds a text to a literal of GBNF. */
static void print_letters(text *t, const char *s, size_t size)
{
    size_t i;
    for (i = 0; i < size; i++)
        if (s[i] == '"' || s[i] == '\\')
            text_print(t, "\\%c", s[i]);
        else if ((unsigned char)s[i] < 0x20 || s[i] == 0x7F)
            text_print(t, "\\x%02x", (unsigned)s[i]);
        else
            text_add(t, s + i, 1);
}

/*  Markers that the model has as control tokens, which a grammar has by their ids. */
enum { MAX_CONTROLS = 64 };
static struct {
    char text[64];
    int32_t id;
} controls[MAX_CONTROLS];
static int control_count;

/*  Adds a text of the form to a literal of GBNF: control tokens stand between literals. */
static void print_marks(text *t, const char *s, size_t size)
{
    while (size) {
        size_t length = 0, one;
        int32_t id = 0;
        int i;
        for (i = 0; i < control_count; i++) { /* the longest one, as a tokenizer finds them */
            one = strlen(controls[i].text);
            if (one > length && one <= size && memcmp(s, controls[i].text, one) == 0)
                length = one, id = controls[i].id;
        }
        if (length)
            text_print(t, "\" <[%d]> \"", (int)id);
        else
            print_letters(t, s, length = 1);
        s += length, size -= length;
    }
}

static void print_literal(text *t, const char *s, size_t size)
{
    text_print(t, "\"");
    print_marks(t, s, size);
    text_print(t, "\" ");
}

/*  Adds the literals of a pattern of the form with a name in place of %. */
static void print_head(text *t, const char *pattern, const char *name)
{
    const char *percent = strchr(pattern, '%');
    text_print(t, "\"");
    print_marks(t, pattern, (size_t)(percent - pattern));
    print_letters(t, name, strlen(name));
    print_marks(t, percent + 1, strlen(percent + 1));
    text_print(t, "\" ");
}

/*  Adds a key with its value. key: NULL, for any letters; mark: the text in place of `?`; value: GBNF. */
static void print_pair(text *t, const call_form *f, const json *key, const char *mark, const char *value)
{
    const char *at = f->pair;
    int percents = 0;
    text_print(t, "\"");
    for (; *at; at++) {
        size_t size = strcspn(at, "%?");
        print_marks(t, at, size);
        at += size;
        if (!*at)
            break;
        if (*at == '?')
            text_print(t, "%s", mark);
        else if (percents++)
            text_print(t, "\" %s \"", value);
        else if (key)
            print_letters(t, key->key ? key->key : key->string, key->key ? strlen(key->key) : key->size);
        else
            text_print(t, "\" [A-Za-z0-9_-]{1,64} \"");
    }
    text_print(t, "\" ");
}

/*  Prints a schema whose references to places in its root begin with "#/$root". is_names: the members are named as
    they like, as those of `properties` are. */
static void print_moved(text *t, const json *value, bool is_names)
{
    const json *one;
    if (value->kind != JSON_OBJECT && value->kind != JSON_ARRAY) {
        json_print(t, value);
        return;
    }
    text_print(t, value->kind == JSON_ARRAY ? "[" : "{");
    for (one = value->first; one; one = one->next) {
        text_print(t, one == value->first ? "" : ",");
        if (one->key)
            text_print(t, "\""), text_escape(t, one->key, strlen(one->key)), text_print(t, "\":");
        if (one->key && !is_names && strcmp(one->key, "$ref") == 0 && one->kind == JSON_STRING && *one->string == '#') {
            text_print(t, "\"#/$root");
            text_escape(t, one->string + 1, one->size - 1);
            text_print(t, "\"");
        } else if (one->key && !is_names && has_item("const enum default examples", one->key, strncmp)) {
            json_print(t, one); /* values, not schemas */
        } else {
            print_moved(t, one,
                        one->key && !is_names &&
                            has_item("properties $defs definitions patternProperties", one->key, strncmp));
        }
    }
    text_print(t, value->kind == JSON_ARRAY ? "]" : "}");
}

/*  Prints a schema, limited to some types, and its root beside it if it has references. types: as JSON, or NULL. */
static void print_part(text *t, const json *schema, const json *root, const char *types)
{
    text part = {0};
    print_moved(&part, schema, false);
    text_print(t, "{\"allOf\":[%s", part.data);
    if (types)
        text_print(t, ",{\"type\":%s}", types);
    text_print(t, "]");
    if (strstr(part.data, "#/$root")) {
        text_print(t, ",\"$root\":");
        print_moved(t, root, false);
    }
    text_print(t, "}");
    text_free(&part);
}

/*  Prints a rule's part: a property with its value. key: NULL, for any. schema: NULL, for any value. */
static void print_property(text *t, const call_form *f, const json *key, const json *schema, const json *root)
{
    static const json any = {.kind = JSON_TRUE};
    unsigned kinds = kinds_of(schema, root), others = kinds & (KIND_ANY ^ KIND_STRING);
    bool says = strchr(f->pair, '?') != NULL, plain = is_plain(kinds) || (says && kinds & KIND_STRING);
    text value = {0};
    schema = schema ? schema : &any;
    text_print(t, "(");
    if (plain) {
        text_print(&value, "%%text \"");
        print_letters(&value, f->value_end, strlen(f->value_end));
        text_print(&value, "\" ");
        print_part(&value, schema, root, NULL);
        print_pair(t, f, key, "true", value.data);
    }
    if (!plain || others) {
        text_cut(&value, value.size);
        text_print(&value, "%%json ");
        print_part(&value, schema, root,
                   !plain  ? NULL
                   : !says ? "\"null\""
                           : "[\"null\",\"boolean\",\"number\",\"array\",\"object\"]");
        text_print(t, plain ? "| " : "");
        print_pair(t, f, key, "false", value.data);
    }
    text_print(t, ")");
    text_free(&value);
}

static bool has_text(const json *array, const char *string)
{
    const json *one = array ? array->first : NULL;
    while (one && !is_text(one, string))
        one = one->next;
    return one != NULL;
}

/*  Returns whether a parser reads a key as it was written. */
static bool is_clear_key(const call_form *f, const char *key, size_t size)
{
    text written = {0};
    int length;
    bool ok;
    text_add(&written, key, size);
    text_print(&written, "%.*s", (int)strcspn(f->key_end, "|"), f->key_end);
    ok = size && find_marker(written.data, written.size, 0, f->key_end, &length) == size;
    text_free(&written);
    return ok;
}

/*  Prints the pairs of a tool's arguments, as a rule's parts. False if the form cannot have them: *why is a text, which
    the caller frees. */
static bool print_pairs(text *t, const call_form *f, const json *function, text *why)
{
    const char *name = member(function, "name")->string;
    const json *root = member(function, "parameters"), *object = find_parameters(root), *one;
    const json *properties = member(object, "properties"), *required = member(object, "required"), *other;
    if (!root || !root->count)
        return true;
    if (!object || object->kind != JSON_OBJECT || !(kinds_of(object, root) & KIND_OBJECT) || member(object, "allOf") ||
        member(object, "anyOf") || member(object, "oneOf") || member(object, "enum") || member(object, "const")) {
        text_print(why,
                   "the parameters of %s have to be an object of properties, without allOf, anyOf, oneOf, enum and "
                   "const: a call in the form of this model (%s) is keys and values",
                   name, f->name);
        return false;
    }
    for (one = properties ? properties->first : NULL; one && t->size <= MAX_GRAMMAR; one = one->next) {
        if (!is_clear_key(f, one->key, strlen(one->key)))
            break;
        print_property(t, f, one, one, root);
        text_print(t, has_text(required, one->key) ? " " : "? ");
    }
    for (other = one || !required ? NULL : required->first; other && t->size <= MAX_GRAMMAR; other = other->next) {
        if (other->kind != JSON_STRING ||
            (properties && find_property(object, other->string, other->size) != member(object, "additionalProperties")))
            continue;
        one = other;
        if (!is_clear_key(f, other->string, other->size))
            break;
        one = NULL;
        print_property(t, f, other, member(object, "additionalProperties"), root);
    }
    if (t->size > MAX_GRAMMAR) {
        text_print(why, "the parameters of %s are too large", name);
        return false;
    }
    if (one) {
        text_print(why,
                   "the parameter %s of %s cannot be told from the markers of calls in the form of this model (%s)",
                   one->key ? one->key : one->string, name, f->name);
        return false;
    }
    other = member(object, "additionalProperties");
    if ((!properties || !properties->count) && (!properties || other) && !(required && required->count) &&
        !(other && other->kind == JSON_FALSE)) {
        print_property(t, f, NULL, other, root);
        text_print(t, "{0,16}");
    }
    return true;
}

/*  Prints a grammar of calls. The text before it, which begins the first call, is *head. only: the tool that has to be
    called, or NULL; several: further calls may follow. False if the form cannot have one: *why is a text. */
static bool print_forced(text *grammar, text *head, const call_form *f, const json *tools, const json *only,
                         bool several, text *why)
{
    const char *percent = strchr(f->forced, '%'), *next = strchr(f->next, '%');
    const json *one;
    int i = 0;
    bool ok = true;
    text_print(grammar, "root ::= %s ", only ? "arguments0" : "call");
    print_literal(grammar, f->end, strlen(f->end));
    if (several) {
        text_print(grammar, "(");
        print_literal(grammar, f->next, (size_t)(next - f->next));
        text_print(grammar, "call ");
        print_literal(grammar, f->end, strlen(f->end));
        text_print(grammar, ")* ");
    }
    print_literal(grammar, f->finish, strlen(f->finish));
    for (one = tools->first; one && ok; one = one->next) {
        const json *function = member(one, "function");
        if (only && function != only)
            continue;
        text_print(grammar, "\narguments%d ::= \"\" ", i++);
        ok = print_pairs(grammar, f, function, why);
    }
    if (several || !only) {
        text_print(grammar, "\ncall ::= ");
        for (one = tools->first, i = 0; one; one = one->next) {
            if (only && member(one, "function") != only)
                continue;
            text_print(grammar, i ? "| " : "");
            print_head(grammar, percent, member(member(one, "function"), "name")->string);
            text_print(grammar, "arguments%d ", i++);
        }
    }
    text_print(grammar, "\n");
    text_add(head, f->forced, (size_t)(percent - f->forced));
    if (only)
        text_print(head, "%s%s", member(only, "name")->string, percent + 1);
    return ok;
}
