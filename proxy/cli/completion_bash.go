package cli

import (
	"fmt"
	"strings"
)

// bash returns a completion script for bash. It does not need the package
// bash-completion.
func (c *commandSpec) bash() string {
	var b strings.Builder
	b.WriteString(`# bash completion for weir: source <(weir completion bash)
_weir() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at="" words="" word value="" i place=1
    COMPREPLY=()
    # which command it is, and which of its operands is next
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $value ]]; then
            [[ $word == "=" ]] || value=""
            continue
        fi
        case "$at $word" in
`)
	c.walk(func(one *commandSpec) {
		if len(one.path) > 0 {
			before := strings.Join(one.path[:len(one.path)-1], " ")
			fmt.Fprintf(&b, "        %s) at=%s; place=1; continue ;;\n", quote(before+" "+one.path[len(one.path)-1]), quote(strings.Join(one.path, " ")))
		}
		if takes := one.bashTakes(); takes != "" {
			fmt.Fprintf(&b, "        %s) value=1; continue ;;\n", takes)
		}
	})
	b.WriteString(`        esac
        [[ $word == -* ]] || ((place++))
    done
    # --flag=value comes as three words
    if [[ $cur == "=" ]]; then
        cur=""
    elif [[ $prev == "=" ]]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi
    case "$at $prev" in
`)
	c.walk(func(one *commandSpec) {
		for _, f := range one.flags {
			if f.value == "" {
				continue
			}
			fmt.Fprintf(&b, "    %s) %s; return ;;\n", one.bashPattern(f), bashValues(f.valueSpec))
		}
	})
	b.WriteString(`    esac
    if [[ $cur == -* ]]; then
        case "$at" in
`)
	c.walk(func(one *commandSpec) {
		var flags []string
		for _, f := range one.flags {
			flags = append(flags, f.spellings()...)
		}
		fmt.Fprintf(&b, "        %s) words=%s ;;\n", quote(strings.Join(one.path, " ")), quote(strings.Join(flags, " ")))
	})
	b.WriteString(`        esac
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
        return
    fi
    case "$at" in
`)
	c.walk(func(one *commandSpec) { one.bashOperands(&b) })
	b.WriteString(`    esac
}
complete -F _weir weir
`)
	return b.String()
}

// bashTakes returns a pattern of the flags of c that take a value.
func (c *commandSpec) bashTakes() string {
	var all []string
	for _, f := range c.flags {
		if f.value != "" {
			all = append(all, c.bashPattern(f))
		}
	}
	return strings.Join(all, "|")
}

// bashPattern returns a pattern of the forms of a flag of c.
func (c *commandSpec) bashPattern(f flagSpec) string {
	var all []string
	for _, s := range f.spellings() {
		all = append(all, quote(strings.Join(c.path, " ")+" "+s))
	}
	return strings.Join(all, "|")
}

// bashOperands writes the completion of positional arguments.
func (c *commandSpec) bashOperands(b *strings.Builder) {
	path := quote(strings.Join(c.path, " "))
	if len(c.subcommands) > 0 {
		fmt.Fprintf(b, "    %s) %s ;;\n", path, bashValues(valueSpec{values: c.names()}))
		return
	}
	if len(c.args) == 0 {
		return
	}
	fmt.Fprintf(b, "    %s)\n        case $place in\n", path)
	for i, o := range c.args {
		place := fmt.Sprint(i + 1)
		if o.many {
			place = "*"
		}
		fmt.Fprintf(b, "        %s) %s ;;\n", place, bashValues(o.valueSpec))
	}
	b.WriteString("        esac ;;\n")
}

// bashValues returns the completion of a value.
func bashValues(a valueSpec) string {
	switch {
	case a.file:
		return `compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur")`
	case a.names == "keys": // no space after phone=, and nothing is known of its value
		return `compopt -o nospace 2>/dev/null; [[ ${COMP_WORDS[COMP_CWORD]} == "=" || $prev == "=" ]] || mapfile -t COMPREPLY < <(compgen -W "$(weir names keys 2>/dev/null)" -- "$cur")`
	case a.names != "":
		return `mapfile -t COMPREPLY < <(compgen -W "$(weir names ` + a.names + ` 2>/dev/null)" -- "$cur")`
	case len(a.values) > 0:
		return `mapfile -t COMPREPLY < <(compgen -W ` + quote(strings.Join(a.values, " ")) + ` -- "$cur")`
	}
	return ":"
}

// quote writes s as one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
