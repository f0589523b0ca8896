package http1

import "errors"

// ErrAborted reports that Call.Abort was called.
var ErrAborted = errors.New("call aborted")

// A Phase is the part of a call that failed.
type Phase uint8

// The phases of a call.
const (
	Dialing             Phase = iota // no connection was established: nothing was sent
	Handshaking                      // the TLS handshake failed: nothing was sent
	SendingRequest                   // sending the request, or waiting for the head of the response
	ReadingRequestBody               // the request body could not be read from the client
	ReadingResponseBody              // the response body was cut short
)

// A CallError describes how a call has failed, so that the caller can decide whether to
// retry it.
type CallError struct {
	Phase           Phase
	Err             error
	Reused          bool // the connection had served another request before
	RequestSent     bool // the upstream may have received a part of the request
	ResponseStarted bool // a part of a response was read
	BodyConsumed    bool // a part of the request body was consumed and cannot be sent again
}

func (c *CallError) Error() string {
	return [...]string{"connect", "tls handshake", "send request", "read request body", "read response"}[c.Phase] + ": " + c.Err.Error()
}

// Unwrap returns the underlying error.
func (c *CallError) Unwrap() error { return c.Err }

// Retryable reports whether the same request may be sent again. That is so if the
// upstream has received no part of it, or if the method is idempotent and no part of a
// response has arrived (RFC 9112 section 9.3.1). In addition, the request body must
// still be available. A request that has timed out is not retryable, because the
// upstream is slow.
func (c *CallError) Retryable(method string) bool {
	switch {
	case c.BodyConsumed, c.ResponseStarted, errors.Is(c.Err, ErrAborted):
		return false
	case c.Phase < SendingRequest:
		return true
	}
	return c.Phase == SendingRequest && !timedOut(c.Err) && (!c.RequestSent || Idempotent(method))
}

// Idempotent reports whether the method is idempotent (RFC 9110 section 9.2.2).
func Idempotent(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY":
		return true
	}
	return false
}
