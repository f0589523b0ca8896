//go:build unix

package http1

import (
	"net"
	"testing"

	"github.com/weir-proxy/weir/test/await"
)

// What the other end of a connection does can be told without reading: by poll on
// Linux, and by peekPeer where poll does not distinguish a half-closed connection from
// one that was reset. peekPeer does not look behind bytes that have arrived.
func TestPeerState(t *testing.T) {
	if got := peerState(nil); got != PeerOpen {
		t.Errorf("no socket: got %d", got)
	}
	for name, c := range map[string]struct {
		does         func(theirs, ours *net.TCPConn)
		want, peeked PeerState
	}{
		"nothing":       {func(*net.TCPConn, *net.TCPConn) {}, PeerOpen, PeerOpen},
		"talks":         {func(theirs, _ *net.TCPConn) { _, _ = theirs.Write([]byte("x")) }, PeerReadable, PeerReadable},
		"sends no more": {func(theirs, _ *net.TCPConn) { _ = theirs.CloseWrite() }, PeerHalfClosed, PeerHalfClosed},
		"talks, and ends": {func(theirs, _ *net.TCPConn) {
			_, _ = theirs.Write([]byte("x"))
			_ = theirs.CloseWrite()
		}, PeerHalfClosed, PeerReadable},
		"resets":         {func(theirs, _ *net.TCPConn) { _ = theirs.SetLinger(0); theirs.Close() }, PeerReset, PeerReset},
		"we have closed": {func(_, ours *net.TCPConn) { ours.Close() }, PeerReset, PeerReset},
		"talks, and resets": {func(theirs, _ *net.TCPConn) {
			_, _ = theirs.Write([]byte("x"))
			_ = theirs.SetLinger(0)
			theirs.Close()
		}, PeerReset, PeerReadable},
		"has had all it sent": {func(theirs, ours *net.TCPConn) {
			_, _ = theirs.Write([]byte("x"))
			_, _ = ours.Read(make([]byte, 1))
		}, PeerOpen, PeerOpen},
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
		peeked := PeerReset
		_ = raw.Control(func(fd uintptr) { peeked = peekPeer(int(fd)) })
		if peeked != c.peeked {
			t.Errorf("%s: peekPeer says %d; want %d", name, peeked, c.peeked)
		}
		ours.Close()
		theirs.Close()
	}
}
