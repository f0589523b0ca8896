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

// A Kind is a reason why Weir answers by itself.
type Kind uint8

// The kinds there are.
const (
	Internal            Kind = iota // 500: a fault of ours
	BadRequest                      // 400: not HTTP as it should be
	KeyMissing                      // 400: the request does not carry a key that its route counts by
	KeyInvalid                      // 400: the key is there, but ambiguous or not what it should be
	NotFound                        // 404: no route matches
	MethodNotAllowed                // 405: a route matches, but not with this method; see NotAllowed
	RequestTimeout                  // 408: the client was too slow
	BodyTooLarge                    // 413
	TargetTooLong                   // 414
	Misdirected                     // 421: the host is not served here
	HeaderTooLarge                  // 431
	ClientGone                      // 499: the client left; for the log only
	NotImplemented                  // 501
	BadGateway                      // 502: the upstream could not be reached or answered nonsense
	StoreUnavailable                // 503: it could not be decided whether the request may pass; see Unavailable
	NoUpstream                      // 503: no target of the upstream is fit to be asked
	Draining                        // 503: this proxy is about to stop
	GatewayTimeout                  // 504: the upstream did not answer in time
	Loop                            // 508: the request has been here before
	Forbidden                       // 403: the client is not wanted
	Crowded                         // 503: there is no memory for one more body
	ExpectationFailed               // 417: more is expected than 100-continue
	VersionNotSupported             // 505: HTTP, but not a version that is known here
)

// Status is the status of the answers of kind k.
func (k Kind) Status() int {
	switch k {
	case BadRequest, KeyMissing, KeyInvalid:
		return http.StatusBadRequest
	case Forbidden:
		return http.StatusForbidden
	case NotFound:
		return http.StatusNotFound
	case MethodNotAllowed:
		return http.StatusMethodNotAllowed
	case RequestTimeout:
		return http.StatusRequestTimeout
	case BodyTooLarge:
		return http.StatusRequestEntityTooLarge
	case TargetTooLong:
		return http.StatusRequestURITooLong
	case Misdirected:
		return http.StatusMisdirectedRequest
	case HeaderTooLarge:
		return http.StatusRequestHeaderFieldsTooLarge
	case ClientGone:
		return 499 // nobody is there to read it
	case NotImplemented:
		return http.StatusNotImplemented
	case BadGateway:
		return http.StatusBadGateway
	case StoreUnavailable, NoUpstream, Draining, Crowded:
		return http.StatusServiceUnavailable
	case ExpectationFailed:
		return http.StatusExpectationFailed
	case VersionNotSupported:
		return http.StatusHTTPVersionNotSupported
	case GatewayTimeout:
		return http.StatusGatewayTimeout
	case Loop:
		return http.StatusLoopDetected
	}
	return http.StatusInternalServerError
}

// Of is the kind of problem that err is. Errors of packages that this one does
// not know are Internal; who knows better picks the Kind.
func Of(err error) Kind {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, limiter.ErrUnavailable):
		return StoreUnavailable
	case errors.Is(err, limiter.ErrCost):
		return BadRequest
	case errors.Is(err, context.Canceled):
		return ClientGone
	case errors.As(err, &tooLarge):
		return BodyTooLarge
	}
	return Internal
}

const contentProblem = "application/problem+json"

// appendProblem begins the body of an answer (RFC 9457): its type, title and status.
func appendProblem(b []byte, kind, title string, status int) []byte {
	b = append(append(b, `{"type":"`...), withinJSON(kind)...)
	b = append(append(b, `","title":"`...), withinJSON(title)...)
	return strconv.AppendInt(append(b, `","status":`...), int64(status), 10)
}

// appendID appends the member that names the request, unless it has no name.
func appendID(b []byte, id string) []byte {
	if id == "" {
		return b
	}
	b = appendWithinJSON(append(b, `,"request_id":"`...), id)
	return append(b, '"')
}

// finish is the answer that was made in m, with the fields that every one has.
func (m *Memory) finish(status int, contentType string) Answer {
	m.fields = append(m.fields,
		Field{"Content-Type", contentType},
		Field{"Content-Length", m.number(int64(len(m.body)))},
		Field{"Cache-Control", "no-store"})
	return Answer{Status: status, Fields: m.fields, Body: m.body}
}

// Problem is the answer to a request that Weir cannot or will not forward.
// Detail is for the client to read and may be empty; so may requestID.
func Problem(kind Kind, detail, requestID string) Answer {
	return kind.problem(detail, requestID)
}

// NotAllowed is a 405 that lists the methods which would be allowed.
func NotAllowed(allow []string, requestID string) Answer {
	return MethodNotAllowed.problem("", requestID, Field{"Allow", strings.Join(allow, ", ")})
}

// Unavailable is a Problem of kind StoreUnavailable, NoUpstream, Draining or Crowded
// with a Retry-After of retry, rounded up to whole seconds, at least 1.
func Unavailable(kind Kind, retry time.Duration, detail, requestID string) Answer {
	after := strconv.FormatInt(max(seconds(retry), 1), 10)
	return kind.problem(detail, requestID, Field{"Retry-After", after})
}

// MaxForwards answers a request that may not be forwarded any further because its
// Max-Forwards is 0: OPTIONS with 200 and no body, anything else (TRACE, which
// Weir does not reflect) with 501.
func MaxForwards(method, requestID string) Answer {
	if method == http.MethodOptions {
		return Answer{Status: http.StatusOK, Fields: []Field{{"Content-Length", "0"}, {"Cache-Control", "no-store"}}}
	}
	return Problem(NotImplemented, "", requestID)
}

// problem words k, with the given fields and those that every problem has. A title is
// the same for all problems of one type; what has no type of its own is about:blank,
// titled like its status.
func (k Kind) problem(detail, requestID string, fields ...Field) Answer {
	kind, title := "about:blank", http.StatusText(k.Status())
	switch k {
	case StoreUnavailable, NoUpstream, Draining, Crowded:
		kind, title = typeReducedCapacity, titleReducedCapacity
	case ClientGone:
		title = "Client Closed Request"
	}
	m := Memory{fields: fields}
	m.body = appendProblem(m.body, kind, title, k.Status())
	if detail != "" {
		m.body = appendWithinJSON(append(m.body, `,"detail":"`...), detail)
		m.body = append(m.body, '"')
	}
	m.body = append(appendID(m.body, requestID), "}\n"...)
	return m.finish(k.Status(), contentProblem)
}
