package redisstore_test

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/golden"
	"github.com/weir-proxy/weir/test/redistest"
)

// real is what a record has of the clock of this machine, by which Redis does not count here, of the identifiers of Redisson, of
// the log, which is written while requests are answered, and of the size of a log of permits: a single one is in fewer bytes if it was
// taken by a script call of its own, and calls at the same time are one or not.
var real = regexp.MustCompile(`(?m)^{"level".*\n|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d[\d.]*( UTC|Z|[+-]\d\d:\d\d)|\{[c7]\}" string \d+`)

// What happens with counts in Redis, and what lies there afterwards, is what was when the hashes were written.
func TestGolden_InRedis(t *testing.T) {
	client := connect(t, redistest.Start(t).Addr)
	ctx := context.Background()
	store := redisstore.NewWithTestClock(client, redisstore.Options{Timeout: patient})
	defer store.Close()
	golden.Compare(t, "redis", golden.Real, func(t *testing.T, file string, seed uint64) string {
		client.FlushAll(ctx)
		client.Set(ctx, redisstore.TestClock, int64(1_800_000_000_000), 0)
		record := golden.Record(t, file, seed, golden.Stand{
			Store: store,
			Settle: func() {
				for store.Flying() > 0 { // refunds and resets behind a response
					runtime.Gosched()
				}
			},
			Advance: func(d time.Duration) {
				if err := client.IncrBy(ctx, redisstore.TestClock, d.Milliseconds()).Err(); err != nil {
					t.Errorf("advance: %v", err)
				}
			},
			Keys: func() (keys []string) {
				for _, name := range client.Keys(ctx, "*").Val() {
					size := client.StrLen(ctx, name).Val()
					kind := client.Type(ctx, name).Val()
					if kind == "zset" {
						size = client.ZCard(ctx, name).Val()
					}
					keys = append(keys, fmt.Sprintf("%q %s %d", name, kind, size))
				}
				slices.Sort(keys)
				return keys
			},
		})
		return real.ReplaceAllString(record, "")
	})
}
