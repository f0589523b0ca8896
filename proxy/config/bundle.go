package config

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// MaxBundle is the maximum total size of the files in a Bundle, in bytes.
const MaxBundle = form.MaxSize

// maxFiles is the maximum number of files in a Bundle.
const maxFiles = 1000

// ErrBundle reports an invalid Bundle.
var ErrBundle = errors.New("not a configuration that can be pushed")

// A Bundle is a configuration for other machines: its file, the included files, and the
// files of its lists, unchanged. Environment variables are replaced on the receiving
// machine. Certificate and key files are not included: each machine reads its own.
type Bundle struct {
	Main  string            `json:"main"`  // name of the main file
	Files map[string]string `json:"files"` // by the names that the files use for each other
}

// Pack bundles the file at path. It does not validate the configuration, which depends on
// the receiving machine. Problems report files that cannot be read.
func Pack(path string) (Bundle, error) {
	p := &recordingFiles{dir: filepath.Dir(path), picked: map[string]string{}}
	name := filepath.Base(path)
	r := newLoader(os.LookupEnv)
	r.source = p
	main := r.open(name, "")
	if main == nil {
		return Bundle{}, r.failed()
	}
	r.include(name, main)
	for _, name := range form.SortedKeys(main.Lists) {
		r.attach(&main.Lists[name].File)
	}
	if p.missing {
		return Bundle{}, r.failed()
	}
	b := Bundle{Main: name, Files: p.picked}
	return b, b.Check()
}

// Check returns an error that wraps ErrBundle if b is too large or has no main
// file.
func (b Bundle) Check() error {
	size := 0
	for name, text := range b.Files {
		size += len(name) + len(text)
	}
	if len(b.Files) > maxFiles {
		return fmt.Errorf("%w: it has %d files; write them into %d or fewer", ErrBundle, len(b.Files), maxFiles)
	}
	if _, ok := b.Files[b.Main]; !ok {
		return fmt.Errorf("%w: the file %q is not in it", ErrBundle, b.Main)
	}
	if size > MaxBundle {
		return fmt.Errorf("%w: its files have more than %d MiB together; move long lists to a place of their own", ErrBundle, MaxBundle>>20)
	}
	return nil
}

// Hash returns the SHA-256 of the names and contents of all files, in hexadecimal.
func (b Bundle) Hash() string {
	h := sha256.New()
	names := slices.Sorted(maps.Keys(b.Files))
	for _, part := range append([]string{b.Main}, names...) {
		for _, text := range []string{part, b.Files[part]} {
			var length [8]byte
			binary.BigEndian.PutUint64(length[:], uint64(len(text)))
			h.Write(length[:])
			h.Write([]byte(text))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Unpack loads b on a machine whose own configuration is own. The sections listen, admin,
// store, redis, reload, access_log and traces are taken from own if b does not have them.
// The Hash of the result is that of b, which is the same on all machines.
func Unpack(own *Config, b Bundle) (*Config, error) {
	if err := b.Check(); err != nil {
		return nil, err
	}
	r := newLoader(os.LookupEnv)
	r.HideVariables()
	r.CountTogether()
	r.home = filepath.Dir(own.Files[0])
	r.source = bundleFiles{b.Files, r.home, own.own}
	main := r.open(b.Main, "")
	if main == nil {
		return nil, r.failed()
	}
	r.include(b.Main, main)
	if r.Exhausted() { // whatever was read of it would cost what the bound is to spare
		return nil, r.failed()
	}
	r.inherit(main, own.form)
	c, err := r.compile(main)
	if err != nil {
		return nil, err
	}
	c.Hash = b.Hash()
	c.Files, c.Globs = []string{own.Files[0]}, nil
	for _, name := range r.files {
		if _, came := b.Files[name]; !came {
			c.Files = append(c.Files, within(r.home, name))
		}
	}
	return c, nil
}

// inherit copies sections that belong to the machine from own to main, unless main has
// them.
func (r *loader) inherit(main, own *file) {
	if !r.Given(&main.Listen) {
		main.Listen = own.Listen
	}
	if !r.Given(&main.Admin) {
		main.Admin = own.Admin
	}
	if !r.Given(&main.Store) {
		main.Store = own.Store
	}
	if !r.Given(&main.Redis) {
		main.Redis = own.Redis
	}
	if !r.Given(&main.Reload) {
		main.Reload = own.Reload
	}
	if !r.Given(&main.AccessLog) {
		main.AccessLog = own.AccessLog
	}
	if !r.Given(&main.Traces) {
		main.Traces = own.Traces
	}
}
