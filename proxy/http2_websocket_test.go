package proxy

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/test/sockettest"
)

// startWebSocket starts an upstream that switches to WebSocket with this suffix of the key, and
// then sends back whatever it gets.
func startWebSocket(t *testing.T, accept func(key string) string) (url string) {
	t.Helper()
	addr := sockettest.Upstream(t, func(c net.Conn, from *bufio.Reader) {
		r, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		sum := sha1.Sum([]byte(accept(r.Header.Get("Sec-WebSocket-Key"))))
		if r.Method != "GET" || r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Connection") != "Upgrade" {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
			return
		}
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: chat\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			base64.StdEncoding.EncodeToString(sum[:]))
		io.Copy(c, from)
		c.(*net.TCPConn).CloseWrite()
	})
	return "http://" + addr
}

const webSocketGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

func tunnel(more ...string) []string {
	return append([]string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "a.example", ":path", "/chat"}, more...)
}

// WebSocket over HTTP/2 is an extended CONNECT (RFC 8441), which becomes an upgrade.
func TestHTTP2_WebSocket(t *testing.T) {
	url := startWebSocket(t, func(key string) string { return key + webSocketGUID })
	s := startServer(t, forwardYAML(url, cleartext, "websocket: true, limits: [{key: client_ip, rate: 1/1h}]")).speaks()
	s.hears("SETTINGS", func(f http2.Frame) bool {
		settings, ok := f.(*http2.SettingsFrame)
		if v, said := uint32(0), false; ok && !settings.IsAck() {
			if v, said = settings.Value(http2.SettingEnableConnectProtocol); !said || v != 1 {
				t.Error("the server does not say that it supports extended CONNECT")
			}
		}
		return ok
	})
	s.begins(1, tunnel("sec-websocket-version", "13")...)
	var fields string
	s.hears("head", func(f http2.Frame) bool {
		h, ok := f.(*http2.MetaHeadersFrame)
		if ok {
			for _, field := range h.Fields {
				fields += field.Name + "=" + field.Value + " "
			}
		}
		return ok
	})
	if !strings.HasPrefix(fields, ":status=200 ") || !strings.Contains(fields, "sec-websocket-protocol=chat ") || strings.Contains(fields, "accept") {
		t.Fatalf("answered %s", fields)
	}
	for _, text := range []string{"hello", "again"} {
		s.WriteData(1, false, []byte(text))
		got := ""
		s.hears("echo", func(f http2.Frame) bool {
			if d, ok := f.(*http2.DataFrame); ok {
				got += string(d.Data())
			}
			return len(got) >= len(text)
		})
		if got != text {
			t.Errorf("got %q; want %q", got, text)
		}
	}
	s.WriteData(1, true, nil)
	s.hears("end", func(f http2.Frame) bool { d, ok := f.(*http2.DataFrame); return ok && d.StreamEnded() })
	s.begins(3, tunnel()...)
	if got := s.status(3); got != "429" {
		t.Errorf("beyond the limit: %s; want 429", got)
	}
}

func TestHTTP2_WebSocketIsRefused(t *testing.T) {
	wrong := startWebSocket(t, func(key string) string { return key })
	plain := startUpstream(t, func(http.ResponseWriter, *http.Request) {})
	for name, c := range map[string]struct {
		url, route string
		fields     []string
		want       string
	}{
		"on a route without it":        {wrong, "websocket: false", tunnel(), "400"},
		"with another protocol":        {wrong, "websocket: true", []string{":method", "CONNECT", ":protocol", "connect-udp", ":scheme", "http", ":authority", "a", ":path", "/"}, "501"},
		"by a wrong handshake":         {wrong, "websocket: true", tunnel(), "502"},
		"by an upstream that has none": {plain, "websocket: true", tunnel(), "502"},
	} {
		s := startServer(t, forwardYAML(c.url, cleartext, c.route)).speaks()
		s.begins(1, c.fields...)
		if got := s.status(1); got != c.want {
			t.Errorf("%s: %s; want %s", name, got, c.want)
		}
	}
}

// A WebSocket over HTTP/2 that is left when the server has drained is closed with status 1001.
func TestHTTP2_WebSocketIsClosedInOrder(t *testing.T) {
	url := startWebSocket(t, func(key string) string { return key + webSocketGUID })
	f := startServer(t, forwardYAML(url, cleartext, "websocket: true"))
	s := f.speaks()
	s.begins(1, tunnel("sec-websocket-version", "13")...)
	if got := s.status(1); got != "200" {
		t.Fatalf("answered %s", got)
	}
	go f.drain()
	var got []byte
	s.hears("end", func(f http2.Frame) bool {
		d, ok := f.(*http2.DataFrame)
		if ok {
			got = append(got, d.Data()...)
		}
		return ok && d.StreamEnded()
	})
	// The upstream, which returns what it gets, may have been faster with the masked frame that it got.
	if len(got) == 8 && got[1] == 0x82 {
		got = []byte{got[0], 2, got[6] ^ got[2], got[7] ^ got[3]}
	}
	if string(got) != "\x88\x02\x03\xe9" {
		t.Errorf("the last bytes are %q", got)
	}
}
