package cli

import (
	"embed"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	For string `arg:"" enum:"bash,zsh,fish,man" help:"bash, zsh or fish: a completion script; man: the manual page."`
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
	script, err := completionFiles.ReadFile("completion/weir." + c.For)
	if err != nil {
		return err
	}
	_, err = w.Stdout.Write(script)
	return err
}

// printManual writes the manual page weir(1), in man(7) format. What it says of a command is the help of that.
func printManual(parser *kong.Kong, out io.Writer) error {
	page, err := completionFiles.ReadFile("completion/weir.1")
	if err != nil {
		return err
	}
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
	_, err = frame.WriteString(out, string(page))
	return err
}

// manualWidth is how wide lines of the manual page are: indented, they fit into 80 columns.
const manualWidth = 68
