// Command weir is an HTTP reverse proxy for rate limiting.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/weir-proxy/weir/proxy/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	reopen := make(chan os.Signal, 1)
	if signals := cli.ReopenSignals(); len(signals) > 0 { // Notify of none would be of all
		signal.Notify(reopen, signals...)
	}
	code := cli.Run(ctx, cli.Arguments(os.Args), cli.Env{Stdout: os.Stdout, Stderr: os.Stderr, Reload: reload, Reopen: reopen})
	stop()
	os.Exit(code)
}
