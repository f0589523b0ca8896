package limiter_test

import (
	"encoding/binary"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/rounds"
)

func take(t testing.TB, s limiter.Store, claims ...limiter.Claim) limiter.Decision {
	t.Helper()
	var d limiter.Decision
	if err := s.Take(t.Context(), claims, &d); err != nil {
		t.Fatalf("take: %v", err)
	}
	return d
}

func rate(name string, count int64, window time.Duration) *limiter.Limit {
	return &limiter.Limit{Name: name, Rate: limiter.Rate{Count: count, Window: window}}
}

// numbered is one of very many keys.
func numbered(i int) (k limiter.Key) {
	binary.LittleEndian.PutUint64(k[:], uint64(i)*0x9e3779b97f4a7c15)
	binary.LittleEndian.PutUint64(k[8:], uint64(i))
	return k
}

// flood is how many new keys come, and what a Memory has room for: few, or as many
// as WEIR_TEST_FLOOD says and the defaults.
func flood(t *testing.T) (keys, room int, bound int64) {
	t.Helper()
	said := os.Getenv("WEIR_TEST_FLOOD")
	if said == "" {
		return 250_000, 100_000, 32 << 20 // two and a half times what has room
	}
	keys, err := strconv.Atoi(said)
	if err != nil || keys < 2_000_000 {
		t.Fatalf("WEIR_TEST_FLOOD is %q; write a number of keys, 2000000 or more", said)
	}
	return keys, 1_000_000, 256 << 20
}

// A flood of new keys neither grows the memory beyond its bound nor pushes out a
// key that is at its limit.
func TestMemory_FloodPushesNobodyOut(t *testing.T) {
	flood, room, bound := flood(t)
	h := newHand()
	m := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: room, MaxBytes: bound, Clock: h.now})
	l := rate("sms", 1, time.Hour)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	victims := make([]limiter.Claim, 1000)
	for i := range victims {
		victims[i] = limiter.Claim{Limit: l, Key: limiter.KeyOf("victim", string(rune(i))), Cost: 1}
		if !take(t, m, victims[i]).Allowed {
			t.Fatal("a fresh key was refused")
		}
	}
	granted := len(victims)
	claims := make([]limiter.Claim, 1)
	var d limiter.Decision
	for i := range flood {
		claims[0] = limiter.Claim{Limit: l, Key: numbered(i), Cost: 1}
		if err := m.Take(t.Context(), claims, &d); err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			granted++
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > bound {
		t.Errorf("%d MB on the heap, the bound is %d", grown>>20, bound>>20)
	} else {
		t.Logf("%d keys: %d MB on the heap of %d, %d granted", flood, grown>>20, bound>>20, granted)
	}
	if keys, bytes := m.Keys(); keys > room+64 || bytes > bound {
		t.Errorf("%d keys, %d bytes by its own account", keys, bytes)
	}
	if granted > room+64 {
		t.Errorf("%d keys granted, there is room for %d", granted, room)
	}
	for _, c := range victims {
		if take(t, m, c).Allowed {
			t.Fatal("the flood reopened a spent quota")
		}
	}
	h.advance(time.Hour)
	for i := range 1000 {
		if !take(t, m, limiter.Claim{Limit: l, Key: numbered(flood + i), Cost: 1}).Allowed {
			t.Fatalf("new key %d refused although all others rest", i)
		}
	}
	runtime.KeepAlive(m)
}

// Beyond the bound, new keys of one limit share one count, and its permits are
// given back to it.
func TestMemory_OverflowIsShared(t *testing.T) {
	h := newHand()
	m := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 2, Clock: h.now})
	l, other := rate("l", 3, time.Minute), rate("other", 1, time.Minute)
	claim := func(l *limiter.Limit, i int) limiter.Claim {
		return limiter.Claim{Limit: l, Key: numbered(i), Cost: 1}
	}
	take(t, m, claim(l, 1))
	take(t, m, claim(l, 2))
	var permit limiter.Permit
	for i := range 3 {
		d := take(t, m, claim(l, 3+i))
		if !d.Allowed || d.Outcomes[0].Remaining != int64(2-i) {
			t.Fatalf("stranger %d: %+v", i, d)
		}
		permit = d.Permit
	}
	if take(t, m, claim(l, 9)).Allowed {
		t.Error("a fourth stranger passed")
	}
	if !take(t, m, claim(other, 9)).Allowed {
		t.Error("another limit shares the count")
	}
	if d := take(t, m, claim(l, 1)); !d.Allowed || d.Outcomes[0].Remaining != 1 {
		t.Errorf("a known key: %+v", d)
	}
	for range 2 {
		if err := m.Refund(t.Context(), []limiter.Claim{claim(l, 5)}, permit); err != nil {
			t.Fatal(err)
		}
	}
	if d := take(t, m, claim(l, 10), claim(l, 11)); d.Allowed {
		t.Errorf("two strangers on one permit: %+v", d)
	}
	if d := take(t, m, claim(l, 10)); !d.Allowed || d.Outcomes[0].Remaining != 0 {
		t.Errorf("after one refund, given twice: %+v", d)
	}
	h.advance(time.Minute)
	if d := take(t, m, claim(l, 12)); d.Outcomes[0].Remaining != 2 {
		t.Errorf("a new key after all rest: %+v", d)
	}
}

