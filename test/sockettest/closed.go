package sockettest

import (
	"net/netip"
	"syscall"
	"testing"
)

// ClosedAddr returns an address at which connections are refused until the test ends. Its
// port is bound by a socket that does not listen, so that no other process gets it.
func ClosedAddr(t testing.TB) string {
	t.Helper()
	syscall.ForkLock.RLock() // no other program gets the socket; SOCK_CLOEXEC does not exist everywhere
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: loopback.As4()}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(loopback, uint16(at.(*syscall.SockaddrInet4).Port)).String()
}
