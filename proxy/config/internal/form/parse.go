package form

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	yaml4 "go.yaml.in/yaml/v4"
	"gopkg.in/yaml.v3"
)

// parse returns the only document of a file; nil after a problem.
func (d *decoder) parse(data []byte) *yaml.Node {
	whole := Location{Position: Position{File: d.file}}
	if len(data) > MaxSize {
		d.Add(whole, fmt.Sprintf("is longer than %d MiB", MaxSize>>20), "move parts of it to files under include")
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	root, err := document(decoder)
	if errors.Is(err, io.EOF) {
		d.Add(whole, "is empty", "write at least routes")
		return nil
	}
	var second *yaml.Node
	if err == nil {
		second, err = document(decoder)
	}
	switch {
	case errors.Is(err, io.EOF):
		return root.Content[0]
	case err != nil:
		d.syntax(err, data)
	default:
		d.Add(Location{Position: d.at(second)}, "a second document begins here", "keep one document a file, without ---")
	}
	return nil
}

// line matches a line with what the parser takes for its end.
var line = regexp.MustCompile("[^\r\n\u0085\u2028\u2029]*(?:\r\n|[\r\n\u0085\u2028\u2029]|$)")

// Lines returns the lines of a file as positions count them, each with its end.
func Lines(text string) []string { return line.FindAllString(text, -1) }

// document decodes the next document. The parser panics on some invalid inputs, which is
// recovered here.
func document(decoder *yaml.Decoder) (n *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: %v", p)
		}
	}()
	n = &yaml.Node{}
	return n, decoder.Decode(n)
}

// locate returns the position and description of a syntax error. The parser that decodes
// files reports no column, and counts some lines from 0; its successor reports both. ok is
// false if that one finds no error, or no position.
func locate(data []byte) (found *yaml4.LoadError, ok bool) {
	defer func() {
		if recover() != nil {
			found, ok = nil, false
		}
	}()
	decoder := yaml4.NewDecoder(bytes.NewReader(data))
	var err error
	for err == nil {
		err = decoder.Decode(&yaml4.Node{})
	}
	return found, errors.As(err, &found) && found.Mark.Line > 0 && found.Mark.Column > 0
}

// lineOf matches the line number in an error of the parser.
var lineOf = regexp.MustCompile(`^yaml: line ([0-9]+): `)

// syntax reports an error of the parser.
func (d *decoder) syntax(err error, data []byte) {
	p := Location{Position: Position{File: d.file, Line: 1, Column: 1}}
	what := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := lineOf.FindStringSubmatch(err.Error()); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		what = err.Error()[len(m[0]):]
	}
	if exact, ok := locate(data); ok {
		p.Line, p.Column, what = exact.Mark.Line, exact.Mark.Column, exact.Message
		if begins := exact.ContextMark.Line; exact.ContextMsg != "" && begins > 0 && begins != p.Line {
			what += fmt.Sprintf(" %s that begins on line %d", exact.ContextMsg, begins)
		}
	}
	instead := "look for a missing colon, space, quote or bracket there or on the line before"
	lines := bytes.Split(data, []byte("\n"))
	near := bytes.Join(lines[max(0, min(p.Line-2, len(lines))):min(p.Line+1, len(lines))], []byte("\n"))
	for i := max(p.Line-2, 0); i < min(p.Line, len(lines)); i++ {
		if m := oddSyntax.FindSubmatchIndex(lines[i]); m != nil {
			r, _ := utf8.DecodeRune(lines[i][m[2]:])
			p.Line, p.Column = i+1, 1+utf8.RuneCount(lines[i][:m[2]])
			what, instead := describe(r)
			d.Add(p, "not YAML: "+what, instead)
			return
		}
	}
	switch {
	case bytes.Contains(near, []byte("\t")):
		instead = "indent with spaces, not with tabs"
	case bytes.Contains(near, []byte("${")):
		instead = `put ${NAME} in quotes`
	}
	d.Add(p, "not YAML: "+what, cmp.Or(d.twoColons(lines, p.Line), instead))
}

