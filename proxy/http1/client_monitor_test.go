package http1

import (
	"fmt"
	"net"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// listed returns how many connections of s the rounds of checks visit.
func listed(s *Server) (n int) {
	for _, c := range s.appendConns(nil) {
		c.monitor.mu.Lock()
		if c.monitor.listed {
			n++
		}
		c.monitor.mu.Unlock()
	}
	return n
}

// Connections that wait for a request are not visited by the rounds of checks, which do
// not hold up new connections either. A later request is monitored again.
func TestClientMonitor_LeavesIdleConnectionsAlone(t *testing.T) {
	const connections = 20
	noticed, inside := make(aborts, 1), make(chan struct{})
	p := serving(t, func(x *Exchange) {
		x.MonitorClient(noticed)
		if x.Path() == "/waits" {
			close(inside)
			<-noticed
			x.Abort()
			return
		}
		says(x)
	}, func(s *Server) { s.HalfClose = AbortOnHalfClose })
	var clients []*sockettest.Client
	for range connections {
		w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
		w.WantStatus(200)
		clients = append(clients, w)
	}
	await.Until(t, "nothing is checked", func() bool { return listed(p.server) == 0 })
	if n := p.server.Connections(); n != connections {
		t.Errorf("%d connections are open; want %d", n, connections)
	}
	leaves := clients[0]
	leaves.Send(lined("GET /waits HTTP/1.1|Host: a||"))
	await.Value(t, inside, "request")
	p.server.mu.Lock() // as a new connection does
	defer p.server.mu.Unlock()
	leaves.Close()
	await.Until(t, "the client is noticed to be gone", func() bool {
		for c := range p.server.conns {
			if c.monitor.clientGone.Load() {
				return true
			}
		}
		return false
	})
}

// All that waits for an exchange is aborted when its client is gone, however often it was
// monitored and whatever has ended meanwhile.
func TestClientMonitor_AbortsAllThatWaits(t *testing.T) {
	request, call, ended := make(aborts, 9), make(aborts, 9), make(aborts, 9)
	inside := make(chan struct{})
	p := serving(t, func(x *Exchange) {
		for _, a := range []aborts{ended, request, call, call} {
			x.MonitorClient(a)
		}
		x.StopMonitoringClient(ended)
		close(inside)
		await.Value(t, request, "end of the request")
		await.Value(t, call, "end of the call")
		x.StopMonitoringClient(call)
		if len(request)+len(call)+len(ended) > 0 {
			t.Errorf("aborted again: %d, %d, %d", len(request), len(call), len(ended))
		}
		x.Abort()
	}, func(s *Server) { s.HalfClose = AbortOnHalfClose })
	w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
	await.Value(t, inside, "request")
	w.Close()
	await.Until(t, "connection closed", func() bool { return p.server.Connections() == 0 })
}

// What a round of checks costs, which there is ten times a second.
func BenchmarkServer_CheckClients(b *testing.B) {
	for _, idle := range []int{0, 100_000} {
		for _, waiting := range []int{0, 1000} {
			b.Run(fmt.Sprintf("idle=%d/waiting=%d", idle, waiting), func(b *testing.B) {
				s := &Server{}
				s.prepare()
				for i := range idle + waiting {
					c := newConn(s, unconnected{})
					s.addConn(c)
					if i >= idle {
						(&Exchange{conn: c}).MonitorClient(make(aborts, 1))
					}
				}
				s.stopMonitor()
				for b.Loop() {
					s.checkClients()
				}
			})
		}
	}
}

// An unconnected connection can do nothing.
type unconnected struct{ net.Conn }
