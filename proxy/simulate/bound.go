package simulate

import (
	"bufio"
	"io"
)

// bound limits the bytes that s reads to *left, and paces it by b.
func (s *source) bound(left *int64, b Bounds) {
	if b.MaxBytes == 0 && b.Pace == nil {
		return
	}
	s.in = bufio.NewReaderSize(&boundedReader{s.in, left, b}, piece)
}

// A boundedReader limits uncompressed input, because a few compressed bytes can expand to
// many.
type boundedReader struct {
	from io.Reader
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
	n, err := r.from.Read(p[:min(len(p), piece)])
	if *r.left -= int64(n); r.MaxBytes > 0 && *r.left < 0 {
		return 0, ErrTooLong
	}
	return n, err
}
