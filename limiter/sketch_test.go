package limiter

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-proxy/weir/test/rounds"
)

func numbered(n int) (k Key) {
	binary.BigEndian.PutUint64(k[:8], uint64(n)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(k[8:], uint64(n))
	return k
}

// sketched counts keys by a sketch and exactly.
func sketched(k int, keys []int) (*Sketch[int], map[Key]int64) {
	s, exact := NewSketch[int](k), map[Key]int64{}
	for _, n := range keys {
		if fresh := s.Observe(numbered(n)); fresh != nil {
			*fresh = n
		}
		exact[numbered(n)]++
	}
	return s, exact
}

// promised checks h against what was counted exactly; error is how wrong a count may be.
func promised(t interface{ Fatalf(string, ...any) }, h HeavyHitters[Key, int], exact map[Key]int64, most int64) {
	var total int64
	for _, n := range exact {
		total += n
	}
	if h.Total != total || h.Floor > most {
		t.Fatalf("total %d and floor %d; want %d, and at most %d", h.Total, h.Floor, total, most)
	}
	listed := map[Key]bool{}
	for _, k := range h.Keys {
		if listed[k.Key] {
			t.Fatalf("%v is listed twice", k.Key)
		}
		listed[k.Key] = true
		if n := exact[k.Key]; k.Count < n || k.Count-k.Error > n || k.Error > most || k.Error < 0 {
			t.Fatalf("%+v was seen %d times; want at most %d, at least %d, and an error of at most %d", k, n, k.Count, k.Count-k.Error, most)
		}
		if numbered(k.Value) != k.Key {
			t.Fatalf("with %v goes what belongs to another key", k.Key)
		}
	}
	for k, n := range exact {
		if !listed[k] && n > h.Floor {
			t.Fatalf("a key that was seen %d times is not listed, above a floor of %d", n, h.Floor)
		}
	}
}

// sound checks the structure itself.
func (s *Sketch[T]) sound(t interface{ Fatalf(string, ...any) }) {
	sum := int64(0)
	for place, c := range s.order {
		if place > 0 && s.order[place-1].count < c.count {
			t.Fatalf("a count of %d at %d is behind a lower one", c.count, place)
		}
		counter := &s.counters[c.counter]
		if c.count < 1 || counter.place != place || s.find(&counter.key, s.hashOf(c.counter)).item != c.counter+1 {
			t.Fatalf("counter %d counts %d, is at another place, or not found", c.counter, c.count)
		}
		sum += c.count
	}
	filled := 0
	for _, at := range s.index.slots {
		if at != 0 {
			filled++
		}
	}
	if len(s.order) != len(s.counters) || filled != len(s.counters) || sum != s.total {
		t.Fatalf("%d counts and %d slots for %d counters; counts of %d for %d", len(s.order), filled, len(s.counters), sum, s.total)
	}
}

// drawn are observations: of few keys or many, skewed or not.
func drawn(t *rapid.T, name string) []int {
	kinds := rapid.IntRange(1, 60).Draw(t, name+" kinds")
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) int {
		n := rapid.IntRange(0, kinds*kinds).Draw(t, "key")
		return int(math.Sqrt(float64(n)))
	}), 0, 400).Draw(t, name)
}

func TestSketch_KeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 20).Draw(t, "k")
		keys := drawn(t, "keys")
		s, exact := sketched(k, keys)
		s.sound(t)
		h := s.HeavyHitters()
		promised(t, h, exact, int64(len(keys)/k))
		if len(h.Keys) > k {
			t.Fatalf("%d counters of %d", len(h.Keys), k)
		}
		if len(exact) <= k {
			promised(t, h, exact, 0) // with room for all, all is exact
		}
		s.Clear()
		s.sound(t)
		s.Observe(numbered(1))
		s.sound(t)
		if h := s.HeavyHitters(); h.Total != 1 || len(h.Keys) != 1 || h.Keys[0].Error != 0 {
			t.Fatalf("%+v after it was cleared", h)
		}
	})
}

