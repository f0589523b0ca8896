package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
)

// A configSource is where the configuration comes from: this machine's own file, or
// what was pushed, of which the file says only what belongs to the machine.
type configSource struct {
	path string
	own  *config.Config // what the file said at the start
	log  zerolog.Logger

	mu     sync.Mutex     // guards what follows; never held over I/O
	bundle *config.Bundle // what is served because it was pushed; nil while the file is
}

// pushable reports whether other configurations than the file's can be served.
func (o *configSource) pushable() bool { return o.own.Reload.Source == config.SourceRedis }

// served is what is served because it was pushed, or nil.
func (o *configSource) served() *config.Bundle {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bundle
}

// set notes what is served because it was pushed.
func (o *configSource) set(b config.Bundle) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bundle = &b
}

// read is what is to be served: what was pushed, with the files of this machine
// that it names, or else the own file.
func (o *configSource) read(context.Context) (*config.Config, error) {
	b := o.served()
	if b == nil {
		return config.Load(o.path)
	}
	if file, err := config.Load(o.path); err != nil || file.Sum != o.own.Sum {
		o.log.Warn().Str("file", o.path).Msg("the file has changed and is not served; push it with weir push")
	}
	return config.Unpack(o.own, *b)
}

// A keptConfig is what was pushed, as it lies in a file.
type keptConfig struct {
	cluster.Entry
	Bundle config.Bundle `json:"bundle"`
}

// keep writes what was pushed to the file that the configuration names for that;
// readers see the old or the new one whole.
func (o *configSource) keep(e cluster.Entry) error {
	path := o.own.Reload.Keep
	if path == "" {
		return nil
	}
	text, err := json.Marshal(keptConfig{e, e.Bundle})
	if err != nil {
		return fmt.Errorf("store pushed config: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // for the owner only
	if err != nil {
		return fmt.Errorf("store pushed config: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("store pushed config: %w", err)
	}
	return nil
}

// recall is what was kept; its Main is empty when nothing was.
func (o *configSource) recall() (keptConfig, error) {
	var k keptConfig
	if o.own.Reload.Keep == "" {
		return k, nil
	}
	text, err := os.ReadFile(o.own.Reload.Keep)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		return keptConfig{}, fmt.Errorf("load pushed config: %w", err)
	}
	return k, nil
}
