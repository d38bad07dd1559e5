# shellcheck shell=bash disable=SC2016 # $ORIGIN is a word of the loader
# check_library_paths DIRECTORY: no program or library in there has a RUNPATH or RPATH entry
# that is empty or relative, which the loader takes from the current directory. Prints those
# that have one, and returns 1.
check_library_paths() {
    local file n_files=0 bad=0 entries entry
    while IFS= read -r -d '' file; do
        [ "$(head -c 4 "$file" | tr -d '\177')" = ELF ] || continue
        n_files=$((n_files + 1))
        while IFS= read -r entries; do
            while IFS= read -r -d : entry; do
                [[ $entry == /* || $entry == '$ORIGIN' || $entry == '$ORIGIN/'* ]] && continue
                echo "$file: entry '$entry' of its library path '$entries'"
                bad=1
            done <<<"$entries:"
        done < <(readelf -d "$file" 2>/dev/null | sed -nE 's/.*\((RUNPATH|RPATH)\).*\[(.*)\]$/\2/p')
    done < <(find "$1" -path '*/python-*' -prune -o -type f \( -perm /111 -o -name '*.so*' \) -size +1k -print0 2>/dev/null)
    if [ "$n_files" -eq 0 ]; then
        echo "no program in $1"
        bad=1
    fi
    return $bad
}
