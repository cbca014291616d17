/* >>chat - chat templates --------------------------------------------------------------------------------------- */

/*  One message of a chat. */
typedef struct ignis_message {
    const char *role;    /* "system", "user", "assistant", or another role that the template knows */
    const char *content; /* null: none */
} ignis_message;

/*  How a chat becomes a text. All zero: the tokenizer's template, no generation prompt, no variables. */
typedef struct ignis_chat_desc {
    const char *chat_template;  /* null: the tokenizer's own */
    bool add_generation_prompt; /* true: the text ends where the assistant's answer begins */
    const char *json;           /* an object of variables: {"tools": [...], "enable_thinking": false}; null: none */
    int64_t now;                /* seconds since 1970, which strftime_now formats as local time; 0: now */
} ignis_chat_desc;

/*  ignis_chat_render - render a chat by its chat template, to text
    A template is a program in Jinja. Its output has the same bytes as in Hugging Face's transformers
    (trim_blocks, lstrip_blocks, break and continue, tojson, raise_exception, strftime_now, {% generation %}
    without effect).
    Variables: messages, tools and documents (none), add_generation_prompt, the tokenizer's bos_token,
    eos_token, unk_token and pad_token if it has them, and the variables of desc.json, which come last.
    "messages" in desc.json replaces the messages given: so a message can have more than a role and a content,
    such as "tool_calls". A message's "reasoning_content", "thinking" or "reasoning", the first that it has,
    becomes its "reasoning_content", and its "thinking" if that is missing.
    Supported of Jinja: text, comments, raw, if, for (also with a condition, else, break, continue, loop.),
    set, set blocks, with, macro, call, filter, all operators but **, slices, and a table of filters, tests,
    methods and functions. Letters have the cases of Unicode 14, and integers have 64 bits. A failure names
    line and column in the template. Limits: 2e7 steps of work, 256 MiB of host memory, 250 nested calls and
    blocks.
    tokenizer: may be no handle if desc.chat_template is given. desc may be null. Bytes that are not UTF-8
    become U+FFFD, one by one. out may be null when capacity is 0.
    Returns: how many bytes there are, without a 0 at the end, also when that is more than capacity, and only
    the first are written; -1 on failure.
    Errors: FREED, ARGUMENT (null, a count or capacity below 0, no template, a template that is malformed,
    fails or refuses the messages, variables that are not JSON), UNSUPPORTED (a feature of the template that
    is missing here, by name; the limits above), MEMORY.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int64_t ignis_chat_render(ignis_tokenizer tokenizer, const ignis_message *messages, int count,
                                    const ignis_chat_desc *desc, char *out, int64_t capacity);

/*  ignis_chat_encode - encode a chat to ids: its text, rendered as above, without a bos but that of the
    template
    Control tokens are recognised only in the template's own text. Text from the messages or from desc.json is
    always plain text, whatever the template does with it: no user can end a turn or begin another one by
    writing <|im_end|>. Apart from that, the ids are those of the rendered text as a whole.
    Exceptions, as a template may put a control token together around them: variables whose name ends in
    _token, such as "bos_token", count as the template's text; so does a message's role that is a word of
    letters, digits, _ and -.
    Added tokens that are not control tokens, such as <think>, are recognised everywhere. ids may be null when
    capacity is 0.
    Returns: how many ids there are, also when that is more than capacity, and only the first are written; -1
    on failure.
    Errors: those of ignis_chat_render, UNSUPPORTED (a control token that is only found in normalized text,
    beside text of a message), and ARGUMENT without a tokenizer.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_chat_encode(ignis_tokenizer tokenizer, const ignis_message *messages, int count,
                                const ignis_chat_desc *desc, int32_t *ids, int capacity);
