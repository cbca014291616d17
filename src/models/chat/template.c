/* ===============================================================================================================
   >>chat - chat templates: a small Jinja, bounded in steps, depth and output

   A template is parsed once into nodes, which are then evaluated. All memory is in one arena. Each byte of
   text has a mark: 1 if it came from the caller's messages or variables. So ignis_chat_encode can tell a
   message from the template. Operations keep marks; if the origin of a byte is not clear, the result is
   marked.
   May use: >>text. Locks: none.
   =============================================================================================================== */

#include "room.h"

IGNIS__PRIVATE const char *const ignis__chat_kinds[] = {"",          "Undefined",   "NoneType",   "bool",      "int",
                                                        "float",     "str",         "list",       "tuple",     "range",
                                                        "dict_keys", "dict_values", "dict_items", "generator", "dict",
                                                        "Namespace", "LoopContext", "Macro",      "function"};

IGNIS__PRINTF(4, 5)
IGNIS__COLD IGNIS__PRIVATE ignis__chat_value ignis__chat_fault(ignis__chat *chat, ignis_diagnostic diagnostic,
                                                               size_t at, const char *format, ...)
{
    ignis__chat_value undefined;
    va_list args;
    memset(&undefined, 0, sizeof undefined);
    undefined.kind = IGNIS__CHAT_UNDEFINED;
    if (!chat->fault) {
        va_start(args, format);
        vsnprintf(chat->message, sizeof chat->message, format, args);
        va_end(args);
        chat->fault = diagnostic;
        chat->fault_at = at;
        chat->kind = 0;
    }
    return undefined;
}

/*  Counts work. False after too much work, or after a fault. */
IGNIS__PRIVATE bool ignis__chat_work(ignis__chat *chat, int64_t steps)
{
    chat->steps += steps;
    if (chat->steps > IGNIS__CHAT_STEPS)
        ignis__chat_fault(chat, IGNIS_DIAG_CHAT_LIMIT, chat->here, "the template takes more than %d steps",
                          IGNIS__CHAT_STEPS);
    return !chat->fault;
}

/*  Allocates zeroed memory of the arena. NULL after a fault. */
IGNIS__PRIVATE void *ignis__chat_alloc(ignis__chat *chat, size_t size)
{
    ignis__chat_chunk *chunk = chat->chunk;
    void *memory;
    size = (size + 15) / 16 * 16;
    if (chat->fault)
        return NULL;
    if (!chunk || chunk->size - chunk->used < size) {
        size_t capacity = size > 32768 ? size : 32768, head = (sizeof *chunk + 15) / 16 * 16;
        if (size > IGNIS__CHAT_MEMORY || chat->memory + capacity > IGNIS__CHAT_MEMORY) {
            ignis__chat_fault(chat, IGNIS_DIAG_CHAT_LIMIT, chat->here,
                              "the template takes more than %d bytes of memory", IGNIS__CHAT_MEMORY);
            return NULL;
        }
        chunk = (ignis__chat_chunk *)ignis__alloc(head + capacity);
        if (!chunk) {
            ignis__chat_fault(chat, IGNIS_DIAG_HOST_MEMORY, chat->here, "out of host memory: %lld bytes were requested",
                              (long long)(head + capacity));
            return NULL;
        }
        chunk->size = head + capacity;
        chunk->used = head;
        chunk->next = chat->chunk;
        chat->chunk = chunk;
        chat->memory += capacity;
    }
    memory = (char *)chunk + chunk->used;
    chunk->used += size;
    return memory;
}
