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
	request  []byte // what is sent
	response *input // where is read to, which is lent a buffer when there is something to read
	oneByte  [1]byte

	stage      reuseAttemptStage
	written    int // bytes of the request
	err        error
	failedCall string // the system call that has failed with err
}

type reuseAttemptStage uint8

const (
	attemptNotSent  reuseAttemptStage = iota // nothing was done yet, or nothing has come unasked
	attemptStale                             // something has: nothing was sent
	attemptPartial                           // not all of the request was taken
	attemptAwaiting                          // for the response
	attemptDone                              // read or err say how
)

// sendReused sends the request of c over u, which was used before, and reads the beginning
// of the response into c.in. sent is how much of the request was; if that is all, there
// is a response.
func (c *Call) sendReused(u *clientConn) (sent int, fault *CallError) {
	a := &u.attempt
	a.request, a.response, a.stage, a.written, a.err, a.failedCall = c.out.buf, &c.in, attemptNotSent, 0, nil, ""
	err := u.rawConn.Read(u.attemptStep) // made once, or it would be an allocation
	a.request, a.response = nil, nil
	switch {
	case err == nil && a.stage == attemptStale:
		return 0, &CallError{Phase: Dialing, Err: errStale, Reused: true}
	case err == nil && a.stage == attemptPartial:
		return a.written, nil
	case err == nil && a.failedCall != "":
		err = syscallError(u.net, a.failedCall, a.err)
	case err == nil:
		err = a.err
	default:
		err = trimRawOp(err)
	}
	if err != nil {
		f := c.newError(err)
		f.RequestSent = a.written > 0
		return a.written, f
	}
	return a.written, nil
}
