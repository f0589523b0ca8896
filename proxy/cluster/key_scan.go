package cluster

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/weir-proxy/weir/limiter"
)

const (
	// scanCount is how many keys of Redis one call looks at, well below a
	// millisecond of its time; maxScanned how many are looked at in all.
	scanCount, maxScanned = 500, 100_000
	// maxCounted is how many counts are enough.
	maxCounted = 2_000
)

// A CountedKey is a limit's count of one key.
type CountedKey struct {
	Limit string // name of the limit in the store
	Key   limiter.Key
}

// Counted are those that Redis has under these limits: a sample, when whole is
// false, because there is more in Redis than one look is worth. It costs Redis up
// to 200 short calls, and changes nothing.
func (n *Node) Counted(ctx context.Context, limits map[string]bool) (all []CountedKey, whole bool, err error) {
	servers, err := NewSweep(n.rdb, n.store, 0, nil).servers(ctx)
	if err != nil {
		return nil, false, err
	}
	found := map[CountedKey]bool{}
	looked := 0
	for _, server := range servers {
		cursor := uint64(0)
		for {
			if looked >= maxScanned || len(found) >= maxCounted {
				return all, false, nil
			}
			keys, next, err := server.Scan(ctx, cursor, n.store+":{"+strings.Repeat("?", 2*len(limiter.Key{}))+"}:*", scanCount).Result()
			if err != nil {
				return nil, false, fmt.Errorf("look for counts: %w", err)
			}
			for _, key := range keys {
				if c, ok := parseCounted(strings.TrimPrefix(key, n.store+":")); ok && limits[c.Limit] && !found[c] {
					found[c] = true
					all = append(all, c)
				}
			}
			looked += scanCount
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return all, true, nil
}

// parseCounted reads {KEY}:ROUTE.LIMIT:WINDOW and what follows.
func parseCounted(text string) (c CountedKey, ok bool) {
	key, rest, ok := strings.Cut(strings.TrimPrefix(text, "{"), "}:")
	b, err := hex.DecodeString(key)
	if !ok || err != nil || len(b) != len(c.Key) {
		return c, false
	}
	name, rest, _ := strings.Cut(rest, ":")
	window, _, _ := strings.Cut(rest, ":")
	return CountedKey{name + ":" + window, limiter.Key(b)}, true
}
