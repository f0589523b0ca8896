package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
)

// mountInfo is where Linux lists the mounts that a process sees; see proc(5).
const mountInfo = "/proc/self/mountinfo"

// mounted reports whether the file at path is a mount of its own, as containers have
// it that are given a single file. Such a mount shows one inode for ever: a file that
// is renamed into its place outside, which is how editors and most tools write, is
// never seen.
func mounted(path string, mounts io.Reader) bool {
	whole, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && unescaped(fields[4]) == whole {
			return true
		}
	}
	return false
}

// unescaped is a path of mountinfo, where blanks and their like are \040.
func unescaped(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// watchable warns if changes of a file will hardly be noticed.
func (s *service) watchable(path string) {
	f, err := os.Open(mountInfo)
	if err != nil {
		return // no Linux
	}
	defer f.Close()
	if mounted(path, f) {
		s.log.Warn().Str("file", path).Msg("config file is a mount of its own, in which a replaced file is not seen; mount its folder")
	}
}

// writable returns an error if weir will not be able to write what c says that it
// keeps on disk. That is better known at the start than with the first push, or
// with the first certificate.
func writable(c *config.Config) error {
	if keep := c.Reload.Keep; keep != "" {
		if err := tried(filepath.Dir(keep)); err != nil {
			return fmt.Errorf("reload.keep %s cannot be written: %w; name a file in a folder that weir may write to", keep, err)
		}
	}
	if c.Listen.ACME == nil {
		return nil
	}
	storage := c.Listen.ACME.Storage
	err := os.MkdirAll(storage, 0o700)
	if err == nil {
		err = tried(storage)
	}
	if err != nil {
		return fmt.Errorf("listen.tls.acme.storage %s cannot be written: %w; name a folder that weir may write to, and that outlives restarts", storage, err)
	}
	return nil
}

// tried writes a file in a folder and takes it away again.
func tried(dir string) error {
	f, err := os.CreateTemp(dir, ".weir-*")
	if err != nil {
		if pe := (*os.PathError)(nil); errors.As(err, &pe) {
			err = pe.Err
		}
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
