/* ===============================================================================================================
   >>model - checkpoints opened: config.json, shards, GGUF; their weights as tensors

   Files become weights in four steps. The description becomes an ignis__model (sizes, frequencies). The
   headers of the files become a sorted list of tensors. One table of rows says which tensors become which
   rows of which weight. Their bytes are read, converted and copied in chunks. The table also serves lookups
   by name, and writing the model.
   May use: >>gguf, >>safetensors, >>tensor, >>ops. Locks: a model's slot.lock guards tokenizer, lora and
   engine.
   =============================================================================================================== */

#include "room.h"

IGNIS__PRIVATE ignis__pool ignis__models =
    IGNIS__POOL(ignis__model, IGNIS__KIND_MODEL, "model", IGNIS_DIAG_MODEL_FREED);
