package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

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
	f.result.HeaderSent = f.result.HeaderSent || to.Committed()
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
	case !printableASCII(firstValue(t.Fields, http1.Upgrade)):
		return BadRequest, errUpgrade
	case t.Fields.Has(http1.Via) && viaContains(t.Fields.Values("Via"), p.pseudonym):
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
	if t.Path != "*" || t.Method != http.MethodOptions {
		if !strings.HasPrefix(t.Path, "/") || strings.HasPrefix(t.Path, "//") {
			return false
		}
	}
	return printable(t.Path) && printable(t.RawQuery)
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

// printableASCII reports whether s is printable ASCII.
func printableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
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
	if t.TrustedPeer {
		f.trusted = trustedForwarded(t.Fields)
	}
	f.maxForwards = maxForwards(t)
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
	*f = forwarding{writer: fieldWriter{buf: http1.RecycleBuffer(f.writer.buf)}}
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
