package proxy

import (
	"cmp"
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

// maxTopKeysCounted is the maximum number of keys of a limit that are counted at a time.
const maxTopKeysCounted = 1 << 15

// topKeys counts the refusals of each key. If there are too many keys, the half with the fewest
// refusals is removed. A count is then too low by at most maxError.
type topKeys struct {
	counts   map[limiter.Key]*ReplayKey
	maxError int64
}

func newTopKeys() *topKeys { return &topKeys{counts: map[limiter.Key]*ReplayKey{}} }

// add counts one refusal. label is called once for each key.
func (t *topKeys) add(k limiter.Key, label func() string) {
	c := t.counts[k]
	if c == nil {
		if len(t.counts) >= maxTopKeysCounted {
			t.evict()
		}
		c = &ReplayKey{Key: label()}
		t.counts[k] = c
	}
	c.Refused++
}

// evict removes keys. A removed key that returns starts at 0. Each time, its count may lack at
// most the largest count that was removed.
func (t *topKeys) evict() {
	counts := make([]int64, 0, len(t.counts))
	for _, c := range t.counts {
		counts = append(counts, c.Refused)
	}
	slices.Sort(counts)
	median := counts[len(counts)/2]
	for k, c := range t.counts {
		if c.Refused <= median {
			delete(t.counts, k)
		}
	}
	t.maxError += median
}

// first returns the n keys with the most refusals.
func (t *topKeys) first(n int) (keys []ReplayKey, lost int64) {
	keys = []ReplayKey{}
	for _, c := range t.counts {
		keys = append(keys, *c)
	}
	slices.SortFunc(keys, func(a, b ReplayKey) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Key, b.Key))
	})
	return keys[:min(n, len(keys))], t.maxError
}
