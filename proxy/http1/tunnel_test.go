package http1

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
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

// A behindBalancer is a connection as the library of the PROXY protocol has it.
type behindBalancer struct{ net.Conn }

func (b behindBalancer) Raw() net.Conn { return b.Conn }

// One end of a tunnel that has said everything still hears the other, also behind a balancer.
func TestTunnels_OneEndMayBeDoneBeforeTheOther(t *testing.T) {
	client, ours := tcpPair(t)
	target, theirs := tcpPair(t)
	var tunnels Tunnels
	ended := make(chan bool)
	go func() {
		defer close(ended)
		tunnels.Run(TunnelEnd{Conn: behindBalancer{ours}}, TunnelEnd{Conn: theirs})
	}()
	target.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(client); len(rest) > 0 || err != nil {
		t.Errorf("the client reads %q, %v; want the end", rest, err)
	}
	io.WriteString(client, "more")
	client.(*net.TCPConn).CloseWrite()
	if said, err := io.ReadAll(target); string(said) != "more" || err != nil {
		t.Errorf("the target reads %q, %v; want all that the client says", said, err)
	}
	<-ended
}

// tcpPair returns both ends of a connection.
func tcpPair(t *testing.T) (dialed, accepted net.Conn) {
	t.Helper()
	l := sockettest.Listen(t)
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{dialed, accepted} {
		c.SetDeadline(time.Now().Add(await.Limit))
		t.Cleanup(func() { c.Close() })
	}
	return dialed, accepted
}