// twoColons returns what to write if a line has NAME: NAME: VALUE where a text with a colon is wanted, or "".
func (d *decoder) twoColons(lines [][]byte, line int) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	m := colons.FindSubmatch(lines[line-1])
	if m == nil {
		return ""
	}
	_, instead := d.hint(string(m[1]), string(m[2])+": "+string(m[3]))
	return instead
}

// colons matches NAME: NAME: VALUE in a line.
var colons = regexp.MustCompile(`([A-Za-z_]+):\s+([A-Za-z_]+):\s+([^\s,}\]]+)`)

// errNotFile reports a pipe, a socket or a device, which may not end and cannot be read
// again.
var errNotFile = errors.New("is not a regular file")

// ReadFile reads a regular file, of which it returns at most most+1 bytes. It does not block on a pipe.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, Pathless(err)
	}
	return ReadRegular(f, most)
}

// ReadRegular reads f as ReadFile does, and closes it.
func ReadRegular(f *os.File, most int64) ([]byte, error) {
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, Pathless(err)
	case info.IsDir():
		return nil, syscall.EISDIR
	case !info.Mode().IsRegular():
		return nil, errNotFile
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	return data, Pathless(err)
}

// Within returns path, which may be relative to dir.
func Within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// AddParts adds texts to a hash, so that no others add the same.
func AddParts[T string | []byte](h hash.Hash, parts ...T) {
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
}

// Pathless returns err without the path, which is reported separately.
func Pathless(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// A Size is a number of bytes, written with its unit: 512B, 64KiB, 1MiB, 2GiB.
type Size int64

// units are the largest first; each is a multiple of the next.
func units() []string { return []string{"GiB", "MiB", "KiB", "B"} }

// bytesOf is how many bytes the unit i of units has.
func bytesOf(i int) int64 { return 1 << (10 * (len(units()) - 1 - i)) }

// String writes s in the largest unit that divides it.
func (s Size) String() string {
	for i, unit := range units() {
		if n := bytesOf(i); int64(s)%n == 0 {
			return strconv.FormatInt(int64(s)/n, 10) + unit
		}
	}
	return "" // a byte divides everything
}

// Written is Text.
func (s *Size) Written() any { return s.String() }

// Parse is Text.
func (s *Size) Parse(text string) error {
	const example = "with a unit: B, KiB, MiB or GiB, for example 64KiB"
	if whole.MatchString(text) {
		return fmt.Errorf("%s has no unit; write a number %s", text, example)
	}
	for i, unit := range units() {
		digits := strings.TrimSuffix(text, unit)
		n, err := strconv.ParseInt(digits, 10, 64)
		if err == nil && whole.MatchString(digits) && n > 0 && n <= math.MaxInt64/bytesOf(i) {
			*s = Size(n * bytesOf(i))
			return nil
		}
	}
	return fmt.Errorf("%s is not a size; write a whole number above 0 %s", Quote(text), example)
}

// Wanted is Text.
func (*Size) Wanted() (kind, instead string) {
	return "a size", "write a number with a unit, for example 64KiB"
}

// A Position is a position in a file. Line and Column count from 1; they are 0 for the
// whole file.
type Position struct {
	File         string
	Line, Column int
}

// String returns file:line:column.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column)
}

// A Problem is one error or warning about a file.
type Problem struct {
	Position
	Path    string // of the field: routes[0].limits[1].rate; may be empty
	What    string // what is wrong
	Instead string // what to write instead; may be empty
}

// String returns one line: file:line:column: Path: what is wrong; what to write instead.
func (p Problem) String() string {
	s := p.Position.String() + ": "
	if p.Path != "" {
		s += p.Path + ": "
	}
	s += p.What
	if p.Instead != "" {
		s += "; " + p.Instead
	}
	return s
}

// Problems is an error with all problems, by file, line and column; the main file comes
// first. It has at least one entry.
type Problems []Problem

// Error returns one problem per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Arrange sorts ps by the order of files, then by position, and removes duplicates.
func Arrange(ps []Problem, files []string) []Problem {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
		)
	})
	return slices.Compact(ps)
}
