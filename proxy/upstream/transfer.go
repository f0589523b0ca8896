package upstream

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A transfer is one request as net/http knows them, its answer, and the answer's
// body, over HTTP/1.1.
type transfer struct {
	request *http.Request
	answer  *http.Response
	unwatch func() bool

	mu   sync.Mutex // guards call against abort
	call *http1.Call
}

// abort ends what the transfer waits for.
func (t *transfer) abort() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.call != nil {
		t.call.Abort()
	}
}

// release gives the connection up.
func (t *transfer) release() {
	t.unwatch()
	t.mu.Lock()
	call := t.call
	t.call = nil
	t.mu.Unlock()
	if call != nil {
		call.Release()
	}
}

// begin makes the head of the request.
func (t *transfer) begin() {
	r := t.request
	query := ""
	if r.URL.ForceQuery || r.URL.RawQuery != "" {
		query = "?"
	}
	head := t.call.Begin(r.Method, r.Host, r.URL.Opaque, query, r.URL.RawQuery)
	for name, values := range r.Header {
		switch name {
		case "Host", "Connection", "Te", "Trailer", "Content-Length", "Transfer-Encoding":
			continue
		case "Expect":
			if r.Body == nil {
				continue
			}
		}
		for _, value := range values {
			head.Add(name, value)
		}
	}
	if r.Header["Te"] != nil {
		t.call.AcceptTrailers()
	}
	if r.Body != nil && r.Body != http.NoBody {
		t.call.Source(http1.Source{
			Reader: r.Body, Length: r.ContentLength, Stop: func() { stop(r.Body) }, Trailer: t.trailer,
			Expects: r.Header["Expect"] != nil,
		})
	}
	t.call.Interim = t.interim
}

// trailer adds the trailer of the request, which is known when its body has been read.
func (t *transfer) trailer(h *http1.Head) {
	for name, values := range t.request.Trailer {
		for _, value := range values {
			h.Add(name, value)
		}
	}
}

// interim passes a 1xx answer to whoever made the request.
func (t *transfer) interim(r *http1.Response) {
	trace := httptrace.ContextClientTrace(t.request.Context())
	if trace != nil && trace.Got1xxResponse != nil {
		_ = trace.Got1xxResponse(r.Status, textproto.MIMEHeader(headerOf(&r.Fields))) // the final answer meets the same fate
	}
}

// headerOf copies fields, whose strings do not outlive the answer.
func headerOf(f *http1.Fields) http.Header {
	h := http.Header{}
	for line := range f.All() {
		name := http.CanonicalHeaderKey(strings.Clone(line.Name))
		h[name] = append(h[name], strings.Clone(line.Value))
	}
	return h
}

// response is the answer as net/http knows them.
func (t *transfer) response() *http.Response {
	from := &t.call.Response
	res := &http.Response{
		StatusCode: from.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: from.Minor,
		Header: headerOf(&from.Fields), Body: t, ContentLength: from.Framing.Length, Request: t.request,
	}
	for _, line := range res.Header["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			if res.Trailer == nil {
				res.Trailer = http.Header{}
			}
			res.Trailer[http.CanonicalHeaderKey(strings.TrimSpace(name))] = nil
		}
	}
	delete(res.Header, "Trailer")
	delete(res.Header, "Transfer-Encoding")
	t.answer = res
	return res
}

// Read reads the body of the answer. With its end the trailer has come.
func (t *transfer) Read(p []byte) (int, error) {
	if t.call == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := t.call.Body().Read(p)
	if errors.Is(err, io.EOF) {
		for name, values := range headerOf(t.call.Body().Trailer()) {
			if t.answer.Trailer == nil {
				t.answer.Trailer = http.Header{}
			}
			t.answer.Trailer[name] = values
		}
	}
	return n, err
}

// Close ends the transfer. Its connection can be used again if the answer was read
// to its end.
func (t *transfer) Close() error {
	t.release()
	return nil
}

// A stopper is a body of which reading can be ended by others than its reader.
type stopper interface{ Stop() }

// stop ends reading of b, as nobody wants more of it.
func stop(b io.Closer) {
	if s, ok := b.(stopper); ok {
		s.Stop()
		return
	}
	_ = b.Close() // what it was good for is over
}
