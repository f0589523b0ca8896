package redistest

import (
	"net"
	"testing"
)

// A test's server may use its port for UDP as for TCP, and again when it has ended.
func TestFreePort_IsFreeForBoth(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		port := FreePort(t)
		if seen[port] {
			t.Fatalf("port %d is given away twice", port)
		}
		seen[port] = true
		for range 2 {
			p, err := net.ListenPacket("udp", local(port))
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", local(port))
			if err != nil {
				t.Fatal(err)
			}
			p.Close()
			l.Close()
		}
	}
}

// What somebody else listens on is not free.
func TestFreePort_SeesBoth(t *testing.T) {
	p, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if free(p.LocalAddr().String()) || free(l.Addr().String()) {
		t.Error("a port that is listened on passes for free")
	}
}
