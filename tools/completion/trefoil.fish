# Completion of trefoil in fish. Made from the program's own tables; tools/completion has
# what stands around them.

set -g __trefoil_commands
set -g __trefoil_before

# Whether the words before the cursor belong to this command.
function __trefoil_at
    set -l words (commandline -opc)
    set -l command trefoil
    for word in $words[2..-1]
        if contains -- "$command $word" $__trefoil_commands
            set command "$command $word"
        else if contains -- $command $__trefoil_before
            set -l above (string replace -r ' help$' '' -- $command)
            contains -- "$above $word" $__trefoil_commands; or set above trefoil
            contains -- "$above $word" $__trefoil_commands; and set command "$above $word"
        end
    end
    test "$command" = "$argv[1]"
end

# Keys of the configuration, or the values of the one that is being written.
function __trefoil_complete_key
    set -l current (commandline -ct)
    for row in $__trefoil_keys
        set -l parts (string split \t -- $row)
        set -l key (string split -m 1 = -- $parts[1])
        if string match -q -- "$key[1]=*" $current
            for value in (string split '|' -- $key[2])
                echo $key[1]=$value
            end
        else
            printf '%s=\t%s\n' $key[1] $parts[2]
        end
    end
end

complete -c trefoil -f
@tables@
