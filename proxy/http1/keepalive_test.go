package http1

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/proxy/stripe"
)

// A connection is used again until a second before the upstream said that it closes it.
func TestPool_ExpiresBeforeTheUpstreamCloses(t *testing.T) {
	for field, want := range map[string]time.Duration{
		"":                                   30 * time.Second, // IdleConnTimeout
		"Keep-Alive: timeout=5, max=100|":    4 * time.Second,
		"keep-alive: max=5,\tTimeout=60|":    30 * time.Second,
		"Keep-Alive: timeout=2|":             time.Second,
		"Keep-Alive: timeout=1|":             0,
		"Keep-Alive: timeout=0|":             0,
		"Keep-Alive: timeout=x, timeout=10|": 9 * time.Second,
		"Keep-Alive: 300|":                   30 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			dials := 0
			client := &Client{}
			p := client.NewPool(Endpoint{Dial: func(context.Context, string, string) (net.Conn, error) {
				dials++
				near, far := net.Pipe()
				go func() {
					defer far.Close()
					for r := bufio.NewReader(far); ; {
						if _, err := http.ReadRequest(r); err != nil {
							return
						}
						_, _ = io.WriteString(far, lined("HTTP/1.1 200 OK|"+field+"Content-Length: 1||")+strconv.Itoa(dials%10))
					}
				}()
				return near, nil
			}})
			defer p.Close()
			send := func() {
				c := client.NewCall(nil)
				defer c.Release()
				c.Begin("GET", "a", "/")
				if err := p.Send(c); err != nil {
					t.Fatal(err)
				}
				_, _ = io.ReadAll(c.Body())
				c.Response.Fields.StripHopByHop() // as a proxy does
			}
			send()
			if p.Idle() != 1 {
				t.Fatal("the connection was not kept")
			}
			u := p.kept()[0]
			if reused := want - time.Millisecond; want > 0 && u.expired(client.now()+reused) || !u.expired(client.now()+max(want, 1)) {
				t.Errorf("%s: not used for %v", strings.TrimSuffix(field, "|"), want)
			}
		})
	}
}

// kept returns the idle connections.
func (p *Pool) kept() (all []*clientConn) {
	for i := range p.lists {
		l := &p.lists[i]
		l.mu.Lock()
		all = append(all, l.idle...)
		l.mu.Unlock()
	}
	return all
}

// The lists of several processors together are one pool: no connection is dialled while another list has
// one, and they hold no more than so many.
func TestPool_ListsOfSeveralProcessors(t *testing.T) {
	address, _ := answering(t, okAnswer)
	const most = 8
	client := &Client{MaxIdleConns: most, stripes: stripe.NewFor(4)}
	dialled := 0
	p := client.NewPool(Endpoint{Network: "tcp", Address: address, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled++
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
	round := func(n int) {
		t.Helper()
		calls := make([]*Call, n)
		for i := range calls {
			calls[i] = client.NewCall(nil)
			calls[i].Begin("GET", "a", "/")
			if err := p.Send(calls[i]); err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(calls[i].Body())
		}
		for _, c := range calls {
			c.Release()
		}
	}
	round(most + 2)
	if got := p.Idle(); got != most {
		t.Errorf("%d connections are kept; want %d", got, most)
	}
	all := p.kept()
	for range all {
		p.pop()
	}
	for i, u := range all { // as if each processor had used some of them
		p.push(i%4, u)
	}
	round(most)
	if got := len(p.kept()); got != most || dialled != most+2 {
		t.Errorf("%d connections are kept, of %d that were dialled; want %d of %d", got, dialled, most, most+2)
	}
	p.Close()
	round(most)
	if got := p.Idle(); got != 0 {
		t.Errorf("%d connections are kept after Close", got)
	}
	for processors, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 4, 64: 64} {
		if got := stripesOf(processors, 512).Count(); got != want {
			t.Errorf("%d lists for %d processors; want %d", got, processors, want)
		}
	}
}
