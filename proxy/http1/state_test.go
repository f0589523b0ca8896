package http1

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/internal/socket"
	"github.com/weir-proxy/weir/test/rounds"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A storm is an upstream that does, request after request, whatever can happen to
// a connection, but for one thing that nobody could tell from an answer: what
// comes of itself while a request is under way. It says in each answer which request it belongs to, and notices
// when one comes before its time.
type storm struct {
	t      testing.TB
	early  atomic.Int64 // bytes of a request that came before the answer to the one before was whole
	served atomic.Int64
}

func (s *storm) serve(c net.Conn, r *bufio.Reader) {
	random := rand.New(rand.NewPCG(uint64(s.served.Add(1)), 7))
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		id := req.Header.Get("X-Id")
		early := random.IntN(8) == 0
		if !early {
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			if len(body) > 0 && !strings.HasPrefix(string(body), id+":") {
				s.t.Errorf("request %s arrived with the body of another: %.20q", id, body)
			}
			if r.Buffered() > 0 {
				s.early.Add(int64(r.Buffered()))
			}
		}
		answer := id + ":" + strings.Repeat("y", random.IntN(3)*random.IntN(20_000))
		length := fmt.Sprintf("Content-Length: %d\r\n", len(answer))
		switch random.IntN(14) {
		case 0: // nothing, and the end
			return
		case 1: // half an answer
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\n%s", length, answer[:len(answer)/2])
			return
		case 2: // too much
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\n%sHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", length, answer)
		case 3: // a body that must not be there
			fmt.Fprintf(c, "HTTP/1.1 304 Not Modified\r\n%s\r\n%s", length, answer)
		case 4: // until the end
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n\r\n%s", answer)
			return
		case 5, 6: // chunks, one of them late
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n%s\r\n", answer[:1])
			<-time.After(time.Millisecond)
			fmt.Fprintf(c, "%x\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n", len(answer)-1, answer[1:])
		case 7: // interim answers
			fmt.Fprintf(c, "HTTP/1.1 103 Early Hints\r\nX-Id: %s\r\n\r\nHTTP/1.1 200 OK\r\n%s\r\n%s", id, length, answer)
		case 8: // the end, announced
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n%s\r\n%s", length, answer)
			return
		case 9: // the end, not announced
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\n%s", length, answer)
			return
		case 10: // nonsense
			_, _ = io.WriteString(c, "HTTP/1.1 2000 OK\r\n\r\n")
			return
		default:
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\n%s", length, answer)
		}
		if early { // the rest of the request is owed
			_, _ = io.Copy(io.Discard, req.Body)
		}
	}
}

// Whatever upstream and clients do, each answer reaches the request that caused
// it, and no connection is kept that owes something or has something left.
func TestState_EachResponseReachesItsRequest(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		clients, each := 8, rounds.Of(50)
		up := &storm{t: t}
		p := proxyTo(t, sockettest.Upstream(t, up.serve), func(p *proxy) { p.server.HalfClose = AbortOnHalfClose })
		var right, failed atomic.Int64
		var all sync.WaitGroup
		for client := range clients {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(client), 3))
				var c net.Conn
				var r *bufio.Reader
				for i := range each {
					if c == nil {
						var err error
						if c, err = net.Dial("tcp", p.addr); err != nil {
							t.Error(err)
							return
						}
						_ = c.SetDeadline(time.Now().Add(soon))
						c = sockettest.ClientSide(t, c)
						r = bufio.NewReader(c)
					}
					switch exchange(t, c, r, random, strconv.Itoa(client*each+i)) {
					case kept:
						right.Add(1)
						continue
					case whole:
						right.Add(1)
					case lost:
						failed.Add(1)
					}
					c.Close()
					c = nil
				}
				if c != nil {
					c.Close()
				}
			})
		}
		all.Wait()
		if right.Load() < int64(clients*each/3) {
			t.Errorf("%d of %d came through; the test shows nothing", right.Load(), clients*each)
		}
		if n := up.early.Load(); n > 0 {
			t.Errorf("%d bytes of a next request came before an answer was whole", n)
		}
		for u := p.pool.pop(); u != nil; u = p.pool.pop() {
			if u.peerState() == socket.Readable {
				t.Error("a kept connection has bytes that nobody asked for")
			}
			u.close()
		}
	})
}

