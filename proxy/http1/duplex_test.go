package http1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

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
