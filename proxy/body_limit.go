package proxy

import (
	"errors"
	"fmt"
)

// errTooLong reports that the announced length of a body exceeds the maximum of its route.
var errTooLong = errors.New("body too large")

// checkBodySize refuses a request whose announced body exceeds the maximum of its route, before any
// permit is taken. A body without an announced length is measured while it is forwarded.
func (x *exchange) checkBodySize() error {
	if maxBytes := x.route.MaxBody; maxBytes > 0 && x.in.length > maxBytes {
		return tooLong(maxBytes)
	}
	return nil
}

func tooLong(maxBytes int64) error {
	return fmt.Errorf("%w: at most %d bytes are allowed here", errTooLong, maxBytes)
}
