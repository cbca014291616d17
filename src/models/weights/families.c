/*  models/weights/families.c - finds the table of a family: its keys, its tensors, its features

    A family is data. A new family of known features is a list of rows and an entry of a table. Whatever is
    in no list of a family is refused by name: an entry that Ignis ignored could change what the model computes.
    May use: room.h; families_dense.c, families_experts.c and families_encoders.c have the tables. Locks: none. */

#include "room.h"

/*  Returns the table of a value of ignis_model_family above 0. */
IGNIS__PRIVATE const ignis__family *ignis__family_of(ignis_model_family family)
{
    return family >= IGNIS_MODEL_QWEN3_NEXT  ? &ignis__recurrent_families[family - IGNIS_MODEL_QWEN3_NEXT]
           : family >= IGNIS_MODEL_BERT      ? &ignis__encoder_families[family - IGNIS_MODEL_BERT]
           : family >= IGNIS_MODEL_QWEN3_MOE ? &ignis__expert_families[family - IGNIS_MODEL_QWEN3_MOE]
                                             : &ignis__dense_families[family - IGNIS_MODEL_GPT2];
}
