package interop

import (
	"bytes"
	"io"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/weir-proxy/weir/test/await"
)

// dialled is a WebSocket to a server of handle, through Weir.
func dialled(t *testing.T, handle websocket.Handler) *websocket.Conn {
	t.Helper()
	addr := startPlain(t, "routes: [{match: {path: /*}, upstream: 'http://"+serve(t, handle)+"', websocket: true, limits: [{key: global, rate: 1/1h}]}]\n")
	c, err := websocket.Dial("ws://"+addr+"/chat?room=1", "", "http://"+addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(enough))
	return c
}

func TestWebSocket_Echo(t *testing.T) {
	c := dialled(t, func(ws *websocket.Conn) { io.Copy(ws, ws) })
	for _, size := range []int{0, 1, 125, 126, 127, 65535, 65536, 1 << 20} {
		sent := bytes.Repeat([]byte("é"), size/2)
		for _, codec := range []websocket.Codec{websocket.Message} {
			if err := codec.Send(c, sent); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes: %v; want them back", size, err)
		}
	}
}

func TestWebSocket_EitherSideMayClose(t *testing.T) {
	ended := make(chan error, 1)
	c := dialled(t, func(ws *websocket.Conn) {
		_, err := io.Copy(io.Discard, ws)
		ended <- err
	})
	c.Close()
	if err := await.Value(t, ended, "end that the server reads"); err != nil {
		t.Errorf("the server reads %v; want the end", err)
	}
	c = dialled(t, func(ws *websocket.Conn) { websocket.Message.Send(ws, "bye") })
	var got string
	if err := websocket.Message.Receive(c, &got); err != nil || got != "bye" {
		t.Errorf("received %q, %v", got, err)
	}
	if err := websocket.Message.Receive(c, &got); err != io.EOF {
		t.Errorf("received %v; want the end", err)
	}
}
