package redisstore_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A server that announces more than it sends, in whatever it answers and from whatever answer on, costs no memory: the call
// fails and its connection is closed.
func TestStore_AllocatesNothingThatIsOnlyAnnounced(t *testing.T) {
	c, a := claim(5, time.Hour, 1), newAnnouncer(t)
	store := storeOn(t, clientOf(t, redisstore.ClientConfig{Addrs: []string{a.Addr().String()}, Timeout: 5 * time.Second, BreakAfter: 1000}), redisstore.Options{Timeout: 5 * time.Second, CachedRefusals: -1})
	calls := map[string]func(s *redisstore.Store) error{
		"take": func(s *redisstore.Store) error { return s.Take(t.Context(), c, &limiter.Decision{}) },
		"peek": func(s *redisstore.Store) error { return s.Peek(t.Context(), c, &limiter.Decision{}) },
		"refund": func(s *redisstore.Store) error {
			return s.Refund(t.Context(), c, limiter.Permit{ID: [16]byte{1}, At: time.Now()})
		},
		"inspect": func(s *redisstore.Store) error { _, err := s.Inspect(t.Context(), c); return err },
		"check":   func(s *redisstore.Store) error { _, err := s.Check(t.Context()); return err },
	}
	for i, bad := range []string{"$2147483647\r\n", "*2147483647\r\n", "%1073741824\r\n", strings.Repeat("*1000000\r\n", 200), strings.Repeat("*1\r\n", 1<<17)} {
		for name, call := range calls {
			for j, good := range []int{0, 1, 3} {
				if name != "take" && (i+j+len(name))%3 > 0 { // the others share what reads answers
					continue
				}
				a.announce(good, bad)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if err := call(store); !errors.Is(err, limiter.ErrUnavailable) {
					t.Errorf("%s, %.20q after %d answers: %v", name, bad, good, err)
				}
				runtime.ReadMemStats(&after)
				if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 8 {
					t.Errorf("%s, %.20q after %d answers: %d MiB allocated", name, bad, good, grown)
				}
			}
		}
	}
}

// An announcer is a server that answers some commands of each connection, and to the next one announces something. It waits
// until the client closes the connection.
type announcer struct {
	net.Listener
	serving sync.WaitGroup

	mu    sync.Mutex // guards what follows
	good  int
	bad   string
	conns []net.Conn
}

func newAnnouncer(t *testing.T) *announcer {
	t.Helper()
	l := sockettest.Listen(t)
	a := &announcer{Listener: l}
	t.Cleanup(func() { l.Close(); a.serving.Wait() })
	a.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			a.mu.Lock()
			a.conns = append(a.conns, conn)
			good, bad := a.good, a.bad
			a.mu.Unlock()
			a.serving.Go(func() {
				defer conn.Close()
				answer(conn, good, bad)
			})
		}
	})
	return a
}

// announce cuts all connections, and has the next ones answered so.
func (a *announcer) announce(good int, bad string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.good, a.bad = good, bad
	for _, c := range a.conns {
		c.Close()
	}
	a.conns = nil
}

func answer(conn net.Conn, good int, bad string) {
	in := bufio.NewReader(conn)
	for n := 0; ; n++ {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		for in.Buffered() > 0 { // the rest of a command, or of several
			_, _ = in.Discard(in.Buffered())
		}
		said := "+OK\r\n"
		if n >= good {
			said = bad
		}
		if _, err := io.WriteString(conn, said); err != nil {
			return
		}
	}
}
