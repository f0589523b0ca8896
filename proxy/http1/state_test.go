package http1

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
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
