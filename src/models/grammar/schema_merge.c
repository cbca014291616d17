/*  models/grammar/schema_merge.c - schemas that hold together: the keywords of each, the values that they allow, and
    whether two such sets exclude each other

    A schema is merged with the schemas that its $ref and allOf name, and with those of other schemas for the same
    value. anyOf and oneOf are left: the caller makes a set of each alternative. Keywords that constrain texts and
    are not supported are refused by name; other unknown words are remarks, as JSON Schema has it.
    May use: schema_text.c, schema_number.c, schema_string.c. Locks: none. */

#include "room.h"

static const char *const ignis__schema_unsupported[] = {"not",
                                                        "if",
                                                        "contains",
                                                        "patternProperties",
                                                        "propertyNames",
                                                        "minProperties",
                                                        "maxProperties",
                                                        "dependencies",
                                                        "dependentRequired",
                                                        "dependentSchemas",
                                                        "$dynamicRef",
                                                        "$recursiveRef",
                                                        "unevaluatedItems",
                                                        "unevaluatedProperties",
                                                        "extends",
                                                        "disallow",
                                                        "divisibleBy"};

/*  Checks that keywords whose values are read by several functions have values of the right type. */
static void ignis__schema_check_node(ignis__schema *schema, const ignis__schema_node *node)
{
    const char *const *has = node->has;
    int word;
    if ((has[IGNIS__SCHEMA_PROPERTIES] && *has[IGNIS__SCHEMA_PROPERTIES] != '{') ||
        (has[IGNIS__SCHEMA_REQUIRED] && *has[IGNIS__SCHEMA_REQUIRED] != '['))
        ignis__schema_fail_malformed(schema, node->at, "properties has to be an object, and required an array");
    if (has[IGNIS__SCHEMA_ENUM] && (*has[IGNIS__SCHEMA_ENUM] != '[' || !ignis__schema_first(has[IGNIS__SCHEMA_ENUM])))
        ignis__schema_fail_malformed(schema, has[IGNIS__SCHEMA_ENUM], "enum has to be an array of at least one value");
    for (word = IGNIS__SCHEMA_ALL_OF; word <= IGNIS__SCHEMA_ONE_OF; word++)
        if (has[word] && (*has[word] != '[' || !ignis__schema_first(has[word])))
            ignis__schema_fail_malformed(schema, has[word], "%s has to be an array of at least one schema",
                                         ignis__schema_words[word]);
    if (has[IGNIS__SCHEMA_PREFIX_ITEMS] && *has[IGNIS__SCHEMA_PREFIX_ITEMS] != '[')
        ignis__schema_fail_malformed(schema, has[IGNIS__SCHEMA_PREFIX_ITEMS], "prefixItems has to be an array");
    if (has[IGNIS__SCHEMA_UNIQUE_ITEMS] && *has[IGNIS__SCHEMA_UNIQUE_ITEMS] != 't' &&
        *has[IGNIS__SCHEMA_UNIQUE_ITEMS] != 'f')
        ignis__schema_fail_malformed(schema, has[IGNIS__SCHEMA_UNIQUE_ITEMS], "uniqueItems has to be true or false");
}

/*  Reads the keywords of a schema. */
static void ignis__schema_read_node(ignis__schema *schema, ignis__schema_node *node, const char *at)
{
    const char *key, *name;
    size_t size;
    int i;
    memset(node, 0, sizeof *node);
    node->at = at;
    for (key = ignis__schema_first(at); key && !schema->grammar->diagnostic;
         key = ignis__schema_next(schema, ignis__schema_value(key))) {
        name = ignis__schema_read_string(schema, key, 0, &size);
        for (i = 0; i < IGNIS__COUNT(ignis__schema_unsupported); i++)
            if (strlen(ignis__schema_unsupported[i]) == size && memcmp(ignis__schema_unsupported[i], name, size) == 0)
                ignis__schema_fail_unsupported(schema, key, "the keyword '%s' is not supported",
                                               ignis__schema_unsupported[i]);
        for (i = 0; i < IGNIS__SCHEMA_WORDS; i++)
            if (strlen(ignis__schema_words[i]) == size && memcmp(ignis__schema_words[i], name, size) == 0)
                node->has[i] = ignis__schema_value(key);
    }
    ignis__schema_check_node(schema, node);
}

