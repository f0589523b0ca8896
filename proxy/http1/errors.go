package http1

import (
	"errors"
)

// An Error is the reason for which a message is refused. Status is the response status
// if the message was a request; an invalid response of an upstream always leads to 502.
// All errors of this type are variables of this package, so that they can be counted by
// identity. Each of them ends the connection.
type Error struct {
	Status int
	text   string
}

func (e *Error) Error() string { return e.text }

// Errors in a received request or response. The package comment lists the RFC sections.
var (
	ErrRequestLine             = &Error{400, "request line not valid"}
	ErrMethod                  = &Error{400, "method not valid"}
	ErrConnect                 = &Error{405, "method CONNECT not allowed"}
	ErrTarget                  = &Error{400, "request target not valid"}
	ErrTargetTooLong           = &Error{414, "request target too long"}
	ErrVersion                 = &Error{400, "HTTP version not valid"}
	ErrMajorVersion            = &Error{505, "HTTP version not supported"}
	ErrStatusLine              = &Error{502, "status line not valid"}
	ErrLineEnd                 = &Error{400, "line does not end with CRLF"}
	ErrFoldedLine              = &Error{400, "folded field line"}
	ErrFieldName               = &Error{400, "field name not valid"}
	ErrFieldValue              = &Error{400, "field value not valid"}
	ErrTooLarge                = &Error{431, "header section too large"}
	ErrTooManyFields           = &Error{431, "too many fields"}
	ErrHost                    = &Error{400, "Host not valid"}
	ErrHostMissing             = &Error{400, "Host missing"}
	ErrHostRepeated            = &Error{400, "Host given more than once"}
	ErrContentLength           = &Error{400, "Content-Length not valid"}
	ErrContentLengthRepeated   = &Error{400, "Content-Length given more than once"}
	ErrLengthAndTransferCoding = &Error{400, "both Content-Length and Transfer-Encoding"}
	ErrTransferCoding          = &Error{501, "transfer coding not supported"}
	ErrTransferCodingHTTP10    = &Error{400, "Transfer-Encoding in HTTP/1.0"}
	ErrExpectation             = &Error{417, "expectation not supported"}
	ErrChunk                   = &Error{400, "chunk not valid"}
	ErrChunkLine               = &Error{400, "chunk line too long"}
	ErrChunkOverhead           = &Error{400, "too little data for so many chunk lines"}
	ErrTrailer                 = &Error{400, "trailer section not valid"}
)

// Errors on a connection to an upstream, or in a message that is to be sent.
var (
	ErrTooManyInterim    = &Error{502, "too many bytes of interim responses"}
	ErrUnexpectedUpgrade = &Error{502, "101 for a protocol that was not requested"}
	ErrTruncated         = &Error{502, "message truncated"}
	ErrOutgoing          = &Error{500, "outgoing field not valid"}
	ErrBodyTooLong       = &Error{500, "body longer than its Content-Length"}
	ErrBodyTooShort      = &Error{500, "body shorter than its Content-Length"}
	ErrResponseState     = &Error{500, "response already started"}
)

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
	phases := [...]string{"connect", "tls handshake", "send request", "read request body", "read response"}
	return phases[c.Phase] + ": " + c.Err.Error()
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
