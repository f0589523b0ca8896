package redistest

import (
	"context"
	"fmt"
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