/*  Returns the types that a schema says, as bits. A number may be an integer. */
static unsigned ignis__schema_read_types(ignis__schema *schema, const char *at)
{
    const char *name = *at == '[' ? ignis__schema_first(at) : at;
    unsigned types = 0;
    int i;
    if (!name)
        ignis__schema_fail_malformed(schema, at, "this is no type");
    for (; name && !schema->grammar->diagnostic; name = *at == '[' ? ignis__schema_next(schema, name) : NULL) {
        for (i = 0; i < 7; i++)
            if (ignis__schema_string_is(schema, name, ignis__schema_types[i], strlen(ignis__schema_types[i])))
                break;
        if (i == 7)
            ignis__schema_fail_malformed(schema, name, "this is no type");
        else
            types |= 1u << i;
    }
    return types & IGNIS__SCHEMA_NUMBER ? types | IGNIS__SCHEMA_INTEGER : types;
}

/*  Adds a schema, and those that its $ref and allOf name. */
static void ignis__schema_merge_one(ignis__schema *schema, ignis__schema_merged *merged, const char *at, unsigned done)
{
    ignis__schema_node *node;
    const char *part;
    int i;
    if (schema->grammar->diagnostic || *at == 't')
        return;
    if (*at == 'f') {
        merged->never = true;
        return;
    }
    if (*at != '{') {
        ignis__schema_fail_malformed(schema, at, "a schema is an object, or true, or false");
        return;
    }
    for (i = 0; i < merged->count; i++) {
        node = &merged->node[i];
        if (node->at != at)
            continue;
        if (node->open)
            ignis__schema_fail_malformed(schema, at, "$ref leads back to where it is, so no text of it ever ends");
        else if (node->given && (node->has[IGNIS__SCHEMA_REF] || node->has[IGNIS__SCHEMA_ALL_OF] ||
                                 node->has[IGNIS__SCHEMA_ANY_OF] || node->has[IGNIS__SCHEMA_ONE_OF]))
            ignis__schema_fail_unsupported(schema, at,
                                           "a $ref to this from its own alternatives, or from those beside "
                                           "it, is not supported");
        return;
    }
    if (merged->count == IGNIS__SCHEMA_MERGED) {
        ignis__schema_fail_unsupported(schema, at, "more than %d schemas hold together", (int)IGNIS__SCHEMA_MERGED);
        return;
    }
    node = &merged->node[merged->count++];
    ignis__schema_read_node(schema, node, at);
    if (node->has[IGNIS__SCHEMA_TYPE]) {
        merged->typed = true;
        merged->types &= ignis__schema_read_types(schema, node->has[IGNIS__SCHEMA_TYPE]);
    }
    node->done = done | IGNIS__SCHEMA_DONE_REF;
    node->given = done != 0;
    node->open = true;
    if (!done && node->has[IGNIS__SCHEMA_REF] &&
        (part = ignis__schema_resolve(schema, node->has[IGNIS__SCHEMA_REF])) != NULL)
        ignis__schema_merge_one(schema, merged, part, 0);
    if (!done && (part = node->has[IGNIS__SCHEMA_ALL_OF]) != NULL) {
        for (part = schema->grammar->diagnostic ? NULL : ignis__schema_first(part); part;
             part = ignis__schema_next(schema, part))
            ignis__schema_merge_one(schema, merged, part, 0);
    }
    node->open = false;
}

/*  Merges the schemas of a set. NULL after a fault; the caller frees it with ignis__free. */
IGNIS__PRIVATE ignis__schema_merged *ignis__schema_merge(ignis__schema *schema, const ignis__schema_element *elements,
                                                         int count)
{
    ignis__schema_merged *merged = (ignis__schema_merged *)ignis__alloc(sizeof *merged);
    int i;
    if (!merged) {
        ignis__schema_fail_memory(schema);
        return NULL;
    }
    merged->types = IGNIS__SCHEMA_ANY_TYPE;
    for (i = 0; i < count; i++)
        ignis__schema_merge_one(schema, merged, schema->text + elements[i] / 8, (unsigned)(elements[i] % 8));
    if (!schema->grammar->diagnostic)
        return merged;
    ignis__free(merged);
    return NULL;
}

/*  Returns the value of the member of an object with the name of a key elsewhere; NULL if it is missing. */
IGNIS__PRIVATE const char *ignis__schema_find_key(ignis__schema *schema, const char *object, const char *key)
{
    const char *other = ignis__schema_first(object);
    while (other && !ignis__schema_strings_equal(schema, other, key))
        other = ignis__schema_next(schema, ignis__schema_value(other));
    return other ? ignis__schema_value(other) : NULL;
}

