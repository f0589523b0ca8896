package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-proxy/weir/proxy/config"
)

// checkWritable returns an error if weir cannot write the files that c configures. This check at the
// start prevents a failure at the first push or certificate.
func checkWritable(c *config.Config) error {
	if keep := c.Reload.Keep; keep != "" {
		if err := tryWrite(filepath.Dir(keep)); err != nil {
			return fmt.Errorf("reload.keep %s cannot be written: %w; name a file in a directory that weir may write to", keep, err)
		}
	}
	if c.Listen.ACME == nil || c.Listen.HTTPS == "" { // certificates are used by HTTPS only
		return nil
	}
	storage := c.Listen.ACME.Storage
	err := os.MkdirAll(storage, 0o700)
	if err == nil {
		err = tryWrite(storage)
	}
	if err != nil {
		return fmt.Errorf("listen.tls.acme.storage %s cannot be written: %w; name a directory that weir may write to, and that outlives restarts", storage, err)
	}
	return nil
}

// tryWrite creates and removes a file in a directory, and returns the error.
func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".weir-*")
	if err != nil {
		if pe := (*os.PathError)(nil); errors.As(err, &pe) {
			err = pe.Err
		}
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
