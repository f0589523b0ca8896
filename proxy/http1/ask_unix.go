//go:build unix

package http1

import (
	"io"
	"syscall"
)

// step is called by the runtime at first, and then whenever something may have come.
// It reports whether there is nothing more to wait for.
func (a *reuseAttempt) step(fd uintptr) bool {
	if a.stage == silent {
		if a.checkStale(int(fd)); a.stage != awaitingResponse {
			return true
		}
		return false
	}
	a.answer.open()
	n, err := retried(rawRead, int(fd), a.answer.buf[a.answer.w:])
	switch {
	case err == syscall.EAGAIN: //nolint:errorlint // a system call returns it as it is
		return false
	case err != nil:
		a.err, a.failed = err, "read"
	case n == 0:
		a.err = io.EOF
	default:
		a.answer.w += n
	}
	a.stage = finished
	return true
}

// checkStale sends the request if nothing has come before.
func (a *reuseAttempt) checkStale(fd int) {
	if _, err := retried(rawRead, fd, a.one[:]); err != syscall.EAGAIN { //nolint:errorlint // as above
		a.stage = stale
		return
	}
	n, err := retried(rawWrite, fd, a.request)
	a.wrote = max(n, 0)
	switch {
	case err != nil && err != syscall.EAGAIN: //nolint:errorlint // as above
		a.stage, a.err, a.failed = finished, err, "write"
	case a.wrote < len(a.request):
		a.stage = partly
	default:
		a.stage = awaitingResponse
	}
}

// step is called by the runtime when something can be written. It reports whether
// there is nothing more to wait for.
func (w *writing) step(fd uintptr) bool {
	for w.n < len(w.data) {
		n, err := retried(rawWrite, int(fd), w.data[w.n:])
		if err == syscall.EAGAIN { //nolint:errorlint // as above
			w.waited = true
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

// retried makes a system call again that a signal has interrupted.
func retried(call func(fd int, p []byte) (int, error), fd int, p []byte) (int, error) {
	for {
		if n, err := call(fd, p); err != syscall.EINTR { //nolint:errorlint // as above
			return n, err
		}
	}
}
