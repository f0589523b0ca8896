package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A speaker speaks HTTP/2 frame by frame.
type speaker struct {
	*testing.T
	*http2.Framer
	conn net.Conn
}

// speaks opens a connection of HTTP/2 with prior knowledge.
func (t *testServer) speaks() *speaker {
	t.Helper()
	w := t.dial(http2.ClientPreface)
	s := &speaker{t.T, http2.NewFramer(w.Conn, w.Reader), w.Conn}
	s.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := s.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return s
}

// asks sends a request without a body, with pairs of names and values.
func (s *speaker) asks(stream uint32, fields ...string) {
	s.Helper()
	s.header(http2.HeadersFrameParam{StreamID: stream, BlockFragment: encode(fields...), EndHeaders: true, EndStream: true})
}

// begins sends the header of a request with pairs of names and values; a body follows.
func (s *speaker) begins(stream uint32, fields ...string) {
	s.Helper()
	s.header(http2.HeadersFrameParam{StreamID: stream, BlockFragment: encode(fields...), EndHeaders: true})
}

func (s *speaker) header(p http2.HeadersFrameParam) {
	s.Helper()
	if err := s.WriteHeaders(p); err != nil {
		s.Fatal(err)
	}
}

// encode is a header block that changes no table.
func encode(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true})
	}
	return b.Bytes()
}

// hears reads frames until want says that one is what is waited for.
func (s *speaker) hears(what string, want func(http2.Frame) bool) {
	s.Helper()
	for {
		frame, err := s.ReadFrame()
		if err != nil {
			s.Fatalf("no %s: %v", what, err)
		}
		if want(frame) {
			return
		}
	}
}

// status is how stream was answered: a status, or the code of RST_STREAM or
// GOAWAY.
func (s *speaker) status(stream uint32) (status string) {
	s.Helper()
	s.hears("answer", func(f http2.Frame) bool {
		if bye, ok := f.(*http2.GoAwayFrame); ok && bye.ErrCode != http2.ErrCodeNo {
			status = bye.ErrCode.String()
			return true
		}
		if f.Header().StreamID != stream {
			return false
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			status = f.PseudoValue("status")
		case *http2.RSTStreamFrame:
			status = f.ErrCode.String()
		}
		return status != ""
	})
	return status
}

// wants wants stream to be answered so.
func (s *speaker) wants(stream uint32, want string) {
	s.Helper()
	if got := s.status(stream); got != want {
		s.Errorf("stream %d: %s; want %s", stream, got, want)
	}
}

func request(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "http", ":authority", "a.example", ":path", path}, more...)
}

const cleartext = "listen: {h2c: true}"

func TestHTTP2_WithPriorKnowledgeWhereAllowed(t *testing.T) {
	f := startServer(t, forwardYAML("echo", cleartext, ""))
	s := f.speaks()
	s.asks(1, request("GET", "/x")...)
	s.wants(1, "200")
	f = startServer(t, forwardYAML("echo", "", ""))
	f.dial(http2.ClientPreface).WantStatus(505)
}

// What package http2 refuses, and what it leaves to the stages. Its tests have more of the former.
func TestHTTP2_MalformedRequestsAreNotForwarded(t *testing.T) {
	var forwarded atomic.Int64
	url := startUpstream(t, func(http.ResponseWriter, *http.Request) { forwarded.Add(1) })
	f := startServer(t, forwardYAML(url, cleartext, ""))
	for name, fields := range map[string][]string{
		"no length":                  request("POST", "/", "content-length", ""),
		"colon in a name":            request("POST", "/", "x:a", "1"),
		"NUL in a value":             request("POST", "/", "x-a", "1\x00"),
		"connection":                 request("POST", "/", "connection", "close"),
		"pseudo-field after a field": {":method", "POST", ":scheme", "http", ":path", "/", "x-a", "1", ":authority", "a"},
		"empty path":                 {":method", "GET", ":scheme", "http", ":authority", "a", ":path", ""},
		"line break in the path":     {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/\r\nX: 1"},
		"fragment":                   {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/x#1"},
		"fragment in the query":      {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/x?user=1#1"},
		"absolute form":              {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "http://b/x"},
		"empty authority":            {":method", "GET", ":scheme", "http", ":authority", "", ":path", "/"},
		"blank in the authority":     {":method", "GET", ":scheme", "http", ":authority", "a b", ":path", "/"},
		"slash in the authority":     {":method", "GET", ":scheme", "http", ":authority", "a/b", ":path", "/"},
	} {
		s := f.speaks()
		s.begins(1, fields...)
		s.WriteData(1, true, []byte("hello"))
		if got := s.status(1); got != "400" && got != "PROTOCOL_ERROR" {
			t.Errorf("%s: %s; want 400 or PROTOCOL_ERROR", name, got)
		}
		s.conn.Close()
	}
	if n := forwarded.Load(); n > 0 {
		t.Errorf("%d were forwarded; want none", n)
	}
	s := f.speaks()
	s.asks(1, request("GET", "/", "host", "a.example", "te", "trailers")...)
	s.wants(1, "200") // with nothing wrong
}

func TestHTTP2_DrainSaysGoAwayAndFinishes(t *testing.T) {
	began, let := make(chan bool), make(chan bool)
	url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		began <- true
		<-let
		io.WriteString(w, "at last")
	})
	f := startServer(t, forwardYAML(url, cleartext, ""))
	s := f.speaks()
	s.asks(1, request("GET", "/")...)
	await.Value(t, began, "request")
	drained := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), enough)
		defer cancel()
		drained <- f.server.Drain(ctx)
	}()
	s.hears("GOAWAY", func(fr http2.Frame) bool {
		bye, ok := fr.(*http2.GoAwayFrame)
		return ok && bye.ErrCode == http2.ErrCodeNo
	})
	close(let)
	s.wants(1, "200") // which was under way
	if err := await.Value(t, drained, "end of draining"); err != nil {
		t.Error(err)
	}
}

