package limiter

import (
	"cmp"
	"slices"
)

// A Heavy is a list of the most frequent keys (heavy hitters) from one or several sketches.
// It is immutable. Merge combines the lists of several times or processes, in any order and
// grouping with the same result.
type Heavy[K comparable, T any] struct {
	// Total is the number of observations.
	Total int64
	// Floor is an upper bound for the count of a key that is not listed.
	Floor int64
	// Keys are unordered before Top.
	Keys []HeavyKey[K, T]
}

// A HeavyKey is a key that was observed at most Count times, and at least Count-Over times.
type HeavyKey[K comparable, T any] struct {
	Key         K
	Count, Over int64
	Value       T // data of the caller
}

// Heavy returns the current counts of s.
func (s *Sketch[T]) Heavy() Heavy[Key, T] {
	h := Heavy[Key, T]{Total: s.total, Keys: make([]HeavyKey[Key, T], len(s.counters))}
	for i := range s.counters {
		c := &s.counters[i]
		h.Keys[i] = HeavyKey[Key, T]{c.key, s.groups[c.group].count, c.over, c.value}
	}
	if s.evicted {
		h.Floor = s.groups[s.lowest].count
	}
	return h
}

// Merge combines h and other. A key that one of them does not list may have been observed
// there as often as its Floor: bounds and errors add up.
func (h Heavy[K, T]) Merge(other Heavy[K, T]) Heavy[K, T] {
	out := Heavy[K, T]{Total: h.Total + other.Total, Floor: h.Floor + other.Floor}
	out.Keys = make([]HeavyKey[K, T], 0, len(h.Keys)+len(other.Keys))
	at := make(map[K]int, len(h.Keys))
	for i, k := range h.Keys {
		at[k.Key] = i
		k.Count, k.Over = k.Count+other.Floor, k.Over+other.Floor
		out.Keys = append(out.Keys, k)
	}
	for _, k := range other.Keys {
		if i, both := at[k.Key]; both {
			out.Keys[i].Count += k.Count - other.Floor
			out.Keys[i].Over += k.Over - other.Floor
			continue
		}
		k.Count, k.Over = k.Count+h.Floor, k.Over+h.Floor
		out.Keys = append(out.Keys, k)
	}
	return out
}

// Top returns the n most frequent keys, in descending order. Floor bounds the counts of the
// others.
func (h Heavy[K, T]) Top(n int) Heavy[K, T] {
	h.Keys = slices.Clone(h.Keys)
	slices.SortStableFunc(h.Keys, func(a, b HeavyKey[K, T]) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Over, b.Over))
	})
	if len(h.Keys) > n {
		h.Floor = max(h.Floor, h.Keys[n].Count)
		h.Keys = slices.Clip(h.Keys[:n])
	}
	return h
}
