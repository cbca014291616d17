# SPDX-License-Identifier: MIT
"""Language models against transformers: python3 tests/models/generate/transformers_compare.py [--tiny] [--program generate_logits] [--saved] [model ...]

For each family makes a model with random weights, in the shape of a published one but with few layers (--tiny: of a few numbers, for machines without
a GPU), rounds them to bf16, and saves it with transformers. generate_logits.c, built with cc, feeds a prompt and then a few tokens more, one by one,
and goes on by the likeliest token. A model with a window, or with positions that are stretched behind some length, gets a second text that is longer.
Of encoders the hidden states of a text are compared as logits are.
The truth is transformers in f64 with the same weights. An error is the largest one of a logit, in units of the largest logit; for experts it is that of
the median row, as a close choice of experts makes some rows turn on rounding, in transformers or in Ignis. What has to be:

    logits      in bf16 at most twice the error that transformers has in bf16; in f32 at most twice that of transformers in f32, or of least_error
    greedy      each token is the truth's likeliest one behind those before it, or below it by no more than twice the largest error of a logit
    saved       the folder that Ignis saves in bf16 has the same tensors, to the bit (with --tiny or --saved)

The bf16 run opens config.json in the form of its publisher, the f32 run in the form that this version of transformers writes. The last lines are a
table: row, then KEY=VALUE.

Runs on the GPU; where there is none, on the simulator, tiny, with PyTorch on the CPU."""
import argparse
import copy
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

try:
    import numpy
    import torch
    import transformers
    from safetensors import safe_open
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
except ImportError as error:
    print(f"PyTorch or transformers is not installed ({error})")
    raise SystemExit(0)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cuda.matmul.allow_tf32 = False
transformers.logging.set_verbosity_error()
if hasattr(transformers.logging, "disable_progress_bar"):
    transformers.logging.disable_progress_bar()


def shape(layers, vocab, hidden, inner, heads, kv_heads, context, **more):
    return dict(num_hidden_layers=layers, vocab_size=vocab, hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads,
                num_key_value_heads=kv_heads, max_position_embeddings=context, **more)


def encoder(vocab, context, types, **more):
    return dict(num_hidden_layers=12, vocab_size=vocab, hidden_size=768, intermediate_size=3072, num_attention_heads=12, max_position_embeddings=context,
                type_vocab_size=types, layer_norm_eps=1e-12 if types == 2 else 1e-5, **more)


LLAMA3 = dict(rope_type="llama3", factor=32.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192)
YARN = dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=8192, attention_factor=1.2079441541679836, beta_fast=32.0, beta_slow=1.0)
LONGROPE = dict(type="longrope", short_factor=[1 + i / 64 for i in range(48)], long_factor=[1 + i for i in range(48)])
DEEPSEEK_YARN = dict(type="yarn", factor=40, original_max_position_embeddings=4096, beta_fast=32, beta_slow=1)
GPT_OSS_YARN = dict(rope_type="yarn", factor=32.0, original_max_position_embeddings=4096, beta_fast=32.0, beta_slow=1.0, truncate=False)
DEEPSEEK = dict(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, first_k_dense_replace=1, moe_layer_freq=1, rope_theta=10000,
                rms_norm_eps=1e-6, tie_word_embeddings=False)

