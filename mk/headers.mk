# SPDX-License-Identifier: MIT
# The headers, which tools/amalgamate.c and tools/embed.c write from src/ and kernels/; each part compiled alone;
# programs of tools/.

# The headers from their parts in src/, and from kernels/. A header that has not changed keeps its time.
headers: $(HEADERS)

PARTS := $(shell find src -type f)
$(GENERATED): build/amalgamated
	@:
build/amalgamated: $(PARTS) build/model_kernels.c build/amalgamate
	build/amalgamate
	@touch $@

ignis_kernels.h build/model_kernels.c: build/embedded
	@:
build/embedded: build/embed $(wildcard kernels/* kernels/*/* src/shared/* src/shared/*/*) src/base/version.h
	build/embed
	@touch $@

check-headers: build/amalgamate build/embed build/kernel_texts
	build/embed --check
	build/amalgamate --check
	@CC="$(CC)" sh tools/check_kernel_texts.sh

build/%: tools/%.c
	@mkdir -p build
	$(CC) -O1 -I. $< -o $@ $(LDLIBS)
build/nvrtc_check build/kernel_texts: $(HEADERS) tools/kernel_part.h
build/amalgamate build/embed build/coverage_page: tools/text.h
build/ignis_embed: $(HEADERS) tools/kernel_part.h

# Each part alone: it has what the room.h of its room declares, and of the rooms below. The objects are linked, so
# that nothing is declared which no part defines. Those of another system are left out.
PARTS_ALONE := $(filter-out %/windows.c %_windows.c %/named_pipe.c,$(filter %.c,$(PARTS)))
PARTS_CC = $(CC) -std=c99 -O0 -fPIC $(STRICT) -DIGNIS__PRIVATE= -Isrc -I.
parts: build/parts/ignis.so
build/parts/ignis.so: $(PARTS_ALONE:src/%.c=build/parts/%.o) build/parts/kernels.o
	$(CC) -shared -Wl,-z,defs $^ -o $@ $(LDLIBS)
build/parts/%.o: src/%.c $(filter %.h,$(PARTS)) ignis_kernels.h
	@mkdir -p $(@D)
	@$(PARTS_CC) -DIGNIS__PARTS -include src/ignis_models.h -include src/ignis_collective.h -c $< -o $@ || \
	    { echo "$<: does not compile alone"; exit 1; }
build/parts/kernels.o: ignis_kernels.h
	@mkdir -p $(@D)
	$(PARTS_CC) -DIGNIS_IMPLEMENTATION -x c -c $< -o $@

.PHONY: headers parts check-headers
