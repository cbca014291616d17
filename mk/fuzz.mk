# SPDX-License-Identifier: MIT
# A million of each: damaged bundles, chat templates, safetensors, .npy files, formulas, tokenizers; and a tenth as many models,
# each of which is a file on the disk. It ends at the first sanitizer report. Programs are not optimized: that would
# take longer to compile than 20,000 inputs take.
FUZZ := 1000000
FUZZED := bundle chat file formula grammar npy text
FUZZERS := $(FUZZED:%=build/fuzz/fuzz_%) build/fuzz/fuzz_model
SANITIZED := -fsanitize=address,undefined -fno-sanitize-recover=all
fuzz: $(SIMULATOR)
	@$(MAKE) --no-print-directory -s -j$(JOBS) LANE=fuzz STRICT= LANE_CFLAGS='$(SANITIZED)' $(FUZZERS)
	@printf '%s\n' $(FUZZED:%='build/fuzz/fuzz_% $(FUZZ)') "build/fuzz/fuzz_model $$(($(FUZZ) / 10))" | \
	    xargs -P $(JOBS) -I{} sh -c '{}'

# Where the work behind an input is counted: each straight piece of code that is run.
FUZZ_COUNTED := $(shell grep -l __sanitizer_cov_trace_pc $(FUZZ_SOURCES))
$(FUZZ_COUNTED:%.c=$(OUT)/%.o): TEST_CFLAGS += -fsanitize-coverage=trace-pc

.PHONY: fuzz
