package config

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// A named file is one that a field names and that is opened only when Weir serves:
// certificates of listeners, keys of tokens, and files that are written.
type named struct {
	at   form.Location
	path string
	key  *named // of a certificate of a listener: its private key
	made bool   // it is a directory, which Weir makes
}

// opens notes that the file that the field at pointer names is opened later, and
// returns where that is.
func (l *loader) opens(pointer *string) string {
	path := l.relative(*pointer)
	if path == "" {
		return ""
	}
	l.made.opened = append(l.made.opened, named{at: l.Location(pointer), path: path})
	l.made.own[filepath.Clean(path)] = true
	if l.source.Owner(path) == Foreign {
		l.Wrong(pointer, form.Quote(*pointer)+" cannot be read: "+ErrForeign.Error(), "put it there")
	}
	return path
}

// writes notes that the file that the field at pointer names is written while Weir serves, and returns where that is.
func (l *loader) writes(pointer *string) string {
	path := l.relative(*pointer)
	if path != "" {
		l.made.outputs = append(l.made.outputs, named{at: l.Location(pointer), path: path})
	}
	return path
}

// unwritable returns why the file could surely not be written; "" otherwise. It writes nothing.
func (n named) unwritable() string {
	dir := filepath.Dir(n.path)
	at, err := os.Stat(dir)
	for n.made && errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		at, err = os.Stat(dir)
	}
	file, missing := os.Stat(n.path)
	switch {
	case err != nil:
		return "the directory " + form.Quote(dir) + ": " + form.Pathless(err).Error()
	case !at.IsDir():
		return form.Quote(dir) + " is not a directory"
	case missing != nil:
		return ""
	case n.made && !file.IsDir():
		return "it is not a directory"
	case !n.made && file.IsDir():
		return "it is a directory"
	case file.Mode().IsRegular():
		f, err := os.OpenFile(n.path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return form.Pathless(err).Error()
		}
		f.Close()
	}
	return ""
}

// opensPair is opens for a certificate and its key.
func (l *loader) opensPair(cert, key *string) Pair {
	p := Pair{l.opens(cert), l.opens(key)}
	if p.Cert != "" && p.Key != "" {
		last := len(l.made.opened) - 1
		l.made.opened[last-1].key = new(l.made.opened[last])
	}
	return p
}

// CheckFiles opens the files that Weir opens when it starts, here and as this user, loads the
// certificates, and looks where files are to be written. It returns those that it could not use, and warnings of those that clients will not
// accept at that time. They are no fault of the configuration, which may be checked elsewhere
// before the files are there; so Load does not look for them.
func (c *Config) CheckFiles(now time.Time) (problems, warnings Problems) {
	for _, n := range c.outputs {
		if why := n.unwritable(); why != "" {
			problems = append(problems, n.problem("cannot be written: "+why, "make the directory, or name a file in one that Weir may write to"))
		}
	}
	unreadable := map[string]bool{}
	for _, n := range c.opened {
		if _, err := form.ReadFile(n.path, 0); err != nil {
			unreadable[n.path] = true
			problems = append(problems, n.problem("cannot be read: "+err.Error(), "name a file that Weir may read"))
		}
	}
	for _, cert := range c.opened {
		if cert.key == nil || unreadable[cert.path] || unreadable[cert.key.path] {
			continue
		}
		pair, err := tls.LoadX509KeyPair(cert.path, cert.key.path)
		switch {
		case err == nil && (now.After(pair.Leaf.NotAfter) || now.Before(pair.Leaf.NotBefore)):
			warnings = append(warnings, cert.problem("is valid only from "+pair.Leaf.NotBefore.UTC().Format(time.RFC3339)+" to "+pair.Leaf.NotAfter.UTC().Format(time.RFC3339), "name a certificate that is valid now"))
		case err == nil:
		case isEncrypted(cert.key.path):
			problems = append(problems, cert.key.problem("is encrypted", "name a key without a passphrase, as openssl pkey -in KEY -out PLAIN writes it"))
		default:
			problems = append(problems, cert.problem("cannot be used with its key: "+strings.TrimPrefix(err.Error(), "tls: "), "name PEM files that belong together"))
		}
	}
	return form.Arrange(problems, c.Files), form.Arrange(warnings, c.Files)
}

// problem returns a problem with the file.
func (n named) problem(what, instead string) Problem {
	return Problem{Position: n.at.Position, Path: n.at.Path, What: form.Quote(n.path) + " " + what, Instead: instead}
}

// isEncrypted reports whether a file has a private key with a passphrase.
func isEncrypted(path string) bool {
	data, _ := form.ReadFile(path, form.MaxSize) // what cannot be read has no block
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return true
		}
	}
	return false
}

// A FileSource has the files of a configuration, by the names that they use for each other.
type FileSource interface {
	// Read returns the content of a file, of which at most most bytes and one more. Its error is
	// ErrForeign if the configuration must not name the file.
	Read(path string, most int64) ([]byte, error)
	// Glob is filepath.Glob.
	Glob(pattern string) ([]string, error)
	// Owner returns whose a file is, whether it exists or not.
	Owner(path string) FileOwner
}

// A FileOwner says whose a file is that a configuration names.
type FileOwner uint8

