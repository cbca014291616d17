# SPDX-License-Identifier: MIT
# Lists the structs of src/shared and their members for tests/shared/test_shared.c:
#
#   awk -f tools/shared_layout.awk src/shared/*.h src/shared/*/*.h
#
# The last definition of a struct counts; some kernels have another one. It relies on clang-format: a struct begins with a line "typedef struct NAME {" and ends with a line "} NAME;".

# The lines without comments.
{
    rest = $0; line = ""
    while (rest != "") {
        if (in_comment) {
            end = index(rest, "*/")
            in_comment = !end
            rest = end ? substr(rest, end + 2) : ""
        } else {
            begin = index(rest, "/*")
            in_comment = begin > 0
            line = line (begin ? substr(rest, 1, begin - 1) : rest)
            rest = begin ? substr(rest, begin + 2) : ""
        }
    }
}

line ~ /^#/ { next } # members that some kernels have not

match(line, /^typedef (struct|union) [a-z_0-9]+ \{/) {
    split(line, word, " ")
    name = word[3]
    if (!(name in first)) structs[++struct_count] = name
    for (i = first[name]; i >= 1 && i <= member_count; i++) if (index(members[i], name ",") == 1) delete members[i] # of other kernels
    first[name] = member_count + 1
    text = ""
    next
}

line ~ /^\} / { name = "" }

name != "" {
    text = text line
    while ((end = index(text, ";")) > 0) { # a declaration: its last word before a comma or its end, without [..]
        declaration = substr(text, 1, end - 1)
        text = substr(text, end + 1)
        gsub(/\([^()]*\)/, "", declaration)
        gsub(/\[[^]]*\]/, "", declaration)
        count = split(declaration, parts, ",")
        for (i = 1; i <= count; i++) {
            words = split(parts[i], word, " ")
            members[++member_count] = name ", " word[words]
        }
    }
}

END {
    print "#define SHARED_STRUCTS(X) \\"
    for (i = 1; i <= struct_count; i++)
        print "    X(" structs[i] ")" (i < struct_count ? " \\" : "")
    print "#define SHARED_MEMBERS(X) \\"
    for (i = 1; i <= member_count; i++)
        if (i in members)
            print "    X(" members[i] ") \\"
    print ""
}
