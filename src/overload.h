#ifdef __cplusplus
} /* extern "C" */

/*  In C++ option structs can be passed by reference: ignis_array_create({...}). {} alone is a null pointer: all defaults, where that is allowed.
    Static, so that each file's call the functions of that file with IGNIS_STATIC. */
static inline ignis_status ignis_setup(const ignis_desc &desc) { return ignis_setup(&desc); }
static inline void *ignis_stream_create(const ignis_stream_desc &desc) { return ignis_stream_create(&desc); }
static inline ignis_array ignis_array_create(const ignis_array_desc &desc) { return ignis_array_create(&desc); }
static inline ignis_array ignis_external_array(const ignis_external_desc &desc) { return ignis_external_array(&desc); }
static inline ignis_fence ignis_external_fence(const ignis_external_fence_desc &desc) { return ignis_external_fence(&desc); }
static inline ignis_kernel ignis_kernel_compile(const ignis_kernel_desc &desc) { return ignis_kernel_compile(&desc); }
static inline ignis_ticket ignis_kernel_reload(ignis_kernel kernel, const ignis_kernel_desc &desc)
{
    return ignis_kernel_reload(kernel, &desc);
}
static inline ignis_status ignis_kernel_launch(ignis_kernel kernel, const ignis_launch &launch, const ignis_arg *args, int arg_count)
{
    return ignis_kernel_launch(kernel, &launch, args, arg_count);
}

#ifndef IGNIS_NO_TENSORS
static inline ignis_tensor ignis_tensor_from_host(const void *data, ignis_shape shape, const ignis_tensor_desc &desc)
{
    return ignis_tensor_from_host(data, shape, &desc);
}
static inline ignis_tensor ignis_tensor_zeros(ignis_shape shape, const ignis_tensor_desc &desc) { return ignis_tensor_zeros(shape, &desc); }
static inline ignis_tensor ignis_tensor_ones(ignis_shape shape, const ignis_tensor_desc &desc) { return ignis_tensor_ones(shape, &desc); }
static inline ignis_tensor ignis_tensor_rand(ignis_shape shape, const ignis_tensor_desc &desc) { return ignis_tensor_rand(shape, &desc); }
static inline ignis_tensor ignis_tensor_randn(ignis_shape shape, const ignis_tensor_desc &desc) { return ignis_tensor_randn(shape, &desc); }
static inline double ignis_gradcheck(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs, int count,
                                     const ignis_gradcheck_desc &desc)
{
    return ignis_gradcheck(fn, user_data, inputs, count, &desc);
}
static inline ignis_tensor ignis_conv2d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc &desc)
{
    return ignis_conv2d(x, w, bias, &desc);
}
static inline ignis_tensor ignis_conv1d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc &desc)
{
    return ignis_conv1d(x, w, bias, &desc);
}
static inline ignis_tensor ignis_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc &desc)
{
    return ignis_sdpa(q, k, v, &desc);
}
static inline ignis_tensor ignis_sdpa_packed(ignis_tensor qkv, const ignis_sdpa_desc &desc, const ignis_rope_desc *rope)
{
    return ignis_sdpa_packed(qkv, &desc, rope);
}
static inline ignis_tensor ignis_sdpa_packed(ignis_tensor qkv, const ignis_sdpa_desc &desc, const ignis_rope_desc &rope)
{
    return ignis_sdpa_packed(qkv, &desc, &rope);
}
static inline ignis_tensor ignis_max_pool(ignis_tensor x, const ignis_pool_desc &desc) { return ignis_max_pool(x, &desc); }
static inline ignis_tensor ignis_avg_pool(ignis_tensor x, const ignis_pool_desc &desc) { return ignis_avg_pool(x, &desc); }
static inline ignis_tensor ignis_upsample(ignis_tensor x, const ignis_upsample_desc &desc) { return ignis_upsample(x, &desc); }
static inline ignis_tensor ignis_batch_norm(ignis_tensor x, ignis_tensor w, ignis_tensor b, const ignis_batch_norm_desc &desc)
{
    return ignis_batch_norm(x, w, b, &desc);
}
static inline ignis_tensor ignis_decode_sdpa_with(ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc &desc)
{
    return ignis_decode_sdpa_with(q, k, v, &desc);
}
static inline ignis_tensor ignis_rope(ignis_tensor x, const ignis_rope_desc &desc) { return ignis_rope(x, &desc); }
static inline ignis_tensor ignis_cross_entropy(ignis_tensor logits, ignis_tensor targets, const ignis_cross_entropy_desc &desc)
{
    return ignis_cross_entropy(logits, targets, &desc);
}
static inline ignis_tensor ignis_nll_loss(ignis_tensor x, ignis_tensor targets, const ignis_cross_entropy_desc &desc)
{
    return ignis_nll_loss(x, targets, &desc);
}
static inline ignis_tensor ignis_bce_with_logits(ignis_tensor logits, ignis_tensor targets, const ignis_bce_desc &desc)
{
    return ignis_bce_with_logits(logits, targets, &desc);
}
static inline ignis_tensor ignis_linear_cross_entropy(ignis_tensor hidden, ignis_tensor weight, ignis_tensor targets,
                                                      const ignis_cross_entropy_desc &desc)
{
    return ignis_linear_cross_entropy(hidden, weight, targets, &desc);
}
static inline ignis_optimizer ignis_adamw(const ignis_adamw_desc &desc) { return ignis_adamw(&desc); }
static inline ignis_optimizer ignis_sgd(const ignis_sgd_desc &desc) { return ignis_sgd(&desc); }
static inline ignis_optimizer ignis_rmsprop(const ignis_rmsprop_desc &desc) { return ignis_rmsprop(&desc); }
static inline ignis_optimizer ignis_lion(const ignis_lion_desc &desc) { return ignis_lion(&desc); }
static inline ignis_optimizer ignis_muon(const ignis_muon_desc &desc) { return ignis_muon(&desc); }
#ifdef IGNIS_MODELS
static inline int ignis_tokenizer_encode(ignis_tokenizer tokenizer, const char *text, int64_t size, const ignis_encode_desc &desc,
                                         int32_t *ids, int capacity)
{
    return ignis_tokenizer_encode(tokenizer, text, size, &desc, ids, capacity);
}
static inline int64_t ignis_tokenizer_decode(ignis_tokenizer tokenizer, const int32_t *ids, int count, const ignis_decode_desc &desc,
                                             char *out, int64_t capacity)
{
    return ignis_tokenizer_decode(tokenizer, ids, count, &desc, out, capacity);
}
static inline int64_t ignis_chat_render(ignis_tokenizer tokenizer, const ignis_message *messages, int count, const ignis_chat_desc &desc,
                                        char *out, int64_t capacity)
{
    return ignis_chat_render(tokenizer, messages, count, &desc, out, capacity);
}
static inline int ignis_chat_encode(ignis_tokenizer tokenizer, const ignis_message *messages, int count, const ignis_chat_desc &desc,
                                    int32_t *ids, int capacity)
{
    return ignis_chat_encode(tokenizer, messages, count, &desc, ids, capacity);
}
#endif
#endif
#ifdef IGNIS_MODELS
static inline ignis_status ignis_model_inspect(const ignis_model_desc &desc, ignis_model_info *info)
{
    return ignis_model_inspect(&desc, info);
}
static inline ignis_model ignis_model_open(const ignis_model_desc &desc) { return ignis_model_open(&desc); }
static inline ignis_lora ignis_lora_create(ignis_model model, const ignis_lora_desc &desc) { return ignis_lora_create(model, &desc); }
static inline int32_t ignis_sequence_next(ignis_sequence sequence, const ignis_sampling_desc &sampling)
{
    return ignis_sequence_next(sequence, &sampling);
}
static inline ignis_status ignis_model_warmup(ignis_model model, const ignis_model_warmup_desc &desc)
{
    return ignis_model_warmup(model, &desc);
}
#endif

