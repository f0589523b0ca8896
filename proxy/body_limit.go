package proxy

import (
	"errors"
	"fmt"
)

// errTooLong reports that a body is announced to be longer than its route
// takes.
var errTooLong = errors.New("body too large")

// checkBodySize refuses a body that is announced to be longer than its route takes,
// before anything is taken from any limit. One that is not announced is counted
// while it is forwarded.
func (x *exchange) checkBodySize() error {
	if most := x.route.MaxBody; most > 0 && x.in.length > most {
		return fmt.Errorf("%w: at most %d bytes are allowed here", errTooLong, most)
	}
	return nil
}
