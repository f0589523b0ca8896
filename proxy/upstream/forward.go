package upstream

import (
	"cmp"
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
	"time"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/http1"
)

// Errors of requests that are not sent to any target.
var (
	errTarget      = errors.New("request target cannot be forwarded")
	errHost        = errors.New("request has no host") // without it, net/http would send the host of the target
	errMethod      = errors.New("method CONNECT cannot be forwarded")
	errUpgrade     = errors.New("field Upgrade not valid")
	errLoop        = errors.New("request loop: Via names this proxy")
	errMaxForwards = errors.New("Max-Forwards is 0")
)

// Forward sends t to a target and its response to to. Both directions are streamed. If
// ctx is done, because the client is gone, the request to the target is aborted.
// Forward returns when the response is complete or has failed. If it fails before the
// head of the response, it has sent nothing. It does not use t after it has returned.
func (p *Pool) Forward(ctx context.Context, t *Request, to Sink) Result {
	if kind, err := p.checkRequest(t); err != nil {
		return Result{Kind: kind, Err: err}
	}
	f := p.begin(ctx, t, to)
	defer f.end()
	if err := p.sendWithRetries(f); err != nil {
		f.fail(err)
		return f.result
	}
	if f.result.FirstByte == 0 {
		f.result.FirstByte = time.Since(f.start)
	}
	if err := f.relayResponse(); err != nil {
		f.failMidResponse(err)
	}
	f.result.HeaderSent = to.Committed()
	return f.result
}

// checkRequest rejects requests that must not be sent to any target.
func (p *Pool) checkRequest(t *Request) (ResultKind, error) {
	switch {
	case t.Method == http.MethodConnect:
		return BadRequest, errMethod
	case !forwardable(t):
		return BadRequest, errTarget
	case t.Host == "" && t.SetHost == "":
		return BadRequest, errHost
	case !t.Fields.MayHave(1<<http1.Upgrade | 1<<http1.Via | 1<<http1.MaxForwards):
		return OK, nil
	case strings.ContainsFunc(firstValue(t.Fields, http1.Upgrade), func(r rune) bool { return r < ' ' || r > '~' }):
		return BadRequest, errUpgrade
	case t.Fields.Has(http1.Via) && viaContains(t.Fields.Values("Via"), p.config.Pseudonym):
		return LoopDetected, errLoop
	case maxForwards(t) == 0:
		return MaxForwards, errMaxForwards
	}
	return OK, nil
}

// forwardable reports whether path and query form a valid request target. A request
// over HTTP/2 can contain whitespace in them, which would end the target early in
// HTTP/1.1.
func forwardable(t *Request) bool {
	asterisk := t.Path == "*" && t.Method == http.MethodOptions
	origin := strings.HasPrefix(t.Path, "/") && !strings.HasPrefix(t.Path, "//")
	return (asterisk || origin) && printable(t.Path) && printable(t.RawQuery)
}

// printable reports whether s contains neither whitespace nor control characters.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// A forwarding is the state of one request that is being forwarded. It does not depend
// on the version of HTTP; see sender.
type forwarding struct {
	sender
	http1          http1Sender // used as the sender for HTTP/1.1
	pool           *Pool
	ctx            context.Context // of the request
	request        *Request
	to             Sink
	backend        *backend // counted as in flight there until releaseBackend
	start          time.Time
	result         Result
	trusted        forwardedFields // received from a trusted peer
	writer         fieldWriter     // writes the fields that describe the client
	maxForwards    int             // value of Max-Forwards, or -1
	upgrade        string          // the protocol to switch to, or ""
	acceptTrailers bool            // the client accepts trailer fields
}

