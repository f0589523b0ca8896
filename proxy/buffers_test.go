package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/sockettest"
)

func TestBuffers_AddUp(t *testing.T) {
	a, b, c := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32"), netip.MustParsePrefix("192.0.2.3/32")
	all := newBufferBudget(8 << 10)
	for _, s := range []struct {
		client netip.Prefix
		own, n int64
		want   bool
	}{
		{a, 0, 2 << 10, true},       // an address alone may have more than its share
		{a, 2 << 10, 1 << 10, true}, // with one body
		{a, 0, 1, false},            // and not with two
		{b, 0, 512, true},
		{b, 0, 512, true},
		{b, 0, 1, false},
		{b, 1024, 3<<10 + 1, false}, // the last eighth is for bodies that begin
		{b, 1024, 3 << 10, true},
		{c, 0, 1<<10 + 1, false}, // more than there is
		{c, 0, 1 << 10, true},
		{netip.Prefix{}, 0, 1, false},
	} {
		if got := all.reserve(s.client, s.own, s.n); got != s.want {
			t.Errorf("%d more for %s, which has %d of its own = %v; %d of %d are used", s.n, s.client, s.own, got, all.inUse(), all.max)
		}
	}
	all.release(a, 3<<10)
	all.release(b, 4<<10)
	all.release(c, 1<<10)
	if all.inUse() != 0 || len(all.byClient) != 0 {
		t.Errorf("%d bytes of %d addresses are left; want none", all.inUse(), len(all.byClient))
	}
}

// What is counted for a buffer is what the allocator takes for it, or little more.
func TestBuffers_CountWhatIsAllocated(t *testing.T) {
	for n := int64(1); n < 300_000; n += 1 + n/512 {
		taken := int64(cap(slices.Grow([]byte(nil), int(n)))) // rounded up to the size that the allocator has
		if got := allocated(n); got < taken || got > taken+taken/4+32 {
			t.Fatalf("a buffer of %d bytes is counted as %d; it takes %d", n, got, taken)
		}
	}
}

func TestBuffer_ReadsWhatCame(t *testing.T) {
	for _, length := range []int{0, 1, 100, 4095, 4096, 4097, 60_000, 65_536, 65_537, 100_000} {
		body := strings.Repeat("x", length)
		for _, announced := range []int64{-1, int64(length)} {
			b := bodyBuffer{budget: newBufferBudget(1 << 20)}
			got, err := b.readAll(iotest.HalfReader(strings.NewReader(body)), announced, 100_000, 0)
			if err != nil || string(got) != body || b.budget.inUse() != b.reserved {
				t.Errorf("%d bytes, %d announced: %d bytes, %d of %d counted, %v", length, announced, len(got), b.reserved, b.budget.inUse(), err)
			}
			if want := allocated(int64(cap(got))); b.reserved != want || announced >= 0 && cap(got) > length || cap(got) > max(4*length, initialBuffer) {
				t.Errorf("%d bytes, %d announced: a buffer of %d bytes counted as %d; want %d", length, announced, cap(got), b.reserved, want)
			}
			if b.release(); b.budget.inUse() != 0 {
				t.Errorf("%d bytes are left taken", b.budget.inUse())
			}
		}
	}
	b := bodyBuffer{budget: newBufferBudget(16 << 10)}
	if _, err := b.readAll(bytes.NewReader(make([]byte, 20_000)), 20_000, 20_000, 0); !errors.Is(err, errBuffersFull) {
		t.Errorf("more than there is: %v", err)
	}
	b = bodyBuffer{budget: newBufferBudget(16 << 10)}
	if _, err := b.readAll(iotest.ErrReader(io.ErrUnexpectedEOF), -1, 100, 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a body that breaks off: %v", err)
	}
}

