package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-proxy/weir/proxy/config"
)

// Only HTTPS uses certificates: without it, as in the example file, no directory for them
// is created.
func TestWritable_StorageIsCreatedForHTTPSOnly(t *testing.T) {
	storage := filepath.Join(t.TempDir(), "acme")
	c := &config.Config{Listen: config.Listen{HTTP: "127.0.0.1:0", ACME: &config.ACME{Storage: storage}}}
	if err := checkWritable(c); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(storage); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without HTTPS: %v, want no directory", err)
	}
	c.Listen.HTTPS = "127.0.0.1:0"
	if err := checkWritable(c); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(storage); err != nil || !info.IsDir() {
		t.Errorf("with HTTPS: %v, want a directory", err)
	}
}
