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
	ctx, cancel := context.WithCancel(context.Background())
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ends
		signal.Stop(ends) // before anything is said of the end: a second signal ends the process at once
		cancel()
	}()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	reopen := make(chan os.Signal, 1)
	if signals := cli.ReopenSignals(); len(signals) > 0 { // Notify of none would be of all
		signal.Notify(reopen, signals...)
	}
	code := cli.Run(ctx, cli.Arguments(os.Args), cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Reload: reload, Reopen: reopen})
	os.Exit(code)
}
