package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/weir-proxy/weir/proxy/http1"
)

// Errors that say what has failed, before its cause.
var (
	errBadResponse  = errors.New("response not valid")
	errRequestBody  = errors.New("read request body") // from the client
	errReadResponse = errors.New("read response")     // it was truncated
)

// fail sets the result of a request that failed before the head of the response.
func (f *forwarding) fail(err error) {
	f.result.Kind, f.result.Err = f.kindOf(err), fmt.Errorf("forward request: %w", err)
	f.result.Sent = f.result.Target != "" && !notSent(err)
}

// failMidResponse sets the result of a request that failed during or after the head of
// the response.
func (f *forwarding) failMidResponse(err error) {
	f.result.HeaderSent = f.to.Committed()
	var fault *http1.CallError
	switch {
	case errors.As(err, &fault), errors.Is(err, errReadResponse), errors.Is(err, errRequestBody):
		if fault != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%w: %w", errBodyTimeout, err)
		}
		f.result.Kind, f.result.Err = ResponseTruncated, err
		switch kind := f.kindOf(err); kind {
		case ClientGone, BadRequest, BodyTimeout, BodyTooLarge:
			f.result.Kind = kind
		}
	case !f.result.HeaderSent:
		if !errors.Is(err, errBadResponse) {
			err = fmt.Errorf("%w: %w", errBadResponse, err)
		}
		f.result.Kind, f.result.Err = BadResponse, err
	default:
		f.result.Kind, f.result.Err = ClientGone, fmt.Errorf("write response: %w", err)
	}
}

// kindOf classifies err. It checks errors of the client first, because a client that is
// gone or sends an invalid body causes errors at the target, too.
func (f *forwarding) kindOf(err error) ResultKind {
	var fault *http1.CallError
	switch {
	case f.clientGone(), errors.Is(err, http1.ErrAborted):
		return ClientGone
	case errors.Is(err, errRequestBody), errors.As(err, &fault) && fault.Phase == http1.ReadingRequestBody:
		return bodyKind(err)
	case errors.Is(err, http1.ErrOutgoing):
		return BadRequest
	case errors.Is(err, errNoTarget):
		return NoTarget
	case errors.Is(err, errQueueFull):
		return QueueFull
	}
	return targetKind(err)
}

// clientGone reports whether the client was found to be gone.
func (f *forwarding) clientGone() bool {
	if d, ok := f.to.(*http1.Duplex); ok && d.Exchange().ClientGone() {
		return true
	}
	return errors.Is(f.ctx.Err(), context.Canceled)
}

// bodyKind classifies an error of reading the client's body.
func bodyKind(err error) ResultKind {
	var tooLarge *http.MaxBytesError
	var op *net.OpError
	switch {
	case errors.As(err, &tooLarge), errors.Is(err, http1.ErrBodyTooLarge):
		return BodyTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return BodyTimeout
	case errors.As(err, &op), errors.Is(err, http1.ErrTruncated):
		return ClientGone
	}
	return BadRequest
}

// targetKind classifies an error of a target.
func targetKind(err error) ResultKind {
	var timeout net.Error
	late := errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
	switch {
	case notSent(err) && late:
		return ConnectTimeout
	case notSent(err):
		return ConnectFailed
	case late:
		return Timeout
	case connectionClosed(err):
		return ConnectionReset
	}
	return BadResponse
}

// connectionClosed reports whether the target closed the connection.
func connectionClosed(err error) bool {
	ends := []error{io.EOF, io.ErrUnexpectedEOF, http1.ErrTruncated, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE}
	texts := []string{"stream error:", "server sent GOAWAY", "client connection lost"} // net/http exports no values for these
	return slices.ContainsFunc(ends, func(end error) bool { return errors.Is(err, end) }) ||
		slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
}
