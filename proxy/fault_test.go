package proxy

import (
	"bufio"
	"fmt"
	"github.com/weir-proxy/weir/test/sockettest"
	"net"
	"strings"
	"testing"
)

// startFaulty are upstreams that fail each in their own way.
func startFaulty(t *testing.T, fault string) string {
	if fault == "connect" {
		return sockettest.ClosedAddr(t)
	}
	return sockettest.Upstream(t, func(c net.Conn, _ *bufio.Reader) {
		c.Read(make([]byte, 4096))
		switch fault {
		case "bad_response":
			fmt.Fprint(c, "nonsense\r\n\r\n")
		case "cut":
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
		case "timeout":
			c.Read(make([]byte, 1)) // until the other side has had enough
		}
	})
}

// Each fault gives back where it is named, and nowhere else. What is counted
// only after some statuses stays counted when nobody knows the status, but for
// a target that was never reached.
func TestSettle_Faults(t *testing.T) {
	known := map[string]int64{"connect": 2, "cut": 2, "timeout": 1, "reset": 1, "bad_response": 1}
	for fault, uncounted := range known {
		t.Run(fault, func(t *testing.T) {
			addr := startFaulty(t, fault)
			for on, want := range map[string]int64{fault: 2, "": 1, "others": 1} {
				errs := on
				if on == "others" {
					errs = "timeout, connect, reset, cut, bad_response"
					errs = strings.Replace(errs, fault, map[bool]string{true: "reset", false: "timeout"}[fault == "timeout"], 1)
				}
				yaml := "upstreams: {bad: {targets: ['http://" + addr + "'], timeouts: {response: 50ms}}}\nroutes:\n" +
					"  - {name: a, match: {path: /a}, upstream: bad, refund_on: {errors: [" + errs + "]}, limits: [{name: l, key: client_ip, rate: 2/1h}]}\n" +
					"  - {name: c, match: {path: /c}, upstream: bad, limits: [{name: l, key: client_ip, rate: 2/1h, count: {status: 4xx}}]}\n"
				w := newProxy(t, yaml)
				if got := w.leftAfter("/a", "a.l:1h"); got != want {
					t.Errorf("after %s, refunded on %q, %d of 2 are left; want %d", fault, on, got, want)
				}
				if got := w.leftAfter("/c", "c.l:1h"); got != uncounted {
					t.Errorf("after %s, counted on 4xx, %d of 2 are left; want %d", fault, got, uncounted)
				}
			}
		})
	}
}

// leftAfter is what the store says is left of 2 under the client's address,
// after a request.
func (p *testProxy) leftAfter(path, name string) int64 {
	p.Helper()
	func() {
		defer func() { recover() }() // how a downstream cuts a connection
		p.send("GET", path)
	}()
	return p.remainingOf(name, 2, "client_ip", "192.0.2.1")
}
