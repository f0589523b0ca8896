package cli

import (
	"context"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/node"
)

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
// file, or at the default address if the file does not load.
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

// configured returns the address of the admin listener in the file, or the
// default.
func (c healthcheckCommand) configured() string {
	if path, err := configPath(c.Config); err == nil {
		if read, err := config.Load(path); err == nil {
			return read.Admin.HTTP
		}
	}
	return defaultAdmin
}
