package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"os"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/node"
)

type runCommand struct {
	File   string `arg:"" optional:"" help:"The configuration file; default: weir.yaml, then config.example.yaml."`
	Config string `short:"c" help:"The same." placeholder:"FILE"`
	Level  string `name:"log-level" default:"info" enum:"debug,info,warn,error" help:"Minimum log level; warn omits the access log, unless access_log.file is set."`
}

// Run serves until ctx is done, then drains.
func (c runCommand) Run(ctx context.Context, w Env) error {
	if c.File != "" && c.Config != "" {
		fmt.Fprintf(w.Stderr, "weir: %s and -c %s: name one file\n", c.File, c.Config)
		return errUsage
	}
	path, err := configPath(cmp.Or(c.File, c.Config))
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
	return serve(ctx, w, c.Level, node.Options{Path: path, Config: read}, nil)
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
