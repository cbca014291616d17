/* >>chat - chat templates --------------------------------------------------------------------------------------- */

/*  One message of a chat. */
typedef struct ignis_message {
    const char *role;    /* "system", "user", "assistant" and what else the template knows */
    const char *content; /* null: none */
} ignis_message;

/*  How a chat becomes a text. Zero for all: the tokenizer's template, no beginning of an answer, no variables. */
typedef struct ignis_chat_desc {
    const char *chat_template;  /* null: the tokenizer's own */
    bool add_generation_prompt; /* true: the text ends where the assistant's answer begins */
    const char *json;           /* an object of variables: {"tools": [...], "enable_thinking": false}; null: none */
    int64_t now;                /* seconds since 1970, which strftime_now tells as local time; 0: those of the clock */
} ignis_chat_desc;

/*  ignis_chat_render - the text that a chat becomes by a chat template
    A template is a program in Jinja. It is run as Hugging Face's transformers runs it (trim_blocks, lstrip_blocks, break and continue, tojson,
    raise_exception, strftime_now, {% generation %} without effect), and the text has the same bytes. It knows messages, tools and documents
    (none), add_generation_prompt, the tokenizer's bos_token, eos_token, unk_token and pad_token as far as there are such, and the
    variables of desc.json, which come last: "messages" among them takes the place of the messages given, so that these can have more than a
    role and a content, such as "tool_calls". Of a message's "reasoning_content", "thinking" and "reasoning" the first that is there becomes its
    "reasoning_content", and its "thinking" where it has none. Of Jinja there are: text, comments, raw, if, for (also with a condition, else, break,
    continue, loop.), set, set blocks, with, macro, call, filter, all operators but **, slices, and the filters, tests, methods and functions of a
    table; letters have the cases of Unicode 14, and whole numbers are of 64 bits. A failure says the line and column in the template. A template is
    stopped after 2e7 steps, which count all that takes time, 256 MiB of host memory, or 250 nested calls and blocks.
    tokenizer: may be no handle where desc.chat_template is given. desc may be null. Text that is no UTF-8 becomes U+FFFD, byte by byte. out may
    be null when capacity is 0.
    Returns: how many bytes there are, without a 0 at the end, also when that is more than capacity, and only the first are written; -1 on
    failure.
    Errors: FREED, ARGUMENT (null, a count or capacity below 0, no template, a template that is not sound, fails or refuses the messages,
    variables that are no JSON), UNSUPPORTED (what the template uses is missing here, by name; its limits), MEMORY.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int64_t ignis_chat_render(ignis_tokenizer tokenizer, const ignis_message *messages, int count,
                                    const ignis_chat_desc *desc, char *out, int64_t capacity);

/*  ignis_chat_encode - the ids that a chat becomes: its text, rendered as above and encoded, without a bos but that of the template
    A control token is one only where all of it is the template's text. What came from the messages or from desc.json, through whatever the
    template does with it, is text like any other, so that nobody can end his turn or begin another's by writing <|im_end|>; but for such
    text the ids are those of the rendered text as a whole. Variables whose name ends in _token, such as "bos_token", count as the template's text,
    and so does a message's role that is a word of letters, digits, _ and -: a template may put a control token together around it.
    Added tokens that are no control tokens, such as <think>, are themselves everywhere. ids may be null when capacity is 0.
    Returns: how many ids there are, also when that is more than capacity, and only the first are written; -1 on failure.
    Errors: those of ignis_chat_render, UNSUPPORTED (a control token that is only found in normalized text, beside text of a message), and
    ARGUMENT where there is no tokenizer.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_chat_encode(ignis_tokenizer tokenizer, const ignis_message *messages, int count,
                                const ignis_chat_desc *desc, int32_t *ids, int capacity);
