package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/weir-proxy/weir/proxy/http1"
)

// maxEcho is the number of bytes of a request body that echo sends back.
const maxEcho = 64 << 10

// echo is the built-in upstream. It responds with 200 and a JSON description of the
// request that would have reached a target.
type echo struct{}

// An echoResponse is the JSON response of echo.
type echoResponse struct {
	Method  string              `json:"method"`
	Host    string              `json:"host"`
	Path    string              `json:"path"` // as sent on the connection
	Query   string              `json:"query,omitempty"`
	Headers map[string][]string `json:"headers"`
	Trailer map[string][]string `json:"trailers,omitempty"`
	// Body is the beginning of the body if it is text; otherwise Base64 contains it.
	// Length is the length of the whole body.
	Body   string `json:"body,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
	Length int64  `json:"length"`
}

// sender implements transport.
func (echo) sender(f *forwarding) sender {
	f.upgrade = ""
	return &echoSender{forwarding: f}
}

// probe implements transport.
func (echo) probe(context.Context, *backend, string, string) (int, error) { return http.StatusOK, nil }

// CloseIdleConnections has nothing to close.
func (echo) CloseIdleConnections() {}

// An echoSender is the echo of one request.
type echoSender struct {
	*forwarding
	fields http1.Fields
	text   []byte
}

// send implements sender. It reads the whole body.
func (s *echoSender) send(*backend, time.Time) error {
	t := s.request
	e := echoResponse{
		Method: t.Method, Host: cmp.Or(t.SetHost, t.Host), Path: t.Path, Query: t.RawQuery,
		Headers: map[string][]string{},
	}
	length, announced := t.Fields.Value(http1.ContentLength)
	keep := trailerFilter(t)
	s.writeHeader(mapHeader(e.Headers))
	if announced {
		mapHeader(e.Headers).Add("Content-Length", length)
	}
	if s.acceptTrailers {
		mapHeader(e.Headers).Add("Te", "trailers")
	}
	if t.Length != 0 {
		if err := e.read(t.bodyReader()); err != nil {
			return fmt.Errorf("%w: %w", errRequestBody, err)
		}
		e.Trailer = map[string][]string{}
		addTrailer(mapHeader(e.Trailer), t.Body, keep)
	}
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return fmt.Errorf("write echo: %w", err)
	}
	s.text = append(text, '\n')
	return nil
}

// canRetry implements sender.
func (s *echoSender) canRetry(error) bool { return false }

// response implements sender.
func (s *echoSender) response() (int, *http1.Fields, error) {
	s.fields.Add("Content-Type", "application/json")
	s.fields.Add("Cache-Control", "no-store")
	s.fields.Add("X-Content-Type-Options", "nosniff") // the response repeats arbitrary input
	return http.StatusOK, &s.fields, nil
}

// relay implements sender.
func (s *echoSender) relay(to Sink) error {
	if err := to.Begin(http.StatusOK, &s.fields, int64(len(s.text))); err != nil {
		return err
	}
	if s.request.Method != http.MethodHead {
		if _, err := to.Write(s.text); err != nil {
			return err
		}
	}
	return to.End(new(http1.Fields))
}

// release implements sender.
func (s *echoSender) release() {}

// read reads the body. It keeps the first maxEcho bytes and counts the rest.
func (e *echoResponse) read(body io.Reader) error {
	kept, err := io.ReadAll(io.LimitReader(body, maxEcho))
	if err != nil {
		return err
	}
	rest, err := io.Copy(io.Discard, body)
	if err != nil {
		return err
	}
	e.Length = int64(len(kept)) + rest
	if utf8.Valid(kept) {
		e.Body = string(kept)
	} else {
		e.Base64 = kept
	}
	return nil
}