# Name: (model_type, of which published model, config.json). The first four have all their layers, the others a few, or what their patterns need.
MODELS = {
    "gpt2": ("gpt2", "GPT-2 124M", dict(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)),
    "llama": ("llama", "Llama 3.2 1B", shape(16, 128256, 2048, 8192, 32, 8, 131072, head_dim=64, tie_word_embeddings=True, rope_theta=500000.0,
                                            rope_scaling=LLAMA3, rms_norm_eps=1e-5)),
    "qwen2": ("qwen2", "Qwen2.5 0.5B", shape(24, 151936, 896, 4864, 14, 2, 32768, tie_word_embeddings=True, rope_theta=1000000.0, rms_norm_eps=1e-6)),
    "qwen3": ("qwen3", "Qwen3 0.6B", shape(28, 151936, 1024, 3072, 16, 8, 40960, head_dim=128, tie_word_embeddings=True, rope_theta=1000000,
                                          rms_norm_eps=1e-6)),
    "mistral": ("mistral", "Mistral 7B v0.1", shape(2, 32000, 4096, 14336, 32, 8, 32768, sliding_window=4096, rope_theta=10000.0, rms_norm_eps=1e-5)),
    # its window of 32768 tokens would make the text too long
    "ministral": ("ministral", "Ministral 8B", shape(2, 131072, 4096, 12288, 32, 8, 32768, head_dim=128, sliding_window=4096, rope_theta=100000000.0,
                                                    rms_norm_eps=1e-5, layer_types=["sliding_attention", "full_attention"])),
    # hidden_act as "gelu" is tanh's for its authors and Ignis, erf's for transformers before 5.24
    "gemma": ("gemma", "Gemma 2B", shape(2, 256000, 2048, 16384, 8, 1, 8192, head_dim=256, hidden_act="gelu_pytorch_tanh", rope_theta=10000.0,
                                        rms_norm_eps=1e-6, tie_word_embeddings=True)),
    "gemma2": ("gemma2", "Gemma 2 2B", shape(2, 256000, 2304, 9216, 8, 4, 8192, head_dim=256, hidden_act="gelu_pytorch_tanh",
                                            hidden_activation="gelu_pytorch_tanh", attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
                                            query_pre_attn_scalar=256, sliding_window=4096, rope_theta=10000.0, rms_norm_eps=1e-6,
                                            tie_word_embeddings=True)),
    "gemma3": ("gemma3_text", "Gemma 3 4B", shape(6, 262208, 2560, 10240, 8, 4, 131072, head_dim=256, hidden_activation="gelu_pytorch_tanh",
                                                 query_pre_attn_scalar=256, sliding_window=1024, sliding_window_pattern=6, rope_theta=1000000.0,
                                                 rope_local_base_freq=10000.0, rope_scaling=dict(rope_type="linear", factor=8.0), rms_norm_eps=1e-6,
                                                 tie_word_embeddings=True)),
    "phi3": ("phi3", "Phi-3-mini-4k", shape(2, 32064, 3072, 8192, 32, 32, 4096, original_max_position_embeddings=4096, sliding_window=2047,
                                           rope_theta=10000.0, rope_scaling=None, rms_norm_eps=1e-5, tie_word_embeddings=False)),
    "phi4-mini": ("phi3", "Phi-4-mini", shape(2, 200064, 3072, 8192, 24, 8, 131072, original_max_position_embeddings=4096, sliding_window=262144,
                                             partial_rotary_factor=0.75, rope_theta=10000.0, rope_scaling=LONGROPE, rms_norm_eps=1e-5,
                                             tie_word_embeddings=True)),
    "glm": ("glm", "GLM-4-9B", shape(2, 151552, 4096, 13696, 32, 2, 131072, head_dim=128, attention_bias=True, partial_rotary_factor=0.5,
                                    rope_theta=10000.0, rms_norm_eps=1.5625e-07, tie_word_embeddings=False)),
    "glm4": ("glm4", "GLM-4-9B-0414", shape(2, 151552, 4096, 13696, 32, 2, 32768, head_dim=128, attention_bias=False, partial_rotary_factor=0.5,
                                           rope_theta=10000.0, rms_norm_eps=1e-5, tie_word_embeddings=False)),
    "granite": ("granite", "Granite 3.1 2B", shape(2, 49155, 2048, 8192, 32, 8, 131072, attention_multiplier=0.015625, embedding_multiplier=12.0,
                                                  residual_multiplier=0.22, logits_scaling=8.0, rope_theta=5000000.0, rms_norm_eps=1e-5,
                                                  tie_word_embeddings=True)),
    "olmo2": ("olmo2", "OLMo 2 1B", shape(2, 100352, 2048, 8192, 16, 16, 4096, rope_theta=500000, rms_norm_eps=1e-6, tie_word_embeddings=False)),
    "olmo3": ("olmo3", "OLMo 3 7B", shape(4, 100278, 4096, 11008, 32, 32, 65536, sliding_window=4096, rope_theta=500000, rope_scaling=YARN,
                                         layer_types=["sliding_attention"] * 3 + ["full_attention"], rms_norm_eps=1e-6, tie_word_embeddings=False)),
    "smollm3": ("smollm3", "SmolLM3 3B", shape(4, 128256, 2048, 11008, 16, 4, 65536, no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0],
                                              use_sliding_window=False, sliding_window=None, rope_theta=5000000.0, rms_norm_eps=1e-6,
                                              tie_word_embeddings=True)),
    "minicpm": ("minicpm", "MiniCPM 2B", shape(2, 122753, 2304, 5760, 36, 36, 4096, scale_emb=12, dim_model_base=256, scale_depth=1.4, rope_theta=10000.0,
                                              rms_norm_eps=1e-5, tie_word_embeddings=True)),
    "stablelm": ("stablelm", "StableLM 2 1.6B", shape(2, 100352, 2048, 5632, 32, 32, 4096, partial_rotary_factor=0.25, use_qkv_bias=True,
                                                     rope_theta=10000, layer_norm_eps=1e-5, tie_word_embeddings=False)),
    "internlm2": ("internlm2", "InternLM2 1.8B", shape(2, 92544, 2048, 8192, 16, 8, 32768, bias=False, rope_theta=1000000, rms_norm_eps=1e-5,
                                                      rope_scaling=dict(type="dynamic", factor=2.0), tie_word_embeddings=False)),
    "cohere": ("cohere", "Aya 23 8B", shape(2, 256000, 4096, 14336, 32, 8, 8192, logit_scale=0.0625, rope_theta=10000, layer_norm_eps=1e-5,
                                           use_qk_norm=False, tie_word_embeddings=True)),
    "cohere2": ("cohere2", "Command R7B", shape(4, 256000, 4096, 14336, 32, 8, 8192, head_dim=128, logit_scale=0.25, rope_theta=50000,
                                               layer_norm_eps=1e-5, sliding_window=4096, sliding_window_pattern=4, tie_word_embeddings=True)),
    "granitemoe": ("granitemoe", "Granite 3.1 3B-A800M", shape(2, 49155, 1536, 512, 24, 8, 131072, attention_multiplier=0.015625,
                                                               embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=6.0,
                                                               num_local_experts=40, num_experts_per_tok=8, rope_theta=10000000.0,
                                                               rms_norm_eps=1e-6, tie_word_embeddings=True)),
    # groups as in DeepSeek-V3, so that they are compared, too
    "glm4_moe": ("glm4_moe", "GLM-4.5-Air", shape(2, 151552, 4096, 10944, 96, 8, 131072, head_dim=128, attention_bias=True, use_qk_norm=True,
                                                  partial_rotary_factor=0.5, moe_intermediate_size=1408, n_routed_experts=128, n_shared_experts=1,
                                                  num_experts_per_tok=8, n_group=8, topk_group=4, norm_topk_prob=True, routed_scaling_factor=2.5,
                                                  first_k_dense_replace=1, rope_theta=1000000, rms_norm_eps=1e-5, tie_word_embeddings=False)),
    "deepseek_v2-lite": ("deepseek_v2", "DeepSeek-V2-Lite", shape(2, 102400, 2048, 10944, 16, 16, 163840, q_lora_rank=None, topk_method="greedy", n_group=1,
                                                                  topk_group=1, n_routed_experts=64, num_experts_per_tok=6, n_shared_experts=2,
                                                                  moe_intermediate_size=1408, routed_scaling_factor=1.0,
                                                                  rope_scaling=dict(DEEPSEEK_YARN, mscale=0.707, mscale_all_dim=0.707), **DEEPSEEK)),
    "deepseek_v2": ("deepseek_v2", "DeepSeek-V2", shape(2, 102400, 5120, 12288, 128, 128, 163840, q_lora_rank=1536, topk_method="group_limited_greedy",
                                                        n_group=8, topk_group=3, n_routed_experts=160, num_experts_per_tok=6, n_shared_experts=2,
                                                        moe_intermediate_size=1536, routed_scaling_factor=16.0,
                                                        rope_scaling=dict(DEEPSEEK_YARN, mscale=0.707, mscale_all_dim=0.707), **DEEPSEEK)),
    # of 256 experts 64, so that they fit in f64
    "deepseek_v3": ("deepseek_v3", "DeepSeek-V3", shape(2, 129280, 7168, 18432, 128, 128, 163840, q_lora_rank=1536, topk_method="noaux_tc", n_group=8,
                                                        topk_group=4, n_routed_experts=64, num_experts_per_tok=8, n_shared_experts=1,
                                                        moe_intermediate_size=2048, routed_scaling_factor=2.5, norm_topk_prob=True,
                                                        scoring_func="sigmoid", rope_scaling=dict(DEEPSEEK_YARN, mscale=1.0, mscale_all_dim=1.0),
                                                        **DEEPSEEK)),
    "gpt_neox": ("gpt_neox", "Pythia 1.4B", dict(num_hidden_layers=2, vocab_size=50304, hidden_size=2048, intermediate_size=8192,
                                                num_attention_heads=16, max_position_embeddings=2048, hidden_act="gelu", rotary_emb_base=10000,
                                                rotary_pct=0.25, layer_norm_eps=1e-5, use_parallel_residual=True, tie_word_embeddings=False)),
    "falcon": ("falcon", "Falcon 7B", dict(num_hidden_layers=2, vocab_size=65024, hidden_size=4544, num_attention_heads=71, multi_query=True,
                                           parallel_attn=True, alibi=False, bias=False, new_decoder_architecture=False, layer_norm_epsilon=1e-5,
                                           max_position_embeddings=2048, tie_word_embeddings=True)),
    "falcon40": ("falcon", "Falcon 40B", dict(num_hidden_layers=2, vocab_size=65024, hidden_size=8192, num_attention_heads=128, num_kv_heads=8,
                                              parallel_attn=True, alibi=False, bias=False, new_decoder_architecture=True, layer_norm_epsilon=1e-5,
                                              max_position_embeddings=2048, tie_word_embeddings=False)),
    "falcon2": ("falcon", "Falcon 2 11B", dict(num_hidden_layers=2, vocab_size=65024, hidden_size=4096, num_attention_heads=32, num_kv_heads=8,
                                               num_ln_in_parallel_attn=1, parallel_attn=True, alibi=False, bias=False, new_decoder_architecture=True,
                                               layer_norm_epsilon=1e-5, max_position_embeddings=8192, rope_theta=500042.0,
                                               tie_word_embeddings=False)),
    "qwen2_moe": ("qwen2_moe", "Qwen1.5-MoE A2.7B", shape(2, 151936, 2048, 5632, 16, 16, 8192, num_experts=60, num_experts_per_tok=4,
                                                         moe_intermediate_size=1408, shared_expert_intermediate_size=5632, norm_topk_prob=False,
                                                         decoder_sparse_step=1, use_sliding_window=False, sliding_window=32768, max_window_layers=21,
                                                         rope_theta=1000000.0, rms_norm_eps=1e-6, tie_word_embeddings=False)),
    "qwen3_moe": ("qwen3_moe", "Qwen3 30B-A3B", shape(2, 151936, 2048, 6144, 32, 4, 40960, head_dim=128, num_experts=128, num_experts_per_tok=8,
                                                     moe_intermediate_size=768, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                                                     use_sliding_window=False, sliding_window=None, rope_theta=1000000.0, rms_norm_eps=1e-6,
                                                     tie_word_embeddings=False)),
    "mixtral": ("mixtral", "Mixtral 8x7B", shape(2, 32000, 4096, 14336, 32, 8, 32768, num_local_experts=8, num_experts_per_tok=2, sliding_window=None,
                                                rope_theta=1000000.0, rms_norm_eps=1e-5, tie_word_embeddings=False)),
    "olmoe": ("olmoe", "OLMoE 1B-7B", shape(2, 50304, 2048, 1024, 16, 16, 4096, num_experts=64, num_experts_per_tok=8, norm_topk_prob=False,
                                           clip_qkv=None, rope_theta=10000.0, rms_norm_eps=1e-5, tie_word_embeddings=False)),
    "qwen3_next": ("qwen3_next", "Qwen3-Next 80B-A3B", shape(4, 151936, 2048, 5120, 16, 2, 262144, head_dim=256, partial_rotary_factor=0.25,
                                                            linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128,
                                                            linear_value_head_dim=128, linear_conv_kernel_dim=4, full_attention_interval=4,
                                                            num_experts=512, num_experts_per_tok=10, moe_intermediate_size=512,
                                                            shared_expert_intermediate_size=512, norm_topk_prob=True, decoder_sparse_step=1,
                                                            mlp_only_layers=[], rope_theta=10000000, rms_norm_eps=1e-6, tie_word_embeddings=False)),
    "qwen3_5": ("qwen3_5_text", "Qwen3.5 9B", shape(4, 248320, 4096, 12288, 16, 4, 262144, head_dim=256, attn_output_gate=True,
                                                    linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128,
                                                    linear_value_head_dim=128, linear_conv_kernel_dim=4, mamba_ssm_dtype="float32",
                                                    layer_types=["linear_attention"] * 3 + ["full_attention"], rms_norm_eps=1e-6,
                                                    rope_parameters=dict(rope_type="default", rope_theta=10000000, partial_rotary_factor=0.25,
                                                                         mrope_interleaved=True, mrope_section=[11, 11, 10]),
                                                    tie_word_embeddings=False)),
    "qwen3_5_moe": ("qwen3_5_moe_text", "Qwen3.5 35B-A3B", shape(4, 248320, 2048, 512, 16, 2, 262144, head_dim=256, partial_rotary_factor=0.25,
                                                                 linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128,
                                                                 linear_value_head_dim=128, linear_conv_kernel_dim=4, full_attention_interval=4,
                                                                 num_experts=256, num_experts_per_tok=8, moe_intermediate_size=512,
                                                                 shared_expert_intermediate_size=512, rope_theta=10000000, rms_norm_eps=1e-6,
                                                                 tie_word_embeddings=False)),
    "gpt_oss": ("gpt_oss", "gpt-oss-20b", shape(2, 201088, 2880, 2880, 64, 8, 131072, head_dim=64, num_local_experts=32, num_experts_per_tok=4,
                                                sliding_window=128, rope_theta=150000, rope_scaling=GPT_OSS_YARN, rms_norm_eps=1e-5, attention_bias=True,
                                                layer_types=["sliding_attention", "full_attention"], swiglu_limit=7.0, tie_word_embeddings=False)),
    "bert": ("bert", "BGE base", encoder(30522, 512, 2, hidden_act="gelu", position_embedding_type="absolute")),
    "nomic_bert": ("nomic_bert", "Nomic Embed 1.5", encoder(30528, 2048, 2, hidden_act="silu", rope_theta=1000.0)),
    "roberta": ("roberta", "RoBERTa base", encoder(50265, 514, 1, hidden_act="gelu", position_embedding_type="absolute")),
    "xlm-roberta": ("xlm-roberta", "XLM-RoBERTa base", encoder(250002, 514, 1, hidden_act="gelu", position_embedding_type="absolute")),
}

