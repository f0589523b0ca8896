package http1

import (
	"errors"

	"github.com/weir-proxy/weir/proxy/http1/internal/socket"
)

// errStale reports that an idle connection had been closed, or had received unexpected
// bytes, before any part of the request was sent.
var errStale = errors.New("stale connection")

// A reuseAttempt sends a request on a reused connection and reads the beginning of the
// response. It needs one system call less than separate steps. The runtime begins every
// wait with a read that usually returns nothing; here that read comes before the
// request is written, so that it also shows whether the connection is stale. The buffer
// for the response is taken only when there are bytes to read. All waiting calls then
// share a few buffers, which stay in the CPU cache.
type reuseAttempt struct {
	secure   *socket.TLSConn // below the connection; nil without TLS
	request  []byte          // the bytes to send
	response *input          // where the response is read to; it gets a buffer when there is something to read
	oneByte  [1]byte

	stage      reuseAttemptStage
	written    int // number of bytes of the request
	err        error
	failedCall string // the system call that failed with err
}

type reuseAttemptStage uint8

const (
	attemptNotSent  reuseAttemptStage = iota // the request has not been sent
	attemptStale                             // unexpected bytes or the end of the connection: the request was not sent
	attemptPartial                           // the socket has accepted only a part of the request
	attemptAwaiting                          // the request was sent; waiting for the response
	attemptDone                              // the beginning of the response was read, or err is set
)

// sendReused sends the request of c on the reused connection u and reads the beginning
// of the response into c.in. sent is the number of bytes of the request that were
// written. If it is the whole request, c.in is not empty.
func (c *Call) sendReused(u *clientConn) (sent int, callErr *CallError) {
	a := &u.attempt
	a.request, a.response, a.stage, a.written, a.err, a.failedCall = c.out.buf, &c.in, attemptNotSent, 0, nil, ""
	u.writeGuard.begin()
	err := u.rawConn.Read(u.attemptStep) // the method value is made once; making it here would allocate
	u.writeGuard.end()
	a.request, a.response = nil, nil
	switch {
	case err == nil && a.stage == attemptStale:
		return 0, &CallError{Phase: Dialing, Err: errStale, Reused: true}
	case err == nil && a.stage == attemptPartial:
		return a.written, nil
	case err == nil && a.failedCall != "":
		err = socket.Error(u.net, a.failedCall, a.err)
	case err == nil:
		err = a.err
	default:
		err = socket.TrimRaw(err)
	}
	if err != nil {
		f := c.newError(err)
		f.RequestSent = a.written > 0
		return a.written, f
	}
	return a.written, nil
}