/*  Tells whether an object needs a property. */
IGNIS__PRIVATE bool ignis__schema_requires(ignis__schema *schema, const ignis__schema_merged *merged, const char *key)
{
    const char *name;
    int i;
    for (i = 0; i < merged->count; i++)
        for (name = merged->node[i].has[IGNIS__SCHEMA_REQUIRED]
                        ? ignis__schema_first(merged->node[i].has[IGNIS__SCHEMA_REQUIRED])
                        : NULL;
             name; name = ignis__schema_next(schema, name))
            if (ignis__schema_strings_equal(schema, name, key))
                return true;
    return false;
}

/*  Adds a schema to a set of up to IGNIS__SCHEMA_MERGED, once. Returns the number of elements. */
static int ignis__schema_add_element(ignis__schema *schema, ignis__schema_element *elements, int count, const char *at)
{
    int i;
    for (i = 0; i < count; i++)
        if (elements[i] == 8 * (at - schema->text))
            return count;
    elements[count] = 8 * (at - schema->text);
    return count + 1;
}

/*  Collects the schemas of the property with the name of a key; of other properties if the key is NULL. Returns
    their number. */
IGNIS__PRIVATE int ignis__schema_property(ignis__schema *schema, const ignis__schema_merged *merged, const char *key,
                                          ignis__schema_element *elements)
{
    int i, count = 0;
    for (i = 0; i < merged->count; i++) {
        const char *const *has = merged->node[i].has;
        const char *at = key && has[IGNIS__SCHEMA_PROPERTIES]
                             ? ignis__schema_find_key(schema, has[IGNIS__SCHEMA_PROPERTIES], key)
                             : NULL;
        at = at ? at : has[IGNIS__SCHEMA_ADDITIONAL];
        if (at)
            count = ignis__schema_add_element(schema, elements, count, at);
    }
    return count;
}

/*  Tells whether two values are the same: numbers by their value, objects in any order. */
IGNIS__PRIVATE bool ignis__schema_values_equal(ignis__schema *schema, const char *a, const char *b)
{
    bool digit[2] = {*a == '-' || ignis__formula_is_digit(*a), *b == '-' || ignis__formula_is_digit(*b)};
    ignis__schema_decimal one, other;
    const char *at, *found;
    int count[2] = {0, 0};
    if (digit[0] != digit[1] || (!digit[0] && *a != *b))
        return false;
    if (digit[0]) {
        size_t size = (size_t)(ignis__schema_value_end(a) - a);
        return ignis__decimal_read(&one, a) && ignis__decimal_read(&other, b)
                   ? ignis__decimal_compare(&one, &other) == 0
                   : size == (size_t)(ignis__schema_value_end(b) - b) && memcmp(a, b, size) == 0;
    }
    if (*a == '"')
        return ignis__schema_strings_equal(schema, a, b);
    if (*a == '[') {
        for (at = ignis__schema_first(a), found = ignis__schema_first(b);
             at && found && ignis__schema_values_equal(schema, at, found);) {
            at = ignis__schema_next(schema, at);
            found = ignis__schema_next(schema, found);
        }
        return !at && !found;
    }
    if (*a != '{')
        return true;
    for (at = ignis__schema_first(b); at; at = ignis__schema_next(schema, ignis__schema_value(at)))
        count[1]++;
    for (at = ignis__schema_first(a); at; at = ignis__schema_next(schema, ignis__schema_value(at)), count[0]++) {
        found = ignis__schema_find_key(schema, b, at);
        if (!found || !ignis__schema_values_equal(schema, ignis__schema_value(at), found))
            return false;
    }
    return count[0] == count[1];
}

/*  Returns the type of a value. */
static unsigned ignis__schema_type_of(const char *value)
{
    ignis__schema_decimal number;
    switch (*value) {
    case '{': return IGNIS__SCHEMA_OBJECT;
    case '[': return IGNIS__SCHEMA_ARRAY;
    case '"': return IGNIS__SCHEMA_STRING;
    case 't':
    case 'f': return IGNIS__SCHEMA_BOOLEAN;
    case 'n': return IGNIS__SCHEMA_NULL;
    default: break;
    }
    return ignis__decimal_read(&number, value) && number.fraction == 0 ? IGNIS__SCHEMA_INTEGER : IGNIS__SCHEMA_NUMBER;
}

/*  Returns the number of characters of a string. */
static int64_t ignis__schema_length(const char *text, size_t size)
{
    int64_t count = 0;
    size_t i;
    for (i = 0; i < size; i++)
        count += (text[i] & 0xC0) != 0x80;
    return count;
}

