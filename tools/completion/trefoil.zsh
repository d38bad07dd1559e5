#compdef trefoil
# Completion of trefoil in zsh. Made from the program's own tables; tools/completion has
# what stands around them.

# Completes what follows a command in the words of the one above it, FUNCTION_COMMAND.
_trefoil_call() {
    local name=$1_$words[1]
    [[ $words[1] != help ]] || name=$1
    (( ! $+functions[$name] )) || $name
}

# A key of the configuration, or its value.
_trefoil_complete_key() {
    local key
    if compset -P 1 '*='; then
        key=${IPREFIX%=}
        compadd -- ${(s:|:)_trefoil_key_words[${key##* }]}
    else
        _describe key _trefoil_keys -S =
    fi
}

@tables@
_trefoil "$@"