// A reader that gives no window for its stream, while its connection is alive.
func TestHTTP2_StalledStreamIsCut(t *testing.T) {
	failed := make(chan error, 1)
	url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { failed <- writeForever(w) })
	s := startServer(t, forwardYAML(url, "listen: {h2c: true, timeouts: {write: 300ms}}", "")).speaks()
	s.asks(1, request("GET", "/")...)
	s.hears("RST_STREAM", func(f http2.Frame) bool { _, ok := f.(*http2.RSTStreamFrame); return ok })
	if err := await.Value(t, failed, "end of the upstream's answer"); err == nil {
		t.Error("the upstream could write for ever")
	}
	s.asks(3, request("GET", "/")...)
	s.wants(3, "200")
}

func TestHTTP2_StalledBodyIsCut(t *testing.T) {
	s := startServer(t, forwardYAML("echo", "listen: {h2c: true, timeouts: {body: 300ms}}", "")).speaks()
	s.begins(1, request("POST", "/")...)
	s.WriteData(1, false, []byte("half"))
	s.wants(1, "408")
}

// A frame is no longer than one may be that nobody has agreed on (RFC 9113 section 4.2).
func TestHTTP2_FramesAreShort(t *testing.T) {
	const longestFrame = 16 << 10
	f := startServer(t, forwardYAML("echo", cleartext, ""))
	s := f.speaks()
	s.hears("SETTINGS", func(fr http2.Frame) bool {
		settings, ok := fr.(*http2.SettingsFrame)
		if !ok || settings.IsAck() {
			return false
		}
		if size, said := settings.Value(http2.SettingMaxFrameSize); said && size != longestFrame {
			t.Errorf("SETTINGS_MAX_FRAME_SIZE is %d; want %d", size, longestFrame)
		}
		return true
	})
	s.begins(1, request("POST", "/")...)
	s.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, longestFrame+1))
	s.wants(1, http2.ErrCodeFrameSize.String())
}

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
	s.wants(3, "429")
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

// What Weir answers itself does not open the tunnel, as any 2xx would do to the client (RFC 8441 section 4).
func TestHTTP2_WebSocketIsNotAnsweredWith2xx(t *testing.T) {
	s := startServer(t, "listen: {h2c: true}\nroutes: [{match: {path: /chat}, respond: {body: hello}}, {match: {path: /*}, redirect: {to: /chat}}]\n").speaks()
	s.begins(1, tunnel()...)
	s.wants(1, "400")
	s.begins(3, append(tunnel()[:8:8], ":path", "/other")...)
	s.wants(3, "307")
}

// A WebSocket over HTTP/2 that is left when the server has drained is closed with status 1001.
func TestHTTP2_WebSocketIsClosedInOrder(t *testing.T) {
	url := startWebSocket(t, func(key string) string { return key + webSocketGUID })
	f := startServer(t, forwardYAML(url, cleartext, "websocket: true"))
	s := f.speaks()
	s.begins(1, tunnel("sec-websocket-version", "13")...)
	s.wants(1, "200")
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
	if len(got) >= 8 && got[1] == 0x82 {
		got = append([]byte{got[0], 2, got[6] ^ got[2], got[7] ^ got[3]}, got[8:]...)
	}
	const closes = "\x88\x02\x03\xe9"
	if text := string(got); text != closes && text != closes+closes { // the client reads no further than the first
		t.Errorf("the last bytes are %q", got)
	}
}
