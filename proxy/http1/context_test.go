package http1

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

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
	if c.AfterFunc(func() { close(told) })() {
		t.Error("it was stopped")
	}
	if !closes(c.Done()) || !closes(told) || !errors.Is(c.Err(), context.Canceled) || !c.Observed() {
		t.Error("it does not say so")
	}
	if _, ok := c.Deadline(); ok || c.Value("x") != nil {
		t.Error("it has what it never got")
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

// What the other end of a connection does can be told without reading.
func TestPeerState(t *testing.T) {
	if got := peerState(nil); got != PeerOpen {
		t.Errorf("no socket: got %d", got)
	}
	for name, c := range map[string]struct {
		does func(theirs, ours *net.TCPConn)
		want PeerState
	}{
		"nothing":         {func(*net.TCPConn, *net.TCPConn) {}, PeerOpen},
		"talks":           {func(theirs, _ *net.TCPConn) { _, _ = theirs.Write([]byte("x")) }, PeerReadable},
		"sends no more":   {func(theirs, _ *net.TCPConn) { _ = theirs.CloseWrite() }, PeerHalfClosed},
		"talks, and ends": {func(theirs, _ *net.TCPConn) { _, _ = theirs.Write([]byte("x")); _ = theirs.CloseWrite() }, PeerHalfClosed},
		"resets":          {func(theirs, _ *net.TCPConn) { _ = theirs.SetLinger(0); theirs.Close() }, PeerReset},
		"we have closed":  {func(_, ours *net.TCPConn) { ours.Close() }, PeerReset},
		"talks, and resets": {func(theirs, _ *net.TCPConn) {
			_, _ = theirs.Write([]byte("x"))
			_ = theirs.SetLinger(0)
			theirs.Close()
		}, PeerReset},
		"has had all it sent": {func(theirs, ours *net.TCPConn) { _, _ = theirs.Write([]byte("x")); _, _ = ours.Read(make([]byte, 1)) }, PeerOpen},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ours, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		raw := rawSocketOf(ours)
		c.does(theirs.(*net.TCPConn), ours.(*net.TCPConn))
		await.Until(t, name, func() bool { return peerState(raw) == c.want })
		ours.Close()
		theirs.Close()
	}
}
