package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/http1"
)

// Direct reports whether requests over HTTP/1.1 can be forwarded by ForwardHTTP1.
func (p *Pool) Direct() bool { return p.http1() != nil }

// http1 is the connections of the pool, nil if they do not speak HTTP/1.1.
func (p *Pool) http1() *overHTTP1 {
	o, _ := p.carrier().roundTripper.(*overHTTP1)
	return o
}

// ForwardHTTP1 is Forward from HTTP/1.1 to HTTP/1.1, on the goroutine of x. A body
// that was read before is content; nil if it was not. When Result says that something
// was written and Kind is not OK, the connection is cut already.
func (p *Pool) ForwardHTTP1(ctx context.Context, x *http1.Exchange, content []byte, t *Request) Result {
	if kind, err := p.refuses(x.Method(), &x.Fields, t); err != nil {
		return Result{Kind: kind, Err: err}
	}
	over := p.http1()
	d, ok := over.directs.Get().(*direct)
	if !ok {
		d = new(direct)
		d.told.to = d
	}
	d.pool, d.trip, d.began = p, t, time.Now()
	d.over, d.x, d.content = over, x, content
	d.call = over.client.NewCall(x)
	defer d.end()
	d.prepare()
	if err := d.do(ctx, d); err != nil {
		d.fail(ctx, err)
		return d.result
	}
	d.result.FirstByte = time.Since(d.began)
	d.answer()
	return d.result
}

// end gives up what d holds, and d itself for another request.
func (d *direct) end() {
	over := d.over
	d.leave()
	d.call.Release()
	clear(d.header.set)
	set, told := d.header.set[:0], d.told
	*d = direct{}
	d.header.set, d.told = set, told
	over.directs.Put(d)
}

// A direct is one request on its way from HTTP/1.1 to HTTP/1.1, and its sender.
type direct struct {
	course
	over    *overHTTP1
	x       *http1.Exchange
	call    *http1.Call
	content []byte
	header  answerHeader // of the answer
	head    *http1.Head  // of the request
	told    fieldWriter  // of who is asking
	words   words
	via     string
	forward int    // Max-Forwards, -1 for none
	upgrade string // what it may become
}

// prepare decides what is not sent on as it came.
func (d *direct) prepare() {
	x := d.x
	d.words = said(&x.Fields, d.trip)
	d.via = d.pool.via(d.trip)
	d.forward = maxForwards(x.Method(), &x.Fields)
	d.upgrade = d.upgrades()
	if b := x.Body(); b != nil {
		if b.Length() < 0 {
			d.call.KeepTrailer = keeper(d.trip, x.Fields.Values("Trailer"), x.Fields.Values("Connection"))
		}
		if d.content != nil {
			d.call.Content(d.content)
		}
	}
	switch {
	case d.upgrade != "":
		d.call.Upgrade(d.upgrade)
	case x.Minor == 1 && has(x.Fields.Values("Te"), "trailers"):
		d.call.AcceptTrailers()
	}
}

// has reports whether one of the lines has this element.
func has(lines []string, element string) bool {
	return len(lines) > 0 && httpguts.HeaderValuesContainsToken(lines, element)
}

// keeper tells which trailer fields of the request are sent on: not those that were
// not announced, as RFC 9110 6.5.1 allows, whose names are kept for the header (see
// mayFollow), or that Connection has named.
func keeper(t *Request, announced, named []string) func(http1.Field) bool {
	return func(f http1.Field) bool {
		name := http.CanonicalHeaderKey(f.Name)
		return mayFollow(name, t) && has(announced, f.Name) && !has(named, f.Name)
	}
}

// upgrades is what the request may become, "" for nothing. Only WebSocket where it is
// allowed: a GET without a body (RFC 6455 section 4.1). Anything else, h2c above all,
// would open a way to the target that nobody limits.
func (d *direct) upgrades() string {
	x := d.x
	if !d.trip.WebSocket || x.Minor == 0 || x.Method() != http.MethodGet || x.Body() != nil {
		return ""
	}
	wish := x.Fields.Values("Upgrade")
	if len(wish) == 1 && strings.EqualFold(wish[0], "websocket") && has(x.Fields.Values("Connection"), "upgrade") {
		return wish[0]
	}
	return ""
}

// send implements sender.
func (d *direct) send(m *backend) error {
	x, t := d.x, d.trip
	base, mark := m.base, ""
	if t.Path == "*" {
		base = ""
	}
	if _, asked := x.RawQuery(); asked || t.RawQuery != "" {
		mark = "?"
	}
	head := d.call.Begin(x.Method(), cmp.Or(t.SetHost, t.Host), base, t.Path, mark, t.RawQuery)
	d.head = head
	setForwarded(&d.words, t, &d.told)
	x.Fields.Strip()
	x.Fields.DropFunc(d.drops)
	head.AddFields(&x.Fields)
	if t.Set["Via"] == nil {
		head.Add("Via", d.via)
	}
	if d.forward > 0 && t.Set["Max-Forwards"] == nil {
		head.Add("Max-Forwards", strconv.Itoa(d.forward-1))
	}
	for name, values := range t.Set {
		for _, value := range values {
			head.Add(name, value)
		}
	}
	return d.over.of(m).Send(d.call)
}