TINY = dict(vocab_size=131, hidden_size=64, intermediate_size=96, max_position_embeddings=256, original_max_position_embeddings=32, sliding_window=24,
            attn_logit_softcapping=2.5, final_logit_softcapping=3.0, query_pre_attn_scalar=24, attention_multiplier=0.1, dim_model_base=16,
            n_positions=128, n_embd=48, n_layer=2, n_head=3, num_experts=8, num_local_experts=4, moe_intermediate_size=32, num_experts_per_tok=3,
            n_routed_experts=12, n_group=3, topk_group=2, q_lora_rank=32, kv_lora_rank=40, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
            shared_expert_intermediate_size=48, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=16, linear_value_head_dim=24)


def shrink(config):
    """The same features with few numbers."""
    tiny = dict(config, **{key: value for key, value in TINY.items() if config.get(key) is not None})
    if "hidden_size" in config:
        heads, named = config["num_attention_heads"], "num_kv_heads" if "num_kv_heads" in config else "num_key_value_heads"
        kv_heads = config.get(named, 0)
        tiny["num_attention_heads"] = 4
        tiny["num_hidden_layers"] = min(config["num_hidden_layers"], 2 if "layer_types" not in config and config["num_hidden_layers"] > 6 else 6)
        if kv_heads:
            tiny[named] = 4 if kv_heads == heads else 2 if kv_heads > 1 else 1
        if "head_dim" in config:
            tiny["head_dim"] = 16 if config["head_dim"] * heads == config["hidden_size"] else 32
    if config.get("rope_scaling"):
        tiny["rope_scaling"] = {key: [1 + i / 3 for i in range(6)] if key == "short_factor" else [2 + i for i in range(6)] if key == "long_factor"
                                else TINY.get(key, value) for key, value in config["rope_scaling"].items()}
    return tiny


