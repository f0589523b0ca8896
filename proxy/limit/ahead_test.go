package limit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/rounds"
)

// A farStore is a memory that takes a while to answer, and now and then does not.
type farStore struct {
	*limiter.Memory
	latency time.Duration
	fails   float64       // part of the calls
	takes   time.Duration // each way, besides
	clock   time.Duration // how far its clock is ahead

	mu    sync.Mutex
	calls int // of Take
}

func (s *farStore) travel() error {
	<-time.After(s.takes + rand.N(s.latency) + 1)
	if rand.Float64() < s.fails {
		return limiter.ErrUnavailable
	}
	return nil
}

func (s *farStore) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	lost := s.travel()
	err := s.Memory.Take(ctx, claims, d)
	d.At = d.At.Add(s.clock)
	if d.Allowed {
		d.Permit.At = d.Permit.At.Add(s.clock)
	}
	return errors.Join(err, lost, s.travel())
}

func (s *farStore) StartRefund(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	p.At = p.At.Add(-s.clock)
	return func() error { return errors.Join(s.travel(), s.Memory.Refund(context.Background(), claims, p)) }
}

func (s *farStore) StartReset(claims []limiter.Claim) (wait func() error) {
	return func() error { return s.Memory.Reset(context.Background(), claims) }
}

func (s *farStore) StartReturn([]*limiter.Limit, limiter.Key) (wait func() (int, error)) { return nil }

// aheadWindow is a window of a limit of which permits are taken ahead for a lease.
func aheadWindow(l limiter.Limit, lease time.Duration) *Window {
	of := &Limit{Limit: &config.Limit{Name: "l", Mode: config.Enforce, Ahead: lease}}
	w := &Window{Of: of, Limit: l}
	w.Owner, w.Rate.Window = w, l.Rate.Window+lease
	if err := w.Prepare(); err != nil {
		panic(err)
	}
	return w
}

func newAhead(store limiter.AdminStore, nodes int) *aheadStore {
	return &aheadStore{AdminStore: store, nodes: func() int { return nodes }, timeout: time.Hour, keys: map[aheadKey]*aheadPermits{}}
}

// count returns of how many keys s knows something.
func (s *aheadStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys)
}

// leftOf returns what is left here of the key of c.
func (s *aheadStore) leftOf(c limiter.Claim) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[aheadKey{c.Limit, c.Key}].left
}

// A use is of permits that a node has granted.
type use struct {
	at   time.Time
	cost int64
}

// uses are those of all nodes.
type uses struct {
	mu    sync.Mutex
	all   []use
	asked int           // also those that failed
	clock time.Duration // how far the store's clock is ahead
}

// take takes permits, and records when they are used.
func (u *uses) take(t *testing.T, s *aheadStore, claims []limiter.Claim) {
	var d limiter.Decision
	err := s.Take(t.Context(), claims, &d)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked++
	if err == nil && d.Allowed {
		u.all = append(u.all, use{d.At, claims[0].Cost})
		if d.At.Sub(time.Now().Add(u.clock)).Abs() > time.Minute {
			t.Errorf("decided at %v, not by the store's clock", d.At)
		}
		if len(d.Outcomes) != len(claims) {
			t.Errorf("%d outcomes of %d claims", len(d.Outcomes), len(claims))
		}
		for _, o := range d.Outcomes {
			if o.Remaining < 0 || !o.Allowed {
				t.Errorf("a grant says %+v", o)
			}
		}
	}
}

// most returns the most permits that were used in any window.
func (u *uses) most(window time.Duration) (most int64) {
	slices.SortFunc(u.all, func(a, b use) int { return a.at.Compare(b.at) })
	var sum int64
	first := 0
	for _, last := range u.all {
		for sum += last.cost; last.at.Sub(u.all[first].at) >= window; first++ {
			sum -= u.all[first].cost
		}
		most = max(most, sum)
	}
	return most
}

// bound is how many permits an algorithm promises in any window.
func bound(l *limiter.Limit) int64 {
	switch {
	case l.Algorithm.MayDouble():
		return 2 * l.Rate.Count
	case l.Algorithm.HasBurst():
		return l.Capacity() + l.Rate.Count
	}
	return l.Rate.Count
}

// However many nodes take ahead, however the load changes, nodes die and calls fail: no window has more permits than the
// algorithm promises.
func TestAhead_NoWindowHasMore(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA} {
		for range rounds.Of(12) {
			seed := rand.Uint64()
			synctest.Test(t, func(t *testing.T) { randomHistory(t, a, rand.New(rand.NewPCG(seed, 0))) })
			if t.Failed() {
				t.Fatalf("%v, seed %d", a, seed)
			}
		}
	}
}

