package cluster

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
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
// costs up to 200 SCAN calls, and changes nothing. Windows of one limit that share a
// string are returned together, although it may hold only some of them.
func (n *Node) Counted(ctx context.Context, limits map[string]bool) (all []CountedKey, whole bool, err error) {
	servers, err := NewSweep(n.rdb, n.store, 0, nil).servers(ctx)
	if err != nil {
		return nil, false, err
	}
	found, boxes := map[CountedKey]bool{}, boxesOf(limits)
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
				c, ok := parseCounted(strings.TrimPrefix(key, n.store+":"))
				if !ok {
					continue
				}
				for _, c.Limit = range boxes[c.Limit] {
					if !found[c] {
						found[c] = true
						all = append(all, c)
					}
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

// boxesOf lists limits by what names them in keys: the whole name, and what it has before
// its window, followed by a brace, in the name of a string that several windows share.
func boxesOf(limits map[string]bool) map[string][]string {
	all := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		all[name], all[name+"{"] = append(all[name], name), append(all[name+"{"], name)
		if i := strings.LastIndexByte(name, ':'); i > 0 {
			all[name[:i]+"{"] = append(all[name[:i]+"{"], name)
		}
	}
	return all
}

// parseCounted reads {KEY}:ROUTE.LIMIT:WINDOW and what follows, or {KEY}:BOX{LAYOUT}, of
// which Limit is BOX{: see boxesOf. Notes, BOX{n}, lie under subjects, which are not counted.
func parseCounted(text string) (c CountedKey, ok bool) {
	key, rest, ok := strings.Cut(strings.TrimPrefix(text, "{"), "}:")
	b, err := hex.DecodeString(key)
	if !ok || err != nil || len(b) != len(c.Key) {
		return c, false
	}
	if box, sign, packed := strings.Cut(rest, "{"); packed && !strings.HasSuffix(box, ":") {
		return CountedKey{box + "{", limiter.Key(b)}, sign != "n}"
	}
	name, rest, _ := strings.Cut(rest, ":")
	window, _, _ := strings.Cut(rest, ":")
	return CountedKey{name + ":" + window, limiter.Key(b)}, true
}