# --- families that are remote code: transformers' Llama with what they add ---------------------------------------------------------------------------


def scale_as_minicpm(model, config):
    """Scales of embeddings, of what each block adds, and of the last states, as modeling_minicpm.py has them."""
    depth = config["scale_depth"] / config["num_hidden_layers"] ** 0.5
    width = config["hidden_size"] / config["dim_model_base"]
    model.model.embed_tokens.register_forward_hook(lambda module, inputs, output: output * config["scale_emb"])
    for layer in model.model.layers:
        for module in (layer.self_attn.o_proj, layer.mlp.down_proj):
            module.register_forward_hook(lambda module, inputs, output: output * depth)
    model.lm_head.register_forward_pre_hook(lambda module, inputs: (inputs[0] / width,))


def name_as_internlm2(tensors, config):
    """q, k and v in groups of heads: those of q, then the one of k and the one of v that they share."""
    names = {"model.embed_tokens.weight": "model.tok_embeddings.weight", "lm_head.weight": "output.weight"}
    parts = {"self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2",
             "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}
    groups, size = config["num_key_value_heads"], config["hidden_size"] // config["num_attention_heads"]
    renamed = {}
    for name, tensor in tensors.items():
        layer, part = name.rpartition(".self_attn.q_proj.")[::2]
        if layer:
            q, k, v = (tensors[f"{layer}.self_attn.{letter}_proj.weight"].reshape(groups, -1, size, tensor.shape[1]) for letter in "qkv")
            renamed[f"{layer}.attention.wqkv.weight"] = torch.cat((q, k, v), 1).reshape(-1, tensor.shape[1]).contiguous()
        elif "k_proj" not in name and "v_proj" not in name:
            for part, other in parts.items():
                name = name.replace(part, other)
            renamed[names.get(name, name)] = tensor
    return renamed


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])  # magnitudes of MXFP4 (OCP Microscaling Formats 1.0, 5.3.3)


