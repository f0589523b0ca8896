package proxy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A bleeding counts what TestExchanges_NothingOfOthers has seen.
type bleeding struct {
	*testing.T
	exchanges                   int
	cutAnywhere                 func(token string) []byte // the beginning of a connection
	protocols                   http.Protocols
	foreign, done, aborted, cut atomic.Int64
}

func (b *bleeding) found(format string, args ...any) {
	if b.foreign.Add(1) <= 10 {
		b.Errorf(format, args...)
	}
}

// No byte of one client is in the request or in the response of another one, over any transport, while a
// quarter of the exchanges is aborted: clients, upstreams and connections end at every point, also before
// a request has begun.
func TestExchanges_NothingOfOthers(t *testing.T) {
	exchanges, err := strconv.Atoi(cmp.Or(os.Getenv("WEIR_EXCHANGES"), "500"))
	if err != nil {
		t.Fatal(err)
	}
	for _, over := range []struct {
		name, protocol string // as in ALPN
		secure         bool
		upstream       string
	}{
		{"h1", "http/1.1", false, "http1"}, {"h2c", "h2", false, "http1"}, {"h1 over TLS", "http/1.1", true, "http1"},
		{"h2 over TLS", "h2", true, "http1"}, {"h1 to h2c", "http/1.1", false, "h2c"}, {"h2c to h2c", "h2", false, "h2c"},
	} {
		t.Run(over.name, func(t *testing.T) {
			b := &bleeding{T: t, exchanges: exchanges, cutAnywhere: halfOfHTTP1}
			if over.protocol == "h2" {
				b.cutAnywhere = halfOfHTTP2
				b.protocols.SetHTTP2(true)
				b.protocols.SetUnencryptedHTTP2(true)
			} else {
				b.protocols.SetHTTP1(true)
			}
			f := startServer(t, forwardYAML("up", cleartext+"\nupstreams: {up: "+startVersion(t, over.upstream, b.upstream)+"}",
				"limits: [{key: {from: 'header:X-Key', on_missing: skip}, rate: 1/1h}]"))
			if over.secure {
				f.addr, f.client = f.listenTLS()
				f.client.NextProtos = []string{over.protocol}
			}
			b.play(f)
		})
	}
}

// play lets clients have their exchanges.
func (b *bleeding) play(f *testServer) {
	var next atomic.Int64
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			client := &http.Transport{Protocols: &b.protocols, DialContext: dialer(f, f.client), DialTLSContext: dialer(f, f.client)}
			defer client.CloseIdleConnections()
			var streams sync.WaitGroup
			for range 4 {
				streams.Go(func() {
					for i := next.Add(1); i <= int64(b.exchanges); i = next.Add(1) {
						token := fmt.Sprintf("%d-%d.", n, i)
						if rand.IntN(14) == 0 {
							b.cutShort(f, token)
						}
						b.exchange(f, client, token)
					}
				})
			}
			streams.Wait()
		})
	}
	all.Wait()
	b.Logf("%d exchanges, %d aborted, %d connections cut, %d foreign", b.done.Load(), b.aborted.Load(), b.cut.Load(), b.foreign.Load())
	if b.done.Load() < int64(b.exchanges/2) {
		b.Errorf("only %d exchanges were completed", b.done.Load())
	}
}

// dialer connects to f, with TLS if secure is set.
func dialer(f *testServer, secure *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", f.addr)
		if err != nil || secure == nil {
			return c, err
		}
		s := tls.Client(c, secure)
		return s, s.HandshakeContext(ctx)
	}
}

// isOf reports whether text is the beginning of a repeated token.
func isOf(text []byte, token string) bool {
	for len(text) > len(token) {
		if string(text[:len(token)]) != token {
			return false
		}
		text = text[len(token):]
	}
	return strings.HasPrefix(token, string(text))
}

