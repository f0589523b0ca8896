package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"unicode/utf8"
)

// maxEcho is how much of a body echo sends back, in bytes.
const maxEcho = 64 << 10

// echo is the built-in upstream: it answers 200 and tells as JSON which request
// would have reached a target.
type echo struct{}

// An echoed is what echo answers.
type echoed struct {
	Method  string      `json:"method"`
	Host    string      `json:"host"`
	Path    string      `json:"path"` // as on the wire
	Query   string      `json:"query,omitempty"`
	Headers http.Header `json:"headers"`
	Trailer http.Header `json:"trailers,omitempty"`
	// Body is the beginning of the body as text; Base64 the same where it is
	// not text. Length counts all of it.
	Body   string `json:"body,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
	Length int64  `json:"length"`
}

// RoundTrip answers r when it has read all of its body.
func (echo) RoundTrip(r *http.Request) (*http.Response, error) {
	e := echoed{Method: r.Method, Host: r.Host, Path: r.URL.Opaque, Query: r.URL.RawQuery, Headers: r.Header}
	if r.Body != nil {
		defer r.Body.Close()
		if err := e.read(r.Body); err != nil {
			return nil, err
		}
		e.Trailer = r.Trailer
	}
	body, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write echo: %w", err)
	}
	body = append(body, '\n')
	res := &http.Response{
		StatusCode: http.StatusOK,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type":           {"application/json"},
			"Content-Length":         {strconv.Itoa(len(body))},
			"Cache-Control":          {"no-store"},
			"X-Content-Type-Options": {"nosniff"}, // it repeats what anybody sent
		},
		ContentLength: int64(len(body)),
		Body:          http.NoBody,
		Request:       r,
	}
	if r.Method != http.MethodHead {
		res.Body = io.NopCloser(bytes.NewReader(body))
	}
	return res, nil
}

// read takes body in: its beginning is kept, the rest counted.
func (e *echoed) read(body io.Reader) error {
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

// CloseIdleConnections has nothing to close.
func (echo) CloseIdleConnections() {}
