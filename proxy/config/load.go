package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"reflect"
	"syscall"

	"gopkg.in/yaml.v3"
)

// maxSize is the maximum size of a file, in bytes.
const maxSize = 8 << 20

// An Env looks up an environment variable, like os.LookupEnv.
type Env func(name string) (value string, set bool)

// Load reads the file at path and the files that it includes, and replaces environment
// variables. It returns a complete Config, or Problems. A file that cannot be read is a
// problem too.
func Load(path string) (*Config, error) {
	r := newLoader(os.LookupEnv)
	main := r.open(path, "")
	if main == nil {
		return nil, r.failed()
	}
	r.include(path, main)
	return r.compile(main)
}

// Parse is like Load for the content of a file, called name in problems. It reads no other
// file: include is a problem.
func Parse(name string, data []byte, env Env) (*Config, error) {
	r := newLoader(env)
	r.sealed = true
	main := r.read(name, "", data)
	if main == nil {
		return nil, r.failed()
	}
	if len(main.Include) > 0 {
		r.wrong(&main.Include, "cannot include files from here", "write all into one file")
	}
	return r.compile(main)
}

// A loader is the state of loading one Config.
type loader struct {
	env      Env
	source   files
	sealed   bool   // other files must not be read
	home     string // directory of files of this machine; empty: that of the main file
	hash     hash.Hash
	common   hash.Hash // like hash, without parts specific to the machine
	files    []string
	globs    []string
	problems []Problem
	warnings []Problem
	places   map[any]place // of decoded fields, by pointer to the field
	bare     []place       // places of secrets that are written in a file
	later    []named       // files that are opened at start
	written  written
	filled   map[string]string // names of environment variables, by value
	left     int               // remaining budget of values
	values   []listed
	own      map[string]bool // files named by the configuration of this machine
}

func newLoader(env Env) *loader {
	return &loader{
		env: env, source: diskFiles{}, hash: sha256.New(), common: sha256.New(), places: map[any]place{}, written: written{}, left: maxValues, own: map[string]bool{},
	}
}

// add reports a problem at p.
func (r *loader) add(p place, what, instead string) {
	r.problems = append(r.problems, r.unfilled(Problem{p.Position, p.path, what, instead}))
}

// wrong reports a problem with the value of the field at pointer.
func (r *loader) wrong(pointer any, what, instead string) {
	r.add(r.places[pointer], what, instead)
}

// wrongName reports a problem with the name before a value.
func (r *loader) wrongName(pointer any, what, instead string) {
	p := r.places[pointer]
	p.Position = r.nameAt(pointer)
	r.add(p, what, instead)
}

// warn adds a warning: the value is allowed, but probably a mistake.
func (r *loader) warn(pointer any, what, instead string) {
	p := r.places[pointer]
	r.warnings = append(r.warnings, r.unfilled(Problem{p.Position, p.path, what, instead}))
}

// failed returns all problems, in order.
func (r *loader) failed() Problems { return arrange(r.problems, r.files) }

// open reads the file at path; id identifies its content in the hash. It returns nil if the
// file could not be decoded.
func (r *loader) open(path, id string) *file {
	data, err := r.source.read(path)
	if err != nil {
		r.files = append(r.files, path)
		r.add(place{Position: Position{File: path}}, "cannot be read: "+err.Error(), "name a file that Weir may read")
		return nil
	}
	return r.read(path, id, data)
}

// errNotFile reports a pipe, a socket or a device, which may not end and cannot be read
// again.
var errNotFile = errors.New("is not a regular file")

func readFile(path string) ([]byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	return data, pathless(err)
}

// openFile opens a regular file. It does not block on a pipe.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, pathless(err)
	}
	return f, regular(f)
}

// regular closes f and describes it, unless it is a regular file.
func regular(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		err = pathless(err)
	case info.IsDir():
		err = syscall.EISDIR
	case !info.Mode().IsRegular():
		err = errNotFile
	}
	if err != nil {
		f.Close()
	}
	return err
}

// pathless returns err without the path, which is reported separately.
func pathless(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// read decodes the content of one file. It returns nil if the content is empty or too
// large.
func (r *loader) read(name, id string, data []byte) *file {
	r.files = append(r.files, name)
	d := &decoder{loader: r, file: name, left: r.left}
	root := d.parse(data)
	if root == nil {
		return nil
	}
	count(r.hash, id, data)
	count(r.common, id, shared(root, data))
	form := &file{}
	d.value(root, place{}, reflect.ValueOf(form).Elem(), tag{})
	if r.home != "" { // all files came in one piece, of a bounded size
		r.left = d.left
	}
	if d.left < 0 {
		return nil
	}
	return form
}

// count adds data to the hashes.
func (r *loader) count(id string, data []byte) {
	count(r.hash, id, data)
	count(r.common, id, data)
}

func count(h hash.Hash, id string, data []byte) {
	for _, part := range [][]byte{[]byte(id), data} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
}

// shared returns the text of a file without the sections listen and admin, which are
// specific to a machine: configurations that differ only there are equal. Sections are
// whole lines, unless the file is in flow style; then all of it counts.
func shared(root *yaml.Node, data []byte) []byte {
	if root.Kind != yaml.MappingNode || root.Style&yaml.FlowStyle != 0 {
		return data
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	var left []byte
	from := 0
	for i := 0; i+1 < len(root.Content); i += 2 {
		name, to := root.Content[i].Value, len(lines)
		if i+2 < len(root.Content) {
			to = root.Content[i+2].Line - 1
		}
		begin := root.Content[i].Line - 1
		left = append(left, bytes.Join(lines[from:begin], nil)...)
		if name != "listen" && name != "admin" {
			left = append(left, bytes.Join(lines[begin:to], nil)...)
		}
		from = to
	}
	return left
}
