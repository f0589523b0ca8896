// Package directive holds what operators order for some time on all nodes: bans of networks, maintenance (503) of
// routes, and plans of keys. It does no I/O; package cluster shares directives.
package directive

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Max is the maximum number of directives.
const Max = 1000

// A Directive is one order: a ban if it has a network, the plan of a key if it has a plan, and else maintenance.
type Directive struct {
	Network netip.Prefix `json:"network,omitzero"`
	Plan    string       `json:"plan,omitempty"`
	Key     Key          `json:"key,omitzero"`    // that has the plan
	Route   string       `json:"route,omitempty"` // empty for all routes
	Until   time.Time    `json:"until"`
	At      time.Time    `json:"at"`            // when it was given
	Who     string       `json:"who,omitempty"` // the operator
	Reason  string       `json:"reason,omitempty"`
}

// A Key is a key without its value.
type Key struct {
	Name   string `json:"name"`             // of the key in the configuration
	Hash   string `json:"hash"`             // of its value
	Masked string `json:"masked,omitempty"` // for listings
}

// Name identifies d: a later directive of the same name replaces it.
func (d Directive) Name() string {
	switch {
	case d.Network.IsValid():
		return "ban " + d.Network.String() + " " + d.Route
	case d.IsPlan():
		return "plan " + d.Key.Name + " " + d.Key.Hash + " " + d.Route
	}
	return "maintenance " + d.Route
}

// IsPlan reports whether d is the plan of a key.
func (d Directive) IsPlan() bool { return d.Key.Hash != "" }

// IsMaintenance reports whether d is maintenance.
func (d Directive) IsMaintenance() bool { return !d.Network.IsValid() && !d.IsPlan() }

// Open reports whether d was given to hold until it is ended: then it has the longest time there is.
func (d Directive) Open() bool { return d.Until.Sub(d.At) >= 365*24*time.Hour }

// covers reports whether d holds on a route.
func (d Directive) covers(route string) bool { return d.Route == "" || d.Route == route }

// A Set is all directives at one time. It is immutable. A nil Set is empty.
type Set struct {
	all         []Directive
	bans        map[netip.Prefix][]Directive
	bits        []int // the different lengths of banned networks
	maintenance []Directive
	plans       map[string][]Directive // by the hash of the key
}

// NewSet returns the set of all, without those that are over; nil if none is left.
func NewSet(all []Directive, now time.Time) *Set {
	s := &Set{bans: map[netip.Prefix][]Directive{}, plans: map[string][]Directive{}}
	for _, d := range all {
		if !d.Until.After(now) {
			continue
		}
		s.all = append(s.all, d)
		switch {
		case d.Network.IsValid():
			s.bans[d.Network] = append(s.bans[d.Network], d)
		case d.IsPlan():
			s.plans[d.Key.Hash] = append(s.plans[d.Key.Hash], d)
		default:
			s.maintenance = append(s.maintenance, d)
		}
	}
	if len(s.all) == 0 {
		return nil
	}
	bits := map[int]bool{}
	for network := range s.bans {
		bits[network.Bits()] = true
	}
	s.bits = slices.Sorted(maps.Keys(bits))
	slices.SortFunc(s.all, func(a, b Directive) int {
		return cmp.Or(a.Network.Compare(b.Network), strings.Compare(a.Key.Masked, b.Key.Masked),
			strings.Compare(a.Route, b.Route))
	})
	return s
}

// All returns all directives: maintenance first, then plans by key, and bans by network.
func (s *Set) All() []Directive {
	if s == nil {
		return nil
	}
	return s.all
}

// Ban returns a ban that holds for an address on a route. Its cost does not depend on the number of bans.
func (s *Set) Ban(addr netip.Addr, route string, now time.Time) (Directive, bool) {
	addr = addr.Unmap().WithZone("")
	for _, bits := range s.bits {
		network, err := addr.Prefix(bits)
		if err != nil {
			continue // it is longer than the address
		}
		for _, d := range s.bans[network] {
			if d.covers(route) && d.Until.After(now) {
				return d, true
			}
		}
	}
	return Directive{}, false
}

// Maintenance returns the maintenance of a route.
func (s *Set) Maintenance(route string, now time.Time) (Directive, bool) {
	for _, d := range s.maintenance {
		if d.covers(route) && d.Until.After(now) {
			return d, true
		}
	}
	return Directive{}, false
}

// HasPlans reports whether any key has a plan.
func (s *Set) HasPlans() bool { return s != nil && len(s.plans) > 0 }

// Plan returns the plan of a key on one of some routes. One of a route takes precedence over one of all routes. Its
// cost does not depend on the number of plans.
func (s *Set) Plan(name string, hash []byte, now time.Time, routes ...string) (found Directive, ok bool) {
	for _, d := range s.plans[string(hash)] {
		if d.Key.Name != name || !d.Until.After(now) || d.Route != "" && !slices.Contains(routes, d.Route) {
			continue
		}
		if !ok || d.Route != "" {
			found, ok = d, true
		}
	}
	return found, ok
}

// Overlapping returns the bans of networks that have an address in common with network.
func (s *Set) Overlapping(network netip.Prefix) (found []Directive) {
	for _, d := range s.All() {
		if d.Network.Overlaps(network) {
			found = append(found, d)
		}
	}
	return found
}
