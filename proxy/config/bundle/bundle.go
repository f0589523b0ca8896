// Package bundle packs a configuration for other machines, and unpacks it there.
package bundle

import (
	"bytes"
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

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
	if _, problems, ok := config.Visit(p, b.Main); !ok || p.missing {
		for i := range problems {
			problems[i].File = filepath.Join(p.dir, problems[i].File)
		}
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
	form.AddParts(h, b.Files[b.Main])
	for _, name := range form.SortedKeys(others) {
		form.AddParts(h, name, others[name])
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
		return c, err
	}
	files := []string{own.Files[0]}
	for _, name := range c.Files {
		if _, came := b.Files[name]; !came {
			files = append(files, form.Within(home, name))
		}
	}
	c.Hash, c.Files, c.Globs = b.Hash(), files, nil
	return c, nil
}

// A recordingFiles reads files of this machine, relative ones from dir, and records their
// contents.
type recordingFiles struct {
	dir     string
	picked  map[string]string
	missing bool // a file could not be read
}

// Read implements config.FileSource.
func (r *recordingFiles) Read(path string, most int64) ([]byte, error) {
	data, err := form.ReadFile(form.Within(r.dir, path), most)
	if r.missing = r.missing || err != nil; err == nil {
		r.picked[path] = string(data)
	}
	return data, err
}

// Glob implements config.FileSource.
func (r *recordingFiles) Glob(pattern string) ([]string, error) {
	found, err := filepath.Glob(form.Within(r.dir, pattern))
	for i := range found {
		if rel, err := filepath.Rel(r.dir, found[i]); err == nil && !filepath.IsAbs(pattern) {
			found[i] = rel
		}
	}
	return found, err
}

// Owner implements config.FileSource.
func (r *recordingFiles) Owner(string) config.FileOwner { return config.OfConfig }

// A bundleFiles reads files of a Bundle and, of the others, only those of this machine that
// are intended for it: in dir or below, and those that its own configuration names.
type bundleFiles struct {
	files map[string]string
	dir   string
	own   *config.Config
}

// Read implements config.FileSource.
func (b bundleFiles) Read(path string, most int64) ([]byte, error) {
	if text, ok := b.files[path]; ok {
		return []byte(text), nil
	}
	if full := form.Within(b.dir, path); b.own.Names(filepath.Clean(full)) {
		return form.ReadFile(full, most)
	}
	if !b.holds(path) {
		return nil, config.ErrForeign
	}
	root, err := os.OpenRoot(b.dir)
	if err != nil {
		return nil, form.Pathless(err)
	}
	defer root.Close()
	inside, _ := filepath.Rel(b.dir, form.Within(b.dir, path))
	f, err := root.OpenFile(inside, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if err = form.Pathless(err); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			err = config.ErrForeign // a symbolic link leads out of dir
		}
		return nil, err
	}
	return form.ReadRegular(f, most)
}

// Owner implements config.FileSource.
func (b bundleFiles) Owner(path string) config.FileOwner {
	_, came := b.files[path]
	switch {
	case came:
		return config.OfConfig
	case b.holds(path), b.own.Names(filepath.Clean(path)):
		return config.OfMachine
	}
	return config.Foreign
}

// holds reports whether path is lexically in dir or below.
func (b bundleFiles) holds(path string) bool {
	inside, err := filepath.Rel(b.dir, form.Within(b.dir, path))
	return err == nil && filepath.IsLocal(inside)
}

