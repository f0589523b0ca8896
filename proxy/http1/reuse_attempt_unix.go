//go:build unix

package http1

import (
	"io"
	"syscall"
)

// step is called by the runtime, once at first and then whenever the socket may be
// readable. It returns true when there is nothing more to wait for.
func (a *reuseAttempt) step(fd uintptr) bool {
	if a.stage == attemptNotSent {
		if a.checkAndSend(int(fd)); a.stage != attemptAwaiting {
			return true
		}
		return false
	}
	a.response.ensureBuffer()
	n, err := retryEINTR(rawRead, int(fd), a.response.buf[a.response.w:])
	switch {
	case err == syscall.EAGAIN: //nolint:errorlint // system calls return unwrapped errors
		return false
	case err != nil:
		a.err, a.failedCall = err, "read"
	case n == 0:
		a.err = io.EOF
	default:
		a.response.w += n
	}
	a.stage = attemptDone
	return true
}

// checkAndSend sends the request if the socket has nothing to read.
func (a *reuseAttempt) checkAndSend(fd int) {
	if _, err := retryEINTR(rawRead, fd, a.oneByte[:]); err != syscall.EAGAIN { //nolint:errorlint // as above
		a.stage = attemptStale
		return
	}
	n, err := retryEINTR(rawWrite, fd, a.request)
	a.written = max(n, 0)
	switch {
	case err != nil && err != syscall.EAGAIN: //nolint:errorlint // as above
		a.stage, a.err, a.failedCall = attemptDone, err, "write"
	case a.written < len(a.request):
		a.stage = attemptPartial
	default:
		a.stage = attemptAwaiting
	}
}

// step is called by the runtime when the socket may be writable. It returns true when
// there is nothing more to wait for.
func (w *writeOp) step(fd uintptr) bool {
	for w.n < len(w.data) {
		n, err := retryEINTR(rawWrite, int(fd), w.data[w.n:])
		if err == syscall.EAGAIN { //nolint:errorlint // as above
			w.blocked = true
			return false
		}
		if err != nil {
			w.err = err
			return true
		}
		w.n += n
	}
	return true
}

// retryEINTR repeats a system call that was interrupted by a signal.
func retryEINTR(call func(fd int, p []byte) (int, error), fd int, p []byte) (int, error) {
	for {
		if n, err := call(fd, p); err != syscall.EINTR { //nolint:errorlint // as above
			return n, err
		}
	}
}