template <typename... ignis__dims> static inline ignis_shape ignis__make_shape(ignis__dims... dims)
{
    static_assert(sizeof...(dims) >= 1 && sizeof...(dims) <= IGNIS_MAX_DIMS, "a shape has 1 to IGNIS_MAX_DIMS dimensions");
    return ignis_shape{int(sizeof...(dims)), {static_cast<int64_t>(dims)...}};
}

/*  IGNIS_SHAPE(4, 3) - a shape of 1 to IGNIS_MAX_DIMS dimensions; IGNIS_NO_ARRAY - no handle */
#define IGNIS_SHAPE(...) ignis__make_shape(__VA_ARGS__)
#define IGNIS_NO_ARRAY (ignis_array{0})
#ifndef IGNIS_NO_TENSORS
template <typename... ignis__arrays> static inline ignis_array_inputs ignis__make_array_inputs(const char *names, ignis__arrays... arrays)
{
    static_assert(sizeof...(arrays) >= 1 && sizeof...(arrays) <= IGNIS_MAX_INPUTS, "a formula has 1 to IGNIS_MAX_INPUTS inputs");
    return ignis_array_inputs{names, int(sizeof...(arrays)), {arrays...}};
}

template <typename... ignis__tensors_> static inline ignis_inputs ignis__make_inputs(const char *names, ignis__tensors_... tensors)
{
    static_assert(sizeof...(tensors) >= 1 && sizeof...(tensors) <= IGNIS_MAX_INPUTS, "a formula has 1 to IGNIS_MAX_INPUTS inputs");
    return ignis_inputs{names, int(sizeof...(tensors)), {tensors...}};
}

/*  IGNIS_INPUTS(x, y) - tensors as the inputs of a formula, with their names; IGNIS_ARRAYS(x, y) - arrays */
#define IGNIS_ARRAYS(...) ignis__make_array_inputs(#__VA_ARGS__, __VA_ARGS__)
#define IGNIS_INPUTS(...) ignis__make_inputs(#__VA_ARGS__, __VA_ARGS__)
#endif
#else
#define IGNIS_ARRAYS(...) \
    ((ignis_array_inputs){#__VA_ARGS__, (int)(sizeof((ignis_array[]){__VA_ARGS__}) / sizeof(ignis_array)), {__VA_ARGS__}})
#define IGNIS_INPUTS(...) ((ignis_inputs){#__VA_ARGS__, (int)(sizeof((ignis_tensor[]){__VA_ARGS__}) / sizeof(ignis_tensor)), {__VA_ARGS__}})
#define IGNIS_SHAPE(...) ((ignis_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#define IGNIS_NO_ARRAY ((ignis_array){0})
#endif

/*  Among the inputs of a formula: a number, or a tensor or array that is no variable, by a name. */
#define IGNIS_VALUE(name, number) ignis_value(number)
#define IGNIS_ARRAY_VALUE(name, number) ignis_array_value(number)
#define IGNIS_NAMED(name, input) (input)
