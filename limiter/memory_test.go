package limiter_test

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/test/rounds"
)

// A hand is a clock that moves when it is told to.
type hand struct{ ms atomic.Int64 }

func (h *hand) now() time.Time { return time.UnixMilli(h.ms.Load()) }

func (h *hand) advance(d time.Duration) { h.ms.Add(d.Milliseconds()) }

func newHand() *hand {
	h := new(hand)
	h.ms.Store(1_800_000_000_000)
	return h
}

func TestMemory_KeepsTheContract(t *testing.T) {
	limitertest.Run(t, func(*testing.T) limitertest.Subject {
		h := newHand()
		return limitertest.Subject{
			Store:   limiter.NewMemory(limiter.MemoryOptions{Clock: h.now}),
			Advance: h.advance,
			Steps:   100, Calls: rounds.Of(15_000),
		}
	})
}

// All groups of a decision count from one time, however long it takes: a later one would be younger than the permit, and
// what it took for a new key would not be given back.
func TestMemory_GroupsCountFromOneTime(t *testing.T) {
	for a := range limiter.NumAlgorithms {
		t.Run(a.String(), func(t *testing.T) {
			h := newHand()
			m := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { h.advance(time.Millisecond); return h.now() }})
			beside := limitertest.LimitOf(a, "beside", limiter.Rate{Count: 1, Window: time.Hour})
			claims := []limiter.Claim{
				{Limit: rate("deciding", 9, time.Hour), Key: numbered(1), Cost: 1},
				{Limit: beside, Key: numbered(2), Value: numbered(3), Cost: 1, Group: 1},
			}
			var d limiter.Decision
			if err := m.Take(t.Context(), claims, &d); err != nil || !d.Allowed || !d.Outcomes[1].Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			if err := m.Refund(t.Context(), claims, d.Permit); err != nil {
				t.Fatal(err)
			}
			claims[1].Group = 0
			if m.Peek(t.Context(), claims[1:], &d); d.Outcomes[0].Remaining != 1 {
				t.Errorf("%d left after the refund, want 1", d.Outcomes[0].Remaining)
			}
		})
	}
}

func TestMemory_Conversion(t *testing.T) {
	limitertest.RunConversion(t, func(*testing.T) limitertest.Subject {
		h := newHand()
		return limitertest.Subject{Store: limiter.NewMemory(limiter.MemoryOptions{Clock: h.now}), Advance: h.advance}
	})
}

// A claim gets the same outcomes alone as beside one that is always granted.
func TestTake_OneClaimAsAmongSeveral(t *testing.T) {
	algorithms := []limiter.Algorithm{
		limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA, limiter.Concurrent, limiter.Distinct, limiter.Cooldown, limiter.SlidingLog,
	}
	generous := limiter.Limit{Name: "generous", Rate: limiter.Rate{Count: limiter.MaxCount, Window: time.Hour}, Algorithm: limiter.FixedWindow}
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, uint64(a)))
			h := newHand()
			alone, beside := limiter.NewMemory(limiter.MemoryOptions{Clock: h.now}), limiter.NewMemory(limiter.MemoryOptions{Clock: h.now})
			l := limitertest.LimitOf(a, "l", limiter.Rate{Count: 5, Window: time.Second})
			var one, two limiter.Decision
			granted, refused := 0, 0
			for range 3000 {
				h.advance(time.Duration(random.IntN(60)) * time.Millisecond)
				claims := []limiter.Claim{
					{Limit: l, Key: limiter.KeyOf(string(rune('a' + random.IntN(2)))), Cost: 1, Value: limiter.KeyOf(string(rune('0' + random.IntN(8))))},
					{Limit: &generous, Key: limiter.KeyOf("k"), Cost: 1},
				}
				switch random.IntN(40) {
				case 0:
					claims[0].Limit = &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 3, Window: time.Second}, Algorithm: limiter.TokenBucket} // reloaded with another algorithm
				case 1:
					for _, m := range []*limiter.Memory{alone, beside} {
						if err := m.Ban(t.Context(), claims[:1], 100*time.Millisecond); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := alone.Take(t.Context(), claims[:1], &one); err != nil {
					t.Fatal(err)
				}
				if err := beside.Take(t.Context(), claims, &two); err != nil {
					t.Fatal(err)
				}
				if one.Outcomes[0] != two.Outcomes[0] || len(one.Outcomes) != 1 || one.Allowed != two.Allowed || one.Wait != two.Wait || !one.At.Equal(two.At) {
					t.Fatalf("alone %+v, beside another claim %+v", one, two)
				}
				if one.Allowed == one.Permit.IsZero() || one.Allowed && (one.Permit.ID == two.Permit.ID || !one.Permit.At.Equal(one.At)) {
					t.Fatalf("allowed %v with the permit %+v", one.Allowed, one.Permit)
				}
				if !one.Allowed {
					refused++
					continue
				}
				granted++
				if random.IntN(3) == 0 {
					if err := alone.Refund(t.Context(), claims[:1], one.Permit); err != nil {
						t.Fatal(err)
					}
					if err := beside.Refund(t.Context(), claims, two.Permit); err != nil {
						t.Fatal(err)
					}
				}
			}
			if granted < 100 || refused < 100 {
				t.Errorf("%d granted and %d refused; want some hundreds of both", granted, refused)
			}
			if a, b := keysOf(alone), keysOf(beside)-1; a != b {
				t.Errorf("%d keys alone, %d beside another", a, b)
			}
		})
	}
}