// How an exchange ended for its client.
const (
	kept = iota
	whole
	lost
)

// exchange makes one request, in one of many ways.
func exchange(t testing.TB, c net.Conn, r *bufio.Reader, random *rand.Rand, id string) int {
	body := id + ":" + strings.Repeat("x", random.IntN(3)*random.IntN(40_000))
	head := "POST /" + id + " HTTP/1.1\r\nHost: a\r\nX-Id: " + id + "\r\n"
	said := head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	switch random.IntN(8) {
	case 0, 1:
		said = "GET /" + id + " HTTP/1.1\r\nHost: a\r\nX-Id: " + id + "\r\n\r\n"
	case 2:
		said = head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	case 3: // a client that leaves
		_, _ = io.WriteString(c, said[:random.IntN(len(said))])
		return lost
	case 4: // in two pieces
		at := random.IntN(len(said))
		_, _ = io.WriteString(c, said[:at])
		<-time.After(time.Millisecond)
		said = said[at:]
	}
	sent := make(chan struct{})
	go func() { _, _ = io.WriteString(c, said); close(sent) }()
	defer func() { <-sent }()
	for {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			c.Close()
			return lost
		}
		got, err := io.ReadAll(res.Body)
		if res.StatusCode == 103 {
			if other := res.Header.Get("X-Id"); other != id {
				t.Errorf("request %s got the hints of %s", id, other)
			}
			continue
		}
		if strings.Contains(string(got), "evil") || res.StatusCode == 200 && !strings.HasPrefix(string(got), id[:min(len(id), len(got))]) ||
			err == nil && res.StatusCode == 200 && !strings.HasPrefix(string(got), id+":") {
			t.Errorf("request %s got %.40q", id, got)
		}
		if err != nil || res.Close {
			c.Close() // whoever still sends shall notice
		}
		switch {
		case err != nil || res.StatusCode != 200:
			return lost
		case res.Close:
			return whole
		}
		return kept
	}
}

// An obedient upstream does with each request what it says in X-Do, and counts what
// comes of a request before the answer to the one before is whole.
type obedient struct{ early atomic.Int64 }

// What an upstream can do. It knows no more ways than the eight there are in three bits.
const (
	doLength = iota
	doChunks
	doInterim
	doEarly     // answer before the body has come
	doMore      // say more than the answer
	doEnd       // end the connection after the answer, unannounced
	doCut       // end it within the answer
	doUntilEnds // end the answer by that
)

func (o *obedient) serve(c net.Conn, r *bufio.Reader) {
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		do, _ := strconv.Atoi(req.Header.Get("X-Do"))
		id := req.Header.Get("X-Id")
		if do != doEarly {
			if body, err := io.ReadAll(req.Body); err != nil || len(body) > 0 && !strings.HasPrefix(string(body), id+":") {
				return
			}
			o.early.Add(int64(r.Buffered()))
		}
		answer := id + ":" + strings.Repeat("y", 3000*(do%3))
		length := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
		switch do {
		case doChunks:
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n%s\r\n%x\r\n%s\r\n0\r\nX-Sum: 1\r\n\r\n", answer[:1], len(answer)-1, answer[1:])
		case doInterim:
			_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nX-Id: "+id+"\r\n\r\n"+length)
		case doMore:
			_, _ = io.WriteString(c, length+"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
		case doCut:
			_, _ = io.WriteString(c, length[:len(length)-1])
			return
		case doUntilEnds:
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"+answer)
			return
		default:
			_, _ = io.WriteString(c, length)
			if do == doEnd {
				return
			}
		}
		_, _ = io.Copy(io.Discard, req.Body)
	}
}

// An asking client makes the exchanges of a script over as few connections as it can.
type client struct {
	t       testing.TB
	p       *proxy
	conn    net.Conn
	r       *bufio.Reader
	pending []string // the requests that were sent and not answered yet
}

func (c *client) open() {
	if c.conn == nil {
		w := c.p.dial(c.t, "")
		c.conn, c.r = w.Conn, w.Reader
	}
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
	}
	c.conn, c.pending = nil, nil
}

