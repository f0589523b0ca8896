//go:build unix

package socket

import (
	"net"
	"testing"

	"github.com/weir-proxy/weir/test/await"
)

// What the other end of a connection does can be told without reading: by poll on
// Linux, and by peekPeer where poll does not distinguish a half-closed connection from
// one that was reset. peekPeer does not look behind bytes that have arrived.
func TestPeerState(t *testing.T) {
	if got := (&Conn{}).State(); got != Open {
		t.Errorf("no socket: got %d", got)
	}
	for name, c := range map[string]struct {
		does         func(theirs, ours *net.TCPConn)
		want, peeked State
	}{
		"nothing":       {func(*net.TCPConn, *net.TCPConn) {}, Open, Open},
		"talks":         {func(theirs, _ *net.TCPConn) { _, _ = theirs.Write([]byte("x")) }, Readable, Readable},
		"sends no more": {func(theirs, _ *net.TCPConn) { _ = theirs.CloseWrite() }, HalfClosed, HalfClosed},
		"talks, and ends": {func(theirs, _ *net.TCPConn) {
			_, _ = theirs.Write([]byte("x"))
			_ = theirs.CloseWrite()
		}, HalfClosed, Readable},
		"resets":         {func(theirs, _ *net.TCPConn) { _ = theirs.SetLinger(0); theirs.Close() }, Reset, Reset},
		"we have closed": {func(_, ours *net.TCPConn) { ours.Close() }, Reset, Reset},
		"talks, and resets": {func(theirs, _ *net.TCPConn) {
			_, _ = theirs.Write([]byte("x"))
			_ = theirs.SetLinger(0)
			theirs.Close()
		}, Reset, Readable},
		"has had all it sent": {func(theirs, ours *net.TCPConn) {
			_, _ = theirs.Write([]byte("x"))
			_, _ = ours.Read(make([]byte, 1))
		}, Open, Open},
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
		conn := New(ours)
		c.does(theirs.(*net.TCPConn), ours.(*net.TCPConn))
		await.Until(t, name, func() bool { return conn.State() == c.want })
		peeked := Reset
		_ = conn.Raw.Control(func(fd uintptr) { peeked = peekPeer(int(fd)) })
		if peeked != c.peeked {
			t.Errorf("%s: peekPeer says %d; want %d", name, peeked, c.peeked)
		}
		ours.Close()
		theirs.Close()
	}
}