// addField implements fieldAdder.
func (d *direct) addField(name string, value []byte) {
	if d.trip.Set[name] == nil {
		d.head.AddBytes(name, value)
	}
}

// drops reports whether a field of the request is not sent on as it came. It is
// disowned, and quicker for what most fields are called.
func (d *direct) drops(f http1.Field) bool {
	if f.ID == http1.MaxForwards && d.forward > 0 {
		return true
	}
	if len(d.trip.Set) == 0 {
		switch f.ID {
		case http1.Forwarded, http1.XForwardedFor, http1.XForwardedHost, http1.XForwardedProto, http1.XRealIP, http1.HTTP2Settings, http1.Proxy:
			return true
		case http1.XRequestID:
			return d.trip.RequestID != ""
		case http1.Other:
			if isHyphenated(f.Name) {
				const own = "X-Forwarded-"
				return !d.trip.TrustedPeer && len(f.Name) >= len(own) && strings.EqualFold(f.Name[:len(own)], own)
			}
		default:
			return false
		}
	}
	return disowned(http.CanonicalHeaderKey(f.Name), d.trip)
}

// repeatable implements sender.
func (d *direct) repeatable(err error) bool {
	var fault *http1.Fault
	return errors.As(err, &fault) && fault.Repeatable(d.x.Method()) && (unseen(err) || closed(err))
}

// answer sends the answer back.
func (d *direct) answer() {
	x, from := d.x, &d.call.Response
	d.result.Status = from.Status
	if from.Framing.Kind == http1.Chunked {
		if named := from.Fields.Values("Connection"); len(named) > 0 {
			d.call.KeepAnswerTrailer = func(f http1.Field) bool { return !has(named, f.Name) }
		}
	}
	from.Fields.Strip()
	from.Fields.DropKnown(http1.AltSvc) // would lead clients round the proxy
	d.header.fields = &from.Fields
	if d.trip.OnHeader != nil {
		d.trip.OnHeader(from.Status, &d.header)
	}
	head := x.Begin(from.Status)
	head.AddFields(&from.Fields)
	for _, f := range d.header.set {
		head.Add(f.name, f.value)
	}
	if from.Status == http.StatusSwitchingProtocols {
		d.tunnel()
		return
	}
	if err := x.Relay(d.call); err != nil {
		d.lose(err)
	}
	d.result.Wrote = x.Begun()
}

// tunnel carries what is no HTTP any more, until its end.
func (d *direct) tunnel() {
	client, early, err := d.x.Switch(d.upgrade)
	d.result.Wrote = d.x.Begun()
	if err != nil {
		d.result.Kind, d.result.Err = ClientGone, fmt.Errorf("write answer: %w", err)
		return
	}
	target, unread, _ := d.call.Switched()
	http1.Tunnel(http1.Side{Conn: client, Unread: early}, http1.Side{Conn: target, Unread: unread})
}

// fail ends it before the answer's header.
func (d *direct) fail(ctx context.Context, err error) {
	d.result.Kind, d.result.Err = d.blame(ctx, err), fmt.Errorf("ask upstream: %w", err)
}

// lose ends it when the answer has begun, or was about to.
func (d *direct) lose(err error) {
	d.result.Wrote = d.x.Begun()
	var fault *http1.Fault
	switch {
	case errors.As(err, &fault):
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%w: %w", errIdle, err)
		}
		d.result.Kind, d.result.Err = BodyCut, err
		switch kind := d.blame(context.Background(), err); kind {
		case ClientGone, BadRequest, BodyTimeout, BodyTooLarge:
			d.result.Kind = kind
		}
	case !d.result.Wrote:
		d.result.Kind, d.result.Err = BadResponse, fmt.Errorf("%w: %w", errAnswer, err)
	default:
		d.result.Kind, d.result.Err = ClientGone, fmt.Errorf("write answer: %w", err)
	}
}

// blame tells whose fault err is.
func (d *direct) blame(ctx context.Context, err error) Kind {
	var fault *http1.Fault
	switch {
	case d.x.Left(), ctx.Err() != nil, errors.Is(err, http1.ErrAborted):
		return ClientGone
	case errors.As(err, &fault) && fault.Phase == http1.Uploading:
		return bodyKind(fault.Err)
	case errors.Is(err, http1.ErrOutgoing):
		return BadRequest
	case errors.Is(err, errNoTarget):
		return NoTarget
	case errors.Is(err, errQueueFull):
		return QueueFull
	}
	return targetKind(err)
}

// An answerHeader is a Header of an answer over HTTP/1.1.
type answerHeader struct {
	fields *http1.Fields
	set    []field
}

// A field is one line that the answer gets beside those of the upstream.
type field struct{ name, value string }

// Values are the upstream's lines and those that were set.
func (h *answerHeader) Values(name string) []string {
	values := h.fields.Values(name)
	for _, f := range h.set {
		if f.name == name {
			values = append(values, f.value)
		}
	}
	return values
}

func (h *answerHeader) Set(name, value string) {
	h.Del(name)
	h.Add(name, value)
}

func (h *answerHeader) Add(name, value string) { h.set = append(h.set, field{name, value}) }

func (h *answerHeader) Del(name string) {
	h.fields.Drop(name)
	h.set = slices.DeleteFunc(h.set, func(f field) bool { return f.name == name })
}