// send sends one request as the step says: how the upstream answers, how it is framed,
// and how it is cut into pieces.
func (c *client) send(id string, step byte) {
	c.open()
	head := fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: a\r\nX-Id: %s\r\nX-Do: %d\r\n", id, id, step&7)
	body := id + ":" + strings.Repeat("x", 50*int(step>>3&1))
	var said string
	switch step >> 3 & 3 {
	case 0:
		said = strings.Replace(head, "POST", "GET", 1) + "\r\n"
	case 1:
		said = head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	case 2:
		said = head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nX-Sum: 1\r\n\r\n", len(body), body)
	case 3:
		body += strings.Repeat("z", 50_000)
		said = head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	at := len(said) * int(step>>5&1) / 3
	_, _ = io.WriteString(c.conn, said[:at])
	_, _ = io.WriteString(c.conn, said[at:])
	c.pending = append(c.pending, id)
}

// hear reads the answers to all that was sent, in order.
func (c *client) hear() {
	for c.conn != nil && len(c.pending) > 0 {
		id := c.pending[0]
		res, err := http.ReadResponse(c.r, nil)
		if err != nil {
			c.close()
			return
		}
		body, err := io.ReadAll(res.Body)
		if res.StatusCode == 103 {
			if res.Header.Get("X-Id") != id {
				c.t.Errorf("request %s got the hints of %s", id, res.Header.Get("X-Id"))
			}
			continue
		}
		c.pending = c.pending[1:]
		if strings.Contains(string(body), "evil") || res.StatusCode == 200 && (err == nil && !strings.HasPrefix(string(body), id+":") || !strings.HasPrefix(id+":", string(body[:min(len(body), len(id)+1)]))) {
			c.t.Errorf("request %s got %.40q", id, body)
		}
		if err != nil || res.Close {
			c.close()
		}
	}
}

// FuzzState plays scripts: each byte is an exchange, of which bits 0 to 2 say what the
// upstream does, 3 and 4 how the request is framed, 5 whether it comes in two pieces, 6
// whether the next one is sent before its answer is read, and 7 whether the client then
// leaves. If their number is odd, responses end in their handlers. Whatever they are, each answer reaches the request that caused it, nothing of
// an exchange goes out before the one before is complete, and no connection is kept
// that has bytes left or owes any.
func FuzzState(f *testing.F) {
	f.Add([]byte{0x00, 0x08, 0x10, 0x18, 0x20, 0x40, 0x48, 0x50, 0x00})
	f.Add([]byte{0x04, 0x00, 0x03, 0x1b, 0x00, 0x05, 0x08, 0x06, 0x00, 0x07, 0x02, 0x01})
	f.Add([]byte{0x44, 0x44, 0x40, 0x5b, 0x40, 0x80, 0x58, 0x98, 0x00, 0x4b, 0x13, 0x00})
	f.Add([]byte{0x45, 0x45, 0x00, 0x43, 0x4b, 0x00, 0x41, 0x52, 0x59, 0x08, 0xc0, 0x00, 0x46, 0x00})
	f.Fuzz(func(t *testing.T, script []byte) {
		up := &obedient{}
		p := proxyTo(t, sockettest.Upstream(t, up.serve), func(p *proxy) {
			p.server.HalfClose = AbortOnHalfClose
		})
		c := &client{t: t, p: p}
		defer c.close()
		for i, step := range script[:min(len(script), 40)] {
			c.send(strconv.Itoa(i), step)
			switch {
			case step&0x80 != 0:
				c.close()
			case step&0x40 == 0 || len(c.pending) > 4:
				c.hear()
			}
			p.pool.owesNothing(t)
		}
		c.hear()
		if n := up.early.Load(); n > 0 {
			t.Errorf("%d bytes of a next request came before an answer was whole", n)
		}
	})
}

// owesNothing checks that no kept connection is said to be in use, and that the last
// thing each has done is whole. A connection may be taken as soon as its list is free.
func (p *Pool) owesNothing(t testing.TB) {
	t.Helper()
	for i := range p.lists {
		p.lists[i].owesNothing(t)
	}
}

func (l *idleList) owesNothing(t testing.TB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, u := range l.idle {
		if slices.Contains(l.idle[:i], u) || !u.reused || u.attempt.request != nil || u.attempt.response != nil {
			t.Errorf("a kept connection is in use: %+v", u)
		}
	}
}
