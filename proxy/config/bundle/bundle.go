// Package bundle packs a configuration for other machines, and unpacks it there.
package bundle

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"path/filepath"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// MaxSize is the maximum total size of the files in a Bundle, in bytes.
const MaxSize = form.MaxSize

// maxFiles is the maximum number of files in a Bundle.
const maxFiles = 1000

// ErrInvalid reports an invalid Bundle.
var ErrInvalid = errors.New("not a configuration that can be pushed")

// A Bundle is a configuration for other machines: its file, the included files, and the
// files of its lists, unchanged. Environment variables are replaced on the receiving
// machine. Certificate and key files are not included: each machine reads its own.
type Bundle struct {
	Main  string            `json:"main"`  // name of the main file
	Files map[string]string `json:"files"` // by the names that the files use for each other

	version string // see Hash
}

// Pack bundles the file at path. It does not validate the configuration, which depends on
// the receiving machine. Problems report files that cannot be read.
func Pack(path string) (Bundle, error) {
	p := &recordingFiles{dir: filepath.Dir(path), picked: map[string]string{}}
	b := Bundle{Main: filepath.Base(path), Files: p.picked}
	if problems, ok := config.Visit(p, b.Main); !ok || p.missing {
		return Bundle{}, problems
	}
	return b, b.Check()
}

// Check returns an error that wraps ErrInvalid if b is too large or has no main
// file.
func (b Bundle) Check() error {
	size, longest := 0, b.Main
	for name, text := range b.Files {
		size += len(name) + len(text)
		if len(text) > len(b.Files[longest]) {
			longest = name
		}
	}
	if len(b.Files) > maxFiles {
		return fmt.Errorf("%w: it has %d files; write them into %d or fewer", ErrInvalid, len(b.Files), maxFiles)
	}
	if _, ok := b.Files[b.Main]; !ok {
		return fmt.Errorf("%w: the file %q is not in it", ErrInvalid, b.Main)
	}
	if size > MaxSize {
		return fmt.Errorf("%w: its files have %s together, of which %s has %s; %d MiB can be pushed, some 500000 values of a list. "+
			"Shorten it, or let each node read files of its own, of 128 MiB for a list, without reload: {source: redis}", ErrInvalid, mebibytes(size), form.Quote(longest), mebibytes(len(b.Files[longest])), MaxSize>>20)
	}
	return nil
}

// mebibytes returns a size, rounded up to a tenth.
func mebibytes(n int) string {
	const tenth = 1 << 20 / 10
	tenths := (n + tenth - 1) / tenth
	return fmt.Sprintf("%d.%d MiB", tenths/10, tenths%10)
}

// Hash returns the version of b, by which nodes compare what they serve: what Seal.Sign has set or, where there is no
// secret, the SHA-256 of the names and contents of all files. The name of the main file does not matter.
func (b Bundle) Hash() string {
	if b.version != "" {
		return b.version
	}
	h := sha256.New()
	b.writeTo(h)
	return hex.EncodeToString(h.Sum(nil))
}

// writeTo writes the contents to h, so that no two Bundles write the same.
func (b Bundle) writeTo(h hash.Hash) {
	others := b.Others()
	write := func(parts ...string) {
		for _, text := range parts {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
			h.Write([]byte(text))
		}
	}
	write(b.Files[b.Main])
	for _, name := range form.SortedKeys(others) {
		write(name, others[name])
	}
}

// Others returns the files other than the main one.
func (b Bundle) Others() map[string]string {
	others := maps.Clone(b.Files)
	delete(others, b.Main)
	return others
}

// Same reports whether b has the same contents as other. The names of the main files may differ.
func (b Bundle) Same(other Bundle) bool {
	return b.Files[b.Main] == other.Files[other.Main] && maps.Equal(b.Others(), other.Others())
}

// Unpack loads b on a machine whose own configuration is own. The sections listen, admin,
// store, redis, reload, access_log and traces are taken from own if b does not have them.
// The Hash of the result is that of b, which is the same on all machines.
func Unpack(own *config.Config, b Bundle) (*config.Config, error) {
	if err := b.Check(); err != nil {
		return nil, err
	}
	home := filepath.Dir(own.Files[0])
	c, err := config.LoadFrom(bundleFiles{b.Files, home, own}, b.Main, own)
	if err != nil {
		return nil, err
	}
	read := c.Files
	c.Hash = b.Hash()
	c.Files, c.Globs = []string{own.Files[0]}, nil
	for _, name := range read {
		if _, came := b.Files[name]; !came {
			c.Files = append(c.Files, within(home, name))
		}
	}
	return c, nil
}
