package cluster

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/weir-proxy/weir/limiter"
)

const (
	// scanCount is the COUNT of a SCAN call, which takes Redis well below a
	// millisecond; maxScanned is the maximum number of keys scanned.
	scanCount, maxScanned = 500, 100_000
	// maxCounted is the maximum number of results.
	maxCounted = 2_000
)

// A CountedKey is a key that a limit has counts of.
type CountedKey struct {
	Limit string // ROUTE.LIMIT
	Key   limiter.Key
}

// Counted returns the keys in Redis that these limits have counts of. If whole is
// false, the result is a sample, because Redis has too many keys to scan. It
// costs up to 200 SCAN calls, and changes nothing.
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