def round_to_mxfp4(tensor):
    """Experts [experts, in, out], each 32 inputs of an output with a scale of their own: the scales' exponents, codes and values."""
    blocks = tensor.transpose(1, 2).unflatten(2, (-1, 32))
    exponents = torch.floor(torch.log2(blocks.abs().amax(-1, keepdim=True).clamp(min=2.0 ** -120))) - 2
    magnitudes = E2M1.to(tensor.device)
    codes = torch.bucketize((blocks / 2.0 ** exponents).abs(), (magnitudes[1:] + magnitudes[:-1]) / 2)  # the nearest, and of two the smaller one
    values = magnitudes[codes] * torch.where(blocks < 0, -1.0, 1.0) * 2.0 ** exponents
    return exponents[..., 0], codes + 8 * (blocks < 0), values.flatten(2).transpose(1, 2)


def pack_as_gpt_oss(tensors, config):
    """Experts in MXFP4, as published: two codes in a byte, the first one in its low half."""
    packed = {}
    for name, tensor in tensors.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            exponents, codes, _ = round_to_mxfp4(tensor.to(DEVICE).float())
            packed[f"{name}_scales"] = (exponents + 127).to(torch.uint8).contiguous().cpu()
            packed[f"{name}_blocks"] = (codes[..., 0::2] + 16 * codes[..., 1::2]).to(torch.uint8).contiguous().cpu()
        else:
            packed[name] = tensor
    return packed


