# SPDX-License-Identifier: MIT
"""packed_compare.py - folders with weights of FP8, AWQ, GPTQ and MXFP4, opened by Ignis: values equal to the bit

    packed_compare.py MODEL_DUMP

Weights are random numbers and scales. What they mean is computed here as the formats define it, in f32 with one rounding, and compared with what
model_dump.c reads back in f32. FP8: DeepSeek's blocks of 128 by 128, and one scale for each row or for all, as compressed-tensors has them. Without
numpy the check is skipped."""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError as error:
    print(f"skipped: the Python package is not installed ({error})")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

HIDDEN, INNER, VOCAB, HEADS, KV = 256, 512, 40, 4, 2
D = HIDDEN // HEADS
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the row that is in each nibble of a word


def e4m3(codes):
    """The values of FP8 E4M3 without infinities."""
    exponent, fraction = (codes >> 3 & 15).astype(np.int32), (codes & 7).astype(np.float32)
    value = np.where(exponent == 0, fraction * np.float32(2.0**-9), (1 + fraction / 8) * np.exp2(exponent - 7.0)).astype(np.float32)
    return np.where(codes & 128, -value, value)


def bf16(values):
    """f32 cut to bf16, as bits and as values."""
    bits = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


def packed(numbers, bits, axis, order=None):
    """Numbers of 4 or 8 bits as words, the lowest bits first, along an axis."""
    per = 32 // bits
    numbers = np.moveaxis(numbers.astype(np.uint32), axis, -1)
    numbers = numbers.reshape(*numbers.shape[:-1], -1, per)
    words = np.zeros(numbers.shape[:-1], np.uint32)
    for i in range(per):
        words |= numbers[..., order[i] if order else i] << np.uint32(bits * i)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis)).view(np.int32)


def weight(kind, rng, name, rows, columns, tensors):
    """Adds the tensors of a weight, and returns its values."""
    base = name[: -len(".weight")]
    if kind.startswith("fp8"):
        codes = rng.integers(0, 256, (rows, columns), dtype=np.uint8)
        codes[codes & 127 == 127] = 0  # NaN
        across = {"fp8": (-(-rows // 128), -(-columns // 128)), "fp8 rows": (rows, 1), "fp8 tensor": (1,)}[kind]
        scale = rng.random(across).astype(np.float32) / 64
        if kind == "fp8":
            tensors[base + ".weight_scale_inv"] = ("F32", scale)
            scale = np.repeat(np.repeat(scale, 128, 0)[:rows], 128, 1)[:, :columns]
        else:
            bits, scale = bf16(scale)
            tensors[base + ".weight_scale"] = ("BF16", bits)
        tensors[name] = ("F8_E4M3", codes)
        return e4m3(codes) * scale
    if kind == "mxfp4":
        blocks = rng.integers(0, 256, (rows, columns // 32, 16), dtype=np.uint8)
        scales = rng.integers(0, 250, (rows, columns // 32), dtype=np.uint8)
        tensors[name + "_blocks"], tensors[name + "_scales"] = ("U8", blocks), ("U8", scales)
        values = np.stack([FP4[blocks & 15], FP4[blocks >> 4]], -1).reshape(rows, columns // 32, 32)
        return (values.astype(np.float64) * np.exp2(scales.astype(np.float64) - 127)[..., None]).astype(np.float32).reshape(rows, columns)
    bits, group = (8 if "8" in kind else 4), 64
    groups = columns // group
    middle = 1 << (bits - 1)
    q = rng.integers(0, 1 << bits, (columns, rows))
    zeros = np.full((groups, rows), middle) if "sym" in kind else rng.integers(1, 1 << bits, (groups, rows))
    scales = (rng.standard_normal((groups, rows)) / 64).astype(np.float16)
    index = rng.permutation(np.arange(columns) // group) if "order" in kind else np.arange(columns) // group
    tensors[base + ".scales"] = ("F16", scales)
    if kind == "awq":
        tensors[base + ".qweight"] = ("I32", packed(q, 4, 1, AWQ_ORDER))
        tensors[base + ".qzeros"] = ("I32", packed(zeros, 4, 1, AWQ_ORDER))
    else:
        tensors[base + ".qweight"] = ("I32", packed(q, bits, 0))
        tensors[base + ".qzeros"] = ("I32", packed(zeros if "v2" in kind else zeros - 1, bits, 1))
        tensors[base + ".g_idx"] = ("I32", index.astype(np.int32))
    return ((q - zeros[index]).astype(np.float32) * scales[index].astype(np.float32)).T


def config(kind):
    method = kind.split()[0]
    if kind == "fp8":
        return {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    if method == "fp8":
        return {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"]}
    if method == "mxfp4":
        return {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    if method == "awq":
        return {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}
    return {"quant_method": "gptq", "bits": 8 if "8" in kind else 4, "group_size": 64, "sym": "sym" in kind, "desc_act": "order" in kind,
            "checkpoint_format": "gptq_v2" if "v2" in kind else "gptq"}


def write(folder, kind, rng):
    tensors, values = {}, {}

    def add(name, rows, columns, quantised=True):
        if quantised:
            values[name] = weight(kind, rng, name, rows, columns, tensors)
            return
        bits, values[name] = bf16(rng.standard_normal((rows, columns) if columns else rows))
        tensors[name] = ("BF16", bits)

    add("model.embed_tokens.weight", VOCAB, HIDDEN, False)
    add("lm_head.weight", VOCAB, HIDDEN, False)
    add("model.norm.weight", HIDDEN, 0, False)
    layer = "model.layers.0."
    add(layer + "input_layernorm.weight", HIDDEN, 0, False)
    add(layer + "post_attention_layernorm.weight", HIDDEN, 0, False)
    for name, rows, columns in (("self_attn.q_proj", HEADS * D, HIDDEN), ("self_attn.k_proj", KV * D, HIDDEN), ("self_attn.v_proj", KV * D, HIDDEN),
                                ("self_attn.o_proj", HIDDEN, HEADS * D), ("mlp.gate_proj", INNER, HIDDEN), ("mlp.up_proj", INNER, HIDDEN),
                                ("mlp.down_proj", HIDDEN, INNER)):
        add(layer + name + ".weight", rows, columns)
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        array = np.ascontiguousarray(array)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": HIDDEN, "intermediate_size": INNER, "vocab_size": VOCAB,
                   "num_attention_heads": HEADS, "num_key_value_heads": KV, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                   "tie_word_embeddings": False, "quantization_config": config(kind)}, file)
    return values


def main():
    rng = np.random.default_rng(1)
    checked = 0
    kinds = ["fp8", "fp8 rows", "fp8 tensor", "mxfp4", "awq", "gptq", "gptq sym", "gptq v2", "gptq order", "gptq 8", "gptq 8 sym"]
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            out = os.path.join(folder, "out")
            values = write(folder, kind, rng)
            subprocess.run([sys.argv[1], folder, out, *values], check=True)
            got = np.fromfile(out, np.float32)
            want = np.concatenate([value.reshape(-1) for value in values.values()])
            if got.shape != want.shape or (got != want).any():
                print(f"check-packed: {kind}: {np.sum(got != want)} of {want.size} values differ")
                return 1
            checked += want.size
    print(f"check-packed: {checked} values of {len(kinds)} kinds are equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