// However sketches are put together, the bounds hold, and it comes to the same.
func TestHeavy_MergesInAnyOrder(t *testing.T) {
	sorted := func(h HeavyHitters[Key, int]) string {
		slices.SortFunc(h.Keys, func(a, b HeavyHitter[Key, int]) int { return cmp.Compare(a.Value, b.Value) })
		return fmt.Sprint(h)
	}
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 12).Draw(t, "k")
		exact, most := map[Key]int64{}, int64(0)
		var all [3]HeavyHitters[Key, int]
		for i, name := range []string{"a", "b", "c"} {
			keys := drawn(t, name)
			s, counted := sketched(k, keys)
			for key, n := range counted {
				exact[key] += n
			}
			most += int64(len(keys) / k)
			all[i] = s.HeavyHitters()
		}
		a, b, c := all[0], all[1], all[2]
		left, right := a.Merge(b).Merge(c), a.Merge(b.Merge(c))
		promised(t, left, exact, most)
		if got, want := sorted(right), sorted(left); got != want {
			t.Fatalf("a(bc) is %s; want %s as (ab)c", got, want)
		}
		if got, want := sorted(c.Merge(a).Merge(b)), sorted(left); got != want {
			t.Fatalf("(ca)b is %s; want %s as (ab)c", got, want)
		}
		if got, want := sorted(left.Merge(HeavyHitters[Key, int]{})), sorted(left); got != want {
			t.Fatalf("with nothing %s; want %s", got, want)
		}
		if got, want := sorted(a.Merge(b, c)), sorted(left); got != want {
			t.Fatalf("all at once %s; want %s", got, want)
		}
		certain := left.Certain()
		promised(t, certain, exact, max(most, certain.Floor))
		for _, h := range certain.Keys {
			if exact[h.Key] < 2*h.Error {
				t.Fatalf("%+v is listed, and was there %d times", h, exact[h.Key])
			}
		}
		n := rapid.IntRange(0, 40).Draw(t, "n")
		top := left.Top(n)
		promised(t, top, exact, max(most, top.Floor))
		if len(top.Keys) > n || !slices.IsSortedFunc(top.Keys, func(a, b HeavyHitter[Key, int]) int { return cmp.Compare(b.Count, a.Count) }) {
			t.Fatalf("%d keys of %d, or in no order", len(top.Keys), n)
		}
		again := top.Merge(top) // bounds hold of what was cut, too
		for key, n := range exact {
			exact[key] = 2 * n
		}
		promised(t, again, exact, math.MaxInt64)
	})
}

// Slices that are over are forgotten in time, and what is late is not lost.
func TestTopKeys_KnowsTheLastSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const known = 4
		k := rapid.IntRange(1, 10).Draw(t, "k")
		stripes := rapid.IntRange(1, 3).Draw(t, "stripes")
		top := NewTopKeys[int](k, known, stripes)
		top.isBusy.Store(true)
		exact, now := map[int64][]int{}, int64(0)
		for range rapid.IntRange(0, 12).Draw(t, "slices") {
			now += int64(rapid.IntRange(0, 3).Draw(t, "later"))
			for i, n := range drawn(t, "keys") {
				at := now
				if i > 0 && n == 3 {
					at -= 2 // late
				}
				top.Observe(rapid.IntRange(0, stripes-1).Draw(t, "stripe"), at, numbered(n), func(v *int) { *v = n })
				exact[now] = append(exact[now], n)
			}
		}
		for n := range known + 3 {
			want, most := map[Key]int64{}, int64(0)
			for number := now - int64(min(n, known)) + 1; number <= now; number++ {
				for _, key := range exact[number] {
					want[numbered(key)]++
				}
				most += int64(len(exact[number]) / k)
			}
			promised(t, top.Last(now, n), want, most)
		}
		if h := top.Last(now+known, known); h.Total != 0 {
			t.Fatalf("%+v when all of it is old", h)
		}
	})
}

