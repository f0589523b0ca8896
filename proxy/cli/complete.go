package cli

import (
	"context"
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

// namesWithin bounds how long a completion waits for a running weir.
const namesWithin = time.Second

// anyFile is what is printed where the shell is to complete the name of a file.
const anyFile = ":files"

// completeCommand prints what may stand in place of the last of the words, for completion scripts: one a line,
// with a tab and its help.
type completeCommand struct {
	adminFlags
	Words []string `arg:"" optional:""`
}

// Run prints the proposals.
func (c completeCommand) Run(ctx context.Context, parser *kong.Kong, w Env) error {
	proposals, typed := c.propose(ctx, parser.Model.Node, joinWords(c.Words))
	for _, p := range proposals {
		if p != anyFile && (!strings.HasPrefix(p, typed) || strings.HasSuffix(typed, "=")) { // nothing is known after key=
			continue
		}
		if _, err := fmt.Fprintln(w.Stdout, p); err != nil {
			return err
		}
	}
	return nil
}

// joinWords returns words with --flag=value as one, which comes from bash as three. There is at least one word.
func joinWords(words []string) []string {
	joined, open := []string{}, false
	for _, word := range words {
		if len(joined) > 0 && (word == "=" || open) {
			joined[len(joined)-1] += word
		} else {
			joined = append(joined, word)
		}
		open = word == "="
	}
	if len(joined) == 0 {
		return []string{""}
	}
	return joined
}

// propose returns what may stand in place of the last of words, and what is typed of it.
func (c completeCommand) propose(ctx context.Context, root *kong.Node, words []string) (all []string, typed string) {
	at, place, value := root, 0, (*kong.Value)(nil) // of the flag before
	last := words[len(words)-1]
	for _, word := range words[:len(words)-1] {
		child := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == word })
		switch {
		case value != nil:
			value = nil
		case strings.HasPrefix(word, "-"):
			value = valueOf(at, word)
		case child >= 0:
			at, place = at.Children[child], 0
		default:
			place++
		}
	}
	flag, text, assigned := strings.Cut(last, "=")
	switch {
	case value != nil:
		return c.values(ctx, root, value), last
	case strings.HasPrefix(last, "-") && assigned:
		return c.values(ctx, root, valueOf(at, flag)), text
	case strings.HasPrefix(last, "-"):
		for _, f := range flagsOf(at) {
			if f.Short != 0 {
				all = append(all, fmt.Sprintf("-%c\t%s", f.Short, f.Help))
			}
			all = append(all, "--"+f.Name+"\t"+f.Help)
		}
		return all, last
	case len(at.Children) > 0:
		return commandsOf(at), last
	}
	if n := len(at.Positional); n > 0 && at.Positional[n-1].IsSlice() {
		place = min(place, n-1)
	}
	if place >= len(at.Positional) {
		return nil, last
	}
	return c.values(ctx, root, at.Positional[place]), last
}

// commandsOf returns the commands of n with their help.
func commandsOf(n *kong.Node) (all []string) {
	for _, child := range n.Children {
		if !child.Hidden {
			all = append(all, child.Name+"\t"+child.Help)
		}
	}
	return all
}

// flagsOf returns the flags of a command. Those of the default command are also flags of weir itself.
func flagsOf(n *kong.Node) []*kong.Flag {
	all := slices.Concat(n.AllFlags(true)...)
	if n.DefaultCmd != nil {
		all = append(all, n.DefaultCmd.Flags...)
	}
	return all
}

// valueOf returns the value that the flag takes, of which one form is given; nil for none.
func valueOf(n *kong.Node, form string) *kong.Value {
	for _, f := range flagsOf(n) {
		if (form == "--"+f.Name || f.Short != 0 && form == "-"+string(f.Short)) && !f.IsBool() {
			return f.Value
		}
	}
	return nil
}

