package cli

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	For string `arg:"" enum:"bash,zsh,fish,man" help:"bash, zsh or fish: a completion script; man: the manual page."`
}

// Help implements kong's hook: it returns the detailed help.
func (completionCommand) Help() string {
	return `Write one of these lines:

    source <(weir completion bash)
    weir completion zsh > "${fpath[1]}/_weir"
    weir completion fish > ~/.config/fish/completions/weir.fish
    weir completion man > /usr/local/share/man/man1/weir.1`
}

// Run prints a completion script, or the manual page, generated from the commands.
func (c completionCommand) Run(parser *kong.Kong, w Env) error {
	root := newCommandSpec(parser.Model.Node)
	var text string
	switch c.For {
	case "bash":
		text = root.bash()
	case "zsh":
		text = root.zsh()
	case "fish":
		text = root.fish()
	case "man":
		text = root.man(readBuild().Version)
	}
	_, err := w.Stdout.Write([]byte(text))
	return err
}

// A commandSpec describes a command, weir itself or a subcommand, for completions and the
// manual.
type commandSpec struct {
	path        []string // names from the root, without weir
	help        string
	detail      string
	flags       []flagSpec
	args        []argSpec
	subcommands []*commandSpec
}

// A flagSpec is a flag.
type flagSpec struct {
	name, value string // value is "" for a boolean flag
	short       rune
	help        string
	env         string
	def         string // its default; "" for none
	valueSpec
}

// An argSpec is a positional argument.
type argSpec struct {
	name, help string
	valueSpec
	optional bool
	many     bool
}

// A valueSpec describes the values that are accepted: a file name, one of several
// words, or any text.
type valueSpec struct {
	file   bool
	values []string
	names  string // what weir names prints, such as keys; empty for none
}

// newCommandSpec builds the specification of a command and its subcommands from kong's model.
// The flags of the default command are also flags of weir itself.
func newCommandSpec(n *kong.Node) *commandSpec {
	w := &commandSpec{help: n.Help, detail: n.Detail}
	for at := n; at.Parent != nil; at = at.Parent {
		w.path = slices.Insert(w.path, 0, at.Name)
	}
	for _, group := range n.AllFlags(true) {
		for _, f := range group {
			w.add(f)
		}
	}
	if n.DefaultCmd != nil {
		for _, f := range n.DefaultCmd.Flags {
			w.add(f)
		}
	}
	for _, p := range n.Positional {
		w.args = append(w.args, argSpec{
			name: p.Name, help: p.Help, optional: !p.Required, many: p.IsSlice(),
			valueSpec: valueSpec{file: p.Name == "file" || p.Name == "log", values: choices(p), names: p.Tag.Get("names")},
		})
	}
	for _, child := range n.Children {
		if !child.Hidden {
			w.subcommands = append(w.subcommands, newCommandSpec(child))
		}
	}
	for i := range w.subcommands { // the argument of help is the name of a command
		for j := range w.subcommands[i].args {
			if o := &w.subcommands[i].args[j]; o.name == "command" {
				o.values = w.names()
			}
		}
	}
	return w
}

func (c *commandSpec) add(f *kong.Flag) {
	o := flagSpec{name: f.Name, short: f.Short, help: f.Help, valueSpec: valueSpec{values: choices(f.Value), names: f.Tag.Get("names")}}
	if !f.IsBool() {
		o.value = strings.Trim(f.FormatPlaceHolder(), `"`)
		o.file = o.value == "FILE"
		o.def = f.Default
	}
	if f.HasDefault && o.value == o.def {
		o.value = strings.ToUpper(f.Name)
	}
	if len(f.Envs) > 0 {
		o.env = f.Envs[0]
	}
	c.flags = append(c.flags, o)
}

// choices returns the allowed values, none for any text.
func choices(v *kong.Value) []string {
	if v.Enum != "" {
		return v.EnumSlice()
	}
	if v.Tag != nil && v.Tag.Has("complete") {
		return strings.Split(v.Tag.Get("complete"), ",")
	}
	return nil
}

// names returns the names of the subcommands.
func (c *commandSpec) names() []string {
	var all []string
	for _, one := range c.subcommands {
		all = append(all, one.path[len(one.path)-1])
	}
	return all
}

// spellings returns the short and long forms of a flag.
func (f flagSpec) spellings() []string {
	if f.short == 0 {
		return []string{"--" + f.name}
	}
	return []string{"-" + string(f.short), "--" + f.name}
}

// walk calls do for c and all its subcommands.
func (c *commandSpec) walk(do func(*commandSpec)) {
	do(c)
	for _, one := range c.subcommands {
		one.walk(do)
	}
}
