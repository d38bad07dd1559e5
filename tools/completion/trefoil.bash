# Completion of trefoil in bash. Made from the program's own tables; tools/completion has
# what stands around them.
# shellcheck shell=bash
declare -gA _trefoil_words=() _trefoil_values=()
declare -ga _trefoil_keys=()
@tables@

# Sets `command` to the command that the words before the last belong to.
_trefoil_find_command() {
    local word followers
    command=trefoil
    for word in "${words[@]:1:${#words[@]}-2}"; do
        followers=${_trefoil_values["$command operand"]}
        if [[ -n ${_trefoil_words["$command $word"]} ]]; then
            command="$command $word"
        elif [[ $followers = *'|'* && "|$followers|" = *"|$word|"* ]]; then
            command="${command% help}"
            [[ -n ${_trefoil_words["$command $word"]} ]] || command=trefoil
            command="$command $word"
        fi
    done
}

# Completes `cur`, a key of the configuration or its value.
_trefoil_complete_key() {
    local key
    compopt -o nospace
    for key in "${_trefoil_keys[@]}"; do
        if [[ $cur != *=* && $key = "$cur"* ]]; then
            COMPREPLY+=("${key%%=*}=")
        elif [[ $cur = *=* && ${key%%=*} = "${cur%%=*}" ]]; then
            compopt +o nospace
            mapfile -t COMPREPLY < <(compgen -W "${key#*=}" -P "${cur%%=*}=" -- "${cur#*=}")
        fi
    done
}

# Completes `cur`, a value of this kind.
_trefoil_complete_value() {
    local IFS=$'\n'
    case ${1%...} in
    KEY=VALUE) IFS=' |' _trefoil_complete_key ;;
    *'|'*) mapfile -t COMPREPLY < <(IFS='|' compgen -W "$1" -- "$cur") ;;
    DIR)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        ;;
    PATH)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        ;;
    esac
}

_trefoil() {
    local -a words
    local cur command option='' value='' i
    COMPREPLY=()
    # Split at white space only: bash also splits at "=" and ":".
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:0:COMP_POINT} != *[[:space:]] ]] || words+=('')
    cur=${words[-1]}
    _trefoil_find_command
    if [[ $cur = --*=* ]]; then
        value=${_trefoil_values["$command ${cur%%=*}"]}
        cur=${cur#*=}
        _trefoil_complete_value "$value"
        return
    fi
    # The option whose value this is: the last word, or before other values of a list.
    for ((i = ${#words[@]} - 2; i > 0; i--)); do
        option=${words[i]}
        [[ $option != -* ]] || break
    done
    [[ $option != -* ]] || value=${_trefoil_values["$command $option"]}
    if [[ -n $value && ($i -eq ${#words[@]}-2 || $value = *...) && $cur != -* ]]; then
        _trefoil_complete_value "$value"
    elif [[ $cur != -* && -n ${_trefoil_values["$command operand"]} ]]; then
        _trefoil_complete_value "${_trefoil_values["$command operand"]}"
    else
        mapfile -t COMPREPLY < <(compgen -W "${_trefoil_words["$command"]}" -- "$cur")
    fi
    # What bash takes for the word begins behind the last "=".
    if [[ $cur = *=* && $COMP_WORDBREAKS = *=* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${cur%"${cur##*=}"}"}")
    fi
}
complete -F _trefoil trefoil
