//go:build !race && !poison

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"github.com/rs/zerolog"
	"github.com/weir-proxy/weir/proxy/frontend"
	"github.com/weir-proxy/weir/test/rounds"
	"github.com/weir-proxy/weir/test/sockettest"
	"io"
	"net"
	"sync"
	"testing"
)

// costCases are requests over HTTP/1.1 to upstreams over HTTP/1.1 as most are: without a
// body, answered by a short one.
func costCases() []struct{ name, limits, status string } {
	return []struct{ name, limits, status string }{
		{"plain", "", "200 OK"},
		{"allowed", `limits: [{name: key, key: "header:X-Api-Key", rate: 10000000/1s}, {name: address, key: client_ip, rate: 10000000/1m}]`, "200 OK"},
		{"refused", `limits: [{name: key, key: "header:X-Api-Key", rate: 1/24h}]`, "429 Too Many Requests"},
	}
}

// A costClient is a client that sends one request again and again, and allocates nothing.
type costClient struct {
	net.Conn
	request, answer []byte
	status          []byte
}

// newCostClient makes a proxy with these limits, an upstream that allocates nothing, and a client.
func newCostClient(t testing.TB, limits, status string, log zerolog.Logger) *costClient {
	t.Helper()
	p := newProxy(t, forwardYAML("http://"+bareUpstream(t), "", limits), bare, func(o *Options) { o.Log = log })
	s := frontend.NewServer(p.Proxy, p.current.Load().config.Listen, zerolog.Nop())
	var served sync.WaitGroup
	c, err := net.Dial("tcp", sockettest.Serve(t, &served, s.Serve))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		s.Drain(context.Background())
		served.Wait()
	})
	return &costClient{
		c, []byte("GET /some/path?a=b HTTP/1.1\r\nHost: example.com\r\nUser-Agent: test\r\nAccept: */*\r\nX-Api-Key: somebody\r\n\r\n"),
		make([]byte, 8<<10), []byte("HTTP/1.1 " + status),
	}
}

// send sends the request and reads the answer, which comes in one piece.
func (c *costClient) send() error {
	if _, err := c.Write(c.request); err != nil {
		return err
	}
	n, err := c.Read(c.answer)
	if err == nil && !bytes.HasPrefix(c.answer[:n], c.status) {
		err = fmt.Errorf("answer %q, want %s", c.answer[:n], c.status)
	}
	return err
}

// bareUpstream answers whatever comes in one piece.
func bareUpstream(t testing.TB) (addr string) {
	t.Helper()
	answer := []byte("HTTP/1.1 200 OK\r\nServer: test\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n" + string(bytes.Repeat([]byte("x"), 1024)))
	return sockettest.Upstream(t, func(c net.Conn, _ *bufio.Reader) {
		in := make([]byte, 8<<10)
		for {
			if _, err := c.Read(in); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	})
}

// A request that is allowed, and one that is refused, cost no allocation. What one of
// many requests allocates for those after it does not count.
func TestCost_NoAllocationForARequest(t *testing.T) { allocatesAtMost(t, 0, zerolog.Nop()) }

// The line of the access log costs an address and a key as text, and nothing where it is
// not written.
func TestCost_TwoAllocationsForALine(t *testing.T) { allocatesAtMost(t, 2, zerolog.New(io.Discard)) }

// allocatesAtMost wants each request to allocate no more than that.
func allocatesAtMost(t *testing.T, most float64, log zerolog.Logger) {
	for _, c := range costCases() {
		t.Run(c.name, func(t *testing.T) {
			p := newCostClient(t, c.limits, c.status, log)
			_ = p.send() // the first one may be allowed
			send := func() {
				if err := p.send(); err != nil {
					t.Fatal(err)
				}
			}
			for range 100 {
				send()
			}
			if n := rounds.Allocations(500, send); n > most {
				t.Errorf("%v allocations for each request, want %v at most", n, most)
			}
		})
	}
}

func TestRequestIDs_CostNextToNothing(t *testing.T) {
	var ids requestIDs
	if n := rounds.Allocations(100, func() { ids.batch() }); n > 1 {
		t.Errorf("%v allocations for %d ids, want one", n, idBatch)
	}
}

// BenchmarkPath is what a request costs with client, upstream and all system calls.
func BenchmarkPath(b *testing.B) {
	for _, c := range costCases() {
		b.Run(c.name, func(b *testing.B) {
			p := newCostClient(b, c.limits, c.status, zerolog.Nop())
			_ = p.send()
			b.ReportAllocs()
			for b.Loop() {
				if err := p.send(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