ARCHITECTURES = {"minicpm": "MiniCPMForCausalLM", "internlm2": "InternLM2ForCausalLM"}
QUANTIZED = {"gpt_oss": dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"])}
ONLY_PUBLISHED = [*ARCHITECTURES, *QUANTIZED]  # there is no other form of config.json
NOT_SAVED = ["gpt_oss", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"]
ADDED = {"minicpm": scale_as_minicpm}
RENAMED = {"internlm2": name_as_internlm2, "gpt_oss": pack_as_gpt_oss}


# --- models ------------------------------------------------------------------------------------------------------------------------------------------


def is_encoder(config):
    return "type_vocab_size" in config


def name_as_nomic(config):
    """The configuration as the remote code of its publisher has it."""
    names = dict(num_hidden_layers="n_layer", hidden_size="n_embd", intermediate_size="n_inner", num_attention_heads="n_head",
                 max_position_embeddings="n_positions", layer_norm_eps="layer_norm_epsilon", rope_theta="rotary_emb_base")
    return dict({names.get(key, key): value for key, value in config.items() if key != "hidden_act"}, activation_function="swiglu", rotary_emb_fraction=1.0)


def configure(kind, config):
    """What transformers makes of the published configuration."""
    own = {key: copy.deepcopy(value) for key, value in config.items() if kind not in ARCHITECTURES or not key.startswith(("scale_", "dim_model", "bias"))}
    tokens = dict(bos_token_id=1, eos_token_id=2, pad_token_id=None if not is_encoder(config) else 1 if "roberta" in kind else 0)
    return AutoConfig.for_model("llama" if kind in ARCHITECTURES else kind, **own, **tokens)


def auto(config):
    return AutoModel if is_encoder(config) else AutoModelForCausalLM


def finish(model, kind, config):
    if kind in ADDED:
        ADDED[kind](model, config)
    return model.eval()


def kernels(config):
    """softcap needs eager attention, and experts in f64 need eager ones; versions before 5 have no others."""
    eager = dict(experts_implementation="eager") if "num_experts_per_tok" in config and int(transformers.__version__.split(".")[0]) >= 5 else {}
    return dict(eager, attn_implementation="eager" if config.get("attn_logit_softcapping") or "swiglu_limit" in config else "sdpa")


@torch.no_grad()
def create(kind, config):
    """A model whose attention chooses, and whose norms and biases matter; its weights are rounded to bf16."""
    torch.manual_seed(1)
    with torch.device(DEVICE):
        model = auto(config).from_config(configure(kind, config), dtype=torch.float32, **kernels(config))
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter += 0.3 * torch.randn_like(parameter)
        else:
            parameter.normal_(0, (4 if name.endswith((".gate.weight", ".router.weight")) else 1) * parameter.shape[-1] ** -0.5)
        parameter.copy_(round_to_mxfp4(parameter)[2] if kind == "gpt_oss" and name.endswith(("gate_up_proj", "down_proj")) else parameter.bfloat16())
    for module in biased_routers(model):
        module.e_score_correction_bias.copy_((0.3 * torch.randn_like(module.e_score_correction_bias)).bfloat16())
    return model


def biased_routers(model):
    return [module for module in model.modules() if hasattr(module, "e_score_correction_bias")]


def rounded(model):
    """A copy in bf16; biases of choices stay in f32, as published."""
    model = copy.deepcopy(model).bfloat16()
    for module in biased_routers(model):
        module.e_score_correction_bias = module.e_score_correction_bias.float()
    return model


def tensors_of(folder):
    found = {}
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        with safe_open(path, "pt") as file:
            found.update({name: file.get_tensor(name) for name in file.keys()})
    return found


def different(one, other):
    """The names of some tensors that two folders do not have to the same bits. Ignis has no use for RoBERTa's pooler, and does not save it."""
    one, other = tensors_of(one), tensors_of(other)
    names = sorted(name for name in set(one) | set(other) if not name.startswith("pooler."))
    return [name for name in names if name not in one or name not in other or not torch.equal(one[name], other[name])][:3]


@torch.no_grad()
def scores(model, ids, keep):
    """The logits behind the last `keep` tokens; of an encoder the hidden states of all."""
    ids = torch.tensor(ids, device=DEVICE).unsqueeze(0)
    if is_encoder(model.config.to_dict()):
        return model(input_ids=ids).last_hidden_state[0].double().cpu()
    return model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits[0].double().cpu()


class Ignis:
    """generate_logits, in one process for all models, as long as it lives."""

    def __init__(self, program):
        self.program, self.process = program, None

    def work(self, folder, dtype, out, saved, texts, tokens):
        if not self.process or self.process.poll() is not None:
            self.process = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        words = [folder, dtype, out, int(saved), max(len(ids) for ids, prompt in texts) + tokens + 1, len(texts)]
        for ids, prompt in texts:
            words += [prompt, tokens, len(ids)] + ids
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if answer != "done":
            raise RuntimeError(f"generate_logits in {dtype}: {answer or 'it ended'}")

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


def error_of(ours, truth, worst):
    rows = (ours - truth).abs().max(-1).values
    return (getattr(rows, worst)() / truth.abs().max()).item()


def least_error(tokens):
    """What an error in f32 may be in any case. The truth has angles in f32, so that those of token n are wrong by up to n * 2^-24; those of Ignis
    are not. With 4129 tokens of a tiny Mistral that was 6.6e-6, and 1.3e-6 when the truth had exact angles; with true shapes it was up to 3.8e-5, and of
    2085 tokens of a Phi-3 2.8e-5."""
    return 2e-6 + 1.5e-8 * tokens


def publish(folder, kind, config):
    with open(os.path.join(folder, "config.json")) as file:
        written = json.load(file)
    head = dict(model_type=kind, architectures=[ARCHITECTURES[kind]] if kind in ARCHITECTURES else written["architectures"])
    if kind in QUANTIZED:
        head["quantization_config"] = QUANTIZED[kind]
    with open(os.path.join(folder, "config.json"), "w") as file:
        config = name_as_nomic(config) if kind == "nomic_bert" else config
        json.dump(dict(head, bos_token_id=1, eos_token_id=2, torch_dtype="bfloat16", transformers_version="4.40.0", **config), file, indent=1)


# --- comparing ---------------------------------------------------------------------------------------------------------------------------------------


def texts_of(config, tiny):
    """Name: (ids, how many of them are the prompt), in groups that one opened model computes."""
    short, beyond, steps = (20, 30, 3) if tiny else (88, 30, 8)
    context = config.get("max_position_embeddings", 0)
    reach = [config.get("sliding_window") if config.get("use_sliding_window", True) else None, config.get("original_max_position_embeddings") if "long_factor" in (config.get("rope_scaling") or {}) else None]
    reach = [tokens for tokens in reach if tokens and tokens + beyond + 128 < context]
    texts = {"short": short, **({"long": max(reach) + beyond} if reach else {})}
    texts = {name: (torch.randint(0, config["vocab_size"], (prompt + steps,)).tolist(), prompt) for name, prompt in texts.items()}
    return [{name: texts[name]} for name in texts] if "long_factor" in (config.get("rope_scaling") or {}) else [texts]


def compare(ignis, name, top, options):
    """Rows of the table."""
    kind, published, config = MODELS[name]
    config = shrink(config) if options.tiny else config
    tokens, saved = 0 if is_encoder(config) else 8 if options.tiny else 32, (options.tiny or options.saved) and kind not in NOT_SAVED
    folder = os.path.join(top, "model")
    model = create(kind, config)
    rounded(model).save_pretrained(folder)
    torch.manual_seed(2)
    groups = texts_of(config, options.tiny)
    texts = {text: some for group in groups for text, some in group.items()}
    peer = auto(config).from_pretrained(folder, dtype=torch.bfloat16, **kernels(config)).to(DEVICE)
    finish(peer, kind, config)
    theirs = {("bf16", text): scores(peer, ids, len(ids) - prompt + 1) for text, (ids, prompt) in texts.items()}
    del peer
    if kind in RENAMED:
        tensors = RENAMED[kind](tensors_of(folder), config)
        for path in glob.glob(os.path.join(folder, "*.safetensors*")):
            os.remove(path)
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    outs = {}
    if kind in ONLY_PUBLISHED:
        publish(folder, kind, config)
    for dtype in ("f32", "bf16"):
        if dtype == "bf16":
            publish(folder, kind, config)
        for group in groups:
            out = os.path.join(top, f"{dtype}-{len(outs)}")
            os.mkdir(out)
            ignis.work(folder, dtype, out, saved and dtype == "bf16" and group is groups[0], list(group.values()), tokens)
            for number, text in enumerate(group):
                outs[dtype, text] = os.path.join(out, f"logits{number}"), os.path.join(out, f"greedy{number}")
    wrong = different(folder, glob.glob(os.path.join(top, "bf16-*", "model"))[0]) if saved else []
    finish(model, kind, config)
    theirs.update({("f32", text): scores(model, ids, len(ids) - prompt + 1) for text, (ids, prompt) in texts.items()})
    model.double()
    rows = []
    for text, (ids, prompt) in texts.items():
        row, failed = dict(model=name, type=kind, shape=published.replace(" ", "-"), text=text, tokens=len(ids)), []
        for dtype in ("bf16", "f32"):
            written = numpy.fromfile(outs[dtype, text][1], numpy.int32).tolist() if tokens else ids
            truth = scores(model, written, len(written) - prompt + 1)
            ours = torch.from_numpy(numpy.fromfile(outs[dtype, text][0], numpy.float32).reshape(-1, truth.shape[1])).double()
            truth, behind = truth[:len(ours)], truth[len(ours) - 1:-1]
            worst = "median" if "num_experts_per_tok" in config else "max"  # of rows: some turn on a close choice of experts
            error, peer_error = (error_of(x, truth, worst) for x in (ours, theirs[dtype, text]))
            drawn = torch.tensor(written[len(ids):], dtype=torch.int64).unsqueeze(1)
            below = behind[:len(drawn)].max(-1).values - behind[:len(drawn)].gather(1, drawn)[:, 0]
            margin = 2 * (ours - truth).abs().max().item()
            failed += [f"logits-{dtype}"] if not error <= max(2 * peer_error, 0 if dtype == "bf16" else least_error(len(ids))) else []
            failed += [f"greedy-{dtype}"] if tokens and (written[:len(ids)] != ids or len(drawn) != tokens or below.max().item() > margin) else []
            row.update({f"error_{dtype}": f"{error:.2e}", f"transformers_{dtype}": f"{peer_error:.2e}", f"ratio_{dtype}": f"{error / peer_error:.2f}",
                        f"median_{dtype}": "/".join(f"{error_of(x, truth, 'median'):.2e}" for x in (ours, theirs[dtype, text])),
                        f"greedy_{dtype}": f"{(below == 0).sum().item()}/{tokens}"})
        failed += [f"saved:{wrong[0]}"] if wrong else []
        rows.append(dict(row, result="FAIL:" + ",".join(failed) if failed else "PASS"))
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true", default=DEVICE == "cpu")
    parser.add_argument("--saved", action="store_true", help="compare what Ignis saves also in true shapes")
    parser.add_argument("--program", help="generate_logits, if it is built")
    parser.add_argument("models", nargs="*")
    options = parser.parse_args()
    unknown = set(options.models) - set(MODELS)
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    rows, start = [], time.time()
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {'tiny' if options.tiny else 'true shapes'} on {DEVICE}", flush=True)
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory() as top:
        program = options.program or os.path.join(top, "generate_logits")
        if not options.program:
            subprocess.run([os.environ.get("CC", "cc"), "-O0" if options.tiny else "-O1", "-w", "-I", ROOT,
                            os.path.join(ROOT, "tests/models/generate/generate_logits.c"), "-o", program, "-lm", "-ldl", "-lpthread"], check=True)
        ignis = Ignis(program)
        for name in options.models or MODELS:
            begin = time.time()
            try:
                with tempfile.TemporaryDirectory(dir=memory) as folder:
                    some = compare(ignis, name, folder, options)
            except Exception as error:  # the other families are still worth comparing
                missing = "model identifier" in str(error) and "Unrecognized" in str(error)
                some = [dict(model=name, type=MODELS[name][0], result="SKIP" if missing else "FAIL", why=f"{type(error).__name__}: {str(error)[:300]}")]
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
            rows += some
            for row in some:
                print(f"{name:10} {row.get('text', ''):5} {time.time() - begin:5.1f} s {row['result']} {row.get('why', '')}", flush=True)
        ignis.close()
    for row in rows:
        print("row " + " ".join(f"{key}={str(value).replace(' ', '_')}" for key, value in row.items()))
    count = {result: sum(row["result"].startswith(result) for row in rows) for result in ("PASS", "FAIL", "SKIP")}
    print(f"{time.time() - start:.0f} s")
    print(f"transformers_compare: {count['PASS']} passed, {count['FAIL']} failed, {count['SKIP']} skipped")
    return count["FAIL"] > 0


sys.exit(main())
