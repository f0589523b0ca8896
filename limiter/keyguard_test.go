package limiter_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// thrice is a rate to be used up soon.
var thrice = limiter.Rate{Count: 3, Window: time.Minute}

func TestGuard_BoundsNewKeys(t *testing.T) {
	h := newHand()
	g := limiter.NewKeyGuard(limiter.KeyGuardOptions{TTL: time.Hour, Clock: h.now})
	alice, bob := limiter.KeyOf("alice"), limiter.KeyOf("bob")
	for i := range 3 {
		if a := g.Admit(thrice, alice, numbered(i)); a != (limiter.KeyDecision{New: true}) {
			t.Fatalf("new key %d: %+v", i, a)
		}
	}
	h.advance(20 * time.Second)
	for range 2 {
		if a := g.Admit(thrice, alice, numbered(3)); !a.Refused || !a.New || a.Wait != 40*time.Second {
			t.Errorf("a fourth new key: %+v; want it to be refused for 40 s", a)
		}
	}
	for i := range 3 {
		if a, b := g.Admit(thrice, alice, numbered(i)), g.Admit(thrice, bob, numbered(i)); a != b || b != (limiter.KeyDecision{}) {
			t.Errorf("known key %d: %+v, %+v", i, a, b)
		}
	}
	if a := g.Admit(thrice, bob, numbered(3)); a.Refused || !a.New {
		t.Errorf("a key that another source was refused: %+v", a)
	}
	if a := g.Admit(thrice, alice, numbered(3)); a != (limiter.KeyDecision{}) {
		t.Errorf("a key that another source has brought: %+v", a)
	}
	h.advance(40*time.Second - time.Millisecond)
	if !g.Admit(thrice, alice, numbered(9)).Refused {
		t.Error("passed before the window was over")
	}
	h.advance(time.Millisecond)
	if g.Admit(thrice, alice, numbered(9)).Refused {
		t.Error("refused when the window was over")
	}
}

func TestGuard_CountsARequestOnce(t *testing.T) {
	h := newHand()
	g := limiter.NewKeyGuard(limiter.KeyGuardOptions{Clock: h.now})
	alice := limiter.KeyOf("alice")
	for i := range 3 {
		if a := g.Admit(thrice, alice, numbered(2*i), numbered(2*i+1)); a.Refused || !a.New {
			t.Fatalf("request %d with two new keys: %+v", i, a)
		}
	}
	if a := g.Admit(thrice, alice, numbered(0), numbered(6)); !a.Refused {
		t.Errorf("a known key and a new one: %+v", a)
	}
	if g.Known(numbered(6)) || !g.Known(numbered(0), numbered(5)) || !g.Known() {
		t.Error("what was refused is known, or what passed is not")
	}
}

// A rate that a reload has lowered or raised holds for what was brought before.
func TestGuard_KeepsCountsWhenTheRateChanges(t *testing.T) {
	h := newHand()
	g := limiter.NewKeyGuard(limiter.KeyGuardOptions{Clock: h.now})
	alice := limiter.KeyOf("alice")
	for i := range 3 {
		g.Admit(thrice, alice, numbered(i))
	}
	for rate, refused := range map[limiter.Rate]bool{{Count: 2, Window: time.Minute}: true, {Count: 4, Window: time.Minute}: false} {
		if a := g.Admit(rate, alice, numbered(int(rate.Count)+10)); a.Refused != refused {
			t.Errorf("%v: %+v", rate, a)
		}
	}
}

func TestGuard_RemembersForAWhile(t *testing.T) {
	h := newHand()
	g := limiter.NewKeyGuard(limiter.KeyGuardOptions{TTL: time.Hour, Clock: h.now})
	g.Admit(thrice, limiter.KeyOf("alice"), numbered(0))
	g.Admit(thrice, limiter.KeyOf("alice"), numbered(1))
	for range 9 {
		h.advance(time.Hour)
		if !g.Known(numbered(0)) {
			t.Fatal("forgot a key that comes each hour")
		}
	}
	if g.Known(numbered(1)) {
		t.Error("knows a key that came nine hours ago")
	}
	h.advance(3 * time.Hour)
	if g.Known(numbered(0)) {
		t.Error("knows a key that came three hours ago")
	}
}

