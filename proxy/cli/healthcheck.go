package cli

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

type healthcheckCommand struct {
	Config string        `short:"c" help:"The file that the running weir was started with." placeholder:"FILE"`
	Within time.Duration `default:"2s" help:"How long to wait for an answer."`
}

// Run asks the admin listener whether the process lives: exit 0 if it does.
func (c healthcheckCommand) Run(ctx context.Context, w World) error {
	path, err := configPath(c.Config)
	if err != nil {
		return err
	}
	read, err := load(path, w.Stderr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+reachable(read.Admin.HTTP)+"/healthz", nil)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("healthcheck: %s", answer.Status)
	}
	return nil
}

// reachable is the address to dial for one that is listened on: a wildcard is
// reached on loopback.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip.IsUnspecified()) {
		return net.JoinHostPort("localhost", port)
	}
	return addr
}