const (
	OfConfig  FileOwner = iota // it belongs to the configuration
	OfMachine                  // the machine has it for such configurations: a certificate, for example
	Foreign                    // the configuration must not name it
)

// ErrForeign is the error for all files of a machine that a configuration from another one must not name,
// whether they exist or not, which its sender must not learn.
var ErrForeign = errors.New("not part of the pushed configuration, and not in the directory of this machine's own file")

// diskFiles reads the files of this machine.
type diskFiles struct{}

// Read implements FileSource.
func (diskFiles) Read(path string, most int64) ([]byte, error) { return form.ReadFile(path, most) }

// Glob implements FileSource.
func (diskFiles) Glob(pattern string) ([]string, error) { return filepath.Glob(pattern) }

// Owner implements FileSource.
func (diskFiles) Owner(string) FileOwner { return OfConfig }

// Visit reads the file called name and all files that it includes or whose content belongs to it, such as
// those of lists, from s, and returns the problems of that, and a Config that has only the names of these files. It does
// not validate the configuration. ok is false if the file itself cannot be decoded.
func Visit(s FileSource, name string) (named *Config, problems Problems, ok bool) {
	r := newLoader(os.LookupEnv)
	r.source = s
	main := r.open(name, "")
	if main == nil {
		return r.made, r.failed(), false
	}
	r.include(name, main)
	for _, name := range form.SortedKeys(main.ListForms) {
		r.attach(&main.ListForms[name].File, maxList)
	}
	for _, name := range form.SortedKeys(main.PriceForms) {
		r.attach(&main.PriceForms[name].File, maxList)
	}
	for _, name := range form.SortedKeys(main.LimitForms) {
		r.attachPlans(main.LimitForms[name])
	}
	for _, route := range main.Routes {
		r.attachPlans(route.LimitForms...)
	}
	return r.made, r.failed(), true
}

// An unreadLists has the files of this machine, but nothing of lists, which may be long.
type unreadLists struct{ diskFiles }

// Read implements FileSource.
func (u unreadLists) Read(path string, most int64) ([]byte, error) {
	if most > form.MaxSize {
		return nil, nil
	}
	return u.diskFiles.Read(path, most)
}

// FilesOf returns a Config that has only the names of the files, Files and Globs, of which that at path consists, also if
// one of them is missing or has a mistake.
func FilesOf(path string) *Config {
	named, _, _ := Visit(unreadLists{}, path)
	return named
}

// How a file of lines ends.
const (
	withoutLines = iota // it has none
	withinLine
	afterLine
)

// Emptied returns the Problems of files of lines without any, and of patterns without files, that had some in was, and of files that end
// within a line and did not: a program that writes a file begins by emptying it, and writes it in pieces. It returns nil if there are none.
func Emptied(was, is *Config) error {
	var all Problems
	for _, file := range form.SortedKeys(is.lined) {
		p := Problem{Position: Position{File: file}, What: "ends within a line, as while it is written", Instead: "end its last line"}
		if is.lined[file] == withoutLines {
			p.What, p.Instead = "has lost all its lines", "write a line that begins with # if there shall be none"
		}
		if is.lined[file] < was.lined[file] {
			all = append(all, p)
		}
	}
	for _, glob := range is.Globs {
		matches := func(file string) bool { ok, _ := filepath.Match(glob, file); return ok }
		if slices.ContainsFunc(was.Files[1:], matches) && !slices.ContainsFunc(is.Files[1:], matches) {
			all = append(all, Problem{Position: Position{File: is.Files[0]}, Path: "include", What: form.Quote(glob) + " has lost all its files", Instead: "leave it out if there shall be none"})
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// LoadFrom is like Load for a configuration from another machine, whose file in s is called name. The
// sections listen, admin, store, redis, reload, access_log and traces, and the secrets of privacy, are taken from own,
// the configuration of this machine, if it does not have them. Files are relative to the folder of own.
// Files of the result has the names of all
// files that were read. With an error it has nothing but what OtherUses needs.
func LoadFrom(s FileSource, name string, own *Config) (*Config, error) {
	r := newLoader(os.LookupEnv)
	r.CountTogether()
	r.home = filepath.Dir(own.Files[0])
	r.source = s
	main := r.open(name, "")
	if main != nil {
		r.inherit(main, own.form)
	}
	c, err := r.whole(name, main)
	if err != nil {
		c = &Config{uses: r.Uses}
	}
	return c, err
}

// Names reports whether c names the file at path, which is cleaned.
func (c *Config) Names(path string) bool { return c.own[path] }

// inherit copies sections that belong to the machine from own to main, unless main has them, and so the secrets of
// keys, unless main has one of these: with another secret a key has another name, and its counts are gone.
func (l *loader) inherit(main, own *Config) {
	for _, name := range []string{"listen", "admin", "store", "redis", "reload", "access_log", "traces"} {
		if section := form.Field(main, name); !l.Given(section) {
			reflect.ValueOf(section).Elem().Set(reflect.ValueOf(form.Field(own, name)).Elem())
		}
	}
	if p := &main.Privacy; !l.Given(&p.HashSecret) && !l.Given(&p.Previous) {
		p.HashSecret, p.Previous = own.Privacy.HashSecret, own.Privacy.Previous
	}
}
