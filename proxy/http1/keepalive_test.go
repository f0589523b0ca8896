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
			u := p.idle[0]
			if reused := want - time.Millisecond; want > 0 && u.expired(client.now()+reused) || !u.expired(client.now()+max(want, 1)) {
				t.Errorf("%s: not used for %v", strings.TrimSuffix(field, "|"), want)
			}
		})
	}
}
