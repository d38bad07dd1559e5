#!/bin/bash
# What a user installs, checked without installing it here:
#   tests/package/check_package.sh BUILD [STEP...]
# A step is a function below; the last line counts them. Part of .ci/run.
# shellcheck disable=SC2015,SC2016 # "a && b || fail"; words for other shells
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "$1")
trefoil=$build/trefoil
python=$build/python-package/bin
version=$(sed -nE 's/^#define TREFOIL_VERSION "(.*)"/\1/p' src/base/base.h)
. tests/cli/library_path_lib.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n_passed=0

fail() {
    echo "package: FAILED: $*" >&2
    exit 1
}

# -- the program ---------------------------------------------------------------------------

check_version() {
    [ "$(head -1 "$work/version")" = "trefoil $version" ] || fail "$(head -1 "$work/version")"
    for word in build MPI kernels device; do
        grep -q "^$word: ." "$work/version" || fail "--version tells nothing of $word"
    done
    grep -m1 '^## [0-9]' CHANGELOG.md | grep -qE "^## $version \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" ||
        fail "the first release of CHANGELOG.md is not $version with its day"
}

# Instructions that not every processor has are for kernels, which are chosen at run time.
check_any_processor() {
    local special
    special=$(grep '"command":' "$build/compile_commands.json" | grep -E -- ' -m(arch|tune|avx|fma|f16c|amx|sse[34])' |
        grep -v -e ' -DKERNEL_ISA=' -e '/tile_trial\.c' -e '/tests/')
    [ -z "$special" ] || fail "compiled for some processors only: $(head -1 <<<"$special")"
    [ "$(uname -m)" = x86_64 ] || return 0
    mkdir "$work/plain"
    seq 2000 >"$work/plain/text"
    printf 'max_steps: 2\neval_freq: 0\nnum_threads: 1\nsave_load: {output_dir: %s/out}\n' "$work/plain" >"$work/plain/run.yaml"
    printf 'Model: {vocab_size: 257, hidden_size: 32, num_layers: 1, num_attention_heads: 2}\n' >>"$work/plain/run.yaml"
    printf 'dataset: {input_dir: %s/data, max_seq_len: 16}\n' "$work/plain" >>"$work/plain/run.yaml"
    on_plain() { qemu-x86_64 -cpu qemu64 "$trefoil" "$@" >>"$work/plain/log" 2>&1; }
    on_plain prepare --input "$work/plain/text" --output "$work/plain/data/text" &&
        on_plain pretrain -c "$work/plain/run.yaml" &&
        on_plain generate --ckpt "$work/plain/out" --prompt 1 --max_tokens 3 ||
        fail "on a processor without AVX: $(tail -3 "$work/plain/log")"
    on_plain --version && grep -q '^kernels: generic' "$work/plain/log" ||
        fail "the processor without AVX has other kernels: $(tail -2 "$work/plain/log")"
}

# -- make install --------------------------------------------------------------------------

check_install() {
    local root=$work/root file
    make -s install DESTDIR="$root" PREFIX=/opt/some CMAKE_ARGS="$(cat "$build/configured-with")" \
        >"$work/log" || fail "make install: $(tail -3 "$work/log")"
    for file in bin/trefoil share/man/man1/trefoil.1 share/man/man1/trefoil-pretrain.1 \
        share/man/man1/trefoil-tokenizer-train.1 share/man/man5/trefoil.yaml.5 share/bash-completion/completions/trefoil \
        share/zsh/site-functions/_trefoil share/fish/vendor_completions.d/trefoil.fish \
        share/doc/trefoil/LICENSE share/doc/trefoil/configs/demo.yaml; do
        [ -s "$root/opt/some/$file" ] || fail "make install: there is no $file"
    done
    [ -s "$root/opt/some/lib/trefoil/libtrefoil_cuda.so" ] || [ ! -e "$build/libtrefoil_cuda.so" ] ||
        fail "make install: there is no plug-in, and it was built"
    [ "$(ls "$root")" = opt ] || fail "make install wrote outside PREFIX: $(ls "$root")"
    # all but where it finds its plug-in, which is its own
    "$root/opt/some/bin/trefoil" --version | grep -v '^device: ' |
        cmp -s - <(grep -v '^device: ' "$work/version") || fail "the installed program"
    [ ! -e "$build/libtrefoil_cuda.so" ] || "$root/opt/some/bin/trefoil" --version |
        grep -q "^device: .*/opt/some/.*lib/trefoil/libtrefoil_cuda.so$" || fail "the installed program's plug-in"
    check_library_paths "$root" || fail "the installed program loads libraries from the current directory"
    touch "$root/opt/some/share/man/man1/other.1"
    make -s uninstall DESTDIR="$root" PREFIX=/opt/some CMAKE_ARGS="$(cat "$build/configured-with")" \
        >"$work/log" || fail "make uninstall: $(tail -3 "$work/log")"
    [ "$(cd "$root" && find . -type f)" = ./opt/some/share/man/man1/other.1 ] ||
        fail "make uninstall left $(cd "$root" && find . -type f | head -3)"
    [ ! -d "$root/opt/some/share/doc/trefoil" ] || fail "make uninstall left a directory"
}

