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

// Errors that end a request before any target is asked.
var (
	errTarget      = errors.New("request target cannot be forwarded")
	errHost        = errors.New("no host is asked for") // net/http would say the target's own
	errMethod      = errors.New("method CONNECT cannot be forwarded")
	errUpgrade     = errors.New("field Upgrade is not readable")
	errLoop        = errors.New("request has passed this proxy before")
	errMaxForwards = errors.New("Max-Forwards is 0")
)

// Forward sends t to a target and the response to to, streaming both ways: when ctx is
// done, which means that the client has left, the upstream's work ends. It returns when
// the response is whole or cannot become so, and has sent nothing when it fails before
// the response's header. Nothing of t is used afterwards.
func (p *Pool) Forward(ctx context.Context, t *Request, to Sink) Result {
	if kind, err := p.checkRequest(t); err != nil {
		return Result{Kind: kind, Err: err}
	}
	f := p.newForwarding(ctx, t, to)
	defer f.end()
	if err := p.sendWithRetries(f); err != nil {
		f.fail(err)
		return f.result
	}
	f.result.FirstByte = time.Since(f.start)
	if err := f.relayResponse(); err != nil {
		f.failMidResponse(err)
	}
	f.result.HeaderSent = f.result.HeaderSent || to.Committed()
	return f.result
}

// checkRequest tells requests apart that must not reach any target.
func (p *Pool) checkRequest(t *Request) (ResultKind, error) {
	switch {
	case t.Method == http.MethodConnect:
		return BadRequest, errMethod
	case !forwardable(t):
		return BadRequest, errTarget
	case t.Host == "" && t.SetHost == "":
		return BadRequest, errHost
	case !printableASCII(firstValue(t.Fields, http1.Upgrade)):
		return BadRequest, errUpgrade
	case t.Fields.Has(http1.Via) && viaContains(t.Fields.Values("Via"), p.pseudonym):
		return LoopDetected, errLoop
	case maxForwards(t) == 0:
		return MaxForwards, errMaxForwards
	}
	return OK, nil
}

// forwardable reports whether path and query make one target on a request line.
// HTTP/2 can carry whitespace in it, which would end the target early.
func forwardable(t *Request) bool {
	if t.Path != "*" || t.Method != http.MethodOptions {
		if !strings.HasPrefix(t.Path, "/") || strings.HasPrefix(t.Path, "//") {
			return false
		}
	}
	return printable(t.Path) && printable(t.RawQuery)
}

// printable reports whether s holds neither whitespace nor control characters.
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

// A forwarding is one request on its way, and the response on its way back. It is
// what all senders share.
type forwarding struct {
	sender
	http1          http1Sender // the sender, where that is HTTP/1.1
	pool           *Pool
	ctx            context.Context // of the request
	request        *Request
	to             Sink
	backend        *backend // who is busy with it
	start          time.Time
	result         Result
	trusted        forwardedFields // of a trusted peer
	writer         fieldWriter     // of who is asking
	via            string
	maxForwards    int    // Max-Forwards, -1 for none
	upgrade        string // what the connection may become, "" for nothing
	acceptTrailers bool   // the client takes trailer fields
}

// newForwarding begins one.
func (p *Pool) newForwarding(ctx context.Context, t *Request, to Sink) *forwarding {
	f, ok := p.forwardingPool.Get().(*forwarding)
	if !ok {
		f = new(forwarding)
	}
	f.pool, f.ctx, f.request, f.to, f.start = p, ctx, t, to, t.Start
	if f.start.IsZero() {
		f.start = time.Now()
	}
	f.trusted, f.via, f.maxForwards = trustedForwarded(t), p.via(t), maxForwards(t)
	f.acceptTrailers = t.Proto != "HTTP/1.0" && t.Fields.Has(http1.TE) && containsToken(t.Fields.Values("Te"), "trailers")
	f.upgrade = upgradeProtocol(t)
	f.sender = p.transport().sender(f)
	return f
}

// end gives up what f holds, and f for another request.
func (f *forwarding) end() {
	p := f.pool
	f.release()
	f.releaseBackend()
	*f = forwarding{writer: fieldWriter{buf: f.writer.buf}}
	p.forwardingPool.Put(f)
}

// relayResponse sends the response back.
func (f *forwarding) relayResponse() error {
	status, fields, err := f.sender.response()
	if err != nil {
		return fmt.Errorf("%w: %w", errBadResponse, err)
	}
	f.result.Status = status
	if a, ok := f.to.(announcer); ok {
		a.announce(announcedTrailers(fields))
	}
	fields.StripHopByHop()
	fields.DropKnown(http1.AltSvc) // would lead clients round the proxy
	if f.request.OnHeader != nil {
		f.request.OnHeader(status, fields)
	}
	if status == http.StatusSwitchingProtocols {
		return f.tunnel(fields)
	}
	return f.relay(f.to)
}

// tunnel carries what is no HTTP any more, until its end.
func (f *forwarding) tunnel(fields *http1.Fields) error {
	client, early, err := f.to.SwitchProtocols(f.upgrade, fields)
	if err != nil {
		return err
	}
	target, unread := f.switched()
	http1.Tunnel(http1.TunnelEnd{Conn: client, Unread: early}, http1.TunnelEnd{Conn: target, Unread: unread})
	return nil
}

// upgradeProtocol is what the request may become, "" for nothing. Only WebSocket where it is
// allowed: a GET without a body (RFC 6455 section 4.1). Anything else, h2c above all,
// would open a way to the target that nobody limits.
func upgradeProtocol(t *Request) string {
	if !t.WebSocket || t.Proto != "HTTP/1.1" || t.Method != http.MethodGet || t.Length != 0 {
		return ""
	}
	wish := t.Fields.Values("Upgrade")
	if len(wish) == 1 && strings.EqualFold(wish[0], "websocket") && containsToken(t.Fields.Values("Connection"), "upgrade") {
		return wish[0]
	}
	return ""
}
