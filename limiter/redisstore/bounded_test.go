package redisstore_test

import (
	"bufio"
	"context"
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
)

// A server that announces more than it sends, in whatever it answers and from whatever answer on, costs no memory: the call
// fails and its connection is closed.
func TestStore_AllocatesNothingThatIsOnlyAnnounced(t *testing.T) {
	c := claim(5, time.Hour, 1)
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
				addr, ended := announcer(t, good, bad)
				client, err := redisstore.NewClient(redisstore.ClientConfig{Addrs: []string{addr}, Timeout: 5 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				store := redisstore.New(client, redisstore.Options{Timeout: 5 * time.Second})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if err := call(store); !errors.Is(err, limiter.ErrUnavailable) {
					t.Errorf("%s, %.20q after %d answers: %v", name, bad, good, err)
				}
				runtime.ReadMemStats(&after)
				if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 8 {
					t.Errorf("%s, %.20q after %d answers: %d MiB allocated", name, bad, good, grown)
				}
				store.Close()
				client.Close()
				ended()
			}
		}
	}
}

// announcer is a server that answers some commands of each connection, and to the next one announces something. It waits until
// the client closes the connection.
func announcer(t *testing.T, good int, bad string) (addr string, ended func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for n := 0; ; n++ {
					if _, err := in.ReadString('\n'); err != nil {
						return
					}
					for in.Buffered() > 0 { // the rest of a command, or of several
						_, _ = in.Discard(in.Buffered())
					}
					answer := "+OK\r\n"
					if n >= good {
						answer = bad
					}
					if _, err := io.WriteString(conn, answer); err != nil {
						return
					}
				}
			})
		}
	})
	return l.Addr().String(), func() {
		l.Close()
		done := make(chan struct{})
		go func() { all.Wait(); close(done) }()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		select {
		case <-done:
		case <-ctx.Done():
			t.Error("a connection is still open")
		}
	}
}