func randomHistory(t *testing.T, a limiter.Algorithm, r *rand.Rand) {
	lease := time.Duration(10+r.IntN(200)) * time.Millisecond
	window := (lease * time.Duration(10+r.IntN(10))).Round(time.Millisecond)
	l := limiter.Limit{Name: "l", Algorithm: a, Rate: limiter.Rate{Count: 50 + r.Int64N(2000), Window: window}}
	lower := l
	lower.Rate.Count = 20 + r.Int64N(30)
	w, reloaded := aheadWindow(l, lease), aheadWindow(lower, lease)
	if r.IntN(2) == 0 {
		w, reloaded = reloaded, w
	}
	other := &limiter.Limit{Name: "other", Rate: limiter.Rate{Count: 1 + r.Int64N(5000), Window: time.Second}}
	far := &farStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), latency: time.Duration(r.Int64N(int64(20 * time.Millisecond))), fails: 0.01}
	far.clock = time.Duration(r.IntN(3)-1) * time.Hour
	count := 1 + r.IntN(4)
	nodes := make([]*aheadStore, count)
	for i := range nodes {
		nodes[i] = newAhead(far, count)
	}
	all := uses{clock: far.clock}
	var callers sync.WaitGroup
	steps := int(4 * window / lease)
	reload := r.IntN(2 * steps)
	for step := range steps {
		if step == reload {
			w = reloaded
		}
		pause := time.Duration(r.Int64N(int64(lease / 4)))
		for range r.IntN(100) {
			<-time.After(pause / 100)
			claims := []limiter.Claim{{Limit: &w.Limit, Key: limiter.KeyOf("k"), Cost: 1 + r.Int64N(3)}}
			if r.IntN(3) == 0 {
				claims = append(claims, limiter.Claim{Limit: other, Key: limiter.KeyOf("k"), Cost: 1})
			}
			node := nodes[r.IntN(count)]
			callers.Go(func() { all.take(t, node, claims) })
		}
		if r.IntN(10) == 0 {
			nodes[r.IntN(count)] = newAhead(far, count) // the one before has died
		}
		<-time.After(time.Duration(r.Int64N(int64(lease))))
	}
	callers.Wait()
	if far.clock != 0 { // nodes know it as well as messages are fast
		window = l.Rate.Window - 2*far.latency
	}
	if most := all.most(window); most > bound(&l) {
		t.Errorf("%v: %d permits in a window; %v allows %d", a, most, l.Rate, bound(&l))
	}
	for _, n := range nodes {
		n.close()
	}
	<-time.After(time.Hour) // timers of nodes that have died
}

// What a node has taken ahead, at most its part of half of what is left, and not used is given back when the lease is over,
// and when the node ends; not with gcra, which would give back what has flowed back besides.
func TestAhead_GivesBackWhatIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		algorithm limiter.Algorithm
		ends      bool
	}{"over": {limiter.SlidingLog, false}, "ended": {limiter.SlidingLog, true}, "gcra": {limiter.GCRA, true}} {
		synctest.Test(t, func(t *testing.T) {
			far := &farStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), latency: time.Millisecond}
			w := aheadWindow(limiter.Limit{Name: "l", Algorithm: c.algorithm, Rate: limiter.Rate{Count: 200, Window: time.Hour}}, time.Second)
			s := newAhead(far, 2)
			claims := []limiter.Claim{{Limit: &w.Limit, Key: limiter.KeyOf("k"), Cost: 1}}
			var all uses
			for range 100 {
				all.take(t, s, claims)
				if left := s.leftOf(claims[0]); left > 200/2/2 {
					t.Errorf("%s: %d are taken ahead", name, left)
				}
			}
			used := func() int64 {
				in, err := far.Inspect(t.Context(), claims)
				if err != nil {
					t.Fatal(err)
				}
				return in.Statuses[0].Used
			}
			want, before := int64(100), used()
			if before <= want {
				t.Fatal("nothing was taken ahead")
			}
			if c.algorithm == limiter.GCRA {
				want = before
			}
			if c.ends {
				s.close()
			} else {
				<-time.After(3 * time.Second)
			}
			if n := used(); n != want {
				t.Errorf("%s: %d permits count as used, want %d", name, n, want)
			}
			if n := s.count(); n > 0 {
				t.Errorf("%s: %d keys are remembered", name, n)
			}
			<-time.After(time.Hour)
		})
	}
}

