package node

import (
	"bytes"
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
	"github.com/weir-proxy/weir/proxy/config/bundle"
)

// A configSource is the source of the configuration: the file of this machine, or the pushed
// configuration. With the latter, only the sections that belong to the machine are used from the
// file.
type configSource struct {
	path    string
	load    func() (*config.Config, error) // loads the file
	machine *config.Config                 // the file as loaded at the start
	log     zerolog.Logger

	mu     sync.Mutex     // guards what follows; never held over I/O
	bundle *bundle.Bundle // the pushed configuration that is served; nil if the file is served
}

// pushable reports whether pushed configurations are served.
func (s *configSource) pushable() bool { return s.machine.Reload.Source == config.SourceRedis }

// served returns the pushed configuration that is served, or nil.
func (s *configSource) served() *bundle.Bundle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bundle
}

// set records the pushed configuration that is served.
func (s *configSource) set(b bundle.Bundle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bundle = &b
}

// read returns the configuration to serve: the pushed one, with the files of this machine to which
// it refers, otherwise the own file.
func (s *configSource) read(context.Context) (*config.Config, error) {
	b := s.served()
	if b == nil {
		return s.load()
	}
	if file, err := s.load(); err != nil || file.Sum != s.machine.Sum {
		s.log.Warn().Str("file", s.path).Msg("the file has changed and is not served; push it with weir push")
	}
	return bundle.Unpack(s.machine, *b)
}

// seal returns what encrypts and opens pushed configurations.
func (s *configSource) seal() bundle.Seal { return bundle.NewSeal(s.machine.Privacy) }

// keep writes the pushed configuration to the configured file, as it is stored in Redis. The file is replaced atomically.
func (s *configSource) keep(e cluster.Entry) error {
	path := s.machine.Reload.Keep
	if path == "" {
		return nil
	}
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("store pushed config: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
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

// readKept reads the kept configuration. Its Generation is 0 if there is none.
func (s *configSource) readKept() (k cluster.Entry, err error) {
	if s.machine.Reload.Keep == "" {
		return k, nil
	}
	text, err := os.ReadFile(s.machine.Reload.Keep)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	var stored struct {
		cluster.Entry
		Bundle json.RawMessage `json:"bundle"`
	}
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	if k = stored.Entry; err == nil && bytes.HasPrefix(stored.Bundle, []byte{'{'}) { // as 0.1.0 kept it
		err = json.Unmarshal(stored.Bundle, &k.Bundle)
	} else if err == nil {
		if err = json.Unmarshal(stored.Bundle, &k.Packed); err == nil {
			k.Bundle, err = s.seal().Open(k.Packed, k.Hash)
		}
	}
	if err != nil {
		return cluster.Entry{}, fmt.Errorf("load pushed config: %w", err)
	}
	return k, nil
}