/*  Tells whether merged schemas allow a value of an enum or const. Fails where keywords of objects or arrays are beside
    the value of such a type. */
IGNIS__PRIVATE bool ignis__schema_allows(ignis__schema *schema, const ignis__schema_merged *merged, const char *value)
{
    unsigned type = ignis__schema_type_of(value);
    const char *text = NULL, *at;
    int i, word, least, most;
    bool fits = !merged->never && (merged->types & type) != 0;
    size_t size = 0;
    for (i = 0; i < merged->count && fits && !schema->grammar->diagnostic; i++) {
        const char *const *has = merged->node[i].has;
        if (has[IGNIS__SCHEMA_CONST] && !ignis__schema_values_equal(schema, has[IGNIS__SCHEMA_CONST], value))
            return false;
        if ((at = has[IGNIS__SCHEMA_ENUM]) != NULL && *at == '[') {
            for (at = ignis__schema_first(at); at && !ignis__schema_values_equal(schema, at, value);)
                at = ignis__schema_next(schema, at);
            fits = at != NULL;
        }
        for (word = IGNIS__SCHEMA_PROPERTIES; word <= IGNIS__SCHEMA_UNIQUE_ITEMS; word++)
            if (has[word] && type == (word <= IGNIS__SCHEMA_ADDITIONAL ? IGNIS__SCHEMA_OBJECT : IGNIS__SCHEMA_ARRAY))
                ignis__schema_fail_unsupported(schema, value, "a value of this type beside %s is not supported",
                                               ignis__schema_words[word]);
    }
    if (fits && (type & (IGNIS__SCHEMA_NUMBER | IGNIS__SCHEMA_INTEGER))) {
        ignis__number_range range;
        ignis__schema_decimal number;
        ignis__schema_read_range(schema, merged, &range);
        if (range.has_least || range.has_most || range.multiple) {
            if (!ignis__decimal_read(&number, value))
                ignis__schema_fail_unsupported(schema, value,
                                               "a number of more than %d digits is not supported beside bounds",
                                               (int)IGNIS__DECIMAL_DIGITS);
            else
                fits = ignis__number_range_has(&range, &number);
        }
    } else if (fits && type == IGNIS__SCHEMA_STRING) {
        ignis__string_set set;
        ignis__schema_read_counts(schema, merged, IGNIS__SCHEMA_MIN_LENGTH, &least, &most);
        text = ignis__schema_read_string(schema, value, 1, &size);
        fits = ignis__schema_length(text, size) >= least && (most < 0 || ignis__schema_length(text, size) <= most);
        if (fits && ignis__schema_make_strings(schema, merged, &set)) {
            text = ignis__schema_read_string(schema, value, 1, &size);
            fits = ignis__string_set_has(&set, text, size);
            ignis__string_set_free(&set);
        }
    }
    return fits && !schema->grammar->diagnostic;
}

static bool ignis__schema_counts_disjoint(ignis__schema *schema, const ignis__schema_merged *a,
                                          const ignis__schema_merged *b, int word)
{
    int least[2], most[2];
    ignis__schema_read_counts(schema, a, word, &least[0], &most[0]);
    ignis__schema_read_counts(schema, b, word, &least[1], &most[1]);
    return (most[0] >= 0 && most[0] < least[1]) || (most[1] >= 0 && most[1] < least[0]);
}

static bool ignis__schema_strings_disjoint(ignis__schema *schema, const ignis__schema_merged *a,
                                           const ignis__schema_merged *b)
{
    ignis__string_set set, other;
    bool disjoint = ignis__schema_counts_disjoint(schema, a, b, IGNIS__SCHEMA_MIN_LENGTH);
    if (disjoint || !ignis__schema_make_strings(schema, a, &set))
        return disjoint;
    if (ignis__schema_make_strings(schema, b, &other)) {
        disjoint = ignis__string_set_intersect(&set, &other) && ignis__string_set_is_empty(&set);
        ignis__string_set_free(&other);
    }
    ignis__string_set_free(&set);
    return disjoint;
}

static bool ignis__schema_numbers_disjoint(ignis__schema *schema, const ignis__schema_merged *a,
                                           const ignis__schema_merged *b)
{
    ignis__number_range range[2];
    int i, order;
    ignis__schema_read_range(schema, a, &range[0]);
    ignis__schema_read_range(schema, b, &range[1]);
    for (i = 0; i < 2; i++)
        if (range[i].has_most && range[1 - i].has_least) {
            order = ignis__decimal_compare(&range[i].most, &range[1 - i].least);
            if (order < 0 || (order == 0 && (range[i].below || range[1 - i].above)))
                return true;
        }
    return false;
}

