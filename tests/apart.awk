# SPDX-License-Identifier: MIT
# Takes a header apart, so that test programs share one compilation of the implementation and still reach its private names: these become
# global, and with declare=1 only declarations of them stay. It relies on clang-format: bodies lie between { and } at the start of lines.
# Constants stay as they are, and lines keep their numbers.
#
#   awk -v declare=1 -f tests/apart.awk ignis.h >declared/ignis.h

/^#define (IGNIS_.*IMPLEMENTED|FAULT_H)$/ { implementation = 1 }

!implementation {
    print
    next
}

/^[A-Z]/ { sub(/IGNIS__PRIVATE /, "static ") } # what parts share

skipping { # the rest of a body, or of a value
    skipping = $0 !~ ends
    print ""
    next
}

# Variables of which each thread has its own
/^#define IGNIS__LOCAL\(.*(static|IGNIS__PRIVATE) __thread/ { sub(/static|IGNIS__PRIVATE/, declare ? "extern" : "") }

/^(IGNIS__[A-Z_]+ )*(static|IGNIS_API) / {
    head = $0
    sub(/[{=].*/, "", head)
    is_function = head ~ /\(/ || $0 !~ /[;={]/ # or its name and arguments are on the next line
    is_variable = !is_function && head !~ /static const /
    if (is_function || is_variable)
        sub(/static (inline )?/, declare ? "extern " : "")
    if (is_function && declare)
        sub(/ \{ .*\}/, ";")
}

declare && /^IGNIS__ARG_SCALAR\(/ { # a macro that makes a function
    print ""
    next
}

declare && /^\{$/ {
    print ";"
    skipping = 1
    ends = "^}$"
    next
}

is_variable && declare && / =/ && /^[A-Za-z}]/ { # without its value
    skipping = !/;( |$)/
    ends = ";( |$)"
    sub(/ =.*/, ";")
}
is_variable && /^[^ ].*;/ { is_variable = 0 }

{ print }
