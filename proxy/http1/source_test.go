package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
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
		p := poolTo(t, &Client{ExpectContinueTimeout: soon}, endpointOf(t, address))
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
	}
}

// Stop ends a read that waits when the answer came without the rest of the body.
func TestSource_StopUnblocksRead(t *testing.T) {
	address := sockettest.Upstream(t, func(nc net.Conn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.WriteString(nc, okAnswer)
		_, _ = io.Copy(io.Discard, r)
	})
	p := poolTo(t, &Client{}, endpointOf(t, address))
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

// duplexed serves with a handler that gets a Duplex.
func duplexed(h func(d *Duplex)) Handler {
	return func(x *Exchange) {
		d := new(Duplex)
		d.Open(x)
		h(d)
	}
}

// One goroutine reads the body while another answers with what it reads: neither waits
// for the end of the other, and both trailers arrive.
func TestDuplex_ReadsAndWritesConcurrently(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		p := serving(t, duplexed(func(d *Duplex) {
			read := make(chan string)
			var both sync.WaitGroup
			defer both.Wait()
			both.Go(func() {
				defer close(read)
				b := make([]byte, 100)
				for {
					n, err := d.Read(b)
					if n > 0 {
						read <- string(b[:n])
					}
					if err != nil {
						return
					}
				}
			})
			var f Fields
			f.Add("Link", "</x>")
			d.Informational(103, &f)
			f.Set("X-A", "1")
			if err := d.Begin(200, &f, -1); err != nil {
				t.Error(err)
			}
			for piece := range read {
				_, _ = d.Write([]byte(piece))
				_ = d.Flush()
			}
			if err := d.End(d.Trailer()); err != nil || !d.Committed() {
				t.Errorf("end: %v, begun %t", err, d.Committed())
			}
		}), nil)
		w := p.dial(t, lined("POST / HTTP/1.1|Host: a|Expect: 100-continue|Transfer-Encoding: chunked||"))
		w.Send(lined("3|one|"))
		var res *http.Response
		for res == nil || res.StatusCode < 200 {
			var err error
			if res, err = http.ReadResponse(w.Reader, nil); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, 3)
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != "one" {
			t.Fatalf("got %q, %v", got, err)
		}
		w.Send(lined("3|two|0|X-Sum: 7||"))
		rest, err := io.ReadAll(res.Body)
		if string(rest) != "two" || err != nil || res.Trailer.Get("X-Sum") != "7" || res.Header.Get("X-A") != "1" || !res.Close {
			t.Errorf("got %q, %v, trailer %v, header %v, close %t", rest, err, res.Trailer, res.Header, res.Close)
		}
	})
}

// An answer that has begun after the body was read keeps the connection.
func TestDuplex_KeepsTheConnection(t *testing.T) {
	p := serving(t, duplexed(func(d *Duplex) {
		body, err := io.ReadAll(d)
		if err != nil || string(body) != "hello" {
			t.Errorf("got %q, %v", body, err)
		}
		d.Stop() // ends nothing: the body is whole
		if err := d.Begin(200, new(Fields), 2); err != nil {
			t.Error(err)
		}
		_, _ = d.Write([]byte("ok"))
		_ = d.End(new(Fields))
	}), nil)
	w := p.dial(t, "")
	for range 2 {
		w.Send(lined("POST / HTTP/1.1|Host: a|Content-Length: 5||hello"))
		if res, body := w.WantStatus(200); body != "ok" || res.ContentLength != 2 || res.Close {
			t.Errorf("got %q, length %d, close %t", body, res.ContentLength, res.Close)
		}
	}
}

// A read that waits for the client ends when nobody wants more.
func TestDuplex_StopEndsARead(t *testing.T) {
	read := make(chan error, 1)
	p := serving(t, duplexed(func(d *Duplex) {
		var both sync.WaitGroup
		both.Go(func() {
			_, err := io.ReadAll(d)
			read <- err
		})
		_ = d.Begin(200, new(Fields), 0)
		d.Stop()
		both.Wait()
		_ = d.End(new(Fields))
	}), nil)
	w := p.dial(t, lined("POST / HTTP/1.1|Host: a|Content-Length: 5||he"))
	if res, _ := w.WantStatus(200); !res.Close {
		t.Error("the connection goes on")
	}
	if err := await.Value(t, read, "end of the read"); !errors.Is(err, ErrBodyReadCanceled) {
		t.Errorf("got %v", err)
	}
}

// A receiving is a Receiver that notes what it is given, in order.
type receiving struct {
	got  []string
	fail string // what fails
}

var errReceiving = errors.New("nobody takes it")

func (r *receiving) note(what string) error {
	r.got = append(r.got, what)
	if r.fail != "" && strings.HasPrefix(what, r.fail) {
		return errReceiving
	}
	return nil
}

func (r *receiving) Begin(_ int, f *Fields, length int64) error {
	_, named := f.Lookup("X-A")
	return r.note(map[bool]string{true: "begin with X-A", false: "begin"}[named] + map[bool]string{true: ", unknown length", false: ""}[length < 0])
}
func (r *receiving) Write(p []byte) (int, error) { return len(p), r.note("write " + string(p)) }
func (r *receiving) Flush() error                { return r.note("flush") }
func (r *receiving) End(f *Fields) error {
	sum, _ := f.Lookup("X-Sum")
	return r.note("end " + sum)
}

// What there is goes to the receiver before more is waited for; a fault of the upstream's
// is told from one of the receiver's.
func TestCall_RelayTo(t *testing.T) {
	const head = "HTTP/1.1 200 OK|X-A: 1|Transfer-Encoding: chunked||"
	for _, c := range []struct {
		name, answer, fail string
		fault, receiver    bool
		want               []string
	}{
		{"whole", head + "2|hi|0|X-Sum: 7||", "", false, false, []string{"begin with X-A, unknown length", "write hi", "end 7"}},
		{"with a length", "HTTP/1.1 200 OK|Content-Length: 2||hi", "", false, false, []string{"begin", "write hi", "end "}},
		{"cut", head + "2|hi|", "", true, false, []string{"begin with X-A, unknown length", "write hi", "flush", "flush"}},
		{"its head is not taken", head + "2|hi|0||", "begin", false, true, []string{"begin with X-A, unknown length"}},
		{"its body is not taken", head + "2|hi|0||", "write", false, true, []string{"begin with X-A, unknown length", "write hi"}},
		{"flushing fails", head + "2|hi|", "flush", false, true, []string{"begin with X-A, unknown length", "write hi", "flush"}},
	} {
		p := proxyTo(t, originOnce(t, lined(c.answer)), nil).pool
		call := p.client.NewCall(nil)
		call.Begin("GET", "a", "/")
		if err := p.Send(call); err != nil {
			t.Fatal(err)
		}
		call.Response.Fields.StripHopByHop()
		r := &receiving{fail: c.fail}
		err := call.RelayTo(r)
		var fault *CallError
		if errors.As(err, &fault) != c.fault || errors.Is(err, errReceiving) != c.receiver || (err == nil) != (!c.fault && !c.receiver) {
			t.Errorf("%s: %v", c.name, err)
		}
		if !slices.Equal(r.got, c.want) {
			t.Errorf("%s: got %q; want %q", c.name, r.got, c.want)
		}
		call.Release()
	}
}

// originOnce answers one request in one piece, and closes the connection.
func originOnce(t testing.TB, answer string) string {
	return sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := requestOn(r); err == nil {
			_, _ = io.WriteString(c, answer)
		}
	})
}
