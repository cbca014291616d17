# SPDX-License-Identifier: MIT
# Checks beside the tests.

# SHORT=1: each compiler, standard and mode, but not all combinations, in less than half of the time.
check-compile: ignis_kernels.h
	@SHORT=$(SHORT) bash tests/compile/run.sh

# All kernels with the real NVRTC: two to three minutes an architecture on two cores, ten for 90a. ARCHS=75,90a: for
# these architectures only; SHORT=1: some variants of each program (tools/nvrtc_check.c says which).
check-kernels: build/embed build/nvrtc_check
	build/embed --check
	env -u IGNIS_NVRTC_LIBRARY build/nvrtc_check $(if $(ARCHS),--archs $(ARCHS)) $(if $(SHORT),--short) --jobs $(JOBS)

check-docs: $(SIMULATOR) ignis_kernels.h build/manual
	@SHORT=$(SHORT) sh tools/check_docs.sh

check-prototypes:
	@sh tools/check_prototypes.sh

# Counts the habits of style that docs/STYLE.md forbids: they may become fewer, never more.
check-words:
	@sh tools/check_words.sh

FORMATTED := $(filter %.c %.h,$(PARTS)) $(filter %.c %.h %.cpp,$(shell find tests -type f)) \
    $(wildcard apps/*/*.c apps/*/tests/*.h examples/*.[ch] examples/*.cpp examples/*.cu docs/*.c bench/*.[ch] \
    tools/*.[ch] sim/*.[ch] sim/*/*.[ch] sim/*.cpp sim/*/*.cpp)
check-format:
	clang-format --dry-run -Werror $(FORMATTED)

format:
	clang-format -i $(FORMATTED)

# One page of what the headers document: build/manual.html.
manual: build/manual.html
build/manual.html: build/manual $(HEADERS) docs/examples.c
	build/manual $@

check-manual: build/manual.html
	@sh tools/check_manual.sh

# The recipe of HACKING.md, followed in a copy of the tree.
check-recipe: $(SIMULATOR)
	@sh tools/check_recipe.sh

# Training goes on after an interruption as without it, to the last bit.
check-resume: $(SIMULATOR) $(OUT)/train_gpt
	@sh tests/resume.sh $(OUT)/train_gpt $(OUT)/resume

# The server as its clients see it: with a model that repeats its prompt, which needs no GPU, under sanitizers; then a
# small one with random weights, with which the talk in a terminal is tried, too. SOAK=1: for longer.
check-serve: $(SIMULATOR) $(OUT)/serve $(OUT)/talk $(OUT)/forced_calls
	@if ! command -v python3 >/dev/null; then echo "skip: serve: there is no python3" && exit 0; fi; set -e; \
	    $(CC) -O0 -g $(STRICT_WHOLE) $(SANITIZED) -Iapps/serve/tests apps/serve/serve.c -o $(OUT)/serve_fake $(LDLIBS); \
	    $(CC) -O1 -g $(STRICT) -Wno-unused-function $(SANITIZED) apps/serve/tests/fuzz_calls.c -o $(OUT)/fuzz_calls $(LDLIBS); \
	    $(OUT)/fuzz_calls 20000; $(OUT)/forced_calls 20; \
	    python3 apps/serve/tests/serve_test.py $(OUT)/serve_fake; \
	    python3 apps/serve/tests/serve_test.py $(OUT)/serve $(OUT)/serve_model; \
	    python3 apps/serve/tests/load_test.py $(OUT)/serve $(OUT)/serve_model 8 3; \
	    python3 apps/talk/tests/talk_test.py $(OUT)/talk $(OUT)/serve_model

