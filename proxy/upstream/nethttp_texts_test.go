package upstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// net/http exports no values for what a target does to a connection of HTTP/2, so that connectionClosed knows their
// texts. Real connections show that it knows those of this version of Go.
func TestConnectionClosed_KnowsTheErrorsOfNetHTTP(t *testing.T) {
	for name, end := range map[string]func(fr *http2.Framer, c net.Conn){
		"reset":      func(fr *http2.Framer, _ net.Conn) { _ = fr.WriteRSTStream(1, http2.ErrCodeInternal) },
		"GOAWAY":     func(fr *http2.Framer, c net.Conn) { _ = fr.WriteGoAway(1, http2.ErrCodeNo, nil); c.Close() },
		"closed":     func(_ *http2.Framer, c net.Conn) { c.Close() },
		"not a word": func(*http2.Framer, net.Conn) {}, // also no acknowledgement of PING
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := newTransport(Config{Protocol: H2C, ConnectTimeout: time.Second, ResponseTimeout: time.Hour}, nil)
				defer transport.CloseIdleConnections()
				transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
					client, server := net.Pipe()
					go serveBadly(server, end)
					return client, nil
				}
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a/", http.NoBody)
				_, err := transport.RoundTrip(r)
				if err == nil || !connectionClosed(err) {
					t.Errorf("%v is no end of a connection", err)
				}
			})
		})
	}
}

// serveBadly reads until a request has begun, and then does end. It reads on until the client closes.
func serveBadly(c net.Conn, end func(fr *http2.Framer, c net.Conn)) {
	defer c.Close()
	_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
	fr := http2.NewFramer(c, c)
	begun := make(chan bool, 1)
	go func() {
		_ = fr.WriteSettings()
		if <-begun {
			end(fr, c)
		}
	}()
	defer close(begun)
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return
		}
		if _, ok := f.(*http2.HeadersFrame); ok {
			begun <- true
		}
	}
}
