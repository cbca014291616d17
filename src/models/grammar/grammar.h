/* >>grammar - texts of a given form ----------------------------------------------------------------------------- */

/*  ignis_grammar_check - check a grammar, as ignis_sequence_grammar does
    A text that begins with { is a JSON schema. Supported keywords: type, enum, const, properties, required,
    additionalProperties (false; without properties also true and a schema), items, minItems, maxItems,
    minLength, maxLength, anyOf, oneOf (as anyOf), $ref to "#" and "#/..." (a JSON pointer, also into arrays),
    $defs, definitions. Without effect: title, description, default, examples, $schema, $id, $comment,
    deprecated, readOnly, writeOnly. Others are refused by name, as are enum, const, anyOf, oneOf and $ref
    beside other keywords (a type beside enum and const is supported). A missing type follows from the
    keywords. Texts are JSON with the schema's properties in its order, little white space, and numbers of up
    to 16 digits, 16 decimals, and exponents of two.
    Any other text is GBNF as of llama.cpp: rules "name ::= ...", of which root is the text; literals, classes
    [a-z] and [^a-z], the point for any character, names, groups, alternatives, * + ? {n} {n,} {n,m}, comments
    from # on, the escapes \n \r \t \\ \" \[ \] \xFF \uFFFF \UFFFFFFFF. A rule must not begin with itself.
    Rules may nest 500 deep in a text: sampling does not go deeper.
    Returns: IGNIS_OK, or the reason, with line and column, or the byte of the schema.
    Errors: ARGUMENT (null, malformed, or no text of it ever ends), UNSUPPORTED (a keyword of schemas that
    Ignis does not have; a grammar that is too large or too ambiguous), MEMORY.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_grammar_check(const char *grammar);
