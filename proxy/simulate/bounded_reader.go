package simulate

import (
	"bufio"
	"io"
)

// setBounds makes s read at most *left bytes, and calls b.Pace before each read.
func (s *source) setBounds(left *int64, b Bounds) {
	if b.MaxBytes == 0 && b.Pace == nil {
		return
	}
	s.in = bufio.NewReaderSize(&boundedReader{s.in, left, b}, readSize)
}

// A boundedReader bounds the uncompressed data: a few bytes of gzip can decompress to many.
type boundedReader struct {
	in   io.Reader
	left *int64 // shared by all logs
	Bounds
}

// Read implements io.Reader.
func (r *boundedReader) Read(p []byte) (int, error) {
	if r.Pace != nil {
		if err := r.Pace(); err != nil {
			return 0, err
		}
	}
	n, err := r.in.Read(p[:min(len(p), readSize)])
	if *r.left -= int64(n); r.MaxBytes > 0 && *r.left < 0 {
		return 0, ErrTooLong
	}
	return n, err
}
