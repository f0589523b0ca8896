package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// manualDate is the date of the last change to the texts of the page.
const manualDate = "2026-11-25"

// man returns the manual page weir(1), in man(7) format.
func (c *commandSpec) man(version string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH WEIR 1 %q %s %s\n", manualDate, roffWord("weir "+version), roffWord("User Commands"))
	b.WriteString(".SH NAME\nweir \\- HTTP reverse proxy for rate limiting\n.SH SYNOPSIS\n")
	first := true
	c.walk(func(one *commandSpec) {
		if len(one.subcommands) > 0 {
			return
		}
		if !first {
			b.WriteString(".br\n")
		}
		first = false
		one.synopsis(&b)
	})
	b.WriteString(".SH DESCRIPTION\n" + roff("weir is a reverse proxy for HTTP services that limits request rates by keys such as the client address, a header field or a phone number in a body. Counts are kept in the process, or in Redis, where several instances share them. Without a command it serves."))
	b.WriteString(".SH COMMANDS\n")
	c.walk(func(one *commandSpec) {
		if len(one.subcommands) == 0 {
			one.manual(&b)
		}
	})
	b.WriteString(".SH FILES\n.TP\n.I weir.yaml\n" + roff("The default configuration."))
	b.WriteString(".TP\n.I config.example.yaml\n" + roff("The configuration, if there is no weir.yaml. It shows every field with its default."))
	b.WriteString(".SH ENVIRONMENT\n")
	c.environment(&b)
	b.WriteString(".SH EXIT STATUS\n.TP\n.B 0\n" + roff("The command succeeded.") + ".TP\n.B 1\n" + roff("The command failed; the error is printed on standard error, or by check on standard output.") + ".TP\n.B 2\n" + roff("The command line is invalid.") + ".TP\n.B 3\n" + roff("simulate: the result is printed, but wrong, because the log is not in the order of time."))
	b.WriteString(".SH SIGNALS\n.TP\n.B SIGHUP\n" + roff("Reload the configuration.") + ".TP\n.B SIGTERM\n" + roff("Stop accepting connections, finish requests in progress, and exit."))
	return b.String()
}

// synopsis writes the synopsis of a command.
func (c *commandSpec) synopsis(b *strings.Builder) {
	fmt.Fprintf(b, ".B weir %s\n", roffText(strings.Join(c.path, " ")))
	var rest []string
	for _, f := range c.flags {
		if f.name == "help" || f.name == "version" {
			continue
		}
		rest = append(rest, "["+f.manual()[0]+"]")
	}
	for _, o := range c.args {
		name := "\\fI" + roffText(strings.ToUpper(o.name)) + "\\fR"
		if o.many {
			name += " ..."
		}
		if o.optional {
			name = "[" + name + "]"
		}
		rest = append(rest, name)
	}
	if len(rest) > 0 {
		fmt.Fprintln(b, strings.Join(rest, "\n"))
	}
}

// manual returns the forms of a flag with its value.
func (f flagSpec) manual() []string {
	var all []string
	for _, s := range f.spellings() {
		s = "\\fB" + roffText(s) + "\\fR"
		if f.value != "" {
			s += " \\fI" + roffText(f.value) + "\\fR"
		}
		all = append(all, s)
	}
	return all
}

// manual writes the description of a command.
func (c *commandSpec) manual(b *strings.Builder) {
	fmt.Fprintf(b, ".SS %s\n%s", roffText(strings.Join(c.path, " ")), roff(c.help))
	if c.detail != "" {
		b.WriteString(".PP\n.nf\n")
		for line := range strings.SplitSeq(c.detail, "\n") {
			b.WriteString(roffText(line) + "\n")
		}
		b.WriteString(".fi\n")
	}
	for _, o := range c.args {
		fmt.Fprintf(b, ".TP\n.I %s\n%s", roffText(strings.ToUpper(o.name)), roff(o.help))
	}
	for _, f := range c.flags {
		if f.name == "help" || f.name == "version" {
			continue
		}
		help := f.help
		if f.def != "" {
			help += " The default is " + f.def + "."
		}
		fmt.Fprintf(b, ".TP\n%s\n%s", strings.Join(f.manual(), ", "), roff(help))
	}
}

// environment lists the environment variables of flags.
func (c *commandSpec) environment(b *strings.Builder) {
	all := map[string]string{"NO_COLOR": "Not empty: nothing is coloured."}
	c.walk(func(one *commandSpec) {
		for _, f := range one.flags {
			if f.env != "" && all[f.env] == "" {
				all[f.env] = "Stands for --" + f.name + ": " + f.help
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(b, ".TP\n.B %s\n%s", roffText(name), roff(all[name]))
	}
}

// roffWidth is the maximum length of a line in bytes.
const roffWidth = 76

// roff wraps s into lines.
func roff(s string) string {
	var b strings.Builder
	line := ""
	flush := func() {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		b.WriteString(line + "\n")
	}
	for one := range strings.FieldsSeq(roffText(s)) {
		if line != "" && len(line)+1+len(one) > roffWidth {
			flush()
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += one
	}
	flush()
	return b.String()
}

// roffText escapes text for troff.
func roffText(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(s)
}

// roffWord quotes an argument of a macro.
func roffWord(s string) string { return `"` + strings.ReplaceAll(roffText(s), `"`, `\(dq`) + `"` }
