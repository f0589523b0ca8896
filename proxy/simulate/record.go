package simulate

import (
	"time"

	"github.com/weir-proxy/weir/proxy"
)

// A record is one line of a log and the request parsed from it.
type record struct {
	proxy.LoggedRequest
	line  []byte // strings of the request share its memory
	ended time.Time
	order int64 // position among all records
}

// A kind is the kind of a line.
type kind uint8

const (
	kindRequest   kind = iota
	kindOther          // well-formed, but not a request: another log message
	kindMalformed      // not a line of a known format
)

// before reports whether the request of r arrived before that of o.
func (r *record) before(o *record) bool {
	if c := r.At.Compare(o.At); c != 0 {
		return c < 0
	}
	return r.order < o.order
}

// reset clears r for another line.
func (r *record) reset() {
	r.LoggedRequest = proxy.LoggedRequest{Fields: r.Fields[:0]}
	r.line, r.ended = r.line[:0], time.Time{}
}
