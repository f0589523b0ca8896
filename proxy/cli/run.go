package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/convert"
	"github.com/weir-proxy/weir/proxy/node"
	"github.com/weir-proxy/weir/proxy/ratelimit"
)

// fileArgs name the configuration file.
type fileArgs struct {
	File   string `arg:"" optional:"" help:"The configuration file; default: weir.yaml, then config.example.yaml."`
	Config string `short:"c" help:"The configuration file, in place of the argument." placeholder:"FILE"`
}

type runCommand struct {
	fileArgs
	Level string `name:"log-level" default:"info" enum:"debug,info,warn,error" help:"Minimum log level; warn omits the access log, unless access_log.file is set."`
}

// Run serves until ctx is done, then drains.
func (c runCommand) Run(ctx context.Context, w Env) error {
	path, err := c.path()
	if err != nil {
		return err
	}
	read, err := load(path)
	if err != nil {
		return err
	}
	if problems, _ := read.CheckFiles(time.Now()); len(problems) > 0 { // frontend warns of certificates
		return problems
	}
	return serve(ctx, w, c.Level, node.Options{Path: path, Config: read, Load: func() (*config.Config, error) { return config.Load(path) }}, nil)
}

// serve runs a node until ctx is done, and meanwhile beside, if it is not nil.
func serve(ctx context.Context, w Env, level string, o node.Options, beside func(context.Context, *node.Node, zerolog.Logger)) error {
	least, _ := zerolog.ParseLevel(level) // one of the levels of run
	log := node.NewLog(w.Stderr, least)
	defer log.Close()
	stdlog.SetFlags(0)
	stdlog.SetOutput(log.Standard())      // of the standard library, for the whole process
	memlimit.Set(memlimit.WithRatio(0.9)) // sets nothing if there is no cgroup limit
	o.Log, o.Build, o.Reload, o.Reopen = log, readBuild(), w.Reload, w.Reopen
	n, err := node.Start(ctx, o)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	if beside != nil {
		running.Go(func() { beside(ctx, n, log.Logger) })
	}
	failed := n.Wait(ctx)
	err = n.Close()
	running.Wait()
	return cmp.Or(failed, err)
}

// configPaths returns the candidates for the configuration file: the named one,
// or the default paths.
func configPaths(named string) []string {
	if named != "" {
		return []string{named}
	}
	return []string{"weir.yaml", "config.example.yaml"}
}

// path returns the file that f names, or the default.
func (f fileArgs) path() (string, error) {
	if f.File != "" && f.Config != "" {
		return "", misusef("%s and -c %s: name one file", f.File, f.Config)
	}
	return configPath(cmp.Or(f.File, f.Config))
}

// configPath returns the configuration file: the named one, or the first
// default path that exists.
func configPath(named string) (string, error) {
	for _, path := range configPaths(named) {
		if _, err := os.Stat(path); named != "" || !errors.Is(err, os.ErrNotExist) {
			return path, nil
		}
	}
	return "", errors.New("no configuration: write weir.yaml, or name a file with -c FILE")
}

// defaultAdmin is the default address of the admin listener.
const defaultAdmin = "127.0.0.1:9901"

type healthcheckCommand struct {
	Config string        `short:"c" help:"The file that the running weir was started with." placeholder:"FILE"`
	Admin  string        `env:"WEIR_ADMIN" help:"Address of its admin listener; default: the liveness socket of the weir that was started with the file, then the address in the file." placeholder:"HOST:PORT"`
	Within time.Duration `default:"2s" help:"How long to wait for an answer."`
}

// Run checks whether the process is alive (liveness); the exit code is 0 if it is. A
// file that was changed and is now invalid does not matter, because the process still
// serves the previous one: Run first asks the liveness socket of the process (see
// node.Alive). Without such a socket it asks the admin listener at the address in the
// file, or at the default address if the file does not load. A file that cannot be read is an error.
func (c healthcheckCommand) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Within)
	defer cancel()
	addr := c.Admin
	if addr == "" {
		if slices.ContainsFunc(configPaths(c.Config), func(path string) bool { return node.Alive(ctx, path) == nil }) {
			return nil
		}
		var err error
		if addr, err = c.configured(); err != nil {
			return err
		}
	}
	return admin.Client{Flag: "--admin", Address: addr}.Healthz(ctx)
}

// configured returns the address of the admin listener in the file, or the default if there is no file, or one that
// does not load. A file that cannot be read is an error.
func (c healthcheckCommand) configured() (string, error) {
	path, err := configPath(c.Config)
	if err != nil {
		return defaultAdmin, nil
	}
	read, err := config.Load(path)
	switch problems, _ := errors.AsType[config.Problems](err); {
	case len(problems) > 0 && problems[0].Line == 0: // it is about the file itself
		return "", err
	case err != nil:
		return defaultAdmin, nil
	}
	return read.Admin.HTTP, nil
}

type checkCommand struct {
	fileArgs
	Effective bool   `help:"Print the configuration with all defaults filled in, secrets masked." xor:"what"`
	Against   string `help:"Compare with the configuration of a running weir, and print what would change." placeholder:"HOST:PORT" xor:"what"`
	accessFlags
}