// upstream answers with the token of the request. Some answers are early, some are cut. Nothing but
// the token may be in a request.
func (b *bleeding) upstream(w http.ResponseWriter, r *http.Request) {
	token := r.Header.Get("X-Token")
	w.Header().Set("X-Token", token)
	if strings.TrimPrefix(r.URL.Path, "/") != token && !strings.HasPrefix(token, "cut") {
		b.found("the path for %s is %.200q", token, r.URL.Path)
	}
	early := rand.IntN(16) == 0
	if !early {
		body, _ := io.ReadAll(r.Body) // may be cut
		if !isOf(body, token) {
			b.found("the body for %q is %.200q", token, body)
		}
	}
	if rand.IntN(8) == 0 {
		w.Header().Set("Link", token)
		w.WriteHeader(http.StatusEarlyHints)
	}
	answer := strings.Repeat(token, rand.IntN(800))
	if rand.IntN(16) == 0 {
		w.Header().Set("Content-Length", fmt.Sprint(len(answer)+1))
		_, _ = io.WriteString(w, answer)
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(w, answer)
}

// exchange has one exchange, which may be aborted.
func (b *bleeding) exchange(f *testServer, client *http.Transport, token string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if rand.IntN(3) == 0 {
		time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, cancel)
	}
	var body io.Reader
	if rand.IntN(2) == 0 {
		body = strings.NewReader(strings.Repeat(token, rand.IntN(8000)))
	}
	scheme := "http"
	if f.client != nil {
		scheme = "https"
	}
	r, _ := http.NewRequestWithContext(ctx, "POST", scheme+"://example.com/"+token, body)
	r.Header.Set("X-Token", token)
	if rand.IntN(8) == 0 {
		r.Header.Set("X-Key", "same")
	}
	answer, err := client.RoundTrip(r)
	if err != nil {
		b.aborted.Add(1)
		return
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK { // refused, or the upstream has cut it
		b.done.Add(1)
		return
	}
	if got := answer.Header.Get("X-Token"); got != token {
		b.found("the head for %s has %q", token, got)
	}
	text, err := io.ReadAll(answer.Body)
	if !isOf(text, token) {
		b.found("the response for %s is %.200q", token, text)
	}
	if err != nil {
		b.aborted.Add(1)
		return
	}
	b.done.Add(1)
}

// cutShort opens a connection that ends somewhere in its requests, some of which are not valid.
func (b *bleeding) cutShort(f *testServer, token string) {
	b.cut.Add(1)
	c, err := dialer(f, f.client)(context.Background(), "", "")
	if err != nil {
		b.Error(err)
		return
	}
	defer c.Close()
	if plain, ok := c.(*net.TCPConn); ok && rand.IntN(2) == 0 {
		_ = plain.SetLinger(0)
	}
	_, _ = c.Write(b.cutAnywhere("cut" + token))
	if rand.IntN(2) == 0 {
		_ = c.SetReadDeadline(time.Now().Add(time.Duration(rand.IntN(2000)) * time.Microsecond))
		_, _ = io.Copy(io.Discard, c)
	}
}

// halfOfHTTP1 is the beginning of some requests.
func halfOfHTTP1(token string) []byte {
	var all bytes.Buffer
	for range 1 + rand.IntN(3) {
		fmt.Fprintf(&all, "POST /%s HTTP/1.1\r\nHost: a\r\nX-Token: %s\r\n", token, token)
		body := strings.Repeat(token, rand.IntN(3000))
		if rand.IntN(2) == 0 {
			fmt.Fprintf(&all, "Content-Length: %d\r\n\r\n%s", len(body), body)
		} else {
			fmt.Fprintf(&all, "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nX-Token: %s\r\n\r\n", len(token), token, token)
		}
	}
	return all.Bytes()[:rand.IntN(all.Len()+1)]
}

// halfOfHTTP2 is a beginning of HTTP/2, with frames in any order.
func halfOfHTTP2(token string) []byte {
	var all bytes.Buffer
	all.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&all, nil)
	fr.AllowIllegalWrites = true
	fr.WriteSettings()
	head := encode(request("POST", "/"+token, "x-token", token)...)
	next := uint32(1)
	for range 1 + rand.IntN(12) {
		id := max(1, next-2*uint32(rand.IntN(4)))
		switch rand.IntN(12) {
		case 0, 1, 2, 3:
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: next, BlockFragment: head, EndHeaders: rand.IntN(8) > 0})
			next += 2
		case 4, 5, 6:
			fr.WriteData(id, rand.IntN(4) == 0, []byte(strings.Repeat(token, rand.IntN(600))))
		case 7:
			fr.WriteRSTStream(id, http2.ErrCodeCancel)
		case 8:
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: encode("x-sum", token), EndHeaders: true, EndStream: true})
		case 9:
			fr.WriteWindowUpdate(uint32(rand.IntN(3)), uint32(rand.IntN(1<<31)))
		case 10:
			fr.WriteRawFrame(http2.FrameType(rand.IntN(12)), http2.Flags(rand.IntN(256)), uint32(rand.IntN(4)), []byte(token))
		default:
			fr.WriteData(0, false, []byte(token))
		}
	}
	if rand.IntN(2) == 0 {
		return all.Bytes()
	}
	return all.Bytes()[:rand.IntN(all.Len()+1)]
}