// A body takes little before its first bytes are there, and the buffer of whoever reads it counts
// as well.
func TestBuffer_CountsBeforeItReads(t *testing.T) {
	var counted []int64
	b := bodyBuffer{budget: newBufferBudget(1 << 20)}
	r := readerFunc(func(p []byte) (int, error) {
		counted = append(counted, b.budget.inUse())
		return len(p), nil
	})
	if _, err := b.readAll(io.LimitReader(r, 60_000), 60_000, 64<<10, 1000); err != nil {
		t.Fatal(err)
	}
	if want := []int64{1000 + 4<<10, 1000 + 64<<10}; !slices.Equal(counted, want) {
		t.Errorf("counted %d before the reads, want %d", counted, want)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// bodyKeyYAML is a route with a limit by what is in the body and these others.
func bodyKeyYAML(more string) string {
	return "listen: {max_buffered: 1MiB}\nkeys: {phone: json:/phone}\nroutes:\n" +
		"  - {name: a, match: {path: /}, upstream: echo, limits: [{name: phone, key: phone, rate: 100/1h}" + more + "]}\n"
}

// What is kept of all bodies is bounded, and the last eighth is for bodies that begin; who comes then
// is told to come back, and the memory is there again when the bodies are.
func TestServe_BodiesTogetherAreBounded(t *testing.T) {
	f := startServer(t, "client_ip: {trusted_proxies: [127.0.0.1]}\n"+bodyKeyYAML(""))
	const head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nX-Forwarded-For: 192.0.2.%d\r\nContent-Length: 65536\r\n\r\n"
	half := `{"phone": "1", "pad": "` + strings.Repeat("x", 40_000)
	const short = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nX-Forwarded-For: 192.0.2.%d\r\nContent-Length: 4096\r\n\r\n{"
	const honest = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nX-Forwarded-For: 192.0.2.254\r\nContent-Length: 14\r\n\r\n{\"phone\": \"1\"}"
	var waiting []*sockettest.Client
	for i := range 14 { // 14 times 64 KiB is all there is for those that are long
		waiting = append(waiting, f.dial(fmt.Sprintf(head, i)+half))
	}
	f.until(func() bool { return f.buffers.inUse() == 14*64<<10 })
	f.dial(fmt.Sprintf(head, 99) + half).WantStatus(503)
	f.dial(honest).WantStatus(200)
	for i := range 32 { // and 32 times 4 KiB for those that are short
		f.dial(fmt.Sprintf(short, 100+i))
	}
	f.until(func() bool { return f.buffers.inUse() == 1<<20 })
	answer, body := f.dial(honest).WantStatus(503)
	if answer.Header.Get("Retry-After") == "" || !strings.Contains(body, "temporary-reduced-capacity") {
		t.Errorf("503 with %v: %s", answer.Header, body)
	}
	rest := strings.Repeat("x", 65536-len(half)-2) + `"}`
	for _, w := range waiting {
		w.Send(rest)
		w.WantStatus(200)
	}
	f.until(func() bool { return f.buffers.inUse() == 32*4<<10 })
	f.dial(honest).WantStatus(200)
}

// A body that is read through a buffer of the connection or the stream counts that as well.
func TestServe_BuffersOfConnectionsCount(t *testing.T) {
	f := startServer(t, strings.Replace(bodyKeyYAML(""), "{max", "{h2c: true, max", 1))
	w := f.dial("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n{")
	f.until(func() bool { return f.buffers.inUse() == http1.BodyBufferSize+initialBuffer })
	w.Send("\"phone\": \"1\"}\r\n0\r\n\r\n")
	w.WantStatus(200)
	f.until(func() bool { return f.buffers.inUse() == 0 })
	for _, c := range []struct {
		length string
		want   int64
	}{{"60000", http2Buffer + initialBuffer}, {"100", 100 + allocated(100)}} {
		s := f.speaks()
		s.begins(1, append(request("POST", "/"), "content-type", "application/json", "content-length", c.length)...)
		if err := s.WriteData(1, false, []byte("{")); err != nil {
			t.Fatal(err)
		}
		f.until(func() bool { return f.buffers.inUse() == c.want })
		s.conn.Close()
		f.until(func() bool { return f.buffers.inUse() == 0 })
	}
}

func TestServe_ABodyWithAKeyIsShortUnlessTheRouteSays(t *testing.T) {
	long := func(n int) string { return `{"phone": "1", "pad": "` + strings.Repeat("x", n-25) + `"}` }
	w := newProxy(t, bodyKeyYAML(""))
	w.posts(200, "/", long(64<<10))
	w.posts(413, "/", long(64<<10+1))
	w = newProxy(t, strings.Replace(bodyKeyYAML(""), "upstream: echo", "upstream: echo, body: {max: 100KiB}", 1))
	w.posts(200, "/", long(100<<10))
	w.posts(413, "/", long(100<<10+1))
}
