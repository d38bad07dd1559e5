#!/bin/bash
# What the documents say: their commands run, in order, and the files, targets, messages and
# keys they name exist; what is generated is as it would be generated now.
#
# Commands stand in blocks ```sh. They are run in a directory laid out like the project, whose
# recipes are made small; `make TARGET` only has to be a target. What cannot be run here has
# its reason on the line above: <!-- not run: REASON -->.
root=$(realpath "$(dirname "$0")/../..")
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
export ASAN_OPTIONS=detect_leaks=0

# -- a project in small --------------------------------------------------------------------

mkdir -p build my_texts bin
make_corpus 200
rm -r data
cp words.txt my_texts/a.txt
head -200 words.txt >held_out.txt
cp -r "$root/configs" .

# A recipe takes few steps and keeps its model and its layout, so that a page whose command does
# not fit is seen. Recipes that the documents only plan for stay whole.
few_steps() {
    sed -i -E \
        -e 's/(max_steps:) [0-9]+/\1 30/; s/(save_steps:) .*/\1 20/; s/(decay_steps:) .*/\1 30/' \
        -e 's/(eval_freq:) [1-9].*/\1 20/; s/(eval_iters:) .*/\1 1/; s/(logging_freq:) .*/\1 5/' "$@"
}
few_steps configs/demo.yaml configs/laptop.yaml configs/gpt_toy_dp2_mp2_pp2.yaml
# A step of this one takes most of a minute, and three pages train it.
sed -i -E \
    -e 's/(hidden_size:) .*/\1 16/; s/(num_attention_heads:) .*/\1 2/; s/(vocab_size:) .*/\1 2048/' \
    -e 's/(max_seq_len:) .*/\1 16/; s/(max_position_embeddings:) .*/\1 128/' \
    configs/gpt_toy_dp2_mp2_pp2.yaml

# build/trefoil counts its calls. What serves or shows until it is stopped is stopped, unless
# the program was built without a server; selftest, which has tests of its own, takes few
# layouts.
cat >build/trefoil <<SH
#!/bin/bash
echo "\$*" >>"$work/calls"
case "\$* " in
*--save*) ;;
'selftest ') exec "$trefoil" selftest --steps 1 --layouts 1,dp2,pp2 ;;
'board '* | 'top '*)
    XDG_STATE_HOME=$work/state timeout -s INT 3 "$trefoil" "\$@"
    code=\$?
    [ \$code -eq 124 ] && exit 0
    [ \$code -eq 2 ] && grep -qa 'shows the same in a terminal, and --save' "$trefoil" && exit 0
    exit \$code
    ;;
esac
exec "$trefoil" "\$@"
SH
cat >bin/make <<SH
#!/bin/bash
for word; do
    case \$word in
    *=*) ;;
    *) grep -q "^\$word:" "$root/Makefile" || { echo "make: no target \$word" >&2; exit 2; } ;;
    esac
done
SH
cat >bin/mpirun <<SH
#!/bin/bash
case \$("$mpiexec" --version 2>&1) in
*"Open MPI"* | *OpenRTE*) exec "$mpiexec" --allow-run-as-root --oversubscribe --bind-to none "\$@" ;;
esac
exec "$mpiexec" "\$@"
SH
chmod +x build/trefoil bin/*
export PATH=$work/bin:$PATH
# The installed program, where a page says `trefoil`.
ln -s ../build/trefoil bin/trefoil

# -- commands ------------------------------------------------------------------------------

# Pages in the order of the list of documents.
pages=(README.md)
while IFS= read -r page; do pages+=("docs/$page"); done < <(
    grep -oE '\]\([a-z0-9-]+\.md\)' "$root/docs/README.md" | sed -E 's/^..(.*)\)$/\1/'
)
for page in "$root"/docs/*.md; do
    page=docs/$(basename "$page")
    [ "$page" = docs/README.md ] || [[ " ${pages[*]} " = *" $page "* ]] ||
        fail "docs/README.md does not list $page"
done
pages+=(CONTRIBUTING.md)

(cd "$root" && tests/cli/doc_blocks.py tools "$work/blocks" "${pages[@]}") >not_run.txt ||
    fail "the commands of the documents cannot be read"
cat not_run.txt

for block in blocks/*.sh; do
    sed -i -E 's/max_steps=1600/max_steps=40/' "$block"
    bash -e "$block" >command.out 2>command.log </dev/null
    code=$?
    [ $code -eq 0 ] || fail "$(head -1 "$block" | cut -c3-): ends with $code: $(tail -3 command.log)
$(tail -n +2 "$block")"
done
n_run=$(wc -l <calls)
[ "$n_run" -ge 30 ] || fail "only $n_run commands were found in the documents"

# -- names ---------------------------------------------------------------------------------

mapfile -t metrics < <(find . -name metrics.jsonl)
"$root/tests/cli/doc_words.py" "$root" "${metrics[@]}" || fail "see above"

# `folder/file.c` in a page is a file of src/ or of the project.
cd "$root" || exit 1
folders=$(cd src && ls | paste -sd'|')
for page in README.md CONTRIBUTING.md docs/*.md; do
    while IFS= read -r name; do
        case $page in docs/from-*) continue ;; esac # names files of other programs
        [ -e "src/$name" ] || [ -e "$name" ] || fail "$page names '$name', which does not exist"
    done < <(grep -oE "\`(src/)?($folders|tests|tools|bench|configs|docs)/[a-zA-Z0-9_./-]+\.(c|h|sh|py|yaml|md|sbatch)" "$page" |
        sed -E 's/^`//; s#^src/##' | grep -v "[*]\|NAME" | sort -u)
    while IFS= read -r target; do
        grep -q "^$target:" Makefile || fail "$page names 'make $target', which is no target"
    done < <(grep -oE '`make [a-z0-9]+`' "$page" | sed -E 's/`make ([a-z0-9]+)`/\1/' | sort -u)
done

# -- what is generated -----------------------------------------------------------------------

tools/commands_page.py "$trefoil" >"$work/commands.md" || fail "docs/commands.md cannot be made"
cmp -s "$work/commands.md" docs/commands.md || fail "docs/commands.md is old: run make docs"
tools/layout_figures.py "$work/pictures" "$trefoil" || fail "the pictures cannot be drawn"
for picture in "$work"/pictures/*.svg; do
    cmp -s "$picture" "docs/pictures/$(basename "$picture")" ||
        fail "docs/pictures/$(basename "$picture") is old: run make docs"
done
echo "$n_run commands of the documents run"
