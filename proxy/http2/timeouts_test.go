package http2

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A pipeClient is a client in a synctest bubble.
type pipeClient struct {
	*client
	server *Server
	began  time.Time
	writes chan func() // what is to be written: the frames of a pipe are read while they are written
	done   chan bool   // the test has ended
	all    sync.WaitGroup
}

// write writes until the test ends.
func (c *pipeClient) write() {
	for {
		select {
		case one := <-c.writes:
			one()
		case <-c.done:
			return
		}
	}
}

// every calls do n times, until the test ends.
func (c *pipeClient) every(d time.Duration, n int, do func(i int)) {
	c.all.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for i := range n {
			select {
			case <-tick.C:
				c.writes <- func() { do(i) }
			case <-c.done:
				return
			}
		}
	})
}

// inBubble runs a test with a server behind a pipe, whose timeouts are those of the standard
// configuration.
func inBubble(t *testing.T, h handler, test func(c *pipeClient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := &Server{Handler: h, Timeouts: http1.Timeouts{Header: 10 * time.Second, Write: 30 * time.Second, Idle: 2 * time.Minute}}
		ours, theirs := net.Pipe()
		served := make(chan bool)
		go func() {
			defer close(served)
			server.ServeConn(theirs, nil)
		}()
		c := &client{T: t, Conn: ours, Framer: http2.NewFramer(ours, ours), body: map[uint32][]byte{}}
		c.encoder = hpack.NewEncoder(&c.block)
		c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		p := &pipeClient{client: c, server: server, began: time.Now(), writes: make(chan func(), 100), done: make(chan bool)}
		p.all.Go(p.write)
		test(p)
		ours.Close()
		close(p.done)
		p.all.Wait()
		<-served
	})
}

// hello sends the preface.
func (c *pipeClient) hello() {
	c.writes <- func() {
		_, _ = io.WriteString(c.Conn, http2.ClientPreface)
		_ = c.WriteSettings()
	}
	c.until("acknowledgement", func(f http2.Frame) bool { s, ok := f.(*http2.SettingsFrame); return ok && s.IsAck() })
}

// endsAfter fails the test unless the connection ends after about so long.
func (c *pipeClient) endsAfter(want time.Duration) {
	c.Helper()
	var bye *http2.GoAwayFrame
	for {
		f, err := c.ReadFrame()
		if err != nil {
			break
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			bye = g
		}
	}
	if took := time.Since(c.began); took < want || took > want+want/4+2*drainWait {
		c.Errorf("the connection has ended after %v; want %v", took, want)
	}
	if bye == nil {
		c.Error("the connection has ended without GOAWAY")
	}
}

func TestTimeouts_NoPreface(t *testing.T) {
	inBubble(t, refusing(), func(c *pipeClient) {
		c.writes <- func() { _, _ = io.WriteString(c.Conn, http2.ClientPreface[:10]) }
		c.endsAfter(10 * time.Second)
	})
}

func TestTimeouts_IdleAlsoWithPings(t *testing.T) {
	for name, pings := range map[string]int{"silent": 0, "with pings": 20} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, refusing(), func(c *pipeClient) {
				c.hello()
				c.every(10*time.Second, pings, func(int) { _ = c.WritePing(false, [8]byte{}) })
				c.endsAfter(2 * time.Minute)
			})
		})
	}
}

func TestTimeouts_HeaderBlockThatDoesNotEnd(t *testing.T) {
	inBubble(t, refusing(), func(c *pipeClient) {
		c.hello()
		block := c.encode(get("/")...)
		c.writes <- func() { _ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:1]}) }
		c.every(3*time.Second, len(block)-1, func(i int) { _ = c.WriteContinuation(1, false, block[i+1:i+2]) })
		c.endsAfter(10 * time.Second)
	})
}

// A client that is silent while there is a request gets a PING, and has to acknowledge it.
func TestTimeouts_PingOfASilentClient(t *testing.T) {
	inBubble(t, handler{serve: func(s *Stream) { <-s.Context().Done() }}, func(c *pipeClient) {
		c.hello()
		c.writes <- func() { c.ask(1, get("/")...) }
		acknowledged := 0
		for acknowledged < 3 {
			c.until("PING", func(f http2.Frame) bool { p, ok := f.(*http2.PingFrame); return ok && !p.IsAck() })
			c.writes <- func() { _ = c.WritePing(true, [8]byte{}) }
			acknowledged++
		}
		c.began = time.Now()
		c.endsAfter(pingAfter + pingTimeout)
	})
}

