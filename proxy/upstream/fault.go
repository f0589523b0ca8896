package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/weir-proxy/weir/proxy/http1"
)

// errAnswer says that the target's answer cannot be passed on.
var errAnswer = errors.New("answer not acceptable")

// A bodyError says that the client's body could not be read.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return "read request body: " + e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }

// fail ends the forwarding before the answer's header.
func (j *forwarding) fail(err error) {
	if why := j.body.err(); why != nil {
		err = &bodyError{why}
	}
	j.result.Kind, j.result.Err = j.kind(err), fmt.Errorf("ask upstream: %w", err)
}

// failBody ends the forwarding in the middle of the answer's body.
func (j *forwarding) failBody(err error) {
	j.result.Kind, j.result.Err = BodyCut, fmt.Errorf("read answer: %w", err)
	switch kind := j.kind(err); kind {
	case ClientGone, BadRequest, BodyTimeout, BodyTooLarge:
		j.result.Kind = kind
	}
}

// kind tells whose fault err is: first the client's, since a client that left
// or sent nonsense makes everything behind it fail too, then the target's.
func (j *forwarding) kind(err error) Kind {
	var inBody *bodyError
	switch {
	case errors.Is(j.in.Context().Err(), context.Canceled), j.result.Wrote && j.written != nil:
		return ClientGone
	case errors.As(err, &inBody):
		return bodyKind(inBody.err)
	case errors.Is(err, errNoTarget):
		return NoTarget
	case errors.Is(err, errQueueFull):
		return QueueFull
	}
	return targetKind(err)
}

// bodyKind tells what is wrong with a client's body.
func bodyKind(err error) Kind {
	var tooLarge *http.MaxBytesError
	var op *net.OpError
	switch {
	case errors.As(err, &tooLarge), errors.Is(err, http1.ErrBodyTooLarge):
		return BodyTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return BodyTimeout
	case errors.As(err, &op), errors.Is(err, http1.ErrCut):
		return ClientGone
	}
	return BadRequest
}

// targetKind tells how a target failed.
func targetKind(err error) Kind {
	var timeout net.Error
	late := errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
	switch {
	case unseen(err) && late:
		return ConnectTimeout
	case unseen(err):
		return Connect
	case late:
		return Timeout
	case closed(err):
		return Reset
	}
	return BadResponse
}

// closed reports whether the target ended the connection.
func closed(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, http1.ErrCut, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	for _, text := range []string{ // for which net/http has no names
		"server closed idle connection", "stream error:", "server sent GOAWAY", "client connection lost",
	} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}
