package cli

import (
	"fmt"
	"strings"
)

// fish is a script for fish.
func (c *commandSpec) fish() string {
	var b strings.Builder
	b.WriteString(`# fish completion for weir: weir completion fish > ~/.config/fish/completions/weir.fish
function __weir_at
    # whether the words so far, flags left out, begin with these and no command follows
    set -l words (commandline -opc)[2..]
    set -l plain
    for w in $words
        string match -q -- '-*' $w; or set -a plain $w
    end
    test (count $plain) -ge (count $argv); or return 1
    for i in (seq (count $argv))
        test "$plain[$i]" = "$argv[$i]"; or return 1
    end
    return 0
end
function __weir_bare
    set -l words (commandline -opc)[2..]
    for w in $words
        string match -q -- '-*' $w; or return 1
    end
    return 0
end
complete -c weir -f
`)
	c.walk(func(one *commandSpec) {
		condition := "__weir_at " + strings.Join(one.path, " ")
		if len(one.path) == 0 {
			condition = "__weir_bare"
		}
		for _, child := range one.subcommands {
			fmt.Fprintf(&b, "complete -c weir -n %s -a %s -d %s\n", quote(condition), child.path[len(child.path)-1], fishQuote(child.help))
		}
		for _, f := range one.flags {
			fmt.Fprintf(&b, "complete -c weir -n %s -l %s", quote(condition), f.name)
			if f.short != 0 {
				fmt.Fprintf(&b, " -s %c", f.short)
			}
			if f.value != "" {
				b.WriteString(fishValues(f.valueSpec))
			}
			fmt.Fprintf(&b, " -d %s\n", fishQuote(f.help))
		}
		for _, o := range one.args {
			switch {
			case o.file:
				fmt.Fprintf(&b, "complete -c weir -n %s -F\n", quote(condition))
			case o.names != "":
				fmt.Fprintf(&b, "complete -c weir -n %s -a %s\n", quote(condition), fishQuote("(weir names "+o.names+" 2>/dev/null)"))
			case len(o.values) > 0:
				fmt.Fprintf(&b, "complete -c weir -n %s -a %s\n", quote(condition), fishQuote(strings.Join(o.values, " ")))
			}
		}
	})
	return b.String()
}

// fishValues says what a flag with a value takes.
func fishValues(a valueSpec) string {
	switch {
	case a.file:
		return " -r -F"
	case a.names != "":
		return " -x -a " + fishQuote("(weir names "+a.names+" 2>/dev/null)")
	case len(a.values) > 0:
		return " -x -a " + fishQuote(strings.Join(a.values, " "))
	}
	return " -x"
}

// fishQuote writes s as one word of fish, which knows two escapes within quotes.
func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}
