package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A Source is framed by its length if that is known, and in chunks with its trailer
// fields if not.
func TestSource_AllKinds(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		address, seen := answering(t, okAnswer)
		p := proxyTo(t, address, nil).pool
		large := strings.Repeat("x", 100_000)
		for _, body := range []string{"", "hello", large} {
			for _, known := range []bool{true, false} {
				c := p.client.NewCall(nil)
				c.Begin("POST", "a", "/")
				from := strings.NewReader(body)
				s := Source{Reader: iotest.HalfReader(from), Length: -1, Trailer: func(h *Head) {
					if from.Len() > 0 {
						t.Error("the trailer was asked for before the body had been read")
					}
					if known {
						t.Error("a body with a length has no trailer")
					}
					h.Add("X-Sum", "1")
				}}
				if known {
					s.Length = int64(len(body))
				}
				c.SetSource(s)
				if err := p.Send(c); err != nil {
					t.Fatal(err)
				}
				r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(await.Value(t, seen, "request"))))
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(r.Body)
				if string(got) != body || err != nil || r.ContentLength != s.Length || !known && r.Trailer.Get("X-Sum") != "1" {
					t.Errorf("%d bytes, known %t: got %d, %v, length %d, %v", len(body), known, len(got), err, r.ContentLength, r.Trailer)
				}
				_, _ = io.ReadAll(c.Body())
				c.Release()
			}
		}
		await.Until(t, "its connection is kept", func() bool { return p.Idle() > 0 })
	})
}

// A Source that brings less than it says is cut: the upstream never takes it for whole.
func TestSource_TooShort(t *testing.T) {
	whole := make(chan error, 1)
	address := sockettest.Upstream(t, func(_ net.Conn, r *bufio.Reader) {
		_, err := requestOn(r)
		whole <- err
	})
	p := (&Client{}).NewPool(Endpoint{Network: "tcp", Address: address})
	c := p.client.NewCall(nil)
	c.Begin("POST", "a", "/")
	c.SetSource(Source{Reader: strings.NewReader("hello"), Length: 10})
	var fault *CallError
	if err := p.Send(c); !errors.As(err, &fault) || fault.Phase != ReadingRequestBody || !errors.Is(err, ErrTruncated) {
		t.Errorf("got %v", err)
	}
	c.Release()
	if err := await.Value(t, whole, "request"); err == nil {
		t.Error("the upstream saw a whole request")
	}
	if p.Idle() != 0 {
		t.Error("the connection was kept")
	}
}

// A Source that is expected to be asked for is not read before.
func TestSource_Expects(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		address := sockettest.Upstream(t, func(nc net.Conn, r *bufio.Reader) {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if wanted {
				_, _ = io.WriteString(nc, "HTTP/1.1 100 Continue\r\n\r\n")
				_, _ = io.Copy(io.Discard, req.Body)
			}
			_, _ = io.WriteString(nc, okAnswer)
		})
		p := (&Client{ExpectContinueTimeout: soon}).NewPool(Endpoint{Network: "tcp", Address: address})
		c := p.client.NewCall(nil)
		c.Begin("POST", "a", "/").Add("Expect", "100-continue")
		body := strings.NewReader("hello")
		c.SetSource(Source{Reader: body, Length: 5, Expects: true})
		if err := p.Send(c); err != nil || c.Response.Status != 200 {
			t.Errorf("got %d, %v", c.Response.Status, err)
		}
		_, _ = io.ReadAll(c.Body())
		c.Release()
		if read := body.Len() == 0; read != wanted {
			t.Errorf("read %t; want %t", read, wanted)
		}
		if kept := p.Idle() == 1; kept != wanted {
			t.Errorf("kept %t; want %t: the body is owed unless it was asked for", kept, wanted)
		}
		p.Close()
	}
}

