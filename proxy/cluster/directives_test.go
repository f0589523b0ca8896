package cluster_test

import (
	"errors"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// What one node orders the others follow, for as long as it lasts; what is ordered while Redis is away
// holds there, and on all when it is back, also an end.
func TestDirectives(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	way := redistest.NewFaultProxy(t, s.Addr)
	var near, far atomic.Pointer[directive.Set]
	a := cluster.NewDirectives(dial(t, way.Addr), "test", near.Store)
	b := cluster.NewDirectives(dial(t, s.Addr), "test", func(s *directive.Set) { far.Store(s) })
	order := func(network string, d time.Duration) directive.Directive {
		return directive.Directive{Network: netip.MustParsePrefix(network), Until: time.Now().Add(d), Who: "anna"}
	}
	put := func(one directive.Directive) (everywhere bool) {
		t.Helper()
		everywhere, err := a.Put(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		return everywhere
	}
	if !put(order("192.0.2.0/24", time.Hour)) {
		t.Error("with Redis a ban does not hold everywhere")
	}
	if err := b.Sync(t.Context()); err != nil || len(far.Load().All()) != 1 || far.Load().All()[0].Who != "anna" {
		t.Fatalf("the other node knows %v, %v", far.Load().All(), err)
	}
	if rest := time.Until(far.Load().All()[0].Until); rest < 59*time.Minute || rest > time.Hour {
		t.Errorf("it lasts for %v", rest)
	}
	way.Redirect("127.0.0.1:1")
	if put(order("198.51.100.0/24", time.Hour)) || put(order("203.0.113.0/24", time.Millisecond)) {
		t.Error("without Redis a ban is said to hold everywhere")
	}
	if found, everywhere := a.Remove(t.Context(), order("192.0.2.0/24", 0)); !found || everywhere {
		t.Errorf("removed: found %t, everywhere %t", found, everywhere)
	}
	if all := near.Load().All(); len(all) == 0 || all[0].Network.String() != "198.51.100.0/24" || a.Waiting() != 3 {
		t.Errorf("while Redis is away this node knows %v, and %d wait", all, a.Waiting())
	}
	way.Redirect(s.Addr)
	await.Until(t, "Redis is reachable", func() bool { return a.Sync(t.Context()) == nil })
	if err := b.Sync(t.Context()); err != nil || a.Waiting() != 0 || len(far.Load().All()) != 1 || far.Load().All()[0].Network.String() != "198.51.100.0/24" {
		t.Errorf("the other node knows %v, %v; want the one that lasts", far.Load().All(), err)
	}
	if found, everywhere := b.Remove(t.Context(), order("192.0.2.0/24", 0)); found || !everywhere {
		t.Errorf("what is gone: found %t, everywhere %t", found, everywhere)
	}
}

// A single process keeps them in memory; their number is bounded.
func TestDirectives_InMemory(t *testing.T) {
	var set atomic.Pointer[directive.Set]
	d := cluster.NewDirectives(nil, "", set.Store)
	for i := range directive.Max + 1 {
		everywhere, err := d.Put(t.Context(), directive.Directive{Route: strconv.Itoa(i), Until: time.Now().Add(time.Hour)})
		if full := i == directive.Max; full != errors.Is(err, cluster.ErrTooManyDirectives) || everywhere == full {
			t.Fatalf("directive %d: everywhere %t, %v", i, everywhere, err)
		}
	}
	if n := len(set.Load().All()); n != directive.Max || len(d.All()) != n {
		t.Errorf("%d hold, want %d", n, directive.Max)
	}
}
