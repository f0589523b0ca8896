//go:build unix

package http1

import (
	"io"
	"syscall"

	"github.com/weir-proxy/weir/proxy/http1/internal/socket"
)

// step is called by the runtime, once at first and then whenever the socket may be
// readable. It returns true when there is nothing more to wait for.
func (a *reuseAttempt) step(fd uintptr) bool {
	if a.stage == attemptNotSent {
		a.checkAndSend(int(fd))
		return a.stage != attemptAwaiting
	}
	a.response.ensureBuffer()
	if a.secure != nil {
		return a.readTLS(fd)
	}
	n, err := socket.Read(int(fd), a.response.buf[a.response.w:])
	switch {
	case err == syscall.EAGAIN:
		return false
	case err != 0:
		a.err, a.failedCall = err, "read"
	case n == 0:
		a.err = io.EOF
	default:
		a.response.w += n
	}
	a.stage = attemptDone
	return true
}

// readTLS reads the beginning of the response. It returns false if it must wait for more of a record.
func (a *reuseAttempt) readTLS(fd uintptr) bool {
	n, err := a.secure.ReadNow(fd, a.response.buf[a.response.w:])
	if err == socket.ErrWouldBlock { //nolint:errorlint // TLS returns it unwrapped
		return false
	}
	a.response.w += n
	a.stage, a.err = attemptDone, err
	return true
}

// checkAndSend sends the request if the socket has nothing to read. TLS waits until the socket has accepted the whole
// request.
func (a *reuseAttempt) checkAndSend(fd int) {
	if _, err := socket.Read(fd, a.oneByte[:]); err != syscall.EAGAIN {
		a.stage = attemptStale
		return
	}
	if a.secure != nil {
		if a.written, a.err = a.secure.TLS.Write(a.request); a.err != nil {
			a.stage = attemptDone
			return
		}
		a.stage = attemptAwaiting
		return
	}
	n, err := socket.Write(fd, a.request)
	a.written = n
	switch {
	case err != 0 && err != syscall.EAGAIN:
		a.stage, a.err, a.failedCall = attemptDone, err, "write"
	case n < len(a.request):
		a.stage = attemptPartial
	default:
		a.stage = attemptAwaiting
	}
}