// Stop ends a read that waits when the answer came without the rest of the body.
func TestSource_StopUnblocksRead(t *testing.T) {
	address := sockettest.Upstream(t, func(nc net.Conn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.WriteString(nc, okAnswer)
		_, _ = io.Copy(io.Discard, r)
	})
	p := (&Client{}).NewPool(Endpoint{Network: "tcp", Address: address})
	defer p.Close()
	from, to := io.Pipe()
	c := p.client.NewCall(nil)
	c.Begin("POST", "a", "/")
	c.SetSource(Source{Reader: from, Length: -1, Stop: func() { _ = to.CloseWithError(ErrBodyReadCanceled) }})
	if err := p.Send(c); err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(c.Body()); string(body) != "ok" || err != nil {
		t.Errorf("got %q, %v", body, err)
	}
	released := make(chan struct{})
	go func() { c.Release(); close(released) }()
	await.Value(t, released, "Release")
	if p.Idle() != 0 {
		t.Error("the connection was kept, and owes a body")
	}
}

// A trailer section that is none is refused, however its bytes come.
func TestBody_InvalidTrailers(t *testing.T) {
	for _, raw := range []string{
		"A : b||", " A: b||", "A: b| c||", "A: b\nC: d||", "A||", ": x||", "A: \x00||", "A: b|\rX|", "A:b\nGET / HTTP/1.1||", "\n", "X:POST\n\n", "A: b\r\r\n",
		strings.Repeat("A: b|", 40) + "\n", strings.Repeat("A: b|", 40) + "A: \x00||", "A: " + strings.Repeat("b", 20_000) + "\r||",
	} {
		for name, slowly := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "by bytes": iotest.OneByteReader, "by halves": iotest.HalfReader} {
			in := input{from: slowly(bytes.NewReader([]byte(lined("5|hello|0|" + raw)))), pool: new(bufferPool)}
			in.ensureBuffer()
			var b Body
			b.open(&in, filling{}, Framing{Chunked, -1}, limits())
			if data, err := io.ReadAll(&b); !errors.Is(err, ErrTrailer) {
				t.Errorf("%.60q %s: got %q, %v", raw, name, data, err)
			}
		}
	}
}

// What is no host is not written as one: it is found before anybody is asked.
func TestCall_InvalidHost(t *testing.T) {
	p := (&Client{}).NewPool(Endpoint{Network: "tcp", Address: "127.0.0.1:1"})
	for _, host := range []string{"", "a/x", "a?x", "a#x", "u@a", "a b", "a\r\nX: 1", "a:65616", "[::1", `a\b`} {
		c := p.client.NewCall(nil)
		c.Begin("GET", host, "/")
		if err := p.Send(c); !errors.Is(err, ErrOutgoing) {
			t.Errorf("%q: got %v", host, err)
		}
		c.Release()
	}
}

// A trailer section beyond the limits is dropped, and the message is whole.
func TestBody_TooManyTrailers(t *testing.T) {
	for _, raw := range []string{strings.Repeat("A: b|", 40) + "|", "A: " + strings.Repeat("b", 20_000) + "||", strings.Repeat("Abc: "+strings.Repeat("d", 500)+"|", 100) + "|"} {
		for name, slowly := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "by bytes": iotest.OneByteReader} {
			in := input{from: slowly(strings.NewReader(lined("5|hello|0|"+raw) + "GET")), pool: new(bufferPool)}
			in.ensureBuffer()
			var b Body
			b.open(&in, filling{}, Framing{Chunked, -1}, limits())
			data, err := io.ReadAll(&b)
			if string(data) != "hello" || err != nil || b.Trailer().present != 0 {
				t.Errorf("%.20q %s: got %q, %v, fields %b", raw, name, data, err, b.Trailer().present)
			}
			rest := make([]byte, 3)
			if n := copy(rest, in.unread()); n < 3 {
				_, _ = io.ReadFull(in.from, rest[n:])
			}
			if string(rest) != "GET" {
				t.Errorf("%.20q %s: %q follows; want GET", raw, name, rest)
			}
		}
	}
}
