package memory

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A speaker is a client that speaks HTTP/2 frame by frame.
type speaker struct {
	net.Conn
	*http2.Framer
}

// speak opens a connection of HTTP/2.
func (w *weir) speak() speaker {
	w.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	s := speaker{c, http2.NewFramer(c, c)}
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = s.WriteSettings()
	return s
}

// begin begins a request on a stream, in as many frames as it needs.
func (s speaker) begin(stream uint32, flags http2.Flags, more ...string) error {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	fields := append([]string{":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/x"}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	const most = 16 << 10
	err := s.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b.Next(most), EndHeaders: b.Len() == 0, EndStream: flags.Has(http2.FlagHeadersEndStream)})
	for b.Len() > 0 && err == nil {
		piece := b.Next(most)
		err = s.WriteContinuation(stream, b.Len() == 0, piece)
	}
	return err
}

// upload sends as much of a body as the windows allow, or until the server does not read any more.
func (s speaker) upload(stream uint32, bytes int) {
	_ = s.SetWriteDeadline(time.Now().Add(time.Second))
	for ; bytes > 0; bytes -= 16 << 10 {
		if s.WriteData(stream, false, make([]byte, min(bytes, 16<<10))) != nil {
			return
		}
	}
}

// deaf is an upstream that accepts connections and reads nothing.
func deaf(t *testing.T) string {
	t.Helper()
	return "http://" + sockettest.Upstream(t, func(c net.Conn, _ *bufio.Reader) {
		_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		<-t.Context().Done()
	})
}

// Clients that want memory over HTTP/2 get little of it, however many they are. -v prints a row each: connections,
// resident MiB before and at most, MiB of heap and stacks that are allowed and that are held after it.
func TestMemory_Floods(t *testing.T) {
	const buffered, window = 16 << 20, 1<<16 - 1
	hints := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Link", strings.Repeat("x", 20_000))
		for range 10_000 {
			rw.WriteHeader(http.StatusEarlyHints)
			if r.Context().Err() != nil {
				return
			}
		}
	}))
	t.Cleanup(hints.Close)
	for _, row := range []struct {
		name     string
		upstream string
		conns    int
		most     int64 // bytes for all connections together
		flood    func(s speaker)
	}{
		{"uploads that nobody reads", deaf(t), 400, 400*64<<10 + buffered, func(s speaker) {
			_ = s.begin(1, 0)
			s.upload(1, window)
		}},
		{"uploads of known length that nobody reads", deaf(t), 400, 400*64<<10 + buffered, func(s speaker) {
			_ = s.begin(1, 0, "content-length", "1048576")
			s.upload(1, window)
		}},
		{"interim responses that nobody reads", hints.URL, 2, 16 << 20, func(s speaker) {
			for i := range uint32(50) {
				_ = s.begin(2*i+1, http2.FlagHeadersEndStream)
			}
		}},
		{"idle after a large head", "echo", 400, 400*16<<10 + 8<<20, func(s speaker) {
			_ = s.begin(1, http2.FlagHeadersEndStream, "cookie", strings.Repeat("c", 30_000))
			for {
				if f, err := s.ReadFrame(); err != nil || f.Header().StreamID == 1 && f.Header().Flags.Has(http2.FlagDataEndStream) {
					return
				}
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := runRoutes(t, fmt.Sprintf("[{match: {path: /*}, upstream: '%s'}]\nlisten: {h2c: true, max_buffered: %dB, timeouts: {idle: 10m}, http: '127.0.0.1:0'}", row.upstream, buffered))
			before, _ := w.resident()
			held := w.held()
			var all sync.WaitGroup
			for range row.conns {
				s := w.speak()
				all.Go(func() { row.flood(s) })
			}
			all.Wait()
			var grown int64
			settled := func() bool { // what is read is read
				last := grown
				grown = w.held() - held
				return grown-last < 1<<20
			}
			await.Until(t, "the flood is over", settled)
			await.Within(t, enough, fmt.Sprintf("%d bytes at most", row.most), func() bool { // pools are emptied by and by
				grown = w.held() - held
				return grown <= row.most
			})
			_, most := w.resident()
			t.Logf("| %s | %d | %d | %d | %d | %d |", row.name, row.conns, before>>20, most>>20, row.most>>20, grown>>20)
		})
	}
}