# Forced calls go through the grammars of the rooms.
$(OUT)/forced_calls: apps/serve/tests/forced_calls.c $(wildcard apps/serve/*.c) $(ROOM_OBJECTS)
	$(TEST_CC) $(ROOM_CFLAGS) -Wno-unused-function $(SANITIZED) -include tests/rooms.h $< $(ROOM_OBJECTS) -o $@ $(LDLIBS)

# The server as the client libraries openai, langchain-openai, litellm and lm-eval see it: those that PYTHON has.
check-clients:
	@set -e; mkdir -p $(OUT); $(CC) -O0 -g $(STRICT_WHOLE) $(SANITIZED) -Iapps/serve/tests apps/serve/serve.c -o $(OUT)/serve_fake $(LDLIBS); \
	    LITELLM_LOCAL_MODEL_COST_MAP=True $(or $(PYTHON),python3) apps/serve/tests/clients_test.py $(OUT)/serve_fake

# Many clients of the server at once, some vanishing, some slow: CLIENTS=256 SECONDS=600.
load-serve: $(SIMULATOR) $(OUT)/serve
	@python3 apps/serve/tests/load_test.py $(OUT)/serve $(OUT)/serve_model $(or $(CLIENTS),256) $(or $(SECONDS),600)

# Examples run with the driver alone, from bundles.
check-driver-only: $(SIMULATOR) build/ignis_embed $(addprefix $(OUT)/,save_load fit_image train_gpt)
	@sh tests/driver_only.sh $(OUT) $(OUT)/driver_only

# Training on two and four GPUs is training on one.
check-gpus: $(SIMULATOR) $(OUT)/train_gpt
	@sh tests/gpus.sh $(OUT)/train_gpt $(OUT)/gpus

# Memory, fences and buffers of the graphics APIs that this machine has: a GPU's, or Mesa's for CPUs, which does for a
# part of it.
GRAPHICS := $(if $(VULKAN_HEADER),$(OUT)/gpu_vulkan $(OUT)/gpu_engine) $(if $(OPENGL_HEADER),$(OUT)/gpu_opengl)
check-graphics: $(SIMULATOR) $(GRAPHICS) $(if $(VULKAN_HEADER),$(OUT)/vulkan_buffer)
	@$(if $(VULKAN_HEADER),,echo 'skipped: gpu_vulkan, gpu_engine, vulkan_buffer: no vulkan/vulkan.h (libvulkan-dev)')
	@$(if $(OPENGL_HEADER),,echo 'skipped: gpu_opengl: no EGL/eglext.h and GL/glext.h (libegl-dev, libgl-dev)')
	@$(if $(strip $(GRAPHICS)),echo "graphics on the $(DEVICE)" && sh tests/run.sh $(GRAPHICS))
	$(if $(VULKAN),$(OUT)/vulkan_buffer)

$(OUT)/gpu_%: tests/interop/gpu_%.c $(wildcard tests/*.h) $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -std=c99 -O0 -g $(STRICT_WHOLE) -I. -iquote tests $(LANE_CFLAGS) $< -o $@ $(LDLIBS)

# Two shared libraries: the engine and its game with one Ignis, a plugin with one of its own, which nobody else sees.
$(OUT)/gpu_engine: $(OUT)/engine/libengine.so $(OUT)/engine/libeffects.so
SHARED := -O1 -g -fPIC $(STRICT_WHOLE) -I. $(LANE_CFLAGS)
$(OUT)/engine/libengine.so: $(ENGINE) $(HEADERS)
	@mkdir -p $(OUT)/engine
	$(CC) -std=c99 $(SHARED) -c tests/engine/core.c -o $(OUT)/engine/core.pic.o
	$(CXX) -std=c++17 $(SHARED) -shared tests/engine/game.cpp $(OUT)/engine/core.pic.o -o $@ $(LDLIBS)
$(OUT)/engine/libeffects.so: $(ENGINE) $(HEADERS)
	@mkdir -p $(OUT)/engine
	$(CXX) -std=c++17 $(SHARED) -shared tests/engine/effects.cpp -o $@ $(LDLIBS)

.PHONY: check-compile check-kernels check-docs check-prototypes check-words check-format format manual check-manual \
    check-recipe check-resume check-serve load-serve check-clients check-driver-only check-gpus check-graphics
