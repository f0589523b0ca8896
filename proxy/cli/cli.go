// Package cli is the command line of weir, one file per command.
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

// An Env is the environment of a command: its input, output and signals.
type Env struct {
	Stdin          io.Reader // nil means os.Stdin
	Stdout, Stderr io.Writer
	Reload         <-chan os.Signal // SIGHUP
	Reopen         <-chan os.Signal // SIGUSR1
}

// stdin returns the input of commands.
func (e Env) stdin() io.Reader {
	if e.Stdin != nil {
		return e.Stdin
	}
	return os.Stdin
}

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // the command failed
	exitUsage   = 2 // the command line is invalid
	exitDoubt   = 3 // simulate: the result is wrong, because the log is not in order
)

// commands are the commands of weir.
type commands struct {
	Run         runCommand         `cmd:"" default:"withargs" help:"Serve. SIGHUP reloads, SIGTERM drains."`
	Check       checkCommand       `cmd:"" help:"Report every problem of a configuration file."`
	Explain     explainCommand     `cmd:"" help:"Explain what would happen to a request, and why, without taking permits."`
	Simulate    simulateCommand    `cmd:"" help:"Replay access logs, and report what the limits would have decided."`
	Keys        keysCommand        `cmd:"" help:"Show, reset, grant, ban or unban a key on all nodes."`
	Outcome     outcomeCommand     `cmd:"" help:"Tell that the code for a key was used, so that the permits of its requests are returned."`
	Top         topCommand         `cmd:"" help:"Show live which keys send most requests and are refused most, on all nodes, and ban or reset the selected one."`
	Nodes       nodesCommand       `cmd:"" help:"List the nodes, with the leader, configuration drift, and the nodes that were lost."`
	Decisions   decisionsCommand   `cmd:"" help:"List what all nodes decided about recent requests."`
	Audit       auditCommand       `cmd:"" help:"List what operators did."`
	Maintenance maintenanceCommand `cmd:"" help:"Show, begin or end maintenance: 503 on all nodes."`
	Push        pushCommand        `cmd:"" help:"Make all nodes serve a file, or none."`
	Rollback    rollbackCommand    `cmd:"" help:"Make all nodes serve an earlier configuration."`
	History     historyCommand     `cmd:"" help:"List the pushed configurations, with author and changes."`
	Convert     convertCommand     `cmd:"" help:"Print the limits of a configuration of nginx, ingress-nginx or Envoy's ratelimit as one of Weir."`
	Ratelimit   ratelimitCommand   `cmd:"" help:"Serve in place of envoyproxy/ratelimit, with its environment variables, and get limits from its xDS server."`
	Schema      schemaCommand      `cmd:"" help:"Print the JSON Schema of the configuration, for editors."`
	Healthcheck healthcheckCommand `cmd:"" help:"Check whether a running weir is alive, for containers."`
	Version     versionCommand     `cmd:"" help:"Print the version."`
	Complete    completeCommand    `cmd:"" name:"__complete" hidden:"" help:"Print what completion scripts propose."`
	Completion  completionCommand  `cmd:"" help:"Print a completion script for a shell, or the manual page."`
	Help        helpCommand        `cmd:"" help:"Print the help of a command."`

	Print versionFlag `name:"version" help:"Print the version."`
}

var (
	// errReported reports that the command has already printed its error.
	errReported = errors.New("said")
	// errUsage reports that the error in the command line has been printed.
	errUsage = errors.New("usage")
	// errDoubt reports that a result has been printed that is wrong.
	errDoubt = errors.New("doubt")
)

// Run runs the command in args and returns the exit code. When ctx is done, a
// serving command drains and returns.
func Run(ctx context.Context, args []string, w Env) int {
	var c commands
	ended := -1
	parser, err := kong.New(&c,
		kong.Name("weir"),
		kong.Description("An HTTP reverse proxy for rate limiting."),
		kong.Writers(w.Stdout, w.Stderr),
		kong.Exit(func(code int) { ended = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(w),
	)
	if err != nil {
		panic(err) // an invalid struct tag in commands
	}
	names := commandNames(parser)
	if len(args) > 0 && isUnknownCommand(args[0], names) {
		fmt.Fprintf(w.Stderr, "weir: there is no command %q; %sweir --help lists the commands\n", args[0], suggestCommand(args[0], names))
		return exitUsage
	}
	parsed, err := parser.Parse(args)
	if ended >= 0 { // --help or --version was handled
		return ended
	}
	if err != nil {
		fmt.Fprintf(w.Stderr, "weir: %s; %s\n", usageError(err), whichHelp(err))
		return exitUsage
	}
	switch err := reportRefusal(w.Stdout, parsed.Run()); {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errDoubt):
		return exitDoubt
	case !errors.Is(err, errReported):
		fmt.Fprintf(w.Stderr, "weir: %v\n", err)
	}
	return exitFailure
}

// usageError returns what is wrong with a command line.
func usageError(err error) string {
	flag, _, ended := strings.Cut(err.Error(), ": expected string value but got \"EOL\"")
	switch {
	case !ended:
		return err.Error()
	case flag == "--config":
		return "-c needs a file"
	}
	return flag + " needs a value"
}

// whichHelp returns which help tells of the command that was not understood.
func whichHelp(err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context.Selected() != nil {
		return parse.Context.Selected().FullPath() + " --help shows its flags"
	}
	return "weir --help lists the commands"
}

// commandNames returns the names of all commands.
func commandNames(parser *kong.Kong) []string {
	var names []string
	for _, child := range parser.Model.Children {
		names = append(names, child.Name)
	}
	return names
}

// isUnknownCommand reports whether word is not a flag and not one of names. The default
// command, run, takes no arguments, so such a word is a misspelled command.
func isUnknownCommand(word string, names []string) bool {
	return !strings.HasPrefix(word, "-") && !slices.Contains(names, word)
}

// suggestCommand returns a question with the most similar name; "" if none is
// similar.
func suggestCommand(word string, names []string) string {
	if near := config.Near(word, names); near != "" {
		return near + " "
	}
	return ""
}
