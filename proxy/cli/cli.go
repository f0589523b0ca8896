// Package cli is the command line of weir, one file per command.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/alecthomas/kong"
	"github.com/mattn/go-isatty"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/node"
	"github.com/weir-proxy/weir/proxy/view"
)

// An Env is the environment of a command: its input, output and signals.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Reload         <-chan os.Signal // SIGHUP
	Reopen         <-chan os.Signal // SIGUSR1
}

// open opens an input of a command: a file, or standard input for -. It returns its size; 0 if that is not known.
func (e Env) open(name string) (in io.ReadCloser, size int64, err error) {
	if name == "-" {
		return io.NopCloser(e.Stdin), 0, nil
	}
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		return nil, 0, fmt.Errorf("%s is a directory; name files in it", name)
	}
	if err == nil {
		in, err = os.Open(name)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s: cannot be read: %w", name, errors.Unwrap(err)) // without the name of the call
	}
	if info.Mode().IsRegular() {
		size = info.Size()
	}
	return in, size, nil
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
	History     historyCommand     `cmd:"" help:"List the pushed configurations, with time and author; with a number, what that one changed."`
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
	// errDoubt reports that a result has been printed that is wrong.
	errDoubt = errors.New("doubt")
)

// A misuse is an error in the command line.
type misuse struct{ error }

// misusef returns a misuse with that text.
func misusef(format string, values ...any) error { return misuse{fmt.Errorf(format, values...)} }

// Run runs the command in args and returns the exit code. When ctx is done, a
// serving command drains and returns.
func Run(ctx context.Context, args []string, w Env) int {
	err := report(w.Stderr, run(ctx, args, w))
	_, wrong := errors.AsType[misuse](err)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDoubt):
		return exitDoubt
	case !errors.Is(err, errReported):
		fmt.Fprintf(w.Stderr, "weir: %v\n", err)
	}
	if wrong {
		return exitUsage
	}
	return exitFailure
}

// run runs the command in args, or prints its help.
func run(ctx context.Context, args []string, w Env) error {
	var c commands
	ended := false
	parser, err := kong.New(&c,
		kong.Name("weir"),
		kong.Description("An HTTP reverse proxy for rate limiting."),
		kong.Writers(w.Stdout, w.Stderr),
		kong.Exit(func(int) { ended = true }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(w),
	)
	if err != nil {
		panic(err) // an invalid struct tag in commands
	}
	// The default command, run, takes no arguments, so a word that is no command is a misspelled one.
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		if err := checkName(parser, args[0], "weir --help"); err != nil {
			return err
		}
	}
	parsed, err := parser.Parse(args)
	switch {
	case ended: // --help or --version was handled
		return nil
	case err != nil && strings.HasPrefix(err.Error(), "expected one of "): // weir keys
		return helpCommand{Command: args[0]}.Run(parser)
	case err != nil:
		return misusef("%s; %s", usageError(err), whichHelp(err))
	}
	return parsed.Run()
}

// usageError returns what is wrong with a command line.
func usageError(err error) string {
	flag, rest, _ := strings.Cut(err.Error(), ": expected ")
	argument, missing := strings.CutPrefix(err.Error(), "expected \"")
	kind, got, _ := strings.Cut(rest, " but got ")
	got, _, _ = strings.Cut(got, ": ") // what Go says of it
	place, list, chosen := strings.Cut(err.Error(), " must be one of ")
	want := map[string]string{"a valid 64 bit int": "whole number", "duration": "duration such as 5s"}[kind]
	switch {
	case chosen:
		list, got, _ = strings.Cut(strings.NewReplacer("\"\",", "", ",", ", ").Replace(list), " but got ")
		return strings.Trim(place, "[]") + " is " + got + "; write one of " + strings.ReplaceAll(list, `"`, "")
	case want != "":
		return strings.Trim(flag, "[]") + " is " + got + ", which is no " + want
	case missing:
		return "write " + strings.TrimSuffix(argument, "\"")
	case strings.Contains(err.Error(), ": parsing time "):
		return strings.Split(err.Error(), ":")[0] + " is no time such as 2026-11-23T07:00:00Z"
	case strings.Contains(err.Error(), " applies to the default command "):
		return strings.NewReplacer("flag ", "", `applies to the default command "run", not`, "stands before the command; write it after", `"`, "").Replace(err.Error())
	case strings.Contains(got, " flag)"):
		return flag + " needs a value, and " + strings.Fields(got)[0] + " looks like a flag"
	case !strings.HasPrefix(got, `"EOL"`):
		return strings.NewReplacer("missing flags: ", "write ", `, did you mean "-h"?`, "").Replace(err.Error()) // -h is like any short flag
	case flag == "--config":
		return "-c needs a file"
	}
	return flag + " needs a value"
}

