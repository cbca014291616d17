/* >>grammar - texts of a given form ----------------------------------------------------------------------------- */

/*  ignis_grammar_check - whether ignis_sequence_grammar takes a grammar
    A text that begins with { is a JSON schema. Of its keywords there are: type, enum, const, properties, required, additionalProperties (false;
    where there are no properties also true and a schema), items, minItems, maxItems, minLength, maxLength, anyOf, oneOf (taken as anyOf), $ref to
    "#" and "#/..." (a JSON pointer, also into arrays), $defs, definitions; title, description, default, examples, $schema, $id, $comment, deprecated,
    readOnly and writeOnly say nothing about texts. Others are refused by name, as are enum, const, anyOf, oneOf and $ref beside keywords other
    than a type of enum and const. Without a type it is that of the keywords. Texts are JSON with the properties that the schema names, in its
    order, little white space, and numbers of up to 16 digits, 16 decimals, and exponents of two.
    Any other text is GBNF as of llama.cpp: rules "name ::= ...", of which root is the text; literals, classes [a-z] and [^a-z], the point for any
    character, names, groups, alternatives, * + ? {n} {n,} {n,m}, comments from # on, the escapes \n \r \t \\ \" \[ \] \xFF \uFFFF \UFFFFFFFF. No
    rule may begin with itself. Rules may be within 500 others in a text: deeper ones are not drawn.
    Returns: IGNIS_OK, or the reason, with line and column, or the byte of the schema.
    Errors: ARGUMENT (null, no sound grammar, none of whose texts ends), UNSUPPORTED (a keyword of schemas that Ignis does not have, too large, too
    ambiguous a grammar), MEMORY.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_grammar_check(const char *grammar);