// begin returns the forwarding of t.
func (p *Pool) begin(ctx context.Context, t *Request, to Sink) *forwarding {
	if t.forwarding == nil {
		t.forwarding = new(forwarding)
	}
	f := t.forwarding
	f.pool, f.ctx, f.request, f.to, f.start = p, ctx, t, to, t.Start
	if f.start.IsZero() {
		f.start = time.Now()
	}
	f.trusted, f.maxForwards = trustedForwarded(t), maxForwards(t)
	if t.Fields.MayHave(1<<http1.TE | 1<<http1.Upgrade) {
		f.acceptTrailers = t.Proto != "HTTP/1.0" && containsToken(t.Fields.Values("Te"), "trailers")
		f.upgrade = upgradeProtocol(t)
	}
	f.sender = p.transport().sender(f)
	return f
}

// end releases what f holds, and clears f for the next request.
func (f *forwarding) end() {
	f.release()
	f.releaseBackend()
	f.reset()
}

// reset makes f the forwarding of no request. It keeps the memory of the writer.
func (f *forwarding) reset() {
	*f = forwarding{writer: fieldWriter{buf: reuse.Memory(f.writer.buf)}}
}

// relayResponse sends the response to the client.
func (f *forwarding) relayResponse() error {
	status, fields, err := f.sender.response()
	if err != nil {
		return fmt.Errorf("%w: %w", errBadResponse, err)
	}
	f.result.Status = status
	fields.StripHopByHop()
	fields.DropKnown(http1.AltSvc) // would direct clients to bypass the proxy
	if f.request.OnHeader != nil {
		f.request.OnHeader(status, fields)
	}
	if status == http.StatusSwitchingProtocols {
		return f.tunnel(fields)
	}
	return f.relay(f.to)
}

// Outgoing is a request as it would be sent to a target.
type Outgoing struct {
	Method string
	Host   string
	Target string // the request target
	// Header has all fields except Host and those for the framing.
	Header map[string][]string
	// Targets are the URLs of the targets that could be selected. It is empty for the
	// built-in echo.
	Targets []string
}

// Outgoing returns what Forward would send for a request. It sends nothing. If Forward
// would reject the request before selecting a target, Outgoing returns the same kind
// and error.
func (p *Pool) Outgoing(t *Request) (o Outgoing, kind ResultKind, err error) {
	if kind, err := p.checkRequest(t); err != nil {
		return Outgoing{}, kind, err
	}
	o = Outgoing{Method: t.Method, Host: cmp.Or(t.SetHost, t.Host), Target: t.Path, Header: map[string][]string{}}
	if t.RawQuery != "" {
		o.Target += "?" + t.RawQuery
	}
	f := forwarding{pool: p, request: t, trusted: trustedForwarded(t), maxForwards: maxForwards(t)}
	f.writeHeader(mapHeader(o.Header))
	for _, from := range p.config.Targets {
		o.Targets = append(o.Targets, from.URL.Redacted())
	}
	return o, OK, nil
}

// A mapHeader is a net/http header.
type mapHeader map[string][]string

// AddFields implements header.
func (h mapHeader) AddFields(f *http1.Fields) {
	for line := range f.All() {
		if line.ID != http1.Host {
			h.Add(line.Name, line.Value)
		}
	}
}

// Add implements header.
func (h mapHeader) Add(name, value string) {
	name = strings.Clone(http.CanonicalHeaderKey(name))
	h[name] = append(h[name], strings.Clone(value))
}

// AddKnown implements header.
func (h mapHeader) AddKnown(name http1.Name, value []byte) { h.AddKnownString(name, string(value)) }

// AddKnownString implements header.
func (h mapHeader) AddKnownString(name http1.Name, value string) { h.Add(name.String(), value) }

// A sender sends one request to a target and returns the response. There is one for
// each HTTP version; see transport.
type sender interface {
	// send sends the request and returns when the head of the response has arrived.
	// now is the current time. send may set forwarding.result.FirstByte; otherwise that
	// is the time until send has returned.
	send(m *backend, now time.Time) error
	// canRetry reports whether the request may be sent again after it has failed with
	// err.
	canRetry(err error) bool
	// response returns the head of the final response, or an error if it cannot be
	// forwarded.
	response() (status int, f *http1.Fields, err error)
	// relay sends the response to the client, with the fields that response returned.
	relay(to Sink) error
	// release releases the resources of the sender. The request body is not read any
	// more.
	release()
}

