package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/node"
)

// fileArgs name the configuration file.
type fileArgs struct {
	File   string `arg:"" optional:"" help:"The configuration file; default: weir.yaml, then config.example.yaml."`
	Config string `short:"c" help:"The same." placeholder:"FILE"`
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
	read, err := load(path, w.Stderr)
	if err != nil {
		return err
	}
	if problems, _ := read.CheckFiles(time.Now()); len(problems) > 0 { // frontend warns of certificates
		return reportProblems(w.Stderr, problems)
	}
	return serve(ctx, w, c.Level, node.Options{Path: path, Config: read, Load: func() (*config.Config, error) { return config.Load(path) }}, nil)
}

// serve runs a node until ctx is done, and meanwhile beside, if it is not nil.
func serve(ctx context.Context, w Env, level string, o node.Options, beside func(context.Context, *node.Node, zerolog.Logger)) error {
	least, err := zerolog.ParseLevel(level)
	if err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
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
	if named != "" {
		return named, nil
	}
	for _, path := range configPaths("") {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			return path, err
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
	return admin.Client{Address: addr}.Healthz(ctx)
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