// Glob finds only files of the Bundle.
func (b bundleFiles) Glob(pattern string) ([]string, error) {
	var found []string
	for name := range b.files {
		ok, err := path.Match(filepath.ToSlash(pattern), filepath.ToSlash(name))
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found, nil
}

// Shown returns b for people who compare configurations: instead of each line with a value of a sensitive key, in lists
// and overrides, it has a short hash with once. c is b as it was loaded. If a value is written over several lines, this
// holds for all lines of its file.
func (b Bundle) Shown(c *config.Config, once []byte) Bundle {
	shown := Bundle{Main: b.Main, Files: maps.Clone(b.Files)}
	hidden, all := map[string]map[int]bool{}, map[string][]string{} // lines by file, from 0
	unquote := strings.NewReplacer(`\`, "", "''", "'")
	for _, v := range c.Values() {
		if !v.IsConcealed() || v.IsVariable() {
			continue
		}
		name := v.Where()
		if hidden[name] == nil {
			hidden[name], all[name] = map[int]bool{}, form.Lines(b.Files[name])
		}
		lines := all[name]
		if v.File == "" && v.Line <= len(lines) && strings.Contains(unquote.Replace(lines[v.Line-1]), unquote.Replace(v.Text)) {
			hidden[name][v.Line-1] = true
			continue
		}
		for i := range lines {
			hidden[name][i] = true
		}
	}
	for name, lines := range all {
		for i := range hidden[name] {
			if text := strings.TrimRight(lines[i], "\r\n\u0085\u2028\u2029"); strings.TrimSpace(text) != "" {
				lines[i] = "(not shown, " + config.Brief(once, text) + ")" + lines[i][len(text):]
			}
		}
		shown.Files[name] = strings.Join(lines, "")
	}
	return shown
}

// sealedHead is the beginning of an encrypted Bundle.
const sealedHead = "weir sealed bundle\n"

// ErrSecret reports a Bundle that is encrypted with a secret that this machine does not have.
var ErrSecret = errors.New("encrypted with another privacy.hash_secret than that in the file of this node; " +
	"write there that of the other nodes, or the former one as privacy.previous_secret, and restart")

// A Seal packs Bundles for where others can read them, and opens them. If the machine has a privacy.hash_secret, they are
// encrypted with a key that is derived from it, and their versions tell nothing of their contents. Bundles that are not
// encrypted are opened, too.
type Seal struct {
	versionKey []byte        // nil without a secret
	current    cipher.AEAD   // nil without a secret
	all        []cipher.AEAD // of the secret and of the former one
}

// NewSeal returns the Seal for the secrets of a machine.
func NewSeal(p config.Privacy) Seal {
	var s Seal
	if p.HashSecret != "" {
		s.versionKey = derive(p.HashSecret, "weir: versions of pushed configurations")
		s.current = newAEAD(p.HashSecret)
		s.all = append(s.all, s.current)
	}
	if p.Previous != "" {
		s.all = append(s.all, newAEAD(p.Previous))
	}
	return s
}

// newAEAD returns the cipher for a secret.
func newAEAD(secret string) cipher.AEAD {
	block, err := aes.NewCipher(derive(secret, "weir: encryption of pushed configurations"))
	if err != nil {
		panic(err) // the key has a length of AES
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the block size of GCM
	}
	return aead
}

// derive returns a key of 256 bits for a purpose.
func derive(secret, purpose string) []byte {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, purpose, 32)
	if err != nil {
		panic(err) // it is shorter than HKDF's limit
	}
	return key
}

// Sign returns b with its version for this machine's secret; see Bundle.Hash.
func (s Seal) Sign(b Bundle) Bundle {
	b.version = ""
	if s.versionKey != nil {
		mac := hmac.New(sha256.New, s.versionKey)
		b.writeTo(mac)
		b.version = hex.EncodeToString(mac.Sum(nil))
	}
	return b
}

// Pack compresses b, which may hold long lists, and encrypts it.
func (s Seal) Pack(b Bundle) []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(w).Encode(b), w.Close()); err != nil {
		panic(err) // writing to memory cannot fail
	}
	if s.current == nil {
		return packed.Bytes()
	}
	return append([]byte(sealedHead), s.current.Seal(nil, nil, packed.Bytes(), []byte(b.Hash()))...) // #nosec G407 -- the AEAD makes a random nonce
}

// Open reads what Pack has made of a Bundle with that version. The error wraps ErrSecret or ErrInvalid.
func (s Seal) Open(packed []byte, version string) (b Bundle, err error) {
	if sealed, ok := bytes.CutPrefix(packed, []byte(sealedHead)); ok {
		if packed = s.decrypt(sealed, version); packed == nil {
			return b, ErrSecret
		}
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return b, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	const most = 8 * MaxSize // of JSON, which escapes
	if err := json.NewDecoder(io.LimitReader(r, most)).Decode(&b); err != nil {
		return b, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	b.version = version
	return b, nil
}

// decrypt returns nil if none of the secrets fits.
func (s Seal) decrypt(sealed []byte, version string) []byte {
	for _, aead := range s.all {
		if packed, err := aead.Open(nil, nil, sealed, []byte(version)); err == nil {
			return packed
		}
	}
	return nil
}

// Exposed returns the names of the files of b whose values of sensitive keys can be read where Pack's result can; c is b
// as it was loaded.
func (s Seal) Exposed(c *config.Config) (files []string) {
	if s.current == nil {
		for _, v := range c.Values() {
			if v.Spec.IsConcealed() && !v.IsVariable() && !slices.Contains(files, v.Where()) {
				files = append(files, v.Where())
			}
		}
	}
	return files
}
