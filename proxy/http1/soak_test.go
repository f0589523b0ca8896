//go:build soak

package http1

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// TestSoak lets clients do everything at the same time, for as long as WEIR_SOAK says,
// half of them over TLS. test/soak/run runs it.
func TestSoak(t *testing.T) {
	lasts, err := time.ParseDuration(os.Getenv("WEIR_SOAK"))
	if err != nil {
		t.Fatalf("WEIR_SOAK: %v", err)
	}
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	var s soak
	for _, name := range []string{"plain", "tls"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var test testing.TB = t
			if name == "tls" {
				test = sockettest.NewSecured(t)
			}
			s.run(test, time.Now().Add(lasts))
		})
	}
	t.Cleanup(func() {
		s.report(t)
		defer func() {
			if t.Failed() {
				fmt.Fprintln(os.Stderr, "files:", openNames(t))
				_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			}
		}()
		await.Until(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= goroutines+1 })
		await.Until(t, "files are closed", func() bool {
			runtime.GC() // the pipes that package net keeps for splice(2) go with it
			return openFiles(t) <= files
		})
	})
}

// A soak counts what was done, by what it was.
type soak struct {
	mu    sync.Mutex
	count map[string]int
}

func (s *soak) did(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == nil {
		s.count = map[string]int{}
	}
	s.count[what]++
}

func (s *soak) report(t *testing.T) {
	for _, what := range slices.Sorted(maps.Keys(s.count)) {
		t.Logf("%8d %s", s.count[what], what)
	}
	for _, what := range []string{"small whole", "length whole", "chunks whole", "pipelined whole", "early whole", "upgrade whole", "slow whole", "left"} {
		if s.count[what] == 0 {
			t.Errorf("nothing was %s: this shows nothing", what)
		}
	}
}

// run lets twelve clients work until then.
func (s *soak) run(t testing.TB, until time.Time) {
	p := proxyTo(t, sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) { s.upstream(t, c, r) }), func(p *proxy) {
		p.server.HalfClose = AbortOnHalfClose
		p.server.Timeouts = Timeouts{Header: 2 * time.Second, Body: 2 * time.Second, Write: 5 * time.Second, Idle: 300 * time.Millisecond}
		p.client.IdleConnTimeout = 200 * time.Millisecond
		p.client.MaxIdleConns = 4
	})
	var clients sync.WaitGroup
	for n := range 12 {
		clients.Go(func() {
			c := &soaking{soak: s, t: t, p: p, random: rand.New(rand.NewPCG(uint64(n), uint64(until.UnixNano()))), name: strconv.Itoa(n)}
			for time.Now().Before(until) && !t.Failed() {
				c.connection()
			}
		})
	}
	clients.Wait()
}

// upstream answers each request with what it was: its id, and the sum of its body.
func (s *soak) upstream(t testing.TB, c net.Conn, r *bufio.Reader) {
	for {
		_ = c.SetDeadline(time.Now().Add(soon))
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		id, random := req.Header.Get("X-Id"), rand.IntN(30)
		switch req.URL.Path {
		case "/upgrade":
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+id+"\n")
			_, _ = io.Copy(c, r)
			return
		case "/early":
			_, _ = io.WriteString(c, answerOf(id, "", random))
			_, _ = io.Copy(io.Discard, req.Body)
			continue
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, req.Body); err != nil {
			return
		}
		if len(req.TransferEncoding) > 0 && req.Trailer.Get("X-Sum") != hex.EncodeToString(sum.Sum(nil)) {
			t.Errorf("the trailer of %s is another's: %v", id, req.Trailer)
		}
		answer := answerOf(id, hex.EncodeToString(sum.Sum(nil)), random)
		switch random {
		case 0:
			return
		case 1:
			_, _ = io.WriteString(c, answer[:len(answer)/2])
			return
		case 2:
			answer += "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
		case 3:
			answer = "HTTP/1.1 103 Early Hints\r\nX-Id: " + id + "\r\n\r\n" + answer
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// answerOf is an answer that says what it answers, and then more or less of it.
func answerOf(id, sum string, way int) string {
	body := id + ":" + sum + ":" + strings.Repeat(id+";", way*way*8)
	if way%2 == 0 {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Id: %s\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body)
	}
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Id: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nX-Sum: %s\r\n\r\n", id, len(body), body, id)
}

// A soaking client makes requests of all kinds, one connection after another.
type soaking struct {
	soak   *soak
	t      testing.TB
	p      *proxy
	random *rand.Rand
	name   string
	made   int
}

// connection uses one connection for as long as it holds.
func (s *soaking) connection() {
	raw, err := net.Dial("tcp", s.p.addr)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(soon))
	conn := sockettest.ClientSide(s.t, raw)
	r := bufio.NewReader(conn)
	for range 1 + s.random.IntN(20) {
		if !s.exchange(conn, r) {
			return
		}
	}
}

