/* ===============================================================================================================
   >>model - checkpoints opened: config.json, shards, GGUF; their weights as tensors.
   =============================================================================================================== */

#include "room.h"

/*  From files to weights in four steps: the description becomes an ignis__model (sizes, frequencies); the files' headers become a sorted list of
    what tensors there are; one table of rows says which of them become which rows of which weight; their bytes are read, converted and copied in
    pieces. The table also serves who asks for a weight by name, and who writes the model back. */

IGNIS__PRIVATE ignis__pool ignis__models =
    IGNIS__POOL(ignis__model, IGNIS__KIND_MODEL, "model", IGNIS_DIAG_MODEL_FREED);

IGNIS__PRIVATE const char *const ignis__model_families[IGNIS_MODEL_FAMILY_COUNT] = {"", "gpt2", "llama", "qwen2",
                                                                                    "qwen3"};
