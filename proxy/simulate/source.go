package simulate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"
)

// maxLine is the maximum length of a line, in bytes.
const maxLine = 1 << 20

// A Format is the format of a log.
type Format string

// The formats.
const (
	Auto     Format = "auto" // JSON if a line begins with a brace, else combined
	JSON     Format = "json"
	Combined Format = "combined" // or common
	Common   Format = "common"   // or combined
)

// A Log is one log.
type Log struct {
	Name string
	io.Reader
}

// A source reads the records of one log.
type source struct {
	name     string
	in       *bufio.Reader
	format   Format
	json     jsonReader
	combined *combinedReader
	newest   time.Time // newest time of a line so far
	ended    bool
	lines    int64
}

// open opens a log, which may be compressed with gzip, as recognized by its first bytes.
func open(l Log, format Format, n *Names) (*source, error) {
	in := bufio.NewReaderSize(l.Reader, 1<<16)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		plain, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Name, err)
		}
		in = bufio.NewReaderSize(plain, 1<<16)
	}
	return &source{name: l.Name, in: in, format: format, json: jsonReader{names: n}, combined: newCombinedReader(n)}, nil
}

// next reads the next line into r; io.EOF at the end.
func (s *source) next(r *record) (kind, error) {
	for {
		r.reset()
		whole, err := s.line(r)
		if err != nil {
			return 0, err
		}
		r.line = bytes.TrimRight(r.line, "\r\n")
		if whole && len(r.line) == 0 {
			continue
		}
		s.lines++
		if !whole {
			return malformed, nil
		}
		k := s.parse(r)
		if k == request {
			written := r.ended
			if written.IsZero() {
				written = r.At.Add(r.Took)
			}
			if written.After(s.newest) {
				s.newest = written
			}
		}
		return k, nil
	}
}

// line reads a line; whole is false if it is too long, and the rest is skipped.
func (s *source) line(r *record) (whole bool, err error) {
	for {
		piece, err := s.in.ReadSlice('\n')
		if len(r.line)+len(piece) <= maxLine {
			r.line = append(r.line, piece...)
			whole = true
		} else {
			r.line = append(r.line[:0], ' ')
			whole = false
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if !whole {
				return false, s.rest()
			}
			continue
		case errors.Is(err, io.EOF) && len(r.line) > 0:
			return whole, nil
		case err != nil:
			if errors.Is(err, io.EOF) {
				return false, io.EOF
			}
			return false, fmt.Errorf("%s: line %d: %w", s.name, s.lines+1, err)
		}
		return whole, nil
	}
}

// rest skips the rest of a line.
func (s *source) rest() error {
	for {
		_, err := s.in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
}

// parse parses r.line.
func (s *source) parse(r *record) kind {
	start := bytes.TrimLeft(r.line, " \t\ufeff")
	switch {
	case s.format == JSON, s.format == Auto && len(start) > 0 && start[0] == '{':
		if len(start) < len(r.line) {
			r.line = append(r.line[:0], start...)
		}
		return s.json.read(r)
	}
	return s.combined.read(r)
}
