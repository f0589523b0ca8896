package limit

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/stripe"
	"github.com/weir-proxy/weir/test/rounds"
)

// held makes an admitter and an admission that asks for one of one permit.
func held(store limiter.AdminStore) (*Admitter, *Admission) {
	a := &Admitter{Store: store, Fallback: NewFallback(store, func() int { return 1 }), metrics: newTestMetrics()}
	l := &Limit{Limit: &config.Limit{Name: "l", Mode: config.Enforce}}
	w := &Window{Of: l, Limit: limiter.Limit{Name: "a.l:held", Algorithm: limiter.Concurrent, Rate: limiter.Rate{Count: 1, Window: config.Lease}}}
	w.Owner = w
	q := &Admission{Asker: Asker{Route: &Route{Route: &config.Route{Name: "a"}, Windows: []*Window{w}, settling: []*Limit{l}}}}
	q.Claims.Add([]*Window{w}, &limiter.Claim{Key: limiter.KeyOf("k"), Cost: 1})
	return a, q
}

// A request that lasts much longer than the lease holds its permit all the time,
// and one whose process is gone loses it with the lease.
func TestHold_RenewsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := limiter.NewMemory(limiter.MemoryOptions{})
		a, q := held(store)
		if err := a.Admit(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			<-time.After(config.Lease / 2)
			_, other := held(store)
			if err := a.Admit(t.Context(), other); err == nil {
				t.Fatal("a second request passed while the first was under way")
			}
		}
		a.Settle(t.Context(), q, Outcome{Status: 200})
		q.StopRenewing()
		_, next := held(store)
		if err := a.Admit(t.Context(), next); err != nil {
			t.Errorf("after the first request has ended: %v", err)
		}
		next.StopRenewing() // as if this process had died: nobody renews, nobody gives back
		<-time.After(config.Lease - time.Second)
		_, other := held(store)
		if err := a.Admit(t.Context(), other); err == nil {
			t.Error("passed before the lease ran out")
		}
		<-time.After(2 * time.Second)
		if err := a.Admit(t.Context(), other); err != nil {
			t.Errorf("after the lease: %v", err)
		}
		other.StopRenewing()
	})
}

// A deafStore is a memory whose permits cannot be renewed at times.
type deafStore struct {
	*limiter.Memory
	away atomic.Bool
}

func (s *deafStore) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	if s.away.Load() {
		return limiter.ErrUnavailable
	}
	return s.Memory.Renew(ctx, claims, p)
}

// A request that lasts longer than an outage in which its lease has ended counts again after it, also if others were
// granted its permit meanwhile, and returns its permit once.
func TestHold_CountsAgainAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deafStore{Memory: limiter.NewMemory(limiter.MemoryOptions{})}
		a, q := held(store)
		asks := func(when string, want error) (other *Admission) {
			t.Helper()
			_, other = held(store)
			if err := a.Admit(t.Context(), other); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", when, err, want)
			}
			return other
		}
		if err := a.Admit(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		store.away.Store(true)
		<-time.After(config.Lease + time.Second)
		store.away.Store(false)
		<-time.After(RenewInterval)
		asks("while the first request is under way", ErrRefused)
		store.away.Store(true)
		<-time.After(config.Lease + time.Second)
		meanwhile := asks("after another lease", nil)
		store.away.Store(false)
		<-time.After(RenewInterval)
		a.Settle(t.Context(), meanwhile, Outcome{Status: 200})
		meanwhile.StopRenewing()
		asks("after the end of the other", ErrRefused)
		a.Settle(t.Context(), q, Outcome{Status: 200})
		q.StopRenewing()
		asks("after the end of both", nil).StopRenewing()
	})
}

// What is held after the request, for another proxy that reports the outcome, is refunded by the node that gets the report.
func TestHold_ARefundElsewhereIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := limiter.NewMemory(limiter.MemoryOptions{})
		a, q := held(store)
		if err := a.Admit(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		claims, permit := slices.Clone(q.Claims), q.Decision.Permit
		a.Hold(q, time.Hour)
		if err := store.Refund(t.Context(), claims, permit); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * RenewInterval)
		_, other := held(store)
		if err := a.Admit(t.Context(), other); err != nil {
			t.Errorf("after the report: %v", err)
		}
		other.StopRenewing()
		a.held.close()
	})
}

