package redistest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Ran is how often a server has run a command, and for how long in all.
type Ran struct {
	Calls int
	Took  time.Duration
}

// Commands are those that the server of rdb has run since its statistics were reset, by their names.
func Commands(tb testing.TB, rdb redis.Cmdable) map[string]Ran {
	tb.Helper()
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		tb.Fatal(err)
	}
	all := map[string]Ran{}
	for line := range strings.Lines(info) {
		var calls, usec int
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if n, _ := fmt.Sscanf(rest, "calls=%d,usec=%d", &calls, &usec); n == 2 {
			all[name] = Ran{calls, time.Duration(usec) * time.Microsecond}
		}
	}
	return all
}

// Scripts are all script calls that it has run.
func Scripts(tb testing.TB, rdb redis.Cmdable) Ran {
	tb.Helper()
	all := Commands(tb, rdb)
	return Ran{all["eval"].Calls + all["evalsha"].Calls, all["eval"].Took + all["evalsha"].Took}
}

// Processor is how long the server of rdb has had a processor: that others have it as well does not count.
func Processor(tb testing.TB, rdb redis.Cmdable) (all time.Duration) {
	tb.Helper()
	info, err := rdb.Info(context.Background(), "cpu").Result()
	if err != nil {
		tb.Fatal(err)
	}
	for _, field := range []string{"\nused_cpu_sys:", "\nused_cpu_user:"} {
		var seconds float64
		_, rest, _ := strings.Cut(info, field)
		if _, err := fmt.Sscan(rest, &seconds); err != nil {
			tb.Fatal(err, info)
		}
		all += time.Duration(seconds * float64(time.Second))
	}
	return all
}

// ReadCommand reads a command of a client, an array of strings, as bytes and as words.
func ReadCommand(in *bufio.Reader) (raw []byte, words []string, err error) {
	line, err := in.ReadString('\n')
	if err != nil || line[0] != '*' {
		return nil, nil, fmt.Errorf("no command: %q %w", line, err)
	}
	raw = append(raw, line...)
	n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	for range n {
		if line, err = in.ReadString('\n'); err != nil {
			return nil, nil, err
		}
		size, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		word := make([]byte, size+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return nil, nil, err
		}
		raw = append(append(raw, line...), word...)
		words = append(words, string(word[:size]))
	}
	return raw, words, err
}
