package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
)

// An http1Sender sends a request over HTTP/1.1. If the client uses HTTP/1.1, too,
// request and response are forwarded directly from the buffers of their connections.
type http1Sender struct {
	*forwarding
	transport   *http1Transport
	duplex      *http1.Duplex // nil if the client does not use HTTP/1.1
	body        *http1Source  // nil if duplex is set or there is no body
	keepTrailer func(http1.Field) bool
	call        *http1.Call
	aborter     *contextAborter // aborts the call when the context is done; nil if the call monitors its client, or stream aborts it
	stream      abortingSink
}

// An abortingSink is a Sink that knows when its client is gone. It then aborts what was set
// last; when AbortWith(nil) returns, nothing is being aborted any more.
type abortingSink interface{ AbortWith(a http1.Aborter) }

// sender implements transport.
func (h *http1Transport) sender(f *forwarding) sender {
	s := &f.http1
	s.forwarding, s.transport = f, h
	s.duplex, _ = f.to.(*http1.Duplex)
	if s.duplex == nil {
		s.call = h.client.NewCall(nil)
		s.call.Interim = s.relayInterim
		if s.stream, _ = f.to.(abortingSink); s.stream != nil {
			s.stream.AbortWith(s.call)
		} else {
			s.aborter = abortOnDone(f.ctx, s.call)
		}
	} else {
		s.call = h.client.NewCall(s.duplex.Exchange())
	}
	s.prepare()
	return s
}

// prepare sets up the parts of the request that are not forwarded as received.
func (s *http1Sender) prepare() {
	t := s.request
	switch {
	case s.upgrade != "":
		s.call.SetUpgrade(s.upgrade)
	case s.acceptTrailers:
		s.call.AcceptTrailers()
	}
	if t.Length == 0 {
		return
	}
	if t.Length < 0 {
		s.keepTrailer = trailerFilter(t)
	}
	if s.duplex == nil {
		s.setSource()
		return
	}
	s.call.KeepRequestTrailer = s.keepTrailer
	if t.BufferedBody != nil {
		s.call.SetBody(t.BufferedBody)
	}
}

// setSource sets the request body of a client that does not use HTTP/1.1.
func (s *http1Sender) setSource() {
	t := s.request
	s.body = &http1Source{Body: t.Body}
	from := http1.Source{Reader: s.body, Length: t.Length, Stop: s.body.Stop, Trailer: s.addTrailer, Expects: t.expectsContinue()}
	if t.BufferedBody != nil {
		from.Reader, from.Stop = bytes.NewReader(t.BufferedBody), nil
	}
	s.call.SetSource(from)
}

// addTrailer adds the trailer fields of the request. The body has been read.
func (s *http1Sender) addTrailer(h *http1.Head) {
	for f := range s.request.Body.Trailer().All() {
		if s.keepTrailer(f) {
			h.Add(f.Name, f.Value)
		}
	}
}

// relayInterim forwards a 1xx response.
func (s *http1Sender) relayInterim(r *http1.Response) {
	r.Fields.StripHopByHop()
	s.to.Informational(r.Status, &r.Fields)
}

// send implements sender.
func (s *http1Sender) send(m *backend, now time.Time) error {
	t := s.request
	host, base, mark := t.Host, m.basePath, ""
	if t.SetHost != "" {
		host = t.SetHost
	}
	if t.Path == "*" {
		base = ""
	}
	if t.ForceQuery || t.RawQuery != "" {
		mark = "?"
	}
	s.writeHeader(s.call.Begin(t.Method, host, base, t.Path, mark, t.RawQuery))
	err := s.transport.poolOf(m).SendAt(s.call, now)
	if err == nil {
		s.result.FirstByte = s.call.ResponseAfter(s.start)
	}
	return err
}

// canRetry implements sender.
func (s *http1Sender) canRetry(err error) bool {
	var fault *http1.CallError
	return errors.As(err, &fault) && fault.Retryable(s.request.Method) && (notSent(err) || connectionClosed(err)) && !s.body.isStopped()
}

// response implements sender.
func (s *http1Sender) response() (int, *http1.Fields, error) {
	from := &s.call.Response
	if from.Framing.Kind == http1.Chunked {
		if named := from.Fields.Values("Connection"); len(named) > 0 {
			s.call.KeepResponseTrailer = func(f http1.Field) bool { return !containsToken(named, f.Name) }
		}
	}
	return from.Status, &from.Fields, nil
}

// relay implements sender.
func (s *http1Sender) relay(to Sink) error {
	if s.duplex == nil {
		return s.call.RelayTo(to)
	}
	x := s.duplex.Exchange()
	x.Begin(s.call.Response.Status).AddFields(&s.call.Response.Fields)
	return x.Relay(s.call)
}

// switched implements sender.
func (s *http1Sender) switched() (net.Conn, []byte) {
	c, unread, _ := s.call.UpgradedConn()
	return c, unread
}

// release implements sender.
func (s *http1Sender) release() {
	if s.aborter != nil {
		s.aborter.end()
	}
	if s.stream != nil {
		s.stream.AbortWith(nil)
	}
	s.call.Release()
	*s = http1Sender{}
}

// A contextAborter aborts a call when a context is done.
type contextAborter struct {
	stop func() bool

	mu   sync.Mutex // guards call
	call *http1.Call
}

func abortOnDone(ctx context.Context, c *http1.Call) *contextAborter {
	a := &contextAborter{call: c}
	a.stop = context.AfterFunc(ctx, a.abort)
	return a
}

func (a *contextAborter) abort() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.call != nil {
		a.call.Abort()
	}
}

// end must be called before the call is released.
func (a *contextAborter) end() {
	a.stop()
	a.mu.Lock() // waits for an abort that is in progress
	defer a.mu.Unlock()
	a.call = nil
}

// An http1Source is the request body of a client that does not use HTTP/1.1.
type http1Source struct {
	Body
	stopped atomic.Bool
}

// Read reads the body. After Stop the error is ErrBodyReadCanceled, so that it is not
// attributed to the client.
func (h *http1Source) Read(p []byte) (int, error) {
	n, err := h.Body.Read(p)
	if err != nil && err != io.EOF && h.stopped.Load() {
		err = http1.ErrBodyReadCanceled
	}
	return n, err
}

// Stop makes a pending read return, and prevents retries.
func (h *http1Source) Stop() {
	h.stopped.Store(true)
	h.Body.Stop()
}

// isStopped reports whether Stop was called.
func (h *http1Source) isStopped() bool { return h != nil && h.stopped.Load() }
