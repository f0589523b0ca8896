package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weir-proxy/weir/test/sockettest"
)

func TestBuffers_AddUp(t *testing.T) {
	a, b := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	all := newBufferBudget(8 << 10)
	for _, c := range []struct {
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
		{b, 1024, 5 << 10, false}, // more than there is
		{b, 1024, 4 << 10, true},
		{netip.Prefix{}, 0, 1, false},
	} {
		if got := all.reserve(c.client, c.own, c.n); got != c.want {
			t.Errorf("%d more for %s, which has %d of its own = %v; %d of %d are used", c.n, c.client, c.own, got, all.inUse(), all.max)
		}
	}
	all.release(a, 3<<10)
	all.release(b, 5<<10)
	if all.inUse() != 0 || len(all.byClient) != 0 {
		t.Errorf("%d bytes of %d addresses are left; want none", all.inUse(), len(all.byClient))
	}
}

func TestBuffer_ReadsWhatCame(t *testing.T) {
	for _, length := range []int{0, 1, 100, 4095, 4096, 4097, 100_000} {
		body := strings.Repeat("x", length)
		for _, most := range []int64{100_000, int64(length)} {
			b := bodyBuffer{budget: newBufferBudget(1 << 20)}
			got, err := b.readAll(iotest.HalfReader(strings.NewReader(body)), most)
			if err != nil || string(got) != body || b.reserved != int64(cap(got)) || b.budget.inUse() != b.reserved || cap(got) > min(2*length+initialBuffer, int(most)+1) {
				t.Errorf("%d bytes, %d at most: %d bytes in %d, %d taken, %v", length, most, len(got), cap(got), b.reserved, err)
			}
			if b.release(); b.budget.inUse() != 0 {
				t.Errorf("%d bytes are left taken", b.budget.inUse())
			}
		}
	}
	b := bodyBuffer{budget: newBufferBudget(16 << 10)}
	if _, err := b.readAll(bytes.NewReader(make([]byte, 20_000)), 20_000); !errors.Is(err, errBuffersFull) {
		t.Errorf("more than there is: %v", err)
	}
	b = bodyBuffer{budget: newBufferBudget(16 << 10)}
	if _, err := b.readAll(iotest.ErrReader(io.ErrUnexpectedEOF), 100); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a body that breaks off: %v", err)
	}
}

// bodyKeyYAML is a route with a limit by what is in the body and these others.
func bodyKeyYAML(more string) string {
	return "listen: {max_buffered: 1MiB}\nkeys: {phone: json:/phone}\nroutes:\n" +
		"  - {name: a, match: {path: /}, upstream: echo, limits: [{name: phone, key: phone, rate: 100/1h}" + more + "]}\n"
}

// What is kept of all bodies is bounded; who comes then is told to come back, and the
// memory is there again when the bodies are.
func TestServe_BodiesTogetherAreBounded(t *testing.T) {
	f := startServer(t, "client_ip: {trusted_proxies: [127.0.0.1]}\n"+bodyKeyYAML(""))
	const head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nX-Forwarded-For: 192.0.2.%d\r\nContent-Length: 65536\r\n\r\n"
	half := `{"phone": "1", "pad": "` + strings.Repeat("x", 40_000)
	var waiting []*sockettest.Client
	for i := range 16 { // 16 times 64 KiB is all there is
		waiting = append(waiting, f.dial(fmt.Sprintf(head, i)+half))
	}
	f.until(func() bool { return f.buffers.inUse() == 1<<20 })
	answer, body := f.dial("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n" + `{"phone": "1"}`).WantStatus(503)
	if answer.Header.Get("Retry-After") == "" || !strings.Contains(body, "temporary-reduced-capacity") {
		t.Errorf("503 with %v: %s", answer.Header, body)
	}
	rest := strings.Repeat("x", 65536-len(half)-2) + `"}`
	for _, w := range waiting {
		w.Send(rest)
		w.WantStatus(200)
	}
	f.until(func() bool { return f.buffers.inUse() == 0 })
	f.dial("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n" + `{"phone": "1"}`).WantStatus(200)
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
