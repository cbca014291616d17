# SPDX-License-Identifier: MIT
# A million of each: damaged bundles, chat templates, safetensors, .npy files, formulas, tokenizers, grammars and
# schemas, descriptions of families; and a tenth as many models, each of which is a file on the disk, and a hundredth
# as many sequences, each of which is loaded. fuzz-models: a million of them. It ends at the first sanitizer report. Programs are not optimized: that would take longer to compile
# than 20,000 inputs take.
FUZZ := 1000000
FUZZED := bundle chat families file formula grammar npy text
FUZZERS := $(FUZZED:%=build/fuzz/fuzz_%) build/fuzz/fuzz_model build/fuzz/fuzz_sequence
SANITIZED := -fsanitize=address,undefined -fno-sanitize-recover=all
fuzz: $(SIMULATOR)
	@$(MAKE) --no-print-directory -s -j$(JOBS) LANE=fuzz STRICT= LANE_CFLAGS='$(SANITIZED)' $(FUZZERS)
	@printf '%s\n' $(FUZZED:%='build/fuzz/fuzz_% $(FUZZ)') "build/fuzz/fuzz_model $$(($(FUZZ) / 10))" \
	    "build/fuzz/fuzz_sequence $$(($(FUZZ) / 100))" | \
	    xargs -P $(JOBS) -I{} sh -c '{}'

fuzz-models: $(SIMULATOR)
	@$(MAKE) --no-print-directory -s -j$(JOBS) LANE=fuzz STRICT= LANE_CFLAGS='$(SANITIZED)' build/fuzz/fuzz_model
	build/fuzz/fuzz_model $(FUZZ)

# Where the work behind an input is counted: each straight piece of code that is run.
FUZZ_COUNTED := $(shell grep -l __sanitizer_cov_trace_pc $(FUZZ_SOURCES))
$(FUZZ_COUNTED:%.c=$(OUT)/%.o): TEST_CFLAGS += -fsanitize-coverage=trace-pc

.PHONY: fuzz fuzz-models