# -- manual pages --------------------------------------------------------------------------

check_manual() {
    local page command option words
    for page in "$build"/pages/man?/*; do
        mandoc -T lint -W style "$page" || fail "mandoc does not like $page"
        [ -z "$(groff -man -ww -Tutf8 -z "$page" 2>&1)" ] || fail "groff does not like $page"
    done
    for page in "$build"/pages/man1/*; do
        # every option of --help, and no page without its command
        read -ra words <<<"$(basename "$page" .1 | tr - ' ')"
        "$trefoil" "${words[@]:1}" --help >"$work/help" || fail "$page is of no command"
        mandoc -T ascii "$page" | col -b >"$work/page"
        while read -r option; do
            grep -q -e "$option" "$work/page" || fail "$page does not tell of $option"
        done < <(sed -nE 's/^  (-[a-z], )?(--[a-z_]+).*/\2/p' "$work/help")
    done
    mandoc -T ascii "$build/pages/man5/trefoil.yaml.5" | col -b >"$work/page"
    while read -r option; do
        grep -qE "^[[:space:]]+${option//./\\.}([[:space:]]|\$)" "$work/page" || fail "trefoil.yaml(5) does not tell of $option"
    done < <("$trefoil" --help=bash | sed -nE "s/^    '([A-Za-z0-9_.]+)=.*/\1/p")
    while read -r command; do
        [ -s "$build/pages/man1/trefoil-$command.1" ] || fail "there is no page of $command"
    done < <("$trefoil" --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
}

# -- completion ----------------------------------------------------------------------------

# Lines "WORDS | what completes the last of them", for all shells.
completions='
trefoil pret | pretrain
trefoil tokenizer tr | train
trefoil help tok | tokenizer
trefoil pretrain --dr | --dry_run
trefoil tokenizer train --voc | --vocab_size
trefoil launch -n 2 pre | pretrain
trefoil launch -n 2 pretrain --dr | --dry_run
trefoil pretrain -o mix_precision.dt | mix_precision.dtype=
trefoil pretrain -o mix_precision.dtype=b | mix_precision.dtype=bfloat16
trefoil prepare --format m | megatron
trefoil eval --cpu_kernels gen | generic
trefoil pretrain -c LICEN | LICENSE
trefoil inspect LICEN | LICENSE
trefoil generate --ckpt conf | configs
'

check_bash() {
    local script=$build/pages/trefoil.bash
    bash -n "$script" || fail "the completion of bash"
    shellcheck "$script" tools/completion/trefoil.bash || fail "shellcheck of the completion"
    # As bash calls it; what follows the last "=" is the word for bash.
    bash --norc -c '
        compopt() { :; }
        . "$1"
        complete -p trefoil >/dev/null || exit 1
        while read -r COMP_LINE; do
            COMP_POINT=${#COMP_LINE}
            _trefoil
            echo "${COMPREPLY[*]}"
        done' - "$script" < <(sed -nE 's/ \| .*//p' <<<"$completions") >"$work/bash" || fail bash
    sed -nE 's/.* \| //p' <<<"$completions" | sed -E 's/^[^=]+=(.+)/\1/' | diff - "$work/bash" ||
        fail "bash does not complete as expected"
    # lists of values, options after them, several candidates
    bash --norc -c '
        compopt() { :; }
        . "$1"
        try() { COMP_LINE=$1; COMP_POINT=${#1}; _trefoil; [ "${COMPREPLY[*]}" = "$2" ] || echo "$1: ${COMPREPLY[*]}"; }
        try "trefoil pretrain -o max_steps=3 dataset.mo" dataset.mode=
        try "trefoil pretrain -o max_steps=3 --dr" --dry_run
        try "trefoil eval --cpu_kernels=av" "avx2 avx512"
        try "trefoil export --to " "hf gguf"
        try "trefoil generate --prompt " ""
        try "trefoil pretrain --config=LICEN" LICENSE' - "$script" >"$work/bash" || fail bash
    [ ! -s "$work/bash" ] || fail "bash: $(cat "$work/bash")"
}

check_fish() {
    fish -n "$build/pages/trefoil.fish" || fail "the completion of fish"
    HOME=$work fish --no-config -c 'source $argv[1]
        while read -l line
            complete -C $line | string split -f 1 \t | string trim -r -c / | string join " "
        end
        true' "$build/pages/trefoil.fish" < <(sed -nE 's/ \| .*//p' <<<"$completions") >"$work/fish" ||
        fail fish
    sed -nE 's/.* \| //p' <<<"$completions" | diff - "$work/fish" ||
        fail "fish does not complete as expected"
}

# A shell on a terminal of its own: the line is shown once completed.
check_zsh() {
    local line expected
    zsh -n "$build/pages/_trefoil" || fail "the completion of zsh"
    while IFS= read -r line; do
        expected=${line#* | }
        ZDOTDIR=$work timeout 60 zsh -f -c '
            zmodload zsh/zpty
            zpty shell "TERM=dumb zsh -f -i"
            zpty -w shell "fpath=($1 \$fpath) PS1=; autoload -U compinit; compinit -u -D; print rea""dy"
            zpty -r shell shown "*ready*"
            zpty -n -w shell "$2"$'"'\\t'"'
            zpty -r shell shown "*$3*"' - "$build/pages" "${line% | *}" "$expected" ||
            fail "zsh: '${line% | *}' does not become '$expected'"
    done < <(grep -E 'voc|launch .* --dr|dtype=b|help' <<<"$completions")
}

# -- what is built for others --------------------------------------------------------------

check_deb() {
    local deb file depends
    deb=$(tools/make_deb.sh "$build") || fail "make_deb"
    cp "$deb" "$work/first.deb"
    depends=$(dpkg-deb -f "$deb" Depends)
    for file in libc6 libgomp1 libyaml-0-2 libjansson4; do
        grep -q "$file" <<<"$depends" || fail "the package does not depend on $file"
    done
    grep -qE 'libopenmpi.*openmpi-bin|libmpich.*mpich' <<<"$depends" ||
        fail "the package does not depend on MPI and its mpiexec: $depends"
    [ "$(dpkg-deb -f "$deb" Version)" = "$version" ] || fail "the version of the package"
    dpkg-deb -R "$deb" "$work/deb" || fail "the package"
    (cd "$work/deb" && md5sum --quiet -c DEBIAN/md5sums) || fail "the sums of the package"
    for file in bin/trefoil share/man/man1/trefoil.1.gz share/doc/trefoil/copyright \
        share/doc/trefoil/changelog.gz share/zsh/vendor-completions/_trefoil; do
        [ -s "$work/deb/usr/$file" ] || fail "the package has no $file"
    done
    [ -s "$work/deb/usr/lib/trefoil/libtrefoil_cuda.so" ] || [ ! -e "$build/libtrefoil_cuda.so" ] ||
        fail "the package has no plug-in, and it was built"
    ! find "$work/deb" -perm /022 ! -type l | grep . || fail "others may write these"
    tools/make_deb.sh "$build" >/dev/null
    cmp "$deb" "$work/first.deb" || fail "a second package of the same is another"
}

check_dist() {
    local archive
    if ! git rev-parse --verify -q HEAD >/dev/null 2>&1; then return; fi # is from an archive
    archive=$(tools/make_dist.sh) || fail "make_dist"
    cp "$archive" "$work/first.tar.gz"
    tools/make_dist.sh >/dev/null
    cmp "$archive" "$work/first.tar.gz" || fail "a second archive of the same commit is another"
    tar -xzf "$archive" -C "$work" || fail "the archive"
    cmake -S "$work/trefoil-$version" -B "$work/dist" >"$work/log" 2>&1 ||
        fail "the archive does not configure: $(tail -3 "$work/log")"
}

# The commands of the definitions as shell scripts; hadolint for the rest of the Dockerfile.
check_containers() {
    "$python/hadolint" Dockerfile || fail "hadolint"
    "$python/spython" recipe --parser singularity Apptainer.def >"$work/recipe" 2>&1 ||
        fail "Apptainer.def: $(tail -3 "$work/recipe")"
    grep -q '^FROM debian' "$work/recipe" || fail "Apptainer.def says nothing to spython"
    awk '/^%(post|runscript|test)/ { on = 1; print "#!/bin/sh" >(file = dir "/part" ++n); next }
        /^%|^Bootstrap/ { on = 0 } on { print >file }' dir="$work" Apptainer.def
    shellcheck "$work"/part* || fail "shellcheck of Apptainer.def"
}

shift
if [ $# -eq 0 ]; then
    set -- version any_processor install manual bash fish zsh deb dist containers
fi
"$trefoil" --version >"$work/version" || fail "trefoil --version"
for step in "$@"; do
    "check_$step"
    n_passed=$((n_passed + 1))
done
echo "package: $n_passed passed, 0 failed"