// whichHelp returns which help tells of the command that was not understood.
func whichHelp(err error) string {
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context.Selected() != nil {
		command, shows := parse.Context.Selected(), "shows its flags"
		if len(command.Children) > 0 {
			shows = "lists its commands"
		}
		return command.FullPath() + " --help " + shows
	}
	return "weir --help lists the commands"
}

// checkName returns an error if there is no command of that name, with what lists those that there are.
func checkName(parser *kong.Kong, name, help string) error {
	names := view.Each(parser.Model.Children, func(n *kong.Node) string { return n.Name })
	if slices.Contains(names, name) {
		return nil
	}
	near := strings.TrimLeft(config.Near(name, names)+" ", " ") // empty if none is similar
	if strings.ContainsAny(name, "./") {
		near = "to serve a file write weir -c " + name + "; "
	}
	return misusef("there is no command %q; %s%s lists the commands", name, near, help)
}

type helpCommand struct {
	Command string `arg:"" optional:"" help:"The command; default: list all."`
	Below   string `arg:"" optional:"" help:"A command below it, such as get of keys."`
}

// Run prints the help of a command, as --help does.
func (c helpCommand) Run(parser *kong.Kong) error {
	if err := checkName(parser, c.Command, "weir help"); err != nil && c.Command != "" {
		return err
	}
	_, err := parser.Parse(strings.Fields(c.Command + " " + c.Below + " --help")) // prints, and misses required arguments afterwards
	if err != nil && strings.HasPrefix(err.Error(), "unexpected argument ") {
		return misusef("%w; weir help %s lists its commands", err, c.Command)
	}
	return nil
}

// outcomeCommand tells a running weir what became of earlier requests, where their application's answer does
// not pass through it.
type outcomeCommand struct {
	Pair    string `arg:"" name:"key=value" help:"The key that return_on names, and its value as in a request: phone=+8613800138000."`
	Outcome string `arg:"" name:"outcome" help:"verified: the permits of all requests for this value are returned."`
	answerFlags
}

// Run reports the outcome, and prints what was returned.
func (o outcomeCommand) Run(ctx context.Context, w Env) error {
	pair, err := view.ParseKeyPair(o.Pair)
	if err != nil {
		return misusef("%s: %w", o.Pair, misused(err, view.ErrKeyQuery))
	}
	r, err := admin.Post[proxy.OutcomeResult](ctx, o.client(), "/outcomes", proxy.Outcome{Key: pair.Key, Value: pair.Value, Outcome: o.Outcome})
	if err != nil || o.JSON {
		return printJSON(w, r, err)
	}
	for _, l := range r.Returned {
		_, err = fmt.Fprintf(w.Stdout, "%s: returned the permits of %s\n", view.LimitName(l.Route, l.Limit), plural(l.Requests, "request"))
	}
	return err
}