// Nothing is taken ahead of few permits, or for few requests.
func TestAhead_LeavesSmallRatesAlone(t *testing.T) {
	for _, c := range []struct {
		count    int64
		nodes    int
		requests int
	}{{39, 4, 30}, {100_000, 4, leastAhead - 1}, {1000, 101, 50}} {
		synctest.Test(t, func(t *testing.T) {
			far := &farStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), latency: 1}
			w := aheadWindow(limiter.Limit{Name: "l", Rate: limiter.Rate{Count: c.count, Window: time.Minute}}, time.Second)
			s := newAhead(far, c.nodes)
			var all uses
			for range c.requests {
				all.take(t, s, []limiter.Claim{{Limit: &w.Limit, Key: limiter.KeyOf("k"), Cost: 1}})
			}
			if far.calls != c.requests {
				t.Errorf("%d calls for %d requests of %d permits and %d nodes", far.calls, c.requests, c.count, c.nodes)
			}
			s.close()
			<-time.After(time.Hour)
		})
	}
}

// A request that may be refused early is not, as long as there are permits here; Peek takes none of them.
func TestAhead_PeekKnowsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &farStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), latency: 1}
		w := aheadWindow(limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 100, Window: time.Minute}}, time.Second)
		s, other := newAhead(far, 1), newAhead(far, 1)
		claims := []limiter.Claim{{Limit: &w.Limit, Key: limiter.KeyOf("k"), Cost: 1}}
		var all, others uses
		for len(all.all) < 9 {
			all.take(t, s, claims)
		}
		before := len(others.all)
		for range 100 {
			others.take(t, other, claims) // the rest
		}
		left := s.leftOf(claims[0])
		var d limiter.Decision
		for range 3 {
			if err := s.Peek(t.Context(), claims, &d); err != nil || !d.Allowed || len(d.Outcomes) != 1 {
				t.Fatalf("%+v, %v with %d left here", d, err, left)
			}
		}
		if got := s.leftOf(claims[0]); left == 0 || got != left {
			t.Errorf("%d are left after Peek, %d before", got, left)
		}
		if err := other.Peek(t.Context(), claims, &d); err != nil || d.Allowed || len(others.all) == before {
			t.Errorf("another node, with nothing left: %+v, %v", d, err)
		}
		s.close()
		other.close()
		<-time.After(time.Hour)
	})
}

// Refusals by another limit take nothing of what is left here.
func TestAhead_ARefusalTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &farStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), latency: 1}
		w := aheadWindow(limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 1000, Window: time.Minute}}, time.Second)
		one := &limiter.Limit{Name: "one", Rate: limiter.Rate{Count: 1, Window: time.Minute}}
		s := newAhead(far, 1)
		hot := limiter.Claim{Limit: &w.Limit, Key: limiter.KeyOf("k"), Cost: 1}
		var all uses
		for range 20 {
			all.take(t, s, []limiter.Claim{hot})
		}
		for range 20 {
			all.take(t, s, []limiter.Claim{{Limit: one, Key: hot.Key, Cost: 1}, hot})
		}
		<-time.After(3 * time.Second)
		in, err := far.Inspect(t.Context(), []limiter.Claim{hot})
		if err != nil || len(all.all) != 21 || in.Statuses[0].Used != 21 {
			t.Errorf("%d granted, %+v, %v; want 21 of both", len(all.all), in.Statuses, err)
		}
		<-time.After(time.Hour)
	})
}

// Permits are used for as long as the lease after they were taken, not until something ends it.
func TestAhead_LeasesEndInTime(t *testing.T) {
	for _, c := range []struct {
		name   string
		takes  time.Duration // until the store has decided, and as long again until it is known
		asksAt []time.Duration
		calls  int // of the last request
	}{
		{"within the lease", 0, []time.Duration{0, 0, 0, 0, 0, 0, 0, 0, 0, 990}, 0},
		{"after it", 0, []time.Duration{500, 500, 500, 500, 500, 500, 500, 500, 500, 1510}, 1},
		{"taken for an interval that is over", 100, []time.Duration{0, 0, 0, 0, 0, 0, 0, 0, 910, 1020, 1150}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			far := &farStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), latency: 1, takes: c.takes * time.Millisecond}
			w := aheadWindow(limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 1000, Window: time.Minute}}, time.Second)
			s := newAhead(far, 1)
			var all uses
			var callers sync.WaitGroup
			all.take(t, s, []limiter.Claim{{Limit: &w.Limit, Key: limiter.KeyOf("other"), Cost: 1}}) // intervals are swept by its time
			began, before := time.Now(), 0
			for _, at := range c.asksAt {
				<-time.After(time.Until(began.Add(at*time.Millisecond)) + time.Microsecond)
				before = far.calls
				callers.Go(func() { all.take(t, s, []limiter.Claim{{Limit: &w.Limit, Key: limiter.KeyOf("k"), Cost: 1}}) })
				synctest.Wait()
				if far.takes == 0 {
					callers.Wait()
				}
			}
			<-time.After(150 * time.Millisecond)
			if calls := far.calls - before; calls != c.calls {
				t.Errorf("%s: the last request made %d calls, want %d", c.name, calls, c.calls)
			}
			s.close()
			<-time.After(time.Hour)
		})
	}
}