// Shutdown lets requests end, and serves those that were on their way.
func TestShutdown_ServesWhatWasOnItsWay(t *testing.T) {
	began, let := make(chan bool, 1), make(chan bool)
	inBubble(t, handler{serve: func(s *Stream) {
		if s.Path == "/slow" {
			began <- true
			<-let
		}
		say(s, 200, s.Path)
	}}, func(c *pipeClient) {
		c.hello()
		c.writes <- func() { c.ask(1, get("/slow")...) }
		<-began
		ended := make(chan error)
		go func() { ended <- c.server.Shutdown(context.Background()) }()
		c.until("GOAWAY", func(f http2.Frame) bool { g, ok := f.(*http2.GoAwayFrame); return ok && g.LastStreamID == lastStream })
		c.writes <- func() { c.ask(3, get("/late")...) }
		c.wants(3, "200")
		close(let)
		c.wants(1, "200")
		c.began = time.Now()
		c.endsAfter(drainWait)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A client without requests that goes on sending frames does not hold up the end.
func TestShutdown_EndsAlsoWithPings(t *testing.T) {
	inBubble(t, handler{}, func(c *pipeClient) {
		c.hello()
		c.writes <- func() {
			for every := time.NewTicker(drainWait / 4); c.WritePing(false, [8]byte{}) == nil; {
				<-every.C
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*drainWait)
		defer cancel()
		go io.Copy(io.Discard, c.Conn)
		if err := c.server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestShutdown_AbortsWhatLastsTooLong(t *testing.T) {
	inBubble(t, handler{serve: func(s *Stream) { <-s.Context().Done() }}, func(c *pipeClient) {
		c.hello()
		c.writes <- func() { c.ask(1, get("/")...) }
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), pingAfter/2)
		defer cancel()
		ended := make(chan error)
		go func() { ended <- c.server.Shutdown(ctx) }()
		go io.Copy(io.Discard, c.Conn)
		if err := <-ended; err == nil {
			t.Error("no error")
		}
	})
}

// What the header blocks of responses say is what they were given.
func TestHeaderBlock_IsDecodedAsItWas(t *testing.T) {
	names := newNameTable()
	for status := 200; status < 600; status++ {
		fields, err := hpack.NewDecoder(4096, nil).DecodeFull(appendStatus(nil, status))
		if err != nil || len(fields) != 1 || fields[0].Name != ":status" || len(fields[0].Value) != 3 || fields[0].Value != string(statusText(status)) {
			t.Errorf("status %d is decoded as %v, %v", status, fields, err)
		}
	}
	for n := http1.Other; n <= http1.ProxyAuthorization; n++ {
		for _, value := range []string{"", "v", string(bytes.Repeat([]byte("v"), 126)), string(bytes.Repeat([]byte("v"), 127)), string(bytes.Repeat([]byte("v"), 100_000))} {
			f := http1.Field{ID: n, Name: "X-Other-Name", Value: value}
			want := "x-other-name"
			if n != http1.Other {
				want = string(bytes.ToLower([]byte(n.String())))
			}
			block, err := names.appendField(nil, f)
			fields, decodeErr := hpack.NewDecoder(4096, nil).DecodeFull(block)
			if ofConnection>>n&1 != 0 && n != http1.Other {
				if len(block) > 0 {
					t.Errorf("%v is sent", n)
				}
				continue
			}
			if err != nil || decodeErr != nil || len(fields) != 1 || fields[0].Name != want || fields[0].Value != value || fields[0].Sensitive != (n == http1.SetCookie) {
				t.Errorf("%s of %d bytes: %v, %v, %v", want, len(value), fields, err, decodeErr)
			}
		}
	}
	for _, bad := range []http1.Field{{Name: "a b", Value: "1"}, {Name: "", Value: "1"}, {Name: "a", Value: "1\r\n"}, {ID: http1.Via, Value: "\x00"}} {
		if _, err := names.appendField(nil, bad); err == nil {
			t.Errorf("%q is sent", bad)
		}
	}
}

func statusText(n int) []byte {
	return []byte{byte('0' + n/100), byte('0' + n/10%10), byte('0' + n%10)}
}

// A client that ignores a GOAWAY is served for a second, because it may not know of it yet. Then its new streams
// are refused, and it learns which one was the last (RFC 9113 section 6.8). What it had sent of them ends no other stream.
func TestShutdown_ANewStreamIsRefusedAfterAWhile(t *testing.T) {
	begun, goOn := make(chan bool), make(chan bool)
	f := startServer(t, handler{begin: func(s *Stream) bool {
		if s.Path == "/slow" {
			return true
		}
		say(s, 200, "ok")
		return false
	}, serve: func(s *Stream) { close(begun); <-goOn; say(s, 200, "late") }})
	c := f.dial()
	c.ask(1, get("/slow")...)
	<-begun // or the connection is idle, and closed
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- f.Shutdown(ctx) }()
	c.until("GOAWAY", func(f http2.Frame) bool { g, ok := f.(*http2.GoAwayFrame); return ok && g.LastStreamID == lastStream })
	c.ask(3, get("/")...)
	c.wants(3, "200")
	f.longAgo()
	c.begin(5, post("/")...)
	c.begin(7, post("/")...)
	for _, id := range []uint32{5, 7} { // the client does not know yet that both are refused
		c.data(id, "a")
		c.ask(id, "x-sum", "1")
	}
	c.until("GOAWAY with the last stream", func(f http2.Frame) bool { g, ok := f.(*http2.GoAwayFrame); return ok && g.LastStreamID == 3 })
	c.wants(5, "REFUSED_STREAM")
	c.wants(7, "REFUSED_STREAM")
	close(goOn)
	c.wants(1, "200")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// longAgo makes the connections as old as if they had announced their end long before.
func (t *testServer) longAgo() {
	for _, c := range t.conns.All() {
		c.mu.Lock()
		c.drainingSince = c.drainingSince.Add(-drainWait)
		c.mu.Unlock()
	}
}
