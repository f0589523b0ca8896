package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"
)

// flushAfter is how long a piece of an answer of known length may wait for
// more; answers of unknown length and event streams never wait.
const flushAfter = 10 * time.Millisecond

// Errors that end a trip before any target is asked.
var (
	errTarget      = errors.New("request target cannot be forwarded")
	errHost        = errors.New("no host is asked for") // net/http would say the target's own
	errMethod      = errors.New("method CONNECT cannot be forwarded")
	errUpgrade     = errors.New("field Upgrade is not readable")
	errLoop        = errors.New("request has passed this proxy before")
	errMaxForwards = errors.New("Max-Forwards is 0")
	errAborted     = errors.New("forwarding aborted")
)

// Forward sends r where t says and the answer to w, streaming both ways: a
// client that leaves ends the upstream's work. It returns when the answer is
// whole or cannot become so, writes nothing when it fails before the answer's
// header, and never panics with http.ErrAbortHandler: the caller does that when
// Result says so. It is not to be used after w and r are done with.
func (p *Pool) Forward(w http.ResponseWriter, r *http.Request, t *Request) Result {
	if kind, err := p.refuses(r.Method, r.Header, t); err != nil {
		return Result{Kind: kind, Err: err}
	}
	j := &forwarding{ResponseWriter: w, in: r, course: course{pool: p, trip: t, began: time.Now()}}
	defer j.leave()
	if h := w.Header(); len(h) > 0 {
		j.ownFields = maps.Clone(h)
	}
	j.run()
	return j.result
}

// refuses tells requests apart that must not reach any target.
func (p *Pool) refuses(method string, said Fields, t *Request) (Kind, error) {
	switch {
	case method == http.MethodConnect:
		return BadRequest, errMethod
	case !forwardable(method, t):
		return BadRequest, errTarget
	case t.Host == "" && t.SetHost == "":
		return BadRequest, errHost
	case !readable(first(said, "Upgrade")):
		return BadRequest, errUpgrade
	case viaContains(said.Values("Via"), p.pseudonym):
		return Loop, errLoop
	case maxForwards(method, said) == 0:
		return MaxForwards, errMaxForwards
	}
	return OK, nil
}

// forwardable reports whether path and query make one target on a request
// line. HTTP/2 can carry blanks in it, which would end the target early.
func forwardable(method string, t *Request) bool {
	if t.Path != "*" || method != http.MethodOptions {
		if !strings.HasPrefix(t.Path, "/") || strings.HasPrefix(t.Path, "//") {
			return false
		}
	}
	return printable(t.Path) && printable(t.RawQuery)
}

// printable reports whether s holds neither blanks nor control characters.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// readable reports whether s is printable ASCII.
func readable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// A forwarding is one request on its way, and the ResponseWriter that httputil's
// proxy writes to.
type forwarding struct {
	http.ResponseWriter
	course
	in        *http.Request
	ownFields http.Header // fields that the caller had put into the response

	body              *requestBody // nil if the request has none
	answer            answerBody
	connectionOptions []string   // what the answer's Connection says, which httputil removes before it is received
	idle              *idleTimer // nil if the target may fall silent
	written           error      // what went wrong when writing to the client
}

// run goes there and back, and fills j.result.
func (j *forwarding) run() {
	proxy := httputil.ReverseProxy{
		Transport:      j,
		Rewrite:        j.rewrite,
		ModifyResponse: j.receive,
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { j.fail(err) },
		BufferPool:     j.pool.buffers,
		FlushInterval:  flushAfter,
		ErrorLog:       j.pool.silence, // everything it would say is in the result
	}
	aborted := j.serve(&proxy)
	switch {
	case j.result.Err != nil:
	case j.answer.err != nil:
		j.failBody(j.answer.err)
	case j.written != nil:
		j.result.Kind, j.result.Err = ClientGone, fmt.Errorf("write answer: %w", j.written)
	case aborted:
		j.result.Kind, j.result.Err = BodyCut, errAborted
	}
}

// serve runs proxy. The panic with which it reports an answer that was cut
// short ends here: the cause has been noted where it occurred.
func (j *forwarding) serve(proxy *httputil.ReverseProxy) (aborted bool) {
	defer func() {
		if v := recover(); v == http.ErrAbortHandler { //nolint:errorlint // a panic is no error that could be wrapped
			aborted = true
		} else if v != nil {
			panic(v)
		}
	}()
	in := j.in
	if j.pool.idle > 0 && j.pool.config.Protocol != HTTP1 {
		ctx, cancel := context.WithCancelCause(in.Context())
		defer cancel(nil)
		j.idle = newIdleTimer(j.pool.idle, cancel)
		in = in.WithContext(ctx)
	}
	proxy.ServeHTTP(j, in)
	return false
}
