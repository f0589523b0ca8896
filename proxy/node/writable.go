package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-proxy/weir/proxy/config"
)

// writable returns an error if weir cannot write the files and directories in c, so that
// this is known at start instead of at the first push or certificate.
func writable(c *config.Config) error {
	if keep := c.Reload.Keep; keep != "" {
		if err := writeError(filepath.Dir(keep)); err != nil {
			return fmt.Errorf("reload.keep %s cannot be written: %w; name a file in a folder that weir may write to", keep, err)
		}
	}
	if c.Listen.ACME == nil {
		return nil
	}
	storage := c.Listen.ACME.Storage
	err := os.MkdirAll(storage, 0o700)
	if err == nil {
		err = writeError(storage)
	}
	if err != nil {
		return fmt.Errorf("listen.tls.acme.storage %s cannot be written: %w; name a folder that weir may write to, and that outlives restarts", storage, err)
	}
	return nil
}

// writeError writes a file in a directory and removes it.
func writeError(dir string) error {
	f, err := os.CreateTemp(dir, ".weir-*")
	if err != nil {
		if pe := (*os.PathError)(nil); errors.As(err, &pe) {
			err = pe.Err
		}
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
