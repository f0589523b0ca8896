package proxy

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A KeyResult is the result of a change. It does not contain the value of the key.
type KeyResult struct {
	KeyChange
	// Changed are the limits that were changed, and Skipped those that could not be.
	Changed []LimitStanding `json:"changed"` // their state after the change
	Skipped []SkippedLimit  `json:"skipped,omitempty"`
	Network *netip.Prefix   `json:"network,omitempty"` // that was banned or unbanned, in place of a key
	At      time.Time       `json:"at"`
	// Everywhere reports whether the change applies on all nodes. While Redis is unreachable, it
	// applies only on this node, as long as the node decides by itself. Later reports that it is
	// applied on all nodes when Redis is reachable again, if its time is not over and this node does not
	// end before.
	Everywhere bool `json:"everywhere"`
	Later      bool `json:"later,omitempty"`
	// Behind are the nodes that have not confirmed the change, although all nodes will follow.
	Behind []string `json:"behind,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	// Now is whether requests with the key are refused after the change, also by what it did not change.
	Now KeyVerdict `json:"now"`

	deferral *deferral // of the limits whose change waits for the store
}

// Settled reports whether what waited for the store waits no longer, and whether all of it was applied on all
// nodes.
func (r KeyResult) Settled() (settled, everywhere bool) {
	if r.deferral == nil {
		return true, r.Everywhere
	}
	return r.deferral.left.Load() == 0, !r.deferral.lost.Load()
}

// Where says on which nodes the change applies.
func (r KeyResult) Where() string {
	if len(r.Behind) > 0 {
		return BehindText(r.Behind)
	}
	here := r.Network != nil || r.Action == KeyAssign || r.Action == KeyUnassign || slices.ContainsFunc(r.Changed, func(l LimitStanding) bool { return l.Store != "" })
	switch {
	case r.Everywhere:
		return "on all nodes"
	case r.Later && here:
		return "on this node now, on all nodes when redis is back"
	case r.Later:
		return "on all nodes when redis is back"
	}
	return "on this node only"
}

// BehindText says on which nodes a change holds that some have not confirmed.
func BehindText(nodes []string) string {
	return "on all nodes but " + strings.Join(nodes, ", ") + ", not heard from: they follow within seconds"
}

// Affected returns the limits under which there was something to change, and Unaffected the others.
func (r KeyResult) Affected() (all []LimitStanding) {
	return slices.DeleteFunc(slices.Clone(r.Changed), func(l LimitStanding) bool { return l.Unaffected })
}

// Unaffected returns the limits under which the key had no ban to end, or nothing to reset.
func (r KeyResult) Unaffected() (all []LimitStanding) {
	return slices.DeleteFunc(slices.Clone(r.Changed), func(l LimitStanding) bool { return !l.Unaffected })
}

// Granted returns the most permits that a grant has given back under one rate.
func (r KeyResult) Granted() (most int64) {
	for _, l := range r.Changed {
		for _, w := range l.Windows {
			most = max(most, w.Granted)
		}
	}
	return most
}

// A SkippedLimit is a limit that was not changed.
type SkippedLimit struct {
	Route string `json:"route"`
	Limit string `json:"limit"`
	Why   string `json:"why"`
}