// values returns what is proposed for a flag or an argument; nothing if v is nil.
func (c completeCommand) values(ctx context.Context, root *kong.Node, v *kong.Value) []string {
	switch {
	case v == nil:
		return nil
	case v.Flag != nil && v.Flag.PlaceHolder == "FILE" || v.Flag == nil && (v.Name == "file" || v.Name == "log"):
		return []string{anyFile}
	case v.Enum != "":
		return v.EnumSlice()
	case v.Tag.Has("complete"):
		return strings.Split(v.Tag.Get("complete"), ",")
	case v.Flag == nil && v.Name == "command":
		return commandsOf(root)
	}
	return c.names(ctx, v.Tag.Get("names"))
}

// names returns the names of keys, routes or limits of a running weir or, without one, of the configuration in
// the working directory.
func (c completeCommand) names(ctx context.Context, of string) (names []string) {
	if of == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	limits, err := admin.Get[view.Limits](ctx, c.client(), "/limits")
	if err != nil {
		limits = configuredLimits()
	}
	for _, l := range limits.Limits {
		switch of {
		case "routes":
			names = append(append(names, l.Routes...), l.Route)
		case "limits":
			names = append(names, l.Name)
		case "keys":
			parts := l.Parts
			if len(parts) == 0 {
				parts = []string{l.Key}
			}
			names = append(names, view.Each(parts, func(p string) string { return p + "=" })...)
		}
	}
	names = nonEmpty(names...) // a limit of several routes is of none
	slices.Sort(names)
	return slices.Compact(names)
}

// configuredLimits returns the names of the limits of the default configuration file.
func configuredLimits() (all view.Limits) {
	c, err := load("")
	if err != nil {
		return all
	}
	return view.Limits{Limits: view.Each(c.Limits(), (*config.Limit).View)}
}

type completionCommand struct {
	For string `arg:"" name:"shell" enum:"bash,zsh,fish,man" help:"bash, zsh or fish: a completion script; man: the manual page."`
}

// completionFiles are the scripts, which all ask weir __complete, and the frame of the manual page.
//
//go:embed completion
var completionFiles embed.FS

// Help implements kong's hook: it returns the detailed help.
func (completionCommand) Help() string {
	return `Write one of these lines:

    source <(weir completion bash)
    weir completion zsh > "${fpath[1]}/_weir"
    weir completion fish > ~/.config/fish/completions/weir.fish
    weir completion man > /usr/local/share/man/man1/weir.1`
}

// Run prints a completion script, or the manual page.
func (c completionCommand) Run(parser *kong.Kong, w Env) error {
	if c.For == "man" {
		return printManual(parser, w.Stdout)
	}
	script, _ := completionFiles.ReadFile("completion/weir." + c.For) // one of the enum
	_, err := w.Stdout.Write(script)
	return err
}

// printManual writes the manual page weir(1), in man(7) format. What it says of a command is the help of that.
func printManual(parser *kong.Kong, out io.Writer) error {
	page, _ := completionFiles.ReadFile("completion/weir.1") // it is embedded
	var commands strings.Builder
	parser.Stdout = &commands
	escaped := strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "\n.", "\n\\&.")
	options := kong.HelpOptions{WrapUpperBound: manualWidth, ValueFormatter: kong.DefaultHelpValueFormatter}
	text := ""
	for _, leaf := range parser.Model.Leaves(true) {
		path := strings.Fields(leaf.FullPath())[1:]
		ctx, err := kong.Trace(parser, path)
		if err == nil {
			err = kong.DefaultHelpPrinter(options, ctx)
		}
		if err != nil {
			return err
		}
		text += fmt.Sprintf(".SS %s\n.nf\n%s.fi\n", strings.Join(path, " "), escaped.Replace(commands.String()))
		commands.Reset()
	}
	frame := strings.NewReplacer("@VERSION@", escaped.Replace(readBuild().Version), "@COMMANDS@\n", text)
	_, err := frame.WriteString(out, string(page))
	return err
}

// manualWidth is how wide lines of the manual page are: indented, they fit into 80 columns.
const manualWidth = 68
