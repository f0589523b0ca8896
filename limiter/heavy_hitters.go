package limiter

import (
	"cmp"
	"slices"
)

// A HeavyHitters is what one or more sketches say: the keys that were seen most often. It does
// not change. Those of several times, or of several processes, are put together by
// Merge, in any order and grouping with the same result.
type HeavyHitters[K comparable, T any] struct {
	// Total is how many observations there were.
	Total int64
	// Floor is how often a key that is not listed may have been seen.
	Floor int64
	// Keys are in no order before Top.
	Keys []HeavyHitter[K, T]
}

// A HeavyHitter is a key that was seen at most Count times, and at least Count-Over times.
type HeavyHitter[K comparable, T any] struct {
	Key          K
	Count, Error int64
	Value        T // what goes with the key
}

// HeavyHitters is what s says now.
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

// Merge is what is known of both together. A key that one of them does not list may
// have been seen there as often as its Floor says: bounds add up, and so do errors.
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

// Top is the n keys of which most were seen, these first. Floor tells of the others.
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
