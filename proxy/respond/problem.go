package respond

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// The statuses of Weir's own responses that net/http has no name for, or whose reason another name tells better.
const (
	KeyMissing       = http.StatusBadRequest         // the request lacks a key that its route counts by
	KeyInvalid       = http.StatusBadRequest         // the key is ambiguous or not valid
	StoreUnavailable = http.StatusServiceUnavailable // the limits could not be evaluated; see Unavailable
	ClientGone       = 499                           // the client has disconnected; for the log only
)

// StatusOf returns the status of the response to err. Errors that this package does not know are
// internal ones; callers that know better choose the status themselves.
func StatusOf(err error) int {
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case errors.Is(err, limiter.ErrUnavailable):
		return StoreUnavailable
	case errors.Is(err, limiter.ErrInvalidCost):
		return http.StatusBadRequest
	case errors.Is(err, context.Canceled):
		return ClientGone
	case tooLarge:
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusInternalServerError
}

const contentProblem = "application/problem+json"

// A problem is a type of problem details (RFC 9457), with its title and its status.
type problem struct {
	kind, title string
	status      int
}

// problemOf returns the problem of a status. Those without a type are about:blank, titled with the status text.
func problemOf(status int) problem {
	switch status {
	case http.StatusServiceUnavailable:
		return problem{typeReducedCapacity, titleReducedCapacity, status}
	case ClientGone:
		return problem{"about:blank", "Client Closed Request", status}
	}
	return problem{"about:blank", http.StatusText(status), status}
}

// append begins the body of a response with p.
func (p problem) append(b []byte) []byte {
	b = append(append(b, `{"type":"`...), escapeJSON(p.kind)...)
	b = append(append(b, `","title":"`...), escapeJSON(p.title)...)
	return strconv.AppendInt(append(b, `","status":`...), int64(p.status), 10)
}

// response returns p as a document, with additional fields. detail and requestID may be empty.
func (p problem) response(detail, requestID string, fields ...Field) Response {
	m := Buffer{fields: fields}
	m.body = p.append(m.body)
	if detail != "" {
		m.body = append(append(append(m.body, detailMember...), escapeJSON(detail)...), '"')
	}
	m.body = append(appendID(m.body, requestID), "}\n"...)
	return m.response(p.status, contentProblem)
}

// appendID appends the member with the request id, unless that is empty.
func appendID(b []byte, id string) []byte {
	if id == "" {
		return b
	}
	return append(append(append(b, `,"request_id":"`...), escapeJSON(id)...), '"')
}

// notCached is the Cache-Control of all responses by Weir itself except configured ones.
func notCached() Field { return Field{"Cache-Control", "no-store"} }

// response adds the fields that every response has and returns the response in b.
func (b *Buffer) response(status int, contentType string) Response {
	b.fields = append(b.fields, Field{"Content-Type", contentType},
		Field{"Content-Length", b.formatInt(int64(len(b.body)))}, notCached())
	return Response{Status: status, Fields: b.fields, Body: b.body}
}

// NotAllowed returns a 405 that lists the allowed methods.
func NotAllowed(allow []string, requestID string) Response {
	return Problem(http.StatusMethodNotAllowed, "", requestID, Field{"Allow", strings.Join(allow, ", ")})
}

// Unauthorized returns a 401 with a challenge (RFC 9110 section 11.6.1).
func Unauthorized(challenge, detail, requestID string) Response {
	return Problem(http.StatusUnauthorized, detail, requestID, Field{"WWW-Authenticate", challenge})
}

// Unavailable returns a Problem with Retry-After, rounded up to whole seconds, at least 1.
func Unavailable(status int, retry time.Duration, detail, requestID string) Response {
	return Problem(status, detail, requestID, retryAfterField(retry))
}

// UnderMaintenance returns the response to a request whose route an operator has taken out of service.
func UnderMaintenance(retry time.Duration, requestID string) Response {
	p := problem{"about:blank", "Under Maintenance", http.StatusServiceUnavailable}
	return p.response("", requestID, retryAfterField(retry))
}

func retryAfterField(retry time.Duration) Field {
	return Field{"Retry-After", strconv.FormatInt(max(seconds(retry), 1), 10)}
}

// MaxForwards returns the response to a request with Max-Forwards: 0: 200 without
// a body for OPTIONS, 501 for anything else (TRACE, which Weir does not support).
func MaxForwards(method, requestID string) Response {
	if method == http.MethodOptions {
		return Response{Status: http.StatusOK, Fields: []Field{{"Content-Length", "0"}, {"Cache-Control", "no-store"}}}
	}
	return Problem(http.StatusNotImplemented, "", requestID)
}

// Problem returns a problem document (RFC 9457) for a request that Weir does not forward, with additional fields.
// detail and requestID may be empty.
func Problem(status int, detail, requestID string, fields ...Field) Response {
	return problemOf(status).response(detail, requestID, fields...)
}
