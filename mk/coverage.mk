# SPDX-License-Identifier: MIT
# make coverage, or make test COVERAGE=1: the tests in a lane of their own, compiled for gcov. Prints lines and branches of each room of src/, and writes
# build/coverage.html with the text of each part. TESTS='build/coverage/test_array' counts some tests alone.
#
# Counts of child processes are included, also of those that end by _exit: tests/coverage.c writes them. Not counted: what a process that a
# signal ends has done since it last wrote its counts; parts for Windows; programs other than the tests.

COVERED := build/coverage
COVERAGE_CFLAGS := -O0 --coverage -fprofile-update=prefer-atomic
COVERAGE_LDLIBS = $(LDLIBS) -Wl,--wrap=_exit $(COVERED)/coverage.o

coverage: $(SIMULATOR) $(COVERED)/coverage.o build/amalgamate build/coverage_page
	@find $(COVERED) -name '*.gcda' -delete
	@$(MAKE) -j$(JOBS) test COVERAGE= CC=gcc CXX=g++ LANE=coverage STRICT= LANE_CFLAGS='$(COVERAGE_CFLAGS)' LDLIBS='$(COVERAGE_LDLIBS)' \
	    IGNIS_CACHE_DIR=$(CURDIR)/build/default/cache; code=$$?; $(MAKE) --no-print-directory -s coverage-page && exit $$code

# From the counts of an earlier `make coverage`, and of programs of build/coverage that have run since: all rooms, and tests with a header in
# themselves that have run.
coverage-page: build/amalgamate build/coverage_page
	@mkdir -p $(COVERED)/lines
	@build/amalgamate --lines $(COVERED)/lines
	@for object in $$(find $(COVERED)/rooms -name '*.gcno') $$(find $(COVERED) -name '*.gcda' -not -path '*/rooms/*'); do gcov -t -b -c $$object; done >$(COVERED)/counts.txt 2>$(COVERED)/gcov.log
	@build/coverage_page $(COVERED)/counts.txt $(COVERED)/lines build/coverage.html

$(COVERED)/coverage.o: tests/coverage.c
	@mkdir -p $(COVERED)
	gcc -O1 -c $< -o $@

.PHONY: coverage coverage-page