// Of 20 keys 4 have a counter until the size is changed, and all of them in the slices after that.
func TestTopKeys_Resize(t *testing.T) {
	top := NewTopKeys[int](2, 3, 1)
	observe := func(slice int64) {
		t.Helper()
		for n := range 20 {
			top.Observe(0, slice, numbered(n), func(v *int) { *v = n })
		}
	}
	top.Resize(4)
	observe(0)
	top.Resize(20)
	observe(0)
	if h := top.Last(0, 1); h.Total != 40 || len(h.Keys) != 4 || h.Floor == 0 {
		t.Errorf("%d observations of %d keys; want 4 counters in the slice that had begun", h.Total, len(h.Keys))
	}
	observe(1)
	if h := top.Last(1, 1); h.Total != 20 || len(h.Keys) != 20 || h.Floor != 0 {
		t.Errorf("%d observations of %d keys; want all 20 in the next slice", h.Total, len(h.Keys))
	}
	if h := top.Last(1, 2); h.Total != 60 || len(h.Keys) != 20 {
		t.Errorf("%d observations of %d keys; want those of both slices", h.Total, len(h.Keys))
	}
}

func TestTopKeys_Concurrently(t *testing.T) {
	top := NewTopKeys[int](64, 3, 4)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 5000 {
				n := (i * (g + 1)) % 50
				top.Observe(g, int64(i/2500), numbered(n), func(v *int) { *v = n })
				if i%500 == 0 {
					top.Last(1, 3)
				}
			}
		})
	}
	all.Wait()
	if !top.isBusy.Load() {
		t.Log("nobody had to wait")
	}
	h := top.Last(1, 3)
	if h.Total != 20_000 || len(h.Keys) != 50 {
		t.Errorf("%d observations of %d keys, want 20000 of 50", h.Total, len(h.Keys))
	}
}

func TestTopKeys_DoesNotAllocate(t *testing.T) {
	top := NewTopKeys[int](64, 3, 4)
	n := 0
	fill := func(v *int) { *v = n }
	top.Observe(0, 0, numbered(n), fill)
	if got := rounds.Allocations(1000, func() {
		n++
		top.Observe(0, 0, numbered(n), func(v *int) { *v = n })
	}); got > 0 {
		t.Errorf("%v allocations an observation", got)
	}
}

func FuzzSketch(f *testing.F) {
	f.Add(uint8(3), []byte("abcabcabdddde"))
	f.Fuzz(func(t *testing.T, k uint8, text []byte) {
		keys := make([]int, len(text))
		for i, b := range text {
			keys[i] = int(b)
		}
		s, exact := sketched(int(k)+1, keys)
		s.sound(t)
		promised(t, s.HeavyHitters(), exact, int64(len(keys)/(int(k)+1)))
	})
}

// A flood of keys that are all different is what costs most.
func BenchmarkTopKeys(b *testing.B) {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.2, 1, 1_000_000)
	for name, next := range map[string]func() int{
		"one": func() int { return 1 }, "zipf": func() int { return int(zipf.Uint64()) }, "flood": func() int { return rand.Int() },
	} {
		b.Run(name, func(b *testing.B) {
			top := NewTopKeys[[32]byte](512, 15, 4)
			keys := make([]Key, 1<<16)
			for i := range keys {
				keys[i] = numbered(next())
			}
			var label [32]byte
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				top.Observe(0, int64(i>>24), keys[i&(len(keys)-1)], func(v *[32]byte) { *v = label })
				i++
			}
		})
	}
}

// A counter that another key had is given on without its value.
func TestSketch_ValuesOfOthersAreGone(t *testing.T) {
	s := NewSketch[[4]byte](2)
	for i := range 50 {
		v := s.Observe(KeyOf(strconv.Itoa(i)))
		if v == nil || *v != [4]byte{} {
			t.Fatalf("key %d gets the value %v", i, v)
		}
		copy(v[:], "text")
	}
}

// The memory of a Sketch grows with its keys, and no further.
func TestSketch_AllocatesNothingOnceItIsFull(t *testing.T) {
	const k = 100
	s, i := NewSketch[int](k), 0
	observe := func() {
		i++
		s.Observe(KeyOf(strconv.Itoa(i)))
	}
	if s.Size() != k || cap(s.counters) > 0 {
		t.Errorf("it has room for %d keys at first, and in the end for %d", cap(s.counters), s.Size())
	}
	for range 4 * k {
		observe()
	}
	own := testing.AllocsPerRun(1000, func() { KeyOf(strconv.Itoa(i)) })
	if n := testing.AllocsPerRun(1000, observe); n > own || len(s.counters) != k {
		t.Errorf("%v allocations, of which %v make the key, and %d counters", n, own, len(s.counters))
	}
}
