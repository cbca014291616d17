# SPDX-License-Identifier: MIT
"""gguf_compare.py - GGUF files that the Python package gguf writes, opened by Ignis: values of every type equal to the bit

    gguf_compare.py MODEL_DUMP

Weights are dequantised by gguf, and compared with those that model_dump.c reads back in f32. Then the model is written as a folder, and its
tensors are compared with those that the Python package safetensors finds there. Without the packages the check is skipped."""
import os
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy as np
except ImportError as error:
    print(f"skipped: the Python package is not installed ({error})")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ2_XXS", "IQ2_XS", "IQ2_S",
         "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "MXFP4"]
HIDDEN, INNER, VOCAB, HEADS, KV = 256, 512, 37, 4, 2
D = HIDDEN // HEADS
PLAIN = {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"}  # gguf can quantise these; of the others it only reads blocks


def blocks(rng, rows, columns, kind):
    """Random bytes of a type, with scales that are no infinities."""
    quant = gguf.GGMLQuantizationType[kind]
    if kind == "F32":
        return rng.standard_normal((rows, columns)).astype(np.float32)
    if kind == "F16":
        return rng.standard_normal((rows, columns)).astype(np.float16)
    if kind in PLAIN or kind == "BF16":
        return gguf.quants.quantize(rng.standard_normal((rows, columns)).astype(np.float32), quant)
    elements, size = gguf.GGML_QUANT_SIZES[quant]
    data = rng.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
    places = {"Q6_K": [208], "Q3_K": [108], "Q2_K": [80, 82], "Q4_K": [0, 2], "Q5_K": [0, 2], "MXFP4": []}.get(kind, [0])
    if kind == "MXFP4":  # the two smallest powers are subnormal; the greatest ones would overflow
        data[:, 0] = np.minimum(data[:, 0], 250)
    for place in places:
        scale = rng.standard_normal(data.shape[0]).astype(np.float16) / np.float16(64)
        data[:, place:place + 2] = scale.astype(np.float16)[:, None].view(np.uint8).reshape(-1, 2)
    return data.reshape(rows, -1)


def unpermute(x, heads):
    """Rows of q and k in the order of Hugging Face."""
    return x.reshape(heads, x.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(x.shape)


def write(path, architecture, kind, rng):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_context_length(64)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_token_list([f"t{i}" for i in range(VOCAB)])
    values = {}

    def add(name, hf, rows, columns, heads=0):
        quant = gguf.GGMLQuantizationType[kind if columns else "F32"]
        data = blocks(rng, rows, columns or 1, kind if columns else "F32")
        data = data if columns else data.reshape(rows)
        writer.add_tensor(name, data, raw_dtype=quant)
        value = gguf.quants.dequantize(data, quant).reshape(rows, columns or 1).astype(np.float32)
        values[hf] = unpermute(value, heads) if heads and architecture == "llama" else value

    add("token_embd.weight", "model.embed_tokens.weight", VOCAB, HIDDEN)
    add("output_norm.weight", "model.norm.weight", HIDDEN, 0)
    add("output.weight", "lm_head.weight", VOCAB, HIDDEN)
    layer = "model.layers.0."
    add("blk.0.attn_norm.weight", layer + "input_layernorm.weight", HIDDEN, 0)
    add("blk.0.ffn_norm.weight", layer + "post_attention_layernorm.weight", HIDDEN, 0)
    add("blk.0.attn_q.weight", layer + "self_attn.q_proj.weight", HEADS * D, HIDDEN, HEADS)
    add("blk.0.attn_k.weight", layer + "self_attn.k_proj.weight", KV * D, HIDDEN, KV)
    add("blk.0.attn_v.weight", layer + "self_attn.v_proj.weight", KV * D, HIDDEN)
    add("blk.0.attn_output.weight", layer + "self_attn.o_proj.weight", HIDDEN, HEADS * D)
    add("blk.0.ffn_gate.weight", layer + "mlp.gate_proj.weight", INNER, HIDDEN)
    add("blk.0.ffn_up.weight", layer + "mlp.up_proj.weight", INNER, HIDDEN)
    add("blk.0.ffn_down.weight", layer + "mlp.down_proj.weight", HIDDEN, INNER)
    if architecture == "qwen2":
        for short, hf, rows in (("q", "q", HEADS * D), ("k", "k", KV * D), ("v", "v", KV * D)):
            add(f"blk.0.attn_{short}.bias", f"{layer}self_attn.{hf}_proj.bias", rows, 0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def main():
    dump = sys.argv[1]
    rng = np.random.default_rng(1)
    checked = 0
    with tempfile.TemporaryDirectory() as folder:
        for architecture in ("llama", "qwen2"):
            for kind in TYPES:
                path, out = os.path.join(folder, "m.gguf"), os.path.join(folder, "out")
                values = write(path, architecture, kind, rng)
                subprocess.run([dump, path, out, *values], check=True)
                got = np.fromfile(out, np.float32)
                want = np.concatenate([value.reshape(-1) for value in values.values()])
                if got.shape != want.shape or got.tobytes() != want.tobytes():
                    print(f"check-gguf: {architecture} {kind}: {np.sum(got != want)} of {want.size} values differ")
                    return 1
                checked += want.size
        try:
            from safetensors.numpy import load_file
        except ImportError as error:
            print(f"check-gguf: the folder is not compared: {error}")
        else:
            saved = os.path.join(folder, "saved")
            subprocess.run([dump, path, saved], check=True)
            tensors = load_file(os.path.join(saved, "model.safetensors"))
            if set(tensors) != set(values) or any(tensors[n].tobytes() != values[n].tobytes() for n in values):
                print("check-gguf: the saved folder has other tensors")
                return 1
    print(f"check-gguf: {checked} values of {len(TYPES)} types are equal to the bit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
