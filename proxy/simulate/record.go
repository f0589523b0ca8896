package simulate

import (
	"time"

	"github.com/weir-proxy/weir/proxy"
)

// A record is one parsed line.
type record struct {
	proxy.LoggedRequest
	line  []byte // the texts of the request share its memory
	ended time.Time
	order int64 // sequence number among all records
}

// A kind is the kind of a line.
type kind uint8

const (
	request   kind = iota
	other          // well-formed, but not a request
	malformed      // not a line of a known format
)

// before reports whether r began before o.
func (r *record) before(o *record) bool {
	if c := r.At.Compare(o.At); c != 0 {
		return c < 0
	}
	return r.order < o.order
}

// reset prepares r for another line.
func (r *record) reset() {
	r.LoggedRequest = proxy.LoggedRequest{Fields: r.Fields[:0]}
	r.line, r.ended = r.line[:0], time.Time{}
}
