#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks packages, from the texts of docs/packages.md:
#   - every source, and the head of each header, names its licence in its first lines, and meson.build the version of ignis.h;
#   - `make install` installs these files and no others, `make uninstall` leaves none, and CMake and Meson install the same;
#   - examples/hello.c is built by pkg-config, by CMake (find_package of versions that fit, FetchContent), by Meson (installed, and
#     as a subproject) and from the Conan package, and prints what the page says.
# What is not installed is skipped, which is said. The programs run where the environment says: on the GPU, or on the simulator.

out=$PWD/build/install
rm -rf "$out"
mkdir -p "$out"
failed=0
fail() { echo "FAIL: $*" && failed=1; }
# has TOOL : whether it is installed; says so if not
has() { command -v "$1" >/dev/null || { echo "skipped: $1 is not installed" && false; }; }
# quiet COMMAND... : shows what it prints only when it fails
quiet() { "$@" >"$out/log" 2>&1 || { cat "$out/log" && false; }; }

# ---- licences and versions
version=$(awk '/^#define IGNIS_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' ignis.h)
grep -qF "version: '$version'" meson.build || fail "meson.build is not of version $version"
grep -qF "ignis/$version" docs/packages.md || fail "docs/packages.md is not of version $version"
if has git && [ -e .git ]; then
    # The parts of src/ become one text with the head of their root, which names it.
    for source in $(git ls-files -- '*.[ch]' '*.cu' '*.cuh' '*.cpp' '*.sh' '*.py' '*.cmake' '*.in' '*.build' '*Makefile' 'mk/*' CMakeLists.txt .ci/run ':!src') src/ignis*.h; do
        [ ! -e "$source" ] || head -n 4 "$source" | grep -q 'SPDX-License-Identifier: MIT$' || fail "$source has no line SPDX-License-Identifier: MIT"
    done
fi

# ---- what is installed
sort >"$out/expected" <<'END'
./bin/ignis_embed
./include/ignis.h
./include/ignis_collective.h
./include/ignis_kernels.h
./include/ignis_models.h
./share/cmake/ignis/ignis-config-version.cmake
./share/cmake/ignis/ignis-config.cmake
./share/licenses/ignis/LICENSE
./share/pkgconfig/ignis.pc
END
list() { (cd "$1" && find . ! -type d | sort); }
prefix=$out/prefix
stage=$out/stage
make -s install PREFIX=/usr DESTDIR="$stage" || fail 'make install with DESTDIR'
list "$stage/usr" | diff "$out/expected" - || fail 'make install: other files than expected'
grep -q '^prefix=/usr$' "$stage/usr/share/pkgconfig/ignis.pc" || fail 'make install: DESTDIR is part of the prefix in ignis.pc'
make -s uninstall PREFIX=/usr DESTDIR="$stage" || fail 'make uninstall'
list "$stage" | grep . && fail 'make uninstall leaves files'
make -s install PREFIX="$prefix" || fail 'make install'
for option in --archs --ptx -o --name --plain --list; do
    "$prefix/bin/ignis_embed" --help | grep -q -- "^    $option" || fail "ignis_embed --help: nothing about $option"
done

# same TOOL FOLDER : whether the tool has installed there what make did, but for programs
same() { diff -r --exclude=bin "$prefix" "$2" || fail "$1 does not install what make install does"; }
if has cmake; then
    quiet cmake -S . -B "$out/of-cmake" -DCMAKE_INSTALL_PREFIX="$prefix" || fail 'cmake of the repository'
    quiet env DESTDIR="$out/staged-by-cmake" cmake --build "$out/of-cmake" --target install || fail 'cmake, target install'
    same cmake "$out/staged-by-cmake$prefix"
fi
if has meson; then
    quiet meson setup "$out/of-meson" --prefix "$prefix" || fail 'meson setup of the repository'
    quiet env DESTDIR="$out/staged-by-meson" meson install -C "$out/of-meson" || fail 'meson install'
    same meson "$out/staged-by-meson$prefix"
fi

