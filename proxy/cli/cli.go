// Package cli is the command line of weir, one file a command. It puts the parts
// together: which store, which listeners, whose signals.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/weir-proxy/weir/proxy/config"
)

// An Env is what a command can reach of the process it runs in.
type Env struct {
	Stdin          io.Reader // nil: that of the process
	Stdout, Stderr io.Writer
	Reload         <-chan os.Signal // SIGHUP
	Reopen         <-chan os.Signal // SIGUSR1
}

// stdin is where commands read.
func (e Env) stdin() io.Reader {
	if e.Stdin != nil {
		return e.Stdin
	}
	return os.Stdin
}

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // the command could not do what it was told
	exitUsage   = 2 // the command line could not be understood
)

// commands are all that weir can be told.
type commands struct {
	Run         runCommand         `cmd:"" default:"withargs" help:"Serve. SIGHUP reloads, SIGTERM drains."`
	Check       checkCommand       `cmd:"" help:"Name every problem of a configuration file."`
	Explain     explainCommand     `cmd:"" help:"Say what would be done with a request, and why; it takes nothing."`
	Simulate    simulateCommand    `cmd:"" help:"Say what limits would have done with requests of an access log."`
	Keys        keysCommand        `cmd:"" help:"Look a key up on all nodes, and reset, grant, ban or unban it."`
	Top         topCommand         `cmd:"" help:"Show live whom limits see and refuse most, on all nodes, and ban or reset what is selected."`
	Push        pushCommand        `cmd:"" help:"Have all nodes serve a file, or none."`
	Rollback    rollbackCommand    `cmd:"" help:"Have all nodes serve what was pushed earlier."`
	History     historyCommand     `cmd:"" help:"List what was pushed, by whom, and what it changed."`
	Schema      schemaCommand      `cmd:"" help:"Print the JSON Schema of the configuration, for editors."`
	Healthcheck healthcheckCommand `cmd:"" help:"Ask a running weir whether it lives, for containers."`
	Version     versionCommand     `cmd:"" help:"Print the version."`
	Completion  completionCommand  `cmd:"" help:"Print a completion script for a shell, or the manual page."`
	Help        helpCommand        `cmd:"" help:"Print what a command does and takes."`

	Print versionFlag `name:"version" help:"Print the version."`
}

var (
	// errReported says that the command has already told what went wrong.
	errReported = errors.New("said")
	// errUsage says that it has told what is wrong with the command line.
	errUsage = errors.New("usage")
)

// Run does what args say and returns the exit code. When ctx ends, a command
// that serves drains and ends.
func Run(ctx context.Context, args []string, w Env) int {
	var c commands
	ended := -1
	parser, err := kong.New(&c,
		kong.Name("weir"),
		kong.Description("An HTTP reverse proxy that limits rates."),
		kong.Writers(w.Stdout, w.Stderr),
		kong.Exit(func(code int) { ended = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(w),
	)
	if err != nil {
		panic(err) // our own mistake in commands
	}
	names := commandNames(parser)
	if len(args) > 0 && isUnknownCommand(args[0], names) {
		fmt.Fprintf(w.Stderr, "weir: there is no command %q; %sweir --help lists the commands\n", args[0], suggestCommand(args[0], names))
		return exitUsage
	}
	parsed, err := parser.Parse(args)
	if ended >= 0 { // --help or --version has been answered
		return ended
	}
	if err != nil {
		fmt.Fprintf(w.Stderr, "weir: %v; weir --help lists the commands\n", err)
		return exitUsage
	}
	switch err := parsed.Run(); {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		return exitUsage
	case !errors.Is(err, errReported):
		fmt.Fprintf(w.Stderr, "weir: %v\n", err)
	}
	return exitFailure
}

// commandNames are all that the first word may be.
func commandNames(parser *kong.Kong) []string {
	var names []string
	for _, child := range parser.Model.Children {
		names = append(names, child.Name)
	}
	return names
}

// isUnknownCommand reports whether word is meant for a command, and is none of names. run is
// the default and takes no word: whatever is no flag is one.
func isUnknownCommand(word string, names []string) bool {
	return !strings.HasPrefix(word, "-") && !slices.Contains(names, word)
}

// suggestCommand asks whether one of names was meant; "" if none is near.
func suggestCommand(word string, names []string) string {
	if near := config.Near(word, names); near != "" {
		return near + " "
	}
	return ""
}
