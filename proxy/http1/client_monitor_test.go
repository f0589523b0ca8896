package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// listed returns how many connections of s the rounds of checks visit.
func listed(s *Server) (n int) {
	for _, c := range s.conns.All() {
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
	if n := len(p.server.conns.All()); n != connections {
		t.Errorf("%d connections are open; want %d", n, connections)
	}
	leaves := clients[0]
	leaves.Send(lined("GET /waits HTTP/1.1|Host: a||"))
	await.Value(t, inside, "request")
	p.server.conns.mu.Lock() // as a new connection does
	defer p.server.conns.mu.Unlock()
	leaves.Close()
	await.Until(t, "the client is noticed to be gone", func() bool {
		for c := range p.server.conns.conns {
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
	await.Until(t, "connection closed", func() bool { return len(p.server.conns.All()) == 0 })
}

// A probe of a client and the first write of the response both set the deadline for writes, one after the other.
func TestClientMonitor_ProbesBesideAResponse(t *testing.T) {
	p := serving(t, func(x *Exchange) {
		x.MonitorClient(make(aborts, 1))
		x.Begin(200)
		_ = x.StartBody(Framing{FixedLength, 1})
		_, _ = x.Write([]byte("a"))
		checked := make(chan struct{})
		go func() {
			defer close(checked)
			x.conn.monitor.mu.Lock()
			defer x.conn.monitor.mu.Unlock()
			x.conn.clientStalled(1)
		}()
		runtime.Gosched()
		if err := x.Flush(); err != nil {
			t.Error(err)
		}
		<-checked
		_ = x.End()
	}, func(s *Server) { s.Timeouts.Write = time.Minute })
	for range 100 {
		w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
		if res, err := http.ReadResponse(w.Reader, nil); err != nil {
			t.Error(err)
		} else if res.StatusCode == http.StatusContinue { // the probe came first
			w.WantStatus(200)
		}
		w.Close()
	}
}

// One goroutine checks all clients, so that it must not wait for one that does not read what it got before.
func TestClientMonitor_ProbesNoClientThatDoesNotRead(t *testing.T) {
	probed := make(chan bool, 1)
	p := serving(t, func(x *Exchange) {
		c := x.conn
		x.MonitorClient(make(aborts, 1))
		for _, size := range []int{64 << 10, 1} {
			for n := size; n == size; { // until the sockets on both sides are full
				_ = c.net.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				n, _ = c.net.Write(make([]byte, size))
			}
		}
		c.monitor.mu.Lock()
		defer c.monitor.mu.Unlock()
		probed <- c.clientStalled(1) || c.monitor.probed
		x.Abort()
	}, func(s *Server) { s.Timeouts.Write = time.Hour })
	defer p.dial(t, lined("GET / HTTP/1.1|Host: a||")).Close()
	if await.Value(t, probed, "the end of a check") {
		t.Error("a client that does not read was probed, or is taken for gone")
	}
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
					s.conns.Add(c)
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

// Whoever waits for a request's context hears that the client has left, and so does
// what was made from it; before anybody does, it costs nothing.
func TestContext_CanceledWhenClientIsGone(t *testing.T) {
	type ends struct{ done, derived, after, err, asked bool }
	inside, ended := make(chan struct{}), make(chan ends, 1)
	p := serving(t, func(x *Exchange) {
		c := &Context{Exchange: x}
		if c.Observed() || c.Err() != nil || x.conn.monitor.waitingSince.Load() != 0 {
			t.Error("it is watched though nobody has asked")
		}
		derived, cancel := context.WithCancel(c)
		defer cancel()
		after := make(chan struct{})
		context.AfterFunc(c, func() { close(after) })
		kept := context.AfterFunc(c, func() { t.Error("it was told after all") })
		if !kept() {
			t.Error("nothing was stopped")
		}
		close(inside)
		var e ends
		e.done, e.derived, e.after = closes(c.Done()), closes(derived.Done()), closes(after)
		e.err, e.asked = errors.Is(c.Err(), context.Canceled) && errors.Is(derived.Err(), context.Canceled), c.Observed()
		x.StopMonitoringClient(c)
		ended <- e
		x.Abort()
	}, nil)
	w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
	<-inside
	_ = w.Conn.(*net.TCPConn).SetLinger(0)
	w.Close()
	if got, want := await.Value(t, ended, "end"), (ends{true, true, true, true, true}); got != want {
		t.Errorf("got %+v; want %+v", got, want)
	}
}

// What is asked only when the client has left is told so at once.
func TestContext_DoneAfterClientIsGone(t *testing.T) {
	c := &Context{}
	c.Abort()
	told := make(chan struct{})
	if context.AfterFunc(c, func() { close(told) })() {
		t.Error("it was stopped")
	}
	if !closes(c.Done()) || !closes(told) || !errors.Is(c.Err(), context.Canceled) || !c.Observed() {
		t.Error("it does not say so")
	}
	if _, ok := c.Deadline(); ok || c.Value("x") != nil {
		t.Error("it has what it never got")
	}
}

// What is derived from a request's context is among its children: nobody has to wait for it.
func TestContext_DerivedNeedNoGoroutine(t *testing.T) {
	c := &Context{}
	before := runtime.NumGoroutine()
	for range 100 {
		_, cancel := context.WithTimeout(c, time.Hour)
		defer cancel()
		defer context.AfterFunc(c, func() {})()
	}
	if n := runtime.NumGoroutine() - before; n > 50 {
		t.Errorf("%d goroutines wait", n)
	}
}

func closes(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-time.After(soon):
		return false
	}
}

// yieldsOf returns how many of n responses a readYield yields after, if each yield ends
// like this.
func yieldsOf(n int, end func(y *readYield)) (yields int) {
	var y readYield
	for range n {
		if y.due() {
			yields++
			end(&y)
		}
	}
	return yields
}

func TestReadYield_YieldsWhereItGains(t *testing.T) {
	for _, c := range []struct {
		name        string
		end         func(y *readYield)
		least, most int // of 6,400 responses
	}{
		{"a request is there, and the one before waited for an upstream", (*readYield).found, 6400, 6400},
		{"a request is there, and nothing waits", func(y *readYield) { y.found(); y.skipSome() }, 4800, 4800},
		{"no request is there", (*readYield).foundNothing, 100, 106},
		{"no request is there, and nothing waits", func(y *readYield) { y.foundNothing(); y.skipSome() }, 100, 106},
	} {
		if got := yieldsOf(6400, c.end); got < c.least || got > c.most {
			t.Errorf("%s: %d yields, want %d to %d", c.name, got, c.least, c.most)
		}
	}
}

// When requests come quickly again, the first yield that finds one ends the pause.
func TestReadYield_BeginsAgain(t *testing.T) {
	var y readYield
	for range 1000 {
		if y.due() {
			y.foundNothing()
		}
	}
	for !y.due() {
	}
	y.found()
	for range 10 {
		if !y.due() {
			t.Fatal("no yield after one that has found a request")
		}
		y.found()
	}
}

// A connection yields after a response, and knows whether an upstream was waited for.
func TestReadYield_OfAConnection(t *testing.T) {
	upstream := serving(t, says, nil)
	client := &Client{}
	pool := poolTo(t, client, endpointOf(t, upstream.addr))
	type request struct {
		yield          readYield
		waited, before bool
	}
	requests := make(chan request, 1)
	p := serving(t, func(x *Exchange) {
		before := x.waited
		if x.Path() == "/forward" {
			c := client.NewCall(x)
			c.Begin("GET", "a", "/")
			if err := pool.Send(c); err != nil {
				t.Error(err)
			}
			c.Release()
		}
		requests <- request{x.conn.yield, x.waited, before}
		says(x)
	}, func(s *Server) {
		s.yields = true
	})
	for path, waits := range map[string]bool{"/": false, "/forward": true} {
		w := p.dial(t, "")
		for i := range 2 {
			w.Send(lined("GET " + path + " HTTP/1.1|Host: a||"))
			w.WantStatus(200)
			r := await.Value(t, requests, "request")
			if r.before || r.waited != waits {
				t.Errorf("%s, request %d: waited is %v, then %v", path, i, r.before, r.waited)
			}
			if yielded := r.yield != (readYield{}); !waits && yielded != (i > 0) {
				t.Errorf("%s, request %d: %+v", path, i, r.yield)
			}
		}
	}
}

// Date is that of the response, to the second or a tenth of one after it, also on a connection that was long idle.
func TestServer_DateGoesOn(t *testing.T) {
	piped(t, func(x *Exchange) { _ = x.sendText(200, "ok") }, func(t *testing.T, c net.Conn) {
		answers := bufio.NewReader(c)
		for _, pause := range []time.Duration{0, 999 * time.Millisecond, monitorInterval + time.Millisecond, time.Second, 59 * time.Second, 59 * time.Second} {
			time.Sleep(pause)
			synctest.Wait()
			_, _ = io.WriteString(c, lined("GET / HTTP/1.1|Host: a||"))
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			now := time.Now()
			date, err := http.ParseTime(answer.Header.Get("Date"))
			if late := now.Add(-monitorInterval); err != nil || date.After(now) || date.Before(late.Truncate(time.Second)) {
				t.Errorf("Date %q at %v, %v", answer.Header.Get("Date"), now.UTC(), err)
			}
		}
	})
}
