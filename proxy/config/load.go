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

// maxSize is how long a file may be, in bytes.
const maxSize = 8 << 20

// An Env looks up a variable of the environment, as os.LookupEnv does.
type Env func(name string) (value string, set bool)

// Load reads the file at path and the files that it includes, and fills in the
// environment of the process. It returns a whole Config or Problems. A file that
// cannot be read is a problem too.
func Load(path string) (*Config, error) {
	r := newLoader(os.LookupEnv)
	main := r.open(path, "")
	if main == nil {
		return nil, r.failed()
	}
	r.include(path, main)
	return r.compile(main)
}

// Parse is Load for a file already read, called name in problems. It reads no
// other file: include is a problem.
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

// A loader is what is learned while files are read: once for one Config.
type loader struct {
	env      Env
	source   files
	sealed   bool   // no other file may be read
	home     string // where files are that belong to this machine; empty: beside the main file
	hash     hash.Hash
	common   hash.Hash // as hash, without what differs from machine to machine
	files    []string
	globs    []string
	problems []Problem
	warnings []Problem
	places   map[any]place // of decoded fields, by pointer to the field
	bare     []place       // of secrets that stand in a file as they are
	later    []named       // files that are opened when Weir serves
	written  written
	filled   map[string]string // names of variables of the environment, by what they hold
	left     int               // values that the files may still have
	values   []listed
	own      map[string]bool // files that a file of this machine names
}

func newLoader(env Env) *loader {
	return &loader{
		env: env, source: diskFiles{}, hash: sha256.New(), common: sha256.New(), places: map[any]place{}, written: written{}, left: maxValues, own: map[string]bool{},
	}
}

// add notes a problem at p.
func (r *loader) add(p place, what, instead string) {
	r.problems = append(r.problems, r.unfilled(Problem{p.Position, p.path, what, instead}))
}

// wrong notes a problem with the value of the field that pointer points to.
func (r *loader) wrong(pointer any, what, instead string) {
	r.add(r.places[pointer], what, instead)
}

// wrongName notes a problem with the name before a value.
func (r *loader) wrongName(pointer any, what, instead string) {
	p := r.places[pointer]
	p.Position = r.nameAt(pointer)
	r.add(p, what, instead)
}

// warn notes what is allowed but hardly meant.
func (r *loader) warn(pointer any, what, instead string) {
	p := r.places[pointer]
	r.warnings = append(r.warnings, r.unfilled(Problem{p.Position, p.path, what, instead}))
}

// failed is all problems, in order.
func (r *loader) failed() Problems { return arrange(r.problems, r.files) }

// open reads the file at path; id is what its content counts under in the hash.
// It returns nil if nothing could be made of the file.
func (r *loader) open(path, id string) *file {
	data, err := r.source.read(path)
	if err != nil {
		r.files = append(r.files, path)
		r.add(place{Position: Position{File: path}}, "cannot be read: "+err.Error(), "name a file that Weir may read")
		return nil
	}
	return r.read(path, id, data)
}

// errNotFile reports that what stands at a path is a pipe, a socket or a device: it
// may never end, and cannot be read again when it changes.
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

// openFile opens a regular file, and does not wait for whoever might write to what
// is none.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, pathless(err)
	}
	return f, regular(f)
}

// regular closes f and says what it is, unless it is a regular file.
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

// pathless is err without the path, which is told beside it.
func pathless(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// read decodes the content of one file. It returns nil if there is too
// little or too much to make anything of it.
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

// count lets what was read count in the hashes.
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

// shared is the text of a file without its sections listen and admin, which are a
// machine's own: machines that differ in these alone serve the same. Sections are
// whole lines, unless the file is written in braces; then all of it counts.
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
