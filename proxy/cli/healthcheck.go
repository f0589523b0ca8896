package cli

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
)

// defaultAdmin is where a file that says nothing else puts the admin listener.
const defaultAdmin = "127.0.0.1:9901"

type healthcheckCommand struct {
	Config string        `short:"c" help:"The file that the running weir was started with." placeholder:"FILE"`
	Admin  string        `help:"Where its admin listener is; without this the file says." placeholder:"HOST:PORT"`
	Within time.Duration `default:"2s" help:"How long to wait for an answer."`
}

// Run asks the admin listener whether the process lives: exit 0 if it does. A
// file that does not load any more is no reason to call a process dead that
// still serves what the file said before; the default address is asked then.
func (c healthcheckCommand) Run(ctx context.Context) error {
	addr := c.Admin
	if addr == "" {
		addr = c.configured()
	}
	ctx, cancel := context.WithTimeout(ctx, c.Within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+reachable(addr)+"/healthz", nil)
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

// configured is where the file says the admin listener is, or its default.
func (c healthcheckCommand) configured() string {
	if path, err := configPath(c.Config); err == nil {
		if read, err := config.Load(path); err == nil {
			return read.Admin.HTTP
		}
	}
	return defaultAdmin
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
