package cli

import (
	"context"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/node"
	"github.com/weir-proxy/weir/proxy/ratelimit"
)

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
		return reportProblems(w.Stderr, err)
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
