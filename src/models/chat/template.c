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
IGNIS__COLD IGNIS__PRIVATE ignis__chat_value ignis__chat_fault(ignis__chat *c, ignis_diagnostic diagnostic, size_t at,
                                                               const char *format, ...)
{
    ignis__chat_value undefined;
    va_list args;
    memset(&undefined, 0, sizeof undefined);
    undefined.kind = IGNIS__CHAT_UNDEFINED;
    if (!c->fault) {
        va_start(args, format);
        vsnprintf(c->message, sizeof c->message, format, args);
        va_end(args);
        c->fault = diagnostic;
        c->fault_at = at;
        c->kind = 0;
    }
    return undefined;
}

/*  Counts work. False after too much work, or after a fault. */
IGNIS__PRIVATE bool ignis__chat_work(ignis__chat *c, int64_t steps)
{
    c->steps += steps;
    if (c->steps > IGNIS__CHAT_STEPS)
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_LIMIT, c->here, "the template takes more than %d steps",
                          IGNIS__CHAT_STEPS);
    return !c->fault;
}

/*  Allocates zeroed memory of the arena. NULL after a fault. */
IGNIS__PRIVATE void *ignis__chat_alloc(ignis__chat *c, size_t size)
{
    ignis__chat_chunk *chunk = c->chunk;
    void *memory;
    size = (size + 15) / 16 * 16;
    if (c->fault)
        return NULL;
    if (!chunk || chunk->size - chunk->used < size) {
        size_t room = size > 32768 ? size : 32768, head = (sizeof *chunk + 15) / 16 * 16;
        if (size > IGNIS__CHAT_MEMORY || c->memory + room > IGNIS__CHAT_MEMORY) {
            ignis__chat_fault(c, IGNIS_DIAG_CHAT_LIMIT, c->here, "the template takes more than %d bytes of memory",
                              IGNIS__CHAT_MEMORY);
            return NULL;
        }
        chunk = (ignis__chat_chunk *)ignis__alloc(head + room);
        if (!chunk) {
            ignis__chat_fault(c, IGNIS_DIAG_HOST_MEMORY, c->here, "out of host memory: %lld bytes were requested",
                              (long long)(head + room));
            return NULL;
        }
        chunk->size = head + room;
        chunk->used = head;
        chunk->next = c->chunk;
        c->chunk = chunk;
        c->memory += room;
    }
    memory = (char *)chunk + chunk->used;
    chunk->used += size;
    return memory;
}