// sendWithRetries acquires a backend, sends the request and records the outcome. It
// retries with another backend if the pool has retries left, the retry budget allows
// it, and sending the request again is safe; see sender.canRetry. The last backend is
// in use until releaseBackend.
func (p *Pool) sendWithRetries(f *forwarding) error {
	var seen error // the error of a backend that may have received the request, which says more than that of the last
	var tried []*backend
	now := f.start
	if p.config.Retries > 0 {
		p.group.deposit()
	}
	for {
		m, err := p.acquire(f.ctx, now, selection{f.request.HashBy, tried, f.request.Stripe})
		if err != nil {
			return cmp.Or(seen, err)
		}
		f.backend, f.result.Target = m, m.name
		if p.config.MaxConnections > 0 {
			now = time.Now() // acquire may have waited
		}
		err = f.send(m, now)
		p.recordOutcome(f, err)
		if err == nil {
			return nil
		}
		f.releaseBackend()
		if !notSent(err) {
			seen = err
		}
		if f.result.Retries >= p.config.Retries || f.ctx.Err() != nil || !f.canRetry(err) || !p.group.withdraw() {
			return cmp.Or(seen, err)
		}
		f.result.Retries++
		tried, now = append(tried, m), time.Now()
	}
}

// notSent reports whether err means that no connection was established, so that the
// target has received nothing.
func notSent(err error) bool {
	var fault *http1.CallError
	return errors.As(err, &fault) && fault.Phase < http1.SendingRequest
}

// recordOutcome records whether the backend could be reached, for passive health
// checks. If the client is gone, nothing is recorded.
func (p *Pool) recordOutcome(f *forwarding, err error) {
	switch {
	case !p.ejects():
	case err == nil:
		p.group.recordConnect(f.backend, &p.config.Health, true)
	case notSent(err) && f.ctx.Err() == nil && !errors.Is(err, http1.ErrAborted):
		p.group.recordConnect(f.backend, &p.config.Health, false)
	}
}

// releaseBackend releases the backend. It may be called more than once.
func (f *forwarding) releaseBackend() {
	if f.backend != nil {
		f.pool.group.release(f.backend, f.request.Stripe)
		f.backend = nil
	}
}

// The retry budget prevents retries from amplifying an outage: in the long run at most a
// fifth of the requests are retried.
const (
	retryRatio   = 0.2 // retries per request
	retryReserve = 10  // initial and maximum number of retries saved up
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
	var fault *http1.CallError
	f.result.Sent = f.result.Target != "" && !errors.Is(err, http1.ErrOutgoing) && (!errors.As(err, &fault) || fault.RequestSent)
}

// failMidResponse sets the result of a request that failed during or after the head of
// the response.
func (f *forwarding) failMidResponse(err error) {
	var fault *http1.CallError
	switch {
	case errors.As(err, &fault), errors.Is(err, errReadResponse), errors.Is(err, errRequestBody):
		if fault != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%w: %w", errBodyTimeout, err)
		}
		f.result.Kind, f.result.Err = ResponseTruncated, err
		if kind := f.kindOf(err); kind.IsByClient() {
			f.result.Kind = kind
		}
	case !f.to.Committed():
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
	switch {
	case errors.As(err, new(*http.MaxBytesError)), errors.Is(err, http1.ErrBodyTooLarge):
		return BodyTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return BodyTimeout
	case errors.As(err, new(*net.OpError)), errors.Is(err, http1.ErrTruncated):
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
	texts := []string{"stream error:", "GOAWAY", "http2: client conn"} // net/http exports no values for these
	return slices.ContainsFunc(ends, func(end error) bool { return errors.Is(err, end) }) ||
		slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
}