# ---- programs: the blocks of the page are page.LANGUAGE.NUMBER
awk -v out="$out" '
    /^```/ { if (open) { open = 0; close(file) } else { open = 1; file = out "/page." substr($0, 4) "." ++blocks[substr($0, 4)] }; next }
    open { print >file }
' docs/packages.md
mv "$out/page.text.1" "$out/said"
mv "$(grep -l pkg-config "$out"/page.sh.*)" "$out/page.pkg-config"

# project NAME : a folder with the program, in C and C++
project()
{
    mkdir "$out/$1" && cp examples/hello.c "$out/$1/hello.c" && cp examples/hello.c "$out/$1/hello.cpp"
    cd "$out/$1" || exit 1
}
# prints PROGRAM NAME : whether it prints what the page says
prints()
{
    if "$1" 2>"$out/log" | diff "$out/said" -; then
        echo "$2: built, and runs"
    else
        cat "$out/log"
        fail "$2: the program does not print what docs/packages.md says"
    fi
}

export PKG_CONFIG_PATH="$prefix/share/pkgconfig"
if has pkg-config; then
    [ "$(pkg-config --modversion ignis)" = "$version" ] || fail "pkg-config: not version $version"
    (project pkg-config && sh -e "$out/page.pkg-config") || fail pkg-config
    prints "$out/pkg-config/hello" pkg-config
fi

# cmake_builds NAME BLOCK OPTION... : a project of the block is configured and built
cmake_builds()
{
    if (project "$1" && cp "$out/$2" CMakeLists.txt && shift 2 && quiet cmake -S . -B build "$@" && quiet cmake --build build); then
        prints "$out/$1/build/hello" "$1"
    else
        fail "$1"
    fi
}
if has cmake; then
    cmake_builds find_package page.cmake.1 -DCMAKE_PREFIX_PATH="$prefix"
    cmake_builds FetchContent page.cmake.2 -DFETCHCONTENT_SOURCE_DIR_IGNIS="$PWD"
    mkdir "$out/wanted"
    family=${version%.*}
    for wanted in "$version" "$family" "$family.0" "!$family.99" '!0.1' '!9' "$version EXACT" '!0.4.99 EXACT' "0.1...$family.99" "!0.1...<$version"; do
        case $wanted in *...*) cmake --version | grep -qE ' (3\.(19|[2-9][0-9])|[4-9])' || continue ;; esac # ranges came with 3.19
        printf 'cmake_minimum_required(VERSION 3.14)\nproject(wanted NONE)\nfind_package(ignis %s REQUIRED)\n' "${wanted#!}" >"$out/wanted/CMakeLists.txt"
        found=yes
        cmake -S "$out/wanted" -B "$out/wanted/build" -DCMAKE_PREFIX_PATH="$prefix" >"$out/log" 2>&1 || found=no
        rm -rf "$out/wanted/build"
        [ "$found" = "$(case $wanted in !*) echo no ;; *) echo yes ;; esac)" ] || fail "find_package(ignis ${wanted#!}): found: $found"
    done
fi

# meson_builds NAME : the project in the current folder
meson_builds() { cp "$out/page.meson.1" meson.build && quiet meson setup build && quiet meson compile -C build; }
if has meson; then
    if (project meson && meson_builds); then prints "$out/meson/build/hello" meson; else fail meson; fi
    root=$PWD
    if (
        project meson-subproject && mkdir -p subprojects/ignis && cp "$out/page.ini.1" subprojects/ignis.wrap &&
            cp -r "$root"/ignis*.h "$root/meson.build" "$root/packaging" subprojects/ignis && PKG_CONFIG_PATH='' && meson_builds
    ); then
        prints "$out/meson-subproject/build/hello" 'meson, subproject'
    else
        fail 'meson, subproject'
    fi
fi

if has conan && has pkg-config; then
    export CONAN_HOME="$out/conan-home"
    if quiet conan profile detect && quiet conan create packaging && (
        project conan && quiet conan install --requires="ignis/$version" -g PkgConfigDeps &&
            export PKG_CONFIG_PATH="$out/conan" && sh -e "$out/page.pkg-config"
    ); then
        prints "$out/conan/hello" conan
    else
        fail conan
    fi
fi
exit $failed
