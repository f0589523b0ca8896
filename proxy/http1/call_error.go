package http1

import "errors"

// ErrAborted reports that Abort was called.
var ErrAborted = errors.New("call aborted")

// A Phase is where a call has failed.
type Phase uint8

// The phases of a call.
const (
	Dialing             Phase = iota // there is no connection: the upstream has seen nothing
	Handshaking                      // there is none either, since TLS failed
	SendingRequest                   // the request was being sent, or the head of its response awaited
	ReadingRequestBody               // the client's body could not be read
	ReadingResponseBody              // the body of the response was cut short
)

// A CallError says how a call has failed, so that its caller can decide whether it may
// be made again.
type CallError struct {
	Phase           Phase
	Err             error
	Reused          bool // the connection had carried another request before
	RequestSent     bool // some of the request may have been seen
	ResponseStarted bool // some of a response was read
	BodyConsumed    bool // some of the client's body was used up, which cannot be sent again
}

func (f *CallError) Error() string {
	return [...]string{"connect", "tls handshake", "send request", "read request body", "read answer"}[f.Phase] + ": " + f.Err.Error()
}

// Unwrap is the error below.
func (f *CallError) Unwrap() error { return f.Err }

// Retryable reports whether the same request can be made again: the upstream has
// not seen any of it, or it does no harm to make it twice and nothing came back;
// and none of the client's body is lost (RFC 9112 section 9.3.1). An upstream that
// is slow is not asked again.
func (f *CallError) Retryable(method string) bool {
	switch {
	case f.BodyConsumed, f.ResponseStarted, errors.Is(f.Err, ErrAborted):
		return false
	case f.Phase < SendingRequest:
		return true
	}
	return f.Phase == SendingRequest && !timedOut(f.Err) && (!f.RequestSent || Idempotent(method))
}

// Idempotent reports whether doing it twice is doing it once (RFC 9110 section
// 9.2.2).
func Idempotent(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY":
		return true
	}
	return false
}