// When the bytes are used up, counts get coarser, never looser.
func TestMemory_FoldsWhenFull(t *testing.T) {
	h := newHand()
	m := limiter.NewMemory(limiter.MemoryOptions{MaxBytes: 1024, Clock: h.now})
	l := rate("l", 100, 100*time.Second)
	claim := limiter.Claim{Limit: l, Key: numbered(1), Cost: 1}
	for i := range 100 {
		if d := take(t, m, claim); !d.Allowed || d.Outcomes[0].Remaining != int64(99-i) {
			t.Fatalf("take %d: %+v", i, d)
		}
		h.advance(500 * time.Millisecond)
	}
	if _, bytes := m.Keys(); bytes > 1024 {
		t.Errorf("%d bytes, the bound is 1024", bytes)
	}
	h.advance(49 * time.Second)
	if take(t, m, claim).Allowed {
		t.Error("the 101st passed within the window")
	}
	h.advance(51 * time.Second)
	if d := take(t, m, claim); d.Outcomes[0].Remaining != 99 {
		t.Errorf("one window later: %+v", d)
	}
}

// An allowed decision over three known keys allocates nothing.
func TestMemory_DecidesWithoutAllocating(t *testing.T) {
	m := limiter.NewMemory(limiter.MemoryOptions{})
	claims := threeClaims()
	var d limiter.Decision
	for range 300 { // past the growth of the windows
		if err := m.Take(t.Context(), claims, &d); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	if n := rounds.Allocations(1000, func() { m.Take(ctx, claims, &d) }); n != 0 || !d.Allowed {
		t.Errorf("%v allocations, allowed %v", n, d.Allowed)
	}
}

func threeClaims() []limiter.Claim {
	return []limiter.Claim{
		{Limit: rate("a", 1_000_000_000, time.Minute), Key: numbered(1), Cost: 1},
		{Limit: rate("b", 1_000_000_000, time.Hour), Key: numbered(1), Cost: 1},
		{Limit: rate("c", 1_000_000_000, time.Second), Key: numbered(2), Cost: 1},
	}
}

// What three limits of one key, and of two, cost beside one, and what a refusal does.
func BenchmarkMemory_Take(b *testing.B) {
	three := threeClaims()
	ofOneKey := threeClaims()
	ofOneKey[2].Key = numbered(1)
	for name, claims := range map[string][]limiter.Claim{
		"one limit": three[:1], "three of one key": ofOneKey, "three of two keys": three,
		"refused": {{Limit: rate("a", 1, time.Hour), Key: numbered(1), Cost: 1}},
	} {
		b.Run(name, func(b *testing.B) {
			m := limiter.NewMemory(limiter.MemoryOptions{})
			var d limiter.Decision
			ctx := b.Context()
			_ = m.Take(ctx, claims, &d) // or the first is not refused
			b.ReportAllocs()
			for b.Loop() {
				if m.Take(ctx, claims, &d); d.Allowed != (name != "refused") {
					b.Fatalf("allowed: %v", d.Allowed)
				}
			}
		})
	}
}

func BenchmarkMemory_ThreeLimitsParallel(b *testing.B) {
	m := limiter.NewMemory(limiter.MemoryOptions{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		claims := threeClaims()
		var d limiter.Decision
		for i := 0; pb.Next(); i++ {
			claims[0].Key = numbered(i & 1023)
			m.Take(b.Context(), claims, &d)
		}
	})
}

// Keys that share an overflow count have the rate of a conversion together, and nothing more: whoever confirms
// subjects for one of them would raise what strangers may have open.
func TestMemory_OverflowConfirmsNothing(t *testing.T) {
	h := newHand()
	m := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 1, Clock: h.now})
	l := converting(2, day)
	take := func(key, subject string) bool {
		t.Helper()
		return take(t, m, limiter.Claim{Limit: l, Key: limiter.KeyOf(key), Cost: 1, Value: limiter.KeyOf(subject)}).Allowed
	}
	confirm := func(key string, n int) {
		t.Helper()
		for i := range n {
			subject := key + strconv.Itoa(i)
			if !take(key, subject) {
				t.Fatalf("%s: take %d is refused", key, i)
			}
			if n, err := m.Return(t.Context(), []*limiter.Limit{l}, limiter.KeyOf(subject)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	open := func(key string) (n int) {
		for take(key, "") {
			n++
		}
		return n
	}
	confirm("own", 4)
	confirm("over", 4)
	confirm("other", 4)
	if n := open("stranger"); n != 2 {
		t.Errorf("%d may be open of keys that share a count; want 2", n)
	}
	if n := open("over"); n != 0 {
		t.Errorf("%d more may be open of keys that share a count", n)
	}
	if n := open("own"); n != 6 {
		t.Errorf("%d may be open of a key with a count of its own; want 2 + 4", n)
	}
	in, err := m.Inspect(t.Context(), []limiter.Claim{{Limit: l, Key: limiter.KeyOf("over"), Cost: 1}})
	if s := in.Statuses[0]; err != nil || !s.Overflow || s.Used != 2 || s.Allowed != 2 || s.Confirmed != 0 {
		t.Errorf("the count is inspected as %+v, %v", s, err)
	}
	h.advance(2 * day)
	if n := open("stranger"); n != 2 {
		t.Errorf("two days later %d may be open of keys that share a count; want 2", n)
	}
}