func keysOf(m *limiter.Memory) int {
	n, _ := m.Keys()
	return n
}

// grownBy is how much heap f leaves in use.
func grownBy(f func()) int64 {
	before := heap()
	f()
	return heap() - before
}

// A key costs little, and as much as the Memory says it does: with one permit, and with a
// log beside its cell.
func TestMemory_AccountsForWhatAKeyTakes(t *testing.T) {
	const keys = 200_000
	for _, row := range []struct {
		name    string
		limit   *limiter.Limit
		permits int
		keys    int
		most    int64 // bytes a key
	}{
		{"one permit", rate("l", 60, time.Hour), 1, keys, 120},
		{"a counter", &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 60, Window: time.Hour}, Algorithm: limiter.GCRA}, 1, keys / 2, 120},
		{"a log", rate("l", 60, time.Hour), 8, keys / 4, 450},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 2 * row.keys, MaxBytes: 1 << 30})
			grown := grownBy(func() {
				claims := []limiter.Claim{{Limit: row.limit, Cost: 1}}
				var d limiter.Decision
				for i := range row.keys * row.permits {
					claims[0].Key = numbered(i % row.keys)
					if err := m.Take(t.Context(), claims, &d); err != nil || !d.Allowed {
						t.Fatal(d, err)
					}
				}
			})
			counted, said := m.Keys()
			runtime.KeepAlive(m)
			t.Logf("%d bytes a key, %d by its own account", grown/int64(counted), said/int64(counted))
			if counted != row.keys || grown > row.most*int64(row.keys) {
				t.Errorf("%d bytes for %d keys; want %d keys of %d at most", grown, counted, row.keys, row.most)
			}
			if off := 100 * (said - grown) / grown; off < -10 || off > 10 {
				t.Errorf("it says %d bytes, which is %d%% off %d", said, off, grown)
			}
		})
	}
}

// What is noted of another store's decisions costs less still.
func TestNote_AccountsForWhatAKeyTakes(t *testing.T) {
	const keys = 100_000
	m := limiter.NewMemory(limiter.MemoryOptions{})
	claims := []limiter.Claim{{Limit: rate("l", 60, time.Hour), Cost: 1}}
	said := limiter.Decision{Allowed: true, Outcomes: []limiter.Outcome{{Allowed: true, Remaining: 59}}}
	grown := grownBy(func() {
		for i := range 10 * keys {
			claims[0].Key = numbered(i % keys)
			m.Mirror(claims, &said, 4)
		}
	})
	counted, bytes := m.Keys()
	runtime.KeepAlive(m)
	t.Logf("%d bytes a key, %d by its own account", grown/keys, bytes/keys)
	if counted != keys || grown > 90*keys {
		t.Errorf("%d bytes for %d keys; want %d keys of 90 at most", grown, counted, keys)
	}
	if off := 100 * (bytes - grown) / grown; off < -10 || off > 10 {
		t.Errorf("it says %d bytes, which is %d%% off %d", bytes, off, grown)
	}
}

