#!/bin/bash
# Writes the manual pages and the completion files of a program into a directory:
#   tools/make_pages.sh TREFOIL DIR
# DIR/man1/*.1, DIR/man5/*.5, DIR/trefoil.bash, DIR/_trefoil (zsh), DIR/trefoil.fish, and DIR/made.txt when
# all are there. The program prints its own tables; what follows them is in tools/completion.
set -euo pipefail
templates=$(dirname "$(realpath "$0")")/completion
trefoil=$(realpath "$1")
mkdir -p "$2"
cd "$2"
rm -rf man1 man5 made.txt
mkdir man1 man5

# The commands of a command, from the list that its --help prints; none for a leaf.
commands_of() {
    "$trefoil" "$@" --help | awk '/^commands:$/ { on = 1; next } on && !NF { exit } on { print $1 }'
}

write_pages() { # [COMMAND...]: the page of a command and those of the commands below it
    local name command
    printf -v name -- '-%s' "$@"
    name=trefoil${name%-}
    "$trefoil" "$@" --help=man >"man1/$name.1"
    for command in $(commands_of "$@"); do write_pages "$@" "$command"; done
}
write_pages
"$trefoil" config --man >man5/trefoil.yaml.5

complete() { # SHELL FILE: the template with the tables in the place of its mark
    "$trefoil" "--help=$1" >tables.tmp
    sed -e '/^@tables@$/{r tables.tmp' -e 'd}' "$templates/trefoil.$1" >"$2"
    rm tables.tmp
}
complete bash trefoil.bash
complete zsh _trefoil
complete fish trefoil.fish
ls man1 man5 >made.txt
