package redisstore

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

func (n *denialCache) all() (all []*denial) {
	for i := range n.sets {
		if set := n.sets[i].Load(); set != nil {
			for j := range set {
				if d := set[j].Load(); d != nil {
					all = append(all, d)
				}
			}
		}
	}
	return all
}

func denialOf(c *limiter.Claim, asked time.Duration) *denial {
	return &denial{limit: c.Limit, slot: slotOf(c), cost: c.Cost, askedAt: asked, expiresAt: asked + time.Hour}
}

// What is found is the last that was added for the window and not removed since; where
// there is room nothing is lost.
func TestDenialCache_FindsWhatThereIs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var claims []limiter.Claim
	for i := range 8 { // as many as a set has room for, so that none is evicted
		c := limiter.Claim{Limit: &limiter.Limit{Name: fmt.Sprint("l", i%3), Algorithm: limiter.Algorithm(i % 2), Scope: limiter.Scope(i / 4)}, Key: limiter.KeyOf("k")}
		if i == 7 {
			c.RedissonName = "shared"
		}
		claims = append(claims, c)
	}
	for _, size := range []int{8, 16, 1000} {
		n, there := newDenialCache(size), map[windowID]*denial{}
		for step := range 5000 {
			c := claims[random.IntN(len(claims))]
			c.Cost = 1 + random.Int64N(3)
			switch id := windowIDOf(&c); random.IntN(8) {
			case 0:
				n.remove(id)
				delete(there, id)
			case 1, 2:
				there[id] = denialOf(&c, time.Duration(step))
				n.add(there[id])
			default:
				want := there[id]
				if want != nil && want.cost > c.Cost {
					want = nil
				}
				if got := n.find(&c); got != want {
					t.Fatalf("%d: %+v, want %+v", size, got, want)
				}
			}
		}
		n.clear()
		if left := n.all(); len(left) > 0 {
			t.Errorf("%d are left", len(left))
		}
	}
}

// However many are added, no more than the size are there, nearly as many as that, and the
// latest is.
func TestDenialCache_IsBounded(t *testing.T) {
	l := &limiter.Limit{Name: "l"}
	for _, size := range []int{1, 2, 7, 8, 9, 15, 100, 1000} {
		n := newDenialCache(size)
		for i := range 20 * size {
			c := limiter.Claim{Limit: l, Key: limiter.KeyOf(fmt.Sprint(i))}
			n.add(denialOf(&c, time.Duration(i)))
			if n.find(&c) == nil {
				t.Fatalf("%d: the last one is not there", size)
			}
		}
		if got := len(n.all()); got > size || got < size/2 {
			t.Errorf("%d denials, of at most %d", got, size)
		}
	}
}

// The denial that was asked for longest ago makes room.
func TestDenialCache_KeepsTheLatest(t *testing.T) {
	n := newDenialCache(8)
	l := &limiter.Limit{Name: "l"}
	var claims []limiter.Claim
	for i, asked := range []time.Duration{5, 3, 7, 1, 2, 6, 4, 8, 9} {
		claims = append(claims, limiter.Claim{Limit: l, Key: limiter.KeyOf(fmt.Sprint(i))})
		n.add(denialOf(&claims[i], asked))
	}
	for i := range claims {
		if found := n.find(&claims[i]) != nil; found == (i == 3) {
			t.Errorf("%d is there: %v", i, found)
		}
	}
}

// Whatever happens at the same time, no refusal stays that was asked for before an
// invalidation.
func TestDenials_NoneIsOlderThanAnInvalidation(t *testing.T) {
	n := newDenials(64)
	n.setSubscribed(true)
	c := limiter.Claim{Limit: &limiter.Limit{Name: "l"}, Key: limiter.KeyOf("k"), Cost: 1}
	refused := &limiter.Decision{At: time.UnixMilli(1), Outcomes: []limiter.Outcome{{Wait: time.Hour}}}
	old := denialQuery{[]limiter.Claim{c}, time.Now(), n.currentVersion()}
	n.invalidate(windowIDOf(&c))
	if n.learn(old, refused); len(n.cache.all()) > 0 {
		t.Error("cached, though asked for before an invalidation")
	}
	stayed := 0
	for range 3000 {
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				version := n.currentVersion()
				d := limiter.Decision{At: time.UnixMilli(int64(version)), Outcomes: []limiter.Outcome{{Wait: time.Hour}}}
				n.learn(denialQuery{[]limiter.Claim{c}, time.Now(), version}, &d)
			})
		}
		all.Go(func() { n.invalidate(windowIDOf(&c)) })
		all.Wait()
		for _, d := range n.cache.all() {
			if stayed++; d.redisTime != int64(n.currentVersion()) {
				t.Fatalf("asked for at version %d, now %d", d.redisTime, n.currentVersion())
			}
		}
		n.setSubscribed(true)
	}
	if stayed == 0 {
		t.Error("none was ever cached")
	}
}