// A held permit is renewed while it is held, and returned once.
func TestHold_LongerThanTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := limiter.NewMemory(limiter.MemoryOptions{})
		a, q := held(store)
		if err := a.Admit(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		const during = 2*config.Lease + time.Second
		a.Hold(q, during)
		a.Settle(t.Context(), q, Outcome{})
		q.StopRenewing()
		_, other := held(store)
		<-time.After(during - time.Millisecond)
		if err := a.Admit(t.Context(), other); err == nil {
			t.Error("passed before the permit was held long enough")
		}
		<-time.After(2 * time.Millisecond)
		if err := a.Admit(t.Context(), other); err != nil {
			t.Errorf("after the time to hold: %v", err)
		}
		if n := len(a.held.leases); n > 0 {
			t.Errorf("%d leases are held after that", n)
		}
		<-time.After(during) // the first lease does not return the permit of the other
		_, third := held(store)
		if err := a.Admit(t.Context(), third); err == nil {
			t.Error("passed while the other request was in progress")
		}
		other.StopRenewing()
	})
}

// The memory for held leases is bounded, and none are held when the proxy closes.
func TestHold_Bounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all heldLeases
		l := startLease(limiter.NewMemory(limiter.MemoryOptions{}), []limiter.Claim{{Limit: &limiter.Limit{Algorithm: limiter.Concurrent}}}, limiter.Permit{})
		for range maxHeldLeases {
			if !all.add(&lease{timer: l.timer}, time.Hour) {
				t.Fatal("a lease is not held below the bound")
			}
		}
		if all.add(l, time.Hour) {
			t.Error("more leases are held than the bound")
		}
		l.end()
		all = heldLeases{}
		all.close()
		if all.add(l, time.Hour) {
			t.Error("a lease is held after close")
		}
	})
}

