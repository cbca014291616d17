/*  models/lora - adapters of models. */
#pragma once

#include "../../base/room.h"
#include "../../device/room.h"
#include "../../array/room.h"
#include "../../formula/room.h"
#include "../../tensor/room.h"
#include "../../ops/room.h"
#include "../../file/room.h"
#include "../weights/room.h"

enum { IGNIS__LORA_RANK = 65536 };

typedef struct ignis__adapter {
    const ignis__model_row *row;
    int layer;
    int64_t first, rows, columns; /* of the weight */
    ignis_tensor a, b;            /* [rank, columns], [rows, rank] */
    ignis__array *arrays[2];      /* of a and b, held; NULL until a sequence is computed with them */
} ignis__adapter;

typedef struct ignis__lora {
    ignis__slot slot;
    ignis__model *model; /* held; the last three members are guarded by its slot's lock */
    int rank;
    double alpha, dropout, scale;
    bool rslora;
    ignis_dtype dtype;
    ignis__adapter *adapters; /* ordered by layer */
    int *layer_first;         /* the first adapter of each layer, and the end */
    int count;
    /* For sequences: the addresses of A and B by layer and product, [layers, IGNIS__LORA_PRODUCTS, IGNIS__LORA_PAIRS];
       products that have some, as bits. Made for the first sequence; guarded by the engine's lock. */
    ignis__array *table;
    int products;
    int sequences; /* that are computed with the adapters */
    int merged;    /* adapters that are part of the weights already */
    bool merging;
} ignis__lora;

/*  The name of a tensor of an adapter in PEFT's files. */
typedef struct ignis__lora_name {
    char text[128];
} ignis__lora_name;

/*  Names and tensors of all adapters, with the memory for both. */
typedef struct ignis__lora_list {
    ignis__lora_name *names;
    const char **texts;
    ignis_tensor *tensors;
} ignis__lora_list;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* lora.c */
extern ignis__pool ignis__loras;
IGNIS__PRIVATE ignis__lora *ignis__lora_hold(const char *call, ignis_lora handle);
IGNIS__PRIVATE void ignis__lora_clear(const char *call, ignis__lora *lora);
IGNIS__PRIVATE void ignis__lora_drop(const char *call, ignis__lora *lora);
IGNIS__PRIVATE bool ignis__lora_end(ignis__lora *lora);
IGNIS__PRIVATE ignis__lora *ignis__model_lora(ignis__model *model);
IGNIS__PRIVATE const char *ignis__lora_unusable(const ignis__lora *lora, const ignis__model *model);
IGNIS__PRIVATE void ignis__loras_close(const char *call);
IGNIS__PRIVATE bool ignis__lora_has(const ignis__lora *lora, const ignis__layer *layer, size_t member);
IGNIS__PRIVATE ignis_tensor ignis__lora_add(const ignis__lora *lora, const ignis__layer *layer, size_t member,
                                            ignis_tensor x, ignis_tensor y);

/* create.c */
IGNIS__PRIVATE ignis__model_name ignis__lora_product(const ignis__model *model, const ignis__model_row *row, int layer);
IGNIS__PRIVATE ignis__lora_name ignis__lora_name_write(const ignis__model *model, const ignis__model_row *row,
                                                       int layer, char which);
IGNIS__PRIVATE bool ignis__lora_supports(const ignis__model_part *part);
IGNIS__COLD IGNIS__PRIVATE ignis__lora *ignis__lora_make(const char *call, ignis__model *model,
                                                         const ignis__model_part *parts, int count, const char *wanted,
                                                         const ignis__lora *read);
IGNIS__PRIVATE double ignis__lora_scale(const ignis__lora *lora);

/* peft_load.c */
IGNIS__PRIVATE bool ignis__lora_list_make(const char *call, const ignis__lora *lora, ignis__lora_list *list);
IGNIS__PRIVATE bool ignis__lora_order_for_folder(const char *call, const ignis__lora *lora, ignis__lora_list *list);
IGNIS__PRIVATE void ignis__lora_list_free(ignis__lora_list *list);