// exchange does one thing, and reports whether another can follow.
func (s *soaking) exchange(conn net.Conn, r *bufio.Reader) bool {
	switch s.random.IntN(10) {
	case 0, 1:
		said, id, sum := s.request("GET", "/", "small")
		return s.says(conn, said) && s.hears(r, "small", id, sum)
	case 2, 3:
		said, id, sum := s.request("POST", "/", "length")
		return s.speaks(conn, said, func() bool { return s.hears(r, "length", id, sum) })
	case 4:
		said, id, sum := s.request("POST", "/", "chunks")
		return s.speaks(conn, said, func() bool { return s.hears(r, "chunks", id, sum) })
	case 5:
		first, id1, sum1 := s.request("GET", "/", "small")
		second, id2, sum2 := s.request("GET", "/", "small")
		return s.says(conn, first+second) && s.hears(r, "pipelined", id1, sum1) && s.hears(r, "pipelined", id2, sum2)
	case 6:
		said, id, _ := s.request("POST", "/early", "length")
		return s.speaks(conn, said, func() bool { return s.hears(r, "early", id, "") })
	case 7:
		s.upgrades(conn, r)
		return false
	case 8:
		said, id, sum := s.request("POST", "/", "small length")
		for len(said) > 0 {
			n := min(len(said), 1+s.random.IntN(100))
			if !s.says(conn, said[:n]) {
				return false
			}
			said = said[n:]
			runtime.Gosched()
		}
		return s.hears(r, "slow", id, sum)
	default:
		said, _, _ := s.request("POST", "/", "chunks")
		s.says(conn, said[:s.random.IntN(min(len(said), 60_000))])
		s.soak.did("left")
		return false
	}
}

// request is a request, its id, and the sum that the upstream must find.
func (s *soaking) request(method, path, kind string) (said, id, sum string) {
	s.made++
	id = s.name + "-" + strconv.Itoa(s.made)
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: a\r\nX-Id: %s\r\nX-Pad: %s\r\n", method, path, id, strings.Repeat(id, s.random.IntN(40)))
	body := strings.Repeat(id+",", s.random.IntN(3)*s.random.IntN(20_000))
	if strings.HasPrefix(kind, "small") {
		body = strings.Repeat(id+",", s.random.IntN(50))
	}
	if method == "GET" {
		body = ""
	}
	of := sha256.Sum256([]byte(body))
	sum = hex.EncodeToString(of[:])
	switch {
	case method == "GET":
		return head + "\r\n", id, sum
	case kind == "chunks":
		var b strings.Builder
		b.WriteString(head + "Transfer-Encoding: chunked\r\n\r\n")
		for rest := body; rest != ""; {
			n := min(len(rest), 1+s.random.IntN(20_000))
			fmt.Fprintf(&b, "%x;a=b\r\n%s\r\n", n, rest[:n])
			rest = rest[n:]
		}
		return b.String() + "0\r\nX-Sum: " + sum + "\r\n\r\n", id, sum
	}
	return head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body), id, sum
}

func (s *soaking) says(conn net.Conn, said string) bool {
	_, err := io.WriteString(conn, said)
	return err == nil
}

// speaks says something while it hears the answer.
func (s *soaking) speaks(conn net.Conn, said string, hears func() bool) bool {
	sent := make(chan bool, 1)
	go func() { sent <- s.says(conn, said) }()
	heard := hears()
	if !heard {
		_ = conn.SetDeadline(pastTime()) // whoever still sends notices
	}
	return <-sent && heard
}

// hears reads one answer, and checks that it is the one to that request.
func (s *soaking) hears(r *bufio.Reader, what, id, sum string) bool {
	for {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			s.soak.did(what + " broken")
			return false
		}
		if other := res.Header.Get("X-Id"); other != id && (res.StatusCode == 200 || other != "") {
			s.t.Errorf("%s: %s got the answer to %q: %d", what, id, other, res.StatusCode)
		}
		body, err := io.ReadAll(res.Body)
		want := id + ":" + sum + ":"
		switch {
		case res.StatusCode == 103:
			continue
		case res.StatusCode != 200:
			s.soak.did(what + " " + strconv.Itoa(res.StatusCode))
			return err == nil && !res.Close
		case err != nil:
			s.soak.did(what + " cut")
			return false
		case !strings.HasPrefix(string(body), want) || strings.Trim(string(body[len(want):]), id+";") != "" || res.Trailer.Get("X-Sum") != "" && res.Trailer.Get("X-Sum") != id:
			s.t.Errorf("%s: %s got %.200q, trailer %v; want %q", what, id, body, res.Trailer, want)
		}
		s.soak.did(what + " whole")
		return !res.Close
	}
}

// upgrades opens a tunnel and talks through it.
func (s *soaking) upgrades(conn net.Conn, r *bufio.Reader) {
	s.made++
	id := s.name + "-" + strconv.Itoa(s.made)
	early := strings.Repeat(id+".", s.random.IntN(100))
	if !s.says(conn, "GET /upgrade HTTP/1.1\r\nHost: a\r\nX-Id: "+id+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+early) {
		return
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 101 {
		s.soak.did("upgrade refused")
		return
	}
	late := strings.Repeat(id+"!", s.random.IntN(5000))
	sent := make(chan bool, 1)
	go func() {
		ok := s.says(conn, late)
		sendsNoMore(conn)
		sent <- ok
	}()
	got, err := io.ReadAll(r)
	<-sent
	switch {
	case err == nil && string(got) == id+"\n"+early+late:
		s.soak.did("upgrade whole")
	case !strings.HasPrefix(id+"\n"+early+late, string(got)):
		s.t.Errorf("the tunnel of %s brought %.200q", id, got)
	default:
		s.soak.did("upgrade cut")
	}
}