// A decision by a single call of the store gets a context that costs nothing, and that does not end
// with the client.
func TestCost_NoContextForASingleCall(t *testing.T) {
	a, q := &Admitter{Timeout: time.Second}, &Admission{Asker: Asker{Route: &Route{}}}
	client, leave := context.WithCancel(t.Context())
	if n := rounds.Allocations(100, func() {
		_, cancel := a.withTimeoutForAll(client, q)
		cancel()
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
	ctx, cancel := a.withTimeoutForAll(client, q)
	defer cancel()
	leave()
	if ctx.Err() != nil {
		t.Errorf("the decision ends with its client: %v", ctx.Err())
	}
}

func newTestMetrics() *Metrics {
	stripes := stripe.New()
	return NewMetrics(prometheus.NewRegistry(), stripes, metrics.NewBuckets(stripes.Count()))
}

// A settledStore has settled as soon as somebody has looked at whether it has.
type settledStore struct {
	reporter
	settled bool
}

func (s *settledStore) Available() bool {
	defer s.settle()
	return s.settled
}

func (s *settledStore) Settling() bool {
	defer s.settle()
	return !s.settled
}

func (s *settledStore) settle() { s.settled = true }

// A request that comes just when the store has settled is not decided without it: others
// go by the store alone already.
func TestFallback_TheEndOfSettlingIsNoAbsence(t *testing.T) {
	s := NewFallback(&settledStore{}, func() int { return 1 })
	_, q := held(nil)
	q.Claims.Window(0).Of.OnStoreFailure = config.Local
	if got := s.decider(q); got == decideByShare {
		t.Error("the share decides alone")
	}
}

// An awayStore cannot be reached.
type awayStore struct{ reporter }

func (awayStore) Available() bool { return false }
func (awayStore) Settling() bool  { return false }

// How a request falls back is said by the limits that it has reached: not by one that its route has besides.
func TestFallback_GoesByWhatTheRequestReaches(t *testing.T) {
	f := NewFallback(&awayStore{}, func() int { return 1 })
	for _, c := range []struct {
		name    string
		reached []config.OnStoreFailure
		want    decider
	}{
		{"its share", []config.OnStoreFailure{config.Local}, decideByShare},
		{"one that denies", []config.OnStoreFailure{config.Local, config.Deny}, DecideByStore},
		{"none with a share", []config.OnStoreFailure{config.Allow}, DecideByStore},
	} {
		q := &Admission{Asker: Asker{Route: &Route{}}}
		for _, policy := range c.reached {
			_, one := held(nil)
			one.Claims.Window(0).Of.OnStoreFailure = policy
			q.Claims = append(q.Claims, one.Claims...)
		}
		if got := f.decider(q); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// The store may fail between the refusal and the token.
func TestStepUp_StoreFailsInBetween(t *testing.T) {
	r := NewRoute(&config.Route{Name: "send", Limits: []*config.Limit{{
		Name: "unused", ID: "send.unused", Rates: []limiter.Rate{{Count: 2, Window: time.Hour}, {Count: 9, Window: 24 * time.Hour}},
		StepUp: &config.StepUp{Header: "X-Challenge-Token", Rates: []limiter.Rate{{Count: 3, Window: time.Hour}, {Count: 20, Window: 24 * time.Hour}}},
	}}}, config.Alerts{})
	q := &Admission{Asker: Asker{Route: &r, Solver: acceptAll{}}}
	unused := q.Route.Active[0]
	q.Claims.Add(unused.Windows, &limiter.Claim{Cost: 1})
	q.Decision.Outcomes = []limiter.Outcome{{}, {Allowed: true}}
	failure := errors.New("gone")
	asked := 0
	err := (&Admitter{}).stepUp(q, func() error {
		asked++
		return failure
	})
	if asked != 1 || !errors.Is(err, failure) {
		t.Errorf("stepUp = %v after %d calls; want the error of the store", err, asked)
	}
	if q.Claims.Window(0) != unused.Windows[0] || q.Steps != nil {
		t.Error("the claims are not those of before")
	}
}

// acceptAll accepts any request.
type acceptAll struct{}

func (acceptAll) Solution(*Limit) (limiter.Claim, error) { return limiter.Claim{}, nil }

// A report that a request has cost less refunds nothing of what was taken ahead with it: the rest is still given back.
func TestAhead_ReportsOfLessGiveBackTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, claims, _ := oneAhead(limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 200, Window: time.Hour}})
		claims[0].Cost = 2
		a := &Admitter{Store: s, metrics: newTestMetrics()}
		for range 50 {
			var d limiter.Decision
			if err := s.Take(t.Context(), claims, &d); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			q := &Admission{Permits: Permits{TakenPermits: []TakenPermit{{Store: s, Claims: slices.Clone(claims), Permit: d.Permit}}}}
			if err := a.SettleCost(t.Context(), q, Correction{Less: 1}, nil); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(3 * time.Second)
		in, err := s.Inspect(t.Context(), claims)
		if err != nil || in.Statuses[0].Used != 100 {
			t.Errorf("%+v, %v; want 100 used", in.Statuses, err)
		}
		<-time.After(time.Hour)
	})
}

// A slowStore takes its time.
type slowStore struct{ *farStore }

// Take is that of a store that answers until the deadline of ctx.
func (s slowStore) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	select {
	case <-time.After(40 * time.Millisecond):
		return s.farStore.Take(ctx, claims, d)
	case <-ctx.Done():
		return limiter.ErrUnavailable
	}
}

// A decision that asks twice takes no longer than one call may.
func TestAhead_ASecondQuestionHasTheRestOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &farStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), latency: 1}
		w := aheadWindow(limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 100, Window: time.Minute}}, time.Second)
		s := newAhead(slowStore{far}, 1)
		s.timeout = 50 * time.Millisecond
		claims := []limiter.Claim{{Limit: &w.Limit, Key: limiter.KeyOf("k"), Cost: 1}}
		var d limiter.Decision
		for range 9 {
			if err := s.Take(t.Context(), claims, &d); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(1500 * time.Millisecond)
		if err := far.Take(t.Context(), []limiter.Claim{{Limit: &w.Limit, Key: claims[0].Key, Cost: 85}}, &d); err != nil || !d.Allowed {
			t.Fatal(err, d)
		}
		far.calls = 0
		began := time.Now()
		err := s.Take(t.Context(), claims, &d)
		if took := time.Since(began); took > s.timeout || !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("after %v: %v; want an error within %v", took, err, s.timeout)
		}
		s.close()
		<-time.After(time.Hour)
	})
}
