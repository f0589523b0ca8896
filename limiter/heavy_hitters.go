package limiter

import (
	"cmp"
	"slices"
)

// HeavyHitters are the most frequent keys according to one or more sketches. It is
// immutable. Merge combines those of several periods or processes, with the same result
// in any order and grouping.
type HeavyHitters[K comparable, T any] struct {
	// Total is the number of observations.
	Total int64
	// Floor is the maximum count of a key that is not listed.
	Floor int64
	// Keys are the listed keys; they are sorted only after Top.
	Keys []HeavyHitter[K, T]
}

// A HeavyHitter is a key that was observed at most Count and at least Count-Error times.
type HeavyHitter[K comparable, T any] struct {
	Key          K
	Count, Error int64
	Value        T // associated data
}

// HeavyHitters returns the keys that have a counter.
func (s *Sketch[T]) HeavyHitters() HeavyHitters[Key, T] {
	h := HeavyHitters[Key, T]{Total: s.total, Keys: make([]HeavyHitter[Key, T], len(s.counters))}
	for i := range s.counters {
		c := &s.counters[i]
		h.Keys[i] = HeavyHitter[Key, T]{c.key, s.groups[c.group].count, c.maxError, c.value}
	}
	if s.evicted {
		h.Floor = s.groups[s.lowest].count
	}
	return h
}

// Merge returns the heavy hitters of both. A key that one of them does not list may have
// been observed up to Floor times there, so counts, errors and floors add up.
func (h HeavyHitters[K, T]) Merge(other HeavyHitters[K, T]) HeavyHitters[K, T] {
	out := HeavyHitters[K, T]{Total: h.Total + other.Total, Floor: h.Floor + other.Floor}
	out.Keys = make([]HeavyHitter[K, T], 0, len(h.Keys)+len(other.Keys))
	at := make(map[K]int, len(h.Keys))
	for i, k := range h.Keys {
		at[k.Key] = i
		k.Count, k.Error = k.Count+other.Floor, k.Error+other.Floor
		out.Keys = append(out.Keys, k)
	}
	for _, k := range other.Keys {
		if i, both := at[k.Key]; both {
			out.Keys[i].Count += k.Count - other.Floor
			out.Keys[i].Error += k.Error - other.Floor
			continue
		}
		k.Count, k.Error = k.Count+h.Floor, k.Error+h.Floor
		out.Keys = append(out.Keys, k)
	}
	return out
}

// Top returns the n most frequent keys, the most frequent first. Floor then covers the
// keys that were cut off too.
func (h HeavyHitters[K, T]) Top(n int) HeavyHitters[K, T] {
	h.Keys = slices.Clone(h.Keys)
	slices.SortStableFunc(h.Keys, func(a, b HeavyHitter[K, T]) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error))
	})
	if len(h.Keys) > n {
		h.Floor = max(h.Floor, h.Keys[n].Count)
		h.Keys = slices.Clip(h.Keys[:n])
	}
	return h
}
