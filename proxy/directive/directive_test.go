package directive

import (
	"net/netip"
	"testing"
	"time"
)

func TestSet(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ban := func(network, route string, d time.Duration) Directive {
		return Directive{Network: netip.MustParsePrefix(network), Route: route, Until: now.Add(d)}
	}
	s := NewSet([]Directive{
		ban("203.0.113.0/26", "", time.Hour), ban("2001:db8::/48", "sms", time.Hour), ban("198.51.100.0/24", "", 0), ban("192.0.2.7/32", "", time.Minute),
		{Route: "pay", Until: now.Add(time.Hour)},
	}, now)
	for _, row := range []struct {
		addr, route string
		at          time.Duration
		want        bool
	}{
		{"203.0.113.0", "a", 0, true},
		{"203.0.113.63", "a", 0, true},
		{"203.0.113.64", "a", 0, false},
		{"203.0.112.255", "a", 0, false},
		{"::ffff:203.0.113.7", "a", 0, true},
		{"203.0.113.7", "a", time.Hour, false},
		{"203.0.113.7", "a", time.Hour - 1, true},
		{"198.51.100.1", "a", 0, false},
		{"192.0.2.7", "", 0, true},
		{"192.0.2.8", "", 0, false},
		{"2001:db8::1", "sms", 0, true},
		{"2001:db8:0:ffff::1%eth0", "sms", 0, true},
		{"2001:db8::1", "a", 0, false},
		{"2001:db8:1::1", "sms", 0, false},
	} {
		if _, got := s.Ban(netip.MustParseAddr(row.addr), row.route, now.Add(row.at)); got != row.want {
			t.Errorf("%s on %q after %v: banned %t, want %t", row.addr, row.route, row.at, got, row.want)
		}
	}
	for route, want := range map[string]bool{"pay": true, "a": false} {
		if _, got := s.Maintenance(route, now); got != want {
			t.Errorf("maintenance of %s: %t, want %t", route, got, want)
		}
	}
	if s.HasPlans() {
		t.Error("no plan was assigned, but the set has plans")
	}
	if n := len(s.All()); n != 4 || s.All()[0].Route != "pay" {
		t.Errorf("%v; want four, maintenance first", s.All())
	}
	if got := s.Overlapping(netip.MustParsePrefix("203.0.113.0/24")); len(got) != 1 {
		t.Errorf("%v; want the ban inside", got)
	}
	if s := NewSet([]Directive{ban("192.0.2.0/24", "", 0)}, now); s != nil || len(s.All()) > 0 {
		t.Errorf("%v; want nothing", s)
	}
	if s := NewSet([]Directive{{Until: now.Add(1)}}, now); s == nil {
		t.Error("maintenance of all routes is not in the set")
	} else if _, on := s.Maintenance("any", now); !on {
		t.Error("maintenance of all routes does not hold on one")
	}
}

// A plan belongs to a key by name and hash, for a time; that of a route takes precedence.
func TestSet_Plan(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	plan := func(name, hash, plan, route string) Directive {
		return Directive{Key: Key{Name: name, Hash: hash}, Plan: plan, Route: route, Until: now.Add(time.Hour)}
	}
	all := []Directive{plan("user", "a1", "team", "pay"), plan("user", "a1", "pro", ""), plan("org", "b2", "free", "sms")}
	s := NewSet(all, now)
	for _, row := range []struct {
		name, hash, route string
		at                time.Duration
		want              string
	}{
		{"user", "a1", "sms", 0, "pro"},
		{"user", "a1", "pay", 0, "team"},
		{"user", "a1", "pay", time.Hour, ""},
		{"org", "a1", "pay", 0, ""},
		{"user", "b2", "sms", 0, ""},
		{"org", "b2", "sms", 0, "free"},
		{"org", "b2", "pay", 0, ""},
	} {
		if got, _ := s.Plan(row.name, []byte(row.hash), now.Add(row.at), row.route); got.Plan != row.want {
			t.Errorf("%+v: plan %q", row, got.Plan)
		}
	}
	names := map[string]bool{}
	for _, d := range all {
		names[d.Name()] = true
		if !d.IsPlan() || d.IsMaintenance() {
			t.Errorf("%+v is not taken for a plan", d)
		}
	}
	if _, on := s.Maintenance("sms", now); on || len(names) != 3 || !s.HasPlans() {
		t.Errorf("maintenance %t, names %v, plans %t; want plans of three names, and no maintenance", on, names, s.HasPlans())
	}
}
