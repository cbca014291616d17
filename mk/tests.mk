# SPDX-License-Identifier: MIT
# Tests: the objects of the rooms, the programs, make test, make soak.

# Tests are in folders as src/ is; their programs are not.
TEST_SOURCES := $(shell find tests -name 'test_*.c')
FUZZ_SOURCES := $(shell find tests -name 'fuzz_*.c')
TESTS := $(patsubst %.c,$(OUT)/%,$(notdir $(TEST_SOURCES))) $(OUT)/test_engine
# Those that take long come first, the longest before others, so that none of them runs alone at the end; those that
# wait more than they compute, ranks in processes, stand between others that compute.
SLOW := $(addprefix $(OUT)/test_,elastic generate_kernels hybrid gemm comm_job_deaths sdpa_masks tensor_parallel \
    ops_attention second_derivatives generate_parallel comm_ops_failures generate families formula formula_table \
    ops_rows bundle model conv formula_reduce losses training comm_ops latent cache_types shards recurrent \
    generate_batch comm_job fft lora sdpa_documents random conv3d sequence_lora experts cross_entropy)
TESTS := $(filter $(TESTS),$(SLOW)) $(filter-out $(SLOW),$(TESTS))

# Tests link the rooms of src/: one object for each folder, with its parts in the order of the headers. The names that
# parts share are global there, and tests/rooms.h declares them to a test. A test whose macros change the
# implementation has a header in itself, as programs have. A lane of its own needs LANE and LANE_CFLAGS; TEST_CFLAGS
# are those of tests alone.
OTHER_SYSTEM := $(if $(EXE),%/posix.c %_posix.c %/fifo.c %/shared_ring.c,%/windows.c %_windows.c %/named_pipe.c)
ORDERED := $(filter-out $(OTHER_SYSTEM),$(shell sed -n 's/^.include "\(.*\.c\)"$$/\1/p' $(GENERATED:%=src/%)))
ROOMS := $(sort $(patsubst %/,%,$(patsubst ./,setup,$(dir $(ORDERED)))))
ROOM_OBJECTS := $(ROOMS:%=$(OUT)/rooms/%.o) $(OUT)/rooms/kernels.o $(OUT)/rooms/hook.o
# $(call parts_of,ROOM): the parts of a folder, without those of the folders in it
parts_of = $(filter $1.c,$(ORDERED)) $(foreach part,$(ORDERED),$(if $(filter $1/,$(dir $(part))),$(part)))
TEST_CC = $(CC) -std=c99 -O0 -g -fPIC $(STRICT) $(LANE_CFLAGS) -MMD -MP
ROOM_CFLAGS := -DIGNIS__PARTS -DIGNIS__PRIVATE= -Isrc -I.

rooms: $(ROOM_OBJECTS)

$(OUT)/rooms/%.o: | $(HEADERS)
	@mkdir -p $(@D)
	@echo "$(CC) $@"
	@printf '#include "%s"\n' $(call parts_of,$*) | $(TEST_CC) -MF $(@:.o=.d) -MT $@ $(ROOM_CFLAGS) -include tests/hook.h \
	    -include src/ignis_models.h -include src/ignis_collective.h -x c -c - -o $@

$(OUT)/rooms/kernels.o: ignis_kernels.h
	@mkdir -p $(@D)
	$(TEST_CC) -DIGNIS__PRIVATE= -DIGNIS_IMPLEMENTATION -x c -c $< -o $@

$(OUT)/rooms/hook.o: tests/hook.c tests/hook.h
	@mkdir -p $(@D)
	$(TEST_CC) $(ROOM_CFLAGS) -c $< -o $@

WHOLE := $(shell grep -lE '^.define (IGNIS_(_|NO_TENSORS|TRACE_CALLS)|malloc|poll)' $(TEST_SOURCES) $(FUZZ_SOURCES))
$(OUT)/tests/%.o: tests/%.c | $(HEADERS)
	@mkdir -p $(@D)
	$(TEST_CC) $(TEST_CFLAGS) $(if $(filter $<,$(WHOLE)),-Wno-misleading-indentation -I.,$(ROOM_CFLAGS) -include tests/rooms.h) -iquote tests \
	    -c $< -o $@

