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

// Merge returns the heavy hitters of all. A key that one of them does not list may have been
// observed up to Floor times there, so counts, errors and floors add up.
func (h HeavyHitters[K, T]) Merge(others ...HeavyHitters[K, T]) HeavyHitters[K, T] {
	var out HeavyHitters[K, T]
	size := len(h.Keys)
	for _, o := range others {
		size = max(size, len(o.Keys))
	}
	at := make(map[K]int, size)
	add := func(o HeavyHitters[K, T]) {
		for _, k := range o.Keys {
			i, known := at[k.Key]
			if !known {
				i = len(out.Keys)
				at[k.Key] = i
				out.Keys = append(out.Keys, HeavyHitter[K, T]{Key: k.Key, Value: k.Value})
			}
			out.Keys[i].Count += k.Count - o.Floor
			out.Keys[i].Error += k.Error - o.Floor
		}
		out.Total += o.Total
		out.Floor += o.Floor
	}
	add(h)
	for _, o := range others {
		add(o)
	}
	for i := range out.Keys {
		out.Keys[i].Count += out.Floor
		out.Keys[i].Error += out.Floor
	}
	return out
}

// Certain returns the keys that were observed at least twice as often as the error of their count.
// Floor then covers the others too.
func (h HeavyHitters[K, T]) Certain() HeavyHitters[K, T] {
	keys := h.Keys
	h.Keys = nil
	for _, k := range keys {
		if k.Count-k.Error < 2*k.Error {
			h.Floor = max(h.Floor, k.Count)
			continue
		}
		h.Keys = append(h.Keys, k)
	}
	return h
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