// What is taken ahead refuses no request that would be granted by itself.
func TestAhead_RefusesNobodyForMore(t *testing.T) {
	for _, c := range []struct {
		name         string
		taken, costs int64 // by others, and the last request
	}{{"others have taken nearly all", 85, 1}, {"it costs more than half", 0, 60}} {
		synctest.Test(t, func(t *testing.T) {
			far := &farStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), latency: 1}
			w := aheadWindow(limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 100, Window: time.Minute}}, time.Second)
			s := newAhead(far, 1)
			claims := []limiter.Claim{{Limit: &w.Limit, Key: limiter.KeyOf("k"), Cost: 1}}
			var all uses
			for range 9 {
				all.take(t, s, claims)
			}
			<-time.After(1500 * time.Millisecond)
			if c.taken > 0 {
				var d limiter.Decision
				if err := far.Take(t.Context(), []limiter.Claim{{Limit: &w.Limit, Key: claims[0].Key, Cost: c.taken}}, &d); err != nil || !d.Allowed {
					t.Fatal(err, d)
				}
			}
			claims[0].Cost = c.costs
			before := len(all.all)
			if all.take(t, s, claims); len(all.all) != before+1 {
				t.Errorf("%s: it was refused", c.name)
			}
			s.close()
			<-time.After(time.Hour)
		})
	}
}

// Where an operator or a penalty changes a key, what was taken ahead counts for as long as without that.
func TestAhead_CountsTheSameAfterAChange(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.SlidingWindow, limiter.FixedWindow, limiter.GCRA} {
		granted := map[limiter.Action]int{}
		for _, action := range []limiter.Action{"none", limiter.ActionBan, limiter.ActionGrant} {
			synctest.Test(t, func(t *testing.T) {
				s, claims, all := oneAhead(limiter.Limit{Name: "l", Algorithm: a, Rate: limiter.Rate{Count: 100, Window: 10 * time.Second}})
				for range 150 {
					all.take(t, s, claims)
				}
				<-time.After(10*time.Second + 500*time.Millisecond)
				if c := (limiter.Change{Action: action, Grant: 1}); action != "none" {
					if err := c.Apply(t.Context(), s, claims); err != nil {
						t.Fatal(err)
					}
				}
				before := len(all.all)
				for range 150 {
					all.take(t, s, claims)
				}
				granted[action] = len(all.all) - before
				s.close()
				<-time.After(time.Hour)
			})
		}
		if n := granted["none"]; granted[limiter.ActionBan] != n || granted[limiter.ActionGrant]-n > 1 {
			t.Errorf("%v: %v are granted; want as many after a ban has ended, and one more after a grant", a, granted)
		}
	}
}

// A ban takes effect within the lease.
func TestAhead_BansWithinTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, claims, all := oneAhead(limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 1000, Window: time.Minute}})
		for range 20 {
			all.take(t, s, claims)
		}
		if err := s.Ban(t.Context(), claims, time.Hour); err != nil || s.leftOf(claims[0]) == 0 {
			t.Fatalf("%v; nothing was taken ahead", err)
		}
		<-time.After(time.Second)
		if all.take(t, s, claims); len(all.all) != 20 {
			t.Error("granted a lease after the ban")
		}
		s.close()
		<-time.After(time.Hour)
	})
}

// oneAhead returns a node that takes permits of a limit ahead for a second, and a claim.
func oneAhead(l limiter.Limit) (*aheadStore, []limiter.Claim, *uses) {
	far := &farStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), latency: 1}
	return newAhead(far, 1), []limiter.Claim{{Limit: &aheadWindow(l, time.Second).Limit, Key: limiter.KeyOf("k"), Cost: 1}}, &uses{}
}

// There is room for so many keys; the requests of others ask the store, which counts them by the same window.
func TestAhead_KeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &farStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), latency: 1}
		w := aheadWindow(limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 1000, Window: time.Minute}}, time.Second)
		s := newAhead(far, 1)
		var all uses
		for i := range maxAheadKeys + 50 {
			all.take(t, s, []limiter.Claim{{Limit: &w.Limit, Key: limiter.KeyOf(fmt.Sprint(i)), Cost: 1}})
		}
		if n := s.count(); n > maxAheadKeys || len(all.all) != maxAheadKeys+50 {
			t.Errorf("%d keys, %d granted", n, len(all.all))
		}
		<-time.After(time.Hour)
		if n := s.count(); n > 0 {
			t.Errorf("%d keys an hour later", n)
		}
	})
}
