package node

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// listenOn opens a socket, as systemd does before it starts a node.
func listenOn(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// A socket that was passed is used under its name, and the address of the
// configuration for the others.
func TestSockets_PassedBeforeConfigured(t *testing.T) {
	passed := listenOn(t, "tcp", "127.0.0.1:0")
	s := sockets{inherited: map[string][]net.Listener{"http": {passed}}}
	l, err := s.open("http", "127.0.0.1:1")
	if err != nil || l.Addr().String() != passed.Addr().String() {
		t.Fatalf("http: %v, %v; want the socket that was passed", l, err)
	}
	other, err := s.open("admin", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	if err := s.closeUnused(); err != nil {
		t.Errorf("all are used: %v", err)
	}
}

func TestSockets_WhatIsWrongIsSaid(t *testing.T) {
	tcp := func() net.Listener { return listenOn(t, "tcp", "127.0.0.1:0") }
	for _, row := range []struct {
		passed map[string][]net.Listener
		want   string
	}{
		{map[string][]net.Listener{"https": {tcp()}}, "a socket named https, but nothing is served there; write FileDescriptorName=http, https or admin"},
		{map[string][]net.Listener{"http": {tcp(), tcp()}}, "passed 2 sockets named http"},
		{map[string][]net.Listener{"unknown": {nil}}, "named unknown"},
	} {
		s := sockets{inherited: row.passed}
		if len(row.passed["http"]) == 2 { // none of several is taken
			l, err := s.open("http", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
		}
		if err := s.closeUnused(); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v: %v; want %q", row.passed, err, row.want)
		}
		for _, all := range row.passed {
			for _, l := range all {
				if l == nil {
					continue
				}
				if _, err := l.Accept(); err == nil {
					t.Errorf("%s is still open", l.Addr())
				}
			}
		}
	}
}

func TestSockets_OnlyTCP(t *testing.T) {
	s := sockets{inherited: map[string][]net.Listener{"http": {listenOn(t, "unix", filepath.Join(t.TempDir(), "s"))}}}
	if _, err := s.open("http", ""); err == nil || !strings.Contains(err.Error(), "write host:port into ListenStream=") {
		t.Errorf("a unix socket: %v; want what to write", err)
	}
}

func TestSockets_TwoOnOneAddress(t *testing.T) {
	one, err := sockets{reusePort: true}.open("http", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := sockets{reusePort: true}.open("http", one.Addr().String())
	if err != nil {
		t.Fatalf("with listen.reuse_port: %v", err)
	}
	two.Close()
	if _, err := (sockets{}).open("http", one.Addr().String()); err == nil || !strings.Contains(err.Error(), "is another weir running?") {
		t.Errorf("without listen.reuse_port: %v", err)
	}
}

// An address that cannot be listened on is an error that names its field and what to do.
func TestSockets_ErrorNamesTheFieldAndTheCure(t *testing.T) {
	taken, err := sockets{}.open("http", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, field := range map[string]string{"http": "listen.http: ", "https": "listen.https: ", "admin": "admin.http: ", "admin_https": "admin.https: "} {
		if _, err := (sockets{}).open(name, taken.Addr().String()); err == nil || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%s: %v; want it to begin with %q", name, err, field)
		}
	}
	if _, err := (sockets{}).open("http", "192.0.2.1:0"); err == nil || !strings.HasSuffix(err.Error(), "no such address") {
		t.Errorf("an address of nobody: %v", err)
	}
	privileged := &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)} // root may listen on port 80
	if hint := listenHint(privileged); !strings.Contains(hint, "CAP_NET_BIND_SERVICE") || strings.Contains(hint, "another weir") {
		t.Errorf("port 80: %q", hint)
	}
}
