#!/bin/bash
# Prints the King James Bible as the demo trains on it (Debian's bible-kjv). One document a
# chapter: its name, then a verse a line without its number; documents are separated by a
# blank line.
set -euo pipefail

if ! command -v bible >/dev/null; then
    echo "demo: the program 'bible' is missing; install bible-kjv and bible-kjv-text" >&2
    exit 1
fi

# The first listing gives the names, the second the verses.
awk '
    NR == FNR { if (/^[1-3A-Z][A-Za-z0-9 ]* [0-9]+$/) names[++n_names] = $0; next }
    {
        chapter = substr($0, 1, index($0, ":") - 1)
        if (chapter != last) {
            print (last == "" ? "" : "\n") names[++at]
            last = chapter
        }
        print substr($0, index($0, " ") + 1)
    }
    END { if (at != n_names) { print "demo: the chapters do not match" > "/dev/stderr"; exit 1 } }
' <(bible 'Gen1:1-Rev22:21') <(bible -f 'Gen1:1-Rev22:21')
