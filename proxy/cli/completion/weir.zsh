#compdef weir
# zsh completion for weir: weir completion zsh > "${fpath[1]}/_weir"
_weir() {
    local -a found
    found=("${(@f)$(weir __complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    [[ $PREFIX != -*=* ]] || compset -P '*='
    case $found[1] in
    '') return 1 ;;
    :files) _files ;;
    *=) compadd -S '' -a found ;;
    *) # value and help, which _describe wants with a colon between them
        found=("${(@)found//:/\\:}")
        found=("${(@)found/$'\t'/:}")
        _describe argument found
        ;;
    esac
}
if [[ $funcstack[1] == _weir ]]; then
    _weir "$@"
else
    compdef _weir weir
fi
