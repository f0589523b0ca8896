package cli

import (
	"context"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/node"
)

// defaultAdmin is where a file that says nothing else puts the admin listener.
const defaultAdmin = "127.0.0.1:9901"

type healthcheckCommand struct {
	Config string        `short:"c" help:"The file that the running weir was started with." placeholder:"FILE"`
	Admin  string        `env:"WEIR_ADMIN" help:"Where its admin listener is; without this the weir that was started with the file is found by itself, or else the file says." placeholder:"HOST:PORT"`
	Within time.Duration `default:"2s" help:"How long to wait for an answer."`
}

// Run asks whether the process lives: exit 0 if it does. Whatever the file says by
// now is no reason to call a process dead that still serves what it said before: a
// weir says that it lives on a socket of its own too (see node.Alive), and that is asked
// first. Where there is no such socket the admin listener is asked, where the file
// has it, or where it is by default if the file does not load.
func (c healthcheckCommand) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Within)
	defer cancel()
	addr := c.Admin
	if addr == "" {
		for _, path := range configPaths(c.Config) {
			if node.Alive(ctx, path) == nil {
				return nil
			}
		}
		addr = c.configured()
	}
	return admin.Client{Address: addr}.Healthz(ctx)
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
