package http1

import "errors"

// errStale reports that a kept connection was found to have ended, or to have
// brought something that nobody asked for, before any of the request was sent over
// it.
var errStale = errors.New("connection no longer fit")

// A reuseAttempt sends a request over a kept connection and reads the beginning of its
// response, with a system call less than doing one after the other: the read that
// the runtime begins every wait with comes before the request instead of after it,
// and so is the look whether the connection is fit as well. A buffer for the
// response is taken when there is one: the same for all that wait, so that it is in
// the processor's cache.
type reuseAttempt struct {
	request []byte // what is sent
	answer  *input // where is read to, which is lent a buffer when there is something to read
	one     [1]byte

	stage  reuseAttemptStage
	wrote  int // bytes of the request
	err    error
	failed string // the system call that has failed with err
}

type reuseAttemptStage uint8

const (
	silent           reuseAttemptStage = iota // nothing was done yet, or nothing has come unasked
	stale                                     // something has: nothing was sent
	partly                                    // not all of the request was taken
	awaitingResponse                          // for the response
	finished                                  // read or err say how
)

// tryReused sends the request of c over u, which was used before, and reads the beginning
// of the response into c.in. sent is how much of the request was; if that is all, there
// is a response.
func (c *Call) tryReused(u *clientConn) (sent int, fault *CallError) {
	a := &u.asking
	a.request, a.answer, a.stage, a.wrote, a.err, a.failed = c.out.buf, &c.in, silent, 0, nil, ""
	err := u.raw.Read(u.step) // made once, or it would be an allocation
	a.request, a.answer = nil, nil
	switch {
	case err == nil && a.stage == stale:
		return 0, &CallError{Phase: Dialing, Err: errStale, Reused: true}
	case err == nil && a.stage == partly:
		return a.wrote, nil
	case err == nil && a.failed != "":
		err = failure(u.net, a.failed, a.err)
	case err == nil:
		err = a.err
	default:
		err = unraw(err)
	}
	if err != nil {
		f := c.fault(err)
		f.Wrote = a.wrote > 0
		return a.wrote, f
	}
	return a.wrote, nil
}
