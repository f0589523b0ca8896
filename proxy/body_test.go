package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/sockettest"
)

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
	f.until(func() bool { return f.buffers.InUse() == 14*64<<10 })
	f.dial(fmt.Sprintf(head, 99) + half).WantStatus(503)
	f.dial(honest).WantStatus(200)
	for i := range 32 { // and 32 times 4 KiB for those that are short
		f.dial(fmt.Sprintf(short, 100+i))
	}
	f.until(func() bool { return f.buffers.InUse() == 1<<20 })
	answer, body := f.dial(honest).WantStatus(503)
	if answer.Header.Get("Retry-After") == "" || !strings.Contains(body, "temporary-reduced-capacity") {
		t.Errorf("503 with %v: %s", answer.Header, body)
	}
	rest := strings.Repeat("x", 65536-len(half)-2) + `"}`
	for _, w := range waiting {
		w.Send(rest)
		w.WantStatus(200)
	}
	f.until(func() bool { return f.buffers.InUse() == 32*4<<10 })
	f.dial(honest).WantStatus(200)
}

// A body that is read through a buffer of the connection or the stream counts that as well.
func TestServe_BuffersOfConnectionsCount(t *testing.T) {
	f := startServer(t, strings.Replace(bodyKeyYAML(""), "{max", "{h2c: true, max", 1))
	w := f.dial("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n{")
	f.until(func() bool { return f.buffers.InUse() == http1.BodyBufferSize+(4<<10) })
	w.Send("\"phone\": \"1\"}\r\n0\r\n\r\n")
	w.WantStatus(200)
	f.until(func() bool { return f.buffers.InUse() == 0 })
	for _, c := range []struct {
		length string
		want   int64
	}{{"60000", (16 + 4) << 10}, {"100", 100 + 141} /* what the stream and the allocator take */} {
		s := f.speaks()
		s.begins(1, append(request("POST", "/"), "content-type", "application/json", "content-length", c.length)...)
		if err := s.WriteData(1, false, []byte("{")); err != nil {
			t.Fatal(err)
		}
		f.until(func() bool { return f.buffers.InUse() == c.want })
		s.conn.Close()
		f.until(func() bool { return f.buffers.InUse() == 0 })
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
