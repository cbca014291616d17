# SPDX-License-Identifier: MIT
# Headers, what build systems need to find them, and ignis_embed, the one thing that is compiled. DESTDIR comes before
# every path, and is written nowhere.
PREFIX := /usr/local
VERSION = $(shell awk '/^.define IGNIS_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $$3; dot = "." }' ignis.h)
INSTALLED := ignis.h:include ignis_kernels.h:include ignis_models.h:include ignis_collective.h:include \
    LICENSE:share/licenses/ignis packaging/ignis-config.cmake:share/cmake/ignis \
    packaging/ignis-config-version.cmake.in:share/cmake/ignis packaging/ignis.pc.in:share/pkgconfig \
    build/ignis_embed:bin

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

.PHONY: install uninstall check-install
