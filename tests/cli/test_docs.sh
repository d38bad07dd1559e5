#!/bin/bash
# What the documents say: their commands run, in order, and the files, targets and pages
# they name exist. Commands stand in blocks ```sh; those of README.md and docs/ are run in a
# directory laid out like the project, whose recipes are made small.
root=$(realpath "$(dirname "$0")/../..")
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free

# -- a project in small --------------------------------------------------------------------

mkdir -p build my_texts
ln -s "$trefoil" build/trefoil
make_corpus 200
rm -r data
cp words.txt my_texts/a.txt
cp words.txt held_out.txt
cp -r "$root/configs" .
small() { # FILE: a model of a moment, with the recipe's own layout
    sed -i -E \
        -e 's/(max_steps:) 1100/\1 1190/; s/(max_steps:) 500000/\1 2/' \
        -e 's/(eval_freq:) .*/\1 600/; s/(eval_iters:) .*/\1 1/; s/(logging_freq:) .*/\1 100/' \
        -e 's/(hidden_size:) .*/\1 16/; s/(num_attention_heads:) .*/\1 2/' \
        -e 's/(max_seq_len|max_position_embeddings): .*/\1: 16/; s/(vocab_size:) .*/\1 2048/' "$1"
}
small configs/demo.yaml
small configs/gpt_toy_dp2_mp2_pp2.yaml

# -- commands ------------------------------------------------------------------------------

# The lines of all ```sh blocks of a page, joined where they end in a backslash.
commands_of() {
    awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on' "$1" | sed -e ':a; /\\$/ { N; s/\\\n *//; ba }'
}

n_run=0
for page in README.md docs/guide.md docs/architecture.md docs/config.md docs/interface.md \
    docs/migration.md docs/performance.md CONTRIBUTING.md; do
    [ -f "$root/$page" ] || fail "$page is not there"
    while IFS= read -r line; do
        case $line in
        '' | '#'*) ;;
        make | 'make '*)
            target=$(sed -E 's/^make *([a-z0-9]*).*/\1/' <<<"$line")
            [ -z "$target" ] || grep -q "^$target:" "$root/Makefile" ||
                fail "$page: '$line': the Makefile has no such target"
            ;;
        build/trefoil' '*)
            eval "$line" >command.out 2>command.log </dev/null ||
                fail "$page: '$line' ends with $?: $(tail -3 command.log)"
            n_run=$((n_run + 1))
            ;;
        build/tests/* | ctest* | bench/run.py*) ;; # of a developer's tree
        *) fail "$page: '$line' is no command that this test knows" ;;
        esac
    done < <(commands_of "$root/$page")
done
[ "$n_run" -ge 12 ] || fail "only $n_run commands were found in the documents"

# -- names ---------------------------------------------------------------------------------

# `folder/file.c` in a page is a file of src/ or of the project; [text](page) is a page.
cd "$root" || exit 1
folders=$(cd src && ls | paste -sd'|')
for page in README.md CONTRIBUTING.md docs/*.md; do
    while IFS= read -r name; do
        [ "$page" != docs/migration.md ] || continue # names files of other programs
        [ -e "src/$name" ] || [ -e "$name" ] || fail "$page names '$name', which does not exist"
    done < <(grep -oE "\`(src/)?($folders|tests|tools|bench|configs)/[a-zA-Z0-9_./-]+\.(c|h|sh|py|yaml)" "$page" |
        sed -E 's/^`//; s#^src/##' | grep -v "[*]\|NAME" | sort -u)
    while IFS= read -r link; do
        [ -e "$(dirname "$page")/$link" ] || fail "$page links to '$link', which does not exist"
    done < <(grep -oE '\]\([a-zA-Z0-9_./-]+' "$page" | sed 's/^](//' | sort -u)
    while IFS= read -r target; do
        grep -q "^$target:" Makefile || fail "$page names 'make $target', which is no target"
    done < <(grep -oE '`make [a-z0-9]+`' "$page" | sed -E 's/`make ([a-z0-9]+)`/\1/' | sort -u)
done
echo "$n_run commands of the documents run"
