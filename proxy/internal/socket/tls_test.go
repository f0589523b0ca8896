package socket_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/weir-proxy/weir/proxy/internal/socket"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A read that would wait does not end a TLS connection: crypto/tls goes on after an error that is Temporary, which
// is deprecated. If a version of Go does not any more, connections of TLS are not reused.
func TestTLSConn_GoesOnAfterAReadThatWouldWait(t *testing.T) {
	if !socket.CanPoll {
		t.Log("connections are not polled here")
		return
	}
	secured := sockettest.NewSecured(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	server, client := socket.TLSServer(accepted, secured.Server), tls.Client(dialed, secured.Client)
	shaken := make(chan error, 1)
	go func() { shaken <- client.Handshake() }()
	if err := errors.Join(server.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	under := socket.New(server)
	buf := make([]byte, 10)
	for _, word := range []string{"one", "two"} {
		if under.HasBuffered() {
			t.Fatal("TLS holds bytes before there are any")
		}
		if _, err := io.WriteString(client, word); err != nil {
			t.Fatal(err)
		}
		if n, err := server.Read(buf); string(buf[:n]) != word || err != nil {
			t.Fatalf("read %q, %v; want %q", buf[:n], err, word)
		}
	}
}
