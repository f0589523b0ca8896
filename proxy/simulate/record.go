package simulate

import (
	"time"

	"github.com/weir-proxy/weir/proxy"
)

// A record is one line of a log, and what it tells.
type record struct {
	proxy.LoggedRequest
	line  []byte // the texts of the request point into it
	ended time.Time
	order int64 // among all that were read
}

// A kind says what a line is.
type kind uint8

const (
	request   kind = iota
	other          // well formed, but no request: another message of a program
	malformed      // not a line of a known format
)

// before reports whether r came before another.
func (r *record) before(o *record) bool {
	if c := r.At.Compare(o.At); c != 0 {
		return c < 0
	}
	return r.order < o.order
}

// reset makes r ready for another line.
func (r *record) reset() {
	r.LoggedRequest = proxy.LoggedRequest{Fields: r.Fields[:0]}
	r.line, r.ended = r.line[:0], time.Time{}
}
