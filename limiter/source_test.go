package limiter_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

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
