/*  ignis_models.h - language models: tokenizers, checkpoints, adapters, generation of text, for C and C++

    SPDX-License-Identifier: MIT
    Part of Ignis; the licence is at the end of ignis.h.

#include "manual/models.txt"
*/
#define IGNIS__FROM_MODELS
#include "ignis.h"
#undef IGNIS__FROM_MODELS

#ifndef IGNIS_MODELS_INCLUDED
#define IGNIS_MODELS_INCLUDED

#define IGNIS_MODELS_VERSION IGNIS_VERSION /* as IGNIS_VERSION */
#if !defined(IGNIS_VERSION) || IGNIS_VERSION != IGNIS_MODELS_VERSION
#error "ignis.h and ignis_models.h are of different versions: copy all headers of Ignis from one release"
#endif

#ifdef IGNIS_NO_TENSORS
#error "ignis_models.h needs tensors: do not define IGNIS_NO_TENSORS"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#include "models/tokenizer/tokenizer.h"
#include "models/chat/chat.h"
#include "models/grammar/grammar.h"
#include "models/parallel.h"
#include "models/weights/model.h"
#include "models/lora/lora.h"
#include "models/generate/generate.h"
#include "models/generate/embed.h"
#ifdef __cplusplus
} /* extern "C" */

/*  In C++ option structs can be passed by reference, as in ignis.h. */
// amalgamate: overloads
#endif

#endif /* IGNIS_MODELS_INCLUDED */

#ifdef IGNIS_IMPLEMENTATION
#ifndef IGNIS_MODELS_IMPLEMENTED
#define IGNIS_MODELS_IMPLEMENTED

#ifdef ignis_model_open
#error "IGNIS_TRACE_CALLS: define IGNIS_IMPLEMENTATION before the first #include of ignis_models.h"
#endif
#ifdef IGNIS__AT /* what the implementation calls keeps the call site of the program */
#undef IGNIS__AT
#define IGNIS__AT(call) call
#endif

#ifdef _MSC_VER
#pragma warning(push) /* as in ignis.h */
#pragma warning(disable : 4996 4505)
#endif

#include "models/room.h"
#include "models/kernel_table.c"
#include "models/setup.c"
#include "models/gguf.c"
#include "models/tokenizer/room.h"
#include "models/tokenizer/unicode_table.c"
#include "models/tokenizer/tokenizer.c"
#include "models/tokenizer/unicode.c"
#include "models/tokenizer/byte_buffer.c"
#include "models/tokenizer/string_search.c"
#include "models/tokenizer/tokenizer_json.c"
#include "models/tokenizer/nfc.c"
#include "models/tokenizer/charsmap.c"
#include "models/tokenizer/pattern.c"
#include "models/tokenizer/pre_tokenizer.c"
#include "models/tokenizer/bpe.c"
#include "models/tokenizer/unigram.c"
#include "models/tokenizer/word_piece.c"
#include "models/tokenizer/normalize.c"
#include "models/tokenizer/encode.c"
#include "models/tokenizer/pipeline.c"
#include "models/tokenizer/vocabulary.c"
#include "models/tokenizer/tokenizer_config.c"
#include "models/tokenizer/tokenizer_gguf.c"
#include "models/tokenizer/tokenizer_tekken.c"
#include "models/tokenizer/open.c"
#include "models/tokenizer/codec.c"
#include "models/tokenizer/text_stream.c"
#include "models/chat/room.h"
#include "models/chat/template.c"
#include "models/chat/value.c"
#include "models/chat/repr.c"
#include "models/chat/lexer.c"
#include "models/chat/parse_expression.c"
#include "models/chat/parse_statement.c"
#include "models/chat/eval_attribute.c"
#include "models/chat/eval_operator.c"
#include "models/chat/eval_statement.c"
#include "models/chat/eval_expression.c"
#include "models/chat/filter_argument.c"
#include "models/chat/case_mapping.c"
#include "models/chat/filter_string.c"
#include "models/chat/filter_list.c"
#include "models/chat/filter_format.c"
#include "models/chat/filter_map.c"
#include "models/chat/filter_table.c"
#include "models/chat/render.c"
#include "models/grammar/room.h"
#include "models/grammar/grammar.c"
#include "models/grammar/gbnf.c"
#include "models/grammar/automaton.c"
#include "models/grammar/token_mask.c"
#include "models/grammar/string_set.c"
#include "models/grammar/regular_expression.c"
#include "models/grammar/regular_expression_set.c"
#include "models/grammar/schema_text.c"
#include "models/grammar/schema_number.c"
#include "models/grammar/schema_string.c"
#include "models/grammar/schema_merge.c"
#include "models/grammar/schema_array.c"
#include "models/grammar/json_schema.c"
#include "models/weights/room.h"
#include "models/weights/model.c"
#include "models/weights/family_rows.h"
#include "models/weights/family_keys.c"
#include "models/weights/families_dense.c"
#include "models/weights/families_experts.c"
#include "models/weights/families_encoders.c"
#include "models/weights/families.c"
#include "models/weights/config_json.c"
#include "models/weights/checkpoint.c"
#include "models/weights/config_check.c"
#include "models/weights/rope_scaling.c"
#include "models/weights/weight_map.c"
#include "models/weights/hyperparameter.c"
#include "models/weights/quantized_layout.c"
#include "models/weights/packed.c"
#include "models/weights/tensor_match.c"
#include "models/weights/block_grids.c"
#include "models/weights/block_read.c"
#include "models/weights/dequantize.c"
#include "models/weights/quantize.c"
#include "models/weights/quantized_linear.c"
#include "models/weights/load.c"
#include "models/weights/model_open.c"
#include "models/weights/model_tensor.c"
#include "models/generate/room.h"
#include "models/generate/latent_forward.c"
#include "models/generate/delta_forward.c"
#include "models/generate/forward.c"
#include "models/weights/save.c"
#include "models/lora/room.h"
#include "models/lora/lora.c"
#include "models/lora/create.c"
#include "models/lora/peft_load.c"
#include "models/lora/peft_save.c"
#include "models/lora/merge.c"
#include "models/generate/kernel_params.c"
#include "models/generate/gemv_cluster.c"
#include "models/generate/gemv_f8.c"
#include "models/generate/gemv.c"
#include "models/generate/paged_attention.c"
#include "models/generate/engine.c"
#include "models/generate/sequence_lora.c"
#include "models/generate/fused_step.c"
#include "models/generate/experts.c"
#include "models/generate/latent.c"
#include "models/generate/delta_net.c"
#include "models/generate/engine_create.c"
#include "models/generate/engine_step.c"
#include "models/generate/grammar_mask.c"
#include "models/generate/sequence.c"
#include "models/generate/kept_prefix.c"
#include "models/generate/sequence_state.c"
#include "models/generate/kv_cache.c"
#include "models/generate/sampling.c"
#include "models/generate/embed.c"
#include "models/generate/rank_check.c"
#include "models/generate/sequence_step.c"
#include "models/generate/sequence_next.c"
#include "models/generate/sequence_file.c"
#include "models/generate/sequence_query.c"
#include "models/generate/stop_string.c"
#include "models/generate/prompt.c"
#include "models/generate/speculate.c"
#include "models/generate/generation.c"
#include "models/generate/generate.c"
#include "models/generate/poll.c"
#include "models/generate/warmup.c"
#ifdef _MSC_VER
#pragma warning(pop)
#endif

#endif /* IGNIS_MODELS_IMPLEMENTED */
#endif /* IGNIS_IMPLEMENTATION */

// amalgamate: traced calls
