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
