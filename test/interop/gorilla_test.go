package interop

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/weir-proxy/weir/test/await"
)

// A websocketPair is a WebSocket of gorilla's client to gorilla's server, through Weir.
type websocketPair struct {
	client, server *websocket.Conn
	answer         *http.Response
}

// openWebSocket opens a WebSocket, with a scheme of ws or wss, whose server is the test
// itself. The server sees to it that the client's Origin is the host that was asked,
// which is Weir.
func openWebSocket(t *testing.T, scheme string) websocketPair {
	t.Helper()
	up := websocket.Upgrader{EnableCompression: true, Subprotocols: []string{"two"}}
	servers := make(chan *websocket.Conn, 1)
	addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			t.Errorf("upgrade: %v", err)
			return
		}
		servers <- c
	}))
	d := startProxy(t, "routes: [{match: {path: /*}, upstream: 'http://"+addr+"', websocket: true, limits: [{key: global, rate: 1/1h}]}]\n")
	url, origin, roots := "ws://"+d.plain, "http://"+d.plain, x509.NewCertPool()
	if scheme == "wss" {
		url, origin = "wss://"+d.secure, "https://"+d.secure
		pem, err := os.ReadFile(d.ca)
		if err != nil || !roots.AppendCertsFromPEM(pem) {
			t.Fatalf("read %s: %v", d.ca, err)
		}
	}
	dialler := websocket.Dialer{
		EnableCompression: true, Subprotocols: []string{"one", "two"},
		TLSClientConfig: &tls.Config{RootCAs: roots}, HandshakeTimeout: enough,
	}
	client, answer, err := dialler.DialContext(t.Context(), url+"/talk", http.Header{"Origin": {origin}})
	if err != nil {
		t.Fatal(err)
	}
	server := <-servers
	for _, c := range []*websocket.Conn{client, server} {
		t.Cleanup(func() { c.Close() })
		c.SetReadDeadline(time.Now().Add(enough))
	}
	return websocketPair{client, server, answer}
}

// A message is what one end sends.
type message struct {
	kind int
	text []byte
}

// wantPassed sends a message from one to the other.
func wantPassed(t *testing.T, from, to *websocket.Conn, m message) {
	t.Helper()
	failed := make(chan error, 1)
	go func() { failed <- from.WriteMessage(m.kind, m.text) }()
	got, text, err := to.ReadMessage()
	if err != nil || got != m.kind || !bytes.Equal(text, m.text) {
		t.Fatalf("received %d bytes of kind %d, %v; want %d of kind %d", len(text), got, err, len(m.text), m.kind)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

func TestGorilla_MessagesBothWays(t *testing.T) {
	for _, scheme := range []string{"ws", "wss"} {
		c := openWebSocket(t, scheme)
		if c.client.Subprotocol() != "two" {
			t.Errorf("subprotocol %q; want two, which both speak", c.client.Subprotocol())
		}
		if got := c.answer.Header.Get("Sec-Websocket-Extensions"); got == "" {
			t.Error("no compression, which both offer")
		}
		for _, size := range []int{0, 1, 125, 126, 65535, 65536, 4 << 20} {
			wantPassed(t, c.client, c.server, message{websocket.BinaryMessage, bytes.Repeat([]byte{7}, size)})
			wantPassed(t, c.server, c.client, message{websocket.TextMessage, bytes.Repeat([]byte("é"), size/2)})
		}
	}
}

// The answer to a ping comes from the other end, not from Weir.
func TestGorilla_Ping(t *testing.T) {
	c := openWebSocket(t, "ws")
	pong := make(chan string, 1)
	c.client.SetPongHandler(func(text string) error { pong <- text; return nil })
	c.server.SetPingHandler(func(text string) error {
		return c.server.WriteControl(websocket.PongMessage, []byte(text+" yourself"), time.Now().Add(enough))
	})
	var reading sync.WaitGroup
	defer reading.Wait()
	for _, end := range []*websocket.Conn{c.client, c.server} {
		reading.Go(func() { end.ReadMessage() }) // who reads answers pings
		defer end.Close()
	}
	if err := c.client.WriteControl(websocket.PingMessage, []byte("ping"), time.Now().Add(enough)); err != nil {
		t.Fatal(err)
	}
	if got := await.Value(t, pong, "pong"); got != "ping yourself" {
		t.Errorf("pong %q", got)
	}
}

// Either end closes with a code and a reason, and the other is told both.
func TestGorilla_Close(t *testing.T) {
	for _, ends := range []func(websocketPair) (from, to *websocket.Conn){
		func(c websocketPair) (from, to *websocket.Conn) { return c.client, c.server },
		func(c websocketPair) (from, to *websocket.Conn) { return c.server, c.client },
	} {
		for code, reason := range map[int]string{websocket.CloseNormalClosure: "", websocket.CloseTryAgainLater: "later", 4242: "of our own"} {
			from, to := ends(openWebSocket(t, "wss"))
			if err := from.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(enough)); err != nil {
				t.Fatal(err)
			}
			_, _, err := to.ReadMessage() // which answers with the code
			if told, ok := err.(*websocket.CloseError); !ok || told.Code != code || told.Text != reason {
				t.Errorf("the other end reads %v; want code %d, %q", err, code, reason)
			}
			_, _, err = from.ReadMessage()
			if told, ok := err.(*websocket.CloseError); !ok || told.Code != code {
				t.Errorf("its own end reads %v; want code %d", err, code)
			}
		}
	}
}

// An end that goes without a word is noticed by the other.
func TestGorilla_CutOff(t *testing.T) {
	c := openWebSocket(t, "ws")
	c.client.NetConn().(*net.TCPConn).SetLinger(0)
	c.client.NetConn().Close()
	if _, _, err := c.server.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseAbnormalClosure) && !isReset(err) {
		t.Errorf("the server reads %v; want the end", err)
	}
	c = openWebSocket(t, "ws")
	c.server.NetConn().Close()
	if _, _, err := c.client.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseAbnormalClosure) && !isReset(err) {
		t.Errorf("the client reads %v; want the end", err)
	}
}

// isReset reports whether a connection ended otherwise than by waiting too long.
func isReset(err error) bool {
	late, ok := err.(net.Error)
	return ok && !late.Timeout()
}

// Without websocket: true the wish to upgrade is left out, and the server says
// so in its own way.
func TestGorilla_RefusedUpgrade(t *testing.T) {
	addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if websocket.IsWebSocketUpgrade(r) {
			t.Error("the wish has reached the server")
		}
		w.WriteHeader(http.StatusUpgradeRequired)
	}))
	d := startProxy(t, "routes: [{match: {path: /*}, upstream: 'http://"+addr+"'}]\n")
	_, answer, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://"+d.plain+"/talk", nil)
	if err != websocket.ErrBadHandshake || answer.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("dialled %v, %v; want 426", err, answer)
	}
}