// One source with ever new keys fills half of the room and no more: new keys of others
// are counted each by itself, before it, with it and after it.
func TestMemory_OneSourceLeavesRoomToOthers(t *testing.T) {
	for name, l := range map[string]*limiter.Limit{"by keys": rate("sms", 1, time.Hour), "by bytes": rate("mail", 100, time.Hour)} {
		t.Run(name, func(t *testing.T) {
			const room = 8192
			m := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: room, MaxBytes: room * 300, Clock: newHand().now})
			for i := range 5 * room {
				c := limiter.Claim{Limit: l, Key: numbered(i), Cost: l.Rate.Count, Source: 1}
				if l.Rate.Count == 1 {
					take(t, m, c)
					continue
				}
				c.Cost = 1 // an entry each
				for range 10 {
					take(t, m, c)
				}
			}
			if keys, bytes := m.Keys(); keys < room/8 || keys > room*5/8 || bytes > room*300*6/8 {
				t.Fatalf("%d keys and %d bytes of one source, of %d and %d; want about half at most", keys, bytes, room, room*300)
			}
			for i := range room / 16 { // a share of its own, with room to spare in each shard
				c := limiter.Claim{Limit: l, Key: numbered(1_000_000 + i), Cost: l.Rate.Count, Source: 2}
				if !take(t, m, c).Allowed {
					t.Fatalf("new key %d of another is refused", i)
				}
				if take(t, m, c).Allowed {
					t.Fatalf("new key %d of another is counted by nobody", i)
				}
			}
		})
	}
}

// A source beyond its share still keeps every promise, its new keys together; what they
// took can be given back; and its share comes back with what it was used for.
func TestMemory_ASourceBeyondItsShare(t *testing.T) {
	h := newHand()
	const room = 1024
	m := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: room, Clock: h.now})
	l := rate("sms", 2, time.Hour)
	claim := func(i int, source uint32) limiter.Claim {
		return limiter.Claim{Limit: l, Key: numbered(i), Cost: 1, Source: source}
	}
	for i := range room / 2 {
		take(t, m, claim(i, 1))
	}
	first := take(t, m, claim(5000, 1))
	if second := take(t, m, claim(5001, 1)); !first.Allowed || !second.Allowed {
		t.Fatal("the rate that new keys share is not there")
	}
	third := claim(5002, 1)
	var d limiter.Decision
	if err := m.Peek(t.Context(), []limiter.Claim{third}, &d); err != nil || d.Allowed || take(t, m, third).Allowed {
		t.Errorf("more than the rate passes: %+v, %v", d, err)
	}
	if err := m.Refund(t.Context(), []limiter.Claim{claim(5000, 1)}, first.Permit); err != nil {
		t.Fatal(err)
	}
	if !take(t, m, third).Allowed || take(t, m, claim(5003, 1)).Allowed {
		t.Error("want room for one after one was given back")
	}
	if !take(t, m, claim(7, 1)).Allowed || take(t, m, claim(7, 1)).Allowed {
		t.Error("a key that has its own count shares another's")
	}
	if !take(t, m, claim(5004, 3)).Allowed || !take(t, m, claim(5005, 0)).Allowed {
		t.Error("others are refused")
	}
	h.advance(time.Hour)
	for range 100 { // what has come to rest is forgotten as new keys come
		i := 10_000 + rand.IntN(1_000_000)
		if !take(t, m, claim(i, 1)).Allowed {
			t.Fatalf("new key %d is refused after all has come back", i)
		}
	}
}
