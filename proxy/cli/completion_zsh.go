package cli

import (
	"fmt"
	"strings"
)

// zsh is a script for zsh.
func (c *commandSpec) zsh() string {
	var b strings.Builder
	b.WriteString("#compdef weir\n# zsh completion for weir: weir completion zsh > \"${fpath[1]}/_weir\"\n")
	c.walk(func(one *commandSpec) { one.zshFunction(&b) })
	b.WriteString("\nif [[ $funcstack[1] == _weir ]]; then\n    _weir \"$@\"\nelse\n    compdef _weir weir\nfi\n")
	return b.String()
}

// zshName is the function that completes what stands behind c.
func (c *commandSpec) zshName() string {
	return strings.Join(append([]string{"_weir"}, c.path...), "_")
}

// zshFunction writes that function.
func (c *commandSpec) zshFunction(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s() {\n", c.zshName())
	if len(c.subcommands) > 0 {
		b.WriteString("    local curcontext=$curcontext state line\n    local -a commands\n    commands=(\n")
		for _, one := range c.subcommands {
			fmt.Fprintf(b, "        %s\n", quote(one.path[len(one.path)-1]+":"+strings.ReplaceAll(one.help, ":", `\:`)))
		}
		b.WriteString("    )\n")
	}
	b.WriteString("    _arguments -s -S")
	if len(c.subcommands) > 0 {
		b.WriteString(" -C")
	}
	for _, f := range c.flags {
		fmt.Fprintf(b, " \\\n        %s", f.zsh())
	}
	for i, o := range c.args {
		place := fmt.Sprint(i + 1)
		if o.many {
			place = "*"
		}
		if o.optional {
			place += ":"
		}
		fmt.Fprintf(b, " \\\n        %s", quote(place+":"+zshText(o.name)+":"+zshValues(o.valueSpec)))
	}
	if len(c.subcommands) > 0 {
		b.WriteString(" \\\n        '1:command:->command' \\\n        '*::argument:->argument'\n    case $state in\n    command) _describe command commands ;;\n    argument)\n        case $words[1] in\n")
		for _, one := range c.subcommands {
			fmt.Fprintf(b, "        %s) %s ;;\n", one.path[len(one.path)-1], one.zshName())
		}
		b.WriteString("        esac ;;\n    esac\n}\n")
		return
	}
	b.WriteString("\n}\n")
}

// zsh is a flag for _arguments.
func (f flagSpec) zsh() string {
	tail := "[" + zshText(f.help) + "]"
	if f.value != "" {
		tail += ":" + zshText(f.value) + ":" + zshValues(f.valueSpec)
	}
	long, equals := "--"+f.name, ""
	if f.value != "" {
		equals = "="
	}
	if f.short == 0 {
		return quote(long + equals + tail)
	}
	short := "-" + string(f.short)
	plus := ""
	if f.value != "" {
		plus = "+"
	}
	return fmt.Sprintf("'(%s %s)'{%s,%s}%s", short, long, short+plus, long+equals, quote(tail))
}

// zshText is text in a specification, in which colons and brackets mean something.
func zshText(s string) string {
	return strings.NewReplacer(`\`, `\\`, ":", `\:`, "[", `\[`, "]", `\]`).Replace(s)
}

func zshValues(a valueSpec) string {
	switch {
	case a.file:
		return "_files"
	case a.names != "":
		return `{compadd -S "" -- ${(f)"$(weir names ` + a.names + ` 2>/dev/null)"}}`
	case len(a.values) > 0:
		return "(" + strings.Join(a.values, " ") + ")"
	}
	return " "
}
