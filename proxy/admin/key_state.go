package admin

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/view"
)

// changesRead is how many entries of the audit trail are searched for changes of a key.
const changesRead = 200

// A KeyState is the state of a key, in one sentence and in full, and the last change of it by an operator.
type KeyState struct {
	view.KeyStanding
	Verdict view.KeyVerdict `json:"verdict"`
	// Version is for a change that applies only if nobody else has changed the key meanwhile. It is empty
	// while the audit trail cannot be read.
	Version    string           `json:"version,omitempty"`
	LastChange *view.AuditEntry `json:"last_change,omitempty"` // none if it is not among the newest entries
}

// Inspect returns the state of a key.
func (o Options) Inspect(ctx context.Context, q view.KeyQuery) (KeyState, error) {
	// The trail is read first: what is recorded later has another version.
	trail, unread := o.Audit(ctx, view.AuditQuery{N: changesRead})
	s, err := o.Standing(ctx, q)
	if err != nil {
		return KeyState{}, err
	}
	state := KeyState{KeyStanding: s, Verdict: s.Verdict()}
	if unread != nil {
		state.Notes = append(state.Notes, "the audit trail cannot be read: changes by others are not known")
		return state, nil
	}
	state.Version = versionOf(trail.Entries)
	if i := slices.IndexFunc(trail.Entries, func(e view.AuditEntry) bool { return changed(e, s) }); i >= 0 {
		state.LastChange = &trail.Entries[i]
	}
	return state, nil
}

// ChangeSince changes a key, unless an operator has changed it since the version of its state: then it
// returns a Problem with the status 409 that says who and how. An empty version changes it in any case.
// The version is compared before the change: of two changes within milliseconds, both may be made.
func (o Options) ChangeSince(ctx context.Context, version string, c view.KeyChange) (view.KeyResult, error) {
	if version != "" {
		if err := o.checkVersion(ctx, version, c.KeyQuery); err != nil {
			return view.KeyResult{}, err
		}
	}
	return o.Change(ctx, c)
}

// checkVersion returns a Problem if a key was, or may have been, changed since version. While the trail cannot be read, the
// version is not checked: a key must be changeable during an outage.
func (o Options) checkVersion(ctx context.Context, version string, q view.KeyQuery) error {
	trail, err := o.Audit(ctx, view.AuditQuery{N: changesRead})
	if err != nil || versionOf(trail.Entries) == version {
		return nil
	}
	s, err := o.Standing(ctx, q)
	if err != nil {
		return err
	}
	for _, e := range trail.Entries {
		if e.ID == version {
			return nil
		}
		if changed(e, s) {
			return &Problem{Status: http.StatusConflict, Detail: e.Done(time.Now()) + ", after you looked; look at the key again"}
		}
	}
	if len(trail.Entries) == changesRead {
		return &Problem{Status: http.StatusConflict, Detail: "so much was recorded after you looked that a change of the key may be among it; look at the key again"}
	}
	return nil
}

// versionOf returns the version of all keys: that of the newest entry.
func versionOf(trail []view.AuditEntry) string {
	if len(trail) == 0 {
		return "0"
	}
	return trail[0].ID
}

// changed reports whether e is a change of the key of s under a limit of s.
func changed(e view.AuditEntry, s view.KeyStanding) bool {
	return e.Error == "" && e.Hash != "" && slices.ContainsFunc(s.Limits, func(l view.LimitStanding) bool {
		return !l.Derived && l.Hash == e.Hash && slices.Contains(e.Limits, view.LimitName(l.Route, l.Limit))
	})
}

// A KeyAction is an action on a key: without further parameters reset, unban and unplan.
type KeyAction struct {
	view.KeyQuery
	Reason  string `json:"reason,omitempty"`  // for the audit trail
	Version string `json:"version,omitempty"` // change nothing if another operator has changed the key since this KeyState.Version
}

// A KeyGrant grants permits to a key.
type KeyGrant struct {
	KeyAction
	Permits int64 `json:"permits"`
}

// A KeyBan bans a key.
type KeyBan struct {
	KeyAction
	For view.Span `json:"for"`
}

// A KeyPlan assigns a plan to a key.
type KeyPlan struct {
	KeyAction
	Plan string    `json:"plan"`
	For  view.Span `json:"for"`
}

// Plans are the plans that operators have assigned to keys.
type Plans struct {
	Keys []AssignedPlan `json:"keys"`
}

// An AssignedPlan is the plan of a key.
type AssignedPlan struct {
	directive.Directive
	ID string `json:"id"` // the key id, see view.KeyPair
}

// Bans are the networks that are banned, by network.
type Bans struct {
	Networks []directive.Directive `json:"networks"`
}

// A MaintenanceChange begins or ends maintenance.
type MaintenanceChange struct {
	On     bool      `json:"on"`
	Route  string    `json:"route,omitempty"` // empty for all routes
	For    view.Span `json:"for,omitzero"`    // until it is ended if it is left out
	Reason string    `json:"reason,omitempty"`
}

// Maintenance is what is under maintenance.
type Maintenance struct {
	On []directive.Directive `json:"on"`
	// Everywhere reports whether all nodes know. While Redis is unreachable, a change holds on the node that
	// was asked, and on all when Redis is back.
	Everywhere bool `json:"everywhere"`
	// Behind are the nodes that have not confirmed the change, although all nodes will follow.
	Behind []string `json:"behind,omitempty"`
}

// Where says on which nodes a change of it holds.
func (m Maintenance) Where() string {
	return view.KeyResult{Network: new(netip.Prefix), Everywhere: m.Everywhere, Later: !m.Everywhere, Behind: m.Behind}.Where()
}

// change returns a handler for an action without further parameters.
func (o Options) change(a view.KeyAction) func(context.Context, KeyAction) (view.KeyResult, error) {
	return func(ctx context.Context, k KeyAction) (view.KeyResult, error) {
		return o.act(ctx, k, view.KeyChange{Action: a})
	}
}

func (o Options) grant(ctx context.Context, k KeyGrant) (view.KeyResult, error) {
	return o.act(ctx, k.KeyAction, view.KeyChange{Action: view.KeyGrant, Permits: k.Permits})
}

func (o Options) assign(ctx context.Context, k KeyPlan) (view.KeyResult, error) {
	return o.act(ctx, k.KeyAction, view.KeyChange{Action: view.KeyAssign, Plan: k.Plan, For: k.For})
}

func (o Options) ban(ctx context.Context, k KeyBan) (view.KeyResult, error) {
	return o.act(ctx, k.KeyAction, view.KeyChange{Action: view.KeyBan, For: k.For})
}

// act makes a change to the key of k.
func (o Options) act(ctx context.Context, k KeyAction, c view.KeyChange) (view.KeyResult, error) {
	c.KeyQuery, c.Reason = k.KeyQuery, k.Reason
	return o.ChangeSince(ctx, k.Version, c)
}
