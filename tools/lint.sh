#!/bin/bash
# Everything that can be said about the sources without running them:
#   tools/lint.sh [JOBS]
# Layers, links of the documents and their translation, clang-format, generated constants, a
# gcc and a clang build where a warning is an error, exports that nothing uses, clang-tidy.
# All steps run even when one fails; the last line names those that failed. gcc builds in
# $GCC_BUILD (build-gcc); clang without optimisation, on which its warnings do not depend.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

jobs=${1:-2}
failed=()

step() {
    local name=$1
    shift
    echo "lint: $name"
    "$@" || failed+=("$name")
}

format() {
    find src tests bench \( -name '*.[ch]' -o -name '*.cu' \) -print0 |
        xargs -0 -r clang-format --dry-run -Werror
}

# A formatter that broke comments would leave these without their ends.
section_rules() {
    ! grep -rnE '^/\* -- ' --include='*.[ch]' --include='*.cu' src tests bench | grep -v '\*/$'
}

build_with() { # build_with COMPILER DIR [cmake arguments]
    CC=$1 tools/configure.sh "$2" -DTREFOIL_WERROR=ON "${@:3}" >/dev/null &&
        cmake --build "$2" -j "$jobs" -- --quiet
}

# Of the sets of kernels, and of the types that kernels for GPUs are compiled for, the two
# that have all their code between them. The plug-in is looked at where CUDA's headers are.
tidy() {
    mkdir -p build-clang/tidy
    awk 'BEGIN { RS = "},?\n"; printf "[\n" }
        /"command"/ && !/-DKERNEL_ISA=(avx2|avx512|[a-z0-9]*_emulated) / &&
        !/-DGPU_DTYPE=1 / && (!/-fsanitize=thread / || /\/device\/cuda\//) {
            sub(/^\[\n/, ""); printf "%s%s}", comma, $0; comma = ",\n" }
        END { print "\n]" }' build-clang/compile_commands.json >build-clang/tidy/compile_commands.json
    local no_plugin=()
    grep -q '/cuda_runtime\.c' build-clang/tidy/compile_commands.json ||
        no_plugin=(! -path 'src/device/cuda/*.c')
    find src \( -name '*.c' -o -name '*.cu' \) "${no_plugin[@]}" -print0 | sort -z |
        xargs -0 -r -n 4 -P "$jobs" clang-tidy --quiet -p build-clang/tidy 2>&1 |
        sed -E '/^[0-9]+ warnings? generated\.$/d'
}

# The board's page shows what others wrote: it makes no markup of text, and its policy
# allows neither handlers nor styles in markup. A saved page ends its script by "</script".
page() {
    ! grep -nE 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|</script' \
        src/board/page/*.js &&
        ! grep -nE ' (style|on[a-z]+)=' src/board/page/board.html
}

constants() {
    tools/real_tables.py | cmp - src/base/real_tables.h
}

step "layers" tools/check_layers.sh --all
step "links" tools/check_links.py
step "translation" tools/check_translation.py
step "section rules" section_rules
step "clang-format" format
step "the board's page" page
step "constants of elementary functions" constants
step "warnings of gcc" build_with gcc "${GCC_BUILD:-build-gcc}"
step "exports" tools/check_exports.sh "${GCC_BUILD:-build-gcc}"
step "warnings of clang" build_with clang build-clang -DTREFOIL_OPTIMIZE=-O0 -DTREFOIL_CUDA=HOST
step "clang-tidy" tidy

if [ ${#failed[@]} -gt 0 ]; then
    printf -v list ', %s' "${failed[@]}"
    echo "lint: failed: ${list:2}"
    exit 1
fi
echo "lint: clean"
