/*  models/grammar/json_schema.c - translates a JSON schema to GBNF; ignis_grammar_check

    Each set of schemas that hold together becomes a rule, which is numbered. A schema that rules cannot hold exactly
    is refused by name and place.
    May use: gbnf.c, which uses it for schemas within GBNF; schema_*.c, tokenizer/byte_buffer.c. Locks: none. */

#include "room.h"

/*  The rules that every schema shares. White space and numbers are bounded: random sampling would not end
    them. */
static const char *const ignis__schema_rules[] = {
    "ws ::= \" \"? | \"\\n\" [ \\t]{0,32}\n",
    "value ::= object | array | string | number | boolean | null\n",
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)* ws)? \"}\"\n",
    "array ::= \"[\" ws (value (\",\" ws value)* ws)? \"]\"\n",
    "string ::= \"\\\"\" char* \"\\\"\"\n",
    "char ::= [^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" ([0-9a-cA-CefEF] hex{3} | [dD] ([0-7] hex{2} | ",
    "[89abAB] hex{2} \"\\\\u\" [dD] [c-fC-F] hex{2})))\n",
    "hex ::= [0-9a-fA-F]\n",
    "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?\n",
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n",
    "boolean ::= \"true\" | \"false\"\n",
    "null ::= \"null\"\n",
    "nothing ::= []\n", /* no text fits: alternatives with it are removed */
    "control ::= \"\\\\\" ([bfnrt] | \"u00\" (\"0\" [0-7bef] | \"1\" [0-9a-f]))\n", /* one text for each */
};

static int ignis__schema_order_names(const void *a, const void *b)
{
    const ignis__string_name *one = (const ignis__string_name *)a, *other = (const ignis__string_name *)b;
    int order = memcmp(one->text, other->text, one->size < other->size ? one->size : other->size);
    return order ? order : one->size < other->size ? -1 : one->size > other->size;
}

/*  Writes the rules of strings that are none of these keys. Returns their number, as ignis__schema_write_strings. */
static int ignis__schema_write_other_names(ignis__schema *schema, const ignis__list *keys)
{
    ignis__string_name *names = (ignis__string_name *)ignis__alloc(sizeof *names * ((size_t)keys->count + 1));
    ignis__bytes copy = IGNIS__ZERO;
    ignis__string_set set;
    size_t at = 0;
    int64_t i;
    int number = 0;
    bool ok = names != NULL;
    for (i = 0; i < keys->count && ok; i++) {
        const char *name =
            ignis__schema_read_string(schema, ((const char **)(void *)keys->items)[i], 0, &names[i].size);
        ok = ignis__bytes_add(&copy, name, names[i].size);
    }
    for (i = 0; i < keys->count && ok; i++) {
        names[i].text = copy.data + at;
        at += names[i].size;
    }
    if (ok) {
        if (keys->count > 1)
            qsort(names, (size_t)keys->count, sizeof *names, ignis__schema_order_names);
        if (ignis__string_set_of_others(&set, names, (int)keys->count))
            number = ignis__schema_write_strings(schema, &set);
        else
            ignis__grammar_fail(schema->grammar, IGNIS_DIAG_UNSUPPORTED, NULL,
                                "the names of properties are too long for additionalProperties beside them");
        ignis__string_set_free(&set);
    } else {
        ignis__schema_fail_memory(schema);
    }
    ignis__free(names), ignis__free(copy.data);
    return number;
}

/*  Adds a key to the keys of an object, unless it has a key with this name. */
static void ignis__schema_add_key(ignis__schema *schema, ignis__list *keys, const char *key)
{
    const char **added;
    int64_t i;
    for (i = 0; i < keys->count; i++)
        if (ignis__schema_strings_equal(schema, ((const char **)(void *)keys->items)[i], key))
            return;
    if (*key == '"' && (added = (const char **)ignis__grammar_add(schema->grammar, keys)) != NULL)
        *added = key;
}

/*  Writes the rules of what may follow from property i on; its form with r follows another property. */
static void ignis__schema_write_properties(ignis__schema *schema, const ignis__schema_merged *merged, int number,
                                           const ignis__list *keys)
{
    ignis__schema_element elements[IGNIS__SCHEMA_MERGED];
    ignis__bytes *to = &schema->deferred;
    int64_t i;
    int follows, count, k;
    for (i = 0; i < keys->count && !schema->grammar->diagnostic; i++) {
        const char *key = ((const char **)(void *)keys->items)[i];
        bool required = ignis__schema_requires(schema, merged, key), never = false;
        count = ignis__schema_property(schema, merged, key, elements);
        for (k = 0; k < count; k++)
            never = never || schema->text[elements[k] / 8] == 'f';
        for (follows = 0; follows < 2; follows++) {
            ignis__schema_write(schema, to, "v%d-%d%s ::= ", number, (int)i, follows ? "r" : "");
            if (never) {
                ignis__schema_write(schema, to, "nothing");
            } else {
                ignis__schema_write(schema, to, follows ? "\",\" ws " : "");
                ignis__schema_write_literal(schema, to, key);
                ignis__schema_write(schema, to, " \":\" ws ");
                ignis__schema_write_name(schema, to, elements, count);
                ignis__schema_write(schema, to, " v%d-%dr", number, (int)i + 1);
            }
            if (!required)
                ignis__schema_write(schema, to, " | v%d-%d%s", number, (int)i + 1, follows ? "r" : "");
            ignis__schema_write(schema, to, "\n");
        }
    }
}

/*  Writes the rules of an object. Properties keep their order; then come those that are only required, and then
    additional ones. */
static void ignis__schema_write_object(ignis__schema *schema, const ignis__schema_merged *merged, int number)
{
    ignis__schema_element elements[IGNIS__SCHEMA_MERGED];
    ignis__list keys = IGNIS__ZERO;
    ignis__bytes *to = &schema->deferred;
    const char *key;
    bool open = false, closed = false;
    int i, last, count, word, names = 0;
    keys.size = sizeof(const char *);
    for (word = IGNIS__SCHEMA_PROPERTIES; word <= IGNIS__SCHEMA_REQUIRED; word++)
        for (i = 0; i < merged->count; i++) {
            const char *from = merged->node[i].has[word];
            for (key = from ? ignis__schema_first(from) : NULL; key;
                 key = ignis__schema_next(schema, word == IGNIS__SCHEMA_REQUIRED ? key : ignis__schema_value(key)))
                ignis__schema_add_key(schema, &keys, key);
        }
    for (i = 0; i < merged->count; i++) {
        closed =
            closed || (merged->node[i].has[IGNIS__SCHEMA_PROPERTIES] && !merged->node[i].has[IGNIS__SCHEMA_ADDITIONAL]);
        open = open || merged->node[i].has[IGNIS__SCHEMA_ADDITIONAL];
    }
    closed = !open && (closed || keys.count > 0);
    count = ignis__schema_property(schema, merged, NULL, elements);
    for (i = 0; i < count; i++)
        closed = closed || schema->text[elements[i] / 8] == 'f';
    last = (int)keys.count;
    ignis__schema_write(schema, &schema->out, "\"{\" ws v%d-0 \"}\"", number);
    ignis__schema_write_properties(schema, merged, number, &keys);
    if (!closed && last > 0 && !schema->grammar->diagnostic)
        names = ignis__schema_write_other_names(schema, &keys);
    ignis__schema_write(schema, to, "v%d-%d ::= \"\"", number, last);
    for (i = 0; i < 3 && !closed; i++) {
        ignis__schema_write(schema, to,
                            i == 0   ? " | "
                            : i == 1 ? " (\",\" ws "
                                     : " ws\nv%d-%dr ::= (\",\" ws ",
                            number, last);
        if (names)
            ignis__schema_write(schema, to, "\"\\\"\" s%d-0 \":\" ws ", names);
        else
            ignis__schema_write(schema, to, "string \":\" ws ");
        ignis__schema_write_name(schema, to, elements, count);
        ignis__schema_write(schema, to, i == 0 ? "" : ")*");
    }
    if (closed)
        ignis__schema_write(schema, to, "\nv%d-%dr ::=", number, last);
    ignis__schema_write(schema, to, " ws\n");
    ignis__free(keys.items);
}

/*  Writes the values of `enum`, or the value of `const`, that all schemas allow. */
static void ignis__schema_write_values(ignis__schema *schema, const ignis__schema_merged *merged, const char *value,
                                       bool many)
{
    const char *bar = "", *at = many ? ignis__schema_first(value) : value;
    for (; at && !schema->grammar->diagnostic; at = many ? ignis__schema_next(schema, at) : NULL) {
        if (!ignis__schema_allows(schema, merged, at))
            continue;
        ignis__schema_write(schema, &schema->out, "%s", bar);
        if (schema->marker)
            ignis__schema_write_plain(schema, &schema->out, at);
        else
            ignis__schema_write_literal(schema, &schema->out, at);
        bar = " | ";
    }
    if (!*bar)
        ignis__schema_write(schema, &schema->out, "nothing");
}

/*  Writes strings and numbers. */
static void ignis__schema_write_string_type(ignis__schema *schema, const ignis__schema_merged *merged)
{
    ignis__string_set set;
    int least, most;
    ignis__schema_read_counts(schema, merged, IGNIS__SCHEMA_MIN_LENGTH, &least, &most);
    if (most >= 0 && least > most) {
        ignis__schema_write(schema, &schema->out, "nothing");
    } else if (schema->marker) {
        ignis__schema_write_plain_strings(schema, merged, least, most);
    } else if (ignis__schema_make_strings(schema, merged, &set)) {
        ignis__schema_write(schema, &schema->out, "\"\\\"\" s%d-0", ignis__schema_write_strings(schema, &set));
        ignis__string_set_free(&set);
    } else if (least > 0 || most >= 0) {
        ignis__schema_write(schema, &schema->out, "\"\\\"\" char");
        ignis__schema_write_times(schema, &schema->out, least, most);
        ignis__schema_write(schema, &schema->out, " \"\\\"\"");
    } else {
        ignis__schema_write(schema, &schema->out, "string");
    }
}

static void ignis__schema_write_number_type(ignis__schema *schema, const ignis__schema_merged *merged, bool integer)
{
    ignis__number_range range;
    ignis__schema_read_range(schema, merged, &range);
    if (range.has_least || range.has_most || range.multiple)
        ignis__schema_write(schema, &schema->out, "n%d", ignis__schema_write_number(schema, &range, integer));
    else
        ignis__schema_write(schema, &schema->out, integer ? "integer" : "number");
}

/*  Returns the types that keywords constrain, where no schema says a type. */
static unsigned ignis__schema_implied_types(const ignis__schema_merged *merged)
{
    unsigned types = 0;
    int i, word;
    for (i = 0; i < merged->count; i++)
        for (word = IGNIS__SCHEMA_PROPERTIES; word < IGNIS__SCHEMA_WORDS; word++)
            if (merged->node[i].has[word])
                types |= word <= IGNIS__SCHEMA_ADDITIONAL     ? IGNIS__SCHEMA_OBJECT
                         : word <= IGNIS__SCHEMA_UNIQUE_ITEMS ? IGNIS__SCHEMA_ARRAY
                         : word <= IGNIS__SCHEMA_FORMAT       ? IGNIS__SCHEMA_STRING
                                                              : IGNIS__SCHEMA_NUMBER;
    return types;
}

/*  Writes a rule for each alternative of anyOf or oneOf of one of the schemas, together with all others. */
static void ignis__schema_write_alternatives(ignis__schema *schema, const ignis__schema_merged *merged, int choice,
                                             bool one)
{
    ignis__schema_element elements[IGNIS__SCHEMA_MERGED + 1];
    ignis__schema_merged **made = NULL;
    const char *part = merged->node[choice].has[one ? IGNIS__SCHEMA_ONE_OF : IGNIS__SCHEMA_ANY_OF], *bar = "";
    int i, k, word, others = 0, count = 0;
    for (i = 0; i < merged->count; i++) {
        unsigned done = merged->node[i].done;
        if (i == choice)
            done |= one ? IGNIS__SCHEMA_DONE_ONE : IGNIS__SCHEMA_DONE_ANY;
        for (word = 0; word < IGNIS__SCHEMA_WORDS; word++) /* a schema that says nothing else is left out */
            if (merged->node[i].has[word] && word != IGNIS__SCHEMA_REF && word != IGNIS__SCHEMA_ALL_OF &&
                !(word == IGNIS__SCHEMA_ANY_OF && (done & IGNIS__SCHEMA_DONE_ANY)) &&
                !(word == IGNIS__SCHEMA_ONE_OF && (done & IGNIS__SCHEMA_DONE_ONE)))
                break;
        if (word < IGNIS__SCHEMA_WORDS)
            elements[others++] = 8 * (merged->node[i].at - schema->text) + (ignis__schema_element)done;
    }
    for (part = ignis__schema_first(part); part; part = ignis__schema_next(schema, part), bar = " | ", count++) {
        elements[others] = 8 * (part - schema->text);
        ignis__schema_write(schema, &schema->out, "%s", bar);
        ignis__schema_write_name(schema, &schema->out, elements, others + 1);
    }
    if (!one || count < 2 || schema->grammar->diagnostic)
        return;
    made = (ignis__schema_merged **)ignis__alloc(sizeof *made * (size_t)count);
    if (!made)
        ignis__schema_fail_memory(schema);
    part = ignis__schema_first(merged->node[choice].has[IGNIS__SCHEMA_ONE_OF]);
    for (i = 0; made && i < count && !schema->grammar->diagnostic; i++, part = ignis__schema_next(schema, part)) {
        elements[others] = 8 * (part - schema->text);
        made[i] = ignis__schema_merge(schema, elements, others + 1);
        for (k = 0; k < i && made[i] && !schema->grammar->diagnostic; k++)
            if (!ignis__schema_disjoint(schema, made[i], made[k], 0))
                ignis__schema_fail_unsupported(schema, part,
                                               "oneOf is supported where its schemas exclude each other: "
                                               "numbers %d and %d may both fit",
                                               k, i);
    }
    for (i = 0; made && i < count; i++)
        ignis__free(made[i]);
    ignis__free(made);
}

/*  Writes the rule of a set of schemas that hold together. */
static void ignis__schema_write_rule(ignis__schema *schema, int number)
{
    const ignis__schema_set *set = (const ignis__schema_set *)(const void *)schema->sets.items + number;
    ignis__schema_merged *merged = ignis__schema_merge(
        schema, (const ignis__schema_element *)(const void *)schema->elements.items + set->first, set->count);
    const char *value = NULL, *bar = "";
    unsigned types;
    int i;
    bool many = false;
    if (!merged)
        return;
    number += schema->first_set;
    ignis__schema_write(schema, &schema->out, "v%d ::= ", number);
    types = merged->typed ? merged->types : ignis__schema_implied_types(merged);
    if (schema->marker) /* other values than strings have no plain text */
        types = (types || merged->typed ? types : IGNIS__SCHEMA_ANY_TYPE + 0u) & IGNIS__SCHEMA_STRING;
    for (i = 0; i < merged->count; i++) {
        const ignis__schema_node *node = &merged->node[i];
        bool any = node->has[IGNIS__SCHEMA_ANY_OF] && !(node->done & IGNIS__SCHEMA_DONE_ANY);
        if (any || (node->has[IGNIS__SCHEMA_ONE_OF] && !(node->done & IGNIS__SCHEMA_DONE_ONE))) {
            if (!merged->never)
                ignis__schema_write_alternatives(schema, merged, i, !any);
            ignis__schema_write(schema, &schema->out, merged->never ? "nothing\n" : "\n");
            ignis__free(merged);
            return;
        }
        many = !value && node->has[IGNIS__SCHEMA_ENUM] ? true : many;
        value = value ? value : node->has[IGNIS__SCHEMA_ENUM];
        if (node->has[IGNIS__SCHEMA_CONST]) {
            value = node->has[IGNIS__SCHEMA_CONST];
            many = false;
        }
    }
    if (merged->never || ((merged->typed || schema->marker) && !types))
        ignis__schema_write(schema, &schema->out, "nothing");
    else if (value)
        ignis__schema_write_values(schema, merged, value, many);
    else if (!types)
        ignis__schema_write(schema, &schema->out, "value");
    for (i = 0; i < 7 && !value && !merged->never; i++) {
        unsigned type = 1u << i;
        if (!(types & type) || (type == IGNIS__SCHEMA_INTEGER && (types & IGNIS__SCHEMA_NUMBER)))
            continue;
        ignis__schema_write(schema, &schema->out, "%s", bar);
        bar = " | ";
        if (type == IGNIS__SCHEMA_OBJECT)
            ignis__schema_write_object(schema, merged, number);
        else if (type == IGNIS__SCHEMA_ARRAY)
            ignis__schema_write_array(schema, merged, number);
        else if (type == IGNIS__SCHEMA_STRING)
            ignis__schema_write_string_type(schema, merged);
        else if (type == IGNIS__SCHEMA_NUMBER || type == IGNIS__SCHEMA_INTEGER)
            ignis__schema_write_number_type(schema, merged, type == IGNIS__SCHEMA_INTEGER);
        else
            ignis__schema_write(schema, &schema->out, "%s", ignis__schema_types[i]);
    }
    ignis__schema_write(schema, &schema->out, "\n");
    if (schema->deferred.size && !ignis__bytes_add(&schema->out, schema->deferred.data, schema->deferred.size))
        ignis__schema_fail_memory(schema);
    schema->deferred.size = 0;
    ignis__free(merged);
}

/*  Translates a schema to rules of GBNF. The first one is `root`, if the schema is the whole grammar, or else its own
    rule. marker: the schema's strings are plain text without this marker, and other values have no text; NULL: values
    are JSON. NULL after a fault. The caller frees the result. */
IGNIS__PRIVATE char *ignis__schema_translate(ignis__grammar *grammar, const char *text, const char *marker, bool whole)
{
    ignis__schema schema = IGNIS__ZERO;
    ignis__json json = IGNIS__ZERO;
    size_t size = strlen(text);
    ignis__schema_element root;
    ignis__bytes name = IGNIS__ZERO; /* of the first rule, where it is not used */
    int64_t i;
    char *copy = ignis__copy_string(text), *out = NULL; /* parsing modifies it */
    schema.grammar = grammar;
    schema.text = text;
    schema.marker = marker;
    schema.first_set = grammar->sets;
    schema.automata = grammar->automata;
    schema.numbers = grammar->numbers;
    schema.work = grammar->work;
    schema.sets.size = sizeof(ignis__schema_set);
    schema.elements.size = sizeof(ignis__schema_element);
    schema.set_of = (int32_t *)ignis__alloc(sizeof *schema.set_of * (size + 1));
    if (!copy || !schema.set_of)
        ignis__grammar_fail(grammar, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
    json.what = "the schema";
    json.start = json.at = copy;
    json.end = copy ? copy + size : NULL;
    if (!grammar->diagnostic)
        ignis__json_skip(&json);
    if (!grammar->diagnostic && !json.fault[0] && ignis__json_peek(&json))
        ignis__json_fail(&json, "something follows its end");
    if (json.fault[0])
        ignis__grammar_fail(grammar, IGNIS_DIAG_GRAMMAR, NULL, "%s", json.fault);
    if (!grammar->diagnostic) {
        if (whole)
            ignis__schema_write(&schema, &schema.out, "root ::= ");
        root = 8 * (ignis__schema_skip_blank(schema.text) - schema.text);
        ignis__schema_write_name(&schema, whole ? &schema.out : &name, &root, 1);
        if (whole)
            ignis__schema_write(&schema, &schema.out, "\n");
        for (i = 0; i < schema.sets.count && !grammar->diagnostic; i++)
            ignis__schema_write_rule(&schema, (int)i);
        for (i = 0; i < IGNIS__COUNT(ignis__schema_rules) && !grammar->has_schema; i++)
            ignis__schema_write(&schema, &schema.out, "%s", ignis__schema_rules[i]);
        grammar->has_schema = true;
        grammar->sets += (int32_t)schema.sets.count;
        grammar->automata = schema.automata;
        grammar->numbers = schema.numbers;
        grammar->work = schema.work;
        if (!grammar->diagnostic && ignis__bytes_add(&schema.out, "", 1)) {
            out = schema.out.data;
            schema.out.data = NULL;
        } else {
            ignis__grammar_fail(grammar, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
        }
    }
    ignis__free(copy), ignis__free(schema.set_of), ignis__free(schema.sets.items), ignis__free(schema.elements.items);
    ignis__free(schema.out.data), ignis__free(schema.deferred.data), ignis__free(name.data);
    ignis__free(schema.names[0].data), ignis__free(schema.names[1].data);
    return out;
}

/*  Makes a grammar from a text. NULL, and reported, if it is malformed. */
IGNIS__PRIVATE ignis__grammar *ignis__grammar_make(const char *call, const char *source)
{
    ignis__grammar *grammar = (ignis__grammar *)ignis__alloc(sizeof *grammar);
    if (!grammar || (grammar->text = grammar->source = ignis__copy_string(source)) == NULL) {
        ignis__free(grammar);
        ignis__fail_host_memory(call, sizeof *grammar);
        return NULL;
    }
    grammar->rules.size = sizeof(ignis__grammar_rule);
    grammar->alternatives.size = sizeof(ignis__grammar_alternative);
    grammar->parts.size = sizeof(ignis__grammar_part);
    grammar->states.size = sizeof(ignis__grammar_state);
    grammar->places.size = sizeof(ignis__grammar_place);
    grammar->stacks.size = sizeof(ignis__grammar_stack);
    grammar->schemas.size = sizeof(char *);
    if (source[strspn(source, " \t\r\n")] == '{') {
        char *text = ignis__schema_translate(grammar, grammar->source, NULL, true);
        grammar->text = text ? text : grammar->source;
    }
    if (!grammar->diagnostic && ignis__grammar_read_gbnf(grammar)) {
        grammar->rows.size = sizeof(int32_t) * (size_t)grammar->classes;
        if (ignis__grammar_reset_states(grammar))
            return grammar;
    }
    ignis__fail(grammar->diagnostic, call, "%s", grammar->fault);
    ignis__grammar_free(grammar);
    return NULL;
}

IGNIS__COLD IGNIS_API ignis_status ignis_grammar_check(const char *grammar)
{
    static const char call[] = "ignis_grammar_check";
    ignis__grammar *made;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!grammar)
        return ignis__fail_null(call, "grammar");
    made = ignis__grammar_make(call, grammar);
    if (!made)
        return ignis__failed();
    ignis__grammar_free(made);
    return IGNIS_OK;
}
