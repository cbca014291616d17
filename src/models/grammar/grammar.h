/* >>grammar - texts of a given form ----------------------------------------------------------------------------- */

/*  ignis_grammar_check - check a grammar, as ignis_sequence_grammar does
    A text that begins with { is a JSON schema. Keywords: type, enum, const, allOf, anyOf, oneOf (its schemas have
    to exclude each other), $ref to "#" and "#/..." (a JSON pointer, also into arrays), properties, required,
    additionalProperties, items, prefixItems, additionalItems, minItems, maxItems, uniqueItems (of up to 8 values of
    an enum), minLength, maxLength, pattern, format, minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf
    (up to 512 units of its last decimal). They hold together in any combination. Regular expressions are those of
    ECMA-262 without assertions other than ^ and $, references to groups and \p. Formats: date, time, date-time,
    duration, uuid, ipv4, ipv6, email, hostname, uri, json-pointer, relative-json-pointer; other words than those of
    JSON Schema are remarks. Keywords that constrain texts and are not supported are refused by name and place, such
    as not, if, contains and patternProperties; all other words are remarks.
    Each text of the grammar is valid. Texts are JSON with the schema's properties in its order, then those that
    are only required, additional ones at the end (none unless additionalProperties is there, or there are
    no properties), little white space, and numbers of up to 16 digits, 16 decimals, and exponents of two digits;
    without exponents, and without a zero that is negative, where bounds or multipleOf hold. Strings with a pattern
    or a format, and additional names, have no escapes but the shortest one of a character that needs one. A missing
    type follows from the keywords.
    Any other text is GBNF as of llama.cpp: rules "name ::= ...", of which root is the text; literals, classes
    [a-z] and [^a-z], the point for any character, names, groups, alternatives, * + ? {n} {n,} {n,m}, comments
    from # on, the escapes \n \r \t \\ \" \[ \] \xFF \uFFFF \UFFFFFFFF. A rule must not begin with itself.
    Rules may nest 500 deep in a text: sampling does not go deeper. States of a text that take more than 16 MB are
    refused while it is sampled.
    <[7]> is the control token with the id 7, as of llama.cpp; nothing else matches a control token.
    Two items are Ignis' own: %json {schema} is a value of a schema, and %text "marker" {schema} a string of a schema
    as plain text, without quotes and escapes, in which the marker does not occur; other values than strings have no
    such text. So "<a>" %text "</a>" {"maxLength": 9} "</a>" is a string between two markers. A long maxLength beside
    it may exclude the marker's first characters, too.
    Returns: IGNIS_OK, or the reason, with line and column, or the byte of the schema.
    Errors: ARGUMENT (null, malformed, or no text of it ever ends), UNSUPPORTED (a keyword of schemas that
    Ignis does not have; a grammar that is too large or too ambiguous), MEMORY.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_grammar_check(const char *grammar);
