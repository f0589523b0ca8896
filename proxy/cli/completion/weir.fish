# fish completion for weir: weir completion fish > ~/.config/fish/completions/weir.fish
function __weir
    set -l cur (commandline -ct)
    set -l found (weir __complete -- (commandline -opc)[2..] "$cur" 2>/dev/null)
    set -l flag (string match -r -- '^-.*?=' "$cur")
    if test "$found[1]" = :files
        set found (complete -C "'' "(string replace -- "$flag" '' "$cur"))
    end
    test -z "$found"; or printf '%s\n' "$flag"$found
end
complete -c weir -f -a '(__weir)'