IGNIS__PRIVATE bool ignis__schema_disjoint(ignis__schema *schema, const ignis__schema_merged *a,
                                           const ignis__schema_merged *b, int nested);

/*  Tells whether a property that one of two objects needs excludes the other one. */
static bool ignis__schema_objects_disjoint(ignis__schema *schema, const ignis__schema_merged *a,
                                           const ignis__schema_merged *b, int nested)
{
    ignis__schema_element elements[IGNIS__SCHEMA_MERGED];
    ignis__schema_merged *one, *other;
    const char *name;
    bool disjoint = false;
    int i, count;
    for (i = 0; i < a->count; i++)
        for (name = a->node[i].has[IGNIS__SCHEMA_REQUIRED] && *a->node[i].has[IGNIS__SCHEMA_REQUIRED] == '['
                        ? ignis__schema_first(a->node[i].has[IGNIS__SCHEMA_REQUIRED])
                        : NULL;
             name && !disjoint && !schema->grammar->diagnostic; name = ignis__schema_next(schema, name)) {
            count = ignis__schema_property(schema, a, name, elements);
            one = ignis__schema_merge(schema, elements, count);
            count = ignis__schema_property(schema, b, name, elements);
            other = ignis__schema_merge(schema, elements, count);
            disjoint = one && other && ignis__schema_disjoint(schema, one, other, nested + 1);
            ignis__free(one), ignis__free(other);
        }
    return disjoint;
}

/*  Returns 1 if no value of an enum or const of `a` is allowed by `b`, 0 if one may be, -1 without such keywords. */
static int ignis__schema_values_disjoint(ignis__schema *schema, const ignis__schema_merged *a,
                                         const ignis__schema_merged *b)
{
    const char *value;
    int i, word;
    for (i = 0; i < a->count; i++)
        for (word = IGNIS__SCHEMA_ENUM; word <= IGNIS__SCHEMA_CONST; word++) {
            if ((value = a->node[i].has[word]) == NULL || (word == IGNIS__SCHEMA_ENUM && *value != '['))
                continue;
            for (value = word == IGNIS__SCHEMA_ENUM ? ignis__schema_first(value) : value; value;
                 value = word == IGNIS__SCHEMA_ENUM ? ignis__schema_next(schema, value) : NULL)
                if ((*value == '{' || *value == '[' || ignis__schema_allows(schema, a, value)) &&
                    ((*value == '{' || *value == '[') ? (b->types & ignis__schema_type_of(value)) != 0
                                                      : ignis__schema_allows(schema, b, value)))
                    return 0;
            return 1;
        }
    return -1;
}

/*  Tells whether no value fits both of two merged schemas, as far as their keywords show it. Alternatives that are
    not chosen yet are not looked at. */
IGNIS__PRIVATE bool ignis__schema_disjoint(ignis__schema *schema, const ignis__schema_merged *a,
                                           const ignis__schema_merged *b, int nested)
{
    unsigned types = a->types & b->types;
    int values;
    if (a->never || b->never || !types)
        return true;
    if (nested > 3 || schema->grammar->diagnostic)
        return false;
    values = ignis__schema_values_disjoint(schema, a, b);
    values = values < 0 ? ignis__schema_values_disjoint(schema, b, a) : values;
    if (values >= 0)
        return values > 0;
    if (types & (IGNIS__SCHEMA_BOOLEAN | IGNIS__SCHEMA_NULL))
        return false;
    return !((types & (IGNIS__SCHEMA_NUMBER | IGNIS__SCHEMA_INTEGER)) &&
             !ignis__schema_numbers_disjoint(schema, a, b)) &&
           !((types & IGNIS__SCHEMA_STRING) && !ignis__schema_strings_disjoint(schema, a, b)) &&
           !((types & IGNIS__SCHEMA_ARRAY) && !ignis__schema_counts_disjoint(schema, a, b, IGNIS__SCHEMA_MIN_ITEMS)) &&
           !((types & IGNIS__SCHEMA_OBJECT) && !ignis__schema_objects_disjoint(schema, a, b, nested) &&
             !ignis__schema_objects_disjoint(schema, b, a, nested)) &&
           !schema->grammar->diagnostic;
}
