package http1

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A busyConn is a connection whose readers get a processor only some time after their deadline. If it is later by then, they
// read on, as the runtime has it.
type busyConn struct {
	net.Conn
	deadline atomic.Pointer[time.Time]
}

func (b *busyConn) SetReadDeadline(at time.Time) error {
	b.deadline.Store(&at)
	return b.Conn.SetReadDeadline(at)
}

func (b *busyConn) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if timedOut(err) {
		if time.Sleep(time.Millisecond); b.deadline.Load().After(time.Now()) {
			return b.Conn.Read(p)
		}
	}
	return n, err
}

// CloseWrite is not told the peer, which finds the end in what it reads.
func (b *busyConn) CloseWrite() error { return nil }

// Both ends of a tunnel that is told to end read why, also if one of them closes its connection before what comes from it is
// found to have ended.
func TestTunnels_BothEndsAreToldThatItGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, ours := net.Pipe()
		target, theirs := net.Pipe()
		var tunnels Tunnels
		go tunnels.Run(TunnelEnd{Conn: &busyConn{Conn: ours}}, TunnelEnd{Conn: &busyConn{Conn: theirs}})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		drained := make(chan bool)
		go func() {
			tunnels.Drain(ctx)
			close(drained)
		}()
		told := make(chan string)
		go func() {
			said, _ := io.ReadAll(client)
			told <- string(said)
		}()
		frame := make([]byte, len(maskedGoingAway()))
		if _, err := io.ReadFull(target, frame); err != nil || frame[0] != goingAway[0] {
			t.Errorf("the target reads %q, %v", frame, err)
		}
		target.Close()
		if said := <-told; said != goingAway {
			t.Errorf("the client reads %q, want %q", said, goingAway)
		}
		<-drained
	})
}