// However many keys and sources come, what the Guard keeps is bounded, and
// whoever keeps coming stays known.
func TestGuard_IsBounded(t *testing.T) {
	h := newHand()
	g := limiter.NewKeyGuard(limiter.KeyGuardOptions{MaxKeys: 6400, MaxSources: 640, Clock: h.now})
	known := 0
	for i := range 50_000 {
		if a := g.Admit(thrice, numbered(i/2), numbered(i)); a.Refused {
			t.Fatalf("source %d was refused its own", i/2)
		}
		if i%100 == 0 && !g.Known(numbered(0)) {
			t.Fatalf("forgot after %d others a key that keeps coming", i)
		}
	}
	for i := range 50_000 {
		if g.Known(numbered(i)) {
			known++
		}
	}
	if known == 0 || known > 6400 {
		t.Errorf("knows %d keys; want some, and at most 6400", known)
	}
}

// A million keys take 50 MB at most, as proxy/docs/keys.md says: a tenth of them a tenth.
func TestGuard_KeysAreSmall(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	g := limiter.NewKeyGuard(limiter.KeyGuardOptions{MaxKeys: 100_000})
	for i := range 110_000 {
		g.Admit(thrice, numbered(i/2), numbered(i))
	}
	if grown := heap() - before; grown > 5<<20 || !g.Known(numbered(109_999)) {
		t.Errorf("a hundred thousand keys take %d KiB; want 5 MiB at most", grown>>10)
	}
}

func TestGuard_IsExactWhenASourceComesManyTimesAtOnce(t *testing.T) {
	g := limiter.NewKeyGuard(limiter.KeyGuardOptions{})
	rate := limiter.Rate{Count: 50, Window: time.Hour}
	passed := make(chan limiter.Key, 4000)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 500 { // each brings the same
				if a := g.Admit(rate, limiter.KeyOf("alice"), numbered(i)); !a.Refused {
					passed <- numbered(i)
				}
			}
		})
	}
	wg.Wait()
	close(passed)
	different := map[limiter.Key]bool{}
	for k := range passed {
		different[k] = true
	}
	if len(different) != 50 {
		t.Errorf("%d new keys passed; want 50", len(different))
	}
}

func TestCheckGuard(t *testing.T) {
	for rate, ok := range map[limiter.Rate]bool{
		thrice: true,
		{Count: 1, Window: limiter.MaxKeyGuardWindow}: true,
		{}:         false,
		{Count: 1}: false,
		{Count: 1, Window: time.Hour + time.Second}: false,
	} {
		if err := limiter.CheckKeyGuard(rate); errors.Is(err, limiter.ErrInvalidRate) == ok {
			t.Errorf("%v: %v", rate, err)
		}
	}
}

func BenchmarkGuard_Known(b *testing.B) {
	g := limiter.NewKeyGuard(limiter.KeyGuardOptions{})
	g.Admit(thrice, numbered(1), numbered(2), numbered(3))
	b.ReportAllocs()
	for b.Loop() {
		g.Known(numbered(2), numbered(3))
	}
}

func TestGuard_PeekChangesNothing(t *testing.T) {
	h := newHand()
	g := limiter.NewKeyGuard(limiter.KeyGuardOptions{TTL: time.Hour, Clock: h.now})
	alice := limiter.KeyOf("alice")
	for range 5 {
		if a := g.Peek(thrice, alice, numbered(0)); a != (limiter.KeyDecision{New: true}) {
			t.Fatalf("a new key: %+v", a)
		}
	}
	for i := range 3 {
		g.Admit(thrice, alice, numbered(i))
	}
	h.advance(20 * time.Second)
	if a := g.Peek(thrice, alice, numbered(0), numbered(3)); !a.New || !a.Refused || a.Wait != 40*time.Second {
		t.Errorf("a fourth new key: %+v; want it to be refused for 40 s", a)
	}
	if a := g.Peek(thrice, alice, numbered(1)); a != (limiter.KeyDecision{}) {
		t.Errorf("a known key: %+v", a)
	}
	h.advance(2 * time.Hour)
	if a := g.Peek(thrice, alice, numbered(1)); a != (limiter.KeyDecision{New: true}) {
		t.Errorf("a key that was looked at and not seen for long: %+v", a)
	}
}
