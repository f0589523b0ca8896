package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// receive looks at the header of the target's final answer before it is
// written. An error means that this answer cannot be passed on.
func (j *forwarding) receive(res *http.Response) error {
	j.result.FirstByte = time.Since(j.began)
	switch {
	case j.pool.config.Protocol == HTTP1 && res.ProtoMajor != 1:
		return fmt.Errorf("%w: %s over a connection of HTTP/1", errAnswer, res.Proto)
	case res.StatusCode < 100:
		return fmt.Errorf("%w: status %03d", errAnswer, res.StatusCode)
	case res.StatusCode == http.StatusSwitchingProtocols:
		return fmt.Errorf("%w: 101, which nobody asked for", errAnswer)
	default:
		j.answer = answerBody{ReadCloser: res.Body, res: res, forwarding: j}
		res.Body = &j.answer
		j.prune(res.Trailer)
	}
	j.result.Status = res.StatusCode
	res.Header.Del("Alt-Svc") // would lead clients round the proxy
	if j.trip.OnHeader != nil {
		j.trip.OnHeader(res.StatusCode, netHeader{res.Header})
	}
	return nil
}

// strip removes what belongs to one connection: the fields that Connection
// names, and those that are known to even if it does not.
func strip(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade",
	} {
		delete(h, name)
	}
}

// prune removes what must not come after a body, and what the target's Connection
// has named as its own.
func (j *forwarding) prune(trailer http.Header) {
	for name := range trailer {
		if !mayTrail(name) || httpguts.HeaderValuesContainsToken(j.connectionOptions, name) {
			delete(trailer, name)
		}
	}
}

// An answerBody is the target's body on its way to the client.
type answerBody struct {
	io.ReadCloser
	res        *http.Response
	forwarding *forwarding
	err        error // what went wrong when reading it
}

func (b *answerBody) Read(p []byte) (int, error) {
	b.forwarding.idle.begin()
	n, err := b.ReadCloser.Read(p)
	b.forwarding.idle.end()
	if err != nil && err != io.EOF && errors.Is(context.Cause(b.res.Request.Context()), errIdle) {
		err = errIdle
	}
	switch {
	case err == io.EOF:
		b.forwarding.prune(b.res.Trailer)
		b.forwarding.stop()
	case err != nil && b.err == nil:
		b.err = err
		if why := b.forwarding.body.err(); why != nil {
			b.err = &bodyError{why} // the target could not answer what never arrived
		}
	}
	return n, err
}

// stop ends reading of a client's body when the answer is whole without it.
// Over HTTP/2, net/http ends an answer only when nobody reads the request's body
// any more, and nothing else would end a read that waits.
func (j *forwarding) stop() {
	if body, ok := j.in.Body.(interface{ Stop() }); ok && j.body.unread() {
		body.Stop()
	}
}