// isTerminal reports whether an input or output is a terminal.
func isTerminal(of any) bool {
	f, ok := of.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// A palette colours text for a terminal. The zero palette leaves it unchanged.
type palette struct{ on bool }

// newPalette returns a palette for out. It is empty if out is not a terminal,
// if NO_COLOR is set (no-color.org) or TERM is dumb.
func newPalette(out io.Writer) palette {
	return palette{isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (p palette) good(s string) string { return p.in("32", s) }
func (p palette) bad(s string) string  { return p.in("31", s) }
func (p palette) mild(s string) string { return p.in("33", s) }
func (p palette) head(s string) string { return p.in("1", s) }

func (p palette) in(code, s string) string {
	if !p.on || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// plural returns n and what, with an s unless n is 1.
func plural(n int, what string) string { return view.Plural(fmt.Sprint(n), what) }

type versionCommand struct {
	JSON bool `name:"json" help:"Print JSON, with the date of the build and the platform."`
}

// Run prints the version and the build information.
func (c versionCommand) Run(w Env) error {
	b := readBuild()
	if !c.JSON {
		return printBuild(w.Stdout, b)
	}
	return printJSON(w, struct {
		Version string `json:"version"`
		Commit  string `json:"commit"`
		Date    string `json:"date,omitempty"` // when the commit was made
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}{b.Version, b.Commit, buildSetting("vcs.time", date), b.Go, runtime.GOOS, runtime.GOARCH}, nil)
}

// A versionFlag is the flag --version, which does the same as the command.
type versionFlag bool

// BeforeReset implements kong's hook: the version is printed, and nothing else done.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	defer app.Exit(exitOK)
	return printBuild(app.Stdout, readBuild())
}

// The version, the revision and the date of the commit as set by the linker, for builds outside a
// repository: -X github.com/weir-proxy/weir/proxy/cli.version=v1.2.3. They may be empty.
var version, revision, date string

func printBuild(out io.Writer, b node.Build) error {
	_, err := fmt.Fprintf(out, "weir %s (commit %s, %s)\n", b.Version, b.Commit, b.Go)
	return err
}

// readBuild returns the build information of the binary.
func readBuild() node.Build {
	b := node.Build{Version: "(devel)", Commit: cmp.Or(buildSetting("vcs.revision", revision), "unknown"), Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = cmp.Or(info.Main.Version, b.Version)
	}
	b.Version = cmp.Or(version, b.Version)
	return b
}

// buildSetting returns what the linker was told, or else the setting that the go command recorded.
func buildSetting(key, told string) string {
	info, ok := debug.ReadBuildInfo()
	if told != "" || !ok {
		return told
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// A textTable is a table; the most important columns come first.
type textTable struct {
	columns []string
	rows    []textRow
	empty   string // shown if there are no rows
}

// A textRow is one line of a table.
type textRow struct {
	id    string // identifies the row when the order changes
	cells []string
	bad   bool      // needs attention
	key   *keyOfRow // nil if the row is not about a key
}

// A keyOfRow is a key that can be looked up and changed.
type keyOfRow struct{ name, id, masked string }

// add adds a row with these cells.
func (t *textTable) add(row textRow, cells ...any) {
	row.cells = view.Each(cells, func(cell any) string { return fmt.Sprint(cell) })
	t.rows = append(t.rows, row)
}

// print writes the first rows as text, each after indent.
func (t textTable) print(out io.Writer, indent string, rows int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s%s\n", indent, strings.Join(t.columns, "\t"))
	for _, row := range t.rows[:min(len(t.rows), rows)] {
		fmt.Fprintf(w, "%s%s\n", indent, strings.Join(row.cells, "\t"))
	}
	return w.Flush()
}

// printAll writes all rows, or that there are none.
func (t textTable) printAll(out io.Writer) error {
	if len(t.rows) == 0 {
		_, err := fmt.Fprintln(out, t.empty)
		return err
	}
	return t.print(out, "", len(t.rows))
}

// printable replaces control characters in text.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, text)
}

// ago returns the time since at.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return view.Duration(now.Sub(at).Truncate(time.Second))
}
