package memory

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

// A key that is counted costs little, by what the system counts, garbage and tables
// included; and less where Redis counts and it is only kept for an outage.
func TestMemory_Keys(t *testing.T) {
	server := redistest.Start(t)
	for _, row := range []struct {
		store, yaml string
		most        int64 // bytes a key
		besides     int64 // bytes by which the process grows more or less, however many keys there are
	}{
		{"memory", "", 150, 0},
		{"redis", "store: redis\nredis: {addrs: ['" + server.Addr + "'], timeout: 5s}\n", 80, 1 << 20},
	} {
		t.Run(row.store, func(t *testing.T) {
			w := run(t, "echo", "{key: header:X-User, rate: 60/1h}", row.yaml)
			keys := min(rounds.Of(50_000), 400_000) // of the half a million that one source has for certain
			for range 10 {
				w.users(0, 5_000) // whatever grows once has grown
			}
			before := w.held()
			w.users(5_000, keys)
			grown := w.held() - before
			t.Logf("%d MiB before, %d more for %d keys: %d bytes each", before>>20, grown>>20, keys, grown/int64(keys))
			if grown > row.most*int64(keys)+row.besides {
				t.Errorf("%d bytes a key; want %d at most, and %d in all", grown/int64(keys), row.most, row.besides)
			}
		})
	}
}

// users sends one request for each of n users, from the given number on.
func (w *weir) users(from, n int) {
	w.Helper()
	const connections, together = 8, 50
	var sent sync.WaitGroup
	for c := range connections {
		sent.Go(func() {
			if err := w.pipeline(from+c*n/connections, n/connections, together); err != nil {
				w.Error(err)
			}
		})
	}
	sent.Wait()
	if w.Failed() {
		w.FailNow()
	}
}

// pipeline sends requests of n users over one connection, so many at a time.
func (w *weir) pipeline(from, n, together int) error {
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(enough))
	answers := bufio.NewReader(c)
	for sent := 0; sent < n; sent += together {
		var all strings.Builder
		for i := range together {
			fmt.Fprintf(&all, "GET /x HTTP/1.1\r\nHost: a\r\nX-User: user-%d\r\n\r\n", from+sent+i)
		}
		if _, err := io.WriteString(c, all.String()); err != nil {
			return err
		}
		for range together {
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				return err
			}
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("status %d", answer.StatusCode)
			}
		}
	}
	return nil
}