// Run prints all problems of the file, one per line, or that there are none.
// Warnings and notes are printed too, but do not change the exit code.
func (c checkCommand) Run(ctx context.Context, w Env) (err error) {
	defer func() { err = report(w.Stdout, err) }()
	if c.File, err = c.path(); err != nil {
		return err
	}
	if c.Against != "" {
		return c.compare(ctx, w.Stdout)
	}
	read, err := load(c.File)
	if err != nil {
		return err
	}
	if c.Effective {
		_, err = w.Stdout.Write(read.Effective())
		return err
	}
	problems, outdated := read.CheckFiles(time.Now())
	if len(problems) > 0 {
		return problems
	}
	for _, warning := range slices.Concat(read.Warnings, outdated) {
		fmt.Fprintf(w.Stdout, "%s (warning)\n", warning)
	}
	if read.Reload.Source == config.SourceRedis {
		if _, err := bundle.Pack(c.File); err != nil {
			fmt.Fprintf(w.Stdout, "%s: %v (warning)\n", c.File, err)
		}
	}
	for _, remark := range read.Remarks {
		fmt.Fprintf(w.Stdout, "%s (note)\n", remark)
	}
	for _, note := range read.Notes() {
		fmt.Fprintf(w.Stdout, "%s: %s (note)\n", c.File, note)
	}
	fmt.Fprintf(w.Stdout, "%s: ok\n", c.File)
	return nil
}

// load loads a configuration, the default one if none is named.
func load(named string) (*config.Config, error) {
	path, err := configPath(named)
	if err != nil {
		return nil, err
	}
	return config.Load(path)
}

// compare prints what would change if a running weir served the file. The
// running weir reads the file in its own environment.
func (c checkCommand) compare(ctx context.Context, out io.Writer) error {
	b, err := bundle.Pack(c.File)
	if err != nil {
		return err
	}
	p, err := admin.Post[admin.Plan](ctx, c.clientOf("--against", c.Against), "/plan", admin.Push{Bundle: b})
	if err == nil {
		printPlan(out, p)
	}
	return err
}

// printPlan prints how many changes there are, what they are, and last the warnings.
func printPlan(out io.Writer, p admin.Plan) {
	fmt.Fprintf(out, "%s against generation %d\n", plural(len(p.Changes), "change"), p.Generation)
	for _, change := range p.Changes {
		fmt.Fprintln(out, change)
	}
	for _, r := range p.Refused {
		fmt.Fprintf(out, "%s would refuse %s now, such as %s=hash:%s\n", r.Limit, plural(r.Keys, "key"), r.Key, strings.Join(r.Named, ", hash:"))
	}
	switch {
	case p.Restart != "":
		fmt.Fprintln(out, p.Restart)
	case len(p.Changes) == 0: // nothing was to be checked
	case p.Unknown != "":
		fmt.Fprintf(out, "cannot tell which keys would be refused: %s\n", p.Unknown)
	case p.Whole:
		fmt.Fprintf(out, "checked all counts (%d), but those of limits with plans, overrides, redisson, distinct, cooldown or scope: per_instance\n", p.Looked)
	default:
		fmt.Fprintf(out, "checked %d counts; there are more\n", p.Looked)
	}
	for _, warning := range append(p.Warnings, p.Warning) {
		if warning != "" {
			fmt.Fprintf(out, "%s (warning)\n", warning)
		}
	}
}

type schemaCommand struct{}

// Run prints the JSON Schema of the configuration.
func (schemaCommand) Run(w Env) error {
	_, err := w.Stdout.Write(config.Schema())
	return err
}

type convertCommand struct {
	From string `arg:"" name:"program" enum:"nginx,ingress-nginx,ratelimit" help:"The program whose configuration it is: nginx, ingress-nginx, or ratelimit, which is Envoy's."`
	File string `arg:"" help:"Its configuration; - is standard input."`
}

// Run prints the limits of the file as a configuration of Weir. On standard error it says how
// many comments there are to read, which access control is lost, and what weir check would
// report; after the latter two the exit code is 1.
func (c convertCommand) Run(w Env) error {
	in, _, err := w.open(c.File)
	if err != nil {
		return err
	}
	defer in.Close()
	name := c.File
	if name == "-" {
		name = "standard input"
	}
	result, err := convert.Convert(c.From, name, in)
	if err != nil {
		return err
	}
	if _, err := w.Stdout.Write(result.YAML); err != nil {
		return err
	}
	if n := len(result.Notes); n > 0 {
		fmt.Fprintf(w.Stderr, "%s: %d comments say what is different and what is not carried over\n", name, n)
	}
	_, err = config.LoadText("weir.yaml", result.YAML)
	err = report(w.Stderr, err)
	if lost := result.Lost(); len(lost) > 0 {
		fmt.Fprintln(w.Stderr, strings.Join(lost, "\n"))
		fmt.Fprintf(w.Stderr,
			"%s: access control is lost: the configuration is written, and routes that were protected answer 403\n", name)
		return errors.Join(errReported, err)
	}
	return err
}

// Arguments returns the arguments of the program: a program called ratelimit, as Envoy Gateway starts it, runs that
// command.
func Arguments(program []string) []string {
	if len(program) == 1 && filepath.Base(program[0]) == "ratelimit" {
		return []string{"ratelimit"}
	}
	return program[1:]
}

type ratelimitCommand struct{}

// Run serves in the place of envoyproxy/ratelimit until ctx is done, then drains.
func (ratelimitCommand) Run(ctx context.Context, w Env) error {
	settings, err := ratelimit.Read(os.Getenv)
	if err != nil {
		return err
	}
	s := ratelimit.NewService(settings)
	read, err := s.Load()
	if err != nil {
		return err
	}
	stop, err := s.ServeHealth()
	if err != nil {
		return err
	}
	defer stop()
	return serve(ctx, w, settings.LogLevel, node.Options{Path: ratelimit.Name, Config: read, Load: s.Load}, func(ctx context.Context, n *node.Node, log zerolog.Logger) {
		s.Run(ctx, log, n.Reload)
	})
}