program = $(OUT)/$(basename $(notdir $1))$(EXE)
$(foreach source,$(TEST_SOURCES) $(FUZZ_SOURCES),$(eval $(call program,$(source)): \
    $(OUT)/$(source:.c=.o) $(if $(filter $(source),$(WHOLE)),,$(ROOM_OBJECTS))))
$(foreach source,$(TEST_SOURCES) $(FUZZ_SOURCES),$(call program,$(source))):
	$(CC) $(LANE_CFLAGS) $^ -o $@ $(LDLIBS)

-include $(ROOM_OBJECTS:.o=.d) $(patsubst %.c,$(OUT)/%.d,$(TEST_SOURCES) $(FUZZ_SOURCES) tests/base/plug.c)

$(OUT)/tests/shared/test_shared.o: build/shared_layout.h
build/shared_layout.h: tools/shared_layout.awk $(filter src/shared/%,$(PARTS))
	@mkdir -p build
	awk -f $^ >$@

# What test_system loads and unloads.
PLUG := $(OUT)/plug$(if $(EXE),.dll,.so)
PLUG_WRAPS := $(foreach function,malloc calloc realloc free,-Wl,--wrap=$(function))
$(OUT)/test_system$(EXE): | $(PLUG)
$(PLUG): $(OUT)/tests/base/plug.o $(ROOM_OBJECTS)
	$(CC) $(LANE_CFLAGS) -shared $(if $(EXE),,-Wl,-Bsymbolic) $(PLUG_WRAPS) $^ -o $@ $(LDLIBS)

# As the program of a user is built: two static libraries, one with Ignis inside, one in C++ that calls it, and a
# program of both.
ENGINE := $(wildcard tests/engine/*)
$(OUT)/test_engine$(EXE): $(ENGINE) $(HEADERS)
	@mkdir -p $(OUT)/engine
	$(CC) -std=c99 -O1 -g $(STRICT_WHOLE) -I. $(LANE_CFLAGS) -c tests/engine/core.c -o $(OUT)/engine/core.o
	for part in game main; do \
	    $(CXX) -std=c++11 -O1 -g $(STRICT_WHOLE) -I. $(LANE_CFLAGS) -c tests/engine/$$part.cpp \
	        -o $(OUT)/engine/$$part.o || exit 1; \
	done
	for part in core game; do \
	    rm -f $(OUT)/engine/lib$$part.a; $(AR) rcs $(OUT)/engine/lib$$part.a $(OUT)/engine/$$part.o || exit 1; done
	$(CXX) $(LANE_CFLAGS) $(OUT)/engine/main.o $(OUT)/engine/libgame.a $(OUT)/engine/libcore.a -o $@ $(LDLIBS)

# COVERAGE=1: with the lines and branches of src/ that they reach.
ifeq ($(COVERAGE),1)
test: coverage
else
test: $(SIMULATOR) $(TESTS)
	@echo "tests run on the $(DEVICE)"
	@sh tests/run.sh $(TESTS)
endif

# The tests of what processes and threads share, in their long versions: ten thousand cycles, a hundred ranks killed,
# every type and operation, draws at random; and those that leave cases to a GPU otherwise, or take each in one 16-bit
# type (test_takes of tests/tensor.h): kernels of f16 and bf16 have the same source.
SOAKS := $(addprefix $(OUT)/test_,vmm transport transport_processes channel channel_strangers share comm_job \
    comm_job_deaths comm_ops comm_ops_failures conv conv3d hybrid losses tape_threads threads generate \
    generate_kernels generate_parallel generate_threads gemm ops_attention sdpa_masks)
soak: $(SIMULATOR) $(SOAKS)
	@echo "soak on the $(DEVICE)"
	@start=$$(date +%s); IGNIS_SOAK=1 TIME_LIMIT=$${TIME_LIMIT:-3600} \
	    sh tests/run.sh $(SOAKS) >$(OUT)/soak.log 2>&1; code=$$?; \
	    sed '$$d' $(OUT)/soak.log; echo "soak: $$(tail -n 1 $(OUT)/soak.log), $$(($$(date +%s) - start)) s"; exit $$code

.PHONY: rooms test soak
