# bash completion for weir: source <(weir completion bash)
# It does not need the package bash-completion.
_weir() {
    local cur=${COMP_WORDS[COMP_CWORD]} found
    mapfile -t found < <(weir __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    [[ $cur != "=" ]] || cur="" # --flag=value comes as three words
    if [[ ${found[0]} == :files ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
    fi
    [[ ${found[0]} != *= ]] || compopt -o nospace 2>/dev/null
    COMPREPLY=("${found[@]%%$'\t'*}")
}
complete -F _weir weir
